//! Writing a new config file: whole or not at all, and never over an old one without a backup.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::ConfigError;

/// Writes `bytes` to `path`, readable by the user alone. With `replace`, a file that is there is
/// first kept under a dated name, which is returned. `now_ms` is the wall clock.
///
/// # Errors
/// [`ConfigError::Exists`] if there is a file and `replace` is not set; [`ConfigError::WriteFailed`].
/// In both cases the old file is unchanged.
pub fn write(path: &Path, bytes: &[u8], replace: bool, now_ms: i64) -> Result<Option<PathBuf>, ConfigError> {
    let failed =
        |error: io::Error| ConfigError::WriteFailed { path: path.to_owned(), reason: error.to_string() };
    // A link (from a folder of dotfiles, say) stays a link; its target is replaced.
    let target = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
        Ok(_) if !replace => return Err(ConfigError::Exists { path: path.to_owned() }),
        Ok(_) => Some(super::canonical(path).map_err(failed)?),
    };
    let backup = match &target {
        Some(target) => Some(back_up(target, now_ms).map_err(failed)?),
        None => None,
    };
    put(target.as_deref().unwrap_or(path), replace, |file| file.write_all(bytes)).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            ConfigError::Exists { path: path.to_owned() }
        } else {
            failed(error)
        }
    })?;
    Ok(backup)
}

fn back_up(target: &Path, now_ms: i64) -> io::Result<PathBuf> {
    if !std::fs::metadata(target)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let date = jiff::Timestamp::from_millisecond(now_ms)
        .map(|time| time.strftime("%Y%m%dT%H%M%SZ").to_string())
        .map_err(io::Error::other)?;
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{date}.bak"));
    for number in 1..100 {
        let mut numbered = name.clone();
        if number > 1 {
            numbered.push(format!("-{number}"));
        }
        let backup = target.with_file_name(numbered);
        let copy = |file: &mut File| io::copy(&mut File::open(target)?, file).map(|_| ());
        match put(&backup, false, copy) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(backup),
        }
    }
    Err(io::Error::other("there are too many backups of this second"))
}

/// A file appears whole, flushed to disk, mode 0600, or not at all.
fn put(path: &Path, replace: bool, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("it has no folder"))?;
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".agent-bridge-").tempfile_in(folder)?;
    fill(file.as_file_mut())?;
    file.as_file().sync_all()?;
    if replace {
        file.persist(path)?;
    } else {
        file.persist_noclobber(path)?;
    }
    // Makes the name durable too, where folders can be flushed.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}
