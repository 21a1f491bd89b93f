//! The real repository of a folder: where it is, how it is set, what lies in it that decides about git itself. All of it
//! is only read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::git::{Git, Input};
use super::names::{Name, name_below};
use super::watch::{Fault, Watch};
use crate::digest;
use crate::platform::{FileMark, MarkKind};

/// Settings that decide how files and objects relate. Nothing in them names a program.
const SETTINGS: &str = "^(core\\.(autocrlf|eol|filemode|symlinks|ignorecase|precomposeunicode|longpaths|fscache|\
    excludesfile|attributesfile)|extensions\\.objectformat)$";
/// Files of git's own are read up to that size.
const MAX_CONTROL: u64 = 1 << 20;
/// Hooks that are looked at.
const MAX_HOOKS: usize = 200;

/// A repository with a work tree.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    /// Top of the work tree.
    pub(super) top: PathBuf,
    /// The folder that was asked about, from there; empty, or with `/` at its end.
    pub(super) prefix: Name,
    /// What belongs to this work tree: index, HEAD.
    pub(super) git_dir: PathBuf,
    /// What all work trees share: objects, refs, config.
    pub(super) common_dir: PathBuf,
    /// Bytes of an object id.
    pub(super) id_length: usize,
    /// The settings of [`SETTINGS`], the last value of each.
    pub(super) settings: BTreeMap<String, String>,
}

/// What a folder is in.
#[derive(Debug)]
pub(super) enum Found {
    /// A repository.
    Repository(Box<Repository>),
    /// None.
    Plain,
}

/// Whether git could find a repository for a folder. Asking git is not needed where it could not.
pub(super) fn may_be_in_one(folder: &Path) -> bool {
    folder.ancestors().any(|above| {
        fs::symlink_metadata(above.join(".git")).is_ok()
            || (above.join("HEAD").is_file() && above.join("objects").is_dir() && above.join("refs").is_dir())
    })
}

impl Repository {
    /// Finds the repository of a folder (canonical).
    pub(super) fn find(git: &Git, folder: &Path, watch: &Watch) -> Result<Found, Fault> {
        let args = [
            "rev-parse",
            "--is-inside-work-tree",
            "--is-bare-repository",
            "--show-object-format",
            "--show-cdup",
            "--absolute-git-dir",
        ];
        let answer = match git.ask(folder, &args, Input::default(), watch) {
            Ok(answer) => answer,
            // Git does not look beyond a mount; then the folder is none of that repository's.
            Err(Fault::Git { words, .. })
                if words.contains("not a git repository") && !folder.join(".git").exists() =>
            {
                return Ok(Found::Plain);
            }
            Err(fault) => return Err(fault),
        };
        let mut lines = answer.splitn(5, |byte| *byte == b'\n');
        let mut line = || lines.next().unwrap_or_default();
        match (line(), line()) {
            (_, b"true") => {
                return Err(Fault::Refused("it is a bare repository, which has no files to observe".into()));
            }
            (b"true", _) => {}
            _ => return Err(Fault::Refused("it lies inside of a repository's own data (`.git`)".into())),
        }
        let id_length = if line() == b"sha256" { 32 } else { 20 };
        let up = line();
        let unclear = || Fault::Refused("git does not say where the repository is".into());
        // `../` for each folder up to the top: no name in it that could be misread.
        if up.len() % 3 != 0 || !up.chunks(3).all(|step| step == b"../") {
            return Err(Fault::Refused("its work tree is elsewhere (`core.worktree`)".into()));
        }
        let top = folder.ancestors().nth(up.len() / 3).ok_or_else(unclear)?.to_path_buf();
        let git_dir = line();
        let git_dir = git_dir.strip_suffix(b"\n").unwrap_or(git_dir);
        let git_dir =
            crate::platform::path_from_bytes(git_dir).filter(|path| path.is_dir()).ok_or_else(unclear)?;
        let common_dir = common_dir(&git_dir).ok_or_else(unclear)?;
        let mut prefix = name_below(&top, folder).ok_or_else(unclear)?;
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let settings = settings(git, folder, watch)?;
        Ok(Found::Repository(Box::new(Self { top, prefix, git_dir, common_dir, id_length, settings })))
    }

