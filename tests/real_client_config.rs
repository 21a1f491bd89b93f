//! The real clients read what `configure-clients` wrote, start the installed bridge from it, and after it was taken
//! back their files are what they were.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use support::clients::ClientWorld;
use support::prelude::*;
use support::release::{Release, ReleaseWorld};
use support::world::write;

/// An installation that starts, with a config for the world's repository.
fn installed() -> ClientWorld {
    let release = ReleaseWorld::new();
    let id = release.place(&Release::of_bridge("1.0.0"));
    release.make_current(&id);
    let world = ClientWorld::of(release);
    write(&world.layout().config(), world.config().to_string());
    world
}

fn client(world: &ClientWorld, program: PathBuf, arguments: &[&str]) -> Command {
    let mut command = world.command(program);
    command.args(arguments);
    for (name, value) in [
        ("DISABLE_AUTOUPDATER", "1"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("ANTHROPIC_API_KEY", real::KEY),
        ("GEMINI_API_KEY", real::KEY),
        ("GEMINI_CLI_NO_RELAUNCH", "true"),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
    ] {
        command.env(name, value);
    }
    // What the installation's place is comes from the entry alone.
    command.env_remove("AGENT_BRIDGE_ROOT");
    command
}

fn apply(world: &ClientWorld, arguments: &[&str]) -> String {
    let all = ["configure-clients", "--apply", "--json"].iter().chain(arguments);
    let document = world.bridge(all).expect_code(0).json();
    document["txid"].as_str().expect("something was written").to_owned()
}

#[test]
fn codex_lists_the_server_from_every_dialect() {
    let Some(codex) = real::require("node_modules/.bin/codex") else { return };
    let dialects = [
        "",
        "\u{feff}model = \"x\"\r\n\r\n[mcp_servers.other]\r\ncommand = \"/bin/true\"",
        "mcp_servers.agent_bridge = { command = '/old', env = { KEEP = 'me' } }\n",
        "[mcp_servers]\nagent-bridge.command = \"/old\"\nagent-bridge.env.KEEP = \"me\"\n",
        "mcp_servers.other.command = \"/bin/true\"\n",
        "mcp_servers = { other = { command = '/bin/true' } }\n",
        "[mcp_servers.agent-bridge.env]\nKEEP = \"me\"\n[mcp_servers.agent-bridge]\ncommand = \"/old\"\nenabled_tools = [\"list_agents\"]\n",
    ];
    for before in dialects {
        let world = installed();
        world.put(".codex/config.toml", before);
        let txid = apply(&world, &["--client", "codex", "--allow-headless"]);
        let run =
            process::run(client(&world, codex.clone(), &["mcp", "list", "--json"]), DEADLINE).expect_code(0);
        let servers = run.json();
        let ours =
            servers.as_array().unwrap().iter().find(|one| {
                one["name"].as_str().is_some_and(|name| name.replace('_', "-") == "agent-bridge")
            });
        let ours = ours.unwrap_or_else(|| panic!("{before:?}: {servers:#}"));
        let transport = &ours["transport"];
        assert_eq!(transport["command"], world.launcher(), "{before:?}");
        assert_eq!(transport["args"], json!(["serve"]));
        assert_eq!(transport["env"]["AGENT_BRIDGE_CONFIG"], world.config_file());
        assert_eq!(ours["enabled"], true, "{ours:#}");
        assert_eq!(ours["tool_timeout_sec"], 300.0, "{ours:#}");
        if before.contains("KEEP") {
            assert_eq!(transport["env"]["KEEP"], "me", "{before:?}");
        }
        let name = ours["name"].as_str().unwrap();
        process::run(client(&world, codex.clone(), &["mcp", "get", name, "--json"]), DEADLINE).expect_code(0);
        world.bridge(["configure-clients", "--restore", &txid, "--apply"]).expect_code(0);
        assert_eq!(fs::read_to_string(world.codex()).unwrap(), before);
    }
}

#[test]
fn codex_reads_a_windows_path_as_it_was_meant() {
    use agent_bridge::release::clients::table::Format;
    use agent_bridge::release::clients::{Leaf, Literal, Wanted, merge};
    let Some(codex) = real::require("node_modules/.bin/codex") else { return };
    let world = ClientWorld::new();
    for path in [r"C:\Users\new\tools\agent-bridge.exe", r"C:\Users\it's\new.exe"] {
        let command = Leaf { path: &["command"], value: Literal::Text(path.into()), overwrite: true };
        let wanted = Wanted::Server { section: "mcp_servers", leaves: vec![command] };
        world.put(".codex/config.toml", merge(Format::Toml, true, "", &wanted).unwrap().after);
        let run =
            process::run(client(&world, codex.clone(), &["mcp", "list", "--json"]), DEADLINE).expect_code(0);
        assert_eq!(run.json()[0]["transport"]["command"], path);
    }
}

#[test]
fn claude_code_starts_the_server_and_finds_it_connected() {
    let Some(claude) = real::require("node_modules/.bin/claude") else { return };
    for (variable, file) in [(None, "home/.claude.json"), (Some("CLAUDE_CONFIG_DIR"), "other/.claude.json")] {
        let mut world = installed();
        let file = world.path().join(file);
        if let Some(variable) = variable {
            world.set_env(variable, file.parent().unwrap());
        }
        let before = "{\n  \"hasCompletedOnboarding\": true,\n  \"mcpServers\": {}\n}\n";
        write(&file, before);
        let txid = apply(&world, &["--client", "claude-code"]);
        let written = fs::read(&file).unwrap();
        let run = process::run(client(&world, claude.clone(), &["mcp", "list"]), DEADLINE).expect_code(0);
        let line = run.stdout().lines().find(|line| line.starts_with("agent-bridge:")).map(str::to_owned);
        let line = line.unwrap_or_else(|| panic!("{run}"));
        assert!(line.contains(&world.launcher()), "{line}");
        assert!(line.contains("Connected"), "{line}");
        // Claude Code writes its own keys into the file; ours is taken out of what is there now, or the old bytes
        // come back if it did not.
        world.bridge(["configure-clients", "--restore", &txid, "--apply"]).expect_code(0);
        let after = fs::read_to_string(&file).unwrap();
        assert!(!after.contains("agent-bridge"), "{after}");
        fs::write(&file, written).unwrap();
        world.bridge(["configure-clients", "--restore", &txid, "--apply"]).expect_code(0);
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
        world.assert_no_process_left(DEADLINE);
    }
}

#[test]
fn gemini_starts_the_server_and_finds_it_connected() {
    let Some(gemini) = real::require("node_modules/.bin/gemini") else { return };
    let world = installed();
    let before = "{\n  // mine\n  \"general\": { \"enableAutoUpdate\": false }\n}\n";
    world.put(".gemini/settings.json", before);
    let txid = apply(&world, &["--client", "gemini", "--allow-headless"]);
    let run = process::run(client(&world, gemini, &["mcp", "list"]), DEADLINE).expect_code(0);
    let told = format!("{}{}", run.stdout(), run.stderr());
    let line = told.lines().find(|line| line.contains("agent-bridge:"));
    assert!(
        line.is_some_and(|line| line.contains("Connected") && line.contains(&world.launcher())),
        "{told}"
    );
    world.bridge(["configure-clients", "--restore", &txid, "--apply"]).expect_code(0);
    assert_eq!(fs::read_to_string(world.gemini()).unwrap(), before);
    world.assert_no_process_left(DEADLINE);
}
