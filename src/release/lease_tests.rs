//! The gate and the lease: alone, in a crowd, and walked through in every order of their steps.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn installation() -> (tempfile::TempDir, Layout, Context) {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::at(folder.path());
    layout.create().unwrap();
    let context = context(&layout.release(&id()).join("server").join(crate::release::layout::program_name()));
    (folder, layout, context)
}

fn id() -> ReleaseId {
    ReleaseId::parse("1.0.0+abcdef0").unwrap()
}

fn context(exe: &Path) -> Context {
    Context {
        env: BTreeMap::new(),
        home: None,
        cwd: "/".into(),
        exe: exe.to_path_buf(),
        clock: Clock::Fixed(0),
    }
}

#[test]
fn a_program_outside_any_installation_holds_nothing_and_touches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for exe in ["agent-bridge", "bin/agent-bridge", "releases/1.0.0+abcdef0/server/agent-bridge"] {
        let exe = folder.path().join(format!("{exe}{}", std::env::consts::EXE_SUFFIX));
        assert!(hold(&context(&exe), Holding::Serve).unwrap().is_none());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_switch_waits_for_the_lease_and_starts_wait_for_the_switch() {
    let (_folder, layout, context) = installation();
    let lease = hold(&context, Holding::Serve).unwrap().unwrap();
    assert!(unused_release(&layout, &id()).unwrap().is_none(), "it runs");
    let busy = close_gate(&layout, Duration::ZERO).unwrap().drain(Duration::from_millis(30)).unwrap_err();
    let error = Error::from(busy);
    assert_eq!(error.code(), "RELEASE_IN_USE");
    drop(lease);
    assert!(unused_release(&layout, &id()).unwrap().is_some());
    let drained = close_gate(&layout, Duration::ZERO).unwrap().drain(Duration::ZERO).unwrap();
    let refused = hold(&context, Holding::Turn).unwrap_err();
    assert_eq!((refused.code(), refused.exit() as u8), ("RELEASE_MAINTENANCE", 75));
    assert!(refused.retryable());
    assert_eq!(close_gate(&layout, Duration::ZERO).unwrap_err().code(), "RELEASE_LOCKED");
    drained.open();
    assert!(hold(&context, Holding::Turn).unwrap().is_some());
}

#[test]
fn a_token_opens_the_gate_only_for_the_transaction_that_announced_it() {
    let (_folder, layout, mut context) = installation();
    let facts = serde_json::json!({ "probe": probe_facts("token", &id()) });
    let mut journal = journal::Journal::create(&layout, "cutover").unwrap();
    let begin = journal::Record::Begin { operation: "cutover".into(), reason: None, facts };
    assert!(journal.append("now", begin).is_ok());
    assert_eq!(probe(&context, &layout), None);
    context.env.insert(PROBE_VARIABLE.into(), "Token".into());
    assert_eq!(probe(&context, &layout), None);
    context.env.insert(PROBE_VARIABLE.into(), "token".into());
    assert_eq!(probe(&context, &layout), Some(ProbePass { release: id() }));
    let _closed = close_gate(&layout, Duration::ZERO).unwrap();
    assert!(hold(&context, Holding::Serve).unwrap().is_none(), "it needs no lease");
    let end = journal::Record::End { outcome: journal::Outcome::Undone, conflicts: Vec::new() };
    assert!(journal.append("now", end).is_ok());
    assert_eq!(probe(&context, &layout), None, "a token is worth nothing afterwards");
    assert!(hold(&context, Holding::Serve).is_err());
}

/// 50 clients that reconnect at once: the lease is never free by itself.
#[test]
fn clients_that_reconnect_cannot_keep_a_switch_out() {
    const CLIENTS: usize = 50;
    let (_folder, layout, context) = installation();
    let (stop, starts) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (context, stop, starts) = (&context, &stop, &starts);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(lease) = hold(context, Holding::Serve) {
                        starts.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(20 + client as u64));
                        drop(lease);
                    }
                }
            });
        }
        while starts.load(Ordering::Relaxed) < CLIENTS {
            std::thread::yield_now();
        }
        // Without the gate: the control that shows that there is something to prove.
        let without = platform::wait_exclusive(&layout.lease_lock(), Duration::from_millis(500)).unwrap();
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let begun = Instant::now();
            let closed = close_gate(&layout, Duration::from_secs(10)).expect("the gate can be closed");
            let drained = closed.drain(Duration::from_secs(10)).expect("the lease drains");
            slowest = slowest.max(begun.elapsed());
            let before = starts.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(starts.load(Ordering::Relaxed), before, "nothing starts meanwhile");
            drained.open();
            while starts.load(Ordering::Relaxed) < before + CLIENTS / 2 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(without.is_none(), "the clients were too slow for this test to mean anything");
        // Under Wine one process does the locks of all, and of all tests that run meanwhile.
        if std::env::var_os("AGENT_BRIDGE_TEST_WINE").is_none() {
            assert!(slowest < Duration::from_secs(5), "it took {slowest:?}");
        }
    });
}

