//! The `scope` section: what a worker's own endpoint offers. Nothing, unless the file says so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent_settings::{is_denied, is_variable_name};
use super::document::{Place, echo};
use super::effective::Builder;
use super::schema::ConfigFile;
use crate::policy::AgentId;

/// What a worker is told when nobody answers its question.
const NOBODY: &str =
    "Nobody is there to answer. Take the safer way, and say in your report what you decided.";
/// Names of upstream servers are part of tool names, which some clients cut.
const MAX_SERVER_NAME: usize = 24;
/// As long as the names that the endpoint's tool takes.
const MAX_CHECK_NAME: usize = 50;

/// The endpoint that a run's worker gets: a few tools of this program, over loopback, for that run alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScopeSection {
    /// Tools that runs may use (default: none, and then runs get no endpoint).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ScopeTool>,
    /// Commands that `run_check` may run, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub checks: BTreeMap<String, CheckSection>,
    /// MCP servers whose tools runs may use through the endpoint, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<String, ServerSection>,
    /// How long a worker's question waits for an answer, in seconds (default 60).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub ask_timeout_seconds: Option<u32>,
    /// What the worker is told when nobody answers (default: to take the safer way).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4000))]
    pub ask_default: Option<String>,
}

/// A command that workers may have run for them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckSection {
    /// Program and arguments. No shell reads them, and the worker adds nothing.
    #[schemars(length(min = 1, max = 256))]
    pub argv: Vec<String>,
    /// Hard limit of the command, in seconds (default 600).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 7200))]
    pub timeout_seconds: Option<u32>,
    /// Output of it that the worker is shown, in bytes; the middle is left out (default 20000).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1000, max = 65536))]
    pub max_output_bytes: Option<u32>,
}

/// An MCP server behind the endpoint: a program, or an address.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerSection {
    /// Program of a server that speaks on standard input and output.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables set for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables passed on to it from the server's environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_env: Vec<String>,
    /// Address of a server that speaks HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: Option<String>,
    /// HTTP headers sent to it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// HTTP headers whose value is that of a variable of the server's environment, by header.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub header_env: BTreeMap<String, String>,
    /// Its tools that runs may use. At least one; there is no word for all of them.
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 128)))]
    pub tools: Vec<String>,
}

/// The endpoint of one agent's runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentScopeSection {
    /// Tools and servers out of `scope.tools` and `scope.servers` (default: all of those); an empty list is no endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

/// A tool of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScopeTool {
    /// Hand in a report of the run.
    SubmitReport,
    /// Read the task again.
    GetTask,
    /// Read the answer of the turn before.
    GetPreviousResult,
    /// Run one of `scope.checks`.
    RunCheck,
    /// Keep a note for later runs in the same folder.
    Note,
    /// Read a note.
    Recall,
    /// Look for notes.
    SearchNotes,
    /// Tell what is being done.
    Progress,
    /// Ask whoever delegated.
    AskSupervisor,
    /// Ask for permission.
    RequestApproval,
    /// Delegate a part of the work, within `maxDelegationDepth`.
    Delegate,
}

impl ScopeTool {
    /// All of them, in listing order.
    pub const ALL: [Self; 11] = [
        Self::SubmitReport,
        Self::GetTask,
        Self::GetPreviousResult,
        Self::RunCheck,
        Self::Note,
        Self::Recall,
        Self::SearchNotes,
        Self::Progress,
        Self::AskSupervisor,
        Self::RequestApproval,
        Self::Delegate,
    ];

    /// The name that workers and configs know.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SubmitReport => "submit_report",
            Self::GetTask => "get_task",
            Self::GetPreviousResult => "get_previous_result",
            Self::RunCheck => "run_check",
            Self::Note => "note",
            Self::Recall => "recall",
            Self::SearchNotes => "search_notes",
            Self::Progress => "progress",
            Self::AskSupervisor => "ask_supervisor",
            Self::RequestApproval => "request_approval",
            Self::Delegate => "delegate",
        }
    }
}

/// The effective `scope` section.
#[derive(Clone, Debug)]
pub struct ScopeConfig {
    /// Tools that runs may use, in listing order.
    pub tools: Vec<ScopeTool>,
    /// Commands by name.
    pub checks: BTreeMap<String, ScopeCheck>,
    /// Servers by name.
    pub servers: BTreeMap<String, ScopeServer>,
    /// How long a question waits.
    pub ask_timeout: Duration,
    /// What is answered when nobody does.
    pub ask_default: String,
}

impl ScopeConfig {
    /// Everything that a narrower list may name: the tools, then the servers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.as_str()).chain(self.servers.keys().map(String::as_str))
    }
}

/// A command that may be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeCheck {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Hard limit in seconds.
    pub timeout_seconds: u64,
    /// Output that is shown, in bytes.
    pub max_output_bytes: u64,
}

