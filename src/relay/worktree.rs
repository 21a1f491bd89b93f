//! Runs that work in a copy of their workspace: where the copy lies, when it is made, how what came out gets into the
//! workspace, and when the copy goes.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::record::RunRecord;
use super::request::World;
use super::{Relay, coordinator, invalid, settle, status};
use crate::bridge::{Bridge, BridgeError, blocking};
use crate::error::{Error, Result};
use crate::observe::isolation::apply::{self, Outcome, Patch};
use crate::observe::isolation::{self, Cleaned, Failure, Isolated, Setting};
use crate::platform::{self, LockState};
use crate::policy::Sandbox;
use crate::store::{BlobKind, RunFilter, RunRow, RunState, Store, scratch_path, session_lock_path};

/// The folder of the copies, in a state folder.
const WORKTREES: &str = "worktrees";
/// Names in a message.
const NAMED: usize = 12;
/// Most bytes of a patch.
pub const MAX_PATCH: u64 = 64 << 20;

/// The copy that a run and its corrections work in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    /// The whole copy; it goes as one.
    pub folder: PathBuf,
    /// The workspace in it.
    pub workspace: PathBuf,
    /// Top of the repository that was copied.
    pub top: PathBuf,
    /// The commit that was checked out there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
}

/// That a run's patch is in the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AppliedFact {
    /// Milliseconds since 1970.
    pub at: i64,
    /// SHA-256 of the patch.
    pub patch_sha256: String,
    /// Files that were written or removed.
    pub files: u64,
}

/// What became of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Applied {
    /// The run.
    pub run_id: String,
    /// Whether the workspace has the changes now.
    pub applied: bool,
    /// Files that were written or removed, or would be.
    pub files: Vec<String>,
    /// Files beyond those.
    pub files_omitted: u64,
    /// Files that were as the run left them before this call.
    pub already: u64,
    /// What became of the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The copy's folder.
///
/// # Errors
/// `STORE_BAD_ID`.
pub fn folder(store: &Store, root_run: &str) -> Result<PathBuf> {
    // The one check of ids that there is.
    session_lock_path(store.state_dir(), root_run)?;
    Ok(store.state_dir().join(WORKTREES).join(root_run))
}

fn setting(bridge: &Bridge) -> Setting {
    Setting { context: bridge.context().clone(), mark: None }
}

/// Makes the copy of a run.
pub(super) fn make(
    bridge: &Bridge,
    store: &Store,
    record: &RunRecord,
    cancelled: &mut dyn FnMut() -> Option<String>,
) -> Result<(Worktree, Vec<String>), Failure> {
    let failed = |why: String| Failure::Failed(why);
    let folder = folder(store, &record.root_run_id).map_err(|error| failed(error.message().to_owned()))?;
    let above = folder.parent().unwrap_or(&folder);
    platform::create_private_dir(above).map_err(|error| failed(error.to_string()))?;
    // A worker's folder is compared with what its system calls it.
    let above = crate::config::canonical(above).map_err(|error| failed(error.to_string()))?;
    let folder = above.join(&record.root_run_id);
    let copy = Isolated::make(&setting(bridge), &record.workspace, &folder, cancelled)?;
    let notes = match copy.left_out() {
        [] => Vec::new(),
        inner => {
            vec![format!("The copy lacks the repositories inside of the repository: {}.", inner.join(", "))]
        }
    };
    let made = Worktree {
        workspace: copy.workspace(),
        top: copy.top().to_path_buf(),
        base_commit: copy.head().map(str::to_owned),
        folder,
    };
    Ok((made, notes))
}

/// Whether a copy that a correction is to go on in is there.
pub(super) fn is_there(copy: &Worktree) -> bool {
    matches!(Isolated::open(&copy.folder), Ok(Some(_))) && copy.workspace.is_dir()
}

