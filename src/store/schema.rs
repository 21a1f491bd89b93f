//! The tables, and how a database of an older version becomes one of this version.
//!
//! A migration is applied in one transaction together with its version number, so a crash leaves
//! either the old version or the new one. Migrations only go forward and are never edited once
//! released.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::errors::StoreError;

/// Marks a database as ours (`ABRG`).
const APPLICATION_ID: i64 = 0x4142_5247;

/// How long anything waits for another process that holds the database.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Position + 1 is the version that a migration leads to.
pub(super) static MIGRATIONS: &[&str] = &[VERSION_1, VERSION_2, VERSION_3];

/// Volatile and large columns live apart: SQLite rewrites a whole row on each update, and the
/// activity line changes often while the prompt may be a megabyte.
const VERSION_1: &str = "
CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    title TEXT NOT NULL,
    cwd TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    agents TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_by_update ON sessions (updated_at, id);

CREATE TABLE turns (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    position INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'finished')),
    agent TEXT NOT NULL,
    model TEXT,
    sandbox TEXT NOT NULL,
    cwd TEXT NOT NULL,
    continuity TEXT NOT NULL,
    cross_agent_context INTEGER NOT NULL,
    resume TEXT,
    native_id TEXT,
    outbound_sha256 TEXT NOT NULL,
    idempotency_key TEXT UNIQUE,
    request_sha256 TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    timeout_ms INTEGER NOT NULL,
    cancel_requested TEXT,
    outcome TEXT,
    detail TEXT,
    code TEXT,
    exit_code INTEGER,
    signal INTEGER,
    duration_ms INTEGER,
    answer_bytes INTEGER,
    stderr_bytes INTEGER,
    tokens TEXT,
    cost_usd REAL,
    meta TEXT,
    UNIQUE (session_id, position)
) STRICT;
CREATE UNIQUE INDEX one_running_turn ON turns (session_id) WHERE state = 'running';
CREATE INDEX turns_by_agent ON turns (agent);

CREATE TABLE prompts (
    turn INTEGER PRIMARY KEY REFERENCES turns (seq),
    text TEXT NOT NULL
) STRICT;

CREATE TABLE activities (
    turn INTEGER PRIMARY KEY REFERENCES turns (seq),
    line TEXT NOT NULL
) STRICT;

CREATE TABLE attempts (
    turn INTEGER NOT NULL REFERENCES turns (seq),
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    program TEXT NOT NULL,
    args TEXT NOT NULL,
    env_names TEXT NOT NULL,
    PRIMARY KEY (turn, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE native_sessions (
    session_id TEXT NOT NULL REFERENCES sessions (id),
    agent TEXT NOT NULL,
    native_id TEXT NOT NULL,
    returned_by INTEGER NOT NULL,
    cwd TEXT NOT NULL,
    sandbox TEXT NOT NULL,
    model TEXT,
    last_seen_turn INTEGER NOT NULL,
    token_total TEXT,
    cost_total REAL,
    PRIMARY KEY (session_id, agent, native_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    session_id TEXT,
    turn_id TEXT,
    detail TEXT NOT NULL
) STRICT;

CREATE VIRTUAL TABLE turn_text USING fts5 (
    prompt, answer, title, tokenize = 'unicode61 remove_diacritics 2'
);
";

/// The audit trail becomes a chain (records of before have no digest; the chain begins after them), and workers keep
/// notes.
const VERSION_2: &str = "
ALTER TABLE audit ADD COLUMN hash TEXT;
CREATE TABLE audit_head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id INTEGER NOT NULL,
    hash TEXT NOT NULL
) STRICT;
INSERT INTO audit_head (one, id, hash) SELECT 1, coalesce(max(id), 0), '' FROM audit;
CREATE INDEX audit_by_turn ON audit (turn_id) WHERE turn_id IS NOT NULL;
CREATE TABLE notes (
    folder TEXT NOT NULL,
    key TEXT NOT NULL,
    text TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (folder, key)
) STRICT, WITHOUT ROWID;
";

/// Relay runs, what turns changed, and what workers ask.
const VERSION_3: &str = "
CREATE TABLE runs (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    root TEXT NOT NULL,
    correction INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'finished')),
    status TEXT NOT NULL,
    agent TEXT NOT NULL,
    workspace TEXT NOT NULL,
    session_id TEXT,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX runs_by_root ON runs (root);
CREATE INDEX runs_by_session ON runs (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX running_runs ON runs (seq) WHERE state = 'running';
CREATE TABLE observations (
    turn INTEGER PRIMARY KEY REFERENCES turns (seq),
    record TEXT NOT NULL
) STRICT;
CREATE TABLE questions (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    turn_id TEXT NOT NULL REFERENCES turns (id),
    kind TEXT NOT NULL CHECK (kind IN ('question', 'approval')),
    tool TEXT,
    text TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    wait_until INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'answered', 'expired', 'closed')),
    approved INTEGER,
    answer TEXT,
    answered_by TEXT,
    answered_at INTEGER
) STRICT;
CREATE INDEX questions_by_turn ON questions (turn_id);
CREATE INDEX open_questions ON questions (seq) WHERE state = 'open';
";

/// What a database says about itself.
enum Kind {
    /// Nothing in it.
    Empty,
    /// Ours, of this version.
    Ours(i64),
    /// Somebody else's.
    Foreign,
}

fn kind(connection: &Connection) -> rusqlite::Result<Kind> {
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    if application == APPLICATION_ID && version > 0 {
        return Ok(Kind::Ours(version));
    }
    let empty = application == 0 && version == 0 && number("SELECT count(*) FROM sqlite_schema")? == 0;
    Ok(if empty { Kind::Empty } else { Kind::Foreign })
}

