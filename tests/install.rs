//! `install-release`: from a bundle to a read-only release, or nothing at all.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::{Path, PathBuf};

use agent_bridge::digest;
use agent_bridge::platform;
use agent_bridge::release::install::Receipt;
use agent_bridge::release::layout::ReleaseId;
use agent_bridge::release::verify;
use support::prelude::*;
use support::process::{Finished, run};
use support::release::{set_mode, tree};
use support::world::{BRIDGE, find_program, write};

/// Runs `install-release SOURCE ARGUMENTS…`.
#[track_caller]
fn install(at: &ReleaseWorld, source: &Path, arguments: &[&str]) -> Finished {
    let mut command = at.bridge_command(["install-release"]);
    command.arg(source).args(arguments);
    run(command, DEADLINE)
}

/// A complaint: a code, what happened, the next step; nothing where results go.
#[track_caller]
fn refused(finished: &Finished, exit: i32, code: &str) -> String {
    assert_eq!(finished.code, Some(exit), "{finished}");
    assert!(finished.stdout.is_empty(), "a command that fails has no result: {finished}");
    let text = finished.stderr();
    assert!(text.starts_with(&format!("error {code}: ")), "{finished}");
    assert!(text.lines().nth(1).unwrap_or_default().starts_with("  next: "), "{finished}");
    text
}

fn id(text: &str) -> ReleaseId {
    ReleaseId::parse(text).unwrap()
}

/// The files of a release by name, with their rights.
fn modes(at: &ReleaseWorld, release: &str) -> Vec<(String, u32)> {
    let folder = at.layout().releases().join(release);
    tree(&folder)
        .keys()
        .map(|name| (name.clone(), platform::mode_of(&folder.join(name)).unwrap_or_default()))
        .collect()
}

#[test]
fn a_bundle_becomes_a_read_only_release_with_a_receipt_beside_it() {
    let at = ReleaseWorld::new();
    let release = Release::of_bridge("1.0.0").file("docs/a b.md", "text", 0o644);
    let bundle = at.bundle(&release);
    let sha256 = digest::of_bytes(&release.bundle());
    let upper = sha256.to_uppercase();
    let done =
        install(&at, &bundle, &["--json", "--expect-sha256", &upper, "--reason", "a test"]).expect_code(0);
    let report = done.json();
    assert_eq!(report["schema"], "agent-bridge/install/1");
    assert_eq!(report["status"], "installed");
    assert_eq!(report["changed"], true);
    assert_eq!(report["releaseId"], release.id());
    assert_eq!(report["bundleSha256"], sha256);
    assert_eq!(report["source"], "bundle");
    let layout = at.layout();
    let folder = layout.release(&id(&release.id()));
    assert_eq!(report["releasePath"], folder.to_str().unwrap());

    let found = verify::release(&layout, &id(&release.id())).unwrap();
    for file in release.payload() {
        assert_eq!(std::fs::read(folder.join(&file.name)).unwrap(), file.bytes, "{}", file.name);
    }
    let receipt = Receipt::read(&layout, &id(&release.id())).unwrap();
    assert_eq!(receipt.bundle_sha256.as_deref(), Some(sha256.as_str()));
    assert_eq!(receipt.metadata_sha256, found.metadata_sha256);
    assert_eq!(receipt.manifest_sha256, found.metadata.manifest_sha256);
    assert_eq!(receipt.installed_by.sha256, digest::of_file(Path::new(BRIDGE)).unwrap().0);
    assert!(
        !folder.join("receipt.json").exists() && tree(&folder).keys().all(|name| !name.contains("receipt"))
    );
    if cfg!(unix) {
        let expected = [
            ("README.md", 0o444),
            ("docs", 0o555),
            ("docs/a b.md", 0o444),
            ("manifest.json", 0o444),
            ("release-metadata.json", 0o444),
            ("server", 0o555),
            ("server/agent-bridge", 0o555),
        ];
        let expected: Vec<_> = expected.map(|(name, mode)| (name.to_owned(), mode)).into();
        assert_eq!(modes(&at, &release.id()), expected);
        assert_eq!(platform::mode_of(&folder), Some(0o555));
    }
    // What was installed runs.
    let mut command = at.command(folder.join(Release::runtime_path()));
    command.arg("--version");
    assert!(run(command, DEADLINE).expect_code(0).stdout().starts_with("agent-bridge "));
}

#[test]
fn an_install_changes_nothing_that_runs() {
    let at = ReleaseWorld::new();
    let first = at.place(&Release::new("1.0.0"));
    at.make_current(&first);
    std::fs::write(at.layout().config(), "{}").unwrap();
    let before = at.lasting_tree();
    let second = at.install(&Release::new("1.1.0"));
    let mut after = at.lasting_tree();
    after.retain(|path, _| !path.contains(&second));
    assert_eq!(after, before);
    assert_eq!(at.current().release_id.as_str(), first);
}