/// Removes what was cut off while it was made or removed.
pub(super) fn sweep(store: &Store) {
    let Ok(entries) = std::fs::read_dir(store.state_dir().join(WORKTREES)) else { return };
    for entry in entries.flatten() {
        let Some(id) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let Ok(lock) = coordinator::run_lock(store, &id) else { continue };
        if let Ok(LockState::Free) = platform::look_at_lock(&lock) {
            let _ = isolation::forget_unfinished(&entry.path());
        }
    }
}

/// The kept patch of a run, if it is the one that was recorded.
///
/// # Errors
/// `PATCH_DAMAGED`, `NOTHING_TO_APPLY`; the store's errors.
pub fn patch_of(store: &Store, record: &RunRecord) -> Result<Vec<u8>> {
    let Some(patch) = &record.patch else {
        return Err(Error::new(&status::NOTHING_TO_APPLY, format!("run {} left no patch", record.run_id)));
    };
    let mut bytes = Vec::new();
    let file = store.blobs().open(record.last_turn().unwrap_or_default(), BlobKind::Patch)?;
    file.take(MAX_PATCH + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::new(&status::MCP_ERROR, format!("the patch cannot be read: {error}")))?;
    if crate::digest::of_bytes(&bytes) != patch.sha256 {
        let message = format!("the patch of run {} is not the one that was recorded", record.run_id);
        return Err(Error::new(&status::PATCH_DAMAGED, message));
    }
    Ok(bytes)
}

impl Relay {
    /// Puts the patch of a run that worked in a copy into its workspace, all of it or nothing. The copy goes if nothing is
    /// lost with it.
    ///
    /// # Errors
    /// `APPLY_CONFLICT`, `NOTHING_TO_APPLY`, `PATCH_INCOMPLETE`, `PATCH_DAMAGED`, `RUN_STILL_RUNNING`, `WORKSPACE_BUSY`,
    /// `INVALID_WORKSPACE`, `SANDBOX_AUTHORITY_DENIED`, `RUN_NOT_FOUND`; the store's errors.
    pub async fn apply(&self, run_id: &str, check_only: bool) -> Result<Applied> {
        let row = self.settled(self.row(run_id).await?).await?;
        let (record, _) = self.record(row.clone()).await?;
        let relay = self.clone();
        let done = blocking(move || {
            relay
                .resolve(|world, _| may_write(world, &record), &mut record.clone())
                .map_err(|(status, why)| Error::new(status.doc().unwrap_or(&status::MCP_ERROR), why))?;
            relay.require_authority(&record)?;
            Ok(record)
        });
        let record = done.await?;
        let bridge = self.bridge().clone();
        self.bridge().with_store(move |store| apply_to(&bridge, store, &row, record, check_only)).await
    }

    fn require_authority(&self, record: &RunRecord) -> Result<()> {
        let config = self.bridge().config();
        let Some(agent) = record.agent else { return Ok(()) };
        let own = config.agents.get(&agent).and_then(|settings| settings.sandbox_ceiling);
        let ceiling = config.sandbox_ceiling.min(own.unwrap_or(config.sandbox_ceiling));
        if ceiling < Sandbox::WorkspaceWrite {
            let asked = Sandbox::WorkspaceWrite;
            return Err(BridgeError::SandboxDenied { agent, asked, ceiling }.into());
        }
        Ok(())
    }

    /// Removes the copy of a run, also of one whose record is forgotten. What would be lost with it is named and keeps it,
    /// unless `force`.
    ///
    /// # Errors
    /// `WORKTREE_KEPT`, `NOTHING_TO_APPLY` where there is no copy, `RUN_STILL_RUNNING`; the store's errors.
    pub async fn discard(&self, run_id: &str, force: bool) -> Result<PathBuf> {
        let id = run_id.to_owned();
        let bridge = self.bridge().clone();
        self.bridge()
            .with_store(move |store| {
                let root = store.run(&id)?.map_or_else(|| id.clone(), |row| row.root);
                require_ended(store, &root)?;
                let folder = folder(store, &root)?;
                let Some(copy) = Isolated::open(&folder).map_err(failed)? else {
                    isolation::forget_unfinished(&folder).map_err(failed)?;
                    let message = format!("run {id} has no copy of its workspace");
                    return Err(Error::new(&status::NOTHING_TO_APPLY, message));
                };
                let _held = alone(store, &root)?;
                if force {
                    copy.remove().map_err(failed)?;
                    return Ok(folder);
                }
                match clean(&bridge, store, &root, &copy)? {
                    Cleaned::Removed => Ok(folder),
                    Cleaned::Kept(lost) => Err(Error::new(
                        &status::WORKTREE_KEPT,
                        format!("{} would be lost with {}", lost.join(", "), folder.display()),
                    )),
                }
            })
            .await
    }
}

