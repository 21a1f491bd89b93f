//! Runs of tiny shell programs: streams, deadlines, cancels, and trees of which nothing may be left.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::error::Coded;
use crate::platform::processes;
use crate::process::TURN_VAR;

/// Long enough for a loaded machine; no test waits for it unless it fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn sh(script: &str) -> Program {
    Program {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        cwd: std::env::temp_dir(),
        env: BTreeMap::from([(OsString::from("PATH"), std::env::var_os("PATH").unwrap())]),
        stdin: Vec::new(),
    }
}

fn limits() -> Limits {
    Limits {
        start: None,
        idle: None,
        run: PATIENCE,
        grace: Duration::from_secs(5),
        drain: Duration::from_secs(5),
        max_line: 16 << 20,
        max_output: 1 << 30,
        stderr_tail: 4096,
    }
}

/// What a run showed.
#[derive(Default)]
struct Seen {
    lines: Vec<String>,
    started: Vec<u32>,
}

impl Seen {
    /// The number printed on the line `NAME=NUMBER`.
    fn number(&self, name: &str) -> u32 {
        let prefix = format!("{name}=");
        self.lines.iter().find_map(|line| line.strip_prefix(&prefix)).expect(name).trim().parse().unwrap()
    }
}

/// Runs with a cancel once `cancel_when` says so.
fn go(
    program: &Program,
    limits: &Limits,
    polite: PoliteStop,
    cancel_when: impl Fn(&[String]) -> bool,
) -> (Report, Seen) {
    let seen = std::cell::RefCell::new(Seen::default());
    let report = run(
        program,
        limits,
        polite,
        RunIo {
            stdout_file: None,
            stderr_file: None,
            on_started: &mut |pid| seen.borrow_mut().started.push(pid),
            on_line: &mut |line| {
                seen.borrow_mut().lines.push(String::from_utf8_lossy(line).into_owned());
                None
            },
            on_error_line: &mut |_| None,
            on_tick: &mut |_| cancel_when(&seen.borrow().lines).then(|| "asked".to_owned()),
        },
    )
    .unwrap();
    (report, seen.into_inner())
}

fn plain(script: &str) -> (Report, Seen) {
    go(&sh(script), &limits(), PoliteStop::TerminateGroup, |_| false)
}

fn is_gone(pid: u32) -> bool {
    processes::find(pid).is_none_or(|process| process.zombie)
}

#[test]
fn lines_exit_code_and_standard_error_arrive() {
    let (report, seen) = plain("echo one; printf 'two\\r\\nthree'; echo why >&2; exit 7");
    assert_eq!(seen.lines, ["one", "two", "three"]);
    assert_eq!(report.exit_code, Some(7));
    assert_eq!(report.signal, None);
    assert_eq!(report.stopped, None);
    assert_eq!(report.stderr_tail, "why\n");
    assert_eq!((report.stdout_bytes, report.stderr_bytes), (14, 4));
    assert!(report.survivors.is_empty() && !report.drain_cut);
    assert_eq!(seen.started.len(), 1);
    assert!(is_gone(seen.started[0]));
}

#[test]
fn a_signal_is_reported_as_one() {
    let (report, _) = plain("kill -9 $$");
    assert_eq!((report.exit_code, report.signal), (None, Some(9)));
    assert_eq!(report.stopped, None);
}

#[test]
fn the_environment_is_exactly_what_was_listed() {
    let mut program = sh("env");
    program.env.insert("ONLY".into(), "this".into());
    let (_, seen) = go(&program, &limits(), PoliteStop::TerminateGroup, |_| false);
    let mut names: Vec<&str> = seen.lines.iter().filter_map(|l| l.split('=').next()).collect();
    names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["AGENT_BRIDGE_TURN_ID", "ONLY", "PATH"]);
}

#[test]
fn an_empty_prompt_is_the_null_device_and_a_long_one_arrives_whole() {
    let (report, seen) = plain("cat | wc -c");
    assert_eq!(report.exit_code, Some(0));
    assert_eq!(seen.lines[0].trim(), "0");
    let mut program = sh("cat");
    program.stdin = b"line \xFF\n".repeat(50_000);
    let file = tempfile::NamedTempFile::new().unwrap();
    let report = run(
        &program,
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo {
            stdout_file: Some(Box::new(file.reopen().unwrap())),
            stderr_file: None,
            on_started: &mut |_| {},
            on_line: &mut |_| None,
            on_error_line: &mut |_| None,
            on_tick: &mut |_| None,
        },
    )
    .unwrap();
    assert_eq!(report.exit_code, Some(0));
    assert_eq!(std::fs::read(file.path()).unwrap(), program.stdin);
}

