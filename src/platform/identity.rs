//! Which process is meant: a process id alone is reused, an id with its start time is not.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{os, processes};

/// Names one process for good on this machine (until it restarts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id.
    pub pid: u32,
    /// Start time, in units of the system; only compared, never shown.
    pub started: u64,
}

impl ProcessIdentity {
    /// This process. A start time of 0 (which nothing matches) if the system does not tell.
    pub fn current() -> Self {
        let pid = std::process::id();
        Self { pid, started: processes::find(pid).map_or(0, |process| process.started) }
    }

    /// Another process, if it is there.
    pub fn of(pid: u32) -> Option<Self> {
        processes::find(pid).filter(|p| !p.zombie).map(|p| Self { pid, started: p.started })
    }
}

/// The process that started another one, as far as it is still there.
pub fn parent_of(pid: u32) -> Option<u32> {
    processes::find(pid).map(|process| process.parent).filter(|parent| *parent != 0)
}

/// Whether that very process still runs. A process that ended and waits to be reaped does not.
pub fn is_alive(identity: &ProcessIdentity) -> bool {
    ProcessIdentity::of(identity.pid).is_some_and(|now| now.started == identity.started)
}

/// Which start of the machine this is, where a process's start time is counted from that (Linux). Elsewhere a
/// start time is a time of day, which no other start of the machine repeats.
pub fn boot_id() -> Option<String> {
    os::boot_id()
}

/// The process namespace that ids are counted in, where there are such (Linux). Ids of another one mean nothing
/// here.
pub fn process_namespace() -> Option<u64> {
    os::process_namespace()
}

/// Calls `on_gone` on a thread of its own once the parent of this process ends. `false` if there is
/// no parent that can be watched (it is outside this container, or already gone).
///
/// The parent is the one at the time of the call, so call it early.
pub fn spawn_parent_watch(on_gone: impl FnOnce() + Send + 'static) -> std::io::Result<bool> {
    let Some(parent) = os::Parent::current() else { return Ok(false) };
    std::thread::Builder::new().name("parent-watch".into()).spawn(move || {
        parent.wait();
        on_gone();
    })?;
    Ok(true)
}

/// Whether a path lies in a folder or is it, through whatever links, mounts or spellings. Of a path that does not
/// exist yet the existing part counts.
pub fn lies_inside(path: &Path, folder: &Path) -> bool {
    let existing = path.ancestors().find(|ancestor| ancestor.exists());
    existing
        .and_then(|existing| std::fs::canonicalize(existing).ok())
        .is_some_and(|real| real.ancestors().any(|ancestor| is_same(ancestor, folder)))
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (super::file_id(one), super::file_id(other)) {
        (Some(one), Some(other)) => one == other,
        // Where there is no such number the system's own spelling of both has to do.
        _ => {
            matches!((std::fs::canonicalize(one), std::fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
        }
    }
}

/// Whether a path lies on a network or shared file system, where SQLite and locks are not to be
/// trusted. For a path that does not exist yet its nearest existing parent counts. Only Linux can
/// tell; elsewhere always `false`.
pub fn is_network_filesystem(path: &Path) -> bool {
    path.ancestors().find(|ancestor| ancestor.exists()).is_some_and(os::is_network_filesystem)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn this_process_is_alive_and_another_start_time_is_not() {
        let me = ProcessIdentity::current();
        assert!(is_alive(&me));
        assert!(!is_alive(&ProcessIdentity { started: me.started.wrapping_add(1), ..me }));
    }

    #[cfg(unix)]
    #[test]
    fn an_ended_child_is_not_alive_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read line"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        assert!(is_alive(&identity));
        drop(child.stdin.take());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while is_alive(&identity) {
            assert!(std::time::Instant::now() < deadline, "the child never ended");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_alive(&identity));
    }

    #[cfg(unix)]
    #[test]
    fn a_path_is_inside_a_folder_also_by_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::os::unix::fs::symlink(root.join("a"), folder.path().join("link")).unwrap();
        assert!(lies_inside(&root, &root));
        assert!(lies_inside(&root.join("a/not/yet"), &root));
        assert!(lies_inside(&folder.path().join("link/not/yet"), &root));
        assert!(!lies_inside(&folder.path().join("beside"), &root));
        assert!(!lies_inside(&folder.path().join("root2"), &root));
    }

    #[test]
    fn an_identity_survives_storing() {
        let me = ProcessIdentity::current();
        let text = serde_json::to_string(&me).unwrap();
        assert_eq!(serde_json::from_str::<ProcessIdentity>(&text).unwrap(), me);
    }

    #[test]
    fn local_folders_are_local_even_before_they_exist() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_network_filesystem(&folder.path().join("not/there/yet")));
    }
}
