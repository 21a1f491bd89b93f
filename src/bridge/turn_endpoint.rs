//! The endpoint of a delegated turn: the tools that the config lists, bound to the turn, alive as long as its worker.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::asking::Asking;
use super::companion::{Companion, CompanionEnd, CompanionRun, Notices, OpenCompanion};
use crate::agents::redaction;
use crate::config::{ScopeServer, ScopeTool, ScopeTransport};
use crate::context::Context;
use crate::error::Result;
use crate::policy::{AgentId, Sandbox};
use crate::process::{self, DEPTH_VAR, Program, TURN_VAR};
use crate::scope::kit::{self, Check};
use crate::scope::upstream::{Connected, Reach, Upstream};
use crate::scope::{
    BatchedLog, BoundRun, CallLog, CallRecord, Cancel, Endpoint, Limits, Options, Outcome, ScopeError,
    ToolSet,
};
use crate::store::{AuditEntry, Store};

/// How long the servers of others may take to be there.
const REACH_WITHIN: Duration = Duration::from_secs(30);
/// Most bytes of the answer before that are kept for `get_previous_result`.
const PREVIOUS: usize = 4 << 20;
/// Delegations in one run.
const DELEGATIONS: u32 = 8;
/// Largest answer of a delegation.
const DELEGATED: usize = 4 << 20;
/// What a delegation that is not wanted any more gets to end its own worker first.
const DELEGATED_GRACE: Duration = Duration::from_secs(5);

/// Opens an endpoint for each turn that is to have one.
pub struct ForTurns;

impl Companion for ForTurns {
    fn open(&self, run: &CompanionRun<'_>) -> Result<Box<dyn OpenCompanion>> {
        let store = Arc::new(Store::open(run.store.state_dir(), run.context.clock)?);
        let upstreams: Result<Vec<_>> =
            run.scope.servers.iter().map(|(name, server)| upstream(run, name, server)).collect();
        let servers = Connected::open(&upstreams?, REACH_WITHIN)?;
        let report = Arc::new(LastReport::default());
        let asking = Arc::new(Asking::of(run, &store));
        let (tools, names) = tools(run, &store, &report, &asking, &servers)?;
        let counts = Arc::new(Counts::default());
        let log = CountedLog { log: written_to(&store, run), counts: Arc::clone(&counts) };
        let limits = Limits { call: run.scope.longest_call(), ..Limits::default() };
        let bound = BoundRun {
            run: run.turn_id.to_owned(),
            session: Some(run.session_id.to_owned()),
            turn: Some(run.turn_id.to_owned()),
            workspace: run.cwd.to_path_buf(),
        };
        let clock = run.context.clock;
        let endpoint =
            Endpoint::start(Options { bound, tools, limits, log: Arc::new(log), clock, modern: true })?;
        asking.hide_too(endpoint.token().expose());
        Ok(Box::new(Open { endpoint, names, report, counts, _servers: servers }))
    }
}

/// An endpoint that answers. What it is made of ends in this order.
struct Open {
    endpoint: Endpoint,
    names: Vec<String>,
    report: Arc<LastReport>,
    counts: Arc<Counts>,
    _servers: Connected,
}

impl OpenCompanion for Open {
    fn url(&self) -> String {
        self.endpoint.url()
    }

    fn token(&self) -> String {
        self.endpoint.token().expose().to_owned()
    }

    fn tools(&self) -> Vec<String> {
        self.names.clone()
    }

    fn was_listed(&self) -> bool {
        self.endpoint.was_listed()
    }

    fn close(self: Box<Self>) -> CompanionEnd {
        let listed = self.endpoint.was_listed();
        let closed = self.endpoint.close();
        CompanionEnd {
            listed,
            report: self.report.0.lock().unwrap_or_else(PoisonError::into_inner).take(),
            calls: self.counts.made.load(Ordering::SeqCst),
            refused: self.counts.refused.load(Ordering::SeqCst),
            unrecorded: closed.log_error,
        }
    }
}

#[derive(Default)]
struct LastReport(Mutex<Option<Value>>);

impl kit::ReportSink for LastReport {
    fn keep(&self, report: &Value) -> std::result::Result<(), String> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
        Ok(())
    }
}

#[derive(Default)]
struct Counts {
    made: AtomicU64,
    refused: AtomicU64,
}

struct CountedLog {
    log: BatchedLog,
    counts: Arc<Counts>,
}

impl CallLog for CountedLog {
    fn record(&self, record: CallRecord) -> std::result::Result<(), String> {
        let counter =
            if record.outcome == Outcome::Refused { &self.counts.refused } else { &self.counts.made };
        counter.fetch_add(1, Ordering::SeqCst);
        self.log.record(record)
    }

