//! What a turn may do. Pure functions over values: no file, no clock, no environment.

mod model;
mod roots;
mod sandbox;

pub use model::is_model_name;
pub use roots::{RootError, contains, find_root};
pub use sandbox::{Asked, SandboxDecision, decide_sandbox};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How much a worker may change. The order is the order of authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// Reads only.
    ReadOnly,
    /// May write inside its working folder.
    WorkspaceWrite,
    /// May do whatever the user may do.
    FullAccess,
}

impl Sandbox {
    /// The name used in files and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::FullAccess => "full-access",
        }
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        [Self::ReadOnly, Self::WorkspaceWrite, Self::FullAccess]
            .into_iter()
            .find(|mode| mode.as_str() == text)
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a worker works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// In the workspace itself.
    #[default]
    None,
    /// In a copy of its repository; the changes come back as a patch.
    Worktree,
}

impl Isolation {
    /// Whether it is a copy.
    pub fn is_copy(self) -> bool {
        self == Self::Worktree
    }
}

/// How far a worker is trusted with what it was granted. Where nothing is said, the sandbox alone decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionMode {
    /// As confined as its CLI can be: what needs a permission is denied, whatever else was granted.
    Safe,
    /// Nothing is asked. Needs full access.
    Trusted,
}

impl ExecutionMode {
    /// The name used in files and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Trusted => "trusted",
        }
    }

    /// The authority that a run of this mode needs; one without a mode edits its folder.
    pub fn sandbox(mode: Option<Self>) -> Sandbox {
        match mode {
            None | Some(Self::Safe) => Sandbox::WorkspaceWrite,
            Some(Self::Trusted) => Sandbox::FullAccess,
        }
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Safe, Self::Trusted].into_iter().find(|mode| mode.as_str() == text)
    }
}

/// Sensitivity of what a turn carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DataClass {
    /// Anyone may see it.
    Public,
    /// For the organisation.
    Internal,
    /// For few.
    Confidential,
    /// For named people.
    Restricted,
}

/// The backends this project knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentId {
    /// OpenAI Codex CLI.
    Codex,
    /// Anthropic Claude Code.
    Claude,
    /// Google Gemini CLI.
    Gemini,
    /// Google Antigravity (`agy`).
    Antigravity,
    /// Manus, a remote API.
    Manus,
    /// The built-in scripted agent, for demos and tests.
    Mock,
}

impl AgentId {
    /// All of them, in listing order.
    pub const ALL: [Self; 6] =
        [Self::Codex, Self::Claude, Self::Gemini, Self::Antigravity, Self::Manus, Self::Mock];

    /// The name used in files and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Claude => "claude",
            Self::Gemini => "gemini",
            Self::Antigravity => "antigravity",
            Self::Manus => "manus",
            Self::Mock => "mock",
        }
    }

    /// The command that starts it, where the config names no other.
    pub fn command(self) -> &'static str {
        match self {
            Self::Antigravity => "agy",
            _ => self.as_str(),
        }
    }

    /// The inverse of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|id| id.as_str() == text)
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
