//! Measures an observation against `git status` in a tree as large as the Linux kernel's, as ratios of one run.
//!
//! `cargo bench --bench observe [-- --quick]`. Exit code 1 if a budget is missed. `AGENT_BRIDGE_BENCH_FOLDER` names the
//! folder to work in; it should be on a disk, and needs 1 GiB.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_bridge::context::Context;
use agent_bridge::observe::{self, Limits, Request, Status};

/// Linux 6.18 has about that many files, in about so many folders.
const FILES: usize = 84_000;
const FOLDERS: usize = 5_600;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // The test runner asks a bench target for its tests; there are none.
    if arguments.iter().any(|argument| argument == "--list") {
        return;
    }
    let quick = arguments.iter().any(|argument| argument == "--quick" || argument == "--test");
    let (files, folders, rounds) = if quick { (FILES / 20, FOLDERS / 20, 3) } else { (FILES, FOLDERS, 15) };
    let folder = folder();
    let top = folder.path().canonicalize().unwrap();
    let repo = top.join("repo");
    eprintln!("making {files} files in {folders} folders");
    make_tree(&repo, files, folders);
    let lab = Lab { top, repo };

    let mut rows = Vec::new();
    let clean = lab.measure(rounds, |_| {});
    rows.push(("unchanged", clean));
    // A user's work in progress, and a run that changes as much.
    for number in 0..20 {
        std::fs::write(lab.repo.join(format!("new_{number}.c")), content(number)).unwrap();
    }
    rows.push(("unchanged, 20 new files before", lab.measure(rounds, |_| {})));
    let changing = lab.measure(rounds, |round| {
        for number in 0..20 {
            let name = format!("d{:02}/s{:02}/f{number}.c", number % 7, number % 5);
            let path = lab.repo.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("int round_{round};\n{}", content(number))).unwrap();
        }
    });
    rows.push(("20 files changed by the run", changing));

    println!(
        "| {files} files | `git status` | before | after | before / status | after / status | bound | held |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut missed = false;
    for (what, Times { status, before, after }) in rows {
        let ratio = |time: Duration| time.as_secs_f64() / status.as_secs_f64();
        // What changed has to be read and compared, which no status does: that row has no bound.
        let bounded = what != "20 files changed by the run";
        let held = ratio(before) <= 1.5 && ratio(after) <= 1.5;
        missed |= bounded && !held;
        println!(
            "| {what} | {} | {} | {} | {:.2}× | {:.2}× | {} | {} |",
            millis(status),
            millis(before),
            millis(after),
            ratio(before),
            ratio(after),
            if bounded { "≤ 1.5× each" } else { "" },
            if !bounded {
                ""
            } else if held {
                "yes"
            } else {
                "**no**"
            },
        );
    }
    if missed && !quick {
        std::process::exit(1);
    }
}

fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1000.0)
}

struct Lab {
    top: PathBuf,
    repo: PathBuf,
}

/// Medians.
struct Times {
    status: Duration,
    before: Duration,
    after: Duration,
}

impl Lab {
    /// One after the other in each round, so that what disturbs the machine disturbs all three.
    fn measure(&self, rounds: usize, run: impl Fn(usize)) -> Times {
        let (mut statuses, mut befores, mut afters) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=rounds {
            let start = Instant::now();
            git(&self.repo, &["status", "--porcelain", "--untracked-files=all"]);
            let status = start.elapsed();
            let request = Request {
                context: Context::from_process(),
                folder: self.repo.clone(),
                scratch: self.top.join("scratch"),
                mark: None,
                limits: Limits { deadline: Duration::from_secs(120), ..Limits::default() },
            };
            let start = Instant::now();
            let snapshot = observe::before(request, &mut || None);
            let before = start.elapsed();
            run(round);
            let start = Instant::now();
            let change = snapshot.after(Duration::from_secs(120), &mut || None);
            let after = start.elapsed();
            assert_eq!(change.observation.status, Status::Observed, "{:?}", change.observation.reason);
            // The first round warms the caches.
            if round > 0 {
                statuses.push(status);
                befores.push(before);
                afters.push(after);
            }
        }
        Times { status: median(statuses), before: median(befores), after: median(afters) }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn content(seed: usize) -> String {
    (0..40).map(|line| format!("static int value_{seed}_{line} = {};\n", seed * 31 + line)).collect()
}

fn make_tree(repo: &Path, files: usize, folders: usize) {
    for folder in 0..folders {
        std::fs::create_dir_all(repo.join(place(folder))).unwrap();
    }
    for file in 0..files {
        std::fs::write(repo.join(place(file % folders)).join(format!("file_{file}.c")), content(file))
            .unwrap();
    }
    std::fs::write(repo.join(".gitignore"), "*.o\n*.ko\n/build/\n").unwrap();
    git(repo, &["init", "--quiet"]);
    git(repo, &["config", "gc.auto", "0"]);
    git(repo, &["add", "--all"]);
    git(repo, &["commit", "--quiet", "--message=All"]);
    git(repo, &["status"]);
}

/// Three levels of folders.
fn place(folder: usize) -> String {
    format!("d{:02}/s{:02}/t{}", folder % 24, folder / 24 % 24, folder / 576)
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

/// A folder on a disk: the temporary one is often memory.
fn folder() -> tempfile::TempDir {
    let parent = match std::env::var_os("AGENT_BRIDGE_BENCH_FOLDER") {
        Some(folder) => PathBuf::from(folder),
        None if Path::new("/var/tmp").is_dir() => PathBuf::from("/var/tmp"),
        None => std::env::temp_dir(),
    };
    tempfile::Builder::new().prefix("agent-bridge-bench-").tempdir_in(parent).unwrap()
}
