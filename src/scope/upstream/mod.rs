//! Other MCP servers behind the run's endpoint: what they offer passes the same allowlist, and they end with the run.
//!
//! A server's words are data: its answers stand between marks, its descriptions are cut and named as its own.

mod http;
mod stdio;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::kit::fenced;
use super::{Answer, Call, Cancel, ScopeError, Tool, ToolSpec};
use crate::agents::redaction;
use crate::process::Program;

/// The protocol that is offered; a server answers with its own.
const PROTOCOL: &str = "2025-06-18";
/// Pages of a tool list, and tools of one server.
const MOST_PAGES: usize = 50;
const MOST_TOOLS: usize = 200;
/// Longest description that is passed on, in bytes.
const DESCRIPTION: usize = 2000;
/// Largest schema that is passed on, in bytes.
const SCHEMA: usize = 32 << 10;
/// Longest message of a server.
const MAX_MESSAGE: usize = 8 << 20;

/// A server that a run may use.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name, which stands before the names of its tools: a-z, 0-9 and `-`.
    pub name: String,
    /// Where it is.
    pub reach: Reach,
    /// Its tools that may be used, by its own names; `*` is all of them.
    pub tools: Vec<String>,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Reach {
    /// A program that is started for the run and ends with it.
    Program(Program),
    /// An address that speaks Streamable HTTP.
    Url {
        /// With `http` or `https`.
        url: String,
        /// Sent with each request; may hold secrets.
        headers: BTreeMap<String, String>,
    },
}

/// A way to a server: one request and its answer.
trait Line: Send + Sync {
    /// The `result` of the answer, or why there is none. Comes back soon after the deadline or a cancel.
    fn request(&self, request: &Value, deadline: Instant, cancel: &Cancel) -> Result<Value, String>;
    /// Says something that has no answer.
    fn notify(&self, message: &Value);
    /// The end of it all; what the server said last, if that is known.
    fn end(&self) -> Option<String>;
}

/// A server that is talked with.
struct Server {
    name: String,
    line: Box<dyn Line>,
    next_id: std::sync::atomic::AtomicU64,
}

/// Servers that were reached, and their tools. Dropping it ends them.
#[derive(Default)]
pub struct Connected {
    servers: Vec<Arc<Server>>,
    tools: Vec<Arc<dyn Tool>>,
}

impl Connected {
    /// Reaches all of them at once, each within this time. One that cannot be reached, or that has not what it is to
    /// offer, fails the whole: a run must not begin with less than it was promised.
    pub fn open(upstreams: &[Upstream], within: Duration) -> Result<Self, ScopeError> {
        let deadline = Instant::now() + within;
        let reached: Vec<Result<_, ScopeError>> = thread::scope(|scope| {
            let starts: Vec<_> =
                upstreams.iter().map(|upstream| scope.spawn(move || reach(upstream, deadline))).collect();
            let broken = |_| Err(failed("?", "reaching it broke down"));
            starts.into_iter().map(|start| start.join().unwrap_or_else(broken)).collect()
        });
        let mut connected = Self::default();
        let mut problem = None;
        for result in reached {
            match result {
                Ok((server, tools)) => {
                    connected.servers.push(server);
                    connected.tools.extend(tools);
                }
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        match problem {
            // What was reached ends here.
            Some(problem) => Err(problem),
            None => Ok(connected),
        }
    }

    /// Their tools, for a [`ToolSet`](super::ToolSet).
    pub fn tools(&self) -> &[Arc<dyn Tool>] {
        &self.tools
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        thread::scope(|scope| {
            for server in &self.servers {
                scope.spawn(|| server.line.end());
            }
        });
    }
}

fn failed(server: &str, why: &str) -> ScopeError {
    ScopeError::Upstream { server: server.to_owned(), why: redaction::one_line(why, 400) }
}

type Reached = (Arc<Server>, Vec<Arc<dyn Tool>>);

fn reach(upstream: &Upstream, deadline: Instant) -> Result<Reached, ScopeError> {
    let line: Box<dyn Line> = match &upstream.reach {
        Reach::Program(program) => {
            Box::new(stdio::Pipe::start(program).map_err(|error| failed(&upstream.name, &error.to_string()))?)
        }
        Reach::Url { url, headers } => {
            Box::new(http::Remote::new(url, headers).map_err(|why| failed(&upstream.name, &why))?)
        }
    };
    let server = Arc::new(Server { name: upstream.name.clone(), line, next_id: 1.into() });
    let found = server.greet(deadline).and_then(|()| server.list(deadline));
    let tools = found.and_then(|listed| server.choose(&upstream.tools, listed)).map_err(|why| {
        let last_words = server.line.end().filter(|words| !words.is_empty());
        let why = last_words.map_or_else(|| why.clone(), |words| format!("{why}; it said: {words}"));
        failed(&upstream.name, &why)
    })?;
    Ok((server, tools))
}

impl Server {
    fn request(
        &self,
        method: &str,
        params: Value,
        deadline: Instant,
        cancel: &Cancel,
    ) -> Result<Value, String> {
        let id = self.next_id.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let answer = self.line.request(&request, deadline, cancel);
        if answer.is_err() && (cancel.reason().is_some() || Instant::now() >= deadline) {
            let reason = cancel.reason().unwrap_or("it took too long");
            self.line.notify(&json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": { "requestId": id, "reason": reason },
            }));
        }
        answer
    }