#[test]
fn the_same_release_again_changes_nothing() {
    let at = ReleaseWorld::new();
    let release = Release::new("1.0.0");
    at.install(&release);
    let before = at.tree();
    for source in
        [at.bundle(&release), at.bundle_file("deflated.mcpb", &Release::new("1.0.0").deflated().bundle())]
    {
        let again = install(&at, &source, &["--json"]).expect_code(0).json();
        assert_eq!((&again["status"], &again["changed"]), (&json!("already-installed"), &json!(false)));
    }
    assert_eq!(at.tree(), before, "not even a transaction");
}

#[test]
fn a_dry_run_judges_everything_and_writes_nothing() {
    let at = ReleaseWorld::new();
    let release = Release::new("1.0.0");
    let before = at.tree();
    let report = at.try_install(&release, &["--dry-run", "--json"]).expect_code(0).json();
    assert_eq!((&report["status"], &report["changed"]), (&json!("would-install"), &json!(false)));
    let broken =
        Release::new("1.0.1").metadata(|m| m["files"]["README.md"]["sha256"] = json!("0".repeat(64)));
    refused(&at.try_install(&broken, &["--dry-run"]), 3, "BUNDLE_FILE_DIFFERS");
    assert_eq!(at.tree(), before);
    at.install(&release);
    let before = at.tree();
    let report = at.try_install(&release, &["--dry-run", "--json"]).expect_code(0).json();
    assert_eq!(report["status"], "already-installed");
    at.damage(&release.id(), "README.md", "x");
    refused(&at.try_install(&release, &["--dry-run"]), 3, "RELEASE_DAMAGED");
    let report = at.try_install(&release, &["--dry-run", "--repair", "--json"]).expect_code(0).json();
    assert_eq!(report["status"], "would-repair");
    let changed: Vec<_> =
        at.tree().into_iter().filter(|(path, what)| before.get(path) != Some(what)).collect();
    assert_eq!(changed.len(), 1, "only what the test changed itself: {changed:?}");
}

#[test]
fn the_expected_hash_comes_before_everything_else() {
    let at = ReleaseWorld::new();
    let before = at.tree();
    let garbage = at.bundle_file("garbage.mcpb", b"this is no archive");
    let text =
        refused(&install(&at, &garbage, &["--expect-sha256", &"0".repeat(64)]), 3, "BUNDLE_HASH_MISMATCH");
    assert!(text.contains(&digest::of_bytes(b"this is no archive")), "{text}");
    refused(&install(&at, &garbage, &["--expect-sha256", "12"]), 64, "BUNDLE_HASH_INVALID");
    let right = digest::of_bytes(b"this is no archive");
    refused(&install(&at, &garbage, &["--expect-sha256", &right]), 3, "BUNDLE_NOT_AN_ARCHIVE");
    refused(&install(&at, &at.path().join("none.mcpb"), &[]), 2, "BUNDLE_NOT_FOUND");
    let unpacked = at.path().join("unpacked");
    Release::new("1.0.0").unpack(&unpacked, true);
    refused(&install(&at, &unpacked, &["--expect-sha256", &right]), 3, "BUNDLE_HASH_MISMATCH");
    assert_eq!(at.tree(), before);
}

#[test]
fn a_release_for_another_machine_is_refused() {
    let at = ReleaseWorld::new();
    let before = at.tree();
    let foreign = Release::new("1.0.0").metadata(|m| m["target"]["arch"] = json!("s390x"));
    let text = refused(&at.try_install(&foreign, &[]), 2, "RELEASE_FOREIGN_TARGET");
    assert!(text.contains("s390x") && text.contains(std::env::consts::ARCH), "{text}");
    assert_eq!(at.tree(), before);
}

#[test]
fn a_damaged_release_is_judged_by_hash_and_repaired_only_when_asked() {
    let at = ReleaseWorld::new();
    let release = Release::new("1.0.0").file("docs/x.md", "text", 0o644);
    at.install(&release);
    let whole = tree(&at.layout().releases());
    type Harm = fn(&ReleaseWorld, &Path);
    let harms: [(&str, Harm); 6] = [
        ("same size, other bytes", |at, _| at.damage(&Release::new("1.0.0").id(), "docs/x.md", "TEXT")),
        ("a file more", |_, folder| {
            set_mode(folder, 0o755);
            std::fs::write(folder.join("more"), "x").unwrap();
        }),
        ("a file less", |_, folder| {
            set_mode(&folder.join("docs"), 0o755);
            std::fs::remove_file(folder.join("docs/x.md")).unwrap();
        }),
        ("metadata of nothing", |at, _| {
            at.damage(&Release::new("1.0.0").id(), "release-metadata.json", "{}")
        }),
        ("gone but for its folder", |_, folder| {
            platform::remove_durable(folder).unwrap();
            std::fs::create_dir(folder).unwrap();
        }),
        ("a file in its place", |_, folder| {
            platform::remove_durable(folder).unwrap();
            std::fs::write(folder, "x").unwrap();
        }),
    ];
    for (what, harm) in harms {
        harm(&at, &at.layout().releases().join(release.id()));
        let harmed = at.lasting_tree();
        let finished = at.try_install(&release, &[]);
        assert!(refused(&finished, 3, "RELEASE_DAMAGED").contains("--repair"), "{what}: {finished}");
        assert_eq!(at.lasting_tree(), harmed, "{what}");
        let report = at.try_install(&release, &["--repair", "--json"]).expect_code(0).json();
        assert_eq!((&report["status"], &report["changed"]), (&json!("repaired"), &json!(true)), "{what}");
        assert_eq!(tree(&at.layout().releases()), whole, "{what}");
    }
    let report = at.try_install(&release, &["--repair", "--json"]).expect_code(0).json();
    assert_eq!(report["status"], "already-installed", "what is whole is not replaced");
}