    fn flush(&self) -> std::result::Result<(), String> {
        self.log.flush()
    }
}

/// Into the audit trail, with the session and the turn.
fn written_to(store: &Arc<Store>, run: &CompanionRun<'_>) -> BatchedLog {
    let store = Arc::clone(store);
    let (session, turn) = (run.session_id.to_owned(), run.turn_id.to_owned());
    BatchedLog::new(move |batch| {
        let entry = |call: &CallRecord| AuditEntry {
            at: call.at,
            kind: "scope-call",
            session: Some(session.clone()),
            turn: Some(turn.clone()),
            detail: call.to_json(),
        };
        store.audit_all(&batch.iter().map(entry).collect::<Vec<_>>()).map_err(|error| error.to_string())
    })
}

/// Every tool of the run switched on, and their names.
fn tools(
    run: &CompanionRun<'_>,
    store: &Arc<Store>,
    report: &Arc<LastReport>,
    asking: &Arc<Asking>,
    servers: &Connected,
) -> Result<(ToolSet, Vec<String>)> {
    let mut set = ToolSet::default();
    let notes = kit::Notes::kept(Arc::new(Shelf {
        store: Arc::clone(store),
        root: run.cwd.display().to_string(),
        turn: run.turn_id.to_owned(),
    }));
    for tool in notes.tools() {
        set.add(tool)?;
    }
    let wait = Duration::from_millis(run.scope.ask_timeout_ms);
    let mut names = Vec::new();
    for tool in &run.scope.tools {
        match tool {
            ScopeTool::SubmitReport => set.add(Arc::new(kit::SubmitReport(Arc::clone(report) as _)))?,
            ScopeTool::GetTask => set.add(Arc::new(kit::StoredText::task(run.prompt.to_owned())))?,
            ScopeTool::GetPreviousResult => {
                let answer = run.previous_answer(PREVIOUS)?;
                let answer = answer.unwrap_or_else(|| "There is none: this is the first run.".into());
                set.add(Arc::new(kit::StoredText::previous_result(answer)))?;
            }
            ScopeTool::RunCheck => set.add(Arc::new(checks(run)?))?,
            ScopeTool::Note | ScopeTool::Recall | ScopeTool::SearchNotes => {}
            ScopeTool::Progress => set.add(Arc::new(kit::Progress(Arc::new(Told(run.notices.clone())))))?,
            ScopeTool::AskSupervisor => set.add(Arc::new(kit::AskSupervisor {
                supervisor: Some(Arc::clone(asking) as _),
                wait,
                default_answer: run.scope.ask_default.clone(),
            }))?,
            ScopeTool::RequestApproval => {
                set.add(Arc::new(kit::RequestApproval { approver: Some(Arc::clone(asking) as _), wait }))?;
            }
            ScopeTool::Delegate => {
                let delegate = Arc::new(Another::of(run));
                let (depth, deepest) = (run.scope.depth, run.scope.max_depth);
                set.add(Arc::new(kit::DelegateTask::new(delegate, depth, deepest, DELEGATIONS)))?;
            }
        }
        set.allow(tool.as_str())?;
        names.push(tool.as_str().to_owned());
    }
    for tool in servers.tools() {
        let name = tool.name().to_owned();
        set.add(Arc::clone(tool))?;
        set.allow(&name)?;
        names.push(name);
    }
    Ok((set, names))
}

/// The environment of what runs beside the worker: as little as the worker's own, marked as the run's.
fn environment(
    run: &CompanionRun<'_>,
    pass: &[String],
    set: &BTreeMap<String, String>,
) -> BTreeMap<OsString, OsString> {
    let mut set = set.clone();
    set.insert(TURN_VAR.into(), process::mark_below(run.turn_id));
    process::worker_environment(run.context, pass, &set)
}

fn checks(run: &CompanionRun<'_>) -> Result<kit::RunCheck, ScopeError> {
    let env = environment(run, &[], &BTreeMap::new());
    let mut checks = Vec::new();
    for (name, check) in &run.scope.checks {
        let shown = usize::try_from(check.max_output_bytes).unwrap_or(usize::MAX);
        let made = Check::new(name, &check.argv, run.cwd, run.context, &env)?;
        checks.push(made.limited(Duration::from_secs(check.timeout_seconds), shown));
    }
    kit::RunCheck::new(checks, run.scope.longest_call())
}

