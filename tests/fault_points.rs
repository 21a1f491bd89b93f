//! Every phase of every change by its name: the program ends there, and afterwards everything is as before or as
//! after. Built with the feature `fault-points` only.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod support;

#[path = "support/faults/mod.rs"]
mod faults;

#[cfg(target_os = "linux")]
mod on_linux {
    use std::collections::BTreeSet;
    use std::process::{Child, Stdio};
    use std::time::{Duration, Instant};

    use agent_bridge::release::journal::{self, Outcome, Record};

    use super::faults::live::{Ended, Live};
    use super::faults::subject::{self, Subject};
    use super::faults::tree::{Look, Tree};

    const VARIABLE: &str = "AGENT_BRIDGE_FAULT_POINT";

    /// Points of the engine, which every change passes.
    const ENGINE: [&str; 3] = ["before-commit", "after-commit", "before-end"];

    /// A command with where it starts and where it ends.
    struct Case {
        live: Live,
        arguments: &'static [&'static str],
        before: Tree,
        after: Tree,
    }

    impl Case {
        fn new(subject: &Subject) -> Self {
            let live = Live::new();
            (subject.prepare)(&live);
            live.save("before");
            let before = live.tree(Look::Settled);
            live.must(subject.arguments);
            let after = live.tree(Look::Settled);
            live.load("before");
            Self { live, arguments: subject.arguments, before, after }
        }

        /// Runs arguments with something to happen at a point.
        fn with(&self, arguments: &[&str], point: &str) -> Ended {
            let mut command = self.live.bridge(arguments);
            command.env(VARIABLE, point);
            self.live.run(command)
        }

        /// Every point that arguments pass, in order.
        fn points(&self, arguments: &[&str]) -> Vec<String> {
            let list = self.live.aside("points");
            let _ = std::fs::remove_file(&list);
            let ended = self.with(arguments, &format!("?{}", list.display()));
            assert_eq!(ended.code, Some(0), "{arguments:?}: {ended}");
            std::fs::read_to_string(list).unwrap_or_default().lines().map(str::to_owned).collect()
        }

        /// The last transaction.
        fn last(&self) -> journal::Transcript {
            journal::verify_all(&self.live.layout()).unwrap().pop().expect("a transaction")
        }

        fn expect(&self, wanted: &Tree, what: &str) {
            let now = self.live.tree(Look::Settled);
            assert!(now == *wanted, "{what}: {:#?}", now.difference(wanted));
            assert!(self.last().outcome().is_some(), "{what}: not finished");
        }
    }

    /// `NAME*2` for the second time that a name is passed.
    fn numbered(points: &[String]) -> Vec<String> {
        (0..points.len())
            .map(|index| {
                let time = points[..=index].iter().filter(|name| **name == points[index]).count();
                if time == 1 { points[index].clone() } else { format!("{}*{time}", points[index]) }
            })
            .collect()
    }

    fn prove(subject: &Subject) {
        let case = Case::new(subject);
        let points = case.points(case.arguments);
        // Each phase in the journal is a point, and each point is a phase or one of the engine's.
        let transcript = case.last();
        let phases: BTreeSet<&str> = transcript
            .records
            .iter()
            .filter_map(|(_, record)| match record {
                Record::Phase { phase, .. } => Some(phase.as_str()),
                _ => None,
            })
            .collect();
        let engine: BTreeSet<&str> = ENGINE.into_iter().collect();
        let own: BTreeSet<&str> = points
            .iter()
            .map(String::as_str)
            .filter(|name| !engine.contains(name) && !["finish-step", "install-file"].contains(name))
            .collect();
        assert_eq!(own, phases, "the points of {} are not its phases", subject.name);
        assert!(engine.iter().all(|name| points.iter().any(|point| point == name)), "{points:?}");

        let decided = points.iter().position(|name| name == "after-commit").unwrap();
        let mut ends = 0;
        for (index, point) in numbered(&points).iter().enumerate() {
            let what = format!("{} ended at {point}", subject.name);
            let (wanted, outcome, recovery) = match index < decided {
                true => (&case.before, Outcome::Undone, "undo-step"),
                false => (&case.after, Outcome::Committed, "finish-step"),
            };
            case.live.load("before");
            let ended = case.with(case.arguments, point);
            assert_eq!(ended.code, None, "{what}: it was not ended: {ended}");
            case.live.save("cut");
            case.live.must(&["recover"]);
            case.expect(wanted, &what);
            assert_eq!(case.last().outcome(), Some(outcome), "{what}");

            // The same where the recovery is ended as well, at each of its points.
            case.live.load("cut");
            let inside = case.points(&["recover"]);
            let has_steps = recovery == "undo-step" || points.iter().any(|name| name == recovery);
            assert!(!has_steps || inside.iter().any(|name| name == recovery), "{what}: {inside:?}");
            for again in numbered(&inside) {
                let what = format!("{what}, its recovery at {again}");
                case.live.load("cut");
                let ended = case.with(&["recover"], &again);
                assert_eq!(ended.code, None, "{what}: it was not ended: {ended}");
                case.live.must(&["recover"]);
                case.expect(wanted, &what);
                ends += 1;
            }
            ends += 1;
        }
        println!(
            "{}: ended at {} points, with those of the recovery {ends} ends",
            subject.name,
            points.len()
        );
    }

    #[test]
    fn cutover_ended_at_each_phase_is_before_or_after() {
        prove(&subject::CUTOVER);
    }

    #[test]
    fn rollback_ended_at_each_phase_is_before_or_after() {
        prove(&subject::ROLLBACK);
    }

    #[test]
    fn install_release_ended_at_each_phase_is_before_or_after() {
        prove(&subject::INSTALL);
    }

    #[test]
    fn configure_clients_ended_at_each_phase_is_before_or_after() {
        prove(&subject::CLIENTS);
    }

    /// A command that stands at a point.
    struct Standing {
        child: Child,
        mark: std::path::PathBuf,
    }

    impl Standing {
        fn at(case: &Case, point: &str) -> Self {
            let mark = case.live.aside("stands");
            let mut command = case.live.bridge(case.arguments);
            command.env(VARIABLE, format!("{point}@{}", mark.display()));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let this = Self { child: command.spawn().unwrap(), mark };
            wait_until("the command stands at its point", || this.mark.exists());
            this
        }

        fn go_on(mut self) -> Option<i32> {
            std::fs::remove_file(&self.mark).unwrap();
            self.child.wait().unwrap().code()
        }
    }

    fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is() {
            assert!(Instant::now() < end, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn while_a_command_is_at_work_others_are_told_to_come_back() {
        let case = Case::new(&subject::CUTOVER);
        let standing = Standing::at(&case, "config");
        for arguments in [&["history", "mark", "1", "bad"][..], case.arguments] {
            let refused = case.live.run_bridge(arguments);
            assert_eq!(refused.code, Some(75), "{arguments:?}: {refused}");
        }
        assert_eq!(standing.go_on(), Some(0));
        case.expect(&case.after, "the command that was at work");
    }

    #[test]
    fn points_outside_a_fixture_do_nothing() {
        let case = Case::new(&subject::MARK);
        std::fs::remove_file(case.live.root().join(".agent-bridge-fixture")).unwrap();
        let ended = case.with(case.arguments, "before-commit");
        assert_eq!(ended.code, Some(0), "{ended}");
    }
}

#[cfg(not(target_os = "linux"))]
#[test]
fn the_phases_are_ended_on_linux_only() {
    eprintln!("SKIPPED: the harness of the crash proof runs on Linux only");
}
