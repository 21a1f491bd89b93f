//! Which release is current: two slot files, written in turn, each with its own checksum.
//!
//! A reader takes the valid slot with the highest generation; a write goes to the other one, so a torn write
//! can only hit what nobody uses, and nothing is ever renamed over a file that somebody reads.

use std::io::{ErrorKind, Read as _};

use serde::{Deserialize, Serialize};

use super::{Layout, ReleaseError, ReleaseId};
use crate::digest;

/// Largest slot that is read.
const MAX_BYTES: u64 = 64 * 1024;
const MAGIC: &str = "agent-bridge-pointer 1";

/// What is current. All paths are relative to ROOT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pointer {
    /// 2.
    pub schema_version: u32,
    /// Grows with every switch, also with one back.
    pub generation: u64,
    /// The release.
    pub release_id: ReleaseId,
    /// Platform of the release.
    pub target: String,
    /// Path of its program.
    pub runtime_path: String,
    /// SHA-256 of its program.
    pub runtime_sha256: String,
    /// Size of its program.
    pub runtime_bytes: u64,
    /// SHA-256 of its metadata.
    pub metadata_sha256: String,
    /// SHA-256 of its manifest.
    pub manifest_sha256: String,
    /// SHA-256 of the shared config at the switch; none if there was no config.
    pub config_sha256: Option<String>,
    /// The launcher at the switch.
    pub launcher: LauncherFacts,
    /// What was current before.
    pub previous: Option<Previous>,
    /// Set while the release has to prove itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// The transaction that wrote this.
    pub txid: String,
    /// When, UTC.
    pub promoted_at: String,
}

/// The launcher that was in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LauncherFacts {
    /// SHA-256 of the file.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// The protocol it speaks.
    pub protocol: u32,
}

/// What was current before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Previous {
    /// Its generation.
    pub generation: u64,
    /// Its release.
    pub release_id: ReleaseId,
    /// Its config.
    pub config_sha256: Option<String>,
}

/// The terms of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Trial {
    /// Milliseconds since 1970 after which a release that was never blessed is left again.
    pub until_ms: i64,
    /// Client handshakes that bless it.
    pub handshakes: u32,
    /// Starts without a handshake after which it is left.
    pub failed_starts: u32,
    /// The generation to go back to.
    pub fallback: u64,
}

/// The bytes of a slot.
pub fn encode(pointer: &Pointer) -> String {
    let body = serde_json::to_string_pretty(pointer).unwrap_or_default();
    format!("{MAGIC} {} {}\n{body}\n", body.len(), digest::of_bytes(body.as_bytes()))
}

/// The copy for people.
pub fn readable(pointer: &Pointer) -> String {
    serde_json::to_string_pretty(pointer).map(|text| text + "\n").unwrap_or_default()
}

/// The pointer in the bytes of a slot, if they are whole.
pub fn decode(bytes: &[u8]) -> Option<Pointer> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (header, rest) = text.split_once('\n')?;
    let mut fields = header.strip_prefix(MAGIC)?.strip_prefix(' ')?.split(' ');
    let length: usize = fields.next()?.parse().ok()?;
    let sha256 = fields.next()?;
    let body = rest.strip_suffix('\n')?;
    if fields.next().is_some() || body.len() != length || digest::of_bytes(body.as_bytes()) != sha256 {
        return None;
    }
    let pointer: Pointer = serde_json::from_str(body).ok()?;
    (pointer.schema_version == 2).then_some(pointer)
}

/// The current pointer and the slot it lies in; none before the first switch.
pub fn read(layout: &Layout) -> Result<Option<(usize, Pointer)>, ReleaseError> {
    let mut best: Option<(usize, Pointer)> = None;
    let mut seen = false;
    for slot in [0, 1] {
        let path = layout.slot(slot);
        let mut bytes = Vec::new();
        match std::fs::File::open(&path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes)) {
            Ok(_) => seen |= !bytes.is_empty(),
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(ReleaseError::io("cannot read", path)(error)),
        }
        if let Some(pointer) = decode(&bytes)
            && best.as_ref().is_none_or(|(_, other)| pointer.generation > other.generation)
        {
            best = Some((slot, pointer));
        }
    }
    // The very first write may have been torn; then nothing was ever current.
    let first = seen && best.is_none() && super::generations::is_empty(layout);
    if seen && best.is_none() && !first {
        return Err(ReleaseError::PointerDamaged { root: layout.root().to_path_buf() });
    }
    Ok(best)
}

/// The current pointer, or the refusal that nothing is current.
pub fn current(layout: &Layout) -> Result<Pointer, ReleaseError> {
    match read(layout)? {
        Some((_, pointer)) => Ok(pointer),
        None => Err(ReleaseError::NothingCurrent { root: layout.root().to_path_buf() }),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn example(generation: u64) -> Pointer {
        let sha = "0".repeat(64);
        Pointer {
            schema_version: 2,
            generation,
            release_id: ReleaseId::parse("1.0.0+abcdef0").unwrap(),
            target: "x".into(),
            runtime_path: "releases/1.0.0+abcdef0/server/agent-bridge".into(),
            runtime_sha256: sha.clone(),
            runtime_bytes: 1,
            metadata_sha256: sha.clone(),
            manifest_sha256: sha.clone(),
            config_sha256: None,
            launcher: LauncherFacts { sha256: sha, bytes: 1, protocol: 1 },
            previous: None,
            trial: None,
            txid: "000001-cutover".into(),
            promoted_at: "2026-01-01T00:00:00Z".into(),
        }
    }

    #[test]
    fn the_valid_slot_with_the_highest_generation_counts() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        layout.create().unwrap();
        assert_eq!(read(&layout).unwrap(), None);
        std::fs::write(layout.slot(0), encode(&example(7))).unwrap();
        std::fs::write(layout.slot(1), encode(&example(8))).unwrap();
        assert_eq!(read(&layout).unwrap(), Some((1, example(8))));
        let torn = encode(&example(9));
        std::fs::write(layout.slot(1), &torn[..torn.len() - 5]).unwrap();
        assert_eq!(read(&layout).unwrap(), Some((0, example(7))));
        std::fs::write(layout.slot(0), "").unwrap();
        assert_eq!(read(&layout).unwrap(), None, "the first write ever was torn");
        std::fs::write(layout.generation(7), "{}").unwrap();
        assert!(matches!(read(&layout), Err(ReleaseError::PointerDamaged { .. })));
    }

    proptest! {
        #[test]
        fn no_damage_is_taken_for_a_pointer(at in 0usize..1000, byte in any::<u8>(), cut in any::<bool>()) {
            let whole = encode(&example(3)).into_bytes();
            let mut damaged = whole.clone();
            let at = at % whole.len();
            if cut { damaged.truncate(at) } else { damaged[at] = byte }
            prop_assert!(damaged == whole || decode(&damaged).is_none());
        }
    }
}
