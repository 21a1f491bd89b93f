//! What of the configured scope one run gets. It is handed to the supervisor and never stored.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::errors::BridgeError;
use crate::agents::{Agent, AgentError};
use crate::config::{AgentConfig, Config, ScopeCheck, ScopeServer, ScopeTool};
use crate::error::Result;

/// A call that nobody is asked about and that runs nothing takes no longer than this.
const QUICK_CALL: Duration = Duration::from_secs(110);
/// Ending a command takes this much beyond its own limit.
const ENDING: Duration = Duration::from_secs(15);

/// The tools of one run, with all that they need from the config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunScope {
    /// Tools, in listing order.
    pub tools: Vec<ScopeTool>,
    /// Commands that `run_check` may run; none without that tool.
    pub checks: BTreeMap<String, ScopeCheck>,
    /// Upstream servers.
    pub servers: BTreeMap<String, ScopeServer>,
    /// How long a question waits, in milliseconds.
    pub ask_timeout_ms: u64,
    /// What is answered when nobody does.
    pub ask_default: String,
    /// The config file, for delegations.
    pub config: PathBuf,
    /// Delegations above the worker, its own included.
    pub depth: u32,
    /// How many there may be.
    pub max_depth: u32,
}

impl RunScope {
    /// The longest that any call of these tools may take.
    pub fn longest_call(&self) -> Duration {
        let asked =
            self.tools.iter().any(|t| matches!(t, ScopeTool::AskSupervisor | ScopeTool::RequestApproval));
        let question = asked.then(|| Duration::from_millis(self.ask_timeout_ms));
        let checks = self.checks.values().map(|check| Duration::from_secs(check.timeout_seconds));
        checks.chain(question).map(|limit| limit + ENDING).fold(QUICK_CALL, Duration::max)
    }
}

/// The scope of a run of this agent, none if it has nothing in it. `asked` are the names that the caller
/// wants; it may want fewer than the config allows, and is refused more.
pub(super) fn resolve(
    config: &Config,
    agent: &dyn Agent,
    settings: &AgentConfig,
    asked: Option<&[String]>,
    depth: u32,
) -> Result<Option<RunScope>> {
    let allowed: Vec<&str> = match &settings.scope_tools {
        Some(own) => own.iter().map(String::as_str).collect(),
        None => config.scope.names().collect(),
    };
    if let Some(asked) = asked
        && let Some(name) = asked.iter().find(|name| !allowed.contains(&name.as_str()))
    {
        let name = crate::agents::redaction::one_line(name, 60);
        let allowed = allowed.into_iter().map(str::to_owned).collect();
        return Err(BridgeError::ScopeNotAllowed { agent: agent.id(), name, allowed }.into());
    }
    let wanted =
        |name: &str| allowed.contains(&name) && asked.is_none_or(|asked| asked.iter().any(|a| a == name));
    let tools: Vec<ScopeTool> =
        config.scope.tools.iter().copied().filter(|tool| wanted(tool.as_str())).collect();
    let servers: BTreeMap<String, ScopeServer> = config
        .scope
        .servers
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, server)| (name.clone(), server.clone()))
        .collect();
    if tools.is_empty() && servers.is_empty() {
        return Ok(None);
    }
    match agent.takes_endpoint(settings) {
        Ok(()) => {}
        // Tools for everybody are for everybody that can have them; tools by name are not left out in silence.
        Err(AgentError::EndpointUnsupported(_)) if asked.is_none() && settings.scope_tools.is_none() => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    }
    let checks = match tools.contains(&ScopeTool::RunCheck) {
        true => config.scope.checks.clone(),
        false => BTreeMap::new(),
    };
    Ok(Some(RunScope {
        tools,
        checks,
        servers,
        ask_timeout_ms: u64::try_from(config.scope.ask_timeout.as_millis()).unwrap_or(u64::MAX),
        ask_default: config.scope.ask_default.clone(),
        config: config.path.clone(),
        depth,
        max_depth: config.max_delegation_depth,
    }))
}

#[cfg(test)]
#[path = "run_scope_tests.rs"]
mod tests;
