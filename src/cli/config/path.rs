//! `config path`.

use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::config::{ConfigSource, select};
use crate::context::Context;
use crate::error::{Exit, Result};

/// Print which config file is used; it need not exist yet
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Prints the selected path.
///
/// # Errors
/// `CONFIG_NOT_FOUND` if none can be selected.
pub fn run(context: &Context, config_flag: Option<&Path>, args: Args, out: &mut dyn Write) -> Result<Exit> {
    let selected = select(context, config_flag)?;
    let path = selected.path.display().to_string();
    if args.json {
        let exists = selected.source == ConfigSource::Bundle || selected.path.exists();
        super::print_json(
            out,
            &json!({
                "schema": "agent-bridge/config-path/1",
                "kind": "config-path",
                "path": path,
                "source": selected.source.label(),
                "exists": exists,
            }),
        )?;
    } else {
        super::print(out, &format!("{path}\n"))?;
    }
    Ok(Exit::Ok)
}
