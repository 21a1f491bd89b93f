//! `submit_report`: what the worker says it did, in a form that needs no guessing. The last report counts.

use std::sync::Arc;

use serde_json::{Value, json};

use super::schema;
use crate::scope::{Answer, Call, Tool, ToolSpec};

/// Keeps reports. Called again with a later one, which replaces the one before.
pub trait ReportSink: Send + Sync {
    /// Keeps it; after `Ok` it is not lost.
    fn keep(&self, report: &Value) -> Result<(), String>;
}

/// The tool.
pub struct SubmitReport(pub Arc<dyn ReportSink>);

impl Tool for SubmitReport {
    fn name(&self) -> &str {
        "submit_report"
    }

    fn spec(&self) -> ToolSpec {
        let line = |most: u32| json!({ "type": "string", "maxLength": most });
        let list = |most: u32, items: Value| json!({ "type": "array", "maxItems": most, "items": items });
        let count = || json!({ "type": "integer", "minimum": 0 });
        let properties = json!({
            "summary": { "type": "string", "minLength": 1, "maxLength": 2000, "description": "What was done, for a reviewer." },
            "outcome": { "type": "string", "enum": ["done", "partial", "blocked"] },
            "files": list(500, schema(json!({
                "path": line(1000),
                "change": { "type": "string", "enum": ["added", "modified", "deleted", "renamed"] },
                "note": line(500),
            }), &["path", "change"])),
            "tests": schema(json!({
                "passed": count(), "failed": count(), "not_run": count(), "commands": list(50, line(500)),
            }), &["passed", "failed", "not_run"]),
            "criteria": list(50, schema(json!({
                "text": line(1000), "met": { "type": "boolean" }, "evidence": line(1000),
            }), &["text", "met"])),
            "risks": list(50, line(1000)),
            "open_questions": list(50, line(1000)),
        });
        ToolSpec {
            description:
                "Hand in the report of this run: what was done, what was changed, what is left open. Call it \
                          once at the end; if you call it again, the last report counts."
                    .into(),
            schema: schema(properties, &["summary", "outcome"]),
            read_only: false,
        }
    }

    fn call(&self, call: &Call<'_>) -> Answer {
        match self.0.keep(&Value::Object(call.arguments.clone())) {
            Ok(()) => Answer::ok("The report is kept."),
            Err(error) => Answer::error(format!("The report could not be kept ({error}). Try again.")),
        }
    }
}
