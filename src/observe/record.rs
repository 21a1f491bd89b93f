//! What an observation says, as it is stored and sent. Nothing here holds the content of a file.

use serde::{Deserialize, Serialize};

use super::names;

/// Most files in the short form.
pub const PACKET_FILES: usize = 12;
/// Most review targets.
pub const REVIEW_TARGETS: usize = 8;
/// Most files in a record; `count` counts all of them.
pub const RECORD_FILES: usize = 2_000;
/// Most commits, and most refs, in a record.
pub const RECORD_MOVES: usize = 50;

/// How far an observation got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Everything was looked at.
    Observed,
    /// A part was looked at; `reason` says which was not. What is listed did change.
    Truncated,
    /// Nothing is known; `reason` says why.
    #[default]
    NotObserved,
}

/// How a folder was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// By trees of git.
    Git,
    /// File by file.
    Folder,
}

/// How much a change deserves a look.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Tests, documents, comments, indentation, generated files.
    Low,
    /// Other source.
    Medium,
    /// What decides about authority, money, data, builds or later agents; what cannot be read line by line.
    High,
}

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content is another.
    Modified,
    /// It is gone.
    Deleted,
    /// It has another name, and perhaps other content.
    Renamed,
    /// Only whether it can be executed.
    Mode,
    /// It became something else: a link, a file, a repository.
    Type,
}

/// What a file is, after the change if it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// Lines of text.
    Text,
    /// Anything else that was read.
    Binary,
    /// A symbolic link.
    Symlink,
    /// A submodule, or another repository inside this one.
    Submodule,
    /// Too large to be read, or not readable: known by size and times only.
    Unread,
}

/// A file that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangedFile {
    /// Path from the working folder, with `/`. One outside of it begins with `../`.
    pub path: String,
    /// Where it was before a rename.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
    /// The paths hold bytes that are not UTF-8, as `\xNN`; a backslash in them is doubled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escaped: bool,
    /// What happened.
    pub change: ChangeKind,
    /// What it is.
    pub kind: FileKind,
    /// Lines added; none where lines were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insertions: Option<u64>,
    /// Lines removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletions: Option<u64>,
    /// At most five ranges of lines after the change, `10-28, 40-44`; `-` for a deleted file. Lines close to each
    /// other are in one range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<String>,
    /// How much it deserves a look.
    pub risk: Risk,
    /// Why, the weightiest first.
    pub reasons: Vec<String>,
}

impl ChangedFile {
    /// The exact bytes of its path.
    pub fn name(&self) -> Option<names::Name> {
        names::original(&self.path, self.escaped)
    }

    /// Lines added and removed.
    pub fn churn(&self) -> u64 {
        self.insertions.unwrap_or(0).saturating_add(self.deletions.unwrap_or(0))
    }
}

/// Where a reviewer looks first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReviewTarget {
    /// Path, as in the list of files.
    pub file: String,
    /// Ranges of lines, as there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<String>,
    /// How much it deserves a look.
    pub risk: Risk,
    /// Why.
    pub reason: String,
}

/// A value before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Pair<T> {
    /// Before the run; none if there was none.
    pub before: Option<T>,
    /// After it.
    pub after: Option<T>,
}

impl<T: PartialEq> Pair<T> {
    /// Whether the two differ.
    pub fn moved(&self) -> bool {
        self.before != self.after
    }
}

/// A commit that was not there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Commit {
    /// Object id.
    pub id: String,
    /// First line of its message, at most 120 characters.
    pub subject: String,
}

/// A branch, tag, stash or other ref that points elsewhere than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RefMoved {
    /// Full name.
    pub name: String,
    /// Object id before; none if it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Object id after; none if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What a status of the files does not show: what became of a repository's own records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Moves {
    /// Commit that is checked out.
    pub head: Pair<String>,
    /// Branch that is checked out; none while none is.
    pub branch: Pair<String>,
    /// Commits that were made or fetched, newest first, at most 50.
    pub commits: Vec<Commit>,
    /// Refs that moved, at most 50.
    pub refs_moved: Vec<RefMoved>,
    /// Whether something else is staged than before; none if that could not be told.
    pub staged_changed: Option<bool>,
    /// Git's own files that changed: config, hooks, excludes. They decide what git does later.
    pub control_changed: Vec<String>,
}

impl Moves {
    /// Whether anything moved. What could not be told counts as unmoved here.
    pub fn any(&self) -> bool {
        self.head.moved()
            || self.branch.moved()
            || !self.commits.is_empty()
            || !self.refs_moved.is_empty()
            || self.staged_changed == Some(true)
            || !self.control_changed.is_empty()
    }
}

