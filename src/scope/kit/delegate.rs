//! `delegate`: a part of the task for another worker. How deep, how often and where comes from the run, never from the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use serde_json::json;

use super::{fenced, schema};
use crate::scope::{Answer, BoundRun, Call, Cancel, Tool, ToolSpec};

/// A delegation that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Delegation<'a> {
    /// What to do.
    pub task: &'a str,
    /// Which agent, if the worker has a wish.
    pub agent: Option<&'a str>,
    /// How deep the new worker would be.
    pub depth: u32,
}

/// Somebody who can start another worker.
pub trait Delegate: Send + Sync {
    /// Does it and gives the answer, or says why not. Gives up at `until` or when `cancel` says so.
    fn delegate(
        &self,
        bound: &BoundRun,
        delegation: Delegation<'_>,
        cancel: &Cancel,
        until: Instant,
    ) -> Result<String, String>;
}

/// The tool.
pub struct DelegateTask {
    delegate: Arc<dyn Delegate>,
    depth: u32,
    max_depth: u32,
    left: AtomicU32,
}

impl DelegateTask {
    /// For a worker at `depth`; new ones are one deeper. At most `budget` times in the run.
    pub fn new(delegate: Arc<dyn Delegate>, depth: u32, max_depth: u32, budget: u32) -> Self {
        Self { delegate, depth, max_depth, left: AtomicU32::new(budget) }
    }
}

impl Tool for DelegateTask {
    fn name(&self) -> &str {
        "delegate"
    }

    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "task": { "type": "string", "minLength": 1, "maxLength": 60_000 },
            "agent": { "type": "string", "maxLength": 50 },
        });
        ToolSpec {
            description: "Hand a part of the task to another agent, which works in the same folder with no more rights \
                          than you have, and wait for its answer."
                .into(),
            schema: schema(properties, &["task"]),
            read_only: false,
        }
    }

    fn call(&self, call: &Call<'_>) -> Answer {
        let depth = self.depth.saturating_add(1);
        if depth > self.max_depth {
            return Answer::error(format!(
                "DELEGATION_TOO_DEEP: this worker is at depth {}, the limit is {}. Do it yourself.",
                self.depth, self.max_depth
            ));
        }
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            return Answer::error("This run has used up its delegations. Do it yourself.");
        }
        let delegation =
            Delegation { task: call.text("task").unwrap_or_default(), agent: call.text("agent"), depth };
        match self.delegate.delegate(call.bound, delegation, call.cancel, call.deadline) {
            Ok(answer) => Answer::ok(fenced("answer of another agent", &answer)),
            Err(why) => Answer::error(format!("The delegation did not succeed: {why}")),
        }
    }
}
