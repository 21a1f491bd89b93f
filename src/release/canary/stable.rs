//! What a canary must leave as it is, by hash.

use std::collections::BTreeMap;
use std::path::Path;

use super::record::StableFile;
use crate::digest;
use crate::release::Layout;

/// Files by the name under which the record lists them; none for one that is not there.
pub type StableFiles = BTreeMap<String, Option<StableFile>>;

/// Looks at all of them. One that cannot be read counts as its error, which must then be the same afterwards.
pub fn look(layout: &Layout, also: &[(String, std::path::PathBuf)]) -> StableFiles {
    let own = [layout.slot(0), layout.slot(1), layout.pointer_copy(), layout.launcher(), layout.config()];
    let own = own.into_iter().filter_map(|path| Some((layout.relative(&path)?, path)));
    own.chain(also.iter().cloned()).map(|(name, path)| (name, file(&path))).collect()
}

fn file(path: &Path) -> Option<StableFile> {
    match digest::of_file(path) {
        Ok((sha256, bytes)) => Some(StableFile { sha256, bytes }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(StableFile { sha256: format!("unreadable: {}", error.kind()), bytes: 0 }),
    }
}

/// Names of those that differ.
pub fn differences(before: &StableFiles, after: &StableFiles) -> Vec<String> {
    before
        .iter()
        .filter(|(name, file)| after.get(*name) != Some(*file))
        .map(|(name, _)| name.clone())
        .collect()
}
