//! Whether the state folder is private, and making it so: audit, protect, restore.
//!
//! `serve` makes its state private in the first place; this is for what a backup tool, a copy or a wide umask left.
//! Protecting changes permissions only, writes down beforehand what they were, and undoes itself on any error.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::transaction::{self, Interruption};
use crate::context::{Clock, Context};
use crate::digest;
use crate::error::{CodeDoc, Coded};
use crate::platform;
use crate::platform::protection::{self, FaultKind, Item, Kind, Protection};

/// Most findings that a report lists; all are counted.
const LISTED: usize = 100;
/// Largest backup record that is read.
const MAX_BACKUP: u64 = 256 << 20;
const BACKUP_KIND: &str = "state-protection-backup";

/// Why the state was not looked at, protected or restored.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A folder that holds far more than state.
    #[error("{path} cannot be a state folder: {why}", path = .path.display())]
    TooBroad {
        /// The folder.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The folder cannot be looked at.
    #[error("{path} cannot be looked at: {why}", path = .path.display())]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Setting permissions would not make it private.
    #[error("{path} cannot be protected as it is: {what}", path = .path.display())]
    NotProtectable {
        /// The folder.
        path: PathBuf,
        /// The first findings.
        what: String,
    },
    /// The backup record cannot go there.
    #[error("the backup record cannot be {path}: {why}", path = .path.display())]
    BackupPlace {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The backup record cannot be believed.
    #[error("the backup record {path} cannot be used: {why}", path = .path.display())]
    BackupInvalid {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// What is there is not what was protected.
    #[error("{path} is not as it was left: {what}", path = .path.display())]
    Changed {
        /// The folder.
        path: PathBuf,
        /// The first differences.
        what: String,
    },
    /// It failed half-way and was put back.
    #[error("{what}; every permission was put back")]
    Undone {
        /// What failed.
        what: String,
    },
    /// It failed half-way and could not be put back.
    #[error("{what}, and putting the permissions back failed: {why}")]
    NotUndone {
        /// What failed first.
        what: String,
        /// What failed then.
        why: String,
        /// The record of how it was.
        backup: PathBuf,
        /// Its digest.
        sha256: String,
    },
}

crate::codes! {
    STATE_TOO_BROAD { exit: Refused, retryable: false,
        cause: "The folder is a file system's root, holds the home folder, or is no folder of its own. Its permissions are not touched.",
        remedy: "Name the state folder itself with `--state DIR`; `agent-bridge config explain` shows it." }
    STATE_UNREADABLE { exit: Refused, retryable: false,
        cause: "The state folder cannot be opened.",
        remedy: "Run the command as the user that runs the hosts." }
    STATE_NOT_PROTECTABLE { exit: Refused, retryable: false,
        cause: "Links, names outside, mounts, other owners or unreadable folders in the state folder cannot be mended by setting permissions. Nothing was changed.",
        remedy: "Look at `agent-bridge state audit`, remove or hand over what it names, then run the same command again." }
    STATE_BACKUP_PLACE { exit: Refused, retryable: false,
        cause: "The backup record must be a new file, named by an absolute path, in a folder that exists and lies outside the state folder.",
        remedy: "Name another file with `--backup FILE`." }
    STATE_BACKUP_INVALID { exit: VerificationFailed, retryable: false,
        cause: "The backup record was changed, is not one, or is of another state folder. Nothing was changed.",
        remedy: "Use the file and the SHA-256 that `agent-bridge state protect` printed." }
    STATE_CHANGED { exit: Refused, retryable: true,
        cause: "Permissions, owners or kinds in the state folder are not the ones that were left there. Nothing was changed.",
        remedy: "Look at `agent-bridge state audit`; close the hosts and run the same command again." }
    STATE_UNDONE { exit: Unexpected, retryable: true,
        cause: "Setting the permissions failed or was interrupted, and everything was put back as it was.",
        remedy: "Read the message, close the hosts, and run the same command again." }
    STATE_NOT_UNDONE { exit: RecoveryNeeded, retryable: false,
        cause: "Setting the permissions failed half-way, and so did putting them back.",
        remedy: "Mend what the message names, then run `agent-bridge state restore --backup FILE --expect-sha256 HEX` with the backup record." }
}

impl Coded for StateError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::TooBroad { .. } => &STATE_TOO_BROAD,
            Self::Unreadable { .. } => &STATE_UNREADABLE,
            Self::NotProtectable { .. } => &STATE_NOT_PROTECTABLE,
            Self::BackupPlace { .. } => &STATE_BACKUP_PLACE,
            Self::BackupInvalid { .. } => &STATE_BACKUP_INVALID,
            Self::Changed { .. } => &STATE_CHANGED,
            Self::Undone { .. } => &STATE_UNDONE,
            Self::NotUndone { .. } => &STATE_NOT_UNDONE,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::NotUndone { backup, sha256, .. } => format!(
                "Mend what the message names, then run `agent-bridge state restore --backup {} --expect-sha256 {sha256}`.",
                backup.display()
            ),
            other => other.doc().remedy.to_owned(),
        }
    }
}

