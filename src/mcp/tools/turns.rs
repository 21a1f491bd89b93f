//! Tools that start, wait for, cancel and show turns.

use std::time::Duration;

use rmcp::model::CallToolResult;
use serde_json::Value;

use super::arguments::{
    CancelTurn, ContinueSession, DelegateTask, GetTurnOutput, Handoff, ListTurns, OutputField,
    SharedArguments, WaitTurn,
};
use super::outputs::{Cancelled, OutputPage, TurnList, TurnSummary};
use super::{Call, ProgressReporter, checked_id, invalid, questions, within};
use crate::agents::{Outcome, redaction};
use crate::bridge::questions::QuestionView;
use crate::bridge::view::{TurnStatus, turn_view};
use crate::bridge::{Bridge, TurnRequest, TurnView, WaitedTurn};
use crate::config::OnDisconnect;
use crate::error::Result;
use crate::mcp::reply::{PAGE_BYTES, PREVIEW_BYTES, error_reply, escaped_len, json_reply, reply};
use crate::store::{BlobKind, Listed, Skipped, TurnFilter};

/// What an agent is asked when a handoff names no task.
const DEFAULT_HANDOFF: &str = "Another agent worked on this before you. Check its claims against the files in the working \
    folder, say what is right and what is not, then continue towards the original objective.";
/// How long `cancel_turn` waits for the tree to be gone.
const CANCEL_WAIT: Duration = Duration::from_secs(8);
/// Bytes of a list in one reply.
const LIST_BYTES: usize = 9_000;
/// Damaged records named in one reply.
pub const SKIPPED_SHOWN: usize = 20;
/// A page of raw output is read together with this much on both sides of it, in bytes.
const LONGEST_SECRET: usize = 8 << 10;
/// Longest idempotency key, in bytes.
const MAX_KEY: usize = 200;

/// `delegate_task`.
pub async fn delegate_task(mut call: Call) -> Result<CallToolResult> {
    let arguments: DelegateTask = call.parse()?;
    let shared = arguments.shared();
    if let Some(id) = &arguments.session_id {
        checked_id("session_id", id)?;
    }
    let request = TurnRequest {
        agent: Some(arguments.agent),
        prompt: arguments.prompt,
        cwd: arguments.cwd,
        session_id: arguments.session_id,
        ..TurnRequest::default()
    };
    run(call, request, shared).await
}

/// `continue_session`.
pub async fn continue_session(mut call: Call) -> Result<CallToolResult> {
    let arguments: ContinueSession = call.parse()?;
    let shared = arguments.shared();
    checked_id("session_id", &arguments.session_id)?;
    let request = TurnRequest {
        agent: arguments.agent,
        prompt: arguments.prompt,
        session_id: Some(arguments.session_id),
        must_exist: true,
        ..TurnRequest::default()
    };
    run(call, request, shared).await
}

/// `handoff`.
pub async fn handoff(mut call: Call) -> Result<CallToolResult> {
    let arguments: Handoff = call.parse()?;
    let shared = arguments.shared();
    checked_id("session_id", &arguments.session_id)?;
    let request = TurnRequest {
        agent: Some(arguments.to_agent),
        prompt: arguments.prompt.unwrap_or_else(|| DEFAULT_HANDOFF.to_owned()),
        session_id: Some(arguments.session_id),
        must_exist: true,
        ..TurnRequest::default()
    };
    run(call, request, shared).await
}

