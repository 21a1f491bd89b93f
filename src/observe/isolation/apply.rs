//! Putting a run's patch into the user's tree: all of it or nothing, whether that tree is clean or not.
//!
//! Each file is one of three, by its content: as the run found it, already as the run left it, or in conflict. One conflict
//! and nothing is written. The new content is made in a folder of ours first; then each file is replaced as a whole, and
//! only over the content that was looked at. The user's index, refs and config
//! are not touched, and no filter or hook runs.
//!
//! A run of this that dies leaves whole files, old or new; the next one does the rest.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::git::{Git, Input, Place};
use super::super::names::{Name, name_below, path_below, shown};
use super::super::repository::{Found, Repository};
use super::super::scratch::{OwnRepository, Scratch};
use super::super::tree::Sorted;
use super::super::watch::{Fault, Watch};
use super::super::{apart, patch};
use super::copy::copy_one;
use super::{DEADLINE, Failure, Setting, bench, limits, place};
use crate::digest;
use crate::platform::{self, FileMark, MarkKind, Replacement};

/// Conflicts that are named.
const NAMED: usize = 50;
/// Most output of git about a patch.
const MAX_WORDS: u64 = 64 << 20;

/// A file that stands in the way of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Conflict {
    /// Path from the top of the repository.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What became of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The tree has it all now, or would have.
    Applied {
        /// Files that were written or removed, or would be.
        written: Vec<String>,
        /// Files that were so already.
        already: usize,
    },
    /// Nothing was written.
    Conflicts(Vec<Conflict>),
    /// Nothing was written: these lie outside of the workspace.
    Outside(Vec<String>),
    /// These were written before somebody else changed the one of the conflict; the same call does the rest.
    Interrupted {
        /// Files that were written.
        written: Vec<String>,
        /// The one that changed meanwhile.
        conflict: Conflict,
    },
}

/// What to apply, and where.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The workspace, canonical.
    pub workspace: PathBuf,
    /// Top of the repository that the copy was made of.
    pub top: PathBuf,
    /// The whole patch.
    pub bytes: Vec<u8>,
    /// A folder for what lies somewhere meanwhile; made, and gone afterwards.
    pub scratch: PathBuf,
    /// Says only what would be.
    pub check_only: bool,
}

/// Applies a patch that [`Isolated::write_patch`](super::Isolated::write_patch) wrote.
///
/// # Errors
/// [`Failure`]; nothing was written then, but for a disk that fails in the middle.
pub fn apply(
    setting: &Setting,
    patch: Patch,
    cancelled: &mut dyn FnMut() -> Option<String>,
) -> Result<Outcome, Failure> {
    let watch = Watch::new(DEADLINE);
    let setting = setting.clone();
    Ok(apart(&watch, cancelled, move |watch| Applying::new(&setting, &patch, watch)?.run(&patch))?)
}

/// A patch's entries for one name.
#[derive(Debug, Default)]
struct Entry<'a> {
    pieces: Vec<&'a [u8]>,
    before: Content,
    after: Content,
}

type Entries<'a> = BTreeMap<Name, Entry<'a>>;

/// Mode and object id of a file; none where there is no file. The id is empty where the patch says only modes.
type Content = Option<(u32, String)>;

/// Modes of files as git has them.
const PLAIN: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;

impl Entry<'_> {
    /// Whether a file has the run's content and lacks only its mode: that is all the patch says, or all that a call which
    /// was cut off left to do.
    fn is_mode_alone(&self, now: Option<&(u32, String)>) -> bool {
        let (Some((mode, id)), Some((_, found))) = (&self.after, now) else { return false };
        matches!(*mode, PLAIN | PROGRAM) && (id.is_empty() || id == found)
    }
}

/// The conflict of a file that is neither as the run found it nor as it left it. Git would put a hunk elsewhere in such a
/// file if it could.
fn changed(name: &[u8], entry: &Entry<'_>, now: Option<&(u32, String)>) -> Option<Conflict> {
    let reason = match (&entry.before, now) {
        (None, None) => return None,
        (_, Some(_)) if entry.is_mode_alone(now) => return None,
        (before, now) if before.as_ref() == now => return None,
        (None, Some(_)) => "the run made this file, and there is another one now",
        (Some(_), None) => "the run changed this file, and it is gone",
        (Some(_), Some(_)) => "it was changed since the run began",
    };
    Some(Conflict { path: shown(name).0, reason: reason.to_owned() })
}

