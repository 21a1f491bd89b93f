//! `request_approval`: may this be done? Without an answer in time the answer is no.
//!
//! Arguments and answer are what Claude Code expects of a `--permission-prompt-tool`; other workers call it because
//! they are told to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::schema;
use crate::scope::{Answer, BoundRun, Call, Cancel, Tool, ToolSpec};

/// Yes or no.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It may be done, perhaps with other input.
    Allow {
        /// Instead of the input that was asked about.
        input: Option<Value>,
    },
    /// It may not, and why.
    Deny(String),
}

/// Somebody who decides.
pub trait Approver: Send + Sync {
    /// Decides, or gives up at `until` or when `cancel` says so. `None`: nobody decided.
    fn decide(
        &self,
        bound: &BoundRun,
        tool: &str,
        input: &Value,
        cancel: &Cancel,
        until: Instant,
    ) -> Option<Decision>;
}

/// The tool.
pub struct RequestApproval {
    /// Who decides; with nobody, everything is denied.
    pub approver: Option<Arc<dyn Approver>>,
    /// How long a decision is waited for.
    pub wait: Duration,
}

impl Tool for RequestApproval {
    fn name(&self) -> &str {
        "request_approval"
    }

    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "tool_name": { "type": "string", "minLength": 1, "maxLength": 200, "description": "What is to be used." },
            "input": { "type": "object", "description": "With which input." },
            "tool_use_id": { "type": "string", "maxLength": 200 },
        });
        ToolSpec {
            description:
                "Ask whether something may be done before you do it. The answer is JSON: `behavior` is \
                          `allow` or `deny`. No answer in time means deny."
                    .into(),
            schema: schema(properties, &["tool_name", "input"]),
            read_only: true,
        }
    }

    fn call(&self, call: &Call<'_>) -> Answer {
        let until = call.deadline.min(Instant::now() + self.wait);
        let input = call.arguments.get("input").cloned().unwrap_or_else(|| json!({}));
        let tool = call.text("tool_name").unwrap_or_default();
        let decision = self
            .approver
            .as_ref()
            .and_then(|approver| approver.decide(call.bound, tool, &input, call.cancel, until))
            // A yes that comes after the end is none.
            .filter(|decision| call.cancel.reason().is_none() || matches!(decision, Decision::Deny(_)));
        let answer = match decision {
            Some(Decision::Allow { input: other }) => {
                json!({ "behavior": "allow", "updatedInput": other.unwrap_or(input) })
            }
            Some(Decision::Deny(why)) => json!({ "behavior": "deny", "message": why }),
            None => {
                json!({ "behavior": "deny", "message": "Nobody approved this in time. Go on without it." })
            }
        };
        Answer::ok(answer.to_string())
    }
}
