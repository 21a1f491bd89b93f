//! Repositories of our own: a folder with a config that we wrote, a copy of the real index, and the real objects to
//! read from. What git writes it writes here; what the real repository says about filters, hooks, monitors and diff
//! drivers is not known here.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::index::{self, IndexFile};
use super::repository::{Repository, read_small};
use super::watch::Fault;
use crate::context::Context;
use crate::platform::private;

/// No index is larger.
const MAX_INDEX: u64 = 1 << 30;
/// Rules about files are read up to that size.
const MAX_RULES: u64 = 1 << 20;

/// A folder that is gone when this is.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Makes it. What lies there from before is removed first.
    pub(super) fn create(folder: &Path) -> Result<Self, Fault> {
        let made = || -> io::Result<()> {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            private::create_dir(folder)?;
            private::create_dir(&folder.join("nothing"))
        };
        made().map_err(|error| Fault::files("cannot make", folder, &error))?;
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// A folder that stays empty.
    pub(super) fn nothing(&self) -> PathBuf {
        self.folder.join("nothing")
    }

    /// The folder for the repository of that number.
    pub(super) fn part(&self, number: usize) -> PathBuf {
        self.folder.join(number.to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed when the turn is looked at again.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A repository of our own.
#[derive(Clone, Debug)]
pub(super) struct OwnRepository {
    /// Its folder.
    pub(super) git_dir: PathBuf,
    /// The index that the first look works on.
    pub(super) index: PathBuf,
    /// The real objects, to read from.
    pub(super) objects: PathBuf,
    /// Content may be converted on its way into the repository (line ends, encodings).
    pub(super) converts: bool,
}

impl OwnRepository {
    /// Makes one that borrows a real one's objects, rules and index. Gives what the index says, if there is one.
    pub(super) fn create(
        folder: &Path,
        real: &Repository,
        context: &Context,
        nothing: &Path,
    ) -> Result<(Self, Option<IndexFile>), Fault> {
        let failed = |error: io::Error| Fault::files("cannot write in", folder, &error);
        for name in ["objects/info", "objects/pack", "refs/heads", "info"] {
            private::create_dir(&folder.join(name)).map_err(failed)?;
        }
        let write = |name: &str, content: &[u8]| {
            private::create(&folder.join(name)).and_then(|mut file| file.write_all(content)).map_err(failed)
        };
        write("HEAD", b"ref: refs/heads/none\n")?;
        write("config", config(real, context, nothing).as_bytes())?;
        let mut rules = false;
        for name in ["info/exclude", "info/attributes"] {
            if let Some(content) = read_small(&real.common_dir.join(name), MAX_RULES) {
                write(name, &content)?;
                rules |= name.ends_with("attributes");
            }
        }
        let set = |name: &str| real.settings.get(name).is_some_and(|value| value != "false");
        rules |=
            set("core.autocrlf") || set("core.attributesfile") || user_file(context, "attributes").is_some();
        let (git_dir, index) = (folder.to_path_buf(), folder.join("index"));
        let mut own = Self { git_dir, index, objects: real.common_dir.join("objects"), converts: rules };
        let known = own.take_index(real)?;
        own.converts |= known.as_ref().is_some_and(|known| known.attributes);
        Ok((own, known))
    }

    /// One that was made before.
    pub(super) fn open(folder: &Path, objects: &Path) -> Self {
        let (git_dir, index) = (folder.to_path_buf(), folder.join("index"));
        Self { git_dir, index, objects: objects.to_path_buf(), converts: true }
    }

    /// Points `HEAD` to a commit.
    pub(super) fn set_head(&self, commit: &str) -> Result<(), Fault> {
        let path = self.git_dir.join("HEAD");
        private::create(&path)
            .and_then(|mut file| file.write_all(format!("{commit}\n").as_bytes()))
            .map_err(|error| Fault::files("cannot write", &path, &error))
    }

    /// Copies the real index with its time: git compares that with the times of the files.
    fn take_index(&self, real: &Repository) -> Result<Option<IndexFile>, Fault> {
        let Some(IndexBytes { bytes, modified }) = read_index(real)? else { return Ok(None) };
        let known = index::read(&bytes, real.id_length).ok_or_else(|| {
            Fault::Refused("the repository's index is of a form that is not known here".into())
        })?;
        write_index(&self.index, &bytes, modified)?;
        if known.shared {
            self.take_shared_indexes(real)?;
        }
        Ok(Some(known))
    }

    fn take_shared_indexes(&self, real: &Repository) -> Result<(), Fault> {
        let failed = |error: io::Error| Fault::files("cannot read", &real.git_dir, &error);
        for entry in fs::read_dir(&real.git_dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if name.to_string_lossy().starts_with("sharedindex.")
                && let Some(bytes) = read_small(&real.git_dir.join(&name), MAX_INDEX)
            {
                let path = self.git_dir.join(&name);
                private::create(&path)
                    .and_then(|mut file| file.write_all(&bytes))
                    .map_err(|error| Fault::files("cannot write", &path, &error))?;
            }
        }
        Ok(())
    }

    /// Writes the real index as it is now beside ours, with the files that it refers to.
    pub(super) fn copy_staged(&self, real: &Repository, bytes: &[u8], path: &Path) -> Result<(), Fault> {
        write_index(path, bytes, None)?;
        self.take_shared_indexes(real)
    }

    /// Where the history of a shallow clone ends.
    pub(super) fn take_shallow(&self, real: &Repository) -> Result<(), Fault> {
        let Some(shallow) = read_small(&real.common_dir.join("shallow"), MAX_INDEX) else { return Ok(()) };
        let path = self.git_dir.join("shallow");
        private::create(&path)
            .and_then(|mut file| file.write_all(&shallow))
            .map_err(|error| Fault::files("cannot write", &path, &error))
    }

    /// Copies an index of ours (none if there is none) and gives the copy.
    pub(super) fn copy_index(&self, from: &Path, name: &str) -> Result<PathBuf, Fault> {
        let to = self.git_dir.join(name);
        match fs::read(from) {
            Ok(bytes) => {
                let modified = fs::metadata(from).and_then(|found| found.modified()).ok();
                write_index(&to, &bytes, modified)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => remove_index(&to)?,
            Err(error) => return Err(Fault::files("cannot read", from, &error)),
        }
        Ok(to)
    }

    /// An index without entries.
    pub(super) fn empty_index(&self, name: &str) -> Result<PathBuf, Fault> {
        let path = self.git_dir.join(name);
        remove_index(&path)?;
        Ok(path)
    }
}

/// An index file and when it was written.
pub(super) struct IndexBytes {
    pub(super) bytes: Vec<u8>,
    pub(super) modified: Option<SystemTime>,
}

/// The real index; none if there is none yet.
pub(super) fn read_index(real: &Repository) -> Result<Option<IndexBytes>, Fault> {
    let path = real.index();
    let failed = |error: io::Error| Fault::files("cannot read", &path, &error);
    let found = match fs::metadata(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !found.is_file() || found.len() > MAX_INDEX {
        return Err(Fault::Refused("the repository's index is no plain file, or too large".into()));
    }
    Ok(Some(IndexBytes { bytes: fs::read(&path).map_err(failed)?, modified: found.modified().ok() }))
}

fn remove_index(path: &Path) -> Result<(), Fault> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Fault::files("cannot remove", path, &error))
        }
        _ => Ok(()),
    }
}

pub(super) fn write_index(path: &Path, bytes: &[u8], modified: Option<SystemTime>) -> Result<(), Fault> {
    let written = || -> io::Result<()> {
        let mut file: File = private::create(path)?;
        file.write_all(bytes)?;
        modified.map_or(Ok(()), |modified| file.set_modified(modified))
    };
    written().map_err(|error| Fault::files("cannot write", path, &error))
}

/// The whole config of a repository of our own.
fn config(real: &Repository, context: &Context, nothing: &Path) -> String {
    let sha256 = real.id_length == 32;
    let mut text = format!(
        "[core]\n\
         \trepositoryformatversion = {}\n\
         \tbare = false\n\
         \tfsmonitor = false\n\
         \tuntrackedCache = false\n\
         \tsplitIndex = false\n\
         \tsafecrlf = false\n\
         \tquotePath = false\n\
         \ttrustctime = true\n\
         \tcheckStat = default\n\
         \tcompression = 0\n\
         \tlooseCompression = 0\n\
         \tfsync = none\n\
         \tbigFileThreshold = 512m\n\
         \thooksPath = {}\n",
        u8::from(sha256),
        quoted(&nothing.to_string_lossy()),
    );
    text.push_str(&file_settings(real, context));
    // Git finds these in a home folder, which it is not shown.
    for (setting, name) in [("excludesfile", "ignore"), ("attributesfile", "attributes")] {
        let known = real.settings.contains_key(&format!("core.{setting}"));
        if let Some(path) = user_file(context, name).filter(|_| !known) {
            text.push_str(&format!("\t{setting} = {}\n", quoted(&path.to_string_lossy())));
        }
    }
    if sha256 {
        text.push_str("[extensions]\n\tobjectFormat = sha256\n");
    }
    text.push_str("[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[submodule]\n\trecurse = false\n[index]\n\tskipHash = true\n[protocol]\n\tallow = never\n");
    text
}

/// What the real repository's config says about files, as lines of the section `core`.
pub(super) fn file_settings(real: &Repository, context: &Context) -> String {
    let mut text = String::new();
    for (name, value) in &real.settings {
        let Some(name) = name.strip_prefix("core.") else { continue };
        let file = matches!(name, "excludesfile" | "attributesfile");
        let value = if file {
            context.expand(value, &real.top).map(|path| path.display().to_string())
        } else {
            Some(value.clone())
        };
        if let Some(value) = value {
            text.push_str(&format!("\t{name} = {}\n", quoted(&value)));
        }
    }
    text
}

fn user_file(context: &Context, name: &str) -> Option<PathBuf> {
    let folder = match context.text_var("XDG_CONFIG_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => context.home.as_ref()?.join(".config"),
    };
    let path = folder.join("git").join(name);
    path.is_file().then_some(path)
}

/// A value that git's config reader gives back as it was.
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_any_kind_can_be_written_down() {
        assert_eq!(quoted("a \"b\"\n\t;#"), "\"a \\\"b\\\"\\n\\t;#\"");
    }

    #[test]
    fn a_scratch_folder_is_gone_with_its_owner() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = folder.path().join("one");
        fs::create_dir_all(path.join("left/over")).unwrap_or_else(|error| panic!("{error}"));
        let scratch = Scratch::create(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(scratch.nothing().is_dir() && !path.join("left").exists());
        drop(scratch);
        assert!(!path.exists());
    }
}
