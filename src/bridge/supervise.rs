//! The supervisor: one small process a turn. It owns the worker from before it starts until its
//! whole tree is gone, decides the outcome, and writes it down, whatever becomes of the front door.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::json;

use super::companion::{self, Attached, Companion, CompanionRun, Notice, Notices};
use super::ending::{Ended, clean, judge, no_verdict, record, secret_values};
use super::errors::BridgeError;
use super::masked::Masked;
use super::observing::Observing;
use super::preflight::{Preflight, Readiness};
use super::run_folder::{self, RunFolder};
use super::run_scope::RunScope;
use super::run_spec::{RunEvent, RunSpec};
use super::start_spacing::StartSpacing;
use super::worker_launch::WorkerLaunch;
use super::{checks, plan, probe, reconcile};
use crate::agents::{self, Agent, Outcome, RunEnd, Verdict, redaction};
use crate::config::OnDisconnect;
use crate::context::Context;
use crate::error::Result;
use crate::platform::{self, LockFile};
use crate::process::{self, Limits, Program, RunIo};
use crate::store::{Attempt, Begin, BlobKind, Store, StoreError, TurnFilter, TurnState, session_lock_path};

/// How often another process's cancel request is looked for.
pub(super) const CANCEL_POLL: Duration = Duration::from_millis(100);
/// Least time between two activity records.
const ACTIVITY_SPACING: Duration = Duration::from_millis(500);
/// Longest event line.
const MAX_LINE: usize = 16 << 20;

/// Reads a [`RunSpec`] from standard input, runs it, and reports on standard output. `hold` is asked for the right
/// to run, which is kept to the end; if it refuses, the turn is refused.
/// `companion` opens the endpoint of a run that has one.
pub fn main<T>(context: &Context, hold: impl FnOnce() -> Result<T>, companion: &dyn Companion) -> Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|e| BridgeError::Supervisor(e.to_string()))?;
    let spec: RunSpec =
        serde_json::from_str(&line).map_err(|e| BridgeError::Supervisor(format!("bad run spec: {e}")))?;
    process::claim_all_children(&spec.turn.id);
    let front_door_gone = watch_standard_input();
    let mut events = Events;
    let supervised = hold().and_then(|held| {
        supervise(context, &spec, companion, &front_door_gone, &mut events)?;
        drop(held);
        Ok(())
    });
    match supervised {
        Ok(()) => Ok(()),
        Err(error) => {
            events.send(&RunEvent::Refused { error: error.to_json() });
            Err(error)
        }
    }
}

/// The front door holds the other end of our standard input for as long as it lives.
fn watch_standard_input() -> Arc<AtomicBool> {
    let gone = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&gone);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let _ = io::copy(&mut stdin, &mut io::sink());
        flag.store(true, Ordering::SeqCst);
    });
    gone
}

pub(super) struct Events;

