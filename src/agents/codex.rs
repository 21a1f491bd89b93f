//! The Codex CLI, measured with 0.171.0: `codex exec --json`, prompt on standard input.
//!
//! What was measured and why the argument list looks as it does:
//!
//! * A resumed session keeps none of its rights, and `exec resume` itself has no `-s` or `-C`, so
//!   both stand before `resume` on every turn. `-s` wins over `sandbox_mode` and
//!   `default_permissions` of the user's settings; the same mode is given again as
//!   `-c sandbox_mode`, after all extra arguments, where the last one wins.
//! * `--ignore-user-config` does not cover `$CODEX_HOME/rules`. An `allow` rule there, for instance
//!   one that the user once confirmed in the terminal, runs its command *outside* the sandbox, even in a
//!   read-only turn. `--ignore-rules` is therefore always given.
//! * With `useUserConfig` the user's MCP servers are started (they cannot be emptied from the command
//!   line: tables are merged) and count as knowingly accepted. What would widen the sandbox is
//!   still pinned: the working folder is treated as untrusted, so a checked-out `.codex` folder
//!   cannot add servers, and network access and further writable folders are off.
//! * A refused connection is retried for ever unless the feature `unbounded_connection_retries` is
//!   off. It is set as a config value: an unknown name is then only remarked upon, while
//!   `--disable NAME` with an unknown name ends the CLI.

mod parser;
mod settings;

use std::path::Path;

use super::arguments::{AUTHORITY, FORMAT, Grammar, OWNED, PLACE, TOOLS};
use super::{
    Agent, AgentError, AuthFinding, AuthStatus, Capabilities, Endpoint, Launch, LaunchRequest, PrivateFiles,
    RunEnd, StreamParser, endpoint, path_text, redaction, verdicts,
};
use crate::config::AgentConfig;
use crate::policy::{AgentId, Sandbox};
use crate::process::PoliteStop;

/// Version that the arguments and events here were measured with.
const TESTED_VERSION: &str = "Codex CLI 0.171.0";

/// The adapter.
pub(super) struct Codex;

const GRAMMAR: Grammar = Grammar {
    agent: AgentId::Codex,
    refused: &[
        ("-s", AUTHORITY),
        ("--sandbox", AUTHORITY),
        ("-a", AUTHORITY),
        ("--ask-for-approval", AUTHORITY),
        ("--approve-for-me", AUTHORITY),
        ("--full-auto", AUTHORITY),
        ("--yolo", AUTHORITY),
        ("--dangerously-bypass-approvals-and-sandbox", AUTHORITY),
        ("--dangerously-bypass-hook-trust", AUTHORITY),
        ("--trust", AUTHORITY),
        ("--add-dir", AUTHORITY),
        ("--search", AUTHORITY),
        ("--cyber-access-program", AUTHORITY),
        ("-p", TOOLS),
        ("--profile", TOOLS),
        ("-C", PLACE),
        ("--cd", PLACE),
        ("--worktree", PLACE),
        ("--remote", PLACE),
        ("--remote-auth-token-env", PLACE),
        ("--last", PLACE),
        ("--all", PLACE),
        ("--json", OWNED),
        ("--experimental-json", FORMAT),
        ("-o", FORMAT),
        ("--output-last-message", FORMAT),
        ("--output-schema", OWNED),
        ("-h", FORMAT),
        ("--help", FORMAT),
        ("-V", FORMAT),
        ("--version", FORMAT),
        ("-m", OWNED),
        ("--model", OWNED),
        ("--ignore-user-config", OWNED),
        ("--ignore-rules", OWNED),
        ("--skip-git-repo-check", OWNED),
    ],
    switches: &["--oss", "--strict-config", "--ephemeral"],
    glued_values: true,
    value: settings::refused,
};

/// A parser of Codex's event stream, for every agent that speaks it.
pub(super) fn parser(resume: Option<&str>, tested_version: &'static str) -> Box<dyn StreamParser> {
    Box::new(parser::Parser::new(resume, tested_version))
}

/// The CLI's name of a mode.
fn mode(sandbox: Sandbox) -> &'static str {
    match sandbox {
        Sandbox::ReadOnly => "read-only",
        Sandbox::WorkspaceWrite => "workspace-write",
        Sandbox::FullAccess => "danger-full-access",
    }
}

