//! Short runs of an agent's program that ask it about itself, with the environment of a run.

use std::path::Path;
use std::time::Duration;

use crate::agents::Agent;
use crate::config::{AgentConfig, Config};
use crate::context::Context;
use crate::process::{self, Captured, ProcessError, Program, Resolved};

/// Bound of one probe.
pub(super) const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of a probe's output that are looked at.
const PROBE_BYTES: usize = 64 << 10;

/// The program of an agent for a configured command.
pub(super) fn resolve(agent: &dyn Agent, bin: &Path, context: &Context) -> Result<Resolved, ProcessError> {
    if agent.native_program_only() {
        process::resolve_native(bin, context)
    } else {
        process::resolve(bin, context)
    }
}

/// Whom to ask.
pub(super) struct Probe<'a> {
    pub(super) context: &'a Context,
    pub(super) config: &'a Config,
    pub(super) agent: &'a dyn Agent,
    pub(super) settings: &'a AgentConfig,
}

impl Probe<'_> {
    /// The program, as a run would find it.
    pub(super) fn resolve(&self) -> Result<Resolved, ProcessError> {
        resolve(self.agent, &self.agent.program(self.settings, &self.context.exe), self.context)
    }

    /// Runs it with these arguments.
    pub(super) fn run(&self, resolved: &Resolved, args: Vec<String>) -> Result<Captured, ProcessError> {
        let Self { context, config, agent, settings } = *self;
        let mut pass = settings.pass_env.clone();
        pass.extend(agent.home_variables().iter().map(|name| (*name).to_owned()));
        let program = Program {
            program: resolved.program.clone(),
            args: resolved.prefix_args.iter().cloned().chain(args.into_iter().map(Into::into)).collect(),
            cwd: config.allowed_roots.first().cloned().unwrap_or_else(|| context.cwd.clone()),
            env: process::worker_environment(context, &pass, &settings.extra_env),
            stdin: Vec::new(),
        };
        process::capture(&program, PROBE_LIMIT, PROBE_BYTES)
    }
}
