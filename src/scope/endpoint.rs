//! The life of an endpoint: a port of the system's choice on loopback, the threads that answer on it, and its end.
//!
//! A thread that accepted a connection also serves it, while another one goes on accepting: no request is handed from
//! thread to thread. The end is an event, not a poll: the port is closed and everybody who waits is woken.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::connection::{self, Peer, Scratch};
use super::gate::PATH;
use super::log::{CallRecord, Outcome};
use super::{Cancel, Options, ScopeError, Token};

/// Connections that are open at once. For a further one, the one that was silent longest goes.
pub const MAX_CONNECTIONS: usize = 32;
/// Threads beyond that, for connections that are just going.
const SPARE_THREADS: usize = 8;
/// Threads that wait for connections when nothing happens.
const WAITING_THREADS: usize = 2;
/// Debug builds are hungry, and JSON may be 128 levels deep.
const STACK: usize = 1 << 20;
/// Requests turned away at the door that are written down one by one; more are only counted.
const DOOR_RECORDS: u64 = 1_000;

/// What tools are told when the run is over.
pub(super) const REVOKED: &str = "the run has ended";

/// The endpoint of one run. Dropping it closes it.
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
}

/// What closing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Calls that were running and were asked to end.
    pub cancelled: usize,
    /// Threads that had not ended in time; their tools still run.
    pub unfinished: usize,
    /// Requests turned away at the door in the whole run.
    pub turned_away: u64,
    /// Why the record of calls may not be complete.
    pub log_error: Option<String>,
}

/// What the threads of an endpoint share.
pub(super) struct Shared {
    pub options: Options,
    pub run: Arc<str>,
    pub token: Token,
    pub port: u16,
    /// `tools/list` as text, written at the first use.
    pub tools_json: OnceLock<String>,
    /// Somebody has asked for the list of tools.
    pub was_listed: AtomicBool,
    pub calls_running: AtomicUsize,
    pub calls_begun: AtomicU64,
    /// Calls by the ids of their requests, to be cancelled.
    pub calls: Mutex<Vec<(String, Arc<Cancel>)>>,
    pub log_error: OnceLock<String>,
    turned_away: AtomicU64,
    closed: AtomicBool,
    listener: Mutex<Option<Arc<TcpListener>>>,
    peers: Mutex<HashMap<u64, Arc<Peer>>>,
    next_peer: AtomicU64,
    /// Threads that wait for a connection, or are about to.
    waiting: AtomicUsize,
    threads: Mutex<usize>,
    thread_ended: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("run", &self.run).field("port", &self.port).finish_non_exhaustive()
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Endpoint {
    /// Opens it. From the return on it answers.
    pub fn start(options: Options) -> Result<Self, ScopeError> {
        let token = Token::mint()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(ScopeError::Listen)?;
        let port = listener.local_addr().map_err(ScopeError::Listen)?.port();
        let shared = Arc::new(Shared {
            run: options.bound.run.as_str().into(),
            options,
            token,
            port,
            tools_json: OnceLock::new(),
            was_listed: AtomicBool::new(false),
            calls_running: AtomicUsize::new(0),
            calls_begun: AtomicU64::new(0),
            calls: Mutex::default(),
            log_error: OnceLock::new(),
            turned_away: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            listener: Mutex::new(Some(Arc::new(listener))),
            peers: Mutex::default(),
            next_peer: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            threads: Mutex::new(0),
            thread_ended: Condvar::new(),
        });
        let this = Self { shared };
        // One is enough to begin with: whoever gets a connection first sees to the next thread.
        Shared::begin_thread(&this.shared).map_err(ScopeError::Listen)?;
        Ok(this)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.shared.port
    }

    /// Where it is, for the worker.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.shared.port)
    }

    /// What opens it.
    pub fn token(&self) -> &Token {
        &self.shared.token
    }

    /// What Claude Code takes as `--mcp-config`. It holds the token: for a file that only its owner can read.
    pub fn mcp_config(&self) -> Value {
        let millis = u64::try_from(self.shared.options.limits.call.as_millis()).unwrap_or(u64::MAX);
        json!({ "mcpServers": { "bridge": {
            "type": "http",
            "url": self.url(),
            "headers": { "Authorization": format!("Bearer {}", self.shared.token.expose()) },
            "timeout": millis.saturating_add(10_000),
            "alwaysLoad": true,
        } } })
    }

    /// Whether a worker has asked for the list of tools: a sign that it really has them.
    pub fn was_listed(&self) -> bool {
        self.shared.was_listed.load(Ordering::Relaxed)
    }

