//! The version of an installed CLI, for agents whose arguments depend on it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::SystemTime;

use super::lock;
use super::probe::Probe;
use crate::agents::Agent;
use crate::config::{AgentConfig, Config};
use crate::context::Context;

/// Versions by program file, each good for as long as the file is the same.
#[derive(Default)]
pub struct CliVersions {
    known: Mutex<HashMap<PathBuf, (Stamp, Option<String>)>>,
}

/// What tells that a file was replaced.
type Stamp = (u64, Option<SystemTime>);

impl CliVersions {
    /// What the agent's program says its version is; none if the agent does not care, or if nothing can be learnt.
    /// Starts the program when its file is new.
    pub(super) fn of(
        &self,
        context: &Context,
        config: &Config,
        agent: &dyn Agent,
        settings: &AgentConfig,
    ) -> Option<String> {
        if !agent.version_decides() {
            return None;
        }
        let probe = Probe { context, config, agent, settings };
        let resolved = probe.resolve().ok()?;
        let file = PathBuf::from(&resolved.display);
        let found = std::fs::metadata(&file).ok()?;
        let stamp = (found.len(), found.modified().ok());
        if let Some((_, version)) = lock(&self.known).get(&file).filter(|(known, _)| *known == stamp) {
            return version.clone();
        }
        let said = probe.run(&resolved, agent.version_args()).ok()?;
        // A program that does not start now may start next time.
        if said.report.exit_code != Some(0) {
            return None;
        }
        let version = agent.parse_version(&said.stdout);
        lock(&self.known).insert(file, (stamp, version.clone()));
        version
    }
}

#[cfg(test)]
#[path = "cli_version_tests.rs"]
mod tests;
