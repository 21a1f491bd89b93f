//! The config files of MCP clients: found, edited byte by byte, put back.

use std::path::PathBuf;

use super::Layout;
use super::transaction::Transaction;
use crate::context::Context;
use crate::error::Error;

/// What to plan.
#[derive(Clone, Debug, Default)]
pub struct Options {}

/// What would be written into the files of clients.
#[derive(Clone, Debug, Default)]
pub struct Plan {}

impl Plan {
    /// Whether nothing would be.
    pub fn is_empty(&self) -> bool {
        true
    }

    /// The files.
    pub fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// Looks at the files of the clients.
pub fn plan(_context: &Context, _layout: &Layout, _options: &Options) -> Result<Plan, Error> {
    Ok(Plan {})
}

/// Writes them, in a transaction.
pub fn apply_in(_tx: &mut Transaction<'_>, _plan: &Plan) -> Result<(), Error> {
    Ok(())
}

/// The content of a client's file without what we did to our own entry: for a file that another program changed
/// after us. `before` is what was there before us. None if that cannot be told.
pub fn without_our_change(_client: &str, _before: Option<&[u8]>, _current: &[u8]) -> Option<Vec<u8>> {
    None
}
