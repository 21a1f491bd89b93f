//! The subcommands, from parsed arguments to their output.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use clap::Parser;
use serde_json::{Value, json};

use super::Command;
use crate::config::tests::World;
use crate::config::{ConfigSource, load};
use crate::error::{Error, Exit};
use crate::policy::{AgentId, Sandbox};

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn run_with(world: &World, flag: Option<&Path>, args: &[&str]) -> Result<(Exit, String), Error> {
    let cli = Cli::try_parse_from(["config"].iter().chain(args)).unwrap();
    let mut out = Vec::new();
    let exit = super::run(&world.context, flag, cli.command, &mut out)?;
    Ok((exit, String::from_utf8(out).unwrap()))
}

fn run(world: &World, args: &[&str]) -> Result<(Exit, String), Error> {
    run_with(world, None, args)
}

/// A document on standard output, which holds nothing else.
fn json_of(world: &World, args: &[&str]) -> (Exit, Value) {
    let (exit, text) = run(world, args).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!(document["schema"].as_str().unwrap().starts_with("agent-bridge/"));
    assert!(document["kind"].is_string());
    (exit, document)
}

#[test]
fn init_writes_a_config_that_loads() {
    let world = World::new();
    let (work, state) = (world.text("work"), world.text("state"));
    let (exit, text) = run(
        &world,
        &[
            "init",
            "--yes",
            "--root",
            &work,
            "--root",
            &work,
            "--enable",
            "mock",
            "--sandbox-ceiling",
            "read-only",
            "--state-dir",
            &state,
        ],
    )
    .unwrap();
    assert_eq!(exit, Exit::Ok);
    let config = load(&world.context, None).unwrap();
    assert_eq!(config.source, ConfigSource::DefaultLocation);
    assert_eq!(config.allowed_roots, [world.at("work")]);
    assert_eq!(config.state_dir, world.at("state"));
    assert_eq!(config.sandbox_ceiling, Sandbox::ReadOnly);
    assert!(config.agents[&AgentId::Mock].enabled_explicitly && config.agents[&AgentId::Codex].enabled);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    assert!(text.contains(&format!("Wrote {}", config.path.display())), "{text}");
    for command in
        ["[mcp_servers.agent-bridge]", ".claude.json", "claude_desktop_config.json", "\"timeout\": 300000"]
    {
        assert!(text.contains(command), "{command} in {text}");
    }
    assert!(!text.contains("--config"), "the default location needs no flag: {text}");
    assert!(!world.at("state").exists());
}

#[test]
fn init_elsewhere_registers_with_the_path() {
    let world = World::new();
    let (path, work) = (world.text("other/é.json"), world.text("work"));
    let (_, document) = json_of(&world, &["init", "--yes", "--json", "--root", &work, "--path", &path]);
    assert_eq!(document["path"], json!(path));
    let steps = document["nextSteps"].as_array().unwrap();
    assert!(steps[0]["text"].as_str().unwrap().contains("--config"), "{steps:?}");
    let mut registered = 0;
    for step in steps.iter().filter(|step| step["client"].is_string()) {
        let text = step["text"].as_str().unwrap();
        let shown = json!(path).to_string();
        assert!(text.contains(&shown) || text.contains(&path), "{text}");
        registered += 1;
    }
    assert_eq!(registered, 4);
    assert!(load(&world.context, Some(Path::new(&path))).is_ok());
}

#[test]
fn init_never_overwrites_without_force_and_then_keeps_a_backup() {
    let world = World::new();
    let work = world.text("work");
    let old = world.write("home/.agent-bridge/config.json", "{ broken, but mine");
    let error = run(&world, &["init", "--yes", "--root", &work]).unwrap_err();
    assert_eq!(error.code(), "CONFIG_EXISTS");
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "{ broken, but mine");
    for number in ["", "-2"] {
        let (_, document) = json_of(&world, &["init", "--yes", "--json", "--force", "--root", &work]);
        let backup = world.at(&format!("home/.agent-bridge/config.json.20251130T180700Z.bak{number}"));
        assert_eq!(document["backup"], json!(backup.to_str().unwrap()));
        assert_eq!(std::fs::read_to_string(&backup).unwrap() == "{ broken, but mine", number.is_empty());
    }
    let names = std::fs::read_dir(world.at("home/.agent-bridge")).unwrap().count();
    assert_eq!(names, 3, "the config, two backups and no temporary file");
}

