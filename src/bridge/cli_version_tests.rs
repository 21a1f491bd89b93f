//! A program is asked for its version once, and again when it is another file.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;
use crate::agents::{
    AgentError, AuthFinding, AuthStatus, Capabilities, Launch, LaunchRequest, RunEnd, StreamParser, require,
};
use crate::config::tests::World;
use crate::policy::AgentId;

/// An agent whose program is a script of the test's.
struct Scripted {
    program: PathBuf,
    decides: bool,
}

impl Agent for Scripted {
    fn id(&self) -> AgentId {
        AgentId::Mock
    }
    fn display_name(&self) -> &'static str {
        "a script"
    }
    fn capabilities(&self) -> Capabilities {
        require(AgentId::Mock).unwrap().capabilities()
    }
    fn program(&self, _: &AgentConfig, _: &Path) -> PathBuf {
        self.program.clone()
    }
    fn launch(&self, _: &LaunchRequest<'_>) -> Result<Launch, AgentError> {
        Ok(Launch::default())
    }
    fn parser(&self, resume: Option<&str>) -> Box<dyn StreamParser> {
        require(AgentId::Mock).unwrap().parser(resume)
    }
    fn version_decides(&self) -> bool {
        self.decides
    }
    fn parse_version(&self, stdout: &str) -> Option<String> {
        stdout.trim().strip_prefix("version ").map(str::to_owned)
    }
    fn auth_args(&self, _: Option<&str>) -> Option<Vec<String>> {
        None
    }
    fn parse_auth(&self, _: &RunEnd<'_>, _: &str) -> AuthFinding {
        AuthFinding { status: AuthStatus::Unknown, detail: None }
    }
    fn login_command(&self) -> &'static str {
        ""
    }
    fn accepts_native_id(&self, _: &str) -> bool {
        false
    }
}

struct Asked {
    world: World,
    config: Config,
    agent: Scripted,
    versions: CliVersions,
}

impl Asked {
    fn new(decides: bool) -> Self {
        let world = World::new();
        let path = world.write("config.json", world.document(json!({})).to_string());
        let config = crate::config::load(&world.context, Some(&path)).unwrap();
        let agent = Scripted { program: world.at("bin/script"), decides };
        Self { world, config, agent, versions: CliVersions::default() }
    }

    /// The program says this, and leaves a mark for every time that it is asked.
    fn install(&self, says: &str) {
        let script = format!("#!/bin/sh\necho x >> \"$0.asked\"\n{says}\n");
        fs::write(&self.agent.program, script).unwrap();
        fs::set_permissions(&self.agent.program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn version(&self) -> Option<String> {
        let settings = &self.config.agents[&AgentId::Mock];
        self.versions.of(&self.world.context, &self.config, &self.agent, settings)
    }

    fn times(&self) -> usize {
        let marks = self.agent.program.with_extension("asked");
        fs::read_to_string(marks).map_or(0, |marks| marks.lines().count())
    }
}

#[test]
fn it_is_asked_once_for_each_file() {
    let asked = Asked::new(true);
    asked.install("echo version 1.0");
    assert_eq!(asked.version().as_deref(), Some("1.0"));
    assert_eq!(asked.version().as_deref(), Some("1.0"));
    assert_eq!(asked.times(), 1);
    asked.install("echo version 1.1.0");
    assert_eq!(asked.version().as_deref(), Some("1.1.0"));
    assert_eq!(asked.times(), 2);
    asked.install("echo something else entirely");
    assert_eq!((asked.version(), asked.version(), asked.times()), (None, None, 3));
}

#[test]
fn a_program_that_fails_is_asked_again() {
    let asked = Asked::new(true);
    assert_eq!(asked.version(), None, "it is not there");
    asked.install("echo version 1.0; exit 1");
    assert_eq!((asked.version(), asked.version(), asked.times()), (None, None, 2));
}

#[test]
fn nobody_is_asked_for_what_decides_nothing() {
    let asked = Asked::new(false);
    asked.install("echo version 1.0");
    assert_eq!((asked.version(), asked.times()), (None, 0));
}
