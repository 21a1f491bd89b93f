//! A run folder is private, holds what was planned, and is gone when anybody can hear of the run's end.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::symlink;

use super::super::companion::tests::{ANSWER, Run, TOKEN};
use super::super::reconcile;
use super::*;
use crate::agents::{KeptFolder, LoginCopy, Outcome, PlannedFile};
use crate::store::{Attempt, BlobKind, TurnRow};

/// A run whose folder holds these files, by name and content.
fn run_with(script: &str, files: &[(&str, &str, bool)]) -> (Run, PathBuf) {
    let mut run = Run::new(script);
    let folder = run_dir(&run.spec.state_dir, &run.spec.turn.id).unwrap();
    let file = |(name, content, holds_token): &(&str, &str, bool)| PlannedFile {
        path: folder.join(name),
        content: (*content).to_owned(),
        holds_token: *holds_token,
        inherits: Vec::new(),
    };
    let files = files.iter().map(file).collect();
    run.spec.launch.env.insert("RUN_DIR".into(), folder.to_str().unwrap().to_owned());
    run.spec.launch.private = Some(PrivateFiles { files, ..PrivateFiles::default() });
    (run, folder)
}

fn answer(run: &Run, row: &TurnRow) -> String {
    run.store().blobs().read_page(&row.id, BlobKind::Answer, 0, 1000).unwrap().text
}

/// The start of a shell script that sets `$*` to what it finds out about its run folder.
fn looks(commands: &str) -> String {
    let look = format!("set -- $(cd \"$RUN_DIR\"; {commands})\n");
    format!("{look}{}", ANSWER.replace("|$NO_PROXY|$AGENT_BRIDGE_SCOPE", ""))
}

#[test]
fn the_worker_finds_its_files_and_nobody_else_can_read_them() {
    let (mut run, folder) =
        run_with("", &[("a.json", "plain", false), ("deep/er/b", "x${AGENT_BRIDGE_SCOPE}y", true)]);
    let script = looks("stat -c %a . a.json deep deep/er/b; cat a.json; echo; wc -c < deep/er/b");
    run.spec.launch.args[1] = script;
    let row = run.go();
    assert_eq!(
        answer(&run, &row).split(" --endpoint").next().unwrap(),
        format!("700 600 700 600 plain {}", TOKEN.len() + 2)
    );
    assert!(!folder.exists());
    assert_eq!(fs::read_dir(folder.parent().unwrap()).unwrap().count(), 0);
}

#[test]
fn a_run_that_wants_none_gets_none() {
    let run = Run::new(ANSWER);
    run.go();
    assert!(!run.spec.state_dir.join("runs").exists());
}

#[test]
fn nothing_is_written_outside_of_it_and_nothing_is_started() {
    for name in ["../b", "/tmp/b", "a/../../b", ""] {
        let (run, folder) = run_with("touch started", &[(name, "x", false)]);
        let row = run.go();
        let end = row.end.unwrap();
        assert_eq!(end.code.as_deref(), Some("SUPERVISOR_FAILED"), "{name}");
        assert!(!run.spec.turn.cwd.join("started").exists());
        assert!(!folder.exists() && !folder.with_file_name("b").exists(), "{name}");
    }
}

#[test]
fn it_goes_with_all_that_the_worker_made_of_it() {
    let (mut run, folder) = run_with("", &[]);
    let outside = run.world.at("work").join("kept");
    fs::write(&outside, "kept").unwrap();
    let make = format!(
        "mkdir -p sealed/deep; ln -s \"{}\" link; touch sealed/deep/file; chmod 500 sealed/deep sealed; echo made",
        outside.display()
    );
    run.spec.launch.args[1] = looks(&make);
    let row = run.go();
    assert_eq!(row.end.unwrap().outcome, Outcome::Success);
    assert!(!folder.exists() && outside.exists());
}

#[test]
fn a_login_is_copied_if_there_is_one() {
    let (mut run, folder) = run_with("", &[]);
    let home = run.world.context.home.clone().unwrap();
    fs::create_dir_all(home.join(".cli")).unwrap();
    fs::write(home.join(".cli/login.json"), "secret").unwrap();
    let copy = |from_home: &str, to: &str| LoginCopy { from_home: from_home.to_owned(), to: folder.join(to) };
    run.spec.launch.private.as_mut().unwrap().logins =
        vec![copy(".cli/login.json", "home/login.json"), copy(".cli/none.json", "home/none.json")];
    run.spec.launch.args[1] = looks("stat -c %a home/login.json; cat home/login.json; echo; ls home");
    let row = run.go();
    assert_eq!(answer(&run, &row).split(" --endpoint").next().unwrap(), "600 secret login.json");
}

