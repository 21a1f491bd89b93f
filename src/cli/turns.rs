//! `agent-bridge turns`

use std::time::Duration;

use serde_json::json;

use super::delegate::copy_blob;
use super::output::{Output, duration, one_line};
use super::sessions::open;
use crate::bridge::view::turn_view;
use crate::bridge::{Bridge, WaitedTurn};
use crate::error::{Exit, Result};
use crate::mcp::outputs::{TurnSummary, utc};
use crate::store::{BlobKind, StoreError, TurnFilter, TurnRow, TurnState};

/// List, show, wait for, cancel and page turns.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List turns, newest first.
    List {
        /// Only of this session.
        #[arg(long)]
        session: Option<String>,
        /// Only running ones.
        #[arg(long)]
        running: bool,
        /// Most turns to list.
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Show a turn with a preview of its answer.
    Show {
        /// The turn.
        id: String,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Wait for a turn. Exit code 75 if it is still running after that.
    Wait {
        /// The turn.
        id: String,
        /// How long, in seconds.
        #[arg(long, default_value_t = 8000)]
        timeout: u64,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// End a running turn and its whole process tree.
    Cancel {
        /// The turn.
        id: String,
        /// Why, for the record.
        #[arg(long, default_value = "cancelled at the terminal")]
        reason: String,
    },
    /// Print a turn's whole answer, standard error or raw output.
    Output {
        /// The turn.
        id: String,
        /// Which text.
        #[arg(long, value_enum, default_value_t = Field::Output)]
        field: Field,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Field {
    /// The final answer.
    Output,
    /// Standard error.
    Stderr,
    /// Raw standard output, as the agent printed it.
    Stdout,
}

pub fn run(bridge: &Bridge, args: Args, output: &mut Output) -> Result<Exit> {
    match args.command {
        Command::List { session, running, limit, json } => {
            list(bridge, session, running, limit, json, output)
        }
        Command::Show { id, json } => wait(bridge, &id, Duration::ZERO, json, output).map(|_| Exit::Ok),
        Command::Wait { id, timeout, json } => {
            let state = wait(bridge, &id, Duration::from_secs(timeout), json, output)?;
            Ok(if state == TurnState::Finished { Exit::Ok } else { Exit::RetryLater })
        }
        Command::Cancel { id, reason } => cancel(bridge, &id, &reason, output),
        Command::Output { id, field } => {
            let store = open(bridge)?.ok_or_else(|| StoreError::TurnNotFound(id.clone()))?;
            let turn = store.turn(&id)?;
            let kind = match field {
                Field::Output => BlobKind::Answer,
                Field::Stderr => BlobKind::Stderr,
                Field::Stdout => BlobKind::Stdout,
            };
            if kind == BlobKind::Answer {
                store.check_answer(&turn)?;
            }
            copy_blob(&store, &turn.id, kind, output)?;
            Ok(Exit::Ok)
        }
    }
}

fn list(
    bridge: &Bridge,
    session: Option<String>,
    running: bool,
    limit: usize,
    as_json: bool,
    output: &mut Output,
) -> Result<Exit> {
    let filter = TurnFilter { state: running.then_some(TurnState::Running), agent: None, session };
    let (rows, skipped) = if open(bridge)?.is_none() {
        (Vec::new(), Vec::new())
    } else {
        super::event_loop()?.block_on(async {
            bridge.reconcile().await?;
            let list = bridge.with_store(move |store| Ok(store.list_turns(&filter, limit, None)?)).await?;
            Ok::<_, crate::error::Error>((list.rows, list.skipped))
        })?
    };
    output.skipped("turn", &skipped);
    let now = bridge.context().clock.now_ms();
    if as_json {
        let turns: Vec<_> = rows.iter().map(|row| TurnSummary::new(row, now)).collect();
        output.document("turns", &json!({ "turns": turns }));
    } else if rows.is_empty() {
        output.note("There are no such turns.");
    } else {
        let cells = |row: &TurnRow| {
            let summary = TurnSummary::new(row, now);
            let outcome = row.end.as_ref().map_or("running", |end| end.outcome.as_str());
            vec![
                row.id.clone(),
                utc(row.started_at),
                row.agent.to_string(),
                outcome.to_owned(),
                duration(summary.duration_ms),
                one_line(&row.prompt, 60),
            ]
        };
        output.table(
            &["TURN", "STARTED", "AGENT", "OUTCOME", "TIME", "PROMPT"],
            &rows.iter().map(cells).collect::<Vec<_>>(),
        );
    }
    Ok(Exit::Ok)
}

fn wait(bridge: &Bridge, id: &str, limit: Duration, as_json: bool, output: &mut Output) -> Result<TurnState> {
    if open(bridge)?.is_none() {
        return Err(StoreError::TurnNotFound(id.to_owned()).into());
    }
    let waited = super::event_loop()?.block_on(bridge.wait(id, limit, |_, _| ()))?;
    let state = waited.row.state;
    print(bridge, waited, as_json, output)?;
    Ok(state)
}

fn print(bridge: &Bridge, waited: WaitedTurn, as_json: bool, output: &mut Output) -> Result<()> {
    let now = bridge.context().clock.now_ms();
    let view = super::event_loop()?
        .block_on(bridge.with_store(move |store| turn_view(store, &waited, now, 8_000)))?;
    if as_json {
        output.document("turn", &view);
    } else {
        output.line(crate::mcp::turn_text(&view));
    }
    Ok(())
}

fn cancel(bridge: &Bridge, id: &str, reason: &str, output: &mut Output) -> Result<Exit> {
    if open(bridge)?.is_none() {
        return Err(StoreError::TurnNotFound(id.to_owned()).into());
    }
    let (asked, waited) =
        super::event_loop()?.block_on(bridge.cancel(id, reason, Duration::from_secs(10)))?;
    if !asked {
        output.note("The turn had already finished; nothing was cancelled.");
    }
    let state = waited.row.state;
    print(bridge, waited, false, output)?;
    Ok(if state == TurnState::Finished { Exit::Ok } else { Exit::RetryLater })
}