#[test]
fn arguments_are_exact_and_no_shell_sees_them() {
    let folder = tempfile::tempdir().unwrap();
    let trap = folder.path().join("X");
    let nasty = format!("; touch {0}\n$(touch {0}) `touch {0}` & \"%PATH%^ é", trap.display());
    let mut program = sh("printf '%s' \"$1\"");
    program.args.extend(["sh".into(), nasty.clone().into()]);
    let (_, seen) = go(&program, &limits(), PoliteStop::TerminateGroup, |_| false);
    assert_eq!(seen.lines.join("\n"), nasty);
    assert!(!trap.exists());
}

#[test]
fn a_program_that_ignores_its_prompt_is_judged_by_its_exit() {
    let mut program = sh("echo 'cannot read workspace' >&2; exit 3");
    program.stdin = vec![b'x'; 1 << 20];
    let (report, _) = go(&program, &limits(), PoliteStop::TerminateGroup, |_| false);
    assert_eq!(report.exit_code, Some(3));
    assert_eq!(report.stopped, None);
    assert_eq!(report.stderr_tail, "cannot read workspace\n");
}

#[test]
fn a_megabyte_on_standard_error_blocks_nothing() {
    let script = "head -c 1048576 /dev/zero | tr '\\0' 'e' >&2; echo; echo END >&2; echo answer";
    let (report, seen) = plain(script);
    assert_eq!(seen.lines.last().unwrap(), "answer");
    assert_eq!(report.stderr_bytes, 1_048_576 + 4);
    assert!(report.stderr_tail.ends_with("eEND\n") && report.stderr_tail.len() <= 4096);
}

#[test]
fn any_bytes_are_captured_exactly() {
    let (out, err) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let mut lines = Vec::new();
    let report = run(
        &sh("printf '\\377\\376\\303\\nok\\n\\0'; printf 'Schl\\374ssel\\033[31m\\n' >&2"),
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo {
            stdout_file: Some(Box::new(out.reopen().unwrap())),
            stderr_file: Some(Box::new(err.reopen().unwrap())),
            on_started: &mut |_| {},
            on_line: &mut |line| {
                lines.push(line.to_vec());
                None
            },
            on_error_line: &mut |_| None,
            on_tick: &mut |_| None,
        },
    )
    .unwrap();
    assert_eq!(lines, [b"\xFF\xFE\xC3".to_vec(), b"ok".to_vec(), b"\0".to_vec()]);
    assert_eq!(std::fs::read(out.path()).unwrap(), b"\xFF\xFE\xC3\nok\n\0");
    assert_eq!(std::fs::read(err.path()).unwrap(), b"Schl\xFCssel\x1b[31m\n");
    assert_eq!(report.stderr_tail, "Schl\u{FFFD}ssel\n");
}

#[test]
fn a_capture_file_that_cannot_be_written_does_not_end_the_run() {
    // Opened for reading only, so that every write fails.
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut lines = 0;
    let report = run(
        &sh("echo answer; echo more"),
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo {
            stdout_file: Some(Box::new(std::fs::File::open(file.path()).unwrap())),
            stderr_file: None,
            on_started: &mut |_| {},
            on_line: &mut |_| {
                lines += 1;
                None
            },
            on_error_line: &mut |_| None,
            on_tick: &mut |_| None,
        },
    )
    .unwrap();
    assert_eq!((report.exit_code, lines), (Some(0), 2));
    assert!(report.capture_error.is_some());
}

#[test]
fn an_eight_megabyte_line_is_a_line() {
    let (report, seen) = plain("head -c 8388608 /dev/zero | tr '\\0' x; echo; echo answer");
    assert_eq!(report.stopped, None);
    assert_eq!(seen.lines.iter().map(String::len).collect::<Vec<_>>(), [8_388_608, 6]);
}