/// Something that is wrong with the state folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// Path in the state folder; empty for the folder itself.
    pub path: String,
    /// What kind.
    pub kind: FaultKind,
    /// What was found.
    pub what: String,
    /// Whether `protect` mends it.
    pub can_be_mended: bool,
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// Version of this report.
    pub schema_version: u32,
    /// `audited`, `protected`, `restored`, or `unchanged`.
    pub status: &'static str,
    /// The state folder.
    pub path: PathBuf,
    /// Whether it is there; the server makes it, private, when it first needs it.
    pub exists: bool,
    /// Whether nothing is wrong.
    pub compliant: bool,
    /// Who everything must belong to.
    pub expected_owner: String,
    /// Things that were looked at.
    pub scanned_items: u64,
    /// Things that are wrong.
    pub violation_count: u64,
    /// How many of each kind.
    pub violations: BTreeMap<&'static str, u64>,
    /// The first of them.
    pub findings: Vec<Violation>,
    /// Folders above in which somebody else could exchange the state folder. They are not changed.
    pub weak_parents: Vec<String>,
    /// The backup record that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<PathBuf>,
    /// Its SHA-256, which `restore` asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_sha256: Option<String>,
    /// Things whose permissions were set, or would be.
    pub changed_items: u64,
    /// Things of the record that are not there any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
}

/// How everything was before it was protected.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Backup {
    schema_version: u32,
    kind: String,
    state_path: PathBuf,
    created_at: String,
    item_count: u64,
    items: Vec<Change>,
}

/// One thing whose permissions change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Change {
    path: String,
    kind: Kind,
    before: Protection,
    after: Protection,
}

/// The state folder a command means, by its real path; refuses what holds far more than state.
fn state_folder(context: &Context, path: &Path) -> Result<PathBuf, StateError> {
    let broad = |why: &str| StateError::TooBroad { path: path.to_path_buf(), why: why.to_owned() };
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(broad("it is a link"));
    }
    let real = crate::config::would_be_canonical(path).map_err(|why| broad(&why))?;
    if real.parent().is_none() {
        return Err(broad("it is the root of a file system"));
    }
    let home = context.home.as_deref().and_then(|home| crate::config::canonical(home).ok());
    if home.is_some_and(|home| home.starts_with(&real)) {
        return Err(broad("the home folder is in it"));
    }
    Ok(real)
}

/// Looks at the state folder; changes nothing.
pub fn audit(context: &Context, path: &Path) -> Result<Audit, StateError> {
    let path = state_folder(context, path)?;
    inspect(&path, &mut |_| {})
}

fn inspect(path: &Path, visit: &mut dyn FnMut(&Item)) -> Result<Audit, StateError> {
    let mut audit = Audit {
        schema_version: 1,
        status: "audited",
        path: path.to_path_buf(),
        exists: std::fs::symlink_metadata(path).is_ok(),
        compliant: true,
        expected_owner: protection::expected_owner(),
        scanned_items: 0,
        violation_count: 0,
        violations: BTreeMap::new(),
        findings: Vec::new(),
        weak_parents: protection::weak_parents(path),
        backup: None,
        backup_sha256: None,
        changed_items: 0,
        gone: Vec::new(),
    };
    if !audit.exists {
        return Ok(audit);
    }
    protection::walk(path, &mut |item| {
        audit.scanned_items += u64::from(!item.again);
        for fault in &item.faults {
            audit.violation_count += 1;
            *audit.violations.entry(fault.kind.as_str()).or_default() += 1;
            if audit.findings.len() < LISTED {
                audit.findings.push(Violation {
                    path: item.path.clone(),
                    kind: fault.kind,
                    what: fault.what.clone(),
                    can_be_mended: fault.kind.can_be_mended(),
                });
            }
        }
        visit(&item);
    })
    .map_err(|error| StateError::Unreadable { path: path.to_path_buf(), why: error.to_string() })?;
    audit.compliant = audit.violation_count == 0;
    Ok(audit)
}

