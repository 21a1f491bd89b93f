//! Why a canary could not run, or what it found.

use std::path::PathBuf;

use crate::error::{CodeDoc, Coded};

/// What is wrong, beside what a probe or the verification of a release says.
#[derive(Debug, thiserror::Error)]
pub enum CanaryError {
    /// The folder for the record.
    #[error("the record cannot go to {path}: {why}", path = .path.display())]
    EvidencePlace {
        /// The folder.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The folder that is thrown away.
    #[error("no throwaway folder could be made: {why}")]
    Stage {
        /// Why not.
        why: String,
    },
    /// The record could not be written.
    #[error("the record of the canary could not be written to {path}: {why}", path = .path.display())]
    EvidenceNotWritten {
        /// The folder.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A check did not hold.
    #[error("{0}")]
    Found(String),
    /// Files that must not change did.
    #[error("changed meanwhile: {0}")]
    Disturbed(String),
}

crate::codes! {
    CANARY_EVIDENCE_PLACE { exit: Refused, retryable: false,
        cause: "The folder for a canary's record must be named by an absolute path, must not exist yet, and must lie outside the installation, links and mounts followed.",
        remedy: "Pass another `--evidence-dir`; without one a new temporary folder is used (TMPDIR must then lie outside the installation)." }
    CANARY_STAGE { exit: Refused, retryable: true,
        cause: "A canary needs a throwaway folder outside the installation, and none could be made in the temporary folder.",
        remedy: "Free some space, or set TMPDIR (TEMP on Windows) to a folder outside the installation." }
    CANARY_EVIDENCE_NOT_WRITTEN { exit: Unexpected, retryable: true,
        cause: "The canary ran, but its record could not be written, so there is no proof of it.",
        remedy: "Check the folder, and run the canary again." }
    CANARY_FAILED { exit: VerificationFailed, retryable: false,
        cause: "The program on trial ran and did not do what its release promises. The check that failed is named.",
        remedy: "Read the record; don't switch to the release. Install its bundle again if it was damaged." }
    CANARY_DISTURBED { exit: VerificationFailed, retryable: true,
        cause: "A file that a canary must not change (pointer, launcher, config, a client's file) was not the same after it as before.",
        remedy: "If you or another command changed it meanwhile, run the canary again. If not, don't use the release." }
}

impl Coded for CanaryError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::EvidencePlace { .. } => &CANARY_EVIDENCE_PLACE,
            Self::Stage { .. } => &CANARY_STAGE,
            Self::EvidenceNotWritten { .. } => &CANARY_EVIDENCE_NOT_WRITTEN,
            Self::Found(_) => &CANARY_FAILED,
            Self::Disturbed(_) => &CANARY_DISTURBED,
        }
    }
}
