//! The MCP server: answers the handshake and the tool list at once, runs calls, ends with its host.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::FutureExt as _;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, InitializeRequestParams,
    InitializeResult, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::elicitation::Person;
use super::reply::error_reply;
use super::tools::{self, Call};
use super::{catalogue, transport};
use crate::bridge::Bridge;
use crate::bridge::questions::Seen;
use crate::config::Toolset;
use crate::error::{Error, INTERNAL_ERROR, Result, SERVER_BUSY, UNKNOWN_TOOL};
use crate::platform;
use crate::relay::Relay;

/// Calls that may be in flight on one connection.
const MAX_CALLS: usize = 64;
/// Calls that end work or let it go on have places of their own: a flood of waits must not keep a turn alive.
const MAX_RELEASES: usize = 8;

/// What the server tells a model about itself.
pub const INSTRUCTIONS: &str = "agent-bridge delegates work to other coding agents on this machine (Codex, Claude Code). \
Use delegate_task to give an agent a task, continue_session to follow up, handoff to let another agent go on. Turns are \
read-only unless you pass sandbox workspace-write and the user's config allows it. A reply with status still_running means \
the work goes on: call wait_turn with its turn_id, never repeat the task. If it has questions, the worker waits: \
answer_question. Long answers are cut in the middle; get_turn_output \
returns all of it. An answer is another agent's claim: check it before you rely on it.";

/// What is added where the relay's tools are offered.
pub const RELAY_INSTRUCTIONS: &str = " For implementation work that you want to review rather than do (implement, fix, refactor, add tests) use \
relay_execute: describe only the task, do not repeat fixed constraints; read just enough first, and plan at most 8 short items. It \
returns a review packet: read changes.review before anything else, not the whole tree. Send a definite defect back with \
relay_continue, at most twice. Call relay_get_result only when what came back is not enough. The final acceptance is yours. Do not \
delegate questions, explanations or analysis, what the user wants you to do yourself, or edits of one or two lines.";

/// Called with the name and the version of the client, once it has introduced itself.
pub type Introduced = Box<dyn Fn(&str, &str) + Send + Sync>;

#[derive(Clone)]
struct Server {
    bridge: Bridge,
    relay: Relay,
    /// Taken away by the first introduction.
    introduced: Arc<Mutex<Option<Introduced>>>,
    /// Read when a host first asks.
    tools: Arc<OnceLock<Vec<Tool>>>,
    calls: Arc<Semaphore>,
    releases: Arc<Semaphore>,
    told: Arc<Seen>,
    person: Arc<Person>,
}

impl Server {
    /// A client says who it is with the handshake, or, in the revision without one, with every request.
    fn note_client(&self, client: Option<&Implementation>) {
        let Some(client) = client else { return };
        let waiting = self.introduced.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(introduced) = waiting {
            introduced(&client.name, &client.version);
        }
    }
}

impl ServerHandler for Server {
    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let answer = self.negotiate_initialize(&request)?;
        self.note_client(Some(&request.client_info));
        Ok(answer)
    }

    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("agent-bridge", env!("CARGO_PKG_VERSION"));
        info.server_info.title = Some("agent-bridge".into());
        let relay = self.bridge.config().toolsets.contains(&Toolset::Relay);
        let more = if relay { RELAY_INSTRUCTIONS } else { "" };
        info.instructions = Some(format!("{INSTRUCTIONS}{more}"));
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.note_client(context.client_info().as_ref());
        // One page always, so any cursor is one that we did not make.
        if request.and_then(|page| page.cursor).is_some() {
            return Err(ErrorData::invalid_params("unknown cursor", None));
        }
        let tools = self.tools.get_or_init(|| catalogue::offered(&self.bridge.config().toolsets));
        Ok(ListToolsResult::with_all_items(tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.note_client(context.client_info().as_ref());
        let name = request.name.to_string();
        let offered = tools::offered(&self.bridge.config().toolsets).find(|tool| tool.name == name);
        let Some(tool) = offered else {
            let shown: String = name.chars().take(64).collect();
            return Err(ErrorData::invalid_params(
                format!("{}: there is no tool {shown:?}", UNKNOWN_TOOL.code),
                None,
            ));
        };
        let (places, most) =
            if tool.releases_work() { (&self.releases, MAX_RELEASES) } else { (&self.calls, MAX_CALLS) };
        let Ok(_permit) = places.try_acquire() else {
            let busy = Error::new(
                &SERVER_BUSY,
                format!("{most} calls of this kind are in flight on this connection"),
            );
            return Ok(error_reply(&busy).into());
        };
        let call = Call {
            bridge: self.bridge.clone(),
            relay: self.relay.clone(),
            arguments: request.arguments.unwrap_or_default(),
            request: context,
            told: Arc::clone(&self.told),
            person: Arc::clone(&self.person),
        };
        Ok(answered(&name, tool.call(call)).await.into())
    }
}

/// The reply of a handler, whatever becomes of it: a panic would leave the host waiting for ever.
async fn answered(name: &str, handler: impl Future<Output = Result<CallToolResult>>) -> CallToolResult {
    match AssertUnwindSafe(handler).catch_unwind().await {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => error_reply(&error),
        Err(_) => error_reply(&Error::new(&INTERNAL_ERROR, format!("the handler of {name} panicked"))),
    }
}

/// Serves one host on standard input and output until it is gone. `introduced` is called once, if the host says
/// who it is.
pub async fn serve(bridge: Bridge, introduced: Option<Introduced>) -> std::io::Result<()> {
    let gone = CancellationToken::new();
    transport::end_process_after(gone.clone(), &tokio::runtime::Handle::current());
    let parent_gone = gone.clone();
    // Where the parent cannot be watched, the end of input has to do.
    let _ = platform::spawn_parent_watch(move || parent_gone.cancel());
    let signalled = gone.clone();
    tokio::spawn(async move {
        platform::termination().await;
        signalled.cancel();
    });

    let server = Server {
        relay: Relay::new(bridge.clone()),
        bridge,
        introduced: Arc::new(Mutex::new(introduced)),
        tools: Arc::default(),
        calls: Arc::new(Semaphore::new(MAX_CALLS)),
        releases: Arc::new(Semaphore::new(MAX_RELEASES)),
        told: Arc::default(),
        person: Arc::default(),
    };
    let (reader, writer) = rmcp::transport::stdio_pipes();
    let transport = transport::Lines::new(reader, writer, &gone);
    let running = tokio::select! {
        biased;
        running = rmcp::serve_server(server, transport) => running,
        () = gone.cancelled() => return Ok(()),
    };
    // The host left before it asked for anything.
    let Ok(running) = running else { return Ok(()) };
    let stop = running.cancellation_token();
    let flush = gone.clone();
    tokio::spawn(async move {
        flush.cancelled().await;
        // Replies that are ready may still leave.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        stop.cancel();
    });
    let _ = running.waiting().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[tokio::test]
    async fn a_handler_that_panics_still_answers() {
        let reply = answered("list_agents", async { panic!("a defect") }).await;
        assert_eq!(reply.is_error, Some(true));
        assert_eq!(reply.structured_content.unwrap()["error"]["code"], "INTERNAL_ERROR");
    }
}
