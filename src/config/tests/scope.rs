//! The `scope` section: off unless written, narrowed by agents, refused where it contradicts itself.

use super::*;
use crate::config::{ScopeTool, ScopeTransport, explain};
use crate::policy::AgentId;

#[test]
fn without_the_section_there_is_nothing_to_offer() {
    let world = World::new();
    let config = world.load(json!({})).unwrap();
    assert!(config.scope.tools.is_empty() && config.scope.servers.is_empty());
    assert!(config.agents.values().all(|agent| agent.scope_tools.is_none()));
}

#[test]
fn tools_come_in_listing_order_and_once_and_defaults_are_filled_in() {
    let world = World::new();
    let config = world
        .load(json!({"scope": {
            "tools": ["run_check", "note", "submit_report", "note"],
            "checks": {"unit": {"argv": ["cargo", "test"]}},
        }}))
        .unwrap();
    assert_eq!(config.scope.tools, [ScopeTool::SubmitReport, ScopeTool::RunCheck, ScopeTool::Note]);
    let check = &config.scope.checks["unit"];
    assert_eq!((check.timeout_seconds, check.max_output_bytes), (600, 20_000));
    assert_eq!(config.scope.ask_timeout.as_secs(), 60);
    assert!(!config.scope.ask_default.is_empty());
}

#[test]
fn an_agent_keeps_what_it_names_and_nothing_that_the_section_lacks() {
    let world = World::new();
    let scope = json!({"tools": ["note", "submit_report"],
                       "servers": {"docs": {"url": "https://docs.example/mcp", "tools": ["search"]}}});
    let config = world
        .load(json!({"scope": scope, "agents": {
            "codex": {"scope": {"tools": ["docs", "submit_report", "docs"]}},
            "claude": {"scope": {"tools": []}},
        }}))
        .unwrap();
    let of = |id| config.agents[&id].scope_tools.as_deref();
    assert_eq!(of(AgentId::Codex).unwrap(), ["submit_report", "docs"]);
    assert_eq!(of(AgentId::Claude).unwrap(), [] as [String; 0]);
    assert_eq!(of(AgentId::Mock), None);
    assert_eq!(
        world
            .problems(json!({"scope": scope, "agents": {"codex": {"scope": {"tools": ["note", "recall"]}}}})),
        ["CONFIG_INVALID_VALUE agents.codex.scope.tools[1]"]
    );
}

