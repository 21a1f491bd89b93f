//! Repositories of every kind: without a commit, detached, linked, inside of one another, bare, split, sparse.

use agent_bridge::observe::{ChangeKind, FileKind, Kind, Risk};

use super::support::world::write;
use super::*;

/// A repository in another folder of the world, with a commit.
fn repository(lab: &Lab, name: &str) -> PathBuf {
    let folder = lab.world.path().join(name);
    write(&folder.join("inner.rs"), "fn inner() {}\n");
    lab.git_in(&folder, ["init", "--quiet", "--initial-branch=main"]);
    lab.git_in(&folder, ["add", "--all"]);
    lab.git_in(&folder, ["commit", "--quiet", "--message=Inner"]);
    folder
}

/// The world's repository with a submodule at `lib`.
fn with_submodule() -> Lab {
    let lab = Lab::new();
    let inner = repository(&lab, "library");
    let inner = inner.to_str().unwrap();
    lab.world.git(["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner, "lib"]);
    lab.world.git(["commit", "--quiet", "--message=With a submodule"]);
    lab
}

#[test]
fn without_any_commit() {
    let lab = Lab::new();
    let folder = lab.world.path().join("unborn");
    write(&folder.join("a.rs"), "1\n");
    lab.git_in(&folder, ["init", "--quiet", "--initial-branch=main"]);
    lab.git_in(&folder, ["add", "a.rs"]);
    expect_unchanged(&lab.observe_in(&folder, |_| {}));
    let observation = lab.observe_in(&folder, |_| {
        write(&folder.join("a.rs"), "2\n");
        write(&folder.join("b.rs"), "1\n");
        lab.git_in(&folder, ["commit", "--quiet", "--message=first"]);
    });
    expect(&observation, &[("a.rs", ChangeKind::Modified), ("b.rs", ChangeKind::Added)]);
    let moves = &observation.moves;
    assert_eq!((moves.head.before.is_none(), moves.head.after.is_some()), (true, true));
    assert_eq!(moves.branch.before.as_deref(), Some("main"));
    assert_eq!(moves.commits.len(), 1);
}

#[test]
fn without_any_file() {
    let lab = Lab::new();
    let folder = lab.world.path().join("empty");
    std::fs::create_dir(&folder).unwrap();
    lab.git_in(&folder, ["init", "--quiet"]);
    expect_unchanged(&lab.observe_in(&folder, |_| {}));
    let observation = lab.observe_in(&folder, |_| write(&folder.join("a"), "1\n"));
    expect(&observation, &[("a", ChangeKind::Added)]);
}

#[test]
fn with_a_detached_head() {
    let lab = Lab::new();
    lab.world.git(["switch", "--quiet", "--detach"]);
    let observation = lab.observe(|world| {
        world.write("a", "1\n");
        world.git(["add", "a"]);
        world.git(["commit", "--quiet", "--message=on no branch"]);
    });
    expect(&observation, &[("a", ChangeKind::Added)]);
    assert_eq!(observation.moves.branch.after, None);
    assert!(observation.moves.head.moved() && observation.moves.refs_moved.is_empty());
    assert_eq!(observation.moves.commits[0].subject, "on no branch");
}

#[test]
fn in_a_linked_work_tree() {
    let lab = Lab::new();
    let linked = lab.world.path().join("linked");
    lab.world.git(["worktree", "add", "--quiet", linked.to_str().unwrap(), "-b", "aside"]);
    assert!(linked.join(".git").is_file());
    expect_unchanged(&lab.observe_in(&linked, |_| {}));
    let observation = lab.observe_in(&linked, |world| {
        write(&linked.join("a"), "1\n");
        lab.git_in(&linked, ["add", "a"]);
        lab.git_in(&linked, ["commit", "--quiet", "--message=aside"]);
        // Not of this work tree, but of the same repository.
        world.write("b", "1\n");
    });
    expect(&observation, &[("a", ChangeKind::Added)]);
    assert_eq!(observation.moves.branch.after.as_deref(), Some("aside"));
    assert_eq!(observation.moves.refs_moved[0].name, "refs/heads/aside");
}

#[test]
fn in_a_folder_of_a_repository_what_changed_around_it_is_said() {
    let lab = Lab::of(
        World::new().file("api/src/a.rs", "1\n").file("web/b.rs", "1\n").file("api2/c.rs", "1\n").build(),
    );
    let folder = lab.world.file("api");
    expect_unchanged(&lab.observe_in(&folder, |_| {}));
    let observation = lab.observe_in(&folder, |world| {
        world.write("api/src/a.rs", "2\n");
        world.write("web/b.rs", "2\n");
        world.write("api2/c.rs", "2\n");
        std::fs::rename(world.file("README.md"), world.file("api/README.md")).unwrap();
    });
    expect(&observation, &[("README.md", ChangeKind::Renamed), ("src/a.rs", ChangeKind::Modified)]);
    assert_eq!(file(&observation, "README.md").old_path.as_deref(), Some("../README.md"));
    let outside = observation.outside.as_ref().unwrap();
    assert_eq!(outside.count, 2);
    for it in &outside.files {
        assert_eq!(it.risk, Risk::High);
        assert!(it.reasons.contains(&"outside the working folder".to_owned()), "{it:?}");
    }
    let first: Vec<&str> = observation.review.iter().map(|target| target.file.as_str()).take(2).collect();
    assert_eq!(first, ["../api2/c.rs", "../web/b.rs"]);

    let only_outside = lab.observe_in(&folder, |world| {
        world.write("web/b.rs", "3\n");
    });
    assert_eq!(
        (only_outside.count, only_outside.changed(), only_outside.risk),
        (0, Some(true), Some(Risk::High))
    );
}

#[test]
fn in_a_folder_that_the_repository_ignores() {
    let lab = Lab::of(World::new().file(".gitignore", "work/\n").build());
    lab.world.write("work/here/a.txt", "1\n");
    let folder = lab.world.file("work/here");
    let observation = lab.observe_in(&folder, |world| {
        world.write("work/here/a.txt", "2\n");
        world.write("work/here/b.txt", "1\n");
        world.write("outside.rs", "1\n");
    });
    expect(&observation, &[("a.txt", ChangeKind::Modified), ("b.txt", ChangeKind::Added)]);
    assert_eq!(observation.outside.as_ref().unwrap().count, 1);
    assert!(observation.notes[0].contains("ignores the working folder"));
}

#[test]
fn a_submodule_s_own_changes_are_not_called_clean() {
    let lab = with_submodule();
    expect_unchanged(&lab.observe(|_| {}));
    let observation = lab.observe(|world| {
        world.write("lib/inner.rs", "fn inner() { changed() }\n");
        world.write("lib/untracked.rs", "fn new() {}\n");
    });
    expect(&observation, &[("lib/inner.rs", ChangeKind::Modified), ("lib/untracked.rs", ChangeKind::Added)]);
    assert_eq!(file(&observation, "lib/inner.rs").lines.as_deref(), Some("1-1"));
    // It was dirty already, and the next look knows that.
    expect_unchanged(&lab.observe(|_| {}));
}

#[test]
fn a_submodule_at_another_commit_is_told() {
    let lab = with_submodule();
    let observation = lab.observe(|world| {
        world.write("lib/inner.rs", "fn inner() { committed() }\n");
        lab.git_in(&world.file("lib"), ["add", "--all"]);
        lab.git_in(&world.file("lib"), ["commit", "--quiet", "--message=Inside"]);
    });
    expect(&observation, &[("lib", ChangeKind::Modified), ("lib/inner.rs", ChangeKind::Modified)]);
    assert_eq!(file(&observation, "lib").kind, FileKind::Submodule);
    let inner = &observation.repositories[0];
    assert_eq!((inner.path.as_str(), inner.moves.commits[0].subject.as_str()), ("lib", "Inside"));
}

#[test]
fn a_submodule_that_was_never_fetched_or_vanishes_is_no_crash() {
    let lab = with_submodule();
    lab.world.git(["submodule", "--quiet", "deinit", "--all", "--force"]);
    expect_unchanged(&lab.observe(|_| {}));
    let lab = with_submodule();
    let observation = lab.observe(|world| std::fs::remove_dir_all(world.file("lib")).unwrap());
    expect(&observation, &[("lib", ChangeKind::Deleted)]);
    assert_eq!(observation.changed(), Some(true));
}

#[test]
fn in_a_submodule_the_repository_is_the_submodule() {
    let lab = with_submodule();
    let observation = lab.observe_in(&lab.world.file("lib"), |world| {
        world.write("lib/inner.rs", "fn other() {}\n");
        world.write("README.md", "not of the submodule\n");
    });
    expect(&observation, &[("inner.rs", ChangeKind::Modified)]);
}

#[test]
fn a_repository_inside_that_nobody_registered_is_looked_at() {
    let lab = Lab::new();
    let inner = repository(&lab, "repo/vendor/inner");
    expect_unchanged(&lab.observe(|_| {}));
    let observation = lab.observe(|_| {
        write(&inner.join("inner.rs"), "fn changed() {}\n");
        lab.git_in(&inner, ["switch", "--quiet", "--create", "hidden"]);
        repository(&lab, "repo/vendor/new");
    });
    expect(
        &observation,
        &[("vendor/inner/inner.rs", ChangeKind::Modified), ("vendor/new", ChangeKind::Added)],
    );
    assert_eq!(observation.repositories[0].moves.branch.after.as_deref(), Some("hidden"));
    let new = file(&observation, "vendor/new");
    assert_eq!((new.kind, new.risk), (FileKind::Submodule, Risk::High));
    // Gone again.
    let observation = lab.observe(|_| std::fs::remove_dir_all(&inner).unwrap());
    expect(&observation, &[("vendor/inner", ChangeKind::Deleted)]);
}

#[test]
fn what_cannot_be_observed_is_refused_by_name() {
    let lab = Lab::new();
    let bare = lab.world.path().join("bare.git");
    lab.git_in(lab.world.path(), ["clone", "--quiet", "--bare", "repo", "bare.git"]);
    for (folder, says) in [(bare, "bare repository"), (lab.world.file(".git/hooks"), "own data")] {
        let observation = lab.observe_in(&folder, |_| {});
        assert_eq!((observation.status, observation.changed()), (Status::NotObserved, None));
        assert!(observation.reason.as_ref().unwrap().contains(says), "{:?}", observation.reason);
    }
    let broken = lab.world.path().join("broken");
    write(&broken.join(".git"), "gitdir: /nowhere\n");
    let observation = lab.observe_in(&broken, |_| {});
    assert_eq!(observation.status, Status::NotObserved);
    let elsewhere = repository(&lab, "elsewhere");
    let outside = lab.world.outside();
    lab.git_in(&elsewhere, ["config", "core.worktree", outside.to_str().unwrap()]);
    assert_eq!(lab.observe_in(&elsewhere, |_| {}).status, Status::NotObserved);
}

#[test]
fn no_git_is_said_and_a_folder_that_needs_none_is_observed() {
    let mut lab = Lab::new();
    let empty = lab.world.path().join("no-programs");
    std::fs::create_dir(&empty).unwrap();
    lab.world.set_env("PATH", empty.as_os_str());
    let observation = lab.observe(|_| {});
    assert_eq!((observation.status, observation.changed()), (Status::NotObserved, None));
    assert!(
        observation.reason.as_ref().unwrap().contains("git cannot be started"),
        "{:?}",
        observation.reason
    );
    let plain = lab.world.outside();
    let observation = lab.observe_in(&plain, |_| write(&plain.join("a"), "1"));
    assert_eq!((observation.kind, observation.count), (Some(Kind::Folder), 1));
}

#[test]
fn every_form_of_the_index_is_taken() {
    for settings in [
        &[["config", "index.version", "4"]][..],
        &[["update-index", "--split-index", "--refresh"]][..],
        &[["config", "core.untrackedCache", "true"], ["update-index", "--untracked-cache", "--refresh"]][..],
        &[["config", "index.skipHash", "true"]][..],
        &[["config", "feature.manyFiles", "true"]][..],
    ] {
        let lab = Lab::of(World::new().file("src/a.rs", "1\n").file("src/ab/c.rs", "1\n").build());
        for setting in settings {
            lab.world.git(*setting);
        }
        lab.world.write("more.rs", "1\n");
        lab.world.git(["add", "--all"]);
        expect_unchanged(&lab.observe(|_| {}));
        let observation = lab.observe(|world| {
            world.write("src/ab/c.rs", "2\n");
            world.write("more.rs", "2\n");
        });
        expect(&observation, &[("more.rs", ChangeKind::Modified), ("src/ab/c.rs", ChangeKind::Modified)]);
        assert_eq!(observation.moves.staged_changed, Some(false), "{settings:?}");
    }
}

#[test]
fn in_a_sparse_checkout() {
    for sparse_index in ["--sparse-index", "--no-sparse-index"] {
        let lab = Lab::of(
            World::new().file("in/a.rs", "1\n").file("out/b.rs", "1\n").file("out/deep/c.rs", "1\n").build(),
        );
        lab.world.git(["sparse-checkout", "set", "--cone", sparse_index, "in"]);
        assert!(!lab.world.file("out/b.rs").exists());
        expect_unchanged(&lab.observe(|_| {}));
        let observation = lab.observe(|world| {
            world.write("in/a.rs", "2\n");
            world.write("out/b.rs", "2\n");
            world.write("out/new.rs", "1\n");
        });
        expect(
            &observation,
            &[
                ("in/a.rs", ChangeKind::Modified),
                ("out/b.rs", ChangeKind::Modified),
                ("out/new.rs", ChangeKind::Added),
            ],
        );
    }
}

#[test]
fn with_intent_to_add_and_in_the_middle_of_a_merge() {
    let lab = Lab::of(World::new().file("both.rs", "1\n").build());
    let world = &lab.world;
    world.write("intended.rs", "1\n");
    world.git(["add", "--intent-to-add", "intended.rs"]);
    expect_unchanged(&lab.observe(|_| {}));
    let observation = lab.observe(|world| {
        world.write("intended.rs", "2\n");
    });
    expect(&observation, &[("intended.rs", ChangeKind::Modified)]);

    let lab = Lab::of(World::new().file("both.rs", "1\n").build());
    let world = &lab.world;
    world.git(["switch", "--quiet", "--create", "other"]);
    world.write("both.rs", "theirs\n");
    world.git(["commit", "--quiet", "--all", "--message=theirs"]);
    world.git(["switch", "--quiet", "main"]);
    world.write("both.rs", "ours\n");
    world.git(["commit", "--quiet", "--all", "--message=ours"]);
    let mut merge = world.command("git");
    merge.args(["merge", "other"]);
    assert_eq!(process::run(merge, DEADLINE).code, Some(1));
    expect_unchanged(&lab.observe(|_| {}));
    let observation = lab.observe(|world| {
        world.write("both.rs", "settled\n");
    });
    expect(&observation, &[("both.rs", ChangeKind::Modified)]);
}

#[test]
fn with_the_longer_object_ids() {
    let lab = Lab::new();
    let folder = lab.world.path().join("sha256");
    write(&folder.join("a.rs"), "1\n");
    lab.git_in(&folder, ["init", "--quiet", "--object-format=sha256"]);
    lab.git_in(&folder, ["add", "--all"]);
    lab.git_in(&folder, ["commit", "--quiet", "--message=Long"]);
    expect_unchanged(&lab.observe_in(&folder, |_| {}));
    let observation = lab.observe_in(&folder, |_| {
        write(&folder.join("a.rs"), "2\n");
        write(&folder.join("b.rs"), "2\n");
    });
    expect(&observation, &[("a.rs", ChangeKind::Modified), ("b.rs", ChangeKind::Added)]);
    assert_eq!(file(&observation, "a.rs").lines.as_deref(), Some("1-1"));
}

#[test]
fn with_borrowed_objects_and_a_cut_history() {
    let lab = Lab::new();
    let world = &lab.world;
    world.git(["commit", "--quiet", "--allow-empty", "--message=second"]);
    let source = format!("file://{}", world.repo().display());
    lab.git_in(world.path(), ["clone", "--quiet", "--shared", "repo", "borrowed"]);
    lab.git_in(world.path(), ["clone", "--quiet", "--depth=1", &source, "shallow"]);
    for name in ["borrowed", "shallow"] {
        let folder = world.path().join(name);
        let observation = lab.observe_in(&folder, |_| {
            write(&folder.join("README.md"), "2\n");
            lab.git_in(&folder, ["commit", "--quiet", "--all", "--message=third"]);
        });
        expect(&observation, &[("README.md", ChangeKind::Modified)]);
        let subjects: Vec<&str> = observation.moves.commits.iter().map(|it| it.subject.as_str()).collect();
        assert_eq!(subjects, ["third"], "{name}");
    }
}

#[test]
fn line_ends_that_git_converts_are_no_change() {
    let lab = Lab::new();
    let world = &lab.world;
    world.git(["config", "core.autocrlf", "true"]);
    world.write("a.rs", "one\r\ntwo\r\n");
    world.git(["add", "a.rs"]);
    world.git(["commit", "--quiet", "--message=a"]);
    let observation = lab.observe(|world| {
        // The same content with another time is read again.
        world.write("a.rs", "one\r\ntwo\r\n");
    });
    expect_unchanged(&observation);
    let observation = lab.observe(|world| {
        world.write("a.rs", "one\r\n2\r\n");
    });
    assert_eq!(file(&observation, "a.rs").lines.as_deref(), Some("2-2"));
}

#[test]
fn line_ends_that_were_committed_as_they_are_stay_so() {
    let lab = Lab::new();
    let world = &lab.world;
    world.write("a.rs", "one\r\ntwo\r\nthree\r\n");
    world.git(["add", "a.rs"]);
    world.git(["commit", "--quiet", "--message=a"]);
    world.git(["config", "core.autocrlf", "true"]);
    let observation = lab.observe(|world| {
        world.write("a.rs", "one\r\n2\r\nthree\r\n");
    });
    assert_eq!(file(&observation, "a.rs").lines.as_deref(), Some("2-2"));

    let lab = Lab::of(World::new().file(".gitattributes", "* text=auto\n").build());
    let world = &lab.world;
    world.write("dirty.rs", "one\r\ntwo\r\n");
    expect_unchanged(&lab.observe(|_| {}));
    let observation = lab.observe(|world| {
        world.write("dirty.rs", "one\r\n2\r\n");
    });
    assert_eq!(file(&observation, "dirty.rs").lines.as_deref(), Some("2-2"));
}

#[test]
fn a_broken_list_of_submodules_is_no_crash() {
    let lab = with_submodule();
    let observation = lab.observe(|world| {
        world.write(".gitmodules", "[submodule \"lib\n\tpath = ../../etc\n");
        world.write("a.rs", "1\n");
    });
    // Git may refuse to go on, and then nobody knows.
    assert_ne!(observation.changed(), Some(false));
}

#[test]
fn a_path_of_signs_and_blanks() {
    let lab = Lab::of(World::new().below("A 'B' é #;$").build());
    let observation = lab.observe(|world| {
        world.write("a.rs", "1\n");
    });
    expect(&observation, &[("a.rs", ChangeKind::Added)]);
}

#[cfg(unix)]
#[test]
fn a_path_that_no_list_of_paths_can_hold() {
    let lab = Lab::new();
    let folder = repository(&lab, "a:b\n\"c\\d\"");
    let observation = lab.observe_in(&folder, |_| write(&folder.join("a.rs"), "1\n"));
    expect(&observation, &[("a.rs", ChangeKind::Added)]);
}
