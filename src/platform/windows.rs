//! The Windows side of this room.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_DIR_NOT_EMPTY, ERROR_INVALID_FUNCTION, ERROR_INVALID_HANDLE,
    ERROR_INVALID_PARAMETER, ERROR_LOCK_VIOLATION, ERROR_NOT_SUPPORTED, ERROR_SHARING_VIOLATION,
    ERROR_UNABLE_TO_MOVE_REPLACEMENT, ERROR_UNABLE_TO_MOVE_REPLACEMENT_2, ERROR_UNABLE_TO_REMOVE_REPLACED,
    ERROR_USER_MAPPED_FILE, WAIT_OBJECT_0,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_OPEN_REPARSE_POINT, FILE_SHARE_READ, GetDiskFreeSpaceExW, ReplaceFileW,
};
use windows_sys::Win32::System::Threading::{
    INFINITE, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE,
    QueryFullProcessImageNameW, WaitForSingleObject,
};

use super::durable::{BUSY_BUDGET, retry_while_busy};
use super::processes;
use super::programs::SecondLook;

/// Permissions come from the access list of the folder.
pub(super) fn set_mode(_file: &File, _mode: u32) -> io::Result<()> {
    Ok(())
}

pub(super) fn private(_options: &mut OpenOptions) {}

pub(super) fn create_dir_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().create(path)
}

/// NTFS journals its folders; there is no call to sync one.
pub(super) fn sync_dir(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Whether a file can be synced while another program has it open.
pub(super) const SYNCS_HELD_FILES: bool = false;

/// Waits until the disk has a file as it is now. That needs the right to write; a file that is read-only was
/// synced before it became that, and a program that runs before it was started.
pub(super) fn sync_file(path: &Path) -> io::Result<()> {
    let file = retry_while_busy(
        BUSY_BUDGET,
        |error| is_held(error) && !is_program(path),
        || OpenOptions::new().write(true).open(path),
    );
    match file.and_then(|file| file.sync_all()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) if is_held(&error) && is_program(path) => Ok(()),
        done => done,
    }
}

/// Another program has the file open. "Access denied" is among them: that is what replacing a file
/// reports while a scanner holds it or its deletion is pending; so is a folder that is not empty because of that.
pub(super) fn is_busy(error: &io::Error) -> bool {
    is_held(error)
        || is_one_of(
            error,
            &[
                ERROR_ACCESS_DENIED,
                ERROR_USER_MAPPED_FILE,
                ERROR_DIR_NOT_EMPTY,
                ERROR_UNABLE_TO_REMOVE_REPLACED,
                ERROR_UNABLE_TO_MOVE_REPLACEMENT,
                ERROR_UNABLE_TO_MOVE_REPLACEMENT_2,
            ],
        )
}

/// The same without the errors that can have other reasons.
pub(super) fn is_held(error: &io::Error) -> bool {
    is_one_of(error, &[ERROR_SHARING_VIOLATION, ERROR_LOCK_VIOLATION])
}

fn is_program(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("exe"))
}

/// `ReplaceFileW` keeps the access list and the attributes of what it replaces.
pub(super) fn keep_identity(_file: &File, _old_path: &Path, _old: &std::fs::Metadata) -> io::Result<()> {
    Ok(())
}

/// `ReplaceFileW` is made of several steps. It is given a name for the old file, since without one it can fail with
/// the old file gone; and it is the name that a program gets which runs, for such a one can be renamed but not
/// removed.
pub(super) fn replace_file(from: &Path, to: &Path) -> io::Result<()> {
    if !is_there(to) {
        return std::fs::rename(from, to);
    }
    let old = free_name(from)?;
    if let Err(error) = replace_keeping(from, to, &old) {
        if !is_there(to) && is_there(&old) {
            std::fs::rename(&old, to)?;
        }
        if !is_program(to) || !is_busy(&error) {
            return Err(error);
        }
        std::fs::rename(to, &old).map_err(|_| error)?;
        if let Err(error) = std::fs::rename(from, to) {
            let _ = std::fs::rename(&old, to);
            return Err(error);
        }
    }
    // The new content is in place. What cannot be removed now is in its names below.
    let _ = remove_leftover(&old);
    Ok(())
}

fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Names beside its target that a replacement through `temporary` uses, and may leave when it is cut off.
pub(super) fn names_of_replacement(temporary: &Path) -> Vec<PathBuf> {
    let name = temporary.file_name().unwrap_or_default();
    let old = |number: u32| {
        let mut name = name.to_os_string();
        name.push(format!(".old{number}"));
        temporary.with_file_name(name)
    };
    [temporary.to_path_buf()].into_iter().chain((1..=4).map(old)).collect()
}

