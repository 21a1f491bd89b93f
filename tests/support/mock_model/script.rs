//! What the mock answers: scenarios of replies, written as a test would say them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::conversation::Request;

/// The conversations a [`super::MockModel`] can play.
///
/// ```ignore
/// let script = Script::new()
///     .scenario("hello", [reply().text("hi")])
///     .scenario("write", [reply().write_file("a.txt", "one\n"), reply().text("written")])
///     .scenario("flaky", [attempts([reply().status(500), reply().text("worked")])]);
/// ```
///
/// A prompt that holds `scenario:hello` plays `hello`. The last such marker in the user's text
/// counts, and the step is the number of assistant turns after it, so the mock keeps no state: retries, resumed
/// sessions and parallel clients each see their own conversation. After the last step the last one
/// repeats. A request without a marker gets the default reply (`mock reply`); a marker that the
/// script does not know is answered with an HTTP 400 that says so.
#[derive(Clone, Default)]
pub struct Script {
    scenarios: Vec<(String, Vec<Reply>)>,
    default: Option<Reply>,
}

impl Script {
    /// A script without scenarios.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the scenario `name`: letters, digits, `_`, `-` and inner dots.
    pub fn scenario(mut self, name: &str, steps: impl IntoIterator<Item = Reply>) -> Self {
        let marker = format!("scenario:{name}");
        assert_eq!(
            super::conversation::last_marker(&marker).as_deref(),
            Some(name),
            "{name:?} cannot be a scenario's name"
        );
        let steps: Vec<Reply> = steps.into_iter().collect();
        assert!(!steps.is_empty(), "scenario {name:?} has no steps");
        self.scenarios.push((name.to_owned(), steps));
        self
    }

    /// The reply to requests that name no scenario.
    pub fn otherwise(mut self, reply: Reply) -> Self {
        self.default = Some(reply);
        self
    }

    /// The reply to a step of a scenario.
    pub(super) fn pick(&self, scenario: Option<&str>, step: usize) -> Reply {
        let Some(name) = scenario else {
            return self.default.clone().unwrap_or_else(|| reply().text("mock reply"));
        };
        match self.scenarios.iter().find(|(known, _)| known == name) {
            Some((_, steps)) => steps[step.min(steps.len() - 1)].clone(),
            None => reply().status(400).message(format!("the mock's script has no scenario {name:?}")),
        }
    }
}

/// A reply; give it content with its methods.
pub fn reply() -> Reply {
    Reply::default()
}

/// The first request of a step gets the first reply, the second the second, and so on; the last
/// one is repeated. Requests with the same conversation count together.
pub fn attempts(replies: impl IntoIterator<Item = Reply>) -> Reply {
    let attempts: Vec<Reply> = replies.into_iter().collect();
    assert!(!attempts.is_empty(), "attempts() needs a reply");
    Reply { attempts, ..Reply::default() }
}

/// A reply made when the request is there, for instance from a tool's result:
/// `reply_with(|request| reply().text(request.tool_results().concat()))`.
pub fn reply_with(make: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Reply {
    Reply { make: Some(Arc::new(make)), ..Reply::default() }
}

type Make = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// One answer of the model. Content appears in the order in which it was added.
#[derive(Clone, Default)]
pub struct Reply {
    pub(super) parts: Vec<Part>,
    pub(super) usage: Usage,
    pub(super) stop: Option<String>,
    pub(super) failure: Option<Failure>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) gate: Option<String>,
    pub(super) delay: Duration,
    pub(super) pace: Duration,
    pub(super) pieces: Option<usize>,
    pub(super) ending: Ending,
    attempts: Vec<Reply>,
    make: Option<Make>,
}

/// A piece of a reply's content.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    Thinking(String),
    /// A tool by the exact name the client gave it.
    Tool {
        name: String,
        input: Value,
    },
    /// A tool whose input is free text (Responses calls it a custom tool).
    Freeform {
        name: String,
        input: String,
    },
    /// A tool of an MCP server; each client has its own form of the name.
    Mcp {
        server: String,
        tool: String,
        input: Value,
    },
    /// The client's own shell tool.
    Shell(String),
    /// The client's own tool that writes a file.
    WriteFile {
        path: String,
        content: String,
    },
}

/// Token counts of a reply.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// The cached part of the input.
    pub cached: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// The reasoning part of the output.
    pub reasoning: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { input: 11, cached: 0, output: 7, reasoning: 0 }
    }
}

/// An HTTP error instead of content.
#[derive(Clone, Debug, Default)]
pub(super) struct Failure {
    pub status: u16,
    pub message: Option<String>,
    pub code: Option<String>,
    pub body: Option<Value>,
}