    /// Revokes the token, closes the port, cancels what runs and waits for that, as long as the limits say. A second
    /// call finds nothing left to do.
    pub fn close(&self) -> Closed {
        self.shared.close()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn close(&self) -> Closed {
        self.closed.store(true, Ordering::SeqCst);
        if let Some(listener) = locked(&self.listener).take() {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
            while Arc::strong_count(&listener) > 1 {
                // Nothing else wakes a thread from `accept` on every system.
                drop(TcpStream::connect_timeout(&address, Duration::from_millis(10)));
                let threads = locked(&self.threads);
                if Arc::strong_count(&listener) > 1 {
                    drop(self.thread_ended.wait_timeout(threads, Duration::from_millis(1)));
                }
            }
        }
        let running: Vec<Arc<Cancel>> =
            locked(&self.calls).iter().map(|(_, call)| Arc::clone(call)).collect();
        for call in &running {
            call.cancel(REVOKED);
        }
        for peer in locked(&self.peers).values() {
            peer.revoke();
        }
        let end = Instant::now() + self.options.limits.grace;
        let mut threads = locked(&self.threads);
        while *threads > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.thread_ended.wait_timeout(threads, left);
            threads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let unfinished = *threads;
        drop(threads);
        let flushed = self.options.log.flush().err();
        Closed {
            cancelled: running.len(),
            unfinished,
            turned_away: self.turned_away.load(Ordering::Relaxed),
            log_error: self.log_error.get().cloned().or(flushed),
        }
    }

    fn begin_thread(this: &Arc<Self>) -> io::Result<()> {
        this.waiting.fetch_add(1, Ordering::SeqCst);
        *locked(&this.threads) += 1;
        let shared = Arc::clone(this);
        let begun = thread::Builder::new().name("scope".into()).stack_size(STACK).spawn(move || {
            shared.serve_connections();
            shared.end_thread();
        });
        if let Err(error) = begun {
            this.waiting.fetch_sub(1, Ordering::SeqCst);
            this.end_thread();
            return Err(error);
        }
        Ok(())
    }

    fn end_thread(&self) {
        *locked(&self.threads) -= 1;
        self.thread_ended.notify_all();
    }

    /// What a thread does: takes a connection, serves it, takes the next. Counted as waiting when it comes in.
    fn serve_connections(self: &Arc<Self>) {
        let mut scratch = Scratch::default();
        loop {
            // The lock is let go before the wait.
            let listener = locked(&self.listener).clone();
            let accepted = listener.map(|listener| listener.accept());
            if accepted.is_none() || self.is_closed() {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                return;
            }
            let Some(Ok((stream, _))) = accepted else {
                // Out of descriptors, or a client that left at once.
                thread::sleep(Duration::from_millis(2));
                continue;
            };
            let waiting = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
            let crowded = *locked(&self.threads) >= MAX_CONNECTIONS + SPARE_THREADS;
            // Without another thread the next connection waits for this one, which the limits end.
            if waiting == 0 && !crowded {
                let _ = Self::begin_thread(self);
            }
            self.serve(stream, &mut scratch);
            if self.waiting.fetch_add(1, Ordering::SeqCst) >= WAITING_THREADS {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                return;
            }
        }
    }

    fn serve(self: &Arc<Self>, stream: TcpStream, scratch: &mut Scratch) {
        let peer = Arc::new(Peer::new(stream));
        let number = self.next_peer.fetch_add(1, Ordering::Relaxed);
        {
            let mut peers = locked(&self.peers);
            if peers.len() >= MAX_CONNECTIONS {
                let silent = peers.iter().filter(|(_, peer)| !peer.is_calling());
                if let Some((&oldest, _)) = silent.min_by_key(|(_, peer)| peer.silent_since())
                    && let Some(peer) = peers.remove(&oldest)
                {
                    peer.hang_up();
                }
            }
            peers.insert(number, Arc::clone(&peer));
        }
        // Whoever closes looks at the peers after saying so.
        if !self.is_closed() {
            connection::serve(self, &peer, scratch);
        }
        locked(&self.peers).remove(&number);
    }

    /// Writes a call down.
    pub fn record(&self, call: Made<'_>) {
        let record = CallRecord {
            at: self.options.clock.now_ms(),
            run: Arc::clone(&self.run),
            tool: call.tool,
            outcome: call.outcome,
            reason: call.reason,
            latency_us: u64::try_from(call.begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            argument_bytes: call.arguments.map_or(0, str::len),
            argument_sha256: call.arguments.map(|text| {
                use sha2::Digest as _;
                sha2::Sha256::digest(text).into()
            }),
        };
        if let Err(error) = self.options.log.record(record) {
            let _ = self.log_error.set(error);
        }
    }

    /// Writes down a request that was turned away at the door, where anybody may knock.
    pub fn record_at_the_door(&self, reason: &'static str, begun: Instant) {
        if self.turned_away.fetch_add(1, Ordering::Relaxed) < DOOR_RECORDS {
            self.record(Made { tool: None, outcome: Outcome::Refused, reason, begun, arguments: None });
        }
    }
}

/// A call that is to be written down.
pub(super) struct Made<'a> {
    pub tool: Option<Arc<str>>,
    pub outcome: Outcome,
    pub reason: &'static str,
    pub begun: Instant,
    pub arguments: Option<&'a str>,
}
