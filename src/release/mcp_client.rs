//! The host's end of an MCP connection, for a program that is on trial: every answer is awaited with a
//! deadline, nothing the program prints is believed before it is read, and its whole tree ends with the talk.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::probe::ProbeError;
use crate::agents::redaction;
use crate::process::{Dialogue, DialogueLimits, Farewell, Heard, Program};

/// The protocol that is offered; the server answers with its own.
const PROTOCOL: &str = "2025-06-18";
/// Messages that are passed over (notifications, questions of the server) before one answer.
const MOST_ASIDE: usize = 1000;
/// Pages of a tool list.
const MOST_PAGES: usize = 100;
/// Time a server gets to end by itself once it was said good-bye.
const PATIENCE: Duration = Duration::from_secs(2);
const LIMITS: DialogueLimits =
    DialogueLimits { max_line: 8 << 20, max_output: 64 << 20, stderr_tail: 8 << 10 };

/// What is started, and how long all of it may take.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment; nothing is inherited. A marker by which its tree is found is added.
    pub env: Vec<(OsString, OsString)>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// The whole talk.
    pub deadline: Duration,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Its version.
    pub server_version: String,
    /// The protocol it answers in.
    pub protocol: String,
}

/// A server that was started.
pub struct McpClient {
    dialogue: Dialogue,
    until: Instant,
    deadline: Duration,
    next_id: u64,
}

impl McpClient {
    /// Starts the program; nothing is said yet.
    pub fn start(launch: &Launch, without_network: bool) -> Result<Self, ProbeError> {
        let env: BTreeMap<OsString, OsString> = launch.env.iter().cloned().collect();
        let program = Program {
            program: launch.program.clone(),
            args: launch.args.clone(),
            cwd: launch.cwd.clone(),
            env,
            stdin: Vec::new(),
        };
        let dialogue = Dialogue::start(&program, LIMITS, without_network).map_err(ProbeError::NotStarted)?;
        let until = Instant::now() + launch.deadline;
        Ok(Self { dialogue, until, deadline: launch.deadline, next_id: 1 })
    }

    /// Whether the server was proven to have no network.
    pub fn network_is_off(&self) -> bool {
        self.dialogue.network_is_off()
    }

    /// The handshake.
    pub fn initialize(&mut self) -> Result<Greeting, ProbeError> {
        let version = env!("CARGO_PKG_VERSION");
        let answer = self.request(
            "initialize",
            json!({
                "protocolVersion": PROTOCOL, "capabilities": {},
                "clientInfo": { "name": "agent-bridge-probe", "version": version },
            }),
        )?;
        let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).map(clean);
        let greeting = match (text("/serverInfo/version"), text("/protocolVersion")) {
            (Some(server_version), Some(protocol)) => Greeting { server_version, protocol },
            _ => return Err(not_mcp("its answer to initialize names no version or no protocol")),
        };
        self.dialogue.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        Ok(greeting)
    }

    /// Every tool, from all pages.
    pub fn tools(&mut self) -> Result<Vec<Value>, ProbeError> {
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let parameters = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let mut page = self.request("tools/list", parameters)?;
            match page.get_mut("tools").map(Value::take) {
                Some(Value::Array(more)) => tools.extend(more),
                _ => return Err(not_mcp("its answer to tools/list holds no list of tools")),
            }
            match page.get("nextCursor") {
                None | Some(Value::Null) => return Ok(tools),
                Some(Value::String(next)) if cursor.as_ref() != Some(next) => cursor = Some(next.clone()),
                Some(_) => return Err(not_mcp("its tool list does not end")),
            }
        }
        Err(not_mcp("its tool list does not end"))
    }

    /// Calls a tool and gives its result as sent: `content`, `structuredContent`, `isError`.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, ProbeError> {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    fn request(&mut self, method: &str, params: Value) -> Result<Value, ProbeError> {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.dialogue.say(&request.to_string());
        for _ in 0..MOST_ASIDE {
            let line = match self.dialogue.hear(self.until) {
                Heard::Line(line) => line,
                Heard::Nothing => {
                    return Err(ProbeError::TimedOut { method: method.to_owned(), after: self.deadline });
                }
                Heard::TooMuch => return Err(not_mcp("a message is too large")),
                Heard::Ended => {
                    return Err(ProbeError::Ended {
                        method: method.to_owned(),
                        code: None,
                        signal: None,
                        silent: !self.dialogue.has_spoken(),
                    });
                }
            };
            let Ok(Value::Object(mut message)) = serde_json::from_slice::<Value>(&line) else {
                let text = String::from_utf8_lossy(line.get(..400).unwrap_or(&line)).into_owned();
                return Err(not_mcp(&format!("it printed {:?}", redaction::one_line(&text, 120))));
            };
            if let Some(asked) = message.get("method") {
                if let Some(its_id) = message.get("id") {
                    let answer = if asked == "ping" {
                        json!({ "jsonrpc": "2.0", "id": its_id, "result": {} })
                    } else {
                        let error = json!({ "code": -32601, "message": "not offered" });
                        json!({ "jsonrpc": "2.0", "id": its_id, "error": error })
                    };
                    self.dialogue.say(&answer.to_string());
                }
                continue;
            }
            if message.get("id") != Some(&json!(id)) {
                return Err(not_mcp("it answered a request that was not made"));
            }
            if let Some(error) = message.get("error") {
                let text = error.get("message").and_then(Value::as_str).unwrap_or_default();
                if error.pointer("/data/retryable") == Some(&json!(true)) {
                    let message = redaction::one_line(text, 300);
                    return Err(ProbeError::PutOff { method: method.to_owned(), message });
                }
                return Err(ProbeError::Refused {
                    method: method.to_owned(),
                    code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
                    message: redaction::one_line(text, 300),
                });
            }
            return match message.remove("result") {
                Some(result) if result.is_object() => Ok(result),
                _ => Err(not_mcp("an answer holds neither a result nor an error")),
            };
        }
        Err(not_mcp("it sends messages without end"))
    }

    /// Ends the server and its whole tree. A server that answered gets time to end by itself.
    pub fn end(self, in_peace: bool) -> Farewell {
        self.dialogue.end(if in_peace { PATIENCE } else { Duration::ZERO })
    }

    /// Ends the server at once after an error, which gets what only the end tells: exit code, signal, last words.
    pub fn fail(self, error: ProbeError) -> ProbeError {
        let farewell = self.end(false);
        let last_words = redaction::one_line(&tail_of(&farewell.stderr_tail), 400);
        error.with_end(&farewell, last_words)
    }

    /// Ends the talk after `result`.
    pub fn finish<T>(self, result: Result<T, ProbeError>) -> Result<T, ProbeError> {
        match result {
            Err(error) => Err(self.fail(error)),
            Ok(value) => {
                let survivors = self.end(true).survivors;
                if survivors.is_empty() { Ok(value) } else { Err(ProbeError::Survivors { pids: survivors }) }
            }
        }
    }
}

/// The end of a text, where the reason stands.
fn tail_of(text: &str) -> String {
    let start = text.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
    text[start..].to_owned()
}

fn clean(text: &str) -> String {
    redaction::one_line(text, 100)
}

fn not_mcp(what: &str) -> ProbeError {
    ProbeError::NotMcp { what: what.to_owned(), last_words: String::new() }
}
