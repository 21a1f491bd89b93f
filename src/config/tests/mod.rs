//! The room as its callers see it, in a throwaway world.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bundle;
mod content;
mod explain;
mod folders;
mod scope;
mod selection;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{CheckReport, Config, ConfigError, canonical, check_bytes, load};
use crate::context::{Clock, Context};

/// A folder with a home, an allowed folder and a program, and a context that knows nothing else.
pub(crate) struct World {
    _folder: tempfile::TempDir,
    /// Canonical; has spaces, quotes and other scripts in its name.
    pub(crate) top: PathBuf,
    pub(crate) context: Context,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let top = canonical(folder.path()).unwrap().join("A B").join("テスト é'");
        for name in ["home", "work", "bin"] {
            std::fs::create_dir_all(top.join(name)).unwrap();
        }
        let context = Context {
            env: Default::default(),
            home: Some(top.join("home")),
            cwd: top.join("bin"),
            exe: top.join("bin").join("agent-bridge"),
            clock: Clock::Fixed(1_764_526_020_000),
        };
        Self { _folder: folder, top, context }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        name.split('/').fold(self.top.clone(), |path, part| path.join(part))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.at(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        std::fs::create_dir_all(self.at(name)).unwrap();
        self.at(name)
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.context.env.insert(name.into(), value.into());
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A valid document with `changes` merged over its top level.
    pub(crate) fn document(&self, changes: Value) -> Value {
        let mut document = json!({"allowedRoots": [self.text("work")]});
        for (key, value) in changes.as_object().unwrap() {
            document[key] = value.clone();
        }
        document
    }

    /// Loads a valid document with changes.
    fn load(&self, changes: Value) -> Result<Config, ConfigError> {
        let path = self.write("config/agent-bridge.json", self.document(changes).to_string());
        load(&self.context, Some(&path))
    }

    fn check(&self, changes: Value) -> CheckReport {
        let path = self.at("config/agent-bridge.json");
        check_bytes(&self.context, &path, self.document(changes).to_string().as_bytes())
    }

    /// `CODE key` of every problem.
    fn problems(&self, changes: Value) -> Vec<String> {
        codes(&self.check(changes))
    }
}

fn codes(report: &CheckReport) -> Vec<String> {
    assert_eq!(report.config.is_some(), report.problems.is_empty());
    report.problems.iter().map(|problem| format!("{} {}", problem.doc.code, problem.key)).collect()
}

fn code(error: ConfigError) -> &'static str {
    crate::error::Error::from(error).code()
}

/// Whether a link to a folder could be made; Windows needs a privilege for it.
fn link(target: &Path, link: &Path) -> bool {
    #[cfg(unix)]
    let made = std::os::unix::fs::symlink(target, link);
    #[cfg(windows)]
    let made = std::os::windows::fs::symlink_dir(target, link);
    // Wine says that it made one, and makes none.
    made.is_ok() && std::fs::symlink_metadata(link).is_ok()
}
