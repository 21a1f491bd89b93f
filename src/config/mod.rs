//! The config file, bundle mode and where each value came from.
//!
//! `schema` is the file as written; [`Config`] is the effective result: defaults applied, home
//! expanded, roots canonical, illegal combinations impossible.

mod agent_settings;
mod bundle;
mod document;
mod draft;
mod effective;
mod error;
mod explain;
mod load;
mod paths;
mod relay;
mod schema;
mod schema_json;
mod scope;
mod select;
mod shape;
#[cfg(test)]
pub(crate) mod tests;
mod write;

pub use draft::{Draft, acceptable_root};
pub use error::{
    CODES, CONFIG_BUNDLE_ENV_INVALID, CONFIG_EXISTS, CONFIG_INVALID_JSON, CONFIG_INVALID_VALUE,
    CONFIG_MISSING_KEY, CONFIG_NOT_FOUND, CONFIG_ROOT_MISSING, CONFIG_ROOT_TOO_WIDE,
    CONFIG_STATE_DIR_REQUIRED, CONFIG_STATE_DIR_UNSAFE, CONFIG_UNKNOWN_KEY, CONFIG_UNREADABLE,
    CONFIG_WRITE_FAILED, ConfigError, Problem,
};
pub use explain::{Explained, OriginOf, explain};
pub use load::{CheckReport, MAX_FILE_BYTES, check, check_bytes, load};
pub use paths::{canonical, canonical_folder, usable_home, would_be_canonical};
pub use relay::{
    MAX_CONSTRAINT_BYTES, MAX_CONSTRAINTS, MAX_TIMEOUT_MINUTES, RelayConfig, RelayProfile, is_profile_name,
};
pub use schema::{
    AgentSection, ConfigFile, CumulativeRemoteCost, Defaults, OnDisconnect, PolicySection, RemoteEgress,
    Toolset,
};
pub use schema_json::schema as json_schema;
pub use scope::{ScopeCheck, ScopeConfig, ScopeServer, ScopeTool, ScopeTransport};
pub use select::{BUNDLE_PATH, CONFIG_VARIABLE, FILE_NAME, HOME_FOLDER, Selected, default_location, select};
pub use write::write;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::policy::{AgentId, DataClass, Sandbox};

/// The effective configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file this came from (`MCPB:user_config` in bundle mode).
    pub path: PathBuf,
    /// Which rule selected it.
    pub source: ConfigSource,
    /// SHA-256 of the file's bytes, lower hex; none in bundle mode.
    pub sha256: Option<String>,
    /// Every known agent, enabled or not.
    pub agents: BTreeMap<AgentId, AgentConfig>,
    /// Canonical, existing folders; at least one.
    pub allowed_roots: Vec<PathBuf>,
    /// Highest authority any turn can get.
    pub sandbox_ceiling: Sandbox,
    /// Direct remote agents may be used.
    pub remote_egress: EgressConfig,
    /// Cumulative spending breaker; `None` switches it off.
    pub cumulative_remote_cost: Option<CumulativeRemoteCost>,
    /// What a turn gets when the caller does not say.
    pub defaults: TurnDefaults,
    /// Upper bound of the context block handed to another agent, in UTF-8 bytes.
    pub handoff_max_chars: usize,
    /// Absolute; outside every allowed root.
    pub state_dir: PathBuf,
    /// What a worker's endpoint offers at most.
    pub scope: ScopeConfig,
    /// Compact delegate-and-review runs.
    pub relay: RelayConfig,
    /// How long a turn waits for another turn of the same session.
    pub session_lock_wait: Duration,
    /// Tool groups that `serve` offers.
    pub toolsets: Vec<Toolset>,
    /// How many delegations may be nested (1: workers cannot delegate).
    pub max_delegation_depth: u32,
    /// Turns that one state folder runs at the same time.
    pub max_concurrent_turns: usize,
    /// Output limits of one run.
    pub max_output_bytes: u64,
    /// Things worth telling that are not errors (for instance an ignored legacy key).
    pub warnings: Vec<String>,
}

/// One agent's effective settings.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Whether it may be used.
    pub enabled: bool,
    /// Whether the config file says so, or it is on only "when found" (codex and claude).
    pub enabled_explicitly: bool,
    /// Command name or path.
    pub bin: String,
    /// Used when a turn has no model.
    pub default_model: Option<String>,
    /// Appended to argv in ordinary turns; authority flags are refused.
    pub extra_args: Vec<String>,
    /// Set in the worker's environment.
    pub extra_env: BTreeMap<String, String>,
    /// Names passed on from the server's environment.
    pub pass_env: Vec<String>,
    /// Lowers the global ceiling for this agent.
    pub sandbox_ceiling: Option<Sandbox>,
    /// Least time between two starts of this agent.
    pub start_spacing: Duration,
    /// Load the CLI's own user settings (off: runs are isolated from them).
    pub use_user_config: bool,
    /// Tools and servers of the endpoint of its runs, out of those in `scope`; all of them if none.
    pub scope_tools: Option<Vec<String>>,
    /// Script of the mock agent.
    pub script: Option<PathBuf>,
    /// Credential file of a remote agent.
    pub credential_file: Option<PathBuf>,
    /// Base URL of a remote agent.
    pub base_url: Option<String>,
    /// Loopback base URLs are allowed.
    pub allow_development_base_url: bool,
    /// The account's default capabilities have been reviewed.
    pub acknowledge_account_default_capabilities: bool,
    /// Label of the reviewed account.
    pub account_capability_profile: Option<String>,
}

/// Effective remote egress rules.
#[derive(Clone, Debug, Default)]
pub struct EgressConfig {
    /// Off by default.
    pub enabled: bool,
    /// Agents that may be used.
    pub allowed_agents: Vec<AgentId>,
    /// Canonical folders.
    pub allowed_roots: Vec<PathBuf>,
    /// Classes that may leave.
    pub allowed_data_classes: Vec<DataClass>,
}

/// What a turn gets when the caller does not say.
#[derive(Clone, Debug)]
pub struct TurnDefaults {
    /// Hard deadline of a run.
    pub timeout: Duration,
    /// Time to the first byte of output; `None` for no such deadline.
    pub start_timeout: Option<Duration>,
    /// Longest silence; `None` for no such deadline.
    pub idle_timeout: Option<Duration>,
    /// How long a blocking tool waits before it answers `still_running`.
    pub wait: Duration,
    /// Already lowered to the global ceiling; an agent's own ceiling may lower it further.
    pub sandbox: Sandbox,
    /// Canonical, inside the allowed roots.
    pub cwd: Option<PathBuf>,
    /// What happens to a running turn when its host goes away.
    pub on_disconnect: OnDisconnect,
}

/// Which rule selected the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// `--config FILE`.
    Flag,
    /// `AGENT_BRIDGE_CONFIG`.
    Environment,
    /// `AGENT_BRIDGE_BUNDLE_MODE=1`.
    Bundle,
    /// `config.json` beside the program.
    BesideProgram,
    /// `~/.agent-bridge/config.json`.
    DefaultLocation,
}

impl ConfigSource {
    /// The label shown to people and in diagnostics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Flag => "--config flag",
            Self::Environment => "AGENT_BRIDGE_CONFIG env var",
            Self::Bundle => "MCPB user_config environment",
            Self::BesideProgram => "found next to the server file",
            Self::DefaultLocation => "default location",
        }
    }
}
