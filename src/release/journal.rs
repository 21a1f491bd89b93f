//! The journal: one file a transaction, one line a record, each line bound to the one before it by its
//! SHA-256, the first line of a file to the last one of the file before.
//!
//! A torn last line was never written. Everything that recovery needs is in these lines; what recovery may
//! not believe (a line that does not fit the chain) makes it stop.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clients::Hunk;
use super::layout::entries;
use super::{Layout, ReleaseError};
use crate::digest;
use crate::platform;

/// Largest journal that is read.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// What the very first record is bound to.
const NOTHING_BEFORE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Record {
    /// It begins.
    Begin {
        /// `cutover`, `install-release`, …
        operation: String,
        /// The operator's words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Its inputs, for people and for the launcher.
        facts: Value,
    },
    /// A phase was reached.
    Phase {
        /// Its name.
        phase: String,
        /// What was found.
        facts: Value,
    },
    /// A folder will be made below ROOT; undone by removing it.
    Create {
        /// Relative to ROOT.
        path: String,
    },
    /// A file will be replaced; undone by putting back what was there.
    Replace {
        /// Absolute.
        path: PathBuf,
        /// What is there; none if nothing is.
        before: Option<FileFacts>,
        /// What will be there; none if it will be removed.
        after: Option<FileFacts>,
        /// Where the old content is kept, relative to ROOT; none if there was none.
        backup: Option<String>,
        /// The client whose file it is: its other entries are not ours to put back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<String>,
        /// The places of it that were changed, for a client's file.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        patch: Vec<Hunk>,
    },
    /// The decision. From here on there is only forward.
    Commit {
        /// What is left to do, in order; each can be repeated.
        actions: Vec<Action>,
    },
    /// It is over.
    End {
        /// How.
        outcome: Outcome,
        /// Files that could not be put back, since somebody else had changed them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        conflicts: Vec<PathBuf>,
    },
}

/// What identifies the content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileFacts {
    /// SHA-256.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
}

impl FileFacts {
    /// Of a content.
    pub fn of(bytes: &[u8]) -> Self {
        Self { sha256: digest::of_bytes(bytes), bytes: bytes.len() as u64 }
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Everything is done.
    Committed,
    /// Everything is as before.
    Undone,
}

/// A step after the decision. Doing it twice is doing it once. Paths are relative to ROOT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Action {
    /// A file has this content.
    Put {
        /// The file.
        path: String,
        /// Its content.
        content: String,
        /// Unix permission bits.
        mode: u32,
    },
    /// A slot of the pointer has this content, written in place.
    Slot {
        /// 0 or 1.
        slot: usize,
        /// The bytes.
        content: String,
    },
    /// Something is moved within ROOT.
    Move {
        /// From where.
        from: String,
        /// To where; nothing is there.
        to: String,
    },
    /// What is at `to` goes to `aside`, and what is at `from` takes its place. All three lie in one folder.
    Exchange {
        /// The new one.
        from: String,
        /// The place.
        to: String,
        /// Where the old one goes; nothing is there.
        aside: String,
    },
    /// Everything below is read-only.
    Seal {
        /// The folder.
        path: String,
    },
    /// A file or folder is gone.
    Remove {
        /// It.
        path: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    seq: u64,
    txid: String,
    at: String,
    prev: String,
    #[serde(flatten)]
    record: Record,
}

/// What is known of one transaction.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// Its id, `000012-cutover`.
    pub txid: String,
    /// Its file.
    pub path: PathBuf,
    /// Its records with the time of each, UTC.
    pub records: Vec<(String, Record)>,
    /// SHA-256 of the last line.
    pub head: String,
    /// Bytes up to the end of the last whole line.
    valid_bytes: u64,
    /// What its first line is bound to.
    prev: String,
}

impl Transcript {
    /// How it ended, if it did.
    pub fn outcome(&self) -> Option<Outcome> {
        self.records.iter().rev().find_map(|(_, record)| match record {
            Record::End { outcome, .. } => Some(*outcome),
            _ => None,
        })
    }

