//! Endpoints of workers with tools that tell what was done to them, and raw connections to them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use agent_bridge::context::Clock;
use agent_bridge::scope::{
    Answer, BoundRun, Call, CallLog, CallRecord, Endpoint, Limits, MemoryLog, Options, Tool, ToolSet,
    ToolSpec,
};
use serde_json::{Value, json};

use super::process::DEADLINE;

/// What happened to the tools of an endpoint, in order.
#[derive(Clone, Default)]
pub struct Story(Arc<(Mutex<Vec<String>>, Condvar)>);

impl Story {
    pub fn tell(&self, line: impl Into<String>) {
        self.0.0.lock().unwrap().push(line.into());
        self.0.1.notify_all();
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.0.lock().unwrap().clone()
    }

    /// Waits until that many lines were told.
    #[track_caller]
    pub fn wait_for(&self, count: usize) {
        let (lines, more) = &*self.0;
        let wait = more.wait_timeout_while(lines.lock().unwrap(), DEADLINE, |lines| lines.len() < count);
        assert!(!wait.unwrap().1.timed_out(), "only {:?} happened", self.lines());
    }
}

type Body = Box<dyn Fn(&Call<'_>, &Story) -> Answer + Send + Sync>;

/// A tool made for a test.
pub struct Made {
    name: &'static str,
    properties: Value,
    story: Story,
    body: Body,
}

impl Tool for Made {
    fn name(&self) -> &str {
        self.name
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec {
            description: format!("The tool {}.", self.name),
            schema: json!({ "type": "object", "properties": self.properties, "additionalProperties": false }),
            read_only: true,
        }
    }

    fn call(&self, call: &Call<'_>) -> Answer {
        (self.body)(call, &self.story)
    }
}

/// An endpoint with three tools of which two are allowed: `find_notes` works in the bound folder, `wait` waits until it
/// is cancelled, `delete_all` is hidden. Each tells the story.
pub struct Scope {
    pub endpoint: Endpoint,
    pub log: Arc<MemoryLog>,
    pub story: Story,
}

impl Scope {
    pub fn start() -> Self {
        Self::with(|_| {})
    }

    /// With other options.
    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        let story = Story::default();
        let mut tools = ToolSet::default();
        let mut add = |name, properties, body| {
            tools.add(Arc::new(Made { name, properties, story: story.clone(), body })).unwrap();
        };
        add(
            "find_notes",
            json!({ "query": { "type": "string" }, "limit": { "type": "integer" } }),
            Box::new(|call, story| {
                let query = call.text("query").unwrap_or_default();
                story.tell(format!("find {query} in {}", call.bound.workspace.display()));
                match query {
                    "panic" => panic!("as asked"),
                    "error" => Answer::error("as asked"),
                    "long" => Answer::ok("é".repeat(100_000)),
                    _ => Answer::ok(format!("found {query}")),
                }
            }),
        );
        add(
            "wait",
            json!({}),
            Box::new(|call, story| {
                story.tell("waiting");
                let reason = call.cancel.wait_until(call.deadline).unwrap_or("deadline");
                story.tell(format!("ended: {reason}"));
                Answer::error(reason)
            }),
        );
        add(
            "delete_all",
            json!({}),
            Box::new(|_, story| {
                story.tell("deleted");
                Answer::ok("deleted")
            }),
        );
        tools.allow("find_notes").unwrap();
        tools.allow("wait").unwrap();
        let log = Arc::new(MemoryLog::default());
        let mut options = Options {
            bound: BoundRun {
                run: "run-1".into(),
                session: None,
                turn: None,
                workspace: PathBuf::from("/the/bound/folder"),
            },
            tools,
            limits: Limits::default(),
            log: Arc::clone(&log) as Arc<dyn CallLog>,
            clock: Clock::Fixed(1_000),
            modern: true,
        };
        change(&mut options);
        Self { endpoint: Endpoint::start(options).unwrap(), log, story }
    }

    pub fn connect(&self) -> Wire {
        Wire::to(self.endpoint.port())
    }

    pub fn token(&self) -> String {
        self.endpoint.token().expose().to_owned()
    }

    /// The head of a good request with this body length, without the empty line.
    pub fn head(&self, length: usize) -> String {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n",
            self.endpoint.port(),
            self.token()
        )
    }

    /// Posts a message on a connection of its own.
    #[track_caller]
    pub fn post(&self, message: &Value) -> Reply {
        self.post_with("", message)
    }

    /// The same with more header lines.
    #[track_caller]
    pub fn post_with(&self, lines: &str, message: &Value) -> Reply {
        let body = message.to_string();
        let mut wire = self.connect();
        wire.send(format!("{}{lines}\r\n{body}", self.head(body.len())));
        wire.reply()
    }

    /// Sends a request of a revision with a handshake.
    #[track_caller]
    pub fn ask(&self, method: &str, params: Value) -> Reply {
        self.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
    }

    #[track_caller]
    pub fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Sends a request of 2026-07-28, with these headers instead of the right ones.
    #[track_caller]
    pub fn ask_modern(&self, method: &str, mut params: Value, headers: &[(&str, Option<&str>)]) -> Reply {
        let version =
            headers.iter().find(|(name, _)| *name == "_meta").map_or(Some("2026-07-28"), |found| found.1);
        if let Some(version) = version {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let name = params["name"].as_str().map(str::to_owned);
        let usual = [
            ("MCP-Protocol-Version", Some("2026-07-28")),
            ("Mcp-Method", Some(method)),
            ("Mcp-Name", name.as_deref()),
        ];
        let lines: String = usual
            .iter()
            .map(|(name, value)| {
                (name, headers.iter().find(|(other, _)| other == name).map_or(*value, |found| found.1))
            })
            .filter_map(|(name, value)| Some(format!("{name}: {}\r\n", value?)))
            .collect();
        self.post_with(&lines, &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
    }

    /// The records as `tool outcome reason`.
    pub fn recorded(&self) -> Vec<String> {
        let line = |record: &CallRecord| {
            format!("{} {} {}", record.tool.as_deref().unwrap_or("-"), record.outcome.as_str(), record.reason)
        };
        self.log.records().iter().map(line).collect()
    }
}

/// A raw connection.
pub struct Wire {
    pub stream: TcpStream,
    rest: Vec<u8>,
}

/// An answer as it came.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Status and JSON-RPC code, if there is one.
    #[track_caller]
    pub fn code(&self) -> (u16, i64) {
        (self.status, self.json()["error"]["code"].as_i64().unwrap_or(0))
    }

    /// The text of a tool's result.
    #[track_caller]
    pub fn text(&self) -> String {
        let text = self.json()["result"]["content"][0]["text"].as_str().map(str::to_owned);
        text.unwrap_or_else(|| panic!("no result: {}", String::from_utf8_lossy(&self.body)))
    }
}

