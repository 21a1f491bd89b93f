//! The front door for people and scripts: one file a subcommand.
//!
//! Standard output is the result and nothing else: a table, or with `--json` exactly one document
//! with `schema` and `kind`. Progress, prompts and warnings go to standard error.

mod audit;
mod canary;
mod completions;
pub mod config;
mod configure_clients;
mod confirm;
mod cutover;
mod delegate;
mod demo;
mod demo_release;
mod doctor;
mod explain;
mod help;
mod history;
mod inspect;
mod install_release;
mod installation;
mod launcher;
mod man;
mod output;
mod package;
mod paste;
mod prune;
mod questions;
mod readiness;
mod recover;
mod rehearse;
mod runs;
mod scope;
mod serve;
mod sessions;
mod state;
mod story;
mod turn_text;
mod turns;

use std::io::Write;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::agents::mock_program;
use crate::bridge::{Bridge, catalogue, supervise, turn_endpoint};
use crate::config as configuration;
use crate::context::Context;
use crate::error::{CodeDoc, Exit, Result};
use crate::release::launcher::Next;
use crate::release::{self, lease};
use output::Output;

const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("AGENT_BRIDGE_GIT_SHA"),
    ", ",
    env!("AGENT_BRIDGE_TARGET"),
    ")"
);

/// One controlled way to hand work to the coding agents on this machine.
///
/// An MCP host (Codex, Claude Code, Claude Desktop, Gemini CLI) starts `agent-bridge serve`; everything
/// else here is for you: to set it up, to look at what was done, and to delegate from a terminal.
#[derive(Debug, Parser)]
#[command(
    name = "agent-bridge",
    version = VERSION,
    propagate_version = true,
    after_help = "Start here:\n  agent-bridge demo           see it work, without any account\n  agent-bridge config init    write a config file\n  agent-bridge doctor         check the installation\n\nExit codes: 0 done · 1 failed · 2 refused or not ready · 3 verification failed · 4 recovery needed · 64 usage · 75 try again later",
)]
struct Cli {
    /// Config file; otherwise AGENT_BRIDGE_CONFIG, the file beside the program, ~/.agent-bridge/config.json.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

// Without a comment of its own a subcommand takes the help of its arguments, the long one included.
#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Delegate(delegate::Args),
    Sessions(sessions::Args),
    Turns(turns::Args),
    Runs(runs::Args),
    Audit(audit::Args),
    Scope(scope::Args),
    Doctor(doctor::Args),
    /// Write, check and explain the config file.
    #[command(subcommand)]
    Config(config::Command),
    ConfigureClients(configure_clients::Args),
    Cutover(cutover::CutoverArgs),
    Rollback(cutover::RollbackArgs),
    Readiness(readiness::Args),
    Recover(recover::Args),
    Rehearse(rehearse::Args),
    InstallRelease(install_release::Args),
    Inspect(inspect::Args),
    Canary(canary::Args),
    State(state::Args),
    History(history::Args),
    Prune(prune::Args),
    Demo(demo::Args),
    Package(package::Args),
    Explain(explain::Args),
    Completions(completions::Args),
    Man(man::Args),
    #[command(hide = true)]
    LauncherReplace(launcher::Args),
    #[command(hide = true)]
    RehearseSwitch(rehearse::SwitchArgs),
    /// Supervise one turn (started by this program).
    #[command(hide = true)]
    RunTurn,
    /// End what is left of a run whose `scope run` was killed (started by this program).
    #[command(hide = true)]
    ScopeGuard {
        run: String,
        watched: u32,
    },
    /// Act as a scripted agent (for demos and tests).
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    MockAgent {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<std::ffi::OsString>,
    },
}

/// The argv of a CLI that this program was told to play, where no wrapper script can do it (Windows). Our own
/// subcommands stay what they are.
fn stand_in_arguments(context: &Context) -> Option<Vec<std::ffi::OsString>> {
    context.var(mock_program::SCRIPT_VARIABLE)?;
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let first = args.first()?.to_string_lossy().into_owned();
    let ours =
        first == "--config" || Cli::command().get_subcommands().any(|command| command.get_name() == first);
    (!ours).then_some(args)
}

