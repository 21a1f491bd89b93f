//! What each tool returns: complete as text, complete as structured content, and as its schema says.

use super::*;

/// Calls tools and checks each reply against the published schema.
struct Checked {
    host: Host,
    tools: Vec<Value>,
}

impl Checked {
    fn new(world: &World) -> Self {
        let mut host = world.host();
        host.initialize();
        let tools = host.request("tools/list", json!({}))["tools"].as_array().unwrap().clone();
        Self { host, tools }
    }

    fn tool(&self, name: &str) -> &Value {
        self.tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no tool {name}"))
    }

    #[track_caller]
    fn call(&mut self, name: &str, arguments: Value) -> ToolResult {
        let taken = schema::faults(&self.tool(name)["inputSchema"], &arguments);
        assert!(taken.is_empty(), "{name} is called against its own schema: {taken:?}");
        let result = self.host.call(name, arguments);
        let found = schema::faults(&self.tool(name)["outputSchema"], &result.structured);
        assert!(found.is_empty(), "{name}: {found:?} in {:#}", result.structured);
        result
    }
}

/// Facts that a host which shows only text must find there.
#[track_caller]
fn assert_told(result: &ToolResult, facts: &[&Value]) {
    for fact in facts {
        let fact = fact.as_str().map_or_else(|| fact.to_string(), str::to_owned);
        assert!(result.text.contains(&fact), "{fact:?} is not in the text: {}", result.text);
    }
}

#[test]
fn delegate_task_returns_the_answer_first_and_everything_to_go_on_with() {
    let world = World::new().ceiling("workspace-write").build();
    world.fake("codex", &json!({ "steps": [{ "answer": { "text": "All **good**.", "usage": { "input": 12, "output": 3 } } }] }));
    let mut host = Checked::new(&world);
    let result = host
        .call(
            "delegate_task",
            task(&world, "check", json!({ "sandbox": "workspace-write", "model": "some-model" })),
        )
        .ok();
    let view = &result.structured;
    assert!(result.text.starts_with("All **good**."), "{}", result.text);
    assert_eq!(view["output"], "All **good**.");
    assert_eq!(
        (&view["status"], &view["outcome"], &view["is_error"]),
        (&json!("finished"), &json!("success"), &json!(false))
    );
    assert_eq!(
        (&view["agent"], &view["model"], &view["sandbox"]),
        (&json!("codex"), &json!("some-model"), &json!("workspace-write"))
    );
    assert_eq!(
        (&view["turn"], &view["continuity"], &view["exit_code"]),
        (&json!(0), &json!("new"), &json!(0))
    );
    assert_eq!(view["tokens"]["output"], 3);
    assert_told(&result, &[&view["bridge_session_id"], &view["turn_id"], &view["outcome"], &view["sandbox"]]);
}

#[test]
fn a_follow_up_and_a_handoff_go_on_with_the_session() {
    let world = World::new().agent("claude", json!({ "bin": "claude" })).build();
    world.fake("codex", &json!({ "rules": [{ "when": { "resumed": true }, "steps": [{ "answer": { "text": "resumed" } }] }], "steps": [{ "answer": { "text": "THE-FIRST-ANSWER" } }] }));
    world.fake("claude", &json!({}));
    let mut host = Checked::new(&world);
    let first = host.call("delegate_task", task(&world, "begin", json!({}))).ok().structured;
    let session = &first["bridge_session_id"];
    let second =
        host.call("continue_session", json!({ "session_id": session, "prompt": "go on" })).ok().structured;
    assert_eq!(
        (&second["output"], &second["continuity"], &second["turn"]),
        (&json!("resumed"), &json!("native-resume"), &json!(1))
    );
    let third = host.call("handoff", json!({ "session_id": session, "to_agent": "claude" })).ok().structured;
    assert_eq!(
        (&third["agent"], &third["turn"], &third["cross_agent_context_applied"]),
        (&json!("claude"), &json!(2), &json!(true))
    );
    let sent = third["output"].as_str().unwrap();
    assert!(sent.contains("THE-FIRST-ANSWER"), "the other agent does not see the conversation: {sent}");
    let fourth = host
        .call("delegate_task", json!({ "agent": "codex", "prompt": "more", "session_id": session }))
        .ok()
        .structured;
    assert_eq!((&fourth["turn"], &fourth["bridge_session_id"]), (&json!(3), session));
}

