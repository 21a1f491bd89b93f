//! Where each effective value came from.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::error::ConfigError;
use super::load::{examine, lookup, variable_of};
use super::{AgentConfig, Config, ConfigSource, RelayProfile, ScopeCheck, ScopeServer, ScopeTransport};
use crate::context::Context;
use crate::policy::AgentId;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginOf {
    /// Nobody said anything.
    Default,
    /// The config file, at this JSON pointer.
    File(String),
    /// This environment variable.
    Environment(&'static str),
}

/// One effective value.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// Full path of the key.
    pub key: String,
    /// The effective value; the values of `extraEnv` are hidden.
    pub value: Value,
    /// Where it came from.
    pub origin: OriginOf,
    /// What lowered it, if something did.
    pub clamped_by: Option<String>,
    /// A condition on the value, if there is one.
    pub note: Option<&'static str>,
}

/// Every effective value of the selected config, in a fixed order.
///
/// # Errors
/// As [`super::load`].
pub fn explain(context: &Context, flag: Option<&Path>) -> Result<(Config, Vec<Explained>), ConfigError> {
    let examined = examine(context, flag)?;
    let (written, variables, lowered) =
        (examined.written.clone(), examined.variables.clone(), examined.lowered.clone());
    let config = examined.into_config()?;
    let explained = values(&config)
        .into_iter()
        .map(|(key, value)| {
            let origin = match variable_of(&variables, &key) {
                Some(variable) => OriginOf::Environment(variable),
                // A bundle's own presets are defaults, not something a file says.
                None if config.source == ConfigSource::Bundle => OriginOf::Default,
                None if lookup(&written, &key).is_some() => {
                    OriginOf::File(format!("/{}", key.replace('.', "/")))
                }
                None => OriginOf::Default,
            };
            let found_only = key.ends_with(".enabled") && value == true && origin == OriginOf::Default;
            Explained {
                clamped_by: lowered.get(&key).cloned(),
                note: found_only.then_some("when its program is found"),
                key,
                value,
                origin,
            }
        })
        .collect();
    Ok((config, explained))
}

/// Keys and effective values, in the units and spelling of the file.
fn values(config: &Config) -> Vec<(String, Value)> {
    let defaults = &config.defaults;
    let egress = &config.remote_egress;
    let scope = &config.scope;
    let relay = &config.relay;
    let seconds = |duration: std::time::Duration| json!(duration.as_secs());
    let off_is_zero = |duration: Option<std::time::Duration>| json!(duration.map_or(0, |d| d.as_secs()));
    let mut list = vec![
        ("allowedRoots".to_owned(), paths(&config.allowed_roots)),
        ("stateDir".to_owned(), path(&config.state_dir)),
    ];
    for (id, agent) in &config.agents {
        agent_values(*id, agent, &mut list);
    }
    let rest = [
        ("defaults.timeoutSec", seconds(defaults.timeout)),
        ("defaults.startTimeoutSec", off_is_zero(defaults.start_timeout)),
        ("defaults.idleTimeoutSec", off_is_zero(defaults.idle_timeout)),
        ("defaults.waitSeconds", seconds(defaults.wait)),
        ("defaults.sandbox", json!(defaults.sandbox)),
        ("defaults.cwd", defaults.cwd.as_deref().map_or(Value::Null, path)),
        ("defaults.onDisconnect", json!(defaults.on_disconnect)),
        ("policy.sandboxCeiling", json!(config.sandbox_ceiling)),
        ("policy.remoteEgress.enabled", json!(egress.enabled)),
        ("policy.remoteEgress.allowedAgents", json!(egress.allowed_agents)),
        ("policy.remoteEgress.allowedRoots", paths(&egress.allowed_roots)),
        ("policy.remoteEgress.allowedDataClasses", json!(egress.allowed_data_classes)),
        ("policy.cumulativeRemoteCost", json!(config.cumulative_remote_cost)),
        ("scope.tools", json!(scope.tools)),
        (
            "scope.checks",
            scope.checks.iter().map(|(name, check)| (name.clone(), check_value(check))).collect(),
        ),
        (
            "scope.servers",
            scope.servers.iter().map(|(name, server)| (name.clone(), server_value(server))).collect(),
        ),
        ("scope.askTimeoutSeconds", seconds(scope.ask_timeout)),
        ("scope.askDefault", json!(scope.ask_default)),
        ("relay.agent", json!(relay.agent)),
        (
            "relay.profiles",
            relay.profiles.iter().map(|(name, it)| (name.clone(), profile_value(it))).collect(),
        ),
        ("relay.defaultProfile", json!(relay.default_profile)),
        ("relay.fixedConstraints", json!(relay.fixed_constraints)),
        ("relay.allowedRoots", paths(&relay.allowed_roots)),
        ("relay.timeoutMinutes", json!(relay.timeout.as_secs() / 60)),
        ("relay.maxConcurrentRuns", json!(relay.max_concurrent_runs)),
        ("relay.maxQueuedRuns", json!(relay.max_queued_runs)),
        ("relay.queueTimeoutSec", seconds(relay.queue_timeout)),
        ("relay.maxCorrections", json!(relay.max_corrections)),
        ("relay.waitSeconds", seconds(relay.wait)),
        ("relay.observeSeconds", seconds(relay.observe)),
        ("relay.keepRuns", json!(relay.keep_runs)),
        ("handoffMaxChars", json!(config.handoff_max_chars)),
        ("sessionLockWaitMs", json!(u64::try_from(config.session_lock_wait.as_millis()).unwrap_or(u64::MAX))),
        ("toolsets", json!(config.toolsets)),
        ("maxDelegationDepth", json!(config.max_delegation_depth)),
        ("maxConcurrentTurns", json!(config.max_concurrent_turns)),
        ("maxOutputBytes", json!(config.max_output_bytes)),
    ];
    list.extend(rest.map(|(key, value)| (key.to_owned(), value)));
    list
}

