//! One repository, looked at twice.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::Limits;
use super::diff::{DiffReader, FileDiff};
use super::git::{Git, Input, PLAIN_DIFF, Place};
use super::index;
use super::names::{Name, path_below};
use super::record::{ChangeKind, Commit, Moves, Pair, RECORD_MOVES};
use super::refs::{self, Refs};
use super::repository::Repository;
use super::scratch::{IndexBytes, OwnRepository, read_index};
use super::tree::{Bench, Room, staged_copy};
use super::watch::{Fault, Watch};
use crate::context::Context;
use crate::platform::FileMark;

/// Most output of a diff.
const MAX_DIFF: u64 = 64 << 20;
/// Files that could have been renamed and changed at once, tried against each other.
const RENAMES: &str = "-l400";

/// The first look at a repository.
#[derive(Debug)]
pub(super) struct Part {
    /// Where it lies below the top of the first one; empty for that.
    pub(super) name: Name,
    pub(super) real: Repository,
    pub(super) own: OwnRepository,
    /// Files known by their marks.
    marked: BTreeMap<Name, FileMark>,
    /// Files that git was told not to look at, which are not there.
    absent: Vec<Name>,
    /// Repositories inside: those that the index knows, then others.
    pub(super) inner: Vec<Name>,
    ignored: u64,
    /// Untracked files that were not looked at, beyond the last one that was.
    beyond: u64,
    /// When the look began, in nanoseconds since 1970.
    began_ns: i128,
    refs: Refs,
    head: Head,
    control: BTreeMap<String, String>,
    locks: Vec<PathBuf>,
    staged: String,
    /// Of the real index, taken before it was read.
    index_mark: Option<FileMark>,
    /// What was not looked at.
    pub(super) lacking: Vec<String>,
}

/// What is checked out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Head {
    commit: Option<String>,
    branch: Option<String>,
}

/// What became of one repository.
#[derive(Default)]
pub(super) struct PartChange {
    pub(super) files: Vec<FileDiff>,
    /// Files beyond those.
    pub(super) more_files: u64,
    /// Changes of files that were not read.
    pub(super) unread: Vec<(Name, ChangeKind)>,
    /// Files of `files` whose former content was not kept.
    pub(super) formerly_unread: BTreeSet<Name>,
    /// Repositories that are new.
    pub(super) new_repositories: Vec<Name>,
    pub(super) moves: Moves,
    pub(super) more_commits: u64,
    pub(super) more_refs: u64,
    pub(super) ignored: Pair<u64>,
    /// With whether they lay there before.
    pub(super) locks: Vec<(PathBuf, bool)>,
    /// What was not looked at.
    pub(super) lacking: Vec<String>,
    /// What a patch is made from; none if nothing changed.
    pub(super) trees: Option<(String, String)>,
    /// What else is to be known.
    pub(super) notes: Vec<String>,
    /// The repository is not there any more.
    pub(super) gone: bool,
}

impl PartChange {
    /// Of a repository that is not there any more.
    pub(super) fn gone() -> Self {
        Self { gone: true, ..Self::default() }
    }
}

/// What the looks at all repositories share.
pub(super) struct Tools<'a> {
    pub(super) git: &'a Git,
    pub(super) context: &'a Context,
    pub(super) nothing: &'a Path,
    pub(super) limits: &'a Limits,
    pub(super) watch: &'a Watch,
}

impl Tools<'_> {
    fn bench<'b>(&'b self, real: &'b Repository, own: &'b OwnRepository) -> Bench<'b> {
        Bench { git: self.git, real, own, limits: self.limits, watch: self.watch }
    }

    fn refs(&self, real: &Repository) -> Result<Refs, Fault> {
        let count = format!("--count={}", refs::MOST);
        let args = ["for-each-ref", &count, refs::FORMAT];
        let answer = self.git.ask(&real.top, &args, Input::default(), self.watch)?;
        Refs::read(&answer).ok_or_else(|| {
            Fault::Refused("`git for-each-ref` printed something that is not understood".into())
        })
    }

    /// Where `HEAD` is. Git is asked only if that is no branch with a commit.
    fn head(&self, real: &Repository, refs: &Refs) -> Result<Head, Fault> {
        if let Some(current) = &refs.current {
            return Ok(Head { commit: refs.all.get(current).cloned(), branch: Some(short(current)) });
        }
        let ask = |args: &[&str]| {
            let input = Input { also_fine: &[1, 128], ..Input::default() };
            let answer = self.git.ask(&real.top, args, input, self.watch)?;
            let text = String::from_utf8_lossy(answer.trim_ascii()).into_owned();
            Ok::<_, Fault>(Some(text).filter(|text| !text.is_empty()))
        };
        let branch = ask(&["symbolic-ref", "-q", "HEAD"])?;
        let commit = match branch {
            Some(_) => None,
            None => ask(&["rev-parse", "-q", "--verify", "HEAD"])?,
        };
        Ok(Head { commit, branch: branch.as_deref().map(short) })
    }
}

