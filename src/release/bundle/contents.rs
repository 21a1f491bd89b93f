//! What goes into a bundle, in which order, and the metadata that pin it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::SystemTime;

use serde_json::Value;

use super::manifest::{self, Facts};
use super::source::{Checkout, Commit};
use super::writer::{Method, Stamp, Writer, room};
use super::{BIG, BundleError};
use crate::digest;
use crate::release::ReleaseError;
use crate::release::identity::Identity;
use crate::release::metadata::{
    CAPABILITY, FileRecord, LAUNCHER_PROTOCOL, MANIFEST_FILE, METADATA_FILE, Metadata, Range, SCHEMA_VERSION,
    StateSchema, ToolCatalogue,
};
use crate::release::transaction::Interruption;

/// What is taken from the commit as it is.
const SHIPPED: [&str; 5] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "templates"];
const CATALOGUE: &str = "src/mcp/catalogue.json";
const LOCK: &str = "Cargo.lock";
const CARGO: &str = "Cargo.toml";
/// The one version of the config file that there is.
const CONFIG_SCHEMA: Range = Range { min: 1, max: 1 };

/// The program that is packaged.
#[derive(Clone, Debug)]
pub struct Binary {
    /// Where it lies.
    pub path: PathBuf,
    /// What it says that it is.
    pub identity: Identity,
    /// Its size.
    pub bytes: u64,
    /// When it was last written.
    pub modified: Option<SystemTime>,
}

impl Binary {
    /// Looks at a file.
    pub fn look(path: PathBuf) -> Result<Self, BundleError> {
        let unfit = |why: String| BundleError::BinaryUnfit { binary: path.clone(), why };
        let found = std::fs::metadata(&path).map_err(|error| unfit(error.to_string()))?;
        if !found.is_file() {
            return Err(unfit("it is no file".into()));
        }
        let identity =
            crate::release::identity::of_binary(&path).map_err(|error| unfit(error.to_string()))?;
        Ok(Self { identity, bytes: found.len(), modified: found.modified().ok(), path })
    }

    /// The first of these folders whose path is in the program. Large programs are not searched.
    pub fn names_one_of<'a>(&self, folders: &[&'a Path]) -> Option<&'a Path> {
        let bytes = if self.bytes < BIG { std::fs::read(&self.path).ok()? } else { return None };
        // Shorter paths (`/`, `C:\\`) may be in anything.
        let named = |folder: &&&Path| {
            let path = folder.to_string_lossy();
            path.len() > 4 && memchr::memmem::find(&bytes, path.as_bytes()).is_some()
        };
        folders.iter().find(named).copied()
    }

    /// Refuses a binary that the commit, clean, does not give.
    pub fn require(&self, commit: &Commit, version: &str, catalogue: &str) -> Result<(), BundleError> {
        let identity = &self.identity;
        let why = if identity.git_sha.as_deref() != Some(&commit.sha) {
            let own = identity.git_sha.as_deref().unwrap_or("an unknown revision");
            format!("it was built from {own}, the commit is {}", commit.sha)
        } else if identity.dirty {
            "it was built from changed source".into()
        } else if identity.version != version {
            format!("it is version {}, the commit is {version}", identity.version)
        } else if identity.catalogue_sha256.as_deref() != Some(catalogue) {
            format!("its tools are not those of {CATALOGUE}")
        } else if self.bytes > super::writer::MAX_BYTES {
            format!("it has {} bytes, more than a bundle can hold", self.bytes)
        } else {
            return Ok(());
        };
        Err(BundleError::BinaryUnfit { binary: self.path.clone(), why })
    }
}

/// All that is needed to write a bundle.
#[derive(Debug)]
pub struct Contents {
    /// The program.
    pub binary: Binary,
    /// The revision.
    pub commit: Commit,
    /// The time that everything in the bundle gets, in seconds since 1970.
    pub built_at: i64,
    /// The lock file of the commit.
    pub lock: Vec<u8>,
    template: Vec<u8>,
    catalogue: ToolCatalogue,
    /// Everything but the manifest, the metadata and the program.
    files: BTreeMap<String, Vec<u8>>,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// What pins it all.
    pub metadata: Metadata,
    /// Length of the archive.
    pub bytes: u64,
}

