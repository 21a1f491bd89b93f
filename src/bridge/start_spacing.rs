//! Time between two starts of one agent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::run_spec::RunSpec;
use super::supervise::CANCEL_POLL;
use crate::config::OnDisconnect;
use crate::platform::{self, LockFile};
use crate::store::{Store, start_lock_path};

/// Keeps two starts of one agent apart, across processes: a lock is held from before the start until the
/// spacing has passed after it, even if the run is over before that.
pub(super) struct StartSpacing {
    lock: Option<LockFile>,
    holder: Option<std::thread::JoinHandle<()>>,
    spacing: Duration,
}

impl StartSpacing {
    /// Waits for its turn. A cancel or the end of the front door ends the wait; the run then sees it first.
    pub(super) fn wait(store: &Store, spec: &RunSpec, gone: &AtomicBool) -> Self {
        let spacing = Duration::from_millis(spec.start_spacing_ms);
        let mut waiting = Self { lock: None, holder: None, spacing };
        if spacing.is_zero() {
            return waiting;
        }
        let path = start_lock_path(store.state_dir(), spec.turn.agent);
        let deadline = Instant::now() + spacing * 64;
        while Instant::now() < deadline {
            match platform::wait_exclusive(&path, CANCEL_POLL) {
                Ok(None) => {}
                taken => {
                    waiting.lock = taken.ok().flatten();
                    return waiting;
                }
            }
            let host_left = gone.load(Ordering::SeqCst) && spec.on_disconnect == OnDisconnect::Cancel;
            if host_left || store.cancel_requested(&spec.turn.id).ok().flatten().is_some() {
                return waiting;
            }
        }
        waiting
    }

    pub(super) fn started(&mut self) {
        if let Some(lock) = self.lock.take() {
            let spacing = self.spacing;
            self.holder = Some(std::thread::spawn(move || {
                std::thread::sleep(spacing);
                drop(lock);
            }));
        }
    }

    /// The lock goes with this process, so the process stays for as long as the lock must.
    pub(super) fn outlast(self) {
        if let Some(holder) = self.holder {
            let _ = holder.join();
        }
    }
}
