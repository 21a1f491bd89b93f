//! One API call, reduced to what choosing a reply needs and what a test wants to see of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// A model service's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Anthropic Messages (Claude Code).
    Anthropic,
    /// OpenAI Responses (Codex).
    Responses,
    /// Gemini (Gemini CLI).
    Gemini,
}

/// What a call wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A model turn.
    Generate,
    /// A token count.
    CountTokens,
}

/// A request the mock got. Everything secret in its headers reads `***`.
#[derive(Clone, Debug)]
pub struct Request {
    /// Place in the log, from 0.
    pub number: usize,
    /// Since the mock was started.
    pub at: Duration,
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The protocol; `None` for any other path.
    pub api: Option<Api>,
    /// What it wants.
    pub kind: Kind,
    /// The model asked for.
    pub model: Option<String>,
    /// The answer is to be streamed.
    pub stream: bool,
    /// Header names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Which header carried a credential, and its scheme: `x-api-key`, `authorization Bearer`.
    pub credential: Option<String>,
    /// The body; `Null` if it was not JSON.
    pub body: Value,
    /// The scenario that was picked.
    pub scenario: Option<String>,
    /// Assistant turns since the marker.
    pub step: usize,
    /// How many requests for the same step came before (only counted for `attempts`).
    pub attempt: usize,
    /// The status that was sent; 0 while nothing was.
    pub status: u16,
    /// The whole answer was sent.
    pub answered: bool,
    /// The client went away before the whole answer was sent.
    pub client_gone: bool,
}

const SECRET_HEADERS: [&str; 5] =
    ["authorization", "x-api-key", "x-goog-api-key", "proxy-authorization", "cookie"];

/// One entry of a conversation.
enum Turn<'a> {
    User(String),
    Assistant,
    ToolResult(&'a Value),
}

impl Request {
    /// Reads a call. `body` is already decoded.
    pub(super) fn read(method: &str, target: &str, headers: &BTreeMap<String, String>, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let path = target.split('?').next().unwrap_or_default();
        let (api, kind, path_model) = route(method, path);
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        let mut request = Self {
            number: 0,
            at: Duration::ZERO,
            method: method.to_owned(),
            path: mask_query_key(target),
            api,
            kind,
            model: path_model.or_else(|| text("model")),
            stream: path.ends_with(":streamGenerateContent") || body["stream"] == true,
            credential: credential(target, headers),
            headers: headers
                .iter()
                .map(|(name, value)| {
                    let secret = SECRET_HEADERS.contains(&name.as_str());
                    (name.clone(), if secret { "***".to_owned() } else { value.clone() })
                })
                .collect(),
            body,
            scenario: None,
            step: 0,
            attempt: 0,
            status: 0,
            answered: false,
            client_gone: false,
        };
        let (scenario, step) = request.place();
        request.scenario = scenario;
        request.step = step;
        request
    }

    /// All user text of the conversation, tool results left out.
    pub fn user_text(&self) -> String {
        let mut texts = Vec::new();
        for turn in self.turns() {
            if let Turn::User(text) = turn {
                texts.push(text);
            }
        }
        texts.join("\n")
    }

    /// The text of every tool result after the last marker, oldest first.
    pub fn tool_results(&self) -> Vec<String> {
        let mut results = Vec::new();
        for turn in self.turns() {
            match turn {
                Turn::User(text) if last_marker(&text).is_some() => results.clear(),
                Turn::ToolResult(value) => results.push(text_of(value)),
                Turn::User(_) | Turn::Assistant => {}
            }
        }
        results
    }

    /// The JSON object in the last tool result, whatever the client wrote around it; `Null` if
    /// there is none. For going on with an id that a tool gave.
    pub fn tool_json(&self) -> Value {
        let Some(text) = self.tool_results().pop() else { return Value::Null };
        text.match_indices('{')
            .find_map(|(at, _)| {
                serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok()
            })
            .unwrap_or_default()
    }

    /// The names of the tools offered; tools of a namespace as `namespace/tool`.
    pub fn tools(&self) -> Vec<String> {
        let name = |value: &Value| value["name"].as_str().or(value["type"].as_str()).map(str::to_owned);
        let mut names = Vec::new();
        for tool in self.body["tools"].as_array().into_iter().flatten() {
            let inner = tool["functionDeclarations"].as_array().or(tool["tools"].as_array());
            match inner {
                Some(inner) => {
                    let space = tool["name"].as_str().map(|space| format!("{space}/")).unwrap_or_default();
                    names.extend(inner.iter().filter_map(&name).map(|name| format!("{space}{name}")));
                }
                None => names.extend(name(tool)),
            }
        }
        names
    }

    /// What attempts at the same step have in common.
    pub(super) fn attempt_key(&self) -> (Option<String>, usize, String) {
        (self.scenario.clone(), self.step, self.user_text())
    }

    /// The scenario and the assistant turns since its marker.
    fn place(&self) -> (Option<String>, usize) {
        let (mut scenario, mut step) = (None, 0);
        for turn in self.turns() {
            match turn {
                Turn::User(text) => {
                    if let Some(name) = last_marker(&text) {
                        (scenario, step) = (Some(name), 0);
                    }
                }
                Turn::Assistant => step += 1,
                Turn::ToolResult(_) => {}
            }
        }
        (scenario, step)
    }

