//! A new config file, before it is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::{CONFIG_INVALID_VALUE, CONFIG_ROOT_MISSING, ConfigError, Problem};
use super::paths::{canonical, canonical_folder, expand, usable_home, would_be_canonical};
use super::schema::{AgentSection, ConfigFile, Defaults, PolicySection};
use crate::context::Context;
use crate::policy::{AgentId, Sandbox, contains};

/// What a new config file says.
#[derive(Clone, Debug)]
pub struct Draft {
    /// From [`acceptable_root`].
    pub roots: Vec<PathBuf>,
    /// Highest authority any turn can get.
    pub sandbox_ceiling: Sandbox,
    /// As typed; `None` for the default.
    pub state_dir: Option<String>,
    /// Settings of agents.
    pub agents: BTreeMap<AgentId, AgentSection>,
}

impl Draft {
    /// The bytes of the file. Check them with [`super::check_bytes`] before writing.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if a path cannot be written as JSON text.
    pub fn to_bytes(&self, context: &Context, path: &Path) -> Result<Vec<u8>, ConfigError> {
        let invalid = |key: &str, message: String| ConfigError::Invalid {
            path: path.to_owned(),
            problems: vec![Problem { doc: &CONFIG_INVALID_VALUE, key: key.into(), message }],
        };
        let text = |key: &str, path: PathBuf| {
            let not_text =
                |path| invalid(key, format!("{} is not Unicode text", PathBuf::from(path).display()));
            path.into_os_string().into_string().map_err(not_text)
        };
        let mut allowed_roots = Vec::new();
        for root in &self.roots {
            let root = text("allowedRoots", root.clone())?;
            if !allowed_roots.contains(&root) {
                allowed_roots.push(root);
            }
        }
        // Typed paths start at the working folder, those of a file at the file.
        let state_dir = match &self.state_dir {
            None => None,
            Some(typed) => {
                let absolute = expand(context, typed, Some(&context.cwd))
                    .and_then(|path| would_be_canonical(&path))
                    .map_err(|reason| invalid("stateDir", reason))?;
                Some(text("stateDir", absolute)?)
            }
        };
        let file = ConfigFile {
            allowed_roots,
            agents: self.agents.clone(),
            defaults: Defaults { sandbox: Some(Sandbox::ReadOnly), ..Defaults::default() },
            policy: PolicySection { sandbox_ceiling: Some(self.sandbox_ceiling), ..PolicySection::default() },
            state_dir,
            ..ConfigFile::default()
        };
        let mut bytes = serde_json::to_vec_pretty(&file).map_err(|error| invalid("", error.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// The canonical path of a folder that may be offered to agents: an existing one, and neither the
/// home folder, nor a folder around it, nor the filesystem root.
///
/// # Errors
/// [`ConfigError::RootTooWide`] or [`ConfigError::Invalid`].
pub fn acceptable_root(context: &Context, text: &str) -> Result<PathBuf, ConfigError> {
    let folder = expand(context, text, Some(&context.cwd)).and_then(|path| canonical_folder(&path)).map_err(
        |message| ConfigError::Invalid {
            path: PathBuf::from(text),
            problems: vec![Problem { doc: &CONFIG_ROOT_MISSING, key: String::new(), message }],
        },
    )?;
    let home = usable_home(context).and_then(|home| canonical(home).ok());
    let reason = match home {
        _ if folder.parent().is_none() => "it is the root of the filesystem",
        Some(home) if home == folder => "it is the home folder",
        Some(home) if contains(&folder, &home) => "it contains the home folder",
        _ => return Ok(folder),
    };
    Err(ConfigError::RootTooWide { path: folder, reason })
}
