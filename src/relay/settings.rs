//! What the relay is told beside the call: the config's `relay` section, and the variables that the Gravity Relay
//! knew. What contradicts itself makes every run a `CONFIG_ERROR`; the server starts all the same.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::config::{
    self, Config, MAX_CONSTRAINT_BYTES, MAX_CONSTRAINTS, MAX_TIMEOUT_MINUTES, RelayProfile, is_profile_name,
};
use crate::context::Context;
use crate::policy::{self, AgentId, ExecutionMode, Isolation};

/// Profiles as JSON: name to profile.
pub const PROFILES: &str = "GRAVITY_RELAY_PROFILES";
/// The same JSON in a file.
pub const PROFILE_FILE: &str = "GRAVITY_RELAY_PROFILE_FILE";
/// Name of the profile of a call that names none.
pub const DEFAULT_PROFILE: &str = "GRAVITY_RELAY_DEFAULT_PROFILE";
/// A JSON array, or one constraint a line.
pub const FIXED_CONSTRAINTS: &str = "GRAVITY_RELAY_FIXED_CONSTRAINTS";
/// A JSON array, or folders separated by `;` or `,`.
pub const ALLOWED_ROOTS: &str = "GRAVITY_RELAY_ALLOWED_ROOTS";
/// Folder that gets a copy of each record, `runs/<run id>.json`.
pub const DATA_DIR: &str = "GRAVITY_RELAY_DATA_DIR";

/// Largest profile file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The relay's settings, with nothing left to look up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Profiles by name.
    pub profiles: BTreeMap<String, RelayProfile>,
    /// Profile when the call names none.
    pub default_profile: Option<String>,
    /// Told to every run.
    pub fixed_constraints: Vec<String>,
    /// Canonical folders that runs may work in, inside the config's roots; none of them means no workspace fits.
    pub roots: Vec<PathBuf>,
    /// Folder for copies of the records.
    pub data_dir: Option<PathBuf>,
}

/// A profile in JSON, with the names of the Gravity Relay.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonProfile {
    workspace: Option<String>,
    agent: Option<AgentId>,
    execution_mode: Option<ExecutionMode>,
    timeout_minutes: Option<u32>,
    #[serde(default)]
    constraints: Vec<String>,
    model: Option<String>,
    #[serde(default)]
    isolation: Isolation,
    #[serde(default)]
    checks: Vec<String>,
}

impl Settings {
    /// From the config and the environment; otherwise what is wrong, in one line that names the setting.
    pub fn load(context: &Context, config: &Config) -> Result<Self, String> {
        let relay = &config.relay;
        let profiles = match profiles(context, config)? {
            None => relay.profiles.clone(),
            Some(_) if !relay.profiles.is_empty() => {
                return Err(format!(
                    "there are profiles both in `relay.profiles` and in {PROFILES} or {PROFILE_FILE}; keep one"
                ));
            }
            Some(profiles) => profiles,
        };
        let default_profile = match (&relay.default_profile, context.text_var(DEFAULT_PROFILE)) {
            (Some(own), Some(other)) if own != other => {
                return Err(format!(
                    "`relay.defaultProfile` and {DEFAULT_PROFILE} name different profiles; keep one"
                ));
            }
            (_, Some(name)) => Some(name.to_owned()),
            (own, None) => own.clone(),
        };
        if let Some(name) = &default_profile
            && !profiles.contains_key(name)
        {
            return Err(format!("the default profile {name:?} is not among the profiles"));
        }
        let mut fixed_constraints = relay.fixed_constraints.clone();
        fixed_constraints.extend(fixed(context)?);
        check_constraints(FIXED_CONSTRAINTS, &fixed_constraints)?;
        Ok(Self {
            profiles,
            default_profile,
            fixed_constraints,
            roots: roots(context, config)?,
            data_dir: data_dir(context, config)?,
        })
    }

    /// The profile of a call, with its name.
    pub fn profile(&self, named: Option<&str>) -> Result<(Option<String>, RelayProfile), String> {
        let Some(name) = named.or(self.default_profile.as_deref()) else {
            return Ok((None, RelayProfile::default()));
        };
        match self.profiles.get(name) {
            Some(profile) => Ok((Some(name.to_owned()), profile.clone())),
            None => {
                let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
                let shown: String = name.chars().take(64).collect();
                let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
                Err(format!("there is no profile {shown:?}; known are: {known}"))
            }
        }
    }
}

fn profiles(context: &Context, config: &Config) -> Result<Option<BTreeMap<String, RelayProfile>>, String> {
    let (source, text) = match (context.text_var(PROFILES), context.text_var(PROFILE_FILE)) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(format!("{PROFILES} and {PROFILE_FILE} are both set; keep one")),
        (Some(text), None) => (PROFILES, text.to_owned()),
        (None, Some(file)) => (PROFILE_FILE, read(context, file)?),
    };
    let read: BTreeMap<String, JsonProfile> = serde_json::from_str(&text)
        .map_err(|error| format!("{source} is no valid set of profiles: {error}"))?;
    let mut profiles = BTreeMap::new();
    for (name, profile) in read {
        let made = made(config, profile).map_err(|why| format!("{source}: profile {name:?}: {why}"))?;
        if !is_profile_name(&name) {
            return Err(format!(
                "{source}: {name:?} is no name of a profile (letters, digits, \"_\", \"-\", \".\")"
            ));
        }
        profiles.insert(name, made);
    }
    Ok(Some(profiles))
}

