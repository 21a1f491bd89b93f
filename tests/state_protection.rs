//! `state audit|protect|restore`: what is private is left alone, what is not is found and mended, what cannot be
//! mended is refused, and nobody can lead the walk out of the folder.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops where it cannot go on, and says what it skips"
)]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use agent_bridge::context::Context;
use agent_bridge::digest;
use agent_bridge::release::state;
use agent_bridge::release::transaction::Interruption;
use support::prelude::*;
use support::release::tree;
use support::world::link;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The modes of everything in a folder. Nothing is opened: a pipe would keep its reader waiting.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let entries = walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().flatten();
    entries.map(|entry| (entry.path().to_path_buf(), mode(entry.path()))).collect()
}

/// A state folder with the modes that a copy under a usual umask leaves.
fn copied_state(world: &World) -> PathBuf {
    let state = world.state();
    fs::create_dir_all(state.join("blobs/ab")).unwrap();
    fs::create_dir(state.join("locks")).unwrap();
    for (name, bits) in
        [("bridge.db", 0o644), ("blobs/ab/1", 0o640), ("locks/x", 0o600), ("blobs/ab/2", 0o444)]
    {
        fs::write(state.join(name), name).unwrap();
        set_mode(&state.join(name), bits);
    }
    for (name, bits) in [("", 0o755), ("blobs", 0o750), ("blobs/ab", 0o2777), ("locks", 0o700)] {
        set_mode(&state.join(name), bits);
    }
    state
}

#[track_caller]
fn run(world: &World, arguments: &[&str], code: i32) -> Value {
    world.bridge([&["state"], arguments, &["--json"]].concat()).expect_code(code).json()
}

#[track_caller]
fn refused(world: &World, arguments: &[&str], code: i32, name: &str) -> String {
    let finished = world.bridge([&["state"], arguments].concat()).expect_code(code);
    assert!(finished.stderr().contains(name), "{name}: {}", finished.stderr());
    finished.stderr()
}

#[test]
fn what_the_server_makes_is_private_from_the_start() {
    let world = World::new().agent("codex", json!({ "bin": "codex" })).build();
    world.fake("codex", &json!({ "steps": [{ "answer": { "text": "hello", "dialect": "codex" } }] }));
    let before = run(&world, &["audit"], 0);
    assert_eq!((&before["exists"], &before["compliant"]), (&json!(false), &json!(true)));
    world.bridge(["delegate", "codex", "hi"]).expect_code(0);
    let after = tree(&world.state());
    let audit = run(&world, &[], 0);
    assert_eq!(audit["compliant"], true, "{audit:#}");
    assert!(audit["scannedItems"].as_u64().unwrap() > 3, "{audit:#}");
    assert_eq!(tree(&world.state()), after, "an audit changes nothing");
}

#[test]
fn protecting_and_restoring_goes_round_trip() {
    let world = World::new().build();
    let state = copied_state(&world);
    let before = tree(&state);
    let audit = run(&world, &["audit"], 3);
    assert_eq!(audit["violations"], json!({ "permissions": 6 }), "{audit:#}");
    assert_eq!(audit["scannedItems"], 8);

    let dry = run(&world, &["protect", "--dry-run"], 0);
    assert_eq!(dry["changedItems"], 6);
    assert_eq!(tree(&state), before);

    let backup = world.path().join("outside/was.json");
    let backup_text = backup.to_str().unwrap();
    refused(&world, &["protect", "--backup", backup_text], 2, "RELEASE_NOT_CONFIRMED");
    assert_eq!(tree(&state), before);
    let done = run(&world, &["protect", "--backup", backup_text, "--yes"], 0);
    assert_eq!(
        (&done["status"], &done["compliant"], &done["changedItems"]),
        (&json!("protected"), &json!(true), &json!(6))
    );
    assert_eq!(
        (mode(&state), mode(&state.join("blobs/ab")), mode(&state.join("blobs/ab/2"))),
        (0o700, 0o700, 0o600)
    );
    assert_eq!(mode(&backup), 0o600);
    let sha256 = done["backupSha256"].as_str().unwrap().to_owned();
    assert_eq!(digest::of_file(&backup).unwrap().0, sha256);
    run(&world, &["audit"], 0);
    let again =
        run(&world, &["protect", "--backup", world.path().join("outside/2").to_str().unwrap(), "--yes"], 0);
    assert_eq!(again["status"], "unchanged");
    assert!(!world.path().join("outside/2").exists());

    // What was made since stays as it is; what is gone is named.
    fs::write(state.join("new"), "").unwrap();
    set_mode(&state.join("new"), 0o600);
    fs::remove_file(state.join("blobs/ab/1")).unwrap();
    let restored = run(&world, &["restore", "--backup", backup_text, "--expect-sha256", &sha256, "--yes"], 0);
    assert_eq!((&restored["status"], &restored["gone"]), (&json!("restored"), &json!(["blobs/ab/1"])));
    let mut after = tree(&state);
    after.remove("new");
    let mut expected = before;
    expected.remove("blobs/ab/1");
    assert_eq!(after, expected);
    assert_eq!(mode(&state), 0o755);
}

