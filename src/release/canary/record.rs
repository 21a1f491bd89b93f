//! The record of a canary, as it is written and printed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::release::ReleaseId;

/// Version of the record.
pub const SCHEMA_VERSION: u32 = 1;

/// Which canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// An installed release, agents off.
    #[serde(rename = "canary-release")]
    Release,
    /// An installed release with a hostile scripted agent.
    #[serde(rename = "canary-launch")]
    Launch,
    /// The launcher and the current release.
    #[serde(rename = "canary-pointer")]
    Pointer,
    /// A release with a config that is not in place.
    #[serde(rename = "canary-config")]
    Config,
}

impl Kind {
    /// Its name, also that of the record's file without `.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Release => "canary-release",
            Self::Launch => "canary-launch",
            Self::Pointer => "canary-pointer",
            Self::Config => "canary-config",
        }
    }
}

/// Verdict of a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every check held.
    Pass,
    /// One did not.
    Fail,
}

/// How one check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// It held.
    Pass,
    /// Worth knowing; decides nothing.
    Warn,
    /// It did not hold.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it came out.
    pub status: CheckStatus,
    /// What was found, redacted.
    pub detail: String,
}

/// Whether the program on trial could reach anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Proven to be in an empty network of its own.
    Off,
    /// The system did not allow that; it had the network of the command.
    Shared,
    /// It was not started.
    NotStarted,
}

/// Why a canary failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The check that did not hold.
    pub check: String,
    /// Documented code.
    pub code: String,
    /// What happened, redacted.
    pub message: String,
    /// What to do.
    pub hint: String,
    /// Whether the same canary may pass later.
    pub retryable: bool,
}

/// A file as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StableFile {
    /// SHA-256.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Which canary.
    pub kind: Kind,
    /// Verdict.
    pub status: Status,
    /// Id of this run.
    pub run_id: String,
    /// When, UTC.
    pub checked_at: String,
    /// How long it took.
    pub duration_ms: u64,
    /// The release on trial; none if even that is not known.
    pub release_id: Option<ReleaseId>,
    /// SHA-256 of its program.
    pub runtime_sha256: Option<String>,
    /// SHA-256 of its metadata.
    pub metadata_sha256: Option<String>,
    /// SHA-256 of its manifest.
    pub manifest_sha256: Option<String>,
    /// SHA-256 of its receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt_sha256: Option<String>,
    /// SHA-256 of the config that is staged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
    /// The generation whose launcher was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Version that the server told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// Tools that it listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<usize>,
    /// Digest of its tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalogue_sha256: Option<String>,
    /// Whether it could reach anybody.
    pub network: Network,
    /// Names of the variables that it got.
    pub environment: Vec<String>,
    /// The checks, in order; the first that fails is the last but for the stable files.
    pub checks: Vec<Check>,
    /// Files that must not change, before; none for one that is not there.
    pub stable_files_before: BTreeMap<String, Option<StableFile>>,
    /// The same after.
    pub stable_files_after: BTreeMap<String, Option<StableFile>>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Where the record lies. Not in the record itself.
    #[serde(skip)]
    pub evidence: PathBuf,
}

impl Record {
    /// Whether every check held.
    pub fn passed(&self) -> bool {
        self.status == Status::Pass
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}
