//! `config check`.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::config::{CheckReport, Config, check};
use crate::context::Context;
use crate::error::{Exit, Result};

/// Check the config and report everything that is wrong, without starting or creating anything
///
/// Exit code 0 if `serve` would start with it, 3 if not.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Reports problems and warnings.
///
/// # Errors
/// Only if the output cannot be written; problems of the config are the result.
pub fn run(context: &Context, config_flag: Option<&Path>, args: Args, out: &mut dyn Write) -> Result<Exit> {
    let report = check(context, config_flag);
    if args.json {
        super::print_json(out, &document(&report))?;
    } else {
        super::print(out, &text(&report))?;
    }
    Ok(if report.problems.is_empty() { Exit::Ok } else { Exit::VerificationFailed })
}

fn document(report: &CheckReport) -> Value {
    let problems: Vec<Value> = report
        .problems
        .iter()
        .map(|problem| {
            json!({
                "code": problem.doc.code,
                "key": problem.key,
                "message": problem.message,
                "hint": problem.doc.remedy,
            })
        })
        .collect();
    json!({
        "schema": "agent-bridge/config-check/1",
        "kind": "config-check",
        "ok": problems.is_empty(),
        "path": report.selected.as_ref().map(|selected| selected.path.display().to_string()),
        "source": report.selected.as_ref().map(|selected| selected.source.label()),
        "problems": problems,
        "warnings": report.warnings,
    })
}

fn text(report: &CheckReport) -> String {
    let mut text = String::new();
    if let Some(selected) = &report.selected {
        let _ = writeln!(text, "config:  {} ({})", selected.path.display(), selected.source.label());
    }
    if let Some(config) = &report.config {
        summary(config, &mut text);
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    for problem in &report.problems {
        let _ = writeln!(text, "problem: {}: {problem}", problem.doc.code);
    }
    let _ = match report.problems.as_slice() {
        [] => writeln!(text, "ok"),
        [one] => writeln!(text, "1 problem. {}", one.doc.remedy),
        more => writeln!(text, "{} problems. `agent-bridge config schema` describes every key.", more.len()),
    };
    text
}

fn summary(config: &Config, text: &mut String) {
    for root in &config.allowed_roots {
        let _ = writeln!(text, "root:    {}", root.display());
    }
    let _ = writeln!(text, "state:   {}", config.state_dir.display());
    let agents: Vec<String> = config
        .agents
        .iter()
        .filter(|(_, agent)| agent.enabled)
        .map(|(id, agent)| format!("{id}{}", if agent.enabled_explicitly { "" } else { " (when found)" }))
        .collect();
    let agents = if agents.is_empty() { "none".to_owned() } else { agents.join(", ") };
    let _ = writeln!(text, "agents:  {agents}");
    let _ =
        writeln!(text, "sandbox: {} by default, at most {}", config.defaults.sandbox, config.sandbox_ceiling);
}
