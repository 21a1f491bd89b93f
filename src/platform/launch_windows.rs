//! Windows: the program runs beside this process, in a job that ends with it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;

pub(super) fn run_opened(
    _file: &File,
    path: &Path,
    args: &[OsString],
    env: &BTreeMap<OsString, OsString>,
) -> io::Result<u8> {
    let mut command = Command::new(path);
    command.args(args).env_clear().envs(env);
    let code = crate::process::run_beside(command)?;
    // Codes of the system are larger than ours.
    Ok(u8::try_from(code).unwrap_or(1))
}
