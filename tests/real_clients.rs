//! Independent MCP clients: the Inspector, both lines of the TypeScript SDK, the Python SDK. Each checks
//! what the bridge says by its own schemas.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::process::Command;

use support::prelude::*;
use support::world::write;

/// A world with one scripted agent that answers, that waits for its client, and that fails.
fn world() -> World {
    let script = json!({
        "rules": [
            { "when": { "contains": "wait for the client" },
              "steps": [
                { "wait_for_file": { "path": "go", "timeout_ms": 30_000 } },
                { "answer": { "text": "The client saw progress.", "usage": { "input": 5, "output": 3 } } },
              ] },
            { "when": { "contains": "fail" }, "steps": [{ "answer": { "failed": "You've hit your usage limit." } }] },
            { "when": { "contains": "hang" }, "steps": ["hang"] },
        ],
        "steps": [{ "answer": { "text": "You said: {prompt}" } }],
    });
    let world = World::new()
        .agent("codex", json!({ "enabled": false }))
        .agent("claude", json!({ "enabled": false }))
        .build();
    let path = world.path().join("script.json");
    write(&path, script.to_string());
    world.set_agent("mock", json!({ "enabled": true, "script": path }));
    world
}

/// What every client script has to have seen.
fn check(world: &World, mut client: Command, mode: &str, protocol: &str) {
    client.arg(BRIDGE).arg(world.repo()).arg(mode);
    let run = process::run(client, DEADLINE).expect_code(0);
    let seen = run.json();
    assert_eq!(seen["protocol"], protocol, "{mode}");
    assert_eq!(seen["server"]["name"], "agent-bridge");
    assert!(seen["instructions"].as_str().is_some_and(|text| text.contains("wait_turn")), "{seen:#}");
    // Nothing that came had the wrong shape, nothing was printed that is no message.
    assert_eq!((&seen["errors"], &seen["invalid"]), (&json!([]), &json!([])), "{mode}\n{run}");
    assert_eq!(
        seen["tools"].as_array().map(Vec::len),
        Some(agent_bridge::mcp::TOOLS.len()),
        "{:#}",
        seen["tools"]
    );
    let agents = seen["agents"]["structuredContent"]["agents"].as_array().unwrap();
    let mock = agents.iter().find(|agent| agent["id"] == "mock");
    assert_eq!(mock.map(|mock| &mock["health"]["usable"]), Some(&json!(true)), "{agents:#?}");

    let delegated = &seen["delegated"]["structuredContent"];
    assert_eq!(delegated["output"], "The client saw progress.", "{:#}", seen["delegated"]);
    let progress = seen["progress"].as_array().unwrap();
    assert!(progress.iter().all(|one| one["message"].is_string()), "{progress:#?}");
    let values: Vec<f64> = progress.iter().map(|one| one["progress"].as_f64().unwrap()).collect();
    assert!(!values.is_empty() && values.is_sorted_by(|a, b| a < b), "{values:?}");
    assert_eq!(seen["page"]["structuredContent"]["text"], "The client saw progress.");

    assert_eq!((&seen["failed"]["isError"], &seen["refused"]["isError"]), (&json!(true), &json!(true)));
    assert_eq!(seen["failed"]["structuredContent"]["outcome"], "quota", "{:#}", seen["failed"]);
    assert_eq!(
        seen["refused"]["structuredContent"]["error"]["code"], "AGENT_UNKNOWN",
        "{:#}",
        seen["refused"]
    );
    assert_eq!(seen["unknown"]["code"], -32602, "{:#}", seen["unknown"]);
    world.assert_no_process_left(DEADLINE);
}

const V1: &str = include_str!("real/clients/typescript_v1.mjs");
const V2: &str = include_str!("real/clients/typescript_v2.mjs");
const PYTHON: &str = include_str!("real/clients/python_sdk.py");

#[test]
fn the_first_typescript_sdk_is_served() {
    let world = world();
    let Some(client) = real::node_script(&world, "@modelcontextprotocol/sdk", V1) else { return };
    check(&world, client, "", "2025-11-25");
}

#[test]
fn the_second_typescript_sdk_is_served_in_the_old_way() {
    let world = world();
    let Some(client) = real::node_script(&world, "@modelcontextprotocol/client", V2) else { return };
    check(&world, client, "legacy", "2025-11-25");
}

#[test]
fn the_second_typescript_sdk_is_served_in_the_new_way() {
    let world = world();
    let Some(client) = real::node_script(&world, "@modelcontextprotocol/client", V2) else { return };
    check(&world, client, "auto", "2026-07-28");
}

#[test]
fn the_python_sdk_is_served_in_the_old_way() {
    let world = world();
    let Some(client) = real::python_script(&world, PYTHON) else { return };
    check(&world, client, "legacy", "2025-11-25");
}

