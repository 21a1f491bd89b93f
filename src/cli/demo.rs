//! `agent-bridge demo`: the main job, end to end, as an MCP host would do it.
//!
//! Everything happens in a throwaway folder with the real program: a git repository, a config, `serve`
//! started as a child and spoken to over its standard streams. No account is needed: two scripted agents
//! play the workers, unless `--agent` names a real one.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::TokioChildProcess;
use serde_json::{Map, Value, json};

use super::demo_release;
use super::output::{Output, duration};
use super::paste;
use super::story::{Story, millis};
use crate::agents::mock_program;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::policy::AgentId;

crate::codes! {
    DEMO_FAILED { exit: VerificationFailed, retryable: false,
        cause: "A step of the demo did not do what it should.",
        remedy: "Look at the step above; the demo's folder is kept. `agent-bridge doctor` checks the installation." }
    DEMO_AGENT_NOT_READY { exit: Refused, retryable: false,
        cause: "The agent named with --agent is not installed or not logged in.",
        remedy: "Run `agent-bridge doctor`, or leave --agent out to use the built-in scripted agent." }
}

/// See the main job, or a release's life, in a throwaway folder.
///
/// The main job is: delegate, continue, write, hand off, page, cancel. It needs no account: scripted agents play the workers. With --agent the first worker is the real one, and its
/// provider is called. With --release it shows the life of a release instead: install, canary, cutover, a crash in the
/// middle of one, recovery, rollback.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show how a release is installed, proven, switched to and back, in a throwaway installation.
    #[arg(long, conflicts_with = "agent")]
    release: bool,
    /// Use this real agent as the first worker: codex or claude.
    #[arg(long, value_parser = ["codex", "claude"])]
    agent: Option<String>,
    /// Folder to work in; it must not exist yet (default: a new temporary folder).
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Remove the folder afterwards.
    #[arg(long)]
    pub(super) clean: bool,
    /// Print one JSON document instead of the story.
    #[arg(long)]
    pub(super) json: bool,
}

/// Lines of the long answer.
const LONG_LINES: usize = 2_000;

pub fn run(context: &Context, args: Args, output: &mut Output) -> Result<Exit> {
    if args.release {
        return demo_release::run(context, &args, output);
    }
    let began = Instant::now();
    let stage = Stage::set(context, &args)?;
    let mut story = Story::new(output, args.json);
    story.heading(&format!("The demo works in {}", stage.dir.display()));
    let result = super::event_loop()?.block_on(play(context, &stage, &mut story));
    let steps = std::mem::take(&mut story.steps);
    if args.clean && result.is_ok() {
        let _ = std::fs::remove_dir_all(&stage.dir);
    }
    result?;
    if args.json {
        let document = json!({ "dir": stage.dir, "ok": true, "steps": steps, "durationMs": millis(began) });
        output.document("demo", &document);
        return Ok(Exit::Ok);
    }
    output.line(format!("\nAll of it took {}.", duration(millis(began))));
    let program = name_to_type(context);
    if !args.clean {
        output.line(format!("\nEverything is still there:\n  repository  {}", stage.repo.display()));
        output.line(format!("  config      {}", stage.config.display()));
        output.line(format!("  state       {}", stage.state.display()));
        let config = stage.config.to_string_lossy();
        let look = paste::line([&program, "--config", &config, "sessions", "list"].into_iter());
        output.line(format!("\nLook at it:\n  {look}"));
        let dir = stage.dir.to_string_lossy();
        let remove = match cfg!(windows) {
            true => format!("rmdir /s /q \"{dir}\""),
            false => paste::line(["rm", "-r", &dir].into_iter()),
        };
        output.line(format!("Remove it:\n  {remove}"));
    }
    let init = paste::line([program.as_str(), "config", "init"].into_iter());
    output.line(format!("\nNext, with your own folders and agents:\n  {init}"));
    Ok(Exit::Ok)
}

