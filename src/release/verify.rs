//! Whether an installed release is what its metadata pins: judged by hash, never by presence.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::metadata::{MAX_BYTES, METADATA_FILE, Metadata};
use super::{Layout, ReleaseError, ReleaseId};
use crate::digest;
use crate::platform;

/// A release that was read and found whole.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Its id.
    pub id: ReleaseId,
    /// Its metadata.
    pub metadata: Metadata,
    /// SHA-256 of its metadata file.
    pub metadata_sha256: String,
}

/// Reads only the metadata of an installed release.
pub fn metadata(layout: &Layout, id: &ReleaseId) -> Result<Verified, ReleaseError> {
    let folder = layout.release(id);
    if !folder.is_dir() {
        return Err(ReleaseError::NotInstalled { id: id.to_string(), root: layout.root().to_path_buf() });
    }
    let found =
        metadata_of_folder(&folder).map_err(|why| ReleaseError::Damaged { id: id.to_string(), why })?;
    let (metadata, metadata_sha256) = found;
    match metadata.id() {
        Ok(own) if own == *id => Ok(Verified { id: own, metadata, metadata_sha256 }),
        _ => Err(ReleaseError::Damaged {
            id: id.to_string(),
            why: "its metadata is of another release".into(),
        }),
    }
}

/// Hashes every file of an installed release.
pub fn release(layout: &Layout, id: &ReleaseId) -> Result<Verified, ReleaseError> {
    let verified = metadata(layout, id)?;
    files_of_folder(&layout.release(id), &verified.metadata)
        .map_err(|why| ReleaseError::Damaged { id: id.to_string(), why })?;
    Ok(verified)
}

/// The metadata of a folder that holds a release, and its SHA-256.
fn metadata_of_folder(folder: &Path) -> Result<(Metadata, String), String> {
    let path = folder.join(METADATA_FILE);
    let mut bytes = Vec::new();
    platform::open_no_link(&path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("{METADATA_FILE}: {error}"))?;
    let metadata = Metadata::parse(&bytes).map_err(|error| error.to_string())?;
    Ok((metadata, digest::of_bytes(&bytes)))
}

/// Compares a folder with what metadata pin: the set of files, their kinds, sizes, hashes and whether they are
/// programs. Gives the first difference in words.
fn files_of_folder(folder: &Path, metadata: &Metadata) -> Result<(), String> {
    shape_of_folder(folder, metadata)?;
    for (name, record) in &metadata.files {
        let (sha256, _) = platform::open_no_link(&path_in(folder, name))
            .and_then(digest::of_reader)
            .map_err(|error| format!("{name}: {error}"))?;
        if sha256 != record.sha256 {
            return Err(format!("{name} has other content"));
        }
    }
    Ok(())
}

/// The same without reading any file.
pub fn shape_of_folder(folder: &Path, metadata: &Metadata) -> Result<(), String> {
    let mut found = BTreeSet::new();
    for entry in walkdir::WalkDir::new(folder).min_depth(1).sort_by_file_name() {
        let entry = entry.map_err(|error| error.to_string())?;
        if entry.file_type().is_dir() {
            continue;
        }
        let name = name_in(folder, entry.path());
        if !entry.file_type().is_file() {
            return Err(format!("{name} is neither a file nor a folder"));
        }
        if name != METADATA_FILE && !metadata.files.contains_key(&name) {
            return Err(format!("{name} does not belong to it"));
        }
        found.insert(name);
    }
    for (name, record) in &metadata.files {
        if !found.contains(name) {
            return Err(format!("{name} is missing"));
        }
        let path = path_in(folder, name);
        let length = std::fs::symlink_metadata(&path).map_err(|error| format!("{name}: {error}"))?.len();
        if length != record.bytes {
            return Err(format!("{name} has {length} bytes, not {}", record.bytes));
        }
        if let Some(mode) = platform::mode_of(&path)
            && (mode & 0o100 != 0) != record.is_executable()
        {
            return Err(format!("{name} has mode {mode:o}, pinned is {}", record.mode));
        }
    }
    Ok(())
}

/// The path of a pinned file in a folder.
pub(super) fn path_in(folder: &Path, name: &str) -> PathBuf {
    name.split('/').fold(folder.to_path_buf(), |path, part| path.join(part))
}

/// The name under which a file in a folder would be pinned.
pub(super) fn name_in(folder: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(folder).unwrap_or(path);
    let parts: Vec<_> = inside.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}
