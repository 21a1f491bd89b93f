//! SHA-256 of bytes and of files, as lower-case hexadecimal text.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A digest of bytes that come piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest of all that was taken.
    pub fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// The digest of bytes.
pub fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The digest and the length of a file, read in pieces.
pub fn of_file(path: &Path) -> io::Result<(String, u64)> {
    of_reader(File::open(path)?)
}

/// The digest and the length of all that a reader gives.
pub fn of_reader(mut reader: impl io::Read) -> io::Result<(String, u64)> {
    let mut hasher = Hasher::default();
    let mut length = 0;
    let mut piece = vec![0; 256 * 1024];
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok((hasher.finish(), length)),
            Ok(count) => {
                hasher.update(&piece[..count]);
                length += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The digest of a JSON value that does not depend on the order of its keys or on white space.
pub fn of_json(value: &Value) -> String {
    of_bytes(sorted(value).to_string().as_bytes())
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            Value::Object(entries.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// Lower-case hexadecimal text.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a text is a SHA-256 as this project writes it.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn digests_are_the_published_ones() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(of_bytes(b""), empty);
        assert!(is_digest(empty));
        assert!(!is_digest(&empty.to_uppercase()));
        assert!(!is_digest(&empty[1..]));
    }

    #[test]
    fn a_json_digest_does_not_depend_on_the_order_of_keys() {
        assert_eq!(
            of_json(&json!({"a": {"x": 1, "y": [1, 2]}, "b": 2})),
            of_json(&json!({"b": 2, "a": {"y": [1, 2], "x": 1}}))
        );
        assert_ne!(of_json(&json!([1, 2])), of_json(&json!([2, 1])));
    }
}
