//! Whether a login works is asked once for everybody who wants to know, and no more often than needed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::collections::HashSet;
use std::sync::Mutex;

use agent_bridge::agents::{self, Failure};
use agent_bridge::bridge::preflight::{LoginCheck, Preflight, Readiness};
use agent_bridge::config;
use agent_bridge::context::{Clock, Context};
use agent_bridge::policy::AgentId;
use support::agy::{FakeAgy, argv, flag};
use support::prelude::*;
use support::process::wait_until;

/// Some moment, in milliseconds.
const START: i64 = 1_800_000_000_000;

struct Asking {
    world: World,
    agy: FakeAgy,
    version: &'static str,
}

impl Asking {
    /// `probes` is what happens when the program is asked, first to last.
    fn new(version: &'static str, probes: Value) -> Self {
        let world = World::new().build();
        let agy = FakeAgy::put(&world, &json!({ "version": version, "probes": probes }));
        Self { world, agy, version }
    }

    fn play(&self, probes: Value) {
        self.agy.forget();
        self.agy.play(&json!({ "version": self.version, "probes": probes }));
    }

    /// The world at so many seconds after the start.
    fn context(&self, seconds: i64) -> Context {
        Context {
            env: self.world.env().clone(),
            home: Some(self.world.home()),
            cwd: self.world.repo(),
            exe: BRIDGE.into(),
            clock: Clock::Fixed(START + seconds * 1000),
        }
    }