#[cfg(target_os = "linux")]
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn two_hundred_megabytes_without_a_newline_end_by_name_in_bounded_memory() {
    let before = peak_memory_kib();
    let mut limits = limits();
    limits.max_line = 4 << 20;
    let script = "head -c 209715200 /dev/zero | tr '\\0' x";
    let (report, seen) = go(&sh(script), &limits, PoliteStop::TerminateGroup, |_| false);
    assert_eq!(report.stopped, Some(Stopped::LineTooLong(4 << 20)));
    assert!(seen.lines.is_empty());
    // Without a line limit in the way: the reader of lines is slow, the channel must hold the rest back.
    limits.max_output = 20 << 20;
    limits.max_line = 1 << 20;
    let (report, _) = go(
        &sh("yes 0123456789012345678901234567890123456789 | head -c 209715200"),
        &limits,
        PoliteStop::TerminateGroup,
        |_| false,
    );
    assert_eq!(report.stopped, Some(Stopped::OutputTooLarge(20 << 20)));
    assert_eq!(report.stdout_bytes, 20 << 20);
    // Nextest runs this alone in its process; with threads the other tests' memory is in the figure.
    if std::env::var_os("NEXTEST").is_some() {
        let grown = peak_memory_kib() - before;
        // The 20 MiB of lines that this test collects itself are in it.
        assert!(grown < 96 * 1024, "grew by {grown} KiB");
    }
}

#[test]
fn no_output_by_the_start_deadline_ends_the_run_by_name() {
    let mut limits = limits();
    limits.start = Some(Duration::from_millis(150));
    let (report, seen) = go(&sh("sleep 300"), &limits, PoliteStop::TerminateGroup, |_| false);
    assert_eq!(report.stopped, Some(Stopped::StartDeadline(Duration::from_millis(150))));
    assert_eq!((report.stdout_bytes, report.stderr_bytes), (0, 0));
    assert!(is_gone(seen.started[0]));
    assert!(report.survivors.is_empty());
}

#[test]
fn a_slow_start_within_the_deadline_succeeds() {
    let mut limits = limits();
    limits.start = Some(PATIENCE);
    limits.idle = Some(PATIENCE);
    let (report, seen) = go(&sh("sleep 0.4; echo late"), &limits, PoliteStop::TerminateGroup, |_| false);
    assert_eq!((report.stopped, report.exit_code), (None, Some(0)));
    assert_eq!(seen.lines, ["late"]);
    assert!(report.duration >= Duration::from_millis(400));
}

#[test]
fn silence_after_the_first_byte_is_the_idle_deadline_and_the_output_is_kept() {
    let mut limits = limits();
    limits.start = Some(PATIENCE);
    limits.idle = Some(Duration::from_millis(150));
    let (report, seen) = go(&sh("echo result; sleep 300"), &limits, PoliteStop::TerminateGroup, |_| false);
    assert_eq!(report.stopped, Some(Stopped::IdleDeadline(Duration::from_millis(150))));
    assert_eq!(seen.lines, ["result"]);
}

#[test]
fn output_on_standard_error_alone_counts_as_life() {
    let mut limits = limits();
    limits.idle = Some(Duration::from_secs(3));
    limits.start = Some(Duration::from_secs(3));
    let script = "for i in 1 2 3 4 5 6 7 8; do echo . >&2; sleep 0.1; done; echo done";
    let (report, seen) = go(&sh(script), &limits, PoliteStop::TerminateGroup, |_| false);
    assert_eq!((report.stopped, seen.lines), (None, vec!["done".to_owned()]));
}

#[test]
fn the_run_deadline_holds_against_endless_output() {
    let mut limits = limits();
    limits.run = Duration::from_millis(300);
    let (report, _) = go(&sh("while :; do echo beat; done"), &limits, PoliteStop::TerminateGroup, |_| false);
    assert_eq!(report.stopped, Some(Stopped::RunDeadline(Duration::from_millis(300))));
    assert!(report.survivors.is_empty());
}

#[test]
fn a_run_cancelled_before_its_start_never_starts() {
    let folder = tempfile::tempdir().unwrap();
    let proof = folder.path().join("ran");
    let script = format!("touch {}", proof.display());
    let (report, seen) = go(&sh(&script), &limits(), PoliteStop::TerminateGroup, |_| true);
    assert_eq!(report.stopped, Some(Stopped::Cancelled("asked".into())));
    assert!(seen.started.is_empty());
    assert!(!proof.exists());
}

#[test]
fn a_polite_program_may_say_its_last_words() {
    let script = "trap 'echo bye; exit 0' INT; echo ready; while :; do sleep 0.05; done";
    let (report, seen) = go(&sh(script), &limits(), PoliteStop::InterruptRoot, |lines| !lines.is_empty());
    assert_eq!(report.stopped, Some(Stopped::Cancelled("asked".into())));
    assert_eq!(seen.lines, ["ready", "bye"]);
    assert_eq!(report.exit_code, Some(0));
}

