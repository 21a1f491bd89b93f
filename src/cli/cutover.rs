//! `agent-bridge cutover` and `agent-bridge rollback`

use std::path::PathBuf;
use std::time::Duration;

use super::confirm::{confirm, parse_time};
use super::installation::Installation;
use super::output::{Output, remark};
use crate::context::Context;
use crate::digest;
use crate::error::{Error, Exit, Result};
use crate::release::cutover::{self, Request, Switched, TrialTerms};
use crate::release::transaction::Interruption;
use crate::release::{Layout, ReleaseError, ReleaseId, clients, rollback};

/// What both commands take.
#[derive(Debug, clap::Args)]
struct Common {
    /// Let what runs finish on the old release.
    #[arg(long)]
    soft: bool,
    /// Wait so long for what runs: 90s, 15m, 4h.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    wait: Duration,
    /// Go on although some processes cannot be looked at.
    #[arg(long)]
    allow_unreadable: bool,
    #[command(flatten)]
    installation: Installation,
    /// Why; goes into the journal and the history.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Don't ask for the release id; needed in scripts.
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
    /// The shared config to switch to.
    #[arg(long, value_name = "FILE", help_heading = "Along with the release")]
    stage_config: Option<PathBuf>,
    /// SHA-256 that it must have.
    #[arg(long, value_name = "HEX", requires = "stage_config", help_heading = "Along with the release")]
    expect_config_sha256: Option<String>,
    /// Our entry in the clients' files too.
    #[arg(long, help_heading = "Along with the release")]
    clients: bool,
    /// The launcher too, needed or not.
    #[arg(long, help_heading = "Along with the release")]
    update_launcher: bool,
    /// Go back by itself unless proven in this time.
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "On trial")]
    trial: Option<Duration>,
    /// Client handshakes that prove it.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "trial", help_heading = "On trial")]
    trial_handshakes: u32,
    /// Starts without one that end it.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "trial", help_heading = "On trial")]
    trial_failures: u32,
}

/// Go back to the newest generation known to be good.
///
/// Its config comes back with it. It is the same transaction as a cutover, with the same probe. The generation that is left is marked bad, so that no
/// later rollback chooses it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  agent-bridge rollback --dry-run\n  agent-bridge rollback --yes --reason 'answers were slow'\n  agent-bridge rollback --to 7"
)]
pub struct RollbackArgs {
    /// Go to this generation (see `agent-bridge history`).
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Go there even if it is known to be bad.
    #[arg(long, requires = "to")]
    force: bool,
    /// Leave the shared config as it is.
    #[arg(long)]
    keep_config: bool,
    #[command(flatten)]
    common: Common,
}

pub fn run_cutover(context: &Context, args: CutoverArgs, output: &mut Output) -> Result<Exit> {
    let layout = args.common.installation.layout(context)?;
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
    let layout = args.common.installation.layout(context)?;
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
    request.on_wait = tell_wait;
    request.allow_unreadable = common.allow_unreadable;
    request.reason.clone_from(&common.reason);
    let mut told = Vec::new();
    let mut switched = if common.dry_run {
        cutover::plan(context, layout, &request)?
    } else {
        if !common.yes {
            told = ask(context, layout, &request, &warnings, output)?;
        }
        let switched = cutover::switch(context, layout, &request, &Interruption::watch())?;
        output.committed();
        switched
    };
    switched.warnings.splice(0..0, warnings);
    for warning in switched.warnings.iter().filter(|warning| !told.contains(warning)) {
        output.note(&format!("warning: {warning}"));
    }
    show(&switched, common.json, output);
    if let Some(terms) = request.trial.filter(|_| switched.changed && switched.previous.is_some())
        && !common.json
    {
        output.wrapped(&format!("It is on trial: {}.", terms.sentence()), 2);
    }
    Ok(Exit::Ok)
}

fn tell_wait(names: &[String]) {
    let who = if names.is_empty() { "a process that cannot be named".into() } else { names.join("; ") };
    remark(&format!("waiting for {who}; Ctrl-C puts everything back"));
}

/// Says what would be done, and everything that speaks against it, before it is confirmed; gives the warnings that
/// were told.
fn ask(
    context: &Context,
    layout: &Layout,
    request: &Request,
    warnings: &[String],
    output: &mut Output,
) -> Result<Vec<String>> {
    let planned = cutover::plan(context, layout, request)?;
    if planned.status == "already-current" {
        return Ok(Vec::new());
    }
    let told: Vec<String> = warnings.iter().chain(&planned.warnings).cloned().collect();
    for warning in &told {
        output.note(&format!("warning: {warning}"));
    }
    output.note(&format!("This {} will:", request.operation));
    for step in &planned.steps {
        output.note(&format!("  {step}"));
    }
    confirm(output, request.target.as_str(), false).map_err(|error: Error| {
        error.with_hint(format!("Type {} when asked, or pass `--yes`.", request.target))
    })?;
    Ok(told)
}

fn show(switched: &Switched, json: bool, output: &mut Output) {
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
            let text = format!(
                "{} is current now, generation {}{before}.",
                switched.release_id, switched.generation
            );
            output.wrapped(&text, 2);
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