fn made(config: &Config, profile: JsonProfile) -> Result<RelayProfile, String> {
    check_constraints("constraints", &profile.constraints)?;
    if let Some(minutes) = profile.timeout_minutes
        && !(1..=MAX_TIMEOUT_MINUTES).contains(&minutes)
    {
        return Err(format!("timeout_minutes is {minutes}; it must be 1 to {MAX_TIMEOUT_MINUTES}"));
    }
    if let Some(model) = &profile.model
        && !policy::is_model_name(model)
    {
        return Err("model is not the name of a model".into());
    }
    if let Some(unknown) = profile.checks.iter().find(|check| !config.scope.checks.contains_key(*check)) {
        return Err(format!("the check {unknown:?} is not in `scope.checks` of the config file"));
    }
    Ok(RelayProfile {
        workspace: profile.workspace.map(PathBuf::from),
        agent: profile.agent,
        execution_mode: profile.execution_mode,
        timeout: profile.timeout_minutes.map(|minutes| Duration::from_secs(60 * u64::from(minutes))),
        constraints: profile.constraints,
        model: profile.model,
        isolation: profile.isolation,
        checks: profile.checks,
    })
}

fn read(context: &Context, file: &str) -> Result<String, String> {
    let path = context
        .expand(file, &context.cwd)
        .ok_or_else(|| format!("{PROFILE_FILE}: there is no home folder to expand `~` with"))?;
    let failed = |error: std::io::Error| format!("{PROFILE_FILE}: {}: {error}", path.display());
    let mut text = String::new();
    let opened = std::fs::File::open(&path).map_err(failed)?;
    opened.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("{PROFILE_FILE}: {} has more than {MAX_FILE} bytes", path.display()));
    }
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

/// A JSON array, or one a line.
fn fixed(context: &Context) -> Result<Vec<String>, String> {
    let Some(text) = context.text_var(FIXED_CONSTRAINTS) else { return Ok(Vec::new()) };
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text)
            .map_err(|error| format!("{FIXED_CONSTRAINTS} is no JSON array of strings: {error}"));
    }
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Whether a list of constraints keeps its bounds.
pub fn check_constraints(name: &str, constraints: &[String]) -> Result<(), String> {
    if constraints.len() > MAX_CONSTRAINTS {
        return Err(format!("{name} has {} entries; at most {MAX_CONSTRAINTS} fit", constraints.len()));
    }
    match constraints.iter().find(|text| text.trim().is_empty() || text.len() > MAX_CONSTRAINT_BYTES) {
        Some(text) => {
            Err(format!("an entry of {name} has {} bytes; 1 to {MAX_CONSTRAINT_BYTES} fit", text.len()))
        }
        None => Ok(()),
    }
}

/// The relay's roots: those of the config's section and those of the variable, each inside the allowed roots.
fn roots(context: &Context, config: &Config) -> Result<Vec<PathBuf>, String> {
    let base = if config.relay.allowed_roots.is_empty() {
        config.allowed_roots.clone()
    } else {
        config.relay.allowed_roots.clone()
    };
    let Some(text) = context.text_var(ALLOWED_ROOTS) else { return Ok(base) };
    let mut roots = Vec::new();
    for written in split_roots(text)? {
        let path = context
            .expand(&written, &context.cwd)
            .ok_or_else(|| format!("{ALLOWED_ROOTS}: there is no home folder to expand `~` with"))?;
        if !path.is_absolute() {
            return Err(format!("{ALLOWED_ROOTS}: {written:?} is not an absolute path"));
        }
        let root =
            config::canonical(&path).map_err(|error| format!("{ALLOWED_ROOTS}: {written}: {error}"))?;
        if let Ok(within) = narrower(&base, &root) {
            roots.push(within);
        } else {
            return Err(format!("{ALLOWED_ROOTS}: {written} lies outside the roots of the config"));
        }
    }
    Ok(roots)
}

/// The folder itself if a root contains it.
fn narrower(base: &[PathBuf], root: &Path) -> Result<PathBuf, policy::RootError> {
    policy::find_root(base, root).map(|_| root.to_path_buf())
}

/// Folders as a JSON array, or separated by `;` or `,`.
fn split_roots(text: &str) -> Result<Vec<String>, String> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text)
            .map_err(|error| format!("{ALLOWED_ROOTS} is no JSON array of strings: {error}"));
    }
    Ok(text.split([';', ',']).map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
}

fn data_dir(context: &Context, config: &Config) -> Result<Option<PathBuf>, String> {
    let Some(text) = context.text_var(DATA_DIR) else { return Ok(None) };
    let path = context
        .expand(text, &context.cwd)
        .ok_or_else(|| format!("{DATA_DIR}: there is no home folder to expand `~` with"))?;
    let real = config::would_be_canonical(&path).map_err(|why| format!("{DATA_DIR}: {why}"))?;
    if policy::find_root(&config.allowed_roots, &real).is_ok() {
        return Err(format!(
            "{DATA_DIR} lies inside an allowed root, where workers could change the records"
        ));
    }
    Ok(Some(real))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn roots_are_a_list_or_json() {
        assert_eq!(split_roots("/a;/b,/c; ").unwrap(), ["/a", "/b", "/c"]);
        assert_eq!(split_roots(r#"["/a,b", "/c;d"]"#).unwrap(), ["/a,b", "/c;d"]);
        split_roots("[1]").unwrap_err();
    }

    #[test]
    fn constraints_have_bounds() {
        check_constraints("c", &["x".into()]).unwrap();
        check_constraints("c", &[" ".into()]).unwrap_err();
        check_constraints("c", &vec!["x".into(); MAX_CONSTRAINTS + 1]).unwrap_err();
        check_constraints("c", &["x".repeat(MAX_CONSTRAINT_BYTES + 1)]).unwrap_err();
    }
}
