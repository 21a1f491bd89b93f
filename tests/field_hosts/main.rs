//! What hosts are known to do to a server, and what the server must do about it: give up early, forget
//! requests, ask twice, refuse schemas, cut large replies, never read, and vanish.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

#[path = "../support/mod.rs"]
mod support;

mod cancelling;
#[cfg(unix)]
mod ending;
mod large;
mod protocol;
mod repeating;
mod schemas;
mod waiting;

use std::path::{Path, PathBuf};

use support::prelude::*;

/// A task for the fake `codex` in the world's repository, with these arguments besides.
fn task(world: &World, prompt: &str, more: Value) -> Value {
    let mut arguments = json!({ "agent": "codex", "prompt": prompt, "cwd": world.repo() });
    arguments.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    arguments
}

/// Paths with which a test and a fake tell each other that they are there.
struct Gate {
    folder: PathBuf,
}

impl Gate {
    fn new(world: &World) -> Self {
        let folder = world.path().join("gate");
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// The step with which a fake says that it has come this far.
    fn says(&self, name: &str) -> Value {
        json!({ "touch_file": self.path(name) })
    }

    /// The step with which a fake waits for the test.
    fn waits_for(&self, name: &str) -> Value {
        json!({ "wait_for_file": { "path": self.path(name), "timeout_ms": 120_000 } })
    }

    /// Lets a waiting fake go on.
    fn open(&self, name: &str) {
        std::fs::write(self.path(name), "").unwrap();
    }

    /// Waits until a fake has come this far.
    #[track_caller]
    fn wait_for(&self, name: &str) {
        process::wait_until(&format!("the fake to reach {name:?}"), DEADLINE, || self.is_open(name));
    }

    fn is_open(&self, name: &str) -> bool {
        Path::new(&self.path(name)).exists()
    }

    /// How many runs a script with `"counter": gate.path("runs")` has had.
    fn runs(&self) -> usize {
        (1..).take_while(|run| self.is_open(&format!("runs.{run}"))).count()
    }
}

/// What the record says became of a turn, once it has ended.
#[track_caller]
fn outcome(host: &mut Host, turn_id: &Value) -> Value {
    let waited = host.call("wait_turn", json!({ "turn_id": turn_id, "wait_seconds": 50 }));
    assert_eq!(waited.structured["status"], "finished", "{:#}", waited.whole);
    waited.structured["outcome"].clone()
}

/// The turn id of a reply.
fn turn_id(result: &ToolResult) -> Value {
    assert!(result.structured["turn_id"].is_string(), "no turn id: {:#}", result.whole);
    result.structured["turn_id"].clone()
}

/// The turn that is running, once one is.
#[track_caller]
fn running_turn(host: &mut Host) -> Value {
    let mut found = Value::Null;
    process::wait_until("a turn to be running", DEADLINE, || {
        let list = host.call("list_turns", json!({ "state": "running" })).ok();
        found = list.structured["turns"][0]["turn_id"].clone();
        found.is_string()
    });
    found
}

/// Every message the server ever sent, after its host hung up.
#[track_caller]
fn all_messages(host: &mut Host) -> Vec<Value> {
    host.hang_up();
    let end = host.wait_exit(DEADLINE).expect_code(0);
    end.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How many of the messages answer this request.
fn answers(messages: &[Value], id: &Value) -> usize {
    messages.iter().filter(|message| message["id"] == *id && message.get("method").is_none()).count()
}
