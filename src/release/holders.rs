//! Labels of what runs from an installation: small files for people. Only the kernel's locks decide; a label says
//! whose lock it is.
//!
//! A label names its process by id, start time and start of the machine, so what an id is reused for is never
//! mistaken for it. A label of a process that is gone is ignored, and removed by who changes the installation.

use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::transaction;
use super::{Layout, ReleaseId};
use crate::context::Clock;
use crate::platform::{self, ProcessIdentity};

/// Largest label that is read.
const MAX_BYTES: u64 = 16 * 1024;
/// Most labels that are looked at.
const MAX_LABELS: usize = 4096;
/// With more labels than this, who adds one removes those of processes that are gone.
const MANY_LABELS: usize = 256;
/// Longest name of a client that is kept.
const MAX_NAME: usize = 80;

/// What holds an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holding {
    /// A server of one MCP host.
    Serve,
    /// The supervisor of one turn.
    Turn,
}

/// What a holder says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Label {
    /// The process.
    pub process: ProcessIdentity,
    /// Which start of the machine.
    pub boot: Option<String>,
    /// The process namespace that the id belongs to.
    pub namespace: Option<u64>,
    /// The process that started it.
    pub parent: Option<ProcessIdentity>,
    /// What it is.
    pub kind: Holding,
    /// Name and version of the MCP client, once it has introduced itself.
    pub client: Option<String>,
    /// When it started, UTC.
    pub since: String,
    /// The release that it runs.
    pub release: Option<ReleaseId>,
    /// The generation that it was started as, if the launcher started it.
    pub generation: Option<u64>,
}

impl Label {
    /// Of this process.
    pub fn of_this_process(clock: Clock, kind: Holding, release: Option<ReleaseId>) -> Self {
        let process = ProcessIdentity::current();
        Self {
            process,
            boot: platform::boot_id(),
            namespace: platform::process_namespace(),
            parent: platform::parent_of(process.pid).and_then(ProcessIdentity::of),
            kind,
            client: None,
            since: transaction::timestamp(clock),
            release,
            generation: None,
        }
    }

    /// Whether its process still runs; none if that cannot be told from here.
    pub fn is_alive(&self) -> Option<bool> {
        if self.boot != platform::boot_id() {
            return Some(false);
        }
        (self.namespace == platform::process_namespace()).then(|| platform::is_alive(&self.process))
    }
}

/// The label of this process, removed on drop.
#[derive(Debug)]
pub struct OwnLabel {
    path: PathBuf,
    label: Mutex<Label>,
}

impl OwnLabel {
    /// Writes it under a name of its own.
    pub fn write(layout: &Layout, label: Label) -> std::io::Result<Self> {
        if std::fs::read_dir(layout.holders())?.count() > MANY_LABELS {
            remove_stale(layout);
        }
        let path = layout.holders().join(format!("{}.json", uuid::Uuid::new_v4()));
        put(&path, &label, true)?;
        Ok(Self { path, label: Mutex::new(label) })
    }

    /// Adds the client's name, once it is known.
    pub fn introduce(&self, name: &str, version: &str) {
        let Ok(mut label) = self.label.lock() else { return };
        let shown = |text: &str| -> String {
            text.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect::<String>().trim().to_owned()
        };
        let client = format!("{} {}", shown(name), shown(version)).trim().to_owned();
        if client.is_empty() || label.client.as_deref() == Some(&client) {
            return;
        }
        label.client = Some(client);
        // A name is worth no failure.
        let _ = put(&self.path, &label, false);
    }
}

impl Drop for OwnLabel {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Not durable: a label is worth nothing after its process. A reader that meets half of one ignores it.
fn put(path: &Path, label: &Label, new: bool) -> std::io::Result<()> {
    let mut file = platform::private::owners_only().create_new(new).open(path)?;
    let bytes = serde_json::to_vec(label)?;
    file.rewind()?;
    file.write_all(&bytes)?;
    file.set_len(bytes.len() as u64)
}

/// All labels that can be read, with their files.
pub fn list(layout: &Layout) -> Vec<(PathBuf, Label)> {
    let Ok(entries) = std::fs::read_dir(layout.holders()) else { return Vec::new() };
    let mut found: Vec<(PathBuf, Label)> = entries
        .flatten()
        .take(MAX_LABELS)
        .filter_map(|entry| {
            let path = entry.path();
            let mut bytes = Vec::new();
            let file = platform::open_no_link(&path).ok()?;
            file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
            Some((path, serde_json::from_slice(&bytes).ok()?))
        })
        .collect();
    found.sort_by(|(_, a), (_, b)| (&a.since, a.process.pid).cmp(&(&b.since, b.process.pid)));
    found
}

/// Removes the labels of processes that are gone for certain; gives how many.
///
/// Two who do this at once do no harm: the name of a label is never used again.
fn remove_stale(layout: &Layout) -> usize {
    let gone = list(layout).into_iter().filter(|(_, label)| label.is_alive() == Some(false));
    gone.filter(|(path, _)| std::fs::remove_file(path).is_ok()).count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn layout() -> (tempfile::TempDir, Layout) {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        layout.create().unwrap();
        (folder, layout)
    }

    fn own() -> Label {
        Label::of_this_process(Clock::Fixed(0), Holding::Serve, None)
    }

    #[test]
    fn a_label_says_who_and_goes_with_its_owner() {
        let (_folder, layout) = layout();
        let written = OwnLabel::write(&layout, own()).unwrap();
        written.introduce("a client\u{1b}[31m", &"9".repeat(500));
        let labels = list(&layout);
        let client = labels[0].1.client.clone().unwrap();
        assert!(client.starts_with("a client[31m 9"), "{client}");
        assert!(client.len() < 200);
        assert_eq!(labels[0].1.is_alive(), Some(true));
        written.introduce("b", "");
        assert_eq!(list(&layout)[0].1.client.as_deref(), Some("b"), "the shorter name leaves no rest");
        drop(written);
        assert_eq!(list(&layout), []);
    }

    #[test]
    fn only_labels_of_processes_that_are_gone_for_certain_are_removed() {
        let (_folder, layout) = layout();
        let alive = OwnLabel::write(&layout, own()).unwrap();
        let mut reused = own();
        reused.process.started = reused.process.started.wrapping_add(1);
        put(&layout.holders().join("reused.json"), &reused, true).unwrap();
        let mut before_restart = own();
        before_restart.boot = Some("another".into());
        put(&layout.holders().join("boot.json"), &before_restart, true).unwrap();
        std::fs::write(layout.holders().join("half.json"), "{\"process\":").unwrap();
        let mut count = 2;
        if let Some(namespace) = platform::process_namespace() {
            let mut elsewhere = reused.clone();
            elsewhere.namespace = Some(namespace + 1);
            put(&layout.holders().join("elsewhere.json"), &elsewhere, true).unwrap();
            count += 1;
        }
        assert_eq!(remove_stale(&layout), 2);
        assert_eq!(std::fs::read_dir(layout.holders()).unwrap().count(), count);
        assert!(alive.path.exists());
    }
}
