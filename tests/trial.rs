//! `cutover --trial` at work: handshakes in time keep the generation; silence, failed starts and crashes leave it, while
//! hosts run and come and go, and whatever number of starts finds out at the same moment.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent_bridge::release::{journal, pointer};
use support::prelude::*;

/// The version that the program under test says.
const NEW: &str = env!("CARGO_PKG_VERSION");

/// A server that shakes hands, lists no tools and ends with its host. Its version is that of the file.
fn speaker(version: &str) -> Release {
    Release::script(
        version,
        &format!(
            r#"#!/bin/sh
read -r line
echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"2025-11-25","capabilities":{{}},"serverInfo":{{"name":"s","version":"{version}"}}}}}}'
while read -r line; do
    case $line in *tools/list*) echo '{{"jsonrpc":"2.0","id":2,"result":{{"tools":[]}}}}' ;; esac
done
"#
        ),
    )
}

/// A program that passes its probe and does this at every other start.
fn faulty(version: &str, then: &str) -> Release {
    Release::script(
        version,
        &format!("#!/bin/sh\n[ -n \"$AGENT_BRIDGE_PROBE\" ] && exec '{BRIDGE}' \"$@\"\n{then}\n"),
    )
}

fn config_text(at: &ReleaseWorld, model: &str) -> String {
    let config = json!({
        "allowedRoots": [at.repo()], "stateDir": at.state(),
        "agents": { "codex": { "enabled": false }, "claude": { "enabled": false, "defaultModel": model } },
    });
    format!("{config:#}\n")
}

/// An installation whose current release, which is known to be good, is 1.0.0.
fn installation() -> (ReleaseWorld, String) {
    let at = ReleaseWorld::new();
    std::fs::write(at.layout().config(), config_text(&at, "old")).unwrap();
    let old = at.place(&speaker("1.0.0"));
    at.place_launcher();
    at.bridge(["cutover", &old, "--yes"]).expect_code(0);
    at.bridge(["history", "mark", "1", "good"]).expect_code(0);
    (at, old)
}

/// Puts a release on trial, with a config of its own.
#[track_caller]
fn on_trial(at: &ReleaseWorld, release: &Release, terms: &[&str]) -> String {
    let id = at.place(release);
    let staged = at.path().join("staged.json");
    std::fs::write(&staged, config_text(at, "new")).unwrap();
    let mut command = at.bridge_command(["cutover", &id, "--yes", "--soft", "--stage-config"]);
    command.arg(staged).args(terms);
    let done = process::run(command, DEADLINE).expect_code(0);
    assert!(done.stdout().contains("It is on trial: kept by "), "{done}");
    assert_eq!(at.current().release_id.as_str(), id);
    assert!(at.current().trial.is_some());
    id
}

fn start(at: &ReleaseWorld) -> Host {
    let mut command = at.command(at.layout().launcher());
    command.arg("serve");
    Host::start(command)
}

fn serves(at: &ReleaseWorld) -> String {
    let mut host = start(at);
    let version = host.initialize()["serverInfo"]["version"].as_str().unwrap().to_owned();
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    version
}

/// What became of generation 2, which was on trial.
fn verdict(at: &ReleaseWorld) -> (String, String) {
    let history = at.bridge(["history", "--json"]).expect_code(0).json();
    let text = |key: &str| history["generations"][1][key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("because"))
}

fn fallbacks(at: &ReleaseWorld) -> usize {
    let all = journal::verify_all(&at.layout()).expect("the chain holds");
    assert!(all.iter().all(|transcript| transcript.outcome().is_some()), "something is unfinished");
    all.iter()
        .filter(|transcript| transcript.begin().is_some_and(|(what, ..)| what == "trial-fallback"))
        .count()
}

/// The trial is over and lost: release and config are those of before.
#[track_caller]
fn is_back(at: &ReleaseWorld, old: &str, because: &str) {
    assert_eq!(at.current().release_id.as_str(), old);
    assert!(at.current().trial.is_none());
    assert_eq!(std::fs::read_to_string(at.layout().config()).unwrap(), config_text(at, "old"));
    let (verdict, why) = verdict(at);
    assert_eq!(verdict, "bad");
    assert!(why.contains(because), "{why}");
    assert_eq!(fallbacks(at), 1);
}

