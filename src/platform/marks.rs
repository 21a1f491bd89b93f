//! What tells that a file has changed, without reading it; and names as a foreign program prints them.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use super::os;

/// What the file system knows of a file. Two equal marks of one path are taken for the same content; a program that
/// sets the times back does not change that, where the system keeps a time of its own (Unix).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMark {
    /// What it is.
    pub kind: MarkKind,
    /// Bytes.
    pub size: u64,
    /// When its content was last written, in nanoseconds since 1970, as a program may have set it.
    pub modified_ns: i128,
    /// When content or attributes last changed, in nanoseconds since 1970. On Windows the later one of creation and
    /// last write.
    pub changed_ns: i128,
    /// Number of the file on its disk; 0 where there is none.
    pub number: u64,
    /// Whether its owner may execute it; never on Windows.
    pub executable: bool,
}

/// What a name leads to. Links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A plain file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, a socket, a device.
    Other,
}

impl FileMark {
    /// Of what lies at a path. Links are not followed.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from_metadata(&std::fs::symlink_metadata(path)?))
    }

    /// From metadata that is at hand.
    pub fn from_metadata(found: &Metadata) -> Self {
        let kind = match found.file_type() {
            kind if kind.is_file() => MarkKind::File,
            kind if kind.is_dir() => MarkKind::Folder,
            kind if kind.is_symlink() => MarkKind::Link,
            _ => MarkKind::Other,
        };
        let times = os::times_of(found);
        Self {
            kind,
            size: found.len(),
            modified_ns: times.modified_ns,
            changed_ns: times.changed_ns,
            number: times.number,
            executable: times.executable,
        }
    }
}

/// What the systems tell in different ways.
pub(super) struct Times {
    pub(super) modified_ns: i128,
    pub(super) changed_ns: i128,
    pub(super) number: u64,
    pub(super) executable: bool,
}

/// A path from the bytes that a program printed, with `/` between its parts. `None` if no file here can have that
/// name: on Windows names are Unicode.
pub fn path_from_bytes(bytes: &[u8]) -> Option<PathBuf> {
    os::path_from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_mark_tells_a_changed_file_and_what_a_name_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "one").unwrap();
        let before = FileMark::of(&path).unwrap();
        assert_eq!((before.kind, before.size), (MarkKind::File, 3));
        assert_eq!(before, FileMark::of(&path).unwrap());
        std::fs::write(&path, "two!").unwrap();
        assert_ne!(before, FileMark::of(&path).unwrap());
        assert_eq!(FileMark::of(folder.path()).unwrap().kind, MarkKind::Folder);
        assert!(FileMark::of(&folder.path().join("none")).is_err());
    }

    #[test]
    fn times_are_since_1970() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "one").unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let mark = FileMark::of(&path).unwrap();
        for at in [mark.modified_ns, mark.changed_ns] {
            let apart = at - i128::try_from(now.as_nanos()).unwrap();
            assert!(apart.abs() < 60_000_000_000, "{apart} ns apart");
        }
    }

    #[test]
    fn a_name_is_taken_as_it_is() {
        let name = "Ünï/日本 \t\"\n-";
        assert_eq!(path_from_bytes(name.as_bytes()), Some(PathBuf::from(name)));
    }
}
