//! Antigravity as a worker, against a stand-in of `agy` in the shape of each of its versions.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::agy::{FakeAgy, argv, flag};
use support::prelude::*;

/// Versions at which something changed for who starts it.
const ERAS: [&str; 6] = ["1.1.8", "1.1.15", "1.1.20", "1.1.28", "1.2.6", "1.3.3"];

/// A world in which it may do everything.
fn world() -> World {
    World::new().ceiling("full-access").build()
}

/// Delegates and gives the turn, whatever became of it.
#[track_caller]
fn delegate(world: &World, prompt: &str, options: &[&str]) -> Value {
    let arguments = [&["delegate", "antigravity", "--json", "--cwd", "."], options, &["--", prompt]].concat();
    let finished = world.bridge(arguments);
    assert!(!finished.stdout.is_empty(), "{finished}");
    finished.json()
}

/// A turn in which this happens.
#[track_caller]
fn turn_of(version: &str, acts: Value, options: &[&str]) -> (World, FakeAgy, Value) {
    let world = world();
    let agy = FakeAgy::put(&world, &json!({ "version": version, "runs": [acts] }));
    let turn = delegate(&world, "Do it.", options);
    (world, agy, turn)
}

/// The outcome and the cause.
#[track_caller]
fn verdict(turn: &Value) -> (&str, &str) {
    (turn["outcome"].as_str().unwrap_or("none"), turn["meta"]["failure"].as_str().unwrap_or("none"))
}

const WRITE: &[&str] = &["--sandbox", "workspace-write"];
#[cfg(unix)]
#[cfg(unix)]
const FULL: &[&str] = &["--sandbox", "full-access"];

#[test]
fn a_task_is_done_by_every_version() {
    let prompt = "Say \"hi\" in\ntwo lines, -p and --all.";
    for version in ERAS {
        let world = world();
        let acts =
            json!([{ "say": "First. " }, { "edit": ["made.txt", "made\n"] }, { "say": "Second <&>." }]);
        let agy = FakeAgy::put(&world, &json!({ "version": version, "runs": [acts] }));
        let turn = delegate(&world, prompt, WRITE);
        let facts = ["outcome", "output", "sandbox", "continuity"].map(|key| turn[key].clone());
        assert_eq!(
            json!(facts),
            json!(["success", "First. Second <&>.", "workspace-write", "new"]),
            "{version}: {turn:#}"
        );
        assert_eq!(turn["meta"]["cliVersion"], version);
        assert_eq!(turn["meta"]["cliVersionUntested"], Value::Null);
        assert_eq!(
            turn["tokens"],
            json!({ "input": 1200, "cached_input": 900, "output": 100, "reasoning": 20 })
        );
        assert_eq!(world.read("made.txt"), "made\n", "{version}");
        let [run] = agy.runs().try_into().unwrap();
        assert_eq!(run["prompt"], prompt, "{version}");
        assert_eq!(run["workspace"], run["cwd"]);
        assert_eq!(run["cwd"].as_str().unwrap(), world.repo().to_str().unwrap());
        world.assert_no_process_left(DEADLINE);
    }
}

#[test]
fn the_prompt_is_no_argument_where_it_can_be_helped() {
    for (version, key) in [("1.1.14", "type"), ("1.1.15", "event"), ("1.3.3", "event")] {
        let (_world, agy, turn) = turn_of(version, json!([]), &[]);
        assert_eq!(turn["outcome"], "success", "{turn:#}");
        let [run] = agy.runs().try_into().unwrap();
        assert_eq!(argv(&run).last(), Some(&"-p="));
        assert!(!argv(&run).concat().contains("Do it."));
        let line: Value = serde_json::from_str(run["stdin"].as_str().unwrap()).unwrap();
        let message = json!({ "role": "user", "content": [{ "type": "text", "text": "Do it." }] });
        assert_eq!(line, json!({ key: "user", "message": message }), "{version}");
    }
    let (_world, agy, _) = turn_of("1.1.8", json!([]), &[]);
    let [run] = agy.runs().try_into().unwrap();
    assert_eq!(argv(&run).last(), Some(&"-p=Do it."));
    assert_eq!(run["stdin"], Value::Null);
}

