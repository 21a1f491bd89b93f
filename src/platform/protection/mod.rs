//! Who may read and write a private folder and everything in it: looked at and set through handles that follow no
//! link, so that nobody can lead the walk elsewhere by exchanging a folder.
//!
//! On Unix: folders 0700, files 0600, owned by the effective user. On Windows: owned by the user, full control for
//! the user and at most for SYSTEM and Administrators, nothing for anybody else, and no inheritance into the root.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

#[cfg_attr(not(windows), allow(dead_code, reason = "the rules of Windows, which every system tests"))]
mod sddl;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

/// Deepest folder that is entered; each level holds a handle.
const DEEPEST: usize = 64;

/// What a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A folder.
    Folder,
    /// A regular file.
    File,
    /// A symbolic link, a junction or another reparse point.
    Link,
    /// A socket, a pipe, a device.
    Special,
}

/// Who may do what, as text: on Unix `uid:gid` and the permission bits (`0600`, with a default access list in
/// hexadecimal where there is one), on Windows the owner's SID and the access list as SDDL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Protection {
    /// The owner.
    pub owner: String,
    /// What is allowed to whom.
    pub permissions: String,
}

/// What is wrong with a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultKind {
    /// Others may read, write or enter it, or the owner may not.
    Permissions,
    /// What is made in it later would be open to others.
    Inheritance,
    /// It belongs to somebody else.
    Owner,
    /// A link, which leads out of what can be protected.
    Link,
    /// The same file has a name outside.
    HardLink,
    /// Another file system begins here.
    MountPoint,
    /// Neither a file nor a folder.
    Special,
    /// It may not be looked at.
    Unreadable,
    /// It was exchanged between two looks.
    Exchanged,
}

impl FaultKind {
    /// Whether setting its permissions mends it.
    pub fn can_be_mended(self) -> bool {
        matches!(self, Self::Permissions | Self::Inheritance)
    }

    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permissions => "permissions",
            Self::Inheritance => "inheritance",
            Self::Owner => "owner",
            Self::Link => "link",
            Self::HardLink => "hardLink",
            Self::MountPoint => "mountPoint",
            Self::Special => "special",
            Self::Unreadable => "unreadable",
            Self::Exchanged => "exchanged",
        }
    }
}

/// Something that is wrong, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// What was found.
    pub what: String,
}

impl Fault {
    pub(super) fn new(kind: FaultKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into() }
    }
}

/// A thing as one look found it.
#[derive(Clone, Debug)]
pub(super) struct Look {
    kind: Kind,
    protection: Protection,
    /// Names of the same file.
    links: u64,
    /// Numbers that tell it from every other.
    identity: (u64, u64),
    is_mount_point: bool,
}

/// One thing in the tree.
#[derive(Clone, Debug)]
pub struct Item {
    /// Path below the root, with slashes; empty for the root.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// How it is protected.
    pub protection: Protection,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// Something more about a thing that was reported already.
    pub again: bool,
}

/// Who an owner must be, as [`Protection::owner`] names them.
pub fn expected_owner() -> String {
    os::expected_owner()
}

/// How a thing should be protected.
pub fn wanted(kind: Kind, now: &Protection) -> Protection {
    Protection { owner: now.owner.clone(), permissions: os::wanted(kind) }
}

/// Whether these permissions are as they should be.
pub fn is_wanted(kind: Kind, now: &Protection, is_root: bool) -> bool {
    os::faults(kind, now, is_root).is_empty()
}

/// Looks at a folder and everything in it, parents first. Fails only if the root itself cannot be looked at.
/// `root` is canonical.
pub fn walk(root: &Path, visit: &mut dyn FnMut(Item)) -> io::Result<()> {
    let folder = os::Folder::root(root)?;
    let look = folder.look(None)?;
    let mut walk = Walk { visit, names_of: BTreeMap::new() };
    walk.report(String::new(), &look, Vec::new(), true);
    walk.inside(&folder, "", 0);
    walk.report_hard_links();
    Ok(())
}

struct Walk<'a> {
    visit: &'a mut dyn FnMut(Item),
    /// Of each file with several names: how many, how many were met, the first, and how it is protected.
    names_of: BTreeMap<(u64, u64), (u64, u64, String, Protection)>,
}