/// Settings that mean nothing to an agent are left out.
fn agent_values(id: AgentId, agent: &AgentConfig, list: &mut Vec<(String, Value)>) {
    let mut push = |name: &str, value: Value| list.push((format!("agents.{id}.{name}"), value));
    push("enabled", json!(agent.enabled));
    if id == AgentId::Manus {
        push("defaultModel", json!(agent.default_model));
        push("credentialFile", agent.credential_file.as_deref().map_or(Value::Null, path));
        push("baseUrl", json!(agent.base_url));
        push("allowDevelopmentBaseUrl", json!(agent.allow_development_base_url));
        push("acknowledgeAccountDefaultCapabilities", json!(agent.acknowledge_account_default_capabilities));
        push("accountCapabilityProfile", json!(agent.account_capability_profile));
        push("startSpacingMs", json!(u64::try_from(agent.start_spacing.as_millis()).unwrap_or(u64::MAX)));
        return;
    }
    push("bin", json!(agent.bin));
    push("defaultModel", json!(agent.default_model));
    push("sandboxCeiling", json!(agent.sandbox_ceiling));
    push("extraArgs", json!(agent.extra_args));
    push("extraEnv", hidden(&agent.extra_env));
    push("passEnv", json!(agent.pass_env));
    push("startSpacingMs", json!(u64::try_from(agent.start_spacing.as_millis()).unwrap_or(u64::MAX)));
    push("useUserConfig", json!(agent.use_user_config));
    push("scope.tools", json!(agent.scope_tools));
    if id == AgentId::Mock {
        push("script", agent.script.as_deref().map_or(Value::Null, path));
    }
}

fn check_value(check: &ScopeCheck) -> Value {
    json!({
        "argv": check.argv,
        "timeoutSeconds": check.timeout_seconds,
        "maxOutputBytes": check.max_output_bytes,
    })
}

fn profile_value(profile: &RelayProfile) -> Value {
    json!({
        "workspace": profile.workspace.as_deref().map(path),
        "agent": profile.agent,
        "executionMode": profile.execution_mode,
        "timeoutMinutes": profile.timeout.map(|timeout| timeout.as_secs() / 60),
        "constraints": profile.constraints,
        "model": profile.model,
        "checks": profile.checks,
    })
}

/// What may be a secret is hidden.
fn server_value(server: &ScopeServer) -> Value {
    let mut value = match &server.transport {
        ScopeTransport::Command { command, args, env, pass_env } => {
            json!({ "command": command, "args": args, "env": hidden(env), "passEnv": pass_env })
        }
        ScopeTransport::Http { url, headers, header_env } => {
            json!({ "url": url, "headers": hidden(headers), "headerEnv": header_env })
        }
    };
    value["tools"] = json!(server.tools);
    value
}

/// Names without their values.
fn hidden(map: &BTreeMap<String, String>) -> Value {
    map.keys().map(|name| (name.clone(), json!("(hidden)"))).collect()
}

fn path(path: &Path) -> Value {
    json!(path.display().to_string())
}

fn paths(list: &[std::path::PathBuf]) -> Value {
    list.iter().map(|item| path(item)).collect()
}
