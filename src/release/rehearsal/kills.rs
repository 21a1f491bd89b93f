//! Switches that are cut off. Each is a process of its own, which stops at one place of its transaction and waits
//! there; then it is killed. So every kill lands, and where it landed is known.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;

use super::{MARK, RehearsalError};
use crate::context::Context;
use crate::error::Error;
use crate::release::cutover::{self, Request};
use crate::release::transaction::{self, Interruption};
use crate::release::{Layout, ReleaseError, ReleaseId, journal};

/// How long a switch may take to the place where it stops.
const REACH: Duration = Duration::from_secs(120);
/// Most that is read of the words of a switch that failed.
const MAX_WORDS: u64 = 4096;

/// What the cut off switches came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kills {
    /// Chooses the places.
    pub seed: u64,
    /// Places of a switch at which one can be killed, in its order.
    pub places: Vec<String>,
    /// Switches that were started to be killed.
    pub attempted: u32,
    /// Those that were cut off in the middle.
    pub cut_off: u32,
    /// Those of them that were not decided yet.
    pub before_commit: u32,
    /// Those of them that were decided.
    pub after_commit: u32,
    /// Those of them that recovery undid.
    pub undone: u32,
    /// Those of them that recovery completed.
    pub completed: u32,
    /// Where each one landed, in order.
    pub landed: Vec<Landed>,
    /// The first after which the installation was neither as before nor as after.
    pub first_failure: Option<u32>,
}

/// One switch that was cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Landed {
    /// The place in the transaction.
    pub place: String,
    /// Whether it was decided there.
    pub after_commit: bool,
    /// What recovery made of it.
    pub outcome: &'static str,
}

impl Kills {
    /// Writes down a kill and what recovery made of it.
    pub(super) fn add(&mut self, landed: Landed) {
        self.cut_off += 1;
        *(if landed.after_commit { &mut self.after_commit } else { &mut self.before_commit }) += 1;
        *(if landed.outcome == "completed" { &mut self.completed } else { &mut self.undone }) += 1;
        self.landed.push(landed);
    }

    /// Refuses a rehearsal whose kills say nothing of one half of the switch.
    pub(super) fn require_both(&self) -> Result<(), RehearsalError> {
        if self.before_commit > 0 && self.after_commit > 0 {
            return Ok(());
        }
        Err(RehearsalError::Unproven {
            attempted: self.attempted,
            before_commit: self.before_commit,
            after_commit: self.after_commit,
        })
    }
}

/// The places at which so many switches are killed: spread over the whole switch, on both sides of the commit, in an
/// order that the seed chooses.
pub(super) fn choose(places: &[String], kills: u32, seed: u64) -> Vec<String> {
    let commit = places.iter().position(|place| place == transaction::AFTER_COMMIT).unwrap_or(places.len());
    let (before, after) = places.split_at(commit);
    let kills = usize::try_from(kills).unwrap_or(usize::MAX);
    let of_after = (kills * after.len() / places.len().max(1)).max(1).min(kills.saturating_sub(1));
    let mut random = Random(seed);
    let mut chosen = spread(before, kills - of_after, &mut random);
    chosen.extend(spread(after, of_after, &mut random));
    for last in (1..chosen.len()).rev() {
        chosen.swap(last, random.below(last + 1));
    }
    chosen
}

/// So many of them, at even distances; all of them before one comes twice.
fn spread(places: &[String], count: usize, random: &mut Random) -> Vec<String> {
    if places.is_empty() {
        return Vec::new();
    }
    let offset = random.below(places.len());
    let step = |index: usize| if count < places.len() { index * places.len() / count } else { index };
    (0..count).map(|index| places[(offset + step(index)) % places.len()].clone()).collect()
}

/// Starts a switch, kills it at a place, and says where it was then; none if it ended before.
pub(super) fn kill_at(
    context: &Context,
    layout: &Layout,
    to: &ReleaseId,
    staged: &Path,
    place: &str,
) -> Result<Option<(String, bool)>, Error> {
    let mut child = Command::new(&context.exe)
        .args(["rehearse-switch", to.as_str(), "--stop-at", place, "--stage-config"])
        .arg(staged)
        .arg("--root")
        .arg(layout.root())
        .env_clear()
        .envs(&context.env)
        // Open as long as this process lives: a switch that nobody kills any more undoes itself.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(ReleaseError::io("cannot start", &context.exe))?;
    let reached = wait_until_there(&mut child);
    let _ = child.kill();
    let mut words = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(MAX_WORDS).read_to_string(&mut words);
    }
    let ended = child.wait().map_err(ReleaseError::io("cannot wait for", &context.exe))?;
    let failed = |why: String| Err(RehearsalError::Failed { why }.into());
    match reached {
        Reached::There => {}
        Reached::TooSlow => return failed(format!("a switch did not come to {place} in {REACH:?}")),
        // It went past the place, or does not have it.
        Reached::Ended if ended.success() => return Ok(None),
        Reached::Ended => {
            let said = words.lines().find(|line| !line.trim().is_empty()).unwrap_or("without a word");
            return failed(format!("a switch ended before {place} ({ended}): {said}"));
        }
    }
    Ok(journal::unfinished(layout)?.map(|cut| (place.to_owned(), cut.commit().is_some())))
}

