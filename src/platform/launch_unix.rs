//! Unix: this process becomes the program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

pub(super) fn run_opened(
    file: &File,
    path: &Path,
    args: &[OsString],
    env: &BTreeMap<OsString, OsString>,
) -> io::Result<u8> {
    #[cfg(target_os = "linux")]
    if !linux::is_script(file)? {
        return Err(linux::execute(file, path, args, env));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
    Err(Command::new(path).args(args).env_clear().envs(env).exec())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::ffi::{CString, OsStr, OsString, c_char, c_int};
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::FileExt as _;
    use std::path::Path;

    unsafe extern "C" {
        /// POSIX; in every C library of Linux.
        fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    }

    /// An interpreter would be given a path to the open file, which is gone by then.
    pub(super) fn is_script(file: &File) -> io::Result<bool> {
        let mut start = [0; 2];
        Ok(file.read_at(&mut start, 0)? == 2 && &start == b"#!")
    }

    /// Comes back only with an error.
    pub(super) fn execute(
        file: &File,
        path: &Path,
        args: &[OsString],
        env: &BTreeMap<OsString, OsString>,
    ) -> io::Error {
        let argv: Result<Vec<CString>, io::Error> =
            [path.as_os_str()].into_iter().chain(args.iter().map(OsString::as_os_str)).map(text).collect();
        let variables = env.iter().map(|(name, value)| {
            let mut entry = name.clone();
            entry.push("=");
            entry.push(value);
            text(&entry)
        });
        let envp: Result<Vec<CString>, io::Error> = variables.collect();
        let (argv, envp) = match (argv, envp) {
            (Ok(argv), Ok(envp)) => (argv, envp),
            (Err(error), _) | (_, Err(error)) => return error,
        };
        let (argv_list, envp_list) = (list(&argv), list(&envp));
        // SAFETY: both lists end in a null and hold pointers to texts that end in a zero; all of them live until
        // after the call, as does the open file.
        unsafe { fexecve(file.as_raw_fd(), argv_list.as_ptr(), envp_list.as_ptr()) };
        io::Error::last_os_error()
    }

    fn text(text: &OsStr) -> io::Result<CString> {
        CString::new(text.as_bytes()).map_err(io::Error::from)
    }

    fn list(texts: &[CString]) -> Vec<*const c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    }
}
