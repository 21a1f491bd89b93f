//! What we did to a file, place by place: enough to show it, and to take exactly it back after others wrote.
//!
//! A place holds the text that we put there, which is never anybody's secret. What was there before us is not in
//! it: that stays in the private copy of the old file.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::splice::Edit;

/// A text that is longer than this is looked for as it is.
const MARK_LENGTH: usize = 40;

/// One place that was changed. Offsets are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hunk {
    /// Where it was in the old content.
    pub before: Range<usize>,
    /// Where it is in the new one.
    pub after: Range<usize>,
    /// What was put there.
    pub text: String,
}

/// The new content; none if the places do not fit the old one.
pub(super) fn applied(before: &str, hunks: &[Hunk]) -> Option<String> {
    let mut out = String::with_capacity(before.len());
    let mut from = 0;
    for hunk in hunks {
        out.push_str(before.get(from..hunk.before.start)?);
        if out.len() != hunk.after.start {
            return None;
        }
        out.push_str(&hunk.text);
        if out.len() != hunk.after.end {
            return None;
        }
        from = hunk.before.end;
    }
    out.push_str(before.get(from..)?);
    Some(out)
}

/// The places of a change that only took something out, at one place; none if it is another change.
pub(super) fn taken_out(before: &str, after: &str) -> Vec<Hunk> {
    let same = |(one, other): &(u8, u8)| one == other;
    let head = before.bytes().zip(after.bytes()).take_while(same).count();
    let rest = after.len().saturating_sub(head);
    let tail = before.bytes().rev().zip(after.bytes().rev()).take(rest).take_while(same).count();
    let whole = head + tail == after.len() && before.len() > after.len();
    if !whole || !before.is_char_boundary(head) || !before.is_char_boundary(before.len() - tail) {
        return Vec::new();
    }
    vec![Hunk { before: head..before.len() - tail, after: head..head, text: String::new() }]
}

/// What others made of the new content, with our places as they were before: where each of them still stands
/// between the same bytes. None if one does not.
pub(super) fn reverted(before: &str, after: &str, current: &str, hunks: &[Hunk]) -> Option<String> {
    let places = by_ends(after, current, hunks).or_else(|| by_lines(after, current, hunks))?;
    let mut out = String::with_capacity(current.len());
    let mut from = 0;
    for (hunk, at) in hunks.iter().zip(places) {
        if at < from || current.get(at..at + hunk.text.len())? != hunk.text {
            return None;
        }
        out.push_str(current.get(from..at)?);
        out.push_str(before.get(hunk.before.clone())?);
        from = at + hunk.text.len();
    }
    out.push_str(current.get(from..)?);
    Some(out)
}

/// Where the places are if one stretch of the text was changed that holds none of them.
fn by_ends(after: &str, current: &str, hunks: &[Hunk]) -> Option<Vec<usize>> {
    let same = |(one, other): &(u8, u8)| one == other;
    let head = after.bytes().zip(current.bytes()).take_while(same).count();
    let rest = after.len().min(current.len()) - head;
    let tail = after.bytes().rev().zip(current.bytes().rev()).take(rest).take_while(same).count();
    let place = |hunk: &Hunk| {
        if hunk.after.end <= head {
            Some(hunk.after.start)
        } else if hunk.after.start >= after.len() - tail {
            (hunk.after.start + current.len()).checked_sub(after.len())
        } else {
            None
        }
    };
    hunks.iter().map(place).collect()
}

