//! The relay with real workers: the model edits files through the CLI's own tools, and the packet says what the
//! repository shows.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::prelude::*;
use support::worker::{Cli, Worker};

fn report(files: &[&str]) -> Value {
    let files: Vec<Value> =
        files.iter().map(|path| json!({ "path": path, "change": "added", "note": "" })).collect();
    json!({
        "summary": "Wrote what was asked for.", "outcome": "done", "files": files,
        "tests": { "passed": 0, "failed": 0, "not_run": 0, "commands": [] },
        "criteria": [], "risks": [], "open_questions": [],
    })
}

/// Writes a file with the CLI's file tool, then reports files, right or wrong ones.
fn script(cli: Cli, world: &World) -> Script {
    let made = world.file("made.txt");
    let write = || reply().write_file(made.to_string_lossy(), "made\n");
    let told = |files: &[&str]| match cli {
        Cli::Claude => reply().tool("StructuredOutput", report(files)),
        Cli::Codex | Cli::Gemini => reply().text(report(files).to_string()),
    };
    Script::new()
        .scenario("honest", [write(), told(&["made.txt"])])
        .scenario("liar", [write(), told(&["other.txt"])])
        .scenario("idle", [told(&[])])
}

fn run(worker: &mut Worker, scenario: &str) -> Value {
    let arguments = json!({
        "task": format!("scenario:{scenario}"), "workspace": worker.world.repo(), "agent": worker.cli.id(),
        "wait_seconds": 120,
    });
    let run = worker.host.call("relay_execute", arguments);
    assert_eq!(run.structured["status"], "SUCCESS", "{:#}", run.structured);
    run.structured
}

fn what_the_repository_shows_counts(cli: Cli) {
    let world = World::new().ceiling("workspace-write").build();
    let Some(mut worker) = Worker::start(cli, world, |world| script(cli, world)) else { return };

    let honest = run(&mut worker, "honest");
    assert_eq!(honest["changes"]["observed"], "observed", "{honest:#}");
    assert_eq!(honest["changes"]["files"], json!(["made.txt (added)"]));
    assert_eq!(honest["claims"], Value::Null, "both say the same");
    assert_eq!(worker.world.read("made.txt"), "made\n");

    std::fs::remove_file(worker.world.file("made.txt")).unwrap();
    let liar = run(&mut worker, "liar");
    assert_eq!(liar["changes"]["files"], json!(["made.txt (added)"]), "{liar:#}");
    assert_eq!(liar["claims"], json!({ "not_changed": ["other.txt"], "not_named": ["made.txt"] }));

    let idle = run(&mut worker, "idle");
    assert_eq!((&idle["changes"]["count"], &idle["changes"]["files"]), (&json!(0), &json!([])), "{idle:#}");

    let next = worker.host.call(
        "relay_continue",
        json!({ "run_id": liar["run_id"], "feedback": "scenario:honest", "wait_seconds": 120 }),
    );
    assert_eq!(next.structured["status"], "SUCCESS", "{:#}", next.structured);
    assert_eq!(next.structured["corrections_left"], 1);
    worker.end();
}

#[test]
fn what_the_repository_shows_counts_with_codex() {
    what_the_repository_shows_counts(Cli::Codex);
}

#[test]
fn what_the_repository_shows_counts_with_claude() {
    what_the_repository_shows_counts(Cli::Claude);
}

#[test]
fn what_the_repository_shows_counts_with_gemini() {
    what_the_repository_shows_counts(Cli::Gemini);
}
