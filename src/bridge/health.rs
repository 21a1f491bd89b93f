//! Whether each agent can be used: its program, its version, its login. Probed lazily, in parallel,
//! with the same environment as a run, and remembered for a minute.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use super::lock;
use super::probe::{PROBE_LIMIT, Probe as ProgramProbe};
use crate::agents::{self, Agent, AuthStatus, Capabilities, LoginTraces, RunEnd, redaction};
use crate::config::{AgentConfig, Config};
use crate::context::Context;
use crate::error::Error;
use crate::policy::{AgentId, Sandbox};
use crate::process::ProcessError;

/// How long a finding is used.
const FRESH: Duration = Duration::from_secs(60);

/// Findings by agent.
#[derive(Default)]
pub struct HealthCache {
    known: Mutex<HashMap<AgentId, (Instant, AgentHealth)>>,
}

/// One agent as `list_agents` shows it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AgentView {
    /// Name to pass as `agent`.
    pub id: AgentId,
    /// Name for people.
    #[serde(rename = "displayName")]
    pub display_name: &'static str,
    /// Whether the config enables it.
    pub enabled: bool,
    /// Command or path of its program.
    pub bin: String,
    /// What the last probe found; only for enabled agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<AgentHealth>,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The most authority a turn of this agent can get.
    #[serde(rename = "sandboxCeiling")]
    pub sandbox_ceiling: Sandbox,
    /// Model used when a turn names none.
    #[serde(rename = "defaultModel", skip_serializing_if = "Option::is_none")]
    pub default_model: Option<String>,
    /// Who pays, as far as the passed-on variables tell.
    pub billing: &'static str,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgentHealth {
    /// The program.
    pub binary: BinaryHealth,
    /// The login.
    pub auth: AuthHealth,
    /// Both are as they should be.
    pub usable: bool,
}

/// State of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BinaryHealth {
    /// It starts.
    pub ok: bool,
    /// What it says about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Path that would be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Why it does not start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// State of the login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AuthHealth {
    /// Whether credentials are present; nobody checks that they work.
    pub status: AuthStatus,
    /// One line about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The command that logs in, when that is what is missing.
    #[serde(rename = "loginCommand", skip_serializing_if = "Option::is_none")]
    pub login_command: Option<&'static str>,
}

impl HealthCache {
    /// Every agent that this build can run. Slow (up to ten seconds) for findings that are not fresh.
    pub fn agents(&self, context: &Context, config: &Config) -> Vec<AgentView> {
        let agents: Vec<_> = listed(config).collect();
        let health: Vec<Option<AgentHealth>> = std::thread::scope(|scope| {
            let probes: Vec<_> = agents
                .iter()
                .map(|(agent, settings)| {
                    let (agent, settings) = (*agent, *settings);
                    match self.fresh(agent.id()) {
                        _ if !settings.enabled => None,
                        Some(known) => Some(Probe::Known(known)),
                        None => {
                            Some(Probe::Running(scope.spawn(move || probe(context, config, agent, settings))))
                        }
                    }
                })
                .collect();
            probes.into_iter().map(|probe| probe.map(Probe::finding)).collect()
        });
        agents
            .into_iter()
            .zip(health)
            .map(|((agent, settings), health)| {
                if let Some(health) = &health {
                    self.remember(agent.id(), health);
                }
                view(config, agent, settings, health)
            })
            .collect()
    }

    /// The same without any probe, if every finding that it needs is fresh.
    pub fn all_fresh(&self, config: &Config) -> Option<Vec<AgentView>> {
        listed(config)
            .map(|(agent, settings)| {
                let health = if settings.enabled { Some(self.fresh(agent.id())?) } else { None };
                Some(view(config, agent, settings, health))
            })
            .collect()
    }

    fn fresh(&self, id: AgentId) -> Option<AgentHealth> {
        let known = lock(&self.known);
        known.get(&id).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, health)| health.clone())
    }

    fn remember(&self, id: AgentId, health: &AgentHealth) {
        lock(&self.known)
            .entry(id)
            .and_modify(|slot| {
                if slot.0.elapsed() >= FRESH {
                    *slot = (Instant::now(), health.clone());
                }
            })
            .or_insert_with(|| (Instant::now(), health.clone()));
    }
}

/// The agents that this build can run; the mock only if it is enabled.
fn listed(config: &Config) -> impl Iterator<Item = (&'static dyn Agent, &AgentConfig)> {
    agents::registry()
        .iter()
        .filter_map(|agent| config.agents.get(&agent.id()).map(|settings| (*agent, settings)))
        .filter(|(agent, settings)| settings.enabled || agent.id() != AgentId::Mock)
}

fn view(
    config: &Config,
    agent: &dyn Agent,
    settings: &AgentConfig,
    health: Option<AgentHealth>,
) -> AgentView {
    AgentView {
        id: agent.id(),
        display_name: agent.display_name(),
        enabled: settings.enabled,
        bin: settings.bin.clone(),
        health,
        capabilities: agent.capabilities(),
        sandbox_ceiling: config.sandbox_ceiling.min(settings.sandbox_ceiling.unwrap_or(Sandbox::FullAccess)),
        default_model: settings.default_model.clone(),
        billing: billing(settings),
    }
}

enum Probe<'scope> {
    Known(AgentHealth),
    Running(std::thread::ScopedJoinHandle<'scope, AgentHealth>),
}

