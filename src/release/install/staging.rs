//! The files of a release, written beside the place where they will lie, and read back.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use super::source::Source;
use super::{INSTALL_NOT_AS_WRITTEN, Observer, PARALLEL_FROM_BYTES, Step};
use crate::digest::{self, Hasher};
use crate::error::Error;
use crate::platform::{self, FileView};
use crate::release::metadata::METADATA_FILE;
use crate::release::{ReleaseError, fault, verify};

/// How much is read back at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// Writes every file of a source into a new private folder: exclusively, with the rights that the metadata pin, and
/// on the disk with the folders around it before this returns. What was written is read back and compared. Gives
/// how many files were marked as coming from elsewhere.
pub(super) fn write(folder: &Path, source: &mut Source, observer: &mut Observer<'_>) -> Result<usize, Error> {
    let contents = source.contents.clone();
    observer.begin(Step::Write, contents.total_bytes());
    let mut quarantined = 0;
    let mut folders = BTreeSet::from([folder.to_path_buf()]);
    for (name, record) in &contents.metadata.files {
        fault::point("install-file");
        let path = verify::path_in(folder, name);
        let ancestors = path.ancestors().skip(1).take_while(|ancestor| ancestor.starts_with(folder));
        folders.extend(ancestors.map(Path::to_path_buf));
        if let Some(parent) = path.parent() {
            platform::create_private_dir(parent)?;
        }
        let file = StagedFile { path: &path, is_program: record.is_executable() };
        let copy = |sink: &mut Sink<'_>| source.copy(name, |piece| sink(piece));
        let (sha256, marked) = file.write(record.bytes, copy, observer)?;
        quarantined += usize::from(marked);
        require_same(name, &sha256, &record.sha256)?;
    }
    let path = folder.join(METADATA_FILE);
    let file = StagedFile { path: &path, is_program: false };
    let bytes = &contents.metadata_bytes;
    let (sha256, marked) = file.write(bytes.len() as u64, |sink| sink(bytes), observer)?;
    quarantined += usize::from(marked);
    require_same(METADATA_FILE, &sha256, &contents.metadata_sha256())?;
    verify::shape_of_folder(folder, &contents.metadata)
        .map_err(|why| Error::new(&INSTALL_NOT_AS_WRITTEN, why))?;
    // The deepest first: a name is on the disk before the folder that leads to it.
    let mut folders: Vec<PathBuf> = folders.into_iter().collect();
    folders.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for path in folders {
        platform::sync_dir(&path)?;
    }
    Ok(quarantined)
}

type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), Error> + 'a;

struct StagedFile<'a> {
    path: &'a Path,
    is_program: bool,
}

impl StagedFile<'_> {
    /// Writes the file and gives the hash of what is read back, and whether a mark was taken off it.
    fn write(
        &self,
        bytes: u64,
        copy: impl FnOnce(&mut Sink<'_>) -> Result<(), Error>,
        observer: &mut Observer<'_>,
    ) -> Result<(String, bool), Error> {
        let file = platform::create_staged(self.path).map_err(self.failed())?;
        if bytes < PARALLEL_FROM_BYTES {
            copy(&mut |piece| {
                (&file).write_all(piece).map_err(self.failed())?;
                observer.advance(piece.len() as u64)
            })?;
            let marked = self.finish(&file)?;
            let (sha256, _) = digest::of_reader(FileView::new(Arc::new(file)))
                .map_err(ReleaseError::io("cannot read back", self.path))?;
            return Ok((sha256, marked));
        }
        // A handle of its own, since on some systems reading would move the place where the other one writes.
        let again =
            platform::open_no_link(self.path).map_err(ReleaseError::io("cannot read back", self.path))?;
        let (sender, receiver) = channel();
        std::thread::scope(|scope| {
            let reading = std::thread::Builder::new()
                .name("read-back".into())
                .spawn_scoped(scope, || read_back(&again, receiver));
            let mut written = 0;
            copy(&mut |piece| {
                (&file).write_all(piece).map_err(self.failed())?;
                written += piece.len() as u64;
                // If nobody listens it is read back below.
                let _ = sender.send(written);
                observer.advance(piece.len() as u64)
            })?;
            drop(sender);
            let marked = self.finish(&file)?;
            let read = match reading {
                Ok(thread) => thread.join().ok(),
                Err(_) => None,
            };
            let sha256 = read
                .unwrap_or_else(|| digest::of_file(self.path).map(|(sha256, _)| sha256))
                .map_err(ReleaseError::io("cannot read back", self.path))?;
            Ok((sha256, marked))
        })
    }

    fn finish(&self, file: &File) -> Result<bool, Error> {
        platform::mark_executable(file, self.is_program).map_err(self.failed())?;
        let marked = platform::clear_quarantine(file).map_err(self.failed())?;
        file.sync_all().map_err(self.failed())?;
        Ok(marked)
    }

    fn failed(&self) -> impl Fn(std::io::Error) -> Error {
        |error| platform::write_error(self.path, error).into()
    }
}

/// Hashes a file behind the one who writes it: up to each place that it is told.
fn read_back(mut file: &File, up_to: Receiver<u64>) -> std::io::Result<String> {
    let mut hasher = Hasher::default();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    for end in up_to {
        while at < end {
            let wanted = piece.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            match file.read(&mut piece[..wanted]) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    hasher.update(&piece[..count]);
                    at += count as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(hasher.finish())
}

fn require_same(name: &str, found: &str, expected: &str) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    let message = format!("{name} was read back with the SHA-256 {found}, expected is {expected}");
    Err(Error::new(&INSTALL_NOT_AS_WRITTEN, message))
}
