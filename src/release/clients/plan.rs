//! What would be written where: a look at every client's file that changes nothing.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::entry::{Leaf, Literal};
use super::error::ClientsError;
use super::lost::{Lost, Registered};
use super::merge::{self, Refusal, State, Wanted, merge};
use super::patch::Hunk;
use super::places::{self, Location, Machine};
use super::table::{self, Client, Format, Headless, NAME, Shape};
use super::unified::unified;
use super::verdict::{self, Effect, Verdict};
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::release::Layout;

/// What is asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Options {
    /// Only these clients; all if empty.
    pub clients: Vec<String>,
    /// Also where the client was not found.
    pub create: bool,
    /// Also the setting that lets headless runs call tools without a question.
    pub allow_headless: bool,
    /// A state folder that the server is told of.
    pub state_dir: Option<PathBuf>,
    /// Where files are looked for.
    #[serde(skip)]
    pub machine: Machine,
}

/// What is to be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Nothing.
    None,
    /// Change it.
    Update,
    /// Make it.
    Create,
    /// Remove it.
    Delete,
}

/// What was found, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// The client is not on this machine.
    NotInstalled,
    /// No entry of ours.
    Absent,
    /// The entry that is wanted.
    Correct,
    /// Another one.
    Stale,
    /// One that starts a program inside one release.
    DirectRelease,
    /// More than one.
    Ambiguous,
    /// A file or link that cannot be used.
    Unusable,
    /// A shape that is not edited.
    Unsupported,
}

/// One file.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientPlan {
    /// The client's id.
    pub client: &'static str,
    /// Its file, as the client names it.
    pub file: Option<PathBuf>,
    /// Why it is this file.
    pub why: String,
    /// The file that is written: the end of all links.
    pub target: Option<PathBuf>,
    /// The links that were followed and stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<PathBuf>,
    /// Whether the file is there.
    pub exists: bool,
    /// What was found.
    pub state: Found,
    /// What is to be done.
    pub action: Step,
    /// Whether anything is to be done.
    pub change_required: bool,
    /// SHA-256 of the file now.
    pub before_sha256: Option<String>,
    /// SHA-256 of the file after.
    pub after_sha256: Option<String>,
    /// SHA-256 of our entry as it is now.
    pub own_sha256: Option<String>,
    /// The places that are changed; none where a file is made, removed or put back as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patch: Vec<Hunk>,
    /// The change as `diff -u` shows it; values that are not ours are not shown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub diff: String,
    /// Remarks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why it cannot be done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Value>,
    /// What to paste where the file cannot be edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
    /// What the client makes of it now.
    pub verdict: Verdict,
    #[serde(skip)]
    pub(super) before: Option<Vec<u8>>,
    #[serde(skip)]
    pub(super) after: Option<Vec<u8>>,
}

/// All files.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// `configure`, `remove` or `restore`.
    pub operation: &'static str,
    /// The installation.
    pub root: PathBuf,
    /// The program that clients start.
    pub launcher: PathBuf,
    /// The config that it is given.
    pub config: PathBuf,
    /// What was asked for.
    pub options: Options,
    /// Each file.
    pub clients: Vec<ClientPlan>,
    /// Whether the launcher is there.
    pub launcher_exists: bool,
    /// Whether the config is there.
    pub config_exists: bool,
    /// Clients that run now.
    pub running: Vec<super::live::Running>,
}

impl Plan {
    pub(super) fn empty(operation: &'static str, layout: &Layout, options: &Options) -> Self {
        Self {
            operation,
            root: layout.root().to_path_buf(),
            launcher: layout.launcher(),
            config: layout.config(),
            options: options.clone(),
            clients: Vec::new(),
            launcher_exists: layout.launcher().is_file(),
            config_exists: layout.config().is_file(),
            running: Vec::new(),
        }
    }

    /// Whether nothing would be written.
    pub fn is_empty(&self) -> bool {
        !self.change_required()
    }

    /// The files that would be written.
    pub fn files(&self) -> Vec<PathBuf> {
        let written = self.clients.iter().filter(|one| one.change_required);
        written.filter_map(|one| one.target.clone()).collect()
    }

