//! The worker's side of a question: it goes into the store, where anybody on the state folder can answer it, and the
//! call waits there for the answer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::companion::{CompanionRun, Notices};
use crate::agents::redaction;
use crate::scope::kit::{self, Decision};
use crate::scope::{BoundRun, Cancel};
use crate::store::{NewQuestion, QuestionKind, QuestionRow, QuestionState, Store};

/// How often the store is looked at for an answer.
const LOOK: Duration = Duration::from_millis(50);
/// Questions that one run may ask; more of them get the default at once.
const QUESTIONS: u32 = 500;
/// Longest question, or input of a tool, that is kept, in characters.
const MAX_TEXT: usize = 4_000;
/// Longest name of a tool that is kept, in characters.
const MAX_TOOL: usize = 200;
/// Of a huge input only so much is looked at, in bytes.
const LOOKED_AT: usize = 256 << 10;

/// Asks for one run.
pub(super) struct Asking {
    store: Arc<Store>,
    notices: Notices,
    session: String,
    turn: String,
    /// Never written down.
    secrets: Mutex<Vec<String>>,
    asked: AtomicU32,
}

impl Asking {
    pub(super) fn of(run: &CompanionRun<'_>, store: &Arc<Store>) -> Self {
        Self {
            store: Arc::clone(store),
            notices: run.notices.clone(),
            session: run.session_id.to_owned(),
            turn: run.turn_id.to_owned(),
            secrets: Mutex::new(run.secrets.to_vec()),
            asked: AtomicU32::new(0),
        }
    }

    /// One more value that is never written down.
    pub(super) fn hide_too(&self, secret: &str) {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).push(secret.to_owned());
    }

    /// Asks, and waits until it is settled, but no longer than `until`. `None` if it could not be asked.
    fn put_and_wait(
        &self,
        kind: QuestionKind,
        tool: Option<&str>,
        text: &str,
        cancel: &Cancel,
        until: Instant,
    ) -> Option<QuestionRow> {
        if self.asked.fetch_add(1, Ordering::SeqCst) >= QUESTIONS {
            return None;
        }
        let (tool, text) = (tool.map(|tool| self.kept(tool, MAX_TOOL)), self.kept(text, MAX_TEXT));
        let question = NewQuestion {
            session: &self.session,
            turn: &self.turn,
            kind,
            tool: tool.as_deref(),
            text: &text,
            wait: until.saturating_duration_since(Instant::now()),
        };
        let id = match self.store.ask(&question) {
            Ok(id) => id,
            Err(error) => {
                self.notices.activity(&format!("a question could not be asked: {error}"));
                return None;
            }
        };
        self.notices.asked(&match &tool {
            Some(tool) => format!("may I use {tool}?"),
            None => text,
        });
        let settled = self.wait(&id, cancel, until);
        self.notices.activity(match &settled {
            Some(row) if row.state == QuestionState::Answered => "goes on with the answer",
            _ => "goes on without an answer",
        });
        settled
    }

    fn wait(&self, id: &str, cancel: &Cancel, until: Instant) -> Option<QuestionRow> {
        loop {
            let withdrawn = cancel.wait_until(until.min(Instant::now() + LOOK)).is_some();
            if withdrawn || Instant::now() >= until {
                let state = if withdrawn { QuestionState::Closed } else { QuestionState::Expired };
                // Whoever is first wins: an answer that came before this stands.
                return self.store.settle_question(id, state).ok();
            }
            // A store that is busy at the moment is asked again at the next look.
            if let Ok(row) = self.store.question(id)
                && row.state != QuestionState::Open
            {
                return Some(row);
            }
        }
    }

    /// As it is written down: without secrets, and not longer than so many characters.
    fn kept(&self, text: &str, max_chars: usize) -> String {
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let looked_at = &text[..text.floor_char_boundary(LOOKED_AT)];
        let clean = redaction::redact_values(looked_at, &secrets);
        let count = clean.chars().count();
        if count <= max_chars && looked_at.len() == text.len() {
            return clean;
        }
        // Whoever decides has to know that there is more.
        let mark = format!(" […] (the beginning of {} bytes)", text.len());
        let kept = max_chars.saturating_sub(mark.chars().count());
        clean.chars().take(kept).chain(mark.chars()).collect()
    }
}

impl kit::Supervisor for Asking {
    fn ask(&self, _: &BoundRun, question: &str, cancel: &Cancel, until: Instant) -> Option<String> {
        self.put_and_wait(QuestionKind::Question, None, question, cancel, until)?.answer
    }
}

impl kit::Approver for Asking {
    fn decide(
        &self,
        _: &BoundRun,
        tool: &str,
        input: &Value,
        cancel: &Cancel,
        until: Instant,
    ) -> Option<Decision> {
        let row = self.put_and_wait(QuestionKind::Approval, Some(tool), &input.to_string(), cancel, until)?;
        match row.approved? {
            true => Some(Decision::Allow { input: None }),
            false => Some(Decision::Deny(row.answer.unwrap_or_else(|| "It was denied.".into()))),
        }
    }
}

#[cfg(test)]
#[path = "asking_tests.rs"]
mod tests;
