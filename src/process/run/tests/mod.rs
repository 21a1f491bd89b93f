//! The promises of a run. `portable` shows them with this test program as its own worker, the others with shell
//! programs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod portable;

#[cfg(unix)]
mod endings;
#[cfg(unix)]
mod shell;
#[cfg(unix)]
mod starts;
#[cfg(unix)]
mod streams;
#[cfg(unix)]
mod trees;

use super::*;

/// Keeps nothing, tells nobody and cancels nothing.
fn silent<'a>() -> RunIo<'a> {
    // What has no size is not allocated, so nothing leaks.
    RunIo {
        stdout_file: None,
        stderr_file: None,
        on_started: Box::leak(Box::new(|_| {})),
        on_line: Box::leak(Box::new(|_: &[u8]| None)),
        on_error_line: Box::leak(Box::new(|_: &[u8]| None)),
        on_tick: Box::leak(Box::new(|_| None)),
    }
}
