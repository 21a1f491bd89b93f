//! A finished archive, read again from the disk and held to what it was meant to be. Nothing that the writer
//! remembers is believed: structure by the strict reader of this room, content by an independent one.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek};

use super::contents::{Contents, Watched};
use super::manifest;
use super::reader;
use super::writer::Method;
use crate::digest;
use crate::release::metadata::{MANIFEST_FILE, METADATA_FILE, Metadata};
use crate::release::transaction::Interruption;

/// What readers of the format search the bytes of a whole file for, to find a signature that was appended: nothing that
/// is stored may hold it. Written backward, so that this program can be packaged.
const SIGNATURE_BACKWARD: &[u8] = b"_GIS_BPCM";

/// Judges an archive: names, order, kinds, times, and every content by its hash.
pub fn archive(
    mut file: &File,
    contents: &Contents,
    meant: &Metadata,
    method: Method,
    interruption: &Interruption,
) -> Result<(), String> {
    let entries = reader::entries(file)?;
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    if names != contents.order() {
        return Err("its entries are not the ones that were meant".into());
    }
    if let Some(entry) =
        entries.iter().find(|entry| entry.stamp != contents.stamp() || entry.method != method)
    {
        return Err(format!("{} has another time or is kept in another way", entry.name));
    }
    file.rewind().map_err(|error| error.to_string())?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| error.to_string())?;
    if archive.len() != entries.len() {
        return Err("two readers see different numbers of entries".into());
    }
    let mut manifest = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let named = |why: String| format!("{}: {why}", entry.name);
        let mut read = archive.by_index(index).map_err(|error| named(error.to_string()))?;
        let name = read.name().map_err(|error| named(error.to_string()))?.into_owned();
        let mode = if entry.executable { 0o100_755 } else { 0o100_644 };
        if (&name, read.size(), read.unix_mode()) != (&entry.name, entry.bytes, Some(mode)) {
            return Err(named("two readers see different things".into()));
        }
        if entry.name == METADATA_FILE || entry.name == MANIFEST_FILE {
            let mut bytes = Vec::new();
            read.read_to_end(&mut bytes).map_err(|error| named(error.to_string()))?;
            if entry.name == METADATA_FILE {
                let found = Metadata::parse(&bytes).map_err(|error| error.to_string())?;
                if found != *meant || entry.executable {
                    return Err(named("it says something else".into()));
                }
                continue;
            }
            manifest.clone_from(&bytes);
            compare(meant, entry, (digest::of_bytes(&bytes), bytes.len() as u64)).map_err(named)?;
        } else {
            let mut watched = Searched::new(Watched { inner: read, interruption });
            let found = if method == Method::Stored && entry.name == meant.runtime {
                // What is pinned was read back from the archive; that it is what the program was, the checksum tells,
                // which the reader compares.
                let bytes =
                    io::copy(&mut watched, &mut io::sink()).map_err(|error| named(error.to_string()))?;
                let pinned = meant.runtime_record().map_err(|error| error.to_string())?;
                (pinned.sha256.clone(), bytes)
            } else {
                digest::of_reader(&mut watched).map_err(|error| named(error.to_string()))?
            };
            if method == Method::Stored && watched.found {
                return Err(named("its bytes hold what readers take for a signature".into()));
            }
            compare(meant, entry, found).map_err(named)?;
        }
    }
    let listed: BTreeSet<&str> = names.iter().copied().filter(|name| *name != METADATA_FILE).collect();
    if !meant.files.keys().map(String::as_str).eq(listed.iter().copied()) {
        return Err("its metadata name other files than it has".into());
    }
    let runtime = meant.runtime_record().map_err(|error| error.to_string())?;
    manifest::check(&manifest, &contents.facts(&runtime.sha256), &names.iter().copied().collect())
}

fn compare(meant: &Metadata, entry: &reader::Entry, found: (String, u64)) -> Result<(), String> {
    match meant.files.get(&entry.name) {
        None => Err("the metadata do not pin it".into()),
        Some(record) if (&record.sha256, record.bytes) != (&found.0, found.1) => {
            Err("it has other content".into())
        }
        Some(record) if record.is_executable() != entry.executable => Err("it has another mode".into()),
        Some(_) => Ok(()),
    }
}

/// The digest and the length of the whole file.
pub fn digest_of_all(mut file: &File, interruption: &Interruption) -> Result<(String, u64), String> {
    file.rewind()
        .and_then(|()| digest::of_reader(Watched { inner: file, interruption }))
        .map_err(|error| error.to_string())
}

/// A reader that looks for bytes in what it gives.
struct Searched<R> {
    inner: R,
    finder: memchr::memmem::Finder<'static>,
    tail: Vec<u8>,
    found: bool,
}

impl<R> Searched<R> {
    fn new(inner: R) -> Self {
        let marker: Vec<u8> = SIGNATURE_BACKWARD.iter().rev().copied().collect();
        let finder = memchr::memmem::Finder::new(&marker).into_owned();
        Self { inner, finder, tail: Vec::new(), found: false }
    }
}

impl<R: Read> Read for Searched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let piece = &buffer[..count];
        let keep = self.finder.needle().len() - 1;
        // The end of the last piece with the beginning of this one.
        self.tail.extend_from_slice(&piece[..count.min(keep)]);
        self.found |= self.finder.find(&self.tail).is_some() || self.finder.find(piece).is_some();
        if count >= keep {
            self.tail.clear();
            self.tail.extend_from_slice(&piece[count - keep..]);
        } else {
            let extra = self.tail.len().saturating_sub(keep);
            self.tail.drain(..extra);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn what_looks_like_a_signature_is_found_wherever_it_is_cut() {
        struct Pieces<'a>(&'a [u8], usize);
        impl Read for Pieces<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let count = self.1.min(self.0.len()).min(buffer.len());
                buffer[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let marker: Vec<u8> = SIGNATURE_BACKWARD.iter().rev().copied().collect();
        for (content, wanted) in
            [([&b"0123456"[..], &marker, b"789"].concat(), true), (marker[1..].repeat(9), false)]
        {
            for size in 1..20 {
                let mut searched = Searched::new(Pieces(&content, size));
                digest::of_reader(&mut searched).unwrap();
                assert_eq!(searched.found, wanted, "in pieces of {size}");
            }
        }
    }
}
