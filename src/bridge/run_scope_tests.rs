//! A run gets what config, agent and caller all allow.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use super::*;
use crate::agents::require;
use crate::config::tests::World;
use crate::policy::AgentId;

fn config(changes: Value) -> Config {
    let world = World::new();
    let path = world.write("config/agent-bridge.json", world.document(changes).to_string());
    crate::config::load(&world.context, Some(&path)).unwrap()
}

fn offered() -> Value {
    json!({
        "tools": ["submit_report", "run_check", "note"],
        "checks": { "unit": { "argv": ["cargo", "test"], "timeoutSeconds": 300 } },
        "servers": { "docs": { "url": "https://docs.example/mcp", "tools": ["search"] } },
    })
}

fn resolved(config: &Config, agent: AgentId, asked: Option<&[&str]>) -> Result<Option<RunScope>> {
    let asked: Option<Vec<String>> = asked.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    resolve(config, require(agent).unwrap(), &config.agents[&agent], asked.as_deref(), 1)
}

/// What a run is given, by name.
fn names(scope: Option<RunScope>) -> Vec<String> {
    let Some(scope) = scope else { return Vec::new() };
    let tools = scope.tools.iter().map(|tool| tool.as_str().to_owned());
    tools.chain(scope.servers.into_keys()).collect()
}

#[test]
fn nothing_is_given_that_the_config_does_not_offer() {
    let empty = config(json!({}));
    assert_eq!(resolved(&empty, AgentId::Claude, None).unwrap(), None);
    assert_eq!(resolved(&empty, AgentId::Claude, Some(&[])).unwrap(), None);
    let refused = resolved(&empty, AgentId::Claude, Some(&["note"])).unwrap_err();
    assert_eq!(refused.code(), "SCOPE_NOT_ALLOWED");
    assert!(refused.hint().contains("scope.tools"), "{}", refused.hint());
}

#[test]
fn without_a_word_all_of_it_is_given_and_with_one_less() {
    let config = config(json!({ "scope": offered() }));
    let given = |asked| names(resolved(&config, AgentId::Codex, asked).unwrap());
    assert_eq!(given(None), ["submit_report", "run_check", "note", "docs"]);
    assert_eq!(given(Some(&["note", "submit_report", "note"])), ["submit_report", "note"]);
    assert_eq!(given(Some(&["docs"])), ["docs"]);
    assert_eq!(given(Some(&[])), [] as [String; 0]);
    let scope = resolved(&config, AgentId::Codex, Some(&["note"])).unwrap().unwrap();
    assert!(scope.checks.is_empty() && scope.servers.is_empty(), "what it cannot use is not handed on");
    for asked in ["recall", "Note", "shell", "mcp__bridge__note", ""] {
        let refused = resolved(&config, AgentId::Codex, Some(&["note", asked])).unwrap_err();
        assert_eq!(refused.code(), "SCOPE_NOT_ALLOWED", "{asked}");
    }
}

#[test]
fn an_agents_own_list_is_a_ceiling_too() {
    let config = config(json!({ "scope": offered(), "agents": {
        "codex": { "scope": { "tools": ["note"] } }, "claude": { "scope": { "tools": [] } } } }));
    assert_eq!(names(resolved(&config, AgentId::Codex, None).unwrap()), ["note"]);
    assert_eq!(resolved(&config, AgentId::Claude, None).unwrap(), None);
    let refused = resolved(&config, AgentId::Codex, Some(&["submit_report"])).unwrap_err();
    assert_eq!(refused.code(), "SCOPE_NOT_ALLOWED");
    assert!(refused.message().contains("note"), "{}", refused.message());
    assert_eq!(resolved(&config, AgentId::Claude, Some(&["note"])).unwrap_err().code(), "SCOPE_NOT_ALLOWED");
}

#[test]
fn a_codex_that_loads_its_users_servers_is_refused_and_can_do_without() {
    let config = config(json!({ "scope": offered(), "agents": { "codex": { "useUserConfig": true } } }));
    for asked in [None, Some(&["note"][..])] {
        let refused = resolved(&config, AgentId::Codex, asked).unwrap_err();
        assert_eq!(refused.code(), "AGENT_ENDPOINT_NEEDS_ISOLATION");
    }
    assert_eq!(resolved(&config, AgentId::Codex, Some(&[])).unwrap(), None);
}

#[test]
fn the_longest_call_covers_checks_and_questions_that_the_run_may_ask() {
    let config = config(json!({ "scope": {
        "tools": ["run_check", "ask_supervisor", "note"], "askTimeoutSeconds": 900,
        "checks": { "unit": { "argv": ["x"], "timeoutSeconds": 300 } } } }));
    let longest = |asked: &[&str]| {
        resolved(&config, AgentId::Claude, Some(asked)).unwrap().unwrap().longest_call().as_secs()
    };
    assert_eq!(longest(&["note"]), 110);
    assert_eq!(longest(&["run_check"]), 315);
    assert_eq!(longest(&["ask_supervisor", "run_check"]), 915);
}
