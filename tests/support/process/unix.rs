//! Signals and process groups.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, kill_process, kill_process_group};

/// A signal a test sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
    HangUp,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// Sends a signal to one process; nothing happens if it is gone.
pub fn signal(id: u32, which: Signal) {
    let which = match which {
        Signal::Interrupt => rustix::process::Signal::INT,
        Signal::Terminate => rustix::process::Signal::TERM,
        Signal::HangUp => rustix::process::Signal::HUP,
        Signal::Kill => rustix::process::Signal::KILL,
        Signal::Stop => rustix::process::Signal::STOP,
        Signal::Continue => rustix::process::Signal::CONT,
    };
    if let Some(pid) = pid(id) {
        let _ = kill_process(pid, which);
    }
}

/// Lets the program lead a process group.
pub fn own_group(command: &mut Command) {
    command.process_group(0);
}

/// Kills a child that leads its group, with the group, and reaps it.
pub fn kill_group(child: &mut Child) {
    if let Some(pid) = pid(child.id()) {
        let _ = kill_process_group(pid, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The signal that ended a program.
pub fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}
