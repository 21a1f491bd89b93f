//! Proofs before and after a switch: a release is started the way hosts will start it, with nothing at stake, and
//! what is found is written down whether it passes or not.
//!
//! A canary changes nothing that anybody relies on: pointer, launcher, config and client files are hashed before
//! and after and must be equal. The program on trial gets an environment that is written here, a home and a working
//! folder that are thrown away, where the system allows it no network, and a deadline for its whole process tree.

mod config;
mod error;
mod evidence;
mod installed;
mod launch;
mod pointer;
mod record;
mod stable;
mod stage;
mod trial;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Layout, ReleaseId};
use crate::context::Context;
use crate::error::Result;

pub use error::{CODES, CanaryError};
pub use record::{Check, CheckStatus, Kind, Record};

/// Where and how a canary runs.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The world around the command.
    pub context: &'a Context,
    /// The installation.
    pub layout: &'a Layout,
    /// Where the record goes: absolute, new, outside the installation. A new temporary folder if none.
    pub evidence_dir: Option<&'a Path>,
    /// How long one talk with the program on trial may take.
    pub deadline: Duration,
    /// More files that must stay as they are, by the name under which the record lists them.
    pub also_stable: Vec<(String, PathBuf)>,
}

impl<'a> Setting<'a> {
    /// With the usual deadline, the files of all clients, and a temporary folder for the record.
    pub fn new(context: &'a Context, layout: &'a Layout) -> Self {
        let deadline = Duration::from_secs(60);
        let also_stable = super::clients::files(context);
        Self { context, layout, evidence_dir: None, deadline, also_stable }
    }
}

/// Starts the program of an installed release with every agent off, and checks what a host would see.
///
/// # Errors
/// Only if nothing could be tried: the release is not there, or there is no place for the record. What the
/// release fails at is in the record.
pub fn release(setting: &Setting<'_>, id: &ReleaseId) -> Result<Record> {
    trial::run(setting, Kind::Release, Some(id), installed::check)
}

/// Lets an installed release start a scripted agent with hostile names, prompt and arguments, and checks that each
/// of them arrives as it was written and that nothing was executed.
///
/// # Errors
/// As [`release`].
pub fn launch(setting: &Setting<'_>, id: &ReleaseId) -> Result<Record> {
    trial::run(setting, Kind::Launch, Some(id), launch::check)
}

/// Starts the launcher as clients do and checks that it leads to the current release. A finding about the current
/// generation is written down with it: good, or bad.
///
/// # Errors
/// As [`release`].
pub fn pointer(setting: &Setting<'_>) -> Result<Record> {
    setting.layout.require_installation()?;
    let mut record = trial::run(setting, Kind::Pointer, None, |trial, _| pointer::check(trial))?;
    pointer::mark(setting, &mut record);
    Ok(record)
}

/// Checks whether a release starts with a config that is not in place yet; of none the current one. No agent is
/// started.
///
/// # Errors
/// As [`release`].
pub fn config(setting: &Setting<'_>, file: &Path, id: Option<&ReleaseId>) -> Result<Record> {
    let mut setting = setting.clone();
    setting.also_stable.push(("staged config".into(), file.to_path_buf()));
    trial::run(&setting, Kind::Config, id, |trial, id| config::check(trial, file, id))
}
