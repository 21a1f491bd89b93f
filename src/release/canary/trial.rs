//! One run of a canary: what is common to all of them, from the first hash to the record.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::evidence::EvidenceFolder;
use super::record::{Check, CheckStatus, Failure, Kind, Network, Record, SCHEMA_VERSION, Status};
use super::stage::Stage;
use super::{CanaryError, Setting, stable};
use crate::agents::redaction;
use crate::digest;
use crate::error::{Error, Result};
use crate::release::mcp_client::{Launch, McpClient};
use crate::release::metadata::ToolCatalogue;
use crate::release::probe::{self, Match, ProbeError, Probed};
use crate::release::verify::{self, Verified};
use crate::release::{Layout, ReleaseId, pointer, transaction};

/// Longest detail in a record, in characters.
const LONGEST: usize = 500;

/// The check that did not hold, and why. What a program did is complete only after its end.
pub enum Stop {
    /// The talk with the program.
    Talk(&'static str, ProbeError),
    /// Anything else.
    Other(&'static str, Error),
}

impl Stop {
    /// A check that did not hold, in words.
    pub fn found(check: &'static str, what: impl Into<String>) -> Self {
        Self::Other(check, CanaryError::Found(what.into()).into())
    }

    /// For `map_err`: any error of a check.
    pub fn at<E: Into<Error>>(check: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Other(check, error.into())
    }
}

/// A canary under way.
pub struct Trial<'a> {
    /// Where and how it runs.
    pub setting: &'a Setting<'a>,
    /// The throwaway folders.
    pub stage: Stage,
    /// What was found so far.
    pub record: Record,
}

/// Runs the checks of a canary on a release (of none: the current one) and writes the record.
pub fn run(
    setting: &Setting<'_>,
    kind: Kind,
    id: Option<&ReleaseId>,
    checks: impl FnOnce(&mut Trial<'_>, Option<&ReleaseId>) -> Result<(), Stop>,
) -> Result<Record> {
    let layout = setting.layout;
    let id = match (id, kind) {
        (Some(id), _) => {
            // Not there is a refusal; there and wrong is a finding.
            if !layout.release(id).is_dir() {
                verify::metadata(layout, id)?;
            }
            Some(id.clone())
        }
        (None, Kind::Config) => Some(pointer::current(layout)?.release_id),
        (None, _) => None,
    };
    let evidence = EvidenceFolder::create(layout, setting.evidence_dir)?;
    let began = Instant::now();
    let stage = Stage::create(layout)?;
    let before = stable::look(layout, &setting.also_stable);
    let record = Record {
        schema_version: SCHEMA_VERSION,
        kind,
        status: Status::Pass,
        run_id: uuid::Uuid::new_v4().to_string(),
        checked_at: transaction::timestamp(setting.context.clock),
        duration_ms: 0,
        release_id: id.clone(),
        runtime_sha256: None,
        metadata_sha256: None,
        manifest_sha256: None,
        receipt_sha256: None,
        config_sha256: None,
        generation: None,
        server_version: None,
        tool_count: None,
        catalogue_sha256: None,
        network: Network::NotStarted,
        environment: Vec::new(),
        checks: Vec::new(),
        stable_files_before: before,
        stable_files_after: stable::StableFiles::new(),
        failure: None,
        evidence: PathBuf::new(),
    };
    let mut trial = Trial { setting, stage, record };
    if let Err(stop) = checks(&mut trial, id.as_ref()) {
        trial.fail(stop);
    }
    trial.compare_stable_files();
    let Trial { mut record, .. } = trial;
    record.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    evidence.write(&mut record)?;
    Ok(record)
}

impl Trial<'_> {
    /// The installation.
    pub fn layout(&self) -> &Layout {
        self.setting.layout
    }

    /// A check that held.
    pub fn pass(&mut self, name: &str, detail: impl AsRef<str>) {
        self.note(name, CheckStatus::Pass, detail.as_ref());
    }

    /// Something worth knowing.
    pub fn warn(&mut self, name: &str, detail: impl AsRef<str>) {
        self.note(name, CheckStatus::Warn, detail.as_ref());
    }

    fn note(&mut self, name: &str, status: CheckStatus, detail: &str) {
        let detail = self.clean(detail);
        self.record.checks.push(Check { name: name.to_owned(), status, detail });
    }

    fn fail(&mut self, stop: Stop) {
        let (check, error) = match stop {
            Stop::Talk(check, error) => (check, Error::from(error)),
            Stop::Other(check, error) => (check, error),
        };
        self.note(check, CheckStatus::Fail, error.message());
        if self.record.failure.is_none() {
            self.record.failure = Some(Failure {
                check: check.to_owned(),
                code: error.code().to_owned(),
                message: self.clean(error.message()),
                hint: self.clean(error.hint()),
                retryable: error.retryable(),
            });
        }
        self.record.status = Status::Fail;
    }

    /// One line without secrets and without the user's own paths.
    fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let home = self.setting.context.home.clone();
        let known = [
            (Some(self.layout().root()), "ROOT"),
            (Some(self.stage.path()), "STAGE"),
            (home.as_deref(), "~"),
        ];
        for (path, name) in known {
            if let Some(path) = path.and_then(Path::to_str).filter(|path| path.len() > 1) {
                text = text.replace(path, name);
                text = text.replace(&path.replace('\\', "\\\\"), name);
            }
        }
        redaction::one_line(&text, LONGEST)
    }

