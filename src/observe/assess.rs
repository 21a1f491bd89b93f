//! From a change to what a reviewer is told of it: the risk, why, and where to look first.

use super::diff::FileDiff;
use super::index::GITLINK;
use super::names;
use super::paths::{self, Role};
use super::record::{ChangeKind, ChangedFile, FileKind, REVIEW_TARGETS, ReviewTarget, Risk};
use super::signals::Signal;

/// More changed lines than that are a risk of their own.
const MANY_LINES: u64 = 300;
/// Reasons of a review target.
const REASONS: usize = 3;
/// Type bits of a mode, and those of a symbolic link.
const TYPE: u32 = 0o170_000;
const LINK: u32 = 0o120_000;

/// Collects reasons; the highest risk counts.
struct Weighing {
    risk: Risk,
    reasons: Vec<(Risk, String)>,
}

impl Weighing {
    fn new() -> Self {
        Self { risk: Risk::Low, reasons: Vec::new() }
    }

    fn add(&mut self, risk: Risk, reason: impl Into<String>) {
        self.risk = self.risk.max(risk);
        self.reasons.push((risk, reason.into()));
    }

    fn finish(mut self) -> (Risk, Vec<String>) {
        // Stable: of the same weight the first one stays first.
        self.reasons.sort_by_key(|(risk, _)| std::cmp::Reverse(*risk));
        (self.risk, self.reasons.into_iter().map(|(_, reason)| reason).collect())
    }
}

/// Where a file lies seen from the working folder.
pub(super) struct Seen {
    /// Path to show.
    pub(super) path: names::Name,
    /// Path before a rename.
    pub(super) old_path: Option<names::Name>,
    /// It is not in the working folder.
    pub(super) outside: bool,
}

/// What a file's change is worth. `former_unread`: its content before was not kept, so lines say nothing.
pub(super) fn of_diff(file: &FileDiff, seen: &Seen, former_unread: bool) -> ChangedFile {
    let change = change_of(file, former_unread);
    let mode = if file.new_mode == 0 { file.old_mode } else { file.new_mode };
    let kind = match mode {
        GITLINK => FileKind::Submodule,
        mode if mode & TYPE == LINK => FileKind::Symlink,
        _ if file.binary => FileKind::Binary,
        _ => FileKind::Text,
    };
    let is_text = kind == FileKind::Text;
    let known = is_text && !former_unread;
    let lines = match change {
        ChangeKind::Deleted => Some("-".to_owned()),
        _ if known => file.ranges.text(),
        _ => None,
    };
    let mut weighing = Weighing::new();
    by_place(seen, file, change, &mut weighing);
    match kind {
        FileKind::Submodule => weighing.add(Risk::High, "another commit of a submodule"),
        FileKind::Symlink => weighing.add(Risk::High, "symbolic link"),
        FileKind::Binary => weighing.add(Risk::High, "binary"),
        FileKind::Text | FileKind::Unread => {}
    }
    if change == ChangeKind::Type {
        weighing.add(Risk::High, "became something else");
    }
    if file.old_mode != 0
        && file.new_mode != 0
        && file.old_mode != file.new_mode
        && change != ChangeKind::Type
    {
        weighing.add(Risk::High, "file mode");
    }
    if former_unread {
        weighing.add(Risk::High, "its former content was too large to keep");
    } else if is_text {
        by_lines(file, change, &mut weighing);
    }
    let (risk, reasons) = weighing.finish();
    let numbers = |number: Option<u64>| number.filter(|_| known);
    shown(
        seen,
        ChangedFile {
            path: String::new(),
            old_path: None,
            escaped: false,
            change,
            kind,
            insertions: numbers(file.insertions),
            deletions: numbers(file.deletions),
            lines,
            risk,
            reasons,
        },
    )
}

/// A change that is known by size and times only, or a repository that is new or gone.
pub(super) fn without_lines(seen: &Seen, change: ChangeKind, kind: FileKind, why: &str) -> ChangedFile {
    let mut weighing = Weighing::new();
    let class = paths::classify(&seen.path);
    if let Some(weighty) = class.weighty {
        weighing.add(Risk::High, weighty);
    }
    if seen.outside {
        weighing.add(Risk::High, "outside the working folder");
    }
    let (risk, word) = class.role.worth();
    match (kind, change) {
        (FileKind::Text, ChangeKind::Deleted) if class.role != Role::Document => {
            weighing.add(Risk::High, "deleted")
        }
        (FileKind::Text, ChangeKind::Deleted) => weighing.add(Risk::Low, "deleted"),
        (FileKind::Text, _) => weighing.add(risk, word),
        _ => weighing.add(Risk::High, why),
    }
    let (risk, reasons) = weighing.finish();
    let lines = (change == ChangeKind::Deleted).then(|| "-".to_owned());
    let file = ChangedFile {
        path: String::new(),
        old_path: None,
        escaped: false,
        change,
        kind,
        insertions: None,
        deletions: None,
        lines,
        risk,
        reasons,
    };
    shown(seen, file)
}

