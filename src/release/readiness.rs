//! Whether anything still uses an installation: quiet, busy or unknown, and by whom. Unknown is never quiet.
//!
//! The kernel's locks decide. Labels and the system's list of locks name the holders; the process table finds
//! programs that hold no lease and processes that cannot be looked at. Nothing is changed, and no lock is held for
//! longer than a look.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::holders::{self, Holding, Label};
use super::processes::{self, Host, Scan, Use};
use super::{Layout, ReleaseError, ReleaseId, journal, transaction};
use crate::context::Context;
use crate::error::Error;
use crate::platform::{self, LockState, ProcessIdentity};

/// How long a process of ours that holds no lease is given to get one or to end: a start that waits at the gate,
/// or a short command.
const SETTLE: Duration = Duration::from_millis(700);
/// Most processes of a kind that are listed.
const MAX_LISTED: usize = 64;
/// How often a wait looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing uses it.
    Quiet,
    /// Something does.
    Busy,
    /// That cannot be told.
    Unknown,
}

/// What to look for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Processes that cannot be looked at do not make the answer unknown.
    pub allow_unreadable: bool,
    /// This process has the lease alone, so only the second opinion is asked.
    pub drained: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The answer.
    pub state: State,
    /// ROOT.
    pub root: String,
    /// When, UTC.
    pub checked_at: String,
    /// Whether starts are let in at the moment.
    pub gate_open: bool,
    /// Who uses it.
    pub holders: Vec<Holder>,
    /// Why the answer is unknown, in sentences.
    pub unknown: Vec<String>,
    /// Processes of this user that cannot be looked at, at most 64.
    pub unreadable: Vec<u32>,
    /// All of them.
    pub unreadable_count: usize,
    /// Processes of other users that cannot be looked at; they don't count.
    pub unreadable_of_others: usize,
    /// Launchers at the gate or at work for an operator; they don't count.
    pub launchers: Vec<u32>,
    /// MCP hosts that run, at most 64. They don't count, but may rewrite their config files at any time.
    pub hosts: Vec<Host>,
    /// What else is worth knowing, in sentences.
    pub notes: Vec<String>,
}

/// What kind of use it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HolderKind {
    /// A server of one MCP host.
    Serve,
    /// The supervisor of one turn.
    Turn,
    /// A start that has just passed the gate.
    Starting,
    /// A program of the installation that holds no lease.
    Unleased,
    /// Somebody holds the lease, and no more is known.
    Unnamed,
}

/// One that uses the installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Its process; none if it cannot be seen from here.
    pub pid: Option<u32>,
    /// What it is.
    pub kind: HolderKind,
    /// The MCP client that it serves, by the client's own word.
    pub client: Option<String>,
    /// The program that started it, with its process id.
    pub host: Option<String>,
    /// Since when, UTC.
    pub since: Option<String>,
    /// The release that it runs.
    pub release: Option<ReleaseId>,
    /// What to do so that it ends.
    pub close_hint: String,
}

impl Holder {
    /// In words.
    pub fn sentence(&self) -> String {
        let what = match self.kind {
            HolderKind::Serve => "a server",
            HolderKind::Turn => "a turn",
            HolderKind::Starting => "a server that is starting",
            HolderKind::Unleased => "a program of the installation without a lease",
            HolderKind::Unnamed => "a process that cannot be named",
        };
        let mut text = what.to_owned();
        if let Some(client) = &self.client {
            text += &format!(" for {client}");
        }
        if let Some(pid) = self.pid {
            text += &format!(" (pid {pid})");
        }
        if let Some(since) = &self.since {
            text += &format!(" since {since}");
        }
        format!("{text}: {}", self.close_hint)
    }
}

