//! From what became of each repository, or of a folder, to one record of it all.

use std::path::Path;

use super::assess::{self, Seen};
use super::folder::FolderChange;
use super::joined;
use super::names::{self, Name};
use super::part::{Part, PartChange};
use super::record::{
    ChangeKind, ChangedFile, FileKind, InnerRepository, Kind, LockSeen, Observation, Outside, Pair,
    RECORD_FILES, ReviewTarget, Risk, Status,
};
use crate::platform::MarkKind;

/// Reasons that are shown for what was not looked at.
const LACKING: usize = 4;

/// The record of a folder that is in no repository.
pub(super) fn of_folder(change: FolderChange) -> Observation {
    let mut files = folder_files(&change);
    let mut observation = Observation { kind: Some(Kind::Folder), ..Observation::default() };
    let (before, after) = change.ignored;
    observation.ignored = Some(Pair { before: Some(before), after: Some(after) });
    put_files(&mut observation, &mut files, 0);
    put_review(&mut observation, &[]);
    put_status(&mut observation, change.lacking.into_iter().collect());
    observation
}

fn folder_files(change: &FolderChange) -> Vec<ChangedFile> {
    let file = |(name, what, is): &(Name, ChangeKind, MarkKind)| {
        let seen = Seen { path: name.clone(), old_path: None, outside: false };
        let (kind, why) = match is {
            MarkKind::Link => (FileKind::Symlink, "symbolic link"),
            MarkKind::File => (FileKind::Text, ""),
            MarkKind::Folder | MarkKind::Other => (FileKind::Unread, "no plain file"),
        };
        assess::without_lines(&seen, *what, kind, why)
    };
    change.changed.iter().map(file).collect()
}

/// The record of a repository and those inside of it. `plain`: the working folder, where the repository ignores it.
pub(super) fn of_repositories(
    changes: Vec<(&Part, PartChange)>,
    lacking: &[String],
    plain: Option<FolderChange>,
) -> Observation {
    let mut observation = Observation { kind: Some(Kind::Git), ..Observation::default() };
    let prefix = changes.first().map(|(part, _)| part.real.prefix.clone()).unwrap_or_default();
    let from = Viewpoint { prefix: &prefix };
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    let (mut more, mut ignored) = (0, Pair { before: Some(0), after: Some(0) });
    let mut lacking = lacking.to_vec();
    let mut targets = Vec::new();
    for (part, mut change) in changes {
        let mut add =
            |seen: &Seen, file: ChangedFile| if seen.outside { &mut outside } else { &mut inside }.push(file);
        for file in &change.files {
            let old = file.old_name.as_ref().map(|old| joined(&part.name, old));
            let seen = from.see(&joined(&part.name, &file.name), old.as_deref());
            add(&seen, assess::of_diff(file, &seen, change.formerly_unread.contains(&file.name)));
        }
        for (name, what) in &change.unread {
            let seen = from.see(&joined(&part.name, name), None);
            add(
                &seen,
                assess::without_lines(&seen, *what, FileKind::Unread, "not read: too large, or not readable"),
            );
        }
        for name in &change.new_repositories {
            let seen = from.see(&joined(&part.name, name), None);
            let why = "a new repository inside; its files are not listed";
            add(&seen, assess::without_lines(&seen, ChangeKind::Added, FileKind::Submodule, why));
        }
        let seen = from.see(&part.name, None);
        let is_listed = || change_is_listed(&seen.path, &inside, &outside);
        if change.gone && !is_listed() {
            let mut add =
                |file: ChangedFile| if seen.outside { &mut outside } else { &mut inside }.push(file);
            add(assess::without_lines(
                &seen,
                ChangeKind::Deleted,
                FileKind::Submodule,
                "a repository is gone",
            ));
        }
        more += change.more_files;
        for (total, one) in
            [(&mut ignored.before, change.ignored.before), (&mut ignored.after, change.ignored.after)]
        {
            *total = Some(total.unwrap_or(0) + one.unwrap_or(0));
        }
        let shown = names::shown(&from.see(&part.name, None).path).0;
        let within =
            |path: &str| if part.name.is_empty() { path.to_owned() } else { format!("{shown}/{path}") };
        for name in &mut change.moves.control_changed {
            *name = within(name);
            targets.push(ReviewTarget {
                file: name.clone(),
                lines: None,
                risk: Risk::High,
                reason: "Decides what git does later".into(),
            });
        }
        let locks = change.locks.iter().map(|(path, before)| {
            let lock = lock(&part.real.top, path, *before);
            if lock.path.starts_with(".git/") { LockSeen { path: within(&lock.path), ..lock } } else { lock }
        });
        observation.locks.extend(locks);
        observation.left_out.commits += change.more_commits;
        observation.left_out.refs += change.more_refs;
        lacking.extend(part.lacking.iter().chain(&change.lacking).cloned());
        observation.notes.append(&mut change.notes);
        if part.name.is_empty() {
            observation.moves = change.moves;
        } else if change.moves.any() {
            observation.repositories.push(InnerRepository { path: shown, moves: change.moves });
        }
    }
    if let Some(plain) = plain {
        inside.extend(folder_files(&plain));
        let note = "the repository ignores the working folder, so that was looked at file by file";
        observation.notes.push(note.into());
        lacking.extend(plain.lacking);
    }
    observation.ignored = Some(ignored);
    put_files(&mut observation, &mut inside, more);
    if !prefix.is_empty() {
        assess::sort(&mut outside);
        let count = u64::try_from(outside.len()).unwrap_or(u64::MAX);
        outside.truncate(RECORD_FILES);
        observation.left_out.outside = count - u64::try_from(outside.len()).unwrap_or(count);
        observation.outside = Some(Outside { count, files: outside });
    }
    put_review(&mut observation, &targets);
    put_status(&mut observation, lacking);
    observation
}

