//! Whether an entry is in effect: what a client makes of its files, policies, projects and extensions as a whole.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::PathBuf;

use agent_bridge::context::{Clock, Context};
use agent_bridge::release::Layout;
use agent_bridge::release::clients::{self, Machine, Options, Plan};
use support::world::write;

/// A made-up machine of any system.
struct Home {
    folder: tempfile::TempDir,
    env: Vec<(&'static str, PathBuf)>,
    system: &'static str,
}

impl Home {
    fn on(system: &'static str) -> Self {
        let home = Self { folder: tempfile::tempdir().unwrap(), env: Vec::new(), system };
        for folder in ["home", "project/sub", "machine"] {
            std::fs::create_dir_all(home.at(folder)).unwrap();
        }
        home
    }

    fn at(&self, relative: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(relative)
    }

    fn put(self, relative: &str, text: &str) -> Self {
        let text = text
            .replace("LAUNCHER", self.layout().launcher().to_str().unwrap())
            .replace("PROJECT", self.at("project").to_str().unwrap());
        write(&self.at(relative), text);
        self
    }

    fn env(mut self, name: &'static str, folder: &str) -> Self {
        let value = self.at(folder);
        self.env.push((name, value));
        self
    }

    fn layout(&self) -> Layout {
        Layout::at(self.at("root"))
    }

    fn plan(&self) -> Plan {
        let context = Context {
            env: self.env.iter().map(|(name, value)| ((*name).into(), value.into())).collect(),
            home: Some(self.at("home")),
            cwd: self.at("project/sub"),
            exe: PathBuf::from("agent-bridge"),
            clock: Clock::System,
        };
        let machine = Machine { system: self.system.into(), root: self.at("machine") };
        clients::plan(&context, &self.layout(), &Options { machine, ..Options::default() }).unwrap()
    }

