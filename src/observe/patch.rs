//! The whole change as a patch that `git apply` takes, binary files included, and never more than its limit: it is cut
//! behind a whole file.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};

use crate::digest::Hasher;

/// How each file of a patch begins. No line of content begins so: those begin with a sign, and those of binary content
/// have no blanks.
const BEGINNING: &[u8] = b"diff --git ";

/// Writes a patch, and knows where its last whole file ends.
pub(super) struct PatchWriter<'a> {
    file: &'a mut File,
    most: u64,
    written: u64,
    hasher: Hasher,
    /// Where the file that is being written began, and the digest up to there.
    whole: (u64, Hasher),
    /// The first bytes of the line that is being written, as many as tell.
    line: Vec<u8>,
    /// Where that line began, and the digest up to there.
    line_start: (u64, Hasher),
    full: bool,
    failed: Option<io::Error>,
}

/// How it ended.
pub(super) struct Written {
    pub(super) bytes: u64,
    pub(super) sha256: String,
    pub(super) truncated: bool,
}

impl<'a> PatchWriter<'a> {
    pub(super) fn new(file: &'a mut File, most: u64) -> Self {
        let start = (0, Hasher::default());
        Self {
            file,
            most,
            written: 0,
            hasher: Hasher::default(),
            whole: start.clone(),
            line: Vec::new(),
            line_start: start,
            full: false,
            failed: None,
        }
    }

    /// One program has ended; what it wrote is whole unless `cut`.
    pub(super) fn end_of_part(&mut self, cut: bool) {
        if !cut && !self.full {
            self.whole = (self.written, self.hasher.clone());
        }
        self.full |= cut;
        self.line.clear();
        self.line_start = (self.written, self.hasher.clone());
    }

    /// Whether more may be written.
    pub(super) fn has_room(&self) -> bool {
        !self.full && self.failed.is_none()
    }

    /// Room that is left.
    pub(super) fn room(&self) -> u64 {
        self.most.saturating_sub(self.written)
    }

    /// Takes back what is not whole.
    pub(super) fn finish(self) -> io::Result<Written> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (bytes, hasher) = if self.full { self.whole } else { (self.written, self.hasher) };
        self.file.set_len(bytes)?;
        self.file.seek(SeekFrom::Start(bytes))?;
        self.file.sync_all()?;
        Ok(Written { bytes, sha256: hasher.finish(), truncated: self.full })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.written += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Remembers where a file begins as soon as its line tells.
    fn look_at(&mut self, piece: &[u8]) {
        let room = BEGINNING.len().saturating_sub(self.line.len());
        self.line.extend_from_slice(piece.get(..room).unwrap_or(piece));
        if self.line == BEGINNING {
            self.whole = self.line_start.clone();
        }
    }
}

impl Write for PatchWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() && self.has_room() {
            let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
            let (piece, after) = rest.split_at(end);
            rest = after;
            // First: a beginning that has no room any more is still the end of the file before it.
            self.look_at(piece);
            if u64::try_from(piece.len()).unwrap_or(u64::MAX) > self.room() {
                self.full = true;
                break;
            }
            if let Err(error) = self.put(piece) {
                self.failed = Some(error);
                break;
            }
            if piece.ends_with(b"\n") {
                self.line.clear();
                self.line_start = (self.written, self.hasher.clone());
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The files of a patch without renames, each as git wrote it. None if it is no such patch.
pub(super) fn files_of(patch: &[u8]) -> Option<Vec<&[u8]>> {
    let mut starts = Vec::new();
    let mut at = 0;
    for line in patch.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(BEGINNING) {
            starts.push(at);
        }
        at += line.len();
    }
    if patch.is_empty() {
        return Some(Vec::new());
    }
    if starts.first() != Some(&0) {
        return None;
    }
    starts.push(patch.len());
    Some(starts.windows(2).map(|pair| &patch[pair[0]..pair[1]]).collect())
}

/// Mode and object id of a file before and after, from the head of its part of a patch with full ids. A side without a
/// file is none.
pub(super) fn sides_of(file: &[u8]) -> Option<(Side, Side)> {
    let (mut old_mode, mut new_mode, mut ids) = (None, None, None);
    let (mut is_new, mut is_gone) = (false, false);
    for line in file.split(|byte| *byte == b'\n').skip(1) {
        let line = std::str::from_utf8(line).ok()?;
        let mode = |text: &str| u32::from_str_radix(text, 8).ok();
        if let Some(text) = line.strip_prefix("old mode ") {
            old_mode = Some(mode(text)?);
        } else if let Some(text) = line.strip_prefix("new mode ") {
            new_mode = Some(mode(text)?);
        } else if let Some(text) = line.strip_prefix("new file mode ") {
            (is_new, new_mode) = (true, Some(mode(text)?));
        } else if let Some(text) = line.strip_prefix("deleted file mode ") {
            (is_gone, old_mode) = (true, Some(mode(text)?));
        } else if let Some(text) = line.strip_prefix("index ") {
            let (both, same_mode) =
                text.split_once(' ').map_or((text, None), |(ids, mode)| (ids, Some(mode)));
            if let Some(text) = same_mode {
                (old_mode, new_mode) = (Some(mode(text)?), Some(mode(text)?));
            }
            ids = Some(both.split_once("..")?);
            break;
        } else {
            // The head ends here: only the mode changed.
            break;
        }
    }
    let side = |none: bool, mode: Option<u32>, id: Option<&str>| {
        if none { Some(None) } else { Some(Some((mode?, id?.to_owned()))) }
    };
    let Some((old, new)) = ids else {
        // The same content, whatever it is: no id to compare with, so it is never taken for done.
        let unknown = |mode: Option<u32>| Some(Some((mode?, String::new())));
        return match (is_new, is_gone) {
            (false, false) => Some((unknown(old_mode)?, unknown(new_mode)?)),
            _ => None,
        };
    };
    Some((side(is_new, old_mode, Some(old))?, side(is_gone, new_mode, Some(new))?))
}

/// Mode and object id of a file; none where there is no file.
pub(super) type Side = Option<(u32, String)>;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::digest;
    use proptest::prelude::*;
    use std::io::Read as _;

