//! Reads `codex exec --json`: one JSON event a line, in the present shape and in two older ones.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::bounded::BoundedText;
use super::super::evidence::{self, Finding};
use super::super::servers::{ServerRule, ServerWatch};
use super::super::verdicts::{self, Draft};
use super::super::{Activity, Metered, RunEnd, STRUCTURED_OUTPUT, StreamParser, Tokens, Verdict, redaction};

/// Output that is not an event is kept up to this size, in case all of it is plain text.
const PLAIN_BYTES: usize = 4 << 20;

/// Longest activity line, in characters.
const ACTIVITY_CHARS: usize = 160;

/// After this many retries for a missing login the run is ended: further ones cannot help and each
/// may void a token.
const LOGIN_RETRIES: u32 = 2;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    r#type: Value,
    thread_id: Value,
    #[serde(rename = "threadId")]
    thread_id_camel: Value,
    session_id: Value,
    item: Option<Item>,
    usage: Value,
    error: Value,
    message: Value,
    /// The oldest shape wraps every event.
    msg: Option<Box<Legacy>>,
}

/// What is inside `msg` of the oldest shape.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Legacy {
    r#type: Value,
    message: Value,
    last_agent_message: Value,
    session_id: Value,
    info: Value,
    command: Value,
    invocation: Value,
}

/// An item; its bulky parts (`aggregated_output`, results) are never read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    r#type: Value,
    item_type: Value,
    text: Value,
    content: Value,
    message: Value,
    command: Value,
    changes: Value,
    server: Value,
    tool: Value,
    query: Value,
}

/// How the last turn in the stream ended.
enum Closing {
    Completed,
    Failed(String),
}