    fn greet(&self, deadline: Instant) -> Result<(), String> {
        let params = json!({
            "protocolVersion": PROTOCOL, "capabilities": {},
            "clientInfo": { "name": "agent-bridge", "version": env!("CARGO_PKG_VERSION") },
        });
        let answer = self.request("initialize", params, deadline, &Cancel::default())?;
        if answer.get("protocolVersion").and_then(Value::as_str).is_none() {
            return Err("its answer to initialize names no protocol".into());
        }
        self.line.notify(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        Ok(())
    }

    fn list(&self, deadline: Instant) -> Result<Vec<Value>, String> {
        let mut tools = Vec::new();
        let mut cursor = None::<String>;
        for _ in 0..MOST_PAGES {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let mut page = self.request("tools/list", params, deadline, &Cancel::default())?;
            match page.get_mut("tools").map(Value::take) {
                Some(Value::Array(more)) if tools.len() + more.len() <= MOST_TOOLS => tools.extend(more),
                Some(Value::Array(_)) => return Err(format!("it has more than {MOST_TOOLS} tools")),
                _ => return Err("its answer to tools/list holds no list of tools".into()),
            }
            match page.get("nextCursor") {
                None | Some(Value::Null) => return Ok(tools),
                Some(Value::String(next)) if cursor.as_ref() != Some(next) => cursor = Some(next.clone()),
                Some(_) => break,
            }
        }
        Err("its tool list does not end".into())
    }

    /// The wanted tools out of those that it lists.
    fn choose(self: &Arc<Self>, wanted: &[String], listed: Vec<Value>) -> Result<Vec<Arc<dyn Tool>>, String> {
        let all = wanted.iter().any(|name| name == "*");
        let mut chosen: BTreeMap<String, Arc<dyn Tool>> = BTreeMap::new();
        let mut seen = Vec::new();
        for tool in listed {
            let Some(name) = tool.get("name").and_then(Value::as_str) else {
                return Err("it lists a tool without a name".into());
            };
            seen.push(name.to_owned());
            if !all && !wanted.iter().any(|want| want == name) {
                continue;
            }
            let ours = our_name(&self.name, name);
            if chosen.contains_key(&ours) {
                return Err(format!("two of its tools would be called {ours}"));
            }
            let spec = spec(self, &ours, &tool)?;
            let passed =
                Passed { server: Arc::clone(self), theirs: name.to_owned(), name: ours.clone(), spec };
            chosen.insert(ours, Arc::new(passed));
        }
        match wanted.iter().find(|want| *want != "*" && !seen.contains(want)) {
            Some(missing) => {
                seen.truncate(20);
                Err(format!("it has no tool {missing:?}; it has {}", seen.join(", ")))
            }
            None => Ok(chosen.into_values().collect()),
        }
    }
}

/// The name under which the tool of a server is offered. Clients change or drop what is not like this.
fn our_name(server: &str, tool: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    format!("{server}_{tool}").chars().map(plain).collect()
}

fn spec(server: &Server, ours: &str, tool: &Value) -> Result<ToolSpec, String> {
    let schema = tool.get("inputSchema").cloned().unwrap_or_else(|| json!({ "type": "object" }));
    if !schema.is_object() || schema.to_string().len() > SCHEMA {
        return Err(format!("the schema of its tool {ours} is no object or is too large"));
    }
    let said = tool.get("description").and_then(Value::as_str).unwrap_or_default();
    let said: String = said.chars().filter(|c| !c.is_control() || *c == '\n').collect();
    let said = &said[..said.floor_char_boundary(DESCRIPTION)];
    Ok(ToolSpec {
        description: format!("A tool of the server {:?}, which says of it: {said}", server.name),
        schema,
        read_only: tool.pointer("/annotations/readOnlyHint") == Some(&Value::Bool(true)),
    })
}

/// A tool whose calls go on to its server.
struct Passed {
    server: Arc<Server>,
    /// As the server calls it.
    theirs: String,
    /// As the worker does.
    name: String,
    spec: ToolSpec,
}

impl Tool for Passed {
    fn name(&self) -> &str {
        &self.name
    }

    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, call: &Call<'_>) -> Answer {
        let arguments: &Map<String, Value> = call.arguments;
        let params = json!({ "name": self.theirs, "arguments": arguments });
        match self.server.request("tools/call", params, call.deadline, call.cancel) {
            Ok(result) => {
                let text = fenced(&format!("answer of the server {}", self.server.name), &words_of(&result));
                let is_error = result.get("isError") == Some(&Value::Bool(true));
                Answer { text, is_error }
            }
            Err(why) => Answer::error(format!(
                "the server {} gave no answer: {}",
                self.server.name,
                redaction::one_line(&why, 400)
            )),
        }
    }
}

