//! A real CLI as a worker of the bridge, and what every worker has to keep to.
//!
//! ```ignore
//! let Some(mut worker) = Worker::start(Cli::Codex, World::new().build(), |_| Script::new()…) else { return };
//! let turn = worker.delegate("scenario:hello", json!({})).ok();
//! worker.end();
//! ```
//!
//! The checks are the same for each CLI, since the bridge promises the same of each; what is
//! particular to one stands in its own test file.

use std::path::Path;

use serde_json::{Value, json};

use super::host::{Host, ToolResult};
use super::mock_model::{MockModel, Script, Usage, reply, reply_with};
use super::process::{DEADLINE, wait_until};
use super::real;
use super::world::World;

/// A CLI that can be a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cli {
    /// Codex.
    Codex,
    /// Claude Code.
    Claude,
    /// Gemini CLI.
    Gemini,
}

impl Cli {
    /// The bridge's name for it.
    pub fn id(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Claude => "claude",
            Self::Gemini => "gemini",
        }
    }

    /// Points it at the mock and writes its section into the bridge's config. `None` where it is not
    /// installed.
    #[track_caller]
    pub fn register(self, world: &World, model: &MockModel) -> Option<()> {
        let section = match self {
            Self::Codex => real::codex(world, model)?.agent(),
            Self::Claude => real::claude(world, model)?.agent(),
            Self::Gemini => real::gemini(world, model)?.agent(),
        };
        world.set_agent(self.id(), section);
        Some(())
    }

    /// What its event stream says about the session, found in a turn's raw output.
    pub fn native_id(self, stdout: &str) -> String {
        let key = match self {
            Self::Codex => "thread_id",
            Self::Claude | Self::Gemini => "session_id",
        };
        let ids = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut ids = ids.filter_map(|event| event[key].as_str().map(str::to_owned));
        ids.next().unwrap_or_else(|| panic!("no {key} in {stdout}"))
    }
}

/// A running server whose one worker is a real CLI.
pub struct Worker {
    /// Which.
    pub cli: Cli,
    /// Where.
    pub world: World,
    /// What it talks to.
    pub model: MockModel,
    /// The host that delegates.
    pub host: Host,
}

impl Worker {
    /// Starts the mock and the server. `None` where the CLI is not installed.
    #[track_caller]
    pub fn start(cli: Cli, world: World, script: impl FnOnce(&World) -> Script) -> Option<Self> {
        let model = MockModel::start(script(&world));
        cli.register(&world, &model)?;
        let mut host = world.host();
        host.initialize();
        Some(Self { cli, world, model, host })
    }

    /// Delegates and waits for the end. `more` adds arguments.
    #[track_caller]
    pub fn delegate(&mut self, prompt: &str, more: Value) -> ToolResult {
        let arguments = json!({ "agent": self.cli.id(), "prompt": prompt, "cwd": self.world.repo(), "wait_seconds": 120 });
        self.host.call("delegate_task", merged(arguments, more))
    }

    /// Goes on with the session of an earlier turn and waits for the end.
    #[track_caller]
    pub fn go_on(&mut self, earlier: &ToolResult, prompt: &str, more: Value) -> ToolResult {
        let session = &earlier.structured["bridge_session_id"];
        let arguments = json!({ "session_id": session, "prompt": prompt, "wait_seconds": 120 });
        self.host.call("continue_session", merged(arguments, more))
    }

    /// Delegates, does not wait, and gives the turn's id.
    #[track_caller]
    pub fn begin(&mut self, prompt: &str, more: Value) -> String {
        let turn = self.delegate(prompt, merged(json!({ "wait_seconds": 0 }), more)).ok();
        assert_eq!(turn.structured["status"], "still_running", "{:#}", turn.structured);
        turn.structured["turn_id"].as_str().expect("a turn id").to_owned()
    }

