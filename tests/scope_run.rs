//! `agent-bridge scope run`: a real command beside its endpoint, from start to the end of everything.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use agent_bridge::context::Clock;
use agent_bridge::store::Store;
use support::prelude::*;
use support::process::Running;
use support::scope::{Reply, Wire, refused_after};

/// Tells what it was given, waits until the file `go` is there or its input ends, and exits with 7.
const WORKER: &str = r#"
{ env; printf 'ARGV=%s\n' "$*"; printf 'CMDLINE='; tr '\0' ' ' </proc/$$/cmdline 2>/dev/null; echo; } >told.new
cp "$AGENT_BRIDGE_SCOPE_CONFIG" given.json
ls -ld "$(dirname "$AGENT_BRIDGE_SCOPE_CONFIG")" "$AGENT_BRIDGE_SCOPE_CONFIG" >modes
mv told.new told
while ! [ -e go ]; do sleep 0.02; done
exit 7
"#;

/// A run whose worker waits in the repository.
struct Run {
    world: World,
    running: Running,
    told: String,
}

impl Run {
    #[track_caller]
    fn start(world: World, options: &[&str]) -> Self {
        world.write("worker.sh", WORKER);
        let mut command = world.bridge_command(["scope", "run"]);
        command.args(options).args(["--", "sh", "worker.sh", "{scope-url}", "{scope-config}"]);
        let mut running = process::start(command);
        let told = world.file("told");
        wait_until(|| told.exists() || running.has_ended());
        assert!(told.exists(), "{}", running.finish(DEADLINE));
        let told = world.read("told");
        Self { world, running, told }
    }

    fn variable(&self, name: &str) -> &str {
        self.told.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).expect(name)
    }

    fn port(&self) -> u16 {
        let url = self.variable("AGENT_BRIDGE_SCOPE_URL");
        url.strip_prefix("http://127.0.0.1:").unwrap().strip_suffix("/mcp").unwrap().parse().unwrap()
    }

    /// Sends a tool call and leaves the answer for later.
    fn begin(&self, tool: &str, arguments: Value) -> Wire {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments } })
        .to_string();
        let mut wire = Wire::to(self.port());
        wire.send(format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost:{}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
            self.port(),
            self.variable("AGENT_BRIDGE_SCOPE_TOKEN"),
            body.len()
        ));
        wire
    }

    #[track_caller]
    fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.begin(tool, arguments).reply()
    }

    /// Lets the worker end.
    #[track_caller]
    fn finish(self) -> (World, process::Finished) {
        self.world.write("go", "");
        let finished = self.running.finish(DEADLINE);
        (self.world, finished)
    }
}

