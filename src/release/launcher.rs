//! The one program that clients know.

use std::path::Path;

use super::transaction::InstallLock;
use super::{Layout, StartError};
use crate::error::Error;

/// Replaces the launcher while it runs.
pub fn replace(_layout: &Layout, _lock: &InstallLock, _from: &Path, _sha256: &str) -> Result<(), Error> {
    Err(StartError::NotReplaced { why: "not available".into() }.into())
}
