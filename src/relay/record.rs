//! The record of a run: everything that was asked, done and seen, for every run and every refusal. It is what all
//! views are made from, and it is written as one JSON document.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::report::{ReportSource, WorkerReport};
use super::status::Status;
use super::worktree::{AppliedFact, Worktree};
use crate::bridge::checks::CheckResult;
use crate::error::Error;
use crate::observe::Observation;
use crate::policy::{AgentId, ExecutionMode, Isolation, Sandbox};
use crate::store::{RunRow, RunState};

/// Version of the record's form.
pub const VERSION: u32 = 1;

/// What kind of run it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A new task.
    #[default]
    Execute,
    /// A correction of an earlier run.
    Continue,
}

/// A run's record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Form of the record.
    pub schema_version: u32,
    /// Run id.
    pub run_id: String,
    /// The first run of the chain.
    pub root_run_id: String,
    /// What kind of run.
    pub kind: Kind,
    /// 1 for the first correction.
    pub correction: u32,
    /// What became of it.
    pub status: Status,
    /// Why, if it is no success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// When its worker was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<i64>,
    /// When its record was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<i64>,
    /// How long it waited for its place, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<u64>,
    /// Who asked.
    pub requested_by: String,
    /// The tool it came through.
    pub tool: String,
    /// Profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Effort, for programs that know such a thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Agent within the backend, for programs that have some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_agent: Option<String>,
    /// Folder that was asked for.
    pub workspace: PathBuf,
    /// Where the worker works.
    #[serde(default)]
    pub isolation: Isolation,
    /// The copy of the workspace that it works in, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Worktree>,
    /// That its patch is in the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<AppliedFact>,
    /// Execution mode; none is the mode of before there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_mode: Option<ExecutionMode>,
    /// Granted authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// Time limit in seconds.
    pub timeout_sec: u64,
    /// The task.
    pub task: String,
    /// What a correction was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// Steps.
    pub plan: Vec<String>,
    /// When it is done.
    pub acceptance_criteria: Vec<String>,
    /// Fixed ones, those of the profile, those of the call.
    pub constraints: Vec<String>,
    /// Names of the checks that the bridge runs afterwards.
    pub checks_wanted: Vec<String>,
    /// Bridge session of its turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The provider's conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// Starts of a worker, in order.
    pub attempts: Vec<Attempt>,
    /// The worker's report, if there is a valid one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<WorkerReport>,
    /// Where the report came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_source: Option<ReportSource>,
    /// What the repository shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Observation>,
    /// What the bridge's own checks said.
    pub checks: Vec<CheckResult>,
    /// What the run changed, as a patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<PatchFact>,
    /// Things worth saying.
    pub notes: Vec<String>,
}

/// Why a run is no success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunError {
    /// Documented code.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// Whether the same request may succeed later without any change.
    pub retryable: bool,
}

/// One start of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its turn.
    pub turn_id: String,
    /// What became of it.
    pub status: Status,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Milliseconds of the run.
    pub duration_ms: u64,
    /// Its worker was really started, and not stopped by the look at the login before it.
    pub started: bool,
    /// Whether the workspace is known to have changed; none if that is not known.
    pub changed: Option<bool>,
}

/// A patch of what a run changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PatchFact {
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of it, lower hex.
    pub sha256: String,
}

impl RunRecord {
    /// Refuses the run, or ends it.
    pub fn fail(&mut self, status: Status, message: impl Into<String>) {
        self.status = status;
        self.error = status.doc().map(|doc| RunError {
            code: doc.code.to_owned(),
            message: message.into(),
            hint: doc.remedy.to_owned(),
            retryable: doc.retryable,
        });
    }

    /// Ends it with an error of another room, whose code and hint are kept.
    pub fn fail_with(&mut self, error: &Error) {
        self.status = Status::of_refusal(error);
        self.error = Some(RunError {
            code: error.code().to_owned(),
            message: error.message().to_owned(),
            hint: error.hint().to_owned(),
            retryable: error.retryable(),
        });
    }

    /// The turn of the last attempt.
    pub fn last_turn(&self) -> Option<&str> {
        self.attempts.last().map(|attempt| attempt.turn_id.as_str())
    }

    /// Whether its end is known.
    pub fn is_finished(&self) -> bool {
        !matches!(self.status, Status::Running | Status::Queued)
    }

    /// As it is kept.
    pub fn to_row(&self) -> RunRow {
        RunRow {
            id: self.run_id.clone(),
            root: self.root_run_id.clone(),
            correction: self.correction,
            created_at: self.created_at,
            state: if self.is_finished() { RunState::Finished } else { RunState::Running },
            status: self.status.as_str().to_owned(),
            agent: self.agent.map(AgentId::as_str).unwrap_or_default().to_owned(),
            workspace: self.workspace.clone(),
            session: self.session_id.clone(),
            record: serde_json::to_value(self).unwrap_or_else(|_| json!({})),
        }
    }

    /// From what is kept; otherwise what is wrong with it.
    pub fn from_row(row: &RunRow) -> Result<Self, String> {
        let mut record: Self = serde_json::from_value(row.record.clone()).map_err(|e| e.to_string())?;
        // The number is given while the row is written.
        record.correction = row.correction;
        Ok(record)
    }
}
