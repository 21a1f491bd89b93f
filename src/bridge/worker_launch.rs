//! How a worker is started: arguments and variables as planned, and those of its endpoint; and its run folder.

use std::path::PathBuf;

use super::companion::Attached;
use super::run_folder::RunFolder;
use super::run_spec::RunSpec;
use crate::agents::endpoint::{self, TOKEN_VARIABLE};
use crate::agents::{Agent, Launch, PrivateFiles};
use crate::context::Context;
use crate::error::Result;
use crate::process::{self, Program};
use crate::store::{Store, run_dir};

/// Everything about a start but the program.
pub(super) struct WorkerLaunch {
    launch: Launch,
    /// Empty without an endpoint.
    token: String,
}

impl WorkerLaunch {
    pub(super) fn new(spec: &RunSpec) -> Self {
        let mut launch = spec.launch.clone();
        launch.env.insert(process::TURN_VAR.into(), spec.turn.id.clone());
        Self { launch, token: String::new() }
    }

    /// The variables of an endpoint that is not open yet, so that their names are in the record.
    pub(super) fn announce(&mut self, context: &Context, agent: &dyn Agent) {
        let env = &mut self.launch.env;
        for name in [TOKEN_VARIABLE].iter().chain(agent.endpoint_variables()) {
            env.entry((*name).to_owned()).or_default();
        }
        let known = |name: &str| context.var(name).and_then(|value| value.to_str().map(str::to_owned));
        endpoint::bypass_proxies(env, known);
    }

    pub(super) fn attach(&mut self, agent: &dyn Agent, spec: &RunSpec, attached: &Attached) -> Result<()> {
        let run_dir = run_dir(&spec.state_dir, &spec.turn.id)?;
        agent.attach(&mut self.launch, &attached.endpoint, &run_dir)?;
        self.token.clone_from(&attached.token);
        self.launch.env.insert(attached.endpoint.token_variable.into(), attached.token.clone());
        Ok(())
    }

    /// The run folder with all that belongs in it, if the run has one.
    pub(super) fn folder(
        &self,
        context: &Context,
        spec: &RunSpec,
        store: &Store,
    ) -> Result<Option<RunFolder>> {
        let Some(private) = &self.launch.private else { return Ok(None) };
        let mut folder = RunFolder::create(store, &spec.turn.id)?;
        folder.keep(private, &spec.state_dir, &spec.turn.session_id, spec.turn.agent)?;
        folder.fill(private, &self.token, home_of(context, spec, private).as_deref())?;
        Ok(Some(folder))
    }

    pub(super) fn program(&self, context: &Context, spec: &RunSpec, resolved: &process::Resolved) -> Program {
        let Launch { args, env, pass_env, prompt, .. } = &self.launch;
        let mut args = args.clone();
        let stdin = prompt.deliver(spec.outbound.clone(), &mut args);
        Program {
            program: resolved.program.clone(),
            args: resolved.prefix_args.iter().cloned().chain(args.into_iter().map(Into::into)).collect(),
            cwd: spec.turn.cwd.clone(),
            env: process::worker_environment(context, pass_env, env),
            stdin: stdin.into_bytes(),
        }
    }
}

/// Where the user keeps what the CLI would use: as the run would find it if it had no folder of its own.
fn home_of(context: &Context, spec: &RunSpec, private: &PrivateFiles) -> Option<PathBuf> {
    let named = private.home_variable.as_ref().and_then(|name| {
        let set = spec.launch.env.get(name).map(PathBuf::from);
        let passed = || spec.launch.pass_env.contains(name).then(|| context.var(name)).flatten();
        set.or_else(|| passed().map(PathBuf::from))
    });
    named.or_else(|| context.home.clone())
}
