//! Gemini CLI, measured with 0.61.
//!
//! * It takes no servers from the command line, and it reads the file in `GEMINI_CLI_SYSTEM_SETTINGS_PATH` only if that and
//!   every folder above it belong to root and nobody else can write there. So the run gets a home of its own
//!   (`GEMINI_CLI_HOME`), with the endpoint in its settings; the files of a login are copied there.
//! * That keeps the user's servers out. Those of a trusted project are kept out by the two allowlists, extensions by
//!   `-e none`.
//! * The run's rules allow this server. `trust` lets calls go through in a run that has no rules.
//! * An untrusted folder has no servers at all.
//! * The user's choice of a login stands in settings that this home does not have: it is taken over.
//! * Hooks and the project's `.env` stay out of this home's runs.

use std::path::Path;

use serde_json::json;

use super::{Endpoint, EndpointPlan, SERVER, bearer, millis};
use crate::agents::{AgentError, Inherited, Launch, LoginCopy, PrivateFiles, path_text};
use crate::policy::AgentId;

/// The variable that names another home.
const HOME: &str = "GEMINI_CLI_HOME";

const SETTINGS: &str = ".gemini/settings.json";
/// Which login it is, and how requests travel.
const INHERITED: [&str; 3] = ["/security/auth", "/general/maxAttempts", "/general/retryFetchErrors"];

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
        "hooksConfig": { "enabled": false },
        "advanced": { "ignoreLocalEnv": true },
    });
    let mut private =
        PrivateFiles::one(home.join(".gemini").join("settings.json"), format!("{settings:#}\n"));
    private.home_variable = Some(HOME.to_owned());
    let copy = |from_home: &str| LoginCopy { from_home: from_home.to_owned(), to: below(&home, from_home) };
    private.logins = LOGINS.map(copy).to_vec();
    let taken = |pointer: &str| Inherited { from_home: SETTINGS.to_owned(), pointer: pointer.to_owned() };
    private.files.iter_mut().for_each(|file| file.inherits = INHERITED.map(taken).to_vec());
    Ok(EndpointPlan {
        args: ["--allowed-mcp-server-names", SERVER, "-e", "none", "--skip-trust"].map(String::from).to_vec(),
        env: [(HOME.to_owned(), path_text(&home)?.to_owned())].into(),
        private: Some(private),
    })
}

/// Puts the endpoint in the place of the server that nobody has.
pub(in crate::agents) fn attach(
    launch: &mut Launch,
    endpoint: &Endpoint,
    run_dir: &Path,
) -> Result<(), AgentError> {
    let place = launch.args.iter().position(|arg| arg == "--allowed-mcp-server-names").map(|at| at + 1);
    let allowed = place.and_then(|place| launch.args.get_mut(place));
    *allowed.ok_or(AgentError::EndpointUnsupported(AgentId::Gemini))? = SERVER.to_owned();
    let plan = plan(endpoint, run_dir)?;
    launch.env.extend(plan.env);
    launch.private = Some(launch.private.take().unwrap_or_default().and(plan.private.unwrap_or_default()));
    Ok(())
}

fn below(folder: &Path, relative: &str) -> std::path::PathBuf {
    relative.split('/').fold(folder.to_owned(), |path, part| path.join(part))
}