/// Looks once. Takes up to a second where a program without a lease is about to get one or to end.
pub fn look(context: &Context, layout: &Layout, options: &Options) -> Report {
    let mut unknown = Vec::new();
    let mut notes = Vec::new();
    let root = layout.root();
    if platform::is_network_filesystem(root) {
        unknown.push(format!(
            "{} lies on a network or shared folder, whose locks say nothing of other machines.",
            root.display()
        ));
    }
    let gate_open = match platform::look_at_lock(&layout.gate_lock()) {
        Ok(state) => options.drained || state != LockState::HeldAlone,
        Err(error) => {
            unknown.push(format!("The gate cannot be looked at: {error}."));
            true
        }
    };
    let is_held = if options.drained {
        false
    } else {
        match platform::look_at_lock(&layout.lease_lock()) {
            Ok(state) => state != LockState::Free,
            Err(error) => {
                unknown.push(format!("The lease cannot be looked at: {error}."));
                false
            }
        }
    };
    if !gate_open {
        notes.push("The gate is closed: a command is switching the installation at this moment.".into());
    }
    match journal::unfinished(layout) {
        Ok(None) => {}
        Ok(Some(cut)) => notes.push(format!(
            "Transaction {} is not finished; if no command is at work, run `agent-bridge recover`.",
            cut.txid
        )),
        Err(error) => notes.push(format!("The journal cannot be read: {error}.")),
    }

    let scan = processes::scan(layout);
    let (mut found, without_lease) = settle(layout, &scan);
    if is_held && found.is_empty() {
        found.push(unnamed());
    }
    for (process, release) in without_lease {
        found.push(unleased(process, release));
    }
    if !scan.unreadable.is_empty() {
        let count = scan.unreadable.len();
        let sentence = format!(
            "{count} {} of this user cannot be looked at, so whether they run from {} is not known.",
            if count == 1 { "process" } else { "processes" },
            root.display()
        );
        if options.allow_unreadable { notes.push(sentence) } else { unknown.push(sentence) }
    }
    if scan.unreadable_of_others > 0 {
        notes.push(format!(
            "{} processes of other users cannot be looked at; they are not counted.",
            scan.unreadable_of_others
        ));
    }
    if scan.elsewhere > 0 {
        notes.push(format!(
            "{} processes live in other containers or namespaces; they are known by the file they run, not by its path.",
            scan.elsewhere
        ));
    }
    notes.extend(platform::limits_of_sight().into_iter().map(str::to_owned));
    if !scan.hosts.is_empty() {
        notes.push(
            "MCP hosts are running; they may rewrite their config files at any time, which matters only where a client's file is to be changed."
                .into(),
        );
    }
    let launchers = scan.users.iter().filter(|(_, used)| *used == Use::Launcher);
    let state = if !found.is_empty() {
        State::Busy
    } else if !unknown.is_empty() {
        State::Unknown
    } else {
        State::Quiet
    };
    Report {
        state,
        root: root.display().to_string(),
        checked_at: transaction::timestamp(context.clock),
        gate_open,
        holders: found,
        unknown,
        unreadable: scan.unreadable.iter().take(MAX_LISTED).map(|process| process.pid).collect(),
        unreadable_count: scan.unreadable.len(),
        unreadable_of_others: scan.unreadable_of_others,
        launchers: launchers.take(MAX_LISTED).map(|(program, _)| program.process.pid).collect(),
        hosts: scan.hosts.into_iter().take(MAX_LISTED).collect(),
        notes,
    }
}

/// Looks until it is quiet or the time is up; `tell` gets each report that differs from the one before.
pub fn wait(
    context: &Context,
    layout: &Layout,
    options: &Options,
    deadline: Duration,
    interruption: &transaction::Interruption,
    tell: &mut dyn FnMut(&Report),
) -> Report {
    let until = Instant::now() + deadline;
    let mut told: Option<Vec<Holder>> = None;
    loop {
        let report = look(context, layout, options);
        if report.state == State::Quiet || Instant::now() >= until || interruption.is_set() {
            return report;
        }
        if told.as_ref() != Some(&report.holders) {
            tell(&report);
            told = Some(report.holders.clone());
        }
        std::thread::sleep(LOOK_AGAIN.min(until.saturating_duration_since(Instant::now())));
    }
}

impl Report {
    /// The refusal of a command that needs quiet; nothing if it is quiet.
    pub fn require_quiet(&self, layout: &Layout) -> Result<(), Error> {
        let root = layout.root().to_path_buf();
        match self.state {
            State::Quiet => Ok(()),
            State::Busy => {
                let names: Vec<String> = self.holders.iter().map(Holder::sentence).collect();
                let details = serde_json::json!({ "holders": self.holders });
                Err(Error::from(ReleaseError::InUse { root, holders: names.join("; ") })
                    .with_details(details))
            }
            State::Unknown => Err(ReleaseError::UseUnknown { root, why: self.unknown.join(" ") }.into()),
        }
    }
}

/// Those that hold the lease, as far as they can be named.
pub fn holders(layout: &Layout) -> Vec<Holder> {
    named(layout).into_iter().map(|(_, holder)| holder).collect()
}

