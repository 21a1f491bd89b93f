//! The tools: a table of what is offered, and how a call becomes a reply.

mod arguments;
mod diagnostics;
pub mod outputs;
mod questions;
pub mod relay;
mod sessions;
pub(super) mod turns;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject, ProgressNotificationParam, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::bridge::Bridge;
use crate::bridge::questions::Seen;
use crate::config::Toolset;
use crate::error::{Error, INVALID_ARGUMENT, Result};
use crate::mcp::elicitation::Person;
use crate::relay::Relay;

/// One call on its way through.
pub struct Call {
    /// The use cases.
    pub bridge: Bridge,
    /// Those of runs.
    pub relay: Relay,
    /// The arguments as sent.
    pub arguments: Map<String, Value>,
    /// Cancellation, progress token, peer.
    pub request: RequestContext<RoleServer>,
    /// Questions that this connection was told of.
    pub told: Arc<Seen>,
    /// Who sits at the host.
    pub person: Arc<Person>,
}

type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Result<CallToolResult>> + Send>>;

/// What a tool does to the world, for the annotations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Reads our own state.
    Reads,
    /// Starts a worker that may change files and reach its provider.
    Runs,
    /// Ends a worker.
    Ends,
    /// Writes what a run left into the user's files.
    Applies,
    /// Lets a worker go on, and perhaps do what it asked for.
    Answers,
}

/// One row of the table.
pub struct ToolDefinition {
    /// Name on the wire.
    pub name: &'static str,
    title: &'static str,
    description: &'static str,
    /// Group it can be switched off with.
    pub group: Toolset,
    effect: Effect,
    input: fn() -> Arc<JsonObject>,
    output: fn() -> Arc<JsonObject>,
    handler: Handler,
}

macro_rules! tool {
    // Its published schema leaves names out that are taken all the same, so it is an open one.
    (open $name:literal, $title:literal, $group:ident, $effect:ident, $input:ty => $output:ty, $handler:path, $description:expr) => {
        ToolDefinition {
            input: super::schema::open_input::<$input>,
            ..tool!($name, $title, $group, $effect, $input => $output, $handler, $description)
        }
    };
    ($name:literal, $title:literal, $group:ident, $effect:ident, $input:ty => $output:ty, $handler:path, $description:expr) => {
        ToolDefinition {
            name: $name,
            title: $title,
            description: $description,
            group: Toolset::$group,
            effect: Effect::$effect,
            input: super::schema::input::<$input>,
            output: super::schema::output::<$output>,
            handler: |call| Box::pin($handler(call)),
        }
    };
}

