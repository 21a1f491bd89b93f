//! `config init`.

mod discover;
mod next_steps;
mod wizard;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::CONFIG_INIT_NOT_INTERACTIVE;
use crate::config::{
    AgentSection, CONFIG_VARIABLE, ConfigError, ConfigSource, Draft, acceptable_root, check_bytes,
    default_location, select, write,
};
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::policy::{AgentId, Sandbox};
use discover::Found;

/// Make a config file, step by step on a terminal or from the options with --yes
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Ask nothing; take the options and the defaults
    #[arg(long)]
    pub yes: bool,
    /// A folder in which agents may work; may be repeated (default: the current folder)
    #[arg(long, value_name = "DIR")]
    pub root: Vec<PathBuf>,
    /// Where to write the file (default: --config, AGENT_BRIDGE_CONFIG, or ~/.agent-bridge/config.json)
    #[arg(long, value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// Switch an agent on; may be repeated (codex and claude are on when they are found)
    #[arg(long, value_name = "AGENT", value_parser = agent_parser())]
    pub enable: Vec<AgentId>,
    /// Highest authority any turn can get (default: workspace-write)
    #[arg(long, value_name = "MODE", value_parser = sandbox_parser())]
    pub sandbox_ceiling: Option<Sandbox>,
    /// Where sessions and outputs are kept, outside every root (default: ~/.agent-bridge)
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Replace a file that is there; a dated backup is kept
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

fn agent_parser() -> impl clap::builder::TypedValueParser<Value = AgentId> {
    use clap::builder::TypedValueParser as _;
    clap::builder::PossibleValuesParser::new(AgentId::ALL.map(AgentId::as_str))
        .try_map(|text| AgentId::parse(&text).ok_or("unknown agent"))
}

fn sandbox_parser() -> impl clap::builder::TypedValueParser<Value = Sandbox> {
    use clap::builder::TypedValueParser as _;
    clap::builder::PossibleValuesParser::new(["read-only", "workspace-write", "full-access"])
        .try_map(|text| Sandbox::parse(&text).ok_or("unknown sandbox mode"))
}

/// What the options and the questions came to.
struct Plan {
    path: PathBuf,
    draft: Draft,
    replace: bool,
}

