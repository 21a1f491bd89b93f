//! A plan that is kept in a file and taken up again later.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::ClientsError;
use super::patch::Hunk;
use super::places;
use super::plan::{ClientPlan, Options, Plan, Step};
use crate::context::Context;
use crate::error::Error;
use crate::platform;
use crate::release::Layout;

/// A plan as it is kept in a file: what was found, by digests alone, and the places that would be
/// changed. Taking them back needs no copy: what was there is in the file itself until then, and in the
/// transaction's backup after.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PlanFile {
    schema: String,
    root: PathBuf,
    options: Options,
    files: Vec<PlannedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PlannedFile {
    client: String,
    file: Option<PathBuf>,
    target: Option<PathBuf>,
    links: Vec<PathBuf>,
    mode: Option<u32>,
    action: Step,
    before_sha256: Option<String>,
    after_sha256: Option<String>,
    own_sha256: Option<String>,
    patch: Vec<Hunk>,
}

const PLAN_SCHEMA: &str = "agent-bridge/client-plan/2";

fn planned(one: &ClientPlan) -> PlannedFile {
    PlannedFile {
        client: one.client.to_owned(),
        file: one.file.clone(),
        target: one.target.clone(),
        links: one.links.clone(),
        mode: one.target.as_deref().and_then(platform::mode_of),
        action: one.action,
        before_sha256: one.before_sha256.clone(),
        after_sha256: one.after_sha256.clone(),
        own_sha256: one.own_sha256.clone(),
        patch: one.patch.clone(),
    }
}

/// Writes a plan that [`saved_plan`] takes up again.
pub fn save_plan(path: &Path, plan: &Plan) -> Result<(), Error> {
    let document = PlanFile {
        schema: PLAN_SCHEMA.to_owned(),
        root: plan.root.clone(),
        options: plan.options.clone(),
        files: plan.clients.iter().map(planned).collect(),
    };
    let text = serde_json::to_string_pretty(&document)
        .map_err(|error| ClientsError::PlanInvalid { path: path.to_path_buf(), why: error.to_string() })?;
    platform::write_durable(path, format!("{text}\n").as_bytes(), 0o600)?;
    Ok(())
}

/// The plan of a file, if everything is still as it was then. With `rebase` other entries of a file may have
/// changed.
pub fn saved_plan(
    context: &Context,
    layout: &Layout,
    path: &Path,
    rebase: bool,
    machine: &places::Machine,
) -> Result<Plan, Error> {
    let invalid = |why: String| ClientsError::PlanInvalid { path: path.to_path_buf(), why };
    let bytes = std::fs::read(path).map_err(|error| invalid(error.to_string()))?;
    let saved: PlanFile = serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
    if saved.schema != PLAN_SCHEMA {
        return Err(invalid(format!("its schema is {:?}", saved.schema)).into());
    }
    if saved.root != layout.root() {
        return Err(invalid(format!("it is for {}", saved.root.display())).into());
    }
    let options = Options { machine: machine.clone(), ..saved.options };
    let now = super::plan::plan(context, layout, &options)?;
    if now.clients.len() != saved.files.len() {
        return Err(ClientsError::Stale { why: "clients came or went".into(), rebase: false }.into());
    }
    for (then, one) in saved.files.iter().zip(&now.clients) {
        let current = planned(one);
        // As it was, or as the plan wanted it: then it was applied before.
        let same_file =
            current.file == then.file && current.target == then.target && current.links == then.links;
        let is_done = same_file && current.action == Step::None && current.before_sha256 == then.after_sha256;
        if current == *then || is_done {
            continue;
        }
        let name = one
            .target
            .as_ref()
            .or(one.file.as_ref())
            .map_or_else(String::new, |path| path.display().to_string());
        let short = |digest: &Option<String>| {
            digest.as_ref().map_or("no file".to_owned(), |digest| digest.chars().take(12).collect())
        };
        let foreign = same_file
            && current.own_sha256 == then.own_sha256
            && current.action == then.action
            && then.before_sha256.is_some() == current.before_sha256.is_some();
        if foreign && rebase && current.before_sha256 != then.before_sha256 {
            continue;
        }
        let what = match () {
            () if !same_file => "another file is meant now",
            () if current.mode != then.mode => "its permissions changed",
            () if foreign => "only other entries of it changed",
            () => "our own entry changed",
        };
        let why = format!(
            "{name} was {} and is {} now; {what}",
            short(&then.before_sha256),
            short(&current.before_sha256)
        );
        return Err(ClientsError::Stale { why, rebase: foreign && current.mode == then.mode }.into());
    }
    Ok(now)
}
