//! Gemini CLI, measured with 0.61.0: `gemini -o stream-json`, prompt on standard input.
//!
//! What was measured and why the argument list looks as it does:
//!
//! * A folder that nobody has trusted ends a run without a person (exit 55). `--skip-trust` trusts it for this run, but
//!   only after the settings were read: settings, hooks, servers and `.env` of the project stay out. The variable
//!   `GEMINI_CLI_TRUST_WORKSPACE` lets all of them in, and so does the second process that the CLI starts of itself unless
//!   `GEMINI_CLI_NO_RELAUNCH` is set.
//! * The approval mode is no limit by itself; [`policy`] says why, and what is. The CLI leaves out rules given as
//!   arguments where its installation has rules of its own, and says so; such a run is ended.
//! * A read-only run is in the default mode, which offers no more than those rules allow. Plan mode tells the model to
//!   design, to write a plan down and to wait for a word of approval, which nobody is there to give.
//! * `-e none` keeps extensions out, and a list of allowed servers with a name that nobody has keeps the user's servers out.
//!   The user's hooks are theirs and run.
//! * A prompt that begins with `/` is a command of the CLI's, some of which write; a line end in front makes it text.
//! * A conversation is found again only from the folder that it began in. A number instead of its id would be an index.
//! * Exit codes are HTTP statuses modulo 256. A safety block exits with 0.
//! * It writes failed requests, with the conversation, into the folder for temporary files: the run folder.
//! * `SIGTERM` to the root alone leaves a running command behind.

mod parser;
mod policy;

use std::path::{Path, PathBuf};

use policy::Servers;

use super::arguments::{AUTHORITY, FORMAT, Grammar, OWNED, PLACE, TOOLS, UNKNOWN};
use super::{
    Agent, AgentError, AuthFinding, AuthStatus, Capabilities, Endpoint, Launch, LaunchRequest, LoginTraces,
    PrivateFiles, RunEnd, StreamParser, endpoint, path_text, verdicts,
};
use crate::config::AgentConfig;
use crate::policy::{AgentId, Sandbox};

/// Version that the arguments and events here were measured with.
const TESTED_VERSION: &str = "Gemini CLI 0.61.0";

/// Where the CLI keeps itself, if not below the home.
const HOME: &str = "GEMINI_CLI_HOME";

/// The adapter.
pub(super) struct Gemini;

const GRAMMAR: Grammar = Grammar {
    agent: AgentId::Gemini,
    refused: &[
        ("-y", AUTHORITY),
        ("--yolo", AUTHORITY),
        ("--approval-mode", AUTHORITY),
        ("--approvalMode", AUTHORITY),
        ("--policy", AUTHORITY),
        ("--admin-policy", AUTHORITY),
        ("--adminPolicy", AUTHORITY),
        ("--allowed-tools", AUTHORITY),
        ("--allowedTools", AUTHORITY),
        ("--include-directories", AUTHORITY),
        ("--includeDirectories", AUTHORITY),
        ("--skip-trust", OWNED),
        ("--skipTrust", OWNED),
        ("-s", PLACE),
        ("--sandbox", PLACE),
        ("-w", PLACE),
        ("--worktree", PLACE),
        ("-r", PLACE),
        ("--resume", PLACE),
        ("--session-id", PLACE),
        ("--session-file", PLACE),
        ("-e", TOOLS),
        ("--extensions", TOOLS),
        ("--allowed-mcp-server-names", TOOLS),
        ("--allowedMcpServerNames", TOOLS),
        ("-o", FORMAT),
        ("--output-format", FORMAT),
        ("--outputFormat", FORMAT),
        ("--raw-output", FORMAT),
        ("--acp", FORMAT),
        ("-d", FORMAT),
        ("--debug", FORMAT),
        ("-i", FORMAT),
        ("--prompt-interactive", FORMAT),
        ("-v", FORMAT),
        ("--version", FORMAT),
        ("-h", FORMAT),
        ("--help", FORMAT),
        ("-p", OWNED),
        ("--prompt", OWNED),
        ("-m", OWNED),
        ("--model", OWNED),
    ],
    switches: &["--screen-reader"],
    glued_values: false,
    // Its parser takes many spellings of one option, so what is not known is not let through.
    value: |_, _| Some(UNKNOWN),
};

fn mode(sandbox: Sandbox) -> &'static str {
    match sandbox {
        Sandbox::ReadOnly => "default",
        Sandbox::WorkspaceWrite => "auto_edit",
        Sandbox::FullAccess => "yolo",
    }
}

/// A server that nobody has: the name is the run's own.
fn no_server(run_dir: &Path) -> String {
    let run = run_dir.file_name().and_then(|name| name.to_str()).unwrap_or("run");
    format!("none-{run}")
}

/// The file with the run's rules.
fn policy_file(run_dir: &Path) -> PathBuf {
    run_dir.join("policy.toml")
}

impl Agent for Gemini {
    fn id(&self) -> AgentId {
        AgentId::Gemini
    }

