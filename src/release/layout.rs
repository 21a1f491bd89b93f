//! Where everything of an installation lies, below one folder ROOT that can be moved as a whole.
//!
//! ```text
//! ROOT/
//!   bin/agent-bridge[.exe]      the launcher, the one path that clients know
//!   pointer/a pointer/b         which release is current: two slots, written in turn
//!   current-release.json        the same for people, derived
//!   config.json                 the shared config, the operator's
//!   configs/<sha256>.json       every config that was promoted
//!   releases/<ID>/              read-only
//!   receipts/<ID>.json          where an installed release came from
//!   generations/<N>.json        what was current when, and what is known of it
//!   journal/<TXID>.jsonl        every transaction
//!   backups/<TXID>/             what a transaction replaced
//!   locks/ leases/ holders/     who is running
//! ```

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ReleaseError;
use crate::context::Context;

/// Names the folder of the installation.
pub const ROOT_VARIABLE: &str = "AGENT_BRIDGE_ROOT";

/// Name of the program, with the extension of this system.
pub fn program_name() -> String {
    format!("agent-bridge{}", std::env::consts::EXE_SUFFIX)
}

/// `<version>+<first 7 hexadecimal digits of the revision>`, the name of a release's folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReleaseId(String);

impl ReleaseId {
    /// The id of a version and a revision.
    pub fn new(version: &str, git_sha: &str) -> Result<Self, ReleaseError> {
        let short: String = git_sha.chars().take(7).collect();
        Self::parse(&format!("{version}+{short}"))
    }

    /// An id as it was written.
    pub fn parse(text: &str) -> Result<Self, ReleaseError> {
        let invalid = || ReleaseError::InvalidId { id: text.chars().take(100).collect() };
        let (version, sha) = text.split_once('+').ok_or_else(invalid)?;
        let hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if !is_version(version) || sha.len() != 7 || !sha.bytes().all(hexadecimal) || text.len() > 100 {
            return Err(invalid());
        }
        Ok(Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The version in it.
    pub fn version(&self) -> &str {
        self.0.split('+').next().unwrap_or_default()
    }
}

/// Whether a text is `MAJOR.MINOR.PATCH`, with a pre-release or without.
pub fn is_version(text: &str) -> bool {
    let (core, pre) = match text.split_once('-') {
        Some((core, pre)) => (core, Some(pre)),
        None => (text, None),
    };
    let number = |part: &str| {
        !part.is_empty()
            && part.len() <= 9
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part.len() == 1 || !part.starts_with('0'))
    };
    let identifier = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(identifier))
}

impl fmt::Display for ReleaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ReleaseId {
    type Error = ReleaseError;
    fn try_from(text: String) -> Result<Self, ReleaseError> {
        Self::parse(&text)
    }
}

impl From<ReleaseId> for String {
    fn from(id: ReleaseId) -> Self {
        id.0
    }
}

/// The role of a program by its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `ROOT/bin/agent-bridge`.
    Launcher,
    /// `ROOT/releases/<ID>/server/agent-bridge`.
    Release(ReleaseId),
}

