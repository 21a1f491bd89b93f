//! What each tool refuses, and how well it says why.

use super::*;

const FOREIGN: &str = "00000000-0000-4000-8000-000000000000";

fn host() -> (World, Host) {
    let world = World::new().build();
    world.fake("codex", &json!({}));
    let mut host = world.host();
    host.initialize();
    (world, host)
}

#[test]
fn a_required_argument_that_is_missing_is_named() {
    let (_world, mut host) = host();
    for (tool, arguments, missing) in [
        ("delegate_task", json!({ "prompt": "x" }), "agent"),
        ("delegate_task", json!({ "agent": "codex" }), "prompt"),
        ("continue_session", json!({ "prompt": "x" }), "session_id"),
        ("continue_session", json!({ "session_id": FOREIGN }), "prompt"),
        ("handoff", json!({ "session_id": FOREIGN }), "to_agent"),
        ("wait_turn", json!({}), "turn_id"),
        ("cancel_turn", json!({}), "turn_id"),
        ("get_turn_output", json!({ "turn": 0 }), "session_id"),
        ("get_turn_output", json!({ "session_id": FOREIGN }), "turn"),
        ("get_session", json!({}), "session_id"),
        ("search_sessions", json!({}), "query"),
        ("answer_question", json!({ "text": "x" }), "question_id"),
    ] {
        let error = refusal(host.call(tool, arguments));
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{tool}");
        assert!(error["message"].as_str().unwrap().contains(&format!("`{missing}`")), "{tool}: {error}");
    }
}

#[test]
fn an_argument_of_the_wrong_type_or_range_is_named() {
    let (world, mut host) = host();
    let repo = world.repo();
    let start = |name: &str, value: Value| {
        let mut arguments = json!({ "agent": "codex", "prompt": "x", "cwd": repo });
        arguments[name] = value;
        ("delegate_task", arguments, name.to_owned())
    };
    let of = |tool: &'static str, arguments: Value, name: &str| (tool, arguments, name.to_owned());
    for (tool, arguments, name) in [
        start("prompt", json!(5)),
        start("prompt", json!(["x"])),
        start("agent", json!({})),
        start("sandbox", json!("root")),
        start("sandbox", json!(1)),
        start("timeout_sec", json!("10")),
        start("timeout_sec", json!(-1)),
        start("timeout_sec", json!(1.5)),
        start("timeout_sec", json!(0)),
        start("wait_seconds", json!(100_000)),
        start("idempotency_key", json!("")),
        start("idempotency_key", json!("k".repeat(201))),
        start("on_disconnect", json!("explode")),
        start("expected_session_revision", json!("1")),
        start("approval_ids", json!("one")),
        of("list_turns", json!({ "limit": 0 }), "limit"),
        of("list_turns", json!({ "limit": 201 }), "limit"),
        of("list_turns", json!({ "state": "paused" }), "state"),
        of("list_turns", json!({ "agent": "nobody" }), "agent"),
        of("list_questions", json!({ "state": "waiting" }), "state"),
        of("list_questions", json!({ "limit": 0 }), "limit"),
        of("answer_question", json!({ "question_id": FOREIGN, "approve": "yes" }), "approve"),
        of("list_sessions", json!({ "limit": true }), "limit"),
        of("search_sessions", json!({ "query": "" }), "query"),
        of("search_sessions", json!({ "query": "   " }), "query"),
        of("search_sessions", json!({ "query": "q".repeat(501) }), "query"),
        of("search_sessions", json!({ "query": "x", "limit": 51 }), "limit"),
        of("get_session", json!({ "session_id": FOREIGN, "max_chars_per_turn": 0 }), "max_chars_per_turn"),
        of("get_turn_output", json!({ "session_id": FOREIGN, "turn": 0, "max_chars": 100_001 }), "max_chars"),
        of("get_turn_output", json!({ "session_id": FOREIGN, "turn": -1 }), "turn"),
        of("get_turn_output", json!({ "session_id": FOREIGN, "turn": 0, "field": "env" }), "field"),
        of("wait_turn", json!({ "turn_id": 12 }), "turn_id"),
    ] {
        let shown = arguments.to_string();
        let error = refusal(host.call(tool, arguments));
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{tool} {shown}");
        assert!(error["message"].as_str().unwrap().contains(&format!("`{name}`")), "{tool} {shown}: {error}");
    }
    assert_eq!(
        host.call("list_turns", json!({})).ok().structured["turns"],
        json!([]),
        "something was started"
    );
}

