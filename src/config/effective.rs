//! The file as written becomes the effective config: defaults, canonical folders, ceilings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{
    CONFIG_INVALID_VALUE, CONFIG_ROOT_MISSING, CONFIG_STATE_DIR_REQUIRED, CONFIG_STATE_DIR_UNSAFE, Problems,
    printable,
};
use super::paths::{canonical_folder, expand, usable_home, would_be_canonical};
use super::schema::{ConfigFile, OnDisconnect, Toolset};
use super::select::HOME_FOLDER;
use super::{Config, ConfigSource, EgressConfig, TurnDefaults};
use crate::context::Context;
use crate::error::CodeDoc;
use crate::policy::{AgentId, Sandbox, contains, find_root};

/// Every tool group, in listing order.
const ALL_TOOLSETS: [Toolset; 7] = [
    Toolset::Sessions,
    Toolset::Approvals,
    Toolset::Manus,
    Toolset::Workboards,
    Toolset::Recommendations,
    Toolset::Relay,
    Toolset::Diagnostics,
];

/// Where the values of a config come from.
pub(super) struct Origin<'a> {
    pub(super) path: &'a Path,
    pub(super) source: ConfigSource,
    pub(super) sha256: Option<String>,
}

/// Collects what is found while the effective config is built.
pub(super) struct Builder<'a> {
    pub(super) context: &'a Context,
    /// Folder of the config file; relative paths start here.
    pub(super) base: Option<&'a Path>,
    /// The sections that are written down, by key.
    pub(super) mentioned: &'a dyn Fn(&str) -> bool,
    pub(super) problems: &'a mut Problems,
    pub(super) warnings: Vec<String>,
    /// Keys whose value was lowered, and by what.
    pub(super) lowered: BTreeMap<String, String>,
}

