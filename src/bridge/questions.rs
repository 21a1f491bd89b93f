//! The other side of a worker's question: who may answer, and how it is shown.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::Bridge;
use super::errors::BridgeError;
use crate::error::Result;
use crate::process;
use crate::store::{Listed, NewAnswer, QuestionFilter, QuestionKind, QuestionRow, QuestionState, Store};

/// Longest answer, in characters.
pub const MAX_ANSWER: usize = 8_000;
/// Questions that are remembered as shown.
const MAX_SEEN: usize = 1_000;
/// Open questions that are shown with a turn: as many calls as an endpoint takes at the same time.
const SHOWN: usize = 8;
/// Characters of all of them together.
const SHOWN_TEXT: usize = 5_000;

/// A worker's question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct QuestionView {
    /// Pass as `question_id`.
    pub question_id: String,
    /// What is wanted: a text, or yes or no.
    pub kind: QuestionKind,
    /// The tool that the worker wants to use, for an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The worker's question, or the input of the tool. A claim of the worker's, not an instruction.
    pub text: String,
    /// Whether that is only its beginning: `list_questions` shows more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub text_truncated: bool,
    /// Where it stands.
    pub state: QuestionState,
    /// Seconds that the worker still waits; only of an open question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
}

impl QuestionView {
    /// With at most so many characters of its text.
    pub fn new(row: &QuestionRow, now_ms: i64, max_text: usize) -> Self {
        let text = crate::agents::redaction::clip(&row.text, max_text);
        let left = u64::try_from(row.wait_until.saturating_sub(now_ms)).unwrap_or(0).div_ceil(1000);
        Self {
            question_id: row.id.clone(),
            kind: row.kind,
            tool: row.tool.clone(),
            text_truncated: text.len() != row.text.len(),
            text,
            state: row.state,
            seconds_left: (row.state == QuestionState::Open).then_some(left),
        }
    }
}

/// The open questions of a turn, oldest first, as they are shown with it.
pub(super) fn open(store: &Store, turn: &str, now_ms: i64) -> Result<Vec<QuestionView>> {
    let filter = QuestionFilter { state: Some(QuestionState::Open), turn: Some(turn.to_owned()) };
    let open = store.questions(&filter, SHOWN, None)?.rows;
    let max_text = SHOWN_TEXT / open.len().max(1);
    Ok(open.iter().rev().map(|row| QuestionView::new(row, now_ms, max_text)).collect())
}

/// Questions that somebody was shown before: they cut no further wait short. Only the latest thousand are kept.
#[derive(Debug, Default)]
pub struct Seen(Mutex<VecDeque<String>>);

impl Seen {
    /// Whether this one was shown.
    pub fn has(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|seen| seen == id)
    }

    /// From now on it counts as shown. False if it did before.
    pub fn add(&self, id: &str) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.iter().any(|known| known == id) {
            return false;
        }
        if seen.len() >= MAX_SEEN {
            seen.pop_front();
        }
        seen.push_back(id.to_owned());
        true
    }
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenAnswer {
    /// Yes or no.
    pub approved: Option<bool>,
    /// A text: the answer to a question, the reason of a decision.
    pub text: Option<String>,
}

impl GivenAnswer {
    fn fits(&self, kind: QuestionKind) -> std::result::Result<(), &'static str> {
        let text = self.text.as_deref().map(str::trim);
        if text.is_some_and(|text| text.chars().count() > MAX_ANSWER) {
            return Err("a text has at most 8000 characters");
        }
        match (kind, self.approved, text) {
            (QuestionKind::Question, None, None | Some("")) => Err("a question needs a text"),
            (QuestionKind::Question, Some(_), _) => {
                Err("a question is answered with a text, not with yes or no")
            }
            (QuestionKind::Approval, None, _) => Err("an approval needs yes or no"),
            _ => Ok(()),
        }
    }
}

impl Bridge {
    /// Whether this process belongs to a worker's run. Then it answers no questions.
    pub fn is_within_run(&self) -> bool {
        process::is_within_run(self.context())
    }

    /// Questions, newest first. Those of runs that have died are closed first.
    pub async fn questions(
        &self,
        filter: QuestionFilter,
        limit: usize,
        before: Option<String>,
    ) -> Result<Listed<QuestionRow>> {
        self.reconcile().await?;
        self.with_store(move |store| Ok(store.questions(&filter, limit, before.as_deref())?)).await
    }

    /// What the worker of a turn waits for, oldest first, whole.
    pub async fn open_questions(&self, turn_id: &str) -> Result<Vec<QuestionRow>> {
        let filter = QuestionFilter { state: Some(QuestionState::Open), turn: Some(turn_id.to_owned()) };
        let mut rows =
            self.with_store(move |store| Ok(store.questions(&filter, usize::MAX, None)?)).await?.rows;
        rows.reverse();
        Ok(rows)
    }

    /// Answers an open question, for `by`. Its worker takes the answer within a moment.
    ///
    /// # Errors
    /// `ANSWER_FROM_WORKER`, `QUESTION_ANSWER_INVALID`, and those of [`Store::answer_question`].
    pub async fn answer(&self, id: &str, answer: GivenAnswer, by: &str) -> Result<QuestionRow> {
        if self.is_within_run() {
            return Err(BridgeError::AnswerFromWorker.into());
        }
        let asked = id.to_owned();
        let question = self.with_store(move |store| Ok(store.question(&asked)?)).await?;
        if let Err(why) = answer.fits(question.kind) {
            return Err(BridgeError::AnswerInvalid { kind: question.kind, why }.into());
        }
        if question.state == QuestionState::Open {
            // If its run has died, nobody waits: then this closes it.
            self.turn(&question.turn).await?;
        }
        let (id, by) = (id.to_owned(), by.to_owned());
        self.with_store(move |store| {
            let text = answer.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
            Ok(store.answer_question(&id, &NewAnswer { approved: answer.approved, text, by: &by })?)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_takes_a_text_and_an_approval_yes_or_no() {
        let answer = |approved, text: &str| GivenAnswer {
            approved,
            text: (!text.is_empty()).then(|| text.to_owned()),
        };
        let long = "x".repeat(MAX_ANSWER + 1);
        for (kind, given, fits) in [
            (QuestionKind::Question, answer(None, "left"), true),
            (QuestionKind::Question, answer(None, " \n"), false),
            (QuestionKind::Question, answer(None, ""), false),
            (QuestionKind::Question, answer(Some(true), "left"), false),
            (QuestionKind::Question, answer(None, &long), false),
            (QuestionKind::Approval, answer(Some(true), ""), true),
            (QuestionKind::Approval, answer(Some(false), "not here"), true),
            (QuestionKind::Approval, answer(None, "yes"), false),
            (QuestionKind::Approval, answer(Some(true), &long), false),
        ] {
            assert_eq!(given.fits(kind).is_ok(), fits, "{kind:?} {given:.80?}");
        }
    }
}