#[test]
fn a_long_prompt_needs_a_version_that_reads_it() {
    let long = "words ".repeat(40_000);
    for (version, code) in [("1.1.8", "AGENT_PROMPT_TOO_LONG"), ("1.2.6", "")] {
        let world = world();
        let agy = FakeAgy::put(&world, &json!({ "version": version }));
        world.write("task.txt", &long);
        let finished =
            world.bridge(["delegate", "antigravity", "--json", "--prompt-file", "task.txt", "--cwd", "."]);
        if code.is_empty() {
            assert_eq!(finished.expect_code(0).json()["outcome"], "success");
            assert_eq!(agy.runs()[0]["prompt"], long);
        } else {
            let finished = finished.expect_code(2);
            assert!(finished.stderr().contains(code), "{finished}");
            assert!(agy.runs().is_empty());
        }
    }
}

#[test]
fn a_version_without_structured_output_is_refused_and_one_that_is_not_known_is_remarked_upon() {
    let world = world();
    let agy = FakeAgy::put(&world, &json!({ "version": "1.1.7" }));
    let refused = world.bridge(["delegate", "antigravity", "hi", "--cwd", "."]).expect_code(2);
    assert!(refused.stderr().contains("AGENT_VERSION_UNSUPPORTED"), "{refused}");
    assert!(refused.stderr().contains("1.1.7") && refused.stderr().contains("1.1.8"), "{refused}");
    assert!(agy.runs().is_empty() && agy.records("refused").is_empty());
    // An update is noticed without a restart.
    agy.play(&json!({ "version": "1.9.0", "version_text": "agy version v1.9.0 (linux/amd64)" }));
    let turn = delegate(&world, "hi", &[]);
    assert_eq!(turn["outcome"], "success");
    assert_eq!(turn["meta"]["cliVersion"], "1.9.0", "{turn:#}");
    assert_eq!(turn["meta"]["cliVersionUntested"], true);
}

#[test]
fn every_run_says_where_it_works_what_it_may_do_and_how_long() {
    for (sandbox, mode) in [
        ("read-only", "--mode=plan"),
        ("workspace-write", "--mode=accept-edits"),
        ("full-access", "--dangerously-skip-permissions"),
    ] {
        let (world, agy, turn) = turn_of(
            "1.3.3",
            json!([]),
            &["--sandbox", sandbox, "--timeout", "100", "--model", "gemini-3-pro"],
        );
        assert_eq!(turn["outcome"], "success", "{turn:#}");
        let [run] = agy.runs().try_into().unwrap();
        let args = argv(&run);
        let raising = args.iter().filter(|arg| arg.contains("permissions") || arg.contains("--mode="));
        assert_eq!(raising.collect::<Vec<_>>(), [&mode], "{args:?}");
        assert_eq!(flag(&run, "sandbox"), None);
        // Slash commands carry plan mode.
        assert_eq!(flag(&run, "disable-slash-commands").is_some(), sandbox != "read-only");
        assert_eq!(flag(&run, "print-timeout"), Some("160s"));
        assert_eq!(flag(&run, "add-dir"), world.repo().to_str());
        assert_eq!(flag(&run, "model"), Some("gemini-3-pro"));
        assert!(flag(&run, "log-file").unwrap().ends_with("cli.log"));
        assert_eq!(run["env"]["AGY_CLI_DISABLE_AUTO_UPDATE"], "true");
    }
}

#[test]
fn flags_that_a_version_does_not_know_are_not_given() {
    let (_world, agy, turn) = turn_of("1.1.8", json!([]), WRITE);
    assert_eq!(turn["outcome"], "success", "{turn:#}");
    let [run] = agy.runs().try_into().unwrap();
    assert_eq!((flag(&run, "disable-slash-commands"), flag(&run, "input-format")), (None, None));
}