    /// The decision, if it was taken.
    pub fn commit(&self) -> Option<&[Action]> {
        self.records.iter().find_map(|(_, record)| match record {
            Record::Commit { actions } => Some(actions.as_slice()),
            _ => None,
        })
    }

    /// What it was for.
    pub fn begin(&self) -> Option<(&str, Option<&str>, &Value)> {
        self.records.first().and_then(|(_, record)| match record {
            Record::Begin { operation, reason, facts } => {
                Some((operation.as_str(), reason.as_deref(), facts))
            }
            _ => None,
        })
    }
}

/// A journal that is written.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    txid: String,
    seq: u64,
    head: String,
    /// Length up to the last whole record.
    length: u64,
}

/// Whether an append can have reached the disk although it failed.
pub enum AppendError {
    /// It is not there.
    NotWritten(ReleaseError),
    /// It may be there.
    Unknown(ReleaseError),
}

impl AppendError {
    /// The failure itself.
    pub fn into_inner(self) -> ReleaseError {
        match self {
            Self::NotWritten(error) | Self::Unknown(error) => error,
        }
    }
}

impl Journal {
    /// A new file after all others.
    pub fn create(layout: &Layout, operation: &str) -> Result<Self, ReleaseError> {
        let last = transactions(layout)?.pop();
        let (number, head) = match last {
            None => (1, NOTHING_BEFORE.to_owned()),
            Some(path) => {
                let transcript = read(&path)?;
                (number_of(&path).unwrap_or(0) + 1, transcript.head)
            }
        };
        let txid = format!("{number:06}-{operation}");
        let path = layout.journal().join(format!("{txid}.jsonl"));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(ReleaseError::io("cannot create", &path))?;
        Ok(Self { file, path, txid, seq: 0, head, length: 0 })
    }

