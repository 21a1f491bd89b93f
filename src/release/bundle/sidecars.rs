//! The files beside a bundle. They are never in it: what is appended to an archive breaks strict readers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::manifest::Facts;
use crate::digest;

/// Name of the list of digests.
pub const SUMS: &str = "SHA256SUMS";
/// Where bundles are published, unless the operator says otherwise.
const RELEASES: &str = "https://github.com/agent-bridge/agent-bridge/releases/download";
const NAME: &str = "io.github.agent-bridge/agent-bridge";

/// The fragment for the MCP registry. It knows no processors, so each bundle is a package of its own.
pub fn registry_fragment(
    facts: &Facts<'_>,
    bundle: &str,
    sha256: &str,
    url: Option<&str>,
    about: &str,
) -> Vec<u8> {
    let folder = match url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => format!("{RELEASES}/v{}", facts.version),
    };
    pretty(&json!({
        "name": NAME,
        "description": about,
        "version": facts.version,
        "packages": [{
            "registryType": "mcpb",
            "identifier": format!("{folder}/{bundle}"),
            "version": facts.version,
            "fileSha256": sha256,
            "transport": { "type": "stdio" },
        }],
    }))
}

/// The bill of materials (CycloneDX 1.5) of what `Cargo.lock` names: everything that a build may use, on any system
/// and for tests too, since the lock file does not tell them apart.
pub fn bill_of_materials(facts: &Facts<'_>, lock: &[u8], built_at: &str) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(lock).map_err(|_| "it is not text")?;
    let lock: toml_edit::DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    let packages =
        lock.get("package").and_then(toml_edit::Item::as_array_of_tables).ok_or("it names no packages")?;
    let field = |package: &toml_edit::Table, key: &str| {
        package.get(key).and_then(toml_edit::Item::as_str).map(str::to_owned)
    };
    let mut found = Vec::new();
    for package in packages {
        let (Some(name), Some(version)) = (field(package, "name"), field(package, "version")) else {
            return Err("a package has no name or no version".into());
        };
        let needs = package.get("dependencies").and_then(toml_edit::Item::as_array);
        let needs: Vec<String> =
            needs.into_iter().flatten().filter_map(|need| Some(need.as_str()?.to_owned())).collect();
        found.push((name, version, field(package, "source"), field(package, "checksum"), needs));
    }
    let reference = |name: &str, version: &str| format!("pkg:cargo/{name}@{version}");
    // A dependency is `name` where that is unique, else `name version`, else with the source too.
    let resolve = |need: &str| {
        let mut words = need.split(' ');
        let (name, version) = (words.next()?, words.next());
        let package = found.iter().find(|p| p.0 == name && version.is_none_or(|version| p.1 == version))?;
        Some(reference(&package.0, &package.1))
    };
    let mut components = Vec::new();
    let mut dependencies = BTreeMap::new();
    for (name, version, source, checksum, needs) in &found {
        let own = reference(name, version);
        let mut needs: Vec<String> = needs.iter().filter_map(|need| resolve(need)).collect();
        needs.sort();
        dependencies.insert(own.clone(), needs);
        if source.is_none() && name == "agent-bridge" {
            continue;
        }
        let mut component = json!({
            "type": "library", "bom-ref": own, "name": name, "version": version, "purl": own,
        });
        if let Some(checksum) = checksum {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        components.push((own, component));
    }
    components.sort_by(|a, b| a.0.cmp(&b.0));
    let components: Vec<Value> = components.into_iter().map(|(_, component)| component).collect();
    let dependencies: Vec<Value> =
        dependencies.into_iter().map(|(own, needs)| json!({ "ref": own, "dependsOn": needs })).collect();
    let own = reference("agent-bridge", facts.version);
    let mut bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": built_at,
            "component": {
                "type": "application", "bom-ref": own, "name": "agent-bridge", "version": facts.version, "purl": own,
                "hashes": [{ "alg": "SHA-256", "content": facts.runtime_sha256 }],
                "properties": [
                    { "name": "agent-bridge:gitSha", "value": facts.git_sha },
                    { "name": "agent-bridge:target", "value": facts.target.triple },
                    { "name": "agent-bridge:source", "value": "Cargo.lock, with what only builds, tests and other systems use" },
                ],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    bill["serialNumber"] = serial_number(&digest::of_json(&bill)).into();
    Ok(pretty(&bill))
}

/// An id that follows from the content: RFC 9562, version 8.
fn serial_number(sha256: &str) -> String {
    let digit = |at: usize| sha256.get(at..=at).unwrap_or("0");
    let part = |from: usize, to: usize| sha256.get(from..to).unwrap_or_default();
    let variant = match u8::from_str_radix(digit(16), 16).unwrap_or(0) & 3 {
        0 => '8',
        1 => '9',
        2 => 'a',
        _ => 'b',
    };
    format!(
        "urn:uuid:{}-{}-8{}-{variant}{}-{}",
        part(0, 8),
        part(8, 12),
        part(13, 16),
        part(17, 20),
        part(20, 32)
    )
}

/// `SHA256SUMS` with these lines, beside those that are there for other files. Refuses a list that says something else
/// of one of them, or that is none.
pub fn sums(existing: Option<&str>, own: &BTreeMap<String, String>) -> Result<String, String> {
    let mut all = BTreeMap::new();
    for line in existing.unwrap_or_default().lines() {
        match line.split_once("  ") {
            Some((sha, name)) if digest::is_digest(sha) && !name.is_empty() => {
                all.insert(name.to_owned(), sha.to_owned());
            }
            _ => return Err(format!("it holds the line {line:?}")),
        }
    }
    for (name, sha) in own {
        if let Some(other) = all.insert(name.clone(), sha.clone())
            && other != *sha
        {
            return Err(format!("it names another digest of {name}"));
        }
    }
    Ok(all.into_iter().map(|(name, sha)| format!("{sha}  {name}\n")).collect())
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::release::metadata::Target;

    #[test]
    fn the_bill_names_every_package_of_the_lock_file_and_follows_from_it() {
        let target = Target { os: "linux".into(), arch: "x86_64".into(), triple: "x".into() };
        let facts = Facts { version: "0.1.0", git_sha: "0", target: &target, runtime_sha256: "1" };
        let lock = include_bytes!("../../../Cargo.lock");
        let bytes = bill_of_materials(&facts, lock, "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(bytes, bill_of_materials(&facts, lock, "2026-01-01T00:00:00Z").unwrap());
        let other = bill_of_materials(&facts, lock, "2026-01-01T00:00:01Z").unwrap();
        let bill: Value = serde_json::from_slice(&bytes).unwrap();
        let other: Value = serde_json::from_slice(&other).unwrap();
        assert_ne!(bill["serialNumber"], other["serialNumber"]);
        let id = bill["serialNumber"].as_str().unwrap().strip_prefix("urn:uuid:").unwrap();
        let id = uuid::Uuid::parse_str(id).unwrap();
        assert_eq!((id.get_version_num(), id.get_variant()), (8, uuid::Variant::RFC4122));
        let in_lock = std::str::from_utf8(lock).unwrap().matches("[[package]]").count();
        let components = bill["components"].as_array().unwrap();
        assert_eq!(components.len(), in_lock - 1, "all but the program itself");
        assert!(components.iter().all(|c| c["hashes"][0]["content"].as_str().is_some_and(digest::is_digest)));
        let references: std::collections::BTreeSet<&str> =
            bill["dependencies"].as_array().unwrap().iter().map(|d| d["ref"].as_str().unwrap()).collect();
        assert_eq!(references.len(), in_lock);
        for dependency in bill["dependencies"].as_array().unwrap() {
            for needed in dependency["dependsOn"].as_array().unwrap() {
                assert!(references.contains(needed.as_str().unwrap()), "{needed}");
            }
        }
    }

    #[test]
    fn digests_of_other_files_stay_and_none_is_changed() {
        let own = BTreeMap::from([("b".to_owned(), "b".repeat(64))]);
        let line = |name: &str, digit: &str| format!("{}  {name}\n", digit.repeat(64));
        assert_eq!(sums(None, &own).unwrap(), line("b", "b"));
        let existing = format!("{}{}", line("a", "a"), line("c", "c"));
        let all = sums(Some(&existing), &own).unwrap();
        assert_eq!(all, format!("{}{}{}", line("a", "a"), line("b", "b"), line("c", "c")));
        assert_eq!(sums(Some(&all), &own).unwrap(), all);
        assert!(sums(Some(&line("b", "a")), &own).is_err());
        assert!(sums(Some("something else\n"), &own).is_err());
    }
}
