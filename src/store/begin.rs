//! The start of a turn: every rule is checked and everything is recorded in one transaction,
//! before the worker is started.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::database::{Durability, Store, text_of};
use super::errors::StoreError;
use super::ids::check_id;
use super::rows::stored;
use super::{NewTurn, TurnRow, audit, turns};

/// What is about to be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, already free of secrets and of caller text.
    pub args: Vec<String>,
    /// Names of the environment variables it gets; never their values.
    pub env_names: Vec<String>,
    /// Milliseconds since 1970.
    pub at: i64,
}

/// What became of a start.
#[derive(Clone, Debug, PartialEq)]
pub enum Begin {
    /// The turn is recorded as running; the worker may be started.
    Started {
        /// Position in the session.
        index: u64,
    },
    /// The same request was recorded before under this idempotency key; nothing may be started.
    Same(Box<TurnRow>),
}

/// Longest title, in characters.
const MAX_TITLE: usize = 200;

impl Store {
    /// Records a turn as running. At most `max_concurrent` turns run in one state folder, and one
    /// in a session.
    ///
    /// # Errors
    /// In the order of the checks: `STORE_BAD_ID`, `STORE_PATH_NOT_UNICODE`, `IDEMPOTENCY_CONFLICT`,
    /// `SESSION_NOT_FOUND` or `STORE_DUPLICATE_ID`, `SESSION_BUSY`, `SESSION_CWD_MISMATCH`,
    /// `SESSION_REVISION_MISMATCH`, `TOO_MANY_TURNS`. Nothing is recorded then.
    pub fn begin_turn(
        &self,
        turn: &NewTurn,
        attempt: &Attempt,
        max_concurrent: usize,
    ) -> Result<Begin, StoreError> {
        check_id(&turn.id)?;
        check_id(&turn.session_id)?;
        let cwd = text_of(&turn.cwd)?;
        let now = self.clock.now_ms();
        self.write(Durability::Full, |tx| {
            if let Some(earlier) = same_key(tx, turn)? {
                return Ok(Begin::Same(Box::new(earlier)));
            }
            let index = if turn.new_session {
                create_session(tx, turn, cwd)?;
                0
            } else {
                check_session(tx, turn)?
            };
            check_concurrency(tx, max_concurrent)?;
            let seq = insert_turn(tx, turn, cwd, index)?;
            insert_attempt(tx, seq, attempt)?;
            join_session(tx, turn, now)?;
            audit::add(
                tx,
                now,
                "turn-began",
                Some(&turn.session_id),
                Some(&turn.id),
                &json!({ "agent": turn.agent, "sandbox": turn.sandbox, "by": turn.requested_by }),
            )?;
            Ok(Begin::Started { index: u64::try_from(index).unwrap_or_default() })
        })
    }

    /// What was started for a turn, if the turn is known.
    ///
    /// # Errors
    /// `STORE_ROW_CORRUPT`.
    pub fn attempt(&self, turn: &str) -> Result<Option<Attempt>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT a.program, a.args, a.env_names, a.at FROM attempts a
                 JOIN turns t ON t.seq = a.turn WHERE t.id = ?1 ORDER BY a.number DESC LIMIT 1",
            )?;
            super::rows::read_one(statement.query([turn])?, "attempt of", turn, |row| {
                Ok(Attempt {
                    program: PathBuf::from(super::rows::field::<String>(row, "program")?),
                    args: super::rows::json(row, "args")?.unwrap_or_default(),
                    env_names: super::rows::json(row, "env_names")?.unwrap_or_default(),
                    at: super::rows::field(row, "at")?,
                })
            })
        })
    }
}

fn same_key(connection: &Connection, turn: &NewTurn) -> Result<Option<TurnRow>, StoreError> {
    let Some(key) = &turn.idempotency_key else { return Ok(None) };
    let earlier: Option<(String, String)> = connection
        .prepare_cached("SELECT id, request_sha256 FROM turns WHERE idempotency_key = ?1")?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match earlier {
        None => Ok(None),
        Some((id, hash)) if hash == turn.request_sha256 => turns::by_id(connection, &id).map(Some),
        Some((id, _)) => Err(StoreError::IdempotencyConflict { turn: id }),
    }
}

