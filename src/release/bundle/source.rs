//! The checkout that is packaged: its commit, whether it is clean, and files as the commit has them, so that the line
//! ends and permissions of a checkout don't matter.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::BundleError;
use crate::context::Context;

/// Variables that would make git look elsewhere than in the folder that was named.
const LEAD_ELSEWHERE: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The whole revision.
    pub sha: String,
    /// Seconds since 1970.
    pub time: i64,
}

/// A git checkout.
#[derive(Debug)]
pub struct Checkout {
    top: PathBuf,
    env: BTreeMap<OsString, OsString>,
}

impl Checkout {
    /// The checkout that this folder belongs to.
    pub fn open(context: &Context, folder: &Path) -> Result<Self, BundleError> {
        let mut env = context.env.clone();
        env.retain(|name, _| !LEAD_ELSEWHERE.iter().any(|lead| name.eq_ignore_ascii_case(lead)));
        for (name, value) in [("LC_ALL", "C"), ("GIT_OPTIONAL_LOCKS", "0"), ("GIT_NO_REPLACE_OBJECTS", "1")] {
            env.insert(name.into(), value.into());
        }
        let mut checkout = Self { top: folder.to_path_buf(), env };
        let top = checkout.git(["rev-parse", "--show-toplevel"])?;
        checkout.top = PathBuf::from(checkout.text(top)?);
        Ok(checkout)
    }

    /// Its folder.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// The commit that is checked out.
    pub fn head(&self) -> Result<Commit, BundleError> {
        let text = self.git(["show", "-s", "--no-show-signature", "--format=%H %ct", "HEAD"])?;
        let text = self.text(text)?;
        let commit = text.split_once(' ').and_then(|(sha, time)| Some((sha.to_owned(), time.parse().ok()?)));
        match commit {
            Some((sha, time)) if sha.len() == 40 => Ok(Commit { sha, time }),
            _ => Err(self.no_commit(format!("git says {text:?} of HEAD"))),
        }
    }

    /// Refuses a checkout in which a file was changed, or added and is not ignored.
    pub fn require_clean(&self) -> Result<(), BundleError> {
        let listed =
            self.git(["status", "--porcelain", "--untracked-files=all", "--ignore-submodules=none"])?;
        if listed.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&listed).into_owned();
        let mut changes: Vec<&str> = text.lines().map(str::trim).take(5).collect();
        if text.lines().count() > changes.len() {
            changes.push("…");
        }
        Err(BundleError::Dirty { folder: self.top.clone(), changes: changes.join(", ") })
    }

    /// The content of the files at and below these paths, as the commit has it.
    pub fn files(&self, commit: &Commit, paths: &[&str]) -> Result<BTreeMap<String, Vec<u8>>, BundleError> {
        let arguments = [&["ls-tree", "-r", "-z", "--full-tree", &commit.sha, "--"], paths].concat();
        let listed = self.git(arguments)?;
        let mut files = BTreeMap::new();
        for line in listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let line = String::from_utf8_lossy(line);
            let unfit = |why: &str| BundleError::ContentUnfit { path: line.to_string(), why: why.into() };
            let (facts, path) = line.split_once('\t').ok_or_else(|| unfit("git lists it like this"))?;
            let mut facts = facts.split(' ');
            match (facts.next(), facts.next(), facts.next()) {
                (Some("100644" | "100755"), Some("blob"), Some(id)) => {
                    files.insert(path.to_owned(), self.git(["cat-file", "blob", id])?);
                }
                _ => {
                    return Err(BundleError::ContentUnfit {
                        path: path.into(),
                        why: "it is no plain file".into(),
                    });
                }
            }
        }
        Ok(files)
    }

    /// Whether git ignores a path below the checkout.
    pub fn ignores(&self, path: &Path) -> bool {
        self.command([OsStr::new("check-ignore"), OsStr::new("--quiet"), OsStr::new("--"), path.as_os_str()])
            .output()
            .is_ok_and(|output| output.status.success())
    }

    fn command(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new("git");
        command.env_clear().envs(&self.env);
        // A program that the checkout names would run with every look at it.
        command.args(["-c", "core.fsmonitor=false"]).arg("-C").arg(&self.top).args(arguments);
        command
    }

    fn git(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Vec<u8>, BundleError> {
        let output = self
            .command(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .map_err(|error| self.no_commit(format!("git cannot be run: {error}")))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let words = String::from_utf8_lossy(&output.stderr);
        let first = words.lines().next().unwrap_or("git fails without a word");
        Err(self.no_commit(first.to_owned()))
    }

    fn text(&self, bytes: Vec<u8>) -> Result<String, BundleError> {
        let text = String::from_utf8(bytes).map_err(|_| self.no_commit("git's answer is no text".into()))?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn no_commit(&self, why: String) -> BundleError {
        BundleError::NoCommit { folder: self.top.clone(), why }
    }
}
