//! Where a client's file is, and what is there: links followed to their end, nothing unreadable taken for absent.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use super::error::ClientsError;
use super::table::{Base, Client, Place};
use crate::context::Context;
use crate::platform;

/// Largest client file that is edited.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Longest chain of links.
const MAX_LINKS: usize = 40;

/// The machine that files are looked for on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// `linux`, `macos`, `windows`.
    pub system: String,
    /// What machine-wide paths are below: the root folder, elsewhere in tests.
    pub root: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self { system: std::env::consts::OS.to_owned(), root: PathBuf::from("/") }
    }
}

impl Machine {
    /// A machine-wide file, below another root in tests.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        if self.root == Path::new("/") {
            PathBuf::from(path)
        } else {
            let inside = path.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == ':');
            self.root.join(inside.replace('\\', "/").trim_start_matches('/'))
        }
    }
}

/// A file that a client reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// As the client names it.
    pub file: PathBuf,
    /// Why it is this one.
    pub why: String,
    /// The folder that tells that the client is there.
    pub sign: PathBuf,
}

/// Where the client itself would look. More than one only for packaged applications.
pub(super) fn locate(client: &Client, context: &Context, machine: &Machine) -> Vec<Location> {
    for place in client.places {
        let applies = place.systems.is_empty() || place.systems.contains(&machine.system.as_str());
        let found = if applies { at(place, context) } else { Vec::new() };
        let found: Vec<Location> =
            found.into_iter().filter(|one| !place.only_if_present || has_content(&one.file)).collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

fn has_content(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0)
}

fn at(place: &Place, context: &Context) -> Vec<Location> {
    let folder = |name: &str| {
        let value = context.var(name).filter(|value| !value.is_empty())?;
        Some(context.cwd.join(value))
    };
    let file = |base: &Path| place.path.iter().fold(base.to_path_buf(), |path, part| path.join(part));
    let one = |base: PathBuf, why: String| {
        let file = file(&base);
        // For a file right in the home folder the client's own folder beside it is the sign.
        let sign = match (place.base, place.path) {
            (Base::Home, [".claude.json"]) => base.join(".claude"),
            _ => file.parent().unwrap_or(&base).to_path_buf(),
        };
        vec![Location { file, why, sign }]
    };
    match place.base {
        Base::Variable(name) => match folder(name) {
            Some(base) => one(base, format!("{name} is set")),
            None => Vec::new(),
        },
        Base::Home => match crate::config::usable_home(context) {
            Some(home) => one(home.to_path_buf(), "the usual place".into()),
            None => Vec::new(),
        },
        Base::RoamingData => {
            let base = folder("APPDATA").or_else(|| {
                crate::config::usable_home(context).map(|home| home.join("AppData").join("Roaming"))
            });
            base.map_or_else(Vec::new, |base| one(base, "the usual place".into()))
        }
        Base::Package(prefix) => {
            let base = folder("LOCALAPPDATA").or_else(|| {
                crate::config::usable_home(context).map(|home| home.join("AppData").join("Local"))
            });
            let Some(base) = base else { return Vec::new() };
            let mut packages: Vec<PathBuf> = std::fs::read_dir(base.join("Packages"))
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| {
                    path.is_dir()
                        && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
                })
                .collect();
            packages.sort();
            packages
                .iter()
                .flat_map(|package| one(package.clone(), "the packaged application".into()))
                .collect()
        }
    }
}

/// What is at a client's file.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    /// The end of the chain of links; the file itself if it is none.
    pub target: PathBuf,
    /// The links, the client's own path first.
    pub links: Vec<PathBuf>,
    /// Its content; none if nothing is there.
    pub content: Option<Vec<u8>>,
}

/// Follows every link and reads what is there.
pub(super) fn look(file: &Path) -> Result<Look, ClientsError> {
    let (target, links) = follow(file)?;
    let unreadable = |why: String| ClientsError::Unreadable { path: target.clone(), why };
    let found = match std::fs::symlink_metadata(&target) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound && links.is_empty() => {
            return Ok(Look { target, links, content: None });
        }
        Err(error) => return Err(unreadable(error.to_string())),
    };
    if !found.is_file() {
        let what = if found.is_dir() { "it is a folder" } else { "it is not a file" };
        return Err(unreadable(what.into()));
    }
    if found.len() > MAX_BYTES {
        return Err(unreadable(format!("it is larger than {} MB", MAX_BYTES / 1024 / 1024)));
    }
    let mut bytes = Vec::new();
    let read =
        platform::open_no_link(&target).and_then(|opened| opened.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > MAX_BYTES => Err(unreadable("it is too large".into())),
        Ok(_) => Ok(Look { target, links, content: Some(bytes) }),
        Err(error) => Err(unreadable(format!("it cannot be read ({error})"))),
    }
}

/// Whether the end of the chain may be replaced.
pub(super) fn require_writable(file: &Path, look: &Look) -> Result<(), ClientsError> {
    let refuse = |why: String| Err(ClientsError::Link { path: file.to_path_buf(), why });
    let Some(folder) = look.target.parent() else { return refuse("it has no folder".into()) };
    let owner = ["/nix/store", "/gnu/store"].into_iter().find(|store| look.target.starts_with(store));
    if let Some(store) = owner {
        return refuse(format!("it leads into {store}, which a package manager owns"));
    }
    let read_only = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.permissions().readonly());
    // On Windows the attribute of a folder says nothing about what may be written into it.
    if !cfg!(windows) && read_only(folder) {
        return refuse(format!("its folder {} is read-only", folder.display()));
    }
    if read_only(&look.target) {
        return refuse(format!("{} is read-only", look.target.display()));
    }
    Ok(())
}

fn follow(file: &Path) -> Result<(PathBuf, Vec<PathBuf>), ClientsError> {
    let refuse = |why: String| ClientsError::Link { path: file.to_path_buf(), why };
    let mut path = file.to_path_buf();
    let mut links = Vec::new();
    loop {
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {}
            Ok(_) => return Ok((path, links)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return match links.last() {
                    None => Ok((path, links)),
                    Some(_) => Err(refuse(format!("it is a link to {}, which is not there", path.display()))),
                };
            }
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(refuse("what should be its folder is a file".into()));
            }
            Err(error) => {
                return Err(ClientsError::Unreadable { path: path.clone(), why: error.to_string() });
            }
        }
        if links.len() >= MAX_LINKS || links.contains(&path) {
            return Err(refuse("its links lead in a circle".into()));
        }
        let next = std::fs::read_link(&path).map_err(|error| refuse(error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        links.push(path);
        path = folder.join(next);
    }
}
