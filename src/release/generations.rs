//! What was current when, as a tree: each generation knows its parent, and what became of it.
//!
//! A rollback goes to the newest generation among the ancestors that is known to be good, and only by name to
//! one that is not.

use std::io::Read as _;

use serde::{Deserialize, Serialize};

use super::journal::Action;
use super::layout::entries;
use super::transaction::{self, InstallLock, Interruption, Purpose};
use super::{Layout, ReleaseError, ReleaseId};
use crate::context::Clock;
use crate::error::Error;

/// One switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Generation {
    /// Its number.
    pub number: u64,
    /// What was current when it was made; a rollback's parent is the parent of what it went back to.
    pub parent: Option<u64>,
    /// The generation whose release and config it brought back, if it is a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restores: Option<u64>,
    /// Its release.
    pub release_id: ReleaseId,
    /// Its config.
    pub config_sha256: Option<String>,
    /// The transaction.
    pub txid: String,
    /// When, UTC.
    pub promoted_at: String,
    /// The operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is known of it.
    pub verdict: Verdict,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// What is known of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It worked: a canary passed, or clients shook hands.
    Good,
    /// It failed a canary, a trial, or was left by a rollback.
    Bad,
    /// Neither yet.
    Unknown,
}

impl Verdict {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Unknown => "unknown",
        }
    }
}

impl Generation {
    /// The bytes of its record.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).map(|text| text + "\n").unwrap_or_default()
    }
}

/// Whether there is none yet.
pub fn is_empty(layout: &Layout) -> bool {
    std::fs::read_dir(layout.generations()).map_or(true, |entries| {
        !entries.flatten().any(|entry| entry.path().extension().is_some_and(|ext| ext == "json"))
    })
}

/// All of them, oldest first. A record that cannot be read is left out: it is derived, and a rollback by number
/// says so.
pub fn list(layout: &Layout) -> Result<Vec<Generation>, ReleaseError> {
    let mut found = Vec::new();
    for path in entries(&layout.generations())? {
        if path.extension().is_none_or(|ext| ext != "json") {
            continue;
        }
        let mut bytes = Vec::new();
        let read = std::fs::File::open(&path).and_then(|file| file.take(64 * 1024).read_to_end(&mut bytes));
        read.map_err(ReleaseError::io("cannot read", &path))?;
        if let Ok(generation) = serde_json::from_slice::<Generation>(&bytes) {
            found.push(generation);
        }
    }
    found.sort_by_key(|generation| generation.number);
    Ok(found)
}

/// Writes down what became known of a generation.
pub fn mark(
    layout: &Layout,
    clock: Clock,
    interruption: &Interruption,
    number: u64,
    verdict: Verdict,
    because: &str,
) -> Result<(), Error> {
    let lock = InstallLock::take_for_change(layout)?;
    let found = list(layout)?.into_iter().find(|generation| generation.number == number);
    let marked = Generation {
        verdict,
        because: Some(because.to_owned()),
        ..found.ok_or(ReleaseError::UnknownGeneration { number })?
    };
    let purpose = Purpose {
        operation: "verdict",
        reason: Some(because),
        facts: serde_json::json!({ "generation": number, "verdict": verdict }),
    };
    transaction::run(layout, &lock, clock, interruption, purpose, |_| {
        let path = format!("generations/{number:06}.json");
        Ok((vec![Action::Put { path, content: marked.to_text(), mode: 0o600 }], ()))
    })
}

/// Where a rollback from `current` goes by itself: the newest good ancestor, else (with a remark) the newest one
/// that nothing bad is known of.
pub fn way_back(all: &[Generation], current: u64) -> Result<&Generation, ReleaseError> {
    let ancestors = ancestors(all, current);
    let with = |verdict| ancestors.iter().find(|generation| generation.verdict == verdict).copied();
    with(Verdict::Good).or_else(|| with(Verdict::Unknown)).ok_or_else(|| ReleaseError::NoWayBack {
        why: match ancestors.len() {
            0 => "nothing was current before".into(),
            count => format!("all {count} before it are known to be bad"),
        },
    })
}

/// The generations before one, nearest first.
fn ancestors(all: &[Generation], of: u64) -> Vec<&Generation> {
    let find = |number: u64| all.iter().find(|generation| generation.number == number);
    let mut found: Vec<&Generation> = Vec::new();
    let mut next = find(of).and_then(|generation| generation.parent);
    while let Some(generation) = next.and_then(find) {
        if found.iter().any(|known| known.number == generation.number) {
            break;
        }
        found.push(generation);
        next = generation.parent;
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn generation(number: u64, parent: Option<u64>, verdict: Verdict) -> Generation {
        Generation {
            number,
            parent,
            restores: None,
            release_id: ReleaseId::parse("1.0.0+abcdef0").unwrap(),
            config_sha256: None,
            txid: String::new(),
            promoted_at: String::new(),
            reason: None,
            verdict,
            because: None,
        }
    }

    #[test]
    fn the_way_back_is_the_newest_good_ancestor_not_the_newest_number() {
        use Verdict::{Bad, Good, Unknown};
        let all = [
            generation(1, None, Good),
            generation(2, Some(1), Bad),
            generation(3, Some(1), Unknown),
            generation(4, Some(3), Unknown),
        ];
        assert_eq!(way_back(&all, 4).unwrap().number, 1);
        assert_eq!(way_back(&all, 2).unwrap().number, 1);
        assert!(way_back(&all, 1).is_err());
        let none_good =
            [generation(1, None, Bad), generation(2, Some(1), Unknown), generation(3, Some(2), Unknown)];
        assert_eq!(way_back(&none_good, 3).unwrap().number, 2);
        assert!(way_back(&none_good, 2).is_err(), "bad is never chosen");
        let cycle = [generation(1, Some(2), Bad), generation(2, Some(1), Bad)];
        assert!(way_back(&cycle, 2).is_err());
    }
}