#[test]
fn what_permissions_cannot_mend_is_refused_before_anything_is_changed() {
    let world = World::new().build();
    let backup = world.path().join("outside/was.json");
    let arguments = ["protect", "--backup", backup.to_str().unwrap(), "--yes"];
    let check = |kind: &str, spoil: &dyn Fn(&Path)| {
        let state = copied_state(&world);
        spoil(&state);
        let before = modes(&state);
        let audit = run(&world, &["audit"], 3);
        assert_eq!(audit["violations"][kind], 1, "{kind}: {audit:#}");
        refused(&world, &arguments, 2, "STATE_NOT_PROTECTABLE");
        assert_eq!(modes(&state), before, "{kind}");
        assert!(!backup.exists());
        fs::remove_dir_all(&state).unwrap();
    };
    let secret = world.write("secret", "not ours");
    set_mode(&secret, 0o644);
    check("link", &|state| link(&secret, &state.join("link")));
    check("link", &|state| link(Path::new("nowhere"), &state.join("blobs/dangling")));
    check("hardLink", &|state| {
        fs::hard_link(state.join("bridge.db"), world.path().join("outside/name")).unwrap();
    });
    check("special", &|state| {
        let made = std::process::Command::new("mkfifo").arg(state.join("fifo")).status().unwrap();
        assert!(made.success());
    });
    let is_root = fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
    if is_root {
        check("owner", &|state| {
            std::os::unix::fs::lchown(state.join("locks/x"), Some(65_534), None).unwrap()
        });
    } else {
        check("unreadable", &|state| set_mode(&state.join("locks"), 0o000));
    }
    assert_eq!(mode(&secret), 0o644);

    let state = copied_state(&world);
    fs::hard_link(state.join("bridge.db"), state.join("locks/second")).unwrap();
    let audit = run(&world, &["audit"], 3);
    assert_eq!(audit["violations"]["hardLink"], Value::Null, "both names are inside: {audit:#}");
}

#[test]
fn folders_that_hold_more_than_state_are_refused() {
    let world = World::new().build();
    let above = world.path().to_str().unwrap().to_owned();
    let home = world.home().to_str().unwrap().to_owned();
    for broad in ["/", &home, &above] {
        refused(&world, &["audit", "--state", broad], 2, "STATE_TOO_BROAD");
    }
    let target = copied_state(&world);
    let by_link = world.path().join("by-link");
    link(&target, &by_link);
    refused(&world, &["audit", "--state", by_link.to_str().unwrap()], 2, "STATE_TOO_BROAD");
}

#[test]
fn the_record_has_its_place_and_is_not_believed_when_it_was_changed() {
    let world = World::new().build();
    let state = copied_state(&world);
    let before = tree(&state);
    let inside = state.join("was.json");
    let there = world.write("there", "mine");
    link(&state, &world.path().join("to-state"));
    let by_link = world.path().join("to-state/was.json");
    for place in [&inside, &there, &by_link, &world.path().join("not/there/was.json")] {
        refused(&world, &["protect", "--backup", place.to_str().unwrap(), "--yes"], 2, "STATE_BACKUP_PLACE");
    }
    assert_eq!((tree(&state), fs::read_to_string(&there).unwrap().as_str()), (before, "mine"));

    let backup = world.path().join("outside/was.json");
    let file = backup.to_str().unwrap();
    let done = run(&world, &["protect", "--backup", file, "--yes"], 0);
    let sha256 = done["backupSha256"].as_str().unwrap().to_owned();
    let protected = tree(&state);
    let restore = |file: &str, sha256: &str, code: i32, name: &str| {
        refused(&world, &["restore", "--backup", file, "--expect-sha256", sha256, "--yes"], code, name);
        assert_eq!(tree(&state), protected);
    };
    restore(file, &"0".repeat(64), 3, "STATE_BACKUP_INVALID");
    let text = fs::read_to_string(&backup).unwrap();
    let forge = |change: &dyn Fn(&mut Value)| {
        let mut value: Value = serde_json::from_str(&text).unwrap();
        change(&mut value);
        let path = world.path().join("outside/forged.json");
        fs::write(&path, value.to_string()).unwrap();
        (path.to_str().unwrap().to_owned(), digest::of_file(&path).unwrap().0)
    };
    for change in [
        &(|value: &mut Value| value["statePath"] = json!("/elsewhere")) as &dyn Fn(&mut Value),
        &|value| value["items"][0]["path"] = json!("../repo/there"),
        &|value| value["items"][0]["kind"] = json!("link"),
        &|value| value["itemCount"] = json!(1),
        &|value| value["kind"] = json!("other"),
        &|value| value["extra"] = json!(1),
        &|value| value["items"][0]["before"]["owner"] = json!("0:0:0"),
    ] {
        let (path, sha256) = forge(change);
        restore(&path, &sha256, 3, "STATE_BACKUP_INVALID");
    }

    set_mode(&state.join("bridge.db"), 0o660);
    let changed = tree(&state);
    refused(&world, &["restore", "--backup", file, "--expect-sha256", &sha256, "--yes"], 2, "STATE_CHANGED");
    assert_eq!(tree(&state), changed, "nothing was set, not even what would fit");
}

