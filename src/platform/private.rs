//! Folders and files that only their owner can read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Creates a folder and its missing parents for the owner alone. An existing folder is left as it is.
pub fn create_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Makes an empty file for the owner alone. An existing file is not even opened: closing it would
/// drop the locks that SQLite holds on it in this process.
pub fn create_new(path: &Path) -> io::Result<()> {
    match owners_only().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    }
}

/// Opens an emptied or new file for the owner alone.
pub fn create(path: &Path) -> io::Result<File> {
    owners_only().create(true).truncate(true).open(path)
}

/// To write a file that, if it is new, only its owner can read.
pub fn owners_only() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Writes everything and waits until the disk has it.
pub fn fill_durably(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}