fn short(name: &str) -> String {
    name.strip_prefix("refs/heads/").unwrap_or(name).to_owned()
}

impl Part {
    /// Looks at a repository for the first time.
    pub(super) fn look(
        tools: &Tools<'_>,
        real: Repository,
        name: Name,
        folder: &Path,
        room: &mut Room,
    ) -> Result<Self, Fault> {
        let began_ns = now_ns();
        let control = real.control();
        let locks = real.locks();
        let refs = tools.refs(&real)?;
        let head = tools.head(&real, &refs)?;
        let index_mark = FileMark::of(&real.index()).ok();
        let (own, known) = OwnRepository::create(folder, &real, tools.context, tools.nothing)?;
        if let Some(commit) = &head.commit {
            own.set_head(commit)?;
        }
        let bench = tools.bench(&real, &own);
        // Before our own git writes it anew.
        let staged = bench.staged(known.as_ref(), &own.index)?;
        let absent = bench.prepare(known.as_ref())?;
        let status = bench.status(&own.index)?;
        let mut sorted = bench.sort_out(&status.differing, &status.untracked, room)?;
        bench.update(&own.index, &mut sorted)?;
        let mut lacking = Vec::new();
        say_unreadable(&status, &mut lacking);
        let kept = status.differing.len() + status.untracked.len();
        let beyond = status.more_untracked + status.more_differing;
        if beyond > 0 || status.cut {
            let total = u64::try_from(kept).unwrap_or(u64::MAX).saturating_add(beyond);
            lacking.push(format!("only {kept} of {total} new and changed files were looked at"));
        }
        let mut inner: Vec<Name> = known.map(|known| known.repositories).unwrap_or_default();
        inner.retain(|name| path_below(&real.top, name).is_some_and(|path| path.join(".git").exists()));
        inner.append(&mut sorted.repositories);
        Ok(Self {
            name,
            own,
            marked: sorted.marked,
            absent,
            inner,
            ignored: status.ignored,
            beyond,
            began_ns,
            refs,
            head,
            control,
            locks,
            staged,
            index_mark,
            lacking,
            real,
        })
    }

    /// Looks at it again.
    pub(super) fn look_again(&self, tools: &Tools<'_>, room: &mut Room) -> Result<PartChange, Fault> {
        let (real, own) = (&self.real, &self.own);
        let mut change = PartChange::default();
        let refs = tools.refs(real)?;
        let head = tools.head(real, &refs)?;
        let bench = tools.bench(real, own);
        let (staged, staged_names) = self.staged_now(&bench)?;
        let changed_staging = staged != self.staged;

        let mut index = own.index.clone();
        if !self.absent.is_empty() {
            index = own.copy_index(&own.index, "index.shown")?;
            bench.unhide_present(&self.absent, &index)?;
        }
        let mut status = bench.status(&index)?;
        say_unreadable(&status, &mut change.lacking);
        change.ignored = Pair { before: Some(self.ignored), after: Some(status.ignored) };
        if changed_staging {
            add_staged(&mut status.untracked, &staged_names, &own.index, real.id_length);
        }
        self.compare_marks(&bench, &mut status, &mut change)?;
        let known: HashSet<&Name> = self.inner.iter().collect();
        let mut sorted = bench.sort_out(&status.differing, &status.untracked, room)?;
        let (_, new): (Vec<Name>, Vec<Name>) =
            std::mem::take(&mut sorted.repositories).into_iter().partition(|name| known.contains(name));
        change.new_repositories = new;
        let in_index: HashSet<&Name> = status.differing.iter().map(|it| &it.name).collect();
        let what =
            |name: &Name| if in_index.contains(name) { ChangeKind::Modified } else { ChangeKind::Added };
        let was = |change: &PartChange, name: &Name| change.formerly_unread.contains(name);
        if !sorted.add.is_empty() || !sorted.remove.is_empty() {
            let (before, after) = bench.two_trees(&own.index, &mut sorted)?;
            if after != before {
                self.diff(tools, &before, &after, &mut change)?;
                let any = !change.files.is_empty() || change.more_files > 0;
                change.trees = any.then_some((before, after));
            }
        }
        for name in sorted.marked.keys() {
            let kind = if was(&change, name) { ChangeKind::Modified } else { what(name) };
            change.unread.push((name.clone(), kind));
        }
        let seen: HashSet<Name> = change.files.iter().map(|file| file.name.clone()).collect();
        change.unread.retain(|(name, _)| !seen.contains(name));
        change.unread.sort_by(|one, other| one.0.cmp(&other.0));
        change.unread.dedup();
        let missing = status.more_untracked + status.more_differing;
        if missing > 0 || status.cut {
            let kept = status.differing.len() + status.untracked.len();
            change
                .lacking
                .push(format!("only {kept} new and changed files were looked at, {missing} more were not"));
        }
        self.moves(tools, refs, head, changed_staging, &mut change)?;
        for path in real.locks() {
            let before = self.locks.contains(&path);
            change.locks.push((path, before));
        }
        Ok(change)
    }