    fn compare_stable_files(&mut self) {
        let after = stable::look(self.layout(), &self.setting.also_stable);
        let changed = stable::differences(&self.record.stable_files_before, &after);
        self.record.stable_files_after = after;
        if changed.is_empty() {
            let count = self.record.stable_files_before.len();
            self.pass("stable files", format!("{count} files are as before"));
        } else {
            self.fail(Stop::Other("stable files", CanaryError::Disturbed(changed.join(", ")).into()));
        }
    }

    /// Checks an installed release by hash and writes down what it is.
    pub fn verify(&mut self, id: &ReleaseId) -> Result<Verified, Stop> {
        let layout = self.layout().clone();
        let folder = layout.release(id);
        let direct = std::fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
        if !direct {
            return Err(Stop::found("files", format!("{id} is not a folder of its own in releases/")));
        }
        self.record.release_id = Some(id.clone());
        self.record.receipt_sha256 = digest::of_file(&layout.receipt(id)).ok().map(|(sha256, _)| sha256);
        // The identity is worth knowing also of a release that is damaged.
        if let Ok(found) = verify::metadata(&layout, id) {
            self.record.metadata_sha256 = Some(found.metadata_sha256);
            self.record.manifest_sha256 = Some(found.metadata.manifest_sha256);
        }
        let runtime = folder.join("server").join(crate::release::layout::program_name());
        self.record.runtime_sha256 = digest::of_file(&runtime).ok().map(|(sha256, _)| sha256);
        let verified = verify::release(&layout, id).map_err(Stop::at("files"))?;
        if !verified.metadata.fits_this_machine() {
            let target = &verified.metadata.target;
            return Err(Stop::found("files", format!("it is for {} on {}", target.os, target.arch)));
        }
        self.pass("files", format!("{} files are as pinned", verified.metadata.files.len()));
        Ok(verified)
    }

    /// The program of a release.
    pub fn runtime(&self, verified: &Verified) -> PathBuf {
        let folder = self.layout().release(&verified.id);
        verified.metadata.runtime.split('/').fold(folder, |path, part| path.join(part))
    }

    /// Starts a server, talks with it and ends it with everything it started.
    pub fn with_server(
        &mut self,
        program: PathBuf,
        args: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        talk: impl FnOnce(&mut Self, &mut McpClient) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.record.environment = env.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        let launch = Launch { program, args, env, cwd: self.stage.work(), deadline: self.setting.deadline };
        let mut client = McpClient::start(&launch, true).map_err(|error| Stop::Talk("start", error))?;
        self.record.network = if client.network_is_off() { Network::Off } else { Network::Shared };
        match talk(self, &mut client) {
            Ok(()) => {}
            Err(Stop::Talk(check, error)) => return Err(Stop::Talk(check, client.fail(error))),
            Err(other) => {
                client.end(false);
                return Err(other);
            }
        }
        let asked = Instant::now();
        let farewell = client.end(true);
        if !farewell.survivors.is_empty() {
            return Err(Stop::Talk("end", ProbeError::Survivors { pids: farewell.survivors }));
        }
        if farewell.killed {
            return Err(Stop::found("end", "it did not end when its input was closed, and was killed"));
        }
        self.pass("end", format!("it ended by itself in {} ms", milliseconds(asked.elapsed())));
        if self.record.network == Network::Shared {
            self.warn("network", "this system did not let it be started without a network");
        } else {
            self.pass("network", "it had no network");
        }
        Ok(())
    }

    /// Handshake and tool list.
    pub fn handshake(
        &mut self,
        client: &mut McpClient,
        version: &str,
        pinned: &ToolCatalogue,
        how: Match,
    ) -> Result<Probed, Stop> {
        let began = Instant::now();
        let probed = probe::handshake(client, Some(pinned), how, began).map_err(|error| match error {
            ProbeError::ToolsDiffer { .. } => Stop::Talk("tools", error),
            other => Stop::Talk("handshake", other),
        })?;
        self.record.server_version = Some(probed.server_version.clone());
        self.record.tool_count = Some(probed.tools.len());
        self.record.catalogue_sha256 = Some(probed.catalogue_sha256.clone());
        if probed.server_version != version {
            let told = &probed.server_version;
            return Err(Stop::found("version", format!("it says it is {told}, its metadata say {version}")));
        }
        self.pass("handshake", format!("MCP {} in {} ms", probed.protocol, probed.elapsed_ms));
        self.pass("version", version);
        self.pass(
            "tools",
            format!("{} of {} pinned tools, each as pinned", probed.tools.len(), pinned.tools.len()),
        );
        Ok(probed)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
