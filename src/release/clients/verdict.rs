//! What a client makes of its configuration as a whole: an entry in the right file is not yet a server that is
//! started, where a policy, a project or an extension says otherwise.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::entry::{Literal, Seen, is_our_name};
use super::json::{self, Node};
use super::merge;
use super::plan::Options;
use super::table::{Client, Format, Shape};
use crate::context::Context;
use crate::release::Layout;

/// What the client will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// It starts this installation.
    Effective,
    /// Something else of the same name counts.
    Shadowed,
    /// A policy of the machine forbids it.
    Blocked,
    /// The entry, or the user, switched it off.
    Disabled,
    /// Its entry starts something else.
    Elsewhere,
    /// It has no entry.
    NotRegistered,
    /// It has none any more: a client that ran wrote its own copy of the file over ours.
    Lost,
    /// The client is not there.
    NotInstalled,
    /// Its file cannot be read.
    Unreadable,
}

/// The effect and its cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What the client will do.
    pub effect: Effect,
    /// The file that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<PathBuf>,
    /// In words.
    pub why: String,
}

impl Verdict {
    fn new(effect: Effect, by: &Path, why: impl Into<String>) -> Self {
        Self { effect, by: Some(by.to_path_buf()), why: why.into() }
    }

    pub(super) fn not_installed() -> Self {
        Self { effect: Effect::NotInstalled, by: None, why: "the client was not found".into() }
    }

    pub(super) fn lost(lost: &super::Lost) -> Self {
        Self::new(Effect::Lost, &lost.path, format!("{}. {}", lost.why, lost.next))
    }

    pub(super) fn unreadable() -> Self {
        Self { effect: Effect::Unreadable, by: None, why: "its file cannot be used".into() }
    }
}

/// The verdict about a file that was read (none: that is not there).
pub(super) fn of(
    client: &Client,
    context: &Context,
    options: &Options,
    layout: &Layout,
    file: &Path,
    text: Option<&String>,
) -> Verdict {
    let Shape::Server { section, .. } = client.shape else { return of_rule(client, file, text) };
    let entries = match text.map(|text| merge::entries(client.format, text, section)) {
        None => Vec::new(),
        Some(Ok(entries)) => entries,
        Some(Err(_)) => return Verdict::unreadable(),
    };
    let own = match entries.as_slice() {
        [] => Verdict::new(Effect::NotRegistered, file, "there is no entry"),
        [one] => of_entry(one, layout, file),
        _ => Verdict::new(Effect::Unreadable, file, "there is more than one entry"),
    };
    let name = entries.first().map_or(super::table::NAME, |one| one.name.as_str());
    let scene = Scene { context, options, file, text, name };
    // A policy counts whether there is an entry or not; what goes before an entry counts only with one.
    let policy = match client.belongs_to {
        "claude-code" => scene.claude_code_policy(),
        "codex" => scene.codex_policy(),
        "gemini" => scene.gemini_policy(),
        _ => None,
    };
    if let Some(verdict) = policy {
        return verdict;
    }
    if own.effect == Effect::NotRegistered {
        return own;
    }
    let shadow = match client.belongs_to {
        "claude-code" => scene.claude_code_shadow(),
        "codex" => scene.project_shadow(&[".codex", "config.toml"], Format::Toml, section),
        "gemini" => scene.project_shadow(&[".gemini", "settings.json"], Format::JsonWithComments, section),
        _ => scene.desktop_shadow(client.id),
    };
    shadow.unwrap_or(own)
}

fn of_rule(client: &Client, file: &Path, text: Option<&String>) -> Verdict {
    let list = text.and_then(|text| json::parse(text, client.format == Format::JsonWithComments).ok());
    let allowed = list
        .as_ref()
        .and_then(|root| root.at(&["permissions", "allow"])?.elements())
        .is_some_and(|items| items.iter().any(|item| item.text().is_some_and(is_our_rule)));
    if allowed {
        Verdict::new(Effect::Effective, file, "headless runs may call its tools")
    } else {
        Verdict::new(Effect::NotRegistered, file, "there is no rule")
    }
}

fn is_our_rule(rule: &str) -> bool {
    rule.strip_prefix("mcp__").is_some_and(is_our_name)
}

fn of_entry(entry: &Seen, layout: &Layout, file: &Path) -> Verdict {
    let off = entry.leaf(&["enabled"]).is_some_and(|leaf| leaf.raw == "false")
        || entry.leaf(&["disabled"]).is_some_and(|leaf| leaf.value == Some(Literal::True));
    if off {
        return Verdict::new(Effect::Disabled, file, "its entry switches it off");
    }
    let launcher = layout.launcher();
    let ours = entry
        .text(&["command"])
        .is_some_and(|command| launcher.to_str().is_some_and(|ours| super::entry::same_path(command, ours)));
    if ours {
        Verdict::new(Effect::Effective, file, "it starts this installation")
    } else {
        Verdict::new(Effect::Elsewhere, file, "its entry starts something else")
    }
}

