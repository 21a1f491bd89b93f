//! From a bundle to a read-only release: judged before anything is written, staged beside its place, moved in as a
//! whole, with a receipt beside it.

mod oci;
mod receipt;
mod source;
mod staging;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use super::archive::Contents;
use super::journal::{self, Action};
use super::transaction::{self, InstallLock, Interruption, Purpose};
use super::{Layout, ReleaseError, ReleaseId, verify};
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::platform;
pub use receipt::{Installer, Receipt};
use source::Source;

/// From this size on a second thread hashes.
const PARALLEL_FROM_BYTES: u64 = 64 * 1024 * 1024;
/// Begin of the names of staging folders.
const STAGING: &str = ".installing-";
/// Begin of the names under which what was replaced waits for its removal.
const REPLACED: &str = ".pruned-";
/// What a file costs beside its bytes, and what the records of an install cost.
const BYTES_A_FILE: u64 = 8 * 1024;
const BYTES_OF_RECORDS: u64 = 2 * 1024 * 1024;

crate::codes! {
    BUNDLE_NOT_FOUND { exit: Refused, retryable: false,
        cause: "There is no bundle at the path that was named.",
        remedy: "Name a .mcpb file, a folder that holds release-metadata.json, or an OCI layout folder." }
    BUNDLE_HASH_INVALID { exit: Usage, retryable: false,
        cause: "The expected SHA-256 is not one: 64 hexadecimal digits.",
        remedy: "Copy the digest from SHA256SUMS as it is." }
    BUNDLE_HASH_MISMATCH { exit: VerificationFailed, retryable: false,
        cause: "The bundle does not have the SHA-256 that was expected, or has none because it is unpacked. Nothing of it was read further.",
        remedy: "Compare the name and version with those in SHA256SUMS, and get the bundle again." }
    OCI_LAYOUT_INVALID { exit: VerificationFailed, retryable: false,
        cause: "The folder is an OCI image layout, but one of its files is missing, damaged or not what its digest says.",
        remedy: "Copy the layout again, for instance with `skopeo copy`." }
    OCI_NO_BUNDLE { exit: Refused, retryable: false,
        cause: "The OCI layout does not lead to exactly one bundle for this machine.",
        remedy: "Use a layout with one image for this machine whose one layer is the bundle." }
    RELEASE_ID_TAKEN { exit: Refused, retryable: false,
        cause: "A release with this id and other content is installed, or was. Two builds never share an id.",
        remedy: "Find out which of the two is the published one: compare `receipts/ID.json` with SHA256SUMS." }
    INSTALL_NO_SPACE { exit: Refused, retryable: true,
        cause: "The disk has less free space than the release needs. Nothing was written.",
        remedy: "Free some space, for instance with `agent-bridge prune`, and run the same command again." }
    INSTALL_SHARED_DISK { exit: Refused, retryable: false,
        cause: "The installation folder lies on a network or shared file system, whose locks and durable writes cannot be trusted.",
        remedy: "Name a folder on a local disk with `--root DIR`." }
    INSTALL_NOT_AS_WRITTEN { exit: VerificationFailed, retryable: true,
        cause: "What was read back from the disk is not what was written. Everything was put back.",
        remedy: "Check the disk, and whether another program changes files in the installation folder." }
}

