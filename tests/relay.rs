//! The relay through the real server: a task goes out, a packet comes back, and each refusal and each end has its
//! status and its record. The worker is the scripted agent; what real workers do is proven elsewhere.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::prelude::*;
use support::process::wait_until as wait_for;
use support::world::WorldBuilder;

fn report(summary: &str, files: &Value) -> String {
    json!({
        "summary": summary, "outcome": "done", "files": files,
        "tests": { "passed": 2, "failed": 0, "not_run": 1, "commands": ["cargo test"] },
        "criteria": [], "risks": ["none known"], "open_questions": [],
    })
    .to_string()
}

/// Writes a file and reports it.
fn good() -> Value {
    json!({ "steps": [
        { "write_file": { "path": "src/new.rs", "text": "fn new() {}\n" } },
        { "answer": { "text": report("Added new().", &json!([{ "path": "src/new.rs", "change": "added", "note": "" }])) } },
    ] })
}

struct Desk {
    host: Host,
    world: World,
}

impl Desk {
    fn new(script: &Value) -> Self {
        Self::with(script, |world| world)
    }

    fn with(script: &Value, more: impl FnOnce(WorldBuilder) -> WorldBuilder) -> Self {
        let builder = World::new().ceiling("workspace-write").agent("codex", json!({ "enabled": true }));
        let world = more(builder).file("src/lib.rs", "pub fn old() {}\n").build();
        world.fake("codex", script);
        let mut host = world.host();
        host.initialize();
        Self { host, world }
    }

    fn execute(&mut self, more: Value) -> ToolResult {
        let mut arguments = json!({
            "task": "Add new().", "workspace": self.world.repo(), "agent": "codex", "wait_seconds": 60,
        });
        for (key, value) in more.as_object().unwrap() {
            arguments[key] = value.clone();
        }
        arguments.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.host.call("relay_execute", arguments)
    }

    fn details(&mut self, run: &Value, detail: &str) -> ToolResult {
        self.host.call(
            "relay_get_result",
            json!({ "run_id": run["run_id"], "detail": detail, "max_chars": 100_000 }),
        )
    }

    fn record(&mut self, run: &Value) -> Value {
        let full = self.details(run, "full");
        serde_json::from_str(full.structured["text"].as_str().unwrap()).unwrap()
    }
}

#[track_caller]
fn assert_status(result: &ToolResult, status: &str) {
    assert_eq!(result.structured["status"], status, "{:#}", result.structured);
    assert_eq!(result.structured["ok"], status == "SUCCESS", "{:#}", result.structured);
}

