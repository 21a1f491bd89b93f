//! A copy of a repository's files that belongs to one run and its corrections: the worker changes the copy, and the
//! user's own tree changes only when somebody applies what came out.
//!
//! - [`copy`]: makes it. Uncommitted and untracked files are in it; ignored ones are not;
//! - [`changes`]: what became of it since, as one patch, whenever and by whomever it is asked;
//! - [`apply`]: puts such a patch into the user's tree, all of it or nothing. The one place of this room that writes
//!   there;
//! - [`cleanup`]: removes a copy only if nothing is lost with it.
//!
//! What lies in its folder: `tree/`, the files, which are a repository by themselves (`HEAD`, refs, rules and index of the
//! real one, its objects borrowed, no remote to push to); `base/`, a repository of ours that knows the state at the
//! beginning and that no worker is told of; `made.json`, written last, so that a copy without it was never finished.
//!
//! A copy is no sandbox: a worker that may write elsewhere can still do so.

pub mod apply;
mod changes;
mod cleanup;
mod copy;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::git::{Git, Place};
use super::repository::Repository;
use super::scratch::OwnRepository;
use super::tree::Bench;
use super::watch::{Fault, Watch};
use super::{Limits, names};
use crate::context::Context;
pub use changes::Changes;
pub use cleanup::{Cleaned, forget_unfinished};

/// The file that says that a copy is complete.
const MADE: &str = "made.json";
/// Form of that file.
const VERSION: u32 = 1;
/// How long making a copy, comparing it and applying what came out may take.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// Bounds of a look at a copy. Nothing may be known by its marks only: a patch has to hold everything.
fn limits() -> Limits {
    Limits {
        deadline: DEADLINE,
        entries: 1_000_000,
        file_bytes: 1 << 30,
        content_files: 1_000_000,
        content_bytes: 8 << 30,
        patch_bytes: Limits::default().patch_bytes,
    }
}

/// Why nothing came of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The folder is none that can be copied.
    #[error("{0}")]
    Unfit(String),
    /// Somebody asked for the end.
    #[error("{0}")]
    Cut(String),
    /// Files, git, time.
    #[error("{0}")]
    Failed(String),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Cut(why) => Self::Cut(why),
            Fault::Refused(why) => Self::Unfit(why),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// What git is started with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Environment, home, and where git is found.
    pub context: Context,
    /// What processes carry that are started for it, see [`crate::process::mark_below`].
    pub mark: Option<String>,
}

/// What is known of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Made {
    schema_version: u32,
    /// Top of the repository that was copied.
    top: PathBuf,
    /// The workspace, from there; empty, or with `/` at its end.
    prefix: String,
    /// Objects of that repository.
    objects: PathBuf,
    id_length: usize,
    /// The commit that was checked out.
    head: Option<String>,
    /// What `HEAD` and the refs of the copy are at the beginning, as a digest.
    refs: String,
    files: u64,
    bytes: u64,
    /// Folders that are empty in the copy: repositories inside of the repository.
    left_out: Vec<String>,
}

/// A complete copy.
#[derive(Clone, Debug)]
pub struct Isolated {
    folder: PathBuf,
    made: Made,
}

impl Isolated {
    /// A copy that was made before; none if there is none, or if it was never finished.
    ///
    /// # Errors
    /// [`Failure::Failed`]: it says something about itself that is not understood.
    pub fn open(folder: &Path) -> Result<Option<Self>, Failure> {
        let path = folder.join(MADE);
        let failed = |why: String| Failure::Failed(format!("{}: {why}", path.display()));
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
        };
        let made: Made = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        if made.schema_version != VERSION {
            return Err(failed(format!("its form is {}, not {VERSION}", made.schema_version)));
        }
        Ok(Some(Self { folder: folder.to_path_buf(), made }))
    }

    /// Where a worker works.
    pub fn workspace(&self) -> PathBuf {
        self.tree().join(&self.made.prefix)
    }

    /// The whole copy.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Top of the repository that was copied.
    pub fn top(&self) -> &Path {
        &self.made.top
    }

    /// The commit that was checked out.
    pub fn head(&self) -> Option<&str> {
        self.made.head.as_deref()
    }

    /// Repositories inside of the repository, which are empty folders here.
    pub fn left_out(&self) -> &[String] {
        &self.made.left_out
    }

    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    fn nothing(&self) -> PathBuf {
        self.folder.join("nothing")
    }

    /// The repository that knows the beginning.
    fn base(&self) -> OwnRepository {
        OwnRepository::open(&self.folder.join("base"), &self.made.objects)
    }

    /// The copy's files as those of a repository.
    fn there(&self) -> Repository {
        files_at(&self.tree(), &self.folder.join("base"), self.made.id_length)
    }

    fn git(&self, setting: &Setting) -> Result<Git, Fault> {
        Git::find(&setting.context, setting.mark.as_deref(), &self.nothing())
    }
}

/// A work tree whose repository is one of ours.
fn files_at(tree: &Path, git_dir: &Path, id_length: usize) -> Repository {
    Repository {
        top: tree.to_path_buf(),
        prefix: names::Name::new(),
        git_dir: git_dir.to_path_buf(),
        common_dir: git_dir.to_path_buf(),
        id_length,
        settings: std::collections::BTreeMap::new(),
    }
}

fn bench<'a>(
    git: &'a Git,
    there: &'a Repository,
    own: &'a OwnRepository,
    limits: &'a Limits,
    watch: &'a Watch,
) -> Bench<'a> {
    Bench { git, real: there, own, limits, watch }
}

/// For commands in a repository of ours that look at files elsewhere.
fn place<'a>(own: &'a OwnRepository, work_tree: &'a Path) -> Place<'a> {
    Place { git_dir: &own.git_dir, work_tree, index: &own.index, objects: Some(&own.objects) }
}
