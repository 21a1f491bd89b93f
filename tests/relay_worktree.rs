//! Runs in a copy of the workspace (`isolation: worktree`): the user's tree stays as it is until somebody applies the
//! patch, which then is all there or not at all, and no clean-up loses work.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use support::prelude::*;
use support::process::wait_until as wait_for;
use support::world::WorldBuilder;

fn report(files: &[&str]) -> String {
    let files: Vec<Value> =
        files.iter().map(|path| json!({ "path": path, "change": "modified", "note": "" })).collect();
    json!({
        "summary": "Did it.", "outcome": "done", "files": files,
        "tests": { "passed": 0, "failed": 0, "not_run": 0, "commands": [] },
        "criteria": [], "risks": [], "open_questions": [],
    })
    .to_string()
}

/// What the worker does in its folder: a shell script for each of its runs; the last one goes on for all others.
fn worker(world: &World, scripts: &[&str]) {
    let steps = |script: &str| {
        json!([
            { "run": { "program": "/bin/sh", "args": ["-ec", script] } },
            { "answer": { "text": report(&[]) } },
        ])
    };
    let rules: Vec<Value> = scripts
        .iter()
        .enumerate()
        .map(|(at, script)| json!({ "when": { "run": at + 1 }, "steps": steps(script) }))
        .collect();
    let counter = world.outside().join("runs");
    let last = steps(scripts.last().unwrap());
    world.fake("codex", &json!({ "counter": counter, "rules": rules, "steps": last }));
}

struct Desk {
    host: Host,
    world: World,
}

impl Desk {
    fn new(scripts: &[&str]) -> Self {
        Self::with(scripts, |world| world)
    }

    fn with(scripts: &[&str], more: impl FnOnce(WorldBuilder) -> WorldBuilder) -> Self {
        let builder = World::new().ceiling("workspace-write").agent("codex", json!({ "enabled": true }));
        let lines: String = (1..=30).map(|line| format!("line {line}\n")).collect();
        let world = more(builder)
            .file("src/lib.rs", &lines)
            .file("docs/guide.md", "A guide.\n")
            .file(".gitignore", "/build/\n")
            .build();
        worker(&world, scripts);
        let mut host = world.host();
        host.initialize();
        Self { host, world }
    }

    fn start(&mut self, more: Value) -> Value {
        let mut arguments = json!({
            "task": "Do it.", "workspace": self.world.repo(), "agent": "codex", "isolation": "worktree", "wait_seconds": 60,
        });
        for (key, value) in more.as_object().unwrap() {
            arguments[key] = value.clone();
        }
        self.host.call("relay_execute", arguments).structured
    }

    /// A run that has to be a success.
    fn run(&mut self) -> Value {
        let packet = self.start(json!({}));
        assert_eq!(packet["status"], "SUCCESS", "{packet:#}");
        packet
    }

    fn correct(&mut self, run: &Value) -> Value {
        let arguments = json!({ "run_id": run["run_id"], "feedback": "Do more.", "wait_seconds": 60 });
        self.host.call("relay_continue", arguments).structured
    }

    fn apply(&mut self, run: &Value) -> ToolResult {
        self.host.call("relay_apply", json!({ "run_id": run["run_id"] }))
    }

    fn cli(&self, words: &[&str]) -> support::process::Finished {
        self.world.bridge(words)
    }

    fn patch(&self, run: &Value) -> String {
        self.cli(&["runs", "diff", run["run_id"].as_str().unwrap()]).expect_code(0).stdout().to_owned()
    }

    /// All of the user's tree but git's own folder, and what git says of it.
    fn tree(&self) -> Vec<(String, String)> {
        let mut found = tree_of(&self.world.repo());
        found.push(("git status".into(), self.world.git(["status", "--porcelain=v1", "-z", "-uall"])));
        found.push(("git refs".into(), self.world.git(["for-each-ref"])));
        let index = std::fs::read(self.world.repo().join(".git/index")).unwrap();
        found.push(("index".into(), format!("{index:?}")));
        found
    }
}

