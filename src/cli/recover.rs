//! `agent-bridge recover`

use std::time::Duration;

use super::installation::Installation;
use super::output::Output;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::{lease, recovery};

/// How long another one who has the gate closed is waited for.
const WAIT_FOR_GATE: Duration = Duration::from_secs(5);

/// Finish or undo a command that was cut off in the middle.
///
/// Every change of an installation is written into a journal before it is made. If a cutover, an install or any
/// other command was killed, this undoes it (if it was not decided yet) or completes it (if it was). It can be run
/// at any time, and again if it is itself cut off. Exit code 0 also if there is nothing to do.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    installation: Installation,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args, output: &mut Output) -> Result<Exit> {
    let layout = args.installation.layout(context)?;
    let report = match args.dry_run {
        true => recovery::recover(&layout, context.clock, true)?,
        false => lease::recover(&layout, context.clock, WAIT_FOR_GATE)?,
    };
    output.committed();
    if args.json {
        output.document("recovery", &report);
        return Ok(Exit::Ok);
    }
    let Some(txid) = &report.txid else {
        output.line("Nothing to recover.");
        return Ok(Exit::Ok);
    };
    output.line(match (report.outcome, args.dry_run) {
        ("completed", true) => format!("{txid} was decided and will be completed:"),
        ("completed", false) => format!("{txid} was decided; completed:"),
        (_, true) => format!("{txid} was not decided and will be undone:"),
        (_, false) => format!("{txid} was not decided; undone:"),
    });
    for step in &report.steps {
        output.line(format!("  {step}"));
    }
    for path in &report.conflicts {
        output.note(&format!(
            "warning: {} was changed by another program and was left as it is",
            path.display()
        ));
    }
    Ok(Exit::Ok)
}
