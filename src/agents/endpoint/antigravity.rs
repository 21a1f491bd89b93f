//! Antigravity's `agy`, from published reports: no copy of it was at hand, so nothing here is measured.
//!
//! * It has no option for servers. The config root of the run (`--gemini_dir`) keeps the user's servers, plugins and
//!   rules out, and has the run's.
//! * `serverUrl` is read by every version. A permission rule must name the tool: `mcp(SERVER)` alone is accepted and
//!   never matches.
//! * Nobody reports that it reads variables in a header, so the token is in the file.

use std::path::Path;

use serde_json::{Value, json};

use super::{Endpoint, EndpointPlan, SERVER, bearer};
use crate::agents::antigravity::root;
use crate::agents::{AgentError, Launch, PrivateFiles, path_text};
use crate::policy::AgentId;

pub(super) fn plan(endpoint: &Endpoint, run_dir: &Path) -> Result<EndpointPlan, AgentError> {
    let mut private = root::files(run_dir, None);
    give(&mut private, endpoint, run_dir)?;
    Ok(EndpointPlan {
        args: vec![format!("{}={}", root::FLAG, path_text(&root::folder(run_dir))?)],
        private: Some(private),
        ..EndpointPlan::default()
    })
}

/// Puts the endpoint into the config root of a run that has one.
pub(in crate::agents) fn attach(
    launch: &mut Launch,
    endpoint: &Endpoint,
    run_dir: &Path,
) -> Result<(), AgentError> {
    let own_root = |arg: &String| arg.split_once('=').is_some_and(|(flag, _)| flag == root::FLAG);
    if !launch.args.iter().any(own_root) {
        return Err(AgentError::EndpointNeedsIsolation(AgentId::Antigravity));
    }
    let private = launch.private.as_mut().ok_or(AgentError::EndpointUnsupported(AgentId::Antigravity))?;
    give(private, endpoint, run_dir)
}

fn give(private: &mut PrivateFiles, endpoint: &Endpoint, run_dir: &Path) -> Result<(), AgentError> {
    let unexpected = || AgentError::EndpointUnsupported(AgentId::Antigravity);
    let file = |path| private.files.iter().position(|file| file.path == path).ok_or_else(unexpected);
    let (servers, settings) = (file(root::servers_file(run_dir))?, file(root::settings_file(run_dir))?);
    private.files[servers].content = root::text(&json!({ "mcpServers": { SERVER: {
        "serverUrl": endpoint.url,
        "headers": { "Authorization": bearer(endpoint) },
        "enabledTools": endpoint.tools,
    } } }));
    private.files[servers].holds_token = true;
    let settings = &mut private.files[settings].content;
    let mut rules: Value = serde_json::from_str(settings).map_err(|_| unexpected())?;
    let allow =
        rules.pointer_mut("/permissions/allow").and_then(Value::as_array_mut).ok_or_else(unexpected)?;
    allow.extend(endpoint.tools.iter().map(|tool| json!(format!("mcp({SERVER}/{tool})"))));
    *settings = root::text(&rules);
    Ok(())
}
