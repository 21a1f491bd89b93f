//! `agent-bridge prune`

use super::installation::Installation;
use super::output::Output;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::transaction::Interruption;
use crate::release::{ReleaseId, prune};

/// Remove old releases and backups that nothing needs.
///
/// Never removes the current release, the one a rollback or a trial goes back to, the last good one, or one that
/// something still runs from. What cannot be removed is named and tried again by the next run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also keep so many of the releases that were installed last.
    #[arg(long, value_name = "N", default_value_t = 2)]
    keep: usize,
    /// Also keep this release; can be repeated.
    #[arg(long = "pin", value_name = "ID")]
    pinned: Vec<String>,
    #[command(flatten)]
    installation: Installation,
    /// Only say what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args, output: &mut Output) -> Result<Exit> {
    let layout = args.installation.layout(context)?;
    let pinned = args.pinned.iter().map(|id| ReleaseId::parse(id)).collect::<Result<_, _>>()?;
    let options = prune::Options { keep: args.keep, pinned, dry_run: args.dry_run };
    let report = prune::prune(context, &layout, &options, &Interruption::watch())?;
    output.committed();
    for warning in &report.warnings {
        output.note(&format!("warning: {warning}"));
    }
    if args.json {
        output.document("prune", &report);
        return Ok(Exit::Ok);
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    for id in &report.removed {
        output.line(format!("{verb} {id}"));
    }
    for name in &report.removed_backups {
        output.line(format!("{verb} the backup of {name}"));
    }
    for kept in &report.kept {
        output.line(format!("kept {}: {}", kept.release_id, kept.why));
    }
    if report.removed.is_empty() && report.removed_backups.is_empty() {
        output.line("Nothing to remove.");
    }
    Ok(Exit::Ok)
}