/// What a result says, as text. What is not text is named.
fn words_of(result: &Value) -> String {
    let parts = result.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let word = |part: &Value| -> String {
        let text = part.get("text").or_else(|| part.pointer("/resource/text")).and_then(Value::as_str);
        let kind = part.get("type").and_then(Value::as_str).unwrap_or("unknown");
        let uri = part.get("uri").or_else(|| part.pointer("/resource/uri")).and_then(Value::as_str);
        text.map_or_else(|| format!("[{} left out: {}]", kind, uri.unwrap_or("not text")), str::to_owned)
    };
    match result.get("structuredContent").filter(|structured| !structured.is_null()) {
        Some(structured) if parts.is_empty() => structured.to_string(),
        _ => parts.iter().map(word).collect::<Vec<_>>().join("\n"),
    }
}

/// The result in a message that answers a request.
fn result_of(mut message: Map<String, Value>) -> Result<Value, String> {
    if let Some(error) = message.get("error") {
        let text = error.get("message").and_then(Value::as_str).unwrap_or("it gave no reason");
        let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
        return Err(format!("it refused ({code}): {text}"));
    }
    match message.remove("result") {
        Some(result) if result.is_object() => Ok(result),
        _ => Err("its answer holds neither a result nor an error".into()),
    }
}

/// Our answer to something that a server asks: nothing is offered but a sign of life.
fn reply_to(message: &Map<String, Value>) -> Option<Value> {
    let method = message.get("method")?.as_str()?;
    let id = message.get("id").filter(|id| !id.is_null())?;
    Some(if method == "ping" {
        json!({ "jsonrpc": "2.0", "id": id, "result": {} })
    } else {
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "not offered" } })
    })
}