#[test]
fn one_that_ignores_every_request_is_killed_after_the_grace_time() {
    let mut limits = limits();
    limits.grace = Duration::from_millis(200);
    for polite in [PoliteStop::InterruptRoot, PoliteStop::TerminateGroup] {
        let script = "trap '' INT TERM; echo ready; while :; do sleep 300; done";
        let start = Instant::now();
        let (report, seen) = go(&sh(script), &limits, polite, |lines| !lines.is_empty());
        assert_eq!(report.signal, Some(9));
        assert!(is_gone(seen.started[0]));
        assert!(start.elapsed() < PATIENCE / 2);
    }
}

#[test]
fn a_fatal_finding_ends_the_run_at_once() {
    let mut lines = Vec::new();
    let report = run(
        &sh("echo hello; echo 'please log in'; sleep 300"),
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo {
            stdout_file: None,
            stderr_file: None,
            on_started: &mut |_| {},
            on_line: &mut |line| {
                lines.push(line.to_vec());
                line.starts_with(b"please").then(|| "waits for a login".to_owned())
            },
            on_error_line: &mut |_| None,
            on_tick: &mut |_| None,
        },
    )
    .unwrap();
    assert_eq!(report.stopped, Some(Stopped::Fatal("waits for a login".into())));
    assert_eq!(lines.len(), 2);
    assert!(report.duration < PATIENCE / 2);
}

#[test]
fn an_exit_that_came_first_wins_over_a_cancel_and_a_deadline_in_the_drain() {
    // The root is gone at once; a straggler holds the stream until the cancel was seen.
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("cancelled");
    let script =
        format!("(while [ ! -e {0} ]; do sleep 0.02; done; echo tail) & echo answer; exit 0", flag.display());
    let root = std::cell::Cell::new(0);
    let mut lines = Vec::new();
    let mut limits = limits();
    limits.drain = PATIENCE;
    limits.run = PATIENCE;
    let report = run(
        &sh(&script),
        &limits,
        PoliteStop::TerminateGroup,
        RunIo {
            stdout_file: None,
            stderr_file: None,
            on_started: &mut |pid| root.set(pid),
            on_line: &mut |line| {
                lines.push(String::from_utf8_lossy(line).into_owned());
                None
            },
            on_error_line: &mut |_| None,
            on_tick: &mut |elapsed| {
                if elapsed.is_zero() || !is_gone(root.get()) {
                    return None;
                }
                std::fs::write(&flag, "").unwrap();
                Some("too late".into())
            },
        },
    )
    .unwrap();
    assert_eq!((report.stopped, report.exit_code), (None, Some(0)));
    assert_eq!(lines, ["answer", "tail"]);
}

#[test]
fn a_run_deadline_in_the_drain_changes_nothing() {
    let mut limits = limits();
    limits.run = Duration::from_millis(400);
    limits.drain = Duration::from_millis(900);
    let (report, seen) =
        go(&sh("sleep 300 & echo answer; exit 0"), &limits, PoliteStop::TerminateGroup, |_| false);
    assert_eq!((report.stopped, report.exit_code), (None, Some(0)));
    assert_eq!(seen.lines, ["answer"]);
    assert!(report.survivors.is_empty() && !report.drain_cut);
}

#[test]
fn a_megabyte_that_is_still_in_the_pipe_at_the_end_is_kept() {
    let (report, seen) = plain("head -c 3000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo last");
    assert_eq!(report.exit_code, Some(0));
    assert_eq!(seen.lines.last().unwrap(), "last");
    assert!(report.stdout_bytes >= 3_000_000);
}

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

/// Not a test of its own: the body of a supervisor process, started by the test below.
#[test]
#[ignore = "started by another test in a process of its own"]
fn supervisor_body() {
    let Some(out) = std::env::var_os("AB_TEST_OUT") else { return };
    claim_all_children();
    // A daemon that cleared its environment and left group and session.
    let script =
        "(env -i setsid sh -c 'sh -c \"echo daemon=\\$\\$; exec sleep 300 </dev/null >/dev/null 2>&1\" &' &)
         while :; do sleep 0.05; done";
    let (report, seen) = go(
        &sh(script),
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
        .args(["--exact", "process::run::tests::supervisor_body", "--ignored"])
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
        .args(["--exact", "process::run::tests::killed_supervisor_body", "--ignored"])
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
                stdout_file: None,
                stderr_file: None,
                on_started: &mut |pid| root.store(pid, std::sync::atomic::Ordering::SeqCst),
                on_line: &mut on_line,
                on_error_line: &mut |_| None,
                on_tick: &mut |_| None,
            },
        )
    });
    if let Ok(ended) = result {
        panic!("the callback was never called: {ended:?}");
    }
    let root = root.load(std::sync::atomic::Ordering::SeqCst);
    assert!(is_gone(root), "{:?}", processes::find(root));
}

