//! What is refused, and what is only asked with `--dry-run`, leaves everything as it was, byte for byte: no folder,
//! no lock file, no record. For every command that there is: the tables are held against `--help`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use support::bundle::Project;
use support::prelude::*;
use support::release::tree;

const ID: &str = "1.0.0+0123456";

/// Commands that need an installation, with arguments with which they would change it or tell of it.
const NEED_ONE: [&[&str]; 14] = [
    &["cutover", ID, "--yes"],
    &["cutover", ID, "--soft", "--trial", "1h", "--yes"],
    &["cutover", ID, "--dry-run"],
    &["rollback", "--yes"],
    &["rollback", "--to", "1", "--dry-run"],
    &["recover"],
    &["recover", "--dry-run"],
    &["prune"],
    &["prune", "--dry-run"],
    &["history"],
    &["history", "mark", "1", "good"],
    &["readiness"],
    &["readiness", "--wait", "--deadline", "1s"],
    &["rehearse", ID, "--evidence-dir", "evidence"],
];

/// Commands that find out by themselves that there is nothing.
const FIND_NOTHING: [(&[&str], i32, &str); 7] = [
    (&["configure-clients", "--create", "--client", "codex", "--apply"], 2, "CLIENTS_NO_LAUNCHER"),
    (&["canary", "release", ID], 2, "RELEASE_NOT_INSTALLED"),
    (&["canary", "launch", ID], 2, "RELEASE_NOT_INSTALLED"),
    (&["canary", "pointer"], 2, "RELEASE_NO_INSTALLATION"),
    (&["canary", "config", "config.json", "--release", ID], 2, "RELEASE_NOT_INSTALLED"),
    (&["inspect"], 0, "not installed"),
    (&["inspect", "--expect", ID], 2, "not installed"),
];

/// Each command with `--dry-run`.
const DRY: [&str; 8] = [
    "configure-clients",
    "cutover",
    "install-release",
    "package",
    "prune",
    "recover",
    "rollback",
    "state protect",
];

/// The commands of which `--help` names this option, as they are typed.
fn with_option(world: &World, option: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![Vec::<String>::new()];
    while let Some(path) = open.pop() {
        let asked = world.bridge(path.iter().map(String::as_str).chain(["--help"])).expect_code(0);
        let help = asked.stdout();
        if help.split_whitespace().any(|word| word == option) && !path.is_empty() {
            found.insert(path.join(" "));
        }
        let commands = help.lines().skip_while(|line| *line != "Commands:" && !line.ends_with("commands:"));
        let known = ["config", "state", "history", "sessions", "turns"];
        if path.is_empty() {
            // The list is arranged under several headings.
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                let word = line.split_whitespace().next().unwrap_or_default();
                if word.starts_with(|c: char| c.is_ascii_lowercase()) && word != "agent-bridge" {
                    open.push(vec![word.to_owned()]);
                }
            }
        } else if known.contains(&path[0].as_str()) && path.len() == 1 {
            for line in commands.skip(1).take_while(|line| line.starts_with("  ")) {
                let word = line.split_whitespace().next().unwrap_or_default();
                if word != "help" && !line.starts_with("   ") {
                    open.push(vec![path[0].clone(), word.to_owned()]);
                }
            }
        }
    }
    found
}

/// A world, and in it something that is no installation.
fn no_installation(kind: &str) -> (World, PathBuf) {
    let world = World::new().build();
    let root = world.path().join("some root");
    match kind {
        "missing" => {}
        "file" => std::fs::write(&root, "mine\n").unwrap(),
        "empty" => std::fs::create_dir(&root).unwrap(),
        "foreign" => {
            support::world::write(&root.join("bin").join("tool"), "mine\n");
            support::world::write(&root.join("notes.txt"), "mine\n");
        }
        other => panic!("{other}"),
    }
    (world, root)
}

/// What is no folder is refused for that.
fn said<'a>(kind: &str, otherwise: &'a str) -> &'a str {
    if kind == "file" { "RELEASE_ROOT_UNUSABLE" } else { otherwise }
}

const KINDS: [&str; 4] = ["missing", "file", "empty", "foreign"];

#[track_caller]
fn unchanged(what: &str, folder: &Path, before: &BTreeMap<String, String>) {
    let after = tree(folder);
    let differs = |name: &&String| before.get(*name) != after.get(*name);
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).filter(differs).collect();
    assert!(names.is_empty(), "{what} changed {names:?}");
}

