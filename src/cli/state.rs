//! `agent-bridge state`

use std::path::PathBuf;

use super::confirm::confirm;
use super::output::Output;
use super::paste;
use crate::config::Config;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::state::{self, Audit};
use crate::release::transaction::Interruption;

/// Check that nobody else can read your sessions.
///
/// `protect` makes it so. The state folder holds prompts and answers. Everything in it should belong to you and be open to you alone:
/// folders 0700, files 0600, no links and no names outside; on Windows nobody but you, SYSTEM and Administrators.
/// The server makes it so by itself. Without a subcommand this is `audit`, which changes nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The state folder (default: the one of the config).
    #[arg(long, value_name = "DIR", global = true)]
    state: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Look only. Exit code 0 if it is private, 3 if not.
    Audit,
    /// Set the permissions that are too wide, after writing down what they were.
    Protect {
        /// New file for the record of how it was, outside the state folder.
        #[arg(long, value_name = "FILE", required_unless_present = "dry_run")]
        backup: Option<PathBuf>,
        /// Only say what would be set.
        #[arg(long)]
        dry_run: bool,
        /// Don't ask.
        #[arg(long)]
        yes: bool,
    },
    /// Set the permissions back to what they were before `protect`.
    Restore {
        /// The record that `protect` wrote.
        #[arg(long, value_name = "FILE")]
        backup: PathBuf,
        /// Its SHA-256, which `protect` printed.
        #[arg(long, value_name = "HEX")]
        expect_sha256: String,
        /// Don't ask.
        #[arg(long)]
        yes: bool,
    },
}

pub fn run(
    context: &Context,
    load: impl FnOnce() -> Result<Config>,
    args: &Args,
    output: &mut Output,
) -> Result<Exit> {
    let folder = match &args.state {
        Some(folder) => context.cwd.join(folder),
        None => load()?.state_dir,
    };
    let audit = match args.command.as_ref().unwrap_or(&Command::Audit) {
        Command::Audit => state::audit(context, &folder)?,
        Command::Protect { backup, dry_run, yes } => {
            let backup = backup.as_ref().map(|file| context.cwd.join(file)).unwrap_or_default();
            if !dry_run {
                if !yes {
                    let planned = state::protect(context, &folder, &backup, &Interruption::default(), true)?;
                    for found in &planned.findings {
                        let path = if found.path.is_empty() { "." } else { &found.path };
                        output.note_indented(&format!("  {path}: {}", found.what), 6);
                    }
                    let items = planned.changed_items;
                    if items > 0 {
                        let folder = folder.display();
                        output.note(&format!("This sets the permissions of {items} in {folder}."));
                    }
                }
                confirm(output, "protect", *yes)?;
            }
            state::protect(context, &folder, &backup, &Interruption::watch(), *dry_run)?
        }
        Command::Restore { backup, expect_sha256, yes } => {
            confirm(output, "restore", *yes)?;
            let backup = context.cwd.join(backup);
            state::restore(context, &folder, &backup, expect_sha256, &Interruption::watch())?
        }
    };
    if args.json {
        output.document("state-protection", &audit);
    } else {
        show(&audit, output);
    }
    let judged = audit.status == "audited" && !matches!(args.command, Some(Command::Protect { .. }));
    Ok(if judged && !audit.compliant { Exit::VerificationFailed } else { Exit::Ok })
}

fn show(audit: &Audit, output: &mut Output) {
    for found in &audit.findings {
        let path = if found.path.is_empty() { "." } else { &found.path };
        let mend = if found.can_be_mended { "" } else { " (cannot be mended by permissions)" };
        output.wrapped(&format!("{path}: {}{mend}", found.what), 4);
    }
    let listed = audit.findings.len() as u64;
    if audit.violation_count > listed {
        output.line(format!("… and {} more", audit.violation_count - listed));
    }
    for path in &audit.gone {
        output.line(format!("{path}: not there any more"));
    }
    for parent in &audit.weak_parents {
        output.note(&format!("warning: above it, {parent}"));
    }
    let folder = audit.path.display();
    let changed = audit.changed_items;
    output.line(match (audit.status, audit.exists, audit.compliant) {
        (_, false, _) => format!("{folder} does not exist yet; the server makes it private."),
        ("protected", ..) => format!("protected: {folder}, {changed} of {} set", audit.scanned_items),
        ("restored", ..) => format!("restored: {folder}, {changed} set back"),
        ("unchanged", ..) => format!("nothing to do: {folder}"),
        ("audited", _, false) if changed > 0 => {
            format!("would set {changed} of {} in {folder}", audit.scanned_items)
        }
        (_, _, true) => format!("private: {folder}, {} looked at", audit.scanned_items),
        (_, _, false) if audit.violation_count == 1 => format!("NOT private: {folder}, 1 finding"),
        (_, _, false) => format!("NOT private: {folder}, {} findings", audit.violation_count),
    });
    if let (Some(backup), Some(sha256)) = (&audit.backup, &audit.backup_sha256) {
        let (folder, backup) = (folder.to_string(), backup.display().to_string());
        let words = ["agent-bridge", "state", "restore", "--state", &folder, "--backup", &backup];
        let undo = paste::line(words.into_iter().chain(["--expect-sha256", sha256]));
        output.line(format!("undo it with:\n  {undo}"));
    }
}
