//! Reads `gemini -o stream-json`: one JSON event a line, closed by a `result`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::bounded::BoundedText;
use super::super::evidence::{self, Finding};
use super::super::servers::{ServerRule, ServerWatch};
use super::super::verdicts::{self, Draft};
use super::super::{Activity, Failure, Metered, RunEnd, StreamParser, Tokens, Verdict, redaction};

/// Output that is not an event is kept up to this size, in case all of it is plain text.
const PLAIN_BYTES: usize = 4 << 20;

/// Longest answer that is kept; more than any model writes in one turn.
const ANSWER_BYTES: usize = 16 << 20;

/// Calls of servers' tools that are waited for at once.
const ASKED_FOR: usize = 256;

/// Longest activity line, in characters.
const ACTIVITY_CHARS: usize = 160;

/// Said when the rules of a run are not used, or not all of them.
const RULES_IGNORED: [&str; 2] = ["Ignoring --admin-policy", "[ADMIN] Policy file"];

/// An event. What tools gave back is never read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    r#type: Value,
    session_id: Value,
    role: Value,
    content: Value,
    delta: Value,
    tool_name: Value,
    tool_id: Value,
    parameters: Value,
    status: Value,
    severity: Value,
    message: Value,
    error: Problem,
    stats: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    r#type: Value,
    message: Value,
}

/// The last event.
struct Closing {
    success: bool,
    kind: String,
    message: Option<String>,
}

/// The parser of one run.
pub(super) struct Parser {
    draft: Draft,
    servers: ServerWatch,
    plain: BoundedText,
    plain_lines: u64,
    events: u64,
    unknown_events: u64,
    /// What the model wrote since its last tool call, and before it.
    text: String,
    earlier: String,
    closing: Option<Closing>,
    last_error: Option<String>,
    denials: u64,
    /// Tools of servers that were called and have not answered, by the ids of the calls.
    asked_for: Vec<(Value, String)>,
    fatal: Option<Fatal>,
}

/// What ends a run at once.
enum Fatal {
    Login(String),
    Unlimited(String),
}

impl Parser {
    /// `resume` is the session that was asked for.
    pub fn new(resume: Option<&str>, tested_version: &'static str) -> Self {
        Self {
            draft: Draft::new(resume, tested_version),
            servers: ServerWatch::default(),
            plain: BoundedText::new(PLAIN_BYTES),
            plain_lines: 0,
            events: 0,
            unknown_events: 0,
            text: String::new(),
            earlier: String::new(),
            closing: None,
            last_error: None,
            denials: 0,
            asked_for: Vec::new(),
            fatal: None,
        }
    }

    fn plain_line(&mut self, line: &[u8]) {
        self.plain_lines += 1;
        if self.events > 0 {
            return;
        }
        self.plain.push_line(line);
        if self.fatal.is_none() && evidence::is_login_prompt(line, self.plain_lines) {
            self.fatal = evidence::detail(&String::from_utf8_lossy(line)).map(Fatal::Login);
        }
    }

