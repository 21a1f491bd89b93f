//! The backends: how each CLI is started, how its output is read, what its failures mean.
//!
//! An adapter is pure: it turns a request into argv and bytes into a verdict. It never starts a
//! process, opens a file or looks at the clock, so recorded streams test it completely. The one
//! exception is [`mock_program`], the worker side of the built-in scripted agent.

mod antigravity;
mod arguments;
mod bounded;
mod claude;
mod codex;
pub mod endpoint;
mod error;
mod evidence;
mod failure;
mod gemini;
mod login_question;
mod mock;
pub mod mock_program;
mod private_files;
mod prompt_way;
pub mod redaction;
mod servers;
mod verdicts;

pub use endpoint::Endpoint;
pub use error::{AgentError, CODES};
pub use failure::Failure;
pub use login_question::{LoginAnswer, LoginQuestion};
pub use private_files::{Inherited, KeptFolder, LOG_NAME, LoginCopy, PlannedFile, PrivateFiles};
pub use prompt_way::PromptWay;
pub use servers::{Refusal, ServerRule};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::AgentConfig;
use crate::policy::{self, AgentId, ExecutionMode, Sandbox};
use crate::process::PoliteStop;

/// What a backend can do. Field names are part of the MCP contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// A conversation can be continued by id.
    pub resume: bool,
    /// A model can be named.
    pub model: bool,
    /// Sandbox modes are enforced.
    pub sandbox: bool,
    /// Output is structured.
    pub structured_output: bool,
    /// Called over a network API of its own, not as a local program.
    pub direct_remote_api: bool,
    /// What it reads may leave the machine.
    pub off_machine_egress: bool,
    /// Works on the local file system.
    pub local_filesystem: bool,
    /// Can review local code on its own.
    pub independent_local_code_review: bool,
}

/// What a turn needs from the adapter.
#[derive(Clone, Debug)]
pub struct LaunchRequest<'a> {
    /// Canonical working folder.
    pub cwd: &'a Path,
    /// The prompt as it will be sent. Most agents do not look at it.
    pub prompt: &'a str,
    /// Granted authority.
    pub sandbox: Sandbox,
    /// How far the worker is trusted with it.
    pub execution_mode: Option<ExecutionMode>,
    /// The run's own deadline, for agents with one of their own.
    pub timeout: Duration,
    /// Model, already checked by [`check_model`].
    pub model: Option<&'a str>,
    /// How hard to think: `low`, `medium`, `high`. An agent that passes it on says so in [`Launch::facts`].
    pub effort: Option<&'a str>,
    /// One of the agent's own agents, likewise.
    pub own_agent: Option<&'a str>,
    /// Provider session to resume, already checked by [`Agent::accepts_native_id`].
    pub resume: Option<&'a str>,
    /// The agent's settings.
    pub settings: &'a AgentConfig,
    /// Strict turns drop `extraArgs` and `extraEnv`.
    pub strict: bool,
    /// The run folder. It does not exist yet, and is only made if the launch asks for it.
    pub run_dir: &'a Path,
    /// What the installed program says its version is; only looked up for an agent whose
    /// [version decides](Agent::version_decides).
    pub cli_version: Option<&'a str>,
    /// A JSON Schema that the final answer is to follow. Agents that cannot be held to one leave it out.
    pub report_schema: Option<&'a Value>,
}

/// Facts that say that a program was told of the request's `effort` and `own_agent`.
pub const TOLD_EFFORT: &str = "effort";
/// See [`TOLD_EFFORT`].
pub const TOLD_AGENT: &str = "ownAgent";

/// A start, as the adapter wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Arguments after the program.
    pub args: Vec<String>,
    /// Variables to set, over the allowlisted ones.
    pub env: BTreeMap<String, String>,
    /// Extra names to pass on from the server's environment if present (the CLI's own home and so on).
    pub pass_env: Vec<String>,
    /// What the run folder holds; none, and there is no such folder.
    pub private: Option<PrivateFiles>,
    /// How the prompt gets there.
    pub prompt: PromptWay,
    /// Facts for the turn's record, beside those of [`Verdict::meta`].
    pub facts: serde_json::Map<String, Value>,
}

/// How a run ended, as the process room saw it.
#[derive(Clone, Debug, Default)]
pub struct RunEnd<'a> {
    /// Exit code, if it exited.
    pub exit_code: Option<i64>,
    /// Signal number, if a signal ended it.
    pub signal: Option<i32>,
    /// The last part of standard error, readable text.
    pub stderr_tail: &'a str,
    /// Bytes seen on standard output.
    pub stdout_bytes: u64,
    /// The last part of the run folder's [`LOG_NAME`], readable text; empty if there is none.
    pub log_tail: &'a str,
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A complete answer.
    Success,
    /// The run ended well and said nothing.
    Empty,
    /// The CLI needs a login.
    LoginRequired,
    /// A usage limit, rate limit or empty account.
    Quota,
    /// The agent stopped at its own turn, token or budget limit.
    TurnLimit,
    /// The run ended well but its output could not be understood; the text is kept.
    FormatUnrecognised,
    /// The worker or its provider failed.
    WorkerError,
    /// One of our deadlines.
    Timeout,
    /// Somebody cancelled it.
    Cancelled,
    /// Its supervisor died before the end was recorded.
    Interrupted,
}

