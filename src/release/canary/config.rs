//! `canary config`: a release with a config that is not in place yet.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::CanaryError;
use super::installed::serve;
use super::stage::Stage;
use super::trial::{Stop, Trial};
use crate::digest;
use crate::error::Error;
use crate::process::{self, Program};
use crate::release::ReleaseId;
use crate::release::probe::Match;

/// Most of its report that is read.
const MAX_REPORT: usize = 1 << 20;

/// All checks.
pub fn check(trial: &mut Trial<'_>, file: &Path, id: Option<&ReleaseId>) -> Result<(), Stop> {
    let id = id.ok_or_else(|| Stop::found("files", "no release was named"))?;
    let (sha256, _) = digest::of_file(file)
        .map_err(|error| Stop::found("config", format!("{} cannot be read: {error}", file.display())))?;
    trial.record.config_sha256 = Some(sha256);
    let verified = trial.verify(id)?;
    accepted(trial, &trial.runtime(&verified), file)?;
    let env = Stage::user_environment(trial.setting.context);
    trial.with_server(trial.runtime(&verified), serve(file), env, |trial, client| {
        let metadata = &verified.metadata;
        trial.handshake(client, &metadata.version, &metadata.tool_catalogue, Match::Subset).map(drop)
    })
}

/// The release's own check of the config.
fn accepted(trial: &mut Trial<'_>, program: &Path, file: &Path) -> Result<(), Stop> {
    const CHECK: &str = "config";
    let env: BTreeMap<_, _> = Stage::user_environment(trial.setting.context).into_iter().collect();
    let args = ["--config".into(), file.into(), "config".into(), "check".into(), "--json".into()];
    let program = Program {
        program: program.to_path_buf(),
        args: args.to_vec(),
        cwd: trial.stage.work(),
        env,
        stdin: Vec::new(),
    };
    let done = process::capture(&program, trial.setting.deadline, MAX_REPORT).map_err(Stop::at(CHECK))?;
    let report: Value = serde_json::from_str(&done.stdout).unwrap_or_default();
    if done.report.exit_code == Some(0) && report["ok"] == Value::Bool(true) {
        let warnings = report["warnings"].as_array().map_or(0, Vec::len);
        trial.pass(CHECK, format!("the release accepts it, with {warnings} warnings"));
        return Ok(());
    }
    let problems: Vec<String> = report["problems"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|problem| {
            let text = |name: &str| problem[name].as_str().filter(|text| !text.is_empty());
            let key = text("key").map(|key| format!("{key}: ")).unwrap_or_default();
            let code = text("code").map(|code| format!(" ({code})")).unwrap_or_default();
            format!("{key}{}{code}", text("message").unwrap_or("it gave no reason"))
        })
        .collect();
    let why = match (problems.is_empty(), done.report.stopped) {
        (false, _) => problems.join("; "),
        (true, Some(_)) => "its check did not end in time, or printed too much".to_owned(),
        (true, None) => {
            let end = match (done.report.exit_code, done.report.signal) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "an unknown end".to_owned(),
            };
            match done.report.stderr_tail.trim() {
                "" => format!("its check ended with {end} and without a word"),
                words => format!("its check ended with {end}: {words}"),
            }
        }
    };
    let refused = CanaryError::Found(format!("the release does not accept it: {why}"));
    let hint = "Mend the config, and run the same command again; the release itself is not what failed.";
    Err(Stop::Other(CHECK, Error::from(refused).with_hint(hint)))
}
