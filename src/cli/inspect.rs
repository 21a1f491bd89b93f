//! `agent-bridge inspect`

use super::installation::Installation;
use super::output::Output;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::ReleaseId;
use crate::release::inspect::{self, Inspection};

/// Say what is current, and whether all of it is whole.
///
/// The installation is the folder of --root; else of AGENT_BRIDGE_ROOT; else the one that this program is in; else the
/// usual place of the system. Changes nothing and starts nothing. Without --expect the exit code is 0 whatever was found. With it: 0 if exactly
/// that release is current and whole, 3 if it is not, 2 if it is not installed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The release that should be current.
    #[arg(long, value_name = "ID")]
    expect: Option<String>,
    /// Hash every installed release, not only the current one.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    installation: Installation,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args, output: &mut Output) -> Result<Exit> {
    let layout = args.installation.layout(context)?;
    let expect = args.expect.as_deref().map(ReleaseId::parse).transpose()?;
    let found = inspect::inspect(context, &layout, &inspect::Options { expect, all: args.all })?;
    if args.json {
        output.document("inspection", &found);
    } else {
        show(&found, output);
    }
    Ok(match found.status {
        _ if args.expect.is_none() => Exit::Ok,
        "current" => Exit::Ok,
        "not-installed" => Exit::Refused,
        _ => Exit::VerificationFailed,
    })
}

fn show(found: &Inspection, output: &mut Output) {
    output.line(format!("Installation  {}", found.root.display()));
    match &found.current {
        None => output.line("Current       nothing"),
        Some(pointer) => {
            let verdict =
                found.verdict.map(|verdict| format!(", verdict {}", verdict.as_str())).unwrap_or_default();
            let trial = if pointer.trial.is_some() { ", on trial" } else { "" };
            let text = format!(
                "Current       {} (generation {}{verdict}{trial}) since {}",
                pointer.release_id, pointer.generation, pointer.promoted_at
            );
            output.wrapped(&text, 14);
        }
    }
    let said = |recorded| match recorded {
        Some(true) => "as recorded",
        Some(false) => "changed since the switch",
        None => "there",
    };
    for (name, file) in [("Launcher", &found.launcher), ("Config", &found.config)] {
        let state = if file.sha256.is_some() { said(file.as_recorded) } else { "missing" };
        output.line(format!("{name:<13} {} ({state})", file.path.display()));
    }
    for release in &found.releases {
        let mark = if release.current { "*" } else { " " };
        let receipt = if release.receipt { "" } else { ", no receipt" };
        output.line(format!("Release      {mark}{} ({}{receipt})", release.release_id, release.state));
    }
    output.line(format!("Journal       {} transactions", found.journal.transactions));
    if !found.backups.is_empty() {
        let bytes: u64 = found.backups.iter().map(|backup| backup.bytes).sum();
        output.line(format!("Backups       {} ({bytes} bytes)", found.backups.len()));
    }
    for finding in &found.findings {
        output.wrapped(&format!("{:<13} {} (next: {})", finding.level, finding.what, finding.next), 14);
    }
    output.line(match found.status {
        "current" if found.findings.is_empty() => "Verdict: whole.".to_owned(),
        "current" => "Verdict: works; see above.".to_owned(),
        "not-current" => "Verdict: installed, nothing is current. Next: agent-bridge cutover ID".to_owned(),
        "not-installed" => "Verdict: not installed. Next: agent-bridge install-release BUNDLE".to_owned(),
        _ => "Verdict: not as it should be; see above.".to_owned(),
    });
}
