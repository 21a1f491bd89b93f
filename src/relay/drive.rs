//! One run from its place in the queue to its complete record.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::coordinator::{self, Look, Place, Waiting};
use super::record::{Attempt, Kind, RunRecord};
use super::status::Status;
use super::{Progress, Relay, TURN_OWNER, contract, report, settle, worktree};
use crate::bridge::TurnRequest;
use crate::config::ScopeTool;
use crate::error::Result;
use crate::observe::isolation::Failure;
use crate::policy::AgentId;
use crate::store::TurnState;

/// Starts of a worker in one run.
const ATTEMPTS: u32 = 2;
/// How long one wait for a turn lasts before it begins anew.
const WAIT: Duration = Duration::from_secs(3600);
/// How long a cancelled worker gets until the record is completed without it.
const CANCEL_WAIT: Duration = Duration::from_secs(20);

/// Drives one run.
pub(super) struct Driver {
    pub(super) relay: Relay,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) cancelled: watch::Receiver<Option<String>>,
}

impl Driver {
    /// Whatever happens, the record is complete afterwards, as far as anything can be written.
    pub(super) async fn run(mut self, mut record: RunRecord) {
        let queued = Instant::now();
        if let Err(error) = self.work(&mut record, queued).await
            && !record.is_finished()
        {
            record.fail_with(&error);
        }
        if !record.is_finished() {
            record.fail(Status::McpError, "the run ended without a status");
        }
        record.ended_at = Some(self.now());
        if let Err(error) = self.save(&record).await {
            // What cannot be written is completed by the next one who looks.
            self.tell(&format!("the record could not be written: {error}"));
        }
        self.relay.export(&record).await;
    }

    fn now(&self) -> i64 {
        self.relay.bridge().context().clock.now_ms()
    }

    fn tell(&self, line: &str) {
        self.progress.send_modify(|progress| progress.activity = Some(line.to_owned()));
    }

    async fn save(&self, record: &RunRecord) -> Result<()> {
        let row = record.to_row();
        self.relay.bridge().with_store(move |store| Ok(store.update_run(&row).map(|_| ())?)).await
    }

    fn cancel_reason(&self) -> Option<String> {
        self.cancelled.borrow().clone()
    }

