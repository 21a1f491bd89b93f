//! `agent-bridge completions`

use super::output::Output;
use crate::error::{Exit, Result};

/// Print a completion script for your shell.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Where the scripts go:
  bash        ~/.local/share/bash-completion/completions/agent-bridge
  zsh         a folder of your $fpath, as _agent-bridge
  fish        ~/.config/fish/completions/agent-bridge.fish
  powershell  agent-bridge completions powershell | Out-String | Invoke-Expression   (in $PROFILE)")]
pub struct Args {
    /// The shell.
    shell: clap_complete::Shell,
}

pub fn run(args: &Args, command: &clap::Command, output: &mut Output) -> Result<Exit> {
    // The generators offer hidden subcommands as well, so they get a command that has none.
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned();
    let mut offered = clap::Command::new("agent-bridge")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(command.get_arguments().cloned())
        .subcommands(visible);
    clap_complete::generate(args.shell, &mut offered, "agent-bridge", &mut output.out);
    Ok(Exit::Ok)
}
