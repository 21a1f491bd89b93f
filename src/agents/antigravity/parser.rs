//! Reads `agy`'s output: one event a line, or a single envelope, with whatever stands around them.
//!
//! Success needs all of it: exit code 0, a result, its word for success, no mark of a time-out, nothing denied that
//! the answer depends on, nothing cut off, the conversation that was asked for. No single one of these is proof: the
//! program exits with 0 after denied tools, empty answers, expired times and lost conversations.

use serde::Deserialize;
use serde_json::{Value, json};

use super::decoder::{Decoder, Line};
use super::envelope::{self, Envelope};
use super::words::{self, AgyError};
use crate::agents::bounded::BoundedText;
use crate::agents::evidence::{self, Finding};
use crate::agents::servers::{ServerRule, ServerWatch};
use crate::agents::verdicts::{self, Draft};
use crate::agents::{Activity, Failure, Metered, Outcome, RunEnd, StreamParser, Verdict, redaction};
use crate::policy::Sandbox;

/// Output that is no event is kept up to this size, in bytes.
const OTHER_BYTES: usize = 1 << 20;
/// What the agent said so far, for runs that never reach their result.
const SAID_BYTES: usize = 4 << 20;
/// Longest activity line, in characters.
const ACTIVITY_CHARS: usize = 160;
/// Kinds of steps in which the agent does something.
const TOOL: &str = "tool";

/// A line of the stream. A result may also come alone, without one around it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    event: Value,
    conversation_id: Value,
    init: Value,
    step_update: Value,
    result: Value,
}

/// What standard error has told so far.
#[derive(Default)]
struct Notices {
    error: Option<AgyError>,
    denial: Option<String>,
    partial: Option<String>,
    conversation_miss: bool,
}

impl Notices {
    fn line(&mut self, line: &str) {
        if let Some(error) = AgyError::read(line) {
            self.error = Some(error);
        } else if words::is_partial(line) {
            self.partial = evidence::detail(line);
        } else if words::is_denial(line) {
            self.denial = evidence::detail(line);
        } else if words::is_conversation_miss(line) {
            self.conversation_miss = true;
        }
    }
}

/// The parser of one run.
pub(super) struct Parser {
    draft: Draft,
    servers: ServerWatch,
    resume: Option<String>,
    /// The run was granted more than reading.
    may_write: bool,
    expects_report: bool,
    decoder: Decoder,
    other: BoundedText,
    other_lines: u64,
    /// Objects that are neither events nor an envelope.
    strange_objects: u64,
    events: u64,
    unknown_events: u64,
    tool_steps: u64,
    said: BoundedText,
    result: Option<Envelope>,
    notices: Notices,
    fatal: Option<(Failure, String)>,
}

impl Parser {
    /// `resume` is the conversation that was asked for.
    pub fn new(resume: Option<&str>, tested_version: &'static str) -> Self {
        Self {
            draft: Draft::new(resume, tested_version),
            servers: ServerWatch::default(),
            resume: resume.map(str::to_owned),
            may_write: false,
            expects_report: false,
            decoder: Decoder::default(),
            other: BoundedText::new(OTHER_BYTES),
            other_lines: 0,
            strange_objects: 0,
            events: 0,
            unknown_events: 0,
            tool_steps: 0,
            said: BoundedText::new(SAID_BYTES),
            result: None,
            notices: Notices::default(),
            fatal: None,
        }
    }

    fn end_for(&mut self, failure: Failure, why: String) {
        self.fatal.get_or_insert((failure, why));
    }

    /// Takes an object; false if it is nothing that is known here.
    fn object(&mut self, bytes: &[u8], shown: &mut Option<Activity>) -> bool {
        let Some(event) = verdicts::event_in::<Event>(bytes) else { return false };
        let Some(kind) = event.event.as_str() else {
            let envelope = verdicts::event_in::<Value>(bytes).and_then(Envelope::alone);
            let Some(envelope) = envelope else {
                self.strange_objects += 1;
                return false;
            };
            self.conversation(&envelope.conversation_id);
            self.result = Some(envelope);
            return true;
        };
        self.events += 1;
        match kind {
            "init" => {
                self.conversation(&event.conversation_id);
                self.servers.antigravity_tools(&event.init["tools"]);
            }
            "step_update" => {
                self.conversation(&event.step_update["conversation_id"]);
                *shown = self.step(&event.step_update);
            }
            "result" => {
                let envelope = Envelope::of_result(event.result);
                self.conversation(&envelope.conversation_id);
                self.result = Some(envelope);
            }
            _ => self.unknown_events += 1,
        }
        true
    }