#[test]
fn init_refuses_wide_roots_and_writes_nothing() {
    let mut world = World::new();
    let (home, around) = (world.text("home"), world.top.to_str().unwrap().to_owned());
    for root in [home.as_str(), &around, "~", "/"] {
        if root == "/" && cfg!(windows) {
            continue;
        }
        let error = run(&world, &["init", "--yes", "--root", root]).unwrap_err();
        assert_eq!(error.code(), "CONFIG_ROOT_TOO_WIDE", "{root}");
    }
    world.context.cwd = world.at("home");
    assert_eq!(run(&world, &["init", "--yes"]).unwrap_err().code(), "CONFIG_ROOT_TOO_WIDE");
    let gone = world.text("gone");
    assert_eq!(run(&world, &["init", "--yes", "--root", &gone]).unwrap_err().code(), "CONFIG_ROOT_MISSING");
    let (work, inside) = (world.text("work"), world.text("work/state"));
    let error = run(&world, &["init", "--yes", "--root", &work, "--state-dir", &inside]).unwrap_err();
    assert_eq!(error.code(), "CONFIG_STATE_DIR_UNSAFE");
    assert!(!world.at("home/.agent-bridge").exists());
}

#[test]
fn init_takes_the_current_folder_by_default() {
    let mut world = World::new();
    world.context.cwd = world.at("work");
    run(&world, &["init", "--yes"]).unwrap();
    assert_eq!(load(&world.context, None).unwrap().allowed_roots, [world.at("work")]);
}

#[test]
fn init_without_a_home_needs_a_path_and_a_state_folder() {
    let mut world = World::new();
    world.context.home = None;
    let (work, path, state) = (world.text("work"), world.text("x.json"), world.text("state"));
    let args = ["init", "--yes", "--root", work.as_str()];
    assert_eq!(run(&world, &args).unwrap_err().code(), "CONFIG_NOT_FOUND");
    let args = [&args[..], &["--path", &path]].concat();
    assert_eq!(run(&world, &args).unwrap_err().code(), "CONFIG_STATE_DIR_REQUIRED");
    let args = [&args[..], &["--state-dir", &state]].concat();
    run(&world, &args).unwrap();
    assert!(load(&world.context, Some(Path::new(&path))).is_ok());
}

#[test]
fn init_refuses_unknown_agents_by_name() {
    let error = Cli::try_parse_from(["config", "init", "--yes", "--enable", "codx"]).unwrap_err().to_string();
    assert!(error.contains("codx") && error.contains("codex"), "{error}");
}

