//! Writing what was planned, as one transaction.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::lost::{self, Lost};
use super::plan::Plan;
use super::{places, table};
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::platform;
use crate::release::transaction::{self, InstallLock, Interruption, Owner, Purpose, Transaction};
use crate::release::{Layout, ReleaseError};

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// The client's id.
    pub client: &'static str,
    /// The file.
    pub path: PathBuf,
    /// SHA-256 before.
    pub before_sha256: Option<String>,
    /// SHA-256 after.
    pub after_sha256: Option<String>,
}

/// Writes every file of a plan that can be written, as steps of a transaction that can be undone. Files that
/// cannot be changed are left out: see [`Plan::require_possible`].
pub fn apply_in(transaction: &mut Transaction<'_>, plan: &Plan) -> Result<Vec<Applied>, Error> {
    let mut done = Vec::new();
    for one in plan.clients.iter().filter(|one| one.change_required && one.errors.is_empty()) {
        let (Some(file), Some(target)) = (&one.file, &one.target) else { continue };
        // The links may have been changed since.
        let now = places::look(file).map_err(Error::from)?;
        if now.target != *target || now.content != one.before {
            return Err(ReleaseError::FileChanged { path: target.clone() }.into());
        }
        if one.before.is_none()
            && let Some(folder) = target.parent()
        {
            platform::create_private_dir(folder).map_err(Error::from)?;
        }
        let owner = Owner { client: one.client, patch: &one.patch };
        transaction.replace(target, one.before.as_deref(), one.after.as_deref(), 0o600, Some(&owner))?;
        done.push(Applied {
            client: one.client,
            path: target.clone(),
            before_sha256: one.before_sha256.clone(),
            after_sha256: one.after_sha256.clone(),
        });
    }
    // A client that runs may have written its own copy over ours in the meantime.
    for one in &done {
        let now = transaction::content(&one.path)?;
        if now.as_deref().map(digest::of_bytes) != one.after_sha256 {
            return Err(ReleaseError::FileChanged { path: one.path.clone() }.into());
        }
    }
    Ok(done)
}

/// Writes a plan as a transaction of its own. A plan with nothing to do takes no lock and writes nothing.
pub fn apply(
    context: &Context,
    layout: &Layout,
    plan: &Plan,
    reason: Option<&str>,
) -> Result<Written, Error> {
    plan.require_possible()?;
    if !plan.change_required() {
        return Ok(Written::default());
    }
    let lock = InstallLock::take_for_change(layout)?;
    let files: Vec<_> = plan
        .clients
        .iter()
        .filter(|one| one.change_required)
        .map(|one| json!({ "client": one.client, "path": one.target, "before": one.before_sha256, "after": one.after_sha256 }))
        .collect();
    let purpose = Purpose {
        operation: "configure-clients",
        reason,
        facts: json!({ "operation": plan.operation, "files": files }),
    };
    let interruption = Interruption::watch();
    transaction::run(layout, &lock, context.clock, &interruption, purpose, |transaction| {
        let applied = apply_in(transaction, plan)?;
        let txid = transaction.txid().to_owned();
        Ok((Vec::new(), Written { txid: Some(txid), applied }))
    })
}

/// What was done.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// The transaction; none if there was nothing to do.
    pub txid: Option<String>,
    /// The files.
    pub applied: Vec<Applied>,
}

/// How often files are looked at while they are watched.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Written {
    /// How long it is worth to watch what was written: as long as a client that runs may take to write its own copy
    /// of a file over it; not at all where none runs.
    pub fn worth_watching(&self, plan: &Plan) -> Duration {
        let runs = |one: &Applied| {
            let belongs_to = table::find(one.client).map(|client| client.belongs_to);
            plan.running.iter().any(|process| Some(process.client) == belongs_to)
        };
        if self.applied.iter().any(runs) { Duration::from_secs(2) } else { Duration::ZERO }
    }

    /// Looks at the files again, until another program changed one or the time is over; gives those that were changed.
    pub fn watch(&self, time: Duration) -> Vec<&Applied> {
        let end = Instant::now() + time;
        loop {
            let drifted = |one: &&Applied| {
                transaction::content(&one.path).ok().flatten().as_deref().map(digest::of_bytes)
                    != one.after_sha256
            };
            let drifted: Vec<&Applied> = self.applied.iter().filter(drifted).collect();
            if !drifted.is_empty() || Instant::now() >= end || self.applied.is_empty() {
                return drifted;
            }
            std::thread::sleep(LOOK_EVERY.min(end.saturating_duration_since(Instant::now())));
        }
    }

    /// Those of the changed files in which our entry is gone.
    pub fn lost(&self, plan: &Plan, drifted: &[&Applied]) -> Vec<Lost> {
        let Some(txid) = self.txid.as_deref().filter(|_| plan.operation == "configure") else {
            return Vec::new();
        };
        drifted.iter().filter_map(|one| lost::lost_now(one.client, &one.path, txid)).collect()
    }
}
