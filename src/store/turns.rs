//! Turns as read and listed, and the line that says what a running one is doing.

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde_json::Value;

use super::database::{Durability, Store};
use super::errors::StoreError;
use super::rows::{Fault, Listed, Skipped, count, field, json, page_size, read_all, read_one, stored, word};
use super::{BlobKind, Continuity, TurnEnd, TurnRow, TurnState};
use crate::agents::Outcome;
use crate::policy::{AgentId, Sandbox};

/// Which turns to list; everything that is `None` matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnFilter {
    /// Only turns that stand here.
    pub state: Option<TurnState>,
    /// Only turns of this backend.
    pub agent: Option<AgentId>,
    /// Only turns of this session.
    pub session: Option<String>,
}

/// A page of one session's turns, with whole prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnPage {
    /// In order of their index.
    pub rows: Vec<TurnRow>,
    /// What could not be read.
    pub skipped: Vec<Skipped>,
    /// First index of the next page; `None` at the end.
    pub next_index: Option<u64>,
}

/// Prompts in one page of [`Store::turns`] stop growing here, so that memory stays bounded.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// Longest activity line and cancel reason that are kept, in characters.
const MAX_LINE: usize = 500;

fn select(prompt: &str) -> String {
    format!(
        "SELECT t.*, {prompt} AS prompt, a.line AS activity FROM turns t
         LEFT JOIN prompts p ON p.turn = t.seq LEFT JOIN activities a ON a.turn = t.seq"
    )
}

/// Whole prompts.
fn select_whole() -> String {
    select("p.text")
}

/// Prompts as lists show them.
fn select_short() -> String {
    select("substr(p.text, 1, 2000)")
}

impl Store {
    /// One turn.
    ///
    /// # Errors
    /// `TURN_NOT_FOUND`, `STORE_ROW_CORRUPT`.
    pub fn turn(&self, id: &str) -> Result<TurnRow, StoreError> {
        self.read(|connection| by_id(connection, id))
    }

    /// The turn that was started under an idempotency key, if there is one.
    ///
    /// # Errors
    /// `STORE_ROW_CORRUPT`.
    pub fn turn_by_key(&self, key: &str) -> Result<Option<TurnRow>, StoreError> {
        self.read(|connection| {
            let sql = format!("{} WHERE t.idempotency_key = ?1", select_whole());
            let mut statement = connection.prepare_cached(&sql)?;
            read_one(statement.query([key])?, "the turn of key", key, turn_from)
        })
    }

    /// The turn at a position of a session.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `TURN_NOT_FOUND`, `STORE_ROW_CORRUPT`.
    pub fn turn_at(&self, session: &str, index: u64) -> Result<TurnRow, StoreError> {
        self.read(|connection| {
            check_session(connection, session)?;
            let sql = format!("{} WHERE t.session_id = ?1 AND t.position = ?2", select_whole());
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query(params![session, stored(index)])?;
            read_one(rows, "a turn of session", session, turn_from)?
                .ok_or_else(|| StoreError::TurnIndexNotFound { session: session.to_owned(), index })
        })
    }

