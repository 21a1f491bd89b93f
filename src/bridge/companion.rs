//! The seam between a supervisor and the endpoint that its run's worker may call. Who builds the endpoint stands
//! above this room and hands it in; here it is only opened, watched and closed.
//!
//! Promise: it opens after the last refusal and before the worker exists, and it is closed the moment the worker's
//! process tree is gone, before the end is recorded, whatever happens in between, a panic too.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};

use super::errors::BridgeError;
use super::run_scope::RunScope;
use crate::agents::endpoint::TOKEN_VARIABLE;
use crate::agents::{Endpoint, Outcome, STRUCTURED_OUTPUT, Verdict, redaction};
use crate::context::Context;
use crate::error::Result;
use crate::policy::Sandbox;
use crate::store::{BlobKind, Store, TurnState};

/// A worker tells a line and asks a question in few words.
const NOTICE_CHARS: usize = 160;
/// Beyond the longest call, so that the endpoint's own answer comes first.
const CLIENT_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// Most bytes of a report in a turn's record.
const REPORT_BYTES: usize = 64 << 10;

/// Who can open an endpoint for a run.
pub trait Companion: Send + Sync {
    /// Opens it. From the return on it answers.
    fn open(&self, run: &CompanionRun<'_>) -> Result<Box<dyn OpenCompanion>>;
}

/// An endpoint that answers.
pub trait OpenCompanion: Send {
    /// Its address, with port and path.
    fn url(&self) -> String;
    /// The token that opens it.
    fn token(&self) -> String;
    /// Names of the tools that it offers.
    fn tools(&self) -> Vec<String>;
    /// Whether a client has asked for them.
    fn was_listed(&self) -> bool;
    /// Revokes the token, ends what is running, and tells what there was.
    fn close(self: Box<Self>) -> CompanionEnd;
}

/// What an endpoint has seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompanionEnd {
    /// The last report handed in.
    pub report: Option<Value>,
    /// Somebody asked for the list of tools.
    pub listed: bool,
    /// Calls answered.
    pub calls: u64,
    /// Calls and connections refused.
    pub refused: u64,
    /// Why the record of its calls may not be complete.
    pub unrecorded: Option<String>,
}

/// The run that an endpoint is for. All of it is fixed before the worker starts.
pub struct CompanionRun<'a> {
    /// Environment, clock, home.
    pub context: &'a Context,
    /// The store of the run. An endpoint's threads open their own by [`Store::state_dir`].
    pub store: &'a Store,
    /// Session id.
    pub session_id: &'a str,
    /// Turn id.
    pub turn_id: &'a str,
    /// Working folder, canonical.
    pub cwd: &'a Path,
    /// Granted authority: what a tool does for the worker must stay within it.
    pub sandbox: Sandbox,
    /// What may be offered.
    pub scope: &'a RunScope,
    /// The prompt as the caller wrote it.
    pub prompt: &'a str,
    /// Values in the worker's environment that must not be written down; the endpoint's own token is not among them.
    pub secrets: &'a [String],
    /// Where activity and questions go.
    pub notices: Notices,
}

impl CompanionRun<'_> {
    /// The answer of the session's last finished turn, at most so many bytes of it; none in a new session.
    pub fn previous_answer(&self, max_bytes: usize) -> Result<Option<String>> {
        let session = self.store.session(self.session_id)?;
        let known = session.turns;
        for index in (0..known).rev().take(20) {
            let row = self.store.turn_at(self.session_id, index)?;
            if row.state == TurnState::Finished && row.id != self.turn_id {
                self.store.check_answer(&row)?;
                return Ok(Some(self.store.blobs().read_page(&row.id, BlobKind::Answer, 0, max_bytes)?.text));
            }
        }
        Ok(None)
    }
}

/// What an endpoint tells.
#[derive(Debug)]
pub(super) enum Notice {
    /// What the worker does now.
    Activity(String),
    /// A question was recorded as open.
    Asked,
}

/// Takes what an endpoint has to tell, from any thread; after the run it is heard by nobody.
#[derive(Clone, Debug)]
pub struct Notices(Sender<Notice>);

impl Notices {
    pub(super) fn channel() -> (Self, Receiver<Notice>) {
        let (sender, receiver) = channel();
        (Self(sender), receiver)
    }

    /// What the worker does now.
    pub fn activity(&self, line: &str) {
        let _ = self.0.send(Notice::Activity(redaction::one_line(line, NOTICE_CHARS)));
    }

    /// A question that waits in the store, so that whoever waits for the turn looks at it.
    pub fn asked(&self, text: &str) {
        let _ = self.0.send(Notice::Asked);
        self.activity(&format!("asking: {text}"));
    }
}