    /// Whether anything is to be written.
    pub fn change_required(&self) -> bool {
        self.clients.iter().any(|one| one.change_required)
    }

    /// The files that cannot be changed.
    pub fn blocked(&self) -> impl Iterator<Item = &ClientPlan> {
        self.clients.iter().filter(|one| !one.errors.is_empty())
    }

    /// Refuses if there is a file that cannot be changed, or nothing that clients could start.
    pub fn require_possible(&self) -> Result<(), ClientsError> {
        if self.operation == "configure" && self.change_required() && !self.launcher_exists {
            return Err(ClientsError::NoLauncher { path: self.launcher.clone() });
        }
        self.require_editable()
    }

    /// Refuses if there is a file that cannot be changed. For a cutover, which puts the launcher in place itself.
    pub fn require_editable(&self) -> Result<(), ClientsError> {
        let count = self.blocked().count();
        match self.blocked().next().and_then(|one| one.errors.first()) {
            None => Ok(()),
            Some(error) => Err(ClientsError::Blocked {
                count,
                why: format!(
                    "{} ({})",
                    error["message"].as_str().unwrap_or_default(),
                    error["code"].as_str().unwrap_or_default()
                ),
                hint: error["hint"].as_str().unwrap_or_default().to_owned(),
            }),
        }
    }
}

/// Refuses ids that are not in the table.
pub fn require_known(clients: &[String]) -> Result<(), ClientsError> {
    match clients.iter().find(|id| !table::ids().any(|known| known == *id)) {
        Some(id) => Err(ClientsError::Unknown { id: id.chars().take(100).collect() }),
        None => Ok(()),
    }
}

/// What is wanted in a client's file. None if this installation's paths cannot be written as text.
pub(super) fn wanted(client: &Client, layout: &Layout, options: &Options, name: &str) -> Option<Wanted> {
    wanted_for(client, &layout.launcher(), &layout.config(), options, name)
}

/// The same of any program and its config.
pub(super) fn wanted_for(
    client: &Client,
    command: &Path,
    config: &Path,
    options: &Options,
    name: &str,
) -> Option<Wanted> {
    let text = |path: &Path| path.to_str().map(str::to_owned).map(Literal::Text);
    match client.shape {
        Shape::Rule { path } => Some(Wanted::Item { path, text: format!("mcp__{name}") }),
        Shape::Server { section, numbers, texts, headless } => {
            let mut leaves = Vec::new();
            for (key, value) in texts {
                leaves.push(Leaf::may(one_key(key), Literal::Text((*value).to_owned())));
            }
            leaves.push(Leaf::must(&["command"], text(command)?));
            leaves.push(Leaf::must(&["args"], Literal::Texts(vec!["serve".into()])));
            leaves.push(Leaf::must(&["env", "AGENT_BRIDGE_CONFIG"], text(config)?));
            if let Some(folder) = &options.state_dir {
                leaves.push(Leaf::must(&["env", "AGENT_BRIDGE_STATE_DIR"], text(folder)?));
            }
            for (key, value) in numbers {
                leaves.push(Leaf::may(one_key(key), Literal::Number(*value)));
            }
            match headless {
                Headless::Text(key, value) if options.allow_headless => {
                    leaves.push(Leaf::must(one_key(key), Literal::Text(value.to_owned())));
                }
                Headless::Yes(key) if options.allow_headless => {
                    leaves.push(Leaf::must(one_key(key), Literal::True));
                }
                _ => {}
            }
            Some(Wanted::Server { section, leaves })
        }
    }
}

