//! `ask_supervisor`: a question that is answered in bounded time, if need be with the answer of nobody.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::schema;
use crate::scope::{Answer, BoundRun, Call, Cancel, Tool, ToolSpec};

/// Somebody who can answer a worker's questions.
pub trait Supervisor: Send + Sync {
    /// Answers, or gives up at `until` or when `cancel` says so. `None`: nobody answered.
    fn ask(&self, bound: &BoundRun, question: &str, cancel: &Cancel, until: Instant) -> Option<String>;
}

/// The tool.
pub struct AskSupervisor {
    /// Who is asked; with nobody, the default is the answer at once.
    pub supervisor: Option<Arc<dyn Supervisor>>,
    /// How long an answer is waited for.
    pub wait: Duration,
    /// What is said when nobody answers.
    pub default_answer: String,
}

impl Default for AskSupervisor {
    fn default() -> Self {
        Self {
            supervisor: None,
            wait: Duration::from_secs(90),
            default_answer:
                "Nobody is there to answer. Take the safest choice that can be undone, and name the \
                             question in your report."
                    .into(),
        }
    }
}

impl Tool for AskSupervisor {
    fn name(&self) -> &str {
        "ask_supervisor"
    }

    fn spec(&self) -> ToolSpec {
        let properties = json!({ "question": { "type": "string", "minLength": 1, "maxLength": 4000 } });
        ToolSpec {
            description:
                "Ask whoever gave you the task when you cannot decide something. Waits a short time; without \
                          an answer you are told how to go on."
                    .into(),
            schema: schema(properties, &["question"]),
            read_only: true,
        }
    }

    fn call(&self, call: &Call<'_>) -> Answer {
        let until = call.deadline.min(Instant::now() + self.wait);
        let question = call.text("question").unwrap_or_default();
        let asked = self.supervisor.as_ref();
        let answer = asked.and_then(|supervisor| supervisor.ask(call.bound, question, call.cancel, until));
        match (answer, call.cancel.reason()) {
            (Some(answer), _) => Answer::ok(answer),
            (None, Some(reason)) => Answer::error(format!("The question was withdrawn: {reason}.")),
            (None, None) => Answer::ok(self.default_answer.clone()),
        }
    }
}
