//! Tools that look at the installation.

use rmcp::model::CallToolResult;

use super::Call;
use super::arguments::Nothing;
use super::outputs::{AgentList, Diagnosis};
use crate::bridge::blocking;
use crate::bridge::health::AgentView;
use crate::doctor;
use crate::error::Result;
use crate::mcp::reply::{json_reply, reply};

/// `list_agents`.
pub async fn list_agents(mut call: Call) -> Result<CallToolResult> {
    let Nothing {} = call.parse()?;
    Ok(json_reply(&AgentList { agents: agents(&call).await? }))
}

/// `diagnose_install`.
pub async fn diagnose_install(mut call: Call) -> Result<CallToolResult> {
    let Nothing {} = call.parse()?;
    let agents = agents(&call).await?;
    let bridge = call.bridge.clone();
    let views = agents.clone();
    let report = blocking(move || Ok(doctor::examine(bridge.context(), Ok(bridge.config()), &views))).await?;
    let text = doctor::text(&report, &agents);
    Ok(reply(text, &Diagnosis { diagnostics: report, agents }, false))
}

async fn agents(call: &Call) -> Result<Vec<AgentView>> {
    let bridge = call.bridge.clone();
    if let Some(known) = bridge.health().all_fresh(bridge.config()) {
        return Ok(known);
    }
    blocking(move || Ok(bridge.health().agents(bridge.context(), bridge.config()))).await
}
