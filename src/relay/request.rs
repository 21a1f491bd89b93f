//! From the arguments of a call to a run with nothing left to decide, or a refusal by its status.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::record::RunRecord;
use super::settings::{Settings, check_constraints};
use super::status::Status;
use crate::bridge::plan::canonical_folder;
use crate::config::{Config, MAX_TIMEOUT_MINUTES, RelayProfile};
use crate::context::Context;
use crate::policy::{self, AgentId, ExecutionMode, Isolation};

/// Most bytes of a task.
pub const MAX_TASK: usize = 64 << 10;
/// Most bytes of a feedback.
pub const MAX_FEEDBACK: usize = 32 << 10;
/// Most steps of a plan.
const MAX_PLAN: usize = 8;
/// Folders below the home folder in which CLIs keep their own state.
const AGENT_HOMES: &[&str] = &[".gemini", ".codex", ".claude", ".agy", ".antigravity"];

/// Which names a call came under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `antigravity_*`: the worker is Antigravity, and `agent` names one of its own agents.
    Antigravity,
    /// `relay_*`: `agent` names the backend.
    Neutral,
}

/// Options that every start takes; those of before and ours.
#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecuteArguments {
    /// The task.
    pub task: String,
    /// Profile.
    pub profile: Option<String>,
    /// Folder.
    pub workspace: Option<String>,
    /// `safe` or `trusted`.
    pub execution_mode: Option<ExecutionMode>,
    /// In the workspace or in a copy of it.
    pub isolation: Option<Isolation>,
    /// Steps.
    #[serde(default)]
    pub plan: Vec<String>,
    /// When it is done.
    #[serde(default)]
    pub acceptance_criteria: Vec<String>,
    /// What must be kept.
    #[serde(default)]
    pub constraints: Vec<String>,
    /// Model.
    pub model: Option<String>,
    /// `low`, `medium`, `high`.
    pub effort: Option<String>,
    /// See [`Door`].
    pub agent: Option<String>,
    /// Time limit.
    pub timeout_minutes: Option<u32>,
    /// As `safe`.
    pub sandbox: Option<bool>,
    /// As `trusted`.
    pub skip_permissions: Option<bool>,
    /// How long the call waits, in seconds.
    pub wait_seconds: Option<u64>,
}

/// Arguments of a correction.
#[derive(Clone, Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContinueArguments {
    /// The run to correct.
    pub run_id: Option<String>,
    /// What is wrong.
    pub feedback: String,
    /// The provider's conversation of a known run, instead of the run's id.
    pub conversation_id: Option<String>,
    /// The folder of that run.
    pub workspace: Option<String>,
    /// As the run's, or narrower.
    pub profile: Option<String>,
    /// As the run's, or narrower.
    pub execution_mode: Option<ExecutionMode>,
    /// Steps.
    #[serde(default)]
    pub plan: Vec<String>,
    /// When it is done.
    #[serde(default)]
    pub acceptance_criteria: Vec<String>,
    /// What must be kept.
    #[serde(default)]
    pub constraints: Vec<String>,
    /// Model.
    pub model: Option<String>,
    /// `low`, `medium`, `high`.
    pub effort: Option<String>,
    /// See [`Door`].
    pub agent: Option<String>,
    /// Time limit.
    pub timeout_minutes: Option<u32>,
    /// As `safe`.
    pub sandbox: Option<bool>,
    /// As `trusted`.
    pub skip_permissions: Option<bool>,
    /// How long the call waits, in seconds.
    pub wait_seconds: Option<u64>,
}

/// A refusal: its status and why.
pub type Refused = (Status, String);

fn conflict(why: impl Into<String>) -> Refused {
    (Status::ConflictingOptions, why.into())
}

/// The mode that the options of a call stand for.
pub fn asked_mode(
    mode: Option<ExecutionMode>,
    sandbox: Option<bool>,
    skip_permissions: Option<bool>,
) -> Result<Option<ExecutionMode>, Refused> {
    let (sandbox, skip) = (sandbox == Some(true), skip_permissions == Some(true));
    match (mode, sandbox, skip) {
        (_, true, true) => Err(conflict("`sandbox` and `skip_permissions` contradict each other")),
        (Some(ExecutionMode::Safe), _, true) => {
            Err(conflict("`execution_mode` safe and `skip_permissions` contradict each other"))
        }
        (Some(ExecutionMode::Trusted), true, _) => {
            Err(conflict("`execution_mode` trusted and `sandbox` contradict each other"))
        }
        (Some(mode), ..) => Ok(Some(mode)),
        (None, true, false) => Ok(Some(ExecutionMode::Safe)),
        (None, false, true) => Ok(Some(ExecutionMode::Trusted)),
        (None, false, false) => Ok(None),
    }
}