impl Walk<'_> {
    fn report(&mut self, path: String, look: &Look, mut faults: Vec<Fault>, is_root: bool) {
        let kind = look.kind;
        match kind {
            Kind::Link => faults.push(Fault::new(FaultKind::Link, "a link")),
            Kind::Special => faults.push(Fault::new(FaultKind::Special, "neither a file nor a folder")),
            Kind::Folder | Kind::File => faults.extend(os::faults(kind, &look.protection, is_root)),
        }
        if look.is_mount_point && !is_root {
            faults.push(Fault::new(FaultKind::MountPoint, "another file system begins here"));
        }
        (self.visit)(Item { path, kind, protection: look.protection.clone(), faults, again: false });
    }

    fn inside(&mut self, folder: &os::Folder, at: &str, depth: usize) {
        let names = match folder.names() {
            Ok(names) => names,
            Err(error) => return self.unreadable(at, &error),
        };
        for name in names {
            let path = join(at, &name);
            match folder.look(Some(&name)) {
                Ok(look) => self.entry(folder, &name, path, &look, depth),
                // It went away between the list and the look: a running server does that.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.unreadable(&path, &error),
            }
        }
    }

    fn entry(&mut self, parent: &os::Folder, name: &OsStr, path: String, look: &Look, depth: usize) {
        if look.kind == Kind::File && look.links > 1 {
            let entry = self
                .names_of
                .entry(look.identity)
                .or_insert_with(|| (look.links, 0, path.clone(), look.protection.clone()));
            entry.1 += 1;
        }
        self.report(path.clone(), look, Vec::new(), false);
        if look.kind != Kind::Folder || look.is_mount_point {
            return;
        }
        if depth + 1 >= DEEPEST {
            return self.unreadable(&path, &io::Error::other("it is nested too deeply"));
        }
        match parent.open(name, look) {
            Ok(folder) => self.inside(&folder, &path, depth + 1),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_exchanged(&error) => {
                self.fault(
                    &path,
                    Fault::new(FaultKind::Exchanged, "it was exchanged while it was looked at"),
                );
            }
            Err(error) => self.unreadable(&path, &error),
        }
    }

    fn unreadable(&mut self, path: &str, error: &io::Error) {
        self.fault(path, Fault::new(FaultKind::Unreadable, format!("it cannot be looked into: {error}")));
    }

    /// A fault that is found without a look, or after it.
    fn fault(&mut self, path: &str, fault: Fault) {
        let protection = Protection { owner: String::new(), permissions: String::new() };
        (self.visit)(Item {
            path: path.to_owned(),
            kind: Kind::Folder,
            protection,
            faults: vec![fault],
            again: true,
        });
    }

    fn report_hard_links(&mut self) {
        for (links, met, path, protection) in std::mem::take(&mut self.names_of).into_values() {
            if links > met {
                let what = format!("the same file has {} more names outside", links - met);
                let faults = vec![Fault::new(FaultKind::HardLink, what)];
                (self.visit)(Item { path, kind: Kind::File, protection, faults, again: true });
            }
        }
    }
}

fn join(at: &str, name: &OsStr) -> String {
    // A name that is not Unicode is shown as far as it is; it can be reported but not set by this path.
    let name = name.to_string_lossy();
    if at.is_empty() { name.into_owned() } else { format!("{at}/{name}") }
}

