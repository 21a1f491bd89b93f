//! Process groups and signals on Unix.

use rustix::process::{Pid, Signal, getpid, kill_process, setpgid, setsid};

/// Moves this process to a group of its own.
pub(super) fn own_group() {
    // Fails only for a session leader, which has its own group already.
    let _ = setpgid(None::<Pid>, None::<Pid>);
}

/// Moves this process to a session of its own.
pub(super) fn own_session() {
    // Fails only for a group leader, which is what was wanted.
    let _ = setsid();
}

/// Ignores signals by name from here on.
pub(super) fn ignore_signals(names: &[String]) -> Result<(), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|error| format!("cannot watch signals: {error}"))?;
    // A handler stays installed for the life of the process, also after its listener is gone.
    runtime.block_on(async {
        for name in names {
            let kind = match name.as_str() {
                "INT" => SignalKind::interrupt(),
                "TERM" => SignalKind::terminate(),
                "HUP" => SignalKind::hangup(),
                other => return Err(format!("cannot ignore the signal {other:?}")),
            };
            drop(signal(kind).map_err(|error| format!("cannot ignore {name}: {error}"))?);
        }
        Ok(())
    })
}

/// Ends this process by a signal.
pub(super) fn kill_self(name: &str) -> Result<i32, String> {
    let signal = match name {
        "INT" => Signal::INT,
        "TERM" => Signal::TERM,
        "KILL" => Signal::KILL,
        "HUP" => Signal::HUP,
        "ABRT" => Signal::ABORT,
        other => return Err(format!("there is no signal {other:?} here")),
    };
    kill_process(getpid(), signal).map_err(|error| format!("cannot send {name}: {error}"))?;
    // A signal to oneself may arrive a moment later.
    std::thread::sleep(std::time::Duration::from_secs(5));
    Ok(1)
}
