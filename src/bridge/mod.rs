//! The use cases of a turn: plan it, run it, wait for it, cancel it, look at it.
//!
//! A turn runs in a supervisor process of its own ([`supervise`]); a front door holds the other end
//! of the supervisor's standard input while it lives and otherwise only waits.

mod asking;
pub mod catalogue;
pub mod checks;
mod cli_version;
pub mod companion;
pub mod context_block;
mod continuity;
mod ending;
pub mod errors;
pub mod health;
mod inherited;
mod masked;
mod observing;
pub mod plan;
pub mod preflight;
mod probe;
pub mod questions;
mod reconcile;
mod run_folder;
pub mod run_scope;
pub mod run_spec;
mod start_spacing;
pub mod supervise;
pub mod turn_endpoint;
pub mod usage;
pub mod view;
mod waiting;
mod worker_launch;

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::watch;

pub use errors::BridgeError;
pub use plan::{TurnPlan, TurnRequest};
pub use reconcile::rows as reconcile_rows;
pub use view::{TurnView, WaitedTurn};

use crate::agents::{self, redaction};
use crate::config::Config;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::policy::AgentId;
use crate::store::{CancelRequest, Store, TurnEnd, TurnRow, TurnState};
use crate::{platform, process};
use cli_version::CliVersions;
use health::HealthCache;
use preflight::{LoginCheck, Preflight, Readiness};
use run_spec::{RunEvent, RunSpec, Unrecorded};

/// How often a plan may be outrun by another turn of the same session.
const REPLANS: usize = 4;

/// Everything a front door needs to work with turns. Cheap to clone.
#[derive(Clone)]
pub struct Bridge {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    config: Config,
    store: Mutex<Option<Arc<Store>>>,
    live: Mutex<HashMap<String, LiveTurn>>,
    health: HealthCache,
    versions: CliVersions,
}

/// A turn whose supervisor this process started.
#[derive(Clone)]
struct LiveTurn {
    progress: watch::Receiver<Progress>,
    started: Instant,
    /// Closing it tells the supervisor that we are gone.
    _liveness: Arc<ChildStdin>,
}

/// What is known of a live turn.
#[derive(Clone, Debug, Default)]
struct Progress {
    activity: Option<String>,
    /// How many questions the worker has asked.
    asked: u64,
    finished: Option<Finished>,
    /// The supervisor is gone.
    closed: bool,
}

#[derive(Clone, Debug)]
struct Finished {
    end: TurnEnd,
    unrecorded: Option<Unrecorded>,
}

