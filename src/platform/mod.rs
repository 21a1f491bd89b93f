//! What differs between operating systems, and what must be right once: durable writes, locks,
//! process identity.
//!
//! `unix.rs` and `windows.rs` offer the same functions; nothing above this room asks which system it
//! runs on.

use std::io;
use std::path::PathBuf;

use crate::error::{CodeDoc, Coded};

mod durable;
mod identity;
mod launch;
mod locks;
mod marks;
pub mod private;
#[cfg_attr(windows, allow(dead_code, reason = "there a job object keeps the record of a tree"))]
pub(crate) mod processes;
mod programs;
pub mod protection;
mod replace;
mod staging;
mod termination;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

pub use durable::{
    NewFile, create_durable, create_private_dir, open_patiently, sync_dir, write_durable, write_error,
    write_over_link,
};
pub use identity::{
    ProcessIdentity, boot_id, is_alive, is_network_filesystem, lies_inside, parent_of, process_namespace,
    spawn_parent_watch,
};
pub use launch::run_opened;
pub use locks::{
    LockFile, LockState, LockSupport, is_held_exclusively, lock_owners, look_at_lock, probe_locks,
    require_locks, try_exclusive, try_shared, wait_exclusive,
};
pub use marks::{FileMark, MarkKind, path_from_bytes};
pub use programs::{FileId, RunningProgram, file_id, limits_of_sight, running_program, running_programs};
pub use replace::{
    Replacement, confirm_durable, confirm_replaced, final_target, mode_of, move_durable,
    names_of_replacement, open_no_link, open_to_run, overwrite_durable, remove_durable, remove_leftover,
    replace_durable, replace_if, seal_tree, take_back,
};
pub use staging::{
    FileView, clear_quarantine, create_staged, free_space, make_link, mark_executable, replace_by_link,
    set_executable,
};
pub use termination::termination;

/// Why the operating system did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// The folder of the target does not exist or is not a folder.
    #[error("cannot write {path}: its folder does not exist", path = .path.display())]
    FolderMissing {
        /// The target.
        path: PathBuf,
    },
    /// The target is a folder, or has no file name.
    #[error("cannot write {path}: it is a folder, not a file", path = .path.display())]
    NotAFile {
        /// The target.
        path: PathBuf,
    },
    /// A file that was to be new is there.
    #[error("{path} exists already", path = .path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// No permission, or a read-only file system.
    #[error("cannot write {path}: {source}", path = .path.display())]
    Denied {
        /// The target.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Disk or quota full.
    #[error("cannot write {path}: no space left ({source})", path = .path.display())]
    NoSpace {
        /// The target.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Another program kept the target open through every retry.
    #[error("cannot replace {path}: another program keeps it open ({source})", path = .path.display())]
    Busy {
        /// The target.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The new content is in place, but the system would not confirm that it survives a power cut.
    #[error("{path} was replaced, but its folder could not be synced: {source}", path = .path.display())]
    NotConfirmed {
        /// The target.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Any other failure of a write.
    #[error("cannot write {path}: {source}", path = .path.display())]
    WriteFailed {
        /// The target.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The lock file could not be opened or locked.
    #[error("cannot lock {path}: {source}", path = .path.display())]
    LockFailed {
        /// The lock file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The file system does not offer locks.
    #[error("the file system of {path} offers no file locks ({source})", path = .path.display())]
    LocksUnsupported {
        /// The lock file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The file system gives one lock to two holders.
    #[error("the file system of {path} grants the same lock twice", path = .path.display())]
    LocksUnreliable {
        /// The folder.
        path: PathBuf,
    },
}

crate::codes! {
    WRITE_FOLDER_MISSING { exit: Refused, retryable: false,
        cause: "A file was to be written into a folder that does not exist.",
        remedy: "Create the folder, or name another place." }
    WRITE_TARGET_EXISTS { exit: Refused, retryable: false,
        cause: "A file that was to be made is there already. It was not touched.",
        remedy: "Move the file away, or name another place." }
    WRITE_NOT_A_FILE { exit: Refused, retryable: false,
        cause: "A file was to be written where a folder is.",
        remedy: "Move the folder away, or name another place." }
    WRITE_DENIED { exit: Refused, retryable: false,
        cause: "The system denies writing there: permissions, or a read-only file system.",
        remedy: "Check the owner and permissions of the folder, or name another place." }
    WRITE_NO_SPACE { exit: Refused, retryable: true,
        cause: "The disk or the user's quota is full. The old content is intact.",
        remedy: "Free some space and run the same command again." }
    WRITE_TARGET_BUSY { exit: RetryLater, retryable: true,
        cause: "Another program (often a virus scanner or an editor) keeps the file open. The old content is intact.",
        remedy: "Close the other program and run the same command again." }
    WRITE_NOT_CONFIRMED { exit: Unexpected, retryable: true,
        cause: "The new content is in place, but the system would not confirm that it survives a power cut.",
        remedy: "Check the disk and run the same command again." }
    WRITE_FAILED { exit: Unexpected, retryable: true,
        cause: "The system failed to write a file. The old content is intact.",
        remedy: "Read the message for the system's reason, and run the same command again." }
    LOCK_FAILED { exit: Unexpected, retryable: true,
        cause: "A lock file could not be opened or locked.",
        remedy: "Check the owner and permissions of the folder that holds it." }
    LOCKS_UNSUPPORTED { exit: Refused, retryable: false,
        cause: "The file system (often a network or shared folder) offers no file locks, so two processes could not be kept apart.",
        remedy: "Set `stateDir` to a folder on a local disk." }
    LOCKS_UNRELIABLE { exit: Refused, retryable: false,
        cause: "The file system (often a network or shared folder) grants the same lock to two holders, so two processes could not be kept apart.",
        remedy: "Set `stateDir` to a folder on a local disk." }
}

impl Coded for PlatformError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::FolderMissing { .. } => &WRITE_FOLDER_MISSING,
            Self::Exists { .. } => &WRITE_TARGET_EXISTS,
            Self::NotAFile { .. } => &WRITE_NOT_A_FILE,
            Self::Denied { .. } => &WRITE_DENIED,
            Self::NoSpace { .. } => &WRITE_NO_SPACE,
            Self::Busy { .. } => &WRITE_TARGET_BUSY,
            Self::NotConfirmed { .. } => &WRITE_NOT_CONFIRMED,
            Self::WriteFailed { .. } => &WRITE_FAILED,
            Self::LockFailed { .. } => &LOCK_FAILED,
            Self::LocksUnsupported { .. } => &LOCKS_UNSUPPORTED,
            Self::LocksUnreliable { .. } => &LOCKS_UNRELIABLE,
        }
    }
}