/// The version of a database that is ours.
pub fn own_version(connection: &Connection) -> Option<i64> {
    match kind(connection) {
        Ok(Kind::Ours(version)) => Some(version),
        _ => None,
    }
}

/// As [`kind`], from one view of the database: another process may be making it right now.
fn version_of(connection: &Connection, file: &Path, known: i64) -> Result<i64, StoreError> {
    let kind = if connection.is_autocommit() {
        let view = connection.unchecked_transaction()?;
        kind(&view)?
    } else {
        kind(connection)?
    };
    match kind {
        Kind::Empty => Ok(0),
        Kind::Ours(found) if found > known => {
            Err(StoreError::NewerVersion { file: file.to_path_buf(), found, known })
        }
        Kind::Ours(found) => Ok(found),
        Kind::Foreign => Err(StoreError::Corrupt {
            file: file.to_path_buf(),
            detail: "it is a database of another program".into(),
        }),
    }
}

/// The version this program writes.
pub fn current_version() -> i64 {
    number_of(MIGRATIONS)
}

fn number_of(migrations: &[&str]) -> i64 {
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
}

/// Refuses a database whose version is not this program's, for readers and for every write: a
/// newer program may have updated the database while this one had it open.
/// Returns false for a database that is still empty.
pub(super) fn check(connection: &Connection, file: &Path) -> Result<bool, StoreError> {
    let known = current_version();
    match version_of(connection, file, known)? {
        0 => Ok(false),
        found if found < known => Err(StoreError::OlderVersion { file: file.to_path_buf(), found, known }),
        _ => Ok(true),
    }
}

/// Brings a database to this program's version. Safe to run from many processes at once.
pub(super) fn migrate(
    connection: &mut Connection,
    file: &Path,
    migrations: &[&str],
) -> Result<(), StoreError> {
    let known = number_of(migrations);
    let found = version_of(connection, file, known)?;
    ensure_wal(connection)?;
    if found == known {
        return Ok(());
    }
    // All steps at once: whoever looks meanwhile sees the old form or the new one, and none between.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = version_of(&transaction, file, known)?;
    for migration in migrations.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", known)?;
    Ok(transaction.commit()?)
}

/// Switches to write-ahead logging only if it is not on yet: setting it always takes an exclusive
/// lock, and SQLite's own busy timeout does not cover every step of the switch.
fn ensure_wal(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let switch = || {
            let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
            if mode.eq_ignore_ascii_case("wal") {
                return Ok(());
            }
            connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
        };
        match switch() {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::error::Coded as _;

    fn number(connection: &Connection, sql: &str) -> i64 {
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn an_empty_database_becomes_ours_and_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.sqlite3");
        let mut connection = Connection::open(&file).unwrap();
        assert!(!check(&connection, &file).unwrap());
        for _ in 0..2 {
            migrate(&mut connection, &file, MIGRATIONS).unwrap();
            assert!(check(&connection, &file).unwrap());
            assert_eq!(number(&connection, "PRAGMA application_id"), APPLICATION_ID);
            assert_eq!(number(&connection, "PRAGMA user_version"), current_version());
        }
        let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }

    #[test]
    fn an_older_version_goes_forward_and_keeps_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.sqlite3");
        let mut connection = Connection::open(&file).unwrap();
        migrate(&mut connection, &file, &[VERSION_1]).unwrap();
        connection.execute("INSERT INTO audit (at, kind, detail) VALUES (1, 'kept', '{}')", []).unwrap();
        let next = [VERSION_1, "ALTER TABLE audit ADD COLUMN extra TEXT"];
        migrate(&mut connection, &file, &next).unwrap();
        assert_eq!(number(&connection, "PRAGMA user_version"), 2);
        assert_eq!(number(&connection, "SELECT count(extra IS NULL) FROM audit WHERE kind = 'kept'"), 1);

        let error = migrate(&mut connection, &file, &[VERSION_1]).unwrap_err();
        assert_eq!(error.doc().code, "STORE_NEWER_VERSION");
    }

    /// Every step is slow, so that a version between would be seen.
    #[test]
    fn nobody_sees_a_version_between() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.sqlite3");
        Connection::open(&file).unwrap().query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        let slow = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
            SELECT count(*) FROM n";
        let steps: Vec<String> =
            (1..8).map(|step| format!("CREATE TABLE step_{step} (a TEXT); {slow};")).collect();
        let (done, seen) = (std::sync::atomic::AtomicBool::new(false), std::sync::Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let connection = Connection::open(&file).unwrap();
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    seen.lock().unwrap().push(number(&connection, "PRAGMA user_version"));
                }
            });
            let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
            migrate(&mut Connection::open(&file).unwrap(), &file, &steps).unwrap();
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let mut seen = seen.into_inner().unwrap();
        seen.dedup();
        assert!(seen == [0, 7] || seen == [0], "{seen:?}");
    }

    #[test]
    fn a_failing_migration_leaves_the_version_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.sqlite3");
        let mut connection = Connection::open(&file).unwrap();
        migrate(&mut connection, &file, &[VERSION_1]).unwrap();
        let broken = [VERSION_1, "CREATE TABLE half (a TEXT)", "CREATE NONSENSE"];
        migrate(&mut connection, &file, &broken).unwrap_err();
        assert_eq!(number(&connection, "PRAGMA user_version"), 1);
        assert_eq!(number(&connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'half'"), 0);
    }
}
