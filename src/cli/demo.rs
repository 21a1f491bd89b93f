//! `agent-bridge demo`
use super::output::Output;
use crate::context::Context;
use crate::error::{Exit, Result};
/// See the main job done in a throwaway folder.
#[derive(Debug, clap::Args)]
pub struct Args {}
pub fn run(_context: &Context, _args: Args, _output: &mut Output) -> Result<Exit> { Ok(Exit::Ok) }