    fn display_name(&self) -> &'static str {
        "Gemini CLI"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resume: true,
            model: true,
            sandbox: true,
            structured_output: true,
            direct_remote_api: false,
            off_machine_egress: true,
            local_filesystem: true,
            independent_local_code_review: true,
        }
    }

    fn launch(&self, request: &LaunchRequest<'_>) -> Result<Launch, AgentError> {
        super::check_request(self, request)?;
        let settings = request.settings;
        let folder = path_text(request.run_dir)?;
        let mut args: Vec<String> = ["-o", "stream-json", "--skip-trust"].map(String::from).to_vec();
        if let Some(model) = request.model {
            args.extend(["-m".into(), model.into()]);
        }
        if let Some(id) = request.resume {
            args.extend(["--resume".into(), id.into()]);
        }
        if !request.strict {
            GRAMMAR.check(&settings.extra_args)?;
            args.extend(settings.extra_args.iter().cloned());
        }
        let user_config = settings.use_user_config && !request.strict;
        if !user_config {
            args.extend(["-e", "none", "--allowed-mcp-server-names"].map(String::from));
            args.push(no_server(request.run_dir));
        }
        let mut private = PrivateFiles::default();
        let servers = if user_config { Servers::Users } else { Servers::None };
        if let Some(rules) = policy::rules(request.sandbox, servers) {
            let file = policy_file(request.run_dir);
            let path = path_text(&file)?.to_owned();
            args.extend(["--admin-policy".into(), path]);
            private = PrivateFiles::one(file, rules);
        }
        // Last, so that it ends any list option in front of it.
        args.extend(["--approval-mode", mode(request.sandbox)].map(String::from));
        let mut env = super::extra_env(request);
        for (name, value) in [
            ("GEMINI_CLI_NO_RELAUNCH", "true"),
            ("NO_BROWSER", "true"),
            ("TMPDIR", folder),
            ("TMP", folder),
            ("TEMP", folder),
        ] {
            env.insert(name.to_owned(), value.to_owned());
        }
        let pass_env = super::passed(self.home_variables());
        Ok(Launch { args, env, pass_env, private: Some(private), ..Launch::default() })
    }

    fn input(&self, prompt: String) -> String {
        super::no_command(prompt)
    }

    fn takes_endpoint(&self, settings: &AgentConfig) -> Result<(), AgentError> {
        if settings.use_user_config {
            return Err(AgentError::EndpointNeedsIsolation(AgentId::Gemini));
        }
        Ok(())
    }

    fn attach(&self, launch: &mut Launch, endpoint: &Endpoint, run_dir: &Path) -> Result<(), AgentError> {
        endpoint::attach_gemini(launch, endpoint, run_dir)?;
        // The run's server stands among what its rules allow.
        let sandbox = [Sandbox::ReadOnly, Sandbox::WorkspaceWrite, Sandbox::FullAccess]
            .into_iter()
            .find(|sandbox| launch.args.last().is_some_and(|last| last == mode(*sandbox)))
            .ok_or(AgentError::EndpointUnsupported(AgentId::Gemini))?;
        if let Some(rules) = policy::rules(sandbox, Servers::Endpoint) {
            let private = launch.private.get_or_insert_default();
            let file = policy_file(run_dir);
            let planned = private.files.iter_mut().find(|planned| planned.path == file);
            planned.ok_or(AgentError::EndpointUnsupported(AgentId::Gemini))?.content = rules;
        }
        Ok(())
    }

    fn resumes_beside_endpoint(&self) -> bool {
        // Its conversations are kept in the home, which a run with an endpoint has to itself.
        false
    }

    fn endpoint_variables(&self) -> &'static [&'static str] {
        &[HOME]
    }

    fn home_variables(&self) -> &'static [&'static str] {
        &[HOME]
    }

    fn parser(&self, resume: Option<&str>) -> Box<dyn StreamParser> {
        Box::new(parser::Parser::new(resume, TESTED_VERSION))
    }

    fn parse_version(&self, stdout: &str) -> Option<String> {
        verdicts::version_in(stdout)
    }

    fn auth_args(&self, _version: Option<&str>) -> Option<Vec<String>> {
        None
    }

    fn parse_auth(&self, _end: &RunEnd<'_>, _stdout: &str) -> AuthFinding {
        AuthFinding { status: AuthStatus::Unknown, detail: None }
    }

    fn login_traces(&self) -> Option<LoginTraces> {
        Some(LoginTraces {
            home_variable: HOME,
            files: &[
                ".gemini/oauth_creds.json",
                ".gemini/google_accounts.json",
                ".gemini/gemini-credentials.json",
            ],
            variables: &[
                "GEMINI_API_KEY",
                "GOOGLE_API_KEY",
                "GOOGLE_GENAI_USE_VERTEXAI",
                "GOOGLE_GENAI_USE_GCA",
                "GEMINI_CLI_USE_COMPUTE_ADC",
            ],
        })
    }

    fn login_command(&self) -> &'static str {
        "gemini"
    }

    fn accepts_native_id(&self, id: &str) -> bool {
        verdicts::is_uuid(id)
    }
}

#[cfg(test)]
#[path = "gemini/tests.rs"]
mod tests;