#[test]
fn a_turn_can_be_waited_for_listed_paged_and_found() {
    let world = World::new().build();
    world.fake("codex", &json!({ "steps": [{ "print": { "text": "a warning\n", "to": "stderr" } }, { "answer": { "text": "the heron stands in the reeds" } }] }));
    let mut host = Checked::new(&world);
    let turn = host.call("delegate_task", task(&world, "look for birds", json!({}))).ok().structured;
    let session = turn["bridge_session_id"].clone();
    let waited = host.call("wait_turn", json!({ "turn_id": turn["turn_id"] })).ok();
    assert_eq!(waited.structured, turn, "the same turn, the same view");

    let listed =
        host.call("list_turns", json!({ "session_id": session, "agent": "codex", "state": "finished" })).ok();
    let row = &listed.structured["turns"][0];
    assert_eq!(
        (&row["turn_id"], &row["prompt"], &row["outcome"]),
        (&turn["turn_id"], &json!("look for birds"), &json!("success"))
    );
    assert_eq!(row["requested_by"], "mcp:scripted-host");
    let none = host.call("list_turns", json!({ "state": "running" })).ok();
    assert_eq!(none.structured["turns"], json!([]));

    let page = host
        .call("get_turn_output", json!({ "session_id": session, "turn": 0, "offset": 4, "max_chars": 5 }))
        .ok();
    assert_eq!(
        (&page.structured["text"], &page.structured["next_offset"], &page.structured["complete"]),
        (&json!("heron"), &json!(9), &json!(false))
    );
    assert_told(&page, &[&json!("heron"), &json!("next_offset 9"), &page.structured["total_chars"]]);
    let stderr =
        host.call("get_turn_output", json!({ "session_id": session, "turn": 0, "field": "stderr" })).ok();
    assert_eq!(
        (&stderr.structured["text"], &stderr.structured["complete"]),
        (&json!("a warning\n"), &json!(true))
    );

    let sessions = host.call("list_sessions", json!({ "limit": 5 })).ok();
    let row = &sessions.structured["sessions"][0];
    assert_eq!(
        (&row["id"], &row["turns"], &row["revision"], &row["agents"]),
        (&session, &json!(1), &json!(1), &json!(["codex"]))
    );
    let shown = host.call("get_session", json!({ "session_id": session, "max_chars_per_turn": 100 })).ok();
    assert_eq!(shown.structured["turns"][0]["response"], "the heron stands in the reeds");
    let hits = host.call("search_sessions", json!({ "query": "heron" })).ok();
    assert_eq!(hits.structured["hits"][0]["turn_id"], turn["turn_id"]);
    assert_eq!(
        host.call("search_sessions", json!({ "query": "flamingo" })).ok().structured["hits"],
        json!([])
    );
}

#[test]
fn lists_say_the_same_as_text_and_as_structured_content() {
    let world = World::new().build();
    world.fake("codex", &json!({}));
    let mut host = Checked::new(&world);
    let session =
        host.call("delegate_task", task(&world, "x", json!({}))).ok().structured["bridge_session_id"].clone();
    for (tool, arguments) in [
        ("list_agents", json!({})),
        ("list_turns", json!({})),
        ("list_sessions", json!({})),
        ("get_session", json!({ "session_id": session })),
        ("search_sessions", json!({ "query": "x" })),
    ] {
        let result = host.call(tool, arguments).ok();
        let text: Value =
            serde_json::from_str(&result.text).unwrap_or_else(|_| panic!("{tool}: {}", result.text));
        assert_eq!(text, result.structured, "{tool}");
    }
    let diagnosis = host.call("diagnose_install", json!({})).ok();
    assert!(diagnosis.structured["diagnostics"].is_object() && !diagnosis.text.is_empty());
}

