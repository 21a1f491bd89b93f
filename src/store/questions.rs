//! Questions of running workers. Each is asked once and settled once, by whoever is first: an answer, the end of its
//! wait, or the end of its call. Any process on the state folder can answer.

use std::time::Duration;

use rusqlite::{Connection, Row, Transaction, params};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::database::{Durability, Store};
use super::errors::StoreError;
use super::rows::{Fault, Listed, field, page_size, read_all, read_one, word};
use super::turns::key_of;
use super::{audit, ids};

/// What is wanted of whoever answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// A text.
    Question,
    /// Yes or no to the use of a tool.
    Approval,
}

impl QuestionKind {
    /// The name in the store and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::Approval => "approval",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Question, Self::Approval].into_iter().find(|it| it.as_str() == text)
    }
}

/// Where a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuestionState {
    /// The worker waits.
    Open,
    /// Somebody answered in time.
    Answered,
    /// Nobody did, and the worker was given the default.
    Expired,
    /// The call was withdrawn, or the run ended.
    Closed,
}

impl QuestionState {
    /// The name in the store and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Answered => "answered",
            Self::Expired => "expired",
            Self::Closed => "closed",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Open, Self::Answered, Self::Expired, Self::Closed].into_iter().find(|it| it.as_str() == text)
    }
}

/// A question about to be asked. Its texts are bounded and free of secrets already.
#[derive(Clone, Copy, Debug)]
pub struct NewQuestion<'a> {
    /// The session of the turn.
    pub session: &'a str,
    /// The running turn.
    pub turn: &'a str,
    /// What is wanted.
    pub kind: QuestionKind,
    /// The tool that is to be used, for an approval.
    pub tool: Option<&'a str>,
    /// The question, or the tool's input.
    pub text: &'a str,
    /// How long the worker waits.
    pub wait: Duration,
}

/// A question as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionRow {
    /// Its id (UUID v4).
    pub id: String,
    /// The session of the turn.
    pub session: String,
    /// The turn that asks.
    pub turn: String,
    /// What is wanted.
    pub kind: QuestionKind,
    /// The tool that is to be used, for an approval.
    pub tool: Option<String>,
    /// The question, or the tool's input.
    pub text: String,
    /// Milliseconds since 1970.
    pub asked_at: i64,
    /// Until when the worker waits, in milliseconds since 1970. For people: the worker itself goes by a clock that
    /// nobody sets.
    pub wait_until: i64,
    /// Where it stands.
    pub state: QuestionState,
    /// Yes or no, once an approval is answered.
    pub approved: Option<bool>,
    /// The text of the answer, if it has one.
    pub answer: Option<String>,
    /// Who answered.
    pub answered_by: Option<String>,
    /// Milliseconds since 1970.
    pub answered_at: Option<i64>,
}

/// An answer about to be given.
#[derive(Clone, Copy, Debug)]
pub struct NewAnswer<'a> {
    /// Yes or no to an approval; `None` for a question.
    pub approved: Option<bool>,
    /// The answer, or a reason.
    pub text: Option<&'a str>,
    /// Who gives it, for the record.
    pub by: &'a str,
}

/// Which questions to list; everything that is `None` matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuestionFilter {
    /// Only those that stand here.
    pub state: Option<QuestionState>,
    /// Only those of this turn.
    pub turn: Option<String>,
}

/// A running turn, looked at from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Its end is recorded.
    pub finished: bool,
    /// Ids of its open questions.
    pub open_questions: Vec<String>,
}

const SELECT: &str = "SELECT seq, id, session_id, turn_id, kind, tool, text, asked_at, wait_until, state, approved, \
    answer, answered_by, answered_at FROM questions";

