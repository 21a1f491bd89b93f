//! The engine against the disk: undone, committed, cut off at every record.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::journal::{self, Action, Outcome};
use super::recovery::recover;
use super::transaction::{InstallLock, Interruption, Purpose, Transaction, run};
use super::{Layout, ReleaseError};
use crate::context::Clock;
use crate::error::Error;

struct Installation {
    _folder: tempfile::TempDir,
    layout: Layout,
}

impl Installation {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path().join("root with space"));
        layout.create().unwrap();
        fs::write(layout.config(), "old config").unwrap();
        Self { _folder: folder, layout }
    }

    fn transact(
        &self,
        body: impl FnOnce(&mut Transaction<'_>) -> Result<(Vec<Action>, ()), Error>,
    ) -> Result<(), Error> {
        self.transact_until(&Interruption::default(), body)
    }

    fn transact_until(
        &self,
        interruption: &Interruption,
        body: impl FnOnce(&mut Transaction<'_>) -> Result<(Vec<Action>, ()), Error>,
    ) -> Result<(), Error> {
        let lock = InstallLock::take_for_change(&self.layout)?;
        let purpose = Purpose { operation: "test", reason: Some("because"), facts: json!({}) };
        run(&self.layout, &lock, Clock::Fixed(0), interruption, purpose, body)
    }

    /// Every file but those of the journal, with its content.
    fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        let root = self.layout.root();
        walkdir::WalkDir::new(root)
            .into_iter()
            .map(Result::unwrap)
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| (self.layout.relative(entry.path()).unwrap(), fs::read(entry.path()).unwrap()))
            .filter(|(name, _)| !name.ends_with(".jsonl"))
            .collect()
    }
}

/// A change of each kind.
fn change(tx: &mut Transaction<'_>) -> Result<(Vec<Action>, ()), Error> {
    let layout = tx.layout().clone();
    let staging = layout.releases().join(".installing-test");
    tx.create_folder(&staging)?;
    fs::write(staging.join("file"), "payload").unwrap();
    tx.replace(&layout.config(), Some(b"old config"), Some(b"new config"), 0o600, None)?;
    tx.replace(&layout.root().join("new file"), None, Some(b"new"), 0o600, None)?;
    tx.phase("probe", json!({ "tools": 12 }))?;
    Ok((
        vec![
            Action::Move { from: "releases/.installing-test".into(), to: "releases/there".into() },
            Action::Put { path: "receipts/there.json".into(), content: "{}".into(), mode: 0o600 },
            Action::Slot { slot: 0, content: "slot".into() },
            Action::Remove { path: "releases/gone".into() },
            Action::Seal { path: "releases/there".into() },
        ],
        (),
    ))
}

#[test]
fn a_change_is_made_as_a_whole() {
    let here = Installation::new();
    here.transact(change).unwrap();
    let tree = here.tree();
    assert_eq!(tree["config.json"], b"new config");
    assert_eq!(tree["releases/there/file"], b"payload");
    assert_eq!(tree["pointer/a"], b"slot");
    assert_eq!(tree["backups/000001-test/001-config.json"], b"old config");
    assert!(journal::unfinished(&here.layout).unwrap().is_none());
    assert!(!tree.keys().any(|name| name.contains(".ab-") || name.contains("ballast")), "{:?}", tree.keys());
}

#[test]
fn a_failure_and_an_interrupt_put_everything_back() {
    let here = Installation::new();
    let before = here.tree();
    let failed = here.transact(|tx| {
        change(tx)?;
        Err(ReleaseError::NotConfirmed.into())
    });
    assert_eq!(failed.unwrap_err().code(), "RELEASE_NOT_CONFIRMED");
    let interruption = Interruption::default();
    let interrupted = here.transact_until(&interruption, |tx| {
        let done = change(tx)?;
        interruption.interrupt();
        Ok(done)
    });
    assert_eq!(interrupted.unwrap_err().code(), "RELEASE_INTERRUPTED");
    let mut after = here.tree();
    after.remove("locks/install.lock");
    assert_eq!(after, before);
    let all = journal::verify_all(&here.layout).unwrap();
    assert!(all.iter().all(|transcript| transcript.outcome() == Some(Outcome::Undone)));
}

#[test]
fn what_somebody_else_wrote_is_never_replaced_nor_undone() {
    let here = Installation::new();
    let config = here.layout.config();
    let refused = here.transact(|tx| {
        fs::write(&config, "theirs").unwrap();
        change(tx)
    });
    assert_eq!(refused.unwrap_err().code(), "RELEASE_FILE_CHANGED");
    assert_eq!(fs::read(&config).unwrap(), b"theirs");
    fs::write(&config, "old config").unwrap();
    let failed = here.transact(|tx| {
        change(tx)?;
        fs::write(&config, "theirs again").unwrap();
        Err(ReleaseError::NotConfirmed.into())
    });
    assert!(failed.unwrap_err().hint().contains("left as they are"));
    assert_eq!(fs::read(&config).unwrap(), b"theirs again");
    assert!(!here.layout.root().join("new file").exists());
}

