//! One run of one program, from start to the proven end of its whole tree.
//!
//! Two threads read the streams, one writes the prompt, one waits for the end; all talk to the calling
//! thread through one bounded channel, so a program that prints faster than it is read is slowed down
//! instead of filling memory.
//!
//! What happens when:
//! - The root ends by itself: its streams get `drain` to end too, then the rest of the tree is ended.
//! - We end it: polite request, `grace`, kill; once the root is gone the rest is ended at once.
//! - Both at the same time: the root's own end wins, and everything it printed is kept.

use std::io::{self, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::os::{self, Cut, Tree};
use super::start::{BELOW, Event, Started, ending, start};
use super::stream::{Lines, Tail};
use super::{Limits, PoliteStop, ProcessError, Program, Report, Stopped, resolve};

/// How often `on_tick` is called; the promise is 50 ms.
const TICK: Duration = Duration::from_millis(40);
/// How often the members of the tree are noted down.
pub(super) const OBSERVE: Duration = Duration::from_secs(1);
/// How long a killed root may take to go.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// How long the rest of the tree is chased.
pub(super) const END_WAIT: Duration = Duration::from_secs(5);
/// After the tree is gone its streams end at once, unless somebody outside holds them.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Longest line of standard error that is shown to the caller.
const MAX_ERROR_LINE: usize = 64 * 1024;

/// Where a run's output goes, and who is told. All callbacks run on the calling thread.
pub struct RunIo<'a> {
    /// Gets standard output, byte-exact, and is flushed at the end.
    pub stdout_file: Option<Box<dyn Write + 'a>>,
    /// Gets standard error, byte-exact, and is flushed at the end.
    pub stderr_file: Option<Box<dyn Write + 'a>>,
    /// Called once with the process id, after the start.
    pub on_started: &'a mut dyn FnMut(u32),
    /// Called with each line of standard output, without its line end. `Some` is a finding that cannot
    /// get better, and ends the run.
    pub on_line: &'a mut dyn FnMut(&[u8]) -> Option<String>,
    /// The same for standard error. Lines over 64 KiB are left out.
    pub on_error_line: &'a mut dyn FnMut(&[u8]) -> Option<String>,
    /// Called before the start (with zero) and then at least every 50 ms with the time since the start.
    /// `Some` is a reason to cancel; before the start it means that nothing is started.
    pub on_tick: &'a mut dyn FnMut(Duration) -> Option<String>,
}

/// A short program's output.
#[derive(Clone, Debug)]
pub struct Captured {
    /// How it ended.
    pub report: Report,
    /// Standard output as text, up to the limit.
    pub stdout: String,
}

/// Declares that this process exists for one run: every child it gets from now on is the run's, and
/// orphans are ended even if they carry no mark (Linux). Programs that are started beside the run's own, with a mark
/// [below](mark_below) its mark, keep their children to themselves. For a supervisor only, and early.
pub fn claim_all_children(turn_id: &str) {
    os::claim_all_children(turn_id);
}

/// A mark for a program that is started beside that of the run; [`end_leftovers`] of the run finds it too.
pub fn mark_below(turn_id: &str) -> String {
    format!("{turn_id}{BELOW}{}", uuid::Uuid::new_v4())
}

/// Ends what is left of a turn whose supervisor died: every process that carries its mark, and what is
/// below it. Returns the ids that could not be ended. Nothing to do on Windows, where the tree ended
/// with its supervisor.
pub fn end_leftovers(turn_id: &str) -> Vec<u32> {
    os::end_leftovers(turn_id, END_WAIT)
}

/// Runs a program to its end, and its whole tree with it.
pub fn run(
    program: &Program,
    limits: &Limits,
    polite: PoliteStop,
    io: RunIo<'_>,
) -> Result<Report, ProcessError> {
    if let Some(reason) = (io.on_tick)(Duration::ZERO) {
        return Ok(Report { stopped: Some(Stopped::Cancelled(reason)), ..Report::default() });
    }
    let run = Run::start(program, limits, polite, io)?;
    Ok(run.supervise())
}

/// Runs a short program (a version or login probe) with the same rules, and returns its output.
/// Standard output over `max_bytes` ends the run; what came before is kept.
pub fn capture(program: &Program, timeout: Duration, max_bytes: usize) -> Result<Captured, ProcessError> {
    capture_while(program, timeout, Duration::from_millis(500), max_bytes, &mut || None)
}