/// How to start this program from here: by its name only if that finds this very program.
pub(super) fn name_to_type(context: &Context) -> String {
    let name = format!("agent-bridge{}", std::env::consts::EXE_SUFFIX);
    let path = context.var("PATH").map(std::ffi::OsStr::to_owned).unwrap_or_default();
    let first = std::env::split_paths(&path).map(|folder| folder.join(&name)).find(|path| path.is_file());
    let same = first.is_some_and(|first| {
        let real = |path: &Path| crate::config::canonical(path).ok();
        real(&first).is_some_and(|found| real(&context.exe) == Some(found))
    });
    if same { "agent-bridge".to_owned() } else { context.exe.display().to_string() }
}

/// Makes the new folder in which everything happens.
pub(super) fn throwaway_folder(context: &Context, args: &Args) -> Result<PathBuf> {
    let dir = match &args.dir {
        Some(dir) => context.cwd.join(dir),
        None => {
            let random = uuid::Uuid::new_v4().simple().to_string();
            std::env::temp_dir().join(format!("agent-bridge-demo-{}", random.get(..8).unwrap_or(&random)))
        }
    };
    let failed = |what: &str, error: std::io::Error| {
        Error::new(&DEMO_FAILED, format!("{what} {}: {error}", dir.display()))
    };
    std::fs::create_dir(&dir).map_err(|error| failed("cannot make", error))?;
    crate::config::canonical(&dir).map_err(|error| failed("cannot open", error))
}

/// The throwaway folder.
struct Stage {
    dir: PathBuf,
    repo: PathBuf,
    state: PathBuf,
    config: PathBuf,
    first: String,
    second: &'static str,
    scripted: bool,
}

impl Stage {
    fn set(context: &Context, args: &Args) -> Result<Self> {
        let dir = throwaway_folder(context, args)?;
        let failed = |what: &str, error: std::io::Error| {
            Error::new(&DEMO_FAILED, format!("{what} {}: {error}", dir.display()))
        };
        let (repo, state, config) = (dir.join("repo"), dir.join("state"), dir.join("config.json"));
        std::fs::create_dir(&repo).map_err(|error| failed("cannot write to", error))?;
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).map_err(|error| failed("cannot write to", error))
        };
        write(&repo.join("README.txt"), "A small project.\n")?;
        let script = dir.join("script.json");
        write(&script, &serde_json::to_string_pretty(&script_of_the_agents()).unwrap_or_default())?;

        let first = args.agent.clone().unwrap_or_else(|| AgentId::Mock.to_string());
        let second = if first == "claude" { "codex" } else { "claude" };
        let mut agents = json!({
            "codex": { "enabled": false },
            "claude": { "enabled": false },
            "mock": { "enabled": true, "script": script },
        });
        // The second worker is always scripted: this very program, told to play the other CLI.
        agents[second] = json!({
            "enabled": true,
            "bin": context.exe,
            "extraEnv": { mock_program::SCRIPT_VARIABLE: script },
        });
        if let Some(real) = &args.agent {
            agents[real] = json!({ "enabled": true });
        }
        let settings = json!({
            "_notes": "Made by `agent-bridge demo`.",
            "allowedRoots": [repo],
            "stateDir": state,
            "agents": agents,
            "defaults": { "cwd": repo },
            "policy": { "sandboxCeiling": "workspace-write" },
        });
        write(&config, &serde_json::to_string_pretty(&settings).unwrap_or_default())?;
        Ok(Self { dir, repo, state, config, first, second, scripted: args.agent.is_none() })
    }
}

/// What the scripted agents say and do.
fn script_of_the_agents() -> Value {
    let long: String = (1..=LONG_LINES).map(|n| format!("{n}: a line of a long report\n")).collect();
    json!({
        "rules": [
            { "when": { "contains": "wait for ever" }, "steps": [{ "answer": { "text": "Thinking…", "commands": ["sleep"] } }, "hang"] },
            { "when": { "contains": "long report" }, "steps": [{ "answer": { "text": long } }] },
            { "when": { "contains": "Write notes.txt" }, "steps": [
                { "write_file": { "path": "notes.txt", "text": "Notes of the demo.\n" } },
                { "answer": { "text": "I was asked to write notes.txt; my mode is {sandbox}." } }] },
            { "when": { "contains": "UNTRUSTED_BRIDGE_TRANSCRIPT" }, "steps": [
                { "answer": { "text": "I have read the transcript. The first agent's claim holds: README.txt is there.", "dialect": "auto" } }] },
            { "when": { "resumed": true }, "steps": [{ "answer": { "text": "Yes, I remember: you asked me to describe this project." } }] },
        ],
        "steps": [{ "answer": { "text": "This project has one file, README.txt.", "dialect": "auto" } }],
    })
}