    /// Goes on with one that was cut off; a torn last line is removed.
    pub fn reopen(transcript: &Transcript) -> Result<Self, ReleaseError> {
        let path = transcript.path.clone();
        let failed = |source| ReleaseError::Io { step: "cannot go on with", path: path.clone(), source };
        let mut file = platform::open_patiently(OpenOptions::new().write(true), &path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() != transcript.valid_bytes {
            file.set_len(transcript.valid_bytes).map_err(failed)?;
        }
        file.seek(SeekFrom::Start(transcript.valid_bytes)).map_err(failed)?;
        Ok(Self {
            file,
            txid: transcript.txid.clone(),
            seq: transcript.records.len() as u64,
            head: transcript.head.clone(),
            length: transcript.valid_bytes,
            path,
        })
    }

    /// Waits until the disk has what was read from it: a process that was cut off may have written it only.
    pub fn sync(&self, layout: &Layout) -> Result<(), ReleaseError> {
        self.file.sync_data().map_err(ReleaseError::io("cannot sync", &self.path))?;
        sync_folder(layout)
    }

    /// The id of the transaction.
    pub fn txid(&self) -> &str {
        &self.txid
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a record and waits until the disk has it.
    pub fn append(&mut self, at: &str, record: Record) -> Result<(), AppendError> {
        let line = Line {
            seq: self.seq,
            txid: self.txid.clone(),
            at: at.to_owned(),
            prev: self.head.clone(),
            record,
        };
        let mut bytes = serde_json::to_vec(&line).map_err(|error| {
            AppendError::NotWritten(ReleaseError::io("cannot write", &self.path)(error.into()))
        })?;
        let head = digest::of_bytes(&bytes);
        bytes.push(b'\n');
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            let error = ReleaseError::io("cannot write", &self.path)(error);
            let taken_back = self
                .file
                .set_len(self.length)
                .and_then(|()| self.file.seek(SeekFrom::Start(self.length)))
                .and_then(|_| self.file.sync_data());
            return Err(match taken_back {
                Ok(()) => AppendError::NotWritten(error),
                Err(_) => AppendError::Unknown(error),
            });
        }
        self.length += bytes.len() as u64;
        self.seq += 1;
        self.head = head;
        Ok(())
    }
}

/// The journals of an installation, oldest first.
pub fn transactions(layout: &Layout) -> Result<Vec<PathBuf>, ReleaseError> {
    let paths = entries(&layout.journal())?;
    let mut found: Vec<_> = paths.into_iter().filter_map(|path| Some((number_of(&path)?, path))).collect();
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The transaction that was cut off, if one was. Only the last one can be.
pub fn unfinished(layout: &Layout) -> Result<Option<Transcript>, ReleaseError> {
    match transactions(layout)?.pop() {
        None => Ok(None),
        Some(path) => Ok(Some(read(&path)?).filter(|transcript| transcript.outcome().is_none())),
    }
}

/// Refuses to go on where an earlier transaction was cut off.
pub fn require_finished(layout: &Layout) -> Result<(), ReleaseError> {
    match unfinished(layout)? {
        None => Ok(()),
        Some(cut) => Err(ReleaseError::RecoveryNeeded { txid: cut.txid, root: layout.root().to_path_buf() }),
    }
}

/// Reads one journal.
pub fn read(path: &Path) -> Result<Transcript, ReleaseError> {
    let damaged = |why: String| ReleaseError::JournalDamaged { path: path.to_path_buf(), why };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(ReleaseError::io("cannot read", path))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(damaged("it is too large".into()));
    }
    let txid = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
    let mut transcript = Transcript {
        txid: txid.clone(),
        path: path.to_path_buf(),
        records: Vec::new(),
        head: NOTHING_BEFORE.to_owned(),
        valid_bytes: 0,
        prev: NOTHING_BEFORE.to_owned(),
    };
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { break };
        let last = transcript.valid_bytes + line.len() as u64 + 1 == bytes.len() as u64;
        let parsed: Line = match serde_json::from_slice(line) {
            Ok(parsed) => parsed,
            // Some file systems leave zeros or old bytes where a write was cut off.
            Err(_) if last => break,
            Err(error) => return Err(damaged(format!("line {}: {error}", transcript.records.len() + 1))),
        };
        if parsed.seq != transcript.records.len() as u64 || parsed.txid != txid {
            return Err(damaged(format!("line {} does not belong there", transcript.records.len() + 1)));
        }
        if parsed.seq == 0 {
            transcript.prev.clone_from(&parsed.prev);
        } else if parsed.prev != transcript.head {
            return Err(damaged(format!("line {} does not follow the one before", parsed.seq + 1)));
        }
        transcript.head = digest::of_bytes(line);
        transcript.valid_bytes += line.len() as u64 + 1;
        transcript.records.push((parsed.at, parsed.record));
    }
    // Of a file that was cut off before its first line, the head is not known; it binds to what was before.
    Ok(transcript)
}

/// Checks the chain over all journals; gives their transcripts.
pub fn verify_all(layout: &Layout) -> Result<Vec<Transcript>, ReleaseError> {
    let mut head = NOTHING_BEFORE.to_owned();
    let mut all = Vec::new();
    for path in transactions(layout)? {
        let transcript = read(&path)?;
        if transcript.records.is_empty() {
            all.push(transcript);
            continue;
        }
        if transcript.prev != head {
            return Err(ReleaseError::JournalDamaged {
                path,
                why: "it does not follow the journal before it".into(),
            });
        }
        head.clone_from(&transcript.head);
        all.push(transcript);
    }
    Ok(all)
}

/// Makes a new journal file itself survive a power cut.
pub fn sync_folder(layout: &Layout) -> Result<(), ReleaseError> {
    Ok(platform::sync_dir(&layout.journal())?)
}

