//! The time and the patience that an observation has, and what went wrong with it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why an observation, or a part of it, came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// Its time ran out.
    #[error("{what} was not done within {}", seconds(*limit))]
    Deadline { what: String, limit: Duration },
    /// Somebody does not want it any more.
    #[error("it was cut short: {0}")]
    Cut(String),
    /// There is something that is not observed, by its name.
    #[error("{0}")]
    Refused(String),
    /// Git failed.
    #[error("`git {what}` failed: {words}")]
    Git { what: String, words: String },
    /// A file could not be read or written.
    #[error("{0}")]
    Files(String),
}

fn seconds(limit: Duration) -> String {
    format!("{} s", (limit.as_secs_f64() * 10.0).round() / 10.0)
}

impl Fault {
    pub(super) fn files(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Files(format!("{what} {}: {error}", path.display()))
    }
}

/// When to end at the latest, and whether somebody asked for it. Cheap to clone; clones share the wish.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    until: Instant,
    limit: Duration,
    wish: Arc<Mutex<Option<String>>>,
}

impl Watch {
    pub(super) fn new(limit: Duration) -> Self {
        let now = Instant::now();
        let until = now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(3600));
        Self { until, limit, wish: Arc::new(Mutex::new(None)) }
    }

    /// Asks for the end. The first reason stands.
    pub(super) fn end(&self, reason: String) {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
    }

    pub(super) fn asked(&self) -> Option<String> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(super) fn out_of_time(&self, what: &str) -> Fault {
        Fault::Deadline { what: what.to_owned(), limit: self.limit }
    }

    /// Whether to go on with `what`.
    pub(super) fn check(&self, what: &str) -> Result<(), Fault> {
        if let Some(reason) = self.asked() {
            return Err(Fault::Cut(reason));
        }
        if self.left().is_zero() { Err(self.out_of_time(what)) } else { Ok(()) }
    }
}
