//! The Unix side of this room. Linux and macOS differ in three places: the parent watch, the file
//! system type, and where the process table comes from.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

pub(super) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))
}

pub(super) fn private(options: &mut OpenOptions) {
    options.mode(0o600);
}

pub(super) fn create_dir_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        // Some shared file systems cannot sync a folder and say so; there is nothing more to do.
        Err(error)
            if matches!(
                rustix::io::Errno::from_io_error(&error),
                Some(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP)
            ) =>
        {
            Ok(())
        }
        done => done,
    }
}

/// Unix replaces files that others have open.
pub(super) fn is_busy(_error: &io::Error) -> bool {
    false
}

pub(super) fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || matches!(
            rustix::io::Errno::from_io_error(error),
            Some(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOLCK | rustix::io::Errno::NOSYS)
        )
}

/// Whether `path` still leads to this very file.
pub(super) fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => open.dev() == named.dev() && open.ino() == named.ino(),
        _ => false,
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn group_and_session(pid: u32) -> (u32, u32) {
    let Some(id) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return (0, 0) };
    let number = |found: Result<rustix::process::Pid, rustix::io::Errno>| {
        found.ok().map_or(0, |id| u32::try_from(id.as_raw_nonzero().get()).unwrap_or(0))
    };
    (number(rustix::process::getpgid(Some(id))), number(rustix::process::getsid(Some(id))))
}

/// The parent process, held so that its end can be waited for.
pub(super) struct Parent {
    pid: rustix::process::Pid,
    #[cfg(target_os = "linux")]
    handle: Option<std::os::fd::OwnedFd>,
}

impl Parent {
    pub(super) fn current() -> Option<Self> {
        let pid = rustix::process::getppid()?;
        let parent = Self {
            pid,
            #[cfg(target_os = "linux")]
            handle: rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok(),
        };
        // If it ended before it could be held, the id may already be somebody else's; then the poll
        // below sees a changed parent at once.
        Some(parent)
    }

    /// Returns when the parent has ended.
    pub(super) fn wait(&self) {
        while rustix::process::getppid() == Some(self.pid) {
            if !self.sleep() {
                return;
            }
        }
    }

    /// Waits for a sign of the parent's end; `false` if it came for certain.
    #[cfg(target_os = "linux")]
    fn sleep(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let Some(handle) = &self.handle else {
            std::thread::sleep(Duration::from_millis(250));
            return true;
        };
        let mut waiting = [PollFd::new(handle, PollFlags::IN)];
        match poll(&mut waiting, None) {
            Ok(count) => count == 0,
            Err(rustix::io::Errno::INTR) => true,
            Err(_) => {
                std::thread::sleep(Duration::from_millis(250));
                true
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn sleep(&self) -> bool {
        std::thread::sleep(Duration::from_millis(250));
        true
    }
}

/// File systems that are shared between machines, by the numbers of statfs(2). FUSE is left out: it
/// serves local disks as often as remote ones.
#[cfg(target_os = "linux")]
pub(super) fn is_network_filesystem(path: &Path) -> bool {
    const SHARED: [u32; 13] = [
        0x6969,      // NFS
        0x517B,      // SMB
        0xFE53_4D42, // SMB2
        0xFF53_4D42, // CIFS
        0x0102_1997, // 9P (WSL, containers)
        0x564C,      // NCP
        0x7375_7245, // Coda
        0x5346_414F, // AFS
        0x00C3_6400, // Ceph
        0x786F_4256, // VirtualBox shared folders
        0xBACB_ACBC, // VMware shared folders
        0x0BD0_0BD0, // Lustre
        0x7461_636F, // OCFS2
    ];
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "file system numbers have 32 bits, whatever the width and sign of the field"
    )]
    rustix::fs::statfs(path).is_ok_and(|found| SHARED.contains(&(found.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_network_filesystem(_path: &Path) -> bool {
    false
}
