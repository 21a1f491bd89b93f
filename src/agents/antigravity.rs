//! Google Antigravity's `agy`, from its published changelog and reports of others: no copy of it was at hand, so
//! nothing here is measured. It is tested against a stand-in that behaves as those reports say.
//!
//! Why the arguments look as they do:
//!
//! * The command line is read as Go's `flag` package reads it: one dash is as good as two, and the first word that is
//!   no flag ends the flags. So every value is glued on with `=`, and the prompt is last.
//! * The prompt travels on standard input where the version can read it there (1.1.14), else in the last argument, and
//!   then not for longer than Windows takes.
//! * A prompt that begins with `/` is a command since 1.1.9, some of them with effects of their own. Plan mode is carried
//!   by a slash command: switched off, it is silently off too. So a read-only run keeps them, and such a prompt is
//!   refused.
//! * `--print-timeout` is always longer than the run may take, since its end is told as a success (1.1.28).
//! * Without `--add-dir` a run may work in a folder of its own.
//! * The key ring's time-outs are told in the log alone.
//! * Modes are the agent's own restraint and no boundary of the system: `--sandbox` was seen to let files outside be written.
//!   The capability `sandbox` is therefore not claimed.

mod decoder;
mod envelope;
mod login;
mod parser;
pub(super) mod root;
mod version;
mod words;

use std::time::Duration;

use super::arguments::{AUTHORITY, FORMAT, Grammar, OWNED, PLACE, TOOLS, UNKNOWN};
use super::{
    Agent, AgentError, AuthFinding, AuthStatus, Capabilities, Endpoint, Failure, LOG_NAME, Launch,
    LaunchRequest, LoginAnswer, LoginQuestion, PrivateFiles, PromptWay, RunEnd, StreamParser, path_text,
    redaction, verdicts,
};
use crate::config::AgentConfig;
use crate::policy::{AgentId, ExecutionMode, Sandbox};
use version::{InputKey, NEWEST_KNOWN, OLDEST, Version};

/// What arguments and events here were written from.
const TESTED_VERSION: &str = "agy 1.1.8 to 1.3.5, by their published changes";

/// Longest prompt in an argument, in bytes. A command line of Windows takes 32,767 characters in all.
const ARGUMENT_BYTES: usize = 24 << 10;

/// How much longer the program's own time-out is than the run's deadline.
const BEYOND_DEADLINE: Duration = Duration::from_secs(60);

/// A program that replaces itself in the middle of a run is another one.
const NO_UPDATE: (&str, &str) = ("AGY_CLI_DISABLE_AUTO_UPDATE", "true");

/// The adapter.
pub(super) struct Antigravity;

/// With two dashes, as [`normalised`] writes them.
const GRAMMAR: Grammar = Grammar {
    agent: AgentId::Antigravity,
    refused: &[
        ("--dangerously-skip-permissions", AUTHORITY),
        ("--sandbox", AUTHORITY),
        ("--mode", AUTHORITY),
        ("--add-dir", AUTHORITY),
        ("--remote-control", AUTHORITY),
        ("--gemini_dir", PLACE),
        ("--conversation", PLACE),
        ("--c", PLACE),
        ("--continue", PLACE),
        ("--project", PLACE),
        ("--new-project", PLACE),
        ("--agent", TOOLS),
        ("--output-format", FORMAT),
        ("--input-format", FORMAT),
        ("--json-schema", FORMAT),
        ("--h", FORMAT),
        ("--help", FORMAT),
        ("--v", FORMAT),
        ("--version", FORMAT),
        ("--p", OWNED),
        ("--print", OWNED),
        ("--prompt", OWNED),
        ("--i", OWNED),
        ("--prompt-interactive", OWNED),
        ("--print-timeout", OWNED),
        ("--log-file", OWNED),
        ("--disable-slash-commands", OWNED),
        ("--model", OWNED),
    ],
    switches: &[],
    glued_values: false,
    // New versions bring new flags, and nobody here can look what they do.
    value: |flag, _| (flag != "--effort").then_some(UNKNOWN),
};

