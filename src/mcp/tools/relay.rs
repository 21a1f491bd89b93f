//! Compact delegate-and-review: the three tools under the names of before and under neutral ones.

use std::fmt::Write as _;
use std::time::Duration;

use rmcp::model::CallToolResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Call, checked_id, within};
use crate::config::OnDisconnect;
use crate::error::Result;
use crate::mcp::reply::reply;
use crate::policy::{AgentId, ExecutionMode, Isolation};
use crate::relay::packet::{Packet, packet};
use crate::relay::record::RunRecord;
use crate::relay::request::{ContinueArguments, Door, ExecuteArguments};
use crate::relay::result::{self, CHARS, DEFAULT_CHARS, Detail};
use crate::relay::worktree::Applied;
use crate::relay::{Relay, Status};

/// What `relay_execute` publishes; it takes the options of before too.
#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct RelayExecute {
    /// The task alone; fixed constraints are added here.
    #[schemars(length(min = 1, max = 65_536))]
    task: String,
    /// Profile of the config; the default one if left out.
    profile: Option<String>,
    /// Absolute path of the folder to work in; needed when no profile has one.
    workspace: Option<String>,
    /// `safe`: in the worker's sandbox. `trusted`: without asking anybody.
    execution_mode: Option<ExecutionMode>,
    /// `worktree`: the worker edits a copy of the repository, and relay_apply brings its patch over.
    isolation: Option<Isolation>,
    /// Who works.
    agent: Option<AgentId>,
    /// How long to wait for the end, in seconds.
    #[schemars(range(min = 0, max = 7200))]
    wait_seconds: Option<u64>,
}

/// What `antigravity_execute` publishes.
#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct AntigravityExecute {
    /// The task alone; fixed constraints are added here.
    #[schemars(length(min = 1, max = 65_536))]
    task: String,
    /// Profile of the config; the default one if left out.
    profile: Option<String>,
    /// Absolute path of the folder to work in; needed when no profile has one.
    workspace: Option<String>,
    /// `safe`: in the worker's sandbox. `trusted`: without asking anybody.
    execution_mode: Option<ExecutionMode>,
}

/// What the tools for corrections publish.
#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct RunContinue {
    /// The run to correct.
    run_id: String,
    /// The definite defect, and what is wanted instead.
    #[schemars(length(min = 1, max = 32_768))]
    feedback: String,
}

/// Arguments of the tools that show a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunGetResult {
    /// The run.
    pub run_id: String,
    /// `summary`: the compact packet. `errors`: what went wrong. `full`: the whole record.
    pub detail: Option<Detail>,
    /// Most characters of the reply, in UTF-8 bytes (default 12000).
    #[schemars(range(min = 500, max = 100_000))]
    pub max_chars: Option<u64>,
    /// How long to wait for the end of a running run, in seconds.
    #[schemars(range(min = 0, max = 7200))]
    pub wait_seconds: Option<u64>,
}

/// Arguments of the tool that applies a patch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunApply {
    /// The run.
    pub run_id: String,
    /// Says only whether the patch fits.
    #[serde(default)]
    pub check_only: bool,
}

/// What is published of the result: the names. Each tool of the list costs a model's room, and these are six.
#[derive(Debug, Serialize, JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct RunShape {
    ok: bool,
    run_id: String,
    status: String,
    summary: String,
    outcome: Option<String>,
    changes: Option<Map<String, Value>>,
    claims: Option<Map<String, Value>>,
    tests: Option<Map<String, Value>>,
    checks: Option<Vec<Map<String, Value>>>,
    patch: Option<Map<String, Value>>,
    worktree: Option<String>,
    applied: Option<Map<String, Value>>,
    agent: Option<String>,
    corrections_left: u32,
    remarks: Option<Vec<String>>,
    notes: Option<Vec<String>>,
    next: Option<String>,
    text: Option<String>,
    truncated: Option<bool>,
    total_chars: Option<u64>,
}

/// A run: its packet, and text where details were asked for.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunResult {
    #[serde(flatten)]
    packet: Packet,
    /// The details that were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Whether something of the details is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    /// Size of the whole details, in UTF-8 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_chars: Option<u64>,
}

/// `antigravity_execute`.
pub async fn antigravity_execute(call: Call) -> Result<CallToolResult> {
    execute(call, Door::Antigravity, "antigravity").await
}

/// `relay_execute`.
pub async fn relay_execute(call: Call) -> Result<CallToolResult> {
    execute(call, Door::Neutral, "relay").await
}