/// How a stream ends. Counts are stream events.
#[derive(Clone, Debug, Default)]
pub(super) enum Ending {
    #[default]
    Complete,
    /// Nothing at all is ever sent.
    Hang,
    HangAfter(usize),
    DropAfter(usize),
    /// The API's own error event after two events.
    Error(String),
}

impl Reply {
    /// Assistant text.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.part(Part::Text(text.into()))
    }

    /// Reasoning, in each API's own form.
    pub fn thinking(self, text: impl Into<String>) -> Self {
        self.part(Part::Thinking(text.into()))
    }

    /// A tool call by the client's exact tool name (`Write`, `exec_command`, `read_file`).
    pub fn tool(self, name: &str, input: Value) -> Self {
        self.part(Part::Tool { name: name.to_owned(), input })
    }

    /// A call of a tool that takes free text (Codex: `apply_patch`, `exec`).
    pub fn freeform(self, name: &str, input: impl Into<String>) -> Self {
        self.part(Part::Freeform { name: name.to_owned(), input: input.into() })
    }

    /// A call of an MCP server's tool, whichever client asks.
    pub fn mcp_tool(self, server: &str, tool: &str, input: Value) -> Self {
        self.part(Part::Mcp { server: server.to_owned(), tool: tool.to_owned(), input })
    }

    /// A shell command by the client's own tool, whichever client asks.
    pub fn shell(self, command: impl Into<String>) -> Self {
        self.part(Part::Shell(command.into()))
    }

    /// A new file by the client's own tool, whichever client asks. Claude Code and Gemini CLI want
    /// an absolute path.
    pub fn write_file(self, path: impl Into<String>, content: impl Into<String>) -> Self {
        self.part(Part::WriteFile { path: path.into(), content: content.into() })
    }

    /// Token counts.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// The API's own stop reason, where the usual one will not do (`max_tokens`, `refusal`).
    pub fn stop(mut self, reason: &str) -> Self {
        self.stop = Some(reason.to_owned());
        self
    }

    /// An HTTP error with this status and the API's own error body.
    pub fn status(mut self, status: u16) -> Self {
        assert!((400..600).contains(&status), "{status} is no HTTP error status");
        self.failure.get_or_insert_default().status = status;
        self
    }

    /// The error's text.
    pub fn message(mut self, text: impl Into<String>) -> Self {
        self.failure.get_or_insert_default().message = Some(text.into());
        self
    }

    /// The error's code (OpenAI), type (Anthropic) or status name (Gemini).
    pub fn code(mut self, code: &str) -> Self {
        self.failure.get_or_insert_default().code = Some(code.to_owned());
        self
    }

    /// The whole error body, in place of the API's usual one.
    pub fn error_body(mut self, body: Value) -> Self {
        self.failure.get_or_insert_default().body = Some(body);
        self
    }

    /// A response header, for instance `retry-after`.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Nothing is sent until the test calls [`super::MockModel::open`] with this name.
    pub fn gate(mut self, name: &str) -> Self {
        self.gate = Some(name.to_owned());
        self
    }

    /// Wait before the first byte.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Wait before each stream event.
    pub fn pace(mut self, pause: Duration) -> Self {
        self.pace = pause;
        self
    }

    /// How many deltas each text is cut into (default 2).
    pub fn pieces(mut self, pieces: usize) -> Self {
        self.pieces = Some(pieces);
        self
    }

    /// The request is accepted and never answered.
    pub fn hang(mut self) -> Self {
        self.ending = Ending::Hang;
        self
    }

    /// Silence after this many stream events.
    pub fn hang_after(mut self, events: usize) -> Self {
        self.ending = Ending::HangAfter(events);
        self
    }

    /// The connection is cut after this many stream events.
    pub fn drop_after(mut self, events: usize) -> Self {
        self.ending = Ending::DropAfter(events);
        self
    }

    /// A stream that begins well and then carries the API's error event.
    pub fn stream_error(mut self, message: impl Into<String>) -> Self {
        self.ending = Ending::Error(message.into());
        self
    }

    fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Whether replies differ from one attempt to the next.
    pub(super) fn has_attempts(&self) -> bool {
        !self.attempts.is_empty()
    }

    /// The reply to the `attempt`-th request, made from it if need be.
    pub(super) fn resolve(&self, attempt: usize, request: &Request) -> Self {
        let chosen = match self.attempts.len() {
            0 => self,
            count => &self.attempts[attempt.min(count - 1)],
        };
        match &chosen.make {
            Some(make) => make(request),
            None => chosen.clone(),
        }
    }
}
