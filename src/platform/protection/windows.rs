//! The Windows side: access lists by SID. A folder is held by a handle that does not share its deletion, so nobody
//! can exchange it as long as the walk is in it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::windows::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use windows_sys::Win32::Foundation::{ERROR_SUCCESS, HANDLE, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertSecurityDescriptorToStringSecurityDescriptorW, ConvertSidToStringSidW,
    ConvertStringSecurityDescriptorToSecurityDescriptorW, GetSecurityInfo, SDDL_REVISION_1, SE_FILE_OBJECT,
    SetSecurityInfo,
};
use windows_sys::Win32::Security::{
    ACL, DACL_SECURITY_INFORMATION, GetSecurityDescriptorDacl, GetTokenInformation,
    OWNER_SECURITY_INFORMATION, PROTECTED_DACL_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR, PSID, TOKEN_QUERY,
    TOKEN_USER, TokenUser, UNPROTECTED_DACL_SECURITY_INFORMATION,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_REPARSE_POINT,
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_LIST_DIRECTORY, FILE_READ_ATTRIBUTES,
    FILE_SHARE_READ, FILE_SHARE_WRITE, GetFileInformationByHandle, READ_CONTROL, WRITE_DAC,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use super::{Fault, FaultKind, Kind, Look, Protection, exchanged, sddl};

/// The user's SID, in full and as SDDL abbreviates it.
fn user() -> &'static [String] {
    static USER: OnceLock<Vec<String>> = OnceLock::new();
    USER.get_or_init(|| {
        let Ok(full) = user_sid() else { return Vec::new() };
        let short = Descriptor::parse(&format!("O:{full}"))
            .and_then(|descriptor| descriptor.text(OWNER_SECURITY_INFORMATION))
            .map(|text| text.trim_start_matches("O:").to_owned());
        let mut names = vec![full];
        names.extend(short.ok().filter(|short| !short.is_empty()));
        names
    })
}

pub(super) fn expected_owner() -> String {
    user().first().cloned().unwrap_or_default()
}

pub(super) fn wanted(kind: Kind) -> String {
    sddl::private(&expected_owner(), kind == Kind::Folder)
}

/// What is wrong with the owner and the access list of a thing.
pub(super) fn faults(_kind: Kind, protection: &Protection, is_root: bool) -> Vec<Fault> {
    let mut faults = sddl::faults(&protection.permissions, user(), is_root);
    // What an elevated administrator makes belongs to the group.
    let administrators = ["BA", "S-1-5-32-544"];
    let owner = protection.owner.as_str();
    if !user().iter().any(|own| own == owner) && !administrators.contains(&owner) {
        faults.push(Fault::new(FaultKind::Owner, format!("it belongs to {owner}")));
    }
    faults
}

/// Access lists of the folders above are the system's matter; only the one of a shared root would tell more.
pub(super) fn weakness(_folder: &Path) -> Option<String> {
    None
}

/// An open folder, which nobody can rename or remove meanwhile.
pub(super) struct Folder {
    handle: File,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder by its canonical path.
    pub(super) fn root(path: &Path) -> io::Result<Self> {
        let handle = open(path, READ_CONTROL | FILE_LIST_DIRECTORY | FILE_READ_ATTRIBUTES, false)?;
        if look(&handle)?.kind == Kind::Folder {
            Ok(Self { handle, path: path.to_path_buf() })
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a link or no folder"))
        }
    }

    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = std::fs::read_dir(&self.path)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    /// A thing in the folder, or the folder itself.
    pub(super) fn look(&self, name: Option<&OsStr>) -> io::Result<Look> {
        match name {
            None => look(&self.handle),
            Some(name) => look(&open(&self.path.join(name), READ_CONTROL | FILE_READ_ATTRIBUTES, true)?),
        }
    }

    /// Opens a folder in this one that still is the one that was looked at.
    pub(super) fn open(&self, name: &OsStr, found: &Look) -> io::Result<Self> {
        let path = self.path.join(name);
        let handle = open(&path, READ_CONTROL | FILE_LIST_DIRECTORY | FILE_READ_ATTRIBUTES, false)?;
        let now = look(&handle)?;
        if now.kind != Kind::Folder || now.identity != found.identity {
            return Err(exchanged());
        }
        Ok(Self { handle, path })
    }

    /// Sets the access list of the thing that was looked at, and of no other.
    pub(super) fn set(&self, name: Option<&OsStr>, found: &Look, permissions: &str) -> io::Result<()> {
        let path = name.map_or_else(|| self.path.clone(), |name| self.path.join(name));
        let handle = open(&path, READ_CONTROL | WRITE_DAC | FILE_READ_ATTRIBUTES, true)?;
        let now = look(&handle)?;
        if now.kind != found.kind || now.identity != found.identity {
            return Err(exchanged());
        }
        let descriptor = Descriptor::parse(permissions)?;
        let list = descriptor.access_list()?;
        let inheritance = if sddl::is_protected(permissions) {
            PROTECTED_DACL_SECURITY_INFORMATION
        } else {
            UNPROTECTED_DACL_SECURITY_INFORMATION
        };
        // SAFETY: the handle is open, and the list lives in the descriptor until after the call.
        let error = unsafe {
            SetSecurityInfo(
                raw(&handle),
                SE_FILE_OBJECT,
                DACL_SECURITY_INFORMATION | inheritance,
                ptr::null_mut(),
                ptr::null_mut(),
                list,
                ptr::null(),
            )
        };
        check(error)
    }
}

