//! The process table of systems without `/proc`, from sysinfo.

use std::ffi::{OsStr, OsString};

use sysinfo::{Pid, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System, UpdateKind};

use super::Process;
use crate::platform::os;

pub(super) fn find(pid: u32) -> Option<Process> {
    let id = Pid::from_u32(pid);
    read(ProcessesToUpdate::Some(&[id]), false)?.process(id).map(describe)
}

pub(super) fn all() -> Vec<Process> {
    read(ProcessesToUpdate::All, false)
        .map(|system| system.processes().values().map(describe).collect())
        .unwrap_or_default()
}

pub(super) fn children(_pid: u32) -> Option<Vec<u32>> {
    None
}

pub(super) fn variable(pid: u32, name: &str) -> Option<OsString> {
    let id = Pid::from_u32(pid);
    let system = read(ProcessesToUpdate::Some(&[id]), true)?;
    system.process(id)?.environ().iter().find_map(|entry| value_of(entry, name))
}

pub(super) fn with_variable(name: &str, value: &OsStr) -> Vec<Process> {
    let Some(system) = read(ProcessesToUpdate::All, true) else { return Vec::new() };
    system
        .processes()
        .values()
        .filter(|p| {
            p.environ()
                .iter()
                .filter_map(|entry| value_of(entry, name))
                .any(|found| is_or_is_below(&found, value))
        })
        .map(describe)
        .collect()
}

fn is_or_is_below(found: &OsStr, value: &OsStr) -> bool {
    let rest = found.as_encoded_bytes().strip_prefix(value.as_encoded_bytes());
    rest.is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
}

fn read(which: ProcessesToUpdate<'_>, environment: bool) -> Option<System> {
    let mut system = System::new().ok()?;
    let mut kind = ProcessRefreshKind::nothing().without_tasks();
    if environment {
        kind = kind.with_environ(UpdateKind::Always);
    }
    system.refresh_processes_specifics(which, true, kind);
    Some(system)
}

fn describe(process: &sysinfo::Process) -> Process {
    let pid = process.pid().as_u32();
    let (group, session) = os::group_and_session(pid);
    Process {
        pid,
        parent: process.parent().map_or(0, Pid::as_u32),
        group,
        session,
        started: process.start_time(),
        zombie: matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead),
    }
}

fn value_of(entry: &OsStr, name: &str) -> Option<OsString> {
    let text = entry.to_str()?;
    let (key, value) = text.split_once('=')?;
    let same = if cfg!(windows) { key.eq_ignore_ascii_case(name) } else { key == name };
    same.then(|| OsString::from(value))
}
