//! The engine of every change: journal, undoable steps, one decision, repeatable steps after it.
//!
//! Before the decision nothing is final: a failure, an interrupt or a crash puts everything back. After it
//! nothing goes back: what is left is a list of steps that recovery can repeat. The exit code follows: before
//! the decision never 0, after it 0 or 4.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::clients::Hunk;
use super::journal::{self, Action, AppendError, FileFacts, Journal, Record};
use super::{Layout, ReleaseError, recovery};
use crate::context::Clock;
use crate::digest;
use crate::error::Error;
use crate::platform::{self, LockFile, PlatformError, Replacement};

/// Largest file that is replaced.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;
/// Room that is kept so that undoing works on a full disk, beside the size of what has to be put back.
const BALLAST_BYTES: usize = 256 * 1024;

/// The right to change an installation. Everybody who changes it holds this.
#[derive(Debug)]
pub struct InstallLock {
    _file: LockFile,
}

impl InstallLock {
    /// Takes it in an installation that is there, or says who is at work.
    pub fn take(layout: &Layout) -> Result<Self, ReleaseError> {
        layout.require_installation()?;
        Self::take_in(layout)
    }

    /// The same, and makes what is missing of an installation. Nothing but installing may.
    pub fn take_to_install(layout: &Layout) -> Result<Self, ReleaseError> {
        let lock = Self::take_in(layout)?;
        journal::require_finished(layout)?;
        Ok(lock)
    }

    fn take_in(layout: &Layout) -> Result<Self, ReleaseError> {
        layout.create()?;
        let path = layout.install_lock();
        let Some(file) = platform::try_exclusive(&path)? else {
            return Err(ReleaseError::Locked { root: layout.root().to_path_buf() });
        };
        // Asked of the lock itself: a file made to try it with would stay behind a kill.
        match platform::try_exclusive(&path)? {
            None => Ok(Self { _file: file }),
            Some(_) => Err(PlatformError::LocksUnreliable { path: layout.root().join("locks") }.into()),
        }
    }

    /// Takes it where everything is as it should be: refuses where an earlier transaction was cut off.
    pub fn take_for_change(layout: &Layout) -> Result<Self, ReleaseError> {
        let lock = Self::take(layout)?;
        journal::require_finished(layout)?;
        Ok(lock)
    }
}

/// The place right after the decision is on the disk.
pub const AFTER_COMMIT: &str = "after-commit";

/// Set by Ctrl-C and SIGTERM; looked at between the steps.
#[derive(Clone, Debug, Default)]
pub struct Interruption {
    asked: Arc<AtomicBool>,
    watcher: Option<Watcher>,
}

/// What is told of every place that a transaction passes.
type OnPlace = dyn Fn(&Interruption, &str) + Send + Sync;

#[derive(Clone)]
struct Watcher(Arc<OnPlace>);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watcher")
    }
}

impl Interruption {
    /// One that tells which places a transaction passes; what is told may wait there.
    pub fn watched(watcher: impl Fn(&Self, &str) + Send + Sync + 'static) -> Self {
        Self::default().and_watched(watcher)
    }

    /// The same, asked by the same signals as this one.
    #[must_use]
    pub fn and_watched(self, watcher: impl Fn(&Self, &str) + Send + Sync + 'static) -> Self {
        Self { watcher: Some(Watcher(Arc::new(watcher))), ..self }
    }

    /// Tells that a transaction is at this place.
    pub(super) fn pass(&self, place: &str) {
        if let Some(Watcher(watcher)) = &self.watcher {
            watcher(self, place);
        }
    }

