//! How a worker is started: arguments and variables as planned, and those of its endpoint.

use std::collections::BTreeMap;

use super::companion::Attached;
use super::run_spec::RunSpec;
use crate::agents::Agent;
use crate::agents::endpoint::{self, TOKEN_VARIABLE};
use crate::context::Context;
use crate::error::Result;
use crate::process::{self, Program};

/// Arguments and variables of a start.
pub(super) struct WorkerLaunch {
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

impl WorkerLaunch {
    pub(super) fn new(spec: &RunSpec) -> Self {
        let mut env = spec.set_env.clone();
        env.insert(process::TURN_VAR.into(), spec.turn.id.clone());
        Self { args: spec.args.clone(), env }
    }

    /// The variables of an endpoint that is not open yet, so that their names are in the record.
    pub(super) fn announce(&mut self, context: &Context) {
        self.env.insert(TOKEN_VARIABLE.into(), String::new());
        let known = |name: &str| context.var(name).and_then(|value| value.to_str().map(str::to_owned));
        endpoint::bypass_proxies(&mut self.env, known);
    }

    pub(super) fn attach(&mut self, agent: &dyn Agent, attached: &Attached) -> Result<()> {
        agent.attach(&mut self.args, &attached.endpoint)?;
        self.env.insert(attached.endpoint.token_variable.into(), attached.token.clone());
        Ok(())
    }

    pub(super) fn program(&self, context: &Context, spec: &RunSpec, resolved: &process::Resolved) -> Program {
        Program {
            program: resolved.program.clone(),
            args: resolved.prefix_args.iter().cloned().chain(self.args.iter().map(Into::into)).collect(),
            cwd: spec.turn.cwd.clone(),
            env: process::worker_environment(context, &spec.pass_env, &self.env),
            stdin: spec.outbound.clone().into_bytes(),
        }
    }
}
