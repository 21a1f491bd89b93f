//! The gate for bundles: everything about an archive is judged before anything of it is written.
//!
//! A bundle is a zip archive in the one form that this project's packer writes. Every byte of it belongs to
//! exactly one record, both descriptions of each file agree, and a second reader must find the same files.
//! Whatever two readers could see in two ways is refused by name.
//!
//! - [`Archive::open`]: structure, names, sizes;
//! - [`Contents::of`]: the files against the metadata in it;
//! - [`verify`]: every file against its pinned SHA-256.

mod contents;
mod error;
mod names;
mod records;

use std::io::{Read, Seek, SeekFrom};

use crate::error::Error;
pub use contents::{Contents, verify};
pub(in crate::release) use contents::{MAX_MANIFEST_BYTES, check_manifest, files_differ};
pub use error::{ArchiveError, CODES};
use error::{
    BUNDLE_CHECKSUM, BUNDLE_GAP, BUNDLE_OVERLAP, BUNDLE_PREFIX_BYTES, BUNDLE_READERS_DISAGREE,
    BUNDLE_SIZE_LIES, BUNDLE_STREAM_INVALID, BUNDLE_TOO_LARGE,
};
pub(in crate::release) use error::{BUNDLE_FILE_DIFFERS, BUNDLE_METADATA_MISSING, BUNDLE_NOT_A_FILE};
use records::Central;

/// Most entries.
pub const MAX_FILES: usize = 1024;
/// Largest file.
pub const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// Most bytes of all files together.
const MAX_TOTAL_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Largest directory: every entry with the longest name.
const MAX_DIRECTORY_BYTES: usize = MAX_FILES * (46 + 1024);
/// How much is read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// One file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path with slashes.
    pub name: String,
    /// Size of the file.
    pub size: u64,
    /// Size in the archive.
    pub compressed: u64,
    is_deflated: bool,
    crc32: u32,
    data: u64,
}

/// An archive whose structure, names and sizes passed.
#[derive(Debug)]
pub struct Archive<R> {
    reader: R,
    entries: Vec<Entry>,
}

impl<R: Read + Seek> Archive<R> {
    /// Judges the structure.
    pub fn open(mut reader: R) -> Result<Self, ArchiveError> {
        let length = reader.seek(SeekFrom::End(0)).map_err(ArchiveError::io)?;
        if length > MAX_TOTAL_BYTES {
            return Err(ArchiveError::new(&BUNDLE_TOO_LARGE, format!("it has {length} bytes")));
        }
        let head = bytes_at(&mut reader, 0, length.min(4))?;
        let tail_length = length.min(records::TAIL_BYTES);
        let tail = bytes_at(&mut reader, length - tail_length, tail_length)?;
        let end = records::end(&head, &tail, length)?;
        let directory = bytes_at(&mut reader, end.offset, end.bytes as u64)?;
        let centrals = records::directory(&directory, end.entries)?;

        let mut names = names::Names::default();
        let mut entries = Vec::with_capacity(centrals.len());
        let mut total = 0;
        for central in &centrals {
            let name = names::check(central.name, central.is_utf8())?;
            names.add(&name)?;
            total += central.size;
            if total > MAX_TOTAL_BYTES {
                return Err(ArchiveError::new(&BUNDLE_TOO_LARGE, "its files together are too large"));
            }
            entries.push(Entry {
                name,
                size: central.size,
                compressed: central.compressed,
                is_deflated: central.is_deflated(),
                crc32: central.crc32,
                data: central.offset + (records::LOCAL_BYTES + central.name.len()) as u64,
            });
        }
        for central in &centrals {
            if central.offset + records::LOCAL_BYTES as u64 <= end.offset {
                let header = bytes_at(&mut reader, central.offset, records::LOCAL_BYTES as u64)?;
                records::local_form(&header, central)?;
            }
        }
        every_byte_belongs_to_one(&centrals, &entries, end.offset)?;
        for (central, entry) in centrals.iter().zip(&entries) {
            let header = bytes_at(&mut reader, central.offset, entry.data - central.offset)?;
            let (header, name) = header.split_at(records::LOCAL_BYTES);
            records::local(header, name, central)?;
        }
        second_reader_agrees(&mut reader, &entries)?;
        Ok(Self { reader, entries })
    }

    /// Its files, in the order of its directory.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The place of a file in [`Self::entries`].
    pub fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name == name)
    }

    /// The content of a small file.
    pub fn read(&mut self, index: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.copy(index, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Gives the content of a file in pieces. Never more bytes than its entry says; that they are all of it and
    /// have its checksum is known only when this returns.
    pub fn copy(
        &mut self,
        index: usize,
        mut sink: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let entry = self.entries[index].clone();
        self.reader.seek(SeekFrom::Start(entry.data)).map_err(ArchiveError::io)?;
        let mut crc = crc32fast::Hasher::new();
        let mut checked = |piece: &[u8]| {
            crc.update(piece);
            sink(piece)
        };
        let mut raw = (&mut self.reader).take(entry.compressed);
        if entry.is_deflated {
            inflate(&mut raw, &entry, &mut checked)?;
        } else {
            let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(entry.size).unwrap_or(PIECE_BYTES))];
            while raw.limit() > 0 {
                let count = read_some(&mut raw, &mut piece)?;
                checked(&piece[..count])?;
            }
        }
        if crc.finalize() == entry.crc32 {
            Ok(())
        } else {
            let message = format!("{:?} does not have its checksum", entry.name);
            Err(ArchiveError::new(&BUNDLE_CHECKSUM, message).into())
        }
    }
}

