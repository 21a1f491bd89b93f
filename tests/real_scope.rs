//! The real CLIs beside an endpoint: what the adapters' arguments make of it, measured.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use agent_bridge::agents::endpoint::{SERVER, TOKEN_VARIABLE, bypass_proxies};
use agent_bridge::agents::{
    self, Endpoint, LaunchRequest, Outcome, PrivateFiles, Refusal, RunEnd, ServerRule, Verdict,
};
use agent_bridge::config::Config;
use agent_bridge::context::{Clock, Context};
use agent_bridge::policy::{AgentId, Sandbox};
use support::mcp_http::McpHttp;
use support::prelude::*;
use support::worker::Cli;

const TOKEN: &str = "5c09e0b1d2f34a5b6c7d8e9fa0b1c2d35c09e0b1d2f34a5b6c7d8e9fa0b1c2d3";
/// A tool that no client takes for a reading one.
const TOOL: &str = "submit_report";

/// A CLI beside an endpoint, in a home whose owner has servers of their own.
struct Beside {
    cli: Cli,
    world: World,
    model: MockModel,
    endpoint: McpHttp,
    config: Config,
}

impl Beside {
    fn start(cli: Cli, script: impl FnOnce(&World) -> Script) -> Option<Self> {
        let world = World::new().ceiling("full-access").build();
        let model = MockModel::start(script(&world));
        cli.register(&world, &model)?;
        let context = Context {
            env: world.env().clone(),
            home: Some(world.home()),
            cwd: world.repo(),
            exe: PathBuf::from("agent-bridge"),
            clock: Clock::System,
        };
        let config = agent_bridge::config::load(&context, Some(&world.config_path())).unwrap();
        let endpoint = McpHttp::start(TOKEN, &[TOOL, "note"]);
        let beside = Self { cli, world, model, endpoint, config };
        beside.register_servers_of_the_user();
        Some(beside)
    }

    /// Started servers leave this file.
    fn trace(&self) -> PathBuf {
        self.world.outside().join("started")
    }

    fn register_servers_of_the_user(&self) {
        let touch = json!({ "command": "touch", "args": [self.trace()] });
        let servers = json!({ "mcpServers": { "mine": touch } });
        std::fs::write(self.world.home().join(".claude.json"), servers.to_string()).unwrap();
        std::fs::write(self.world.repo().join(".mcp.json"), servers.to_string()).unwrap();
        self.world.git(["add", "."]);
        self.world.git(["commit", "-qm", "a server of the project's"]);
        let gemini = self.world.home().join(".gemini").join("settings.json");
        if let Ok(bytes) = std::fs::read(&gemini) {
            let mut own: Value = serde_json::from_slice(&bytes).unwrap();
            own["mcpServers"] = servers["mcpServers"].clone();
            std::fs::write(gemini, own.to_string()).unwrap();
        }
        let codex = self.world.home().join(".codex").join("config.toml");
        if let Ok(mut text) = std::fs::read_to_string(&codex) {
            text.push_str(&format!(
                "\n[mcp_servers.mine]\ncommand = \"touch\"\nargs = [{}]\n",
                json!(self.trace())
            ));
            std::fs::write(codex, text).unwrap();
        }
    }

    fn agent(&self) -> AgentId {
        AgentId::parse(self.cli.id()).unwrap()
    }

    /// A turn as the adapter would have it started.
    fn command(&self, sandbox: Sandbox, token: &str) -> Command {
        let settings = &self.config.agents[&self.agent()];
        let agent = agents::require(self.agent()).unwrap();
        let (repo, run_dir) = (self.world.repo(), self.world.outside().join("run"));
        let request = LaunchRequest {
            effort: None,
            own_agent: None,
            cwd: &repo,
            prompt: "",
            sandbox,
            execution_mode: None,
            timeout: Duration::from_secs(600),
            model: settings.default_model.as_deref(),
            resume: None,
            settings,
            strict: false,
            run_dir: &run_dir,
            cli_version: None,
            report_schema: None,
        };
        let mut launch = agent.launch(&request).unwrap();
        let endpoint = Endpoint {
            url: self.endpoint.url().to_owned(),
            tools: vec![TOOL.to_owned()],
            call_timeout: Duration::from_secs(100),
            token_variable: TOKEN_VARIABLE,
        };
        agent.attach(&mut launch, &endpoint, &run_dir).unwrap();
        bypass_proxies(&mut launch.env, |_| None);
        self.fill(&run_dir, launch.private.as_ref());
        let mut command = self.world.command(&settings.bin);
        command.args(&launch.args).envs(&launch.env).env(TOKEN_VARIABLE, token);
        // Nothing may be reached through it.
        command.env("HTTP_PROXY", "http://127.0.0.1:9").env("HTTPS_PROXY", "http://127.0.0.1:9");
        command.env("IS_SANDBOX", "1");
        command
    }

