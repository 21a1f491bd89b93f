//! The folder of a record: absolute, new, and outside the installation by whatever way one goes there.

use std::path::{Path, PathBuf};

use super::CanaryError;
use super::record::Record;
use crate::platform;
use crate::release::Layout;

/// A folder that was made for one record.
#[derive(Debug)]
pub struct EvidenceFolder {
    path: PathBuf,
}

impl EvidenceFolder {
    /// Makes the folder that was asked for, or a new one in the temporary folder.
    pub fn create(layout: &Layout, asked: Option<&Path>) -> Result<Self, CanaryError> {
        let path = match asked {
            Some(path) => path.to_path_buf(),
            None => std::env::temp_dir().join(format!("agent-bridge-canary-{}", uuid::Uuid::new_v4())),
        };
        let refuse = |why: &str| CanaryError::EvidencePlace { path: path.clone(), why: why.to_owned() };
        if !path.is_absolute() {
            return Err(refuse("the path is not absolute"));
        }
        if std::fs::symlink_metadata(&path).is_ok() {
            return Err(refuse("it exists already"));
        }
        let real = crate::config::would_be_canonical(&path).map_err(|why| refuse(&why))?;
        if platform::lies_inside(&real, layout.root()) || real.starts_with(layout.root()) {
            return Err(refuse("it would lie inside the installation"));
        }
        platform::create_private_dir(&real).map_err(|error| refuse(&error.to_string()))?;
        // What led there may have been exchanged between the look and the making.
        if platform::lies_inside(&real, layout.root()) || platform::lies_inside(&path, layout.root()) {
            let _ = std::fs::remove_dir(&real);
            return Err(refuse("it lies inside the installation"));
        }
        Ok(Self { path: real })
    }

    /// The path of a record of this kind.
    fn file(&self, record: &Record) -> PathBuf {
        self.path.join(format!("{}.json", record.kind.as_str()))
    }

    /// Writes the record; it survives a power cut.
    pub fn write(&self, record: &mut Record) -> Result<(), CanaryError> {
        let file = self.file(record);
        platform::create_durable(&file, &record.to_bytes(), 0o600).map_err(|error| {
            CanaryError::EvidenceNotWritten { path: self.path.clone(), why: error.to_string() }
        })?;
        record.evidence = file;
        Ok(())
    }
}
