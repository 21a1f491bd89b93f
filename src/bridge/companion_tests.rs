//! The order of things around a worker with an endpoint, on every way that a run can go.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::run_spec::RunSpec;
use super::super::supervise::{Events, supervise};
use super::super::usage::KnownTotals;
use super::*;
use crate::agents::{Launch, ServerRule};
use crate::config::tests::World;
use crate::config::{OnDisconnect, ScopeTool};
use crate::policy::AgentId;
use crate::store::{Continuity, NewTurn, TurnRow};

/// No endpoint can be opened: runs that need one end before they start.
struct Unavailable;

impl Companion for Unavailable {
    fn open(&self, _run: &CompanionRun<'_>) -> Result<Box<dyn OpenCompanion>> {
        Err(BridgeError::ScopeUnavailable("this build cannot open one".into()).into())
    }
}

pub(in crate::bridge) const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const DEADLINE: Duration = Duration::from_secs(30);

/// What the fake does instead of working.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    OpenRefuses,
    OpenPanics,
    TokenPanics,
    ClosePanics,
}

/// A companion that writes down what happened, and what it saw then.
struct Fake {
    fault: Fault,
    report: Option<Value>,
    seen: Arc<Mutex<Vec<String>>>,
}

struct FakeOpen {
    fault: Fault,
    report: Option<Value>,
    seen: Arc<Mutex<Vec<String>>>,
    state: std::path::PathBuf,
    context: Context,
    turn: String,
    pid_file: std::path::PathBuf,
}

impl Companion for Fake {
    fn open(&self, run: &CompanionRun<'_>) -> Result<Box<dyn OpenCompanion>> {
        let row = run.store.turn(run.turn_id)?;
        let started = run.cwd.join("pid").exists();
        self.seen.lock().unwrap().push(format!("open {:?} started={started}", row.state).to_lowercase());
        run.notices.activity("the endpoint is open");
        match self.fault {
            Fault::OpenRefuses => Err(BridgeError::ScopeUnavailable("no port".into()).into()),
            Fault::OpenPanics => panic!("open went wrong"),
            fault => Ok(Box::new(FakeOpen {
                fault,
                report: self.report.clone(),
                seen: Arc::clone(&self.seen),
                state: run.store.state_dir().to_owned(),
                context: run.context.clone(),
                turn: run.turn_id.to_owned(),
                pid_file: run.cwd.join("pid"),
            })),
        }
    }
}

impl OpenCompanion for FakeOpen {
    fn url(&self) -> String {
        "http://127.0.0.1:9/mcp".into()
    }

    fn token(&self) -> String {
        if self.fault == Fault::TokenPanics {
            panic!("no token");
        }
        TOKEN.into()
    }

    fn tools(&self) -> Vec<String> {
        vec!["note".into()]
    }

    fn was_listed(&self) -> bool {
        false
    }

    fn close(self: Box<Self>) -> CompanionEnd {
        let store = Store::open(&self.state, self.context.clock).unwrap();
        let state = store.turn(&self.turn).unwrap().state;
        let alive = std::fs::read_to_string(&self.pid_file)
            .is_ok_and(|pid| Path::new("/proc").join(pid.trim()).join("fd").read_dir().is_ok());
        self.seen.lock().unwrap().push(format!("close {state:?} alive={alive}").to_lowercase());
        if self.fault == Fault::ClosePanics {
            panic!("close went wrong");
        }
        CompanionEnd { report: self.report.clone(), listed: true, calls: 3, refused: 1, unrecorded: None }
    }
}

/// One run of a shell script as the worker, in a world of its own.
pub(in crate::bridge) struct Run {
    pub(in crate::bridge) world: World,
    pub(in crate::bridge) spec: RunSpec,
    fake: Fake,
}

