//! Bundle mode: the settings a host's extension dialog hands over as environment variables.

use std::collections::BTreeMap;

use super::document::echo;
use super::error::{CONFIG_BUNDLE_ENV_INVALID, Problems};
use super::schema::{AgentSection, ConfigFile, RemoteEgress};
use crate::context::Context;
use crate::policy::{AgentId, DataClass, Sandbox};

/// Exactly `1` switches bundle mode on.
pub(super) const MODE_VARIABLE: &str = "AGENT_BRIDGE_BUNDLE_MODE";
/// A setting the user left empty arrives as the unreplaced placeholder.
const PLACEHOLDER: &str = "${user_config.";

const ALLOWED_ROOT: &str = "AGENT_BRIDGE_ALLOWED_ROOT";
const STATE_DIR: &str = "AGENT_BRIDGE_STATE_DIR";
const MANUS_CREDENTIAL_FILE: &str = "AGENT_BRIDGE_MANUS_CREDENTIAL_FILE";
const MANUS_ACKNOWLEDGE: &str = "AGENT_BRIDGE_MANUS_ACKNOWLEDGE_ACCOUNT_DEFAULT_CAPABILITIES";
const MANUS_PROFILE: &str = "AGENT_BRIDGE_MANUS_ACCOUNT_CAPABILITY_PROFILE";
const DEFAULT_SANDBOX: &str = "AGENT_BRIDGE_DEFAULT_SANDBOX";
const SANDBOX_CEILING: &str = "AGENT_BRIDGE_SANDBOX_CEILING";
const REMOTE_EGRESS: &str = "AGENT_BRIDGE_REMOTE_EGRESS";
const REMOTE_DATA_CLASS: &str = "AGENT_BRIDGE_REMOTE_DATA_CLASS";

/// The switches of the agents, with what holds when one is not set.
const ENABLE: [(AgentId, &str, bool); 4] = [
    (AgentId::Codex, "AGENT_BRIDGE_ENABLE_CODEX", true),
    (AgentId::Claude, "AGENT_BRIDGE_ENABLE_CLAUDE", true),
    (AgentId::Gemini, "AGENT_BRIDGE_ENABLE_GEMINI", false),
    (AgentId::Manus, "AGENT_BRIDGE_ENABLE_MANUS", false),
];

/// Which variable a key's value came from.
pub(super) type Variables = BTreeMap<String, &'static str>;

/// The variables as a config, with the variable that stands behind each key.
pub(super) fn read(context: &Context, problems: &mut Problems) -> (ConfigFile, Variables) {
    let mut reader = Reader { context, problems, variables: Variables::new() };
    let mut file = ConfigFile::default();
    reader.fill(&mut file);
    (file, reader.variables)
}

struct Reader<'a> {
    context: &'a Context,
    problems: &'a mut Problems,
    variables: Variables,
}

