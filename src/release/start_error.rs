//! Why a program of an installation was not started, or not replaced.

use std::path::PathBuf;

use crate::error::{CodeDoc, Coded};

/// What stands between a host and its server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The gate is closed.
    #[error("agent-bridge is being updated; try again in a moment")]
    Maintenance,
    /// A command that was cut off could not be finished by the start either.
    #[error("an update was cut off and could not be finished by itself: {why}")]
    RecoveryFailed {
        /// What stood in the way.
        why: String,
    },
    /// The release wants a newer launcher.
    #[error("release {id} needs a launcher of protocol {needed}; this one speaks {spoken}")]
    LauncherOutdated {
        /// The release.
        id: String,
        /// What it needs.
        needed: u32,
        /// What this launcher speaks.
        spoken: u32,
    },
    /// The system would not run the verified program.
    #[error("{path} was verified, but the system does not run it: {why}", path = .path.display())]
    NotStarted {
        /// The program.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// The launcher is replaced by nobody but a running change.
    #[error("the launcher was not replaced: {why}")]
    NotReplaced {
        /// What is wrong.
        why: String,
    },
}

crate::codes! {
    RELEASE_MAINTENANCE { exit: RetryLater, retryable: true,
        cause: "The installation is being switched to another release at this moment; nothing new may start until that is over.",
        remedy: "Try again in a moment; `agent-bridge readiness` shows who is at work." }
    RELEASE_RECOVERY_FAILED { exit: RecoveryNeeded, retryable: true,
        cause: "An update was cut off by a crash. The launcher tried to finish or undo it before it started the server, and could not.",
        remedy: "Run `agent-bridge recover`; it says what stands in the way." }
    RELEASE_LAUNCHER_OUTDATED { exit: Refused, retryable: false,
        cause: "The current release was made for a newer launcher than the one that clients start.",
        remedy: "Run `agent-bridge cutover ID` with the launcher of that release, or go back with `agent-bridge rollback`." }
    RELEASE_NOT_STARTED { exit: Unexpected, retryable: true,
        cause: "The program of the current release is what it should be, and yet the system refuses to run it.",
        remedy: "Read the message for the system's reason (often a folder mounted without the right to run programs), then run `agent-bridge canary release ID`." }
    RELEASE_LAUNCHER_NOT_REPLACED { exit: Refused, retryable: false,
        cause: "The launcher is replaced only by a command that holds the installation's lock, by a file of the hash that was announced.",
        remedy: "Run `agent-bridge cutover ID`, which replaces the launcher where that is needed." }
}

impl Coded for StartError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::Maintenance => &RELEASE_MAINTENANCE,
            Self::RecoveryFailed { .. } => &RELEASE_RECOVERY_FAILED,
            Self::LauncherOutdated { .. } => &RELEASE_LAUNCHER_OUTDATED,
            Self::NotStarted { .. } => &RELEASE_NOT_STARTED,
            Self::NotReplaced { .. } => &RELEASE_LAUNCHER_NOT_REPLACED,
        }
    }
}
