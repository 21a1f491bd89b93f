//! What a test wants to happen.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// A version of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

/// The file beside the program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    version: String,
    /// What `--version` prints, if it is not just the version.
    version_text: Option<String>,
    /// Exit code of `--version`.
    pub version_exit: i32,
    /// What `models` prints; its first column is what `--model` takes.
    pub models: String,
    /// What happens in the starts that only ask for the login (`models`, `/usage`), first to last; the last one is
    /// for all later ones too. None: they succeed.
    pub probes: Vec<Vec<Act>>,
    /// What happens in runs, likewise.
    pub runs: Vec<Vec<Act>>,
    /// The login is a file of the config root; without it the run waits for a person.
    pub token_login: bool,
    /// Each server takes this long to be there.
    pub mcp_delay_ms: u64,
    /// It does not connect to any server, and says nothing.
    pub mcp_off: bool,
    /// Line ends inside texts are not escaped.
    pub raw_newlines: bool,
    /// Printed on standard output before everything else.
    pub banner: String,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            version: "1.3.3".into(),
            version_text: None,
            version_exit: 0,
            models: "gemini-3-pro\tGemini 3 Pro\ngemini-3-flash\tGemini 3 Flash\n".into(),
            probes: Vec::new(),
            runs: Vec::new(),
            token_login: false,
            mcp_delay_ms: 0,
            mcp_off: false,
            raw_newlines: false,
            banner: String::new(),
        }
    }
}

/// One thing that happens, in the order of the list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// The agent says it.
    Say(String),
    /// `[path, content]` is written in the workspace.
    Edit(String, String),
    /// The same, whatever the mode: what `--sandbox` and bugs let through.
    SneakEdit(String, String),
    /// A file is removed.
    Delete(String),
    /// `[from, to]`.
    Rename(String, String),
    /// `[target, link]`.
    Symlink(String, String),
    /// Everything is committed with this message.
    Commit(String),
    /// The model wants to run a command.
    Command(String),
    /// The servers' tools are listed again, into the record.
    ListTools,
    /// `[tool, arguments]` of the first server is called; the answer goes into the record and is said.
    Call(String, Value),
    /// A line of standard error.
    Stderr(String),
    /// Bytes of standard output, as they are.
    Stdout(String),
    /// A line of the log file.
    Log(String),
    /// What the version says to somebody who is not logged in, on that stream (`stdout`, `stderr`).
    LoginPrompt(String),
    /// The key ring does not answer: a line in the log file, nowhere else.
    Keyring,
    /// Nothing, for that long.
    SleepMs(u64),
    /// Nothing, for ever.
    Hang,
    /// Nothing, until this file is there.
    WaitFor(std::path::PathBuf),
    /// From now on it takes no request to end.
    IgnoreTerm,
    /// A child that lives on and holds standard output.
    HoldStdout,
    /// That many bytes of standard output on one line.
    Huge(u64),
    /// Half an event, and no line end.
    TornEvent,
    /// The output ends here, with this exit code: no result.
    Vanish(i32),
    /// The time of `--print-timeout` is over.
    PrintTimeout,
    /// The model or its service fails, `{"status", "message"}`.
    Fail(Failure),
    /// What the schema's answer is; without it, one that fits is made up.
    Structured(Value),
    /// There is none, though a schema was given.
    NoStructured,
    /// Members of the final envelope, over those that would be there.
    Envelope(Value),
    /// Exit code at the end, whatever else would be it.
    Exit(i32),
}

/// How the service fails.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// A word of gRPC: `ResourceExhausted`, `Unauthenticated`, …
    pub status: String,
    /// The text.
    pub message: String,
    #[serde(default)]
    pub retryable: bool,
}

impl Scenario {
    /// The one beside this program; without one, everything goes well.
    pub fn beside(program: &Path) -> Self {
        let path = program.with_extension("json");
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
            Err(_) => Self::default(),
        }
    }

    pub fn version(&self) -> Version {
        let mut numbers = self.version.split(['.', '-']).map(|part| part.parse().expect("a version"));
        let mut next = || numbers.next().expect("three numbers");
        Version(next(), next(), next())
    }

    pub fn version_text(&self) -> String {
        self.version_text.clone().unwrap_or_else(|| self.version.clone())
    }
}

/// What happens in the n-th start (from 0) of a kind.
pub fn acts_of(list: &[Vec<Act>], number: usize) -> &[Act] {
    list.get(number).or_else(|| list.last()).map_or(&[], Vec::as_slice)
}
