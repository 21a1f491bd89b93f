//! The whole life of two releases, played in a throwaway installation before it is played for real: there,
//! back, there again, and cut off at random moments.
//!
//! Nothing of a live installation is touched: it is only read from, and there is no way to name one as the stage.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::canary::{self, Setting};
use super::cutover::{self, Request};
use super::install;
use super::transaction::{self, Interruption};
use super::{Layout, ReleaseError, ReleaseId, journal, lease, pointer, rollback, verify};
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::platform;

/// Version of the record.
const SCHEMA_VERSION: u32 = 1;

/// What to rehearse.
#[derive(Debug)]
pub struct Options {
    /// The release to go to: a bundle, or a folder with an unpacked one (also an installed release).
    pub candidate: PathBuf,
    /// The release to come from and go back to.
    pub prior: PathBuf,
    /// A new folder for the record and the stage.
    pub evidence_dir: PathBuf,
    /// How many switches are cut off at a random moment.
    pub kills: u32,
    /// Chooses those moments.
    pub seed: u64,
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

/// What the cut off switches came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kills {
    /// Chooses the moments.
    pub seed: u64,
    /// Switches that were started to be killed.
    pub attempted: u32,
    /// Those that were cut off in the middle.
    pub cut_off: u32,
    /// Those of them that recovery undid.
    pub undone: u32,
    /// Those of them that recovery completed.
    pub completed: u32,
    /// The first after which the installation was neither as before nor as after.
    pub first_failure: Option<u32>,
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

struct Play<'a> {
    context: &'a Context,
    interruption: &'a Interruption,
    options: &'a Options,
    layout: Layout,
    evidence: PathBuf,
    canaries: u32,
    record: Rehearsal,
}

impl Play<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let [prior_config, candidate_config] = self.set_the_stage()?;
        let prior = self.install("install the prior release", &self.options.prior.clone())?;
        self.record.prior = Some(prior.clone());
        let candidate = self.install("install the candidate", &self.options.candidate.clone())?;
        self.record.candidate = Some(candidate.clone());
        if prior == candidate {
            return Err(failed(&candidate, "both are the same release"));
        }
        self.switch("cutover to the prior release", &prior, &prior_config)?;
        self.canary()?;
        self.switch("cutover to the candidate", &candidate, &candidate_config)?;
        self.canary()?;
        let began = Instant::now();
        let (request, _) = rollback::request(&self.layout, &rollback::Options::default())?;
        cutover::switch(self.context, &self.layout, &request, self.interruption)?;
        self.step("rollback", began);
        self.require(&prior, &prior_config)?;
        self.canary()?;
        self.switch("cutover to the candidate again", &candidate, &candidate_config)?;
        self.canary()?;
        self.cut_off([(&prior, &prior_config), (&candidate, &candidate_config)])
    }

    /// Folders and two configs that differ, with every agent off.
    fn set_the_stage(&self) -> Result<[Vec<u8>; 2], Error> {
        self.layout.create()?;
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
        let began = Instant::now();
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
        let began = Instant::now();
        let request = Request { config: Some(config.to_vec()), ..Request::to(id.clone()) };
        cutover::switch(self.context, &self.layout, &request, self.interruption)?;
        self.step(name, began);
        self.require(id, config)
    }

    fn canary(&mut self) -> Result<(), Error> {
        let began = Instant::now();
        self.canaries += 1;
        let folder = self.evidence.join(format!("canary-{}", self.canaries));
        let setting = Setting { evidence_dir: Some(&folder), ..Setting::new(self.context, &self.layout) };
        let record = canary::pointer(&setting)?;
        self.step("canary pointer", began);
        match record.failure {
            None if record.passed() => Ok(()),
            failure => {
                let current = pointer::current(&self.layout)?.release_id;
                Err(failed(
                    &current,
                    &failure.map_or_else(|| "a check failed".into(), |failure| failure.message),
                ))
            }
        }
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
            return Err(failed(id, "it is not current with its config"));
        }
        verify::release(&self.layout, id)?;
        Ok(())
    }

    /// Starts switches as processes of their own, kills each after a time that the seed chooses, and recovers.
    fn cut_off(&mut self, sides: [(&ReleaseId, &Vec<u8>); 2]) -> Result<(), Error> {
        let began = Instant::now();
        let longest = self.longest_switch();
        let mut random = Random(self.options.seed);
        for attempt in 1..=self.options.kills {
            if self.interruption.is_set() {
                return Err(ReleaseError::Interrupted.into());
            }
            let current = pointer::current(&self.layout)?;
            let (from, to) = match current.release_id == *sides[0].0 {
                true => (sides[0], sides[1]),
                false => (sides[1], sides[0]),
            };
            let staged = self.evidence.join("staged.json");
            platform::write_durable(&staged, to.1, 0o600).map_err(ReleaseError::from)?;
            self.record.kills.attempted += 1;
            let delay =
                Duration::from_micros(random.below(u64::try_from(longest.as_micros()).unwrap_or(1_000_000)));
            self.kill_one(to.0, &staged, delay)?;
            let cut = journal::unfinished(&self.layout)?.is_some();
            let recovered = lease::recover(&self.layout, self.context.clock, Duration::from_secs(10))?;
            if cut {
                self.record.kills.cut_off += 1;
                match recovered.outcome {
                    "completed" => self.record.kills.completed += 1,
                    _ => self.record.kills.undone += 1,
                }
            }
            let after = pointer::current(&self.layout)?;
            let side = if after.generation == current.generation { from } else { to };
            if let Err(error) = self.require(side.0, side.1) {
                self.record.kills.first_failure = Some(attempt);
                return Err(error);
            }
        }
        self.step(&format!("{} switches cut off and recovered", self.options.kills), began);
        Ok(())
    }

    fn kill_one(&self, to: &ReleaseId, staged: &Path, delay: Duration) -> Result<(), Error> {
        let root = self.layout.root();
        let mut child = Command::new(&self.context.exe)
            .args(["cutover", to.as_str(), "--yes", "--stage-config"])
            .arg(staged)
            .arg("--root")
            .arg(root)
            .env_clear()
            .envs(&self.context.env)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(ReleaseError::io("cannot start", &self.context.exe))?;
        std::thread::sleep(delay);
        let _ = child.kill();
        let _ = child.wait();
        Ok(())
    }

    /// How long a switch takes here, with something added: some of the kills come after the end.
    fn longest_switch(&self) -> Duration {
        let switches = self.record.steps.iter().filter(|step| step.name.starts_with("cutover"));
        let longest = switches.map(|step| step.duration_ms).max().unwrap_or(500);
        Duration::from_millis(longest + longest / 4 + 50)
    }
}

fn failed(id: &ReleaseId, why: &str) -> Error {
    ReleaseError::ProbeFailed { id: id.to_string(), why: why.to_owned() }.into()
}

/// The moments of the kills: the same seed, the same moments (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}
