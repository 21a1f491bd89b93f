//! A call of a tool of the run's endpoint, as an MCP client of a worker makes it.

use std::time::Duration;

use serde_json::{Value, json};

use super::invocation::Invocation;
use super::script::CallTool;
use crate::agents::endpoint::TOKEN_VARIABLE;

/// In which `agent-bridge scope run`, and this program to its children, says where the endpoint is.
pub(super) const URL_VARIABLE: &str = "AGENT_BRIDGE_SCOPE_URL";
const SCOPE_RUN_TOKEN: &str = "AGENT_BRIDGE_SCOPE_TOKEN";

/// What came back.
pub(super) struct Called {
    /// The text of the result, or what was wrong.
    pub text: String,
    /// The answer as it came, or `Null`.
    pub answer: Value,
}

/// Makes the call and waits for its answer. That the endpoint is gone or refuses is a finding, not a fault.
pub(super) fn call(invocation: &Invocation, call: &CallTool, limit: Duration) -> Result<Called, String> {
    let url = invocation.endpoint().map(str::to_owned).or_else(|| std::env::var(URL_VARIABLE).ok());
    let url = url.ok_or("this run has no endpoint")?;
    let token = std::env::var(TOKEN_VARIABLE).or_else(|_| std::env::var(SCOPE_RUN_TOKEN));
    let token = token.map_err(|_| "this run has no token".to_owned())?;
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    let agent: ureq::Agent = config.timeout_global(Some(limit)).build().into();
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": call.tool, "arguments": call.arguments } });
    let response = agent
        .post(&url)
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .header("Authorization", format!("Bearer {token}"))
        .send(request.to_string())
        .and_then(|response| response.into_body().read_to_string());
    let body = match response {
        Ok(body) => body,
        Err(error) => return Ok(Called { text: format!("no answer: {error}"), answer: Value::Null }),
    };
    let answer: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
    let said = answer["result"]["content"][0]["text"].as_str();
    let text = said.or_else(|| answer["error"]["message"].as_str()).unwrap_or(&body).to_owned();
    Ok(Called { text, answer })
}