    /// Which conversation this is. Another one than was asked for has no memory of the work, so it must not begin.
    fn conversation(&mut self, id: &Value) {
        let Some(id) = id.as_str().filter(|id| super::is_conversation_id(id)) else { return };
        if let Some(asked) = &self.resume
            && !asked.eq_ignore_ascii_case(id)
        {
            let why = format!("conversation {asked} is not known any more; agy began a new one");
            self.end_for(Failure::ConversationLost, why);
        }
        self.draft.native_id = Some(id.to_owned());
    }

    fn step(&mut self, step: &Value) -> Option<Activity> {
        match step["step_type"].as_str().unwrap_or_default() {
            "agent_response" => {
                if let Some(text) = step["text_delta"].as_str() {
                    self.said.push(text.as_bytes());
                }
                None
            }
            TOOL => {
                // A step is told when it begins and when it ends.
                if step["state"] != "ACTIVE" {
                    self.tool_steps += 1;
                }
                let info = &step["tool_info"];
                let name = step["tool_name"].as_str().or_else(|| info["name"].as_str()).unwrap_or("tool");
                let what = ["command", "path", "file_path", "target", "pattern", "url", "query"];
                let what = what.iter().find_map(|key| info["parameters"][*key].as_str()).unwrap_or_default();
                let line = redaction::one_line(&format!("{name}: {what}"), ACTIVITY_CHARS);
                Some(Activity { line: line.trim_end_matches([' ', ':']).to_owned() })
            }
            _ => None,
        }
    }

    fn facts(&mut self) {
        let torn = self.torn();
        let meta = &mut self.draft.meta;
        for (name, count) in [
            ("unknownEvents", self.unknown_events),
            ("noiseLines", if self.events > 0 { self.other_lines } else { 0 }),
            ("tornEvents", torn),
            ("toolCalls", self.tool_steps),
        ] {
            if count > 0 {
                meta.insert(name.into(), json!(count));
            }
        }
        if let Some(error) = &self.notices.error {
            if !error.status.is_empty() {
                meta.insert("agyStatus".into(), json!(redaction::one_line(&error.status, 80)));
            }
            if let Some(retryable) = error.retryable {
                meta.insert("retryable".into(), json!(retryable));
            }
            if let Some(id) = &error.error_id {
                meta.insert("errorId".into(), json!(redaction::one_line(id, 80)));
            }
        }
        let Some(result) = &self.result else { return };
        if let Some(turns) = result.num_turns.as_u64() {
            meta.insert("numTurns".into(), json!(turns));
        }
        if !result.denied.is_empty() {
            meta.insert("permissionDenials".into(), json!(result.denied.len()));
            meta.insert("deniedTools".into(), verdicts::few(&result.denied));
        }
        if result.structured_output.is_object() {
            meta.insert(crate::agents::STRUCTURED_OUTPUT.into(), result.structured_output.clone());
        } else if self.expects_report {
            let found = envelope::type_name(&result.structured_output);
            meta.insert("structuredOutputFound".into(), json!(found));
        }
        self.draft.usage.tokens = envelope::tokens(&result.usage).map(Metered::Run);
    }

    /// Objects that were cut off; one that is still open was, too.
    fn torn(&self) -> u64 {
        self.decoder.torn() + u64::from(self.decoder.is_open())
    }

    /// What failed, and the words for it. Fields come first, then words, then the log.
    fn failure(&self, said: &str, end: &RunEnd<'_>, otherwise: Failure) -> (Failure, Option<Finding>) {
        let finding = || evidence::classify(said, self.events > 0);
        if let Some(failure) = self.notices.error.as_ref().and_then(AgyError::failure) {
            return (failure, finding());
        }
        if self.notices.partial.is_some() {
            return (Failure::PartialTimeout, None);
        }
        if let Some(failure) = words::failure_in(said) {
            return (failure, finding());
        }
        match finding() {
            Some(Finding::Login) => (Failure::LoginRequired, Some(Finding::Login)),
            Some(Finding::Quota) => (Failure::Quota, Some(Finding::Quota)),
            Some(Finding::ResumeUnknown) => (Failure::ConversationLost, Some(Finding::ResumeUnknown)),
            Some(other) => (Failure::WorkerError, Some(other)),
            None if self.notices.denial.is_some() => (Failure::PermissionDenied, None),
            None if words::keyring_in_log(end.log_tail) => (Failure::KeyringTimeout, None),
            None => (otherwise, None),
        }
    }

