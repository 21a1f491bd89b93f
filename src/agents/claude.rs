//! Claude Code, measured with 2.1.332: `claude -p`, prompt on standard input, one JSON event a line.
//!
//! What was measured and why the argument list looks as it does:
//!
//! * Read-only is plan mode *and* a tool list without any tool that writes, runs or reaches the
//!   network; plan mode alone still offers a shell. Workspace-write is `acceptEdits`: files inside the
//!   working folder may be written, a write outside is denied. The CLI checks this itself; nothing
//!   confines it from outside.
//! * `--setting-sources ""` loads no settings file at all: neither hooks nor permission rules of the
//!   checked-out project, nor the user's. A stored login and API keys in the environment still work. A
//!   login that needs the user's settings (`apiKeyHelper`, a cloud provider set there) needs
//!   `useUserConfig`, which loads the `user` source with its hooks and permission rules; project
//!   and local settings stay out in any case. `CLAUDE.md` is context and is read either way.
//! * `--strict-mcp-config` with an empty list keeps all servers out, `.mcp.json` too, so a worker
//!   cannot call the bridge again.
//! * A prompt that begins with `/` is a command of the CLI's; a line end in front makes it text.
//! * Nothing of this is kept by a resumed session, so it is all given again.
//! * `bypassPermissions` is refused by the CLI for root.

mod parser;

use std::path::Path;

use serde_json::Value;

use super::arguments::{AUTHORITY, FORMAT, Grammar, OWNED, PLACE, TOOLS};
use super::{
    Agent, AgentError, AuthFinding, AuthStatus, Capabilities, Endpoint, Launch, LaunchRequest, RunEnd,
    StreamParser, endpoint, redaction, verdicts,
};
use crate::config::AgentConfig;
use crate::policy::{AgentId, Sandbox};
use crate::process::PoliteStop;

/// Version that the arguments and events here were measured with.
const TESTED_VERSION: &str = "Claude Code 2.1.332";

/// The adapter.
pub(super) struct Claude;

const GRAMMAR: Grammar = Grammar {
    agent: AgentId::Claude,
    refused: &[
        ("--dangerously-skip-permissions", AUTHORITY),
        ("--allow-dangerously-skip-permissions", AUTHORITY),
        ("--permission-mode", AUTHORITY),
        ("--permission-prompts", AUTHORITY),
        ("--permission-prompt-tool", AUTHORITY),
        ("--allowedTools", AUTHORITY),
        ("--allowed-tools", AUTHORITY),
        ("--disallowedTools", AUTHORITY),
        ("--disallowed-tools", AUTHORITY),
        ("--tools", AUTHORITY),
        ("--add-dir", AUTHORITY),
        ("--mcp-config", TOOLS),
        ("--strict-mcp-config", OWNED),
        ("--settings", TOOLS),
        ("--setting-sources", TOOLS),
        ("--managed-settings", TOOLS),
        ("--plugin-dir", TOOLS),
        ("--plugin-url", TOOLS),
        ("--agent", TOOLS),
        ("--agents", TOOLS),
        ("--chrome", TOOLS),
        ("--ide", TOOLS),
        ("--file", TOOLS),
        ("--init", TOOLS),
        ("--init-only", TOOLS),
        ("--maintenance", TOOLS),
        ("-r", PLACE),
        ("--resume", PLACE),
        ("-c", PLACE),
        ("--continue", PLACE),
        ("--fork-session", PLACE),
        ("--resume-session-at", PLACE),
        ("--session-id", PLACE),
        ("--from-pr", PLACE),
        ("-w", PLACE),
        ("--worktree", PLACE),
        ("--tmux", PLACE),
        ("--bg", PLACE),
        ("--background", PLACE),
        ("--cloud", PLACE),
        ("--environment", PLACE),
        ("--remote", PLACE),
        ("--remote-control", PLACE),
        ("--teleport", PLACE),
        ("--desktop", PLACE),
        ("--sdk-url", PLACE),
        ("-p", OWNED),
        ("--print", OWNED),
        ("--verbose", OWNED),
        ("--model", OWNED),
        ("--output-format", FORMAT),
        ("--json-schema", OWNED),
        ("--input-format", FORMAT),
        ("--replay-user-messages", FORMAT),
        ("-h", FORMAT),
        ("--help", FORMAT),
        ("-v", FORMAT),
        ("--version", FORMAT),
    ],
    switches: &[
        "--bare",
        "--restricted",
        "--safe-mode",
        "--no-chrome",
        "--brief",
        "--ax-screen-reader",
        "--disable-slash-commands",
        "--include-partial-messages",
        "--include-hook-events",
        "--no-session-persistence",
        "--exclude-dynamic-system-prompt-sections",
    ],
    glued_values: false,
    value: |_, _| None,
};

fn permission(sandbox: Sandbox) -> &'static [&'static str] {
    match sandbox {
        Sandbox::ReadOnly => &["--permission-mode", "plan", "--tools", "Read,Grep,Glob"],
        Sandbox::WorkspaceWrite => &["--permission-mode", "acceptEdits"],
        Sandbox::FullAccess => &["--permission-mode", "bypassPermissions"],
    }
}