#[test]
fn a_repair_that_was_cut_off_is_completed_from_every_step() {
    let at = ReleaseWorld::new();
    let release = Release::new("1.0.0");
    at.install(&release);
    let whole = tree(&at.layout().releases());
    at.damage(&release.id(), "README.md", "damaged");
    let releases = at.layout().releases();
    let (place, staged) = (releases.join(release.id()), releases.join(".installing-000002-install-release"));
    let aside = releases.join(format!(".pruned-000002-install-release-{}", release.id()));
    let damaged = at.path().join("damaged");
    copy(&place, &damaged);
    at.try_install(&release, &["--repair"]).expect_code(0);
    // As if it had been killed after its decision: before the first step, between the two moves, after them.
    let steps: [(&str, &dyn Fn()); 3] = [
        ("nothing was moved", &|| {
            std::fs::rename(&place, &staged).unwrap();
            copy(&damaged, &place);
        }),
        ("the old one was moved away", &|| {
            std::fs::rename(&place, &staged).unwrap();
            copy(&damaged, &aside);
        }),
        ("both were moved", &|| copy(&damaged, &aside)),
    ];
    for (what, harm) in steps {
        harm();
        let journal = at.layout().journal().join("000002-install-release.jsonl");
        let text = std::fs::read_to_string(&journal).unwrap();
        let cut: Vec<&str> = text.lines().take_while(|line| !line.contains("\"record\":\"end\"")).collect();
        std::fs::write(&journal, cut.join("\n") + "\n").unwrap();
        refused(&at.try_install(&release, &[]), 4, "RELEASE_RECOVERY_NEEDED");
        at.bridge(["recover"]).expect_code(0);
        verify::release(&at.layout(), &id(&release.id())).unwrap();
        assert_eq!(std::fs::read(aside.join("README.md")).unwrap(), b"damaged", "{what}");
        at.bridge(["prune"]).expect_code(0);
        assert_eq!(tree(&releases), whole, "{what}");
    }
}

/// Copies a folder with its rights.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in walkdir::WalkDir::new(from).min_depth(1) {
        let entry = entry.unwrap();
        let target = to.join(entry.path().strip_prefix(from).unwrap());
        if entry.file_type().is_dir() {
            std::fs::create_dir(&target).unwrap();
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
    platform::seal_tree(to).unwrap();
}

#[test]
fn a_release_that_somebody_runs_from_is_not_repaired() {
    let at = ReleaseWorld::new();
    let release = Release::new("1.0.0");
    at.install(&release);
    at.damage(&release.id(), "README.md", "x");
    let before = at.lasting_tree();
    let lease = platform::try_shared(&at.layout().release_lease(&id(&release.id()))).unwrap().unwrap();
    refused(&at.try_install(&release, &["--repair"]), 75, "RELEASE_IN_USE");
    assert_eq!(at.lasting_tree(), before);
    drop(lease);
    at.try_install(&release, &["--repair"]).expect_code(0);
}

#[test]
fn other_content_under_the_same_id_is_refused_also_for_a_repair() {
    let at = ReleaseWorld::new();
    let release = Release::new("1.0.0");
    let other = || Release::script("1.0.0", "#!/bin/sh\necho another build\n");
    assert_eq!(release.id(), other().id());
    at.install(&release);
    let before = at.tree();
    for arguments in [&[][..], &["--repair"]] {
        refused(&at.try_install(&other(), arguments), 2, "RELEASE_ID_TAKEN");
    }
    assert_eq!(at.tree(), before);
    // The receipt remembers which of the two it was, also if the release is damaged or gone.
    at.damage(&release.id(), "release-metadata.json", other().payload().pop().unwrap().bytes);
    refused(&at.try_install(&other(), &["--repair"]), 2, "RELEASE_ID_TAKEN");
    at.try_install(&release, &["--repair"]).expect_code(0);
    assert_eq!(tree(&at.layout().releases()), tree_of_releases(&before));
}

fn tree_of_releases(
    all: &std::collections::BTreeMap<String, String>,
) -> std::collections::BTreeMap<String, String> {
    all.iter()
        .filter_map(|(path, what)| Some((path.strip_prefix("releases/")?.to_owned(), what.clone())))
        .collect()
}

