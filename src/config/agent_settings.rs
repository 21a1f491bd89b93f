//! One agent's settings: what is allowed where, and the effective result.

use std::path::Path;
use std::time::Duration;

use super::AgentConfig;
use super::document::{Place, echo};
use super::effective::Builder;
use super::error::{CONFIG_INVALID_VALUE, CONFIG_MISSING_KEY};
use super::paths::expand;
use super::schema::AgentSection;
use super::scope::ScopeConfig;
use crate::policy::{self, AgentId, Sandbox};
use crate::process::{STAND_IN_SCRIPT_VAR, denied_extra_env, is_passed_anyway};

/// codex and claude are on when they are found; any other agent must be switched on.
pub(super) fn on_by_default(id: AgentId) -> bool {
    matches!(id, AgentId::Codex | AgentId::Claude)
}

impl Builder<'_> {
    pub(super) fn agent(
        &mut self,
        id: AgentId,
        section: &AgentSection,
        ceiling: Sandbox,
        scope: &ScopeConfig,
    ) -> AgentConfig {
        let key = |name: &str| format!("agents.{id}.{name}");
        self.agent_only(id, section);
        if !on_by_default(id) && section.enabled.is_none() && self.mentions(&format!("agents.{id}")) {
            self.warn(&format!("agents.{id}"), "has settings but is off; set \"enabled\": true to use it");
        }
        let bin =
            section.bin.as_deref().map_or_else(|| id.command().to_owned(), |bin| self.bin(&key("bin"), bin));
        if let Some(model) = &section.default_model
            && !policy::is_model_name(model)
        {
            self.invalid(&key("defaultModel"), MODEL_EXPECTED);
        }
        for (index, argument) in section.extra_args.iter().enumerate() {
            if argument.contains('\0') {
                self.invalid(&format!("agents.{id}.extraArgs[{index}]"), "contains a NUL character");
            }
        }
        self.variables(id, section);
        let sandbox_ceiling = section.sandbox_ceiling.map(|own| {
            if own > ceiling {
                let by = format!("policy.sandboxCeiling ({ceiling})");
                self.lower(&key("sandboxCeiling"), own.as_str(), ceiling.as_str(), by);
            }
            own.min(ceiling)
        });
        let mut pass_env = Vec::new();
        for name in &section.pass_env {
            if !pass_env.contains(name) {
                pass_env.push(name.clone());
            }
        }
        AgentConfig {
            enabled: section.enabled.unwrap_or(on_by_default(id)),
            enabled_explicitly: section.enabled.is_some(),
            bin,
            default_model: section.default_model.clone(),
            extra_args: section.extra_args.clone(),
            extra_env: section.extra_env.clone(),
            pass_env,
            sandbox_ceiling,
            start_spacing: Duration::from_millis(section.start_spacing_ms.unwrap_or(0).into()),
            use_user_config: section.use_user_config.unwrap_or(false),
            scope_tools: section.scope.as_ref().and_then(|own| self.agent_scope(id, own, scope)),
            script: section.script.as_deref().and_then(|text| self.path(&key("script"), text)),
            credential_file: section
                .credential_file
                .as_deref()
                .and_then(|text| self.path(&key("credentialFile"), text)),
            base_url: self.base_url(id, section),
            allow_development_base_url: section.allow_development_base_url.unwrap_or(false),
            acknowledge_account_default_capabilities: section
                .acknowledge_account_default_capabilities
                .unwrap_or(false),
            account_capability_profile: section.account_capability_profile.clone(),
        }
    }

    /// Keys that belong to one agent alone.
    fn agent_only(&mut self, id: AgentId, section: &AgentSection) {
        let key = |name: &str| format!("agents.{id}.{name}");
        if id != AgentId::Mock && section.script.is_some() {
            self.invalid(&key("script"), "only the mock agent has a script");
        }
        if id != AgentId::Manus {
            if section.allow_development_base_url == Some(true) {
                self.invalid(&key("allowDevelopmentBaseUrl"), "only manus can have a development base URL");
            }
            if section.acknowledge_account_default_capabilities.is_some() {
                self.invalid(&key("acknowledgeAccountDefaultCapabilities"), "only manus has this setting");
            }
            if section.account_capability_profile.is_some() {
                self.invalid(&key("accountCapabilityProfile"), "only manus has this setting");
            }
            for (name, set) in [
                ("baseUrl", section.base_url.is_some()),
                ("credentialFile", section.credential_file.is_some()),
            ] {
                if set {
                    self.warn(&key(name), "is ignored; only manus uses it");
                }
            }
            return;
        }
        if section.acknowledge_account_default_capabilities == Some(true)
            && section.account_capability_profile.is_none()
        {
            let message = "must be present when acknowledgeAccountDefaultCapabilities is true";
            self.problem(&CONFIG_MISSING_KEY, &key("accountCapabilityProfile"), message);
        }
        if let Some(profile) = &section.account_capability_profile
            && !(profile.starts_with(|c: char| c.is_ascii_alphanumeric())
                && profile.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)))
        {
            let expected = "expected a letter or digit, then letters, digits, \".\", \"_\" or \"-\"";
            self.invalid(&key("accountCapabilityProfile"), &format!("{expected}, found {}", echo(profile)));
        }
    }

    /// A bare name is searched on PATH when a turn starts; anything else is a path.
    pub(super) fn bin(&mut self, key: &str, bin: &str) -> String {
        if bin.starts_with('-') || bin.chars().any(char::is_control) {
            self.invalid(key, "expected a command name or path");
        } else if bin.starts_with('~') || bin.contains('/') || (cfg!(windows) && bin.contains('\\')) {
            match expand(self.context, bin, self.base).map(|path| path.into_os_string().into_string()) {
                Ok(Ok(path)) => return path,
                Ok(Err(_)) => self.invalid(key, "the path is not Unicode text"),
                Err(reason) => self.invalid(key, &reason),
            }
        }
        bin.to_owned()
    }

    fn variables(&mut self, id: AgentId, section: &AgentSection) {
        let agents = Place::Key(&Place::Top, "agents");
        let agent = Place::Key(&agents, id.as_str());
        let extra_env = Place::Key(&agent, "extraEnv");
        for (name, value) in &section.extra_env {
            let key = Place::Key(&extra_env, name).to_string();
            if !is_variable_name(name) {
                self.invalid(&key, "is not a valid name of an environment variable");
            } else if is_denied(name) {
                self.invalid(
                    &key,
                    "may not be set: it decides which program or code runs, or what the agent may do",
                );
            } else if value.contains('\0') {
                self.invalid(&key, "the value contains a NUL character");
            }
        }
        for (index, name) in section.pass_env.iter().enumerate() {
            self.passed(&format!("agents.{id}.passEnv[{index}]"), name);
        }
    }

    /// A variable that a program gets as it is here. What may not be set may not be handed on either: whoever starts
    /// the host is not the one who wrote the config.
    pub(super) fn passed(&mut self, key: &str, name: &str) {
        if self.used(key, name) && denied_extra_env(name) {
            let why = if is_passed_anyway(name) {
                "is one of those that every worker gets; leave it out"
            } else {
                "may not be passed on: it decides which program or code runs, or what the agent may do"
            };
            self.invalid(key, &format!("{} {why}", echo(name)));
        }
    }

    /// A variable whose value is used; says whether it may be.
    pub(super) fn used(&mut self, key: &str, name: &str) -> bool {
        if !is_variable_name(name) {
            self.invalid(key, &format!("{} is not a valid name of an environment variable", echo(name)));
        } else if has_prefix(name, "AGENT_BRIDGE_") {
            self.invalid(key, "variables of agent-bridge itself are not passed on");
        } else {
            return true;
        }
        false
    }

    fn base_url(&mut self, id: AgentId, section: &AgentSection) -> Option<String> {
        let text = section.base_url.as_deref().filter(|_| id == AgentId::Manus)?;
        match normal_base_url(text, section.allow_development_base_url == Some(true)) {
            Ok(url) => Some(url),
            Err(reason) => {
                self.problem(&CONFIG_INVALID_VALUE, &format!("agents.{id}.baseUrl"), &reason);
                None
            }
        }
    }

    fn path(&mut self, key: &str, text: &str) -> Option<std::path::PathBuf> {
        expand(self.context, text, self.base).map_err(|reason| self.invalid(key, &reason)).ok()
    }

    /// A secret that workers can read is worth a word.
    pub(super) fn warn_if_within_roots(&mut self, key: &str, path: &Path, roots: &[std::path::PathBuf]) {
        let Ok(real) = super::paths::canonical(path) else { return };
        if crate::policy::find_root(roots, &real).is_ok() {
            self.warn(key, "lies inside an allowed root, where workers may read it");
        }
    }
}

