//! The relay with Antigravity as the worker, played by the stand-in: each status in the shape of several versions, what
//! is tried again and what is not, and that a failed attempt's changes are never built upon.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::agy::FakeAgy;
use support::prelude::*;

fn report() -> Value {
    json!({
        "summary": "Done.", "outcome": "done", "files": [],
        "tests": { "passed": 3, "failed": 0, "not_run": 0, "commands": [] },
        "criteria": [], "risks": [], "open_questions": [],
    })
}

struct Desk {
    host: Host,
    world: World,
    agy: FakeAgy,
}

impl Desk {
    fn new(scenario: &Value) -> Self {
        let world = World::new().ceiling("full-access").build();
        let agy = FakeAgy::put(&world, scenario);
        let mut host = world.host();
        host.initialize();
        Self { host, world, agy }
    }

    fn execute(&mut self, more: &Value) -> Value {
        let mut arguments = json!({ "task": "Do it.", "workspace": self.world.repo(), "wait_seconds": 60 });
        for (key, value) in more.as_object().unwrap() {
            arguments[key] = value.clone();
        }
        self.host.call("antigravity_execute", arguments).structured
    }

    fn record(&mut self, run: &Value) -> Value {
        let arguments = json!({ "run_id": run["run_id"], "detail": "full", "max_chars": 100_000 });
        let full = self.host.call("antigravity_get_result", arguments).structured;
        serde_json::from_str(full["text"].as_str().unwrap()).unwrap()
    }
}

/// A run in which this happens.
fn run_of(version: &str, acts: &Value, more: &Value) -> (Desk, Value) {
    let mut desk = Desk::new(&json!({ "version": version, "runs": [acts] }));
    let run = desk.execute(more);
    (desk, run)
}

#[test]
fn each_end_has_its_status_whatever_the_version() {
    let quota = json!({ "status": "ResourceExhausted", "message": "Quota exceeded" });
    let model = json!({ "status": "NotFound", "message": "model not found: x" });
    let safety = json!({ "status": "InvalidArgument", "message": "blocked by safety settings" });
    for (acts, status) in [
        (json!([{ "edit": ["a.txt", "a\n"] }, { "structured": report() }, { "say": "ok" }]), "SUCCESS"),
        (json!([{ "no_structured": null }, { "say": "ok" }]), "INVALID_REPORT"),
        (json!([{ "structured": { "summary": 1 } }, { "say": "ok" }]), "INVALID_REPORT"),
        (json!([{ "say": "half" }, { "print_timeout": null }]), "EXECUTION_TIMEOUT"),
        (
            json!([{ "command": "rm -rf /" }, { "structured": report() }, { "say": "no" }]),
            "PERMISSION_DENIED",
        ),
        (json!([{ "say": "so far" }, { "torn_event": null }, { "vanish": 0 }]), "STREAM_ERROR"),
        (json!([{ "stdout": "All done.\n" }, { "vanish": 0 }]), "INVALID_JSON"),
        (json!([{ "stdout": "{\"answer\": 42}\n" }, { "vanish": 0 }]), "INVALID_ENVELOPE"),
        (json!([{ "login_prompt": "stdout" }, { "hang": null }]), "LOGIN_REQUIRED"),
        (json!([{ "fail": quota }]), "QUOTA_EXHAUSTED"),
        (json!([{ "fail": model }]), "MODEL_UNAVAILABLE"),
        (json!([{ "fail": safety }]), "CONTENT_FILTERED"),
        (json!([{ "fail": { "status": "Internal", "message": "fell over" } }]), "WORKER_ERROR"),
    ] {
        for version in ["1.1.15", "1.2.6", "1.3.3"] {
            let (mut desk, run) = run_of(version, &acts, &json!({}));
            assert_eq!(run["status"], status, "{version} {acts}: {run:#}");
            assert_eq!(desk.record(&run)["attempts"].as_array().unwrap().len(), 1, "{version}: {run:#}");
        }
    }
}

#[test]
fn the_modes_become_the_flags_of_before() {
    for (more, present, absent) in [
        (json!({ "execution_mode": "safe" }), "--sandbox", "--dangerously-skip-permissions"),
        (json!({ "sandbox": true }), "--sandbox", "--dangerously-skip-permissions"),
        (json!({ "execution_mode": "trusted" }), "--dangerously-skip-permissions", "--sandbox"),
        (json!({ "skip_permissions": true }), "--dangerously-skip-permissions", "--sandbox"),
        (json!({}), "--mode=accept-edits", "--sandbox"),
    ] {
        let (desk, run) = run_of("1.3.3", &json!([{ "structured": report() }, { "say": "ok" }]), &more);
        assert_eq!(run["status"], "SUCCESS", "{more}: {run:#}");
        let [seen] = desk.agy.runs().try_into().unwrap();
        let argv = seen["argv"].to_string();
        assert!(argv.contains(present) && !argv.contains(absent), "{more}: {argv}");
        assert!(!argv.contains("Do it."), "the task is no argument");
    }
}

#[test]
fn a_slow_sign_in_is_tried_again_once_and_then_no_more() {
    let late = json!([{ "keyring": null }, { "vanish": 1 }]);
    let fine = json!([{ "structured": report() }, { "say": "ok" }]);
    let mut desk = Desk::new(&json!({ "version": "1.3.3", "runs": [late, fine] }));
    let run = desk.execute(&json!({}));
    assert_eq!(run["status"], "SUCCESS", "{:#}", desk.record(&run));
    let statuses: Vec<Value> =
        desk.record(&run)["attempts"].as_array().unwrap().iter().map(|it| it["status"].clone()).collect();
    assert_eq!(statuses, ["KEYRING_TIMEOUT", "SUCCESS"]);

    let mut desk = Desk::new(&json!({ "version": "1.3.3", "runs": [late] }));
    let run = desk.execute(&json!({}));
    assert_eq!(run["status"], "KEYRING_TIMEOUT", "{run:#}");
    assert_eq!(desk.agy.runs().len(), 2);
}

#[test]
fn what_a_failed_attempt_changed_is_not_built_upon() {
    for change in [
        json!({ "edit": ["new.txt", "n\n"] }),
        json!({ "edit": ["README.md", "changed\n"] }),
        json!({ "delete": "README.md" }),
        json!({ "rename": ["README.md", "MOVED.md"] }),
    ] {
        let acts = json!([change, { "keyring": null }, { "vanish": 1 }]);
        let (mut desk, run) = run_of("1.3.3", &acts, &json!({ "execution_mode": "trusted" }));
        assert_eq!(run["status"], "MUTATION_ABORTED", "{acts}: {run:#}");
        assert!(run["changes"]["count"].as_u64().unwrap() > 0, "{run:#}");
        assert_eq!(desk.agy.runs().len(), 1, "it was not tried again");
        assert_eq!(desk.record(&run)["attempts"][0]["status"], "KEYRING_TIMEOUT");
    }
}

#[test]
fn a_sign_in_that_fails_before_the_run_starts_nothing() {
    let late = json!([{ "keyring": null }, { "vanish": 1 }]);
    let mut desk = Desk::new(&json!({ "version": "1.3.3", "probes": [late] }));
    let run = desk.execute(&json!({}));
    assert_eq!(run["status"], "KEYRING_TIMEOUT", "{run:#}");
    assert!(desk.agy.runs().is_empty());
    // The look tries twice itself, and the run adds nothing to that.
    assert_eq!(desk.agy.probes().len(), 2);
}
