//! What the agent may do without asking, and how a version says that it may not.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::flags::Flags;
use super::scenario::Version;

/// What was granted by flags and by the settings in the config root.
pub struct Permissions {
    everything: bool,
    sandbox: bool,
    edits: bool,
    plan: bool,
    allow: Vec<String>,
    workspace: PathBuf,
}

/// How a version tells of something that was not allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A line on standard error; the turn ends, without an answer and without a failure.
    QuietEnd,
    /// The turn fails.
    Failure,
    /// A line on standard error; the turn goes on.
    Notice,
    /// A member of the envelope; the turn goes on.
    Listed,
}

impl Shape {
    pub fn of(version: Version) -> Self {
        if version < Version(1, 1, 13) {
            Self::QuietEnd
        } else if version < Version(1, 1, 20) {
            Self::Failure
        } else if version < Version(1, 1, 27) {
            Self::Notice
        } else {
            Self::Listed
        }
    }
}

impl Permissions {
    pub fn new(flags: &Flags, version: Version, root: &Path, workspace: &Path) -> Self {
        let mode = flags.last("mode").unwrap_or_default();
        let settings = std::fs::read(root.join("antigravity-cli").join("settings.json"));
        let settings: Value = settings
            .ok()
            .map(|bytes| serde_json::from_slice(&bytes).expect("settings.json is JSON"))
            .unwrap_or_default();
        // Before 1.1.4 they were not looked at where nobody could be asked.
        let rules = settings["permissions"]["allow"].as_array().filter(|_| version >= Version(1, 1, 4));
        Self {
            everything: flags.on("dangerously-skip-permissions"),
            sandbox: flags.on("sandbox"),
            // Where nobody can be asked, edits were denied up to 1.1.13 whatever the mode.
            edits: mode == "accept-edits" && version >= Version(1, 1, 14),
            // Slash commands are what carries plan mode.
            plan: mode == "plan" && version >= Version(1, 1, 12) && !flags.on("disable-slash-commands"),
            allow: rules.into_iter().flatten().filter_map(|rule| rule.as_str().map(str::to_owned)).collect(),
            workspace: workspace.to_owned(),
        }
    }

    /// The word of the stream for it.
    pub fn mode(&self) -> &'static str {
        if self.everything { "always-proceed" } else { "request-review" }
    }

    /// Whether a file of the workspace may be written. Plan mode holds even where everything is allowed; a rule for a
    /// folder holds for all below it.
    pub fn write(&self) -> bool {
        let folders =
            self.allow.iter().filter_map(|rule| rule.strip_prefix("write_file(")?.strip_suffix(')'));
        let ruled = || folders.clone().any(|folder| self.workspace.starts_with(folder));
        !self.plan && (self.everything || self.edits || ruled())
    }

    /// Whether a command may be run.
    pub fn command(&self) -> bool {
        !self.plan && !self.sandbox && self.everything
    }

    /// Whether a server's tool may be called. A rule has to name the tool; one for the server is taken and never
    /// matches.
    pub fn server_tool(&self, server: &str, tool: &str, enabled: &[String]) -> bool {
        let rules = [format!("mcp({server}/{tool})"), format!("mcp({server}/*)")];
        self.everything
            || enabled.iter().any(|name| name == tool)
            || self.allow.iter().any(|rule| rules.contains(rule))
    }
}
