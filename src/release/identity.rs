//! What a program is, told from its bytes: the record that the build puts into it can be found in any binary of
//! any system without running it, so a stale or a foreign one cannot be taken for the one that was meant.

use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::layout::is_version;
use super::metadata::Target;
use crate::digest::is_digest;

/// The record in this very program. The words before it occur nowhere else in it.
#[used]
static EMBEDDED: &str =
    concat!("\n[agent-bridge identity 1] ", env!("AGENT_BRIDGE_IDENTITY"), "\n[identity ends]\n");

/// The words before a record, the last one first: written forward they would be found here as well.
const MARKER_BACKWARD: &[u8] = b" ]1 ytitnedi egdirb-tnega[\n";
/// The longest record that is read.
const MAX_RECORD: usize = 4096;
/// Size of the pieces in which a file is searched.
const PIECE: usize = 256 * 1024;

/// What the build said of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// `agent-bridge`.
    pub package: String,
    /// `MAJOR.MINOR.PATCH[-PRE]`.
    pub version: String,
    /// The whole revision, 40 hexadecimal digits; none if it was built outside a checkout.
    pub git_sha: Option<String>,
    /// Seconds since 1970 of that revision.
    pub commit_time: Option<i64>,
    /// Whether what was compiled differs from the revision.
    pub dirty: bool,
    /// Where it runs.
    pub target: Target,
    /// `digest::of_json` of its tools, sorted by name.
    pub catalogue_sha256: Option<String>,
}

/// Why a file has no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is no record in it.
    #[error("it holds no identity of an agent-bridge")]
    Missing,
    /// There is one, and it makes no sense.
    #[error("its identity is not valid: {0}")]
    Invalid(String),
}

impl Identity {
    /// `<version> (<12 digits>, <triple>)`, as `--version` prints it.
    pub fn describe(&self) -> String {
        let sha = self.git_sha.as_deref().and_then(|sha| sha.get(..12)).unwrap_or("unknown");
        let dirty = if self.dirty { ", changed" } else { "" };
        format!("{} ({sha}, {}{dirty})", self.version, self.target.triple)
    }

    fn check(self) -> Result<Self, IdentityError> {
        let hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_word = |text: &str| {
            !text.is_empty()
                && text.len() <= 64
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        };
        let whole = |sha: &String| sha.len() == 40 && sha.bytes().all(hexadecimal);
        let wrong = if self.package != "agent-bridge" {
            "the package"
        } else if !is_version(&self.version) {
            "the version"
        } else if !self.git_sha.as_ref().is_none_or(whole) {
            "the revision"
        } else if ![&self.target.os, &self.target.arch, &self.target.triple]
            .into_iter()
            .all(|word| is_word(word))
        {
            "the target"
        } else if !self.catalogue_sha256.as_deref().is_none_or(is_digest) {
            "the digest of the tools"
        } else {
            return Ok(self);
        };
        Err(IdentityError::Invalid(wrong.into()))
    }
}

/// The identity of this program.
pub fn own() -> Result<Identity, IdentityError> {
    of_reader(EMBEDDED.as_bytes())
}

/// The identity of the program in a file; it is read, not run. The first record counts.
pub fn of_binary(path: &Path) -> Result<Identity, IdentityError> {
    of_reader(std::fs::File::open(path)?)
}