    const ONE: &str = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-diff --git \n+x\n";
    const TWO: &str = "diff --git a/b b/b\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-y\n+z\n";

    fn write(most: u64, pieces: &[&[u8]]) -> (Vec<u8>, Written) {
        let mut file = tempfile::tempfile().unwrap();
        let mut writer = PatchWriter::new(&mut file, most);
        pieces.iter().for_each(|piece| writer.write_all(piece).unwrap());
        writer.end_of_part(false);
        let written = writer.finish().unwrap();
        let mut content = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut content).unwrap();
        assert_eq!((written.bytes, &written.sha256), (content.len() as u64, &digest::of_bytes(&content)));
        (content, written)
    }

    #[test]
    fn a_patch_is_cut_behind_a_whole_file() {
        let all = format!("{ONE}{TWO}");
        let (content, written) = write(1000, &[all.as_bytes()]);
        assert_eq!((content, written.truncated), (all.clone().into_bytes(), false));
        for most in ONE.len()..all.len() {
            let (content, written) = write(most as u64, &[all.as_bytes()]);
            assert_eq!(
                (String::from_utf8(content).unwrap(), written.truncated),
                (ONE.to_owned(), true),
                "{most}"
            );
        }
        assert_eq!(write(ONE.len() as u64 - 1, &[all.as_bytes()]).0, b"");
    }

    #[test]
    fn the_files_of_a_patch_and_their_sides() {
        let id = |letter: char| letter.to_string().repeat(40);
        let (a, b, zero) = (id('a'), id('b'), id('0'));
        let files = [
            (
                format!("diff --git a/x b/x\nindex {a}..{b} 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"),
                Some((Some((0o100_644, a.clone())), Some((0o100_644, b.clone())))),
            ),
            (
                format!(
                    "diff --git a/n b/n\nnew file mode 100755\nindex {zero}..{b}\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+b\n"
                ),
                Some((None, Some((0o100_755, b.clone())))),
            ),
            (
                format!(
                    "diff --git a/d b/d\ndeleted file mode 120000\nindex {a}..{zero}\n--- a/d\n+++ /dev/null\n"
                ),
                Some((Some((0o120_000, a.clone())), None)),
            ),
            (
                format!(
                    "diff --git a/m b/m\nold mode 100644\nnew mode 100755\nindex {a}..{b}\n--- a/m\n+++ b/m\n"
                ),
                Some((Some((0o100_644, a)), Some((0o100_755, b)))),
            ),
            (
                "diff --git a/p b/p\nold mode 100644\nnew mode 100755\n".to_owned(),
                Some((Some((0o100_644, String::new())), Some((0o100_755, String::new())))),
            ),
        ];
        let all: String = files.iter().map(|(text, _)| text.as_str()).collect();
        let found = files_of(all.as_bytes()).unwrap();
        assert_eq!(found, files.iter().map(|(text, _)| text.as_bytes()).collect::<Vec<_>>());
        for (text, sides) in &files {
            assert_eq!(sides_of(text.as_bytes()), *sides, "{text}");
        }
        assert_eq!(files_of(b""), Some(Vec::new()));
        assert_eq!(files_of(b"words\ndiff --git a/x b/x\n"), None);
        assert_eq!(sides_of(b"diff --git a/x b/x\nindex nothing\n"), None);
    }

    proptest! {
        #[test]
        fn whatever_claims_to_be_a_patch_breaks_nothing(text in "(diff --git |index |old mode |new mode |[a-f0-9. \n]){0,30}") {
            for file in files_of(text.as_bytes()).unwrap_or_default() {
                let _ = sides_of(file);
            }
        }

        #[test]
        fn it_is_whole_however_it_comes(most in 0u64..160, cuts in proptest::collection::vec(0usize..150, 0..6)) {
            let all = format!("{ONE}{TWO}");
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(all.len())).collect();
            cuts.extend([0, all.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &all.as_bytes()[pair[0]..pair[1]]).collect();
            let (content, _) = write(most, &pieces);
            prop_assert!(content == b"" || content == ONE.as_bytes() || content == all.as_bytes());
            prop_assert!(content.len() <= write(most, &[all.as_bytes()]).0.len());
        }
    }
}
