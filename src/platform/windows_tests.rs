//! What a real Windows (or Wine) does with files that other programs hold open, and with programs that run.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, OpenOptions};
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use windows_sys::Win32::Storage::FileSystem::FILE_SHARE_READ;

use super::*;
use crate::error::Coded as _;
use crate::platform::{
    PlatformError, Replacement, overwrite_durable, replace_durable, replace_if, seal_tree, write_durable,
};

fn how() -> Replacement {
    Replacement { temporary: ".ab-test-1.tmp".into(), mode_if_new: 0o600 }
}

/// A scanner: holds the file from now on, for this long or until it is told to let go.
fn hold(path: &Path, share: u32, time: Option<Duration>) -> (mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let file = OpenOptions::new().read(true).share_mode(share).open(path).unwrap();
    let (sender, told) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _ = told.recv_timeout(time.unwrap_or(Duration::from_secs(60)));
        drop(file);
    });
    (sender, thread)
}

fn names(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

type Change = fn(&Path) -> Result<(), PlatformError>;

const CHANGES: [(&str, Change, Option<&[u8]>); 5] = [
    ("replace_durable", |path| replace_durable(path, b"new", &how()), Some(b"new")),
    (
        "replace_if",
        |path| {
            replace_if(path, Some(b"new"), &how(), &|there| there == Some(b"old")).map(|done| assert!(done))
        },
        Some(b"new"),
    ),
    (
        "replace_if, to nothing",
        |path| replace_if(path, None, &how(), &|there| there == Some(b"old")).map(|done| assert!(done)),
        None,
    ),
    ("write_durable", |path| write_durable(path, b"new", 0o600), Some(b"new")),
    ("overwrite_durable", |path| overwrite_durable(path, b"new"), Some(b"new")),
];

/// Field report: replacing a file meets a virus scanner.
#[test]
fn a_target_that_a_scanner_holds_for_300_ms_is_changed() {
    for share in [0, FILE_SHARE_READ] {
        for (name, change, after) in CHANGES {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            fs::write(&path, "old").unwrap();
            let (_told, thread) = hold(&path, share, Some(Duration::from_millis(300)));
            change(&path).unwrap_or_else(|error| panic!("{name}, share {share}: {error}"));
            thread.join().unwrap();
            assert_eq!(fs::read(&path).ok().as_deref(), after, "{name}, share {share}");
            assert_eq!(
                names(folder.path()),
                usize::from(after.is_some()),
                "{name}, share {share}: leftovers"
            );
        }
    }
}

/// The same, for good.
#[test]
fn a_target_that_is_held_for_good_is_a_named_error_and_nothing_changes() {
    std::thread::scope(|scope| {
        for share in [0, FILE_SHARE_READ] {
            for (name, change, _) in CHANGES {
                scope.spawn(move || {
                    let folder = tempfile::tempdir().unwrap();
                    let path = folder.path().join("file");
                    fs::write(&path, "old").unwrap();
                    let (told, thread) = hold(&path, share, None);
                    let began = Instant::now();
                    let error = change(&path).unwrap_err();
                    assert!(began.elapsed() < Duration::from_secs(30), "{name}: it gives up");
                    assert_eq!(error.doc().code, "WRITE_TARGET_BUSY", "{name}, share {share}: {error}");
                    drop(told);
                    thread.join().unwrap();
                    assert_eq!(fs::read(&path).unwrap(), b"old", "{name}, share {share}");
                    assert_eq!(names(folder.path()), 1, "{name}, share {share}: leftovers");
                });
            }
        }
    });
}

#[test]
fn a_sealed_tree_is_held_by_a_scanner_while_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("a")).unwrap();
    fs::write(tree.join("a/file"), "x").unwrap();
    seal_tree(&tree).unwrap();
    let (_told, thread) = hold(&tree.join("a/file"), FILE_SHARE_READ, Some(Duration::from_millis(300)));
    crate::platform::remove_durable(&tree).unwrap();
    thread.join().unwrap();
    assert_eq!(names(folder.path()), 0);
}

/// A copy of this test program that runs until it is dropped.
struct Running {
    folder: tempfile::TempDir,
    path: PathBuf,
    child: std::process::Child,
}

impl Running {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program.exe");
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let child = std::process::Command::new(&path)
            .args(["--exact", "platform::os::tests::a_program_that_runs_until_it_is_told", "--ignored"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        Self { folder, path, child }
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

#[test]
#[ignore = "it is the other program of the tests below"]
fn a_program_that_runs_until_it_is_told() {
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

#[test]
fn a_program_that_runs_is_replaced_and_put_back() {
    let mut running = Running::start();
    let path = running.path.clone();
    let old = fs::read(&path).unwrap();
    assert!(fs::remove_file(&path).is_err(), "it runs, so the system keeps it");
    sync_file(&path).unwrap();
    let is = |wanted: Vec<u8>| move |there: Option<&[u8]>| there == Some(wanted.as_slice());
    assert!(replace_if(&path, Some(b"new"), &how(), &is(old.clone())).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert!(replace_if(&path, Some(&old), &how(), &is(b"new".to_vec())).unwrap());
    assert!(fs::read(&path).unwrap() == old, "it is put back");
    assert!(running.child.try_wait().unwrap().is_none(), "it still runs");
    running.end();
    for name in names_of_replacement(&running.folder.path().join(&how().temporary)) {
        let _ = crate::platform::remove_leftover(&name);
    }
    assert_eq!(names(running.folder.path()), 1, "once it has ended nothing of it has to stay");
}

#[test]
fn the_name_of_a_program_that_runs_can_be_taken_away() {
    let mut running = Running::start();
    let path = running.path.clone();
    assert!(replace_if(&path, None, &how(), &|there| there.is_some()).unwrap());
    assert!(!path.exists());
    running.end();
    for name in names_of_replacement(&running.folder.path().join(&how().temporary)) {
        let _ = crate::platform::remove_leftover(&name);
    }
    assert_eq!(names(running.folder.path()), 0);
}

#[test]
fn a_process_is_looked_at_again_until_it_is_gone() {
    let mut running = Running::start();
    let pid = running.child.id();
    let SecondLook::Runs(exe) = look_again(pid) else { panic!("it runs, and it is ours") };
    assert_eq!(exe.file_name().unwrap(), "program.exe");
    running.end();
    assert!(matches!(look_again(pid), SecondLook::Gone));
}

#[test]
fn a_replacement_that_was_cut_off_between_its_steps_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let temporary = folder.path().join(how().temporary);
    fs::write(&temporary, "new").unwrap();
    fs::write(&names_of_replacement(&temporary)[1], "old").unwrap();
    take_back(&path, &temporary).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    take_back(&path, &temporary).unwrap();
    assert_eq!(names(folder.path()), 2);
}
