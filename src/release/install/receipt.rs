//! Where an installed release came from, kept beside it and not in it, so that a release stays what its bundle was.

use std::io::Read as _;

use serde::{Deserialize, Serialize};

use crate::platform;
use crate::release::{Layout, ReleaseId};

/// Largest receipt that is read.
const MAX_BYTES: u64 = 64 * 1024;

/// The receipt of one release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// 1.
    pub schema_version: u32,
    /// The release.
    pub release_id: ReleaseId,
    /// SHA-256 of the bundle; none if an unpacked one was installed.
    pub bundle_sha256: Option<String>,
    /// SHA-256 of `release-metadata.json`.
    pub metadata_sha256: String,
    /// SHA-256 of `manifest.json`.
    pub manifest_sha256: String,
    /// `bundle`, `folder` or `oci-layout`.
    pub source: String,
    /// When, UTC.
    pub installed_at: String,
    /// What installed it.
    pub installed_by: Installer,
}

/// The program that installed a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Installer {
    /// Its version.
    pub version: String,
    /// SHA-256 of its file.
    pub sha256: String,
}

impl Receipt {
    /// The bytes of the file.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).map(|text| text + "\n").unwrap_or_default()
    }

    /// The receipt of a release, if there is one that can be read.
    pub fn read(layout: &Layout, id: &ReleaseId) -> Option<Self> {
        let mut bytes = Vec::new();
        platform::open_no_link(&layout.receipt(id)).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok().filter(|receipt: &Self| receipt.release_id == *id)
    }
}