    /// The run folder, as a supervisor would have it.
    fn fill(&self, run_dir: &Path, private: Option<&PrivateFiles>) {
        let Some(private) = private else { return };
        let _ = std::fs::remove_dir_all(run_dir);
        std::fs::create_dir_all(run_dir).unwrap();
        for file in &private.files {
            let mut content = file.content_with(TOKEN);
            for taken in &file.inherits {
                let theirs = std::fs::read(self.world.home().join(&taken.from_home)).unwrap();
                let theirs: Value = serde_json::from_slice(&theirs).unwrap();
                let mut planned: Value = serde_json::from_str(&content).unwrap();
                let keys: Vec<&str> = taken.pointer.split('/').skip(1).collect();
                if let ([section, key], Some(value)) = (keys.as_slice(), theirs.pointer(&taken.pointer)) {
                    planned[section][key] = value.clone();
                }
                content = planned.to_string();
            }
            std::fs::create_dir_all(file.path.parent().unwrap()).unwrap();
            std::fs::write(&file.path, content).unwrap();
        }
    }

    /// What the adapter makes of a run.
    fn verdict(&self, finished: &Finished) -> Verdict {
        let mut parser = agents::require(self.agent()).unwrap().parser(None);
        parser.servers(ServerRule::Only);
        if self.endpoint.was_listed() {
            parser.endpoint_asked();
        }
        for line in finished.stdout().lines() {
            parser.line(line.as_bytes());
        }
        let stderr = finished.stderr();
        let end = RunEnd {
            exit_code: finished.code.map(i64::from),
            signal: None,
            stderr_tail: &stderr,
            stdout_bytes: finished.stdout().len() as u64,
            log_tail: "",
        };
        parser.finish(&end)
    }

    /// Runs a turn whose model calls the endpoint, and looks at the processes during the call.
    fn run(&self, sandbox: Sandbox, prompt: &str) -> Verdict {
        let running = process::start_with_input(self.command(sandbox, TOKEN), prompt.as_bytes());
        let call = self.endpoint.wait_for_call(DEADLINE);
        assert_eq!(call.authorization, format!("Bearer {TOKEN}"));
        let shown: Vec<u32> = processes_that_show(TOKEN);
        assert_eq!(shown, [] as [u32; 0], "the token is among the arguments of these processes");
        self.endpoint.release();
        let finished = running.finish(DEADLINE);
        let verdict = self.verdict(&finished);
        assert_eq!(verdict.outcome, Outcome::Success, "{:?}\n{finished}", verdict.detail);
        verdict
    }
}

/// Processes whose arguments hold a text, its own caller's tests among them.
fn processes_that_show(text: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let arguments = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(text)
    })
    .collect()
}

/// Files below a folder that hold a text.
fn files_that_hold(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file()
                && std::fs::read(&path)
                    .is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
            {
                found.push(path);
            }
        }
    }
    found
}

fn calls_then_writes(world: &World) -> Script {
    let call = reply().mcp_tool(SERVER, TOOL, json!({ "summary": "done", "outcome": "done" }));
    let write = reply().write_file(world.file("written.txt").to_string_lossy(), "written\n");
    let tell = reply_with(|request| reply().text(format!("Told: {}", request.tool_results().concat())));
    Script::new().scenario("report", [call, write, tell])
}

/// In each mode the tool is called with the token; reading still writes nothing; nobody else's server is started.
fn the_endpoint_is_called_and_nothing_else_is_allowed(cli: Cli) {
    for sandbox in [Sandbox::ReadOnly, Sandbox::WorkspaceWrite, Sandbox::FullAccess] {
        let Some(beside) = Beside::start(cli, calls_then_writes) else { return };
        let verdict = beside.run(sandbox, "scenario:report");
        let told = &verdict.answer;
        assert!(told.contains("kept by the endpoint"), "{sandbox}: {told}");
        let calls = beside.endpoint.calls();
        assert_eq!(calls, [(TOOL.to_owned(), json!({ "summary": "done", "outcome": "done" }))], "{sandbox}");
        assert_eq!(beside.endpoint.refused(), 0, "{sandbox}");
        let written = beside.world.git(["status", "--porcelain"]);
        assert_eq!(written.is_empty(), sandbox == Sandbox::ReadOnly, "{sandbox}: {written}");
        assert!(!beside.trace().exists(), "{sandbox}: a server of the user's or the project's was started");
        // The model service gets what the model is shown; neither that nor what the CLI keeps has the token.
        for kept in [beside.world.home(), beside.world.outside()] {
            assert_eq!(files_that_hold(&kept, TOKEN), [] as [PathBuf; 0], "{sandbox}");
        }
        // It is offered what the run was given, not all that the endpoint has.
        let offered = beside.model.turns("report").remove(0).body["tools"].to_string();
        assert!(!offered.contains(&format!("{SERVER}_note")), "{sandbox}: {offered}");
        for request in beside.model.requests() {
            assert!(!request.body.to_string().contains(TOKEN), "{sandbox}: the model is shown the token");
        }
        beside.world.assert_no_process_left(DEADLINE);
    }
}

