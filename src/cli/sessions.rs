//! `agent-bridge sessions`

use serde_json::json;

use super::output::{Output, age, one_line, printable};
use crate::bridge::Bridge;
use crate::bridge::context_block::clip;
use crate::error::{Exit, Result};
use crate::mcp::outputs::{SessionSummary, TurnSummary, utc};
use crate::store::{BlobKind, Listed, Store};

/// List, show and search sessions.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List sessions, newest first.
    List {
        /// Most sessions to list.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
        limit: u16,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Show a session: its prompts and answers, clipped.
    Show {
        /// The session.
        id: String,
        /// Longest prompt or answer shown, in bytes.
        #[arg(long, default_value_t = 2000)]
        max: usize,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Search the prompts and answers of all sessions.
    Search {
        /// Words to look for; all must occur.
        #[arg(required = true)]
        query: Vec<String>,
        /// Most hits to list.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
        limit: u16,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
}

/// The store for looking only: nothing is made, and no database yet means nothing to show.
pub fn open(bridge: &Bridge) -> Result<Option<Store>> {
    Ok(Store::open_read_only(&bridge.config().state_dir, bridge.context().clock)?)
}

pub fn run(bridge: &Bridge, args: Args, output: &mut Output) -> Result<Exit> {
    match args.command {
        Command::List { limit, json } => list(bridge, limit, json, output),
        Command::Show { id, max, json } => show(bridge, &id, max, json, output),
        Command::Search { query, limit, json } => search(bridge, &query.join(" "), limit, json, output),
    }
}

/// Says what a list leaves out, so that nobody takes it for all there is.
pub fn tell_the_rest<R>(list: &Listed<R>, output: &mut Output) {
    for skipped in &list.skipped {
        output.note(&format!("warning: {} cannot be read: {}", skipped.id, skipped.reason));
    }
    if list.next.is_some() {
        output.note("There are older ones; --limit shows more.");
    }
}

/// A list with nothing in it.
pub fn nothing<R>() -> Listed<R> {
    Listed { rows: Vec::new(), skipped: Vec::new(), next: None }
}

fn list(bridge: &Bridge, limit: u16, as_json: bool, output: &mut Output) -> Result<Exit> {
    let list = match open(bridge)? {
        Some(store) => store.list_sessions(limit.into(), None)?,
        None => nothing(),
    };
    let rows = &list.rows;
    let now = bridge.context().clock.now_ms();
    if as_json {
        let sessions: Vec<_> = rows.iter().map(SessionSummary::new).collect();
        output.document("sessions", &json!({ "sessions": sessions }));
    } else if rows.is_empty() {
        output.note("There are no sessions yet. `agent-bridge delegate AGENT \"TASK\"` starts one.");
    } else {
        let cells = |row: &crate::store::SessionRow| {
            let agents: Vec<&str> = row.agents.iter().map(|agent| agent.as_str()).collect();
            vec![
                row.id.clone(),
                age(now, row.updated_at),
                row.turns.to_string(),
                agents.join(","),
                one_line(&row.title, 60),
            ]
        };
        output.table(
            &["SESSION", "AGE", "TURNS", "AGENTS", "TITLE"],
            &rows.iter().map(cells).collect::<Vec<_>>(),
        );
    }
    tell_the_rest(&list, output);
    Ok(Exit::Ok)
}

fn show(bridge: &Bridge, id: &str, max: usize, as_json: bool, output: &mut Output) -> Result<Exit> {
    let Some(store) = open(bridge)? else {
        return Err(crate::store::StoreError::SessionNotFound(id.to_owned()).into());
    };
    let session = store.session(id)?;
    let now = bridge.context().clock.now_ms();
    let mut turns = Vec::new();
    let mut next = Some(0);
    while let Some(from) = next {
        let page = store.turns(id, from, 200)?;
        turns.extend(page.rows);
        next = page.next_index;
    }
    let answer = |turn: &crate::store::TurnRow| {
        store
            .blobs()
            .head_tail(&turn.id, BlobKind::Answer, max)
            .map(|preview| preview.text)
            .unwrap_or_default()
    };
    if as_json {
        let turns: Vec<_> = turns
            .iter()
            .map(|turn| {
                let mut value = serde_json::to_value(TurnSummary::new(turn, now)).unwrap_or_default();
                value["prompt"] = clip(&turn.prompt, max).into();
                value["response"] = answer(turn).into();
                value
            })
            .collect();
        output.document("session", &json!({ "session": SessionSummary::new(&session), "turns": turns }));
        return Ok(Exit::Ok);
    }
    output.line(format!("session {}  revision {}", session.id, session.revision));
    output.line(format!("{}  in {}", one_line(&session.title, 100), session.cwd.display()));
    for turn in &turns {
        let outcome = turn.end.as_ref().map_or("running", |end| end.outcome.as_str());
        output.line(format!(
            "\n── turn {}  {}  {}  {outcome}  {}",
            turn.index,
            turn.agent,
            turn.sandbox,
            utc(turn.started_at)
        ));
        output.line(format!("> {}", printable(&clip(turn.prompt.trim(), max)).replace('\n', "\n> ")));
        let answer = answer(turn);
        if !answer.is_empty() {
            output.foreign(&answer);
            output.line("");
        }
        if let Some(detail) = turn.end.as_ref().and_then(|end| end.detail.as_deref()) {
            output.line(format!("({})", one_line(detail, 500)));
        }
    }
    Ok(Exit::Ok)
}

fn search(bridge: &Bridge, query: &str, limit: u16, as_json: bool, output: &mut Output) -> Result<Exit> {
    let hits = match open(bridge)? {
        Some(store) => store.search(query, limit.into())?.rows,
        None => Vec::new(),
    };
    if as_json {
        let hits: Vec<_> = hits
            .iter()
            .map(|hit| json!({ "bridge_session_id": hit.session, "turn": hit.index, "turn_id": hit.turn, "snippet": hit.snippet }))
            .collect();
        output.document("search", &json!({ "hits": hits }));
    } else if hits.is_empty() {
        output.note("Nothing found.");
    } else {
        let cells = |hit: &crate::store::Hit| {
            vec![hit.session.clone(), hit.index.to_string(), one_line(&hit.snippet, 100)]
        };
        output.table(&["SESSION", "TURN", "TEXT"], &hits.iter().map(cells).collect::<Vec<_>>());
    }
    Ok(Exit::Ok)
}
