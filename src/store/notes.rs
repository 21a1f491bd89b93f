//! Notes that workers keep for later runs in the same folder.

use std::collections::BTreeMap;

use rusqlite::params;

use super::database::{Durability, Store};
use super::errors::StoreError;

impl Store {
    /// All notes of a folder, by name.
    pub fn notes(&self, folder: &str) -> Result<BTreeMap<String, String>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT key, text FROM notes WHERE folder = ?1")?;
            let rows = statement.query_map([folder], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Keeps a note, in place of the one of that name.
    pub fn put_note(&self, folder: &str, key: &str, text: &str, turn: &str) -> Result<(), StoreError> {
        let at = self.clock.now_ms();
        self.write(Durability::Normal, |tx| {
            tx.prepare_cached(
                "INSERT OR REPLACE INTO notes (folder, key, text, turn_id, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![folder, key, text, turn, at])?;
            Ok(())
        })
    }
}