impl Contents {
    /// Takes up what the commit has; `documents` come from the program that packages.
    pub fn gather(
        checkout: &Checkout,
        commit: Commit,
        binary: Binary,
        documents: BTreeMap<String, Vec<u8>>,
        built_at: i64,
    ) -> Result<Self, BundleError> {
        let wanted = [&SHIPPED[..], &[manifest::TEMPLATE, CATALOGUE, LOCK, CARGO]].concat();
        let mut files = checkout.files(&commit, &wanted)?;
        for path in &wanted {
            let inside = format!("{path}/");
            if !files.keys().any(|file| file == path || file.starts_with(&inside)) {
                return Err(unfit(path, "the commit does not have it"));
            }
        }
        let mut take = |path: &str| files.remove(path).unwrap_or_default();
        let (template, lock) = (take(manifest::TEMPLATE), take(LOCK));
        let (catalogue, cargo) = (take(CATALOGUE), take(CARGO));
        let catalogue = tool_catalogue(&catalogue).map_err(|why| unfit(CATALOGUE, why))?;
        let version = version(&cargo).ok_or_else(|| unfit(CARGO, "it has no version"))?;
        binary.require(&commit, &version, &catalogue.sha256)?;
        for (path, bytes) in documents {
            if files.insert(path.clone(), bytes).is_some() {
                return Err(unfit(&path, "a generated file has the same name"));
            }
        }
        if let Some(path) = files.keys().find(|path| !path.is_ascii() || path.starts_with("server/")) {
            return Err(unfit(path, "no other file may have such a name"));
        }
        Ok(Self { binary, commit, built_at, lock, template, catalogue, files })
    }

    /// What is filled in.
    pub fn facts<'a>(&'a self, runtime_sha256: &'a str) -> Facts<'a> {
        Facts {
            version: &self.binary.identity.version,
            git_sha: &self.commit.sha,
            target: &self.binary.identity.target,
            runtime_sha256,
        }
    }

    /// `agent-bridge-v<version>-<os>-<arch>`.
    pub fn stem(&self) -> String {
        let identity = &self.binary.identity;
        format!("agent-bridge-v{}-{}-{}", identity.version, identity.target.os, identity.target.arch)
    }

    /// The time of every entry.
    pub fn stamp(&self) -> Stamp {
        Stamp::of(self.built_at)
    }

    /// The same as text, in UTC.
    pub fn built_at_text(&self) -> String {
        jiff::Timestamp::from_second(self.built_at).unwrap_or_default().to_string()
    }

    /// The paths in their order.
    pub fn order(&self) -> Vec<String> {
        let runtime = self.facts("").runtime();
        let front = [MANIFEST_FILE.to_owned(), METADATA_FILE.to_owned(), runtime];
        front.into_iter().chain(self.files.keys().cloned()).collect()
    }

