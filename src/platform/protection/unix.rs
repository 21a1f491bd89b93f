//! The Unix side: `openat`, `fstatat` and permission bits; never a path that a link could bend.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use super::{Fault, FaultKind, Kind, Look, Protection, exchanged};

/// Rights that files inherit from a folder, beside its permission bits.
const DEFAULT_LIST: &str = "system.posix_acl_default";
const DEFAULT_WORD: &str = " default-acl=";
/// Largest access list that is read.
const LONGEST_LIST: usize = 64 * 1024;

pub(super) fn expected_owner() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

pub(super) fn wanted(kind: Kind) -> String {
    match kind {
        Kind::Folder => "0700".into(),
        _ => "0600".into(),
    }
}

/// What is wrong with the owner and the permissions of a thing.
pub(super) fn faults(kind: Kind, protection: &Protection, _is_root: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let (bits, list) = split(&protection.permissions);
    let wanted = wanted(kind);
    if bits != wanted {
        faults.push(Fault::new(FaultKind::Permissions, format!("its mode is {bits}, not {wanted}")));
    }
    if !list.is_empty() {
        faults.push(Fault::new(FaultKind::Inheritance, "a default access list opens what is made in it"));
    }
    let owner = protection.owner.split(':').next().unwrap_or_default();
    if owner != expected_owner() {
        let what = format!("it belongs to user {owner}, not {}", expected_owner());
        faults.push(Fault::new(FaultKind::Owner, what));
    }
    faults
}

fn split(permissions: &str) -> (&str, &str) {
    permissions.split_once(DEFAULT_WORD).unwrap_or((permissions, ""))
}

/// Why somebody else could exchange what lies in a folder.
pub(super) fn weakness(folder: &Path) -> Option<String> {
    let found = std::fs::metadata(folder).ok()?;
    let me = rustix::process::geteuid().as_raw();
    let is_sticky = found.mode() & 0o1000 != 0;
    if found.mode() & 0o022 != 0 && !is_sticky {
        return Some(format!("others may write to it (mode {:04o})", found.mode() & 0o7777));
    }
    (found.uid() != 0 && found.uid() != me).then(|| format!("it belongs to user {}", found.uid()))
}

/// An open folder.
pub(super) struct Folder {
    handle: OwnedFd,
    /// The device it lies on.
    device: u64,
}

impl Folder {
    /// Opens a folder by its canonical path, no part of which may have become a link.
    pub(super) fn root(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Self::of(open_root(path, flags)?)
    }

