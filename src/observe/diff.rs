//! What `git diff-tree -r -z --raw --numstat -p -U0 --full-index` prints, read piece by piece: which files changed, by how
//! many lines, where, and what the lines say. Memory grows with the number of files, not with their content.
//!
//! Format: git-diff(1), "Raw output format", "Other diff formats", "Generating patch text with -p". With `-z` the first two
//! parts end each field with a zero byte; a zero byte of its own stands before the patch. In the patch a hunk says how many
//! lines it has, so no content can pass for a header.

use std::collections::HashMap;
use std::io::{self, Write};

use super::lines::Ranges;
use super::names::Name;
use super::paths::{self, PathClass};
use super::signals::{Facts, MAX_LINE, Patterns};

/// Longest field or header line that is kept.
const MAX_FIELD: usize = 64 << 10;

/// A changed file.
pub struct FileDiff {
    /// Mode before, 0 if it is new.
    pub old_mode: u32,
    /// Mode after, 0 if it is gone.
    pub new_mode: u32,
    /// Object id before, hexadecimal.
    pub old_id: String,
    /// Object id after.
    pub new_id: String,
    /// `A`, `M`, `D`, `R`, `T`.
    pub status: u8,
    /// Path after, or the last one.
    pub name: Name,
    /// Path before a rename.
    pub old_name: Option<Name>,
    /// Lines added; none for binary files.
    pub insertions: Option<u64>,
    /// Lines removed.
    pub deletions: Option<u64>,
    /// Where.
    pub ranges: Ranges,
    /// What the path says.
    pub class: PathClass,
    /// What the lines say.
    pub facts: Facts,
    /// The patch of this file was read to its end.
    pub read: bool,
    /// It has lines at all.
    pub binary: bool,
}

enum State {
    /// A field that begins with `:`, or the first one of the next part.
    Raw,
    /// A path of the raw part: how many are still to come.
    RawPath(u8),
    /// `added TAB removed TAB path`, or without a path before those of a rename.
    Numbers,
    /// The old path of a rename, then the new one.
    NumbersOld,
    NumbersNew,
    /// Headers of a patch.
    Header,
    /// A hunk with so many lines to come on each side.
    Hunk {
        removed: u64,
        added: u64,
    },
}

/// The reader.
pub struct DiffReader {
    patterns: Patterns,
    state: State,
    buffer: Vec<u8>,
    skipping: bool,
    /// The files, in git's order.
    pub files: Vec<FileDiff>,
    by_name: HashMap<Name, usize>,
    numbers: (Option<u64>, Option<u64>),
    most: usize,
    /// Files that are only counted.
    pub more: u64,
    /// Which file the patch is at.
    at: Option<usize>,
    /// A file that became something else has two patches; the first was seen.
    half: bool,
    /// The output is not in the known form from somewhere on.
    pub foreign: bool,
}

impl DiffReader {
    /// Keeps at most so many files, and counts the rest.
    pub fn new(most: usize) -> Self {
        Self {
            patterns: Patterns::default(),
            state: State::Raw,
            buffer: Vec::new(),
            skipping: false,
            files: Vec::new(),
            by_name: HashMap::new(),
            numbers: (None, None),
            most,
            more: 0,
            at: None,
            half: false,
            foreign: false,
        }
    }

    /// The output has ended, wholly if `complete`.
    pub fn finish(&mut self, complete: bool) {
        let whole = complete && !self.foreign;
        if whole && !self.buffer.is_empty() {
            let line = std::mem::take(&mut self.buffer);
            self.patch_line(&line);
        }
        if let Some(file) = self.at.and_then(|at| self.files.get_mut(at)) {
            file.facts.finish();
            file.read = whole && matches!(self.state, State::Header | State::Hunk { removed: 0, added: 0 });
        }
    }

    fn in_patch(&self) -> bool {
        matches!(self.state, State::Header | State::Hunk { .. })
    }

    fn field(&mut self, field: &[u8]) {
        match self.state {
            State::Raw => match field.split_first() {
                Some((b':', rest)) => self.raw(rest),
                None => self.state = State::Header,
                Some(_) => self.numbers(field),
            },
            State::RawPath(left) => {
                let kept = usize::try_from(self.more) == Ok(0);
                if let Some(file) = self.files.last_mut().filter(|_| kept) {
                    if left == 2 {
                        file.old_name = Some(field.to_vec());
                    } else {
                        file.name = field.to_vec();
                        file.class = paths::classify(field);
                        file.facts = Facts::new(field, file.class.role);
                        self.by_name.insert(field.to_vec(), self.files.len() - 1);
                    }
                }
                self.state = if left > 1 { State::RawPath(left - 1) } else { State::Raw };
            }
            State::Numbers => match field.is_empty() {
                true => self.state = State::Header,
                false => self.numbers(field),
            },
            State::NumbersOld => self.state = State::NumbersNew,
            State::NumbersNew => {
                self.set_numbers(field);
                self.state = State::Numbers;
            }
            State::Header | State::Hunk { .. } => {}
        }
    }

    /// `100644 100755 OLD NEW M` or with a likeness, `R087`.
    fn raw(&mut self, rest: &[u8]) {
        let text = String::from_utf8_lossy(rest);
        let fields: Vec<&str> = text.split(' ').collect();
        let [old_mode, new_mode, old_id, new_id, status] = fields.as_slice() else {
            self.foreign = true;
            return;
        };
        let mode = |text: &str| u32::from_str_radix(text, 8).ok();
        let (Some(old_mode), Some(new_mode), Some(status)) =
            (mode(old_mode), mode(new_mode), status.bytes().next())
        else {
            self.foreign = true;
            return;
        };
        self.state = State::RawPath(if matches!(status, b'R' | b'C') { 2 } else { 1 });
        if self.files.len() >= self.most {
            self.more += 1;
            return;
        }
        let class = paths::classify(b"");
        self.files.push(FileDiff {
            old_mode,
            new_mode,
            old_id: (*old_id).to_owned(),
            new_id: (*new_id).to_owned(),
            status,
            name: Name::new(),
            old_name: None,
            insertions: None,
            deletions: None,
            ranges: Ranges::default(),
            class,
            facts: Facts::new(b"", class.role),
            read: false,
            binary: false,
        });
    }

