//! What a worker asks in a delegated turn, and who answers it: hosts, commands, a person at a form or a terminal, nobody.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::time::Instant;

use support::prelude::*;

const FOREIGN: &str = "00000000-0000-4000-8000-000000000000";
const DEFAULT: &str = "Take the left one.";

/// A world whose mock worker asks what the prompt says.
fn world() -> World {
    world_that_waits(60)
}

fn world_that_waits(seconds: u64) -> World {
    let world = World::new()
        .config(
            "scope",
            json!({ "tools": ["ask_supervisor", "request_approval", "note"], "askTimeoutSeconds": seconds,
                "askDefault": DEFAULT }),
        )
        .build();
    let ask = |question: &str| json!({ "call_tool": { "tool": "ask_supervisor", "arguments": { "question": question } } });
    let answer = json!({ "answer": { "text": "Told: {told}" } });
    let script = json!({ "rules": [
        { "when": { "contains": "ask" }, "steps": [ask("Left or right?"), answer] },
        { "when": { "contains": "leak" }, "steps": [ask("Is {prompt} right?"), answer] },
        { "when": { "contains": "permit" }, "steps": [
            { "call_tool": { "tool": "request_approval",
                "arguments": { "tool_name": "Bash", "input": { "command": "make deploy", "password": "hunter2hunter2" } } } },
            answer ] },
        { "when": { "contains": "twice" }, "steps": [ask("First?"), ask("Then: {told} and?"), answer] },
    ] });
    let path = world.outside().join("script.json");
    support::world::write(&path, script.to_string());
    world.set_agent("mock", json!({ "enabled": true, "script": path, "passEnv": ["DEPLOY_TOKEN"] }));
    world
}

fn host(world: &World) -> Host {
    let mut host = world.host();
    host.initialize();
    host
}

fn task(world: &World, prompt: &str, more: Value) -> Value {
    let mut arguments = json!({ "agent": "mock", "prompt": prompt, "cwd": world.repo(), "wait_seconds": 50 });
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    arguments
}

/// Delegates; the reply comes with the question. Gives the turn's id and the question.
#[track_caller]
fn asked(world: &World, host: &mut Host, prompt: &str) -> (String, Value) {
    let begun = Instant::now();
    let reply = host.call("delegate_task", task(world, prompt, json!({}))).ok();
    assert!(begun.elapsed() < Duration::from_secs(40), "the wait was not cut short");
    assert_eq!(reply.structured["status"], "still_running", "{:#}", reply.structured);
    let questions = reply.structured["questions"].as_array().unwrap().clone();
    assert_eq!(questions.len(), 1, "{questions:#?}");
    let id = questions[0]["question_id"].as_str().unwrap();
    let hint = reply.structured["hint"].as_str().unwrap();
    assert!(hint.contains("answer_question") && hint.contains(id) && hint.contains("wait_turn"), "{hint}");
    assert!(reply.text.contains(id), "{}", reply.text);
    (reply.structured["turn_id"].as_str().unwrap().to_owned(), questions[0].clone())
}

#[track_caller]
fn id(question: &Value) -> &str {
    question["question_id"].as_str().unwrap()
}

#[track_caller]
fn output(host: &mut Host, turn: &str) -> String {
    let reply = host.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 50 })).ok();
    assert_eq!(reply.structured["status"], "finished", "{:#}", reply.structured);
    reply.structured["output"].as_str().unwrap().to_owned()
}

#[track_caller]
fn code(result: ToolResult) -> String {
    result.err().structured["error"]["code"].as_str().unwrap().to_owned()
}

/// The state of a question, by the command line.
#[track_caller]
fn state(world: &World, question: &Value) -> Value {
    let listed = world.bridge(["turns", "questions", "--all", "--json"]).expect_code(0).json();
    let mut all = listed["questions"].as_array().unwrap().iter();
    all.find(|entry| entry["question_id"] == question["question_id"]).expect("it is listed").clone()
}

fn audit(world: &World, kind: &str) -> Vec<Value> {
    let listed = world.bridge(["audit", "list", "--json", "--kind", kind]).expect_code(0).json();
    listed["records"].as_array().unwrap().clone()
}

