//! A server at an address: Streamable HTTP, one POST a request, answered as JSON or as a stream of events.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

use super::{Line, MAX_MESSAGE, reply_to, result_of};
use crate::scope::Cancel;

/// How soon a cancel is noticed while the server is silent.
const LOOK: Duration = Duration::from_millis(50);
/// What has no answer, and the good-bye, may take so long.
const ASIDE: Duration = Duration::from_secs(2);

/// A server that is reached over the network.
pub(super) struct Remote(Arc<Inner>);

struct Inner {
    agent: Agent,
    url: String,
    headers: BTreeMap<String, String>,
    talk: Mutex<Talk>,
}

/// What the server chose in its first answer.
#[derive(Clone, Default)]
struct Talk {
    session: Option<String>,
    protocol: Option<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    pub(super) fn new(url: &str, headers: &BTreeMap<String, String>) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| format!("{url:?} is no address"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        if host.is_empty() || !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(format!("{url:?} is no http or https address"));
        }
        let local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if uri.scheme_str() == Some("http") && !local && !headers.is_empty() {
            return Err("headers are not sent over http to another machine; use https".into());
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A redirect could take the headers elsewhere.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("agent-bridge/", env!("CARGO_PKG_VERSION")));
        let config = if local { config.proxy(None) } else { config };
        Ok(Self(Arc::new(Inner {
            agent: config.build().into(),
            url: url.to_owned(),
            headers: headers.clone(),
            talk: Mutex::default(),
        })))
    }
}

impl Inner {
    fn post(&self, message: &Value, within: Duration) -> Result<Response<Body>, String> {
        let talk = locked(&self.talk).clone();
        let mut request = self
            .agent
            .post(&self.url)
            .config()
            .timeout_global(Some(within))
            .build()
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in [("Mcp-Session-Id", &talk.session), ("MCP-Protocol-Version", &talk.protocol)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        // What goes wrong is said without the headers.
        request.send(message.to_string()).map_err(|error| error.to_string())
    }

    fn ask(self: &Arc<Self>, request: &Value, within: Duration) -> Result<Value, String> {
        let response = self.post(request, within)?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(match status {
                300..=399 => format!("it answers with {status}: a redirect, which is not followed"),
                401 | 403 => format!("it answers with {status}: look at the headers in the config"),
                404 if locked(&self.talk).session.is_some() => "it forgot the session".to_owned(),
                _ => format!("it answers with {status}"),
            });
        }
        let header = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let session = header("Mcp-Session-Id");
        let kind = header("Content-Type").unwrap_or_default().to_ascii_lowercase();
        let body = BufReader::new(response.into_body().into_reader().take(MAX_MESSAGE as u64 + 1));
        let id = request.get("id").and_then(Value::as_u64);
        let message = if kind.starts_with("text/event-stream") {
            self.event_with(id, body)?
        } else {
            let message: Map<String, Value> =
                serde_json::from_reader(body).map_err(|_| "its answer is no JSON object, or too large")?;
            message
        };
        if message.get("id").and_then(Value::as_u64) != id {
            return Err("it answered a request that was not made".into());
        }
        let result = result_of(message)?;
        if request.get("method").and_then(Value::as_str) == Some("initialize") {
            let protocol = result.get("protocolVersion").and_then(Value::as_str).map(str::to_owned);
            *locked(&self.talk) = Talk { session, protocol };
        }
        Ok(result)
    }

    /// Reads events up to the answer. What the server asks meanwhile is declined.
    fn event_with(
        self: &Arc<Self>,
        id: Option<u64>,
        body: impl std::io::BufRead,
    ) -> Result<Map<String, Value>, String> {
        let mut data = String::new();
        for line in body.lines() {
            let line = line.map_err(|error| error.to_string())?;
            if let Some(more) = line.strip_prefix("data:") {
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(more.strip_prefix(' ').unwrap_or(more));
            } else if line.is_empty() && !data.is_empty() {
                let event = serde_json::from_str(&std::mem::take(&mut data));
                let Ok(Value::Object(message)) = event else { continue };
                if message.contains_key("method") {
                    if let Some(reply) = reply_to(&message) {
                        self.aside(reply);
                    }
                } else if message.get("id").and_then(Value::as_u64) == id {
                    return Ok(message);
                }
            }
        }
        Err("it ended its answer in the middle, or it is too large".into())
    }

    /// Says something without waiting.
    fn aside(self: &Arc<Self>, message: Value) {
        let this = Arc::clone(self);
        let _ = std::thread::Builder::new().name("upstream".into()).spawn(move || {
            let _ = this.post(&message, ASIDE);
        });
    }
}

impl Line for Remote {
    fn request(&self, request: &Value, deadline: Instant, cancel: &Cancel) -> Result<Value, String> {
        let (sender, answer) = channel();
        let (inner, asked) = (Arc::clone(&self.0), request.clone());
        let within = deadline.saturating_duration_since(Instant::now());
        std::thread::Builder::new()
            .name("upstream".into())
            .spawn(move || {
                let _ = sender.send(inner.ask(&asked, within));
            })
            .map_err(|error| error.to_string())?;
        loop {
            match answer.recv_timeout(LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => return Err("asking it broke down".into()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(reason) = cancel.reason() {
                return Err(reason.into());
            }
            if Instant::now() >= deadline {
                return Err("it took too long".into());
            }
        }
    }

    fn notify(&self, message: &Value) {
        // In order: what comes next may depend on it.
        let _ = self.0.post(message, ASIDE);
    }

    fn end(&self) -> Option<String> {
        let talk = std::mem::take(&mut *locked(&self.0.talk));
        let session = talk.session?;
        let mut request = self.0.agent.delete(&self.0.url).config().timeout_global(Some(ASIDE)).build();
        for (name, value) in &self.0.headers {
            request = request.header(name, value);
        }
        let _ = request.header("Mcp-Session-Id", session).call();
        None
    }
}
