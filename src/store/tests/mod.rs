//! The store as its users see it. This file makes turns; the others say what must hold.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod audit;
mod lists;
mod observations;
mod opening;
mod processes;
mod questions;
mod searching;
mod turns;

use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::context::Clock;
use crate::error::Coded as _;

const NOW: i64 = 1_900_000_000_000;

fn id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Clock::Fixed(NOW)).unwrap();
    (folder, store)
}

fn code<T: std::fmt::Debug>(result: Result<T, StoreError>) -> &'static str {
    result.unwrap_err().doc().code
}

fn cwd() -> PathBuf {
    PathBuf::from(if cfg!(windows) { "C:\\data\\app" } else { "/data/app" })
}

fn first_turn() -> NewTurn {
    NewTurn {
        id: id(),
        session_id: id(),
        new_session: true,
        title: "Fix the parser".into(),
        cwd: cwd(),
        expected_revision: 0,
        agent: AgentId::Codex,
        model: Some("some-model".into()),
        sandbox: Sandbox::ReadOnly,
        continuity: Continuity::New,
        cross_agent_context: false,
        resume: None,
        prompt: "Fix the parser\nplease".into(),
        outbound_sha256: "ab".repeat(32),
        idempotency_key: None,
        request_sha256: "cd".repeat(32),
        requested_by: "tests".into(),
        started_at: NOW,
        timeout_ms: 600_000,
    }
}

fn next_turn(earlier: &NewTurn, revision: u64) -> NewTurn {
    NewTurn { id: id(), new_session: false, expected_revision: revision, ..earlier.clone() }
}

fn attempt() -> Attempt {
    Attempt {
        program: cwd().join("codex"),
        args: vec!["exec".into(), "-".into()],
        env_names: vec!["PATH".into()],
        at: NOW,
    }
}

fn begin(store: &Store, turn: &NewTurn) -> Result<Begin, StoreError> {
    store.begin_turn(turn, &attempt(), 8)
}

fn success() -> TurnEnd {
    TurnEnd {
        outcome: Outcome::Success,
        detail: None,
        code: None,
        exit_code: Some(0),
        signal: None,
        duration_ms: 1234,
        answer_bytes: 0,
        stderr_bytes: 0,
        native_id: None,
        tokens: Some(Tokens { input: 100, cached_input: 50, output: 20, reasoning: 5 }),
        cost_usd: Some(0.1),
        meta: json!({ "numTurns": 1 }),
    }
}

fn native(turn: &NewTurn, id: &str) -> NativeSession {
    NativeSession {
        id: id.into(),
        agent: turn.agent,
        session_id: turn.session_id.clone(),
        cwd: turn.cwd.clone(),
        sandbox: turn.sandbox,
        model: turn.model.clone(),
        last_seen_turn: 0,
        token_total: Some(Tokens { input: 270, cached_input: 0, output: 0, reasoning: 0 }),
        cost_total: Some(0.5),
    }
}

/// Damages a stored value without the database's own checks in the way.
fn damage(store: &Store, sql: &str) {
    store
        .with_full(|connection| {
            connection.execute_batch(&format!("PRAGMA ignore_check_constraints = ON; {sql}"))?;
            Ok(())
        })
        .unwrap();
}
