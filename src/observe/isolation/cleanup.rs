//! A copy is removed only if nothing is lost with it: what differs from the beginning is in the patch that is kept, and
//! there is nothing that no patch holds, like ignored files and commits.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::super::apart;
use super::super::git::{Git, Input};
use super::super::repository::{Repository, read_small};
use super::super::watch::{Fault, Watch};
use super::{DEADLINE, Failure, Isolated, MADE, Setting};
use crate::digest;
use crate::platform;

/// Files of git's own are read up to that size.
const MAX_LOG: u64 = 16 << 20;

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
        if let Some(inner) = self.inner_repository() {
            lost.push(format!("the repository in {}", inner.display()));
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

    /// A repository that somebody made inside of the copy.
    fn inner_repository(&self) -> Option<std::path::PathBuf> {
        let tree = self.tree();
        let own = tree.join(".git");
        let inside = walkdir::WalkDir::new(&tree).into_iter().filter_entry(|entry| entry.path() != own);
        let mut found = inside.flatten().filter(|entry| entry.file_name() == ".git");
        found.next().and_then(|entry| entry.path().parent().map(Path::to_path_buf))
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
    // Where nobody knows, nothing is removed.
    if folder.join(MADE).try_exists().unwrap_or(true) {
        return Ok(());
    }
    platform::remove_durable(folder).map_err(|error| Failure::Failed(error.to_string()))
}

/// A digest of all that refers to commits in a copy.
pub(super) fn refs(git: &Git, there: &Repository, tree: &Path, watch: &Watch) -> Result<String, Fault> {
    let git_dir = tree.join(".git");
    // A worker may have put anything there.
    let unclear = || Fault::Refused("the copy's own repository is not as it was made".into());
    if !fs::symlink_metadata(&git_dir).is_ok_and(|found| found.is_dir()) {
        return Err(unclear());
    }
    let head = read_small(&git_dir.join("HEAD"), MAX_LOG).ok_or_else(unclear)?;
    let args = ["for-each-ref", "--format=%(objectname) %(refname)"];
    let refs = git.ask(&there.top, &args, Input::default(), watch)?;
    // A commit that no ref leads to any more is in the log all the same.
    let log = git_dir.join("logs").join("HEAD");
    let log = match fs::symlink_metadata(&log) {
        Ok(_) => read_small(&log, MAX_LOG).ok_or_else(unclear)?,
        Err(_) => Vec::new(),
    };
    Ok(digest::of_bytes(&[head, refs, log].concat()))
}
