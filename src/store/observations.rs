//! What turns really changed.

use rusqlite::{OptionalExtension as _, params};

use super::database::{Durability, Store};
use super::errors::StoreError;
use super::turns::key_of;
use crate::observe::Observation;

impl Store {
    /// Keeps a turn's observation, in place of the one that it has.
    ///
    /// # Errors
    /// `TURN_NOT_FOUND`.
    pub fn put_observation(&self, turn: &str, observation: &Observation) -> Result<(), StoreError> {
        let record = serde_json::to_string(observation).map_err(|error| StoreError::Failed {
            path: self.file().to_path_buf(),
            detail: error.to_string(),
        })?;
        self.write(Durability::Full, |tx| {
            let (seq, _) = key_of(tx, turn)?;
            tx.prepare_cached("INSERT OR REPLACE INTO observations (turn, record) VALUES (?1, ?2)")?
                .execute(params![seq, record])?;
            Ok(())
        })
    }

    /// A turn's observation. `None` if it was not observed at all, or its supervisor died before.
    ///
    /// # Errors
    /// `STORE_ROW_CORRUPT` if it cannot be read.
    pub fn observation(&self, turn: &str) -> Result<Option<Observation>, StoreError> {
        let record: Option<String> = self.read(|connection| {
            let sql = "SELECT record FROM observations JOIN turns ON turn = seq WHERE id = ?1";
            Ok(connection.prepare_cached(sql)?.query_row([turn], |row| row.get(0)).optional()?)
        })?;
        let read = |text: String| {
            serde_json::from_str(&text).map_err(|error| StoreError::RowCorrupt {
                kind: "the observation of turn",
                id: turn.to_owned(),
                detail: error.to_string(),
            })
        };
        record.map(read).transpose()
    }
}