    /// Asks the transaction to stop at its next step.
    pub fn interrupt(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked.
    pub fn is_set(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// From now on the signals that end a program set this instead.
    pub fn watch() -> Self {
        let this = Self::default();
        let flag = this.clone();
        // Where no thread can be had the signals end the program, and recovery undoes what it began.
        let _ = std::thread::Builder::new().name("signals".into()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(platform::termination());
            flag.interrupt();
        });
        this
    }
}

/// What a transaction is about.
#[derive(Debug)]
pub struct Purpose<'a> {
    /// Short name, part of the id: `cutover`.
    pub operation: &'a str,
    /// The operator's words.
    pub reason: Option<&'a str>,
    /// Its inputs, for the record.
    pub facts: Value,
}

/// The client whose file is replaced, and the places of it that are changed.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Its id.
    pub client: &'a str,
    /// What others write beside these places stays when the change is taken back.
    pub patch: &'a [Hunk],
}

/// A transaction that was not decided yet.
#[derive(Debug)]
pub struct Transaction<'a> {
    layout: &'a Layout,
    clock: Clock,
    interruption: Interruption,
    journal: Journal,
    files: usize,
}

/// Runs a transaction: `body` makes the undoable steps and gives the repeatable ones. What it returns beside them
/// is returned if everything was done.
///
/// An error of `body` undoes everything and is returned. [`ReleaseError::NotUndone`] and
/// [`ReleaseError::NotFinished`] say that recovery is needed.
pub fn run<T>(
    layout: &Layout,
    _lock: &InstallLock,
    clock: Clock,
    interruption: &Interruption,
    purpose: Purpose<'_>,
    body: impl FnOnce(&mut Transaction<'_>) -> Result<(Vec<Action>, T), Error>,
) -> Result<T, Error> {
    let mut transaction = Transaction::begin(layout, clock, interruption, purpose)?;
    let decided = body(&mut transaction).and_then(|(actions, value)| {
        transaction.checkpoint("before-commit")?;
        Ok((actions, value))
    });
    let (actions, value) = match decided {
        Ok(decided) => decided,
        Err(cause) => return Err(transaction.undo(cause)),
    };
    transaction.commit(actions)?;
    Ok(value)
}

impl<'a> Transaction<'a> {
    fn begin(
        layout: &'a Layout,
        clock: Clock,
        interruption: &Interruption,
        purpose: Purpose<'_>,
    ) -> Result<Self, ReleaseError> {
        journal::require_finished(layout)?;
        let journal = Journal::create(layout, purpose.operation)?;
        let mut this = Self { layout, clock, interruption: interruption.clone(), journal, files: 0 };
        let record = Record::Begin {
            operation: purpose.operation.to_owned(),
            reason: purpose.reason.map(str::to_owned),
            facts: purpose.facts,
        };
        let begun = this
            .append(record)
            .and_then(|()| journal::sync_folder(layout))
            .and_then(|()| reserve(layout, BALLAST_BYTES));
        match begun {
            Ok(()) => Ok(this),
            Err(error) => {
                // Nothing was done: the journal itself is all there is to take back.
                let path = this.journal.path().to_path_buf();
                drop(this);
                let removed = release_ballast(layout)
                    .and_then(|()| platform::remove_durable(&path).map_err(ReleaseError::from));
                match removed {
                    Ok(()) => Err(error),
                    Err(left) => Err(ReleaseError::NotUndone {
                        txid: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                        cause: error.to_string(),
                        why: left.to_string(),
                    }),
                }
            }
        }
    }

    /// Its id.
    pub fn txid(&self) -> &str {
        self.journal.txid()
    }

    /// The installation.
    pub fn layout(&self) -> &Layout {
        self.layout
    }

    /// The time, UTC, as it is written into records.
    pub fn now(&self) -> String {
        timestamp(self.clock)
    }

    /// Whether it was asked to stop.
    pub fn is_interrupted(&self) -> bool {
        self.interruption.is_set()
    }

    /// A place between two steps: an interrupt is honoured here, and tests stop here.
    fn checkpoint(&self, name: &str) -> Result<(), ReleaseError> {
        super::fault::point(name);
        self.interruption.pass(name);
        if self.interruption.is_set() { Err(ReleaseError::Interrupted) } else { Ok(()) }
    }

    /// Records that a phase was reached and what was found there.
    pub fn phase(&mut self, phase: &str, facts: Value) -> Result<(), ReleaseError> {
        self.checkpoint(phase)?;
        self.append(Record::Phase { phase: phase.to_owned(), facts })
    }

    /// Makes a private folder below ROOT that is removed if the transaction is undone.
    pub fn create_folder(&mut self, path: &Path) -> Result<(), ReleaseError> {
        let relative = self.relative(path)?;
        self.append(Record::Create { path: relative })?;
        Ok(platform::create_private_dir(path)?)
    }

    /// Replaces a file that still has the content `before` (none: that is not there). `after` of none removes it.
    /// `path` is the file itself, not a link to it. `owner` says whose file it is if it is a client's.
    pub fn replace(
        &mut self,
        path: &Path,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
        mode_if_new: u32,
        owner: Option<&Owner<'_>>,
    ) -> Result<(), ReleaseError> {
        if before == after {
            return Ok(());
        }
        self.keep(path, before, after, owner)?;
        if !platform::replace_if(path, after, &self.temporary(mode_if_new), &|there| there == before)? {
            return Err(ReleaseError::FileChanged { path: path.to_path_buf() });
        }
        self.require_content(path, after)
    }

    /// The same where the replacing itself is somebody else's work, as with a running program.
    pub fn replace_by(
        &mut self,
        path: &Path,
        before: &[u8],
        after: &[u8],
        replace: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.keep(path, Some(before), Some(after), None)?;
        replace()?;
        Ok(self.require_content(path, Some(after))?)
    }

    /// Keeps what is there and writes into the journal what is to be; then nothing but the replacing is left.
    fn keep(
        &mut self,
        path: &Path,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
        owner: Option<&Owner<'_>>,
    ) -> Result<(), ReleaseError> {
        self.require_content(path, before)?;
        self.files += 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let backup = self.layout.backup(self.txid()).join(format!("{:03}-{name}", self.files));
        let relative = self.relative(&backup)?;
        if let Some(bytes) = before {
            platform::create_private_dir(&self.layout.backup(self.txid()))?;
            reserve(self.layout, BALLAST_BYTES + bytes.len())?;
            platform::replace_durable(&backup, bytes, &self.temporary(0o600))?;
        }
        self.append(Record::Replace {
            path: path.to_path_buf(),
            before: before.map(FileFacts::of),
            after: after.map(FileFacts::of),
            backup: before.map(|_| relative),
            client: owner.map(|owner| owner.client.to_owned()),
            patch: owner.map(|owner| owner.patch.to_vec()).unwrap_or_default(),
        })?;
        self.interruption.pass("replacing");
        self.require_content(path, before)
    }

    /// Compare-and-swap: what somebody else wrote meanwhile is never replaced.
    fn require_content(&self, path: &Path, expected: Option<&[u8]>) -> Result<(), ReleaseError> {
        if content(path)?.as_deref() == expected {
            Ok(())
        } else {
            Err(ReleaseError::FileChanged { path: path.to_path_buf() })
        }
    }

    fn temporary(&self, mode_if_new: u32) -> Replacement {
        Replacement { temporary: temporary_name(self.txid()), mode_if_new }
    }

    fn relative(&self, path: &Path) -> Result<String, ReleaseError> {
        self.layout.relative(path).ok_or_else(|| ReleaseError::RootUnusable {
            path: path.to_path_buf(),
            why: "its name cannot be written into the journal".into(),
        })
    }

    fn append(&mut self, record: Record) -> Result<(), ReleaseError> {
        let at = self.now();
        self.journal.append(&at, record).map_err(AppendError::into_inner)
    }

    fn undo(self, cause: Error) -> Error {
        let txid = self.txid().to_owned();
        let layout = self.layout.clone();
        let clock = self.clock;
        drop(self);
        match recovery::undo_unfinished(&layout, clock) {
            Ok(report) if report.conflicts.is_empty() => cause,
            Ok(report) => {
                let names: Vec<String> =
                    report.conflicts.iter().map(|path| path.display().to_string()).collect();
                let hint = format!(
                    "These files were changed by another program meanwhile and were left as they are: {}. {}",
                    names.join(", "),
                    cause.hint()
                );
                cause.with_hint(hint)
            }
            Err(error) => {
                ReleaseError::NotUndone { txid, cause: cause.to_string(), why: error.to_string() }.into()
            }
        }
    }

    fn commit(mut self, actions: Vec<Action>) -> Result<(), Error> {
        let at = self.now();
        let txid = self.txid().to_owned();
        match self.journal.append(&at, Record::Commit { actions: actions.clone() }) {
            Ok(()) => {}
            Err(AppendError::NotWritten(error)) => return Err(self.undo(error.into())),
            // Whether it was decided is known only after the next look at the disk.
            Err(AppendError::Unknown(error)) => {
                return Err(ReleaseError::NotFinished { txid, why: error.to_string() }.into());
            }
        }
        super::fault::point(AFTER_COMMIT);
        self.interruption.pass(AFTER_COMMIT);
        recovery::finish(self.layout, self.clock, &mut self.journal, &actions, &self.interruption)
            .map_err(|error| ReleaseError::NotFinished { txid, why: error.to_string() }.into())
    }
}

/// The name beside a target under which a transaction writes.
pub(super) fn temporary_name(txid: &str) -> String {
    format!(".ab-{txid}.tmp")
}

/// UTC with milliseconds, as in all records.
pub fn timestamp(clock: Clock) -> String {
    timestamp_of(clock.now_ms())
}

/// The same of a time in milliseconds since 1970.
fn timestamp_of(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => "1970-01-01T00:00:00.000Z".into(),
    }
}

