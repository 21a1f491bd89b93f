//! Packaging: one bundle (MCPB) of one commit for one target, the same byte for byte wherever it is made.
//!
//! Promise: what is published is whole, durable, was read again and found to be what was meant, and nothing that was
//! there is written over. On any failure, an interruption too, nothing stays behind; a killed process leaves at most
//! a hidden `.agent-bridge-*.mcpb` and files beside the bundle that the next run finds to be its own.
//!
//! Limit: `SHA256SUMS` is shared by all bundles of a folder, so package one at a time into it.

mod check;
mod compare;
mod contents;
mod error;
mod manifest;
mod reader;
mod sidecars;
mod source;
mod writer;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use compare::Difference;
pub use error::{BundleError, CODES};
pub use writer::Method;

use crate::context::Context;
use crate::platform::{self, NewFile};
use crate::release::identity::{self, Identity};
use crate::release::metadata::Metadata;
use crate::release::transaction::Interruption;
use crate::release::{ReleaseError, fault};
use contents::{Binary, Contents, Output, Written};
use source::Checkout;

/// From this size on a program is worth a second thread.
const BIG: u64 = 64 * 1024 * 1024;
/// Where bundles go if nothing is said; git ignores it.
const FOLDER: &str = "dist";

/// What is to be packaged.
#[derive(Debug)]
pub struct Request {
    /// A folder of the checkout.
    pub repo: PathBuf,
    /// The program.
    pub binary: PathBuf,
    /// How content is kept.
    pub method: Method,
    /// Completions and manual pages, by their paths in the bundle.
    pub documents: BTreeMap<String, Vec<u8>>,
    /// Takes documents of a program that is not of the commit.
    pub other_packager: bool,
}

/// What would be packaged: everything was looked at, nothing was written.
#[derive(Debug)]
pub struct Plan {
    checkout: Checkout,
    contents: Contents,
    method: Method,
    /// Remarks for the operator.
    pub notes: Vec<String>,
}

/// A file beside the bundle.
#[derive(Clone, Debug, Serialize)]
pub struct Sidecar {
    /// Where it is.
    pub path: PathBuf,
    /// Its digest; none for the list of digests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What was published.
#[derive(Clone, Debug)]
pub struct Packaged {
    /// The bundle.
    pub bundle: PathBuf,
    /// Its digest.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
    /// What pins its content.
    pub metadata: Metadata,
    /// What lies beside it.
    pub sidecars: Vec<Sidecar>,
}

impl Plan {
    /// Looks at the checkout and the program, and refuses what cannot be packaged.
    pub fn make(context: &Context, request: Request) -> Result<Self, BundleError> {
        let checkout = Checkout::open(context, &request.repo)?;
        let commit = checkout.head()?;
        checkout.require_clean()?;
        let binary = Binary::look(request.binary)?;
        let mut notes = Vec::new();
        let own = identity::own().ok();
        if !own.as_ref().is_some_and(|own| own.git_sha.as_deref() == Some(&commit.sha) && !own.dirty) {
            let own = own.map_or_else(|| "unknown".into(), |own| own.describe());
            if !request.other_packager {
                return Err(BundleError::PackagerStale { own, head: commit.sha });
            }
            notes.push(format!("Completions and manual pages come from {own}."));
        }
        let private = [context.home.as_deref(), Some(checkout.top())];
        if let Some(folder) = binary.names_one_of(&private.into_iter().flatten().collect::<Vec<_>>()) {
            notes.push(format!(
                "The program names {}, so a build on another machine gives other bytes; `ops/build-release` leaves such names out.",
                folder.display()
            ));
        }
        let built_at = match context.text_var("SOURCE_DATE_EPOCH").map(str::parse) {
            Some(Ok(seconds)) => seconds,
            Some(Err(_)) => {
                let why = "SOURCE_DATE_EPOCH is not a number of seconds".into();
                return Err(BundleError::NoCommit { folder: checkout.top().to_path_buf(), why });
            }
            None => commit.time,
        };
        let contents = Contents::gather(&checkout, commit, binary, request.documents, built_at)?;
        // What no bundle may say is said before anything is hashed or written.
        contents.front(&crate::digest::of_bytes(b""))?;
        Ok(Self { checkout, contents, method: request.method, notes })
    }

    /// What the program says that it is.
    pub fn identity(&self) -> &Identity {
        &self.contents.binary.identity
    }

    /// The paths that the bundle will have, in their order.
    pub fn paths(&self) -> Vec<String> {
        self.contents.order()
    }

