//! How deep in delegations this process is: a worker that starts this program again must be noticed,
//! even if its CLI dropped the marker on the way.

use super::TURN_VAR;
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
    own.max(ancestor_depth(std::process::id(), &|pid| parent_with(pid, DEPTH_VAR)))
}

/// Whether this process belongs to a run: a worker started it, or a command that runs beside one. Then there is a depth,
/// or the mark of a run, in its own environment or in one that an ancestor was started with.
pub fn is_within_run(context: &Context) -> bool {
    context.var(TURN_VAR).is_some_and(|mark| !mark.is_empty())
        || current_depth(context) > 0
        || has_marked_ancestor(std::process::id(), &|pid| parent_with(pid, TURN_VAR))
}

/// A process's parent, and what a variable was when that was started.
fn parent_with(pid: u32, name: &str) -> Option<(u32, Option<String>)> {
    let parent = processes::find(pid)?.parent;
    Some((parent, processes::variable(parent, name).map(|value| value.to_string_lossy().into_owned())))
}

fn has_marked_ancestor(start: u32, look: &dyn Fn(u32) -> Option<(u32, Option<String>)>) -> bool {
    marks_above(start, look).iter().any(|mark| !mark.is_empty())
}

fn ancestor_depth(start: u32, look: &dyn Fn(u32) -> Option<(u32, Option<String>)>) -> u32 {
    marks_above(start, look).iter().map(|mark| parse(mark)).max().unwrap_or(0)
}

/// The markers of all ancestors, the nearest first. `look` gives a process's parent and the parent's marker.
fn marks_above(start: u32, look: &dyn Fn(u32) -> Option<(u32, Option<String>)>) -> Vec<String> {
    let mut marks = Vec::new();
    let mut pid = start;
    for _ in 0..MAX_ANCESTORS {
        let Some((parent, marker)) = look(pid) else { break };
        if parent <= 1 || parent == pid {
            break;
        }
        marks.extend(marker);
        pid = parent;
    }
    marks
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
    fn a_mark_is_found_however_far_above_it_is() {
        let table =
            BTreeMap::from([(10, (9, None)), (9, (8, Some(""))), (8, (7, Some("run"))), (7, (1, None))]);
        assert!(has_marked_ancestor(10, &look(&table)));
        assert!(!has_marked_ancestor(7, &look(&table)));
        let table = BTreeMap::from([(10, (9, None)), (9, (8, Some(""))), (8, (1, None))]);
        assert!(!has_marked_ancestor(10, &look(&table)), "an empty mark is none");
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
