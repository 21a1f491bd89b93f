//! What a run really changed: the looks before and after it, in repositories and folders of every kind, with hostile
//! content, huge trees and programs that hang.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

#[path = "../support/mod.rs"]
mod support;

mod changes;
mod folders;
#[cfg(unix)]
mod hostile;
mod kinds;
#[cfg(unix)]
mod limits;
mod patches;
mod turns;

use std::path::{Path, PathBuf};

use agent_bridge::context::{Clock, Context};
use agent_bridge::observe::{
    self, Change, ChangeKind, ChangedFile, Limits, Observation, Request, Snapshot, Status,
};
use support::prelude::*;

/// A world, and what is needed to look at its repository.
struct Lab {
    world: World,
    limits: Limits,
}

impl Lab {
    fn new() -> Self {
        Self::of(World::new().build())
    }

    fn of(world: World) -> Self {
        // Tests run on machines that are busy with other tests.
        Self { world, limits: Limits { deadline: DEADLINE, ..Limits::default() } }
    }

    fn scratch(&self) -> PathBuf {
        self.world.path().join("scratch").join("one")
    }

    fn context(&self) -> Context {
        context(&self.world)
    }

    fn request(&self, folder: &Path) -> Request {
        Request {
            context: self.context(),
            folder: folder.to_path_buf(),
            scratch: self.scratch(),
            mark: None,
            limits: self.limits.clone(),
        }
    }

    fn before(&self) -> Snapshot {
        self.before_in(&self.world.repo())
    }

    fn before_in(&self, folder: &Path) -> Snapshot {
        observe::before(self.request(folder), &mut || None)
    }

    /// Looks, lets `run` do its work, looks again.
    fn observe(&self, run: impl FnOnce(&World)) -> Observation {
        self.observe_in(&self.world.repo(), run)
    }

    fn observe_in(&self, folder: &Path, run: impl FnOnce(&World)) -> Observation {
        let snapshot = self.before_in(folder);
        run(&self.world);
        self.after(&snapshot).observation.clone()
    }

    fn after(&self, snapshot: &Snapshot) -> Change {
        snapshot.after(DEADLINE, &mut || None)
    }

    /// Runs git in another folder of the world.
    fn git_in<const N: usize>(&self, folder: &Path, arguments: [&str; N]) -> String {
        let mut command = self.world.command("git");
        command.args(arguments).current_dir(folder);
        process::run(command, DEADLINE).expect_code(0).stdout().trim_end_matches('\n').to_owned()
    }
}

fn context(world: &World) -> Context {
    Context {
        env: world.env().clone(),
        home: Some(world.home()),
        cwd: world.repo(),
        exe: support::world::BRIDGE.into(),
        clock: Clock::System,
    }
}

/// Paths and what happened to them, sorted.
fn seen(observation: &Observation) -> Vec<(String, ChangeKind)> {
    let mut seen: Vec<_> = observation.files.iter().map(|file| (file.path.clone(), file.change)).collect();
    seen.sort_by(|one, other| one.0.cmp(&other.0));
    seen
}

#[track_caller]
fn file<'a>(observation: &'a Observation, path: &str) -> &'a ChangedFile {
    let found = observation.files.iter().find(|file| file.path == path);
    found.unwrap_or_else(|| panic!("{path} is not among {:#?}", observation.files))
}

/// Everything was looked at, and exactly this changed.
#[track_caller]
fn expect(observation: &Observation, changes: &[(&str, ChangeKind)]) {
    assert_eq!(observation.status, Status::Observed, "{:?}", observation.reason);
    let wanted: Vec<_> = changes.iter().map(|(path, kind)| ((*path).to_owned(), *kind)).collect();
    assert_eq!(seen(observation), wanted);
    assert_eq!(observation.count, changes.len() as u64);
}

/// Nothing changed at all, and that is known.
#[track_caller]
fn expect_unchanged(observation: &Observation) {
    expect(observation, &[]);
    assert_eq!(observation.changed(), Some(false), "{observation:#?}");
    assert!(observation.review.is_empty() && observation.risk.is_none());
}
