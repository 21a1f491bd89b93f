//! Which state an exit code promises, and whether the disk keeps the promise.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_bridge::release::Layout;
use agent_bridge::release::journal::{self, Outcome};

use super::live::{BRIDGE, Ended, Live};
use super::subject::Subject;
use super::trace::{self, Call, Fault, Point, Recording};
use super::tree::{Look, Tree};

/// What a call is made to fail with.
const ERRORS: [&str; 8] = ["ENOSPC", "EIO", "EACCES", "EROFS", "EXDEV", "EINTR", "EDQUOT", "EMFILE"];

/// Calls whose failure is the end of a program's memory: it aborts or breaks, which is as good as a kill.
const MEMORY: &[&str] = &["mmap", "munmap", "mremap", "mprotect", "brk", "madvise"];

/// One command in one worker's folder: where it starts, where it may end, and what it calls.
pub struct Proof<'a> {
    pub name: String,
    live: &'a Live,
    arguments: Vec<&'static str>,
    start: &'static str,
    before: Tree,
    after: Tree,
    pub recording: Recording,
    /// Set where a recovery is proven: whether it has to complete.
    completes: Option<bool>,
    /// What the command leaves behind a cut for its next run to remove.
    sweeps: Option<&'static str>,
    /// What was recovered before, and what came of it.
    recovered: Mutex<BTreeMap<String, State>>,
}

/// How many points of each kind were tried.
#[derive(Debug, Default)]
pub struct Counts {
    pub kills: AtomicUsize,
    pub errors: AtomicUsize,
    pub before: AtomicUsize,
    pub after: AtomicUsize,
    pub recovered: AtomicUsize,
    pub repeated: AtomicUsize,
    pub missed: AtomicUsize,
}

impl Counts {
    /// How many points were tried.
    pub fn points(&self) -> usize {
        self.kills.load(Ordering::Relaxed) + self.errors.load(Ordering::Relaxed)
    }

    /// In words.
    pub fn say(&self) -> String {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        format!(
            "{} points ({} kills, {} errors): {} ended before, {} after; {} different disks recovered, {} run again to the end; {} not reached",
            self.points(),
            of(&self.kills),
            of(&self.errors),
            of(&self.before),
            of(&self.after),
            of(&self.recovered),
            of(&self.repeated),
            of(&self.missed),
        )
    }
}

/// Which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Before,
    After,
}

impl<'a> Proof<'a> {
    /// Prepares a command: runs it once as it should run, and once while it is watched.
    pub fn of_command(live: &'a Live, subject: &Subject) -> Self {
        live.clear();
        (subject.prepare)(live);
        live.save("before");
        let before = live.tree(Look::Settled);
        let ended = live.run_bridge(subject.arguments);
        assert_eq!(ended.code, Some(0), "{} does not work at all: {ended}", subject.name);
        let after = live.tree(Look::Settled);
        assert!(before != after, "{} changes nothing", subject.name);
        live.load("before");
        let again = live.tree(Look::Settled);
        assert!(again == before, "the copy differs: {:#?}", again.difference(&before));
        let (recording, ended) = trace::record(live, BRIDGE, subject.arguments);
        assert_eq!(ended.code, Some(0), "{} does not work under strace: {ended}", subject.name);
        let twice = live.tree(Look::Settled);
        assert!(twice == after, "two runs of {} differ: {:#?}", subject.name, twice.difference(&after));
        Self {
            name: subject.name.to_owned(),
            live,
            arguments: subject.arguments.to_vec(),
            start: "before",
            before,
            after,
            recording,
            completes: None,
            sweeps: subject.sweeps,
            recovered: Mutex::default(),
        }
    }

