//! The commands that are proven, each with the installation that it starts from.

use std::fs;
use std::path::Path;

use agent_bridge::release::digest;

use super::live::{BRIDGE, Live};
use crate::support::release::{Release, make_current_in, place_in, set_mode};

/// A command and where it starts.
pub struct Subject {
    /// Names it in what is printed.
    pub name: &'static str,
    /// Makes the folder as it is before the command.
    pub prepare: fn(&Live),
    /// The command.
    pub arguments: &'static [&'static str],
    /// Begin of names that it leaves behind a cut after its decision, for its next run to remove.
    pub sweeps: Option<&'static str>,
}

/// A release whose program is the program under test, but small: it only starts it.
fn release(version: &str) -> Release {
    Release::script(version, &format!("#!/bin/sh\nexec '{BRIDGE}' \"$@\"\n"))
}

/// An installation with two releases of which the older one is current.
fn installation(live: &Live) -> Vec<String> {
    let layout = live.layout();
    fs::create_dir(live.root()).unwrap();
    fs::write(live.root().join(".agent-bridge-fixture"), "").unwrap();
    layout.create().unwrap();
    launcher(live);
    write_config(&layout.config(), live, "old");
    let config = fs::read(layout.config()).unwrap();
    fs::write(layout.config_copy(&digest::of_bytes(&config)), config).unwrap();
    let ids: Vec<String> = ["1.0.0", "1.1.0"].map(|version| place_in(&layout, &release(version))).into();
    make_current_in(&layout, &ids[0]);
    ids
}

/// The launcher: the program under test without what only a debugger needs, since every case may read it.
fn launcher(live: &Live) {
    let launcher = live.layout().launcher();
    let stripped = std::process::Command::new("strip").arg("-o").arg(&launcher).arg(BRIDGE).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(BRIDGE, &launcher).unwrap();
    }
    set_mode(&launcher, 0o755);
}

/// `history mark`: one record after the decision.
pub const MARK: Subject = Subject {
    name: "history-mark",
    prepare: |live| {
        let ids = installation(live);
        make_current_in(&live.layout(), &ids[1]);
    },
    arguments: &["history", "mark", "2", "bad"],
    sweeps: None,
};

/// `prune`: a release goes.
pub const PRUNE: Subject = Subject {
    name: "prune",
    prepare: |live| {
        installation(live);
    },
    arguments: &["prune", "--keep", "0"],
    sweeps: Some("root/releases/.pruned-"),
};

/// The id of the newer release of [`installation`].
const NEW: &str = "1.1.0+7fbd210";

/// The shared config, with a mark by which two can be told apart.
fn write_config(path: &Path, live: &Live, mark: &str) {
    let config = serde_json::json!({
        "allowedRoots": [live.folder().join("given")], "stateDir": live.home().join("state"),
        "agents": { "codex": { "enabled": false }, "claude": { "enabled": false, "defaultModel": mark } },
    });
    fs::write(path, format!("{config:#}\n")).unwrap();
    set_mode(path, 0o600);
}

/// `cutover` to the newer release with another config.
pub const CUTOVER: Subject = Subject {
    name: "cutover",
    prepare: |live| {
        let ids = installation(live);
        assert_eq!(ids[1], NEW);
        write_config(&live.given("config.json"), live, "new");
    },
    arguments: &["cutover", NEW, "--yes", "--stage-config", "{given}/config.json", "--reason", "a test"],
    sweeps: None,
};

/// `rollback` from it.
pub const ROLLBACK: Subject = Subject {
    name: "rollback",
    prepare: |live| {
        (CUTOVER.prepare)(live);
        live.must(CUTOVER.arguments);
    },
    arguments: &["rollback", "--yes", "--reason", "it was slow"],
    sweeps: None,
};
