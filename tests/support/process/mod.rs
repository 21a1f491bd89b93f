//! Running programs under a deadline, and finding processes that should be gone.

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod os;

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

pub use os::{Signal, kill_group, own_group, signal, signal_of};

/// Enough for anything that is not meant to wait, on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How often a condition without an event of its own is looked at.
const LOOK: Duration = Duration::from_millis(3);

/// How long output may still come after a program has ended.
const DRAIN: Duration = Duration::from_secs(2);

/// A program that ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal number, if a signal ended it.
    pub signal: Option<i32>,
    /// All of standard output.
    pub stdout: Vec<u8>,
    /// All of standard error.
    pub stderr: Vec<u8>,
    /// From start to end.
    pub elapsed: Duration,
    /// Something it started still held its output open two seconds after its end.
    pub output_held_open: bool,
}

impl Finished {
    /// Standard output as text; it must be UTF-8.
    pub fn stdout(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("standard output is UTF-8")
    }

    /// Standard error as text, as far as it is.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Standard output as exactly one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("standard output is not one JSON document: {error}\n{self}"))
    }

    /// Standard output as one JSON document a line; other lines are left out.
    pub fn json_lines(&self) -> Vec<Value> {
        self.stdout().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Panics, with everything the program said, unless it exited with this code.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "unexpected exit code\n{self}");
        self
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "exit code {:?}, signal {:?}, after {:?}", self.code, self.signal, self.elapsed)?;
        writeln!(f, "--- stdout\n{}", String::from_utf8_lossy(&self.stdout))?;
        write!(f, "--- stderr\n{}", self.stderr())
    }
}

/// Runs a program to its end with standard input empty and closed.
#[track_caller]
pub fn run(command: Command, deadline: Duration) -> Finished {
    start(command).finish(deadline)
}

/// Runs a program to its end with this standard input.
#[track_caller]
pub fn run_with_input(command: Command, input: &[u8], deadline: Duration) -> Finished {
    start_with_input(command, input).finish(deadline)
}

/// Starts a program with standard input empty and closed.
#[track_caller]
pub fn start(mut command: Command) -> Running {
    command.stdin(Stdio::null());
    Running::spawn(command)
}

/// Starts a program with this standard input, closed after it.
#[track_caller]
pub fn start_with_input(mut command: Command, input: &[u8]) -> Running {
    command.stdin(Stdio::piped());
    let mut running = Running::spawn(command);
    let mut stdin = running.child.stdin.take().expect("a piped standard input");
    let input = input.to_vec();
    // A thread of its own: the program may answer before it has read everything, or never read.
    thread::spawn(move || stdin.write_all(&input));
    running
}

/// A program that runs, in a process group of its own, with its output collected. Dropping it
/// kills the group.
pub struct Running {
    pub(super) child: Child,
    name: String,
    started: Instant,
    stdout: Collected,
    stderr: Collected,
    ended: Option<ExitStatus>,
}

impl Running {
    #[track_caller]
    fn spawn(mut command: Command) -> Self {
        own_group(&mut command);
        let name = command.get_program().to_string_lossy().into_owned();
        let started = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let stdout = Collected::from(child.stdout.take().expect("a piped standard output"));
        let stderr = Collected::from(child.stderr.take().expect("a piped standard error"));
        Self { child, name, started, stdout, stderr, ended: None }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the program alone, not to what it started.
    pub fn signal(&self, which: Signal) {
        signal(self.id(), which);
    }

    /// Standard output so far.
    pub fn stdout_so_far(&self) -> String {
        self.stdout.text()
    }

    /// Waits until standard output holds `text`.
    #[track_caller]
    pub fn wait_for_stdout(&self, text: &str, deadline: Duration) {
        if !self.stdout.wait_for(text, deadline) {
            panic!(
                "{} did not print {text:?} in {deadline:?}; it printed\n{}",
                self.name,
                self.stdout_so_far()
            );
        }
    }

    /// Waits until standard error holds `text`.
    #[track_caller]
    pub fn wait_for_stderr(&self, text: &str, deadline: Duration) {
        if !self.stderr.wait_for(text, deadline) {
            panic!(
                "{} did not say {text:?} in {deadline:?}; it said\n{}",
                self.name,
                String::from_utf8_lossy(&self.stderr.bytes())
            );
        }
    }

    /// Whether it has ended, without waiting.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child can be waited for");
        }
        self.ended.is_some()
    }

    /// Waits for its end. At the deadline the whole group is killed and the test fails.
    #[track_caller]
    pub fn finish(mut self, deadline: Duration) -> Finished {
        let end = Instant::now() + deadline;
        while !self.has_ended() {
            if Instant::now() > end {
                kill_group(&mut self.child);
                panic!(
                    "{} did not end in {deadline:?}\n--- stdout\n{}\n--- stderr\n{}",
                    self.name,
                    self.stdout.text(),
                    self.stderr.text(),
                );
            }
            thread::sleep(LOOK);
        }
        let elapsed = self.started.elapsed();
        let drain_end = Instant::now() + DRAIN;
        let drained = [&self.stdout, &self.stderr]
            .map(|stream| stream.wait_closed(drain_end.saturating_duration_since(Instant::now())));
        let status = self.ended.expect("it has ended");
        Finished {
            code: status.code(),
            signal: signal_of(status),
            stdout: self.stdout.bytes(),
            stderr: self.stderr.bytes(),
            elapsed,
            output_held_open: drained.contains(&false),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            kill_group(&mut self.child);
        }
    }
}