/// What [`is_model_name`] wants, for people.
const MODEL_EXPECTED: &str =
    "expected a letter or digit, then at most 127 letters, digits and . _ : / @ [ ] -";

pub(super) fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 256
        && name.bytes().all(|b| b.is_ascii_graphic() && b != b'=')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Variables that decide which code runs. The stand-in's script is the one of ours that a config may set.
pub(super) fn is_denied(name: &str) -> bool {
    name != STAND_IN_SCRIPT_VAR && denied_extra_env(name)
}

fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// A base URL of Manus, normalised: HTTPS to `api.manus.ai` or below, nothing else in it. With
/// `development`, also a loopback host over HTTP(S) with any port and path.
pub(super) fn normal_base_url(text: &str, development: bool) -> Result<String, String> {
    let refused = |why: &str| Err(format!("expected https://api.manus.ai or a subdomain of it: {why}"));
    if text.len() > 2048 || !text.bytes().all(|b| b.is_ascii_graphic() && !br#"\@?#<>"'`{}|^"#.contains(&b)) {
        return refused("user names, queries, fragments and unusual characters are not allowed");
    }
    let lower = text.to_ascii_lowercase();
    let (scheme, default_port, prefix) = match lower.split_once("://") {
        Some(("https", _)) => ("https", 443, 8),
        Some(("http", _)) => ("http", 80, 7),
        _ => return refused("it must begin with https://"),
    };
    let rest = &text[prefix..];
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let authority = authority.to_ascii_lowercase();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority.as_str(), None),
    };
    let port = match port.map(|port| (port, port.parse::<u16>())) {
        None => None,
        Some((digits, Ok(port))) if port > 0 && digits.bytes().all(|b| b.is_ascii_digit()) => Some(port),
        Some(_) => return refused("the port is not a number from 1 to 65535"),
    };
    let port = port.filter(|port| *port != default_port);
    let path = path.strip_suffix('/').unwrap_or(path);
    if development && ["localhost", "127.0.0.1", "[::1]"].contains(&host) {
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        return Ok(format!("{scheme}://{host}{port}{path}"));
    }
    let label =
        |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if host != "api.manus.ai" && !(host.ends_with(".api.manus.ai") && host.split('.').all(label)) {
        return refused("another host is named");
    }
    if scheme != "https" || port.is_some() || !path.is_empty() {
        return refused("it must use HTTPS on the default port, without a path");
    }
    Ok(format!("https://{host}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base_urls() {
        for (text, development, expected) in [
            ("https://api.manus.ai", false, Some("https://api.manus.ai")),
            ("HTTPS://API.manus.ai:443/", false, Some("https://api.manus.ai")),
            ("https://eu.api.manus.ai", false, Some("https://eu.api.manus.ai")),
            ("https://evilapi.manus.ai", false, None),
            ("https://api.manus.ai.evil.example", false, None),
            ("https://evil.example/api.manus.ai", false, None),
            ("https://api.manus.ai@evil.example", false, None),
            ("https://..api.manus.ai", false, None),
            ("http://api.manus.ai", false, None),
            ("https://api.manus.ai:8443", false, None),
            ("https://api.manus.ai/v2", false, None),
            ("https://api.manus.ai?x", false, None),
            ("api.manus.ai", false, None),
            ("", false, None),
            ("http://127.0.0.1:8080/x/", false, None),
            ("http://127.0.0.1:8080/X/", true, Some("http://127.0.0.1:8080/X")),
            ("http://[::1]:9", true, Some("http://[::1]:9")),
            ("http://localhost", true, Some("http://localhost")),
            ("http://localhost:0", true, None),
            ("http://localhost:+80", true, None),
            ("http://localhost.evil.example", true, None),
            ("http://127.0.0.2", true, None),
        ] {
            assert_eq!(normal_base_url(text, development).ok().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn variables_that_decide_what_runs_are_denied_in_any_case() {
        for name in [
            "PATH",
            "Path",
            "LD_PRELOAD",
            "dyld_insert_libraries",
            "GIT_SSH_COMMAND",
            "pythonpath",
            "AGENT_BRIDGE_X",
        ] {
            assert!(is_denied(name), "{name}");
        }
        for name in ["OPENAI_API_KEY", "PATHS", "HTTPS_PROXY", "CODEX_HOME", "RUST_LOG", "LDAP"] {
            assert!(!is_denied(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged_without_panic(text in ".{0,30}", tail in "[a-z.:/@\\[\\]0-9]{0,20}", development: bool) {
            for url in [text.clone(), format!("https://{tail}"), format!("http://{text}")] {
                if let Ok(normal) = normal_base_url(&url, development) {
                    prop_assert_eq!(normal_base_url(&normal, development), Ok(normal.clone()));
                }
            }
            let _ = is_denied(&text);
        }
    }
}