/// What to install, and how.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Bundle, folder with an unpacked bundle, or OCI layout folder.
    pub source: &'a Path,
    /// SHA-256 that the bundle must have, in either case.
    pub expect_sha256: Option<&'a str>,
    /// Replace a damaged release of the same content.
    pub repair: bool,
    /// Judge everything, write nothing.
    pub dry_run: bool,
    /// The operator's words.
    pub reason: Option<&'a str>,
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Installed {
    /// `installed`, `already-installed`, `repaired`; in a dry run `would-install`, `already-installed`,
    /// `would-repair`.
    pub status: &'static str,
    /// Whether anything in the installation is other than before.
    pub changed: bool,
    /// The release.
    pub release_id: ReleaseId,
    /// Its folder.
    pub release_path: PathBuf,
    /// Its version.
    pub version: String,
    /// The revision it was built from.
    pub git_sha: String,
    /// `bundle`, `folder` or `oci-layout`.
    pub source: &'static str,
    /// SHA-256 of the bundle; none of an unpacked one.
    pub bundle_sha256: Option<String>,
    /// SHA-256 of its metadata.
    pub metadata_sha256: String,
    /// SHA-256 of its manifest.
    pub manifest_sha256: String,
    /// SHA-256 of its program.
    pub runtime_sha256: String,
    /// Files in it.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txid: Option<String>,
    /// Files that were marked as coming from elsewhere (macOS); the mark was taken off.
    pub quarantine_cleared: usize,
    /// What killed installs had left; it was removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_leftovers: Vec<PathBuf>,
    /// What could not be removed; a later prune tries again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A step that takes long enough to be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The bundle is compared with the expected SHA-256.
    Hash,
    /// Every file is compared with its pinned SHA-256.
    Verify,
    /// The files are written.
    Write,
}

/// How far a step is: the step, bytes done, bytes in all.
pub type Progress<'a> = dyn FnMut(Step, u64, u64) + 'a;

/// Tells how far it is, and honours an interrupt.
struct Observer<'a> {
    progress: &'a mut Progress<'a>,
    interruption: &'a Interruption,
    step: Step,
    done: u64,
    total: u64,
}

impl Observer<'_> {
    fn begin(&mut self, step: Step, total: u64) {
        (self.step, self.done, self.total) = (step, 0, total);
        (self.progress)(step, 0, total);
    }

    fn advance(&mut self, bytes: u64) -> Result<(), Error> {
        self.done += bytes;
        (self.progress)(self.step, self.done.min(self.total), self.total);
        if self.interruption.is_set() { Err(ReleaseError::Interrupted.into()) } else { Ok(()) }
    }
}

/// Installs a release.
pub fn install<'a>(
    context: &Context,
    layout: &Layout,
    request: &Request<'_>,
    interruption: &'a Interruption,
    progress: &'a mut Progress<'a>,
) -> Result<Installed, Error> {
    let expected = request.expect_sha256.map(expected_sha256).transpose()?;
    if platform::is_network_filesystem(layout.root()) {
        let message = format!("{} lies on a shared file system", layout.root().display());
        return Err(Error::new(&INSTALL_SHARED_DISK, message));
    }
    let mut observer = Observer { progress, interruption, step: Step::Hash, done: 0, total: 0 };
    let mut source = Source::open(request.source, expected.as_deref(), &mut observer)?;
    require_fitting(&source.contents)?;
    source.verify(request.source, &mut observer)?;
    let mut report = report(layout, &source)?;
    if request.dry_run {
        journal::require_finished(layout)?;
        let existing = existing(layout, &source.contents)?;
        let replace = existing.judge(layout, &source.contents, request.repair)?;
        report.status = match replace {
            None => "already-installed",
            Some(false) => "would-install",
            Some(true) => "would-repair",
        };
        if replace.is_some() {
            require_space(layout, &source.contents)?;
        }
        return Ok(report);
    }

    let lock = InstallLock::take_to_install(layout)?;
    report.removed_leftovers = sweep(layout)?;
    report.changed = !report.removed_leftovers.is_empty();
    let Some(replace) =
        existing(layout, &source.contents)?.judge(layout, &source.contents, request.repair)?
    else {
        report.status = "already-installed";
        return Ok(report);
    };
    let _lease = if replace { Some(require_unused(layout, &report.release_id)?) } else { None };
    require_space(layout, &source.contents)?;
    let facts = json!({
        "release": report.release_id,
        "bundleSha256": report.bundle_sha256,
        "metadataSha256": report.metadata_sha256,
        "source": report.source,
        "replaces": replace,
    });
    let purpose = Purpose { operation: "install-release", reason: request.reason, facts };
    let aside = transaction::run(layout, &lock, context.clock, interruption, purpose, |tx| {
        let id = &report.release_id;
        let staging = format!("{STAGING}{}", tx.txid());
        let folder = layout.releases().join(&staging);
        tx.create_folder(&folder)?;
        report.quarantine_cleared = staging::write(&folder, &mut source, &mut observer)?;
        let receipt = receipt(context, &report, tx.now())?;
        let (from, to) = (format!("releases/{staging}"), format!("releases/{id}"));
        let aside = replace.then(|| format!("{REPLACED}{}-{id}", tx.txid()));
        let place = match &aside {
            Some(aside) => Action::Exchange { from, to: to.clone(), aside: format!("releases/{aside}") },
            None => Action::Move { from, to: to.clone() },
        };
        let path = format!("receipts/{id}.json");
        let actions = vec![
            place,
            Action::Seal { path: to },
            Action::Put { path, content: receipt.to_text(), mode: 0o600 },
        ];
        report.txid = Some(tx.txid().to_owned());
        Ok((actions, aside))
    })?;
    // Not part of the decision: what still runs from it keeps it on some systems.
    if let Some(aside) = aside.map(|name| layout.releases().join(name))
        && let Err(error) = platform::remove_durable(&aside)
    {
        report.warnings.push(format!("{} is left for `agent-bridge prune`: {error}", aside.display()));
    }
    report.status = if replace { "repaired" } else { "installed" };
    report.changed = true;
    Ok(report)
}

