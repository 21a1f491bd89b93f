//! A turn as every front door shows it. Field names are the MCP contract.

use serde::Serialize;
use serde_json::Value;

use super::questions::QuestionView;
use super::run_spec::Unrecorded;
use crate::agents::{Outcome, Tokens};
use crate::error::Result;
use crate::policy::{AgentId, Sandbox};
use crate::store::{BlobKind, Continuity, Preview, QuestionKind, Store, TurnRow, TurnState};

/// A turn that was waited for.
#[derive(Clone, Debug)]
pub struct WaitedTurn {
    /// As recorded.
    pub row: TurnRow,
    /// Set if its end could not be recorded.
    pub unrecorded: Option<Unrecorded>,
}

/// Whether there is a result yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// The end is recorded.
    Finished,
    /// The wait is over, the work is not: call `wait_turn`.
    StillRunning,
}

/// A turn's result, bounded. The whole text is paged with `get_turn_output`.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct TurnView {
    /// The answer, or the middle cut out of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// What the worker handed in with `submit_report`: surer than its words. Long texts and lists in it may be cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    pub report: Option<Value>,
    /// Whether there is a result yet.
    pub status: TurnStatus,
    /// What became of it, once finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// True for a finished turn that did not succeed.
    pub is_error: bool,
    /// Why it did not succeed, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Documented code of that reason; `agent-bridge explain CODE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What the worker waits for: answer with `answer_question`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionView>,
    /// Session to continue.
    pub bridge_session_id: String,
    /// Id of this turn.
    pub turn_id: String,
    /// Position in the session, from 0.
    pub turn: u64,
    /// Who worked.
    pub agent: AgentId,
    /// Model named to the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Granted authority.
    pub sandbox: Sandbox,
    /// How the turn joined the conversation.
    pub continuity: Continuity,
    /// Whether other agents' turns were added in front of the prompt.
    pub cross_agent_context_applied: bool,
    /// What the worker is doing now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Exit code of the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// Signal that ended the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Wall time in milliseconds; of a running turn, so far.
    pub duration_ms: u64,
    /// Whether one of our deadlines ended it.
    pub timed_out: bool,
    /// Size of the whole answer in UTF-8 bytes.
    pub output_chars: u64,
    /// Whether `output` is shorter than the answer.
    pub output_truncated: bool,
    /// The last part of standard error; only when the turn did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Size of the whole standard error in bytes.
    pub stderr_chars: u64,
    /// Whether `stderr` is shorter than that.
    pub stderr_truncated: bool,
    /// Tokens of this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// US dollars of this turn, as the agent estimates them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Remarks about the call itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Where the whole output is.
    pub output_ref: OutputRef,
    /// Facts the adapter reported.
    #[serde(skip_serializing_if = "is_empty")]
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub meta: Value,
}

/// Arguments for the paging tool.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct OutputRef {
    /// The tool to call.
    pub tool: &'static str,
    /// Its `session_id`.
    pub bridge_session_id: String,
    /// Its `turn`.
    pub turn: u64,
}

fn is_empty(meta: &Value) -> bool {
    meta.as_object().is_none_or(serde_json::Map::is_empty)
}