fn context(world: &World) -> Context {
    Context { home: Some(world.home()), ..Context::from_process() }
}

#[test]
fn an_interrupt_puts_everything_back_and_keeps_the_record() {
    let world = World::new().build();
    let state = copied_state(&world);
    let before = tree(&state);
    let backup = world.path().join("outside/was.json");
    let interruption = Interruption::default();
    interruption.interrupt();
    let error = state::protect(&context(&world), &state, &backup, &interruption, false).unwrap_err();
    assert!(matches!(error, state::StateError::Undone { .. }), "{error}");
    assert_eq!((tree(&state), backup.exists()), (before, true));
}

#[test]
fn a_half_done_protection_is_restored_from_its_record() {
    let world = World::new().build();
    let state = copied_state(&world);
    let before = tree(&state);
    let backup = world.path().join("outside/was.json");
    let done = state::protect(&context(&world), &state, &backup, &Interruption::default(), false).unwrap();
    // As if it had been killed after some of them.
    set_mode(&state.join("bridge.db"), 0o644);
    set_mode(&state.join("blobs/ab/1"), 0o640);
    let sha256 = done.backup_sha256.unwrap();
    state::restore(&context(&world), &state, &backup, &sha256, &Interruption::default()).unwrap();
    assert_eq!(tree(&state), before);
}

#[test]
fn exchanging_a_folder_for_a_link_leads_nobody_out() {
    let world = World::new().build();
    let state = copied_state(&world);
    let outside = world.outside();
    for name in ["ab", "ab/1", "ab/2"] {
        let path = outside.join(name);
        if name == "ab" {
            fs::create_dir(&path).unwrap()
        } else {
            fs::write(&path, "not ours").unwrap()
        }
        set_mode(&path, if name == "ab" { 0o755 } else { 0o644 });
    }
    fs::write(outside.join("outside-only"), "").unwrap();
    set_mode(&outside.join("outside-only"), 0o644);
    let before = tree(&outside);
    let (blobs, aside, bait) = (state.join("blobs"), world.path().join("aside"), world.path().join("bait"));
    link(&outside, &bait);
    let stop = AtomicBool::new(false);
    let mut swaps = 0_u64;
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let mut swaps = 0;
            while !stop.load(Ordering::Relaxed) {
                fs::rename(&blobs, &aside).unwrap();
                fs::rename(&bait, &blobs).unwrap();
                fs::rename(&blobs, &bait).unwrap();
                fs::rename(&aside, &blobs).unwrap();
                swaps += 1;
            }
            swaps
        });
        for round in 0..200 {
            let backup = world.path().join(format!("backup-{round}"));
            let _ = state::protect(&context(&world), &state, &backup, &Interruption::default(), false);
            for _ in 0..10 {
                if let Ok(audit) = state::audit(&context(&world), &state) {
                    let escaped = audit.findings.iter().find(|found| found.path.contains("outside-only"));
                    assert_eq!(escaped, None, "the walk was led out");
                }
            }
            for (name, bits) in [("bridge.db", 0o644), ("", 0o755)] {
                set_mode(&state.join(name), bits);
            }
        }
        stop.store(true, Ordering::Relaxed);
        swaps = swapper.join().unwrap();
    });
    assert!(swaps > 100, "the folder was exchanged {swaps} times");
    assert_eq!(tree(&outside), before, "nothing outside was touched");
}