/// A name for the old file. One that was used before belongs to a program that still runs, or to somebody's scan.
fn free_name(temporary: &Path) -> io::Result<PathBuf> {
    let mut names = names_of_replacement(temporary);
    names.remove(0);
    for name in names {
        let _ = std::fs::remove_file(&name);
        if !is_there(&name) {
            return Ok(name);
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "earlier versions of the file are still in use"))
}

/// A replacement that was cut off between its steps leaves nothing under the name of the file; then the old one
/// gets it back.
pub(super) fn take_back(path: &Path, temporary: &Path) -> io::Result<()> {
    if is_there(path) {
        return Ok(());
    }
    match names_of_replacement(temporary).into_iter().skip(1).find(|name| is_there(name)) {
        Some(old) => retry_while_busy(BUSY_BUDGET, is_busy, || std::fs::rename(&old, path)),
        None => Ok(()),
    }
}

/// Removes a file. A program that runs cannot be removed here: it is left, under a name that nobody starts.
pub(super) fn remove_leftover(path: &Path) -> io::Result<()> {
    let remove = || {
        std::fs::remove_file(path).or_else(|error| {
            make_writable(path)?;
            std::fs::remove_file(path).map_err(|_| error)
        })
    };
    match retry_while_busy(BUSY_BUDGET, is_held, remove) {
        Err(error) if is_one_of(&error, &[ERROR_ACCESS_DENIED]) => Ok(()),
        done => done,
    }
}

/// A link to a folder is removed like a folder.
pub(super) fn remove_file_or_link(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path).or_else(|error| {
        let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if is_link { std::fs::remove_dir(path) } else { Err(error) }
    })
}

fn replace_keeping(from: &Path, to: &Path, old: &Path) -> io::Result<()> {
    let wide = |path: &Path| -> Vec<u16> {
        use std::os::windows::ffi::OsStrExt as _;
        path.as_os_str().encode_wide().chain([0]).collect()
    };
    let (from, to, old) = (wide(from), wide(to), wide(old));
    // SAFETY: all names end in a zero and live until after the call; the others may be null.
    let done = unsafe {
        ReplaceFileW(to.as_ptr(), from.as_ptr(), old.as_ptr(), 0, std::ptr::null(), std::ptr::null())
    };
    if done != 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Two files cannot change places here.
pub(super) fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn cannot_exchange(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

pub(super) fn is_mount_point(_error: &io::Error) -> bool {
    false
}

/// Takes the read-only attribute away, which keeps a file from being removed.
pub(super) fn make_writable(path: &Path) -> io::Result<()> {
    let mut permissions = std::fs::symlink_metadata(path)?.permissions();
    if permissions.readonly() {
        #[allow(
            clippy::permissions_set_readonly_false,
            reason = "on Windows this is an attribute, not a permission"
        )]
        permissions.set_readonly(false);
        std::fs::set_permissions(path, permissions)?;
    }
    Ok(())
}

pub(super) fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, into, at)
}

pub(super) fn make_link(target: &Path, at: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, at)
}

pub(super) fn free_space(folder: &Path) -> Option<u64> {
    use std::os::windows::ffi::OsStrExt as _;
    let wide: Vec<u16> = folder.as_os_str().encode_wide().chain([0]).collect();
    let mut free = 0;
    // SAFETY: the name ends in a zero, the counter lives until after the call, and the others may be null.
    let done = unsafe {
        GetDiskFreeSpaceExW(wide.as_ptr(), &raw mut free, std::ptr::null_mut(), std::ptr::null_mut())
    };
    (done != 0).then_some(free)
}

pub(super) fn clear_quarantine(_file: &File) -> io::Result<bool> {
    Ok(false)
}

/// Sets the read-only attribute; on folders it means nothing.
pub(super) fn seal(path: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(path)?;
    let mut permissions = found.permissions();
    if found.is_dir() || permissions.readonly() {
        return Ok(());
    }
    permissions.set_readonly(true);
    std::fs::set_permissions(path, permissions)
}

pub(super) fn mode_of(_found: &std::fs::Metadata) -> Option<u32> {
    None
}

/// Waits a while for a program that lets nobody else read.
pub(super) fn open_no_link(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    open_the_file_itself(&options, path)
}

fn open_the_file_itself(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let file = retry_while_busy(BUSY_BUDGET, is_held, || options.open(path))?;
    if file.metadata()?.file_type().is_symlink() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a link"));
    }
    Ok(file)
}

pub(super) fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || is_one_of(error, &[ERROR_NOT_SUPPORTED, ERROR_INVALID_FUNCTION])
}

fn is_one_of(error: &io::Error, codes: &[u32]) -> bool {
    error.raw_os_error().and_then(|code| u32::try_from(code).ok()).is_some_and(|code| codes.contains(&code))
}

/// A file that is open for writing without delete sharing cannot be replaced; std does share
/// deletion, but nothing in this project removes lock files.
pub(super) fn is_still_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