async fn execute(mut call: Call, door: Door, prefix: &'static str) -> Result<CallToolResult> {
    let arguments: ExecuteArguments = call.parse()?;
    let wait = wait(&call, arguments.wait_seconds)?;
    let tool = format!("{prefix}_execute");
    let run_id = call.relay.execute(door, &tool, arguments, &call.requester()).await?;
    waited(call, prefix, &run_id, wait, true).await
}

/// `antigravity_continue`.
pub async fn antigravity_continue(call: Call) -> Result<CallToolResult> {
    correct(call, "antigravity").await
}

/// `relay_continue`.
pub async fn relay_continue(call: Call) -> Result<CallToolResult> {
    correct(call, "relay").await
}

async fn correct(mut call: Call, prefix: &'static str) -> Result<CallToolResult> {
    let arguments: ContinueArguments = call.parse()?;
    if let Some(id) = &arguments.run_id {
        checked_id("run_id", id)?;
    }
    let wait = wait(&call, arguments.wait_seconds)?;
    let tool = format!("{prefix}_continue");
    let run_id = call.relay.correct(&tool, arguments, &call.requester()).await?;
    waited(call, prefix, &run_id, wait, true).await
}

fn wait(call: &Call, asked: Option<u64>) -> Result<Duration> {
    let default = call.bridge.config().relay.wait.as_secs();
    Ok(Duration::from_secs(within("wait_seconds", asked, default, 0..=7200)?))
}

/// Waits for a run and shows it; a call that is cancelled cancels the run that it started, if turns end with their
/// host.
async fn waited(
    call: Call,
    prefix: &'static str,
    run_id: &str,
    wait: Duration,
    own: bool,
) -> Result<CallToolResult> {
    let relay = call.relay.clone();
    let progress = super::ProgressReporter::new(&call.request);
    let row = tokio::select! {
        row = relay.wait(run_id, wait, |elapsed, activity| progress.report_run(run_id, elapsed, activity)) => row?,
        () = call.request.ct.cancelled() => {
            if own && call.bridge.config().defaults.on_disconnect == OnDisconnect::Cancel {
                relay.cancel(run_id, "the host cancelled the call");
            }
            relay.wait(run_id, Duration::ZERO, |_, _| ()).await?
        }
    };
    progress.finish().await;
    let (record, made) = relay.record(row).await?;
    shown(&relay, &record, made, prefix, None)
}

/// `antigravity_get_result`.
pub async fn antigravity_get_result(call: Call) -> Result<CallToolResult> {
    get_result(call, "antigravity").await
}

/// `relay_get_result`.
pub async fn relay_get_result(call: Call) -> Result<CallToolResult> {
    get_result(call, "relay").await
}

async fn get_result(mut call: Call, prefix: &'static str) -> Result<CallToolResult> {
    let arguments: RunGetResult = call.parse()?;
    checked_id("run_id", &arguments.run_id)?;
    let most = within("max_chars", arguments.max_chars, DEFAULT_CHARS, CHARS)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let wait = wait(&call, arguments.wait_seconds)?;
    let detail = arguments.detail.unwrap_or_default();
    if detail == Detail::Summary && arguments.max_chars.is_none() {
        return waited(call, prefix, &arguments.run_id, wait, false).await;
    }
    let relay = call.relay.clone();
    let row = relay.wait(&arguments.run_id, wait, |_, _| ()).await?;
    let (record, made) = relay.record(row).await?;
    let cut = match detail {
        Detail::Summary => None,
        Detail::Full => Some(result::full(&record, most)?),
        Detail::Errors => {
            let of = record.clone();
            let value = call.bridge.with_store(move |store| Ok(result::errors(store, &of, most))).await?;
            let text = serde_json::to_string_pretty(&value).unwrap_or_default();
            Some(result::head(&text, most))
        }
    };
    shown(&relay, &record, made, prefix, Some((cut, most)))
}

/// `relay_apply`.
pub async fn relay_apply(mut call: Call) -> Result<CallToolResult> {
    let arguments: RunApply = call.parse()?;
    checked_id("run_id", &arguments.run_id)?;
    let applied = call.relay.apply(&arguments.run_id, arguments.check_only).await?;
    Ok(reply(applied_text(&applied), &applied, false))
}