#[test]
fn the_clock_is_offered_often_enough() {
    let mut ticks: Vec<Duration> = Vec::new();
    run(
        &sh("sleep 1"),
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo {
            stdout_file: None,
            stderr_file: None,
            on_started: &mut |_| {},
            on_line: &mut |_| None,
            on_error_line: &mut |_| None,
            on_tick: &mut |elapsed| {
                ticks.push(elapsed);
                None
            },
        },
    )
    .unwrap();
    assert_eq!(ticks[0], Duration::ZERO);
    // A loaded machine may be late; a quarter of the promise is proof enough that nobody counts seconds.
    assert!(ticks.len() >= 5, "{ticks:?}");
    assert!(ticks.windows(2).all(|pair| pair[0] <= pair[1]));
}

fn start_error(program: &Program) -> ProcessError {
    let mut started = false;
    let error = run(
        program,
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo {
            stdout_file: None,
            stderr_file: None,
            on_started: &mut |_| started = true,
            on_line: &mut |_| None,
            on_error_line: &mut |_| None,
            on_tick: &mut |_| None,
        },
    )
    .unwrap_err();
    assert!(!started);
    error
}

fn file(path: &Path, text: &str, mode: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.to_path_buf()
}

#[test]
fn a_start_that_fails_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let code = |program: PathBuf| start_error(&Program { program, ..sh("") }).doc().code;
    assert_eq!(code(at("none")), "PROGRAM_NOT_FOUND");
    assert_eq!(code("relative".into()), "PROGRAM_NOT_FOUND");
    assert_eq!(code(folder.path().to_path_buf()), "PROGRAM_NOT_EXECUTABLE");
    assert_eq!(code(file(&at("plain"), "#!/bin/sh\n", 0o644)), "PROGRAM_NOT_EXECUTABLE");
    assert_eq!(code(file(&at("noise"), "\x01\x02\x03", 0o755)), "PROGRAM_NOT_EXECUTABLE");
    assert_eq!(code(file(&at("script"), "#!/no/such/shell\n", 0o755)), "INTERPRETER_MISSING");
    assert_eq!(code(file(&at("envd"), "#!/usr/bin/env ab-no-such\n", 0o755)), "INTERPRETER_MISSING");

    let nowhere = start_error(&Program { cwd: at("gone"), ..sh("true") });
    assert_eq!(nowhere.doc().code, "WORKING_FOLDER_UNUSABLE");
    let not_a_folder = start_error(&Program { cwd: at("plain"), ..sh("true") });
    assert_eq!(not_a_folder.doc().code, "WORKING_FOLDER_UNUSABLE");
    let nul = start_error(&Program { args: vec!["a\0b".into()], ..sh("") });
    assert_eq!(nul.doc().code, "ARGUMENT_HAS_NUL");
}

#[cfg(target_os = "linux")]
#[test]
fn arguments_beyond_the_system_are_refused_before_and_after_asking_it() {
    let long = start_error(&Program { args: vec!["x".repeat(200 << 10).into()], ..sh("") });
    assert_eq!(long.doc().code, "ARGUMENT_TOO_LONG");
    let many = start_error(&Program { args: vec!["x".repeat(100 << 10).into(); 200], ..sh("") });
    assert_eq!(many.doc().code, "ARGUMENT_TOO_LONG");
}

#[test]
fn a_probe_is_captured() {
    let captured = capture(&sh("echo 1.2.3; echo noise >&2; sleep 300 &"), PATIENCE, 1000).unwrap();
    assert_eq!(captured.stdout, "1.2.3\n");
    assert_eq!(captured.report.exit_code, Some(0));
    assert!(captured.report.survivors.is_empty());
}

#[test]
fn a_probe_that_hangs_or_floods_is_ended() {
    let hung = capture(&sh("echo first; sleep 300"), Duration::from_millis(300), 1000).unwrap();
    assert_eq!(hung.report.stopped, Some(Stopped::RunDeadline(Duration::from_millis(300))));
    assert_eq!(hung.stdout, "first\n");
    let flood = capture(&sh("yes"), PATIENCE, 1000).unwrap();
    assert!(matches!(flood.report.stopped, Some(Stopped::Fatal(_))));
    assert!(flood.stdout.len() <= 1000 && flood.stdout.starts_with("y\ny\n"));
}