#[test]
fn what_the_host_has_of_another_run_does_not_reach_it() {
    let mut world = world();
    for name in ["ANTIGRAVITY_SESSION", "ANTIGRAVITY_CLI_ALIAS", "CLAUDECODE", "GEMINI_CLI"] {
        world.set_env(name, "x");
    }
    let agy = FakeAgy::put(&world, &json!({}));
    assert_eq!(delegate(&world, "hi", &[])["outcome"], "success");
    let [run] = agy.runs().try_into().unwrap();
    let names: Vec<&String> = run["env"].as_object().unwrap().keys().collect();
    let foreign = |name: &&&String| {
        name.starts_with("ANTIGRAVITY_") || ["CLAUDECODE", "GEMINI_CLI"].contains(&name.as_str())
    };
    assert_eq!(names.iter().filter(foreign).count(), 0, "{names:?}");
}

#[test]
fn a_read_only_run_is_no_way_to_a_command_of_the_program() {
    let world = world();
    let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3" }));
    let refused = world.bridge(["delegate", "antigravity", "/goal take over", "--cwd", "."]).expect_code(2);
    assert!(
        refused.stderr().contains("AGENT_PROMPT_IS_COMMAND") && refused.stderr().contains("/goal"),
        "{refused}"
    );
    assert!(agy.runs().is_empty());
    for (prompt, options) in [("/usr/bin/x is broken, why?", &[][..]), ("/goal take over", WRITE)] {
        agy.forget();
        assert_eq!(delegate(&world, prompt, options)["outcome"], "success");
        let [run] = agy.runs().try_into().unwrap();
        let expanded = run["slash_command"].as_str().filter(|word| *word == "goal");
        assert_eq!((run["prompt"].as_str(), expanded), (Some(prompt), None));
    }
}

#[test]
fn extra_arguments_cannot_change_what_was_granted() {
    for args in [
        &["-mode=accept-edits"][..],
        &["--mode", "accept-edits"],
        &["-dangerously-skip-permissions"],
        &["--gemini_dir=/x"],
        &["-c"],
        &["-p=x"],
        &["word"],
    ] {
        let world = world();
        let agy = FakeAgy::put_with(&world, &json!({}), json!({ "extraArgs": args }));
        let refused = world.bridge(["delegate", "antigravity", "hi", "--cwd", "."]).expect_code(2);
        assert!(refused.stderr().contains("AGENT_EXTRA_ARG_REFUSED"), "{args:?}: {refused}");
        assert!(agy.runs().is_empty());
    }
    let world = world();
    let agy = FakeAgy::put_with(&world, &json!({}), json!({ "extraArgs": ["--effort", "high"] }));
    assert_eq!(delegate(&world, "hi", &[])["outcome"], "success");
    assert_eq!(
        argv(&agy.runs()[0]).iter().rev().take(3).copied().collect::<Vec<_>>(),
        ["-p=", "high", "--effort"]
    );
}

#[test]
fn a_denial_is_no_success_in_any_of_its_shapes() {
    for version in ["1.1.8", "1.1.13", "1.1.15", "1.1.20", "1.1.28", "1.3.3"] {
        let acts =
            json!([{ "say": "I will run it. " }, { "command": "cargo test" }, { "say": "I could not." }]);
        let (_world, _agy, turn) = turn_of(version, acts, WRITE);
        assert_eq!(verdict(&turn), ("worker-error", "permission-denied"), "{version}: {turn:#}");
        assert!(turn["detail"].as_str().unwrap().contains("command"), "{version}: {turn:#}");
    }
}

#[test]
fn a_denial_after_which_nothing_is_printed_is_told() {
    let notice = "a tool required the \"write_file\" permission that headless mode cannot prompt for, so it was auto-denied";
    let (_world, _agy, turn) = turn_of("1.1.8", json!([{ "stderr": notice }, { "vanish": 0 }]), WRITE);
    assert_eq!(verdict(&turn), ("worker-error", "permission-denied"), "{turn:#}");
}

#[test]
fn a_reader_that_was_kept_from_writing_and_answers_has_succeeded() {
    for version in ["1.1.20", "1.3.3"] {
        let acts = json!([{ "edit": ["x.txt", "x"] }, { "say": "Line 3 is wrong." }]);
        let (world, _agy, turn) = turn_of(version, acts, &[]);
        assert_eq!(verdict(&turn), ("success", "none"), "{version}: {turn:#}");
        assert!(!world.file("x.txt").exists());
        let (_world, _agy, turn) = turn_of(version, json!([{ "edit": ["x.txt", "x"] }]), &[]);
        assert_eq!(verdict(&turn), ("worker-error", "permission-denied"), "{version}: {turn:#}");
    }
}

