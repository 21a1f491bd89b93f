//! Every change of an installation, cut off at every system call and failed at every system call: afterwards the
//! whole tree is as before or as after, byte for byte, and the exit code said which.
//!
//! The points of a command are all calls of its main thread from the first one that has to do with the installation
//! (the dynamic loader and the runtime's start before that change nothing; how many were left out is printed). At
//! each of them a run is killed, and another one gets an error: in turn one of eight at every call that changes
//! something, once and every third time for good, and at every tenth other call. `AGENT_BRIDGE_FAULTS=full` tries
//! all errors at all calls, and `exhaustive` recovery from every state that a cut leaves.
//!
//! Then the rule of the exit codes: 0 is *after*; 1, 2, 3 and 75 are *before*, without any recovery; 4 and a kill
//! are one of both once `recover` was run. The same inside `recover` itself, from states at several depths, and
//! inside the recovery of a recovery.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod support;

#[path = "support/faults/mod.rs"]
mod faults;

#[cfg(target_os = "linux")]
mod on_linux {
    use std::time::Instant;

    use super::faults::live::Live;
    use super::faults::subject::{self, Subject};
    use super::faults::trace::{Call, Point};
    use super::faults::verdict::{Counts, Proof, try_points};
    use super::faults::{self, ONLY, audit};

    /// Whether it can be tried here.
    fn ready() -> bool {
        if !faults::has("strace") {
            faults::cannot_run("the proof at every system call", "strace is not installed");
            return false;
        }
        true
    }

