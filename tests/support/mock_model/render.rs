//! What the protocols share: the form of a rendered reply, cutting text, names of tools.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::conversation::{Api, Request};
use super::script::{Failure, Part, Reply};
use super::{anthropic, gemini, responses};

/// A reply in a protocol's words.
pub struct Rendered {
    /// The whole answer, for a request that is not streamed.
    pub whole: Value,
    /// The same as server-sent events.
    pub events: Vec<Event>,
}

/// A server-sent event.
pub struct Event {
    /// The `event:` line, if the protocol has one.
    pub name: Option<String>,
    /// The `data:` line.
    pub data: Value,
}

impl Event {
    /// An event named after its data's `type`.
    pub fn typed(data: Value) -> Self {
        Self { name: data["type"].as_str().map(str::to_owned), data }
    }
}

/// Renders the content of a reply.
pub fn content(api: Api, request: &Request, reply: &Reply) -> Rendered {
    match api {
        Api::Anthropic => anthropic::render(request, reply),
        Api::Responses => responses::render(request, reply),
        Api::Gemini => gemini::render(request, reply),
    }
}

/// The event with which the protocol reports an error inside a stream.
pub fn stream_error(api: Api, message: &str) -> Event {
    match api {
        Api::Anthropic => anthropic::stream_error(message),
        Api::Responses => responses::stream_error(message),
        Api::Gemini => gemini::stream_error(message),
    }
}

/// The body of an HTTP error.
pub fn error_body(api: Api, failure: &Failure) -> Value {
    if let Some(body) = &failure.body {
        return body.clone();
    }
    let message = failure.message.clone().unwrap_or_else(|| format!("mock error {}", failure.status));
    let code = failure.code.as_deref();
    match api {
        Api::Anthropic => anthropic::error_body(failure.status, &message, code),
        Api::Responses => responses::error_body(failure.status, &message, code),
        Api::Gemini => gemini::error_body(failure.status, &message, code),
    }
}

/// The answer to a token count: about four bytes a token.
pub fn token_count(api: Api, request: &Request) -> Value {
    let tokens = (request.body.to_string().len() / 4).max(1);
    match api {
        Api::Gemini => json!({ "totalTokens": tokens }),
        Api::Anthropic | Api::Responses => json!({ "input_tokens": tokens }),
    }
}

/// Text in as many deltas as the reply wants, cut between characters.
pub fn pieces(text: &str, reply: &Reply) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let size = characters.len().div_ceil(reply.pieces.unwrap_or(2).max(1)).max(1);
    if characters.is_empty() {
        return vec![String::new()];
    }
    characters.chunks(size).map(|piece| piece.iter().collect()).collect()
}

/// A reply's parts, with `mock reply` where there is none.
pub fn parts(reply: &Reply) -> Vec<Part> {
    if reply.parts.is_empty() { vec![Part::Text("mock reply".into())] } else { reply.parts.clone() }
}

/// An id that no other reply of this process has.
pub fn fresh_id(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{prefix}_mock_{:016x}", NEXT.fetch_add(1, Ordering::Relaxed))
}
