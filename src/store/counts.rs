//! How much there is in a state folder, for the doctor.

use std::fs;

use serde::Serialize;

use super::database::{Store, size_of};
use super::errors::StoreError;

/// Figures of a state folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Sessions.
    pub sessions: u64,
    /// Turns, running ones included.
    pub turns: u64,
    /// Turns recorded as running.
    pub running: u64,
    /// Size of the database and its log.
    pub database_bytes: u64,
    /// Size of the output files seen.
    pub blob_bytes: u64,
    /// Number of the output files seen.
    pub blob_files: u64,
    /// Whether all output files were seen; the walk stops at 100,000.
    pub blobs_complete: bool,
    /// Whether write-ahead logging is on; some file systems refuse it.
    pub write_ahead_log: bool,
}

const MAX_FILES: u64 = 100_000;

impl Store {
    /// Counts what is there. Folders that cannot be read count as nothing.
    pub fn counts(&self) -> Result<Counts, StoreError> {
        let mut counts = self.read(|connection| {
            let number = |sql: &str| -> Result<u64, StoreError> {
                let value: i64 = connection.query_row(sql, [], |row| row.get(0))?;
                Ok(u64::try_from(value).unwrap_or_default())
            };
            let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
            Ok(Counts {
                sessions: number("SELECT count(*) FROM sessions")?,
                turns: number("SELECT count(*) FROM turns")?,
                running: number("SELECT count(*) FROM turns WHERE state = 'running'")?,
                database_bytes: 0,
                blob_bytes: 0,
                blob_files: 0,
                blobs_complete: true,
                write_ahead_log: mode.eq_ignore_ascii_case("wal"),
            })
        })?;
        let mut log = self.file().as_os_str().to_owned();
        log.push("-wal");
        counts.database_bytes = size_of(self.file()) + size_of(log.as_ref());
        let folders = fs::read_dir(self.state_dir().join("blobs")).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
        for file in files {
            if counts.blob_files == MAX_FILES {
                counts.blobs_complete = false;
                break;
            }
            counts.blob_files += 1;
            counts.blob_bytes += file.metadata().map_or(0, |data| data.len());
        }
        Ok(counts)
    }
}
