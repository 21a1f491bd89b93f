//! The switch to a release: `cutover`, `rollback` and a trial's fallback are this one transaction.
//!
//! The target is verified and everything that can be refused is refused before the gate closes. Behind the
//! closed gate nothing of the installation runs: client files and config are put in place, the target is started
//! through the launcher and asked for its tools; only then it is decided.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::generations::{self, Generation, Verdict};
use super::journal::{self, Action};
use super::lease::{self, ClosedGate, Drained};
use super::metadata::LAUNCHER_PROTOCOL;
use super::pointer::{self, LauncherFacts, Pointer, Previous, Trial};
use super::probe::{self, Match};
use super::readiness::Holder;
use super::transaction::{self, InstallLock, Interruption, Purpose, Transaction, content};
use super::verify::{self, Verified};
use super::{Layout, ReleaseError, ReleaseId, clients, launcher_file, readiness};
use crate::config;
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::store::Store;

/// How often it is looked who is waited for.
const LOOK: Duration = Duration::from_millis(500);
/// How long the target may take to answer behind the closed gate.
const PROBE_DEADLINE: Duration = Duration::from_secs(20);

/// What to switch to, and how.
#[derive(Debug)]
pub struct Request {
    /// The release.
    pub target: ReleaseId,
    /// The shared config to switch to; none leaves it as it is.
    pub config: Option<Vec<u8>>,
    /// The client files to put our entry into, as planned; none leaves them alone.
    pub clients: Option<clients::Plan>,
    /// Old processes may finish on the old release.
    pub soft: bool,
    /// The release has to prove itself in this time, or is left again.
    pub trial: Option<TrialTerms>,
    /// How long to wait for the holders of leases to end.
    pub wait: Duration,
    /// Is told who is waited for, in words, at first and whenever that changes.
    pub on_wait: fn(&[String]),
    /// Processes that cannot be looked at are no obstacle.
    pub allow_unreadable: bool,
    /// The launcher is replaced by the target's program.
    pub update_launcher: bool,
    /// The operator's words.
    pub reason: Option<String>,
    /// The generation that is brought back, in a rollback.
    pub restores: Option<Generation>,
    /// What is said of the generation that is left; none says nothing.
    pub verdict_on_left: Option<String>,
    /// Short name, part of the transaction's id.
    pub operation: &'static str,
}

/// The terms of a trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialTerms {
    /// How long it has.
    pub time: Duration,
    /// Client handshakes that bless it.
    pub handshakes: u32,
    /// Starts without a handshake after which it is left.
    pub failed_starts: u32,
}

impl TrialTerms {
    /// In words.
    pub fn sentence(&self) -> String {
        let counted = |count: u32, one: &str, many: &str| match count {
            1 => format!("one {one}"),
            count => format!("{count} {many}"),
        };
        format!(
            "kept by {} within {}, left after {} without one or at the end of that time",
            counted(self.handshakes, "client handshake", "client handshakes"),
            in_words(self.time),
            counted(self.failed_starts, "start", "starts"),
        )
    }
}

/// In the largest unit that fits: `90 s`, `15 min`, `24 h`.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        hours if hours > 0 && hours % 3600 == 0 => format!("{} h", hours / 3600),
        minutes if minutes > 0 && minutes % 60 == 0 => format!("{} min", minutes / 60),
        seconds => format!("{seconds} s"),
    }
}

impl Request {
    /// A hard switch to a release, with everything else as it is.
    pub fn to(target: ReleaseId) -> Self {
        Self {
            target,
            config: None,
            clients: None,
            soft: false,
            trial: None,
            wait: Duration::from_secs(10),
            on_wait: |_| {},
            allow_unreadable: false,
            update_launcher: false,
            reason: None,
            restores: None,
            verdict_on_left: None,
            operation: "cutover",
        }
    }
}

