//! Where two bundles differ first.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};

use serde::Serialize;

use super::reader::{self, Entry};

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The entry, if it is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// What differs, in words.
    pub what: String,
    /// The first byte that differs: of the entry's content if `what` says so, else of the file. From zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte: Option<u64>,
}

/// Every entry in which `given` differs from `rebuilt`, in the order of the archive; none if the files are the same
/// byte for byte.
pub fn differences(rebuilt: &File, given: &File) -> io::Result<Vec<Difference>> {
    let at_file = first_difference(rewound(rebuilt)?, rewound(given)?)?;
    let Some(at_file) = at_file else { return Ok(Vec::new()) };
    let whole = |what: String| vec![Difference { entry: None, what, byte: Some(at_file) }];
    let own = reader::entries(rebuilt).map_err(io::Error::other)?;
    let theirs = match reader::entries(given) {
        Ok(entries) => entries,
        Err(why) => return Ok(whole(format!("it is no bundle as this program writes it: {why}"))),
    };
    let mut found = Vec::new();
    let mut note = |entry: &Entry, what: String, byte| {
        found.push(Difference { entry: Some(entry.name.clone()), what, byte });
    };
    let mut readers = (archive(rebuilt)?, archive(given)?);
    for (index, entry) in own.iter().enumerate() {
        let Some(other_index) = theirs.iter().position(|other| other.name == entry.name) else {
            note(entry, "it is missing".into(), None);
            continue;
        };
        let other = &theirs[other_index];
        let mine = readers.0.by_index(index).map_err(io::Error::other)?;
        match readers.1.by_index(other_index).map(|theirs| first_difference(mine, theirs)) {
            Ok(Ok(None)) => {
                if let Some(what) = header(entry, other) {
                    note(entry, what, None);
                }
            }
            Ok(Ok(Some(byte))) => note(entry, "its content".into(), Some(byte)),
            Ok(Err(error)) => note(entry, format!("it cannot be read: {error}"), None),
            Err(error) => note(entry, format!("it cannot be read: {error}"), None),
        }
    }
    for other in theirs.iter().filter(|other| !own.iter().any(|entry| entry.name == other.name)) {
        note(other, "it does not belong there".into(), None);
    }
    if found.is_empty() {
        let order = own.iter().map(|entry| &entry.name).ne(theirs.iter().map(|entry| &entry.name));
        found = whole(if order { "the order of its entries".into() } else { "how it is written".into() });
    }
    Ok(found)
}

fn header(own: &Entry, other: &Entry) -> Option<String> {
    if own.executable != other.executable {
        Some("its mode".into())
    } else if own.stamp != other.stamp {
        Some("its time".into())
    } else if own.method != other.method || own.compressed != other.compressed {
        Some("how it is compressed".into())
    } else {
        None
    }
}

fn rewound(mut file: &File) -> io::Result<&File> {
    file.rewind()?;
    Ok(file)
}

fn archive(file: &File) -> io::Result<zip::ZipArchive<&File>> {
    zip::ZipArchive::new(rewound(file)?).map_err(io::Error::other)
}

/// The first byte in which two streams differ, or the end of the shorter one.
fn first_difference(one: impl Read, other: impl Read) -> io::Result<Option<u64>> {
    let (mut one, mut other) =
        (BufReader::with_capacity(256 * 1024, one), BufReader::with_capacity(256 * 1024, other));
    let (mut left, mut right) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut at = 0;
    loop {
        let (first, second) = (fill(&mut one, &mut left)?, fill(&mut other, &mut right)?);
        let both = first.min(second);
        // Compared as a whole first, which is much faster than byte by byte.
        if left[..both] != right[..both]
            && let Some(byte) = left[..both].iter().zip(&right[..both]).position(|(a, b)| a != b)
        {
            return Ok(Some(at + byte as u64));
        }
        if first != second {
            return Ok(Some(at + both as u64));
        }
        if first == 0 {
            return Ok(None);
        }
        at += both as u64;
    }
}

fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match reader.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
