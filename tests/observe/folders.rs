//! Folders that are in no repository.

use agent_bridge::observe::{ChangeKind, Kind, Risk};

use super::support::world::write;
use super::*;

#[test]
fn changes_are_found_by_content() {
    let lab = Lab::new();
    let folder = lab.world.outside();
    for name in ["same.txt", "other.rs", "gone.rs", "deep/er/a.txt", "node_modules/x/index.js"] {
        write(&folder.join(name), "before\n");
    }
    let observation = lab.observe_in(&folder, |_| {});
    expect_unchanged(&observation);
    assert_eq!(observation.kind, Some(Kind::Folder));
    let observation = lab.observe_in(&folder, |_| {
        // As long as before, and its time set back.
        let path = folder.join("other.rs");
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, "beside\n").unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        // The same content, written anew.
        std::fs::write(folder.join("same.txt"), "before\n").unwrap();
        std::fs::remove_file(folder.join("gone.rs")).unwrap();
        write(&folder.join("deep/er/new.md"), "new\n");
        write(&folder.join("CLAUDE.md"), "obey\n");
        write(&folder.join("node_modules/y.js"), "ignored\n");
    });
    expect(
        &observation,
        &[
            ("CLAUDE.md", ChangeKind::Added),
            ("deep/er/new.md", ChangeKind::Added),
            ("gone.rs", ChangeKind::Deleted),
            ("other.rs", ChangeKind::Modified),
        ],
    );
    assert_eq!(observation.review[0].file, "CLAUDE.md");
    assert_eq!(file(&observation, "deep/er/new.md").risk, Risk::Low);
    assert_eq!(observation.ignored.as_ref().unwrap().before, Some(1));
}

#[test]
fn more_files_than_the_limit_are_never_called_unchanged() {
    let mut lab = Lab::new();
    lab.limits.entries = 10;
    let folder = lab.world.outside();
    for number in 0..25 {
        write(&folder.join(format!("{number}.txt")), "x");
    }
    let observation = lab.observe_in(&folder, |_| {});
    assert_eq!((observation.status, observation.changed()), (Status::Truncated, None));
    assert!(observation.reason.as_ref().unwrap().contains("only 10 files"), "{:?}", observation.reason);
    let observation = lab.observe_in(&folder, |_| write(&folder.join("new.txt"), "x"));
    assert_eq!(observation.status, Status::Truncated);
}

#[test]
fn a_deadline_is_kept_and_said() {
    let mut lab = Lab::new();
    lab.limits.deadline = Duration::ZERO;
    let folder = lab.world.outside();
    write(&folder.join("a.txt"), "x");
    let snapshot = lab.before_in(&folder);
    let observation = snapshot.after(Duration::ZERO, &mut || None).observation;
    assert_eq!((observation.status, observation.changed()), (Status::Truncated, None));
    assert!(
        observation.reason.as_ref().unwrap().contains("was not done within 0 s"),
        "{:?}",
        observation.reason
    );
}

#[cfg(unix)]
#[test]
fn links_pipes_and_types_are_told_and_nothing_waits() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::new();
    let folder = lab.world.outside();
    write(&folder.join("run.sh"), "x");
    write(&folder.join("becomes"), "x");
    let pipe = folder.join("pipe");
    let mut make = lab.world.command("mkfifo");
    make.arg(&pipe);
    process::run(make, DEADLINE).expect_code(0);
    super::support::world::link(Path::new("a"), &folder.join("link"));
    expect_unchanged(&lab.observe_in(&folder, |_| {}));
    let observation = lab.observe_in(&folder, |_| {
        std::fs::set_permissions(folder.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::remove_file(folder.join("becomes")).unwrap();
        super::support::world::link(&lab.world.repo(), &folder.join("becomes"));
        std::fs::remove_file(folder.join("link")).unwrap();
        super::support::world::link(Path::new("b"), &folder.join("link"));
    });
    expect(
        &observation,
        &[("becomes", ChangeKind::Type), ("link", ChangeKind::Modified), ("run.sh", ChangeKind::Mode)],
    );
}

#[test]
fn a_state_folder_inside_is_refused() {
    let lab = Lab::new();
    let observation = lab.observe_in(lab.world.path(), |_| {});
    assert_eq!(observation.status, Status::NotObserved);
    assert!(observation.reason.unwrap().contains("state folder"));
}
