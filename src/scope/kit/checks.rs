//! `run_check`: the commands that a worker may run, by name. No shell, no arguments of its own, and nothing outlives
//! the call.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{fenced, schema};
use crate::context::Context;
use crate::process::{self, Limits, PoliteStop, Program, RunIo, Stopped};
use crate::scope::{Answer, Call, ScopeError, Tool, ToolSpec};

/// Bytes of output that are shown: a fifth of the beginning and, as it matters more, the end.
const SHOWN: usize = 20 << 10;
/// More output than this ends a check.
const MAX_OUTPUT: u64 = 256 << 20;
/// A line is held in memory until it ends; a longer one ends the check.
const MAX_LINE: usize = 8 << 20;
const MAX_CHECKS: usize = 50;

/// A command that may be run.
#[derive(Clone, Debug)]
pub struct Check {
    name: String,
    program: Program,
    /// Its own time limit.
    limit: Option<Duration>,
    /// Bytes of output that are shown.
    shown: usize,
}

impl Check {
    /// From `NAME=["program","argument",…]`. The program is looked for now, and runs in `folder`.
    pub fn parse(
        text: &str,
        folder: &Path,
        context: &Context,
        env: &BTreeMap<OsString, OsString>,
    ) -> Result<Self, ScopeError> {
        let wrong = |why: String| ScopeError::Check { given: text.to_owned(), why };
        let Some((name, argv)) = text.split_once('=') else {
            return Err(wrong("there is no `=`".into()));
        };
        let argv: Vec<String> = serde_json::from_str(argv)
            .map_err(|_| wrong("what follows the `=` is no JSON array of strings".into()))?;
        Self::new(name, &argv, folder, context, env)
    }

    /// A command of this name. The program is looked for now, and runs in `folder`.
    pub fn new(
        name: &str,
        argv: &[String],
        folder: &Path,
        context: &Context,
        env: &BTreeMap<OsString, OsString>,
    ) -> Result<Self, ScopeError> {
        let wrong = |why: &str| ScopeError::Check { given: name.to_owned(), why: why.to_owned() };
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        if name.is_empty() || name.len() > 50 || !name.chars().all(fits) {
            return Err(wrong("a name has 1 to 50 of a-z, A-Z, 0-9, `_`, `-`, `.` and `:`"));
        }
        let Some((program, args)) = argv.split_first().filter(|(program, _)| !program.is_empty()) else {
            return Err(wrong("the array is empty"));
        };
        let inside = Context { cwd: folder.to_path_buf(), ..context.clone() };
        let resolved =
            process::resolve(Path::new(program), &inside).map_err(|error| wrong(&error.to_string()))?;
        let args = resolved.prefix_args.into_iter().chain(args.iter().map(OsString::from)).collect();
        let program = Program {
            program: resolved.program,
            args,
            cwd: folder.to_path_buf(),
            env: env.clone(),
            stdin: Vec::new(),
        };
        Ok(Self { name: name.to_owned(), program, limit: None, shown: SHOWN })
    }

    /// The same with a time limit and a bound on what is shown of its own.
    #[must_use]
    pub fn limited(self, limit: Duration, shown: usize) -> Self {
        Self { limit: Some(limit), shown, ..self }
    }
}

/// The tool.
pub struct RunCheck {
    checks: Vec<Check>,
    timeout: Duration,
    /// Builds and tests get in each other's way.
    one_at_a_time: Mutex<()>,
}

impl RunCheck {
    /// With these checks, each of which may take so long.
    pub fn new(checks: Vec<Check>, timeout: Duration) -> Result<Self, ScopeError> {
        for (n, check) in checks.iter().enumerate() {
            if n >= MAX_CHECKS || checks[..n].iter().any(|other| other.name == check.name) {
                let why = format!("names are unique, and there are at most {MAX_CHECKS}");
                return Err(ScopeError::Check { given: check.name.clone(), why });
            }
        }
        Ok(Self { checks, timeout, one_at_a_time: Mutex::new(()) })
    }
}

impl Tool for RunCheck {
    fn name(&self) -> &str {
        "run_check"
    }

    fn spec(&self) -> ToolSpec {
        let names: Vec<&str> = self.checks.iter().map(|check| check.name.as_str()).collect();
        ToolSpec {
            description: format!(
                "Run one of the checks of this task and see how it ended and what it printed. The checks: {}.",
                names.join(", ")
            ),
            schema: schema(json!({ "name": { "type": "string", "enum": names } }), &["name"]),
            read_only: false,
        }
    }

