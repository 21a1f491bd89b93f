//! Read-only checks of the installation, shared by `doctor` and `diagnose_install`.
//!
//! A check never changes anything, never prints a secret, and ends in one verdict.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::agents::{AuthStatus, redaction};
use crate::bridge::health::AgentView;
use crate::config::Config;
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::platform;
use crate::platform::{LockSupport, probe_locks};
use crate::policy::AgentId;
use crate::process::{absent_network_variables, current_depth, resolve};
use crate::release::{Layout, clients};
use crate::store::Store;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, with a caveat.
    Warn,
    /// Does not work.
    Fail,
}

/// One check.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it came out.
    pub status: Status,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Everything that was found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// One line.
    pub verdict: String,
    /// The worst of the checks.
    pub status: Status,
    /// Version of this report's shape.
    pub schema_version: u32,
    /// The running program.
    pub runtime: Runtime,
    /// The config, unless it could not be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigFacts>,
    /// The state folder, if the config names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateFacts>,
    /// Every check that was made.
    pub checks: Vec<Check>,
}

/// The running program.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Version of agent-bridge.
    pub version: &'static str,
    /// Revision it was built from.
    pub git_sha: &'static str,
    /// Platform it was built for.
    pub target: &'static str,
    /// Path of the program.
    pub path: String,
    /// SHA-256 of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// The config.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigFacts {
    /// The file.
    pub path: String,
    /// Which rule selected it.
    pub source: &'static str,
    /// SHA-256 of the file as loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_sha256: Option<String>,
    /// Number of allowed roots.
    pub allowed_root_count: usize,
    /// Roots that allow more than one would think.
    pub broad_root_warnings: Vec<String>,
    /// Most authority any turn can get.
    pub sandbox_ceiling: crate::policy::Sandbox,
}

/// The state folder.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateFacts {
    /// The folder.
    pub path: String,
    /// Whether it exists yet.
    pub exists: bool,
    /// Sessions in it.
    pub sessions: u64,
    /// Turns in it.
    pub turns: u64,
    /// Turns that are running.
    pub running: u64,
    /// Size of the database and the outputs.
    pub bytes: u64,
}

/// Looks at everything. `agents` are findings that the caller already has.
pub fn examine(context: &Context, config: Result<&Config, &Error>, agents: &[AgentView]) -> Report {
    let mut checks = Vec::new();
    let mut config_facts = None;
    let mut state = None;
    match config {
        Err(error) => checks.push(fail("config", &error.to_string(), Some(error.hint()))),
        Ok(config) => {
            checks.push(ok("config", &format!("{} ({})", config.path.display(), config.source.label())));
            for warning in &config.warnings {
                checks.push(warn("config", warning, None));
            }
            let broad = broad_roots(context, config);
            for warning in &broad {
                checks.push(warn(
                    "allowed roots",
                    warning,
                    Some("Name the folders that agents really need."),
                ));
            }
            if broad.is_empty() {
                checks.push(ok("allowed roots", &roots_line(config)));
            }
            config_facts = Some(ConfigFacts {
                path: config.path.display().to_string(),
                source: config.source.label(),
                content_sha256: config.sha256.clone(),
                allowed_root_count: config.allowed_roots.len(),
                broad_root_warnings: broad,
                sandbox_ceiling: config.sandbox_ceiling,
            });
            state = Some(examine_state(context, &config.state_dir, &mut checks));
        }
    }
    if let Ok(config) = config {
        agent_checks(context, config, agents, &mut checks);
    }
    environment_checks(context, &mut checks);
    client_checks(context, &mut checks);
    let status = checks.iter().map(|check| check.status).max().unwrap_or(Status::Ok);
    Report {
        verdict: verdict(status, &checks),
        status,
        schema_version: 1,
        runtime: Runtime {
            version: env!("CARGO_PKG_VERSION"),
            git_sha: env!("AGENT_BRIDGE_GIT_SHA"),
            target: env!("AGENT_BRIDGE_TARGET"),
            path: context.exe.display().to_string(),
            sha256: digest::of_file(&context.exe).ok().map(|(sha256, _)| sha256),
        },
        config: config_facts,
        state,
        checks,
    }
}

fn ok(name: &str, detail: &str) -> Check {
    Check { name: name.into(), status: Status::Ok, detail: detail.into(), hint: None }
}

fn warn(name: &str, detail: &str, hint: Option<&str>) -> Check {
    Check {
        name: name.into(),
        status: Status::Warn,
        detail: redaction::redact(detail),
        hint: hint.map(Into::into),
    }
}

fn fail(name: &str, detail: &str, hint: Option<&str>) -> Check {
    Check {
        name: name.into(),
        status: Status::Fail,
        detail: redaction::redact(detail),
        hint: hint.map(Into::into),
    }
}

fn roots_line(config: &Config) -> String {
    let shown: Vec<String> = config.allowed_roots.iter().map(|root| root.display().to_string()).collect();
    shown.join(", ")
}