/// A turn that has been started, or found again by its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Turn id.
    pub turn_id: String,
    /// Session id.
    pub session_id: String,
    /// Position in the session.
    pub index: u64,
    /// It existed before; nothing was started.
    pub repeated: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bridge {
    /// No side effects: the state folder is opened by the first call that needs it.
    pub fn new(context: Context, config: Config) -> Self {
        Self {
            inner: Arc::new(Inner {
                context,
                config,
                store: Mutex::new(None),
                live: Mutex::new(HashMap::new()),
                health: HealthCache::default(),
                versions: CliVersions::default(),
            }),
        }
    }

    /// The effective configuration.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The world around this process.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The agents' health, as last probed.
    pub fn health(&self) -> &HealthCache {
        &self.inner.health
    }

    /// Runs `work` with the store, which is opened (and created) on first use.
    pub async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let bridge = self.clone();
        blocking(move || {
            let store = bridge.store()?;
            work(&store)
        })
        .await
    }

    fn store(&self) -> Result<Arc<Store>> {
        let mut slot = lock(&self.inner.store);
        if let Some(store) = slot.as_ref() {
            return Ok(Arc::clone(store));
        }
        let folder = &self.inner.config.state_dir;
        let store = Arc::new(Store::open(folder, self.inner.context.clock)?);
        // Without working locks a running turn could not be told from a dead one.
        platform::require_locks(folder)?;
        *slot = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Plans and starts a turn. Returns when its record exists, not when it ends.
    pub async fn start(&self, request: TurnRequest) -> Result<Started> {
        if let Some(key) = request.idempotency_key.clone()
            && let Some(row) = self.with_store(move |store| Ok(store.turn_by_key(&key)?)).await?
        {
            return plan::same_request(&request, row);
        }
        for _ in 0..REPLANS {
            let plan = self.plan(request.clone()).await?;
            let pinned = plan.pinned;
            match self.launch(plan).await {
                Err(error) if error.code() == "SESSION_REVISION_MISMATCH" && !pinned => {}
                other => return other,
            }
        }
        let plan = self.plan(request).await?;
        self.launch(plan).await
    }

    /// The plan that [`Self::start`] would run. Writes nothing.
    pub async fn plan(&self, request: TurnRequest) -> Result<TurnPlan> {
        let bridge = self.clone();
        self.with_store(move |store| {
            let inner = &bridge.inner;
            if let Some(id) = &request.session_id {
                let running = store.list_turns(
                    &crate::store::TurnFilter {
                        state: Some(TurnState::Running),
                        agent: None,
                        session: Some(id.clone()),
                    },
                    1,
                    None,
                )?;
                reconcile::rows(store, running.rows)?;
            }
            plan::plan(&inner.context, &inner.config, Some(store), &inner.versions, &request)
        })
        .await
    }

    /// Whether an agent's login works, for agents that are asked before each run; ready at once for all others.
    /// Takes up to a minute.
    ///
    /// # Errors
    /// If there is no such agent, its program cannot be started, or the state folder cannot be written.
    pub async fn preflight(&self, agent: AgentId) -> Result<Readiness> {
        self.ask_login(agent, |preflight| preflight.ask(&mut || None)).await
    }

    /// The same after a run of it was ended for a login prompt. `tool_ran`: the run had done something.
    ///
    /// # Errors
    /// As [`Self::preflight`].
    pub async fn preflight_again(&self, agent: AgentId, tool_ran: bool) -> Result<Readiness> {
        self.ask_login(agent, move |preflight| preflight.ask_again(tool_ran, &mut || None)).await
    }

    async fn ask_login(
        &self,
        agent: AgentId,
        ask: impl FnOnce(&Preflight<'_>) -> Result<Readiness> + Send + 'static,
    ) -> Result<Readiness> {
        let bridge = self.clone();
        blocking(move || {
            // It is made if it does not exist yet.
            bridge.store()?;
            let Inner { context, config, versions, .. } = &*bridge.inner;
            let adapter = agents::require(agent)?;
            let Some(settings) = config.agents.get(&agent) else { return Ok(Readiness::Ready) };
            let version = versions.of(context, config, adapter, settings);
            match LoginCheck::of(context, adapter, settings, version.as_deref()) {
                Some(check) => ask(&Preflight::new(context, &config.state_dir, &check)),
                None => Ok(Readiness::Ready),
            }
        })
        .await
    }

    async fn launch(&self, plan: TurnPlan) -> Result<Started> {
        let config = &self.inner.config;
        let settings = config.agents.get(&plan.turn.agent);
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let turn_id = plan.turn.id.clone();
        let session_id = plan.turn.session_id.clone();
        let spec = RunSpec {
            state_dir: config.state_dir.clone(),
            turn: plan.turn,
            outbound: plan.outbound,
            program: plan.program,
            launch: plan.launch,
            report: plan.report,
            login: plan.login,
            totals: plan.totals,
            start_ms: config.defaults.start_timeout.map(millis),
            idle_ms: config.defaults.idle_timeout.map(millis),
            max_output: config.max_output_bytes,
            lock_wait_ms: millis(config.session_lock_wait),
            max_concurrent: config.max_concurrent_turns,
            start_spacing_ms: settings.map_or(0, |settings| millis(settings.start_spacing)),
            on_disconnect: plan.on_disconnect,
            scope: plan.scope,
            servers: plan.servers,
            checks: plan.checks,
            observe: plan.observe,
            observe_ms: millis(config.relay.observe),
            isolated: plan.isolated,
        };
        let failed = |reason: String| Error::from(BridgeError::Supervisor(reason));
        let mut line = serde_json::to_vec(&spec).map_err(|e| failed(e.to_string()))?;
        line.push(b'\n');

        let mut command = Command::new(&self.inner.context.exe);
        command
            .arg("run-turn")
            .env_clear()
            .envs(&self.inner.context.env)
            .current_dir(&config.state_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        process::detach_from_host(command.as_std_mut());
        let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("it has no pipes".into()));
        };
        // The supervisor reads its whole spec before it says anything; if it is gone already, the
        // missing first event tells.
        let _ = stdin.write_all(&line).await;
        let _ = stdin.flush().await;
        let mut lines = BufReader::new(stdout).lines();
        let first = lines.next_line().await.ok().flatten();
        let event = first.as_deref().and_then(|text| serde_json::from_str::<RunEvent>(text).ok());
        let index = match event {
            Some(RunEvent::Started { index }) => index,
            Some(RunEvent::Refused { error }) => {
                let _ = child.wait().await;
                return Err(catalogue::error_from_json(&error));
            }
            Some(RunEvent::Same { turn_id }) => {
                let _ = child.wait().await;
                let row = self.with_store(move |store| Ok(store.turn(&turn_id)?)).await?;
                return Ok(Started {
                    turn_id: row.id,
                    session_id: row.session_id,
                    index: row.index,
                    repeated: true,
                });
            }
            _ => {
                let status = child.wait().await.map_err(|e| failed(e.to_string()))?;
                let said = last_words(child.stderr.take()).await;
                return Err(failed(format!("it ended with {status} before it started the turn{said}")));
            }
        };
        let (sender, progress) = watch::channel(Progress::default());
        let live = LiveTurn { progress, started: Instant::now(), _liveness: Arc::new(stdin) };
        lock(&self.inner.live).insert(turn_id.clone(), live);
        let bridge = self.clone();
        let id = turn_id.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                match serde_json::from_str(&line) {
                    Ok(RunEvent::Activity { line }) => {
                        sender.send_modify(|progress| progress.activity = Some(line));
                    }
                    Ok(RunEvent::Asked) => sender.send_modify(|progress| progress.asked += 1),
                    Ok(RunEvent::Finished { end, unrecorded, .. }) => {
                        sender.send_modify(|p| p.finished = Some(Finished { end: *end, unrecorded }));
                    }
                    _ => {}
                }
            }
            sender.send_modify(|progress| progress.closed = true);
            let _ = child.wait().await;
            // An end that is only in memory stays there for whoever asks later.
            if sender.borrow().finished.as_ref().is_none_or(|finished| finished.unrecorded.is_none()) {
                lock(&bridge.inner.live).remove(&id);
            }
        });
        Ok(Started { turn_id, session_id, index, repeated: false })
    }

    /// A turn as it stands; one whose supervisor has died is marked as interrupted first.
    pub async fn turn(&self, turn_id: &str) -> Result<TurnRow> {
        let id = turn_id.to_owned();
        self.with_store(move |store| {
            let row = store.turn(&id)?;
            Ok(match reconcile::rows(store, vec![row])?.pop() {
                Some(row) => row,
                None => store.turn(&id)?,
            })
        })
        .await
    }

    /// Marks every running turn whose supervisor has died as interrupted, before a list is shown. Where
    /// nothing can be written there is still something to read.
    pub async fn reconcile(&self) -> Result<()> {
        self.with_store(|store| {
            let running = store.running_turns()?;
            match reconcile::rows(store, running.rows) {
                Err(error) if !["STORE_FULL", "STORE_UNWRITABLE"].contains(&error.code()) => Err(error),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Asks for the end of a turn and waits up to `limit` for it.
    pub async fn cancel(&self, turn_id: &str, reason: &str, limit: Duration) -> Result<(bool, WaitedTurn)> {
        self.turn(turn_id).await?;
        let (id, why) = (turn_id.to_owned(), reason.to_owned());
        let request = self.with_store(move |store| Ok(store.request_cancel(&id, &why)?)).await?;
        let asked = matches!(request, CancelRequest::Requested);
        Ok((asked, self.wait(turn_id, limit, |_, _| ()).await?))
    }
}

/// What a supervisor that is gone left on its standard error.
async fn last_words(stderr: Option<tokio::process::ChildStderr>) -> String {
    let Some(stderr) = stderr else { return String::new() };
    let mut bytes = Vec::new();
    let _ = stderr.take(4096).read_to_end(&mut bytes).await;
    let said = redaction::one_line(&String::from_utf8_lossy(&bytes), 500);
    if said.is_empty() { said } else { format!(": {said}") }
}

/// Runs blocking work off the event loop.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(BridgeError::Supervisor(format!("a task failed: {error}")).into()),
    }
}
