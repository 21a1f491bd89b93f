//! `agent-bridge runs`

use std::time::Duration;

use serde_json::json;

use super::output::{Output, age, one_line};
use super::sessions::{nothing, open, tell_the_rest};
use crate::bridge::Bridge;
use crate::error::{Error, Exit, Result};
use crate::mcp::relay::{applied_text, packet_text};
use crate::relay::packet::packet;
use crate::relay::record::RunRecord;
use crate::relay::result::{self, Detail};
use crate::relay::{Relay, Status, status, worktree};
use crate::store::{RunFilter, RunRow, RunState};

/// List and show relay runs, and what they changed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List runs, newest first, refused ones too.
    List {
        /// Only this run and its corrections.
        #[arg(long, value_name = "ID")]
        root: Option<String>,
        /// Only running ones.
        #[arg(long)]
        running: bool,
        /// Most runs to list.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
        limit: u16,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Show a run: its packet, what went wrong, or its whole record.
    Show {
        /// The run.
        id: String,
        /// How much.
        #[arg(long, value_enum, default_value_t = Wanted::Summary)]
        detail: Wanted,
        /// Wait for its end, at most that many seconds.
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "8000")]
        wait: Option<u64>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Put the patch of a run with isolation `worktree` into its workspace, all of it or nothing.
    Apply {
        /// The run.
        id: String,
        /// Only say whether it fits.
        #[arg(long)]
        check: bool,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Remove the copy that a run worked in, unless work would be lost with it.
    Discard {
        /// The run.
        id: String,
        /// Also if work is lost with it.
        #[arg(long)]
        force: bool,
    },
    /// Print what a run changed, as a patch that `git apply` takes.
    Diff {
        /// The run.
        id: String,
        /// In colour; what is coloured is for eyes, and no patch.
        #[arg(long, value_enum, default_value_t = Coloured::Auto, value_name = "WHEN")]
        color: Coloured,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Coloured {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Wanted {
    /// The review packet.
    Summary,
    /// What went wrong.
    Errors,
    /// The whole record.
    Full,
}

impl From<Wanted> for Detail {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Summary => Self::Summary,
            Wanted::Errors => Self::Errors,
            Wanted::Full => Self::Full,
        }
    }
}

pub fn run(bridge: &Bridge, args: Args, output: &mut Output) -> Result<Exit> {
    match args.command {
        Command::List { root, running, limit, json } => {
            let filter = RunFilter { state: running.then_some(RunState::Running), root };
            list(bridge, filter, limit, json, output)
        }
        Command::Apply { id, check, json } => apply(bridge, &id, check, json, output),
        Command::Discard { id, force } => discard(bridge, &id, force, output),
        Command::Diff { id, color } => diff(bridge, &id, color, output),
        Command::Show { id, detail, wait, json } => {
            show(bridge, &id, detail.into(), Duration::from_secs(wait.unwrap_or(0)), json, output)
        }
    }
}

fn list(bridge: &Bridge, filter: RunFilter, limit: u16, as_json: bool, output: &mut Output) -> Result<Exit> {
    let list = if open(bridge)?.is_none() {
        nothing()
    } else {
        let relay = Relay::new(bridge.clone());
        super::event_loop()?.block_on(relay.list(filter, limit.into(), None))?
    };
    let now = bridge.context().clock.now_ms();
    let summary = |row: &RunRow| {
        json!({
            "run_id": row.id,
            "root_run_id": row.root,
            "correction": row.correction,
            "status": row.status,
            "agent": row.agent,
            "workspace": row.workspace.display().to_string(),
            "created_at": crate::mcp::outputs::utc(row.created_at),
            "task": row.record["task"].as_str().map(|task| one_line(task, 200)),
        })
    };
    if as_json {
        output.document("runs", &json!({ "runs": list.rows.iter().map(summary).collect::<Vec<_>>() }));
    } else if list.rows.is_empty() {
        output.note("There are no such runs. Hosts start them with the tool relay_execute.");
    } else {
        let cells = |row: &RunRow| {
            let text = row.record["feedback"].as_str().or(row.record["task"].as_str()).unwrap_or_default();
            vec![
                row.id.clone(),
                age(now, row.created_at),
                row.agent.clone(),
                row.status.clone(),
                row.correction.to_string(),
                one_line(text, 60),
            ]
        };
        output.table(
            &["RUN", "AGE", "AGENT", "STATUS", "CORRECTION", "TASK"],
            &list.rows.iter().map(cells).collect::<Vec<_>>(),
        );
    }
    tell_the_rest(&list, output);
    Ok(Exit::Ok)
}

/// The relay, if there can be runs at all.
fn known(bridge: &Bridge, id: &str) -> Result<Relay> {
    if open(bridge)?.is_none() {
        let shown: String = id.chars().take(64).collect();
        return Err(Error::new(&status::RUN_NOT_FOUND, format!("there is no run {shown:?}")));
    }
    Ok(Relay::new(bridge.clone()))
}

/// The run, settled or waited for, and the corrections that its root had.
fn found(bridge: &Bridge, id: &str, wait: Duration) -> Result<(RunRecord, u32)> {
    let relay = known(bridge, id)?;
    super::event_loop()?.block_on(async {
        let row = relay.wait(id, wait, |_, _| ()).await?;
        relay.record(row).await
    })
}

fn show(
    bridge: &Bridge,
    id: &str,
    detail: Detail,
    wait: Duration,
    as_json: bool,
    output: &mut Output,
) -> Result<Exit> {
    let (record, made) = found(bridge, id, wait)?;
    match detail {
        Detail::Summary => {
            let packet = packet(&record, "relay", bridge.config().relay.max_corrections, made);
            if as_json {
                output.document("run", &packet);
            } else {
                output.foreign(&packet_text(&packet));
            }
        }
        Detail::Errors => {
            let of = record.clone();
            let value = super::event_loop()?
                .block_on(bridge.with_store(move |store| Ok(result::errors(store, &of, 60_000))))?;
            if as_json {
                output.document("run-errors", &value);
            } else {
                output.foreign(&serde_json::to_string_pretty(&value).unwrap_or_default());
            }
        }
        Detail::Full => {
            if as_json {
                output.document("run-record", &record);
            } else {
                output.foreign(&serde_json::to_string_pretty(&record).unwrap_or_default());
            }
        }
    }
    Ok(exit_of(record.status))
}

fn apply(bridge: &Bridge, id: &str, check: bool, as_json: bool, output: &mut Output) -> Result<Exit> {
    let relay = known(bridge, id)?;
    let applied = super::event_loop()?.block_on(relay.apply(id, check))?;
    if as_json {
        output.document("applied", &applied);
    } else {
        output.foreign(&applied_text(&applied));
    }
    Ok(Exit::Ok)
}

fn discard(bridge: &Bridge, id: &str, force: bool, output: &mut Output) -> Result<Exit> {
    let relay = known(bridge, id)?;
    let folder = super::event_loop()?.block_on(relay.discard(id, force))?;
    output.note(&format!("{} is removed.", folder.display()));
    Ok(Exit::Ok)
}

fn diff(bridge: &Bridge, id: &str, color: Coloured, output: &mut Output) -> Result<Exit> {
    let (record, _) = found(bridge, id, Duration::ZERO)?;
    if record.patch.is_none() {
        let why = match &record.changes {
            Some(changes) if changes.changed() == Some(false) => "The run changed nothing.",
            Some(_) => "No patch was kept of this run; `agent-bridge runs show ID --detail full` says why.",
            None => "Nothing was observed of this run.",
        };
        output.note(why);
        return Ok(Exit::Ok);
    }
    let store = open(bridge)?.ok_or_else(|| Error::new(&status::RUN_NOT_FOUND, "there is no run"))?;
    // What is printed is what was recorded, or nothing.
    let bytes = worktree::patch_of(&store, &record)?;
    let coloured = match color {
        Coloured::Always => true,
        Coloured::Never => false,
        Coloured::Auto => output.shows_colour(),
    };
    if coloured {
        for line in String::from_utf8_lossy(&bytes).lines() {
            output.coloured_diff_line(line);
        }
    } else {
        output.bytes(&bytes);
    }
    Ok(Exit::Ok)
}

/// 0 for a success, 75 for a run that goes on, else as its status says.
fn exit_of(status: Status) -> Exit {
    match status.doc() {
        Some(doc) => doc.exit,
        None if status == Status::Success => Exit::Ok,
        None => Exit::RetryLater,
    }
}
