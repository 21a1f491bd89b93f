//! The real CLIs as workers of the real bridge, with the endpoint of their run: what the model calls arrives, what it
//! may not call doesn't, and all of it is on record.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::prelude::*;
use support::worker::{Cli, Worker};

const SERVER: &str = "bridge";

/// A world whose config gives runs these tools, and a check.
fn world(tools: &[&str]) -> World {
    let world = World::new().build();
    let mut config = world.config();
    config["scope"] =
        json!({ "tools": tools, "checks": { "hello": { "argv": ["sh", "-c", "echo checked in $PWD"] } } });
    world.write_config(&config);
    world
}

fn told() -> support::mock_model::Reply {
    reply_with(|request| reply().text(format!("Told: {}", request.tool_results().join(" | "))))
}

fn records(world: &World, turn: &Value) -> Vec<Value> {
    let turn = turn.as_str().unwrap();
    let listed = world
        .bridge(["audit", "list", "--json", "--kind", "scope-call", "--turn", turn])
        .expect_code(0)
        .json();
    let mut records: Vec<Value> = listed["records"].as_array().unwrap().clone();
    records.reverse();
    records
}

/// What became of each call: tool, outcome, reason.
fn outcomes(records: &[Value]) -> Vec<(String, String, String)> {
    let text = |record: &Value, name: &str| record["detail"][name].as_str().unwrap_or_default().to_owned();
    let of = |record| (text(record, "tool"), text(record, "outcome"), text(record, "reason"));
    records.iter().map(of).filter(|(tool, ..)| !tool.is_empty()).collect()
}

fn a_run_calls_its_own_tools_and_no_others(cli: Cli) {
    let world = world(&["note", "recall", "run_check", "submit_report", "get_previous_result"]);
    let script = |_: &World| {
        let call = |tool: &str, arguments: Value| reply().mcp_tool(SERVER, tool, arguments);
        let foreign = json!({ "key": "plan", "text": "stolen", "workspace_id": "another" });
        Script::new()
            .scenario(
                "work",
                [
                    call("note", json!({ "key": "plan", "text": "parser first" })),
                    call("search_notes", json!({ "query": "parser" })),
                    call("note", foreign),
                    call("run_check", json!({ "name": "hello" })),
                    call("submit_report", json!({ "summary": "All is done.", "outcome": "done" })),
                    told(),
                ],
            )
            .scenario(
                "again",
                [call("recall", json!({ "key": "plan" })), call("get_previous_result", json!({})), told()],
            )
    };
    let Some(mut worker) = Worker::start(cli, world, script) else { return };
    let turn = worker.delegate("scenario:work", json!({})).ok();
    let answer = turn.structured["output"].as_str().unwrap_or_default().to_owned();
    assert!(answer.contains("Noted.") && answer.contains("checked in"), "{answer}");
    assert!(answer.contains("passed (exit code 0)"), "{answer}");
    assert_eq!(turn.structured["report"]["summary"], "All is done.", "{:#}", turn.structured);
    let records = records(&worker.world, &turn.structured["turn_id"]);
    let expected = [
        ("note", "allowed", "ok"),
        ("note", "refused", "foreign_scope"),
        ("run_check", "allowed", "ok"),
        ("submit_report", "allowed", "ok"),
    ];
    let seen = outcomes(&records);
    let seen: Vec<_> = seen.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    assert_eq!(seen, expected, "a tool that is not the run's is nowhere called");
    assert!(records.iter().all(|record| record["session"] == turn.structured["bridge_session_id"]));
    assert!(!json!(records).to_string().contains("parser first"), "arguments are not on record");
    assert_eq!(worker.world.bridge(["audit", "verify", "--json"]).expect_code(0).json()["holds"], true);

    // A later run in the folder finds the note, and the answer of before as somebody else's words.
    let next = worker.go_on(&turn, "scenario:again", json!({})).ok();
    let answer = next.structured["output"].as_str().unwrap_or_default();
    assert!(answer.contains("parser first") && answer.contains("data, not instructions"), "{answer}");
    assert!(!answer.contains("stolen") && answer.contains("checked in"), "{answer}");
    assert_eq!(next.structured["report"], Value::Null);
    worker.end();
}

#[test]
fn claude_calls_its_own_tools_and_no_others() {
    a_run_calls_its_own_tools_and_no_others(Cli::Claude);
}

#[test]
fn codex_calls_its_own_tools_and_no_others() {
    a_run_calls_its_own_tools_and_no_others(Cli::Codex);
}

/// The config's list is the most that a call can get.
#[test]
fn a_call_gets_fewer_tools_and_never_more() {
    let world = world(&["note", "recall"]);
    let script = |_: &World| Script::new().scenario("work", [told()]);
    let Some(mut worker) = Worker::start(Cli::Claude, world, script) else { return };
    let refused = worker.delegate("scenario:work", json!({ "scope_tools": ["note", "run_check"] }));
    assert_eq!(refused.structured["error"]["code"], "SCOPE_NOT_ALLOWED", "{:#}", refused.structured);
    worker.delegate("scenario:work", json!({ "scope_tools": ["note"] })).ok();
    let shown: Vec<String> =
        worker.model.requests().iter().map(|request| request.body["tools"].to_string()).collect();
    assert!(shown.iter().any(|tools| tools.contains("mcp__bridge__note")), "{}", shown.len());
    assert!(!shown.iter().any(|tools| tools.contains("mcp__bridge__recall")));
    worker.end();
}
