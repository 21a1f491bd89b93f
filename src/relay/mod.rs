//! Compact delegate-and-review: a task goes out once, a packet that can be reviewed in a minute comes back, and the
//! list of changes is the repository's and not the worker's.
//!
//! A run is one or more turns of the bridge, driven by the process that started it ([`drive`]) and recorded from its
//! first moment on, refusals too. Whoever looks at a run whose driver is gone completes its record from what its turns
//! left ([`settle`]).

mod contract;
pub mod coordinator;
mod drive;
pub mod packet;
pub mod record;
pub mod report;
pub mod request;
pub mod result;
mod settings;
mod settle;
pub mod status;
pub mod worktree;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::bridge::{Bridge, blocking};
use crate::error::{Error, INVALID_ARGUMENT, Result};
use crate::platform::{self, LockFile};
use crate::store::{RunFilter, RunRow, RunState, Store};
use record::{Kind, RunRecord, VERSION};
use request::{ContinueArguments, Door, ExecuteArguments, MAX_FEEDBACK, MAX_TASK, World, check_texts};
use settings::Settings;
pub use status::{CODES, Status};

/// Begins the `requested_by` of a run's turns; the run's id follows.
pub const TURN_OWNER: &str = "relay:";

/// The idempotency key of a run's attempt, counted from 0.
fn turn_key(run_id: &str, attempt: usize) -> String {
    format!("run {run_id} {attempt}")
}

/// The relay of one front door. Cheap to clone.
#[derive(Clone)]
pub struct Relay {
    inner: Arc<Inner>,
}

struct Inner {
    bridge: Bridge,
    /// Read once: a host restarts the server to change them.
    settings: OnceLock<Result<Settings, String>>,
    live: Mutex<HashMap<String, Live>>,
}

/// A run that this process drives.
#[derive(Clone)]
struct Live {
    /// What is being done, and whether the record is complete.
    progress: watch::Receiver<Progress>,
    cancel: Arc<watch::Sender<Option<String>>>,
    since: Instant,
}

/// What is known of a run that is driven here.
#[derive(Clone, Debug, Default)]
struct Progress {
    activity: Option<String>,
    done: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(&INVALID_ARGUMENT, message)
}

impl Relay {
    /// No side effects: settings and state folder are looked at by the first call that needs them.
    pub fn new(bridge: Bridge) -> Self {
        Self { inner: Arc::new(Inner { bridge, settings: OnceLock::new(), live: Mutex::default() }) }
    }

    /// The bridge that runs the turns.
    pub fn bridge(&self) -> &Bridge {
        &self.inner.bridge
    }

    fn settings(&self) -> &Result<Settings, String> {
        let bridge = &self.inner.bridge;
        self.inner.settings.get_or_init(|| Settings::load(bridge.context(), bridge.config()))
    }

    fn new_record(&self, kind: Kind, tool: &str, requested_by: &str) -> RunRecord {
        let id = uuid::Uuid::new_v4().to_string();
        RunRecord {
            schema_version: VERSION,
            root_run_id: id.clone(),
            run_id: id,
            kind,
            tool: tool.to_owned(),
            requested_by: requested_by.to_owned(),
            created_at: self.inner.bridge.context().clock.now_ms(),
            ..RunRecord::default()
        }
    }

    /// Starts a run. The answer is its id, also where it was refused: the refusal is its record.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for texts beyond their bounds; the store's errors.
    pub async fn execute(
        &self,
        door: Door,
        tool: &str,
        arguments: ExecuteArguments,
        requested_by: &str,
    ) -> Result<String> {
        check_texts(&arguments.task, &arguments.plan, &arguments.acceptance_criteria, MAX_TASK)
            .map_err(invalid)?;
        let mut record = self.new_record(Kind::Execute, tool, requested_by);
        let relay = self.clone();
        let mut record = blocking(move || {
            let resolved =
                relay.resolve(|world, record| world.execute(door, &arguments, record), &mut record);
            record.task = arguments.task;
            record.plan = arguments.plan;
            record.acceptance_criteria = arguments.acceptance_criteria;
            if let Err((status, why)) = resolved {
                record.fail(status, why);
            }
            Ok(record)
        })
        .await?;
        if record.is_finished() {
            return self.refuse(record).await;
        }
        record.status = Status::Queued;
        self.begin(record, None).await
    }

