//! The one durable-write primitive: after `Ok` the new content survives a power cut; after any
//! error but `WRITE_NOT_CONFIRMED` the old content is intact. No temporary file is left behind by a
//! write that returns (one that is killed half-way may leave a `.ab-*.tmp`, never a torn target).

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{PlatformError, os};

/// How long a target that another program keeps open is retried (virus scanners hold files for some
/// hundred milliseconds).
pub(super) const BUSY_BUDGET: Duration = Duration::from_secs(2);

/// Replaces `path` by `bytes` as a whole, with the given Unix permission bits (ignored on Windows).
///
/// A symbolic link at `path` is itself replaced, not followed: callers that want the file behind it
/// resolve it first. The folder must exist.
pub fn write_durable(path: &Path, bytes: &[u8], mode: u32) -> Result<(), PlatformError> {
    write_in(folder_of(path)?, path, bytes, mode)
}

/// Like [`write_durable`], in the place of a link, wherever that leads: also to a folder.
pub fn write_over_link(path: &Path, bytes: &[u8], mode: u32) -> Result<(), PlatformError> {
    let folder = path.parent().ok_or_else(|| PlatformError::FolderMissing { path: path.to_path_buf() })?;
    write_in(folder.to_path_buf(), path, bytes, mode)
}

fn write_in(folder: PathBuf, path: &Path, bytes: &[u8], mode: u32) -> Result<(), PlatformError> {
    let mut waiting = Some(staged(path, &folder, bytes, mode)?.into_temp_path());
    retry_while_busy(BUSY_BUDGET, os::is_busy, || match waiting.take() {
        None => Ok(()),
        Some(temporary) => temporary.persist(path).map_err(|error| {
            waiting = Some(error.path);
            error.error
        }),
    })
    .map_err(|source| replace_error(path, source))?;
    os::sync_dir(&folder).map_err(|source| PlatformError::NotConfirmed { path: path.to_path_buf(), source })
}

/// Like [`write_durable`], but the file must be new: one that is there, also a link, is left alone and
/// gives [`PlatformError::Exists`].
pub fn create_durable(path: &Path, bytes: &[u8], mode: u32) -> Result<(), PlatformError> {
    let folder = folder_of(path)?;
    staged(path, &folder, bytes, mode)?.persist_noclobber(path).map_err(|error| {
        match error.error.kind() {
            io::ErrorKind::AlreadyExists => PlatformError::Exists { path: path.to_path_buf() },
            _ => write_error(path, error.error),
        }
    })?;
    os::sync_dir(&folder).map_err(|source| PlatformError::NotConfirmed { path: path.to_path_buf(), source })
}

/// The content, complete and on the disk, under a random name beside its target: created exclusively and
/// private, removed when dropped.
fn staged(
    path: &Path,
    folder: &Path,
    bytes: &[u8],
    mode: u32,
) -> Result<tempfile::NamedTempFile, PlatformError> {
    let failed = |source: io::Error| write_error(path, source);
    let mut temporary =
        tempfile::Builder::new().prefix(".ab-").suffix(".tmp").tempfile_in(folder).map_err(failed)?;
    temporary.write_all(bytes).map_err(failed)?;
    os::set_mode(temporary.as_file(), mode).map_err(failed)?;
    temporary.as_file().sync_all().map_err(failed)?;
    Ok(temporary)
}

/// A new file of any size that is written in pieces. Until it is published it lies beside its target under a name of
/// its own, and dropping it removes it.
#[derive(Debug)]
pub struct NewFile {
    temporary: tempfile::NamedTempFile,
    target: PathBuf,
}

impl NewFile {
    /// Makes it, empty and private, as `.<prefix>*<suffix>`. The folder must exist, and `target` must be free.
    pub fn create(target: &Path, prefix: &str, suffix: &str) -> Result<Self, PlatformError> {
        let folder = folder_of(target)?;
        if std::fs::symlink_metadata(target).is_ok() {
            return Err(PlatformError::Exists { path: target.to_path_buf() });
        }
        let prefix = format!(".{prefix}");
        let temporary = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(suffix)
            .tempfile_in(&folder)
            .map_err(|source| write_error(target, source))?;
        Ok(Self { temporary, target: target.to_path_buf() })
    }

