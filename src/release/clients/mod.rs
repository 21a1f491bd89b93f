//! The config files of MCP clients: found, edited byte by byte, put back.
//!
//! Only our own entry is ever changed. Everything else in a file stays the same bytes, or the file is left.

mod apply;
mod edit_json;
mod edit_toml;
mod entries;
mod entry;
mod error;
mod json;
mod live;
mod lost;
mod merge;
mod patch;
mod places;
mod plan;
mod saved;
mod splice;
pub mod table;
mod toml_places;
mod undo;
mod unified;
mod verdict;

pub use apply::{Applied, Written, apply, apply_in};
pub use entries::{Entry, entries_to_paste, headless_settings};
pub use entry::{Leaf, Literal};
pub use error::{CODES, ClientsError};
pub use live::Running;
pub use lost::{Lost, lost};
pub use merge::{Merged, Refusal, State, Wanted, merge, remove, snippet, undo};
pub use patch::Hunk;
pub use places::Machine;
pub use plan::{ClientPlan, Found, Options, Plan, Step, plan, require_known};
pub use saved::{save_plan, saved_plan};
pub use undo::{plan_removal, plan_restore, without_our_change};
pub use unified::unified;
pub use verdict::{Effect, Verdict};

/// The file of every client on this machine, there or not, under the client's id; for who has to prove that none of
/// them was changed.
pub fn files(context: &crate::context::Context) -> Vec<(String, std::path::PathBuf)> {
    let machine = Machine::default();
    let located = table::CLIENTS.iter().flat_map(|client| {
        let files = places::locate(client, context, &machine).into_iter().map(|found| found.file);
        files.enumerate().map(|(at, file)| {
            (if at == 0 { client.id.to_owned() } else { format!("{} {}", client.id, at + 1) }, file)
        })
    });
    located.collect()
}