impl Run {
    pub(in crate::bridge) fn new(script: &str) -> Self {
        let world = World::new();
        let cwd = world.at("work");
        let turn = NewTurn {
            id: uuid::Uuid::new_v4().to_string(),
            session_id: uuid::Uuid::new_v4().to_string(),
            new_session: true,
            title: "a run".into(),
            cwd,
            expected_revision: 0,
            agent: AgentId::Mock,
            model: None,
            sandbox: Sandbox::ReadOnly,
            continuity: Continuity::New,
            cross_agent_context: false,
            resume: None,
            prompt: "the task".into(),
            outbound_sha256: String::new(),
            idempotency_key: None,
            request_sha256: String::new(),
            requested_by: "test".into(),
            started_at: world.context.clock.now_ms(),
            timeout_ms: 60_000,
        };
        let scope = RunScope {
            tools: vec![ScopeTool::Note],
            checks: Default::default(),
            servers: Default::default(),
            ask_timeout_ms: 1000,
            ask_default: String::new(),
            config: std::path::PathBuf::new(),
            depth: 1,
            max_depth: 1,
        };
        let spec = RunSpec {
            state_dir: world.at("home/state"),
            turn,
            outbound: "the task".into(),
            program: "/bin/sh".into(),
            launch: Launch { args: ["-c", script, "sh"].map(String::from).to_vec(), ..Launch::default() },
            report: false,
            login: None,
            totals: KnownTotals::default(),
            start_ms: None,
            idle_ms: None,
            max_output: 1 << 20,
            lock_wait_ms: 0,
            max_concurrent: 4,
            start_spacing_ms: 0,
            on_disconnect: OnDisconnect::Cancel,
            scope: Some(scope),
            servers: ServerRule::Only,
            observe: false,
            observe_ms: 10_000,
            isolated: None,
            checks: Default::default(),
        };
        let fake = Fake { fault: Fault::Nothing, report: None, seen: Arc::default() };
        Self { world, spec, fake }
    }

    fn fault(mut self, fault: Fault) -> Self {
        self.fake.fault = fault;
        self
    }

    fn report(mut self, report: Value) -> Self {
        self.fake.report = Some(report);
        self
    }

    pub(in crate::bridge) fn store(&self) -> Store {
        Store::open(&self.spec.state_dir, self.world.context.clock).unwrap()
    }

    /// Runs it to its end and gives its record.
    pub(in crate::bridge) fn go(&self) -> TurnRow {
        self.go_beside(&AtomicBool::new(false))
    }

    fn go_beside(&self, gone: &AtomicBool) -> TurnRow {
        supervise(&self.world.context, &self.spec, &self.fake, gone, &mut Events).unwrap();
        self.store().turn(&self.spec.turn.id).unwrap()
    }

    fn seen(&self) -> Vec<String> {
        self.fake.seen.lock().unwrap().clone()
    }

    /// Waits until the worker runs, in another thread than the run's.
    fn wait_for_worker(&self) {
        let until = Instant::now() + DEADLINE;
        while std::fs::read_to_string(self.spec.turn.cwd.join("pid")).map_or(true, |pid| !pid.ends_with('\n'))
        {
            assert!(Instant::now() < until, "the worker never started");
            std::thread::yield_now();
        }
    }

    /// Nothing in the state folder holds the token.
    fn assert_no_token(&self) {
        fn walk(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    walk(&path, found);
                } else if std::fs::read(&path)
                    .unwrap()
                    .windows(TOKEN.len())
                    .any(|part| part == TOKEN.as_bytes())
                {
                    found.push(path);
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.spec.state_dir, &mut found);
        assert_eq!(found, [] as [std::path::PathBuf; 0]);
    }
}

/// A well-ended answer in the stand-in's event stream, with what the worker found in its environment.
pub(in crate::bridge) const ANSWER: &str = r#"echo $$ > pid
printf '{"type":"thread.started","thread_id":"01a22da4-c4d5-7380-a8a6-b574a17c03d0"}\n{"type":"turn.started"}\n'
printf '{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"%s"}}\n' "$*|$NO_PROXY|$AGENT_BRIDGE_SCOPE"
printf '{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}\n'"#;
const HANGS: &str = "echo $$ > pid; exec sleep 600";
const IN_ORDER: [&str; 2] = ["open running started=false", "close running alive=false"];

fn end(row: &TurnRow) -> &crate::store::TurnEnd {
    row.end.as_ref().unwrap()
}

#[test]
fn it_opens_before_the_worker_and_closes_after_it_and_before_the_record() {
    let run = Run::new(ANSWER).report(json!({ "outcome": "done", "summary": format!("see {TOKEN}") }));
    let row = run.go();
    assert_eq!(run.seen(), IN_ORDER);
    let end = end(&row);
    assert_eq!((end.outcome, end.code.as_deref()), (Outcome::Success, None), "{end:?}");
    assert_eq!(end.meta["scope"], json!({ "tools": ["note"], "calls": 3, "refused": 1 }));
    assert_eq!(end.meta["report"], json!({ "outcome": "done", "summary": "see [redacted]" }));
    let answer = run.store().blobs().read_page(&row.id, BlobKind::Answer, 0, 1000).unwrap().text;
    assert_eq!(answer, "--endpoint http://127.0.0.1:9/mcp|127.0.0.1,localhost,::1|[redacted]");
    run.assert_no_token();
}

