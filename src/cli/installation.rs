//! `--root`, which every command about an installation takes.

use std::path::PathBuf;

use crate::context::Context;
use crate::error::Result;
use crate::release::Layout;

/// The installation that a command is about.
#[derive(Debug, clap::Args)]
pub struct Installation {
    /// Installation folder.
    #[arg(long, value_name = "DIR", global = true)]
    root: Option<PathBuf>,
}

impl Installation {
    /// Where it lies.
    pub fn layout(&self, context: &Context) -> Result<Layout> {
        Ok(Layout::select(context, self.root.as_deref())?)
    }
}