#[test]
fn an_unknown_argument_is_refused_with_the_likely_one() {
    let (world, mut host) = host();
    for (tool, arguments, wrong, near) in [
        (
            "delegate_task",
            task(&world, "x", json!({ "timeout_secs": 5 })),
            "timeout_secs",
            Some("timeout_sec"),
        ),
        ("delegate_task", task(&world, "x", json!({ "sandBox": "read-only" })), "sandBox", Some("sandbox")),
        ("wait_turn", json!({ "turnId": FOREIGN }), "turnId", Some("turn_id")),
        ("list_agents", json!({ "verbose": true }), "verbose", None),
        ("list_turns", json!({ "zzz": 1 }), "zzz", None),
    ] {
        let error = refusal(host.call(tool, arguments));
        let message = error["message"].as_str().unwrap();
        assert_eq!(error["code"], "INVALID_ARGUMENT");
        assert!(message.contains(&format!("`{wrong}`")), "{message}");
        if let Some(near) = near {
            assert!(message.contains(&format!("did you mean `{near}`")), "{message}");
        }
    }
}

#[test]
fn ids_of_nothing_here_are_refused() {
    let (world, mut host) = host();
    let known = host.call("delegate_task", task(&world, "x", json!({}))).ok().structured;
    let session = &known["bridge_session_id"];
    for (tool, arguments, code) in [
        ("wait_turn", json!({ "turn_id": FOREIGN }), "TURN_NOT_FOUND"),
        ("cancel_turn", json!({ "turn_id": FOREIGN }), "TURN_NOT_FOUND"),
        // The id of a session is no id of a turn.
        ("wait_turn", json!({ "turn_id": session }), "TURN_NOT_FOUND"),
        ("get_session", json!({ "session_id": FOREIGN }), "SESSION_NOT_FOUND"),
        ("get_session", json!({ "session_id": known["turn_id"] }), "SESSION_NOT_FOUND"),
        ("continue_session", json!({ "session_id": FOREIGN, "prompt": "x" }), "SESSION_NOT_FOUND"),
        ("handoff", json!({ "session_id": FOREIGN, "to_agent": "codex" }), "SESSION_NOT_FOUND"),
        ("delegate_task", task(&world, "x", json!({ "session_id": FOREIGN })), "SESSION_NOT_FOUND"),
        ("get_turn_output", json!({ "session_id": FOREIGN, "turn": 0 }), "SESSION_NOT_FOUND"),
        ("get_turn_output", json!({ "session_id": session, "turn": 7 }), "TURN_NOT_FOUND"),
        ("list_turns", json!({ "cursor": "nonsense" }), "STORE_BAD_CURSOR"),
        ("list_questions", json!({ "cursor": "nonsense" }), "STORE_BAD_CURSOR"),
        ("answer_question", json!({ "question_id": FOREIGN, "text": "x" }), "QUESTION_NOT_FOUND"),
        ("list_sessions", json!({ "cursor": "nonsense" }), "STORE_BAD_CURSOR"),
    ] {
        assert_eq!(refused(host.call(tool, arguments.clone())), code, "{tool} {arguments}");
    }
    for id in
        ["", "..", "../../etc/passwd", "x\u{0}y", "00000000-0000-4000-8000-00000000000G", &"a".repeat(10_000)]
    {
        for (tool, name) in [
            ("wait_turn", "turn_id"),
            ("cancel_turn", "turn_id"),
            ("get_session", "session_id"),
            ("answer_question", "question_id"),
            ("list_questions", "turn_id"),
        ] {
            assert_eq!(refused(host.call(tool, json!({ name: id }))), "INVALID_ARGUMENT", "{tool} {id:?}");
        }
    }
}

#[test]
fn a_tool_that_is_not_offered_is_a_protocol_error() {
    let (_world, mut host) = host();
    for name in ["no_such_tool", "", "delegate_task ", "DELEGATE_TASK", "mcp__agent-bridge__delegate_task"] {
        let error = host.try_request("tools/call", json!({ "name": name, "arguments": {} })).unwrap_err();
        assert_eq!(error.code, -32602, "{name:?}: {error:?}");
        assert!(error.message.contains("UNKNOWN_TOOL"), "{error:?}");
    }
}

