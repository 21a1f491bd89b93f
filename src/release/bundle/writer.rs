//! Writes an archive whose bytes follow from its content alone.
//!
//! The general writers patch headers after the content, so that an entry can't be written before those in front of it
//! are complete. Here the order of writing is free: the metadata in front of the program pin its digest, and still
//! the program is hashed and written at the same time. One constant time, Unix modes on every system, no extra fields,
//! no data descriptors, no folders, no comment, no zip64. PKWARE's APPNOTE names the fields.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// Larger archives would need zip64, which strict readers refuse.
pub const MAX_BYTES: u64 = u32::MAX as u64 - 64 * 1024 * 1024;
const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
/// Size of a local header without the name.
const LOCAL_BYTES: u64 = 30;
/// Made on Unix, by version 2.0 of the format.
const MADE_BY: u16 = 3 << 8 | 20;
const PIECE: usize = 1024 * 1024;

/// How content is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// As it is.
    Stored,
    /// Compressed.
    Deflated,
}

impl Method {
    /// The number of the format.
    pub fn number(self) -> u16 {
        match self {
            Self::Stored => 0,
            Self::Deflated => 8,
        }
    }
}

/// A moment as archives have it: local time without a zone, every other second. Here always UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Hours, minutes, seconds.
    pub time: u16,
    /// Years since 1980, month, day.
    pub date: u16,
}

impl Stamp {
    /// Of seconds since 1970; before 1980 and after 2107 the first and the last that can be written.
    pub fn of(seconds: i64) -> Self {
        const FIRST: i64 = 315_532_800;
        const LAST: i64 = 4_354_819_198;
        let second = jiff::Timestamp::from_second(seconds.clamp(FIRST, LAST)).unwrap_or_default();
        let moment = jiff::tz::Offset::UTC.to_datetime(second);
        let bits = |value: i32, shift: u32| u16::try_from(value).unwrap_or(0) << shift;
        Self {
            time: bits(moment.hour().into(), 11)
                | bits(moment.minute().into(), 5)
                | bits(i32::from(moment.second()) / 2, 0),
            date: bits(i32::from(moment.year()) - 1980, 9)
                | bits(moment.month().into(), 5)
                | bits(moment.day().into(), 0),
        }
    }
}

#[derive(Debug)]
struct Record {
    name: String,
    executable: bool,
    crc: u32,
    compressed: u32,
    bytes: u32,
    offset: u32,
}

/// An archive that is being written to a file, in any order.
#[derive(Debug)]
pub struct Writer<'a> {
    file: &'a File,
    method: Method,
    stamp: Stamp,
    records: Vec<Record>,
}

/// The room that an entry of this name takes, if its content takes `content` bytes.
pub fn room(name: &str, content: u64) -> u64 {
    LOCAL_BYTES + name.len() as u64 + content
}

impl<'a> Writer<'a> {
    /// Begins.
    pub fn new(file: &'a File, method: Method, stamp: Stamp) -> Self {
        Self { file, method, stamp, records: Vec::new() }
    }

    /// Writes an entry at a place and gives the place after it.
    pub fn add(
        &mut self,
        offset: u64,
        name: &str,
        executable: bool,
        content: &mut dyn Read,
    ) -> io::Result<u64> {
        self.add_told(offset, name, executable, content, &mut |_| {})
    }

    /// The same; `told` hears after each piece how many bytes of the content are in the file (or on their way, if they
    /// are compressed).
    pub fn add_told(
        &mut self,
        offset: u64,
        name: &str,
        executable: bool,
        content: &mut dyn Read,
        told: &mut dyn FnMut(u64),
    ) -> io::Result<u64> {
        let start = room(name, 0) + offset;
        let mut file = self.file;
        file.seek(SeekFrom::Start(start))?;
        let mut crc = Crc::new();
        let mut compressed = Counting { file, count: 0 };
        let bytes = match self.method {
            Method::Stored => pump(content, &mut crc, &mut compressed, told)?,
            Method::Deflated => {
                let mut encoder = DeflateEncoder::new(&mut compressed, Compression::default());
                let bytes = pump(content, &mut crc, &mut encoder, told)?;
                encoder.finish()?;
                bytes
            }
        };
        let end = start + compressed.count;
        let record = Record {
            name: name.to_owned(),
            executable,
            crc: crc.sum(),
            compressed: narrow(compressed.count)?,
            bytes: narrow(bytes)?,
            offset: narrow(offset)?,
        };
        let mut header = Vec::with_capacity(64);
        header.extend(LOCAL.to_le_bytes());
        self.common(&mut header, &record);
        header.extend(record.name.as_bytes());
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(&header)?;
        self.records.push(record);
        Ok(end)
    }

    /// Writes the directory at `offset`, where the last entry ends. Gives the length of the whole.
    pub fn finish(mut self, offset: u64) -> io::Result<u64> {
        self.records.sort_by_key(|record| record.offset);
        let mut directory = Vec::new();
        for record in &self.records {
            let mode: u32 = if record.executable { 0o100_755 } else { 0o100_644 };
            directory.extend(CENTRAL.to_le_bytes());
            directory.extend(MADE_BY.to_le_bytes());
            self.common(&mut directory, record);
            // No comment, first disk, no internal attributes.
            directory.extend([0; 6]);
            directory.extend((mode << 16).to_le_bytes());
            directory.extend(record.offset.to_le_bytes());
            directory.extend(record.name.as_bytes());
        }
        let count = u16::try_from(self.records.len()).map_err(io::Error::other)?;
        let size = narrow(directory.len() as u64)?;
        directory.extend(END.to_le_bytes());
        directory.extend([0; 4]);
        directory.extend(count.to_le_bytes());
        directory.extend(count.to_le_bytes());
        directory.extend(size.to_le_bytes());
        directory.extend(narrow(offset)?.to_le_bytes());
        directory.extend([0; 2]);
        let mut file = self.file;
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(&directory)?;
        Ok(offset + directory.len() as u64)
    }