#[test]
fn leftovers_of_killed_installs_are_swept_and_nothing_else() {
    let at = ReleaseWorld::new();
    at.layout().create().unwrap();
    let releases = at.layout().releases();
    let outside = at.path().join("outside/kept");
    std::fs::write(&outside, "kept").unwrap();
    write(&releases.join(".installing-000007-install-release/server/x"), "x");
    write(&releases.join(".something-else/x"), "x");
    write(&at.root().join(".installing-here/x"), "x");
    support::world::link(&at.path().join("outside"), &releases.join(".installing-link"));
    let report = at.try_install(&Release::new("1.0.0"), &["--json"]).expect_code(0).json();
    assert_eq!(report["removedLeftovers"].as_array().unwrap().len(), 2, "{report}");
    assert!(!releases.join(".installing-000007-install-release").exists());
    assert!(std::fs::symlink_metadata(releases.join(".installing-link")).is_err());
    assert!(releases.join(".something-else/x").exists() && at.root().join(".installing-here/x").exists());
    assert_eq!(std::fs::read(&outside).unwrap(), b"kept", "a link is removed, not followed");
}

#[test]
fn a_cut_off_transaction_must_be_recovered_first() {
    let at = ReleaseWorld::new();
    at.install(&Release::new("1.0.0"));
    let journal = at.layout().journal().join("000001-install-release.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let cut: Vec<&str> = text.lines().take(text.lines().count() - 1).collect();
    std::fs::write(&journal, cut.join("\n") + "\n").unwrap();
    refused(&at.try_install(&Release::new("1.1.0"), &[]), 4, "RELEASE_RECOVERY_NEEDED");
    refused(&at.try_install(&Release::new("1.1.0"), &["--dry-run"]), 4, "RELEASE_RECOVERY_NEEDED");
    at.bridge(["recover"]).expect_code(0);
    at.install(&Release::new("1.1.0"));
}

#[test]
fn installs_at_the_same_time_end_whole_whatever_they_install() {
    let at = ReleaseWorld::new();
    let releases: Vec<Release> = ["1.0.0", "1.0.0", "1.0.0", "1.1.0", "1.2.0", "1.3.0"]
        .iter()
        .map(|version| Release::new(version).file("more", vec![7; 300_000], 0o644))
        .collect();
    let bundles: Vec<PathBuf> = releases.iter().map(|release| at.bundle(release)).collect();
    std::thread::scope(|scope| {
        for bundle in &bundles {
            scope.spawn(|| {
                let end = std::time::Instant::now() + DEADLINE;
                loop {
                    let finished = install(&at, bundle, &["--json"]);
                    match finished.code {
                        Some(0) => return,
                        // Another one is at work, whole or in the middle of it.
                        Some(75) => refused(&finished, 75, "RELEASE_LOCKED"),
                        _ => panic!("{finished}"),
                    };
                    assert!(std::time::Instant::now() < end, "{finished}");
                }
            });
        }
    });
    for release in &releases {
        verify::release(&at.layout(), &id(&release.id())).unwrap();
    }
    let names = std::fs::read_dir(at.layout().releases()).unwrap().count();
    assert_eq!(names, 4, "nothing is left beside them");
    let transactions = std::fs::read_dir(at.layout().journal()).unwrap().count();
    assert_eq!(transactions, 4, "one transaction a release");
    agent_bridge::release::journal::verify_all(&at.layout()).unwrap();
}

#[test]
fn an_unpacked_bundle_is_installed_like_a_packed_one() {
    let at = ReleaseWorld::new();
    let release = Release::new("1.0.0").file("docs/x.md", "text", 0o644);
    let unpacked = at.path().join("unpacked bundle");
    release.unpack(&unpacked, true);
    let report = install(&at, &unpacked, &["--json"]).expect_code(0).json();
    assert_eq!((&report["source"], &report["bundleSha256"]), (&json!("folder"), &Value::Null));
    let other = ReleaseWorld::new();
    other.install(&release);
    assert_eq!(tree(&at.layout().releases()), tree(&other.layout().releases()));
    // An installed release is an unpacked bundle as well.
    let third = ReleaseWorld::new();
    install(&third, &other.layout().releases().join(release.id()), &[]).expect_code(0);
    assert_eq!(tree(&third.layout().releases()), tree(&other.layout().releases()));
}

#[test]
fn an_unpacked_bundle_must_be_exactly_what_its_metadata_pin() {
    let at = ReleaseWorld::new();
    let before = at.tree();
    let refuses = |what: &str, code: &str, harm: &dyn Fn(&Path)| {
        let unpacked = at.path().join(what);
        Release::new("1.0.0").unpack(&unpacked, true);
        harm(&unpacked);
        refused(&install(&at, &unpacked, &[]), 3, code);
        assert_eq!(at.tree(), before, "{what}");
    };
    refuses("more", "BUNDLE_FILE_UNLISTED", &|folder| write(&folder.join("server/more"), "x"));
    refuses("config", "BUNDLE_FILE_UNLISTED", &|folder| write(&folder.join("server/config.json"), "{}"));
    refuses("less", "BUNDLE_FILE_MISSING", &|folder| std::fs::remove_file(folder.join("README.md")).unwrap());
    refuses("longer", "BUNDLE_FILE_DIFFERS", &|folder| write(&folder.join("README.md"), "long ".repeat(9)));
    refuses("flipped", "BUNDLE_FILE_DIFFERS", &|folder| {
        let path = folder.join("README.md");
        let text = std::fs::read_to_string(&path).unwrap().to_uppercase();
        write(&path, text);
    });
    refuses("no metadata", "BUNDLE_METADATA_MISSING", &|folder| {
        std::fs::remove_file(folder.join("release-metadata.json")).unwrap();
    });
    refuses("no manifest", "BUNDLE_FILE_MISSING", &|folder| {
        std::fs::remove_file(folder.join("manifest.json")).unwrap();
    });
    if cfg!(unix) {
        refuses("link", "BUNDLE_NOT_A_FILE", &|folder| {
            let real = folder.join("README.md");
            let elsewhere = folder.parent().unwrap().join("real README.md");
            std::fs::rename(&real, &elsewhere).unwrap();
            support::world::link(&elsewhere, &real);
        });
    }
}

/// An OCI image layout whose one layer is a bundle, as `oras push` makes it.
fn oci_layout(folder: &Path, bundle: &[u8], change: impl Fn(&str, &mut Value)) {
    let blob = |bytes: &[u8]| {
        let sha256 = digest::of_bytes(bytes);
        write(&folder.join("blobs/sha256").join(&sha256), bytes);
        json!({ "digest": format!("sha256:{sha256}"), "size": bytes.len() })
    };
    let typed = |media_type: &str, mut descriptor: Value| {
        descriptor["mediaType"] = json!(media_type);
        descriptor
    };
    let config = typed("application/vnd.oci.empty.v1+json", blob(b"{}"));
    let layer = typed("application/vnd.agent-bridge.bundle.v3+zip", blob(bundle));
    let mut manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.agent-bridge.bundle.v3",
        "config": config,
        "layers": [layer],
    });
    change("manifest", &mut manifest);
    let manifest = blob(manifest.to_string().as_bytes());
    let mut index = json!({
        "schemaVersion": 2,
        "manifests": [typed("application/vnd.oci.image.manifest.v1+json", manifest)],
    });
    index["manifests"][0]["annotations"] = json!({ "org.opencontainers.image.ref.name": "1.0.0" });
    change("index", &mut index);
    write(&folder.join("index.json"), index.to_string());
    let mut marker = json!({ "imageLayoutVersion": "1.0.0" });
    change("marker", &mut marker);
    write(&folder.join("oci-layout"), marker.to_string());
}

