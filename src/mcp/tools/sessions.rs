//! Tools that list, show and search sessions.

use rmcp::model::CallToolResult;

use super::arguments::{GetSession, ListSessions, SearchSessions};
use super::outputs::{SearchHit, SearchResult, SessionDetail, SessionList, SessionSummary, SessionTurn, utc};
use super::turns::fit_page;
use super::{Call, checked_id, invalid, within};
use crate::bridge::context_block::clip;
use crate::bridge::view::TurnStatus;
use crate::error::Result;
use crate::mcp::reply::json_reply;
use crate::store::{BlobKind, TurnState};

/// Turns that are loaded for one reply of `get_session`.
const TURNS_LOADED: u64 = 50;

/// `list_sessions`.
pub async fn list_sessions(mut call: Call) -> Result<CallToolResult> {
    let arguments: ListSessions = call.parse()?;
    let limit = within("limit", arguments.limit, 20, 1..=200)? as usize;
    let list = call
        .bridge
        .with_store(move |store| {
            let rows = store.list_sessions(limit + 1, arguments.cursor.as_deref())?;
            let (shown, more) = fit_page(rows, limit, SessionSummary::new);
            let next_cursor = more.then(|| shown.last().map(|(row, _)| store.session_cursor(row))).flatten();
            Ok(SessionList { sessions: shown.into_iter().map(|(_, summary)| summary).collect(), next_cursor })
        })
        .await?;
    Ok(json_reply(&list))
}

/// `get_session`.
pub async fn get_session(mut call: Call) -> Result<CallToolResult> {
    let arguments: GetSession = call.parse()?;
    checked_id("session_id", &arguments.session_id)?;
    let clipped = within("max_chars_per_turn", arguments.max_chars_per_turn, 1_500, 1..=100_000)? as usize;
    let from = arguments.from_turn.unwrap_or(0);
    let id = arguments.session_id;
    call.bridge.reconcile().await?;
    let detail = call
        .bridge
        .with_store(move |store| {
            let session = store.session(&id)?;
            let rows = store.turns(&id, from, TURNS_LOADED)?;
            let (shown, _) = fit_page(rows, TURNS_LOADED as usize, |row| {
                let answer = store.blobs().head_tail(&row.id, BlobKind::Answer, clipped).ok();
                SessionTurn {
                    turn: row.index,
                    turn_id: row.id.clone(),
                    agent: row.agent,
                    status: match row.state {
                        TurnState::Running => TurnStatus::StillRunning,
                        TurnState::Finished => TurnStatus::Finished,
                    },
                    outcome: row.end.as_ref().map(|end| end.outcome),
                    prompt: clip(&row.prompt, clipped),
                    response: answer.map(|preview| preview.text).unwrap_or_default(),
                    response_chars: row.end.as_ref().map_or(0, |end| end.answer_bytes),
                    started_at: utc(row.started_at),
                }
            });
            let turns: Vec<SessionTurn> = shown.into_iter().map(|(_, turn)| turn).collect();
            let next_turn = turns.last().map(|turn| turn.turn + 1).filter(|next| *next < session.turns);
            Ok(SessionDetail { session: SessionSummary::new(&session), turns, next_turn })
        })
        .await?;
    Ok(json_reply(&detail))
}

/// `search_sessions`.
pub async fn search_sessions(mut call: Call) -> Result<CallToolResult> {
    let arguments: SearchSessions = call.parse()?;
    let limit = within("limit", arguments.limit, 10, 1..=50)? as usize;
    if arguments.query.trim().is_empty() || arguments.query.chars().count() > 500 {
        return Err(invalid("`query` must have 1 to 500 characters"));
    }
    let hits = call
        .bridge
        .with_store(move |store| Ok(store.search(&arguments.query, limit)?))
        .await?
        .into_iter()
        .map(|hit| SearchHit {
            bridge_session_id: hit.session_id,
            turn: hit.turn_index,
            title: hit.title,
            snippet: clip(&hit.snippet, 400),
        })
        .collect();
    Ok(json_reply(&SearchResult { hits }))
}