    /// What both headers of an entry have, in the same order: from the version that is needed to the length of the
    /// extra field.
    fn common(&self, header: &mut Vec<u8>, record: &Record) {
        let version: u16 = if self.method == Method::Stored { 10 } else { 20 };
        for half in [version, 0, self.method.number(), self.stamp.time, self.stamp.date] {
            header.extend(half.to_le_bytes());
        }
        for word in [record.crc, record.compressed, record.bytes] {
            header.extend(word.to_le_bytes());
        }
        // Names are checked to be short ASCII.
        header.extend(u16::try_from(record.name.len()).unwrap_or(u16::MAX).to_le_bytes());
        header.extend([0; 2]);
    }
}

fn narrow(value: u64) -> io::Result<u32> {
    u32::try_from(value)
        .ok()
        .filter(|value| u64::from(*value) <= MAX_BYTES)
        .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, "larger than an archive may be"))
}

fn pump(
    from: &mut dyn Read,
    crc: &mut Crc,
    to: &mut dyn Write,
    told: &mut dyn FnMut(u64),
) -> io::Result<u64> {
    let mut piece = vec![0; PIECE];
    let mut count = 0;
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(count),
            Ok(read) => {
                crc.update(&piece[..read]);
                to.write_all(&piece[..read])?;
                count += read as u64;
                told(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

struct Counting<'a> {
    file: &'a File,
    count: u64,
}

impl Write for Counting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.count += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn written(method: Method, entries: &[(&str, bool, &[u8])]) -> Vec<u8> {
        let mut file = tempfile::tempfile().unwrap();
        let mut writer = Writer::new(&file, method, Stamp::of(1_767_225_601));
        let mut at = 0;
        for (name, executable, content) in entries {
            let mut content = *content;
            at = writer.add(at, name, *executable, &mut content).unwrap();
        }
        let length = writer.finish(at).unwrap();
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, length);
        bytes
    }

    #[test]
    fn moments_are_utc_and_stay_in_the_range_of_the_format() {
        let parts = |seconds: i64| {
            let Stamp { time, date } = Stamp::of(seconds);
            let date = ((date >> 9) + 1980, date >> 5 & 15, date & 31);
            (date, (time >> 11, time >> 5 & 63, (time & 31) * 2))
        };
        assert_eq!(parts(1_767_225_601), ((2026, 1, 1), (0, 0, 0)));
        assert_eq!(parts(1_796_073_040), ((2026, 11, 30), (21, 10, 40)));
        assert_eq!(parts(0), ((1980, 1, 1), (0, 0, 0)));
        assert_eq!(parts(i64::MIN), ((1980, 1, 1), (0, 0, 0)));
        assert_eq!(parts(i64::MAX), ((2107, 12, 31), (23, 59, 58)));
    }

    #[test]
    fn entries_can_be_written_in_any_order() {
        let in_order =
            written(Method::Stored, &[("a", false, b"one"), ("b", true, b"two!"), ("c", false, b"")]);
        let mut file = tempfile::tempfile().unwrap();
        let mut writer = Writer::new(&file, Method::Stored, Stamp::of(1_767_225_601));
        let second = room("a", 3);
        let end = writer.add(second, "b", true, &mut &b"two!"[..]).unwrap();
        assert_eq!(writer.add(0, "a", false, &mut &b"one"[..]).unwrap(), second);
        let end = writer.add(end, "c", false, &mut &b""[..]).unwrap();
        writer.finish(end).unwrap();
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, in_order);
    }

    proptest::proptest! {
        #[test]
        fn another_reader_gets_back_what_was_written(
            contents in proptest::collection::vec(proptest::collection::vec(0_u8..4, 0..5000), 1..6),
            deflated in proptest::bool::ANY,
        ) {
            let method = if deflated { Method::Deflated } else { Method::Stored };
            let names: Vec<String> = (0..contents.len()).map(|number| format!("folder/{number}")).collect();
            let entries: Vec<_> = names.iter().zip(&contents).map(|(n, c)| (n.as_str(), c.len() % 2 == 0, &c[..])).collect();
            let bytes = written(method, &entries);
            proptest::prop_assert_eq!(&bytes, &written(method, &entries), "the same bytes again");
            let mut archive = zip::ZipArchive::new(io::Cursor::new(bytes)).unwrap();
            proptest::prop_assert_eq!(archive.len(), entries.len());
            for (index, (name, executable, content)) in entries.iter().enumerate() {
                let mut entry = archive.by_index(index).unwrap();
                proptest::prop_assert_eq!(entry.name().unwrap(), *name);
                proptest::prop_assert_eq!(entry.unix_mode(), Some(if *executable { 0o100_755 } else { 0o100_644 }));
                let mut read = Vec::new();
                entry.read_to_end(&mut read).unwrap();
                proptest::prop_assert_eq!(&read[..], *content);
            }
        }
    }
}
