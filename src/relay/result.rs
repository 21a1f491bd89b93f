//! A run in detail: the compact packet again, what went wrong, or the whole record, each cut to what was asked for.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::record::RunRecord;
use crate::agents::redaction;
use crate::error::Result;
use crate::store::{BlobKind, Store};

/// Characters of a result when the call does not say.
pub const DEFAULT_CHARS: u64 = 12_000;
/// Least and most characters of a result.
pub const CHARS: std::ops::RangeInclusive<u64> = 500..=100_000;

/// How much of a run is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// The compact packet.
    #[default]
    Summary,
    /// What went wrong: error, the end of standard error and of the answer.
    Errors,
    /// The whole record.
    Full,
}

/// A text cut to a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Cut {
    /// The text.
    pub text: String,
    /// Whether something is missing.
    pub truncated: bool,
    /// Size of the whole, in UTF-8 bytes.
    pub total: u64,
}

/// The beginning of a text, at most `most` bytes of it and never half a character.
pub fn head(text: &str, most: usize) -> Cut {
    let end = text.floor_char_boundary(most);
    Cut { text: text[..end].to_owned(), truncated: end < text.len(), total: text.len() as u64 }
}

/// The end of a text, likewise: what matters in a log.
pub fn tail(text: &str, most: usize) -> Cut {
    let from = text.ceil_char_boundary(text.len().saturating_sub(most));
    Cut { text: text[from..].to_owned(), truncated: from > 0, total: text.len() as u64 }
}

/// What went wrong with a run, within `most` bytes.
///
/// # Errors
/// None of its own: output that is not there is left out.
pub fn errors(store: &Store, record: &RunRecord, most: usize) -> Value {
    let turn = record.last_turn();
    let share = most / 3;
    let end_of = |kind| {
        let turn = turn?;
        let blobs = store.blobs();
        let size = blobs.size(turn, kind).ok()?;
        // A little more than is shown, so that what is secret is seen whole.
        let from = size.saturating_sub(share as u64 * 2);
        let text = blobs.read_page(turn, kind, from, share * 2).ok()?.text;
        let cut = tail(&redaction::redact(&text), share);
        let truncated = cut.truncated || from > 0;
        (!cut.text.is_empty()).then_some(Cut { truncated, total: size, ..cut })
    };
    json!({
        "run_id": record.run_id,
        "status": record.status,
        "error": record.error,
        "attempts": record.attempts,
        "stderr_tail": end_of(BlobKind::Stderr),
        "response_tail": end_of(BlobKind::Answer),
        "checks": record.checks.iter().filter(|check| check.output_tail.is_some()).collect::<Vec<_>>(),
    })
}

/// The whole record as text, within `most` bytes.
///
/// # Errors
/// Those of writing JSON, which do not happen.
pub fn full(record: &RunRecord, most: usize) -> Result<Cut> {
    let text = serde_json::to_string_pretty(record).unwrap_or_default();
    Ok(head(&text, most))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cut_is_whole_characters_and_says_what_is_missing(text in "\\PC{0,80}", most in 0_usize..120) {
            for (cut, whole) in [(head(&text, most), text.starts_with(&head(&text, most).text)), (tail(&text, most), text.ends_with(&tail(&text, most).text))] {
                prop_assert!(whole);
                prop_assert!(cut.text.len() <= most);
                prop_assert_eq!(cut.truncated, cut.text.len() < text.len());
                prop_assert_eq!(cut.total, text.len() as u64);
                // At most a character is lost to the boundary.
                prop_assert!(cut.text.len() + 4 > most.min(text.len()));
            }
        }
    }
}
