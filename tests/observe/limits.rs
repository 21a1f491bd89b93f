//! Programs that hang, trees that are huge, and people who change their minds: bounded, said, and never "unchanged".

use std::time::Instant;

use agent_bridge::observe::ChangeKind;

use super::support::world::{find_program, write};
use super::*;

/// Puts a git in front of the real one that does `first` in the shell and then is the real one.
fn fake_git(lab: &Lab, first: &str) {
    let real = find_program("git").unwrap();
    lab.world.program("git", &format!("#!/bin/sh\n{first}\nexec '{}' \"$@\"\n", real.display()));
}

#[test]
fn a_git_that_hangs_is_ended_at_the_deadline() {
    let mut lab = Lab::new();
    fake_git(&lab, "case \"$*\" in *status*) sleep 60;; esac");
    lab.limits.deadline = Duration::from_secs(1);
    let began = Instant::now();
    let snapshot = lab.before();
    let change = lab.after(&snapshot);
    assert!(began.elapsed() < Duration::from_secs(30));
    let observation = &change.observation;
    assert_eq!((observation.status, observation.changed()), (Status::NotObserved, None));
    let reason = observation.reason.as_ref().unwrap();
    assert!(reason.contains("`git status`") && reason.contains("within 1 s"), "{reason}");
    lab.world.assert_no_process_left(DEADLINE);
}

#[test]
fn a_git_that_hangs_after_the_run_leaves_it_unknown_too() {
    let lab = Lab::new();
    let hangs = lab.world.path().join("hangs");
    fake_git(&lab, &format!("case \"$*\" in *status*) [ ! -e '{}' ] || sleep 60;; esac", hangs.display()));
    let snapshot = lab.before();
    lab.world.write("a.rs", "1\n");
    write(&hangs, "");
    let change = snapshot.after(Duration::from_secs(1), &mut || None);
    assert_eq!(change.observation.status, Status::NotObserved);
    std::fs::remove_file(&hangs).unwrap();
    // The first look is still good.
    let change = lab.after(&snapshot);
    expect(&change.observation, &[("a.rs", ChangeKind::Added)]);
}

#[test]
fn the_end_is_asked_for_politely_first() {
    let mut lab = Lab::new();
    let asked = lab.world.path().join("asked");
    let first = format!(
        "case \"$*\" in *status*) trap 'echo yes > \"{}\"; exit 1' TERM; sleep 60 & wait;; esac",
        asked.display()
    );
    fake_git(&lab, &first);
    lab.limits.deadline = Duration::from_secs(1);
    lab.before();
    assert_eq!(std::fs::read_to_string(asked).unwrap(), "yes\n");
}

#[test]
fn a_lock_that_somebody_made_is_reported_and_left() {
    let mut lab = Lab::new();
    let lock = lab.world.file(".git/index.lock");
    let first = format!("case \"$*\" in *status*) : > '{}'; trap '' TERM; sleep 60;; esac", lock.display());
    fake_git(&lab, &first);
    lab.limits.deadline = Duration::from_secs(1);
    let observation = lab.observe(|_| {});
    assert_eq!(observation.status, Status::NotObserved);
    assert!(lock.exists());
    let said: Vec<(&str, bool)> =
        observation.locks.iter().map(|lock| (lock.path.as_str(), lock.before)).collect();
    assert_eq!(said, [(".git/index.lock", false)]);
    assert!(!lab.scratch().exists());
    lab.world.assert_no_process_left(DEADLINE);
}

