//! What each system does in its own way.

use std::io;
use std::path::Path;

/// Requests to end (of a terminal, of `kill`) are not heard any more.
#[cfg(unix)]
pub fn ignore_requests_to_end() {
    // The same numbers and the same value for "ignore" on every Unix.
    const HANG_UP: i32 = 1;
    const INTERRUPT: i32 = 2;
    const TERMINATE: i32 = 15;
    const IGNORE: usize = 1;
    unsafe extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    for number in [HANG_UP, INTERRUPT, TERMINATE] {
        // SAFETY: the signature is that of C's `signal`, and "ignore" is no function that could be called.
        unsafe { signal(number, IGNORE) };
    }
}

/// There are none to hear.
#[cfg(windows)]
pub fn ignore_requests_to_end() {}

#[cfg(unix)]
pub fn symlink(target: &str, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
pub fn symlink(target: &str, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
}
