//! The process table: who is there, whose child it is, when it started, what its environment says.
//!
//! Linux reads `/proc` directly (one small file a process); elsewhere the table comes from sysinfo.

use std::ffi::{OsStr, OsString};

#[cfg(target_os = "linux")]
#[path = "processes_linux.rs"]
mod table;
#[cfg(not(target_os = "linux"))]
#[path = "processes_sysinfo.rs"]
mod table;

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent now; orphans have a new one.
    pub parent: u32,
    /// Its process group; 0 where there are none.
    pub group: u32,
    /// Its session; 0 where there are none.
    pub session: u32,
    /// When it started, in units of the system. Together with the id it names one process.
    pub started: u64,
    /// Ended, but not yet reaped.
    pub zombie: bool,
}

/// One process, if it is there.
pub(crate) fn find(pid: u32) -> Option<Process> {
    table::find(pid)
}

/// Every process that can be seen.
pub(crate) fn all() -> Vec<Process> {
    table::all()
}

/// Whether it is a part of the kernel that only looks like a process.
#[cfg(target_os = "linux")]
pub(super) fn is_kernel_thread(pid: u32) -> bool {
    table::is_kernel_thread(pid)
}

/// The children of a process, if the system can tell without a walk over the whole table.
pub(crate) fn children(pid: u32) -> Option<Vec<u32>> {
    table::children(pid)
}

/// The value of a variable in the environment a process was started with. `None` also if it may not
/// be read.
pub(crate) fn variable(pid: u32, name: &str) -> Option<OsString> {
    table::variable(pid, name)
}

/// Every process whose start environment holds `name=value`, or a value below that: with a `/` after it.
pub(crate) fn with_variable(name: &str, value: &OsStr) -> Vec<Process> {
    table::with_variable(name, value)
}

/// `root` and everything below it in `table`, parents first. Cycles (ids reused while the table was
/// read) cannot trap it.
pub(crate) fn descendants(table: &[Process], roots: &[u32]) -> Vec<Process> {
    let mut found: Vec<Process> = table.iter().filter(|p| roots.contains(&p.pid)).copied().collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|p| p.pid) {
        next += 1;
        for process in table.iter().filter(|p| p.parent == parent) {
            if !found.iter().any(|known| known.pid == process.pid) {
                found.push(*process);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn process(pid: u32, parent: u32) -> Process {
        Process { pid, parent, group: 0, session: 0, started: 0, zombie: false }
    }

    #[test]
    fn descendants_come_parents_first_and_only_ours() {
        let table = [process(1, 0), process(5, 3), process(3, 2), process(2, 1), process(9, 1)];
        let pids: Vec<u32> = descendants(&table, &[2]).iter().map(|p| p.pid).collect();
        assert_eq!(pids, [2, 3, 5]);
    }

    proptest! {
        #[test]
        fn any_table_ends(pairs in proptest::collection::vec((0u32..20, 0u32..20), 0..60)) {
            let table: Vec<Process> = pairs.iter().map(|(a, b)| process(*a, *b)).collect();
            prop_assert!(descendants(&table, &[1]).len() <= table.len());
        }
    }

    #[test]
    fn this_process_is_in_its_own_table() {
        let me = std::process::id();
        let own = find(me).unwrap();
        assert_eq!(own.pid, me);
        assert!(!own.zombie);
        assert!(all().iter().any(|p| p.pid == me && p.started == own.started));
    }

    #[test]
    fn the_start_environment_can_be_read() {
        let path = std::env::var_os("PATH").unwrap();
        assert_eq!(variable(std::process::id(), "PATH"), Some(path.clone()));
        assert_eq!(variable(std::process::id(), "AGENT_BRIDGE_NOT_SET_ANYWHERE"), None);
        assert!(with_variable("PATH", &path).iter().any(|p| p.pid == std::process::id()));
    }
}