#[test]
fn the_record_names_the_variable_and_not_its_value() {
    let run = Run::new(ANSWER);
    run.go();
    let attempt = run.store().attempt(&run.spec.turn.id).unwrap().unwrap();
    let names = &attempt.env_names;
    assert!(
        ["AGENT_BRIDGE_SCOPE", "NO_PROXY"].iter().all(|name| names.iter().any(|n| n == name)),
        "{names:?}"
    );
    assert_eq!(attempt.args, run.spec.launch.args);
}

#[test]
fn a_report_is_an_answer_where_the_words_are_missing() {
    let silent = ANSWER.replace("$*|$NO_PROXY|$AGENT_BRIDGE_SCOPE", "");
    let without = Run::new(&silent).go();
    assert_eq!(end(&without).outcome, Outcome::Empty);
    let with = Run::new(&silent).report(json!({ "outcome": "done" })).go();
    assert_eq!((end(&with).outcome, &end(&with).detail), (Outcome::Success, &None));
}

#[test]
fn without_a_scope_nothing_is_opened() {
    let mut run = Run::new(ANSWER);
    run.spec.scope = None;
    let row = run.go();
    assert_eq!(run.seen(), [] as [&str; 0]);
    assert!(end(&row).meta.get("scope").is_none());
    let answer = run.store().blobs().read_page(&row.id, BlobKind::Answer, 0, 1000).unwrap().text;
    assert_eq!(answer, "||", "neither arguments nor variables");
}

#[test]
fn it_is_closed_when_the_worker_is_killed() {
    let run = Run::new("echo $$ > pid; kill -9 $$");
    let row = run.go();
    assert_eq!(run.seen(), IN_ORDER);
    assert_eq!((end(&row).outcome, end(&row).signal), (Outcome::WorkerError, Some(9)));
}

#[test]
fn it_is_closed_when_the_run_is_cancelled() {
    let run = Run::new(HANGS);
    let row = std::thread::scope(|threads| {
        threads.spawn(|| {
            run.wait_for_worker();
            run.store().request_cancel(&run.spec.turn.id, "enough").unwrap();
        });
        run.go()
    });
    assert_eq!(run.seen(), IN_ORDER);
    assert_eq!(end(&row).outcome, Outcome::Cancelled);
    assert_eq!(end(&row).meta["scope"]["calls"], 3);
}

