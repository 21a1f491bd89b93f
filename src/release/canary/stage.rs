//! The throwaway world of a program on trial: folders, environment, config.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::CanaryError;
use crate::context::Context;
use crate::platform;
use crate::release::Layout;

/// Variables of Windows without which programs do not start.
const SYSTEM: [&str; 6] = ["SystemRoot", "SystemDrive", "windir", "ComSpec", "PATHEXT", "ProgramData"];
/// Where a user's things are; for the launcher and for a config that names them.
const USER: [&str; 7] = ["HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TMPDIR", "TEMP", "TMP"];

/// Folders that vanish with this value.
#[derive(Debug)]
pub struct Stage {
    _folder: TempDir,
    path: PathBuf,
}

impl Stage {
    /// Makes them, outside the installation.
    pub fn create(layout: &Layout) -> Result<Self, CanaryError> {
        let failed = |why: String| CanaryError::Stage { why };
        let temporary = std::env::temp_dir();
        if platform::lies_inside(&temporary, layout.root()) {
            return Err(failed(format!("{} lies inside the installation", temporary.display())));
        }
        let folder = tempfile::Builder::new()
            .prefix("agent-bridge-stage-")
            .tempdir_in(&temporary)
            .map_err(|error| failed(format!("{}: {error}", temporary.display())))?;
        let path = crate::config::canonical(folder.path()).map_err(|error| failed(error.to_string()))?;
        for name in ["work", "home", "tmp"] {
            std::fs::create_dir(path.join(name)).map_err(|error| failed(error.to_string()))?;
        }
        Ok(Self { _folder: folder, path })
    }

    /// The folder that holds everything.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The only folder that agents would be allowed in.
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// The state folder; not made here.
    pub fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// Writes a private file.
    pub fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Result<PathBuf, CanaryError> {
        let path = self.path.join(name);
        match platform::write_durable(&path, bytes, mode) {
            Ok(()) => Ok(path),
            Err(error) => Err(CanaryError::Stage { why: error.to_string() }),
        }
    }

    /// Writes a config with every agent off, changed by `change`.
    pub fn config(&self, change: impl FnOnce(&mut Value)) -> Result<PathBuf, CanaryError> {
        let mut config = json!({
            "allowedRoots": [self.work()],
            "stateDir": self.state(),
            "agents": { "codex": { "enabled": false }, "claude": { "enabled": false } },
            "defaults": { "cwd": self.work(), "timeoutSec": 30, "sandbox": "read-only" },
            "policy": { "sandboxCeiling": "read-only" },
        });
        change(&mut config);
        self.write("config.json", format!("{config:#}\n").as_bytes(), 0o600)
    }

    /// The environment of a program that must not touch anything of the user's.
    pub fn environment(&self, context: &Context) -> Vec<(OsString, OsString)> {
        let mut env = system_variables(context);
        let mut set = |name: &str, value: OsString| env.push((name.into(), value));
        let (home, tmp) = (self.path.join("home").into_os_string(), self.path.join("tmp").into_os_string());
        if cfg!(windows) {
            let root = context.var("SystemRoot").map(PathBuf::from).unwrap_or_default();
            set("PATH", root.join("System32").into_os_string());
            set("USERPROFILE", home.clone());
            set("APPDATA", self.path.join("home").into_os_string());
            set("LOCALAPPDATA", self.path.join("home").into_os_string());
            set("TEMP", tmp.clone());
            set("TMP", tmp);
        } else {
            set("PATH", "/usr/bin:/bin".into());
            set("TMPDIR", tmp);
        }
        set("HOME", home);
        env
    }

    /// The environment of a program that reads the user's own config: where the user's things are, and nothing
    /// else, not even a search path.
    pub fn user_environment(context: &Context) -> Vec<(OsString, OsString)> {
        let mut env = system_variables(context);
        env.extend(USER.iter().filter_map(|name| Some(((*name).into(), context.var(name)?.to_owned()))));
        env
    }
}

fn system_variables(context: &Context) -> Vec<(OsString, OsString)> {
    if !cfg!(windows) {
        return Vec::new();
    }
    SYSTEM.iter().filter_map(|name| Some(((*name).into(), context.var(name)?.to_owned()))).collect()
}