/// Where they are if the lines that hold them are still there, or their text is at one place only.
fn by_lines(after: &str, current: &str, hunks: &[Hunk]) -> Option<Vec<usize>> {
    let (old, new): (Vec<&str>, Vec<&str>) =
        (after.split_inclusive('\n').collect(), current.split_inclusive('\n').collect());
    let deadline = std::time::Instant::now() + super::unified::DIFF_BUDGET;
    let ops = similar::capture_diff_slices_deadline(similar::Algorithm::Myers, &old, &new, Some(deadline));
    let starts = |lines: &[&str]| {
        let mut at = 0;
        let mut starts = vec![0];
        starts.extend(lines.iter().map(|line| {
            at += line.len();
            at
        }));
        starts
    };
    let (old_starts, new_starts) = (starts(&old), starts(&new));
    let in_lines = |hunk: &Hunk| {
        ops.iter().find_map(|op| {
            let similar::DiffOp::Equal { old_index, new_index, len } = *op else { return None };
            let (from, to) = (*old_starts.get(old_index)?, *old_starts.get(old_index + len)?);
            (from <= hunk.after.start && hunk.after.end <= to)
                .then(|| new_starts.get(new_index).map(|start| start + hunk.after.start - from))?
        })
    };
    let by_text = |hunk: &Hunk| {
        let mut all = current.match_indices(&hunk.text);
        let first = all.next().filter(|_| hunk.text.len() > MARK_LENGTH)?;
        all.next().is_none().then_some(first.0)
    };
    hunks.iter().map(|hunk| in_lines(hunk).or_else(|| by_text(hunk))).collect()
}

/// A text under change: which pieces of the old one are left, and what stands between them.
#[derive(Debug)]
pub(super) struct Changes {
    length: usize,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Old(Range<usize>),
    New(String),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Old(range) => range.len(),
            Self::New(text) => text.len(),
        }
    }
}

impl Changes {
    /// Of a text of this length, unchanged.
    pub(super) fn none(length: usize) -> Self {
        Self { length, pieces: vec![Piece::Old(0..length)] }
    }

    /// Makes edits of the text as it is now. They must not overlap.
    pub(super) fn make(&mut self, edits: &[Edit]) {
        let mut edits: Vec<&Edit> = edits.iter().collect();
        edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
        for edit in edits.into_iter().rev() {
            let (from, to) = (self.split(edit.at.start), self.split(edit.at.end));
            // An insertion goes before an insertion that was made at the same place just now.
            self.pieces.splice(from..to, [Piece::New(edit.text.clone())]);
        }
    }

    /// The piece that begins at this byte of the text as it is now.
    fn split(&mut self, at: usize) -> usize {
        let mut start = 0;
        for index in 0..self.pieces.len() {
            let length = self.pieces[index].len();
            if at == start {
                return index;
            }
            if at < start + length {
                let (left, right) = match &self.pieces[index] {
                    Piece::Old(range) => {
                        let middle = range.start + at - start;
                        (Piece::Old(range.start..middle), Piece::Old(middle..range.end))
                    }
                    Piece::New(text) => {
                        let (left, right) = text.split_at(at - start);
                        (Piece::New(left.to_owned()), Piece::New(right.to_owned()))
                    }
                };
                self.pieces.splice(index..=index, [left, right]);
                return index + 1;
            }
            start += length;
        }
        self.pieces.len()
    }

    /// The places. `mark`: a byte order mark before the text, and whether it stays.
    pub(super) fn hunks(&self, mark: usize, mark_stays: bool) -> Vec<Hunk> {
        let mut hunks: Vec<Hunk> = Vec::new();
        let mut text = String::new();
        let (mut before, mut after) = (0, 0);
        if mark_stays {
            (before, after) = (mark, mark);
        }
        let end = [Piece::Old(self.length..self.length)];
        for piece in self.pieces.iter().chain(&end) {
            match piece {
                Piece::New(new) => text.push_str(new),
                Piece::Old(range) => {
                    let at = range.start + mark;
                    if before != at || !text.is_empty() {
                        let text = std::mem::take(&mut text);
                        hunks.push(Hunk { before: before..at, after: after..after + text.len(), text });
                        after = hunks.last().map_or(after, |hunk| hunk.after.end);
                    }
                    after += range.len();
                    before = at + range.len();
                }
            }
        }
        hunks
    }
}