    /// The manifest and the metadata, whose lengths do not depend on the digest of the program.
    pub fn front(&self, runtime_sha256: &str) -> Result<(Vec<u8>, Metadata), BundleError> {
        let facts = self.facts(runtime_sha256);
        let in_template = |why: String| unfit(manifest::TEMPLATE, why);
        let manifest = manifest::render(&self.template, &facts).map_err(in_template)?;
        let order = self.order();
        let paths: BTreeSet<&str> = order.iter().map(String::as_str).collect();
        manifest::check(&manifest, &facts, &paths).map_err(in_template)?;
        let record = |bytes: &[u8]| FileRecord {
            sha256: digest::of_bytes(bytes),
            bytes: bytes.len() as u64,
            mode: "0644".into(),
        };
        let mut files: BTreeMap<String, FileRecord> =
            self.files.iter().map(|(path, bytes)| (path.clone(), record(bytes))).collect();
        files.insert(MANIFEST_FILE.into(), record(&manifest));
        files.insert(
            facts.runtime(),
            FileRecord { sha256: runtime_sha256.to_owned(), bytes: self.binary.bytes, mode: "0755".into() },
        );
        let metadata = Metadata {
            schema_version: SCHEMA_VERSION,
            capability: CAPABILITY.into(),
            package: self.binary.identity.package.clone(),
            version: facts.version.to_owned(),
            git_sha: facts.git_sha.to_owned(),
            built_at: self.built_at_text(),
            target: facts.target.clone(),
            runtime: facts.runtime(),
            min_launcher_protocol: LAUNCHER_PROTOCOL,
            config_schema_version: CONFIG_SCHEMA,
            state_schema_version: StateSchema::of_this_program(),
            tool_catalogue: self.catalogue.clone(),
            manifest_sha256: digest::of_bytes(&manifest),
            files,
        };
        // What no release may have is found here, not on the machine that installs it.
        Metadata::parse(&metadata.to_bytes()).map_err(|error| unfit(METADATA_FILE, error.to_string()))?;
        Ok((manifest, metadata))
    }

    /// Writes the archive to an empty file. What the metadata pin of a stored program is the digest of what is in the
    /// archive, read back from there.
    pub fn write(
        &self,
        output: &Output<'_>,
        method: Method,
        interruption: &Interruption,
    ) -> Result<Written, BundleError> {
        let runtime = self.facts("").runtime();
        let mut writer = Writer::new(output.file, method, self.stamp());
        let failed = |error: io::Error| match interruption.is_set() {
            true => ReleaseError::Interrupted.into(),
            false => (output.failed)(error),
        };
        let file = File::open(&self.binary.path).map_err(|error| self.unreadable(error))?;
        let mut program = Watched { inner: file, interruption };
        let (metadata, mut at) = match method {
            // How long the compressed metadata are depends on the digest in them.
            Method::Deflated => {
                let (sha256, _) =
                    digest::of_reader(&mut program).map_err(|error| self.failed(error, interruption))?;
                program.inner.rewind().map_err(|error| self.unreadable(error))?;
                let (manifest, metadata) = self.front(&sha256)?;
                let mut at = writer.add(0, MANIFEST_FILE, false, &mut &manifest[..]).map_err(failed)?;
                at = writer.add(at, METADATA_FILE, false, &mut &metadata.to_bytes()[..]).map_err(failed)?;
                at = writer.add(at, &runtime, true, &mut program).map_err(failed)?;
                (metadata, at)
            }
            Method::Stored => {
                let (manifest, metadata) = self.front(&digest::of_bytes(b""))?;
                let first = room(MANIFEST_FILE, manifest.len() as u64);
                let second = first + room(METADATA_FILE, metadata.to_bytes().len() as u64);
                let mut copy = File::open(output.path).map_err(failed)?;
                copy.seek(SeekFrom::Start(second + room(&runtime, 0))).map_err(failed)?;
                let (told, hears) = mpsc::channel();
                let add = || {
                    // Dropped at the end, which tells the reader that there is no more. One that failed says so later.
                    let told = told;
                    writer.add_told(second, &runtime, true, &mut program, &mut |count| {
                        let _ = told.send(count);
                    })
                };
                let hash = move || digest::of_reader(Following { inner: copy, hears, written: 0, read: 0 });
                let (end, hashed) = if self.binary.bytes < BIG {
                    (add().map_err(failed)?, hash())
                } else {
                    std::thread::scope(|scope| {
                        let hashing = scope.spawn(hash);
                        let end = add();
                        // The disk works while the rest is still hashed.
                        let end = end.and_then(|end| output.file.sync_data().map(|()| end)).map_err(failed);
                        let hashed =
                            hashing.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
                        Ok::<_, BundleError>((end?, hashed))
                    })?
                };
                let (sha256, _) = hashed.map_err(failed)?;
                let (manifest, metadata) = self.front(&sha256)?;
                let next = writer.add(0, MANIFEST_FILE, false, &mut &manifest[..]).map_err(failed)?;
                let next =
                    writer.add(next, METADATA_FILE, false, &mut &metadata.to_bytes()[..]).map_err(failed)?;
                if next != second {
                    return Err(BundleError::NotAsMeant { why: "its front has another length".into() });
                }
                (metadata, end)
            }
        };
        for (path, bytes) in &self.files {
            at = writer.add(at, path, false, &mut &bytes[..]).map_err(failed)?;
        }
        let bytes = writer.finish(at).map_err(failed)?;
        Ok(Written { metadata, bytes })
    }

