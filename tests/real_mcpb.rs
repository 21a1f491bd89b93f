//! Bundles in the hands of others: the official MCPB command, and three readers of archives of different strictness.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use agent_bridge::digest;
use agent_bridge::release::metadata::Metadata;
use support::bundle::{Project, files_below};
use support::prelude::*;
use support::world::find_program;

/// Name, size and SHA-256 of each entry, in the order in which a reader gives them.
type Listing = Vec<(String, u64, String)>;

fn listing(document: &Value) -> Listing {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let entries = document.as_array().expect("a list of entries");
    entries.iter().map(|entry| (text(&entry[0]), entry[1].as_u64().unwrap(), text(&entry[2]))).collect()
}

fn by_the_zip_crate(bundle: &Path) -> Listing {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(bundle).unwrap()).unwrap();
    (0..archive.len())
        .map(|index| {
            let mut entry = archive.by_index(index).unwrap();
            let (name, size) = (entry.name().unwrap().into_owned(), entry.size());
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (name, size, digest::of_bytes(&bytes))
        })
        .collect()
}

const PYTHON: &str = r#"
import hashlib, json, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None and archive.comment == b""
print(json.dumps([[i.filename, i.file_size, hashlib.sha256(archive.read(i)).hexdigest()] for i in archive.infolist()]))
"#;

const YAUZL: &str = r#"
import yauzl from "yauzl";
import { createHash } from "node:crypto";
yauzl.open(process.argv[2], { lazyEntries: true, strictFileNames: true, validateEntrySizes: true }, (error, zip) => {
  if (error) throw error;
  const found = [];
  zip.on("error", (error) => { throw error; });
  zip.on("end", () => console.log(JSON.stringify(found)));
  zip.on("entry", (entry) => zip.openReadStream(entry, (error, stream) => {
    if (error) throw error;
    const hash = createHash("sha256");
    stream.on("data", (piece) => hash.update(piece));
    stream.on("end", () => { found.push([entry.fileName, entry.uncompressedSize, hash.digest("hex")]); zip.readEntry(); });
  }));
  zip.readEntry();
});
"#;

#[test]
fn four_readers_see_the_same_in_a_bundle() {
    let project = Project::new();
    for how in [&[][..], &["--store"]] {
        // The strict parser of the packer itself has passed it, or there were none.
        let document = project.package(how.iter().copied()).expect_code(0).json();
        let bundle = Path::new(document["bundle"].as_str().unwrap());
        let wanted = by_the_zip_crate(bundle);
        let pinned: BTreeMap<&str, (u64, &str)> = document["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| {
                (e["path"].as_str().unwrap(), (e["bytes"].as_u64().unwrap(), e["sha256"].as_str().unwrap()))
            })
            .collect();
        for (name, size, sha256) in wanted.iter().filter(|entry| entry.0 != "release-metadata.json") {
            assert_eq!(pinned[name.as_str()], (*size, sha256.as_str()), "{name}");
        }
        assert_eq!(wanted.len(), pinned.len() + 1);
        match find_program("python3") {
            None => real::skip("there is no python3"),
            Some(python) => {
                let mut command = project.world.command(python);
                command.args(["-c", PYTHON]).arg(bundle);
                let finished = process::run(command, DEADLINE).expect_code(0);
                assert_eq!(listing(&finished.json()), wanted, "Python's zipfile");
            }
        }
        if let Some(mut command) = real::node_script(&project.world, "yauzl", YAUZL) {
            command.arg(bundle);
            let finished = process::run(command, DEADLINE).expect_code(0);
            assert_eq!(listing(&finished.json()), wanted, "yauzl");
        }
        for path in files_below(&project.dist()) {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn the_official_command_validates_unpacks_and_describes_a_bundle() {
    let Some(mcpb) = real::require("node_modules/.bin/mcpb") else { return };
    for os in ["linux", "macos", "windows"] {
        let project = Project::new();
        project.write_binary(&project.identity(os), b"");
        let bundle = project.bundle([]);
        let run = |arguments: &[&Path]| {
            let mut command = project.world.command(&mcpb);
            command.args(arguments);
            process::run(command, DEADLINE).expect_code(0)
        };
        let info = run(&[Path::new("info"), &bundle]);
        let name = bundle.file_name().unwrap().to_string_lossy().into_owned();
        assert!(info.stdout().contains(&name), "{info}");
        assert!(info.stdout().to_lowercase().contains("not signed"), "{info}");

        let folder = project.world.path().join("unpacked");
        run(&[Path::new("unpack"), &bundle, &folder]);
        let valid = run(&[Path::new("validate"), &folder]);
        assert!(valid.stdout().contains("validation passes"), "{valid}");
        let metadata =
            Metadata::parse(&std::fs::read(folder.join("release-metadata.json")).unwrap()).unwrap();
        assert_eq!(files_below(&folder).len(), metadata.files.len() + 1);
        for (path, record) in &metadata.files {
            let unpacked = folder.join(path);
            assert_eq!(digest::of_file(&unpacked).unwrap(), (record.sha256.clone(), record.bytes), "{path}");
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                let mode = std::fs::metadata(&unpacked).unwrap().permissions().mode() & 0o100;
                assert_eq!(mode != 0, record.is_executable(), "{path}");
            }
        }
    }
}

#[test]
fn a_manifest_keeps_to_the_published_schema() {
    let Some(_) = real::require("node_modules/@anthropic-ai/mcpb/package.json") else { return };
    let project = Project::new();
    let bundle = project.bundle([]);
    let schema =
        real::folder().join("node_modules/@anthropic-ai/mcpb/schemas/mcpb-manifest-v0.3.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let mut archive = zip::ZipArchive::new(std::fs::File::open(&bundle).unwrap()).unwrap();
    let mut text = String::new();
    archive.by_index(0).unwrap().read_to_string(&mut text).unwrap();
    let manifest: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(manifest["manifest_version"], "0.3");
    // The keys at the top are what hosts are strict about.
    let known = schema["properties"].as_object().expect("properties of the schema");
    for key in manifest.as_object().unwrap().keys() {
        assert!(known.contains_key(key), "{key} is not in the schema");
    }
    for key in schema["required"].as_array().expect("required keys of the schema") {
        assert!(manifest.get(key.as_str().unwrap()).is_some(), "{key} is missing");
    }
}
