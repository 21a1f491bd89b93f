//! The end of a turn: asked for, recorded once, or found to have been lost with its supervisor.

use rusqlite::{Transaction, params};
use serde_json::{Value, json};

use super::database::{Durability, Store};
use super::errors::{StoreError, TURN_INTERRUPTED};
use super::ids::scratch_path;
use super::rows::stored;
use super::turns::{by_id, key_of, one_line};
use super::{BlobKind, NativeSession, TurnEnd, TurnRow, audit, native, questions, search};
use crate::agents::Outcome;

/// What became of the wish to end a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum CancelRequest {
    /// It is recorded; the turn's supervisor will see it.
    Requested,
    /// The turn had ended before; its result stands.
    AlreadyFinished(Box<TurnRow>),
}

/// Adapter facts above this size are left out.
const MAX_META_BYTES: usize = 64 << 10;

impl Store {
    /// Asks for the end of a turn. The first reason stands.
    ///
    /// # Errors
    /// `TURN_NOT_FOUND`.
    pub fn request_cancel(&self, turn: &str, reason: &str) -> Result<CancelRequest, StoreError> {
        let now = self.clock.now_ms();
        let reason = one_line(reason);
        self.write(Durability::Full, |tx| {
            let (seq, state) = key_of(tx, turn)?;
            if state != "running" {
                return Ok(CancelRequest::AlreadyFinished(Box::new(by_id(tx, turn)?)));
            }
            let first = tx
                .prepare_cached(
                    "UPDATE turns SET cancel_requested = ?2 WHERE seq = ?1 AND cancel_requested IS NULL",
                )?
                .execute(params![seq, reason])?;
            if first > 0 {
                audit::add(tx, now, "cancel-requested", None, Some(turn), &json!({ "reason": reason }))?;
            }
            Ok(CancelRequest::Requested)
        })
    }

    /// Why somebody asked for the end of a turn, if somebody did. Cheap enough for twenty calls a
    /// second.
    ///
    /// # Errors
    /// `TURN_NOT_FOUND`.
    pub fn cancel_requested(&self, turn: &str) -> Result<Option<String>, StoreError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT cancel_requested FROM turns WHERE id = ?1")?;
            let mut rows = statement.query([turn])?;
            let row = rows.next()?.ok_or_else(|| StoreError::TurnNotFound(turn.to_owned()))?;
            Ok(row.get(0)?)
        })
    }

    /// Records the end of a turn and returns the session's new revision. The answer must be in its
    /// blob before. `native` is recorded only if it is the provider session that `end` returned,
    /// and always with the policy of this very turn.
    ///
    /// # Errors
    /// `TURN_NOT_FOUND`; `TURN_ALREADY_FINISHED`, in which case the first end stands unchanged.
    pub fn finish_turn(
        &self,
        turn: &str,
        end: &TurnEnd,
        native: Option<&NativeSession>,
    ) -> Result<u64, StoreError> {
        let now = self.clock.now_ms();
        let answer = self.searchable_answer(turn);
        self.write(Durability::Full, |tx| {
            let (seq, state) = key_of(tx, turn)?;
            if state != "running" {
                return Err(StoreError::TurnAlreadyFinished(turn.to_owned()));
            }
            record_end(tx, seq, turn, end, &answer, now, "turn-finished").and_then(|revision| {
                if let Some(native) = native.filter(|it| end.native_id.as_deref() == Some(&*it.id)) {
                    native::record(tx, seq, native)?;
                }
                Ok(revision)
            })
        })
    }

    /// Records that a turn's supervisor died before it recorded an end; its output is kept, its
    /// scratch folder removed. False if the end had been recorded after all. Only call this while holding the
    /// session's lock, or when it was found free.
    ///
    /// # Errors
    /// `TURN_NOT_FOUND`.
    pub fn mark_interrupted(&self, turn: &str) -> Result<bool, StoreError> {
        let now = self.clock.now_ms();
        let answer = self.searchable_answer(turn);
        let blobs = self.blobs();
        let size = |kind| blobs.size(turn, kind).unwrap_or_default();
        // What its supervisor would have removed.
        let _ = std::fs::remove_dir_all(scratch_path(self.state_dir(), turn)?);
        self.write(Durability::Full, |tx| {
            let (seq, state) = key_of(tx, turn)?;
            if state != "running" {
                return Ok(false);
            }
            let started: i64 =
                tx.query_row("SELECT started_at FROM turns WHERE seq = ?1", [seq], |row| row.get(0))?;
            let end = TurnEnd {
                outcome: Outcome::Interrupted,
                detail: Some("its supervisor ended before the end of the turn was recorded".into()),
                code: Some(TURN_INTERRUPTED.code.into()),
                exit_code: None,
                signal: None,
                duration_ms: u64::try_from(now.saturating_sub(started)).unwrap_or_default(),
                answer_bytes: size(BlobKind::Answer),
                stderr_bytes: size(BlobKind::Stderr),
                native_id: None,
                tokens: None,
                cost_usd: None,
                meta: json!({}),
            };
            record_end(tx, seq, turn, &end, &answer, now, "turn-interrupted")?;
            Ok(true)
        })
    }

    /// The part of an answer that is searched; no answer is no fault here.
    fn searchable_answer(&self, turn: &str) -> String {
        self.blobs()
            .read_page(turn, BlobKind::Answer, 0, search::MAX_INDEXED_BYTES)
            .map(|page| page.text)
            .unwrap_or_default()
    }
}

fn record_end(
    tx: &Transaction<'_>,
    seq: i64,
    turn: &str,
    end: &TurnEnd,
    answer: &str,
    now: i64,
    event: &str,
) -> Result<u64, StoreError> {
    tx.prepare_cached(
        "UPDATE turns SET state = 'finished', native_id = ?2, outcome = ?3, detail = ?4, code = ?5,
             exit_code = ?6, signal = ?7, duration_ms = ?8, answer_bytes = ?9, stderr_bytes = ?10,
             tokens = ?11, cost_usd = ?12, meta = ?13 WHERE seq = ?1",
    )?
    .execute(params![
        seq,
        end.native_id,
        end.outcome.as_str(),
        end.detail,
        end.code,
        end.exit_code,
        end.signal,
        stored(end.duration_ms),
        stored(end.answer_bytes),
        stored(end.stderr_bytes),
        end.tokens.and_then(|tokens| serde_json::to_string(&tokens).ok()),
        end.cost_usd,
        storable_meta(&end.meta),
    ])?;
    tx.prepare_cached("DELETE FROM activities WHERE turn = ?1")?.execute([seq])?;
    questions::close_all(tx, now, turn)?;
    // Wall clocks step back; a session is never older than its own creation.
    let (session, revision): (String, i64) = tx
        .prepare_cached(
            "UPDATE sessions SET revision = revision + 1, updated_at = max(created_at, ?2)
             WHERE id = (SELECT session_id FROM turns WHERE seq = ?1) RETURNING id, revision",
        )?
        .query_row(params![seq, now], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let searchable = search::index(tx, seq, answer)?;
    audit::add(
        tx,
        now,
        event,
        Some(&session),
        Some(turn),
        &json!({ "outcome": end.outcome, "code": end.code, "searchable": searchable }),
    )?;
    Ok(u64::try_from(revision).unwrap_or_default())
}

/// The facts as they are kept. What could not be read back must not make the turn unreadable.
fn storable_meta(meta: &Value) -> String {
    let text = meta.to_string();
    if text.len() <= MAX_META_BYTES && serde_json::from_str::<Value>(&text).is_ok() {
        return text;
    }
    json!({ "omitted": "too large or too deeply nested" }).to_string()
}
