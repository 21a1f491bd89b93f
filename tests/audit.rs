//! The audit trail as an operator sees it: what is in it, and whether somebody touched it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::prelude::*;

/// A world in which a turn was run and is on record.
fn world_with_a_turn() -> World {
    let world = World::new().agent("codex", json!({ "enabled": true })).build();
    world.fake("codex", &json!({ "steps": [{ "answer": { "text": "Done." } }] }));
    world
        .bridge(["delegate", "codex", "the secret plan", "--cwd", world.repo().to_str().unwrap()])
        .expect_code(0);
    world
}

fn listed(world: &World, more: &[&str]) -> Value {
    world.bridge(["audit", "list", "--json"].iter().chain(more)).expect_code(0).json()
}

fn verified(world: &World, code: i32, more: &[&str]) -> Value {
    world.bridge(["audit", "verify", "--json"].iter().chain(more)).expect_code(code).json()
}

fn tamper(world: &World, sql: &str) {
    let database = rusqlite::Connection::open(world.state().join("bridge.sqlite3")).unwrap();
    database.execute_batch(sql).unwrap();
}

#[test]
fn a_turn_leaves_its_beginning_and_its_end_and_not_a_word_of_its_prompt() {
    let world = world_with_a_turn();
    let document = listed(&world, &[]);
    assert_eq!(
        (document["schema"].as_str(), document["kind"].as_str()),
        (Some("agent-bridge/audit/1"), Some("audit"))
    );
    let records = document["records"].as_array().unwrap();
    let kinds: Vec<&str> = records.iter().filter_map(|record| record["kind"].as_str()).collect();
    assert_eq!(kinds, ["turn-finished", "turn-began"], "newest first");
    assert!(records.iter().all(|record| record["hash"].as_str().unwrap().len() == 64), "{document:#}");
    assert!(!document.to_string().contains("secret plan"), "{document:#}");
    let turn = records[0]["turn"].as_str().unwrap();
    assert_eq!(
        listed(&world, &["--turn", turn, "--kind", "turn-began"])["records"].as_array().unwrap().len(),
        1
    );
    let page = listed(&world, &["--limit", "1"]);
    let rest = listed(&world, &["--before", page["next"].as_str().unwrap()]);
    assert_eq!((&page["records"][0], &rest["records"][0]), (&records[0], &records[1]));
    let table = world.bridge(["audit", "list"]).expect_code(0);
    assert!(table.stdout().contains("turn-began") && table.stdout().contains("RECORD"), "{table}");
}

#[test]
fn a_whole_trail_is_said_to_be_whole_and_a_touched_one_ends_with_code_3() {
    let world = world_with_a_turn();
    let whole = verified(&world, 0, &[]);
    assert_eq!(
        (&whole["holds"], &whole["records"], &whole["broken"]),
        (&json!(true), &json!(2), &Value::Null)
    );
    let noted = whole["head"].as_str().unwrap();
    assert_eq!(verified(&world, 0, &["--noted", noted])["found"], true);
    assert_eq!(verified(&world, 3, &["--noted", &"0".repeat(64)])["found"], false);
    let said = world.bridge(["audit", "verify"]).expect_code(0);
    assert!(said.stdout().starts_with("whole: 2 records") && said.stdout().contains(noted), "{said}");

    tamper(&world, "UPDATE audit SET at = at + 1 WHERE id = 1");
    let broken = verified(&world, 3, &[]);
    assert_eq!((&broken["holds"], &broken["broken"]["id"]), (&json!(false), &json!(1)));
    let said = world.bridge(["audit", "verify"]).expect_code(3);
    assert!(said.stdout().starts_with("broken: record 1:"), "{said}");
}

#[test]
fn nothing_yet_is_a_whole_trail_and_looking_makes_nothing() {
    let world = World::new().build();
    assert_eq!(listed(&world, &[])["records"], json!([]));
    assert_eq!(verified(&world, 0, &[])["records"], 0);
    assert!(!world.state().join("bridge.sqlite3").exists());
}
