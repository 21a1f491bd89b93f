//! Durable changes for transactions: every temporary name is given by the caller, so that what a killed
//! process left can be told from what is somebody else's.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::durable::{BUSY_BUDGET, folder_of, retry_while_busy, write_error};
use super::{PlatformError, os};

/// How [`replace_durable`] goes about it.
#[derive(Clone, Debug, Default)]
pub struct Replacement {
    /// Name of the temporary file beside the target.
    pub temporary: String,
    /// Unix permission bits of a file that is new. One that is there keeps its own, its owner and its
    /// extended attributes.
    pub mode_if_new: u32,
}

/// Replaces `path` by `bytes` as a whole; what identifies the file to others (permissions, owner, extended
/// attributes, on Windows the access list) stays. The folder must exist. A link is replaced, not followed.
///
/// Where the file is a mount point of its own (as in containers) it cannot be replaced; then it is overwritten
/// in place, which a power cut can tear: callers keep a copy.
pub fn replace_durable(path: &Path, bytes: &[u8], how: &Replacement) -> Result<(), PlatformError> {
    let folder = folder_of(path)?;
    let failed = |source: io::Error| write_error(path, source);
    let temporary = folder.join(&how.temporary);
    let made = (|| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        os::private(&mut options);
        let mut file = options.open(&temporary)?;
        file.write_all(bytes)?;
        match std::fs::symlink_metadata(path) {
            Ok(old) if old.is_file() => os::keep_identity(&file, path, &old)?,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => os::set_mode(&file, how.mode_if_new)?,
            Err(error) => return Err(error),
        }
        file.sync_all()
    })();
    if let Err(error) = made {
        let _ = std::fs::remove_file(&temporary);
        return Err(failed(error));
    }
    let moved = retry_while_busy(BUSY_BUDGET, os::is_busy, || os::replace_file(&temporary, path));
    if let Err(error) = moved {
        let in_place = os::is_mount_point(&error);
        let _ = std::fs::remove_file(&temporary);
        return match in_place {
            true => overwrite_durable(path, bytes),
            false if os::is_busy(&error) => {
                Err(PlatformError::Busy { path: path.to_path_buf(), source: error })
            }
            false => Err(failed(error)),
        };
    }
    super::sync_dir(&folder)
}

/// Writes the content of a file in place and cuts it to that length. Not atomic: for files with a checksum of
/// their own.
pub fn overwrite_durable(path: &Path, bytes: &[u8]) -> Result<(), PlatformError> {
    let folder = folder_of(path)?;
    let failed = |source: io::Error| write_error(path, source);
    let is_new = !path.exists();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    os::private(&mut options);
    let mut file = options.open(path).map_err(failed)?;
    file.write_all(bytes)
        .and_then(|()| file.set_len(bytes.len() as u64))
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    if is_new { super::sync_dir(&folder) } else { Ok(()) }
}

/// Makes what is there under a name survive a power cut, its absence too: for what a process that was cut off may
/// have written without waiting for the disk.
pub fn confirm_durable(path: &Path) -> Result<(), PlatformError> {
    match os::sync_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(write_error(path, error)),
        _ => {}
    }
    match path.parent() {
        Some(folder) if folder.is_dir() => super::sync_dir(folder),
        _ => Ok(()),
    }
}

/// Moves a file or a folder to a name that is free, within one file system.
pub fn move_durable(from: &Path, to: &Path) -> Result<(), PlatformError> {
    if std::fs::symlink_metadata(to).is_ok() {
        return Err(PlatformError::Exists { path: to.to_path_buf() });
    }
    retry_while_busy(BUSY_BUDGET, os::is_busy, || std::fs::rename(from, to))
        .map_err(|error| write_error(to, error))?;
    for folder in [to.parent(), from.parent()].into_iter().flatten() {
        super::sync_dir(folder)?;
    }
    Ok(())
}

