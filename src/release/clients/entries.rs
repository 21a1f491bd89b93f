//! The entries as a person would paste them: the same ones that are written.

use std::path::{Path, PathBuf};

use super::plan::{Options, wanted_for};
use super::table::{self, Headless, NAME, Shape};
use super::{merge, places};
use crate::context::Context;

/// An entry to be pasted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The client's id.
    pub client: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The file that it reads; none if it has none on this system.
    pub file: Option<PathBuf>,
    /// What to paste; into a file that is there as a part of it.
    pub text: String,
}

/// What a client needs to start `command` with `config`: exactly what a plan would write. Clients whose entry cannot
/// be written as text are left out.
pub fn entries_to_paste(context: &Context, command: &Path, config: &Path, options: &Options) -> Vec<Entry> {
    let servers = table::CLIENTS
        .iter()
        .filter(|one| one.id == one.belongs_to && matches!(one.shape, Shape::Server { .. }));
    let entry = |client: &'static table::Client| {
        let wanted = wanted_for(client, command, config, options, NAME)?;
        let located = places::locate(client, context, &options.machine).into_iter().next();
        Some(Entry {
            client: client.id,
            name: client.name,
            file: located.map(|found| found.file),
            text: merge::snippet(client.format, &wanted),
        })
    };
    servers.filter_map(entry).collect()
}

/// What lets headless runs call the tools without a question, a line a client.
pub fn headless_settings() -> Vec<String> {
    let setting = |client: &table::Client| match client.shape {
        Shape::Server { headless: Headless::Text(key, value), .. } => {
            Some(format!("{}: {key} = {value:?}", client.name))
        }
        Shape::Server { headless: Headless::Yes(key), .. } => Some(format!("{}: {key:?}: true", client.name)),
        Shape::Server { headless: Headless::Elsewhere, .. } => None,
        Shape::Rule { path } => Some(format!(
            "{}: \"mcp__{NAME}\" in the list {} of its settings.json",
            client.name,
            path.join(".")
        )),
    };
    table::CLIENTS.iter().filter_map(setting).collect()
}
