//! The TypeScript and Python SDKs as workers: each reaches its endpoint over their own HTTP, in every era it speaks.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::process::Command;

use support::prelude::*;

const TYPESCRIPT: &str = include_str!("real/clients/scope_typescript.mjs");
const PYTHON: &str = include_str!("real/clients/scope_python.py");

/// Runs a client as the worker of a run and looks at what it saw.
fn check(world: &World, client: &Command, arguments: &[&str], protocol: &str) {
    let mut command = world.bridge_command(["scope", "run", "--allow", "note", "recall", "--"]);
    command.arg(client.get_program()).args(client.get_args()).args(arguments);
    let run = process::run(command, DEADLINE).expect_code(0);
    let seen = run.json();
    assert_eq!(seen["protocol"], protocol, "{run}");
    assert_eq!(seen["server"]["name"], "agent-bridge");
    assert_eq!(seen["tools"], json!(["note", "recall"]));
    assert_eq!((&seen["noted"], &seen["recalled"]), (&json!("Noted."), &json!("é 😀")));
    let is_modern = protocol == "2026-07-28";
    let refused = if is_modern { -32602 } else { -32601 };
    for (name, tool) in [("hidden", "run_check"), ("unknown", "no_such_tool")] {
        assert_eq!(seen[name]["code"], refused, "{run}");
        let message = seen[name]["message"].as_str().unwrap();
        assert!(message.contains(&format!("tool '{tool}' is not available to this agent")), "{message}");
    }
    assert_eq!(seen["foreign"]["code"], -32602);
    assert_eq!((&seen["many"], &seen["wrong"]), (&json!(6), &json!("kept out")));
    assert_eq!(seen["errors"], json!([]), "{run}");
    // No client needed a session, and none took an answer for a stream that failed.
    let statuses: Vec<&str> =
        seen["statuses"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    let expected = ["POST 200", "POST 202", "GET 405", "POST 401", "GET 404"];
    assert!(statuses.iter().all(|status| expected.contains(status)), "{statuses:?}");
    assert_eq!(statuses.contains(&"POST 202"), !is_modern, "{statuses:?}");
    world.assert_no_process_left(DEADLINE);
}

fn typescript(package: &str, mode: &str, protocol: &str) {
    let world = World::new().build();
    let Some(client) = real::node_script(&world, package, TYPESCRIPT) else { return };
    check(&world, &client, &[package, mode], protocol);
}

fn python(mode: &str, protocol: &str) {
    let world = World::new().build();
    let Some(client) = real::python_script(&world, PYTHON) else { return };
    check(&world, &client, &[mode], protocol);
}

#[test]
fn the_first_typescript_sdk_is_a_worker() {
    typescript("@modelcontextprotocol/sdk", "", "2025-11-25");
}

#[test]
fn the_second_typescript_sdk_is_a_worker_in_the_old_way() {
    typescript("@modelcontextprotocol/client", "legacy", "2025-11-25");
}

#[test]
fn the_second_typescript_sdk_is_a_worker_in_the_new_way() {
    typescript("@modelcontextprotocol/client", "auto", "2026-07-28");
}

#[test]
fn the_python_sdk_is_a_worker_in_the_old_way() {
    python("legacy", "2025-11-25");
}

#[test]
fn the_python_sdk_is_a_worker_in_the_new_way() {
    python("auto", "2026-07-28");
}
