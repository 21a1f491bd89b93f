//! Trees of which nothing may be left, whatever ends the run or its supervisor.

use std::path::PathBuf;
#[cfg(target_os = "linux")]
use std::process::Command;

use super::shell::*;
use super::*;
use crate::platform::processes;
use crate::process::TURN_VAR;

#[test]
fn background_children_do_not_survive_a_normal_end() {
    let script = "sleep 300 >/dev/null 2>&1 & echo bg=$!; echo answer";
    let (report, seen) = plain(script);
    assert_eq!((report.exit_code, &report.stopped), (Some(0), &None));
    assert!(is_gone(seen.number("bg")));
    assert!(report.survivors.is_empty());
}

#[test]
fn a_grandchild_that_holds_the_stream_does_not_hold_the_answer() {
    let mut limits = limits();
    limits.drain = Duration::from_millis(200);
    let start = Instant::now();
    let (report, seen) =
        go(&sh("sleep 300 & echo bg=$!; echo answer"), &limits, PoliteStop::TerminateGroup, |_| false);
    assert_eq!(seen.lines.last().unwrap(), "answer");
    assert!(is_gone(seen.number("bg")));
    assert!(start.elapsed() < PATIENCE / 2);
    assert!(!report.drain_cut, "the stream ended with the tree");
}

/// A background child, a child with its own session, and a daemon that forked twice. Each prints its id.
fn family(end: &str) -> String {
    let quiet = "</dev/null >/dev/null 2>&1";
    format!(
        "sleep 300 {quiet} & echo bg=$!
         setsid sh -c 'echo session=$$; exec sleep 300 {quiet}' &
         (setsid sh -c 'sh -c \"echo daemon=\\$\\$; exec sleep 300 {quiet}\" &' &)
         {end}"
    )
}

fn all_three(lines: &[String]) -> bool {
    ["bg=", "session=", "daemon="].iter().all(|name| lines.iter().any(|line| line.starts_with(name)))
}

fn assert_family_gone(report: &Report, seen: &Seen) {
    for name in ["bg", "session", "daemon"] {
        assert!(is_gone(seen.number(name)), "{name} lives on");
    }
    assert!(report.survivors.is_empty());
}

#[test]
fn nothing_of_a_cancelled_tree_is_left() {
    let mut limits = limits();
    limits.grace = Duration::from_millis(100);
    for polite in [PoliteStop::InterruptRoot, PoliteStop::TerminateGroup] {
        let script = family("trap '' INT TERM; while :; do sleep 0.05; done");
        let (report, seen) = go(&sh(&script), &limits, polite, all_three);
        assert_eq!(report.stopped, Some(Stopped::Cancelled("asked".into())));
        assert_family_gone(&report, &seen);
    }
}

#[test]
fn nothing_of_a_finished_tree_is_left() {
    // The root ends after the others have told their ids.
    let folder = tempfile::tempdir().unwrap();
    let script = family(&format!("while [ ! -e {}/go ]; do sleep 0.02; done", folder.path().display()));
    let (report, seen) = go(&sh(&script), &limits(), PoliteStop::TerminateGroup, |lines| {
        if all_three(lines) {
            std::fs::write(folder.path().join("go"), "").unwrap();
        }
        false
    });
    assert_eq!((report.exit_code, &report.stopped), (Some(0), &None));
    assert_family_gone(&report, &seen);
}

#[test]
fn a_program_that_killed_its_own_root_leaves_nothing_either() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        family(&format!("while [ ! -e {}/go ]; do sleep 0.02; done; kill -9 $$", folder.path().display()));
    let (report, seen) = go(&sh(&script), &limits(), PoliteStop::TerminateGroup, |lines| {
        if all_three(lines) {
            std::fs::write(folder.path().join("go"), "").unwrap();
        }
        false
    });
    assert_eq!(report.signal, Some(9));
    assert_family_gone(&report, &seen);
}