#[test]
fn another_server_answers_and_the_worker_goes_on_with_that() {
    let world = world();
    let (mut first, mut second) = (host(&world), host(&world));
    let (turn, question) = asked(&world, &mut first, "ask");
    assert_eq!((&question["kind"], &question["text"]), (&json!("question"), &json!("Left or right?")));
    assert!((1..=60).contains(&question["seconds_left"].as_u64().unwrap()), "{question}");

    let listed = second.call("list_questions", json!({})).ok().structured;
    assert_eq!(listed["questions"][0]["question_id"], question["question_id"], "{listed:#}");
    assert_eq!(listed["questions"][0]["turn_id"], turn);
    let answered =
        second.call("answer_question", json!({ "question_id": id(&question), "text": "Right." })).ok();
    assert_eq!(answered.structured["question"]["answered_by"], "mcp:scripted-host");
    assert_eq!(output(&mut first, &turn), "Told: Right.");
    assert_eq!(second.call("list_questions", json!({})).ok().structured["questions"], json!([]));

    let [asked, answered] = ["question-asked", "question-answered"].map(|kind| audit(&world, kind));
    assert_eq!((asked.len(), answered.len()), (1, 1));
    assert_eq!((&asked[0]["turn"], &answered[0]["turn"]), (&json!(turn), &json!(turn)));
    assert!(!json!([asked, answered]).to_string().contains("Right"), "answers are not on record");
    assert_eq!(world.bridge(["audit", "verify", "--json"]).expect_code(0).json()["holds"], true);
}

#[test]
fn a_command_answers_too() {
    let world = world();
    let mut host = host(&world);
    let (turn, question) = asked(&world, &mut host, "ask");
    let table = world.bridge(["turns", "questions"]).expect_code(0);
    assert!(table.stdout().contains(id(&question)) && table.stdout().contains("Left or right?"), "{table}");
    let shown = world.bridge(["turns", "show", &turn]).expect_code(0);
    assert!(shown.stdout().contains("asks     Left or right?"), "{shown}");
    assert!(shown.stdout().contains("agent-bridge turns answer"), "{shown}");
    let said = world.bridge(["turns", "answer", id(&question), "--text", "Left."]).expect_code(0);
    assert_eq!(said.stdout(), "Answered. The worker goes on.\n");
    assert_eq!(output(&mut host, &turn), "Told: Left.");
    assert_eq!(state(&world, &question)["answered_by"], "terminal");
    world.bridge(["turns", "questions"]).expect_code(0);
}

#[test]
fn an_approval_is_given_or_denied_in_words_that_claude_code_expects() {
    let world = world();
    let mut host = host(&world);
    for (answer, expected) in [
        (
            json!({ "approve": true }),
            json!({ "behavior": "allow", "updatedInput":
            { "command": "make deploy", "password": "hunter2hunter2" } }),
        ),
        (
            json!({ "approve": false, "text": "Not today." }),
            json!({ "behavior": "deny", "message": "Not today." }),
        ),
    ] {
        let (turn, question) = asked(&world, &mut host, "permit");
        assert_eq!((&question["kind"], &question["tool"]), (&json!("approval"), &json!("Bash")));
        let text = question["text"].as_str().unwrap();
        assert!(text.contains("make deploy") && !text.contains("hunter2"), "{text}");
        let mut arguments = json!({ "question_id": id(&question) });
        arguments.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        host.call("answer_question", arguments).ok();
        let told = output(&mut host, &turn);
        let told: Value = serde_json::from_str(told.strip_prefix("Told: ").unwrap()).unwrap();
        assert_eq!(told, expected, "the worker gets its own input back, whole");
        assert_eq!(state(&world, &question)["approved"], answer["approve"]);
    }
    let (turn, question) = asked(&world, &mut host, "permit");
    world.bridge(["turns", "answer", id(&question), "--deny", "--text", "No."]).expect_code(0);
    assert!(output(&mut host, &turn).contains("No."));
}

