//! Reads Claude Code's output in every form it comes in: one event a line, an array of events, or a
//! single result object, on one line or over many, with other lines around it.

use serde::Deserialize;
use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::{Value, json};

use super::super::bounded::BoundedText;
use super::super::evidence::{self, Finding};
use super::super::servers::{ServerRule, ServerWatch};
use super::super::verdicts::{self, Draft};
use super::super::{
    Activity, Failure, Metered, RunEnd, STRUCTURED_OUTPUT, StreamParser, Tokens, Verdict, redaction,
};

/// A document over several lines is kept up to this size.
const DOCUMENT_BYTES: usize = 16 << 20;

/// How many places of a text may turn out not to be the start of a document.
const DOCUMENT_TRIES: usize = 16;

/// Longest activity line, in characters.
const ACTIVITY_CHARS: usize = 160;

/// After this many retries for a missing login the run is ended: the CLI would go on for minutes.
const LOGIN_RETRIES: u64 = 2;

/// Tool results come back as `user` events and may be large; above this size their kind is read first, so
/// that their content is never built in memory.
const LARGE: usize = 256 << 10;

/// An object, of which nothing is kept.
#[derive(Deserialize)]
struct AnyEvent {}

#[derive(Deserialize)]
struct Kind {
    r#type: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    r#type: Value,
    subtype: Value,
    session_id: Value,
    claude_code_version: Value,
    is_error: Value,
    result: Value,
    structured_output: Value,
    message: Value,
    error: Value,
    error_status: Value,
    attempt: Value,
    max_retries: Value,
    num_turns: Value,
    usage: Value,
    total_cost_usd: Value,
    permission_denials: Value,
    terminal_reason: Value,
    api_error_status: Value,
    errors: Value,
    stop_reason: Value,
    parent_tool_use_id: Value,
    mcp_servers: Value,
    tools: Value,
}

/// The parser of one run.
pub(super) struct Parser {
    draft: Draft,
    servers: ServerWatch,
    other: BoundedText,
    other_lines: u64,
    /// Lines are events: nothing else needs to be kept.
    streaming: bool,
    unknown_events: u64,
    result: Option<Event>,
    /// Last text the model wrote itself, for runs that never reach their result.
    partial: Option<String>,
    api_error: Option<String>,
    fatal: Option<String>,
}

impl Parser {
    /// `resume` is the session that was asked for.
    pub fn new(resume: Option<&str>, tested_version: &'static str) -> Self {
        Self {
            draft: Draft::new(resume, tested_version),
            servers: ServerWatch::default(),
            other: BoundedText::new(DOCUMENT_BYTES),
            other_lines: 0,
            streaming: false,
            unknown_events: 0,
            result: None,
            partial: None,
            api_error: None,
            fatal: None,
        }
    }

    fn other_line(&mut self, line: &[u8]) {
        self.other_lines += 1;
        if self.streaming {
            return;
        }
        self.other.push_line(line);
        if self.fatal.is_none() && evidence::is_login_prompt(line, self.other_lines) {
            self.fatal = evidence::detail(&String::from_utf8_lossy(line));
        }
    }