/// The trial is over and won.
#[track_caller]
fn is_kept(at: &ReleaseWorld, new: &str) {
    assert_eq!(at.current().release_id.as_str(), new);
    assert_eq!(std::fs::read_to_string(at.layout().config()).unwrap(), config_text(at, "new"));
    assert_eq!(verdict(at).0, "good");
    assert_eq!(fallbacks(at), 0);
}

/// As if the time of the trial had passed.
fn let_the_time_pass(at: &ReleaseWorld) {
    let (slot, mut current) = pointer::read(&at.layout()).unwrap().unwrap();
    current.trial.as_mut().unwrap().until_ms = 1;
    std::fs::write(at.layout().slot(slot), pointer::encode(&current)).unwrap();
}

/// What a host that starts now is told by its server: a version, a refusal's code, or nothing at all.
fn told(at: &ReleaseWorld) -> (Option<String>, Finished) {
    let mut host = start(at);
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } } });
    // One that crashes at once does not even read.
    host.send_bytes(format!("{hello}\n").as_bytes());
    let answer = std::iter::from_fn(|| host.next_message()).find(|message| message["id"] == 1);
    host.hang_up();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let told = answer.and_then(|answer| {
        text(&answer["result"]["serverInfo"]["version"]).or_else(|| text(&answer["error"]["data"]["code"]))
    });
    (told, host.wait_exit(DEADLINE))
}

#[test]
fn a_confirmation_in_time_keeps_it_also_when_the_time_is_up() {
    let (at, _) = installation();
    let new = on_trial(&at, &Release::of_bridge("1.1.0"), &["--trial", "1h"]);
    assert_eq!(serves(&at), NEW);
    // The next start writes down what the one before has proven.
    assert_eq!(serves(&at), NEW);
    is_kept(&at, &new);
    let_the_time_pass(&at);
    assert_eq!(serves(&at), NEW);
    is_kept(&at, &new);
    assert_eq!(
        at.bridge(["cutover", &new, "--dry-run", "--json"]).expect_code(0).json()["status"],
        "planned"
    );
}

#[test]
fn as_many_clients_as_were_asked_for_have_to_shake_hands() {
    let (at, _) = installation();
    let new = on_trial(&at, &Release::of_bridge("1.1.0"), &["--trial", "1h", "--trial-handshakes", "3"]);
    for handshakes in 1..=3 {
        assert_eq!(serves(&at), NEW);
        assert_eq!(verdict(&at).0, "unknown", "after {handshakes}, before the next start");
    }
    serves(&at);
    is_kept(&at, &new);
}

#[test]
fn without_a_confirmation_the_next_start_goes_back_and_what_runs_goes_on() {
    let (at, old) = installation();
    let mut of_before = start(&at);
    of_before.initialize();
    // Two have to shake hands, and one does.
    on_trial(&at, &Release::of_bridge("1.1.0"), &["--trial", "1h", "--trial-handshakes", "2"]);
    let mut of_trial = start(&at);
    let greeting = of_trial.initialize();
    assert_eq!(greeting["serverInfo"]["version"], NEW, "in time");
    let_the_time_pass(&at);
    assert_eq!(serves(&at), "1.0.0");
    is_back(&at, &old, "1 of 2 handshakes");
    assert!(!of_trial.tool_names().is_empty(), "who works on the release of the trial works on");
    assert!(of_before.tool_names().is_empty(), "and so does who was there before it");
    assert_eq!(serves(&at), "1.0.0", "nothing goes back a second time");
    assert_eq!(fallbacks(&at), 1);
    for mut host in [of_before, of_trial] {
        host.hang_up();
        host.wait_exit(DEADLINE).expect_code(0);
    }
}

#[test]
fn a_release_that_crashes_in_its_trial_is_left_after_so_many_starts() {
    for (number, end) in ["kill -9 $$", "exit 0", "read -r line; kill -11 $$"].into_iter().enumerate() {
        let (at, old) = installation();
        let terms = ["--trial", "1h", "--trial-failures", "2"];
        let new = on_trial(&at, &faulty("1.1.0", end), &terms);
        for _ in 0..2 {
            assert_eq!(at.current().release_id.as_str(), new, "{end}");
            assert_eq!(told(&at).0, None, "{number}: it crashed");
        }
        assert_eq!(serves(&at), "1.0.0", "{end}");
        is_back(&at, &old, "2 starts ended without a handshake");
    }
}