/// An endpoint in the care of a supervisor.
pub(super) struct Attached {
    open: Option<Box<dyn OpenCompanion>>,
    /// As the worker is told of it.
    pub endpoint: Endpoint,
    /// Its secret.
    pub token: String,
}

impl Attached {
    pub fn open(companion: &dyn Companion, run: &CompanionRun<'_>) -> Result<Self> {
        let unavailable = |what: &str, panic: Box<dyn Any + Send>| {
            let why = format!("{what} failed: {}", words_of(&*panic));
            crate::error::Error::from(BridgeError::ScopeUnavailable(why))
        };
        let open = catch_unwind(AssertUnwindSafe(|| companion.open(run)))
            .map_err(|panic| unavailable("opening it", panic))??;
        // From here on it is closed on every path.
        let mut attached = Self {
            open: Some(open),
            endpoint: Endpoint {
                url: String::new(),
                tools: Vec::new(),
                call_timeout: run.scope.longest_call() + CLIENT_PATIENCE,
                token_variable: TOKEN_VARIABLE,
            },
            token: String::new(),
        };
        if let Some(open) = &attached.open {
            let told = catch_unwind(AssertUnwindSafe(|| (open.url(), open.tools(), open.token())));
            let (url, tools, token) = told.map_err(|panic| unavailable("asking for its address", panic))?;
            (attached.endpoint.url, attached.endpoint.tools, attached.token) = (url, tools, token);
        }
        Ok(attached)
    }

    /// Whether a client has asked for its tools.
    pub fn was_listed(&self) -> bool {
        let Some(open) = &self.open else { return false };
        catch_unwind(AssertUnwindSafe(|| open.was_listed())).unwrap_or(false)
    }

    /// Closes it. What it saw is lost if closing fails, and then that is said.
    pub fn close(mut self) -> std::result::Result<CompanionEnd, String> {
        self.shut().unwrap_or_else(|| Ok(CompanionEnd::default()))
    }

    fn shut(&mut self) -> Option<std::result::Result<CompanionEnd, String>> {
        let open = self.open.take()?;
        Some(catch_unwind(AssertUnwindSafe(|| open.close())).map_err(|panic| words_of(&*panic)))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.shut();
    }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    redaction::one_line(&words.unwrap_or_else(|| "a panic".into()), 200)
}

/// What a turn's record keeps of it: `scope`, and the report under a name of its own. A report is an answer.
pub(super) fn note(end: std::result::Result<CompanionEnd, String>, tools: &[String], verdict: &mut Verdict) {
    let meta = &mut verdict.meta;
    match end {
        Ok(end) => {
            meta["scope"] = json!({ "tools": tools, "calls": end.calls, "refused": end.refused });
            if let Some(why) = end.unrecorded {
                meta["scope"]["unrecorded"] = redaction::one_line(&why, 200).into();
            }
            if let Some(report) = end.report {
                meta["report"] = bounded(&report, REPORT_BYTES);
                if verdict.outcome == Outcome::Empty {
                    (verdict.outcome, verdict.detail) = (Outcome::Success, None);
                }
            }
        }
        Err(why) => meta["scope"] = json!({ "tools": tools, "closingFailed": why }),
    }
}

/// What an answer that follows a schema holds is kept within the same bounds as a report.
pub(super) fn bound_structured(verdict: &mut Verdict) {
    if let Some(structured) = verdict.meta.get_mut(STRUCTURED_OUTPUT) {
        *structured = bounded(structured, REPORT_BYTES);
    }
}

/// A report in at most so many bytes of JSON: its long texts and lists are cut, more of them the less room there is.
pub(super) fn bounded(report: &Value, max_bytes: usize) -> Value {
    if report.to_string().len() <= max_bytes {
        return report.clone();
    }
    for (chars, items) in [(1000, 100), (400, 40), (160, 16), (80, 8), (40, 4)] {
        let cut = cut(report, chars, items, 6);
        if cut.to_string().len() <= max_bytes {
            return cut;
        }
    }
    json!({ "cut": "the report is too large to be shown here" })
}

fn cut(value: &Value, chars: usize, items: usize, depth: usize) -> Value {
    match value {
        Value::String(text) => redaction::clip(text, chars).into(),
        Value::Array(_) | Value::Object(_) if depth == 0 => Value::Null,
        Value::Array(list) => {
            let mut kept: Vec<Value> =
                list.iter().take(items).map(|item| cut(item, chars, items, depth - 1)).collect();
            if list.len() > items {
                kept.push(format!("… and {} more", list.len() - items).into());
            }
            kept.into()
        }
        Value::Object(map) => map
            .iter()
            .take(items)
            .map(|(key, item)| (redaction::clip(key, 80), cut(item, chars, items, depth - 1)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
#[path = "companion_tests.rs"]
pub(super) mod tests;