impl Wire {
    #[track_caller]
    pub fn to(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the port takes connections");
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, rest: Vec::new() }
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the endpoint takes bytes");
    }

    /// The next answer; panics if there is none.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.next_reply().expect("an answer before the end of the connection")
    }

    /// The next answer, or nothing if the connection ends first.
    #[track_caller]
    pub fn next_reply(&mut self) -> Option<Reply> {
        let end = loop {
            if let Some(end) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if !self.more() {
                assert!(self.rest.is_empty(), "half an answer: {:?}", String::from_utf8_lossy(&self.rest));
                return None;
            }
        };
        let head = String::from_utf8(self.rest.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(&head);
        let mut reply = Reply { status, head, body: Vec::new() };
        let length: usize = reply.header("Content-Length").map_or(0, |value| value.parse().unwrap());
        while self.rest.len() < length {
            assert!(self.more(), "half a body");
        }
        reply.body = self.rest.drain(..length).collect();
        Some(reply)
    }

    /// Everything until the connection ends.
    pub fn everything(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.rest)
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 8192];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(read) => {
                self.rest.extend(&buffer[..read]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}"),
        }
    }
}

/// How long after now a port refuses; panics if it never does.
#[track_caller]
pub fn refused_after(port: u16) -> Duration {
    let start = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return start.elapsed(),
            _ => assert!(start.elapsed() < DEADLINE, "the port is still open"),
        }
    }
}
