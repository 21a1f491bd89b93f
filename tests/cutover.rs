//! Cutover and rollback through the real program: the machine is as before or as after, and says which.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::time::Instant;

use support::prelude::*;

/// A world with a shared config and one installed release, which is not current yet.
fn installed() -> (ReleaseWorld, String) {
    let at = ReleaseWorld::new();
    let id = at.place(&Release::of_bridge("1.0.0"));
    write_config(&at, "30s");
    (at, id)
}

/// The same, and the release is current.
fn current() -> (ReleaseWorld, String) {
    let (at, id) = installed();
    cutover(&at, &id, &[]).expect_code(0);
    (at, id)
}

fn config_text(at: &ReleaseWorld, marker: &str) -> String {
    let config = json!({
        "allowedRoots": [at.repo()], "stateDir": at.state(),
        "agents": { "codex": { "enabled": false }, "claude": { "enabled": false, "defaultModel": format!("m-{marker}") } },
    });
    format!("{config:#}\n")
}

fn write_config(at: &ReleaseWorld, marker: &str) {
    support::world::write(&at.layout().config(), config_text(at, marker));
}

/// A server started as a client would.
fn server(at: &ReleaseWorld) -> Host {
    let mut command = at.command(at.layout().launcher());
    command.arg("serve");
    Host::start(command)
}

fn served_version(at: &ReleaseWorld) -> Value {
    let mut host = server(at);
    let greeting = host.initialize();
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    greeting["serverInfo"]["version"].clone()
}

fn cutover(at: &ReleaseWorld, id: &str, more: &[&str]) -> Finished {
    let mut arguments = vec!["cutover", id, "--yes", "--json"];
    arguments.extend(more);
    at.bridge(arguments)
}

#[test]
fn the_first_cutover_makes_everything_that_a_client_needs() {
    let (at, id) = installed();
    let done = cutover(&at, &id, &["--reason", "first of all"]).expect_code(0).json();
    assert_eq!(
        (&done["status"], &done["changed"], &done["generation"]),
        (&json!("switched"), &json!(true), &json!(1))
    );
    assert_eq!(served_version(&at), env!("CARGO_PKG_VERSION"));
    let inspected = at.bridge(["inspect", "--json", "--expect", &id]).expect_code(0).json();
    assert_eq!(inspected["status"], "current");
    assert_eq!(inspected["findings"], json!([]), "{inspected:#}");
    let history = at.bridge(["history", "--json"]).expect_code(0).json();
    assert_eq!(history["generations"][0]["reason"], "first of all");
    assert_eq!(history["transactions"][0]["outcome"], "committed");
}

#[test]
fn the_same_again_changes_nothing_and_is_quick() {
    let (at, id) = current();
    let before = at.tree();
    let began = Instant::now();
    let again = cutover(&at, &id, &[]).expect_code(0).json();
    // Starting a program alone takes longer under Wine.
    if std::env::var_os("AGENT_BRIDGE_TEST_WINE").is_none() {
        // A second for the program as it ships; what is built for tests hashes a file five times its size.
        let bound = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
        assert!(began.elapsed() < bound, "{:?}", began.elapsed());
    }
    assert_eq!((&again["status"], &again["changed"]), (&json!("already-current"), &json!(false)));
    assert!(at.tree() == before, "something was changed");
}