/// A path of one key. The keys come from the table, so there are few of them.
fn one_key(key: &'static str) -> &'static [&'static str] {
    match key {
        "type" => &["type"],
        "timeout" => &["timeout"],
        "trust" => &["trust"],
        "startup_timeout_sec" => &["startup_timeout_sec"],
        "tool_timeout_sec" => &["tool_timeout_sec"],
        _ => &["default_tools_approval_mode"],
    }
}

/// The files that the options mean.
pub(super) fn selected(options: &Options) -> impl Iterator<Item = &'static Client> + '_ {
    table::CLIENTS.iter().filter(|client| {
        options.clients.is_empty() || options.clients.iter().any(|id| id == client.belongs_to)
    })
}

/// Looks at every client's file and says what is to be done. Changes nothing. A file that cannot be changed is no
/// error here: see [`Plan::blocked`].
pub fn plan(context: &Context, layout: &Layout, options: &Options) -> Result<Plan, Error> {
    require_known(&options.clients)?;
    let mut clients: Vec<ClientPlan> = Vec::new();
    let registered = Registered::read(layout);
    for client in selected(options) {
        let is_rule = matches!(client.shape, Shape::Rule { .. });
        if is_rule && !options.allow_headless {
            continue;
        }
        let server = clients.iter().find(|one| one.client == client.belongs_to);
        // A rule names the server as the entry does, and is of no use without one.
        if is_rule && server.is_some_and(|one| one.state == Found::NotInstalled) {
            continue;
        }
        let name = if is_rule { entry_name(client, context, options) } else { NAME.to_owned() };
        let locations = places::locate(client, context, &options.machine);
        if locations.is_empty() && client.id == client.belongs_to {
            clients.push(nowhere(client));
        }
        for location in locations {
            let mut one = plan_one(client, context, layout, options, &location, &name);
            if one.verdict.effect == Effect::NotRegistered
                && !is_rule
                && let Some(target) = &one.target
                && let Some(txid) = registered.by(client.id, target)
            {
                one.verdict = Verdict::lost(&Lost::new(client, target, txid));
            }
            // The second of two applications of one client is not worth a line if it is not there.
            if one.state != Found::NotInstalled || client.id == client.belongs_to {
                clients.push(one);
            }
        }
    }
    let running = super::live::running(layout, &clients);
    for one in clients.iter_mut().filter(|one| one.change_required) {
        if running
            .iter()
            .any(|process| table::find(one.client).is_some_and(|it| it.belongs_to == process.client))
        {
            one.warnings.push(
                "it is running now and may write its own copy of the file over the change; quit it first"
                    .into(),
            );
        }
    }
    Ok(Plan { clients, running, ..Plan::empty("configure", layout, options) })
}

/// The name that the client's entry has.
fn entry_name(client: &Client, context: &Context, options: &Options) -> String {
    let name = || {
        let server = table::find(client.belongs_to)?;
        let Shape::Server { section, .. } = server.shape else { return None };
        let location = places::locate(server, context, &options.machine).into_iter().next()?;
        let look = places::look(&location.file).ok()?;
        let text = String::from_utf8(look.content?).ok()?;
        merge::entries(server.format, &text, section).ok()?.pop().map(|seen| seen.name)
    };
    name().unwrap_or_else(|| NAME.to_owned())
}

pub(super) fn blank(client: &'static Client, location: &Location) -> ClientPlan {
    ClientPlan {
        client: client.id,
        file: Some(location.file.clone()),
        why: location.why.clone(),
        target: None,
        links: Vec::new(),
        exists: false,
        state: Found::NotInstalled,
        action: Step::None,
        change_required: false,
        before_sha256: None,
        after_sha256: None,
        own_sha256: None,
        patch: Vec::new(),
        diff: String::new(),
        warnings: Vec::new(),
        errors: Vec::new(),
        snippet: None,
        verdict: Verdict::not_installed(),
        before: None,
        after: None,
    }
}

fn nowhere(client: &'static Client) -> ClientPlan {
    let location = Location { file: PathBuf::new(), why: String::new(), sign: PathBuf::new() };
    let why = "it has no place on this system".to_owned();
    ClientPlan { file: None, why, ..blank(client, &location) }
}

fn plan_one(
    client: &'static Client,
    context: &Context,
    layout: &Layout,
    options: &Options,
    location: &Location,
    name: &str,
) -> ClientPlan {
    let mut one = blank(client, location);
    let fail = |one: &mut ClientPlan, state: Found, error: ClientsError| {
        one.state = state;
        one.verdict = Verdict::unreadable();
        one.errors.push(Error::from(error).to_json());
    };
    let look = match places::look(&location.file) {
        Ok(look) => look,
        Err(error) => {
            one.exists = std::fs::symlink_metadata(&location.file).is_ok();
            fail(&mut one, Found::Unusable, error);
            return one;
        }
    };
    let Some(wanted) = wanted(client, layout, options, name) else {
        let why = "the path of this installation cannot be written as text".to_owned();
        fail(&mut one, Found::Unusable, ClientsError::Unreadable { path: location.file.clone(), why });
        return one;
    };
    one.target = Some(look.target.clone());
    one.links.clone_from(&look.links);
    one.exists = look.content.is_some();
    one.before_sha256 = look.content.as_deref().map(digest::of_bytes);
    one.before.clone_from(&look.content);
    // A rule belongs to a client that was found by its own file.
    let is_rule = matches!(client.shape, Shape::Rule { .. });
    let installed = one.exists || is_rule || location.sign.is_dir();
    let asked_for = options.create && !options.clients.is_empty();
    if !installed && !asked_for {
        return one;
    }
    let text = match &look.content {
        None if client.format == Format::Toml => String::new(),
        None => "{}\n".to_owned(),
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => {
                let why = "it is not UTF-8".to_owned();
                fail(&mut one, Found::Unusable, ClientsError::Unreadable { path: look.target, why });
                return one;
            }
        },
    };
    one.verdict = verdict::of(
        client,
        context,
        options,
        layout,
        &location.file,
        look.content.is_some().then_some(&text),
    );
    let merged = match merge(client.format, client.reads_byte_order_mark, &text, &wanted) {
        Ok(merged) => merged,
        Err(refusal) => {
            refuse(&mut one, client, &wanted, look.target, refusal);
            one.verdict = Verdict::unreadable();
            return one;
        }
    };
    one.own_sha256 = Some(own_digest(client, &text));
    one.state = match merged.state {
        State::Absent => Found::Absent,
        State::Correct => Found::Correct,
        State::Stale => Found::Stale,
        State::DirectRelease => Found::DirectRelease,
    };
    if merged.after == text && one.exists {
        one.after_sha256.clone_from(&one.before_sha256);
        one.after = look.content;
        return one;
    }
    if let Err(error) = places::require_writable(&location.file, &look) {
        fail(&mut one, Found::Unusable, error);
        return one;
    }
    if merged.mark_removed {
        one.warnings.push(format!(
            "the byte order mark at the begin of the file is taken off, since {} does not read such a file",
            client.name
        ));
    }
    if !look.links.is_empty() {
        one.warnings
            .push(format!("the file is a link; {} is changed, the link stays", look.target.display()));
    }
    one.action = if one.exists { Step::Update } else { Step::Create };
    one.change_required = true;
    one.after_sha256 = Some(digest::of_bytes(merged.after.as_bytes()));
    let old = one.exists.then_some(text.as_str());
    one.diff = unified(client.format, &look.target, old, Some(&merged.after), Some(&wanted));
    one.patch = match old {
        Some(_) => merged.patch,
        None => vec![Hunk { before: 0..0, after: 0..merged.after.len(), text: merged.after.clone() }],
    };
    one.after = Some(merged.after.into_bytes());
    one
}

pub(super) fn refuse(
    one: &mut ClientPlan,
    client: &Client,
    wanted: &Wanted,
    path: PathBuf,
    refusal: Refusal,
) {
    let snippet = merge::snippet(client.format, wanted);
    let (state, error) = match refusal {
        Refusal::Broken(why) => (Found::Unusable, ClientsError::Unreadable { path, why }),
        Refusal::Ambiguous(names) => {
            (Found::Ambiguous, ClientsError::Ambiguous { path, names: names.join(", ") })
        }
        Refusal::Unsupported(why) => {
            one.snippet = Some(snippet.clone());
            (Found::Unsupported, ClientsError::Unsupported { path, why, snippet })
        }
    };
    one.state = state;
    one.errors.push(Error::from(error).to_json());
}

/// A digest of what is ours in a file.
pub(super) fn own_digest(client: &Client, text: &str) -> String {
    let own = match client.shape {
        Shape::Server { section, .. } => format!("{:?}", merge::entries(client.format, text, section)),
        Shape::Rule { .. } => String::new(),
    };
    digest::of_bytes(own.as_bytes())
}
