//! `canary pointer`: the launcher, started as clients start it, and the release it leads to.

use super::record::{CheckStatus, Record};
use super::stage::Stage;
use super::trial::{Stop, Trial};
use super::{Check, Setting};
use crate::digest;
use crate::error::Exit;
use crate::release::generations::{self, Verdict};
use crate::release::pointer::{self, Pointer};
use crate::release::probe::Match;
use crate::release::transaction::Interruption;
use crate::release::verify;

/// All checks.
pub fn check(trial: &mut Trial<'_>) -> Result<(), Stop> {
    const CHECK: &str = "pointer";
    let layout = trial.layout().clone();
    let pointer = pointer::current(&layout).map_err(Stop::at(CHECK))?;
    trial.record.release_id = Some(pointer.release_id.clone());
    trial.record.generation = Some(pointer.generation);
    trial.pass(CHECK, format!("generation {} is {}", pointer.generation, pointer.release_id));
    launcher(trial, &pointer)?;
    config(trial, &pointer);
    let verified = trial.verify(&pointer.release_id)?;
    identity(&pointer, &verified)?;
    trial.pass("identity", "program, metadata and manifest are those that the pointer pins");

    let env = Stage::user_environment(trial.setting.context);
    trial.with_server(layout.launcher(), vec!["serve".into()], env, |trial, client| {
        let metadata = &verified.metadata;
        trial.handshake(client, &metadata.version, &metadata.tool_catalogue, Match::Subset).map(drop)
    })?;

    if pointer::current(&layout).ok().as_ref() != Some(&pointer) {
        return Err(Stop::found(CHECK, "the pointer was changed meanwhile"));
    }
    verify::release(&layout, &pointer.release_id).map_err(Stop::at("files"))?;
    trial.pass("files", "the release is still as pinned");
    Ok(())
}

fn launcher(trial: &mut Trial<'_>, pointer: &Pointer) -> Result<(), Stop> {
    const CHECK: &str = "launcher";
    let path = trial.layout().launcher();
    let is_file = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
    if !is_file {
        return Err(Stop::found(CHECK, format!("{} is not a file", path.display())));
    }
    let (sha256, bytes) = digest::of_file(&path)
        .map_err(|error| Stop::found(CHECK, format!("{} cannot be read: {error}", path.display())))?;
    if sha256 != pointer.launcher.sha256 || bytes != pointer.launcher.bytes {
        return Err(Stop::found(CHECK, "it is not the one that was in place at the switch"));
    }
    trial.pass(CHECK, "it is the one that was in place at the switch");
    Ok(())
}

/// The operator may change the config at any time; worth knowing, no fault.
fn config(trial: &mut Trial<'_>, pointer: &Pointer) {
    let now = digest::of_file(&trial.layout().config()).ok().map(|(sha256, _)| sha256);
    trial.record.config_sha256.clone_from(&now);
    if now == pointer.config_sha256 {
        trial.pass("config", "as it was at the switch");
    } else {
        trial.warn("config", "it was changed since the switch");
    }
}

fn identity(pointer: &Pointer, verified: &verify::Verified) -> Result<(), Stop> {
    const CHECK: &str = "identity";
    let metadata = &verified.metadata;
    let runtime = metadata.runtime_record().map_err(Stop::at(CHECK))?;
    let path = format!("releases/{}/{}", verified.id, metadata.runtime);
    let facts = [
        ("program path", pointer.runtime_path == path),
        ("program", pointer.runtime_sha256 == runtime.sha256 && pointer.runtime_bytes == runtime.bytes),
        ("metadata", pointer.metadata_sha256 == verified.metadata_sha256),
        ("manifest", pointer.manifest_sha256 == metadata.manifest_sha256),
    ];
    match facts.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((what, _)) => Err(Stop::found(CHECK, format!("the pointer pins another {what}"))),
    }
}

/// Writes the finding down with the generation. A start that was only put off (somebody is switching) says
/// nothing about it.
pub fn mark(setting: &Setting<'_>, record: &mut Record) {
    let Some(number) = record.generation else { return };
    let put_off = record.failure.as_ref().is_some_and(|failure| {
        let came_back = format!("ended with code {} ", Exit::RetryLater as u8);
        matches!(failure.code.as_str(), "CANARY_DISTURBED" | "PROBE_PUT_OFF")
            || (failure.code == "PROBE_ENDED" && failure.message.contains(&came_back))
    });
    if put_off {
        return;
    }
    let (verdict, because) = match &record.failure {
        None => (Verdict::Good, format!("canary pointer {} passed", record.run_id)),
        Some(failure) => (
            Verdict::Bad,
            format!("canary pointer {} failed: {} ({})", record.run_id, failure.check, failure.code),
        ),
    };
    let interruption = Interruption::watch();
    let marked =
        generations::mark(setting.layout, setting.context.clock, &interruption, number, verdict, &because);
    let (status, detail) = match marked {
        Ok(()) => (CheckStatus::Pass, format!("generation {number} is marked {}", verdict.as_str())),
        Err(error) => (
            CheckStatus::Warn,
            format!("generation {number} could not be marked {}: {error}", verdict.as_str()),
        ),
    };
    record.checks.push(Check { name: "mark".into(), status, detail });
}