    /// The end of a run that came to a result.
    fn judge(mut self, result: Envelope, end: &RunEnd<'_>) -> Verdict {
        let answer = result.response.as_str().unwrap_or_default().to_owned();
        let stderr = evidence::telling_stderr(end.stderr_tail);
        let error = result.error_text();
        let said = match (&error, stderr.is_empty()) {
            (Some(error), true) => error.clone(),
            (Some(error), false) => format!("{error} {stderr}"),
            (None, _) => stderr,
        };
        match result.status.as_str() {
            None => {
                let why = "the result has no status";
                close(self.draft, Failure::InvalidEnvelope, None, why, answer, end)
            }
            Some("SUCCESS") => self.judge_success(&result, answer, &said, end),
            Some("CANCELED" | "CANCELLED" | "INTERRUPTED") => {
                let why = format!("agy says that it was interrupted; {}", verdicts::exit_text(end));
                close(self.draft, Failure::Cancelled, None, &why, answer, end)
            }
            Some("ERROR" | "INVALID") => {
                let (failure, finding) = self.failure(&said, end, Failure::WorkerError);
                let why = if said.trim().is_empty() { verdicts::exit_text(end) } else { said };
                close(self.draft, failure, finding, &why, answer, end)
            }
            Some(word @ ("WAITING" | "RUNNING")) => {
                let why = format!("the run ended while the agent was {}: {said}", word.to_lowercase());
                let (failure, finding) = self.failure(&said, end, Failure::WorkerError);
                close(self.draft, failure, finding, &why, answer, end)
            }
            Some(word) => {
                let why = format!("the result has an unknown status: {word}");
                self.draft.meta.insert("status".into(), json!(redaction::one_line(word, 80)));
                close(self.draft, Failure::InvalidEnvelope, None, &why, answer, end)
            }
        }
    }

    /// The word is there; is all the rest?
    fn judge_success(self, result: &Envelope, answer: String, said: &str, end: &RunEnd<'_>) -> Verdict {
        let torn = self.torn();
        if self.notices.error.is_some() {
            let (failure, finding) = self.failure(said, end, Failure::WorkerError);
            return close(self.draft, failure, finding, said, answer, end);
        }
        if let Some(notice) = &self.notices.partial {
            let why = format!("the answer is not whole: {notice}");
            return close(self.draft, Failure::PartialTimeout, None, &why, answer, end);
        }
        if !result.response.is_string() {
            let why = "the result has no response";
            return close(self.draft, Failure::InvalidEnvelope, None, why, answer, end);
        }
        let denied = !result.denied.is_empty() || self.notices.denial.is_some();
        // A reader that was kept from writing and still answers has done what it was there for.
        if denied && (self.may_write || verdicts::is_blank(&answer)) {
            let what = match (&result.denied.first(), &self.notices.denial) {
                (Some(action), _) => format!("it may not use {action}"),
                (None, Some(notice)) => notice.clone(),
                (None, None) => String::new(),
            };
            let why = format!("something that the agent wanted to do was denied: {what}");
            return close(self.draft, Failure::PermissionDenied, None, &why, answer, end);
        }
        if torn > 0 {
            let why = format!("{torn} of the events were cut off");
            return close(self.draft, Failure::StreamError, None, &why, answer, end);
        }
        if verdicts::ended_well(end) {
            let draft = self.draft;
            // A report is an answer.
            if verdicts::is_blank(&answer) && result.structured_output.is_object() {
                let text = result.structured_output.to_string();
                return draft.close(Outcome::Success, text, None);
            }
            if let Some(finding) = evidence::posing_as_answer(&answer) {
                let failure = if finding == Finding::Login { Failure::LoginRequired } else { Failure::Quota };
                let why = answer.clone();
                return close(draft, failure, Some(finding), &why, answer, end);
            }
            return draft.answered(answer, end);
        }
        let (failure, finding) = self.failure(said, end, Failure::WorkerError);
        let why = format!("the turn was complete, but {} {said}", verdicts::exit_text(end));
        close(self.draft, failure, finding, &why, answer, end)
    }

    /// The end of a run without any result.
    fn without_result(mut self, end: &RunEnd<'_>) -> Verdict {
        let stderr = evidence::telling_stderr(end.stderr_tail);
        let other = std::mem::replace(&mut self.other, BoundedText::new(OTHER_BYTES)).into_text();
        if self.events > 0 || self.decoder.is_open() {
            let said = std::mem::replace(&mut self.said, BoundedText::new(SAID_BYTES)).into_text();
            let (failure, finding) = self.failure(&stderr, end, Failure::StreamError);
            let why = match stderr.trim() {
                "" => format!("the stream ended without a result; {}", verdicts::exit_text(end)),
                words => format!("the stream ended without a result: {words} ({})", verdicts::exit_text(end)),
            };
            return close(self.draft, failure, finding, &why, said, end);
        }
        if verdicts::is_blank(&other) {
            let (failure, finding) = self.failure(&stderr, end, Failure::StreamError);
            // Nothing at all is what some versions end with after a denial, and all of them if nothing is wrong.
            if verdicts::ended_well(end) && failure == Failure::StreamError {
                self.draft.meta.insert(Failure::KEY.into(), json!(failure.as_str()));
                let why = "the agent ended normally and printed nothing";
                return self.draft.close(Outcome::Empty, String::new(), evidence::detail(why));
            }
            let why = verdicts::explain(end, &stderr);
            return close(self.draft, failure, finding, &why, String::new(), end);
        }
        let otherwise =
            if self.strange_objects > 0 { Failure::InvalidEnvelope } else { Failure::InvalidJson };
        let said = if stderr.trim().is_empty() { clip(&other).to_owned() } else { stderr };
        let (failure, finding) = match verdicts::ended_well(end) {
            // What a model said may be about anything.
            true => (otherwise, None),
            false => self.failure(&said, end, otherwise),
        };
        let why = match failure {
            Failure::InvalidJson => "the output is not JSON; it is kept as it came".to_owned(),
            Failure::InvalidEnvelope => {
                "the output is JSON, but not a result of agy; it is kept as it came".to_owned()
            }
            _ => verdicts::explain(end, &said),
        };
        close(self.draft, failure, finding, &why, other, end)
    }
}