    /// To write to.
    pub fn file(&self) -> &std::fs::File {
        self.temporary.as_file()
    }

    /// Where it lies until it is published.
    pub fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// For `map_err`: a write to [`Self::file`] that failed.
    pub fn failed(&self, source: io::Error) -> PlatformError {
        write_error(&self.target, source)
    }

    /// Gives it its permission bits (ignored on Windows) and brings all of it to the disk.
    pub fn sync(&self, mode: u32) -> Result<(), PlatformError> {
        os::set_mode(self.file(), mode)
            .and_then(|()| self.file().sync_all())
            .map_err(|error| self.failed(error))
    }

    /// Gives it its name, unless somebody else has taken that: then [`PlatformError::Exists`]. To be called after
    /// [`Self::sync`].
    pub fn publish(self) -> Result<(), PlatformError> {
        let folder = folder_of(&self.target)?;
        let target = self.target;
        self.temporary.persist_noclobber(&target).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => PlatformError::Exists { path: target.clone() },
            _ => write_error(&target, error.error),
        })?;
        os::sync_dir(&folder).map_err(|source| PlatformError::NotConfirmed { path: target, source })
    }
}

/// Makes the entries of a folder (new names, removed names) survive a power cut.
pub fn sync_dir(path: &Path) -> Result<(), PlatformError> {
    os::sync_dir(path).map_err(|source| PlatformError::NotConfirmed { path: path.to_path_buf(), source })
}

/// Creates a folder and its missing parents, readable by the owner only (0700 on Unix; on Windows
/// the profile's access list is inherited). A folder that is already there is left as it is.
pub fn create_private_dir(path: &Path) -> Result<(), PlatformError> {
    let failed = |source: io::Error| write_error(path, source);
    if path.is_dir() {
        return Ok(());
    }
    let mut missing: Vec<&Path> = Vec::new();
    for ancestor in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
        if ancestor.is_dir() {
            break;
        }
        missing.push(ancestor);
    }
    for folder in missing.into_iter().rev() {
        match os::create_dir_private(folder) {
            Ok(()) => {}
            // Another process made it in the meantime.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(error) => return Err(failed(error)),
        }
        if let Some(parent) = folder.parent().filter(|p| !p.as_os_str().is_empty()) {
            os::sync_dir(parent)
                .map_err(|source| PlatformError::NotConfirmed { path: folder.to_path_buf(), source })?;
        }
    }
    Ok(())
}

