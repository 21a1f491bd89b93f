//! Starts of a generation on trial: which were made, which of them a client shook hands with, which failed.
//!
//! One empty-handed file a start, written by the launcher; a second one beside it once a client has introduced
//! itself. A start has failed when its process is gone and there was no handshake.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start {
    process: ProcessIdentity,
    boot: Option<String>,
    namespace: Option<u64>,
    at_ms: i64,
}

/// Writes down that this process starts the release; gives the name of the start.
pub(super) fn record_start(layout: &Layout, generation: u64, clock: Clock) -> Option<String> {
    use std::io::Write as _;
    let name = uuid::Uuid::new_v4().to_string();
    let start = Start {
        process: ProcessIdentity::current(),
        boot: platform::boot_id(),
        namespace: platform::process_namespace(),
        at_ms: clock.now_ms(),
    };
    let folder = layout.trial(generation);
    platform::create_private_dir(&folder).ok()?;
    let mut file = platform::private::owners_only().create_new(true).open(folder.join(&name)).ok()?;
    file.write_all(&serde_json::to_vec(&start).ok()?).ok()?;
    Some(name)
}

/// Writes down that a client shook hands with the server of a start.
pub(super) fn shook_hands(layout: &Layout, generation: u64, start: &str) {
    if let Some(path) = handshake_of(layout, generation, start) {
        let _ = platform::private::create_new(&path);
    }
}

fn handshake_of(layout: &Layout, generation: u64, start: &str) -> Option<PathBuf> {
    let start = uuid::Uuid::parse_str(start).ok()?;
    Some(layout.trial(generation).join(start.to_string()).with_extension(HANDSHAKE))
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
        tally.starts += 1;
        if path.with_extension(HANDSHAKE).exists() {
            tally.handshakes += 1;
            continue;
        }
        let start: Option<Start> =
            std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        // One that is being written, or of another process namespace, has not failed yet.
        let gone = start.is_some_and(|start| {
            start.boot != platform::boot_id()
                || (start.namespace == platform::process_namespace() && !platform::is_alive(&start.process))
        });
        tally.failed += u32::from(gone);
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
        let mut dead = Vec::new();
        for _ in 0..2 {
            assert_eq!(verdict_against(&layout, &pointer, Clock::Fixed(999)), None);
            let name = record_start(&layout, 7, Clock::Fixed(0)).unwrap();
            assert_eq!(tally(&layout, 7).failed, u32::try_from(dead.len()).unwrap(), "it still runs");
            let path = layout.trial(7).join(&name);
            let text = std::fs::read_to_string(&path).unwrap();
            let pid = format!("\"pid\":{}", std::process::id());
            std::fs::write(&path, text.replace(&pid, "\"pid\":4294967295")).unwrap();
            dead.push(name);
        }
        let lost = verdict_against(&layout, &pointer, Clock::Fixed(999)).unwrap();
        assert!(lost.contains("2 starts"), "{lost}");
        shook_hands(&layout, 7, "../../escape");
        shook_hands(&layout, 7, &dead[0]);
        assert_eq!(tally(&layout, 7), Tally { starts: 2, handshakes: 1, failed: 1 });
        assert_eq!(verdict_against(&layout, &pointer, Clock::Fixed(5000)), None, "blessed");
        pointer.generation = 8;
        let late = verdict_against(&layout, &pointer, Clock::Fixed(1000)).unwrap();
        assert!(late.contains("0 of 1"), "{late}");
    }
}
