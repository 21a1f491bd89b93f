//! What becomes of a trial that failed.

use super::cutover;
use super::rollback;
use super::transaction::Interruption;
use super::{Layout, ReleaseError, pointer};
use crate::context::Context;
use crate::error::Error;

/// Leaves a generation on trial: makes its fallback current again, in a transaction of its own. Called by the
/// launcher, which holds no lease then. `why` goes into the record. Old processes are left alone: those that work
/// keep working.
///
/// Succeeds also where another process has done it already: the pointer is simply read again.
pub fn fall_back(context: &Context, layout: &Layout, generation: u64, why: &str) -> Result<(), Error> {
    let current = pointer::current(layout)?;
    let Some(trial) = current.trial.as_ref().filter(|_| current.generation == generation) else {
        return if current.generation == generation {
            Err(ReleaseError::NoWayBack { why: format!("generation {generation} is not on trial") }.into())
        } else {
            Ok(())
        };
    };
    let options = rollback::Options {
        to: Some(trial.fallback),
        force: true,
        reason: Some(why.to_owned()),
        ..rollback::Options::default()
    };
    let (mut request, _) = rollback::request(layout, &options)?;
    request.operation = "trial-fallback";
    request.soft = true;
    request.verdict_on_left = Some(format!("failed its trial: {why}"));
    cutover::switch(context, layout, &request, &Interruption::default()).map(drop)
}