    /// The effect and the file that decides, below the folder of the test.
    fn verdict(&self, client: &str) -> (String, String) {
        let plan = serde_json::to_value(self.plan()).unwrap();
        let found = support::clients::one(&plan, client);
        let by = found["verdict"]["by"].as_str().map(PathBuf::from).unwrap_or_default();
        let by = by.strip_prefix(self.at("")).map(|path| path.display().to_string()).unwrap_or_default();
        (found["verdict"]["effect"].as_str().unwrap().to_owned(), by)
    }
}

const CODEX: &str = "[mcp_servers.agent-bridge]\ncommand = 'LAUNCHER'\nargs = ['serve']\n";
const JSON: &str = r#"{"mcpServers":{"agent-bridge":{"command":"LAUNCHER","args":["serve"]}}}"#;
const OTHER: &str = r#"{"mcpServers":{"agent-bridge":{"command":"other"}}}"#;

#[test]
fn every_situation_has_its_verdict() {
    let codex = || Home::on("linux").put("home/.codex/config.toml", CODEX);
    let claude = || Home::on("linux").put("home/.claude.json", JSON);
    let gemini = || Home::on("linux").put("home/.gemini/settings.json", JSON);
    let desktop = "home/AppData/Roaming/Claude/claude_desktop_config.json";
    let package = "home/AppData/Local/Packages/Claude_abc/LocalCache/Roaming/Claude";
    let packaged_file = format!("{package}/claude_desktop_config.json");
    let situations = [
        ("it works", codex(), "codex", "effective", "home/.codex/config.toml"),
        ("no client", Home::on("linux"), "codex", "not-installed", ""),
        (
            "no entry",
            Home::on("linux").put("home/.codex/config.toml", ""),
            "codex",
            "not-registered",
            "home/.codex/config.toml",
        ),
        (
            "an entry for something else",
            Home::on("linux").put("home/.claude.json", OTHER),
            "claude-code",
            "elsewhere",
            "home/.claude.json",
        ),
        (
            "switched off by its entry",
            Home::on("linux").put("home/.codex/config.toml", &format!("{CODEX}enabled = false\n")),
            "codex",
            "disabled",
            "home/.codex/config.toml",
        ),
        ("a broken file", Home::on("linux").put("home/.codex/config.toml", "[x"), "codex", "unreadable", ""),
        (
            "CODEX_HOME elsewhere, a decoy at home",
            codex()
                .env("CODEX_HOME", "elsewhere")
                .put("elsewhere/config.toml", "[mcp_servers.agent-bridge]\ncommand = 'x'\n"),
            "codex",
            "elsewhere",
            "elsewhere/config.toml",
        ),
        (
            "CLAUDE_CONFIG_DIR elsewhere, a decoy at home",
            claude().env("CLAUDE_CONFIG_DIR", "elsewhere").put("elsewhere/.claude.json", "{}"),
            "claude-code",
            "not-registered",
            "elsewhere/.claude.json",
        ),
        (
            "the older name of the file",
            claude().put("home/.claude/.config.json", "{}"),
            "claude-code",
            "not-registered",
            "home/.claude/.config.json",
        ),
        (
            "the organization's list of servers",
            claude().put("machine/etc/claude-code/managed-mcp.json", r#"{"mcpServers":{"x":{}}}"#),
            "claude-code",
            "blocked",
            "machine/etc/claude-code/managed-mcp.json",
        ),
        (
            "the organization's list has one of this name",
            claude().put("machine/etc/claude-code/managed-mcp.json", OTHER),
            "claude-code",
            "shadowed",
            "machine/etc/claude-code/managed-mcp.json",
        ),
        (
            "denied by policy",
            claude().put(
                "machine/etc/claude-code/managed-settings.json",
                r#"{"deniedMcpServers":[{"serverName":"agent-bridge"}]}"#,
            ),
            "claude-code",
            "blocked",
            "machine/etc/claude-code/managed-settings.json",
        ),
        (
            "not allowed by policy",
            claude().put(
                "machine/etc/claude-code/managed-settings.json",
                r#"{"allowedMcpServers":[{"serverName":"x"}]}"#,
            ),
            "claude-code",
            "blocked",
            "machine/etc/claude-code/managed-settings.json",
        ),
        (
            "allowed by its command",
            claude().put(
                "machine/etc/claude-code/managed-settings.json",
                r#"{"allowedMcpServers":[{"serverCommand":["LAUNCHER","serve"]}]}"#,
            ),
            "claude-code",
            "effective",
            "home/.claude.json",
        ),
        (
            "two scopes: the project",
            claude().put("project/.mcp.json", OTHER),
            "claude-code",
            "shadowed",
            "project/.mcp.json",
        ),
        (
            "two scopes: local",
            Home::on("linux").put(
                "home/.claude.json",
                &format!(r#"{},"projects":{{"PROJECT":{}}}}}"#, &JSON[..JSON.len() - 1], OTHER),
            ),
            "claude-code",
            "shadowed",
            "home/.claude.json",
        ),
        (
            "switched off in the project",
            Home::on("linux").put(
                "home/.claude.json",
                &format!(
                    r#"{},"projects":{{"PROJECT":{{"disabledMcpServers":["agent-bridge"]}}}}}}"#,
                    &JSON[..JSON.len() - 1]
                ),
            ),
            "claude-code",
            "disabled",
            "home/.claude.json",
        ),
        (
            "a project of Codex",
            codex().put("project/.codex/config.toml", "[mcp_servers.agent-bridge]\ncommand = 'x'\n"),
            "codex",
            "shadowed",
            "project/.codex/config.toml",
        ),
        (
            "the machine's config of Codex",
            codex()
                .put("machine/etc/codex/managed_config.toml", "[mcp_servers.agent-bridge]\ncommand = 'x'\n"),
            "codex",
            "shadowed",
            "machine/etc/codex/managed_config.toml",
        ),
        (
            "the requirements of Codex",
            codex().put("machine/etc/codex/requirements.toml", "[mcp_servers.x.identity]\ncommand = 'x'\n"),
            "codex",
            "blocked",
            "machine/etc/codex/requirements.toml",
        ),
        (
            "excluded by the user",
            Home::on("linux").put(
                "home/.gemini/settings.json",
                &format!(r#"{},"mcp":{{"excluded":["agent-bridge"]}}}}"#, &JSON[..JSON.len() - 1]),
            ),
            "gemini",
            "blocked",
            "home/.gemini/settings.json",
        ),
        (
            "not allowed by the machine",
            gemini().put("machine/etc/gemini-cli/settings.json", r#"{"mcp":{"allowed":["x"]}}"#),
            "gemini",
            "blocked",
            "machine/etc/gemini-cli/settings.json",
        ),
        (
            "a project of Gemini CLI",
            gemini().put("project/.gemini/settings.json", OTHER),
            "gemini",
            "shadowed",
            "project/.gemini/settings.json",
        ),
        (
            "an extension of the same name",
            Home::on("linux")
                .put("home/.config/Claude/claude_desktop_config.json", JSON)
                .put("home/.config/Claude/Claude Extensions/x/manifest.json", r#"{"name":"agent-bridge"}"#),
            "claude-desktop",
            "shadowed",
            "home/.config/Claude/Claude Extensions/x/manifest.json",
        ),
        (
            "on a Mac",
            Home::on("macos").put("home/Library/Application Support/Claude/claude_desktop_config.json", JSON),
            "claude-desktop",
            "effective",
            "home/Library/Application Support/Claude/claude_desktop_config.json",
        ),
        ("on Windows", Home::on("windows").put(desktop, JSON), "claude-desktop", "effective", desktop),
        (
            "on Windows, from the Store, the other file",
            Home::on("windows").put(desktop, JSON).put(&packaged_file, JSON),
            "claude-desktop",
            "shadowed",
            packaged_file.as_str(),
        ),
        (
            "on Windows, from the Store",
            Home::on("windows").put(desktop, JSON).put(&packaged_file, JSON),
            "claude-desktop-packaged",
            "effective",
            packaged_file.as_str(),
        ),
    ];
    for (what, home, client, effect, by) in situations {
        assert_eq!(home.verdict(client), (effect.to_owned(), by.to_owned()), "{what}");
    }
}

/// The packaged application redirects its files; both that may be there get a plan.
#[test]
fn every_packaged_application_has_its_own_plan() {
    let folder = "home/AppData/Local/Packages";
    let home = Home::on("windows")
        .put(&format!("{folder}/Claude_a/LocalCache/Roaming/Claude/claude_desktop_config.json"), "{}")
        .put(&format!("{folder}/Claude_b/LocalCache/Roaming/Claude/claude_desktop_config.json"), "{}")
        .put(&format!("{folder}/Other_c/LocalCache/Roaming/Claude/claude_desktop_config.json"), "{}");
    let plan = home.plan();
    let packaged = plan.clients.iter().filter(|one| one.client == "claude-desktop-packaged");
    assert_eq!(packaged.filter(|one| one.change_required).count(), 2);
}
