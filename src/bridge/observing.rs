//! A supervisor's looks at the working folder: one before its worker starts, one when the worker's tree is gone.
//!
//! Promise: a look that fails, hangs or is cut short says so in the turn's record and changes nothing else about the turn.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ending::patiently;
use super::run_spec::RunSpec;
use crate::config::OnDisconnect;
use crate::context::Context;
use crate::observe::isolation::{self, Isolated, Setting};
use crate::observe::{self, Limits, Observation, PatchEnd, Request, Snapshot};
use crate::process;
use crate::store::{BlobKind, Store, scratch_path};

/// Time of the second look, and of the patch, at a turn that somebody has cancelled: what it changed is still worth a
/// look, but not a wait.
const AFTER_CANCEL: Duration = Duration::from_secs(3);
/// Time of a copy's patch then: without it the work could not be applied.
const PATCH_AFTER_CANCEL: Duration = Duration::from_secs(10);

/// A first look, and what is needed for the second.
pub(super) struct Observing<'a> {
    spec: &'a RunSpec,
    store: &'a Store,
    gone: &'a AtomicBool,
    snapshot: Snapshot,
    limits: Limits,
    setting: Setting,
}

impl<'a> Observing<'a> {
    /// Looks for the first time, if the turn is to be observed.
    pub(super) fn before(
        context: &Context,
        spec: &'a RunSpec,
        store: &'a Store,
        gone: &'a AtomicBool,
    ) -> Option<Self> {
        if !spec.observe {
            return None;
        }
        let limits = Limits { deadline: Duration::from_millis(spec.observe_ms), ..Limits::default() };
        let mark = Some(process::mark_below(&spec.turn.id));
        let setting = Setting { context: context.clone(), mark: mark.clone() };
        let request = Request {
            context: context.clone(),
            folder: spec.turn.cwd.clone(),
            scratch: scratch_path(store.state_dir(), &spec.turn.id).ok()?,
            mark,
            limits: limits.clone(),
        };
        let snapshot = observe::before(request, &mut || wish_to_end(spec, store, gone));
        Some(Self { spec, store, gone, snapshot, limits, setting })
    }

    /// Looks again and keeps what it saw. A wish to end that is new cuts it short; one that ended the run already leaves
    /// it little time.
    pub(super) fn after(self) {
        let Self { spec, store, gone, snapshot, limits, setting } = self;
        let cancelled = wish_to_end(spec, store, gone).is_some();
        let deadline = if cancelled { AFTER_CANCEL } else { limits.deadline };
        let patch_deadline = if cancelled { PATCH_AFTER_CANCEL } else { isolation::DEADLINE };
        let mut wish = || if cancelled { None } else { wish_to_end(spec, store, gone) };
        let mut change = snapshot.after(deadline, &mut wish);
        let turn = &spec.turn.id;
        let mut keep_patch = || -> Result<(), String> {
            if let Some(copy) = &spec.isolated {
                change.observation.patch =
                    copys_patch(&setting, copy, spec, store, patch_deadline, &mut wish)?;
                return Ok(());
            }
            if change.observation.changed() != Some(true) {
                return Ok(());
            }
            let mut file = store.blobs().create(turn, BlobKind::Patch).map_err(|error| error.to_string())?;
            match change.write_patch(&mut file, deadline, &mut wish) {
                Ok(Some(end)) => change.observation.patch = Some(end),
                other => {
                    store.blobs().remove(turn, BlobKind::Patch);
                    other?;
                }
            }
            Ok(())
        };
        if let Err(why) = keep_patch() {
            change.observation.notes.push(format!("there is no patch: {why}"));
        }
        note_others(spec, store, &mut change.observation);
        // The turn's end is still to be written, and says more than this.
        let _ = patiently(|| store.put_observation(turn, &change.observation));
    }
}

/// All that differs from the beginning of the copy, also what earlier turns changed.
fn copys_patch(
    setting: &Setting,
    copy: &Path,
    spec: &RunSpec,
    store: &Store,
    deadline: Duration,
    wish: &mut dyn FnMut() -> Option<String>,
) -> Result<Option<PatchEnd>, String> {
    let copy = Isolated::open(copy).map_err(|failure| failure.to_string())?;
    let copy = copy.ok_or("the copy of the workspace is gone")?;
    let turn = &spec.turn.id;
    let mut file = store.blobs().create(turn, BlobKind::Patch).map_err(|error| error.to_string())?;
    let changes = copy.write_patch(setting, &mut file, deadline, wish);
    if !matches!(&changes, Ok(changes) if changes.patch.is_some()) {
        store.blobs().remove(turn, BlobKind::Patch);
    }
    changes.map(|changes| changes.patch).map_err(|failure| failure.to_string())
}

fn wish_to_end(spec: &RunSpec, store: &Store, gone: &AtomicBool) -> Option<String> {
    if gone.load(Ordering::SeqCst) && spec.on_disconnect == OnDisconnect::Cancel {
        return Some("the host went away".into());
    }
    store.cancel_requested(&spec.turn.id).ok().flatten()
}

/// Whoever else works in the same folder may have made the changes.
fn note_others(spec: &RunSpec, store: &Store, observation: &mut Observation) {
    let Ok(running) = store.running_turns() else { return };
    let others = running.rows.iter().filter(|row| {
        row.id != spec.turn.id && (row.cwd.starts_with(&spec.turn.cwd) || spec.turn.cwd.starts_with(&row.cwd))
    });
    for other in others.take(3) {
        observation.notes.push(format!("turn {} was at work in the same folder", other.id));
    }
}