/// Runs the program and returns its exit code.
pub fn run(context: Context) -> u8 {
    if let Some(args) = stand_in_arguments(&context) {
        return u8::try_from(mock_program::main(args)).unwrap_or(Exit::Unexpected as u8);
    }
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if let Next::Ended(code) = release::launcher::main(&context, &args) {
        return code;
    }
    let cli = match help::arranged(Cli::command())
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches))
    {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are results; everything else is a complaint.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Ok as u8,
                _ => Exit::Usage as u8,
            };
        }
    };
    let mut output = Output::from_process();
    let result = dispatch(&context, cli, &mut output);
    let exit = match result {
        Ok(code) => code,
        Err(error) => {
            output.error(&error);
            match error.exit() {
                Exit::RecoveryNeeded => Exit::RecoveryNeeded as u8,
                _ if output.is_committed() => Exit::Ok as u8,
                exit => exit as u8,
            }
        }
    };
    match output.out.flush() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe && !output.is_committed() => {
            Exit::Unexpected as u8
        }
        _ => exit,
    }
}

fn dispatch(context: &Context, cli: Cli, output: &mut Output) -> Result<u8> {
    let flag = cli.config.as_deref();
    let load = || Ok::<_, crate::error::Error>(configuration::load(context, flag)?);
    let bridge = || load().map(|config| Bridge::new(context.clone(), config));
    match cli.command {
        Command::Serve(args) => serve::run(context, load()?, args).map(|exit| exit as u8),
        Command::Delegate(args) => delegate::run(&bridge()?, args, output).map(|exit| exit as u8),
        Command::Sessions(args) => sessions::run(&bridge()?, args, output).map(|exit| exit as u8),
        Command::Audit(args) => audit::run(&bridge()?, args, output).map(|exit| exit as u8),
        Command::Runs(args) => runs::run(&bridge()?, args, output).map(|exit| exit as u8),
        Command::Turns(args) => turns::run(&bridge()?, args, output).map(|exit| exit as u8),
        Command::Scope(args) => scope::run(context, load, &args),
        Command::Doctor(args) => doctor::run(context, load(), &args, output).map(|exit| exit as u8),
        Command::Config(args) => config::run(context, flag, args, &mut output.out).map(|exit| exit as u8),
        Command::ConfigureClients(args) => {
            configure_clients::run(context, &args, output).map(|exit| exit as u8)
        }
        Command::Cutover(args) => cutover::run_cutover(context, args, output).map(|exit| exit as u8),
        Command::Rollback(args) => cutover::run_rollback(context, args, output).map(|exit| exit as u8),
        Command::Readiness(args) => readiness::run(context, &args, output).map(|exit| exit as u8),
        Command::Rehearse(args) => rehearse::run(context, &args, output).map(|exit| exit as u8),
        Command::RehearseSwitch(args) => rehearse::run_switch(context, &args).map(|exit| exit as u8),
        Command::Recover(args) => recover::run(context, &args, output).map(|exit| exit as u8),
        Command::InstallRelease(args) => install_release::run(context, &args, output).map(|exit| exit as u8),
        Command::Prune(args) => prune::run(context, &args, output).map(|exit| exit as u8),
        Command::State(args) => state::run(context, load, &args, output).map(|exit| exit as u8),
        Command::Canary(args) => canary::run(context, &args, output).map(|exit| exit as u8),
        Command::Inspect(args) => inspect::run(context, &args, output).map(|exit| exit as u8),
        Command::History(args) => history::run(context, args, output).map(|exit| exit as u8),
        Command::Demo(args) => demo::run(context, args, output).map(|exit| exit as u8),
        Command::Package(args) => package::run(context, &args, Cli::command(), output).map(|exit| exit as u8),
        Command::Explain(args) => explain::run(&args, output).map(|exit| exit as u8),
        Command::Completions(args) => completions::run(&args, &Cli::command(), output).map(|exit| exit as u8),
        Command::Man(args) => man::run(&args, Cli::command(), output).map(|exit| exit as u8),
        Command::LauncherReplace(args) => launcher::run(context, &args, output).map(|exit| exit as u8),
        Command::RunTurn => {
            let hold = || lease::hold(context, lease::Holding::Turn);
            supervise::main(context, hold, &turn_endpoint::ForTurns).map(|()| Exit::Ok as u8)
        }
        Command::ScopeGuard { run, watched } => {
            let left = crate::process::stand_guard(&run, watched);
            Ok(if left.is_empty() { Exit::Ok } else { Exit::Unexpected } as u8)
        }
        Command::MockAgent { args } => {
            Ok(u8::try_from(mock_program::main(args)).unwrap_or(Exit::Unexpected as u8))
        }
    }
}

/// Every documented code, of the parts and of the commands.
fn all_codes() -> impl Iterator<Item = &'static CodeDoc> {
    catalogue::all().chain([config::CODES, demo::CODES].into_iter().flatten().copied())
}

/// An event loop for the commands that need one. One thread is enough: whatever blocks has threads of its own,
/// and a second one would cost memory and a wake-up for each message.
fn event_loop() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| crate::bridge::BridgeError::Supervisor(format!("no event loop: {error}")).into())
}
