//! What must outlive a process: sessions, turns, attempts, audit, in one SQLite database shared by
//! many processes, and output blobs beside it.

mod audit;
mod begin;
mod blobs;
mod counts;
mod database;
mod errors;
mod finish;
mod ids;
mod native;
mod notes;
mod observations;
mod pages;
mod questions;
mod rows;
mod runs;
mod schema;
mod search;
mod sessions;
#[cfg(test)]
mod tests;
mod turns;

pub use audit::{AuditBreak, AuditEntry, AuditFilter, AuditRow, AuditVerdict};
pub use begin::{Attempt, Begin};
pub use blobs::{BlobKind, Blobs, Page, Preview};
pub use counts::Counts;
pub use database::{Durability, Store};
pub use errors::*;
pub use finish::CancelRequest;
pub use ids::{is_id, kept_dir, run_dir, scratch_path, session_lock_path, start_lock_path};
pub use questions::{
    NewAnswer, NewQuestion, Pulse, QuestionFilter, QuestionKind, QuestionRow, QuestionState,
};
pub use rows::{Listed, Skipped};
pub use runs::{RunFilter, RunRow, RunState};
pub use schema::current_version as schema_version;
pub use search::{Hit, HitField};
pub use turns::{TurnFilter, TurnPage};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agents::{Outcome, Tokens};
use crate::policy::{AgentId, Sandbox};

/// How a turn joins the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Continuity {
    /// A fresh conversation.
    New,
    /// The provider's own session is resumed.
    NativeResume,
    /// The conversation is replayed as untrusted context.
    ContextReplay,
}

impl Continuity {
    /// The name used on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::NativeResume => "native-resume",
            Self::ContextReplay => "context-replay",
        }
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        [Self::New, Self::NativeResume, Self::ContextReplay].into_iter().find(|it| it.as_str() == text)
    }
}

/// A session as listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionRow {
    /// Bridge session id (UUID v4).
    pub id: String,
    /// First line of the first prompt, at most 200 characters.
    pub title: String,
    /// Canonical working folder; fixed for life.
    pub cwd: PathBuf,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Milliseconds since 1970; never before `created_at`.
    pub updated_at: i64,
    /// Grows by one with each recorded turn.
    pub revision: u64,
    /// Number of turns, running ones included.
    pub turns: u64,
    /// Agents that took part, in order of first appearance.
    pub agents: Vec<AgentId>,
}

/// Where a turn stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TurnState {
    /// Its supervisor lives.
    Running,
    /// Its end is recorded.
    Finished,
}

/// A turn about to start; written before the worker is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewTurn {
    /// Turn id (UUID v4).
    pub id: String,
    /// Session id; created together with the turn if `new_session`.
    pub session_id: String,
    /// Whether the session is to be created.
    pub new_session: bool,
    /// Title of a new session.
    pub title: String,
    /// Canonical working folder.
    pub cwd: PathBuf,
    /// The session revision the plan was made from; 0 for a new session.
    pub expected_revision: u64,
    /// Backend.
    pub agent: AgentId,
    /// Model named to the backend.
    pub model: Option<String>,
    /// Granted authority.
    pub sandbox: Sandbox,
    /// How it joins the conversation.
    pub continuity: Continuity,
    /// Whether other agents' turns were added in front of the prompt.
    pub cross_agent_context: bool,
    /// Provider session that is resumed.
    pub resume: Option<String>,
    /// The caller's prompt.
    pub prompt: String,
    /// SHA-256 of the prompt as sent, lower hex.
    pub outbound_sha256: String,
    /// Same key, same turn.
    pub idempotency_key: Option<String>,
    /// SHA-256 over everything the caller asked for, to tell a repeated key from a reused one.
    pub request_sha256: String,
    /// Who asked, for instance the MCP client's name.
    pub requested_by: String,
    /// Milliseconds since 1970.
    pub started_at: i64,
    /// Hard deadline of the run in milliseconds.
    pub timeout_ms: u64,
}

/// A turn as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRow {
    /// Turn id.
    pub id: String,
    /// Session id.
    pub session_id: String,
    /// Position in the session, from 0.
    pub index: u64,
    /// Where it stands.
    pub state: TurnState,
    /// Backend.
    pub agent: AgentId,
    /// Model named to the backend.
    pub model: Option<String>,
    /// Granted authority.
    pub sandbox: Sandbox,
    /// Canonical working folder.
    pub cwd: PathBuf,
    /// How it joined the conversation.
    pub continuity: Continuity,
    /// Whether other agents' turns were added in front of the prompt.
    pub cross_agent_context: bool,
    /// Provider session that was resumed.
    pub resume: Option<String>,
    /// Provider session that came back.
    pub native_id: Option<String>,
    /// The caller's prompt; in lists over sessions only its first 2,000 characters.
    pub prompt: String,
    /// SHA-256 of the prompt as sent.
    pub outbound_sha256: String,
    /// Key of the start, if any.
    pub idempotency_key: Option<String>,
    /// Hash that goes with the key.
    pub request_sha256: String,
    /// Who asked.
    pub requested_by: String,
    /// Milliseconds since 1970.
    pub started_at: i64,
    /// Hard deadline of the run in milliseconds.
    pub timeout_ms: u64,
    /// What the worker is doing now, one line.
    pub activity: Option<String>,
    /// Somebody asked for the end, and why.
    pub cancel_requested: Option<String>,
    /// Set when `state` is finished.
    pub end: Option<TurnEnd>,
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnEnd {
    /// What became of it.
    pub outcome: Outcome,
    /// One line that says why, when it is not success.
    pub detail: Option<String>,
    /// Documented code of a bridge-side end (`TURN_START_DEADLINE`, …).
    pub code: Option<String>,
    /// Exit code, if it exited.
    pub exit_code: Option<i64>,
    /// Signal number, if a signal ended it.
    pub signal: Option<i32>,
    /// Milliseconds by the monotonic clock.
    pub duration_ms: u64,
    /// Size of the answer blob.
    pub answer_bytes: u64,
    /// Size of the standard error blob.
    pub stderr_bytes: u64,
    /// Provider session that came back.
    pub native_id: Option<String>,
    /// Tokens of this turn only; `None` is unknown.
    pub tokens: Option<Tokens>,
    /// US dollars of this turn only; `None` is unknown.
    pub cost_usd: Option<f64>,
    /// Adapter facts.
    pub meta: Value,
}

/// A provider session and the authority it was made with (never changed by a run that did not
/// return this very id).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NativeSession {
    /// The provider's id.
    pub id: String,
    /// Backend.
    pub agent: AgentId,
    /// Bridge session.
    pub session_id: String,
    /// Policy of the run that returned the id.
    pub cwd: PathBuf,
    /// Policy of the run that returned the id.
    pub sandbox: Sandbox,
    /// Policy of the run that returned the id.
    pub model: Option<String>,
    /// Index of the newest turn whose content it has seen.
    pub last_seen_turn: u64,
    /// Running token total of the provider conversation, when the provider reports totals.
    pub token_total: Option<Tokens>,
    /// Running cost total in US dollars.
    pub cost_total: Option<f64>,
}
