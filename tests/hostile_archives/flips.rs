//! A good bundle with one byte changed is refused, or it is the same release.

use std::collections::BTreeMap;
use std::io::Cursor;

use agent_bridge::digest;
use agent_bridge::error::Error;
use agent_bridge::release::archive::{Archive, Contents, verify};

use crate::raw::{Zip, deflated};
use crate::support::prelude::*;
use crate::support::process::run;
use crate::support::release::tree;

/// What the gate lets through: every file by its name.
fn judge(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut archive = Archive::open(Cursor::new(bytes))?;
    let contents = Contents::of(&mut archive)?;
    verify(&mut archive, &contents, |_| Ok(()))?;
    let names: Vec<String> = archive.entries().iter().map(|entry| entry.name.clone()).collect();
    names.into_iter().enumerate().map(|(index, name)| Ok((name, archive.read(index)?))).collect()
}

fn bundle() -> Vec<u8> {
    let release = Release::new("1.0.0").file("docs/x.md", "some text, some text, some text", 0o644);
    Zip::release(&release)
        .with(|zip| {
            // One of each method.
            let text = b"some text, some text, some text";
            *zip.entry("docs/x.md") = deflated("docs/x.md", text);
        })
        .bytes()
}

#[test]
fn a_flipped_byte_is_refused_or_changes_nothing() {
    let whole = bundle();
    let original = judge(&whole).unwrap();
    let mut accepted = Vec::new();
    for at in 0..whole.len() {
        // Single bits, and all of them.
        for mask in [0x01, 0x04, 0x20, 0x80, 0xff] {
            let mut flipped = whole.clone();
            flipped[at] ^= mask;
            if let Ok(found) = judge(&flipped) {
                assert!(found == original, "byte {at} with {mask:#x} changes a file");
                accepted.push((at, mask));
            }
        }
    }
    // The program and the date that made an entry, and its rights, which come from the metadata.
    let harmless = accepted.len() as f64 / (whole.len() * 5) as f64;
    assert!(harmless < 0.03, "{} of {} flips are accepted", accepted.len(), whole.len() * 5);

    let at = ReleaseWorld::new();
    at.install(&Release::new("1.0.0").file("docs/x.md", "some text, some text, some text", 0o644));
    let expected = tree(&at.layout().releases());
    for (place, mask) in accepted.iter().step_by(accepted.len().div_ceil(4).max(1)) {
        let mut flipped = whole.clone();
        flipped[*place] ^= mask;
        let other = ReleaseWorld::new();
        let mut command = other.bridge_command(["install-release"]);
        command.arg(other.bundle_file("flipped.mcpb", &flipped));
        run(command, DEADLINE).expect_code(0);
        assert_eq!(tree(&other.layout().releases()), expected, "byte {place} with {mask:#x}");
    }
}

#[test]
fn a_cut_bundle_is_refused_wherever_it_is_cut() {
    let whole = bundle();
    for length in 0..whole.len() {
        assert!(judge(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
    }
}

#[test]
fn readers_of_others_find_the_same_files() {
    let Some(python) = crate::support::world::find_program("python3") else {
        return crate::support::real::skip("python3 is not there");
    };
    let world = World::new().build();
    let release = Release::new("1.0.0").file("docs/x.md", "some text", 0o644);
    for bytes in [bundle(), release.bundle(), release.deflated().bundle()] {
        let path = world.path().join("bundle.mcpb");
        std::fs::write(&path, &bytes).unwrap();
        let mut command = world.command(&python);
        command.arg("-c").arg(
            "import hashlib, json, sys, zipfile\n\
             z = zipfile.ZipFile(sys.argv[1])\n\
             assert z.testzip() is None\n\
             print(json.dumps({i.filename: hashlib.sha256(z.read(i)).hexdigest() for i in z.infolist()}))",
        );
        command.arg(&path);
        let theirs = run(command, DEADLINE).expect_code(0).json();
        let ours: Value = judge(&bytes)
            .unwrap()
            .iter()
            .map(|(name, bytes)| (name.clone(), digest::of_bytes(bytes)))
            .collect();
        assert_eq!(theirs, ours);
    }
}