    /// The index file.
    pub(super) fn index(&self) -> PathBuf {
        self.git_dir.join("index")
    }

    /// Digests of what decides about git itself, by name.
    pub(super) fn control(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut see = |label: String, path: &Path| {
            if let Some(digest) = control_digest(path) {
                found.insert(label, digest);
            }
        };
        // In a linked work tree and in a submodule a file says where the repository is.
        see(".git".into(), &self.top.join(".git"));
        for name in ["config", "info/exclude", "info/attributes", "info/grafts", "objects/info/alternates"] {
            see(format!(".git/{name}"), &self.common_dir.join(name));
        }
        for name in ["config.worktree", "info/sparse-checkout"] {
            see(format!(".git/{name}"), &self.git_dir.join(name));
        }
        if let Ok(hooks) = fs::read_dir(self.common_dir.join("hooks")) {
            for hook in hooks.flatten().take(MAX_HOOKS) {
                see(format!(".git/hooks/{}", hook.file_name().to_string_lossy()), &hook.path());
            }
        }
        found
    }

    /// Lock files of git that lie there now.
    pub(super) fn locks(&self) -> Vec<PathBuf> {
        let own = ["index.lock", "HEAD.lock", "config.worktree.lock"].map(|name| self.git_dir.join(name));
        let shared =
            ["config.lock", "packed-refs.lock", "shallow.lock"].map(|name| self.common_dir.join(name));
        own.into_iter().chain(shared).filter(|path| fs::symlink_metadata(path).is_ok()).collect()
    }
}

/// `gitrepository-layout(5)`: a linked work tree names the common folder in a file.
fn common_dir(git_dir: &Path) -> Option<PathBuf> {
    let Some(text) = read_small(&git_dir.join("commondir"), MAX_CONTROL) else {
        return Some(git_dir.to_path_buf());
    };
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    let path = git_dir.join(crate::platform::path_from_bytes(text)?);
    path.is_dir().then_some(path)
}

fn settings(git: &Git, folder: &Path, watch: &Watch) -> Result<BTreeMap<String, String>, Fault> {
    let input = Input { also_fine: &[1], ..Input::default() };
    let answer = git.ask(folder, &["config", "-z", "--get-regexp", SETTINGS], input, watch)?;
    let mut settings = BTreeMap::new();
    for record in answer.split(|byte| *byte == 0).filter(|record| !record.is_empty()) {
        // A name without a value means "true".
        let text = String::from_utf8_lossy(record);
        let (name, value) = text.split_once('\n').unwrap_or((&text, "true"));
        settings.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    Ok(settings)
}

/// A digest of a file or link; none if it is neither.
fn control_digest(path: &Path) -> Option<String> {
    let mark = FileMark::of(path).ok()?;
    match mark.kind {
        MarkKind::Link => {
            let target = fs::read_link(path).ok()?;
            Some(format!("link {}", digest::of_bytes(target.as_os_str().as_encoded_bytes())))
        }
        MarkKind::File => {
            let content = match read_small(path, MAX_CONTROL) {
                Some(content) => digest::of_bytes(&content),
                None => format!("{} {}", mark.size, mark.changed_ns),
            };
            Some(format!("file {} {content}", mark.executable))
        }
        MarkKind::Folder | MarkKind::Other => None,
    }
}

/// A plain file of at most so many bytes. Nothing that could keep a reader waiting is opened.
pub(super) fn read_small(path: &Path, most: u64) -> Option<Vec<u8>> {
    let found = fs::symlink_metadata(path).ok()?;
    if !found.is_file() || found.len() > most {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