impl Probe<'_> {
    fn finding(self) -> AgentHealth {
        match self {
            Self::Known(health) => health,
            Self::Running(thread) => thread.join().unwrap_or_else(|_| AgentHealth {
                binary: BinaryHealth {
                    ok: false,
                    version: None,
                    path: None,
                    error: Some("health probe failed".into()),
                },
                auth: AuthHealth { status: AuthStatus::Unknown, detail: None, login_command: None },
                usable: false,
            }),
        }
    }
}

/// A key in the worker's environment changes who pays.
fn billing(settings: &AgentConfig) -> &'static str {
    let names = settings.pass_env.iter().chain(settings.extra_env.keys());
    let mut keys = names.filter(|name| name.ends_with("_API_KEY") || name.ends_with("_AUTH_TOKEN"));
    if keys.next().is_some() { "api-key (a key is passed to the agent)" } else { "the agent's own login" }
}

fn probe(context: &Context, config: &Config, agent: &dyn Agent, settings: &AgentConfig) -> AgentHealth {
    let unknown = || AuthHealth { status: AuthStatus::Unknown, detail: None, login_command: None };
    let failed = |error: Error, path: Option<String>| AgentHealth {
        binary: BinaryHealth {
            ok: false,
            version: None,
            path,
            error: Some(line(&format!("{error}. {}", error.hint()))),
        },
        auth: unknown(),
        usable: false,
    };
    let program = ProgramProbe { context, config, agent, settings };
    let resolved = match program.resolve() {
        Ok(resolved) => resolved,
        Err(error) => {
            // What is there and cannot be started is not the same as what is not there.
            let path = match &error {
                ProcessError::InterpreterMissing { program, .. }
                | ProcessError::ProgramNotExecutable { program, .. } => Some(program.display().to_string()),
                ProcessError::UnsafeBatchShim { path, .. } => Some(path.clone()),
                _ => None,
            };
            return failed(error.into(), path);
        }
    };
    // Of a script that is started through its interpreter, the script.
    let path = resolved.display.clone();
    let run = |args: Vec<String>| program.run(&resolved, args);
    let version = match run(agent.version_args()) {
        Ok(captured) if captured.report.exit_code == Some(0) => agent.parse_version(&captured.stdout),
        Ok(captured) => {
            let said = if captured.report.stderr_tail.is_empty() {
                &captured.stdout
            } else {
                &captured.report.stderr_tail
            };
            let why = match (&captured.report.stopped, captured.report.exit_code, captured.report.signal) {
                (Some(_), _, _) => format!("no answer within {} s", PROBE_LIMIT.as_secs()),
                (_, Some(code), _) => format!("exit code {code}: {said}"),
                (_, _, Some(signal)) => format!("ended by signal {signal} before it said its version"),
                _ => said.clone(),
            };
            return AgentHealth {
                binary: BinaryHealth { ok: false, version: None, path: Some(path), error: Some(line(&why)) },
                auth: unknown(),
                usable: false,
            };
        }
        Err(error) => return failed(error.into(), Some(path)),
    };
    let found = |end: &RunEnd<'_>, stdout: &str| {
        let finding = agent.parse_auth(end, stdout);
        AuthHealth {
            status: finding.status,
            detail: finding.detail.map(|detail| line(&detail)),
            login_command: (finding.status == AuthStatus::Unauthenticated).then(|| agent.login_command()),
        }
    };
    let auth = match agent.auth_args(version.as_deref()).map(run) {
        None => match agent.login_traces() {
            Some(traces) => traced(context, agent, settings, &traces),
            None => found(&RunEnd::default(), ""),
        },
        Some(Err(error)) => AuthHealth { detail: Some(line(&error.to_string())), ..unknown() },
        Some(Ok(captured)) => {
            let end = RunEnd {
                exit_code: captured.report.exit_code,
                signal: captured.report.signal,
                stderr_tail: &captured.report.stderr_tail,
                stdout_bytes: captured.report.stdout_bytes,
                log_tail: "",
            };
            found(&end, &captured.stdout)
        }
    };
    let usable = auth.status == AuthStatus::Authenticated;
    let binary = BinaryHealth { ok: true, version: version.map(|v| line(&v)), path: Some(path), error: None };
    AgentHealth { binary, auth, usable }
}

/// Whether a login left traces that a run would find, for a CLI that cannot be asked.
fn traced(context: &Context, agent: &dyn Agent, settings: &AgentConfig, traces: &LoginTraces) -> AuthHealth {
    let value = |name: &str| {
        let passed =
            agent.home_variables().contains(&name) || settings.pass_env.iter().any(|passed| passed == name);
        let set = settings.extra_env.get(name).map(Into::into);
        set.or_else(|| passed.then(|| context.var(name)).flatten().map(OsString::from))
            .filter(|value| !value.is_empty())
    };
    let home = value(traces.home_variable).map(PathBuf::from).or_else(|| context.home.clone());
    let variable = traces.variables.iter().find(|name| value(name).is_some());
    let file = traces.files.iter().find(|file| home.as_ref().is_some_and(|home| home.join(file).is_file()));
    let (status, detail) = match (variable, file) {
        (Some(name), _) => (AuthStatus::Authenticated, format!("{name} is passed on")),
        (None, Some(file)) => (AuthStatus::Authenticated, format!("there is ~/{file}")),
        (None, None) => {
            let what = traces.variables.first().copied().unwrap_or_default();
            let command = agent.login_command();
            let detail =
                format!("no login was found: log in once with `{command}`, or pass {what} with `passEnv`");
            (AuthStatus::Unknown, detail)
        }
    };
    AuthHealth { status, detail: Some(detail), login_command: None }
}

/// One redacted line of at most 512 characters.
fn line(text: &str) -> String {
    redaction::one_line(text, 512)
}
