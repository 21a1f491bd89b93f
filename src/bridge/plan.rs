//! From a request to a [`TurnPlan`]: who runs, where, with what authority, joined to what.
//!
//! Planning reads the config and the store and writes nothing, so a preview and a run can use the
//! very same plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::cli_version::CliVersions;
use super::continuity::{Joined, join};
use super::errors::BridgeError;
use super::preflight::LoginCheck;
use super::run_scope::{self, RunScope};
use super::usage::KnownTotals;
use crate::agents::{self, Agent, Launch, LaunchRequest, Outcome, ServerRule};
use crate::config::{AgentConfig, Config, OnDisconnect, ScopeCheck};
use crate::context::Context;
use crate::digest;
use crate::error::Result;
use crate::policy::{self, AgentId, Asked, ExecutionMode, Sandbox, SandboxDecision};
use crate::process::{DEPTH_VAR, current_depth};
use crate::store::{NewTurn, SessionRow, Store, TurnFilter, TurnRow, TurnState, run_dir};

/// Longest prompt, in characters.
pub const MAX_PROMPT_CHARS: usize = 1_000_000;
/// A missing login is remembered this long, so that a retry storm starts no process.
const LOGIN_MEMORY_MS: i64 = 10_000;

/// What a caller asks for.
#[derive(Clone, Debug, Default)]
pub struct TurnRequest {
    /// Backend by name; the session's last agent if left out.
    pub agent: Option<String>,
    /// The task.
    pub prompt: String,
    /// Working folder of a new session.
    pub cwd: Option<String>,
    /// Model to name to the backend.
    pub model: Option<String>,
    /// Authority, explicitly.
    pub sandbox: Option<Sandbox>,
    /// How far the worker is trusted with it. `Safe` lowers it to writing in the workspace, `Trusted` needs full access.
    pub execution_mode: Option<ExecutionMode>,
    /// Hard deadline.
    pub timeout: Option<Duration>,
    /// Session to go on with; a new one if left out.
    pub session_id: Option<String>,
    /// Fails unless the session has at least one turn.
    pub must_exist: bool,
    /// Fails unless the session is at this revision.
    pub expected_revision: Option<u64>,
    /// Same key, same turn.
    pub idempotency_key: Option<String>,
    /// Overrides `defaults.onDisconnect`.
    pub on_disconnect: Option<OnDisconnect>,
    /// Tools of the run's endpoint, out of those that the config offers; all of them if left out.
    pub scope_tools: Option<Vec<String>>,
    /// Whether what the run changes is looked at, before and after it, and kept with the turn.
    pub observe: bool,
    /// A JSON Schema that the final answer is to follow, where the agent can be held to one. What comes back is
    /// in the turn's facts as `structuredOutput`.
    pub report_schema: Option<Value>,
    /// How hard to think: `low`, `medium`, `high`; for agents that know such a thing.
    pub effort: Option<String>,
    /// One of the agent's own agents, for those that have some.
    pub own_agent: Option<String>,
    /// Who asks, for the record.
    pub requested_by: String,
    /// Names of checks that the bridge runs afterwards.
    pub checks: Vec<String>,
    /// A copy of a workspace that the relay has checked and made for this very run. `cwd` lies in it, and so outside of
    /// the roots; what the turn changed is the copy's whole difference from its beginning.
    pub isolated: Option<PathBuf>,
}

/// A turn with nothing left to decide.
#[derive(Clone, Debug)]
pub struct TurnPlan {
    /// The row to be written.
    pub turn: NewTurn,
    /// The prompt as sent, context block included.
    pub outbound: String,
    /// Arguments after the program, variables, and what the run folder is to hold.
    pub launch: Launch,
    /// The answer is to follow a schema.
    pub report: bool,
    /// How to ask before the start whether the login works.
    pub login: Option<LoginCheck>,
    /// Program as configured; resolved when it is started.
    pub program: PathBuf,
    /// Totals of the provider session that is resumed.
    pub totals: KnownTotals,
    /// What happens to the turn when its host goes away.
    pub on_disconnect: OnDisconnect,
    /// The tools that the worker gets over an endpoint of its own.
    pub scope: Option<RunScope>,
    /// Which MCP servers the worker may have.
    pub servers: ServerRule,
    /// Checks that are run after the worker.
    pub checks: BTreeMap<String, ScopeCheck>,
    /// Whether what the run changes is looked at.
    pub observe: bool,
    /// The copy that the turn works in, if it does.
    pub isolated: Option<PathBuf>,
    /// The caller pinned the revision, so a changed session must not be planned again.
    pub pinned: bool,
}

