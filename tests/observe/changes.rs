//! Changes of every kind in an ordinary repository.

use agent_bridge::observe::{ChangeKind, FileKind, Risk};

use super::support::world::write;
use super::*;

fn numbered(from: usize, to: usize) -> String {
    (from..=to).map(|number| format!("let line_{number} = {number};\n")).collect()
}

#[test]
fn nothing_changed_is_a_plain_fact() {
    let lab = Lab::new();
    let observation = lab.observe(|_| {});
    expect_unchanged(&observation);
    assert_eq!(observation.moves.head.before, observation.moves.head.after);
    assert_eq!(observation.moves.branch.after.as_deref(), Some("main"));
}

#[test]
fn what_was_dirty_before_is_not_the_run_s() {
    let lab = Lab::new();
    let world = &lab.world;
    world.write("README.md", "changed by the user\n");
    world.write("new.txt", "untracked by the user\n");
    world.write("staged.txt", "staged by the user\n");
    world.git(["add", "staged.txt"]);
    world.write("staged.txt", "and changed again\n");
    expect_unchanged(&lab.observe(|_| {}));

    let observation = lab.observe(|world| {
        world.write("README.md", "changed by the run\n");
        world.write("new.txt", "untracked by the user\nand longer\n");
        std::fs::remove_file(world.file("staged.txt")).unwrap();
    });
    expect(
        &observation,
        &[
            ("README.md", ChangeKind::Modified),
            ("new.txt", ChangeKind::Modified),
            ("staged.txt", ChangeKind::Deleted),
        ],
    );
    let new = file(&observation, "new.txt");
    assert_eq!((new.insertions, new.deletions, new.lines.as_deref()), (Some(1), Some(0), Some("2-2")));
}

#[test]
fn hunks_become_ranges_of_the_lines_after() {
    let lab = Lab::of(World::new().file("src/app.ts", &numbered(1, 60)).build());
    let observation = lab.observe(|world| {
        let changed: String = (10..=28).map(|number| format!("changed {number}\n")).collect();
        let text = numbered(1, 9) + &changed + &numbered(29, 40) + &numbered(42, 60) + "last\n";
        world.write("src/app.ts", text);
        world.write("src/new.ts", numbered(1, 7));
        std::fs::remove_file(world.file("README.md")).unwrap();
    });
    let app = file(&observation, "src/app.ts");
    // Lines 10 to 28 are others, 41 is gone (behind line 40), 60 is new.
    assert_eq!(app.lines.as_deref(), Some("10-28, 40-40, 60-60"));
    assert_eq!((app.insertions, app.deletions), (Some(20), Some(20)));
    assert_eq!(app.risk, Risk::Medium);
    assert_eq!(app.reasons, ["implementation change"]);
    assert_eq!(file(&observation, "src/new.ts").lines.as_deref(), Some("1-7"));
    assert_eq!(file(&observation, "README.md").lines.as_deref(), Some("-"));
    assert_eq!((observation.insertions, observation.deletions), (27, 21));
    let first = &observation.review[0];
    assert_eq!((first.file.as_str(), first.reason.as_str()), ("src/app.ts", "Implementation change"));
    assert_eq!(first.lines.as_deref(), Some("10-28, 40-40, 60-60"));
}

#[test]
fn a_hundred_files_show_eight_targets_and_twelve_files() {
    let lab = Lab::new();
    let observation = lab.observe(|world| {
        for number in 0..97 {
            world.write(&format!("src/file_{number:02}.rs"), numbered(1, 1 + number % 5));
        }
        world.write("AGENTS.md", "obey\n");
        world.write("src/auth/login.rs", "fn login() {}\n");
        world.write("docs/guide.md", "words\n");
    });
    assert_eq!((observation.count, observation.files.len()), (100, 100));
    assert_eq!(observation.risk, Some(Risk::High));
    assert_eq!(observation.review.len(), 8);
    assert_eq!(observation.left_out.review, 92);
    assert_eq!(observation.left_out.files, 0);
    let order: Vec<&str> = observation.review.iter().map(|target| target.file.as_str()).collect();
    // Risk first, then lines, then path.
    assert_eq!(
        order,
        [
            "AGENTS.md",
            "src/auth/login.rs",
            "src/file_04.rs",
            "src/file_09.rs",
            "src/file_14.rs",
            "src/file_19.rs",
            "src/file_24.rs",
            "src/file_29.rs"
        ]
    );
    assert_eq!(observation.files.last().unwrap().path, "docs/guide.md");
    let packet = observation.packet();
    assert_eq!((packet.count, packet.files.len(), packet.review.len()), (100, 12, 8));
    assert_eq!((packet.truncated.files, packet.truncated.review), (88, 92));
}

