//! What a front door tells a supervisor, and what it hears back: one JSON line each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::preflight::LoginCheck;
use super::run_scope::RunScope;
use super::usage::KnownTotals;
use crate::agents::{Launch, ServerRule};
use crate::config::{OnDisconnect, ScopeCheck};
use crate::store::{NewTurn, TurnEnd};

/// Written to the supervisor's standard input, which then stays open for as long as the front door
/// lives. Never stored: it may hold secrets in `launch`.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunSpec {
    /// State folder.
    pub state_dir: PathBuf,
    /// The row to write.
    pub turn: NewTurn,
    /// The prompt as sent.
    pub outbound: String,
    /// Program as configured.
    pub program: PathBuf,
    /// Arguments after it, variables, and what the run folder holds.
    pub launch: Launch,
    /// The answer is to follow a schema.
    pub report: bool,
    /// How to ask before the start whether the login works, for agents that need it.
    pub login: Option<LoginCheck>,
    /// Totals of the provider session that is resumed.
    pub totals: KnownTotals,
    /// Start deadline in milliseconds.
    pub start_ms: Option<u64>,
    /// Idle deadline in milliseconds.
    pub idle_ms: Option<u64>,
    /// Most output in bytes.
    pub max_output: u64,
    /// How long to wait for another turn of the same session, in milliseconds.
    pub lock_wait_ms: u64,
    /// Turns that may run at the same time on the state folder.
    pub max_concurrent: usize,
    /// Least time between two starts of this agent, in milliseconds.
    pub start_spacing_ms: u64,
    /// What to do when the front door goes away.
    pub on_disconnect: OnDisconnect,
    /// The tools that the worker gets over an endpoint of its own.
    pub scope: Option<RunScope>,
    /// Which MCP servers the worker may have.
    pub servers: ServerRule,
    /// Checks that are run after the worker.
    pub checks: BTreeMap<String, ScopeCheck>,
    /// Whether what the run changes is looked at.
    pub observe: bool,
    /// How long each look may take, in milliseconds.
    pub observe_ms: u64,
    /// The copy that the turn works in, if it does.
    pub isolated: Option<PathBuf>,
}

/// One line of the supervisor's standard output.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// Nothing was started.
    Refused {
        /// `{code, message, hint, retryable[, details]}`.
        error: Value,
    },
    /// The idempotency key names a turn that exists.
    Same {
        /// That turn.
        turn_id: String,
    },
    /// The turn is recorded and its worker is being started.
    Started {
        /// Its position in the session.
        index: u64,
    },
    /// Something a person may want to see.
    Activity {
        /// One short line.
        line: String,
    },
    /// The worker has a question open.
    Asked,
    /// The end.
    Finished {
        /// As recorded.
        end: Box<TurnEnd>,
        /// Revision of the session after it; none if it could not be recorded.
        revision: Option<u64>,
        /// Why it could not be recorded, and the answer (bounded), which is then the only copy.
        unrecorded: Option<Unrecorded>,
    },
}

/// An end that could not be written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unrecorded {
    /// The operating system's or the store's reason.
    pub reason: String,
    /// The answer, at most 256 KiB of it.
    pub answer: String,
}