    /// Prepares the recovery of what this command leaves when it is cut off at a point; none if nothing is left
    /// to recover.
    pub fn recovery_at(&self, cut: &Point) -> Option<Proof<'a>> {
        self.live.load(self.start);
        trace::inject(self.live, &self.recording, BRIDGE, &self.arguments, cut);
        let unfinished = journal::unfinished(&self.live.layout()).ok()??;
        let completes = unfinished.commit().is_some();
        let start = if self.start == "before" { "cut" } else { "cut twice" };
        self.live.save(start);
        let (recording, ended) = trace::record(self.live, BRIDGE, &["recover"]);
        assert_eq!(ended.code, Some(0), "recover after {} at {cut}: {ended}", self.name);
        Some(Proof {
            name: format!("{}@{cut}", self.name),
            live: self.live,
            arguments: vec!["recover"],
            start,
            before: self.before.clone(),
            after: self.after.clone(),
            recording,
            completes: Some(completes),
            sweeps: self.sweeps,
            recovered: Mutex::default(),
        })
    }

    /// A kill at every call.
    pub fn kills(&self) -> Vec<Point> {
        let calls = self.recording.calls.iter();
        calls.map(|call| Point { name: call.name.clone(), number: call.number, fault: Fault::Kill }).collect()
    }

    /// Errors: every one at every call in full; otherwise at every call that changes something one, in turn, once
    /// and for good, and at every tenth of the others.
    pub fn errors(&self, full: bool) -> Vec<Point> {
        let mut points = Vec::new();
        let mut turn = 0;
        for (index, call) in self.recording.calls.iter().filter(|call| call.can_fail()).enumerate() {
            let mut add = |fault| points.push(Point { name: call.name.clone(), number: call.number, fault });
            if full {
                ERRORS.iter().for_each(|error| add(Fault::Once(error)));
                if call.changes() {
                    ["ENOSPC", "EIO", "EROFS"].iter().for_each(|error| add(Fault::FromHere(error)));
                }
            } else if call.changes() {
                add(Fault::Once(ERRORS[turn % ERRORS.len()]));
                // A disk that is full stays full.
                if turn % 3 == 0 {
                    add(Fault::FromHere(["ENOSPC", "EIO", "EROFS"][turn / 3 % 3]));
                }
                turn += 1;
            } else if index % 10 == 0 {
                add(Fault::Once(ERRORS[index / 10 % ERRORS.len()]));
            }
        }
        points
    }

    /// Points at which the command leaves something to recover, one for each kind of rest.
    pub fn distinct_cuts(&self) -> Vec<Point> {
        let mut seen = std::collections::BTreeSet::new();
        let mut cuts = Vec::new();
        for point in self.kills() {
            if !self.recording.calls_changed_since(&point) && !cuts.is_empty() {
                continue;
            }
            self.live.load(self.start);
            trace::inject(self.live, &self.recording, BRIDGE, &self.arguments, &point);
            let Ok(Some(unfinished)) = journal::unfinished(&self.live.layout()) else { continue };
            let tail = std::fs::metadata(&unfinished.path).unwrap().len();
            let kind = (unfinished.records.len(), tail == 0, self.live.tree(Look::Settled).fingerprint());
            if seen.insert(kind) {
                cuts.push((point, unfinished.records.len(), unfinished.commit().is_some()));
            }
        }
        cuts.into_iter().map(|(point, _, _)| point).collect()
    }

    /// Tries one point; what is wrong with what came of it, if anything.
    pub fn try_point(&self, point: &Point, again: bool, counts: &Counts) -> Result<(), String> {
        self.live.load(self.start);
        let (ended, reached) = trace::inject(self.live, &self.recording, BRIDGE, &self.arguments, point);
        match point.fault {
            Fault::Kill => counts.kills.fetch_add(1, Ordering::Relaxed),
            _ => counts.errors.fetch_add(1, Ordering::Relaxed),
        };
        if !reached {
            counts.missed.fetch_add(1, Ordering::Relaxed);
        }
        let report = |what: String| {
            format!(
                "{}/{point}: {what}\n  call: {}\n  {ended}\n  again: {}='{}/{point}' {}",
                self.name,
                self.recording.line(point),
                super::ONLY,
                self.name,
                "cargo nextest run --test faults --no-capture",
            )
        };
        let state = self.judge(point, &ended, again, counts).map_err(report)?;
        match state {
            State::Before => counts.before.fetch_add(1, Ordering::Relaxed),
            State::After => counts.after.fetch_add(1, Ordering::Relaxed),
        };
        if again && state == State::Before && self.completes.is_none() {
            counts.repeated.fetch_add(1, Ordering::Relaxed);
            let repeated = self.live.run_bridge(&self.arguments);
            if repeated.code != Some(0) {
                return Err(report(format!("the command does not run any more afterwards: {repeated}")));
            }
            let now = self.live.tree(Look::Settled);
            if now != self.after {
                return Err(report(format!(
                    "run again, the command gives something else: {:#?}",
                    now.difference(&self.after)
                )));
            }
        }
        Ok(())
    }

    /// The rule of exit codes: 0 is after, 4 is to be recovered, every other is before.
    fn judge(&self, point: &Point, ended: &Ended, again: bool, counts: &Counts) -> Result<State, String> {
        let aborted = matches!(ended.signal, Some(6 | 11)) && MEMORY.contains(&point.name.as_str());
        let killed = ended.signal == Some(9) && point.fault == Fault::Kill;
        match ended.code {
            Some(0) if self.completes == Some(false) => self.require(State::Before),
            Some(0) => self.require(State::After),
            Some(1 | 2 | 3 | 75) if self.completes.is_some() => {
                // A recovery that says anything but 4 has not begun.
                let (now, start) =
                    (self.live.tree(Look::Settled), self.live.saved(self.start, Look::Settled));
                if now != start {
                    return Err(format!(
                        "the code says that recovery did not begin: {:#?}",
                        now.difference(&start)
                    ));
                }
                self.recover(again, counts)
            }
            Some(1 | 2 | 3 | 75) => self.require(State::Before),
            Some(4) => self.recover(again, counts),
            None if killed || aborted => self.recover(again, counts),
            // Libraries panic where a folder cannot be closed and where the system has no random numbers.
            Some(101) if ["close", "getrandom"].contains(&point.name.as_str()) => self.recover(again, counts),
            _ => Err("an end that says nothing about the state".into()),
        }
    }

    /// Recovers, as often as one command; then it has to be one of the two.
    fn recover(&self, again: bool, counts: &Counts) -> Result<State, String> {
        // A disk that was recovered before, to the last byte but for times, is recovered in the same way.
        let rest = self.live.tree(Look::Cut).fingerprint();
        if let Some(state) = self.recovered.lock().unwrap().get(&rest)
            && !again
        {
            return Ok(*state);
        }
        counts.recovered.fetch_add(1, Ordering::Relaxed);
        let recovered = self.live.run_bridge(&["recover"]);
        if recovered.code == Some(2) && !self.live.layout().is_begun() {
            // Not even the first folder was made: there is nothing to recover, and it says so.
            return self.require(State::Before).map_err(|what| format!("nothing was begun: {what}"));
        }
        if recovered.code != Some(0) {
            return Err(format!("recover failed: {recovered}"));
        }
        let state = match self.completes {
            Some(true) => State::After,
            Some(false) => State::Before,
            // The last transaction says which of them it is.
            None => match journal::verify_all(&self.live.layout()) {
                Err(error) => return Err(format!("the journal: {error}")),
                Ok(all) => {
                    // Not one from before this command.
                    let earlier =
                        journal::transactions(&Layout::at(self.live.aside(self.start).join("root")));
                    let own = all.get(earlier.map_or(0, |paths| paths.len())..).unwrap_or_default();
                    match own.last().and_then(journal::Transcript::outcome) {
                        Some(Outcome::Committed) => State::After,
                        _ => State::Before,
                    }
                }
            },
        };
        self.require(state).map_err(|what| format!("after recover: {what}"))?;
        self.recovered.lock().unwrap().insert(rest, state);
        Ok(state)
    }

    fn require(&self, state: State) -> Result<State, String> {
        let layout = self.live.layout();
        match journal::verify_all(&layout) {
            Err(error) => return Err(format!("the journal: {error}")),
            Ok(all) => {
                if let Some(open) = all.iter().find(|transcript| transcript.outcome().is_none()) {
                    return Err(format!("{} is not finished", open.txid));
                }
            }
        }
        let wanted = if state == State::Before { &self.before } else { &self.after };
        let mut now = self.live.tree(Look::Settled);
        if let (State::After, Some(prefix)) = (state, self.sweeps) {
            now.forget(prefix);
        }
        if now == *wanted {
            return Ok(state);
        }
        let other = if state == State::Before { &self.after } else { &self.before };
        Err(format!(
            "it should be {state:?}, and is {}: {:#?}",
            if now == *other { "the other" } else { "neither" },
            now.difference(wanted),
        ))
    }
}

impl Recording {
    /// Whether anything was changed between the call before a point and the point.
    fn calls_changed_since(&self, point: &Point) -> bool {
        let at = self.calls.iter().position(|call| call.name == point.name && call.number == point.number);
        at.is_some_and(|at| at > 0 && self.calls[at - 1].changes())
    }
}

/// Tries points with as many workers as there are folders; gives what was wrong.
pub fn try_points(
    proofs: &[Proof<'_>],
    points: &[Point],
    again_every: usize,
    counts: &Counts,
) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for proof in proofs {
            let (next, wrong) = (&next, &wrong);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(point) = points.get(index) else { return };
                    let again = again_every > 0 && index % again_every == 0;
                    if let Err(what) = proof.try_point(point, again, counts) {
                        wrong.lock().unwrap().push((index, what));
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    wrong.into_iter().map(|(_, what)| what).collect()
}
