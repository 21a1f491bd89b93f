//! Turns that say they are running though their supervisor has died.
//!
//! A running turn's supervisor holds the session's lock, which the operating system frees when the
//! process dies, however it dies. A free lock beside a running row therefore means: interrupted.

use super::run_folder;
use crate::error::Result;
use crate::platform;
use crate::process;
use crate::store::{Store, TurnRow, TurnState, session_lock_path};

/// The same rows, as they stand after each dead supervisor's turn was marked.
pub fn rows(store: &Store, rows: Vec<TurnRow>) -> Result<Vec<TurnRow>> {
    rows.into_iter()
        .map(|row| {
            if row.state == TurnState::Finished {
                return Ok(row);
            }
            let path = session_lock_path(store.state_dir(), &row.session_id)?;
            let Some(_lock) = platform::try_exclusive(&path)? else { return Ok(row) };
            // Its end may have been recorded since the row was read.
            let row = store.turn(&row.id)?;
            if row.state == TurnState::Finished {
                return Ok(row);
            }
            process::end_leftovers(&row.id);
            store.mark_interrupted(&row.id)?;
            run_folder::remove(store.state_dir(), &row.id)?;
            Ok(store.turn(&row.id)?)
        })
        .collect()
}
