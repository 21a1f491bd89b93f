//! What a run may do, as rules of the CLI's own policy engine, in the highest of its tiers.
//!
//! The approval mode alone does not hold. In a run without a person the model may call `exit_plan_mode`, which
//! is allowed there and switches to the mode that allows everything; `enter_plan_mode` makes the same way open from
//! any other mode. And what its user once allowed for good, or lists in `tools.allowed`, stands above the rules of
//! the mode. So each run has rules of its own: everything is denied that is not named.

use std::fmt::Write as _;

use super::super::endpoint::SERVER;
use crate::policy::Sandbox;

/// Tools that read below the working folder, or keep notes on the work itself.
const READING: &[&str] = &[
    "glob",
    "grep_search",
    "list_directory",
    "read_file",
    "read_many_files",
    "get_internal_docs",
    "update_topic",
    "write_todos",
    "complete_task",
];
/// Tools that write files; they themselves refuse a place outside of the working folder.
const WRITING: &[&str] = &["replace", "write_file"];

/// Whose MCP servers a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Servers {
    /// Nobody's.
    None,
    /// The run's own.
    Endpoint,
    /// Its user's: those of their tools are allowed that say that they only read.
    Users,
}

/// The rules of a run; none for one that may do everything.
pub(super) fn rules(sandbox: Sandbox, servers: Servers) -> Option<String> {
    let mut allowed = READING.to_vec();
    match sandbox {
        Sandbox::ReadOnly => {}
        Sandbox::WorkspaceWrite => allowed.extend(WRITING),
        Sandbox::FullAccess => return None,
    }
    let mut text = String::from(
        "[[rule]]\ntoolName = \"*\"\ndecision = \"deny\"\npriority = 1\n\
         denyMessage = \"This run was not given that tool.\"\n",
    );
    let names = serde_json::json!(allowed);
    let _ = write!(text, "\n[[rule]]\ntoolName = {names}\ndecision = \"allow\"\npriority = 100\n");
    let whose = match servers {
        Servers::None => return Some(text),
        Servers::Endpoint => format!("mcpName = \"{SERVER}\""),
        Servers::Users => "mcpName = \"*\"\ntoolAnnotations = { readOnlyHint = true }".to_owned(),
    };
    let _ = write!(text, "\n[[rule]]\ntoolName = \"*\"\n{whose}\ndecision = \"allow\"\npriority = 100\n");
    Some(text)
}
