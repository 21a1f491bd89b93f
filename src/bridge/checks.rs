//! Checks that the bridge runs itself after a worker, so that nobody has to believe the worker's own count.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::agents::redaction;
use crate::config::ScopeCheck;
use crate::context::Context;
use crate::process::{self, Program};

/// What is kept of the output of a check that did not pass, in bytes.
const TAIL: usize = 2000;
/// Time to end politely.
const GRACE: Duration = Duration::from_secs(2);
/// More output than this ends a check, in bytes.
const MAX_OUTPUT: usize = 64 << 20;

/// What a check said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckResult {
    /// Name in `scope.checks`.
    pub name: String,
    /// What became of it.
    pub status: CheckStatus,
    /// Exit code, if it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The end of what it printed; only if it did not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tail: Option<String>,
}

/// What became of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// It exited with code 0.
    Passed,
    /// It exited with another code, or a signal ended it.
    Failed,
    /// It took longer than it may.
    TimedOut,
    /// It was not started: its program cannot be, or the turn was cancelled before.
    NotRun,
}

/// Runs checks one after the other in a folder. `cancelled` is asked all the time.
pub fn run(
    context: &Context,
    checks: &BTreeMap<String, ScopeCheck>,
    cwd: &Path,
    env: &BTreeMap<OsString, OsString>,
    cancelled: &mut dyn FnMut() -> Option<String>,
) -> Vec<CheckResult> {
    checks.iter().map(|(name, check)| one(context, name, check, cwd, env, cancelled)).collect()
}

fn one(
    context: &Context,
    name: &str,
    check: &ScopeCheck,
    cwd: &Path,
    env: &BTreeMap<OsString, OsString>,
    cancelled: &mut dyn FnMut() -> Option<String>,
) -> CheckResult {
    let result = |status, exit_code, duration: Duration, tail: Option<String>| CheckResult {
        name: name.to_owned(),
        status,
        exit_code,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        output_tail: tail,
    };
    let not_run = |why: String| result(CheckStatus::NotRun, None, Duration::ZERO, Some(why));
    if let Some(reason) = cancelled() {
        return not_run(reason);
    }
    let Some((program, args)) = check.argv.split_first() else {
        return not_run("it names no program".into());
    };
    let resolved = match process::resolve(Path::new(program), context) {
        Ok(resolved) => resolved,
        Err(error) => return not_run(error.to_string()),
    };
    let program = Program {
        program: resolved.program,
        args: resolved.prefix_args.into_iter().chain(args.iter().map(OsString::from)).collect(),
        cwd: cwd.to_path_buf(),
        env: env.clone(),
        stdin: Vec::new(),
    };
    let limit = Duration::from_secs(check.timeout_seconds);
    let began = Instant::now();
    match process::capture_while(&program, limit, GRACE, MAX_OUTPUT, cancelled) {
        Err(error) => not_run(error.to_string()),
        Ok(done) => {
            let report = &done.report;
            let passed = report.exit_code == Some(0) && report.stopped.is_none();
            let status = match &report.stopped {
                Some(process::Stopped::RunDeadline(_)) => CheckStatus::TimedOut,
                _ if passed => CheckStatus::Passed,
                _ => CheckStatus::Failed,
            };
            let tail = (!passed).then(|| {
                let said = format!("{}{}", done.stdout, report.stderr_tail);
                let from = said.ceil_char_boundary(said.len().saturating_sub(TAIL));
                redaction::redact(&process::strip_terminal(&said[from..]))
            });
            result(status, report.exit_code, began.elapsed(), tail)
        }
    }
}