    /// A digest of what is staged now, and the staged names if they are at hand.
    fn staged_now(&self, bench: &Bench<'_>) -> Result<(String, Vec<Name>), Fault> {
        // Git puts a new file in its place whenever it writes one.
        if self.index_mark.is_some() && self.index_mark == FileMark::of(&self.real.index()).ok() {
            return Ok((self.staged.clone(), Vec::new()));
        }
        let Some(IndexBytes { bytes, .. }) = read_index(&self.real)? else {
            return Ok(("none".into(), Vec::new()));
        };
        let known = index::read(&bytes, self.real.id_length).ok_or_else(|| {
            Fault::Refused("the repository's index is of a form that is not known here".into())
        })?;
        let mut names = Vec::new();
        if known.shared {
            let copy = staged_copy(&self.own);
            self.own.copy_staged(&self.real, &bytes, &copy)?;
            return Ok((bench.staged(Some(&known), &copy)?, names));
        }
        let staged = bench.staged(Some(&known), &self.own.index)?;
        if staged != self.staged {
            let _ = index::each(&bytes, self.real.id_length, |entry| names.push(entry.path.to_vec()));
        }
        Ok((staged, names))
    }

    /// Files that are known by their marks are compared by them, and taken from the status where they are unchanged.
    fn compare_marks(
        &self,
        bench: &Bench<'_>,
        status: &mut super::status::StatusReader,
        change: &mut PartChange,
    ) -> Result<(), Fault> {
        let mut same: HashSet<&Name> = HashSet::new();
        let listed: HashSet<Name> =
            status.differing.iter().map(|it| &it.name).chain(&status.untracked).cloned().collect();
        for (name, before) in &self.marked {
            bench.watch.check("comparing large files")?;
            let now = path_below(&self.real.top, name).and_then(|path| FileMark::of(&path).ok());
            match now {
                Some(now) if now == *before => {
                    same.insert(name);
                }
                Some(_) => {
                    change.formerly_unread.insert(name.clone());
                    // Not listed: ignored now, or again as it is in the index.
                    if !listed.contains(name) {
                        change.unread.push((name.clone(), ChangeKind::Modified));
                    }
                }
                None => {
                    change.formerly_unread.insert(name.clone());
                    change.unread.push((name.clone(), ChangeKind::Deleted));
                }
            }
        }
        status.differing.retain(|it| !same.contains(&it.name));
        status.untracked.retain(|name| !same.contains(name));
        if self.beyond > 0 {
            // Which of these were there before is not known by name; the file system knows when they last changed.
            let top = &self.real.top;
            let is_old = |name: &Name| {
                path_below(top, name)
                    .and_then(|path| FileMark::of(&path).ok())
                    .is_some_and(|mark| mark.changed_ns < self.began_ns)
            };
            status.untracked.retain(|name| name.ends_with(b"/") || !is_old(name));
        }
        Ok(())
    }

