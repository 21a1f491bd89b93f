//! `agent-bridge launcher-replace`, which a cutover starts.

use std::path::PathBuf;

use serde_json::json;

use super::output::Output;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::launcher_file::{self, Replaced};

/// Replace the launcher that this program is (started by a cutover, which holds the lock).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The new launcher.
    #[arg(long, value_name = "PATH")]
    from: PathBuf,
    /// Its SHA-256.
    #[arg(long, value_name = "HEX")]
    sha256: String,
}

pub fn run(context: &Context, args: &Args, output: &mut Output) -> Result<Exit> {
    let replaced = launcher_file::replace(context, &args.from, &args.sha256)?;
    output.document("launcher", &json!({ "replaced": replaced == Replaced::Yes }));
    Ok(Exit::Ok)
}
