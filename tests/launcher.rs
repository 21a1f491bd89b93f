//! The launcher: what clients start instead of a release, and what it does when the release cannot be had.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::Path;
use std::process::Command;

use agent_bridge::digest;
use agent_bridge::platform;
#[cfg(unix)]
use agent_bridge::release::journal::Action;
use agent_bridge::release::journal::{Journal, Record};
use agent_bridge::release::pointer::{self, Trial};
use agent_bridge::release::transaction::InstallLock;
use agent_bridge::release::{ReleaseId, lease, trial};
use support::prelude::*;
use support::release::set_mode;

/// A release (a script, so on Unix only) that says on standard output which one it is, as a message that the harness takes.
fn speaker(version: &str) -> Release {
    let text = format!(
        "#!/bin/sh\nread -r line\necho '{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"serverInfo\":{{\"version\":\"{version}\"}}}}}}'\nread -r line\nexit 0\n"
    );
    Release::script(version, &text)
}

/// A world with this release current, and its id.
fn world_with(release: &Release) -> (ReleaseWorld, String) {
    let at = ReleaseWorld::new();
    let id = at.place(release);
    at.make_current(&id);
    (at, id)
}

fn launch(at: &ReleaseWorld, arguments: &[&str]) -> Command {
    let mut command = at.command(at.layout().launcher());
    command.args(arguments);
    command
}

fn host(at: &ReleaseWorld) -> support::host::Host {
    support::host::Host::start(launch(at, &["serve"]))
}

/// What the launcher says to a host's first request, and how it ends.
fn refused(at: &ReleaseWorld, request: &Value) -> (Value, process::Finished) {
    let input = format!("{request}\n");
    let finished = process::run_with_input(launch(at, &["serve"]), input.as_bytes(), DEADLINE);
    let lines: Vec<&str> = finished.stdout().lines().collect();
    assert_eq!(lines.len(), 1, "one answer and no stray byte\n{finished}");
    let answer: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(answer["jsonrpc"], "2.0");
    assert_eq!(answer["id"], request["id"]);
    assert_eq!(finished.stderr().lines().count(), 1, "one line for the log\n{finished}");
    (answer["error"].clone(), finished)
}

fn handshake() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "scripted-host", "version": "1.0.0" } } })
}

