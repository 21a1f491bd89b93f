//! `rehearse`: the throwaway life of two releases, with kills that land where they are meant to, on both sides of the
//! commit.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;

use agent_bridge::release::{Layout, journal, pointer};
use support::prelude::*;
use support::release::tree;

/// An installation with a current release and a candidate, and where the record goes.
fn installation() -> (ReleaseWorld, String, String, PathBuf) {
    let at = ReleaseWorld::new();
    let config = json!({ "allowedRoots": [at.repo()], "stateDir": at.state() });
    std::fs::write(at.layout().config(), format!("{config:#}\n")).unwrap();
    let program = |sha: &str| Release::of_bridge(env!("CARGO_PKG_VERSION")).git_sha(&sha.repeat(40));
    let prior = at.place(&program("a"));
    at.make_current(&prior);
    let candidate = at.place(&program("b"));
    let evidence = at.path().join("evidence");
    (at, prior, candidate, evidence)
}

fn rehearse(at: &ReleaseWorld, candidate: &str, evidence: &std::path::Path, more: &[&str]) -> Finished {
    let mut command = at.bridge_command(["rehearse", candidate, "--evidence-dir"]);
    command.arg(evidence).args(more);
    process::run(command, Duration::from_secs(180))
}

#[test]
fn every_place_of_a_switch_is_one_where_a_kill_landed() {
    let (at, prior, candidate, evidence) = installation();
    let before = tree(at.root());
    // More than there are places, so each has one.
    let done = rehearse(&at, &candidate, &evidence, &["--kills", "14", "--json"]).expect_code(0);
    let record = done.json();
    assert_eq!(record["status"], "pass", "{record:#}");
    let kills = &record["kills"];
    let texts = |list: &Value, key: Option<&str>| -> Vec<String> {
        let text = |one: &Value| key.map_or(one, |key| &one[key]).as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(text).collect()
    };
    let places = texts(&kills["places"], None);
    for place in
        ["maintenance", "rescan", "config", "replacing", "probe", "decided", "before-commit", "after-commit"]
    {
        assert!(places.iter().any(|known| known == place), "{place} is no place: {places:?}");
    }
    let landed: BTreeSet<String> = texts(&kills["landed"], Some("place")).into_iter().collect();
    assert_eq!(landed, places.iter().cloned().collect(), "a place without a kill");
    let commit = places.iter().position(|place| place == "after-commit").unwrap();
    for one in kills["landed"].as_array().unwrap() {
        let is_after = places.iter().position(|place| one["place"] == place.as_str()).unwrap() >= commit;
        assert_eq!(one["afterCommit"], is_after, "{one}");
        assert_eq!(one["outcome"], if is_after { "completed" } else { "undone" }, "{one}");
    }
    let count = |key: &str| kills[key].as_u64().unwrap();
    assert_eq!((count("attempted"), count("cutOff")), (14, 14));
    assert_eq!(count("beforeCommit") + count("afterCommit"), 14);
    assert_eq!((count("undone"), count("completed")), (count("beforeCommit"), count("afterCommit")));
    assert!(count("beforeCommit") > 0 && count("afterCommit") > 0);
    // The journal of the stage tells the same.
    let stage = Layout::at(record["stage"].as_str().unwrap());
    let all = journal::verify_all(&stage).unwrap();
    let undone = all.iter().filter(|one| one.outcome() == Some(journal::Outcome::Undone)).count();
    assert_eq!(undone as u64, count("undone"));
    assert!(all.iter().all(|one| one.outcome().is_some()), "something is unfinished");
    let current = pointer::current(&stage).unwrap().release_id;
    assert!([prior, candidate].contains(&current.to_string()));
    assert!(tree(at.root()) == before, "the live installation was changed");
    let on_disk: Value =
        serde_json::from_slice(&std::fs::read(evidence.join("rehearsal.json")).unwrap()).unwrap();
    assert_eq!(on_disk["kills"], *kills);
}