#[test]
fn what_a_dead_supervisor_left_goes_when_its_turn_is_reconciled() {
    let run = Run::new(ANSWER);
    let store = run.store();
    let attempt = Attempt { program: "/bin/sh".into(), args: Vec::new(), env_names: Vec::new(), at: 0 };
    store.begin_turn(&run.spec.turn, &attempt, 4).unwrap();
    let folder = RunFolder::create(&store, &run.spec.turn.id).unwrap();
    let path = folder.path.clone();
    std::mem::forget(folder);
    let rows = reconcile::rows(&store, store.running_turns().unwrap().rows).unwrap();
    assert_eq!(rows[0].end.as_ref().unwrap().outcome, Outcome::Interrupted);
    assert!(!path.exists());
}

#[test]
fn a_new_folder_clears_those_of_turns_that_have_ended() {
    let (run, folder) = run_with(ANSWER, &[]);
    let row = run.go();
    fs::create_dir_all(folder.join("left")).unwrap();
    let store = run.store();
    let other = folder.with_file_name("0a1b2c3d-0000-4000-8000-000000000001");
    fs::create_dir_all(&other).unwrap();
    let mine = RunFolder::create(&store, "0a1b2c3d-0000-4000-8000-000000000002").unwrap();
    assert!(!folder.exists(), "the turn {} has ended", row.id);
    assert!(other.exists(), "of an unknown turn nothing is known");
    assert!(mine.path.exists());
}

#[test]
fn only_a_file_of_its_own_is_the_log() {
    let run = Run::new(ANSWER);
    let store = run.store();
    let folder = RunFolder::create(&store, &run.spec.turn.id).unwrap();
    let log = folder.path.join(LOG_NAME);
    assert_eq!(folder.log_tail(), "");
    let secret = run.world.at("work").join("secret");
    fs::write(&secret, "secret").unwrap();
    symlink(&secret, &log).unwrap();
    assert_eq!(folder.log_tail(), "");
    fs::remove_file(&log).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&log).status().unwrap();
    assert!(made.success());
    assert_eq!(folder.log_tail(), "");
    fs::remove_file(&log).unwrap();
    fs::write(&log, format!("first\n{}\x1b[31mlast\x1b[0m\n", "x".repeat(20_000))).unwrap();
    let tail = folder.log_tail();
    assert!(tail.ends_with("xlast\n") && !tail.contains("first") && tail.len() < 16 << 10, "{}", tail.len());
}

#[test]
fn what_an_agent_keeps_of_its_conversation_is_all_that_outlives_the_folder() {
    let (mut run, folder) = run_with("", &[("config/token", "x${AGENT_BRIDGE_SCOPE}", true)]);
    let kept = KeptFolder { path: folder.join("state/talks"), name: "talks".into() };
    run.spec.launch.private.as_mut().unwrap().kept = vec![kept];
    run.spec.launch.args[1] = looks("mkdir -p state/talks; echo x >> state/talks/a.db; ls");
    let row = run.go();
    assert!(answer(&run, &row).starts_with("config state"), "{}", answer(&run, &row));
    let place = kept_dir(&run.spec.state_dir, &run.spec.turn.session_id, run.spec.turn.agent).unwrap();
    assert_eq!(fs::read_to_string(place.join("talks/a.db")).unwrap(), "x\n");
    // Neither the run folder nor anything that was planned is left.
    assert!(!folder.exists());
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
}

#[test]
fn a_link_in_the_place_of_what_is_kept_is_not_kept() {
    let (mut run, folder) = run_with("", &[]);
    let outside = run.world.at("work").join("outside");
    fs::create_dir(&outside).unwrap();
    let kept = KeptFolder { path: folder.join("talks"), name: "talks".into() };
    run.spec.launch.private.as_mut().unwrap().kept = vec![kept];
    run.spec.launch.args[1] = looks(&format!("ln -s \"{}\" talks; ls", outside.display()));
    let row = run.go();
    assert!(answer(&run, &row).starts_with("talks"), "{}", answer(&run, &row));
    let place = kept_dir(&run.spec.state_dir, &run.spec.turn.session_id, run.spec.turn.agent).unwrap();
    assert!(!place.exists() && outside.exists());
}
