//! Several processes and threads on one state folder, and processes that die.
//!
//! The children are this very test program, told by the environment to play one part.

use std::process::{Command, Output, Stdio};
use std::sync::Barrier;

use super::*;

const PART: &str = "AGENT_BRIDGE_STORE_TEST_PART";
const FOLDER: &str = "AGENT_BRIDGE_STORE_TEST_FOLDER";
const SESSION: &str = "AGENT_BRIDGE_STORE_TEST_SESSION";

fn child(part: &str, folder: &TempDir, session: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "store::tests::processes::plays_its_part", "--nocapture"])
        .env(PART, part)
        .env(FOLDER, folder.path())
        .env(SESSION, session)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs children at the same time and returns what each said.
fn race(part: &str, folder: &TempDir, session: &str, count: usize) -> Vec<String> {
    let children: Vec<_> = (0..count).map(|_| child(part, folder, session).spawn().unwrap()).collect();
    children.into_iter().map(|child| said(&child.wait_with_output().unwrap())).collect()
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .find_map(|line| line.split_once("SAID "))
        .map(|(_, said)| said.to_owned())
        .unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Does nothing unless started by one of the tests below.
#[test]
#[allow(clippy::print_stdout, reason = "the parent test reads it")]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let session_id = std::env::var(SESSION).unwrap();
    let store = Store::open(&folder, Clock::System).unwrap();
    let turn = match part.as_str() {
        "key" => NewTurn { idempotency_key: Some("key".into()), ..first_turn() },
        "join" => NewTurn { session_id, new_session: false, expected_revision: 1, ..first_turn() },
        _ => NewTurn { session_id, ..first_turn() },
    };
    let result = begin(&store, &turn);
    match part.as_str() {
        "die" => {
            store.set_activity(&turn.id, "about to die").unwrap();
            result.unwrap();
            std::process::abort();
        }
        _ => println!(
            "SAID {}",
            match result {
                Ok(Begin::Started { .. }) => "started",
                Ok(Begin::Same(_)) => "same",
                Err(error) => error.doc().code,
            }
        ),
    }
}

#[test]
fn one_process_wins_a_session() {
    let (folder, store) = store();
    let first = first_turn();
    begin(&store, &first).unwrap();
    store.finish_turn(&first.id, &success(), None).unwrap();
    let mut said = race("join", &folder, &first.session_id, 4);
    said.sort();
    assert_eq!(said, ["SESSION_BUSY", "SESSION_BUSY", "SESSION_BUSY", "started"]);
    assert_eq!(store.session(&first.session_id).unwrap().turns, 2);
}

#[test]
fn one_key_is_one_turn_over_processes_that_all_make_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let mut said = race("key", &folder, "", 4);
    said.sort();
    assert_eq!(said, ["same", "same", "same", "started"]);
    let store = Store::open(folder.path(), Clock::System).unwrap();
    assert_eq!(store.counts().unwrap().turns, 1);
}

#[test]
fn a_process_that_dies_leaves_a_running_row_that_can_be_marked() {
    let folder = tempfile::tempdir().unwrap();
    let session = id();
    let output = child("die", &folder, &session).output().unwrap();
    assert!(!output.status.success());
    // A reader sees it without repairing anything.
    let reader = Store::open_read_only(folder.path(), Clock::System).unwrap().unwrap();
    assert_eq!(reader.running_turns().unwrap().rows.len(), 1);
    let store = Store::open(folder.path(), Clock::System).unwrap();
    let running = store.running_turns().unwrap().rows.remove(0);
    assert_eq!(running.activity.as_deref(), Some("about to die"));
    assert!(store.mark_interrupted(&running.id).unwrap());
    assert_eq!(store.session(&session).unwrap().revision, 1);
}

#[test]
fn threads_with_stores_of_their_own_take_turns() {
    let (folder, store) = store();
    let first = first_turn();
    begin(&store, &first).unwrap();
    store.finish_turn(&first.id, &success(), None).unwrap();
    let barrier = Barrier::new(4);
    let started: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let store = Store::open(folder.path(), Clock::Fixed(NOW)).unwrap();
                    barrier.wait();
                    // Each wants three turns and asks again with the newest revision.
                    let mut started = 0;
                    while started < 3 {
                        let revision = store.session(&first.session_id).unwrap().revision;
                        let turn = next_turn(&first, revision);
                        match begin(&store, &turn) {
                            Ok(_) => {
                                store.finish_turn(&turn.id, &success(), None).unwrap();
                                started += 1;
                            }
                            Err(StoreError::SessionBusy { .. } | StoreError::RevisionMismatch { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                    started
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(started, 12);
    let session = store.session(&first.session_id).unwrap();
    assert_eq!((session.revision, session.turns), (13, 13));
    let indexes: Vec<u64> =
        store.turns(&first.session_id, 0, 100).unwrap().rows.iter().map(|row| row.index).collect();
    assert_eq!(indexes, (0..13).collect::<Vec<_>>());
}

#[test]
fn one_store_serves_many_threads() {
    let (_folder, store) = store();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let turn = first_turn();
                    begin(&store, &turn).unwrap();
                    store.set_activity(&turn.id, "busy").unwrap();
                    store.finish_turn(&turn.id, &success(), None).unwrap();
                }
            });
        }
    });
    let counts = store.counts().unwrap();
    assert_eq!((counts.sessions, counts.turns, counts.running), (20, 20, 0));
}
