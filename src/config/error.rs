//! What can be wrong with a config: documented codes, single problems, and the error that lists them.

use std::fmt;
use std::path::PathBuf;

use crate::error::{CodeDoc, Coded};

crate::codes! {
    CONFIG_NOT_FOUND {
        exit: Refused, retryable: false,
        cause: "The selected config file does not exist, or no config could be selected. There is no fallback without a config.",
        remedy: "Run `agent-bridge config init`, or name a file with --config FILE or AGENT_BRIDGE_CONFIG.",
    }
    CONFIG_UNREADABLE {
        exit: Refused, retryable: false,
        cause: "The selected config file exists but cannot be used: no permission, not a regular file, larger than 1 MiB, or not UTF-8 text.",
        remedy: "Check the file and its permissions, then run `agent-bridge config check`.",
    }
    CONFIG_INVALID_JSON {
        exit: Refused, retryable: false,
        cause: "The config file is not valid JSON (comments and trailing commas are not allowed), is nested too deeply, or names a key twice.",
        remedy: "Fix the file at the named place, then run `agent-bridge config check`.",
    }
    CONFIG_UNKNOWN_KEY {
        exit: Refused, retryable: false,
        cause: "The config names a key or an agent that does not exist. Unknown keys are errors, so that a misspelt limit is never ignored.",
        remedy: "Correct or remove the key; `agent-bridge config schema` lists every key.",
    }
    CONFIG_MISSING_KEY {
        exit: Refused, retryable: false,
        cause: "A key that must be present is missing from the config.",
        remedy: "Add the key; `agent-bridge config schema` describes it.",
    }
    CONFIG_INVALID_VALUE {
        exit: Refused, retryable: false,
        cause: "A value in the config has the wrong type, is out of range, or contradicts another value.",
        remedy: "Correct the value; `agent-bridge config schema` describes every key.",
    }
    CONFIG_ROOT_MISSING {
        exit: Refused, retryable: false,
        cause: "A folder named in the config does not exist, is not a folder, or cannot be examined.",
        remedy: "Create the folder or correct the path, then run `agent-bridge config check`.",
    }
    CONFIG_STATE_DIR_UNSAFE {
        exit: Refused, retryable: false,
        cause: "The state folder lies inside an allowed root, or an allowed root inside it; a worker that may write there could change approvals and records.",
        remedy: "Choose a state folder apart from every allowed root.",
    }
    CONFIG_STATE_DIR_REQUIRED {
        exit: Refused, retryable: false,
        cause: "There is no usable home folder, so the state folder has no default.",
        remedy: "Set `stateDir` in the config (AGENT_BRIDGE_STATE_DIR in bundle mode) to an absolute path, or set HOME.",
    }
    CONFIG_BUNDLE_ENV_INVALID {
        exit: Refused, retryable: false,
        cause: "Bundle mode is on and one of its environment variables is missing or has an invalid value.",
        remedy: "Correct the extension's settings in the host, or the named environment variable.",
    }
    CONFIG_EXISTS {
        exit: Refused, retryable: false,
        cause: "There is a config file already and it was not to be replaced.",
        remedy: "Pass --force to replace it (a dated backup is kept), or --path FILE to write another one.",
    }
    CONFIG_ROOT_TOO_WIDE {
        exit: Refused, retryable: false,
        cause: "The home folder, a folder that contains it, and the filesystem root are never offered to agents by `config init`.",
        remedy: "Name a project folder with --root DIR.",
    }
    CONFIG_WRITE_FAILED {
        exit: Refused, retryable: false,
        cause: "The config file, its folder or its backup could not be written. An existing file is unchanged.",
        remedy: "Check the folder's permissions and free space, or choose another place with --path FILE.",
    }
}

/// The most problems kept of one config; a hostile file could have a million.
const MAX_PROBLEMS: usize = 200;
/// The most problems spelled out in one message.
const MAX_LISTED: usize = 25;

