//! The life of a release on a machine: packaged, installed, proven, switched to, switched back from.
//!
//! Every change goes through one engine ([`transaction`]): a hash-chained journal, files replaced so that
//! they can be put back, one commit record, and what follows it written as steps that can be repeated. Before
//! the commit record recovery always undoes; after it recovery always completes.

pub mod archive;
pub(crate) mod bundle;
pub(crate) mod canary;
pub mod clients;
pub(crate) mod cutover;
mod error;
mod fallback;
mod fault;
pub mod generations;
mod holders;
pub mod identity;
pub(crate) mod inspect;
pub mod install;
pub mod journal;
pub(crate) mod launcher;
pub(crate) mod launcher_file;
pub mod layout;
pub mod lease;
mod mcp_client;
pub mod metadata;
pub mod pointer;
mod probe;
mod processes;
pub(crate) mod prune;
pub(crate) mod readiness;
pub(crate) mod recovery;
pub(crate) mod rehearsal;
pub(crate) mod rollback;
mod start_error;
pub mod state;
pub mod transaction;
#[cfg(test)]
mod transaction_tests;
pub mod trial;
pub mod verify;

pub use error::{CODES, ReleaseError};
pub use layout::{Layout, Place, ReleaseId};
pub use start_error::StartError;

use crate::error::CodeDoc;

/// Every code of this room and of the rooms in it.
pub fn codes() -> impl Iterator<Item = &'static CodeDoc> {
    [
        CODES,
        archive::CODES,
        bundle::CODES,
        canary::CODES,
        clients::CODES,
        install::CODES,
        probe::CODES,
        rehearsal::CODES,
        start_error::CODES,
        state::CODES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