impl Outcome {
    /// The name used on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Empty => "empty",
            Self::LoginRequired => "login-required",
            Self::Quota => "quota",
            Self::TurnLimit => "turn-limit",
            Self::FormatUnrecognised => "format-unrecognised",
            Self::WorkerError => "worker-error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    /// Everything but success is an error to the caller.
    pub fn is_error(self) -> bool {
        self != Self::Success
    }
}

/// Token counts. `cached_input` is part of `input`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Tokens {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// The part of `input` that was cached.
    pub cached_input: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// The part of `output` that was reasoning.
    pub reasoning: u64,
}

/// A figure that is either of this run or the provider conversation's running total.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "scope", content = "value", rename_all = "lowercase")]
pub enum Metered<T> {
    /// Of this run only.
    Run(T),
    /// Summed over the whole provider conversation, resumed runs included.
    Total(T),
}

/// What a run used, as the CLI reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageReport {
    /// Tokens.
    pub tokens: Option<Metered<Tokens>>,
    /// Cost in US dollars.
    pub cost_usd: Option<Metered<f64>>,
}

/// What the adapter makes of a finished run. Deadlines and cancels are decided by the caller, who
/// knows of them; an adapter only judges evidence in the streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What became of it.
    pub outcome: Outcome,
    /// The final answer, whole. Partial text is kept on failures.
    pub answer: String,
    /// One line that says why, when the outcome is not success. Already free of secrets.
    pub detail: Option<String>,
    /// The provider's session id, if the stream proved one.
    pub native_id: Option<String>,
    /// What it used.
    pub usage: UsageReport,
    /// Version the CLI reported in its stream, if it does.
    pub cli_version: Option<String>,
    /// Facts worth keeping: `numTurns`, `subtype`, `permissionDenials`, `resetAt`, … Small.
    pub meta: Value,
}

/// The name in [`Verdict::meta`] of the object that an answer by schema holds.
pub const STRUCTURED_OUTPUT: &str = "structuredOutput";

/// Something a person may want to see while the run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// One short line, for instance `running: cargo test`.
    pub line: String,
}

/// Reads a CLI's standard output line by line, in bounded memory.
pub trait StreamParser {
    /// One line without its line end, as bytes; may be anything. Returns what is worth showing.
    fn line(&mut self, line: &[u8]) -> Option<Activity>;
    /// One line of standard error, likewise.
    fn error_line(&mut self, line: &[u8]) {
        let _ = line;
    }
    /// Which MCP servers the worker may have; said before the first line.
    fn servers(&mut self, rule: ServerRule) {
        let _ = rule;
    }
    /// The run's endpoint has been asked for its tools; said as soon as it is known, before the next line.
    fn endpoint_asked(&mut self) {}
    /// What the worker may do; said before the first line.
    fn authority(&mut self, sandbox: Sandbox) {
        let _ = sandbox;
    }
    /// The run was given a schema for its answer; said before the first line.
    fn expects_report(&mut self) {}
    /// A finding so far that should end the run at once (for instance a login prompt that waits).
    fn fatal(&self) -> Option<&str> {
        None
    }
    /// The end.
    fn finish(self: Box<Self>, end: &RunEnd<'_>) -> Verdict;
}

/// Whether the user is logged in to a CLI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthStatus {
    /// Credentials are present (nobody checked that they work).
    Authenticated,
    /// There are none.
    Unauthenticated,
    /// The probe gave no clear answer.
    Unknown,
}

/// What a login probe said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthFinding {
    /// The status.
    pub status: AuthStatus,
    /// A short, redacted line for people.
    pub detail: Option<String>,
}

/// Where a login leaves its traces, for a CLI that has no login probe.
#[derive(Clone, Copy, Debug)]
pub struct LoginTraces {
    /// The variable that names the user's home for this CLI.
    pub home_variable: &'static str,
    /// Files below that home, any of which a login leaves behind.
    pub files: &'static [&'static str],
    /// Variables that are a login, or choose one.
    pub variables: &'static [&'static str],
}

