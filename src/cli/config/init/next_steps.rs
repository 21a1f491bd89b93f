//! How to register the server in each host, ready to copy.

use std::path::Path;

use serde_json::json;

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
        line(words.copied(), cfg!(windows))
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

/// A command as a person can paste it: for a POSIX shell, or PowerShell on Windows.
fn line<'a>(words: impl Iterator<Item = &'a str>, powershell: bool) -> String {
    let line = words.map(|word| quoted(word, powershell)).collect::<Vec<_>>().join(" ");
    // PowerShell prints a quoted first word instead of running it, unless it is called.
    if powershell && line.starts_with('\'') { format!("& {line}") } else { line }
}

/// A word as a shell takes it literally: POSIX, or PowerShell on Windows.
fn quoted(word: &str, powershell: bool) -> String {
    let plain = !word.is_empty()
        && word.chars().all(|c| c.is_alphanumeric() || "-_./:+=".contains(c) || (powershell && c == '\\'))
        // PowerShell swallows a bare `--`.
        && !(powershell && word == "--");
    match (plain, powershell) {
        (true, _) => word.to_owned(),
        (false, true) => format!("'{}'", word.replace('\'', "''")),
        (false, false) => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("/opt/agent-bridge", false), "/opt/agent-bridge");
        assert_eq!(quoted("/A B/it's", false), r"'/A B/it'\''s'");
        assert_eq!(quoted(r"C:\A B\it's", true), r"'C:\A B\it''s'");
        assert_eq!(quoted(r"C:\x", true), r"C:\x");
        assert_eq!(quoted("", false), "''");
        assert_eq!(quoted("$(x)", false), "'$(x)'");
    }

    #[test]
    fn powershell_runs_a_quoted_program() {
        let line = |program| line([program, "doctor"].into_iter(), true);
        assert_eq!(line(r"C:\A B\agent-bridge.exe"), r"& 'C:\A B\agent-bridge.exe' doctor");
        assert_eq!(line(r"C:\agent-bridge.exe"), r"C:\agent-bridge.exe doctor");
    }

    proptest! {
        /// Undoing the quotes by POSIX rules gives the word back.
        #[test]
        fn posix_quotes_can_be_undone(word in ".{0,20}") {
            let quoted = quoted(&word, false);
            let undone = match quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
                Some(inner) => inner.split(r"'\''").collect::<Vec<_>>().join("'"),
                None => quoted.clone(),
            };
            prop_assert_eq!(undone, word);
        }
    }
}
