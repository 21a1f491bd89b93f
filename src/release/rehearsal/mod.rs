//! The whole life of two releases, played in a throwaway installation before it is played for real: there,
//! back, there again, and cut off at places all over the switch.
//!
//! Nothing of a live installation is touched: it is only read from, and there is no way to name one as the stage.

mod error;
mod kills;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

pub use self::error::{CODES, RehearsalError};
pub use self::kills::{Kills, Landed, play};
use super::canary::{self, Setting};
use super::cutover::{self, Request};
use super::install;
use super::transaction::{self, Interruption};
use super::{Layout, ReleaseError, ReleaseId, lease, pointer, rollback, verify};
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::platform;

/// Version of the record.
const SCHEMA_VERSION: u32 = 1;
/// Says that an installation is the stage of a rehearsal.
const MARK: &str = ".rehearsal";
/// Steps beside the kills.
const STEPS: u32 = 10;

/// What to rehearse.
#[derive(Debug)]
pub struct Options {
    /// The release to go to: a bundle, or a folder with an unpacked one (also an installed release).
    pub candidate: PathBuf,
    /// The release to come from and go back to.
    pub prior: PathBuf,
    /// A new folder for the record and the stage.
    pub evidence_dir: PathBuf,
    /// How many switches are cut off, at least two.
    pub kills: u32,
    /// Chooses where.
    pub seed: u64,
}

/// How far it is: steps done, and the one that begins.
pub type Progress<'a> = dyn FnMut(u32, &str) + 'a;

/// How many steps it has.
pub fn steps(options: &Options) -> u32 {
    STEPS.saturating_add(options.kills)
}

/// What happened.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rehearsal {
    /// Version of this record.
    pub schema_version: u32,
    /// `pass` or `fail`.
    pub status: &'static str,
    /// When it began, UTC.
    pub started_at: String,
    /// When it ended, UTC.
    pub completed_at: String,
    /// The throwaway installation; it stays for a look.
    pub stage: PathBuf,
    /// The release that was gone to.
    pub candidate: Option<ReleaseId>,
    /// The release that was come from.
    pub prior: Option<ReleaseId>,
    /// The steps in order; the one that failed is the last.
    pub steps: Vec<Step>,
    /// What the cut off switches came to.
    pub kills: Kills,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<serde_json::Value>,
    /// Where the record lies. Not in the record itself.
    #[serde(skip)]
    pub evidence: PathBuf,
}

/// One step.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Which.
    pub name: String,
    /// What is current after it.
    pub release_id: Option<ReleaseId>,
    /// SHA-256 of the shared config after it.
    pub config_sha256: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
}

/// Plays it and writes the record, pass or fail.
///
/// # Errors
/// Only if nothing could be played: the evidence folder is there already, or cannot be made.
pub fn rehearse(
    context: &Context,
    live: &Layout,
    options: &Options,
    interruption: &Interruption,
    progress: &mut Progress<'_>,
) -> Result<Rehearsal, Error> {
    let evidence = &options.evidence_dir;
    let unusable = |why: String| ReleaseError::RootUnusable { path: evidence.clone(), why };
    if !evidence.is_absolute() {
        return Err(unusable("the evidence folder must be an absolute path".into()).into());
    }
    if platform::lies_inside(evidence, live.root()) {
        return Err(unusable("it lies inside the installation".into()).into());
    }
    if std::fs::symlink_metadata(evidence).is_ok() {
        return Err(unusable("it is there already; a rehearsal needs a new folder".into()).into());
    }
    platform::create_private_dir(evidence).map_err(ReleaseError::from)?;
    let evidence = crate::config::canonical(evidence).map_err(ReleaseError::io("cannot open", evidence))?;
    let mut play = Play {
        context,
        interruption,
        options,
        progress,
        begun: 0,
        layout: Layout::at(evidence.join("stage")),
        evidence: evidence.clone(),
        canaries: 0,
        record: Rehearsal {
            schema_version: SCHEMA_VERSION,
            status: "fail",
            started_at: transaction::timestamp(context.clock),
            completed_at: String::new(),
            stage: evidence.join("stage"),
            candidate: None,
            prior: None,
            steps: Vec::new(),
            kills: Kills { seed: options.seed, ..Kills::default() },
            failure: None,
            evidence: evidence.join("rehearsal.json"),
        },
    };
    match play.run() {
        Ok(()) => play.record.status = "pass",
        Err(error) => play.record.failure = Some(error.to_json()),
    }
    let mut record = play.record;
    record.completed_at = transaction::timestamp(context.clock);
    let mut bytes = serde_json::to_vec_pretty(&record).unwrap_or_default();
    bytes.push(b'\n');
    platform::write_durable(&record.evidence, &bytes, 0o600).map_err(ReleaseError::from)?;
    Ok(record)
}

