//! What became of a run, in one word, and how that word follows from what a turn recorded.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::agents::Outcome;
use crate::error::{CodeDoc, Error};
use crate::store::{TurnEnd, TurnRow};

crate::codes! {
    CONFLICTING_OPTIONS { exit: Usage, retryable: false,
        cause: "Two options of a relay call contradict each other, or ask for more than the profile allows.",
        remedy: "Leave one of them out; `execution_mode` alone is enough." }
    INVALID_WORKSPACE { exit: Refused, retryable: false,
        cause: "The workspace of a relay call is no absolute path of an existing folder inside the allowed roots, or it is a folder that no worker may have.",
        remedy: "Pass the absolute path of a project folder inside the roots, or name a profile that has one." }
    CONFIG_ERROR { exit: Refused, retryable: false,
        cause: "The relay's settings, or those of the agent, do not allow this run.",
        remedy: "The message names the setting; mend it in the config file or the environment and restart the host." }
    SPAWN_ERROR { exit: Refused, retryable: false,
        cause: "The worker's program could not be started.",
        remedy: "Install it, or set the agent's `bin` to its absolute path; `agent-bridge doctor` shows what is found." }
    LOGIN_REQUIRED { exit: Refused, retryable: false,
        cause: "Nobody is signed in to the worker's program, or its credentials are no longer valid.",
        remedy: "Sign in with the agent's own command in a terminal, then start the run again." }
    KEYRING_TIMEOUT { exit: Unexpected, retryable: true,
        cause: "The system's keyring did not answer in time, twice.",
        remedy: "Unlock the keyring (or start its service), then start the run again." }
    AUTH_TIMEOUT { exit: Unexpected, retryable: true,
        cause: "The worker's sign-in did not finish in time, twice.",
        remedy: "Check the network and the login in a terminal, then start the run again." }
    EXECUTION_TIMEOUT { exit: Unexpected, retryable: false,
        cause: "The run took longer than its time limit; what it had changed is still there.",
        remedy: "Review the changes, then continue the run, or start one with a smaller task or a higher `timeout_minutes`." }
    PERMISSION_DENIED { exit: Unexpected, retryable: false,
        cause: "The worker was refused something it needed, and nobody was there to approve it.",
        remedy: "Give the task without it, or let the user choose another execution mode for the profile." }
    STREAM_ERROR { exit: Unexpected, retryable: false,
        cause: "The worker's output broke off before its result.",
        remedy: "Look at the errors with get_result (detail `errors`), then continue the run." }
    INVALID_JSON { exit: Unexpected, retryable: false,
        cause: "The worker's output is not the JSON that it was asked for.",
        remedy: "Check the version of the worker's program; get_result (detail `full`) has the text." }
    INVALID_ENVELOPE { exit: Unexpected, retryable: false,
        cause: "The worker's output is JSON, but not of the form that is known.",
        remedy: "Check the version of the worker's program; get_result (detail `full`) has the text." }
    INVALID_REPORT { exit: Unexpected, retryable: false,
        cause: "The worker ended well but handed in no valid report; what it changed was observed all the same.",
        remedy: "Review the changes; continue the run and ask for the report if you need it." }
    MUTATION_ABORTED { exit: Unexpected, retryable: false,
        cause: "A failed attempt had already changed the workspace, or it is not known whether it had, so it was not tried again.",
        remedy: "Review the observed changes, keep or revert them, then start a new run." }
    QUOTA_EXHAUSTED { exit: Unexpected, retryable: true,
        cause: "A usage limit, a rate limit or an empty account.",
        remedy: "Wait for the reset, or let the user choose another agent." }
    MODEL_UNAVAILABLE { exit: Unexpected, retryable: false,
        cause: "The provider does not offer the named model to this account.",
        remedy: "Leave `model` out, or name one that the worker's program lists." }
    CONTENT_FILTERED { exit: Unexpected, retryable: false,
        cause: "The provider's filter stopped the answer.",
        remedy: "Word the task differently." }
    CONVERSATION_LOST { exit: Unexpected, retryable: false,
        cause: "The provider did not go on with the conversation that was to be continued.",
        remedy: "Review the changes, then start a new run with all that it needs to know." }
    TURN_LIMIT { exit: Unexpected, retryable: false,
        cause: "The worker stopped at its own limit of turns, tokens or budget.",
        remedy: "Review the changes, then continue the run." }
    WORKER_ERROR { exit: Unexpected, retryable: false,
        cause: "The worker or its provider failed.",
        remedy: "Look at the errors with get_result (detail `errors`)." }
    CANCELLED { exit: Unexpected, retryable: false,
        cause: "The run was cancelled, or its host went away.",
        remedy: "Review the changes, if there are any, then start a new run." }
    CONTINUE_LIMIT { exit: Refused, retryable: false,
        cause: "The run has had as many corrections as the config allows.",
        remedy: "Do the rest yourself, or start a new run with a new task." }
    QUEUE_TIMEOUT { exit: RetryLater, retryable: true,
        cause: "Other runs kept the workspace, or all places, for longer than a run may wait; nothing was started.",
        remedy: "Wait for the other runs (`agent-bridge runs list`), then try again." }
    QUEUE_FULL { exit: RetryLater, retryable: true,
        cause: "As many runs wait as the config allows; nothing was started.",
        remedy: "Wait for the other runs (`agent-bridge runs list`), or raise `relay.maxQueuedRuns`." }
    MCP_ERROR { exit: Unexpected, retryable: true,
        cause: "Something unforeseen happened in the relay itself.",
        remedy: "Look at the message; if it repeats, report it with the output of `agent-bridge doctor --json`." }
    RUN_NOT_FOUND { exit: Refused, retryable: false,
        cause: "No run has this id; old runs are forgotten when there are more than `relay.keepRuns`.",
        remedy: "Take an id from `agent-bridge runs list`." }
    PATCH_DAMAGED { exit: VerificationFailed, retryable: false,
        cause: "The kept patch of a run is not the one whose digest was recorded with the run.",
        remedy: "Do not apply it. Look at the workspace itself, and find out who can write to the state folder (`agent-bridge state audit`)." }
    WORKTREE_FAILED { exit: Unexpected, retryable: true,
        cause: "The copy of the workspace for a run could not be made, compared or removed.",
        remedy: "The message says what failed: mend it (often room on the disk of the state folder) and try again, or run without isolation." }
    WORKTREE_KEPT { exit: Refused, retryable: false,
        cause: "The copy of a run's workspace holds work that would be lost with it.",
        remedy: "Look at it and take what you need; `agent-bridge runs discard ID --force` removes it all the same." }
    NOTHING_TO_APPLY { exit: Refused, retryable: false,
        cause: "The run left no patch to apply: it changed nothing, or it worked in the workspace itself.",
        remedy: "Look at the run with `agent-bridge runs show ID`; nothing has to be applied." }
    PATCH_INCOMPLETE { exit: Refused, retryable: false,
        cause: "The patch of a run does not hold all that the run changed, so applying it would not give what the run left.",
        remedy: "Take the files from the run's copy of the workspace; the message says where it is." }
    APPLY_CONFLICT { exit: Refused, retryable: false,
        cause: "The patch of a run does not fit the workspace as it is now.",
        remedy: "Move the named files out of the way or bring them back to what they were, then apply again; `agent-bridge runs diff ID` shows the patch." }
    WORKSPACE_BUSY { exit: RetryLater, retryable: true,
        cause: "A run works in the workspace.",
        remedy: "Wait for it (`agent-bridge runs list --running`), then try again." }
    RUN_STILL_RUNNING { exit: RetryLater, retryable: true,
        cause: "The run has not ended yet.",
        remedy: "Wait for it with get_result, or `agent-bridge runs show ID --wait`." }
    RUN_NOT_CONTINUABLE { exit: Refused, retryable: false,
        cause: "There is nothing to continue: no worker of the run ever started, or the conversation belongs to no known run.",
        remedy: "Start a new run with execute." }
}