#[track_caller]
fn wait_until(mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + DEADLINE;
    while !holds() {
        assert!(std::time::Instant::now() < end, "it never came to be");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn world() -> World {
    World::new().build()
}

/// The audit trail, oldest first, as `kind tool outcome reason`.
fn trail(world: &World) -> Vec<String> {
    let store = Store::open_read_only(&world.state(), Clock::System).unwrap().expect("a database");
    let mut rows = store.audit_rows(&agent_bridge::store::AuditFilter::default(), 100).unwrap().rows;
    rows.reverse();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or("-").to_owned();
    rows.iter()
        .map(|row| match row.kind.as_str() {
            "scope-call" => ["tool", "outcome", "reason"].map(|key| text(&row.detail, key)).join(" "),
            kind => kind.to_owned(),
        })
        .collect()
}

#[test]
fn a_worker_finds_its_endpoint_and_its_exit_code_is_ours() {
    let run = Run::start(world(), &["--allow", "note", "recall", "--root", "."]);
    let token = run.variable("AGENT_BRIDGE_SCOPE_TOKEN").to_owned();
    let config = run.variable("AGENT_BRIDGE_SCOPE_CONFIG").to_owned();
    let url = run.variable("AGENT_BRIDGE_SCOPE_URL").to_owned();
    assert_eq!(run.variable("ARGV"), format!("{url} {config}"));
    assert_eq!(run.variable("PWD"), run.world.repo().to_str().unwrap());
    assert!(run.variable("NO_PROXY").ends_with("127.0.0.1,localhost,::1"));
    assert_eq!(run.variable("AGENT_BRIDGE_DEPTH"), "1");
    // The token is in the environment and in a file of the owner's, and in no argument list.
    assert!(!run.variable("CMDLINE").contains(&token));
    let modes = run.world.read("modes");
    let mut modes = modes.lines();
    assert!(
        modes.next().unwrap().starts_with("drwx------") && modes.next().unwrap().starts_with("-rw-------")
    );
    let given: Value = serde_json::from_str(&run.world.read("given.json")).unwrap();
    let server = &given["mcpServers"]["bridge"];
    assert_eq!((&server["type"], &server["url"]), (&json!("http"), &json!(url)));
    assert_eq!(server["headers"]["Authorization"], format!("Bearer {token}"));

    assert_eq!(run.call("note", json!({ "key": "a", "text": "b" })).text(), "Noted.");
    assert_eq!(run.call("recall", json!({ "key": "a" })).text(), "b");
    assert_eq!(run.call("search_notes", json!({ "query": "b" })).code(), (200, -32601));
    assert_eq!(
        run.call("note", json!({ "key": "a", "text": "b", "workspaceId": "x" })).code(),
        (200, -32602)
    );
    let port = run.port();
    let (world, finished) = run.finish();
    let finished = finished.expect_code(7);
    refused_after(port);
    assert!(!Path::new(&config).exists());
    assert!(finished.stdout.is_empty() && finished.stderr.is_empty(), "{finished}");
    let expected = [
        "scope-began",
        "note allowed ok",
        "recall allowed ok",
        "search_notes refused forbidden_tool",
        "note refused foreign_scope",
        "scope-ended",
    ];
    assert_eq!(trail(&world), expected);
    let database: Vec<PathBuf> = std::fs::read_dir(world.state())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.is_file())
        .collect();
    for file in database {
        let bytes = std::fs::read(&file).unwrap();
        assert!(
            !bytes.windows(64).any(|part| part == token.as_bytes()),
            "the token is in {}",
            file.display()
        );
    }
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn the_streams_are_the_commands_own() {
    let world = world();
    let script = "cat; echo 'to stderr' >&2; exit 0";
    let arguments = ["scope", "run", "--allow", "note", "--", "sh", "-c", script];
    let finished = world.bridge_with_input(arguments, "through\nand through\n").expect_code(0);
    assert_eq!(finished.stdout(), "through\nand through\n");
    assert_eq!(finished.stderr(), "to stderr\n");
}

#[test]
fn a_command_that_a_signal_ended_or_that_is_not_there_is_told_apart() {
    let world = world();
    world
        .bridge(["scope", "run", "--allow", "note", "--", "sh", "-c", "kill -TERM $$"])
        .expect_code(128 + 15);
    let finished = world.bridge(["scope", "run", "--allow", "note", "--", "no-such-program"]).expect_code(2);
    assert!(finished.stderr().contains("PROGRAM_NOT_FOUND"), "{finished}");
}

#[test]
fn a_report_is_checked_kept_and_replaced() {
    let run = Run::start(world(), &["--allow", "submit_report", "--report-out", "report.json"]);
    for wrong in [
        json!({}),
        json!({ "summary": "", "outcome": "done" }),
        json!({ "summary": "x", "outcome": "perfect" }),
        json!({ "summary": "x", "outcome": "done", "files": [{ "path": "a" }] }),
        json!({ "summary": "x", "outcome": "done", "tests": { "passed": -1, "failed": 0, "not_run": 0 } }),
        json!({ "summary": "x".repeat(2001), "outcome": "done" }),
    ] {
        assert_eq!(run.call("submit_report", wrong.clone()).code(), (200, -32602), "{wrong:.60}");
    }
    assert!(!run.world.file("report.json").exists());
    let first = json!({ "summary": "half", "outcome": "partial" });
    let last = json!({ "summary": "all", "outcome": "done", "files": [{ "path": "a", "change": "added" }],
        "tests": { "passed": 3, "failed": 0, "not_run": 1 }, "open_questions": ["why?"] });
    for report in [&first, &last, &last] {
        assert_eq!(run.call("submit_report", report.clone()).text(), "The report is kept.");
        let kept: Value = serde_json::from_str(&run.world.read("report.json")).unwrap();
        assert_eq!((&kept["kind"], &kept["report"]), (&json!("scope-report"), report));
    }
    let mode = std::fs::metadata(run.world.file("report.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (world, finished) = run.finish();
    finished.expect_code(7);
    // An older report could be taken for the next run's.
    let again = ["scope", "run", "--allow", "submit_report", "--report-out", "report.json", "--", "true"];
    assert!(world.bridge(again).expect_code(64).stderr().contains("is there already"));
}

#[test]
fn a_run_without_a_report_says_so() {
    let finished =
        world().bridge(["scope", "run", "--allow", "submit_report", "--report-out", "r", "--", "true"]);
    assert!(finished.expect_code(0).stderr().contains("handed in no report"));
}

#[test]
fn a_check_runs_by_name_without_a_shell_and_says_how_it_ended() {
    let world = world();
    world
        .program("checker", "#!/bin/sh\nprintf '%s|' \"$@\"; echo err >&2; pwd; env >checked; exit \"$1\"\n");
    let run = Run::start(
        world,
        &[
            "--allow",
            "run_check",
            "--check",
            r#"good=["checker","0","$(touch x)","; touch y"]"#,
            "--check",
            r#"bad=["checker","3"]"#,
        ],
    );
    let good = run.call("run_check", json!({ "name": "good" })).text();
    assert!(good.starts_with("good passed (exit code 0), after "), "{good}");
    assert!(
        good.contains("0|$(touch x)|; touch y|")
            && good.contains("err")
            && good.contains("data, not instructions")
    );
    assert!(good.contains(run.world.repo().to_str().unwrap()));
    assert!(!run.world.file("x").exists() && !run.world.file("y").exists());
    assert!(!run.world.read("checked").contains("AGENT_BRIDGE_SCOPE_"), "a check has no use for the token");
    let bad = run.call("run_check", json!({ "name": "bad" }));
    assert!(bad.text().starts_with("bad failed (exit code 3)"));
    assert_eq!(bad.json()["result"]["isError"], false, "the check did its work");
    for wrong in
        [json!({ "name": "other" }), json!({ "name": "good", "args": ["x"] }), json!({ "name": "good; ls" })]
    {
        assert_eq!(run.call("run_check", wrong).code(), (200, -32602));
    }
    run.finish().1.expect_code(7);
}

#[test]
fn a_check_that_takes_too_long_is_ended_with_all_it_started() {
    let world = world();
    world.program("slow", "#!/bin/sh\nsh -c 'echo begun; sleep 600' &\nsleep 600\n");
    let run =
        Run::start(world, &["--allow", "run_check", "--check", r#"slow=["slow"]"#, "--check-timeout", "1"]);
    let reply = run.call("run_check", json!({ "name": "slow" }));
    assert!(
        reply.text().starts_with("slow was ended after 1 s") && reply.text().contains("begun"),
        "{}",
        reply.text()
    );
    assert_eq!(reply.json()["result"]["isError"], true);
    let (world, finished) = run.finish();
    finished.expect_code(7);
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn running_checks_end_with_the_worker() {
    let world = world();
    world.program("slow", "#!/bin/sh\nsh -c 'sleep 600' &\necho >begun\nsleep 600\n");
    let run = Run::start(world, &["--allow", "run_check", "note", "--check", r#"slow=["slow"]"#]);
    let _waiting = run.begin("run_check", json!({ "name": "slow" }));
    wait_until(|| run.world.file("begun").exists());
    let busy = run.call("run_check", json!({ "name": "slow" }));
    assert!(busy.text().starts_with("Another check is running"));
    let port = run.port();
    let (world, finished) = run.finish();
    finished.expect_code(7);
    refused_after(port);
    world.assert_no_process_left(DEADLINE);
    let calls: Vec<String> = trail(&world).into_iter().filter(|line| line.starts_with("run_check")).collect();
    assert_eq!(calls, ["run_check failed tool_error", "run_check failed cancelled"]);
}

#[test]
fn a_signal_to_us_ends_the_worker_and_all_that_belongs_to_the_run() {
    for (signal, kills) in [(Signal::Terminate, false), (Signal::Interrupt, false), (Signal::Kill, true)] {
        let world = world();
        world.program("slow", "#!/bin/sh\necho >begun\nexec sleep 600\n");
        let run = Run::start(world, &["--allow", "run_check", "--check", r#"slow=["slow"]"#]);
        let _waiting = run.begin("run_check", json!({ "name": "slow" }));
        wait_until(|| run.world.file("begun").exists());
        let port = run.port();
        run.running.signal(signal);
        let finished = run.running.finish(DEADLINE);
        // Nobody can hold a port for a process that is gone.
        refused_after(port);
        if kills {
            assert!(finished.signal.is_some());
        } else {
            assert_eq!(finished.code, Some(128 + 2), "{finished}");
        }
        if !kills || cfg!(target_os = "linux") {
            run.world.assert_no_process_left(DEADLINE);
        }
    }
}

/// Nobody is left who could look after the run, and what a check started has left its tree.
#[cfg(target_os = "linux")]
#[test]
fn after_a_kill_nothing_of_the_run_is_left_whatever_it_started() {
    let world = world();
    let strays =
        "(setsid sh -c 'trap \"\" TERM HUP; echo >stray; sleep 600' &) ; sh -c 'trap \"\" TERM; sleep 600' &";
    world.program("slow", &format!("#!/bin/sh\n{strays}\ntrap '' TERM\necho >begun\nsleep 600\n"));
    let run = Run::start(world, &["--allow", "run_check", "--check", r#"slow=["slow"]"#]);
    let _waiting = run.begin("run_check", json!({ "name": "slow" }));
    wait_until(|| run.world.file("begun").exists() && run.world.file("stray").exists());
    assert!(run.world.processes().len() >= 4, "{:?}", run.world.processes());
    run.running.signal(Signal::Kill);
    let finished = run.running.finish(DEADLINE);
    assert!(finished.signal.is_some());
    run.world.assert_no_process_left(DEADLINE);
}

#[test]
fn what_cannot_be_offered_is_refused_before_anything_starts() {
    let world = world();
    world.write("there", "");
    for (options, code, says) in [
        (&["--allow", "shell"][..], 64, "SCOPE_TOOL_UNKNOWN"),
        (&["--allow", "delegate"], 2, "SCOPE_TOOL_NEEDS_HOST"),
        (&["--allow", "run_check"], 2, "SCOPE_TOOL_NEEDS_HOST"),
        (&["--allow", "submit_report"], 2, "--report-out"),
        (&["--allow", "get_task"], 2, "--task"),
        (&["--allow", "get_task", "--task", "not-there"], 64, "cannot be read"),
        (&["--allow", "run_check", "--check", "x"], 64, "SCOPE_CHECK_INVALID"),
        (&["--allow", "run_check", "--check", "x=cargo test"], 64, "no JSON array of strings"),
        (&["--allow", "run_check", "--check", "x=[]"], 64, "the array is empty"),
        (&["--allow", "run_check", "--check", r#"x=["no-such-program"]"#], 64, "no-such-program"),
        (&["--allow", "run_check", "--check", r#"x=["sh"]"#, "--check", r#"x=["sh"]"#], 64, "unique"),
        (&["--allow", "note", "--root", "there"], 64, "is not a folder"),
        (&["--allow", "note", "--audit", "there"], 64, "cannot be made"),
        (&["--root", "."], 64, "--allow"),
    ] {
        let mut command = world.bridge_command(["scope", "run"]);
        command.args(options).args(["--", "touch", "started"]);
        let finished = process::run(command, DEADLINE).expect_code(code);
        assert!(finished.stderr().contains(says), "{options:?}: {finished}");
    }
    assert!(!world.file("started").exists());
}

#[test]
fn a_worker_of_a_worker_is_refused_at_the_limit() {
    let world = World::new().env("AGENT_BRIDGE_DEPTH", "1").build();
    let finished = world.bridge(["scope", "run", "--allow", "note", "--", "touch", "started"]).expect_code(2);
    assert!(finished.stderr().contains("deep"), "{finished}");
    assert!(!world.file("started").exists());
}

#[test]
fn calls_can_be_recorded_in_a_file_of_ones_own() {
    let world = world();
    world.write("task.md", "Do é it.");
    let run =
        Run::start(world, &["--allow", "get_task,progress", "--task", "task.md", "--audit", "calls.jsonl"]);
    assert_eq!(run.call("get_task", json!({})).text(), "Do é it.");
    assert_eq!(run.call("progress", json!({ "message": "half", "percent": 50 })).text(), "Shown.");
    // A crash of ours would lose none of them.
    let lines: Vec<Value> =
        run.world.read("calls.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tools: Vec<&Value> = lines.iter().map(|line| &line["tool"]).collect();
    assert_eq!(tools, ["get_task", "progress"]);
    let mode = std::fs::metadata(run.world.file("calls.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (world, finished) = run.finish();
    assert!(finished.expect_code(7).stderr.is_empty(), "progress is for terminals");
    assert!(!world.state().exists());
}

#[test]
fn nobody_there_answers_no_and_says_how_to_go_on() {
    let run = Run::start(world(), &["--allow", "ask_supervisor", "request_approval"]);
    let answer = run.call("ask_supervisor", json!({ "question": "May I?" }));
    assert!(answer.text().contains("safest choice") && answer.json()["result"]["isError"] == false);
    let decision = run
        .call("request_approval", json!({ "tool_name": "Bash", "input": { "cwd": "/", "command": "rm" } }));
    let decision: Value = serde_json::from_str(&decision.text()).unwrap();
    assert_eq!(decision["behavior"], "deny");
    run.finish().1.expect_code(7);
}

#[test]
fn the_help_names_every_tool_and_every_code_can_be_explained() {
    let world = world();
    let help = world.bridge(["scope", "run", "--help"]).expect_code(0);
    for name in agent_bridge::scope::kit::NAMES {
        assert!(name == "delegate" || help.stdout().contains(name), "{name}");
    }
    for code in agent_bridge::scope::CODES {
        world.bridge(["explain", code.code]).expect_code(0);
    }
}
