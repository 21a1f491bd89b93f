//! Work that takes longer than a host waits.

use std::time::Instant;

use super::*;

#[test]
fn a_worker_that_is_slow_to_speak_is_not_taken_for_dead() {
    let world = World::new().default("startTimeoutSec", json!(20)).build();
    world.fake(
        "codex",
        &json!({ "steps": [{ "sleep_ms": 1500 }, { "answer": { "text": "late but well" } }] }),
    );
    let mut host = world.host();
    host.initialize();
    let result = host.call("delegate_task", task(&world, "take your time", json!({}))).ok();
    assert_eq!(result.structured["output"], "late but well");
}

#[test]
fn a_worker_silent_past_its_start_deadline_is_ended_and_the_deadline_is_named() {
    let world = World::new().default("startTimeoutSec", json!(1)).build();
    world.fake("codex", &json!({ "steps": ["hang"] }));
    let mut host = world.host();
    host.initialize();
    let result = host.call("delegate_task", task(&world, "say something", json!({}))).err();
    assert_eq!(result.structured["code"], "TURN_START_DEADLINE", "{:#}", result.whole);
    assert_eq!(
        (&result.structured["outcome"], &result.structured["timed_out"]),
        (&json!("timeout"), &json!(true))
    );
    assert!(result.text.contains("start deadline"), "{}", result.text);
    drop(host);
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn an_answer_that_was_complete_before_a_deadline_ended_the_run_is_kept() {
    let world = World::new().build();
    world.fake("codex", &json!({ "steps": [{ "answer": { "text": "the verdict" } }, "hang"] }));
    let mut host = world.host();
    host.initialize();
    let result = host.call("delegate_task", task(&world, "judge", json!({ "timeout_sec": 1 })));
    assert_eq!(result.structured["output"], "the verdict", "{:#}", result.whole);
    assert!(result.text.starts_with("the verdict"), "{}", result.text);
}

#[test]
fn a_wait_ends_before_the_hosts_own_limit_and_the_work_goes_on() {
    let world = World::new().build();
    let gate = Gate::new(&world);
    world
        .fake("codex", &json!({ "steps": [gate.waits_for("go"), { "answer": { "text": "done at last" } }] }));
    let mut host = world.host();
    host.initialize();
    let asked = Instant::now();
    let early = host.call("delegate_task", task(&world, "long work", json!({ "wait_seconds": 1 }))).ok();
    assert!(asked.elapsed() < Duration::from_secs(15), "a wait of one second took {:?}", asked.elapsed());
    assert_eq!(early.structured["status"], "still_running");
    let id = turn_id(&early);
    assert!(
        early.text.contains("still_running") && early.text.contains(id.as_str().unwrap()),
        "{}",
        early.text
    );
    // The same bound for the poll.
    let poll = host.call("wait_turn", json!({ "turn_id": id, "wait_seconds": 0 })).ok();
    assert_eq!(poll.structured["status"], "still_running");
    gate.open("go");
    let end = host.call("wait_turn", json!({ "turn_id": id })).ok();
    assert_eq!(
        (&end.structured["status"], &end.structured["output"]),
        (&json!("finished"), &json!("done at last"))
    );
}

#[test]
fn the_configured_wait_holds_where_the_call_names_none() {
    let world = World::new().default("waitSeconds", json!(1)).build();
    world.fake("codex", &json!({ "steps": ["hang"] }));
    let mut host = world.host();
    host.deadline = Duration::from_secs(20);
    host.initialize();
    let early = host.call("delegate_task", task(&world, "long work", json!({}))).ok();
    assert_eq!(early.structured["status"], "still_running");
    let id = turn_id(&early);
    assert_eq!(host.call("wait_turn", json!({ "turn_id": id })).ok().structured["status"], "still_running");
}

#[test]
fn a_blocking_call_names_its_turn_in_progress_before_the_reply() {
    let world = World::new().build();
    let gate = Gate::new(&world);
    world.fake("codex", &json!({ "steps": [gate.waits_for("go"), { "answer": { "text": "ok" } }] }));
    let mut host = world.host();
    host.initialize();
    let pending = host.call_with_progress("delegate_task", task(&world, "work", json!({})), "p");
    let first = host.notification("notifications/progress");
    gate.open("go");
    let id = turn_id(&host.finish(pending).ok());
    let message = first["message"].as_str().unwrap_or_default();
    assert!(message.contains(id.as_str().unwrap()), "progress does not name the turn {id}: {first}");
}

#[test]
fn progress_shows_the_elapsed_time_and_only_grows() {
    let world = World::new().build();
    let gate = Gate::new(&world);
    let beat = json!({ "event": { "type": "item.completed", "item": { "id": "i", "type": "reasoning", "text": "thinking" } } });
    world.fake("codex", &json!({ "steps": [beat, gate.waits_for("go"), { "answer": {} }] }));
    let mut host = world.host();
    host.initialize();
    let pending = host.call_with_progress("delegate_task", task(&world, "work", json!({})), "p");
    let mut last = -1.0;
    while last < 1.0 {
        let note = host.notification("notifications/progress");
        let now = note["progress"].as_f64().unwrap();
        assert!(now > last, "progress went from {last} to {now}");
        let seconds = format!("{} s", now.floor());
        assert!(note["message"].as_str().unwrap().contains(&seconds), "no elapsed time: {note}");
        last = now;
    }
    gate.open("go");
    let _ = host.finish(pending).ok();
}

#[test]
fn progress_of_a_turn_of_another_server_counts_from_its_start() {
    let world = World::new().build();
    world.fake("codex", &json!({ "steps": ["hang"] }));
    let mut first = world.host();
    first.initialize();
    let id = turn_id(&first.call("delegate_task", task(&world, "work", json!({ "wait_seconds": 2 }))).ok());
    let mut second = world.host();
    second.initialize();
    let _pending = second.call_with_progress("wait_turn", json!({ "turn_id": id }), "p");
    let elapsed = second.notification("notifications/progress")["progress"].as_f64().unwrap();
    assert!(elapsed >= 2.0, "a turn that has run for two seconds is shown as {elapsed} s old");
}

#[test]
fn signs_of_life_do_not_keep_a_run_alive_past_its_hard_deadline() {
    // The configured deadline, and the call's own.
    for (configured, asked) in [(json!(1), json!({})), (json!(600), json!({ "timeout_sec": 1 }))] {
        let world = World::new().default("timeoutSec", configured).build();
        let beat = json!({ "event": { "type": "item.completed", "item": { "id": "i", "type": "reasoning", "text": "still here" } } });
        let steps = json!([{ "repeat": { "times": 10_000, "steps": [beat, { "sleep_ms": 50 }] } }]);
        world.fake("codex", &json!({ "steps": steps }));
        let mut host = world.host();
        host.initialize();
        let result = host.call("delegate_task", task(&world, "for ever", asked)).err();
        assert_eq!(result.structured["code"], "TURN_RUN_DEADLINE", "{:#}", result.whole);
        drop(host);
        world.assert_no_process_left(DEADLINE);
    }
}

#[test]
fn no_call_gets_more_time_than_the_ceiling() {
    let world = World::new().build();
    world.fake("codex", &json!({}));
    let mut host = world.host();
    host.initialize();
    for (name, value) in [("timeout_sec", 7201), ("timeout_sec", 0), ("wait_seconds", 7201)] {
        let result = host.call("delegate_task", task(&world, "x", json!({ name: value }))).err();
        assert_eq!(result.structured["error"]["code"], "INVALID_ARGUMENT", "{name} {value}");
        assert!(result.text.contains(name), "{}", result.text);
    }
}
