//! What the use cases of a turn refuse, and how a run can end on our side.

use crate::error::{CodeDoc, Coded};
use crate::policy::{AgentId, Sandbox};
use crate::store::QuestionKind;

crate::codes! {
    AGENT_UNKNOWN { exit: Refused, retryable: false,
        cause: "The named agent does not exist.",
        remedy: "Call list_agents, or run `agent-bridge doctor`, to see the agents of this config." }
    AGENT_DISABLED { exit: Refused, retryable: false,
        cause: "The agent exists but the config does not enable it.",
        remedy: "Set `agents.<id>.enabled` to true in the config file and restart the host." }
    AGENT_LOGIN_REQUIRED { exit: Refused, retryable: true,
        cause: "Nobody is logged in to the agent: its last run, a moment ago, ended for that, or it said so when it was asked before the run.",
        remedy: "Log in with the agent's own login command in a terminal, then try again." }
    AGENT_AUTH_TIMEOUT { exit: Refused, retryable: true,
        cause: "The agent was asked before the run whether its login works, and it did not answer in time, twice. The run was not started.",
        remedy: "Try again in a moment; if it stays so, start the agent in a terminal and look what it waits for." }
    AGENT_KEYRING_TIMEOUT { exit: Refused, retryable: true,
        cause: "The key ring that holds the agent's login did not answer in time, twice. The run was not started.",
        remedy: "Unlock the key ring of this session, or log in to the desktop, then try again." }
    PROMPT_INVALID { exit: Refused, retryable: false,
        cause: "The prompt is empty or longer than 1,000,000 characters.",
        remedy: "Send a prompt of 1 to 1,000,000 characters." }
    CWD_REQUIRED { exit: Refused, retryable: false,
        cause: "A new session needs a working folder and the config names no default.",
        remedy: "Pass `cwd`, or set `defaults.cwd` in the config file." }
    CWD_INVALID { exit: Refused, retryable: false,
        cause: "The working folder does not exist, is no folder, or its name is not Unicode.",
        remedy: "Pass an existing folder inside the allowed roots." }
    CWD_OUTSIDE_ROOTS { exit: Refused, retryable: false,
        cause: "The working folder, with links resolved, lies outside every allowed root.",
        remedy: "Choose a folder inside `allowedRoots`, or add the folder there and restart the host." }
    CWD_CHANGED { exit: Refused, retryable: false,
        cause: "The working folder was moved, replaced or turned into a link between the check and the start.",
        remedy: "Look at the folder, then try again." }
    SESSION_CWD_FIXED { exit: Refused, retryable: false,
        cause: "A session keeps the working folder that it was created with.",
        remedy: "Leave `cwd` out, or start a new session for the other folder." }
    SESSION_HAS_NO_TURNS { exit: Refused, retryable: false,
        cause: "There is nothing to continue: the session has no finished turn.",
        remedy: "Start with delegate_task." }
    SESSION_REVISION_INVALID { exit: Refused, retryable: false,
        cause: "An expected revision was given without a session to compare it with.",
        remedy: "Leave `expected_session_revision` out, or pass `session_id`." }
    SANDBOX_AUTHORITY_DENIED { exit: Refused, retryable: false,
        cause: "The request asks for more authority than the configured ceiling.",
        remedy: "Ask for less, or let the user raise `policy.sandboxCeiling` in the config file." }
    DELEGATION_TOO_DEEP { exit: Refused, retryable: false,
        cause: "This server was started by a worker that it, or another one, had delegated to.",
        remedy: "Do the work in this run. `maxDelegationDepth` in the config file allows nesting." }
    CONTEXT_TOO_LARGE { exit: Refused, retryable: false,
        cause: "Not even a clipped transcript fits into `handoffMaxChars`.",
        remedy: "Raise `handoffMaxChars` in the config file." }
    SCOPE_NOT_ALLOWED { exit: Refused, retryable: false,
        cause: "A run was to be given a tool, or an MCP server, that the config does not offer to this agent's runs.",
        remedy: "Leave it out, or let the user add it to `scope.tools` or `scope.servers` in the config file." }
    CHECK_UNKNOWN { exit: Refused, retryable: false,
        cause: "A run asked for a check that the config does not have.",
        remedy: "Add it to `scope.checks` in the config file, or leave it out." }
    SCOPE_UNAVAILABLE { exit: Refused, retryable: false,
        cause: "The endpoint with the run's tools could not be opened, so the worker was not started.",
        remedy: "Look at the reason in the message; `scope_tools: []` (`--no-scope`) runs without the endpoint." }
    WORKER_TOOLS_FOREIGN { exit: Unexpected, retryable: false,
        cause: "The worker had an MCP server that this run was not given, so it was ended at once.",
        remedy: "Find out where the server comes from (managed settings, a plugin, the account) and switch it off for this agent; then start the turn again." }
    WORKER_TOOLS_MISSING { exit: Unexpected, retryable: true,
        cause: "The worker did not connect to the endpoint with the run's tools, so it was ended at once.",
        remedy: "Look at the turn's stderr with get_turn_output: a proxy, a managed allowlist or an old version of the agent may be in the way." }
    TURN_START_DEADLINE { exit: Unexpected, retryable: true,
        cause: "The worker printed nothing before the start deadline.",
        remedy: "Run the agent by hand once to see what it waits for; raise `defaults.startTimeoutSec` if it is only slow." }
    TURN_IDLE_DEADLINE { exit: Unexpected, retryable: true,
        cause: "The worker was silent for longer than the idle deadline.",
        remedy: "Raise `defaults.idleTimeoutSec`, or look at the turn's stderr with get_turn_output." }
    TURN_RUN_DEADLINE { exit: Unexpected, retryable: true,
        cause: "The run did not end before its deadline.",
        remedy: "Pass a larger `timeout_sec` (at most 7200), or give the agent a smaller task." }
    OUTPUT_LINE_TOO_LONG { exit: Unexpected, retryable: false,
        cause: "The worker printed one line longer than the limit for a single event (16 MiB).",
        remedy: "Look at the raw output with get_turn_output; the agent is not printing its event stream." }
    OUTPUT_TOO_LARGE { exit: Unexpected, retryable: false,
        cause: "The worker printed more than `maxOutputBytes`.",
        remedy: "Raise `maxOutputBytes` in the config file, or ask for less output." }
    TURN_CANCELLED { exit: Unexpected, retryable: true,
        cause: "Somebody cancelled the turn, or its host went away under `onDisconnect: cancel`.",
        remedy: "Start the turn again; partial output is kept and can be paged." }
    NATIVE_SESSION_LOST { exit: Unexpected, retryable: true,
        cause: "The agent does not know the conversation that was to be resumed.",
        remedy: "Continue the session again: the conversation will be replayed as context." }
    ANSWER_FROM_WORKER { exit: Refused, retryable: false,
        cause: "A worker, or something that runs beside one, tried to answer a worker's question. Who asks does not answer.",
        remedy: "Answer from the host that delegated, or with `agent-bridge turns answer` in a terminal of your own." }
    QUESTION_ANSWER_INVALID { exit: Usage, retryable: false,
        cause: "A question is answered with a text of 1 to 8,000 characters, an approval with yes or no and perhaps a reason.",
        remedy: "Pass `text` for a question and `approve` for an approval; `list_questions` shows which it is." }
    SUPERVISOR_FAILED { exit: Unexpected, retryable: true,
        cause: "The supervisor process could not be started, or ended without a word.",
        remedy: "Run `agent-bridge doctor`; look at the message for the operating system's reason." }
    RECORD_NOT_WRITTEN { exit: Unexpected, retryable: false,
        cause: "The turn ended but its record could not be written, for instance on a full disk.",
        remedy: "Free space in the state folder. The answer in this reply is the only copy." }
}

