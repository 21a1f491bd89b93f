//! Where a repository's refs point, before and after.

use std::collections::BTreeMap;

use super::record::{Commit, RECORD_MOVES, RefMoved};
use crate::agents::redaction;

/// Most refs that are compared.
pub(super) const MOST: usize = 100_000;
/// The format of `git for-each-ref` that [`Refs::read`] reads.
pub(super) const FORMAT: &str = "--format=%(HEAD)%(objectname) %(refname)";

/// Refs of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refs {
    /// Object ids by full name.
    pub all: BTreeMap<String, String>,
    /// The branch that is checked out, if it exists.
    pub current: Option<String>,
}

impl Refs {
    /// Reads lines of `%(HEAD)%(objectname) %(refname)`. A ref's name has no control characters, so lines are safe here.
    pub fn read(output: &[u8]) -> Option<Self> {
        let mut refs = Self::default();
        for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // A name that is not UTF-8 is shown with its bytes escaped, as file names are.
            let (line, _) = super::names::shown(line);
            let (mark, rest) = line.split_at_checked(1)?;
            let (id, name) = rest.split_once(' ')?;
            let is_id = matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_id || !name.starts_with("refs/") {
                return None;
            }
            if mark == "*" {
                refs.current = Some(name.to_owned());
            }
            refs.all.insert(name.to_owned(), id.to_owned());
        }
        Some(refs)
    }

    /// What moved between the two, by name.
    pub fn moved(&self, after: &Self) -> Vec<RefMoved> {
        let gone = self
            .all
            .iter()
            .filter(|(name, _)| !after.all.contains_key(*name))
            .map(|(name, id)| RefMoved { name: name.clone(), before: Some(id.clone()), after: None });
        let other =
            after.all.iter().filter(|(name, id)| self.all.get(*name) != Some(*id)).map(|(name, id)| {
                RefMoved { name: name.clone(), before: self.all.get(name).cloned(), after: Some(id.clone()) }
            });
        let mut moved: Vec<RefMoved> = gone.chain(other).collect();
        moved.sort_by(|one, other| one.name.cmp(&other.name));
        moved
    }
}

/// Reads what `git log -z --format=%H%x09%s` prints. The flag says that there were more than are kept.
pub(super) fn read_commits(output: &[u8]) -> (Vec<Commit>, bool) {
    let mut commits = Vec::new();
    let mut more = false;
    for record in output.split(|byte| *byte == 0).filter(|record| !record.is_empty()) {
        let text = String::from_utf8_lossy(record);
        let (id, subject) = text.split_once('\t').unwrap_or((&text, ""));
        if commits.len() == RECORD_MOVES {
            more = true;
            break;
        }
        commits.push(Commit { id: id.trim().to_owned(), subject: redaction::one_line(subject, 120) });
    }
    (commits, more)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn refs(lines: &[(&str, char, &str)]) -> Refs {
        let text: String = lines
            .iter()
            .map(|(mark, id, name)| format!("{mark}{} {name}\n", id.to_string().repeat(40)))
            .collect();
        Refs::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn new_gone_and_moved_refs_are_told() {
        let before =
            refs(&[("*", 'a', "refs/heads/main"), (" ", 'b', "refs/heads/old"), (" ", 'c', "refs/tags/x")]);
        let after =
            refs(&[(" ", 'd', "refs/heads/main"), ("*", 'a', "refs/heads/new"), (" ", 'c', "refs/tags/x")]);
        assert_eq!(before.current.as_deref(), Some("refs/heads/main"));
        assert_eq!(after.current.as_deref(), Some("refs/heads/new"));
        let moved = before.moved(&after);
        let seen: Vec<_> =
            moved.iter().map(|it| (&*it.name, it.before.is_some(), it.after.is_some())).collect();
        assert_eq!(
            seen,
            [
                ("refs/heads/main", true, true),
                ("refs/heads/new", false, true),
                ("refs/heads/old", true, false)
            ]
        );
        assert!(before.moved(&before).is_empty());
    }

    #[test]
    fn other_output_is_none() {
        for text in ["fatal: no\n", " abc refs/heads/x\n", "*\n", &format!(" {} HEAD\n", "a".repeat(40))] {
            assert_eq!(Refs::read(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Refs::read(b""), Some(Refs::default()));
    }

    #[test]
    fn commits_are_read_and_their_subjects_are_clean() {
        let output = b"aa\tfix: token=ghp_0123456789abcdef\x00bb\t\x00";
        let (commits, more) = read_commits(output);
        assert_eq!(commits.len(), 2);
        assert!(!commits[0].subject.contains("0123456789") && !more);
    }
}