/// Makes the state folder private. With `dry_run` only says what would be set.
pub fn protect(
    context: &Context,
    path: &Path,
    backup: &Path,
    interruption: &Interruption,
    dry_run: bool,
) -> Result<Audit, StateError> {
    let path = state_folder(context, path)?;
    let mut changes = Vec::new();
    let mut hopeless: Vec<String> = Vec::new();
    let mut audit = inspect(&path, &mut |item| {
        for fault in item.faults.iter().filter(|fault| !fault.kind.can_be_mended()) {
            hopeless.push(format!("{} ({})", shown(&item.path), fault.what));
        }
        if item.faults.iter().any(|fault| fault.kind.can_be_mended()) {
            let after = protection::wanted(item.kind, &item.protection);
            changes.push(Change {
                path: item.path.clone(),
                kind: item.kind,
                before: item.protection.clone(),
                after,
            });
        }
    })?;
    if !hopeless.is_empty() {
        return Err(StateError::NotProtectable { path, what: first_of(&hopeless) });
    }
    audit.changed_items = count(changes.len());
    if changes.is_empty() || dry_run {
        audit.status = if changes.is_empty() { "unchanged" } else { "audited" };
        return Ok(audit);
    }
    let place = backup_place(&path, backup)?;
    let sha256 = write_backup(&place, &path, &changes, context.clock)?;
    apply(&path, &changes, interruption)
        .and_then(|()| require_compliant(&path))
        .map_err(|what| undo(&path, &changes, what, &place, &sha256))?;
    let mut done = inspect(&path, &mut |_| {})?;
    done.status = "protected";
    done.changed_items = audit.changed_items;
    done.backup = Some(place);
    done.backup_sha256 = Some(sha256);
    Ok(done)
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "the folder itself" } else { path }
}

