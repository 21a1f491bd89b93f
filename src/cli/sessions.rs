//! `agent-bridge sessions`

use serde_json::json;

use super::output::{Output, one_line};
use crate::bridge::Bridge;
use crate::bridge::context_block::clip;
use crate::error::{Exit, Result};
use crate::mcp::outputs::{SessionSummary, TurnSummary, utc};
use crate::store::{BlobKind, Store};

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
        #[arg(long, default_value_t = 20)]
        limit: usize,
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
        #[arg(long, default_value_t = 20)]
        limit: usize,
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

fn list(bridge: &Bridge, limit: usize, as_json: bool, output: &mut Output) -> Result<Exit> {
    let (rows, skipped) = match open(bridge)? {
        Some(store) => store.list_sessions(limit, None).map(|list| (list.rows, list.skipped))?,
        None => (Vec::new(), Vec::new()),
    };
    output.skipped("session", &skipped);
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
                utc(row.updated_at),
                row.turns.to_string(),
                agents.join(","),
                one_line(&row.title, 60),
            ]
        };
        output.table(
            &["SESSION", "UPDATED", "TURNS", "AGENTS", "TITLE"],
            &rows.iter().map(cells).collect::<Vec<_>>(),
        );
    }
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
        output.skipped("turn", &page.skipped);
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
        output.line(format!("> {}", clip(turn.prompt.trim(), max).replace('\n', "\n> ")));
        output.line(printable(&answer(turn)));
    }
    Ok(Exit::Ok)
}

/// Answers are another program's words: no terminal codes from them.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

fn search(bridge: &Bridge, query: &str, limit: usize, as_json: bool, output: &mut Output) -> Result<Exit> {
    let hits = match open(bridge)? {
        Some(store) => store.search(query, limit)?.rows,
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