/// Inflates an entry that must be exactly one stream of exactly the size that it says.
fn inflate(
    raw: &mut std::io::Take<impl Read>,
    entry: &Entry,
    sink: &mut impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let lies = || {
        let message = format!("{:?} has another size than its entry says", entry.name);
        ArchiveError::new(&BUNDLE_SIZE_LIES, message)
    };
    let damaged = |what: &str| {
        ArchiveError::new(&BUNDLE_STREAM_INVALID, format!("the stream of {:?} {what}", entry.name))
    };
    let mut inflater = flate2::Decompress::new(false);
    let mut input = vec![0; PIECE_BYTES / 4];
    let mut output = vec![0; PIECE_BYTES];
    let (mut start, mut end) = (0, 0);
    loop {
        if start == end && raw.limit() > 0 {
            (start, end) = (0, read_some(raw, &mut input)?);
        }
        let (in_before, out_before) = (inflater.total_in(), inflater.total_out());
        let status = inflater
            .decompress(&input[start..end], &mut output, flate2::FlushDecompress::None)
            .map_err(|_| damaged("is damaged"))?;
        // Both counts fit: neither buffer is larger.
        let consumed = (inflater.total_in() - in_before) as usize;
        let produced = (inflater.total_out() - out_before) as usize;
        start += consumed;
        if inflater.total_out() > entry.size {
            return Err(lies().into());
        }
        if produced > 0 {
            sink(&output[..produced])?;
        }
        match status {
            flate2::Status::StreamEnd => break,
            _ if consumed == 0 && produced == 0 => return Err(damaged("is cut off").into()),
            _ => {}
        }
    }
    if inflater.total_out() != entry.size {
        return Err(lies().into());
    }
    if start < end || raw.limit() > 0 {
        return Err(damaged("is followed by other bytes").into());
    }
    Ok(())
}

/// From the first byte to the directory each byte is part of exactly one entry.
fn every_byte_belongs_to_one(
    centrals: &[Central<'_>],
    entries: &[Entry],
    directory: u64,
) -> Result<(), ArchiveError> {
    let mut order: Vec<_> = centrals.iter().map(|central| central.offset).zip(entries).collect();
    order.sort_by_key(|(offset, _)| *offset);
    let mut expected = 0;
    for (offset, entry) in order {
        let refuse = |doc, what: &str| Err(ArchiveError::new(doc, format!("{:?} {what}", entry.name)));
        if offset < expected {
            return refuse(&BUNDLE_OVERLAP, "shares bytes with the entry before it");
        }
        if offset > expected && expected == 0 {
            return refuse(&BUNDLE_PREFIX_BYTES, "is the first, but does not begin at the first byte");
        }
        if offset > expected {
            return refuse(&BUNDLE_GAP, "does not begin where the entry before it ends");
        }
        expected = entry.data + entry.compressed;
        if expected > directory {
            return refuse(&BUNDLE_OVERLAP, "reaches into the directory");
        }
    }
    match expected {
        _ if expected == directory => Ok(()),
        0 => Err(ArchiveError::new(&BUNDLE_PREFIX_BYTES, "bytes lie before a directory without entries")),
        _ => Err(ArchiveError::new(&BUNDLE_GAP, "bytes lie between the last entry and the directory")),
    }
}

/// A reader that others use must find the same entries, to the byte.
fn second_reader_agrees(reader: &mut (impl Read + Seek), entries: &[Entry]) -> Result<(), ArchiveError> {
    let disagree = |what: String| ArchiveError::new(&BUNDLE_READERS_DISAGREE, what);
    let mut second =
        zip::ZipArchive::new(reader).map_err(|error| disagree(format!("a second reader: {error}")))?;
    if second.len() != entries.len() || second.offset() != 0 || !second.comment().is_empty() {
        return Err(disagree(format!("a second reader finds {} entries", second.len())));
    }
    for (index, entry) in entries.iter().enumerate() {
        let found = second
            .by_index_raw(index)
            .map_err(|error| disagree(format!("{:?}, to a second reader: {error}", entry.name)))?;
        let method =
            if entry.is_deflated { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
        let same = found.name_raw() == entry.name.as_bytes()
            && found.size() == entry.size
            && found.compressed_size() == entry.compressed
            && found.crc32() == entry.crc32
            && found.data_start() == Some(entry.data)
            && found.compression() == method
            && found.is_file();
        if !same {
            return Err(disagree(format!("a second reader sees {:?} in another way", entry.name)));
        }
    }
    Ok(())
}

fn bytes_at(reader: &mut (impl Read + Seek), offset: u64, length: u64) -> Result<Vec<u8>, ArchiveError> {
    // The caller knows that the length is small, so a file that lies about it costs nothing.
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    reader
        .seek(SeekFrom::Start(offset))
        .and_then(|_| reader.read_exact(&mut bytes))
        .map_err(ArchiveError::io)?;
    Ok(bytes)
}

/// At least one byte: an archive that ends before its directory does was changed meanwhile.
fn read_some(reader: &mut impl Read, into: &mut [u8]) -> Result<usize, ArchiveError> {
    loop {
        match reader.read(into) {
            Ok(0) => return Err(ArchiveError::io(std::io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ArchiveError::io(error)),
        }
    }
}
