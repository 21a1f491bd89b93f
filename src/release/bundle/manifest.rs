//! `manifest.json`: made from the template of the commit, and held to the rules of the format (MCPB 0.3) that the
//! official validator does not check: it takes any version, a program that is not there, values that nobody asks for.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::release::layout::is_version;
use crate::release::metadata::Target;

/// The template in the commit.
pub const TEMPLATE: &str = "manifest.template.json";
/// Where the manifest says which release it is of.
const META_KEY: &str = "io.github.agent-bridge.release";

/// What is filled into the template, and what the finished manifest has to say.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The version.
    pub version: &'a str,
    /// The whole revision.
    pub git_sha: &'a str,
    /// Where it runs.
    pub target: &'a Target,
    /// SHA-256 of the program.
    pub runtime_sha256: &'a str,
}

impl Facts<'_> {
    /// Name of the program with the extension of its system.
    pub fn executable(&self) -> String {
        format!("agent-bridge{}", if self.target.os == "windows" { ".exe" } else { "" })
    }

    /// Path of the program in the bundle.
    pub fn runtime(&self) -> String {
        format!("server/{}", self.executable())
    }

    /// What Node calls the system; hosts match it.
    fn platform(&self) -> Result<&'static str, String> {
        match self.target.os.as_str() {
            "linux" => Ok("linux"),
            "macos" => Ok("darwin"),
            "windows" => Ok("win32"),
            other => Err(format!("hosts know no name for the system {other}")),
        }
    }
}

/// Fills the template. Every value is plain, so none can break out of its quotes.
pub fn render(template: &[u8], facts: &Facts<'_>) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(template).map_err(|_| "it is not text")?;
    let mut text = text.replace("\r\n", "\n");
    for (name, value) in [
        ("version", facts.version),
        ("executable", &facts.executable()),
        ("platform", facts.platform()?),
        ("git_sha", facts.git_sha),
        ("runtime_sha256", facts.runtime_sha256),
        ("os", &facts.target.os),
        ("arch", &facts.target.arch),
    ] {
        text = text.replace(&format!("{{{{{name}}}}}"), value);
    }
    if let Some(at) = text.find("{{") {
        let rest: String = text[at..].chars().take(30).collect();
        return Err(format!("nothing is known to fill in for {rest:?}"));
    }
    Ok(format!("{}\n", text.trim()).into_bytes())
}

/// Judges a finished manifest. `paths` are the files of the bundle.
pub fn check(manifest: &[u8], facts: &Facts<'_>, paths: &BTreeSet<&str>) -> Result<(), String> {
    crate::release::journal::refuse_duplicate_keys(manifest)?;
    let manifest: Value = serde_json::from_slice(manifest).map_err(|error| error.to_string())?;
    let object = manifest.as_object().ok_or("it is no object")?;
    known_keys(object)?;
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let equal = |pointer: &str, wanted: &str| match text(pointer) {
        found if found == wanted => Ok(()),
        found => Err(format!("{pointer} is {found:?}, not {wanted:?}")),
    };
    equal("/manifest_version", "0.3")?;
    equal("/name", "agent-bridge")?;
    equal("/version", facts.version)?;
    if !is_version(facts.version) {
        return Err(format!("{:?} is not a version", facts.version));
    }
    for pointer in ["/description", "/author/name"] {
        if text(pointer).is_empty() {
            return Err(format!("{pointer} is missing"));
        }
    }
    let runtime = facts.runtime();
    equal("/server/type", "binary")?;
    equal("/server/entry_point", &runtime)?;
    if !paths.contains(runtime.as_str()) {
        return Err(format!("{runtime} is not in the bundle"));
    }
    let platform = facts.platform()?;
    if manifest.pointer("/compatibility/platforms") != Some(&serde_json::json!([platform])) {
        return Err(format!("/compatibility/platforms is not [{platform:?}]"));
    }
    let command = format!("${{__dirname}}/{runtime}");
    equal("/server/mcp_config/command", &command)?;
    if manifest.pointer("/server/mcp_config/args/0") != Some(&"serve".into()) {
        return Err("/server/mcp_config/args does not begin with serve".into());
    }
    equal("/server/mcp_config/env/AGENT_BRIDGE_BUNDLE_MODE", "1")?;
    let overrides = manifest.pointer("/server/mcp_config/platform_overrides").and_then(Value::as_object);
    let overrides = overrides.ok_or("/server/mcp_config/platform_overrides is missing")?;
    if overrides.keys().ne([platform]) {
        return Err(format!("/server/mcp_config/platform_overrides must be for {platform} alone"));
    }
    equal(&format!("/server/mcp_config/platform_overrides/{platform}/command"), &command)?;
    user_config(&manifest)?;
    for icon in icons(&manifest) {
        if !paths.contains(icon) {
            return Err(format!("the icon {icon} is not in the bundle"));
        }
    }
    let meta = |key: &str| format!("/_meta/{META_KEY}/{key}");
    equal(&meta("git_sha"), facts.git_sha)?;
    equal(&meta("runtime_sha256"), facts.runtime_sha256)?;
    equal(&meta("os"), &facts.target.os)?;
    equal(&meta("arch"), &facts.target.arch)
}