struct Scene<'a> {
    context: &'a Context,
    options: &'a Options,
    file: &'a Path,
    text: Option<&'a String>,
    name: &'a str,
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(4 * 1024 * 1024).read_to_string(&mut text).ok()?;
    Some(text)
}

fn read_json(path: &Path) -> Option<Node> {
    json::parse(read(path)?.trim_start_matches('\u{feff}'), true).ok()
}

/// Every folder from here to the root.
fn upward(from: &Path) -> impl Iterator<Item = &Path> {
    from.ancestors()
}

impl Scene<'_> {
    fn system(&self, linux: &str, macos: &str, windows: &str) -> PathBuf {
        let machine = &self.options.machine;
        machine.file(match machine.system.as_str() {
            "windows" => windows,
            "macos" => macos,
            _ => linux,
        })
    }

    fn claude_system(&self, name: &str) -> PathBuf {
        self.system(
            "/etc/claude-code",
            "/Library/Application Support/ClaudeCode",
            r"C:\Program Files\ClaudeCode",
        )
        .join(name)
    }

    fn claude_code_policy(&self) -> Option<Verdict> {
        let managed = self.claude_system("managed-mcp.json");
        if let Some(root) = read_json(&managed) {
            let ours = root.get("mcpServers").and_then(Node::properties).unwrap_or_default();
            return Some(if ours.iter().any(|one| is_our_name(&one.key)) {
                Verdict::new(
                    Effect::Shadowed,
                    &managed,
                    "the organization's own list of servers has one of this name",
                )
            } else {
                Verdict::new(Effect::Blocked, &managed, "only the organization's own list of servers counts")
            });
        }
        let user = self.claude_folder().map(|folder| folder.join("settings.json"));
        let sources = [Some(self.claude_system("managed-settings.json")), user];
        for (index, path) in sources.into_iter().enumerate() {
            let Some((path, root)) = path.and_then(|path| Some((path.clone(), read_json(&path)?))) else {
                continue;
            };
            let names = |key: &str| {
                let list = root.get(key)?.elements()?;
                Some(list.iter().any(|one| one.get("serverName").and_then(Node::text) == Some(self.name)))
            };
            if names("deniedMcpServers") == Some(true) {
                return Some(Verdict::new(Effect::Blocked, &path, "it is on the list of denied servers"));
            }
            // By its command it may be allowed as well.
            let by_command = root.get("allowedMcpServers").and_then(Node::elements).is_some_and(|list| {
                list.iter().any(|one| {
                    let command = one.get("serverCommand").and_then(Node::elements).unwrap_or_default();
                    let words: Vec<&str> = command.iter().filter_map(Node::text).collect();
                    !words.is_empty() && self.entry_command().as_deref().is_some_and(|ours| ours == words)
                })
            });
            if index == 0 && names("allowedMcpServers") == Some(false) && !by_command {
                return Some(Verdict::new(
                    Effect::Blocked,
                    &path,
                    "it is not on the list of allowed servers",
                ));
            }
        }
        None
    }

    /// The words that start the server, as an allow-list names them.
    fn entry_command(&self) -> Option<Vec<String>> {
        let entries = merge::entries(Format::Json, self.text?, "mcpServers").ok()?;
        let entry = entries.first()?;
        let mut words = vec![entry.text(&["command"])?.to_owned()];
        if let Some(Literal::Texts(args)) = entry.leaf(&["args"]).and_then(|leaf| leaf.value.clone()) {
            words.extend(args);
        }
        Some(words)
    }

    fn claude_folder(&self) -> Option<PathBuf> {
        match self.context.var("CLAUDE_CONFIG_DIR").filter(|value| !value.is_empty()) {
            Some(folder) => Some(self.context.cwd.join(folder)),
            None => crate::config::usable_home(self.context).map(|home| home.join(".claude")),
        }
    }

    fn claude_code_shadow(&self) -> Option<Verdict> {
        let root = json::parse(self.text?.trim_start_matches('\u{feff}'), false).ok()?;
        for folder in upward(&self.context.cwd) {
            let Some(project) = folder.to_str().and_then(|folder| root.at(&["projects", folder])) else {
                continue;
            };
            let servers = project.get("mcpServers").and_then(Node::properties).unwrap_or_default();
            if servers.iter().any(|one| one.key == self.name) {
                return Some(Verdict::new(
                    Effect::Shadowed,
                    self.file,
                    format!("{} has a local server of this name", folder.display()),
                ));
            }
            let disabled = project.get("disabledMcpServers").and_then(Node::elements).unwrap_or_default();
            if disabled.iter().any(|one| one.text() == Some(self.name)) {
                return Some(Verdict::new(
                    Effect::Disabled,
                    self.file,
                    format!("it is switched off in {}", folder.display()),
                ));
            }
        }
        for folder in upward(&self.context.cwd) {
            let path = folder.join(".mcp.json");
            let servers = read_json(&path);
            let servers =
                servers.as_ref().and_then(|root| root.get("mcpServers")?.properties()).unwrap_or_default();
            if servers.iter().any(|one| one.key == self.name) {
                return Some(Verdict::new(Effect::Shadowed, &path, "the project has a server of this name"));
            }
        }
        None
    }

    fn project_shadow(&self, path: &[&str], format: Format, section: &str) -> Option<Verdict> {
        upward(&self.context.cwd).find_map(|folder| {
            let path = path.iter().fold(folder.to_path_buf(), |path, part| path.join(part));
            if path == self.file {
                return None;
            }
            let entries = merge::entries(format, &read(&path)?, section).ok()?;
            let same = entries.iter().any(|one| one.name == self.name);
            same.then(|| Verdict::new(Effect::Shadowed, &path, "the project has a server of this name"))
        })
    }

    fn codex_policy(&self) -> Option<Verdict> {
        let managed = self.system(
            "/etc/codex/managed_config.toml",
            "/etc/codex/managed_config.toml",
            r"C:\ProgramData\OpenAI\Codex\managed_config.toml",
        );
        let entries = read(&managed).and_then(|text| merge::entries(Format::Toml, &text, "mcp_servers").ok());
        if entries.is_some_and(|entries| entries.iter().any(|one| one.name == self.name)) {
            return Some(Verdict::new(
                Effect::Shadowed,
                &managed,
                "the machine's config has a server of this name",
            ));
        }
        let requirements = managed.with_file_name("requirements.toml");
        let text = read(&requirements)?;
        let document = toml_edit::Document::parse(text.as_str()).ok()?;
        let allowed = document.get("mcp_servers")?.as_table_like()?;
        (!allowed.contains_key(self.name))
            .then(|| Verdict::new(Effect::Blocked, &requirements, "it is not on the list of allowed servers"))
    }

    fn gemini_policy(&self) -> Option<Verdict> {
        let system =
            match self.context.var("GEMINI_CLI_SYSTEM_SETTINGS_PATH").filter(|value| !value.is_empty()) {
                Some(path) => PathBuf::from(path),
                None => self.system(
                    "/etc/gemini-cli/settings.json",
                    "/Library/Application Support/GeminiCli/settings.json",
                    r"C:\ProgramData\gemini-cli\settings.json",
                ),
            };
        for path in [system.as_path(), self.file] {
            let Some(root) = read_json(path) else { continue };
            let named = |list: &str| {
                let list = root.at(&["mcp", list])?.elements()?;
                Some(list.iter().any(|one| one.text() == Some(self.name)))
            };
            if named("excluded") == Some(true) {
                return Some(Verdict::new(Effect::Blocked, path, "it is on the list of excluded servers"));
            }
            if named("allowed") == Some(false) {
                return Some(Verdict::new(Effect::Blocked, path, "it is not on the list of allowed servers"));
            }
            let servers = root.get("mcpServers").and_then(Node::properties).unwrap_or_default();
            if path != self.file && servers.iter().any(|one| one.key == self.name) {
                return Some(Verdict::new(
                    Effect::Shadowed,
                    path,
                    "the machine's settings have a server of this name",
                ));
            }
        }
        None
    }

    fn desktop_shadow(&self, id: &str) -> Option<Verdict> {
        let folder = self.file.parent()?;
        let extensions = folder.join("Claude Extensions");
        for entry in std::fs::read_dir(&extensions).into_iter().flatten().flatten() {
            let manifest = entry.path().join("manifest.json");
            let Some(root) = read_json(&manifest) else { continue };
            if root.get("name").and_then(Node::text).is_some_and(is_our_name) {
                return Some(Verdict::new(
                    Effect::Shadowed,
                    &manifest,
                    "an extension of the same name is installed",
                ));
            }
        }
        if id == "claude-desktop" {
            let packaged = super::table::find("claude-desktop-packaged")?;
            let other = super::places::locate(packaged, self.context, &self.options.machine);
            if let Some(other) = other.iter().find(|one| one.sign.is_dir()) {
                return Some(Verdict::new(
                    Effect::Shadowed,
                    &other.file,
                    "the application from the Store reads its own file",
                ));
            }
        }
        None
    }
}
