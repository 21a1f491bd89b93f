//! Running programs of Linux, from `/proc`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::RunningProgram;
use crate::platform::{ProcessIdentity, file_id, processes};

/// More of a command line than this is not looked at.
const MAX_ARGUMENTS: u64 = 128 * 1024;
/// The process namespace of the machine itself has this number.
const FIRST_PROCESS_NAMESPACE: u64 = 0xEFFF_FFFC;
/// What the system appends to the path of a file that was removed.
const REMOVED: &[u8] = b" (deleted)";

pub(super) fn all() -> Vec<RunningProgram> {
    let own = Own::read();
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| read(pid, &own)).collect()
}

pub(super) fn find(pid: u32) -> Option<RunningProgram> {
    read(pid, &Own::read())
}

pub(super) fn limits_of_sight() -> Vec<&'static str> {
    let mut limits = Vec::new();
    let kernel = fs::read_to_string("/proc/version").unwrap_or_default().to_ascii_lowercase();
    if kernel.contains("microsoft") {
        limits.push(
            "This is a Linux inside Windows: programs of Windows and of other such Linuxes cannot be seen from here.",
        );
    }
    if fs::metadata("/proc/self/ns/pid").is_ok_and(|found| found.ino() != FIRST_PROCESS_NAMESPACE) {
        limits.push("This runs in a container: processes outside of it cannot be seen from here.");
    }
    // Mounted so that processes of others are hidden; without the first process nothing of others is there.
    if fs::metadata("/proc/1/stat").is_err() {
        limits.push("The system hides the processes of other users.");
    }
    limits
}

struct Own {
    user: u32,
    mounts: Option<u64>,
    processes: Option<u64>,
}

impl Own {
    fn read() -> Self {
        let inode = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).ok().map(|found| found.ino());
        Self { user: rustix::process::geteuid().as_raw(), mounts: inode("mnt"), processes: inode("pid") }
    }
}

fn read(pid: u32, own: &Own) -> Option<RunningProgram> {
    let before = processes::find(pid).filter(|process| !process.zombie)?;
    if processes::is_kernel_thread(pid) {
        return None;
    }
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let link = folder.join("exe");
    let exe = fs::read_link(&link).ok();
    let file = file_id(&link);
    let arguments = arguments(&folder);
    // The owner of the folder is no measure: that of a process that may not be traced is the superuser.
    let is_ours = user_of(&folder).map(|(real, effective)| [real, effective].contains(&own.user));
    let other = |name: &str, own: Option<u64>| {
        let theirs = fs::metadata(folder.join("ns").join(name)).ok().map(|found| found.ino());
        theirs.zip(own).is_some_and(|(theirs, own)| theirs != own)
    };
    let is_elsewhere = other("mnt", own.mounts) || other("pid", own.processes);
    // All of it must be of one process, not half of one that took over the id.
    let after = processes::find(pid).filter(|now| now.started == before.started && !now.zombie)?;
    Some(RunningProgram {
        process: ProcessIdentity { pid, started: before.started },
        parent: after.parent,
        exe: exe.map(without_mark),
        file,
        arguments,
        is_ours,
        is_elsewhere,
    })
}

/// A removed file's path carries a mark, unless a file of that very name is there.
fn without_mark(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(REMOVED) {
        Some(plain) if !path.exists() => PathBuf::from(OsString::from_vec(plain.to_vec())),
        _ => path,
    }
}

fn arguments(folder: &Path) -> Vec<OsString> {
    let mut bytes = Vec::new();
    let read =
        File::open(folder.join("cmdline")).and_then(|file| file.take(MAX_ARGUMENTS).read_to_end(&mut bytes));
    if read.is_err() || bytes.is_empty() {
        return Vec::new();
    }
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}

fn user_of(folder: &Path) -> Option<(u32, u32)> {
    let status = fs::read(folder.join("status")).ok()?;
    // The name in the first line may hold anything but a line end.
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    let text = std::str::from_utf8(line).ok()?;
    let mut numbers = text.split_ascii_whitespace().filter_map(|number| number.parse().ok());
    numbers.next().zip(numbers.next())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_mark_of_a_removed_file_is_taken_off_but_a_name_like_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("program (deleted)");
        fs::write(&odd, "").unwrap();
        assert_eq!(without_mark(odd.clone()), odd);
        fs::remove_file(&odd).unwrap();
        assert_eq!(without_mark(odd), folder.path().join("program"));
    }
}
