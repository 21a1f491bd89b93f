//! How a call learns that nobody wants its result any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::connection::Peer;

/// How often the client's end of the connection is looked at while a tool waits.
const LOOK: Duration = Duration::from_millis(25);

/// Set once, with a reason; a tool that waits is woken.
#[derive(Debug, Default)]
pub struct Cancel {
    is_set: AtomicBool,
    reason: Mutex<Option<&'static str>>,
    changed: Condvar,
    /// Only where a client says by hanging up that it wants no result.
    peer: Option<Arc<Peer>>,
}

impl Cancel {
    pub(super) fn with_peer(peer: Option<Arc<Peer>>) -> Self {
        Self { peer, ..Self::default() }
    }

    /// Asks the call to end. The first reason stays.
    pub fn cancel(&self, reason: &'static str) {
        let mut held = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        held.get_or_insert(reason);
        self.is_set.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Why the call is to end, if it is. Cheap enough to be asked every few milliseconds.
    pub fn reason(&self) -> Option<&'static str> {
        if !self.is_set.load(Ordering::Acquire) && self.peer.as_ref().is_some_and(|peer| peer.has_left()) {
            self.cancel("the client hung up");
        }
        if self.is_set.load(Ordering::Acquire) {
            *self.reason.lock().unwrap_or_else(PoisonError::into_inner)
        } else {
            None
        }
    }

    /// Waits until then, or until the call is to end; says why, if it is.
    pub fn wait_until(&self, until: Instant) -> Option<&'static str> {
        loop {
            if let Some(reason) = self.reason() {
                return Some(reason);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let wait = if self.peer.is_some() { left.min(LOOK) } else { left };
            let held = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
            if held.is_none() {
                drop(self.changed.wait_timeout(held, wait));
            }
        }
    }
}
