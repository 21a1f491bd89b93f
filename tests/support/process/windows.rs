//! What Windows has in place of signals and process groups.

use std::os::windows::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A signal a test sends. Windows only knows how to end a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ends the process.
    Interrupt,
    /// Ends the process.
    Terminate,
    /// Ends the process.
    Kill,
}

const CREATE_NEW_PROCESS_GROUP: u32 = 0x0000_0200;

/// Ends one process; nothing happens if it is gone.
pub fn signal(id: u32, _which: Signal) {
    task_kill(&["/F", "/PID", &id.to_string()]);
}

/// Keeps a console's Ctrl-C away from the program.
pub fn own_group(command: &mut Command) {
    command.creation_flags(CREATE_NEW_PROCESS_GROUP);
}

/// Kills a child with everything below it, and reaps it.
pub fn kill_group(child: &mut Child) {
    task_kill(&["/F", "/T", "/PID", &child.id().to_string()]);
    let _ = child.kill();
    let _ = child.wait();
}

/// No program ends by a signal.
pub fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}

fn task_kill(arguments: &[&str]) {
    let _ = Command::new("taskkill")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}