pub(super) fn folder_of(path: &Path) -> Result<PathBuf, PlatformError> {
    if path.file_name().is_none() || path.is_dir() {
        return Err(PlatformError::NotAFile { path: path.to_path_buf() });
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    if folder.is_dir() { Ok(folder) } else { Err(PlatformError::FolderMissing { path: path.to_path_buf() }) }
}

/// Runs `attempt` until it succeeds, fails for another reason than `busy`, or the time is used up.
pub(super) fn retry_while_busy<T>(
    budget: Duration,
    busy: impl Fn(&io::Error) -> bool,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        match attempt() {
            Err(error) if busy(&error) && start.elapsed() < budget => thread::sleep(pause),
            done => return done,
        }
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Opens a file that another program may have open for a moment in a way that keeps others out.
pub fn open_patiently(options: &std::fs::OpenOptions, path: &Path) -> io::Result<std::fs::File> {
    retry_while_busy(BUSY_BUDGET, os::is_held, || options.open(path))
}

/// A failed replacement: on Windows a denial then means that somebody has the target open.
pub(super) fn replace_error(path: &Path, source: io::Error) -> PlatformError {
    if os::is_busy(&source) {
        PlatformError::Busy { path: path.to_path_buf(), source }
    } else {
        write_error(path, source)
    }
}

/// The failure of a write, told by what can be done about it.
pub fn write_error(path: &Path, source: io::Error) -> PlatformError {
    let path = path.to_path_buf();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => PlatformError::NoSpace { path, source },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            PlatformError::Denied { path, source }
        }
        io::ErrorKind::IsADirectory => PlatformError::NotAFile { path },
        _ => PlatformError::WriteFailed { path, source },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::error::Coded;
    use std::fs;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_must_be_new_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        create_durable(&path, b"first", 0o600).unwrap();
        let again = create_durable(&path, b"second", 0o600);
        assert!(matches!(again, Err(PlatformError::Exists { .. })), "{again:?}");
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_file_written_in_pieces_is_seen_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let make = || {
            let new = NewFile::create(&path, "new.", ".part").unwrap();
            new.file().write_all(b"one ").unwrap();
            new.file().write_all(b"two").unwrap();
            assert!(!path.exists());
            new
        };
        drop(make());
        assert_eq!(names(folder.path()), [""; 0], "dropped is gone");
        let (first, second) = (make(), make());
        first.sync(0o644).unwrap();
        first.publish().unwrap();
        assert!(matches!(second.publish(), Err(PlatformError::Exists { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"one two");
        assert_eq!(names(folder.path()), ["new"]);
        assert!(matches!(NewFile::create(&path, "", ""), Err(PlatformError::Exists { .. })));
    }

    #[test]
    fn replaces_whole_content_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("state.json");
        write_durable(&target, b"first, and rather long", 0o600).unwrap();
        write_durable(&target, b"second", 0o600).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["state.json"]);
    }

    #[cfg(unix)]
    #[test]
    fn mode_is_exact_whatever_the_umask_or_the_old_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("script");
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o666)).unwrap();
        write_durable(&target, b"secret", 0o600).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o600);
        write_durable(&target, b"#!", 0o755).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o755);
    }

    #[test]
    fn a_missing_folder_and_a_folder_as_target_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = write_durable(&folder.path().join("no/file"), b"x", 0o600).unwrap_err();
        assert_eq!(missing.doc().code, "WRITE_FOLDER_MISSING");
        let wrong = write_durable(folder.path(), b"x", 0o600).unwrap_err();
        assert_eq!(wrong.doc().code, "WRITE_NOT_A_FILE");
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn a_busy_target_is_retried_and_then_replaced() {
        let mut left = 3;
        let result = retry_while_busy(
            Duration::from_secs(5),
            |_| true,
            || {
                left -= 1;
                if left == 0 { Ok(()) } else { Err(io::Error::other("sharing violation")) }
            },
        );
        assert!(result.is_ok());
        assert_eq!(left, 0);
    }

    #[test]
    fn a_target_that_stays_busy_ends_in_time_with_the_reason() {
        let start = Instant::now();
        let error = retry_while_busy(
            Duration::from_millis(60),
            |_| true,
            || Err::<(), _>(io::Error::other("sharing violation")),
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "sharing violation");
        assert!(start.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn other_failures_are_not_retried() {
        let mut attempts = 0;
        let _ = retry_while_busy(
            Duration::from_secs(5),
            |_| false,
            || {
                attempts += 1;
                Err::<(), _>(io::Error::other("no"))
            },
        );
        assert_eq!(attempts, 1);
    }

    #[test]
    fn system_reasons_get_their_own_codes() {
        let code = |kind| write_error(Path::new("x"), io::Error::from(kind)).doc().code;
        assert_eq!(code(io::ErrorKind::StorageFull), "WRITE_NO_SPACE");
        assert_eq!(code(io::ErrorKind::QuotaExceeded), "WRITE_NO_SPACE");
        assert_eq!(code(io::ErrorKind::ReadOnlyFilesystem), "WRITE_DENIED");
        assert_eq!(code(io::ErrorKind::Other), "WRITE_FAILED");
    }

    #[cfg(unix)]
    #[test]
    fn private_folders_are_0700_and_existing_ones_untouched() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        let open = base.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        create_private_dir(&open.join("a/b")).unwrap();
        create_private_dir(&open.join("a/b")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&open.join("a")), 0o700);
        assert_eq!(mode(&open.join("a/b")), 0o700);
        assert_eq!(mode(&open), 0o755);
    }

    #[test]
    fn a_file_in_the_way_of_a_folder_is_an_error() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("file"), "x").unwrap();
        assert!(create_private_dir(&base.path().join("file")).is_err());
        assert!(create_private_dir(&base.path().join("file/sub")).is_err());
    }
}
