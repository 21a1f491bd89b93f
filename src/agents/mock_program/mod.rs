//! The program behind the hidden subcommand `agent-bridge mock-agent`: a worker that follows a script.
//!
//! It stands in for any worker CLI, in demos and in tests, and can be as unpleasant as the real thing.
//! Unlike the adapters it does I/O: it reads standard input, prints, writes files, starts children
//! and may kill itself. Which script it follows is said by a leading `--script FILE`, else by the variable
//! `AGENT_BRIDGE_MOCK_SCRIPT`; everything after `--script FILE` (and an optional `--`) may be the argv of any
//! CLI. From it the program only picks what Codex, Claude Code and the mock adapter would say about
//! sandbox, model, resumed session and output format. Without any script it repeats its prompt.
//!
//! The script is one JSON file; `docs/mock-agent.md` describes it for people, [`script`] in types.

mod actions;
mod answer;
mod call_tool;
mod invocation;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
pub mod script;

use std::ffi::OsString;
use std::io::Write;

use actions::Worker;
use invocation::Invocation;
use script::{Script, StdinMode};

/// Variable that names the script when the argument list does not.
pub use crate::process::STAND_IN_SCRIPT_VAR as SCRIPT_VARIABLE;

/// Exit code of a script that cannot be followed.
const BROKEN_SCRIPT: i32 = 70;

/// Runs the scripted agent. `args` are the arguments after `mock-agent`; the result is the exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut stderr = std::io::stderr();
    match start(args) {
        Ok(code) => code,
        Err(why) => {
            // Nobody is left to tell if standard error is gone too.
            let _ = writeln!(stderr, "mock-agent: {why}");
            BROKEN_SCRIPT
        }
    }
}

fn start(args: Vec<OsString>) -> Result<i32, String> {
    let invocation = Invocation::parse(args)?;
    invocation.leave_group();
    let script = load(&invocation)?;
    let mut worker = Worker::new(invocation, Box::new(std::io::stdout()), Box::new(std::io::stderr()));
    if let Some(code) = worker.probe(&script)? {
        return Ok(code);
    }
    worker.read_stdin(&mut std::io::stdin(), script.stdin.unwrap_or(StdinMode::All))?;
    worker.follow(&script)
}

fn load(invocation: &Invocation) -> Result<Script, String> {
    let text = match (&invocation.inline, &invocation.script) {
        (Some(inline), _) => inline.clone(),
        (None, Some(path)) => std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
        (None, None) => "{}".to_owned(),
    };
    serde_json::from_str(&text).map_err(|error| format!("the script is not valid: {error}"))
}

#[cfg(test)]
mod tests;
