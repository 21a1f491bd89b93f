//! Relay runs: one row a run, whatever became of it, with its whole record as JSON. The columns beside the record
//! are what lists and limits are made from; the record itself belongs to the relay.

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::audit;
use super::database::{Durability, Store, text_of};
use super::errors::StoreError;
use super::ids::check_id;
use super::rows::{Fault, Listed, field, json, page_size, read_all, read_one, word};

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Somebody drives it, or it waits for its worker's end.
    Running,
    /// Its record is complete.
    Finished,
}

impl RunState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Running, Self::Finished].into_iter().find(|state| state.as_str() == text)
    }
}

/// A run as kept.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// Run id (UUID v4).
    pub id: String,
    /// The run that this one corrects, from the first on; its own id for a first run.
    pub root: String,
    /// 1 for the first correction of a root; 0 for a first run and for a correction that was refused.
    pub correction: u32,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Where it stands.
    pub state: RunState,
    /// The relay's word for what became of it; `RUNNING` while it runs.
    pub status: String,
    /// Name of the backend; empty if the run was refused before one was known.
    pub agent: String,
    /// Folder that was asked for; empty if none was known.
    pub workspace: PathBuf,
    /// Bridge session of its turns, once there is one.
    pub session: Option<String>,
    /// Everything.
    pub record: Value,
}

/// Which runs to list; everything that is `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Only runs that stand here.
    pub state: Option<RunState>,
    /// Only this run and its corrections.
    pub root: Option<String>,
}

const COLUMNS: &str =
    "seq, id, root, correction, created_at, state, status, agent, workspace, session_id, record";

