//! The questions of `config init`. They are asked on standard error, so that standard output holds
//! the result only.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dialoguer::{Confirm, Input, MultiSelect, Select};

use super::{Args, Found, Plan, option_text, section};
use crate::cli::config::CONFIG_INIT_CANCELLED;
use crate::config::{ConfigError, Draft, acceptable_root};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::policy::{AgentId, Sandbox};

/// Asks for everything that the options leave open.
pub(super) fn ask(context: &Context, path: PathBuf, args: Args, found: &[Found]) -> Result<Plan> {
    let replace = args.force || (path.symlink_metadata().is_ok() && ask_to_replace(&path)?);
    let roots = ask_roots(context, &args)?;
    let sandbox_ceiling = match args.sandbox_ceiling {
        Some(mode) => mode,
        None => ask_ceiling()?,
    };
    let state_dir = match &args.state_dir {
        Some(folder) => Some(option_text("--state-dir", folder)?),
        None => ask_state_dir(context)?,
    };
    let agents = ask_agents(&args, found)?;
    Ok(Plan { path, draft: Draft { roots, sandbox_ceiling, state_dir, agents }, replace })
}

fn cancelled(error: dialoguer::Error) -> Error {
    Error::new(&CONFIG_INIT_CANCELLED, format!("the questions were not answered: {error}"))
}

fn ask_to_replace(path: &std::path::Path) -> Result<bool> {
    let question = format!("{} exists. Replace it? A dated backup is kept", path.display());
    match Confirm::new().with_prompt(question).default(false).interact().map_err(cancelled)? {
        true => Ok(true),
        false => Err(ConfigError::Exists { path: path.to_owned() }.into()),
    }
}

fn ask_roots(context: &Context, args: &Args) -> Result<Vec<PathBuf>> {
    let mut roots = Vec::new();
    for root in &args.root {
        roots.push(acceptable_root(context, &option_text("--root", root)?)?);
    }
    if !roots.is_empty() {
        return Ok(roots);
    }
    loop {
        let accept = |text: &String| {
            if text.is_empty() {
                return Ok(());
            }
            acceptable_root(context, text).map(|_| ()).map_err(|error| error.to_string())
        };
        let current = context.cwd.to_str().filter(|cwd| acceptable_root(context, cwd).is_ok());
        let first = roots.is_empty();
        let question =
            if first { "Folder in which agents may work" } else { "Another folder (Enter to go on)" };
        let mut input =
            Input::<String>::new().with_prompt(question).allow_empty(!first).validate_with(accept);
        if let Some(current) = current.filter(|_| first) {
            input = input.default(current.to_owned());
        }
        let text = input.interact_text().map_err(cancelled)?;
        if text.is_empty() {
            return Ok(roots);
        }
        roots.push(acceptable_root(context, &text)?);
    }
}

fn ask_ceiling() -> Result<Sandbox> {
    let modes = [Sandbox::ReadOnly, Sandbox::WorkspaceWrite, Sandbox::FullAccess];
    let choice = Select::new()
        .with_prompt("The most that any agent may do")
        .items([
            "read-only (change nothing)",
            "workspace-write (change files in the working folder)",
            "full-access (whatever you may do)",
        ])
        .default(1)
        .interact()
        .map_err(cancelled)?;
    Ok(modes.get(choice).copied().unwrap_or(Sandbox::ReadOnly))
}

fn ask_state_dir(context: &Context) -> Result<Option<String>> {
    const DEFAULT: &str = "~/.agent-bridge";
    let mut input = Input::<String>::new().with_prompt("Folder for sessions and outputs");
    if crate::config::usable_home(context).is_some() {
        input = input.default(DEFAULT.to_owned());
    }
    let text = input.interact_text().map_err(cancelled)?;
    Ok(Some(text).filter(|text| text != DEFAULT))
}

fn ask_agents(args: &Args, found: &[Found]) -> Result<BTreeMap<AgentId, crate::config::AgentSection>> {
    let mut agents = BTreeMap::new();
    if !found.is_empty() {
        let items: Vec<(String, bool)> = found
            .iter()
            .map(|found| {
                let version = found.version.as_deref().unwrap_or("version unknown");
                let preset = found.id != AgentId::Gemini || args.enable.contains(&found.id);
                (format!("{} {version}", found.id), preset)
            })
            .collect();
        let chosen = MultiSelect::new()
            .with_prompt("Agents to use (Space to choose, Enter to go on)")
            .items_checked(items)
            .interact()
            .map_err(cancelled)?;
        for (index, found) in found.iter().enumerate() {
            agents.insert(found.id, section(Some(chosen.contains(&index)), Some(found)));
        }
    }
    for id in &args.enable {
        agents.entry(*id).or_insert_with(|| section(Some(true), None));
    }
    Ok(agents)
}
