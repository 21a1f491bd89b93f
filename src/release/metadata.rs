//! `release-metadata.json`: what is in a release and what it promises, every file pinned by SHA-256, size
//! and mode.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::layout::is_version;
use super::{ReleaseError, ReleaseId};
use crate::digest::is_digest;

/// Name of the file in a bundle and in a release.
pub const METADATA_FILE: &str = "release-metadata.json";
/// Name of the manifest.
pub const MANIFEST_FILE: &str = "manifest.json";
/// What [`Metadata::capability`] says.
pub const CAPABILITY: &str = "agent-bridge-release-v3";
/// Version of the record.
pub const SCHEMA_VERSION: u32 = 3;
/// The launcher protocol that this program speaks as a launcher.
pub const LAUNCHER_PROTOCOL: u32 = 1;
/// Largest metadata file that is read.
pub const MAX_BYTES: u64 = 1024 * 1024;

/// The record. Unknown keys are refused: a later version has another `schemaVersion`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// [`CAPABILITY`].
    pub capability: String,
    /// `agent-bridge`.
    pub package: String,
    /// `MAJOR.MINOR.PATCH[-PRE]`.
    pub version: String,
    /// The whole revision, 40 hexadecimal digits.
    pub git_sha: String,
    /// Time of the revision, UTC; not of the packaging.
    pub built_at: String,
    /// Where it runs.
    pub target: Target,
    /// Path of the program in the release.
    pub runtime: String,
    /// Launchers that speak less are too old to start it.
    pub min_launcher_protocol: u32,
    /// Versions of the config file that it reads.
    pub config_schema_version: Range,
    /// Versions of the state that it reads and the one that it writes.
    pub state_schema_version: StateSchema,
    /// The tools that its server offers.
    pub tool_catalogue: ToolCatalogue,
    /// SHA-256 of `manifest.json`.
    pub manifest_sha256: String,
    /// Every file but this one, by its path with slashes.
    pub files: BTreeMap<String, FileRecord>,
}

/// A platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    /// As in `std::env::consts::OS`: `linux`, `macos`, `windows`.
    pub os: String,
    /// As in `std::env::consts::ARCH`: `x86_64`, `aarch64`.
    pub arch: String,
    /// As the compiler names it.
    pub triple: String,
}

/// Versions from and to, both included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Range {
    /// The lowest.
    pub min: u32,
    /// The highest.
    pub max: u32,
}

/// Which versions of the state folder a release can work with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateSchema {
    /// What it can read.
    pub reads: Range,
    /// What it leaves behind.
    pub writes: u32,
}

impl StateSchema {
    /// What the program that runs now reads and writes: any older state is brought up to date.
    pub fn of_this_program() -> Self {
        let newest = u32::try_from(crate::store::schema_version()).unwrap_or(u32::MAX);
        Self { reads: Range { min: 1, max: newest }, writes: newest }
    }
}

/// The tools of a server, by digests that do not depend on the order of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolCatalogue {
    /// `digest::of_json` of the whole array of tools, sorted by name.
    pub sha256: String,
    /// `digest::of_json` of each tool, by its name.
    pub tools: BTreeMap<String, String>,
}

/// One pinned file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileRecord {
    /// Lower-case SHA-256.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
    /// `0644` or `0755`.
    pub mode: String,
}

impl FileRecord {
    /// Whether it is a program.
    pub fn is_executable(&self) -> bool {
        self.mode == "0755"
    }
}

impl Metadata {
    /// Reads and judges a record: shape, schema, and that what it says fits together.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReleaseError> {
        let invalid = |why: String| ReleaseError::MetadataInvalid { why };
        if bytes.len() as u64 > MAX_BYTES {
            return Err(invalid(format!("it is larger than {MAX_BYTES} bytes")));
        }
        // serde keeps the last of two equal keys in silence.
        super::journal::refuse_duplicate_keys(bytes).map_err(&invalid)?;
        let metadata: Self = serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()))?;
        metadata.check().map_err(invalid)?;
        Ok(metadata)
    }

    /// The id of the release.
    pub fn id(&self) -> Result<ReleaseId, ReleaseError> {
        ReleaseId::new(&self.version, &self.git_sha)
    }

    /// The record of the program.
    pub fn runtime_record(&self) -> Result<&FileRecord, ReleaseError> {
        self.files.get(&self.runtime).ok_or_else(|| ReleaseError::MetadataInvalid {
            why: format!("{} is not among its files", self.runtime),
        })
    }

    /// Whether this machine can run it.
    pub fn fits_this_machine(&self) -> bool {
        self.target.os == std::env::consts::OS && self.target.arch == std::env::consts::ARCH
    }

    /// The bytes of the record, as they are written into a bundle.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    fn check(&self) -> Result<(), String> {
        if self.schema_version != SCHEMA_VERSION || self.capability != CAPABILITY {
            return Err(format!("schema {} ({}) is not known", self.schema_version, self.capability));
        }
        if self.package != "agent-bridge" {
            return Err(format!("it describes {:?}", self.package));
        }
        if !is_version(&self.version) {
            return Err(format!("{:?} is not a version", self.version));
        }
        let hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if self.git_sha.len() != 40 || !self.git_sha.bytes().all(hexadecimal) {
            return Err("gitSha is not a whole revision".into());
        }
        let suffix = if self.target.os == "windows" { ".exe" } else { "" };
        if self.runtime != format!("server/agent-bridge{suffix}") {
            return Err(format!("the program cannot be {:?}", self.runtime));
        }
        for (path, record) in &self.files {
            check_path(path).map_err(|why| format!("{path:?} {why}"))?;
            if path == METADATA_FILE {
                return Err("it cannot pin itself".into());
            }
            if !is_digest(&record.sha256) {
                return Err(format!("the SHA-256 of {path} is not one"));
            }
            if !matches!(record.mode.as_str(), "0644" | "0755") {
                return Err(format!("the mode of {path} is {:?}", record.mode));
            }
        }
        let mut folded: Vec<String> = self.files.keys().map(|path| path.to_lowercase()).collect();
        folded.sort();
        if let Some(twice) = folded.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{} occurs twice", twice[0]));
        }
        let manifest = self.files.get(MANIFEST_FILE).ok_or("manifest.json is not pinned")?;
        if manifest.sha256 != self.manifest_sha256 {
            return Err("it pins manifest.json twice, differently".into());
        }
        let runtime = self.files.get(&self.runtime).ok_or("the program is not pinned")?;
        if !runtime.is_executable() {
            return Err("the program is not executable".into());
        }
        if !is_digest(&self.tool_catalogue.sha256)
            || !self.tool_catalogue.tools.values().all(|sha| is_digest(sha))
        {
            return Err("the digests of its tools are not SHA-256".into());
        }
        Ok(())
    }
}

