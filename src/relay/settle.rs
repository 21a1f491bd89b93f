//! The end of a record: from what a run's turns left, whoever looks. The driver does it at the run's end; for a run
//! whose driver is gone, the next one who asks.

use std::path::Path;

use super::coordinator;
use super::record::{Attempt, PatchFact, RunError, RunRecord};
use super::report;
use super::status::{MCP_ERROR, Status};
use crate::agents::{TOLD_AGENT, TOLD_EFFORT};
use crate::bridge::checks::CheckResult;
use crate::error::{Error, Result};
use crate::platform;
use crate::store::{BlobKind, RunRow, RunState, Store, TurnRow, TurnState};

/// Most bytes of an answer that a report is looked for in; it stands at the end.
const ANSWER: usize = 256 << 10;

/// Codes of turns that the look at the login ended before there was a worker.
const BEFORE_START: &[&str] = &["AGENT_LOGIN_REQUIRED", "AGENT_KEYRING_TIMEOUT", "AGENT_AUTH_TIMEOUT"];

/// Completes the record of a run that nobody drives and whose worker has ended; any other run stays as it is.
pub fn settle(store: &Store, row: RunRow) -> Result<RunRow> {
    if row.state == RunState::Finished {
        return Ok(row);
    }
    let Some(held) = platform::try_exclusive(&coordinator::run_lock(store, &row.id)?)? else {
        return Ok(row);
    };
    // It may have ended since it was read.
    let Some(row) = store.run(&row.id)? else { return Ok(row) };
    if row.state == RunState::Finished {
        return Ok(row);
    }
    let mut record = RunRecord::from_row(&row)
        .map_err(|why| Error::new(&MCP_ERROR, format!("the record of run {}: {why}", row.id)))?;
    // A start that the driver could not write down any more is found by its key.
    let latest = match store.turn_by_key(&super::turn_key(&record.run_id, record.attempts.len()))? {
        Some(turn) => Some(turn),
        None => record.last_turn().map(|id| store.turn(id)).transpose()?,
    };
    record.ended_at = Some(record.created_at);
    match latest {
        Some(turn) => {
            let turn = crate::bridge::reconcile_rows(store, vec![turn])?.pop();
            let Some(turn) = turn.filter(|turn| turn.state == TurnState::Finished) else { return Ok(row) };
            attempt_ended(store, &mut record, &turn)?;
            let took = turn.end.as_ref().map_or(0, |end| end.duration_ms);
            record.ended_at = Some(turn.started_at.saturating_add(i64::try_from(took).unwrap_or(i64::MAX)));
            record
                .notes
                .push("The host went away while the run was under way; nothing was tried again.".into());
        }
        None => record.fail(Status::Cancelled, "the host went away before the worker was started"),
    }
    store.update_run(&record.to_row())?;
    drop(held);
    Ok(store.run(&record.run_id)?.unwrap_or_else(|| record.to_row()))
}

/// Takes what a finished turn left into the record: status, report, changes, checks. The status is the turn's.
pub fn attempt_ended(store: &Store, record: &mut RunRecord, turn: &TurnRow) -> Result<()> {
    let Some(end) = &turn.end else { return Ok(()) };
    let answer = tail(store, &turn.id);
    let report = report::of_turn(&end.meta, &answer);
    let status = Status::of_turn(turn, report.is_some());
    record.changes = store.observation(&turn.id)?;
    record.patch = record
        .changes
        .as_ref()
        .and_then(|seen| seen.patch.as_ref())
        .map(|patch| PatchFact { bytes: patch.bytes, sha256: patch.sha256.clone() });
    let started = !end.code.as_deref().is_some_and(|code| BEFORE_START.contains(&code));
    let changed = match &record.changes {
        Some(seen) => seen.changed(),
        None => (!started).then_some(false),
    };
    let attempt = Attempt {
        turn_id: turn.id.clone(),
        status,
        detail: end.detail.clone(),
        duration_ms: end.duration_ms,
        started,
        changed,
    };
    match record.attempts.iter_mut().find(|known| known.turn_id == turn.id) {
        Some(known) => *known = attempt,
        None => record.attempts.push(attempt),
    }
    let asked = [
        ("effort", record.effort.is_some(), TOLD_EFFORT),
        ("agent", record.worker_agent.is_some(), TOLD_AGENT),
    ];
    for (name, asked, fact) in asked {
        let note = format!("`{name}` is on record, but the worker's program cannot be told of it.");
        if asked && end.meta[fact].is_null() && !record.notes.contains(&note) {
            record.notes.push(note);
        }
    }
    record.session_id = Some(turn.session_id.clone());
    if let Some(id) = &end.native_id {
        record.conversation_id = Some(id.clone());
    }
    record.checks =
        serde_json::from_value::<Vec<CheckResult>>(end.meta["checks"].clone()).unwrap_or_default();
    if record.started_at.is_none() {
        record.started_at = Some(turn.started_at);
    }
    (record.report, record.report_source) = match report {
        Some((report, source)) => (Some(report), Some(source)),
        None => (None, None),
    };
    record.status = status;
    record.error = status.doc().map(|doc| {
        let message = end.detail.clone().unwrap_or_else(|| doc.cause.to_owned());
        // A code of our own says more than the status it stands for.
        let own = end.code.as_deref().and_then(crate::bridge::catalogue::find).unwrap_or(doc);
        RunError { code: own.code.to_owned(), message, hint: own.remedy.to_owned(), retryable: own.retryable }
    });
    Ok(())
}

/// The end of an answer.
fn tail(store: &Store, turn: &str) -> String {
    let blobs = store.blobs();
    let size = blobs.size(turn, BlobKind::Answer).unwrap_or(0);
    let from = size.saturating_sub(ANSWER as u64);
    blobs.read_page(turn, BlobKind::Answer, from, ANSWER).map(|page| page.text).unwrap_or_default()
}

/// Writes a copy of a record into a folder for people and programs that look there. It is a convenience: what cannot
/// be written is in the store all the same.
pub fn export(folder: &Path, record: &RunRecord) {
    let runs = folder.join("runs");
    if platform::private::create_dir(&runs).is_err() {
        return;
    }
    let mut text = serde_json::to_string_pretty(record).unwrap_or_default();
    text.push('\n');
    let _ = platform::write_durable(&runs.join(format!("{}.json", record.run_id)), text.as_bytes(), 0o600);
}
