//! A program that is talked with line by line: an MCP server as its host sees it.
//!
//! Synchronous for the caller, who says until when it is worth waiting; the end of a dialogue is the end of
//! the program's whole tree.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::os::{self, Cut, Tree};
use super::run::{END_WAIT, OBSERVE};
use super::start::{Event, Started, ending, start};
use super::stream::{Lines, Tail};
use super::{PoliteStop, ProcessError, Program, resolve};

/// How long the streams of a program that ended may stay open.
const DRAIN: Duration = Duration::from_millis(500);

/// Bounds of a dialogue.
#[derive(Clone, Copy, Debug)]
pub struct DialogueLimits {
    /// Longest line of standard output.
    pub max_line: usize,
    /// Most bytes on standard output.
    pub max_output: u64,
    /// Size of the standard error tail that is kept.
    pub stderr_tail: usize,
}

/// What came next from the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A line of standard output, without its line end.
    Line(Vec<u8>),
    /// It ended, and everything it printed was heard.
    Ended,
    /// Nothing until then.
    Nothing,
    /// A line or the whole output is over the limit.
    TooMuch,
}

/// How a dialogue ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Farewell {
    /// Exit code, if the program exited.
    pub exit_code: Option<i64>,
    /// Signal number, if a signal ended it.
    pub signal: Option<i32>,
    /// Whether it had to be killed by us.
    pub killed: bool,
    /// The last part of standard error, readable text, terminal codes removed.
    pub stderr_tail: String,
    /// Bytes on both streams.
    pub bytes: u64,
    /// Process ids of the tree that could not be proven gone. Normally empty.
    pub survivors: Vec<u32>,
}

/// A running program and both ends of the talk.
pub struct Dialogue {
    child: Child,
    tree: Tree,
    cut: Cut,
    events: Receiver<Event>,
    to_program: Option<Sender<Vec<u8>>>,
    lines: Lines,
    waiting: VecDeque<Vec<u8>>,
    tail: Tail,
    open_streams: u32,
    exited: Option<Instant>,
    stdout_bytes: u64,
    bytes: u64,
    too_much: bool,
    limits: DialogueLimits,
    last_observed: Instant,
    network_is_off: bool,
}

/// Says lines to a program. Its standard input stays open as long as one of these is there.
#[derive(Clone, Debug)]
pub struct Sayer(Option<Sender<Vec<u8>>>);

impl Sayer {
    /// Sends a line, as [`Dialogue::say`] does.
    pub fn say(&self, line: &str) {
        if let Some(to_program) = &self.0 {
            let _ = to_program.send(format!("{line}\n").into_bytes());
        }
    }
}

