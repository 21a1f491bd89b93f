//! The built-in scripted agent: this very program, speaking Codex's event stream. For demos and tests.

use std::path::{Path, PathBuf};

use super::arguments::{AUTHORITY, Grammar, PLACE, TOOLS};
use super::{
    Agent, AgentError, AuthFinding, AuthStatus, Capabilities, Endpoint, Launch, LaunchRequest, RunEnd,
    StreamParser, path_text, verdicts,
};
use crate::config::AgentConfig;
use crate::policy::AgentId;
use crate::process::PoliteStop;

/// The hidden subcommand that runs [`super::mock_program`].
pub(super) const SUBCOMMAND: &str = "mock-agent";

/// The adapter.
pub(super) struct Mock;

const GRAMMAR: Grammar = Grammar {
    agent: AgentId::Mock,
    refused: &[
        ("--script", PLACE),
        ("--inline", PLACE),
        ("--resume", PLACE),
        ("--endpoint", TOOLS),
        ("--sandbox", AUTHORITY),
        ("-s", AUTHORITY),
    ],
    switches: &[],
    glued_values: true,
    value: |_, _| None,
};

impl Agent for Mock {
    fn id(&self) -> AgentId {
        AgentId::Mock
    }

    fn display_name(&self) -> &'static str {
        "Scripted mock agent"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resume: true,
            model: true,
            sandbox: true,
            structured_output: true,
            direct_remote_api: false,
            off_machine_egress: false,
            local_filesystem: true,
            independent_local_code_review: false,
        }
    }

    fn program(&self, _settings: &AgentConfig, own_exe: &Path) -> PathBuf {
        own_exe.to_owned()
    }

    fn launch(&self, request: &LaunchRequest<'_>) -> Result<Launch, AgentError> {
        super::check_request(self, request)?;
        let mut args: Vec<String> = vec![SUBCOMMAND.into()];
        if let Some(script) = &request.settings.script {
            args.extend(["--script".into(), path_text(script)?.into()]);
        }
        args.extend(["--sandbox".into(), request.sandbox.as_str().into()]);
        if let Some(model) = request.model {
            args.extend(["--model".into(), model.into()]);
        }
        if let Some(id) = request.resume {
            args.extend(["--resume".into(), id.into()]);
        }
        if !request.strict {
            GRAMMAR.check(&request.settings.extra_args)?;
            args.extend(request.settings.extra_args.iter().cloned());
        }
        Ok(Launch { args, env: super::extra_env(request), ..Launch::default() })
    }

    fn takes_endpoint(&self, _settings: &AgentConfig) -> Result<(), AgentError> {
        Ok(())
    }

    /// A script finds the address in the arguments of its run (`record`).
    fn attach(&self, launch: &mut Launch, endpoint: &Endpoint, _run_dir: &Path) -> Result<(), AgentError> {
        launch.args.extend(["--endpoint".to_owned(), endpoint.url.clone()]);
        Ok(())
    }

    fn parser(&self, resume: Option<&str>) -> Box<dyn StreamParser> {
        super::codex::parser(resume, "the mock agent of this build")
    }

    fn version_args(&self) -> Vec<String> {
        [SUBCOMMAND, "--version"].map(String::from).to_vec()
    }

    fn parse_version(&self, stdout: &str) -> Option<String> {
        verdicts::version_in(stdout)
    }

    fn auth_args(&self, _version: Option<&str>) -> Option<Vec<String>> {
        None
    }

    fn parse_auth(&self, _end: &RunEnd<'_>, _stdout: &str) -> AuthFinding {
        AuthFinding { status: AuthStatus::Authenticated, detail: Some("needs no login".to_owned()) }
    }

    fn login_command(&self) -> &'static str {
        "agent-bridge doctor"
    }

    fn accepts_native_id(&self, id: &str) -> bool {
        verdicts::is_uuid(id)
    }

    fn polite_stop(&self) -> PoliteStop {
        PoliteStop::InterruptRoot
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::tests::{ID, refused_flag, request, settings};
    use super::*;
    use crate::policy::Sandbox;

    #[test]
    fn it_starts_this_program_with_the_script_and_the_granted_mode() {
        let mut settings = settings("ignored");
        settings.script = Some(PathBuf::from("/scripts/a.json"));
        let mut request = request(&settings);
        request.sandbox = Sandbox::WorkspaceWrite;
        request.resume = Some(ID);
        assert_eq!(
            Mock.launch(&request).unwrap().args.join(" "),
            format!("mock-agent --script /scripts/a.json --sandbox workspace-write --resume {ID}")
        );
        assert_eq!(Mock.program(&settings, Path::new("/bin/agent-bridge")), Path::new("/bin/agent-bridge"));
    }

    #[test]
    fn its_own_arguments_cannot_be_set_from_outside() {
        let mut settings = settings("ignored");
        settings.extra_args = ["--sandbox", "full-access"].map(String::from).to_vec();
        assert_eq!(refused_flag(Mock.launch(&request(&settings))), "--sandbox");
    }
}
