//! Durable changes for transactions: every temporary name is given by the caller, so that what a killed
//! process left can be told from what is somebody else's.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::durable::{BUSY_BUDGET, folder_of, open_patiently, replace_error, retry_while_busy, write_error};
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
    let temporary = stage(path, bytes, how)?;
    put_in_place(&temporary, path, bytes)
}

/// Like [`replace_durable`], but only over a content that is `expected` (none: no file is there). What another
/// program wrote at the last moment is not lost: the old file is looked at after it was swapped out, and put back
/// if it is not the one. `false`: nothing was changed. `bytes` of none removes the file.
///
/// One thing no system call can exclude: who reads the file in the microseconds between the swap and its undoing
/// reads our content. It sees a whole file, and its own write again when it looks next.
///
/// Where the file system cannot swap (Windows, some network folders) the look comes right before the change.
pub fn replace_if(
    path: &Path,
    bytes: Option<&[u8]>,
    how: &Replacement,
    expected: &dyn Fn(Option<&[u8]>) -> bool,
) -> Result<bool, PlatformError> {
    let folder = folder_of(path)?;
    let failed = |source: io::Error| write_error(path, source);
    let temporary = match bytes {
        Some(bytes) => stage(path, bytes, how)?,
        None => folder.join(&how.temporary),
    };
    let dropped = |result: Result<bool, PlatformError>| {
        let _ = std::fs::remove_file(&temporary);
        result
    };
    let before = match content_of(path) {
        Ok(before) => before,
        Err(error) => return dropped(Err(open_error(path, error))),
    };
    if !expected(before.as_deref()) {
        return dropped(Ok(false));
    }
    match (before, bytes) {
        (None, None) => Ok(true),
        (None, Some(_)) => {
            // A hard link is never made over a file that is there.
            match std::fs::hard_link(&temporary, path) {
                Ok(()) => {
                    std::fs::remove_file(&temporary).map_err(failed)?;
                    super::sync_dir(&folder).map(|()| true)
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => dropped(Ok(false)),
                // No links on this file system.
                Err(_) if std::fs::symlink_metadata(path).is_err() => {
                    os::replace_file(&temporary, path).map_err(failed)?;
                    super::sync_dir(&folder).map(|()| true)
                }
                Err(error) => dropped(Err(failed(error))),
            }
        }
        (Some(_), None) => {
            retry_while_busy(BUSY_BUDGET, os::is_busy, || std::fs::rename(path, &temporary))
                .map_err(|error| replace_error(path, error))?;
            let taken = content_of(&temporary).map_err(failed)?;
            if expected(taken.as_deref()) {
                os::remove_leftover(&temporary).map_err(|error| replace_error(path, error))?;
                return super::sync_dir(&folder).map(|()| true);
            }
            // It was written meanwhile; unless there is something newer still, it goes back.
            match std::fs::hard_link(&temporary, path) {
                Ok(()) => dropped(Ok(false)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => dropped(Ok(false)),
                Err(error) => std::fs::rename(&temporary, path).map(|()| false).map_err(|_| failed(error)),
            }
        }
        (Some(_), Some(bytes)) => match os::exchange(&temporary, path) {
            Ok(()) => {
                let swapped = settle(&temporary, path, bytes, expected)?;
                std::fs::remove_file(&temporary).map_err(failed)?;
                super::sync_dir(&folder).map(|()| swapped)
            }
            Err(error) if os::cannot_exchange(&error) => {
                match content_of(path) {
                    Ok(now) if expected(now.as_deref()) => {}
                    Ok(_) => return dropped(Ok(false)),
                    Err(error) => return dropped(Err(open_error(path, error))),
                }
                put_in_place(&temporary, path, bytes).map(|()| true)
            }
            Err(error) => dropped(Err(failed(error))),
        },
    }
}

/// After our file and what was there changed places: whether that was the expected one, and still is when the disk
/// has the change, so that who had it open may finish. If not, it goes back, and so does what anybody wrote in the
/// meantime: the newest stays. In the end what is left over at `temporary` is nobody's but ours.
fn settle(
    temporary: &Path,
    path: &Path,
    ours: &[u8],
    expected: &dyn Fn(Option<&[u8]>) -> bool,
) -> Result<bool, PlatformError> {
    /// Who writes on and on into an open file does not hold us for ever.
    const ROUNDS: usize = 100;
    let failed = |source: io::Error| write_error(path, source);
    let folder = folder_of(path)?;
    let mut swapped_out = content_of(temporary).map_err(failed)?;
    let mut placed = Some(ours.to_vec());
    let mut settled = expected(swapped_out.as_deref());
    let mut swapped = settled;
    for _ in 0..ROUNDS {
        if settled {
            super::sync_dir(&folder)?;
            let now = content_of(temporary).map_err(failed)?;
            if now == swapped_out {
                break;
            }
            swapped_out = now;
            swapped = false;
        }
        os::exchange(temporary, path).map_err(failed)?;
        let next = content_of(temporary).map_err(failed)?;
        settled = next == placed;
        placed = std::mem::replace(&mut swapped_out, next);
    }
    Ok(swapped)
}

/// A file that could not be opened. Unlike a replacement it says so if somebody holds the file.
fn open_error(path: &Path, source: io::Error) -> PlatformError {
    if os::is_held(&source) { replace_error(path, source) } else { write_error(path, source) }
}

fn content_of(path: &Path) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    match os::open_no_link(path) {
        Ok(mut file) => file.read_to_end(&mut bytes).map(|_| Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the new content beside the target, with what identifies the target.
fn stage(path: &Path, bytes: &[u8], how: &Replacement) -> Result<PathBuf, PlatformError> {
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
    Ok(temporary)
}

fn put_in_place(temporary: &Path, path: &Path, bytes: &[u8]) -> Result<(), PlatformError> {
    let folder = folder_of(path)?;
    match move_over(temporary, path, BUSY_BUDGET, os::is_busy, os::replace_file) {
        Ok(()) => super::sync_dir(&folder),
        Err(error) if os::is_mount_point(&error) => overwrite_durable(path, bytes),
        Err(error) => Err(replace_error(path, error)),
    }
}

/// Tries it as long as the target is `busy`, but no longer than `budget`; if it fails nothing is left of it.
fn move_over(
    temporary: &Path,
    path: &Path,
    budget: Duration,
    busy: fn(&io::Error) -> bool,
    mut replace: impl FnMut(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    let moved = retry_while_busy(budget, busy, || replace(temporary, path));
    if moved.is_err() {
        let _ = std::fs::remove_file(temporary);
    }
    moved
}

/// Names beside its target under which a replacement lies for a moment, and which it may leave if it is cut off.
pub fn names_of_replacement(temporary: &Path) -> Vec<PathBuf> {
    os::names_of_replacement(temporary)
}

/// Gives a file its name back that a replacement had taken when it was cut off, where replacing takes more than one
/// step (Windows).
pub fn take_back(path: &Path, how: &Replacement) -> Result<(), PlatformError> {
    os::take_back(path, &path.with_file_name(&how.temporary)).map_err(|error| replace_error(path, error))
}

/// Removes a file of ours that may be gone already. On Windows a program that runs is left.
pub fn remove_leftover(path: &Path) -> io::Result<()> {
    match os::remove_leftover(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
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
    let mut file = open_patiently(&options, path).map_err(|error| open_error(path, error))?;
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

/// The same for a file that only [`replace_durable`] and [`replace_if`] write. Where that cannot be asked of a file that
/// another program holds (Windows) it needs not be: its content was on the disk before it took its name.
pub fn confirm_replaced(path: &Path) -> Result<(), PlatformError> {
    if os::SYNCS_HELD_FILES { confirm_durable(path) } else { Ok(()) }
}

/// Moves a file or a folder to a name that is free, within one file system.
pub fn move_durable(from: &Path, to: &Path) -> Result<(), PlatformError> {
    if std::fs::symlink_metadata(to).is_ok() {
        return Err(PlatformError::Exists { path: to.to_path_buf() });
    }
    retry_while_busy(BUSY_BUDGET, os::is_busy, || std::fs::rename(from, to))
        .map_err(|error| replace_error(to, error))?;
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
    removed.map_err(|error| replace_error(path, error))?;
    match path.parent() {
        Some(folder) => super::sync_dir(folder),
        None => Ok(()),
    }
}

fn remove_one(path: &Path) -> io::Result<()> {
    retry_while_busy(BUSY_BUDGET, os::is_busy, || {
        std::fs::remove_file(path).or_else(|error| {
            os::make_writable(path)?;
            os::remove_file_or_link(path).map_err(|_| error)
        })
    })
}

fn remove_tree(path: &Path) -> io::Result<()> {
    os::make_writable(path)?;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { remove_tree(&entry.path())? } else { remove_one(&entry.path())? }
    }
    retry_while_busy(BUSY_BUDGET, os::is_busy, || std::fs::remove_dir(path))
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

    #[test]
    fn only_what_is_expected_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let is = |wanted: Option<&'static [u8]>| move |there: Option<&[u8]>| there == wanted;
        let now = || fs::read(&path).ok();
        assert!(!replace_if(&path, Some(b"new"), &how(), &is(Some(b"old"))).unwrap());
        assert_eq!(now(), None);
        assert!(replace_if(&path, Some(b"old"), &how(), &is(None)).unwrap());
        assert!(!replace_if(&path, Some(b"new"), &how(), &is(None)).unwrap());
        assert!(!replace_if(&path, Some(b"new"), &how(), &is(Some(b"other"))).unwrap());
        assert_eq!(now().as_deref(), Some(&b"old"[..]));
        assert!(replace_if(&path, Some(b"new"), &how(), &is(Some(b"old"))).unwrap());
        assert_eq!(now().as_deref(), Some(&b"new"[..]));
        assert!(!replace_if(&path, None, &how(), &is(Some(b"old"))).unwrap());
        assert_eq!(now().as_deref(), Some(&b"new"[..]));
        assert!(replace_if(&path, None, &how(), &is(Some(b"new"))).unwrap());
        assert!(replace_if(&path, None, &how(), &is(None)).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no temporary file is left");
    }

    /// Field report: replacing a file meets a virus scanner. The system that refuses is played here; the real one
    /// is asked in `windows_tests.rs`.
    #[test]
    fn a_target_held_for_a_moment_is_replaced_and_one_held_for_good_is_a_named_error() {
        use crate::error::Coded as _;
        let held = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let mut refusals = 3;
        let release_later = |from: &Path, to: &Path| {
            if refusals == 0 {
                return fs::rename(from, to);
            }
            refusals -= 1;
            Err(io::ErrorKind::ResourceBusy.into())
        };
        let temporary = stage(&path, b"new", &how()).unwrap();
        move_over(&temporary, &path, Duration::from_secs(20), held, release_later).unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), names()), (&b"new"[..], 1));

        let temporary = stage(&path, b"newer", &how()).unwrap();
        let began = std::time::Instant::now();
        let never = |_: &Path, _: &Path| Err(io::ErrorKind::ResourceBusy.into());
        let error = move_over(&temporary, &path, Duration::from_millis(50), held, never).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(10), "it gives up");
        assert_eq!((fs::read(&path).unwrap().as_slice(), names()), (&b"new"[..], 1));
        let named = PlatformError::Busy { path: path.clone(), source: error };
        assert_eq!(named.doc().code, "WRITE_TARGET_BUSY");
        assert!(named.to_string().contains("file"), "{named}");
    }

    #[test]
    fn what_was_written_between_look_and_swap_is_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        // Another program writes right after the first look.
        let looks = std::cell::Cell::new(0);
        let expected = |there: Option<&[u8]>| {
            looks.set(looks.get() + 1);
            let fits = there == Some(b"old");
            if looks.get() == 1 {
                fs::write(folder.path().join("theirs"), "theirs").unwrap();
                fs::rename(folder.path().join("theirs"), &path).unwrap();
            }
            fits
        };
        assert!(!replace_if(&path, Some(b"ours"), &how(), &expected).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(looks.get() >= 2);
    }

    /// A writer that replaces the file, and one that writes in place, without a pause. Each of its writes is there
    /// when it looks, at the latest after the moment in which ours is taken back.
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    #[test]
    fn no_write_of_another_program_is_lost() {
        for in_place in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            fs::write(&path, "0 end").unwrap();
            let (mut ours, mut refused) = (0, 0);
            let read_back = |number: u32| {
                let began = std::time::Instant::now();
                loop {
                    let text = fs::read_to_string(&path).unwrap();
                    if let Some(rest) = text.strip_prefix(&format!("{number} ")) {
                        return rest.to_string();
                    }
                    assert!(began.elapsed() < Duration::from_secs(20), "write {number} is gone: {text}");
                    std::thread::yield_now();
                }
            };
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    for number in 0..1_250 {
                        let text = format!("{} {}", number + 1, read_back(number));
                        if in_place {
                            fs::write(&path, text).unwrap();
                        } else {
                            fs::write(folder.path().join("theirs"), text).unwrap();
                            fs::rename(folder.path().join("theirs"), &path).unwrap();
                        }
                        if number % 16 == 0 {
                            std::thread::sleep(std::time::Duration::from_millis(2));
                        }
                    }
                });
                while !writer.is_finished() {
                    let before = fs::read(&path).unwrap();
                    let Some(whole) = before.strip_suffix(b" end") else { continue };
                    let after = match whole.strip_suffix(b" ours") {
                        Some(without) => [without, b" end"].concat(),
                        None => [whole, b" ours end"].concat(),
                    };
                    let expected = |there: Option<&[u8]>| there == Some(before.as_slice());
                    match replace_if(&path, Some(&after), &how(), &expected).unwrap() {
                        true => ours += 1,
                        false => refused += 1,
                    }
                }
            });
            let text = fs::read_to_string(&path).unwrap();
            assert!(text == "1250 end" || text == "1250 ours end", "{text}");
            assert!(ours > 0 && refused > 0, "{ours} written, {refused} refused: nobody got in the way");
        }
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