#[test]
fn renames_are_told_as_such() {
    let lab = Lab::of(World::new().file("src/old.rs", &numbered(1, 30)).file("moved.rs", "same\n").build());
    let observation = lab.observe(|world| {
        std::fs::remove_file(world.file("src/old.rs")).unwrap();
        world.write("src/new.rs", numbered(1, 29) + "other\n");
        std::fs::rename(world.file("moved.rs"), world.file("src/moved.rs")).unwrap();
    });
    expect(&observation, &[("src/moved.rs", ChangeKind::Renamed), ("src/new.rs", ChangeKind::Renamed)]);
    let new = file(&observation, "src/new.rs");
    assert_eq!((new.old_path.as_deref(), new.risk), (Some("src/old.rs"), Risk::High));
    assert_eq!((new.lines.as_deref(), new.insertions), (Some("30-30"), Some(1)));
    let moved = file(&observation, "src/moved.rs");
    assert_eq!((moved.old_path.as_deref(), moved.lines.as_deref()), (Some("moved.rs"), None));
}

#[test]
fn binary_files_have_no_lines() {
    let lab = Lab::new();
    let observation = lab.observe(|world| {
        world.write("logo.png", [0, 1, 2, 3]);
    });
    let logo = file(&observation, "logo.png");
    assert_eq!((logo.kind, logo.lines.as_deref(), logo.insertions), (FileKind::Binary, None, None));
    assert_eq!((logo.risk, logo.reasons.as_slice()), (Risk::High, ["binary".to_owned()].as_slice()));
}

#[cfg(unix)]
#[test]
fn links_modes_and_types_are_told() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::of(
        World::new().file("run.sh", "#!/bin/sh\n").file("becomes", "a file\n").file("dir/x", "x\n").build(),
    );
    let observation = lab.observe(|world| {
        std::fs::set_permissions(world.file("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        super::support::world::link(Path::new("/etc/passwd"), &world.file("new_link"));
        std::fs::remove_file(world.file("becomes")).unwrap();
        super::support::world::link(Path::new("README.md"), &world.file("becomes"));
        // A folder becomes a link to elsewhere: what lay in it is gone.
        std::fs::remove_dir_all(world.file("dir")).unwrap();
        super::support::world::link(&world.outside(), &world.file("dir"));
        write(&world.outside().join("x"), "x\n");
    });
    expect(
        &observation,
        &[
            ("becomes", ChangeKind::Type),
            ("dir", ChangeKind::Added),
            ("dir/x", ChangeKind::Deleted),
            ("new_link", ChangeKind::Added),
            ("run.sh", ChangeKind::Mode),
        ],
    );
    for path in ["becomes", "new_link", "dir"] {
        assert_eq!(
            (file(&observation, path).kind, file(&observation, path).risk),
            (FileKind::Symlink, Risk::High)
        );
    }
    assert_eq!(file(&observation, "run.sh").reasons[0], "file mode");
}

#[test]
fn a_file_becomes_a_folder_and_a_folder_a_file() {
    let lab = Lab::of(World::new().file("one", "file\n").file("two/a", "a\n").file("two/b", "b\n").build());
    let observation = lab.observe(|world| {
        std::fs::remove_file(world.file("one")).unwrap();
        world.write("one/inside", "other\n");
        std::fs::remove_dir_all(world.file("two")).unwrap();
        world.write("two", "now a file, quite another one\n");
    });
    expect(
        &observation,
        &[
            ("one", ChangeKind::Deleted),
            ("one/inside", ChangeKind::Added),
            ("two", ChangeKind::Added),
            ("two/a", ChangeKind::Deleted),
            ("two/b", ChangeKind::Deleted),
        ],
    );
}

#[test]
fn names_of_other_scripts_are_exact() {
    let mut names = vec!["Ünïcode/日本.txt", "-leading", "with space", "'quote", "#hash"];
    if cfg!(unix) {
        names.extend([
            "ends.",
            "tab\there",
            "new\nline",
            "dou\"ble",
            "back\\slash",
            ":(glob)*",
            "\u{1b}[31m",
        ]);
    }
    let lab = Lab::new();
    let world = &lab.world;
    for name in &names[..3] {
        world.write(name, "before\n");
    }
    world.git(["add", "--all"]);
    world.git(["commit", "--quiet", "--message=names"]);
    let observation = lab.observe(|world| {
        for name in &names {
            world.write(name, "after\n");
        }
    });
    let mut wanted: Vec<&str> = names.clone();
    wanted.sort_unstable();
    assert_eq!(seen(&observation).iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), wanted);
    assert!(observation.files.iter().all(|file| !file.escaped && file.lines.as_deref() == Some("1-1")));
}

