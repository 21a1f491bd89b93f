//! Every tool as a host sees it: what it takes, what it refuses and how, what it returns.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

#[path = "../support/mod.rs"]
mod support;

mod arguments;
mod folders;
mod results;
mod schema;
mod sharing;

use support::prelude::*;

/// A task for the fake `codex` in the world's repository, with these arguments besides.
fn task(world: &World, prompt: &str, more: Value) -> Value {
    let mut arguments = json!({ "agent": "codex", "prompt": prompt, "cwd": world.repo() });
    arguments.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    arguments
}

/// The error of a refusal, after checking that it has all that a program and a model need.
#[track_caller]
fn refusal(result: ToolResult) -> Value {
    let result = result.err();
    let error = result.structured["error"].clone();
    let code = error["code"].as_str().unwrap_or_else(|| panic!("no code: {:#}", result.whole));
    let message = error["message"].as_str().unwrap();
    let hint = error["hint"].as_str().unwrap();
    assert!(error["retryable"].is_boolean(), "{error}");
    assert!(!message.is_empty() && !hint.is_empty(), "{error}");
    for part in [code, message, hint] {
        assert!(
            result.text.contains(part),
            "a host that shows only text does not see {part:?}: {}",
            result.text
        );
    }
    error
}

/// A refusal's code.
#[track_caller]
fn refused(result: ToolResult) -> String {
    refusal(result)["code"].as_str().unwrap().to_owned()
}
