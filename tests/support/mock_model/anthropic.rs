//! Replies as Anthropic Messages.

use serde_json::{Value, json};

use super::conversation::Request;
use super::render::{Event, Rendered, fresh_id, parts, pieces};
use super::script::{Part, Reply};

/// Clients only pass signatures on.
const SIGNATURE: &str = "bW9jaw==";

pub fn render(request: &Request, reply: &Reply) -> Rendered {
    let usage = json!({
        "input_tokens": reply.usage.input.saturating_sub(reply.usage.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reply.usage.cached,
        "output_tokens": reply.usage.output,
    });
    let mut message = json!({
        "id": fresh_id("msg"), "type": "message", "role": "assistant", "model": request.model,
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    let mut events = vec![Event::typed(json!({ "type": "message_start", "message": message.clone() }))];
    let mut blocks = Vec::new();
    let mut calls_tool = false;
    for (index, part) in parts(reply).into_iter().enumerate() {
        let (block, empty, deltas) = block(part, reply);
        calls_tool |= block["type"] == "tool_use";
        events.push(Event::typed(
            json!({ "type": "content_block_start", "index": index, "content_block": empty }),
        ));
        for delta in deltas {
            events
                .push(Event::typed(json!({ "type": "content_block_delta", "index": index, "delta": delta })));
        }
        events.push(Event::typed(json!({ "type": "content_block_stop", "index": index })));
        blocks.push(block);
    }
    let stop = reply.stop.clone().unwrap_or_else(|| if calls_tool { "tool_use" } else { "end_turn" }.into());
    events.push(Event::typed(json!({
        "type": "message_delta",
        "delta": { "stop_reason": stop, "stop_sequence": null },
        "usage": { "output_tokens": reply.usage.output },
    })));
    events.push(Event::typed(json!({ "type": "message_stop" })));
    message["content"] = Value::Array(blocks);
    message["stop_reason"] = json!(stop);
    Rendered { whole: message, events }
}

/// A content block: whole, as it starts in a stream, and its deltas.
fn block(part: Part, reply: &Reply) -> (Value, Value, Vec<Value>) {
    let tool = |name: String, input: Value| {
        let id = fresh_id("toolu");
        let whole = json!({ "type": "tool_use", "id": id, "name": name, "input": input });
        let empty = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
        let deltas = pieces(&input.to_string(), reply)
            .into_iter()
            .map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }))
            .collect();
        (whole, empty, deltas)
    };
    match part {
        Part::Text(text) => (
            json!({ "type": "text", "text": text }),
            json!({ "type": "text", "text": "" }),
            pieces(&text, reply).iter().map(|piece| json!({ "type": "text_delta", "text": piece })).collect(),
        ),
        Part::Thinking(text) => {
            let mut deltas: Vec<Value> = pieces(&text, reply)
                .iter()
                .map(|piece| json!({ "type": "thinking_delta", "thinking": piece }))
                .collect();
            deltas.push(json!({ "type": "signature_delta", "signature": SIGNATURE }));
            (
                json!({ "type": "thinking", "thinking": text, "signature": SIGNATURE }),
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                deltas,
            )
        }
        Part::Tool { name, input } => tool(name, input),
        Part::Freeform { name, input } => tool(name, json!({ "input": input })),
        Part::Mcp { server, tool: name, input } => tool(format!("mcp__{server}__{name}"), input),
        Part::Shell(command) => tool("Bash".into(), json!({ "command": command })),
        Part::WriteFile { path, content } => {
            tool("Write".into(), json!({ "file_path": path, "content": content }))
        }
    }
}

pub fn stream_error(message: &str) -> Event {
    Event::typed(json!({ "type": "error", "error": { "type": "overloaded_error", "message": message } }))
}

pub fn error_body(status: u16, message: &str, code: Option<&str>) -> Value {
    let usual = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({
        "type": "error",
        "error": { "type": code.unwrap_or(usual), "message": message },
        "request_id": "req_mock",
    })
}
