//! Nothing in a repository makes us execute anything, and nothing of the user's is written.

use std::collections::BTreeMap;

use agent_bridge::observe::ChangeKind;

use super::support::world::write;
use super::*;

/// A trap: a program that leaves a trace when it is run. Gives the program and the trace.
fn trap(lab: &Lab) -> (String, PathBuf) {
    let trace = lab.world.path().join("executed");
    let program =
        lab.world.program("trap", &format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\ncat\n", trace.display()));
    (program.to_str().unwrap().to_owned(), trace)
}

/// Everything of a repository's own data, byte for byte, with times for what git would rewrite.
fn data(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(at) = folders.pop() {
        found.insert(at.clone(), (Vec::new(), std::fs::metadata(&at).unwrap().modified().unwrap()));
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let about = std::fs::symlink_metadata(&path).unwrap();
            if about.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), (std::fs::read(&path).unwrap(), about.modified().unwrap()));
            }
        }
    }
    found
}

/// A repository in which everything that can name a program names the trap.
fn trapped() -> (Lab, String, PathBuf) {
    let lab = Lab::of(World::new().file("a.rs", "1\n").file("b.txt", "1\n").build());
    let (program, trace) = trap(&lab);
    let world = &lab.world;
    world.write(
        ".gitattributes",
        "* filter=evil diff=evil\n*.txt filter=process\n*.md merge=evil working-tree-encoding=UTF-16\n",
    );
    for hook in
        ["post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman"]
    {
        let path = world.file(&format!(".git/hooks/{hook}"));
        write(&path, format!("#!/bin/sh\nexec '{program}' hook\n"));
        let mut chmod = world.command("chmod");
        chmod.arg("+x").arg(&path);
        process::run(chmod, DEADLINE).expect_code(0);
    }
    for (name, value) in [
        ("filter.evil.clean", &*program),
        ("filter.evil.smudge", &program),
        ("filter.evil.required", "true"),
        ("filter.process.process", &program),
        ("filter.process.required", "true"),
        ("core.fsmonitor", &program),
        ("diff.external", &program),
        ("diff.evil.command", &program),
        ("diff.evil.textconv", &program),
        ("merge.evil.driver", &program),
        ("core.pager", &program),
        ("core.editor", &program),
        ("core.sshCommand", &program),
        ("core.askPass", &program),
        ("core.gitProxy", &program),
        ("core.alternateRefsCommand", &program),
        ("credential.helper", &program),
        ("gpg.program", &program),
        ("log.showSignature", "true"),
        ("alias.status", &format!("!{program}")),
        ("alias.rev-parse", &format!("!{program}")),
        ("interactive.diffFilter", &program),
        ("uploadpack.packObjectsHook", &program),
        ("trace2.eventTarget", &program),
        ("submodule.recurse", "true"),
        ("status.submoduleSummary", "true"),
        ("diff.submodule", "diff"),
        ("pager.status", "true"),
        ("core.preloadIndex", "false"),
    ] {
        world.git(["config", name, value]);
    }
    (lab, program, trace)
}

#[test]
fn no_filter_hook_monitor_or_driver_of_a_repository_is_run() {
    let (lab, _, trace) = trapped();
    let observation = lab.observe(|world| {
        world.write("a.rs", "2\n");
        world.write("b.txt", "2\n");
        world.write("new.txt", "1\n");
    });
    assert!(!trace.exists(), "executed: {}", std::fs::read_to_string(&trace).unwrap());
    for path in ["a.rs", "b.txt", "new.txt"] {
        assert!(file(&observation, path).lines.is_some(), "{path}");
    }
    // The trap is one: the same look with the user's own git walks into it.
    let mut status = lab.world.command("git");
    status.arg("status");
    process::run(status, DEADLINE);
    assert!(trace.exists());
}

#[test]
fn no_filter_of_the_user_s_config_is_run_because_a_repository_names_it() {
    let mut lab = Lab::of(World::new().file("a.rs", "1\n").build());
    let (program, trace) = trap(&lab);
    write(
        &lab.world.home().join(".gitconfig"),
        format!("[filter \"lfs\"]\n\tclean = {program}\n\tprocess = {program}\n"),
    );
    // As on a user's machine, where git finds that file.
    lab.world.remove_env("GIT_CONFIG_GLOBAL");
    let observation = lab.observe(|world| {
        world.write(".gitattributes", "* filter=lfs\n");
        world.write("a.rs", "2\n");
    });
    assert_eq!(file(&observation, "a.rs").change, ChangeKind::Modified);
    assert!(!trace.exists());
}

