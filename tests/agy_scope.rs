//! What an Antigravity worker is given besides its prompt: the endpoint of its run, and a schema for its answer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use agent_bridge::bridge::{Bridge, TurnRequest, view};
use agent_bridge::config;
use agent_bridge::context::{Clock, Context};
use agent_bridge::policy::{ExecutionMode, Sandbox};
use support::agy::{FakeAgy, argv, flag};
use support::prelude::*;

const ERAS: [&str; 4] = ["1.1.8", "1.1.20", "1.2.6", "1.3.3"];

/// A world whose runs get these tools.
fn world(tools: &[&str]) -> World {
    World::new().ceiling("full-access").config("scope", json!({ "tools": tools })).build()
}

#[track_caller]
fn delegate(world: &World, options: &[&str]) -> Value {
    let arguments = [&["delegate", "antigravity", "hi", "--json", "--cwd", "."], options].concat();
    world.bridge(arguments).json()
}

fn report() -> Value {
    json!({ "outcome": "done", "summary": "Fixed the test." })
}

#[test]
fn a_worker_reports_over_the_endpoint_of_its_run_and_finds_no_other_tool() {
    for version in ERAS {
        for sandbox in ["read-only", "workspace-write"] {
            let world = world(&["submit_report", "note"]);
            let acts = json!([
                { "list_tools": null },
                { "call": ["submit_report", report()] },
                { "call": ["note", { "key": "where", "text": "src/lib.rs" }] },
                { "say": "Reported." },
            ]);
            let agy =
                FakeAgy::put(&world, &json!({ "version": version, "runs": [acts], "mcp_delay_ms": 100 }));
            let turn = delegate(&world, &["--sandbox", sandbox]);
            assert_eq!(turn["outcome"], "success", "{version} {sandbox}: {turn:#}");
            assert_eq!(turn["report"]["summary"], "Fixed the test.", "{turn:#}");
            let scope = &turn["meta"]["scope"];
            assert_eq!((&scope["calls"], &scope["refused"]), (&json!(2), &json!(0)), "{turn:#}");
            let [run] = agy.runs().try_into().unwrap();
            let listed = json!([{ "server": "bridge", "tools": ["note", "submit_report"] }]);
            assert_eq!(run["listed"], listed, "{version}");
        }
    }
}

#[test]
fn a_forbidden_tool_is_refused_by_the_endpoint_even_where_the_program_lets_it_through() {
    let world = world(&["note"]);
    let acts = json!([{ "call": ["delegate_task", { "task": "x" }] }, { "call": ["submit_report", report()] }, { "say": "." }]);
    let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3", "runs": [acts] }));
    let turn = delegate(&world, &["--sandbox", "full-access"]);
    assert_eq!((&turn["outcome"], &turn["report"]), (&json!("success"), &Value::Null), "{turn:#}");
    assert_eq!(turn["meta"]["scope"]["refused"], 2, "{turn:#}");
    let [run] = agy.runs().try_into().unwrap();
    for call in run["calls"].as_array().unwrap() {
        assert!(call["answer"].as_str().unwrap().contains("not available"), "{call}");
    }
    // With less authority the program itself denies what is not on its list.
    agy.forget();
    let turn = delegate(&world, &["--sandbox", "workspace-write"]);
    assert_eq!(turn["meta"]["failure"], "permission-denied", "{turn:#}");
    assert_eq!((&turn["meta"]["scope"]["refused"], &agy.runs()[0]["calls"]), (&json!(0), &Value::Null));
}

#[test]
fn a_worker_that_never_reached_its_endpoint_has_not_done_its_work() {
    let world = world(&["submit_report"]);
    let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3", "mcp_off": true }));
    let turn = delegate(&world, &[]);
    assert_eq!(
        (&turn["outcome"], &turn["code"]),
        (&json!("worker-error"), &json!("WORKER_TOOLS_MISSING")),
        "{turn:#}"
    );
    // A run that failed for another reason keeps it.
    let fail = json!([{ "fail": { "status": "ResourceExhausted", "message": "Quota exceeded" } }]);
    agy.play(&json!({ "version": "1.3.3", "mcp_off": true, "runs": [fail] }));
    assert_eq!(delegate(&world, &[])["outcome"], "quota");
}

