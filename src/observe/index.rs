//! Git's index file, as far as an observation must know it before it lets git work on a copy: what is staged, which
//! entries git is told not to look at, and which are repositories of their own.
//!
//! Format: `gitformat-index` of the git documentation, versions 2 to 4.

use crate::digest::Hasher;

/// Mode of an entry that is another repository's commit.
pub const GITLINK: u32 = 0o160_000;
/// Times and sizes kept to tell whether the index is stale.
const SAMPLES: usize = 128;
/// No index of a real repository is near that; a header may say anything.
const MAX_ENTRIES: u32 = 50_000_000;

/// What an index file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexFile {
    /// Version of the format.
    pub version: u32,
    /// Number of entries.
    pub entries: u32,
    /// A digest of what is staged: modes, object ids, stages and paths, not the times. None if a part of the index
    /// lies in another file.
    pub staged: Option<String>,
    /// Entries that are repositories of their own.
    pub repositories: Vec<Vec<u8>>,
    /// There are files of attributes, so that content may be converted on its way.
    pub attributes: bool,
    /// Some entries are marked as "assume unchanged" or "skip in the work tree".
    pub flagged: bool,
    /// A part of the entries lies in another file (split index).
    pub shared: bool,
    /// Some entries stand for whole folders (sparse index).
    pub sparse: bool,
    /// Entries that are spread over the whole.
    pub samples: Vec<Sample>,
}

/// What an index remembers of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Path.
    pub path: Vec<u8>,
    /// Seconds of the last change of the content.
    pub modified: u32,
    /// Its size, modulo 2³².
    pub size: u32,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Type and permissions.
    pub mode: u32,
    /// Object id, 20 or 32 bytes.
    pub id: &'a [u8],
    /// 0, or the side of a merge.
    pub stage: u8,
    /// Path.
    pub path: &'a [u8],
    assume_valid: bool,
    skip_worktree: bool,
    modified: u32,
    size: u32,
}

/// Reads an index file whose object ids have so many bytes. `None` if it is none that this program knows.
pub fn read(bytes: &[u8], id_length: usize) -> Option<IndexFile> {
    let mut found = IndexFile::default();
    let mut staged = Hasher::default();
    let count = u32::from_be_bytes(take(bytes, 8, 4)?.try_into().ok()?);
    let step = (usize::try_from(count).ok()? / SAMPLES).max(1);
    let mut number = 0;
    let end = each(bytes, id_length, |entry| {
        staged.update(&entry.mode.to_be_bytes());
        staged.update(entry.id);
        staged.update(&[entry.stage]);
        staged.update(&u64::try_from(entry.path.len()).unwrap_or(u64::MAX).to_be_bytes());
        staged.update(entry.path);
        found.flagged |= entry.assume_valid || entry.skip_worktree;
        found.attributes |= super::names::file_name(entry.path) == b".gitattributes";
        if entry.mode == GITLINK {
            found.repositories.push(entry.path.to_vec());
        } else if number % step == 0 && !entry.skip_worktree && found.samples.len() < SAMPLES {
            let (modified, size) = (entry.modified, entry.size);
            found.samples.push(Sample { path: entry.path.to_vec(), modified, size });
        }
        number += 1;
    })?;
    found.entries = count;
    found.version = u32::from_be_bytes(take(bytes, 4, 4)?.try_into().ok()?);
    for signature in extensions(bytes, end, id_length)? {
        match &signature {
            b"link" => found.shared = true,
            b"sdir" => found.sparse = true,
            _ => {}
        }
    }
    found.staged = (!found.shared).then(|| staged.finish());
    Some(found)
}

