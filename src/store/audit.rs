//! The audit trail: what happened to sessions and turns, in order, never changed.
//!
//! Each record carries a digest of itself and of the one before it, and the newest digest is kept once more beside
//! the trail. So a record that was changed, put in or taken out is found, at the end too. Somebody who can write to
//! the database can also make a whole new chain; against that helps a digest that was noted elsewhere
//! ([`Store::verify_audit`] finds it again).

use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::Value;

use super::database::{Durability, Store};
use super::errors::StoreError;
use super::rows::{Listed, field, json, page_size, read_all};
use crate::digest;

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
    /// Digest of this record and of the one before it. None for records older than the chain.
    pub hash: Option<String>,
}

/// A record to add.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Milliseconds since 1970.
    pub at: i64,
    /// What happened.
    pub kind: &'static str,
    /// The session concerned.
    pub session: Option<String>,
    /// The turn concerned.
    pub turn: Option<String>,
    /// Facts; never a prompt, an output or a secret.
    pub detail: Value,
}

/// Which records are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only those of this kind.
    pub kind: Option<String>,
    /// Only those about this session.
    pub session: Option<String>,
    /// Only those about this turn.
    pub turn: Option<String>,
    /// Only those before this position.
    pub before: Option<i64>,
}

/// What the chain says of itself.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditVerdict {
    /// Records in the trail.
    pub records: u64,
    /// Those among them that are older than the chain: nothing can be said about them.
    pub before_chain: u64,
    /// Position of the newest record, 0 if there is none.
    pub last: i64,
    /// Digest of the newest record: note it elsewhere, and later ask for it.
    pub head: Option<String>,
    /// Whether the digest that was asked for is in the trail.
    pub found: Option<bool>,
    /// The first thing that does not hold.
    pub broken: Option<AuditBreak>,
}

impl AuditVerdict {
    /// Of a trail that does not exist yet.
    pub fn of_nothing(noted: Option<&str>) -> Self {
        let found = noted.map(|_| false);
        Self { records: 0, before_chain: 0, last: 0, head: None, found, broken: None }
    }
}

/// Where the chain does not hold.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AuditBreak {
    /// Position of the record.
    pub id: i64,
    /// What is wrong there.
    pub what: String,
}

impl Store {
    /// Adds an audit record of its own. Starts, ends and cancels write theirs themselves.
    pub fn audit(
        &self,
        kind: &'static str,
        session: Option<&str>,
        turn: Option<&str>,
        detail: &Value,
    ) -> Result<(), StoreError> {
        let at = self.clock.now_ms();
        self.write(Durability::Normal, |tx| add(tx, at, kind, session, turn, detail))
    }

    /// Adds several records, all or none.
    pub fn audit_all(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        self.write(Durability::Normal, |tx| {
            entries.iter().try_for_each(|entry| {
                let (session, turn) = (entry.session.as_deref(), entry.turn.as_deref());
                add(tx, entry.at, entry.kind, session, turn, &entry.detail)
            })
        })
    }

    /// The newest records, newest first.
    pub fn audit_rows(&self, filter: &AuditFilter, limit: usize) -> Result<Listed<AuditRow>, StoreError> {
        self.read(|connection| {
            let limit = page_size(limit);
            let mut statement = connection.prepare_cached(
                "SELECT id, at, kind, session_id, turn_id, detail, hash FROM audit
                 WHERE (?1 IS NULL OR kind = ?1) AND (?2 IS NULL OR session_id = ?2)
                   AND (?3 IS NULL OR turn_id = ?3) AND (?4 IS NULL OR id < ?4)
                 ORDER BY id DESC LIMIT ?5",
            )?;
            let wanted = params![
                filter.kind,
                filter.session,
                filter.turn,
                filter.before,
                i64::try_from(limit + 1).unwrap_or(i64::MAX)
            ];
            let (mut rows, skipped) = read_all(statement.query(wanted)?, |row| {
                Ok(AuditRow {
                    id: field(row, "id")?,
                    at: field(row, "at")?,
                    kind: field(row, "kind")?,
                    session: field(row, "session_id")?,
                    turn: field(row, "turn_id")?,
                    detail: json(row, "detail")?.unwrap_or(Value::Null),
                    hash: field(row, "hash")?,
                })
            })?;
            let more = rows.len() > limit;
            rows.truncate(limit);
            let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
            Ok(Listed { rows, skipped, next })
        })
    }

