//! A folder that is in no repository: every file's marks, and a digest of the small ones. There is nothing to compare lines
//! with.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Limits;
use super::names::{Name, name_below, path_below};
use super::record::ChangeKind;
use super::watch::{Fault, Watch};
use crate::digest;
use crate::platform::{FileMark, MarkKind};

/// Files up to that size are read.
const MAX_READ: u64 = 1 << 20;
/// Folders that programs fill, as a rule of their own accord.
const IGNORED: &[&str] = &[
    ".git",
    "node_modules",
    "target",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".gradle",
    ".terraform",
    ".next",
    ".nuxt",
    ".cache",
    ".direnv",
];

/// The first look at a folder.
#[derive(Debug)]
pub(super) struct PlainFolder {
    top: PathBuf,
    files: BTreeMap<Name, Known>,
    ignored: u64,
    began_ns: i128,
    /// Why it is not the whole.
    pub(super) lacking: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    mark: FileMark,
    /// Of the content, where it was read; of the target of a link.
    digest: Option<String>,
}

/// What became of a folder.
#[derive(Default)]
pub(super) struct FolderChange {
    pub(super) changed: Vec<(Name, ChangeKind, MarkKind)>,
    pub(super) ignored: (u64, u64),
    pub(super) lacking: Option<String>,
}

impl PlainFolder {
    /// Looks at a folder for the first time. What there was no time for is said.
    pub(super) fn look(top: &Path, limits: &Limits, watch: &Watch) -> Result<Self, Fault> {
        let mut files = BTreeMap::new();
        let mut walk = Walk::new(top, watch);
        let began_ns = {
            let since =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            i128::try_from(since.as_nanos()).unwrap_or(0)
        };
        let mut lacking = None;
        loop {
            let next = walk.next();
            match next {
                Ok(Some((name, path, mark))) => {
                    if files.len() >= limits.entries {
                        lacking = Some(format!("only {} files were looked at", files.len()));
                        break;
                    }
                    let digest = digest_of(&path, &mark);
                    files.insert(name, Known { mark, digest });
                }
                Ok(None) => break,
                Err(Fault::Cut(reason)) => return Err(Fault::Cut(reason)),
                Err(fault) => {
                    lacking = Some(format!("only {} files were looked at: {fault}", files.len()));
                    break;
                }
            }
        }
        let lacking = lacking.or_else(|| walk.unreadable());
        Ok(Self { top: top.to_path_buf(), files, ignored: walk.ignored, began_ns, lacking })
    }

    /// Looks at it again.
    pub(super) fn look_again(&self, limits: &Limits, watch: &Watch) -> Result<FolderChange, Fault> {
        let mut change = FolderChange { lacking: self.lacking.clone(), ..FolderChange::default() };
        let done =
            self.known_again(watch, &mut change).and_then(|()| self.new_ones(limits, watch, &mut change));
        match done {
            Ok(()) => {}
            Err(Fault::Cut(reason)) => return Err(Fault::Cut(reason)),
            Err(fault) => {
                change.lacking.get_or_insert_with(|| fault.to_string());
            }
        }
        change.changed.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(change)
    }

    fn known_again(&self, watch: &Watch, change: &mut FolderChange) -> Result<(), Fault> {
        for (name, known) in &self.files {
            watch.check("looking at the files again")?;
            let Some(path) = path_below(&self.top, name) else { continue };
            let Ok(mark) = FileMark::of(&path) else {
                change.changed.push((name.clone(), ChangeKind::Deleted, known.mark.kind));
                continue;
            };
            let now = Known { digest: digest_of(&path, &mark), mark };
            let content = match (&known.digest, &now.digest) {
                (Some(before), Some(after)) => before == after,
                _ => known.mark.size == mark.size && known.mark.changed_ns == mark.changed_ns,
            };
            let kind = match () {
                () if known.mark.kind != mark.kind => ChangeKind::Type,
                () if !content => ChangeKind::Modified,
                () if known.mark.executable != mark.executable => ChangeKind::Mode,
                () => continue,
            };
            change.changed.push((name.clone(), kind, mark.kind));
        }
        Ok(())
    }

    fn new_ones(&self, limits: &Limits, watch: &Watch, change: &mut FolderChange) -> Result<(), Fault> {
        let mut walk = Walk::new(&self.top, watch);
        let mut seen = 0_usize;
        while let Some((name, _, mark)) = walk.next()? {
            seen += 1;
            if seen > limits.entries.saturating_mul(2) {
                change.lacking.get_or_insert_with(|| format!("only {} files were looked at", seen - 1));
                break;
            }
            // Of a folder that was not seen as a whole, what has not changed since may well have been there.
            let old = self.lacking.is_some() && mark.changed_ns < self.began_ns;
            if !self.files.contains_key(&name) && !old {
                change.changed.push((name, ChangeKind::Added, mark.kind));
            }
        }
        change.ignored = (self.ignored, walk.ignored);
        if change.lacking.is_none() {
            change.lacking = walk.unreadable();
        }
        Ok(())
    }
}

/// Of the content of a small file and the target of a link. Nothing that could keep a reader waiting is opened.
fn digest_of(path: &Path, mark: &FileMark) -> Option<String> {
    match mark.kind {
        MarkKind::Link => Some(digest::of_bytes(fs::read_link(path).ok()?.as_os_str().as_encoded_bytes())),
        MarkKind::File if mark.size <= MAX_READ => Some(digest::of_file(path).ok()?.0),
        _ => None,
    }
}

/// Goes through a folder in whatever order the system gives, and follows no link.
struct Walk<'a> {
    top: &'a Path,
    watch: &'a Watch,
    open: Vec<fs::ReadDir>,
    ignored: u64,
    closed: u64,
}

impl<'a> Walk<'a> {
    fn new(top: &'a Path, watch: &'a Watch) -> Self {
        let mut walk = Self { top, watch, open: Vec::new(), ignored: 0, closed: 0 };
        walk.enter(top);
        walk
    }

    fn enter(&mut self, folder: &Path) {
        match fs::read_dir(folder) {
            Ok(entries) => self.open.push(entries),
            Err(_) => self.closed += 1,
        }
    }

    fn unreadable(&self) -> Option<String> {
        (self.closed > 0).then(|| format!("{} folders may not be read", self.closed))
    }

    /// The next thing that is no folder.
    fn next(&mut self) -> Result<Option<(Name, PathBuf, FileMark)>, Fault> {
        while let Some(entries) = self.open.last_mut() {
            self.watch.check("looking at the files")?;
            let Some(entry) = entries.next() else {
                self.open.pop();
                continue;
            };
            let Ok(entry) = entry else {
                self.closed += 1;
                continue;
            };
            let path = entry.path();
            let Ok(mark) = FileMark::of(&path) else { continue };
            if mark.kind == MarkKind::Folder {
                if IGNORED.iter().any(|ignored| entry.file_name() == *ignored) {
                    self.ignored += 1;
                } else {
                    self.enter(&path);
                }
                continue;
            }
            if let Some(name) = name_below(self.top, &path) {
                return Ok(Some((name, path, mark)));
            }
        }
        Ok(None)
    }
}