impl Store {
    /// Records a question of a running turn as open, and gives its id.
    ///
    /// # Errors
    /// `TURN_NOT_FOUND`, `TURN_ALREADY_FINISHED`.
    pub fn ask(&self, question: &NewQuestion<'_>) -> Result<String, StoreError> {
        let id = uuid::Uuid::new_v4().to_string();
        let now = self.clock.now_ms();
        let wait = i64::try_from(question.wait.as_millis()).unwrap_or(i64::MAX);
        self.write(Durability::Normal, |tx| {
            let (_, state) = key_of(tx, question.turn)?;
            if state != "running" {
                return Err(StoreError::TurnAlreadyFinished(question.turn.to_owned()));
            }
            tx.prepare_cached(
                "INSERT INTO questions (id, session_id, turn_id, kind, tool, text, asked_at, wait_until, state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'open')",
            )?
            .execute(params![
                id,
                question.session,
                question.turn,
                question.kind.as_str(),
                question.tool,
                question.text,
                now,
                now.saturating_add(wait)
            ])?;
            let detail = json!({ "question": id, "kind": question.kind, "wait_ms": wait });
            audit::add(tx, now, "question-asked", Some(question.session), Some(question.turn), &detail)
        })?;
        Ok(id)
    }

    /// Answers an open question. The first answer stands.
    ///
    /// # Errors
    /// `STORE_BAD_ID`, `QUESTION_NOT_FOUND`, `QUESTION_ANSWERED`, `QUESTION_EXPIRED`, `QUESTION_CLOSED`.
    pub fn answer_question(&self, id: &str, answer: &NewAnswer<'_>) -> Result<QuestionRow, StoreError> {
        let now = self.clock.now_ms();
        // An approval is authority.
        self.write(Durability::Full, |tx| {
            let row = by_id(tx, id)?;
            match row.state {
                QuestionState::Open => {}
                QuestionState::Answered => {
                    let by = row.answered_by.unwrap_or_default();
                    return Err(StoreError::QuestionAnswered { id: id.to_owned(), by });
                }
                QuestionState::Expired => return Err(StoreError::QuestionExpired(id.to_owned())),
                QuestionState::Closed => return Err(StoreError::QuestionClosed(id.to_owned())),
            }
            tx.prepare_cached(
                "UPDATE questions SET state = 'answered', approved = ?2, answer = ?3, answered_by = ?4,
                     answered_at = ?5 WHERE id = ?1",
            )?
            .execute(params![id, answer.approved, answer.text, answer.by, now])?;
            let detail = json!({
                "question": id, "kind": row.kind, "approved": answer.approved, "by": answer.by,
                "chars": answer.text.map(|text| text.chars().count()),
            });
            audit::add(tx, now, "question-answered", Some(&row.session), Some(&row.turn), &detail)?;
            by_id(tx, id)
        })
    }

    /// Ends the wait for an answer, as expired or closed, unless there is one by now. Gives the question as it then
    /// stands.
    ///
    /// # Errors
    /// `QUESTION_NOT_FOUND`.
    pub fn settle_question(&self, id: &str, state: QuestionState) -> Result<QuestionRow, StoreError> {
        let now = self.clock.now_ms();
        self.write(Durability::Normal, |tx| {
            let row = by_id(tx, id)?;
            if row.state != QuestionState::Open {
                return Ok(row);
            }
            settle(tx, now, &row, state)?;
            by_id(tx, id)
        })
    }

    /// One question.
    ///
    /// # Errors
    /// `STORE_BAD_ID`, `QUESTION_NOT_FOUND`, `STORE_ROW_CORRUPT`.
    pub fn question(&self, id: &str) -> Result<QuestionRow, StoreError> {
        self.read(|connection| by_id(connection, id))
    }