#[cfg(target_os = "linux")]
#[test]
fn names_that_are_not_unicode_are_escaped_without_loss() {
    use std::os::unix::ffi::OsStrExt as _;
    let name = b"caf\xe9 \\ \xff";
    let lab = Lab::new();
    let observation = lab.observe(|world| {
        write(&world.repo().join(std::ffi::OsStr::from_bytes(name)), "x\n");
    });
    let only = &observation.files[0];
    assert_eq!((only.path.as_str(), only.escaped), (r"caf\xe9 \\ \xff", true));
    assert_eq!(only.name().unwrap(), name);
}

#[test]
fn commits_branches_and_stashes_are_seen_though_the_files_are_clean() {
    let lab = Lab::new();
    let observation = lab.observe(|world| {
        world.git(["switch", "--quiet", "--create", "work"]);
        world.write("a.txt", "committed\n");
        world.git(["add", "--all"]);
        world.git(["commit", "--quiet", "--message=Committed by the run"]);
        world.write("a.txt", "stashed\n");
        world.git(["stash", "--quiet"]);
        world.git(["tag", "v1"]);
    });
    expect(&observation, &[("a.txt", ChangeKind::Added)]);
    let moves = &observation.moves;
    assert_eq!((moves.branch.before.as_deref(), moves.branch.after.as_deref()), (Some("main"), Some("work")));
    assert!(moves.head.moved());
    let subjects: Vec<&str> = moves.commits.iter().map(|commit| commit.subject.as_str()).collect();
    assert_eq!(subjects, ["Committed by the run"]);
    assert_eq!(Some(&moves.commits[0].id), moves.head.after.as_ref());
    let refs: Vec<&str> = moves.refs_moved.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(refs, ["refs/heads/work", "refs/stash", "refs/tags/v1"]);
    assert_eq!(moves.staged_changed, Some(true));
}

#[test]
fn a_commit_alone_is_a_change() {
    let lab = Lab::new();
    lab.world.write("a.txt", "dirty before\n");
    let observation = lab.observe(|world| {
        world.git(["add", "--all"]);
        world.git(["commit", "--quiet", "--message=Yours is mine"]);
    });
    expect(&observation, &[]);
    assert_eq!(observation.changed(), Some(true));
    assert_eq!(observation.moves.commits.len(), 1);
}

#[test]
fn a_branch_at_an_old_commit_makes_no_commit() {
    let lab = Lab::new();
    let world = &lab.world;
    world.git(["switch", "--quiet", "--create", "other"]);
    world.git(["commit", "--quiet", "--allow-empty", "--message=theirs"]);
    world.git(["switch", "--quiet", "main"]);
    let observation = lab.observe(|world| {
        world.git(["switch", "--quiet", "--create", "mine", "other"]);
    });
    assert!(observation.moves.commits.is_empty());
    assert_eq!(observation.moves.refs_moved.len(), 1);
    assert!(observation.moves.head.moved());
}

