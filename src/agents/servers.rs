//! Whether a worker has the MCP servers it was given, and no others, by what its own events say.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::endpoint::SERVER;
use super::verdicts::Draft;
use super::{Outcome, Verdict, redaction};

/// Which MCP servers a worker may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerRule {
    /// Its user's config is loaded; whatever that brings is accepted.
    #[default]
    Any,
    /// None at all.
    None,
    /// The run's endpoint, and it alone.
    Only,
}

/// Why a worker must not go on. Its name is in the verdict's `meta` as `workerTools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has a server that it was not given.
    Foreign,
    /// It does not have the one it was given.
    Missing,
}

impl Refusal {
    const KEY: &'static str = "workerTools";

    fn as_str(self) -> &'static str {
        match self {
            Self::Foreign => "foreign",
            Self::Missing => "missing",
        }
    }

    /// The refusal that ended a run, if one did.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        let name = verdict.meta[Self::KEY].as_str()?;
        [Self::Foreign, Self::Missing].into_iter().find(|refusal| refusal.as_str() == name)
    }

    /// A worker whose own events do not tell has never asked its endpoint for anything. A run that failed anyway
    /// keeps its reason.
    pub fn never_connected(verdict: &mut Verdict) {
        if matches!(verdict.outcome, Outcome::Success | Outcome::Empty) {
            verdict.outcome = Outcome::WorkerError;
            verdict.detail = Some("the worker never asked the run's endpoint for its tools".to_owned());
            verdict.meta[Self::KEY] = json!(Self::Missing.as_str());
        }
    }
}

/// Looks at the events of one run.
#[derive(Default)]
pub(super) struct ServerWatch {
    pub rule: ServerRule,
    refusal: Option<(Refusal, String)>,
    /// The worker has listed its servers, or the endpoint was asked for its tools.
    listed: bool,
}

impl ServerWatch {
    /// What is wrong, for people.
    pub fn fatal(&self) -> Option<&str> {
        self.refusal.as_ref().map(|(_, why)| why.as_str())
    }

    /// Claude Code's list of servers and tools.
    pub fn list(&mut self, servers: &Value, tools: &Value) {
        self.listed = true;
        if self.rule == ServerRule::Any {
            return;
        }
        let mut ours = None;
        for server in servers.as_array().into_iter().flatten() {
            match server["name"].as_str() {
                Some(SERVER) if self.rule == ServerRule::Only && ours.is_none() => {
                    ours = Some(&server["status"])
                }
                name => self.foreign("the worker has the MCP server", name),
            }
        }
        for name in tools.as_array().into_iter().flatten().filter_map(Value::as_str) {
            let server = name.strip_prefix("mcp__").map(|rest| rest.split("__").next().unwrap_or_default());
            if server.is_some_and(|server| self.rule == ServerRule::None || server != SERVER) {
                self.foreign("the worker has the MCP tool", Some(name));
            }
        }
        if self.rule == ServerRule::Only && ours.and_then(Value::as_str) != Some("connected") {
            let status = ours.map(|status| redaction::one_line(&status.to_string(), 40));
            self.missing(
                &status.map_or_else(|| "not there".to_owned(), |status| format!("{status}, not connected")),
            );
        }
    }

    /// The endpoint was asked for its tools, for a worker that lists no servers.
    pub fn asked(&mut self) {
        self.listed = true;
    }

    /// The worker does something before it has listed its servers.
    pub fn began(&mut self) {
        if self.rule == ServerRule::Only && !self.listed {
            self.missing("not known");
        }
    }

    /// A call of a server's tool.
    pub fn call(&mut self, server: &Value) {
        if self.rule == ServerRule::Only && server.as_str() != Some(SERVER) {
            self.foreign("the worker called the MCP server", server.as_str());
        }
    }

    /// A tool that Gemini CLI's model has used.
    pub fn gemini_tool(&mut self, name: &str) {
        let Some(rest) = name.strip_prefix("mcp_") else { return };
        let is_ours = rest.strip_prefix(SERVER).is_some_and(|rest| rest.starts_with('_'));
        if self.rule != ServerRule::Any && !(self.rule == ServerRule::Only && is_ours) {
            self.foreign("the worker called the MCP tool", Some(name));
        }
    }

    /// The list of tools of Antigravity's CLI, as far as their names say whose they are.
    pub fn antigravity_tools(&mut self, tools: &Value) {
        let names = tools.as_array().into_iter().flatten().filter_map(Value::as_str);
        for name in names {
            // `mcp(SERVER/TOOL)` is how its rules name them; other forms may be built-in tools.
            let server = name.strip_prefix("mcp(").and_then(|rest| rest.split('/').next());
            let ours = self.rule == ServerRule::Only && server == Some(SERVER);
            if self.rule != ServerRule::Any && server.is_some() && !ours {
                self.foreign("the worker has the MCP tool", Some(name));
            }
        }
    }

    /// What Gemini CLI says when a server cannot be used.
    pub fn gemini_stderr(&mut self, tail: &str) {
        if self.rule == ServerRule::Only && tail.contains("MCP issues detected") {
            self.missing("not usable");
        }
    }

    /// What Codex says when a required server cannot be used.
    pub fn stderr(&mut self, tail: &str) {
        if self.rule == ServerRule::Only && tail.contains("required MCP servers failed to initialize") {
            self.missing("not usable");
        }
    }

    /// The verdict of a run that had to be ended for this.
    pub fn verdict(&mut self, draft: &mut Draft) -> Option<String> {
        let (refusal, why) = self.refusal.take()?;
        draft.meta.insert(Refusal::KEY.into(), json!(refusal.as_str()));
        Some(why)
    }

    fn foreign(&mut self, what: &str, name: Option<&str>) {
        let name = name.map_or_else(|| "without a name".to_owned(), |name| redaction::one_line(name, 60));
        self.refuse(Refusal::Foreign, format!("{what} {name}, which was not given to it"));
    }

    fn missing(&mut self, how: &str) {
        self.refuse(Refusal::Missing, format!("the run's endpoint is {how} in the worker"));
    }

    /// The first finding stands, but a server too many is worse than one too few.
    fn refuse(&mut self, refusal: Refusal, why: String) {
        match self.refusal {
            None => self.refusal = Some((refusal, why)),
            Some((Refusal::Missing, _)) if refusal == Refusal::Foreign => self.refusal = Some((refusal, why)),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