    /// Where the bundle goes: a folder (`dist` in the checkout if none is named) or a new file. Refuses a place that
    /// is taken, or that would make the checkout differ from its commit.
    pub fn destination(&self, out: Option<&Path>) -> Result<PathBuf, BundleError> {
        let name = format!("{}.mcpb", self.contents.stem());
        let path = match out {
            None => self.checkout.top().join(FOLDER).join(name),
            Some(out) if out.is_dir() => out.join(name),
            Some(out) if out.extension().is_some_and(|extension| extension == "mcpb") => out.to_path_buf(),
            Some(out) => {
                let why = "it is no folder, and its name does not end in .mcpb".into();
                return Err(BundleError::OutputUnfit { path: out.to_path_buf(), why });
            }
        };
        let unfit = |why: String| BundleError::OutputUnfit { path: path.clone(), why };
        if !path.file_name().is_some_and(|name| name.to_str().is_some_and(is_plain)) {
            return Err(unfit("the name of the file is not plain ASCII".into()));
        }
        if std::fs::symlink_metadata(&path).is_ok() {
            return Err(BundleError::OutputExists { path });
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let existing = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(folder);
        let canonical = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let inside = canonical(existing).starts_with(canonical(self.checkout.top()));
        let outputs = [path.clone()].into_iter().chain(sidecar_paths(&path));
        if let Some(seen) = outputs.into_iter().find(|path| inside && !self.checkout.ignores(path)) {
            let name = seen.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Err(unfit(format!("git would see {name} as a change")));
        }
        if out.is_some() && !folder.is_dir() {
            return Err(unfit("its folder does not exist".into()));
        }
        Ok(path)
    }

    /// Writes the bundle and what lies beside it.
    pub fn publish(
        &self,
        bundle: &Path,
        download_folder: Option<&str>,
        interruption: &Interruption,
    ) -> Result<Packaged, BundleError> {
        let folder = bundle.parent().unwrap_or(Path::new("."));
        let made = Undo::folder(folder)?;
        let name = bundle.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let archive = NewFile::create(bundle, "agent-bridge-package.", ".tmp.mcpb")?;
        let output = Output {
            file: archive.file(),
            path: archive.path(),
            failed: &|error| archive.failed(error).into(),
        };
        let written = self.contents.write(&output, self.method, interruption)?;
        fault::point("package-written");
        let sha256 = self.verify(&archive, &written, interruption)?;
        let files = self.sidecars(&name, &sha256, &written, download_folder)?;
        self.require_unchanged()?;
        if interruption.is_set() {
            return Err(ReleaseError::Interrupted.into());
        }
        let sidecars = self.publish_all(bundle, archive, &sha256, files, made)?;
        Ok(Packaged {
            bundle: bundle.to_path_buf(),
            sha256,
            bytes: written.bytes,
            metadata: written.metadata,
            sidecars,
        })
    }

    /// Builds the same bundle once more, out of sight, and says where `given` differs.
    pub fn reproduce(
        &self,
        given: &Path,
        interruption: &Interruption,
    ) -> Result<Vec<Difference>, BundleError> {
        let unreadable = |source| BundleError::Unreadable { path: given.to_path_buf(), source };
        let theirs = File::open(given).map_err(unreadable)?;
        // A bundle says itself how it is kept, also one that is damaged further on.
        let method = reader::first_method(&theirs);
        let failed = |error| ReleaseError::io("cannot write below", std::env::temp_dir())(error).into();
        let own = tempfile::NamedTempFile::new().map_err(failed)?;
        let output = Output { file: own.as_file(), path: own.path(), failed: &failed };
        self.contents.write(&output, method.unwrap_or(self.method), interruption)?;
        let found = compare::differences(own.as_file(), &theirs).map_err(unreadable)?;
        self.require_unchanged()?;
        Ok(found)
    }

    /// Reads the archive again, twice at once if it is large, while the disk takes it up.
    fn verify(
        &self,
        archive: &NewFile,
        written: &Written,
        interruption: &Interruption,
    ) -> Result<String, BundleError> {
        let failed = |why: String| match interruption.is_set() {
            true => ReleaseError::Interrupted.into(),
            false => BundleError::NotAsMeant { why },
        };
        let open = || File::open(archive.path()).map_err(|error| archive.failed(error));
        let (first, second) = (open()?, open()?);
        let content = || check::archive(&first, &self.contents, &written.metadata, self.method, interruption);
        let whole = || check::digest_of_all(&second, interruption);
        let (content, whole) = if written.bytes < BIG {
            archive.sync(0o644)?;
            (content(), whole())
        } else {
            std::thread::scope(|scope| {
                let syncing = scope.spawn(|| archive.sync(0o644));
                let whole = scope.spawn(whole);
                let content = content();
                syncing.join().map_err(|_| contents::died())??;
                Ok::<_, BundleError>((content, whole.join().map_err(|_| contents::died())?))
            })?
        };
        content.map_err(failed)?;
        let (sha256, bytes) = whole.map_err(failed)?;
        if bytes != written.bytes {
            return Err(BundleError::NotAsMeant { why: "it has another length".into() });
        }
        Ok(sha256)
    }

    fn sidecars(
        &self,
        name: &str,
        sha256: &str,
        written: &Written,
        download_folder: Option<&str>,
    ) -> Result<[Vec<u8>; 2], BundleError> {
        let runtime = written.metadata.runtime_record()?;
        let facts = self.contents.facts(&runtime.sha256);
        let about = "Delegate work to the coding agents on this machine under one policy.";
        let bill = sidecars::bill_of_materials(&facts, &self.contents.lock, &self.contents.built_at_text())
            .map_err(|why| BundleError::ContentUnfit { path: "Cargo.lock".into(), why })?;
        Ok([bill, sidecars::registry_fragment(&facts, name, sha256, download_folder, about)])
    }

    /// Refuses to go on if the checkout or the program is not what it was.
    fn require_unchanged(&self) -> Result<(), BundleError> {
        let drift = |what: String| BundleError::Drift { what };
        self.checkout.require_clean().map_err(|error| match error {
            BundleError::Dirty { changes, .. } => drift(format!("files were changed ({changes})")),
            other => other,
        })?;
        // After the look at the files: a commit makes them clean again.
        if self.checkout.head()? != self.contents.commit {
            return Err(drift("another commit was checked out".into()));
        }
        let before = &self.contents.binary;
        let now = Binary::look(before.path.clone()).ok();
        let same = now.is_some_and(|now| (now.bytes, now.modified) == (before.bytes, before.modified));
        if same { Ok(()) } else { Err(drift(format!("{} was changed", before.path.display()))) }
    }

    /// Everything but the bundle first: a bundle that is there has all that belongs to it.
    fn publish_all(
        &self,
        bundle: &Path,
        archive: NewFile,
        sha256: &str,
        files: [Vec<u8>; 2],
        mut undo: Undo,
    ) -> Result<Vec<Sidecar>, BundleError> {
        let name_of = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let [bill, fragment, sums] = sidecar_paths(bundle);
        let mut digests = BTreeMap::from([(name_of(bundle), sha256.to_owned())]);
        let mut published = Vec::new();
        for (path, bytes) in [(bill, &files[0]), (fragment, &files[1])] {
            let sha256 = crate::digest::of_bytes(bytes);
            digests.insert(name_of(&path), sha256.clone());
            match super::transaction::content(&path)? {
                // Left by a run that was killed, or of the same content anyway.
                Some(there) if there == *bytes => {}
                Some(_) => return Err(BundleError::OutputExists { path }),
                None => {
                    platform::create_durable(&path, bytes, 0o644)?;
                    undo.made(path.clone());
                }
            }
            published.push(Sidecar { path, sha256: Some(sha256) });
        }
        let old = super::transaction::content(&sums)?;
        let text = old.as_deref().map(String::from_utf8_lossy);
        let new = sidecars::sums(text.as_deref(), &digests)
            .map_err(|why| BundleError::OutputUnfit { path: sums.clone(), why })?;
        match old {
            Some(old) if old == new.as_bytes() => {}
            Some(old) => {
                platform::write_durable(&sums, new.as_bytes(), 0o644)?;
                undo.replaced(sums.clone(), old);
            }
            None => {
                platform::create_durable(&sums, new.as_bytes(), 0o644)?;
                undo.made(sums.clone());
            }
        }
        published.push(Sidecar { path: sums, sha256: None });
        fault::point("package-sidecars");
        archive.publish()?;
        undo.keep();
        Ok(published)
    }
}

fn sidecar_paths(bundle: &Path) -> [PathBuf; 3] {
    [
        bundle.with_extension("cdx.json"),
        bundle.with_extension("server.json"),
        bundle.with_file_name(sidecars::SUMS),
    ]
}

fn is_plain(name: &str) -> bool {
    !name.starts_with(['.', '-'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+'))
}

/// What goes again unless everything succeeded.
#[derive(Debug)]
struct Undo {
    folder: Option<PathBuf>,
    made: Vec<PathBuf>,
    replaced: Option<(PathBuf, Vec<u8>)>,
}

impl Undo {
    /// Makes the folder if there is none.
    fn folder(path: &Path) -> Result<Self, BundleError> {
        let is_new = !path.is_dir();
        if is_new {
            std::fs::create_dir_all(path).map_err(ReleaseError::io("cannot make", path))?;
        }
        Ok(Self { folder: is_new.then(|| path.to_path_buf()), made: Vec::new(), replaced: None })
    }

    fn made(&mut self, path: PathBuf) {
        self.made.push(path);
    }

    fn replaced(&mut self, path: PathBuf, old: Vec<u8>) {
        self.replaced = Some((path, old));
    }

    fn keep(&mut self) {
        self.folder = None;
        self.made.clear();
        self.replaced = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for path in &self.made {
            let _ = platform::remove_durable(path);
        }
        if let Some((path, old)) = &self.replaced {
            let _ = platform::write_durable(path, old, 0o644);
        }
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir(folder);
        }
    }
}
