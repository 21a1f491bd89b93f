//! `agent-bridge completions`

use super::output::Output;
use crate::error::{Exit, Result};

/// Print a completion script for your shell.
///
/// bash: agent-bridge completions bash > ~/.local/share/bash-completion/completions/agent-bridge
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    shell: clap_complete::Shell,
}

pub fn run(args: &Args, command: &mut clap::Command, output: &mut Output) -> Result<Exit> {
    clap_complete::generate(args.shell, command, "agent-bridge", &mut output.out);
    Ok(Exit::Ok)
}