#[test]
fn the_python_sdk_is_served_in_the_new_way() {
    let world = world();
    let Some(client) = real::python_script(&world, PYTHON) else { return };
    check(&world, client, "auto", "2026-07-28");
}

/// The Inspector as a command line, on `agent-bridge serve`.
fn inspector<const N: usize>(world: &World, arguments: [&str; N]) -> Option<Finished> {
    let program = real::require("node_modules/.bin/mcp-inspector")?;
    let mut command = world.command(program);
    command.args(["--cli", BRIDGE, "serve", "--format", "json", "-q"]).args(arguments);
    Some(process::run(command, DEADLINE))
}

#[test]
fn the_inspector_finds_no_fault_in_any_schema() {
    let world = world();
    let Some(run) = inspector(&world, ["--method", "tools/list", "--strict"]) else { return };
    let run = run.expect_code(0);
    let listed = run.json();
    let tools = listed["tools"].as_array().or(listed["result"]["tools"].as_array());
    assert_eq!(tools.map(Vec::len), Some(agent_bridge::mcp::TOOLS.len()), "{run}");
    // Not even a warning.
    assert_eq!(run.stderr(), "", "{run}");
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn the_inspector_calls_a_tool_in_every_era() {
    let world = world();
    for era in ["legacy", "auto", "modern"] {
        let arguments = ["--protocol-era", era, "--method", "tools/call", "--tool-name", "list_agents"];
        let Some(run) = inspector(&world, arguments) else { return };
        let run = run.expect_code(0);
        assert!(run.stdout().contains("\"mock\""), "{era}: {run}");
    }
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn the_inspector_delegates_and_sees_the_answer() {
    let world = world();
    let task = json!({ "agent": "mock", "prompt": "from the inspector", "cwd": world.repo() }).to_string();
    let arguments =
        ["--method", "tools/call", "--tool-name", "delegate_task", "--tool-args-json", task.as_str()];
    let Some(run) = inspector(&world, arguments) else { return };
    let run = run.expect_code(0);
    assert!(run.stdout().contains("You said: from the inspector"), "{run}");
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn the_inspector_tells_a_tools_failure_by_its_exit_code() {
    let world = world();
    let task = json!({ "agent": "mock", "prompt": "fail", "cwd": world.repo() }).to_string();
    let arguments =
        ["--method", "tools/call", "--tool-name", "delegate_task", "--tool-args-json", task.as_str()];
    let Some(run) = inspector(&world, arguments) else { return };
    let run = run.expect_code(5);
    assert!(format!("{run}").contains("usage limit"), "{run}");
    world.assert_no_process_left(DEADLINE);
}

/// What was said, for the oracle.
struct Said {
    version: &'static str,
    modern: bool,
    schemas: Value,
    all: Vec<Value>,
}

impl Said {
    fn note(&mut self, method: &str, name: &str, result: Value, schema: Value) {
        let (version, all) = (self.version, &mut self.all);
        all.push(
            json!({ "method": method, "version": version, "name": name, "result": result, "schema": schema }),
        );
    }

    fn params(&self, mut params: Value) -> Value {
        if self.modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.version,
                "io.modelcontextprotocol/clientInfo": { "name": "oracle", "version": "1.0.0" },
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        params
    }

    fn request(&mut self, host: &mut Host, method: &str, params: Value) -> Value {
        let result = host.request(method, self.params(params));
        self.note(method, "", result.clone(), Value::Null);
        result
    }

    /// Calls a tool and notes its result, to be held against the tool's own schema, also when the call was refused.
    fn call(&mut self, host: &mut Host, tool: &str, arguments: Value) -> Value {
        let params = self.params(json!({ "name": tool, "arguments": arguments }));
        let result = host.request("tools/call", params);
        let schema = self.schemas[tool].clone();
        assert!(schema.is_object(), "{tool} has no output schema");
        self.note("tools/call", tool, result.clone(), schema);
        result["structuredContent"].clone()
    }
}

/// Every tool, with every kind of result it has.
fn say_everything(world: &World, version: &'static str, modern: bool) -> Vec<Value> {
    let mut said = Said { version, modern, schemas: json!({}), all: Vec::new() };
    let mut host = world.host();
    if modern {
        said.request(&mut host, "server/discover", json!({}));
    } else {
        let answer = host.initialize_as(version, json!({}));
        said.note("initialize", "", answer, Value::Null);
    }
    let tools = said.request(&mut host, "tools/list", json!({}))["tools"].clone();
    for tool in tools.as_array().unwrap() {
        said.schemas[tool["name"].as_str().unwrap()] = tool["outputSchema"].clone();
    }
    let task = |prompt: &str, wait: u64| json!({ "agent": "mock", "prompt": prompt, "cwd": world.repo(), "wait_seconds": wait });
    said.call(&mut host, "list_agents", json!({}));
    said.call(&mut host, "diagnose_install", json!({}));
    let done = said.call(&mut host, "delegate_task", task("hello", 60));
    assert_eq!(done["outcome"], "success", "{done:#}");
    let session = done["bridge_session_id"].clone();
    let failed = said.call(&mut host, "delegate_task", task("fail", 60));
    assert_eq!(failed["outcome"], "quota", "{failed:#}");
    let running = said.call(&mut host, "delegate_task", task("hang", 0));
    assert_eq!(running["status"], "still_running", "{running:#}");
    let go_on = json!({ "session_id": session, "prompt": "more", "wait_seconds": 60 });
    said.call(&mut host, "continue_session", go_on);
    let hand_over = json!({ "session_id": session, "to_agent": "mock", "wait_seconds": 60 });
    said.call(&mut host, "handoff", hand_over);
    said.call(&mut host, "wait_turn", json!({ "turn_id": running["turn_id"], "wait_seconds": 0 }));
    said.call(&mut host, "list_turns", json!({}));
    said.call(&mut host, "list_turns", json!({ "limit": 1 }));
    said.call(&mut host, "cancel_turn", json!({ "turn_id": running["turn_id"] }));
    said.call(&mut host, "cancel_turn", json!({ "turn_id": done["turn_id"] }));
    said.call(&mut host, "list_turns", json!({ "limit": 200 }));
    said.call(&mut host, "get_turn_output", json!({ "session_id": session, "turn": 0 }));
    let part = json!({ "session_id": session, "turn": 0, "field": "stdout", "max_chars": 5 });
    said.call(&mut host, "get_turn_output", part);
    said.call(&mut host, "list_sessions", json!({}));
    said.call(&mut host, "list_sessions", json!({ "limit": 1 }));
    said.call(&mut host, "get_session", json!({ "session_id": session }));
    said.call(&mut host, "search_sessions", json!({ "query": "hello" }));
    said.call(&mut host, "delegate_task", json!({ "agent": "nobody", "prompt": "x" }));
    said.call(&mut host, "get_session", json!({ "session_id": 7 }));
    said.call(&mut host, "list_questions", json!({}));
    let nobody = json!({ "question_id": session, "answer": "x" });
    said.call(&mut host, "answer_question", nobody);
    let run = json!({ "task": "hello", "agent": "mock", "workspace": world.repo(), "wait_seconds": 60 });
    let run = said.call(&mut host, "relay_execute", run);
    assert!(run["run_id"].is_string(), "{run:#}");
    let feedback = json!({ "run_id": run["run_id"], "feedback": "fail", "wait_seconds": 60 });
    for tool in ["relay_continue", "antigravity_continue", "relay_continue"] {
        said.call(&mut host, tool, feedback.clone());
    }
    for detail in ["summary", "errors", "full"] {
        let wanted = json!({ "run_id": run["run_id"], "detail": detail });
        said.call(&mut host, "relay_get_result", wanted.clone());
        said.call(&mut host, "antigravity_get_result", wanted);
    }
    said.call(&mut host, "relay_apply", json!({ "run_id": run["run_id"] }));
    let isolated = json!({ "task": "hello", "agent": "mock", "workspace": world.repo(), "isolation": "worktree", "wait_seconds": 60 });
    let isolated = said.call(&mut host, "relay_execute", isolated);
    said.call(&mut host, "relay_apply", json!({ "run_id": isolated["run_id"], "check_only": true }));
    said.call(&mut host, "antigravity_execute", json!({ "task": "x" }));
    said.call(&mut host, "relay_execute", json!({ "task": "x", "surprise": 1 }));
    let called = |tool: &Value| said.all.iter().any(|one| one["name"] == tool["name"]);
    let forgotten: Vec<_> = tools.as_array().unwrap().iter().filter(|tool| !called(tool)).collect();
    assert!(forgotten.is_empty(), "tools without a call: {forgotten:#?}");
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    said.all
}

/// Whether each result has the shape of its protocol version and of its tool's output schema, by the
/// published shapes of the protocol.
#[test]
fn every_result_of_every_tool_has_its_published_shape() {
    let world = world();
    let oracle = include_str!("real/clients/wire_oracle.py");
    let Some(oracle) = real::python_script(&world, oracle) else { return };
    let mut said = Vec::new();
    for (version, modern) in
        [("2024-11-05", false), ("2025-06-18", false), ("2025-11-25", false), ("2026-07-28", true)]
    {
        said.extend(say_everything(&world, version, modern));
    }
    let run = process::run_with_input(oracle, json!(said).to_string().as_bytes(), DEADLINE).expect_code(0);
    assert_eq!(run.json(), json!([]), "{:#}", run.json());
    world.assert_no_process_left(DEADLINE);
}