impl Store {
    /// Records a new run. For a correction the number of corrections is counted in the same transaction: `None` if
    /// the root already has `max_corrections`, and then nothing is recorded. Otherwise the correction's number, 0
    /// for a run that is none.
    ///
    /// # Errors
    /// `STORE_BAD_ID`, `STORE_PATH_NOT_UNICODE`, `STORE_DUPLICATE_ID`.
    pub fn insert_run(&self, run: &RunRow, max_corrections: Option<u32>) -> Result<Option<u32>, StoreError> {
        check_id(&run.id)?;
        check_id(&run.root)?;
        let workspace = text_of(&run.workspace)?;
        let now = self.clock.now_ms();
        self.write(Durability::Full, |tx| {
            let correction = match max_corrections {
                None => run.correction,
                Some(most) => {
                    let made: i64 = tx
                        .prepare_cached("SELECT count(*) FROM runs WHERE root = ?1 AND correction > 0")?
                        .query_row([&run.root], |row| row.get(0))?;
                    let made = u32::try_from(made).unwrap_or(u32::MAX);
                    if made >= most {
                        return Ok(None);
                    }
                    made + 1
                }
            };
            let added = tx
                .prepare_cached(
                    "INSERT INTO runs (id, root, correction, created_at, state, status, agent, workspace, session_id,
                         record)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (id) DO NOTHING",
                )?
                .execute(params![
                    run.id,
                    run.root,
                    correction,
                    run.created_at,
                    run.state.as_str(),
                    run.status,
                    run.agent,
                    workspace,
                    run.session,
                    run.record.to_string(),
                ])?;
            if added == 0 {
                return Err(StoreError::DuplicateId { kind: "run", id: run.id.clone() });
            }
            audit_of(tx, run, "run-began", now)?;
            Ok(Some(correction))
        })
    }

    /// Writes a run that is still running; one that has finished stays as it is. Whether it was written.
    ///
    /// # Errors
    /// Those of every write.
    pub fn update_run(&self, run: &RunRow) -> Result<bool, StoreError> {
        let now = self.clock.now_ms();
        self.write(Durability::Full, |tx| {
            let changed = tx
                .prepare_cached(
                    "UPDATE runs SET state = ?2, status = ?3, session_id = ?4, record = ?5
                     WHERE id = ?1 AND state = 'running'",
                )?
                .execute(params![
                    run.id,
                    run.state.as_str(),
                    run.status,
                    run.session,
                    run.record.to_string(),
                ])?;
            if changed > 0 && run.state == RunState::Finished {
                audit_of(tx, run, "run-finished", now)?;
            }
            Ok(changed > 0)
        })
    }

    /// Adds to the record of a run that has finished, and to the audit log what it was. Whether it was written.
    ///
    /// # Errors
    /// Those of every write.
    pub fn amend_run(&self, run: &RunRow, what: &str) -> Result<bool, StoreError> {
        let now = self.clock.now_ms();
        self.write(Durability::Full, |tx| {
            let changed = tx
                .prepare_cached("UPDATE runs SET record = ?2 WHERE id = ?1 AND state = 'finished'")?
                .execute(params![run.id, run.record.to_string()])?;
            if changed > 0 {
                audit_of(tx, run, what, now)?;
            }
            Ok(changed > 0)
        })
    }

    /// One run, if it is known.
    ///
    /// # Errors
    /// `STORE_ROW_CORRUPT`.
    pub fn run(&self, id: &str) -> Result<Option<RunRow>, StoreError> {
        self.read(|connection| by_id(connection, id))
    }

    /// The newest run whose turns came to this conversation of a provider.
    ///
    /// # Errors
    /// `STORE_ROW_CORRUPT`.
    pub fn run_of_conversation(&self, conversation: &str) -> Result<Option<RunRow>, StoreError> {
        self.read(|connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM runs WHERE session_id IN
                     (SELECT session_id FROM native_sessions WHERE native_id = ?1)
                 ORDER BY seq DESC LIMIT 1"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            read_one(statement.query([conversation])?, "the run of conversation", conversation, run_from)
        })
    }

    /// Runs, newest first. `before` is the `next` of the page before; `limit` is at most 500.
    ///
    /// # Errors
    /// `STORE_BAD_CURSOR`.
    pub fn list_runs(
        &self,
        filter: &RunFilter,
        limit: usize,
        before: Option<&str>,
    ) -> Result<Listed<RunRow>, StoreError> {
        let limit = page_size(limit);
        let before: i64 = match before {
            None => i64::MAX,
            Some(cursor) => {
                cursor.parse().map_err(|_| StoreError::BadCursor(cursor.chars().take(80).collect()))?
            }
        };
        let state = match filter.state {
            None => "",
            Some(RunState::Running) => " AND state = 'running'",
            Some(RunState::Finished) => " AND state = 'finished'",
        };
        let root = if filter.root.is_some() { " AND root = ?3" } else { " AND ?3 IS NULL" };
        self.read(|connection| {
            let sql =
                format!("SELECT {COLUMNS} FROM runs WHERE seq < ?1{state}{root} ORDER BY seq DESC LIMIT ?2");
            let mut statement = connection.prepare_cached(&sql)?;
            let (mut last, mut seen) = (None, 0);
            let rows = statement.query(params![before, limit.cast_signed(), filter.root])?;
            let (rows, skipped) = read_all(rows, |row| {
                seen += 1;
                last = field::<i64>(row, "seq").ok();
                run_from(row)
            })?;
            Ok(Listed { rows, skipped, next: last.filter(|_| seen == limit).map(|seq| seq.to_string()) })
        })
    }

    /// Deletes the oldest finished runs beyond the newest `keep`. How many. Their turns,
    /// sessions and audit rows stay.
    pub fn prune_runs(&self, keep: usize) -> Result<usize, StoreError> {
        self.write(Durability::Normal, |tx| {
            Ok(tx
                .prepare_cached(
                    "DELETE FROM runs WHERE state = 'finished' AND seq <=
                         (SELECT seq FROM runs ORDER BY seq DESC LIMIT 1 OFFSET ?1)",
                )?
                .execute([i64::try_from(keep).unwrap_or(i64::MAX)])?)
        })
    }
}

fn by_id(connection: &Connection, id: &str) -> Result<Option<RunRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM runs WHERE id = ?1"))?;
    read_one(statement.query([id])?, "run", id, run_from)
}

fn audit_of(tx: &rusqlite::Transaction<'_>, run: &RunRow, kind: &str, now: i64) -> Result<(), StoreError> {
    let turn: Option<String> = tx
        .prepare_cached("SELECT id FROM turns WHERE session_id = ?1 ORDER BY position DESC LIMIT 1")?
        .query_row([&run.session], |row| row.get(0))
        .optional()?;
    let detail =
        serde_json::json!({ "run": run.id, "root": run.root, "status": run.status, "agent": run.agent });
    audit::add(tx, now, kind, run.session.as_deref(), turn.as_deref(), &detail)
}

fn run_from(row: &Row<'_>) -> Result<RunRow, Fault> {
    Ok(RunRow {
        id: field(row, "id")?,
        root: field(row, "root")?,
        correction: field(row, "correction")?,
        created_at: field(row, "created_at")?,
        state: word(row, "state", RunState::parse)?,
        status: field(row, "status")?,
        agent: field(row, "agent")?,
        workspace: PathBuf::from(field::<String>(row, "workspace")?),
        session: field(row, "session_id")?,
        record: json(row, "record")?.unwrap_or(Value::Null),
    })
}
