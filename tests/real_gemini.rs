//! The real Gemini CLI as a worker of the real bridge, against a scripted model on loopback.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::PathBuf;

use support::prelude::*;
use support::worker::{self, Cli, Worker};

const GEMINI: Cli = Cli::Gemini;

#[test]
fn a_fresh_turn_is_one_question_and_its_answer() {
    worker::a_fresh_turn_is_one_question_and_its_answer(GEMINI);
}

#[test]
fn a_resumed_turn_is_the_same_conversation() {
    worker::a_resumed_turn_is_the_same_conversation(GEMINI);
}

#[test]
fn a_read_only_turn_writes_nothing() {
    worker::a_read_only_turn_writes_nothing(GEMINI);
}

#[test]
fn a_workspace_write_turn_writes_inside_and_not_outside() {
    worker::a_workspace_write_turn_writes_inside_and_not_outside(GEMINI);
}

#[test]
fn authority_is_not_inherited_from_an_earlier_turn() {
    worker::authority_is_not_inherited_from_an_earlier_turn(GEMINI);
}

#[test]
fn an_error_of_the_model_becomes_its_outcome() {
    worker::an_error_of_the_model_becomes_its_outcome(GEMINI);
}

#[test]
fn a_turn_whose_model_hangs_can_be_cancelled() {
    worker::a_turn_whose_model_hangs_can_be_cancelled(GEMINI);
}

/// Its shell is there with full access only, and each command has a session of its own.
#[test]
fn a_cancelled_turn_takes_its_commands_with_it() {
    let (command, markers) = ("tail -f README.md", ["tail -f README.md"]);
    worker::a_cancelled_turn_takes_its_commands_with_it(GEMINI, "full-access", command, &markers);
}

#[test]
fn any_prompt_arrives_whole() {
    worker::any_prompt_arrives_whole(GEMINI);
}

#[test]
fn a_model_that_cannot_be_reached_ends_the_turn() {
    worker::a_model_that_cannot_be_reached_ends_the_turn(GEMINI);
}

#[test]
fn a_model_that_never_answers_ends_at_our_deadline() {
    worker::a_model_that_never_answers_ends_at_our_deadline(GEMINI);
}

#[test]
fn its_version_and_its_key_are_listed() {
    let Some(health) = worker::health(GEMINI, |_| ()) else { return };
    assert_eq!(health["binary"]["version"], worker::pinned_version("@google/gemini-cli"), "{health:#}");
    assert_eq!((&health["auth"]["status"], &health["usable"]), (&json!("authenticated"), &json!(true)));
    assert!(!health.to_string().contains(real::KEY), "{health:#}");
}

#[test]
fn without_a_trace_of_a_login_it_is_unknown_how_a_run_would_end() {
    let logged_out = |world: &World| {
        let mut section = world.config()["agents"]["gemini"].clone();
        section["extraEnv"].as_object_mut().unwrap().remove("GEMINI_API_KEY");
        world.set_agent("gemini", section);
    };
    let Some(health) = worker::health(GEMINI, logged_out) else { return };
    assert_eq!((&health["binary"]["ok"], &health["usable"]), (&json!(true), &json!(false)), "{health:#}");
    assert_eq!(health["auth"]["status"], "unknown", "{health:#}");
    assert!(health["auth"]["detail"].as_str().unwrap().contains("`gemini`"), "{health:#}");
}

/// Headless Gemini CLI allows its model to leave plan mode, and then everything. This model tries it from every mode.
#[test]
fn a_model_cannot_grant_itself_more_by_changing_modes() {
    let script = |world: &World| {
        let plan =
            || reply().tool("write_file", json!({ "file_path": "plan.md", "content": "# Plan\n\nAll.\n" }));
        let leave = || reply().tool("exit_plan_mode", json!({ "plan_filename": "plan.md" }));
        let shell = || reply().shell("touch escaped.txt");
        let outside = || reply().shell(format!("touch {}/escaped.txt", world.outside().display()));
        let enter = || reply().tool("enter_plan_mode", json!({ "reason": "to leave it" }));
        let done =
            || reply_with(|request| reply().text(format!("Told: {}", request.tool_results().concat())));
        Script::new()
            .scenario("leave", [plan(), leave(), shell(), outside(), done()])
            .scenario("enter", [enter(), plan(), leave(), shell(), outside(), done()])
    };
    let Some(mut worker) = Worker::start(GEMINI, World::new().build(), script) else { return };
    for sandbox in ["read-only", "workspace-write"] {
        for name in ["leave", "enter"] {
            let turn = worker.delegate(&format!("scenario:{name}"), json!({ "sandbox": sandbox })).ok();
            assert!(
                turn.structured["output"].as_str().unwrap().contains("not found"),
                "{:#}",
                turn.structured
            );
            let written = worker.world.git(["status", "--porcelain"]);
            let expected = if sandbox == "read-only" { "" } else { "?? plan.md" };
            assert_eq!(written, expected, "{sandbox} {name}");
            let outside: Vec<_> = std::fs::read_dir(worker.world.outside()).unwrap().collect();
            assert!(outside.is_empty(), "{sandbox} {name}: {outside:?}");
        }
    }
    worker.end();
}

