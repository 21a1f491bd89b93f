//! Sessions as read and listed. The figures of a list stand on the session's own row, so a list
//! never looks at turns and its cost does not grow with the number of records.

use std::path::PathBuf;

use rusqlite::{Row, params};

use super::SessionRow;
use super::database::Store;
use super::errors::StoreError;
use super::rows::{Fault, Listed, agents, count, field, page_size, read_all, read_one};

const COLUMNS: &str = "id, title, cwd, created_at, updated_at, revision, turns, agents";

/// Newest first; the row value comparison is answered by the index `sessions_by_update`.
pub(super) const LIST: &str =
    "SELECT id, title, cwd, created_at, updated_at, revision, turns, agents FROM sessions
     WHERE (updated_at, id) < (?1, ?2) ORDER BY updated_at DESC, id DESC LIMIT ?3";

impl Store {
    /// One session.
    ///
    /// # Errors
    /// `SESSION_NOT_FOUND`, `STORE_ROW_CORRUPT`.
    pub fn session(&self, id: &str) -> Result<SessionRow, StoreError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached(&format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1"))?;
            read_one(statement.query([id])?, "session", id, session_from)?
                .ok_or_else(|| StoreError::SessionNotFound(id.to_owned()))
        })
    }

    /// Sessions, the most recently used first. `before` is the `next` of the page before; `limit`
    /// is at most 500.
    ///
    /// # Errors
    /// `STORE_BAD_CURSOR`.
    pub fn list_sessions(
        &self,
        limit: usize,
        before: Option<&str>,
    ) -> Result<Listed<SessionRow>, StoreError> {
        let limit = page_size(limit);
        let (updated_at, id) = match before {
            None => (i64::MAX, "\u{10ffff}"),
            Some(cursor) => parse_cursor(cursor)?,
        };
        self.read(|connection| {
            let mut statement = connection.prepare_cached(LIST)?;
            let mut last = None;
            let mut seen = 0;
            let rows = statement.query(params![updated_at, id, limit.cast_signed()])?;
            let (rows, skipped) = read_all(rows, |row| {
                seen += 1;
                last = cursor_of(row).ok();
                session_from(row)
            })?;
            Ok(Listed { rows, skipped, next: last.filter(|_| seen == limit) })
        })
    }
}

fn session_from(row: &Row<'_>) -> Result<SessionRow, Fault> {
    Ok(SessionRow {
        id: field(row, "id")?,
        title: field(row, "title")?,
        cwd: PathBuf::from(field::<String>(row, "cwd")?),
        created_at: field(row, "created_at")?,
        updated_at: field(row, "updated_at")?,
        revision: count(row, "revision")?,
        turns: count(row, "turns")?,
        agents: agents(row, "agents")?,
    })
}

fn cursor_of(row: &Row<'_>) -> Result<String, Fault> {
    Ok(format!("{}/{}", field::<i64>(row, "updated_at")?, field::<String>(row, "id")?))
}

fn parse_cursor(cursor: &str) -> Result<(i64, &str), StoreError> {
    cursor
        .split_once('/')
        .and_then(|(at, id)| Some((at.parse().ok()?, id)))
        .ok_or_else(|| StoreError::BadCursor(cursor.chars().take(80).collect()))
}
