//! A small process beside a run, for the one case in which nobody else is left: whoever looked after the run was killed.
//!
//! It holds the reading end of a pipe. A word on it means that all is well; its end without one means that the other
//! side is gone, and then every process that carries the run's mark is ended, with all that is below it and, where
//! the system tells a process its children, all that was seen below it before. What left the tree, dropped the mark
//! and was never seen stays.
//!
//! Windows needs none of this: there a run's processes are in a job that ends with its last handle.

#[cfg(unix)]
pub use on_unix::{Guard, stand_guard};
#[cfg(windows)]
pub use on_windows::{Guard, stand_guard};

#[cfg(unix)]
mod on_unix {
    use std::io::{Read as _, Write as _};
    use std::path::Path;
    use std::process::{Child, ChildStdin, Command, Stdio};
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use crate::platform::processes::{self, Process};
    use crate::process::os;
    use crate::process::run::{END_WAIT, OBSERVE};
    use crate::process::start::{BELOW, TURN_VAR};
    use crate::process::{ProcessError, Program, resolve};

    /// What a worker gets to end by itself, which on Linux is told by the kernel that its parent is gone.
    const GRACE: Duration = Duration::from_millis(500);
    /// A guard that was told that all is well takes no longer to go.
    const GONE: Duration = Duration::from_secs(1);

    /// Watches over a run for as long as it lives.
    #[derive(Debug)]
    pub struct Guard {
        child: Child,
        line: Option<ChildStdin>,
    }

    impl Guard {
        /// Starts `program` as the guard of a run; what follows `arguments` is for [`stand_guard`].
        /// The processes of the run have to carry a mark [below](crate::process::mark_below) `run`.
        pub fn post(program: &Path, arguments: &[&str], run: &str) -> Result<Self, ProcessError> {
            let mut command = Command::new(program);
            command.args(arguments).args([run, &std::process::id().to_string()]).env_clear().current_dir("/");
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            // What the terminal sends to our group is not meant for it.
            os::own_session(&mut command);
            let mut child = command.spawn().map_err(|source| {
                let program = Program {
                    program: program.to_path_buf(),
                    args: Vec::new(),
                    cwd: "/".into(),
                    env: Default::default(),
                    stdin: Vec::new(),
                };
                resolve::explain_spawn_error(&program, source)
            })?;
            let line = child.stdin.take();
            Ok(Self { child, line })
        }

        /// The run has ended and left nothing.
        pub fn dismiss(self) {}
    }

    impl Drop for Guard {
        /// Whatever ends this process in an orderly way has ended the run before.
        fn drop(&mut self) {
            if let Some(mut line) = self.line.take() {
                let _ = line.write_all(b".");
            }
            // A guard that does not end is not waited for: it has heard, or the end of this process tells it.
            let end = Instant::now() + GONE;
            while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Waits on standard input. If its end comes without a word, ends what is left of the run and gives the ids of
    /// what could not be ended.
    pub fn stand_guard(run: &str, watched: u32) -> Vec<u32> {
        let mut known: Vec<Process> = Vec::new();
        let mut stdin = std::io::stdin().lock();
        let pause = Timespec::try_from(OBSERVE).ok();
        loop {
            let heard = poll(&mut [PollFd::new(&std::io::stdin(), PollFlags::IN)], pause.as_ref());
            match heard {
                Ok(0) => observe(run, watched, is_child_of(watched), &mut known),
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        if stdin.read(&mut [0; 1]).is_ok_and(|count| count > 0) {
            return Vec::new();
        }
        os::end_leftovers_of(run, &known, GRACE, END_WAIT)
    }

    /// Whether that process is the one that started us, and not another one that has its id now.
    fn is_child_of(watched: u32) -> impl Fn() -> bool {
        move || rustix::process::getppid().is_some_and(|parent| os::raw(parent) == watched)
    }

    /// Notes who belongs to the run, by parent links from those who carry its mark.
    fn observe(run: &str, watched: u32, is_there: impl Fn() -> bool, known: &mut Vec<Process>) {
        // The children of another process are no business of ours.
        if watched <= 1 || !is_there() {
            return;
        }
        let Some(table) = os::below(watched) else { return };
        if !is_there() {
            return;
        }
        let carries = |pid: u32| {
            let mark = processes::variable(pid, TURN_VAR);
            let mark = mark.as_ref().and_then(|mark| mark.to_str());
            mark.and_then(|mark| mark.strip_prefix(run)).is_some_and(|rest| rest.starts_with(BELOW))
        };
        let was_seen = |p: &Process| known.iter().any(|k| k.pid == p.pid && k.started == p.started);
        let seeds: Vec<u32> = table
            .iter()
            .filter(|p| was_seen(p) || (p.parent == watched && carries(p.pid)))
            .map(|p| p.pid)
            .collect();
        for member in processes::descendants(&table, &seeds) {
            if !known.iter().any(|k| k.pid == member.pid && k.started == member.started) {
                known.push(member);
            }
        }
    }

    #[cfg(all(test, target_os = "linux"))]
    mod tests {
        #![allow(clippy::unwrap_used, clippy::expect_used)]
        use super::*;
        use crate::process::mark_below;

        /// A process that dropped the mark and lost its parent is found, if it was seen before, and nobody else is.
        #[test]
        fn who_was_seen_below_the_run_is_ended_without_a_mark() {
            let run = uuid::Uuid::new_v4().to_string();
            let begin = |mark: &str| {
                let mut command = Command::new("sh");
                command.args(["-c", "env -i sleep 600 & wait"]).env(TURN_VAR, mark);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn().unwrap()
            };
            let (mut ours, mut another) = (begin(&mark_below(&run)), begin("another"));
            let sleeper = |shell: u32| loop {
                let found = processes::children(shell).unwrap_or_default();
                // Until it is `sleep` it has the shell's environment.
                let bare = |pid: &u32| processes::variable(*pid, TURN_VAR).is_none();
                if let Some(child) = found.into_iter().find(|pid| bare(pid)) {
                    break child;
                }
                std::thread::yield_now();
            };
            let (sleeps, stays) = (sleeper(ours.id()), sleeper(another.id()));
            let mut known = Vec::new();
            observe(&run, std::process::id(), || false, &mut known);
            assert!(known.is_empty(), "of another process nothing is noted");
            observe(&run, std::process::id(), || true, &mut known);
            let ids: Vec<u32> = known.iter().map(|process| process.pid).collect();
            assert_eq!(ids, [ours.id(), sleeps]);
            ours.kill().unwrap();
            ours.wait().unwrap();
            assert!(os::end_leftovers_of(&run, &known, Duration::ZERO, END_WAIT).is_empty());
            let is_there = |pid| processes::find(pid).is_some_and(|process| !process.zombie);
            assert!(!is_there(sleeps) && is_there(stays));
            another.kill().unwrap();
            another.wait().unwrap();
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(stays.cast_signed()).unwrap(),
                rustix::process::Signal::KILL,
            )
            .unwrap();
        }
    }
}

#[cfg(windows)]
mod on_windows {
    use std::path::Path;

    use crate::process::ProcessError;

    /// Nothing has to be watched over.
    #[derive(Debug)]
    pub struct Guard;

    impl Guard {
        /// Starts nothing.
        pub fn post(_program: &Path, _arguments: &[&str], _run: &str) -> Result<Self, ProcessError> {
            Ok(Self)
        }

        /// The run has ended and left nothing.
        pub fn dismiss(self) {}
    }

    /// Nothing is left.
    pub fn stand_guard(_run: &str, _watched: u32) -> Vec<u32> {
        Vec::new()
    }
}