#[test]
fn nobody_answers_and_the_default_is_the_answer() {
    let world = world_that_waits(1);
    let mut host = host(&world);
    let (turn, question) = asked(&world, &mut host, "ask");
    assert_eq!(output(&mut host, &turn), format!("Told: {DEFAULT}"));
    assert_eq!(state(&world, &question)["state"], "expired");
    let late = json!({ "question_id": id(&question), "text": "Right." });
    assert_eq!(code(host.call("answer_question", late)), "QUESTION_EXPIRED");
    let late = world.bridge(["turns", "answer", id(&question), "--text", "Right."]).expect_code(2);
    assert!(late.stderr().contains("QUESTION_EXPIRED"), "{late}");
    assert_eq!(audit(&world, "question-expired").len(), 1);

    let (turn, question) = asked(&world, &mut host, "permit");
    assert!(output(&mut host, &turn).contains(r#""behavior":"deny""#));
    assert_eq!(state(&world, &question)["approved"], Value::Null, "nobody decided");
}

#[test]
fn a_question_ends_with_its_run() {
    let world = world();
    let mut host = host(&world);
    let (turn, question) = asked(&world, &mut host, "ask");
    let ended = host.call("cancel_turn", json!({ "turn_id": turn })).ok().structured;
    assert_eq!(ended["result"]["outcome"], "cancelled", "{ended:#}");
    assert_eq!(state(&world, &question)["state"], "closed");
    let late = json!({ "question_id": id(&question), "text": "Right." });
    assert_eq!(code(host.call("answer_question", late)), "QUESTION_CLOSED");
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    world.assert_no_process_left(DEADLINE);
}

/// The supervisor is killed: nothing is left that could settle the question, but for whoever looks at it next.
#[cfg(unix)]
#[test]
fn a_question_of_a_run_that_died_is_closed_by_whoever_looks() {
    let world = world();
    let mut host = host(&world);
    let (_, question) = asked(&world, &mut host, "ask");
    let supervisor = world.processes().into_iter().find(|seen| seen.command.contains("run-turn")).unwrap();
    process::signal(supervisor.id, Signal::Kill);
    let end = Instant::now() + DEADLINE;
    while world.processes().iter().any(|seen| seen.id == supervisor.id) {
        assert!(Instant::now() < end, "the supervisor is still there");
        std::thread::yield_now();
    }
    let answer = json!({ "question_id": id(&question), "text": "Right." });
    assert_eq!(code(host.call("answer_question", answer)), "QUESTION_CLOSED");
    assert_eq!(world.bridge(["turns", "questions", "--json"]).expect_code(0).json()["questions"], json!([]));
}

#[test]
fn the_first_answer_stands() {
    let world = world();
    let mut host = host(&world);
    let (turn, question) = asked(&world, &mut host, "ask");
    // Several at once, each in a process of its own.
    let answers: Vec<Running> = (0..4)
        .map(|n| {
            let text = format!("answer {n}");
            process::start(world.bridge_command(["turns", "answer", id(&question), "--text", &text]))
        })
        .collect();
    let answers: Vec<Finished> = answers.into_iter().map(|running| running.finish(DEADLINE)).collect();
    let winners: Vec<usize> = (0..4).filter(|n| answers[*n].code == Some(0)).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    for (n, refused) in answers.iter().enumerate().filter(|(n, _)| *n != winners[0]) {
        assert!(refused.code == Some(2) && refused.stderr().contains("QUESTION_ANSWERED"), "{n}: {refused}");
    }
    assert_eq!(output(&mut host, &turn), format!("Told: answer {}", winners[0]));
    let again = json!({ "question_id": id(&question), "text": "again" });
    assert_eq!(code(host.call("answer_question", again)), "QUESTION_ANSWERED");
    assert_eq!(audit(&world, "question-answered").len(), 1);
}

#[test]
fn an_answer_of_the_wrong_kind_changes_nothing() {
    let world = world();
    let mut host = host(&world);
    let refused = |host: &mut Host, arguments: Value| code(host.call("answer_question", arguments));
    assert_eq!(refused(&mut host, json!({ "question_id": FOREIGN, "text": "x" })), "QUESTION_NOT_FOUND");
    assert_eq!(refused(&mut host, json!({ "question_id": "nonsense", "text": "x" })), "INVALID_ARGUMENT");
    assert_eq!(refused(&mut host, json!({ "text": "x" })), "INVALID_ARGUMENT");
    let nothing = world.bridge(["turns", "answer", FOREIGN, "--text", "x"]).expect_code(2);
    assert!(nothing.stderr().contains("QUESTION_NOT_FOUND"), "{nothing}");
    world.bridge(["turns", "answer", FOREIGN]).expect_code(64);
    world.bridge(["turns", "answer", FOREIGN, "--approve", "--deny"]).expect_code(64);

    let (turn, question) = asked(&world, &mut host, "ask");
    let long = "x".repeat(8_001);
    for wrong in [json!({}), json!({ "approve": true }), json!({ "text": " " }), json!({ "text": long })] {
        let mut arguments = json!({ "question_id": id(&question) });
        arguments.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        assert_eq!(refused(&mut host, arguments), "QUESTION_ANSWER_INVALID", "{wrong:.40}");
    }
    world.bridge(["turns", "answer", id(&question), "--approve"]).expect_code(64);
    host.call("answer_question", json!({ "question_id": id(&question), "text": "Left." })).ok();
    assert_eq!(output(&mut host, &turn), "Told: Left.");
    let (turn, question) = asked(&world, &mut host, "permit");
    let words = json!({ "question_id": id(&question), "text": "yes" });
    assert_eq!(refused(&mut host, words), "QUESTION_ANSWER_INVALID");
    host.call("answer_question", json!({ "question_id": id(&question), "approve": false })).ok();
    output(&mut host, &turn);
}

#[test]
fn who_belongs_to_a_run_answers_nothing() {
    let world = world();
    let mut outer = host(&world);
    let (turn, question) = asked(&world, &mut outer, "ask");
    let below = format!("{turn}/check");
    for (name, value) in
        [("AGENT_BRIDGE_DEPTH", "1"), ("AGENT_BRIDGE_TURN_ID", &turn), ("AGENT_BRIDGE_TURN_ID", &below)]
    {
        let mut command = world.bridge_command(["turns", "answer", id(&question), "--text", "mine"]);
        command.env(name, value);
        let refused = process::run(command, DEADLINE).expect_code(2);
        assert!(refused.stderr().contains("ANSWER_FROM_WORKER"), "{name}={value}: {refused}");
        let mut command = world.bridge_command(["serve"]);
        command.env(name, value);
        let mut inner = Host::start(command);
        inner.initialize();
        let mine = json!({ "question_id": id(&question), "text": "mine" });
        assert_eq!(code(inner.call("answer_question", mine)), "ANSWER_FROM_WORKER", "{name}={value}");
        // It may look on, and its wait is not cut short by what it cannot answer.
        let wait = inner.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 1 })).ok();
        assert!(
            wait.structured["hint"].as_str().unwrap().contains("outside this run"),
            "{:#}",
            wait.structured
        );
    }
    outer.call("answer_question", json!({ "question_id": id(&question), "text": "Left." })).ok();
    assert_eq!(output(&mut outer, &turn), "Told: Left.");
}