#[cfg(unix)]
#[test]
fn init_records_what_it_finds_on_path_and_writes_for_the_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let mut world = World::new();
    // Written by another process: a program that this one has open for writing, or has handed to a
    // child that another test just forked, cannot be started.
    let codex = world.folder("tools").join("codex");
    let script = r##"printf '#!/bin/sh\necho "codex-cli 1.2.3 ($1)"\n' > "$0" && chmod 755 "$0""##;
    assert!(std::process::Command::new("sh").args(["-c", script]).arg(&codex).status().unwrap().success());
    world.write("tools/claude", "not a program");
    world.set("PATH", world.at("tools"));
    let work = world.text("work");
    let (_, document) = json_of(&world, &["init", "--yes", "--json", "--root", &work]);
    assert_eq!(
        document["found"],
        json!([
            {"agent": "codex", "path": world.text("tools/codex"), "version": "1.2.3"},
            {"agent": "claude", "path": world.text("tools/claude"), "version": null},
        ])
    );
    let config = load(&world.context, None).unwrap();
    assert_eq!(config.agents[&AgentId::Codex].bin, world.text("tools/codex"));
    assert!(!config.agents[&AgentId::Codex].enabled_explicitly);
    let mode = std::fs::metadata(&config.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[cfg(unix)]
#[test]
fn init_replaces_the_target_of_a_link_and_keeps_the_link() {
    let world = World::new();
    let target = world.write("dotfiles/config.json", "{}");
    world.folder("home/.agent-bridge");
    let place = world.at("home/.agent-bridge/config.json");
    std::os::unix::fs::symlink(&target, &place).unwrap();
    let work = world.text("work");
    run(&world, &["init", "--yes", "--force", "--root", &work]).unwrap();
    assert!(place.symlink_metadata().unwrap().is_symlink());
    assert!(load(&world.context, Some(&target)).is_ok());
}

#[test]
fn check_tells_everything_and_its_exit_code() {
    let world = World::new();
    let path = world.write("x.json", r#"{"allowedRoot": ["/x"], "defaults": {"timeoutSec": 0}}"#);
    let (exit, text) = run_with(&world, Some(&path), &["check"]).unwrap();
    assert_eq!(exit, Exit::VerificationFailed);
    for part in [
        "problem: CONFIG_UNKNOWN_KEY: allowedRoot: unknown key; did you mean \"allowedRoots\"?\n",
        "problem: CONFIG_INVALID_VALUE: defaults.timeoutSec: ",
        "problem: CONFIG_MISSING_KEY: allowedRoots: ",
        "3 problems",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let (exit, document) = json_of(&world, &["check", "--json"]);
    assert_eq!((exit, &document["ok"]), (Exit::VerificationFailed, &json!(false)));
    assert_eq!(document["problems"][0]["code"], "CONFIG_NOT_FOUND");
    assert_eq!(document["source"], "default location");

    world.write("home/.agent-bridge/config.json", world.document(json!({})).to_string());
    let (exit, document) = json_of(&world, &["check", "--json"]);
    assert_eq!((exit, &document["ok"]), (Exit::Ok, &json!(true)));
    let (_, text) = run(&world, &["check"]).unwrap();
    assert!(text.ends_with("ok\n") && text.contains("codex (when found)"), "{text}");
}

#[test]
fn output_has_no_terminal_codes_of_others() {
    let world = World::new();
    let path = world.write("x.json", r#"{"allowedRoots": ["/\u001b[31m\u202e"], "\u001b[2J": 1}"#);
    let (_, text) = run_with(&world, Some(&path), &["check"]).unwrap();
    assert!(text.contains("CONFIG_ROOT_MISSING"), "{text}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
}

#[test]
fn explain_shows_one_key_or_all() {
    let world = World::new();
    let document = world.document(json!({"defaults": {"timeoutSec": 9}}));
    world.write("home/.agent-bridge/config.json", document.to_string());
    let (_, text) = run(&world, &["explain", "defaults.timeoutSec"]).unwrap();
    assert_eq!(text.lines().nth(1), Some("defaults.timeoutSec  9  [file /defaults/timeoutSec]"));
    let (_, document) = json_of(&world, &["explain", "--json", "agents.codex"]);
    let keys: Vec<_> =
        document["values"].as_array().unwrap().iter().map(|v| v["key"].as_str().unwrap()).collect();
    assert!(keys.len() > 4 && keys.iter().all(|key| key.starts_with("agents.codex.")), "{keys:?}");
    let error = run(&world, &["explain", "defaults.timoutSec"]).unwrap_err();
    assert_eq!(error.code(), "CONFIG_UNKNOWN_KEY");
    assert_eq!(error.hint(), "Did you mean defaults.timeoutSec?");
    assert_eq!(run(&world, &["explain", "sandbox"]).unwrap_err().hint(), "Did you mean defaults.sandbox?");
}

#[test]
fn path_names_a_file_that_need_not_exist() {
    let world = World::new();
    let (_, text) = run(&world, &["path"]).unwrap();
    assert_eq!(text, format!("{}\n", world.text("home/.agent-bridge/config.json")));
    let (_, document) = json_of(&world, &["path", "--json"]);
    assert_eq!(document["exists"], json!(false));
}

#[test]
fn schema_is_one_json_document() {
    let world = World::new();
    let (_, text) = run(&world, &["schema"]).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

#[test]
fn arguments_are_consistent() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}