/// A repository inside the observed one in which something moved. Its files are among the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InnerRepository {
    /// Its folder, as in the list of files.
    pub path: String,
    /// What moved.
    #[serde(flatten)]
    pub moves: Moves,
}

/// A lock file of git that lay there at the end. None of them is the observation's, and none is removed by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LockSeen {
    /// Its path.
    pub path: String,
    /// Whether it lay there already before the run.
    pub before: bool,
}

/// Changes outside of the working folder, in the repository around it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Outside {
    /// Number of files.
    pub count: u64,
    /// The files, the riskiest first.
    pub files: Vec<ChangedFile>,
}

/// How many entries a list lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LeftOut {
    /// Of `files`.
    pub files: u64,
    /// Of `outside.files`.
    pub outside: u64,
    /// Of `review`.
    pub review: u64,
    /// Of `commits`.
    pub commits: u64,
    /// Of `refs_moved`.
    pub refs: u64,
}

/// A patch that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PatchEnd {
    /// Its size.
    pub bytes: u64,
    /// SHA-256, lower hexadecimal.
    pub sha256: String,
    /// It was cut at its limit, behind a whole file: it can be applied and lacks the rest.
    pub truncated: bool,
    /// Changed files that are not in it because they were not read.
    pub unread: u64,
}

/// What a run really changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Observation {
    /// How far it got.
    pub status: Status,
    /// Why it did not get further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How it looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Files in the working folder that changed, all of them.
    pub count: u64,
    /// The files, the riskiest first, at most 2,000.
    pub files: Vec<ChangedFile>,
    /// Lines added in text files of the working folder.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// What changed around the working folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<Outside>,
    /// What became of the repository's own records.
    #[serde(flatten)]
    pub moves: Moves,
    /// Submodules and other repositories inside, as far as something moved in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<InnerRepository>,
    /// Ignored entries; a folder that is ignored as a whole is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<Pair<u64>>,
    /// Locks of git that lie there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockSeen>,
    /// The highest risk of all that changed; none if nothing did.
    pub risk: Option<Risk>,
    /// Where to look first, at most eight.
    pub review: Vec<ReviewTarget>,
    /// How many entries the lists lack.
    pub left_out: LeftOut,
    /// What else has to be known to read this rightly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The patch that was kept, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<PatchEnd>,
    /// How long both looks took together, in milliseconds.
    pub took_ms: u64,
}

impl Observation {
    /// One that knows nothing but why.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::default() }
    }

    /// Whether anything changed, ignored files by their number only. `None`: nobody knows, which is never "no".
    pub fn changed(&self) -> Option<bool> {
        if self.status == Status::NotObserved {
            return None;
        }
        let changed = self.count > 0
            || self.outside.as_ref().is_some_and(|outside| outside.count > 0)
            || self.moves.any()
            || !self.repositories.is_empty()
            || self.ignored.as_ref().is_some_and(Pair::moved);
        match self.status {
            _ if changed => Some(true),
            Status::Observed if self.kind == Some(Kind::Folder) || self.moves.staged_changed.is_some() => {
                Some(false)
            }
            _ => None,
        }
    }

    /// The short form.
    pub fn packet(&self) -> Packet {
        let files: Vec<ChangedFile> = self.files.iter().take(PACKET_FILES).cloned().collect();
        let lacking = self.count.saturating_sub(u64::try_from(files.len()).unwrap_or(u64::MAX));
        Packet {
            status: self.status,
            reason: self.reason.clone(),
            count: self.count,
            outside: self.outside.as_ref().map_or(0, |outside| outside.count),
            insertions: self.insertions,
            deletions: self.deletions,
            files,
            risk: self.risk,
            review: self.review.clone(),
            truncated: Truncated { files: lacking, review: self.left_out.review },
        }
    }
}

/// An observation short enough for a model to read: at most 12 files and 8 review targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Packet {
    /// How far it got.
    pub status: Status,
    /// Why it did not get further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Files that changed, all of them.
    pub count: u64,
    /// Files that changed around the working folder.
    pub outside: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// The riskiest files.
    pub files: Vec<ChangedFile>,
    /// The highest risk of all.
    pub risk: Option<Risk>,
    /// Where to look first.
    pub review: Vec<ReviewTarget>,
    /// What the lists lack.
    pub truncated: Truncated,
}

/// How many entries a packet lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Truncated {
    /// Of `files`.
    pub files: u64,
    /// Of `review`.
    pub review: u64,
}

