//! `agent-bridge rehearse`

use std::path::{Path, PathBuf};

use super::output::{Output, duration};
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::rehearsal::{self, Options};
use crate::release::transaction::Interruption;
use crate::release::{Layout, ReleaseId, pointer};

/// Play a switch and the way back in a throwaway place.
///
/// Installs both releases in a new folder, switches there, back by a rollback, there again, with a canary after each
/// step; then kills a number of switches at moments that a seed chooses, recovers, and checks that the
/// installation is as before or as after. No host has to be closed: nothing of the live installation is used but
/// the files of its releases. The record is written pass or fail. Exit code 0 or 3.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The release to go to: an installed release's id, a bundle, or a folder with an unpacked one.
    candidate: String,
    /// The release to come from and go back to (default: the current one).
    #[arg(long, value_name = "SOURCE")]
    prior: Option<String>,
    /// New folder for the record and the stage.
    #[arg(long, value_name = "DIR")]
    evidence_dir: PathBuf,
    /// Switches to cut off.
    #[arg(long, value_name = "N", default_value_t = 10)]
    kills: u32,
    /// Chooses the moments; the same seed gives the same ones.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Installation folder, to take releases from.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args, output: &mut Output) -> Result<Exit> {
    let live = Layout::select(context, args.root.as_deref())?;
    let prior = match &args.prior {
        Some(prior) => source(context, &live, prior)?,
        None => live.release(&pointer::current(&live)?.release_id),
    };
    let options = Options {
        candidate: source(context, &live, &args.candidate)?,
        prior,
        evidence_dir: context.cwd.join(&args.evidence_dir),
        kills: args.kills,
        seed: args.seed,
    };
    let record = rehearsal::rehearse(context, &live, &options, &Interruption::watch())?;
    if args.json {
        output.document("rehearsal", &record);
    } else {
        for step in &record.steps {
            output.line(format!("{:<44} {:>9}", step.name, duration(step.duration_ms)));
        }
        let kills = &record.kills;
        output.line(format!(
            "Killed {}: {} in the middle, {} undone, {} completed (seed {}).",
            kills.attempted, kills.cut_off, kills.undone, kills.completed, kills.seed
        ));
        if let Some(failure) = &record.failure {
            let text = |key: &str| failure[key].as_str().unwrap_or_default().to_owned();
            output.note(&format!("error {}: {}", text("code"), text("message")));
        }
        output.line(format!("Verdict: {}. Record: {}", record.status, record.evidence.display()));
    }
    Ok(if record.status == "pass" { Exit::Ok } else { Exit::VerificationFailed })
}

fn source(context: &Context, live: &Layout, named: &str) -> Result<PathBuf> {
    Ok(match ReleaseId::parse(named) {
        Ok(id) if !Path::new(named).exists() => live.release(&id),
        _ => context.cwd.join(named),
    })
}