#[test]
fn the_user_s_own_excludes_count() {
    let mut lab = Lab::new();
    write(&lab.world.home().join(".gitconfig"), "[core]\n\texcludesFile = ~/my-ignores\n");
    write(&lab.world.home().join("my-ignores"), "*.mine\n");
    lab.world.remove_env("GIT_CONFIG_GLOBAL");
    write(&lab.world.file(".git/info/exclude"), "*.local\n");
    let observation = lab.observe(|world| {
        world.write("a.mine", "1\n");
        world.write("b.local", "1\n");
        world.write("c.txt", "1\n");
    });
    expect(&observation, &[("c.txt", ChangeKind::Added)]);
    assert_eq!(observation.ignored.unwrap().after, Some(2));
    // The file that git reads where nothing is set.
    let mut lab = Lab::new();
    write(&lab.world.home().join(".config/git/ignore"), "*.mine\n");
    lab.world.remove_env("GIT_CONFIG_GLOBAL");
    let observation = lab.observe(|world| {
        world.write("a.mine", "1\n");
    });
    expect(&observation, &[]);
}

#[test]
fn no_monitor_of_a_submodule_is_run() {
    let lab = Lab::new();
    let (program, trace) = trap(&lab);
    let inner = lab.world.path().join("library");
    write(&inner.join("inner.rs"), "1\n");
    lab.git_in(&inner, ["init", "--quiet"]);
    lab.git_in(&inner, ["add", "--all"]);
    lab.git_in(&inner, ["commit", "--quiet", "--message=inner"]);
    let source = inner.to_str().unwrap();
    lab.world.git(["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", source, "lib"]);
    lab.world.git(["commit", "--quiet", "--message=with"]);
    let lib = lab.world.file("lib");
    lab.git_in(&lib, ["config", "core.fsmonitor", &program]);
    lab.git_in(&lib, ["config", "filter.evil.clean", &program]);
    write(&lib.join(".gitattributes"), "* filter=evil\n");
    let observation = lab.observe(|_| write(&lib.join("inner.rs"), "2\n"));
    expect(&observation, &[("lib/inner.rs", ChangeKind::Modified)]);
    assert!(!trace.exists(), "executed: {}", std::fs::read_to_string(&trace).unwrap());
    // The user's own git asks the submodule, and walks into it.
    let mut add = lab.world.command("git");
    add.args(["add", "--all"]);
    process::run(add, DEADLINE);
    assert!(trace.exists());
}

#[test]
fn objects_that_a_partial_clone_lacks_are_not_fetched() {
    let lab = Lab::new();
    let world = &lab.world;
    let trace = world.path().join("executed");
    let program = world.program("server", &format!("#!/bin/sh\necho ran >> '{}'\nexit 1\n", trace.display()));
    let program = program.to_str().unwrap();
    world.git(["config", "uploadpack.allowFilter", "true"]);
    let source = format!("file://{}", world.repo().display());
    lab.git_in(world.path(), ["clone", "--quiet", "--no-checkout", "--filter=blob:none", &source, "partial"]);
    let partial = world.path().join("partial");
    lab.git_in(&partial, ["config", "remote.origin.uploadpack", program]);
    lab.git_in(&partial, ["config", "protocol.allow", "always"]);
    lab.git_in(&partial, ["config", "protocol.file.allow", "always"]);
    // A ref to an object that is not here.
    write(&partial.join(".git/refs/heads/missing"), format!("{}\n", "1".repeat(40)));
    lab.git_in(&partial, ["read-tree", "HEAD"]);
    write(&partial.join("README.md"), "A repository of a test.\n");
    let observation = lab.observe_in(&partial, |_| write(&partial.join("a.rs"), "1\n"));
    assert!(!trace.exists(), "executed: {}", std::fs::read_to_string(&trace).unwrap());
    assert_eq!(file(&observation, "a.rs").change, ChangeKind::Added);
    let mut show = lab.world.command("git");
    show.args(["cat-file", "-p", "HEAD:README.md"]).current_dir(&partial);
    process::run(show, DEADLINE);
    assert!(trace.exists(), "the trap is none");
}

