//! The `relay` section: profiles of compact delegate-and-review runs, and their limits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::document::Place;
use super::effective::Builder;
use super::schema::ConfigFile;
use super::scope::ScopeConfig;
use crate::policy::{AgentId, ExecutionMode, Isolation};

/// Most constraints of one list, and the most bytes of one of them.
pub const MAX_CONSTRAINTS: usize = 16;
/// Most bytes of one constraint.
pub const MAX_CONSTRAINT_BYTES: usize = 1024;
/// Longest time limit of a run, in minutes.
pub const MAX_TIMEOUT_MINUTES: u32 = 720;
const MAX_PROFILE_NAME: usize = 64;

/// Compact delegate-and-review runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RelaySection {
    /// Backend of `relay_execute` when neither the call nor its profile names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Profiles by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub profiles: BTreeMap<String, ProfileSection>,
    /// Profile of a call that names none; then a task alone is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub default_profile: Option<String>,
    /// Constraints that every run is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 1024)))]
    pub fixed_constraints: Vec<String>,
    /// Folders in which runs may work; inside `allowedRoots` (default: all of those).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1)))]
    pub allowed_roots: Vec<String>,
    /// Time limit of a run that names none, in minutes (default 30).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 720))]
    pub timeout_minutes: Option<u32>,
    /// Runs that work at the same time on one state folder (default 4); one in a workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub max_concurrent_runs: Option<u32>,
    /// Runs that wait for their turn (default 16).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 256))]
    pub max_queued_runs: Option<u32>,
    /// How long a run waits for its turn, in seconds (default 600).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 7200))]
    pub queue_timeout_sec: Option<u32>,
    /// Corrections of one run (default 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub max_corrections: Option<u32>,
    /// How long a tool waits for a run before it answers `RUNNING`, in seconds (default: `defaults.waitSeconds`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 7200))]
    pub wait_seconds: Option<u32>,
    /// How long a look at the repository may take, in seconds (default 10).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 300))]
    pub observe_seconds: Option<u32>,
    /// Finished runs whose records are kept (default 1000).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 100_000))]
    pub keep_runs: Option<u32>,
}

/// What runs of a profile get when the call does not say; calls may only narrow it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileSection {
    /// Folder to work in; inside the roots.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub workspace: Option<String>,
    /// Agent that works; a call cannot choose another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Highest execution mode of the profile's runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_mode: Option<ExecutionMode>,
    /// Time limit, in minutes; a call may ask for less.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 720))]
    pub timeout_minutes: Option<u32>,
    /// Constraints that the profile's runs are told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 1024)))]
    pub constraints: Vec<String>,
    /// Model used when a call names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// Where the profile's runs work (default `none`: in the workspace); a call cannot change `worktree`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Checks out of `scope.checks` that the bridge runs itself after the worker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub checks: Vec<String>,
}

/// The effective `relay` section.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Backend when nobody names one.
    pub agent: Option<AgentId>,
    /// Profiles by name.
    pub profiles: BTreeMap<String, RelayProfile>,
    /// Profile when the call names none; one of `profiles`, or one that the environment brings.
    pub default_profile: Option<String>,
    /// Told to every run.
    pub fixed_constraints: Vec<String>,
    /// Canonical folders, inside the allowed roots; empty for all of those.
    pub allowed_roots: Vec<PathBuf>,
    /// Time limit of a run that names none.
    pub timeout: Duration,
    /// Runs at the same time.
    pub max_concurrent_runs: usize,
    /// Runs that wait.
    pub max_queued_runs: usize,
    /// How long they wait.
    pub queue_timeout: Duration,
    /// Corrections of one run.
    pub max_corrections: u32,
    /// How long a tool waits.
    pub wait: Duration,
    /// How long a look at the repository may take.
    pub observe: Duration,
    /// Finished runs that are kept.
    pub keep_runs: usize,
}

