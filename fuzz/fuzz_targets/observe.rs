//! What git prints and keeps, as a hostile repository may make it: read or refused, the same however it is cut, in bounded
//! memory, and no name loses a byte.
#![no_main]

use std::io::Write;

use agent_bridge::observe::diff::DiffReader;
use agent_bridge::observe::refs::Refs;
use agent_bridge::observe::signals::{Facts, Patterns};
use agent_bridge::observe::status::StatusReader;
use agent_bridge::observe::{index, names, paths, secrets};

/// Entries kept in this target.
const MOST: usize = 20;

fn status(pieces: &[&[u8]]) -> StatusReader {
    let mut reader = StatusReader::new(MOST);
    for piece in pieces {
        reader.write_all(piece).expect("a reader takes everything");
    }
    assert!(reader.differing.len() <= MOST && reader.untracked.len() <= MOST);
    reader
}

fn diff(pieces: &[&[u8]]) -> Vec<(Vec<u8>, bool, Option<u64>, Option<String>)> {
    let mut reader = DiffReader::new(MOST);
    for piece in pieces {
        reader.write_all(piece).expect("a reader takes everything");
    }
    reader.finish(true);
    assert!(reader.files.len() <= MOST);
    let seen = |file: &agent_bridge::observe::diff::FileDiff| {
        (file.name.clone(), file.read, file.insertions, file.ranges.text())
    };
    reader.files.iter().map(seen).collect()
}

libfuzzer_sys::fuzz_target!(|input: (u8, u16, &[u8])| {
    let (way, at, bytes) = input;
    let (one, two) = bytes.split_at(usize::from(at).min(bytes.len()));
    match way % 5 {
        0 => {
            for length in [20, 32] {
                if let Some(found) = index::read(bytes, length) {
                    assert!(found.samples.len() <= 128);
                    assert!(usize::try_from(found.entries).expect("a size") <= bytes.len());
                }
            }
        }
        1 => {
            let (whole, cut) = (status(&[bytes]), status(&[one, two]));
            assert_eq!(whole, cut);
        }
        2 => assert_eq!(diff(&[bytes]), diff(&[one, two])),
        3 => {
            let (text, escaped) = names::shown(bytes);
            assert_eq!(names::original(&text, escaped).as_deref(), Some(bytes));
            let _ = names::original(&String::from_utf8_lossy(bytes), true);
            let _ = Refs::read(bytes);
        }
        _ => {
            let class = paths::classify(one);
            let mut facts = Facts::new(one, class.role);
            facts.hunk();
            for line in two.split(|byte| *byte == b'\n') {
                facts.line(&Patterns::default(), line.first() == Some(&b'+'), line);
                let _ = secrets::looks_secret(line);
            }
            facts.finish();
        }
    }
});
