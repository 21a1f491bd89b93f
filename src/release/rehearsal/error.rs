//! Why a rehearsal proved nothing, or proved the opposite.

use crate::error::{CodeDoc, Coded};

/// What was found.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// Something is not as it has to be after a step.
    #[error("the rehearsal failed: {why}")]
    Failed {
        /// What.
        why: String,
    },
    /// The kills did not land where they have to.
    #[error(
        "of {attempted} kills {before_commit} landed before the commit and {after_commit} after it; at least one of both is needed"
    )]
    Unproven {
        /// Switches that were started to be killed.
        attempted: u32,
        /// Kills between the beginning and the commit.
        before_commit: u32,
        /// Kills between the commit and the end.
        after_commit: u32,
    },
    /// Switches that stop are played on a stage only.
    #[error("{root} is not the stage of a rehearsal")]
    NoStage {
        /// The folder.
        root: String,
    },
}

crate::codes! {
    RELEASE_REHEARSAL_FAILED { exit: VerificationFailed, retryable: false,
        cause: "In the throwaway installation a step of the rehearsal did not lead to what it has to lead to.",
        remedy: "Look at the record that the last line names, and at the stage beside it; don't switch to that release." }
    RELEASE_REHEARSAL_UNPROVEN { exit: VerificationFailed, retryable: true,
        cause: "Everything went well, but no switch was cut off before the commit, or none after it, so nothing is known about a crash.",
        remedy: "Run `agent-bridge rehearse` again with more `--kills`; the record lists where each one landed." }
    RELEASE_REHEARSAL_NO_STAGE { exit: Refused, retryable: false,
        cause: "The command that plays one switch of a rehearsal works in the folder that a rehearsal made, nowhere else.",
        remedy: "Run `agent-bridge rehearse ID --evidence-dir DIR`." }
}

impl Coded for RehearsalError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::Failed { .. } => &RELEASE_REHEARSAL_FAILED,
            Self::Unproven { .. } => &RELEASE_REHEARSAL_UNPROVEN,
            Self::NoStage { .. } => &RELEASE_REHEARSAL_NO_STAGE,
        }
    }
}