fn number_of(path: &Path) -> Option<u64> {
    if path.extension()? != "jsonl" {
        return None;
    }
    let (number, operation) = path.file_stem()?.to_str()?.split_once('-')?;
    (number.len() >= 6 && !operation.is_empty()).then(|| number.parse().ok())?
}

/// Refuses JSON in which an object has the same key twice: serde would keep the last one in silence.
pub fn refuse_duplicate_keys(bytes: &[u8]) -> Result<(), String> {
    struct Unique;
    impl<'de> Deserialize<'de> for Unique {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(Visitor)
        }
    }
    struct Visitor;
    impl<'de> serde::de::Visitor<'de> for Visitor {
        type Value = Unique;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("JSON")
        }
        fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_unit<E>(self) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
            while items.next_element::<Unique>()?.is_some() {}
            Ok(Unique)
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut entries: A) -> Result<Unique, A::Error> {
            let mut seen = std::collections::HashSet::new();
            while let Some(key) = entries.next_key::<String>()? {
                entries.next_value::<Unique>()?;
                if !seen.insert(key.clone()) {
                    return Err(serde::de::Error::custom(format!("the key {key:?} occurs twice")));
                }
            }
            Ok(Unique)
        }
    }
    serde_json::from_slice::<Unique>(bytes).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn begun(layout: &Layout) -> Journal {
        let mut journal = Journal::create(layout, "test").unwrap();
        let begin = Record::Begin { operation: "test".into(), reason: None, facts: json!({}) };
        journal.append("t", begin).map_err(AppendError::into_inner).unwrap();
        journal
    }

    fn ended(journal: &mut Journal) {
        let end = Record::End { outcome: Outcome::Committed, conflicts: Vec::new() };
        journal.append("t", end).map_err(AppendError::into_inner).unwrap();
    }

    fn installation() -> (tempfile::TempDir, Layout) {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        layout.create().unwrap();
        (folder, layout)
    }

    #[test]
    fn a_torn_last_line_was_never_written_and_a_changed_one_is_damage() {
        let (_folder, layout) = installation();
        let mut journal = begun(&layout);
        ended(&mut journal);
        let path = journal.path().to_path_buf();
        let whole = std::fs::read(&path).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let records = read(&path).unwrap().records.len();
            assert_eq!(records, usize::from(cut >= first), "{cut} bytes");
        }
        let mut changed = whole.clone();
        changed[first - 10] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        assert!(matches!(read(&path), Err(ReleaseError::JournalDamaged { .. })));
    }

    #[test]
    fn journals_follow_each_other_and_go_on_after_a_cut() {
        let (_folder, layout) = installation();
        let mut first = begun(&layout);
        ended(&mut first);
        let second = begun(&layout);
        assert_eq!(second.txid(), "000002-test");
        let cut = unfinished(&layout).unwrap().unwrap();
        assert_eq!(cut.txid, "000002-test");
        std::fs::OpenOptions::new().append(true).open(&cut.path).unwrap().write_all(b"{\"seq\":1,").unwrap();
        let cut = unfinished(&layout).unwrap().unwrap();
        let mut again = Journal::reopen(&cut).unwrap();
        ended(&mut again);
        assert!(unfinished(&layout).unwrap().is_none());
        assert_eq!(verify_all(&layout).unwrap().len(), 2);
        let path = first.path().to_path_buf();
        drop(first);
        std::fs::remove_file(path).unwrap();
        assert!(verify_all(&layout).is_err(), "a journal that is missing is noticed");
    }

    #[test]
    fn the_same_key_twice_is_refused_at_any_depth() {
        assert!(
            refuse_duplicate_keys(br#"{"a":[{"b":1,"c":null,"d":1.5,"e":true,"f":-1}],"b":"x"}"#).is_ok()
        );
        assert!(refuse_duplicate_keys(br#"{"a":[{"b":1,"b":2}]}"#).is_err());
        assert!(refuse_duplicate_keys(br#"{"a":1,"\u0061":2}"#).is_err());
    }
}
