//! The run folder: private, made for one run before its worker starts, gone before anybody hears of the run's end.
//!
//! A supervisor that dies leaves it behind. Who marks the turn as interrupted removes it, and who makes the next folder
//! removes those of turns that have ended.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Component, Path, PathBuf};

use super::errors::BridgeError;
use super::inherited;
use crate::agents::{LOG_NAME, PrivateFiles};
use crate::error::Result;
use crate::platform::{self, private};
use crate::policy::AgentId;
use crate::process;
use crate::store::{Store, StoreError, TurnState, is_id, kept_dir, run_dir};

/// How much of the CLI's own log a parser is given.
const LOG_TAIL: u64 = 16 << 10;

/// The folder of one run. Dropping it removes it.
pub(super) struct RunFolder {
    path: PathBuf,
    /// What outlives it: where in it, and where to.
    kept: Vec<(PathBuf, PathBuf)>,
}

impl RunFolder {
    /// Makes it, empty.
    pub(super) fn create(store: &Store, turn: &str) -> Result<Self> {
        let path = run_dir(store.state_dir(), turn)?;
        sweep(store, &path);
        Self::at(path)
    }

    /// The same at a place of the caller's.
    pub(super) fn at(path: PathBuf) -> Result<Self> {
        private::create_dir(&path).map_err(|error| platform::write_error(&path, error))?;
        Ok(Self { path, kept: Vec::new() })
    }

    /// Puts the folders in that the runs before it kept for this session, and keeps them again at the end. Whoever
    /// calls this holds the session's lock.
    pub(super) fn keep(
        &mut self,
        planned: &PrivateFiles,
        state_dir: &Path,
        session: &str,
        agent: AgentId,
    ) -> Result<()> {
        let place = kept_dir(state_dir, session, agent)?;
        for folder in &planned.kept {
            self.check_inside(&folder.path)?;
            let kept = place.join(&folder.name);
            if fs::symlink_metadata(&kept).is_ok_and(|found| found.is_dir()) {
                make_parent(&folder.path)?;
                platform::move_durable(&kept, &folder.path)?;
            }
            self.kept.push((folder.path.clone(), kept));
        }
        Ok(())
    }

    /// Puts the planned files in, the token where they hold one, and the logins that there are below `home`.
    pub(super) fn fill(&self, planned: &PrivateFiles, token: &str, home: Option<&Path>) -> Result<()> {
        for file in &planned.files {
            let content = inherited::with_inherited(file, home)?;
            self.put(&file.path, content.content_with(token).as_bytes())?;
        }
        for login in &planned.logins {
            if let Some(home) = home
                && let Some(bytes) = inherited::content(&home.join(&login.from_home))?
            {
                self.put(&login.to, &bytes)?;
            }
        }
        Ok(())
    }

    fn check_inside(&self, path: &Path) -> Result<()> {
        let inside = path.strip_prefix(&self.path).is_ok_and(|below| {
            below.components().next().is_some()
                && below.components().all(|part| matches!(part, Component::Normal(_)))
        });
        if !inside {
            let why = format!("{} was to be written outside of the run folder", path.display());
            return Err(BridgeError::Supervisor(why).into());
        }
        Ok(())
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.check_inside(path)?;
        make_parent(path)?;
        let failed = |error| platform::write_error(path, error);
        let mut file = private::owners_only().create_new(true).open(path).map_err(failed)?;
        Ok(file.write_all(bytes).map_err(failed)?)
    }

    /// The end of the log that the CLI wrote there; empty if it wrote none.
    pub(super) fn log_tail(&self) -> String {
        tail_of(&self.path.join(LOG_NAME)).unwrap_or_default()
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        for (path, kept) in &self.kept {
            // A link would lead out of it.
            if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
                // What cannot be kept is lost, and whoever resumes it is told so.
                let _ = make_parent(kept).and_then(|()| Ok(platform::move_durable(path, kept)?));
            }
        }
        // What stays is removed with the next one.
        let _ = platform::remove_durable(&self.path);
    }
}

fn make_parent(path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        private::create_dir(folder).map_err(|error| platform::write_error(folder, error))?;
    }
    Ok(())
}

/// Removes the folder of a turn whose supervisor is dead.
pub(super) fn remove(state_dir: &Path, turn: &str) -> std::result::Result<(), StoreError> {
    let path = run_dir(state_dir, turn)?;
    if fs::symlink_metadata(&path).is_ok() {
        let _ = platform::remove_durable(&path);
    }
    Ok(())
}

/// Removes folders whose turns have ended.
fn sweep(store: &Store, own: &Path) {
    let all = own.parent().and_then(|runs| fs::read_dir(runs).ok()).into_iter().flatten().flatten();
    for entry in all.filter(|entry| entry.path() != own) {
        let has_ended = entry.file_name().to_str().is_some_and(|turn| {
            is_id(turn) && store.turn(turn).is_ok_and(|row| row.state == TurnState::Finished)
        });
        if has_ended {
            let _ = platform::remove_durable(&entry.path());
        }
    }
}

/// The worker could have put anything there: a link is not followed, and what is not a file is not waited for.
fn tail_of(path: &Path) -> Option<String> {
    let length = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?.len();
    let mut file = platform::open_no_link(path).ok()?;
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut bytes).ok()?;
    Some(process::readable(&bytes))
}

#[cfg(test)]
#[path = "run_folder_tests.rs"]
mod tests;
