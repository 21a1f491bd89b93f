//! What each tool returns. The doc comments end up in the output schemas.

use schemars::JsonSchema;
use serde::Serialize;

use crate::agents::Outcome;
use crate::bridge::health::AgentView;
use crate::bridge::questions::QuestionView;
use crate::bridge::view::{TurnStatus, TurnView};
use crate::doctor::Report;
use crate::policy::{AgentId, Sandbox};
use crate::store::{Continuity, QuestionRow, SessionRow, Skipped, TurnRow, TurnState};

/// `list_agents`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AgentList {
    /// One entry an agent.
    pub agents: Vec<AgentView>,
}

/// `diagnose_install`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Diagnosis {
    /// Verdict first, then the checks.
    pub diagnostics: Report,
    /// One entry an agent.
    pub agents: Vec<AgentView>,
}

/// `cancel_turn`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Cancelled {
    /// True if the turn was running and its end was asked for; false if it had finished already.
    pub cancel_requested: bool,
    /// The turn after that.
    pub result: TurnView,
}

/// One turn in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TurnSummary {
    /// Id of the turn.
    pub turn_id: String,
    /// Its session.
    pub bridge_session_id: String,
    /// Its position there.
    pub turn: u64,
    /// Who worked.
    pub agent: AgentId,
    /// Whether there is a result.
    pub status: TurnStatus,
    /// What became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Granted authority.
    pub sandbox: Sandbox,
    /// How it joined the conversation.
    pub continuity: Continuity,
    /// Start, UTC.
    pub started_at: String,
    /// Wall time in milliseconds; of a running turn, so far.
    pub duration_ms: u64,
    /// Beginning of the prompt.
    pub prompt: String,
    /// What the worker is doing now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Who asked for it.
    pub requested_by: String,
}

impl TurnSummary {
    /// From a stored turn.
    pub fn new(row: &TurnRow, now_ms: i64) -> Self {
        let running = row.state == TurnState::Running;
        let elapsed = u64::try_from(now_ms.saturating_sub(row.started_at)).unwrap_or(0);
        Self {
            turn_id: row.id.clone(),
            bridge_session_id: row.session_id.clone(),
            turn: row.index,
            agent: row.agent,
            status: if running { TurnStatus::StillRunning } else { TurnStatus::Finished },
            outcome: row.end.as_ref().map(|end| end.outcome),
            sandbox: row.sandbox,
            continuity: row.continuity,
            started_at: utc(row.started_at),
            duration_ms: row.end.as_ref().map_or(elapsed, |end| end.duration_ms),
            prompt: crate::bridge::context_block::clip(row.prompt.trim(), 160),
            activity: row.activity.clone().filter(|_| running),
            requested_by: row.requested_by.clone(),
        }
    }
}

/// `list_turns`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TurnList {
    /// Newest first.
    pub turns: Vec<TurnSummary>,
    /// Records of this page that are damaged and cannot be shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// Pass as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A worker's question with its turn and its answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuestionEntry {
    /// The question.
    #[serde(flatten)]
    pub question: QuestionView,
    /// The turn that asks.
    pub turn_id: String,
    /// Its session.
    pub bridge_session_id: String,
    /// When it was asked, UTC.
    pub asked_at: String,
    /// Yes or no, once an approval is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    /// The text of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Who answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// When, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<String>,
}

impl QuestionEntry {
    /// From a stored question.
    pub fn new(row: &QuestionRow, now_ms: i64) -> Self {
        Self {
            question: QuestionView::new(row, now_ms, usize::MAX),
            turn_id: row.turn.clone(),
            bridge_session_id: row.session.clone(),
            asked_at: utc(row.asked_at),
            approved: row.approved,
            answer: row.answer.clone(),
            answered_by: row.answered_by.clone(),
            answered_at: row.answered_at.map(utc),
        }
    }
}

/// `list_questions`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuestionList {
    /// Newest first.
    pub questions: Vec<QuestionEntry>,
    /// Records of this page that are damaged and cannot be shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// Pass as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `answer_question`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AnsweredQuestion {
    /// As it stands now.
    pub question: QuestionEntry,
    /// What to do next.
    pub hint: String,
}

/// `get_turn_output`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OutputPage {
    /// The text.
    pub text: String,
    /// Session.
    pub bridge_session_id: String,
    /// Position of the turn.
    pub turn: u64,
    /// Which text.
    pub field: &'static str,
    /// Where this page starts, in bytes.
    pub offset: u64,
    /// Where the next page starts; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// Size of the whole text in bytes.
    pub total_chars: u64,
    /// Nothing follows.
    pub complete: bool,
}

/// One session in a list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// Pass as `session_id`.
    pub id: String,
    /// First line of the first prompt.
    pub title: String,
    /// Working folder.
    pub cwd: String,
    /// Last change, UTC.
    pub updated_at: String,
    /// Grows by one with each finished turn.
    pub revision: u64,
    /// Number of turns.
    pub turns: u64,
    /// Agents that took part.
    pub agents: Vec<AgentId>,
}

impl SessionSummary {
    /// From a stored session.
    pub fn new(row: &SessionRow) -> Self {
        Self {
            id: row.id.clone(),
            title: row.title.clone(),
            cwd: row.cwd.display().to_string(),
            updated_at: utc(row.updated_at),
            revision: row.revision,
            turns: row.turns,
            agents: row.agents.clone(),
        }
    }
}

/// `list_sessions`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionList {
    /// Newest first.
    pub sessions: Vec<SessionSummary>,
    /// Records of this page that are damaged and cannot be shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// Pass as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One turn of `get_session`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionTurn {
    /// Position, from 0.
    pub turn: u64,
    /// Id of the turn.
    pub turn_id: String,
    /// Who worked.
    pub agent: AgentId,
    /// Whether there is a result.
    pub status: TurnStatus,
    /// What became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The caller's prompt, clipped.
    pub prompt: String,
    /// The answer, clipped.
    pub response: String,
    /// Size of the whole answer in bytes.
    pub response_chars: u64,
    /// Start, UTC.
    pub started_at: String,
}

/// `get_session`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionDetail {
    /// The session.
    pub session: SessionSummary,
    /// Some of its turns, oldest first.
    pub turns: Vec<SessionTurn>,
    /// Records of this page that are damaged and cannot be shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// Pass as `from_turn` for the rest; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_turn: Option<u64>,
}

/// One hit of `search_sessions`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SearchHit {
    /// Session to look at with get_session.
    pub bridge_session_id: String,
    /// Position of the turn.
    pub turn: u64,
    /// Id of the turn.
    pub turn_id: String,
    /// The place, with some text around it.
    pub snippet: String,
}

/// `search_sessions`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SearchResult {
    /// Best first.
    pub hits: Vec<SearchHit>,
}

/// Milliseconds since 1970 as `2026-01-31T12:00:00.000Z`.
pub fn utc(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| "unknown".to_owned(), |at| format!("{at:.3}"))
}