async fn run(call: Call, mut request: TurnRequest, shared: SharedArguments) -> Result<CallToolResult> {
    let bridge = call.bridge.clone();
    let defaults = &bridge.config().defaults;
    let wait =
        Duration::from_secs(within("wait_seconds", shared.wait_seconds, defaults.wait.as_secs(), 0..=7200)?);
    if let Some(key) = &shared.idempotency_key
        && (key.is_empty() || key.len() > MAX_KEY)
    {
        return Err(invalid(format!("`idempotency_key` must have 1 to {MAX_KEY} bytes")));
    }
    request.timeout = shared
        .timeout_sec
        .map(|_| within("timeout_sec", shared.timeout_sec, 1, 1..=7200))
        .transpose()?
        .map(Duration::from_secs);
    request.model = shared.model;
    request.sandbox = shared.sandbox;
    request.idempotency_key = shared.idempotency_key;
    request.on_disconnect = shared.on_disconnect;
    request.scope_tools = shared.scope_tools;
    request.expected_revision = shared.expected_session_revision;
    request.requested_by = call.requester();
    let rule = shared.on_disconnect.unwrap_or(defaults.on_disconnect);

    let cancelled = call.request.ct.clone();
    let progress = ProgressReporter::new(&call.request);
    let started = tokio::select! {
        started = bridge.start(request) => started?,
        () = cancelled.cancelled() => return Err(invalid("the call was cancelled before the turn started")),
    };
    let waited = tokio::select! {
        waited = questions::wait(&call, &started.turn_id, wait, &progress) => waited?,
        () = cancelled.cancelled() => {
            if rule == OnDisconnect::Cancel && !started.repeated {
                bridge.cancel(&started.turn_id, "the host cancelled the call", Duration::ZERO).await?;
            }
            bridge.wait(&started.turn_id, Duration::ZERO, |_, _| ()).await?
        }
    };
    progress.finish().await;
    let mut notes = Vec::new();
    if started.repeated {
        notes.push(
            "The idempotency key names an earlier call: this is its turn, nothing was started.".to_owned(),
        );
    }
    if shared.remote_consent {
        notes
            .push(format!("Consent and cost arguments were ignored: {} is a local agent.", waited.row.agent));
    }
    turn_reply(&call, waited, notes).await
}

/// `wait_turn`.
pub async fn wait_turn(mut call: Call) -> Result<CallToolResult> {
    let arguments: WaitTurn = call.parse()?;
    checked_id("turn_id", &arguments.turn_id)?;
    let bridge = call.bridge.clone();
    let default = bridge.config().defaults.wait.as_secs();
    let wait = Duration::from_secs(within("wait_seconds", arguments.wait_seconds, default, 0..=7200)?);
    let progress = ProgressReporter::new(&call.request);
    let waited = tokio::select! {
        waited = questions::wait(&call, &arguments.turn_id, wait, &progress) => waited?,
        // Nobody waits any more; the turn itself goes on.
        () = call.request.ct.cancelled() => bridge.wait(&arguments.turn_id, Duration::ZERO, |_, _| ()).await?,
    };
    progress.finish().await;
    turn_reply(&call, waited, Vec::new()).await
}

/// `cancel_turn`.
pub async fn cancel_turn(mut call: Call) -> Result<CallToolResult> {
    let arguments: CancelTurn = call.parse()?;
    checked_id("turn_id", &arguments.turn_id)?;
    let reason = arguments.reason.unwrap_or_else(|| format!("asked for by {}", call.requester()));
    let reason: String = reason.chars().filter(|c| !c.is_control()).take(500).collect();
    let (asked, waited) = call.bridge.cancel(&arguments.turn_id, &reason, CANCEL_WAIT).await?;
    let view = view(&call.bridge, waited).await?;
    let text = match (asked, view.status) {
        (false, _) => {
            format!("The turn had already finished; nothing was cancelled.\n\n{}", turn_text(&view))
        }
        (true, TurnStatus::Finished) if view.outcome == Some(Outcome::Cancelled) => {
            format!("Cancelled.\n\n{}", turn_text(&view))
        }
        (true, TurnStatus::Finished) => {
            format!("The turn had already ended; its end stands.\n\n{}", turn_text(&view))
        }
        (true, TurnStatus::StillRunning) => {
            format!("Asked for; the worker has not ended yet.\n\n{}", turn_text(&view))
        }
    };
    Ok(reply(text, &Cancelled { cancel_requested: asked, result: view }, false))
}