/// What became of a patch, for people.
pub fn applied_text(applied: &Applied) -> String {
    let count = applied.files.len() as u64 + applied.files_omitted;
    let what = if applied.applied { "Applied" } else { "Fits" };
    let mut text = format!("{what}: {count} files");
    if applied.already > 0 {
        let _ = write!(text, ", {} were so already", applied.already);
    }
    for file in &applied.files {
        let _ = write!(text, "\n  {file}");
    }
    if applied.files_omitted > 0 {
        let _ = write!(text, "\n  … and {} more", applied.files_omitted);
    }
    for line in applied.worktree.iter().chain(&applied.next) {
        let _ = write!(text, "\n{line}");
    }
    text
}

fn shown(
    relay: &Relay,
    record: &RunRecord,
    made: u32,
    prefix: &str,
    detail: Option<(Option<result::Cut>, usize)>,
) -> Result<CallToolResult> {
    let most_corrections = relay.bridge().config().relay.max_corrections;
    let mut packet = packet(record, prefix, most_corrections, made);
    let is_error = record.is_finished() && record.status != Status::Success;
    if let Some((None, most)) = &detail {
        packet.fit(*most);
    }
    let Some((Some(cut), _)) = detail else {
        return Ok(reply(
            packet_text(&packet),
            &RunResult { packet, text: None, truncated: None, total_chars: None },
            is_error,
        ));
    };
    // The details say it all; the packet beside them only what the run is.
    packet.bare();
    let text = cut.text.clone();
    let result = RunResult {
        packet,
        text: Some(cut.text),
        truncated: Some(cut.truncated),
        total_chars: Some(cut.total),
    };
    Ok(reply(text, &result, is_error))
}

/// The word that a value has on the wire.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The same facts for hosts that show only text.
pub fn packet_text(packet: &Packet) -> String {
    let mut text = format!("{} · run {}", packet.status, packet.run_id);
    if let Some(agent) = packet.agent {
        let _ = write!(text, " · {agent}");
    }
    if !packet.summary.is_empty() {
        let _ = write!(text, "\n\n{}", packet.summary);
    }
    if let Some(error) = &packet.error {
        let _ = write!(text, "\n\n{}: {}", error.code, error.message);
    }
    if let Some(changes) = &packet.changes {
        let count = changes.count.map_or("an unknown number of".to_owned(), |count| count.to_string());
        let _ = write!(
            text,
            "\n\nChanges ({}): {count} files, +{} −{}, risk {}",
            word(&changes.observed),
            changes.insertions,
            changes.deletions,
            changes.risk.map_or("none".to_owned(), |risk| word(&risk))
        );
        if let Some(reason) = &changes.reason {
            let _ = write!(text, " ({reason})");
        }
        for file in &changes.files {
            let _ = write!(text, "\n  {file}");
        }
        if changes.files_omitted > 0 {
            let _ = write!(text, "\n  … and {} more", changes.files_omitted);
        }
        for line in &changes.history {
            let _ = write!(text, "\n  {line}");
        }
        if !changes.review.is_empty() {
            text.push_str("\nReview:");
        }
        for target in &changes.review {
            let lines = target.lines.as_ref().map(|lines| format!(":{lines}")).unwrap_or_default();
            let _ = write!(text, "\n  {}{lines} [{}] {}", target.file, word(&target.risk), target.reason);
        }
    }
    if let Some(claims) = &packet.claims {
        if !claims.not_changed.is_empty() {
            let _ = write!(text, "\nClaimed but not changed: {}", claims.not_changed.join(", "));
        }
        if !claims.not_named.is_empty() {
            let _ = write!(text, "\nChanged but not named: {}", claims.not_named.join(", "));
        }
    }
    if let Some(tests) = &packet.tests {
        let _ = write!(
            text,
            "\n\nTests by the worker's own count: {} passed, {} failed, {} not run",
            tests.passed, tests.failed, tests.not_run
        );
    }
    for check in &packet.checks {
        let _ = write!(text, "\nCheck {}: {}", check.name, word(&check.status));
        if let Some(tail) = &check.output_tail {
            let _ = write!(text, "\n{tail}");
        }
    }
    if let Some(patch) = &packet.patch {
        let _ = write!(text, "\nPatch: {} bytes, SHA-256 {}", patch.bytes, patch.sha256);
    }
    if let Some(copy) = &packet.worktree {
        let _ = write!(text, "\nIn a copy of the workspace: {copy}");
    }
    if packet.applied.is_some() {
        text.push_str("\nThe patch is applied.");
    }
    for line in packet.remarks.iter().chain(&packet.notes) {
        let _ = write!(text, "\nNote: {line}");
    }
    if let Some(next) = &packet.next {
        let _ = write!(text, "\n\nNext step: {next}");
    }
    text
}