#[test]
fn folders_above_that_others_can_write_to_are_named() {
    let world = World::new().build();
    let above = world.path().join("shared");
    let state = above.join("state");
    fs::create_dir_all(&state).unwrap();
    set_mode(&state, 0o700);
    set_mode(&above, 0o777);
    let audit = run(&world, &["audit", "--state", state.to_str().unwrap()], 0);
    let weak = audit["weakParents"].to_string();
    assert!(weak.contains("shared") && weak.contains("0777"), "{audit:#}");
    set_mode(&above, 0o1777);
    let audit = run(&world, &["audit", "--state", state.to_str().unwrap()], 0);
    assert!(!audit["weakParents"].to_string().contains("shared"), "sticky is enough: {audit:#}");
}

/// As a user without rights: the same commands on a folder of its own.
#[test]
fn a_user_without_rights_protects_what_is_theirs() {
    use std::os::unix::process::CommandExt;
    let world = World::new().build();
    let state = copied_state(&world);
    let (home, out) = (world.home(), world.path().join("out"));
    fs::create_dir(&out).unwrap();
    let is_root = fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
    // Where the tests are built may be closed to that user.
    let program = world.path().join("agent-bridge-copy");
    fs::copy(BRIDGE, &program).unwrap();
    set_mode(world.path(), 0o755);
    if is_root {
        let owned = walkdir::WalkDir::new(&state)
            .into_iter()
            .chain(walkdir::WalkDir::new(&out))
            .chain(walkdir::WalkDir::new(&home));
        for entry in owned {
            std::os::unix::fs::lchown(entry.unwrap().path(), Some(65_534), Some(65_534)).unwrap();
        }
        set_mode(&world.repo(), 0o755);
    }
    let command = |arguments: &[&str]| {
        let mut command = world.command(&program);
        command.arg("state").args(arguments).args(["--json", "--state"]).arg(&state);
        if is_root {
            command.uid(65_534).gid(65_534);
        }
        process::run(command, DEADLINE)
    };
    let backup = out.join("was.json");
    let before = tree(&state);
    assert_eq!(command(&["audit"]).expect_code(3).json()["violations"], json!({ "permissions": 6 }));
    let done = command(&["protect", "--yes", "--backup", backup.to_str().unwrap()]).expect_code(0).json();
    assert_eq!(done["compliant"], true, "{done:#}");
    let sha256 = done["backupSha256"].as_str().unwrap().to_owned();
    command(&["restore", "--yes", "--backup", backup.to_str().unwrap(), "--expect-sha256", &sha256])
        .expect_code(0);
    assert_eq!(tree(&state), before);
    // A file that even its owner may not read.
    set_mode(&state.join("bridge.db"), 0o000);
    let second = out.join("second.json");
    command(&["protect", "--yes", "--backup", second.to_str().unwrap()]).expect_code(0);
    assert_eq!(mode(&state.join("bridge.db")), 0o600);
}

#[cfg(target_os = "linux")]
#[test]
fn a_default_access_list_is_taken_away_and_given_back() {
    let world = World::new().build();
    let state = copied_state(&world);
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights) in [(0x01_u16, 7_u16), (0x04, 5), (0x20, 5)] {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(u32::MAX.to_le_bytes());
    }
    let name = "system.posix_acl_default";
    let blobs = state.join("blobs");
    if rustix::fs::setxattr(&blobs, name, &list, rustix::fs::XattrFlags::empty()).is_err() {
        eprintln!("skipped: no access lists on this file system");
        return;
    }
    assert_eq!(run(&world, &["audit"], 3)["violations"]["inheritance"], 1);
    let backup = world.path().join("outside/was.json");
    let done = run(&world, &["protect", "--backup", backup.to_str().unwrap(), "--yes"], 0);
    let mut value = [0_u8; 256];
    assert!(rustix::fs::getxattr(&blobs, name, value.as_mut_slice()).is_err());
    let sha256 = done["backupSha256"].as_str().unwrap();
    run(&world, &["restore", "--backup", backup.to_str().unwrap(), "--expect-sha256", sha256, "--yes"], 0);
    let length = rustix::fs::getxattr(&blobs, name, value.as_mut_slice()).unwrap();
    assert_eq!(value[..length], list);
}

#[cfg(target_os = "linux")]
#[test]
fn a_mounted_folder_is_found_and_not_entered() {
    let world = World::new().build();
    let state = copied_state(&world);
    let mut command = world.command("unshare");
    command.args([
        "-m",
        "sh",
        "-c",
        "mount --bind \"$1\" \"$2\" || exit 77; exec \"$3\" state audit --json",
        "sh",
    ]);
    command.arg(world.outside()).arg(state.join("locks")).arg(BRIDGE);
    let finished = process::run(command, DEADLINE);
    if finished.code == Some(77) || finished.stderr().contains("unshare") {
        eprintln!("skipped: nothing can be mounted here");
        return;
    }
    let audit = finished.expect_code(3).json();
    assert_eq!(audit["violations"]["mountPoint"], 1, "{audit:#}");
}