    fn workers() -> Vec<Live> {
        let count = std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 4);
        let count = if std::env::var_os(ONLY).is_some() { 1 } else { count };
        (0..count).map(|_| Live::new()).collect()
    }

    /// The point that was asked for alone, if one was.
    fn only(points: Vec<Point>, name: &str) -> Vec<Point> {
        match std::env::var(ONLY) {
            Err(_) => points,
            Ok(wanted) => points.into_iter().filter(|point| format!("{name}/{point}") == wanted).collect(),
        }
    }

    #[track_caller]
    fn conclude(what: &str, counts: &Counts, start: usize, from: Instant, wrong: &[String]) {
        println!("{what}: {}; {start} calls before the first left out; {:.1?}", counts.say(), from.elapsed());
        let shown: Vec<&str> = wrong.iter().take(12).map(String::as_str).collect();
        assert!(wrong.is_empty(), "{what}: {} points are wrong\n\n{}", wrong.len(), shown.join("\n\n"));
    }

    /// A command at every call.
    fn prove(subject: &Subject) {
        if !ready() {
            return;
        }
        let from = Instant::now();
        let lives = workers();
        let proofs: Vec<Proof<'_>> = lives.iter().map(|live| Proof::of_command(live, subject)).collect();
        let mut points = proofs[0].kills();
        points.extend(proofs[0].errors(faults::full()));
        let points = only(points, &proofs[0].name);
        let counts = Counts::default();
        let again = if faults::exhaustive() { 1 } else { 10 };
        let wrong = try_points(&proofs, &points, again, &counts);
        conclude(subject.name, &counts, proofs[0].recording.start, from, &wrong);
    }

    /// The same for what is much like another command.
    fn prove_if_full(subject: &Subject) {
        if faults::full() {
            prove(subject);
        } else {
            println!("{}: only with {}=full", subject.name, faults::AMOUNT);
        }
    }

    /// Its recovery at every call, from several depths.
    fn prove_recovery(subject: &Subject) {
        if !ready() {
            return;
        }
        let from = Instant::now();
        let lives = workers();
        let proofs: Vec<Proof<'_>> = lives.iter().map(|live| Proof::of_command(live, subject)).collect();
        let cuts = proofs[0].distinct_cuts();
        let wanted = if faults::exhaustive() { cuts.len() } else { 4 };
        let counts = Counts::default();
        let mut wrong = Vec::new();
        let (mut depths, mut start) = (0, 0);
        for index in spread(cuts.len(), wanted) {
            let recoveries: Option<Vec<Proof<'_>>> =
                proofs.iter().map(|proof| proof.recovery_at(&cuts[index])).collect();
            let Some(recoveries) = recoveries else { continue };
            let mut points = recoveries[0].kills();
            points.extend(recoveries[0].errors(faults::full()));
            let points = only(points, &recoveries[0].name);
            wrong.extend(try_points(&recoveries, &points, 0, &counts));
            depths += 1;
            start = recoveries[0].recording.start;
        }
        // Once more inside: the recovery of a recovery that was cut off when it had done half of its work.
        if let Some(cut) = cuts.get(cuts.len() / 2) {
            let once: Option<Vec<Proof<'_>>> = proofs.iter().map(|proof| proof.recovery_at(cut)).collect();
            let inner = once.as_ref().map(|once| once[0].distinct_cuts()).unwrap_or_default();
            let twice: Option<Vec<Proof<'_>>> = once
                .zip(inner.get(inner.len() / 2))
                .and_then(|(once, cut)| once.iter().map(|proof| proof.recovery_at(cut)).collect());
            if let Some(twice) = twice {
                let points = only(twice[0].kills(), &twice[0].name);
                wrong.extend(try_points(&twice, &points, 0, &counts));
                depths += 1;
            }
        }
        conclude(
            &format!("recover of {} from {depths} of {} states", subject.name, cuts.len()),
            &counts,
            start,
            from,
            &wrong,
        );
        assert!(depths > 0 || std::env::var_os(ONLY).is_some(), "nothing was left to recover");
    }

    /// So many of a list, the first and the last among them.
    fn spread(length: usize, wanted: usize) -> Vec<usize> {
        let wanted = wanted.min(length);
        (0..wanted).map(|index| if wanted < 2 { 0 } else { index * (length - 1) / (wanted - 1) }).collect()
    }

    #[test]
    fn history_mark_is_before_or_after_at_every_call() {
        prove(&subject::MARK);
    }

    #[test]
    fn prune_is_before_or_after_at_every_call() {
        prove(&subject::PRUNE);
    }

    #[test]
    fn cutover_is_before_or_after_at_every_call() {
        prove(&subject::CUTOVER);
    }

    #[test]
    fn rollback_is_before_or_after_at_every_call() {
        prove(&subject::ROLLBACK);
    }

    #[test]
    fn install_release_is_before_or_after_at_every_call() {
        prove(&subject::INSTALL);
    }

    #[test]
    fn the_first_install_release_is_before_or_after_at_every_call() {
        prove_if_full(&subject::FIRST_INSTALL);
    }

    #[test]
    fn the_repair_of_a_release_is_before_or_after_at_every_call() {
        prove_if_full(&subject::REPAIR);
    }

    #[test]
    fn configure_clients_is_before_or_after_at_every_call() {
        prove(&subject::CLIENTS);
    }

    #[test]
    fn recovery_of_install_release_can_be_cut_off_and_run_again() {
        prove_recovery(&subject::INSTALL);
    }

    #[test]
    fn recovery_of_configure_clients_can_be_cut_off_and_run_again() {
        prove_recovery(&subject::CLIENTS);
    }

    #[test]
    fn recovery_of_cutover_can_be_cut_off_and_run_again() {
        prove_recovery(&subject::CUTOVER);
    }

    /// Read off the calls, whatever the file system would forgive.
    #[test]
    fn everything_is_flushed_before_the_next_record_and_the_end() {
        if !ready() {
            return;
        }
        let live = Live::new();
        let all = [
            subject::MARK,
            subject::PRUNE,
            subject::INSTALL,
            subject::CUTOVER,
            subject::ROLLBACK,
            subject::CLIENTS,
        ];
        let (mut needed, mut needless) = (0, 0);
        for subject in all {
            let proof = Proof::of_command(&live, &subject);
            let wrong = audit::unflushed(&proof.recording.calls, live.folder().to_str().unwrap());
            assert!(wrong.is_empty(), "{}:\n{}", subject.name, wrong.join("\n"));
            // Without any one of its flushes it has to be found.
            let flushes = |call: &Call| call.name == "fsync" && !call.line.contains("/.ballast");
            for left_out in (0..proof.recording.calls.len()).filter(|at| flushes(&proof.recording.calls[*at]))
            {
                let mut calls = proof.recording.calls.clone();
                calls.remove(left_out);
                let found = audit::unflushed(&calls, live.folder().to_str().unwrap());
                needless += usize::from(found.is_empty());
                needed += usize::from(!found.is_empty());
            }
            let cuts = proof.distinct_cuts();
            let found = cuts.iter().rev().find_map(|cut| Some((cut, proof.recovery_at(cut)?)));
            let (cut, recovery) = found.expect("something to recover");
            let wrong = audit::unflushed(&recovery.recording.calls, live.folder().to_str().unwrap());
            assert!(wrong.is_empty(), "recover of {} at {cut}:\n{}", subject.name, wrong.join("\n"));
        }
        println!("{needed} flushes without any of which something is missed, {needless} to spare");
        assert!(needed > 2 * needless, "the audit sees too little");
    }
}

/// The places at which tests stop the program are no part of what is shipped.
#[cfg(not(feature = "fault-points"))]
#[test]
fn a_program_that_is_built_as_usual_has_no_fault_points() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_agent-bridge")).unwrap();
    let holds = |text: &str| program.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("AGENT_BRIDGE_ROOT"), "texts cannot be found in the program at all");
    for text in ["AGENT_BRIDGE_FAULT_POINT", ".agent-bridge-fixture"] {
        assert!(!holds(text), "{text} is in the program");
    }
}

#[cfg(not(target_os = "linux"))]
#[test]
fn the_proof_at_every_system_call_needs_strace_on_linux() {
    eprintln!("SKIPPED: the proof at every system call runs on Linux only");
}