/// Roots that hold a whole disk or a whole home.
fn broad_roots(context: &Context, config: &Config) -> Vec<String> {
    let home = context.home.as_deref().and_then(|home| crate::config::canonical(home).ok());
    let everyday = ["Documents", "Downloads", "Desktop", "OneDrive"];
    config
        .allowed_roots
        .iter()
        .filter_map(|root| {
            let shown = root.display();
            if root.parent().is_none() {
                return Some(format!("{shown} is a whole file system"));
            }
            let home = home.as_deref()?;
            if home.starts_with(root) {
                return Some(format!("{shown} contains the home folder"));
            }
            let below = root.strip_prefix(home).ok()?;
            let name = below.to_str().filter(|_| below.components().count() == 1)?;
            everyday
                .iter()
                .any(|folder| folder.eq_ignore_ascii_case(name))
                .then(|| format!("{shown} is a folder for everything"))
        })
        .collect()
}

fn examine_state(context: &Context, path: &Path, checks: &mut Vec<Check>) -> StateFacts {
    let mut facts = StateFacts {
        path: path.display().to_string(),
        exists: path.is_dir(),
        sessions: 0,
        turns: 0,
        running: 0,
        bytes: 0,
    };
    if platform::is_network_filesystem(path) {
        checks.push(warn(
            "state folder",
            &format!(
                "{} is on a network file system, where locks and the database are not safe",
                path.display()
            ),
            Some("Set `stateDir` in the config file to a folder on a local disk."),
        ));
    }
    if !facts.exists {
        checks.push(ok("state folder", &format!("{} (not made yet)", path.display())));
        return facts;
    }
    match Store::open_read_only(path, context.clock) {
        Ok(None) => checks.push(ok("state folder", &format!("{} (empty)", path.display()))),
        Ok(Some(store)) => match store.counts() {
            Ok(counts) => {
                facts.sessions = counts.sessions;
                facts.turns = counts.turns;
                facts.running = counts.running;
                facts.bytes = counts.database_bytes + counts.blob_bytes;
                let detail = format!(
                    "{}: {} sessions, {} turns, {} running, {} KiB",
                    path.display(),
                    facts.sessions,
                    facts.turns,
                    facts.running,
                    facts.bytes / 1024
                );
                checks.push(ok("state folder", &detail));
            }
            Err(error) => checks.push(store_fault(error.into())),
        },
        Err(error) => checks.push(store_fault(error.into())),
    }
    match probe_locks(path) {
        Ok(LockSupport::Works) => {}
        Ok(LockSupport::Unsupported) => checks.push(fail(
            "locks",
            "the state folder's file system has no file locks",
            Some("Set `stateDir` in the config file to a folder on a local disk."),
        )),
        Ok(LockSupport::GrantsTwice) => checks.push(fail(
            "locks",
            "the state folder's file system grants the same lock twice",
            Some("Set `stateDir` in the config file to a folder on a local disk."),
        )),
        Err(error) => checks.push(warn("locks", &format!("could not be tried: {error}"), None)),
    }
    facts
}

/// Clients that were registered and are not any more. Nothing is said where all is well.
fn client_checks(context: &Context, checks: &mut Vec<Check>) {
    let Ok(layout) = Layout::select(context, None) else { return };
    for lost in clients::lost(context, &layout) {
        let detail = format!("lost in {}: {}", lost.path.display(), lost.why);
        checks.push(warn(&format!("client {}", lost.client), &detail, Some(&lost.next)));
    }
}

fn store_fault(error: Error) -> Check {
    fail("state folder", &error.to_string(), Some(error.hint()))
}

/// The enabled agents, and whether any of them can be given work. Nothing is said of agents nobody looked at.
fn agent_checks(context: &Context, config: &Config, agents: &[AgentView], checks: &mut Vec<Check>) {
    for agent in agents.iter().filter(|agent| agent.enabled) {
        // Nobody asked for it: neither switched on nor given a program of its own.
        let settings = config.agents.get(&agent.id);
        let optional = settings
            .is_some_and(|settings| !settings.enabled_explicitly && settings.bin == agent.id.command());
        checks.push(agent_check(context, agent, optional));
    }
    let unknown = |id: &AgentId| crate::agents::agent(*id).is_none();
    for (id, _) in config.agents.iter().filter(|(id, settings)| settings.enabled && unknown(id)) {
        let hint = format!("Remove `agents.{id}.enabled` from the config file.");
        checks.push(warn(&format!("agent {id}"), "not available in this build", Some(&hint)));
    }
    let starts = |agent: &AgentView| agent.health.as_ref().is_some_and(|health| health.binary.ok);
    if !agents.is_empty() && !agents.iter().any(|agent| agent.enabled && starts(agent)) {
        checks.push(warn(
            "agents",
            "none is both enabled and installed, so no task can be delegated",
            Some("Install Codex or Claude Code; `agents.<id>.bin` in the config file names one that is not on PATH."),
        ));
    }
}