/// What was done, or would be.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Switched {
    /// `switched`, `already-current` or `planned`.
    pub status: &'static str,
    /// Whether anything was changed.
    pub changed: bool,
    /// The release.
    pub release_id: ReleaseId,
    /// The generation that is current now; of a plan, the one it would be.
    pub generation: u64,
    /// What was current before.
    pub previous: Option<Previous>,
    /// The transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txid: Option<String>,
    /// How long nothing could start, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<u64>,
    /// SHA-256 of the shared config.
    pub config_sha256: Option<String>,
    /// Tools that the target listed in its probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<usize>,
    /// Client files that were changed, or would be.
    pub clients: Vec<PathBuf>,
    /// The steps of a plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// Worth telling.
    pub warnings: Vec<String>,
}

/// Everything that is known before the gate closes.
struct Prepared {
    verified: Verified,
    current: Option<(usize, Pointer)>,
    generation: u64,
    config_before: Option<Vec<u8>>,
    config_after: Vec<u8>,
    launcher_before: Option<Vec<u8>>,
    /// The target's program, if it becomes the launcher.
    new_launcher: Option<PathBuf>,
    warnings: Vec<String>,
}

impl Prepared {
    fn previous(&self) -> Option<Previous> {
        self.current.as_ref().map(|(_, pointer)| Previous {
            generation: pointer.generation,
            release_id: pointer.release_id.clone(),
            config_sha256: pointer.config_sha256.clone(),
        })
    }

    /// Whether the launcher is the one that was put there.
    fn launcher_is_ours(&self, launcher: &[u8]) -> bool {
        let recorded = self.current.as_ref().map(|(_, pointer)| pointer.launcher.sha256.as_str());
        recorded == Some(digest::of_bytes(launcher).as_str())
    }

    /// Whether there is nothing to switch.
    fn is_current(&self, request: &Request) -> bool {
        self.current.as_ref().is_some_and(|(_, pointer)| {
            pointer.release_id == self.verified.id
                && pointer.metadata_sha256 == self.verified.metadata_sha256
                && pointer.config_sha256.as_deref() == Some(&digest::of_bytes(&self.config_after))
                && pointer.trial.is_none()
        }) && self.config_before.as_deref() == Some(&self.config_after)
            && self.new_launcher.is_none()
            && request.trial.is_none()
            && request.restores.is_none()
            && request.clients.as_ref().is_none_or(clients::Plan::is_empty)
    }
}

/// Says what a switch would do; changes nothing.
pub fn plan(context: &Context, layout: &Layout, request: &Request) -> Result<Switched, Error> {
    layout.require_installation()?;
    journal::require_finished(layout)?;
    let prepared = prepare(context, layout, request)?;
    if prepared.is_current(request) {
        return Ok(already_current(request, &prepared));
    }
    let mut steps = vec![format!("close the gate of {}", layout.root().display())];
    steps.push(if request.soft {
        "leave running processes on the old release".into()
    } else {
        format!("wait up to {} s for running servers and turns to end", request.wait.as_secs())
    });
    if prepared.launcher_before.is_none() {
        steps.push(format!("put the launcher at {}", layout.launcher().display()));
    } else if prepared.new_launcher.is_some() {
        steps.push(format!("replace the launcher {}", layout.launcher().display()));
    }
    let client_files: Vec<PathBuf> = request.clients.as_ref().map(clients::Plan::files).unwrap_or_default();
    steps.extend(client_files.iter().map(|path| format!("write our entry into {}", path.display())));
    if prepared.config_before.as_deref() != Some(&prepared.config_after) {
        steps.push(format!("replace {}", layout.config().display()));
    }
    steps.push(format!("start {} through the launcher and ask for its tools", request.target));
    steps.push(format!("make {} current, as generation {}", request.target, prepared.generation));
    if let Some(terms) = request.trial.filter(|_| prepared.current.is_some()) {
        steps.push(format!("put it on trial: {}", terms.sentence()));
    }
    Ok(Switched {
        status: "planned",
        changed: false,
        release_id: request.target.clone(),
        generation: prepared.generation,
        previous: prepared.previous(),
        txid: None,
        downtime_ms: None,
        config_sha256: Some(digest::of_bytes(&prepared.config_after)),
        tools: None,
        clients: client_files,
        steps,
        warnings: prepared.warnings,
    })
}