/// The same of a stream, read in pieces up to the record.
pub fn of_reader(mut reader: impl Read) -> Result<Identity, IdentityError> {
    let marker: Vec<u8> = MARKER_BACKWARD.iter().rev().copied().collect();
    let finder = memchr::memmem::Finder::new(&marker);
    let mut window: Vec<u8> = Vec::with_capacity(PIECE + MAX_RECORD);
    let mut fault = IdentityError::Missing;
    loop {
        let read = (&mut reader).take(PIECE as u64).read_to_end(&mut window)?;
        let ended = read < PIECE;
        let mut from = 0;
        while let Some(at) = finder.find(&window[from..]) {
            let start = from + at + marker.len();
            if !ended && window.len() - start < MAX_RECORD {
                from = start - marker.len();
                break;
            }
            match parse(&window[start..]) {
                Ok(identity) => return Ok(identity),
                Err(invalid) => fault = invalid,
            }
            from = start;
        }
        if ended {
            return Err(fault);
        }
        // Keep what may be the beginning of a marker, or a record that was cut.
        let keep = match finder.find(&window[from..]) {
            Some(at) => from + at,
            None => window.len().saturating_sub(marker.len() - 1).max(from),
        };
        window.drain(..keep);
    }
}

fn parse(bytes: &[u8]) -> Result<Identity, IdentityError> {
    let line = bytes.get(..bytes.len().min(MAX_RECORD)).unwrap_or_default();
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let identity: Identity =
        serde_json::from_slice(line).map_err(|error| IdentityError::Invalid(error.to_string()))?;
    identity.check()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn record() -> Vec<u8> {
        EMBEDDED.as_bytes().to_vec()
    }

    #[test]
    fn this_program_knows_what_it_is() {
        let identity = own().unwrap();
        assert_eq!(identity.version, env!("CARGO_PKG_VERSION"));
        assert_eq!(identity.target.os, std::env::consts::OS);
        assert_eq!(identity.target.arch, std::env::consts::ARCH);
        let file = of_binary(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(file, identity, "read from the file of the running program");
    }

    #[test]
    fn the_marker_occurs_once_in_a_program() {
        let marker: Vec<u8> = MARKER_BACKWARD.iter().rev().copied().collect();
        assert!(record().starts_with(&marker));
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(memchr::memmem::find_iter(&bytes, &marker).count(), 1);
    }

    #[test]
    fn a_record_is_found_wherever_pieces_are_cut() {
        let record = record();
        for cut in
            [0, 1, PIECE - MAX_RECORD, PIECE - record.len(), PIECE - 30, PIECE - 1, PIECE, 3 * PIECE - 7]
        {
            let mut bytes = vec![b'\n'; cut];
            bytes.extend_from_slice(&record);
            bytes.extend(vec![0; PIECE]);
            assert_eq!(of_reader(&bytes[..]).unwrap(), own().unwrap(), "{cut}");
            bytes.truncate(cut + record.len());
            assert_eq!(of_reader(&bytes[..]).unwrap(), own().unwrap(), "{cut}, at the end");
        }
    }

    #[test]
    fn what_is_no_record_is_passed_over_or_named() {
        let marker: Vec<u8> = MARKER_BACKWARD.iter().rev().copied().collect();
        assert!(matches!(of_reader(&b""[..]), Err(IdentityError::Missing)));
        assert!(matches!(of_reader(&vec![7; 2 * PIECE][..]), Err(IdentityError::Missing)));
        let mut bytes = marker.repeat(1000);
        assert!(matches!(of_reader(&bytes[..]), Err(IdentityError::Invalid(_))));
        bytes.extend(record());
        assert_eq!(of_reader(&bytes[..]).unwrap(), own().unwrap());
        let text = EMBEDDED.replace("\"agent-bridge\"", "\"agent-fridge\"");
        assert!(matches!(of_reader(text.as_bytes()), Err(IdentityError::Invalid(_))));
        let text = EMBEDDED.replace("\"dirty\"", "\"filthy\"");
        assert!(matches!(of_reader(text.as_bytes()), Err(IdentityError::Invalid(_))));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_around_it_do_not_matter(
            before in proptest::collection::vec(0_u8.., 0..9000),
            after in proptest::collection::vec(0_u8.., 0..9000),
        ) {
            let bytes = [before, record(), after].concat();
            proptest::prop_assert_eq!(of_reader(&bytes[..]).unwrap(), own().unwrap());
        }
    }
}