fn failed(failure: Failure) -> Error {
    match failure {
        Failure::Unfit(why) => Error::new(&status::INVALID_WORKSPACE, why),
        Failure::Cut(why) => Error::new(&status::CANCELLED, why),
        Failure::Failed(why) => Error::new(&status::WORKTREE_FAILED, why),
    }
}

fn may_write(world: &World<'_>, record: &RunRecord) -> Result<(), super::request::Refused> {
    world.acceptable(
        &crate::bridge::plan::recheck_folder(&record.workspace)
            .map_err(|error| (super::Status::InvalidWorkspace, error.message().to_owned()))?,
    )
}

/// No run of the chain is at work.
fn require_ended(store: &Store, root: &str) -> Result<()> {
    let chain = RunFilter { state: Some(RunState::Running), root: Some(root.to_owned()) };
    for other in store.list_runs(&chain, 500, None)?.rows {
        if settle::settle(store, other.clone())?.state == RunState::Running {
            return Err(Error::new(
                &status::RUN_STILL_RUNNING,
                format!("run {} works in the copy", other.id),
            ));
        }
    }
    Ok(())
}

/// Keeps every run out of the copy.
fn alone(store: &Store, root: &str) -> Result<platform::LockFile> {
    let held = platform::try_exclusive(&coordinator::workspace_lock(store, &folder(store, root)?))?;
    let held =
        held.ok_or_else(|| Error::new(&status::WORKSPACE_BUSY, "a run works in the copy of the workspace"))?;
    // One that ended its wait before this is seen now.
    require_ended(store, root)?;
    Ok(held)
}

fn apply_to(
    bridge: &Bridge,
    store: &Store,
    row: &RunRow,
    mut record: RunRecord,
    check_only: bool,
) -> Result<Applied> {
    let Some(copy) = record.worktree.clone() else {
        let message = match record.isolation.is_copy() {
            true => format!("run {} never got to work", record.run_id),
            false => format!("run {} worked in the workspace itself", record.run_id),
        };
        return Err(Error::new(&status::NOTHING_TO_APPLY, message));
    };
    require_ended(store, &row.root)?;
    let _alone = alone(store, &row.root)?;
    if let Some(applied) = &record.applied {
        return Ok(Applied {
            run_id: record.run_id,
            applied: true,
            files: Vec::new(),
            files_omitted: 0,
            already: applied.files,
            worktree: None,
            next: Some("Nothing: it was applied before.".to_owned()),
        });
    }
    let bytes = patch_of(store, &record)?;
    let end = record.changes.as_ref().and_then(|seen| seen.patch.clone());
    if let Some(end) = end.filter(|end| end.truncated || end.unread > 0) {
        let why = match end.truncated {
            true => format!("it was cut at {} bytes", end.bytes),
            false => format!("{} changed files are not in it", end.unread),
        };
        let message = format!("the patch is not whole: {why}. The files are in {}", copy.workspace.display());
        return Err(Error::new(&status::PATCH_INCOMPLETE, message));
    }
    let Some(_held) = platform::try_exclusive(&coordinator::workspace_lock(store, &record.workspace))? else {
        return Err(Error::new(
            &status::WORKSPACE_BUSY,
            format!("a run works in {} now", record.workspace.display()),
        ));
    };
    let patch = Patch {
        workspace: record.workspace.clone(),
        top: copy.top.clone(),
        bytes,
        scratch: scratch_path(store.state_dir(), &uuid::Uuid::new_v4().to_string())?,
        check_only,
    };
    let outcome = apply::apply(&setting(bridge), patch, &mut || None).map_err(failed)?;
    let (written, already) = match outcome {
        Outcome::Applied { written, already } => (written, already),
        other => return Err(refusal(other)),
    };
    let mut applied = Applied {
        run_id: record.run_id.clone(),
        applied: !check_only,
        files_omitted: written.len().saturating_sub(NAMED) as u64,
        already: already as u64,
        worktree: None,
        next: None,
        files: written.iter().take(NAMED).cloned().collect(),
    };
    if check_only {
        applied.next = Some("It fits. Apply it without the check.".into());
        return Ok(applied);
    }
    let patch_sha256 = record.patch.as_ref().map(|patch| patch.sha256.clone()).unwrap_or_default();
    record.applied = Some(AppliedFact {
        at: bridge.context().clock.now_ms(),
        patch_sha256,
        files: written.len() as u64 + already as u64,
    });
    store.amend_run(&record.to_row(), "run-applied")?;
    applied.worktree = match Isolated::open(&copy.folder) {
        Ok(Some(isolated)) => Some(match clean(bridge, store, &row.root, &isolated) {
            Ok(Cleaned::Removed) => "The copy is removed.".to_owned(),
            Ok(Cleaned::Kept(lost)) => {
                format!(
                    "The copy is kept in {}, for the sake of: {}.",
                    copy.folder.display(),
                    lost.join(", ")
                )
            }
            Err(error) => format!("The copy is kept in {}: {}", copy.folder.display(), error.message()),
        }),
        _ => None,
    };
    Ok(applied)
}