/// The mode of a run: a profile's is the most that a call may have.
fn mode_within(
    profile: Option<ExecutionMode>,
    asked: Option<ExecutionMode>,
) -> Result<Option<ExecutionMode>, Refused> {
    match (profile, asked) {
        (Some(ExecutionMode::Safe), Some(ExecutionMode::Trusted)) => {
            Err(conflict("the profile's execution mode is safe; a call cannot widen it to trusted"))
        }
        (_, Some(asked)) => Ok(Some(asked)),
        (profile, None) => Ok(profile),
    }
}

/// The world that a request is resolved in.
pub struct World<'a> {
    /// Environment and home.
    pub context: &'a Context,
    /// The config.
    pub config: &'a Config,
    /// The relay's settings.
    pub settings: &'a Settings,
}

impl World<'_> {
    /// Fills the record of a new run from the arguments.
    pub fn execute(
        &self,
        door: Door,
        arguments: &ExecuteArguments,
        record: &mut RunRecord,
    ) -> Result<(), Refused> {
        let (name, profile) =
            self.settings.profile(arguments.profile.as_deref()).map_err(|why| (Status::ConfigError, why))?;
        record.profile = name;
        let asked = asked_mode(arguments.execution_mode, arguments.sandbox, arguments.skip_permissions)?;
        record.execution_mode = mode_within(profile.execution_mode, asked)?;
        record.sandbox = Some(ExecutionMode::sandbox(record.execution_mode));
        self.agent(door, arguments.agent.as_deref(), &profile, record)?;
        record.timeout_sec = self.timeout(arguments.timeout_minutes, profile.timeout)?.as_secs();
        record.model = arguments.model.clone().or_else(|| profile.model.clone());
        record.effort = effort(arguments.effort.as_deref())?;
        record.constraints =
            self.constraints(&profile, &arguments.constraints).map_err(|why| (Status::ConfigError, why))?;
        record.checks_wanted.clone_from(&profile.checks);
        record.workspace = self.workspace(arguments.workspace.as_deref(), &profile)?;
        record.isolation = match (profile.isolation, arguments.isolation) {
            (Isolation::Worktree, Some(Isolation::None)) => {
                return Err(conflict("the profile's runs work in a copy; a call cannot change that"));
            }
            (own, asked) => asked.unwrap_or(own),
        };
        Ok(())
    }

    /// What a correction may ask for beside its feedback: the same as the run it corrects, or less.
    pub fn correct(
        &self,
        arguments: &ContinueArguments,
        root: &RunRecord,
        record: &mut RunRecord,
    ) -> Result<(), Refused> {
        let asked = asked_mode(arguments.execution_mode, arguments.sandbox, arguments.skip_permissions)?;
        record.execution_mode = match (root.execution_mode, asked) {
            (Some(ExecutionMode::Trusted), asked) => asked.or(root.execution_mode),
            (_, Some(ExecutionMode::Trusted)) => {
                return Err(conflict("a correction cannot have more authority than the run it corrects"));
            }
            (own, asked) => asked.or(own),
        };
        record.sandbox = Some(ExecutionMode::sandbox(record.execution_mode));
        if let Some(name) = &arguments.agent
            && root.worker_agent.as_deref().or(root.agent.map(AgentId::as_str)) != Some(name)
        {
            return Err(conflict("a correction keeps the agent of the run it corrects"));
        }
        check_constraints("constraints", &arguments.constraints).map_err(conflict)?;
        // The conversation knows those of before.
        record.constraints.clone_from(&arguments.constraints);
        if let Some(profile) = &arguments.profile
            && root.profile.as_ref() != Some(profile)
        {
            return Err(conflict("a correction keeps the profile of the run it corrects"));
        }
        if let Some(text) = &arguments.workspace {
            let same = canonical_folder(Path::new(text)).is_ok_and(|folder| folder == root.workspace);
            if !same {
                return Err((
                    Status::InvalidWorkspace,
                    format!(
                        "a correction works in the folder of the run it corrects, {}",
                        root.workspace.display()
                    ),
                ));
            }
        }
        record.workspace.clone_from(&root.workspace);
        // The run's folder may have been replaced, or its root taken away, since.
        self.acceptable(&record.workspace)?;
        record.timeout_sec =
            self.timeout(arguments.timeout_minutes, Some(Duration::from_secs(root.timeout_sec)))?.as_secs();
        record.effort = effort(arguments.effort.as_deref())?.or_else(|| root.effort.clone());
        record.model = arguments.model.clone().or_else(|| root.model.clone());
        Ok(())
    }

    fn agent(
        &self,
        door: Door,
        named: Option<&str>,
        profile: &RelayProfile,
        record: &mut RunRecord,
    ) -> Result<(), Refused> {
        if door == Door::Antigravity {
            if profile.agent.is_some_and(|agent| agent != AgentId::Antigravity) {
                return Err(conflict("the profile's agent is not antigravity; use relay_execute"));
            }
            record.agent = Some(AgentId::Antigravity);
            record.worker_agent = named.map(worker_agent).transpose()?;
            return Ok(());
        }
        let asked = match named {
            None => None,
            Some(name) => Some(AgentId::parse(name).ok_or_else(|| {
                let shown: String = name.chars().take(64).collect();
                (Status::ConfigError, format!("there is no agent {shown:?}; {}", self.enabled()))
            })?),
        };
        record.agent = match (profile.agent, asked) {
            (Some(own), Some(asked)) if own != asked => {
                return Err(conflict(format!(
                    "the profile's agent is {own}; a call cannot change it to {asked}"
                )));
            }
            (own, asked) => asked.or(own).or(self.config.relay.agent),
        };
        if record.agent.is_none() {
            return Err((Status::ConfigError, format!("name the agent; {}", self.enabled())));
        }
        Ok(())
    }

    fn enabled(&self) -> String {
        let enabled: Vec<&str> = self
            .config
            .agents
            .iter()
            .filter(|(_, settings)| settings.enabled)
            .map(|(id, _)| id.as_str())
            .collect();
        format!("enabled are: {}", enabled.join(", "))
    }

    fn timeout(&self, minutes: Option<u32>, most: Option<Duration>) -> Result<Duration, Refused> {
        if let Some(minutes) = minutes
            && !(1..=MAX_TIMEOUT_MINUTES).contains(&minutes)
        {
            return Err(conflict(format!(
                "`timeout_minutes` is {minutes}; it must be 1 to {MAX_TIMEOUT_MINUTES}"
            )));
        }
        let asked = minutes.map(|minutes| Duration::from_secs(60 * u64::from(minutes)));
        match (most, asked) {
            (Some(most), Some(asked)) if asked > most => Err(conflict(format!(
                "`timeout_minutes` is {}, more than the {} that the run may have",
                asked.as_secs() / 60,
                most.as_secs() / 60
            ))),
            (most, asked) => Ok(asked.or(most).unwrap_or(self.config.relay.timeout)),
        }
    }

    /// Fixed, then the profile's, then the call's, each once.
    fn constraints(&self, profile: &RelayProfile, call: &[String]) -> Result<Vec<String>, String> {
        check_constraints("constraints", call)?;
        let mut all: Vec<String> = Vec::new();
        for text in self.settings.fixed_constraints.iter().chain(&profile.constraints).chain(call) {
            let text = text.trim().to_owned();
            if !all.contains(&text) {
                all.push(text);
            }
        }
        Ok(all)
    }

    fn workspace(&self, asked: Option<&str>, profile: &RelayProfile) -> Result<PathBuf, Refused> {
        let invalid = |why: String| (Status::InvalidWorkspace, why);
        let own = match &profile.workspace {
            Some(path) => Some(self.folder(path)?),
            None => None,
        };
        let folder = match (own, asked) {
            (None, None) => {
                return Err(invalid("name a workspace, or a profile that has one".into()));
            }
            (Some(own), None) => own,
            (own, Some(text)) => {
                let asked = self.folder(Path::new(text))?;
                if let Some(own) = own
                    && !policy::contains(&own, &asked)
                {
                    return Err(conflict(format!(
                        "the profile works in {}; a call cannot leave it",
                        own.display()
                    )));
                }
                asked
            }
        };
        self.acceptable(&folder)?;
        Ok(folder)
    }

    /// A canonical folder.
    fn folder(&self, path: &Path) -> Result<PathBuf, Refused> {
        let shown = path.display();
        if !path.is_absolute() {
            return Err((Status::InvalidWorkspace, format!("{shown} is not an absolute path")));
        }
        canonical_folder(path).map_err(|error| (Status::InvalidWorkspace, error.message().to_owned()))
    }

    /// Whether a worker may have a canonical folder.
    pub(super) fn acceptable(&self, folder: &Path) -> Result<(), Refused> {
        let refuse = |why: String| Err((Status::InvalidWorkspace, format!("{}: {why}", folder.display())));
        if folder.parent().is_none() {
            return refuse("it is the root of a file system".into());
        }
        if let Some(home) = &self.context.home
            && let Ok(home) = crate::config::canonical(home)
        {
            if policy::contains(folder, &home) {
                return refuse("it is, or contains, the home folder".into());
            }
            let own =
                AGENT_HOMES.iter().map(|name| home.join(name)).find(|own| policy::contains(own, folder));
            if own.is_some() {
                return refuse("it belongs to an agent's own state".into());
            }
        }
        for own in [Some(&self.config.state_dir), self.settings.data_dir.as_ref()].into_iter().flatten() {
            if policy::contains(own, folder) || policy::contains(folder, own) {
                return refuse("it is, or contains, the folder of our own records".into());
            }
        }
        if policy::find_root(&self.settings.roots, folder).is_err() {
            return refuse("it lies outside the allowed roots".into());
        }
        Ok(())
    }
}

