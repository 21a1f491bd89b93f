//! SHA-256 of bytes and of files, as lower-case hexadecimal text.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

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
    let mut piece = vec![0; PIECE];
    loop {
        let count = read_some(&mut reader, &mut piece)?;
        if count == 0 {
            return Ok((hasher.finish(), length));
        }
        hasher.update(&piece[..count]);
        length += count as u64;
    }
}

/// Bytes that are read at once beside the hashing; all pieces together fit into a processor's own memory.
const PIECE: usize = 256 * 1024;
/// Pieces between reading and hashing.
const PIECES: usize = 3;

/// The same, read by a second thread: where somebody waits for it, reading takes no time of its own.
pub fn of_reader_beside(mut reader: impl io::Read + Send) -> io::Result<(String, u64)> {
    let (filled, pieces) = mpsc::sync_channel::<(Vec<u8>, usize)>(PIECES);
    let (give_back, empty) = mpsc::sync_channel::<Vec<u8>>(PIECES);
    for _ in 0..PIECES {
        let _ = give_back.send(vec![0; PIECE]);
    }
    let read = move || -> io::Result<()> {
        // Either side ends when the other one is gone.
        while let Ok(mut piece) = empty.recv() {
            let count = read_some(&mut reader, &mut piece)?;
            if count == 0 || filled.send((piece, count)).is_err() {
                break;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let reading = thread::Builder::new().name("read".into()).spawn_scoped(scope, read)?;
        let mut hasher = Hasher::default();
        let mut length = 0;
        while let Ok((piece, count)) = pieces.recv() {
            hasher.update(&piece[..count]);
            length += count as u64;
            let _ = give_back.send(piece);
        }
        drop(give_back);
        match reading.join() {
            Ok(read) => read.map(|()| (hasher.finish(), length)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn read_some(reader: &mut impl io::Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
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

    /// Gives its bytes in pieces of many sizes, with interruptions between, and may fail at the end.
    struct Pieces<'a>(&'a [u8], usize, Option<io::ErrorKind>);

    impl io::Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            match (self.0.is_empty(), self.2) {
                _ if self.1.is_multiple_of(3) => Err(io::ErrorKind::Interrupted.into()),
                (true, Some(kind)) => Err(kind.into()),
                _ => {
                    let most = (self.1 * 70_001).min(into.len());
                    self.0.read(&mut into[..most])
                }
            }
        }
    }

    #[test]
    fn a_file_read_beside_its_hashing_has_the_same_digest() {
        let bytes: Vec<u8> = (0..3_000_017_u32).map(|n| (n % 251) as u8).collect();
        for length in [0, 1, PIECE, bytes.len()] {
            let bytes = &bytes[..length];
            let found = of_reader_beside(Pieces(bytes, 0, None)).ok();
            assert_eq!(found, Some((of_bytes(bytes), length as u64)));
            assert_eq!(found, of_reader(Pieces(bytes, 0, None)).ok());
        }
        let failed = of_reader_beside(Pieces(&bytes, 0, Some(io::ErrorKind::TimedOut)));
        assert_eq!(failed.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
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