/// An expected SHA-256 as this project writes it.
fn expected_sha256(text: &str) -> Result<String, Error> {
    let lower = text.trim().to_ascii_lowercase();
    if digest::is_digest(&lower) {
        return Ok(lower);
    }
    let shown: String = text.chars().take(100).collect();
    Err(Error::new(&BUNDLE_HASH_INVALID, format!("{shown:?} is not a SHA-256")))
}

fn require_fitting(contents: &Contents) -> Result<(), ReleaseError> {
    if contents.metadata.fits_this_machine() {
        return Ok(());
    }
    let target = &contents.metadata.target;
    Err(ReleaseError::ForeignTarget {
        id: contents.id.to_string(),
        target: format!("{}-{}", target.os, target.arch),
        here: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn report(layout: &Layout, source: &Source) -> Result<Installed, Error> {
    let contents = &source.contents;
    Ok(Installed {
        status: "installed",
        changed: false,
        release_id: contents.id.clone(),
        release_path: layout.release(&contents.id),
        version: contents.metadata.version.clone(),
        git_sha: contents.metadata.git_sha.clone(),
        source: source.kind,
        bundle_sha256: source.bundle_sha256.clone(),
        metadata_sha256: contents.metadata_sha256(),
        manifest_sha256: contents.metadata.manifest_sha256.clone(),
        runtime_sha256: contents.metadata.runtime_record()?.sha256.clone(),
        files: contents.metadata.files.len() + 1,
        bytes: contents.total_bytes(),
        txid: None,
        quarantine_cleared: 0,
        removed_leftovers: Vec::new(),
        warnings: Vec::new(),
    })
}

fn receipt(context: &Context, report: &Installed, now: String) -> Result<Receipt, ReleaseError> {
    let (sha256, _) = digest::of_file(&context.exe).map_err(ReleaseError::io("cannot read", &context.exe))?;
    Ok(Receipt {
        schema_version: 1,
        release_id: report.release_id.clone(),
        bundle_sha256: report.bundle_sha256.clone(),
        metadata_sha256: report.metadata_sha256.clone(),
        manifest_sha256: report.manifest_sha256.clone(),
        source: report.source.to_owned(),
        installed_at: now,
        installed_by: Installer { version: env!("CARGO_PKG_VERSION").to_owned(), sha256 },
    })
}

/// What lies where the release is to lie, judged by hash.
enum Existing {
    Nothing,
    Same,
    Damaged(String),
    Other,
}

fn existing(layout: &Layout, contents: &Contents) -> Result<Existing, ReleaseError> {
    let sha256 = contents.metadata_sha256();
    let folder = layout.release(&contents.id);
    let recorded = Receipt::read(layout, &contents.id);
    if recorded.as_ref().is_some_and(|receipt| receipt.metadata_sha256 != sha256) {
        return Ok(Existing::Other);
    }
    match std::fs::symlink_metadata(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Existing::Nothing),
        Err(error) => return Err(ReleaseError::io("cannot read", folder)(error)),
        Ok(found) if !found.is_dir() => return Ok(Existing::Damaged("it is not a folder".into())),
        Ok(_) => {}
    }
    match verify::release(layout, &contents.id) {
        Ok(found) if found.metadata_sha256 == sha256 => Ok(Existing::Same),
        // Without a receipt it is not known which of the two is meant.
        Ok(_) if recorded.is_none() => Ok(Existing::Other),
        Ok(_) => Ok(Existing::Damaged("its metadata are not those that were installed".into())),
        Err(ReleaseError::Damaged { why, .. }) => Ok(Existing::Damaged(why)),
        Err(error) => Err(error),
    }
}

impl Existing {
    /// Whether to install: no, as new, or in place of what is there. Refuses what must not be replaced.
    fn judge(self, layout: &Layout, contents: &Contents, repair: bool) -> Result<Option<bool>, Error> {
        match self {
            Self::Nothing => Ok(Some(false)),
            Self::Same => Ok(None),
            Self::Damaged(_) if repair => Ok(Some(true)),
            Self::Damaged(why) => Err(ReleaseError::Damaged { id: contents.id.to_string(), why }.into()),
            Self::Other => Err(Error::new(
                &RELEASE_ID_TAKEN,
                format!("{} has or had other content in {}", contents.id, layout.root().display()),
            )),
        }
    }
}

/// Holds the lease of a release that nobody runs from, so that nobody begins to.
fn require_unused(layout: &Layout, id: &ReleaseId) -> Result<platform::LockFile, ReleaseError> {
    platform::try_exclusive(&layout.release_lease(id))?.ok_or_else(|| ReleaseError::InUse {
        root: layout.root().to_path_buf(),
        holders: format!("something runs from release {id}"),
    })
}

fn require_space(layout: &Layout, contents: &Contents) -> Result<(), Error> {
    let files = contents.metadata.files.len() as u64 + 1;
    let needed = contents.total_bytes() + files * BYTES_A_FILE + BYTES_OF_RECORDS;
    let existing = layout.root().ancestors().find(|ancestor| ancestor.is_dir());
    match existing.and_then(platform::free_space) {
        Some(free) if free < needed => Err(Error::new(
            &INSTALL_NO_SPACE,
            format!(
                "{} needs {} MiB on the disk of {}, {} MiB are free",
                contents.id,
                needed.div_ceil(1024 * 1024),
                layout.root().display(),
                free / (1024 * 1024)
            ),
        )),
        _ => Ok(()),
    }
}

/// Removes what killed installs left. The caller holds the lock, and no transaction is unfinished, so nobody owns it.
fn sweep(layout: &Layout) -> Result<Vec<PathBuf>, ReleaseError> {
    let folder = layout.releases();
    let mut removed = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(ReleaseError::io("cannot list", &folder))? {
        let entry = entry.map_err(ReleaseError::io("cannot list", &folder))?;
        if entry.file_name().to_string_lossy().starts_with(STAGING) {
            platform::remove_durable(&entry.path())?;
            removed.push(entry.path());
        }
    }
    removed.sort();
    Ok(removed)
}