/// One dash is as good as two.
fn normalised(args: &[String]) -> Vec<String> {
    let dashes = |arg: &String| match arg.strip_prefix('-') {
        Some(rest) if !rest.is_empty() && !rest.starts_with('-') => format!("--{rest}"),
        _ => arg.clone(),
    };
    args.iter().map(dashes).collect()
}

/// What the run may do, as flags.
fn permission(sandbox: Sandbox, mode: Option<ExecutionMode>) -> &'static [&'static str] {
    match (sandbox, mode) {
        (Sandbox::ReadOnly, Some(ExecutionMode::Safe)) => &["--mode=plan", "--sandbox"],
        (Sandbox::ReadOnly, _) => &["--mode=plan"],
        (_, Some(ExecutionMode::Safe)) => &["--mode=accept-edits", "--sandbox"],
        (Sandbox::WorkspaceWrite, _) => &["--mode=accept-edits"],
        (Sandbox::FullAccess, _) => &["--dangerously-skip-permissions"],
    }
}

/// The word that the program would take for a command, if the prompt begins with one: `/goal`, not `/usr/bin`.
fn command_word(prompt: &str) -> Option<&str> {
    let word = prompt.split_whitespace().next()?;
    word.strip_prefix('/').filter(|rest| !rest.contains('/')).map(|_| word)
}