/// The same, asked every few milliseconds for a reason to end it: politely, and after `grace` for good.
pub fn capture_while(
    program: &Program,
    timeout: Duration,
    grace: Duration,
    max_bytes: usize,
    reason: &mut dyn FnMut() -> Option<String>,
) -> Result<Captured, ProcessError> {
    let limits = Limits {
        start: None,
        idle: None,
        run: timeout,
        grace,
        drain: Duration::from_millis(500),
        max_line: max_bytes,
        // Room for a chatty standard error.
        max_output: u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1 << 20),
        stderr_tail: 8 * 1024,
    };
    let mut stdout: Vec<u8> = Vec::new();
    let mut on_line = |line: &[u8]| {
        let room = max_bytes.saturating_sub(stdout.len());
        if line.len() > room {
            stdout.extend_from_slice(line.get(..room).unwrap_or_default());
            return Some(format!("more than {max_bytes} bytes of output"));
        }
        stdout.extend_from_slice(line);
        stdout.push(b'\n');
        None
    };
    let io = RunIo {
        stdout_file: None,
        stderr_file: None,
        on_started: &mut |_| {},
        on_line: &mut on_line,
        on_error_line: &mut |_| None,
        on_tick: &mut |_| reason(),
    };
    let report = run(program, &limits, PoliteStop::TerminateGroup, io)?;
    Ok(Captured { report, stdout: String::from_utf8_lossy(&stdout).into_owned() })
}

/// The same for output that is no text: `sink` gets standard output byte for byte as it comes. More than `max_bytes` on
/// both streams together end the run; what came before is handed on.
pub fn capture_into(
    program: &Program,
    timeout: Duration,
    grace: Duration,
    max_bytes: u64,
    sink: &mut dyn Write,
    reason: &mut dyn FnMut() -> Option<String>,
) -> Result<Report, ProcessError> {
    let limits = Limits {
        start: None,
        idle: None,
        run: timeout,
        grace,
        drain: Duration::from_millis(500),
        max_line: 0,
        max_output: max_bytes,
        stderr_tail: 8 * 1024,
    };
    let io = RunIo {
        stdout_file: Some(Box::new(sink)),
        stderr_file: None,
        on_started: &mut |_| {},
        on_line: &mut |_| None,
        on_error_line: &mut |_| None,
        on_tick: &mut |_| reason(),
    };
    run(program, &limits, PoliteStop::TerminateGroup, io)
}

#[derive(Clone, Copy)]
enum Phase {
    Running,
    /// Asked to end; killed at that time.
    Asked(Instant),
    /// Killed; given up at that time.
    Killed(Instant),
    /// The root has ended; its streams may take until then.
    Draining(Instant),
}

struct Run<'a> {
    limits: Limits,
    polite: PoliteStop,
    io: RunIo<'a>,
    child: Child,
    tree: Tree,
    cut: Cut,
    events: Receiver<Event>,
    open_streams: u32,
    lines: Lines,
    error_lines: Lines,
    tail: Tail,
    phase: Phase,
    started: Instant,
    /// When the last byte came; `None` before the first.
    last_byte: Option<Instant>,
    last_tick: Instant,
    last_observed: Instant,
    exited: Option<Instant>,
    report: Report,
}

impl<'a> Run<'a> {
    fn start(
        program: &Program,
        limits: &Limits,
        polite: PoliteStop,
        io: RunIo<'a>,
    ) -> Result<Self, ProcessError> {
        let failed = |source: io::Error| resolve::explain_spawn_error(program, source);
        let stdin = if program.stdin.is_empty() { Stdio::null() } else { Stdio::piped() };
        let mut started = start(program, stdin, polite, |_| {})?;
        (io.on_started)(started.child.id());
        let (events, open_streams) = started.listen().map_err(failed)?;
        if let Some(pipe) = started.child.stdin.take() {
            write_prompt(pipe, program.stdin.clone()).map_err(failed)?;
        }
        let Started { child, tree, cut, at } = started;
        Ok(Self {
            limits: limits.clone(),
            polite,
            io,
            child,
            tree,
            cut,
            events,
            open_streams,
            lines: Lines::new(limits.max_line),
            error_lines: Lines::new(MAX_ERROR_LINE),
            tail: Tail::new(limits.stderr_tail),
            phase: Phase::Running,
            started: at,
            last_byte: None,
            last_tick: at,
            last_observed: at,
            exited: None,
            report: Report::default(),
        })
    }

