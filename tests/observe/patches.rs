//! The patch: whole, exact, bounded, and taken by `git apply`.

use std::fs::File;

use agent_bridge::observe::PatchEnd;

use super::support::world::write;
use super::*;

/// Looks before and after `run`; the patch is written to the file `patch` of the world.
fn patch(lab: &Lab, run: impl FnOnce(&World)) -> Option<PatchEnd> {
    let snapshot = lab.before();
    run(&lab.world);
    let change = lab.after(&snapshot);
    assert_ne!(change.observation.status, Status::NotObserved, "{:?}", change.observation.reason);
    let mut file = File::create(lab.world.path().join("patch")).unwrap();
    change.write_patch(&mut file, DEADLINE, &mut || None).unwrap()
}

/// All files below a folder, but for git's.
fn content(folder: &Path) -> std::collections::BTreeMap<String, (Vec<u8>, bool)> {
    let mut found = std::collections::BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
            if path.file_name().unwrap() == ".git" {
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                found.insert(name, (target.into_os_string().into_encoded_bytes(), true));
            } else {
                let mark = agent_bridge::platform::FileMark::of(&path).unwrap();
                found.insert(name, (std::fs::read(&path).unwrap(), mark.executable));
            }
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    for (name, (bytes, _)) in content(from) {
        write(&to.join(name), bytes);
    }
}

#[test]
fn applied_to_what_was_before_it_gives_what_was_after() {
    let lab = Lab::of(
        World::new()
            .file("src/a.rs", "one\ntwo\nthree\n")
            .file("src/moved.rs", "a\nb\nc\nd\ne\nf\n")
            .file("gone.txt", "gone\n")
            .file("no-end.txt", "no end")
            .build(),
    );
    let world = &lab.world;
    world.write("data.bin", [0, 1, 2, 3, 255]);
    world.write("dirty.txt", "dirty before\n");
    // What was there before, dirty and untracked files included.
    let before = world.path().join("before");
    copy(&world.repo(), &before);
    lab.git_in(&before, ["init", "--quiet"]);
    let end = patch(&lab, |world| {
        world.write("src/a.rs", "one\n2\nthree\nfour\n");
        std::fs::rename(world.file("src/moved.rs"), world.file("src/renamed.rs")).unwrap();
        std::fs::remove_file(world.file("gone.txt")).unwrap();
        world.write("no-end.txt", "no end either");
        world.write("data.bin", (0..=255).cycle().take(5000).collect::<Vec<u8>>());
        world.write("new.bin", [0; 300]);
        world.write("dirty.txt", "dirty after\n");
        world.write("empty.txt", "");
        world.write("Ünï/日本.txt", "-- \n+++ b/x\n@@ -1 +1 @@\n");
        if cfg!(unix) {
            world.write("tab\t\"quote\"\nline", "x\n");
        }
        world.git(["add", "src"]);
        world.git(["commit", "--quiet", "--message=A part of it"]);
    })
    .unwrap();
    let written = std::fs::read(world.path().join("patch")).unwrap();
    assert_eq!((end.bytes, end.truncated, end.unread), (written.len() as u64, false, 0));
    assert_eq!(end.sha256, agent_bridge::digest::of_bytes(&written));
    lab.git_in(&before, ["apply", "--whitespace=nowarn", "../patch"]);
    assert_eq!(content(&before), content(&world.repo()));
}

