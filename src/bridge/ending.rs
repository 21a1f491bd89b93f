//! The end of a run: what became of it, free of secrets, written down once.

use serde_json::{Value, json};

use super::errors;
use super::preflight::Refused;
use super::run_spec::{RunEvent, RunSpec, Unrecorded};
use super::usage::{self, TurnUsage};
use crate::agents::endpoint::TOKEN_VARIABLE;
use crate::agents::{self, Failure, Outcome, Refusal, Verdict, redaction};
use crate::error::Error;
use crate::process::{Program, Report, Stopped};
use crate::store::{NativeSession, Store, StoreError, TurnEnd};

/// Answer bytes sent back when the store cannot take them.
const UNRECORDED_ANSWER: usize = 256 << 10;

/// What a run came to, before it is written down.
pub(super) struct Ended {
    pub(super) verdict: Verdict,
    pub(super) code: Option<&'static str>,
    pub(super) report: Report,
}

impl Ended {
    /// The turn is recorded, but its worker was not started.
    pub(super) fn before_start(error: &Error) -> Self {
        let mut verdict = no_verdict(error.message());
        verdict.meta = json!({ "hint": error.hint() });
        Self { verdict, code: Some(error.code()), report: Report::default() }
    }

    /// The turn is recorded, but its worker was not started since its login does not work.
    pub(super) fn refused_login(refused: &Refused) -> Self {
        let mut verdict = no_verdict(&refused.detail);
        let code = match refused.failure {
            Failure::LoginRequired => {
                verdict.outcome = Outcome::LoginRequired;
                &errors::AGENT_LOGIN_REQUIRED
            }
            Failure::KeyringTimeout => &errors::AGENT_KEYRING_TIMEOUT,
            _ => &errors::AGENT_AUTH_TIMEOUT,
        };
        verdict.meta = json!({ "hint": refused.hint, Failure::KEY: refused.failure.as_str() });
        Self { verdict, code: Some(code.code), report: Report::default() }
    }

    /// The turn is recorded, but it was cancelled before its worker was started.
    pub(super) fn cancelled(reason: String) -> Self {
        let report = Report { stopped: Some(Stopped::Cancelled(reason)), ..Report::default() };
        let (verdict, code) = judge(no_verdict("cancelled before the start"), &report);
        Self { verdict, code, report }
    }
}

/// Values in the worker's environment whose names say that they are secret.
pub(super) fn secret_values(program: &Program) -> Vec<String> {
    let marks = ["KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE"];
    program
        .env
        .iter()
        .filter(|(name, _)| {
            let name = name.to_string_lossy().to_ascii_uppercase();
            name == TOKEN_VARIABLE || name.ends_with("_PAT") || marks.iter().any(|mark| name.contains(mark))
        })
        .map(|(_, value)| value.to_string_lossy().into_owned())
        .filter(|value| value.len() >= 8)
        .collect()
}

pub(super) fn no_verdict(detail: &str) -> Verdict {
    Verdict {
        outcome: Outcome::WorkerError,
        answer: String::new(),
        detail: Some(detail.to_owned()),
        native_id: None,
        usage: agents::UsageReport::default(),
        cli_version: None,
        meta: json!({}),
    }
}

/// Our own ends outrank what the streams say, but keep the text and the ids they proved.
pub(super) fn judge(mut verdict: Verdict, report: &Report) -> (Verdict, Option<&'static str>) {
    let refusal = match Refusal::of(&verdict) {
        Some(Refusal::Foreign) => Some(errors::WORKER_TOOLS_FOREIGN.code),
        Some(Refusal::Missing) => Some(errors::WORKER_TOOLS_MISSING.code),
        None => None,
    };
    let lost = verdict.meta["resumeUnknown"] == json!(true);
    let seen = refusal.or(lost.then_some(errors::NATIVE_SESSION_LOST.code));
    let Some(stopped) = &report.stopped else { return (verdict, seen) };
    let (outcome, code, detail) = match stopped {
        Stopped::Cancelled(reason) => {
            (Outcome::Cancelled, &errors::TURN_CANCELLED, format!("cancelled: {reason}"))
        }
        Stopped::StartDeadline(limit) => (
            Outcome::Timeout,
            &errors::TURN_START_DEADLINE,
            format!("no output at all within the start deadline of {} s", limit.as_secs_f64()),
        ),
        Stopped::IdleDeadline(limit) => (
            Outcome::Timeout,
            &errors::TURN_IDLE_DEADLINE,
            format!("silent for longer than the idle deadline of {} s", limit.as_secs_f64()),
        ),
        Stopped::RunDeadline(limit) => (
            Outcome::Timeout,
            &errors::TURN_RUN_DEADLINE,
            format!("not finished within the run deadline of {} s", limit.as_secs_f64()),
        ),
        Stopped::LineTooLong(limit) => (
            Outcome::WorkerError,
            &errors::OUTPUT_LINE_TOO_LONG,
            format!("one line of output was longer than {limit} bytes"),
        ),
        Stopped::OutputTooLarge(limit) => {
            (Outcome::WorkerError, &errors::OUTPUT_TOO_LARGE, format!("more output than {limit} bytes"))
        }
        // The parser itself saw what ended the run, so its verdict stands.
        Stopped::Fatal(_) => return (verdict, seen),
    };
    verdict.outcome = outcome;
    verdict.detail = Some(detail);
    (verdict, Some(code.code))
}

