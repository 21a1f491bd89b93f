//! Files of a folder that is not in place yet: made exclusively, private, and on the disk before they are used.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use super::os;

/// Makes a file that must be new, also no link, for the owner alone; it can be read back.
pub fn create_staged(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    os::private(&mut options);
    options.open(path)
}

/// Says whether a staged file is a program; it stays the owner's alone.
pub fn mark_executable(file: &File, is_program: bool) -> io::Result<()> {
    os::set_mode(file, if is_program { 0o700 } else { 0o600 })
}

/// Takes the mark "came from elsewhere" off a file, with which macOS refuses to start a program or asks for
/// leave. Whether there was one; elsewhere there never is.
pub fn clear_quarantine(file: &File) -> io::Result<bool> {
    os::clear_quarantine(file)
}

/// Makes a symbolic link that leads to `target`, which need not exist. On Windows one to a file; it needs the
/// developer mode or the right to make links.
pub fn make_link(target: &Path, at: &Path) -> io::Result<()> {
    os::make_link(target, at)
}

/// Puts a symbolic link in the place of a file or link, in one step.
pub fn replace_by_link(at: &Path, target: &Path) -> io::Result<()> {
    let folder = at.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let made = tempfile::Builder::new()
        .prefix(".ab-")
        .suffix(".tmp")
        .make_in(folder, |path| make_link(target, path))?;
    made.into_temp_path().persist(at).map_err(|error| error.error)
}

/// Says whether a file is a program: for whoever may read it, and nobody else. No effect on Windows.
pub fn set_executable(path: &Path, is_program: bool) -> io::Result<()> {
    let found = std::fs::symlink_metadata(path)?;
    let Some(mode) = os::mode_of(&found) else { return Ok(()) };
    let wanted = if is_program { mode | (mode & 0o444) >> 2 } else { mode & !0o111 };
    if wanted == mode { Ok(()) } else { os::set_mode(&File::open(path)?, wanted) }
}

/// How many bytes this user can still write to the file system of a folder; none where the system does not tell.
pub fn free_space(folder: &Path) -> Option<u64> {
    os::free_space(folder)
}

/// A file that is read at a place of its own, so that two readers of one file do not move each other.
#[derive(Clone, Debug)]
pub struct FileView {
    file: Arc<File>,
    at: u64,
}

impl FileView {
    /// A reader from the first byte on.
    pub fn new(file: Arc<File>) -> Self {
        Self { file, at: 0 }
    }
}

impl Read for FileView {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = os::read_at(&self.file, into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for FileView {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.at, by),
            SeekFrom::End(by) => (self.file.metadata()?.len(), by),
        };
        self.at = base.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_staged_file_is_private_and_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let file = create_staged(&path).unwrap();
        mark_executable(&file, true).unwrap();
        if let Some(mode) = super::super::mode_of(&path) {
            assert_eq!(mode, 0o700);
        }
        assert!(!clear_quarantine(&file).unwrap());
        assert_eq!(create_staged(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn two_views_of_a_file_do_not_move_each_other() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcdef").unwrap();
        let mut one = FileView::new(Arc::new(file));
        let mut two = one.clone();
        let mut piece = [0; 2];
        one.read_exact(&mut piece).unwrap();
        two.seek(SeekFrom::End(-1)).unwrap();
        assert_eq!(&piece, b"ab");
        let mut rest = String::new();
        one.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "cdef");
        two.read_exact(&mut piece[..1]).unwrap();
        assert_eq!(piece[0], b'f');
        assert!(two.seek(SeekFrom::Current(-10)).is_err());
    }

    #[test]
    fn free_space_is_that_of_the_folder_s_disk() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_space(folder.path()).unwrap() > 0);
        assert_eq!(free_space(&folder.path().join("none")), None);
    }
}
