//! The real Codex as a worker of the real bridge, against a scripted model on loopback.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::prelude::*;
use support::worker::{self, Cli, Worker};

const CODEX: Cli = Cli::Codex;

#[test]
fn a_fresh_turn_is_one_question_and_its_answer() {
    worker::a_fresh_turn_is_one_question_and_its_answer(CODEX);
}

#[test]
fn a_resumed_turn_is_the_same_conversation() {
    worker::a_resumed_turn_is_the_same_conversation(CODEX);
}

#[test]
fn a_read_only_turn_writes_nothing() {
    worker::a_read_only_turn_writes_nothing(CODEX);
}

#[test]
fn a_workspace_write_turn_writes_inside_and_not_outside() {
    worker::a_workspace_write_turn_writes_inside_and_not_outside(CODEX);
}

#[test]
fn authority_is_not_inherited_from_an_earlier_turn() {
    worker::authority_is_not_inherited_from_an_earlier_turn(CODEX);
}

#[test]
fn an_error_of_the_model_becomes_its_outcome() {
    worker::an_error_of_the_model_becomes_its_outcome(CODEX);
}

#[test]
fn a_turn_whose_model_hangs_can_be_cancelled() {
    worker::a_turn_whose_model_hangs_can_be_cancelled(CODEX);
}

#[test]
fn a_cancelled_turn_takes_its_confined_commands_with_it() {
    let command = "setsid sleep 6001 & sleep 6002";
    let markers = ["sleep 6001", "sleep 6002"];
    worker::a_cancelled_turn_takes_its_commands_with_it(CODEX, "workspace-write", command, &markers);
}

/// Nothing but the bridge ends these: unconfined commands survive the end of Codex.
#[test]
fn a_cancelled_turn_takes_its_unconfined_commands_with_it() {
    let command = "setsid sleep 6003 & (setsid setsid sleep 6004 >/dev/null 2>&1 &) ; sleep 6005";
    let markers = ["sleep 6003", "sleep 6004", "sleep 6005"];
    worker::a_cancelled_turn_takes_its_commands_with_it(CODEX, "full-access", command, &markers);
}

#[test]
fn any_prompt_arrives_whole() {
    worker::any_prompt_arrives_whole(CODEX);
}

#[test]
fn a_model_that_cannot_be_reached_ends_the_turn() {
    worker::a_model_that_cannot_be_reached_ends_the_turn(CODEX);
}

/// Codex by itself waits for the network without end; the adapter switches that off.
#[test]
fn the_adapter_itself_ends_the_endless_wait_for_the_network() {
    let world = World::new().build();
    let Some(mut worker) = Worker::start(CODEX, world, |_| Script::new()) else { return };
    let mut section = worker.world.config()["agents"]["codex"].clone();
    let arguments: Vec<String> = serde_json::from_value(section["extraArgs"].clone()).unwrap();
    let kept: Vec<&[String]> =
        arguments.chunks(2).filter(|pair| !pair[1].contains("unbounded_connection_retries")).collect();
    assert_eq!(kept.len() + 1, arguments.len() / 2, "{arguments:?}");
    section["extraArgs"] = json!(kept.concat());
    worker.world.set_agent("codex", section);
    worker.host.hang_up();
    worker.host.wait_exit(DEADLINE).expect_code(0);
    worker.host = worker.world.host();
    worker.host.initialize();
    // The port of the first mock is closed.
    worker.model = MockModel::start(Script::new());
    let turn = worker.delegate("scenario:hello", json!({ "timeout_sec": 50 })).err();
    assert_eq!(turn.structured["outcome"], "worker-error", "{:#}", turn.structured);
    worker.end();
}

#[test]
fn a_model_that_never_answers_ends_at_our_deadline() {
    worker::a_model_that_never_answers_ends_at_our_deadline(CODEX);
}

#[test]
fn its_version_and_login_are_listed() {
    let Some(health) = worker::health(CODEX, |_| ()) else { return };
    assert_eq!(health["binary"]["version"], worker::pinned_version("@openai/codex"), "{health:#}");
    assert_eq!((&health["auth"]["status"], &health["usable"]), (&json!("authenticated"), &json!(true)));
    assert!(!health.to_string().contains(real::KEY), "{health:#}");
}

#[test]
fn a_missing_login_is_listed_with_the_command_that_mends_it() {
    let logged_out = |world: &World| std::fs::remove_file(world.home().join(".codex/auth.json")).unwrap();
    let Some(health) = worker::health(CODEX, logged_out) else { return };
    assert_eq!((&health["binary"]["ok"], &health["usable"]), (&json!(true), &json!(false)), "{health:#}");
    let login = [&health["auth"]["status"], &health["auth"]["loginCommand"]];
    assert_eq!(login, [&json!("unauthenticated"), &json!("codex login")], "{health:#}");
}