#[test]
fn attributes_hide_no_lines() {
    let lab = Lab::of(World::new().file("a.rs", "one\ntwo\n").build());
    let observation = lab.observe(|world| {
        world.write(".gitattributes", "*.rs -diff binary\n* linguist-generated\n");
        world.write("a.rs", "one\n2\n");
    });
    assert_eq!(file(&observation, "a.rs").lines.as_deref(), Some("2-2"));
}

#[test]
fn a_pipe_in_place_of_a_file_keeps_nobody_waiting() {
    let lab = Lab::new();
    let fifo = |path: &Path| {
        let mut make = lab.world.command("mkfifo");
        make.arg(path);
        process::run(make, DEADLINE).expect_code(0);
    };
    fifo(&lab.world.file("pipe"));
    fifo(&lab.world.file(".git/hooks/pre-push"));
    std::fs::remove_file(lab.world.file(".git/info/exclude")).unwrap();
    fifo(&lab.world.file(".git/info/exclude"));
    expect_unchanged(&lab.observe(|_| {}));
    let observation = lab.observe(|world| {
        std::fs::remove_file(world.file("README.md")).unwrap();
        fifo(&world.file("README.md"));
    });
    expect(&observation, &[("README.md", ChangeKind::Deleted)]);
}

#[test]
fn files_that_may_not_be_read_are_known_by_size_and_times() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::of(World::new().file("closed.rs", "1\n").build());
    lab.world.write("new.rs", "1\n");
    let close = |name: &str| {
        std::fs::set_permissions(lab.world.file(name), std::fs::Permissions::from_mode(0o000)).unwrap();
    };
    close("new.rs");
    expect_unchanged(&lab.observe(|_| {}));
    let observation = lab.observe(|world| {
        world.write("closed.rs", "2\n");
        close("closed.rs");
    });
    expect(&observation, &[("closed.rs", ChangeKind::Modified)]);
}

#[test]
fn the_user_s_repository_stays_as_it_is_byte_for_byte() {
    let (lab, _, _) = trapped();
    let world = &lab.world;
    // Everything that makes git write: a stale index, something staged, dirty and new files.
    world.write("b.txt", "dirty\n");
    world.write("large.txt", "new\n".repeat(1000));
    world.write("a.rs", "1\n");
    world.write("again.txt", "1\n");
    let before = data(&world.file(".git"));
    let snapshot = lab.before();
    assert_eq!(data(&world.file(".git")), before);
    // Content that the repository has already: git would set the time of that object anew.
    world.write("b.txt", "1\n");
    world.write("same/a.rs", "1\n");
    std::fs::remove_file(world.file("again.txt")).unwrap();
    std::fs::remove_file(world.file("large.txt")).unwrap();
    let change = lab.after(&snapshot);
    let mut patch = std::fs::File::create(world.path().join("patch")).unwrap();
    change.write_patch(&mut patch, DEADLINE, &mut || None).unwrap().unwrap();
    assert_eq!(data(&world.file(".git")), before);
    drop((snapshot, change));
    assert!(!lab.scratch().exists());
}

#[test]
fn the_index_is_left_while_the_user_works_with_it() {
    let lab = Lab::new();
    let world = &lab.world;
    // The user holds the lock all the time: a command that needs it would fail.
    write(&world.file(".git/index.lock"), "");
    let observation = lab.observe(|world| {
        world.write("a.rs", "1\n");
    });
    expect(&observation, &[("a.rs", ChangeKind::Added)]);
    assert_eq!(observation.locks.len(), 1);
    assert_eq!((observation.locks[0].path.as_str(), observation.locks[0].before), (".git/index.lock", true));
    assert!(world.file(".git/index.lock").exists());
    std::fs::remove_file(world.file(".git/index.lock")).unwrap();

    // And commits meanwhile, again and again.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        let commits = threads.spawn(|| {
            let mut commits = 0;
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                world.write("user.rs", format!("{commits}\n"));
                world.git(["add", "user.rs"]);
                world.git(["commit", "--quiet", "--message=user"]);
                commits += 1;
            }
            commits
        });
        for _ in 0..5 {
            let observation = lab.observe(|_| {});
            assert_eq!(observation.status, Status::Observed, "{:?}", observation.reason);
        }
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(commits.join().unwrap() > 0);
    });
    world.git(["fsck", "--strict"]);
}