/// A lock: below the top of its work tree by the path from there, else (in a linked one) by its whole path.
pub(super) fn lock(top: &Path, path: &Path, before: bool) -> LockSeen {
    let inside = path.strip_prefix(top).map(|path| path.to_string_lossy().replace('\\', "/"));
    LockSeen { path: inside.unwrap_or_else(|_| path.display().to_string()), before }
}

/// Whether something is said of that path already: a submodule that is gone is in its repository's own diff as well.
fn change_is_listed(path: &[u8], inside: &[ChangedFile], outside: &[ChangedFile]) -> bool {
    inside.iter().chain(outside).any(|file| file.name().as_deref() == Some(path))
}

/// Where paths are seen from: the working folder, as a name below the top that ends in `/`, or empty.
struct Viewpoint<'a> {
    prefix: &'a [u8],
}

impl Viewpoint<'_> {
    fn see(&self, name: &[u8], old: Option<&[u8]>) -> Seen {
        let outside = !name.starts_with(self.prefix);
        Seen { path: self.path(name), old_path: old.map(|old| self.path(old)), outside }
    }

    /// `../` for each folder that is not shared.
    fn path(&self, name: &[u8]) -> Name {
        let mut at = 0;
        while let Some(end) =
            self.prefix.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'/'))
        {
            let next = at + end + 1;
            if self.prefix.get(..next).is_none_or(|start| !name.starts_with(start)) {
                break;
            }
            at = next;
        }
        let up = self.prefix.get(at..).unwrap_or_default().iter().filter(|byte| **byte == b'/').count();
        [b"../".repeat(up).as_slice(), name.get(at..).unwrap_or_default()].concat()
    }
}

fn put_files(observation: &mut Observation, files: &mut Vec<ChangedFile>, more: u64) {
    assess::sort(files);
    let kept = u64::try_from(files.len()).unwrap_or(u64::MAX);
    observation.count = kept.saturating_add(more);
    observation.insertions = files.iter().filter_map(|file| file.insertions).sum();
    observation.deletions = files.iter().filter_map(|file| file.deletions).sum();
    files.truncate(RECORD_FILES);
    observation.left_out.files = observation.count - u64::try_from(files.len()).unwrap_or(0);
    observation.files = std::mem::take(files);
}

fn put_review(observation: &mut Observation, first: &[ReviewTarget]) {
    let outside = observation.outside.iter().flat_map(|outside| &outside.files);
    let mut all: Vec<&ChangedFile> = outside.chain(&observation.files).collect();
    // Stable, so the outside ones stay before others of the same risk.
    all.sort_by_key(|file| std::cmp::Reverse(file.risk));
    let highest = all.iter().map(|file| file.risk).chain(first.iter().map(|target| target.risk)).max();
    let (review, left) = assess::review(first.to_vec(), &all);
    let unlisted = observation.left_out.files + observation.left_out.outside;
    observation.risk = highest;
    observation.review = review;
    observation.left_out.review = left + unlisted;
}

fn put_status(observation: &mut Observation, mut lacking: Vec<String>) {
    lacking.dedup();
    observation.status = if lacking.is_empty() { Status::Observed } else { Status::Truncated };
    let more = lacking.len().saturating_sub(LACKING);
    lacking.truncate(LACKING);
    if more > 0 {
        lacking.push(format!("and {more} more"));
    }
    observation.reason = (!lacking.is_empty()).then(|| lacking.join("; "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_seen_from_the_working_folder() {
        let path = |prefix: &str, name: &str| {
            String::from_utf8(Viewpoint { prefix: prefix.as_bytes() }.path(name.as_bytes()))
                .unwrap_or_default()
        };
        assert_eq!(path("", "a/b"), "a/b");
        assert_eq!(path("a/", "a/b"), "b");
        assert_eq!(path("a/b/", "a/c"), "../c");
        assert_eq!(path("a/b/", "ab/c"), "../../ab/c");
        assert_eq!(path("a/b/", "x"), "../../x");
        assert!(Viewpoint { prefix: b"a/" }.see(b"ab", None).outside);
    }
}
