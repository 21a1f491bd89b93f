//! The audit trail: what happened to sessions and turns, in order, never changed.

use rusqlite::{Connection, params};
use serde_json::Value;

use super::database::{Durability, Store};
use super::errors::StoreError;
use super::rows::{Listed, field, json, page_size, read_all};

/// One audit record.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct AuditRow {
    /// Position in the trail.
    pub id: i64,
    /// Milliseconds since 1970.
    pub at: i64,
    /// What happened, for instance `turn-began`.
    pub kind: String,
    /// The session concerned.
    pub session: Option<String>,
    /// The turn concerned.
    pub turn: Option<String>,
    /// Facts; never a prompt, an output or a secret.
    pub detail: Value,
}

impl Store {
    /// Adds an audit record of its own. Starts, ends and cancels write theirs themselves.
    pub fn audit(
        &self,
        kind: &str,
        session: Option<&str>,
        turn: Option<&str>,
        detail: &Value,
    ) -> Result<(), StoreError> {
        let at = self.clock.now_ms();
        self.write(Durability::Normal, |tx| add(tx, at, kind, session, turn, detail))
    }

    /// The newest records, newest first.
    pub fn audit_rows(&self, limit: usize) -> Result<Listed<AuditRow>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, at, kind, session_id, turn_id, detail FROM audit ORDER BY id DESC LIMIT ?1",
            )?;
            let (rows, skipped) = read_all(statement.query([page_size(limit).cast_signed()])?, |row| {
                Ok(AuditRow {
                    id: field(row, "id")?,
                    at: field(row, "at")?,
                    kind: field(row, "kind")?,
                    session: field(row, "session_id")?,
                    turn: field(row, "turn_id")?,
                    detail: json(row, "detail")?.unwrap_or(Value::Null),
                })
            })?;
            Ok(Listed { rows, skipped, next: None })
        })
    }
}

pub(super) fn add(
    connection: &Connection,
    at: i64,
    kind: &str,
    session: Option<&str>,
    turn: Option<&str>,
    detail: &Value,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO audit (at, kind, session_id, turn_id, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    statement.execute(params![at, kind, session, turn, detail.to_string()])?;
    Ok(())
}
