//! The real CLIs, as `tests/real/install` puts them in place, pointed at a mock model.
//!
//! ```ignore
//! let Some(codex) = real::codex(&world, &model) else { return };
//! world.set_agent("codex", codex.agent());                    // as a worker
//! let run = process::run(codex.host_command(&world, "scenario:delegate"), DEADLINE);   // as a host
//! ```
//!
//! Where a CLI is absent the test says so on standard error and passes, unless `CI` is set: there
//! a test that cannot run has failed.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::mock_model::MockModel;
use super::world::{BRIDGE, World, link, write};

/// A key that no service knows.
pub const KEY: &str = "sk-test-0000000000000000";

/// A model that Codex knows, so that it offers `apply_patch` and prints no warning.
const MODEL: &str = "gpt-5.5";

/// The name under which hosts know the bridge.
pub const SERVER: &str = "agent-bridge";

/// The folder that `tests/real/install` fills.
pub fn folder() -> PathBuf {
    match std::env::var_os("AGENT_BRIDGE_REAL_CLIS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join("real-clis"),
    }
}

/// A program of that folder (`node_modules/.bin/codex`, `venv/bin/python`), or the word that the
/// test is skipped.
#[track_caller]
pub fn require(relative: &str) -> Option<PathBuf> {
    let folder = folder();
    let found = [relative.to_owned(), format!("{relative}.cmd"), format!("{relative}.exe")]
        .map(|name| folder.join(name))
        .into_iter()
        .find(|path| folder.join("installed").is_file() && path.is_file());
    if found.is_none() {
        skip(&format!("{relative} is not in {}; run tests/real/install", folder.display()));
    }
    found
}

/// Says that a test is skipped; in CI, that it has failed.
#[track_caller]
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(std::env::var_os("CI").is_none_or(|value| value.is_empty()), "{test} cannot run here: {why}");
    eprintln!("SKIPPED {test}: {why}");
}

/// A Node program (ES module) that may import the installed packages, for instance
/// `@modelcontextprotocol/client`. `probe` names a package that has to be there.
#[track_caller]
pub fn node_script(world: &World, probe: &str, text: &str) -> Option<Command> {
    require(&format!("node_modules/{probe}/package.json"))?;
    let folder_of_scripts = world.path().join("node");
    let modules = folder_of_scripts.join("node_modules");
    let script = folder_of_scripts.join("script.mjs");
    write(&script, text);
    if !modules.exists() {
        link(&folder().join("node_modules"), &modules);
    }
    let mut command = world.command("node");
    command.arg(script);
    Some(command)
}

/// A Python program that may import `mcp`.
#[track_caller]
pub fn python_script(world: &World, text: &str) -> Option<Command> {
    let python = require(if cfg!(windows) { "venv/Scripts/python" } else { "venv/bin/python" })?;
    let script = world.path().join("script.py");
    write(&script, text);
    let mut command = world.command(python);
    command.arg(script);
    Some(command)
}

/// Codex, pointed at a mock.
pub struct Codex {
    /// The program, as npm puts it on the search path.
    pub program: PathBuf,
    /// Options that point it at the mock, for any of its subcommands; without the model.
    pub options: Vec<String>,
}

/// Finds Codex and gives it a login and a config in the world's home.
#[track_caller]
pub fn codex(world: &World, model: &MockModel) -> Option<Codex> {
    let program = require("node_modules/.bin/codex")?;
    let provider = |key: &str| {
        format!(
            r#"model_providers.mock={{name="mock",base_url="{}",{key},wire_api="responses",request_max_retries=0,stream_max_retries=0}}"#,
            model.openai_base_url()
        )
    };
    let settings = [
        r#"model_provider="mock""#.to_owned(),
        // Else every run ends five seconds late where nothing but loopback can be reached.
        "analytics.enabled=false".to_owned(),
        // Else it asks a Git server for plugins at its start.
        "features.plugins=false".to_owned(),
        // Else a mock that is gone is waited for without end.
        "features.unbounded_connection_retries=false".to_owned(),
    ];
    let home = world.home().join(".codex");
    write(&home.join("auth.json"), json!({ "auth_mode": "apikey", "OPENAI_API_KEY": KEY }).to_string());
    // The file serves runs that get no variables, so it holds the key itself.
    let file = [
        &[format!("model=\"{MODEL}\"")],
        &settings[..],
        &[provider(&format!("experimental_bearer_token=\"{KEY}\""))],
    ]
    .concat();
    write(&home.join("config.toml"), file.join("\n") + "\n");
    let options = settings.into_iter().chain([provider("env_key=\"MOCK_KEY\"")]);
    let options = options.flat_map(|setting| ["-c".to_owned(), setting]).collect();
    Some(Codex { program, options })
}

impl Codex {
    /// Its section in the bridge's config. The options are repeated there, because the bridge
    /// keeps Codex from its own config file.
    pub fn agent(&self) -> Value {
        json!({
            "bin": self.program,
            "defaultModel": MODEL,
            "extraArgs": self.options,
            "extraEnv": { "MOCK_KEY": KEY },
        })
    }

