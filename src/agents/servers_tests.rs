//! What workers' own events say about their servers, honest and hostile.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::agents::tests::feed;
use crate::agents::{Outcome, RunEnd, require};
use crate::policy::AgentId;

fn run(agent: AgentId, rule: ServerRule, events: &[Value], end: &RunEnd<'_>) -> (Verdict, Option<String>) {
    let mut parser = require(agent).unwrap().parser(None);
    parser.servers(rule);
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    feed(&mut *parser, lines.join("\n").as_bytes());
    let fatal = parser.fatal().map(str::to_owned);
    (parser.finish(end), fatal)
}

const OK: RunEnd<'_> =
    RunEnd { exit_code: Some(0), signal: None, stderr_tail: "", stdout_bytes: 1, log_tail: "" };

/// A whole, well-ended run of Claude Code with this start.
fn claude(rule: ServerRule, init: Value) -> (Verdict, Option<String>) {
    let mut start = json!({ "type": "system", "subtype": "init", "session_id": crate::agents::tests::ID });
    start.as_object_mut().unwrap().extend(init.as_object().unwrap().clone());
    let result = json!({ "type": "result", "subtype": "success", "is_error": false, "result": "done" });
    run(AgentId::Claude, rule, &[start, result], &OK)
}

#[test]
fn claude_goes_on_with_exactly_what_it_was_given() {
    let ours = json!({ "mcp_servers": [{ "name": "bridge", "status": "connected", "source": "dynamic" }],
                       "tools": ["Read", "mcp__bridge__note"] });
    for (rule, init) in [
        (ServerRule::Only, ours.clone()),
        (ServerRule::None, json!({ "mcp_servers": [], "tools": ["Read"] })),
        (ServerRule::None, json!({})),
        (ServerRule::Any, json!({ "mcp_servers": [{ "name": "x", "status": "connected" }] })),
        (ServerRule::Any, ours),
    ] {
        let (verdict, fatal) = claude(rule, init.clone());
        assert_eq!((verdict.outcome, fatal), (Outcome::Success, None), "{rule:?} {init}");
        assert_eq!(Refusal::of(&verdict), None);
    }
}

#[test]
fn claude_is_ended_with_a_server_too_many_or_too_few() {
    let server = |name: &str, status: &str| json!({ "name": name, "status": status });
    let ours = server("bridge", "connected");
    for (rule, init, expected) in [
        (ServerRule::Only, json!({ "mcp_servers": [ours, server("docs", "connected")] }), Refusal::Foreign),
        (ServerRule::Only, json!({ "mcp_servers": [ours, server("docs", "failed")] }), Refusal::Foreign),
        (ServerRule::Only, json!({ "mcp_servers": [server("docs", "connected")] }), Refusal::Foreign),
        (ServerRule::Only, json!({ "mcp_servers": [ours, ours] }), Refusal::Foreign),
        (ServerRule::Only, json!({ "mcp_servers": [ours, server("Bridge", "connected")] }), Refusal::Foreign),
        (
            ServerRule::Only,
            json!({ "mcp_servers": [ours, server("bridge ", "connected")] }),
            Refusal::Foreign,
        ),
        (ServerRule::Only, json!({ "mcp_servers": [ours, "docs"] }), Refusal::Foreign),
        (ServerRule::Only, json!({ "mcp_servers": [ours, { "name": 7 }] }), Refusal::Foreign),
        (ServerRule::Only, json!({ "mcp_servers": [ours, null] }), Refusal::Foreign),
        (
            ServerRule::Only,
            json!({ "mcp_servers": [ours], "tools": ["mcp__docs__search"] }),
            Refusal::Foreign,
        ),
        (ServerRule::Only, json!({ "mcp_servers": [ours], "tools": ["mcp__bridges__x"] }), Refusal::Foreign),
        (ServerRule::Only, json!({ "mcp_servers": [server("bridge", "failed")] }), Refusal::Missing),
        (ServerRule::Only, json!({ "mcp_servers": [{ "name": "bridge" }] }), Refusal::Missing),
        (
            ServerRule::Only,
            json!({ "mcp_servers": [{ "name": "bridge", "status": ["connected"] }] }),
            Refusal::Missing,
        ),
        (ServerRule::Only, json!({ "mcp_servers": [] }), Refusal::Missing),
        (ServerRule::Only, json!({ "mcp_servers": { "bridge": "connected" } }), Refusal::Missing),
        (ServerRule::Only, json!({}), Refusal::Missing),
        (ServerRule::None, json!({ "mcp_servers": [ours] }), Refusal::Foreign),
        (ServerRule::None, json!({ "mcp_servers": [], "tools": ["mcp__bridge__note"] }), Refusal::Foreign),
    ] {
        let (verdict, fatal) = claude(rule, init.clone());
        assert_eq!(Refusal::of(&verdict), Some(expected), "{rule:?} {init}");
        // Said at once, and its good end does not make it good.
        assert!(fatal.is_some() && verdict.outcome == Outcome::WorkerError, "{init}");
        assert_eq!(verdict.detail, fatal, "{init}");
    }
}

