//! How to register the server in each host, ready to copy.

use std::path::Path;

use serde_json::json;

use crate::cli::paste::line;
use crate::context::Context;

/// Something to do after the config is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) text: String,
}

/// The steps after `config` was written. `found_without_flag`: hosts need not be told where it is.
pub(super) fn after(context: &Context, config: &Path, found_without_flag: bool) -> Vec<Step> {
    let exe = context.exe.display().to_string();
    let config = config.display().to_string();
    let flag = if found_without_flag { vec![] } else { vec!["--config", config.as_str()] };
    let command = |before: &[&str], after: &[&str]| {
        let words = before.iter().chain(after);
        line(words.copied())
    };
    let serve = [&[exe.as_str(), "serve"], flag.as_slice()].concat();
    let doctor = [&[exe.as_str(), "doctor"], flag.as_slice()].concat();
    // Gemini's own parser takes options for itself up to the `--`.
    let gemini = if flag.is_empty() { vec![] } else { [&["--"], flag.as_slice()].concat() };
    let desktop = json!({"mcpServers": {"agent-bridge": {"command": exe, "args": serve[1..]}}});
    vec![
        Step { title: "Check that everything is in place", text: command(&doctor, &[]) },
        Step { title: "Register in Codex (add to ~/.codex/config.toml)", text: codex_table(&serve) },
        Step {
            title: "Register in Claude Code",
            text: command(&["claude", "mcp", "add", "-s", "user", "agent-bridge", "--"], &serve),
        },
        Step {
            title: "Register in Claude Desktop (merge into claude_desktop_config.json)",
            text: format!("{desktop:#}"),
        },
        Step {
            title: "Register in Gemini CLI",
            text: command(
                &["gemini", "mcp", "add", "-s", "user", "--timeout", "300000", "agent-bridge", &exe, "serve"],
                &gemini,
            ),
        },
    ]
}

/// `codex mcp add` cannot write the last two keys: without the first a long call is cut short, without the
/// second a headless Codex refuses every tool that starts work.
fn codex_table(serve: &[&str]) -> String {
    // JSON's strings and lists are TOML's as well.
    let args = serde_json::Value::from(&serve[1..]);
    format!(
        "[mcp_servers.agent-bridge]\ncommand = {}\nargs = {args}\ntool_timeout_sec = 300\n\
         default_tools_approval_mode = \"approve\"",
        serde_json::Value::from(serve[0])
    )
}