#[test]
fn an_expired_time_is_no_success() {
    for version in ERAS {
        let (_world, _agy, turn) =
            turn_of(version, json!([{ "say": "Half of" }, { "print_timeout": null }]), WRITE);
        assert_eq!(verdict(&turn), ("timeout", "partial-timeout"), "{version}: {turn:#}");
        assert_eq!(turn["output"], "Half of", "{version}");
    }
}

#[test]
fn failures_of_the_service_are_told_apart() {
    let world = world();
    let agy = FakeAgy::put(&world, &json!({}));
    for (status, message, outcome, failure) in [
        ("ResourceExhausted", "Quota exceeded. Resets at 3pm (UTC).", "quota", "quota"),
        ("Unknown", "HTTP 429: slow down", "quota", "quota"),
        ("NotFound", "model not found: gemini-9", "worker-error", "model-unavailable"),
        ("InvalidArgument", "blocked by safety settings", "worker-error", "content-filtered"),
        ("Internal", "the backend fell over", "worker-error", "worker-error"),
        ("DeadlineExceeded", "authentication timed out", "worker-error", "auth-timeout"),
    ] {
        for version in ["1.1.8", "1.1.20", "1.2.6", "1.3.3"] {
            let fail = json!({ "fail": { "status": status, "message": message, "retryable": true } });
            agy.forget();
            agy.play(&json!({ "version": version, "runs": [[{ "say": "So far. " }, fail]] }));
            let turn = delegate(&world, "hi", WRITE);
            assert_eq!(verdict(&turn), (outcome, failure), "{version} {status}: {turn:#}");
            assert!(turn["detail"].as_str().unwrap().contains(&message[..8]), "{turn:#}");
            assert_eq!(turn["meta"]["retryable"].as_bool().is_some(), version >= "1.2.6", "{turn:#}");
        }
    }
    assert_eq!(delegate(&world, "hi", &["--model", "gemini-9"])["meta"]["failure"], "model-unavailable");
}

#[test]
fn who_is_not_logged_in_is_not_waited_for() {
    for (stream, version) in [("stdout", "1.1.8"), ("stderr", "1.2.6"), ("stdout", "1.3.3")] {
        let (world, _agy, turn) =
            turn_of(version, json!([{ "login_prompt": stream }, { "hang": null }]), &[]);
        assert_eq!(verdict(&turn), ("login-required", "login-required"), "{version} {stream}: {turn:#}");
        assert!(!turn.to_string().contains("client_id"), "an address for a login is shown: {turn:#}");
        world.assert_no_process_left(DEADLINE);
        // A host that tries again at once gets the same word, and nothing is started for it.
        let again = world.bridge(["delegate", "antigravity", "hi", "--cwd", "."]).expect_code(2);
        assert!(again.stderr().contains("AGENT_LOGIN_REQUIRED"), "{again}");
    }
    for (text, version) in [
        ("Authentication expired. Please log back in.", "1.3.3"),
        ("Error: authentication required. Run 'agy' to log in, then retry", "1.1.20"),
        ("You are not logged into Antigravity.", "1.1.15"),
    ] {
        let (_world, _agy, turn) = turn_of(version, json!([{ "stderr": text }, { "vanish": 1 }]), &[]);
        assert_eq!(verdict(&turn), ("login-required", "login-required"), "{text}: {turn:#}");
    }
    let fail = json!([{ "fail": { "status": "Unauthenticated", "message": "token revoked" } }]);
    for version in ["1.1.20", "1.2.6"] {
        let (_world, _agy, turn) = turn_of(version, fail.clone(), &[]);
        assert_eq!(verdict(&turn), ("login-required", "login-required"), "{version}: {turn:#}");
    }
}

