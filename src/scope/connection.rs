//! One connection: requests one after another, each read within its bounds, looked at from the outside in, and answered
//! with one write.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::endpoint::Shared;
use super::gate::{self, Refusal};
use super::http::{self, Chunks, Fault, Framing, MAX_HEAD};
use super::protocol;

/// How often a silent connection is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// What is read in one go; nearly every request fits.
const PIECE: usize = 16 << 10;
/// A client that is told "no" may still be sending: so long, and so much of it, is thrown away.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 4 << 20;

/// The other end of a connection, as other threads see it.
#[derive(Debug)]
pub(super) struct Peer {
    stream: TcpStream,
    calling: AtomicBool,
    /// Milliseconds since the first connection of this process.
    silent_since: AtomicU64,
}

fn millis() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Peer {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, calling: AtomicBool::new(false), silent_since: AtomicU64::new(millis()) }
    }

    /// Whether a request of it is being answered.
    pub fn is_calling(&self) -> bool {
        self.calling.load(Ordering::SeqCst)
    }

    /// When it last began or ended a request.
    pub fn silent_since(&self) -> u64 {
        self.silent_since.load(Ordering::Relaxed)
    }

    pub fn hang_up(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// The run has ended: an answer that is being made may still go out, nothing more comes in.
    pub fn revoke(&self) {
        let _ = self.stream.shutdown(if self.is_calling() { Shutdown::Read } else { Shutdown::Both });
    }

    /// Whether the client has closed its end. Only for the thread that serves the connection.
    pub fn has_left(&self) -> bool {
        if self.stream.set_nonblocking(true).is_err() {
            return true;
        }
        let seen = self.stream.peek(&mut [0]);
        let left = match seen {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        self.stream.set_nonblocking(false).is_err() || left
    }
}

/// Memory that a thread uses for one connection after another.
#[derive(Default)]
pub(super) struct Scratch {
    input: Vec<u8>,
    body: Vec<u8>,
    output: Vec<u8>,
}

/// Why a connection is over.
enum Over {
    /// The client left, or was too slow, or the endpoint closed.
    Silently,
    /// With this as the last word.
    Fault(Fault),
    /// The client was too slow with a request that it had begun.
    TimedOut,
}

impl From<Fault> for Over {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Serves a connection to its end.
pub(super) fn serve(shared: &Shared, peer: &Arc<Peer>, scratch: &mut Scratch) {
    let limits = &shared.options.limits;
    let look = LOOK.min(limits.read / 4).min(limits.idle / 4).max(Duration::from_millis(5));
    let ready = peer.stream.set_nodelay(true).is_ok()
        && peer.stream.set_read_timeout(Some(look)).is_ok()
        && peer.stream.set_write_timeout(Some(limits.write)).is_ok();
    if !ready {
        return;
    }
    let mut line = Line { shared, peer, scratch, filled: 0, begun: Instant::now(), idle: false };
    let over = loop {
        match line.exchange() {
            Ok(true) => {}
            Ok(false) => break Over::Silently,
            Err(over) => break over,
        }
    };
    match over {
        Over::Silently => {}
        Over::Fault(fault) => line.say_no(fault.status(), fault.text()),
        Over::TimedOut => line.say_no(408, "timeout"),
    }
    // One large request must not be kept for good.
    for buffer in [&mut scratch.input, &mut scratch.body, &mut scratch.output] {
        if buffer.capacity() > 8 * PIECE {
            *buffer = Vec::new();
        }
    }
}

struct Line<'a> {
    shared: &'a Shared,
    peer: &'a Arc<Peer>,
    scratch: &'a mut Scratch,
    /// Bytes at the start of the input that are not done with.
    filled: usize,
    /// When this request began, or the silence before it.
    begun: Instant,
    /// Between two requests.
    idle: bool,
}

impl Line<'_> {
    /// One request and its answer. `false`: it was the last.
    fn exchange(&mut self) -> Result<bool, Over> {
        let shared = self.shared;
        let (length, framing, expects_continue, begun, refused) = loop {
            if let Some(head) = http::read_head(&self.scratch.input[..self.filled])? {
                let begun = Instant::now();
                let checked = if shared.is_closed() {
                    Err(gate::UNAUTHORIZED)
                } else {
                    gate::check(&head, shared.port, &shared.token)
                };
                let refused = checked.err().map(|refusal| {
                    // An answer to HEAD has no body.
                    let body = if head.method == "HEAD" { "" } else { refusal.body };
                    (Refusal { body, ..refusal }, head.keep_alive)
                });
                break (head.length, head.framing, head.expects_continue, begun, refused);
            }
            self.read_more()?;
        };
        if let Some((refusal, keep_alive)) = refused {
            // With all of it there, its end is known and the connection can go on.
            let end = match framing {
                Framing::None => Some(length),
                Framing::Length(bytes) => {
                    usize::try_from(bytes).ok().and_then(|bytes| length.checked_add(bytes))
                }
                Framing::Chunked => None,
            };
            return self.turn_away(refusal, end.filter(|end| keep_alive && *end <= self.filled), begun);
        }
        let limit = shared.options.limits.body;
        let used = match framing {
            Framing::None => return Err(Fault::LengthRequired.into()),
            Framing::Length(bytes) => {
                let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= limit);
                let end = length + bytes.ok_or(Fault::BodyTooLarge)?;
                if self.filled < end && expects_continue {
                    self.go_on()?;
                }
                while self.filled < end {
                    self.read_more()?;
                }
                end
            }
            Framing::Chunked => {
                if self.filled == length && expects_continue {
                    self.go_on()?;
                }
                self.read_chunks(length, limit)?;
                length
            }
        };
        let Scratch { input, body, output } = &mut *self.scratch;
        let Some(head) = http::read_head(&input[..self.filled])? else { return Ok(false) };
        // Chunks were put together elsewhere.
        let chunked = if framing == Framing::Chunked { Some(std::mem::take(output)) } else { None };
        let message = chunked.as_deref().unwrap_or(&input[length..used]);
        let keep_alive = head.keep_alive;
        body.clear();
        self.peer.calling.store(true, Ordering::SeqCst);
        self.peer.silent_since.store(millis(), Ordering::Relaxed);
        let status = protocol::answer(shared, self.peer, &head, message, begun, body);
        let close = !keep_alive || shared.is_closed();
        http::write_answer(output, status, body, close);
        let written = (&self.peer.stream).write_all(output);
        self.peer.silent_since.store(millis(), Ordering::Relaxed);
        self.peer.calling.store(false, Ordering::SeqCst);
        written.map_err(|_| Over::Silently)?;
        self.done_with(used);
        Ok(!close)
    }

    /// Forgets a request that was answered.
    fn done_with(&mut self, used: usize) {
        self.scratch.input.copy_within(used..self.filled, 0);
        self.filled -= used;
        self.begun = Instant::now();
        self.idle = self.filled == 0;
    }

    /// Reads once more into the input.
    fn read_more(&mut self) -> Result<(), Over> {
        let limits = &self.shared.options.limits;
        let input = &mut self.scratch.input;
        if input.len() < self.filled + PIECE / 4 {
            // Twice as much each time, as bodies are bounded.
            let size = (input.len() * 2).clamp(PIECE, limits.body + MAX_HEAD + PIECE);
            input.resize(size.max(self.filled + PIECE), 0);
        }
        loop {
            if self.shared.is_closed() {
                return Err(Over::Silently);
            }
            let read = (&self.peer.stream).read(&mut input[self.filled..]);
            if self.idle {
                match read {
                    Ok(1..) => {
                        self.begun = Instant::now();
                        self.idle = false;
                    }
                    _ if self.begun.elapsed() >= limits.idle => return Err(Over::Silently),
                    _ => {}
                }
            } else if self.begun.elapsed() >= limits.read {
                return Err(if self.filled > 0 { Over::TimedOut } else { Over::Silently });
            }
            match read {
                Ok(0) => return Err(Over::Silently),
                Ok(bytes) => {
                    self.filled += bytes;
                    return Ok(());
                }
                Err(error) if is_timeout(&error) => {}
                Err(_) => return Err(Over::Silently),
            }
        }
    }

    /// Puts a chunked body together in the output buffer, which is free until there is an answer.
    fn read_chunks(&mut self, start: usize, limit: usize) -> Result<(), Over> {
        let mut chunks = Chunks::new(limit);
        loop {
            let taken = chunks.feed(&self.scratch.input[start..self.filled])?;
            self.scratch.input.copy_within(start + taken..self.filled, start);
            self.filled -= taken;
            if chunks.is_done() {
                self.scratch.output = chunks.body;
                return Ok(());
            }
            self.read_more()?;
        }
    }

    fn go_on(&self) -> Result<(), Over> {
        (&self.peer.stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n").map_err(|_| Over::Silently)
    }

    /// Refuses a request by its head. With `used` its end is known and the connection may go on.
    fn turn_away(&mut self, refusal: Refusal, used: Option<usize>, begun: Instant) -> Result<bool, Over> {
        self.shared.record_at_the_door(refusal.reason, begun);
        let used = used.filter(|_| !self.shared.is_closed());
        http::write_answer(&mut self.scratch.output, refusal.status, refusal.body.as_bytes(), used.is_none());
        if (&self.peer.stream).write_all(&self.scratch.output).is_err() {
            return Ok(false);
        }
        match used {
            Some(used) => self.done_with(used),
            None => self.linger(),
        }
        Ok(used.is_some())
    }

    /// The last word on a connection whose framing is lost.
    fn say_no(&mut self, status: u16, reason: &'static str) {
        self.shared.record_at_the_door(reason, self.begun);
        let body = format!("{{\"error\":\"{reason}\"}}");
        http::write_answer(&mut self.scratch.output, status, body.as_bytes(), true);
        if (&self.peer.stream).write_all(&self.scratch.output).is_ok() {
            self.linger();
        }
    }

    /// Closing with unread bytes would destroy the answer on its way.
    fn linger(&mut self) {
        let _ = self.peer.stream.shutdown(Shutdown::Write);
        let end = Instant::now() + LINGER;
        let mut left = LINGER_BYTES;
        let input = &mut self.scratch.input;
        input.resize(input.len().max(PIECE), 0);
        while left > 0 && Instant::now() < end && !self.shared.is_closed() {
            match (&self.peer.stream).read(input) {
                Ok(0) => return,
                Ok(bytes) => left = left.saturating_sub(bytes),
                Err(error) if is_timeout(&error) => {}
                Err(_) => return,
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
