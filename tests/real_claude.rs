//! The real Claude Code as a worker of the real bridge, against a scripted model on loopback.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::prelude::*;
use support::worker::{self, Cli};

const CLAUDE: Cli = Cli::Claude;

#[test]
fn a_fresh_turn_is_one_question_and_its_answer() {
    worker::a_fresh_turn_is_one_question_and_its_answer(CLAUDE);
}

#[test]
fn a_resumed_turn_is_the_same_conversation() {
    worker::a_resumed_turn_is_the_same_conversation(CLAUDE);
}

#[test]
fn a_read_only_turn_writes_nothing() {
    worker::a_read_only_turn_writes_nothing(CLAUDE);
}

#[test]
fn a_workspace_write_turn_writes_inside_and_not_outside() {
    worker::a_workspace_write_turn_writes_inside_and_not_outside(CLAUDE);
}

#[test]
fn authority_is_not_inherited_from_an_earlier_turn() {
    worker::authority_is_not_inherited_from_an_earlier_turn(CLAUDE);
}

#[test]
fn an_error_of_the_model_becomes_its_outcome() {
    worker::an_error_of_the_model_becomes_its_outcome(CLAUDE);
}

#[test]
fn a_turn_whose_model_hangs_can_be_cancelled() {
    worker::a_turn_whose_model_hangs_can_be_cancelled(CLAUDE);
}

/// A command that Claude Code lets through without asking, in a session of its own.
#[test]
fn a_cancelled_turn_takes_its_commands_with_it() {
    let (command, markers) = ("tail -f README.md", ["tail -f README.md"]);
    worker::a_cancelled_turn_takes_its_commands_with_it(CLAUDE, "workspace-write", command, &markers);
}

#[test]
fn any_prompt_arrives_whole() {
    worker::any_prompt_arrives_whole(CLAUDE);
}

#[test]
fn a_model_that_cannot_be_reached_ends_the_turn() {
    worker::a_model_that_cannot_be_reached_ends_the_turn(CLAUDE);
}

#[test]
fn a_model_that_never_answers_ends_at_our_deadline() {
    worker::a_model_that_never_answers_ends_at_our_deadline(CLAUDE);
}

#[test]
fn its_version_and_login_are_listed() {
    let Some(health) = worker::health(CLAUDE, |_| ()) else { return };
    assert_eq!(
        health["binary"]["version"],
        worker::pinned_version("@anthropic-ai/claude-code"),
        "{health:#}"
    );
    assert_eq!((&health["auth"]["status"], &health["usable"]), (&json!("authenticated"), &json!(true)));
    assert!(!health.to_string().contains(real::KEY), "{health:#}");
}

#[test]
fn a_missing_login_is_listed_with_the_command_that_mends_it() {
    let logged_out = |world: &World| {
        let mut section = world.config()["agents"]["claude"].clone();
        section["extraEnv"].as_object_mut().unwrap().remove("ANTHROPIC_API_KEY");
        world.set_agent("claude", section);
        std::fs::remove_file(world.home().join(".claude/settings.json")).unwrap();
    };
    let Some(health) = worker::health(CLAUDE, logged_out) else { return };
    assert_eq!((&health["binary"]["ok"], &health["usable"]), (&json!(true), &json!(false)), "{health:#}");
    let login = [&health["auth"]["status"], &health["auth"]["loginCommand"]];
    assert_eq!(login, [&json!("unauthenticated"), &json!("claude auth login")], "{health:#}");
}