    /// A session's turns from `from_index` on, in order. A page has at most 500 turns and about
    /// 8 MiB of prompts.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`.
    pub fn turns(&self, session: &str, from_index: u64, limit: usize) -> Result<TurnPage, StoreError> {
        let limit = page_size(limit);
        self.read(|connection| {
            check_session(connection, session)?;
            let sql = format!(
                "{} WHERE t.session_id = ?1 AND t.position >= ?2 ORDER BY t.position",
                select_whole()
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query(params![session, stored(from_index)])?;
            let mut page = TurnPage { rows: Vec::new(), skipped: Vec::new(), next_index: None };
            let mut bytes = 0;
            while let Some(row) = rows.next()? {
                if page.rows.len() + page.skipped.len() == limit || bytes > MAX_PAGE_BYTES {
                    page.next_index = count(row, "position").ok();
                    break;
                }
                match turn_from(row) {
                    Ok(turn) => {
                        bytes += turn.prompt.len();
                        page.rows.push(turn);
                    }
                    Err(reason) => {
                        page.skipped.push(Skipped { id: field(row, "id").unwrap_or_default(), reason });
                    }
                }
            }
            Ok(page)
        })
    }

    /// Turns over all sessions, the newest start first, prompts shortened. `before` is the `next`
    /// of the page before; `limit` is at most 500.
    ///
    /// # Errors
    /// `STORE_BAD_CURSOR`.
    pub fn list_turns(
        &self,
        filter: &TurnFilter,
        limit: usize,
        before: Option<&str>,
    ) -> Result<Listed<TurnRow>, StoreError> {
        let limit = page_size(limit);
        let before: i64 = match before {
            None => i64::MAX,
            Some(cursor) => {
                cursor.parse().map_err(|_| StoreError::BadCursor(cursor.chars().take(80).collect()))?
            }
        };
        let agent = filter.agent.map(AgentId::as_str);
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&list_sql(filter))?;
            let rows = statement.query(params![before, limit.cast_signed(), agent, filter.session])?;
            let (mut last, mut seen) = (None, 0);
            let (rows, skipped) = read_all(rows, |row| {
                seen += 1;
                last = field::<i64>(row, "seq").ok();
                turn_from(row)
            })?;
            let next = last.filter(|_| seen == limit).map(|seq| seq.to_string());
            Ok(Listed { rows, skipped, next })
        })
    }

    /// Every turn recorded as running, oldest first, prompts shortened, at most 500. Whether its
    /// supervisor still lives only the session's lock can tell.
    pub fn running_turns(&self) -> Result<Listed<TurnRow>, StoreError> {
        self.read(|connection| {
            let sql = format!("{} WHERE t.state = 'running' ORDER BY +t.seq LIMIT 500", select_short());
            let mut statement = connection.prepare_cached(&sql)?;
            let (rows, skipped) = read_all(statement.query([])?, turn_from)?;
            Ok(Listed { rows, skipped, next: None })
        })
    }

    /// Whether the stored answer of a finished turn is still as long as it was when the end was recorded.
    ///
    /// # Errors
    /// `BLOB_MISSING`, `BLOB_INCOMPLETE`.
    pub fn check_answer(&self, turn: &TurnRow) -> Result<(), StoreError> {
        let Some(recorded) = turn.end.as_ref().map(|end| end.answer_bytes) else { return Ok(()) };
        match self.blobs().size(&turn.id, BlobKind::Answer) {
            Ok(found) if found == recorded => Ok(()),
            Ok(found) => Err(StoreError::BlobIncomplete { turn: turn.id.clone(), found, recorded }),
            Err(StoreError::BlobMissing { .. }) if recorded == 0 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Says what a running turn is doing now. After its end this changes nothing.
    ///
    /// # Errors
    /// `TURN_NOT_FOUND`.
    pub fn set_activity(&self, turn: &str, line: &str) -> Result<(), StoreError> {
        let line = one_line(line);
        self.write(Durability::Normal, |tx| {
            let (seq, state) = key_of(tx, turn)?;
            if state == "running" {
                tx.prepare_cached(
                    "INSERT INTO activities (turn, line) VALUES (?1, ?2)
                     ON CONFLICT (turn) DO UPDATE SET line = excluded.line",
                )?
                .execute(params![seq, line])?;
            }
            Ok(())
        })
    }
}

/// The statement of [`Store::list_turns`]; each combination has its own text so that the indexes
/// fit. `?1` cursor, `?2` limit, `?3` agent, `?4` session.
pub(super) fn list_sql(filter: &TurnFilter) -> String {
    let state = match filter.state {
        None => "",
        Some(TurnState::Running) => " AND t.state = 'running'",
        Some(TurnState::Finished) => " AND t.state = 'finished'",
    };
    // Every parameter must occur, or binding it is an error. The plus and the index by name keep
    // SQLite from walking all turns of an agent where a session's or the running ones are few.
    let agent = match (filter.agent, &filter.session) {
        (None, _) => " AND ?3 IS NULL",
        (Some(_), None) => " AND t.agent = ?3",
        (Some(_), Some(_)) => " AND +t.agent = ?3",
    };
    let session = if filter.session.is_some() { " AND t.session_id = ?4" } else { " AND ?4 IS NULL" };
    let select = match filter.state {
        Some(TurnState::Running) => {
            select_short().replace("FROM turns t", "FROM turns t INDEXED BY one_running_turn")
        }
        _ => select_short(),
    };
    format!("{select} WHERE t.seq < ?1{state}{agent}{session} ORDER BY t.seq DESC LIMIT ?2")
}

/// A line as it is kept: control characters become blanks, and it is cut.
pub(super) fn one_line(text: &str) -> String {
    text.chars().take(MAX_LINE).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Row id and state of a turn.
pub(super) fn key_of(connection: &Connection, turn: &str) -> Result<(i64, String), StoreError> {
    connection
        .prepare_cached("SELECT seq, state FROM turns WHERE id = ?1")?
        .query_row([turn], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .ok_or_else(|| StoreError::TurnNotFound(turn.to_owned()))
}

pub(super) fn by_id(connection: &Connection, id: &str) -> Result<TurnRow, StoreError> {
    let mut statement = connection.prepare_cached(&format!("{} WHERE t.id = ?1", select_whole()))?;
    read_one(statement.query([id])?, "turn", id, turn_from)?
        .ok_or_else(|| StoreError::TurnNotFound(id.to_owned()))
}

fn check_session(connection: &Connection, session: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?
        .query_row([session], |_| Ok(()))
        .optional()?
        .ok_or_else(|| StoreError::SessionNotFound(session.to_owned()))
}

fn turn_from(row: &Row<'_>) -> Result<TurnRow, Fault> {
    let state = word(row, "state", |text| match text {
        "running" => Some(TurnState::Running),
        "finished" => Some(TurnState::Finished),
        _ => None,
    })?;
    let native_id: Option<String> = field(row, "native_id")?;
    let end = match state {
        TurnState::Running => None,
        TurnState::Finished => Some(end_from(row, native_id.clone())?),
    };
    Ok(TurnRow {
        id: field(row, "id")?,
        session_id: field(row, "session_id")?,
        index: count(row, "position")?,
        state,
        agent: word(row, "agent", AgentId::parse)?,
        model: field(row, "model")?,
        sandbox: word(row, "sandbox", Sandbox::parse)?,
        cwd: PathBuf::from(field::<String>(row, "cwd")?),
        continuity: word(row, "continuity", Continuity::parse)?,
        cross_agent_context: field(row, "cross_agent_context")?,
        resume: field(row, "resume")?,
        native_id,
        prompt: field(row, "prompt")?,
        outbound_sha256: field(row, "outbound_sha256")?,
        idempotency_key: field(row, "idempotency_key")?,
        request_sha256: field(row, "request_sha256")?,
        requested_by: field(row, "requested_by")?,
        started_at: field(row, "started_at")?,
        timeout_ms: count(row, "timeout_ms")?,
        activity: field(row, "activity")?,
        cancel_requested: field(row, "cancel_requested")?,
        end,
    })
}

fn end_from(row: &Row<'_>, native_id: Option<String>) -> Result<TurnEnd, Fault> {
    Ok(TurnEnd {
        outcome: word(row, "outcome", |text| {
            let text: StrDeserializer<'_, ValueError> = text.into_deserializer();
            Outcome::deserialize(text).ok()
        })?,
        detail: field(row, "detail")?,
        code: field(row, "code")?,
        exit_code: field(row, "exit_code")?,
        signal: field(row, "signal")?,
        duration_ms: count(row, "duration_ms")?,
        answer_bytes: count(row, "answer_bytes")?,
        stderr_bytes: count(row, "stderr_bytes")?,
        native_id,
        tokens: json(row, "tokens")?,
        cost_usd: field(row, "cost_usd")?,
        meta: json(row, "meta")?.unwrap_or(Value::Null),
    })
}
