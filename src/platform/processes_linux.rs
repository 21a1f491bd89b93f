//! The process table of Linux, from `/proc`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::Process;

/// Environments are bounded by the system's argument limit; more than this is not ours.
const MAX_ENVIRONMENT: u64 = 8 << 20;

pub(super) fn find(pid: u32) -> Option<Process> {
    parse_stat(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

pub(super) fn all() -> Vec<Process> {
    pids().filter_map(find).collect()
}

/// Bit 21 of the flags marks the kernel's own threads.
pub(super) fn is_kernel_thread(pid: u32) -> bool {
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { return false };
    let Some(name_end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let text = String::from_utf8_lossy(&stat[name_end + 1..]);
    let flags = text.split_ascii_whitespace().nth(6).and_then(|field| field.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & 0x0020_0000 != 0)
}

pub(super) fn children(pid: u32) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    // A child belongs to the thread that started it, so every thread is asked.
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let Ok(task) = task else { continue };
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => found.extend(text.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok())),
            // The thread is gone; its children went to another one.
            Err(_) if !task.path().exists() => {}
            // A kernel without this file.
            Err(_) => return None,
        }
    }
    Some(found)
}

pub(super) fn variable(pid: u32, name: &str) -> Option<OsString> {
    let environment = environment(pid)?;
    let mut prefix = name.as_bytes().to_vec();
    prefix.push(b'=');
    environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(prefix.as_slice()))
        .map(|value| OsString::from_vec(value.to_vec()))
}

pub(super) fn with_variable(name: &str, value: &OsStr) -> Vec<Process> {
    let mut wanted = name.as_bytes().to_vec();
    wanted.push(b'=');
    wanted.extend_from_slice(value.as_bytes());
    pids()
        .filter(|pid| {
            environment(*pid).is_some_and(|environment| {
                environment.split(|byte| *byte == 0).any(|entry| {
                    entry.strip_prefix(wanted.as_slice()).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
                })
            })
        })
        .filter_map(find)
        .collect()
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
}

fn environment(pid: u32) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/environ")).ok()?.take(MAX_ENVIRONMENT).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// See proc(5). The second field is the program's name in brackets and may hold anything, brackets
/// included, so fields are counted from the last one.
fn parse_stat(pid: u32, stat: &[u8]) -> Option<Process> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<i64>().ok();
    let id = |index: usize| Some(u32::try_from(number(index)?).unwrap_or(0));
    Some(Process {
        pid,
        parent: id(1)?,
        group: id(2)?,
        session: id(3)?,
        started: fields.get(19)?.parse().ok()?,
        zombie: matches!(*fields.first()?, "Z" | "X" | "x"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_hostile_program_name_does_not_shift_the_fields() {
        let stat = b"77 (a) Z 1 ) S 5 6 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let process = parse_stat(77, stat).unwrap();
        let wanted = Process { pid: 77, parent: 5, group: 6, session: 7, started: 4242, zombie: false };
        assert_eq!(process, wanted);
    }

    #[test]
    fn a_cut_line_is_no_process() {
        assert_eq!(parse_stat(1, b"1 (init) S 0 1"), None);
        assert_eq!(parse_stat(1, b""), None);
    }
}
