//! Undo and redo of a transaction, from its journal alone.
//!
//! Both are made of steps that look at the disk first, so that a recovery that is itself cut off is simply run
//! again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::clients::Hunk;
use super::journal::{self, Action, AppendError, FileFacts, Journal, Outcome, Record, Transcript};
use super::transaction::{self, InstallLock, Interruption, content, facts_of, temporary_name};
use super::{Layout, ReleaseError, fault, pointer};
use crate::context::Clock;
use crate::platform::{self, Replacement};

/// What recovery found and did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// The transaction that was cut off; none if there was nothing to do.
    pub txid: Option<String>,
    /// `undone`, `completed` or `nothing`.
    pub outcome: &'static str,
    /// The steps, in words.
    pub steps: Vec<String>,
    /// Files that somebody else had changed; they were left as they are.
    pub conflicts: Vec<PathBuf>,
    /// Whether anything was changed.
    pub changed: bool,
}

/// Finishes or undoes what was cut off. With `dry_run` only says what it would do.
pub fn recover(layout: &Layout, clock: Clock, dry_run: bool) -> Result<Recovery, ReleaseError> {
    let nothing = Recovery { outcome: "nothing", ..Recovery::default() };
    if !layout.is_installation() {
        // One whose making was cut off has nothing to undo: the next install goes on with it.
        return if layout.is_begun() { Ok(nothing) } else { layout.require_installation().map(|()| nothing) };
    }
    if dry_run {
        return Ok(match journal::unfinished(layout)? {
            None => nothing,
            Some(cut) => plan(layout, &cut)?,
        });
    }
    let _lock = InstallLock::take(layout)?;
    match journal::unfinished(layout)? {
        None => {
            transaction::release_ballast(layout)?;
            let swept = sweep_programs(layout)?;
            Ok(Recovery { changed: renew_copy(layout)? || swept, ..nothing })
        }
        // Whatever fails from here on, there is still something to recover, and the exit code has to say so.
        Some(cut) => match cut.commit().map(<[Action]>::to_vec) {
            None => undo_unfinished(layout, clock).map_err(|error| match error {
                ReleaseError::JournalDamaged { .. } => error,
                error => ReleaseError::NotUndone {
                    txid: cut.txid,
                    cause: "it was cut off".into(),
                    why: error.to_string(),
                },
            }),
            Some(actions) => complete(layout, clock, &cut, &actions).map_err(|error| match error {
                ReleaseError::JournalDamaged { .. } => error,
                error => ReleaseError::NotFinished { txid: cut.txid, why: error.to_string() },
            }),
        },
    }
}

/// Does the rest of what was decided.
fn complete(
    layout: &Layout,
    clock: Clock,
    cut: &Transcript,
    actions: &[Action],
) -> Result<Recovery, ReleaseError> {
    let mut report = plan(layout, cut)?;
    // The decision was read, but it may be in memory only; nothing may follow it before the disk has it.
    let mut journal = Journal::reopen(cut)?;
    journal.sync(layout)?;
    sweep(layout, cut)?;
    finish(layout, clock, &mut journal, actions, &Interruption::default())?;
    report.changed = true;
    Ok(report)
}

/// Puts back everything that the transaction at the end of the journal did. The caller holds the install lock.
pub(super) fn undo_unfinished(layout: &Layout, clock: Clock) -> Result<Recovery, ReleaseError> {
    let Some(cut) = journal::unfinished(layout)? else {
        return Ok(Recovery { outcome: "nothing", ..Recovery::default() });
    };
    let mut report = plan(layout, &cut)?;
    let _ = transaction::release_ballast(layout);
    if cut.records.is_empty() {
        transaction::release_ballast(layout)?;
        platform::remove_durable(&cut.path)?;
        report.changed = true;
        return Ok(report);
    }
    report.conflicts.clear();
    for (_, record) in cut.records.iter().rev() {
        fault::point("undo-step");
        if let Some(undo) = Undo::of(record) {
            if !undo.run(layout, &cut.txid)? {
                report.conflicts.push(undo.path.to_path_buf());
            }
        } else if let Record::Create { path } = record {
            platform::remove_durable(&layout.resolve(path)?)?;
        }
    }
    sweep(layout, &cut)?;
    // With a conflict the old content may be all that is left of something.
    if report.conflicts.is_empty() {
        platform::remove_durable(&layout.backup(&cut.txid))?;
    }
    transaction::release_ballast(layout)?;
    let mut journal = Journal::reopen(&cut)?;
    end(clock, &mut journal, Outcome::Undone, report.conflicts.clone())?;
    report.changed = true;
    Ok(report)
}

/// Does everything that was decided and closes the journal.
pub(super) fn finish(
    layout: &Layout,
    clock: Clock,
    journal: &mut Journal,
    actions: &[Action],
    watched: &Interruption,
) -> Result<(), ReleaseError> {
    let _ = transaction::release_ballast(layout);
    for (number, action) in (1..).zip(actions) {
        fault::point("finish-step");
        apply(layout, journal.txid(), action)?;
        watched.pass(&format!("step-{number}"));
    }
    fault::point("before-end");
    transaction::release_ballast(layout)?;
    end(clock, journal, Outcome::Committed, Vec::new())
}