impl Builder<'_> {
    /// The effective config. It is complete only if no problem was added.
    pub(super) fn build(&mut self, file: &ConfigFile, origin: Origin<'_>) -> Config {
        let allowed_roots = self.roots("allowedRoots", &file.allowed_roots);
        let sandbox_ceiling = file.policy.sandbox_ceiling.unwrap_or(Sandbox::WorkspaceWrite);
        let scope = self.scope(file);
        let mut agents = BTreeMap::new();
        for id in AgentId::ALL {
            let section = file.agents.get(&id).cloned().unwrap_or_default();
            let agent = self.agent(id, &section, sandbox_ceiling, &scope);
            if let Some(path) = &agent.credential_file {
                self.warn_if_within_roots(&format!("agents.{id}.credentialFile"), path, &allowed_roots);
            }
            self.warn_of_a_replaceable_program(id, &agent.bin, &allowed_roots);
            agents.insert(id, agent);
        }
        if self.base.is_some() {
            self.warn_if_config_within_roots(origin.path, &allowed_roots);
        }
        if file.session_lock_stale_ms.is_some() {
            self.warn("sessionLockStaleMs", "is ignored; locks are released by the operating system");
        }
        let defaults = self.defaults(file, &allowed_roots, sandbox_ceiling);
        let mut toolsets = file.toolsets.clone().unwrap_or_else(|| ALL_TOOLSETS.to_vec());
        toolsets.sort_unstable();
        toolsets.dedup();
        Config {
            path: origin.path.to_owned(),
            source: origin.source,
            sha256: origin.sha256,
            agents,
            remote_egress: self.egress(file, &allowed_roots),
            cumulative_remote_cost: file.policy.cumulative_remote_cost.clone(),
            relay: self.relay(file, &allowed_roots, &scope, defaults.wait),
            defaults,
            state_dir: self.state_dir(file, &allowed_roots),
            allowed_roots,
            sandbox_ceiling,
            scope,
            handoff_max_chars: file.handoff_max_chars.map_or(24_000, |bytes| bytes as usize),
            session_lock_wait: Duration::from_millis(file.session_lock_wait_ms.unwrap_or(30_000).into()),
            toolsets,
            max_delegation_depth: file.max_delegation_depth.unwrap_or(1),
            max_concurrent_turns: file.max_concurrent_turns.map_or(8, |turns| turns as usize),
            max_output_bytes: file.max_output_bytes.unwrap_or(256 * 1024 * 1024),
            warnings: std::mem::take(&mut self.warnings),
        }
    }

    fn roots(&mut self, key: &str, texts: &[String]) -> Vec<PathBuf> {
        let mut roots = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            if let Some(root) = self.folder(&format!("{key}[{index}]"), text)
                && !roots.contains(&root)
            {
                roots.push(root);
            }
        }
        roots
    }

    /// An existing folder, canonical.
    fn folder(&mut self, key: &str, text: &str) -> Option<PathBuf> {
        let path = expand(self.context, text, self.base).map_err(|reason| self.invalid(key, &reason)).ok()?;
        canonical_folder(&path).map_err(|reason| self.problem(&CONFIG_ROOT_MISSING, key, &reason)).ok()
    }

    /// An existing folder inside the allowed roots, canonical.
    pub(super) fn folder_in_roots(&mut self, key: &str, text: &str, roots: &[PathBuf]) -> Option<PathBuf> {
        let folder = self.folder(key, text)?;
        // Without any root the missing roots are the problem, already told.
        if !roots.is_empty() && find_root(roots, &folder).is_err() {
            self.invalid(key, &format!("{} lies outside allowedRoots", folder.display()));
            return None;
        }
        Some(folder)
    }

    fn defaults(&mut self, file: &ConfigFile, roots: &[PathBuf], ceiling: Sandbox) -> TurnDefaults {
        let seconds = |value: u32| Duration::from_secs(value.into());
        let unless_zero = |value: u32| (value > 0).then(|| seconds(value));
        let written = &file.defaults;
        let sandbox = written.sandbox.unwrap_or(Sandbox::ReadOnly);
        if sandbox > ceiling {
            let by = format!("policy.sandboxCeiling ({ceiling})");
            self.lower("defaults.sandbox", sandbox.as_str(), ceiling.as_str(), by);
        }
        TurnDefaults {
            timeout: seconds(written.timeout_sec.unwrap_or(600)),
            start_timeout: unless_zero(written.start_timeout_sec.unwrap_or(120)),
            idle_timeout: unless_zero(written.idle_timeout_sec.unwrap_or(0)),
            wait: seconds(written.wait_seconds.unwrap_or(45)),
            sandbox: sandbox.min(ceiling),
            cwd: written.cwd.as_deref().and_then(|text| self.folder_in_roots("defaults.cwd", text, roots)),
            on_disconnect: written.on_disconnect.unwrap_or(OnDisconnect::Cancel),
        }
    }

    fn egress(&mut self, file: &ConfigFile, roots: &[PathBuf]) -> EgressConfig {
        let Some(written) = &file.policy.remote_egress else { return EgressConfig::default() };
        let mut egress = EgressConfig { enabled: written.enabled, ..EgressConfig::default() };
        for (index, text) in written.allowed_roots.iter().enumerate() {
            let key = format!("policy.remoteEgress.allowedRoots[{index}]");
            if let Some(root) = self.folder_in_roots(&key, text, roots)
                && !egress.allowed_roots.contains(&root)
            {
                egress.allowed_roots.push(root);
            }
        }
        for id in &written.allowed_agents {
            if !egress.allowed_agents.contains(id) {
                egress.allowed_agents.push(*id);
            }
        }
        for class in &written.allowed_data_classes {
            if !egress.allowed_data_classes.contains(class) {
                egress.allowed_data_classes.push(*class);
            }
        }
        if written.enabled {
            for (name, empty) in [
                ("allowedAgents", written.allowed_agents.is_empty()),
                ("allowedRoots", written.allowed_roots.is_empty()),
                ("allowedDataClasses", written.allowed_data_classes.is_empty()),
            ] {
                if empty {
                    let key = format!("policy.remoteEgress.{name}");
                    self.invalid(&key, "must name something when remoteEgress is enabled");
                }
            }
        }
        egress
    }

    /// Where the state folder will be. It is not created here.
    fn state_dir(&mut self, file: &ConfigFile, roots: &[PathBuf]) -> PathBuf {
        let asked = match (&file.state_dir, usable_home(self.context)) {
            (Some(text), _) => match expand(self.context, text, self.base) {
                Ok(path) => path,
                Err(reason) => {
                    self.invalid("stateDir", &reason);
                    return PathBuf::new();
                }
            },
            (None, Some(home)) => home.join(HOME_FOLDER),
            (None, None) => {
                let found = self
                    .context
                    .home
                    .as_ref()
                    .map_or_else(|| "HOME is unset".to_owned(), |home| format!("HOME is {}", home.display()));
                let message = format!("must be set to an absolute path, because {found}");
                self.problem(&CONFIG_STATE_DIR_REQUIRED, "stateDir", &message);
                return PathBuf::new();
            }
        };
        let state_dir = match would_be_canonical(&asked) {
            Ok(path) => path,
            Err(reason) => {
                self.problem(&CONFIG_STATE_DIR_UNSAFE, "stateDir", &reason);
                return PathBuf::new();
            }
        };
        for root in roots {
            let relation = if contains(root, &state_dir) {
                "lies inside"
            } else if contains(&state_dir, root) {
                "contains"
            } else {
                continue;
            };
            let message = format!("{} {relation} the allowed root {}", state_dir.display(), root.display());
            self.problem(&CONFIG_STATE_DIR_UNSAFE, "stateDir", &message);
        }
        state_dir
    }

    fn warn_if_config_within_roots(&mut self, path: &Path, roots: &[PathBuf]) {
        let Ok(real) = super::paths::canonical(path) else { return };
        if let Ok(root) = find_root(roots, &real) {
            let root = root.display();
            self.warnings.push(printable(&format!(
                "the config file lies inside the allowed root {root}; a worker that may write there can change its own limits"
            )));
        }
    }

    /// Workers are confined by the program that is started; one that they can write is no confinement.
    fn warn_of_a_replaceable_program(&mut self, id: AgentId, bin: &str, roots: &[PathBuf]) {
        let Ok(real) = super::paths::canonical(Path::new(bin)) else { return };
        if Path::new(bin).is_absolute() && find_root(roots, &real).is_ok() {
            let message = "lies inside an allowed root; a worker that may write there can replace the program that \
                           later turns start";
            self.warn(&format!("agents.{id}.bin"), message);
        }
    }

    pub(super) fn mentions(&self, key: &str) -> bool {
        (self.mentioned)(key)
    }

    pub(super) fn problem(&mut self, doc: &'static CodeDoc, key: &str, message: &str) {
        self.problems.add(doc, key, message);
    }

    pub(super) fn invalid(&mut self, key: &str, message: &str) {
        self.problem(&CONFIG_INVALID_VALUE, key, message);
    }

    pub(super) fn warn(&mut self, key: &str, message: &str) {
        self.warnings.push(printable(&format!("{key} {message}")));
    }

    pub(super) fn lower(&mut self, key: &str, from: &str, to: &str, by: String) {
        self.warnings.push(format!("{key} is lowered from {from} to {to} by {by}"));
        self.lowered.insert(key.to_owned(), by);
    }
}
