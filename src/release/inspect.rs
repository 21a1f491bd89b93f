//! Everything about an installation, looked at without changing anything.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::generations::{self, Verdict};
use super::pointer::{self, Pointer};
use super::{Layout, ReleaseError, ReleaseId, journal, prune, verify};
use crate::context::Context;
use crate::digest;
use crate::platform;

/// What to look at beyond the current release.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The release that should be current.
    pub expect: Option<ReleaseId>,
    /// Hash every installed release, not only the current one.
    pub all: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// ROOT.
    pub root: PathBuf,
    /// `current`, `drift`, `not-current` or `not-installed`.
    pub status: &'static str,
    /// What differs from how it should be; with none the installation is as it was left.
    pub findings: Vec<Finding>,
    /// The current pointer.
    pub current: Option<Pointer>,
    /// What is known of the current generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The launcher.
    pub launcher: FileState,
    /// The shared config.
    pub config: FileState,
    /// Installed releases, the last installed first.
    pub releases: Vec<ReleaseState>,
    /// The journal.
    pub journal: JournalState,
    /// Whether a command changes the installation now.
    pub locked: bool,
    /// What killed commands left.
    pub leftovers: Vec<PathBuf>,
    /// What transactions replaced.
    pub backups: Vec<Backup>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// `blocker` (it does not work), `attention` or `info`.
    pub level: &'static str,
    /// What.
    pub what: String,
    /// The next command.
    pub next: String,
}

/// A file, and what it should be.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileState {
    /// It.
    pub path: PathBuf,
    /// Its SHA-256; none if it is not there.
    pub sha256: Option<String>,
    /// Whether it is what the pointer recorded; none if nothing is recorded.
    pub as_recorded: Option<bool>,
}

/// An installed release.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseState {
    /// Its id.
    pub release_id: ReleaseId,
    /// Whether it is current.
    pub current: bool,
    /// `whole`, `damaged` or `not-checked`.
    pub state: &'static str,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether there is a receipt.
    pub receipt: bool,
}

/// The journal.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalState {
    /// Transactions in it.
    pub transactions: usize,
    /// The one that was cut off.
    pub unfinished: Option<String>,
    /// What is wrong with its chain; none if it holds.
    pub damage: Option<String>,
}

/// What a transaction replaced.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// The transaction.
    pub txid: String,
    /// Bytes in it.
    pub bytes: u64,
}

/// Looks at an installation.
pub fn inspect(context: &Context, layout: &Layout, options: &Options) -> Result<Inspection, ReleaseError> {
    let mut findings = Findings::default();
    let installed = prune::installed(layout)?;
    let current = match pointer::read(layout) {
        Ok(current) => current.map(|(_, pointer)| pointer),
        Err(error) => {
            findings.blocker(error.to_string(), "agent-bridge cutover ID");
            None
        }
    };
    let releases = releases(layout, options, &installed, current.as_ref(), &mut findings);
    let launcher =
        file_state(&layout.launcher(), current.as_ref().map(|pointer| pointer.launcher.sha256.as_str()));
    let config =
        file_state(&layout.config(), current.as_ref().and_then(|pointer| pointer.config_sha256.as_deref()));
    if current.is_some() {
        match (&launcher.sha256, launcher.as_recorded) {
            (None, _) => findings
                .blocker("the launcher is missing".into(), "agent-bridge cutover ID --update-launcher"),
            (_, Some(false)) => findings.blocker(
                "the launcher is not the one that was put there".into(),
                "agent-bridge cutover ID --update-launcher",
            ),
            _ => {}
        }
        match (&config.sha256, config.as_recorded) {
            (None, _) => {
                findings.blocker("the shared config is missing".into(), "agent-bridge rollback --dry-run")
            }
            (_, Some(false)) => {
                findings.info(
                    "the shared config was edited since the switch".into(),
                    "agent-bridge config check",
                );
            }
            _ => {}
        }
        let copy = std::fs::read(layout.pointer_copy()).ok();
        let copied = copy.and_then(|bytes| serde_json::from_slice::<Pointer>(&bytes).ok());
        if copied != current {
            findings.attention(
                "current-release.json does not say what the pointer says".into(),
                "agent-bridge recover",
            );
        }
    }
    let journal = journal_state(layout, &mut findings);
    let leftovers = leftovers(layout);
    if !leftovers.is_empty() {
        findings
            .attention(format!("{} leftovers of killed commands", leftovers.len()), "agent-bridge recover");
    }
    for lost in super::clients::lost(context, layout) {
        findings.attention(
            format!("{} is not registered any more ({}): {}", lost.client, lost.path.display(), lost.why),
            &lost.command(),
        );
    }
    let verdict = current.as_ref().and_then(|pointer| {
        generations::list(layout)
            .ok()?
            .into_iter()
            .find(|g| g.number == pointer.generation)
            .map(|g| g.verdict)
    });
    let status = status(options, &installed, current.as_ref(), &findings.0);
    Ok(Inspection {
        root: layout.root().to_path_buf(),
        status,
        findings: findings.0,
        current,
        verdict,
        launcher,
        config,
        releases,
        journal,
        locked: platform::is_held_exclusively(&layout.install_lock()).unwrap_or(false),
        leftovers,
        backups: backups(layout),
    })
}

