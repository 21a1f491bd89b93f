//! Calls that the host cancels: nothing comes back for them, and everything else goes on.

use super::*;

/// Anything with "quick" in its prompt is answered at once.
fn quick_answers() -> Value {
    json!([{ "when": { "contains": "quick" }, "steps": [{ "answer": { "text": "quick" } }] }])
}

fn half_an_answer() -> Value {
    json!({ "event": { "type": "item.completed", "item": { "id": "i", "type": "agent_message", "text": "half an answer" } } })
}

/// A fake whose turn says `working` and hangs; anything with "quick" in its prompt answers at once.
fn hanging(world: &World, gate: &Gate) {
    world.fake(
        "codex",
        &json!({
            "rules": quick_answers(),
            "steps": [
                half_an_answer(),
                gate.says("working"),
                "hang",
            ],
        }),
    );
}

#[test]
fn a_cancelled_call_is_never_answered_and_the_connection_goes_on() {
    let world = World::new().build();
    let gate = Gate::new(&world);
    hanging(&world, &gate);
    let mut host = world.host();
    host.initialize();
    let pending = host.call_in_background("delegate_task", task(&world, "long", json!({})));
    gate.wait_for("working");
    let turn = running_turn(&mut host);
    host.cancel(&pending, "limit of the host");
    assert_eq!(outcome(&mut host, &turn), "cancelled");
    let other = host.call("delegate_task", task(&world, "quick", json!({}))).ok();
    assert_eq!(other.structured["output"], "quick");
    assert_eq!(answers(&all_messages(&mut host), &pending.id), 0, "a stray answer");
}

#[test]
fn cancelling_a_call_ends_its_whole_tree_frees_its_slot_and_keeps_partial_output() {
    let world = World::new().config("maxConcurrentTurns", json!(1)).build();
    let gate = Gate::new(&world);
    let child = |group: &str, name: &str| json!({ "spawn": { "group": group, "double_fork": true, "steps": [gate.says(name), "hang"] } });
    world.fake(
        "codex",
        &json!({
            "rules": quick_answers(),
            "steps": [
                half_an_answer(),
                { "print": { "text": "a word on the way\n", "to": "stderr" } },
                child("same", "one"), child("own", "two"), child("session", "three"),
                { "ignore_signals": ["INT", "TERM"] }, gate.says("working"), "hang",
            ],
        }),
    );
    let mut host = world.host();
    host.initialize();
    let pending = host.call_in_background("delegate_task", task(&world, "long", json!({})));
    for name in ["one", "two", "three", "working"] {
        gate.wait_for(name);
    }
    let turn = running_turn(&mut host);
    host.cancel(&pending, "enough");
    assert_eq!(outcome(&mut host, &turn), "cancelled");
    let left: Vec<_> = world.processes().into_iter().filter(|it| it.command.contains("mock-agent")).collect();
    assert!(left.is_empty(), "the record says cancelled while these run: {left:#?}");
    let shown = host.call("wait_turn", json!({ "turn_id": turn })).structured;
    let page = |host: &mut Host, field: &str| {
        let arguments =
            json!({ "session_id": shown["bridge_session_id"], "turn": shown["turn"], "field": field });
        host.call("get_turn_output", arguments).ok().structured["text"].clone()
    };
    assert!(page(&mut host, "stdout").as_str().unwrap().contains("half an answer"));
    assert_eq!(page(&mut host, "stderr"), "a word on the way\n");
    let next = host.call("delegate_task", task(&world, "quick", json!({}))).ok();
    assert_eq!(next.structured["output"], "quick", "the slot is not free");
}

#[test]
fn with_detach_a_cancelled_call_leaves_its_turn_running() {
    let world = World::new().build();
    let gate = Gate::new(&world);
    let steps = json!([gate.says("working"), gate.waits_for("go"), { "answer": { "text": "done" } }]);
    world.fake("codex", &json!({ "steps": steps }));
    let mut host = world.host();
    host.initialize();
    let arguments = task(&world, "long", json!({ "on_disconnect": "detach" }));
    let pending = host.call_in_background("delegate_task", arguments);
    gate.wait_for("working");
    let turn = running_turn(&mut host);
    host.cancel(&pending, "limit of the host");
    // A call made after the cancel was read shows that it had no effect on the turn.
    let poll = host.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 1 })).ok();
    assert_eq!(poll.structured["status"], "still_running");
    gate.open("go");
    let end = host.call("wait_turn", json!({ "turn_id": turn })).ok();
    assert_eq!(end.structured["output"], "done");
    assert_eq!(answers(&all_messages(&mut host), &pending.id), 0, "a stray answer");
}