fn already_current(request: &Request, prepared: &Prepared) -> Switched {
    Switched {
        status: "already-current",
        changed: false,
        release_id: request.target.clone(),
        generation: prepared.current.as_ref().map_or(0, |(_, pointer)| pointer.generation),
        previous: prepared.current.as_ref().and_then(|(_, pointer)| pointer.previous.clone()),
        txid: None,
        downtime_ms: None,
        config_sha256: Some(digest::of_bytes(&prepared.config_after)),
        tools: None,
        clients: Vec::new(),
        steps: Vec::new(),
        warnings: prepared.warnings.clone(),
    }
}

/// Switches, or leaves everything as it was.
pub fn switch(
    context: &Context,
    layout: &Layout,
    request: &Request,
    interruption: &Interruption,
) -> Result<Switched, Error> {
    let lock = InstallLock::take_for_change(layout)?;
    let prepared = prepare(context, layout, request)?;
    if prepared.is_current(request) {
        return Ok(already_current(request, &prepared));
    }
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let purpose = Purpose {
        operation: request.operation,
        reason: request.reason.as_deref(),
        facts: json!({
            "target": request.target,
            "generation": prepared.generation,
            "previous": prepared.previous(),
            "configSha256": digest::of_bytes(&prepared.config_after),
            "soft": request.soft,
            "trial": request.trial.is_some(),
            "by": { "version": env!("CARGO_PKG_VERSION"), "program": context.exe, "pid": std::process::id() },
            "probe": lease::probe_facts(&token, &request.target),
        }),
    };
    // The gate opens again when this goes out of scope, after everything that was decided is in place.
    let mut closed = None;
    let mut switched = transaction::run(layout, &lock, context.clock, interruption, purpose, |tx| {
        enter(context, layout, request, tx, &mut closed)?;
        put_in_place(context, layout, request, &prepared, tx)?;
        tx.phase("probe", json!({}))?;
        let probed = ask_target(context, layout, &prepared, &token)?;
        let (actions, pointer) = decision(context, layout, request, &prepared, tx)?;
        tx.phase("decided", json!({ "tools": probed.tools.len(), "protocol": probed.protocol }))?;
        Ok((
            actions,
            Switched {
                status: "switched",
                changed: true,
                release_id: request.target.clone(),
                generation: pointer.generation,
                previous: pointer.previous.clone(),
                txid: Some(pointer.txid.clone()),
                downtime_ms: None,
                config_sha256: pointer.config_sha256.clone(),
                tools: Some(probed.tools.len()),
                clients: request.clients.as_ref().map(clients::Plan::files).unwrap_or_default(),
                steps: Vec::new(),
                warnings: prepared.warnings.clone(),
            },
        ))
    })?;
    switched.downtime_ms = closed.map(Barrier::open);
    match pointer::current(layout) {
        Ok(now) if now.generation == switched.generation => Ok(switched),
        Ok(now) => Err(not_there(&switched, &format!("the pointer names generation {}", now.generation))),
        Err(error) => Err(not_there(&switched, &error.to_string())),
    }
}

fn not_there(switched: &Switched, why: &str) -> Error {
    ReleaseError::NotFinished { txid: switched.txid.clone().unwrap_or_default(), why: why.to_owned() }.into()
}

/// What keeps starts out.
enum Barrier {
    /// The gate alone: old processes go on.
    Gate(ClosedGate),
    /// The gate, and nothing runs.
    Drained(Drained),
}

