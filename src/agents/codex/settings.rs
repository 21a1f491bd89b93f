//! Settings on Codex's command line (`-c key=value`, `--enable`): which of them may come from `extraArgs`.

use toml_edit::Value;

use crate::agents::arguments::{AUTHORITY, PROGRAMS};

/// Top-level settings that decide authority, tools or place, that load further settings, or that start programs.
const REFUSED_KEYS: &[&str] = &[
    "sandbox",
    "approval",
    "permissions",
    "default_permissions",
    "mcp_servers",
    "shell_environment_policy",
    "projects",
    "profile",
    "hooks",
    "notify",
    "plugins",
    "marketplaces",
    "apps",
    "agents",
    "skills",
    "windows",
    "tools",
    "web_search",
    "trust",
    "experimental_thread_config",
];

/// Names of settings, at any depth, whose value is run: `model_providers.x.auth.command` and what may come after it.
const PROGRAM_WORDS: &[&str] = &[
    "auth",
    "command",
    "commands",
    "cmd",
    "argv",
    "exec",
    "exe",
    "executable",
    "program",
    "script",
    "shell",
    "hook",
    "hooks",
    "helper",
];

/// Tables whose keys are no settings: names of headers and parameters.
const DATA: &[&str] = &["http_headers", "env_http_headers", "query_params", "headers"];

/// Why a setting is refused, if it is.
pub(super) fn refused(flag: &str, value: &str) -> Option<&'static str> {
    match flag {
        "-c" | "--config" => {
            let (key, value) = value.split_once('=')?;
            let key: String =
                key.chars().filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\'')).collect();
            let key = key.trim_start_matches('.').to_lowercase();
            if REFUSED_KEYS.iter().any(|refused| key.starts_with(refused)) {
                return Some(AUTHORITY);
            }
            if let Some(feature) = key.strip_prefix("features")
                && (feature.is_empty() || touches_authority(feature))
            {
                return Some(AUTHORITY);
            }
            let is_data = key.split('.').any(|name| DATA.contains(&name));
            if key.split('.').take_while(|name| !DATA.contains(name)).any(names_program) {
                return Some(PROGRAMS);
            }
            // What is no TOML is a text to Codex.
            let value = value.trim().parse::<Value>();
            value.is_ok_and(|value| !is_data && holds_program(&value)).then_some(PROGRAMS)
        }
        "--enable" | "--disable" if touches_authority(value) => Some(AUTHORITY),
        _ => None,
    }
}

/// Feature switches that are about what a worker may do.
fn touches_authority(feature: &str) -> bool {
    let feature = feature.to_lowercase();
    ["sandbox", "approval", "permission", "guardian", "hook", "exec_policy"]
        .iter()
        .any(|word| feature.contains(word))
}

/// Whether a setting's name says that its value is run, or is where a program is.
fn names_program(name: &str) -> bool {
    let name = name.to_lowercase().replace('-', "_");
    let last = name.rsplit('_').next().unwrap_or_default();
    PROGRAM_WORDS.contains(&name.as_str())
        || (last != "auth" && PROGRAM_WORDS.contains(&last))
        || last == "path"
}

/// Whether a value has such a setting in it, however deep.
fn holds_program(value: &Value) -> bool {
    match value {
        Value::InlineTable(table) => {
            let mut settings = table.iter().filter(|(name, _)| !DATA.contains(name));
            settings.any(|(name, value)| names_program(name) || holds_program(value))
        }
        Value::Array(list) => list.iter().any(holds_program),
        _ => false,
    }
}