/// `list_turns`.
pub async fn list_turns(mut call: Call) -> Result<CallToolResult> {
    let arguments: ListTurns = call.parse()?;
    if let Some(id) = &arguments.session_id {
        checked_id("session_id", id)?;
    }
    let limit = within("limit", arguments.limit, 20, 1..=200)?;
    call.bridge.reconcile().await?;
    let filter = TurnFilter { state: arguments.state, agent: arguments.agent, session: arguments.session_id };
    let cursor = arguments.cursor;
    let now = call.bridge.context().clock.now_ms();
    let list = call
        .bridge
        .with_store(move |store| {
            let (turns, skipped, next_cursor) = fit_page(
                limit as usize,
                |row| TurnSummary::new(row, now),
                |limit| Ok(store.list_turns(&filter, limit, cursor.as_deref())?),
            )?;
            Ok(TurnList { turns, skipped, next_cursor })
        })
        .await?;
    Ok(json_reply(&list))
}

/// As many rows as were asked for, but no more than a reply should hold, the first of those that cannot be
/// read, and the cursor after them.
pub fn fit_page<R, S: serde::Serialize>(
    limit: usize,
    summarise: impl Fn(&R) -> S,
    list: impl Fn(usize) -> Result<Listed<R>>,
) -> Result<(Vec<S>, Vec<Skipped>, Option<String>)> {
    let mut page = list(limit)?;
    page.skipped.truncate(SKIPPED_SHOWN);
    let summaries: Vec<S> = page.rows.iter().map(&summarise).collect();
    let fitting = fitting(&summaries);
    if fitting == summaries.len() {
        return Ok((summaries, page.skipped, page.next));
    }
    let mut page = list(fitting)?;
    page.skipped.truncate(SKIPPED_SHOWN);
    Ok((page.rows.iter().map(summarise).collect(), page.skipped, page.next))
}

/// How many of these a reply should hold; at least one.
pub fn fitting<S: serde::Serialize>(summaries: &[S]) -> usize {
    let mut size = 0;
    let fits = |summary: &&S| {
        size += json_len(*summary);
        size <= LIST_BYTES
    };
    summaries.iter().take_while(fits).count().max(1)
}

/// Size of a value as JSON.
pub fn json_len(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}

/// `get_turn_output`.
pub async fn get_turn_output(mut call: Call) -> Result<CallToolResult> {
    let arguments: GetTurnOutput = call.parse()?;
    checked_id("session_id", &arguments.session_id)?;
    let limit = within("max_chars", arguments.max_chars, 6_000, 1..=100_000)? as usize;
    let offset = arguments.offset.unwrap_or(0);
    let (kind, field) = match arguments.field.unwrap_or_default() {
        OutputField::Output => (BlobKind::Answer, "output"),
        OutputField::Stderr => (BlobKind::Stderr, "stderr"),
        OutputField::Stdout => (BlobKind::Stdout, "stdout"),
    };
    let session = arguments.session_id.clone();
    let page = call
        .bridge
        .with_store(move |store| {
            let row = store.turn_at(&session, arguments.turn)?;
            if kind == BlobKind::Answer {
                store.check_answer(&row)?;
            }
            let mut limit = limit;
            loop {
                let mut page = store.blobs().read_page(&row.id, kind, offset, limit)?;
                if field != "output" {
                    // Raw streams may show what the worker was given, and a page may cut it.
                    let blobs = store.blobs();
                    let before = blobs.read_before(&row.id, kind, page.offset, LONGEST_SECRET)?;
                    let after = match page.next_offset {
                        Some(next) => blobs.read_page(&row.id, kind, next, LONGEST_SECRET)?.text,
                        None => String::new(),
                    };
                    page.text = redaction::redact_within(&before, &page.text, &after);
                }
                if escaped_len(&page.text) <= PAGE_BYTES || limit <= 4 {
                    return Ok(page);
                }
                limit /= 2;
            }
        })
        .await?;
    let output = OutputPage {
        text: page.text,
        bridge_session_id: arguments.session_id,
        turn: arguments.turn,
        field,
        offset,
        next_offset: page.next_offset,
        total_chars: page.total,
        complete: page.complete,
    };
    let rest = match output.next_offset {
        Some(next) => format!(
            "[{field} of turn {}: bytes {offset} to {next} of {}; next_offset {next}]",
            output.turn, output.total_chars
        ),
        None => format!("[{field} of turn {}: complete, {} bytes]", output.turn, output.total_chars),
    };
    Ok(reply(format!("{}\n\n{rest}", output.text), &output, false))
}