    async fn work(&mut self, record: &mut RunRecord, queued: Instant) -> Result<()> {
        let Some(_place) = self.place(record, queued).await? else { return Ok(()) };
        record.queue_ms = Some(u64::try_from(queued.elapsed().as_millis()).unwrap_or(u64::MAX));
        record.status = Status::Running;
        self.save(record).await?;
        if record.isolation.is_copy() && record.worktree.is_none() && !self.copy(record).await? {
            return Ok(());
        }
        for attempt in 0..ATTEMPTS {
            if !self.attempt(record, attempt).await? {
                return Ok(());
            }
            if !record.status.is_transient() || attempt + 1 == ATTEMPTS {
                return Ok(());
            }
            // The look at the login has tried again already.
            if record.attempts.last().is_some_and(|last| !last.started) {
                return Ok(());
            }
            // Unknown is never unchanged.
            if record.attempts.last().and_then(|last| last.changed) != Some(false) {
                let why = format!(
                    "the first attempt ended with {} and had changed the workspace, or nobody knows",
                    record.status
                );
                record.fail(Status::MutationAborted, why);
                return Ok(());
            }
            let pause = coordinator::backoff(attempt);
            self.tell(&format!("{}; tried again in {:.1} s", record.status, pause.as_secs_f64()));
            if self.pause(pause).await {
                record.fail(Status::Cancelled, "cancelled between two attempts");
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the run was cancelled meanwhile.
    async fn pause(&mut self, pause: Duration) -> bool {
        if self.cancel_reason().is_some() {
            return true;
        }
        // A sender that is gone cancels nothing.
        matches!(tokio::time::timeout(pause, self.cancelled.changed()).await, Ok(Ok(())))
    }

    /// A place to work; none if the run ended while it waited.
    async fn place(&mut self, record: &mut RunRecord, queued: Instant) -> Result<Option<Place>> {
        let relay = &self.relay.bridge().config().relay;
        let deadline = queued + relay.queue_timeout;
        let most_waiting = relay.max_queued_runs;
        let (is_copy, root) = (record.isolation.is_copy(), record.root_run_id.clone());
        let copy = self.relay.bridge().with_store(move |store| worktree::folder(store, &root)).await?;
        let waiting = Waiting {
            run_id: record.run_id.clone(),
            workspace: if is_copy { copy } else { record.workspace.clone() },
            is_copy,
            most: relay.max_concurrent_runs,
        };
        let mut first = true;
        loop {
            let look = waiting.clone();
            let reason = match self.relay.bridge().with_store(move |store| look.look(store)).await? {
                Look::Taken(place) => return Ok(Some(place)),
                Look::Wait(reason) => reason,
            };
            // It is the wait that is bounded: a run that need not wait never comes here.
            if std::mem::take(&mut first) {
                let look = waiting.clone();
                let others = self.relay.bridge().with_store(move |store| look.older(store)).await?.len();
                if others >= most_waiting {
                    record.fail(Status::QueueFull, format!("{reason}, and {others} runs wait already"));
                    return Ok(None);
                }
            }
            if Instant::now() >= deadline {
                let seconds = queued.elapsed().as_secs();
                record.fail(Status::QueueTimeout, format!("after {seconds} s: {reason}"));
                return Ok(None);
            }
            self.tell(&format!("waits: {reason}"));
            if self.pause(coordinator::POLL).await {
                let why = self.cancel_reason().unwrap_or_default();
                record.fail(Status::Cancelled, format!("cancelled while it waited: {why}"));
                return Ok(None);
            }
        }
    }

    /// Makes the copy that the run works in; false if there is none, and the record says why.
    async fn copy(&self, record: &mut RunRecord) -> Result<bool> {
        self.tell("copies the workspace");
        let (bridge, wanted, cancelled) =
            (self.relay.bridge().clone(), record.clone(), self.cancelled.clone());
        let made = self
            .relay
            .bridge()
            .with_store(move |store| {
                let mut wish = || cancelled.borrow().clone();
                Ok(worktree::make(&bridge, store, &wanted, &mut wish))
            })
            .await?;
        match made {
            Ok((copy, notes)) => {
                record.worktree = Some(copy);
                record.notes.extend(notes);
                self.save(record).await?;
                Ok(true)
            }
            Err(failure) => {
                let status = match &failure {
                    Failure::Unfit(_) => Status::InvalidWorkspace,
                    Failure::Cut(_) => Status::Cancelled,
                    Failure::Failed(_) => Status::WorktreeFailed,
                };
                record.fail(status, format!("no copy of the workspace was made: {failure}"));
                Ok(false)
            }
        }
    }

    /// One start of a worker, to its end. False if there was nothing to start, and the record says why.
    async fn attempt(&mut self, record: &mut RunRecord, number: u32) -> Result<bool> {
        let bridge = self.relay.bridge().clone();
        if let Some(reason) = self.cancel_reason() {
            record.fail(Status::Cancelled, format!("cancelled before the worker was started: {reason}"));
            return Ok(false);
        }
        let request = self.request(record, number);
        let started = match bridge.start(request).await {
            Ok(started) => started,
            Err(error) => {
                record.fail_with(&error);
                return Ok(false);
            }
        };
        // What the attempt before came to is in its own entry; the run goes on.
        record.status = Status::Running;
        record.error = None;
        record.session_id = Some(started.session_id.clone());
        record.started_at.get_or_insert(bridge.context().clock.now_ms());
        record.attempts.push(Attempt {
            turn_id: started.turn_id.clone(),
            status: Status::Running,
            detail: None,
            duration_ms: 0,
            started: true,
            changed: None,
        });
        self.save(record).await?;
        let turn = self.wait(&started.turn_id).await?;
        if turn.state != TurnState::Finished {
            record.fail(Status::McpError, "the worker could not be ended");
            return Ok(false);
        }
        let mut ended = record.clone();
        *record = bridge
            .with_store(move |store| {
                settle::attempt_ended(store, &mut ended, &turn)?;
                Ok(ended)
            })
            .await?;
        Ok(true)
    }

    /// Waits for a turn, shows what it does, and ends it if the run is cancelled.
    async fn wait(&mut self, turn_id: &str) -> Result<crate::store::TurnRow> {
        let bridge = self.relay.bridge().clone();
        let progress = self.progress.clone();
        let show = |_: Duration, activity: Option<&str>| {
            let activity = activity.unwrap_or("working").to_owned();
            progress.send_modify(|progress| progress.activity = Some(activity));
        };
        let mut open = true;
        loop {
            let waited = tokio::select! {
                waited = bridge.wait(turn_id, WAIT, show) => waited?,
                changed = self.cancelled.changed(), if open => {
                    open = changed.is_ok();
                    match self.cancel_reason() {
                        Some(reason) => bridge.cancel(turn_id, &reason, CANCEL_WAIT).await?.1,
                        None => continue,
                    }
                }
            };
            if waited.row.state == TurnState::Finished || self.cancel_reason().is_some() {
                return Ok(waited.row);
            }
        }
    }

    fn request(&self, record: &RunRecord, number: u32) -> TurnRequest {
        let config = self.relay.bridge().config();
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let submit = config.scope.tools.contains(&ScopeTool::SubmitReport);
        let terms = |task| contract::Contract {
            task,
            plan: &record.plan,
            criteria: &record.acceptance_criteria,
            constraints: &record.constraints,
            nonce: &nonce[..12],
            submit,
        };
        let prompt = match (record.kind, &record.feedback) {
            (Kind::Continue, Some(feedback)) => contract::correct(&terms(feedback)),
            _ => contract::execute(&terms(&record.task)),
        };
        TurnRequest {
            agent: record.agent.map(|agent: AgentId| agent.as_str().to_owned()),
            prompt,
            cwd: Some(worktree::workplace(record).display().to_string()),
            model: record.model.clone(),
            effort: record.effort.clone(),
            own_agent: record.worker_agent.clone(),
            sandbox: record.sandbox,
            timeout: Some(Duration::from_secs(record.timeout_sec)),
            // A second attempt of a new task begins anew; what the first one was told is lost with it.
            session_id: record.session_id.clone().filter(|_| record.kind == Kind::Continue),
            must_exist: record.kind == Kind::Continue,
            idempotency_key: Some(super::turn_key(&record.run_id, number as usize)),
            requested_by: format!("{TURN_OWNER}{}", record.run_id),
            observe: true,
            report_schema: Some(report::schema()),
            execution_mode: record.execution_mode,
            checks: record.checks_wanted.clone(),
            isolated: record.worktree.as_ref().map(|copy| copy.folder.clone()),
            ..TurnRequest::default()
        }
    }
}