    /// Does something with the question, at that time.
    fn with<T>(&self, seconds: i64, act: impl FnOnce(&Preflight<'_>) -> T) -> T {
        let context = self.context(seconds);
        let config = config::load(&context, None).unwrap();
        let agent = agents::require(AgentId::Antigravity).unwrap();
        let settings = &config.agents[&AgentId::Antigravity];
        let check = LoginCheck::of(&context, agent, settings, Some(self.version)).unwrap();
        let asking = Preflight::new(&context, &self.world.state(), &check);
        act(&asking.bounded(Duration::from_secs(20), Duration::from_millis(5)))
    }

    #[track_caller]
    fn ask(&self, seconds: i64) -> Readiness {
        self.with(seconds, |preflight| preflight.ask(&mut || None).unwrap())
    }

    fn probes(&self) -> usize {
        self.agy.probes().len()
    }

    /// Nothing is left of a question but its answer.
    #[track_caller]
    fn nothing_is_left(&self) {
        let names = std::fs::read_dir(self.world.state().join("preflight")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let more: Vec<_> =
            names.filter(|name| !name.ends_with(".json") && !name.ends_with(".lock")).collect();
        assert_eq!(more, [""; 0]);
        self.world.assert_no_process_left(DEADLINE);
    }
}

#[track_caller]
fn failure(readiness: Readiness) -> Failure {
    match readiness {
        Readiness::Refused(refused) => {
            assert!(!refused.detail.is_empty() && !refused.hint.is_empty(), "{refused:?}");
            assert!(!refused.detail.contains("client_id"), "an address for a login is shown: {refused:?}");
            refused.failure
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn twenty_who_ask_at_once_are_answered_by_one_question() {
    for (end, expected) in [
        (json!({ "say": "12% used" }), None),
        (json!({ "login_prompt": "stderr" }), Some(Failure::LoginRequired)),
    ] {
        let asking = Asking::new("1.3.3", json!([]));
        let go = asking.world.path().join("go");
        asking.play(json!([[{ "wait_for": go }, end]]));
        let waiting = Mutex::new(HashSet::new());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..20)
                .map(|number| {
                    let (asking, waiting) = (&asking, &waiting);
                    scope.spawn(move || {
                        let mut wait = || {
                            waiting.lock().unwrap().insert(number);
                            None
                        };
                        asking.with(0, |preflight| preflight.ask(&mut wait).unwrap())
                    })
                })
                .collect();
            // One asks and the others wait for it before there is an answer.
            wait_until("all of them wait", DEADLINE, || waiting.lock().unwrap().len() == 20);
            std::fs::write(&go, "").unwrap();
            for thread in threads {
                match expected {
                    None => assert_eq!(thread.join().unwrap(), Readiness::Ready),
                    Some(expected) => assert_eq!(failure(thread.join().unwrap()), expected),
                }
            }
        });
        assert_eq!(asking.probes(), 1);
        asking.nothing_is_left();
    }
}

#[test]
fn processes_that_start_together_share_a_question() {
    let world = World::new().build();
    let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3" }));
    let started: Vec<_> = (0..4)
        .map(|_| process::start(world.bridge_command(["delegate", "antigravity", "hi", "--cwd", "."])))
        .collect();
    for running in started {
        running.finish(DEADLINE).expect_code(0);
    }
    assert_eq!((agy.probes().len(), agy.runs().len()), (1, 4));
}

#[test]
fn a_success_is_good_for_a_minute() {
    let asking = Asking::new("1.3.3", json!([]));
    for (at, probes) in [(0, 1), (59, 1), (61, 2), (120, 2), (122, 3), (-10, 4)] {
        assert_eq!(asking.ask(at), Readiness::Ready);
        assert_eq!(asking.probes(), probes, "after {at} s");
    }
    asking.nothing_is_left();
}

#[test]
fn the_success_of_a_run_counts() {
    let asking = Asking::new("1.3.3", json!([]));
    asking.with(0, |preflight| preflight.note_success().unwrap());
    assert_eq!((asking.ask(59), asking.probes()), (Readiness::Ready, 0));
    asking.with(50, |preflight| preflight.note_success().unwrap());
    assert_eq!((asking.ask(109), asking.probes()), (Readiness::Ready, 0));
    assert_eq!((asking.ask(111), asking.probes()), (Readiness::Ready, 1));
}

#[test]
fn a_run_that_succeeds_says_so() {
    let mut world = World::new().build();
    let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3" }));
    for (seconds, probes) in [(0, 1), (50, 1), (100, 1), (170, 2)] {
        world.set_env("AGENT_BRIDGE_TEST_CLOCK_OFFSET_MS", (seconds * 1000).to_string());
        world.bridge(["delegate", "antigravity", "hi", "--cwd", "."]).expect_code(0);
        assert_eq!(agy.probes().len(), probes, "after {seconds} s");
    }
}

#[test]
fn another_login_is_another_question() {
    let asking = Asking::new("1.3.3", json!([]));
    asking.ask(0);
    asking.world.set_agent(
        "antigravity",
        json!({ "enabled": true, "bin": asking.agy.program(), "extraEnv": { "AGY_ADC_AUTH": "true" } }),
    );
    asking.ask(1);
    assert_eq!(asking.probes(), 2);
    assert_eq!(asking.agy.probes()[1]["env"]["AGY_ADC_AUTH"], "true");
}

#[test]
fn what_may_only_be_slow_is_asked_once_more() {
    let slow = json!([{ "keyring": null }, { "vanish": 1 }]);
    let timed_out = json!([{ "stderr": "Error: authentication timed out" }, { "vanish": 1 }]);
    for (acts, expected) in [(slow, Failure::KeyringTimeout), (timed_out, Failure::AuthTimeout)] {
        let asking = Asking::new("1.2.6", json!([acts, []]));
        assert_eq!((asking.ask(0), asking.probes()), (Readiness::Ready, 2), "the second time it works");
        asking.play(json!([acts]));
        assert_eq!(failure(asking.ask(100)), expected);
        assert_eq!(asking.probes(), 2, "it is not asked a third time");
        // A failure is not kept.
        assert_eq!(failure(asking.ask(101)), expected);
        assert_eq!(asking.probes(), 4);
        asking.nothing_is_left();
    }
}

#[test]
fn silence_is_a_time_out() {
    let asking = Asking::new("1.2.6", json!([[{ "hang": null }]]));
    let readiness = asking.with(0, |preflight| {
        let impatient = preflight.clone().bounded(Duration::from_millis(300), Duration::from_millis(5));
        impatient.ask(&mut || None).unwrap()
    });
    assert_eq!((failure(readiness), asking.probes()), (Failure::AuthTimeout, 2));
    asking.nothing_is_left();
}

#[test]
fn a_login_prompt_is_final_unless_the_login_worked_a_moment_ago() {
    let prompt = json!([{ "login_prompt": "stdout" }, { "hang": null }]);
    for (stream, version) in [("stdout", "1.1.11"), ("stderr", "1.3.3")] {
        let asking = Asking::new(version, json!([[{ "login_prompt": stream }, { "hang": null }]]));
        assert_eq!((failure(asking.ask(0)), asking.probes()), (Failure::LoginRequired, 1));
        asking.nothing_is_left();
    }
    let asking = Asking::new("1.2.6", json!([]));
    for (at, works_then, probes) in [(61, true, 2), (599, false, 2), (601, true, 1)] {
        asking.with(0, |preflight| preflight.note_success().unwrap());
        asking.play(json!([prompt, if works_then { json!([]) } else { prompt.clone() }]));
        let readiness = asking.ask(at);
        assert_eq!(asking.probes(), probes, "after {at} s");
        match probes == 2 && works_then {
            true => assert_eq!(readiness, Readiness::Ready),
            false => assert_eq!(failure(readiness), Failure::LoginRequired),
        }
    }
}

#[test]
fn a_run_that_was_asked_to_log_in_may_try_again_if_it_had_done_nothing() {
    let asking = Asking::new("1.2.6", json!([]));
    let again =
        |at, tool_ran| asking.with(at, |preflight| preflight.ask_again(tool_ran, &mut || None).unwrap());
    assert_eq!((failure(again(0, false)), asking.probes()), (Failure::LoginRequired, 0));
    asking.with(0, |preflight| preflight.note_success().unwrap());
    assert_eq!((failure(again(1, true)), asking.probes()), (Failure::LoginRequired, 0));
    // The success of a second ago does not answer it.
    assert_eq!((again(1, false), asking.probes()), (Readiness::Ready, 1));
}

#[test]
fn a_question_can_be_stopped() {
    let asking = Asking::new("1.3.3", json!([[{ "hang": null }]]));
    let mut stop = || (asking.probes() > 0).then(|| "enough".to_owned());
    let readiness = asking.with(0, |preflight| preflight.ask(&mut stop).unwrap());
    assert_eq!(readiness, Readiness::Stopped("enough".into()));
    asking.nothing_is_left();
}

#[test]
fn it_is_asked_in_the_way_of_the_version_and_with_the_login_of_the_run() {
    for version in ["1.1.8", "1.1.11", "1.3.3"] {
        let asking = Asking::new(version, json!([]));
        support::world::write(
            &asking.world.home().join(".gemini/antigravity-cli/antigravity-oauth-token"),
            "the-login",
        );
        assert_eq!(asking.ask(0), Readiness::Ready, "{version}");
        let [probe] = asking.agy.probes().try_into().unwrap();
        if version == "1.1.8" {
            assert_eq!(argv(&probe), ["models"]);
            continue;
        }
        assert_eq!(argv(&probe).last(), Some(&"-p=/usage"));
        assert_eq!(
            (flag(&probe, "disable-slash-commands"), flag(&probe, "output-format")),
            (None, Some("json"))
        );
        assert_eq!(probe["root_files"]["antigravity-cli/antigravity-oauth-token"], "the-login");
        assert_eq!(probe["env"]["AGY_CLI_DISABLE_AUTO_UPDATE"], "true");
    }
    for (text, expected) in [
        ("authentication required. Run 'agy' to log in, then retry", Failure::LoginRequired),
        ("Error: authentication timed out", Failure::AuthTimeout),
    ] {
        let asking = Asking::new("1.1.8", json!([[{ "stderr": text }, { "exit": 1 }]]));
        assert_eq!(failure(asking.ask(0)), expected);
    }
}

#[test]
fn an_answer_about_something_else_keeps_no_run_from_saying_more() {
    let asking = Asking::new("1.3.3", json!([[{ "stderr": "Error: no such command" }, { "vanish": 1 }]]));
    assert_eq!(asking.ask(0), Readiness::Ready);
    // It is not taken for a success.
    assert_eq!((asking.ask(1), asking.probes()), (Readiness::Ready, 2));
}

#[test]
fn a_run_without_a_login_is_not_started() {
    for (probe, outcome, code, cause) in [
        (
            json!([{ "login_prompt": "stderr" }, { "hang": null }]),
            "login-required",
            "AGENT_LOGIN_REQUIRED",
            "login-required",
        ),
        (
            json!([{ "keyring": null }, { "vanish": 1 }]),
            "worker-error",
            "AGENT_KEYRING_TIMEOUT",
            "keyring-timeout",
        ),
        (
            json!([{ "stderr": "authentication timed out" }, { "vanish": 1 }]),
            "worker-error",
            "AGENT_AUTH_TIMEOUT",
            "auth-timeout",
        ),
    ] {
        let world = World::new().build();
        let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3", "probes": [probe] }));
        let turn = world.bridge(["delegate", "antigravity", "hi", "--cwd", ".", "--json"]).json();
        let facts = [&turn["outcome"], &turn["code"], &turn["meta"]["failure"]];
        assert_eq!(facts, [outcome, code, cause], "{turn:#}");
        assert!(turn["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{turn:#}");
        assert!(agy.runs().is_empty(), "it was started");
        world.assert_no_process_left(DEADLINE);
    }
}

#[test]
fn a_turn_that_waits_for_the_question_can_be_cancelled() {
    let world = World::new().build();
    let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3", "probes": [[{ "hang": null }]] }));
    let mut host = world.host();
    host.initialize();
    let arguments = json!({ "agent": "antigravity", "prompt": "hi", "cwd": world.repo(), "wait_seconds": 0 });
    let turn = host.call("delegate_task", arguments).ok();
    wait_until("it is asked", DEADLINE, || !agy.probes().is_empty());
    let ended = host.call("cancel_turn", json!({ "turn_id": turn.structured["turn_id"] })).ok();
    assert_eq!(ended.structured["result"]["outcome"], "cancelled", "{:#}", ended.structured);
    assert!(agy.runs().is_empty());
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    world.assert_no_process_left(DEADLINE);
}