    /// Questions, newest first. `before` is the `next` of the page before; `limit` is at most 500.
    ///
    /// # Errors
    /// `STORE_BAD_CURSOR`.
    pub fn questions(
        &self,
        filter: &QuestionFilter,
        limit: usize,
        before: Option<&str>,
    ) -> Result<Listed<QuestionRow>, StoreError> {
        let limit = page_size(limit);
        let before = match before {
            None => i64::MAX,
            Some(cursor) => {
                cursor.parse().map_err(|_| StoreError::BadCursor(cursor.chars().take(80).collect()))?
            }
        };
        // A word of ours, and written out: only then its partial index is used.
        let state =
            filter.state.map(|state| format!(" AND state = '{}'", state.as_str())).unwrap_or_default();
        let turn = if filter.turn.is_some() { " AND turn_id = ?3" } else { " AND ?3 IS NULL" };
        let sql = format!("{SELECT} WHERE seq < ?1{state}{turn} ORDER BY seq DESC LIMIT ?2");
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let (mut last, mut seen) = (None, 0);
            let rows = statement.query(params![before, limit.cast_signed(), filter.turn])?;
            let (rows, skipped) = read_all(rows, |row| {
                seen += 1;
                last = field::<i64>(row, "seq").ok().map(|seq| seq.to_string());
                question_from(row)
            })?;
            Ok(Listed { rows, skipped, next: last.filter(|_| seen == limit) })
        })
    }

    /// Whether a turn has ended, and what its worker waits for. Cheap enough for twenty-five calls a second.
    ///
    /// # Errors
    /// `TURN_NOT_FOUND`.
    pub fn pulse(&self, turn: &str) -> Result<Pulse, StoreError> {
        self.read(|connection| {
            let finished = key_of(connection, turn)?.1 == "finished";
            let mut statement = connection.prepare_cached(
                "SELECT id FROM questions WHERE turn_id = ?1 AND state = 'open' ORDER BY seq",
            )?;
            let ids = statement.query_map([turn], |row| row.get(0))?;
            Ok(Pulse { finished, open_questions: ids.collect::<rusqlite::Result<_>>()? })
        })
    }
}

/// Closes what a turn has still open: nobody waits for it any more.
pub(super) fn close_all(tx: &Transaction<'_>, now: i64, turn: &str) -> Result<(), StoreError> {
    let mut statement = tx.prepare_cached(&format!("{SELECT} WHERE turn_id = ?1 AND state = 'open'"))?;
    let (open, _) = read_all(statement.query([turn])?, question_from)?;
    open.iter().try_for_each(|row| settle(tx, now, row, QuestionState::Closed))
}

fn settle(tx: &Transaction<'_>, now: i64, row: &QuestionRow, state: QuestionState) -> Result<(), StoreError> {
    tx.prepare_cached("UPDATE questions SET state = ?2 WHERE id = ?1")?
        .execute(params![row.id, state.as_str()])?;
    let event = if state == QuestionState::Expired { "question-expired" } else { "question-closed" };
    let detail = json!({ "question": row.id, "kind": row.kind });
    audit::add(tx, now, event, Some(&row.session), Some(&row.turn), &detail)
}

fn by_id(connection: &Connection, id: &str) -> Result<QuestionRow, StoreError> {
    ids::check_id(id)?;
    let mut statement = connection.prepare_cached(&format!("{SELECT} WHERE id = ?1"))?;
    read_one(statement.query([id])?, "question", id, question_from)?
        .ok_or_else(|| StoreError::QuestionNotFound(id.to_owned()))
}

fn question_from(row: &Row<'_>) -> Result<QuestionRow, Fault> {
    Ok(QuestionRow {
        id: field(row, "id")?,
        session: field(row, "session_id")?,
        turn: field(row, "turn_id")?,
        kind: word(row, "kind", QuestionKind::parse)?,
        tool: field(row, "tool")?,
        text: field(row, "text")?,
        asked_at: field(row, "asked_at")?,
        wait_until: field(row, "wait_until")?,
        state: word(row, "state", QuestionState::parse)?,
        approved: field(row, "approved")?,
        answer: field(row, "answer")?,
        answered_by: field(row, "answered_by")?,
        answered_at: field(row, "answered_at")?,
    })
}