/// A refusal before anything was started.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// No such agent.
    #[error("there is no agent `{0}`{near}", near = did_you_mean(.1))]
    AgentUnknown(String, Option<String>),
    /// Not enabled.
    #[error("the agent `{0}` is not enabled in {1}")]
    AgentDisabled(AgentId, String),
    /// Recently refused for want of a login.
    #[error("{agent} is not logged in (seen {seconds_ago} s ago)")]
    LoginRequired {
        /// Which agent.
        agent: AgentId,
        /// The command that logs in.
        command: &'static str,
        /// Age of the finding.
        seconds_ago: i64,
    },
    /// Empty or too long.
    #[error("the prompt has {0} characters")]
    Prompt(usize),
    /// No folder.
    #[error("a new session needs a working folder")]
    CwdRequired,
    /// Unusable folder.
    #[error("the working folder {path} cannot be used: {reason}")]
    CwdInvalid {
        /// As given.
        path: String,
        /// The reason.
        reason: String,
    },
    /// Outside the roots.
    #[error("{0} lies outside the allowed roots")]
    CwdOutside(String),
    /// Swapped after the check.
    #[error("{0} is not the folder that was checked any more")]
    CwdChanged(String),
    /// Differs from the session's.
    #[error("the session works in {session}, not in {asked}")]
    CwdFixed {
        /// The session's.
        session: String,
        /// The caller's.
        asked: String,
    },
    /// Nothing to continue.
    #[error("session {0} has no turns")]
    NoTurns(String),
    /// Revision without a session.
    #[error("`expected_session_revision` needs a `session_id`")]
    RevisionWithoutSession,
    /// Over the ceiling.
    #[error("{asked} exceeds the ceiling {ceiling} for {agent}")]
    SandboxDenied {
        /// Which agent.
        agent: AgentId,
        /// Asked for.
        asked: Sandbox,
        /// Allowed.
        ceiling: Sandbox,
    },
    /// Nested too deep.
    #[error("delegation is {depth} deep already; the limit is {limit}")]
    TooDeep {
        /// How deep this process is.
        depth: u32,
        /// `maxDelegationDepth`.
        limit: u32,
    },
    /// No transcript fits.
    #[error("the conversation does not fit into {0} bytes")]
    ContextTooLarge(usize),
    /// More than the config offers.
    #[error("{name} is not offered to runs of {agent}; offered are {}", offered(allowed))]
    ScopeNotAllowed {
        /// Which agent.
        agent: AgentId,
        /// Asked for.
        name: String,
        /// What there is.
        allowed: Vec<String>,
    },
    /// Not in the config.
    #[error("there is no check {0:?}")]
    CheckUnknown(String),
    /// No endpoint.
    #[error("the endpoint of the run could not be opened: {0}")]
    ScopeUnavailable(String),
    /// Asked from within a run.
    #[error("a worker's question is not answered from within a run")]
    AnswerFromWorker,
    /// The wrong kind of answer.
    #[error("this {} cannot be answered so: {why}", kind.as_str())]
    AnswerInvalid {
        /// What was asked.
        kind: QuestionKind,
        /// What is wrong.
        why: &'static str,
    },
    /// The supervisor did not work.
    #[error("the turn's supervisor failed: {0}")]
    Supervisor(String),
}

