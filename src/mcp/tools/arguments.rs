//! What each tool takes. The doc comments are the argument descriptions that models read.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::OnDisconnect;
use crate::policy::{AgentId, DataClass, Sandbox};
use crate::store::TurnState;

/// No arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Declares the argument type of a tool that starts a turn: its own fields, then the shared ones.
macro_rules! turn_arguments {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            /// Model to use; the agent's default if left out.
            pub model: Option<String>,
            /// Authority for this turn: read-only (default), workspace-write or full-access, up to the configured ceiling.
            pub sandbox: Option<Sandbox>,
            /// Hard limit of the run in seconds.
            #[schemars(range(min = 1, max = 7200))]
            pub timeout_sec: Option<u64>,
            /// How long to wait for the result before answering still_running, in seconds (default 45).
            #[schemars(range(min = 0, max = 7200))]
            pub wait_seconds: Option<u64>,
            /// Any text of yours that names this piece of work: the same key never runs it twice.
            #[schemars(length(min = 1, max = 200))]
            pub idempotency_key: Option<String>,
            /// Whether the work is cancelled or goes on when this host goes away (default from the config).
            pub on_disconnect: Option<OnDisconnect>,
            /// Tools and servers that the agent gets for this run, out of those in the config's `scope`; all of them if left out, none if empty.
            #[schemars(length(max = 64), inner(length(min = 1, max = 64)))]
            pub scope_tools: Option<Vec<String>>,
            /// Refuse unless the session is at this revision.
            pub expected_session_revision: Option<u64>,
            /// Only for direct remote agents.
            pub allow_remote_egress: Option<bool>,
            /// Only for direct remote agents.
            pub data_classification: Option<DataClass>,
            /// Only for direct remote agents.
            pub approval_ids: Option<Vec<String>>,
            /// Only for direct remote agents.
            pub estimated_cost: Option<f64>,
            /// Only for direct remote agents.
            pub estimated_currency: Option<String>,
        }

        impl $name {
            /// The shared part of a request.
            pub fn shared(&self) -> SharedArguments {
                SharedArguments {
                    model: self.model.clone(),
                    sandbox: self.sandbox,
                    timeout_sec: self.timeout_sec,
                    wait_seconds: self.wait_seconds,
                    idempotency_key: self.idempotency_key.clone(),
                    on_disconnect: self.on_disconnect,
                    scope_tools: self.scope_tools.clone(),
                    expected_session_revision: self.expected_session_revision,
                    remote_consent: self.allow_remote_egress.is_some()
                        || self.data_classification.is_some()
                        || self.approval_ids.is_some()
                        || self.estimated_cost.is_some()
                        || self.estimated_currency.is_some(),
                }
            }
        }
    };
}

/// What every tool that starts a turn takes.
#[derive(Debug)]
pub struct SharedArguments {
    /// Model.
    pub model: Option<String>,
    /// Authority.
    pub sandbox: Option<Sandbox>,
    /// Deadline.
    pub timeout_sec: Option<u64>,
    /// Wait.
    pub wait_seconds: Option<u64>,
    /// Key.
    pub idempotency_key: Option<String>,
    /// Rule.
    pub on_disconnect: Option<OnDisconnect>,
    /// Endpoint.
    pub scope_tools: Option<Vec<String>>,
    /// Fence.
    pub expected_session_revision: Option<u64>,
    /// Some argument that only direct remote agents need was given.
    pub remote_consent: bool,
}

turn_arguments! {
    /// Arguments of `delegate_task`.
    DelegateTask {
        /// Which agent: see list_agents.
        agent: String,
        /// The task, complete: the agent sees nothing else of this conversation.
        #[schemars(length(min = 1, max = 1_000_000))]
        prompt: String,
        /// Working folder, inside the allowed roots; the configured default if left out.
        cwd: Option<String>,
        /// Session to go on with; a new one if left out.
        session_id: Option<String>,
    }
}

