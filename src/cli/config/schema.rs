//! `config schema`.

use std::io::Write;
use std::path::Path;

use crate::config::json_schema;
use crate::context::Context;
use crate::error::{Exit, Result};

/// Print the JSON Schema (draft 2020-12) of the config file, for editors and validators
#[derive(Debug, Default, clap::Args)]
pub struct Args {}

/// Prints the schema. The document is the schema itself.
///
/// # Errors
/// Only if the output cannot be written.
pub fn run(_: &Context, _: Option<&Path>, _: Args, out: &mut dyn Write) -> Result<Exit> {
    super::print_json(out, &json_schema())?;
    Ok(Exit::Ok)
}
