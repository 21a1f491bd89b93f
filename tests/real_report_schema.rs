//! Answers by a schema, from the real CLIs: what the CLI was told, and what the turn's record has of it.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use agent_bridge::bridge::{Bridge, TurnRequest};
use agent_bridge::context::{Clock, Context};
use support::prelude::*;
use support::worker::Cli;
use support::world::BRIDGE;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "verdict": { "type": "string" }, "files": { "type": "array", "items": { "type": "string" } } },
        "required": ["verdict", "files"],
        "additionalProperties": false,
    })
}

fn report() -> Value {
    json!({ "verdict": "fine", "files": ["a.rs"] })
}

/// As each service would answer: Claude Code's model calls a tool of the CLI's, the others write JSON.
fn answers(cli: Cli) -> support::mock_model::Reply {
    match cli {
        Cli::Claude => reply().tool("StructuredOutput", report()),
        Cli::Codex | Cli::Gemini => reply().text(report().to_string()),
    }
}

fn start(cli: Cli) -> Option<(World, MockModel, Bridge)> {
    let world = World::new().build();
    let model = MockModel::start(Script::new().scenario("report", [answers(cli)]));
    cli.register(&world, &model)?;
    let context = Context {
        env: world.env().clone(),
        home: Some(world.home()),
        cwd: world.repo(),
        exe: BRIDGE.into(),
        clock: Clock::System,
    };
    let config = agent_bridge::config::load(&context, Some(&world.config_path())).unwrap();
    Some((world, model, Bridge::new(context, config)))
}

/// Runs turns one after the other in one session, each with a schema, and gives their facts.
fn turns(bridge: &Bridge, world: &World, cli: Cli, sandboxes: &[&str]) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut session = None;
        let mut facts = Vec::new();
        for sandbox in sandboxes {
            let request = TurnRequest {
                agent: Some(cli.id().to_owned()),
                prompt: "scenario:report".to_owned(),
                cwd: session.is_none().then(|| world.repo().to_str().unwrap().to_owned()),
                sandbox: agent_bridge::policy::Sandbox::parse(sandbox),
                session_id: session.clone(),
                report_schema: Some(schema()),
                requested_by: "test".to_owned(),
                ..TurnRequest::default()
            };
            let started = bridge.start(request).await.unwrap();
            let row = bridge.wait(&started.turn_id, DEADLINE, |_, _| ()).await.unwrap().row;
            session = Some(row.session_id.clone());
            let end = row.end.expect("the turn has ended");
            assert_eq!(end.outcome.as_str(), "success", "{end:?}");
            facts.push(
                json!({ "continuity": row.continuity.as_str(), "structured": end.meta["structuredOutput"] }),
            );
        }
        facts
    })
}

fn a_report_is_a_fact_of_the_turn(cli: Cli) {
    let Some((world, model, bridge)) = start(cli) else { return };
    let facts = turns(&bridge, &world, cli, &["read-only", "read-only", "workspace-write"]);
    let expected = ["new", "native-resume", "context-replay"]
        .map(|continuity| json!({ "continuity": continuity, "structured": report() }));
    assert_eq!(facts, expected);
    for request in model.turns("report") {
        let body = request.body.to_string();
        assert!(body.contains("verdict") && body.contains("files"), "the schema is in no request: {body}");
    }
    assert!(
        std::fs::read_dir(world.state().join("runs")).is_ok_and(|runs| runs.count() == 0)
            || cli == Cli::Claude
    );
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn codex_reports_by_schema() {
    a_report_is_a_fact_of_the_turn(Cli::Codex);
}

#[test]
fn claude_reports_by_schema() {
    a_report_is_a_fact_of_the_turn(Cli::Claude);
}

/// It cannot be held to a schema, and nobody claims that it was.
#[test]
fn gemini_answers_without_one() {
    let Some((world, _model, bridge)) = start(Cli::Gemini) else { return };
    let facts = turns(&bridge, &world, Cli::Gemini, &["read-only"]);
    assert_eq!(facts, [json!({ "continuity": "new", "structured": null })]);
    world.assert_no_process_left(DEADLINE);
}
