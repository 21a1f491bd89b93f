//! A whole turn as Codex or Claude Code would print it.

use serde_json::{Value, json};

use super::script::{Answer, Dialect, Format, UsageFigures};

/// What surrounds an answer.
pub(super) struct Setting<'a> {
    /// Session id.
    pub thread: &'a str,
    /// Model, if one was named.
    pub model: Option<&'a str>,
    /// Working folder.
    pub cwd: &'a str,
    /// By the arguments.
    pub dialect: Dialect,
    /// By the arguments.
    pub format: Format,
    /// Tools that were refused so far.
    pub denied: &'a [String],
}

/// The bytes of the turn and the exit code that goes with it.
pub(super) fn render(answer: &Answer, text: &str, setting: &Setting<'_>) -> (String, i32) {
    let dialect = if answer.dialect == Dialect::Auto { setting.dialect } else { answer.dialect };
    let failed = answer.failed.is_some() || answer.is_error;
    let output = match dialect {
        Dialect::Claude => claude(answer, text, setting),
        Dialect::Auto | Dialect::Codex => lines(&codex(answer, text, setting)),
    };
    (output, i32::from(failed))
}

fn lines(events: &[Value]) -> String {
    events.iter().map(|event| format!("{event}\n")).collect()
}

fn codex(answer: &Answer, text: &str, setting: &Setting<'_>) -> Vec<Value> {
    let mut events =
        vec![json!({"type": "thread.started", "thread_id": setting.thread}), json!({"type": "turn.started"})];
    events.extend(answer.errors.iter().map(|message| json!({"type": "error", "message": message})));
    for (index, command) in answer.commands.iter().enumerate() {
        let mut item = json!({
            "id": format!("item_{index}"), "type": "command_execution", "command": format!("/bin/bash -lc '{command}'"),
            "aggregated_output": "", "exit_code": null, "status": "in_progress",
        });
        events.push(json!({"type": "item.started", "item": item}));
        item["exit_code"] = json!(0);
        item["status"] = json!("completed");
        events.push(json!({"type": "item.completed", "item": item}));
    }
    if answer.failed.is_none() || answer.text.is_some() {
        let item =
            json!({"id": format!("item_{}", answer.commands.len()), "type": "agent_message", "text": text});
        events.push(json!({"type": "item.completed", "item": item}));
    }
    events.push(match &answer.failed {
        Some(message) => json!({"type": "turn.failed", "error": {"message": message}}),
        None => {
            let usage = answer.usage.unwrap_or(UsageFigures { input: 11, output: 7, ..UsageFigures::default() });
            json!({"type": "turn.completed", "usage": {
                "input_tokens": usage.input, "cached_input_tokens": usage.cached, "cache_write_input_tokens": 0,
                "output_tokens": usage.output, "reasoning_output_tokens": usage.reasoning,
            }})
        }
    });
    events
}

fn claude(answer: &Answer, text: &str, setting: &Setting<'_>) -> String {
    let text = answer.failed.as_deref().unwrap_or(text);
    let model = setting.model.unwrap_or("mock-model");
    let mut events = vec![json!({
        "type": "system", "subtype": "init", "cwd": setting.cwd, "session_id": setting.thread, "tools": [],
        "mcp_servers": [], "model": model, "permissionMode": "plan", "claude_code_version": "2.1.332",
    })];
    let assistant = |block: Value| {
        json!({"type": "assistant", "session_id": setting.thread, "parent_tool_use_id": null,
            "message": {"role": "assistant", "model": model, "content": [block]}})
    };
    for (index, command) in answer.commands.iter().enumerate() {
        events.push(assistant(
            json!({"type": "tool_use", "id": format!("toolu_{index}"), "name": "Bash", "input": {"command": command}}),
        ));
    }
    events.push(assistant(json!({"type": "text", "text": text})));
    let usage = answer.usage.unwrap_or(UsageFigures { input: 11, output: 7, ..UsageFigures::default() });
    let denials: Vec<Value> = setting.denied.iter().map(|tool| json!({"tool_name": tool})).collect();
    let is_error = answer.is_error || answer.failed.is_some();
    events.push(json!({
        "type": "result", "subtype": answer.subtype.as_deref().unwrap_or("success"), "is_error": is_error,
        "result": text, "session_id": setting.thread, "num_turns": 1, "total_cost_usd": answer.cost_usd.unwrap_or(0.0),
        "usage": {
            "input_tokens": usage.input.saturating_sub(usage.cached), "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached, "output_tokens": usage.output,
            "output_tokens_details": {"thinking_tokens": usage.reasoning},
        },
        "permission_denials": denials, "errors": answer.errors,
        "terminal_reason": if is_error { "api_error" } else { "completed" },
    }));
    let format = if answer.format == Format::Auto { setting.format } else { answer.format };
    let document = |value: &Value| if answer.pretty { format!("{value:#}\n") } else { format!("{value}\n") };
    match format {
        Format::Object => events.last().map(document).unwrap_or_default(),
        Format::Array => document(&Value::from(events)),
        Format::Lines | Format::Auto => lines(&events),
        Format::Text => format!("{text}\n"),
    }
}