/// A run's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the codes of these names say what each is")]
pub enum Status {
    #[default]
    Queued,
    Running,
    Success,
    ConflictingOptions,
    InvalidWorkspace,
    ConfigError,
    SpawnError,
    LoginRequired,
    KeyringTimeout,
    AuthTimeout,
    ExecutionTimeout,
    PermissionDenied,
    StreamError,
    InvalidJson,
    InvalidEnvelope,
    InvalidReport,
    MutationAborted,
    QuotaExhausted,
    ModelUnavailable,
    ContentFiltered,
    ConversationLost,
    TurnLimit,
    WorkerError,
    Cancelled,
    ContinueLimit,
    QueueTimeout,
    QueueFull,
    WorktreeFailed,
    McpError,
}

impl Status {
    /// The documented code; none for those that are no fault.
    pub fn doc(self) -> Option<&'static CodeDoc> {
        Some(match self {
            Self::Queued | Self::Running | Self::Success => return None,
            Self::ConflictingOptions => &CONFLICTING_OPTIONS,
            Self::InvalidWorkspace => &INVALID_WORKSPACE,
            Self::ConfigError => &CONFIG_ERROR,
            Self::SpawnError => &SPAWN_ERROR,
            Self::LoginRequired => &LOGIN_REQUIRED,
            Self::KeyringTimeout => &KEYRING_TIMEOUT,
            Self::AuthTimeout => &AUTH_TIMEOUT,
            Self::ExecutionTimeout => &EXECUTION_TIMEOUT,
            Self::PermissionDenied => &PERMISSION_DENIED,
            Self::StreamError => &STREAM_ERROR,
            Self::InvalidJson => &INVALID_JSON,
            Self::InvalidEnvelope => &INVALID_ENVELOPE,
            Self::InvalidReport => &INVALID_REPORT,
            Self::MutationAborted => &MUTATION_ABORTED,
            Self::QuotaExhausted => &QUOTA_EXHAUSTED,
            Self::ModelUnavailable => &MODEL_UNAVAILABLE,
            Self::ContentFiltered => &CONTENT_FILTERED,
            Self::ConversationLost => &CONVERSATION_LOST,
            Self::TurnLimit => &TURN_LIMIT,
            Self::WorkerError => &WORKER_ERROR,
            Self::Cancelled => &CANCELLED,
            Self::ContinueLimit => &CONTINUE_LIMIT,
            Self::QueueTimeout => &QUEUE_TIMEOUT,
            Self::QueueFull => &QUEUE_FULL,
            Self::WorktreeFailed => &WORKTREE_FAILED,
            Self::McpError => &MCP_ERROR,
        })
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Running => "RUNNING",
            Self::Success => "SUCCESS",
            other => other.doc().map_or("MCP_ERROR", |doc| doc.code),
        }
    }

    /// Only these are tried a second time: sign-in faults that pass by themselves.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::KeyringTimeout | Self::AuthTimeout)
    }

    /// The status of a run whose turn could not even be started.
    pub fn of_refusal(error: &Error) -> Self {
        let code = error.code();
        if code.starts_with("CWD_") || code == "SESSION_CWD_FIXED" {
            return Self::InvalidWorkspace;
        }
        match code {
            "PROGRAM_NOT_FOUND" | "PROGRAM_NOT_EXECUTABLE" | "INTERPRETER_MISSING" | "SPAWN_FAILED" => {
                Self::SpawnError
            }
            "AGENT_LOGIN_REQUIRED" => Self::LoginRequired,
            "CONTEXT_TOO_LARGE" | "SESSION_HAS_NO_TURNS" => Self::ConversationLost,
            "SESSION_BUSY" | "TOO_MANY_TURNS" => Self::QueueTimeout,
            "INTERNAL_ERROR" | "SUPERVISOR_FAILED" => Self::McpError,
            _ if code.starts_with("STORE_") => Self::McpError,
            _ => Self::ConfigError,
        }
    }

    /// The status that a turn's end stands for; whether there is a valid report is known besides.
    pub fn of_end(end: &TurnEnd, has_report: bool) -> Self {
        if let Some(status) = end.meta["failure"].as_str().and_then(Self::of_failure)
            // Our own ends outrank what the streams say.
            && !matches!(end.outcome, Outcome::Cancelled | Outcome::Timeout)
        {
            return status;
        }
        match end.outcome {
            Outcome::Success if has_report => Self::Success,
            Outcome::Success | Outcome::Empty => Self::InvalidReport,
            Outcome::LoginRequired => Self::LoginRequired,
            Outcome::Quota => Self::QuotaExhausted,
            Outcome::TurnLimit => Self::TurnLimit,
            Outcome::FormatUnrecognised => Self::InvalidEnvelope,
            Outcome::Timeout => Self::ExecutionTimeout,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Interrupted => Self::WorkerError,
            Outcome::WorkerError => match end.code.as_deref() {
                Some("NATIVE_SESSION_LOST") => Self::ConversationLost,
                Some(
                    "PROGRAM_NOT_FOUND" | "PROGRAM_NOT_EXECUTABLE" | "INTERPRETER_MISSING" | "SPAWN_FAILED",
                ) => Self::SpawnError,
                _ => Self::WorkerError,
            },
        }
    }

    /// The adapters' own, finer word for a failure.
    fn of_failure(failure: &str) -> Option<Self> {
        Some(match failure {
            "keyring-timeout" => Self::KeyringTimeout,
            "auth-timeout" => Self::AuthTimeout,
            "login-required" => Self::LoginRequired,
            "permission-denied" => Self::PermissionDenied,
            "stream-error" => Self::StreamError,
            "invalid-json" => Self::InvalidJson,
            "invalid-envelope" => Self::InvalidEnvelope,
            "partial-timeout" => Self::ExecutionTimeout,
            "quota" => Self::QuotaExhausted,
            "model-unavailable" => Self::ModelUnavailable,
            "content-filtered" => Self::ContentFiltered,
            "conversation-lost" => Self::ConversationLost,
            "cancelled" => Self::Cancelled,
            "worker-error" => Self::WorkerError,
            _ => return None,
        })
    }

    /// The status of a finished turn; `Running` for one that has not ended.
    pub fn of_turn(turn: &TurnRow, has_report: bool) -> Self {
        turn.end.as_ref().map_or(Self::Running, |end| Self::of_end(end, has_report))
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_value(serde_json::Value::String(text.to_owned())).ok()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