#[test]
fn a_model_that_talks_about_logins_is_heard_to_the_end() {
    let text = "Authentication required. Please visit the URL to log in:\nhttps://accounts.google.com/o/oauth2/auth?x=1";
    let world = world();
    FakeAgy::put(&world, &json!({ "raw_newlines": true, "runs": [[{ "say": text }]] }));
    let turn = delegate(&world, "hi", &[]);
    assert_eq!((verdict(&turn), &turn["output"]), (("success", "none"), &json!(text)), "{turn:#}");
}

#[test]
fn a_login_prompt_that_is_taken_back_was_still_one() {
    let acts = json!([{ "login_prompt": "stderr" }, { "sleep_ms": 2000 }, { "say": "Logged in after all." }]);
    let (_world, _agy, turn) = turn_of("1.2.6", acts, &[]);
    assert_eq!(verdict(&turn), ("login-required", "login-required"), "{turn:#}");
    // Nothing was done: whoever asks again may start it again.
    assert_eq!(turn["meta"]["toolCalls"], Value::Null);
}

#[test]
fn the_key_ring_is_found_in_the_log_where_nothing_else_tells() {
    let (_world, _agy, turn) = turn_of("1.1.20", json!([{ "keyring": null }, { "vanish": 1 }]), &[]);
    assert_eq!(verdict(&turn), ("worker-error", "keyring-timeout"), "{turn:#}");
    // It had another way in.
    let (_world, _agy, turn) = turn_of("1.1.20", json!([{ "keyring": null }, { "say": "Done." }]), &[]);
    assert_eq!(verdict(&turn), ("success", "none"), "{turn:#}");
    let (_world, _agy, turn) =
        turn_of("1.2.6", json!([{ "stderr": "Error: authentication timed out" }, { "vanish": 1 }]), &[]);
    assert_eq!(verdict(&turn), ("worker-error", "auth-timeout"), "{turn:#}");
}

#[test]
fn a_stream_that_breaks_off_is_no_answer() {
    for (acts, output) in [
        (json!([{ "say": "So far" }, { "vanish": 0 }]), "So far"),
        (json!([{ "say": "So far" }, { "vanish": 1 }]), "So far"),
        (json!([{ "say": "So far" }, { "torn_event": null }, { "vanish": 0 }]), "So far"),
        (json!([{ "say": "All" }, { "torn_event": null }, { "say": "" }]), "All"),
        (json!([{ "say": "All" }, { "torn_event": null }, { "stdout": "\n" }, { "say": "" }]), "All"),
    ] {
        let (_world, _agy, turn) = turn_of("1.2.6", acts.clone(), &[]);
        assert_eq!(verdict(&turn), ("worker-error", "stream-error"), "{acts}: {turn:#}");
        assert_eq!(turn["output"], output, "{acts}");
    }
    let (_world, _agy, turn) = turn_of("1.2.6", json!([{ "vanish": 0 }]), &[]);
    assert_eq!(verdict(&turn), ("empty", "stream-error"), "{turn:#}");
}

#[test]
fn output_that_is_something_else_is_told_and_kept() {
    for (text, code, outcome, failure) in [
        ("All done, no JSON.\n", 0, "format-unrecognised", "invalid-json"),
        ("panic: runtime error\n", 2, "worker-error", "invalid-json"),
        ("{\"answer\": 42}\n", 0, "format-unrecognised", "invalid-envelope"),
        (
            "{\"event\":\"result\",\"result\":{\"response\":\"x\"}}\n",
            0,
            "format-unrecognised",
            "invalid-envelope",
        ),
        (
            "{\"event\":\"result\",\"result\":{\"status\":\"SUCCESS\"}}\n",
            0,
            "format-unrecognised",
            "invalid-envelope",
        ),
        ("{\"status\":\"FINE\",\"response\":\"x\"}\n", 0, "format-unrecognised", "invalid-envelope"),
    ] {
        let (_world, _agy, turn) = turn_of("1.2.6", json!([{ "stdout": text }, { "vanish": code }]), &[]);
        assert_eq!(verdict(&turn), (outcome, failure), "{text}: {turn:#}");
    }
}