    fn event(&mut self, event: Event) -> Option<Activity> {
        if let Some(id) = event.session_id.as_str().filter(|id| verdicts::is_uuid(id)) {
            self.draft.native_id = Some(id.to_owned());
        }
        match event.r#type.as_str().unwrap_or_default() {
            "system" => self.system(&event),
            "assistant" => {
                if !event.error.is_string() {
                    self.servers.began();
                }
                self.assistant(&event)
            }
            "user" | "stream_event" => None,
            "result" => {
                self.result = Some(event);
                None
            }
            // A bare result object without a type, as older versions printed it.
            "" if event.result.is_string() || event.is_error.is_boolean() => {
                self.result = Some(event);
                None
            }
            _ => {
                self.unknown_events += 1;
                None
            }
        }
    }

    fn system(&mut self, event: &Event) -> Option<Activity> {
        match event.subtype.as_str().unwrap_or_default() {
            "init" => {
                if let Some(version) = event.claude_code_version.as_str() {
                    self.draft.cli_version = verdicts::version_in(version);
                }
                self.servers.list(&event.mcp_servers, &event.tools);
                None
            }
            "api_retry" => {
                let error = event.error.as_str().unwrap_or("error");
                let attempt = event.attempt.as_u64().unwrap_or(0);
                if error == "authentication_failed" && attempt >= LOGIN_RETRIES && self.fatal.is_none() {
                    let status = event.error_status.as_u64().unwrap_or(401);
                    self.fatal = Some(format!("the provider refuses the login ({status} {error})"));
                }
                activity(&format!("retrying: {error} ({attempt}/{})", event.max_retries))
            }
            _ => None,
        }
    }

    fn assistant(&mut self, event: &Event) -> Option<Activity> {
        if let Some(error) = event.error.as_str() {
            self.api_error = Some(redaction::clip(error, 80));
            return None;
        }
        let mut shown = None;
        for block in event.message.get("content").and_then(Value::as_array).into_iter().flatten() {
            match block.get("type").and_then(Value::as_str).unwrap_or_default() {
                // What a sub-agent writes is not the answer.
                "text" if event.parent_tool_use_id.is_null() => {
                    if let Some(text) = block.get("text").and_then(Value::as_str) {
                        self.partial = Some(text.to_owned());
                    }
                }
                "thinking" => shown = activity("thinking").or(shown),
                "tool_use" => {
                    let name = block.get("name").and_then(Value::as_str).unwrap_or("tool");
                    let what = ["command", "file_path", "path", "pattern", "url", "query", "description"]
                        .iter()
                        .find_map(|key| block.pointer(&format!("/input/{key}")).and_then(Value::as_str))
                        .unwrap_or_default();
                    shown = activity(&format!("{name}: {what}"));
                }
                _ => {}
            }
        }
        shown
    }

    /// Reads what came as one document instead of as lines.
    fn documents(&mut self) {
        let mut other = std::mem::replace(&mut self.other, BoundedText::new(DOCUMENT_BYTES));
        if let Some(bytes) = other.complete() {
            // As for a line: bytes that are no UTF-8 cost only themselves.
            let text = String::from_utf8_lossy(bytes);
            let text = text.as_bytes();
            let mut at = 0;
            let mut tries = 0;
            while let Some(start) = next_start(text, at) {
                at = match self.document(&text[start..]) {
                    Some(length) => start + length.max(1),
                    None => {
                        tries += 1;
                        start + 1
                    }
                };
                if tries == DOCUMENT_TRIES {
                    break;
                }
            }
        }
        self.other = other;
    }

    /// One document at the start of these bytes: its length, if it is one.
    fn document(&mut self, text: &[u8]) -> Option<usize> {
        if text.starts_with(b"[") {
            // Judged first, so that what is not a document has no effect; then one event at a time, since
            // a list of short events would take hundreds of times its size in memory.
            let mut stream = serde_json::Deserializer::from_slice(text).into_iter::<Vec<AnyEvent>>();
            stream.next()?.ok()?;
            let length = stream.byte_offset();
            let mut whole = serde_json::Deserializer::from_slice(&text[..length]);
            whole.deserialize_seq(Events(self)).ok()?;
            Some(length)
        } else {
            let mut stream = serde_json::Deserializer::from_slice(text).into_iter::<Event>();
            let event = stream.next()?.ok()?;
            let length = stream.byte_offset();
            self.event(event);
            Some(length)
        }
    }

    fn facts(&mut self) {
        let meta = &mut self.draft.meta;
        if self.unknown_events > 0 {
            meta.insert("unknownEvents".into(), json!(self.unknown_events));
        }
        if self.other_lines > 0 && self.streaming {
            meta.insert("noiseLines".into(), json!(self.other_lines));
        }
        if let Some(error) = &self.api_error {
            meta.insert("apiError".into(), json!(error));
        }
        let Some(result) = &self.result else { return };
        for (name, value) in [
            ("subtype", &result.subtype),
            ("terminalReason", &result.terminal_reason),
            ("stopReason", &result.stop_reason),
        ] {
            if let Some(text) = value.as_str() {
                meta.insert(name.into(), json!(redaction::one_line(text, 80)));
            }
        }
        for (name, value) in [("numTurns", &result.num_turns), ("apiErrorStatus", &result.api_error_status)] {
            if let Some(number) = value.as_i64() {
                meta.insert(name.into(), json!(number));
            }
        }
        let denials: Vec<String> = result
            .permission_denials
            .as_array()
            .into_iter()
            .flatten()
            .map(|denial| denial.get("tool_name").and_then(Value::as_str).unwrap_or("tool").to_owned())
            .collect();
        if !denials.is_empty() {
            meta.insert("permissionDenials".into(), json!(denials.len()));
            meta.insert("deniedTools".into(), verdicts::few(&denials));
        }
        if !result.structured_output.is_null() {
            meta.insert(STRUCTURED_OUTPUT.into(), result.structured_output.clone());
        }
        self.draft.usage.tokens = run_tokens(&result.usage).map(Metered::Run);
        self.draft.usage.cost_usd = result
            .total_cost_usd
            .as_f64()
            .filter(|cost| cost.is_finite() && *cost >= 0.0)
            .map(Metered::Total);
    }
}

