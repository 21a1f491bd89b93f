//! `agent-bridge rehearse`

use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::{Output, duration};
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::rehearsal::{self, Kills, Options};
use crate::release::transaction::Interruption;
use crate::release::{Layout, ReleaseError, ReleaseId, pointer};

/// Play a switch and the way back in a throwaway place.
///
/// Installs both releases in a new folder, switches there, back by a rollback, there again, with a canary after each
/// step; then kills a number of switches at places all over the switch, before the commit and after it, recovers, and
/// checks that the installation is as before or as after. No host has to be closed: nothing of the live installation
/// is used but the files of its releases. The record is written pass or fail and says where each kill landed. Exit
/// code 0 or 3.
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
    /// Switches to cut off, at least two: one on each side of the commit.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    kills: u32,
    /// Chooses the places; the same seed gives the same ones.
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
        None => {
            live.require_installation()?;
            live.release(&pointer::current(&live)?.release_id)
        }
    };
    let options = Options {
        candidate: source(context, &live, &args.candidate)?,
        prior,
        evidence_dir: context.cwd.join(&args.evidence_dir),
        kills: args.kills,
        seed: args.seed,
    };
    let bar = bar(output.stderr_is_terminal, rehearsal::steps(&options));
    let mut progress = |done: u32, step: &str| {
        bar.set_position(done.into());
        bar.set_message(step.to_owned());
    };
    let record = rehearsal::rehearse(context, &live, &options, &Interruption::watch(), &mut progress);
    bar.finish_and_clear();
    let record = record?;
    if args.json {
        output.document("rehearsal", &record);
    } else {
        for step in &record.steps {
            output.line(format!("{:<44} {:>9}", step.name, duration(step.duration_ms)));
        }
        let kills = &record.kills;
        if kills.attempted > 0 {
            let text = format!(
                "Killed {}: {} before the commit ({} undone), {} after it ({} completed), {} too late (seed {}).",
                kills.attempted,
                kills.before_commit,
                kills.undone,
                kills.after_commit,
                kills.completed,
                kills.attempted - kills.cut_off,
                kills.seed
            );
            output.wrapped(&text, 2);
            if kills.cut_off > 0 {
                output.wrapped(&format!("  at {}", counted(kills)), 5);
            }
        }
        if let Some(failure) = &record.failure {
            let text = |key: &str| failure[key].as_str().unwrap_or_default().to_owned();
            output.note(&format!("error {}: {}", text("code"), text("message")));
            output.note_indented(&format!("  next: {}", text("hint")), 8);
        }
        output.line(format!("Verdict: {}. Record: {}", record.status, record.evidence.display()));
    }
    Ok(if record.status == "pass" { Exit::Ok } else { Exit::VerificationFailed })
}

/// Where kills landed, in the order of the switch.
fn counted(kills: &Kills) -> String {
    let said = kills.places.iter().filter_map(|place| {
        match kills.landed.iter().filter(|landed| landed.place == *place).count() {
            0 => None,
            1 => Some(place.clone()),
            count => Some(format!("{place} ({count} times)")),
        }
    });
    said.collect::<Vec<_>>().join(", ")
}

fn bar(is_terminal: bool, steps: u32) -> ProgressBar {
    let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(steps.into()), target);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    if is_terminal {
        bar.enable_steady_tick(Duration::from_secs(1));
    }
    bar
}

/// Play one switch of a rehearsal and wait in it to be killed (started by `rehearse`).
#[derive(Debug, clap::Args)]
pub struct SwitchArgs {
    /// The release to go to.
    release: String,
    /// The config to switch to.
    #[arg(long)]
    stage_config: PathBuf,
    /// The stage.
    #[arg(long)]
    root: PathBuf,
    /// The place in the transaction.
    #[arg(long)]
    stop_at: String,
}

pub fn run_switch(context: &Context, args: &SwitchArgs) -> Result<Exit> {
    let layout = Layout::select(context, Some(&args.root))?;
    let config =
        std::fs::read(&args.stage_config).map_err(ReleaseError::io("cannot read", &args.stage_config))?;
    rehearsal::play(context, &layout, &ReleaseId::parse(&args.release)?, config, &args.stop_at)?;
    Ok(Exit::Ok)
}

fn source(context: &Context, live: &Layout, named: &str) -> Result<PathBuf> {
    Ok(match ReleaseId::parse(named) {
        Ok(id) if !Path::new(named).exists() => {
            live.require_installation()?;
            if !live.release(&id).is_dir() {
                return Err(
                    ReleaseError::NotInstalled { id: id.to_string(), root: live.root().into() }.into()
                );
            }
            live.release(&id)
        }
        _ => context.cwd.join(named),
    })
}
