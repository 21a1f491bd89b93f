//! The program: argv in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(agent_bridge::cli::run(agent_bridge::context::Context::from_process()))
}
