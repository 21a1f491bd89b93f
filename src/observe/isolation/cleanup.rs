//! A copy is removed only if nothing is lost with it: what differs from the beginning is in the patch that is kept, and
//! there is nothing that no patch holds, like ignored files and commits.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::super::apart;
use super::super::git::{Git, Input};
use super::super::repository::Repository;
use super::super::watch::{Fault, Watch};
use super::{DEADLINE, Failure, Isolated, MADE, Setting};
use crate::digest;
use crate::platform;

/// What became of a copy that was to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// It is gone.
    Removed,
    /// It is there, because these would be lost with it.
    Kept(Vec<String>),
}

impl Isolated {
    /// Removes the copy unless something would be lost that is not in the patch of that SHA-256 (none: no patch is
    /// kept).
    ///
    /// # Errors
    /// [`Failure`]: it could not be looked at or removed; it is there then, as far as it was.
    pub fn remove_if_nothing_is_lost(
        &self,
        setting: &Setting,
        kept_patch: Option<&str>,
        cancelled: &mut dyn FnMut() -> Option<String>,
    ) -> Result<Cleaned, Failure> {
        let failed = |error: std::io::Error| Failure::Failed(format!("{}: {error}", self.folder.display()));
        let mut out = tempfile::tempfile_in(&self.folder).map_err(failed)?;
        let changes = self.write_patch(setting, &mut out, DEADLINE, cancelled)?;
        let mut lost = Vec::new();
        if let Some(patch) = &changes.patch {
            if patch.unread > 0 {
                lost.push(format!("{} changed files that are in no patch", patch.unread));
            } else if patch.truncated || Some(patch.sha256.as_str()) != kept_patch {
                lost.push("changes that are not in the kept patch".into());
            }
        }
        if changes.ignored > 0 {
            lost.push(format!("{} ignored files or folders", changes.ignored));
        }
        let watch = Watch::new(DEADLINE);
        let (own, setting) = (self.clone(), setting.clone());
        let now = apart(&watch, cancelled, move |watch| {
            let git = own.git(&setting)?;
            refs(&git, &own.there(), &own.tree(), watch)
        });
        if !now.is_ok_and(|now| now == self.made.refs) {
            lost.push("commits, branches or other references".into());
        }
        if !lost.is_empty() {
            return Ok(Cleaned::Kept(lost));
        }
        self.remove()?;
        Ok(Cleaned::Removed)
    }

    /// Removes the copy with all that is in it.
    ///
    /// # Errors
    /// [`Failure::Failed`].
    pub fn remove(&self) -> Result<(), Failure> {
        let failed =
            |why: String| Failure::Failed(format!("{} cannot be removed: {why}", self.folder.display()));
        // First what says that it is whole.
        match fs::remove_file(self.folder.join(MADE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error.to_string())),
            _ => {}
        }
        platform::remove_durable(&self.folder).map_err(|error| failed(error.to_string()))
    }
}

/// Removes what the making or the removal of a copy left that was cut off. Whoever calls knows that nobody is at it.
///
/// # Errors
/// [`Failure::Failed`].
pub fn forget_unfinished(folder: &Path) -> Result<(), Failure> {
    if folder.join(MADE).exists() {
        return Ok(());
    }
    platform::remove_durable(folder).map_err(|error| Failure::Failed(error.to_string()))
}

/// A digest of all that refers to commits in a copy.
pub(super) fn refs(git: &Git, there: &Repository, tree: &Path, watch: &Watch) -> Result<String, Fault> {
    let git_dir = tree.join(".git");
    let head =
        fs::read(git_dir.join("HEAD")).map_err(|error| Fault::files("cannot read", &git_dir, &error))?;
    let args = ["for-each-ref", "--format=%(objectname) %(refname)"];
    let refs = git.ask(&there.top, &args, Input::default(), watch)?;
    // A commit that no ref leads to any more is in the log all the same.
    let log = fs::read(git_dir.join("logs").join("HEAD")).unwrap_or_default();
    Ok(digest::of_bytes(&[head, refs, log].concat()))
}