#[test]
fn only_installing_makes_an_installation() {
    for kind in KINDS {
        let (world, root) = no_installation(kind);
        let before = tree(world.path());
        for arguments in NEED_ONE {
            let what = format!("{arguments:?} where ROOT is {kind}");
            let mut command = world.bridge_command(arguments);
            command.arg("--root").arg(&root).current_dir(world.outside());
            let refused = process::run(command, DEADLINE);
            assert_eq!(refused.code, Some(2), "{what}: {refused}");
            assert!(refused.stderr().contains(said(kind, "RELEASE_NO_INSTALLATION")), "{what}: {refused}");
            assert!(refused.stdout().is_empty(), "{what}: {refused}");
            unchanged(&what, world.path(), &before);
        }
        for (arguments, code, says) in FIND_NOTHING {
            let what = format!("{arguments:?} where ROOT is {kind}");
            let mut command = world.bridge_command(arguments);
            command.arg("--root").arg(&root).current_dir(world.outside());
            let ended = process::run(command, DEADLINE);
            assert_eq!(ended.code, Some(if kind == "file" { 2 } else { code }), "{what}: {ended}");
            let all = format!("{}{}", ended.stdout(), ended.stderr());
            assert!(all.contains(said(kind, says)), "{what}: {ended}");
            unchanged(&what, world.path(), &before);
        }
    }
}

#[test]
fn the_table_knows_every_command_that_takes_a_root() {
    let world = World::new().build();
    let known: BTreeSet<String> = NEED_ONE
        .iter()
        .map(|arguments| arguments[0])
        .chain(FIND_NOTHING.iter().map(|(arguments, ..)| arguments[0]))
        .chain(["install-release"])
        .map(str::to_owned)
        .collect();
    let takes: BTreeSet<String> = with_option(&world, "--root")
        .iter()
        .map(|command| command.split(' ').next().unwrap().to_owned())
        // The root of another kind: a folder for agents.
        .filter(|command| command != "config")
        .collect();
    assert_eq!(takes, known);
}

#[test]
fn what_is_no_folder_is_no_place_to_install() {
    let (world, root) = no_installation("file");
    let bundle = world.path().join("release.mcpb");
    std::fs::write(&bundle, Release::new("1.0.0").bundle()).unwrap();
    let before = tree(world.path());
    for more in [&[][..], &["--dry-run"]] {
        let mut command = world.bridge_command(["install-release"]);
        command.arg(&bundle).arg("--root").arg(&root).args(more);
        let refused = process::run(command, DEADLINE).expect_code(2);
        assert!(refused.stderr().contains("RELEASE_ROOT_UNUSABLE"), "{refused}");
        unchanged("install-release", world.path(), &before);
    }
}

#[test]
fn an_installation_whose_making_was_cut_off_has_nothing_to_recover_and_is_made_by_the_next_install() {
    let at = ReleaseWorld::new();
    std::fs::create_dir(at.root().join("locks")).unwrap();
    let before = at.tree();
    at.bridge(["recover"]).expect_code(0);
    unchanged("recover", at.root(), &before);
    let refused = at.bridge(["prune"]).expect_code(2);
    assert!(refused.stderr().contains("RELEASE_NO_INSTALLATION"), "{refused}");
    unchanged("prune", at.root(), &before);
    at.install(&Release::new("1.0.0"));
}

#[test]
fn a_protection_that_is_refused_leaves_nothing() {
    for kind in KINDS {
        let (world, state) = no_installation(kind);
        let before = tree(world.path());
        let mut command =
            world.bridge_command(["state", "protect", "--yes", "--backup", "record.json", "--state"]);
        command.arg(&state).current_dir(world.outside());
        let ended = process::run(command, DEADLINE);
        // What is a folder may be somebody's state; it is changed as asked, and the record says how to go back.
        assert_eq!(ended.code, Some(if kind == "file" { 2 } else { 0 }), "{kind}: {ended}");
        if matches!(kind, "file" | "missing") {
            unchanged(&format!("state protect where the state is {kind}"), world.path(), &before);
        }
    }
}

