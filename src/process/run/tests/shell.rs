//! Tiny shell programs, run and looked at.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::*;
use crate::platform::processes;

/// Long enough for a loaded machine; no test waits for it unless it fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn sh(script: &str) -> Program {
    Program {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        cwd: std::env::temp_dir(),
        env: BTreeMap::from([(OsString::from("PATH"), std::env::var_os("PATH").unwrap())]),
        stdin: Vec::new(),
    }
}

pub(super) fn limits() -> Limits {
    Limits {
        start: None,
        idle: None,
        run: PATIENCE,
        grace: Duration::from_secs(5),
        drain: Duration::from_secs(5),
        max_line: 16 << 20,
        max_output: 1 << 30,
        stderr_tail: 4096,
    }
}

/// What a run showed.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) lines: Vec<String>,
    pub(super) started: Vec<u32>,
}

impl Seen {
    /// The number printed on the line `NAME=NUMBER`.
    pub(super) fn number(&self, name: &str) -> u32 {
        let prefix = format!("{name}=");
        self.lines.iter().find_map(|line| line.strip_prefix(&prefix)).expect(name).trim().parse().unwrap()
    }
}

/// Runs with a cancel once `cancel_when` says so.
pub(super) fn go(
    program: &Program,
    limits: &Limits,
    polite: PoliteStop,
    cancel_when: impl Fn(&[String]) -> bool,
) -> (Report, Seen) {
    let seen = std::cell::RefCell::new(Seen::default());
    let report = run(
        program,
        limits,
        polite,
        RunIo {
            on_started: &mut |pid| seen.borrow_mut().started.push(pid),
            on_line: &mut |line| {
                seen.borrow_mut().lines.push(String::from_utf8_lossy(line).into_owned());
                None
            },
            on_tick: &mut |_| cancel_when(&seen.borrow().lines).then(|| "asked".to_owned()),
            ..silent()
        },
    )
    .unwrap();
    (report, seen.into_inner())
}

pub(super) fn plain(script: &str) -> (Report, Seen) {
    go(&sh(script), &limits(), PoliteStop::TerminateGroup, |_| false)
}

pub(super) fn is_gone(pid: u32) -> bool {
    processes::find(pid).is_none_or(|process| process.zombie)
}
