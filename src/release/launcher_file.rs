//! The launcher as a file: put in place once, replaced rarely, always as a new file.
//!
//! A running program cannot be overwritten on Windows, and on macOS a program that was written over in place is
//! killed by the check of its signature; so the new one is written beside it and takes its name.

use std::io::Read as _;
use std::path::Path;

use super::transaction::InstallLock;
use super::{Layout, Place, ReleaseError, StartError, digest, lease};
use crate::context::Context;
use crate::error::Error;
use crate::platform;

/// Largest program that is taken for a launcher.
const MAX_BYTES: u64 = 512 * 1024 * 1024;

/// What replacing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The launcher has the content now, as a new file.
    Yes,
    /// It had it before.
    Already,
}

/// Puts the launcher where none is. `from` must have this SHA-256.
pub fn install_first(layout: &Layout, _lock: &InstallLock, from: &Path, sha256: &str) -> Result<(), Error> {
    let bytes = content(from, sha256)?;
    platform::create_private_dir(&layout.root().join("bin")).map_err(ReleaseError::from)?;
    platform::create_durable(&layout.launcher(), &bytes, 0o755).map_err(ReleaseError::from)?;
    require(layout, sha256)
}

/// Replaces the launcher that this process runs. Only for the launcher itself, started by a command that holds the
/// install lock. `from` must have this SHA-256.
pub fn replace(context: &Context, from: &Path, sha256: &str) -> Result<Replaced, Error> {
    let refused = |why: &str| Error::from(StartError::NotReplaced { why: why.into() });
    let Some((layout, Place::Launcher)) = lease::own_place(context) else {
        return Err(refused("this program is no launcher of an installation"));
    };
    // Held by who started us. If it can be had here, nobody is at work.
    if platform::try_exclusive(&layout.install_lock())?.is_some() {
        return Err(refused("no command is at work on the installation"));
    }
    let launcher = layout.launcher();
    if digest::of_file(&launcher).is_ok_and(|(found, _)| found == sha256) {
        return Ok(Replaced::Already);
    }
    let bytes = content(from, sha256)?;
    let before = platform::file_id(&launcher);
    // A copy of what was hashed: the source may change under our hands.
    let draft = launcher.with_file_name(".ab-launcher.tmp");
    platform::write_durable(&draft, &bytes, 0o755).map_err(ReleaseError::from)?;
    let replaced = self_replace::self_replace(&draft);
    let _ = std::fs::remove_file(&draft);
    replaced.map_err(|error| refused(&error.to_string()))?;
    platform::sync_file(&launcher).map_err(ReleaseError::from)?;
    require(&layout, sha256)?;
    if before.is_some() && platform::file_id(&launcher) == before {
        return Err(refused("the system wrote over the old file instead of making a new one"));
    }
    Ok(Replaced::Yes)
}

fn content(from: &Path, sha256: &str) -> Result<Vec<u8>, Error> {
    let failed = |why: String| Error::from(StartError::NotReplaced { why });
    let mut bytes = Vec::new();
    platform::open_no_link(from)
        .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes))
        .map_err(|error| failed(format!("{}: {error}", from.display())))?;
    if digest::of_bytes(&bytes) != sha256 {
        return Err(failed(format!("{} is not the announced file", from.display())));
    }
    Ok(bytes)
}

fn require(layout: &Layout, sha256: &str) -> Result<(), Error> {
    let path = layout.launcher();
    let (found, _) = digest::of_file(&path).map_err(ReleaseError::io("cannot read", &path))?;
    if found == sha256 {
        Ok(())
    } else {
        Err(StartError::NotReplaced { why: format!("{} has other content now", path.display()) }.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_first_launcher_is_a_program_of_the_announced_content() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path().join("root"));
        let lock = InstallLock::take(&layout).unwrap();
        let from = folder.path().join("program");
        std::fs::write(&from, "a program").unwrap();
        let wrong = install_first(&layout, &lock, &from, &"0".repeat(64)).unwrap_err();
        assert_eq!(wrong.code(), "RELEASE_LAUNCHER_NOT_REPLACED");
        assert!(!layout.launcher().exists());
        let sha256 = digest::of_bytes(b"a program");
        install_first(&layout, &lock, &from, &sha256).unwrap();
        assert_eq!(std::fs::read(layout.launcher()).unwrap(), b"a program");
        if let Some(mode) = platform::mode_of(&layout.launcher()) {
            assert_eq!(mode, 0o755);
        }
        let again = install_first(&layout, &lock, &from, &sha256).unwrap_err();
        assert_eq!(again.code(), "WRITE_TARGET_EXISTS", "one that is there is replaced, never written over");
    }
}