/// Text as a TOML basic string; JSON's escapes are a subset of TOML's.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Agent for Codex {
    fn id(&self) -> AgentId {
        AgentId::Codex
    }

    fn display_name(&self) -> &'static str {
        "Codex CLI"
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
        let cwd = path_text(request.cwd)?;
        let settings = request.settings;
        let mode = mode(request.sandbox);
        let mut args: Vec<String> = vec!["exec".into()];
        if request.resume.is_none() {
            args.push("--json".into());
        }
        args.push("--skip-git-repo-check".into());
        let user_config = settings.use_user_config && !request.strict;
        if !user_config {
            args.push("--ignore-user-config".into());
        }
        args.extend(["--ignore-rules", "-C", cwd, "-s", mode].map(String::from));
        args.extend(["-c", "features.unbounded_connection_retries=false"].map(String::from));
        // `resume` takes the model itself, so that the recorded model is not used instead.
        if let (Some(model), None) = (request.model, request.resume) {
            args.extend(["--model".into(), model.into()]);
        }
        if !request.strict {
            GRAMMAR.check(&settings.extra_args)?;
            args.extend(settings.extra_args.iter().cloned());
        }
        let mut facts = serde_json::Map::new();
        // After the standing arguments, so that the call decides.
        if let Some(effort) = request.effort {
            args.extend(["-c".into(), format!("model_reasoning_effort=\"{effort}\"")]);
            facts.insert(super::TOLD_EFFORT.into(), effort.into());
        }
        let mut pin = |setting: String| args.extend(["-c".into(), setting]);
        pin("approval_policy=\"never\"".into());
        pin(format!("sandbox_mode=\"{mode}\""));
        if user_config {
            pin("sandbox_workspace_write.network_access=false".into());
            pin("sandbox_workspace_write.writable_roots=[]".into());
            pin(format!("projects={{{}={{trust_level=\"untrusted\"}}}}", toml_string(cwd)));
        }
        if let Some(id) = request.resume {
            args.extend(["resume", "--json", id].map(String::from));
            if let Some(model) = request.model {
                args.extend(["-m".into(), model.into()]);
            }
        }
        let mut private = None;
        if let Some(schema) = request.report_schema {
            let file = request.run_dir.join("report-schema.json");
            args.extend(["--output-schema".into(), path_text(&file)?.to_owned()]);
            private = Some(PrivateFiles::one(file, schema.to_string()));
        }
        args.push("-".into());
        let pass_env = super::passed(self.home_variables());
        Ok(Launch { args, env: super::extra_env(request), pass_env, private, facts, ..Launch::default() })
    }

    fn takes_endpoint(&self, settings: &AgentConfig) -> Result<(), AgentError> {
        if settings.use_user_config {
            return Err(AgentError::EndpointNeedsIsolation(AgentId::Codex));
        }
        Ok(())
    }

    fn attach(&self, launch: &mut Launch, endpoint: &Endpoint, _run_dir: &Path) -> Result<(), AgentError> {
        endpoint::attach_codex(launch, endpoint)
    }

    fn home_variables(&self) -> &'static [&'static str] {
        &["CODEX_HOME"]
    }

    fn parser(&self, resume: Option<&str>) -> Box<dyn StreamParser> {
        parser(resume, TESTED_VERSION)
    }

    fn parse_version(&self, stdout: &str) -> Option<String> {
        verdicts::version_in(stdout)
    }

    fn auth_args(&self, _version: Option<&str>) -> Option<Vec<String>> {
        Some(["login", "status"].map(String::from).to_vec())
    }

    fn parse_auth(&self, end: &RunEnd<'_>, stdout: &str) -> AuthFinding {
        // The probe answers on standard error; the negative is looked for first, in both streams.
        let streams = [end.stderr_tail, stdout].map(str::to_lowercase);
        let says =
            |phrases: &[&str]| streams.iter().any(|text| phrases.iter().any(|phrase| text.contains(phrase)));
        let status =
            if says(&["not logged in", "login required", "logged out", "please log in", "run codex login"]) {
                AuthStatus::Unauthenticated
            } else if verdicts::ended_well(end)
                && says(&["logged in", "api key configured", "authentication is checked when you send"])
            {
                AuthStatus::Authenticated
            } else {
                AuthStatus::Unknown
            };
        let line = |text: &str| {
            text.lines()
                .map(str::trim)
                .find(|line| !line.is_empty() && !line.starts_with("WARNING"))
                .map(str::to_owned)
        };
        let detail =
            line(end.stderr_tail).or_else(|| line(stdout)).map(|line| redaction::one_line(&line, 160));
        AuthFinding { status, detail }
    }

    fn login_command(&self) -> &'static str {
        "codex login"
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

    fn args(change: impl FnOnce(&mut LaunchRequest<'_>)) -> Vec<String> {
        let settings = settings("codex");
        let mut request = request(&settings);
        change(&mut request);
        Codex.launch(&request).unwrap().args
    }

    #[test]
    fn a_fresh_turn_states_place_and_authority_and_reads_standard_input() {
        let args = args(|request| request.model = Some("gpt-5.5"));
        assert_eq!(
            args.join(" "),
            "exec --json --skip-git-repo-check --ignore-user-config --ignore-rules -C /project -s read-only \
             -c features.unbounded_connection_retries=false --model gpt-5.5 \
             -c approval_policy=\"never\" -c sandbox_mode=\"read-only\" -"
        );
    }

    #[test]
    fn the_calls_effort_outranks_the_standing_one() {
        let mut settings = settings("codex");
        settings.extra_args = ["-c", "model_reasoning_effort=\"low\""].map(String::from).to_vec();
        let mut request = request(&settings);
        request.effort = Some("high");
        let launch = Codex.launch(&request).unwrap();
        let efforts: Vec<&String> = launch.args.iter().filter(|arg| arg.contains("effort")).collect();
        assert_eq!(efforts, ["model_reasoning_effort=\"low\"", "model_reasoning_effort=\"high\""]);
        assert_eq!(launch.facts["effort"], "high");
    }

    #[test]
    fn a_resumed_turn_states_the_same_authority_before_the_subcommand() {
        let args = args(|request| {
            request.resume = Some(ID);
            request.model = Some("gpt-5.5");
            request.sandbox = Sandbox::WorkspaceWrite;
        });
        let joined = args.join(" ");
        let (before, after) = joined.split_once(" resume ").unwrap();
        assert!(before.starts_with(
            "exec --skip-git-repo-check --ignore-user-config --ignore-rules -C /project -s workspace-write "
        ));
        assert!(before.ends_with("-c approval_policy=\"never\" -c sandbox_mode=\"workspace-write\""));
        assert_eq!(after, format!("--json {ID} -m gpt-5.5 -"));
    }

    #[test]
    fn every_turn_carries_exactly_the_granted_mode() {
        for (sandbox, name) in [
            (Sandbox::ReadOnly, "read-only"),
            (Sandbox::WorkspaceWrite, "workspace-write"),
            (Sandbox::FullAccess, "danger-full-access"),
        ] {
            for resume in [None, Some(ID)] {
                let args = args(|request| {
                    request.sandbox = sandbox;
                    request.resume = resume;
                });
                let modes: Vec<_> = args
                    .iter()
                    .filter(|arg| {
                        mode(Sandbox::FullAccess) == *arg
                            || mode(Sandbox::ReadOnly) == *arg
                            || mode(Sandbox::WorkspaceWrite) == *arg
                    })
                    .collect();
                assert_eq!(modes, [name]);
                assert!(args.contains(&format!("sandbox_mode=\"{name}\"")));
                assert!(args.contains(&"--ignore-rules".to_owned()));
            }
        }
    }

    #[test]
    fn the_users_config_can_be_loaded_but_cannot_widen_the_sandbox() {
        let mut settings = settings("codex");
        settings.use_user_config = true;
        let args = Codex.launch(&request(&settings)).unwrap().args;
        assert!(!args.contains(&"--ignore-user-config".to_owned()));
        assert!(args.contains(&"--ignore-rules".to_owned()));
        assert!(args.contains(&"projects={\"/project\"={trust_level=\"untrusted\"}}".to_owned()));
        let mut strict = request(&settings);
        strict.strict = true;
        assert!(Codex.launch(&strict).unwrap().args.contains(&"--ignore-user-config".to_owned()));
    }

    #[test]
    fn extra_arguments_stand_before_the_pinned_settings_and_vanish_in_strict_turns() {
        let mut settings = settings("codex");
        settings.extra_args = [
            "-c",
            "model_providers.x.base_url=\"http://127.0.0.1:1/v1\"",
            "--disable",
            "plugins",
            "-canalytics.enabled=false",
        ]
        .map(String::from)
        .to_vec();
        settings.extra_env.insert("MOCK_KEY".into(), "x".into());
        let launch = Codex.launch(&request(&settings)).unwrap();
        let at = |text: &str| launch.args.iter().position(|arg| arg == text).unwrap();
        assert!(at("-canalytics.enabled=false") < at("sandbox_mode=\"read-only\""));
        assert_eq!(launch.env.len(), 1);
        let mut strict = request(&settings);
        strict.strict = true;
        let launch = Codex.launch(&strict).unwrap();
        assert!(!launch.args.iter().any(|arg| arg.contains("analytics")));
        assert!(launch.env.is_empty());
    }

    #[test]
    fn extra_arguments_that_raise_authority_are_refused_in_every_spelling() {
        for (args, flag) in [
            (&["--yolo"][..], "--yolo"),
            (&["-s", "danger-full-access"], "-s"),
            (&["-sdanger-full-access"], "-s"),
            (&["--sandbox=danger-full-access"], "--sandbox"),
            (&["--dangerously-bypass-approvals-and-sandbox"], "--dangerously-bypass-approvals-and-sandbox"),
            (&["-C", "/"], "-C"),
            (&["--cd=/"], "--cd"),
            (&["-p", "mine"], "-p"),
            (&["--add-dir", "/"], "--add-dir"),
            (&["-c", "sandbox_mode=\"danger-full-access\""], "-c sandbox_mode"),
            (&["-csandbox_mode=x"], "-c sandbox_mode"),
            (
                &["-c", " sandbox_workspace_write.network_access = true"],
                "-c sandbox_workspace_write.network_access",
            ),
            (&["--config=approval_policy=\"on-request\""], "--config approval_policy"),
            (&["-c", "mcp_servers.x.command=\"sh\""], "-c mcp_servers.x.command"),
            (&["-c", "permissions.x.filesystem={}"], "-c permissions.x.filesystem"),
            (&["-c", "default_permissions=\":danger-full-access\""], "-c default_permissions"),
            (&["-c", "shell_environment_policy.inherit=all"], "-c shell_environment_policy.inherit"),
            (&["-c", "projects={}"], "-c projects"),
            (&["-c", "profile=\"x\""], "-c profile"),
            (&["-c", "profiles.x.sandbox_mode=\"x\""], "-c profiles.x.sandbox_mode"),
            (&["-c", "notify=[\"sh\"]"], "-c notify"),
            (&["-c", "\"sandbox_mode\"=1"], "-c \"sandbox_mode\""),
            (&["-c", "features={exec_permission_approvals=true}"], "-c features"),
            (&["-c", "agents.x.config_file=\"/x.toml\""], "-c agents.x.config_file"),
            (&["--dangerously-anything-new"], "--dangerously-anything-new"),
            (&["--enable", "request_permissions_tool"], "--enable request_permissions_tool"),
            (&["--json"], "--json"),
            (&["-o", "/x"], "-o"),
            (&["--output-last-message=/x"], "--output-last-message"),
            (&["--model", "x"], "--model"),
            (&["--remote", "x"], "--remote"),
            (&["review"], "review"),
            (&["--ephemeral", "review"], "review"),
            (&["-"], "-"),
        ] {
            let mut settings = settings("codex");
            settings.extra_args = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert_eq!(refused_flag(Codex.launch(&request(&settings))), flag, "{args:?}");
        }
    }

    /// Whatever Codex would run stands outside of the sandbox, with the user's own rights.
    #[test]
    fn extra_arguments_that_start_programs_are_refused_however_deep_they_are_hidden() {
        for (args, flag) in [
            (&["-c", "model_providers.x.auth.command=\"sh\""][..], "-c model_providers.x.auth.command"),
            (&["-cmodel_providers.x.auth.command=sh"], "-c model_providers.x.auth.command"),
            (&["--config=model_providers.x.auth={command=\"sh\"}"], "--config model_providers.x.auth"),
            (&["-c", "model_providers.x={name=\"x\",auth={command=\"sh\",args=[]}}"], "-c model_providers.x"),
            (&["-c", "model_providers={x={auth.command=\"sh\"}}"], "-c model_providers"),
            (&["-c", "model_providers={\"x\"={\"auth\"={\"command\"=\"sh\"}}}"], "-c model_providers"),
            (&["-c", " model_providers . \"x\" . Auth = {}"], "-c model_providers . \"x\" . Auth"),
            (&["-c", "model_providers.x.token_command=\"sh\""], "-c model_providers.x.token_command"),
            (&["-c", "otel.exporter=[{headers-helper=\"sh\"}]"], "-c otel.exporter"),
            (&["-c", "zsh_path=\"/tmp/x\""], "-c zsh_path"),
            (&["-c", "js_repl_node_path=\"/tmp/x\""], "-c js_repl_node_path"),
            (&["-c", "skills.config=[]"], "-c skills.config"),
            (&["-c", "marketplaces.x.source=\"y\""], "-c marketplaces.x.source"),
        ] {
            let mut settings = settings("codex");
            settings.extra_args = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert_eq!(refused_flag(Codex.launch(&request(&settings))), flag, "{args:?}");
        }
        let provider = "model_providers.x={name=\"x\",base_url=\"http://127.0.0.1/v1\",env_key=\"K\",\
                        wire_api=\"responses\",http_headers={\"X-Auth\"=\"1\"},requires_openai_auth=false}";
        for setting in [
            provider,
            "model_providers.x.env_http_headers={\"X-Command\"=\"NAME\"}",
            "preferred_auth_method=\"apikey\"",
            "cli_auth_credentials_store=\"file\"",
            "model_reasoning_effort=\"high\"",
            "developer_instructions=run the command {auth = 1}",
        ] {
            let mut settings = settings("codex");
            settings.extra_args = vec!["-c".into(), setting.into()];
            assert!(Codex.launch(&request(&settings)).is_ok(), "{setting}");
        }
    }

    #[test]
    fn the_login_probe_believes_the_negative_first() {
        let probe = |code, stderr_tail, stdout| {
            Codex.parse_auth(&RunEnd { exit_code: Some(code), stderr_tail, ..RunEnd::default() }, stdout)
        };
        assert_eq!(probe(0, "Not logged in", "").status, AuthStatus::Unauthenticated);
        assert_eq!(probe(1, "Not logged in\n", "").status, AuthStatus::Unauthenticated);
        assert_eq!(
            probe(0, "WARNING: x\nNot logged in", "Logged in using ChatGPT").status,
            AuthStatus::Unauthenticated
        );
        assert_eq!(probe(0, "Logged in using ChatGPT", "").status, AuthStatus::Authenticated);
        assert_eq!(probe(1, "Logged in using ChatGPT", "").status, AuthStatus::Unknown);
        assert_eq!(probe(0, "", "").status, AuthStatus::Unknown);
        let key = include_str!("../../tests/fixtures/streams/codex/login-status-apikey.stderr.txt");
        let finding = probe(0, key, "");
        assert_eq!(finding.status, AuthStatus::Authenticated);
        assert!(!finding.detail.unwrap().contains("67890"));
    }

    #[test]
    fn the_version_is_read_and_ids_must_be_uuids() {
        assert_eq!(
            Codex.parse_version(include_str!("../../tests/fixtures/streams/codex/version.txt")).as_deref(),
            Some("0.171.0")
        );
        assert!(Codex.accepts_native_id(ID) && !Codex.accepts_native_id("--last"));
        assert_eq!(Codex.polite_stop(), PoliteStop::InterruptRoot);
        let settings = settings("codex");
        let mut request = request(&settings);
        request.resume = Some("--last");
        assert!(matches!(Codex.launch(&request), Err(AgentError::ResumeIdRefused { .. })));
    }
}