/// Bounds of what a caller wrote; they are no property of a run, so they are told before one exists.
pub fn check_texts(task: &str, plan: &[String], criteria: &[String], most: usize) -> Result<(), String> {
    if task.trim().is_empty() || task.len() > most {
        return Err(format!("the task or feedback has {} bytes; 1 to {most} fit", task.len()));
    }
    if plan.len() > MAX_PLAN {
        return Err(format!("`plan` has {} steps; at most {MAX_PLAN} fit", plan.len()));
    }
    check_constraints("plan", plan)?;
    check_constraints("acceptance_criteria", criteria)
}

fn effort(text: Option<&str>) -> Result<Option<String>, Refused> {
    match text {
        None => Ok(None),
        Some(word @ ("low" | "medium" | "high")) => Ok(Some(word.to_owned())),
        Some(other) => {
            let shown: String = other.chars().take(20).collect();
            Err(conflict(format!("`effort` is {shown:?}; it must be low, medium or high")))
        }
    }
}

/// A name that travels in argv.
fn worker_agent(name: &str) -> Result<String, Refused> {
    if policy::is_model_name(name) {
        return Ok(name.to_owned());
    }
    let shown: String = name.chars().take(64).collect();
    Err((Status::ConfigError, format!("{shown:?} cannot be the name of an agent")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_conflicts() {
        use ExecutionMode::{Safe, Trusted};
        for (mode, sandbox, skip) in [
            (Some(Safe), None, Some(true)),
            (Some(Trusted), Some(true), None),
            (None, Some(true), Some(true)),
        ] {
            assert_eq!(
                asked_mode(mode, sandbox, skip).map_err(|(status, _)| status),
                Err(Status::ConflictingOptions)
            );
        }
        for (mode, sandbox, skip, expected) in [
            (None, None, None, None),
            (None, Some(false), Some(false), None),
            (None, Some(true), None, Some(Safe)),
            (None, None, Some(true), Some(Trusted)),
            (Some(Safe), Some(true), None, Some(Safe)),
            (Some(Trusted), None, Some(true), Some(Trusted)),
        ] {
            assert_eq!(asked_mode(mode, sandbox, skip), Ok(expected));
        }
    }

    #[test]
    fn a_profile_is_the_most() {
        use ExecutionMode::{Safe, Trusted};
        assert!(mode_within(Some(Safe), Some(Trusted)).is_err());
        assert_eq!(mode_within(Some(Trusted), Some(Safe)), Ok(Some(Safe)));
        assert_eq!(mode_within(Some(Trusted), None), Ok(Some(Trusted)));
        assert_eq!(mode_within(None, Some(Trusted)), Ok(Some(Trusted)));
    }

    #[test]
    fn texts_have_bounds() {
        let one = ["x".to_owned()];
        assert!(check_texts("t", &one, &one, 10).is_ok());
        assert!(check_texts(" ", &[], &[], 10).is_err());
        assert!(check_texts("12345678901", &[], &[], 10).is_err());
        assert!(check_texts("t", &vec!["s".to_owned(); 9], &[], 10).is_err());
        assert!(check_texts("t", &[], &vec!["s".to_owned(); 17], 10).is_err());
    }
}
