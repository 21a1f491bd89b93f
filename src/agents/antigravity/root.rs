//! The config root of a run (`--gemini_dir`): the user's servers, plugins, rules and hooks are not in it. The key ring
//! is reached from there as well, since the home stays; a login in a file is copied.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::agents::{KeptFolder, LoginCopy, PlannedFile, PrivateFiles};
use crate::policy::Sandbox;

/// The flag that names it.
pub(in crate::agents) const FLAG: &str = "--gemini_dir";

/// The login of hosts without a key ring, in the user's home.
const LOGIN: &str = ".gemini/antigravity-cli/antigravity-oauth-token";

/// Where conversations and what belongs to them are, in the state of a root.
const CONVERSATIONS: [&str; 2] = ["conversations", "brain"];

/// Where it is, in the run folder.
pub(in crate::agents) fn folder(run_dir: &Path) -> PathBuf {
    run_dir.join("agy")
}

/// The list of servers.
pub(in crate::agents) fn servers_file(run_dir: &Path) -> PathBuf {
    folder(run_dir).join("config").join("mcp_config.json")
}

/// Permissions and trust.
pub(in crate::agents) fn settings_file(run_dir: &Path) -> PathBuf {
    folder(run_dir).join("antigravity-cli").join("settings.json")
}

/// What it holds without an endpoint: no server, the workspace trusted and as open as was granted, and the marks of a
/// root that has been used before.
pub(in crate::agents) fn files(run_dir: &Path, workspace: Option<(&str, Sandbox)>) -> PrivateFiles {
    let state = folder(run_dir).join("antigravity-cli");
    let file = |path: PathBuf, content: String| PlannedFile {
        path,
        content,
        holds_token: false,
        inherits: Vec::new(),
    };
    let kept = |name: &str| KeptFolder { path: state.join(name), name: name.to_owned() };
    PrivateFiles {
        files: vec![
            file(servers_file(run_dir), text(&json!({ "mcpServers": {} }))),
            file(settings_file(run_dir), text(&settings(workspace))),
            file(folder(run_dir).join("config").join(".migrated"), String::new()),
            file(state.join("cache").join("onboarding.json"), "{}\n".into()),
        ],
        logins: vec![LoginCopy { from_home: LOGIN.into(), to: state.join("antigravity-oauth-token") }],
        kept: CONVERSATIONS.map(kept).to_vec(),
        ..PrivateFiles::default()
    }
}

/// A rule for a folder holds for all that is below it; one with a pattern was reported not to.
fn settings(workspace: Option<(&str, Sandbox)>) -> Value {
    let mut allow = Vec::new();
    if let Some((cwd, sandbox)) = workspace {
        allow.push(format!("read_file({cwd})"));
        if sandbox != Sandbox::ReadOnly {
            allow.push(format!("write_file({cwd})"));
        }
    }
    let trusted: Vec<&str> = workspace.map(|(cwd, _)| cwd).into_iter().collect();
    json!({ "trustedWorkspaces": trusted, "permissions": { "allow": allow } })
}

/// As it is written.
pub(in crate::agents) fn text(value: &Value) -> String {
    format!("{value:#}\n")
}