#[cfg(unix)]
#[test]
fn modes_and_links_are_in_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::of(World::new().file("run.sh", "#!/bin/sh\n").file("becomes", "a file\n").build());
    let world = &lab.world;
    let before = world.path().join("before");
    copy(&world.repo(), &before);
    lab.git_in(&before, ["init", "--quiet"]);
    patch(&lab, |world| {
        std::fs::set_permissions(world.file("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::remove_file(world.file("becomes")).unwrap();
        super::support::world::link(Path::new("README.md"), &world.file("becomes"));
    })
    .unwrap();
    lab.git_in(&before, ["apply", "../patch"]);
    assert_eq!(content(&before), content(&world.repo()));
}

#[test]
fn nothing_changed_is_no_patch() {
    let lab = Lab::new();
    assert_eq!(patch(&lab, |_| {}), None);
    let lab = Lab::new();
    let folder = lab.world.outside();
    let snapshot = lab.before_in(&folder);
    write(&folder.join("a"), "1");
    let change = lab.after(&snapshot);
    let mut file = File::create(lab.world.path().join("patch")).unwrap();
    assert_eq!(change.write_patch(&mut file, DEADLINE, &mut || None), Ok(None));
}

#[test]
fn at_its_limit_it_is_cut_behind_a_whole_file_and_says_so() {
    let mut lab = Lab::new();
    lab.limits.patch_bytes = 3000;
    let before = lab.world.path().join("before");
    copy(&lab.world.repo(), &before);
    lab.git_in(&before, ["init", "--quiet"]);
    let end = patch(&lab, |world| {
        for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
            world.write(name, "some line of text\n".repeat(50));
        }
    })
    .unwrap();
    assert!(end.truncated && end.bytes <= 3000);
    lab.git_in(&before, ["apply", "../patch"]);
    assert!(before.join("b.txt").exists() && !before.join("c.txt").exists());
}

#[test]
fn files_that_were_not_read_are_said_to_be_missing() {
    let mut lab = Lab::new();
    lab.limits.file_bytes = 100;
    let end = patch(&lab, |world| {
        world.write("large.txt", "x".repeat(200));
        world.write("small.txt", "x\n");
    })
    .unwrap();
    assert_eq!((end.unread, end.truncated), (1, false));
}

#[test]
fn a_submodule_s_files_are_in_it_at_their_place() {
    let lab = Lab::new();
    let inner = lab.world.file("vendor/inner");
    write(&inner.join("a.rs"), "1\n");
    lab.git_in(&inner, ["init", "--quiet", "--initial-branch=main"]);
    lab.git_in(&inner, ["add", "--all"]);
    lab.git_in(&inner, ["commit", "--quiet", "--message=inner"]);
    let before = lab.world.path().join("before");
    copy(&lab.world.repo(), &before);
    lab.git_in(&before, ["init", "--quiet"]);
    patch(&lab, |_| write(&inner.join("a.rs"), "2\n")).unwrap();
    lab.git_in(&before, ["apply", "../patch"]);
    assert_eq!(std::fs::read_to_string(before.join("vendor/inner/a.rs")).unwrap(), "2\n");
}

#[test]
fn work_that_a_clean_up_would_destroy_is_kept_or_counted() {
    let lab = Lab::of(World::new().file(".gitignore", "*.log\n").build());
    let snapshot = lab.before();
    lab.world.write("committed.rs", "1\n");
    lab.world.git(["add", "committed.rs"]);
    lab.world.git(["commit", "--quiet", "--message=kept"]);
    lab.world.write("untracked.rs", "1\n");
    lab.world.write("ignored.log", "1\n");
    let change = lab.after(&snapshot);
    let path = lab.world.path().join("patch");
    change.write_patch(&mut File::create(&path).unwrap(), DEADLINE, &mut || None).unwrap().unwrap();
    // Everything is undone, as a clean-up of a work tree does it.
    lab.world.git(["reset", "--quiet", "--hard", "HEAD~1"]);
    lab.world.git(["clean", "--quiet", "-dfx"]);
    lab.world.git(["apply", "../patch"]);
    assert_eq!(
        (lab.world.read("committed.rs"), lab.world.read("untracked.rs")),
        ("1\n".into(), "1\n".into())
    );
    // What is in no patch is known to have been there.
    let observation = &change.observation;
    assert_eq!(observation.moves.commits[0].subject, "kept");
    let ignored = observation.ignored.as_ref().unwrap();
    assert_eq!((ignored.before, ignored.after), (Some(0), Some(1)));
}
