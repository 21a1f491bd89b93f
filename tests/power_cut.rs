//! A life of releases on a disk that loses its power at any moment: whatever the disk holds then, the file system's
//! own recovery and ours make of it the installation before or after the command at hand; and what a command said
//! was done is still done.
//!
//! The disks that are tried are those that the block layer allows: everything up to a flush, and of the writes after
//! it each beginning, and all but one. `AGENT_BRIDGE_FAULTS=full` also tries every choice of up to six writes, and
//! more file systems.
//!
//! That this can find anything at all is shown by the same with flushes left out and with the decision recorded too
//! late: each has to be found.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod support;

#[path = "support/faults/mod.rs"]
mod faults;

#[cfg(target_os = "linux")]
mod on_linux {
    use std::collections::BTreeSet;
    use std::time::Instant;

    use agent_bridge::platform;
    use agent_bridge::release::journal::{self, Action, Journal, Outcome, Record};

    use super::faults;
    use super::faults::block_log::{Entry, Write};
    use super::faults::disk::{self, BTRFS, Bench, EXT4, EXT4_PLAIN, EXT4_WRITEBACK, FileSystem, XFS};
    use super::faults::live::{BRIDGE, Live};
    use super::faults::subject;
    use super::faults::trace::{self, Fault, Point, Recording};
    use super::faults::tree::{Look, Tree};

