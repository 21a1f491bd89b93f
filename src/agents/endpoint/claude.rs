//! Claude Code, measured with 2.1.332.
//!
//! * Variables are expanded in header values. `--strict-mcp-config` leaves out every other server, those of plugins and
//!   of the account too.
//! * Without a permission rule a headless call is denied in every mode but `bypassPermissions`. In plan mode a rule
//!   is not enough: a tool without `readOnlyHint` is denied there whatever the rules say. A read-only turn with an
//!   endpoint is therefore `dontAsk` with the same three built-in tools: it writes nothing, runs nothing, and reads
//!   nothing outside the working folder, which plan mode does.
//! * `alwaysLoad` keeps the tools out of the deferred ones, which a model finds only by searching.

use serde_json::json;

use super::{Endpoint, SERVER, bearer, millis};
use crate::agents::{AgentError, Launch};
use crate::policy::AgentId;

/// The mode of a read-only turn without an endpoint, and with one.
const PLAN: &str = "plan";
const DONT_ASK: &str = "dontAsk";

/// `--mcp-config` and its rules.
pub(super) fn arguments(endpoint: &Endpoint) -> Vec<String> {
    vec![
        "--strict-mcp-config".into(),
        "--mcp-config".into(),
        servers(endpoint),
        "--allowedTools".into(),
        rules(endpoint),
    ]
}

fn servers(endpoint: &Endpoint) -> String {
    json!({ "mcpServers": { SERVER: {
        "type": "http",
        "url": endpoint.url,
        "headers": { "Authorization": bearer(endpoint) },
        "timeout": millis(endpoint.call_timeout),
        "alwaysLoad": true,
    } } })
    .to_string()
}

/// One rule a tool: no tool is callable that this run was not given.
fn rules(endpoint: &Endpoint) -> String {
    let rules: Vec<String> = endpoint.tools.iter().map(|tool| format!("mcp__{SERVER}__{tool}")).collect();
    rules.join(",")
}

/// Puts the endpoint in the place of the empty server list, and its rules in front of the permission mode.
pub(in crate::agents) fn attach(launch: &mut Launch, endpoint: &Endpoint) -> Result<(), AgentError> {
    let args = &mut launch.args;
    let unexpected = || AgentError::EndpointUnsupported(AgentId::Claude);
    // Both are ours: extra arguments can hold neither.
    let config = args.iter().position(|arg| arg == "--mcp-config").ok_or_else(unexpected)?;
    let mode = args.iter().rposition(|arg| arg == "--permission-mode").ok_or_else(unexpected)?;
    *args.get_mut(config + 1).ok_or_else(unexpected)? = servers(endpoint);
    let mode_name = args.get_mut(mode + 1).ok_or_else(unexpected)?;
    if mode_name == PLAN {
        *mode_name = DONT_ASK.into();
    }
    if !endpoint.tools.is_empty() {
        args.splice(mode..mode, ["--allowedTools".to_owned(), rules(endpoint)]);
    }
    Ok(())
}