/// Removes a file or a folder with all that is in it, also what is read-only. It is no error if it is gone: then
/// that is made to last.
/// Links are removed, never followed.
pub fn remove_durable(path: &Path) -> Result<(), PlatformError> {
    let failed = |source: io::Error| write_error(path, source);
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return confirm_durable(path),
        Err(error) => return Err(failed(error)),
    };
    let removed = if found.is_dir() { remove_tree(path) } else { remove_one(path) };
    removed.map_err(failed)?;
    match path.parent() {
        Some(folder) => super::sync_dir(folder),
        None => Ok(()),
    }
}

fn remove_one(path: &Path) -> io::Result<()> {
    retry_while_busy(BUSY_BUDGET, os::is_busy, || {
        std::fs::remove_file(path).or_else(|error| {
            os::make_writable(path)?;
            std::fs::remove_file(path).map_err(|_| error)
        })
    })
}

fn remove_tree(path: &Path) -> io::Result<()> {
    os::make_writable(path)?;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { remove_tree(&entry.path())? } else { remove_one(&entry.path())? }
    }
    std::fs::remove_dir(path)
}

/// Makes a folder and everything in it read-only: 0555 and 0444 (0555 for programs) on Unix, the read-only
/// attribute of files on Windows. All of it lasts.
pub fn seal_tree(path: &Path) -> Result<(), PlatformError> {
    let mut folders = vec![path.to_path_buf()];
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        next += 1;
        let failed = |source: io::Error| write_error(&folder, source);
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                os::seal(&entry.path()).and_then(|()| os::sync_file(&entry.path())).map_err(failed)?;
            }
        }
    }
    for folder in folders.iter().rev() {
        os::seal(folder).map_err(|source| write_error(folder, source))?;
        super::sync_dir(folder)?;
    }
    Ok(())
}

/// The end of a chain of links: the file that a write has to go to. Fails on a cycle and where the last link
/// leads to nothing.
pub fn final_target(path: &Path) -> io::Result<PathBuf> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => std::fs::canonicalize(path),
        Ok(_) => Ok(path.to_path_buf()),
        Err(error) => Err(error),
    }
}

/// The permission bits of a file, where there are such.
pub fn mode_of(path: &Path) -> Option<u32> {
    std::fs::symlink_metadata(path).ok().and_then(|found| os::mode_of(&found))
}

/// Opens a file for reading that must not be a link.
pub fn open_no_link(path: &Path) -> io::Result<File> {
    os::open_no_link(path)
}

/// Opens a program for reading that must not be a link and, where the system can promise it, does not change as
/// long as it is open.
pub fn open_to_run(path: &Path) -> io::Result<File> {
    os::open_to_run(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::fs;

    fn how() -> Replacement {
        Replacement { temporary: ".ab-test-1.tmp".into(), mode_if_new: 0o600 }
    }

    #[cfg(unix)]
    #[test]
    fn a_replaced_file_keeps_its_permissions_and_attributes_but_not_its_inode() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let marked =
            rustix::fs::setxattr(&path, "user.mark", b"kept", rustix::fs::XattrFlags::empty()).is_ok();
        let before = fs::metadata(&path).unwrap().ino();
        replace_durable(&path, b"new", &how()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(mode_of(&path), Some(0o640));
        assert_ne!(fs::metadata(&path).unwrap().ino(), before);
        if marked {
            let mut value = [0; 8];
            let length = rustix::fs::getxattr(&path, "user.mark", &mut value).unwrap();
            assert_eq!(&value[..length], b"kept");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_is_private_and_a_slot_is_cut_to_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace_durable(&path, b"new and long", &how()).unwrap();
        if let Some(mode) = mode_of(&path) {
            assert_eq!(mode, 0o600);
        }
        overwrite_durable(&path, b"short").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
    }

    #[test]
    fn a_sealed_tree_can_be_moved_and_removed_again() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        seal_tree(&tree).unwrap();
        assert!(fs::metadata(tree.join("a/b/file")).unwrap().permissions().readonly());
        let other = folder.path().join("other");
        fs::write(&other, "").unwrap();
        assert!(matches!(move_durable(&tree, &other), Err(PlatformError::Exists { .. })));
        remove_durable(&other).unwrap();
        remove_durable(&other).unwrap();
        move_durable(&tree, &other).unwrap();
        remove_durable(&other).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
