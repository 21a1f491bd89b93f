//! Child processes: start without a shell, watch, drain, bound, and end as a whole tree.
//!
//! Everything here is synchronous (threads and channels); the supervisor is a small program and
//! the MCP server only waits for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

mod beside;
mod command_line;
mod depth;
mod detach;
mod dialogue;
mod environment;
mod error;
mod guard;
mod resolve;
mod run;
mod start;
mod stream;
mod text;
mod windows_shim;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

#[cfg(windows)]
pub(crate) use os::run_beside;

pub use beside::run_on_our_streams;
pub use command_line::{MAX_UNIX_ARGUMENT, MAX_WINDOWS_COMMAND_LINE, windows_command_line_units};
pub use depth::{DEPTH_VAR, current_depth, is_within_run};
pub use detach::detach_from_host;
pub use dialogue::{Dialogue, DialogueLimits, Farewell, Heard, Sayer};
pub use environment::{
    STAND_IN_SCRIPT_VAR, absent_network_variables, denied_extra_env, is_passed_anyway, network_variables,
    worker_environment,
};
pub use error::{CODES, ProcessError};
pub use guard::{Guard, stand_guard};
pub use resolve::{Resolved, resolve, resolve_native};
pub use run::{
    Captured, RunIo, capture, capture_into, capture_while, claim_all_children, end_leftovers, mark_below, run,
};
pub use start::TURN_VAR;
pub use text::{readable, reorders_or_hides, strip_terminal};

/// A program to start, complete: nothing is inherited but what is listed.
#[derive(Clone, Debug)]
pub struct Program {
    /// Absolute path of the executable.
    pub program: PathBuf,
    /// Arguments, passed byte-exact, never through a shell.
    pub args: Vec<OsString>,
    /// Working folder.
    pub cwd: PathBuf,
    /// The whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// Written to standard input, which is then closed. Empty: the null device.
    pub stdin: Vec<u8>,
}

/// Bounds of one run. All deadlines use a monotonic clock.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Time to the first byte on either stream.
    pub start: Option<Duration>,
    /// Longest silence after that.
    pub idle: Option<Duration>,
    /// The whole run.
    pub run: Duration,
    /// Between the polite request to end and the kill.
    pub grace: Duration,
    /// After the root process ended, how long its streams may stay open before they are cut.
    pub drain: Duration,
    /// Longest line kept in memory; a longer one ends the run. 0: standard output is no text, and not looked at in
    /// lines.
    pub max_line: usize,
    /// Most bytes on both streams together; more ends the run.
    pub max_output: u64,
    /// Size of the standard error tail that is kept in memory.
    pub stderr_tail: usize,
}

/// How to ask a worker to stop before it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoliteStop {
    /// Interrupt to the root process (Codex, Claude Code).
    InterruptRoot,
    /// Terminate to the process group.
    TerminateGroup,
}

/// Why we ended a run, when we did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Somebody asked.
    Cancelled(String),
    /// Nothing was printed before the start deadline.
    StartDeadline(Duration),
    /// Silence for longer than the idle deadline.
    IdleDeadline(Duration),
    /// The run deadline.
    RunDeadline(Duration),
    /// A line longer than `max_line`.
    LineTooLong(usize),
    /// More output than `max_output`.
    OutputTooLarge(u64),
    /// The parser found something that cannot get better.
    Fatal(String),
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Exit code, if it exited. 32-bit codes of Windows are kept unsigned.
    pub exit_code: Option<i64>,
    /// Signal number, if a signal ended it.
    pub signal: Option<i32>,
    /// Set if we ended it before it ended itself. An exit that came first wins.
    pub stopped: Option<Stopped>,
    /// Bytes on standard output.
    pub stdout_bytes: u64,
    /// Bytes on standard error.
    pub stderr_bytes: u64,
    /// The last part of standard error, readable text, terminal codes removed.
    pub stderr_tail: String,
    /// Wall time by the monotonic clock.
    pub duration: Duration,
    /// Process ids of the tree that could not be proven gone. Normally empty.
    pub survivors: Vec<u32>,
    /// The streams were cut because something outside the tree kept them open.
    pub drain_cut: bool,
    /// Writing the captured output to its file failed (for instance a full disk).
    pub capture_error: Option<String>,
}
