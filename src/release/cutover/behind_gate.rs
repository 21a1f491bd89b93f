//! What happens behind the closed gate: nothing of the installation runs, the files of the target are put in place,
//! and it is started and asked.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use serde_json::json;

use super::prepare::Prepared;
use super::request::Request;
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::release::lease::{self, ClosedGate, Drained};
use crate::release::probe::{self, Match};
use crate::release::readiness::Holder;
use crate::release::transaction::{Transaction, content};
use crate::release::{Layout, ReleaseError, clients, launcher_file, readiness};

/// How often it is looked who is waited for.
const LOOK: Duration = Duration::from_millis(500);
/// How long the target may take to answer behind the closed gate.
const PROBE_DEADLINE: Duration = Duration::from_secs(20);

/// What keeps starts out.
pub(super) enum Barrier {
    /// The gate alone: old processes go on.
    Gate(ClosedGate),
    /// The gate, and nothing runs.
    Drained(Drained),
}

impl Barrier {
    /// Lets starts in again; gives how long they were kept out, in milliseconds.
    pub(super) fn open(self) -> u64 {
        let closed = match self {
            Self::Gate(gate) => gate.since().elapsed(),
            Self::Drained(drained) => drained.open(),
        };
        u64::try_from(closed.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Closes the gate and, unless soft, waits until nothing runs.
pub(super) fn enter(
    context: &Context,
    layout: &Layout,
    request: &Request,
    tx: &mut Transaction<'_>,
    barrier: &mut Option<Barrier>,
) -> Result<(), Error> {
    tx.phase("maintenance", json!({ "soft": request.soft }))?;
    let gate = lease::close_gate(layout, request.wait)?;
    if request.soft {
        *barrier = Some(Barrier::Gate(gate));
        return Ok(());
    }
    let (mut looked, mut told) = (None::<Instant>, Vec::new());
    let drained = gate.drain_while(request.wait, &mut || {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            looked = Some(Instant::now());
            let names: Vec<String> = readiness::holders(layout).iter().map(Holder::sentence).collect();
            if names != told {
                (request.on_wait)(&names);
                told = names;
            }
        }
        !tx.is_interrupted()
    });
    if drained.is_err() && tx.is_interrupted() {
        return Err(ReleaseError::Interrupted.into());
    }
    *barrier = Some(Barrier::Drained(drained?));
    tx.phase("rescan", json!({}))?;
    let options = readiness::Options { allow_unreadable: request.allow_unreadable, drained: true };
    readiness::look(context, layout, &options).require_quiet(layout)
}

/// Launcher, client files and config, each so that it can be put back.
pub(super) fn put_in_place(
    context: &Context,
    layout: &Layout,
    request: &Request,
    prepared: &Prepared,
    tx: &mut Transaction<'_>,
) -> Result<(), Error> {
    if let Some(program) = &prepared.new_launcher {
        tx.phase("launcher", json!({}))?;
        let wanted = content(program)?.unwrap_or_default();
        match &prepared.launcher_before {
            // One that is what we put there replaces itself: it may be running.
            Some(old) if prepared.launcher_is_ours(old) => {
                tx.replace_by(&layout.launcher(), old, &wanted, || {
                    launcher_file::ask(context, layout, program, &digest::of_bytes(&wanted))
                })?;
            }
            old => tx.replace(&layout.launcher(), old.as_deref(), Some(&wanted), 0o755, None)?,
        }
    }
    if let Some(plan) = &request.clients {
        tx.phase("clients", json!({ "files": plan.files() }))?;
        clients::apply_in(tx, plan)?;
    }
    tx.phase(
        "config",
        json!({ "changed": prepared.config_before.as_deref() != Some(&prepared.config_after) }),
    )?;
    tx.replace(
        &layout.config(),
        prepared.config_before.as_deref(),
        Some(&prepared.config_after),
        0o600,
        None,
    )?;
    Ok(())
}

/// Starts the target as a client would, behind the closed gate.
pub(super) fn ask_target(
    context: &Context,
    layout: &Layout,
    prepared: &Prepared,
    token: &str,
) -> Result<probe::Probed, Error> {
    let mut env = minimal_environment(context);
    env.push((lease::PROBE_VARIABLE.into(), token.into()));
    let launch = probe::Launch {
        program: layout.launcher(),
        args: vec!["serve".into()],
        env,
        cwd: layout.root().to_path_buf(),
        deadline: PROBE_DEADLINE,
    };
    let id = prepared.verified.id.to_string();
    probe::run(&launch, Some(&prepared.verified.metadata.tool_catalogue), Match::Subset)
        .map_err(|error| ReleaseError::ProbeFailed { id, why: error.to_string() }.into())
}

/// What a host passes on at least.
fn minimal_environment(context: &Context) -> Vec<(OsString, OsString)> {
    const NAMES: [&str; 12] = [
        "HOME",
        "USERPROFILE",
        "PATH",
        "PATHEXT",
        "SystemRoot",
        "ComSpec",
        "TEMP",
        "TMP",
        "TMPDIR",
        "LANG",
        "APPDATA",
        "LOCALAPPDATA",
    ];
    NAMES.iter().filter_map(|name| Some((OsString::from(name), context.var(name)?.to_owned()))).collect()
}