fn first_of(what: &[String]) -> String {
    let more = if what.len() > 5 { format!(", and {} more", what.len() - 5) } else { String::new() };
    format!("{}{more}", what.iter().take(5).cloned().collect::<Vec<_>>().join(", "))
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn backup_place(state: &Path, backup: &Path) -> Result<PathBuf, StateError> {
    let refuse = |why: &str| StateError::BackupPlace { path: backup.to_path_buf(), why: why.to_owned() };
    if !backup.is_absolute() {
        return Err(refuse("the path is not absolute"));
    }
    if std::fs::symlink_metadata(backup).is_ok() {
        return Err(refuse("it exists already"));
    }
    let (Some(folder), Some(name)) = (backup.parent(), backup.file_name()) else {
        return Err(refuse("it is no file"));
    };
    let folder = crate::config::canonical_folder(folder).map_err(|why| refuse(&why))?;
    if platform::lies_inside(&folder, state) {
        return Err(refuse("it would lie in the state folder"));
    }
    Ok(folder.join(name))
}

/// Writes the record, reads it again, and gives its digest.
fn write_backup(place: &Path, state: &Path, changes: &[Change], clock: Clock) -> Result<String, StateError> {
    let refuse = |why: String| StateError::BackupPlace { path: place.to_path_buf(), why };
    let backup = Backup {
        schema_version: 1,
        kind: BACKUP_KIND.to_owned(),
        state_path: state.to_path_buf(),
        created_at: transaction::timestamp(clock),
        item_count: count(changes.len()),
        items: changes.to_vec(),
    };
    let mut bytes = serde_json::to_vec_pretty(&backup).map_err(|error| refuse(error.to_string()))?;
    bytes.push(b'\n');
    platform::create_durable(place, &bytes, 0o600).map_err(|error| refuse(error.to_string()))?;
    let sha256 = digest::of_bytes(&bytes);
    read_backup(place, state, &sha256)?;
    Ok(sha256)
}

fn read_backup(place: &Path, state: &Path, sha256: &str) -> Result<Vec<Change>, StateError> {
    let invalid = |why: String| StateError::BackupInvalid { path: place.to_path_buf(), why };
    let mut bytes = Vec::new();
    platform::open_no_link(place)
        .and_then(|file| file.take(MAX_BACKUP + 1).read_to_end(&mut bytes))
        .map_err(|error| invalid(error.to_string()))?;
    if bytes.len() as u64 > MAX_BACKUP {
        return Err(invalid("it is too large".into()));
    }
    if digest::of_bytes(&bytes) != sha256.to_ascii_lowercase() {
        return Err(invalid("its SHA-256 is another one".into()));
    }
    let backup: Backup = serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
    if backup.schema_version != 1 || backup.kind != BACKUP_KIND {
        return Err(invalid("it is no record of a state folder".into()));
    }
    if backup.state_path != state {
        return Err(invalid(format!("it is of {}", backup.state_path.display())));
    }
    if backup.item_count != count(backup.items.len()) {
        return Err(invalid("it is not complete".into()));
    }
    let odd = |change: &&Change| {
        !matches!(change.kind, Kind::File | Kind::Folder)
            || change.path.split('/').any(|part| part == "." || part == "..")
            || change.before.owner != change.after.owner
    };
    if let Some(change) = backup.items.iter().find(odd) {
        return Err(invalid(format!("it says of {:?} what it may not", change.path)));
    }
    Ok(backup.items)
}

fn apply(state: &Path, changes: &[Change], interruption: &Interruption) -> Result<(), String> {
    for change in changes {
        super::fault::point("protect-item");
        if interruption.is_set() {
            return Err("interrupted".into());
        }
        set(state, change, &change.before, &change.after)?;
    }
    Ok(())
}

fn set(state: &Path, change: &Change, before: &Protection, after: &Protection) -> Result<(), String> {
    match protection::set(state, &change.path, change.kind, before, after) {
        Ok(()) => Ok(()),
        // A running server removes what it no longer needs.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{}: {error}", shown(&change.path))),
    }
}

fn require_compliant(state: &Path) -> Result<(), String> {
    let audit = inspect(state, &mut |_| {}).map_err(|error| error.to_string())?;
    match audit.findings.first() {
        None => Ok(()),
        Some(found) => Err(format!("{} is still not private: {}", shown(&found.path), found.what)),
    }
}

/// Puts back what was set, last first.
fn undo(state: &Path, changes: &[Change], what: String, backup: &Path, sha256: &str) -> StateError {
    let mut failed = Vec::new();
    for change in changes.iter().rev() {
        match protection::look(state, &change.path) {
            // Not reached yet, or gone.
            Ok(Some((kind, now))) if kind == change.kind && now == change.after => {
                if let Err(why) = set(state, change, &change.after, &change.before) {
                    failed.push(why);
                }
            }
            Ok(Some((kind, now))) if kind == change.kind && now == change.before => {}
            Ok(None) => {}
            Ok(Some(_)) => failed.push(format!("{} was exchanged", shown(&change.path))),
            Err(error) => failed.push(format!("{}: {error}", shown(&change.path))),
        }
    }
    if failed.is_empty() {
        return StateError::Undone { what };
    }
    StateError::NotUndone {
        what,
        why: first_of(&failed),
        backup: backup.to_path_buf(),
        sha256: sha256.to_owned(),
    }
}

/// Sets the permissions back to what they were before [`protect`]. What was made since stays as it is; what is gone
/// is named; anything that is not as `protect` left it stops the command before it changes anything.
pub fn restore(
    context: &Context,
    path: &Path,
    backup: &Path,
    sha256: &str,
    interruption: &Interruption,
) -> Result<Audit, StateError> {
    let path = state_folder(context, path)?;
    let recorded = read_backup(backup, &path, sha256)?;
    let mut changes = Vec::new();
    let mut gone = Vec::new();
    let mut differs = Vec::new();
    for change in recorded {
        match protection::look(&path, &change.path) {
            Ok(None) => gone.push(change.path),
            Ok(Some((kind, now))) if kind == change.kind && now == change.after => {
                changes.push(Change { before: change.after, after: change.before, ..change });
            }
            Ok(Some((kind, now))) if kind == change.kind && now == change.before => {}
            Ok(Some((_, now))) => differs.push(format!("{} ({})", shown(&change.path), now.permissions)),
            Err(error) => differs.push(format!("{} ({error})", shown(&change.path))),
        }
    }
    if !differs.is_empty() {
        return Err(StateError::Changed { path, what: first_of(&differs) });
    }
    // Last first: what is in a folder before the folder may become unreadable.
    changes.reverse();
    apply(&path, &changes, interruption).map_err(|what| undo(&path, &changes, what, backup, sha256))?;
    let mut audit = inspect(&path, &mut |_| {})?;
    audit.status = if changes.is_empty() { "unchanged" } else { "restored" };
    audit.changed_items = count(changes.len());
    audit.gone = gone;
    Ok(audit)
}