/// The parser of one run.
pub(super) struct Parser {
    draft: Draft,
    servers: ServerWatch,
    plain: BoundedText,
    plain_lines: u64,
    events: u64,
    unknown_events: u64,
    old_shape: bool,
    answer: Option<String>,
    closing: Option<Closing>,
    last_error: Option<String>,
    warnings: Vec<String>,
    /// The answer follows a schema.
    report: bool,
    fatal: Option<String>,
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
            old_shape: false,
            answer: None,
            closing: None,
            last_error: None,
            warnings: Vec::new(),
            report: false,
            fatal: None,
        }
    }

    fn plain_line(&mut self, line: &[u8]) {
        self.plain_lines += 1;
        // Beside events, other lines are noise; before any, they may be all there is.
        if self.events > 0 {
            return;
        }
        self.plain.push_line(line);
        if self.fatal.is_none() && evidence::is_login_prompt(line, self.plain_lines) {
            self.fatal = evidence::detail(&String::from_utf8_lossy(line));
        }
    }

    fn saw_thread(&mut self, id: &Value) {
        if let Some(id) = id.as_str().filter(|id| verdicts::is_uuid(id)) {
            self.draft.native_id = Some(id.to_owned());
        }
    }

    fn event(&mut self, event: Event) -> Option<Activity> {
        if let Some(legacy) = event.msg {
            return self.legacy(*legacy);
        }
        let Some(kind) = event.r#type.as_str() else {
            self.unknown_events += 1;
            return None;
        };
        match kind {
            "thread.started" | "session.created" => {
                for id in [&event.session_id, &event.thread_id_camel, &event.thread_id] {
                    self.saw_thread(id);
                }
                None
            }
            "turn.started" => {
                self.closing = None;
                None
            }
            "turn.completed" => {
                // A later event of the same turn replaces an earlier one: totals are not added up.
                if let Some(tokens) = totals(&event.usage) {
                    self.draft.usage.tokens = Some(Metered::Total(tokens));
                }
                self.closing = Some(Closing::Completed);
                None
            }
            "turn.failed" => {
                let message = message_of(&event.error).or_else(|| message_of(&event.message));
                self.closing = Some(Closing::Failed(message.unwrap_or_else(|| "the turn failed".to_owned())));
                None
            }
            "error" => {
                let message = message_of(&event.message).or_else(|| message_of(&event.error))?;
                self.saw_error(message)
            }
            "item.started" | "item.updated" | "item.completed" => {
                let item = event.item?;
                self.item(kind, &item)
            }
            _ => {
                self.unknown_events += 1;
                None
            }
        }
    }

    fn saw_error(&mut self, message: String) -> Option<Activity> {
        if self.fatal.is_none()
            && retry_number(&message).is_some_and(|number| number >= LOGIN_RETRIES)
            && evidence::classify(&message, true) == Some(Finding::Login)
        {
            self.fatal = evidence::detail(&message);
        }
        let activity = activity(&message);
        self.last_error = Some(message);
        activity
    }

    fn item(&mut self, kind: &str, item: &Item) -> Option<Activity> {
        self.old_shape |= item.r#type.is_null() && item.item_type.is_string();
        let started = kind == "item.started";
        let what = item.r#type.as_str().or_else(|| item.item_type.as_str()).unwrap_or_default();
        if what == "mcp_tool_call" {
            self.servers.call(&item.server);
        }
        match what {
            "agent_message" | "assistant_message" => {
                if kind == "item.completed" {
                    let text = text_of(&item.text).or_else(|| text_of(&item.content));
                    self.answer = text.or(self.answer.take());
                }
                None
            }
            "command_execution" if started => {
                activity(&format!("running: {}", without_shell(item.command.as_str().unwrap_or_default())))
            }
            "file_change" if started => {
                let paths: Vec<&str> = item
                    .changes
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|change| change.get("path").and_then(Value::as_str))
                    .take(4)
                    .collect();
                activity(&format!("changing: {}", paths.join(", ")))
            }
            "mcp_tool_call" if started => activity(&format!(
                "calling: {}/{}",
                item.server.as_str().unwrap_or_default(),
                item.tool.as_str().unwrap_or_default()
            )),
            "web_search" if started => {
                activity(&format!("searching: {}", item.query.as_str().unwrap_or_default()))
            }
            "reasoning" if kind == "item.completed" => {
                let text = text_of(&item.text)?;
                let line = text.lines().find(|line| !line.trim().is_empty())?.trim().trim_matches('*');
                activity(&format!("thinking: {line}"))
            }
            "command_execution" | "file_change" | "mcp_tool_call" | "web_search" | "reasoning"
            | "todo_list" => None,
            "error" => {
                if let Some(message) = message_of(&item.message).filter(|_| self.warnings.len() < 5) {
                    self.warnings.push(redaction::clip(&message, 400));
                }
                None
            }
            _ => {
                // Its words may be the answer, in a shape that came after this adapter.
                self.unknown_events += u64::from(kind == "item.completed");
                None
            }
        }
    }

    fn legacy(&mut self, event: Legacy) -> Option<Activity> {
        self.old_shape = true;
        match event.r#type.as_str().unwrap_or_default() {
            "session_configured" => self.saw_thread(&event.session_id),
            "task_started" => self.closing = None,
            "agent_message" => self.answer = text_of(&event.message).or(self.answer.take()),
            "token_count" => {
                if let Some(tokens) = event.info.get("total_token_usage").and_then(totals) {
                    self.draft.usage.tokens = Some(Metered::Total(tokens));
                }
            }
            "task_complete" => {
                self.answer = text_of(&event.last_agent_message).or(self.answer.take());
                self.closing = Some(Closing::Completed);
            }
            "error" => {
                let message = message_of(&event.message).unwrap_or_else(|| "the turn failed".to_owned());
                self.closing = Some(Closing::Failed(message));
            }
            "mcp_tool_call_begin" => self.servers.call(&event.invocation["server"]),
            "stream_error" => return self.saw_error(message_of(&event.message)?),
            "exec_command_begin" => {
                let words: Vec<&str> = event.command.as_array()?.iter().filter_map(Value::as_str).collect();
                return activity(&format!("running: {}", words.join(" ")));
            }
            _ => self.unknown_events += 1,
        }
        None
    }

    fn facts(&mut self, stderr: &str) {
        let meta = &mut self.draft.meta;
        if self.unknown_events > 0 {
            meta.insert("unknownEvents".into(), json!(self.unknown_events));
        }
        if self.events > 0 && self.plain_lines > 0 {
            meta.insert("noiseLines".into(), json!(self.plain_lines));
        }
        if !self.warnings.is_empty() {
            meta.insert("warnings".into(), verdicts::few(&self.warnings));
        }
        if self.report
            && let Some(Ok(report)) = self.answer.as_deref().map(serde_json::from_str::<Map<String, Value>>)
        {
            meta.insert(STRUCTURED_OUTPUT.into(), report.into());
        }
        let denials = stderr
            .lines()
            .filter(|line| line.contains("codex_core::tools::router") && line.contains("reject"))
            .count();
        if denials > 0 {
            meta.insert("permissionDenials".into(), json!(denials));
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
            Some(event) if event.r#type.is_string() || event.msg.is_some() => {
                if self.events == 0 && !is_known(&event) {
                    // A JSON answer of a CLI that ignored the format option is plain text.
                    self.unknown_events += 1;
                    self.plain_line(line);
                    return None;
                }
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
        if self.events == 0 && self.fatal.is_none() && evidence::is_login_wait(line) {
            self.fatal = evidence::detail(&String::from_utf8_lossy(line));
        }
    }

    fn servers(&mut self, rule: ServerRule) {
        self.servers.rule = rule;
    }

    fn expects_report(&mut self) {
        self.report = true;
    }

    fn fatal(&self) -> Option<&str> {
        self.servers.fatal().or(self.fatal.as_deref())
    }

    fn finish(mut self: Box<Self>, end: &RunEnd<'_>) -> Verdict {
        self.facts(end.stderr_tail);
        if self.closing.is_none() {
            self.servers.stderr(end.stderr_tail);
        }
        if let Some(why) = self.servers.verdict(&mut self.draft) {
            return self.draft.fail(None, &why, self.answer.unwrap_or_default());
        }
        let Self {
            draft, plain, events, unknown_events, old_shape, answer, closing, last_error, fatal, ..
        } = *self;
        let answer_text = answer.clone().unwrap_or_default();
        match closing {
            Some(Closing::Completed)
                if answer.is_none() && unknown_events > 0 && verdicts::ended_well(end) =>
            {
                let why = "the turn was complete, but its answer is in none of the events that are known";
                return draft.not_recognised(why, String::new());
            }
            Some(Closing::Completed) => return draft.answered(answer_text, end),
            Some(Closing::Failed(message)) => {
                return draft.fail(evidence::classify(&message, true), &message, answer_text);
            }
            None => {}
        }
        if let Some(fatal) = fatal {
            let text = if events == 0 { plain.into_text() } else { answer_text };
            return draft.fail(Some(Finding::Login), &fatal, text);
        }
        if events == 0 {
            return draft.plain(plain.into_text(), end);
        }
        if verdicts::ended_well(end) && answer.is_some() {
            // The oldest event streams had no closing event.
            if old_shape {
                return draft.answered(answer_text, end);
            }
            let why = "the agent exited normally, but its turn was never reported as complete";
            return draft.not_recognised(why, answer_text);
        }
        let stderr = evidence::telling_stderr(end.stderr_tail);
        let said = last_error.unwrap_or(stderr);
        let finding = evidence::classify(&said, true);
        let why = if said.is_empty() {
            format!("the event stream ended before the turn was complete; {}", verdicts::exit_text(end))
        } else {
            verdicts::explain(end, &said)
        };
        draft.fail(finding, &why, answer_text)
    }
}