#[test]
fn it_is_closed_when_the_host_goes_away() {
    let run = Run::new(HANGS);
    let gone = AtomicBool::new(false);
    let row = std::thread::scope(|threads| {
        threads.spawn(|| {
            run.wait_for_worker();
            gone.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        run.go_beside(&gone)
    });
    assert_eq!((run.seen(), end(&row).outcome), (IN_ORDER.map(str::to_owned).to_vec(), Outcome::Cancelled));
}

#[test]
fn it_is_closed_at_a_deadline() {
    let mut run = Run::new(HANGS);
    run.spec.turn.timeout_ms = 300;
    let row = run.go();
    assert_eq!(run.seen(), IN_ORDER);
    assert_eq!(end(&row).code.as_deref(), Some("TURN_RUN_DEADLINE"));
}

#[test]
fn it_is_closed_when_the_worker_cannot_be_started() {
    let mut run = Run::new("");
    // Longer than any system lets an argument be.
    run.spec.launch.args.push("x".repeat(4 << 20));
    let row = run.go();
    assert_eq!(run.seen(), IN_ORDER);
    assert!(end(&row).code.is_some() && end(&row).outcome == Outcome::WorkerError, "{row:?}");
}

#[test]
fn it_is_closed_when_the_worker_is_ended_for_a_foreign_server() {
    let call = r#"echo $$ > pid
printf '{"type":"thread.started","thread_id":"01a22da4-c4d5-7380-a8a6-b574a17c03d0"}\n'
printf '{"type":"item.started","item":{"type":"mcp_tool_call","server":"docs","tool":"x"}}\n'; exec sleep 600"#;
    let run = Run::new(call);
    let row = run.go();
    assert_eq!(run.seen(), IN_ORDER);
    let facts = (end(&row).outcome, end(&row).code.as_deref());
    assert_eq!(facts, (Outcome::WorkerError, Some("WORKER_TOOLS_FOREIGN")), "{row:?}");
}

#[test]
fn what_cannot_be_opened_ends_the_turn_before_the_worker() {
    for fault in [Fault::OpenRefuses, Fault::OpenPanics] {
        let run = Run::new(ANSWER).fault(fault);
        let row = run.go();
        assert_eq!(run.seen(), IN_ORDER[..1]);
        assert_eq!(end(&row).code.as_deref(), Some("SCOPE_UNAVAILABLE"), "{row:?}");
        assert!(end(&row).detail.as_ref().unwrap().contains(match fault {
            Fault::OpenPanics => "open went wrong",
            _ => "no port",
        }));
        assert!(!run.spec.turn.cwd.join("pid").exists(), "no worker was started");
    }
}

#[test]
fn what_opened_is_closed_though_its_token_cannot_be_had() {
    let run = Run::new(ANSWER).fault(Fault::TokenPanics);
    let row = run.go();
    assert_eq!(run.seen(), IN_ORDER);
    assert_eq!(end(&row).code.as_deref(), Some("SCOPE_UNAVAILABLE"));
    assert!(!run.spec.turn.cwd.join("pid").exists(), "no worker was started");
}

#[test]
fn a_panic_in_closing_loses_no_answer() {
    let run = Run::new(ANSWER).fault(Fault::ClosePanics);
    let row = run.go();
    assert_eq!(run.seen(), IN_ORDER);
    assert_eq!(end(&row).outcome, Outcome::Success);
    assert_eq!(end(&row).meta["scope"]["closingFailed"], "close went wrong");
}

#[test]
fn a_panic_of_the_supervisor_closes_it_too() {
    let run = Run::new(ANSWER);
    let store = run.store();
    supervise(&run.world.context, &run.spec, &Unavailable, &AtomicBool::new(false), &mut Events).unwrap();
    let (notices, _heard) = Notices::channel();
    let companion_run = CompanionRun {
        context: &run.world.context,
        store: &store,
        session_id: &run.spec.turn.session_id,
        turn_id: &run.spec.turn.id,
        cwd: &run.spec.turn.cwd,
        sandbox: Sandbox::ReadOnly,
        scope: run.spec.scope.as_ref().unwrap(),
        prompt: "",
        secrets: &[],
        notices,
    };
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _attached = Attached::open(&run.fake, &companion_run).unwrap();
        panic!("somewhere in between");
    }));
    assert!(unwound.is_err());
    assert_eq!(run.seen().len(), 2, "{:?}", run.seen());
}

#[test]
fn the_placeholder_refuses_by_code() {
    let run = Run::new(ANSWER);
    supervise(&run.world.context, &run.spec, &Unavailable, &AtomicBool::new(false), &mut Events).unwrap();
    let row = run.store().turn(&run.spec.turn.id).unwrap();
    assert_eq!(end(&row).code.as_deref(), Some("SCOPE_UNAVAILABLE"));
}

#[test]
fn the_answer_before_is_the_last_finished_one() {
    let run = Run::new(ANSWER);
    let row = run.go();
    let store = run.store();
    let (notices, _heard) = Notices::channel();
    let next = CompanionRun {
        context: &run.world.context,
        store: &store,
        session_id: &row.session_id,
        turn_id: "another",
        cwd: &run.spec.turn.cwd,
        sandbox: Sandbox::ReadOnly,
        scope: run.spec.scope.as_ref().unwrap(),
        prompt: "",
        secrets: &[],
        notices,
    };
    assert_eq!(next.previous_answer(10).unwrap().as_deref(), Some("--endpoint"));
    let own = CompanionRun { turn_id: &row.id, notices: next.notices.clone(), ..next };
    assert_eq!(own.previous_answer(10).unwrap(), None);
}

#[test]
fn a_report_of_any_size_is_bounded_and_a_small_one_is_left_alone() {
    let small = json!({ "summary": "short", "files": [] });
    assert_eq!(bounded(&small, 1000), small);
    let file = json!({ "path": "p".repeat(900), "note": "é".repeat(400) });
    let large = json!({ "summary": "s".repeat(2000), "files": vec![file; 500], "outcome": "done" });
    for room in [64 << 10, 3000, 1000] {
        let cut = bounded(&large, room);
        assert!(
            cut.to_string().len() <= room && cut["outcome"] == "done",
            "{room}: {}",
            cut.to_string().len()
        );
    }
    let deep = (0..200).fold(json!("x".repeat(5000)), |inner, _| json!([inner, "y".repeat(500)]));
    assert!(bounded(&deep, 3000).to_string().len() <= 3000);
}