fn known_keys(manifest: &Map<String, Value>) -> Result<(), String> {
    const KNOWN: [&str; 26] = [
        "$schema",
        "manifest_version",
        "name",
        "display_name",
        "version",
        "description",
        "long_description",
        "author",
        "repository",
        "homepage",
        "documentation",
        "support",
        "icon",
        "icons",
        "screenshots",
        "localization",
        "server",
        "tools",
        "tools_generated",
        "prompts",
        "prompts_generated",
        "keywords",
        "license",
        "privacy_policies",
        "compatibility",
        "user_config",
    ];
    match manifest.keys().find(|key| !KNOWN.contains(&key.as_str()) && *key != "_meta") {
        Some(key) => Err(format!("hosts refuse the key {key:?}")),
        None => Ok(()),
    }
}

/// What is asked of the user, and that every variable has somebody who gives it a value: where one has none, hosts
/// pass its name on as it is written.
fn user_config(manifest: &Value) -> Result<(), String> {
    let none = Map::new();
    let asked = manifest.pointer("/user_config").and_then(Value::as_object).unwrap_or(&none);
    for (key, question) in asked {
        let is = |field: &str| question.get(field).is_some_and(|value| *value != Value::Null);
        let kind = question["type"].as_str().unwrap_or_default();
        if !["string", "number", "boolean", "directory", "file"].contains(&kind) {
            return Err(format!("/user_config/{key}/type is {kind:?}"));
        }
        if !is("title") || !is("description") {
            return Err(format!("/user_config/{key} has no title or no description"));
        }
        if !is("default") && question["required"] != true {
            return Err(format!("/user_config/{key} is neither required nor has it a default"));
        }
    }
    let root = asked.get("allowed_root").unwrap_or(&Value::Null);
    if root["required"] != true || root["type"] != "directory" {
        return Err("/user_config/allowed_root is not a required folder".into());
    }
    let mut texts = Vec::new();
    strings(&manifest["server"]["mcp_config"], &mut texts);
    for text in texts {
        for piece in text.split("${").skip(1) {
            let name = piece.split('}').next().unwrap_or_default();
            let known = match name.strip_prefix("user_config.") {
                Some(key) => asked.contains_key(key),
                None => ["__dirname", "HOME", "DESKTOP", "DOCUMENTS", "DOWNLOADS", "pathSeparator", "/"]
                    .contains(&name),
            };
            if !known || !piece.contains('}') {
                return Err(format!("nobody gives ${{{name}}} a value"));
            }
        }
    }
    Ok(())
}

fn icons(manifest: &Value) -> Vec<&str> {
    let listed = manifest["icons"].as_array().into_iter().flatten().map(|icon| &icon["src"]);
    listed.chain([&manifest["icon"]]).filter_map(Value::as_str).collect()
}