#[test]
fn list_agents_tells_what_each_agent_may_and_can() {
    let world = World::new()
        .ceiling("workspace-write")
        .agent("codex", json!({ "sandboxCeiling": "read-only" }))
        .build();
    world.fake("codex", &json!({ "version": "codex-cli 0.171.0" }));
    let mut host = Checked::new(&world);
    let agents = host.call("list_agents", json!({})).ok().structured["agents"].clone();
    let agent = |id: &str| agents.as_array().unwrap().iter().find(|agent| agent["id"] == id).unwrap().clone();
    let codex = agent("codex");
    assert_eq!(
        (&codex["health"]["usable"], &codex["health"]["binary"]["version"]),
        (&json!(true), &json!("0.171.0"))
    );
    assert_eq!(codex["sandboxCeiling"], "read-only");
    assert_eq!(agent("claude")["health"]["usable"], false, "claude is not installed here");
}

#[test]
fn cancel_turn_ends_a_running_turn_and_leaves_a_finished_one() {
    let world = World::new().build();
    world.fake("codex", &json!({ "rules": [{ "when": { "contains": "quick" }, "steps": [{ "answer": { "text": "kept" } }] }], "steps": ["hang"] }));
    let mut host = Checked::new(&world);
    let running = host.call("delegate_task", task(&world, "hang", json!({ "wait_seconds": 0 }))).ok();
    assert_told(&running, &[&json!("still_running"), &running.structured["turn_id"], &json!("wait_turn")]);
    let cancelled = host
        .call(
            "cancel_turn",
            json!({ "turn_id": running.structured["turn_id"], "reason": "no longer needed" }),
        )
        .ok();
    assert_eq!(
        (&cancelled.structured["cancel_requested"], &cancelled.structured["result"]["outcome"]),
        (&json!(true), &json!("cancelled"))
    );
    assert_told(&cancelled, &[&json!("no longer needed")]);
    let twice = host.call("cancel_turn", json!({ "turn_id": running.structured["turn_id"] })).ok();
    assert_eq!(twice.structured["cancel_requested"], false);
    let done = host.call("delegate_task", task(&world, "quick", json!({}))).ok();
    let late = host.call("cancel_turn", json!({ "turn_id": done.structured["turn_id"] })).ok();
    assert_eq!(
        (&late.structured["cancel_requested"], &late.structured["result"]["output"]),
        (&json!(false), &json!("kept"))
    );
}

#[test]
fn a_refusal_keeps_to_the_schema_too() {
    let world = World::new().build();
    let mut host = Checked::new(&world);
    let nothing = "00000000-0000-4000-8000-000000000000";
    for (tool, arguments) in [
        ("delegate_task", json!({ "agent": "nobody", "prompt": "x" })),
        ("wait_turn", json!({ "turn_id": nothing })),
        ("cancel_turn", json!({ "turn_id": nothing })),
        ("get_session", json!({ "session_id": nothing })),
        ("list_turns", json!({ "cursor": "nonsense" })),
    ] {
        refusal(host.call(tool, arguments));
    }
}

#[test]
fn a_failed_turn_is_an_error_with_its_reason_and_next_step() {
    let world = World::new().build();
    world.fake(
        "codex",
        &json!({ "steps": [{ "print": { "text": "cannot read workspace\n", "to": "stderr" } }, { "exit": 3 }] }),
    );
    let mut host = Checked::new(&world);
    let failed = host.call("delegate_task", task(&world, "x", json!({}))).err();
    let view = &failed.structured;
    assert_eq!(
        (&view["outcome"], &view["is_error"], &view["exit_code"]),
        (&json!("worker-error"), &json!(true), &json!(3))
    );
    assert_told(
        &failed,
        &[&json!("cannot read workspace"), &json!("code 3"), &view["hint"], &view["turn_id"]],
    );
}