/// What a worker says it changed, held against what was observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClaimCheck {
    /// Claimed, and not observed.
    pub not_observed: Vec<String>,
    /// Observed, and not claimed; at most 50.
    pub not_claimed: Vec<String>,
}

impl ClaimCheck {
    /// Whether the two agree.
    pub fn agrees(&self) -> bool {
        self.not_observed.is_empty() && self.not_claimed.is_empty()
    }
}

impl Observation {
    /// Holds a worker's list of files (paths from the working folder, or absolute ones below `folder`) against what was
    /// observed. `None` if not everything was observed: then nobody can be held to it.
    pub fn check_claims(&self, folder: &std::path::Path, claimed: &[String]) -> Option<ClaimCheck> {
        if self.status != Status::Observed || self.left_out.files > 0 {
            return None;
        }
        let plain = |path: &String| {
            let below = std::path::Path::new(path).strip_prefix(folder).ok().and_then(|path| path.to_str());
            let path = below.unwrap_or(path).replace('\\', "/");
            path.strip_prefix("./").unwrap_or(&path).to_owned()
        };
        let claimed: Vec<String> = claimed.iter().map(plain).collect();
        let outside = self.outside.iter().flat_map(|outside| &outside.files);
        let all: Vec<&ChangedFile> = self.files.iter().chain(outside).collect();
        let is = |file: &ChangedFile, path: &str| file.path == path || file.old_path.as_deref() == Some(path);
        let mut check = ClaimCheck::default();
        for path in &claimed {
            if !all.iter().any(|file| is(file, path)) && !check.not_observed.contains(path) {
                check.not_observed.push(path.clone());
            }
        }
        let unclaimed = all.iter().filter(|file| !claimed.iter().any(|path| is(file, path)));
        check.not_claimed = unclaimed.take(RECORD_MOVES).map(|file| file.path.clone()).collect();
        Some(check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> ChangedFile {
        ChangedFile {
            path: path.into(),
            old_path: None,
            escaped: false,
            change: ChangeKind::Modified,
            kind: FileKind::Text,
            insertions: Some(1),
            deletions: Some(0),
            lines: Some("1-1".into()),
            risk: Risk::Medium,
            reasons: vec![],
        }
    }

    #[test]
    fn unknown_is_never_unchanged() {
        let unknown = Observation::unknown("git took too long");
        assert_eq!(unknown.changed(), None);
        let seen =
            Observation { status: Status::Observed, kind: Some(Kind::Folder), ..Observation::default() };
        assert_eq!(seen.changed(), Some(false));
        assert_eq!(Observation { status: Status::Truncated, ..seen.clone() }.changed(), None);
        let some = Observation { status: Status::Truncated, count: 1, ..seen.clone() };
        assert_eq!(some.changed(), Some(true));
        let ignored = Some(Pair { before: Some(1), after: Some(2) });
        assert_eq!(Observation { ignored, ..seen.clone() }.changed(), Some(true));
        // In a repository what is staged belongs to it.
        let git = Observation { kind: Some(Kind::Git), ..seen };
        assert_eq!(git.changed(), None);
        let known = Moves { staged_changed: Some(false), ..Moves::default() };
        assert_eq!(Observation { moves: known, ..git }.changed(), Some(false));
    }

    #[test]
    fn a_claim_is_held_against_what_was_observed() {
        let seen = Observation {
            status: Status::Observed,
            count: 1,
            files: vec![file("b.txt")],
            ..Observation::default()
        };
        let folder = std::env::temp_dir();
        let check = seen.check_claims(&folder, &["a.txt".into(), "./a.txt".into()]).unwrap_or_default();
        assert_eq!((check.not_observed, check.not_claimed), (vec!["a.txt".into()], vec!["b.txt".into()]));
        let absolute = folder.join("b.txt").display().to_string();
        assert!(seen.check_claims(&folder, &[absolute]).is_some_and(|check| check.agrees()));
        let cut = Observation { status: Status::Truncated, ..seen };
        assert_eq!(cut.check_claims(&folder, &[]), None);
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let seen = Observation {
            status: Status::Observed,
            kind: Some(Kind::Git),
            count: 1,
            files: vec![file("Ünï/日本 \t\n\".txt")],
            moves: Moves {
                head: Pair { before: None, after: Some("a".into()) },
                refs_moved: vec![RefMoved {
                    name: "refs/stash".into(),
                    before: None,
                    after: Some("b".into()),
                }],
                ..Moves::default()
            },
            risk: Some(Risk::Medium),
            ..Observation::default()
        };
        let text = serde_json::to_string(&seen).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Observation>(&text).ok(), Some(seen));
    }
}