#[test]
fn every_git_is_told_to_take_no_lock_it_does_not_need() {
    let lab = Lab::new();
    let record = lab.world.path().join("record");
    let first = format!(
        "env -0 | tr '\\n\\0' ' \\n' | sed \"s|^|$$ |\" >> '{0}'; echo \"$$ ARGS $*\" >> '{0}'",
        record.display()
    );
    fake_git(&lab, &first);
    lab.world.write("README.md", "stale\n");
    let index = std::fs::read(lab.world.file(".git/index")).unwrap();
    let observation = lab.observe(|world| {
        world.write("a.rs", "1\n");
    });
    expect(&observation, &[("a.rs", ChangeKind::Added)]);
    assert_eq!(std::fs::read(lab.world.file(".git/index")).unwrap(), index);
    let record = std::fs::read_to_string(record).unwrap();
    let calls: Vec<(&str, &str)> = record
        .lines()
        .filter_map(|line| line.split_once(" ARGS "))
        .map(|(process, arguments)| (process.trim(), arguments))
        .collect();
    assert!(calls.len() >= 8, "{calls:?}");
    for (process, arguments) in calls {
        let has = |setting: &str| record.lines().any(|line| line == format!("{process} {setting}"));
        for setting in [
            "GIT_OPTIONAL_LOCKS=0",
            "GIT_TERMINAL_PROMPT=0",
            "GIT_NO_LAZY_FETCH=1",
            "GIT_ALLOW_PROTOCOL=none",
        ] {
            assert!(has(setting), "`git {arguments}` without {setting}");
        }
        // Only these look at the real repository, and none of them opens its index.
        let asks =
            ["rev-parse", "config", "for-each-ref", "symbolic-ref"].iter().any(|it| arguments.contains(it));
        let private = record.lines().any(|line| {
            line.starts_with(&format!("{process} GIT_INDEX_FILE=")) && line.contains("/scratch/one/")
        });
        assert!(asks != private, "`git {arguments}`: asks {asks}, private index {private}");
    }
}

#[test]
fn a_cancel_cuts_it_short() {
    let lab = Lab::new();
    fake_git(&lab, "case \"$*\" in *status*) sleep 60;; esac");
    let began = Instant::now();
    let mut asked = 0;
    let snapshot = observe::before(lab.request(&lab.world.repo()), &mut || {
        asked += 1;
        (asked > 3).then(|| "changed my mind".to_owned())
    });
    assert!(began.elapsed() < Duration::from_secs(20));
    let observation = lab.after(&snapshot).observation;
    assert_eq!(observation.status, Status::NotObserved);
    assert!(observation.reason.unwrap().contains("changed my mind"));
    lab.world.assert_no_process_left(DEADLINE);
}

/// 20,000 files as a rule, 200,000 where `AGENT_BRIDGE_TEST_HUGE` is set.
fn huge(folder: &Path) -> usize {
    let count = if std::env::var_os("AGENT_BRIDGE_TEST_HUGE").is_some_and(|value| !value.is_empty()) {
        200_000
    } else {
        20_000
    };
    for group in 0..count / 1000 {
        let inside = folder.join(format!("d{group}"));
        std::fs::create_dir_all(&inside).unwrap();
        let source = inside.join("0");
        std::fs::write(&source, "x\n").unwrap();
        for number in 1..1000 {
            // A second name of one file is made faster than a file, and a file has tens of thousands at most.
            std::fs::hard_link(&source, inside.join(number.to_string())).unwrap();
        }
    }
    count
}

#[test]
fn a_huge_number_of_new_files_is_bounded_and_said() {
    let mut lab = Lab::new();
    lab.limits.entries = 5_000;
    lab.limits.content_files = 500;
    let count = huge(&lab.world.file("huge"));
    let began = Instant::now();
    let snapshot = lab.before();
    lab.world.write("README.md", "changed\n");
    lab.world.write("huge/d0/new.txt", "new\n");
    let observation = lab.after(&snapshot).observation;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!((observation.status, observation.changed()), (Status::Truncated, Some(true)));
    let reason = observation.reason.as_ref().unwrap();
    assert!(reason.contains(&format!("only 5000 of {count}")), "{reason}");
    assert!(observation.files.iter().any(|file| file.path == "README.md"));
    assert!(observation.files.iter().any(|file| file.path == "huge/d0/new.txt"));
    // Where nothing is seen to have changed, nobody knows.
    let observation = lab.observe(|_| {});
    assert_eq!((observation.status, observation.count, observation.changed()), (Status::Truncated, 0, None));
}

#[test]
fn a_run_that_makes_a_huge_number_of_files_is_bounded_and_said() {
    let lab = Lab::new();
    let mut made = 0;
    let observation = lab.observe(|world| made = huge(&world.file("huge")));
    assert_eq!(observation.count, made.min(50_000) as u64);
    assert_eq!(observation.files.len(), 2_000);
    assert_eq!(observation.left_out.files, observation.count - 2_000);
    assert_eq!(observation.status, if made > 50_000 { Status::Truncated } else { Status::Observed });
    assert_eq!(observation.review.len(), 8);
}

#[test]
fn what_a_dead_observation_left_is_no_hindrance() {
    let lab = Lab::new();
    write(&lab.scratch().join("0/index.lock"), "left over");
    expect_unchanged(&lab.observe(|_| {}));
    assert!(!lab.scratch().exists());
}