#[test]
fn an_oci_layout_is_a_source_and_every_digest_counts() {
    let release = Release::new("1.0.0");
    let bundle = release.bundle();
    let sha256 = digest::of_bytes(&bundle);
    let at = ReleaseWorld::new();
    let layout = at.path().join("a layout");
    oci_layout(&layout, &bundle, |_, _| {});
    let before = at.tree();
    refused(&install(&at, &layout, &["--expect-sha256", &"0".repeat(64)]), 3, "BUNDLE_HASH_MISMATCH");

    let mut number = 0;
    let mut refuses = |exit, code: &str, change: &dyn Fn(&str, &mut Value), harm: &dyn Fn(&Path)| {
        number += 1;
        let folder = at.path().join(format!("layout {number}"));
        oci_layout(&folder, &bundle, change);
        harm(&folder);
        let text = refused(&install(&at, &folder, &[]), exit, code);
        assert_eq!(at.tree(), before, "{text}");
    };
    let blob = |folder: &Path| folder.join("blobs/sha256").join(&sha256);
    let none = |_: &str, _: &mut Value| {};
    let only = |wanted: &'static str, change: fn(&mut Value)| {
        move |what: &str, value: &mut Value| {
            if what == wanted {
                change(value)
            }
        }
    };
    let unharmed = |_: &Path| {};
    refuses(2, "OCI_NO_BUNDLE", &only("index", |index| index["manifests"] = json!([])), &unharmed);
    refuses(2, "OCI_NO_BUNDLE", &only("manifest", |m| m["layers"] = json!([])), &unharmed);
    refuses(
        2,
        "OCI_NO_BUNDLE",
        &only("manifest", |m| {
            let layer = m["layers"][0].clone();
            m["layers"] = json!([layer, layer]);
        }),
        &unharmed,
    );
    refuses(
        3,
        "OCI_LAYOUT_INVALID",
        &only("marker", |m| m["imageLayoutVersion"] = json!("2.0.0")),
        &unharmed,
    );
    refuses(3, "OCI_LAYOUT_INVALID", &only("index", |index| index["schemaVersion"] = json!(1)), &unharmed);
    refuses(
        3,
        "OCI_LAYOUT_INVALID",
        &only("manifest", |m| m["layers"][0]["digest"] = json!("sha256:../../../../etc/passwd")),
        &unharmed,
    );
    refuses(
        3,
        "OCI_LAYOUT_INVALID",
        &only("manifest", |m| m["layers"][0]["digest"] = json!(format!("sha512:{}", "0".repeat(128)))),
        &unharmed,
    );
    refuses(3, "OCI_LAYOUT_INVALID", &only("manifest", |m| m["layers"][0]["size"] = json!(1)), &unharmed);
    refuses(3, "OCI_LAYOUT_INVALID", &only("index", |i| i["manifests"][0]["size"] = json!(1)), &unharmed);
    refuses(3, "OCI_LAYOUT_INVALID", &none, &|folder| std::fs::remove_file(blob(folder)).unwrap());
    refuses(3, "OCI_LAYOUT_INVALID", &none, &|folder| write(&folder.join("index.json"), "{}{}"));
    refuses(3, "BUNDLE_HASH_MISMATCH", &none, &|folder| {
        let mut bytes = bundle.clone();
        bytes[100] ^= 1;
        write(&blob(folder), bytes);
    });
    refuses(3, "OCI_LAYOUT_INVALID", &none, &|folder| {
        let index: Value =
            serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap()).unwrap();
        let digest = index["manifests"][0]["digest"].as_str().unwrap().replace("sha256:", "");
        let path = folder.join("blobs/sha256").join(digest);
        let text = std::fs::read_to_string(&path).unwrap().replace("artifactType", "artifacttype");
        write(&path, text);
    });
    if cfg!(unix) {
        refuses(3, "OCI_LAYOUT_INVALID", &none, &|folder| {
            std::fs::remove_file(blob(folder)).unwrap();
            support::world::link(&at.bundle(&Release::new("1.0.0")), &blob(folder));
        });
    }
    // One of several, by the platform.
    let several = at.path().join("several");
    oci_layout(&several, &bundle, |what, value| {
        if what == "index" {
            let names = [("macos", "darwin"), ("x86_64", "amd64"), ("aarch64", "arm64")];
            let go = |name: &'static str| names.iter().find(|n| n.0 == name).map_or(name, |n| n.1);
            let mut here = value["manifests"][0].clone();
            here["platform"] =
                json!({ "os": go(std::env::consts::OS), "architecture": go(std::env::consts::ARCH) });
            let mut other = here.clone();
            other["platform"]["architecture"] = json!("s390x");
            value["manifests"] = json!([other, here]);
        }
    });
    let report = install(&at, &several, &["--json"]).expect_code(0).json();
    assert_eq!((&report["source"], &report["bundleSha256"]), (&json!("oci-layout"), &json!(sha256)));
    let report = install(&at, &layout, &["--json", "--expect-sha256", &sha256]).expect_code(0).json();
    assert_eq!(report["status"], "already-installed");
}