    fn resolve(
        &self,
        fill: impl FnOnce(&World<'_>, &mut RunRecord) -> Result<(), request::Refused>,
        record: &mut RunRecord,
    ) -> Result<(), request::Refused> {
        let bridge = &self.inner.bridge;
        let settings = self.settings().as_ref().map_err(|why| (Status::ConfigError, why.clone()))?;
        fill(&World { context: bridge.context(), config: bridge.config(), settings }, record)
    }

    /// Corrects a run, by its id or by the provider's conversation.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `RUN_NOT_FOUND`, `RUN_STILL_RUNNING`; the store's errors.
    pub async fn correct(
        &self,
        tool: &str,
        arguments: ContinueArguments,
        requested_by: &str,
    ) -> Result<String> {
        check_texts(&arguments.feedback, &arguments.plan, &arguments.acceptance_criteria, MAX_FEEDBACK)
            .map_err(invalid)?;
        let mut record = self.new_record(Kind::Continue, tool, requested_by);
        record.feedback = Some(arguments.feedback.clone());
        let previous = match (&arguments.run_id, &arguments.conversation_id) {
            (Some(id), _) => self.row(id).await?,
            (None, Some(conversation)) => {
                let id = conversation.clone();
                let found =
                    self.bridge().with_store(move |store| Ok(store.run_of_conversation(&id)?)).await?;
                let Some(found) = found else {
                    // Without its run nobody knows what the conversation may do.
                    record.fail_with(&Error::new(
                        &status::RUN_NOT_CONTINUABLE,
                        "the conversation belongs to no known run",
                    ));
                    return self.refuse(record).await;
                };
                if arguments.workspace.is_none() {
                    return Err(invalid("`conversation_id` needs `workspace`"));
                }
                found
            }
            (None, None) => return Err(invalid("`run_id` is missing")),
        };
        let previous = self.settled(previous).await?;
        let root =
            if previous.root == previous.id { previous.clone() } else { self.row(&previous.root).await? };
        if previous.state == RunState::Running {
            return Err(Error::new(
                &status::RUN_STILL_RUNNING,
                format!("run {} has not ended yet", previous.id),
            ));
        }
        let [previous, root] = [&previous, &root].map(|row| {
            RunRecord::from_row(row)
                .map_err(|why| Error::new(&status::MCP_ERROR, format!("run {}: {why}", row.id)))
        });
        let (previous, root) = (previous?, root?);
        record.root_run_id.clone_from(&root.run_id);
        record.profile.clone_from(&root.profile);
        record.agent = root.agent;
        record.worker_agent.clone_from(&root.worker_agent);
        record.task.clone_from(&root.task);
        record.checks_wanted.clone_from(&root.checks_wanted);
        // The newest run of the chain that has a conversation.
        record.session_id = previous.session_id.clone().or_else(|| root.session_id.clone());
        record.workspace.clone_from(&root.workspace);
        record.isolation = root.isolation;
        record.worktree = previous.worktree.clone().or_else(|| root.worktree.clone());
        if record.session_id.is_none() {
            record.fail_with(&Error::new(&status::RUN_NOT_CONTINUABLE, "no worker of that run ever started"));
            return self.refuse(record).await;
        }
        if let Some(why) = self.copy_is_gone(&record).await? {
            record.fail_with(&Error::new(&status::RUN_NOT_CONTINUABLE, why));
            return self.refuse(record).await;
        }
        let relay = self.clone();
        let record = blocking(move || {
            let resolved =
                relay.resolve(|world, record| world.correct(&arguments, &root, record), &mut record);
            record.plan = arguments.plan;
            record.acceptance_criteria = arguments.acceptance_criteria;
            if let Err((status, why)) = resolved {
                record.fail(status, why);
            }
            Ok(record)
        })
        .await?;
        if record.is_finished() {
            return self.refuse(record).await;
        }
        let most = self.bridge().config().relay.max_corrections;
        self.begin(RunRecord { status: Status::Queued, ..record }, Some(most)).await
    }

    /// Why a run that worked in a copy cannot go on there.
    async fn copy_is_gone(&self, record: &RunRecord) -> Result<Option<String>> {
        let Some(copy) = record.worktree.clone() else { return Ok(None) };
        let root = record.root_run_id.clone();
        self.bridge()
            .with_store(move |store| {
                Ok(if worktree::was_applied(store, &root)? {
                    Some("its patch was applied, which ended it".to_owned())
                } else if worktree::is_there(&copy) {
                    None
                } else {
                    Some(format!("its copy of the workspace, {}, is gone", copy.folder.display()))
                })
            })
            .await
    }

    /// Records a refusal.
    async fn refuse(&self, mut record: RunRecord) -> Result<String> {
        record.ended_at = Some(self.bridge().context().clock.now_ms());
        let id = record.run_id.clone();
        let row = record.to_row();
        self.bridge()
            .with_store(move |store| {
                store.insert_run(&row, None)?;
                Ok(())
            })
            .await?;
        self.export(&record).await;
        Ok(id)
    }

    /// Records the run as waiting and starts to drive it.
    async fn begin(&self, mut record: RunRecord, max_corrections: Option<u32>) -> Result<String> {
        let id = record.run_id.clone();
        let row = record.to_row();
        let keep = self.bridge().config().relay.keep_runs;
        enum Begun {
            Held(LockFile, u32),
            Limit,
        }
        let begun = self
            .bridge()
            .with_store(move |store| {
                let held = platform::try_exclusive(&coordinator::run_lock(store, &row.id)?)?;
                let Some(held) = held else { return Err(invalid("the run's lock is taken")) };
                let _ = store.prune_runs(keep);
                worktree::sweep(store);
                Ok(match store.insert_run(&row, max_corrections)? {
                    Some(number) => Begun::Held(held, number),
                    None => Begun::Limit,
                })
            })
            .await?;
        match begun {
            Begun::Limit => {
                let most = max_corrections.unwrap_or(0);
                record.fail(Status::ContinueLimit, format!("the run had its {most} corrections"));
                self.refuse(record).await
            }
            Begun::Held(held, number) => {
                record.correction = number;
                self.drive(record, held);
                Ok(id)
            }
        }
    }

    /// Drives a run in the background.
    fn drive(&self, record: RunRecord, held: LockFile) {
        let (sender, progress) = watch::channel(Progress::default());
        let (cancel, cancelled) = watch::channel(None);
        let id = record.run_id.clone();
        let live = Live { progress, cancel: Arc::new(cancel), since: Instant::now() };
        lock(&self.inner.live).insert(id.clone(), live);
        let relay = self.clone();
        tokio::spawn(async move {
            let driver = drive::Driver { relay: relay.clone(), progress: sender.clone(), cancelled };
            driver.run(record).await;
            drop(held);
            sender.send_modify(|progress| progress.done = true);
            lock(&relay.inner.live).remove(&id);
        });
    }

    /// Waits until a run has ended, but no longer than `limit`.
    ///
    /// # Errors
    /// `RUN_NOT_FOUND`; the store's errors.
    pub async fn wait(
        &self,
        run_id: &str,
        limit: Duration,
        mut on_activity: impl FnMut(Duration, Option<&str>),
    ) -> Result<RunRow> {
        let deadline = Instant::now() + limit;
        let began = Instant::now();
        let live = lock(&self.inner.live).get(run_id).cloned();
        if let Some(mut live) = live {
            loop {
                let progress = live.progress.borrow_and_update().clone();
                let now = Instant::now();
                if progress.done || now >= deadline {
                    break;
                }
                on_activity(live.since.elapsed(), progress.activity.as_deref());
                let tick = (deadline - now).min(Duration::from_secs(1));
                if let Ok(Err(_)) = tokio::time::timeout(tick, live.progress.changed()).await {
                    break;
                }
            }
            return self.row(run_id).await;
        }
        loop {
            let row = self.settled(self.row(run_id).await?).await?;
            let now = Instant::now();
            if row.state == RunState::Finished || now >= deadline {
                return Ok(row);
            }
            on_activity(began.elapsed(), None);
            tokio::time::sleep((deadline - now).min(Duration::from_millis(200))).await;
        }
    }

    /// Asks for the end of a run that this process drives. Whether there is one.
    pub fn cancel(&self, run_id: &str, reason: &str) -> bool {
        let live = lock(&self.inner.live).get(run_id).cloned();
        live.is_some_and(|live| live.cancel.send(Some(reason.to_owned())).is_ok())
    }

    /// A run as it is kept.
    ///
    /// # Errors
    /// `RUN_NOT_FOUND`; the store's errors.
    pub async fn row(&self, run_id: &str) -> Result<RunRow> {
        let id = run_id.to_owned();
        self.bridge()
            .with_store(move |store| {
                store.run(&id)?.ok_or_else(|| {
                    let shown: String = id.chars().take(64).collect();
                    Error::new(&status::RUN_NOT_FOUND, format!("there is no run {shown:?}"))
                })
            })
            .await
    }

    /// The same run, its record completed if nobody drives it any more.
    async fn settled(&self, row: RunRow) -> Result<RunRow> {
        if row.state == RunState::Finished {
            return Ok(row);
        }
        self.bridge().with_store(move |store| settle::settle(store, row)).await
    }

    /// Runs, newest first; those whose driver is gone are completed first.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn list(
        &self,
        filter: RunFilter,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<crate::store::Listed<RunRow>> {
        self.bridge()
            .with_store(move |store| {
                let running = RunFilter { state: Some(RunState::Running), root: None };
                for row in store.list_runs(&running, 500, None)?.rows {
                    settle::settle(store, row)?;
                }
                Ok(store.list_runs(&filter, limit, cursor.as_deref())?)
            })
            .await
    }

    /// A record of a row, with the corrections that its root had.
    ///
    /// # Errors
    /// `MCP_ERROR` for a record that cannot be read; the store's errors.
    pub async fn record(&self, row: RunRow) -> Result<(RunRecord, u32)> {
        let record = RunRecord::from_row(&row)
            .map_err(|why| Error::new(&status::MCP_ERROR, format!("the record of run {}: {why}", row.id)))?;
        let root = row.root;
        let made = self.bridge().with_store(move |store| corrections(store, &root)).await?;
        Ok((record, made))
    }

    /// A copy for who keeps records in files.
    async fn export(&self, record: &RunRecord) {
        let Ok(Settings { data_dir: Some(folder), .. }) = self.settings() else { return };
        let (folder, record) = (folder.clone(), record.clone());
        let _ = blocking(move || {
            settle::export(&folder, &record);
            Ok(())
        })
        .await;
    }
}

fn corrections(store: &Store, root: &str) -> Result<u32> {
    let filter = RunFilter { state: None, root: Some(root.to_owned()) };
    let rows = store.list_runs(&filter, 500, None)?.rows;
    Ok(rows.iter().map(|row| row.correction).max().unwrap_or(0))
}