pub(super) fn failure(step: &str, why: impl std::fmt::Display) -> Error {
    Error::new(&DEMO_FAILED, format!("{step}: {why}"))
}

/// The host side of the demo.
struct Host {
    client: RunningService<RoleClient, ()>,
}

impl Host {
    async fn start(context: &Context, config: &Path) -> Result<Self> {
        let mut command = tokio::process::Command::new(&context.exe);
        command.arg("--config").arg(config).arg("serve").env_clear().envs(&context.env);
        let (transport, _) = TokioChildProcess::builder(command)
            .stderr(std::process::Stdio::null())
            .spawn()
            .map_err(|error| failure("start serve", error))?;
        let client = ().serve(transport).await.map_err(|error| failure("handshake", error))?;
        Ok(Self { client })
    }

    /// Calls a tool; `Ok` is its structured result, errors of the tool included.
    async fn call(&self, tool: &'static str, arguments: Value) -> Result<Value> {
        let arguments: Map<String, Value> = arguments.as_object().cloned().unwrap_or_default();
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = self.client.call_tool(request).await.map_err(|error| failure(tool, error))?;
        result.structured_content.ok_or_else(|| failure(tool, "the result is not structured"))
    }
}

async fn play(context: &Context, stage: &Stage, story: &mut Story<'_>) -> Result<()> {
    let at = Instant::now();
    let made = make_repository(&stage.repo);
    story.step("make a repository and a config", at, &made);

    let at = Instant::now();
    let host = Host::start(context, &stage.config).await?;
    let tools = host.client.list_all_tools().await.map_err(|error| failure("tools/list", error))?;
    story.step("start serve, shake hands", at, &format!("{} tools offered", tools.len()));

    let at = Instant::now();
    let agents = host.call("list_agents", json!({})).await?;
    let ready: Vec<&str> = agents["agents"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|agent| agent["health"]["usable"] == json!(true))
        .filter_map(|agent| agent["id"].as_str())
        .collect();
    story.step("list_agents", at, &format!("ready: {}", ready.join(", ")));
    if !ready.contains(&stage.first.as_str()) {
        return Err(Error::new(&DEMO_AGENT_NOT_READY, format!("{} is not ready", stage.first)));
    }

    let at = Instant::now();
    let first = host
        .call(
            "delegate_task",
            json!({ "agent": stage.first, "prompt": "Describe this project in one sentence." }),
        )
        .await?;
    let answer = succeeded("delegate_task", &first)?;
    story.step(&format!("delegate_task to {}", stage.first), at, &answer);
    let session = first["bridge_session_id"].clone();

    let at = Instant::now();
    let second = host
        .call("continue_session", json!({ "session_id": session, "prompt": "Do you remember what I asked?" }))
        .await?;
    let answer = succeeded("continue_session", &second)?;
    if second["continuity"] != json!("native-resume") {
        return Err(failure("continue_session", "the agent's own session was not resumed"));
    }
    story.step("continue_session (resumed)", at, &answer);

    let notes = stage.repo.join("notes.txt");
    let at = Instant::now();
    let task = "Write notes.txt with one line in it.";
    host.call("delegate_task", json!({ "agent": stage.first, "prompt": task })).await?;
    if notes.exists() {
        return Err(failure("read-only turn", "notes.txt was written"));
    }
    story.step("a write under read-only", at, "refused: notes.txt does not exist");

    let at = Instant::now();
    let wrote = host
        .call("delegate_task", json!({ "agent": stage.first, "prompt": task, "sandbox": "workspace-write" }))
        .await?;
    succeeded("delegate_task with workspace-write", &wrote)?;
    if !notes.exists() {
        return Err(failure("workspace-write turn", "notes.txt was not written"));
    }
    story.step("the same under workspace-write", at, "granted: notes.txt exists");

    let at = Instant::now();
    let over = host
        .call("delegate_task", json!({ "agent": stage.first, "prompt": task, "sandbox": "full-access" }))
        .await?;
    let code = over["error"]["code"].as_str().unwrap_or_default().to_owned();
    if code != "SANDBOX_AUTHORITY_DENIED" {
        return Err(failure("full-access", format!("expected a refusal, got {over}")));
    }
    story.step("asking for full-access", at, &format!("refused: {code}"));

    let at = Instant::now();
    let handed = host.call("handoff", json!({ "session_id": session, "to_agent": stage.second })).await?;
    let answer = succeeded("handoff", &handed)?;
    story.step(&format!("handoff to {} (scripted)", stage.second), at, &answer);

    if stage.scripted {
        page_and_cancel(&host, stage, story).await?;
    }

    let at = Instant::now();
    let sessions = host.call("list_sessions", json!({})).await?;
    let count = sessions["sessions"].as_array().map_or(0, Vec::len);
    story.step("list_sessions", at, &format!("{count} sessions on record"));
    host.client.cancel().await.map_err(|error| failure("end serve", error))?;
    Ok(())
}