#[test]
fn the_token_is_in_one_private_file_that_is_gone_with_the_run() {
    let world = world(&["note"]);
    let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3", "runs": [[{ "say": "Done." }]] }));
    let turn = delegate(&world, &[]);
    assert_eq!(turn["outcome"], "success", "{turn:#}");
    let [run] = agy.runs().try_into().unwrap();
    let servers: Value =
        serde_json::from_str(run["root_files"]["config/mcp_config.json"].as_str().unwrap()).unwrap();
    let bridge = &servers["mcpServers"]["bridge"];
    let token = bridge["headers"]["Authorization"].as_str().unwrap().strip_prefix("Bearer ").unwrap();
    assert_eq!(token.len(), 64);
    assert_eq!(bridge["enabledTools"], json!(["note"]));
    assert!(bridge["serverUrl"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    let settings = run["root_files"]["antigravity-cli/settings.json"].as_str().unwrap();
    assert!(settings.contains("mcp(bridge/note)"), "{settings}");
    assert!(!argv(&run).concat().contains(token));
    assert_eq!(run["env"]["NO_PROXY"], "127.0.0.1,localhost,::1");
    for entry in
        walkdir::WalkDir::new(world.state()).into_iter().flatten().filter(|e| e.file_type().is_file())
    {
        let bytes = std::fs::read(entry.path()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(token), "{}", entry.path().display());
    }
    assert!(
        !world
            .bridge(["turns", "show", turn["turn_id"].as_str().unwrap(), "--json"])
            .stdout()
            .contains(token)
    );
}

#[test]
fn a_session_goes_on_in_its_conversation_with_and_without_the_endpoint() {
    let world = world(&["note"]);
    let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3" }));
    let one = delegate(&world, &[]);
    let session = one["bridge_session_id"].as_str().unwrap();
    for options in [&["--no-scope", "--session", session][..], &["--session", session]] {
        let turn = delegate(&world, options);
        assert_eq!(
            (&turn["outcome"], &turn["continuity"]),
            (&json!("success"), &json!("native-resume")),
            "{turn:#}"
        );
    }
    let [_, without, with] = agy.runs().try_into().unwrap();
    assert!(without["root_files"]["config/mcp_config.json"].as_str().unwrap().contains("{}"));
    assert!(with["root_files"]["config/mcp_config.json"].as_str().unwrap().contains("serverUrl"));
    // Another session finds nothing of it.
    agy.forget();
    delegate(&world, &[]);
    let files = agy.runs()[0]["root_files"].as_object().unwrap().clone();
    assert!(!files.keys().any(|name| name.contains("conversations")), "{files:?}");
}

#[test]
fn the_users_own_servers_and_an_endpoint_do_not_go_together() {
    let world = world(&["note"]);
    let agy = FakeAgy::put_with(&world, &json!({}), json!({ "useUserConfig": true }));
    let refused = world.bridge(["delegate", "antigravity", "hi", "--cwd", "."]).expect_code(2);
    assert!(refused.stderr().contains("AGENT_ENDPOINT_NEEDS_ISOLATION"), "{refused}");
    assert!(agy.runs().is_empty());
}

/// A turn as another part of this program starts it.
fn turn(world: &World, request: impl FnOnce(&mut TurnRequest)) -> Result<Value, agent_bridge::error::Error> {
    let context = Context {
        env: world.env().clone(),
        home: Some(world.home()),
        cwd: world.repo(),
        exe: BRIDGE.into(),
        clock: Clock::System,
    };
    let config = config::load(&context, None).unwrap();
    let bridge = Bridge::new(context, config);
    let mut asked = TurnRequest {
        agent: Some("antigravity".into()),
        prompt: "Do it.".into(),
        cwd: Some(world.repo().to_str().unwrap().into()),
        requested_by: "test".into(),
        ..TurnRequest::default()
    };
    request(&mut asked);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let started = bridge.start(asked).await?;
        let waited = bridge.wait(&started.turn_id, DEADLINE, |_, _| {}).await?;
        let view = bridge.with_store(move |store| view::turn_view(store, &waited, 0, 1 << 20)).await?;
        Ok(serde_json::to_value(view).unwrap())
    })
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "summary": { "type": "string" }, "risks": { "type": "array" } },
        "required": ["summary", "risks"],
        "additionalProperties": false,
    })
}