#[test]
fn an_oci_layout_copied_by_skopeo_is_a_source() {
    let Some(skopeo) = find_program("skopeo") else { return real::skip("skopeo is not there") };
    let at = ReleaseWorld::new();
    let release = Release::new("1.0.0");
    let (ours, theirs) = (at.path().join("ours"), at.path().join("theirs"));
    oci_layout(&ours, &release.bundle(), |_, _| {});
    let mut command = at.command(skopeo);
    command.args(["--insecure-policy", "copy", "--quiet"]);
    command.arg(format!("oci:{}:1.0.0", ours.display())).arg(format!("oci:{}:1.0.0", theirs.display()));
    run(command, DEADLINE).expect_code(0);
    let report = install(&at, &theirs, &["--json"]).expect_code(0).json();
    assert_eq!(report["bundleSha256"], digest::of_bytes(&release.bundle()));
    verify::release(&at.layout(), &id(&release.id())).unwrap();
}

/// Field report 88: an extractor or a packer that knows no modes.
#[test]
fn executable_bit_lost() {
    let at = ReleaseWorld::new();
    let unpacked = at.path().join("unpacked");
    let first = Release::new("1.0.0");
    first.unpack(&unpacked, false);
    install(&at, &unpacked, &[]).expect_code(0);
    let second = Release::new("1.1.0");
    let flat: Vec<_> = second.payload();
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for file in flat {
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored)
            .unix_permissions(0o644);
        writer.start_file(&file.name, options).unwrap();
        std::io::Write::write_all(&mut writer, &file.bytes).unwrap();
    }
    let bundle = at.bundle_file("no modes.mcpb", &writer.finish().unwrap().into_inner());
    install(&at, &bundle, &[]).expect_code(0);
    if cfg!(unix) {
        for release in [first.id(), second.id()] {
            let program = at.layout().releases().join(&release).join(Release::runtime_path());
            let printed = run(at.command(&program), DEADLINE).expect_code(0);
            assert_eq!(printed.stdout(), format!("agent-bridge {}\n", release.split('+').next().unwrap()));
        }
    }
}