/// What a stream has brought so far.
#[derive(Clone, Default)]
pub struct Collected(Arc<Stream>);

#[derive(Default)]
struct Stream {
    so_far: Mutex<SoFar>,
    grown: Condvar,
}

#[derive(Default)]
struct SoFar {
    bytes: Vec<u8>,
    closed: bool,
}

impl Collected {
    /// Collects in a thread of its own until the stream ends.
    pub fn from(mut stream: impl Read + Send + 'static) -> Self {
        let collected = Self::default();
        let writer = collected.clone();
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                let count = stream.read(&mut buffer).unwrap_or(0);
                let mut so_far = writer.lock();
                so_far.bytes.extend_from_slice(&buffer[..count]);
                so_far.closed = count == 0;
                writer.0.grown.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        collected
    }

    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// The bytes as text, as far as they are.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Whether the stream holds `text` before the deadline.
    pub fn wait_for(&self, text: &str, deadline: Duration) -> bool {
        let text = text.as_bytes();
        self.wait(deadline, |so_far| so_far.bytes.windows(text.len().max(1)).any(|window| window == text))
    }

    /// Whether the stream ends before the deadline.
    pub fn wait_closed(&self, deadline: Duration) -> bool {
        self.wait(deadline, |so_far| so_far.closed)
    }

    fn lock(&self) -> MutexGuard<'_, SoFar> {
        self.0.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, deadline: Duration, holds: impl Fn(&SoFar) -> bool) -> bool {
        let waiting = |so_far: &mut SoFar| !so_far.closed && !holds(so_far);
        let waited = self.0.grown.wait_timeout_while(self.lock(), deadline, waiting);
        holds(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// Waits for a condition that has no event of its own. Panics at the deadline.
#[track_caller]
pub fn wait_until(what: &str, deadline: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + deadline;
    while !holds() {
        assert!(Instant::now() < end, "waited {deadline:?} in vain for {what}");
        thread::sleep(LOOK);
    }
}

/// A process of this machine.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Process id.
    pub id: u32,
    /// Its parent's.
    pub parent: Option<u32>,
    /// Its arguments, joined by spaces.
    pub command: String,
}

/// The processes, the caller left out, whose arguments, environment at start or working folder
/// hold `marker`. A dead process that only waits for its parent is not among them.
pub fn processes_with(marker: &str) -> Vec<Seen> {
    use sysinfo::{ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System, UpdateKind};
    let mut system = System::new().expect("the process table");
    system.refresh_processes_specifics(
        ProcessesToUpdate::All,
        true,
        ProcessRefreshKind::nothing()
            .with_cmd(UpdateKind::Always)
            .with_environ(UpdateKind::Always)
            .with_cwd(UpdateKind::Always)
            .without_tasks(),
    );
    let holds = |text: &std::ffi::OsStr| text.to_string_lossy().contains(marker);
    let mut found: Vec<Seen> = system
        .processes()
        .values()
        .filter(|process| process.pid().as_u32() != std::process::id())
        .filter(|process| !matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead))
        .filter(|process| {
            process.cmd().iter().any(|word| holds(word))
                || process.environ().iter().any(|variable| holds(variable))
                || process.cwd().is_some_and(|folder| holds(folder.as_os_str()))
        })
        .map(|process| Seen {
            id: process.pid().as_u32(),
            parent: process.parent().map(sysinfo::Pid::as_u32),
            command: process.cmd().join(std::ffi::OsStr::new(" ")).to_string_lossy().into_owned(),
        })
        .collect();
    found.sort_by_key(|process| process.id);
    found
}
