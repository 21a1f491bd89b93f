//! `agent-bridge audit`

use serde_json::json;

use super::output::{Output, age, one_line};
use super::sessions::{nothing, open, tell_the_rest};
use crate::bridge::Bridge;
use crate::error::{Exit, Result};
use crate::mcp::outputs::utc;
use crate::store::{AuditFilter, AuditRow, AuditVerdict};

/// List what was done, and check that the trail is whole.
///
/// Each start, end and cancel of a turn and each call of a worker is a record that carries a digest of itself and of
/// the one before it. `verify` walks the chain.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  agent-bridge audit list --kind scope-call --limit 50\n  agent-bridge audit list --turn TURN --json\n  agent-bridge audit verify\n  agent-bridge audit verify --noted DIGEST   a digest that you noted earlier"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List records, newest first.
    List {
        /// Only records of this kind, for instance turn-began or scope-call.
        #[arg(long)]
        kind: Option<String>,
        /// Only records about this session.
        #[arg(long)]
        session: Option<String>,
        /// Only records about this turn.
        #[arg(long)]
        turn: Option<String>,
        /// Only records before this one.
        #[arg(long, value_name = "RECORD")]
        before: Option<i64>,
        /// Most records to list.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
        limit: u16,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Check that no record was changed, put in or taken out.
    Verify {
        /// A digest that was noted earlier: it must still be in the trail.
        #[arg(long, value_name = "DIGEST")]
        noted: Option<String>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(bridge: &Bridge, args: Args, output: &mut Output) -> Result<Exit> {
    match args.command {
        Command::List { kind, session, turn, before, limit, json } => {
            list(bridge, &AuditFilter { kind, session, turn, before }, limit, json, output)
        }
        Command::Verify { noted, json } => verify(bridge, noted.as_deref(), json, output),
    }
}

fn list(
    bridge: &Bridge,
    filter: &AuditFilter,
    limit: u16,
    as_json: bool,
    output: &mut Output,
) -> Result<Exit> {
    let list = match open(bridge)? {
        Some(store) => store.audit_rows(filter, limit.into())?,
        None => nothing(),
    };
    let now = bridge.context().clock.now_ms();
    if as_json {
        let records: Vec<_> = list.rows.iter().map(document).collect();
        output.document("audit", &json!({ "records": records, "next": list.next }));
    } else if list.rows.is_empty() {
        output.note("There is no such record.");
    } else {
        let cells = |row: &AuditRow| {
            let about = row.turn.as_deref().or(row.session.as_deref()).unwrap_or("-");
            vec![
                row.id.to_string(),
                age(now, row.at),
                row.kind.clone(),
                about.to_owned(),
                one_line(&row.detail.to_string(), 100),
            ]
        };
        let rows: Vec<_> = list.rows.iter().map(cells).collect();
        output.table(&["RECORD", "AGE", "KIND", "ABOUT", "DETAIL"], &rows);
    }
    tell_the_rest(&list, output);
    Ok(Exit::Ok)
}

fn document(row: &AuditRow) -> serde_json::Value {
    json!({
        "id": row.id, "at": utc(row.at), "kind": row.kind, "session": row.session, "turn": row.turn,
        "detail": row.detail, "hash": row.hash,
    })
}

fn verify(bridge: &Bridge, noted: Option<&str>, as_json: bool, output: &mut Output) -> Result<Exit> {
    let verdict = match open(bridge)? {
        Some(store) => store.verify_audit(noted)?,
        None => AuditVerdict::of_nothing(noted),
    };
    let holds = verdict.broken.is_none() && verdict.found != Some(false);
    if as_json {
        let mut value = serde_json::to_value(&verdict).unwrap_or_default();
        value["holds"] = holds.into();
        output.document("audit-chain", &value);
    } else {
        say(&verdict, output);
    }
    Ok(if holds { Exit::Ok } else { Exit::VerificationFailed })
}

fn say(verdict: &AuditVerdict, output: &mut Output) {
    let records = verdict.records;
    if let Some(broken) = &verdict.broken {
        output.line(format!("broken: record {}: {}", broken.id, broken.what));
        output
            .note("Keep a copy of the state folder before anything else; what is before that record holds.");
    } else {
        output.line(format!("whole: {records} records, the newest is {}", verdict.last));
    }
    if verdict.before_chain > 0 {
        output.line(format!(
            "The first {} are older than the chain and carry no digest.",
            verdict.before_chain
        ));
    }
    if verdict.found == Some(false) {
        output.line("The digest that was noted is not in the trail: it was cut off or made anew.");
    }
    if let Some(head) = &verdict.head {
        output.line(format!("digest: {head}"));
        output
            .note("Note the digest elsewhere; `agent-bridge audit verify --noted DIGEST` asks for it later.");
    }
}
