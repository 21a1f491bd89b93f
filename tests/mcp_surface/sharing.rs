//! Several servers on one state folder, several calls on one session, and the choice of tools.

use super::*;

/// Opens what a fake waits for.
fn open(world: &World) {
    std::fs::write(world.path().join("go"), "").unwrap();
}

/// A fake that answers when it may; anything with "quick" in its prompt at once.
fn waiting(world: &World) {
    let go = world.path().join("go");
    let steps =
        json!([{ "wait_for_file": { "path": go, "timeout_ms": 120_000 } }, { "answer": { "text": "done" } }]);
    world.fake("codex", &json!({ "rules": [{ "when": { "contains": "quick" }, "steps": [{ "answer": { "text": "quick" } }] }], "steps": steps }));
}

fn two(world: &World) -> (Host, Host) {
    let mut pair = (world.host(), world.host());
    pair.0.initialize();
    pair.1.initialize();
    pair
}

#[test]
fn a_turn_of_one_server_is_seen_and_waited_for_at_another() {
    let world = World::new().build();
    waiting(&world);
    let (mut here, mut there) = two(&world);
    let turn = here.call("delegate_task", task(&world, "slow", json!({ "wait_seconds": 0 }))).ok().structured;
    let seen = there.call("list_turns", json!({ "state": "running" })).ok();
    assert_eq!(seen.structured["turns"][0]["turn_id"], turn["turn_id"]);
    let wait = there.call_in_background("wait_turn", json!({ "turn_id": turn["turn_id"] }));
    open(&world);
    assert_eq!(there.finish(wait).ok().structured["output"], "done");
    assert_eq!(
        here.call("wait_turn", json!({ "turn_id": turn["turn_id"] })).ok().structured["output"],
        "done"
    );
    let follow = json!({ "session_id": turn["bridge_session_id"], "prompt": "quick" });
    assert_eq!(there.call("continue_session", follow).ok().structured["turn"], 1);
}

#[test]
fn a_turn_of_one_server_is_cancelled_at_another() {
    let world = World::new().build();
    waiting(&world);
    let (mut here, mut there) = two(&world);
    let call = here.call_in_background("delegate_task", task(&world, "slow", json!({})));
    let mut turn = Value::Null;
    process::wait_until("the turn to be seen", DEADLINE, || {
        turn = there.call("list_turns", json!({ "state": "running" })).ok().structured["turns"][0]["turn_id"]
            .clone();
        turn.is_string()
    });
    let cancelled = there.call("cancel_turn", json!({ "turn_id": turn, "reason": "from over there" })).ok();
    assert_eq!(cancelled.structured["result"]["outcome"], "cancelled");
    let told = here.finish(call).err();
    assert_eq!(told.structured["outcome"], "cancelled");
    assert!(told.text.contains("from over there"), "{}", told.text);
}

#[test]
fn a_session_that_stays_busy_is_refused_with_the_turn_that_holds_it() {
    let world = World::new().config("sessionLockWaitMs", json!(300)).build();
    waiting(&world);
    let (mut here, mut there) = two(&world);
    let turn = here.call("delegate_task", task(&world, "slow", json!({ "wait_seconds": 0 }))).ok().structured;
    for host in [&mut here, &mut there] {
        let begun = std::time::Instant::now();
        let follow = json!({ "session_id": turn["bridge_session_id"], "prompt": "quick" });
        let error = refusal(host.call("continue_session", follow));
        assert_eq!((&error["code"], &error["retryable"]), (&json!("SESSION_BUSY"), &json!(true)));
        assert_eq!(error["details"]["turn_id"], turn["turn_id"]);
        assert!(begun.elapsed() >= Duration::from_millis(300), "the wait for the session was left out");
    }
    open(&world);
    assert_eq!(
        here.call("wait_turn", json!({ "turn_id": turn["turn_id"] })).ok().structured["output"],
        "done"
    );
}

