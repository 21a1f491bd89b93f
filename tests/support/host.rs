//! A scripted MCP host on the standard streams of `agent-bridge serve`, down to the bytes.
//!
//! ```ignore
//! let mut host = world.host();
//! host.initialize();
//! let result = host.call("delegate_task", json!({ "agent": "codex", "prompt": "scenario:hello" }));
//! assert!(!result.is_error, "{result:?}");
//! ```
//!
//! Every line the server prints must be one JSON-RPC message of at most 1 MiB; anything else
//! fails the test at the next read, or when the host is dropped.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::process::{
    Collected, DEADLINE, Finished, Signal, kill_group, own_group, signal, signal_of, wait_until,
};

/// What hosts take at most from a server in one line.
const MAX_LINE: usize = 1024 * 1024;

/// A running server and the host's end of its streams. Dropping it kills the server.
pub struct Host {
    child: Child,
    /// Bytes to write, each with the channel that tells whether they were taken.
    stdin: Option<Sender<(Vec<u8>, Sender<bool>)>>,
    lines: Receiver<Vec<u8>>,
    stderr: Collected,
    started: Instant,
    next_id: u64,
    /// Messages that came while something else was waited for.
    waiting: VecDeque<Value>,
    transcript: Vec<String>,
    stdout: Vec<u8>,
    at_end: bool,
    /// How long each wait may take.
    pub deadline: Duration,
}

/// A request that was sent and whose answer was not read yet.
#[derive(Debug)]
#[must_use = "finish it with Host::finish or Host::response"]
pub struct Pending {
    /// The JSON-RPC id.
    pub id: Value,
}

/// A JSON-RPC error.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    /// Its code.
    pub code: i64,
    /// Its text.
    pub message: String,
    /// Its data, or `Null`.
    pub data: Value,
}

/// What `tools/call` gave.
#[derive(Clone, Debug)]
pub struct ToolResult {
    /// The tool failed.
    pub is_error: bool,
    /// `structuredContent`, or `Null`.
    pub structured: Value,
    /// All text content, joined by newlines.
    pub text: String,
    /// The whole result.
    pub whole: Value,
}

impl ToolResult {
    fn read(whole: Value) -> Self {
        let parts = whole["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        Self {
            is_error: whole["isError"] == true,
            structured: whole["structuredContent"].clone(),
            text: text.join("\n"),
            whole,
        }
    }

    /// The same, after checking that the tool succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(!self.is_error, "the tool failed: {:#}", self.whole);
        self
    }

    /// The same, after checking that the tool failed.
    #[track_caller]
    pub fn err(self) -> Self {
        assert!(self.is_error, "the tool succeeded: {:#}", self.whole);
        self
    }
}

impl Host {
    /// Starts a server. [`super::world::World::host`] is the usual way.
    #[track_caller]
    pub fn start(mut command: Command) -> Self {
        own_group(&mut command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdout = child.stdout.take().expect("a piped standard output");
        let stderr = Collected::from(child.stderr.take().expect("a piped standard error"));
        let mut stdin = child.stdin.take().expect("a piped standard input");
        // A thread of its own, so that a server that stops reading cannot stop the test as well.
        let (to_stdin, writes) = channel::<(Vec<u8>, Sender<bool>)>();
        std::thread::spawn(move || {
            while let Ok((bytes, taken)) = writes.recv() {
                let _ = taken.send(stdin.write_all(&bytes).and_then(|()| stdin.flush()).is_ok());
            }
        });
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            loop {
                let mut line = Vec::new();
                if reader.read_until(b'\n', &mut line).unwrap_or(0) == 0 || sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            stdin: Some(to_stdin),
            lines,
            stderr,
            started: Instant::now(),
            next_id: 1,
            waiting: VecDeque::new(),
            transcript: Vec::new(),
            stdout: Vec::new(),
            at_end: false,
            deadline: DEADLINE,
        }
    }

    /// The server's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends exactly these bytes. Says whether the server's standard input took them in time.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.transcript.push(format!("-> {}", clip(bytes)));
        let Some(stdin) = &self.stdin else { return false };
        let (taken, answer) = channel();
        stdin.send((bytes.to_vec(), taken)).is_ok() && answer.recv_timeout(self.deadline) == Ok(true)
    }

    /// Sends one message as a line.
    #[track_caller]
    pub fn send(&mut self, message: &Value) {
        let sent = self.send_bytes(format!("{message}\n").as_bytes());
        assert!(sent, "the server no longer reads; {}", self.story());
    }

