//! A small scripted MCP server over HTTP on loopback, as the endpoint of a run is one: one bearer token, JSON answers,
//! no sessions, no streams. It writes down what came, and holds every tool call until the test lets it go.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A message of a client.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The `Authorization` header.
    pub authorization: String,
    /// The JSON-RPC message.
    pub message: Value,
}

/// A running server. Dropping it closes its port.
pub struct McpHttp {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    token: String,
    tools: Vec<String>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    refused: usize,
    open: bool,
    stopped: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl McpHttp {
    /// Starts one that offers these tools; none of them says that it only reads.
    pub fn start(token: &str, tools: &[&str]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("the port's number"));
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        let shared = Arc::new(Shared {
            token: token.to_owned(),
            tools,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.lock().stopped {
                    return;
                }
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.serve(&stream));
            }
        });
        Self { url, shared }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Lets held tool calls go, and all later ones.
    pub fn release(&self) {
        self.shared.lock().open = true;
        self.shared.changed.notify_all();
    }

    /// Waits for the first tool call; it is held until [`Self::release`].
    #[track_caller]
    pub fn wait_for_call(&self, deadline: Duration) -> Seen {
        let until = Instant::now() + deadline;
        let mut state = self.shared.lock();
        loop {
            if let Some(call) = state.seen.iter().find(|seen| seen.message["method"] == "tools/call") {
                return call.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            let methods: Vec<_> = state.seen.iter().map(|seen| seen.message["method"].clone()).collect();
            assert!(!left.is_zero(), "no tool was called; there was {methods:?}, {} refused", state.refused);
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Tools that were called so far, with their arguments.
    pub fn calls(&self) -> Vec<(String, Value)> {
        let state = self.shared.lock();
        let calls = state.seen.iter().filter(|seen| seen.message["method"] == "tools/call");
        calls
            .map(|seen| {
                let params = &seen.message["params"];
                (params["name"].as_str().unwrap_or_default().to_owned(), params["arguments"].clone())
            })
            .collect()
    }

    /// Whether anybody with the token asked for its tools.
    pub fn was_listed(&self) -> bool {
        self.shared.lock().seen.iter().any(|seen| seen.message["method"] == "tools/list")
    }

    /// Requests without the token.
    pub fn refused(&self) -> usize {
        self.shared.lock().refused
    }
}

impl Drop for McpHttp {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            (state.stopped, state.open) = (true, true);
        }
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let address = self.url.trim_start_matches("http://").trim_end_matches("/mcp");
        let _ = TcpStream::connect(address);
    }
}

impl Shared {
    /// One connection, one request.
    fn serve(&self, mut stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        let (mut length, mut authorization) = (0_usize, String::new());
        if reader.read_line(&mut first).is_err() {
            return;
        }
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(read) if read > 0 && !line.trim().is_empty() => {}
                Ok(_) => break,
                Err(_) => return,
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap_or(0),
                "authorization" => authorization = value.trim().to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let (status, answer) = self.answer(&first, authorization, &body);
        let body = answer.map(|value| value.to_string()).unwrap_or_default();
        let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let head =
            format!("HTTP/1.1 {status}\r\n{kind}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        let _ = stream.write_all((head + &body).as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
    }

    fn answer(&self, first: &str, authorization: String, body: &[u8]) -> (&'static str, Option<Value>) {
        if first.split(' ').nth(1) != Some("/mcp") {
            return ("404 Not Found", None);
        }
        if authorization != format!("Bearer {}", self.token) {
            self.lock().refused += 1;
            return ("401 Unauthorized", Some(json!({ "error": "unauthorized" })));
        }
        if !first.starts_with("POST ") {
            return ("405 Method Not Allowed", None);
        }
        let Ok(message) = serde_json::from_slice::<Value>(body) else { return ("400 Bad Request", None) };
        let (method, id) = (message["method"].as_str().unwrap_or_default().to_owned(), message["id"].clone());
        {
            let mut state = self.lock();
            state.seen.push(Seen { authorization, message: message.clone() });
            self.changed.notify_all();
            while method == "tools/call" && !state.open {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if id.is_null() {
            return ("202 Accepted", None);
        }
        let reply = |result: Value| ("200 OK", Some(json!({ "jsonrpc": "2.0", "id": id, "result": result })));
        match method.as_str() {
            "initialize" => reply(json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "bridge", "version": "1" },
            })),
            "ping" => reply(json!({})),
            "tools/list" => {
                let tools: Vec<Value> = self
                    .tools
                    .iter()
                    .map(|name| json!({ "name": name, "description": "A tool of the run.", "inputSchema": { "type": "object" } }))
                    .collect();
                reply(json!({ "tools": tools }))
            }
            "tools/call" => reply(json!({ "content": [{ "type": "text", "text": "kept by the endpoint" }] })),
            _ => {
                let error = json!({ "code": -32601, "message": "method not found" });
                ("200 OK", Some(json!({ "jsonrpc": "2.0", "id": id, "error": error })))
            }
        }
    }
}