struct Play<'a, 'p> {
    context: &'a Context,
    interruption: &'a Interruption,
    options: &'a Options,
    progress: &'a mut Progress<'p>,
    /// Steps that were told.
    begun: u32,
    layout: Layout,
    evidence: PathBuf,
    canaries: u32,
    record: Rehearsal,
}

impl Play<'_, '_> {
    fn run(&mut self) -> Result<(), Error> {
        let [prior_config, candidate_config] = self.set_the_stage()?;
        let prior = self.install("install the prior release", &self.options.prior.clone())?;
        self.record.prior = Some(prior.clone());
        let candidate = self.install("install the candidate", &self.options.candidate.clone())?;
        self.record.candidate = Some(candidate.clone());
        if prior == candidate {
            return Err(failed(format!("both releases are {candidate}")));
        }
        self.switch("cutover to the prior release", &prior, &prior_config)?;
        self.canary()?;
        self.switch("cutover to the candidate", &candidate, &candidate_config)?;
        self.canary()?;
        let began = self.begin("rollback");
        let (request, _) = rollback::request(&self.layout, &rollback::Options::default())?;
        cutover::switch(self.context, &self.layout, &request, self.interruption)?;
        self.step("rollback", began);
        self.require(&prior, &prior_config)?;
        self.canary()?;
        // Which places a switch has is asked of one that succeeds.
        let places = Arc::new(Mutex::new(Vec::new()));
        let passed = Arc::clone(&places);
        let watched = self.interruption.clone().and_watched(move |_, place| {
            if let Ok(mut places) = passed.lock() {
                places.push(place.to_owned());
            }
        });
        self.switch_with("cutover to the candidate again", &candidate, &candidate_config, &watched)?;
        self.canary()?;
        let places = places.lock().map(|places| places.clone()).unwrap_or_default();
        self.cut_off(&places, [(&prior, &prior_config), (&candidate, &candidate_config)])
    }

    /// Folders and two configs that differ, with every agent off.
    fn set_the_stage(&self) -> Result<[Vec<u8>; 2], Error> {
        self.layout.create()?;
        platform::write_durable(&self.layout.root().join(MARK), b"", 0o600).map_err(ReleaseError::from)?;
        let work = self.evidence.join("work");
        platform::create_private_dir(&work).map_err(ReleaseError::from)?;
        Ok(["prior", "candidate"].map(|note| {
            let config = json!({
                "_notes": format!("Of a rehearsal, for the {note} release."),
                "allowedRoots": [work], "stateDir": self.evidence.join("state"),
                "agents": { "codex": { "enabled": false }, "claude": { "enabled": false } },
            });
            format!("{config:#}\n").into_bytes()
        }))
    }

    fn install(&mut self, name: &str, source: &Path) -> Result<ReleaseId, Error> {
        let began = self.begin(name);
        let request = install::Request {
            source,
            expect_sha256: None,
            repair: false,
            dry_run: false,
            reason: Some("rehearsal"),
        };
        let installed =
            install::install(self.context, &self.layout, &request, self.interruption, &mut |_, _, _| {})?;
        self.step(name, began);
        Ok(installed.release_id)
    }

    fn switch(&mut self, name: &str, id: &ReleaseId, config: &[u8]) -> Result<(), Error> {
        self.switch_with(name, id, config, self.interruption)
    }

