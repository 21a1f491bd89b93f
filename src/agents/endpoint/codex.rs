//! Codex, measured with 0.171.0.
//!
//! * `required` lets the run fail if the endpoint cannot be used, and lets Codex wait for its tools for longer than a
//!   second. `default_tools_approval_mode` is needed where nobody can be asked.
//! * Commands of the model see the whole environment, so the token's variable is taken out of theirs. (That
//!   replaces the list of the user's config, which is why an endpoint needs a run without that config.)
//! * The servers of the user's config cannot be emptied from the command line, since tables are merged. A run that
//!   loads that config gets no endpoint.
//! * Apps and plugins come with the account and bring servers along; a name that a version does not know is
//!   only remarked upon.

use serde_json::json;

use super::{Endpoint, SERVER};
use crate::agents::{AgentError, Launch};
use crate::policy::AgentId;

/// Time for connecting and listing, over loopback.
const STARTUP_SECONDS: u64 = 20;

/// The `-c` settings; `isolated` for those that replace a list of the user's.
pub(super) fn arguments(endpoint: &Endpoint, isolated: bool) -> Vec<String> {
    let key = |name: &str| format!("mcp_servers.{SERVER}.{name}");
    let seconds = endpoint.call_timeout.as_millis().div_ceil(1000);
    let mut settings = vec![
        // JSON's texts and lists of texts are TOML's too.
        format!("{}={}", key("url"), json!(endpoint.url)),
        format!("{}={}", key("bearer_token_env_var"), json!(endpoint.token_variable)),
        format!("{}=true", key("required")),
        format!("{}=\"approve\"", key("default_tools_approval_mode")),
        format!("{}={}", key("enabled_tools"), json!(endpoint.tools)),
        format!("{}={STARTUP_SECONDS}", key("startup_timeout_sec")),
        format!("{}={seconds}", key("tool_timeout_sec")),
    ];
    if isolated {
        settings.push(format!("shell_environment_policy.exclude={}", json!([endpoint.token_variable])));
    }
    settings.extend(["apps", "plugins", "remote_plugin"].map(|name| format!("features.{name}=false")));
    settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
}

/// Puts the settings behind all others, where the last one wins, but before `resume`, which takes none of them.
pub(in crate::agents) fn attach(launch: &mut Launch, endpoint: &Endpoint) -> Result<(), AgentError> {
    let args = &mut launch.args;
    if !args.iter().any(|arg| arg == "--ignore-user-config") {
        return Err(AgentError::EndpointNeedsIsolation(AgentId::Codex));
    }
    let resume = args.windows(2).rposition(|pair| pair[0] == "resume" && pair[1] == "--json");
    let at = match resume {
        Some(at) => at,
        None if args.last().is_some_and(|last| last == "-") => args.len() - 1,
        None => return Err(AgentError::EndpointUnsupported(AgentId::Codex)),
    };
    args.splice(at..at, arguments(endpoint, true));
    Ok(())
}
