//! The record of every call, allowed or refused: who is told, and how that is kept off the way of the answer.

use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The tool did it.
    Allowed,
    /// The tool ran and could not do it, or was cancelled.
    Failed,
    /// No tool ran.
    Refused,
}

impl Outcome {
    /// Its name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

/// One call, or one request that was turned away at the door. Never the token, and of the arguments only size and hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Milliseconds since 1970.
    pub at: i64,
    /// The run it came from.
    pub run: Arc<str>,
    /// The tool as it was asked for, at most 64 characters; nothing if the request never named one.
    pub tool: Option<Arc<str>>,
    /// What became of it.
    pub outcome: Outcome,
    /// Why, in one word; `ok` if the tool did it.
    pub reason: &'static str,
    /// From the first look at the request to its answer.
    pub latency_us: u64,
    /// Size of the arguments as they came.
    pub argument_bytes: usize,
    /// SHA-256 of the arguments as they came, if there were any.
    pub argument_sha256: Option<[u8; 32]>,
}

impl CallRecord {
    /// As a line of a file or the facts of an audit row.
    pub fn to_json(&self) -> Value {
        use std::fmt::Write as _;
        let hash = self.argument_sha256.map(|bytes| {
            bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        });
        json!({
            "at": self.at, "run": &*self.run, "tool": self.tool.as_deref(), "outcome": self.outcome.as_str(),
            "reason": self.reason, "latency_us": self.latency_us, "argument_bytes": self.argument_bytes,
            "argument_sha256": hash,
        })
    }
}

/// Is told of every call, on the thread that answers it and before it does. Has to be quick.
pub trait CallLog: Send + Sync {
    /// Takes a record. After an error no further call is served.
    fn record(&self, record: CallRecord) -> Result<(), String>;
    /// Returns when everything that was taken is kept.
    fn flush(&self) -> Result<(), String>;
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the records in memory.
#[derive(Debug, Default)]
pub struct MemoryLog(Mutex<Vec<CallRecord>>);

impl MemoryLog {
    /// Those so far.
    pub fn records(&self) -> Vec<CallRecord> {
        locked(&self.0).clone()
    }
}

impl CallLog for MemoryLog {
    fn record(&self, record: CallRecord) -> Result<(), String> {
        locked(&self.0).push(record);
        Ok(())
    }