struct Applying<'a> {
    git: Git,
    real: Repository,
    own: OwnRepository,
    /// Gone with this.
    _scratch: Scratch,
    /// Where the new content is made.
    stage: PathBuf,
    watch: &'a Watch,
}

impl<'a> Applying<'a> {
    fn new(setting: &Setting, patch: &Patch, watch: &'a Watch) -> Result<Self, Fault> {
        let scratch = Scratch::create(&patch.scratch)?;
        let nothing = scratch.nothing();
        let git = Git::find(&setting.context, setting.mark.as_deref(), &nothing)?;
        let found = Repository::find(&git, &patch.workspace, watch)?;
        let Found::Repository(real) = found else {
            return Err(Fault::Refused(format!("{} is no repository any more", patch.workspace.display())));
        };
        if real.top != patch.top {
            return Err(Fault::Refused(format!(
                "{} is another repository than the one that the run worked on",
                patch.workspace.display()
            )));
        }
        let (own, known) = OwnRepository::create(&scratch.part(0), &real, &setting.context, &nothing)?;
        // Git was perhaps told not to look at some files.
        bench(&git, &real, &own, &limits(), watch).prepare(known.as_ref())?;
        let stage = scratch.part(1);
        platform::private::create_dir(&stage).map_err(|error| Fault::files("cannot make", &stage, &error))?;
        Ok(Self { git, real: *real, own, _scratch: scratch, stage, watch })
    }

    fn run(&self, patch: &Patch) -> Result<Outcome, Fault> {
        let mut entries = self.entries(&patch.bytes)?;
        let outside: Vec<String> = entries
            .keys()
            .filter(|name| !name.starts_with(&self.real.prefix))
            .take(NAMED)
            .map(|name| shown(name).0)
            .collect();
        if !outside.is_empty() {
            return Ok(Outcome::Outside(outside));
        }
        let now = self.contents(entries.keys())?;
        let all = entries.len();
        entries.retain(|name, entry| now.get(name) != entry.after.as_ref());
        let mut conflicts: Vec<Conflict> = entries
            .iter()
            .filter_map(|(name, entry)| {
                self.blocked(name, &entries).or_else(|| changed(name, entry, now.get(name)))
            })
            .collect();
        if !conflicts.is_empty() {
            conflicts.truncate(NAMED);
            return Ok(Outcome::Conflicts(conflicts));
        }
        let written: Vec<String> = entries.keys().map(|name| shown(name).0).collect();
        let already = all - entries.len();
        let (modes, contents): (Entries<'_>, Entries<'_>) =
            entries.into_iter().partition(|(name, entry)| entry.is_mode_alone(now.get(name)));
        let mut seen = BTreeMap::new();
        for name in contents.keys() {
            self.watch.check("copying the files that change")?;
            seen.insert(name.clone(), self.take(name)?);
        }
        if !contents.is_empty() {
            let whole: Vec<u8> = contents.values().flat_map(|entry| entry.pieces.concat()).collect();
            self.git_apply(&[], &whole)?;
        }
        if patch.check_only {
            return Ok(Outcome::Applied { written, already });
        }
        for (name, entry) in &modes {
            self.set_executable(name, entry)?;
        }
        self.put(&contents, &seen, written, already)
    }