/// The paths of one installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The installation in this folder, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The installation that a command means: `--root`, then `AGENT_BRIDGE_ROOT`, then the one that the program
    /// itself belongs to, then the usual place of this system.
    pub fn select(context: &Context, flag: Option<&Path>) -> Result<Self, ReleaseError> {
        let asked = flag
            .map(Path::to_path_buf)
            .or_else(|| context.var(ROOT_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from));
        if let Some(path) = asked {
            let absolute = path
                .to_str()
                .and_then(|text| context.expand(text, &context.cwd))
                .unwrap_or_else(|| context.cwd.join(&path));
            return Ok(Self::at(
                crate::config::would_be_canonical(&absolute).map_err(|why| unusable(absolute, &why))?,
            ));
        }
        if let Some((layout, _)) = Self::of_program(&context.exe) {
            return Ok(layout);
        }
        Self::usual(context).map(Self::at).ok_or(ReleaseError::NoRoot)
    }

    /// The usual place: where the installation already is, else the system's folder for a user's programs.
    fn usual(context: &Context) -> Option<PathBuf> {
        let home = crate::config::usable_home(context)?;
        let folder = |name: &str, otherwise: &[&str]| {
            let base = context
                .var(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
                .filter(|path| path.is_absolute());
            base.unwrap_or_else(|| otherwise.iter().fold(home.to_path_buf(), |path, part| path.join(part)))
                .join("agent-bridge")
        };
        let usual = match std::env::consts::OS {
            "windows" => folder("LOCALAPPDATA", &["AppData", "Local"]),
            "macos" => home.join("Library").join("Application Support").join("agent-bridge"),
            _ => folder("XDG_DATA_HOME", &[".local", "share"]),
        };
        let former = home.join(".codex").join("agent-bridge");
        Some(if !usual.join("releases").is_dir() && former.join("releases").is_dir() {
            former
        } else {
            usual
        })
    }

    /// The installation that a program belongs to by its place, and its role there.
    pub fn of_program(exe: &Path) -> Option<(Self, Place)> {
        let name = exe.file_name()?.to_str()?;
        if !name.eq_ignore_ascii_case(&program_name()) {
            return None;
        }
        let folder = exe.parent()?;
        match folder.file_name()?.to_str()? {
            "bin" => {
                let layout = Self::at(folder.parent()?);
                layout.is_installation().then_some((layout, Place::Launcher))
            }
            "server" => {
                let release = folder.parent()?;
                let releases = release.parent()?;
                let id = ReleaseId::parse(release.file_name()?.to_str()?).ok()?;
                (releases.file_name()? == "releases")
                    .then(|| Some((Self::at(releases.parent()?), Place::Release(id))))?
            }
            _ => None,
        }
    }

    /// Whether an installation is there. `bin/agent-bridge` alone may be any folder of programs.
    pub fn is_installation(&self) -> bool {
        self.releases().is_dir() && self.root.join("journal").is_dir()
    }

    /// Refuses a folder that is no installation, and says what it is.
    pub fn require_installation(&self) -> Result<(), ReleaseError> {
        if self.is_installation() {
            return Ok(());
        }
        let missing = ["releases", "journal"].into_iter().find(|name| !self.root.join(name).is_dir());
        let why = match std::fs::symlink_metadata(&self.root).and_then(|_| std::fs::read_dir(&self.root)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "the folder does not exist".into(),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => "it is not a folder".into(),
            Err(error) => error.to_string(),
            Ok(_) => format!("it has no folder {}", missing.unwrap_or_default()),
        };
        Err(ReleaseError::NoInstallation { root: self.root.clone(), why })
    }

    /// Whether an installation is there, or one whose making was cut off.
    pub fn is_begun(&self) -> bool {
        self.is_installation() || self.root.join("locks").is_dir()
    }

    /// ROOT.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The launcher.
    pub fn launcher(&self) -> PathBuf {
        self.root.join("bin").join(program_name())
    }

    /// The shared config.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.json")
    }

    /// The kept copy of a promoted config.
    pub fn config_copy(&self, sha256: &str) -> PathBuf {
        self.root.join("configs").join(format!("{sha256}.json"))
    }

    /// The folder of all releases.
    pub fn releases(&self) -> PathBuf {
        self.root.join("releases")
    }

    /// One release.
    pub fn release(&self, id: &ReleaseId) -> PathBuf {
        self.releases().join(id.as_str())
    }

    /// The receipt of an installed release.
    pub fn receipt(&self, id: &ReleaseId) -> PathBuf {
        self.root.join("receipts").join(format!("{id}.json"))
    }

    /// One of the two slots of the pointer, 0 or 1.
    pub fn slot(&self, slot: usize) -> PathBuf {
        self.root.join("pointer").join(if slot == 0 { "a" } else { "b" })
    }

    /// The readable copy of the pointer.
    pub fn pointer_copy(&self) -> PathBuf {
        self.root.join("current-release.json")
    }

    /// The folder of the generations.
    pub fn generations(&self) -> PathBuf {
        self.root.join("generations")
    }

    /// The record of one generation.
    pub fn generation(&self, number: u64) -> PathBuf {
        self.generations().join(format!("{number:06}.json"))
    }

    /// The folder of the journals.
    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// What one transaction replaced.
    pub fn backup(&self, txid: &str) -> PathBuf {
        self.root.join("backups").join(txid)
    }

    /// One change at a time.
    pub fn install_lock(&self) -> PathBuf {
        self.root.join("locks").join("install.lock")
    }

    /// Closed while nothing may start.
    pub fn gate_lock(&self) -> PathBuf {
        self.root.join("locks").join("gate.lock")
    }

    /// Held by everything that runs.
    pub fn lease_lock(&self) -> PathBuf {
        self.root.join("locks").join("serve.lease")
    }

    /// Held by everything that runs from one release.
    pub fn release_lease(&self, id: &ReleaseId) -> PathBuf {
        self.root.join("leases").join(format!("{id}.lease"))
    }

    /// Labels of what runs.
    pub fn holders(&self) -> PathBuf {
        self.root.join("holders")
    }

    /// Starts of a generation on trial.
    pub fn trial(&self, generation: u64) -> PathBuf {
        self.root.join("trial").join(format!("{generation:06}"))
    }

    /// Makes the folders of the locks, if they are missing: somebody who tidied up must not stop every start.
    pub fn create_locks(&self) -> Result<(), ReleaseError> {
        for folder in ["locks", "leases", "holders"] {
            crate::platform::create_private_dir(&self.root.join(folder))?;
        }
        Ok(())
    }

    /// Makes the folders of an installation that are missing, for the owner alone.
    pub fn create(&self) -> Result<(), ReleaseError> {
        let folders = [
            "locks",
            "leases",
            "holders",
            "receipts",
            "configs",
            "generations",
            "backups",
            "pointer",
            "bin",
            "releases",
            "journal",
        ];
        for folder in folders {
            crate::platform::create_private_dir(&self.root.join(folder))?;
        }
        Ok(())
    }

    /// A path below ROOT as it is written into records: relative, with slashes.
    pub fn relative(&self, path: &Path) -> Option<String> {
        let inside = path.strip_prefix(&self.root).ok()?;
        let parts: Option<Vec<&str>> = inside.components().map(|part| part.as_os_str().to_str()).collect();
        parts.map(|parts| parts.join("/"))
    }

    /// The path that a record means. Refuses everything that would lead out of ROOT.
    pub fn resolve(&self, relative: &str) -> Result<PathBuf, ReleaseError> {
        let safe = !relative.is_empty()
            && !relative.contains(['\\', '\0', ':'])
            && relative.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if safe {
            Ok(relative.split('/').fold(self.root.clone(), |path, part| path.join(part)))
        } else {
            Err(ReleaseError::JournalDamaged {
                path: self.journal(),
                why: format!("it names the path {relative:?}"),
            })
        }
    }
}