#[test]
fn carelessly_written_output_is_read() {
    for version in ERAS {
        let world = world();
        let said = "one\ntwo: {\"x\": [\"y\"]}\n\nthree";
        let scenario = json!({
            "version": version,
            "banner": "This conversation is open elsewhere.\n{note} and an update is available",
            "raw_newlines": true,
            "runs": [[{ "say": said }]],
        });
        FakeAgy::put(&world, &scenario);
        let turn = delegate(&world, "hi", &[]);
        assert_eq!(
            (&turn["outcome"], &turn["output"]),
            (&json!("success"), &json!(said)),
            "{version}: {turn:#}"
        );
    }
    // A single envelope over many lines, instead of events.
    let envelope = json!({ "conversation_id": "c0ffee00-1", "status": "SUCCESS", "response": "Well." });
    let (_world, _agy, turn) =
        turn_of("1.2.6", json!([{ "stdout": format!("hello\n{envelope:#}\nbye\n") }, { "vanish": 0 }]), &[]);
    assert_eq!((&turn["outcome"], &turn["output"]), (&json!("success"), &json!("Well.")), "{turn:#}");
}

#[test]
fn no_single_proof_is_one() {
    for (acts, outcome, failure) in [
        (json!([{ "say": "Done." }, { "exit": 1 }]), "worker-error", "worker-error"),
        (json!([{ "say": "Done." }, { "envelope": { "status": "ERROR" } }]), "worker-error", "worker-error"),
        (json!([{ "say": "Done." }, { "envelope": { "status": "CANCELED" } }]), "cancelled", "cancelled"),
        (json!([{ "say": "Done." }, { "envelope": { "status": "INTERRUPTED" } }]), "cancelled", "cancelled"),
        (
            json!([{ "say": "Done." }, { "envelope": { "status": "WAITING" } }]),
            "worker-error",
            "worker-error",
        ),
        (
            json!([{ "say": "Done." }, { "envelope": { "status": 7 } }]),
            "format-unrecognised",
            "invalid-envelope",
        ),
        (
            json!([{ "say": "Done." }, { "envelope": { "response": null } }]),
            "format-unrecognised",
            "invalid-envelope",
        ),
        (json!([{ "say": " \n" }]), "empty", "none"),
    ] {
        let (_world, _agy, turn) = turn_of("1.3.3", acts.clone(), WRITE);
        assert_eq!(verdict(&turn), (outcome, failure), "{acts}: {turn:#}");
    }
}

