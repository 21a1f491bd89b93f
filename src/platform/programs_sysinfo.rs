//! Running programs of systems without `/proc`, from sysinfo.

use std::path::Path;

use sysinfo::{Pid, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System, UpdateKind};

use super::{RunningProgram, SecondLook};
use crate::platform::{ProcessIdentity, os};

pub(super) fn all() -> Vec<RunningProgram> {
    look(ProcessesToUpdate::All)
}

pub(super) fn find(pid: u32) -> Option<RunningProgram> {
    look(ProcessesToUpdate::Some(&[Pid::from_u32(pid), Pid::from_u32(std::process::id())]))
        .into_iter()
        .find(|program| program.process.pid == pid)
}

pub(super) fn limits_of_sight() -> Vec<&'static str> {
    if cfg!(windows) {
        vec!["Programs inside a Linux of this machine (WSL) and in containers cannot be seen from here."]
    } else {
        vec!["Programs in containers and virtual machines cannot be seen from here."]
    }
}

fn look(which: ProcessesToUpdate<'_>) -> Vec<RunningProgram> {
    let Ok(mut system) = System::new() else { return Vec::new() };
    let kind = ProcessRefreshKind::nothing()
        .without_tasks()
        .with_exe(UpdateKind::Always)
        .with_cmd(UpdateKind::Always)
        .with_user(UpdateKind::Always);
    system.refresh_processes_specifics(which, true, kind);
    let own = system.process(Pid::from_u32(std::process::id())).and_then(|own| own.user_id().cloned());
    system
        .processes()
        .values()
        .filter(|process| !matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead))
        .filter_map(|process| {
            settled(RunningProgram {
                process: ProcessIdentity { pid: process.pid().as_u32(), started: process.start_time() },
                parent: process.parent().map_or(0, Pid::as_u32),
                exe: process.exe().filter(|path| !path.as_os_str().is_empty()).map(Path::to_path_buf),
                file: None,
                arguments: process.cmd().to_vec(),
                is_ours: process.user_id().zip(own.as_ref()).map(|(user, own)| user == own),
                is_elsewhere: false,
            })
        })
        .collect()
}

/// Asks the system directly where the list has nothing to say of a process: on Windows it needs more rights than are
/// granted for the processes of others, and knows no long path.
fn settled(mut program: RunningProgram) -> Option<RunningProgram> {
    if program.exe.is_some() {
        return Some(program);
    }
    match os::look_again(program.process.pid) {
        SecondLook::Runs(exe) => program.exe = Some(exe),
        SecondLook::OfAnother => program.is_ours = Some(false),
        SecondLook::Gone => return None,
        SecondLook::Unknown => {}
    }
    Some(program)
}
