//! The script of the mock agent, as types. Unknown fields are errors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A whole script. The first rule whose conditions all hold gives the steps, else `steps`, else the
/// prompt is repeated. Texts and paths may hold `{prompt}`, `{sandbox}`, `{model}`, `{resume}`, `{thread}`,
/// `{run}`, `{pid}`, `{cwd}` and `{told}`, which is what the last called tool said.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    /// Free notes; never read.
    pub notes: Option<Value>,
    /// Printed for `--version`.
    pub version: Option<String>,
    /// What the login probe (`login status`, `auth status`) answers.
    pub auth: Option<Probe>,
    /// How much of standard input is read before the steps (default: all of it).
    pub stdin: Option<StdinMode>,
    /// Stem of the files that count the runs; needed by `run` conditions.
    pub counter: Option<String>,
    /// Steps by condition.
    pub rules: Vec<Rule>,
    /// Steps if no rule holds.
    pub steps: Option<Vec<Action>>,
}

/// Answer of a probe.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Probe {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// Exit code.
    pub exit: i32,
}

/// How much of standard input is read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinMode {
    /// To its end.
    All,
    /// Nothing.
    None,
    /// At most this many bytes.
    Bytes(u64),
}

/// Steps with conditions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// All of them must hold.
    #[serde(default)]
    pub when: When,
    /// The steps.
    pub steps: Vec<Action>,
}

/// Conditions; absent ones hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// The prompt contains this text.
    pub contains: Option<String>,
    /// A session is resumed.
    pub resumed: Option<bool>,
    /// Granted mode: `read-only`, `workspace-write`, `full-access`.
    pub sandbox: Option<String>,
    /// Model that was named.
    pub model: Option<String>,
    /// The how-manieth run of this script it is, from 1. Needs `counter`.
    pub run: Option<u64>,
    /// One argument equals this text.
    pub argument: Option<String>,
}

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Prints raw output.
    Print(Print),
    /// Prints a whole turn as the imitated CLI would.
    Answer(Box<Answer>),
    /// Prints one JSON value on a line of standard output.
    Event(Value),
    /// Reads (more of) standard input.
    ReadStdin(StdinMode),
    /// Waits.
    SleepMs(u64),
    /// Waits until it is killed.
    Hang,
    /// Waits until a file exists.
    WaitForFile(WaitForFile),
    /// Creates an empty file.
    TouchFile(String),
    /// Writes a file, if the granted mode allows it; else the refusal is reported as the CLI would.
    WriteFile(WriteFile),
    /// Writes a JSON file with argv, environment, folder and standard input of this run.
    Record(String),
    /// Starts a child that runs steps of its own.
    Spawn(Spawn),
    /// Starts another program and talks to it.
    Run(RunProgram),
    /// Calls a tool of the run's endpoint.
    CallTool(CallTool),
    /// Ignores signals from here on: `INT`, `TERM`, `HUP`. No effect on Windows.
    IgnoreSignals(Vec<String>),
    /// Other steps, then the end, if another run began less than some time ago.
    NotWithin(NotWithin),
    /// Steps over and over.
    Repeat(Repeat),
    /// Ends with this exit code.
    Exit(i32),
    /// Ends by a signal: `INT`, `TERM`, `KILL`, `HUP`, `ABRT`. On Windows, an exit code like that of a kill.
    KillSelf(String),
}

/// Where to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// Raw output; the given parts are printed in this order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Print {
    /// Text as it stands.
    pub text: Option<String>,
    /// Each with a line end.
    pub lines: Vec<String>,
    /// Bytes in standard base64.
    pub base64: Option<String>,
    /// Many bytes of the same text.
    pub repeat: Option<RepeatBytes>,
    /// Where.
    pub to: Stream,
    /// Written in pieces of this size, each flushed.
    pub piece: Option<usize>,
    /// Pause between pieces.
    pub pause_ms: u64,
}