    fn switch_with(
        &mut self,
        name: &str,
        id: &ReleaseId,
        config: &[u8],
        interruption: &Interruption,
    ) -> Result<(), Error> {
        let began = self.begin(name);
        let request = Request { config: Some(config.to_vec()), ..Request::to(id.clone()) };
        cutover::switch(self.context, &self.layout, &request, interruption)?;
        self.step(name, began);
        self.require(id, config)
    }

    fn canary(&mut self) -> Result<(), Error> {
        let began = self.begin("canary pointer");
        self.canaries += 1;
        let folder = self.evidence.join(format!("canary-{}", self.canaries));
        let setting = Setting { evidence_dir: Some(&folder), ..Setting::new(self.context, &self.layout) };
        let record = canary::pointer(&setting)?;
        self.step("canary pointer", began);
        match record.failure {
            None if record.passed() => Ok(()),
            failure => {
                let current = pointer::current(&self.layout)?.release_id;
                let why = failure.map_or_else(|| "a check failed".into(), |failure| failure.message);
                Err(failed(format!("the canary of {current} did not pass: {why}")))
            }
        }
    }

    /// Tells that a step begins.
    fn begin(&mut self, name: &str) -> Instant {
        (self.progress)(self.begun, name);
        self.begun += 1;
        Instant::now()
    }

    fn step(&mut self, name: &str, began: Instant) {
        self.record.steps.push(Step {
            name: name.to_owned(),
            release_id: pointer::read(&self.layout).ok().flatten().map(|(_, pointer)| pointer.release_id),
            config_sha256: digest::of_file(&self.layout.config()).ok().map(|(sha256, _)| sha256),
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }

    /// Whether exactly this release with exactly this config is current, and whole.
    fn require(&self, id: &ReleaseId, config: &[u8]) -> Result<(), Error> {
        let current = pointer::current(&self.layout)?;
        let there = transaction::content(&self.layout.config())?;
        if current.release_id != *id || there.as_deref() != Some(config) {
            return Err(failed(format!("{id} is not current with its config")));
        }
        verify::release(&self.layout, id)?;
        Ok(())
    }

    /// Cuts switches off at places all over them, and recovers.
    fn cut_off(&mut self, places: &[String], sides: [(&ReleaseId, &Vec<u8>); 2]) -> Result<(), Error> {
        let began = Instant::now();
        self.record.kills.places = places.to_vec();
        let chosen = kills::choose(places, self.options.kills, self.options.seed);
        for (attempt, place) in (1..).zip(&chosen) {
            if self.interruption.is_set() {
                return Err(ReleaseError::Interrupted.into());
            }
            self.begin(&format!("kill at {place}"));
            let done = self.cut_off_one(place, sides);
            if self.interruption.is_set() {
                return Err(ReleaseError::Interrupted.into());
            }
            if done.is_err() {
                self.record.kills.first_failure = Some(attempt);
            }
            done?;
        }
        self.step(&format!("{} switches cut off and recovered", self.record.kills.cut_off), began);
        Ok(self.record.kills.require_both()?)
    }

    fn cut_off_one(&mut self, place: &str, sides: [(&ReleaseId, &Vec<u8>); 2]) -> Result<(), Error> {
        let current = pointer::current(&self.layout)?;
        let (from, to) = match current.release_id == *sides[0].0 {
            true => (sides[0], sides[1]),
            false => (sides[1], sides[0]),
        };
        let staged = self.evidence.join("staged.json");
        platform::write_durable(&staged, to.1, 0o600).map_err(ReleaseError::from)?;
        self.record.kills.attempted += 1;
        let landed = kills::kill_at(self.context, &self.layout, to.0, &staged, place)?;
        let recovered = lease::recover(&self.layout, self.context.clock, Duration::from_secs(10))?;
        let after = pointer::current(&self.layout)?;
        let side = if after.generation == current.generation { from } else { to };
        if let Some((place, after_commit)) = landed {
            let outcome = recovered.outcome;
            if (outcome == "completed") != after_commit {
                return Err(failed(format!("what was killed at {place} was {outcome}")));
            }
            self.record.kills.add(Landed { place, after_commit, outcome });
        }
        self.require(side.0, side.1)
    }
}

fn failed(why: String) -> Error {
    RehearsalError::Failed { why }.into()
}
