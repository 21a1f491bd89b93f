//! Who may work now: one run a workspace, a bounded number of runs in all, the oldest first, over all processes that
//! share the state folder.
//!
//! Places are locks that the kernel frees with their holder. A waiting run stands in the store as `QUEUED`, and its
//! driver holds the run's own lock; so a dead one is nobody's predecessor.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::status::Status;
use crate::digest;
use crate::error::Result;
use crate::platform::{self, LockFile, LockState};
use crate::store::{RunFilter, RunRow, RunState, Store, TurnState, session_lock_path};

/// How often a waiting run looks.
pub const POLL: Duration = Duration::from_millis(50);
/// Runs that are looked at; more cannot wait.
const MOST: usize = 500;

/// What a run needs to work.
#[derive(Debug)]
pub struct Place {
    _workspace: LockFile,
    _slot: LockFile,
}

/// What a look for a place found.
#[derive(Debug)]
pub enum Look {
    /// It is ours for as long as it lives.
    Taken(Place),
    /// Not yet; what is in the way.
    Wait(String),
}

/// One run that wants to work.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Its id.
    pub run_id: String,
    /// The folder that it wants for itself.
    pub workspace: PathBuf,
    /// That is a copy that was made for it: nobody else wants it.
    pub is_copy: bool,
    /// Runs at the same time.
    pub most: usize,
}

/// The lock that says that somebody drives a run.
///
/// # Errors
/// `STORE_BAD_ID`.
pub fn run_lock(store: &Store, run_id: &str) -> Result<PathBuf> {
    Ok(session_lock_path(store.state_dir(), run_id)?)
}

/// Whether somebody drives a run.
pub fn is_driven(store: &Store, run_id: &str) -> Result<bool> {
    Ok(platform::look_at_lock(&run_lock(store, run_id)?)? != LockState::Free)
}

/// The lock of a folder that one run at a time works in.
pub fn workspace_lock(store: &Store, workspace: &Path) -> PathBuf {
    let name = digest::of_bytes(workspace.as_os_str().as_encoded_bytes());
    store.state_dir().join("locks").join(format!("workspace-{}.lock", &name[..32]))
}

impl Waiting {
    /// Takes a place if this run is next.
    ///
    /// # Errors
    /// Those of the store and of locks.
    pub fn look(&self, store: &Store) -> Result<Look> {
        if let Some(reason) = self.before_us(store)? {
            return Ok(Look::Wait(reason));
        }
        let locks = store.state_dir().join("locks");
        let Some(workspace) = platform::try_exclusive(&workspace_lock(store, &self.workspace))? else {
            return Ok(Look::Wait("another run works in this folder".into()));
        };
        if let Some(turn) = self.worker_left(store)? {
            return Ok(Look::Wait(format!("turn {turn} of an earlier run still works in this folder")));
        }
        match slot(&locks, self.most)? {
            Some(slot) => Ok(Look::Taken(Place { _workspace: workspace, _slot: slot })),
            None => Ok(Look::Wait(format!("{} runs work already", self.most))),
        }
    }

    /// Older runs that wait and whose driver lives.
    ///
    /// # Errors
    /// Those of the store and of locks.
    pub fn older(&self, store: &Store) -> Result<Vec<RunRow>> {
        let filter = RunFilter { state: Some(RunState::Running), root: None };
        let rows = store.list_runs(&filter, MOST, None)?.rows;
        // Newest first: what comes after our own row is older.
        let older = rows.into_iter().skip_while(|row| row.id != self.run_id).skip(1);
        let mut waiting = Vec::new();
        for row in older.filter(|row| row.status == Status::Queued.as_str()) {
            if is_driven(store, &row.id)? {
                waiting.push(row);
            }
        }
        Ok(waiting)
    }

    /// An older run that waits for the same folder.
    fn before_us(&self, store: &Store) -> Result<Option<String>> {
        let same = |row: &RunRow| row.workspace == self.workspace && row.record["isolation"] != "worktree";
        let older = if self.is_copy { None } else { self.older(store)?.into_iter().find(same) };
        Ok(older.map(|row| format!("run {} waits for this folder too", row.id)))
    }

    /// A worker whose driver is gone while it goes on.
    fn worker_left(&self, store: &Store) -> Result<Option<String>> {
        let running = store.running_turns()?.rows;
        let here = |cwd: &Path| cwd == self.workspace || self.is_copy && cwd.starts_with(&self.workspace);
        let of_runs = running
            .into_iter()
            .filter(|turn| turn.requested_by.starts_with(super::TURN_OWNER) && here(&turn.cwd));
        let rows = crate::bridge::reconcile_rows(store, of_runs.collect())?;
        Ok(rows.into_iter().find(|turn| turn.state == TurnState::Running).map(|turn| turn.id))
    }
}

/// One of `most` places.
fn slot(locks: &Path, most: usize) -> Result<Option<LockFile>> {
    for number in 0..most {
        if let Some(lock) = platform::try_exclusive(&locks.join(format!("run-place-{number}.lock")))? {
            return Ok(Some(lock));
        }
    }
    Ok(None)
}

/// The time between two attempts: 1 s, 2 s, …, give or take a fifth.
pub fn backoff(attempt: u32) -> Duration {
    let mut byte = [0_u8; 1];
    // Without randomness the middle is as good.
    let shift = if getrandom::fill(&mut byte).is_ok() { f64::from(byte[0]) / 255.0 } else { 0.5 };
    Duration::from_secs(1 << attempt.min(6)).mul_f64(0.8 + 0.4 * shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_and_stays_near() {
        for (attempt, seconds) in [(0, 1.0), (1, 2.0), (2, 4.0)] {
            let pause = backoff(attempt).as_secs_f64();
            assert!((0.8 * seconds..=1.2 * seconds).contains(&pause), "{pause}");
        }
    }
}