fn upstream(run: &CompanionRun<'_>, name: &str, server: &ScopeServer) -> Result<Upstream> {
    let reach = match &server.transport {
        ScopeTransport::Command { command, args, env, pass_env } => {
            let resolved = process::resolve(Path::new(command), run.context)?;
            Reach::Program(Program {
                program: resolved.program,
                args: resolved.prefix_args.into_iter().chain(args.iter().map(OsString::from)).collect(),
                cwd: run.cwd.to_path_buf(),
                env: environment(run, pass_env, env),
                stdin: Vec::new(),
            })
        }
        ScopeTransport::Http { url, headers, header_env } => {
            let mut headers = headers.clone();
            for (header, variable) in header_env {
                let Some(value) = run.context.text_var(variable) else {
                    let why = format!("the variable {variable} for its header {header} is not set");
                    return Err(ScopeError::Upstream { server: name.to_owned(), why }.into());
                };
                headers.insert(header.clone(), value.to_owned());
            }
            Reach::Url { url: url.clone(), headers }
        }
    };
    Ok(Upstream { name: name.to_owned(), reach, tools: server.tools.clone() })
}

/// Notes of a folder, which its later runs find again.
struct Shelf {
    store: Arc<Store>,
    root: String,
    turn: String,
}

impl kit::NoteShelf for Shelf {
    fn all(&self) -> std::result::Result<BTreeMap<String, String>, String> {
        self.store.notes(&self.root).map_err(|error| error.to_string())
    }

    fn put(&self, key: &str, text: &str) -> std::result::Result<(), String> {
        self.store.put_note(&self.root, key, text, &self.turn).map_err(|error| error.to_string())
    }
}

/// A person who looks on sees what the worker does.
struct Told(Notices);

impl kit::ProgressSink for Told {
    fn show(&self, message: &str, percent: Option<usize>) {
        let percent = percent.map(|percent| format!("{percent} % ")).unwrap_or_default();
        self.0.activity(&format!("{percent}{message}"));
    }
}

/// Starts this program for another worker, in the same folder, with the same authority and one step deeper.
struct Another {
    context: Context,
    config: PathBuf,
    cwd: PathBuf,
    sandbox: Sandbox,
    turn: String,
}

impl Another {
    fn of(run: &CompanionRun<'_>) -> Self {
        Self {
            context: run.context.clone(),
            config: run.scope.config.clone(),
            cwd: run.cwd.to_path_buf(),
            sandbox: run.sandbox,
            turn: run.turn_id.to_owned(),
        }
    }

    fn program(&self, agent: AgentId, delegation: &kit::Delegation<'_>, within: Duration) -> Program {
        let seconds = within.as_secs().clamp(1, 7200).to_string();
        let mut args: Vec<OsString> = vec!["--config".into(), self.config.clone().into()];
        args.extend(["delegate", agent.as_str(), "--prompt-file", "-", "--cwd"].map(OsString::from));
        args.push(self.cwd.clone().into());
        args.extend(["--sandbox", self.sandbox.as_str(), "--timeout", &seconds].map(OsString::from));
        let mut env = self.context.env.clone();
        // As if the worker itself had asked: the new one is one deeper than who asks.
        env.insert(DEPTH_VAR.into(), delegation.depth.saturating_sub(1).to_string().into());
        env.insert(TURN_VAR.into(), process::mark_below(&self.turn).into());
        Program {
            program: self.context.exe.clone(),
            args,
            cwd: self.cwd.clone(),
            env,
            stdin: delegation.task.as_bytes().to_vec(),
        }
    }
}

impl kit::Delegate for Another {
    fn delegate(
        &self,
        _: &BoundRun,
        delegation: kit::Delegation<'_>,
        cancel: &Cancel,
        until: Instant,
    ) -> std::result::Result<String, String> {
        let known = || AgentId::ALL.map(AgentId::as_str).join(", ");
        let Some(agent) = delegation.agent else {
            return Err(format!("name the agent: one of {}", known()));
        };
        let agent = AgentId::parse(agent).ok_or_else(|| {
            format!("there is no agent {:?}; one of {}", redaction::clip(agent, 40), known())
        })?;
        let within = until.saturating_duration_since(Instant::now());
        let program = self.program(agent, &delegation, within);
        let mut reason = || cancel.reason().map(str::to_owned);
        let done = process::capture_while(&program, within, DELEGATED_GRACE, DELEGATED, &mut reason)
            .map_err(|error| error.to_string())?;
        match done.report.exit_code {
            Some(0) => Ok(done.stdout),
            code => {
                let said = redaction::one_line(&done.report.stderr_tail, 400);
                Err(format!(
                    "it ended with code {}: {said}",
                    code.map_or("none".into(), |code| code.to_string())
                ))
            }
        }
    }
}
