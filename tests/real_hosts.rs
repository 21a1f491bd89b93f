//! The real Codex and the real Claude Code as MCP hosts: they start the bridge from the files in
//! `templates/clients`, and their model delegates.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::Path;
use std::process::Command;

use support::mock_model::Reply;
use support::prelude::*;
use support::real::SERVER;
use support::worker::Cli;
use support::world::{link, write};

/// A host's configuration as it is handed out, with the program's path filled in as a user does.
fn template(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates").join("clients").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let place = "/absolute/path/to/agent-bridge";
    assert!(text.contains(place), "{} does not say where the program goes", path.display());
    text.replace(place, BRIDGE)
}

/// A headless turn of a host that has the bridge from its template.
fn host_turn(cli: Cli, world: &World, model: &MockModel, prompt: &str) -> Option<Command> {
    match cli {
        Cli::Codex => {
            let codex = real::codex(world, model)?;
            codex_config(world);
            let arguments =
                ["exec", "--json", "--skip-git-repo-check", "--sandbox", "read-only", "--", prompt];
            Some(codex.command(world, arguments))
        }
        Cli::Claude => {
            let claude = real::claude(world, model)?;
            let mut command =
                claude.command(world, ["-p", prompt, "--output-format", "stream-json", "--verbose"]);
            let servers = world.path().join("claude-mcp.json");
            write(&servers, template("claude-code.json"));
            command.arg("--strict-mcp-config").arg("--mcp-config").arg(servers);
            // The permission rule that a person writes once.
            command.args(["--allowedTools", &format!("mcp__{SERVER}")]);
            Some(command)
        }
        Cli::Gemini => {
            let gemini = real::gemini(world, model)?;
            gemini_settings(world);
            Some(gemini.command(world, ["-o", "stream-json", &format!("-p={prompt}")]))
        }
    }
}