/// The shell of a read-only turn neither writes nor finds the token.
fn the_commands_of_a_model_do_not_see_the_token(cli: Cli) {
    let script = |_: &World| {
        let call = reply().mcp_tool(SERVER, TOOL, json!({ "summary": "done" }));
        let tell = reply_with(|request| reply().text(format!("Told: {}", request.tool_results().concat())));
        Script::new().scenario("env", [call, reply().shell("env; echo x > shell.txt"), tell])
    };
    let Some(beside) = Beside::start(cli, script) else { return };
    let verdict = beside.run(Sandbox::ReadOnly, "scenario:env");
    assert!(
        !verdict.answer.contains(TOKEN) && !verdict.answer.contains(TOKEN_VARIABLE),
        "{}",
        verdict.answer
    );
    assert_eq!(beside.world.git(["status", "--porcelain"]), "");
}

/// An endpoint that cannot be used is found by the adapter, whatever the exit code says.
fn an_endpoint_that_refuses_the_token_is_missing(cli: Cli) {
    let Some(beside) = Beside::start(cli, calls_then_writes) else { return };
    beside.endpoint.release();
    let command = beside.command(Sandbox::ReadOnly, "another-token");
    let finished = process::run_with_input(command, b"scenario:report", DEADLINE);
    let verdict = beside.verdict(&finished);
    assert_eq!(Refusal::of(&verdict), Some(Refusal::Missing), "{:?}\n{finished}", verdict.detail);
    assert!(beside.endpoint.refused() > 0);
}

#[test]
fn claude_calls_the_endpoint_and_may_do_nothing_else() {
    the_endpoint_is_called_and_nothing_else_is_allowed(Cli::Claude);
}

#[test]
fn codex_calls_the_endpoint_and_may_do_nothing_else() {
    the_endpoint_is_called_and_nothing_else_is_allowed(Cli::Codex);
}

#[test]
fn gemini_calls_the_endpoint_and_may_do_nothing_else() {
    the_endpoint_is_called_and_nothing_else_is_allowed(Cli::Gemini);
}

#[test]
fn commands_of_gemini_do_not_see_the_token() {
    the_commands_of_a_model_do_not_see_the_token(Cli::Gemini);
}

#[test]
fn gemini_without_its_endpoint_is_found_out() {
    an_endpoint_that_refuses_the_token_is_missing(Cli::Gemini);
}

#[test]
fn commands_of_claude_do_not_see_the_token() {
    the_commands_of_a_model_do_not_see_the_token(Cli::Claude);
}

#[test]
fn commands_of_codex_do_not_see_the_token() {
    the_commands_of_a_model_do_not_see_the_token(Cli::Codex);
}

#[test]
fn claude_without_its_endpoint_is_found_out() {
    an_endpoint_that_refuses_the_token_is_missing(Cli::Claude);
}

#[test]
fn codex_without_its_endpoint_is_found_out() {
    an_endpoint_that_refuses_the_token_is_missing(Cli::Codex);
}

/// Claude Code's own list of servers is empty without an endpoint: the rule for that holds with the real one.
#[test]
fn claude_without_an_endpoint_lists_no_server() {
    let script = |_: &World| Script::new().scenario("hello", [reply().text("Hello.")]);
    let Some(beside) = Beside::start(Cli::Claude, script) else { return };
    let mut host = beside.world.host();
    host.initialize();
    let arguments = json!({ "agent": "claude", "prompt": "scenario:hello", "cwd": beside.world.repo(), "wait_seconds": 120 });
    let turn = host.call("delegate_task", arguments).ok();
    assert_eq!(turn.structured["outcome"], "success", "{:#}", turn.structured);
    assert!(!beside.trace().exists());
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
}
