//! Starts of a generation on trial: which were made, which of them a client shook hands with, which failed.
//!
//! One empty file a start, made by the launcher, whose name says which process it is; a second one beside it once a
//! client has introduced itself. A start has failed when its process is gone and there was no handshake.

use serde::Serialize;

use super::Layout;
use super::generations::{self, Verdict};
use super::pointer::Pointer;
use super::transaction::Interruption;
use crate::context::Clock;
use crate::platform::{self, ProcessIdentity};

/// Most starts that are looked at; a trial is decided by a handful.
const MAX_STARTS: usize = 1000;
const HANDSHAKE: &str = "handshake";

/// How a trial stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Starts that were made.
    pub starts: u32,
    /// Starts that a client shook hands with.
    pub handshakes: u32,
    /// Starts that ended without that.
    pub failed: u32,
}

/// A process, for good: no other one on this machine ever has the same name.
#[derive(Debug, PartialEq, Eq)]
struct Start {
    process: ProcessIdentity,
    namespace: Option<u64>,
    boot: Option<String>,
}

impl Start {
    fn of_this_process() -> Self {
        Self {
            process: ProcessIdentity::current(),
            namespace: platform::process_namespace(),
            boot: platform::boot_id().map(|id| id.replace('-', "")),
        }
    }

    fn name(&self) -> String {
        let namespace = self.namespace.map(|number| number.to_string()).unwrap_or_default();
        let boot = self.boot.as_deref().unwrap_or_default();
        format!("{}-{}-{namespace}-{boot}", self.process.pid, self.process.started)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let pid = parts.next()?.parse().ok()?;
        let started = parts.next()?.parse().ok()?;
        let namespace = parts.next()?.parse().ok();
        let boot = parts.next()?;
        let plain = parts.next().is_none() && boot.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let boot = (!boot.is_empty()).then(|| boot.to_owned());
        plain.then_some(Self { process: ProcessIdentity { pid, started }, namespace, boot })
    }

    /// One of another process namespace cannot be judged from here, so it has not failed yet.
    fn is_gone(&self) -> bool {
        let here = Self::of_this_process();
        self.boot != here.boot || (self.namespace == here.namespace && !platform::is_alive(&self.process))
    }
}

/// Writes down that this process starts the release; gives the name of the start.
pub(super) fn record_start(layout: &Layout, generation: u64) -> Option<String> {
    let name = Start::of_this_process().name();
    let folder = layout.trial(generation);
    platform::create_private_dir(&folder).ok()?;
    platform::private::create_new(&folder.join(&name)).ok()?;
    Some(name)
}

/// Writes down that a client shook hands with the server of a start.
pub(super) fn shook_hands(layout: &Layout, generation: u64, start: &str) {
    if Start::parse(start).is_some() {
        let path = layout.trial(generation).join(start).with_extension(HANDSHAKE);
        let _ = platform::private::create_new(&path);
    }
}

/// How the trial of a generation stands.
pub fn tally(layout: &Layout, generation: u64) -> Tally {
    let mut tally = Tally::default();
    let Ok(entries) = std::fs::read_dir(layout.trial(generation)) else { return tally };
    for entry in entries.flatten().take(2 * MAX_STARTS) {
        let path = entry.path();
        if path.extension().is_some() {
            continue;
        }
        let Some(start) = path.file_name().and_then(|name| Start::parse(name.to_str()?)) else { continue };
        tally.starts += 1;
        if path.with_extension(HANDSHAKE).exists() {
            tally.handshakes += 1;
        } else if start.is_gone() {
            tally.failed += 1;
        }
    }
    tally
}

/// Why the generation on trial has to be left now; none if it need not be, or is on no trial.
pub fn verdict_against(layout: &Layout, pointer: &Pointer, clock: Clock) -> Option<String> {
    let terms = pointer.trial.as_ref()?;
    let tally = tally(layout, pointer.generation);
    if tally.handshakes >= terms.handshakes {
        return None;
    }
    if tally.failed >= terms.failed_starts {
        return Some(format!("{} starts ended without a handshake", tally.failed));
    }
    (clock.now_ms() >= terms.until_ms)
        .then(|| format!("its time was up with {} of {} handshakes", tally.handshakes, terms.handshakes))
}

/// Writes down that the generation on trial is good, once its clients have proven it. Where that cannot be written
/// now the next start does it: the handshakes stay.
pub(super) fn bless(layout: &Layout, pointer: &Pointer, clock: Clock) {
    let Some(terms) = &pointer.trial else { return };
    let shaken = tally(layout, pointer.generation).handshakes;
    if shaken < terms.handshakes {
        return;
    }
    let unknown = generations::list(layout)
        .is_ok_and(|all| all.iter().any(|g| g.number == pointer.generation && g.verdict == Verdict::Unknown));
    if unknown {
        let because = format!("passed its trial: {shaken} clients shook hands");
        let number = pointer.generation;
        let _ = generations::mark(layout, clock, &Interruption::default(), number, Verdict::Good, &because);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::release::pointer::{Trial, tests::example};

    #[test]
    fn a_trial_is_lost_by_failed_starts_or_by_time_and_won_by_handshakes() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        let mut pointer = example(7);
        assert_eq!(verdict_against(&layout, &pointer, Clock::Fixed(0)), None, "no trial");
        pointer.trial = Some(Trial { until_ms: 1000, handshakes: 1, failed_starts: 2, fallback: 6 });
        let name = record_start(&layout, 7).unwrap();
        assert_eq!(Start::parse(&name), Some(Start::of_this_process()));
        assert_eq!(tally(&layout, 7), Tally { starts: 1, handshakes: 0, failed: 0 }, "it still runs");
        let mut gone = Start::of_this_process();
        let mut names = Vec::new();
        for number in 1..=2 {
            assert_eq!(verdict_against(&layout, &pointer, Clock::Fixed(999)), None);
            gone.process.started = number;
            names.push(gone.name());
            platform::private::create_new(&layout.trial(7).join(gone.name())).unwrap();
        }
        let lost = verdict_against(&layout, &pointer, Clock::Fixed(999)).unwrap();
        assert!(lost.contains("2 starts"), "{lost}");
        shook_hands(&layout, 7, "../../escape");
        shook_hands(&layout, 7, &names[0]);
        assert_eq!(tally(&layout, 7), Tally { starts: 3, handshakes: 1, failed: 1 });
        assert_eq!(verdict_against(&layout, &pointer, Clock::Fixed(5000)), None, "blessed");
        pointer.generation = 8;
        let late = verdict_against(&layout, &pointer, Clock::Fixed(1000)).unwrap();
        assert!(late.contains("0 of 1"), "{late}");
    }
}
