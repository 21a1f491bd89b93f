//! `progress`: a sign of life, with a word on what is being done.

use std::sync::Arc;

use serde_json::json;

use super::schema;
use crate::scope::{Answer, Call, Tool, ToolSpec};

/// Is told how far a worker is.
pub trait ProgressSink: Send + Sync {
    /// A line, and perhaps how much of the work is done (0–100). Must not wait.
    fn show(&self, message: &str, percent: Option<usize>);
}

/// The tool.
pub struct Progress(pub Arc<dyn ProgressSink>);

impl Tool for Progress {
    fn name(&self) -> &str {
        "progress"
    }

    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "message": { "type": "string", "minLength": 1, "maxLength": 300 },
            "percent": { "type": "integer", "minimum": 0, "maximum": 100 },
        });
        ToolSpec {
            description: "Say in one line what you are doing. Call it now and then during long work.".into(),
            schema: schema(properties, &["message"]),
            read_only: false,
        }
    }

    fn call(&self, call: &Call<'_>) -> Answer {
        self.0.show(call.text("message").unwrap_or_default(), call.number("percent"));
        Answer::ok("Shown.")
    }
}