/// What its user once allowed for good is no part of a run.
#[test]
fn rules_of_the_users_do_not_widen_a_run() {
    let script = |world: &World| {
        let script = worker::runs(Script::new(), "shell", "touch shell.txt");
        worker::writes(script, "tool", &world.file("tool.txt"))
    };
    let Some(mut worker) = Worker::start(GEMINI, World::new().build(), script) else { return };
    let gemini = worker.world.home().join(".gemini");
    let rule = "[[rule]]\ntoolName = [\"run_shell_command\", \"write_file\"]\ndecision = \"allow\"\npriority = 999\n";
    std::fs::create_dir_all(gemini.join("policies")).unwrap();
    std::fs::write(gemini.join("policies").join("mine.toml"), rule).unwrap();
    let mut settings: Value =
        serde_json::from_slice(&std::fs::read(gemini.join("settings.json")).unwrap()).unwrap();
    settings["tools"] = json!({ "allowed": ["run_shell_command", "write_file"] });
    std::fs::write(gemini.join("settings.json"), settings.to_string()).unwrap();
    for name in ["shell", "tool"] {
        let turn = worker.delegate(&format!("scenario:{name}"), json!({})).ok();
        assert_eq!(worker.world.git(["status", "--porcelain"]), "", "{:#}", turn.structured);
        assert!(turn.structured["output"].as_str().unwrap().contains("not found"), "{:#}", turn.structured);
        assert_eq!(turn.structured["meta"]["permissionDenials"], 1, "{:#}", turn.structured);
    }
    worker.end();
}

/// A checked-out project is data: nothing of it runs, speaks for the user, or turns requests elsewhere.
#[test]
fn a_project_starts_nothing_and_redirects_nothing() {
    let script = |_: &World| Script::new().scenario("hello", [reply().text("Hello.")]);
    let Some(mut worker) = Worker::start(GEMINI, World::new().build(), script) else { return };
    let (repo, outside) = (worker.world.repo(), worker.world.outside());
    let touch = |name: &str| format!("touch '{}'", outside.join(name).display());
    let hook =
        |name: &str| json!([{ "hooks": [{ "name": name, "type": "command", "command": touch(name) }] }]);
    let settings = json!({
        "hooksConfig": { "enabled": true },
        "hooks": { "SessionStart": hook("session"), "BeforeAgent": hook("agent") },
        "tools": { "discoveryCommand": touch("discovered") },
        "mcpServers": { "theirs": { "command": "touch", "args": [outside.join("server")], "trust": true } },
    });
    std::fs::create_dir_all(repo.join(".gemini")).unwrap();
    std::fs::write(repo.join(".gemini").join("settings.json"), settings.to_string()).unwrap();
    let elsewhere = "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:9\nGEMINI_API_KEY=another-key\n";
    std::fs::write(repo.join(".gemini").join(".env"), elsewhere).unwrap();
    std::fs::write(repo.join(".env"), elsewhere).unwrap();
    let home = worker.world.home().join(".gemini").join("settings.json");
    let mut own: Value = serde_json::from_slice(&std::fs::read(&home).unwrap()).unwrap();
    own["mcpServers"] =
        json!({ "mine": { "command": "touch", "args": [outside.join("user-server")], "trust": true } });
    std::fs::write(&home, own.to_string()).unwrap();
    let turn = worker.delegate("scenario:hello", json!({})).ok();
    assert_eq!(turn.structured["output"], "Hello.", "{:#}", turn.structured);
    let started: Vec<PathBuf> =
        std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(started, [] as [PathBuf; 0]);
    worker.end();
}

/// A word with `@` is a file's name to this CLI. It stays within the working folder.
#[test]
fn a_name_in_a_prompt_brings_no_file_from_outside() {
    let script = |_: &World| Script::new().scenario("hello", [reply().text("Read.")]);
    let Some(mut worker) = Worker::start(GEMINI, World::new().build(), script) else { return };
    let outside = worker.world.outside().join("outside.txt");
    std::fs::write(&outside, "words from outside").unwrap();
    let prompt = format!("Mail me@example.com about @{} and @Override. scenario:hello", outside.display());
    worker.delegate(&prompt, json!({})).ok();
    let seen = worker.model.turns("hello").pop().unwrap().user_text();
    assert!(seen.contains(&prompt) && !seen.contains("words from outside"), "{seen}");
    worker.end();
}

