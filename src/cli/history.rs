//! `agent-bridge history`

use serde::Serialize;

use super::installation::Installation;
use super::output::{Output, one_line};
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::generations::{self, Generation, Verdict};
use crate::release::transaction::Interruption;
use crate::release::{Layout, journal, pointer};

/// What was current when, and what became of it.
///
/// Each switch makes a generation. `good` is one that a canary or a client proved, `bad` one that failed or was left
/// by a rollback. A rollback goes to the newest good one before the current one.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    installation: Installation,
    /// Print one JSON document.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Set what is known of a generation.
    Mark {
        /// Its number.
        generation: u64,
        /// What is known.
        #[arg(value_parser = ["good", "bad", "unknown"])]
        verdict: String,
        /// Why.
        #[arg(long)]
        because: Option<String>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    current: Option<u64>,
    generations: Vec<Generation>,
    transactions: Vec<TransactionView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TransactionView {
    txid: String,
    operation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    began_at: String,
    outcome: &'static str,
}

pub fn run(context: &Context, args: Args, output: &mut Output) -> Result<Exit> {
    let layout = args.installation.layout(context)?;
    layout.require_installation()?;
    if let Some(Command::Mark { generation, verdict, because }) = args.command {
        let verdict = match verdict.as_str() {
            "good" => Verdict::Good,
            "bad" => Verdict::Bad,
            _ => Verdict::Unknown,
        };
        let because = because.unwrap_or_else(|| "marked by hand".into());
        generations::mark(&layout, context.clock, &Interruption::watch(), generation, verdict, &because)?;
        output.committed();
        output.note(&format!("Generation {generation} is {} now.", verdict.as_str()));
    }
    let document = Document {
        current: pointer::read(&layout)?.map(|(_, pointer)| pointer.generation),
        generations: generations::list(&layout)?,
        transactions: transactions(&layout)?,
    };
    if args.json {
        output.document("history", &document);
        return Ok(Exit::Ok);
    }
    if document.generations.is_empty() {
        output.line("Nothing was made current yet.");
        return Ok(Exit::Ok);
    }
    let rows: Vec<Vec<String>> =
        document.generations.iter().rev().map(|generation| row(generation, document.current)).collect();
    output.table(&["", "GENERATION", "PARENT", "RELEASE", "VERDICT", "WHEN", "WHY"], &rows);
    Ok(Exit::Ok)
}

fn row(generation: &Generation, current: Option<u64>) -> Vec<String> {
    // What it brought back says where its verdict is from.
    let because = generation.because.as_deref().filter(|because| {
        generation.restores.is_none_or(|number| *because != format!("as generation {number}"))
    });
    let why = [generation.reason.as_deref(), because];
    let why: Vec<&str> = why.into_iter().flatten().collect();
    let restores = generation.restores.map(|number| format!("back to {number}; ")).unwrap_or_default();
    vec![
        if current == Some(generation.number) { "*".into() } else { String::new() },
        generation.number.to_string(),
        generation.parent.map_or_else(|| "-".into(), |parent| parent.to_string()),
        generation.release_id.to_string(),
        generation.verdict.as_str().into(),
        generation.promoted_at.chars().take(19).collect(),
        one_line(&format!("{restores}{}", why.join("; ")), 80),
    ]
}

fn transactions(layout: &Layout) -> Result<Vec<TransactionView>> {
    let mut views = Vec::new();
    for transcript in journal::verify_all(layout)? {
        let Some((operation, reason, _)) = transcript.begin() else { continue };
        views.push(TransactionView {
            txid: transcript.txid.clone(),
            operation: operation.to_owned(),
            reason: reason.map(str::to_owned),
            began_at: transcript.records.first().map(|(at, _)| at.clone()).unwrap_or_default(),
            outcome: match transcript.outcome() {
                Some(journal::Outcome::Committed) => "committed",
                Some(journal::Outcome::Undone) => "undone",
                None => "unfinished",
            },
        });
    }
    Ok(views)
}