#[test]
fn a_call_of_the_wrong_shape_is_answered() {
    let (_world, mut host) = host();
    for params in [
        json!({}),
        json!({ "name": 5 }),
        json!({ "name": "list_turns", "arguments": "x" }),
        json!({ "name": "list_turns", "arguments": [] }),
        json!([]),
    ] {
        let error = host.try_request("tools/call", params.clone()).unwrap_err();
        assert!(error.code < 0 && !error.message.is_empty(), "{params}: {error:?}");
    }
    // No arguments at all are none.
    let none = host.request("tools/call", json!({ "name": "list_turns" }));
    assert_eq!(none["structuredContent"]["turns"], json!([]));
}

#[test]
fn agents_that_cannot_be_used_are_refused_by_name() {
    let world = World::new().agent("claude", json!({ "enabled": false })).build();
    world.fake("codex", &json!({}));
    let mut host = world.host();
    host.initialize();
    let near = refusal(host.call("delegate_task", task(&world, "x", json!({ "agent": "codx" }))));
    assert_eq!(near["code"], "AGENT_UNKNOWN");
    assert!(near["message"].as_str().unwrap().contains("`codex`"), "{near}");
    assert_eq!(
        refused(host.call("delegate_task", task(&world, "x", json!({ "agent": "claude" })))),
        "AGENT_DISABLED"
    );
    for agent in ["", "CODEX", "codex ", "../codex", "codex;id"] {
        assert_eq!(
            refused(host.call("delegate_task", task(&world, "x", json!({ "agent": agent })))),
            "AGENT_UNKNOWN"
        );
    }
}

#[test]
fn prompts_are_taken_up_to_the_limit_and_no_further() {
    let (world, mut host) = host();
    for prompt in ["", " \n\t "] {
        assert_eq!(refused(host.call("delegate_task", task(&world, prompt, json!({})))), "PROMPT_INVALID");
    }
    assert_eq!(
        refused(host.call("delegate_task", task(&world, &"é".repeat(1_000_001), json!({})))),
        "PROMPT_INVALID"
    );
    let long = "é".repeat(1_000_000);
    let taken = host.call("delegate_task", task(&world, &long, json!({}))).ok();
    assert_eq!(taken.structured["output_chars"], long.len(), "the fake repeats what it was sent");
}

#[test]
fn more_authority_than_the_ceiling_is_refused_and_less_is_granted() {
    let world = World::new().ceiling("read-only").build();
    world.fake("codex", &json!({}));
    let mut host = world.host();
    host.initialize();
    for sandbox in ["workspace-write", "full-access"] {
        let error = refusal(host.call("delegate_task", task(&world, "x", json!({ "sandbox": sandbox }))));
        assert_eq!(error["code"], "SANDBOX_AUTHORITY_DENIED");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(sandbox) && message.contains("read-only"), "{message}");
    }
    assert_eq!(host.call("list_turns", json!({})).ok().structured["turns"], json!([]));
    let granted = host.call("delegate_task", task(&world, "x", json!({ "sandbox": "read-only" }))).ok();
    assert_eq!(granted.structured["sandbox"], "read-only");
    let by_default = host.call("delegate_task", task(&world, "x", json!({}))).ok();
    assert_eq!(by_default.structured["sandbox"], "read-only");
}

#[test]
fn a_revision_that_has_moved_on_is_refused_with_both_numbers() {
    let (world, mut host) = host();
    let first = host.call("delegate_task", task(&world, "x", json!({}))).ok().structured;
    let follow = |revision: u64| json!({ "session_id": first["bridge_session_id"], "prompt": "y", "expected_session_revision": revision });
    for wrong in [0, 2] {
        let error = refusal(host.call("continue_session", follow(wrong)));
        assert_eq!(error["code"], "SESSION_REVISION_MISMATCH");
        assert_eq!((&error["details"]["expected"], &error["details"]["found"]), (&json!(wrong), &json!(1)));
    }
    host.call("continue_session", follow(1)).ok();
    assert_eq!(refused(host.call("continue_session", follow(1))), "SESSION_REVISION_MISMATCH");
    let alone = host.call("delegate_task", task(&world, "x", json!({ "expected_session_revision": 0 })));
    assert_eq!(refused(alone), "SESSION_REVISION_INVALID");
}

#[test]
fn consent_arguments_for_a_local_agent_are_ignored_with_a_note() {
    let (world, mut host) = host();
    let result = host.call("delegate_task", task(&world, "x", json!({ "allow_remote_egress": true }))).ok();
    assert!(result.structured["notes"].to_string().contains("ignored"), "{:#}", result.whole);
    assert!(result.text.contains("ignored"), "{}", result.text);
}