/// Why a path may not lie in a release; the same rule on every system.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() || path.len() > 240 {
        return Err("is empty or too long");
    }
    if path.bytes().any(|byte| {
        byte < 0x20 || matches!(byte, b'\\' | b':' | b'*' | b'?' | b'"' | b'<' | b'>' | b'|' | 0x7f)
    }) {
        return Err("holds a character that some system does not allow in a name");
    }
    for part in path.split('/') {
        if matches!(part, "" | "." | "..") {
            return Err("is not a plain relative path");
        }
        if part.ends_with(['.', ' ']) || part.starts_with(' ') {
            return Err("has a part that begins or ends with a space or ends with a dot");
        }
        let stem = part.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
        let device = matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
            || (stem.chars().count() == 4
                && (stem.starts_with("COM") || stem.starts_with("LPT"))
                && stem.chars().last().is_some_and(|c| c.is_ascii_digit() || matches!(c, '¹' | '²' | '³')));
        if device {
            return Err("is a device name on Windows");
        }
    }
    if path.eq_ignore_ascii_case("server/config.json") {
        return Err("would be a config inside a release that must not change");
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::{Value, json};

    pub(crate) fn example() -> Value {
        let sha = "a".repeat(64);
        let suffix = std::env::consts::EXE_SUFFIX;
        json!({
            "schemaVersion": 3, "capability": CAPABILITY, "package": "agent-bridge", "version": "1.2.3",
            "gitSha": "0123456789abcdef0123456789abcdef01234567", "builtAt": "2026-01-01T00:00:00Z",
            "target": { "os": std::env::consts::OS, "arch": std::env::consts::ARCH, "triple": "x" },
            "runtime": format!("server/agent-bridge{suffix}"), "minLauncherProtocol": 1,
            "configSchemaVersion": { "min": 1, "max": 1 },
            "stateSchemaVersion": { "reads": { "min": 1, "max": 1 }, "writes": 1 },
            "toolCatalogue": { "sha256": sha, "tools": {} }, "manifestSha256": sha,
            "files": {
                "manifest.json": { "sha256": sha, "bytes": 1, "mode": "0644" },
                format!("server/agent-bridge{suffix}"): { "sha256": sha, "bytes": 1, "mode": "0755" },
            },
        })
    }

    fn parse(value: &Value) -> Result<Metadata, ReleaseError> {
        Metadata::parse(value.to_string().as_bytes())
    }

    #[test]
    fn a_record_is_read_and_written_the_same() {
        let metadata = parse(&example()).unwrap();
        assert_eq!(metadata.id().unwrap().as_str(), "1.2.3+0123456");
        assert_eq!(Metadata::parse(&metadata.to_bytes()).unwrap(), metadata);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let change = |pointer: &str, value: Value| {
            let mut changed = example();
            *changed.pointer_mut(pointer).unwrap() = value;
            parse(&changed)
        };
        assert!(change("/schemaVersion", json!(4)).is_err());
        assert!(change("/package", json!("other")).is_err());
        assert!(change("/gitSha", json!("0123")).is_err());
        assert!(change("/manifestSha256", json!("b".repeat(64))).is_err());
        assert!(change("/files/manifest.json/sha256", json!("A".repeat(64))).is_err());
        assert!(change("/files/manifest.json/bytes", json!(1.5)).is_err());
        assert!(change("/files/manifest.json/mode", json!("0777")).is_err());
        assert!(change("/runtime", json!("server/other")).is_err());
        let mut unknown = example();
        unknown["extra"] = json!(1);
        assert!(parse(&unknown).is_err());
        for path in [
            "../x",
            "/x",
            "a\\b",
            "server/config.json",
            "con",
            "a/Nul.txt",
            "x.",
            "x ",
            "a//b",
            "COM1",
            "a:b",
            "Manifest.json",
        ] {
            let mut bad = example();
            bad["files"][path] = bad["files"]["manifest.json"].clone();
            assert!(parse(&bad).is_err(), "{path}");
        }
        let twice = example().to_string().replacen("\"package\"", "\"version\":\"9.9.9\",\"package\"", 1);
        assert!(Metadata::parse(twice.as_bytes()).is_err(), "the same key twice");
    }
}