impl StreamParser for Parser {
    fn line(&mut self, line: &[u8]) -> Option<Activity> {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let trimmed = line.trim_ascii();
        if trimmed.is_empty() {
            return None;
        }
        if trimmed.len() > LARGE
            && let Some(kind) = verdicts::event_in::<Kind>(trimmed)
            && self.streaming
            && matches!(kind.r#type.as_str(), "user" | "stream_event")
        {
            return None;
        }
        if let Some(event) = verdicts::event_in::<Event>(trimmed) {
            let kind = event.r#type.as_str().unwrap_or_default();
            // The first event of a stream; from here on no line can belong to a larger document.
            if matches!(kind, "system" | "assistant") || self.streaming {
                if !self.streaming {
                    self.streaming = true;
                    self.other.clear();
                }
                return self.event(event);
            }
        }
        self.other_line(line);
        None
    }

    fn error_line(&mut self, line: &[u8]) {
        if !self.streaming && self.fatal.is_none() && evidence::is_login_wait(line) {
            self.fatal = evidence::detail(&String::from_utf8_lossy(line));
        }
    }

    fn servers(&mut self, rule: ServerRule) {
        self.servers.rule = rule;
    }

    fn fatal(&self) -> Option<&str> {
        self.servers.fatal().or(self.fatal.as_deref())
    }

    fn finish(mut self: Box<Self>, end: &RunEnd<'_>) -> Verdict {
        if !self.streaming {
            self.documents();
        }
        self.facts();
        if self.result.as_ref().is_some_and(|result| result.is_error.as_bool() != Some(true)) {
            self.servers.began();
        }
        if let Some(why) = self.servers.verdict(&mut self.draft) {
            return self.draft.fail(None, &why, self.partial.unwrap_or_default());
        }
        let Self { mut draft, other, streaming, result, partial, api_error, fatal, .. } = *self;
        let partial = partial.unwrap_or_default();
        let Some(result) = result else {
            if let Some(fatal) = fatal {
                let text = if streaming { partial } else { other.into_text() };
                return draft.fail(Some(Finding::Login), &fatal, text);
            }
            if !streaming {
                return draft.plain(other.into_text(), end);
            }
            let stderr = evidence::telling_stderr(end.stderr_tail);
            let said = match &api_error {
                Some(error) => format!("{error} {stderr}"),
                None => stderr,
            };
            let finding = evidence::classify(&said, true);
            let why = if said.trim().is_empty() {
                format!("the run ended without a result; {}", verdicts::exit_text(end))
            } else {
                verdicts::explain(end, &said)
            };
            return draft.fail(finding, &why, partial);
        };
        let text = answer_of(&result);
        let subtype = result.subtype.as_str().unwrap_or("success");
        if result.is_error.as_bool() != Some(true) && !subtype.starts_with("error") {
            return draft.answered(text.unwrap_or_default(), end);
        }
        let errors: Vec<&str> =
            result.errors.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let said = match &text {
            Some(text) if errors.is_empty() => text.clone(),
            Some(text) => format!("{text} {}", errors.join(" ")),
            None => errors.join(" "),
        };
        draft.cause = cause(&result, api_error.as_deref());
        let finding =
            judge(&result, subtype, api_error.as_deref()).or_else(|| evidence::classify(&said, true));
        let why = match said.is_empty() {
            true => format!("the run ended with {subtype}; {}", verdicts::exit_text(end)),
            false => said,
        };
        draft.fail(finding, &why, text.unwrap_or(partial))
    }
}

/// Hands the events of a list on, one by one.
struct Events<'a>(&'a mut Parser);

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(event) = list.next_element::<Event>()? {
            self.0.event(event);
        }
        Ok(())
    }
}

