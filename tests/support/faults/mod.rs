//! The crash proof's harness: an installation that is cut off in the middle, and the two states that it may be in
//! afterwards.
//!
//! - [`tree`]: a whole folder as a value, with what may differ between two runs blanked;
//! - [`live`]: the folder that a command changes, put back before each case;
//! - [`trace`]: a program's system calls, recorded, and one of them made to fail;
//! - [`audit`]: whether it waited for the disk where it has to;
//! - [`verdict`]: which state an exit code promises, and whether the disk keeps the promise;
//! - [`subject`]: the commands that are proven, each with the installation that it starts from;
//! - [`disk`]: a file system whose every write is logged, and the disks that a power cut can leave of it;
//! - [`block_log`]: that log.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "each test file uses a part of the harness, and a harness panics where a test has to stop"
)]

#[cfg(target_os = "linux")]
pub mod audit;
#[cfg(target_os = "linux")]
pub mod block_log;
#[cfg(target_os = "linux")]
pub mod disk;
#[cfg(target_os = "linux")]
pub mod live;
#[cfg(target_os = "linux")]
pub mod subject;
#[cfg(target_os = "linux")]
pub mod trace;
#[cfg(target_os = "linux")]
pub mod tree;
#[cfg(target_os = "linux")]
pub mod verdict;

/// Chooses how much is tried: `quick` (the default, what CI runs), `full` (every error at every call, about an hour), or
/// `exhaustive` (recovery from every state that a cut leaves as well, for hours).
pub const AMOUNT: &str = "AGENT_BRIDGE_FAULTS";

/// Tries one point alone, named as a failure names it, and keeps its folder.
pub const ONLY: &str = "AGENT_BRIDGE_FAULTS_ONLY";

/// Whether every error is tried at every call.
pub fn full() -> bool {
    match std::env::var(AMOUNT).as_deref() {
        Ok("full" | "exhaustive") => true,
        Ok("quick" | "") | Err(_) => false,
        Ok(other) => panic!("{AMOUNT}={other}: it is quick, full or exhaustive"),
    }
}

/// Whether recovery is tried from every state, however long it takes.
pub fn exhaustive() -> bool {
    full() && std::env::var(AMOUNT).as_deref() == Ok("exhaustive")
}

/// What cannot run here says so; in CI that is a failure.
#[track_caller]
pub fn cannot_run(what: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{what} cannot run here: {why}");
    eprintln!("SKIPPED: {what}: {why}");
}

/// Whether a program can be found.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}