    /// Cancels a turn and gives it as it then is.
    #[track_caller]
    pub fn cancel(&mut self, turn_id: &str) -> Value {
        let answer = self.host.call("cancel_turn", json!({ "turn_id": turn_id })).ok();
        answer.structured["result"].clone()
    }

    /// The session id that the CLI itself told in this turn.
    #[track_caller]
    pub fn native_id(&mut self, turn: &ToolResult) -> String {
        let (session, index) = (&turn.structured["bridge_session_id"], &turn.structured["turn"]);
        let arguments =
            json!({ "session_id": session, "turn": index, "field": "stdout", "max_chars": 100_000 });
        self.cli
            .native_id(self.host.call("get_turn_output", arguments).ok().structured["text"].as_str().unwrap())
    }

    /// The host goes away: nothing may be left.
    #[track_caller]
    pub fn end(mut self) {
        self.host.hang_up();
        self.host.wait_exit(DEADLINE).expect_code(0);
        self.world.assert_no_process_left(DEADLINE);
    }
}

fn merged(mut arguments: Value, more: Value) -> Value {
    let (Some(all), Value::Object(more)) = (arguments.as_object_mut(), more) else {
        panic!("arguments are objects")
    };
    all.extend(more);
    arguments
}

/// A scenario that writes `path` with the CLI's file tool and then tells what the tool said.
pub fn writes(script: Script, name: &str, path: &Path) -> Script {
    let write = reply().write_file(path.to_string_lossy(), "written\n");
    script.scenario(name, [write, tell()])
}

/// A scenario that runs a shell command and then tells what the tool said.
pub fn runs(script: Script, name: &str, command: &str) -> Script {
    script.scenario(name, [reply().shell(command), tell()])
}

fn tell() -> super::mock_model::Reply {
    reply_with(|request| reply().text(format!("The tool said: {}", request.tool_results().concat())))
}

/// The token counts of a reply and of a turn are the same when the turn was that one reply.
#[track_caller]
fn assert_tokens(turn: &ToolResult, usage: Usage) {
    let tokens = &turn.structured["tokens"];
    let seen = [&tokens["input"], &tokens["cached_input"], &tokens["output"]];
    assert_eq!(
        seen,
        [&json!(usage.input), &json!(usage.cached), &json!(usage.output)],
        "{:#}",
        turn.structured
    );
}

/// A fresh turn: the answer, the tokens, read-only, one request, the prompt as it was given.
#[track_caller]
pub fn a_fresh_turn_is_one_question_and_its_answer(cli: Cli) {
    let usage = Usage { input: 1234, cached: 1000, output: 21, reasoning: 5 };
    let script = |_: &World| Script::new().scenario("hello", [reply().text("Hello there.").usage(usage)]);
    let Some(mut worker) = Worker::start(cli, World::new().build(), script) else { return };
    let turn = worker.delegate("scenario:hello please", json!({})).ok();
    let facts =
        ["output", "outcome", "sandbox", "continuity", "agent"].map(|key| turn.structured[key].clone());
    assert_eq!(json!(facts), json!(["Hello there.", "success", "read-only", "new", cli.id()]));
    assert_tokens(&turn, usage);
    assert_eq!(worker.model.requests().len(), 1, "{}", worker.model.summary());
    assert!(worker.model.turns("hello")[0].user_text().contains("scenario:hello please"));
    worker.end();
}

