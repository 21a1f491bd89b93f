//! Which config is used: `--config`, then the environment, then bundle mode, then the usual places.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::error::ConfigError;
use super::paths::usable_home;
use super::{ConfigSource, bundle};
use crate::context::Context;

/// The variable that names the config file.
pub const CONFIG_VARIABLE: &str = "AGENT_BRIDGE_CONFIG";
/// Shown as the path of a config that comes from the environment of a bundle.
pub const BUNDLE_PATH: &str = "MCPB:user_config";
/// The config file's name.
pub const FILE_NAME: &str = "config.json";
/// The folder below the home folder with the default config and state.
pub const HOME_FOLDER: &str = ".agent-bridge";

/// A selected config; the file may still be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// Absolute path, or [`BUNDLE_PATH`].
    pub path: PathBuf,
    /// The rule.
    pub source: ConfigSource,
}

/// Applies the rules of precedence. `flag` is the value of `--config`.
///
/// # Errors
/// [`ConfigError::NoLocation`] if no rule applies, because there is no usable home folder.
pub fn select(context: &Context, flag: Option<&Path>) -> Result<Selected, ConfigError> {
    if let Some(path) = flag {
        return Ok(Selected { path: absolute(context, path), source: ConfigSource::Flag });
    }
    // Not `text_var`: a name that is not Unicode must select that file, not the next rule.
    if let Some(value) = context.var(CONFIG_VARIABLE).filter(|value| !value.is_empty()) {
        return Ok(Selected { path: absolute(context, Path::new(value)), source: ConfigSource::Environment });
    }
    if context.var(bundle::MODE_VARIABLE) == Some(OsStr::new("1")) {
        return Ok(Selected { path: PathBuf::from(BUNDLE_PATH), source: ConfigSource::Bundle });
    }
    // A file that is there but cannot be examined is selected, and its error told: falling through
    // to another config would be a surprise.
    if let Some(path) = context.exe.parent().map(|folder| folder.join(FILE_NAME)) {
        let absent =
            std::fs::symlink_metadata(&path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
        if path.is_absolute() && !absent {
            return Ok(Selected { path, source: ConfigSource::BesideProgram });
        }
    }
    default_location(context)
        .map(|path| Selected { path, source: ConfigSource::DefaultLocation })
        .ok_or(ConfigError::NoLocation)
}

/// `~/.agent-bridge/config.json`, if there is a usable home folder.
pub fn default_location(context: &Context) -> Option<PathBuf> {
    usable_home(context).map(|home| home.join(HOME_FOLDER).join(FILE_NAME))
}

fn absolute(context: &Context, path: &Path) -> PathBuf {
    path.to_str()
        .and_then(|text| context.expand(text, &context.cwd))
        .unwrap_or_else(|| context.cwd.join(path))
}
