//! Gemini CLI, measured with 0.61.
//!
//! * It takes no servers from the command line, and it reads the file in `GEMINI_CLI_SYSTEM_SETTINGS_PATH` only if that and
//!   every folder above it belong to root and nobody else can write there. So the run gets a home of its own
//!   (`GEMINI_CLI_HOME`), with the endpoint in its settings; the files of a login are copied there.
//! * That keeps the user's servers out. Those of a trusted project are kept out by the two allowlists, extensions by
//!   `-e none`.
//! * `trust` lets calls go through where nobody can be asked. Plan mode offers only tools with `readOnlyHint`; a
//!   read-only run is the default mode, whose built-in tools neither write nor run anything.
//! * An untrusted folder has no servers at all.
//! * The user's choice of a login stands in settings that this home does not have; variables say it (`GEMINI_API_KEY`, or
//!   `GOOGLE_GENAI_USE_GCA` for the copied login).

use std::path::Path;

use serde_json::json;

use super::{Endpoint, EndpointPlan, LoginCopy, PlannedFile, SERVER, bearer, millis};
use crate::agents::{AgentError, path_text};

/// What a login may be kept in, below the home.
const LOGINS: [&str; 3] =
    [".gemini/oauth_creds.json", ".gemini/google_accounts.json", ".gemini/gemini-credentials.json"];

pub(super) fn plan(endpoint: &Endpoint, run_dir: &Path) -> Result<EndpointPlan, AgentError> {
    let home = run_dir.join("gemini-home");
    let settings = json!({
        "mcpServers": { SERVER: {
            "type": "http",
            "url": endpoint.url,
            "headers": { "Authorization": bearer(endpoint) },
            "timeout": millis(endpoint.call_timeout),
            "trust": true,
            "includeTools": endpoint.tools,
        } },
        "mcp": { "allowed": [SERVER] },
        "general": { "enableAutoUpdate": false },
        "privacy": { "usageStatisticsEnabled": false },
    });
    Ok(EndpointPlan {
        args: ["--allowed-mcp-server-names", SERVER, "-e", "none", "--skip-trust"].map(String::from).to_vec(),
        env: [("GEMINI_CLI_HOME".to_owned(), path_text(&home)?.to_owned())].into(),
        files: vec![PlannedFile {
            path: home.join(".gemini").join("settings.json"),
            content: format!("{settings:#}\n"),
            holds_token: false,
        }],
        logins: LOGINS.map(|from_home| LoginCopy { from_home, to: below(&home, from_home) }).to_vec(),
    })
}

fn below(folder: &Path, relative: &str) -> std::path::PathBuf {
    relative.split('/').fold(folder.to_owned(), |path, part| path.join(part))
}