    /// A command of a sequence.
    enum Step {
        /// As it is.
        Whole(&'static [&'static str]),
        /// Killed when its decision is written and not yet flushed; then recovered.
        CutAtDecision(&'static [&'static str]),
        /// With flushes that do nothing.
        Unflushed(&'static [&'static str], Kind),
        /// Something of the test's own.
        Own(fn(&Live)),
    }

    /// What is not flushed.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Kind {
        Files,
        Folders,
    }

    /// What was tried on a disk.
    #[derive(Default)]
    struct Tried {
        images: usize,
        wrong: Vec<String>,
    }

    fn ready(kinds: &[&FileSystem]) -> bool {
        match disk::missing(kinds) {
            None => true,
            Some(why) => {
                faults::cannot_run("the proof against power cuts", &why);
                false
            }
        }
    }

    fn text(step: &Step) -> String {
        match step {
            Step::Whole(arguments) => arguments.join(" "),
            Step::CutAtDecision(arguments) => format!("{}, cut off at its decision", arguments.join(" ")),
            Step::Unflushed(arguments, Kind::Files) => format!("{}, files not flushed", arguments.join(" ")),
            Step::Unflushed(arguments, Kind::Folders) => {
                format!("{}, folders not flushed", arguments.join(" "))
            }
            Step::Own(_) => "a step of the test".into(),
        }
    }

    /// The call that flushes the decision.
    fn at_decision(recording: &Recording) -> Point {
        let commit = recording
            .calls
            .iter()
            .position(|call| call.name == "write" && call.line.contains(r#"\"record\":\"commit\""#))
            .expect("a commit record");
        let flush =
            recording.calls[commit..].iter().find(|call| call.name == "fdatasync").expect("its flush");
        Point { name: flush.name.clone(), number: flush.number, fault: Fault::Kill }
    }

    /// The paths that a command flushes and that are of a kind.
    fn flushed_paths(recording: &Recording, kind: Kind) -> BTreeSet<String> {
        let calls = recording.calls.iter().filter(|call| matches!(call.name.as_str(), "fsync" | "fdatasync"));
        calls
            .filter_map(|call| Some(call.line.split_once('<')?.1.split_once(">)")?.0.to_owned()))
            .filter(|path| std::path::Path::new(path).is_dir() == (kind == Kind::Folders))
            .collect()
    }

    /// Does a step on the mounted disk.
    fn run(live: &Live, step: &Step, recorded: Option<&Recording>) {
        match step {
            Step::Whole(arguments) => {
                live.must(arguments);
            }
            Step::CutAtDecision(arguments) => {
                let recording = recorded.expect("a recording");
                let (ended, reached) =
                    trace::inject(live, recording, BRIDGE, arguments, &at_decision(recording));
                assert!(reached, "not cut off: {ended}");
                live.must(&["recover"]);
            }
            Step::Unflushed(arguments, kind) => {
                let mut command = live.program("strace");
                for path in flushed_paths(recorded.expect("a recording"), *kind) {
                    command.arg("-P").arg(path);
                }
                command
                    .args([
                        "--trace=fsync,fdatasync",
                        "--inject=fsync,fdatasync:retval=0",
                        "-o",
                        "/dev/null",
                        "--",
                    ])
                    .arg(BRIDGE)
                    .args(live.arguments(arguments));
                let ended = live.run(command);
                assert_eq!(ended.code, Some(0), "{ended}");
            }
            Step::Own(body) => body(live),
        }
    }

    /// Records a sequence on a logged disk, then tries what a power cut can leave of it. Stops at the first that is
    /// wrong if that is all that is asked for.
    fn cut_power(
        kind: &'static FileSystem,
        prepare: fn(&Live),
        steps: &[Step],
        sweeps: Option<&str>,
        first_wrong_only: bool,
    ) -> Tried {
        let bench = Bench::new(kind);
        let live = Live::on(&bench.mount_point(), &bench.aside());
        bench.format("base");
        let mounted = bench.mount("base");
        live.clear();
        prepare(&live);
        mounted.unmount();

        // What the cut steps call, each from where it will start.
        let mut recordings: Vec<Option<Recording>> = Vec::new();
        bench.copy("base", "device");
        let mounted = bench.mount("device");
        for step in steps {
            recordings.push(match step {
                Step::CutAtDecision(arguments) | Step::Unflushed(arguments, _) => {
                    let (recording, ended) = trace::record(&live, BRIDGE, arguments);
                    assert_eq!(ended.code, Some(0), "{ended}");
                    Some(recording)
                }
                other => {
                    run(&live, other, None);
                    None
                }
            });
        }
        mounted.unmount();

        bench.copy("base", "device");
        let logged = bench.log_writes("device");
        let mounted = logged.mount();
        let mut states = vec![live.tree(Look::Settled)];
        let mut ends = vec![0];
        for (step, recording) in steps.iter().zip(&recordings) {
            run(&live, step, recording.as_ref());
            ends.push(logged.flushed());
            states.push(live.tree(Look::Settled));
        }
        mounted.unmount();
        let entries = logged.finish();
        Replay { bench: &bench, live: &live, entries, states, ends, steps, sweeps, first_wrong_only }.all()
    }

    /// The disks that a log allows, against the states that are allowed for them.
    struct Replay<'a> {
        bench: &'a Bench,
        live: &'a Live,
        entries: Vec<Entry>,
        states: Vec<Tree>,
        /// How many entries were on the disk when each step was over.
        ends: Vec<usize>,
        steps: &'a [Step],
        sweeps: Option<&'a str>,
        first_wrong_only: bool,
    }

    impl Replay<'_> {
        fn all(&self) -> Tried {
            let mut outcome = Tried::default();
            self.bench.copy("base", "flushed");
            let mut start = 0;
            while start <= self.entries.len() {
                let flush = self.entries[start..].iter().position(|entry| entry.flush);
                let end = flush.map_or(self.entries.len(), |at| start + at + 1);
                let writes: Vec<&Write> =
                    self.entries[start..end].iter().filter_map(|entry| entry.write.as_ref()).collect();
                for choice in choices(writes.len(), faults::full()) {
                    let chosen: Vec<&Write> = choice.iter().map(|index| writes[*index]).collect();
                    outcome.images += 1;
                    if let Err(what) = self.check(start, &chosen) {
                        outcome.wrong.push(format!(
                            "entries up to the flush at {start}, then writes {choice:?} of {}: {what}",
                            writes.len()
                        ));
                        if self.first_wrong_only {
                            return outcome;
                        }
                    }
                }
                self.bench.apply("flushed", writes);
                start = if end == start { end + 1 } else { end };
            }
            outcome
        }

        /// One disk.
        fn check(&self, flushed: usize, chosen: &[&Write]) -> Result<(), String> {
            self.bench.copy("flushed", "cut");
            self.bench.apply("cut", chosen.iter().copied());
            let mounted = self.bench.try_mount(&self.bench.image("cut"))?;
            let result = self.judge(flushed);
            mounted.unmount();
            result
        }

        fn judge(&self, flushed: usize) -> Result<(), String> {
            let done = self.ends.iter().rposition(|end| *end <= flushed).unwrap_or(0);
            let recovered = self.live.run_bridge(&["recover"]);
            if recovered.code != Some(0) {
                return Err(format!("recover failed: {recovered}"));
            }
            match journal::verify_all(&self.live.layout()) {
                Err(error) => return Err(format!("the journal: {error}")),
                Ok(all) if all.iter().any(|transcript| transcript.outcome().is_none()) => {
                    return Err("a transaction is not finished".into());
                }
                Ok(_) => {}
            }
            let mut now = self.live.tree(Look::Settled);
            if now == self.states[done] {
                return Ok(());
            }
            let Some(next) = self.states.get(done + 1) else {
                return Err(format!("after all steps: {:#?}", now.difference(&self.states[done])));
            };
            if let Some(prefix) = self.sweeps {
                now.forget(prefix);
            }
            if now == *next {
                return Ok(());
            }
            Err(format!(
                "neither before nor after `{}`:\n  against before: {:#?}\n  against after: {:#?}",
                text(&self.steps[done]),
                now.difference(&self.states[done]),
                now.difference(next)
            ))
        }
    }

    /// Which of so many writes reached the disk. All of them is the beginning of the next choices, and not among
    /// these.
    fn choices(count: usize, full: bool) -> BTreeSet<Vec<usize>> {
        let mut choices: BTreeSet<Vec<usize>> =
            (0..count.max(1)).map(|length| (0..length).collect()).collect();
        for left_out in 0..count {
            choices.insert((0..count).filter(|index| *index != left_out).collect());
        }
        if full && count <= 6 {
            for mask in 0..(1_usize << count) - 1 {
                choices.insert((0..count).filter(|index| mask & (1 << index) != 0).collect());
            }
        }
        choices
    }

    const LIFE: &[Step] = &[
        Step::Whole(&["history", "mark", "1", "good"]),
        Step::Whole(subject::INSTALL.arguments),
        Step::Whole(subject::CUTOVER.arguments),
        Step::Whole(subject::ROLLBACK.arguments),
        Step::Whole(&["configure-clients", "--client", "codex", "--client", "gemini", "--remove", "--apply"]),
        Step::Whole(subject::CLIENTS.arguments),
        Step::CutAtDecision(subject::CUTOVER.arguments),
    ];

    /// One release current, another one given, and another config.
    fn before_life(live: &Live) {
        (subject::INSTALL.prepare)(live);
        subject::write_config(&live.given("config.json"), live, "new");
    }

    fn prove(kind: &'static FileSystem) {
        if !ready(&[kind]) {
            return;
        }
        let from = Instant::now();
        let outcome = cut_power(kind, before_life, LIFE, None, false);
        println!("power cuts on {}: {} disks; {:.1?}", kind.name, outcome.images, from.elapsed());
        let shown: Vec<&str> = outcome.wrong.iter().take(8).map(String::as_str).collect();
        assert!(
            outcome.wrong.is_empty(),
            "{}: {} of {} disks are wrong\n\n{}",
            kind.name,
            outcome.wrong.len(),
            outcome.images,
            shown.join("\n\n")
        );
    }

    #[test]
    fn a_life_of_releases_survives_power_cuts_on_ext4() {
        prove(&EXT4);
    }

    #[test]
    fn a_life_of_releases_survives_power_cuts_on_ext4_without_its_heuristic() {
        prove(&EXT4_PLAIN);
    }

    #[test]
    fn a_life_of_releases_survives_power_cuts_on_xfs() {
        prove(&XFS);
    }

    #[test]
    fn a_life_of_releases_survives_power_cuts_on_more_file_systems() {
        if !faults::full() {
            println!("more file systems: only with {}=full", faults::AMOUNT);
            return;
        }
        prove(&EXT4_WRITEBACK);
        if faults::has("mkfs.btrfs") {
            prove(&BTRFS);
        }
    }

    /// A defect that has to be found, and the same without the defect, in which nothing may be found.
    fn control(what: &str, prepare: fn(&Live), with: &Step, without: &Step, sweeps: Option<&str>) {
        let kinds: [&'static FileSystem; 2] = [&EXT4_PLAIN, &XFS];
        if !ready(&kinds) {
            return;
        }
        for kind in kinds {
            let from = Instant::now();
            let right = cut_power(kind, prepare, std::slice::from_ref(without), sweeps, true);
            assert_eq!(right.wrong, Vec::<String>::new(), "{} without the defect", kind.name);
            let wrong = cut_power(kind, prepare, std::slice::from_ref(with), sweeps, true);
            println!(
                "control on {}: {what}: {} at disk {}, of {} without it; {:.1?}",
                kind.name,
                if wrong.wrong.is_empty() { "NOT FOUND" } else { "found" },
                wrong.images,
                right.images,
                from.elapsed()
            );
            assert!(!wrong.wrong.is_empty(), "on {} nobody noticed: {what}", kind.name);
        }
    }

    #[test]
    fn a_file_that_is_not_flushed_is_found() {
        control(
            "files are not flushed",
            before_life,
            &Step::Unflushed(subject::INSTALL.arguments, Kind::Files),
            &Step::Whole(subject::INSTALL.arguments),
            None,
        );
    }

    #[test]
    fn a_folder_that_is_not_flushed_is_found() {
        control(
            "folders are not flushed",
            subject::PRUNE.prepare,
            &Step::Unflushed(subject::PRUNE.arguments, Kind::Folders),
            &Step::Whole(subject::PRUNE.arguments),
            subject::PRUNE.sweeps,
        );
    }

    #[test]
    fn a_decision_that_is_recorded_after_the_pointer_is_found() {
        control(
            "the decision is recorded after the pointer",
            before_life,
            &Step::Own(|live| switch(live, true)),
            &Step::Own(|live| switch(live, false)),
            None,
        );
    }

    /// A switch of the same primitives as the real one, in the right order or not.
    fn switch(live: &Live, pointer_first: bool) {
        let layout = live.layout();
        let append = |journal: &mut Journal, record| {
            let at = "2026-01-01T00:00:00.000Z";
            journal.append(at, record).map_err(journal::AppendError::into_inner).unwrap();
        };
        let (_, mut pointer) = agent_bridge::release::pointer::read(&layout).unwrap().unwrap();
        pointer.generation += 1;
        let actions = vec![
            Action::Slot { slot: 1, content: agent_bridge::release::pointer::encode(&pointer) },
            Action::Put {
                path: "current-release.json".into(),
                content: agent_bridge::release::pointer::readable(&pointer),
                mode: 0o644,
            },
            Action::Put { path: "generations/000002.json".into(), content: "{}\n".into(), mode: 0o600 },
        ];
        let mut journal = Journal::create(&layout, "test").unwrap();
        let begin = Record::Begin { operation: "test".into(), reason: None, facts: serde_json::json!({}) };
        append(&mut journal, begin);
        journal::sync_folder(&layout).unwrap();
        let slot = || {
            let Action::Slot { slot, content } = &actions[0] else { unreachable!() };
            platform::overwrite_durable(&layout.slot(*slot), content.as_bytes()).unwrap();
        };
        if pointer_first {
            slot();
        }
        append(&mut journal, Record::Commit { actions: actions.clone() });
        if !pointer_first {
            slot();
        }
        for action in &actions[1..] {
            let Action::Put { path, content, mode } = action else { unreachable!() };
            let how = platform::Replacement { temporary: ".ab-000001-test.tmp".into(), mode_if_new: *mode };
            platform::replace_durable(&layout.root().join(path), content.as_bytes(), &how).unwrap();
        }
        append(&mut journal, Record::End { outcome: Outcome::Committed, conflicts: Vec::new() });
    }
}

#[cfg(not(target_os = "linux"))]
#[test]
fn the_proof_against_power_cuts_needs_linux() {
    eprintln!("SKIPPED: the proof against power cuts runs on Linux only");
}
