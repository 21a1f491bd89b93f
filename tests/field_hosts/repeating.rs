//! Calls that are sent again: after a timeout of the host, by a second copy of the server, by mistake.

use super::*;

/// A fake that counts its runs, says `working` and waits for `go`.
fn counting() -> (World, Gate) {
    let world = World::new().build();
    let gate = Gate::new(&world);
    let steps = json!([gate.says("working"), gate.waits_for("go"), { "answer": { "text": "done" } }]);
    world.fake("codex", &json!({ "counter": gate.path("runs"), "steps": steps }));
    (world, gate)
}

#[test]
fn the_same_idempotency_key_runs_the_work_once() {
    let (world, gate) = counting();
    let mut host = world.host();
    host.initialize();
    let arguments = task(&world, "pay the bill", json!({ "idempotency_key": "k", "wait_seconds": 0 }));
    let first = turn_id(&host.call("delegate_task", arguments.clone()).ok());
    gate.wait_for("working");
    // While it runs, after its end, and after a restart of the server.
    assert_eq!(turn_id(&host.call("delegate_task", arguments.clone()).ok()), first);
    gate.open("go");
    assert_eq!(outcome(&mut host, &first), "success");
    let again = host.call("delegate_task", arguments.clone()).ok();
    assert_eq!((turn_id(&again), &again.structured["output"]), (first.clone(), &json!("done")));
    assert!(
        again.text.contains("nothing was started"),
        "a repeat does not say that it is one: {}",
        again.text
    );
    drop(host);
    let mut host = world.host();
    host.initialize();
    assert_eq!(turn_id(&host.call("delegate_task", arguments).ok()), first);
    assert_eq!(gate.runs(), 1);
}

#[test]
fn a_key_with_another_body_is_refused() {
    let (world, gate) = counting();
    gate.open("go");
    let mut host = world.host();
    host.initialize();
    let first = host.call("delegate_task", task(&world, "one", json!({ "idempotency_key": "k" }))).ok();
    for changed in [
        task(&world, "two", json!({ "idempotency_key": "k" })),
        task(&world, "one", json!({ "idempotency_key": "k", "model": "other" })),
        task(
            &world,
            "one",
            json!({ "idempotency_key": "k", "session_id": first.structured["bridge_session_id"] }),
        ),
    ] {
        let refused = host.call("delegate_task", changed).err();
        let error = &refused.structured["error"];
        assert_eq!(error["code"], "IDEMPOTENCY_CONFLICT");
        assert_eq!(error["details"]["turn_id"], turn_id(&first), "which turn has the key: {error}");
    }
    assert_eq!(gate.runs(), 1);
}

#[test]
fn one_key_at_two_servers_at_once_runs_the_work_once() {
    let (world, gate) = counting();
    let mut hosts: Vec<Host> = (0..2).map(|_| world.host()).collect();
    let arguments = task(&world, "pay the bill", json!({ "idempotency_key": "k", "wait_seconds": 0 }));
    for host in &mut hosts {
        host.initialize();
    }
    let calls: Vec<Pending> =
        hosts.iter_mut().map(|host| host.call_in_background("delegate_task", arguments.clone())).collect();
    let ids: Vec<Value> =
        hosts.iter_mut().zip(calls).map(|(host, call)| turn_id(&host.finish(call).ok())).collect();
    assert_eq!(ids[0], ids[1]);
    gate.open("go");
    for host in &mut hosts {
        assert_eq!(outcome(host, &ids[0]), "success");
    }
    assert_eq!(gate.runs(), 1);
}

#[test]
fn repeated_follow_ups_join_the_turn_that_is_busy_with_them() {
    let world = World::new().config("sessionLockWaitMs", json!(10_000)).build();
    let gate = Gate::new(&world);
    let slow = json!([gate.says("working"), gate.waits_for("go"), { "answer": { "text": "done" } }]);
    world.fake(
        "codex",
        &json!({ "counter": gate.path("runs"), "rules": [{ "when": { "resumed": true }, "steps": slow }] }),
    );
    let mut hosts: Vec<Host> = (0..2).map(|_| world.host()).collect();
    for host in &mut hosts {
        host.initialize();
    }
    let session =
        hosts[0].call("delegate_task", task(&world, "begin", json!({}))).ok().structured["bridge_session_id"]
            .clone();
    let arguments =
        json!({ "session_id": session, "prompt": "go on", "idempotency_key": "k", "wait_seconds": 0 });
    // Two from each server, all at once.
    let mut calls = Vec::new();
    for _ in 0..2 {
        for (at, host) in hosts.iter_mut().enumerate() {
            calls.push((at, host.call_in_background("continue_session", arguments.clone())));
        }
    }
    let ids: Vec<Value> = calls.into_iter().map(|(at, call)| turn_id(&hosts[at].finish(call).ok())).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    gate.open("go");
    assert_eq!(outcome(&mut hosts[1], &ids[0]), "success");
    assert_eq!(gate.runs(), 2, "one for the first turn, one for the follow-up");
}

#[test]
fn without_a_key_the_same_task_is_new_work() {
    let (world, gate) = counting();
    gate.open("go");
    let mut host = world.host();
    host.initialize();
    let ids: Vec<Value> =
        (0..2).map(|_| turn_id(&host.call("delegate_task", task(&world, "same", json!({}))).ok())).collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(gate.runs(), 2);
}