    /// Walks the whole trail. `noted` is a digest that was noted earlier.
    pub fn verify_audit(&self, noted: Option<&str>) -> Result<AuditVerdict, StoreError> {
        self.read(|connection| {
            // One view: others add to the trail meanwhile.
            let view = connection.unchecked_transaction()?;
            verify(&view, noted)
        })
    }
}

/// The newest record that the trail knows of.
struct Head {
    id: i64,
    hash: String,
}

fn head(connection: &Connection) -> rusqlite::Result<Option<Head>> {
    let mut statement = connection.prepare_cached("SELECT id, hash FROM audit_head")?;
    statement.query_row([], |row| Ok(Head { id: row.get(0)?, hash: row.get(1)? })).optional()
}

pub(super) fn add(
    connection: &Connection,
    at: i64,
    kind: &str,
    session: Option<&str>,
    turn: Option<&str>,
    detail: &Value,
) -> Result<(), StoreError> {
    let last = head(connection)?.unwrap_or(Head { id: 0, hash: String::new() });
    let detail = detail.to_string();
    // What was put in behind our back does not stop work; it is found by a verification.
    let highest: Option<i64> =
        connection.prepare_cached("SELECT max(id) FROM audit")?.query_row([], |row| row.get(0))?;
    let id = highest.unwrap_or(0).max(last.id) + 1;
    let hash = link(&last.hash, id, at, kind, session, turn, &detail);
    connection
        .prepare_cached(
            "INSERT INTO audit (id, at, kind, session_id, turn_id, detail, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![id, at, kind, session, turn, detail, hash])?;
    connection
        .prepare_cached("INSERT OR REPLACE INTO audit_head (one, id, hash) VALUES (1, ?1, ?2)")?
        .execute(params![id, hash])?;
    Ok(())
}

/// The digest of a record that follows the one with the digest `before`.
fn link(
    before: &str,
    id: i64,
    at: i64,
    kind: &str,
    session: Option<&str>,
    turn: Option<&str>,
    detail: &str,
) -> String {
    let record = serde_json::json!([before, id, at, kind, session, turn, detail]);
    digest::of_bytes(record.to_string().as_bytes())
}

fn verify(connection: &Connection, noted: Option<&str>) -> Result<AuditVerdict, StoreError> {
    let mut verdict = AuditVerdict::of_nothing(noted);
    let mut statement = connection
        .prepare("SELECT id, at, kind, session_id, turn_id, detail, hash FROM audit ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        verdict.records += 1;
        verdict.last = row.get(0)?;
        let what = match read(row, verdict.head.as_deref().unwrap_or_default()) {
            Err(error) => Some(format!("it cannot be read: {error}")),
            Ok((None, _)) if verdict.head.is_none() => {
                verdict.before_chain += 1;
                None
            }
            Ok((None, _)) => Some("it carries no digest: it was put in".to_owned()),
            Ok((Some(hash), expected)) => {
                let changed = hash != expected;
                if noted == Some(hash.as_str()) {
                    verdict.found = Some(true);
                }
                verdict.head = Some(hash);
                changed.then(|| {
                    "it was changed, or records before it were changed, put in or taken out".to_owned()
                })
            }
        };
        if let Some(what) = what {
            verdict.broken.get_or_insert(AuditBreak { id: verdict.last, what });
        }
    }
    let recorded = head(connection)?.unwrap_or(Head { id: 0, hash: String::new() });
    let same = recorded.id == verdict.last && recorded.hash == verdict.head.as_deref().unwrap_or_default();
    if verdict.broken.is_none() && !same {
        let what = if recorded.id > verdict.last {
            format!("the trail ends here, and record {} was there", recorded.id)
        } else {
            "it is not the end that was recorded".to_owned()
        };
        verdict.broken = Some(AuditBreak { id: verdict.last, what });
    }
    Ok(verdict)
}

/// The digest that a record carries, and the one it must have.
fn read(row: &rusqlite::Row<'_>, before: &str) -> rusqlite::Result<(Option<String>, String)> {
    let (session, turn): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
    let (kind, detail): (String, String) = (row.get(2)?, row.get(5)?);
    let expected =
        link(before, row.get(0)?, row.get(1)?, &kind, session.as_deref(), turn.as_deref(), &detail);
    Ok((row.get(6)?, expected))
}
