//! `agent-bridge turns`

use std::time::Duration;

use serde_json::json;

use super::delegate::copy_blob;
use super::output::{Output, age, duration, one_line};
use super::questions::{self, Waiting};
use super::sessions::{nothing, open, tell_the_rest};
use super::turn_text;
use crate::bridge::questions::GivenAnswer;
use crate::bridge::view::turn_view;
use crate::bridge::{Bridge, WaitedTurn};
use crate::error::{Exit, Result};
use crate::mcp::outputs::TurnSummary;
use crate::store::{BlobKind, StoreError, TurnFilter, TurnRow, TurnState};

/// List, show, wait for, cancel, page and answer turns.
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
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Only running ones.
        #[arg(long)]
        running: bool,
        /// Most turns to list.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
        limit: u16,
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
    /// Wait for a turn. Exit codes as `delegate`: 75 if it is still running after that.
    Wait {
        /// The turn.
        id: String,
        /// How long, in seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 8000)]
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
    /// List what workers ask and still wait for.
    Questions {
        /// Only of this turn.
        #[arg(long, value_name = "ID")]
        turn: Option<String>,
        /// Settled ones too.
        #[arg(long)]
        all: bool,
        /// Most questions to list.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
        limit: u16,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Answer a worker's question. The first answer stands.
    Answer {
        /// The question.
        id: String,
        /// The answer to a question, or a reason.
        #[arg(long, required_unless_present_any = ["approve", "deny"])]
        text: Option<String>,
        /// Let the worker do what it asks for.
        #[arg(long, conflicts_with = "deny")]
        approve: bool,
        /// Do not let it.
        #[arg(long)]
        deny: bool,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
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
        Command::Wait { id, timeout, json } => wait(bridge, &id, Duration::from_secs(timeout), json, output),
        Command::Cancel { id, reason } => cancel(bridge, &id, &reason, output),
        Command::Questions { turn, all, limit, json } => {
            questions::list(bridge, turn, all, limit, json, output)
        }
        Command::Answer { id, text, approve, deny, json } => {
            let answer = GivenAnswer { approved: (approve || deny).then_some(approve), text };
            questions::answer(bridge, &id, answer, json, output)
        }
        Command::Output { id, field } => {
            let store = open(bridge)?.ok_or_else(|| StoreError::TurnNotFound(id.clone()))?;
            let turn = store.turn(&id)?;
            let kind = match field {
                Field::Output => BlobKind::Answer,
                Field::Stderr => BlobKind::Stderr,
                Field::Stdout => BlobKind::Stdout,
            };
            copy_blob(&store, &turn.id, kind, output)?;
            Ok(Exit::Ok)
        }
    }
}

fn list(
    bridge: &Bridge,
    session: Option<String>,
    running: bool,
    limit: u16,
    as_json: bool,
    output: &mut Output,
) -> Result<Exit> {
    let filter = TurnFilter { state: running.then_some(TurnState::Running), agent: None, session };
    let list = if open(bridge)?.is_none() {
        nothing()
    } else {
        super::event_loop()?.block_on(async {
            bridge.reconcile().await?;
            bridge.with_store(move |store| Ok(store.list_turns(&filter, limit.into(), None)?)).await
        })?
    };
    let rows = &list.rows;
    let now = bridge.context().clock.now_ms();
    if as_json {
        let turns: Vec<_> = rows.iter().map(|row| TurnSummary::new(row, now)).collect();
        output.document("turns", &json!({ "turns": turns }));
    } else if rows.is_empty() {
        output.note("There are no such turns. `agent-bridge delegate AGENT \"TASK\"` starts one.");
    } else {
        let cells = |row: &TurnRow| {
            let summary = TurnSummary::new(row, now);
            let outcome = row.end.as_ref().map_or("running", |end| end.outcome.as_str());
            vec![
                row.id.clone(),
                age(now, row.started_at),
                row.agent.to_string(),
                outcome.to_owned(),
                duration(summary.duration_ms),
                one_line(&row.prompt, 60),
            ]
        };
        output.table(
            &["TURN", "AGE", "AGENT", "OUTCOME", "TIME", "PROMPT"],
            &rows.iter().map(cells).collect::<Vec<_>>(),
        );
    }
    tell_the_rest(&list, output);
    Ok(Exit::Ok)
}

fn wait(bridge: &Bridge, id: &str, limit: Duration, as_json: bool, output: &mut Output) -> Result<Exit> {
    if open(bridge)?.is_none() {
        return Err(StoreError::TurnNotFound(id.to_owned()).into());
    }
    let mut waiting = Waiting::new(false, output.stderr_is_terminal);
    let waited = super::event_loop()?.block_on(waiting.wait(bridge, id, limit, |_, _| (), || ()))?;
    print(bridge, waited, as_json, output)
}

fn print(bridge: &Bridge, waited: WaitedTurn, as_json: bool, output: &mut Output) -> Result<Exit> {
    let now = bridge.context().clock.now_ms();
    let view = super::event_loop()?
        .block_on(bridge.with_store(move |store| turn_view(store, &waited, now, 8_000)))?;
    if as_json {
        output.document("turn", &view);
    } else {
        turn_text::print(&view, output);
    }
    Ok(turn_text::exit_of(&view))
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
    // Asked for an end: that there is one is the success.
    Ok(if state == TurnState::Finished { Exit::Ok } else { Exit::RetryLater })
}