// The protocol itself, walked through in every order that its steps can take, with a crash of anybody at any
// point. Two starts, one switch, and somebody who only looks whether the lease is free.

/// Where a start is: 0 before the gate, 1 in it, 2 with the lease in it, 3 runs, 4 is gone.
type Start = u8;

/// A moment. Locks follow from where everybody is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Moment {
    starts: [Start; 2],
    /// 0 nothing, 1 closed the gate, 2 has the lease alone, 3 decided, 4 opened the lease, 5 is gone.
    switch: u8,
    /// Has the lease alone for a moment.
    looking: bool,
}

impl Moment {
    fn gate_shared(&self) -> bool {
        self.starts.iter().any(|start| matches!(start, 1 | 2))
    }

    fn gate_alone(&self) -> bool {
        matches!(self.switch, 1..=4)
    }

    fn lease_shared(&self) -> bool {
        self.starts.iter().any(|start| matches!(start, 2 | 3))
    }

    fn lease_alone(&self) -> bool {
        matches!(self.switch, 2 | 3) || self.looking
    }

    /// Everything that can happen next. `careless`: a start lets go of the gate before it has the lease.
    fn next(&self, careless: bool) -> Vec<Moment> {
        let mut next = Vec::new();
        for who in 0..self.starts.len() {
            let mut step = |to: Start| {
                let mut moment = *self;
                moment.starts[who] = to;
                next.push(moment);
            };
            match self.starts[who] {
                0 if !self.gate_alone() => step(if careless { 5 } else { 1 }),
                // The careless start: past the gate, without anything.
                5 if !self.lease_alone() => step(3),
                1 if !self.lease_alone() => step(2),
                2 => step(3),
                _ => {}
            }
            // It ends, or dies: everything it held is free.
            if self.starts[who] != 4 {
                step(4);
            }
        }
        let mut switch = |to: u8| next.push(Moment { switch: to, ..*self });
        match self.switch {
            0 if !self.gate_shared() && !self.gate_alone() => switch(1),
            1 if !self.lease_shared() && !self.lease_alone() => switch(2),
            2 => switch(3),
            3 => switch(4),
            4 => switch(5),
            _ => {}
        }
        if self.switch != 5 {
            switch(5);
        }
        if self.looking {
            next.push(Moment { looking: false, ..*self });
        } else if !self.lease_shared() && !self.lease_alone() {
            next.push(Moment { looking: true, ..*self });
        }
        next
    }
}

fn walk(careless: bool) -> BTreeSet<Moment> {
    let first = Moment { starts: [0; 2], switch: 0, looking: false };
    let (mut seen, mut open) = (BTreeSet::from([first]), vec![first]);
    while let Some(moment) = open.pop() {
        for next in moment.next(careless) {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen
}

#[test]
fn in_no_order_of_steps_does_a_start_pass_a_switch() {
    let moments = walk(false);
    for moment in &moments {
        let runs = moment.starts.iter().any(|start| matches!(start, 2 | 3));
        assert!(!(matches!(moment.switch, 2 | 3) && runs), "{moment:?}");
        assert!(!(moment.gate_alone() && moment.gate_shared()), "{moment:?}");
    }
    assert!(moments.len() > 90, "{}", moments.len());
    // From every closed gate there is a way to the decision: nobody waits for each other in a circle.
    for moment in moments.iter().filter(|moment| moment.switch == 1) {
        let (mut seen, mut open) = (BTreeSet::from([*moment]), vec![*moment]);
        while let Some(at) = open.pop() {
            for next in at.next(false).into_iter().filter(|next| next.switch != 5) {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        assert!(seen.iter().any(|at| at.switch == 3), "{moment:?}");
    }
}

#[test]
fn the_walk_finds_the_fault_of_a_start_that_passes_the_gate_with_empty_hands() {
    // It passes the open gate, a whole switch goes by behind it, and it starts what it read before: that is
    // seen as a start that is past the gate while the switch decides.
    let faults = walk(true);
    assert!(faults.iter().any(|moment| moment.switch == 3 && moment.starts.contains(&5)));
}
