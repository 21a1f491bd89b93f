//! `agent-bridge package`: the same bytes everywhere, nothing half done, nothing that was not meant.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops where it cannot go on, or says why it is skipped"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::process::Command;

use agent_bridge::digest;
use agent_bridge::release::metadata::Metadata;
use support::bundle::{Project, files_below};
use support::prelude::*;
use support::world::{find_program, write};

fn sha256(path: &Path) -> String {
    digest::of_file(path).unwrap().0
}

/// Every entry by its name, as the `zip` crate reads them.
fn entries(bundle: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(bundle).unwrap()).unwrap();
    (0..archive.len())
        .map(|index| {
            let mut entry = archive.by_index(index).unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.name().unwrap().into_owned(), entry.unix_mode().unwrap() & 0o7777, bytes)
        })
        .collect()
}

fn entry(bundle: &Path, name: &str) -> Vec<u8> {
    entries(bundle).into_iter().find(|entry| entry.0 == name).expect(name).2
}

/// The names in a folder; none if there is no folder.
fn names(folder: &Path) -> Vec<String> {
    files_below(folder).iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

#[track_caller]
fn refused(finished: &process::Finished, code: i32, name: &str) {
    assert_eq!(finished.code, Some(code), "{finished}");
    assert!(finished.stderr().contains(name), "{finished}");
}

/// Puts a `git` before the real one that does something as soon as it was asked for the state of the checkout the
/// second time: in the middle of the work.
#[cfg(unix)]
fn meddle(project: &Project, what: &str) {
    let git = find_program("git").unwrap();
    let count = project.world.path().join("count");
    let text = format!(
        "#!/bin/sh\nfor word; do\n  if [ \"$word\" = status ]; then\n    echo x >> '{count}'\n    \
         if [ \"$(wc -l < '{count}')\" -eq 2 ]; then {what}; fi\n  fi\ndone\nexec '{git}' \"$@\"\n",
        count = count.display(),
        git = git.display(),
    );
    project.world.program("git", &text);
}

#[test]
fn a_bundle_holds_what_its_metadata_pin_and_nothing_else() {
    let project = Project::new();
    let document = project.package([]).expect_code(0).json();
    let head = project.world.git(["rev-parse", "HEAD"]);
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("agent-bridge-v{version}-linux-x86_64.mcpb");
    let bundle = project.dist().join(&name);
    assert_eq!(document["bundle"], json!(bundle));
    assert_eq!(document["sha256"], json!(sha256(&bundle)));
    assert_eq!(document["gitSha"], json!(head));
    assert_eq!(document["releaseId"], json!(format!("{version}+{}", &head[..7])));

    let found = entries(&bundle);
    let order: Vec<&str> = found.iter().map(|entry| entry.0.as_str()).collect();
    assert_eq!(order[..3], ["manifest.json", "release-metadata.json", "server/agent-bridge"]);
    assert!(order[3..].is_sorted(), "{order:?}");
    for wanted in [
        "README.md",
        "CHANGELOG.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "templates/config.schema.json",
        "templates/clients/codex.toml",
        "completions/_agent-bridge",
        "completions/agent-bridge.fish",
        "man/agent-bridge.1",
        "man/agent-bridge-serve.1",
    ] {
        assert!(order.contains(&wanted), "{wanted} is not in {order:?}");
    }
    assert!(!order.iter().any(|name| name.contains("mock-agent")), "{order:?}");

    let metadata = Metadata::parse(&entry(&bundle, "release-metadata.json")).unwrap();
    assert_eq!(
        (metadata.git_sha.as_str(), metadata.built_at.as_str()),
        (head.as_str(), "2026-01-01T00:00:00Z")
    );
    assert_eq!(metadata.target.triple, "x86_64-unknown-linux");
    assert!(metadata.tool_catalogue.tools.contains_key("delegate_task"));
    let pinned: BTreeSet<&str> = metadata.files.keys().map(String::as_str).collect();
    let listed: BTreeSet<&str> =
        order.iter().copied().filter(|name| *name != "release-metadata.json").collect();
    assert_eq!(pinned, listed);
    for (name, mode, bytes) in &found {
        assert_eq!(*mode, if name == "server/agent-bridge" { 0o755 } else { 0o644 }, "{name}");
        if let Some(record) = metadata.files.get(name) {
            assert_eq!(
                (&record.sha256, record.bytes),
                (&digest::of_bytes(bytes), bytes.len() as u64),
                "{name}"
            );
        }
    }
    assert_eq!(entry(&bundle, "server/agent-bridge"), std::fs::read(&project.binary).unwrap());
    let manifest: Value = serde_json::from_slice(&entry(&bundle, "manifest.json")).unwrap();
    assert_eq!(manifest["version"], version);
    assert_eq!(manifest["_meta"]["io.github.agent-bridge.release"]["git_sha"], json!(head));
}

#[test]
fn the_bytes_do_not_depend_on_the_machine_the_user_or_the_place() {
    let (one, other) = (Project::new(), Project::new());
    assert_ne!(one.world.path(), other.world.path());
    for how in [&[][..], &["--store"]] {
        let out = one.world.path().join(format!("out{}", how.len()));
        std::fs::create_dir(&out).unwrap();
        let arguments = |out: &Path| {
            let out = out.to_str().unwrap().to_owned();
            how.iter().map(|word| (*word).to_owned()).chain(["--out".into(), out]).collect::<Vec<_>>()
        };
        let usual = arguments(&out.join("usual.mcpb"));
        let wanted = sha256(&one.bundle(usual.iter().map(String::as_str)));
        let mut number = 0;
        let mut same = |project: &Project, vary: &dyn Fn(&mut Command)| {
            number += 1;
            let path = out.join(format!("{number}.mcpb"));
            let arguments = arguments(&path);
            let mut command = project.package_command(arguments.iter().map(String::as_str));
            vary(&mut command);
            process::run(command, DEADLINE).expect_code(0);
            assert_eq!(sha256(&path), wanted, "variation {number}");
            assert_eq!(sha256(&path.with_extension("cdx.json")), sha256(&out.join("usual.cdx.json")));
        };
        // Another user with another environment, from another folder.
        same(&one, &|command| {
            command.current_dir("/").arg("--repo").arg(one.world.file("templates")).envs([
                ("TZ", "Asia/Kolkata"),
                ("LC_ALL", "tr_TR.UTF-8"),
                ("LANG", "C"),
                ("USER", "somebody-else"),
                ("HOME", "/nonexistent/somebody-else"),
                ("HOSTNAME", "another-machine"),
                ("COLUMNS", "23"),
                ("NO_COLOR", "1"),
                ("AGENT_BRIDGE_CONFIG", "/nonexistent/config.json"),
                ("GIT_DIR", "/nonexistent/git"),
            ]);
        });
        // Another checkout, made in another folder.
        same(&other, &|_| {});
        // Times of files, and the order in which a folder gives them.
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        for path in files_below(&other.world.file("templates")).iter().rev() {
            let bytes = std::fs::read(path).unwrap();
            std::fs::remove_file(path).unwrap();
            write(path, bytes);
            std::fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
        }
        same(&other, &|_| {});
    }
}

#[cfg(unix)]
#[test]
fn the_umask_and_the_permissions_of_the_program_do_not_matter() {
    use std::os::unix::fs::PermissionsExt;
    let project = Project::new();
    let out = project.world.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let mut found = BTreeSet::new();
    for (umask, mode) in [("000", 0o777), ("077", 0o600), ("022", 0o755)] {
        std::fs::set_permissions(&project.binary, std::fs::Permissions::from_mode(mode)).unwrap();
        let bundle = out.join(format!("{umask}.mcpb"));
        let command = project.package_command(["--out", bundle.to_str().unwrap()]);
        let mut shell = project.world.command("sh");
        shell
            .args(["-c", "umask $0; exec \"$@\"", umask])
            .arg(command.get_program())
            .args(command.get_args());
        process::run(shell, DEADLINE).expect_code(0);
        assert_eq!(std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o7777, 0o644);
        found.insert(sha256(&bundle));
    }
    assert_eq!(found.len(), 1);
}

#[test]
fn the_time_can_be_set_and_is_the_only_thing_that_it_changes() {
    let project = Project::new();
    let usual = project.bundle([]);
    let later = project.world.path().join("later.mcpb");
    let mut command = project.package_command(["--out", later.to_str().unwrap()]);
    command.env("SOURCE_DATE_EPOCH", "1800000000");
    process::run(command, DEADLINE).expect_code(0);
    assert_eq!(
        Metadata::parse(&entry(&later, "release-metadata.json")).unwrap().built_at,
        "2027-01-15T08:00:00Z"
    );
    assert_eq!(entry(&usual, "manifest.json"), entry(&later, "manifest.json"));
    let mut command =
        project.package_command(["--out", project.world.path().join("x.mcpb").to_str().unwrap()]);
    command.env("SOURCE_DATE_EPOCH", "yesterday");
    refused(&process::run(command, DEADLINE), 2, "SOURCE_DATE_EPOCH");
}

#[test]
fn nothing_of_the_machine_is_in_a_bundle() {
    let project = Project::new();
    let mut command = project.package_command(["--store"]);
    command.env("USER", "some-user-name").env("HOSTNAME", "some-host-name");
    let document = process::run(command, DEADLINE).expect_code(0).json();
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let private = [
        project.world.path().to_string_lossy().into_owned(),
        env!("CARGO_MANIFEST_DIR").to_owned(),
        "some-user-name".into(),
        "some-host-name".into(),
    ];
    // A host name may be a word that anybody uses.
    let private = private.into_iter().chain((host.trim().len() > 6).then(|| host.trim().to_owned()));
    let private: Vec<String> = private.collect();
    for path in files_below(&project.dist()) {
        let bytes = std::fs::read(&path).unwrap();
        for word in &private {
            let found = bytes.windows(word.len()).any(|window| window == word.as_bytes());
            assert!(!found, "{word} is in {}", path.display());
        }
    }
    assert_eq!(
        document["entries"].as_array().unwrap().len() + 1,
        entries(&project.dist().join("agent-bridge-v0.1.0-linux-x86_64.mcpb")).len()
    );
}

#[test]
fn a_program_of_another_system_can_be_packaged_anywhere() {
    for (os, program) in [("windows", "server/agent-bridge.exe"), ("macos", "server/agent-bridge")] {
        let project = Project::new();
        project.write_binary(&project.identity(os), b"");
        let bundle = project.bundle([]);
        assert!(bundle.to_string_lossy().ends_with(&format!("-{os}-x86_64.mcpb")), "{}", bundle.display());
        let (_, mode, bytes) = entries(&bundle).into_iter().find(|entry| entry.0 == program).unwrap();
        assert_eq!((mode, bytes), (0o755, std::fs::read(&project.binary).unwrap()));
        let manifest: Value = serde_json::from_slice(&entry(&bundle, "manifest.json")).unwrap();
        let platform = if os == "windows" { "win32" } else { "darwin" };
        assert_eq!(manifest["compatibility"]["platforms"], json!([platform]));
    }
}

#[test]
fn a_checkout_that_is_not_its_commit_is_refused() {
    let project = Project::new();
    project.world.write("README.md", "changed");
    refused(&project.package([]), 2, "BUNDLE_DIRTY");
    project.world.git(["checkout", "--quiet", "README.md"]);
    project.world.write("new-file", "");
    // What the user set for himself does not hide it.
    project.world.git(["config", "status.showUntrackedFiles", "no"]);
    refused(&project.package([]), 2, "BUNDLE_DIRTY");
    std::fs::remove_file(project.world.file("new-file")).unwrap();
    project.package([]).expect_code(0);
    let outside = project.world.outside();
    refused(&project.package(["--repo", outside.to_str().unwrap()]), 2, "BUNDLE_NO_COMMIT");
    assert_eq!(names(&outside), [""; 0]);
}

#[test]
fn a_program_that_the_commit_does_not_give_is_refused() {
    let project = Project::new();
    let good = project.identity("linux");
    for (key, value, why) in [
        ("gitSha", json!("0123456789abcdef0123456789abcdef01234567"), "built from 0123456789"),
        ("gitSha", Value::Null, "unknown revision"),
        ("dirty", json!(true), "changed source"),
        ("version", json!("9.9.9"), "version 9.9.9"),
        ("catalogueSha256", json!("0".repeat(64)), "its tools"),
        ("package", json!("other"), "identity is not valid"),
    ] {
        let mut identity = good.clone();
        identity[key] = value;
        project.write_binary(&identity, b"");
        let finished = project.package([]);
        refused(&finished, 2, "BUNDLE_BINARY_UNFIT");
        assert!(finished.stderr().contains(why), "{finished}");
    }
    write(&project.binary, "a foreign program");
    refused(&project.package([]), 2, "holds no identity");
    std::fs::remove_file(&project.binary).unwrap();
    refused(&project.package([]), 2, "BUNDLE_BINARY_UNFIT");
    assert!(!project.dist().exists());
}

#[test]
fn a_program_that_names_folders_of_its_machine_is_remarked_on() {
    let project = Project::new();
    let remark = "ops/build-release";
    let finished = project.package(["--dry-run"]).expect_code(0);
    assert!(!finished.stderr().contains(remark), "{finished}");
    let filling = format!("{}/.cargo/registry/src/lib.rs", project.world.home().display());
    project.write_binary(&project.identity("linux"), filling.as_bytes());
    let finished = project.package(["--dry-run"]).expect_code(0);
    assert!(finished.stderr().contains(remark), "{finished}");
}

#[test]
fn completions_and_pages_of_another_revision_are_refused() {
    let project = Project::new();
    let mut command = project.world.bridge_command(["package", "--binary"]);
    command.arg(&project.binary);
    refused(&process::run(command, DEADLINE), 2, "BUNDLE_PACKAGER_STALE");
    assert!(!project.dist().exists());
}

#[test]
fn nothing_that_is_there_is_written_over() {
    let project = Project::new();
    let bundle = project.bundle([]);
    let before: BTreeMap<_, _> =
        files_below(&project.dist()).into_iter().map(|p| (p.clone(), sha256(&p))).collect();
    refused(&project.package([]), 2, "BUNDLE_OUTPUT_EXISTS");
    // Files that belong to the same bundle are no obstacle: a killed run may have left them.
    std::fs::remove_file(&bundle).unwrap();
    project.package([]).expect_code(0);
    // Others are, and then all stays as it was.
    std::fs::remove_file(&bundle).unwrap();
    let bill = bundle.with_extension("cdx.json");
    write(&bill, "something else");
    refused(&project.package([]), 2, "BUNDLE_OUTPUT_EXISTS");
    assert_eq!(std::fs::read(&bill).unwrap(), b"something else");
    assert_eq!(names(&project.dist()).len(), before.len() - 1, "no bundle, and nothing new");
    std::fs::remove_file(&bill).unwrap();
    project.package([]).expect_code(0);
    let after: BTreeMap<_, _> =
        files_below(&project.dist()).into_iter().map(|p| (p.clone(), sha256(&p))).collect();
    assert_eq!(after, before);
}

#[test]
fn a_place_that_git_would_see_is_refused() {
    let project = Project::new();
    let inside = project.world.file("templates");
    project.package(["--out", inside.to_str().unwrap()]).expect_code(0);
    let project = Project::new();
    project.world.write(".gitignore", "*.mcpb\n");
    project.world.git(["commit", "--quiet", "--all", "--message=Ignore less"]);
    project.write_binary(&project.identity("linux"), b"");
    let finished = project.package([]);
    refused(&finished, 2, "BUNDLE_OUTPUT_UNFIT");
    assert!(finished.stderr().contains(".cdx.json as a change"), "{finished}");
    assert!(!project.dist().exists());
    for out in ["/nonexistent/x.mcpb", "/nonexistent", "bundle.zip"] {
        refused(&project.package(["--out", out]), 2, "BUNDLE_OUTPUT_UNFIT");
    }
}

#[test]
fn a_dry_run_writes_nothing_and_refuses_the_same() {
    let project = Project::new();
    let document = project.package(["--dry-run"]).expect_code(0).json();
    assert_eq!(document["dryRun"], true);
    assert!(document["entries"].as_array().unwrap().contains(&json!("server/agent-bridge")));
    assert!(!project.dist().exists());
    project.world.write("README.md", "changed");
    refused(&project.package(["--dry-run"]), 2, "BUNDLE_DIRTY");
}

#[test]
fn a_template_that_hosts_would_choke_on_is_refused() {
    let project = Project::new();
    let text = project.world.read("manifest.template.json").replace("{{version}}", "banana");
    project.world.write("manifest.template.json", text);
    project.world.git(["commit", "--quiet", "--all", "--message=Banana"]);
    project.write_binary(&project.identity("linux"), b"");
    let finished = project.package([]);
    refused(&finished, 2, "BUNDLE_CONTENT_UNFIT");
    assert!(finished.stderr().contains("banana"), "{finished}");
    assert!(!project.dist().exists());
}

#[cfg(unix)]
#[test]
fn what_changes_while_it_is_packaged_is_not_published() {
    for what in [
        "echo changed >> README.md",
        "echo new > new-file",
        "echo more >> '$BINARY'",
        "touch -d 2001-01-01 '$BINARY'",
        "$GIT commit --quiet --allow-empty --message=Next",
    ] {
        let project = Project::new();
        let git = find_program("git").unwrap();
        let what = what
            .replace("$BINARY", project.binary.to_str().unwrap())
            .replace("$GIT", &format!("'{}'", git.display()));
        meddle(&project, &what);
        let finished = project.package([]);
        refused(&finished, 2, "BUNDLE_DRIFT");
        assert!(!project.dist().exists(), "{what}: {:?}", names(&project.dist()));
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_leaves_nothing() {
    for signal in [Signal::Terminate, Signal::Interrupt] {
        let project = Project::new();
        // Large enough that the end is far away.
        let file = std::fs::File::options().write(true).open(&project.binary).unwrap();
        file.set_len(512 * 1024 * 1024).unwrap();
        let running = process::start(project.package_command(["--store"]));
        let end = std::time::Instant::now() + DEADLINE;
        while names(&project.dist()).is_empty() {
            assert!(std::time::Instant::now() < end, "nothing was begun");
            std::thread::sleep(Duration::from_millis(1));
        }
        running.signal(signal);
        refused(&running.finish(DEADLINE), 2, "RELEASE_INTERRUPTED");
        assert!(!project.dist().exists());
    }
}

#[test]
fn a_large_program_is_hashed_and_read_again_by_threads_with_the_same_result() {
    let project = Project::new();
    let file = std::fs::File::options().write(true).open(&project.binary).unwrap();
    file.set_len(65 * 1024 * 1024).unwrap();
    drop(file);
    let bundle = project.bundle(["--store"]);
    let metadata = Metadata::parse(&entry(&bundle, "release-metadata.json")).unwrap();
    assert_eq!(metadata.runtime_record().unwrap().sha256, sha256(&project.binary));
    let document = project.package(["--reproduce", bundle.to_str().unwrap()]).expect_code(0).json();
    assert_eq!(document["identical"], true);
}

#[test]
fn a_bundle_can_be_reproduced_or_the_first_difference_is_named() {
    let project = Project::new();
    for how in [&[][..], &["--store"]] {
        let bundle = project.bundle(how.iter().copied());
        let reproduce = |bundle: &Path| project.package(["--reproduce", bundle.to_str().unwrap()]);
        let document = reproduce(&bundle).expect_code(0).json();
        assert_eq!(document["identical"], true);

        let bad = project.world.path().join("bad.mcpb");
        let different = |bytes: &[u8]| {
            write(&bad, bytes);
            let document = reproduce(&bad).expect_code(3).json();
            assert_eq!(document["identical"], false);
            document["differences"].clone()
        };
        let good = std::fs::read(&bundle).unwrap();
        let found = different(&good[..good.len() - 1]);
        assert_eq!(found[0]["byte"], json!(good.len() - 1));
        let found = different(&[&good[..], b"x"].concat());
        assert_eq!(found[0]["byte"], json!(good.len()));
        // The same files written by somebody else.
        let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, mode, content) in entries(&bundle) {
            let options = zip::write::SimpleFileOptions::default().unix_permissions(mode);
            writer.start_file(name, options).unwrap();
            std::io::Write::write_all(&mut writer, &content).unwrap();
        }
        different(&writer.finish().unwrap().into_inner());

        // Another program of the same revision.
        let old = std::fs::read(&project.binary).unwrap();
        project.write_binary(&project.identity("linux"), b"one more byte");
        let document = reproduce(&bundle).expect_code(3).json();
        let found: Vec<_> = document["differences"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d["entry"].as_str().unwrap())
            .collect();
        assert_eq!(found, ["manifest.json", "release-metadata.json", "server/agent-bridge"]);
        assert_eq!(document["differences"][2]["byte"], json!(old.len()));
        write(&project.binary, &old);
        let mut text = project.world.bridge_command(["package", "--other-packager", "--binary"]);
        text.arg(&project.binary).arg("--reproduce").arg(&bundle);
        assert_eq!(process::run(text, DEADLINE).expect_code(0).stdout(), "identical\n");
        for path in files_below(&project.dist()) {
            std::fs::remove_file(path).unwrap();
        }
    }
    refused(&project.package(["--reproduce", "/nonexistent.mcpb"]), 2, "BUNDLE_UNREADABLE");
}

#[test]
fn what_lies_beside_a_bundle_is_good_for_the_usual_tools() {
    let project = Project::new();
    let bundle = project.bundle([]);
    project.write_binary(&project.identity("windows"), b"");
    project.bundle(["--download-folder", "https://example.invalid/files/"]);
    let sums = std::fs::read_to_string(project.dist().join("SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), 6, "of both bundles: {sums}");
    if let Some(tool) = find_program("sha256sum") {
        let mut command = project.world.command(tool);
        command.args(["--check", "--strict", "SHA256SUMS"]).current_dir(project.dist());
        let finished = process::run(command, DEADLINE).expect_code(0);
        assert_eq!(finished.stdout().matches(": OK").count(), 6, "{finished}");
    }
    let fragment: Value =
        serde_json::from_slice(&std::fs::read(bundle.with_extension("server.json")).unwrap()).unwrap();
    let package = &fragment["packages"][0];
    assert_eq!(package["registryType"], "mcpb");
    assert_eq!(package["fileSha256"], json!(sha256(&bundle)));
    assert!(package["identifier"].as_str().unwrap().ends_with("/agent-bridge-v0.1.0-linux-x86_64.mcpb"));
    let bill: Value =
        serde_json::from_slice(&std::fs::read(bundle.with_extension("cdx.json")).unwrap()).unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    assert!(bill["components"].as_array().unwrap().iter().any(|component| component["name"] == "rmcp"));
    assert_eq!(
        bill["metadata"]["component"]["hashes"][0]["content"],
        json!(digest::of_bytes(&entry(&bundle, "server/agent-bridge")))
    );
    let windows = project.dist().join("agent-bridge-v0.1.0-windows-x86_64.server.json");
    let fragment: Value = serde_json::from_slice(&std::fs::read(windows).unwrap()).unwrap();
    assert_eq!(
        fragment["packages"][0]["identifier"],
        "https://example.invalid/files/agent-bridge-v0.1.0-windows-x86_64.mcpb"
    );
}

#[test]
fn this_program_packages_itself_if_it_is_of_a_commit() {
    let own = agent_bridge::release::identity::own().unwrap();
    let project = World::new().build();
    let clone = project.path().join("clone");
    let sha = own.git_sha.clone().unwrap_or_default();
    let mut command = project.command("git");
    command
        .args(["clone", "--quiet", "--no-checkout", "--no-hardlinks", env!("CARGO_MANIFEST_DIR")])
        .arg(&clone);
    let cloned = process::run(command, DEADLINE).code == Some(0);
    let checked_out = cloned && {
        let mut command = project.command("git");
        command.arg("-C").arg(&clone).args(["checkout", "--quiet", "--detach", &sha]);
        process::run(command, DEADLINE).code == Some(0)
    };
    if !checked_out {
        eprintln!("SKIPPED: this source is no checkout of {sha:?}");
        return;
    }
    let out = project.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let arguments = ["package", "--json", "--repo", clone.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let finished = project.bridge(arguments);
    if own.dirty {
        refused(&finished, 2, "BUNDLE_PACKAGER_STALE");
        assert_eq!(names(&out), [""; 0]);
        return;
    }
    let document = finished.expect_code(0).json();
    assert_eq!(document["gitSha"], json!(sha));
    let bundle = Path::new(document["bundle"].as_str().unwrap());
    let program = project.bin().join("unpacked");
    write(&program, entry(bundle, &format!("server/agent-bridge{}", std::env::consts::EXE_SUFFIX)));
    assert_eq!(sha256(&program), sha256(Path::new(support::world::BRIDGE)));
}

#[test]
fn a_bundle_installs_and_is_what_its_metadata_pin() {
    let project = Project::new();
    let own = agent_bridge::release::identity::own().unwrap();
    let mut identity = project.identity(&own.target.os);
    identity["target"] = json!(own.target);
    project.write_binary(&identity, b"");
    let root = project.world.path().join("root");
    let root = root.to_str().unwrap();
    for how in [&[][..], &["--store"]] {
        let document = project.package(how.iter().copied()).expect_code(0).json();
        let bundle = document["bundle"].as_str().unwrap();
        let expected = document["sha256"].as_str().unwrap();
        let arguments = ["install-release", bundle, "--expect-sha256", expected, "--root", root];
        project.world.bridge(arguments).expect_code(0);
        let release = Path::new(root).join("releases").join(document["releaseId"].as_str().unwrap());
        let program = release.join(document["runtime"].as_str().unwrap());
        assert_eq!(sha256(&program), sha256(&project.binary));
        for path in files_below(&project.dist()) {
            std::fs::remove_file(path).unwrap();
        }
    }
}
