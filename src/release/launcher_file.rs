//! The launcher replaces itself: rarely, on the word of a command at work, always by a new file.
//!
//! A running program cannot be overwritten on Windows, and on macOS a program that was written over in place is
//! killed by the check of its signature; so the new one is written beside it and takes its name.

use std::io::Read as _;
use std::path::Path;

use super::{Layout, Place, ReleaseError, StartError, lease};
use crate::context::Context;
use crate::digest;
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

/// Lets the launcher replace itself. The caller holds the install lock.
pub fn ask(context: &Context, layout: &Layout, from: &Path, sha256: &str) -> Result<(), Error> {
    let refused = |why: String| Error::from(StartError::NotReplaced { why });
    let done = std::process::Command::new(layout.launcher())
        .arg("launcher-replace")
        .arg("--from")
        .arg(from)
        .args(["--sha256", sha256])
        .env_clear()
        .envs(&context.env)
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| refused(format!("it cannot be started: {error}")))?;
    if done.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&done.stderr);
    Err(refused(format!("{}: {}", done.status, words.lines().next().unwrap_or("without a word"))))
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
    platform::confirm_durable(&launcher).map_err(ReleaseError::from)?;
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
