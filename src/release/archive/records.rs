//! The records of a zip archive, read strictly: one form of each, the one that a packer of this project writes.

use super::error::{
    ArchiveError, BUNDLE_BOMB, BUNDLE_COMMENT, BUNDLE_DATA_DESCRIPTOR, BUNDLE_DIRECTORY_INVALID,
    BUNDLE_ENCRYPTED, BUNDLE_EXTRA_FIELD, BUNDLE_FOLDER_ENTRY, BUNDLE_GAP, BUNDLE_HEADERS_DIFFER,
    BUNDLE_METHOD, BUNDLE_MULTI_DISK, BUNDLE_NOT_A_FILE, BUNDLE_NOT_AN_ARCHIVE, BUNDLE_PREFIX_BYTES,
    BUNDLE_SIZE_LIES, BUNDLE_TOO_LARGE, BUNDLE_TOO_MANY_FILES, BUNDLE_TRAILING_BYTES, BUNDLE_TRUNCATED,
    BUNDLE_ZIP64,
};
use super::{MAX_DIRECTORY_BYTES, MAX_FILE_BYTES, MAX_FILES};
use crate::error::CodeDoc;

/// Size of the end record.
pub(super) const END_BYTES: usize = 22;
/// Size of a local header without its name.
pub(super) const LOCAL_BYTES: usize = 30;
const CENTRAL_BYTES: usize = 46;
const END: [u8; 4] = *b"PK\x05\x06";
const ZIP64_LOCATOR: [u8; 4] = *b"PK\x06\x07";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const LOCAL: [u8; 4] = *b"PK\x03\x04";
/// How far from the end an end record with a comment can lie.
pub(super) const TAIL_BYTES: u64 = (END_BYTES + 0xffff) as u64;
/// Bits 1 and 2 say how hard a deflater tried, bit 11 that the name is UTF-8.
const KNOWN_FLAGS: u16 = 1 << 1 | 1 << 2 | UTF8_FLAG;
const UTF8_FLAG: u16 = 1 << 11;
/// Encrypted, strongly encrypted, and a masked directory.
const ENCRYPTION_FLAGS: u16 = 1 | 1 << 6 | 1 << 13;
const DESCRIPTOR_FLAG: u16 = 1 << 3;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// A file may grow this many times, but for small ones, where it means nothing.
const MAX_RATIO: u64 = 100;
const RATIO_FROM_BYTES: u64 = 1024 * 1024;