/// An installation in which every command has something to do, but nothing ever ran: no lock was ever taken.
fn installation(with_lock_folders: bool) -> (ReleaseWorld, [String; 2]) {
    let at = ReleaseWorld::new();
    at.place_launcher();
    let config = json!({ "allowedRoots": [at.repo()], "stateDir": at.state() });
    std::fs::write(at.layout().config(), format!("{config:#}\n")).unwrap();
    let old = at.place(&Release::new("1.0.0"));
    at.make_current(&old);
    let sha256 = at.current().config_sha256.unwrap();
    std::fs::copy(at.layout().config(), at.layout().config_copy(&sha256)).unwrap();
    at.place(&Release::new("0.8.0"));
    let new = at.place(&Release::new("1.1.0"));
    at.make_current(&new);
    std::fs::create_dir(at.home().join(".codex")).unwrap();
    std::fs::write(at.home().join(".codex").join("config.toml"), "model = \"mine\"\n").unwrap();
    if !with_lock_folders {
        for folder in ["locks", "leases", "holders"] {
            std::fs::remove_dir(at.root().join(folder)).unwrap();
        }
    }
    (at, [old, new])
}

#[test]
fn a_dry_run_leaves_every_byte_as_it_was() {
    for with_lock_folders in [true, false] {
        let (at, [old, _]) = installation(with_lock_folders);
        let bundle = at.bundle(&Release::new("1.2.0"));
        let bundle = bundle.to_str().unwrap();
        let state = at.path().join("a state");
        std::fs::create_dir(&state).unwrap();
        let state = state.to_str().unwrap().to_owned();
        let calls: [(&str, Vec<&str>, i32); 11] = [
            ("cutover", vec!["cutover", &old, "--dry-run"], 0),
            (
                "cutover",
                vec!["cutover", &old, "--clients", "--update-launcher", "--trial", "1h", "--dry-run"],
                0,
            ),
            ("cutover", vec!["cutover", ID, "--dry-run"], 2),
            ("rollback", vec!["rollback", "--dry-run"], 0),
            ("rollback", vec!["rollback", "--to", "9", "--dry-run"], 2),
            ("recover", vec!["recover", "--dry-run"], 0),
            ("prune", vec!["prune", "--keep", "0", "--dry-run"], 0),
            ("install-release", vec!["install-release", bundle, "--dry-run"], 0),
            ("configure-clients", vec!["configure-clients", "--dry-run"], 0),
            ("configure-clients", vec!["configure-clients", "--remove", "--dry-run"], 0),
            ("state protect", vec!["state", "protect", "--state", &state, "--dry-run"], 0),
        ];
        let before = tree(at.path());
        for (command, arguments, code) in &calls {
            assert!(DRY.contains(command));
            let what = format!("{arguments:?}");
            let ended = at.bridge(arguments.clone());
            assert_eq!(ended.code, Some(*code), "{what}: {ended}");
            unchanged(&what, at.path(), &before);
        }
        let tried: BTreeSet<&str> = calls.iter().map(|(command, ..)| *command).chain(["package"]).collect();
        assert_eq!(tried, DRY.into(), "every command of the table is tried");
        let planned = at.bridge(["prune", "--keep", "0", "--dry-run", "--json"]).expect_code(0).json();
        assert_eq!(
            planned["removed"].as_array().map(Vec::len),
            Some(1),
            "there was something to do: {planned:#}"
        );
    }
}

#[test]
fn a_dry_run_in_the_middle_of_a_transaction_leaves_it_there() {
    use agent_bridge::release::journal::{self, Journal, Record};
    let (at, [old, _]) = installation(true);
    let mut journal = Journal::create(&at.layout(), "cutover").unwrap();
    let begin = Record::Begin { operation: "cutover".into(), reason: None, facts: json!({}) };
    journal.append("2026-01-01T00:00:00.000Z", begin).map_err(|error| error.into_inner()).unwrap();
    drop(journal);
    let bundle = at.bundle(&Release::new("1.2.0"));
    let before = tree(at.path());
    let calls: [(&[&str], i32); 4] = [
        (&["recover", "--dry-run"], 0),
        (&["prune", "--dry-run"], 4),
        (&["install-release", bundle.to_str().unwrap(), "--dry-run"], 4),
        (&["cutover", &old, "--dry-run"], 4),
    ];
    for (arguments, code) in calls {
        let ended = at.bridge(arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended}");
        unchanged(&format!("{arguments:?}"), at.path(), &before);
    }
    assert!(journal::unfinished(&at.layout()).unwrap().is_some());
}

#[test]
fn a_dry_run_of_a_package_writes_nothing_at_all() {
    let project = Project::new();
    let before = tree(project.world.path());
    project.package(["--dry-run"]).expect_code(0);
    unchanged("package --dry-run", project.world.path(), &before);
}

#[test]
fn the_table_knows_every_command_with_a_dry_run() {
    let world = World::new().build();
    assert_eq!(with_option(&world, "--dry-run"), DRY.iter().map(|command| (*command).to_owned()).collect());
}