fn offered(allowed: &[String]) -> String {
    if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") }
}

fn did_you_mean(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

impl Coded for BridgeError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::AgentUnknown(..) => &AGENT_UNKNOWN,
            Self::AgentDisabled(..) => &AGENT_DISABLED,
            Self::LoginRequired { .. } => &AGENT_LOGIN_REQUIRED,
            Self::Prompt(_) => &PROMPT_INVALID,
            Self::CwdRequired => &CWD_REQUIRED,
            Self::CwdInvalid { .. } => &CWD_INVALID,
            Self::CwdOutside(_) => &CWD_OUTSIDE_ROOTS,
            Self::CwdChanged(_) => &CWD_CHANGED,
            Self::CwdFixed { .. } => &SESSION_CWD_FIXED,
            Self::NoTurns(_) => &SESSION_HAS_NO_TURNS,
            Self::RevisionWithoutSession => &SESSION_REVISION_INVALID,
            Self::SandboxDenied { .. } => &SANDBOX_AUTHORITY_DENIED,
            Self::TooDeep { .. } => &DELEGATION_TOO_DEEP,
            Self::ContextTooLarge(_) => &CONTEXT_TOO_LARGE,
            Self::ScopeNotAllowed { .. } => &SCOPE_NOT_ALLOWED,
            Self::CheckUnknown(_) => &CHECK_UNKNOWN,
            Self::ScopeUnavailable(_) => &SCOPE_UNAVAILABLE,
            Self::AnswerFromWorker => &ANSWER_FROM_WORKER,
            Self::AnswerInvalid { .. } => &QUESTION_ANSWER_INVALID,
            Self::Supervisor(_) => &SUPERVISOR_FAILED,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::LoginRequired { command, .. } => {
                format!("Run `{command}` in a terminal, then try again in a few seconds.")
            }
            Self::AgentDisabled(agent, _) => {
                format!("Set `agents.{agent}.enabled` to true in the config file and restart the host.")
            }
            _ => self.doc().remedy.to_owned(),
        }
    }
}