/// An upstream server. Values of variables and headers may be secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeServer {
    /// How it is reached.
    pub transport: ScopeTransport,
    /// Its tools that may be used.
    pub tools: Vec<String>,
}

/// How an upstream server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeTransport {
    /// A program on standard input and output.
    Command {
        /// Command name or path.
        command: String,
        /// Arguments.
        args: Vec<String>,
        /// Variables set.
        env: BTreeMap<String, String>,
        /// Names passed on from our environment.
        pass_env: Vec<String>,
    },
    /// HTTP.
    Http {
        /// Address.
        url: String,
        /// Headers sent.
        headers: BTreeMap<String, String>,
        /// Headers whose value is a variable's, by header.
        header_env: BTreeMap<String, String>,
    },
}

impl Builder<'_> {
    /// The effective section. It says what may be used at most; runs get less.
    pub(super) fn scope(&mut self, file: &ConfigFile) -> ScopeConfig {
        let nothing = ScopeSection::default();
        let written = file.scope.as_ref().unwrap_or(&nothing);
        let mut tools = written.tools.clone();
        tools.sort_unstable();
        tools.dedup();
        if tools.contains(&ScopeTool::RunCheck) && written.checks.is_empty() {
            self.invalid("scope.tools", "\"run_check\" needs something in scope.checks");
        }
        let checks = written.checks.iter().map(|(name, check)| (name.clone(), self.check(name, check)));
        let checks = checks.collect();
        let mut servers = BTreeMap::new();
        for (name, server) in &written.servers {
            if let Some(server) = self.server(name, server) {
                servers.insert(name.clone(), server);
            }
        }
        ScopeConfig {
            tools,
            checks,
            servers,
            ask_timeout: Duration::from_secs(written.ask_timeout_seconds.unwrap_or(60).into()),
            ask_default: written.ask_default.clone().unwrap_or_else(|| NOBODY.to_owned()),
        }
    }

    /// An agent's list, which may only leave things out.
    pub(super) fn agent_scope(
        &mut self,
        id: AgentId,
        section: &AgentScopeSection,
        scope: &ScopeConfig,
    ) -> Option<Vec<String>> {
        let asked = section.tools.as_ref()?;
        for (index, name) in asked.iter().enumerate() {
            if !scope.names().any(|known| known == name) {
                let message = format!("{} is in neither scope.tools nor scope.servers", echo(name));
                self.invalid(&format!("agents.{id}.scope.tools[{index}]"), &message);
            }
        }
        let mut kept: Vec<String> = Vec::new();
        kept.extend(scope.names().filter(|known| asked.iter().any(|name| name == known)).map(str::to_owned));
        Some(kept)
    }

    fn check(&mut self, name: &str, written: &CheckSection) -> ScopeCheck {
        let scope = Place::Key(&Place::Top, "scope");
        let checks = Place::Key(&scope, "checks");
        let key = Place::Key(&checks, name).to_string();
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-.:".contains(&b);
        if name.is_empty() || name.len() > MAX_CHECK_NAME || !name.bytes().all(fits) {
            let message =
                format!("a name has 1 to {MAX_CHECK_NAME} letters, digits and \"_\", \"-\", \".\", \":\"");
            self.invalid(&key, &message);
        }
        if written.argv.first().is_some_and(String::is_empty) {
            self.invalid(&format!("{key}.argv[0]"), "the program's name is empty");
        }
        self.no_nul(&format!("{key}.argv"), &written.argv);
        ScopeCheck {
            argv: written.argv.clone(),
            timeout_seconds: written.timeout_seconds.unwrap_or(600).into(),
            max_output_bytes: written.max_output_bytes.unwrap_or(20_000).into(),
        }
    }

    fn server(&mut self, name: &str, written: &ServerSection) -> Option<ScopeServer> {
        let scope = Place::Key(&Place::Top, "scope");
        let servers = Place::Key(&scope, "servers");
        let place = Place::Key(&servers, name);
        let key = place.to_string();
        let first = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if !first || name.len() > MAX_SERVER_NAME || !name.bytes().all(fits) {
            let message = format!(
                "a name has 1 to {MAX_SERVER_NAME} of a-z, 0-9 and \"-\", a letter first and no \"_\""
            );
            self.invalid(&key, &message);
        } else if ScopeTool::ALL.iter().any(|tool| tool.as_str() == name) {
            self.invalid(&key, "is the name of a tool; give the server another one");
        }
        let mut seen = BTreeSet::new();
        for (index, tool) in written.tools.iter().enumerate() {
            if tool.chars().any(|c| c.is_control() || c.is_whitespace()) || !seen.insert(tool) {
                let message = format!("{} is no tool's name, or there twice", echo(tool));
                self.invalid(&format!("{key}.tools[{index}]"), &message);
            }
        }
        let transport = match (&written.command, &written.url) {
            (Some(command), None) => self.command_server(&place, command, written),
            (None, Some(url)) => self.http_server(&place, url, written),
            _ => {
                self.invalid(&key, "needs \"command\" or \"url\", and not both");
                return None;
            }
        };
        Some(ScopeServer { transport, tools: written.tools.clone() })
    }

    fn command_server(
        &mut self,
        place: &Place<'_>,
        command: &str,
        written: &ServerSection,
    ) -> ScopeTransport {
        for (name, there) in
            [("headers", !written.headers.is_empty()), ("headerEnv", !written.header_env.is_empty())]
        {
            if there {
                self.invalid(&format!("{place}.{name}"), "only a server with \"url\" is sent headers");
            }
        }
        let command = self.bin(&format!("{place}.command"), command);
        self.no_nul(&format!("{place}.args"), &written.args);
        let env = Place::Key(place, "env");
        for (name, value) in &written.env {
            let key = Place::Key(&env, name).to_string();
            if !is_variable_name(name) {
                self.invalid(&key, "is not a valid name of an environment variable");
            } else if is_denied(name) {
                self.invalid(&key, "may not be set: it decides which program or code runs");
            } else if value.contains('\0') {
                self.invalid(&key, "the value contains a NUL character");
            }
        }
        for (index, name) in written.pass_env.iter().enumerate() {
            self.passed(&format!("{place}.passEnv[{index}]"), name);
        }
        ScopeTransport::Command {
            command,
            args: written.args.clone(),
            env: written.env.clone(),
            pass_env: written.pass_env.clone(),
        }
    }

    fn http_server(&mut self, place: &Place<'_>, url: &str, written: &ServerSection) -> ScopeTransport {
        for (name, there) in [
            ("args", !written.args.is_empty()),
            ("env", !written.env.is_empty()),
            ("passEnv", !written.pass_env.is_empty()),
        ] {
            if there {
                self.invalid(&format!("{place}.{name}"), "only a server with \"command\" has it");
            }
        }
        if let Err(why) = acceptable_url(url) {
            self.invalid(&format!("{place}.url"), why);
        }
        let headers = Place::Key(place, "headers");
        for (name, value) in &written.headers {
            let key = Place::Key(&headers, name).to_string();
            if !is_header_name(name) {
                self.invalid(&key, "is not a valid name of an HTTP header");
            } else if value.chars().any(char::is_control) {
                self.invalid(&key, "the value contains a control character");
            }
        }
        let header_env = Place::Key(place, "headerEnv");
        for (header, variable) in &written.header_env {
            let key = Place::Key(&header_env, header).to_string();
            if !is_header_name(header) {
                self.invalid(&key, "is not a valid name of an HTTP header");
            } else if written.headers.keys().any(|name| name.eq_ignore_ascii_case(header)) {
                self.invalid(&key, "is in \"headers\" too");
            }
            // Its value is sent, and no program gets the variable.
            self.used(&key, variable);
        }
        ScopeTransport::Http {
            url: url.to_owned(),
            headers: written.headers.clone(),
            header_env: written.header_env.clone(),
        }
    }

    fn no_nul(&mut self, key: &str, texts: &[String]) {
        for (index, text) in texts.iter().enumerate() {
            if text.contains('\0') {
                self.invalid(&format!("{key}[{index}]"), "contains a NUL character");
            }
        }
    }
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// An address without credentials in it. HTTP without encryption is for this machine only.
fn acceptable_url(url: &str) -> Result<(), &'static str> {
    if !url.bytes().all(|b| b.is_ascii_graphic() && !br#"\<>"{}|^`"#.contains(&b)) {
        return Err("an address has no blanks and no unusual characters");
    }
    let lower = url.to_ascii_lowercase();
    let (rest, secure) = match (lower.strip_prefix("https://"), lower.strip_prefix("http://")) {
        (Some(rest), _) => (rest, true),
        (_, Some(rest)) => (rest, false),
        _ => return Err("an address begins with https://, or with http:// on this machine"),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() || authority.contains('@') {
        return Err("names no host, or has a user's name in it; credentials belong into \"headerEnv\"");
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => authority,
    };
    if secure || ["localhost", "127.0.0.1", "[::1]"].contains(&host) {
        Ok(())
    } else {
        Err("http:// is for this machine only; use https://")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_written_as_it_is_called() {
        for tool in ScopeTool::ALL {
            assert_eq!(serde_json::json!(tool), tool.as_str());
        }
    }

    #[test]
    fn addresses() {
        for (url, fits) in [
            ("https://example.com/mcp", true),
            ("HTTPS://example.com", true),
            ("http://127.0.0.1:8080/mcp", true),
            ("http://[::1]:8080/mcp", true),
            ("http://localhost/mcp", true),
            ("http://localhost.example/mcp", false),
            ("http://example.com/mcp", false),
            ("https://user:word@example.com/", false),
            ("https:///mcp", false),
            ("https://example.com/a b", false),
            ("file:///etc/passwd", false),
            ("", false),
        ] {
            assert_eq!(acceptable_url(url).is_ok(), fits, "{url}");
        }
    }
}
