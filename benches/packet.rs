//! What a review packet costs the model that reads it, against the raw diff of the same change, in tokens (o200k).
//!
//! `cargo bench --bench packet`. Exit code 1 if the packet of a change of 100 files has more than a tenth of its diff's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use agent_bridge::context::Context;
use agent_bridge::mcp::relay::packet_text;
use agent_bridge::observe::{self, Limits, Observation, Request};
use agent_bridge::policy::AgentId;
use agent_bridge::relay::Status;
use agent_bridge::relay::packet::packet;
use agent_bridge::relay::record::{PatchFact, RunRecord};
use agent_bridge::relay::report::{ClaimedFile, ClaimedTests, WorkerReport};

/// Lines that a change edits in each file.
const LINES: usize = 8;
const BOUND: f64 = 0.1;

fn main() {
    // The test runner asks a bench target for its tests; there are none.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    println!(
        "| files changed | raw diff | packet (structured) | packet (text) | packet / diff | bound | held |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut missed = false;
    for files in [1, 10, 100] {
        let (observed, patch) = change(files);
        let packet = packet(&record(observed, &patch), "relay", 2, 0);
        let structured = tokens(&serde_json::to_string(&packet).unwrap());
        let (text, diff) = (tokens(&packet_text(&packet)), tokens(&patch));
        // Hosts show a model one of the two; the dearer one counts.
        let ratio = structured.max(text) as f64 / diff as f64;
        let bounded = files == 100;
        missed |= bounded && ratio > BOUND;
        let bound = if bounded { "≤ 0.1×" } else { "" };
        let held = match (bounded, ratio <= BOUND) {
            (false, _) => "",
            (true, true) => "yes",
            (true, false) => "**no**",
        };
        println!("| {files} | {diff} | {structured} | {text} | {ratio:.3}× | {bound} | {held} |");
    }
    if missed {
        std::process::exit(1);
    }
}

fn tokens(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len()
}

/// What a run sees that edits so many files of a small project, and the patch.
fn change(files: usize) -> (Observation, String) {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().canonicalize().unwrap();
    let repo = top.join("repo");
    for number in 0..files {
        write(&repo, number, "");
    }
    git(&repo, &["init", "--quiet"]);
    git(&repo, &["add", "--all"]);
    git(&repo, &["commit", "--quiet", "--message=All"]);
    let request = Request {
        context: Context::from_process(),
        folder: repo.clone(),
        scratch: top.join("scratch"),
        mark: None,
        limits: Limits::default(),
    };
    let snapshot = observe::before(request, &mut || None);
    for number in 0..files {
        write(&repo, number, "checked_");
    }
    let limit = Duration::from_secs(60);
    let change = snapshot.after(limit, &mut || None);
    let path = top.join("patch");
    let mut out = File::create(&path).unwrap();
    change.write_patch(&mut out, limit, &mut || None).unwrap().expect("a patch");
    let observation = change.observation.clone();
    assert_eq!(observation.packet().count, files as u64);
    (observation, std::fs::read_to_string(path).unwrap())
}

fn write(repo: &Path, number: usize, changed: &str) {
    let path = repo.join(format!("src/area_{}/module_{number}.rs", number % 7));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let line = |line: usize| {
        let prefix = if line % 10 < LINES / 4 { changed } else { "" };
        format!(
            "pub fn {prefix}step_{number}_{line}(input: &Input) -> Result<Output, Error> {{ input.{prefix}walk({line}) }}\n"
        )
    };
    std::fs::write(path, (0..40).map(line).collect::<String>()).unwrap();
}

fn record(observed: Observation, patch: &str) -> RunRecord {
    let seen = observed.packet();
    let claimed = |path: String| ClaimedFile { path, ..ClaimedFile::default() };
    RunRecord {
        run_id: uuid::Uuid::new_v4().to_string(),
        status: Status::Success,
        agent: Some(AgentId::Codex),
        report: Some(WorkerReport {
            summary:
                "Every step is checked before it is walked; the callers were renamed with it. All tests pass."
                    .into(),
            files: seen.files.iter().map(|file| claimed(file.path.clone())).collect(),
            tests: ClaimedTests { passed: 214, ..ClaimedTests::default() },
            risks: vec!["Callers outside of this repository have to be renamed too.".into()],
            ..WorkerReport::default()
        }),
        patch: Some(PatchFact {
            bytes: patch.len() as u64,
            sha256: agent_bridge::digest::of_bytes(patch.as_bytes()),
        }),
        changes: Some(observed),
        ..RunRecord::default()
    }
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    for role in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{role}_NAME"), "Bench")
            .env(format!("GIT_{role}_EMAIL"), "bench@example.invalid");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
