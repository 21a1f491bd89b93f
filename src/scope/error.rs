//! Why an endpoint could not be made, or a worker could not be run beside one.

use std::io;

use crate::error::{CodeDoc, Coded};

/// Errors of the scope room.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// No port on loopback, or no thread.
    #[error("no endpoint could be opened on 127.0.0.1: {0}")]
    Listen(io::Error),
    /// The system's source of random numbers failed.
    #[error("no token could be made: {0}")]
    Random(String),
    /// A tool name that is not in the set.
    #[error("there is no tool {name:?}; the tools are {known}")]
    UnknownTool {
        /// As it was asked for.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// A tool that the host of this endpoint can't serve.
    #[error("the tool {name:?} cannot be offered here: {why}")]
    ToolNeedsHost {
        /// Its name.
        name: &'static str,
        /// What is missing.
        why: &'static str,
    },
    /// Two tools of one name, or a name that some client would change.
    #[error("{0:?} cannot be the name of a tool")]
    ToolName(String),
    /// A check that cannot be run as it was given.
    #[error("the check {given:?} is not usable: {why}")]
    Check {
        /// As it was given.
        given: String,
        /// What is wrong.
        why: String,
    },
    /// A server whose tools were promised cannot be reached or has not what was promised.
    #[error("the server {server:?} cannot be offered: {why}")]
    Upstream {
        /// Its name in the config.
        server: String,
        /// What is wrong.
        why: String,
    },
    /// The records of calls cannot be written.
    #[error("the calls could not be recorded: {0}")]
    Log(String),
}

crate::codes! {
    SCOPE_LISTEN_FAILED { exit: Unexpected, retryable: true,
        cause: "The system gave no port on 127.0.0.1 or no thread, so the worker's endpoint could not be opened.",
        remedy: "Check the limits on open files and threads, and run the same command again." }
    SCOPE_TOKEN_FAILED { exit: Unexpected, retryable: true,
        cause: "The system's source of random numbers failed, and without a token no endpoint is opened.",
        remedy: "Run the same command again; if it repeats, the system needs a look." }
    SCOPE_TOOL_UNKNOWN { exit: Usage, retryable: false,
        cause: "A worker was to be given a tool that does not exist.",
        remedy: "Run `agent-bridge scope run --help` to see the tools." }
    SCOPE_TOOL_NEEDS_HOST { exit: Refused, retryable: false,
        cause: "Some tools need more than the run itself: a file, a check, or somebody who answers.",
        remedy: "Give what the message names, or leave the tool out." }
    SCOPE_TOOL_NAME { exit: Unexpected, retryable: false,
        cause: "Names of tools are unique, at most 50 characters of a-z, 0-9 and _, so that no client changes them.",
        remedy: "This is a defect; report it with the output of `agent-bridge doctor --json`." }
    SCOPE_CHECK_INVALID { exit: Usage, retryable: false,
        cause: "A check is a name and an argument list as JSON; its program is started without a shell.",
        remedy: "Write it as `--check 'test=[\"cargo\",\"test\"]'`; the message says what is wrong." }
    SCOPE_UPSTREAM_FAILED { exit: Refused, retryable: true,
        cause: "An MCP server whose tools the run was to be offered could not be reached, or has no such tool. A run never begins with less than it was promised.",
        remedy: "Mend or remove the server in `scope.servers` of the config; the message says what it answered." }
    SCOPE_LOG_FAILED { exit: Unexpected, retryable: true,
        cause: "The record of a worker's calls could not be written. Without it no call is served.",
        remedy: "Check the disk and the place of the record, and run the same command again." }
}

impl Coded for ScopeError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::Listen(_) => &SCOPE_LISTEN_FAILED,
            Self::Random(_) => &SCOPE_TOKEN_FAILED,
            Self::UnknownTool { .. } => &SCOPE_TOOL_UNKNOWN,
            Self::ToolNeedsHost { .. } => &SCOPE_TOOL_NEEDS_HOST,
            Self::ToolName(_) => &SCOPE_TOOL_NAME,
            Self::Check { .. } => &SCOPE_CHECK_INVALID,
            Self::Upstream { .. } => &SCOPE_UPSTREAM_FAILED,
            Self::Log(_) => &SCOPE_LOG_FAILED,
        }
    }
}