/// `optional`: nobody asked for the agent; it is used if it is there.
fn agent_check(context: &Context, agent: &AgentView, optional: bool) -> Check {
    let name = format!("agent {}", agent.id);
    let Some(health) = &agent.health else { return warn(&name, "not probed", None) };
    let other = found_elsewhere(context, agent);
    if !health.binary.ok {
        if optional && health.binary.path.is_none() && !names_a_path(&agent.bin) {
            return ok(&name, "not installed (used when found)");
        }
        let why = health.binary.error.clone().unwrap_or_else(|| "does not start".into());
        let hint = match other {
            Some(other) => format!("A search by name finds {other}: set `agents.{}.bin` to it.", agent.id),
            None => "Install it, or set `agents.<id>.bin` to its absolute path in the config file.".into(),
        };
        return warn(&name, &why, Some(&hint));
    }
    let version = health.binary.version.as_deref().unwrap_or("unknown version");
    let path = health.binary.path.as_deref().unwrap_or_default();
    let (status, login, hint) = match health.auth.status {
        AuthStatus::Authenticated => (Status::Ok, "logged in", None),
        AuthStatus::Unauthenticated => (
            Status::Warn,
            "not logged in",
            health.auth.login_command.map(|command| format!("Run `{command}` in a terminal.")),
        ),
        AuthStatus::Unknown => (Status::Warn, "login unknown", health.auth.detail.clone()),
    };
    let unverified = crate::agents::agent(agent.id).is_some_and(|adapter| !adapter.is_verified());
    let remark = if unverified { ", unverified: never run against the real program" } else { "" };
    let mut check = Check { name, status, detail: format!("{version}, {login}, {path}{remark}"), hint };
    if let Some(other) = other {
        check.status = Status::Warn;
        check.detail = format!("{}; a search by name finds another one, {other}", check.detail);
        check.hint.get_or_insert_with(|| {
            format!(
                "If an update moved it, set `agents.{}.bin` in the config file to the new path.",
                agent.id
            )
        });
    }
    check
}

fn names_a_path(bin: &str) -> bool {
    Path::new(bin).file_name() != Some(bin.as_ref())
}

/// The program that a terminal would start, if the config names another one by its path.
fn found_elsewhere(context: &Context, agent: &AgentView) -> Option<String> {
    if !names_a_path(&agent.bin) {
        return None;
    }
    let found = resolve(Path::new(agent.id.command()), context).ok()?.display;
    let configured = agent.health.as_ref().and_then(|health| health.binary.path.as_deref());
    let real = |path: &str| crate::config::canonical(Path::new(path)).ok();
    (real(&found) != real(configured.unwrap_or(&agent.bin))).then_some(found)
}

fn environment_checks(context: &Context, checks: &mut Vec<Check>) {
    let depth = current_depth(context);
    if depth > 0 {
        checks.push(warn(
            "nesting",
            &format!("this process runs inside a delegated worker, {depth} deep"),
            None,
        ));
    }
    let absent = absent_network_variables(context);
    if !absent.is_empty() {
        checks.push(Check {
            name: "network variables".into(),
            status: Status::Ok,
            detail: format!("not set here, so agents do not get them: {}", absent.join(", ")),
            hint: None,
        });
    }
    if context.home.is_none() {
        checks.push(warn(
            "home folder",
            "there is no usable home folder; agents look for their login there",
            Some("Set HOME (USERPROFILE on Windows) for the host that starts agent-bridge."),
        ));
    }
}

fn verdict(status: Status, checks: &[Check]) -> String {
    let count = |wanted: Status, thing: &str| {
        let count = checks.iter().filter(|check| check.status == wanted).count();
        format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
    };
    match status {
        Status::Ok => "Everything is in order.".to_owned(),
        Status::Warn => format!("Usable, with {}.", count(Status::Warn, "warning")),
        Status::Fail => format!("Not usable: {}.", count(Status::Fail, "problem")),
    }
}

/// The report for people: a line a check, the verdict last.
pub fn text(report: &Report, agents: &[AgentView]) -> String {
    let runtime = &report.runtime;
    let mut lines = vec![
        format!("agent-bridge {} ({}, {})", runtime.version, runtime.git_sha, runtime.target),
        runtime.path.clone(),
    ];
    for check in &report.checks {
        let mark = match check.status {
            Status::Ok => "ok  ",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        lines.push(format!("{mark}  {}: {}", check.name, check.detail));
        if let Some(hint) = &check.hint {
            lines.push(format!("      → {hint}"));
        }
    }
    let disabled: Vec<&str> =
        agents.iter().filter(|agent| !agent.enabled).map(|agent| agent.id.as_str()).collect();
    if !disabled.is_empty() {
        lines.push(format!("      not enabled: {}", disabled.join(", ")));
    }
    lines.push(report.verdict.clone());
    lines.join("\n")
}