impl Events {
    /// A front door that is gone is no reason to stop.
    fn send(&mut self, event: &RunEvent) {
        if let Ok(mut line) = serde_json::to_vec(event) {
            line.push(b'\n');
            let mut out = io::stdout().lock();
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    }
}

pub(super) fn supervise(
    context: &Context,
    spec: &RunSpec,
    companion: &dyn Companion,
    gone: &AtomicBool,
    events: &mut Events,
) -> Result<()> {
    let turn = &spec.turn;
    let store = Store::open(&spec.state_dir, context.clock)?;
    let agent = agents::require(turn.agent)?;
    let session_lock = match wait_for_session(&store, spec, gone)? {
        Session::Held(lock) => lock,
        Session::SameRequest(turn_id) => {
            events.send(&RunEvent::Same { turn_id });
            return Ok(());
        }
        Session::Busy => {
            return Err(StoreError::SessionBusy {
                session: turn.session_id.clone(),
                turn: running_turn(&store, spec),
            }
            .into());
        }
    };
    // A folder that changed already is refused before there is any record.
    plan::recheck_folder(&turn.cwd)?;
    let resolved = probe::resolve(agent, &spec.program, context)?;
    let mut launch = WorkerLaunch::new(spec);
    if spec.scope.is_some() {
        launch.announce(context, agent);
    }
    let program = launch.program(context, spec, &resolved);
    let attempt = Attempt {
        program: resolved.program.clone(),
        args: spec.launch.args.clone(),
        env_names: program.env.keys().map(|name| name.to_string_lossy().into_owned()).collect(),
        at: context.clock.now_ms(),
    };
    match begin(&store, spec, &attempt)? {
        Begin::Same(row) => {
            events.send(&RunEvent::Same { turn_id: row.id });
            return Ok(());
        }
        Begin::Started { index } => events.send(&RunEvent::Started { index }),
    }
    if let Some(ended) = login_fails(context, spec, &store, gone) {
        events.send(&record(spec, &store, ended));
        return Ok(());
    }
    // Before the wait for the agent's start, which others wait for as well.
    let observing = Observing::before(context, spec, &store, gone);
    let mut spacing = StartSpacing::wait(&store, spec, gone);
    let worker = Worker { context, spec, store: &store, agent, gone };
    // The last look before the worker starts, after everything that may take time.
    let mut folder = None;
    let prepared = plan::recheck_folder(&turn.cwd).and_then(|_| {
        let mut beside = None;
        let mut program = program;
        if let Some(scope) = &spec.scope {
            let secrets = secret_values(&program);
            let opened = beside.insert(open_beside(context, spec, scope, companion, &store, &secrets)?);
            launch.attach(agent, spec, &opened.attached)?;
            program = launch.program(context, spec, &resolved);
        }
        folder = launch.folder(context, spec, &store)?;
        Ok((program, beside))
    });
    let ran = prepared.is_ok();
    let mut ended = match prepared {
        Err(error) => Ended::before_start(&error),
        Ok((program, beside)) => worker.run(&program, beside, folder.as_ref(), &mut spacing, events),
    };
    if let Some(observing) = observing {
        observing.after();
    }
    if let Some(check) = spec.login.as_ref().filter(|_| ended.verdict.outcome == Outcome::Success) {
        // What is not written down is only asked again.
        let _ = Preflight::new(context, &spec.state_dir, check).note_success();
    }
    // After the look, since what they make is not the worker's.
    if ran {
        worker.check(&mut ended.verdict);
    }
    let finished = record(spec, &store, ended);
    drop(folder);
    events.send(&finished);
    drop(session_lock);
    spacing.outlast();
    Ok(())
}

/// Why the worker is not started, if its login does not work. Waits for the answer.
fn login_fails(context: &Context, spec: &RunSpec, store: &Store, gone: &AtomicBool) -> Option<Ended> {
    let check = spec.login.as_ref()?;
    let mut stop = || stop_reason(spec, store, gone);
    match Preflight::new(context, &spec.state_dir, check).ask(&mut stop) {
        Ok(Readiness::Ready) => None,
        Ok(Readiness::Refused(refused)) => Some(Ended::refused_login(&refused)),
        Ok(Readiness::Stopped(reason)) => Some(Ended::cancelled(reason)),
        Err(error) => Some(Ended::before_start(&error)),
    }
}

/// Why a turn is not wanted any more, if somebody said so.
fn stop_reason(spec: &RunSpec, store: &Store, gone: &AtomicBool) -> Option<String> {
    host_left(spec, gone).or_else(|| store.cancel_requested(&spec.turn.id).ok().flatten())
}

fn host_left(spec: &RunSpec, gone: &AtomicBool) -> Option<String> {
    let left = gone.load(Ordering::SeqCst) && spec.on_disconnect == OnDisconnect::Cancel;
    left.then(|| "the host went away".to_owned())
}

/// What runs beside a worker.
struct Beside {
    attached: Attached,
    /// What the endpoint tells.
    heard: Receiver<Notice>,
}

fn open_beside(
    context: &Context,
    spec: &RunSpec,
    scope: &RunScope,
    companion: &dyn Companion,
    store: &Store,
    secrets: &[String],
) -> Result<Beside> {
    let turn = &spec.turn;
    let (notices, heard) = Notices::channel();
    let run = CompanionRun {
        context,
        store,
        session_id: &turn.session_id,
        turn_id: &turn.id,
        cwd: &turn.cwd,
        sandbox: turn.sandbox,
        scope,
        prompt: &turn.prompt,
        secrets,
        notices,
    };
    Ok(Beside { attached: Attached::open(companion, &run)?, heard })
}

/// Records the turn as running. A turn of this session that still says so is dead, since we hold the
/// session's lock; one of another session may be, which its own lock tells.
fn begin(store: &Store, spec: &RunSpec, attempt: &Attempt) -> Result<Begin> {
    let again = match store.begin_turn(&spec.turn, attempt, spec.max_concurrent) {
        Err(StoreError::SessionBusy { turn, .. }) => {
            process::end_leftovers(&turn);
            store.mark_interrupted(&turn)?;
            run_folder::remove(store.state_dir(), &turn)?;
            store.begin_turn(&spec.turn, attempt, spec.max_concurrent)
        }
        Err(StoreError::TooManyTurns { .. }) => {
            reconcile::rows(store, store.running_turns()?.rows)?;
            store.begin_turn(&spec.turn, attempt, spec.max_concurrent)
        }
        other => other,
    };
    Ok(again?)
}

/// What came of the wait for a session.
enum Session {
    /// It is ours for as long as the lock lives.
    Held(LockFile),
    /// The turn that keeps it busy is the very one that was asked for.
    SameRequest(String),
    /// Another turn kept it for too long.
    Busy,
}

/// Waits for the session's lock, but not for longer than the front door lives.
fn wait_for_session(store: &Store, spec: &RunSpec, gone: &AtomicBool) -> Result<Session> {
    let path = session_lock_path(store.state_dir(), &spec.turn.session_id)?;
    let deadline = Instant::now() + Duration::from_millis(spec.lock_wait_ms);
    loop {
        if let Some(lock) = platform::try_exclusive(&path)? {
            return Ok(Session::Held(lock));
        }
        // A repeated call joins its turn now; it does not wait for the turn's end first.
        if let Some(key) = &spec.turn.idempotency_key
            && let Some(row) = store.turn_by_key(key)?
        {
            if row.request_sha256 != spec.turn.request_sha256 {
                return Err(StoreError::IdempotencyConflict { turn: row.id }.into());
            }
            return Ok(Session::SameRequest(row.id));
        }
        if Instant::now() >= deadline || gone.load(Ordering::SeqCst) {
            return Ok(Session::Busy);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The turn that holds the session, for the error; unknown if it ended a moment ago.
fn running_turn(store: &Store, spec: &RunSpec) -> String {
    let session = Some(spec.turn.session_id.clone());
    let filter = TurnFilter { state: Some(TurnState::Running), agent: None, session };
    let running = store.list_turns(&filter, 1, None).ok().and_then(|mut listed| listed.rows.pop());
    running.map_or_else(|| "(just ended)".to_owned(), |turn| turn.id)
}

/// One worker, from its start to the end of its tree.
struct Worker<'a> {
    context: &'a Context,
    spec: &'a RunSpec,
    store: &'a Store,
    agent: &'a dyn Agent,
    gone: &'a AtomicBool,
}

impl Worker<'_> {
    fn run(
        &self,
        program: &Program,
        beside: Option<Beside>,
        folder: Option<&RunFolder>,
        spacing: &mut StartSpacing,
        events: &mut Events,
    ) -> Ended {
        let Self { spec, store, agent, gone, .. } = *self;
        let turn = &spec.turn;
        let secrets = secret_values(program);
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let mut parser = agent.parser(turn.resume.as_deref());
        parser.servers(spec.servers);
        parser.authority(turn.sandbox);
        if spec.report {
            parser.expects_report();
        }
        let mut parser = Some(parser);
        let mut activity = ActivityRecord { store, turn: &turn.id, events, last: None, pending: None };
        let mut next_poll = Instant::now();
        let limits = Limits {
            start: spec.start_ms.map(Duration::from_millis),
            idle: spec.idle_ms.map(Duration::from_millis),
            run: Duration::from_millis(turn.timeout_ms),
            grace: Duration::from_secs(3),
            drain: Duration::from_secs(2),
            max_line: MAX_LINE,
            max_output: spec.max_output,
            stderr_tail: 16 << 10,
        };
        let result = {
            // Both streams are read into it, one line at a time.
            let parser = std::cell::RefCell::new(&mut parser);
            let activity = std::cell::RefCell::new(&mut activity);
            let mut on_started = |_pid: u32| spacing.started();
            let mut on_error_line = |line: &[u8]| {
                let mut parser = parser.borrow_mut();
                let parser = parser.as_mut()?;
                parser.error_line(line);
                parser.fatal().map(str::to_owned)
            };
            let mut on_line = |line: &[u8]| {
                let mut parser = parser.borrow_mut();
                let parser = parser.as_mut()?;
                if beside.as_ref().is_some_and(|beside| beside.attached.was_listed()) {
                    parser.endpoint_asked();
                }
                if let Some(shown) = parser.line(line) {
                    activity.borrow_mut().show(redaction::redact_values(&shown.line, &secrets));
                }
                parser.fatal().map(str::to_owned)
            };
            let mut on_tick = |_elapsed: Duration| {
                for notice in beside.iter().flat_map(|beside| beside.heard.try_iter()) {
                    match notice {
                        Notice::Activity(line) => {
                            activity.borrow_mut().show(redaction::redact_values(&line, &secrets));
                        }
                        Notice::Asked => activity.borrow_mut().events.send(&RunEvent::Asked),
                    }
                }
                activity.borrow_mut().flush();
                if Instant::now() < next_poll {
                    return host_left(spec, gone);
                }
                next_poll = Instant::now() + CANCEL_POLL;
                stop_reason(spec, store, gone)
            };
            let captured = |kind| -> Option<Box<dyn Write>> {
                let file = store.blobs().create(&turn.id, kind).ok()?;
                Some(Box::new(Masked::new(file, &secrets)))
            };
            // The last look before anything starts, after every wait: the folder must still be the one that
            // was checked.
            plan::recheck_folder(&turn.cwd).and_then(|_| {
                let io = RunIo {
                    stdout_file: captured(BlobKind::Stdout),
                    stderr_file: captured(BlobKind::Stderr),
                    on_started: &mut on_started,
                    on_line: &mut on_line,
                    on_error_line: &mut on_error_line,
                    on_tick: &mut on_tick,
                };
                Ok(process::run(program, &limits, agent.polite_stop(), io)?)
            })
        };
        // The worker and all that it started are gone: nobody may call any more.
        let scoped = beside.map(|Beside { attached, .. }| {
            let tools = attached.endpoint.tools.clone();
            (attached.close(), tools)
        });
        let parser = parser.take();
        match result {
            Ok(report) => {
                let log_tail = folder.map(RunFolder::log_tail).unwrap_or_default();
                let end = RunEnd {
                    exit_code: report.exit_code,
                    signal: report.signal,
                    stderr_tail: &report.stderr_tail,
                    stdout_bytes: report.stdout_bytes,
                    log_tail: &log_tail,
                };
                let mut verdict =
                    parser.map_or_else(|| no_verdict("no parser"), |parser| parser.finish(&end));
                if let Some((end, tools)) = scoped {
                    companion::note(end, &tools, &mut verdict);
                }
                companion::bound_structured(&mut verdict);
                let (verdict, code) = judge(verdict, &report);
                Ended { verdict: clean(verdict, &secrets), code, report }
            }
            Err(error) => {
                let ended = Ended::before_start(&error);
                Ended { verdict: clean(ended.verdict, &secrets), ..ended }
            }
        }
    }
}

impl Worker<'_> {
    /// Runs the checks that were asked for, unless the turn was cancelled or nobody waits for it any more.
    fn check(&self, verdict: &mut Verdict) {
        let Self { spec, store, gone, .. } = *self;
        if spec.checks.is_empty() || verdict.outcome == Outcome::Cancelled {
            return;
        }
        let mut set = BTreeMap::new();
        set.insert(process::TURN_VAR.to_owned(), process::mark_below(&spec.turn.id));
        let env = process::worker_environment(self.context, &[], &set);
        let mut cancelled = || {
            if gone.load(Ordering::SeqCst) && spec.on_disconnect == OnDisconnect::Cancel {
                return Some("the host went away".to_owned());
            }
            store.cancel_requested(&spec.turn.id).ok().flatten()
        };
        let results = checks::run(self.context, &spec.checks, &spec.turn.cwd, &env, &mut cancelled);
        verdict.meta["checks"] = json!(results);
    }
}

/// Shows activity at once and records it at most twice a second.
struct ActivityRecord<'a> {
    store: &'a Store,
    turn: &'a str,
    events: &'a mut Events,
    last: Option<Instant>,
    pending: Option<String>,
}

impl ActivityRecord<'_> {
    fn show(&mut self, line: String) {
        self.pending = Some(line);
        self.flush();
    }

    fn flush(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() < ACTIVITY_SPACING) {
            return;
        }
        if let Some(line) = self.pending.take() {
            self.last = Some(Instant::now());
            self.events.send(&RunEvent::Activity { line: line.clone() });
            // A progress line is worth no failure.
            let _ = self.store.set_activity(self.turn, &line);
        }
    }
}