/// Field report 86: the temporary folder lies on another file system, or is of no use.
#[test]
fn temporary_folder_on_another_file_system() {
    let other = Path::new("/dev/shm");
    let mut at = ReleaseWorld::new();
    let temporary = match tempfile::tempdir_in(other) {
        Ok(folder) if device(folder.path()) != device(at.root()) => folder,
        _ => return real::skip("there is no second file system at /dev/shm"),
    };
    at.set_env("TMPDIR", temporary.path());
    let first = at.install(&Release::new("1.0.0"));
    at.damage(&first, "README.md", "x");
    at.try_install(&Release::new("1.0.0"), &["--repair"]).expect_code(0);
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "nothing is staged there");
    at.set_env("TMPDIR", "/nonexistent/folder");
    at.install(&Release::new("1.1.0"));
    for version in ["1.0.0", "1.1.0"] {
        verify::release(&at.layout(), &id(&Release::new(version).id())).unwrap();
    }
}

#[cfg(unix)]
fn device(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(path).unwrap())
}

#[cfg(windows)]
fn device(_: &Path) -> u64 {
    0
}

/// Runs a script of the shell in a mount namespace of its own: `$1` is ROOT, `$2` the program under test, then the
/// arguments. None where there is no such namespace.
fn with_own_mounts(at: &ReleaseWorld, script: &str, arguments: &[&Path]) -> Option<Finished> {
    let unshare = |script: &str| {
        let mut command = at.command("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-euc", script, "sh"]);
        command.arg(at.root()).arg(BRIDGE).args(arguments);
        command
    };
    let usable = find_program("unshare").is_some()
        && run(unshare("mount -t tmpfs none \"$1\""), DEADLINE).code == Some(0);
    if !usable {
        real::skip("no mount namespace can be had");
        return None;
    }
    Some(run(unshare(script), DEADLINE))
}

/// Installs `$3` on the disk that `mount` puts at ROOT, then `$4` after `between`: that must leave everything as it was,
/// and its exit code is the script's. `after` is what is done then. `$5` keeps what was found.
fn second_install_changes_nothing(mount: &str, between: &str, after: &str) -> String {
    format!(
        r#"
        list() {{ (cd "$1" && find . \( -path ./journal -o -path ./locks -o -path ./leases \) -prune -o \
            -printf '%y %m %s %p\n' | sort; find . -type f -path './releases/*' -exec sha256sum {{}} + | sort); }}
        code=0
        {mount}
        "$2" install-release "$3" >/dev/null 2>&1
        {between}
        list "$1" > "$5/before"
        "$2" install-release "$4" || code=$?
        list "$1" > "$5/after"
        cmp "$5/before" "$5/after"
        {after}
        exit "$code""#
    )
}