/// Makes a config file and prints how to go on.
///
/// # Errors
/// `CONFIG_EXISTS`, `CONFIG_ROOT_TOO_WIDE`, `CONFIG_WRITE_FAILED`, `CONFIG_INIT_…`, and everything a
/// config can be refused for; nothing is written that `serve` would refuse.
pub fn run(context: &Context, config_flag: Option<&Path>, args: Args, out: &mut dyn Write) -> Result<Exit> {
    let interactive = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !args.yes && !interactive {
        return Err(Error::new(&CONFIG_INIT_NOT_INTERACTIVE, "there is no terminal to ask questions on"));
    }
    let path = destination(context, config_flag, args.path.as_deref())?;
    if args.yes && !args.force && path.symlink_metadata().is_ok() {
        return Err(ConfigError::Exists { path }.into());
    }
    let found = discover::find_all(context);
    let json = args.json;
    let plan = if args.yes {
        from_options(context, path, args, &found)?
    } else {
        wizard::ask(context, path, args, &found)?
    };

    let bytes = plan.draft.to_bytes(context, &plan.path)?;
    let report = check_bytes(context, &plan.path, &bytes);
    if !report.problems.is_empty() {
        return Err(ConfigError::Invalid { path: plan.path, problems: report.problems }.into());
    }
    for warning in &report.warnings {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    let backup = write(&plan.path, &bytes, plan.replace, context.clock.now_ms())?;
    let steps = next_steps::after(context, &plan.path, is_found_without_flag(context, &plan.path));
    let shown = if json {
        format!("{:#}\n", document(&plan, backup.as_deref(), &found, &steps))
    } else {
        text(&plan, backup.as_deref(), &found, &steps)
    };
    super::print(out, &shown)?;
    Ok(Exit::Ok)
}

/// Where the file goes: an explicit place, or the first of those where it will be looked for.
fn destination(context: &Context, config_flag: Option<&Path>, path: Option<&Path>) -> Result<PathBuf> {
    if path.or(config_flag).is_some() || context.var(CONFIG_VARIABLE).is_some_and(|value| !value.is_empty()) {
        return Ok(select(context, path.or(config_flag))?.path);
    }
    Ok(default_location(context).ok_or(ConfigError::NoLocation)?)
}

/// Whether `serve` finds the file without being told, in any host's environment.
fn is_found_without_flag(context: &Context, path: &Path) -> bool {
    select(context, None).is_ok_and(|selected| {
        selected.path == path
            && matches!(selected.source, ConfigSource::DefaultLocation | ConfigSource::BesideProgram)
    })
}

fn from_options(context: &Context, path: PathBuf, args: Args, found: &[Found]) -> Result<Plan> {
    let mut roots = Vec::new();
    for root in &args.root {
        roots.push(acceptable_root(context, &option_text("--root", root)?)?);
    }
    if roots.is_empty() {
        roots.push(acceptable_root(context, &option_text("the current folder", &context.cwd)?)?);
    }
    let state_dir = args.state_dir.as_deref().map(|folder| option_text("--state-dir", folder)).transpose()?;
    let mut agents = BTreeMap::new();
    for id in AgentId::ALL {
        let here = found.iter().find(|found| found.id == id);
        let enabled = args.enable.contains(&id).then_some(true);
        if enabled.is_some() && here.is_none() && discover::PROGRAMS.contains(&id) {
            let _ = writeln!(std::io::stderr(), "warning: {id} is switched on but was not found on PATH");
        }
        let on_when_found = matches!(id, AgentId::Codex | AgentId::Claude) && here.is_some();
        if enabled.is_some() || on_when_found {
            agents.insert(id, section(enabled, here));
        }
    }
    let sandbox_ceiling = args.sandbox_ceiling.unwrap_or(Sandbox::WorkspaceWrite);
    Ok(Plan { path, draft: Draft { roots, sandbox_ceiling, state_dir, agents }, replace: args.force })
}

fn option_text(name: &str, path: &Path) -> Result<String> {
    let not_text = || Error::new(&crate::config::CONFIG_INVALID_VALUE, format!("{name} is not Unicode text"));
    path.to_str().map(str::to_owned).ok_or_else(not_text)
}

/// The full path is recorded: hosts started from a desktop often have a shorter PATH than a shell.
fn section(enabled: Option<bool>, found: Option<&Found>) -> AgentSection {
    let bin = found.and_then(|found| found.path.to_str()).map(str::to_owned);
    AgentSection { enabled, bin, ..AgentSection::default() }
}

fn text(plan: &Plan, backup: Option<&Path>, found: &[Found], steps: &[next_steps::Step]) -> String {
    let mut text = format!("Wrote {}\n", plan.path.display());
    if let Some(backup) = backup {
        let _ = writeln!(text, "Kept the old file as {}", backup.display());
    }
    for found in found {
        let version = found.version.as_deref().unwrap_or("version unknown");
        let _ = writeln!(text, "Found {} {version} at {}", found.id, found.path.display());
    }
    if found.is_empty() {
        let _ = writeln!(text, "Found neither codex nor claude on PATH; install one, or set its \"bin\"");
    }
    let _ = writeln!(text, "\nNext steps");
    for step in steps {
        let _ = writeln!(text, "\n  {}:", step.title);
        for line in step.text.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

fn document(plan: &Plan, backup: Option<&Path>, found: &[Found], steps: &[next_steps::Step]) -> Value {
    let found: Vec<Value> = found
        .iter()
        .map(|found| json!({"agent": found.id, "path": found.path.display().to_string(), "version": found.version}))
        .collect();
    let steps: Vec<Value> = steps
        .iter()
        .map(|step| {
            let mut entry = json!({"title": step.title, "text": step.text});
            if let Some((client, file)) = &step.client {
                entry["client"] = json!(client);
                entry["file"] = json!(file.as_ref().map(|file| file.display().to_string()));
            }
            entry
        })
        .collect();
    json!({
        "schema": "agent-bridge/config-init/1",
        "kind": "config-init",
        "path": plan.path.display().to_string(),
        "backup": backup.map(|path| path.display().to_string()),
        "allowedRoots": plan.draft.roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>(),
        "found": found,
        "nextSteps": steps,
    })
}