#[test]
fn concurrent_runs_do_not_end_each_others_children() {
    let folder = tempfile::tempdir().unwrap();
    let proof = folder.path().join("go");
    let long = format!(
        "setsid sh -c 'echo daemon=$$; exec sleep 300 </dev/null >/dev/null 2>&1' &
         while [ ! -e {} ]; do sleep 0.02; done; kill -0 $! && echo alive",
        proof.display()
    );
    thread::scope(|scope| {
        let first = scope.spawn(|| plain(&long));
        let (report, seen) = go(
            &sh(&family("trap '' INT TERM; while :; do sleep 0.05; done")),
            &Limits { grace: Duration::from_millis(50), ..limits() },
            PoliteStop::TerminateGroup,
            all_three,
        );
        assert_family_gone(&report, &seen);
        std::fs::write(&proof, "").unwrap();
        let (report, seen) = first.join().unwrap();
        assert!(seen.lines.contains(&"alive".to_owned()), "{:?}", seen.lines);
        assert_eq!(report.exit_code, Some(0));
        assert!(is_gone(seen.number("daemon")));
    });
}

/// The mark of the run of a supervisor that is played here.
const RUN: &str = "played-run";

/// Not a test of its own: the body of a supervisor with a program beside that of its run, started by the test below.
#[test]
#[ignore = "started by another test in a process of its own"]
fn supervisor_with_two_body() {
    let Some(out) = std::env::var_os("AB_TEST_OUT") else { return };
    claim_all_children(RUN);
    let folder = PathBuf::from(&out).parent().unwrap().to_path_buf();
    let wait_for =
        |name: &str| format!("while [ ! -e {} ]; do sleep 0.02; done", folder.join(name).display());
    let marked = |script: String, mark: String| {
        let mut program = sh(&script);
        program.env.insert(TURN_VAR.into(), mark.into());
        program
    };
    // Both leave a daemon to the supervisor while the other runs.
    let daemon = |name: &str| {
        format!(
            "(setsid sh -c 'sh -c \"echo {name}=\\$\\$; exec sleep 300 </dev/null >/dev/null 2>&1\" &' &)"
        )
    };
    let beside = marked(format!("echo up; {}; {}", wait_for("worker-has"), daemon("check")), mark_below(RUN));
    let worker = marked(format!("{}; {}; {}", wait_for("up"), daemon("worker"), wait_for("go")), RUN.into());
    let tell = |name: &str| std::fs::write(folder.join(name), "").unwrap();
    let said = |lines: &[String], start: &str| lines.iter().any(|line| line.starts_with(start));
    let (kept, seen) = thread::scope(|scope| {
        let run = scope.spawn(|| {
            go(&worker, &limits(), PoliteStop::TerminateGroup, |lines| {
                if said(lines, "worker=") {
                    tell("worker-has");
                }
                false
            })
        });
        let (_, check) = go(&beside, &limits(), PoliteStop::TerminateGroup, |lines| {
            if said(lines, "up") {
                tell("up");
            }
            false
        });
        let check_gone = is_gone(check.number("check"));
        let worker_daemon = processes::with_variable(TURN_VAR, RUN.as_ref()).len();
        tell("go");
        let (_, worker) = run.join().unwrap();
        ((check_gone, worker_daemon), worker)
    });
    // The root and its daemon, at least.
    let worker_kept = kept.1 >= 2;
    std::fs::write(out, format!("{} {} {}", kept.0, worker_kept, is_gone(seen.number("worker")))).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn what_runs_beside_a_run_ends_its_own_orphans_and_leaves_those_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::run::tests::trees::supervisor_with_two_body", "--ignored"])
        .env("AB_TEST_OUT", &out)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "true true true");
}