fn is_known(event: &Event) -> bool {
    let dotted =
        |kind: &str| ["thread.", "turn.", "item.", "session."].iter().any(|start| kind.starts_with(start));
    event.msg.is_some() || event.r#type.as_str().is_some_and(|kind| dotted(kind) || kind == "error")
}

/// A message given as text or as an object that holds one.
fn message_of(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value.get("message").and_then(Value::as_str)).map(str::to_owned)
}

/// Text given as a string or as a list of parts.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let parts: Vec<&str> = parts
                .iter()
                .filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()))
                .collect();
            (!parts.is_empty()).then(|| parts.concat())
        }
        _ => None,
    }
}

/// Token totals; without both main figures they are unknown rather than zero.
fn totals(usage: &Value) -> Option<Tokens> {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    Some(Tokens {
        input: count("input_tokens")?,
        cached_input: count("cached_input_tokens").unwrap_or(0),
        output: count("output_tokens")?,
        reasoning: count("reasoning_output_tokens").unwrap_or(0),
    })
}

/// N of `Reconnecting... N/M`.
fn retry_number(message: &str) -> Option<u32> {
    message.strip_prefix("Reconnecting... ")?.split_once('/')?.0.parse().ok()
}

/// `/bin/bash -lc 'COMMAND'` is the same for every command and says nothing.
fn without_shell(command: &str) -> &str {
    match command.split_once(" -lc ") {
        Some((shell, inner)) if !shell.contains(' ') => inner.trim_matches(['\'', '"']),
        _ => command,
    }
}

fn activity(line: &str) -> Option<Activity> {
    let line = redaction::one_line(line, ACTIVITY_CHARS);
    (!line.is_empty()).then_some(Activity { line })
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