    fn failed(&self, error: io::Error, interruption: &Interruption) -> BundleError {
        match interruption.is_set() {
            true => ReleaseError::Interrupted.into(),
            false => self.unreadable(error),
        }
    }

    fn unreadable(&self, error: io::Error) -> BundleError {
        BundleError::BinaryUnfit { binary: self.binary.path.clone(), why: error.to_string() }
    }
}

/// The file that an archive is written to.
pub struct Output<'a> {
    /// Open for writing.
    pub file: &'a File,
    /// Where it lies, to be read from.
    pub path: &'a Path,
    /// What a failed write amounts to.
    pub failed: &'a (dyn Fn(io::Error) -> BundleError + Sync),
}

/// A reader behind a writer: waits for what is not written yet, and ends where the writer has ended.
struct Following {
    inner: File,
    hears: mpsc::Receiver<u64>,
    written: u64,
    read: u64,
}

impl Read for Following {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.written {
            match self.hears.recv() {
                Ok(written) => self.written = written,
                Err(_) => return Ok(0),
            }
        }
        let left = usize::try_from(self.written - self.read).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.inner.read(&mut buffer[..left])?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        self.read += count as u64;
        Ok(count)
    }
}

/// What a thread that panicked amounts to.
pub fn died() -> BundleError {
    BundleError::NotAsMeant { why: "a part of the work panicked".into() }
}

fn unfit(path: &str, why: impl Into<String>) -> BundleError {
    BundleError::ContentUnfit { path: path.into(), why: why.into() }
}

fn tool_catalogue(bytes: &[u8]) -> Result<ToolCatalogue, String> {
    let mut tools: Vec<Value> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    tools.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let mut digests = BTreeMap::new();
    for tool in &tools {
        let name = tool["name"].as_str().ok_or("a tool has no name")?;
        if digests.insert(name.to_owned(), digest::of_json(tool)).is_some() {
            return Err(format!("it has the tool {name} twice"));
        }
    }
    Ok(ToolCatalogue { sha256: digest::of_json(&Value::Array(tools)), tools: digests })
}

fn version(cargo: &[u8]) -> Option<String> {
    let cargo: toml_edit::DocumentMut = std::str::from_utf8(cargo).ok()?.parse().ok()?;
    Some(cargo.get("package")?.get("version")?.as_str()?.to_owned())
}

/// A reader that ends with an error once the command is interrupted.
pub struct Watched<'a, R> {
    /// What is read.
    pub inner: R,
    /// Who is listened to.
    pub interruption: &'a Interruption,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.interruption.is_set() {
            return Err(io::Error::other("interrupted"));
        }
        self.inner.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_digests_of_the_kept_tools_are_those_that_the_build_found() {
        let catalogue = tool_catalogue(include_bytes!("../../mcp/catalogue.json")).unwrap();
        let own = crate::release::identity::own().unwrap();
        assert_eq!(own.catalogue_sha256.unwrap(), catalogue.sha256);
        assert!(catalogue.tools.contains_key("delegate_task"));
        assert!(tool_catalogue(br#"[{"name":"a"},{"name":"a"}]"#).is_err());
        assert!(tool_catalogue(br#"[{}]"#).is_err());
    }
}
