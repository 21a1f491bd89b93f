//! The grammar of ids, and the paths that may be made from one.

use std::path::{Path, PathBuf};

use super::errors::StoreError;
use crate::policy::AgentId;

/// The folder of run folders in a state folder.
const RUNS: &str = "runs";

/// The folder of what agents keep of their conversations, in a state folder.
const KEPT: &str = "kept";

/// The folder of lock files in a state folder.
pub(super) const LOCKS: &str = "locks";

/// The lock that keeps two starts of one agent apart.
pub fn start_lock_path(state_dir: &Path, agent: AgentId) -> PathBuf {
    state_dir.join(LOCKS).join(format!("start-{agent}.lock"))
}

/// Whether `text` is a lower-case UUID with hyphens. Nothing else ever becomes part of a path, so
/// no id can leave its folder, and no two ids can name one file on a file system without case.
pub fn is_id(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

/// The lock file that the supervisor of a session's running turn holds.
///
/// # Errors
/// `STORE_BAD_ID`.
pub fn session_lock_path(state_dir: &Path, session: &str) -> Result<PathBuf, StoreError> {
    check_id(session)?;
    Ok(state_dir.join(LOCKS).join(format!("{session}.lock")))
}

/// The folder of what a running turn needs and nobody needs after it.
const SCRATCH: &str = "scratch";

/// Where a turn may put what nobody needs after it. The folder is made by whoever uses it.
///
/// # Errors
/// `STORE_BAD_ID`.
pub fn scratch_path(state_dir: &Path, turn: &str) -> Result<PathBuf, StoreError> {
    check_id(turn)?;
    Ok(state_dir.join(SCRATCH).join(turn))
}

/// The run folder of a turn, whether it exists or not.
///
/// # Errors
/// `STORE_BAD_ID`.
pub fn run_dir(state_dir: &Path, turn: &str) -> Result<PathBuf, StoreError> {
    check_id(turn)?;
    Ok(state_dir.join(RUNS).join(turn))
}

/// What an agent keeps of its conversation for the next runs of a session, whether there is something or not.
///
/// # Errors
/// `STORE_BAD_ID`.
pub fn kept_dir(state_dir: &Path, session: &str, agent: AgentId) -> Result<PathBuf, StoreError> {
    check_id(session)?;
    Ok(state_dir.join(KEPT).join(session).join(agent.as_str()))
}

pub(super) fn check_id(text: &str) -> Result<(), StoreError> {
    if is_id(text) { Ok(()) } else { Err(StoreError::BadId(text.chars().take(80).collect())) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_one_spelling_of_a_uuid_is_an_id() {
        let id = uuid::Uuid::new_v4();
        assert!(is_id(&id.to_string()));
        for other in [
            id.to_string().to_uppercase().replace(|c: char| c.is_ascii_digit(), "A"),
            id.simple().to_string(),
            id.urn().to_string(),
            id.braced().to_string(),
            format!("{id}\n"),
            String::new(),
        ] {
            assert!(!is_id(&other), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn an_id_is_a_plain_file_name(text in "[0-9a-f./\\\\:-]{0,40}") {
            if is_id(&text) {
                prop_assert!(!text.contains(['.', '/', '\\', ':']));
            } else {
                prop_assert!(session_lock_path(Path::new("state"), &text).is_err());
                prop_assert!(run_dir(Path::new("state"), &text).is_err());
                prop_assert!(kept_dir(Path::new("state"), &text, AgentId::Mock).is_err());
            }
        }
    }
}