/// Opens a file or a folder itself, never what it leads to. `shared`: it may be removed meanwhile.
fn open(path: &Path, access: u32, shared: bool) -> io::Result<File> {
    const FILE_SHARE_DELETE: u32 = 4;
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | if shared { FILE_SHARE_DELETE } else { 0 };
    OpenOptions::new()
        .access_mode(access)
        .share_mode(share)
        .custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT)
        .open(path)
}

fn raw(file: &File) -> HANDLE {
    file.as_raw_handle()
}

fn look(handle: &File) -> io::Result<Look> {
    let mut found = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open and the structure writable.
    if unsafe { GetFileInformationByHandle(raw(handle), &mut found) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let attributes = handle.metadata()?.file_attributes();
    let kind = if attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0 {
        // Junctions and mounted volumes are among these.
        Kind::Link
    } else if attributes & FILE_ATTRIBUTE_DIRECTORY != 0 {
        Kind::Folder
    } else {
        Kind::File
    };
    let text = Descriptor::of(handle)?.text(OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION)?;
    let start = text.find("D:").unwrap_or(text.len());
    let (owner, list) = text.split_at(start);
    let owner = owner.trim_start_matches("O:").split("G:").next().unwrap_or_default();
    Ok(Look {
        kind,
        protection: Protection { owner: owner.to_owned(), permissions: list.to_owned() },
        links: u64::from(found.nNumberOfLinks),
        identity: (
            u64::from(found.dwVolumeSerialNumber),
            u64::from(found.nFileIndexHigh) << 32 | u64::from(found.nFileIndexLow),
        ),
        is_mount_point: false,
    })
}

/// A security descriptor that the system allocated.
struct Descriptor(PSECURITY_DESCRIPTOR);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the system allocated it for the caller to free, and nobody else has it.
        unsafe { LocalFree(self.0) };
    }
}

impl Descriptor {
    fn of(handle: &File) -> io::Result<Self> {
        let mut descriptor: PSECURITY_DESCRIPTOR = ptr::null_mut();
        // SAFETY: the handle is open; the parts that are not asked for may be null.
        let error = unsafe {
            GetSecurityInfo(
                raw(handle),
                SE_FILE_OBJECT,
                OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                &mut descriptor,
            )
        };
        check(error)?;
        Ok(Self(descriptor))
    }

    fn parse(text: &str) -> io::Result<Self> {
        let wide: Vec<u16> = OsStr::new(text).encode_wide().chain([0]).collect();
        let mut descriptor: PSECURITY_DESCRIPTOR = ptr::null_mut();
        // SAFETY: the text ends in a zero and lives until after the call; the length may be null.
        let done = unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                wide.as_ptr(),
                SDDL_REVISION_1,
                &mut descriptor,
                ptr::null_mut(),
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(Self(descriptor)) }
    }

    fn text(&self, parts: u32) -> io::Result<String> {
        let mut text: *mut u16 = ptr::null_mut();
        // SAFETY: the descriptor is whole; the length may be null.
        let done = unsafe {
            ConvertSecurityDescriptorToStringSecurityDescriptorW(
                self.0,
                SDDL_REVISION_1,
                parts,
                &mut text,
                ptr::null_mut(),
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(take_text(text)) }
    }

    /// The list in it. Without one everything would be allowed to everybody, so that is an error.
    fn access_list(&self) -> io::Result<*const ACL> {
        let (mut is_there, mut by_default) = (0, 0);
        let mut list: *mut ACL = ptr::null_mut();
        // SAFETY: the descriptor is whole, and all the others are writable.
        let done = unsafe { GetSecurityDescriptorDacl(self.0, &mut is_there, &mut list, &mut by_default) };
        if done == 0 {
            return Err(io::Error::last_os_error());
        }
        if is_there == 0 || list.is_null() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no access list"));
        }
        Ok(list)
    }
}

fn check(error: u32) -> io::Result<()> {
    if error == ERROR_SUCCESS {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(i32::MAX)))
    }
}

/// A text that the system allocated, which is freed.
fn take_text(text: *mut u16) -> String {
    let mut length = 0;
    // SAFETY: the text ends in a zero, and nothing beyond it is read.
    while unsafe { *text.add(length) } != 0 {
        length += 1;
    }
    // SAFETY: that many units were just read.
    let found = OsString::from_wide(unsafe { std::slice::from_raw_parts(text, length) });
    // SAFETY: the system allocated it for the caller to free; it is not used after this.
    unsafe { LocalFree(text.cast()) };
    found.to_string_lossy().into_owned()
}

fn user_sid() -> io::Result<String> {
    let mut token: HANDLE = ptr::null_mut();
    // SAFETY: the pseudo-handle of this process needs no closing; the token is writable.
    if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &mut token) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is open, and nobody else owns it.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    // A SID has at most 68 bytes; the buffer is aligned for the pointer in front of it.
    let mut buffer = [0_usize; 32];
    let size = u32::try_from(size_of_val(&buffer)).unwrap_or(0);
    let mut length = 0;
    // SAFETY: the buffer is writable and that long.
    let done = unsafe {
        GetTokenInformation(token.as_raw_handle(), TokenUser, buffer.as_mut_ptr().cast(), size, &mut length)
    };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call filled the buffer with this structure.
    let sid: PSID = unsafe { (*buffer.as_ptr().cast::<TOKEN_USER>()).User.Sid };
    let mut text: *mut u16 = ptr::null_mut();
    // SAFETY: the SID lives in the buffer.
    if unsafe { ConvertSidToStringSidW(sid, &mut text) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(take_text(text))
}