impl Dialogue {
    /// Starts a program; its `stdin` is not looked at. With `without_network` it gets a network of its own with
    /// nothing in it, where the system lets us (Linux); [`Self::network_is_off`] says whether it did.
    pub fn start(
        program: &Program,
        limits: DialogueLimits,
        without_network: bool,
    ) -> Result<Self, ProcessError> {
        let failed = |source: io::Error| resolve::explain_spawn_error(program, source);
        let mut started = start(program, Stdio::piped(), PoliteStop::TerminateGroup, |command| {
            if without_network {
                os::leave_network(command);
            }
        })?;
        let network_is_off = without_network && os::has_other_network(started.child.id());
        let (events, open_streams) = started.listen().map_err(failed)?;
        let to_program = started.child.stdin.take().map(speak).transpose().map_err(failed)?;
        let Started { child, tree, cut, at } = started;
        Ok(Self {
            child,
            tree,
            cut,
            events,
            to_program,
            lines: Lines::new(limits.max_line),
            waiting: VecDeque::new(),
            tail: Tail::new(limits.stderr_tail),
            open_streams,
            exited: None,
            stdout_bytes: 0,
            bytes: 0,
            too_much: false,
            limits,
            last_observed: at,
            network_is_off,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it was proven to have no network.
    pub fn network_is_off(&self) -> bool {
        self.network_is_off
    }

    /// Whether it printed anything at all.
    pub fn has_spoken(&self) -> bool {
        self.bytes > 0
    }

    /// Sends a line. That the program has gone is heard, not said here.
    pub fn say(&self, line: &str) {
        self.sayer().say(line);
    }

    /// Lets others say something too, on any thread.
    pub fn sayer(&self) -> Sayer {
        Sayer(self.to_program.clone())
    }

    /// Waits for the next thing from the program.
    pub fn hear(&mut self, until: Instant) -> Heard {
        loop {
            if let Some(line) = self.waiting.pop_front() {
                return Heard::Line(line);
            }
            if self.too_much {
                return Heard::TooMuch;
            }
            if let Some(exited) = self.exited
                && (self.open_streams == 0 || exited.elapsed() >= DRAIN)
            {
                let waiting = &mut self.waiting;
                self.lines.finish(|line| waiting.push_back(line.to_vec()));
                match self.waiting.pop_front() {
                    Some(line) => return Heard::Line(line),
                    None => return Heard::Ended,
                }
            }
            let now = Instant::now();
            if now >= until {
                return Heard::Nothing;
            }
            let mut wake = until.saturating_duration_since(now).min(OBSERVE);
            if self.exited.is_some() {
                wake = wake.min(Duration::from_millis(20));
            }
            match self.events.recv_timeout(wake) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.open_streams = 0;
                    self.exited.get_or_insert_with(Instant::now);
                }
            }
            if self.last_observed.elapsed() >= OBSERVE && self.exited.is_none() {
                self.last_observed = Instant::now();
                self.tree.observe();
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Stdout(bytes) => {
                let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                self.bytes = self.bytes.saturating_add(length);
                self.stdout_bytes = self.stdout_bytes.saturating_add(length);
                if self.stdout_bytes > self.limits.max_output {
                    self.too_much = true;
                    return;
                }
                let waiting = &mut self.waiting;
                let fed = self.lines.feed(&bytes, |line| waiting.push_back(line.to_vec()));
                self.too_much |= fed.is_err();
            }
            Event::Stderr(bytes) => {
                self.bytes = self.bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                self.tail.feed(&bytes);
            }
            Event::StreamEnd => self.open_streams = self.open_streams.saturating_sub(1),
            Event::Exited => {
                self.exited.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Closes the program's standard input, gives it that long to end by itself, then ends its whole tree.
    pub fn end(mut self, patience: Duration) -> Farewell {
        drop(self.to_program.take());
        let until = Instant::now() + patience;
        let mut killed = false;
        loop {
            match self.hear(until) {
                Heard::Line(_) => {}
                Heard::Ended => break,
                Heard::Nothing | Heard::TooMuch => {
                    killed = !self.tree.root_has_ended();
                    self.tree.kill();
                    break;
                }
            }
        }
        // What it said last, and the end of a killed root.
        let until = Instant::now() + END_WAIT;
        while (self.exited.is_none() || self.open_streams > 0) && Instant::now() < until {
            match self.events.recv_timeout(Duration::from_millis(20)) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.exited.is_some_and(|exited| exited.elapsed() >= DRAIN) {
                break;
            }
        }
        let mut survivors = self.tree.end(END_WAIT);
        self.cut.cut();
        if !self.tree.root_has_ended() && !survivors.contains(&self.child.id()) {
            survivors.push(self.child.id());
        }
        let mut farewell = Farewell { killed, bytes: self.bytes, survivors, ..Farewell::default() };
        if let Ok(Some(status)) = self.child.try_wait() {
            (farewell.exit_code, farewell.signal) = ending(status);
        }
        farewell.stderr_tail = self.tail.text();
        farewell
    }
}

/// Starts the thread that says to the program what it is given: one that does not read must not hold us up.
fn speak(mut pipe: ChildStdin) -> io::Result<Sender<Vec<u8>>> {
    let (to_program, texts) = channel::<Vec<u8>>();
    thread::Builder::new().name("stdin".into()).spawn(move || {
        for text in texts {
            if pipe.write_all(&text).and_then(|()| pipe.flush()).is_err() {
                return;
            }
        }
    })?;
    Ok(to_program)
}