/// Every tool, in the order in which it is listed.
pub static TOOLS: &[ToolDefinition] = &[
    tool!("list_agents", "List agents", Sessions, Reads, arguments::Nothing => outputs::AgentList, diagnostics::list_agents,
        "Lists the coding agents that tasks can be delegated to (Codex, Claude Code, …): installed version, login, \
         capabilities and the most authority each may get. Probes are cached for a minute."),
    tool!("delegate_task", "Delegate a task", Sessions, Runs, arguments::DelegateTask => crate::bridge::TurnView, turns::delegate_task,
        "Gives a task to another local coding agent and returns its answer. Starts a new session, or goes on with \
         `session_id`. Read-only unless `sandbox` says otherwise. Waits up to `wait_seconds`; if the work takes longer the \
         reply says status still_running: then call wait_turn with the turn_id. Repeat a call with the same \
         `idempotency_key` and the work is not done twice."),
    tool!("continue_session", "Continue a session", Sessions, Runs, arguments::ContinueSession => crate::bridge::TurnView, turns::continue_session,
        "Sends a follow-up prompt to a session, by default to the agent of its last turn, which remembers the conversation."),
    tool!("handoff", "Hand a session to another agent", Sessions, Runs, arguments::Handoff => crate::bridge::TurnView, turns::handoff,
        "Lets another agent go on with a session: it gets the conversation so far as quoted, untrusted context. Without a \
         prompt it is asked to verify the work and continue."),
    tool!("wait_turn", "Wait for a turn", Sessions, Reads, arguments::WaitTurn => crate::bridge::TurnView, turns::wait_turn,
        "Waits for a running turn and returns its result, or status still_running after `wait_seconds`. Works from any \
         connection, also after a restart of the host."),
    tool!("cancel_turn", "Cancel a turn", Sessions, Ends, arguments::CancelTurn => outputs::Cancelled, turns::cancel_turn,
        "Ends a running turn and its whole process tree. Partial output is kept. A finished turn is left as it is."),
    tool!("list_turns", "List turns", Sessions, Reads, arguments::ListTurns => outputs::TurnList, turns::list_turns,
        "Lists turns, newest first, running ones included, with outcome and duration."),
    tool!("get_turn_output", "Page a turn's output", Sessions, Reads, arguments::GetTurnOutput => outputs::OutputPage, turns::get_turn_output,
        "Returns a part of a turn's full answer, standard error or raw standard output. Follow `next_offset` until `complete`."),
    tool!("list_questions", "List workers' questions", Approvals, Reads, arguments::ListQuestions => outputs::QuestionList, questions::list_questions,
        "Lists what running workers ask (a question, or an approval to use a tool) and still wait for, newest first."),
    tool!("answer_question", "Answer a worker's question", Approvals, Answers, arguments::AnswerQuestion => outputs::AnsweredQuestion, questions::answer_question,
        "Answers a waiting worker: `text` for a question, `approve` for an approval. The first answer stands. Approve only \
         what the user would; without an answer the worker goes on with a default, and an approval is denied."),
    tool!("list_sessions", "List sessions", Sessions, Reads, arguments::ListSessions => outputs::SessionList, sessions::list_sessions,
        "Lists sessions, newest first."),
    tool!("get_session", "Show a session", Sessions, Reads, arguments::GetSession => outputs::SessionDetail, sessions::get_session,
        "Shows a session's turns with clipped prompts and answers. Follow `next_turn` for the rest."),
    tool!("search_sessions", "Search sessions", Sessions, Reads, arguments::SearchSessions => outputs::SearchResult, sessions::search_sessions,
        "Full-text search over the prompts and answers of all sessions."),
    tool!(open "relay_execute", "Run a task and get a review packet", Relay, Runs, relay::RelayExecute => relay::RunShape, relay::relay_execute,
        "Gives an implementation task to a worker that edits the workspace, and returns a compact review packet: what the \
         repository shows as changed, where to look first, the worker's summary and tests. Describe only the task. Status \
         RUNNING means the work goes on: call relay_get_result with the run_id, never repeat the task."),
    tool!(open "relay_continue", "Correct a run", Relay, Runs, relay::RunContinue => relay::RunShape, relay::relay_continue,
        "Sends a definite defect back to the worker of a run, which remembers the task, and returns a new packet. At most twice a run."),
    tool!("relay_get_result", "Show a run", Relay, Reads, relay::RunGetResult => relay::RunShape, relay::relay_get_result,
        "Waits for a running run, or shows a finished one again: the packet, its errors, or the whole record. Only when what \
         came back is not enough."),
    tool!("relay_apply", "Apply a run's patch", Relay, Applies, relay::RunApply => crate::relay::worktree::Applied, relay::relay_apply,
        "Puts the patch of a run with isolation worktree into its workspace: all of it, or nothing and the conflicts by name. \
         After your review."),
    tool!(open "antigravity_execute", "Run a task with Antigravity", Relay, Runs, relay::AntigravityExecute => relay::RunShape, relay::antigravity_execute,
        "As relay_execute, with Antigravity as the worker."),
    tool!(open "antigravity_continue", "Correct an Antigravity run", Relay, Runs, relay::RunContinue => relay::RunShape, relay::antigravity_continue,
        "As relay_continue, for a run of antigravity_execute."),
    tool!("antigravity_get_result", "Show an Antigravity run", Relay, Reads, relay::RunGetResult => relay::RunShape, relay::antigravity_get_result,
        "As relay_get_result."),
    tool!("diagnose_install", "Diagnose the installation", Diagnostics, Reads, arguments::Nothing => outputs::Diagnosis, diagnostics::diagnose_install,
        "Checks the installation: program, config, state folder, agents and logins, with a verdict and next steps. Read-only."),
];

impl ToolDefinition {
    /// As `tools/list` shows it.
    pub fn published(&self) -> Tool {
        let mut tool = Tool::new(self.name, self.description, (self.input)());
        tool.title = Some(self.title.to_owned());
        tool.output_schema = Some((self.output)());
        let mut hints = ToolAnnotations::with_title(self.title);
        hints.read_only_hint = Some(self.effect == Effect::Reads);
        hints.destructive_hint = Some(self.effect != Effect::Reads);
        hints.idempotent_hint = Some(self.effect != Effect::Runs);
        hints.open_world_hint = Some(self.effect == Effect::Runs);
        tool.annotations = Some(hints);
        tool
    }