/// Where the directory lies.
#[derive(Debug)]
pub(super) struct End {
    pub(super) entries: usize,
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// The end record in the last bytes of an archive of this length; `head` are its first four bytes.
pub(super) fn end(head: &[u8], tail: &[u8], length: u64) -> Result<End, ArchiveError> {
    let refuse = |doc, what: &str| Err(ArchiveError::new(doc, what));
    let at = match tail.len().checked_sub(END_BYTES) {
        Some(at) if tail[at..].starts_with(&END) && u16_at(tail, at + 20) == 0 => at,
        _ => return Err(misplaced_end(head, tail)),
    };
    let (this_disk, first_disk) = (u16_at(tail, at + 4), u16_at(tail, at + 6));
    let (here, entries) = (u16_at(tail, at + 8), u16_at(tail, at + 10));
    let (bytes, offset) = (u32_at(tail, at + 12), u32_at(tail, at + 16));
    let is_zip64 = [this_disk, first_disk, here, entries].contains(&u16::MAX)
        || [bytes, offset].contains(&u32::MAX)
        || at.checked_sub(20).is_some_and(|locator| tail[locator..].starts_with(&ZIP64_LOCATOR));
    if is_zip64 {
        return refuse(&BUNDLE_ZIP64, "the end record is one of zip64");
    }
    if (this_disk, first_disk) != (0, 0) || here != entries {
        return refuse(&BUNDLE_MULTI_DISK, "the end record speaks of several disks");
    }
    let entries = usize::from(entries);
    if entries > MAX_FILES {
        return refuse(&BUNDLE_TOO_MANY_FILES, &format!("it has {entries} entries; {MAX_FILES} are allowed"));
    }
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes > MAX_DIRECTORY_BYTES {
        return refuse(&BUNDLE_TOO_LARGE, "its directory is larger than any that is allowed");
    }
    let (offset, end_offset) = (u64::from(offset), length - END_BYTES as u64);
    let directory_end = offset + bytes as u64;
    if directory_end > end_offset {
        return refuse(&BUNDLE_DIRECTORY_INVALID, "its directory would lie beyond its end record");
    }
    if directory_end < end_offset {
        let adjacent = at.checked_sub(bytes).is_some_and(|start| tail[start..].starts_with(&CENTRAL));
        return if adjacent && bytes > 0 {
            refuse(&BUNDLE_PREFIX_BYTES, "all its records lie further back than they say")
        } else {
            refuse(&BUNDLE_GAP, "there are bytes between its directory and its end record")
        };
    }
    Ok(End { entries, offset, bytes })
}

/// Why the last bytes are no end record.
fn misplaced_end(head: &[u8], tail: &[u8]) -> ArchiveError {
    let last = tail.len().checked_sub(END_BYTES);
    let found = last.and_then(|last| (0..=last).rev().find(|at| tail[*at..].starts_with(&END)));
    match found {
        Some(at) if at + END_BYTES + usize::from(u16_at(tail, at + 20)) == tail.len() => {
            ArchiveError::new(&BUNDLE_COMMENT, "the archive has a comment")
        }
        Some(at) => {
            let more = tail.len() - at - END_BYTES;
            ArchiveError::new(&BUNDLE_TRAILING_BYTES, format!("{more} bytes follow its end record"))
        }
        None if head == LOCAL => ArchiveError::new(&BUNDLE_TRUNCATED, "its end record is not there"),
        None => ArchiveError::new(&BUNDLE_NOT_AN_ARCHIVE, "it is no zip archive"),
    }
}

/// One entry of the directory.
#[derive(Debug)]
pub(super) struct Central<'a> {
    pub(super) name: &'a [u8],
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc32: u32,
    pub(super) compressed: u64,
    pub(super) size: u64,
    pub(super) offset: u64,
    /// From `version needed` to the lengths: a local header has the same bytes there.
    shared: &'a [u8],
}

impl Central<'_> {
    pub(super) fn is_utf8(&self) -> bool {
        self.flags & UTF8_FLAG != 0
    }

    pub(super) fn is_deflated(&self) -> bool {
        self.method == DEFLATED
    }

    fn refuse(&self, doc: &'static CodeDoc, what: &str) -> Result<(), ArchiveError> {
        let shown = String::from_utf8_lossy(&self.name[..self.name.len().min(80)]);
        Err(ArchiveError::new(doc, format!("{shown:?} {what}")))
    }
}

/// The entries of a directory.
pub(super) fn directory(bytes: &[u8], entries: usize) -> Result<Vec<Central<'_>>, ArchiveError> {
    let invalid = |what: String| ArchiveError::new(&BUNDLE_DIRECTORY_INVALID, what);
    let mut found = Vec::with_capacity(entries);
    let mut rest = bytes;
    for number in 1..=entries {
        if rest.len() < CENTRAL_BYTES || !rest.starts_with(&CENTRAL) {
            return Err(invalid(format!("entry {number} of {entries} is not in its directory")));
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(rest, at)));
        let whole = CENTRAL_BYTES + name + extra + comment;
        if rest.len() < whole {
            return Err(invalid(format!("entry {number} of {entries} is longer than its directory")));
        }
        found.push(central(&rest[..whole], name, extra, comment)?);
        rest = &rest[whole..];
    }
    if rest.is_empty() {
        Ok(found)
    } else {
        Err(invalid(format!("its directory goes on after {entries} entries")))
    }
}