#[test]
fn a_task_comes_back_as_a_packet_and_can_be_corrected_twice() {
    let mut desk = Desk::new(&good());
    let first = desk.execute(json!({}));
    assert_status(&first, "SUCCESS");
    let packet = &first.structured;
    assert_eq!(packet["summary"], "Added new().");
    assert_eq!(packet["tests"], json!({ "passed": 2, "failed": 0, "not_run": 1 }));
    assert_eq!(packet["corrections_left"], 2);
    assert!(serde_json::to_string(packet).unwrap().len() < 3000, "a packet is compact");

    let mut last = first.structured.clone();
    for left in [1, 0] {
        let next = desk.host.call(
            "relay_continue",
            json!({ "run_id": last["run_id"], "feedback": "Rename it.", "wait_seconds": 60 }),
        );
        assert_status(&next, "SUCCESS");
        assert_eq!(next.structured["corrections_left"], left);
        last = next.structured;
    }
    let refused = desk.host.call(
        "relay_continue",
        json!({ "run_id": last["run_id"], "feedback": "Again.", "wait_seconds": 60 }),
    );
    assert_status(&refused, "CONTINUE_LIMIT");

    let record = desk.record(&last);
    assert_eq!(record["root_run_id"], first.structured["run_id"]);
    assert_eq!(record["correction"], 2);
    assert_eq!(record["feedback"], "Rename it.");
    let listed = desk.world.bridge(["runs", "list", "--json"]).json();
    let statuses: Vec<&str> =
        listed["runs"].as_array().unwrap().iter().map(|run| run["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["CONTINUE_LIMIT", "SUCCESS", "SUCCESS", "SUCCESS"]);
}

#[test]
fn the_worker_is_told_the_task_and_the_constraints_and_nothing_reaches_the_arguments() {
    let script = json!({ "steps": [
        { "record": "../outside/seen.json" },
        { "answer": { "text": report("Done.", &json!([])) } },
    ] });
    let mut desk = Desk::with(&script, |world| {
        world.config("relay", json!({
            "fixedConstraints": ["Keep the public API."],
            "defaultProfile": "main",
            "profiles": { "main": { "constraints": ["Use no new crate.", "Keep the public API."], "agent": "codex" } },
        }))
    });
    let run = desk.execute(json!({
        "agent": null, "task": "Add a_word_of_the_task.", "plan": ["look", "write"],
        "acceptance_criteria": ["tests pass"], "constraints": ["Stay in src."],
    }));
    assert_status(&run, "SUCCESS");
    let seen: Value =
        serde_json::from_slice(&std::fs::read(desk.world.outside().join("seen.json")).unwrap()).unwrap();
    let sent = seen["stdin"].as_str().unwrap();
    for part in
        ["a_word_of_the_task", "1. look", "tests pass", "Use no new crate.", "Stay in src.", "\"summary\""]
    {
        assert!(sent.contains(part), "{part} is missing in:\n{sent}");
    }
    assert_eq!(sent.matches("Keep the public API.").count(), 1, "each constraint is told once");
    assert!(!seen["argv"].to_string().contains("a_word_of_the_task"));
    let record = desk.record(&run.structured);
    assert_eq!(record["profile"], "main");
    assert_eq!(record["constraints"], json!(["Keep the public API.", "Use no new crate.", "Stay in src."]));
}

#[test]
fn what_contradicts_itself_is_refused_before_anything_runs_and_recorded() {
    let mut desk = Desk::with(&good(), |world| {
        world.config(
            "relay",
            json!({ "profiles": {
            "careful": { "executionMode": "safe", "timeoutMinutes": 5, "agent": "codex" },
        } }),
        )
    });
    for more in [
        json!({ "execution_mode": "safe", "skip_permissions": true }),
        json!({ "execution_mode": "trusted", "sandbox": true }),
        json!({ "sandbox": true, "skip_permissions": true }),
        json!({ "profile": "careful", "execution_mode": "trusted" }),
        json!({ "profile": "careful", "skip_permissions": true }),
        json!({ "profile": "careful", "timeout_minutes": 6 }),
        json!({ "profile": "careful", "agent": "claude" }),
        json!({ "effort": "enormous" }),
        json!({ "timeout_minutes": 0 }),
    ] {
        let refused = desk.execute(more.clone());
        assert_status(&refused, "CONFLICTING_OPTIONS");
        assert!(refused.is_error, "{more}");
        let record = desk.record(&refused.structured);
        assert_eq!(
            (&record["status"], &record["task"]),
            (&json!("CONFLICTING_OPTIONS"), &json!("Add new()."))
        );
        assert_eq!(record["attempts"], json!([]));
    }
    assert!(!desk.world.repo().join("src/new.rs").exists(), "nothing ran");
    let turns = desk.world.bridge(["turns", "list", "--json"]).json();
    assert_eq!(turns["turns"], json!([]));
}

#[test]
fn only_a_project_inside_the_roots_is_a_workspace() {
    let mut desk = Desk::new(&good());
    let home = desk.world.home();
    let file = desk.world.write("a-file", "x");
    desk.world.write("inside/keep", "x");
    let link = desk.world.repo().join("out");
    link_folder(&desk.world.outside(), &link);
    let root = if cfg!(windows) { "C:\\" } else { "/" };
    for workspace in [
        json!("relative/path"),
        json!(desk.world.repo().join("missing")),
        json!(file),
        json!(root),
        json!(home),
        json!(desk.world.state()),
        json!(desk.world.outside()),
        json!(link),
        json!(format!("{}-sibling", desk.world.repo().display())),
        json!(desk.world.repo().join("inside").join("..").join("..").join("outside")),
    ] {
        let refused = desk.execute(json!({ "workspace": workspace }));
        assert_status(&refused, "INVALID_WORKSPACE");
    }
    let missing = desk.execute(json!({ "workspace": null }));
    assert_status(&missing, "INVALID_WORKSPACE");
    assert_status(&desk.execute(json!({ "workspace": desk.world.repo().join("inside") })), "SUCCESS");
}

fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_for(what, DEADLINE, holds);
}

fn link_folder(target: &std::path::Path, at: &std::path::Path) {
    support::world::link(target, at);
}

#[test]
fn unknown_arguments_are_named_and_hidden_ones_are_taken() {
    let mut desk = Desk::new(&good());
    let refused = desk.execute(json!({ "executionmode": "safe" })).err();
    let message = refused.structured["error"]["message"].as_str().unwrap();
    assert!(message.contains("execution_mode"), "{message}");
    assert_status(
        &desk.execute(json!({ "plan": ["one"], "acceptance_criteria": ["two"], "constraints": ["three"],
            "model": "m-1", "effort": "low", "timeout_minutes": 3, "sandbox": true, "skip_permissions": false })),
        "SUCCESS",
    );
    let tools = desk.host.request("tools/list", json!({}));
    let named = |name: &str| {
        let tools = tools["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap()["inputSchema"].clone()
    };
    let published = |schema: &Value| -> Vec<String> {
        schema["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let legacy = named("antigravity_execute");
    assert_eq!(published(&legacy), ["task", "profile", "workspace", "execution_mode"]);
    assert_ne!(
        legacy["additionalProperties"],
        json!(false),
        "clients that check must not drop the hidden ones"
    );
    assert_eq!(published(&named("antigravity_continue")), ["run_id", "feedback"]);
    assert_eq!(named("relay_get_result")["additionalProperties"], json!(false));
    for bad in
        [json!({ "task": " " }), json!({ "task": "x".repeat(65_537) }), json!({ "plan": vec!["s"; 9] })]
    {
        desk.execute(bad).err();
    }
}

#[test]
fn each_end_of_a_worker_has_its_status() {
    for (steps, status) in [
        (json!([{ "answer": { "text": "I did it." } }]), "INVALID_REPORT"),
        (json!([{ "answer": { "text": "" } }]), "INVALID_REPORT"),
        (json!([{ "answer": { "failed": "boom" } }]), "WORKER_ERROR"),
        (json!([{ "answer": { "failed": "You've hit your usage limit." } }]), "QUOTA_EXHAUSTED"),
        (
            json!([{ "print": { "text": "Not logged in\n", "to": "stderr" } }, { "exit": 1 }]),
            "LOGIN_REQUIRED",
        ),
        (json!([{ "print": { "text": "plain words\n" } }]), "INVALID_ENVELOPE"),
    ] {
        let mut desk = Desk::new(&json!({ "steps": steps }));
        let run = desk.execute(json!({}));
        assert_status(&run, status);
        assert_eq!(run.structured["error"]["code"], status, "{:#}", run.structured);
        assert!(run.structured["error"]["hint"].as_str().unwrap().len() > 10);
        let errors = desk.details(&run.structured, "errors");
        assert!(errors.structured["text"].as_str().unwrap().contains(status));
    }
}

#[test]
fn a_worker_that_cannot_be_started_is_a_spawn_error() {
    let mut desk = Desk::with(&good(), |world| {
        world.agent("codex", json!({ "enabled": true, "bin": "no-such-program" }))
    });
    assert_status(&desk.execute(json!({})), "SPAWN_ERROR");
}

#[test]
fn settings_that_do_not_fit_are_a_status_and_the_server_lives() {
    for (name, value) in [
        ("GRAVITY_RELAY_PROFILES", "{not json"),
        ("GRAVITY_RELAY_PROFILES", r#"{"p":{"workspace":"/x","surprise":1}}"#),
        ("GRAVITY_RELAY_PROFILES", r#"{"p":{"timeout_minutes":100000}}"#),
        ("GRAVITY_RELAY_PROFILE_FILE", "/nowhere/profiles.json"),
        ("GRAVITY_RELAY_DEFAULT_PROFILE", "missing"),
        ("GRAVITY_RELAY_FIXED_CONSTRAINTS", "[1]"),
        ("GRAVITY_RELAY_ALLOWED_ROOTS", "/nowhere"),
    ] {
        let mut desk = Desk::with(&good(), |world| world.env(name, value));
        let refused = desk.execute(json!({}));
        assert_status(&refused, "CONFIG_ERROR");
        let message = refused.structured["error"]["message"].as_str().unwrap();
        assert!(message.contains(name) || message.contains("default profile"), "{name}: {message}");
        desk.host.call("list_sessions", json!({})).ok();
    }
    let mut desk = Desk::new(&good());
    assert_status(&desk.execute(json!({ "agent": "gemini" })), "CONFIG_ERROR");
    assert_status(&desk.execute(json!({ "agent": "nobody" })), "CONFIG_ERROR");
    assert_status(&desk.execute(json!({ "profile": "nobody" })), "CONFIG_ERROR");
    assert_status(&desk.execute(json!({ "execution_mode": "trusted" })), "CONFIG_ERROR");
}

#[test]
fn the_variables_of_before_are_understood() {
    let data = tempfile::tempdir().unwrap();
    let mut desk = Desk::with(&good(), |world| {
        world
            .env("GRAVITY_RELAY_DEFAULT_PROFILE", "main")
            .env("GRAVITY_RELAY_FIXED_CONSTRAINTS", "One.\nTwo.")
            .env("GRAVITY_RELAY_DATA_DIR", data.path())
            .env(
                "GRAVITY_RELAY_PROFILES",
                r#"{"main":{"execution_mode":"safe","timeout_minutes":7,"constraints":["Three."],"agent":"codex","model":"m-2"}}"#,
            )
    });
    let run = desk.execute(json!({ "agent": null }));
    assert_status(&run, "SUCCESS");
    let record = desk.record(&run.structured);
    assert_eq!(record["constraints"], json!(["One.", "Two.", "Three."]));
    assert_eq!((&record["timeout_sec"], &record["model"]), (&json!(420), &json!("m-2")));
    let id = run.structured["run_id"].as_str().unwrap();
    let copy = data.path().join("runs").join(format!("{id}.json"));
    let copy: Value = serde_json::from_slice(&std::fs::read(copy).unwrap()).unwrap();
    assert_eq!((&copy["run_id"], &copy["status"]), (&run.structured["run_id"], &json!("SUCCESS")));
}

#[test]
fn runs_in_one_folder_wait_for_each_other_and_others_do_not() {
    let script = json!({ "rules": [
        { "when": { "contains": "SLOW" }, "steps": [
            { "touch_file": "../outside/started" },
            { "wait_for_file": { "path": "{cwd}/../outside/go" } },
            { "answer": { "text": report("Slow.", &json!([])) } } ] },
        { "when": {}, "steps": [{ "answer": { "text": report("Quick.", &json!([])) } }] },
    ] });
    let mut desk = Desk::with(&script, |world| world.file("other/keep", "x"));
    let slow = desk.execute(json!({ "task": "SLOW", "wait_seconds": 0 }));
    assert!(["QUEUED", "RUNNING"].contains(&slow.structured["status"].as_str().unwrap()));
    wait_until("the slow run has started", || desk.world.outside().join("started").exists());
    // Another folder is free.
    assert_status(&desk.execute(json!({ "workspace": desk.world.repo().join("other") })), "SUCCESS");
    // The same one is not, whichever server asks.
    let mut second = desk.world.host();
    second.initialize();
    let waiting = second.call(
        "relay_execute",
        json!({ "task": "QUICK", "workspace": desk.world.repo(), "agent": "codex", "wait_seconds": 1 }),
    );
    assert_status(&waiting, "QUEUED");
    std::fs::write(desk.world.outside().join("go"), "").unwrap();
    let done = second
        .call("relay_get_result", json!({ "run_id": waiting.structured["run_id"], "wait_seconds": 60 }));
    assert_status(&done, "SUCCESS");
    let slow = desk
        .host
        .call("relay_get_result", json!({ "run_id": slow.structured["run_id"], "wait_seconds": 60 }));
    assert_status(&slow, "SUCCESS");
    let record = desk.record(&done.structured);
    assert!(record["queue_ms"].as_u64().unwrap() >= 900, "{record:#}");
}

#[test]
fn a_wait_for_a_place_has_an_end_and_so_has_the_queue() {
    let script = json!({ "steps": [{ "touch_file": "../outside/started" }, "hang"] });
    let mut desk = Desk::with(&script, |world| {
        world.config("relay", json!({ "queueTimeoutSec": 2, "maxQueuedRuns": 1 }))
    });
    let slow = desk.execute(json!({ "wait_seconds": 0 }));
    wait_until("the first run has started", || desk.world.outside().join("started").exists());
    assert_status(&desk.execute(json!({ "wait_seconds": 20 })), "QUEUE_TIMEOUT");
    let waiting = desk.execute(json!({ "wait_seconds": 0 }));
    assert_status(&waiting, "QUEUED");
    assert_status(&desk.execute(json!({ "wait_seconds": 20 })), "QUEUE_FULL");
    drop(slow);
    desk.host.hang_up();
    desk.world.assert_no_process_left(Duration::from_secs(20));
}

#[test]
fn a_run_whose_host_dies_is_completed_by_whoever_looks() {
    let script = json!({ "steps": [{ "touch_file": "../outside/started" }, "hang"] });
    let mut desk = Desk::new(&script);
    let run = desk.execute(json!({ "wait_seconds": 0 }));
    wait_until("the worker has started", || desk.world.outside().join("started").exists());
    desk.host.kill();
    desk.world.assert_no_process_left(Duration::from_secs(20));
    let id = run.structured["run_id"].as_str().unwrap();
    let shown = desk.world.bridge(["runs", "show", id, "--json", "--wait", "20"]);
    let shown = shown.json();
    assert_eq!(shown["status"], "CANCELLED", "{shown:#}");
    let mut second = desk.world.host();
    second.initialize();
    let again = second.call("relay_get_result", json!({ "run_id": id }));
    assert_status(&again, "CANCELLED");
    // And the folder is free again.
    let listed = desk.world.bridge(["runs", "list", "--running", "--json"]).json();
    assert_eq!(listed["runs"], json!([]));
}

#[test]
fn a_conversation_is_continued_only_as_the_run_it_belongs_to() {
    let mut desk = Desk::new(&good());
    let run = desk.execute(json!({}));
    let record = desk.record(&run.structured);
    let conversation = record["conversation_id"].as_str().unwrap().to_owned();
    let repo = desk.world.repo();
    let next = desk.host.call(
        "antigravity_continue",
        json!({ "conversation_id": conversation, "workspace": repo, "feedback": "More.", "wait_seconds": 60 }),
    );
    assert_status(&next, "SUCCESS");
    assert_eq!(desk.record(&next.structured)["root_run_id"], run.structured["run_id"]);
    let told = desk.host.call(
        "relay_continue",
        json!({ "run_id": run.structured["run_id"], "feedback": "Again.", "constraints": ["Only src."], "wait_seconds": 60 }),
    );
    assert_status(&told, "SUCCESS");
    assert_eq!(desk.record(&told.structured)["constraints"], json!(["Only src."]));
    for (arguments, status) in [
        (
            json!({ "run_id": run.structured["run_id"], "feedback": "x", "agent": "claude" }),
            "CONFLICTING_OPTIONS",
        ),
        (
            json!({ "conversation_id": "01a22da4-c4d5-7380-a8a6-b574a17c03d0", "workspace": repo, "feedback": "x" }),
            "CONFIG_ERROR",
        ),
        (
            json!({ "conversation_id": conversation, "workspace": desk.world.repo().join("src"), "feedback": "x" }),
            "INVALID_WORKSPACE",
        ),
        (
            json!({ "run_id": run.structured["run_id"], "feedback": "x", "execution_mode": "trusted" }),
            "CONFLICTING_OPTIONS",
        ),
    ] {
        let refused = desk.host.call("antigravity_continue", arguments);
        assert_status(&refused, status);
    }
    desk.host
        .call("relay_continue", json!({ "run_id": "01a22da4-c4d5-7380-a8a6-b574a17c03d0", "feedback": "x" }))
        .err();
}

#[test]
fn details_are_cut_between_characters() {
    let long = "ä€😀".repeat(600);
    let script = json!({ "steps": [{ "answer": { "text": report(&long, &json!([])) } }] });
    let mut desk = Desk::new(&script);
    let run = desk.execute(json!({}));
    for most in [500, 501, 502, 503, 777] {
        let cut = desk.host.call(
            "relay_get_result",
            json!({ "run_id": run.structured["run_id"], "detail": "full", "max_chars": most }),
        );
        let text = cut.structured["text"].as_str().unwrap();
        assert!(text.len() <= most && text.len() > most - 4, "{} of {most}", text.len());
        assert_eq!(cut.structured["truncated"], true);
        let packet = desk.host.call(
            "relay_get_result",
            json!({ "run_id": run.structured["run_id"], "detail": "summary", "max_chars": most }),
        );
        assert!(packet.structured["summary"].as_str().unwrap().len() <= most);
    }
    for most in [499, 100_001] {
        desk.host
            .call("relay_get_result", json!({ "run_id": run.structured["run_id"], "max_chars": most }))
            .err();
    }
}

#[test]
fn the_bridge_runs_the_checks_of_the_profile_itself() {
    let check = |argv: Value| json!({ "argv": argv, "timeoutSeconds": 30 });
    let mut desk = Desk::with(&good(), |world| {
        world
            .config(
                "scope",
                json!({ "tools": [], "checks": {
                "clean": check(json!(["git", "diff", "--check"])),
                "broken": check(json!(["git", "rev-parse", "no-such-thing"])),
                "absent": check(json!(["no-such-program-anywhere"])),
            } }),
            )
            .config(
                "relay",
                json!({ "profiles": { "p": { "agent": "codex", "checks": ["clean", "broken", "absent"] } } }),
            )
    });
    let run = desk.execute(json!({ "profile": "p" }));
    assert_status(&run, "SUCCESS");
    let checks = run.structured["checks"].as_array().unwrap();
    let told: Vec<(&str, &str)> = checks
        .iter()
        .map(|check| (check["name"].as_str().unwrap(), check["status"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("absent", "not_run"), ("broken", "failed"), ("clean", "passed")]);
    assert!(checks[1]["output_tail"].as_str().unwrap().contains("no-such-thing"));
    // The worker's own count stands beside it.
    assert_eq!(run.structured["tests"]["passed"], 2);
}

#[test]
fn the_patch_of_a_run_is_what_it_changed_and_a_changed_one_is_not_printed() {
    let mut desk = Desk::new(&good());
    let run = desk.execute(json!({}));
    assert_eq!(run.structured["changes"]["files"], json!(["src/new.rs (added)"]), "{:#}", run.structured);
    let id = run.structured["run_id"].as_str().unwrap();
    let printed = desk.world.bridge(["runs", "diff", id]).expect_code(0);
    desk.world.write("../outside/run.patch", &printed.stdout);
    std::fs::remove_file(desk.world.file("src/new.rs")).unwrap();
    desk.world.git(["apply", "../outside/run.patch"]);
    assert_eq!(desk.world.read("src/new.rs"), "fn new() {}\n");
    let coloured = desk.world.bridge(["runs", "diff", id, "--color", "always"]).expect_code(0);
    assert!(coloured.stdout().contains("\u{1b}[32m+fn new() {}\u{1b}[0m"), "{coloured}");

    let turn = desk.record(&run.structured)["attempts"][0]["turn_id"].as_str().unwrap().to_owned();
    let kept = desk.world.state().join("blobs").join(&turn[..2]).join(format!("{turn}.patch"));
    let changed = std::fs::read_to_string(&kept).unwrap().replace("new()", "evil()");
    std::fs::write(&kept, changed).unwrap();
    let refused = desk.world.bridge(["runs", "diff", id]).expect_code(3);
    assert!(refused.stderr().contains("PATCH_DAMAGED") && refused.stdout.is_empty(), "{refused}");
}

#[test]
fn a_hundred_files_are_twelve_names_and_eight_places() {
    let mut steps: Vec<Value> = (0..100)
        .map(|n| json!({ "write_file": { "path": format!("src/m{n:03}.rs"), "text": "fn f() {}\n".repeat(n + 1) } }))
        .collect();
    steps.push(json!({ "answer": { "text": report("Many.", &json!([])) } }));
    let mut desk = Desk::new(&json!({ "steps": steps }));
    let run = desk.execute(json!({}));
    let changes = &run.structured["changes"];
    assert_eq!((&changes["count"], &changes["files_omitted"]), (&json!(100), &json!(88)), "{changes:#}");
    assert_eq!(changes["files"].as_array().unwrap().len(), 12);
    assert_eq!(changes["review"].as_array().unwrap().len(), 8);
    let packet = serde_json::to_string(&run.structured).unwrap().len();
    let id = run.structured["run_id"].as_str().unwrap();
    let diff = desk.world.bridge(["runs", "diff", id]).expect_code(0).stdout.len();
    assert!(packet * 10 < diff, "a packet of {packet} bytes for a diff of {diff}");
    assert_eq!(desk.record(&run.structured)["changes"]["files"].as_array().unwrap().len(), 100);
}
