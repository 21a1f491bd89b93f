//! A zip writer that writes whatever it is told, byte by byte.

use std::io::Write as _;

use crate::support::release::{Payload, Release};

/// One entry. `local` is what its local header says; the rest is what the directory says.
#[derive(Clone)]
pub struct Entry {
    pub before: Vec<u8>,
    pub data: Vec<u8>,
    pub after: Vec<u8>,
    pub local: Header,
    pub central: Header,
    pub made_by: u16,
    pub comment: Vec<u8>,
    pub disk: u16,
    pub external: u32,
    /// Where the directory says that it lies; none for where it lies.
    pub offset: Option<u32>,
}

/// What both descriptions of an entry say.
#[derive(Clone)]
pub struct Header {
    pub signature: [u8; 4],
    pub needed: u16,
    pub flags: u16,
    pub method: u16,
    pub time: u32,
    pub crc32: u32,
    pub compressed: u32,
    pub size: u32,
    pub name: Vec<u8>,
    pub extra: Vec<u8>,
}

/// An archive.
#[derive(Clone)]
pub struct Zip {
    pub prefix: Vec<u8>,
    /// Whether the offsets count the prefix.
    pub counts_prefix: bool,
    pub entries: Vec<Entry>,
    pub before_directory: Vec<u8>,
    pub before_end: Vec<u8>,
    pub comment: Vec<u8>,
    pub suffix: Vec<u8>,
    pub disk: u16,
    pub first_disk: u16,
    /// Added to the numbers of the end record.
    pub more_entries_here: i32,
    pub more_entries: i32,
    pub more_bytes: i64,
    pub more_offset: i64,
}

pub fn stored(name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Entry {
    let content = content.as_ref();
    entry(name.as_ref(), 0, content, content.to_vec())
}

pub fn deflated(name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Entry {
    let content = content.as_ref();
    entry(name.as_ref(), 8, content, deflate(content))
}

pub fn deflate(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn entry(name: &[u8], method: u16, content: &[u8], data: Vec<u8>) -> Entry {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let header = Header {
        signature: *b"PK\x03\x04",
        needed: 20,
        flags: if name.is_ascii() { 0 } else { 1 << 11 },
        method,
        time: 0x0021_0000,
        crc32: crc.sum(),
        compressed: data.len() as u32,
        size: content.len() as u32,
        name: name.to_vec(),
        extra: Vec::new(),
    };
    Entry {
        before: Vec::new(),
        data,
        after: Vec::new(),
        local: header.clone(),
        central: Header { signature: *b"PK\x01\x02", ..header },
        made_by: 3 << 8 | 20,
        comment: Vec::new(),
        disk: 0,
        external: 0o100_644 << 16,
        offset: None,
    }
}

impl Entry {
    /// Changes what both descriptions say.
    pub fn both(mut self, change: impl Fn(&mut Header)) -> Self {
        change(&mut self.local);
        change(&mut self.central);
        self
    }

    pub fn with(mut self, change: impl Fn(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The mode that Unix gives it.
    pub fn mode(self, mode: u32) -> Self {
        self.with(|entry| entry.external = mode << 16)
    }
}

impl Zip {
    pub fn of(entries: Vec<Entry>) -> Self {
        Self {
            prefix: Vec::new(),
            counts_prefix: true,
            entries,
            before_directory: Vec::new(),
            before_end: Vec::new(),
            comment: Vec::new(),
            suffix: Vec::new(),
            disk: 0,
            first_disk: 0,
            more_entries_here: 0,
            more_entries: 0,
            more_bytes: 0,
            more_offset: 0,
        }
    }

    /// The archive of a release, as it should be.
    pub fn release(release: &Release) -> Self {
        Self::payload(&release.payload())
    }

    pub fn payload(files: &[Payload]) -> Self {
        let make = |file: &Payload| stored(&file.name, &file.bytes).mode(0o100_000 | file.mode);
        Self::of(files.iter().map(make).collect())
    }

    pub fn with(mut self, change: impl Fn(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The entry of that name.
    pub fn entry(&mut self, name: &str) -> &mut Entry {
        self.entries.iter_mut().find(|entry| entry.central.name == name.as_bytes()).unwrap()
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.prefix.clone();
        let base = if self.counts_prefix { 0 } else { self.prefix.len() };
        let mut offsets = Vec::new();
        for entry in &self.entries {
            out.extend(&entry.before);
            offsets.push((out.len() - base) as u32);
            let header = &entry.local;
            out.extend(header.signature);
            header.common(&mut out);
            out.extend((header.name.len() as u16).to_le_bytes());
            out.extend((header.extra.len() as u16).to_le_bytes());
            out.extend(&header.name);
            out.extend(&header.extra);
            out.extend(&entry.data);
            out.extend(&entry.after);
        }
        out.extend(&self.before_directory);
        let directory = out.len();
        for (entry, offset) in self.entries.iter().zip(offsets) {
            let header = &entry.central;
            out.extend(header.signature);
            out.extend(entry.made_by.to_le_bytes());
            header.common(&mut out);
            out.extend((header.name.len() as u16).to_le_bytes());
            out.extend((header.extra.len() as u16).to_le_bytes());
            out.extend((entry.comment.len() as u16).to_le_bytes());
            out.extend(entry.disk.to_le_bytes());
            out.extend([0, 0]);
            out.extend(entry.external.to_le_bytes());
            out.extend(entry.offset.unwrap_or(offset).to_le_bytes());
            out.extend(&header.name);
            out.extend(&header.extra);
            out.extend(&entry.comment);
        }
        let directory_bytes = out.len() - directory;
        out.extend(&self.before_end);
        let count = self.entries.len() as i32;
        out.extend(b"PK\x05\x06");
        out.extend(self.disk.to_le_bytes());
        out.extend(self.first_disk.to_le_bytes());
        out.extend(((count + self.more_entries_here) as u16).to_le_bytes());
        out.extend(((count + self.more_entries) as u16).to_le_bytes());
        out.extend(((directory_bytes as i64 + self.more_bytes) as u32).to_le_bytes());
        out.extend((((directory - base) as i64 + self.more_offset) as u32).to_le_bytes());
        out.extend((self.comment.len() as u16).to_le_bytes());
        out.extend(&self.comment);
        out.extend(&self.suffix);
        out
    }
}

impl Header {
    fn common(&self, out: &mut Vec<u8>) {
        out.extend(self.needed.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.method.to_le_bytes());
        out.extend(self.time.to_le_bytes());
        out.extend(self.crc32.to_le_bytes());
        out.extend(self.compressed.to_le_bytes());
        out.extend(self.size.to_le_bytes());
    }
}