/// Not a test of its own: the body of a supervisor process, started by the test below.
#[test]
#[ignore = "started by another test in a process of its own"]
fn supervisor_body() {
    let Some(out) = std::env::var_os("AB_TEST_OUT") else { return };
    claim_all_children(RUN);
    // A daemon that cleared its environment and left group and session.
    let script =
        "(env -i setsid sh -c 'sh -c \"echo daemon=\\$\\$; exec sleep 300 </dev/null >/dev/null 2>&1\" &' &)
         while :; do sleep 0.05; done";
    let mut program = sh(script);
    program.env.insert(TURN_VAR.into(), RUN.into());
    let (report, seen) = go(
        &program,
        &Limits { grace: Duration::from_millis(100), ..limits() },
        PoliteStop::TerminateGroup,
        |lines| !lines.is_empty(),
    );
    assert!(report.survivors.is_empty());
    std::fs::write(out, format!("{} {}", seen.number("daemon"), is_gone(seen.number("daemon")))).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_supervisor_ends_even_a_daemon_that_cleared_its_environment() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::run::tests::trees::supervisor_body", "--ignored"])
        .env("AB_TEST_OUT", &out)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let text = std::fs::read_to_string(&out).unwrap();
    let (pid, gone) = text.split_once(' ').unwrap();
    assert_eq!(gone, "true");
    assert!(is_gone(pid.parse().unwrap()));
}

/// Not a test of its own: a supervisor that is killed in mid-run.
#[test]
#[ignore = "started by another test in a process of its own"]
fn killed_supervisor_body() {
    let Some(out) = std::env::var_os("AB_TEST_OUT") else { return };
    let mut program = sh(
        "setsid sh -c 'echo stray=$$; exec sleep 300 </dev/null >/dev/null 2>&1' & echo root=$$; while :; do sleep 0.05; done",
    );
    program.env.insert(TURN_VAR.into(), std::env::var_os("AB_TEST_TURN").unwrap());
    go(&program, &limits(), PoliteStop::TerminateGroup, |lines| {
        if lines.len() == 2 {
            let partial = PathBuf::from(&out).with_extension("part");
            std::fs::write(&partial, lines.join("\n")).unwrap();
            std::fs::rename(&partial, &out).unwrap();
        }
        false
    });
}

#[cfg(target_os = "linux")]
#[test]
fn the_root_dies_with_its_supervisor_and_strays_are_found_by_their_mark() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let turn = uuid::Uuid::new_v4().to_string();
    let mut supervisor = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::run::tests::trees::killed_supervisor_body", "--ignored"])
        .env("AB_TEST_OUT", &out)
        .env("AB_TEST_TURN", &turn)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(|| out.exists());
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let seen = Seen {
        lines: std::fs::read_to_string(&out).unwrap().lines().map(str::to_owned).collect(),
        started: Vec::new(),
    };
    wait_for(|| is_gone(seen.number("root")));
    assert!(!is_gone(seen.number("stray")));
    assert!(end_leftovers(&turn).is_empty());
    wait_for(|| is_gone(seen.number("stray")));
    assert!(end_leftovers(&turn).is_empty(), "nothing to do is fine too");
}

#[cfg(target_os = "linux")]
fn wait_for(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it never happened");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_panic_in_a_callback_leaves_no_process() {
    let root = std::sync::atomic::AtomicU32::new(0);
    let result = std::panic::catch_unwind(|| {
        let mut on_line = |_: &[u8]| -> Option<String> { panic!("a bug in a parser") };
        run(
            &sh("echo go; sleep 300"),
            &limits(),
            PoliteStop::TerminateGroup,
            RunIo {
                on_started: &mut |pid| root.store(pid, std::sync::atomic::Ordering::SeqCst),
                on_line: &mut on_line,
                ..silent()
            },
        )
    });
    if let Ok(ended) = result {
        panic!("the callback was never called: {ended:?}");
    }
    let root = root.load(std::sync::atomic::Ordering::SeqCst);
    assert!(is_gone(root), "{:?}", processes::find(root));
}