/// An id of a conversation: a name of a file, and never a flag.
pub(super) fn is_conversation_id(id: &str) -> bool {
    (8..=64).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

impl Agent for Antigravity {
    fn id(&self) -> AgentId {
        AgentId::Antigravity
    }

    fn display_name(&self) -> &'static str {
        "Antigravity CLI (unverified)"
    }

    fn is_verified(&self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resume: true,
            model: true,
            sandbox: false,
            structured_output: true,
            direct_remote_api: false,
            off_machine_egress: true,
            local_filesystem: true,
            independent_local_code_review: true,
        }
    }

    fn native_program_only(&self) -> bool {
        true
    }

    fn version_decides(&self) -> bool {
        true
    }

    fn launch(&self, request: &LaunchRequest<'_>) -> Result<Launch, AgentError> {
        super::check_request(self, request)?;
        let settings = request.settings;
        let known = request.cli_version.and_then(Version::parse);
        let version = Version::or_newest(request.cli_version);
        if version < OLDEST {
            return Err(AgentError::VersionUnsupported {
                agent: self.id(),
                version: version.to_string(),
                oldest: OLDEST.to_string(),
            });
        }
        let cwd = path_text(request.cwd)?;
        let plan = request.sandbox == Sandbox::ReadOnly;
        if plan
            && version.expands_slash_commands()
            && let Some(word) = command_word(request.prompt)
        {
            return Err(AgentError::PromptIsCommand {
                agent: self.id(),
                word: redaction::one_line(word, 40),
            });
        }
        let (prompt, last) = match version.input() {
            Some(InputKey::Event) => (PromptWay::UserLine { key: "event".into() }, "-p="),
            Some(InputKey::Type) => (PromptWay::UserLine { key: "type".into() }, "-p="),
            None if request.prompt.len() > ARGUMENT_BYTES => {
                return Err(AgentError::PromptTooLong {
                    agent: self.id(),
                    bytes: request.prompt.len(),
                    limit: ARGUMENT_BYTES,
                });
            }
            None => (PromptWay::LastArgument { flag: "-p=".into() }, ""),
        };
        let limit = request.timeout.saturating_add(BEYOND_DEADLINE).as_secs();
        let mut args = vec![
            "--output-format=stream-json".to_owned(),
            format!("--print-timeout={limit}s"),
            format!("--log-file={}", path_text(&request.run_dir.join(LOG_NAME))?),
            format!("--add-dir={cwd}"),
        ];
        if version.input().is_some() {
            args.push("--input-format=stream-json".into());
        }
        if version.expands_slash_commands() && !plan {
            args.push("--disable-slash-commands".into());
        }
        let isolated = !settings.use_user_config || request.strict;
        if isolated {
            args.push(format!("{}={}", root::FLAG, path_text(&root::folder(request.run_dir))?));
        }
        args.extend(permission(request.sandbox, request.execution_mode).iter().map(|arg| (*arg).to_owned()));
        if let Some(model) = request.model {
            args.push(format!("--model={model}"));
        }
        if let Some(id) = request.resume {
            args.push(format!("--conversation={id}"));
        }
        if let Some(schema) = request.report_schema {
            args.push(format!("--json-schema={schema}"));
        }
        if !request.strict {
            GRAMMAR.check(&normalised(&settings.extra_args))?;
            args.extend(settings.extra_args.iter().cloned());
        }
        let mut facts = serde_json::Map::new();
        // After the standing arguments, so that the call decides.
        if let Some(effort) = request.effort.filter(|_| version.takes_effort()) {
            args.push(format!("--effort={effort}"));
            facts.insert(super::TOLD_EFFORT.into(), effort.into());
        }
        if let Some(name) = request.own_agent {
            args.push(format!("--agent={name}"));
            facts.insert(super::TOLD_AGENT.into(), name.into());
        }
        if !last.is_empty() {
            args.push(last.to_owned());
        }
        let mut env = super::extra_env(request);
        env.insert(NO_UPDATE.0.into(), NO_UPDATE.1.into());
        let private = if isolated {
            root::files(request.run_dir, Some((cwd, request.sandbox)))
        } else {
            PrivateFiles::default()
        };
        let mut launch = Launch { args, env, prompt, private: Some(private), facts, ..Launch::default() };
        if known.is_none_or(|version| version > NEWEST_KNOWN) {
            launch.facts.insert("cliVersionUntested".into(), true.into());
        }
        Ok(launch)
    }

    fn takes_endpoint(&self, settings: &AgentConfig) -> Result<(), AgentError> {
        if settings.use_user_config {
            return Err(AgentError::EndpointNeedsIsolation(AgentId::Antigravity));
        }
        Ok(())
    }

    fn attach(
        &self,
        launch: &mut Launch,
        endpoint: &Endpoint,
        run_dir: &std::path::Path,
    ) -> Result<(), AgentError> {
        super::endpoint::attach_antigravity(launch, endpoint, run_dir)
    }

    fn parser(&self, resume: Option<&str>) -> Box<dyn StreamParser> {
        Box::new(parser::Parser::new(resume, TESTED_VERSION))
    }

    fn parse_version(&self, stdout: &str) -> Option<String> {
        verdicts::version_in(stdout)
    }

    fn auth_args(&self, version: Option<&str>) -> Option<Vec<String>> {
        Some(login::arguments(version))
    }

    fn parse_auth(&self, end: &RunEnd<'_>, stdout: &str) -> AuthFinding {
        let (status, detail) = match login::Question.answer(end, stdout, end.exit_code.is_some()) {
            LoginAnswer::Works => (AuthStatus::Authenticated, None),
            LoginAnswer::Unclear => (AuthStatus::Unknown, None),
            LoginAnswer::Fails(Failure::LoginRequired, why) => (AuthStatus::Unauthenticated, Some(why)),
            LoginAnswer::Fails(_, why) => (AuthStatus::Unknown, Some(why)),
        };
        AuthFinding { status, detail: detail.map(|line| redaction::one_line(&line, 160)) }
    }

    fn login_question(&self) -> Option<&'static dyn LoginQuestion> {
        Some(&login::Question)
    }

    fn login_command(&self) -> &'static str {
        "agy"
    }

    fn accepts_native_id(&self, id: &str) -> bool {
        is_conversation_id(id)
    }
}

#[cfg(test)]
mod tests;
