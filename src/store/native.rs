//! Provider sessions, each with the policy of the run that returned its id.

use std::path::PathBuf;

use rusqlite::{Connection, Row, params};

use super::NativeSession;
use super::database::{Durability, Store};
use super::errors::StoreError;
use super::rows::{Fault, Listed, count, field, json, read_all, read_one, word};
use crate::policy::{AgentId, Sandbox};

const SELECT: &str = "SELECT native_id AS id, agent, session_id, cwd, sandbox, model, last_seen_turn,
    token_total, cost_total FROM native_sessions WHERE session_id = ?1";

impl Store {
    /// The provider session that an agent's newest turn with an id returned in this session. It is
    /// always one of this very session, never "the newest" of a folder.
    ///
    /// # Errors
    /// `STORE_ROW_CORRUPT`.
    pub fn native_session(&self, session: &str, agent: AgentId) -> Result<Option<NativeSession>, StoreError> {
        self.read(|connection| {
            let sql = format!("{SELECT} AND agent = ?2 ORDER BY returned_by DESC LIMIT 1");
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query(params![session, agent.as_str()])?;
            read_one(rows, "native session of", session, native_from)
        })
    }

    /// Forgets a provider session that its provider does not know any more.
    ///
    /// # Errors
    /// As any write.
    pub fn forget_native_session(&self, agent: AgentId, id: &str) -> Result<(), StoreError> {
        self.write(Durability::Full, |tx| {
            tx.execute(
                "DELETE FROM native_sessions WHERE agent = ?1 AND native_id = ?2",
                params![agent.as_str(), id],
            )?;
            Ok(())
        })
    }

    /// All provider sessions of a session, the most recently returned first.
    pub fn native_sessions(&self, session: &str) -> Result<Listed<NativeSession>, StoreError> {
        self.read(|connection| {
            let sql = format!("{SELECT} ORDER BY returned_by DESC LIMIT 500");
            let mut statement = connection.prepare_cached(&sql)?;
            let (rows, skipped) = read_all(statement.query([session])?, native_from)?;
            Ok(Listed { rows, skipped, next: None })
        })
    }
}

/// Records what a turn returned. The policy is copied from the turn's own row, so that it can only
/// be the policy the run had; what it has seen ends with that very turn.
pub(super) fn record(
    connection: &Connection,
    turn_seq: i64,
    native: &NativeSession,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO native_sessions (session_id, agent, native_id, returned_by, cwd, sandbox, model,
             last_seen_turn, token_total, cost_total)
         SELECT session_id, agent, ?2, position, cwd, sandbox, model, position, ?3, ?4 FROM turns WHERE seq = ?1
         ON CONFLICT (session_id, agent, native_id) DO UPDATE SET
             returned_by = excluded.returned_by, cwd = excluded.cwd, sandbox = excluded.sandbox,
             model = excluded.model, last_seen_turn = excluded.last_seen_turn,
             token_total = excluded.token_total, cost_total = excluded.cost_total",
    )?;
    let tokens = native.token_total.and_then(|tokens| serde_json::to_string(&tokens).ok());
    statement.execute(params![turn_seq, native.id, tokens, native.cost_total])?;
    Ok(())
}

fn native_from(row: &Row<'_>) -> Result<NativeSession, Fault> {
    Ok(NativeSession {
        id: field(row, "id")?,
        agent: word(row, "agent", AgentId::parse)?,
        session_id: field(row, "session_id")?,
        cwd: PathBuf::from(field::<String>(row, "cwd")?),
        sandbox: word(row, "sandbox", Sandbox::parse)?,
        model: field(row, "model")?,
        last_seen_turn: count(row, "last_seen_turn")?,
        token_total: json(row, "token_total")?,
        cost_total: field(row, "cost_total")?,
    })
}