#[test]
fn a_disk_that_is_too_small_is_seen_before_anything_is_written() {
    let at = ReleaseWorld::new();
    let small = at.bundle(&Release::new("1.0.0"));
    let large = at.bundle(&Release::new("1.1.0").file("more", vec![5; 9_000_000], 0o644));
    let script = second_install_changes_nothing(r#"mount -t tmpfs -o size=8m none "$1""#, "", "");
    let folder = at.path().join("outside");
    let Some(finished) = with_own_mounts(&at, &script, &[&small, &large, &folder]) else { return };
    refused(&finished, 2, "INSTALL_NO_SPACE");
    assert!(std::fs::read_to_string(folder.join("before")).unwrap().contains("releases/1.0.0"));
}

#[test]
fn a_disk_that_gets_full_in_the_middle_leaves_everything_as_it_was() {
    let at = ReleaseWorld::new();
    let small = at.bundle(&Release::new("1.0.0"));
    // There is room for the bytes, but not for so many files.
    let many =
        (0..100).fold(Release::new("1.1.0"), |release, n| release.file(&format!("many/{n}"), "x", 0o644));
    let many = at.bundle(&many);
    let script = second_install_changes_nothing(
        r#"mount -t tmpfs -o size=64m,nr_inodes=80 none "$1""#,
        "",
        r#""$2" inspect --json > "$5/inspect" || true
        mount -o remount,nr_inodes=800 "$1"
        "$2" install-release "$4" >/dev/null 2>&1"#,
    );
    let folder = at.path().join("outside");
    let Some(finished) = with_own_mounts(&at, &script, &[&small, &many, &folder]) else { return };
    refused(&finished, 2, "WRITE_NO_SPACE");
    let inspected: Value = serde_json::from_slice(&std::fs::read(folder.join("inspect")).unwrap()).unwrap();
    assert_eq!((&inspected["leftovers"], &inspected["journal"]["unfinished"]), (&json!([]), &Value::Null));
}

#[test]
fn a_target_that_cannot_be_written_is_refused_and_keeps_what_it_has() {
    let at = ReleaseWorld::new();
    let first = at.bundle(&Release::new("1.0.0"));
    let second = at.bundle(&Release::new("1.1.0"));
    let script =
        second_install_changes_nothing(r#"mount -t tmpfs none "$1""#, r#"mount -o remount,ro "$1""#, "");
    let folder = at.path().join("outside");
    let Some(finished) = with_own_mounts(&at, &script, &[&first, &second, &folder]) else { return };
    let text = finished.stderr();
    assert!(finished.code.is_some_and(|code| code != 0) && finished.stdout.is_empty(), "{finished}");
    assert!(text.contains("Read-only") || text.contains("read-only"), "{finished}");
}

/// Field report 85: what runs from a release keeps its bytes while the release is replaced.
#[cfg(target_os = "linux")]
#[test]
fn replacing_a_running_program() {
    let at = ReleaseWorld::new();
    let program = std::fs::read(find_program("sleep").unwrap()).unwrap();
    let release = || Release::of_bytes("1.0.0", program.clone());
    at.install(&release());
    let mut command = at.command(at.layout().releases().join(release().id()).join("server/agent-bridge"));
    command.env("_", "sleep").arg("600");
    let mut running = support::process::start(command);
    at.damage(&release().id(), "README.md", "x");
    at.install(&Release::new("1.1.0"));
    at.try_install(&release(), &["--repair"]).expect_code(0);
    assert!(!running.has_ended());
    let image = format!("/proc/{}/exe", running.id());
    assert_eq!(std::fs::read(image).unwrap(), program, "the running one keeps its bytes");
    running.signal(Signal::Kill);
    verify::release(&at.layout(), &id(&release().id())).unwrap();
    assert_eq!(std::fs::read_dir(at.layout().releases()).unwrap().count(), 2, "nothing is left beside them");
}

#[test]
fn a_person_reads_what_was_done_and_a_script_gets_no_progress() {
    let at = ReleaseWorld::new();
    let release = Release::new("1.0.0").file("docs/x.md", "text", 0o644);
    let done = at.try_install(&release, &[]).expect_code(0);
    let text = done.stdout().replace(at.root().to_str().unwrap(), "ROOT");
    let sha256 = digest::of_bytes(&release.bundle());
    let id = release.id();
    let bytes: usize = release.payload().iter().map(|file| file.bytes.len()).sum();
    assert_eq!(
        text,
        format!(
            "installed {id}\n  folder  ROOT/releases/{id}\n  files   5 ({bytes} bytes), each with its pinned SHA-256\n  bundle  {sha256}\n"
        )
    );
    assert_eq!(
        done.stderr(),
        format!("next: agent-bridge canary release {id}, then agent-bridge cutover {id}\n")
    );
    let again = at.try_install(&release, &[]).expect_code(0);
    assert!(again.stdout().starts_with(&format!("{id} is already installed, and whole\n")), "{again}");
    assert!(again.stderr.is_empty(), "{again}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_person_at_a_terminal_sees_a_bar_and_the_result_stays_clean() {
    let Some(script) = find_program("script") else { return real::skip("script is not there") };
    let at = ReleaseWorld::new();
    let bundle = at.bundle(&Release::new("1.0.0").file("more", vec![9; 30_000_000], 0o644));
    let result = at.path().join("result");
    let mut command = at.command(script);
    command.env("TERM", "xterm").env("SHELL", "/bin/sh");
    let inner = format!("'{BRIDGE}' install-release --json '{}' > '{}'", bundle.display(), result.display());
    command.args(["--quiet", "--return", "--command", &format!("stty cols 100; {inner}"), "/dev/null"]);
    let shown = run(command, DEADLINE).expect_code(0);
    assert!(shown.stdout().contains("writing") && shown.stdout().contains("MiB"), "{shown}");
    let report: Value = serde_json::from_slice(&std::fs::read(result).unwrap()).unwrap();
    assert_eq!(report["status"], "installed");
}

#[test]
fn a_large_bundle_is_judged_and_written_by_two_threads_to_the_same_end() {
    let at = ReleaseWorld::new();
    let noise: Vec<u8> = (0..66_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let release = Release::of_bytes("1.0.0", noise);
    let bundle = at.bundle(&release);
    let mut flipped = std::fs::read(&bundle).unwrap();
    let before = at.tree();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    refused(&install(&at, &at.bundle_file("flipped.mcpb", &flipped), &[]), 3, "BUNDLE_CHECKSUM");
    drop(flipped);
    assert_eq!(at.tree(), before);
    let report = install(&at, &bundle, &["--json"]).expect_code(0).json();
    assert_eq!(report["bundleSha256"], digest::of_file(&bundle).unwrap().0);
    verify::release(&at.layout(), &id(&release.id())).unwrap();
}

#[cfg(unix)]
#[test]
fn an_interrupted_install_puts_everything_back() {
    let at = ReleaseWorld::new();
    at.install(&Release::new("1.0.0"));
    let before = at.lasting_tree();
    let many =
        (0..1000).fold(Release::new("1.1.0"), |release, n| release.file(&format!("many/{n}"), "x", 0o644));
    let mut command = at.bridge_command(["install-release"]);
    command.arg(at.bundle(&many));
    let running = support::process::start(command);
    let staging = at.layout().releases().join(".installing-000002-install-release/many");
    support::process::wait_until("the first file", DEADLINE, || staging.exists());
    running.signal(Signal::Terminate);
    let finished = running.finish(DEADLINE);
    refused(&finished, 2, "RELEASE_INTERRUPTED");
    assert_eq!(at.lasting_tree(), before);
    at.install(&many);
}
