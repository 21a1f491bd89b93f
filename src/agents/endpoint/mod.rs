//! How a CLI is given the MCP endpoint of its run, and nothing but that endpoint.
//!
//! The token never stands in an argument: it travels in one variable, whose name says nothing (Gemini CLI drops names
//! with `TOKEN`, `KEY` and the like), and the CLI puts it into the header itself. Where a CLI cannot, the token is in
//! a private file of the run ([`holds_token`](super::PlannedFile::holds_token)).

mod antigravity;
mod claude;
mod codex;
mod gemini;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::{AgentError, PrivateFiles};
use crate::policy::AgentId;

pub(super) use antigravity::attach as attach_antigravity;
pub(super) use claude::attach as attach_claude;
pub(super) use codex::attach as attach_codex;
pub(super) use gemini::attach as attach_gemini;

/// The name under which every worker knows its endpoint. Permission rules name it, and a `_` in it would confuse
/// Gemini CLI's.
pub const SERVER: &str = "bridge";
/// The variable that holds the token.
pub const TOKEN_VARIABLE: &str = "AGENT_BRIDGE_SCOPE";
/// What is never reached through a proxy.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

/// An open endpoint, as a CLI has to know it. Holds no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address, with port and path.
    pub url: String,
    /// Names of the tools it offers.
    pub tools: Vec<String>,
    /// The longest that a call may take; a client that gives up earlier would lose the answer.
    pub call_timeout: Duration,
    /// The variable that the token is in: [`TOKEN_VARIABLE`].
    pub token_variable: &'static str,
}

/// What a CLI needs to be given an endpoint, as data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointPlan {
    /// Arguments. Where they stand among the others is the adapter's business.
    pub args: Vec<String>,
    /// Variables besides the token's.
    pub env: BTreeMap<String, String>,
    /// What has to be in the run folder, if the run needs one.
    pub private: Option<PrivateFiles>,
}

/// What a CLI needs to be given this endpoint. `run_dir` is the run folder, needed by those that take no servers from
/// the command line.
///
/// # Errors
/// [`AgentError::EndpointUnsupported`] for an agent without an MCP client, [`AgentError::PathNotText`].
pub fn plan_for(cli: AgentId, endpoint: &Endpoint, run_dir: &Path) -> Result<EndpointPlan, AgentError> {
    match cli {
        AgentId::Codex => {
            Ok(EndpointPlan { args: codex::arguments(endpoint, true), ..EndpointPlan::default() })
        }
        AgentId::Claude => Ok(EndpointPlan { args: claude::arguments(endpoint), ..EndpointPlan::default() }),
        AgentId::Gemini => gemini::plan(endpoint, run_dir),
        AgentId::Antigravity => antigravity::plan(endpoint, run_dir),
        AgentId::Manus | AgentId::Mock => Err(AgentError::EndpointUnsupported(cli)),
    }
}

/// Keeps calls to the endpoint away from any proxy. `known` gives what a worker would find otherwise.
pub fn bypass_proxies(env: &mut BTreeMap<String, String>, known: impl Fn(&str) -> Option<String>) {
    const NAMES: [&str; 2] = ["NO_PROXY", "no_proxy"];
    let found = NAMES.map(|name| env.get(name).cloned().or_else(|| known(name)));
    for (name, own, other) in [(NAMES[0], &found[0], &found[1]), (NAMES[1], &found[1], &found[0])] {
        // A program that reads one of the two must not lose what only the other one says.
        let before = own.as_ref().or(other.as_ref()).map_or("", String::as_str);
        let mut hosts: Vec<&str> = before.split(',').map(str::trim).filter(|host| !host.is_empty()).collect();
        if !hosts.contains(&"*") {
            let missing: Vec<&str> = LOOPBACK.into_iter().filter(|host| !hosts.contains(host)).collect();
            hosts.extend(missing);
        }
        env.insert(name.to_owned(), hosts.join(","));
    }
}

/// A variable, as configs of Claude Code and Gemini CLI write it.
pub(super) fn placeholder(variable: &str) -> String {
    format!("${{{variable}}}")
}

/// The value of the header that carries the token.
fn bearer(endpoint: &Endpoint) -> String {
    format!("Bearer {}", placeholder(endpoint.token_variable))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