    fn place(&self) -> Place<'_> {
        place(&self.own, &self.stage)
    }

    fn git_apply(&self, options: &[&str], patch: &[u8]) -> Result<Vec<u8>, Fault> {
        let args: Vec<&str> = ["apply", "--whitespace=nowarn"]
            .into_iter()
            .chain(options.iter().copied())
            .chain(["-"])
            .collect();
        let input = Input { stdin: patch.to_vec(), ..Input::default() };
        let mut answer = Vec::new();
        let done = self.git.work(&self.place(), &args, input, MAX_WORDS, &mut answer, self.watch)?;
        if done.cut {
            return Err(Fault::Refused("git says too much about the patch".into()));
        }
        Ok(answer)
    }

    /// What the patch says of each file.
    fn entries<'p>(&self, patch: &'p [u8]) -> Result<Entries<'p>, Fault> {
        let odd = || Fault::Refused("the patch is none that a run of this program leaves".into());
        let pieces = patch::files_of(patch).ok_or_else(odd)?;
        let listed = self.git_apply(&["--numstat", "-z"], patch)?;
        let names: Vec<&[u8]> = listed
            .split(|byte| *byte == 0)
            .filter(|record| !record.is_empty())
            .map(|record| record.splitn(3, |byte| *byte == b'\t').nth(2).unwrap_or_default())
            .collect();
        if names.len() != pieces.len() {
            return Err(odd());
        }
        let mut entries: Entries<'p> = BTreeMap::new();
        for (name, piece) in names.into_iter().zip(pieces) {
            let plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
            if !name.split(|byte| *byte == b'/').all(plain) || path_below(&self.real.top, name).is_none() {
                return Err(odd());
            }
            let (before, after) = patch::sides_of(piece).ok_or_else(odd)?;
            let entry = entries.entry(name.to_vec()).or_default();
            // A file that became a link is one that is gone and one that is new.
            if entry.pieces.is_empty() {
                entry.before = before;
            }
            entry.after = after;
            entry.pieces.push(piece);
        }
        Ok(entries)
    }

    /// What the files are now, in the form in which git would keep them.
    fn contents<'n>(
        &self,
        names: impl Iterator<Item = &'n Name>,
    ) -> Result<BTreeMap<Name, (u32, String)>, Fault> {
        let limits = limits();
        let bench = bench(&self.git, &self.real, &self.own, &limits, self.watch);
        let mut sorted = Sorted::default();
        for name in names {
            let kind = self.mark(name).map(|mark| mark.kind);
            match kind {
                Some(MarkKind::File | MarkKind::Link) => sorted.add.push(name.clone()),
                // Whatever the index still says of it.
                _ => sorted.remove.push(name.clone()),
            }
        }
        let wanted = sorted.add.clone();
        bench.update(&self.own.index, &mut sorted)?;
        let found = bench.entries(&self.own.index, &wanted)?;
        let mut contents: BTreeMap<Name, (u32, String)> =
            found.into_iter().map(|(mode, id, name)| (name, (mode, id))).collect();
        // There, but not to be read: it is nothing that a patch could want.
        contents.extend(sorted.marked.into_keys().map(|name| (name, (0, String::new()))));
        Ok(contents)
    }

    /// What lies at a name, if no folder above it is a link.
    fn mark(&self, name: &[u8]) -> Option<FileMark> {
        let mut at = 0;
        while let Some(step) = name[at..].iter().position(|byte| *byte == b'/') {
            let folder = path_below(&self.real.top, &name[..at + step])?;
            if FileMark::of(&folder).ok()?.kind != MarkKind::Folder {
                return None;
            }
            at += step + 1;
        }
        FileMark::of(&path_below(&self.real.top, name)?).ok()
    }

    /// Copies a file, and the rules for its line ends, to where the new content is made.
    fn take(&self, name: &Name) -> Result<Seen, Fault> {
        let (Some(from), Some(to)) = (path_below(&self.real.top, name), path_below(&self.stage, name)) else {
            return Err(Fault::Refused(format!("{} is no name here", shown(name).0)));
        };
        let failed = |error: std::io::Error| Fault::files("cannot copy", &from, &error);
        let kind = self.mark(name).map(|mark| mark.kind);
        if matches!(kind, Some(MarkKind::File | MarkKind::Link)) {
            platform::private::create_dir(to.parent().unwrap_or(&self.stage)).map_err(failed)?;
        }
        let mut end = 0;
        loop {
            let folder = &name[..end];
            let rules = [folder, if end == 0 { b"" } else { b"/" }, b".gitattributes"].concat();
            if let (Some(from), Some(to)) =
                (path_below(&self.real.top, &rules), path_below(&self.stage, &rules))
                && self.mark(&rules).is_some_and(|mark| mark.kind == MarkKind::File)
                && !to.exists()
            {
                platform::private::create_dir(to.parent().unwrap_or(&self.stage)).map_err(failed)?;
                copy_one(&from, &to).map_err(|error| Fault::files("cannot copy", &from, &error))?;
            }
            match name[end + usize::from(end > 0)..].iter().position(|byte| *byte == b'/') {
                Some(step) => end += step + usize::from(end > 0),
                None => break,
            }
        }
        match kind {
            Some(MarkKind::Link) => {
                let target = fs::read_link(&from).map_err(failed)?;
                platform::make_link(&target, &to).map_err(failed)?;
                Ok(Seen::Link(target))
            }
            Some(MarkKind::File) => {
                if !to.exists() {
                    copy_one(&from, &to).map_err(failed)?;
                }
                let (sha256, _) = digest::of_file(&to).map_err(failed)?;
                Ok(Seen::File(sha256))
            }
            // A folder is empty when the file is written.
            _ => Ok(Seen::Nothing),
        }
    }

    /// Something other than a file where a file, or a folder above it, has to be.
    fn blocked(&self, name: &Name, entries: &Entries<'_>) -> Option<Conflict> {
        let conflict = |reason: &str| Some(Conflict { path: shown(name).0, reason: reason.to_owned() });
        let kind_of = |name: &[u8]| {
            path_below(&self.real.top, name).and_then(|path| FileMark::of(&path).ok()).map(|mark| mark.kind)
        };
        match self.mark(name).map(|mark| mark.kind) {
            Some(MarkKind::Folder) if !self.is_emptied(name, entries) => {
                return conflict("a folder with other files is in its place");
            }
            Some(MarkKind::Other) => return conflict("something that is no file is in its place"),
            _ => {}
        }
        for (at, _) in name.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let goes = |folder: &[u8]| entries.get(folder).is_some_and(|entry| entry.after.is_none());
            match kind_of(&name[..at]) {
                Some(MarkKind::Folder) => {}
                Some(_) if !goes(&name[..at]) => return conflict("something that is no folder is above it"),
                _ => break,
            }
        }
        None
    }

    /// Whether the patch removes all that is in a folder.
    fn is_emptied(&self, name: &[u8], entries: &Entries<'_>) -> bool {
        let Some(folder) = path_below(&self.real.top, name) else { return false };
        walkdir::WalkDir::new(folder).into_iter().all(|found| {
            let Ok(found) = found else { return false };
            let goes = || {
                name_below(&self.real.top, found.path())
                    .and_then(|name| entries.get(&name))
                    .is_some_and(|entry| entry.after.is_none())
            };
            found.file_type().is_dir() || goes()
        })
    }

    /// Moves what was made into the tree. Removals come first: a folder may have to make way for a file.
    fn put(
        &self,
        entries: &Entries<'_>,
        seen: &BTreeMap<Name, Seen>,
        written: Vec<String>,
        already: usize,
    ) -> Result<Outcome, Fault> {
        let (gone, new): (Vec<&Name>, Vec<&Name>) = entries
            .keys()
            .partition(|name| path_below(&self.stage, name).is_none_or(|path| made(&path).is_none()));
        let mut done = Vec::new();
        for name in gone.into_iter().rev().chain(new) {
            let before = seen.get(name).unwrap_or(&Seen::Nothing);
            let written = self.put_one(name, before)?;
            if written && let Some(entry) = entries.get(name) {
                self.set_executable(name, entry)?;
            }
            if !written {
                let reason = "somebody changed it while the patch was applied".to_owned();
                let conflict = Conflict { path: shown(name).0, reason };
                return Ok(match done.is_empty() {
                    true => Outcome::Conflicts(vec![conflict]),
                    false => Outcome::Interrupted { written: done, conflict },
                });
            }
            done.push(shown(name).0);
        }
        Ok(Outcome::Applied { written, already })
    }

    /// One file; false if it is not any more what was looked at.
    fn put_one(&self, name: &Name, before: &Seen) -> Result<bool, Fault> {
        let (Some(from), Some(to)) = (path_below(&self.stage, name), path_below(&self.real.top, name)) else {
            return Ok(false);
        };
        let failed = |error: std::io::Error| Fault::files("cannot write", &to, &error);
        let refused = |error: platform::PlatformError| Fault::Files(error.to_string());
        let new = made(&from);
        if new.is_some() {
            self.make_folders(name)?;
        }
        // A link, on either side, has no content to compare in the same step.
        let is_link = new.as_ref().is_some_and(fs::Metadata::is_symlink);
        if is_link || matches!(before, Seen::Link(_)) {
            if self.look(name, &to) != Some(before.clone()) {
                return Ok(false);
            }
            match &new {
                None => {
                    fs::remove_file(&to).map_err(failed)?;
                    self.remove_empty_folders(name);
                }
                Some(_) if is_link => {
                    let target = fs::read_link(&from).map_err(failed)?;
                    platform::replace_by_link(&to, &target).map_err(failed)?;
                }
                Some(_) => {
                    let (bytes, mode) = (fs::read(&from).map_err(failed)?, platform::mode_of(&from));
                    platform::write_over_link(&to, &bytes, mode.unwrap_or(0o644)).map_err(refused)?;
                }
            }
            return Ok(true);
        }
        let expected = |content: Option<&[u8]>| match (before, content) {
            (Seen::File(sha256), Some(bytes)) => digest::of_bytes(bytes) == *sha256,
            (Seen::Nothing, None) => true,
            _ => false,
        };
        let bytes = match &new {
            Some(_) => Some(fs::read(&from).map_err(failed)?),
            None => None,
        };
        let how = Replacement {
            temporary: format!(".agent-bridge-{}.tmp", uuid::Uuid::new_v4().simple()),
            mode_if_new: platform::mode_of(&from).unwrap_or(0o644),
        };
        if !platform::replace_if(&to, bytes.as_deref(), &how, &expected).map_err(refused)? {
            return Ok(false);
        }
        if bytes.is_none() {
            self.remove_empty_folders(name);
        }
        Ok(true)
    }

    /// What lies there now, in the terms of [`Self::take`].
    fn look(&self, name: &Name, path: &Path) -> Option<Seen> {
        match self.mark(name).map(|mark| mark.kind) {
            None => Some(Seen::Nothing),
            Some(MarkKind::Link) => fs::read_link(path).ok().map(Seen::Link),
            Some(MarkKind::File) => digest::of_file(path).ok().map(|(sha256, _)| Seen::File(sha256)),
            Some(_) => None,
        }
    }

    /// The patch may say that a file becomes a program, or stops being one. Who else may read it stays as it was.
    fn set_executable(&self, name: &Name, entry: &Entry<'_>) -> Result<(), Fault> {
        let (Some(path), Some((mode, _))) = (path_below(&self.real.top, name), &entry.after) else {
            return Ok(());
        };
        match *mode {
            PLAIN | PROGRAM => platform::set_executable(&path, *mode == PROGRAM)
                .map_err(|error| Fault::files("cannot write", &path, &error)),
            _ => Ok(()),
        }
    }

    fn make_folders(&self, name: &[u8]) -> Result<(), Fault> {
        for (at, _) in name.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let Some(folder) = path_below(&self.real.top, &name[..at]) else { continue };
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(Fault::files("cannot make", &folder, &error));
                }
                _ => {}
            }
            // Never through a link.
            if !FileMark::of(&folder).is_ok_and(|mark| mark.kind == MarkKind::Folder) {
                return Err(Fault::Refused(format!("{} is no folder", folder.display())));
            }
        }
        Ok(())
    }

    /// As git does it: a folder goes with its last file.
    fn remove_empty_folders(&self, name: &[u8]) {
        let slashes: Vec<usize> =
            name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).collect();
        for at in slashes.into_iter().rev().filter(|at| *at >= self.real.prefix.len()) {
            let removed = path_below(&self.real.top, &name[..at]).map(fs::remove_dir);
            if !matches!(removed, Some(Ok(()))) {
                break;
            }
        }
    }
}

/// What was at a name when its content was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    /// By its digest.
    File(String),
    /// By where it leads.
    Link(PathBuf),
}

/// The new file or link at a place of the stage; a folder there has only others in it.
fn made(path: &Path) -> Option<fs::Metadata> {
    fs::symlink_metadata(path).ok().filter(|found| !found.is_dir())
}