/// Resolves a request against the config and the store.
pub fn plan(
    context: &Context,
    config: &Config,
    store: Option<&Store>,
    versions: &CliVersions,
    request: &TurnRequest,
) -> Result<TurnPlan> {
    let depth = current_depth(context);
    if depth >= config.max_delegation_depth {
        return Err(BridgeError::TooDeep { depth, limit: config.max_delegation_depth }.into());
    }
    let characters = request.prompt.chars().count();
    if request.prompt.trim().is_empty() || characters > MAX_PROMPT_CHARS {
        return Err(BridgeError::Prompt(characters).into());
    }
    if request.expected_revision.is_some() && request.session_id.is_none() {
        return Err(BridgeError::RevisionWithoutSession.into());
    }
    let session = match (&request.session_id, store) {
        (None, _) => None,
        (Some(id), Some(store)) => Some(store.session(id)?),
        (Some(id), None) => return Err(crate::store::StoreError::SessionNotFound(id.clone()).into()),
    };
    let last = match (&session, store) {
        (Some(session), Some(store)) => {
            store.turns(&session.id, session.turns.saturating_sub(1), 1)?.rows.pop()
        }
        _ => None,
    };
    if request.must_exist && last.is_none() {
        return Err(BridgeError::NoTurns(request.session_id.clone().unwrap_or_default()).into());
    }
    if let (Some(expected), Some(session)) = (request.expected_revision, &session)
        && expected != session.revision
    {
        return Err(crate::store::StoreError::RevisionMismatch {
            session: session.id.clone(),
            expected,
            found: session.revision,
        }
        .into());
    }

    let (agent, settings) = select_agent(config, request.agent.as_deref(), last.as_ref())?;
    if let Some(store) = store {
        refuse_known_logout(context, store, agent)?;
    }
    let cwd = working_folder(context, config, request, session.as_ref())?;
    let sandbox = authority(config, settings, agent.id(), request.sandbox)?;
    let sandbox = trusted(agent.id(), sandbox, request.execution_mode)?;
    let scope = run_scope::resolve(config, agent, settings, request.scope_tools.as_deref(), depth + 1)?;
    let servers = match &scope {
        Some(_) => ServerRule::Only,
        None if settings.use_user_config => ServerRule::Any,
        None => ServerRule::None,
    };
    let model = request.model.as_deref().or(settings.default_model.as_deref());
    if let Some(model) = model {
        agents::check_model(model)?;
    }

    let joined = match (&session, store) {
        (Some(session), Some(store)) if session.turns > 0 => {
            let resumable = scope.is_none() || agent.resumes_beside_endpoint();
            join(config, store, session, agent, &cwd, sandbox, model, &request.prompt, resumable)?
        }
        _ => Joined::fresh(&request.prompt),
    };
    let outbound = agent.input(joined.outbound);
    let id = uuid::Uuid::new_v4().to_string();
    let cli_version = versions.of(context, config, agent, settings);
    let timeout = request.timeout.unwrap_or(config.defaults.timeout);
    let mut launch = agent.launch(&LaunchRequest {
        cwd: &cwd,
        prompt: &outbound,
        sandbox,
        execution_mode: request.execution_mode,
        timeout,
        model,
        effort: request.effort.as_deref(),
        own_agent: request.own_agent.as_deref(),
        resume: joined.resume.as_deref(),
        settings,
        strict: false,
        run_dir: &run_dir(&config.state_dir, &id)?,
        cli_version: cli_version.as_deref(),
        report_schema: request.report_schema.as_ref(),
    })?;
    launch.pass_env.extend(settings.pass_env.iter().cloned());
    launch.env.extend(settings.extra_env.clone());
    launch.env.insert(DEPTH_VAR.into(), (depth + 1).to_string());
    if let Some(version) = &cli_version {
        launch.facts.insert("cliVersion".into(), version.as_str().into());
    }
    let login = LoginCheck::of(context, agent, settings, cli_version.as_deref());

    let turn = NewTurn {
        id,
        session_id: session.as_ref().map_or_else(|| uuid::Uuid::new_v4().to_string(), |s| s.id.clone()),
        new_session: session.is_none(),
        title: title_of(&request.prompt),
        cwd,
        expected_revision: session.as_ref().map_or(0, |s| s.revision),
        agent: agent.id(),
        model: model.map(str::to_owned),
        sandbox,
        continuity: joined.continuity,
        cross_agent_context: joined.cross_agent,
        resume: joined.resume,
        prompt: request.prompt.clone(),
        outbound_sha256: digest::of_bytes(outbound.as_bytes()),
        idempotency_key: request.idempotency_key.clone(),
        request_sha256: request_digest(request),
        requested_by: request.requested_by.clone(),
        started_at: context.clock.now_ms(),
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    };
    Ok(TurnPlan {
        turn,
        outbound,
        launch,
        report: request.report_schema.is_some(),
        login,
        program: agent.program(settings, &context.exe),
        totals: joined.totals,
        on_disconnect: request.on_disconnect.unwrap_or(config.defaults.on_disconnect),
        scope,
        servers,
        checks: wanted_checks(config, &request.checks)?,
        observe: request.observe,
        isolated: request.isolated.clone(),
        pinned: request.expected_revision.is_some(),
    })
}

