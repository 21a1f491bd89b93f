//! `agent-bridge man`

use std::path::PathBuf;

use super::output::Output;
use crate::error::{Error, Exit, INVALID_ARGUMENT, Result};

/// Print the manual page, or write all pages to a folder.
///
/// `agent-bridge man | man -l -` shows the page; it need not be installed for that.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write all pages to this existing folder.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(args: &Args, command: clap::Command, output: &mut Output) -> Result<Exit> {
    let failed = |error: std::io::Error| {
        Error::new(&INVALID_ARGUMENT, format!("the pages cannot be written: {error}"))
            .with_hint("Name a folder that exists and that you may write to.")
    };
    match &args.dir {
        None => clap_mangen::Man::new(command).render(&mut output.out).map_err(failed)?,
        Some(dir) => {
            clap_mangen::generate_to(command, dir).map_err(failed)?;
            output.line(format!("Wrote the pages to {}", dir.display()));
        }
    }
    Ok(Exit::Ok)
}

/// Every page, by the name under which it ships. Without revision and target, which differ between machines.
pub fn all(command: clap::Command) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = command.version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    render(&command, &mut pages)?;
    Ok(pages)
}

fn render(command: &clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        render(sub, pages)?;
    }
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    pages.push((format!("man/{}", man.get_filename()), page));
    Ok(())
}