    /// Codex itself, without the bridge: `codex OPTIONS ARGUMENTS`.
    pub fn command<'a>(&self, world: &World, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = world.command(&self.program);
        command.env("MOCK_KEY", KEY).args(["-m", MODEL]).args(&self.options).args(arguments);
        command
    }

    /// A headless turn of Codex as an MCP host that starts `agent-bridge serve`.
    pub fn host_command(&self, world: &World, prompt: &str) -> Command {
        let server = format!(
            "mcp_servers.{SERVER}={{command={},args=[\"serve\"],required=true,\
             default_tools_approval_mode=\"approve\",tool_timeout_sec=120}}",
            json!(BRIDGE)
        );
        let mut command = self.command(world, ["-c", &server]);
        command.args(["exec", "--json", "--skip-git-repo-check", "--sandbox", "read-only", "--", prompt]);
        command
    }

    /// The same server as a file: appends it to `config.toml` in the world's home.
    pub fn register_host(&self, world: &World) {
        let path = world.home().join(".codex").join("config.toml");
        let mut text = std::fs::read_to_string(&path).expect("the config that real::codex wrote");
        text.push_str(&format!(
            "\n[mcp_servers.{SERVER}]\ncommand = {}\nargs = [\"serve\"]\n\
             default_tools_approval_mode = \"approve\"\ntool_timeout_sec = 120\n",
            json!(BRIDGE)
        ));
        write(&path, text);
    }
}

/// Claude Code, pointed at a mock.
pub struct Claude {
    /// The program, as npm puts it on the search path.
    pub program: PathBuf,
    /// Variables that point it at the mock and let it fail fast.
    pub env: Vec<(String, String)>,
}

/// Finds Claude Code and gives it settings in the world's home.
#[track_caller]
pub fn claude(world: &World, model: &MockModel) -> Option<Claude> {
    let program = require("node_modules/.bin/claude")?;
    let env: Vec<(String, String)> = [
        ("ANTHROPIC_BASE_URL", model.base_url().as_str()),
        ("ANTHROPIC_API_KEY", KEY),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("CLAUDE_CODE_MAX_RETRIES", "0"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let variables: serde_json::Map<String, Value> =
        env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    write(&world.home().join(".claude").join("settings.json"), json!({ "env": variables }).to_string());
    Some(Claude { program, env })
}

impl Claude {
    /// Its section in the bridge's config.
    pub fn agent(&self) -> Value {
        let variables: serde_json::Map<String, Value> =
            self.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({ "bin": self.program, "extraEnv": variables })
    }

    /// Claude Code itself, without the bridge.
    pub fn command<'a>(&self, world: &World, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = world.command(&self.program);
        command.envs(self.env.iter().map(|(name, value)| (name, value))).args(arguments);
        command
    }

    /// A headless turn of Claude Code as an MCP host that starts `agent-bridge serve`.
    pub fn host_command(&self, world: &World, prompt: &str) -> Command {
        let servers = json!({ "mcpServers": { SERVER: { "command": BRIDGE, "args": ["serve"] } } });
        let path = world.path().join("claude-mcp.json");
        write(&path, servers.to_string());
        let allowed = format!("mcp__{SERVER}");
        let mut command = self.command(world, ["-p", prompt, "--output-format", "stream-json", "--verbose"]);
        command.arg("--strict-mcp-config").arg("--mcp-config").arg(&path).args(["--allowedTools", &allowed]);
        command
    }
}

/// Gemini CLI, pointed at a mock.
pub struct Gemini {
    /// The program, as npm puts it on the search path.
    pub program: PathBuf,
    /// Variables that point it at the mock.
    pub env: Vec<(String, String)>,
}

/// Finds Gemini CLI and gives it settings in the world's home.
#[track_caller]
pub fn gemini(world: &World, model: &MockModel) -> Option<Gemini> {
    let program = require("node_modules/.bin/gemini")?;
    let settings = json!({
        "security": { "auth": { "selectedType": "gemini-api-key" } },
        // Else a mock that fails is asked again for minutes.
        "general": { "enableAutoUpdate": false, "maxAttempts": 1 },
        "privacy": { "usageStatisticsEnabled": false },
    });
    write(&world.home().join(".gemini").join("settings.json"), settings.to_string());
    let env = [("GOOGLE_GEMINI_BASE_URL", model.base_url().as_str()), ("GEMINI_API_KEY", KEY)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    Some(Gemini { program, env })
}

impl Gemini {
    /// Its section in the bridge's config.
    pub fn agent(&self) -> Value {
        let variables: serde_json::Map<String, Value> =
            self.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({ "enabled": true, "bin": self.program, "defaultModel": "gemini-2.5-flash", "extraEnv": variables })
    }

    /// Gemini CLI itself, without the bridge. A model must be named, or a routing request comes first.
    pub fn command<'a>(&self, world: &World, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = world.command(&self.program);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.env("GEMINI_CLI_TRUST_WORKSPACE", "true").env("GEMINI_CLI_NO_RELAUNCH", "true");
        command.args(["-m", "gemini-2.5-flash"]).args(arguments);
        command
    }
}
