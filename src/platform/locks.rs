//! Advisory file locks that the kernel frees when their holder ends, in whatever way it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{PlatformError, os};

/// A held lock. Freed on drop and on the death of the process.
///
/// The file itself is never removed: a lock on a removed file excludes nobody.
#[derive(Debug)]
pub struct LockFile {
    file: File,
    path: PathBuf,
}

impl LockFile {
    /// The file that carries the lock.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the lock live on in the program that replaces this one in the same process. Gives the number under
    /// which that program finds it; none where a program cannot replace itself (Windows).
    pub fn keep_across_exec(&self) -> io::Result<Option<u32>> {
        os::keep_across_exec(&self.file)
    }

    /// Takes over a shared lock that the program before this one in the same process held on `path`. None if
    /// the number is not that. From then on programs that this process starts do not inherit it.
    ///
    /// To be called before the process opens files of its own.
    pub fn adopt_shared(path: &Path, number: u32) -> Option<Self> {
        let file = os::adopt(number, path)?;
        // The lock belongs to the open file; asking again for what it has changes nothing.
        file.try_lock_shared().ok()?;
        Some(Self { file, path: path.to_path_buf() })
    }
}

/// What a look at a lock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Nobody has it.
    Free,
    /// Somebody has it, alone or together with others.
    Held,
    /// Somebody has it for himself alone.
    HeldAlone,
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Closing alone would leave the lock with a child that is between fork and exec.
        let _ = self.file.unlock();
    }
}

/// What file locks on a folder are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockSupport {
    /// A second holder is kept out.
    Works,
    /// The lock call fails.
    Unsupported,
    /// The lock call succeeds for everybody.
    GrantsTwice,
}

/// Takes the lock for this holder alone, or returns `None` at once if somebody has it.
pub fn try_exclusive(path: &Path) -> Result<Option<LockFile>, PlatformError> {
    acquire(path, File::try_lock)
}

/// Takes the lock together with other shared holders, or returns `None` at once if somebody holds it
/// exclusively.
pub fn try_shared(path: &Path) -> Result<Option<LockFile>, PlatformError> {
    acquire(path, File::try_lock_shared)
}

/// Like [`try_exclusive`], but keeps trying for the given time. `None` if it is still taken then.
pub fn wait_exclusive(path: &Path, wait: Duration) -> Result<Option<LockFile>, PlatformError> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(lock) = try_exclusive(path)? {
            return Ok(Some(lock));
        }
        let left = wait.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Whether somebody holds this lock alone. Writes nothing; `None` if there is no lock file to look at.
pub fn is_held_exclusively(path: &Path) -> Option<bool> {
    let file = File::open(path).ok()?;
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            Some(false)
        }
        Err(TryLockError::WouldBlock) => Some(true),
        Err(TryLockError::Error(_)) => None,
    }
}

/// Whether somebody has the lock of a file, which is neither made nor written. Takes the lock for a moment, so
/// who wants it must be ready to ask twice.
pub fn look_at_lock(path: &Path) -> Result<LockState, PlatformError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LockState::Free),
        Err(source) => return Err(PlatformError::LockFailed { path: path.to_path_buf(), source }),
    };
    let refused = |lock: Result<(), TryLockError>| match lock {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => Err(lock_error(path, source)),
    };
    if refused(file.try_lock_shared())? {
        return Ok(LockState::HeldAlone);
    }
    let _ = file.unlock();
    let held = refused(file.try_lock())?;
    let _ = file.unlock();
    Ok(if held { LockState::Held } else { LockState::Free })
}

/// The processes that hold the lock of a file, where the system keeps a list (Linux). A process outside this
/// one's process namespace is not in it.
pub fn lock_owners(path: &Path) -> Option<Vec<u32>> {
    os::lock_owners(path)
}

/// Finds out whether locks in this folder keep a second holder out (they do not on some network and
/// shared folders). Creates and removes one small file.
pub fn probe_locks(dir: &Path) -> Result<LockSupport, PlatformError> {
    probe_with(dir, |file| file.try_lock())
}

/// Refuses a folder whose locks keep nobody out. A folder in which that cannot be tried (no room, no
/// permission) is not refused: whatever needs a lock there will fail by name.
pub fn require_locks(dir: &Path) -> Result<(), PlatformError> {
    let path = dir.to_path_buf();
    match probe_locks(dir) {
        Ok(LockSupport::Unsupported) => {
            let source = io::Error::from(io::ErrorKind::Unsupported);
            Err(PlatformError::LocksUnsupported { path, source })
        }
        Ok(LockSupport::GrantsTwice) => Err(PlatformError::LocksUnreliable { path }),
        Ok(LockSupport::Works) | Err(_) => Ok(()),
    }
}