fn end(
    clock: Clock,
    journal: &mut Journal,
    outcome: Outcome,
    conflicts: Vec<PathBuf>,
) -> Result<(), ReleaseError> {
    let at = transaction::timestamp(clock);
    journal.append(&at, Record::End { outcome, conflicts }).map_err(AppendError::into_inner)
}

/// One step. Where it was done before, by a process that was cut off, it may be in memory only: it is made to last
/// like one that is done now.
fn apply(layout: &Layout, txid: &str, action: &Action) -> Result<(), ReleaseError> {
    match action {
        Action::Put { path, content: wanted, mode } => {
            let path = layout.resolve(path)?;
            if content(&path)?.as_deref() == Some(wanted.as_bytes()) {
                platform::confirm_replaced(&path)?;
            } else {
                if let Some(folder) = path.parent() {
                    platform::create_private_dir(folder)?;
                }
                let how = Replacement { temporary: temporary_name(txid), mode_if_new: *mode };
                platform::replace_durable(&path, wanted.as_bytes(), &how)?;
            }
        }
        Action::Slot { slot, content: wanted } => {
            let path = layout.slot(*slot);
            if content(&path)?.as_deref() == Some(wanted.as_bytes()) {
                platform::confirm_durable(&path)?;
            } else {
                platform::overwrite_durable(&path, wanted.as_bytes())?;
            }
        }
        Action::Move { from, to } => {
            let (from, to) = (layout.resolve(from)?, layout.resolve(to)?);
            if is_there(&from) {
                platform::move_durable(&from, &to)?;
            } else {
                require_moved(&from, &to)?;
            }
        }
        Action::Exchange { from, to, aside } => {
            let (from, to, aside) = (layout.resolve(from)?, layout.resolve(to)?, layout.resolve(aside)?);
            if is_there(&from) {
                if is_there(&to) {
                    platform::move_durable(&to, &aside)?;
                }
                platform::move_durable(&from, &to)?;
            } else {
                require_moved(&from, &to)?;
            }
        }
        Action::Seal { path } => platform::seal_tree(&layout.resolve(path)?)?,
        Action::Remove { path } => platform::remove_durable(&layout.resolve(path)?)?,
    }
    Ok(())
}

fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// A move whose source is gone was done, if its target is there.
fn require_moved(from: &Path, to: &Path) -> Result<(), ReleaseError> {
    if !is_there(to) {
        return Err(ReleaseError::io("cannot move", from)(std::io::ErrorKind::NotFound.into()));
    }
    // The move itself may have been all that the disk had when it was cut off.
    for folder in [to.parent(), from.parent()].into_iter().flatten() {
        platform::sync_dir(folder)?;
    }
    Ok(())
}

/// A replaced file that is put back.
struct Undo<'a> {
    path: &'a Path,
    before: Option<&'a FileFacts>,
    after: Option<&'a FileFacts>,
    backup: Option<&'a str>,
    client: Option<&'a str>,
    patch: &'a [Hunk],
}

impl<'a> Undo<'a> {
    /// What undoes a record, if it replaced a file.
    fn of(record: &'a Record) -> Option<Self> {
        let Record::Replace { path, before, after, backup, client, patch } = record else { return None };
        Some(Self {
            path,
            before: before.as_ref(),
            after: after.as_ref(),
            backup: backup.as_deref(),
            client: client.as_deref(),
            patch,
        })
    }

    /// Whether the file is as before now; `false` if somebody else had changed it and it was left.
    fn run(&self, layout: &Layout, txid: &str) -> Result<bool, ReleaseError> {
        let mode_if_new = if *self.path == layout.launcher() { 0o755 } else { 0o600 };
        let how = Replacement { temporary: temporary_name(txid), mode_if_new };
        if self.before.is_some() {
            platform::take_back(self.path, &how)?;
        }
        let now = facts_of(self.path)?;
        if now.as_ref() == self.before {
            // It may have been put back by a recovery that was cut off before the disk had it.
            platform::confirm_replaced(self.path)?;
            return Ok(true);
        }
        let old = match (self.backup, self.before) {
            (Some(backup), Some(before)) => {
                let path = layout.resolve(backup)?;
                let bytes = content(&path)?.unwrap_or_default();
                if FileFacts::of(&bytes) != *before {
                    // The step never began: its backup was not even complete, so neither was the change.
                    return Ok(now.as_ref() != self.after);
                }
                Some(bytes)
            }
            _ => None,
        };
        if self.is_ours(layout, now.as_ref()) {
            // Another program may write at this very moment: then it is looked at once more below.
            let is_ours = |there: Option<&[u8]>| there.map(FileFacts::of) == now;
            if platform::replace_if(self.path, old.as_deref(), &how, &is_ours)? {
                return Ok(true);
            }
        }
        let (Some(client), Some(current)) = (self.client, content(self.path)?) else { return Ok(false) };
        // Where nothing was put in, only taken out, it cannot be told from here who did that last.
        if self.patch.iter().all(|hunk| hunk.text.is_empty()) {
            return Ok(false);
        }
        match super::clients::without_our_change(layout, client, old.as_deref(), self.patch, &current) {
            Some(bytes) if bytes == current => Ok(true),
            Some(bytes) => {
                let is_current = |there: Option<&[u8]>| there == Some(current.as_slice());
                Ok(platform::replace_if(self.path, Some(&bytes), &how, &is_current)?)
            }
            None => Ok(false),
        }
    }

