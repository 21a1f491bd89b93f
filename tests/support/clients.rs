//! Homes with MCP clients in them, beside an installation.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::process::Finished;
use super::release::ReleaseWorld;
use super::world::write;

/// An installation with something in the launcher's place, and a home without any client.
pub struct ClientWorld {
    world: ReleaseWorld,
}

impl std::ops::Deref for ClientWorld {
    type Target = ReleaseWorld;
    fn deref(&self) -> &ReleaseWorld {
        &self.world
    }
}

impl std::ops::DerefMut for ClientWorld {
    fn deref_mut(&mut self) -> &mut ReleaseWorld {
        &mut self.world
    }
}

impl ClientWorld {
    #[allow(clippy::new_without_default, reason = "a test says what it makes")]
    pub fn new() -> Self {
        Self::of(ReleaseWorld::new())
    }

    /// In a world that is there.
    pub fn of(world: ReleaseWorld) -> Self {
        let layout = world.layout();
        layout.create().expect("the folders of the installation");
        if !layout.launcher().exists() {
            write(&layout.launcher(), "not started here");
        }
        write(&layout.config(), "{}\n");
        Self { world }
    }

    /// In a world whose installation is to stay as it is.
    pub fn of_installed(world: ReleaseWorld) -> Self {
        Self { world }
    }

    pub fn launcher(&self) -> String {
        self.layout().launcher().to_str().expect("a path in UTF-8").to_owned()
    }

    pub fn config_file(&self) -> String {
        self.layout().config().to_str().expect("a path in UTF-8").to_owned()
    }

    /// A file of the home.
    pub fn home_file(&self, relative: &str) -> PathBuf {
        relative.split('/').fold(self.home(), |path, part| path.join(part))
    }

    /// Writes a file of the home; gives its path.
    pub fn put(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.home_file(relative);
        write(&path, content);
        path
    }

    pub fn codex(&self) -> PathBuf {
        self.home_file(".codex/config.toml")
    }

    pub fn claude(&self) -> PathBuf {
        self.home_file(".claude.json")
    }

    pub fn gemini(&self) -> PathBuf {
        self.home_file(".gemini/settings.json")
    }

    pub fn desktop(&self) -> PathBuf {
        self.home_file(".config/Claude/claude_desktop_config.json")
    }

    /// `configure-clients ARGUMENTS --json`.
    #[track_caller]
    pub fn configure<const N: usize>(&self, arguments: [&str; N]) -> Finished {
        let all = ["configure-clients"].into_iter().chain(arguments).chain(["--json"]);
        self.bridge(all)
    }

    /// The same where it has to succeed; gives the document.
    #[track_caller]
    pub fn configured<const N: usize>(&self, arguments: [&str; N]) -> Value {
        self.configure(arguments).expect_code(0).json()
    }

    /// What a plan says of one client.
    #[track_caller]
    pub fn planned(&self, client: &str) -> Value {
        let document = self.configure(["--client", client]).json();
        one(&document, client)
    }

    /// The server as a JSON client has it now.
    pub fn server(&self, file: &Path) -> Value {
        let text = std::fs::read_to_string(file).expect("a client's file");
        let document: Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).expect("JSON");
        document["mcpServers"]["agent-bridge"].clone()
    }

    /// What has to stand there.
    pub fn expect_server(&self, server: &Value) {
        assert_eq!(server["command"], self.launcher(), "{server:#}");
        assert_eq!(server["args"], json!(["serve"]), "{server:#}");
        assert_eq!(server["env"]["AGENT_BRIDGE_CONFIG"], self.config_file(), "{server:#}");
    }
}

/// What a document says of one client.
#[track_caller]
pub fn one(document: &Value, client: &str) -> Value {
    let all = document["clients"].as_array().expect("a list of clients");
    let found = all.iter().find(|one| one["client"] == client);
    found.unwrap_or_else(|| panic!("{client} is not in {document:#}")).clone()
}
