//! The config file as written. JSON Schema and key checking are generated from these types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::relay::RelaySection;
use super::scope::{AgentScopeSection, ScopeSection};
use crate::policy::{AgentId, DataClass, Sandbox};

/// An agent-bridge config file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigFile {
    /// Address of this schema; for editors.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Free notes; never read.
    #[serde(rename = "_notes", skip_serializing_if = "Option::is_none")]
    pub notes: Option<Value>,
    /// Folders in which agents may work. At least one.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub allowed_roots: Vec<String>,
    /// Settings of each agent, merged over the defaults. codex and claude are on when installed;
    /// any other agent is off unless `enabled` is true.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = {"enum": AgentId::ALL.map(AgentId::as_str)}))]
    pub agents: BTreeMap<AgentId, AgentSection>,
    /// What a turn gets when the caller does not say.
    #[serde(default)]
    pub defaults: Defaults,
    /// Ceilings and egress rules.
    #[serde(default)]
    pub policy: PolicySection,
    /// What the endpoint of a worker offers (default: there is none).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeSection>,
    /// Compact delegate-and-review runs: profiles and limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelaySection>,
    /// Upper bound of the context block handed to another agent, in UTF-8 bytes (default 24000).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1000, max = 1_000_000))]
    pub handoff_max_chars: Option<u32>,
    /// Where sessions and outputs are kept (default `~/.agent-bridge`). Never inside an allowed root.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub state_dir: Option<String>,
    /// How long a turn waits for another turn of the same session, in milliseconds (default 30000).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 300_000))]
    pub session_lock_wait_ms: Option<u32>,
    /// Accepted for old configs and ignored: locks are released by the operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60_000, max = 86_400_000))]
    pub session_lock_stale_ms: Option<u32>,
    /// Tool groups that `serve` offers (default: all).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub toolsets: Option<Vec<Toolset>>,
    /// How many delegations may be nested (default 1: workers cannot delegate).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub max_delegation_depth: Option<u32>,
    /// Turns that run at the same time on one state folder (default 8).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub max_concurrent_turns: Option<u32>,
    /// A run that prints more than this is ended, in bytes (default 268435456).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 65_536, max = 17_179_869_184_u64))]
    pub max_output_bytes: Option<u64>,
}

/// Settings of one agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentSection {
    /// Whether the agent may be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Command name or path (default: the agent's id).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub bin: Option<String>,
    /// Model used when a turn names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub default_model: Option<String>,
    /// Arguments appended in ordinary turns. Flags that change authority are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,
    /// Variables set for the agent. Variables that change which program runs are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_env: BTreeMap<String, String>,
    /// Names of variables passed on from the server's environment, for instance an API key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_env: Vec<String>,
    /// Lowers the global ceiling for this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_ceiling: Option<Sandbox>,
    /// Least time between two starts of this agent, in milliseconds (default 0).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 60_000))]
    pub start_spacing_ms: Option<u32>,
    /// Load the CLI's own user settings (default false: runs are isolated from them).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_user_config: Option<bool>,
    /// Narrows the endpoint of this agent's runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<AgentScopeSection>,
    /// Script file of the mock agent; for `mock` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub script: Option<String>,
    /// File that holds the API key of a remote agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub credential_file: Option<String>,
    /// Base URL of a remote agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Allow a loopback base URL; for `manus` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_development_base_url: Option<bool>,
    /// The remote account's default capabilities have been reviewed; for `manus` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge_account_default_capabilities: Option<bool>,
    /// Label of the reviewed account; for `manus` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub account_capability_profile: Option<String>,
}

/// What a turn gets when the caller does not say.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Defaults {
    /// Hard deadline of a run, in seconds (default 600).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 7200))]
    pub timeout_sec: Option<u32>,
    /// Time to the first byte of output, in seconds (default 120; 0 switches it off).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 7200))]
    pub start_timeout_sec: Option<u32>,
    /// Longest silence, in seconds (default 0: off).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 7200))]
    pub idle_timeout_sec: Option<u32>,
    /// How long a blocking tool waits before it answers `still_running`, in seconds (default 45).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 7200))]
    pub wait_seconds: Option<u32>,
    /// Authority of a turn (default `read-only`); lowered to the ceilings that apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// Working folder of a new session; inside the allowed roots.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub cwd: Option<String>,
    /// What happens to a running turn when its host goes away (default `cancel`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
}

/// What happens to a running turn when its host goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// The worker is ended and the turn is recorded as cancelled.
    Cancel,
    /// The turn goes on and its result can be fetched later.
    Detach,
}

/// Ceilings and egress rules.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicySection {
    /// Highest authority any turn can get (default `workspace-write`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_ceiling: Option<Sandbox>,
    /// Rules for direct remote agents (default: off).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_egress: Option<RemoteEgress>,
    /// Cumulative spending breaker (default: off).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cumulative_remote_cost: Option<CumulativeRemoteCost>,
}

/// Rules for direct remote agents. When enabled, each list must name something.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoteEgress {
    /// Off by default.
    #[serde(default)]
    pub enabled: bool,
    /// Agents that may be used.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub allowed_agents: Vec<AgentId>,
    /// Folders whose content may leave; inside `allowedRoots`.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(min = 1)))]
    pub allowed_roots: Vec<String>,
    /// Data classes that may leave.
    #[serde(default)]
    #[schemars(length(max = 4))]
    pub allowed_data_classes: Vec<DataClass>,
}

/// A spending limit over all remote turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CumulativeRemoteCost {
    /// Only `USD`.
    #[schemars(extend("const" = "USD"))]
    pub currency: String,
    /// The limit, in cents.
    #[schemars(range(min = 1, max = 100_000_000_000_u64))]
    pub max_reserved_cents: u64,
}

/// A group of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Toolset {
    /// Delegation, sessions, turns.
    Sessions,
    /// Approvals.
    Approvals,
    /// Manus.
    Manus,
    /// Workboards.
    Workboards,
    /// Recommendations.
    Recommendations,
    /// Compact delegate-and-review.
    Relay,
    /// Health and install diagnostics.
    Diagnostics,
}
