//! `agent-bridge install-release`

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::installation::Installation;
use super::output::Output;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::install::{self, Installed, Request, Step};
use crate::release::transaction::Interruption;

/// Install a release from a bundle.
///
/// SOURCE is a bundle (a .mcpb file; its SHA-256 is compared before anything else of it is read), a folder that holds an unpacked one, or an OCI image layout folder whose one
/// layer is a bundle. All of it is verified before anything is written: the archive, every file against its pinned
/// SHA-256, and that it is for this machine. Then it is written beside its place, moved in as a whole and made
/// read-only. What is current does not change: that is what `cutover` is for.
///
/// Installing the same release again changes nothing. Exit code 3 if the bundle is damaged or hostile.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Bundle, folder with an unpacked bundle, or OCI layout folder.
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// SHA-256 that the bundle must have, as in SHA256SUMS.
    #[arg(long, value_name = "HEX")]
    expect_sha256: Option<String>,
    /// Replace an installed release that is damaged.
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    installation: Installation,
    /// Why; goes into the journal.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only say what would be done; verifies everything.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args, output: &mut Output) -> Result<Exit> {
    let layout = args.installation.layout(context)?;
    let source = context.cwd.join(&args.source);
    let request = Request {
        source: &source,
        expect_sha256: args.expect_sha256.as_deref(),
        repair: args.repair,
        dry_run: args.dry_run,
        reason: args.reason.as_deref(),
    };
    let bar = bar(output.stderr_is_terminal);
    let mut progress = |step, done, total| show(&bar, step, done, total);
    let result = install::install(context, &layout, &request, &Interruption::watch(), &mut progress);
    bar.finish_and_clear();
    let report = result?;
    output.committed();
    for path in &report.removed_leftovers {
        output.note(&format!("Removed what a killed install had left: {}", path.display()));
    }
    for warning in &report.warnings {
        output.note(&format!("warning: {warning}"));
    }
    if report.quarantine_cleared > 0 {
        let count = report.quarantine_cleared;
        output.note(&format!("Took the quarantine mark off {count} files whose hashes were verified."));
    }
    if args.json {
        output.document("install", &report);
    } else {
        print(&report, output);
    }
    Ok(Exit::Ok)
}

fn print(report: &Installed, output: &mut Output) {
    let id = &report.release_id;
    output.line(match report.status {
        "already-installed" => format!("{id} is already installed, and whole"),
        "would-install" => format!("{id} would be installed"),
        "would-repair" => format!("{id} would be repaired"),
        status => format!("{status} {id}"),
    });
    output.line(format!("  folder  {}", report.release_path.display()));
    output.line(format!("  files   {} ({} bytes), each with its pinned SHA-256", report.files, report.bytes));
    if let Some(sha256) = &report.bundle_sha256 {
        output.line(format!("  bundle  {sha256}"));
    }
    if report.txid.is_some() {
        output.note(&format!("next: agent-bridge canary release {id}, then agent-bridge cutover {id}"));
    }
}

fn bar(is_terminal: bool) -> ProgressBar {
    let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let template = "{msg:10} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}";
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, step: Step, done: u64, total: u64) {
    if bar.is_hidden() {
        return;
    }
    if done == 0 {
        bar.set_length(total);
        bar.set_message(match step {
            Step::Hash => "comparing",
            Step::Verify => "verifying",
            Step::Write => "writing",
        });
    }
    bar.set_position(done);
    if done == 0 {
        // A quick step is seen too.
        bar.force_draw();
    }
}