    fn numbers(&mut self, field: &[u8]) {
        self.state = State::Numbers;
        let mut parts = field.splitn(3, |byte| *byte == b'\t');
        let (Some(added), Some(removed), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            self.foreign = true;
            return;
        };
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        self.numbers = (number(added), number(removed));
        if name.is_empty() {
            self.state = State::NumbersOld;
        } else {
            self.set_numbers(name);
        }
    }

    fn set_numbers(&mut self, name: &[u8]) {
        if let Some(file) = self.by_name.get(name).and_then(|at| self.files.get_mut(*at)) {
            (file.insertions, file.deletions) = self.numbers;
            file.binary = self.numbers == (None, None);
        }
    }

    fn patch_line(&mut self, line: &[u8]) {
        if let State::Hunk { removed, added } = self.state {
            let done = removed == 0 && added == 0;
            match line.first() {
                Some(b'-') if removed > 0 => {
                    self.state = State::Hunk { removed: removed - 1, added };
                    self.content(false, line);
                    return;
                }
                Some(b'+') if added > 0 => {
                    self.state = State::Hunk { removed, added: added - 1 };
                    self.content(true, line);
                    return;
                }
                // "\ No newline at end of file".
                Some(b'\\') => return,
                _ if done => self.state = State::Header,
                _ => {
                    self.foreign = true;
                    return;
                }
            }
        }
        if line.starts_with(b"diff --git ") {
            self.next_file();
        } else if let Some(rest) = line.strip_prefix(b"@@ -") {
            match hunk(rest) {
                Some(((_, removed), (start, added))) => {
                    self.state = State::Hunk { removed, added };
                    if let Some(file) = self.at.and_then(|at| self.files.get_mut(at)) {
                        file.facts.hunk();
                        file.ranges.add(start, added);
                    }
                }
                None => self.foreign = true,
            }
        } else if let Some(ids) = line.strip_prefix(b"index ") {
            self.check_ids(ids);
        }
    }

    fn content(&mut self, is_added: bool, line: &[u8]) {
        if let Some(file) = self.at.and_then(|at| self.files.get_mut(at)) {
            file.facts.line(&self.patterns, is_added, line.get(1..).unwrap_or_default());
        }
    }

    fn next_file(&mut self) {
        let Some(at) = self.at else {
            self.at = Some(0);
            return;
        };
        let Some(file) = self.files.get_mut(at) else { return };
        file.facts.finish();
        if file.status == b'T' && !self.half {
            // What it became is what is looked at.
            self.half = true;
            file.ranges = Ranges::default();
            file.facts = Facts::new(&file.name, file.class.role);
            return;
        }
        self.half = false;
        file.read = true;
        self.at = Some(at + 1);
    }

    /// The patch names the objects: a patch that is not this file's is not taken for it.
    fn check_ids(&mut self, ids: &[u8]) {
        let ids = ids.split(|byte| *byte == b' ').next().unwrap_or_default();
        let ids = String::from_utf8_lossy(ids);
        let Some((old, new)) = ids.split_once("..") else {
            self.foreign = true;
            return;
        };
        if let Some(file) = self.at.and_then(|at| self.files.get(at)) {
            let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
            let fits = match (file.status, self.half) {
                (b'T', false) => old == file.old_id && is_zero(new),
                (b'T', true) => is_zero(old) && new == file.new_id,
                _ => old == file.old_id && new == file.new_id,
            };
            self.foreign |= !fits;
        }
    }
}

/// `1,2 +3,4 @@…`: start and length of both sides; a length that is left out is one.
#[allow(clippy::type_complexity, reason = "two pairs of numbers")]
fn hunk(rest: &[u8]) -> Option<((u64, u64), (u64, u64))> {
    let text =
        std::str::from_utf8(rest.get(..rest.len().min(100))?.split(|byte| *byte == b'@').next()?).ok()?;
    let (old, new) = text.trim_end().split_once(" +")?;
    let side = |text: &str| -> Option<(u64, u64)> {
        match text.split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    Some((side(old)?, side(new)?))
}

impl Write for DiffReader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.foreign {
            let end_mark = if self.in_patch() { b'\n' } else { 0 };
            let most = if self.in_patch() { MAX_LINE + 1 } else { MAX_FIELD };
            match rest.iter().position(|byte| *byte == end_mark) {
                Some(end) => {
                    let (piece, after) = rest.split_at(end);
                    rest = after.get(1..).unwrap_or_default();
                    let mut record = std::mem::take(&mut self.buffer);
                    keep(&mut record, piece, most, &mut self.skipping);
                    let cut = std::mem::take(&mut self.skipping);
                    if self.in_patch() {
                        self.patch_line(&record);
                    } else if cut {
                        self.foreign = true;
                    } else {
                        self.field(&record);
                    }
                    record.clear();
                    self.buffer = record;
                }
                None => {
                    keep(&mut self.buffer, rest, most, &mut self.skipping);
                    rest = &[];
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends as much of a piece as there is room for.
fn keep(buffer: &mut Vec<u8>, piece: &[u8], most: usize, cut: &mut bool) {
    let room = most.saturating_sub(buffer.len());
    *cut |= piece.len() > room;
    buffer.extend_from_slice(piece.get(..room).unwrap_or(piece));
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
