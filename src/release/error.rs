//! What can go wrong with releases, by stable codes.

use std::io;
use std::path::PathBuf;

use crate::error::{CodeDoc, Coded};
use crate::platform::PlatformError;

/// Why a release operation did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// No place for an installation.
    #[error("there is no usable home folder, so the installation folder must be named")]
    NoRoot,
    /// ROOT cannot be used.
    #[error("{path} cannot hold an installation: {why}", path = .path.display())]
    RootUnusable {
        /// The folder.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// ROOT is no installation.
    #[error("there is no installation in {root}: {why}", root = .root.display())]
    NoInstallation {
        /// The folder.
        root: PathBuf,
        /// What is there.
        why: String,
    },
    /// A release id that is none.
    #[error("{id:?} is not a release id")]
    InvalidId {
        /// As given.
        id: String,
    },
    /// A release that is not there.
    #[error("release {id} is not installed in {root}", root = .root.display())]
    NotInstalled {
        /// The release.
        id: String,
        /// The installation.
        root: PathBuf,
    },
    /// Metadata that cannot be used.
    #[error("release-metadata.json is not valid: {why}")]
    MetadataInvalid {
        /// What is wrong.
        why: String,
    },
    /// A release that is not what its metadata says.
    #[error("release {id} is damaged: {why}")]
    Damaged {
        /// The release.
        id: String,
        /// The first difference.
        why: String,
    },
    /// A release for another machine.
    #[error("release {id} is for {target}, this machine is {here}")]
    ForeignTarget {
        /// The release.
        id: String,
        /// Its platform.
        target: String,
        /// This platform.
        here: String,
    },
    /// No slot of the pointer is valid.
    #[error("the pointer of {root} is damaged: no slot is valid", root = .root.display())]
    PointerDamaged {
        /// The installation.
        root: PathBuf,
    },
    /// A journal that cannot be believed.
    #[error("the journal {path} is damaged: {why}", path = .path.display())]
    JournalDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another command is at work.
    #[error("another command changes {root} now", root = .root.display())]
    Locked {
        /// The installation.
        root: PathBuf,
    },
    /// An earlier command was cut off.
    #[error("transaction {txid} in {root} was cut off", root = .root.display())]
    RecoveryNeeded {
        /// The transaction.
        txid: String,
        /// The installation.
        root: PathBuf,
    },
    /// The switch happened; a later step did not.
    #[error("{txid} is committed, but a step after it failed: {why}")]
    NotFinished {
        /// The transaction.
        txid: String,
        /// What failed.
        why: String,
    },
    /// Undoing did not succeed.
    #[error("{txid} failed ({cause}) and could not be undone: {why}")]
    NotUndone {
        /// The transaction.
        txid: String,
        /// Why it was to be undone.
        cause: String,
        /// What failed.
        why: String,
    },
    /// A file changed under our hands.
    #[error("{path} was changed by somebody else meanwhile", path = .path.display())]
    FileChanged {
        /// The file.
        path: PathBuf,
    },
    /// Ctrl-C, SIGTERM, a closed console.
    #[error("interrupted; everything was put back")]
    Interrupted,
    /// Nothing is current yet.
    #[error("no release is current in {root}", root = .root.display())]
    NothingCurrent {
        /// The installation.
        root: PathBuf,
    },
    /// Nothing to go back to.
    #[error("there is no generation to go back to: {why}")]
    NoWayBack {
        /// What was found.
        why: String,
    },
    /// A generation that does not exist.
    #[error("there is no generation {number}")]
    UnknownGeneration {
        /// As given.
        number: u64,
    },
    /// Somebody still uses the installation.
    #[error("{root} is in use: {holders}", root = .root.display())]
    InUse {
        /// The installation.
        root: PathBuf,
        /// Who.
        holders: String,
    },
    /// Whether somebody uses it cannot be told.
    #[error("whether {root} is in use cannot be told: {why}", root = .root.display())]
    UseUnknown {
        /// The installation.
        root: PathBuf,
        /// Why not.
        why: String,
    },
    /// The target did not pass its probe.
    #[error("release {id} did not pass the probe: {why}")]
    ProbeFailed {
        /// The release.
        id: String,
        /// What happened.
        why: String,
    },
    /// The target cannot use this config or state.
    #[error("release {id} cannot be used here: {why}")]
    Incompatible {
        /// The release.
        id: String,
        /// Why not.
        why: String,
    },
    /// The operator did not confirm.
    #[error("not confirmed; nothing was changed")]
    NotConfirmed,
    /// Any failure of a file operation.
    #[error("{step} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried: `cannot read`.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// A failed write, in the ground's words.
    #[error(transparent)]
    Platform(#[from] PlatformError),
}

impl ReleaseError {
    /// For `map_err`: a failed step on a path.
    pub fn io(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { step, path, source }
    }
}

crate::codes! {
    RELEASE_NO_ROOT { exit: Refused, retryable: false,
        cause: "No installation folder was named and there is no home folder to put one in.",
        remedy: "Pass `--root DIR`, or set AGENT_BRIDGE_ROOT." }
    RELEASE_ROOT_UNUSABLE { exit: Refused, retryable: false,
        cause: "The installation folder cannot be used.",
        remedy: "Name another folder with `--root DIR`." }
    RELEASE_NO_INSTALLATION { exit: Refused, retryable: false,
        cause: "The folder is no installation, so there is nothing in it to change or to ask about. Nothing was made.",
        remedy: "Name the installation with `--root DIR` or AGENT_BRIDGE_ROOT; `agent-bridge install-release BUNDLE` makes one." }
    RELEASE_ID_INVALID { exit: Usage, retryable: false,
        cause: "A release id is `<version>+<first 7 digits of the revision>`, such as 1.2.0+0a1b2c3.",
        remedy: "List the installed releases with `agent-bridge inspect`." }
    RELEASE_NOT_INSTALLED { exit: Refused, retryable: false,
        cause: "The release is not in the releases folder of this installation.",
        remedy: "Install it with `agent-bridge install-release BUNDLE`, or list what is there with `agent-bridge inspect`." }
    RELEASE_METADATA_INVALID { exit: VerificationFailed, retryable: false,
        cause: "The record that pins the files of a release is not valid, so nothing in the release can be believed.",
        remedy: "Get the bundle again from where it was packaged." }
    RELEASE_DAMAGED { exit: VerificationFailed, retryable: false,
        cause: "An installed release differs from what its metadata pins: a file is missing, added or changed.",
        remedy: "Install the same bundle again with `agent-bridge install-release BUNDLE --repair`." }
    RELEASE_FOREIGN_TARGET { exit: Refused, retryable: false,
        cause: "The release was built for another operating system or processor.",
        remedy: "Get the bundle for this machine; its name ends in the system and the processor." }
    RELEASE_POINTER_DAMAGED { exit: VerificationFailed, retryable: false,
        cause: "Neither slot of the pointer passes its checksum, so it is not known which release is current.",
        remedy: "Run `agent-bridge inspect`, then `agent-bridge cutover ID` to the release that should be current." }
    RELEASE_JOURNAL_DAMAGED { exit: RecoveryNeeded, retryable: false,
        cause: "A journal was changed or damaged: its hash chain does not hold, or it names what it may not.",
        remedy: "Run `agent-bridge inspect`, and compare the file with a backup of the installation." }
    RELEASE_LOCKED { exit: RetryLater, retryable: true,
        cause: "Another command changes the installation at this moment.",
        remedy: "Wait for it to end, then run the same command again." }
    RELEASE_RECOVERY_NEEDED { exit: RecoveryNeeded, retryable: false,
        cause: "An earlier command was cut off in the middle: by a crash, a kill or a power cut.",
        remedy: "Run `agent-bridge recover`; `agent-bridge recover --dry-run` shows what it will do." }
    RELEASE_NOT_FINISHED { exit: RecoveryNeeded, retryable: true,
        cause: "The change is decided and on record, but one of the steps after the decision failed.",
        remedy: "Run `agent-bridge recover`: it completes what is left." }
    RELEASE_NOT_UNDONE { exit: RecoveryNeeded, retryable: true,
        cause: "A change failed before it was decided, and putting things back failed as well.",
        remedy: "Mend what the message names, then run `agent-bridge recover`." }
    RELEASE_FILE_CHANGED { exit: Refused, retryable: true,
        cause: "A file was changed by another program between the look at it and the write. Nothing of ours was left in it.",
        remedy: "Close the program that writes the file, then run the same command again." }
    RELEASE_INTERRUPTED { exit: Refused, retryable: true,
        cause: "The command was interrupted before its decision. Everything was put back.",
        remedy: "Run the same command again when you are ready." }
    RELEASE_NOTHING_CURRENT { exit: Refused, retryable: false,
        cause: "No release was made current in this installation yet.",
        remedy: "Install one with `agent-bridge install-release BUNDLE`, then `agent-bridge cutover ID`." }
    RELEASE_NO_WAY_BACK { exit: Refused, retryable: false,
        cause: "Nothing was current before, or all of it is known to be bad, so there is nothing that a rollback would choose by itself.",
        remedy: "Look at `agent-bridge history`, and name one with `agent-bridge rollback --to N`." }
    RELEASE_UNKNOWN_GENERATION { exit: Refused, retryable: false,
        cause: "No generation has that number.",
        remedy: "List them with `agent-bridge history`." }
    RELEASE_IN_USE { exit: RetryLater, retryable: true,
        cause: "Servers or turns are running from the installation, and they are never killed.",
        remedy: "Close the hosts that are named, or wait with `agent-bridge readiness --wait`; `--soft` lets old processes finish on the old release." }
    RELEASE_USE_UNKNOWN { exit: Refused, retryable: true,
        cause: "Some processes cannot be looked at, so it is not known whether the installation is in use; unknown is never taken for quiet.",
        remedy: "Look at `agent-bridge readiness --json`; run it as the user who runs the hosts." }
    RELEASE_PROBE_FAILED { exit: VerificationFailed, retryable: false,
        cause: "The target was started behind the closed gate and did not answer as its metadata promises. Everything was put back.",
        remedy: "Run `agent-bridge canary release ID` to see why." }
    RELEASE_INCOMPATIBLE { exit: Refused, retryable: false,
        cause: "The release cannot read the config or the state of this installation, or needs a newer launcher.",
        remedy: "Choose another release, or a config that the release can read (`--stage-config FILE`)." }
    RELEASE_NOT_CONFIRMED { exit: Refused, retryable: false,
        cause: "The change was not confirmed. Nothing was changed.",
        remedy: "Type the release id when asked, or pass `--yes` where nobody can be asked." }
    RELEASE_IO { exit: Unexpected, retryable: true,
        cause: "The system failed a file operation of a release command.",
        remedy: "Read the message for the file and the system's reason, and run the same command again." }
}

impl Coded for ReleaseError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::NoRoot => &RELEASE_NO_ROOT,
            Self::RootUnusable { .. } => &RELEASE_ROOT_UNUSABLE,
            Self::NoInstallation { .. } => &RELEASE_NO_INSTALLATION,
            Self::InvalidId { .. } => &RELEASE_ID_INVALID,
            Self::NotInstalled { .. } => &RELEASE_NOT_INSTALLED,
            Self::MetadataInvalid { .. } => &RELEASE_METADATA_INVALID,
            Self::Damaged { .. } => &RELEASE_DAMAGED,
            Self::ForeignTarget { .. } => &RELEASE_FOREIGN_TARGET,
            Self::PointerDamaged { .. } => &RELEASE_POINTER_DAMAGED,
            Self::JournalDamaged { .. } => &RELEASE_JOURNAL_DAMAGED,
            Self::Locked { .. } => &RELEASE_LOCKED,
            Self::RecoveryNeeded { .. } => &RELEASE_RECOVERY_NEEDED,
            Self::NotFinished { .. } => &RELEASE_NOT_FINISHED,
            Self::NotUndone { .. } => &RELEASE_NOT_UNDONE,
            Self::FileChanged { .. } => &RELEASE_FILE_CHANGED,
            Self::Interrupted => &RELEASE_INTERRUPTED,
            Self::NothingCurrent { .. } => &RELEASE_NOTHING_CURRENT,
            Self::NoWayBack { .. } => &RELEASE_NO_WAY_BACK,
            Self::UnknownGeneration { .. } => &RELEASE_UNKNOWN_GENERATION,
            Self::InUse { .. } => &RELEASE_IN_USE,
            Self::UseUnknown { .. } => &RELEASE_USE_UNKNOWN,
            Self::ProbeFailed { .. } => &RELEASE_PROBE_FAILED,
            Self::Incompatible { .. } => &RELEASE_INCOMPATIBLE,
            Self::NotConfirmed => &RELEASE_NOT_CONFIRMED,
            Self::Io { .. } => &RELEASE_IO,
            Self::Platform(error) => error.doc(),
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Platform(error) => error.hint(),
            other => other.doc().remedy.to_owned(),
        }
    }
}