fn strings<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Value::Object(map) => map.values().for_each(|item| strings(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    const REAL: &[u8] = include_bytes!("../../../manifest.template.json");

    fn target(os: &str) -> Target {
        Target { os: os.into(), arch: "x86_64".into(), triple: "x".into() }
    }

    fn facts(target: &Target) -> Facts<'_> {
        Facts {
            version: "1.2.3-rc.1",
            git_sha: "0123456789abcdef0123456789abcdef01234567",
            target,
            runtime_sha256: "0",
        }
    }

    fn checked(manifest: &Value, facts: &Facts<'_>) -> Result<(), String> {
        let runtime = facts.runtime();
        check(manifest.to_string().as_bytes(), facts, &BTreeSet::from([runtime.as_str()]))
    }

    #[test]
    fn the_template_is_good_for_each_system() {
        for (os, platform, command) in [
            ("linux", "linux", "${__dirname}/server/agent-bridge"),
            ("macos", "darwin", "${__dirname}/server/agent-bridge"),
            ("windows", "win32", "${__dirname}/server/agent-bridge.exe"),
        ] {
            let target = target(os);
            let facts = facts(&target);
            let bytes = render(REAL, &facts).unwrap();
            let manifest: Value = serde_json::from_slice(&bytes).unwrap();
            checked(&manifest, &facts).unwrap();
            assert_eq!(manifest["compatibility"]["platforms"], json!([platform]));
            assert_eq!(manifest["server"]["mcp_config"]["command"], command);
            assert_eq!(manifest["server"]["mcp_config"]["platform_overrides"][platform]["command"], command);
        }
        assert!(render(REAL, &facts(&target("plan9"))).is_err());
        assert!(render(b"{{other}}", &facts(&target("linux"))).is_err());
    }

    #[test]
    fn what_the_official_validator_lets_pass_is_refused() {
        let target = target("linux");
        let facts = facts(&target);
        let good: Value = serde_json::from_slice(&render(REAL, &facts).unwrap()).unwrap();
        checked(&good, &facts).unwrap();
        let cases = [
            ("/version", json!("banana")),
            ("/name", json!("Agent Bridge")),
            ("/manifest_version", json!("0.5")),
            ("/server/entry_point", json!("server/other")),
            ("/server/type", json!("node")),
            ("/server/mcp_config/command", json!("agent-bridge")),
            ("/server/mcp_config/args", json!([])),
            ("/server/mcp_config/env/AGENT_BRIDGE_BUNDLE_MODE", json!("0")),
            ("/server/mcp_config/env/AGENT_BRIDGE_ALLOWED_ROOT", json!("${user_config.other}")),
            ("/server/mcp_config/env/AGENT_BRIDGE_STATE_DIR", json!("${HOMES}/x")),
            ("/server/mcp_config/env/AGENT_BRIDGE_STATE_DIR", json!("${HOME")),
            ("/server/mcp_config/platform_overrides", json!({ "linux": {}, "amiga": {} })),
            ("/compatibility/platforms", json!(["linux", "darwin"])),
            ("/user_config/allowed_root/required", json!(false)),
            ("/user_config/enable_codex/default", Value::Null),
            ("/user_config/enable_codex/title", Value::Null),
            ("/_meta/io.github.agent-bridge.release/git_sha", json!("0")),
        ];
        for (pointer, value) in cases {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value.clone();
            assert!(checked(&bad, &facts).is_err(), "{pointer} = {value}");
        }
        for (key, value) in
            [("icon", json!("icon.png")), ("icons", json!([{ "src": "a.png" }])), ("extra", json!(1))]
        {
            let mut bad = good.clone();
            bad[key] = value;
            assert!(checked(&bad, &facts).is_err(), "{key}");
        }
        assert!(check(good.to_string().as_bytes(), &facts, &BTreeSet::new()).is_err(), "without the program");
    }
}
