//! Becoming another program: the very file that was looked at, not whatever has its name by then.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;

#[cfg(unix)]
#[path = "launch_unix.rs"]
mod os;
#[cfg(windows)]
#[path = "launch_windows.rs"]
mod os;

/// Runs the program in `file`, which lies at `path`, with exactly this environment.
///
/// On Unix it takes the place of this process, so this comes back only with an error. Linux runs the open file
/// itself; a script, whose interpreter needs a path, and macOS run what lies at the path. On Windows it runs beside
/// this process on the same streams and ends with it; its exit code is given. It must be open there by
/// [`super::open_to_run`], so that nobody can exchange it.
pub fn run_opened(
    file: &File,
    path: &Path,
    args: &[OsString],
    env: &BTreeMap<OsString, OsString>,
) -> io::Result<u8> {
    os::run_opened(file, path, args, env)
}
