//! What a run finds in its run folder: a private folder of its own, made for it and removed after it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::endpoint::{TOKEN_VARIABLE, placeholder};

/// Where a CLI that writes a log of its own is told to write it, in the run folder. Its end is given to the
/// parser.
pub const LOG_NAME: &str = "cli.log";

/// Files of a run folder. With none of either kind the folder is still made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateFiles {
    /// To be written before the start.
    pub files: Vec<PlannedFile>,
    /// Files of the user's that hold the login, to be copied if they exist.
    pub logins: Vec<LoginCopy>,
    /// Folders that outlive the run: the next runs of its session with this agent find them again.
    pub kept: Vec<KeptFolder>,
    /// The variable that names the user's home for this CLI, where it has one.
    pub home_variable: Option<String>,
}

impl PrivateFiles {
    /// One file.
    pub fn one(path: PathBuf, content: String) -> Self {
        let file = PlannedFile { path, content, holds_token: false, inherits: Vec::new() };
        Self { files: vec![file], ..Self::default() }
    }

    /// These and those.
    pub fn and(mut self, other: Self) -> Self {
        self.files.extend(other.files);
        self.logins.extend(other.logins);
        self.kept.extend(other.kept);
        self.home_variable = other.home_variable.or(self.home_variable);
        self
    }
}

/// A file of a run folder. To be written with mode 0600, in a folder with mode 0700.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFile {
    /// Where, inside the run folder.
    pub path: PathBuf,
    /// What, with `${AGENT_BRIDGE_SCOPE}` for the token.
    pub content: String,
    /// The CLI does not read variables in this file: whoever writes it puts the token in.
    pub holds_token: bool,
    /// What a JSON content takes over from files of the user's, where they have it.
    pub inherits: Vec<Inherited>,
}

impl PlannedFile {
    /// The bytes to write.
    pub fn content_with(&self, token: &str) -> String {
        if self.holds_token {
            self.content.replace(&placeholder(TOKEN_VARIABLE), token)
        } else {
            self.content.clone()
        }
    }
}

/// A value of a JSON file of the user's, for the same place in a planned one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// The file, below the user's home. Comments are allowed in it.
    pub from_home: String,
    /// Where in it, as a JSON pointer.
    pub pointer: String,
}

/// A folder of a run folder in which a CLI keeps a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFolder {
    /// Where, inside the run folder.
    pub path: PathBuf,
    /// What it is called where it is kept: one name, no path.
    pub name: String,
}

/// A file that a login may be kept in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginCopy {
    /// Below the user's home.
    pub from_home: String,
    /// Where to, inside the run folder.
    pub to: PathBuf,
}