fn create_session(connection: &Connection, turn: &NewTurn, cwd: &str) -> Result<(), StoreError> {
    if turn.expected_revision != 0 {
        return Err(StoreError::RevisionMismatch {
            session: turn.session_id.clone(),
            expected: turn.expected_revision,
            found: 0,
        });
    }
    let title: String = turn.title.chars().take(MAX_TITLE).collect();
    let added = connection
        .prepare_cached(
            "INSERT INTO sessions (id, title, cwd, created_at, updated_at, revision, turns, agents)
             VALUES (?1, ?2, ?3, ?4, ?4, 0, 0, '') ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![turn.session_id, title, cwd, turn.started_at])?;
    if added == 0 {
        return Err(StoreError::DuplicateId { kind: "session", id: turn.session_id.clone() });
    }
    Ok(())
}

/// Checks the session that a turn wants to join and returns the turn's position in it.
fn check_session(connection: &Connection, turn: &NewTurn) -> Result<i64, StoreError> {
    let session = &turn.session_id;
    let (cwd, revision, turns): (String, i64, i64) = connection
        .prepare_cached("SELECT cwd, revision, turns FROM sessions WHERE id = ?1")?
        .query_row([session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?
        .ok_or_else(|| StoreError::SessionNotFound(session.clone()))?;
    let running: Option<String> = connection
        .prepare_cached("SELECT id FROM turns WHERE session_id = ?1 AND state = 'running'")?
        .query_row([session], |row| row.get(0))
        .optional()?;
    if let Some(running) = running {
        return Err(StoreError::SessionBusy { session: session.clone(), turn: running });
    }
    if Path::new(&cwd) != turn.cwd {
        return Err(StoreError::CwdMismatch {
            session: session.clone(),
            recorded: PathBuf::from(cwd),
            asked: turn.cwd.clone(),
        });
    }
    if revision != stored(turn.expected_revision) {
        return Err(StoreError::RevisionMismatch {
            session: session.clone(),
            expected: turn.expected_revision,
            found: u64::try_from(revision).unwrap_or_default(),
        });
    }
    Ok(turns)
}

fn check_concurrency(connection: &Connection, max: usize) -> Result<(), StoreError> {
    let running: i64 = connection
        .prepare_cached("SELECT count(*) FROM turns WHERE state = 'running'")?
        .query_row([], |row| row.get(0))?;
    let running = u64::try_from(running).unwrap_or_default();
    let max = u64::try_from(max).unwrap_or(u64::MAX);
    if running >= max { Err(StoreError::TooManyTurns { running, max }) } else { Ok(()) }
}

fn insert_turn(connection: &Connection, turn: &NewTurn, cwd: &str, index: i64) -> Result<i64, StoreError> {
    let added = connection
        .prepare_cached(
            "INSERT INTO turns (id, session_id, position, state, agent, model, sandbox, cwd, continuity,
                 cross_agent_context, resume, outbound_sha256, idempotency_key, request_sha256,
                 requested_by, started_at, timeout_ms)
             VALUES (?1, ?2, ?3, 'running', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
             ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            turn.id,
            turn.session_id,
            index,
            turn.agent.as_str(),
            turn.model,
            turn.sandbox.as_str(),
            cwd,
            turn.continuity.as_str(),
            turn.cross_agent_context,
            turn.resume,
            turn.outbound_sha256,
            turn.idempotency_key,
            turn.request_sha256,
            turn.requested_by,
            turn.started_at,
            stored(turn.timeout_ms),
        ])?;
    if added == 0 {
        return Err(StoreError::DuplicateId { kind: "turn", id: turn.id.clone() });
    }
    let seq = connection.last_insert_rowid();
    connection
        .prepare_cached("INSERT INTO prompts (turn, text) VALUES (?1, ?2)")?
        .execute(params![seq, turn.prompt])?;
    Ok(seq)
}

fn insert_attempt(connection: &Connection, seq: i64, attempt: &Attempt) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO attempts (turn, number, at, program, args, env_names)
             VALUES (?1, 1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            seq,
            attempt.at,
            text_of(&attempt.program)?,
            json!(attempt.args).to_string(),
            json!(attempt.env_names).to_string(),
        ])?;
    Ok(())
}

fn join_session(connection: &Connection, turn: &NewTurn, now: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE sessions SET turns = turns + 1, updated_at = max(created_at, ?2), agents = CASE
                 WHEN agents = '' THEN ?3
                 WHEN instr(',' || agents || ',', ',' || ?3 || ',') THEN agents
                 ELSE agents || ',' || ?3 END
             WHERE id = ?1",
        )?
        .execute(params![turn.session_id, now, turn.agent.as_str()])?;
    Ok(())
}