    fn of(handle: OwnedFd) -> io::Result<Self> {
        let device = device_of(&rustix::fs::fstat(&handle)?);
        Ok(Self { handle, device })
    }

    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.handle)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort();
        Ok(names)
    }

    /// A thing in the folder, or the folder itself.
    pub(super) fn look(&self, name: Option<&OsStr>) -> io::Result<Look> {
        let found = match name {
            None => rustix::fs::fstat(&self.handle)?,
            Some(name) => rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)?,
        };
        let kind = kind_of(&found);
        #[allow(clippy::useless_conversion, reason = "the field has another type elsewhere")]
        let mut permissions = format!("{:04o}", u32::from(found.st_mode) & 0o7777);
        if kind == Kind::Folder
            && let Some(list) = self.default_list(name, &found)
        {
            permissions.push_str(DEFAULT_WORD);
            permissions.push_str(&list);
        }
        let is_mount_point =
            name.is_some_and(|name| device_of(&found) != self.device || is_mount_point(&self.handle, name));
        Ok(Look {
            kind,
            protection: Protection { owner: format!("{}:{}", found.st_uid, found.st_gid), permissions },
            links: links_of(&found),
            identity: identity_of(&found),
            is_mount_point,
        })
    }

    /// Opens a folder in this one that still is the one that was looked at.
    pub(super) fn open(&self, name: &OsStr, look: &Look) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => return Err(exchanged()),
            other => other?,
        };
        if identity_of(&rustix::fs::fstat(&handle)?) != look.identity {
            return Err(exchanged());
        }
        Self::of(handle)
    }

    /// Sets the permissions of the thing that was looked at, and of no other.
    pub(super) fn set(&self, name: Option<&OsStr>, look: &Look, permissions: &str) -> io::Result<()> {
        let (bits, list) = split(permissions);
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "these are no permissions");
        let mode = u32::from_str_radix(bits, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(invalid)?;
        let list = bytes_of(list).ok_or_else(invalid)?;
        if look.kind == Kind::Folder {
            let opened;
            let handle = match name {
                None => &self.handle,
                Some(name) => {
                    opened = self.open(name, look)?;
                    &opened.handle
                }
            };
            set_default_list(handle, &list)?;
            return Ok(rustix::fs::fchmod(handle, Mode::from_raw_mode(mode as rustix::fs::RawMode))?);
        }
        let Some(name) = name else { return Err(invalid()) };
        set_file_mode(&self.handle, name, look, mode)
    }

    /// What things made in a folder inherit, in hexadecimal.
    fn default_list(&self, name: Option<&OsStr>, found: &Stat) -> Option<String> {
        let opened;
        let handle = match name {
            None => &self.handle,
            Some(name) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                opened = rustix::fs::openat(&self.handle, name, flags, Mode::empty()).ok()?;
                if identity_of(&rustix::fs::fstat(&opened).ok()?) != identity_of(found) {
                    return None;
                }
                &opened
            }
        };
        let mut list = vec![0_u8; LONGEST_LIST];
        let length = rustix::fs::fgetxattr(handle, DEFAULT_LIST, list.as_mut_slice()).ok()?;
        let text: String = list.get(..length)?.iter().map(|byte| format!("{byte:02x}")).collect();
        (!text.is_empty()).then_some(text)
    }
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() || text.len() > 2 * LONGEST_LIST {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

fn set_default_list(handle: &OwnedFd, list: &[u8]) -> io::Result<()> {
    use rustix::io::Errno;
    let done = if list.is_empty() {
        rustix::fs::fremovexattr(handle, DEFAULT_LIST)
    } else {
        rustix::fs::fsetxattr(handle, DEFAULT_LIST, list, rustix::fs::XattrFlags::empty())
    };
    match done {
        // Nothing there to be removed, or no such thing on this file system or system.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)
            if list.is_empty() =>
        {
            Ok(())
        }
        #[cfg(target_vendor = "apple")]
        Err(Errno::NOATTR) if list.is_empty() => Ok(()),
        other => Ok(other?),
    }
}

fn kind_of(found: &Stat) -> Kind {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => Kind::Folder,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Link,
        _ => Kind::Special,
    }
}

#[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "these fields have other types elsewhere")]
fn device_of(found: &Stat) -> u64 {
    found.st_dev as u64
}

#[allow(clippy::unnecessary_cast, reason = "these fields have other types elsewhere")]
fn links_of(found: &Stat) -> u64 {
    found.st_nlink as u64
}

#[allow(clippy::unnecessary_cast, reason = "these fields have other types elsewhere")]
fn identity_of(found: &Stat) -> (u64, u64) {
    (device_of(found), found.st_ino as u64)
}

#[cfg(target_os = "linux")]
fn open_root(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{CWD, ResolveFlags, openat2};
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Not known to this kernel or not let through by a filter; the path was canonical a moment ago.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            rustix::fs::open(path, flags, Mode::empty())
        }
        other => other,
    }
}

#[cfg(not(target_os = "linux"))]
fn open_root(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, flags, Mode::empty())
}

/// Also a mount of another part of the same device, which only the kernel can tell.
#[cfg(target_os = "linux")]
fn is_mount_point(folder: &OwnedFd, name: &OsStr) -> bool {
    use rustix::fs::{StatxAttributes, StatxFlags, statx};
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(folder, name, flags, StatxFlags::TYPE)
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
fn is_mount_point(_folder: &OwnedFd, _name: &OsStr) -> bool {
    false
}

/// A file that its owner may not read can only be held by its place; the permissions are then set through that
/// handle, so that a link put in its stead is not followed.
#[cfg(target_os = "linux")]
fn set_file_mode(folder: &OwnedFd, name: &OsStr, look: &Look, mode: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::PermissionsExt as _;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&handle)?;
    if identity_of(&found) != look.identity || kind_of(&found) != look.kind {
        return Err(exchanged());
    }
    let held = format!("/proc/self/fd/{}", handle.as_raw_fd());
    std::fs::set_permissions(held, std::fs::Permissions::from_mode(mode))
}

#[cfg(not(target_os = "linux"))]
fn set_file_mode(folder: &OwnedFd, name: &OsStr, look: &Look, mode: u32) -> io::Result<()> {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if identity_of(&found) != look.identity || kind_of(&found) != look.kind {
        return Err(exchanged());
    }
    // Here this call changes a link itself, never what it leads to.
    let mode = Mode::from_raw_mode(mode as rustix::fs::RawMode);
    Ok(rustix::fs::chmodat(folder, name, mode, AtFlags::SYMLINK_NOFOLLOW)?)
}