fn status(
    options: &Options,
    installed: &[ReleaseId],
    current: Option<&Pointer>,
    findings: &[Finding],
) -> &'static str {
    let Some(wanted) = options.expect.as_ref().or(current.map(|pointer| &pointer.release_id)) else {
        return if installed.is_empty() { "not-installed" } else { "not-current" };
    };
    if !installed.contains(wanted) {
        "not-installed"
    } else if current.is_none_or(|pointer| pointer.release_id != *wanted) {
        if options.expect.is_some() { "drift" } else { "not-current" }
    } else if findings.iter().any(|finding| finding.level == "blocker") {
        "drift"
    } else {
        "current"
    }
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, level: &'static str, what: String, next: &str) {
        self.0.push(Finding { level, what, next: next.to_owned() });
    }

    fn blocker(&mut self, what: String, next: &str) {
        self.add("blocker", what, next);
    }

    fn attention(&mut self, what: String, next: &str) {
        self.add("attention", what, next);
    }

    fn info(&mut self, what: String, next: &str) {
        self.add("info", what, next);
    }
}

fn releases(
    layout: &Layout,
    options: &Options,
    installed: &[ReleaseId],
    current: Option<&Pointer>,
    findings: &mut Findings,
) -> Vec<ReleaseState> {
    let mut states = Vec::new();
    for id in installed {
        let is_current = current.is_some_and(|pointer| pointer.release_id == *id);
        let expected = options.expect.as_ref() == Some(id);
        let mut state = ReleaseState {
            release_id: id.clone(),
            current: is_current,
            state: "not-checked",
            why: None,
            receipt: layout.receipt(id).is_file(),
        };
        if is_current || expected || options.all {
            let checked =
                verify::release(layout, id).map_err(|error| error.to_string()).and_then(|verified| {
                    let pinned = current.filter(|_| is_current);
                    match pinned {
                        Some(pointer) if pointer.metadata_sha256 != verified.metadata_sha256 => {
                            Err("its metadata is not the one that was switched to".into())
                        }
                        _ => Ok(()),
                    }
                });
            state.state = if checked.is_ok() { "whole" } else { "damaged" };
            state.why = checked.err();
        }
        if let Some(why) = &state.why {
            let level = if is_current { "blocker" } else { "attention" };
            findings.add(level, format!("{id}: {why}"), "agent-bridge install-release BUNDLE --repair");
        }
        states.push(state);
    }
    if let Some(pointer) = current
        && !installed.contains(&pointer.release_id)
    {
        findings.blocker(
            format!("{} is current, but it is not there", pointer.release_id),
            "agent-bridge rollback",
        );
    }
    states
}

fn file_state(path: &Path, recorded: Option<&str>) -> FileState {
    let sha256 = digest::of_file(path).ok().map(|(sha256, _)| sha256);
    let as_recorded = recorded.map(|recorded| sha256.as_deref() == Some(recorded));
    FileState { path: path.to_path_buf(), sha256, as_recorded }
}

fn journal_state(layout: &Layout, findings: &mut Findings) -> JournalState {
    match journal::verify_all(layout) {
        Ok(all) => {
            let unfinished = all.last().filter(|last| last.outcome().is_none()).map(|last| last.txid.clone());
            // While a command is at work its own transaction is unfinished.
            let at_work = platform::is_held_exclusively(&layout.install_lock()).unwrap_or(false);
            if let Some(txid) = unfinished.as_ref().filter(|_| !at_work) {
                findings.blocker(format!("{txid} was cut off"), "agent-bridge recover");
            }
            JournalState { transactions: all.len(), unfinished, damage: None }
        }
        Err(error) => {
            findings.blocker(error.to_string(), "agent-bridge explain RELEASE_JOURNAL_DAMAGED");
            JournalState { transactions: 0, unfinished: None, damage: Some(error.to_string()) }
        }
    }
}

/// Staging folders and temporary files that no running command owns.
fn leftovers(layout: &Layout) -> Vec<PathBuf> {
    if platform::is_held_exclusively(&layout.install_lock()) == Some(true) {
        return Vec::new();
    }
    let folders = [
        layout.root().to_path_buf(),
        layout.releases(),
        layout.journal(),
        layout.generations(),
        layout.root().join("configs"),
        layout.root().join("receipts"),
        layout.root().join("bin"),
        layout.root().join("pointer"),
    ];
    let mut found = Vec::new();
    for folder in folders {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if [".ab-", ".installing-", ".pruned-", ".ballast"].iter().any(|begin| name.starts_with(begin)) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

fn backups(layout: &Layout) -> Vec<Backup> {
    let mut found: Vec<Backup> = std::fs::read_dir(layout.root().join("backups"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| Backup {
            txid: entry.file_name().to_string_lossy().into_owned(),
            bytes: walkdir::WalkDir::new(entry.path())
                .into_iter()
                .flatten()
                .filter_map(|file| file.metadata().ok())
                .filter(std::fs::Metadata::is_file)
                .map(|file| file.len())
                .sum(),
        })
        .collect();
    found.sort_by(|a, b| a.txid.cmp(&b.txid));
    found
}
