//! What `git status --porcelain=2 -z` prints, read piece by piece in bounded memory.
//!
//! Format: section "Porcelain Format Version 2" of git-status(1).

use std::io::{self, Write};

use super::names::Name;

/// Longest record that is kept; a path is at most 4 KiB on every system that git knows.
const MAX_RECORD: usize = 64 << 10;

/// A file of the index that differs from the index, or is in conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    /// Path from the top of the work tree.
    pub name: Name,
    /// It is not in the work tree.
    pub gone: bool,
    /// It is another repository, in the index.
    pub repository: bool,
}

/// A status.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StatusReader {
    record: Vec<u8>,
    /// The next record is the old name of a rename.
    old_name: bool,
    /// The record is longer than anything that is kept.
    skipping: bool,
    most: usize,
    /// Files of the index that differ.
    pub differing: Vec<Differing>,
    /// How many more there are.
    pub more_differing: u64,
    /// Files that are neither in the index nor ignored; a repository of its own ends in `/`.
    pub untracked: Vec<Name>,
    /// How many more there are.
    pub more_untracked: u64,
    /// Ignored entries.
    pub ignored: u64,
    /// A record that is none of those above.
    pub foreign: bool,
    /// Set by whoever ran git: a folder could not be read.
    pub unreadable: bool,
    /// Set by whoever ran git: the output was cut.
    pub cut: bool,
}

impl StatusReader {
    /// Keeps at most so many names of each kind, and counts the rest.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Whether the output ended where a record ends, and every record was one.
    pub fn is_whole(&self) -> bool {
        self.record.is_empty() && !self.skipping && !self.foreign && !self.old_name
    }

    fn take(&mut self, record: &[u8]) {
        if std::mem::take(&mut self.old_name) {
            return;
        }
        let Some((kind, rest)) = record.split_first_chunk::<2>() else {
            self.foreign = true;
            return;
        };
        match kind {
            b"1 " => self.changed(rest, 7),
            b"2 " => {
                self.old_name = true;
                self.changed(rest, 8);
            }
            b"u " => {
                // A conflict is settled by what lies in the work tree.
                self.with_fields(rest, 9, |reader, fields, name| {
                    let gone = fields.get(5).is_some_and(|mode| *mode == b"000000");
                    reader.differs(Differing { name, gone, repository: false });
                });
            }
            b"? " => {
                if self.untracked.len() < self.most {
                    self.untracked.push(rest.to_vec());
                } else {
                    self.more_untracked += 1;
                }
            }
            b"! " => self.ignored += 1,
            b"# " => {}
            _ => self.foreign = true,
        }
    }

    fn changed(&mut self, rest: &[u8], fields: usize) {
        self.with_fields(rest, fields, |reader, fields, name| {
            let (Some([_, work]), Some(sub), Some(mode)) =
                (fields.first().copied(), fields.get(1), fields.get(3))
            else {
                reader.foreign = true;
                return;
            };
            if *work != b'.' {
                let repository = *mode == b"160000" || sub.first() == Some(&b'S');
                reader.differs(Differing { name, gone: *work == b'D', repository });
            }
        });
    }

    fn differs(&mut self, found: Differing) {
        if self.differing.len() < self.most {
            self.differing.push(found);
        } else {
            self.more_differing += 1;
        }
    }

    fn with_fields(&mut self, rest: &[u8], count: usize, then: impl FnOnce(&mut Self, &[&[u8]], Name)) {
        let mut parts = rest.splitn(count + 1, |byte| *byte == b' ');
        let fields: Vec<&[u8]> = parts.by_ref().take(count).collect();
        match parts.next() {
            Some(name) if !name.is_empty() => then(self, &fields, name.to_vec()),
            _ => self.foreign = true,
        }
    }
}