/// Checks by their names in the config.
fn wanted_checks(config: &Config, names: &[String]) -> Result<BTreeMap<String, ScopeCheck>> {
    let found = |name: &String| match config.scope.checks.get(name) {
        Some(check) => Ok((name.clone(), check.clone())),
        None => Err(BridgeError::CheckUnknown(name.chars().take(64).collect()).into()),
    };
    names.iter().map(found).collect()
}

/// The named agent, or the one that had the last turn.
fn select_agent<'c>(
    config: &'c Config,
    named: Option<&str>,
    last: Option<&TurnRow>,
) -> Result<(&'static dyn Agent, &'c AgentConfig)> {
    let name = named.or_else(|| last.map(|turn| turn.agent.as_str())).unwrap_or_default();
    // No agent has a longer one, and likeness takes time by length.
    let name: String = name.chars().take(64).collect();
    let unknown = || {
        let near = AgentId::ALL
            .into_iter()
            .map(AgentId::as_str)
            .max_by(|a, b| strsim::jaro_winkler(a, &name).total_cmp(&strsim::jaro_winkler(b, &name)))
            .filter(|near| strsim::jaro_winkler(near, &name) > 0.75);
        BridgeError::AgentUnknown(name.clone(), near.map(str::to_owned))
    };
    let id = AgentId::parse(&name).ok_or_else(unknown)?;
    let settings = config.agents.get(&id).ok_or_else(unknown)?;
    if !settings.enabled {
        return Err(BridgeError::AgentDisabled(id, config.path.display().to_string()).into());
    }
    Ok((agents::require(id)?, settings))
}

fn refuse_known_logout(context: &Context, store: &Store, agent: &dyn Agent) -> Result<()> {
    let newest = store.list_turns(
        &TurnFilter { agent: Some(agent.id()), state: Some(TurnState::Finished), session: None },
        1,
        None,
    )?;
    let Some(turn) = newest.rows.first() else { return Ok(()) };
    let Some(end) = turn.end.as_ref().filter(|end| end.outcome == Outcome::LoginRequired) else {
        return Ok(());
    };
    let ended = turn.started_at.saturating_add(i64::try_from(end.duration_ms).unwrap_or(i64::MAX));
    let age = context.clock.now_ms().saturating_sub(ended);
    if (0..LOGIN_MEMORY_MS).contains(&age) {
        let command = agent.login_command();
        return Err(BridgeError::LoginRequired { agent: agent.id(), command, seconds_ago: age / 1000 }.into());
    }
    Ok(())
}

/// The canonical folder of the turn, inside the roots.
fn working_folder(
    context: &Context,
    config: &Config,
    request: &TurnRequest,
    session: Option<&SessionRow>,
) -> Result<PathBuf> {
    let asked = match &request.cwd {
        Some(text) => {
            let path = context.expand(text, &context.cwd).ok_or_else(|| BridgeError::CwdInvalid {
                path: text.clone(),
                reason: "there is no home folder to expand `~` with".into(),
            })?;
            Some(canonical_folder(&path)?)
        }
        None => None,
    };
    let folder = match (session, asked) {
        (Some(session), Some(asked)) if asked != session.cwd => {
            return Err(BridgeError::CwdFixed {
                session: session.cwd.display().to_string(),
                asked: asked.display().to_string(),
            }
            .into());
        }
        (Some(session), _) => recheck_folder(&session.cwd)?,
        (None, Some(asked)) => asked,
        (None, None) => match &config.defaults.cwd {
            Some(default) => recheck_folder(default)?,
            None => return Err(BridgeError::CwdRequired.into()),
        },
    };
    if !request.isolated.as_ref().is_some_and(|copy| policy::contains(copy, &folder)) {
        policy::find_root(&config.allowed_roots, &folder)
            .map_err(|_| BridgeError::CwdOutside(folder.display().to_string()))?;
    }
    Ok(folder)
}

