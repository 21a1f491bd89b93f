//! The life of a release on a machine: packaged, installed, proven, switched to, switched back from.
//!
//! Every change goes through one engine ([`transaction`]): a hash-chained journal, files replaced so that
//! they can be put back, one commit record, and what follows it written as steps that can be repeated. Before
//! the commit record recovery always undoes; after it recovery always completes.

pub mod bundle;
pub mod clients;
pub mod digest;
mod error;
mod fault;
pub mod generations;
pub mod identity;
pub mod journal;
pub mod layout;
pub mod metadata;
pub mod pointer;
pub mod recovery;
pub mod transaction;
pub mod verify;

pub use error::{CODES, ReleaseError};
pub use layout::{Layout, Place, ReleaseId};

use crate::error::CodeDoc;

/// Every code of this room and of the rooms in it.
pub fn codes() -> impl Iterator<Item = &'static CodeDoc> {
    [CODES, bundle::CODES].into_iter().flatten().copied()
}