/// Cuts the journal after each record (and within the next one) and lets recovery go on from there, with the
/// disk as it was at the end: more done than the journal knows is what a crash can leave, never less.
#[test]
fn cut_off_after_any_record_recovery_gives_before_or_after() {
    let whole = Installation::new();
    let before = whole.tree();
    whole.transact(change).unwrap();
    let after = whole.tree();
    let path = journal::transactions(&whole.layout).unwrap().pop().unwrap();
    let lines: Vec<Vec<u8>> =
        fs::read(&path).unwrap().split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let commit = lines
        .iter()
        .position(|line| String::from_utf8_lossy(line).contains("\"record\":\"commit\""))
        .unwrap();
    for kept in 0..lines.len() {
        for torn in [0, 20] {
            let here = Installation::new();
            here.transact(change).unwrap();
            let path = journal::transactions(&here.layout).unwrap().pop().unwrap();
            let mut cut: Vec<u8> = lines[..kept].concat();
            cut.extend_from_slice(&lines[kept][..torn]);
            // The steps after the decision are not done before it is written.
            let undecided = kept <= commit;
            if undecided {
                undo_actions(&here.layout);
            }
            fs::write(&path, rewritten(&cut, &whole.layout, &here.layout)).unwrap();
            let planned = recover(&here.layout, Clock::Fixed(0), true).unwrap();
            let done = recover(&here.layout, Clock::Fixed(0), false).unwrap();
            assert_eq!(planned.outcome, done.outcome);
            let mut now = here.tree();
            now.remove("locks/install.lock");
            if kept == 0 {
                // Without any record nothing is known, and nothing can have been done.
                continue;
            }
            let mut expected = if undecided { steps_known(&before, &after, kept) } else { after.clone() };
            expected.remove("locks/install.lock");
            assert_eq!(now, expected, "cut after {kept} records and {torn} bytes");
            assert_eq!(recover(&here.layout, Clock::Fixed(0), false).unwrap().outcome, "nothing");
        }
    }
}

/// What is expected of a cut before the decision: all that was on record is put back; what was not on record was, on a
/// real disk, never done, but here it was and stays.
fn steps_known(
    before: &BTreeMap<String, Vec<u8>>,
    after: &BTreeMap<String, Vec<u8>>,
    kept: usize,
) -> BTreeMap<String, Vec<u8>> {
    let mut expected = before.clone();
    if kept < 2 {
        expected.insert("releases/.installing-test/file".into(), b"payload".to_vec());
    }
    if kept < 3 {
        expected.insert("config.json".into(), after["config.json"].clone());
    }
    if kept < 4 {
        expected.insert("new file".into(), b"new".to_vec());
    }
    expected
}

fn undo_actions(layout: &Layout) {
    let there = layout.releases().join("there");
    crate::platform::remove_durable(&there).unwrap();
    fs::create_dir(layout.releases().join(".installing-test")).unwrap();
    fs::write(layout.releases().join(".installing-test/file"), "payload").unwrap();
    fs::remove_file(layout.root().join("receipts/there.json")).unwrap();
    fs::remove_file(layout.slot(0)).unwrap();
}

/// The lines of one installation's journal, chained anew for another whose paths differ.
fn rewritten(lines: &[u8], from: &Layout, to: &Layout) -> Vec<u8> {
    // As it is written in JSON, where a backslash is two.
    let root = |layout: &Layout| json!(layout.root()).to_string().trim_matches('"').to_owned();
    let text = String::from_utf8_lossy(lines).replace(&root(from), &root(to));
    let mut head = "0".repeat(64);
    let mut out = Vec::new();
    for line in text.split_inclusive('\n') {
        let Some(whole) = line.strip_suffix('\n') else {
            out.extend_from_slice(line.as_bytes());
            break;
        };
        let mut value: serde_json::Value = serde_json::from_str(whole).unwrap();
        value["prev"] = json!(head);
        let bytes = value.to_string();
        head = crate::digest::of_bytes(bytes.as_bytes());
        out.extend_from_slice(bytes.as_bytes());
        out.push(b'\n');
    }
    out
}

#[test]
fn a_second_command_is_refused_while_one_is_at_work_and_after_a_cut() {
    let here = Installation::new();
    let lock = InstallLock::take(&here.layout).unwrap();
    assert_eq!(here.transact(change).unwrap_err().code(), "RELEASE_LOCKED");
    drop(lock);
    fs::write(here.layout.journal().join("000001-test.jsonl"), "").unwrap();
    assert_eq!(here.transact(change).unwrap_err().code(), "RELEASE_RECOVERY_NEEDED");
    assert_eq!(recover(&here.layout, Clock::Fixed(0), false).unwrap().outcome, "undone");
    here.transact(change).unwrap();
}

#[test]
fn a_journal_that_was_tampered_with_leads_nowhere() {
    let here = Installation::new();
    let victim = here.layout.root().parent().unwrap().join("victim");
    fs::write(&victim, "precious").unwrap();
    for path in ["../victim", "/etc/passwd", "a/../../victim"] {
        let record = json!({ "record": "create", "path": path });
        forge(&here.layout, &[json!({ "record": "begin", "operation": "test", "facts": {} }), record]);
        let refused = recover(&here.layout, Clock::Fixed(0), false).unwrap_err();
        assert!(matches!(refused, ReleaseError::JournalDamaged { .. }), "{path}: {refused}");
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }
}

fn forge(layout: &Layout, records: &[serde_json::Value]) {
    let path: &Path = &layout.journal().join("000001-test.jsonl");
    let lines: String = records
        .iter()
        .enumerate()
        .map(|(seq, record)| {
            let mut line = record.clone();
            line["seq"] = json!(seq);
            line["txid"] = json!("000001-test");
            line["at"] = json!("t");
            line["prev"] = json!("");
            line.to_string() + "\n"
        })
        .collect();
    fs::write(path, rewritten(lines.as_bytes(), layout, layout)).unwrap();
}