    fn event(&mut self, event: Event) -> Option<Activity> {
        match event.r#type.as_str().unwrap_or_default() {
            "init" => {
                if let Some(id) = event.session_id.as_str().filter(|id| verdicts::is_uuid(id)) {
                    self.draft.native_id = Some(id.to_owned());
                }
                None
            }
            "message" => {
                if event.role.as_str() == Some("assistant") {
                    self.servers.began();
                    self.said(
                        event.content.as_str().unwrap_or_default(),
                        event.delta.as_bool() == Some(true),
                    );
                }
                None
            }
            "tool_use" => {
                self.servers.began();
                if !verdicts::is_blank(&self.text) {
                    self.earlier = std::mem::take(&mut self.text);
                }
                self.text.clear();
                let name = event.tool_name.as_str().unwrap_or("tool");
                // A model may ask for a tool that is not there. What came of it tells.
                if name.starts_with("mcp_") && self.asked_for.len() < ASKED_FOR {
                    self.asked_for.push((event.tool_id.clone(), redaction::clip(name, 80)));
                }
                let what = ["command", "file_path", "dir_path", "path", "pattern", "query", "title"]
                    .iter()
                    .find_map(|key| event.parameters.get(key).and_then(Value::as_str))
                    .unwrap_or_default();
                activity(&format!("{name}: {what}"))
            }
            "tool_result" => {
                let kind = event.error.r#type.as_str().unwrap_or_default();
                let words = event.error.message.as_str().unwrap_or_default();
                let denied = event.status.as_str() == Some("error") && is_denial(kind, words);
                self.denials += u64::from(denied);
                if let Some(at) = self.asked_for.iter().position(|(id, _)| *id == event.tool_id) {
                    let (_, name) = self.asked_for.swap_remove(at);
                    if !denied {
                        self.servers.gemini_tool(&name);
                    }
                }
                None
            }
            "error" => {
                let message = event.message.as_str()?;
                if event.severity.as_str() != Some("warning") {
                    self.last_error = Some(message.to_owned());
                }
                activity(message)
            }
            "result" => {
                self.draft.usage.tokens = run_tokens(&event.stats).map(Metered::Run);
                self.closing = Some(Closing {
                    success: event.status.as_str() == Some("success"),
                    kind: event.error.r#type.as_str().unwrap_or_default().to_owned(),
                    message: event.error.message.as_str().map(str::to_owned),
                });
                None
            }
            _ => {
                self.unknown_events += 1;
                None
            }
        }
    }

    fn said(&mut self, content: &str, delta: bool) {
        if !delta {
            self.text.clear();
        }
        let room = ANSWER_BYTES.saturating_sub(self.text.len());
        self.text.push_str(&content[..content.floor_char_boundary(room)]);
    }

    fn facts(&mut self) {
        let meta = &mut self.draft.meta;
        if self.unknown_events > 0 {
            meta.insert("unknownEvents".into(), json!(self.unknown_events));
        }
        if self.events > 0 && self.plain_lines > 0 {
            meta.insert("noiseLines".into(), json!(self.plain_lines));
        }
        if self.denials > 0 {
            meta.insert("permissionDenials".into(), json!(self.denials));
        }
    }
}

impl StreamParser for Parser {
    fn line(&mut self, line: &[u8]) -> Option<Activity> {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return None;
        }
        match verdicts::event_in::<Event>(line) {
            Some(event) if self.events > 0 || is_known(&event) => {
                self.events += 1;
                self.event(event)
            }
            _ => {
                self.plain_line(line);
                None
            }
        }
    }

    fn error_line(&mut self, line: &[u8]) {
        if self.fatal.is_some() {
            return;
        }
        let words = String::from_utf8_lossy(line);
        if RULES_IGNORED.iter().any(|said| words.contains(said)) {
            self.fatal = evidence::detail(&words).map(Fatal::Unlimited);
        } else if self.events == 0 && evidence::is_login_wait(line) {
            self.fatal = evidence::detail(&words).map(Fatal::Login);
        }
    }

    fn servers(&mut self, rule: ServerRule) {
        self.servers.rule = rule;
    }

    fn endpoint_asked(&mut self) {
        self.servers.asked();
    }

    fn fatal(&self) -> Option<&str> {
        self.servers.fatal().or(match &self.fatal {
            Some(Fatal::Login(why) | Fatal::Unlimited(why)) => Some(why),
            None => None,
        })
    }

    fn finish(mut self: Box<Self>, end: &RunEnd<'_>) -> Verdict {
        self.facts();
        self.servers.gemini_stderr(end.stderr_tail);
        if self.closing.as_ref().is_some_and(|closing| closing.success) {
            self.servers.began();
        }
        let text = if verdicts::is_blank(&self.text) { &mut self.earlier } else { &mut self.text };
        let answer = std::mem::take(text).trim().to_owned();
        if let Some(why) = self.servers.verdict(&mut self.draft) {
            return self.draft.fail(None, &why, answer);
        }
        let Self { mut draft, plain, events, closing, last_error, fatal, .. } = *self;
        match fatal {
            Some(Fatal::Login(why)) if closing.is_none() => {
                let text = if events == 0 { plain.into_text() } else { answer };
                return draft.fail(Some(Finding::Login), &why, text);
            }
            Some(Fatal::Unlimited(why)) => {
                let why = format!("the rules of this run are not used by the installed CLI: {why}");
                return draft.fail(None, &why, answer);
            }
            _ => {}
        }
        match closing {
            Some(closing) if closing.success => return draft.answered(answer, end),
            Some(closing) => {
                let said = closing.message.or(last_error);
                let (finding, cause) = judge(&closing.kind, said.as_deref(), end, true);
                draft.cause = cause;
                let why = said.map_or_else(
                    || format!("the run ended with an error; {}", verdicts::exit_text(end)),
                    |said| words_of(&said),
                );
                return draft.fail(finding, &why, answer);
            }
            None => {}
        }
        let stderr = telling(end.stderr_tail);
        if events == 0 {
            let (finding, cause) = judge("", Some(&stderr), end, false);
            if finding.is_some() || cause.is_some() {
                draft.cause = cause;
                return draft.fail(finding, &verdicts::explain(end, &stderr), plain.into_text());
            }
            return draft.plain(plain.into_text(), end);
        }
        let said = last_error.unwrap_or(stderr);
        let (finding, cause) = judge("", Some(&said), end, true);
        draft.cause = cause;
        let why = if said.is_empty() {
            format!("the event stream ended before the run was complete; {}", verdicts::exit_text(end))
        } else {
            verdicts::explain(end, &said)
        };
        draft.fail(finding, &why, answer)
    }
}