impl Agent for Claude {
    fn id(&self) -> AgentId {
        AgentId::Claude
    }

    fn display_name(&self) -> &'static str {
        "Claude Code"
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
        let user_config = settings.use_user_config && !request.strict;
        let sources = if user_config { "--setting-sources=user" } else { "--setting-sources=" };
        let mut args: Vec<String> =
            ["-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config"]
                .map(String::from)
                .to_vec();
        args.extend(["--mcp-config", "{\"mcpServers\":{}}", sources].map(String::from));
        if let Some(model) = request.model {
            args.extend(["--model".into(), model.into()]);
        }
        if let Some(id) = request.resume {
            args.extend(["--resume".into(), id.into()]);
        }
        if !request.strict {
            GRAMMAR.check(&settings.extra_args)?;
            args.extend(settings.extra_args.iter().cloned());
        }
        let mut facts = serde_json::Map::new();
        // After the standing arguments, so that the call decides.
        if let Some(effort) = request.effort {
            args.extend(["--effort".into(), effort.into()]);
            facts.insert(super::TOLD_EFFORT.into(), effort.into());
        }
        if let Some(schema) = request.report_schema {
            args.extend(["--json-schema".into(), schema.to_string()]);
        }
        // Last, so that it ends any list option in front of it.
        args.extend(permission(request.sandbox).iter().map(|arg| (*arg).to_owned()));
        let pass_env = super::passed(self.home_variables());
        Ok(Launch { args, env: super::extra_env(request), pass_env, facts, ..Launch::default() })
    }

    fn input(&self, prompt: String) -> String {
        super::no_command(prompt)
    }

    fn takes_endpoint(&self, _settings: &AgentConfig) -> Result<(), AgentError> {
        Ok(())
    }

    fn attach(&self, launch: &mut Launch, endpoint: &Endpoint, _run_dir: &Path) -> Result<(), AgentError> {
        endpoint::attach_claude(launch, endpoint)
    }

    fn home_variables(&self) -> &'static [&'static str] {
        &["CLAUDE_CONFIG_DIR"]
    }

    fn parser(&self, resume: Option<&str>) -> Box<dyn StreamParser> {
        Box::new(parser::Parser::new(resume, TESTED_VERSION))
    }

    fn parse_version(&self, stdout: &str) -> Option<String> {
        verdicts::version_in(stdout)
    }

    fn auth_args(&self, _version: Option<&str>) -> Option<Vec<String>> {
        Some(["auth", "status"].map(String::from).to_vec())
    }

    fn parse_auth(&self, end: &RunEnd<'_>, stdout: &str) -> AuthFinding {
        // Standard error is never mixed in: a stray warning there must not spoil the JSON.
        let json = stdout.find('{').and_then(|at| {
            serde_json::Deserializer::from_str(&stdout[at..]).into_iter::<Value>().next()?.ok()
        });
        if let Some(logged_in) = json.as_ref().and_then(|json| json.get("loggedIn")).and_then(Value::as_bool)
        {
            let status = match logged_in {
                false => AuthStatus::Unauthenticated,
                true if verdicts::ended_well(end) => AuthStatus::Authenticated,
                true => AuthStatus::Unknown,
            };
            let method = json.as_ref().and_then(|json| json.get("authMethod")).and_then(Value::as_str);
            let detail = method.map(|method| redaction::one_line(&format!("login method {method}"), 160));
            return AuthFinding { status, detail };
        }
        let streams = [stdout, end.stderr_tail].map(str::to_lowercase);
        let negative = ["not logged in", "please run /login", "claude auth login", "login required"]
            .iter()
            .any(|phrase| streams.iter().any(|text| text.contains(phrase)));
        let line = |text: &str| text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
        AuthFinding {
            status: if negative { AuthStatus::Unauthenticated } else { AuthStatus::Unknown },
            detail: line(stdout)
                .or_else(|| line(end.stderr_tail))
                .map(|line| redaction::one_line(&line, 160)),
        }
    }

    fn login_command(&self) -> &'static str {
        "claude auth login"
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

    #[test]
    fn a_read_only_turn_has_no_tool_that_writes_runs_or_reaches_out() {
        let settings = settings("claude");
        let launch = Claude.launch(&request(&settings)).unwrap();
        assert_eq!(
            launch.args.join(" "),
            "-p --output-format stream-json --verbose --strict-mcp-config --mcp-config {\"mcpServers\":{}} \
             --setting-sources= --permission-mode plan --tools Read,Grep,Glob"
        );
        assert_eq!(launch.pass_env, ["CLAUDE_CONFIG_DIR"]);
        assert!(launch.env.is_empty());
    }

    #[test]
    fn the_calls_effort_outranks_the_standing_one() {
        let mut settings = settings("claude");
        settings.extra_args = ["--effort", "low"].map(String::from).to_vec();
        let mut request = request(&settings);
        request.effort = Some("high");
        let launch = Claude.launch(&request).unwrap();
        assert!(launch.args.join(" ").contains("--effort low --effort high "), "{:?}", launch.args);
        assert_eq!(launch.facts["effort"], "high");
    }

    #[test]
    fn a_prompt_is_no_command() {
        assert_eq!(Claude.input("/clear".into()), "\n/clear");
        assert_eq!(Claude.input("say /clear".into()), "say /clear");
    }

    #[test]
    fn a_resumed_turn_is_given_everything_again() {
        let settings = settings("claude");
        let mut request = request(&settings);
        request.resume = Some(ID);
        request.model = Some("opus");
        request.sandbox = Sandbox::WorkspaceWrite;
        let args = Claude.launch(&request).unwrap().args.join(" ");
        assert!(args.contains("--strict-mcp-config --mcp-config {\"mcpServers\":{}} --setting-sources= "));
        assert!(
            args.ends_with(&format!("--model opus --resume {ID} --permission-mode acceptEdits")),
            "{args}"
        );
        request.sandbox = Sandbox::FullAccess;
        let args = Claude.launch(&request).unwrap().args.join(" ");
        assert!(args.ends_with("--permission-mode bypassPermissions"));
        request.resume = Some("a title");
        assert!(matches!(Claude.launch(&request), Err(AgentError::ResumeIdRefused { .. })));
    }

    #[test]
    fn project_settings_stay_out_even_with_the_users_settings() {
        let mut settings = settings("claude");
        settings.use_user_config = true;
        let args = Claude.launch(&request(&settings)).unwrap().args;
        assert!(args.contains(&"--setting-sources=user".to_owned()));
        let mut strict = request(&settings);
        strict.strict = true;
        assert!(Claude.launch(&strict).unwrap().args.contains(&"--setting-sources=".to_owned()));
    }

    #[test]
    fn extra_arguments_that_raise_authority_are_refused_in_every_spelling() {
        for (args, flag) in [
            (&["--dangerously-skip-permissions"][..], "--dangerously-skip-permissions"),
            (&["--permission-mode", "bypassPermissions"], "--permission-mode"),
            (&["--permission-mode=bypassPermissions"], "--permission-mode"),
            (&["--allowedTools", "Bash"], "--allowedTools"),
            (&["--allowed-tools=Bash"], "--allowed-tools"),
            (&["--tools", "default"], "--tools"),
            (&["--mcp-config", "x.json"], "--mcp-config"),
            (&["--settings", "{}"], "--settings"),
            (&["--setting-sources=project"], "--setting-sources"),
            (&["--plugin-dir", "x"], "--plugin-dir"),
            (&["--agents", "{}"], "--agents"),
            (&["--add-dir", "/"], "--add-dir"),
            (&["--output-format", "text"], "--output-format"),
            (&["-c"], "-c"),
            (&["-pc"], "-p"),
            (&["-dp"], "-dp"),
            (&["--resume", ID], "--resume"),
            (&["--worktree"], "--worktree"),
            (&["--effort", "--dangerously-skip-permissions"], "--dangerously-skip-permissions"),
            (&["hello"], "hello"),
        ] {
            let mut settings = settings("claude");
            settings.extra_args = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert_eq!(refused_flag(Claude.launch(&request(&settings))), flag, "{args:?}");
        }
        let mut settings = settings("claude");
        settings.extra_args = ["--effort", "high", "--max-turns=3", "--append-system-prompt", "Be brief."]
            .map(String::from)
            .to_vec();
        let args = Claude.launch(&request(&settings)).unwrap().args;
        assert!(args.join(" ").ends_with("Be brief. --permission-mode plan --tools Read,Grep,Glob"));
    }

    #[test]
    fn the_login_probe_reads_json_from_standard_output_only() {
        let probe = |code, stderr_tail, stdout: &str| {
            Claude
                .parse_auth(&RunEnd { exit_code: Some(code), stderr_tail, ..RunEnd::default() }, stdout)
                .status
        };
        let yes = include_str!("../../tests/fixtures/streams/claude/auth-status-apikey.json");
        let no = include_str!("../../tests/fixtures/streams/claude/auth-status-none.json");
        assert_eq!(probe(0, "", yes), AuthStatus::Authenticated);
        assert_eq!(probe(0, "{\"loggedIn\":false} warning", yes), AuthStatus::Authenticated);
        assert_eq!(probe(0, "", &format!("warning: x\n{yes}\ntrailing")), AuthStatus::Authenticated);
        assert_eq!(probe(1, "", yes), AuthStatus::Unknown);
        assert_eq!(probe(1, "", no), AuthStatus::Unauthenticated);
        assert_eq!(probe(0, "", no), AuthStatus::Unauthenticated);
        assert_eq!(probe(0, yes, ""), AuthStatus::Unknown);
        assert_eq!(
            probe(1, "", include_str!("../../tests/fixtures/streams/claude/auth-status-none-text.txt")),
            AuthStatus::Unauthenticated
        );
        assert_eq!(probe(0, "", "garbage {"), AuthStatus::Unknown);
    }

    #[test]
    fn the_version_is_read() {
        assert_eq!(
            Claude.parse_version(include_str!("../../tests/fixtures/streams/claude/version.txt")).as_deref(),
            Some("2.1.332")
        );
    }
}