/// Its conversations are files of the user's, who may remove them.
#[test]
fn a_conversation_that_is_gone_is_told_and_then_replayed() {
    let script = |_: &World| {
        let names = ["one", "two", "three"];
        names.iter().fold(Script::new(), |script, name| script.scenario(name, [reply().text(*name)]))
    };
    let Some(mut worker) = Worker::start(GEMINI, World::new().build(), script) else { return };
    let one = worker.delegate("scenario:one", json!({})).ok();
    std::fs::remove_dir_all(worker.world.home().join(".gemini").join("tmp")).unwrap();
    let two = worker.go_on(&one, "scenario:two", json!({})).err();
    let facts = [&two.structured["code"], &two.structured["meta"]["failure"]];
    assert_eq!(facts, [&json!("NATIVE_SESSION_LOST"), &json!("conversation-lost")], "{:#}", two.structured);
    let three = worker.go_on(&one, "scenario:three", json!({})).ok();
    assert_eq!(three.structured["continuity"], "context-replay");
    worker.end();
}

/// The CLI exits with 0.
#[test]
fn an_answer_that_was_held_back_is_no_success() {
    let script = |_: &World| Script::new().scenario("unsafe", [reply().text("").stop("SAFETY")]);
    let Some(mut worker) = Worker::start(GEMINI, World::new().build(), script) else { return };
    let turn = worker.delegate("scenario:unsafe", json!({})).err();
    let facts = [&turn.structured["outcome"], &turn.structured["meta"]["failure"]];
    assert_eq!(facts, [&json!("worker-error"), &json!("content-filtered")], "{:#}", turn.structured);
    worker.end();
}

/// A failed request is written down by the CLI, with the conversation; it goes with the run.
#[test]
fn what_it_writes_down_about_a_failure_goes_with_the_run() {
    let script = |_: &World| Script::new().scenario("refused", [reply().status(403).message("no")]);
    let Some(mut worker) = Worker::start(GEMINI, World::new().build(), script) else { return };
    let turn = worker.delegate("scenario:refused", json!({})).err();
    let facts = [&turn.structured["outcome"], &turn.structured["meta"]["failure"]];
    assert_eq!(facts, [&json!("worker-error"), &json!("permission-denied")], "{:#}", turn.structured);
    let arguments = json!({
        "session_id": turn.structured["bridge_session_id"], "turn": 0, "field": "stderr", "max_chars": 10_000
    });
    let stderr = worker.host.call("get_turn_output", arguments).ok();
    let runs = worker.world.state().join("runs");
    assert!(stderr.text.contains(&*runs.to_string_lossy()), "it was written there: {}", stderr.text);
    assert_eq!(std::fs::read_dir(&runs).unwrap().count(), 0);
    worker.end();
}

/// `useUserConfig` brings the user's servers. What their tools say of themselves decides, not what they are trusted with.
#[test]
fn of_a_server_of_the_users_only_what_reads_is_there() {
    let script = |_: &World| Script::new().scenario("hello", [reply().text("Hello.")]);
    let Some(mut worker) = Worker::start(GEMINI, World::new().build(), script) else { return };
    let server = worker.world.path().join("server.py");
    std::fs::write(&server, SERVER).unwrap();
    let settings = worker.world.home().join(".gemini").join("settings.json");
    let mut own: Value = serde_json::from_slice(&std::fs::read(&settings).unwrap()).unwrap();
    own["mcpServers"] = json!({ "mine": { "command": "python3", "args": [server], "trust": true } });
    std::fs::write(&settings, own.to_string()).unwrap();
    let mut section = worker.world.config()["agents"]["gemini"].clone();
    for (user_config, offered) in [(false, &[][..]), (true, &["mcp_mine_look"][..])] {
        section["useUserConfig"] = json!(user_config);
        worker.world.set_agent("gemini", section.clone());
        worker.host = worker.world.host();
        worker.host.initialize();
        worker.delegate("scenario:hello", json!({})).ok();
        let tools = worker.model.turns("hello").pop().unwrap().tools();
        let theirs: Vec<&String> = tools.iter().filter(|tool| tool.starts_with("mcp_")).collect();
        assert_eq!(theirs, offered, "{user_config}");
    }
    worker.end();
}

/// Two tools, of which one says that it only reads.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "mine", "version": "1"}}
    elif message["method"] == "tools/list":
        tool = lambda name, reads: {"name": name, "description": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": reads}}
        result = {"tools": [tool("look", True), tool("burn", False)]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;