#[test]
fn an_answer_by_schema_is_a_fact_of_the_turn() {
    for version in ERAS {
        let world = world(&[]);
        let wanted = json!({ "summary": "Fixed.", "risks": ["none"] });
        let acts = json!([{ "say": "{\"summary\": …}" }, { "structured": wanted }]);
        let agy = FakeAgy::put(&world, &json!({ "version": version, "runs": [acts] }));
        let turn = turn(&world, |request| request.report_schema = Some(schema())).unwrap();
        assert_eq!(
            (&turn["outcome"], &turn["meta"]["structuredOutput"]),
            (&json!("success"), &wanted),
            "{turn:#}"
        );
        let given: Value = serde_json::from_str(flag(&agy.runs()[0], "json-schema").unwrap()).unwrap();
        assert_eq!(given, schema());
    }
}

#[test]
fn a_text_in_the_place_of_a_report_is_no_report() {
    for (act, found) in [
        (json!({ "structured": "Fixed." }), "a string"),
        (json!({ "structured": [1] }), "an array"),
        (json!({ "no_structured": null }), "nothing"),
    ] {
        let world = world(&[]);
        FakeAgy::put(&world, &json!({ "version": "1.3.3", "runs": [[{ "say": "Fixed." }, act]] }));
        let turn = turn(&world, |request| request.report_schema = Some(schema())).unwrap();
        assert_eq!(turn["meta"]["structuredOutput"], Value::Null, "{turn:#}");
        assert_eq!(turn["meta"]["structuredOutputFound"], found);
        assert_eq!(turn["output"], "Fixed.");
    }
}

#[test]
fn safe_never_skips_permissions_and_trusted_needs_all_of_them() {
    use ExecutionMode::{Safe, Trusted};
    for (sandbox, mode, expected) in [
        (Sandbox::WorkspaceWrite, Safe, Some("--mode=accept-edits --sandbox")),
        (Sandbox::FullAccess, Safe, Some("--mode=accept-edits --sandbox")),
        (Sandbox::ReadOnly, Safe, Some("--mode=plan --sandbox")),
        (Sandbox::FullAccess, Trusted, Some("--dangerously-skip-permissions")),
        (Sandbox::WorkspaceWrite, Trusted, None),
        (Sandbox::ReadOnly, Trusted, None),
    ] {
        let world = world(&[]);
        let agy = FakeAgy::put(&world, &json!({ "version": "1.3.3" }));
        let turn = turn(&world, |request| {
            (request.sandbox, request.execution_mode) = (Some(sandbox), Some(mode));
        });
        let Some(expected) = expected else {
            assert_eq!(turn.unwrap_err().code(), "SANDBOX_AUTHORITY_DENIED");
            assert!(agy.runs().is_empty());
            continue;
        };
        let turn = turn.unwrap();
        assert_eq!(turn["outcome"], "success", "{turn:#}");
        let runs = agy.runs();
        let given = argv(&runs[0]).into_iter();
        let given = given
            .filter(|arg| ["--mode=", "--sandbox", "--danger"].iter().any(|start| arg.starts_with(start)));
        assert_eq!(given.collect::<Vec<_>>().join(" "), expected, "{sandbox} {mode:?}");
    }
}
