//! A scripted model server on loopback, for real coding-agent CLIs and for raw clients.
//!
//! It speaks Anthropic Messages, OpenAI Responses and Gemini, streamed or not, and plays the
//! scenario a prompt names:
//!
//! ```ignore
//! let model = MockModel::start(Script::new().scenario("hello", [reply().text("hi")]));
//! // … run `codex exec 'scenario:hello please'` against model.base_url() …
//! let request = model.wait_for_request("hello", DEADLINE);
//! assert_eq!(request.api, Some(Api::Responses));
//! ```
//!
//! Every wait ends with an event or, at its deadline, with a panic that shows the log. Dropping
//! the mock closes every connection and joins every thread.

mod anthropic;
mod conversation;
mod gemini;
mod http;
mod render;
mod responses;
mod script;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use conversation::{Api, Kind, Request};
pub use script::{Reply, Script, Usage, attempts, reply, reply_with};

use http::{Connection, Head, ReadError};
use script::Ending;

/// How often a waiting reply looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(20);

/// A running mock.
pub struct MockModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    script: Script,
    started: Instant,
    state: Mutex<State>,
    /// Anything in the state changed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    log: Vec<Request>,
    attempts: HashMap<(Option<String>, usize, String), usize>,
    open_gates: HashSet<String>,
    /// Open connections, so that stopping can close them.
    sockets: HashMap<u64, TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl MockModel {
    /// Starts a mock on a free port of 127.0.0.1.
    pub fn start(script: Script) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("the port's number");
        let shared = Arc::new(Shared {
            script,
            started: Instant::now(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let accepting = std::thread::Builder::new()
            .name("mock-model".into())
            .spawn(move || accepting.accept(&listener))
            .expect("a thread");
        Self { address, shared, accepting: Some(accepting) }
    }

    /// `http://127.0.0.1:PORT`, without a trailing slash. Anthropic and Gemini clients want this.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// [`Self::base_url`] with `/v1`, as OpenAI clients want it.
    pub fn openai_base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything asked so far, token counts and unknown paths included.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().log.clone()
    }

    /// The model turns asked for in a scenario so far.
    pub fn turns(&self, scenario: &str) -> Vec<Request> {
        let state = self.shared.lock();
        state.log.iter().filter(|request| is_turn(request, scenario)).cloned().collect()
    }

    /// Waits for the first request of a scenario.
    pub fn wait_for_request(&self, scenario: &str, deadline: Duration) -> Request {
        self.wait_for_requests(scenario, 1, deadline).remove(0)
    }

    /// Waits until a scenario has had `count` requests, and gives all it has had.
    pub fn wait_for_requests(&self, scenario: &str, count: usize, deadline: Duration) -> Vec<Request> {
        self.wait_until(deadline, &format!("{count} request(s) of scenario {scenario:?}"), |log| {
            let turns: Vec<Request> =
                log.iter().filter(|request| is_turn(request, scenario)).cloned().collect();
            (turns.len() >= count).then_some(turns)
        })
    }

    /// Waits until a client of this scenario has gone away before its answer was complete.
    pub fn wait_for_client_gone(&self, scenario: &str, deadline: Duration) -> Request {
        self.wait_until(deadline, &format!("a client of scenario {scenario:?} to go away"), |log| {
            log.iter().find(|request| is_turn(request, scenario) && request.client_gone).cloned()
        })
    }

    /// Waits until `look` finds something in the log. `what` is for the panic at the deadline.
    pub fn wait_until<T>(
        &self,
        deadline: Duration,
        what: &str,
        mut look: impl FnMut(&[Request]) -> Option<T>,
    ) -> T {
        let end = Instant::now() + deadline;
        let mut state = self.shared.lock();
        loop {
            if let Some(found) = look(&state.log) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let log = summary(&state.log);
                drop(state);
                panic!("the mock model waited {deadline:?} in vain for {what}; its log:\n{log}");
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets the replies with this [`Reply::gate`] go on, those to come included.
    pub fn open(&self, gate: &str) {
        self.shared.lock().open_gates.insert(gate.to_owned());
        self.shared.changed.notify_all();
    }

    /// The log, one line a request, for messages.
    pub fn summary(&self) -> String {
        summary(&self.shared.lock().log)
    }
}

impl Drop for MockModel {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.stopping = true;
            for socket in state.sockets.values() {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
        // A last connection wakes the accepting thread, which then sees that it is to stop.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let threads = std::mem::take(&mut self.shared.lock().threads);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn is_turn(request: &Request, scenario: &str) -> bool {
    request.kind == Kind::Generate && request.scenario.as_deref() == Some(scenario)
}

fn summary(log: &[Request]) -> String {
    if log.is_empty() {
        return "  (nothing was asked)".into();
    }
    let mut lines = Vec::new();
    for request in log {
        lines.push(format!(
            "  {} {:?} {} {} scenario={} step={} attempt={} status={}{}{}",
            request.number,
            request.at,
            request.method,
            request.path,
            request.scenario.as_deref().unwrap_or("-"),
            request.step,
            request.attempt,
            request.status,
            if request.answered { " answered" } else { "" },
            if request.client_gone { " client-gone" } else { "" },
        ));
    }
    lines.join("\n")
}

/// Why an answer was not completed.
enum Unfinished {
    ClientGone,
    Cut,
}

impl From<io::Error> for Unfinished {
    fn from(_: io::Error) -> Self {
        Self::ClientGone
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked while it held the lock has its own message; the log is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for number in 0_u64.. {
            let Ok((stream, _)) = listener.accept() else { continue };
            let mut state = self.lock();
            if state.stopping {
                return;
            }
            let Ok(socket) = stream.try_clone() else { continue };
            state.sockets.insert(number, socket);
            let shared = Arc::clone(self);
            let thread = std::thread::spawn(move || {
                shared.serve(&mut Connection::new(stream));
                shared.lock().sockets.remove(&number);
            });
            state.threads.push(thread);
        }
    }

    /// Answers the requests of one connection.
    fn serve(&self, connection: &mut Connection) {
        loop {
            let head = match connection.read_head() {
                Ok(Some(head)) => head,
                Ok(None) | Err(ReadError::Io(_)) => return,
                Err(ReadError::Refused(status, message)) => {
                    let _ = connection.send_json(None, status, &[], &plain_error(status, message));
                    return;
                }
            };
            let body = match connection.read_body(&head) {
                Ok(body) => body,
                Err(ReadError::Io(_)) => return,
                Err(ReadError::Refused(status, message)) => {
                    let number = self.note(Request::read(&head.method, &head.target, &head.headers, b""));
                    self.update(number, |request| request.status = status);
                    let _ = connection.send_json(None, status, &[], &plain_error(status, message));
                    return;
                }
            };
            let number = self.note(Request::read(&head.method, &head.target, &head.headers, &body));
            let result = self.answer(connection, &head, number);
            self.update(number, |request| match result {
                Ok(()) => request.answered = true,
                Err(Unfinished::ClientGone) => request.client_gone = true,
                Err(Unfinished::Cut) => {}
            });
            if result.is_err() || head.last {
                connection.cut();
                return;
            }
        }
    }

    /// Puts a request into the log and gives its number.
    fn note(&self, mut request: Request) -> usize {
        let mut state = self.lock();
        request.number = state.log.len();
        request.at = self.started.elapsed();
        let number = request.number;
        state.log.push(request);
        self.changed.notify_all();
        number
    }

    fn update(&self, number: usize, change: impl FnOnce(&mut Request)) {
        if let Some(request) = self.lock().log.get_mut(number) {
            change(request);
        }
        self.changed.notify_all();
    }

    fn answer(&self, connection: &mut Connection, head: &Head, number: usize) -> Result<(), Unfinished> {
        let request = self.lock().log[number].clone();
        let mut send = |status: u16, headers: &[(String, String)], body: &Value| {
            self.update(number, |request| request.status = status);
            connection.send_json(Some(head), status, headers, body).map_err(Unfinished::from)
        };
        let Some(api) = request.api else {
            if head.headers.get("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
                // Codex then goes on over plain HTTP at once.
                return send(426, &[], &plain_error(426, "the mock speaks no WebSocket"));
            }
            if matches!(head.method.as_str(), "GET" | "HEAD") && request.path.contains("/models") {
                return send(200, &[], &model_list());
            }
            return send(404, &[], &plain_error(404, "the mock has no such path"));
        };
        if request.kind == Kind::CountTokens {
            return send(200, &[], &render::token_count(api, &request));
        }
        let reply = self.choose(&request);
        self.hold(connection, reply.delay, |state| {
            reply.gate.as_ref().is_none_or(|gate| state.open_gates.contains(gate))
        })?;
        if matches!(reply.ending, Ending::Hang) {
            self.hold(connection, Duration::MAX, |_| true)?;
        }
        if let Some(failure) = &reply.failure {
            let body = render::error_body(api, failure);
            self.update(number, |request| request.status = failure.status);
            return Ok(connection.send_json(Some(head), failure.status, &reply.headers, &body)?);
        }
        let mut rendered = render::content(api, &request, &reply);
        self.update(number, |request| request.status = 200);
        if !request.stream {
            return Ok(connection.send_json(Some(head), 200, &reply.headers, &rendered.whole)?);
        }
        if let Ending::Error(message) = &reply.ending {
            rendered.events.truncate(2);
            rendered.events.push(render::stream_error(api, message));
        }
        connection.start_events(head, &reply.headers)?;
        for (sent, event) in rendered.events.iter().enumerate() {
            match reply.ending {
                Ending::DropAfter(limit) if sent == limit => return Err(Unfinished::Cut),
                Ending::HangAfter(limit) if sent == limit => {
                    self.hold(connection, Duration::MAX, |_| true)?;
                }
                _ => {}
            }
            if !reply.pace.is_zero() {
                self.hold(connection, reply.pace, |_| true)?;
            }
            connection.send_event(event.name.as_deref(), &event.data)?;
        }
        Ok(connection.end_events()?)
    }

    /// The reply the script has for a request.
    fn choose(&self, request: &Request) -> Reply {
        let reply = self.script.pick(request.scenario.as_deref(), request.step);
        let mut attempt = 0;
        if reply.has_attempts() {
            let mut state = self.lock();
            let count = state.attempts.entry(request.attempt_key()).or_default();
            attempt = *count;
            *count += 1;
        }
        self.update(request.number, |request| request.attempt = attempt);
        reply.resolve(attempt, request)
    }

    /// Waits for `pause` and for `open`, as long as the client and the mock are there.
    fn hold(
        &self,
        connection: &Connection,
        pause: Duration,
        open: impl Fn(&State) -> bool,
    ) -> Result<(), Unfinished> {
        let start = Instant::now();
        let mut state = self.lock();
        loop {
            if state.stopping {
                return Err(Unfinished::Cut);
            }
            let left = pause.saturating_sub(start.elapsed());
            if left.is_zero() && open(&state) {
                return Ok(());
            }
            let nap = if left.is_zero() { LOOK } else { left.min(LOOK) };
            state = self.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
            if connection.client_gone() {
                return Err(Unfinished::ClientGone);
            }
        }
    }
}

fn plain_error(status: u16, message: &str) -> Value {
    json!({ "error": { "message": message, "code": status } })
}

/// Both services' lists in one object.
fn model_list() -> Value {
    json!({
        "object": "list",
        "data": [{ "id": "mock-model", "object": "model", "type": "model", "owned_by": "mock" }],
        "models": [{ "name": "models/mock-model" }],
    })
}