#[test]
fn a_follow_up_waits_its_turn_in_a_busy_session() {
    let world = World::new().build();
    waiting(&world);
    let (mut here, mut there) = two(&world);
    let turn = here.call("delegate_task", task(&world, "slow", json!({ "wait_seconds": 0 }))).ok().structured;
    let follow = json!({ "session_id": turn["bridge_session_id"], "prompt": "quick" });
    let waits = there.call_in_background("continue_session", follow);
    process::wait_until("the follow-up to wait", DEADLINE, || {
        world.processes().iter().filter(|it| it.command.contains("run-turn")).count() == 2
    });
    open(&world);
    let result = there.finish(waits).ok();
    assert_eq!((&result.structured["output"], &result.structured["turn"]), (&json!("quick"), &json!(1)));
}

#[test]
fn no_more_turns_run_at_once_than_the_config_allows() {
    let world = World::new().config("maxConcurrentTurns", json!(2)).build();
    waiting(&world);
    let (mut here, mut there) = two(&world);
    let start =
        |host: &mut Host| host.call("delegate_task", task(&world, "slow", json!({ "wait_seconds": 0 })));
    let first = start(&mut here).ok();
    let _second = start(&mut there).ok();
    let error = refusal(start(&mut here));
    assert_eq!((&error["code"], &error["retryable"]), (&json!("TOO_MANY_TURNS"), &json!(true)));
    open(&world);
    here.call("wait_turn", json!({ "turn_id": first.structured["turn_id"] })).ok();
    start(&mut here).ok();
}

#[test]
fn many_waiting_calls_do_not_block_the_others() {
    let world = World::new().build();
    waiting(&world);
    let mut host = world.host();
    host.initialize();
    let turn = host.call("delegate_task", task(&world, "slow", json!({ "wait_seconds": 0 }))).ok().structured;
    let waits: Vec<Pending> = (0..40)
        .map(|_| host.call_in_background("wait_turn", json!({ "turn_id": turn["turn_id"] })))
        .collect();
    let quick = host.call("delegate_task", task(&world, "quick", json!({}))).ok();
    assert_eq!(quick.structured["output"], "quick");
    open(&world);
    for wait in waits {
        assert_eq!(host.finish(wait).ok().structured["output"], "done");
    }
}

#[test]
fn a_flood_of_waits_is_refused_but_a_turn_can_still_be_cancelled() {
    let world = World::new().build();
    waiting(&world);
    let mut host = world.host();
    host.initialize();
    let turn = host.call("delegate_task", task(&world, "slow", json!({ "wait_seconds": 0 }))).ok().structured;
    let waits: Vec<Pending> = (0..80)
        .map(|_| host.call_in_background("wait_turn", json!({ "turn_id": turn["turn_id"] })))
        .collect();
    let cancelled = host.call("cancel_turn", json!({ "turn_id": turn["turn_id"] })).ok();
    assert_eq!(cancelled.structured["result"]["outcome"], "cancelled");
    let mut busy = 0;
    for wait in waits {
        let result = host.finish(wait).err();
        if result.structured["error"]["code"] == "SERVER_BUSY" {
            busy += 1;
        } else {
            assert_eq!(result.structured["outcome"], "cancelled");
        }
    }
    assert!(busy > 0, "nothing bounds the calls of one connection");
}

#[test]
fn groups_of_tools_are_switched_by_argument_and_by_config() {
    let names = |world: &World, arguments: &[&str]| {
        let mut host = world.host_with(arguments);
        host.initialize();
        host.tool_names()
    };
    let all = World::new().build();
    let every = names(&all, &["serve"]);
    assert!(every.contains(&"delegate_task".to_owned()) && every.contains(&"diagnose_install".to_owned()));
    assert_eq!(names(&all, &["serve", "--toolsets", "diagnostics"]), ["diagnose_install"]);
    let both = names(&all, &["serve", "--toolsets", "sessions,diagnostics"]);
    assert!(both.contains(&"diagnose_install".to_owned()) && both.contains(&"delegate_task".to_owned()));

    let few = World::new().config("toolsets", json!(["sessions"])).build();
    assert!(!names(&few, &["serve"]).contains(&"diagnose_install".to_owned()));
    // A tool that is switched off cannot be called either.
    let mut host = few.host();
    host.initialize();
    let error =
        host.try_request("tools/call", json!({ "name": "diagnose_install", "arguments": {} })).unwrap_err();
    assert_eq!(error.code, -32602);
    // The argument outranks the config.
    assert_eq!(names(&few, &["serve", "--toolsets", "diagnostics"]), ["diagnose_install"]);
}
