//! `agent-bridge readiness`

use std::time::Duration;

use super::installation::Installation;
use super::output::Output;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::readiness::{self, Holder, HolderKind, Options, Report, State};
use crate::release::transaction::Interruption;

/// Say who still uses the installation.
///
/// The answer is quiet, busy or unknown. Each server and each running turn is named with its process, the MCP client that it serves, since when, and
/// what ends it. Nothing is changed or ended, and no lock is kept. "Unknown" means that some process cannot be
/// looked at; it is never taken for quiet.
///
/// Exit codes: 0 quiet, 2 busy or unknown, 75 not quiet within the time that --wait was given.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Look again until it is quiet.
    #[arg(long)]
    wait: bool,
    /// With --wait: how long at most, such as 30s, 5m or 1h.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    deadline: Duration,
    /// Don't mind processes of this user that cannot be looked at.
    #[arg(long)]
    allow_unreadable: bool,
    #[command(flatten)]
    installation: Installation,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// `30s`, `5m`, `1h 30m`, `500ms`; a number alone is seconds.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| "a duration is such as 30s, 5m or 1h".to_owned())
}

pub fn run(context: &Context, args: &Args, output: &mut Output) -> Result<Exit> {
    let layout = args.installation.layout(context)?;
    // A wrong folder is always quiet.
    layout.require_installation()?;
    let options = Options { allow_unreadable: args.allow_unreadable, ..Options::default() };
    let report = if args.wait {
        let mut tell = |report: &Report| {
            let names: Vec<String> = report.holders.iter().map(Holder::sentence).collect();
            let waits_for = if names.is_empty() { report.unknown.join(" ") } else { names.join("; ") };
            output.note(&format!("waiting for {waits_for}"));
        };
        let interruption = Interruption::default();
        readiness::wait(context, &layout, &options, args.deadline, &interruption, &mut tell)
    } else {
        readiness::look(context, &layout, &options)
    };
    if args.json {
        output.document("readiness", &report);
    } else {
        print(&report, output);
    }
    Ok(match report.state {
        State::Quiet => Exit::Ok,
        _ if args.wait => Exit::RetryLater,
        _ => Exit::Refused,
    })
}

fn print(report: &Report, output: &mut Output) {
    if !report.holders.is_empty() {
        let rows: Vec<Vec<String>> = report
            .holders
            .iter()
            .map(|holder| {
                let dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
                vec![
                    dash(holder.pid.map(|pid| pid.to_string())),
                    kind(holder.kind).into(),
                    dash(holder.client.clone()),
                    dash(holder.since.clone()),
                    dash(holder.release.as_ref().map(ToString::to_string)),
                    holder.close_hint.clone(),
                ]
            })
            .collect();
        output.table(&["PID", "KIND", "CLIENT", "SINCE", "RELEASE", "TO END IT"], &rows);
    }
    for reason in &report.unknown {
        output.wrapped(reason, 2);
    }
    for host in &report.hosts {
        output.note(&format!("host: {} (pid {})", host.client, host.pid));
    }
    for note in &report.notes {
        output.note(&format!("note: {note}"));
    }
    output.line(match report.state {
        State::Quiet => format!("quiet: nothing uses {}", report.root),
        State::Busy => format!("busy: {} in use by {}", report.root, report.holders.len()),
        State::Unknown => format!("unknown: whether {} is in use cannot be told", report.root),
    });
}

fn kind(kind: HolderKind) -> &'static str {
    match kind {
        HolderKind::Serve => "server",
        HolderKind::Turn => "turn",
        HolderKind::Starting => "starting",
        HolderKind::Unleased => "no lease",
        HolderKind::Unnamed => "unnamed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let ms = |text: &str| parse_duration(text).map(|duration| duration.as_millis());
        assert_eq!(ms("30"), Ok(30_000));
        assert_eq!(ms("250ms"), Ok(250));
        assert_eq!(ms("5m"), Ok(300_000));
        assert_eq!(ms("1h 30m"), Ok(5_400_000));
        assert!(ms("-5s").is_err());
        assert!(ms("soon").is_err());
    }
}