turn_arguments! {
    /// Arguments of `continue_session`.
    ContinueSession {
        /// Session to go on with.
        session_id: String,
        /// The follow-up.
        #[schemars(length(min = 1, max = 1_000_000))]
        prompt: String,
        /// Which agent; the one of the last turn if left out.
        agent: Option<String>,
    }
}

turn_arguments! {
    /// Arguments of `handoff`.
    Handoff {
        /// Session to hand over.
        session_id: String,
        /// Which agent goes on.
        to_agent: String,
        /// What it should do; "verify and continue" if left out.
        #[schemars(length(max = 1_000_000))]
        prompt: Option<String>,
    }
}

/// Arguments of `wait_turn`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitTurn {
    /// The turn.
    pub turn_id: String,
    /// How long to wait, in seconds (default 45).
    #[schemars(range(min = 0, max = 7200))]
    pub wait_seconds: Option<u64>,
}

/// Arguments of `cancel_turn`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelTurn {
    /// The turn.
    pub turn_id: String,
    /// Why, for the record.
    #[schemars(length(max = 500))]
    pub reason: Option<String>,
}

/// Arguments of `list_turns`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTurns {
    /// Only of this session.
    pub session_id: Option<String>,
    /// Only of this agent.
    pub agent: Option<AgentId>,
    /// Only running, or only finished.
    pub state: Option<TurnState>,
    /// Most turns to return (default 20).
    #[schemars(range(min = 1, max = 200))]
    pub limit: Option<u64>,
    /// `next_cursor` of the reply before.
    pub cursor: Option<String>,
}

/// Which stream of a turn.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputField {
    /// The final answer.
    #[default]
    Output,
    /// Standard error.
    Stderr,
    /// Raw standard output, as the agent printed it.
    Stdout,
}

/// Arguments of `get_turn_output`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetTurnOutput {
    /// The session.
    pub session_id: String,
    /// Position of the turn in the session, from 0.
    pub turn: u64,
    /// Which text (default output).
    pub field: Option<OutputField>,
    /// Where to start, in UTF-8 bytes (default 0).
    pub offset: Option<u64>,
    /// Most text to return, in UTF-8 bytes (default 6000).
    #[schemars(range(min = 1, max = 100_000))]
    pub max_chars: Option<u64>,
}

/// Which questions.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListedState {
    /// Those that wait.
    #[default]
    Open,
    /// Those that were answered.
    Answered,
    /// Those that nobody answered in time.
    Expired,
    /// Those that were withdrawn.
    Closed,
    /// Every one.
    All,
}

/// Arguments of `list_questions`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuestions {
    /// Only of this turn.
    pub turn_id: Option<String>,
    /// Only those that stand here (default open).
    pub state: Option<ListedState>,
    /// Most questions to return (default 20).
    #[schemars(range(min = 1, max = 200))]
    pub limit: Option<u64>,
    /// `next_cursor` of the reply before.
    pub cursor: Option<String>,
}

/// Arguments of `answer_question`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerQuestion {
    /// The question.
    pub question_id: String,
    /// The answer to a question; for an approval a reason, if you like.
    #[schemars(length(max = 8000))]
    pub text: Option<String>,
    /// For an approval: true lets the worker do it, false does not.
    pub approve: Option<bool>,
}

/// Arguments of `list_sessions`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSessions {
    /// Most sessions to return (default 20).
    #[schemars(range(min = 1, max = 200))]
    pub limit: Option<u64>,
    /// `next_cursor` of the reply before.
    pub cursor: Option<String>,
}

/// Arguments of `get_session`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetSession {
    /// The session.
    pub session_id: String,
    /// First turn to show (default 0).
    pub from_turn: Option<u64>,
    /// Longest prompt or answer shown, in UTF-8 bytes (default 1500).
    #[schemars(range(min = 1, max = 100_000))]
    pub max_chars_per_turn: Option<u64>,
}

/// Arguments of `search_sessions`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchSessions {
    /// Words to look for; all must occur.
    #[schemars(length(min = 1, max = 500))]
    pub query: String,
    /// Most hits to return (default 10).
    #[schemars(range(min = 1, max = 50))]
    pub limit: Option<u64>,
}
