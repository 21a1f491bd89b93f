//! The way back: to the newest generation that is known to be good, with its config.

use super::cutover::Request;
use super::generations::{self, Generation, Verdict};
use super::transaction::content;
use super::{Layout, ReleaseError, pointer};
use crate::digest;
use crate::error::Error;

/// What a rollback is asked for.
#[derive(Debug, Default)]
pub struct Options {
    /// This generation; none lets the verdicts choose.
    pub to: Option<u64>,
    /// Also one that is known to be bad.
    pub force: bool,
    /// The shared config stays as it is.
    pub keep_config: bool,
    /// The operator's words.
    pub reason: Option<String>,
}

/// The switch that a rollback is, and what is worth telling about the choice.
pub fn request(layout: &Layout, options: &Options) -> Result<(Request, Vec<String>), Error> {
    layout.require_installation()?;
    let current = pointer::current(layout)?;
    let all = generations::list(layout)?;
    let chosen = match options.to {
        None => generations::way_back(&all, current.generation)?.clone(),
        Some(number) => all
            .iter()
            .find(|generation| generation.number == number)
            .cloned()
            .ok_or(ReleaseError::UnknownGeneration { number })?,
    };
    if chosen.verdict == Verdict::Bad && !options.force {
        let because = chosen.because.as_deref().unwrap_or("no reason is on record");
        let why =
            format!("generation {} ({}) is known to be bad: {because}", chosen.number, chosen.release_id);
        return Err(Error::from(ReleaseError::NoWayBack { why })
            .with_hint("Pass `--force` to go there all the same."));
    }
    let mut warnings = Vec::new();
    if chosen.verdict == Verdict::Unknown {
        warnings.push(format!("generation {} ({}) was never proven good", chosen.number, chosen.release_id));
    }
    let because = match &options.reason {
        Some(reason) => format!("left by a rollback: {reason}"),
        None => "left by a rollback".to_owned(),
    };
    let request = Request {
        operation: "rollback",
        config: if options.keep_config { None } else { config_of(layout, &chosen)? },
        reason: options.reason.clone(),
        verdict_on_left: (chosen.number != current.generation).then_some(because),
        ..Request::to(chosen.release_id.clone())
    };
    Ok((Request { restores: Some(chosen), ..request }, warnings))
}

/// The config of a generation, from the kept copies.
fn config_of(layout: &Layout, generation: &Generation) -> Result<Option<Vec<u8>>, ReleaseError> {
    let Some(sha256) = &generation.config_sha256 else { return Ok(None) };
    let damaged = |why: &str| ReleaseError::NoWayBack {
        why: format!(
            "the kept config of generation {} {why}; `--keep-config` leaves the config as it is",
            generation.number
        ),
    };
    let bytes = content(&layout.config_copy(sha256))?.ok_or_else(|| damaged("is gone"))?;
    if digest::of_bytes(&bytes) != *sha256 {
        return Err(damaged("was changed"));
    }
    Ok(Some(bytes))
}
