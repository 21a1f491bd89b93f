//! `agent-bridge package`

use std::path::PathBuf;

use serde_json::{Value, json};

use super::output::Output;
use super::{completions, man};
use crate::context::Context;
use crate::error::{Error, Exit, INTERNAL_ERROR, Result};
use crate::release::ReleaseId;
use crate::release::bundle::{Difference, Method, Packaged, Plan, Request};
use crate::release::identity::Identity;
use crate::release::metadata::{METADATA_FILE, Metadata};
use crate::release::transaction::Interruption;

/// Make a bundle of the commit that is checked out.
///
/// A bundle (MCPB) is for one system and processor. It holds the program, what pins every file by SHA-256, the manifest for hosts, templates, completions and
/// manual pages. The same commit and the same program give the same bytes on every machine.
///
/// Beside the bundle: SHA256SUMS, a bill of materials (CycloneDX), and a fragment for the MCP registry. Nothing that is
/// there is written over, and nothing stays behind if something fails.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo build --release --locked && target/release/agent-bridge package
  agent-bridge package --binary agent-bridge.exe --out ../bundles
  agent-bridge package --reproduce agent-bridge-v1.0.0-linux-x86_64.mcpb
  sha256sum -c SHA256SUMS

SOURCE_DATE_EPOCH, if set, replaces the time of the commit.")]
pub struct Args {
    /// Clean git checkout (default: the current one).
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Program of that commit (default: this one).
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Folder or new .mcpb file (default: `dist` in it).
    #[arg(long, value_name = "PLACE")]
    out: Option<PathBuf>,
    /// Don't compress, for hosts that can't take that.
    #[arg(long)]
    store: bool,
    /// Say whether building it again gives this bundle; writes nothing.
    #[arg(long, value_name = "BUNDLE", conflicts_with_all = ["out", "download_folder", "dry_run"])]
    reproduce: Option<PathBuf>,
    /// Where the bundle will be fetched from, for the registry fragment.
    #[arg(long, value_name = "URL")]
    download_folder: Option<String>,
    /// Allow that this program, which writes the pages, is of another commit.
    #[arg(long)]
    other_packager: bool,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args, command: clap::Command, output: &mut Output) -> Result<Exit> {
    let absolute = |path: &PathBuf| context.cwd.join(path);
    let documents =
        completions::all(&command).into_iter().chain(man::all(command).map_err(|error| {
            Error::new(&INTERNAL_ERROR, format!("the manual pages cannot be made: {error}"))
        })?);
    let request = Request {
        repo: args.repo.as_ref().map_or_else(|| context.cwd.clone(), absolute),
        binary: args.binary.as_ref().map_or_else(|| context.exe.clone(), absolute),
        method: if args.store { Method::Stored } else { Method::Deflated },
        documents: documents.collect(),
        other_packager: args.other_packager,
    };
    let interruption = Interruption::watch();
    let plan = Plan::make(context, request)?;
    for note in &plan.notes {
        output.note(&format!("note: {note}"));
    }
    if let Some(given) = &args.reproduce {
        let differences = plan.reproduce(&absolute(given), &interruption)?;
        print_comparison(&differences, args.json, output);
        return Ok(if differences.is_empty() { Exit::Ok } else { Exit::VerificationFailed });
    }
    let destination = plan.destination(args.out.as_ref().map(absolute).as_deref())?;
    if args.dry_run {
        print_plan(&plan, &destination, args.json, output);
        return Ok(Exit::Ok);
    }
    let packaged = plan.publish(&destination, args.download_folder.as_deref(), &interruption)?;
    print_packaged(&packaged, args.json, output);
    Ok(Exit::Ok)
}

fn release_id(version: &str, git_sha: &str) -> String {
    ReleaseId::new(version, git_sha).map(|id| id.to_string()).unwrap_or_default()
}

fn print_comparison(differences: &[Difference], json: bool, output: &mut Output) {
    if json {
        let body = json!({ "identical": differences.is_empty(), "differences": differences });
        output.document("package-comparison", &body);
        return;
    }
    if differences.is_empty() {
        output.line("identical");
        return;
    }
    // The metadata pin everything, so they differ whenever anything does: what is told first is the cause.
    let (pins, cause): (Vec<_>, Vec<_>) =
        differences.iter().partition(|difference| difference.entry.as_deref() == Some(METADATA_FILE));
    output.line("different");
    for difference in cause.iter().chain(&pins) {
        let place = difference.entry.as_deref().unwrap_or("the file");
        let byte = difference.byte.map(|byte| format!(", from byte {byte}")).unwrap_or_default();
        output.line(format!("  {place}: {}{byte}", difference.what));
    }
}

fn print_plan(plan: &Plan, destination: &std::path::Path, json: bool, output: &mut Output) {
    let identity: &Identity = plan.identity();
    let paths = plan.paths();
    if json {
        let body = json!({ "dryRun": true, "bundle": destination, "identity": identity, "entries": paths });
        output.document("package", &body);
        return;
    }
    output.line(format!("Would write {}", destination.display()));
    output.line(format!("  program  {}", identity.describe()));
    for path in paths {
        output.line(format!("  {path}"));
    }
}

fn print_packaged(packaged: &Packaged, json: bool, output: &mut Output) {
    let Packaged { bundle, sha256, bytes, metadata, sidecars } = packaged;
    let metadata: &Metadata = metadata;
    let id = release_id(&metadata.version, &metadata.git_sha);
    if json {
        let entries: Vec<Value> = metadata
            .files
            .iter()
            .map(|(path, file)| json!({ "path": path, "sha256": file.sha256, "bytes": file.bytes, "mode": file.mode }))
            .collect();
        let body = json!({
            "dryRun": false, "bundle": bundle, "sha256": sha256, "bytes": bytes, "releaseId": id,
            "version": metadata.version, "gitSha": metadata.git_sha, "builtAt": metadata.built_at,
            "target": metadata.target, "runtime": metadata.runtime, "entries": entries, "sidecars": sidecars,
        });
        output.document("package", &body);
        return;
    }
    output.line(format!("{}", bundle.display()));
    output.line(format!("  sha256   {sha256}"));
    output.line(format!("  bytes    {bytes}"));
    output.line(format!("  release  {id}, {}", metadata.target.triple));
    if let Ok(runtime) = metadata.runtime_record() {
        output.line(format!("  program  {}, {} bytes", runtime.sha256, runtime.bytes));
    }
    for sidecar in sidecars {
        output.line(format!("  beside   {}", sidecar.path.display()));
    }
}