/// A resumed turn: the CLI's own conversation, the tokens of this turn alone.
#[track_caller]
pub fn a_resumed_turn_is_the_same_conversation(cli: Cli) {
    let first = Usage { input: 1000, cached: 400, output: 30, reasoning: 0 };
    let second = Usage { input: 1500, cached: 900, output: 7, reasoning: 0 };
    let script = |_: &World| {
        Script::new()
            .scenario("first", [reply().text("First answer.").usage(first)])
            .scenario("second", [reply().text("Second answer.").usage(second)])
    };
    let Some(mut worker) = Worker::start(cli, World::new().build(), script) else { return };
    let one = worker.delegate("scenario:first", json!({})).ok();
    let two = worker.go_on(&one, "scenario:second", json!({})).ok();
    let facts = ["output", "continuity", "sandbox", "turn"].map(|key| two.structured[key].clone());
    assert_eq!(json!(facts), json!(["Second answer.", "native-resume", "read-only", 1]));
    assert_eq!(worker.native_id(&one), worker.native_id(&two));
    let seen = worker.model.turns("second").remove(0);
    assert_eq!(seen.user_text().matches("scenario:first").count(), 1, "{}", seen.user_text());
    assert!(!seen.user_text().contains("UNTRUSTED"), "{}", seen.user_text());
    assert!(seen.body.to_string().contains("First answer."), "{:#}", seen.body);
    assert_tokens(&one, first);
    assert_tokens(&two, second);
    worker.end();
}

/// Read-only: neither the file tool nor the shell writes.
#[track_caller]
pub fn a_read_only_turn_writes_nothing(cli: Cli) {
    let script = |world: &World| {
        let (tool, shell) = (world.file("tool.txt"), world.file("shell.txt"));
        let script = writes(Script::new(), "tool", &tool);
        runs(script, "shell", &format!("echo x > {}", shell.display()))
    };
    let Some(mut worker) = Worker::start(cli, World::new().build(), script) else { return };
    for name in ["tool", "shell"] {
        worker.delegate(&format!("scenario:{name}"), json!({})).ok();
        // The model asked for it and was told something.
        assert_eq!(worker.model.turns(name).len(), 2, "{}", worker.model.summary());
        assert_eq!(worker.world.git(["status", "--porcelain"]), "", "{name} was written");
    }
    worker.end();
}

/// Workspace-write: the file tool, and the shell if there is one, write in the working folder, and not outside it.
#[track_caller]
pub fn a_workspace_write_turn_writes_inside_and_not_outside(cli: Cli) {
    let script = |world: &World| {
        let script = writes(Script::new(), "inside", &world.file("tool.txt"));
        let script = runs(script, "shell-inside", "echo x > shell.txt");
        let script = writes(script, "outside", &world.outside().join("tool.txt"));
        runs(script, "shell-outside", &format!("echo x > {}/shell.txt", world.outside().display()))
    };
    let Some(mut worker) = Worker::start(cli, World::new().build(), script) else { return };
    let granted = json!({ "sandbox": "workspace-write" });
    for name in ["inside", "shell-inside", "outside", "shell-outside"] {
        let turn = worker.delegate(&format!("scenario:{name}"), granted.clone()).ok();
        assert_eq!(turn.structured["sandbox"], "workspace-write");
        assert_eq!(worker.model.turns(name).len(), 2, "{}", worker.model.summary());
    }
    let written = match cli {
        // It has no shell that could be kept inside, so there is none.
        Cli::Gemini => "?? tool.txt",
        Cli::Codex | Cli::Claude => "?? shell.txt\n?? tool.txt",
    };
    assert_eq!(worker.world.git(["status", "--porcelain"]), written);
    let outside: Vec<_> = std::fs::read_dir(worker.world.outside()).unwrap().collect();
    assert!(outside.is_empty(), "{outside:?}");
    worker.end();
}

/// A session that was allowed to write and goes on without a word about it writes no more, however
/// often it goes on.
#[track_caller]
pub fn authority_is_not_inherited_from_an_earlier_turn(cli: Cli) {
    let script = |world: &World| {
        let names = ["one", "two", "three", "four"];
        names
            .iter()
            .fold(Script::new(), |script, name| writes(script, name, &world.file(&format!("{name}.txt"))))
    };
    let Some(mut worker) = Worker::start(cli, World::new().build(), script) else { return };
    let one = worker.delegate("scenario:one", json!({ "sandbox": "workspace-write" })).ok();
    for (name, asked, continuity) in [
        // Another authority is another conversation of the CLI's.
        ("two", json!({}), "context-replay"),
        ("three", json!({ "sandbox": "read-only" }), "native-resume"),
        ("four", json!({}), "native-resume"),
    ] {
        let turn = worker.go_on(&one, &format!("scenario:{name}"), asked).ok();
        let facts = [&turn.structured["sandbox"], &turn.structured["continuity"]];
        assert_eq!(facts, [&json!("read-only"), &json!(continuity)], "{name}");
        assert_eq!(worker.model.turns(name).len(), 2, "{}", worker.model.summary());
        assert_eq!(worker.world.git(["status", "--porcelain"]), "?? one.txt", "after {name}");
    }
    worker.end();
}