/// The first bytes of a text, for its words.
fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(4096)]
}

/// A failed run.
fn close(
    mut draft: Draft,
    failure: Failure,
    finding: Option<Finding>,
    why: &str,
    answer: String,
    end: &RunEnd<'_>,
) -> Verdict {
    draft.meta.insert(Failure::KEY.into(), json!(failure.as_str()));
    draft.cause = Some(failure);
    match (failure, finding) {
        (Failure::ConversationLost, _) => draft.fail(Some(Finding::ResumeUnknown), why, answer),
        (Failure::LoginRequired, _) => draft.fail(Some(Finding::Login), why, answer),
        (Failure::Quota, _) => draft.fail(Some(Finding::Quota), why, answer),
        (Failure::WorkerError, finding) => draft.fail(finding, why, answer),
        (Failure::PartialTimeout, _) => draft.close(Outcome::Timeout, answer, evidence::detail(why)),
        (Failure::Cancelled, _) => draft.close(Outcome::Cancelled, answer, evidence::detail(why)),
        (Failure::InvalidJson | Failure::InvalidEnvelope, _) if verdicts::ended_well(end) => {
            draft.not_recognised(why, answer)
        }
        _ => draft.close(Outcome::WorkerError, answer, evidence::detail(why)),
    }
}

impl StreamParser for Parser {
    fn line(&mut self, line: &[u8]) -> Option<Activity> {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let mut shown = None;
        let mut decoder = std::mem::take(&mut self.decoder);
        let was_text = decoder.in_text();
        let kind = decoder.line(line, &mut |bytes| self.object(bytes, &mut shown));
        self.decoder = decoder;
        if kind == Line::Other && !line.trim_ascii().is_empty() {
            self.other_lines += 1;
            self.other.push_line(line);
            let text = String::from_utf8_lossy(line);
            if !was_text && words::is_login(&text) {
                self.end_for(Failure::LoginRequired, evidence::detail(&text).unwrap_or_default());
            }
        }
        shown
    }

    fn error_line(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        self.notices.line(&text);
        if words::is_login(&text) {
            self.end_for(Failure::LoginRequired, evidence::detail(&text).unwrap_or_default());
        }
        if self.notices.conversation_miss && self.resume.is_some() {
            self.end_for(Failure::ConversationLost, evidence::detail(&text).unwrap_or_default());
        }
    }

    fn servers(&mut self, rule: ServerRule) {
        self.servers.rule = rule;
    }

    fn endpoint_asked(&mut self) {
        self.servers.asked();
    }

    fn authority(&mut self, sandbox: Sandbox) {
        self.may_write = sandbox != Sandbox::ReadOnly;
    }

    fn expects_report(&mut self) {
        self.expects_report = true;
    }

    fn fatal(&self) -> Option<&str> {
        self.servers.fatal().or(self.fatal.as_ref().map(|(_, why)| why.as_str()))
    }

    fn finish(mut self: Box<Self>, end: &RunEnd<'_>) -> Verdict {
        for line in end.stderr_tail.lines() {
            self.notices.line(line);
        }
        self.facts();
        // Not at its first step: whether servers are waited for before it depends on the version (1.1.9).
        if self.result.as_ref().is_some_and(|result| result.status == "SUCCESS") {
            self.servers.began();
        }
        if let Some(why) = self.servers.verdict(&mut self.draft) {
            return self.draft.fail(None, &why, self.said.into_text());
        }
        if let Some((failure, why)) = self.fatal.take() {
            return close(self.draft, failure, None, &why, self.said.into_text(), end);
        }
        match self.result.take() {
            Some(result) => self.judge(result, end),
            None => self.without_result(end),
        }
    }
}