#[test]
fn a_server_that_still_starts_is_no_failure() {
    let (at, _) = installation();
    let terms = ["--trial", "1h", "--trial-failures", "1"];
    let new = on_trial(&at, &Release::of_bridge("1.1.0"), &terms);
    let slow = start(&at);
    let tally = || agent_bridge::release::trial::tally(&at.layout(), at.current().generation);
    process::wait_until("its start", DEADLINE, || tally().starts == 1);
    assert_eq!(serves(&at), NEW);
    assert_eq!(serves(&at), NEW);
    is_kept(&at, &new);
    drop(slow);
}

/// A client that starts servers until it is told to stop. What it gets is a server, a crash or the word to wait.
fn client(at: &ReleaseWorld, stop: &AtomicBool, served: &AtomicUsize, crashed: &AtomicUsize) {
    while !stop.load(Ordering::Relaxed) {
        let (told, ended) = told(at);
        match (told.as_deref(), ended.code) {
            (Some("1.0.0"), Some(0)) => {
                served.fetch_add(1, Ordering::Relaxed);
            }
            (None, Some(9)) => {
                crashed.fetch_add(1, Ordering::Relaxed);
            }
            (Some("RELEASE_MAINTENANCE"), Some(75)) => {}
            other => panic!("{other:?}: {ended}"),
        }
    }
}

#[test]
fn under_load_the_fallback_happens_once_and_everybody_is_served_again() {
    const CLIENTS: usize = 12;
    let (at, old) = installation();
    let (stop, served, crashed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| scope.spawn(|| client(&at, &stop, &served, &crashed))).collect();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let more = |of: &AtomicUsize, count: usize| {
                let before = of.load(Ordering::Relaxed);
                process::wait_until("the clients", DEADLINE, || of.load(Ordering::Relaxed) >= before + count);
            };
            more(&served, CLIENTS);
            on_trial(&at, &faulty("1.1.0", "exit 9"), &["--trial", "1h", "--trial-failures", "3"]);
            more(&crashed, 3);
            // Everybody who comes from now on is served, by the old release.
            more(&served, 2 * CLIENTS);
        }));
        stop.store(true, Ordering::Relaxed);
        let ended: Vec<_> = clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        assert!(ended.iter().all(Result::is_ok), "a client got something else");
    });
    is_back(&at, &old, "starts ended without a handshake");
}

#[test]
fn starts_that_find_out_at_the_same_moment_go_back_once() {
    const STARTS: usize = 8;
    let (at, old) = installation();
    let mut running: Vec<Host> = (0..3).map(|_| start(&at)).collect();
    for host in &mut running {
        host.initialize();
    }
    on_trial(&at, &Release::of_bridge("1.1.0"), &["--trial", "0s"]);
    let together = Barrier::new(STARTS);
    std::thread::scope(|scope| {
        for _ in 0..STARTS {
            scope.spawn(|| {
                together.wait();
                // One of them switches; the others wait for that, or are told to come again.
                process::wait_until("a server of the old release", DEADLINE, || {
                    match told(&at).0.as_deref() {
                        Some("1.0.0") => true,
                        // Who found another one at work is served by the release on trial, or comes again.
                        Some("RELEASE_MAINTENANCE" | NEW) => false,
                        other => panic!("{other:?}"),
                    }
                });
            });
        }
    });
    assert_eq!(at.current().release_id.as_str(), old);
    assert_eq!((verdict(&at).0.as_str(), fallbacks(&at)), ("bad", 1));
    for mut host in running {
        assert!(host.tool_names().is_empty(), "who was there before works on");
        host.hang_up();
        host.wait_exit(DEADLINE).expect_code(0);
    }
}

#[test]
fn a_fallback_that_is_in_the_way_of_another_command_is_made_by_the_next_start() {
    let (at, old) = installation();
    on_trial(&at, &Release::of_bridge("1.1.0"), &["--trial", "0s"]);
    let lock = agent_bridge::platform::try_exclusive(&at.layout().install_lock()).unwrap().unwrap();
    let mut host = start(&at);
    let greeting = host.initialize();
    assert_eq!(greeting["serverInfo"]["version"], NEW, "a host is not left without");
    host.hang_up();
    let ended = host.wait_exit(DEADLINE).expect_code(0);
    assert!(ended.stderr().contains("RELEASE_LOCKED"), "and its log says why: {ended}");
    assert_eq!(fallbacks(&at), 0);
    drop(lock);
    // That one handshake was all that the trial asked for, so now it is won.
    serves(&at);
    assert_ne!(at.current().release_id.as_str(), old);
    assert_eq!((verdict(&at).0.as_str(), fallbacks(&at)), ("good", 0));
}
