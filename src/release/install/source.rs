//! Where a release is installed from. Three kinds, judged alike before anything is written.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{BUNDLE_HASH_MISMATCH, BUNDLE_NOT_FOUND, Observer, PARALLEL_FROM_BYTES, Step, oci};
use crate::digest::Hasher;
use crate::error::Error;
use crate::platform::{self, FileView};
use crate::release::archive::{
    self, Archive, ArchiveError, BUNDLE_FILE_DIFFERS, BUNDLE_METADATA_MISSING, BUNDLE_NOT_A_FILE, Contents,
    check_manifest, files_differ,
};
use crate::release::metadata::{self, MANIFEST_FILE, METADATA_FILE};
use crate::release::{ReleaseError, verify};

/// How much is read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// A bundle whose structure, names, sizes and metadata passed.
pub(super) struct Source {
    pub(super) kind: &'static str,
    /// SHA-256 of the bundle; none of one that is unpacked, or as long as it was not hashed.
    pub(super) bundle_sha256: Option<String>,
    pub(super) contents: Contents,
    from: From,
}

enum From {
    Archive { archive: Archive<FileView>, file: Arc<File> },
    Folder(PathBuf),
}

impl Source {
    /// Looks at what a path is and judges all of it that can be judged without reading every file. An expected
    /// SHA-256 is compared before anything else is looked at.
    pub(super) fn open(
        path: &Path,
        expected: Option<&str>,
        observer: &mut Observer<'_>,
    ) -> Result<Self, Error> {
        let found = std::fs::metadata(path).map_err(|error| {
            Error::new(&BUNDLE_NOT_FOUND, format!("{} cannot be read: {error}", path.display()))
        })?;
        if found.is_file() {
            let file = File::open(path).map_err(ReleaseError::io("cannot read", path))?;
            return Self::archive("bundle", file, path, expected, observer);
        }
        if path.join(oci::MARKER).exists() {
            let blob = oci::bundle(path)?;
            if let Some(expected) = expected.filter(|expected| *expected != blob.sha256) {
                return Err(hash_mismatch(path, expected, &blob.sha256));
            }
            return Self::archive("oci-layout", blob.file, &blob.path, Some(&blob.sha256), observer);
        }
        if !found.is_dir() {
            let what = format!("{} is neither a file nor a folder", path.display());
            return Err(Error::new(&BUNDLE_NOT_FOUND, what));
        }
        match expected {
            None => Self::folder(path),
            Some(_) => Err(Error::new(
                &BUNDLE_HASH_MISMATCH,
                format!("{} is unpacked, so it has no SHA-256 of a bundle", path.display()),
            )),
        }
    }

    fn archive(
        kind: &'static str,
        file: File,
        path: &Path,
        expected: Option<&str>,
        observer: &mut Observer<'_>,
    ) -> Result<Self, Error> {
        let file = Arc::new(file);
        let mut bundle_sha256 = None;
        if let Some(expected) = expected {
            let length = file.metadata().map_err(ReleaseError::io("cannot read", path))?.len();
            observer.begin(Step::Hash, length);
            let found = hash(&file, path, |bytes| observer.advance(bytes))?;
            if found != expected {
                return Err(hash_mismatch(path, expected, &found));
            }
            bundle_sha256 = Some(found);
        }
        let mut archive = Archive::open(FileView::new(Arc::clone(&file)))?;
        let contents = Contents::of(&mut archive)?;
        Ok(Self { kind, bundle_sha256, contents, from: From::Archive { archive, file } })
    }

    fn folder(path: &Path) -> Result<Self, Error> {
        let folder = std::fs::canonicalize(path).map_err(ReleaseError::io("cannot read", path))?;
        let contents = Contents::parse(read_small(&folder, METADATA_FILE, metadata::MAX_BYTES)?)?;
        let mut found = Vec::new();
        for entry in walkdir::WalkDir::new(&folder).min_depth(1) {
            let entry = entry.map_err(|error| ReleaseError::io("cannot list", &folder)(error.into()))?;
            if entry.file_type().is_dir() {
                continue;
            }
            let name = verify::name_in(&folder, entry.path());
            if !entry.file_type().is_file() {
                let message = format!("{name:?} is neither a file nor a folder");
                return Err(ArchiveError::new(&BUNDLE_NOT_A_FILE, message).into());
            }
            let size = entry
                .metadata()
                .map_err(|error| ReleaseError::io("cannot read", entry.path())(error.into()))?;
            found.push((name, size.len()));
            // What is unlisted is refused below, by its name.
            if found.len() > archive::MAX_FILES {
                break;
            }
        }
        files_differ(found.iter().map(|(name, size)| (name.as_str(), *size)), &contents.metadata)?;
        check_manifest(
            &read_small(&folder, MANIFEST_FILE, archive::MAX_MANIFEST_BYTES)?,
            &contents.metadata,
        )?;
        Ok(Self { kind: "folder", bundle_sha256: None, contents, from: From::Folder(folder) })
    }