/// The worker itself, which asks and then answers with every mark taken out of the environment.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_cannot_answer_its_own_question() {
    let world = world();
    let answers = r#"exec env -i HOME="$HOME" PATH="$PATH" "$0" turns answer "$(cat question)" --text mine"#;
    let script = json!({ "steps": [
        { "spawn": { "quiet": true, "steps": [
            { "call_tool": { "tool": "ask_supervisor", "arguments": { "question": "Left or right?" } } } ] } },
        { "wait_for_file": { "path": "question" } },
        { "run": { "program": "sh", "args": ["-c", answers, BRIDGE], "save": "answered.json" } },
        { "answer": { "text": "done" } },
    ] });
    support::world::write(&world.outside().join("script.json"), script.to_string());
    let mut host = host(&world);
    let (turn, question) = asked(&world, &mut host, "go");
    world.write("question", id(&question));
    assert_eq!(output(&mut host, &turn), "done");
    let refused: Value = serde_json::from_str(&world.read("answered.json")).unwrap();
    assert_eq!(refused["exit"], 2, "{refused:#}");
    assert!(refused["stderr"].as_str().unwrap().contains("ANSWER_FROM_WORKER"), "{refused:#}");
    assert_eq!(state(&world, &question)["state"], "closed");
}

#[test]
fn a_secret_in_a_question_is_kept_nowhere() {
    let mut world = world();
    let (own, shaped) = ("correct-horse-battery", "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789");
    world.set_env("DEPLOY_TOKEN", own);
    let mut host = host(&world);
    // The prompt is the caller's and kept as it is, so the worker learns both from elsewhere.
    let script = json!({ "steps": [
        { "call_tool": { "tool": "ask_supervisor",
            "arguments": { "question": format!("Is {own} or {shaped} right, Bearer 0123456789abcdef0123456789abcdef?") } } },
        { "answer": { "text": "Told: {told}" } },
    ] });
    support::world::write(&world.outside().join("script.json"), script.to_string());
    let (turn, question) = asked(&world, &mut host, "go");
    let text = question["text"].as_str().unwrap();
    assert!(text.starts_with("Is ") && text.contains("right"), "{text}");
    let listed = host.call("list_questions", json!({})).ok();
    let shown = world.bridge(["turns", "show", &turn]).expect_code(0);
    host.call("answer_question", json!({ "question_id": id(&question), "text": "No." })).ok();
    assert_eq!(output(&mut host, &turn), "Told: No.");
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    let mut kept: Vec<Vec<u8>> = std::fs::read_dir(world.state())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    kept.extend([listed.whole.to_string(), shown.to_string(), question.to_string()].map(String::into_bytes));
    for secret in [own, shaped, "0123456789abcdef0123456789abcdef"] {
        let found = |bytes: &[u8]| bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!kept.iter().any(|bytes| found(bytes)), "{secret} is kept");
    }
}