async fn view(bridge: &Bridge, waited: WaitedTurn) -> Result<TurnView> {
    let now = bridge.context().clock.now_ms();
    bridge
        .with_store(move |store| {
            let mut budget = PREVIEW_BYTES;
            loop {
                let view = turn_view(store, &waited, now, budget)?;
                if view.output.as_deref().map_or(0, escaped_len) <= PREVIEW_BYTES + 64 || budget < 64 {
                    return Ok(view);
                }
                budget /= 2;
            }
        })
        .await
}

async fn turn_reply(call: &Call, waited: WaitedTurn, notes: Vec<String>) -> Result<CallToolResult> {
    match view(&call.bridge, waited).await {
        Ok(mut view) => {
            // A call that was cancelled tells nobody anything.
            if !call.request.ct.is_cancelled() {
                questions::advise(call, &mut view);
            }
            view.notes.splice(0..0, notes);
            Ok(reply(turn_text(&view), &view, view.is_error))
        }
        Err(error) => Ok(error_reply(&error)),
    }
}

/// The same facts for hosts that show only text.
pub fn turn_text(view: &TurnView) -> String {
    let mut parts = Vec::new();
    if let Some(output) = view.output.as_deref().filter(|text| !text.is_empty()) {
        parts.push(output.to_owned());
    }
    if let Some(report) = &view.report {
        parts.push(format!("Report of the worker: {report}"));
    }
    let mut facts = vec![match view.outcome {
        Some(outcome) => outcome.as_str().to_owned(),
        None => "still_running".to_owned(),
    }];
    facts.push(format!("agent {}", view.agent));
    facts.push(format!("session {}", view.bridge_session_id));
    facts.push(format!("turn {} (turn_id {})", view.turn, view.turn_id));
    facts.push(format!("{:.1} s", view.duration_ms as f64 / 1000.0));
    facts.push(view.sandbox.to_string());
    parts.push(format!("[{}]", facts.join(" · ")));
    if let Some(activity) = &view.activity {
        parts.push(format!("Now: {activity}"));
    }
    parts.extend(view.questions.iter().map(question_text));
    if let Some(detail) = &view.detail {
        let code = view.code.as_deref().map(|code| format!("{code}: ")).unwrap_or_default();
        parts.push(format!("{code}{detail}"));
    }
    if let Some(stderr) = &view.stderr {
        parts.push(format!("Last standard error:\n{stderr}"));
    }
    parts.extend(survivors(&view.meta));
    if view.output_truncated {
        parts.push(format!(
            "The answer has {} bytes and was cut in the middle. All of it: get_turn_output with session_id {} and turn {}.",
            view.output_chars, view.bridge_session_id, view.turn
        ));
    }
    parts.extend(view.notes.iter().map(|note| format!("Note: {note}")));
    if let Some(hint) = &view.hint {
        parts.push(format!("Next step: {hint}"));
    }
    parts.join("\n\n")
}

/// A worker's question, in words. What is in it is the worker's.
fn question_text(question: &QuestionView) -> String {
    let wait = question.seconds_left.map(|seconds| format!(", waits {seconds} s more")).unwrap_or_default();
    let what = match &question.tool {
        Some(tool) => format!("The worker asks for permission to use {tool}"),
        None => "The worker asks".to_owned(),
    };
    format!("{what} (question_id {}{wait}): {}", question.question_id, question.text)
}

/// What could not be proven gone; a person has to look at it.
fn survivors(meta: &Value) -> Option<String> {
    let ids: Vec<String> = meta["survivingProcesses"].as_array()?.iter().map(Value::to_string).collect();
    (!ids.is_empty()).then(|| format!("Processes of the worker that could not be ended: {}", ids.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn processes_that_are_left_are_told_in_words() {
        let told = survivors(&json!({ "survivingProcesses": [7, 8] }));
        assert_eq!(told.as_deref(), Some("Processes of the worker that could not be ended: 7, 8"));
        assert_eq!(survivors(&json!({ "survivingProcesses": [] })), None);
        assert_eq!(survivors(&json!({})), None);
        assert_eq!(survivors(&Value::Null), None);
    }
}
