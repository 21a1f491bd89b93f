//! What a reviewer gets: a compact view of a run's record that can be read in a minute. At most 12 files and 8 places
//! to review; everything else is in the record.

use serde::Serialize;

use super::record::{PatchFact, RunError, RunRecord};
use super::report::WorkerOutcome;
use super::status::Status;
use super::worktree::{AppliedFact, workplace};
use crate::bridge::checks::CheckResult;
use crate::observe::{self, ChangedFile, Observation, ReviewTarget, Risk};
use crate::policy::AgentId;

/// Files that a packet lists.
pub const FILES: usize = 12;
/// Places to review that a packet lists.
pub const TARGETS: usize = 8;
/// Claims that a packet lists on each side.
const CLAIMS: usize = 12;

/// A run, compactly. Field names are part of the MCP contract.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Packet {
    /// Whether the run is a success.
    pub ok: bool,
    /// Run id, for corrections and details.
    pub run_id: String,
    /// What became of it.
    pub status: Status,
    /// The worker's words, or what is going on.
    pub summary: String,
    /// Whether the worker says that the task is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<WorkerOutcome>,
    /// What the repository shows, whatever the worker says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// What the worker says it changed, where that is not what the repository shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claims: Option<Claims>,
    /// The worker's own count of tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tests: Option<Tests>,
    /// Checks that the bridge ran itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckResult>,
    /// Why it is no success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The same changes as a patch: `agent-bridge runs diff ID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<PatchFact>,
    /// The copy of the workspace that holds these changes, as long as the patch is not applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// That the patch is in the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<AppliedFact>,
    /// Who worked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Corrections that are left.
    pub corrections_left: u32,
    /// Risks and questions that the worker names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Remarks of the bridge.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What the repository shows.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Changes {
    /// How complete the look was.
    pub observed: observe::Status,
    /// Why it was not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Files that changed; left out if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Names, the riskiest first.
    pub files: Vec<String>,
    /// Files that changed and are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub files_omitted: u64,
    /// Files that changed in the same repository outside of the workspace.
    #[serde(skip_serializing_if = "is_zero")]
    pub outside: u64,
    /// The highest risk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Where to look first.
    pub review: Vec<ReviewTarget>,
    /// Places to review that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub review_omitted: u64,
    /// Commits, branch switches, moved references, and what else has to be known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<String>,
}

/// Where the worker's list and the repository differ.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Claims {
    /// Named by the worker, unchanged in the repository.
    pub not_changed: Vec<String>,
    /// Changed in the repository, not named by the worker.
    pub not_named: Vec<String>,
}