pub(super) fn file_id(_path: &Path) -> Option<(u64, u64)> {
    None
}

pub(super) fn times_of(found: &std::fs::Metadata) -> super::marks::Times {
    use std::os::windows::fs::MetadataExt as _;
    /// From 1601 to 1970, in units of 100 ns.
    const BEFORE_1970: i128 = 116_444_736_000_000_000;
    let since_1970 = |ticks: u64| (i128::from(ticks) - BEFORE_1970) * 100;
    super::marks::Times {
        modified_ns: since_1970(found.last_write_time()),
        changed_ns: since_1970(found.last_write_time().max(found.creation_time())),
        number: 0,
        executable: false,
    }
}

pub(super) fn path_from_bytes(bytes: &[u8]) -> Option<PathBuf> {
    std::str::from_utf8(bytes).ok().map(PathBuf::from)
}

/// As long as it is open, nobody writes to the file or takes its name away.
pub(super) fn open_to_run(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.read(true).share_mode(FILE_SHARE_READ).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
    open_the_file_itself(&options, path)
}

/// A program cannot replace itself here: it starts another one and stays.
pub(super) fn keep_across_exec(_file: &File) -> io::Result<Option<u32>> {
    Ok(None)
}

pub(super) fn adopt(_number: u32, _path: &Path) -> Option<File> {
    None
}

pub(super) fn lock_owners(_path: &Path) -> Option<Vec<u32>> {
    None
}

pub(super) fn boot_id() -> Option<String> {
    None
}

pub(super) fn process_namespace() -> Option<u64> {
    None
}

pub(super) fn group_and_session(_pid: u32) -> (u32, u32) {
    (0, 0)
}

/// What a process that told nothing of itself turns out to be.
pub(super) fn look_again(pid: u32) -> SecondLook {
    // SAFETY: no pointers are passed; a null result is handled below.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE, 0, pid) };
    if handle.is_null() {
        // This little is granted to everybody whose process it is, and to nobody else.
        let error = io::Error::last_os_error();
        return if is_one_of(&error, &[ERROR_ACCESS_DENIED]) {
            SecondLook::OfAnother
        } else if is_one_of(&error, &[ERROR_INVALID_PARAMETER]) {
            SecondLook::Gone
        } else {
            SecondLook::Unknown
        };
    }
    // SAFETY: the handle is open, and nobody else owns it.
    let process = unsafe { OwnedHandle::from_raw_handle(handle) };
    let begun = Instant::now();
    loop {
        // SAFETY: the handle is open as long as `process` is.
        if unsafe { WaitForSingleObject(process.as_raw_handle(), 0) } == WAIT_OBJECT_0 {
            return SecondLook::Gone;
        }
        match image_of(&process) {
            Ok(path) => return SecondLook::Runs(path),
            // Under Wine this is a process that is being made and has no file yet.
            Err(error)
                if is_one_of(&error, &[ERROR_INVALID_HANDLE]) && begun.elapsed() < Duration::from_secs(1) =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => return SecondLook::Unknown,
        }
    }
}

fn image_of(process: &OwnedHandle) -> io::Result<PathBuf> {
    use std::os::windows::ffi::OsStringExt as _;
    // As long as a path can be.
    let mut name = vec![0_u16; 32 * 1024];
    let mut length = u32::try_from(name.len()).unwrap_or(0);
    // SAFETY: the handle is open, the buffer is writable and `length` is its size in characters.
    let done =
        unsafe { QueryFullProcessImageNameW(process.as_raw_handle(), 0, name.as_mut_ptr(), &raw mut length) };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    let name = name.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
    if name.is_empty() {
        Err(io::ErrorKind::NotFound.into())
    } else {
        Ok(std::ffi::OsString::from_wide(name).into())
    }
}

/// The parent process, held so that its end can be waited for.
pub(super) struct Parent {
    handle: OwnedHandle,
}

impl Parent {
    pub(super) fn current() -> Option<Self> {
        let own = processes::find(std::process::id())?;
        let parent = processes::find(own.parent)?;
        // Windows keeps the id of a parent that ended and may give it to somebody else, who is then
        // younger than this process.
        if parent.pid == 0 || parent.started > own.started {
            return None;
        }
        // SAFETY: no pointers are passed; a null result is handled below.
        let handle = unsafe { OpenProcess(PROCESS_SYNCHRONIZE, 0, parent.pid) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the handle is open, and nobody else owns it.
        Some(Self { handle: unsafe { OwnedHandle::from_raw_handle(handle) } })
    }

    /// Returns when the parent has ended.
    pub(super) fn wait(&self) {
        // SAFETY: the handle stays open as long as `self` does.
        unsafe { WaitForSingleObject(self.handle.as_raw_handle(), INFINITE) };
    }
}

pub(super) fn is_network_filesystem(_path: &Path) -> bool {
    false
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
