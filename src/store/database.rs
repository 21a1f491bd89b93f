//! Opening the database, and the only two ways to use it: read, and write in one transaction.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::Blobs;
use super::errors::StoreError;
use super::schema::{self, BUSY_TIMEOUT, MIGRATIONS};
use crate::context::Clock;
use crate::platform::private;

pub(super) const FILE_NAME: &str = "bridge.sqlite3";

/// SQLite's smallest page.
const MIN_DATABASE: u64 = 512;

/// What a committed write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Loss of power: authority, starts, ends, cancels.
    Full,
    /// A crash of any process, but perhaps not loss of power: activity, plain audit rows.
    Normal,
}

/// The state folder's database. Many processes and threads may have it open at once.
///
/// Every call blocks: up to ten seconds when another process holds the database, then
/// `STORE_BUSY`. A database error of any call has a `STORE_*` code and names the file.
#[derive(Debug)]
pub struct Store {
    state_dir: PathBuf,
    file: PathBuf,
    pub(super) clock: Clock,
    /// For reads and `Normal` writes.
    normal: Mutex<Connection>,
    /// For `Full` writes; opened on first use, because most processes only read.
    full: Mutex<Option<Connection>>,
    read_only: bool,
}

impl Store {
    /// Opens the database in `state_dir` (absolute), creating folder and database if needed and
    /// updating an older database.
    ///
    /// # Errors
    /// `STORE_UNWRITABLE`, `STORE_CORRUPT`, `STORE_NEWER_VERSION`, `STORE_FULL`, `STORE_BUSY`.
    /// A file that cannot be used is named and left as it is.
    pub fn open(state_dir: &Path, clock: Clock) -> Result<Self, StoreError> {
        let file = state_dir.join(FILE_NAME);
        if !file.exists() {
            private::create_dir(state_dir).map_err(|error| StoreError::from_io(state_dir, &error))?;
        }
        let locks = state_dir.join(super::ids::LOCKS);
        if !locks.exists() {
            private::create_dir(&locks).map_err(|error| StoreError::from_io(&locks, &error))?;
        }
        refuse_what_sqlite_would_replace(&file)?;
        if !file.exists() {
            // SQLite would create it readable for everyone the umask allows; the log files copy
            // the mode of this one.
            private::create_new(&file).map_err(|error| StoreError::from_io(&file, &error))?;
        }
        let located = |error: StoreError| error.located(&file);
        let mut normal = connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(located)?;
        schema::migrate(&mut normal, &file, MIGRATIONS).map_err(located)?;
        set_durability(&normal, Durability::Normal).map_err(located)?;
        Ok(Self::with(state_dir, file, clock, normal, false))
    }

    /// Opens an existing database for reading and creates no record, folder or database. `None`
    /// means that there is no database yet, which is no fault.
    ///
    /// # Errors
    /// As [`Store::open`]; also `STORE_OLDER_VERSION`, since nothing is updated.
    pub fn open_read_only(state_dir: &Path, clock: Clock) -> Result<Option<Self>, StoreError> {
        let file = state_dir.join(FILE_NAME);
        refuse_what_sqlite_would_replace(&file)?;
        match fs::metadata(&file) {
            Ok(data) if data.len() == 0 => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::from_io(&file, &error)),
        }
        let located = |error: StoreError| error.located(&file);
        let (connection, usable) = match open_checked(&file).map_err(located) {
            // SQLite needs its shared-memory file to read a database with a write-ahead log, and
            // cannot create it in a folder it may not write to. If the log is empty the database
            // file alone is complete.
            Err(StoreError::Unwritable { .. }) if size_of(&log_of(&file)) == 0 => {
                open_immutable(&file).map_err(located)?
            }
            other => other?,
        };
        Ok(usable.then(|| Self::with(state_dir, file, clock, connection, true)))
    }

    /// The version of the database's schema. `None` if there is no database of ours that can be read.
    pub fn schema_version(state_dir: &Path) -> Option<u32> {
        let file = state_dir.join(FILE_NAME);
        if !file.is_file() {
            return None;
        }
        let connection = connect(&file, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        schema::own_version(&connection).and_then(|version| u32::try_from(version).ok())
    }

    fn with(state_dir: &Path, file: PathBuf, clock: Clock, normal: Connection, read_only: bool) -> Self {
        Self {
            state_dir: state_dir.to_path_buf(),
            file,
            clock,
            normal: Mutex::new(normal),
            full: Mutex::new(None),
            read_only,
        }
    }

    /// The state folder.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// The database file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The output files beside the database.
    pub fn blobs(&self) -> Blobs {
        Blobs::new(&self.state_dir)
    }

    /// Runs `work` on a connection that is used for reads.
    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        work(&lock(&self.normal)).map_err(|error| error.located(&self.file))
    }

    /// Runs `work` in one transaction that no other writer can interleave with; an error undoes it.
    pub(super) fn write<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.read_only {
            return Err(StoreError::Unwritable {
                path: self.state_dir.clone(),
                detail: "it was opened for reading only".into(),
            });
        }
        let result = match durability {
            Durability::Normal => transact(&mut lock(&self.normal), &self.file, work),
            Durability::Full => self.with_full(|connection| transact(connection, &self.file, work)),
        };
        result.map_err(|error| error.located(&self.file))
    }

    /// Runs `work` on the connection whose commits survive loss of power.
    pub(super) fn with_full<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut full = lock(&self.full);
        let mut connection = match full.take() {
            Some(connection) => connection,
            None => {
                let connection = connect(&self.file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
                set_durability(&connection, Durability::Full)?;
                connection
            }
        };
        let result = work(&mut connection);
        *full = Some(connection);
        result
    }
}