fn probe_with(
    dir: &Path,
    try_lock: impl Fn(&File) -> Result<(), TryLockError>,
) -> Result<LockSupport, PlatformError> {
    let failed = |source| PlatformError::LockFailed { path: dir.to_path_buf(), source };
    let first = tempfile::Builder::new().prefix(".ab-lock-").tempfile_in(dir).map_err(failed)?;
    let second = first.reopen().map_err(failed)?;
    if try_lock(first.as_file()).is_err() {
        return Ok(LockSupport::Unsupported);
    }
    Ok(match try_lock(&second) {
        Err(TryLockError::WouldBlock) => LockSupport::Works,
        Err(TryLockError::Error(_)) => LockSupport::Unsupported,
        Ok(()) => LockSupport::GrantsTwice,
    })
}

fn acquire(
    path: &Path,
    lock: impl Fn(&File) -> Result<(), TryLockError>,
) -> Result<Option<LockFile>, PlatformError> {
    // A few rounds, in case the file is replaced between opening and locking it.
    for _ in 0..16 {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        os::private(&mut options);
        let file = super::open_patiently(&options, path)
            .map_err(|source| PlatformError::LockFailed { path: path.to_path_buf(), source })?;
        match lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => return Err(lock_error(path, source)),
        }
        if os::is_still_at(&file, path) {
            return Ok(Some(LockFile { file, path: path.to_path_buf() }));
        }
    }
    let source = io::Error::other("the lock file is being replaced over and over");
    Err(PlatformError::LockFailed { path: path.to_path_buf(), source })
}

fn lock_error(path: &Path, source: io::Error) -> PlatformError {
    let path = path.to_path_buf();
    if os::is_unsupported(&source) {
        PlatformError::LocksUnsupported { path, source }
    } else {
        PlatformError::LockFailed { path, source }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::cell::Cell;

    #[test]
    fn an_exclusive_lock_keeps_others_out_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.lock");
        let held = try_exclusive(&path).unwrap().unwrap();
        assert!(try_exclusive(&path).unwrap().is_none());
        assert!(try_shared(&path).unwrap().is_none());
        assert!(wait_exclusive(&path, Duration::from_millis(20)).unwrap().is_none());
        assert_eq!(is_held_exclusively(&path), Some(true));
        drop(held);
        assert_eq!(is_held_exclusively(&path), Some(false));
        assert_eq!(is_held_exclusively(&folder.path().join("none")), None);
        assert!(try_exclusive(&path).unwrap().is_some());
    }

    #[test]
    fn shared_holders_exclude_an_exclusive_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        let first = try_shared(&path).unwrap().unwrap();
        let second = try_shared(&path).unwrap().unwrap();
        assert!(try_exclusive(&path).unwrap().is_none());
        drop(first);
        assert!(try_exclusive(&path).unwrap().is_none());
        drop(second);
        assert!(try_exclusive(&path).unwrap().is_some());
    }

    #[test]
    fn a_waiter_gets_the_lock_when_it_is_freed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = try_exclusive(&path).unwrap().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| wait_exclusive(&path, Duration::from_secs(20)).unwrap().is_some());
            drop(held);
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn a_look_tells_who_holds_a_lock_and_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert_eq!(look_at_lock(&path).unwrap(), LockState::Free);
        assert!(!path.exists());
        let held = try_shared(&path).unwrap().unwrap();
        assert_eq!(look_at_lock(&path).unwrap(), LockState::Held);
        if let Some(owners) = lock_owners(&path) {
            assert_eq!(owners, [std::process::id()]);
        }
        drop(held);
        assert_eq!(look_at_lock(&path).unwrap(), LockState::Free);
        let held = try_exclusive(&path).unwrap().unwrap();
        assert_eq!(look_at_lock(&path).unwrap(), LockState::HeldAlone);
        drop(held);
    }

    #[test]
    fn a_number_that_is_not_the_lock_is_not_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _held = try_shared(&path).unwrap().unwrap();
        for number in [0, 1, 2, 100_000, u32::MAX] {
            assert!(LockFile::adopt_shared(&path, number).is_none(), "{number}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_on_a_removed_file_is_not_mistaken_for_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let old = try_exclusive(&path).unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        let new = try_exclusive(&path).unwrap().unwrap();
        assert!(os::is_still_at(&new.file, &path));
        assert!(!os::is_still_at(&old.file, &path));
    }

    #[test]
    fn probing_a_local_folder_finds_working_locks_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(probe_locks(folder.path()).unwrap(), LockSupport::Works);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn locks_that_fail_or_grant_everybody_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let unsupported = probe_with(folder.path(), |_| {
            Err(TryLockError::Error(io::Error::from(io::ErrorKind::Unsupported)))
        });
        assert_eq!(unsupported.unwrap(), LockSupport::Unsupported);
        assert_eq!(probe_with(folder.path(), |_| Ok(())).unwrap(), LockSupport::GrantsTwice);
        let calls = Cell::new(0);
        let honest = probe_with(folder.path(), |_| {
            calls.set(calls.get() + 1);
            if calls.get() == 1 { Ok(()) } else { Err(TryLockError::WouldBlock) }
        });
        assert_eq!(honest.unwrap(), LockSupport::Works);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_not_a_verdict() {
        let folder = tempfile::tempdir().unwrap();
        assert!(probe_locks(&folder.path().join("none")).is_err());
    }
}