#[test]
fn staging_alone_is_a_change_and_a_refresh_is_none() {
    let lab = Lab::new();
    lab.world.write("README.md", "dirty\n");
    let observation = lab.observe(|world| {
        world.git(["add", "README.md"]);
    });
    expect(&observation, &[]);
    assert_eq!((observation.moves.staged_changed, observation.changed()), (Some(true), Some(true)));

    let observation = lab.observe(|world| {
        // New times for the same content, and an index that is written anew for them.
        let content = world.read("README.md");
        world.write("README.md", content);
        world.git(["update-index", "--refresh"]);
    });
    expect_unchanged(&observation);
}

#[test]
fn git_s_own_files_are_watched() {
    let lab = Lab::new();
    let observation = lab.observe(|world| {
        world.git(["config", "core.fsmonitor", "/tmp/evil"]);
        write(&world.file(".git/hooks/pre-commit"), "#!/bin/sh\n");
    });
    assert_eq!(observation.count, 0);
    assert_eq!(observation.moves.control_changed, [".git/config", ".git/hooks/pre-commit"]);
    assert_eq!((observation.changed(), observation.risk), (Some(true), Some(Risk::High)));
    assert_eq!(observation.review[0].file, ".git/config");
}

#[test]
fn ignored_files_are_counted() {
    let lab = Lab::of(World::new().file(".gitignore", "*.log\nbuild/\n").build());
    lab.world.write("a.log", "x");
    let observation = lab.observe(|world| {
        world.write("b.log", "x");
        for number in 0..20 {
            world.write(&format!("build/{number}"), "x");
        }
    });
    expect(&observation, &[]);
    let ignored = observation.ignored.as_ref().unwrap();
    assert_eq!((ignored.before, ignored.after), (Some(1), Some(3)));
    assert_eq!(observation.changed(), Some(true));
}

#[test]
fn an_ignored_file_that_is_staged_by_force_is_seen() {
    let lab = Lab::of(World::new().file(".gitignore", "*.log\n").build());
    let observation = lab.observe(|world| {
        world.write("forced.log", "x\n");
        world.git(["add", "--force", "forced.log"]);
    });
    expect(&observation, &[("forced.log", ChangeKind::Added)]);
}

#[test]
fn files_that_git_was_told_not_to_look_at_are_looked_at() {
    let lab = Lab::of(
        World::new().file("assumed.rs", "1\n").file("skipped.rs", "1\n").file("later.rs", "1\n").build(),
    );
    lab.world.git(["update-index", "--assume-unchanged", "assumed.rs"]);
    lab.world.git(["update-index", "--skip-worktree", "skipped.rs"]);
    let observation = lab.observe(|world| {
        world.write("assumed.rs", "2\n");
        world.write("skipped.rs", "2\n");
        world.write("later.rs", "2\n");
        // Hiding it during the run does not help either.
        world.git(["update-index", "--assume-unchanged", "later.rs"]);
    });
    expect(
        &observation,
        &[
            ("assumed.rs", ChangeKind::Modified),
            ("later.rs", ChangeKind::Modified),
            ("skipped.rs", ChangeKind::Modified),
        ],
    );
}

/// On Windows there is no time that a program cannot set.
#[cfg(unix)]
#[test]
fn setting_the_time_back_hides_nothing() {
    let lab = Lab::of(World::new().file("same.rs", "let a = 1;\n").build());
    lab.world.git(["status"]);
    let observation = lab.observe(|world| {
        let path = world.file("same.rs");
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, "let a = 2;\n").unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    });
    expect(&observation, &[("same.rs", ChangeKind::Modified)]);
}