/// Known secret values and secret shapes leave no trace in what is recorded about a turn. The
/// answer keeps its text but for the very values that we handed to the worker.
pub(super) fn clean(mut verdict: Verdict, secrets: &[&str]) -> Verdict {
    verdict.answer = redaction::mask_values(&verdict.answer, secrets);
    verdict.detail = verdict.detail.map(|detail| redaction::redact_values(&detail, secrets));
    mask_texts(&mut verdict.meta, secrets);
    verdict
}

fn mask_texts(value: &mut Value, secrets: &[&str]) {
    match value {
        Value::String(text) => *text = redaction::mask_values(text, secrets),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_texts(item, secrets)),
        Value::Object(map) => map.values_mut().for_each(|item| mask_texts(item, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A database that somebody holds for long is no reason to lose a result: each try waits ten seconds itself.
pub(super) fn patiently<T>(write: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    for _ in 0..5 {
        match write() {
            Err(StoreError::Busy { .. }) => {}
            other => return other,
        }
    }
    write()
}

/// Writes the end down and returns the last event.
pub(super) fn record(spec: &RunSpec, store: &Store, ended: Ended) -> RunEvent {
    let Ended { verdict, code, report } = ended;
    let turn = &spec.turn;
    let resumed = turn.resume.is_some() && turn.resume == verdict.native_id;
    let used = usage::turn_usage(&verdict.usage, resumed, spec.totals);
    let mut meta = verdict.meta;
    for (name, value) in &spec.launch.facts {
        if meta[name].is_null() {
            meta[name] = value.clone();
        }
    }
    if let Some(version) = &verdict.cli_version {
        meta["cliVersion"] = json!(version);
    }
    if !report.survivors.is_empty() {
        meta["survivingProcesses"] = json!(report.survivors);
    }
    if report.drain_cut {
        meta["outputCutAfterExit"] = json!(true);
    }
    let answer_written = store.blobs().write_answer(&turn.id, &verdict.answer);
    let failed_capture = report.capture_error.clone();
    let end = TurnEnd {
        outcome: verdict.outcome,
        detail: verdict.detail,
        code: code.map(str::to_owned),
        exit_code: report.exit_code,
        signal: report.signal,
        duration_ms: u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
        answer_bytes: verdict.answer.len() as u64,
        stderr_bytes: report.stderr_bytes,
        native_id: verdict.native_id.clone(),
        tokens: used.tokens,
        cost_usd: used.cost_usd,
        meta,
    };
    let kept =
        spec.scope.is_none() || agents::agent(turn.agent).is_none_or(|agent| agent.resumes_beside_endpoint());
    let native = verdict.native_id.filter(|_| kept).map(|id| native_session(spec, id, &used));
    let written = match answer_written {
        Ok(_) => patiently(|| store.finish_turn(&turn.id, &end, native.as_ref())),
        Err(error) => Err(error),
    };
    if code == Some(errors::NATIVE_SESSION_LOST.code)
        && let Some(lost) = &turn.resume
    {
        let _ = store.forget_native_session(turn.agent, lost);
    }
    let (revision, unrecorded) = match written {
        Ok(revision) => (Some(revision), None),
        Err(error) => {
            let reason = failed_capture.unwrap_or_else(|| error.to_string());
            // Try to leave at least the outcome behind; the answer goes to whoever waits.
            let bare = TurnEnd {
                answer_bytes: 0,
                code: end.code.clone().or_else(|| Some(errors::RECORD_NOT_WRITTEN.code.to_owned())),
                detail: Some(
                    end.detail
                        .iter()
                        .fold(format!("the answer could not be kept: {reason}"), |lost, detail| {
                            format!("{detail}; {lost}")
                        }),
                ),
                ..end.clone()
            };
            let revision = store.finish_turn(&turn.id, &bare, native.as_ref()).ok();
            let cut = verdict.answer.floor_char_boundary(UNRECORDED_ANSWER);
            (revision, Some(Unrecorded { reason, answer: verdict.answer[..cut].to_owned() }))
        }
    };
    RunEvent::Finished { end: Box::new(end), revision, unrecorded }
}

/// The policy is that of the run which returned the id, and of no other.
fn native_session(spec: &RunSpec, id: String, used: &TurnUsage) -> NativeSession {
    let turn = &spec.turn;
    NativeSession {
        id,
        agent: turn.agent,
        session_id: turn.session_id.clone(),
        cwd: turn.cwd.clone(),
        sandbox: turn.sandbox,
        model: turn.model.clone(),
        // The store sets the index of the turn that is being finished.
        last_seen_turn: 0,
        token_total: used.token_total,
        cost_total: used.cost_total,
    }
}