#[test]
fn what_cannot_be_meant_is_refused_at_its_key() {
    let world = World::new();
    let server = |section: Value| json!({"servers": {"docs": section}});
    let named = |name: &str| json!({"servers": {name: {"url": "https://a.example", "tools": ["x"]}}});
    for (scope, expected) in [
        (json!({"tool": []}), "CONFIG_UNKNOWN_KEY scope.tool"),
        (json!({"tools": ["shell"]}), "CONFIG_INVALID_VALUE scope.tools[0]"),
        (json!({"tools": ["run_check"]}), "CONFIG_INVALID_VALUE scope.tools"),
        (json!({"askTimeoutSeconds": 0}), "CONFIG_INVALID_VALUE scope.askTimeoutSeconds"),
        (json!({"askDefault": ""}), "CONFIG_INVALID_VALUE scope.askDefault"),
        (json!({"checks": {"a b": {"argv": ["x"]}}}), "CONFIG_INVALID_VALUE scope.checks[\"a b\"]"),
        (json!({"checks": {"unit": {"argv": []}}}), "CONFIG_INVALID_VALUE scope.checks.unit.argv"),
        (json!({"checks": {"unit": {"argv": [""]}}}), "CONFIG_INVALID_VALUE scope.checks.unit.argv[0]"),
        (
            json!({"checks": {"unit": {"argv": ["x", "\u{0}"]}}}),
            "CONFIG_INVALID_VALUE scope.checks.unit.argv[1]",
        ),
        (json!({"checks": {"unit": {}}}), "CONFIG_MISSING_KEY scope.checks.unit.argv"),
        (json!({"checks": {"unit": {"argv": "cargo test"}}}), "CONFIG_INVALID_VALUE scope.checks.unit.argv"),
        (named("my_docs"), "CONFIG_INVALID_VALUE scope.servers.my_docs"),
        (named("Docs"), "CONFIG_INVALID_VALUE scope.servers.Docs"),
        (named("note"), "CONFIG_INVALID_VALUE scope.servers.note"),
        (server(json!({"tools": ["x"]})), "CONFIG_INVALID_VALUE scope.servers.docs"),
        (
            server(json!({"command": "x", "url": "https://a.example", "tools": ["x"]})),
            "CONFIG_INVALID_VALUE scope.servers.docs",
        ),
        (server(json!({"command": "x"})), "CONFIG_MISSING_KEY scope.servers.docs.tools"),
        (server(json!({"command": "x", "tools": []})), "CONFIG_INVALID_VALUE scope.servers.docs.tools"),
        (
            server(json!({"command": "x", "tools": ["a", "a"]})),
            "CONFIG_INVALID_VALUE scope.servers.docs.tools[1]",
        ),
        (
            server(json!({"command": "x", "tools": ["a"], "env": {"LD_PRELOAD": "x"}})),
            "CONFIG_INVALID_VALUE scope.servers.docs.env.LD_PRELOAD",
        ),
        (
            server(json!({"command": "x", "tools": ["a"], "passEnv": ["AGENT_BRIDGE_SCOPE"]})),
            "CONFIG_INVALID_VALUE scope.servers.docs.passEnv[0]",
        ),
        (
            server(json!({"command": "x", "tools": ["a"], "passEnv": ["A", "PYTHONSTARTUP"]})),
            "CONFIG_INVALID_VALUE scope.servers.docs.passEnv[1]",
        ),
        (
            server(json!({"command": "x", "tools": ["a"], "headers": {"X-A": "b"}})),
            "CONFIG_INVALID_VALUE scope.servers.docs.headers",
        ),
        (
            server(json!({"url": "http://a.example", "tools": ["a"]})),
            "CONFIG_INVALID_VALUE scope.servers.docs.url",
        ),
        (
            server(json!({"url": "https://a.example", "args": ["b"], "tools": ["a"]})),
            "CONFIG_INVALID_VALUE scope.servers.docs.args",
        ),
        (
            server(json!({"url": "https://a.example", "headers": {"X-A": "b\nX-B: c"}, "tools": ["a"]})),
            "CONFIG_INVALID_VALUE scope.servers.docs.headers.X-A",
        ),
        (
            server(
                json!({"url": "https://a.example", "headers": {"x-a": "b"}, "headerEnv": {"X-A": "B"}, "tools": ["a"]}),
            ),
            "CONFIG_INVALID_VALUE scope.servers.docs.headerEnv.X-A",
        ),
    ] {
        let found = world.problems(json!({"scope": scope}));
        assert!(found.iter().any(|problem| problem == expected), "{scope}: {found:?}");
    }
}

#[test]
fn a_server_is_a_program_or_an_address() {
    let world = World::new();
    let config = world
        .load(json!({"scope": {"servers": {
            "local": {"command": "server", "args": ["--x"], "env": {"A": "b"}, "passEnv": ["C"], "tools": ["t"]},
            "far": {"url": "https://a.example/mcp", "headerEnv": {"Authorization": "GIT_TOKEN"}, "tools": ["u"]},
        }}}))
        .unwrap();
    assert!(
        matches!(&config.scope.servers["local"].transport, ScopeTransport::Command { command, .. } if command == "server")
    );
    assert!(
        matches!(&config.scope.servers["far"].transport, ScopeTransport::Http { header_env, .. } if header_env["Authorization"] == "GIT_TOKEN")
    );
    assert_eq!(config.scope.names().collect::<Vec<_>>(), ["far", "local"]);
}

#[test]
fn an_explanation_shows_all_of_it_but_no_values_of_variables_and_headers() {
    let world = World::new();
    let document = world.document(json!({"scope": {
    "tools": ["note"],
    "servers": {
        "local": {"command": "server", "env": {"A": "first-secret"}, "tools": ["t"]},
        "far": {"url": "https://a.example/mcp", "headers": {"X-Key": "second-secret"}, "tools": ["u"]},
    }}}));
    let path = world.write("config/agent-bridge.json", document.to_string());
    let (_, explained) = explain(&world.context, Some(&path)).unwrap();
    let text = format!("{explained:?}");
    assert!(text.contains("X-Key") && text.contains("https://a.example/mcp"));
    assert!(!text.contains("-secret"));
    let keys =
        ["scope.tools", "scope.checks", "scope.servers", "scope.askTimeoutSeconds", "scope.askDefault"];
    for key in keys.into_iter().chain(["agents.codex.scope.tools"]) {
        assert!(explained.iter().any(|value| value.key == key), "{key}");
    }
}