impl Write for StatusReader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == 0) {
            let (piece, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if std::mem::take(&mut self.skipping) || self.record.len() + piece.len() > MAX_RECORD {
                self.record.clear();
                self.foreign = true;
            } else if self.record.is_empty() {
                self.take(piece);
            } else {
                let mut record = std::mem::take(&mut self.record);
                record.extend_from_slice(piece);
                self.take(&record);
                record.clear();
                self.record = record;
            }
        }
        if self.skipping || self.record.len() + rest.len() > MAX_RECORD {
            self.record.clear();
            self.skipping = !rest.is_empty() || self.skipping;
        } else {
            self.record.extend_from_slice(rest);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "9de10b88975687643ec862ee0f28768471d89f0c";

    fn sample() -> Vec<u8> {
        let both = format!("{ID} {ID}");
        let mut text = String::new();
        for record in [
            format!("1 .M N... 100644 100644 100644 {both} a b"),
            format!("1 .D N... 100644 100644 000000 {both} gone"),
            format!("1 M. N... 100644 100644 100644 {both} staged"),
            format!("1 .M SC.. 160000 160000 160000 {both} sub"),
            format!("2 RM N... 100644 100644 100644 {both} R100 new"),
            "1 old name that looks like a record".into(),
            format!("u UU N... 100644 100644 100644 000000 {both} {ID} conflict"),
            "? -leading\n\t\"日本".into(),
            "? nested/".into(),
            "! out/".into(),
            "# branch.oid x".into(),
        ] {
            text.push_str(&record);
            text.push('\0');
        }
        text.into_bytes()
    }

    fn read(pieces: &[&[u8]]) -> StatusReader {
        let mut reader = StatusReader::new(100);
        for piece in pieces {
            reader.write_all(piece).unwrap();
        }
        reader
    }

    #[test]
    fn every_kind_of_record_is_understood() {
        let reader = read(&[&sample()]);
        assert!(reader.is_whole());
        let seen: Vec<(&str, bool, bool)> = reader
            .differing
            .iter()
            .map(|it| (std::str::from_utf8(&it.name).unwrap(), it.gone, it.repository))
            .collect();
        assert_eq!(
            seen,
            [
                ("a b", false, false),
                ("gone", true, false),
                ("sub", false, true),
                ("new", false, false),
                ("conflict", true, false),
            ]
        );
        assert_eq!(reader.untracked, ["-leading\n\t\"日本".as_bytes().to_vec(), b"nested/".to_vec()]);
        assert_eq!(reader.ignored, 1);
    }

    #[test]
    fn more_than_is_kept_is_counted() {
        let mut reader = StatusReader::new(2);
        for number in 0..5 {
            reader.write_all(format!("? {number}\0").as_bytes()).unwrap();
        }
        assert_eq!((reader.untracked.len(), reader.more_untracked), (2, 3));
    }

    #[test]
    fn what_is_no_status_is_said_so() {
        for text in ["hello\0", "1 .M short\0", "?\0", "\0", "? cut off"] {
            assert!(!read(&[text.as_bytes()]).is_whole(), "{text:?}");
        }
        let endless = vec![b'x'; 3 * MAX_RECORD];
        let reader = read(&[&endless, b"\0? a\0"]);
        assert!(!reader.is_whole() && reader.record.capacity() <= 2 * MAX_RECORD);
        assert_eq!(reader.untracked, [b"a".to_vec()]);
    }

    proptest! {
        #[test]
        fn it_is_the_same_however_it_is_cut(cuts in proptest::collection::vec(0usize..700, 0..8)) {
            let whole = sample();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &whole[pair[0]..pair[1]]).collect();
            let (one, other) = (read(&[&whole]), read(&pieces));
            prop_assert_eq!(one.differing, other.differing);
            prop_assert_eq!(one.untracked, other.untracked);
            prop_assert_eq!(one.ignored, other.ignored);
        }

        #[test]
        fn nothing_makes_it_fail(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(b' '), Just(b'1')], 0..200)) {
            let _ = read(&[&bytes]);
        }
    }
}