/// A reason often begins with the path that the message names already.
fn unusable(path: PathBuf, why: &str) -> ReleaseError {
    let own = why.strip_prefix(&*path.to_string_lossy()).map(|rest| format!("it{rest}"));
    ReleaseError::RootUnusable { path, why: own.unwrap_or_else(|| why.to_owned()) }
}

/// What lies in a folder of an installation, in no order; nothing where it does not exist yet.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, ReleaseError> {
    let failed = || ReleaseError::io("cannot list", folder);
    match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry.map_err(failed())?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed()(error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn ids_are_a_version_and_seven_digits() {
        for good in ["0.1.0+0123abc", "1.2.3-rc.9+fffffff", "10.0.0-a-b.1+0000000"] {
            assert_eq!(ReleaseId::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "1.0.0",
            "1.0+abcdefa",
            "1.0.0+ABCDEFA",
            "1.0.0+abcdef",
            "01.0.0+abcdefa",
            "1.0.0-+abcdefa",
            "../1.0.0+abcdefa",
            "1.0.0+abcdefa/..",
            "1.0.0-a b+abcdefa",
            "1.0.0+abcdef\u{660}",
        ] {
            assert!(ReleaseId::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(ReleaseId::new("1.0.0", "0123456789abcdef").unwrap().as_str(), "1.0.0+0123456");
    }

    #[test]
    fn a_program_knows_its_installation_by_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        layout.create().unwrap();
        let id = ReleaseId::parse("1.0.0+abcdef0").unwrap();
        let runtime = layout.release(&id).join("server").join(program_name());
        assert_eq!(Layout::of_program(&runtime), Some((layout.clone(), Place::Release(id))));
        assert_eq!(Layout::of_program(&layout.launcher()), Some((layout.clone(), Place::Launcher)));
        let usual = folder.path().join("elsewhere").join("bin").join(program_name());
        assert_eq!(Layout::of_program(&usual), None);
    }

    #[test]
    fn records_cannot_name_a_path_outside() {
        let layout = Layout::at("/root");
        for bad in ["", "/etc/passwd", "a/../../b", "..", "a//b", "./a", "a\\b", "C:/x", "a\0b"] {
            assert!(layout.resolve(bad).is_err(), "{bad:?}");
        }
        let path = layout.resolve("configs/x.json").unwrap();
        assert_eq!(layout.relative(&path).unwrap(), "configs/x.json");
    }
}
