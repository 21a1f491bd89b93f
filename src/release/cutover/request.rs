//! What a switch is asked for.

use std::time::Duration;

use crate::release::generations::Generation;
use crate::release::{ReleaseId, clients};

/// What to switch to, and how.
#[derive(Debug)]
pub struct Request {
    /// The release.
    pub target: ReleaseId,
    /// The shared config to switch to; none leaves it as it is.
    pub config: Option<Vec<u8>>,
    /// The client files to put our entry into, as planned; none leaves them alone.
    pub clients: Option<clients::Plan>,
    /// Old processes may finish on the old release.
    pub soft: bool,
    /// The release has to prove itself in this time, or is left again.
    pub trial: Option<TrialTerms>,
    /// How long to wait for the holders of leases to end.
    pub wait: Duration,
    /// Is told who is waited for, in words, at first and whenever that changes.
    pub on_wait: fn(&[String]),
    /// Processes that cannot be looked at are no obstacle.
    pub allow_unreadable: bool,
    /// The launcher is replaced by the target's program.
    pub update_launcher: bool,
    /// The operator's words.
    pub reason: Option<String>,
    /// The generation that is brought back, in a rollback.
    pub restores: Option<Generation>,
    /// What is said of the generation that is left; none says nothing.
    pub verdict_on_left: Option<String>,
    /// Short name, part of the transaction's id.
    pub operation: &'static str,
}

/// The terms of a trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialTerms {
    /// How long it has.
    pub time: Duration,
    /// Client handshakes that bless it.
    pub handshakes: u32,
    /// Starts without a handshake after which it is left.
    pub failed_starts: u32,
}

impl TrialTerms {
    /// In words.
    pub fn sentence(&self) -> String {
        let counted = |count: u32, one: &str, many: &str| match count {
            1 => format!("one {one}"),
            count => format!("{count} {many}"),
        };
        format!(
            "kept by {} within {}, left after {} without one or at the end of that time",
            counted(self.handshakes, "client handshake", "client handshakes"),
            in_words(self.time),
            counted(self.failed_starts, "start", "starts"),
        )
    }
}

/// In the largest unit that fits: `90 s`, `15 min`, `24 h`.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        hours if hours > 0 && hours % 3600 == 0 => format!("{} h", hours / 3600),
        minutes if minutes > 0 && minutes % 60 == 0 => format!("{} min", minutes / 60),
        seconds => format!("{seconds} s"),
    }
}

impl Request {
    /// A hard switch to a release, with everything else as it is.
    pub fn to(target: ReleaseId) -> Self {
        Self {
            target,
            config: None,
            clients: None,
            soft: false,
            trial: None,
            wait: Duration::from_secs(10),
            on_wait: |_| {},
            allow_unreadable: false,
            update_launcher: false,
            reason: None,
            restores: None,
            verdict_on_left: None,
            operation: "cutover",
        }
    }
}