impl Reader<'_> {
    fn fill(&mut self, file: &mut ConfigFile) {
        match self.text(ALLOWED_ROOT).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()) {
            Some(root) => {
                file.defaults.cwd = self.remember(ALLOWED_ROOT, "defaults.cwd", Some(root.clone()));
                file.allowed_roots = vec![root];
                self.variables.insert("allowedRoots".into(), ALLOWED_ROOT);
            }
            None => self.refuse(ALLOWED_ROOT, "must name the folder in which agents may work"),
        }
        let state_dir = self.text(STATE_DIR).filter(|text| !text.is_empty());
        file.state_dir = self.remember(STATE_DIR, "stateDir", state_dir);

        let mut manus_enabled = false;
        for (id, variable, default) in ENABLE {
            let set = self.switch(variable);
            let set = self.remember(variable, &format!("agents.{id}.enabled"), set);
            if let Some(enabled) = set {
                file.agents.entry(id).or_default().enabled = Some(enabled);
            }
            if id == AgentId::Manus {
                manus_enabled = set.unwrap_or(default);
            }
        }
        self.manus(file);

        let sandbox = self.sandbox(DEFAULT_SANDBOX);
        file.defaults.sandbox = self.remember(DEFAULT_SANDBOX, "defaults.sandbox", sandbox);
        let ceiling = self.sandbox(SANDBOX_CEILING).or_else(|| {
            // The dialog's promise is a stricter ceiling than that of a config file.
            self.text(SANDBOX_CEILING).is_none().then_some(Sandbox::ReadOnly)
        });
        file.policy.sandbox_ceiling = self.remember(SANDBOX_CEILING, "policy.sandboxCeiling", ceiling);
        self.egress(file, manus_enabled);
    }

    fn manus(&mut self, file: &mut ConfigFile) {
        let credential_file = self.text(MANUS_CREDENTIAL_FILE).filter(|text| !text.is_empty());
        let profile = self.text(MANUS_PROFILE).filter(|text| !text.is_empty());
        let acknowledged = self.switch(MANUS_ACKNOWLEDGE);
        if credential_file.is_none() && profile.is_none() && acknowledged.is_none() {
            return;
        }
        let section = AgentSection {
            credential_file: self.remember(
                MANUS_CREDENTIAL_FILE,
                "agents.manus.credentialFile",
                credential_file,
            ),
            account_capability_profile: self.remember(
                MANUS_PROFILE,
                "agents.manus.accountCapabilityProfile",
                profile,
            ),
            acknowledge_account_default_capabilities: self.remember(
                MANUS_ACKNOWLEDGE,
                "agents.manus.acknowledgeAccountDefaultCapabilities",
                acknowledged,
            ),
            ..AgentSection::default()
        };
        let enabled = file.agents.get(&AgentId::Manus).and_then(|section| section.enabled);
        file.agents.insert(AgentId::Manus, AgentSection { enabled, ..section });
    }

    fn egress(&mut self, file: &mut ConfigFile, manus_enabled: bool) {
        let class = self.data_class();
        if self.switch(REMOTE_EGRESS) != Some(true) {
            return;
        }
        if !manus_enabled {
            self.refuse(REMOTE_EGRESS, "needs AGENT_BRIDGE_ENABLE_MANUS to be true");
        }
        if class.is_none() {
            self.refuse(REMOTE_DATA_CLASS, "must be set when AGENT_BRIDGE_REMOTE_EGRESS is true");
        }
        for (key, variable) in [
            ("enabled", REMOTE_EGRESS),
            ("allowedAgents", REMOTE_EGRESS),
            ("allowedRoots", ALLOWED_ROOT),
            ("allowedDataClasses", REMOTE_DATA_CLASS),
        ] {
            self.variables.insert(format!("policy.remoteEgress.{key}"), variable);
        }
        file.policy.remote_egress = Some(RemoteEgress {
            enabled: true,
            allowed_agents: vec![AgentId::Manus],
            allowed_roots: file.allowed_roots.clone(),
            allowed_data_classes: class.into_iter().collect(),
        });
    }

    /// A variable's text. Unset and unreplaced placeholders are nothing.
    fn text(&mut self, variable: &'static str) -> Option<String> {
        let value = self.context.var(variable)?;
        match value.to_str() {
            Some(text) if text.starts_with(PLACEHOLDER) => None,
            Some(text) => Some(text.to_owned()),
            None => {
                self.refuse(variable, "is not Unicode text");
                None
            }
        }
    }

    fn switch(&mut self, variable: &'static str) -> Option<bool> {
        match self.text(variable)?.as_str() {
            "" => None,
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            other => {
                self.refuse(variable, &format!("expected true, 1, false or 0, found {}", echo(other)));
                None
            }
        }
    }

    fn sandbox(&mut self, variable: &'static str) -> Option<Sandbox> {
        let text = self.text(variable)?;
        let mode = Sandbox::parse(&text);
        if mode.is_none() {
            let expected = "expected read-only, workspace-write or full-access";
            self.refuse(variable, &format!("{expected}, found {}", echo(&text)));
        }
        mode
    }

    fn data_class(&mut self) -> Option<DataClass> {
        let text = self.text(REMOTE_DATA_CLASS).filter(|text| !text.is_empty())?;
        let class = serde_json::from_value(serde_json::Value::String(text.clone())).ok();
        if class.is_none() {
            let expected = "expected public, internal, confidential or restricted";
            self.refuse(REMOTE_DATA_CLASS, &format!("{expected}, found {}", echo(&text)));
        }
        class
    }

    /// Remembers where a value came from, if there is one.
    fn remember<T>(&mut self, variable: &'static str, key: &str, value: Option<T>) -> Option<T> {
        if value.is_some() && self.context.var(variable).is_some() {
            self.variables.insert(key.to_owned(), variable);
        }
        value
    }

    fn refuse(&mut self, variable: &'static str, message: &str) {
        self.problems.add(&CONFIG_BUNDLE_ENV_INVALID, variable, message);
    }
}