#[test]
fn content_raises_the_risk_and_comments_lower_it() {
    let lab = Lab::of(
        World::new()
            .file("src/net.rs", "fn a() {}\n")
            .file("src/words.rs", "// old\nfn a() {}\n")
            .file("src/indent.rs", "fn a() {\nb();\n}\n")
            .file("tests/t.rs", "#[test]\nfn a() {\n    assert!(b());\n}\n")
            .file("tests/s.rs", "#[test]\nfn a() {}\n")
            .build(),
    );
    let observation = lab.observe(|world| {
        world.write("src/net.rs", "fn a() { std::net::TcpStream::connect(\"x\"); }\n");
        world.write("src/words.rs", "// new\nfn a() {}\n");
        world.write("src/indent.rs", "fn a() {\n    b();\n}\n");
        world.write("tests/t.rs", "#[test]\nfn a() {\n    b();\n}\n");
        world.write("tests/s.rs", "#[test]\n#[ignore]\nfn a() {}\n");
    });
    let said = |path: &str| {
        let file = file(&observation, path);
        (file.risk, file.reasons[0].as_str())
    };
    assert_eq!(said("src/net.rs"), (Risk::High, "network call"));
    assert_eq!(said("src/words.rs"), (Risk::Low, "comments only"));
    assert_eq!(said("src/indent.rs"), (Risk::Low, "indentation only"));
    assert_eq!(said("tests/t.rs"), (Risk::High, "assertion removed"));
    assert_eq!(said("tests/s.rs"), (Risk::High, "test disabled"));
}

#[test]
fn a_secret_is_told_and_not_copied() {
    let lab = Lab::new();
    let secret = "ghp_0123456789abcdefghij0123";
    let observation = lab.observe(|world| {
        world.write("docs/notes.md", format!("line\nuse {secret} here\n"));
        world.git(["add", "--all"]);
        world.git(["commit", "--quiet", "-m", &format!("add {secret}")]);
    });
    let notes = file(&observation, "docs/notes.md");
    assert_eq!((notes.risk, notes.reasons[0].as_str()), (Risk::High, "secret-like content"));
    let record = serde_json::to_string(&observation).unwrap();
    assert!(!record.contains("0123456789abcdefghij"), "{record}");
}

#[test]
fn large_files_are_known_by_size_and_times() {
    let mut lab = Lab::of(World::new().file("tracked.bin", &"t".repeat(5000)).build());
    lab.limits.file_bytes = 1000;
    let world = &lab.world;
    let big = |letter: &str| letter.repeat(2000);
    for name in ["same.bin", "other.bin", "gone.bin", "shrinks.bin"] {
        world.write(name, big("a"));
    }
    expect_unchanged(&lab.observe(|_| {}));
    let snapshot = lab.before();
    world.write("other.bin", big("b"));
    std::fs::remove_file(world.file("gone.bin")).unwrap();
    world.write("shrinks.bin", "small\n");
    world.write("new.bin", big("c"));
    world.write("tracked.bin", "u".repeat(5000));
    let change = lab.after(&snapshot);
    let observation = &change.observation;
    expect(
        observation,
        &[
            ("gone.bin", ChangeKind::Deleted),
            ("new.bin", ChangeKind::Added),
            ("other.bin", ChangeKind::Modified),
            ("shrinks.bin", ChangeKind::Modified),
            ("tracked.bin", ChangeKind::Modified),
        ],
    );
    for path in ["new.bin", "other.bin", "tracked.bin"] {
        let it = file(observation, path);
        assert_eq!((it.kind, it.risk, it.lines.as_deref()), (FileKind::Unread, Risk::High, None), "{path}");
    }
    assert_eq!(file(observation, "shrinks.bin").insertions, None);
}

#[test]
fn a_record_is_whole_and_has_the_promised_names() {
    let lab = Lab::new();
    let observation = lab.observe(|world| {
        world.write("src/a.rs", "fn a() {}\n");
    });
    let record = serde_json::to_value(&observation).unwrap();
    for name in [
        "status",
        "kind",
        "count",
        "files",
        "insertions",
        "deletions",
        "head",
        "branch",
        "commits",
        "refs_moved",
        "risk",
        "review",
    ] {
        assert!(record.get(name).is_some(), "{name} is missing in {record:#}");
    }
    assert_eq!(record["status"], "observed");
    assert_eq!(record["files"][0]["change"], "added");
    assert_eq!(serde_json::from_value::<agent_bridge::observe::Observation>(record).unwrap(), observation);
}
