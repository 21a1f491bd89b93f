//! Entries of ours that are gone again. A client that runs may write its file out of its own memory, and drops what
//! it does not know; nothing else tells of it.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::table::{self, Client, Shape};
use super::{Machine, merge, places};
use crate::context::Context;
use crate::release::journal::{self, Outcome, Record};
use crate::release::{Layout, transaction};

/// Transactions that are looked at, the last ones first.
const LOOKED_AT: usize = 500;

/// An entry that we wrote and that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lost {
    /// The client's id.
    pub client: &'static str,
    /// Its file.
    pub path: PathBuf,
    /// The transaction that wrote it.
    pub txid: String,
    /// In words.
    pub why: String,
    /// The next step.
    pub next: String,
}

impl Lost {
    pub(super) fn new(client: &Client, path: &Path, txid: &str) -> Self {
        Self {
            client: client.id,
            path: path.to_path_buf(),
            txid: txid.to_owned(),
            why: format!("rewritten by a running host: {txid} put our entry there, and it is gone"),
            next: format!("Quit {}, then run `{}`.", client.name, command(client)),
        }
    }

    /// The command that writes it again.
    pub fn command(&self) -> String {
        table::find(self.client).map(command).unwrap_or_default()
    }
}

fn command(client: &Client) -> String {
    format!("agent-bridge configure-clients --client {} --apply", client.belongs_to)
}

/// What the last transactions left in the clients' files.
#[derive(Debug, Default)]
pub(super) struct Registered(Vec<(String, PathBuf, Option<String>)>);

impl Registered {
    /// Read from the journal. What cannot be read counts as never written.
    pub(super) fn read(layout: &Layout) -> Self {
        let mut found = Vec::new();
        for path in journal::transactions(layout).unwrap_or_default().iter().rev().take(LOOKED_AT) {
            let Ok(transcript) = journal::read(path) else { break };
            if transcript.outcome() != Some(Outcome::Committed) {
                continue;
            }
            let takes_out = transcript.records.iter().any(|(_, record)| {
                matches!(record, Record::Begin { facts, .. }
                    if matches!(facts["operation"].as_str(), Some("remove" | "restore")))
            });
            for (_, record) in &transcript.records {
                let Record::Replace { path, client: Some(client), .. } = record else { continue };
                if !found.iter().any(|(id, known, _)| id == client && known == path) {
                    let txid = (!takes_out).then(|| transcript.txid.clone());
                    found.push((client.clone(), path.clone(), txid));
                }
            }
        }
        Self(found)
    }

    /// The transaction that left our entry in a file, if the last one that wrote there did.
    pub(super) fn by(&self, client: &str, path: &Path) -> Option<&str> {
        let (_, _, txid) = self.0.iter().find(|(id, known, _)| id == client && known == path)?;
        txid.as_deref()
    }
}

/// Whether our entry is in a content; none if that cannot be told.
pub(super) fn has_entry(client: &Client, content: Option<&[u8]>) -> Option<bool> {
    let Shape::Server { section, .. } = client.shape else { return None };
    let Some(content) = content else { return Some(false) };
    let text = std::str::from_utf8(content).ok()?;
    merge::entries(client.format, text, section).ok().map(|entries| !entries.is_empty())
}

/// Entries that we wrote into the files that clients read, and that are gone. Only looks.
pub fn lost(context: &Context, layout: &Layout) -> Vec<Lost> {
    let registered = Registered::read(layout);
    if registered.0.is_empty() {
        return Vec::new();
    }
    let machine = Machine::default();
    let mut lost = Vec::new();
    for client in table::CLIENTS {
        for location in places::locate(client, context, &machine) {
            let Ok(look) = places::look(&location.file) else { continue };
            let Some(txid) = registered.by(client.id, &look.target) else { continue };
            if has_entry(client, look.content.as_deref()) == Some(false) {
                lost.push(Lost::new(client, &look.target, txid));
            }
        }
    }
    lost
}

/// The same of one file that was just written.
pub(super) fn lost_now(client: &'static str, path: &Path, txid: &str) -> Option<Lost> {
    let client = table::find(client)?;
    let content = transaction::content(path).ok()?;
    (has_entry(client, content.as_deref()) == Some(false)).then(|| Lost::new(client, path, txid))
}