/// Calls `seen` with each entry, and gives where the entries end.
pub fn each(bytes: &[u8], id_length: usize, mut seen: impl FnMut(&Entry<'_>)) -> Option<usize> {
    if !matches!(id_length, 20 | 32) || take(bytes, 0, 4)? != b"DIRC" {
        return None;
    }
    let word = |at: usize| Some(u32::from_be_bytes(take(bytes, at, 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_be_bytes(take(bytes, at, 2)?.try_into().ok()?));
    let version = word(4)?;
    let count = word(8)?;
    if !(2..=4).contains(&version) || count > MAX_ENTRIES {
        return None;
    }
    let mut at = 12_usize;
    let mut path: Vec<u8> = Vec::new();
    for _ in 0..count {
        let start = at;
        let flags_at = start.checked_add(40)?.checked_add(id_length)?;
        let flags = half(flags_at)?;
        let mut path_at = flags_at + 2;
        let mut skip_worktree = false;
        if flags & 0x4000 != 0 {
            if version == 2 {
                return None;
            }
            skip_worktree = half(path_at)? & 0x4000 != 0;
            path_at += 2;
        }
        if version == 4 {
            let (strip, used) = offset(bytes.get(path_at..)?)?;
            path_at += used;
            path.truncate(path.len().checked_sub(strip)?);
            let rest = bytes.get(path_at..)?;
            let length = rest.iter().position(|byte| *byte == 0)?;
            path.extend_from_slice(rest.get(..length)?);
            at = path_at + length + 1;
        } else {
            let rest = bytes.get(path_at..)?;
            let length = match usize::from(flags & 0x0fff) {
                0x0fff => rest.iter().position(|byte| *byte == 0)?,
                length => length,
            };
            path.clear();
            path.extend_from_slice(rest.get(..length)?);
            // Padded with one to eight zeros to a multiple of eight.
            at = start + (((path_at - start) + length + 8) & !7);
            if take(bytes, path_at + length, 1)? != [0] {
                return None;
            }
        }
        if path.is_empty() || path.contains(&0) {
            return None;
        }
        seen(&Entry {
            mode: word(start + 24)?,
            id: take(bytes, start + 40, id_length)?,
            stage: u8::try_from((flags >> 12) & 3).ok()?,
            path: &path,
            assume_valid: flags & 0x8000 != 0,
            skip_worktree,
            modified: word(start + 8)?,
            size: word(start + 36)?,
        });
    }
    (at <= bytes.len()).then_some(at)
}

/// The signatures of the extensions between the entries and the checksum.
fn extensions(bytes: &[u8], mut at: usize, id_length: usize) -> Option<Vec<[u8; 4]>> {
    let end = bytes.len().checked_sub(id_length)?;
    let mut found = Vec::new();
    while at + 8 <= end {
        found.push(take(bytes, at, 4)?.try_into().ok()?);
        let size = u32::from_be_bytes(take(bytes, at + 4, 4)?.try_into().ok()?);
        at = at.checked_add(8)?.checked_add(usize::try_from(size).ok()?)?;
    }
    (at == end).then_some(found)
}

/// A number in the coding of pack offsets, and how many bytes it took.
fn offset(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = usize::from(bytes.first()? & 0x7f);
    let mut used = 1;
    while bytes.get(used - 1)? & 0x80 != 0 {
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(bytes.get(used)? & 0x7f))?;
        used += 1;
    }
    Some((value, used))
}

fn take(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    /// An index as git writes one.
    fn index(version: u32, entries: &[(u32, u16, u16, &str)], extensions: &[&[u8]]) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend(u32::try_from(entries.len()).unwrap().to_be_bytes());
        let mut previous = String::new();
        for (mode, flags, extended, path) in entries {
            let start = bytes.len();
            for number in 0..10_u32 {
                bytes.extend(if number == 6 { *mode } else { 100 + number }.to_be_bytes());
            }
            bytes.extend([7; 20]);
            let length = u16::try_from(path.len().min(0x0fff)).unwrap();
            let has_more = *extended != 0;
            bytes.extend((flags | length | if has_more { 0x4000 } else { 0 }).to_be_bytes());
            if has_more {
                bytes.extend(extended.to_be_bytes());
            }
            if version == 4 {
                let common = path.bytes().zip(previous.bytes()).take_while(|(a, b)| a == b).count();
                let strip = previous.len() - common;
                assert!(strip < 128);
                bytes.push(u8::try_from(strip).unwrap());
                bytes.extend(&path.as_bytes()[common..]);
                bytes.push(0);
            } else {
                bytes.extend(path.as_bytes());
                let used = bytes.len() - start;
                bytes.resize(start + ((used + 8) & !7), 0);
            }
            previous = (*path).to_owned();
        }
        for extension in extensions {
            bytes.extend(&extension[..4]);
            bytes.extend(u32::try_from(extension.len() - 4).unwrap().to_be_bytes());
            bytes.extend(&extension[4..]);
        }
        bytes.extend([0; 20]);
        bytes
    }

    #[test]
    fn all_three_versions_say_the_same() {
        let long = "d/".repeat(30) + "long";
        let entries = [(0o100_644, 0, 0, "a"), (GITLINK, 0, 0, "lib/sub"), (0o100_755, 0, 0, &*long)];
        let read = |version| read(&index(version, &entries, &[]), 20).unwrap();
        let two = read(2);
        assert_eq!((two.entries, two.flagged, two.shared), (3, false, false));
        assert_eq!(two.repositories, [b"lib/sub".to_vec()]);
        assert_eq!(two.samples.len(), 2);
        assert_eq!((two.samples[0].modified, two.samples[0].size), (102, 109));
        assert_eq!(read(3), IndexFile { version: 3, ..two.clone() });
        assert_eq!(read(4), IndexFile { version: 4, ..two.clone() });
        let other = [(0o100_755, 0, 0, "a"), (GITLINK, 0, 0, "lib/sub"), (0o100_755, 0, 0, &*long)];
        assert_ne!(super::read(&index(2, &other, &[]), 20).unwrap().staged, two.staged);
    }

    #[test]
    fn marks_and_extensions_are_seen() {
        let assumed = index(2, &[(0o100_644, 0x8000, 0, "a")], &[]);
        assert!(read(&assumed, 20).unwrap().flagged);
        let skipped = index(3, &[(0o100_644, 0, 0x4000, "a")], &[]);
        assert!(read(&skipped, 20).unwrap().flagged);
        let split = index(2, &[], &[b"TREEx", b"link12345678901234567890"]);
        let split = read(&split, 20).unwrap();
        assert_eq!((split.shared, split.staged), (true, None));
        assert!(read(&index(3, &[], &[b"sdir"]), 20).unwrap().sparse);
        let rules = [(0o100_644, 0, 0, "a/.gitattributes")];
        assert!(read(&index(2, &rules, &[]), 20).unwrap().attributes);
        assert!(!assumed.is_empty() && !read(&assumed, 20).unwrap().attributes);
    }

    #[test]
    fn what_is_cut_or_foreign_is_none() {
        let whole = index(2, &[(0o100_644, 0, 0, "a"), (0o100_644, 0, 0, "b")], &[b"TREEx"]);
        assert!(read(&whole, 20).is_some());
        // Where the extension begins only the checksum would tell, which git does not look at either.
        let plain = whole.len() - b"TREEx".len() - 4;
        for length in (0..whole.len()).filter(|length| *length != plain) {
            assert_eq!(read(&whole[..length], 20), None, "{length} bytes");
        }
        assert_eq!(read(&index(5, &[], &[]), 20), None);
        let mut many = index(2, &[], &[]);
        many[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(read(&many, 20), None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..300), version in 2u32..5) {
            let mut all = index(version, &[(0o100_644, 0, 0, "a"), (0o100_644, 0, 0, "abc")], &[b"TREEx"]);
            let at = 12 + bytes.len() % 60;
            all.splice(at..at, bytes);
            let _ = read(&all, 20);
            let _ = read(&all, 32);
        }
    }
}