    fn turns(&self) -> Vec<Turn<'_>> {
        match self.api {
            Some(Api::Anthropic) => anthropic_turns(&self.body),
            Some(Api::Responses) => responses_turns(&self.body),
            Some(Api::Gemini) => gemini_turns(&self.body),
            None => Vec::new(),
        }
    }
}

/// Which API a path belongs to. Any prefix will do, so a base URL with or without `/v1` works.
fn route(method: &str, path: &str) -> (Option<Api>, Kind, Option<String>) {
    if method != "POST" {
        return (None, Kind::Generate, None);
    }
    if let Some((front, verb)) = path.rsplit_once(':') {
        let model = front.rsplit('/').next().map(str::to_owned);
        return match verb {
            "generateContent" | "streamGenerateContent" => (Some(Api::Gemini), Kind::Generate, model),
            "countTokens" => (Some(Api::Gemini), Kind::CountTokens, model),
            _ => (None, Kind::Generate, None),
        };
    }
    if path.ends_with("/messages/count_tokens") {
        (Some(Api::Anthropic), Kind::CountTokens, None)
    } else if path.ends_with("/messages") {
        (Some(Api::Anthropic), Kind::Generate, None)
    } else if path.ends_with("/responses") {
        (Some(Api::Responses), Kind::Generate, None)
    } else {
        (None, Kind::Generate, None)
    }
}

/// The last `scenario:NAME` of a text. A name ends before anything but letters, digits, `_`, `-`
/// and `.`, so it is found in JSON-escaped text too; a dot at its end is the sentence's.
pub(super) fn last_marker(text: &str) -> Option<String> {
    text.rmatch_indices("scenario:").find_map(|(at, marker)| {
        let rest = &text[at + marker.len()..];
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')))
            .unwrap_or(rest.len());
        let name = rest[..end].trim_end_matches('.');
        (!name.is_empty()).then(|| name.to_owned())
    })
}

/// The text in a string, a list of content parts, or something around either.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().map(text_of).filter(|t| !t.is_empty()).collect::<Vec<_>>().join("\n")
        }
        Value::Object(fields) => {
            for key in ["text", "content", "output"] {
                if let Some(inner) = fields.get(key) {
                    return text_of(inner);
                }
            }
            fields.get("response").map(Value::to_string).unwrap_or_default()
        }
        _ => String::new(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn anthropic_turns(body: &Value) -> Vec<Turn<'_>> {
    let mut turns = Vec::new();
    for message in list(&body["messages"]) {
        let content = &message["content"];
        if message["role"] == "assistant" {
            turns.push(Turn::Assistant);
        } else if message["role"] == "user" {
            match content {
                Value::Array(blocks) => {
                    turns.extend(blocks.iter().map(|block| match block["type"].as_str() {
                        Some("tool_result") => Turn::ToolResult(block),
                        _ => Turn::User(text_of(block)),
                    }));
                }
                other => turns.push(Turn::User(text_of(other))),
            }
        }
    }
    turns
}

fn responses_turns(body: &Value) -> Vec<Turn<'_>> {
    if let Value::String(text) = &body["input"] {
        return vec![Turn::User(text.clone())];
    }
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for item in list(&body["input"]) {
        let kind = item["type"].as_str().unwrap_or("message");
        if kind.ends_with("_output") {
            turns.push(Turn::ToolResult(item));
        } else if kind == "message" && item["role"] == "user" {
            turns.push(Turn::User(text_of(item)));
        } else if kind == "message" && item["role"] != "assistant" {
            // Developer and system text is not part of the conversation.
        } else if !matches!(turns.last(), Some(Turn::Assistant)) {
            // The items of one model turn stand side by side and count once.
            turns.push(Turn::Assistant);
        }
    }
    turns
}

fn gemini_turns(body: &Value) -> Vec<Turn<'_>> {
    let mut turns = Vec::new();
    for content in list(&body["contents"]) {
        if content["role"] == "model" {
            turns.push(Turn::Assistant);
            continue;
        }
        for part in list(&content["parts"]) {
            let result = &part["functionResponse"];
            turns.push(if result.is_object() { Turn::ToolResult(result) } else { Turn::User(text_of(part)) });
        }
    }
    turns
}

fn credential(target: &str, headers: &BTreeMap<String, String>) -> Option<String> {
    for name in ["authorization", "x-api-key", "x-goog-api-key"] {
        if let Some(value) = headers.get(name) {
            return Some(match value.split_once(' ') {
                Some((scheme, _)) => format!("{name} {scheme}"),
                None => name.to_owned(),
            });
        }
    }
    target.contains("key=").then(|| "query key".to_owned())
}

fn mask_query_key(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let masked: Vec<_> =
        query.split('&').map(|pair| if pair.starts_with("key=") { "key=***" } else { pair }).collect();
    format!("{path}?{}", masked.join("&"))
}