#[test]
fn a_list_that_never_comes_is_a_missing_endpoint() {
    let words = json!({ "type": "assistant", "message": { "content": [{ "type": "text", "text": "hi" }] } });
    let result = json!({ "type": "result", "subtype": "success", "is_error": false, "result": "done" });
    for events in [vec![words.clone(), result.clone()], vec![result]] {
        let (verdict, _) = run(AgentId::Claude, ServerRule::Only, &events, &OK);
        assert_eq!(Refusal::of(&verdict), Some(Refusal::Missing), "{events:?}");
    }
    // What failed before it could start anything keeps its own reason.
    let failed = RunEnd { exit_code: Some(1), stderr_tail: "Not logged in · Please run /login", ..OK };
    let (verdict, _) = run(AgentId::Claude, ServerRule::Only, &[], &failed);
    assert_eq!((verdict.outcome, Refusal::of(&verdict)), (Outcome::LoginRequired, None));
    let (verdict, _) = run(AgentId::Claude, ServerRule::None, &[words], &OK);
    assert_eq!(Refusal::of(&verdict), None);
}

/// A whole, well-ended run of Codex with this event in it.
fn codex(rule: ServerRule, event: Value) -> (Verdict, Option<String>) {
    let before = [
        json!({ "type": "thread.started", "thread_id": crate::agents::tests::ID }),
        json!({ "type": "turn.started" }),
    ];
    let item = json!({ "id": "item_9", "type": "agent_message", "text": "done" });
    let after = [json!({ "type": "item.completed", "item": item }), json!({ "type": "turn.completed" })];
    let events: Vec<Value> = before.into_iter().chain([event]).chain(after).collect();
    run(AgentId::Codex, rule, &events, &OK)
}

#[test]
fn codex_is_ended_when_it_calls_a_server_that_it_was_not_given() {
    let call = |server: Value| json!({ "type": "item.started", "item": { "type": "mcp_tool_call", "server": server, "tool": "x" } });
    let old = |server: Value| json!({ "msg": { "type": "mcp_tool_call_begin", "invocation": { "server": server } } });
    let untyped =
        json!({ "type": "item.completed", "item": { "item_type": "mcp_tool_call", "server": "docs" } });
    let nameless = json!({ "type": "item.started", "item": { "type": "mcp_tool_call" } });
    for event in [
        call(json!("docs")),
        call(json!("Bridge")),
        call(json!(["bridge"])),
        call(Value::Null),
        old(json!("docs")),
        untyped,
        nameless,
    ] {
        let (verdict, fatal) = codex(ServerRule::Only, event.clone());
        assert_eq!(Refusal::of(&verdict), Some(Refusal::Foreign), "{event}");
        assert!(fatal.is_some() && verdict.outcome == Outcome::WorkerError, "{event}");
        for rule in [ServerRule::Any, ServerRule::None] {
            assert_eq!(codex(rule, event.clone()).0.outcome, Outcome::Success, "{event}");
        }
    }
    let (verdict, fatal) = codex(ServerRule::Only, call(json!("bridge")));
    assert_eq!((verdict.outcome, fatal), (Outcome::Success, None));
}

#[test]
fn codex_without_its_required_server_is_no_missing_login() {
    let stderr_tail = "ERROR codex_core::session: Failed to create session: required MCP servers failed to initialize: bridge: \
                       handshaking with MCP server failed: worker quit with fatal: AuthRequired(401 Unauthorized)";
    let end = RunEnd { exit_code: Some(1), stderr_tail, ..OK };
    let (verdict, _) = run(AgentId::Codex, ServerRule::Only, &[], &end);
    assert_eq!((verdict.outcome, Refusal::of(&verdict)), (Outcome::WorkerError, Some(Refusal::Missing)));
    let (verdict, _) = run(AgentId::Codex, ServerRule::None, &[], &end);
    assert_eq!(Refusal::of(&verdict), None);
}

#[test]
fn a_name_is_shown_on_one_short_line_without_terminal_codes() {
    let name = format!("evil\u{1b}[2J\n{}", "x".repeat(4000));
    let (_, fatal) =
        claude(ServerRule::Only, json!({ "mcp_servers": [{ "name": name, "status": "connected" }] }));
    let fatal = fatal.unwrap();
    assert!(fatal.len() < 200 && !fatal.contains(['\n', '\u{1b}']), "{fatal:?}");
}
