//! Antigravity's `agy`, from published reports: no copy of it was at hand, so nothing here is measured.
//!
//! * It has no option for servers. A folder of the run's own (`--gemini_dir`) keeps the user's servers, plugins and
//!   rules out.
//! * `serverUrl` is read by every version. A permission rule must name the tool: `mcp(SERVER)` alone is accepted and
//!   never matches.
//! * Nobody reports that it reads variables in a header, so the token is in the file.

use std::path::Path;

use serde_json::json;

use super::{Endpoint, EndpointPlan, LoginCopy, PlannedFile, SERVER, bearer};
use crate::agents::{AgentError, path_text};

const LOGIN: &str = ".gemini/antigravity-cli/antigravity-oauth-token";

pub(super) fn plan(endpoint: &Endpoint, run_dir: &Path) -> Result<EndpointPlan, AgentError> {
    let folder = run_dir.join("agy");
    let servers = json!({ "mcpServers": { SERVER: {
        "serverUrl": endpoint.url,
        "headers": { "Authorization": bearer(endpoint) },
        "enabledTools": endpoint.tools,
    } } });
    let rules: Vec<String> = endpoint.tools.iter().map(|tool| format!("mcp({SERVER}/{tool})")).collect();
    let settings = json!({ "permissions": { "allow": rules } });
    let file = |path: &[&str], content: String, holds_token| PlannedFile {
        path: path.iter().fold(folder.clone(), |path, part| path.join(part)),
        content,
        holds_token,
    };
    Ok(EndpointPlan {
        args: vec![format!("--gemini_dir={}", path_text(&folder)?)],
        env: [("AGY_CLI_DISABLE_AUTO_UPDATE".to_owned(), "true".to_owned())].into(),
        files: vec![
            file(&["config", "mcp_config.json"], format!("{servers:#}\n"), true),
            file(&["config", ".migrated"], String::new(), false),
            file(&["antigravity-cli", "settings.json"], format!("{settings:#}\n"), false),
            file(&["antigravity-cli", "cache", "onboarding.json"], "{}\n".into(), false),
        ],
        logins: vec![LoginCopy {
            from_home: LOGIN,
            to: folder.join("antigravity-cli").join("antigravity-oauth-token"),
        }],
    })
}