/// A backend.
pub trait Agent: Send + Sync {
    /// Its id.
    fn id(&self) -> AgentId;
    /// Its name for people.
    fn display_name(&self) -> &'static str;
    /// Whether it was measured against the real program.
    fn is_verified(&self) -> bool {
        true
    }
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// The program to start: a command name or path.
    fn program(&self, settings: &AgentConfig, own_exe: &Path) -> PathBuf {
        let _ = own_exe;
        PathBuf::from(&settings.bin)
    }
    /// Arguments and environment of a turn, or why there can be none.
    fn launch(&self, request: &LaunchRequest<'_>) -> Result<Launch, AgentError>;
    /// What is written to standard input for a prompt.
    fn input(&self, prompt: String) -> String {
        prompt
    }
    /// Whether its runs can have an endpoint, with these settings.
    fn takes_endpoint(&self, settings: &AgentConfig) -> Result<(), AgentError> {
        let _ = settings;
        Err(AgentError::EndpointUnsupported(self.id()))
    }
    /// Adds an endpoint to a launch. The token's own variable is set by the caller.
    fn attach(&self, launch: &mut Launch, endpoint: &Endpoint, run_dir: &Path) -> Result<(), AgentError> {
        let _ = (launch, endpoint, run_dir);
        Err(AgentError::EndpointUnsupported(self.id()))
    }
    /// Whether a run with an endpoint can resume a session, and leaves one behind.
    fn resumes_beside_endpoint(&self) -> bool {
        true
    }
    /// Variables that [`Agent::attach`] sets, besides the token's.
    fn endpoint_variables(&self) -> &'static [&'static str] {
        &[]
    }
    /// A parser for one run; `resume` is the provider session that it was asked to resume.
    fn parser(&self, resume: Option<&str>) -> Box<dyn StreamParser>;
    /// Arguments that print the version.
    fn version_args(&self) -> Vec<String> {
        vec!["--version".into()]
    }
    /// Whether arguments depend on the version, so that it has to be known before a turn is planned.
    fn version_decides(&self) -> bool {
        false
    }
    /// The version in that output.
    fn parse_version(&self, stdout: &str) -> Option<String>;
    /// Arguments of the login probe of this version; `None` if the CLI has none.
    fn auth_args(&self, version: Option<&str>) -> Option<Vec<String>>;
    /// Reads the login probe's answer.
    fn parse_auth(&self, end: &RunEnd<'_>, stdout: &str) -> AuthFinding;
    /// Where to look for a login if there is no probe.
    fn login_traces(&self) -> Option<LoginTraces> {
        None
    }
    /// How to ask before each run whether the login works; none if a run itself tells in time.
    fn login_question(&self) -> Option<&'static dyn LoginQuestion> {
        None
    }
    /// Whether it is never installed through a package manager's script, so that on Windows such a script is
    /// refused.
    fn native_program_only(&self) -> bool {
        false
    }
    /// The command a person runs to log in.
    fn login_command(&self) -> &'static str;
    /// Whether a provider session id has the right shape to be resumed.
    fn accepts_native_id(&self, id: &str) -> bool;
    /// Names that its probes need from the server's environment, as its runs do.
    fn home_variables(&self) -> &'static [&'static str] {
        &[]
    }
    /// How to ask for an end.
    fn polite_stop(&self) -> PoliteStop {
        PoliteStop::TerminateGroup
    }
}

/// Every agent of this build, in listing order.
pub fn registry() -> &'static [&'static dyn Agent] {
    &[&codex::Codex, &claude::Claude, &gemini::Gemini, &antigravity::Antigravity, &mock::Mock]
}

/// The adapter of an agent, if this build has one.
pub fn agent(id: AgentId) -> Option<&'static dyn Agent> {
    registry().iter().copied().find(|agent| agent.id() == id)
}

/// Like [`agent`], with the error a caller should see.
///
/// # Errors
/// [`AgentError::NotAvailable`] if this build has no adapter for it.
pub fn require(id: AgentId) -> Result<&'static dyn Agent, AgentError> {
    agent(id).ok_or(AgentError::NotAvailable(id))
}

/// Refuses what cannot be a model name; see [`policy::is_model_name`].
///
/// # Errors
/// [`AgentError::ModelRefused`] if it cannot.
pub fn check_model(model: &str) -> Result<(), AgentError> {
    if policy::is_model_name(model) {
        return Ok(());
    }
    Err(AgentError::ModelRefused(redaction::clip(model, 64)))
}

/// What every adapter checks again before it builds arguments, so that no caller can forget it.
fn check_request(agent: &dyn Agent, request: &LaunchRequest<'_>) -> Result<(), AgentError> {
    if let Some(model) = request.model {
        check_model(model)?;
    }
    match request.resume {
        Some(id) if !agent.accepts_native_id(id) => {
            Err(AgentError::ResumeIdRefused { agent: agent.id(), id: redaction::clip(id, 64) })
        }
        _ => Ok(()),
    }
}

/// Variables from the settings; strict turns get none.
fn extra_env(request: &LaunchRequest<'_>) -> BTreeMap<String, String> {
    if request.strict { BTreeMap::new() } else { request.settings.extra_env.clone() }
}

/// A prompt that a CLI does not take for a command of its own: those begin with a slash.
fn no_command(prompt: String) -> String {
    if prompt.starts_with('/') { format!("\n{prompt}") } else { prompt }
}

/// Names as a launch passes them on.
fn passed(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A path as an argument.
fn path_text(path: &Path) -> Result<&str, AgentError> {
    path.to_str().ok_or_else(|| AgentError::PathNotText(path.display().to_string()))
}

#[cfg(test)]
mod tests;