/// The version that serves.
fn serves(at: &ReleaseWorld) -> String {
    let mut host = host(at);
    host.send(&handshake());
    let answer = host.wait_for("the handshake", |message| message["id"] == 1);
    answer["result"]["serverInfo"]["version"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn no_links(root: &Path) {
    for entry in walkdir::WalkDir::new(root) {
        let entry = entry.unwrap();
        assert!(!entry.path_is_symlink(), "{} is a link", entry.path().display());
    }
}

fn change_pointer(at: &ReleaseWorld, change: impl Fn(&mut pointer::Pointer)) {
    let (slot, mut pointer) = pointer::read(&at.layout()).unwrap().unwrap();
    change(&mut pointer);
    std::fs::write(at.layout().slot(slot), pointer::encode(&pointer)).unwrap();
}

#[test]
fn a_host_gets_the_current_release_under_the_lease_and_its_own_name() {
    let (at, id) = world_with(&Release::of_bridge("1.0.0"));
    let mut host = host(&at);
    host.initialize();
    assert!(!host.tool_names().is_empty());
    let layout = at.layout();
    let id = ReleaseId::parse(&id).unwrap();
    let program = layout.release(&id).join("server").join(agent_bridge::release::layout::program_name());
    let seen = platform::running_programs();
    let server = seen.iter().find(|seen| seen.exe.as_deref() == Some(&*program)).expect("the release runs");
    if !cfg!(windows) {
        assert_eq!(server.process.pid, host.id(), "in the launcher's own process");
    }
    for lock in [layout.lease_lock(), layout.release_lease(&id)] {
        assert_eq!(platform::look_at_lock(&lock).unwrap(), platform::LockState::Held);
    }
    assert_eq!(platform::look_at_lock(&layout.gate_lock()).unwrap(), platform::LockState::Free);
    let readiness = at.bridge(["readiness", "--json"]).expect_code(2).json();
    assert_eq!(readiness["state"], "busy");
    assert_eq!(readiness["holders"][0]["client"], "scripted-host 1.0.0");
    assert_eq!(readiness["holders"][0]["release"], id.as_str());
    no_links(at.root());
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    assert_eq!(platform::look_at_lock(&layout.lease_lock()).unwrap(), platform::LockState::Free);
    assert_eq!(std::fs::read_dir(layout.holders()).unwrap().count(), 0, "its label went with it");
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_server_starts_does_not_inherit_the_lease() {
    let (at, _) = world_with(&Release::of_bridge("1.0.0"));
    let mut host = host(&at);
    host.initialize();
    let mut locks = 0;
    for entry in std::fs::read_dir(format!("/proc/{}/fd", host.id())).unwrap() {
        let path = entry.unwrap().path();
        let target = std::fs::read_link(&path).unwrap_or_default();
        if target.extension().is_some_and(|ext| ext == "lease") {
            locks += 1;
            let info = path.to_string_lossy().replace("/fd/", "/fdinfo/");
            let info = std::fs::read_to_string(info).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            let flags = u32::from_str_radix(flags, 8).unwrap();
            assert_ne!(flags & 0o2_000_000, 0, "{} would be inherited", target.display());
        }
    }
    assert_eq!(locks, 2, "the lease and that of the release");
}

#[cfg(unix)]
#[test]
fn the_shared_config_is_named_only_where_nothing_else_is() {
    let text = "#!/bin/sh\nprintf '%s|%s|%s' \"$AGENT_BRIDGE_CONFIG\" \"$1\" \"$2\"\n";
    let (mut at, _) = world_with(&Release::script("1.0.0", text));
    let run = |at: &ReleaseWorld| {
        let finished = process::run(launch(at, &["turns", "a b\n$(c)"]), DEADLINE).expect_code(0);
        finished.stdout().to_owned()
    };
    assert_eq!(run(&at), "|turns|a b\n$(c)", "there is no shared config");
    std::fs::write(at.layout().config(), "{}").unwrap();
    assert_eq!(run(&at), format!("{}|turns|a b\n$(c)", at.layout().config().display()));
    at.set_env("AGENT_BRIDGE_CONFIG", "/own/config.json");
    assert_eq!(run(&at), "/own/config.json|turns|a b\n$(c)");
}

/// Re-runs one test of this file in a process of its own.
#[cfg(target_os = "linux")]
fn again(test: &str, variable: &str, value: &Path) -> process::Finished {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(variable, value);
    process::run(command, DEADLINE)
}

#[cfg(target_os = "linux")]
#[test]
fn the_file_that_was_hashed_is_run_even_if_its_name_changes_hands() {
    const VARIABLE: &str = "AGENT_BRIDGE_TEST_EXCHANGED";
    if let Some(folder) = std::env::var_os(VARIABLE).map(std::path::PathBuf::from) {
        let program = folder.join("program");
        let file = platform::open_to_run(&program).unwrap();
        std::fs::rename(folder.join("other"), &program).unwrap();
        let env = std::collections::BTreeMap::from([("MARK".into(), "kept".into())]);
        let words = ["-c", "echo ran $MARK"].map(Into::into);
        let error = platform::run_opened(&file, &program, &words, &env).unwrap_err();
        panic!("it came back: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy("/bin/sh", folder.path().join("program")).unwrap();
    std::fs::copy("/bin/false", folder.path().join("other")).unwrap();
    let test = "the_file_that_was_hashed_is_run_even_if_its_name_changes_hands";
    let finished = again(test, VARIABLE, folder.path()).expect_code(0);
    assert!(finished.stdout().contains("ran kept"), "{finished}");
}

#[test]
fn a_damaged_release_is_refused_with_a_sentence_for_the_host() {
    type Damage = fn(&ReleaseWorld, &str, &Path);
    let runtime = Release::runtime_path();
    let cases: &[(&str, Damage)] = &[
        ("has other content", |at, id, program| {
            let mut bytes = std::fs::read(program).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            at.damage(id, &Release::runtime_path(), bytes);
        }),
        ("bytes, not", |at, id, _| at.damage(id, &Release::runtime_path(), "#!/bin/sh\n")),
        ("release-metadata.json is not the one", |at, id, _| {
            at.damage(id, "release-metadata.json", "{\"minLauncherProtocol\":1}");
        }),
        ("is missing", |at, id, _| {
            platform::remove_durable(&at.layout().releases().join(id)).unwrap();
        }),
        ("agent-bridge", |_, _, program| platform::remove_durable(program).unwrap()),
        ("the pointer names", |at, _, _| {
            change_pointer(at, |pointer| pointer.runtime_path = "../../bin/sh".into());
        }),
    ];
    for (why, damage) in cases {
        let (at, id) = world_with(&speaker("1.0.0"));
        let folder = at.layout().releases().join(&id);
        set_mode(&folder.join("server"), 0o755);
        damage(&at, &id, &runtime.split('/').fold(folder, |path, part| path.join(part)));
        let (error, finished) = refused(&at, &handshake());
        assert_eq!(finished.code, Some(3), "{why}\n{finished}");
        assert_eq!(error["code"], -32000);
        assert_eq!(error["data"]["code"], "RELEASE_DAMAGED", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(why), "{why}: {message}");
        assert!(message.contains("install-release"), "it says what to do: {message}");
        assert!(finished.stderr().contains("RELEASE_DAMAGED"), "{finished}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_anywhere_on_the_way_is_no_release() {
    for part in ["releases", "releases/ID", "releases/ID/server", "program"] {
        let (at, id) = world_with(&speaker("1.0.0"));
        let program =
            Release::runtime_path().split('/').fold(at.layout().releases().join(&id), |p, n| p.join(n));
        let path = match part {
            "program" => program.clone(),
            _ => at.root().join(part.replace("ID", &id)),
        };
        for folder in [at.layout().releases().join(&id), program.parent().unwrap().into()] {
            set_mode(&folder, 0o755);
        }
        let moved = at.path().join("moved");
        std::fs::rename(&path, &moved).unwrap();
        support::world::link(&moved, &path);
        let (error, finished) = refused(&at, &handshake());
        assert_eq!(finished.code, Some(3), "{part}\n{finished}");
        assert_eq!(error["data"]["code"], "RELEASE_DAMAGED", "{part}: {error}");
    }
}

#[test]
fn during_maintenance_hosts_of_both_eras_are_told_to_come_back() {
    let (at, _) = world_with(&Release::of_bridge("1.0.0"));
    let gate = lease::close_gate(&at.layout(), Duration::from_secs(5)).unwrap();
    let probe = json!({ "jsonrpc": "2.0", "id": "probe-1", "method": "server/discover", "params": {} });
    for request in [handshake(), probe] {
        let (error, finished) = refused(&at, &request);
        assert_eq!(finished.code, Some(75), "{finished}");
        assert_eq!(error["message"], "agent-bridge is being updated; try again in a moment");
        assert_eq!(error["data"]["code"], "RELEASE_MAINTENANCE");
        assert_eq!(error["data"]["retryable"], true);
        assert!(error["data"]["retryAfterMs"].is_u64());
        assert!(finished.elapsed >= Duration::from_millis(1900), "it waits for the gate first");
    }
    drop(gate);
    assert_eq!(serves(&at), env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_host_that_says_nothing_or_hangs_up_is_not_waited_for_in_vain() {
    let at = ReleaseWorld::new();
    at.layout().create().unwrap();
    at.place_launcher();
    let finished = process::run(launch(&at, &["serve"]), DEADLINE);
    assert_eq!(finished.code, Some(2), "{finished}");
    assert!(finished.stdout.is_empty(), "{finished}");
    assert!(finished.stderr().contains("RELEASE_NOTHING_CURRENT"), "{finished}");
    let noise = "hello\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}\n";
    let finished = process::run_with_input(launch(&at, &["serve"]), noise.as_bytes(), DEADLINE);
    assert!(finished.stdout.is_empty(), "there was no request to answer\n{finished}");
}

#[test]
fn a_start_that_meets_a_short_update_waits_for_it() {
    let (at, _) = world_with(&Release::of_bridge("1.0.0"));
    let gate = lease::close_gate(&at.layout(), Duration::from_secs(5)).unwrap();
    let mut host = host(&at);
    host.send(&handshake());
    process::wait_until("the launcher to be there", DEADLINE, || {
        platform::running_program(host.id()).is_some_and(|seen| seen.exe == Some(at.layout().launcher()))
    });
    drop(gate);
    let answer = host.wait_for("the handshake", |message| message["id"] == 1);
    assert_eq!(answer["result"]["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
}

/// A journal that ends in the middle, as a killed command leaves it.
fn cut_off(at: &ReleaseWorld, records: Vec<Record>) {
    let mut journal = Journal::create(&at.layout(), "cutover").unwrap();
    for record in records {
        assert!(journal.append("2026-01-01T00:00:00.000Z", record).is_ok());
    }
}

fn begin(facts: Value) -> Record {
    Record::Begin { operation: "cutover".into(), reason: None, facts }
}

#[cfg(unix)]
#[test]
fn after_a_killed_cutover_hosts_get_the_old_or_the_new_release_without_an_operator() {
    let (at, _) = world_with(&speaker("1.0.0"));
    cut_off(&at, vec![begin(json!({}))]);
    assert_eq!(serves(&at), "1.0.0", "it was not decided");
    // Decided: the pointer is all that is missing.
    let new = at.place(&speaker("2.0.0"));
    let (slot, old) = pointer::read(&at.layout()).unwrap().unwrap();
    at.make_current(&new);
    let content = std::fs::read_to_string(at.layout().slot(1 - slot)).unwrap();
    std::fs::write(at.layout().slot(1 - slot), "").unwrap();
    assert_eq!(at.current(), old);
    cut_off(
        &at,
        vec![begin(json!({})), Record::Commit { actions: vec![Action::Slot { slot: 1 - slot, content }] }],
    );
    assert_eq!(serves(&at), "2.0.0", "it was decided");
    at.bridge(["recover"]).expect_code(0);
    assert!(at.bridge(["recover"]).expect_code(0).stdout().contains("Nothing"));
}

#[test]
fn a_command_at_work_that_needs_no_quiet_stops_no_host() {
    let (at, _) = world_with(&Release::of_bridge("1.0.0"));
    let _lock = InstallLock::take(&at.layout()).unwrap();
    cut_off(&at, vec![begin(json!({}))]);
    assert_eq!(serves(&at), env!("CARGO_PKG_VERSION"));
}

/// A switch that begins has its journal open, and somebody is at the gate: a start that held the lease while it waits
/// for the gate would be waited for by the one who has the gate.
#[test]
fn a_start_that_waits_for_the_gate_is_in_nobodys_way() {
    let (at, _) = world_with(&Release::of_bridge("1.0.0"));
    cut_off(&at, vec![begin(json!({}))]);
    let layout = at.layout();
    let passing = platform::try_shared(&layout.gate_lock()).unwrap().expect("the gate is open");
    std::thread::scope(|scope| {
        let start = scope.spawn(|| refused(&at, &handshake()));
        while !start.is_finished() {
            let lease = platform::wait_exclusive(&layout.lease_lock(), Duration::from_secs(1)).unwrap();
            assert!(lease.is_some(), "the start holds the lease while it waits for the gate");
        }
        let (error, finished) = start.join().unwrap();
        assert_eq!((error["data"]["code"].as_str(), finished.code), (Some("RELEASE_MAINTENANCE"), Some(75)));
    });
    drop(passing);
    assert_eq!(serves(&at), env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_journal_that_cannot_be_believed_is_no_ground_to_start_from() {
    let (at, _) = world_with(&speaker("1.0.0"));
    cut_off(&at, vec![begin(json!({})), begin(json!({}))]);
    let path = agent_bridge::release::journal::transactions(&at.layout()).unwrap().pop().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("cutover", "rollback", 1)).unwrap();
    let (error, finished) = refused(&at, &handshake());
    assert_eq!(finished.code, Some(4), "{finished}");
    assert_eq!(error["data"]["code"], "RELEASE_JOURNAL_DAMAGED");
}

#[test]
fn a_release_for_a_later_launcher_is_refused_in_words() {
    let later = speaker("1.0.0").metadata(|metadata| metadata["minLauncherProtocol"] = json!(99));
    let (at, _) = world_with(&later);
    let (error, finished) = refused(&at, &handshake());
    assert_eq!(finished.code, Some(2), "{finished}");
    assert_eq!(error["data"]["code"], "RELEASE_LAUNCHER_OUTDATED");
    assert!(error["message"].as_str().unwrap().contains("protocol 99"), "{error}");
}

#[test]
fn operators_need_no_release() {
    let (at, id) = world_with(&speaker("1.0.0"));
    platform::remove_durable(&at.layout().releases().join(&id)).unwrap();
    process::run(launch(&at, &["recover"]), DEADLINE).expect_code(0);
    process::run(launch(&at, &["readiness"]), DEADLINE).expect_code(0);
    process::run(launch(&at, &["inspect"]), DEADLINE);
    let version = process::run(launch(&at, &["--version"]), DEADLINE).expect_code(0);
    assert!(version.stdout().starts_with("agent-bridge "), "{version}");
    assert!(version.stderr().contains("RELEASE_DAMAGED"), "it says whose version that is not\n{version}");
    process::run(launch(&at, &["turns", "list"]), DEADLINE).expect_code(3);
}

#[cfg(unix)]
#[test]
fn a_probe_starts_behind_the_closed_gate_and_nobody_else_does() {
    let (at, _) = world_with(&speaker("1.0.0"));
    let new = at.place(&speaker("2.0.0"));
    let facts = json!({ "probe": lease::probe_facts("a token", &ReleaseId::parse(&new).unwrap()) });
    let _lock = InstallLock::take(&at.layout()).unwrap();
    cut_off(&at, vec![begin(facts)]);
    let closed = lease::close_gate(&at.layout(), Duration::from_secs(5)).unwrap();
    let _drained = closed.drain(Duration::from_secs(5)).unwrap();
    let start = |token: &str| {
        let mut command = launch(&at, &["serve"]);
        command.env(lease::PROBE_VARIABLE, token);
        process::run_with_input(command, format!("{}\n", handshake()).as_bytes(), DEADLINE)
    };
    let probed = start("a token").expect_code(0);
    assert!(probed.stdout().contains("2.0.0"), "{probed}");
    for wrong in ["another token", ""] {
        let refused = start(wrong).expect_code(75);
        assert!(refused.stdout().contains("RELEASE_MAINTENANCE"), "{refused}");
    }
}

#[test]
fn a_trial_counts_handshakes_and_starts_that_failed() {
    let (at, _) = world_with(&Release::of_bridge("1.0.0"));
    change_pointer(&at, |pointer| {
        pointer.trial = Some(Trial { until_ms: i64::MAX, handshakes: 5, failed_starts: 5, fallback: 1 });
    });
    let generation = at.current().generation;
    let tally = || trial::tally(&at.layout(), generation);
    let mut good = host(&at);
    good.initialize();
    assert_eq!((tally().starts, tally().handshakes, tally().failed), (1, 1, 0));
    let mut bad = host(&at);
    process::wait_until("the second start", Duration::from_secs(20), || tally().starts == 2);
    assert_eq!(tally().failed, 0, "it still runs");
    bad.kill();
    process::wait_until("its end", Duration::from_secs(20), || tally().failed == 1);
    assert_eq!(tally().handshakes, 1);
}

#[test]
fn the_launcher_is_replaced_by_a_new_file_and_only_under_the_lock() {
    let (at, _) = world_with(&Release::of_bridge("1.0.0"));
    let launcher = at.layout().launcher();
    let mut bytes = std::fs::read(&launcher).unwrap();
    // A program may carry what it likes behind its end.
    bytes.extend_from_slice(b"another launcher");
    let new = at.path().join("new-launcher");
    std::fs::write(&new, &bytes).unwrap();
    let sha256 = digest::of_bytes(&bytes);
    let before = platform::file_id(&launcher);
    let mut running = host(&at);
    running.send(&handshake());
    running.wait_for("the handshake", |message| message["id"] == 1);
    let replace = |program: &Path, sha256: &str| {
        let mut command = at.command(program);
        command.arg("launcher-replace").arg("--from").arg(&new).args(["--sha256", sha256]);
        process::run(command, DEADLINE)
    };
    let unlocked = replace(&launcher, &sha256).expect_code(2);
    assert!(unlocked.stderr().contains("RELEASE_LAUNCHER_NOT_REPLACED"), "{unlocked}");
    let lock = InstallLock::take(&at.layout()).unwrap();
    replace(&launcher, &"0".repeat(64)).expect_code(2);
    replace(Path::new(support::world::BRIDGE), &sha256).expect_code(2);
    assert_eq!(platform::file_id(&launcher), before, "nothing was done so far");
    assert_eq!(replace(&launcher, &sha256).expect_code(0).json()["replaced"], true);
    assert_eq!(std::fs::read(&launcher).unwrap(), bytes);
    if before.is_some() {
        assert_ne!(platform::file_id(&launcher), before, "a new file, never the old one written over");
    }
    assert_eq!(replace(&launcher, &sha256).expect_code(0).json()["replaced"], false);
    drop(lock);
    let names: Vec<_> = std::fs::read_dir(launcher.parent().unwrap()).unwrap().collect();
    if !cfg!(windows) {
        // There the old one keeps a name as long as it runs.
        assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
    }
    assert_eq!(serves(&at), env!("CARGO_PKG_VERSION"));
    no_links(at.root());
}
