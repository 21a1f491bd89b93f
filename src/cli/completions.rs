//! `agent-bridge completions`

use clap::ValueEnum as _;
use clap_complete::Generator as _;

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
    generate(args.shell, command, &mut output.out);
    Ok(Exit::Ok)
}

/// The scripts for every shell, by the names under which they ship.
pub fn all(command: &clap::Command) -> Vec<(String, Vec<u8>)> {
    let shells = clap_complete::Shell::value_variants().iter();
    let script = |shell: &clap_complete::Shell| {
        let mut script = Vec::new();
        generate(*shell, command, &mut script);
        (format!("completions/{}", shell.file_name("agent-bridge")), script)
    };
    shells.map(script).collect()
}

fn generate(shell: clap_complete::Shell, command: &clap::Command, out: &mut dyn std::io::Write) {
    // The generators offer hidden subcommands as well, so they get a command that has none.
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned();
    let mut offered = clap::Command::new("agent-bridge")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(command.get_arguments().cloned())
        .subcommands(visible);
    clap_complete::generate(shell, &mut offered, "agent-bridge", out);
}
