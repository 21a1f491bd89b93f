//! The commands that are proven, each with the installation that it starts from.

use std::fs;
use std::path::Path;

use agent_bridge::digest;

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

/// An installation with two releases of which the older one is current, and client files with entries of others.
fn installation(live: &Live) -> Vec<String> {
    let ids = bare_installation(live, &["1.0.0", "1.1.0"]);
    assert_eq!(ids[1], NEW);
    ids
}

fn bare_installation(live: &Live, versions: &[&str]) -> Vec<String> {
    let layout = live.layout();
    fs::create_dir(live.root()).unwrap();
    fs::write(live.root().join(".agent-bridge-fixture"), "").unwrap();
    layout.create().unwrap();
    launcher(live);
    write_config(&layout.config(), live, "old");
    let config = fs::read(layout.config()).unwrap();
    fs::write(layout.config_copy(&digest::of_bytes(&config)), config).unwrap();
    let ids: Vec<String> = versions.iter().map(|version| place_in(&layout, &release(version))).collect();
    make_current_in(&layout, &ids[0]);
    client_files(live);
    ids
}

/// The launcher: the program under test without what only a debugger needs. Every case reads it several times, so
/// unless everything is tried, and on a disk of its own where each copy costs, a script that starts it.
fn launcher(live: &Live) {
    let launcher = live.layout().launcher();
    if live.is_small() || !super::exhaustive() {
        let config = live.layout().config();
        let text = format!("#!/bin/sh\nAGENT_BRIDGE_CONFIG='{}' exec '{BRIDGE}' \"$@\"\n", config.display());
        fs::write(&launcher, text).unwrap();
    } else {
        let stripped = std::process::Command::new("strip").arg("-o").arg(&launcher).arg(BRIDGE).status();
        if !stripped.is_ok_and(|status| status.success()) {
            fs::copy(BRIDGE, &launcher).unwrap();
        }
    }
    set_mode(&launcher, 0o755);
}

/// Files of three clients with what their users wrote; one is a link into a folder of dotfiles.
fn client_files(live: &Live) {
    let home = live.home();
    let put = |name: &str, text: &str| {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        set_mode(&path, 0o640);
        let _ = rustix::fs::setxattr(&path, "user.mark", b"kept", rustix::fs::XattrFlags::empty());
    };
    put("dotfiles/codex.toml", "# mine\r\nmodel = \"o9\"\r\n\r\n[mcp_servers.other]\r\ncommand = \"x\"\r\n");
    fs::create_dir(home.join(".codex")).unwrap();
    std::os::unix::fs::symlink("../dotfiles/codex.toml", home.join(".codex/config.toml")).unwrap();
    put(".claude.json", "{\n\t\"numStartups\": 7,\n\t\"mcpServers\": {\"other\": {\"command\": \"x\"}}\n}");
    put(".gemini/settings.json", "{ // by hand\n  \"theme\": \"dark\"\n}\n");
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
pub fn write_config(path: &Path, live: &Live, mark: &str) {
    let config = serde_json::json!({
        "allowedRoots": [live.folder().join("given")], "stateDir": live.home().join("state"),
        "agents": { "codex": { "enabled": false }, "claude": { "enabled": false, "defaultModel": mark } },
    });
    fs::write(path, format!("{config:#}\n")).unwrap();
    set_mode(path, 0o600);
}

/// `cutover` to the newer release with another config and our entry in the files of three clients.
pub const CUTOVER: Subject = Subject {
    name: "cutover",
    prepare: |live| {
        installation(live);
        write_config(&live.given("config.json"), live, "new");
    },
    arguments: &[
        "cutover",
        NEW,
        "--yes",
        "--clients",
        "--stage-config",
        "{given}/config.json",
        "--reason",
        "a test",
    ],
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

/// `install-release` beside a current one.
pub const INSTALL: Subject = Subject {
    name: "install-release",
    prepare: |live| {
        bare_installation(live, &["1.0.0"]);
        fs::write(live.given("release.mcpb"), release("1.1.0").bundle()).unwrap();
    },
    arguments: &["install-release", "{given}/release.mcpb", "--reason", "a test"],
    sweeps: None,
};

/// `install-release` where nothing is.
pub const FIRST_INSTALL: Subject = Subject {
    name: "install-release-first",
    prepare: |live| fs::write(live.given("release.mcpb"), release("1.1.0").bundle()).unwrap(),
    arguments: &["install-release", "{given}/release.mcpb"],
    sweeps: None,
};

/// `install-release --repair` of a release that lacks a file.
pub const REPAIR: Subject = Subject {
    name: "install-release-repair",
    prepare: |live| {
        installation(live);
        let folder = live.root().join("releases").join(NEW);
        set_mode(&folder, 0o755);
        fs::remove_file(folder.join("README.md")).unwrap();
        set_mode(&folder, 0o555);
        fs::write(live.given("release.mcpb"), release("1.1.0").bundle()).unwrap();
    },
    arguments: &["install-release", "{given}/release.mcpb", "--repair"],
    sweeps: Some("root/releases/.replaced-"),
};

/// `configure-clients --apply` into the files of three clients.
pub const CLIENTS: Subject = Subject {
    name: "configure-clients",
    prepare: |live| {
        installation(live);
    },
    arguments: &[
        "configure-clients",
        "--client",
        "codex",
        "--client",
        "claude-code",
        "--client",
        "gemini",
        "--apply",
    ],
    sweeps: None,
};