#[test]
fn a_wait_is_cut_short_once_by_each_question() {
    let world = world();
    let mut host = host(&world);
    let (turn, first) = asked(&world, &mut host, "twice");
    assert_eq!(first["text"], "First?");
    // It was told already: this waits, and tells it again at the end.
    let begun = Instant::now();
    let again = host.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 1 })).ok().structured;
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert_eq!(again["questions"][0]["question_id"], first["question_id"]);
    // While somebody waits, the next question is told at once, on this connection and on others.
    let waiting = host.call_in_background("wait_turn", json!({ "turn_id": turn, "wait_seconds": 50 }));
    let mut other = self::host(&world);
    let elsewhere = other.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 50 })).ok().structured;
    assert_eq!(elsewhere["questions"][0]["question_id"], first["question_id"], "new to this connection");
    other.call("answer_question", json!({ "question_id": id(&first), "text": "one" })).ok();
    let second = host.finish(waiting).ok().structured;
    assert_eq!(second["questions"][0]["text"], "Then: one and?", "{second:#}");
    let elsewhere = other.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 50 })).ok().structured;
    assert_eq!(elsewhere["questions"][0]["text"], "Then: one and?", "{elsewhere:#}");
    host.call("answer_question", json!({ "question_id": id(&second["questions"][0]), "text": "two" })).ok();
    assert_eq!(output(&mut host, &turn), "Told: two");
}

#[test]
fn a_host_without_the_tools_is_told_the_command() {
    let world = world();
    let mut host = world.host_with(["serve", "--toolsets", "sessions"]);
    host.initialize();
    assert!(!host.tool_names().iter().any(|name| name.contains("question")));
    let reply = host.call("delegate_task", task(&world, "permit", json!({}))).ok();
    let hint = reply.structured["hint"].as_str().unwrap();
    let question = &reply.structured["questions"][0];
    assert!(hint.contains(&format!("agent-bridge turns answer {} --approve", id(question))), "{hint}");
    world.bridge(["turns", "answer", id(question), "--deny"]).expect_code(0);
    output(&mut host, reply.structured["turn_id"].as_str().unwrap());
}

/// A host that shows forms, and its person.
fn host_with_a_person(world: &World) -> Host {
    let mut host = world.host();
    host.initialize_as("2025-06-18", json!({ "elicitation": {} }));
    host
}

#[test]
fn a_person_at_the_host_answers_in_a_form() {
    let world = world();
    let mut host = host_with_a_person(&world);
    let working = host.call_in_background("delegate_task", task(&world, "ask", json!({})));
    let (form, asked) = host.server_request("elicitation/create");
    assert!(asked["message"].as_str().unwrap().contains("Left or right?"), "{asked:#}");
    assert_eq!(asked["requestedSchema"]["required"], json!(["answer"]));
    host.answer(&form, json!({ "action": "accept", "content": { "answer": "Right." } }));
    let reply = host.finish(working).ok();
    assert_eq!(reply.structured["output"], "Told: Right.", "the call went on waiting");
    let listed = host.call("list_questions", json!({ "state": "all" })).ok().structured;
    assert_eq!(listed["questions"][0]["answered_by"], "user of mcp:scripted-host");

    let working = host.call_in_background("delegate_task", task(&world, "permit", json!({})));
    let (form, asked) = host.server_request("elicitation/create");
    assert!(asked["message"].as_str().unwrap().contains("make deploy"), "{asked:#}");
    host.answer(&form, json!({ "action": "accept", "content": { "decision": "deny", "reason": "Never." } }));
    let output = host.finish(working).ok().structured["output"].as_str().unwrap().to_owned();
    assert!(output.contains("deny") && output.contains("Never."), "{output}");
}