    fn call(&self, call: &Call<'_>) -> Answer {
        let name = call.arguments.get("name").and_then(Value::as_str).unwrap_or_default();
        let Some(check) = self.checks.iter().find(|check| check.name == name) else {
            return Answer::error("There is no such check.");
        };
        let _alone = match self.one_at_a_time.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Answer::error("Another check is running. Wait for its result, then call again.");
            }
        };
        let timeout =
            check.limit.unwrap_or(self.timeout).min(call.deadline.saturating_duration_since(Instant::now()));
        run(check, timeout, call)
    }
}

fn run(check: &Check, timeout: Duration, call: &Call<'_>) -> Answer {
    let limits = Limits {
        start: None,
        idle: None,
        run: timeout,
        grace: Duration::from_millis(500),
        drain: Duration::from_millis(500),
        max_line: MAX_LINE,
        max_output: MAX_OUTPUT,
        stderr_tail: 1024,
    };
    let mut kept = Kept::of(check.shown);
    let both = std::cell::RefCell::new(&mut kept);
    let io = RunIo {
        stdout_file: Some(Box::new(Shared(&both))),
        stderr_file: Some(Box::new(Shared(&both))),
        on_started: &mut |_| {},
        on_line: &mut |_| None,
        on_error_line: &mut |_| None,
        on_tick: &mut |_| call.cancel.reason().map(str::to_owned),
    };
    let report = match process::run(&check.program, &limits, PoliteStop::TerminateGroup, io) {
        Ok(report) => report,
        Err(error) => {
            return Answer::error(format!("The check {} could not be started: {error}", check.name));
        }
    };
    let end = match (&report.stopped, report.exit_code, report.signal) {
        (Some(Stopped::Cancelled(why)), ..) => format!("was cancelled: {why}"),
        (Some(Stopped::RunDeadline(limit)), ..) => format!("was ended after {} s", limit.as_secs()),
        (Some(Stopped::OutputTooLarge(limit)), ..) => {
            format!("was ended after {} MiB of output", limit >> 20)
        }
        (Some(Stopped::LineTooLong(limit)), ..) => format!("was ended at a line over {} MiB", limit >> 20),
        (Some(_), ..) => "was ended".to_owned(),
        (None, Some(0), _) => "passed (exit code 0)".to_owned(),
        (None, Some(code), _) => format!("failed (exit code {code})"),
        (None, None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None, None) => "ended in an unknown way".to_owned(),
    };
    let mut text = format!("{} {end}, after {:.1} s.", check.name, report.duration.as_secs_f64());
    if !report.survivors.is_empty() {
        text.push_str(" Some of its processes could not be ended.");
    }
    let output = kept.text();
    if !output.trim().is_empty() {
        text.push('\n');
        text.push_str(&fenced("output", &output));
    }
    // A check that fails has done its work: only one that did not end by itself has not.
    Answer { text, is_error: report.stopped.is_some() }
}

/// The beginning and the end of what was printed.
struct Kept {
    head_size: usize,
    tail_size: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
    dropped: usize,
}

impl Kept {
    fn of(bytes: usize) -> Self {
        let head_size = bytes / 5;
        Self { head_size, tail_size: bytes - head_size, head: Vec::new(), tail: Vec::new(), dropped: 0 }
    }

    fn take(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_size - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > 2 * self.tail_size {
            let over = self.tail.len() - self.tail_size;
            self.tail.drain(..over);
            self.dropped += over;
        }
    }

    fn text(&self) -> String {
        let over = self.tail.len().saturating_sub(self.tail_size);
        let (dropped, tail) = (self.dropped + over, &self.tail[over..]);
        if dropped == 0 {
            return process::readable(&[&self.head[..], tail].concat());
        }
        let (head, tail) = (process::readable(&self.head), process::readable(tail));
        format!("{head}\n[… {dropped} bytes left out …]\n{tail}")
    }
}

struct Shared<'a, 'b>(&'a std::cell::RefCell<&'b mut Kept>);

impl std::io::Write for Shared<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().take(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_of_an_output_are_kept() {
        let mut kept = Kept::of(SHOWN);
        for n in 0..200_000 {
            kept.take(format!("line {n}\n").as_bytes());
        }
        let text = kept.text();
        assert!(text.starts_with("line 0\n") && text.ends_with("line 199999\n"));
        assert!(text.contains("bytes left out") && text.len() < SHOWN + 100, "{}", text.len());
        let mut short = Kept::of(SHOWN);
        short.take("é".repeat(SHOWN / 2).as_bytes());
        assert_eq!(short.text(), "é".repeat(SHOWN / 2));
    }
}