enum Reached {
    There,
    Ended,
    TooSlow,
}

fn wait_until_there(child: &mut Child) -> Reached {
    let Some(stdout) = child.stdout.take() else { return Reached::Ended };
    let (send, receive) = mpsc::channel();
    let reader = std::thread::Builder::new().name("stage".into()).spawn(move || {
        let mut line = String::new();
        let _ = send.send(BufReader::new(stdout).read_line(&mut line).is_ok_and(|bytes| bytes > 0));
    });
    match reader.map(|_| receive.recv_timeout(REACH)) {
        Ok(Ok(true)) => Reached::There,
        Ok(Err(mpsc::RecvTimeoutError::Timeout)) => Reached::TooSlow,
        _ => Reached::Ended,
    }
}

/// Plays one switch on the stage of a rehearsal, and waits at a place of it until it is killed. If nobody is there to
/// do that any more it goes on as after an interrupt.
///
/// # Errors
/// If the folder is no stage, and as a cutover.
pub fn play(
    context: &Context,
    layout: &Layout,
    to: &ReleaseId,
    config: Vec<u8>,
    place: &str,
) -> Result<(), Error> {
    if !layout.root().join(MARK).is_file() {
        return Err(RehearsalError::NoStage { root: layout.root().display().to_string() }.into());
    }
    let wanted = place.to_owned();
    let interruption = Interruption::watched(move |this, place| {
        if place == wanted {
            let mut out = std::io::stdout();
            let _ = writeln!(out, "{place}").and_then(|()| out.flush());
            let _ = std::io::stdin().read(&mut [0]);
            this.interrupt();
        }
    });
    let request = Request { config: Some(config), ..Request::to(to.clone()) };
    cutover::switch(context, layout, &request, &interruption).map(drop)
}

/// The same seed, the same places (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from((mixed ^ (mixed >> 31)) % limit).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::error::Coded as _;

    fn places() -> Vec<String> {
        ["one", "two", "three", "four", "five", "six", transaction::AFTER_COMMIT, "seven", "eight"]
            .map(str::to_owned)
            .into()
    }

    #[test]
    fn however_few_the_kills_both_sides_of_the_commit_have_one() {
        let commit = places().iter().position(|place| place == transaction::AFTER_COMMIT).unwrap();
        for seed in 0..50 {
            for kills in 2..30 {
                let chosen = choose(&places(), kills, seed);
                assert_eq!(chosen.len(), kills as usize, "seed {seed}");
                let after = chosen.iter().filter(|place| places()[commit..].contains(place)).count();
                assert!(after > 0 && after < chosen.len(), "{kills} kills, seed {seed}: {chosen:?}");
                if kills >= 12 {
                    let all = places().iter().all(|place| chosen.contains(place));
                    assert!(all, "{kills} kills, seed {seed}: {chosen:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_seed_chooses_the_same_and_another_one_something_else() {
        assert_eq!(choose(&places(), 5, 7), choose(&places(), 5, 7));
        assert!((0..20).any(|seed| choose(&places(), 5, seed) != choose(&places(), 5, 7)));
    }

    #[test]
    fn a_rehearsal_without_a_kill_on_each_side_is_no_proof() {
        let landed = |after_commit, outcome| Landed { place: "here".into(), after_commit, outcome };
        let mut kills = Kills { attempted: 4, ..Kills::default() };
        let code = |kills: &Kills| kills.require_both().unwrap_err().doc().code;
        assert_eq!(code(&kills), "RELEASE_REHEARSAL_UNPROVEN", "none landed");
        kills.add(landed(false, "undone"));
        assert_eq!(code(&kills), "RELEASE_REHEARSAL_UNPROVEN", "none after the commit");
        let mut other = Kills { attempted: 4, ..Kills::default() };
        other.add(landed(true, "completed"));
        assert_eq!(code(&other), "RELEASE_REHEARSAL_UNPROVEN", "none before the commit");
        kills.add(landed(true, "completed"));
        assert!(kills.require_both().is_ok());
        assert_eq!((kills.cut_off, kills.undone, kills.completed), (2, 1, 1));
    }
}