    fn supervise(mut self) -> Report {
        while !self.is_over() {
            match self.events.recv_timeout(self.next_wake()) {
                Ok(event) => self.handle(event),
                // Only when nothing is waiting to be read is there a silence.
                Err(RecvTimeoutError::Timeout) => self.check_silence(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tick();
            self.advance();
        }
        self.finish()
    }

    fn is_over(&self) -> bool {
        let now = Instant::now();
        match self.phase {
            Phase::Draining(until) => self.open_streams == 0 || now >= until,
            Phase::Killed(give_up) => now >= give_up,
            Phase::Running | Phase::Asked(_) => false,
        }
    }

    /// The channel is looked at until the next thing that must happen by the clock.
    fn next_wake(&self) -> Duration {
        let now = Instant::now();
        let mut wake = TICK.saturating_sub(now - self.last_tick);
        let mut at_latest = |at: Instant| wake = wake.min(at.saturating_duration_since(now));
        match self.phase {
            Phase::Running => {
                if let Some(at) = self.started.checked_add(self.limits.run) {
                    at_latest(at);
                }
                if let Some((at, _)) = self.silence_deadline() {
                    at_latest(at);
                }
            }
            Phase::Asked(at) | Phase::Killed(at) | Phase::Draining(at) => at_latest(at),
        }
        wake
    }

    fn silence_deadline(&self) -> Option<(Instant, Stopped)> {
        match self.last_byte {
            None => {
                let limit = self.limits.start?;
                Some((self.started.checked_add(limit)?, Stopped::StartDeadline(limit)))
            }
            Some(last) => {
                let limit = self.limits.idle?;
                Some((last.checked_add(limit)?, Stopped::IdleDeadline(limit)))
            }
        }
    }

    fn check_silence(&mut self) {
        if let Some((at, reason)) = self.silence_deadline()
            && Instant::now() >= at
        {
            self.stop(reason);
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if now - self.last_tick >= TICK {
            self.last_tick = now;
            if let Some(reason) = (self.io.on_tick)(now - self.started) {
                self.stop(Stopped::Cancelled(reason));
            }
        }
        if now - self.last_observed >= OBSERVE && matches!(self.phase, Phase::Running | Phase::Asked(_)) {
            self.last_observed = now;
            self.tree.observe();
        }
    }

    /// What happens by the clock alone.
    fn advance(&mut self) {
        let now = Instant::now();
        match self.phase {
            Phase::Running if now - self.started >= self.limits.run => {
                self.stop(Stopped::RunDeadline(self.limits.run));
            }
            Phase::Asked(kill_at) if now >= kill_at => {
                self.tree.kill();
                self.phase = Phase::Killed(now + KILL_WAIT);
            }
            _ => {}
        }
    }

    /// Begins to end the run, unless it has ended already: then the end it found itself counts, and what
    /// it printed is kept. Broken limits are facts about the output and are reported even so.
    fn stop(&mut self, reason: Stopped) {
        if self.report.stopped.is_some() {
            return;
        }
        let running = matches!(self.phase, Phase::Running) && !self.tree.root_has_ended();
        if running || matches!(reason, Stopped::LineTooLong(_) | Stopped::OutputTooLarge(_)) {
            self.report.stopped = Some(reason);
        }
        if running {
            let grace = if self.tree.ask(self.polite) { self.limits.grace } else { Duration::ZERO };
            self.phase = Phase::Asked(Instant::now() + grace);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Stdout(bytes) => self.stdout(&bytes),
            Event::Stderr(bytes) => self.stderr(&bytes),
            Event::StreamEnd => self.open_streams = self.open_streams.saturating_sub(1),
            Event::Exited => self.root_exited(),
        }
    }

    fn root_exited(&mut self) {
        let now = Instant::now();
        self.exited.get_or_insert(now);
        self.phase = Phase::Draining(now + self.limits.drain);
        if self.report.stopped.is_some() {
            self.end_tree();
        }
    }

    fn stdout(&mut self, bytes: &[u8]) {
        let bytes = self.accept(bytes);
        self.report.stdout_bytes += length(bytes);
        write_captured(&mut self.io.stdout_file, Some(bytes), &mut self.report.capture_error);
        if self.limits.max_line == 0 {
            return;
        }
        let mut fatal = None;
        let on_line = &mut self.io.on_line;
        let result = self.lines.feed(bytes, |line| {
            if let Some(reason) = on_line(line) {
                fatal.get_or_insert(reason);
            }
        });
        if let Some(reason) = fatal {
            self.stop(Stopped::Fatal(reason));
        }
        if result.is_err() {
            self.stop(Stopped::LineTooLong(self.limits.max_line));
        }
    }

    fn stderr(&mut self, bytes: &[u8]) {
        let bytes = self.accept(bytes);
        self.report.stderr_bytes += length(bytes);
        write_captured(&mut self.io.stderr_file, Some(bytes), &mut self.report.capture_error);
        self.tail.feed(bytes);
        let mut fatal = None;
        let on_error_line = &mut self.io.on_error_line;
        // A line that is too long is no fault here: the whole stream is kept, and its tail.
        let _ = self.error_lines.feed(bytes, |line| {
            if let Some(reason) = on_error_line(line) {
                fatal.get_or_insert(reason);
            }
        });
        if let Some(reason) = fatal {
            self.stop(Stopped::Fatal(reason));
        }
    }

    /// The part of `bytes` that is still within the limit. The rest is read, so that the program can
    /// end, and dropped.
    fn accept<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        self.last_byte = Some(Instant::now());
        let used = self.report.stdout_bytes + self.report.stderr_bytes;
        let room = usize::try_from(self.limits.max_output.saturating_sub(used)).unwrap_or(usize::MAX);
        if bytes.len() > room {
            self.stop(Stopped::OutputTooLarge(self.limits.max_output));
        }
        bytes.get(..room).unwrap_or(bytes)
    }

    fn finish(mut self) -> Report {
        // After an end of its own the rest of the tree had its chance to finish what it was printing.
        self.end_tree();
        let last = Instant::now() + LAST_WORDS;
        while self.open_streams > 0 {
            match self.events.recv_timeout(last.saturating_duration_since(Instant::now())) {
                Ok(event) => self.handle(event),
                Err(_) => break,
            }
            if Instant::now() >= last {
                break;
            }
        }
        self.report.drain_cut = self.open_streams > 0;
        for file in [&mut self.io.stdout_file, &mut self.io.stderr_file] {
            write_captured(file, None, &mut self.report.capture_error);
        }
        self.cut.cut();
        let on_line = &mut self.io.on_line;
        self.lines.finish(|line| {
            on_line(line);
        });
        self.reap();
        self.report.duration = self.exited.unwrap_or_else(Instant::now) - self.started;
        self.report.stderr_tail = self.tail.text();
        self.report
    }

    fn end_tree(&mut self) {
        if !self.tree.root_has_ended() {
            // Killed, and still there: nothing more can be done.
            self.report.survivors.push(self.child.id());
        }
        for survivor in self.tree.end(END_WAIT) {
            if !self.report.survivors.contains(&survivor) {
                self.report.survivors.push(survivor);
            }
        }
        self.report.survivors.retain(|pid| *pid != self.child.id() || !self.tree.root_has_ended());
    }

    fn reap(&mut self) {
        let Ok(Some(status)) = self.child.try_wait() else { return };
        (self.report.exit_code, self.report.signal) = ending(status);
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Writes, or at the end of the stream flushes. A file that cannot be written (a full disk) does not end
/// the run: the answer may still arrive.
fn write_captured(file: &mut Option<Box<dyn Write + '_>>, bytes: Option<&[u8]>, error: &mut Option<String>) {
    let Some(open) = file else { return };
    let done = match bytes {
        Some(bytes) => open.write_all(bytes),
        None => open.flush(),
    };
    if let Err(failure) = done {
        error.get_or_insert_with(|| failure.to_string());
        *file = None;
    }
}

/// A program that ends before it has read its prompt breaks the pipe. That is not an error of its own:
/// its exit code and standard error say why.
fn write_prompt(mut pipe: ChildStdin, prompt: Vec<u8>) -> io::Result<()> {
    thread::Builder::new().name("prompt".into()).spawn(move || {
        let _ = pipe.write_all(&prompt);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