#[test]
fn a_rollback_brings_back_the_release_and_its_config_byte_for_byte() {
    let (at, old) = current();
    let old_config = std::fs::read(at.layout().config()).unwrap();
    let new = at.place(&Release::of_bridge("1.1.0"));
    let staged = at.path().join("staged.json");
    support::world::write(&staged, config_text(&at, "new"));
    cutover(&at, &new, &["--stage-config", staged.to_str().unwrap()]).expect_code(0);
    assert_eq!(std::fs::read(at.layout().config()).unwrap(), std::fs::read(&staged).unwrap());

    let back = at.bridge(["rollback", "--yes", "--json", "--reason", "it was slow"]).expect_code(0).json();
    assert_eq!(back["releaseId"], old.as_str());
    assert_eq!(back["generation"], 3);
    assert_eq!(std::fs::read(at.layout().config()).unwrap(), old_config);
    let history = at.bridge(["history", "--json"]).expect_code(0).json();
    let left = &history["generations"][1];
    assert_eq!(
        (&left["verdict"], &left["because"]),
        (&json!("bad"), &json!("left by a rollback: it was slow"))
    );
    assert_eq!(served_version(&at), env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_rollback_never_chooses_something_that_did_not_work() {
    let (at, a) = current();
    at.bridge(["history", "mark", "1", "good"]).expect_code(0);
    let b = at.place(&Release::of_bridge("1.1.0"));
    cutover(&at, &b, &[]).expect_code(0);
    at.bridge(["history", "mark", "2", "bad", "--because", "its canary failed"]).expect_code(0);
    let c = at.place(&Release::of_bridge("1.2.0"));
    cutover(&at, &c, &[]).expect_code(0);
    let back = at.bridge(["rollback", "--yes", "--json"]).expect_code(0).json();
    assert_eq!(back["releaseId"], a.as_str());

    let refused = at.bridge(["rollback", "--to", "2", "--yes"]).expect_code(2);
    assert!(refused.stderr().contains("its canary failed"), "{}", refused.stderr());
    at.bridge(["rollback", "--to", "2", "--force", "--yes"]).expect_code(0);
    assert_eq!(at.current().release_id.as_str(), b);
    at.bridge(["rollback", "--to", "77", "--yes"]).expect_code(2);
}

#[test]
fn a_rollback_works_when_the_current_program_is_destroyed() {
    let (at, old) = current();
    let new = at.place(&Release::of_bridge("1.1.0"));
    cutover(&at, &new, &[]).expect_code(0);
    at.damage(&new, &Release::runtime_path(), "");
    let mut command = at.command(at.layout().launcher());
    command.args(["rollback", "--yes"]);
    process::run(command, DEADLINE).expect_code(0);
    assert_eq!(at.current().release_id.as_str(), old);
}

#[test]
fn what_runs_is_named_and_never_killed() {
    let (at, _) = current();
    let new = at.place(&Release::of_bridge("1.1.0"));
    let mut host = server(&at);
    host.initialize();
    let before = at.lasting_tree();
    let refused = cutover(&at, &new, &["--wait", "0"]).expect_code(75);
    assert!(refused.stderr().contains("RELEASE_IN_USE"), "{}", refused.stderr());
    assert!(refused.stderr().contains(&format!("pid {}", host.id())), "{}", refused.stderr());
    assert!(at.lasting_tree() == before, "something was changed");
    host.request("tools/list", json!({}));

    // Softly the old one goes on, and what starts now is the new one.
    cutover(&at, &new, &["--soft"]).expect_code(0);
    host.request("tools/list", json!({}));
    assert_eq!(at.current().release_id.as_str(), new);
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
}

#[test]
fn a_waiting_cutover_goes_on_when_the_last_server_ends() {
    let (at, _) = current();
    let new = at.place(&Release::of_bridge("1.1.0"));
    let mut host = server(&at);
    host.initialize();
    let running = process::start(at.bridge_command(["cutover", &new, "--yes", "--wait", "60s", "--json"]));
    let gate = at.layout().gate_lock();
    process::wait_until("the gate is closed", DEADLINE, || {
        agent_bridge::platform::is_held_exclusively(&gate) == Some(true)
    });
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    running.finish(DEADLINE).expect_code(0);
    assert_eq!(at.current().release_id.as_str(), new);
}

/// Programs that do not serve, each in a way of its own.
#[cfg(unix)]
#[test]
fn a_target_that_does_not_answer_leaves_everything_as_it_was() {
    let (at, _) = current();
    let staged = at.path().join("staged.json");
    support::world::write(&staged, config_text(&at, "new"));
    let before = at.lasting_tree();
    for (version, script) in [
        ("2.0.0", "#!/bin/sh\necho hello\n"),
        ("2.0.1", "#!/bin/sh\nexit 3\n"),
        ("2.0.2", "#!/bin/sh\nkill -9 $$\n"),
    ] {
        let bad = at.place(&Release::script(version, script));
        let failed = cutover(&at, &bad, &["--stage-config", staged.to_str().unwrap()]).expect_code(3);
        assert!(failed.stderr().contains("RELEASE_PROBE_FAILED"), "{}", failed.stderr());
        let mut after = at.lasting_tree();
        after.retain(|path, _| !path.contains("2.0."));
        assert!(after == before, "{version}: something was changed");
        assert_eq!(served_version(&at), env!("CARGO_PKG_VERSION"));
    }
}

#[test]
fn what_can_be_refused_is_refused_before_anything_closes() {
    let (at, id) = installed();
    // The system's name says how the program is called, so on Windows that has to stay.
    let foreign = if cfg!(windows) { "arch" } else { "os" };
    let foreign =
        at.place(&Release::new("3.0.0").metadata(move |value| value["target"][foreign] = json!("plan9")));
    let damaged = at.place(&Release::new("3.0.1"));
    at.damage(&damaged, "README.md", "other\n");
    let newer_state = at.place(&Release::of_bridge("3.0.2").metadata(|value| {
        value["stateSchemaVersion"]["reads"] = json!({ "min": 9, "max": 9 });
    }));
    let launcher =
        at.place(&Release::of_bridge("3.0.3").metadata(|value| value["minLauncherProtocol"] = json!(9)));
    let _ = launcher;
    // A state of version 1.
    let mut host = at.host();
    host.initialize();
    host.call("list_sessions", json!({})).ok();
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    agent_bridge::store::Store::open(&at.state(), agent_bridge::context::Clock::System).unwrap();

    let invalid = at.path().join("invalid.json");
    support::world::write(&invalid, "{\"allowedRoots\": 7}");
    let invalid = invalid.to_str().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let same_version = at.place(&Release::of_bridge(version));
    let before = at.tree();
    for (id, more, code, name) in [
        ("9.9.9+abcdef0", &[][..], 2, "RELEASE_NOT_INSTALLED"),
        ("../../etc", &[], 64, "RELEASE_ID_INVALID"),
        (&foreign, &[], 2, "RELEASE_FOREIGN_TARGET"),
        (&damaged, &[], 3, "RELEASE_DAMAGED"),
        (&newer_state, &[], 2, "RELEASE_INCOMPATIBLE"),
        (&same_version, &["--stage-config", invalid], 2, "RELEASE_INCOMPATIBLE"),
        (&id, &["--stage-config", invalid, "--expect-config-sha256", "00"], 2, "RELEASE_INCOMPATIBLE"),
        (&id, &["--stage-config", "/nowhere/at/all"], 1, "RELEASE_IO"),
    ] {
        let refused = cutover(&at, id, more).expect_code(code);
        assert!(refused.stderr().contains(name), "{id}: {}", refused.stderr());
    }
    at.bridge(["rollback", "--yes"]).expect_code(2);
    let mut after = at.tree();
    after.retain(|path, _| !path.starts_with("locks"));
    let mut before = before;
    before.retain(|path, _| !path.starts_with("locks"));
    assert!(after == before, "something was changed");
}

#[test]
fn without_a_config_the_next_step_is_told() {
    let at = ReleaseWorld::new();
    let id = at.place(&Release::of_bridge("1.0.0"));
    let refused = cutover(&at, &id, &[]).expect_code(2);
    assert!(refused.stderr().contains("config init"), "{}", refused.stderr());
}

#[test]
fn a_dry_run_says_the_steps_and_writes_nothing() {
    let (at, id) = installed();
    let before = at.tree();
    let planned = at.bridge(["cutover", &id, "--dry-run"]).expect_code(0);
    assert!(planned.stdout().contains("put the launcher at"), "{}", planned.stdout());
    assert!(at.tree() == before, "something was changed");
}

#[test]
fn nobody_to_ask_means_no_at_once() {
    let (at, id) = installed();
    let before = at.tree();
    let began = Instant::now();
    let refused = at.bridge(["cutover", &id]).expect_code(2);
    assert!(refused.stderr().contains("--yes"), "{}", refused.stderr());
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(at.tree() == before, "something was changed");
}

#[cfg(unix)]
#[test]
fn an_interrupt_before_the_decision_puts_everything_back() {
    let (at, _) = current();
    let started = at.path().join("started");
    let slow = at.place(&Release::script(
        "2.0.0",
        &format!("#!/bin/sh\n: > '{}'\nread line\nsleep 2\nexit 0\n", started.display()),
    ));
    let before = at.lasting_tree();
    let running = process::start(at.bridge_command(["cutover", &slow, "--yes"]));
    process::wait_until("the target is probed", DEADLINE, || started.exists());
    running.signal(Signal::Terminate);
    let ended = running.finish(DEADLINE);
    // The probe may fail before the interrupt is looked at; both leave everything as it was.
    assert!(matches!(ended.code, Some(2 | 3)), "{ended:?}");
    assert!(at.lasting_tree() == before, "something was changed");
    at.bridge(["recover", "--json"]).expect_code(0);
}

#[cfg(unix)]
#[test]
fn an_interrupt_while_it_waits_ends_it_at_once_and_puts_everything_back() {
    let (at, _) = current();
    let new = at.place(&Release::of_bridge("1.1.0"));
    let mut host = server(&at);
    host.initialize();
    let before = at.lasting_tree();
    let running = process::start(at.bridge_command(["cutover", &new, "--yes", "--wait", "10m"]));
    running.wait_for_stderr("waiting for a server", DEADLINE);
    running.signal(Signal::Interrupt);
    let ended = running.finish(DEADLINE).expect_code(2);
    assert!(ended.stderr().contains("RELEASE_INTERRUPTED") && ended.stdout.is_empty(), "{ended}");
    assert!(at.lasting_tree() == before, "something was changed");
    at.bridge(["recover", "--json"]).expect_code(0);
    assert_eq!(served_version(&at), env!("CARGO_PKG_VERSION"), "the gate is open");
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
}

/// A command on a terminal, with somebody who types this.
#[cfg(target_os = "linux")]
fn typed(at: &ReleaseWorld, command: &str, keys: &str) -> Option<Finished> {
    let script = support::world::find_program("script")?;
    let mut terminal = at.command(script);
    let call = format!("'{}' {command}", support::world::BRIDGE);
    terminal.args(["--quiet", "--return", "--command", &call, "/dev/null"]);
    Some(process::run_with_input(terminal, keys.as_bytes(), DEADLINE))
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_the_release_id_is_typed_and_nothing_less() {
    let (at, id) = installed();
    let before = at.lasting_tree();
    for no in ["y\r", "\r", "1.0.0\r"] {
        let Some(refused) = typed(&at, &format!("cutover {id}"), no) else { return };
        assert_eq!(refused.code, Some(2), "{no:?}: {refused}");
        assert!(refused.stdout().contains("RELEASE_NOT_CONFIRMED"), "{refused}");
        assert!(at.lasting_tree() == before, "something was changed after {no:?}");
    }
    let done = typed(&at, &format!("cutover {id} --trial 2h"), &format!("{id}\r")).unwrap().expect_code(0);
    let text = done.stdout();
    let [warning, steps, question] = ["warning: nothing is current yet", "This cutover will:", "Type "]
        .map(|what| text.find(what).unwrap_or_else(|| panic!("{what} is not in {done}")));
    assert!(warning < steps && steps < question, "what speaks against it comes before the question: {done}");
    assert_eq!(text.matches("warning: nothing is current").count(), 1, "and is not said again: {done}");
    assert!(done.stdout().contains("is current now"), "{done}");
    assert_eq!(at.current().release_id.as_str(), id);
    let old = at.current().generation;
    assert_eq!(typed(&at, "rollback --to 1", "no\r").unwrap().code, Some(2));
    assert_eq!(at.current().generation, old);
}

#[test]
fn one_command_at_a_time() {
    let (at, id) = installed();
    let lock = agent_bridge::platform::try_exclusive(&at.layout().install_lock()).unwrap().unwrap();
    let refused = cutover(&at, &id, &[]).expect_code(75);
    assert!(refused.stderr().contains("RELEASE_LOCKED"), "{}", refused.stderr());
    drop(lock);
    cutover(&at, &id, &[]).expect_code(0);
}

#[test]
fn prune_keeps_what_a_rollback_needs() {
    let (at, a) = current();
    let ids: Vec<String> = ["1.1.0", "1.2.0", "1.3.0"].map(|version| at.place(&Release::new(version))).into();
    let b = at.place(&Release::of_bridge("1.4.0"));
    cutover(&at, &b, &[]).expect_code(0);
    let before = at.lasting_tree();
    let planned =
        at.bridge(["prune", "--keep", "0", "--pin", &ids[1], "--dry-run", "--json"]).expect_code(0).json();
    assert!(at.lasting_tree() == before, "something was changed");
    let pruned = at.bridge(["prune", "--keep", "0", "--pin", &ids[1], "--json"]).expect_code(0).json();
    assert_eq!(planned["removed"], pruned["removed"]);
    let mut removed: Vec<&str> =
        pruned["removed"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    removed.sort_unstable();
    assert_eq!(removed, [ids[0].as_str(), ids[2].as_str()]);
    at.bridge(["rollback", "--yes"]).expect_code(0);
    assert_eq!(at.current().release_id.as_str(), a);
    assert!(!at.tree().keys().any(|path| path.contains(".pruned-")));
}

#[test]
fn a_damaged_release_is_told_from_a_whole_one() {
    let (at, id) = current();
    at.damage(&id, "README.md", "other\n");
    let drift = at.bridge(["inspect", "--expect", &id, "--json"]).expect_code(3).json();
    assert_eq!(drift["status"], "drift");
    assert!(drift["findings"][0]["what"].as_str().unwrap().contains("README.md"), "{drift:#}");
    at.bridge(["inspect", "--expect", "9.9.9+abcdef0"]).expect_code(2);
    let text = at.bridge(["inspect"]).expect_code(0);
    assert!(text.stdout().contains("damaged"), "{}", text.stdout());
}
