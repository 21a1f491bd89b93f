//! Replies as OpenAI Responses.

use serde_json::{Value, json};

use super::conversation::Request;
use super::render::{Event, Rendered, fresh_id, parts, pieces};
use super::script::{Part, Reply};

pub fn render(request: &Request, reply: &Reply) -> Rendered {
    let mut response = json!({
        "id": fresh_id("resp"), "object": "response", "created_at": 0, "model": request.model,
        "status": "in_progress", "output": [],
    });
    let mut events = vec![
        json!({ "type": "response.created", "response": response }),
        json!({ "type": "response.in_progress", "response": response }),
    ];
    let mut output = Vec::new();
    for (index, part) in parts(reply).into_iter().enumerate() {
        let item = item(part);
        stream_item(&item, index, reply, &mut events);
        output.push(item);
    }
    response["status"] = json!("completed");
    response["output"] = Value::Array(output);
    let usage = reply.usage;
    response["usage"] = json!({
        "input_tokens": usage.input,
        "input_tokens_details": { "cached_tokens": usage.cached },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.input + usage.output,
    });
    let last = match &reply.stop {
        // The API tells an early stop by another event, with the reason inside.
        Some(reason) => {
            response["status"] = json!("incomplete");
            response["incomplete_details"] = json!({ "reason": reason });
            "response.incomplete"
        }
        None => "response.completed",
    };
    events.push(json!({ "type": last, "response": response }));
    let events = events
        .into_iter()
        .enumerate()
        .map(|(number, mut data)| {
            data["sequence_number"] = json!(number);
            Event::typed(data)
        })
        .collect();
    Rendered { whole: response, events }
}

/// A finished output item.
fn item(part: Part) -> Value {
    let function = |name: &str, input: Value| {
        json!({
            "type": "function_call", "id": fresh_id("fc"), "call_id": fresh_id("call"),
            "name": name, "arguments": input.to_string(), "status": "completed",
        })
    };
    let custom = |name: &str, input: String| {
        json!({
            "type": "custom_tool_call", "id": fresh_id("ctc"), "call_id": fresh_id("call"),
            "name": name, "input": input, "status": "completed",
        })
    };
    match part {
        Part::Text(text) => json!({
            "type": "message", "id": fresh_id("msg"), "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }],
        }),
        Part::Thinking(text) => json!({
            "type": "reasoning", "id": fresh_id("rs"), "encrypted_content": null,
            "summary": [{ "type": "summary_text", "text": text }],
        }),
        Part::Tool { name, input } => function(&name, input),
        Part::Freeform { name, input } => custom(&name, input),
        Part::Mcp { server, tool, input } => {
            let mut item = function(&tool, input);
            item["namespace"] = json!(format!("mcp__{}", server.replace(['-', '.'], "_")));
            item
        }
        Part::Shell(command) => function("exec_command", json!({ "cmd": command })),
        Part::WriteFile { path, content } => {
            let lines: String = content.lines().map(|line| format!("+{line}\n")).collect();
            custom("apply_patch", format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n"))
        }
    }
}

/// The events that bring an item.
fn stream_item(item: &Value, index: usize, reply: &Reply, events: &mut Vec<Value>) {
    let id = &item["id"];
    let mut started = item.clone();
    let mut inner = Vec::new();
    let mut event = |kind: &str, fields: Value| {
        let mut data = json!({ "type": kind, "item_id": id, "output_index": index });
        if let (Some(data), Value::Object(fields)) = (data.as_object_mut(), fields) {
            data.extend(fields);
        }
        inner.push(data);
    };
    match item["type"].as_str() {
        Some("message") => {
            let part = &item["content"][0];
            let text = part["text"].as_str().unwrap_or_default();
            started["content"] = json!([]);
            started["status"] = json!("in_progress");
            let empty = json!({ "type": "output_text", "text": "", "annotations": [] });
            event("response.content_part.added", json!({ "content_index": 0, "part": empty }));
            for piece in pieces(text, reply) {
                event("response.output_text.delta", json!({ "content_index": 0, "delta": piece }));
            }
            event("response.output_text.done", json!({ "content_index": 0, "text": text }));
            event("response.content_part.done", json!({ "content_index": 0, "part": part }));
        }
        Some("reasoning") => {
            let part = &item["summary"][0];
            let text = part["text"].as_str().unwrap_or_default();
            started["summary"] = json!([]);
            let empty = json!({ "type": "summary_text", "text": "" });
            event("response.reasoning_summary_part.added", json!({ "summary_index": 0, "part": empty }));
            for piece in pieces(text, reply) {
                event("response.reasoning_summary_text.delta", json!({ "summary_index": 0, "delta": piece }));
            }
            event("response.reasoning_summary_text.done", json!({ "summary_index": 0, "text": text }));
            event("response.reasoning_summary_part.done", json!({ "summary_index": 0, "part": part }));
        }
        kind => {
            let (field, stem) = match kind {
                Some("custom_tool_call") => ("input", "response.custom_tool_call_input"),
                _ => ("arguments", "response.function_call_arguments"),
            };
            let text = item[field].as_str().unwrap_or_default();
            started[field] = json!("");
            started["status"] = json!("in_progress");
            for piece in pieces(text, reply) {
                event(&format!("{stem}.delta"), json!({ "delta": piece }));
            }
            event(&format!("{stem}.done"), json!({ field: text }));
        }
    }
    events.push(json!({ "type": "response.output_item.added", "output_index": index, "item": started }));
    events.append(&mut inner);
    events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
}

pub fn stream_error(message: &str) -> Event {
    Event::typed(json!({
        "type": "response.failed", "sequence_number": 2,
        "response": {
            "id": fresh_id("resp"), "object": "response", "status": "failed", "output": [],
            "error": { "code": "server_error", "message": message },
        },
    }))
}

pub fn error_body(status: u16, message: &str, code: Option<&str>) -> Value {
    let (kind, usual) = match status {
        400 => ("invalid_request_error", None),
        401 => ("invalid_request_error", Some("invalid_api_key")),
        404 => ("invalid_request_error", Some("model_not_found")),
        429 => ("rate_limit_exceeded", Some("rate_limit_exceeded")),
        _ => ("server_error", None),
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code.or(usual) } })
}
