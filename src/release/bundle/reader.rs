//! Reads the structure of a bundle, and takes nothing but what this program writes: every byte of the file is
//! accounted for by a header, a name or content.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use super::writer::{Method, Stamp};
use crate::release::metadata::check_path;

const END_BYTES: u64 = 22;
/// More than any bundle needs: about 16,000 names.
const MAX_DIRECTORY: u64 = 1024 * 1024;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path with slashes.
    pub name: String,
    /// Whether its mode is 0755; else it is 0644.
    pub executable: bool,
    /// How it is kept.
    pub method: Method,
    /// Its time.
    pub stamp: Stamp,
    /// CRC-32 of the content.
    pub crc: u32,
    /// Bytes in the archive.
    pub compressed: u64,
    /// Bytes of the content.
    pub bytes: u64,
    /// Where its header begins.
    pub offset: u64,
}

/// The entries in their order, or the first thing that is not as it must be.
pub fn entries(mut file: &File) -> Result<Vec<Entry>, String> {
    let failed = |error: io::Error| error.to_string();
    let length = file.metadata().map_err(failed)?.len();
    let end_at = length.checked_sub(END_BYTES).ok_or("it is too short for an archive")?;
    let end = read_at(file, end_at, END_BYTES).map_err(failed)?;
    let mut end = Fields(&end);
    if end.word() != 0x0605_4b50 {
        return Err("it does not end with the end of an archive".into());
    }
    let (disks, on_disk, count) = (end.word(), end.half(), end.half());
    let (size, directory_at, comment) = (u64::from(end.word()), u64::from(end.word()), end.half());
    if disks != 0 || on_disk != count || comment != 0 {
        return Err("its end names several disks or a comment".into());
    }
    if size > MAX_DIRECTORY || directory_at + size != end_at {
        return Err("there is something between its directory and its end".into());
    }
    let directory = read_at(file, directory_at, size).map_err(failed)?;
    let mut rest = &directory[..];
    let mut entries: Vec<Entry> = Vec::new();
    let mut next = 0;
    for _ in 0..count {
        let entry = central(&mut rest)?;
        let named = |why: &str| format!("{}: {why}", entry.name);
        if entry.offset != next {
            return Err(named("there is a gap before it, or it overlaps"));
        }
        if entries.iter().any(|other| other.name.eq_ignore_ascii_case(&entry.name)) {
            return Err(named("it occurs twice"));
        }
        let header_bytes = 30 + entry.name.len() as u64;
        let header = read_at(file, entry.offset, header_bytes).map_err(failed)?;
        local(&header, &entry).map_err(named)?;
        next = entry.offset + header_bytes + entry.compressed;
        entries.push(entry);
    }
    if !rest.is_empty() || next != directory_at {
        return Err("its directory does not cover the whole of it".into());
    }
    file.rewind().map_err(failed)?;
    Ok(entries)
}

/// How the first entry of a file is kept, if the file begins with one.
pub fn first_method(file: &File) -> Option<Method> {
    let header = read_at(file, 0, 10).ok()?;
    let mut fields = Fields(&header);
    let signature = fields.word();
    let (_version, _flags, method) = (fields.half(), fields.half(), fields.half());
    [Method::Stored, Method::Deflated]
        .into_iter()
        .find(|known| signature == 0x0403_4b50 && known.number() == method)
}

fn central(rest: &mut &[u8]) -> Result<Entry, String> {
    let (header, after) = rest.split_at_checked(46).ok_or("its directory is cut")?;
    let mut fields = Fields(header);
    if fields.word() != 0x0201_4b50 || fields.half() != (3 << 8 | 20) {
        return Err("its directory holds something else than an entry made on Unix".into());
    }
    let common = Common::read(&mut fields);
    let (comment, disk, internal, external, offset) =
        (fields.half(), fields.half(), fields.half(), fields.word(), fields.word());
    let (name, after) =
        after.split_at_checked(common.name.into()).ok_or("a name reaches beyond its directory")?;
    *rest = after;
    let name = std::str::from_utf8(name).ok().filter(|name| name.is_ascii()).ok_or("a name is not ASCII")?;
    let named = |why: &str| format!("{name}: {why}");
    check_path(name).map_err(named)?;
    let executable = match external {
        0x81ed_0000 => true,
        0x81a4_0000 => false,
        _ => return Err(named("it is no plain file of mode 0644 or 0755")),
    };
    let (method, version) = match common.method {
        0 => (Method::Stored, 10),
        8 => (Method::Deflated, 20),
        _ => return Err(named("it is kept in another way than stored or deflated")),
    };
    if (common.version, common.flags, common.extra) != (version, 0, 0)
        || (comment, disk, internal) != (0, 0, 0)
    {
        return Err(named("its header has flags, extra fields or a comment"));
    }
    if method == Method::Stored && common.compressed != common.bytes {
        return Err(named("it is stored and has two sizes"));
    }
    Ok(Entry {
        name: name.to_owned(),
        executable,
        method,
        stamp: common.stamp,
        crc: common.crc,
        compressed: common.compressed.into(),
        bytes: common.bytes.into(),
        offset: offset.into(),
    })
}

fn local(header: &[u8], entry: &Entry) -> Result<(), &'static str> {
    let mut fields = Fields(header);
    let signature = fields.word();
    let common = Common::read(&mut fields);
    let agrees = signature == 0x0403_4b50
        && (common.flags, common.extra) == (0, 0)
        && common.version == if entry.method == Method::Stored { 10 } else { 20 }
        && common.method == entry.method.number()
        && common.stamp == entry.stamp
        && (common.crc, u64::from(common.compressed), u64::from(common.bytes))
            == (entry.crc, entry.compressed, entry.bytes)
        && usize::from(common.name) == entry.name.len()
        && fields.0 == entry.name.as_bytes();
    if agrees { Ok(()) } else { Err("its two headers differ") }
}

/// What both headers have.
struct Common {
    version: u16,
    flags: u16,
    method: u16,
    stamp: Stamp,
    crc: u32,
    compressed: u32,
    bytes: u32,
    name: u16,
    extra: u16,
}

impl Common {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            version: fields.half(),
            flags: fields.half(),
            method: fields.half(),
            stamp: Stamp { time: fields.half(), date: fields.half() },
            crc: fields.word(),
            compressed: fields.word(),
            bytes: fields.word(),
            name: fields.half(),
            extra: fields.half(),
        }
    }
}

/// Numbers from the front of bytes; zero where there are none left.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => [0; N],
        }
    }

    fn half(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
}

fn read_at(mut file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}