/// A profile, as far as it says something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayProfile {
    /// Folder, as written or canonical.
    pub workspace: Option<PathBuf>,
    /// Backend.
    pub agent: Option<AgentId>,
    /// Highest execution mode.
    pub execution_mode: Option<ExecutionMode>,
    /// Time limit.
    pub timeout: Option<Duration>,
    /// Constraints.
    pub constraints: Vec<String>,
    /// Model.
    pub model: Option<String>,
    /// Where runs work.
    pub isolation: Isolation,
    /// Names of checks.
    pub checks: Vec<String>,
}

impl Builder<'_> {
    /// The effective section.
    pub(super) fn relay(
        &mut self,
        file: &ConfigFile,
        roots: &[PathBuf],
        scope: &ScopeConfig,
        wait: Duration,
    ) -> RelayConfig {
        let nothing = RelaySection::default();
        let written = file.relay.as_ref().unwrap_or(&nothing);
        let seconds = |value: Option<u32>, default: u32| Duration::from_secs(value.unwrap_or(default).into());
        let mut allowed_roots = Vec::new();
        for (index, text) in written.allowed_roots.iter().enumerate() {
            if let Some(root) = self.folder_in_roots(&format!("relay.allowedRoots[{index}]"), text, roots)
                && !allowed_roots.contains(&root)
            {
                allowed_roots.push(root);
            }
        }
        let mut profiles = BTreeMap::new();
        for (name, profile) in &written.profiles {
            profiles.insert(name.clone(), self.profile(name, profile, roots, scope));
        }
        RelayConfig {
            agent: written.agent,
            profiles,
            default_profile: written.default_profile.clone(),
            fixed_constraints: written.fixed_constraints.clone(),
            allowed_roots,
            timeout: Duration::from_secs(60 * u64::from(written.timeout_minutes.unwrap_or(30))),
            max_concurrent_runs: written.max_concurrent_runs.map_or(4, |runs| runs as usize),
            max_queued_runs: written.max_queued_runs.map_or(16, |runs| runs as usize),
            queue_timeout: seconds(written.queue_timeout_sec, 600),
            max_corrections: written.max_corrections.unwrap_or(2),
            wait: written.wait_seconds.map_or(wait, |value| Duration::from_secs(value.into())),
            observe: seconds(written.observe_seconds, 10),
            keep_runs: written.keep_runs.map_or(1000, |runs| runs as usize),
        }
    }

    fn profile(
        &mut self,
        name: &str,
        written: &ProfileSection,
        roots: &[PathBuf],
        scope: &ScopeConfig,
    ) -> RelayProfile {
        let relay = Place::Key(&Place::Top, "relay");
        let profiles = Place::Key(&relay, "profiles");
        let key = Place::Key(&profiles, name).to_string();
        if !is_profile_name(name) {
            let message =
                format!("a name has 1 to {MAX_PROFILE_NAME} letters, digits and \"_\", \"-\", \".\"");
            self.invalid(&key, &message);
        }
        if let Some(model) = &written.model
            && !crate::policy::is_model_name(model)
        {
            self.invalid(&format!("{key}.model"), "is not the name of a model");
        }
        for (index, check) in written.checks.iter().enumerate() {
            if !scope.checks.contains_key(check) {
                let message = format!("{} is not in scope.checks", super::document::echo(check));
                self.invalid(&format!("{key}.checks[{index}]"), &message);
            }
        }
        RelayProfile {
            workspace: written
                .workspace
                .as_deref()
                .and_then(|text| self.folder_in_roots(&format!("{key}.workspace"), text, roots)),
            agent: written.agent,
            execution_mode: written.execution_mode,
            timeout: written.timeout_minutes.map(|minutes| Duration::from_secs(60 * u64::from(minutes))),
            constraints: written.constraints.clone(),
            model: written.model.clone(),
            isolation: written.isolation.unwrap_or_default(),
            checks: written.checks.clone(),
        }
    }
}

/// Whether a text can be the name of a profile.
pub fn is_profile_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_PROFILE_NAME
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}