    /// Whether it does nothing but end work, or let it go on.
    pub fn releases_work(&self) -> bool {
        matches!(self.effect, Effect::Ends | Effect::Answers)
    }

    /// Answers a call.
    pub fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = Result<CallToolResult>> + Send>> {
        (self.handler)(call)
    }
}

/// The tools of the groups that are switched on.
pub fn offered(groups: &[Toolset]) -> impl Iterator<Item = &'static ToolDefinition> {
    TOOLS.iter().filter(move |tool| groups.contains(&tool.group))
}

impl Call {
    /// The arguments as their type; every fault names the argument.
    fn parse<T: DeserializeOwned + schemars::JsonSchema>(&mut self) -> Result<T> {
        let value = Value::Object(std::mem::take(&mut self.arguments));
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            let inner = error.into_inner().to_string();
            if let Some(unknown) =
                inner.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next())
            {
                return invalid(unknown_argument::<T>(unknown));
            }
            let at = if path == "." { String::new() } else { format!("`{path}`: ") };
            invalid(format!("{at}{inner}"))
        })
    }

    /// The requester's name for the record.
    fn requester(&self) -> String {
        let name = self.request.client_info().map(|info| info.name).unwrap_or_default();
        let clean: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        if clean.is_empty() { "mcp".to_owned() } else { format!("mcp:{clean}") }
    }
}

fn unknown_argument<T: schemars::JsonSchema>(unknown: &str) -> String {
    // Compared as shown: likeness takes the product of both lengths, and this name has any.
    let shown: String = unknown.chars().take(64).collect();
    let schema = super::schema::input::<T>();
    let known: Vec<&str> = schema
        .get("properties")
        .and_then(Value::as_object)
        .map(|p| p.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let near = known
        .iter()
        .map(|name| (strsim::jaro_winkler(name, &shown), *name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match near {
        Some((_, near)) => format!("unknown argument `{shown}`; did you mean `{near}`?"),
        None => format!("unknown argument `{shown}`; known are: {}", known.join(", ")),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(&INVALID_ARGUMENT, message)
}

/// A number in its range, or the default.
fn within(name: &str, value: Option<u64>, default: u64, range: std::ops::RangeInclusive<u64>) -> Result<u64> {
    let value = value.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    Err(invalid(format!("`{name}` is {value}; it must be {} to {}", range.start(), range.end())))
}

/// An id from outside: a UUID as we make them. Anything else cannot exist.
fn checked_id(name: &str, id: &str) -> Result<()> {
    if crate::store::is_id(id) {
        return Ok(());
    }
    let shown: String = id.chars().take(64).collect();
    Err(invalid(format!("`{name}` is not an id of this server: {shown:?}")))
}

/// Sends progress for as long as it lives: always the latest word, never a queue.
struct ProgressReporter {
    latest: watch::Sender<Option<(Duration, String)>>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl ProgressReporter {
    fn new(request: &RequestContext<RoleServer>) -> Self {
        let (latest, mut news) = watch::channel(None::<(Duration, String)>);
        let task = request.meta.get_progress_token().map(|token| {
            let peer = request.peer.clone();
            tokio::spawn(async move {
                let mut sent = -1.0;
                while news.changed().await.is_ok() {
                    let Some((elapsed, message)) = news.borrow_and_update().clone() else { continue };
                    let progress = elapsed.as_secs_f64();
                    if progress <= sent {
                        continue;
                    }
                    sent = progress;
                    let note = ProgressNotificationParam::new(token.clone(), progress).with_message(message);
                    if peer.notify_progress(note).await.is_err() {
                        return;
                    }
                }
            })
        });
        Self { latest, task }
    }

    /// Names the turn each time: a host that gives up before the reply can still find it.
    fn report(&self, turn_id: &str, elapsed: Duration, activity: Option<&str>) {
        self.say("turn", turn_id, elapsed, activity);
    }

    fn report_run(&self, run_id: &str, elapsed: Duration, activity: Option<&str>) {
        self.say("run", run_id, elapsed, activity);
    }

    fn say(&self, kind: &str, id: &str, elapsed: Duration, activity: Option<&str>) {
        let seconds = elapsed.as_secs();
        let message = format!("{kind} {id}, {seconds} s: {}", activity.unwrap_or("working"));
        self.latest.send_replace(Some((elapsed, message)));
    }

    /// No progress follows the reply.
    async fn finish(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }
}