/// An error of the model service is told as what it is, and asked for no more often than the CLI was
/// told to.
#[track_caller]
pub fn an_error_of_the_model_becomes_its_outcome(cli: Cli) {
    let script = |_: &World| {
        Script::new()
            .scenario("e500", [reply().status(500).message("exploded")])
            .scenario("e429", [reply().status(429).message("Rate limit reached for this key")])
            .scenario("e401", [reply().status(401).message("invalid x-api-key")])
    };
    let Some(mut worker) = Worker::start(cli, World::new().build(), script) else { return };
    for (name, outcome) in [("e500", "worker-error"), ("e429", "quota"), ("e401", "login-required")] {
        let turn = worker.delegate(&format!("scenario:{name}"), json!({})).err();
        assert_eq!(turn.structured["outcome"], outcome, "{name}: {:#}", turn.structured);
        assert!(turn.structured["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{name}");
        assert!(!turn.whole.to_string().contains(real::KEY), "{name}: the key is shown: {:#}", turn.whole);
        let asked = worker.model.turns(name).len();
        assert!((1..=2).contains(&asked), "{name} was asked {asked} times\n{}", worker.model.summary());
    }
    // A host that tries again at once gets the same word, and nothing is started for it.
    let before = worker.model.requests().len();
    let again = worker.delegate("scenario:e401", json!({})).err();
    assert_eq!(again.structured["error"]["code"], "AGENT_LOGIN_REQUIRED", "{:#}", again.structured);
    assert_eq!(worker.model.requests().len(), before, "{}", worker.model.summary());
    worker.end();
}

/// A model that never answers: the turn can be cancelled, and its CLI is gone with it.
#[track_caller]
pub fn a_turn_whose_model_hangs_can_be_cancelled(cli: Cli) {
    let script = |_: &World| {
        Script::new().scenario("hang", [reply().hang()]).scenario("hello", [reply().text("Hello again.")])
    };
    let Some(mut worker) = Worker::start(cli, World::new().build(), script) else { return };
    let turn = worker.begin("scenario:hang", json!({}));
    worker.model.wait_for_request("hang", DEADLINE);
    let ended = worker.cancel(&turn);
    assert_eq!((&ended["outcome"], &ended["code"]), (&json!("cancelled"), &json!("TURN_CANCELLED")));
    worker.model.wait_for_client_gone("hang", DEADLINE);
    only_the_server_is_left(&worker);
    // The session is not lost with the turn.
    let session = json!({ "session_id": ended["bridge_session_id"] });
    assert_eq!(worker.delegate("scenario:hello", session).ok().structured["output"], "Hello again.");
    worker.end();
}

/// A command that the CLI runs, in a session of its own: it ends with the turn. `marker` is found in
/// the command line of what must be seen running first.
#[track_caller]
pub fn a_cancelled_turn_takes_its_commands_with_it(cli: Cli, sandbox: &str, command: &str, markers: &[&str]) {
    let script = |_: &World| runs(Script::new(), "long", command);
    let world = World::new().ceiling(sandbox).build();
    let Some(mut worker) = Worker::start(cli, world, script) else { return };
    let turn = worker.begin("scenario:long", json!({ "sandbox": sandbox }));
    wait_until("the command to run", DEADLINE, || {
        let running = worker.world.processes();
        markers.iter().all(|marker| running.iter().any(|process| process.command.starts_with(marker)))
    });
    let ended = worker.cancel(&turn);
    assert_eq!(ended["outcome"], "cancelled", "{ended:#}");
    only_the_server_is_left(&worker);
    worker.end();
}

/// With the turn, everything it started is gone; the reply that says so is not early.
#[track_caller]
fn only_the_server_is_left(worker: &Worker) {
    let left: Vec<_> =
        worker.world.processes().into_iter().filter(|process| process.id != worker.host.id()).collect();
    assert!(left.is_empty(), "{left:#?}");
}

/// Any prompt arrives as it was given: one that looks like an option, one that fits into no argument.
#[track_caller]
pub fn any_prompt_arrives_whole(cli: Cli) {
    let script = |_: &World| Script::new().scenario("hello", [reply().text("Read.")]);
    let Some(mut worker) = Worker::start(cli, World::new().build(), script) else { return };
    let long: String = (0..22_000).map(|number| format!("line {number:06} é\n")).collect();
    assert!(long.len() > 300_000);
    for prompt in [
        "--version scenario:hello".to_owned(),
        "-".to_owned() + "- scenario:hello",
        "/clear scenario:hello".to_owned(),
        format!("{long}scenario:hello"),
    ] {
        worker.delegate(&prompt, json!({})).ok();
        let seen = worker.model.turns("hello").pop().unwrap().user_text();
        let start: String = prompt.chars().take(40).collect();
        assert!(seen.contains(&prompt), "{start:?}… ({} bytes) is not in what the model saw", prompt.len());
    }
    worker.end();
}

/// Nothing listens where the model should be: the turn ends as the worker's error.
#[track_caller]
pub fn a_model_that_cannot_be_reached_ends_the_turn(cli: Cli) {
    let Some(mut worker) = Worker::start(cli, World::new().build(), |_| Script::new()) else { return };
    worker.model = MockModel::start(Script::new());
    let turn = worker.delegate("scenario:hello", json!({ "timeout_sec": 50 })).err();
    assert_eq!(turn.structured["outcome"], "worker-error", "{:#}", turn.structured);
    worker.end();
}

/// A model that accepts and never answers: the bridge's own deadline ends the turn.
#[track_caller]
pub fn a_model_that_never_answers_ends_at_our_deadline(cli: Cli) {
    let script = |_: &World| Script::new().scenario("hang", [reply().hang()]);
    let Some(mut worker) = Worker::start(cli, World::new().build(), script) else { return };
    let turn = worker.delegate("scenario:hang", json!({ "timeout_sec": 4 })).err();
    let facts = ["outcome", "code", "timed_out"].map(|key| turn.structured[key].clone());
    assert_eq!(json!(facts), json!(["timeout", "TURN_RUN_DEADLINE", true]), "{:#}", turn.structured);
    only_the_server_is_left(&worker);
    worker.end();
}

/// `list_agents` on the real CLI, logged in or not.
#[track_caller]
pub fn health(cli: Cli, change: impl FnOnce(&World)) -> Option<Value> {
    let world = World::new().build();
    let model = MockModel::start(Script::new());
    cli.register(&world, &model)?;
    change(&world);
    let mut host = world.host();
    host.initialize();
    let agents = host.call("list_agents", json!({})).ok().structured["agents"].clone();
    let found = agents.as_array().unwrap().iter().find(|agent| agent["id"] == cli.id()).cloned();
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    world.assert_no_process_left(DEADLINE);
    assert!(model.requests().is_empty(), "a probe asked the model\n{}", model.summary());
    Some(found.expect("the agent is listed")["health"].clone())
}

/// The version that `tests/real/package.json` pins.
pub fn pinned_version(package: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("real").join("package.json");
    let manifest: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    manifest["dependencies"][package].as_str().expect("a pinned package").to_owned()
}
