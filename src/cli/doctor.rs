//! `agent-bridge doctor`

use crate::bridge::health::HealthCache;
use crate::config::Config;
use crate::context::Context;
use crate::doctor::{self, Report, Status};
use crate::error::{Exit, Result};

use super::output::Output;

/// Check program, config, state folder, agents and their logins.
///
/// Changes nothing. The last line is the verdict. Exit code 2 if something does not work, else 0.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Don't start the agents' version and login probes.
    #[arg(long)]
    no_probe: bool,
}

#[derive(serde::Serialize)]
struct Document<'a> {
    diagnostics: &'a Report,
    agents: &'a [crate::bridge::health::AgentView],
}

pub fn run(context: &Context, config: Result<Config>, args: &Args, output: &mut Output) -> Result<Exit> {
    let agents = match &config {
        Ok(config) if !args.no_probe => HealthCache::default().agents(context, config),
        _ => Vec::new(),
    };
    let report = doctor::examine(context, config.as_ref(), &agents);
    if args.json {
        output.document("doctor", &Document { diagnostics: &report, agents: &agents });
    } else {
        for line in doctor::text(&report, &agents).lines() {
            output.wrapped(line, 6);
        }
    }
    Ok(if report.status == Status::Fail { Exit::Refused } else { Exit::Ok })
}
