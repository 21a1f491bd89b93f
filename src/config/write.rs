//! Writing a new config file: whole or not at all, and never over an old one without a backup.

use std::io;
use std::path::{Path, PathBuf};

use super::error::ConfigError;
use crate::platform::{self, PlatformError};

/// Readable by the user alone: a config may hold keys.
const PRIVATE: u32 = 0o600;

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
    let written = match &target {
        Some(target) => platform::write_durable(target, bytes, PRIVATE),
        None => {
            let folder = path.parent().unwrap_or(path);
            platform::create_private_dir(folder).and_then(|()| platform::create_durable(path, bytes, PRIVATE))
        }
    };
    match written {
        Ok(()) => Ok(backup),
        Err(PlatformError::Exists { path }) => Err(ConfigError::Exists { path }),
        Err(error) => Err(failed(io::Error::other(error))),
    }
}

fn back_up(target: &Path, now_ms: i64) -> io::Result<PathBuf> {
    if !std::fs::metadata(target)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let date = jiff::Timestamp::from_millisecond(now_ms)
        .map(|time| time.strftime("%Y%m%dT%H%M%SZ").to_string())
        .map_err(io::Error::other)?;
    let old = std::fs::read(target)?;
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{date}.bak"));
    for number in 1..100 {
        let mut numbered = name.clone();
        if number > 1 {
            numbered.push(format!("-{number}"));
        }
        let backup = target.with_file_name(numbered);
        match platform::create_durable(&backup, &old, PRIVATE) {
            Err(PlatformError::Exists { .. }) => {}
            Err(error) => return Err(io::Error::other(error)),
            Ok(()) => return Ok(backup),
        }
    }
    Err(io::Error::other("there are too many backups of this second"))
}