    fn flush(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Writes a line of JSON a record to a file that is there already. A crash of this process loses none.
#[derive(Debug)]
pub struct LinesLog(Mutex<File>);

impl LinesLog {
    /// Into this file, from where it stands.
    pub fn new(file: File) -> Self {
        Self(Mutex::new(file))
    }
}

impl CallLog for LinesLog {
    fn record(&self, record: CallRecord) -> Result<(), String> {
        let mut line = record.to_json().to_string();
        line.push('\n');
        locked(&self.0).write_all(line.as_bytes()).map_err(|error| error.to_string())
    }

    fn flush(&self) -> Result<(), String> {
        locked(&self.0).sync_all().map_err(|error| error.to_string())
    }
}

/// How long records are gathered before they are written together.
const GATHER: Duration = Duration::from_millis(20);
/// Records that may wait; more of them wait for the writer.
const WAITING: usize = 4096;

/// Hands records in batches to a writer on a thread of its own. What was taken in the last moment is lost if the
/// process is killed; [`CallLog::flush`], and with it the end of the run, waits for all.
pub struct BatchedLog {
    shared: Arc<Batches>,
    writer: Mutex<Writer>,
}

type Write = Box<dyn FnMut(&[CallRecord]) -> Result<(), String> + Send>;

/// The thread is started for the first record: many runs have none, and each has a start.
enum Writer {
    Resting(Write),
    Running(JoinHandle<()>),
    Over,
}

#[derive(Default)]
struct Batches {
    state: Mutex<Batch>,
    changed: Condvar,
}

#[derive(Default)]
struct Batch {
    waiting: Vec<CallRecord>,
    /// The writer has some that are not written yet.
    writing: bool,
    hurry: bool,
    ended: bool,
    failed: Option<String>,
}

impl BatchedLog {
    /// `write` keeps a batch, in order.
    pub fn new(write: impl FnMut(&[CallRecord]) -> Result<(), String> + Send + 'static) -> Self {
        Self { shared: Arc::default(), writer: Mutex::new(Writer::Resting(Box::new(write))) }
    }

    fn see_to_the_writer(&self) {
        let mut writer = locked(&self.writer);
        let mut write = match std::mem::replace(&mut *writer, Writer::Over) {
            Writer::Resting(write) => write,
            running => {
                *writer = running;
                return;
            }
        };
        let batches = Arc::clone(&self.shared);
        let begun = thread::Builder::new().name("scope-log".into()).spawn(move || {
            while let Some(batch) = batches.next() {
                let result = write(&batch);
                let mut state = locked(&batches.state);
                state.writing = false;
                if let Err(error) = result {
                    state.failed.get_or_insert(error);
                }
                batches.changed.notify_all();
            }
        });
        match begun {
            Ok(thread) => *writer = Writer::Running(thread),
            Err(error) => {
                locked(&self.shared.state).failed.get_or_insert(error.to_string());
            }
        }
    }
}

impl Batches {
    fn next(&self) -> Option<Vec<CallRecord>> {
        let wait = |state| self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        let mut state = locked(&self.state);
        while state.waiting.is_empty() {
            if state.ended {
                return None;
            }
            state = wait(state);
        }
        if !state.hurry && !state.ended {
            let busy = |state: &mut Batch| !state.hurry && !state.ended && state.waiting.len() < WAITING;
            let waited = self.changed.wait_timeout_while(state, GATHER, busy);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.writing = true;
        Some(std::mem::take(&mut state.waiting))
    }
}

impl CallLog for BatchedLog {
    fn record(&self, record: CallRecord) -> Result<(), String> {
        let full = |state: &mut Batch| state.waiting.len() >= WAITING && state.failed.is_none();
        let state = locked(&self.shared.state);
        let mut state = self.shared.changed.wait_while(state, full).unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        state.waiting.push(record);
        let count = state.waiting.len();
        drop(state);
        // The writer sleeps only before the first of a batch, or until there is no more room.
        if count == 1 || count == WAITING {
            self.see_to_the_writer();
            self.shared.changed.notify_all();
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), String> {
        let mut state = locked(&self.shared.state);
        state.hurry = true;
        self.shared.changed.notify_all();
        let open = |state: &mut Batch| (state.writing || !state.waiting.is_empty()) && state.failed.is_none();
        state = self.shared.changed.wait_while(state, open).unwrap_or_else(PoisonError::into_inner);
        state.hurry = false;
        state.failed.clone().map_or(Ok(()), Err)
    }
}

impl Drop for BatchedLog {
    fn drop(&mut self) {
        locked(&self.shared.state).ended = true;
        self.shared.changed.notify_all();
        if let Writer::Running(thread) = std::mem::replace(&mut *locked(&self.writer), Writer::Over) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record(n: u64) -> CallRecord {
        CallRecord {
            at: 0,
            run: "r".into(),
            tool: None,
            outcome: Outcome::Refused,
            reason: "test",
            latency_us: n,
            argument_bytes: 0,
            argument_sha256: Some([0xab; 32]),
        }
    }

    #[test]
    fn after_a_flush_every_record_is_written_once_and_in_order() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&seen);
        let log = BatchedLog::new(move |batch| {
            writer.lock().unwrap().extend(batch.iter().map(|record| record.latency_us));
            Ok(())
        });
        for n in 0..10_000 {
            log.record(record(n)).unwrap();
        }
        log.flush().unwrap();
        assert!(seen.lock().unwrap().iter().copied().eq(0..10_000));
        log.record(record(10_000)).unwrap();
        drop(log);
        assert_eq!(seen.lock().unwrap().len(), 10_001, "the end writes what is left");
    }

    #[test]
    fn a_failed_writer_is_told_by_flush_and_refuses_what_comes_after() {
        let log = BatchedLog::new(|_| Err("the disk is full".into()));
        log.record(record(1)).unwrap();
        assert_eq!(log.flush(), Err("the disk is full".into()));
        assert_eq!(log.record(record(2)), Err("the disk is full".into()));
    }

    #[test]
    fn a_line_is_json_with_the_hash_in_hexadecimal() {
        let value = record(7).to_json();
        assert_eq!(value["argument_sha256"], "ab".repeat(32));
        assert_eq!((&value["outcome"], &value["tool"]), (&json!("refused"), &Value::Null));
    }
}