/// The worker's own count.
#[derive(Clone, Copy, Debug, Serialize, schemars::JsonSchema)]
pub struct Tests {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    /// Not run.
    pub not_run: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The packet of a record. `prefix` is that of the tools which the caller uses; `most` the corrections that a run may
/// have, and `made` those that it had.
pub fn packet(record: &RunRecord, prefix: &str, most: u32, made: u32) -> Packet {
    let changes = record.changes.as_ref().map(changes);
    let report = record.report.as_ref();
    let corrections_left = most.saturating_sub(made);
    let remarks = report.map(|report| {
        let risks = report.risks.iter().take(3).map(|risk| format!("risk: {}", clip(risk)));
        risks
            .chain(report.open_questions.iter().take(3).map(|it| format!("question: {}", clip(it))))
            .collect()
    });
    Packet {
        ok: record.status == Status::Success,
        run_id: record.run_id.clone(),
        status: record.status,
        summary: summary(record),
        outcome: report.map(|report| report.outcome),
        claims: claims(record),
        changes,
        tests: report.map(|report| Tests {
            passed: report.tests.passed,
            failed: report.tests.failed,
            not_run: report.tests.not_run,
        }),
        checks: record.checks.clone(),
        error: record.error.clone(),
        patch: record.patch.clone(),
        worktree: record
            .worktree
            .as_ref()
            .filter(|_| record.applied.is_none())
            .map(|copy| copy.workspace.display().to_string()),
        applied: record.applied.clone(),
        agent: record.agent,
        corrections_left,
        remarks: remarks.unwrap_or_default(),
        notes: record.notes.clone(),
        next: next(record, prefix, corrections_left),
    }
}

fn clip(text: &str) -> String {
    crate::agents::redaction::one_line(text, 200)
}

fn summary(record: &RunRecord) -> String {
    match (&record.report, record.status) {
        (Some(report), _) => report.summary.clone(),
        (None, Status::Queued) => "The run waits for its place.".into(),
        (None, Status::Running) => "The worker is at work.".into(),
        (None, _) => record.error.as_ref().map_or_else(String::new, |error| error.message.clone()),
    }
}

fn next(record: &RunRecord, prefix: &str, corrections_left: u32) -> Option<String> {
    let id = &record.run_id;
    if !record.is_finished() {
        return Some(format!(
            "Call {prefix}_get_result with run_id {id}; it waits. Do not start the task again."
        ));
    }
    if record.status != Status::Success {
        return record.error.as_ref().map(|error| error.hint.clone());
    }
    if record.isolation.is_copy() && record.patch.is_some() && record.applied.is_none() {
        let more = match corrections_left {
            0 => String::new(),
            left => format!(" A definite defect goes to {prefix}_continue ({left} left)."),
        };
        return Some(format!(
            "Read the places under changes.review in the copy, or the patch; then relay_apply with run_id {id}.{more}"
        ));
    }
    let targets = record.changes.as_ref().is_some_and(|changes| !changes.review.is_empty());
    match (targets, corrections_left) {
        (false, _) => None,
        (true, 0) => Some("Read the places under changes.review; correct what is wrong yourself.".into()),
        (true, left) => Some(format!(
            "Read the places under changes.review; a definite defect goes to {prefix}_continue with run_id {id} ({left} left)."
        )),
    }
}

fn changes(observed: &Observation) -> Changes {
    let seen = observed.packet();
    let known = seen.status != observe::Status::NotObserved;
    let change = |file: &ChangedFile| serde_json::to_value(file.change).unwrap_or_default();
    let files = seen.files.iter().take(FILES).map(|file| {
        let change = change(file);
        let change = change.as_str().unwrap_or_default();
        match &file.old_path {
            Some(old) => format!("{old} → {} ({change})", file.path),
            None => format!("{} ({change})", file.path),
        }
    });
    Changes {
        observed: seen.status,
        count: known.then_some(seen.count),
        insertions: seen.insertions,
        deletions: seen.deletions,
        files: files.collect(),
        files_omitted: seen.truncated.files,
        outside: seen.outside,
        risk: seen.risk,
        review: seen.review.iter().take(TARGETS).cloned().collect(),
        review_omitted: seen.truncated.review,
        reason: seen.reason,
        history: history(observed),
    }
}

/// What happened beside the files, in words.
fn history(observed: &Observation) -> Vec<String> {
    let moves = &observed.moves;
    let mut lines: Vec<String> = Vec::new();
    for commit in moves.commits.iter().take(3) {
        lines.push(format!("commit {} {}", short(&commit.id), clip(&commit.subject)));
    }
    let more = (moves.commits.len() as u64).saturating_sub(3) + observed.left_out.commits;
    if more > 0 {
        lines.push(format!("and {more} more commits"));
    }
    if moves.branch.moved() {
        let name = |branch: &Option<String>| branch.as_deref().map_or("(no branch)".into(), clip);
        lines.push(format!(
            "the branch was {} and is {}",
            name(&moves.branch.before),
            name(&moves.branch.after)
        ));
    }
    lines.extend(moves.refs_moved.iter().take(5).map(|moved| format!("{} moved", clip(&moved.name))));
    lines.extend(moves.control_changed.iter().take(3).map(|file| format!("{} changed", clip(file))));
    lines.extend(
        observed.repositories.iter().take(3).map(|inner| format!("changed inside {}", clip(&inner.path))),
    );
    lines.extend(observed.locks.iter().take(2).map(|lock| format!("there is a lock {}", clip(&lock.path))));
    lines.extend(observed.notes.iter().take(3).map(|note| clip(note)));
    lines
}

fn short(id: &str) -> &str {
    id.get(..10).unwrap_or(id)
}

/// Nothing where the two lists agree, or where one of them is not known.
fn claims(record: &RunRecord) -> Option<Claims> {
    let (report, observed) = (record.report.as_ref()?, record.changes.as_ref()?);
    let named: Vec<String> = report.files.iter().map(|file| file.path.clone()).collect();
    let check = observed.check_claims(workplace(record), &named)?;
    let few = |paths: Vec<String>| paths.into_iter().take(CLAIMS).collect();
    (!check.agrees())
        .then(|| Claims { not_changed: few(check.not_observed), not_named: few(check.not_claimed) })
}

impl Packet {
    /// Leaves out the less important until the packet fits, as far as it can.
    pub fn fit(&mut self, most: usize) {
        let size = |packet: &Self| serde_json::to_string(packet).map_or(0, |text| text.len());
        for step in 0..7 {
            if size(self) <= most {
                return;
            }
            match step {
                0 => self.remarks.clear(),
                1 => self.claims = None,
                2 => {
                    for check in &mut self.checks {
                        check.output_tail = None;
                    }
                }
                3 => {
                    if let Some(changes) = &mut self.changes {
                        changes.history.clear();
                        changes.files_omitted +=
                            changes.files.drain(changes.files.len().min(4)..).count() as u64;
                        changes.review_omitted +=
                            changes.review.drain(changes.review.len().min(3)..).count() as u64;
                    }
                }
                4 => self.notes.clear(),
                5 => {
                    let cut = self.summary.floor_char_boundary(most / 4);
                    self.summary.truncate(cut);
                }
                _ => self.bare(),
            }
        }
    }

    /// Only what the run is and what became of it.
    pub fn bare(&mut self) {
        self.changes = None;
        self.claims = None;
        self.tests = None;
        self.checks.clear();
        self.remarks.clear();
        self.notes.clear();
        self.next = None;
        self.error = None;
        self.summary.clear();
    }
}
