//! The switch to a release: `cutover`, `rollback` and a trial's fallback are this one transaction.
//!
//! The target is verified and everything that can be refused is refused before the gate closes. Behind the
//! closed gate nothing of the installation runs: client files and config are put in place, the target is started
//! through the launcher and asked for its tools; only then it is decided.

mod behind_gate;
mod decision;
mod prepare;
mod request;

use std::path::PathBuf;

use serde::Serialize;
use serde_json::json;

use super::pointer::{self, Previous};
use super::transaction::{self, InstallLock, Interruption, Purpose};
use super::{Layout, ReleaseError, ReleaseId, clients, journal, lease};
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use behind_gate::{Barrier, ask_target, enter, put_in_place};
use decision::decision;
use prepare::{Prepared, prepare};
pub use request::{Request, TrialTerms};

/// What was done, or would be.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Switched {
    /// `switched`, `already-current` or `planned`.
    pub status: &'static str,
    /// Whether anything was changed.
    pub changed: bool,
    /// The release.
    pub release_id: ReleaseId,
    /// The generation that is current now; of a plan, the one it would be.
    pub generation: u64,
    /// What was current before.
    pub previous: Option<Previous>,
    /// The transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txid: Option<String>,
    /// How long nothing could start, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<u64>,
    /// SHA-256 of the shared config.
    pub config_sha256: Option<String>,
    /// Tools that the target listed in its probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<usize>,
    /// Client files that were changed, or would be.
    pub clients: Vec<PathBuf>,
    /// The steps of a plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// Worth telling.
    pub warnings: Vec<String>,
}

/// Says what a switch would do; changes nothing.
pub fn plan(context: &Context, layout: &Layout, request: &Request) -> Result<Switched, Error> {
    layout.require_installation()?;
    journal::require_finished(layout)?;
    let prepared = prepare(context, layout, request)?;
    if prepared.is_current(request) {
        return Ok(already_current(request, &prepared));
    }
    let mut steps = vec![format!("close the gate of {}", layout.root().display())];
    steps.push(if request.soft {
        "leave running processes on the old release".into()
    } else {
        format!("wait up to {} s for running servers and turns to end", request.wait.as_secs())
    });
    if prepared.launcher_before.is_none() {
        steps.push(format!("put the launcher at {}", layout.launcher().display()));
    } else if prepared.new_launcher.is_some() {
        steps.push(format!("replace the launcher {}", layout.launcher().display()));
    }
    let client_files: Vec<PathBuf> = request.clients.as_ref().map(clients::Plan::files).unwrap_or_default();
    steps.extend(client_files.iter().map(|path| format!("write our entry into {}", path.display())));
    if prepared.config_before.as_deref() != Some(&prepared.config_after) {
        steps.push(format!("replace {}", layout.config().display()));
    }
    steps.push(format!("start {} through the launcher and ask for its tools", request.target));
    steps.push(format!("make {} current, as generation {}", request.target, prepared.generation));
    if let Some(terms) = request.trial.filter(|_| prepared.current.is_some()) {
        steps.push(format!("put it on trial: {}", terms.sentence()));
    }
    Ok(Switched {
        status: "planned",
        changed: false,
        release_id: request.target.clone(),
        generation: prepared.generation,
        previous: prepared.previous(),
        txid: None,
        downtime_ms: None,
        config_sha256: Some(digest::of_bytes(&prepared.config_after)),
        tools: None,
        clients: client_files,
        steps,
        warnings: prepared.warnings,
    })
}

fn already_current(request: &Request, prepared: &Prepared) -> Switched {
    Switched {
        status: "already-current",
        changed: false,
        release_id: request.target.clone(),
        generation: prepared.current.as_ref().map_or(0, |(_, pointer)| pointer.generation),
        previous: prepared.current.as_ref().and_then(|(_, pointer)| pointer.previous.clone()),
        txid: None,
        downtime_ms: None,
        config_sha256: Some(digest::of_bytes(&prepared.config_after)),
        tools: None,
        clients: Vec::new(),
        steps: Vec::new(),
        warnings: prepared.warnings.clone(),
    }
}

/// Switches, or leaves everything as it was.
pub fn switch(
    context: &Context,
    layout: &Layout,
    request: &Request,
    interruption: &Interruption,
) -> Result<Switched, Error> {
    let lock = InstallLock::take_for_change(layout)?;
    let prepared = prepare(context, layout, request)?;
    if prepared.is_current(request) {
        return Ok(already_current(request, &prepared));
    }
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let purpose = Purpose {
        operation: request.operation,
        reason: request.reason.as_deref(),
        facts: json!({
            "target": request.target,
            "generation": prepared.generation,
            "previous": prepared.previous(),
            "configSha256": digest::of_bytes(&prepared.config_after),
            "soft": request.soft,
            "trial": request.trial.is_some(),
            "by": { "version": env!("CARGO_PKG_VERSION"), "program": context.exe, "pid": std::process::id() },
            "probe": lease::probe_facts(&token, &request.target),
        }),
    };
    // The gate opens again when this goes out of scope, after everything that was decided is in place.
    let mut closed = None;
    let mut switched = transaction::run(layout, &lock, context.clock, interruption, purpose, |tx| {
        enter(context, layout, request, tx, &mut closed)?;
        put_in_place(context, layout, request, &prepared, tx)?;
        tx.phase("probe", json!({}))?;
        let probed = ask_target(context, layout, &prepared, &token)?;
        let (actions, pointer) = decision(context, layout, request, &prepared, tx)?;
        tx.phase("decided", json!({ "tools": probed.tools.len(), "protocol": probed.protocol }))?;
        Ok((
            actions,
            Switched {
                status: "switched",
                changed: true,
                release_id: request.target.clone(),
                generation: pointer.generation,
                previous: pointer.previous.clone(),
                txid: Some(pointer.txid.clone()),
                downtime_ms: None,
                config_sha256: pointer.config_sha256.clone(),
                tools: Some(probed.tools.len()),
                clients: request.clients.as_ref().map(clients::Plan::files).unwrap_or_default(),
                steps: Vec::new(),
                warnings: prepared.warnings.clone(),
            },
        ))
    })?;
    switched.downtime_ms = closed.map(Barrier::open);
    match pointer::current(layout) {
        Ok(now) if now.generation == switched.generation => Ok(switched),
        Ok(now) => Err(not_there(&switched, &format!("the pointer names generation {}", now.generation))),
        Err(error) => Err(not_there(&switched, &error.to_string())),
    }
}

fn not_there(switched: &Switched, why: &str) -> Error {
    ReleaseError::NotFinished { txid: switched.txid.clone().unwrap_or_default(), why: why.to_owned() }.into()
}