impl Barrier {
    /// Lets starts in again; gives how long they were kept out, in milliseconds.
    fn open(self) -> u64 {
        let closed = match self {
            Self::Gate(gate) => gate.since().elapsed(),
            Self::Drained(drained) => drained.open(),
        };
        u64::try_from(closed.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Checks everything that can be checked while the old release serves.
fn prepare(context: &Context, layout: &Layout, request: &Request) -> Result<Prepared, Error> {
    let verified = verify::release(layout, &request.target)?;
    let id = || request.target.to_string();
    if !verified.metadata.fits_this_machine() {
        let target = &verified.metadata.target;
        return Err(ReleaseError::ForeignTarget {
            id: id(),
            target: format!("{}-{}", target.os, target.arch),
            here: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        }
        .into());
    }
    let current = match pointer::read(layout) {
        Ok(current) => current,
        // A cutover by name is the way out of a damaged pointer.
        Err(ReleaseError::PointerDamaged { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(plan) = &request.clients {
        plan.require_editable()?;
    }
    let newest = generations::list(layout)?.last().map_or(0, |generation| generation.number);
    let generation = newest.max(current.as_ref().map_or(0, |(_, pointer)| pointer.generation)) + 1;
    let config_before = content(&layout.config())?;
    let Some(config_after) = request.config.clone().or_else(|| config_before.clone()) else {
        let why = format!("there is no shared config at {}", layout.config().display());
        return Err(Error::from(ReleaseError::Incompatible { id: id(), why }).with_hint(format!(
            "Write one with `agent-bridge --config {} config init`, or pass `--stage-config FILE`.",
            layout.config().display()
        )));
    };
    let mut warnings = Vec::new();
    if request.trial.is_some() && current.is_none() {
        warnings
            .push("nothing is current yet, so there is nothing to fall back to: it is not on trial".into());
    }
    check_config(context, layout, request, &verified, &config_after, &mut warnings)?;
    let launcher_before = content(&layout.launcher())?;
    let protocol = current.as_ref().map_or(LAUNCHER_PROTOCOL, |(_, pointer)| pointer.launcher.protocol);
    let too_old = launcher_before.is_some() && protocol < verified.metadata.min_launcher_protocol;
    let recorded = current.as_ref().map(|(_, pointer)| pointer.launcher.sha256.as_str());
    let damaged = match (&launcher_before, recorded) {
        (Some(bytes), Some(recorded)) => digest::of_bytes(bytes) != recorded,
        _ => false,
    };
    if damaged {
        warnings.push("the launcher is not the one that was put there; it is replaced".into());
    }
    let wanted = launcher_before.is_none() || too_old || damaged || request.update_launcher;
    let new_launcher = wanted.then(|| {
        layout.release(&verified.id).join(verified.metadata.runtime.split('/').collect::<PathBuf>())
    });
    if let (Some(path), Some(old)) = (&new_launcher, &launcher_before)
        && content(path)?.as_ref() == Some(old)
    {
        warnings.push("the launcher is that of this release already".into());
    }
    let same = |path: &PathBuf| {
        launcher_before.is_some() && matches!(content(path), Ok(found) if found == launcher_before)
    };
    let new_launcher = new_launcher.filter(|path| !same(path));
    Ok(Prepared {
        verified,
        current,
        generation,
        config_before,
        config_after,
        launcher_before,
        new_launcher,
        warnings,
    })
}

/// Whether the target can be expected to start with this config on this state.
fn check_config(
    context: &Context,
    layout: &Layout,
    request: &Request,
    verified: &Verified,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<(), Error> {
    let refused =
        |why: String| Error::from(ReleaseError::Incompatible { id: request.target.to_string(), why });
    let report = config::check_bytes(context, &layout.config(), bytes);
    let same_version = verified.metadata.version == env!("CARGO_PKG_VERSION");
    match report.problems.first() {
        None => {}
        Some(problem) if same_version => return Err(refused(format!("the config is not valid: {problem}"))),
        // Another version may know more keys; its own probe decides.
        Some(problem) => warnings.push(format!(
            "this version does not understand the config ({problem}); the target's probe decides"
        )),
    }
    warnings.extend(report.warnings.iter().cloned());
    if let Some(config) = report.config
        && let Some(state) = Store::schema_version(&config.state_dir)
    {
        let reads = &verified.metadata.state_schema_version.reads;
        if state < reads.min || state > reads.max {
            return Err(refused(format!(
                "the state in {} has version {state}, and it reads {} to {}",
                config.state_dir.display(),
                reads.min,
                reads.max
            )));
        }
    }
    Ok(())
}

/// Closes the gate and, unless soft, waits until nothing runs.
fn enter(
    context: &Context,
    layout: &Layout,
    request: &Request,
    tx: &mut Transaction<'_>,
    barrier: &mut Option<Barrier>,
) -> Result<(), Error> {
    tx.phase("maintenance", json!({ "soft": request.soft }))?;
    let gate = lease::close_gate(layout, request.wait)?;
    if request.soft {
        *barrier = Some(Barrier::Gate(gate));
        return Ok(());
    }
    let (mut looked, mut told) = (None::<Instant>, Vec::new());
    let drained = gate.drain_while(request.wait, &mut || {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            looked = Some(Instant::now());
            let names: Vec<String> = readiness::holders(layout).iter().map(Holder::sentence).collect();
            if names != told {
                (request.on_wait)(&names);
                told = names;
            }
        }
        !tx.is_interrupted()
    });
    if drained.is_err() && tx.is_interrupted() {
        return Err(ReleaseError::Interrupted.into());
    }
    *barrier = Some(Barrier::Drained(drained?));
    tx.phase("rescan", json!({}))?;
    let options = readiness::Options { allow_unreadable: request.allow_unreadable, drained: true };
    readiness::look(context, layout, &options).require_quiet(layout)
}

/// Launcher, client files and config, each so that it can be put back.
fn put_in_place(
    context: &Context,
    layout: &Layout,
    request: &Request,
    prepared: &Prepared,
    tx: &mut Transaction<'_>,
) -> Result<(), Error> {
    if let Some(program) = &prepared.new_launcher {
        tx.phase("launcher", json!({}))?;
        let wanted = content(program)?.unwrap_or_default();
        match &prepared.launcher_before {
            // One that is what we put there replaces itself: it may be running.
            Some(old) if prepared.launcher_is_ours(old) => {
                tx.replace_by(&layout.launcher(), old, &wanted, || {
                    launcher_file::ask(context, layout, program, &digest::of_bytes(&wanted))
                })?;
            }
            old => tx.replace(&layout.launcher(), old.as_deref(), Some(&wanted), 0o755, None)?,
        }
    }
    if let Some(plan) = &request.clients {
        tx.phase("clients", json!({ "files": plan.files() }))?;
        clients::apply_in(tx, plan)?;
    }
    tx.phase(
        "config",
        json!({ "changed": prepared.config_before.as_deref() != Some(&prepared.config_after) }),
    )?;
    tx.replace(
        &layout.config(),
        prepared.config_before.as_deref(),
        Some(&prepared.config_after),
        0o600,
        None,
    )?;
    Ok(())
}

/// Starts the target as a client would, behind the closed gate.
fn ask_target(
    context: &Context,
    layout: &Layout,
    prepared: &Prepared,
    token: &str,
) -> Result<probe::Probed, Error> {
    let mut env = minimal_environment(context);
    env.push((lease::PROBE_VARIABLE.into(), token.into()));
    let launch = probe::Launch {
        program: layout.launcher(),
        args: vec!["serve".into()],
        env,
        cwd: layout.root().to_path_buf(),
        deadline: PROBE_DEADLINE,
    };
    let id = prepared.verified.id.to_string();
    probe::run(&launch, Some(&prepared.verified.metadata.tool_catalogue), Match::Subset)
        .map_err(|error| ReleaseError::ProbeFailed { id, why: error.to_string() }.into())
}

/// What a host passes on at least.
fn minimal_environment(context: &Context) -> Vec<(OsString, OsString)> {
    const NAMES: [&str; 12] = [
        "HOME",
        "USERPROFILE",
        "PATH",
        "PATHEXT",
        "SystemRoot",
        "ComSpec",
        "TEMP",
        "TMP",
        "TMPDIR",
        "LANG",
        "APPDATA",
        "LOCALAPPDATA",
    ];
    NAMES.iter().filter_map(|name| Some((OsString::from(name), context.var(name)?.to_owned()))).collect()
}

/// What will be current, and the steps that make it so.
fn decision(
    context: &Context,
    layout: &Layout,
    request: &Request,
    prepared: &Prepared,
    tx: &Transaction<'_>,
) -> Result<(Vec<Action>, Pointer), Error> {
    let metadata = &prepared.verified.metadata;
    let runtime = metadata.runtime_record()?;
    let config_sha256 = digest::of_bytes(&prepared.config_after);
    let (launcher_sha256, launcher_bytes) =
        digest::of_file(&layout.launcher()).map_err(ReleaseError::io("cannot read", layout.launcher()))?;
    let kept = prepared.current.as_ref().map(|(_, pointer)| &pointer.launcher);
    let protocol = match kept {
        Some(kept) if kept.sha256 == launcher_sha256 => kept.protocol,
        // Its own program speaks at least what the release needs.
        _ => metadata.min_launcher_protocol,
    };
    let now = tx.now();
    let previous = prepared.previous();
    let all = generations::list(layout)?;
    let fallback =
        previous.as_ref().map_or(0, |previous| match generations::way_back(&all, previous.generation) {
            _ if all.iter().any(|g| g.number == previous.generation && g.verdict != Verdict::Bad) => {
                previous.generation
            }
            Ok(good) => good.number,
            Err(_) => previous.generation,
        });
    let trial = request.trial.filter(|_| previous.is_some()).map(|terms| Trial {
        until_ms: context
            .clock
            .now_ms()
            .saturating_add(i64::try_from(terms.time.as_millis()).unwrap_or(i64::MAX)),
        handshakes: terms.handshakes,
        failed_starts: terms.failed_starts,
        fallback,
    });
    let pointer = Pointer {
        schema_version: 2,
        generation: prepared.generation,
        release_id: prepared.verified.id.clone(),
        target: metadata.target.triple.clone(),
        runtime_path: format!("releases/{}/{}", prepared.verified.id, metadata.runtime),
        runtime_sha256: runtime.sha256.clone(),
        runtime_bytes: runtime.bytes,
        metadata_sha256: prepared.verified.metadata_sha256.clone(),
        manifest_sha256: metadata.manifest_sha256.clone(),
        config_sha256: Some(config_sha256.clone()),
        launcher: LauncherFacts { sha256: launcher_sha256, bytes: launcher_bytes, protocol },
        previous: previous.clone(),
        trial,
        txid: tx.txid().to_owned(),
        promoted_at: now.clone(),
    };
    let generation = Generation {
        number: prepared.generation,
        parent: match &request.restores {
            Some(restored) => restored.parent,
            None => previous.as_ref().map(|previous| previous.generation),
        },
        restores: request.restores.as_ref().map(|restored| restored.number),
        release_id: prepared.verified.id.clone(),
        config_sha256: Some(config_sha256.clone()),
        txid: tx.txid().to_owned(),
        promoted_at: now,
        reason: request.reason.clone(),
        verdict: request.restores.as_ref().map_or(Verdict::Unknown, |restored| restored.verdict),
        because: request.restores.as_ref().map(|restored| format!("as generation {}", restored.number)),
    };
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| ReleaseError::Incompatible {
            id: request.target.to_string(),
            why: "the config is not UTF-8".into(),
        })
    };
    let slot = prepared.current.as_ref().map_or(0, |(slot, _)| 1 - slot);
    let mut actions = vec![
        Action::Put {
            path: format!("configs/{config_sha256}.json"),
            content: text(&prepared.config_after)?,
            mode: 0o600,
        },
        Action::Put {
            path: format!("generations/{:06}.json", generation.number),
            content: generation.to_text(),
            mode: 0o600,
        },
    ];
    if let Some(because) = &request.verdict_on_left
        && let Some(left) =
            previous.as_ref().and_then(|left| all.iter().find(|g| g.number == left.generation))
    {
        let left = Generation { verdict: Verdict::Bad, because: Some(because.clone()), ..left.clone() };
        actions.push(Action::Put {
            path: format!("generations/{:06}.json", left.number),
            content: left.to_text(),
            mode: 0o600,
        });
    }
    actions.push(Action::Slot { slot, content: pointer::encode(&pointer) });
    actions.push(Action::Put {
        path: "current-release.json".into(),
        content: pointer::readable(&pointer),
        mode: 0o644,
    });
    Ok((actions, pointer))
}
