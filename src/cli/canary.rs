//! `agent-bridge canary`

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::installation::Installation;
use super::output::{Output, duration};
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::ReleaseId;
use crate::release::canary::{self, CheckStatus, Record, Setting};

/// Prove that a release works, with nothing at stake.
///
/// For before a switch and after it. A canary starts the real program the way hosts do, in a throwaway world without your keys and, where the system
/// allows it, without a network. Pointer, launcher, config and client files are hashed before and after. What was
/// found is written to a new folder, pass or fail. Exit code 0 if every check held, 3 if one did not.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// New folder for the record, absolute (default: a temporary one).
    #[arg(long, value_name = "DIR", global = true)]
    evidence_dir: Option<PathBuf>,
    /// Longest time for one talk with the program.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, global = true, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    installation: Installation,
    /// Print one JSON document.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Start an installed release with every agent off and check what a host would see.
    ///
    /// Run it after `agent-bridge install-release`: every file by its hash, the handshake, exactly the pinned tools,
    /// its own diagnosis, and that no task is taken on.
    Release {
        /// The release, as `agent-bridge inspect` lists it.
        id: String,
    },
    /// Let an installed release start a scripted agent with hostile names, prompt and arguments.
    ///
    /// Each of them must arrive as it was written, and nothing in it may be executed.
    Launch {
        /// The release, as `agent-bridge inspect` lists it.
        id: String,
    },
    /// Start the launcher as clients do and check that it leads to the current release.
    ///
    /// Run it after a switch. The current generation is marked good if it passes and bad if it does not; a rollback
    /// goes to a good one.
    Pointer,
    /// Check whether a release starts with a config that is not in place yet.
    ///
    /// Run it before `agent-bridge cutover ID --stage-config FILE`. No agent is started.
    Config {
        /// The config.
        file: PathBuf,
        /// The release (default: the current one).
        #[arg(long, value_name = "ID")]
        release: Option<String>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    #[serde(flatten)]
    record: &'a Record,
    evidence_path: String,
}

pub fn run(context: &Context, args: &Args, output: &mut Output) -> Result<Exit> {
    let layout = args.installation.layout(context)?;
    let setting = Setting {
        evidence_dir: args.evidence_dir.as_deref(),
        deadline: Duration::from_secs(args.timeout),
        ..Setting::new(context, &layout)
    };
    let record = match &args.command {
        Command::Release { id } => canary::release(&setting, &ReleaseId::parse(id)?)?,
        Command::Launch { id } => canary::launch(&setting, &ReleaseId::parse(id)?)?,
        Command::Pointer => canary::pointer(&setting)?,
        Command::Config { file, release } => {
            let id = release.as_deref().map(ReleaseId::parse).transpose()?;
            canary::config(&setting, &context.cwd.join(file), id.as_ref())?
        }
    };
    if args.json {
        let mut document = serde_json::to_value(Document {
            record: &record,
            evidence_path: record.evidence.display().to_string(),
        })
        .unwrap_or_else(|_| json!({}));
        if let Value::Object(map) = &mut document {
            // The envelope has the kind already.
            map.remove("kind");
        }
        output.document(record.kind.as_str(), &document);
    } else {
        show(&record, output);
    }
    Ok(if record.passed() { Exit::Ok } else { Exit::VerificationFailed })
}

fn show(record: &Record, output: &mut Output) {
    for check in &record.checks {
        let word = match check.status {
            CheckStatus::Pass => "ok",
            CheckStatus::Warn => "warn",
            CheckStatus::Fail => "FAIL",
        };
        output.wrapped(&format!("{word:<5} {:<13} {}", check.name, check.detail), 20);
    }
    let id = record.release_id.as_ref().map_or_else(|| "unknown release".to_owned(), ToString::to_string);
    match &record.failure {
        None => output.line(format!(
            "passed: {} of {id} in {}",
            record.kind.as_str(),
            duration(record.duration_ms)
        )),
        Some(failure) => {
            output.line(format!("FAILED: {} of {id}: {}", record.kind.as_str(), failure.code));
            output.wrapped(&format!("  next: {}", failure.hint), 8);
        }
    }
    output.line(format!("record: {}", record.evidence.display()));
}