/// How a thing is protected now, and what it is; none if it is not there.
pub fn look(root: &Path, path: &str) -> io::Result<Option<(Kind, Protection)>> {
    let found = reach(root, path, |folder, name| folder.look(name));
    match found {
        Ok(look) => Ok(Some((look.kind, look.protection))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sets the permissions of a thing that still is what it was; its owner is left.
pub fn set(root: &Path, path: &str, kind: Kind, before: &Protection, after: &Protection) -> io::Result<()> {
    reach(root, path, |folder, name| {
        let look = folder.look(name)?;
        if look.kind != kind || look.protection != *before || look.is_mount_point && name.is_some() {
            return Err(exchanged());
        }
        folder.set(name, &look, &after.permissions)
    })
}

/// Opens the folder that holds a thing, step by step from the root, and gives it with the thing's name.
fn reach<T>(
    root: &Path,
    path: &str,
    act: impl FnOnce(&os::Folder, Option<&OsStr>) -> io::Result<T>,
) -> io::Result<T> {
    let mut folder = os::Folder::root(root)?;
    let parts: Vec<OsString> = path.split('/').filter(|part| !part.is_empty()).map(OsString::from).collect();
    let Some((name, above)) = parts.split_last() else { return act(&folder, None) };
    if parts.len() > DEEPEST || parts.iter().any(|part| part == "." || part == "..") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no path in the folder"));
    }
    for part in above {
        let look = folder.look(Some(part))?;
        if look.kind != Kind::Folder || look.is_mount_point {
            return Err(exchanged());
        }
        folder = folder.open(part, &look)?;
    }
    act(&folder, Some(name))
}

const EXCHANGED: &str = "it is not what it was a moment ago";

fn exchanged() -> io::Error {
    io::Error::other(EXCHANGED)
}

fn is_exchanged(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Other && error.to_string() == EXCHANGED
}

/// The folders above a path in which somebody else could exchange what leads to it, with the reason.
pub fn weak_parents(path: &Path) -> Vec<String> {
    path.ancestors()
        .skip(1)
        .filter_map(|folder| os::weakness(folder).map(|why| format!("{}: {why}", folder.display())))
        .collect()
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A folder with a folder and a file, and the same outside.
    fn scene() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let scene = tempfile::tempdir().unwrap();
        let (root, outside) = (scene.path().join("root"), scene.path().join("outside"));
        for folder in [&root, &outside] {
            fs::create_dir_all(folder.join("folder")).unwrap();
            fs::write(folder.join("file"), "x").unwrap();
            set_mode(&folder.join("folder"), 0o755);
            set_mode(&folder.join("file"), 0o644);
        }
        (scene, root, outside)
    }

    #[test]
    fn what_was_exchanged_after_the_look_is_neither_entered_nor_set() {
        for name in ["folder", "file"] {
            for by_link in [true, false] {
                let (scene, root, outside) = scene();
                let folder = os::Folder::root(&root).unwrap();
                let look = folder.look(Some(OsStr::new(name))).unwrap();
                fs::rename(root.join(name), scene.path().join("aside")).unwrap();
                if by_link {
                    symlink(outside.join(name), root.join(name)).unwrap();
                } else {
                    fs::rename(outside.join(name), root.join(name)).unwrap();
                }
                if name == "folder" {
                    assert!(is_exchanged(&folder.open(OsStr::new(name), &look).err().unwrap()));
                }
                assert!(folder.set(Some(OsStr::new(name)), &look, "0700").is_err(), "{name}");
                let other = if by_link { outside.join(name) } else { root.join(name) };
                assert_eq!(mode(&other), if name == "folder" { 0o755 } else { 0o644 }, "{name}");
                assert_ne!(mode(&scene.path().join("aside")), 0o700);
            }
        }
    }

    #[test]
    fn a_path_through_a_link_is_not_reached() {
        let (_scene, root, outside) = scene();
        symlink(&outside, root.join("link")).unwrap();
        let is = look(&outside, "file").unwrap().unwrap();
        let wanted = wanted(Kind::File, &is.1);
        assert!(look(&root, "link/file").is_err());
        assert!(set(&root, "link/file", Kind::File, &is.1, &wanted).is_err());
        assert!(set(&root, "../outside/file", Kind::File, &is.1, &wanted).is_err());
        assert!(set(&root.join("link"), "file", Kind::File, &is.1, &wanted).is_err(), "nor as the root");
        assert_eq!(mode(&outside.join("file")), 0o644);
        set(&outside, "file", Kind::File, &is.1, &wanted).unwrap();
        assert_eq!(mode(&outside.join("file")), 0o600);
        let stale = set(&outside, "file", Kind::File, &is.1, &wanted);
        assert!(is_exchanged(&stale.unwrap_err()), "it is not as it was said to be");
    }
}