fn is_known(event: &Event) -> bool {
    let kinds = ["init", "message", "tool_use", "tool_result", "error", "result"];
    event.r#type.as_str().is_some_and(|kind| kinds.contains(&kind))
}

/// A tool that was not there, not allowed, or asked for a place outside.
fn is_denial(kind: &str, words: &str) -> bool {
    matches!(kind, "tool_not_registered" | "policy_violation")
        || ["denied by policy", "Access denied", "not in workspace"].iter().any(|said| words.contains(said))
}

/// The CLI's exit code, or the provider's status that it stands for, says what the words do not.
fn judge(
    kind: &str,
    said: Option<&str>,
    end: &RunEnd<'_>,
    began: bool,
) -> (Option<Finding>, Option<Failure>) {
    let words = said.unwrap_or_default();
    let finding = evidence::classify(words, began);
    if finding.is_some() {
        return (finding, None);
    }
    match (end.exit_code, kind) {
        (Some(41), _) | (_, "FatalAuthenticationError") => return (Some(Finding::Login), None),
        (Some(53), _) | (_, "FatalTurnLimitedError") => return (Some(Finding::Limit("turns")), None),
        _ => {}
    }
    if let Some(cause) = Failure::in_text(words) {
        return (None, Some(cause));
    }
    let status = status_in(words).or_else(|| end.exit_code.and_then(status_of_exit));
    match status {
        Some(401) => (Some(Finding::Login), None),
        Some(402 | 429) => (Some(Finding::Quota), None),
        Some(status) => (None, Failure::from_status(status)),
        None => (None, None),
    }
}

/// The HTTP status in `[API Error: {"error":{"code":429,…}}]`.
fn status_in(words: &str) -> Option<i64> {
    api_error(words)?.pointer("/error/code").and_then(Value::as_i64)
}

/// What an API error's own message says.
fn words_of(said: &str) -> String {
    let message = api_error(said).and_then(|body| Some(body.pointer("/error/message")?.as_str()?.to_owned()));
    message.map_or_else(|| said.to_owned(), |message| format!("API error: {message}"))
}

fn api_error(words: &str) -> Option<Value> {
    let body = words.split_once("[API Error: ")?.1;
    serde_json::Deserializer::from_str(body).into_iter::<Value>().next()?.ok()
}

/// Unix keeps the low eight bits of an exit code.
fn status_of_exit(code: i64) -> Option<i64> {
    match code {
        400..=599 => Some(code),
        144..=255 => Some(code + 256),
        _ => None,
    }
}

/// Standard error without the CLI's own remarks and stack traces.
fn telling(tail: &str) -> String {
    const NOISE: &[&str] = &[
        "[STARTUP]",
        "Ripgrep is not available",
        "Warning: 256-color support not detected",
        "Warning: Basic terminal detected",
        "Warning: --allowed-tools cli argument",
        "YOLO mode is enabled",
        "Loaded cached credentials",
        "Error executing tool ",
        "at ",
        "}",
        "status:",
        "code:",
    ];
    let lines: Vec<&str> = tail
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !NOISE.iter().any(|noise| line.starts_with(noise)))
        .collect();
    evidence::telling_stderr(&lines.join("\n"))
}

/// Tokens of this run. What was thought is counted in the total alone.
fn run_tokens(stats: &Value) -> Option<Tokens> {
    let count = |name: &str| stats.get(name).and_then(Value::as_u64);
    let (input, visible) = (count("input_tokens")?, count("output_tokens")?);
    let output = count("total_tokens").unwrap_or(0).saturating_sub(input).max(visible);
    // Zeros stand for requests that were never answered.
    (input > 0 || output > 0).then_some(Tokens {
        input,
        cached_input: count("cached").unwrap_or(0),
        output,
        reasoning: output - visible,
    })
}

fn activity(line: &str) -> Option<Activity> {
    let line = redaction::one_line(line.trim_end_matches([':', ' ']), ACTIVITY_CHARS);
    (!line.is_empty()).then_some(Activity { line })
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
