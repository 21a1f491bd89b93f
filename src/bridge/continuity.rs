//! How a turn joins the conversation: fresh, in the agent's own session, or with the transcript replayed.

use std::path::Path;

use super::context_block::{self, PastTurn, Scope, Transcript};
use super::errors::BridgeError;
use super::usage::KnownTotals;
use crate::agents::Agent;
use crate::config::Config;
use crate::error::Result;
use crate::policy::Sandbox;
use crate::store::{BlobKind, Continuity, SessionRow, Store, TurnRow};

/// Turns that are looked at when a conversation is replayed; older ones are counted as omitted.
const REPLAYED_TURNS: usize = 200;

/// How the turn joins the conversation.
pub(super) struct Joined {
    pub(super) continuity: Continuity,
    pub(super) cross_agent: bool,
    pub(super) resume: Option<String>,
    pub(super) outbound: String,
    pub(super) totals: KnownTotals,
}

impl Joined {
    pub(super) fn fresh(prompt: &str) -> Self {
        Self {
            continuity: Continuity::New,
            cross_agent: false,
            resume: None,
            outbound: prompt.to_owned(),
            totals: KnownTotals::default(),
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "one call site; a struct would only rename the arguments")]
pub(super) fn join(
    config: &Config,
    store: &Store,
    session: &SessionRow,
    agent: &dyn Agent,
    cwd: &Path,
    sandbox: Sandbox,
    model: Option<&str>,
    prompt: &str,
    resumable: bool,
) -> Result<Joined> {
    let native = store.native_session(&session.id, agent.id())?.filter(|native| {
        resumable
            && agent.capabilities().resume
            && agent.accepts_native_id(&native.id)
            && native.cwd == cwd
            && native.sandbox == sandbox
            && native.model.as_deref() == model
    });
    let from = session.turns.saturating_sub(REPLAYED_TURNS as u64);
    let recent = store.turns(&session.id, from, REPLAYED_TURNS)?.rows;
    let Some(native) = native else {
        let outbound = replay(config, store, session, &recent, from, Scope::Full, prompt)?;
        return Ok(Joined {
            continuity: Continuity::ContextReplay,
            cross_agent: recent.iter().any(|turn| turn.agent != agent.id()),
            resume: None,
            outbound,
            totals: KnownTotals::default(),
        });
    };
    let unseen: Vec<TurnRow> = recent
        .into_iter()
        .filter(|turn| turn.index > native.last_seen_turn && turn.agent != agent.id())
        .collect();
    let outbound = if unseen.is_empty() {
        prompt.to_owned()
    } else {
        replay(config, store, session, &unseen, 0, Scope::Delta, prompt)?
    };
    Ok(Joined {
        continuity: Continuity::NativeResume,
        cross_agent: !unseen.is_empty(),
        resume: Some(native.id),
        outbound,
        totals: KnownTotals { tokens: native.token_total, cost_usd: native.cost_total },
    })
}

fn replay(
    config: &Config,
    store: &Store,
    session: &SessionRow,
    turns: &[TurnRow],
    omitted: u64,
    scope: Scope,
    prompt: &str,
) -> Result<String> {
    let limit = config.handoff_max_chars;
    let past = turns
        .iter()
        .map(|turn| {
            let response = store.blobs().head_tail(&turn.id, BlobKind::Answer, limit);
            PastTurn {
                index: turn.index,
                agent: turn.agent,
                prompt: context_block::clip(&turn.prompt, limit),
                response: response.map(|preview| preview.text).unwrap_or_default(),
                ended_in_error: turn.end.as_ref().is_none_or(|end| end.outcome.is_error()),
            }
        })
        .collect::<Vec<_>>();
    let first =
        if omitted == 0 { turns.first().cloned() } else { store.turns(&session.id, 0, 1)?.rows.pop() };
    let transcript = Transcript {
        scope,
        working_directory: session.cwd.to_str().unwrap_or_default(),
        original_objective: first.as_ref().map_or("", |turn| turn.prompt.as_str()),
        turns: &past,
        omitted,
    };
    context_block::outbound_prompt(&transcript, limit, prompt)
        .ok_or_else(|| BridgeError::ContextTooLarge(limit).into())
}
