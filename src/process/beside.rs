//! A program on this process's own streams, from its start to the proven end of its whole tree.
//!
//! It stays in our session and process group, so that it can use the terminal as if it had been started there. What
//! the terminal sends to the group reaches it without us.

use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::os::Tree;
use super::run::{END_WAIT, OBSERVE};
use super::{PoliteStop, ProcessError, Program, Report, Stopped, resolve, start};

/// How often `on_tick` is called.
const TICK: Duration = Duration::from_millis(40);

/// Runs a program that reads and writes what this process would; its `stdin` is not looked at. `on_tick` is called at
/// least every 50 ms; `Some` is a reason to end it: politely, and after `grace` for good.
pub fn run_on_our_streams(
    program: &Program,
    grace: Duration,
    on_tick: &mut dyn FnMut() -> Option<String>,
) -> Result<Report, ProcessError> {
    let (mut command, marker) = start::command(program)?;
    let failed = |source| resolve::explain_spawn_error(program, source);
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let polite = PoliteStop::InterruptRoot;
    let started = Instant::now();
    let (mut child, mut tree) = Tree::start_beside(command, &marker, polite).map_err(failed)?;
    let waiter = tree.exit_waiter().map_err(failed)?;
    let (ended, end) = channel();
    let waiting = thread::Builder::new().name("exit".into()).spawn(move || {
        waiter.wait();
        let _ = ended.send(());
    });
    waiting.map_err(failed)?;
    let mut report = Report::default();
    let (mut observed, mut kill_at) = (started, None);
    while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(TICK) {
        if report.stopped.is_none()
            && let Some(reason) = on_tick()
        {
            report.stopped = Some(Stopped::Cancelled(reason));
            let asked = tree.ask(polite);
            kill_at = Some(Instant::now() + if asked { grace } else { Duration::ZERO });
        }
        if kill_at.is_some_and(|at| Instant::now() >= at) {
            tree.kill();
            kill_at = None;
        }
        if observed.elapsed() >= OBSERVE {
            observed = Instant::now();
            tree.observe();
        }
    }
    report.survivors = tree.end(END_WAIT);
    report.duration = started.elapsed();
    if let Ok(Some(status)) = child.try_wait() {
        (report.exit_code, report.signal) = start::ending(status);
    }
    Ok(report)
}