fn named(layout: &Layout) -> Vec<(Option<ProcessIdentity>, Holder)> {
    let labels: Vec<Label> = holders::list(layout).into_iter().map(|(_, label)| label).collect();
    let owners = platform::lock_owners(&layout.lease_lock());
    let own = ProcessIdentity::current();
    let mut found: Vec<(Option<ProcessIdentity>, Holder)> = Vec::new();
    for label in &labels {
        let process = label.process;
        match label.is_alive() {
            Some(true) if process != own => found.push((Some(process), of_label(label, &labels))),
            // Of another container: there it may be alive, if anybody is.
            None if owners.as_ref().is_none_or(|owners| owners.is_empty()) => {
                let mut holder = of_label(label, &labels);
                holder.pid = None;
                holder.host = None;
                holder.close_hint = format!("{} in its container, or it is gone already", holder.close_hint);
                found.push((None, holder));
            }
            _ => {}
        }
    }
    for pid in owners.unwrap_or_default() {
        let known = found.iter().any(|(process, _)| process.is_some_and(|process| process.pid == pid));
        let Some(process) = ProcessIdentity::of(pid).filter(|process| !known && *process != own) else {
            continue;
        };
        found.push((
            Some(process),
            Holder {
                pid: Some(pid),
                kind: HolderKind::Starting,
                client: None,
                host: host_of(platform::parent_of(pid)),
                since: None,
                release: None,
                close_hint: close_server(None, host_of(platform::parent_of(pid)).as_deref()),
            },
        ));
    }
    found
}

fn of_label(label: &Label, all: &[Label]) -> Holder {
    let parent = label.parent.filter(platform::is_alive);
    let host = host_of(parent.map(|parent| parent.pid));
    // A turn belongs to the client whose server started it.
    let of_parent = || {
        let parent = label.parent?;
        all.iter().find(|other| other.process == parent)?.client.clone()
    };
    let client = label.client.clone().or_else(of_parent);
    let (kind, close_hint) = match label.kind {
        Holding::Serve => (HolderKind::Serve, close_server(client.as_deref(), host.as_deref())),
        Holding::Turn => (
            HolderKind::Turn,
            "wait for the turn, or end it (`agent-bridge turns list --running`, `agent-bridge turns cancel ID`)"
                .to_owned(),
        ),
    };
    Holder {
        pid: Some(label.process.pid),
        kind,
        client,
        host,
        since: Some(label.since.clone()),
        release: label.release.clone(),
        close_hint,
    }
}

/// What ends the server of a client.
fn close_server(client: Option<&str>, host: Option<&str>) -> String {
    let name = client.unwrap_or_default().to_ascii_lowercase();
    let at = host.map(|host| format!(" (started by {host})")).unwrap_or_default();
    let what = if name.starts_with("codex") {
        "quit Codex: its window, or `/quit` in its terminal"
    } else if name.starts_with("claude-code") {
        "end the Claude Code session: `/exit` in its terminal"
    } else if name.starts_with("claude") {
        "quit Claude Desktop from its menu; closing the window is not enough"
    } else if name.starts_with("gemini") {
        "end the Gemini CLI: `/quit` in its terminal"
    } else {
        "close the program that uses it as an MCP server"
    };
    format!("{what}{at}")
}

/// Name and process id of a program; its arguments may hold secrets and are not shown.
fn host_of(pid: Option<u32>) -> Option<String> {
    let pid = pid.filter(|pid| *pid > 1)?;
    let program = platform::running_program(pid)?;
    let path = program.exe.or_else(|| program.arguments.first().map(Into::into))?;
    let name: String =
        path.file_name()?.to_string_lossy().chars().filter(|c| !c.is_control()).take(60).collect();
    Some(format!("{name}, pid {pid}"))
}

/// The named holders, and of the programs that hold no lease those that still don't after a moment.
fn settle(layout: &Layout, scan: &Scan) -> (Vec<Holder>, Vec<(ProcessIdentity, Option<ReleaseId>)>) {
    let until = Instant::now() + SETTLE;
    let mut suspects: Vec<(ProcessIdentity, Option<ReleaseId>)> = scan
        .users
        .iter()
        .filter(|(_, used)| *used == Use::Release)
        .map(|(program, _)| {
            let place = program.exe.as_deref().and_then(Layout::of_program);
            let release = place.and_then(|(_, place)| match place {
                super::Place::Release(id) => Some(id),
                super::Place::Launcher => None,
            });
            (program.process, release)
        })
        .collect();
    loop {
        let named = named(layout);
        suspects.retain(|(process, _)| {
            platform::is_alive(process) && !named.iter().any(|(holder, _)| holder.as_ref() == Some(process))
        });
        if suspects.is_empty() || Instant::now() >= until {
            return (named.into_iter().map(|(_, holder)| holder).collect(), suspects);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn unnamed() -> Holder {
    Holder {
        pid: None,
        kind: HolderKind::Unnamed,
        client: None,
        host: None,
        since: None,
        release: None,
        close_hint:
            "it runs in another container or namespace, or ended a moment ago; look there, or look again"
                .into(),
    }
}

fn unleased(process: ProcessIdentity, release: Option<ReleaseId>) -> Holder {
    Holder {
        pid: Some(process.pid),
        kind: HolderKind::Unleased,
        client: None,
        host: host_of(platform::parent_of(process.pid)),
        since: None,
        release,
        close_hint: format!("end process {} where it was started", process.pid),
    }
}
