//! `agent-bridge cutover` and `agent-bridge rollback`

use std::path::PathBuf;
use std::time::Duration;

use super::confirm::{confirm, parse_time};
use super::output::Output;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::release::cutover::{self, Request, Switched, TrialTerms};
use crate::release::transaction::Interruption;
use crate::release::{Layout, ReleaseError, ReleaseId, clients, digest, rollback};

/// What both commands take.
#[derive(Debug, clap::Args)]
struct Common {
    /// Installation folder.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Let old processes finish on the old release instead of waiting for them to end.
    #[arg(long)]
    soft: bool,
    /// How long to wait for running servers and turns to end: 90s, 15m, 4h.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    wait: Duration,
    /// Go on although some processes cannot be looked at.
    #[arg(long)]
    allow_unreadable: bool,
    /// Why; goes into the journal and the history.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Don't ask; needed where nobody can be asked.
    #[arg(long)]
    yes: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Switch to an installed release.
///
/// Verifies the whole release, closes the gate so that nothing new starts, waits until nothing runs, puts launcher,
/// client files and config in place, starts the release through the launcher and asks for its tools; only then it
/// becomes current. Until that moment any failure, Ctrl-C or crash leaves everything as it was; after it the switch
/// is complete or `agent-bridge recover` completes it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  agent-bridge cutover 1.2.0+0a1b2c3 --dry-run\n  agent-bridge cutover 1.2.0+0a1b2c3 --yes --reason 'weekly update'\n  agent-bridge cutover 1.2.0+0a1b2c3 --soft --trial 24h --yes"
)]
pub struct CutoverArgs {
    /// The release, as `agent-bridge inspect` lists it.
    release: String,
    #[command(flatten)]
    common: Common,
    /// Switch to this shared config together with the release.
    #[arg(long, value_name = "FILE")]
    stage_config: Option<PathBuf>,
    /// SHA-256 that the staged config must have.
    #[arg(long, value_name = "HEX", requires = "stage_config")]
    expect_config_sha256: Option<String>,
    /// Also write our entry into the config files of the clients that are installed.
    #[arg(long)]
    clients: bool,
    /// Replace the launcher by this release's program even if the old one would do.
    #[arg(long)]
    update_launcher: bool,
    /// Go back by itself unless clients have shaken hands within this time, or if it fails to start.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    trial: Option<Duration>,
    /// Client handshakes that end a trial well.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "trial")]
    trial_handshakes: u32,
    /// Starts without a handshake that end a trial badly.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "trial")]
    trial_failures: u32,
}

/// Go back to the newest generation that is known to be good, with its config.
///
/// The same transaction as a cutover, with the same probe. The generation that is left is marked bad, so that no
/// later rollback chooses it.
#[derive(Debug, clap::Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    common: Common,
    /// Go to this generation (see `agent-bridge history`).
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Go there even if it is known to be bad.
    #[arg(long, requires = "to")]
    force: bool,
    /// Leave the shared config as it is.
    #[arg(long)]
    keep_config: bool,
}

pub fn run_cutover(context: &Context, args: CutoverArgs, output: &mut Output) -> Result<Exit> {
    let layout = Layout::select(context, args.common.root.as_deref())?;
    let mut request = Request::to(ReleaseId::parse(&args.release)?);
    if let Some(path) = &args.stage_config {
        let bytes = std::fs::read(path).map_err(ReleaseError::io("cannot read", path))?;
        if let Some(expected) = &args.expect_config_sha256
            && !expected.eq_ignore_ascii_case(&digest::of_bytes(&bytes))
        {
            let why = format!("{} is not the config with SHA-256 {expected}", path.display());
            return Err(ReleaseError::Incompatible { id: args.release, why }.into());
        }
        request.config = Some(bytes);
    }
    if args.clients {
        request.clients = Some(clients::plan(context, &layout, &clients::Options::default())?);
    }
    request.update_launcher = args.update_launcher;
    request.trial = args.trial.map(|time| TrialTerms {
        time,
        handshakes: args.trial_handshakes.max(1),
        failed_starts: args.trial_failures.max(1),
    });
    switch(context, &layout, request, &args.common, Vec::new(), output)
}

pub fn run_rollback(context: &Context, args: RollbackArgs, output: &mut Output) -> Result<Exit> {
    let layout = Layout::select(context, args.common.root.as_deref())?;
    let options = rollback::Options {
        to: args.to,
        force: args.force,
        keep_config: args.keep_config,
        reason: args.common.reason.clone(),
    };
    let (request, warnings) = rollback::request(&layout, &options)?;
    switch(context, &layout, request, &args.common, warnings, output)
}

fn switch(
    context: &Context,
    layout: &Layout,
    mut request: Request,
    common: &Common,
    warnings: Vec<String>,
    output: &mut Output,
) -> Result<Exit> {
    request.soft = common.soft;
    request.wait = common.wait;
    request.allow_unreadable = common.allow_unreadable;
    request.reason.clone_from(&common.reason);
    let mut switched = if common.dry_run {
        cutover::plan(context, layout, &request)?
    } else {
        if !common.yes {
            ask(context, layout, &request, output)?;
        }
        let switched = cutover::switch(context, layout, &request, &Interruption::watch())?;
        output.committed();
        switched
    };
    switched.warnings.splice(0..0, warnings);
    show(&switched, common.json, output);
    Ok(Exit::Ok)
}

fn ask(context: &Context, layout: &Layout, request: &Request, output: &mut Output) -> Result<()> {
    let planned = cutover::plan(context, layout, request)?;
    if planned.status == "already-current" {
        return Ok(());
    }
    for step in &planned.steps {
        output.note(&format!("  {step}"));
    }
    confirm(output, request.target.as_str(), false).map_err(|error: Error| {
        error.with_hint(format!("Type {} when asked, or pass `--yes`.", request.target))
    })
}

fn show(switched: &Switched, json: bool, output: &mut Output) {
    for warning in &switched.warnings {
        output.note(&format!("warning: {warning}"));
    }
    if json {
        output.document("cutover", switched);
        return;
    }
    match switched.status {
        "already-current" => output.line(format!(
            "{} is current already (generation {}); nothing was changed.",
            switched.release_id, switched.generation
        )),
        "planned" => {
            output.line(format!("Would switch to {}:", switched.release_id));
            for step in &switched.steps {
                output.line(format!("  {step}"));
            }
        }
        _ => {
            let before = switched
                .previous
                .as_ref()
                .map(|previous| {
                    format!(" (before: {}, generation {})", previous.release_id, previous.generation)
                })
                .unwrap_or_default();
            output.line(format!(
                "{} is current now, generation {}{before}.",
                switched.release_id, switched.generation
            ));
            if let Some(ms) = switched.downtime_ms {
                output.line(format!(
                    "The gate was closed for {ms} ms. The target listed {} tools.",
                    switched.tools.unwrap_or(0)
                ));
            }
            for path in &switched.clients {
                output.line(format!("  wrote our entry into {}", path.display()));
            }
        }
    }
}
