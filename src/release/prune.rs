//! Old releases go, but never one that something still needs: the current one, the one a trial or a rollback
//! would go back to, one that runs, one that was pinned.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::json;

use super::generations::{self, Verdict};
use super::journal::Action;
use super::layout::entries;
use super::transaction::{self, InstallLock, Interruption, Purpose};
use super::{Layout, ReleaseError, ReleaseId, journal, lease, pointer};
use crate::context::Context;
use crate::error::Error;
use crate::platform::{self, LockState};

/// Begin of the names under which pruned releases wait for their removal.
const PRUNED: &str = ".pruned-";
/// Transactions whose replaced files are kept.
const KEPT_BACKUPS: usize = 10;

/// What to keep beyond what must be kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// So many of the releases that were installed last.
    pub keep: usize,
    /// These releases.
    pub pinned: Vec<ReleaseId>,
    /// Only say what would go.
    pub dry_run: bool,
}

/// What went and what stayed.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pruned {
    /// Whether anything was removed.
    pub changed: bool,
    /// Releases that went, or would.
    pub removed: Vec<ReleaseId>,
    /// Releases that stayed, and why.
    pub kept: Vec<Kept>,
    /// Backups that went, or would.
    pub removed_backups: Vec<String>,
    /// What could not be removed; the next run tries again.
    pub warnings: Vec<String>,
}

/// A release that stayed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// It.
    pub release_id: ReleaseId,
    /// Why.
    pub why: String,
}

/// Removes what nothing needs.
pub fn prune(
    context: &Context,
    layout: &Layout,
    options: &Options,
    interruption: &Interruption,
) -> Result<Pruned, Error> {
    layout.require_installation()?;
    // Without the lock nothing is changed, and a look leaves nothing behind.
    let lock = if options.dry_run {
        journal::require_finished(layout)?;
        None
    } else {
        Some(InstallLock::take_for_change(layout)?)
    };
    let mut report = Pruned::default();
    let installed = installed(layout)?;
    let needed = needed(layout, options, &installed)?;
    for id in &installed {
        if let Some((_, why)) = needed.iter().find(|(needed, _)| needed == id) {
            report.kept.push(Kept { release_id: id.clone(), why: why.clone() });
            continue;
        }
        let unused = match &lock {
            None => platform::look_at_lock(&layout.release_lease(id))? == LockState::Free,
            // Who runs from it holds its lease; nobody can take it while this holds it alone.
            Some(lock) => match lease::unused_release(layout, id)? {
                None => false,
                Some(_lease) => {
                    set_aside(context, layout, lock, interruption, id)?;
                    report.changed = true;
                    true
                }
            },
        };
        if unused {
            report.removed.push(id.clone());
        } else {
            report.kept.push(Kept { release_id: id.clone(), why: "something still runs from it".into() });
        }
    }
    report.removed_backups = old_backups(layout)?;
    if lock.is_some() {
        for name in &report.removed_backups {
            report.changed = true;
            remove(&layout.backup(name), &mut report.warnings);
        }
        sweep(layout, &mut report.warnings);
    }
    Ok(report)
}

/// The installed releases, the one that was installed last first.
pub fn installed(layout: &Layout) -> Result<Vec<ReleaseId>, ReleaseError> {
    let mut found = Vec::new();
    for path in entries(&layout.releases())? {
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(id) = name.and_then(|name| ReleaseId::parse(name).ok()) {
            let installed = std::fs::metadata(layout.receipt(&id)).and_then(|found| found.modified()).ok();
            found.push((std::cmp::Reverse(installed), id));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, id)| id).collect())
}

/// What must stay, and why.
fn needed(
    layout: &Layout,
    options: &Options,
    installed: &[ReleaseId],
) -> Result<Vec<(ReleaseId, String)>, ReleaseError> {
    let mut needed: Vec<(ReleaseId, String)> = Vec::new();
    let all = generations::list(layout)?;
    // With a damaged pointer nobody knows what is needed: this fails, and nothing goes.
    if let Some((_, current)) = pointer::read(layout)? {
        needed.push((current.release_id.clone(), "it is current".into()));
        if let Some(trial) = &current.trial
            && let Some(fallback) = all.iter().find(|generation| generation.number == trial.fallback)
        {
            needed.push((fallback.release_id.clone(), "the trial falls back to it".into()));
        }
        if let Ok(back) = generations::way_back(&all, current.generation) {
            needed.push((back.release_id.clone(), "a rollback goes there".into()));
        }
        if let Some(previous) = &current.previous {
            needed.push((previous.release_id.clone(), "it was current before".into()));
        }
    }
    if let Some(good) = all.iter().rev().find(|generation| generation.verdict == Verdict::Good) {
        needed.push((good.release_id.clone(), "it is the last that is known to be good".into()));
    }
    needed.extend(options.pinned.iter().map(|id| (id.clone(), "it is pinned".into())));
    needed
        .extend(installed.iter().take(options.keep).map(|id| (id.clone(), "it was installed lately".into())));
    Ok(needed)
}

fn set_aside(
    context: &Context,
    layout: &Layout,
    lock: &InstallLock,
    interruption: &Interruption,
    id: &ReleaseId,
) -> Result<(), Error> {
    let purpose = Purpose { operation: "prune", reason: None, facts: json!({ "release": id }) };
    transaction::run(layout, lock, context.clock, interruption, purpose, |tx| {
        let actions = vec![
            Action::Move {
                from: format!("releases/{id}"),
                to: format!("releases/{PRUNED}{}-{id}", tx.txid()),
            },
            Action::Remove { path: format!("receipts/{id}.json") },
        ];
        Ok((actions, ()))
    })
}

/// Removes what was set aside, now or by a run that was cut off.
fn sweep(layout: &Layout, warnings: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(layout.releases()) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PRUNED) {
            remove(&entry.path(), warnings);
        }
    }
}

fn remove(path: &std::path::Path, warnings: &mut Vec<String>) {
    if let Err(error) = platform::remove_durable(path) {
        warnings.push(format!("{} is left for the next run: {error}", path.display()));
    }
}

/// Backups of transactions that are neither recent nor those of a generation that can be gone back to.
fn old_backups(layout: &Layout) -> Result<Vec<String>, ReleaseError> {
    let Ok(entries) = std::fs::read_dir(layout.root().join("backups")) else { return Ok(Vec::new()) };
    let mut names: BTreeSet<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    for _ in 0..KEPT_BACKUPS {
        names.pop_last();
    }
    Ok(names.into_iter().collect())
}
