//! What is found out and refused while the old release serves.

use std::path::PathBuf;

use super::request::Request;
use crate::config;
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::release::metadata::LAUNCHER_PROTOCOL;
use crate::release::pointer::{self, Pointer, Previous};
use crate::release::transaction::content;
use crate::release::verify::{self, Verified};
use crate::release::{Layout, ReleaseError, clients, generations};
use crate::store::Store;

/// Everything that is known before the gate closes.
pub(super) struct Prepared {
    pub(super) verified: Verified,
    pub(super) current: Option<(usize, Pointer)>,
    pub(super) generation: u64,
    pub(super) config_before: Option<Vec<u8>>,
    pub(super) config_after: Vec<u8>,
    pub(super) launcher_before: Option<Vec<u8>>,
    /// The target's program, if it becomes the launcher.
    pub(super) new_launcher: Option<PathBuf>,
    pub(super) warnings: Vec<String>,
}

impl Prepared {
    pub(super) fn previous(&self) -> Option<Previous> {
        self.current.as_ref().map(|(_, pointer)| Previous {
            generation: pointer.generation,
            release_id: pointer.release_id.clone(),
            config_sha256: pointer.config_sha256.clone(),
        })
    }

    /// Whether the launcher is the one that was put there.
    pub(super) fn launcher_is_ours(&self, launcher: &[u8]) -> bool {
        let recorded = self.current.as_ref().map(|(_, pointer)| pointer.launcher.sha256.as_str());
        recorded == Some(digest::of_bytes(launcher).as_str())
    }

    /// Whether there is nothing to switch.
    pub(super) fn is_current(&self, request: &Request) -> bool {
        self.current.as_ref().is_some_and(|(_, pointer)| {
            pointer.release_id == self.verified.id
                && pointer.metadata_sha256 == self.verified.metadata_sha256
                && pointer.config_sha256.as_deref() == Some(&digest::of_bytes(&self.config_after))
                && pointer.trial.is_none()
        }) && self.config_before.as_deref() == Some(&self.config_after)
            && self.new_launcher.is_none()
            && request.trial.is_none()
            && request.restores.is_none()
            && request.clients.as_ref().is_none_or(clients::Plan::is_empty)
    }
}

/// Checks everything that can be checked while the old release serves.
pub(super) fn prepare(context: &Context, layout: &Layout, request: &Request) -> Result<Prepared, Error> {
    let verified = verify::release(layout, &request.target)?;
    let id = || request.target.to_string();
    if !verified.metadata.fits_this_machine() {
        let target = &verified.metadata.target;
        return Err(ReleaseError::ForeignTarget {
            id: id(),
            target: format!("{}-{}", target.os, target.arch),
            here: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        }
        .into());
    }
    let current = match pointer::read(layout) {
        Ok(current) => current,
        // A cutover by name is the way out of a damaged pointer.
        Err(ReleaseError::PointerDamaged { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(plan) = &request.clients {
        plan.require_editable()?;
    }
    let newest = generations::list(layout)?.last().map_or(0, |generation| generation.number);
    let generation = newest.max(current.as_ref().map_or(0, |(_, pointer)| pointer.generation)) + 1;
    let config_before = content(&layout.config())?;
    let Some(config_after) = request.config.clone().or_else(|| config_before.clone()) else {
        let why = format!("there is no shared config at {}", layout.config().display());
        return Err(Error::from(ReleaseError::Incompatible { id: id(), why }).with_hint(format!(
            "Write one with `agent-bridge --config {} config init`, or pass `--stage-config FILE`.",
            layout.config().display()
        )));
    };
    let mut warnings = Vec::new();
    if request.trial.is_some() && current.is_none() {
        warnings
            .push("nothing is current yet, so there is nothing to fall back to: it is not on trial".into());
    }
    check_config(context, layout, request, &verified, &config_after, &mut warnings)?;
    let launcher_before = content(&layout.launcher())?;
    let protocol = current.as_ref().map_or(LAUNCHER_PROTOCOL, |(_, pointer)| pointer.launcher.protocol);
    let too_old = launcher_before.is_some() && protocol < verified.metadata.min_launcher_protocol;
    let recorded = current.as_ref().map(|(_, pointer)| pointer.launcher.sha256.as_str());
    let damaged = match (&launcher_before, recorded) {
        (Some(bytes), Some(recorded)) => digest::of_bytes(bytes) != recorded,
        _ => false,
    };
    if damaged {
        warnings.push("the launcher is not the one that was put there; it is replaced".into());
    }
    let wanted = launcher_before.is_none() || too_old || damaged || request.update_launcher;
    let new_launcher = wanted.then(|| {
        layout.release(&verified.id).join(verified.metadata.runtime.split('/').collect::<PathBuf>())
    });
    if let (Some(path), Some(old)) = (&new_launcher, &launcher_before)
        && content(path)?.as_ref() == Some(old)
    {
        warnings.push("the launcher is that of this release already".into());
    }
    let same = |path: &PathBuf| {
        launcher_before.is_some() && matches!(content(path), Ok(found) if found == launcher_before)
    };
    let new_launcher = new_launcher.filter(|path| !same(path));
    Ok(Prepared {
        verified,
        current,
        generation,
        config_before,
        config_after,
        launcher_before,
        new_launcher,
        warnings,
    })
}

/// Whether the target can be expected to start with this config on this state.
fn check_config(
    context: &Context,
    layout: &Layout,
    request: &Request,
    verified: &Verified,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<(), Error> {
    let refused =
        |why: String| Error::from(ReleaseError::Incompatible { id: request.target.to_string(), why });
    let report = config::check_bytes(context, &layout.config(), bytes);
    let same_version = verified.metadata.version == env!("CARGO_PKG_VERSION");
    match report.problems.first() {
        None => {}
        Some(problem) if same_version => return Err(refused(format!("the config is not valid: {problem}"))),
        // Another version may know more keys; its own probe decides.
        Some(problem) => warnings.push(format!(
            "this version does not understand the config ({problem}); the target's probe decides"
        )),
    }
    warnings.extend(report.warnings.iter().cloned());
    if let Some(config) = report.config
        && let Some(state) = Store::schema_version(&config.state_dir)
    {
        let reads = &verified.metadata.state_schema_version.reads;
        if state < reads.min || state > reads.max {
            return Err(refused(format!(
                "the state in {} has version {state}, and it reads {} to {}",
                config.state_dir.display(),
                reads.min,
                reads.max
            )));
        }
    }
    Ok(())
}