    /// Away from the work tree, for what compares objects only.
    fn away<'a>(&'a self, tools: &'a Tools<'_>) -> Place<'a> {
        let (git_dir, index) = (&*self.own.git_dir, &*self.own.index);
        Place { git_dir, work_tree: tools.nothing, index, objects: Some(&self.own.objects) }
    }

    fn diff(
        &self,
        tools: &Tools<'_>,
        before: &str,
        after: &str,
        change: &mut PartChange,
    ) -> Result<(), Fault> {
        let mut reader = DiffReader::new(tools.limits.entries);
        let own = ["diff-tree", "-r", "-M", RENAMES, "-z", "--raw", "--numstat", "-p", "-U0"];
        let args = [&own[..], &PLAIN_DIFF, &[before, after]].concat();
        // No attribute in the work tree hides lines.
        let place = self.away(tools);
        let done = tools.git.work(&place, &args, Input::default(), MAX_DIFF, &mut reader, tools.watch)?;
        reader.finish(!done.cut);
        if reader.foreign {
            change.notes.push("git's diff is not wholly understood; some files have no lines".into());
        }
        if done.cut {
            change
                .notes
                .push(format!("more than {MAX_DIFF} bytes of changed lines; some files have no lines"));
        }
        change.more_files = reader.more;
        change.files = reader.files;
        Ok(())
    }

    fn moves(
        &self,
        tools: &Tools<'_>,
        refs: Refs,
        head: Head,
        staged_changed: bool,
        change: &mut PartChange,
    ) -> Result<(), Fault> {
        let mut moved = self.refs.moved(&refs);
        let mut tips: Vec<&str> = moved
            .iter()
            // A stash is a commit that nobody made for the history.
            .filter(|it| it.name != "refs/stash")
            .filter_map(|it| it.after.as_deref())
            .collect();
        tips.extend(head.commit.as_deref().filter(|_| head.commit != self.head.commit));
        if !tips.is_empty() {
            let (commits, more) = self.commits(tools, &tips)?;
            change.more_commits = u64::from(more);
            change.moves.commits = commits;
        }
        change.more_refs = u64::try_from(moved.len().saturating_sub(RECORD_MOVES)).unwrap_or(u64::MAX);
        moved.truncate(RECORD_MOVES);
        let control = self.real.control();
        let names: BTreeSet<&String> = self.control.keys().chain(control.keys()).collect();
        let other = |name: &&&String| self.control.get(**name) != control.get(**name);
        change.moves.control_changed = names.iter().filter(other).map(|name| (*name).clone()).collect();
        change.moves.refs_moved = moved;
        change.moves.head = Pair { before: self.head.commit.clone(), after: head.commit };
        change.moves.branch = Pair { before: self.head.branch.clone(), after: head.branch };
        change.moves.staged_changed = Some(staged_changed);
        Ok(())
    }

    /// Commits that can be reached now and could not be before.
    fn commits(&self, tools: &Tools<'_>, tips: &[&str]) -> Result<(Vec<Commit>, bool), Fault> {
        self.own.take_shallow(&self.real)?;
        let mut stdin = String::new();
        for tip in tips {
            stdin.push_str(&format!("{tip}^{{commit}}\n"));
        }
        for known in self.refs.all.values().chain(&self.head.commit) {
            stdin.push_str(&format!("^{known}\n"));
        }
        let most = format!("--max-count={}", RECORD_MOVES + 1);
        let args = [
            "log",
            "-z",
            "--format=%H%x09%s",
            "--no-show-signature",
            "--no-mailmap",
            "--ignore-missing",
            &most,
            "--stdin",
        ];
        let input = Input { stdin: stdin.into_bytes(), ..Input::default() };
        let place = self.away(tools);
        let mut answer = Vec::new();
        tools.git.work(&place, &args, input, MAX_DIFF, &mut answer, tools.watch)?;
        Ok(refs::read_commits(&answer))
    }
}

/// Files that were staged although they are ignored are seen as well.
fn add_staged(untracked: &mut Vec<Name>, staged: &[Name], known: &Path, id_length: usize) {
    let mut names: HashSet<Name> = untracked.iter().cloned().collect();
    if let Ok(bytes) = fs::read(known) {
        let _ = index::each(&bytes, id_length, |entry| {
            names.insert(entry.path.to_vec());
        });
    }
    untracked.extend(staged.iter().filter(|name| !names.contains(*name)).cloned());
}

fn say_unreadable(status: &super::status::StatusReader, lacking: &mut Vec<String>) {
    if status.unreadable {
        lacking.push("a folder may not be read".into());
    }
}

fn now_ns() -> i128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(0)
}