/// Removes a copy if the newest patch of its runs, which is kept, holds all that it has.
fn clean(bridge: &Bridge, store: &Store, root: &str, copy: &Isolated) -> Result<Cleaned> {
    let chain = RunFilter { state: Some(RunState::Finished), root: Some(root.to_owned()) };
    let runs = store.list_runs(&chain, 500, None)?.rows;
    let newest = runs.iter().find_map(|row| row.record["patch"]["sha256"].as_str());
    copy.remove_if_nothing_is_lost(&setting(bridge), newest, &mut || None).map_err(failed)
}

/// Why nothing, or not everything, was written.
fn refusal(outcome: Outcome) -> Error {
    let few = |paths: &[String]| {
        let more = paths.len().saturating_sub(NAMED);
        let named = paths.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        if more > 0 { format!("{named} and {more} more") } else { named }
    };
    match outcome {
        Outcome::Conflicts(conflicts) => {
            let lines: Vec<String> =
                conflicts.iter().map(|it| format!("{}: {}", it.path, it.reason)).collect();
            Error::new(
                &status::APPLY_CONFLICT,
                format!(
                    "nothing was written. {}",
                    lines.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ")
                ),
            )
            .with_details(serde_json::json!({ "conflicts": conflicts }))
        }
        Outcome::Outside(paths) => Error::new(
            &status::APPLY_CONFLICT,
            format!("nothing was written. The run changed files outside of the workspace: {}", few(&paths)),
        ),
        Outcome::Interrupted { written, conflict } => Error::new(
            &status::APPLY_CONFLICT,
            format!("{} {}. Written before: {}", conflict.path, conflict.reason, few(&written)),
        ),
        Outcome::Applied { .. } => invalid("nothing is wrong"),
    }
}

/// Whether a run of the chain had its patch applied: then the copy's beginning is not the workspace's any more.
pub(super) fn was_applied(store: &Store, root: &str) -> Result<bool> {
    let chain = RunFilter { state: None, root: Some(root.to_owned()) };
    Ok(store.list_runs(&chain, 500, None)?.rows.iter().any(|row| !row.record["applied"].is_null()))
}

/// A path for a record that says where the worker's claims are from.
pub(super) fn workplace(record: &RunRecord) -> &Path {
    record.worktree.as_ref().map_or(&record.workspace, |copy| &copy.workspace)
}
