//! What ends a run: deadlines, cancels, findings, and which of them wins over an exit.

use super::shell::*;
use super::*;

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
            on_line: &mut |line| {
                lines.push(line.to_vec());
                line.starts_with(b"please").then(|| "waits for a login".to_owned())
            },
            ..silent()
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
            on_started: &mut |pid| root.set(pid),
            on_line: &mut |line| {
                lines.push(String::from_utf8_lossy(line).into_owned());
                None
            },
            on_tick: &mut |elapsed| {
                if elapsed.is_zero() || !is_gone(root.get()) {
                    return None;
                }
                std::fs::write(&flag, "").unwrap();
                Some("too late".into())
            },
            ..silent()
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
fn the_clock_is_offered_often_enough() {
    let mut ticks: Vec<Duration> = Vec::new();
    run(
        &sh("sleep 1"),
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo {
            on_tick: &mut |elapsed| {
                ticks.push(elapsed);
                None
            },
            ..silent()
        },
    )
    .unwrap();
    assert_eq!(ticks[0], Duration::ZERO);
    // A loaded machine may be late; a quarter of the promise is proof enough that nobody counts seconds.
    assert!(ticks.len() >= 5, "{ticks:?}");
    assert!(ticks.windows(2).all(|pair| pair[0] <= pair[1]));
}
