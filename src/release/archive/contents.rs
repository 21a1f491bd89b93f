//! What an archive holds against what the metadata in it pin.

use std::io::{Read, Seek};

use serde_json::Value;

use super::error::{
    ArchiveError, BUNDLE_FILE_DIFFERS, BUNDLE_FILE_MISSING, BUNDLE_FILE_UNLISTED, BUNDLE_IDENTITY_MISMATCH,
    BUNDLE_METADATA_MISSING,
};
use super::{Archive, MAX_FILES};
use crate::digest::{self, Hasher};
use crate::error::Error;
use crate::release::metadata::{self, MANIFEST_FILE, METADATA_FILE, Metadata};
use crate::release::{ReleaseId, journal};

/// Largest manifest that is read.
pub(in crate::release) const MAX_MANIFEST_BYTES: u64 = 1024 * 1024;
/// Under which key of `_meta` a manifest says what it was made from.
const IDENTITY: &str = "io.github.agent-bridge.release";

/// A bundle whose files are those that its metadata pin, as far as can be told without reading them.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Id of the release.
    pub id: ReleaseId,
    /// What it pins.
    pub metadata: Metadata,
    /// The file as it is in the bundle.
    pub metadata_bytes: Vec<u8>,
}

impl Contents {
    /// Reads the metadata and the manifest of an archive and compares its files with them: names, sizes, identity.
    pub fn of<R: Read + Seek>(archive: &mut Archive<R>) -> Result<Self, Error> {
        let position = archive.position(METADATA_FILE).ok_or_else(|| {
            ArchiveError::new(&BUNDLE_METADATA_MISSING, "it holds no release-metadata.json")
        })?;
        if archive.entries()[position].size > metadata::MAX_BYTES {
            return Err(ArchiveError::new(&BUNDLE_FILE_DIFFERS, "release-metadata.json is too large").into());
        }
        let contents = Self::parse(archive.read(position)?)?;
        let found = archive.entries().iter().map(|entry| (entry.name.as_str(), entry.size));
        files_differ(found, &contents.metadata)?;
        // It is pinned, so it is there, and its size is the pinned one.
        let position = archive.position(MANIFEST_FILE).unwrap_or_default();
        if archive.entries()[position].size > MAX_MANIFEST_BYTES {
            return Err(ArchiveError::new(&BUNDLE_FILE_DIFFERS, "manifest.json is too large").into());
        }
        check_manifest(&archive.read(position)?, &contents.metadata)?;
        Ok(contents)
    }

    pub(in crate::release) fn parse(metadata_bytes: Vec<u8>) -> Result<Self, Error> {
        let metadata = Metadata::parse(&metadata_bytes)?;
        Ok(Self { id: metadata.id()?, metadata, metadata_bytes })
    }

    /// SHA-256 of the metadata.
    pub fn metadata_sha256(&self) -> String {
        digest::of_bytes(&self.metadata_bytes)
    }

    /// Bytes of all files together.
    pub fn total_bytes(&self) -> u64 {
        let pinned: u64 = self.metadata.files.values().map(|record| record.bytes).sum();
        pinned + self.metadata_bytes.len() as u64
    }
}

/// Compares names and sizes with what metadata pin. The metadata file itself is not among the pinned ones.
pub(in crate::release) fn files_differ<'a>(
    found: impl Iterator<Item = (&'a str, u64)>,
    metadata: &Metadata,
) -> Result<(), ArchiveError> {
    let mut count = 0;
    for (name, size) in found.filter(|(name, _)| *name != METADATA_FILE) {
        count += 1;
        match metadata.files.get(name) {
            None => {
                return Err(ArchiveError::new(
                    &BUNDLE_FILE_UNLISTED,
                    format!("{name:?} is not among the files that its metadata pin"),
                ));
            }
            Some(record) if record.bytes != size => {
                let pinned = record.bytes;
                return Err(ArchiveError::new(
                    &BUNDLE_FILE_DIFFERS,
                    format!("{name:?} has {size} bytes, its metadata pin {pinned}"),
                ));
            }
            Some(_) => {}
        }
        if count > MAX_FILES {
            break;
        }
    }
    // Names are unique, so equal numbers mean equal sets.
    if count == metadata.files.len() {
        Ok(())
    } else {
        let message = format!("its metadata pin {} files, {count} are there", metadata.files.len());
        Err(ArchiveError::new(&BUNDLE_FILE_MISSING, message))
    }
}

/// Compares a manifest with the metadata that pin it.
pub(in crate::release) fn check_manifest(bytes: &[u8], metadata: &Metadata) -> Result<(), ArchiveError> {
    if digest::of_bytes(bytes) != metadata.manifest_sha256 {
        return Err(ArchiveError::new(&BUNDLE_FILE_DIFFERS, "manifest.json has another SHA-256 than pinned"));
    }
    let mismatch =
        |what: String| ArchiveError::new(&BUNDLE_IDENTITY_MISMATCH, format!("manifest.json {what}"));
    journal::refuse_duplicate_keys(bytes).map_err(|why| mismatch(format!("is not plain JSON: {why}")))?;
    let manifest: Value =
        serde_json::from_slice(bytes).map_err(|error| mismatch(format!("is not JSON: {error}")))?;
    let runtime = metadata.files.get(&metadata.runtime).map_or("", |record| record.sha256.as_str());
    let identity = format!("/_meta/{IDENTITY}");
    let expected = [
        ("/name", metadata.package.as_str()),
        ("/version", metadata.version.as_str()),
        ("/server/type", "binary"),
        ("/server/entry_point", metadata.runtime.as_str()),
        (&*format!("{identity}/git_sha"), metadata.git_sha.as_str()),
        (&*format!("{identity}/runtime_sha256"), runtime),
    ];
    for (pointer, expected) in expected {
        let found = manifest.pointer(pointer).and_then(Value::as_str);
        if found != Some(expected) {
            let key = pointer.trim_start_matches('/').replace('/', ".");
            return Err(mismatch(match found {
                None => format!("has no {key}"),
                Some(found) => {
                    let found: String = found.chars().take(100).collect();
                    format!("says {key} is {found:?}, its metadata say {expected:?}")
                }
            }));
        }
    }
    Ok(())
}

/// Reads every file of an archive and compares it with its pinned SHA-256. `progress` is told how many bytes were
/// read since the last time, and can stop it.
pub fn verify<R: Read + Seek>(
    archive: &mut Archive<R>,
    contents: &Contents,
    mut progress: impl FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    for index in 0..archive.entries().len() {
        let name = archive.entries()[index].name.clone();
        let Some(record) = contents.metadata.files.get(&name) else { continue };
        let mut hasher = Hasher::default();
        archive.copy(index, |piece| {
            hasher.update(piece);
            progress(piece.len() as u64)
        })?;
        if hasher.finish() != record.sha256 {
            let message = format!("{name:?} has another SHA-256 than its metadata pin");
            return Err(ArchiveError::new(&BUNDLE_FILE_DIFFERS, message).into());
        }
    }
    Ok(())
}
