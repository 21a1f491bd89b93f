//! Tools that list, show and search sessions.

use rmcp::model::CallToolResult;

use super::arguments::{GetSession, ListSessions, SearchSessions};
use super::outputs::{SearchHit, SearchResult, SessionDetail, SessionList, SessionSummary, SessionTurn, utc};
use super::turns::{SKIPPED_SHOWN, fit_page, fitting, json_len};
use super::{Call, checked_id, invalid, within};
use crate::bridge::context_block::clip;
use crate::bridge::view::TurnStatus;
use crate::error::Result;
use crate::mcp::reply::json_reply;
use crate::store::{BlobKind, TurnRow, TurnState};

/// Turns that are loaded for one reply of `get_session`.
const TURNS_LOADED: usize = 50;

/// Most bytes of one turn in `get_session`, as JSON. It travels twice in a frame, once as JSON in JSON.
const LARGEST_TURN: usize = 300 << 10;

/// `list_sessions`.
pub async fn list_sessions(mut call: Call) -> Result<CallToolResult> {
    let arguments: ListSessions = call.parse()?;
    let limit = within("limit", arguments.limit, 20, 1..=200)? as usize;
    let list = call
        .bridge
        .with_store(move |store| {
            let (sessions, skipped, next_cursor) = fit_page(limit, SessionSummary::new, |limit| {
                Ok(store.list_sessions(limit, arguments.cursor.as_deref())?)
            })?;
            Ok(SessionList { sessions, skipped, next_cursor })
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
            let mut page = store.turns(&id, from, TURNS_LOADED)?;
            page.skipped.truncate(SKIPPED_SHOWN);
            let show = |row: &TurnRow, clipped: usize| {
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
            };
            let mut turns: Vec<SessionTurn> = page.rows.iter().map(|row| show(row, clipped)).collect();
            if let (Some(first), Some(row)) = (turns.first_mut(), page.rows.first()) {
                // One turn is always shown, so it has to fit, however much its text grows in JSON.
                let mut clipped = clipped;
                while json_len(first) > LARGEST_TURN && clipped > 1 {
                    clipped /= 2;
                    *first = show(row, clipped);
                }
            }
            turns.truncate(fitting(&turns));
            let next_turn = turns.last().map(|turn| turn.turn + 1).filter(|next| *next < session.turns);
            Ok(SessionDetail {
                session: SessionSummary::new(&session),
                turns,
                skipped: page.skipped,
                next_turn,
            })
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
        .rows
        .into_iter()
        .map(|hit| SearchHit {
            bridge_session_id: hit.session,
            turn: hit.index,
            turn_id: hit.turn,
            snippet: clip(&hit.snippet, 400),
        })
        .collect();
    Ok(json_reply(&SearchResult { hits }))
}
