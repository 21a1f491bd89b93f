//! Waiting for a turn: for its end, or for a question of its worker that nobody knows yet.
//!
//! What this process started tells by itself; what another one supervises is looked at in the store.

use std::time::{Duration, Instant};

use super::{Bridge, Finished, WaitedTurn, lock};
use crate::error::Result;
use crate::store::{Pulse, TurnRow, TurnState};

/// How often a turn that another process supervises is looked at.
const FOREIGN_POLL: Duration = Duration::from_millis(40);

/// Whether a question, by its id, needs no telling any more.
pub type Known<'a> = dyn Fn(&str) -> bool + Sync + 'a;

impl Bridge {
    /// Waits until a turn has ended, but no longer than `limit`. `on_activity` is called with the
    /// elapsed time and what the worker does, about once a second.
    pub async fn wait(
        &self,
        turn_id: &str,
        limit: Duration,
        on_activity: impl FnMut(Duration, Option<&str>),
    ) -> Result<WaitedTurn> {
        self.wait_while(turn_id, limit, None, on_activity).await
    }

    /// As [`Self::wait`], but comes back too when the worker has a question open that is not `known`.
    pub async fn wait_or_question(
        &self,
        turn_id: &str,
        limit: Duration,
        known: &Known<'_>,
        on_activity: impl FnMut(Duration, Option<&str>),
    ) -> Result<WaitedTurn> {
        self.wait_while(turn_id, limit, Some(known), on_activity).await
    }

    async fn wait_while(
        &self,
        turn_id: &str,
        limit: Duration,
        known: Option<&Known<'_>>,
        mut on_activity: impl FnMut(Duration, Option<&str>),
    ) -> Result<WaitedTurn> {
        let live = lock(&self.inner.live).get(turn_id).cloned();
        let deadline = Instant::now() + limit;
        let Some(mut live) = live else {
            return self.wait_foreign(turn_id, deadline, known, on_activity).await;
        };
        let mut looked = None;
        loop {
            let progress = live.progress.borrow_and_update().clone();
            if progress.finished.is_some() || progress.closed {
                break;
            }
            if let Some(known) = known
                && looked != Some(progress.asked)
            {
                looked = Some(progress.asked);
                if self.pulse(turn_id).await?.open_questions.iter().any(|id| !known(id)) {
                    break;
                }
            }
            on_activity(live.started.elapsed(), progress.activity.as_deref());
            let now = Instant::now();
            if now >= deadline {
                break;
            }
            let tick = (deadline - now).min(Duration::from_secs(1));
            let _ = tokio::time::timeout(tick, live.progress.changed()).await;
        }
        let known = live.progress.borrow().finished.clone();
        if let Some(Finished { end, unrecorded: Some(unrecorded) }) = known {
            // Its row may still say that it runs, and what kept the end from being written would keep a
            // correction from being written too.
            let id = turn_id.to_owned();
            let row = self.with_store(move |store| Ok(store.turn(&id)?)).await?;
            let row = TurnRow { state: TurnState::Finished, end: Some(end), ..row };
            return Ok(WaitedTurn { row, unrecorded: Some(unrecorded) });
        }
        Ok(WaitedTurn { row: self.turn(turn_id).await?, unrecorded: None })
    }

    async fn wait_foreign(
        &self,
        turn_id: &str,
        deadline: Instant,
        known: Option<&Known<'_>>,
        mut on_activity: impl FnMut(Duration, Option<&str>),
    ) -> Result<WaitedTurn> {
        let began = Instant::now();
        let mut next_report = began;
        let mut before = None;
        loop {
            let row = self.turn(turn_id).await?;
            let looked = Instant::now();
            // The turn's age when we came, by the wall clock, since another process started it.
            let before = *before.get_or_insert_with(|| {
                let age = self.inner.context.clock.now_ms().saturating_sub(row.started_at);
                Duration::from_millis(u64::try_from(age).unwrap_or(0))
            });
            if row.state == TurnState::Finished || Instant::now() >= deadline {
                return Ok(WaitedTurn { row, unrecorded: None });
            }
            if Instant::now() >= next_report {
                on_activity(before + began.elapsed(), row.activity.as_deref());
                next_report += Duration::from_secs(1);
            }
            // The whole record, and whether its supervisor lives, are looked at once a second; whether it has
            // ended or asks something, more often.
            loop {
                let pulse = self.pulse(turn_id).await?;
                if let Some(known) = known
                    && pulse.open_questions.iter().any(|id| !known(id))
                {
                    return Ok(WaitedTurn { row, unrecorded: None });
                }
                if pulse.finished || looked.elapsed() >= Duration::from_secs(1) || Instant::now() >= deadline
                {
                    break;
                }
                tokio::time::sleep(FOREIGN_POLL).await;
            }
        }
    }

    /// Cheap enough to be asked for all the time.
    async fn pulse(&self, turn_id: &str) -> Result<Pulse> {
        let id = turn_id.to_owned();
        self.with_store(move |store| Ok(store.pulse(&id)?)).await
    }
}
