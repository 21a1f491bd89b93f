//! The door for workers: an MCP endpoint on loopback that is made for one run, offers that run's tools and no others,
//! and is gone with it.
//!
//! What a call may touch is bound when the endpoint starts ([`BoundRun`], [`ToolSet`]). Nothing a worker sends can
//! name another run, and the token opens nothing but this endpoint.

mod arguments;
mod cancel;
mod connection;
mod endpoint;
mod error;
mod gate;
pub mod http;
pub mod kit;
mod log;
mod protocol;
pub mod rpc;
mod token;
mod tools;
pub mod upstream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::context::Clock;

pub use cancel::Cancel;
pub use endpoint::{Closed, Endpoint, MAX_CONNECTIONS};
pub use error::{CODES, ScopeError};
pub use log::{BatchedLog, CallLog, CallRecord, LinesLog, MemoryLog, Outcome};
pub use token::Token;
pub use tools::{Answer, Call, Tool, ToolSet, ToolSpec};

/// What every call of an endpoint belongs to. Fixed at the start.
#[derive(Clone, Debug)]
pub struct BoundRun {
    /// The run's own id, as in the log.
    pub run: String,
    /// The session it belongs to, if there is one.
    pub session: Option<String>,
    /// The turn it belongs to, if there is one.
    pub turn: Option<String>,
    /// The folder it works in, canonical.
    pub workspace: PathBuf,
}

/// Bounds of one endpoint.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest request body in bytes.
    pub body: usize,
    /// From the first byte of a request (or from the connect) to its last.
    pub read: Duration,
    /// How long an open connection may be silent between requests.
    pub idle: Duration,
    /// How long an answer may take to be taken.
    pub write: Duration,
    /// The longest a tool may take; below the time limit that clients are given.
    pub call: Duration,
    /// Tool calls at the same time.
    pub calls_at_once: usize,
    /// Tool calls in the whole run.
    pub calls: u64,
    /// Longest text of one result in bytes.
    pub output: usize,
    /// How long [`Endpoint::close`] waits for calls that were cancelled.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 1 << 20,
            read: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            write: Duration::from_secs(10),
            call: Duration::from_secs(110),
            calls_at_once: 8,
            calls: 10_000,
            output: 64 << 10,
            grace: Duration::from_secs(6),
        }
    }
}

/// Everything an endpoint is started with.
pub struct Options {
    /// What its calls belong to.
    pub bound: BoundRun,
    /// The tools it offers.
    pub tools: ToolSet,
    /// Its bounds.
    pub limits: Limits,
    /// Who is told of every call.
    pub log: Arc<dyn CallLog>,
    /// For the log's times.
    pub clock: Clock,
    /// Whether the revision of 2026-07-28 is spoken too.
    pub modern: bool,
}
