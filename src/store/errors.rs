//! What can go wrong in the store, with a documented code for each.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use serde_json::{Value, json};

use super::{BlobKind, is_id};
use crate::codes;
use crate::error::{CodeDoc, Coded};

codes! {
    STORE_CORRUPT { exit: Unexpected, retryable: false,
        cause: "The state database is damaged, cut short, or belongs to another program. Nothing was deleted or overwritten.",
        remedy: "Move the named file and its `-wal` and `-shm` neighbours to a safe place; the next start makes a new database. `agent-bridge doctor` shows the state folder." }
    STORE_ROW_CORRUPT { exit: Unexpected, retryable: false,
        cause: "One record in the state database cannot be read; all others can.",
        remedy: "Start a new session for further work and keep the state folder for inspection with `agent-bridge doctor`." }
    STORE_NEWER_VERSION { exit: Refused, retryable: false,
        cause: "The state database was written by a newer version of agent-bridge.",
        remedy: "Use that newer version, or point `stateDir` at another folder." }
    STORE_OLDER_VERSION { exit: Refused, retryable: true,
        cause: "The state database was written by an older version and was opened for reading only, so it was not updated.",
        remedy: "Start a turn once with this version; that updates the database." }
    STORE_UNWRITABLE { exit: Refused, retryable: false,
        cause: "The state folder, or a file in it, cannot be created, opened or written.",
        remedy: "Set `stateDir` in the config to a folder you own on a local, writable file system." }
    STORE_FULL { exit: Refused, retryable: true,
        cause: "There is no room left for the state folder.",
        remedy: "Free disk space, then repeat the request." }
    STORE_BUSY { exit: RetryLater, retryable: true,
        cause: "Another process held the state database for longer than ten seconds.",
        remedy: "Repeat the request. If it persists, look for a stuck `agent-bridge` process or a network file system." }
    STORE_FAILED { exit: Unexpected, retryable: false,
        cause: "The state database or a file beside it gave an unexpected error.",
        remedy: "Run `agent-bridge doctor`." }
    STORE_BAD_ID { exit: Usage, retryable: false,
        cause: "An id is not a lower-case UUID with hyphens.",
        remedy: "Use an id exactly as a tool or command returned it." }
    STORE_BAD_CURSOR { exit: Usage, retryable: false,
        cause: "A paging cursor is not one that a list returned.",
        remedy: "Start the list again without a cursor." }
    STORE_DUPLICATE_ID { exit: Unexpected, retryable: false,
        cause: "A new session or turn was to be recorded under an id that exists already.",
        remedy: "Repeat the request; a new id is made for it." }
    STORE_PATH_NOT_UNICODE { exit: Refused, retryable: false,
        cause: "A path that must be recorded is not valid Unicode.",
        remedy: "Use a folder whose path is valid Unicode." }
    SESSION_NOT_FOUND { exit: Refused, retryable: false,
        cause: "No session has this id.",
        remedy: "Take an id from `list_sessions`." }
    TURN_NOT_FOUND { exit: Refused, retryable: false,
        cause: "No such turn is recorded.",
        remedy: "Take an id from `list_turns`." }
    SESSION_BUSY { exit: RetryLater, retryable: true,
        cause: "A session runs one turn at a time, and one is running.",
        remedy: "Wait for the named turn with `wait_turn`, or end it with `cancel_turn`." }
    SESSION_REVISION_MISMATCH { exit: Refused, retryable: false,
        cause: "The session changed since the caller looked at it.",
        remedy: "Read the session again with `get_session` and repeat with its revision." }
    SESSION_CWD_MISMATCH { exit: Refused, retryable: false,
        cause: "A session keeps its working folder for life.",
        remedy: "Leave the folder out, or start a new session in the other folder." }
    IDEMPOTENCY_CONFLICT { exit: Refused, retryable: false,
        cause: "The idempotency key was already used for a different request.",
        remedy: "Use a new key for a new request, or repeat the first request unchanged." }
    TOO_MANY_TURNS { exit: RetryLater, retryable: true,
        cause: "As many turns as the config allows are running in this state folder.",
        remedy: "Wait for one to end, or raise `maxConcurrentTurns`." }
    TURN_ALREADY_FINISHED { exit: Refused, retryable: false,
        cause: "The end of this turn is recorded; the first end stands.",
        remedy: "Read the result with `wait_turn`." }
    TURN_INTERRUPTED { exit: Unexpected, retryable: false,
        cause: "The process that supervised the turn ended before the turn's end was recorded.",
        remedy: "Look at the partial output with `get_turn_output`, check the working folder, then continue the session." }
    QUESTION_NOT_FOUND { exit: Refused, retryable: false,
        cause: "No worker has asked a question with this id.",
        remedy: "Take an id from `list_questions`." }
    QUESTION_ANSWERED { exit: Refused, retryable: false,
        cause: "Somebody answered the question before. The first answer stands.",
        remedy: "Look at the answer with `list_questions`, and at what the worker makes of it with `wait_turn`." }
    QUESTION_EXPIRED { exit: Refused, retryable: false,
        cause: "Nobody answered in time, so the worker went on with the default: a question without its answer, an approval denied.",
        remedy: "Tell the worker with `continue_session` when it is done; `scope.askTimeoutSeconds` in the config file is how long a question waits." }
    QUESTION_CLOSED { exit: Refused, retryable: false,
        cause: "The question was withdrawn: the worker's run has ended, or it does not wait for this call any more.",
        remedy: "Look at the turn with `wait_turn`." }
    BLOB_MISSING { exit: Refused, retryable: false,
        cause: "The turn has no stored output of this kind.",
        remedy: "Ask for another kind of output, or check that the state folder's `blobs` were not deleted." }
    BLOB_INCOMPLETE { exit: Unexpected, retryable: false,
        cause: "The stored answer is not as long as it was when the turn ended: its file is damaged, or the disk was full.",
        remedy: "Read the raw output with get_turn_output (field stdout), or continue the session and ask for the answer again." }
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field is")]
pub enum StoreError {
    #[error("the state database {} is not usable: {detail}", file.display())]
    Corrupt { file: PathBuf, detail: String },
    #[error("the record of {kind} {id} cannot be read: {detail}")]
    RowCorrupt { kind: &'static str, id: String, detail: String },
    #[error("the state database {} has version {found}; this program knows versions up to {known}", file.display())]
    NewerVersion { file: PathBuf, found: i64, known: i64 },
    #[error("the state database {} has version {found}; this program needs version {known}", file.display())]
    OlderVersion { file: PathBuf, found: i64, known: i64 },
    #[error("cannot write to the state folder: {}: {detail}", path.display())]
    Unwritable { path: PathBuf, detail: String },
    #[error("no room left for {}", path.display())]
    Full { path: PathBuf },
    #[error("the state database {} is held by another process", file.display())]
    Busy { file: PathBuf },
    #[error("{}: {detail}", path.display())]
    Failed { path: PathBuf, detail: String },
    /// A database error before it is given its file; callers outside this room never see it.
    #[error("the state database gave an error: {0}")]
    Database(#[from] rusqlite::Error),
    #[error("{0:?} is not an id")]
    BadId(String),
    #[error("{0:?} is not a cursor of this list")]
    BadCursor(String),
    #[error("the {kind} id {id} exists already")]
    DuplicateId { kind: &'static str, id: String },
    #[error("the path {0} is not valid Unicode")]
    PathNotUnicode(String),
    #[error("there is no session {0}")]
    SessionNotFound(String),
    #[error("there is no turn {0}")]
    TurnNotFound(String),
    #[error("session {session} has no turn {index}")]
    TurnIndexNotFound { session: String, index: u64 },
    #[error("session {session} is busy with turn {turn}")]
    SessionBusy { session: String, turn: String },
    #[error("session {session} is at revision {found}, not {expected}")]
    RevisionMismatch { session: String, expected: u64, found: u64 },
    #[error("session {session} belongs to {}, not {}", recorded.display(), asked.display())]
    CwdMismatch { session: String, recorded: PathBuf, asked: PathBuf },
    #[error("the idempotency key belongs to turn {turn}, which was asked for something else")]
    IdempotencyConflict { turn: String },
    #[error("{running} turns are running; the limit is {max}")]
    TooManyTurns { running: u64, max: u64 },
    #[error("turn {0} has already finished")]
    TurnAlreadyFinished(String),
    #[error("there is no question {0}")]
    QuestionNotFound(String),
    #[error("question {id} was answered by {by}")]
    QuestionAnswered { id: String, by: String },
    #[error("question {0} waited long enough; its worker went on")]
    QuestionExpired(String),
    #[error("question {0} was withdrawn")]
    QuestionClosed(String),
    #[error("turn {turn} has no stored {kind}")]
    BlobMissing { turn: String, kind: BlobKind },
    #[error("the stored answer of turn {turn} has {found} bytes instead of {recorded}")]
    BlobIncomplete { turn: String, found: u64, recorded: u64 },
}

impl Coded for StoreError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::Corrupt { .. } => &STORE_CORRUPT,
            Self::RowCorrupt { .. } => &STORE_ROW_CORRUPT,
            Self::NewerVersion { .. } => &STORE_NEWER_VERSION,
            Self::OlderVersion { .. } => &STORE_OLDER_VERSION,
            Self::Unwritable { .. } => &STORE_UNWRITABLE,
            Self::Full { .. } => &STORE_FULL,
            Self::Busy { .. } => &STORE_BUSY,
            Self::Failed { .. } | Self::Database(_) => &STORE_FAILED,
            Self::BadId(_) => &STORE_BAD_ID,
            Self::BadCursor(_) => &STORE_BAD_CURSOR,
            Self::DuplicateId { .. } => &STORE_DUPLICATE_ID,
            Self::PathNotUnicode(_) => &STORE_PATH_NOT_UNICODE,
            Self::SessionNotFound(_) => &SESSION_NOT_FOUND,
            Self::TurnNotFound(_) | Self::TurnIndexNotFound { .. } => &TURN_NOT_FOUND,
            Self::SessionBusy { .. } => &SESSION_BUSY,
            Self::RevisionMismatch { .. } => &SESSION_REVISION_MISMATCH,
            Self::CwdMismatch { .. } => &SESSION_CWD_MISMATCH,
            Self::IdempotencyConflict { .. } => &IDEMPOTENCY_CONFLICT,
            Self::TooManyTurns { .. } => &TOO_MANY_TURNS,
            Self::TurnAlreadyFinished(_) => &TURN_ALREADY_FINISHED,
            Self::QuestionNotFound(_) => &QUESTION_NOT_FOUND,
            Self::QuestionAnswered { .. } => &QUESTION_ANSWERED,
            Self::QuestionExpired(_) => &QUESTION_EXPIRED,
            Self::QuestionClosed(_) => &QUESTION_CLOSED,
            Self::BlobMissing { .. } => &BLOB_MISSING,
            Self::BlobIncomplete { .. } => &BLOB_INCOMPLETE,
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::SessionBusy { session, turn } => {
                // It may have ended in the meantime; then nobody knows which it was.
                let turn = Some(turn).filter(|turn| is_id(turn));
                Some(json!({ "bridge_session_id": session, "turn_id": turn }))
            }
            Self::RevisionMismatch { session, expected, found } => {
                Some(json!({ "bridge_session_id": session, "expected": expected, "found": found }))
            }
            Self::IdempotencyConflict { turn } | Self::TurnAlreadyFinished(turn) => {
                Some(json!({ "turn_id": turn }))
            }
            Self::TooManyTurns { running, max } => Some(json!({ "running": running, "max": max })),
            _ => None,
        }
    }
}

impl StoreError {
    /// Gives a bare database error its file and its kind; any other error stays as it is.
    pub(super) fn located(self, file: &Path) -> Self {
        let Self::Database(error) = self else { return self };
        let file = file.to_path_buf();
        let detail = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Corrupt { file, detail },
            Some(ErrorCode::DiskFull) => Self::Full { path: file },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { file },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::Unwritable { path: file, detail }
            }
            // The version says it is ours and a part is gone.
            _ if detail.starts_with("no such table") || detail.starts_with("no such column") => {
                Self::Corrupt { file, detail }
            }
            _ => Self::Failed { path: file, detail },
        }
    }

    /// An input/output error on a file or folder of the store.
    pub(super) fn from_io(path: &Path, error: &io::Error) -> Self {
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory
            // A file stands where a folder belongs, in the words of Windows.
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotFound => Self::Unwritable { path, detail: error.to_string() },
            _ => Self::Failed { path, detail: error.to_string() },
        }
    }
}