/// Adds the template to the config file in the world's home.
fn codex_config(world: &World) {
    let path = world.home().join(".codex").join("config.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str(&template("codex.toml"));
    write(&path, text);
}

/// Adds the template to the settings in the world's home, with the word that a person writes once.
fn gemini_settings(world: &World) {
    let path = world.home().join(".gemini").join("settings.json");
    let mut settings: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut servers: Value = serde_json::from_str(&template("gemini.json")).unwrap();
    servers["mcpServers"][SERVER]["trust"] = json!(true);
    settings["mcpServers"] = servers["mcpServers"].clone();
    write(&path, settings.to_string());
}

/// A world whose search path has the bridge.
fn world() -> World {
    let world = World::new().build();
    link(Path::new(BRIDGE), &world.bin().join("agent-bridge"));
    world
}

/// The host's model asks for a tool and repeats what the tool said.
fn asks(tool: &str, arguments: Value) -> [Reply; 2] {
    let repeat = reply_with(|request| reply().text(request.tool_results().concat()));
    [reply().mcp_tool(SERVER, tool, arguments), repeat]
}

/// The turns on record, as the command line lists them.
fn turns(world: &World) -> Vec<Value> {
    let list = world.bridge(["turns", "list", "--json"]).expect_code(0).json();
    list["turns"].as_array().unwrap_or_else(|| panic!("{list:#}")).clone()
}

/// A host's model delegates to the other CLI, whose model answers.
fn delegates(host: Cli, worker: Cli) {
    let world = world();
    let task = json!({ "agent": worker.id(), "prompt": "scenario:work", "cwd": world.repo() });
    let script = Script::new()
        .scenario("host", asks("delegate_task", task))
        .scenario("work", [reply().text("The worker's answer.")]);
    let model = MockModel::start(script);
    let Some(command) = host_turn(host, &world, &model, "scenario:host") else { return };
    let Some(()) = worker.register(&world, &model) else { return };
    let run = process::run(command, DEADLINE).expect_code(0);

    assert!(model.turns("work")[0].user_text().contains("scenario:work"));
    let turns = turns(&world);
    assert_eq!(turns.len(), 1, "{turns:#?}");
    let seen = model.turns("host").pop().unwrap();
    if host == Cli::Gemini {
        // It shows its model the text alone.
        let text = seen.tool_results().concat();
        let told = ["The worker's answer.", "success", worker.id(), turns[0]["turn_id"].as_str().unwrap()];
        assert!(told.iter().all(|word| text.contains(word)), "the host's model saw {text}\n{run}");
        return world.assert_no_process_left(DEADLINE);
    }
    let seen = seen.tool_json();
    let facts = ["output", "outcome", "agent", "sandbox"].map(|key| seen[key].clone());
    let wanted = json!(["The worker's answer.", "success", worker.id(), "read-only"]);
    assert_eq!(json!(facts), wanted, "the host's model saw {seen:#}\n{run}");
    for id in ["bridge_session_id", "turn_id"] {
        assert!(turns[0][id].is_string(), "{turns:#?}");
        assert_eq!(seen[id], turns[0][id], "the host's model saw {seen:#}");
    }
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn codex_delegates_to_claude_and_its_model_sees_the_answer() {
    delegates(Cli::Codex, Cli::Claude);
}

#[test]
fn claude_delegates_to_gemini_and_its_model_sees_the_answer() {
    delegates(Cli::Claude, Cli::Gemini);
}

#[test]
fn gemini_delegates_to_codex_and_its_model_sees_the_answer() {
    delegates(Cli::Gemini, Cli::Codex);
}

#[test]
fn claude_delegates_to_codex_and_its_model_sees_the_answer() {
    delegates(Cli::Claude, Cli::Codex);
}

/// What did not work reaches the host's model with its reason and what to do next: a worker's failure,
/// and a call that was refused.
fn sees_what_went_wrong(host: Cli) {
    let world = world();
    let failed = json!({ "steps": [{ "answer": { "failed": "You've hit your usage limit." } }] });
    write(&world.path().join("script.json"), failed.to_string());
    world.set_agent("mock", json!({ "enabled": true, "script": world.path().join("script.json") }));
    let task = |agent: &str| json!({ "agent": agent, "prompt": "work", "cwd": world.repo() });
    let script = Script::new()
        .scenario("failed", asks("delegate_task", task("mock")))
        .scenario("refused", asks("delegate_task", task("nobody")));
    let model = MockModel::start(script);
    for (name, facts) in [
        ("failed", ["quota", "usage limit", "turn_id"]),
        ("refused", ["AGENT_UNKNOWN", "nobody", "list_agents"]),
    ] {
        let Some(command) = host_turn(host, &world, &model, &format!("scenario:{name}")) else { return };
        let run = process::run(command, DEADLINE).expect_code(0);
        let seen = model.turns(name).pop().unwrap().tool_results().concat();
        for fact in facts {
            assert!(seen.contains(fact), "{fact:?} is not in what the host's model saw: {seen}\n{run}");
        }
    }
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn the_model_of_codex_sees_what_went_wrong() {
    sees_what_went_wrong(Cli::Codex);
}

#[test]
fn the_model_of_claude_sees_what_went_wrong() {
    sees_what_went_wrong(Cli::Claude);
}

/// Codex waits one second for a server's tools; what comes later is missing for the whole turn,
/// without a word. The first request already offers them all.
#[test]
fn codex_offers_every_tool_from_its_first_request_on() {
    let world = world();
    let model = MockModel::start(Script::new().scenario("look", [reply().text("Seen.")]));
    let Some(codex) = real::codex(&world, &model) else { return };
    codex_config(&world);
    let mut command = world.command(&codex.program);
    // A model that Codex does not know is offered tools one by one; others have to search for them.
    command.env("MOCK_KEY", real::KEY).args(["-m", "unknown-model"]).args(&codex.options);
    command.args(["exec", "--json", "--skip-git-repo-check", "scenario:look"]);
    process::run(command, DEADLINE).expect_code(0);
    let offered = model.turns("look")[0].tools();
    let mut server = world.host();
    server.initialize();
    for name in server.tool_names() {
        assert!(offered.contains(&format!("mcp__agent_bridge/{name}")), "{name} is not among {offered:?}");
    }
    server.hang_up();
    server.wait_exit(DEADLINE).expect_code(0);
    world.assert_no_process_left(DEADLINE);
}

/// The host dies while its worker waits for a model that never answers.
fn dies(host: Cli, worker: Cli, how: Signal) {
    let world = world();
    let task = json!({ "agent": worker.id(), "prompt": "scenario:hang", "cwd": world.repo() });
    let script =
        Script::new().scenario("host", asks("delegate_task", task)).scenario("hang", [reply().hang()]);
    let model = MockModel::start(script);
    let Some(command) = host_turn(host, &world, &model, "scenario:host") else { return };
    let Some(()) = worker.register(&world, &model) else { return };
    let running = process::start(command);
    model.wait_for_request("hang", DEADLINE);
    running.signal(how);
    model.wait_for_client_gone("hang", DEADLINE);
    running.finish(DEADLINE);
    world.assert_no_process_left(DEADLINE);
    let turns = turns(&world);
    assert_eq!(turns.len(), 1, "{turns:#?}");
    assert_eq!(turns[0]["outcome"], "cancelled", "{turns:#?}");
}

#[test]
fn nothing_is_left_of_a_delegation_when_codex_is_terminated() {
    dies(Cli::Codex, Cli::Claude, Signal::Terminate);
}

#[test]
fn nothing_is_left_of_a_delegation_when_claude_is_killed() {
    dies(Cli::Claude, Cli::Codex, Signal::Kill);
}

/// A worker in whose home, and in whose folder, the bridge is set up as in a host's.
fn tries_to_delegate_again(worker: Cli, user_config: bool) -> Option<(Vec<String>, String, Vec<Value>)> {
    let world = world();
    let task = json!({ "agent": "mock", "prompt": "once more", "cwd": world.repo() });
    let model = MockModel::start(Script::new().scenario("again", asks("delegate_task", task)));
    worker.register(&world, &model)?;
    world.set_agent("mock", json!({ "enabled": true }));
    match worker {
        Cli::Codex => codex_config(&world),
        Cli::Claude => {
            let servers = template("claude-code.json");
            write(&world.home().join(".claude.json"), &servers);
            write(&world.file(".mcp.json"), &servers);
        }
        Cli::Gemini => gemini_settings(&world),
    }
    let mut section = world.config()["agents"][worker.id()].clone();
    section["useUserConfig"] = json!(user_config);
    world.set_agent(worker.id(), section);
    let mut host = world.host();
    host.initialize();
    let outer = json!({
        "agent": worker.id(), "prompt": "scenario:again", "cwd": world.repo(), "wait_seconds": 120
    });
    host.call("delegate_task", outer).ok();
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    world.assert_no_process_left(DEADLINE);
    let asked = model.turns("again");
    assert_eq!(asked.len(), 2, "{}", model.summary());
    Some((asked[0].tools(), asked[1].tool_results().concat(), turns(&world)))
}

#[test]
fn a_worker_is_not_offered_the_bridge_that_its_user_has() {
    for worker in [Cli::Codex, Cli::Claude, Cli::Gemini] {
        let Some((offered, answer, turns)) = tries_to_delegate_again(worker, false) else { return };
        assert!(!offered.iter().any(|tool| tool.contains("delegate_task")), "{worker:?}: {offered:?}");
        // Nor is it there for a model that calls it unasked: the answer is the CLI's own.
        assert!(
            !answer.contains("DELEGATION_TOO_DEEP") && !answer.contains("agent-bridge error"),
            "{answer}"
        );
        assert!(!answer.contains("turn_id"), "{worker:?}: {answer}");
        assert_eq!(turns.len(), 1, "{worker:?}: {turns:#?}");
    }
}

/// Codex gives its servers only a few variables, so the mark of the depth is lost on the way.
#[test]
fn a_worker_that_starts_the_bridge_again_is_refused_by_it() {
    let Some((_, answer, turns)) = tries_to_delegate_again(Cli::Codex, true) else { return };
    assert!(answer.contains("DELEGATION_TOO_DEEP"), "the worker's model saw {answer}");
    assert_eq!(turns.len(), 1, "{turns:#?}");
}
