//! Why nothing was packaged.

use std::path::PathBuf;

use crate::error::{CodeDoc, Coded};
use crate::platform::PlatformError;
use crate::release::ReleaseError;

/// An error of this room.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// There is no commit to package.
    #[error("{folder} has no commit to package: {why}", folder = .folder.display())]
    NoCommit {
        /// The folder.
        folder: PathBuf,
        /// Git's words.
        why: String,
    },
    /// The source differs from the commit.
    #[error("{folder} differs from its commit: {changes}", folder = .folder.display())]
    Dirty {
        /// The checkout.
        folder: PathBuf,
        /// The first changes, as git lists them.
        changes: String,
    },
    /// The binary is not what the commit gives.
    #[error("{binary} cannot be packaged: {why}", binary = .binary.display())]
    BinaryUnfit {
        /// The file.
        binary: PathBuf,
        /// Why not.
        why: String,
    },
    /// The packaging program is of another revision.
    #[error("this program is {own}, the commit is {head}")]
    PackagerStale {
        /// What this program is.
        own: String,
        /// The commit.
        head: String,
    },
    /// A file that would be written is there.
    #[error("{path} exists already", path = .path.display())]
    OutputExists {
        /// The file.
        path: PathBuf,
    },
    /// The output cannot be where it was asked for.
    #[error("the bundle cannot be written to {path}: {why}", path = .path.display())]
    OutputUnfit {
        /// The place.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// What would go into the bundle is not fit for one.
    #[error("{path} is not fit for a bundle: {why}")]
    ContentUnfit {
        /// The file in the commit.
        path: String,
        /// Why not.
        why: String,
    },
    /// Something changed in the meantime.
    #[error("{what} while it was packaged; nothing was published")]
    Drift {
        /// What happened.
        what: String,
    },
    /// The finished bundle is not what it was meant to be.
    #[error("the finished bundle is not what was meant: {why}; it was not published")]
    NotAsMeant {
        /// What differs.
        why: String,
    },
    /// The bundle that was to be reproduced cannot be read.
    #[error("cannot read {path}: {source}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// An error of the whole release side.
    #[error(transparent)]
    Release(#[from] ReleaseError),
}

impl From<PlatformError> for BundleError {
    fn from(error: PlatformError) -> Self {
        match error {
            PlatformError::Exists { path } => Self::OutputExists { path },
            other => Self::Release(other.into()),
        }
    }
}

crate::codes! {
    BUNDLE_NO_COMMIT { exit: Refused, retryable: false,
        cause: "A bundle is made of a commit, and the folder is no git checkout, has no commit, or git cannot be run there.",
        remedy: "Name the checkout with `agent-bridge package --repo DIR`; `git -C DIR log -1` has to work." }
    BUNDLE_DIRTY { exit: Refused, retryable: false,
        cause: "Files of the checkout were changed or added and not committed, so no revision would say what is in the bundle.",
        remedy: "Commit or remove what `git status` lists, build again, and package again." }
    BUNDLE_BINARY_UNFIT { exit: Refused, retryable: false,
        cause: "The binary is none of this project, was built from another revision or from changed source, or is too large.",
        remedy: "Run `cargo build --release --locked` in the clean checkout, and name its result with `--binary PATH`." }
    BUNDLE_PACKAGER_STALE { exit: Refused, retryable: false,
        cause: "Completions, manual pages and the versions of the state come from the program that packages, and it is not of the commit that is packaged.",
        remedy: "Package with a program that was built from the commit; `--other-packager` takes this one all the same." }
    BUNDLE_OUTPUT_EXISTS { exit: Refused, retryable: false,
        cause: "The bundle, or a file beside it with other content, is there already. Nothing is ever written over.",
        remedy: "Move the file away, or name another folder with `--out DIR`." }
    BUNDLE_OUTPUT_UNFIT { exit: Refused, retryable: false,
        cause: "The place of the bundle would make the checkout differ from its commit, or its name does not end in .mcpb.",
        remedy: "Name a folder outside the checkout with `--out DIR`, or leave `--out` away: `dist` is ignored by git." }
    BUNDLE_CONTENT_UNFIT { exit: Refused, retryable: false,
        cause: "A file of the commit that belongs into the bundle is missing, is no plain file, or says what no bundle may say.",
        remedy: "Mend the file that the message names, commit, build again, and package again." }
    BUNDLE_DRIFT { exit: Refused, retryable: true,
        cause: "The checkout or the binary was changed while it was packaged. Nothing was published.",
        remedy: "Let nothing else work in the checkout, and run the same command again." }
    BUNDLE_NOT_AS_MEANT { exit: VerificationFailed, retryable: true,
        cause: "The finished archive was read again and is not what it was meant to be: the disk, the memory, or a defect. It was removed.",
        remedy: "Run the same command again; if it repeats, check the disk, then report it with the message." }
    BUNDLE_UNREADABLE { exit: Refused, retryable: false,
        cause: "The bundle that was to be compared cannot be read.",
        remedy: "Check the path after `--reproduce`." }
}

impl Coded for BundleError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::NoCommit { .. } => &BUNDLE_NO_COMMIT,
            Self::Dirty { .. } => &BUNDLE_DIRTY,
            Self::BinaryUnfit { .. } => &BUNDLE_BINARY_UNFIT,
            Self::PackagerStale { .. } => &BUNDLE_PACKAGER_STALE,
            Self::OutputExists { .. } => &BUNDLE_OUTPUT_EXISTS,
            Self::OutputUnfit { .. } => &BUNDLE_OUTPUT_UNFIT,
            Self::ContentUnfit { .. } => &BUNDLE_CONTENT_UNFIT,
            Self::Drift { .. } => &BUNDLE_DRIFT,
            Self::NotAsMeant { .. } => &BUNDLE_NOT_AS_MEANT,
            Self::Unreadable { .. } => &BUNDLE_UNREADABLE,
            Self::Release(error) => error.doc(),
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Release(error) => error.hint(),
            other => other.doc().remedy.to_owned(),
        }
    }
}