    /// Reads everything: each file must be what it is pinned to be, and a bundle gets its own hash. Writes nothing.
    pub(super) fn verify(&mut self, path: &Path, observer: &mut Observer<'_>) -> Result<(), Error> {
        let Self { contents, from, bundle_sha256, .. } = self;
        observer.begin(Step::Verify, contents.total_bytes());
        match from {
            From::Archive { archive, file } if bundle_sha256.is_none() => {
                *bundle_sha256 = Some(both_hashes(archive, file, path, contents, observer)?);
                Ok(())
            }
            From::Archive { archive, .. } => {
                archive::verify(archive, contents, |bytes| observer.advance(bytes))
            }
            From::Folder(folder) => {
                for (name, record) in &contents.metadata.files {
                    let mut hasher = Hasher::default();
                    copy_file(folder, name, record.bytes, |piece| {
                        hasher.update(piece);
                        observer.advance(piece.len() as u64)
                    })?;
                    if hasher.finish() != record.sha256 {
                        let message = format!("{name:?} has another SHA-256 than its metadata pin");
                        return Err(ArchiveError::new(&BUNDLE_FILE_DIFFERS, message).into());
                    }
                }
                Ok(())
            }
        }
    }

    /// Gives the content of one pinned file in pieces.
    pub(super) fn copy(
        &mut self,
        name: &str,
        sink: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match &mut self.from {
            From::Archive { archive, .. } => {
                // The sets of names were compared.
                let position = archive.position(name).unwrap_or_default();
                archive.copy(position, sink)
            }
            From::Folder(folder) => {
                let bytes = self.contents.metadata.files.get(name).map_or(0, |record| record.bytes);
                copy_file(folder, name, bytes, sink)
            }
        }
    }
}

/// The hash of a bundle, and the verdict on its files. Of a large one the two are found at once: what one thread
/// reads the other finds in the memory of the system.
fn both_hashes(
    archive: &mut Archive<FileView>,
    file: &Arc<File>,
    path: &Path,
    contents: &Contents,
    observer: &mut Observer<'_>,
) -> Result<String, Error> {
    let length = file.metadata().map_err(ReleaseError::io("cannot read", path))?.len();
    if length < PARALLEL_FROM_BYTES {
        archive::verify(archive, contents, |bytes| observer.advance(bytes))?;
        return hash(file, path, |_| Ok(()));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let whole = || {
            hash(file, path, |_| {
                if stop.load(Ordering::Relaxed) { Err(ReleaseError::Interrupted.into()) } else { Ok(()) }
            })
        };
        let hashing = std::thread::Builder::new().name("bundle-hash".into()).spawn_scoped(scope, whole);
        let verified = archive::verify(archive, contents, |bytes| observer.advance(bytes));
        stop.store(verified.is_err(), Ordering::Relaxed);
        let hashed = match hashing {
            Ok(thread) => thread.join().ok(),
            // Where no thread can be had it takes longer.
            Err(_) => None,
        };
        verified?;
        hashed.unwrap_or_else(whole)
    })
}

fn hash(
    file: &Arc<File>,
    path: &Path,
    mut progress: impl FnMut(u64) -> Result<(), Error>,
) -> Result<String, Error> {
    let mut view = FileView::new(Arc::clone(file));
    let mut hasher = Hasher::default();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match view.read(&mut piece) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => {
                hasher.update(&piece[..count]);
                progress(count as u64)?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReleaseError::io("cannot read", path)(error).into()),
        }
    }
}

fn read_small(folder: &Path, name: &str, limit: u64) -> Result<Vec<u8>, Error> {
    let path = folder.join(name);
    let found = std::fs::symlink_metadata(&path);
    if !found.is_ok_and(|found| found.is_file()) {
        let message = format!("{} holds no {name}", folder.display());
        return Err(ArchiveError::new(&BUNDLE_METADATA_MISSING, message).into());
    }
    let mut bytes = Vec::new();
    platform::open_no_link(&path)
        .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
        .map_err(ReleaseError::io("cannot read", &path))?;
    if bytes.len() as u64 > limit {
        return Err(ArchiveError::new(&BUNDLE_FILE_DIFFERS, format!("{name} is too large")).into());
    }
    Ok(bytes)
}

/// Gives a file of a folder, which must have exactly so many bytes.
fn copy_file(
    folder: &Path,
    name: &str,
    bytes: u64,
    mut sink: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let path = verify::path_in(folder, name);
    let failed = |error| ReleaseError::io("cannot read", &path)(error);
    let mut file = platform::open_no_link(&path).map_err(failed)?;
    let mut left = bytes;
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(bytes).unwrap_or(PIECE_BYTES)).max(1)];
    while left > 0 {
        let wanted = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match file.read(&mut piece[..wanted]) {
            Ok(0) => break,
            Ok(count) => {
                sink(&piece[..count])?;
                left -= count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error).into()),
        }
    }
    let end = file.seek(SeekFrom::End(0)).map_err(failed)?;
    if left == 0 && end == bytes {
        return Ok(());
    }
    let message = format!("{name:?} changed its size while it was read");
    Err(ArchiveError::new(&BUNDLE_FILE_DIFFERS, message).into())
}

fn hash_mismatch(path: &Path, expected: &str, found: &str) -> Error {
    let message = format!("{} has the SHA-256 {found}, expected is {expected}", path.display());
    Error::new(&BUNDLE_HASH_MISMATCH, message)
}