/// Builds the view of a turn with an answer preview of at most `max_output` bytes.
pub fn turn_view(store: &Store, waited: &WaitedTurn, now_ms: i64, max_output: usize) -> Result<TurnView> {
    let row = &waited.row;
    let none = || Preview { text: String::new(), truncated: false, total: 0, next_offset: None };
    let finished = row.state == TurnState::Finished;
    let end = row.end.as_ref();
    let is_error = end.is_some_and(|end| end.outcome.is_error());
    let output = match &waited.unrecorded {
        Some(unrecorded) => {
            let text = super::context_block::clip(&unrecorded.answer, max_output);
            let (truncated, total) = (text.len() < unrecorded.answer.len(), unrecorded.answer.len() as u64);
            Preview { truncated, total, text, next_offset: None }
        }
        None if finished => {
            store.blobs().head_tail(&row.id, BlobKind::Answer, max_output).unwrap_or_else(|_| none())
        }
        None => none(),
    };
    let stderr = if is_error {
        store.blobs().head_tail(&row.id, BlobKind::Stderr, max_output / 4).unwrap_or_else(|_| none())
    } else {
        none()
    };
    let damage = match &waited.unrecorded {
        None => store.check_answer(row).err().map(crate::error::Error::from),
        Some(_) => None,
    };
    let damage = damage.map(|error| format!("{}: {error}. {}", error.code(), error.hint()));
    let code = match &waited.unrecorded {
        Some(_) => Some("RECORD_NOT_WRITTEN".to_owned()),
        None => end.and_then(|end| end.code.clone()),
    };
    let questions = if finished { Vec::new() } else { super::questions::open(store, &row.id, now_ms)? };
    let elapsed = u64::try_from(now_ms.saturating_sub(row.started_at)).unwrap_or(0);
    let mut meta = end.map_or(Value::Null, |end| end.meta.clone());
    let report = meta.as_object_mut().and_then(|meta| meta.shift_remove("report"));
    Ok(TurnView {
        report: report.map(|report| super::companion::bounded(&report, max_output / 3)),
        output: finished.then_some(output.text),
        status: if finished { TurnStatus::Finished } else { TurnStatus::StillRunning },
        outcome: end.map(|end| end.outcome),
        is_error,
        detail: match &waited.unrecorded {
            Some(unrecorded) => Some(format!("the end could not be recorded: {}", unrecorded.reason)),
            None => end.and_then(|end| end.detail.clone()),
        },
        hint: hint(row, code.as_deref(), &questions),
        code,
        questions,
        bridge_session_id: row.session_id.clone(),
        turn_id: row.id.clone(),
        turn: row.index,
        agent: row.agent,
        model: row.model.clone(),
        sandbox: row.sandbox,
        continuity: row.continuity,
        cross_agent_context_applied: row.cross_agent_context,
        activity: row.activity.clone().filter(|_| !finished),
        exit_code: end.and_then(|end| end.exit_code),
        signal: end.and_then(|end| end.signal),
        duration_ms: end.map_or(elapsed, |end| end.duration_ms),
        timed_out: end.is_some_and(|end| end.outcome == Outcome::Timeout),
        output_chars: output.total,
        output_truncated: output.truncated,
        stderr: Some(crate::agents::redaction::redact(&stderr.text)).filter(|text| !text.is_empty()),
        stderr_chars: end.map_or(0, |end| end.stderr_bytes),
        stderr_truncated: stderr.truncated,
        tokens: end.and_then(|end| end.tokens),
        cost_usd: end.and_then(|end| end.cost_usd),
        notes: damage.into_iter().collect(),
        output_ref: OutputRef {
            tool: "get_turn_output",
            bridge_session_id: row.session_id.clone(),
            turn: row.index,
        },
        meta,
    })
}

fn hint(row: &TurnRow, code: Option<&str>, questions: &[QuestionView]) -> Option<String> {
    if let Some(question) = questions.first() {
        let (given, otherwise) = match question.kind {
            QuestionKind::Question => ("text", "goes on with a default"),
            QuestionKind::Approval => ("approve true or false", "is told no"),
        };
        return Some(format!(
            "The worker waits for you: call answer_question with question_id {} and {given}, or let the user decide. \
             Without an answer it {otherwise} after {} s. Then call wait_turn with turn_id {}.",
            question.question_id,
            question.seconds_left.unwrap_or(0),
            row.id
        ));
    }
    if row.state == TurnState::Running {
        return Some(format!(
            "Call wait_turn with turn_id {} to wait for the result, or cancel_turn to end it.",
            row.id
        ));
    }
    if let Some(doc) = code.and_then(super::catalogue::find) {
        return Some(doc.remedy.to_owned());
    }
    let login = || crate::agents::agent(row.agent).map(|agent| agent.login_command()).unwrap_or_default();
    match row.end.as_ref()?.outcome {
        Outcome::Success => None,
        Outcome::LoginRequired => {
            Some(format!("Ask the user to run `{}` in a terminal, then try again.", login()))
        }
        Outcome::Quota => {
            Some("Wait for the reset, or let the user choose another agent. Nothing was retried.".into())
        }
        Outcome::TurnLimit => Some("Partial work is kept. Call continue_session to go on.".into()),
        Outcome::Empty => Some("Call continue_session and ask for the answer again.".into()),
        Outcome::FormatUnrecognised => {
            Some("The text is kept as it came. Check the agent's version with diagnose_install.".into())
        }
        Outcome::WorkerError | Outcome::Timeout | Outcome::Cancelled | Outcome::Interrupted => {
            Some("Look at the raw output with get_turn_output (field stderr or stdout).".into())
        }
    }
}