/// What is in a file; none if there is none.
pub(super) fn content(path: &Path) -> Result<Option<Vec<u8>>, ReleaseError> {
    let file = match platform::open_no_link(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ReleaseError::io("cannot read", path)(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(ReleaseError::io("cannot read", path))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ReleaseError::io("cannot take up", path)(std::io::Error::other("the file is too large")));
    }
    Ok(Some(bytes))
}

/// What identifies the content of a file now.
pub(super) fn facts_of(path: &Path) -> Result<Option<FileFacts>, ReleaseError> {
    let file = match platform::open_no_link(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ReleaseError::io("cannot read", path)(error)),
    };
    let (sha256, bytes) = digest::of_reader(file).map_err(ReleaseError::io("cannot read", path))?;
    Ok(Some(FileFacts { sha256, bytes }))
}

fn ballast(layout: &Layout) -> PathBuf {
    layout.journal().join(".ballast")
}

/// Takes disk space that is given back when a transaction has to be undone or finished.
fn reserve(layout: &Layout, bytes: usize) -> Result<(), ReleaseError> {
    let path = ballast(layout);
    let have = std::fs::symlink_metadata(&path).map_or(0, |found| found.len());
    if have >= bytes as u64 {
        return Ok(());
    }
    // Not zeros alone, which some file systems do not store.
    let filling: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8 | 1).collect();
    Ok(platform::overwrite_durable(&path, &filling)?)
}

/// Gives it back. What follows may work without, so most callers go on where this fails; nothing is over before
/// it succeeded.
pub(super) fn release_ballast(layout: &Layout) -> Result<(), ReleaseError> {
    remove_if_there(&ballast(layout))
}

/// Removes a file of ours that may be gone already.
pub(super) fn remove_if_there(path: &Path) -> Result<(), ReleaseError> {
    platform::remove_leftover(path).map_err(ReleaseError::io("cannot remove", path))
}