fn shown(seen: &Seen, file: ChangedFile) -> ChangedFile {
    let (mut path, path_escaped) = names::shown(&seen.path);
    let mut old = seen.old_path.as_deref().map(names::shown);
    let escaped = path_escaped || old.as_ref().is_some_and(|(_, escaped)| *escaped);
    if escaped {
        // One flag for both: the one that needs none gets its backslashes doubled as well.
        if !path_escaped {
            path = path.replace('\\', "\\\\");
        }
        old = old.map(|(text, done)| (if done { text } else { text.replace('\\', "\\\\") }, true));
    }
    ChangedFile { path, old_path: old.map(|(text, _)| text), escaped, ..file }
}

fn change_of(file: &FileDiff, former_unread: bool) -> ChangeKind {
    match file.status {
        b'A' if former_unread => ChangeKind::Modified,
        b'A' => ChangeKind::Added,
        b'D' => ChangeKind::Deleted,
        b'R' => ChangeKind::Renamed,
        b'T' => ChangeKind::Type,
        _ if file.old_id == file.new_id && file.old_mode != file.new_mode => ChangeKind::Mode,
        _ => ChangeKind::Modified,
    }
}

fn by_place(seen: &Seen, file: &FileDiff, change: ChangeKind, weighing: &mut Weighing) {
    let role = file.class.role;
    if let Some(weighty) = file.class.weighty {
        weighing.add(Risk::High, weighty);
    }
    // What it was called counts as much: a rename can take a file out of its role.
    if let Some(weighty) = file.old_name.as_deref().and_then(|old| paths::classify(old).weighty)
        && file.class.weighty.is_none()
    {
        weighing.add(Risk::High, weighty);
    }
    if seen.outside {
        weighing.add(Risk::High, "outside the working folder");
    }
    match (change, role) {
        (ChangeKind::Deleted, Role::Source) => weighing.add(Risk::High, "deleted"),
        (ChangeKind::Deleted, Role::Test) => weighing.add(Risk::High, "test deleted"),
        (ChangeKind::Deleted, Role::Document | Role::Generated) => weighing.add(Risk::Low, "deleted"),
        (ChangeKind::Renamed, Role::Source) => weighing.add(Risk::High, "renamed"),
        (ChangeKind::Renamed, Role::Test) => weighing.add(Risk::Medium, "renamed"),
        (ChangeKind::Renamed, Role::Document | Role::Generated) => weighing.add(Risk::Low, "renamed"),
        _ => {}
    }
}

fn by_lines(file: &FileDiff, change: ChangeKind, weighing: &mut Weighing) {
    let (role, facts) = (file.class.role, &file.facts);
    let is_test = role == Role::Test;
    let in_code = if is_test { Risk::Medium } else { Risk::High };
    if facts.secret {
        weighing.add(Risk::High, "secret-like content");
    }
    if change != ChangeKind::Deleted {
        if facts.gained(Signal::VerificationOff) {
            weighing.add(Risk::High, "verification switched off");
        }
        if facts.gained(Signal::DisabledTest) {
            weighing.add(Risk::High, "test disabled");
        }
        if facts.lost(Signal::Assertion) {
            weighing.add(if is_test { Risk::High } else { Risk::Medium }, "assertion removed");
        }
        if facts.gained(Signal::Programs) {
            weighing.add(in_code, "starts programs");
        }
        if facts.gained(Signal::Network) {
            weighing.add(in_code, "network call");
        }
        if facts.gained(Signal::CheckOff) {
            weighing.add(Risk::Medium, "check silenced");
        }
    }
    let lines = file.insertions.unwrap_or(0).saturating_add(file.deletions.unwrap_or(0));
    if lines > MANY_LINES {
        weighing.add(Risk::High, format!("{lines} changed lines"));
    }
    if lines > 0 && !file.read {
        weighing.add(Risk::High, "not read line by line");
    } else if matches!(change, ChangeKind::Deleted | ChangeKind::Renamed) && lines == 0 {
        // Said already.
    } else if facts.only_comments() {
        weighing.add(Risk::Low, "comments only");
    } else if facts.only_indentation() {
        weighing.add(Risk::Low, "indentation only");
    } else if !matches!(change, ChangeKind::Deleted | ChangeKind::Mode) {
        let (risk, word) = role.worth();
        weighing.add(risk, word);
    }
}

/// Puts the riskiest first: risk, then lines, then path.
pub(super) fn sort(files: &mut [ChangedFile]) {
    files.sort_by(|one, other| {
        (other.risk.cmp(&one.risk))
            .then_with(|| other.churn().cmp(&one.churn()))
            .then_with(|| one.path.cmp(&other.path))
    });
}

/// Where to look first: at most eight, out of files that are sorted. Also how many are not among them.
pub(super) fn review(first: Vec<ReviewTarget>, files: &[&ChangedFile]) -> (Vec<ReviewTarget>, u64) {
    let total = first.len() + files.len();
    let mut targets = first;
    targets.truncate(REVIEW_TARGETS);
    for file in files.iter().take(REVIEW_TARGETS - targets.len()) {
        targets.push(ReviewTarget {
            file: file.path.clone(),
            lines: file.lines.clone(),
            risk: file.risk,
            reason: sentence(&file.reasons),
        });
    }
    let left = u64::try_from(total - targets.len()).unwrap_or(u64::MAX);
    (targets, left)
}

/// `Implementation change`: the weightiest reasons, as one begins a line.
fn sentence(reasons: &[String]) -> String {
    let text = reasons.iter().take(REASONS).map(String::as_str).collect::<Vec<_>>().join("; ");
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}
