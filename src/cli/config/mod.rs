//! `agent-bridge config …`: make, check and explain the config.

pub mod check;
pub mod explain;
pub mod init;
pub mod path;
pub mod schema;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::Path;

use serde_json::Value;

use crate::context::Context;
use crate::error::{Error, Exit, Result};

crate::codes! {
    CONFIG_INIT_NOT_INTERACTIVE {
        exit: Refused, retryable: false,
        cause: "`config init` asks questions, and there is no terminal to ask them on.",
        remedy: "Pass --yes, and --root DIR for each folder in which agents may work.",
    }
    CONFIG_INIT_CANCELLED {
        exit: Refused, retryable: false,
        cause: "The questions of `config init` were not answered to the end. Nothing was written.",
        remedy: "Run `agent-bridge config init` again.",
    }
    CONFIG_OUTPUT_FAILED {
        exit: Unexpected, retryable: false,
        cause: "The result could not be written to standard output.",
        remedy: "Check where the output goes.",
    }
}

/// Subcommands of `config`.
#[derive(Debug, clap::Subcommand)]
#[allow(missing_docs, reason = "the help of each is that of its arguments")]
pub enum Command {
    Init(init::Args),
    Check(check::Args),
    Schema(schema::Args),
    Explain(explain::Args),
    Path(path::Args),
}

/// Runs a subcommand of `config`.
///
/// # Errors
/// As the subcommand.
pub fn run(
    context: &Context,
    config_flag: Option<&Path>,
    command: Command,
    out: &mut dyn Write,
) -> Result<Exit> {
    match command {
        Command::Init(args) => init::run(context, config_flag, args, out),
        Command::Check(args) => check::run(context, config_flag, args, out),
        Command::Schema(args) => schema::run(context, config_flag, args, out),
        Command::Explain(args) => explain::run(context, config_flag, args, out),
        Command::Path(args) => path::run(context, config_flag, args, out),
    }
}

fn print(out: &mut dyn Write, text: &str) -> Result<()> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Error::new(&CONFIG_OUTPUT_FAILED, format!("cannot write the result: {error}")))
}

fn print_json(out: &mut dyn Write, document: &Value) -> Result<()> {
    print(out, &format!("{document:#}\n"))
}