fn tree_of(top: &std::path::Path) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = walkdir::WalkDir::new(top)
        .into_iter()
        .filter_entry(|entry| entry.file_name() != ".git")
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let kind = entry.file_type();
            let what = if kind.is_symlink() {
                format!("-> {}", std::fs::read_link(entry.path()).unwrap().display())
            } else if kind.is_file() {
                let mode = entry.metadata().unwrap().permissions().mode() & 0o111;
                format!("{mode:o} {}", agent_bridge::digest::of_file(entry.path()).unwrap().0)
            } else {
                // Git knows no folders.
                String::new()
            };
            (entry.path().strip_prefix(top).unwrap().to_string_lossy().into_owned(), what)
        })
        .collect();
    found.retain(|(_, what)| !what.is_empty());
    found.sort();
    found
}

fn git(world: &World, words: &[&str], cwd: &std::path::Path) {
    let mut command = world.command("git");
    command.args(words).current_dir(cwd);
    support::process::run(command, DEADLINE).expect_code(0);
}

fn copy_of(packet: &Value) -> PathBuf {
    PathBuf::from(packet["worktree"].as_str().unwrap_or_else(|| panic!("no copy in {packet:#}")))
}

#[test]
fn the_workspace_stays_as_it_is_until_the_patch_is_applied() {
    let mut desk =
        Desk::new(&["sed -i 's/line 3$/line three/' src/lib.rs; echo new > src/new.rs; rm docs/guide.md"]);
    // The user is in the middle of something: staged, unstaged and untracked changes.
    desk.world.write("staged.txt", "staged\n");
    desk.world.git(["add", "staged.txt"]);
    desk.world.write("untracked.txt", "mine\n");
    let text = desk.world.read("src/lib.rs").replace("line 20\n", "line twenty, mine\n");
    desk.world.write("src/lib.rs", text);
    desk.world.write("build/out.o", "ignored\n");
    let before = desk.tree();

    let packet = desk.run();
    assert_eq!(desk.tree(), before, "nothing of the user's has changed");
    let copy = copy_of(&packet);
    assert!(!copy.starts_with(desk.world.repo()));
    let in_copy = |name: &str| std::fs::read_to_string(copy.join(name)).unwrap_or_default();
    assert!(
        in_copy("src/lib.rs").contains("line three\n") && in_copy("src/lib.rs").contains("line twenty, mine")
    );
    assert_eq!((in_copy("untracked.txt"), in_copy("staged.txt")), ("mine\n".into(), "staged\n".into()));
    assert!(!copy.join("build").exists(), "ignored files are not copied");
    assert_eq!(packet["changes"]["count"], 3, "{packet:#}");
    assert!(packet["next"].as_str().unwrap().contains("relay_apply"), "{packet:#}");

    let patch = desk.patch(&packet);
    assert_eq!(packet["patch"]["sha256"], agent_bridge::digest::of_bytes(patch.as_bytes()));
    assert!(!patch.contains("twenty, mine\n+") && !patch.contains("untracked.txt"), "{patch}");
    let check = desk.host.call("relay_apply", json!({ "run_id": packet["run_id"], "check_only": true }));
    assert_eq!(check.structured["applied"], false, "{:#}", check.structured);
    assert_eq!(desk.tree(), before, "a check writes nothing");

    let applied = desk.apply(&packet).structured;
    assert_eq!(applied["applied"], true, "{applied:#}");
    assert_eq!(applied["files"], json!(["docs/guide.md", "src/lib.rs", "src/new.rs"]));
    let text = desk.world.read("src/lib.rs");
    assert!(text.contains("line three\n") && text.contains("line twenty, mine\n"), "{text}");
    assert_eq!(desk.world.read("src/new.rs"), "new\n");
    assert!(!desk.world.repo().join("docs").exists(), "a folder goes with its last file");
    let status = desk.world.git(["status", "--porcelain=v1", "-uall"]);
    assert_eq!(status, " D docs/guide.md\n M src/lib.rs\nA  staged.txt\n?? src/new.rs\n?? untracked.txt");
    assert!(!copy.exists(), "nothing would be lost with the copy: {applied:#}");

    let again = desk.apply(&packet).structured;
    assert_eq!((&again["applied"], &again["files"]), (&json!(true), &json!([])), "{again:#}");
    let ended = desk.correct(&packet);
    assert_eq!(ended["error"]["code"], "RUN_NOT_CONTINUABLE", "{ended:#}");
    let shown = desk.cli(&["runs", "show", packet["run_id"].as_str().unwrap(), "--json"]).json();
    assert_eq!(shown["applied"]["patch_sha256"], packet["patch"]["sha256"], "{shown:#}");
}