    /// Whether what is there is the transaction's work. A launcher that was cut off while it replaced itself may have
    /// no file.
    fn is_ours(&self, layout: &Layout, now: Option<&FileFacts>) -> bool {
        now == self.after || (now.is_none() && *self.path == layout.launcher())
    }

    fn describe(&self, layout: &Layout) -> Result<Option<String>, ReleaseError> {
        let now = facts_of(self.path)?;
        let path = self.path.display();
        Ok(if now.as_ref() == self.before {
            None
        } else if self.is_ours(layout, now.as_ref()) {
            Some(if self.before.is_some() { format!("put {path} back") } else { format!("remove {path}") })
        } else {
            Some(format!("{path} was changed by another program: take only our entry out of it, or leave it"))
        })
    }
}

/// What recovery would do, in words.
fn plan(layout: &Layout, cut: &Transcript) -> Result<Recovery, ReleaseError> {
    let mut report = Recovery { txid: Some(cut.txid.clone()), outcome: "undone", ..Recovery::default() };
    if let Some(actions) = cut.commit() {
        report.outcome = "completed";
        for action in actions {
            report.steps.push(match action {
                Action::Put { path, .. } => format!("write {path}"),
                Action::Slot { slot, .. } => format!("write slot {slot} of the pointer"),
                Action::Move { to, .. } | Action::Exchange { to, .. } => format!("put {to} in place"),
                Action::Seal { path } => format!("make {path} read-only"),
                Action::Remove { path } => format!("remove {path}"),
            });
        }
        return Ok(report);
    }
    for (_, record) in cut.records.iter().rev() {
        if let Some(undo) = Undo::of(record) {
            report.steps.extend(undo.describe(layout)?);
        } else if let Record::Create { path } = record
            && std::fs::symlink_metadata(layout.resolve(path)?).is_ok()
        {
            report.steps.push(format!("remove {path}"));
        }
    }
    Ok(report)
}

/// Writes the readable copy of the pointer anew if it says something else. Whether it did.
fn renew_copy(layout: &Layout) -> Result<bool, ReleaseError> {
    let Some((_, current)) = pointer::read(layout)? else { return Ok(false) };
    let text = pointer::readable(&current);
    let name = temporary_name("recover");
    let _ = std::fs::remove_file(layout.root().join(&name));
    if content(&layout.pointer_copy())?.as_deref() == Some(text.as_bytes()) {
        return Ok(false);
    }
    let how = Replacement { temporary: name, mode_if_new: 0o644 };
    platform::replace_durable(&layout.pointer_copy(), text.as_bytes(), &how)?;
    Ok(true)
}

/// Removes the temporary files that a killed transaction left, each by its exact name.
fn sweep(layout: &Layout, cut: &Transcript) -> Result<(), ReleaseError> {
    let name = temporary_name(&cut.txid);
    let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
    for (_, record) in &cut.records {
        match record {
            Record::Replace { path, .. } => folders.extend(path.parent().map(Path::to_path_buf)),
            Record::Commit { actions } => {
                for action in actions {
                    if let Action::Put { path, .. } = action
                        && let Ok(path) = layout.resolve(path)
                    {
                        folders.extend(path.parent().map(Path::to_path_buf));
                    }
                }
            }
            _ => {}
        }
    }
    folders.insert(layout.backup(&cut.txid));
    let programs = layout.root().join("bin");
    for folder in folders {
        for name in platform::names_of_replacement(&folder.join(&name)) {
            match transaction::remove_if_there(&name) {
                // A folder that is no folder holds nothing of ours.
                Err(ReleaseError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotADirectory => {}
                done => done?,
            }
        }
        if folder == programs {
            sweep_programs(layout)?;
        }
    }
    Ok(())
}

/// A launcher that replaced itself leaves names that it chose; on Windows it may have been running under them yet
/// when it was last tried. Whether there were any.
fn sweep_programs(layout: &Layout) -> Result<bool, ReleaseError> {
    let mut changed = false;
    for entry in std::fs::read_dir(layout.root().join("bin")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with('.') {
            transaction::remove_if_there(&entry.path())?;
            changed = true;
        }
    }
    Ok(changed)
}
