//! Replies as Gemini's generateContent.

use serde_json::{Value, json};

use super::conversation::Request;
use super::render::{Event, Rendered, fresh_id, parts, pieces};
use super::script::{Part, Reply};

pub fn render(request: &Request, reply: &Reply) -> Rendered {
    let usage = reply.usage;
    let response_id = fresh_id("resp");
    let answer = |parts: Vec<Value>, finish: Option<&str>| {
        let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": parts } });
        if let Some(finish) = finish {
            candidate["finishReason"] = json!(finish);
        }
        json!({
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": usage.input,
                "cachedContentTokenCount": usage.cached,
                "candidatesTokenCount": usage.output.saturating_sub(usage.reasoning),
                "thoughtsTokenCount": usage.reasoning,
                "totalTokenCount": usage.input + usage.output,
            },
            "modelVersion": request.model,
            "responseId": response_id,
        })
    };
    let finish = reply.stop.as_deref().unwrap_or("STOP");
    let mut whole = Vec::new();
    let mut events = Vec::new();
    for part in parts(reply) {
        // Only text may come in pieces; a call is whole or not there.
        let chunks = match &part {
            Part::Text(text) => pieces(text, reply).iter().map(|piece| json!({ "text": piece })).collect(),
            _ => vec![part_of(&part)],
        };
        whole.push(part_of(&part));
        events.extend(chunks.into_iter().map(|chunk| Event { name: None, data: answer(vec![chunk], None) }));
    }
    events.push(Event { name: None, data: answer(vec![json!({ "text": "" })], Some(finish)) });
    Rendered { whole: answer(whole, Some(finish)), events }
}

fn part_of(part: &Part) -> Value {
    let call = |name: &str, args: Value| json!({ "functionCall": { "id": fresh_id("call"), "name": name, "args": args } });
    match part {
        Part::Text(text) => json!({ "text": text }),
        Part::Thinking(text) => json!({ "text": text, "thought": true }),
        Part::Tool { name, input } => call(name, input.clone()),
        Part::Freeform { name, input } => call(name, json!({ "input": input })),
        Part::Mcp { server, tool, input } => call(&format!("mcp_{server}_{tool}"), input.clone()),
        Part::Shell(command) => call("run_shell_command", json!({ "command": command })),
        Part::WriteFile { path, content } => {
            call("write_file", json!({ "file_path": path, "content": content }))
        }
    }
}

pub fn stream_error(message: &str) -> Event {
    Event { name: None, data: error_body(500, message, None) }
}

pub fn error_body(status: u16, message: &str, code: Option<&str>) -> Value {
    let usual = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    json!({ "error": { "code": status, "message": message, "status": code.unwrap_or(usual) } })
}