#[test]
fn output_without_end_is_cut_off() {
    let (world, _agy, turn) = turn_of("1.3.3", json!([{ "huge": 20_000_000 }, { "hang": null }]), &[]);
    assert_eq!(turn["code"], "OUTPUT_LINE_TOO_LONG", "{turn:#}");
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn what_it_leaves_behind_does_not_hold_the_turn() {
    let (world, _agy, turn) = turn_of("1.1.20", json!([{ "hold_stdout": null }, { "say": "Done." }]), &[]);
    assert_eq!((verdict(&turn), &turn["output"]), (("success", "none"), &json!("Done.")), "{turn:#}");
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn it_ends_at_its_deadline_even_if_it_does_not_hear() {
    let acts = json!([{ "ignore_term": null }, { "say": "So far" }, { "hang": null }]);
    let (world, _agy, turn) = turn_of("1.3.3", acts, &["--timeout", "1"]);
    assert_eq!(
        (&turn["outcome"], &turn["code"]),
        (&json!("timeout"), &json!("TURN_RUN_DEADLINE")),
        "{turn:#}"
    );
    assert_eq!(turn["output"], "So far");
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn what_was_changed_before_a_failure_stays() {
    let fail = json!({ "fail": { "status": "ResourceExhausted", "message": "Quota exceeded" } });
    let (world, _agy, turn) = turn_of("1.2.6", json!([{ "edit": ["a/new.txt", "new\n"] }, fail]), WRITE);
    assert_eq!(verdict(&turn), ("quota", "quota"), "{turn:#}");
    assert_eq!(world.git(["status", "--porcelain"]), "?? a/");
    // A worker under `--sandbox` was seen to write all the same.
    let (world, _agy, _) = turn_of("1.2.6", json!([{ "sneak_edit": ["b.txt", "b"] }, { "say": "." }]), &[]);
    assert_eq!(world.git(["status", "--porcelain"]), "?? b.txt");
}

#[cfg(unix)]
#[test]
fn with_full_access_it_may_do_all_that_a_user_may() {
    let acts = json!([
        { "rename": ["README.md", "READ.md"] },
        { "symlink": ["READ.md", "link"] },
        { "commit": "Moved" },
        { "delete": "READ.md" },
        { "say": "Moved." },
    ]);
    let (world, _agy, turn) = turn_of("1.3.3", acts.clone(), FULL);
    assert_eq!(verdict(&turn), ("success", "none"), "{turn:#}");
    assert_eq!(world.git(["log", "--format=%s"]), "Moved\nStart");
    assert_eq!(world.git(["status", "--porcelain"]), " D READ.md");
    let (world, _agy, turn) = turn_of("1.3.3", acts, &[]);
    assert_eq!(turn["meta"]["permissionDenials"], 4, "{turn:#}");
    assert_eq!(
        (world.git(["log", "--format=%s"]).as_str(), world.git(["status", "--porcelain"]).as_str()),
        ("Start", "")
    );
}

#[test]
fn a_session_goes_on_in_the_same_conversation() {
    for version in ["1.1.8", "1.3.3"] {
        let world = world();
        let agy = FakeAgy::put(&world, &json!({ "version": version }));
        let one = delegate(&world, "first", &[]);
        let session = one["bridge_session_id"].as_str().unwrap();
        let two = delegate(&world, "second", &["--session", session]);
        assert_eq!(
            (&two["outcome"], &two["continuity"]),
            (&json!("success"), &json!("native-resume")),
            "{two:#}"
        );
        let three = delegate(&world, "third", &["--session", session]);
        assert_eq!(
            (&three["outcome"], &three["meta"]["numTurns"]),
            (&json!("success"), &json!(3)),
            "{three:#}"
        );
        let [first, second, third] = agy.runs().try_into().unwrap();
        assert_eq!(flag(&first, "conversation"), None);
        assert!(flag(&second, "conversation").is_some());
        assert_eq!(flag(&second, "conversation"), flag(&third, "conversation"));
        assert_eq!(second["prompt"], "second");
    }
}

#[test]
fn another_conversation_than_the_one_asked_for_is_lost_work() {
    let world = world();
    let scenario = |acts: Value| json!({ "version": "1.3.3", "runs": [[], acts, []] });
    let other = "11111111-2222-3333-4444-555555555555";
    let agy = FakeAgy::put(&world, &scenario(json!([{ "envelope": { "conversation_id": other } }])));
    let one = delegate(&world, "first", &[]);
    let session = one["bridge_session_id"].as_str().unwrap();
    let two = delegate(&world, "second", &["--session", session]);
    assert_eq!(verdict(&two), ("worker-error", "conversation-lost"), "{two:#}");
    assert_eq!(two["code"], "NATIVE_SESSION_LOST");
    // The next turn has the conversation in its prompt instead.
    let three = delegate(&world, "third", &["--session", session]);
    assert_eq!(
        (&three["outcome"], &three["continuity"]),
        (&json!("success"), &json!("context-replay")),
        "{three:#}"
    );
    let runs = agy.runs();
    assert_eq!(flag(&runs[2], "conversation"), None);
    assert!(runs[2]["prompt"].as_str().unwrap().contains("first"));
}

#[test]
fn a_run_that_lost_its_conversation_is_ended_before_it_works() {
    let world = world();
    let agy = FakeAgy::put_with(&world, &json!({ "version": "1.3.3" }), json!({ "useUserConfig": true }));
    let one = delegate(&world, "first", WRITE);
    let session = one["bridge_session_id"].as_str().unwrap();
    std::fs::remove_dir_all(world.home().join(".gemini/antigravity-cli/conversations")).unwrap();
    agy.play(&json!({ "version": "1.3.3", "runs": [[{ "say": "Hm." }, { "hang": null }]] }));
    let two = delegate(&world, "second", &["--session", session, "--sandbox", "workspace-write"]);
    assert_eq!(verdict(&two), ("worker-error", "conversation-lost"), "{two:#}");
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn a_run_has_a_config_of_its_own_and_the_users_login() {
    let world = world();
    let users = world.home().join(".gemini");
    for (name, text) in [
        ("antigravity-cli/antigravity-oauth-token", "the-login"),
        ("antigravity-cli/settings.json", "{\"permissions\":{\"allow\":[\"command(*)\"]}}"),
        ("config/mcp_config.json", "{\"mcpServers\":{\"mine\":{\"command\":\"x\"}}}"),
    ] {
        support::world::write(&users.join(name), text);
    }
    let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3", "token_login": true }));
    let turn = delegate(&world, "hi", WRITE);
    assert_eq!(verdict(&turn), ("success", "none"), "{turn:#}");
    let [run] = agy.runs().try_into().unwrap();
    let files = &run["root_files"];
    let json_of = |name: &str| serde_json::from_str::<Value>(files[name].as_str().unwrap()).unwrap();
    assert_eq!(files["antigravity-cli/antigravity-oauth-token"], "the-login");
    assert_eq!(json_of("config/mcp_config.json"), json!({ "mcpServers": {} }));
    let repo = world.repo();
    assert_eq!(
        json_of("antigravity-cli/settings.json"),
        json!({
            "trustedWorkspaces": [repo],
            "permissions": { "allow": [format!("read_file({})", repo.display()), format!("write_file({})", repo.display())] },
        })
    );
    // All of it is gone, but for what the next turn needs to go on.
    let left: Vec<String> = walkdir::WalkDir::new(world.state())
        .into_iter()
        .map(|entry| entry.unwrap().path().display().to_string())
        .filter(|path| path.contains("token") || path.contains("mcp_config"))
        .collect();
    assert_eq!(left, [""; 0]);
    // With the user's config there is nothing of our own.
    agy.forget();
    world.set_agent("antigravity", json!({ "enabled": true, "bin": agy.program(), "useUserConfig": true }));
    assert_eq!(delegate(&world, "hi", &[])["outcome"], "success");
    assert_eq!(flag(&agy.runs()[0], "gemini_dir"), None);
}

#[test]
fn it_is_off_unless_it_is_switched_on() {
    let world = world();
    let agy = FakeAgy::put(&world, &json!({}));
    world.set_agent("antigravity", json!({ "enabled": true }));
    assert_eq!(delegate(&world, "hi", &[])["outcome"], "success", "it is found by its name");
    agy.forget();
    world.set_agent("antigravity", json!({ "bin": agy.program() }));
    let refused = world.bridge(["delegate", "antigravity", "hi", "--cwd", "."]).expect_code(2);
    assert!(refused.stderr().contains("AGENT_DISABLED"), "{refused}");
    assert!(agy.records("").is_empty());
}

#[test]
fn it_is_listed_as_what_it_is() {
    let world = world();
    let agy = FakeAgy::put(&world, &json!({ "version": "1.2.6" }));
    let agents = || {
        let mut host = world.host();
        host.initialize();
        let listed = host.call("list_agents", json!({})).ok().structured["agents"].clone();
        host.hang_up();
        listed.as_array().unwrap().iter().find(|agent| agent["id"] == "antigravity").unwrap().clone()
    };
    let listed = agents();
    assert_eq!(listed["displayName"], "Antigravity CLI (unverified)");
    assert_eq!(
        (&listed["health"]["binary"]["version"], &listed["health"]["usable"]),
        (&json!("1.2.6"), &json!(true))
    );
    assert_eq!(listed["capabilities"]["sandbox"], false);
    agy.play(&json!({ "version": "1.1.8", "probes": [[{ "login_prompt": "stderr" }, { "exit": 1 }]] }));
    let auth = &agents()["health"]["auth"];
    assert_eq!(
        (&auth["status"], &auth["loginCommand"]),
        (&json!("unauthenticated"), &json!("agy")),
        "{auth:#}"
    );
    let doctor = world.bridge(["doctor"]);
    assert!(doctor.stdout().contains("unverified"), "{doctor}");
}