#[test]
fn two_kills_are_enough_for_both_sides_and_fewer_are_no_rehearsal() {
    let (at, _, candidate, evidence) = installation();
    for few in ["0", "1"] {
        rehearse(&at, &candidate, &evidence, &["--kills", few]).expect_code(64);
        assert!(!evidence.exists());
    }
    let done = rehearse(&at, &candidate, &evidence, &["--kills", "2", "--seed", "7"]).expect_code(0);
    let text = done.stdout();
    assert!(text.contains("1 before the commit (1 undone), 1 after it (1 completed), 0 too late"), "{text}");
    assert!(text.contains("Verdict: pass"), "{text}");
    assert!(done.stderr().is_empty(), "a script gets no progress: {done}");
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_it_is_seen_how_far_it_is() {
    let (at, _, candidate, evidence) = installation();
    let Some(script) = support::world::find_program("script") else { return };
    let call = format!("'{BRIDGE}' rehearse {candidate} --kills 2 --evidence-dir '{}'", evidence.display());
    let mut terminal = at.command(script);
    terminal.env("TERM", "xterm").args(["--quiet", "--return", "--command", &call, "/dev/null"]);
    let done = process::run(terminal, Duration::from_secs(180)).expect_code(0);
    for step in ["install the candidate", "rollback", "kill at ", "12"] {
        assert!(done.stdout().contains(step), "{step}: {done}");
    }
}

#[test]
fn what_fails_has_a_code_of_its_own_and_a_record() {
    let (at, prior, _, evidence) = installation();
    let failed = rehearse(&at, &prior, &evidence, &["--json"]).expect_code(3).json();
    assert_eq!(failed["failure"]["code"], "RELEASE_REHEARSAL_FAILED", "{failed:#}");
    assert!(evidence.join("rehearsal.json").is_file());
    assert_eq!(failed["kills"]["attempted"], 0);
    let nowhere = at.path().join("nowhere");
    let refused = rehearse(&at, "9.9.9+0123456", &nowhere, &[]).expect_code(2);
    assert!(refused.stderr().contains("RELEASE_NOT_INSTALLED"), "{refused}");
    assert!(!nowhere.exists(), "refused before anything was made");
}

/// The command that stops in the middle of a switch.
fn switch(at: &ReleaseWorld, root: &std::path::Path, to: &str, place: &str) -> std::process::Command {
    let staged = at.path().join("staged.json");
    std::fs::copy(root.join("config.json"), &staged).unwrap();
    let mut command = at.bridge_command(["rehearse-switch", to, "--stop-at", place, "--stage-config"]);
    command.arg(staged).arg("--root").arg(root);
    command
}

#[test]
fn a_switch_that_stops_is_played_on_a_stage_only() {
    let (at, _, candidate, _) = installation();
    let before = tree(at.root());
    let refused = process::run(switch(&at, at.root(), &candidate, "probe"), DEADLINE).expect_code(2);
    assert!(refused.stderr().contains("RELEASE_REHEARSAL_NO_STAGE"), "{refused}");
    assert!(tree(at.root()) == before, "the live installation was changed");
}

/// A rehearsal that is killed itself must leave no process that waits for ever behind a closed gate.
#[test]
fn a_switch_that_nobody_kills_any_more_undoes_or_completes_itself() {
    let (at, prior, candidate, evidence) = installation();
    rehearse(&at, &candidate, &evidence, &["--kills", "2"]).expect_code(0);
    let stage = Layout::at(evidence.join("stage"));
    for (place, code) in [("decided", 2), ("after-commit", 0)] {
        let current = pointer::current(&stage).unwrap();
        let to = if current.release_id.as_str() == prior { &candidate } else { &prior };
        let mut command = switch(&at, stage.root(), to, place);
        command.stdin(Stdio::null());
        let ended = process::run(command, DEADLINE).expect_code(code);
        assert_eq!(ended.stdout().trim(), place, "{ended}");
        let after = pointer::current(&stage).unwrap();
        assert_eq!(after.generation, current.generation + u64::from(code == 0));
        assert!(journal::unfinished(&stage).unwrap().is_none());
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_with_a_record_and_leaves_no_process() {
    let (at, _, candidate, evidence) = installation();
    let mut command = at.bridge_command(["rehearse", &candidate, "--kills", "1000", "--evidence-dir"]);
    command.arg(&evidence);
    let running = process::start(command);
    let stage = Layout::at(evidence.join("stage"));
    process::wait_until("the first kills", Duration::from_secs(120), || {
        journal::transactions(&stage).is_ok_and(|all| all.len() > 8)
    });
    running.signal(Signal::Terminate);
    let ended = running.finish(Duration::from_secs(120)).expect_code(3);
    assert!(ended.stderr().contains("RELEASE_INTERRUPTED"), "{ended}");
    let record: Value =
        serde_json::from_slice(&std::fs::read(evidence.join("rehearsal.json")).unwrap()).unwrap();
    assert_eq!(record["status"], "fail");
    at.assert_no_process_left(DEADLINE);
}