#[test]
fn a_correction_goes_on_in_the_same_copy_and_its_patch_holds_everything() {
    let mut desk = Desk::new(&[
        "echo one > one.txt; echo draft > two.txt",
        "echo two > two.txt; git add -A; git -c user.name=W -c user.email=w@example.invalid commit -qm work",
    ]);
    let first = desk.run();
    let second = desk.correct(&first);
    assert_eq!(second["status"], "SUCCESS", "{second:#}");
    assert_eq!(copy_of(&second), copy_of(&first));
    assert_eq!(second["changes"]["count"], 1, "what this run changed: {second:#}");
    let patch = desk.patch(&second);
    assert!(patch.contains("one.txt") && patch.contains("+two\n"), "{patch}");
    let commits = desk.world.git(["log", "--oneline", "--all"]);
    assert_eq!(commits.lines().count(), 1, "the worker's commit is in the copy alone: {commits}");
    let applied = desk.apply(&second).structured;
    assert_eq!(applied["files"], json!(["one.txt", "two.txt"]), "{applied:#}");
    assert!(applied["worktree"].as_str().unwrap().contains("commits"), "kept for the sake of: {applied:#}");
    assert!(copy_of(&second).exists());
}

#[test]
fn one_conflict_is_named_and_nothing_is_written() {
    let mut desk = Desk::new(&[
        "sed -i 's/line 3$/line three/' src/lib.rs; echo theirs > both.txt; echo x > fine.txt; rm docs/guide.md",
    ]);
    let packet = desk.run();
    let text = desk.world.read("src/lib.rs");
    desk.world.write("src/lib.rs", text.replace("line 3\n", "line III\n"));
    desk.world.write("both.txt", "mine\n");
    std::fs::remove_file(desk.world.file("docs/guide.md")).unwrap();
    let before = desk.tree();
    let refused = desk.apply(&packet).structured;
    let error = &refused["error"];
    assert_eq!(error["code"], "APPLY_CONFLICT", "{refused:#}");
    let named: Vec<&str> = error["details"]["conflicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|conflict| conflict["path"].as_str().unwrap())
        .collect();
    assert_eq!(named, ["both.txt", "src/lib.rs"], "what the user removed as well is no conflict: {error:#}");
    assert_eq!(desk.tree(), before);
    let told = desk.cli(&["runs", "apply", packet["run_id"].as_str().unwrap()]);
    assert!(told.stderr().contains("both.txt") && told.stderr().contains("src/lib.rs"), "{}", told.stderr());
    assert_eq!(desk.tree(), before);

    // Another place of the same file is one too: git might put the change elsewhere.
    let text: String = desk.world.read("src/lib.rs").replace("line III\n", "line 3\n");
    desk.world.write("src/lib.rs", text.replace("line 28\n", "mine\n"));
    assert_eq!(desk.apply(&packet).structured["error"]["code"], "APPLY_CONFLICT");
    desk.world.write("src/lib.rs", text);
    desk.world.write("elsewhere.txt", "mine\n");
    std::fs::remove_file(desk.world.file("both.txt")).unwrap();
    let applied = desk.apply(&packet).structured;
    assert_eq!(applied["applied"], true, "{applied:#}");
    assert_eq!(applied["already"], 1);
    assert!(desk.world.read("src/lib.rs").contains("line three\n"));
    assert_eq!(desk.world.read("elsewhere.txt"), "mine\n");
}

#[test]
fn a_change_is_never_put_into_another_place_that_looks_the_same() {
    let block = |timeout: u32| format!("server {{\n  a\n  b\n  timeout {timeout}\n  c\n  d\n}}\n");
    let both = format!("{}{}", block(30), block(30));
    let mut desk =
        Desk::with(&["sed -i '4s/30/60/' servers.conf"], |world| world.file("servers.conf", &both));
    let packet = desk.run();
    let mine = format!("{}{}", block(45), block(30));
    desk.world.write("servers.conf", &mine);
    let refused = desk.apply(&packet).structured;
    assert_eq!(refused["error"]["code"], "APPLY_CONFLICT", "{refused:#}");
    assert_eq!(desk.world.read("servers.conf"), mine);
}

/// A private file that becomes a program stays private, and a call that was cut off before it said so is finished.
#[test]
fn what_becomes_a_program_stays_as_private_as_it_was() {
    let mut desk = Desk::with(&["chmod +x secret.sh both.sh; echo more >> both.sh"], |world| {
        world.file("secret.sh", "a\n").file("both.sh", "a\n")
    });
    let mode =
        |world: &World, name: &str| std::fs::metadata(world.file(name)).unwrap().permissions().mode() & 0o777;
    for name in ["secret.sh", "both.sh"] {
        std::fs::set_permissions(desk.world.file(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let packet = desk.run();
    desk.world.write("both.sh", "a\nmore\n");
    std::fs::set_permissions(desk.world.file("both.sh"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let applied = desk.apply(&packet).structured;
    assert_eq!(applied["files"], json!(["both.sh", "secret.sh"]), "{applied:#}");
    assert_eq!((mode(&desk.world, "secret.sh"), mode(&desk.world, "both.sh")), (0o700, 0o700));
}

#[test]
fn a_file_that_git_was_told_not_to_look_at_is_looked_at() {
    let mut desk = Desk::with(&["echo old > hidden.txt"], |world| world.file("hidden.txt", "old\n"));
    desk.world.git(["update-index", "--assume-unchanged", "hidden.txt"]);
    desk.world.write("hidden.txt", "mine\n");
    let packet = desk.run();
    let applied = desk.apply(&packet).structured;
    assert_eq!(applied["files"], json!(["hidden.txt"]), "{applied:#}");
    assert_eq!(desk.world.read("hidden.txt"), "old\n");
}

#[test]
fn whoever_stops_half_way_can_go_on() {
    let mut desk = Desk::new(&[
        "for n in 1 2 3 4; do echo $n > f$n; done; sed -i 's/line 9$/nine/' src/lib.rs; rm docs/guide.md",
    ]);
    let packet = desk.run();
    let copy = copy_of(&packet);
    // As a kill in the middle leaves it: some files are new, the others are old.
    for name in ["f1", "f3", "src/lib.rs"] {
        std::fs::copy(copy.join(name), desk.world.file(name)).unwrap();
    }
    let wanted = tree_of(&copy);
    let applied = desk.apply(&packet).structured;
    assert_eq!(applied["files"], json!(["docs/guide.md", "f2", "f4"]), "{applied:#}");
    assert_eq!(applied["already"], 3);
    assert_eq!(tree_of(&desk.world.repo()), wanted);
}

#[test]
fn every_kind_of_file_arrives_as_it_was_left() {
    let script = r#"
        printf 'a\0b\377' > bytes.bin
        printf '#!/bin/sh\n' > tool.sh; chmod +x tool.sh
        chmod +x plain.txt
        ln -s src/lib.rs link; rm to-link; ln -s elsewhere to-link; rm from-link; echo file > from-link
        printf 'one\r\ntwo CHANGED\r\n' > crlf.txt
        mkdir -p 'a b/ü'; echo x > 'a b/ü/日本.txt'; printf x > "$(printf 'tab\tnew\nline')"; echo q > '-q"uote'
        git mv docs/guide.md moved.md
        rm becomes-folder; mkdir becomes-folder; echo x > becomes-folder/file
        rm -r becomes-file; echo x > becomes-file
        printf 'no end' > no-end.txt; : > empty.txt
    "#;
    let mut desk = Desk::with(&[script], |world| {
        world
            .file("plain.txt", "plain\n")
            .file("to-link", "text\n")
            .file("crlf.txt", "one\r\ntwo\r\n")
            .file("becomes-folder", "x\n")
            .file("becomes-file/file", "x\n")
            .file("no-end.txt", "an end\n")
    });
    std::os::unix::fs::symlink("src", desk.world.file("from-link")).unwrap();
    desk.world.git(["add", "-A"]);
    desk.world.git(["commit", "-qm", "More"]);
    let packet = desk.run();
    let wanted = tree_of(&copy_of(&packet));
    let applied = desk.apply(&packet).structured;
    assert_eq!(applied["applied"], true, "{applied:#}");
    assert_eq!(tree_of(&desk.world.repo()), wanted);
    assert!(applied["worktree"].as_str().unwrap().contains("removed"), "{applied:#}");
}

#[test]
fn line_ends_that_git_converts_are_no_conflict() {
    let mut desk = Desk::with(&["sed -i 's/two/TWO/' dos.txt; sed -i 's/two/TWO/' by-rule.txt"], |world| {
        world.file(".gitattributes", "by-rule.txt text eol=crlf\n")
    });
    desk.world.git(["config", "core.autocrlf", "true"]);
    for name in ["dos.txt", "by-rule.txt"] {
        desk.world.write(name, "one\r\ntwo\r\nthree\r\n");
    }
    desk.world.git(["add", "-A"]);
    desk.world.git(["commit", "-qm", "More"]);
    let packet = desk.run();
    let applied = desk.apply(&packet).structured;
    assert_eq!(applied["applied"], true, "{applied:#}");
    for name in ["dos.txt", "by-rule.txt"] {
        assert_eq!(desk.world.read(name), "one\r\nTWO\r\nthree\r\n", "{name}");
    }
}

#[test]
fn cleaning_up_loses_nothing_that_no_patch_holds() {
    let script = "echo x > untracked.txt; mkdir -p build; echo y > build/out.o; echo z > done.txt; git add done.txt; git -c user.name=W -c user.email=w@example.invalid commit -qm done; git rm -q done.txt; git -c user.name=W -c user.email=w@example.invalid commit -qm undone";
    let mut desk = Desk::new(&[script]);
    let packet = desk.run();
    let id = packet["run_id"].as_str().unwrap().to_owned();
    let refused = desk.cli(&["runs", "discard", &id]).expect_code(2);
    for lost in ["WORKTREE_KEPT", "ignored", "commits"] {
        assert!(refused.stderr().contains(lost), "{lost}: {}", refused.stderr());
    }
    assert!(copy_of(&packet).join("build/out.o").exists());
    let applied = desk.apply(&packet).structured;
    let kept = applied["worktree"].as_str().unwrap();
    assert!(
        kept.contains("ignored") && kept.contains(&*copy_of(&packet).parent().unwrap().to_string_lossy()),
        "{kept}"
    );
    // A file that was made after the run's end is not in its patch either.
    std::fs::write(copy_of(&packet).join("later.txt"), "later\n").unwrap();
    let refused = desk.cli(&["runs", "discard", &id]).expect_code(2);
    assert!(refused.stderr().contains("not in the kept patch"), "{}", refused.stderr());
    desk.cli(&["runs", "discard", &id, "--force"]).expect_code(0);
    assert!(!copy_of(&packet).exists());
    assert!(!desk.patch(&packet).is_empty(), "the patch is kept");
    desk.cli(&["runs", "discard", &id]).expect_code(2);
}

#[test]
fn a_copy_whose_patch_holds_everything_can_be_discarded() {
    let mut desk = Desk::new(&["echo x > new.txt"]);
    let packet = desk.run();
    let copy = copy_of(&packet);
    desk.cli(&["runs", "discard", packet["run_id"].as_str().unwrap()]).expect_code(0);
    assert!(!copy.exists());
    let lost = desk.correct(&packet);
    assert_eq!(lost["error"]["code"], "RUN_NOT_CONTINUABLE", "{lost:#}");
    let applied = desk.apply(&packet).structured;
    assert_eq!(applied["applied"], true, "the patch was kept: {applied:#}");
    assert_eq!(desk.world.read("new.txt"), "x\n");
}

#[test]
fn what_lies_outside_of_the_workspace_is_not_applied() {
    let mut desk = Desk::new(&["echo x > inside.txt; echo x > ../outside.txt"]);
    let workspace = desk.world.repo().join("src");
    let packet = desk.start(json!({ "workspace": workspace }));
    assert_eq!(packet["status"], "SUCCESS", "{packet:#}");
    assert!(copy_of(&packet).ends_with("tree/src"));
    let before = desk.tree();
    let refused = desk.apply(&packet).structured;
    assert_eq!(refused["error"]["code"], "APPLY_CONFLICT", "{refused:#}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("outside.txt"), "{refused:#}");
    assert_eq!(desk.tree(), before);
}

#[test]
fn a_link_in_the_way_leads_nowhere() {
    let mut desk = Desk::new(&["echo x > docs/new.txt; rm docs/guide.md"]);
    let packet = desk.run();
    let elsewhere = desk.world.outside().join("docs");
    std::fs::rename(desk.world.file("docs"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, desk.world.file("docs")).unwrap();
    let refused = desk.apply(&packet).structured;
    assert_eq!(refused["error"]["code"], "APPLY_CONFLICT", "{refused:#}");
    assert!(!elsewhere.join("new.txt").exists() && elsewhere.join("guide.md").exists());
}

#[test]
fn what_cannot_be_copied_is_refused_by_name() {
    let mut desk = Desk::new(&["true"]);
    std::fs::remove_dir_all(desk.world.repo().join(".git")).unwrap();
    let refused = desk.start(json!({}));
    assert_eq!(refused["status"], "INVALID_WORKSPACE", "{refused:#}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("no git repository"), "{refused:#}");
    std::fs::create_dir_all(desk.world.repo().join("build/sub")).unwrap();
    git(&desk.world, &["init", "-q"], &desk.world.repo());
    let ignored = desk.start(json!({ "workspace": desk.world.repo().join("build/sub") }));
    assert_eq!(ignored["status"], "INVALID_WORKSPACE", "{ignored:#}");
    assert!(ignored["error"]["message"].as_str().unwrap().contains("ignores"), "{ignored:#}");
    let none = desk.apply(&refused).structured;
    assert_eq!(none["error"]["code"], "NOTHING_TO_APPLY", "{none:#}");
}

#[test]
fn repositories_of_every_shape_are_copied_or_said_to_lack_something() {
    let mut desk = Desk::new(&["echo x > new.txt; git log --oneline > log.txt"]);
    // A submodule, and a linked work tree as the workspace.
    let inner = desk.world.outside().join("inner");
    std::fs::create_dir(&inner).unwrap();
    git(&desk.world, &["init", "-q"], &inner);
    std::fs::write(inner.join("file"), "x\n").unwrap();
    git(&desk.world, &["add", "-A"], &inner);
    git(&desk.world, &["commit", "-qm", "inner"], &inner);
    let repo = desk.world.repo();
    git(
        &desk.world,
        &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner.to_str().unwrap(), "sub"],
        &repo,
    );
    git(&desk.world, &["commit", "-qm", "with a submodule"], &repo);
    let packet = desk.run();
    assert!(packet["notes"].to_string().contains("sub"), "{packet:#}");
    let log = std::fs::read_to_string(copy_of(&packet).join("log.txt")).unwrap();
    assert_eq!(log.lines().count(), 2, "history is there: {log}");
    desk.apply(&packet).ok();
    assert!(repo.join("sub/file").exists());

    let linked = repo.join("linked");
    git(&desk.world, &["worktree", "add", "-q", "-b", "side", linked.to_str().unwrap()], &repo);
    let packet = desk.start(json!({ "workspace": linked }));
    assert_eq!(packet["status"], "SUCCESS", "{packet:#}");
    desk.apply(&packet).ok();
    assert!(linked.join("new.txt").exists());

    // No commit yet.
    let young = repo.join("young");
    std::fs::create_dir(&young).unwrap();
    git(&desk.world, &["init", "-q"], &young);
    std::fs::write(young.join("first.txt"), "first\n").unwrap();
    worker(&desk.world, &["echo more >> first.txt"]);
    let packet = desk.start(json!({ "workspace": young }));
    assert_eq!(packet["status"], "SUCCESS", "{packet:#}");
    desk.apply(&packet).ok();
    assert_eq!(std::fs::read_to_string(young.join("first.txt")).unwrap(), "first\nmore\n");
}

#[test]
fn a_profile_that_isolates_cannot_be_widened_and_a_lower_ceiling_keeps_the_patch_out() {
    let mut desk = Desk::with(&["echo x > new.txt"], |world| {
        world.config("relay", json!({ "profiles": { "careful": { "isolation": "worktree" } } }))
    });
    let refused = desk.start(json!({ "profile": "careful", "isolation": "none" }));
    assert_eq!(refused["status"], "CONFLICTING_OPTIONS", "{refused:#}");
    let mut arguments = json!({ "task": "Do it.", "workspace": desk.world.repo(), "agent": "codex", "profile": "careful", "wait_seconds": 60 });
    let packet = desk.host.call("relay_execute", arguments.clone()).structured;
    assert!(!desk.world.file("new.txt").exists() && copy_of(&packet).join("new.txt").exists(), "{packet:#}");
    arguments["isolation"] = json!("both");
    let odd = desk.host.call("relay_execute", arguments).structured;
    assert_eq!(odd["error"]["code"], "INVALID_ARGUMENT", "{odd:#}");

    let mut config = desk.world.config();
    config["policy"]["sandboxCeiling"] = json!("read-only");
    desk.world.write_config(&config);
    let refused = desk.cli(&["runs", "apply", packet["run_id"].as_str().unwrap()]);
    assert!(refused.stderr().contains("SANDBOX_AUTHORITY_DENIED"), "{}", refused.stderr());
    assert!(!desk.world.file("new.txt").exists());
}

#[test]
fn runs_in_copies_work_at_the_same_time_and_a_host_that_goes_leaves_the_copy() {
    let mut desk = Desk::new(&["true"]);
    let gate = desk.world.outside().join("gate");
    let script = format!(
        "echo x > $$.txt; : > {0}/$$.here; while [ ! -e {0}/gate ]; do sleep 0.02; done",
        desk.world.outside().display()
    );
    worker(&desk.world, &[&script]);
    let runs: Vec<Value> = (0..2).map(|_| desk.start(json!({ "wait_seconds": 0 }))).collect();
    let here = || {
        std::fs::read_dir(gate.parent().unwrap())
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|ext| ext == "here"))
            .count()
    };
    wait_for("both workers to be at work in the same repository", DEADLINE, || here() == 2);
    std::fs::write(&gate, "").unwrap();
    for run in &runs {
        let done = desk
            .host
            .call("relay_get_result", json!({ "run_id": run["run_id"], "wait_seconds": 60 }))
            .structured;
        assert_eq!((&done["status"], &done["changes"]["count"]), (&json!("SUCCESS"), &json!(1)), "{done:#}");
        desk.apply(run).ok();
    }

    std::fs::remove_file(&gate).unwrap();
    let run = desk.start(json!({ "wait_seconds": 0 }));
    wait_for("the third worker", DEADLINE, || here() == 3);
    desk.host.kill();
    desk.world.assert_no_process_left(DEADLINE);
    let shown = desk.cli(&["runs", "show", run["run_id"].as_str().unwrap(), "--json"]).json();
    assert_eq!(shown["status"], "CANCELLED", "{shown:#}");
    assert_eq!(shown["changes"]["count"], 1, "{shown:#}");
    assert_eq!(shown["patch"]["sha256"].as_str().map(str::len), Some(64), "{shown:#}");
    assert!(copy_of(&shown).exists());
}

#[test]
fn a_copy_that_was_cut_off_is_forgotten() {
    let mut desk = Desk::new(&["true"]);
    let left = desk.world.state().join("worktrees").join("0b0f2f0e-8d8f-4f5c-9f0e-3c6b6f6f6f6f");
    std::fs::create_dir_all(left.join("tree/src")).unwrap();
    std::fs::write(left.join("tree/src/half"), "half").unwrap();
    desk.run();
    assert!(!left.exists());
}
