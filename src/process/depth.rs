//! How deep in delegations this process is: a worker that starts this program again must be noticed,
//! even if its CLI dropped the marker on the way.

use crate::context::Context;
use crate::platform::processes;

/// Carries the depth to workers: 1 in a worker that was started from outside any delegation.
pub const DEPTH_VAR: &str = "AGENT_BRIDGE_DEPTH";

/// Longest chain of parents that is looked at.
const MAX_ANCESTORS: usize = 64;

/// The number of delegations above this process; 0 outside any. The largest marker counts, of the own
/// environment and of those its ancestors were started with (Codex gives its MCP servers only a few
/// variables). A marker that is no number counts as the largest of all: somebody tampered with it.
pub fn current_depth(context: &Context) -> u32 {
    let own = context.var(DEPTH_VAR).map_or(0, |value| parse(&value.to_string_lossy()));
    own.max(ancestor_depth(std::process::id(), &|pid| {
        let process = processes::find(pid)?;
        Some((
            process.parent,
            processes::variable(process.parent, DEPTH_VAR).map(|v| v.to_string_lossy().into_owned()),
        ))
    }))
}

/// `look` gives a process's parent and the parent's marker.
fn ancestor_depth(start: u32, look: &dyn Fn(u32) -> Option<(u32, Option<String>)>) -> u32 {
    let mut deepest = 0;
    let mut pid = start;
    for _ in 0..MAX_ANCESTORS {
        let Some((parent, marker)) = look(pid) else { break };
        if parent <= 1 || parent == pid {
            break;
        }
        deepest = deepest.max(marker.map_or(0, |text| parse(&text)));
        pid = parent;
    }
    deepest
}

fn parse(text: &str) -> u32 {
    match text.trim() {
        "" => 0,
        number => number.parse().unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::collections::BTreeMap;

    fn look(table: &BTreeMap<u32, (u32, Option<&str>)>) -> impl Fn(u32) -> Option<(u32, Option<String>)> {
        move |pid| table.get(&pid).map(|(parent, marker)| (*parent, marker.map(str::to_owned)))
    }

    #[test]
    fn the_largest_marker_among_the_ancestors_counts() {
        let table =
            BTreeMap::from([(10, (9, None)), (9, (8, Some("2"))), (8, (7, Some("1"))), (7, (1, None))]);
        assert_eq!(ancestor_depth(10, &look(&table)), 2);
        assert_eq!(ancestor_depth(7, &look(&table)), 0);
        assert_eq!(ancestor_depth(99, &look(&table)), 0);
    }

    #[test]
    fn a_cycle_ends() {
        let table = BTreeMap::from([(10, (9, Some("1"))), (9, (10, None))]);
        assert_eq!(ancestor_depth(10, &look(&table)), 1);
    }

    #[test]
    fn a_spoilt_marker_is_the_deepest() {
        assert_eq!(parse("x"), u32::MAX);
        assert_eq!(parse("-1"), u32::MAX);
        assert_eq!(parse("99999999999"), u32::MAX);
        assert_eq!(parse(" 3 "), 3);
        assert_eq!(parse(""), 0);
    }
}
