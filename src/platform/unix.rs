//! The Unix side of this room. Linux and macOS differ in three places: the parent watch, the file
//! system type, and where the process table comes from.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
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

/// Whether a file can be synced while another program has it open.
pub(super) const SYNCS_HELD_FILES: bool = true;

/// Waits until the disk has a file as it is now.
pub(super) fn sync_file(path: &Path) -> io::Result<()> {
    open_no_link(path)?.sync_all()
}

/// Gives a new file the permissions, the owner and the extended attributes of the one it will replace.
pub(super) fn keep_identity(file: &File, old_path: &Path, old: &fs::Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    copy_attributes(file, old_path)?;
    // After the owner: changing that clears the set-id bits.
    set_mode(file, old.mode() & 0o7777)
}

fn copy_attributes(file: &File, old_path: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    let none = |error: Errno| matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODATA);
    let mut names = vec![0; 64 * 1024];
    let length = match rustix::fs::llistxattr(old_path, &mut names) {
        Ok(length) => length,
        Err(error) if none(error) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 * 1024];
        let result = rustix::fs::lgetxattr(old_path, name, &mut value).and_then(|length| {
            rustix::fs::fsetxattr(file, name, &value[..length], rustix::fs::XattrFlags::empty())
        });
        match result {
            Ok(()) => {}
            // Labels of a security module are set by the system itself.
            Err(error) if none(error) || name.starts_with(b"security.") => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub(super) fn replace_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Names beside its target that a replacement through `temporary` uses, and may leave when it is cut off.
pub(super) fn names_of_replacement(temporary: &Path) -> Vec<PathBuf> {
    vec![temporary.to_path_buf()]
}

/// There is no moment without a file under the name.
pub(super) fn take_back(_path: &Path, _temporary: &Path) -> io::Result<()> {
    Ok(())
}

pub(super) fn remove_leftover(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// A link is removed like a file.
pub(super) fn remove_file_or_link(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// Two files change places in one step.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(super) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(super) fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether the file system cannot do that.
pub(super) fn cannot_exchange(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error();
    error.kind() == io::ErrorKind::Unsupported
        || [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::BUSY]
            .iter()
            .any(|known| number == Some(known.raw_os_error()))
}

/// Whether a file could not be replaced because it is a mount point.
pub(super) fn is_mount_point(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::BUSY)
}

/// Lets the owner change what is in a folder (a file needs nothing to be removed).
pub(super) fn make_writable(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() && found.mode() & 0o700 != 0o700 {
        fs::set_permissions(path, Permissions::from_mode(found.mode() & 0o7777 | 0o700))?;
    }
    Ok(())
}

/// Takes away every permission to write.
pub(super) fn seal(path: &Path) -> io::Result<()> {
    let mode = fs::symlink_metadata(path)?.mode() & 0o7777;
    let is_program = mode & 0o100 != 0;
    let sealed = if is_program { 0o555 } else { 0o444 };
    if mode == sealed { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(sealed)) }
}

pub(super) fn mode_of(found: &fs::Metadata) -> Option<u32> {
    Some(found.mode() & 0o7777)
}

pub(super) fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, into, at)
}

pub(super) fn make_link(target: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, at)
}

pub(super) fn free_space(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(target_os = "macos")]
pub(super) fn clear_quarantine(file: &File) -> io::Result<bool> {
    use rustix::io::Errno;
    match rustix::fs::fremovexattr(file, "com.apple.quarantine") {
        Ok(()) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) if error.raw_os_error() == ENOATTR => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What macOS says where an attribute is not there.
#[cfg(target_os = "macos")]
const ENOATTR: i32 = 93;

#[cfg(not(target_os = "macos"))]
pub(super) fn clear_quarantine(_file: &File) -> io::Result<bool> {
    Ok(false)
}

pub(super) fn open_no_link(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Unix replaces files that others have open.
pub(super) fn is_busy(_error: &io::Error) -> bool {
    false
}

/// Unix opens files that others have open.
pub(super) fn is_held(_error: &io::Error) -> bool {
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

pub(super) fn file_id(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

pub(super) fn times_of(found: &fs::Metadata) -> super::marks::Times {
    let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    super::marks::Times {
        modified_ns: nanoseconds(found.mtime(), found.mtime_nsec()),
        changed_ns: nanoseconds(found.ctime(), found.ctime_nsec()),
        number: found.ino(),
        executable: found.mode() & 0o100 != 0,
    }
}

pub(super) fn path_from_bytes(bytes: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
}

pub(super) fn open_to_run(path: &Path) -> io::Result<File> {
    open_no_link(path)
}

pub(super) fn keep_across_exec(file: &File) -> io::Result<Option<u32>> {
    use std::os::fd::AsRawFd as _;
    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
    Ok(u32::try_from(file.as_raw_fd()).ok())
}

/// The open file of that number, if it is the file at `path`. From then on it is not inherited.
pub(super) fn adopt(number: u32, path: &Path) -> Option<File> {
    use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};
    let number = i32::try_from(number).ok().filter(|number| *number > 2)?;
    // SAFETY: a number that is not open makes the calls on it fail, and nothing else is done with it then.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let open = rustix::fs::fstat(borrowed).ok()?;
    let named = rustix::fs::stat(path).ok()?;
    if (open.st_dev, open.st_ino) != (named.st_dev, named.st_ino) {
        return None;
    }
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open, it was handed to this process under this number, and nothing else here knows it.
    Some(File::from(unsafe { OwnedFd::from_raw_fd(number) }))
}

#[cfg(target_os = "linux")]
pub(super) fn lock_owners(path: &Path) -> Option<Vec<u32>> {
    let found = fs::metadata(path).ok()?;
    let table = fs::read_to_string("/proc/locks").ok()?;
    let device = format!("{:02x}:{:02x}", rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    Some(owners_in(&table, &device, found.ino()))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn lock_owners(_path: &Path) -> Option<Vec<u32>> {
    None
}

/// See proc_locks(5). Some file systems show another device there than stat(2) does; then the inode has to do.
#[cfg(target_os = "linux")]
fn owners_in(table: &str, device: &str, inode: u64) -> Vec<u32> {
    let rows = table.lines().filter_map(|line| {
        // Of those who wait there is a line too, with an arrow.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields.as_slice() else { return None };
        let (on, number) = file.rsplit_once(':')?;
        (number.parse::<u64>().ok()? == inode)
            .then_some((on, pid.parse::<u32>().ok().filter(|pid| *pid > 0)?))
    });
    let rows: Vec<(&str, u32)> = rows.collect();
    let exact = rows.iter().any(|(on, _)| *on == device);
    let mut owners: Vec<u32> =
        rows.iter().filter(|(on, _)| !exact || *on == device).map(|(_, pid)| *pid).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

#[cfg(target_os = "linux")]
pub(super) fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|text| text.trim().to_owned())
}

#[cfg(target_os = "linux")]
pub(super) fn process_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn boot_id() -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn process_namespace() -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn group_and_session(pid: u32) -> (u32, u32) {
    let Some(id) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return (0, 0) };
    let number = |found: Result<rustix::process::Pid, rustix::io::Errno>| {
        found.ok().map_or(0, |id| u32::try_from(id.as_raw_nonzero().get()).unwrap_or(0))
    };
    (number(rustix::process::getpgid(Some(id))), number(rustix::process::getsid(Some(id))))
}

/// The system had said all that it tells.
#[cfg(not(target_os = "linux"))]
pub(super) fn look_again(_pid: u32) -> super::programs::SecondLook {
    super::programs::SecondLook::Unknown
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