fn transact<T>(
    connection: &mut Connection,
    file: &Path,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !schema::check(&transaction, file)? {
        return Err(StoreError::Corrupt {
            file: file.to_path_buf(),
            detail: "it was emptied while it was in use".into(),
        });
    }
    let value = work(&transaction)?;
    transaction.commit()?;
    Ok(value)
}

/// A thread that panicked while it held a connection left no half transaction: SQLite undoes it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(file: &Path, access: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(file, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

fn set_durability(connection: &Connection, durability: Durability) -> Result<(), StoreError> {
    let level = match durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    Ok(connection.pragma_update(None, "synchronous", level)?)
}

fn open_checked(file: &Path) -> Result<(Connection, bool), StoreError> {
    let connection = connect(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let usable = schema::check(&connection, file)?;
    Ok((connection, usable))
}

fn open_immutable(file: &Path) -> Result<(Connection, bool), StoreError> {
    let text = text_of(file)?;
    // Canonical Windows paths carry a prefix that has no place in an address.
    let text = text.strip_prefix(r"\\?\").unwrap_or(text);
    let mut address = String::from(if text.starts_with('/') { "file:" } else { "file:/" });
    for character in text.chars() {
        match character {
            '%' => address.push_str("%25"),
            '?' => address.push_str("%3f"),
            '#' => address.push_str("%23"),
            '\\' if cfg!(windows) => address.push('/'),
            other => address.push(other),
        }
    }
    address.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = connect(Path::new(&address), flags)?;
    let usable = schema::check(&connection, file)?;
    Ok((connection, usable))
}

/// A path as it is recorded.
pub(super) fn text_of(path: &Path) -> Result<&str, StoreError> {
    path.to_str().ok_or_else(|| StoreError::PathNotUnicode(path.display().to_string()))
}

fn log_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// 0 for a file that does not exist.
pub(super) fn size_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |data| data.len())
}

fn has_outputs(file: &Path) -> bool {
    let blobs = file.with_file_name(super::blobs::FOLDER);
    fs::read_dir(blobs).is_ok_and(|mut entries| entries.next().is_some())
}

/// SQLite takes a file of one byte for an empty database, and deletes a write-ahead log whose
/// database is empty or gone. That log may hold the only copy of finished work, so a person decides.
fn refuse_what_sqlite_would_replace(file: &Path) -> Result<(), StoreError> {
    // The log first: a process that creates the database fills the file before its log.
    let log = size_of(&log_of(file));
    let detail = match size_of(file) {
        0 if log > 0 => "it is empty or missing while its write-ahead log (-wal) still holds data",
        // A database that is only being created has no outputs beside it yet.
        0 if file.exists() && has_outputs(file) => "it is empty although outputs of turns lie beside it",
        1..MIN_DATABASE => "it is too short for a database",
        _ => return Ok(()),
    };
    Err(StoreError::Corrupt { file: file.to_path_buf(), detail: detail.into() })
}
