//! Bundles that would harm, or that two readers would read in two ways: each is refused by the code of its shape,
//! and nothing is written anywhere.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod flips;
mod raw;
#[path = "../support/mod.rs"]
mod support;

use raw::{Entry, Zip, deflate, deflated, stored};
use support::prelude::*;
use support::process::run;
use support::release::tree;

/// A name, the code it must be refused by, and the bytes.
type Case = (&'static str, &'static str, Vec<u8>);

fn release() -> Release {
    Release::new("1.0.0").file("docs/x.md", "some text, some text, some text", 0o644)
}

fn good() -> Zip {
    Zip::release(&release())
}

/// A good bundle and one entry more.
fn and(entry: Entry) -> Vec<u8> {
    good().with(|zip| zip.entries.push(entry.clone())).bytes()
}

/// A good bundle and an empty file of that name.
fn named(name: impl AsRef<[u8]>) -> Vec<u8> {
    and(stored(name, ""))
}

/// A good bundle with another README.md, described as if it were the pinned one.
fn instead(change: impl Fn(&mut Entry)) -> Vec<u8> {
    good().with(|zip| change(zip.entry("README.md"))).bytes()
}

/// Refuses every one of them and proves that the whole world around is as before.
fn all_are_refused(cases: Vec<Case>) {
    let at = ReleaseWorld::new();
    std::fs::create_dir(at.path().join("bundles")).unwrap();
    let mut failures = Vec::new();
    for (what, code, bytes) in cases {
        let bundle = at.bundle_file("hostile.mcpb", &bytes);
        let before = tree(at.path());
        let mut command = at.bridge_command(["install-release"]);
        command.arg(&bundle);
        let finished = run(command, DEADLINE);
        let expected = format!("error {code}: ");
        if finished.code != Some(3)
            || !finished.stderr().starts_with(&expected)
            || !finished.stdout.is_empty()
        {
            failures.push(format!("{what}: expected {code}\n{finished}"));
        }
        if tree(at.path()) != before {
            failures.push(format!("{what}: something was written\n{finished}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn the_shape_that_the_cases_start_from_is_a_good_bundle() {
    let at = ReleaseWorld::new();
    let bundle = at.bundle_file("good.mcpb", &good().bytes());
    let mut command = at.bridge_command(["install-release", "--json"]);
    command.arg(&bundle);
    assert_eq!(run(command, DEADLINE).expect_code(0).json()["status"], "installed");
    let count = [names(), kinds(), features(), structures(), streams(), contents()].map(|cases| cases.len());
    assert!(count.iter().sum::<usize>() >= 100, "only {count:?} cases");
}

#[test]
fn zip_slip() {
    all_are_refused(names());
}

fn names() -> Vec<Case> {
    let twice = stored("README.md", "A release of a test.\n");
    vec![
        ("the same name twice", "BUNDLE_NAME_TWICE", and(twice)),
        ("the same name twice, with other content", "BUNDLE_NAME_TWICE", and(stored("README.md", "other"))),
        ("a name equal but for case", "BUNDLE_NAME_CASE", named("readme.MD")),
        ("names equal but for case beyond ASCII", "BUNDLE_NAME_CASE", {
            let zip = good().with(|zip| zip.entries.push(stored("docs/stra\u{df}e", "")));
            zip.with(|zip| zip.entries.push(stored("docs/STRASSE", ""))).bytes()
        }),
        ("a long s is an s in upper case", "BUNDLE_NAME_CASE", named("doc\u{17f}/y.md")),
        ("folders equal but for case", "BUNDLE_NAME_CASE", named("SERVER/x")),
        ("a file where others have a folder", "BUNDLE_NAME_TWICE", named("server")),
        ("a file below a file", "BUNDLE_NAME_TWICE", named("README.md/x")),
        ("absolute", "BUNDLE_NAME_ABSOLUTE", named("/tmp/hostile")),
        ("a share of a network", "BUNDLE_NAME_ABSOLUTE", named("//server/share/x")),
        ("a drive", "BUNDLE_NAME_ABSOLUTE", named("C:/hostile")),
        ("a drive, relative", "BUNDLE_NAME_ABSOLUTE", named("c:hostile")),
        ("upwards", "BUNDLE_NAME_TRAVERSAL", named("../hostile")),
        ("upwards from below", "BUNDLE_NAME_TRAVERSAL", named("server/../../../hostile")),
        ("upwards alone", "BUNDLE_NAME_TRAVERSAL", named("..")),
        ("upwards at the end", "BUNDLE_NAME_TRAVERSAL", named("server/..")),
        ("upwards, back to the same place", "BUNDLE_NAME_TRAVERSAL", named("server/../server/x")),
        ("a backslash", "BUNDLE_NAME_BACKSLASH", named("server\\x")),
        ("upwards with backslashes", "BUNDLE_NAME_BACKSLASH", named("..\\..\\hostile")),
        ("a drive with backslashes", "BUNDLE_NAME_BACKSLASH", named("C:\\hostile")),
        ("a share with backslashes", "BUNDLE_NAME_BACKSLASH", named("\\\\server\\share\\x")),
        ("a verbatim path of Windows", "BUNDLE_NAME_BACKSLASH", named("\\\\?\\C:\\hostile")),
        ("a zero in the name", "BUNDLE_NAME_CONTROL", named("README.md\0.exe")),
        ("a line break in the name", "BUNDLE_NAME_CONTROL", named("a\nb")),
        ("an escape sequence in the name", "BUNDLE_NAME_CONTROL", named("a\u{1b}[31mb")),
        ("a delete in the name", "BUNDLE_NAME_CONTROL", named("a\u{7f}b")),
        ("text turned around in the name", "BUNDLE_NAME_CONTROL", named("server/\u{202e}gpj.exe")),
        ("a mark of no width in the name", "BUNDLE_NAME_CONTROL", named("server/a\u{200b}b")),
        ("a device", "BUNDLE_NAME_RESERVED", named("CON")),
        ("a device with an extension", "BUNDLE_NAME_RESERVED", named("docs/nul.txt")),
        ("a device as a folder", "BUNDLE_NAME_RESERVED", named("aux/x")),
        ("a port", "BUNDLE_NAME_RESERVED", named("COM1.log")),
        ("a port with a raised digit", "BUNDLE_NAME_RESERVED", named("LPT\u{b9}")),
        ("a console", "BUNDLE_NAME_RESERVED", named("conin$")),
        ("a dot at the end", "BUNDLE_NAME_RESERVED", named("docs/x.")),
        ("a space at the end", "BUNDLE_NAME_RESERVED", named("README.md ")),
        ("a folder with a dot at its end", "BUNDLE_NAME_RESERVED", named("server./x")),
        ("a stream beside a file", "BUNDLE_NAME_RESERVED", named("README.md:hidden")),
        ("a wildcard", "BUNDLE_NAME_RESERVED", named("docs/*")),
        ("an empty part", "BUNDLE_NAME_RESERVED", named("docs//y")),
        ("a dot as a part", "BUNDLE_NAME_RESERVED", named("./docs/y")),
        ("no name", "BUNDLE_NAME_RESERVED", named("")),
        ("a very long name", "BUNDLE_NAME_RESERVED", named("x".repeat(300))),
        ("a name that is not UTF-8", "BUNDLE_NAME_ENCODING", {
            and(stored(b"docs/\xff\xfe", "").both(|header| header.flags = 1 << 11))
        }),
        ("a name in an old code page", "BUNDLE_NAME_ENCODING", {
            and(stored(b"docs/\x81", "").both(|header| header.flags = 0))
        }),
        ("a UTF-8 name that does not say so", "BUNDLE_NAME_ENCODING", {
            and(stored("docs/ü", "").both(|header| header.flags = 0))
        }),
        ("a config beside the program", "BUNDLE_CONFIG_INSIDE", and(stored("server/config.json", "{}"))),
        ("the same in another case", "BUNDLE_CONFIG_INSIDE", and(stored("Server/Config.JSON", "{}"))),
    ]
}

#[test]
fn links_devices_and_folders_are_no_files() {
    all_are_refused(kinds());
}

fn kinds() -> Vec<Case> {
    let kind = |mode| and(stored("docs/y", "/etc/passwd").mode(mode));
    vec![
        ("a link", "BUNDLE_NOT_A_FILE", kind(0o120_777)),
        ("a link and a file through it", "BUNDLE_NOT_A_FILE", {
            let zip = good().with(|zip| zip.entries.push(stored("way", "/tmp").mode(0o120_777)));
            zip.with(|zip| zip.entries.push(stored("way/hostile", "x"))).bytes()
        }),
        ("the program as a link", "BUNDLE_NOT_A_FILE", {
            good().with(|zip| zip.entry("server/agent-bridge").external = 0o120_777 << 16).bytes()
        }),
        ("a pipe", "BUNDLE_NOT_A_FILE", kind(0o010_644)),
        ("a character device", "BUNDLE_NOT_A_FILE", kind(0o020_644)),
        ("a block device", "BUNDLE_NOT_A_FILE", kind(0o060_644)),
        ("a socket", "BUNDLE_NOT_A_FILE", kind(0o140_644)),
        ("rights of another user", "BUNDLE_NOT_A_FILE", kind(0o104_755)),
        ("rights of another group", "BUNDLE_NOT_A_FILE", kind(0o102_755)),
        (
            "the label of a volume",
            "BUNDLE_NOT_A_FILE",
            and(stored("LABEL", "").with(|entry| entry.external = 8)),
        ),
        ("a folder", "BUNDLE_FOLDER_ENTRY", and(stored("server/", "").mode(0o040_755))),
        ("a folder with content", "BUNDLE_FOLDER_ENTRY", and(stored("server/", "x").mode(0o100_644))),
        ("a folder without a slash", "BUNDLE_FOLDER_ENTRY", kind(0o040_755)),
        ("a folder by its attribute", "BUNDLE_FOLDER_ENTRY", {
            and(stored("docs/y", "x").with(|entry| entry.external = 0x10))
        }),
    ]
}

#[test]
fn what_not_every_reader_supports_is_refused() {
    all_are_refused(features());
}

fn features() -> Vec<Case> {
    let flag =
        |bit: u16| instead(move |entry| *entry = entry.clone().both(|header| header.flags |= 1 << bit));
    let local_flag = |bit: u16| instead(move |entry| entry.local.flags |= 1 << bit);
    let method = |number| instead(move |entry| *entry = entry.clone().both(|header| header.method = number));
    let extra = |bytes: &'static [u8]| instead(move |entry| entry.central.extra = bytes.to_vec());
    vec![
        ("encrypted", "BUNDLE_ENCRYPTED", flag(0)),
        ("strongly encrypted", "BUNDLE_ENCRYPTED", flag(6)),
        ("with a masked directory", "BUNDLE_ENCRYPTED", flag(13)),
        ("encrypted for a streaming reader only", "BUNDLE_ENCRYPTED", local_flag(0)),
        ("patched data", "BUNDLE_METHOD", flag(5)),
        ("enhanced deflating", "BUNDLE_METHOD", flag(4)),
        ("a flag that means nothing yet", "BUNDLE_METHOD", flag(15)),
        ("imploded", "BUNDLE_METHOD", method(6)),
        ("deflate64", "BUNDLE_METHOD", method(9)),
        ("bzip2", "BUNDLE_METHOD", method(12)),
        ("zstd", "BUNDLE_METHOD", method(93)),
        ("AES", "BUNDLE_METHOD", method(99)),
        ("a reader of the future", "BUNDLE_METHOD", {
            instead(|entry| *entry = entry.clone().both(|header| header.needed = 40))
        }),
        ("sizes behind the file", "BUNDLE_DATA_DESCRIPTOR", flag(3)),
        ("sizes behind the file, for a streaming reader only", "BUNDLE_DATA_DESCRIPTOR", local_flag(3)),
        ("sizes behind the file that lie", "BUNDLE_DATA_DESCRIPTOR", {
            instead(|entry| {
                *entry = entry.clone().both(|header| header.flags |= 8);
                (entry.local.crc32, entry.local.compressed, entry.local.size) = (0, 0, 0);
                entry.after = [&b"PK\x07\x08"[..], &[0xff; 12]].concat();
            })
        }),
        ("another name in an extra field", "BUNDLE_EXTRA_FIELD", extra(b"up\x0a\0\x01\0\0\0\0../x\0")),
        ("times in an extra field", "BUNDLE_EXTRA_FIELD", extra(b"UT\x05\0\x03\0\0\0\0")),
        ("half an extra field", "BUNDLE_EXTRA_FIELD", extra(b"u")),
        ("an extra field for a streaming reader only", "BUNDLE_EXTRA_FIELD", {
            instead(|entry| entry.local.extra = b"up\x04\0evil".to_vec())
        }),
        ("sizes of zip64 in an extra field", "BUNDLE_ZIP64", extra(b"\x01\0\x08\0\0\0\0\0\0\0\0\0")),
        ("a size that points to zip64", "BUNDLE_ZIP64", instead(|entry| entry.central.size = u32::MAX)),
        ("a place that points to zip64", "BUNDLE_ZIP64", instead(|entry| entry.offset = Some(u32::MAX))),
        ("a reader of zip64", "BUNDLE_ZIP64", {
            instead(|entry| *entry = entry.clone().both(|header| header.needed = 45))
        }),
        ("a comment of an entry", "BUNDLE_COMMENT", instead(|entry| entry.comment = b"hello".to_vec())),
        ("an entry on another disk", "BUNDLE_MULTI_DISK", instead(|entry| entry.disk = 1)),
    ]
}

#[test]
fn every_byte_has_one_meaning() {
    all_are_refused(structures());
}

fn structures() -> Vec<Case> {
    let hidden = stored("server/hidden", "hidden");
    let hidden_bytes = {
        let zip = Zip::of(vec![hidden]).bytes();
        let directory = zip.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
        zip[..directory].to_vec()
    };
    let with = |change: &dyn Fn(&mut Zip)| good().with(change).bytes();
    let whole = good().bytes();
    vec![
        ("nothing", "BUNDLE_NOT_AN_ARCHIVE", Vec::new()),
        ("some text", "BUNDLE_NOT_AN_ARCHIVE", b"hello, hello, hello, hello, hello".to_vec()),
        ("another kind of archive", "BUNDLE_NOT_AN_ARCHIVE", vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0]),
        ("cut off by a byte", "BUNDLE_TRUNCATED", whole[..whole.len() - 1].to_vec()),
        ("cut off in the middle", "BUNDLE_TRUNCATED", whole[..whole.len() / 2].to_vec()),
        ("a byte more", "BUNDLE_TRAILING_BYTES", with(&|zip| zip.suffix = vec![0])),
        ("a signature of another tool", "BUNDLE_TRAILING_BYTES", {
            with(&|zip| zip.suffix = b"MCPB_SIG_V1\x04\0\0\0abcdMCPB_SIG_END".to_vec())
        }),
        ("another archive behind it", "BUNDLE_GAP", {
            // The last end record is a good one, and its offsets are those of the front of the first archive.
            let mut both = whole.clone();
            both.extend(Zip::of(vec![stored("README.md", "other")]).bytes());
            let second = Zip::of(vec![stored("README.md", "other")]).bytes();
            let directory = second.len() - 22 - 55;
            let offset = (whole.len() + directory) as u32;
            let at = both.len() - 6;
            both[at..at + 4].copy_from_slice(&offset.to_le_bytes());
            both
        }),
        ("a comment", "BUNDLE_COMMENT", with(&|zip| zip.comment = b"hello".to_vec())),
        ("another archive in the comment", "BUNDLE_PREFIX_BYTES", {
            let inner =
                good().with(|zip| zip.entry("README.md").data = b"B release of a test.\n".to_vec()).bytes();
            with(&|zip| zip.comment.clone_from(&inner))
        }),
        ("bytes before it", "BUNDLE_PREFIX_BYTES", {
            with(&|zip| (zip.prefix, zip.counts_prefix) = (b"#!/bin/sh\n".to_vec(), false))
        }),
        ("bytes before it that are counted", "BUNDLE_PREFIX_BYTES", {
            with(&|zip| zip.prefix = b"MZ, a program that unpacks itself".to_vec())
        }),
        ("an archive of nothing behind bytes", "BUNDLE_PREFIX_BYTES", {
            Zip::of(Vec::new()).with(|zip| zip.prefix = b"hello".to_vec()).bytes()
        }),
        ("a file that the directory does not name", "BUNDLE_GAP", {
            with(&|zip| zip.entries[1].before.clone_from(&hidden_bytes))
        }),
        ("a file behind all that are named", "BUNDLE_GAP", {
            with(&|zip| zip.before_directory.clone_from(&hidden_bytes))
        }),
        ("bytes behind a file", "BUNDLE_GAP", with(&|zip| zip.entries[0].after = vec![0; 16])),
        ("bytes behind the directory", "BUNDLE_GAP", with(&|zip| zip.before_end = vec![0; 9])),
        ("two entries with one content", "BUNDLE_OVERLAP", {
            with(&|zip| {
                let mut copy = zip.entries[0].clone();
                copy.central.name = b"docs/copy".to_vec();
                copy.offset = Some(0);
                (copy.local.name, copy.data) = (Vec::new(), Vec::new());
                zip.entries.push(copy);
            })
        }),
        ("an entry inside another", "BUNDLE_OVERLAP", with(&|zip| zip.entries[1].offset = Some(40))),
        ("an entry that reaches into the directory", "BUNDLE_OVERLAP", {
            with(&|zip| {
                let last = zip.entries.last_mut().unwrap();
                (last.central.compressed, last.central.size) = (last.central.size + 9, last.central.size + 9);
            })
        }),
        ("two names", "BUNDLE_HEADERS_DIFFER", instead(|entry| entry.local.name = b"README.MD".to_vec())),
        ("two sizes", "BUNDLE_HEADERS_DIFFER", instead(|entry| entry.local.size += 1)),
        ("two sizes in the archive", "BUNDLE_HEADERS_DIFFER", instead(|entry| entry.local.compressed = 0)),
        ("two checksums", "BUNDLE_HEADERS_DIFFER", instead(|entry| entry.local.crc32 ^= 1)),
        ("two methods", "BUNDLE_HEADERS_DIFFER", instead(|entry| entry.local.method = 8)),
        ("two times", "BUNDLE_HEADERS_DIFFER", instead(|entry| entry.local.time += 1)),
        ("two flags", "BUNDLE_HEADERS_DIFFER", instead(|entry| entry.local.flags |= 1 << 11)),
        ("no local header", "BUNDLE_HEADERS_DIFFER", instead(|entry| entry.local.signature = *b"PK\x03\x05")),
        ("an entry less than the end record says", "BUNDLE_DIRECTORY_INVALID", {
            with(&|zip| (zip.more_entries, zip.more_entries_here) = (1, 1))
        }),
        ("an entry more than the end record says", "BUNDLE_DIRECTORY_INVALID", {
            with(&|zip| (zip.more_entries, zip.more_entries_here) = (-1, -1))
        }),
        ("a directory beyond the end", "BUNDLE_DIRECTORY_INVALID", with(&|zip| zip.more_offset = 100)),
        ("a directory that is too short", "BUNDLE_DIRECTORY_INVALID", {
            with(&|zip| (zip.more_bytes, zip.more_offset) = (-46, 46))
        }),
        ("entries here and in all differ", "BUNDLE_MULTI_DISK", with(&|zip| zip.more_entries = 1)),
        ("a second disk", "BUNDLE_MULTI_DISK", with(&|zip| zip.disk = 1)),
        ("a directory on a second disk", "BUNDLE_MULTI_DISK", with(&|zip| zip.first_disk = 1)),
        ("an end record of zip64", "BUNDLE_ZIP64", with(&|zip| zip.disk = u16::MAX)),
        ("a directory in zip64", "BUNDLE_ZIP64", {
            good()
                .with(|zip| {
                    let count = zip.entries.len() as i32;
                    (zip.more_entries, zip.more_entries_here) = (0xffff - count, 0xffff - count);
                })
                .bytes()
        }),
        ("a pointer to zip64 that the end record does not need", "BUNDLE_ZIP64", {
            with(&|zip| zip.before_end = [&b"PK\x06\x07"[..], &[0; 16]].concat())
        }),
        ("more entries than any bundle has", "BUNDLE_TOO_MANY_FILES", {
            let many = (0..1025).map(|number| stored(format!("docs/{number}"), "")).collect();
            Zip::of(many).bytes()
        }),
        ("no entries", "BUNDLE_METADATA_MISSING", Zip::of(Vec::new()).bytes()),
    ]
}

#[test]
fn sizes_and_streams_cannot_lie() {
    all_are_refused(streams());
}

fn streams() -> Vec<Case> {
    let text = b"A release of a test.\n";
    let claims = |size: u32, compressed: u32| {
        move |entry: &mut Entry| {
            *entry = entry.clone().both(|header| {
                (header.size, header.compressed, header.method) = (size, compressed, 8);
            });
        }
    };
    let as_readme = |data: Vec<u8>| {
        instead(move |entry| {
            let size = entry.central.size;
            *entry = deflated("README.md", text);
            entry.data.clone_from(&data);
            let compressed = data.len() as u32;
            *entry = entry.clone().both(|header| (header.compressed, header.size) = (compressed, size));
        })
    };
    let zeros = vec![0; 20 * 1024 * 1024];
    let stream = deflate(text);
    vec![
        ("a file larger than any", "BUNDLE_TOO_LARGE", instead(claims(3_000_000_000, 100_000_000))),
        ("files that are too large together", "BUNDLE_TOO_LARGE", {
            good()
                .with(|zip| {
                    for entry in zip.entries.iter_mut().take(3) {
                        claims(2_000_000_000, 100_000_000)(entry);
                    }
                })
                .bytes()
        }),
        ("a claim of a bomb", "BUNDLE_BOMB", instead(claims(2_000_000_000, 2_000_000))),
        ("a bomb", "BUNDLE_BOMB", and(deflated("docs/zeros", &zeros))),
        ("a pinned bomb", "BUNDLE_BOMB", {
            let release = Release::new("1.0.0").file("docs/zeros", &zeros, 0o644);
            Zip::release(&release)
                .with(|zip| *zip.entry("docs/zeros") = deflated("docs/zeros", &zeros))
                .bytes()
        }),
        ("a stored file of two sizes", "BUNDLE_SIZE_LIES", {
            instead(|entry| *entry = entry.clone().both(|header| header.size += 1))
        }),
        (
            "more than it says",
            "BUNDLE_SIZE_LIES",
            as_readme(deflate(b"A release of a test.\nand more, and more")),
        ),
        ("far more than it says", "BUNDLE_SIZE_LIES", as_readme(deflate(&zeros))),
        ("less than it says", "BUNDLE_SIZE_LIES", as_readme(deflate(b"A"))),
        ("nothing instead of a file", "BUNDLE_SIZE_LIES", as_readme(deflate(b""))),
        ("a stream that is none", "BUNDLE_STREAM_INVALID", as_readme(vec![0xff; 30])),
        ("an empty stream", "BUNDLE_STREAM_INVALID", as_readme(Vec::new())),
        ("a stream that is cut off", "BUNDLE_STREAM_INVALID", as_readme(stream[..stream.len() - 1].to_vec())),
        ("bytes behind the stream", "BUNDLE_STREAM_INVALID", as_readme([&stream[..], b"hidden"].concat())),
        (
            "a second stream behind the first",
            "BUNDLE_STREAM_INVALID",
            as_readme([&stream[..], &stream].concat()),
        ),
        ("another checksum", "BUNDLE_CHECKSUM", {
            instead(|entry| *entry = entry.clone().both(|header| header.crc32 ^= 1))
        }),
        ("other content with its own size", "BUNDLE_CHECKSUM", {
            instead(|entry| entry.data = b"B release of a test.\n".to_vec())
        }),
    ]
}

#[test]
fn a_bundle_is_exactly_what_its_metadata_pin() {
    all_are_refused(contents());
}

fn contents() -> Vec<Case> {
    let metadata = |change: fn(&mut Value)| Zip::release(&release().metadata(change)).bytes();
    let manifest = |change: fn(&mut Value)| Zip::release(&release().manifest(change)).bytes();
    let replaced = |name: &'static str, content: Vec<u8>| {
        good().with(|zip| *zip.entry(name) = stored(name, &content)).bytes()
    };
    let pinned = |name: &'static str, text: &'static str| {
        let release = release().metadata(move |metadata| {
            let record = &mut metadata["files"][name];
            record["sha256"] = json!(agent_bridge::digest::of_bytes(text.as_bytes()));
            record["bytes"] = json!(text.len());
            if name == "manifest.json" {
                metadata["manifestSha256"] = metadata["files"][name]["sha256"].clone();
            }
        });
        Zip::release(&release).with(|zip| *zip.entry(name) = stored(name, text)).bytes()
    };
    let own = release().payload().pop().unwrap().bytes;
    let twice =
        String::from_utf8(own).unwrap().replacen("\"version\"", "\"version\": \"9.9.9\", \"version\"", 1);
    vec![
        ("no metadata", "BUNDLE_METADATA_MISSING", {
            good().with(|zip| zip.entries.retain(|e| e.central.name != b"release-metadata.json")).bytes()
        }),
        (
            "metadata that are no JSON",
            "RELEASE_METADATA_INVALID",
            replaced("release-metadata.json", b"{".into()),
        ),
        ("metadata without end", "BUNDLE_FILE_DIFFERS", {
            replaced("release-metadata.json", vec![b' '; 1024 * 1024 + 1])
        }),
        ("deep metadata", "RELEASE_METADATA_INVALID", replaced("release-metadata.json", vec![b'['; 500_000])),
        ("a key twice in the metadata", "RELEASE_METADATA_INVALID", {
            replaced("release-metadata.json", twice.into_bytes())
        }),
        ("another schema", "RELEASE_METADATA_INVALID", metadata(|m| m["schemaVersion"] = json!(2))),
        ("a key that nobody knows", "RELEASE_METADATA_INVALID", metadata(|m| m["postinstall"] = json!("rm"))),
        ("another package", "RELEASE_METADATA_INVALID", metadata(|m| m["package"] = json!("other"))),
        ("a version that leads elsewhere", "RELEASE_METADATA_INVALID", {
            metadata(|m| m["version"] = json!("../../1.0.0"))
        }),
        ("a revision that leads elsewhere", "RELEASE_METADATA_INVALID", {
            metadata(|m| m["gitSha"] = json!("../../../../../../../../../../../../../x"))
        }),
        ("another program", "RELEASE_METADATA_INVALID", metadata(|m| m["runtime"] = json!("README.md"))),
        ("a program that is none", "RELEASE_METADATA_INVALID", {
            metadata(|m| m["files"]["server/agent-bridge"]["mode"] = json!("0644"))
        }),
        ("rights for everybody", "RELEASE_METADATA_INVALID", {
            metadata(|m| m["files"]["README.md"]["mode"] = json!("0777"))
        }),
        ("rights of another user", "RELEASE_METADATA_INVALID", {
            metadata(|m| m["files"]["README.md"]["mode"] = json!("4755"))
        }),
        ("a hash in upper case", "RELEASE_METADATA_INVALID", {
            metadata(|m| m["files"]["README.md"]["sha256"] = json!("A".repeat(64)))
        }),
        ("a size that is no number", "RELEASE_METADATA_INVALID", {
            metadata(|m| m["files"]["README.md"]["bytes"] = json!(-1))
        }),
        ("a pinned path that leads upwards", "RELEASE_METADATA_INVALID", {
            metadata(|m| m["files"]["../x"] = m["files"]["README.md"].clone())
        }),
        ("a pinned config", "RELEASE_METADATA_INVALID", {
            metadata(|m| m["files"]["server/config.json"] = m["files"]["README.md"].clone())
        }),
        ("metadata that pin themselves", "RELEASE_METADATA_INVALID", {
            metadata(|m| m["files"]["release-metadata.json"] = m["files"]["README.md"].clone())
        }),
        ("a file that is not pinned", "BUNDLE_FILE_UNLISTED", and(stored("docs/more", "x"))),
        ("a pinned file that is not there", "BUNDLE_FILE_MISSING", {
            good().with(|zip| zip.entries.retain(|entry| entry.central.name != b"docs/x.md")).bytes()
        }),
        ("a pinned file under another name", "BUNDLE_FILE_UNLISTED", {
            good().with(|zip| *zip.entry("docs/x.md") = stored("docs/y.md", "x")).bytes()
        }),
        ("another hash", "BUNDLE_FILE_DIFFERS", {
            metadata(|m| m["files"]["README.md"]["sha256"] = json!("0".repeat(64)))
        }),
        ("another size", "BUNDLE_FILE_DIFFERS", metadata(|m| m["files"]["README.md"]["bytes"] = json!(5))),
        ("another program under the same pin", "BUNDLE_FILE_DIFFERS", {
            let other =
                Release::script("1.0.0", "#!/bin/sh\necho AGENT-BRIDGE 1.0.0\n").payload().remove(1).bytes;
            replaced("server/agent-bridge", other)
        }),
        ("another manifest under the same pin", "BUNDLE_FILE_DIFFERS", {
            let same_size = |bytes: &[u8]| bytes.iter().map(u8::to_ascii_uppercase).collect();
            replaced("manifest.json", same_size(&release().payload().remove(0).bytes))
        }),
        ("a manifest that is no JSON", "BUNDLE_IDENTITY_MISMATCH", pinned("manifest.json", "no JSON")),
        ("a manifest with a key twice", "BUNDLE_IDENTITY_MISMATCH", {
            pinned("manifest.json", "{\"name\":\"agent-bridge\",\"name\":\"agent-bridge\"}")
        }),
        ("a manifest of another name", "BUNDLE_IDENTITY_MISMATCH", manifest(|m| m["name"] = json!("other"))),
        (
            "a manifest of another version",
            "BUNDLE_IDENTITY_MISMATCH",
            manifest(|m| m["version"] = json!("1.0.1")),
        ),
        ("a manifest of another entry point", "BUNDLE_IDENTITY_MISMATCH", {
            manifest(|m| m["server"]["entry_point"] = json!("server/other"))
        }),
        ("a manifest of another kind of server", "BUNDLE_IDENTITY_MISMATCH", {
            manifest(|m| m["server"]["type"] = json!("node"))
        }),
        ("a manifest of another revision", "BUNDLE_IDENTITY_MISMATCH", {
            manifest(|m| m["_meta"]["io.github.agent-bridge.release"]["git_sha"] = json!("0".repeat(40)))
        }),
        ("a manifest of another program", "BUNDLE_IDENTITY_MISMATCH", {
            manifest(|m| {
                m["_meta"]["io.github.agent-bridge.release"]["runtime_sha256"] = json!("0".repeat(64))
            })
        }),
        ("a manifest without an identity", "BUNDLE_IDENTITY_MISMATCH", {
            manifest(|m| drop(m.as_object_mut().unwrap().remove("_meta")))
        }),
    ]
}