/// What only a scripted agent does on demand: a very long answer, and never ending.
async fn page_and_cancel(host: &Host, stage: &Stage, story: &mut Story<'_>) -> Result<()> {
    let at = Instant::now();
    let long = host
        .call("delegate_task", json!({ "agent": stage.first, "prompt": "Give me the long report." }))
        .await?;
    succeeded("long report", &long)?;
    let total = long["output_chars"].as_u64().unwrap_or_default();
    let (mut offset, mut pages, mut lines) = (json!(0), 0, 0);
    while !offset.is_null() {
        let page = host
            .call("get_turn_output", json!({
                "session_id": long["bridge_session_id"], "turn": long["turn"], "offset": offset, "max_chars": 20_000 }))
            .await?;
        lines +=
            page["text"].as_str().unwrap_or_default().lines().filter(|line| line.ends_with("report")).count();
        pages += 1;
        offset = page.get("next_offset").cloned().unwrap_or(Value::Null);
    }
    if lines < LONG_LINES - pages {
        return Err(failure("get_turn_output", format!("{lines} of {LONG_LINES} lines came back")));
    }
    story.step("get_turn_output", at, &format!("{total} bytes in {pages} pages"));

    let at = Instant::now();
    let slow = host
        .call(
            "delegate_task",
            json!({ "agent": stage.first, "prompt": "Please wait for ever.", "wait_seconds": 0 }),
        )
        .await?;
    if slow["status"] != json!("still_running") {
        return Err(failure("a slow turn", format!("expected still_running, got {slow}")));
    }
    let ended = host.call("cancel_turn", json!({ "turn_id": slow["turn_id"] })).await?;
    if ended["result"]["outcome"] != json!("cancelled") {
        return Err(failure("cancel_turn", format!("expected cancelled, got {ended}")));
    }
    story.step("a turn that never ends, cancelled", at, "cancelled, its process tree is gone");
    Ok(())
}

/// The answer of a turn that succeeded.
fn succeeded(step: &str, result: &Value) -> Result<String> {
    if result["outcome"] == json!("success") {
        return Ok(result["output"].as_str().unwrap_or_default().to_owned());
    }
    let why = result["error"]["message"].as_str().or_else(|| result["detail"].as_str());
    Err(failure(step, why.map_or_else(|| result.to_string(), str::to_owned)))
}

/// A git repository if git is there; the bridge works in any folder.
fn make_repository(repo: &Path) -> String {
    let git = |args: &[&str]| {
        std::process::Command::new("git")
            .args([
                "-c",
                "user.name=demo",
                "-c",
                "user.email=demo@example.invalid",
                "-c",
                "commit.gpgsign=false",
            ])
            .args(args)
            .current_dir(repo)
            .stdin(std::process::Stdio::null())
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if git(&["init", "-q"]) && git(&["add", "README.txt"]) && git(&["commit", "-q", "-m", "Start"]) {
        "a git repository with one commit".to_owned()
    } else {
        "a plain folder (git is not installed)".to_owned()
    }
}
