//! Which programs run: the process table with the file each process runs, its arguments and whose it is.
//!
//! What cannot be read is said to be unknown; nothing is guessed from a name.

use std::ffi::OsString;
use std::path::PathBuf;

use super::ProcessIdentity;

#[cfg(target_os = "linux")]
#[path = "programs_linux.rs"]
mod table;
#[cfg(not(target_os = "linux"))]
#[path = "programs_sysinfo.rs"]
mod table;

/// One process and what it runs.
#[derive(Clone, Debug)]
pub struct RunningProgram {
    /// The process.
    pub process: ProcessIdentity,
    /// The process that started it, or that took it over.
    pub parent: u32,
    /// The file that it runs, also if that was removed meanwhile; none if it may not be read.
    pub exe: Option<PathBuf>,
    /// Device and number of that file, where there are such; they are the same however a path leads there.
    pub file: Option<FileId>,
    /// Its arguments with the program's name; empty if they may not be read.
    pub arguments: Vec<OsString>,
    /// Whether it belongs to the user of this process; none if that cannot be read.
    pub is_ours: Option<bool>,
    /// Whether it lives in another container: its paths mean something else than ours.
    pub is_elsewhere: bool,
}

/// What a process that told nothing of itself turns out to be.
#[cfg(not(target_os = "linux"))]
#[cfg_attr(unix, allow(dead_code, reason = "macOS has no second way to ask"))]
pub(super) enum SecondLook {
    /// It runs this file.
    Runs(PathBuf),
    /// It belongs to somebody else.
    OfAnother,
    /// It has ended.
    Gone,
    /// The system does not tell.
    Unknown,
}

/// What identifies a file on this machine.
pub type FileId = (u64, u64);

/// Every process that can be seen, without the threads of the system's kernel and without those that only wait
/// to be reaped.
pub fn running_programs() -> Vec<RunningProgram> {
    table::all()
}

/// What one process runs.
pub fn running_program(pid: u32) -> Option<RunningProgram> {
    table::find(pid)
}

/// What identifies a file, where the system has such a thing.
pub fn file_id(path: &std::path::Path) -> Option<FileId> {
    super::os::file_id(path)
}

/// What this system hides from a look at its processes, in sentences.
pub fn limits_of_sight() -> Vec<&'static str> {
    table::limits_of_sight()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn this_process_is_seen_with_its_file() {
        let own = running_program(std::process::id()).unwrap();
        assert_eq!(own.process, ProcessIdentity::current());
        assert_eq!(own.exe, std::env::current_exe().ok());
        assert_eq!(own.is_ours, Some(true));
        assert!(!own.is_elsewhere);
        if std::env::var_os("AGENT_BRIDGE_TEST_WINE").is_none() {
            assert_eq!(own.arguments.len(), std::env::args_os().count());
        }
        let seen = running_programs();
        assert_eq!(seen.iter().filter(|other| other.process == own.process).count(), 1);
    }
}
