//! An archive may hold anything; what the gate lets through is plain, and another reader finds the same.
#![no_main]

use std::io::{Cursor, Read};

use agent_bridge::release::archive::{self, Archive, Contents};
use agent_bridge::release::metadata::check_path;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(mut ours) = Archive::open(Cursor::new(data)) else { return };
    let mut theirs = zip::ZipArchive::new(Cursor::new(data)).expect("a second reader opens it");
    assert_eq!(theirs.len(), ours.entries().len());
    for index in 0..ours.entries().len() {
        let entry = ours.entries()[index].clone();
        assert_eq!(check_path(&entry.name), Ok(()), "{:?}", entry.name);
        let Ok(content) = ours.read(index) else { continue };
        assert_eq!(content.len() as u64, entry.size);
        let mut other = Vec::new();
        let mut file = theirs.by_index(index).expect("the second reader finds it");
        assert_eq!(file.name().expect("a name that was listed"), entry.name);
        file.read_to_end(&mut other).expect("the second reader reads it");
        assert!(content == other, "{:?} differs", entry.name);
    }
    if let Ok(contents) = Contents::of(&mut ours) {
        let _ = archive::verify(&mut ours, &contents, |_| Ok(()));
    }
});
