//! `canary release`: the program of an installed release, started directly, every agent off.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};

use super::trial::{Stop, Trial};
use crate::policy::AgentId;
use crate::release::ReleaseId;
use crate::release::mcp_client::McpClient;
use crate::release::probe::Match;
use crate::release::verify::Verified;
use crate::store::Store;

/// All checks.
pub fn check(trial: &mut Trial<'_>, id: Option<&ReleaseId>) -> Result<(), Stop> {
    let id = id.ok_or_else(|| Stop::found("files", "no release was named"))?;
    let verified = trial.verify(id)?;
    let config = trial.stage.config(|_| {}).map_err(Stop::at("start"))?;
    let env = trial.stage.environment(trial.setting.context);
    let program = trial.runtime(&verified);
    let args = serve(&config);
    trial.with_server(program, args, env, |trial, client| talk(trial, client, &verified))?;
    nothing_on_disk(trial)
}

/// `--config FILE serve`.
pub fn serve(config: &Path) -> Vec<OsString> {
    vec!["--config".into(), config.into(), "serve".into()]
}

fn talk(trial: &mut Trial<'_>, client: &mut McpClient, verified: &Verified) -> Result<(), Stop> {
    trial.handshake(client, &verified.metadata.version, &verified.metadata.tool_catalogue, Match::Exactly)?;
    diagnosis(trial, client, verified)?;
    let mut agents = no_agents(trial, client)?;
    agents.extend(AgentId::ALL.iter().map(|id| id.as_str().to_owned()));
    let count = agents.len();
    for agent in agents {
        no_delegation(client, &agent, &trial.stage.work())?;
    }
    trial.pass("delegation", format!("refused for all {count} agents"));
    no_sessions(trial, client)?;
    // What was asked for in between must not have changed anything.
    diagnosis(trial, client, verified)?;
    no_agents(trial, client)?;
    Ok(())
}

/// The structured result of a tool that must not fail.
pub fn structured(client: &mut McpClient, check: &'static str, tool: &str) -> Result<Value, Stop> {
    let result = client.call(tool, json!({})).map_err(|error| Stop::Talk(check, error))?;
    if result["isError"] == json!(true) {
        let why = result.pointer("/structuredContent/error/message").and_then(Value::as_str);
        return Err(Stop::found(check, format!("{tool} failed: {}", why.unwrap_or("no reason given"))));
    }
    match result.get("structuredContent") {
        Some(content @ Value::Object(_)) => Ok(content.clone()),
        _ => Err(Stop::found(check, format!("{tool} gave no structured result"))),
    }
}

/// `diagnose_install`: it works, and it is this very program that answers.
pub fn diagnosis(trial: &mut Trial<'_>, client: &mut McpClient, verified: &Verified) -> Result<(), Stop> {
    const CHECK: &str = "diagnosis";
    let told = structured(client, CHECK, "diagnose_install")?;
    let report = &told["diagnostics"];
    if !matches!(report["status"].as_str(), Some("ok" | "warn")) {
        let verdict = report["verdict"].as_str().unwrap_or("it gave no verdict");
        return Err(Stop::found(CHECK, format!("it finds itself not working: {verdict}")));
    }
    let text = |name: &str| report["runtime"][name].as_str().unwrap_or_default().to_owned();
    if text("version") != verified.metadata.version {
        return Err(Stop::found(CHECK, format!("it runs as version {}", text("version"))));
    }
    let pinned = verified.metadata.runtime_record().map_err(Stop::at(CHECK))?;
    if text("sha256") != pinned.sha256 {
        return Err(Stop::found(CHECK, "the program that answers has another SHA-256 than the pinned one"));
    }
    let real = |path: &Path| crate::config::canonical(path).ok();
    let path = text("path");
    if real(Path::new(&path)).is_none_or(|running| real(&trial.runtime(verified)) != Some(running)) {
        return Err(Stop::found(CHECK, format!("the program that answers is {path}")));
    }
    trial.pass(CHECK, "version, SHA-256 and path are those of the release");
    Ok(())
}

fn no_agents(trial: &mut Trial<'_>, client: &mut McpClient) -> Result<BTreeSet<String>, Stop> {
    const CHECK: &str = "agents";
    let told = structured(client, CHECK, "list_agents")?;
    let Some(agents) = told["agents"].as_array() else {
        return Err(Stop::found(CHECK, "list_agents gave no list"));
    };
    let on = |agent: &&Value| agent["enabled"] != json!(false) || agent["health"]["usable"] == json!(true);
    if let Some(agent) = agents.iter().find(on) {
        return Err(Stop::found(CHECK, format!("{} is on, and all were switched off", agent["id"])));
    }
    trial.pass(CHECK, format!("{} are known, none is on", agents.len()));
    Ok(agents.iter().filter_map(|agent| agent["id"].as_str()).map(str::to_owned).collect())
}

fn no_delegation(client: &mut McpClient, agent: &str, work: &Path) -> Result<(), Stop> {
    const CHECK: &str = "delegation";
    let request = json!({ "agent": agent, "prompt": "Canary: this must not run.", "cwd": work });
    let result = client.call("delegate_task", request).map_err(|error| Stop::Talk(CHECK, error))?;
    let code = result.pointer("/structuredContent/error/code").and_then(Value::as_str).unwrap_or_default();
    if result["isError"] == json!(true) && matches!(code, "AGENT_DISABLED" | "AGENT_UNKNOWN") {
        return Ok(());
    }
    Err(Stop::found(CHECK, format!("a task for {agent} was not refused at the door: {code:?}")))
}

fn no_sessions(trial: &mut Trial<'_>, client: &mut McpClient) -> Result<(), Stop> {
    const CHECK: &str = "sessions";
    let told = structured(client, CHECK, "list_sessions")?;
    match told["sessions"].as_array() {
        Some(sessions) if sessions.is_empty() => {
            trial.pass(CHECK, "none is listed");
            Ok(())
        }
        Some(sessions) => Err(Stop::found(CHECK, format!("{} are listed", sessions.len()))),
        None => Err(Stop::found(CHECK, "list_sessions gave no list")),
    }
}

fn nothing_on_disk(trial: &mut Trial<'_>) -> Result<(), Stop> {
    const CHECK: &str = "state";
    let state = trial.stage.state();
    match Store::open_read_only(&state, trial.setting.context.clock) {
        Ok(None) => trial.pass(CHECK, "nothing was written"),
        Ok(Some(store)) => match store.counts() {
            Ok(counts) if counts.sessions == 0 && counts.turns == 0 => {
                trial.pass(CHECK, "no session on disk")
            }
            Ok(counts) => {
                let what = format!("{} sessions and {} turns on disk", counts.sessions, counts.turns);
                return Err(Stop::found(CHECK, what));
            }
            Err(error) => trial.warn(CHECK, format!("it cannot be counted here: {error}")),
        },
        // A release that is newer than this program may write what only it reads.
        Err(error) => trial.warn(CHECK, format!("it cannot be read here: {error}")),
    }
    Ok(())
}