/// What the structured fields say; they are surer than any phrase.
fn judge(result: &Event, subtype: &str, api_error: Option<&str>) -> Option<Finding> {
    match (subtype, result.terminal_reason.as_str().unwrap_or_default()) {
        ("error_max_turns", _) | (_, "max_turns") => return Some(Finding::Limit("turns")),
        ("error_max_budget_usd", _) | (_, "budget_exhausted") => return Some(Finding::Limit("budget")),
        (_, "prompt_too_long") => return Some(Finding::Limit("context")),
        _ => {}
    }
    match api_error {
        Some("authentication_failed") => return Some(Finding::Login),
        Some("billing_error" | "rate_limit") => return Some(Finding::Quota),
        Some("max_output_tokens") => return Some(Finding::Limit("output-tokens")),
        _ => {}
    }
    match result.api_error_status.as_i64() {
        Some(401) => Some(Finding::Login),
        Some(429 | 402) => Some(Finding::Quota),
        _ => None,
    }
}

/// Causes that structured fields prove.
fn cause(result: &Event, api_error: Option<&str>) -> Option<Failure> {
    match (result.stop_reason.as_str(), api_error) {
        (Some("refusal"), _) => Some(Failure::ContentFiltered),
        (_, Some("model_not_found")) => Some(Failure::ModelUnavailable),
        _ => None,
    }
}

/// The result's text, or its structured output as JSON.
fn answer_of(result: &Event) -> Option<String> {
    match &result.result {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Null | Value::String(_) => match &result.structured_output {
            Value::Null => None,
            structured => Some(structured.to_string()),
        },
        other => Some(other.to_string()),
    }
}

/// Tokens of this run. The service counts cached input apart; here it is a part of the input.
fn run_tokens(usage: &Value) -> Option<Tokens> {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    let cached = count("cache_read_input_tokens").unwrap_or(0);
    let created = count("cache_creation_input_tokens").unwrap_or(0);
    Some(Tokens {
        input: count("input_tokens")?.saturating_add(cached).saturating_add(created),
        cached_input: cached,
        output: count("output_tokens")?,
        reasoning: usage
            .pointer("/output_tokens_details/thinking_tokens")
            .and_then(Value::as_u64)
            .unwrap_or(0),
    })
}

/// The next `{` or `[` at the beginning of a line.
fn next_start(text: &[u8], from: usize) -> Option<usize> {
    (from..text.len()).find(|at| {
        matches!(text[*at], b'{' | b'[')
            && text[..*at]
                .iter()
                .rev()
                .find(|byte| !matches!(byte, b' ' | b'\t'))
                .is_none_or(|byte| *byte == b'\n')
    })
}

fn activity(line: &str) -> Option<Activity> {
    let line = redaction::one_line(line, ACTIVITY_CHARS);
    (!line.is_empty()).then_some(Activity { line })
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