#[test]
fn cancelling_a_wait_does_not_cancel_the_turn() {
    let world = World::new().build();
    let gate = Gate::new(&world);
    let steps = json!([gate.waits_for("go"), { "answer": { "text": "done" } }]);
    world.fake("codex", &json!({ "steps": steps }));
    let mut host = world.host();
    host.initialize();
    let turn = turn_id(&host.call("delegate_task", task(&world, "long", json!({ "wait_seconds": 0 }))).ok());
    let wait = host.call_in_background("wait_turn", json!({ "turn_id": turn }));
    host.cancel(&wait, "no longer");
    let poll = host.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 1 })).ok();
    assert_eq!(poll.structured["status"], "still_running");
    gate.open("go");
    assert_eq!(outcome(&mut host, &turn), "success");
    assert_eq!(answers(&all_messages(&mut host), &wait.id), 0, "a stray answer");
}

#[test]
fn of_two_calls_at_once_only_the_cancelled_one_ends() {
    let world = World::new().build();
    let gate = Gate::new(&world);
    world.fake(
        "codex",
        &json!({
            "rules": [
                { "when": { "contains": "first" }, "steps": [gate.says("first"), "hang"] },
                { "when": { "contains": "second" }, "steps": [gate.says("second"), gate.waits_for("go"), { "answer": { "text": "unharmed" } }] },
            ],
        }),
    );
    let mut host = world.host();
    host.initialize();
    let first = host.call_in_background("delegate_task", task(&world, "first", json!({})));
    gate.wait_for("first");
    let turn = running_turn(&mut host);
    let second = host.call_in_background("delegate_task", task(&world, "second", json!({})));
    gate.wait_for("second");
    host.cancel(&first, "not this one");
    // Twice, after its end, and for a request that never was: all without effect.
    host.cancel(&first, "again");
    assert_eq!(outcome(&mut host, &turn), "cancelled");
    host.cancel(&first, "once more");
    for id in [json!(9999), json!("no-such-request"), Value::Null] {
        host.notify("notifications/cancelled", json!({ "requestId": id }));
    }
    host.notify("notifications/cancelled", json!({}));
    gate.open("go");
    let second_id = second.id.clone();
    assert_eq!(host.finish(second).ok().structured["output"], "unharmed");
    let messages = all_messages(&mut host);
    assert_eq!((answers(&messages, &first.id), answers(&messages, &second_id)), (0, 1));
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn a_call_cancelled_before_its_turn_starts_leaves_nothing_behind() {
    let world = World::new().build();
    let gate = Gate::new(&world);
    let steps = json!([gate.says("working"), gate.waits_for("go"), { "answer": { "text": "done" } }]);
    world.fake("codex", &json!({ "counter": gate.path("runs"), "steps": steps }));
    let mut host = world.host();
    host.initialize();
    let first = host.call("delegate_task", task(&world, "long", json!({ "wait_seconds": 0 }))).ok();
    gate.wait_for("working");
    let session = first.structured["bridge_session_id"].clone();
    // The second turn of the session waits for the first one.
    let waiting =
        host.call_in_background("continue_session", json!({ "session_id": session, "prompt": "next" }));
    let supervisors = || world.processes().iter().filter(|it| it.command.contains("run-turn")).count();
    process::wait_until("the second supervisor to wait", DEADLINE, || supervisors() == 2);
    host.cancel(&waiting, "changed my mind");
    process::wait_until("the second supervisor to be gone", DEADLINE, || supervisors() == 1);
    gate.open("go");
    assert_eq!(outcome(&mut host, &turn_id(&first)), "success");
    let turns = host.call("list_turns", json!({})).ok().structured["turns"].clone();
    assert_eq!(turns.as_array().unwrap().len(), 1, "a cancelled call left a turn: {turns:#}");
    assert_eq!(answers(&all_messages(&mut host), &waiting.id), 0, "a stray answer");
    assert_eq!(gate.runs(), 1);
}

#[test]
fn a_cancel_in_the_same_breath_as_its_call_leaves_no_work_running() {
    let world = World::new().build();
    world.fake("codex", &json!({ "steps": ["hang"] }));
    let mut host = world.host();
    host.initialize();
    let call = json!({ "jsonrpc": "2.0", "id": "both", "method": "tools/call", "params": {
        "name": "delegate_task", "arguments": task(&world, "long", json!({})) } });
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "both" } });
    host.send_bytes(format!("{call}\n{cancel}\n").as_bytes());
    process::wait_until("the turn to be gone", DEADLINE, || {
        !world
            .processes()
            .iter()
            .any(|it| it.command.contains("run-turn") || it.command.contains("mock-agent"))
    });
    let running = host.call("list_turns", json!({ "state": "running" })).ok();
    assert_eq!(running.structured["turns"], json!([]));
    assert_eq!(answers(&all_messages(&mut host), &json!("both")), 0, "a stray answer");
}