/// The same text over and over, up to a size.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepeatBytes {
    /// In all.
    pub bytes: u64,
    /// What is repeated (default `x`).
    #[serde(default)]
    pub text: Option<String>,
}

/// Which CLI is imitated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// By the arguments: `--output-format` means Claude.
    #[default]
    Auto,
    /// `codex exec --json`.
    Codex,
    /// `claude -p`.
    Claude,
}

/// Form of Claude's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// By `--output-format`.
    #[default]
    Auto,
    /// One result object.
    Object,
    /// One array of events.
    Array,
    /// One event a line.
    Lines,
    /// Only the text.
    Text,
}

/// A whole turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Answer {
    /// The answer (default: the prompt is repeated).
    pub text: Option<String>,
    /// Which CLI is imitated.
    pub dialect: Dialect,
    /// Form of Claude's output.
    pub format: Format,
    /// A document over many lines.
    pub pretty: bool,
    /// Session id (default: the resumed one, else a new one).
    pub thread: Option<String>,
    /// Commands shown as run before the answer.
    pub commands: Vec<String>,
    /// Errors that are not fatal, for instance retries.
    pub errors: Vec<String>,
    /// Figures as the CLI reports them: totals of the thread for Codex, of the run for Claude.
    pub usage: Option<UsageFigures>,
    /// Cost in US dollars (Claude).
    pub cost_usd: Option<f64>,
    /// The turn fails with this message, and the exit code becomes 1.
    pub failed: Option<String>,
    /// Claude's error flag.
    pub is_error: bool,
    /// Claude's subtype (default `success`).
    pub subtype: Option<String>,
}

/// Token figures.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageFigures {
    /// Input.
    pub input: u64,
    /// Cached input.
    pub cached: u64,
    /// Output.
    pub output: u64,
    /// Reasoning.
    pub reasoning: u64,
}

/// Waiting for a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitForFile {
    /// Which.
    pub path: String,
    /// After this the script is broken (default 30 s).
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// Writing a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// Where; relative paths start at the working folder.
    pub path: String,
    /// What.
    pub text: String,
    /// Write whatever mode was granted: a worker that breaks its promise.
    #[serde(default)]
    pub force: bool,
}

/// In which process group a child lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// In ours.
    #[default]
    Same,
    /// In one of its own.
    Own,
    /// In a session of its own.
    Session,
}

/// A child.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spawn {
    /// What it does.
    pub steps: Vec<Action>,
    /// Where it lives.
    pub group: Group,
    /// Started by a child that ends at once, so that it has no living parent in the tree.
    pub double_fork: bool,
    /// It does not inherit standard output and standard error.
    pub quiet: bool,
    /// Its end is waited for.
    pub wait: bool,
}

/// Another program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunProgram {
    /// Path, or `{self}` for this very program.
    pub program: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Variables set for it.
    pub env: BTreeMap<String, String>,
    /// Lines for its standard input.
    pub stdin: Vec<String>,
    /// Standard input stays open until it has printed this many lines.
    pub until_lines: usize,
    /// After this it is killed (default 30 s).
    pub timeout_ms: Option<u64>,
    /// File for `{lines, stderr, exit, timedOut}`.
    pub save: Option<String>,
}

/// A call of a tool. Its answer is waited for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallTool {
    /// Its name.
    pub tool: String,
    /// Its arguments; texts in them may hold placeholders.
    pub arguments: Value,
    /// After this the answer is not waited for any more (default 30 s).
    pub timeout_ms: Option<u64>,
    /// File for the answer as it came.
    pub save: Option<String>,
}

/// A check of the time since the last start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotWithin {
    /// File that remembers the last start.
    pub file: String,
    /// Least distance.
    pub ms: u64,
    /// What happens if it was less.
    pub otherwise: Vec<Action>,
}

/// Steps over and over.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// How often.
    pub times: u64,
    /// What.
    pub steps: Vec<Action>,
}