/// Hosts decline by themselves when nobody is there. That is no answer: the question goes to whoever called.
#[test]
fn a_form_that_is_declined_leaves_the_question_open() {
    let world = world();
    let mut host = host_with_a_person(&world);
    for action in ["decline", "cancel"] {
        let working = host.call_in_background("delegate_task", task(&world, "permit", json!({})));
        let (form, _) = host.server_request("elicitation/create");
        host.answer(&form, json!({ "action": action }));
        let reply = host.finish(working).ok().structured;
        assert_eq!(reply["status"], "still_running", "{reply:#}");
        let question = &reply["questions"][0];
        assert!(reply["hint"].as_str().unwrap().contains("answer_question"), "{reply:#}");
        host.call("answer_question", json!({ "question_id": id(question), "approve": true })).ok();
        assert!(output(&mut host, reply["turn_id"].as_str().unwrap()).contains("allow"));
    }
}

#[test]
fn a_form_is_taken_back_when_somebody_else_answered() {
    let world = world();
    let mut host = host_with_a_person(&world);
    let begun = host.call("delegate_task", task(&world, "ask", json!({ "wait_seconds": 0 }))).ok().structured;
    let turn = begun["turn_id"].as_str().unwrap().to_owned();
    let working = host.call_in_background("wait_turn", json!({ "turn_id": turn, "wait_seconds": 50 }));
    let (form, _) = host.server_request("elicitation/create");
    let listed = world.bridge(["turns", "questions", "--json"]).expect_code(0).json();
    world.bridge(["turns", "answer", id(&listed["questions"][0]), "--text", "Left."]).expect_code(0);
    assert_eq!(host.notification("notifications/cancelled")["requestId"], form);
    assert_eq!(host.finish(working).ok().structured["output"], "Told: Left.");
    // What the person sends after that is no second answer, and breaks nothing.
    host.answer(&form, json!({ "action": "accept", "content": { "answer": "Right." } }));
    assert_eq!(audit(&world, "question-answered").len(), 1);
    host.call("list_questions", json!({})).ok();
}

/// Runs a program on a terminal of its own, types a line when it has printed a text, and prints what it printed.
#[cfg(unix)]
const ON_A_TERMINAL: &str = r#"
import os, pty, sys
typed, program = sys.argv[1:4], sys.argv[4:]
wanted, line, code = typed
pid, terminal = pty.fork()
if pid == 0:
    os.execv(program[0], program)
seen = b""
while True:
    try:
        more = os.read(terminal, 4096)
    except OSError:
        break
    if not more:
        break
    seen += more
    if line and wanted.encode() in seen:
        os.write(terminal, line.encode() + b"\n")
        line = ""
sys.stdout.buffer.write(seen)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == int(code), seen
"#;

#[cfg(unix)]
#[test]
fn a_person_at_a_terminal_is_asked_while_delegate_waits() {
    let world = world();
    let on_a_terminal = |prompt: &str, wanted: &str, line: &str| {
        let mut command = world.command("python3");
        command.args(["-c", ON_A_TERMINAL, wanted, line, "0", BRIDGE, "delegate", "mock", prompt]);
        let finished = process::run(command, DEADLINE);
        let shown = finished.stdout().to_owned();
        finished.expect_code(0);
        shown
    };
    let shown = on_a_terminal("ask", "Your answer", "Right.");
    assert!(shown.contains("Left or right?") && shown.contains("Told: Right."), "{shown}");
    let shown = on_a_terminal("permit", "Type approve or deny", "approve");
    assert!(shown.contains("make deploy") && shown.contains("\"allow\""), "{shown}");
    assert_eq!(audit(&world, "question-answered").len(), 2);
}

/// Without a terminal nobody is asked; what to do is said, and the answer of the command is the only thing on its output.
#[test]
fn without_a_terminal_delegate_says_how_to_answer() {
    let world = world();
    let running = process::start(world.bridge_command(["delegate", "mock", "ask"]));
    let end = Instant::now() + DEADLINE;
    let question = loop {
        let listed = world.bridge(["turns", "questions", "--json"]).expect_code(0).json();
        if let Some(question) = listed["questions"].get(0) {
            break question.clone();
        }
        assert!(Instant::now() < end, "it never asked");
    };
    // It may have been asked a moment ago, and an answer that comes first leaves nothing to say.
    running.wait_for_stderr("agent-bridge turns answer", DEADLINE);
    world.bridge(["turns", "answer", id(&question), "--text", "Left."]).expect_code(0);
    let finished = running.finish(DEADLINE).expect_code(0);
    assert_eq!(finished.stdout(), "Told: Left.\n");
    assert!(
        finished.stderr().contains(&format!("agent-bridge turns answer {}", id(&question))),
        "{finished}"
    );
    assert!(!finished.stderr().contains("Your answer"), "{finished}");
}
