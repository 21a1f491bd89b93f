//! The write log of a block device, as QEMU's `blklogwrites` driver writes it: one sector that says how many entries
//! there are, then the entries, each a sector with its header and the data that was written.
//!
//! (The format is that of the kernel's `dm-log-writes`: all numbers little-endian; header of the log: magic, version,
//! number of entries as u64, sector size as u32; of an entry: sector, number of sectors, flags, length of inline data,
//! all u64.)

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    /// Where on the device, in bytes.
    pub at: u64,
    /// What; of a discard, zeros.
    pub bytes: Vec<u8>,
}

/// What reached the device at once.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What a power cut can lose until the next flush.
    pub write: Option<Write>,
    /// Everything up to here is on the disk.
    pub flush: bool,
}

/// How many entries were in the log at the last flush.
pub fn flushed(log: &Path) -> usize {
    let mut head = [0; 24];
    match File::open(log).unwrap().read_exact_at(&mut head, 0) {
        Err(_) => 0,
        Ok(()) => usize::try_from(number(&head[16..24])).unwrap(),
    }
}

/// Reads the whole log. Its device must be closed.
pub fn read(log: &Path) -> Vec<Entry> {
    let bytes = std::fs::read(log).unwrap();
    assert_eq!(number(&bytes[..8]), MAGIC, "{} is no write log", log.display());
    assert_eq!(number(&bytes[8..16]), 1, "a version of the write log that is not known");
    let count = number(&bytes[16..24]);
    let sector = u64::from(u32::from_le_bytes(bytes[24..28].try_into().unwrap()));
    let mut at = usize::try_from(sector).unwrap();
    let mut entries = Vec::new();
    for _ in 0..count {
        let header = &bytes[at..at + 32];
        at += usize::try_from(sector).unwrap();
        let (start, sectors, flags) = (number(&header[..8]), number(&header[8..16]), number(&header[16..24]));
        let length = usize::try_from(sectors * sector).unwrap();
        let write = if length == 0 {
            None
        } else if flags & DISCARD != 0 {
            Some(Write { at: start * sector, bytes: vec![0; length] })
        } else {
            let data = bytes[at..at + length].to_vec();
            at += length;
            Some(Write { at: start * sector, bytes: data })
        };
        entries.push(Entry { write, flush: flags & (FLUSH | FUA) != 0 });
    }
    entries
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}
