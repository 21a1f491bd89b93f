//! Packaging: a checkout of its own with what a bundle is made of, and programs that say what they are.
//!
//! ```ignore
//! let project = Project::new();
//! let packaged = project.package(["--out", "DIR"]).expect_code(0).json();
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::process::{self, DEADLINE, Finished};
use super::world::{World, write};

/// The program file that the commit gives, by its path below the project's folder.
const SOURCES: [&str; 8] = [
    ".gitignore",
    "Cargo.lock",
    "Cargo.toml",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "manifest.template.json",
    "src/mcp/catalogue.json",
];

/// A checkout that can be packaged, and a file that claims to be its program.
pub struct Project {
    pub world: World,
    /// The program; its content is the identity and some filling.
    pub binary: PathBuf,
}

impl Project {
    /// The same content gives the same revision each time.
    pub fn new() -> Self {
        Self::in_world(World::new().build())
    }

    /// The same in a world that was described otherwise.
    pub fn in_world(world: World) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        for path in SOURCES {
            world.write(path, std::fs::read(source.join(path)).expect(path));
        }
        for path in files_below(&source.join("templates")) {
            let inside =
                path.strip_prefix(source).expect("below the project").to_string_lossy().replace('\\', "/");
            world.write(&inside, std::fs::read(&path).expect("a template"));
        }
        world.git(["add", "--all"]);
        world.git(["commit", "--quiet", "--message=Sources"]);
        let binary = world.path().join("agent-bridge-built");
        let project = Self { world, binary };
        project.write_binary(&project.identity("linux"), b"");
        project
    }

    /// The identity that a build of the commit for this system would have.
    pub fn identity(&self, os: &str) -> Value {
        let own = agent_bridge::release::identity::own().expect("this build has an identity");
        json!({
            "package": "agent-bridge",
            "version": own.version,
            "gitSha": self.world.git(["rev-parse", "HEAD"]),
            "commitTime": 1_767_225_600,
            "dirty": false,
            "target": { "os": os, "arch": "x86_64", "triple": format!("x86_64-unknown-{os}") },
            "catalogueSha256": own.catalogue_sha256,
        })
    }

    /// Makes the program anew, with this filling behind what it says of itself.
    pub fn write_binary(&self, identity: &Value, filling: &[u8]) {
        let head = format!("#!/bin/sh\nexit 0\n\n[agent-bridge identity 1] {identity}\n[identity ends]\n");
        write(&self.binary, [head.as_bytes(), filling].concat());
    }

    /// `agent-bridge package` of it with these arguments, not started.
    pub fn package_command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.world.bridge_command(["package", "--other-packager", "--json", "--binary"]);
        command.arg(&self.binary).args(arguments);
        command
    }

    /// The same, run to its end.
    #[track_caller]
    pub fn package<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Finished {
        process::run(self.package_command(arguments), DEADLINE)
    }

    /// The folder that bundles go to if nothing is said.
    pub fn dist(&self) -> PathBuf {
        self.world.file("dist")
    }

    /// Packages and gives the path of the bundle.
    #[track_caller]
    pub fn bundle<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> PathBuf {
        let document = self.package(arguments).expect_code(0).json();
        PathBuf::from(document["bundle"].as_str().expect("the path of the bundle"))
    }
}

/// Every file below a folder, sorted.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}