    /// Sends a notification.
    #[track_caller]
    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request and does not wait for its answer.
    #[track_caller]
    pub fn start_request(&mut self, method: &str, params: Value) -> Pending {
        let id = json!(self.next_id);
        self.next_id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        Pending { id }
    }

    /// Sends a request and gives its result or error.
    #[track_caller]
    pub fn try_request(&mut self, method: &str, params: Value) -> Result<Value, RpcError> {
        let pending = self.start_request(method, params);
        self.response(pending)
    }

    /// Sends a request and gives its result.
    #[track_caller]
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        match self.try_request(method, params) {
            Ok(result) => result,
            Err(error) => panic!("{method} failed: {error:?}; {}", self.story()),
        }
    }

    /// Waits for the answer to a request.
    #[track_caller]
    pub fn response(&mut self, pending: Pending) -> Result<Value, RpcError> {
        let message = self.wait_for(&format!("the answer to request {}", pending.id), |message| {
            message["id"] == pending.id && message.get("method").is_none()
        });
        match message.get("error") {
            None => Ok(message["result"].clone()),
            Some(error) => Err(RpcError {
                code: error["code"].as_i64().unwrap_or_default(),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
                data: error["data"].clone(),
            }),
        }
    }

    /// Waits for a notification of this method and gives its params. Those that came meanwhile
    /// are given first.
    #[track_caller]
    pub fn notification(&mut self, method: &str) -> Value {
        let message = self.wait_for(&format!("a notification {method}"), |message| {
            message["method"] == method && message.get("id").is_none()
        });
        message["params"].clone()
    }

    /// Waits for a request from the server (`elicitation/create`, `roots/list`) and gives its id
    /// and params. Answer it with [`Self::answer`].
    #[track_caller]
    pub fn server_request(&mut self, method: &str) -> (Value, Value) {
        let message = self.wait_for(&format!("a request {method} from the server"), |message| {
            message["method"] == method && message.get("id").is_some()
        });
        (message["id"].clone(), message["params"].clone())
    }

    /// Answers a request of the server.
    #[track_caller]
    pub fn answer(&mut self, id: &Value, result: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    /// Cancels a request.
    #[track_caller]
    pub fn cancel(&mut self, pending: &Pending, reason: &str) {
        self.notify("notifications/cancelled", json!({ "requestId": pending.id, "reason": reason }));
    }

    /// The usual handshake, as a host without extras. Gives the server's answer.
    #[track_caller]
    pub fn initialize(&mut self) -> Value {
        self.initialize_as("2025-11-25", json!({}))
    }

    /// A handshake with this protocol version and these capabilities.
    #[track_caller]
    pub fn initialize_as(&mut self, version: &str, capabilities: Value) -> Value {
        let answer = self.request(
            "initialize",
            json!({
                "protocolVersion": version,
                "capabilities": capabilities,
                "clientInfo": { "name": "scripted-host", "version": "1.0.0" },
            }),
        );
        self.notify("notifications/initialized", json!({}));
        answer
    }

    /// The names of the tools, all pages.
    #[track_caller]
    pub fn tool_names(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            let page = self.request("tools/list", params);
            let tools = page["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
            names.extend(tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned));
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                return names;
            }
        }
    }

    /// Calls a tool.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> ToolResult {
        let pending = self.call_in_background(tool, arguments);
        self.finish(pending)
    }

    /// Calls a tool and does not wait; go on with [`Self::finish`] or [`Self::cancel`].
    #[track_caller]
    pub fn call_in_background(&mut self, tool: &str, arguments: Value) -> Pending {
        self.start_request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// The same with a progress token; read what comes with `notification("notifications/progress")`.
    #[track_caller]
    pub fn call_with_progress(&mut self, tool: &str, arguments: Value, token: &str) -> Pending {
        let meta = json!({ "progressToken": token });
        self.start_request("tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta }))
    }

    /// Waits for a tool's result. A protocol error fails the test; use [`Self::response`] to see one.
    #[track_caller]
    pub fn finish(&mut self, pending: Pending) -> ToolResult {
        match self.response(pending) {
            Ok(result) => ToolResult::read(result),
            Err(error) => panic!("the call was answered with a protocol error: {error:?}; {}", self.story()),
        }
    }

    /// The next message of any kind; `None` at the end of the server's output.
    #[track_caller]
    pub fn next_message(&mut self) -> Option<Value> {
        if let Some(message) = self.waiting.pop_front() {
            return Some(message);
        }
        let deadline = self.deadline;
        self.read(deadline).unwrap_or_else(|()| panic!("nothing came in {deadline:?}; {}", self.story()))
    }

    /// Messages that have come and nobody waited for, without waiting for more.
    #[track_caller]
    pub fn pending_messages(&mut self) -> Vec<Value> {
        while let Ok(Some(message)) = self.read(Duration::ZERO) {
            self.waiting.push_back(message);
        }
        self.waiting.drain(..).collect()
    }

    /// Closes the server's standard input, as a host that goes away does.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal to the server alone.
    pub fn signal(&self, which: Signal) {
        signal(self.id(), which);
    }

    /// Kills the server alone; what it started lives on.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the server's end and gives all it printed.
    #[track_caller]
    pub fn wait_exit(&mut self, deadline: Duration) -> Finished {
        let mut status = None;
        let started = self.started;
        wait_until("the server to end", deadline, || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        let elapsed = started.elapsed();
        let mut output_held_open = false;
        loop {
            match self.read(Duration::from_secs(2)) {
                Ok(Some(message)) => self.waiting.push_back(message),
                Ok(None) => break,
                Err(()) => {
                    output_held_open = true;
                    break;
                }
            }
        }
        self.stderr.wait_closed(Duration::from_secs(2));
        let status = status.expect("it has ended");
        Finished {
            code: status.code(),
            signal: signal_of(status),
            stdout: self.stdout.clone(),
            stderr: self.stderr.bytes(),
            elapsed,
            output_held_open,
        }
    }

    /// What the server has written to standard error.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits for a message that `wanted` takes; others are kept.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.waiting.iter().position(&wanted) {
            return self.waiting.remove(at).expect("it was just found");
        }
        let end = Instant::now() + self.deadline;
        loop {
            match self.read(end.saturating_duration_since(Instant::now())) {
                Ok(Some(message)) if wanted(&message) => return message,
                Ok(Some(message)) => self.waiting.push_back(message),
                Ok(None) => panic!("the server ended before {what}; {}", self.story()),
                Err(()) => panic!("waited {:?} in vain for {what}; {}", self.deadline, self.story()),
            }
        }
    }

    /// One message; `Ok(None)` at the end of the output, `Err` at the deadline.
    #[track_caller]
    fn read(&mut self, deadline: Duration) -> Result<Option<Value>, ()> {
        if self.at_end {
            return Ok(None);
        }
        match self.lines.recv_timeout(deadline) {
            Ok(line) => {
                self.stdout.extend_from_slice(&line);
                self.transcript.push(format!("<- {}", clip(&line)));
                match check_line(&line) {
                    Ok(message) => Ok(Some(message)),
                    Err(problem) => {
                        panic!("the server printed what is no MCP message: {problem}; {}", self.story())
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => Err(()),
            Err(RecvTimeoutError::Disconnected) => {
                self.at_end = true;
                Ok(None)
            }
        }
    }

    /// The last messages and standard error, for a failure's message.
    fn story(&self) -> String {
        let first = self.transcript.len().saturating_sub(20);
        format!(
            "the last messages:\n{}\n--- stderr\n{}",
            self.transcript[first..].join("\n"),
            self.stderr.text()
        )
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stdin = None;
        kill_group(&mut self.child);
        if std::thread::panicking() {
            return;
        }
        // What was never read must be JSON-RPC too. A line cut by the kill is not the server's fault.
        while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(200)) {
            if line.ends_with(b"\n")
                && let Err(problem) = check_line(&line)
            {
                panic!("the server printed what is no MCP message: {problem}: {}", clip(&line));
            }
        }
    }
}

/// Whether a line is one JSON-RPC message.
fn check_line(line: &[u8]) -> Result<Value, String> {
    let Some(text) = line.strip_suffix(b"\n") else { return Err("the line has no end".into()) };
    if line.len() > MAX_LINE {
        return Err(format!("a line of {} bytes", line.len()));
    }
    let message: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let is_call = message["method"].is_string();
    // An error about something that was no request has no id to name.
    let is_answer = match (message.get("result"), message.get("error")) {
        (Some(_), None) => message.get("id").is_some(),
        (None, Some(_)) => true,
        _ => false,
    };
    if message["jsonrpc"] != "2.0" || is_call == is_answer {
        return Err("not JSON-RPC 2.0".into());
    }
    Ok(message)
}

fn clip(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end();
    match text.char_indices().nth(2000) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], bytes.len()),
        None => text.to_owned(),
    }
}
