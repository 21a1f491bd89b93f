//! What a call may say about the tools of a run: less than the config offers, and never more.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::prelude::*;

fn world(scope: Value) -> World {
    World::new().agent("mock", json!({ "enabled": true })).config("scope", scope).build()
}

#[test]
fn a_tool_that_is_not_offered_is_refused_by_name_with_the_next_step() {
    let world = world(json!({ "tools": ["note"] }));
    let mut host = world.host();
    host.initialize();
    let arguments =
        json!({ "agent": "mock", "prompt": "hello", "cwd": world.repo(), "scope_tools": ["note", "recall"] });
    let refused = host.call("delegate_task", arguments).err();
    let error = &refused.structured["error"];
    assert_eq!(error["code"], "SCOPE_NOT_ALLOWED", "{error:#}");
    assert!(
        error["message"].as_str().unwrap().contains("recall")
            && error["hint"].as_str().unwrap().contains("scope")
    );
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    let refused = world.bridge(["delegate", "mock", "hello", "--scope-tool", "recall"]);
    assert!(refused.code == Some(2) && refused.stderr().contains("SCOPE_NOT_ALLOWED"), "{refused}");
}

#[test]
fn a_run_without_the_offered_tools_needs_no_endpoint() {
    let world = world(json!({ "tools": ["note"] }));
    let turn = world.bridge(["delegate", "mock", "hello", "--no-scope", "--json"]).expect_code(0).json();
    assert!(turn["outcome"] == "success" && turn["meta"].get("scope").is_none(), "{turn:#}");
    let both = world.bridge(["delegate", "mock", "hello", "--no-scope", "--scope-tool", "note"]);
    assert_eq!(both.code, Some(64), "{both}");
}

#[test]
fn a_repeated_key_with_other_tools_is_another_request() {
    let world = world(json!({ "tools": ["note"] }));
    let delegate = |more: &[&str]| {
        let first = ["delegate", "mock", "hello", "--idempotency-key", "k", "--json"];
        world.bridge(first.iter().chain(more))
    };
    delegate(&["--no-scope"]).expect_code(0);
    delegate(&["--no-scope"]).expect_code(0);
    let conflict = delegate(&["--scope-tool", "note"]);
    assert!(conflict.stderr().contains("IDEMPOTENCY"), "{conflict}");
}
