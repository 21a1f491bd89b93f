//! What is decided: the pointer, the generation, and the steps that make them so.

use super::prepare::Prepared;
use super::request::Request;
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::release::generations::{self, Generation, Verdict};
use crate::release::journal::Action;
use crate::release::pointer::{self, LauncherFacts, Pointer, Trial};
use crate::release::transaction::Transaction;
use crate::release::{Layout, ReleaseError};

/// What will be current, and the steps that make it so.
pub(super) fn decision(
    context: &Context,
    layout: &Layout,
    request: &Request,
    prepared: &Prepared,
    tx: &Transaction<'_>,
) -> Result<(Vec<Action>, Pointer), Error> {
    let metadata = &prepared.verified.metadata;
    let runtime = metadata.runtime_record()?;
    let config_sha256 = digest::of_bytes(&prepared.config_after);
    let (launcher_sha256, launcher_bytes) =
        digest::of_file(&layout.launcher()).map_err(ReleaseError::io("cannot read", layout.launcher()))?;
    let kept = prepared.current.as_ref().map(|(_, pointer)| &pointer.launcher);
    let protocol = match kept {
        Some(kept) if kept.sha256 == launcher_sha256 => kept.protocol,
        // Its own program speaks at least what the release needs.
        _ => metadata.min_launcher_protocol,
    };
    let now = tx.now();
    let previous = prepared.previous();
    let all = generations::list(layout)?;
    let fallback =
        previous.as_ref().map_or(0, |previous| match generations::way_back(&all, previous.generation) {
            _ if all.iter().any(|g| g.number == previous.generation && g.verdict != Verdict::Bad) => {
                previous.generation
            }
            Ok(good) => good.number,
            Err(_) => previous.generation,
        });
    let trial = request.trial.filter(|_| previous.is_some()).map(|terms| Trial {
        until_ms: context
            .clock
            .now_ms()
            .saturating_add(i64::try_from(terms.time.as_millis()).unwrap_or(i64::MAX)),
        handshakes: terms.handshakes,
        failed_starts: terms.failed_starts,
        fallback,
    });
    let pointer = Pointer {
        schema_version: 2,
        generation: prepared.generation,
        release_id: prepared.verified.id.clone(),
        target: metadata.target.triple.clone(),
        runtime_path: format!("releases/{}/{}", prepared.verified.id, metadata.runtime),
        runtime_sha256: runtime.sha256.clone(),
        runtime_bytes: runtime.bytes,
        metadata_sha256: prepared.verified.metadata_sha256.clone(),
        manifest_sha256: metadata.manifest_sha256.clone(),
        config_sha256: Some(config_sha256.clone()),
        launcher: LauncherFacts { sha256: launcher_sha256, bytes: launcher_bytes, protocol },
        previous: previous.clone(),
        trial,
        txid: tx.txid().to_owned(),
        promoted_at: now.clone(),
    };
    let generation = Generation {
        number: prepared.generation,
        parent: match &request.restores {
            Some(restored) => restored.parent,
            None => previous.as_ref().map(|previous| previous.generation),
        },
        restores: request.restores.as_ref().map(|restored| restored.number),
        release_id: prepared.verified.id.clone(),
        config_sha256: Some(config_sha256.clone()),
        txid: tx.txid().to_owned(),
        promoted_at: now,
        reason: request.reason.clone(),
        verdict: request.restores.as_ref().map_or(Verdict::Unknown, |restored| restored.verdict),
        because: request.restores.as_ref().map(|restored| format!("as generation {}", restored.number)),
    };
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| ReleaseError::Incompatible {
            id: request.target.to_string(),
            why: "the config is not UTF-8".into(),
        })
    };
    let slot = prepared.current.as_ref().map_or(0, |(slot, _)| 1 - slot);
    let mut actions = vec![
        Action::Put {
            path: format!("configs/{config_sha256}.json"),
            content: text(&prepared.config_after)?,
            mode: 0o600,
        },
        Action::Put {
            path: format!("generations/{:06}.json", generation.number),
            content: generation.to_text(),
            mode: 0o600,
        },
    ];
    if let Some(because) = &request.verdict_on_left
        && let Some(left) =
            previous.as_ref().and_then(|left| all.iter().find(|g| g.number == left.generation))
    {
        let left = Generation { verdict: Verdict::Bad, because: Some(because.clone()), ..left.clone() };
        actions.push(Action::Put {
            path: format!("generations/{:06}.json", left.number),
            content: left.to_text(),
            mode: 0o600,
        });
    }
    actions.push(Action::Slot { slot, content: pointer::encode(&pointer) });
    actions.push(Action::Put {
        path: "current-release.json".into(),
        content: pointer::readable(&pointer),
        mode: 0o644,
    });
    Ok((actions, pointer))
}