/// One thing that is wrong with a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The documented code.
    pub doc: &'static CodeDoc,
    /// Full path of the key (`agents.codex.bin`), or the name of an environment variable; empty if
    /// the problem concerns the file as a whole.
    pub key: String,
    /// What was expected and what was found. Never contains values that may be secret.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.key, self.message)
        }
    }
}

/// Collects problems, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) list: Vec<Problem>,
}

impl Problems {
    pub(super) fn add(&mut self, doc: &'static CodeDoc, key: impl Into<String>, message: impl Into<String>) {
        if self.list.len() < MAX_PROBLEMS {
            let problem = Problem { doc, key: key.into(), message: printable(&message.into()) };
            if !self.list.contains(&problem) {
                self.list.push(problem);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= MAX_PROBLEMS
    }
}

/// Why there is no effective config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The selected file does not exist.
    #[error("no config file at {} ({selected_by})", path.display())]
    NotFound {
        /// The selected file.
        path: PathBuf,
        /// The rule that selected it.
        selected_by: &'static str,
    },
    /// No rule selected a file.
    #[error(
        "no config was named and there is no usable home folder (HOME is unset or the filesystem root) to look in"
    )]
    NoLocation,
    /// The file cannot be read as text.
    #[error("cannot read the config at {}: {reason}", path.display())]
    Unreadable {
        /// The selected file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file is not JSON.
    #[error("the config at {} is not valid JSON: line {line}, column {column}: {reason}", path.display())]
    InvalidJson {
        /// The selected file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// Why.
        reason: String,
    },
    /// The content is not acceptable. At least one problem.
    #[error("invalid agent-bridge config at {}: {}", path.display(), listed(problems))]
    Invalid {
        /// The selected file, or `MCPB:user_config`.
        path: PathBuf,
        /// Everything that is wrong.
        problems: Vec<Problem>,
    },
    /// A new file was to be written where there is one.
    #[error("there is a config at {} already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A folder that `config init` does not offer to agents.
    #[error("{} is not a good allowed root: {reason}", path.display())]
    RootTooWide {
        /// The folder.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// Nothing was written.
    #[error("cannot write {}: {reason}", path.display())]
    WriteFailed {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Paths and names of others may hold terminal codes and characters that reorder or hide text.
pub(super) fn printable(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

fn listed(problems: &[Problem]) -> String {
    let mut text = problems.iter().take(MAX_LISTED).map(Problem::to_string).collect::<Vec<_>>().join("; ");
    if problems.len() > MAX_LISTED {
        text.push_str(&format!("; and {} more", problems.len() - MAX_LISTED));
    }
    text
}

impl ConfigError {
    /// The error as a list of problems, for reports.
    pub fn into_problems(self) -> Vec<Problem> {
        match self {
            Self::Invalid { problems, .. } => problems,
            other => vec![Problem { doc: other.doc(), key: String::new(), message: other.to_string() }],
        }
    }
}

impl Coded for ConfigError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::NotFound { .. } | Self::NoLocation => &CONFIG_NOT_FOUND,
            Self::Unreadable { .. } => &CONFIG_UNREADABLE,
            Self::InvalidJson { .. } => &CONFIG_INVALID_JSON,
            Self::Exists { .. } => &CONFIG_EXISTS,
            Self::RootTooWide { .. } => &CONFIG_ROOT_TOO_WIDE,
            Self::WriteFailed { .. } => &CONFIG_WRITE_FAILED,
            Self::Invalid { problems, .. } => {
                problems.first().map_or(&CONFIG_INVALID_VALUE, |first| first.doc)
            }
        }
    }

    fn hint(&self) -> String {
        match self {
            // The remedy of the first problem would not be the whole story.
            Self::Invalid { problems, .. } if problems.len() > 1 => {
                "Correct them in the file; `agent-bridge config check` shows each on a line of its own."
                    .to_owned()
            }
            _ => self.doc().remedy.to_owned(),
        }
    }
}
