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
    // Gemini CLI holds calls against the schema itself.
    let arrives = |(_, outcome, _): &(&str, &str, &str)| cli != Cli::Gemini || *outcome == "allowed";
    let expected: Vec<_> = expected.into_iter().filter(arrives).collect();
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

#[test]
fn gemini_calls_its_own_tools_and_no_others() {
    a_run_calls_its_own_tools_and_no_others(Cli::Gemini);
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

/// A server of others: it speaks line by line, and says where it runs.
const BOOKS: &str = r#"
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "books", "version": "1"}}
    elif message["method"] == "tools/list":
        schema = {"type": "object", "properties": {"word": {"type": "string"}}}
        result = {"tools": [{"name": name, "description": "Books.", "inputSchema": schema} for name in ("search", "burn")]}
    elif message["method"] == "tools/call":
        text = "found %s in %s" % (message["params"]["arguments"].get("word"), os.path.basename(os.getcwd()))
        result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

fn a_server_of_others_is_part_of_the_run(cli: Cli) {
    let world = world(&["note"]);
    let script = world.outside().join("books.py");
    std::fs::write(&script, BOOKS).unwrap();
    let mut config = world.config();
    config["scope"]["servers"] =
        json!({ "books": { "command": "python3", "args": [&script], "tools": ["search"] } });
    world.write_config(&config);
    let calls = |_: &World| {
        let call = reply().mcp_tool(SERVER, "books_search", json!({ "word": "parser" }));
        Script::new().scenario("work", [call, told()])
    };
    let Some(mut worker) = Worker::start(cli, world, calls) else { return };
    let turn = worker.delegate("scenario:work", json!({})).ok();
    let folder = worker.world.repo().file_name().unwrap().to_string_lossy().into_owned();
    let answer = turn.structured["output"].as_str().unwrap_or_default();
    assert!(
        answer.contains(&format!("found parser in {folder}")) && answer.contains("data, not instructions"),
        "{answer}"
    );
    assert!(process::processes_with(&script.to_string_lossy()).is_empty(), "it ended with the run");
    // It has no such tool any more: the run does not begin.
    std::fs::write(&script, BOOKS.replace("\"search\", ", "")).unwrap();
    let refused = worker.delegate("scenario:work", json!({}));
    assert!(refused.text.contains("SCOPE_UPSTREAM_FAILED"), "{}", refused.text);
    worker.end();
}

#[test]
fn a_server_of_others_is_part_of_a_run_of_claude() {
    a_server_of_others_is_part_of_the_run(Cli::Claude);
}

#[test]
fn a_server_of_others_is_part_of_a_run_of_codex() {
    a_server_of_others_is_part_of_the_run(Cli::Codex);
}

#[test]
fn a_server_of_others_is_part_of_a_run_of_gemini() {
    a_server_of_others_is_part_of_the_run(Cli::Gemini);
}

/// A run of Gemini CLI with an endpoint has a home of its own, so it leaves no conversation and finds none.
#[test]
fn gemini_beside_an_endpoint_is_told_what_was_said_before() {
    let world = world(&["note"]);
    let script = |_: &World| {
        let names = ["one", "two", "three", "four"];
        names.iter().fold(Script::new(), |script, name| script.scenario(name, [reply().text(*name)]))
    };
    let Some(mut worker) = Worker::start(Cli::Gemini, world, script) else { return };
    let none = json!({ "scope_tools": [] });
    let one = worker.delegate("scenario:one", none.clone()).ok();
    for (name, more, continuity) in [
        ("two", json!({}), "context-replay"),
        ("three", none.clone(), "native-resume"),
        ("four", json!({}), "context-replay"),
    ] {
        let turn = worker.go_on(&one, &format!("scenario:{name}"), more).ok();
        assert_eq!(turn.structured["continuity"], continuity, "{name}");
    }
    worker.end();
}

#[test]
fn a_worker_delegates_a_part_in_the_same_folder_and_no_deeper_than_it_may() {
    let world = world(&["delegate"]);
    let mut config = world.config();
    config["maxDelegationDepth"] = json!(2);
    world.write_config(&config);
    let script = |_: &World| {
        let part =
            |task: &str| reply().mcp_tool(SERVER, "delegate", json!({ "task": task, "agent": "claude" }));
        Script::new()
            .scenario("outer", [part("scenario:inner"), told()])
            .scenario("inner", [part("scenario:innermost"), told()])
    };
    let Some(mut worker) = Worker::start(Cli::Claude, world, script) else { return };
    let turn = worker.delegate("scenario:outer", json!({})).ok();
    let answer = turn.structured["output"].as_str().unwrap_or_default();
    assert!(answer.contains("answer of another agent") && answer.contains("DELEGATION_TOO_DEEP"), "{answer}");
    let turns = worker.world.bridge(["turns", "list", "--json"]).expect_code(0).json();
    let turns = turns["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 2, "the innermost was refused");
    assert!(turns.iter().all(|turn| turn["sandbox"] == "read-only" && turn["outcome"] == "success"));
    worker.end();
}

/// The worker asks, its host's wait comes back with the question, a command answers, and the worker goes on with that.
fn a_question_of_the_worker_is_answered_from_another_process(cli: Cli) {
    let world = world(&["ask_supervisor", "request_approval"]);
    let script = |_: &World| {
        let call = |tool: &str, arguments: Value| reply().mcp_tool(SERVER, tool, arguments);
        let deploy = json!({ "tool_name": "Bash", "input": { "command": "make deploy" } });
        Script::new().scenario(
            "work",
            [
                call("ask_supervisor", json!({ "question": "Left or right?" })),
                call("request_approval", deploy),
                told(),
            ],
        )
    };
    let Some(mut worker) = Worker::start(cli, world, script) else { return };
    let turn = worker.delegate("scenario:work", json!({})).ok().structured;
    let answer = |question: &Value, answer: &[&str]| {
        let id = question["question_id"].as_str().unwrap();
        worker.world.bridge([&["turns", "answer", id], answer].concat()).expect_code(0);
    };
    assert_eq!(turn["questions"][0]["text"], "Left or right?", "{turn:#}");
    answer(&turn["questions"][0], &["--text", "The left one, said the person."]);
    let wait = json!({ "turn_id": turn["turn_id"], "wait_seconds": 120 });
    let turn = worker.host.call("wait_turn", wait.clone()).ok().structured;
    let question = &turn["questions"][0];
    assert_eq!((&question["kind"], &question["tool"]), (&json!("approval"), &json!("Bash")), "{turn:#}");
    answer(question, &["--deny", "--text", "Nothing is deployed today."]);
    let turn = worker.host.call("wait_turn", wait).ok().structured;
    let told = turn["output"].as_str().unwrap_or_default();
    assert!(told.contains("The left one, said the person."), "{told}");
    assert!(told.contains("Nothing is deployed today.") && told.contains("deny"), "{told}");
    worker.end();
}

#[test]
fn a_question_of_claude_is_answered_from_another_process() {
    a_question_of_the_worker_is_answered_from_another_process(Cli::Claude);
}

#[test]
fn a_question_of_codex_is_answered_from_another_process() {
    a_question_of_the_worker_is_answered_from_another_process(Cli::Codex);
}

#[test]
fn a_question_of_gemini_is_answered_from_another_process() {
    a_question_of_the_worker_is_answered_from_another_process(Cli::Gemini);
}