/// A path with links resolved; it must be a folder with a Unicode name.
pub fn canonical_folder(path: &Path) -> Result<PathBuf> {
    let invalid = |reason: String| BridgeError::CwdInvalid { path: path.display().to_string(), reason };
    let real = crate::config::canonical(path).map_err(|error| invalid(error.to_string()))?;
    if !real.is_dir() {
        return Err(invalid("it is not a folder".into()).into());
    }
    if real.to_str().is_none() {
        return Err(invalid("its name is not Unicode".into()).into());
    }
    Ok(real)
}

/// Canonicalises again and insists on the same answer: a folder that has become a link is refused.
pub fn recheck_folder(checked: &Path) -> Result<PathBuf> {
    let now = canonical_folder(checked)?;
    if now == checked { Ok(now) } else { Err(BridgeError::CwdChanged(checked.display().to_string()).into()) }
}

fn authority(
    config: &Config,
    settings: &AgentConfig,
    agent: AgentId,
    asked: Option<Sandbox>,
) -> Result<Sandbox> {
    let ceilings = [config.sandbox_ceiling, settings.sandbox_ceiling.unwrap_or(config.sandbox_ceiling)];
    let asked = asked.map_or(Asked::ByDefault(config.defaults.sandbox), Asked::Explicitly);
    match policy::decide_sandbox(asked, &ceilings) {
        SandboxDecision::Granted(mode) => Ok(mode),
        SandboxDecision::Denied { asked, ceiling } => {
            Err(BridgeError::SandboxDenied { agent, asked, ceiling }.into())
        }
    }
}

/// What is left of the granted authority in this mode.
fn trusted(agent: AgentId, granted: Sandbox, mode: Option<ExecutionMode>) -> Result<Sandbox> {
    match mode {
        None => Ok(granted),
        Some(ExecutionMode::Safe) => Ok(granted.min(Sandbox::WorkspaceWrite)),
        Some(ExecutionMode::Trusted) if granted == Sandbox::FullAccess => Ok(granted),
        Some(ExecutionMode::Trusted) => {
            let asked = Sandbox::FullAccess;
            Err(BridgeError::SandboxDenied { agent, asked, ceiling: granted }.into())
        }
    }
}

/// First line of the prompt, at most 200 characters, without control characters.
fn title_of(prompt: &str) -> String {
    let line = prompt.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Tells a repeated idempotency key from one that is used for something else.
fn request_digest(request: &TurnRequest) -> String {
    let mut parts = serde_json::json!([
        request.agent,
        request.prompt,
        request.cwd,
        request.model,
        request.sandbox,
        request.timeout.map(|t| t.as_millis().to_string()),
        request.session_id,
    ]);
    // Requests without it keep the digest that they had before it existed.
    if let (Some(tools), Some(list)) = (&request.scope_tools, parts.as_array_mut()) {
        list.push(serde_json::json!(tools));
    }
    if let (true, Some(list)) = (request.observe, parts.as_array_mut()) {
        list.push(serde_json::json!({ "observe": true }));
    }
    if let (Some(schema), Some(list)) = (&request.report_schema, parts.as_array_mut()) {
        list.push(serde_json::json!({ "reportSchema": schema }));
    }
    if let (true, Some(list)) = (request.isolated.is_some(), parts.as_array_mut()) {
        list.push(serde_json::json!({ "isolated": true }));
    }
    if let (Some(effort), Some(list)) = (&request.effort, parts.as_array_mut()) {
        list.push(serde_json::json!({ "effort": effort }));
    }
    if let (Some(name), Some(list)) = (&request.own_agent, parts.as_array_mut()) {
        list.push(serde_json::json!({ "ownAgent": name }));
    }
    if let (Some(mode), Some(list)) = (request.execution_mode, parts.as_array_mut()) {
        list.push(serde_json::json!({ "executionMode": mode }));
    }
    digest::of_bytes(parts.to_string().as_bytes())
}

/// The turn that an idempotency key names, if the request is the one it was made for.
pub fn same_request(request: &TurnRequest, row: TurnRow) -> Result<super::Started> {
    if row.request_sha256 != request_digest(request) {
        return Err(crate::store::StoreError::IdempotencyConflict { turn: row.id }.into());
    }
    Ok(super::Started { turn_id: row.id, session_id: row.session_id, index: row.index, repeated: true })
}
