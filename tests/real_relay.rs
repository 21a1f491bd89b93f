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
    let copies = world.state().join("worktrees");
    // Only one run of the test has a copy.
    let write_in_copy = reply_with(move |_| {
        let copy = std::fs::read_dir(&copies).unwrap().next().unwrap().unwrap().path();
        reply().write_file(copy.join("tree/made.txt").to_string_lossy(), "made in the copy\n")
    });
    let told = |files: &[&str]| match cli {
        Cli::Claude => reply().tool("StructuredOutput", report(files)),
        Cli::Codex | Cli::Gemini => reply().text(report(files).to_string()),
    };
    Script::new()
        .scenario("honest", [write(), told(&["made.txt"])])
        .scenario("liar", [write(), told(&["other.txt"])])
        .scenario("idle", [told(&[])])
        .scenario("copy", [write_in_copy, told(&["made.txt"])])
        .scenario("more", [told(&["made.txt"])])
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

/// The worker edits a copy with its own tools, is corrected there, and its patch is applied.
fn a_copy_is_where_it_works(cli: Cli) {
    let world = World::new().ceiling("workspace-write").build();
    let Some(mut worker) = Worker::start(cli, world, |world| script(cli, world)) else { return };
    let arguments = json!({
        "task": "scenario:copy", "workspace": worker.world.repo(), "agent": cli.id(), "isolation": "worktree",
        "effort": "high", "wait_seconds": 120,
    });
    let first = worker.host.call("relay_execute", arguments).structured;
    assert_eq!(first["status"], "SUCCESS", "{first:#}");
    assert_eq!(first["changes"]["files"], json!(["made.txt (added)"]), "{first:#}");
    assert_eq!(first["claims"], Value::Null, "the worker's names are those of the copy: {first:#}");
    assert!(!worker.world.file("made.txt").exists());
    let untold = first["notes"].to_string().contains("`effort`");
    assert_eq!(untold, cli == Cli::Gemini, "{first:#}");

    let go_on = json!({ "run_id": first["run_id"], "feedback": "scenario:more", "wait_seconds": 120 });
    let second = worker.host.call("relay_continue", go_on).structured;
    assert_eq!(second["status"], "SUCCESS", "{second:#}");
    assert_eq!(second["changes"]["count"], 0, "{second:#}");
    assert_eq!(second["patch"], first["patch"], "all since the beginning: {second:#}");
    let applied = worker.host.call("relay_apply", json!({ "run_id": second["run_id"] })).structured;
    assert_eq!(applied["files"], json!(["made.txt"]), "{applied:#}");
    assert_eq!(worker.world.read("made.txt"), "made in the copy\n");
    assert_eq!(applied["worktree"], "The copy is removed.", "{applied:#}");
    worker.end();
}

#[test]
fn a_copy_is_where_it_works_with_codex() {
    a_copy_is_where_it_works(Cli::Codex);
}

#[test]
fn a_copy_is_where_it_works_with_claude() {
    a_copy_is_where_it_works(Cli::Claude);
}

#[test]
fn a_copy_is_where_it_works_with_gemini() {
    a_copy_is_where_it_works(Cli::Gemini);
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