fn central(entry: &[u8], name: usize, extra: usize, comment: usize) -> Result<Central<'_>, ArchiveError> {
    let shown = String::from_utf8_lossy(&entry[CENTRAL_BYTES..CENTRAL_BYTES + name.min(80)]);
    let refuse = |doc, what: &str| Err(ArchiveError::new(doc, format!("{shown:?} {what}")));
    let (needed, flags, method) = (u16_at(entry, 6), u16_at(entry, 8), u16_at(entry, 10));
    let (compressed, size) = (u32_at(entry, 20), u32_at(entry, 24));
    let (external, offset) = (u32_at(entry, 38), u32_at(entry, 42));
    let has_zip64_field = extra >= 2 && u16_at(entry, CENTRAL_BYTES + name) == 1;
    if [compressed, size, offset].contains(&u32::MAX) || has_zip64_field || needed >= 45 {
        return refuse(&BUNDLE_ZIP64, "has sizes of zip64");
    }
    if u16_at(entry, 34) != 0 {
        return refuse(&BUNDLE_MULTI_DISK, "lies on another disk");
    }
    if let Some((doc, what)) = refused_flags(flags) {
        return refuse(doc, what);
    }
    if !matches!(method, STORED | DEFLATED) || needed > 20 {
        return refuse(&BUNDLE_METHOD, "is neither stored nor deflated");
    }
    if extra > 0 {
        return refuse(&BUNDLE_EXTRA_FIELD, "has an extra field");
    }
    if comment > 0 {
        return refuse(&BUNDLE_COMMENT, "has a comment");
    }
    // The upper half is the mode that Unix gives a file, the lower one the attributes of DOS.
    let (mode, attributes) = (external >> 16, external & 0xff);
    let kind = mode & 0o170_000;
    let ends_as_folder = entry[CENTRAL_BYTES..CENTRAL_BYTES + name].ends_with(b"/");
    if kind == 0o040_000 || attributes & 0x10 != 0 || ends_as_folder {
        return refuse(&BUNDLE_FOLDER_ENTRY, "is a folder");
    }
    if !matches!(kind, 0 | 0o100_000) || attributes & 0x08 != 0 || mode & 0o7000 != 0 {
        return refuse(&BUNDLE_NOT_A_FILE, "is not a plain file");
    }
    let (compressed, size) = (u64::from(compressed), u64::from(size));
    if size > MAX_FILE_BYTES {
        return refuse(&BUNDLE_TOO_LARGE, "is too large");
    }
    if method == STORED && compressed != size {
        return refuse(&BUNDLE_SIZE_LIES, "is stored, but says that it has two sizes");
    }
    if size > RATIO_FROM_BYTES && size / MAX_RATIO > compressed {
        return refuse(&BUNDLE_BOMB, "would grow more than a hundredfold");
    }
    Ok(Central {
        name: &entry[CENTRAL_BYTES..CENTRAL_BYTES + name],
        flags,
        method,
        crc32: u32_at(entry, 16),
        compressed,
        size,
        offset: u64::from(offset),
        shared: &entry[6..30],
    })
}

fn refused_flags(flags: u16) -> Option<(&'static CodeDoc, &'static str)> {
    if flags & ENCRYPTION_FLAGS != 0 {
        Some((&BUNDLE_ENCRYPTED, "is encrypted"))
    } else if flags & DESCRIPTOR_FLAG != 0 {
        Some((&BUNDLE_DATA_DESCRIPTOR, "has its sizes behind it"))
    } else if flags & !KNOWN_FLAGS != 0 {
        Some((&BUNDLE_METHOD, "uses a feature that is not known"))
    } else {
        None
    }
}

/// Refuses a local header that has what no entry may have, whatever the directory says of it. Anything else than a
/// local header is left to [`local`].
pub(super) fn local_form(header: &[u8], central: &Central<'_>) -> Result<(), ArchiveError> {
    if !header.starts_with(&LOCAL) {
        return Ok(());
    }
    if let Some((doc, what)) = refused_flags(u16_at(header, 6)) {
        return central.refuse(doc, what);
    }
    if u16_at(header, 28) != 0 {
        return central.refuse(&BUNDLE_EXTRA_FIELD, "has an extra field before its content");
    }
    Ok(())
}

/// Compares a local header and the name behind it with the entry of the directory.
pub(super) fn local(header: &[u8], name: &[u8], central: &Central<'_>) -> Result<(), ArchiveError> {
    if !header.starts_with(&LOCAL) {
        return central.refuse(&BUNDLE_HEADERS_DIFFER, "is not where the directory says");
    }
    if header[4..28] != *central.shared || name != central.name {
        return central.refuse(&BUNDLE_HEADERS_DIFFER, "is described in two ways");
    }
    Ok(())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
