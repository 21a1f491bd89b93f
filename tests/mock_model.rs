//! The mock model is what the other tests stand on: here it is checked byte by byte with a raw
//! client, and then against the real CLIs, without the bridge.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use support::prelude::*;

/// A raw client on one connection.
struct Client(TcpStream);

impl Client {
    fn connect(model: &MockModel) -> Self {
        let stream = TcpStream::connect(model.address()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self(stream)
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.0.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Everything up to `mark`, that included.
    fn read_to(&mut self, mark: &str) -> String {
        let mut got = Vec::new();
        while !got.ends_with(mark.as_bytes()) {
            let mut byte = [0];
            assert_eq!(
                self.0.read(&mut byte).unwrap(),
                1,
                "closed after {:?}",
                String::from_utf8_lossy(&got)
            );
            got.push(byte[0]);
        }
        String::from_utf8(got).unwrap()
    }

    /// One answer with a content-length: status and body.
    fn answer(&mut self) -> (u16, Value) {
        let head = self.read_to("\r\n\r\n");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// The next event of a stream.
    fn event(&mut self) -> String {
        self.read_to("data: ");
        self.read_to("\n\n")
    }

    fn at_end(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// A plain POST with a JSON body.
fn post(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!("POST {path} HTTP/1.1\r\nhost: mock\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn messages(prompt: &str) -> Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": prompt }] })
}

fn hello() -> MockModel {
    MockModel::start(Script::new().scenario("hello", [reply().text("hi")]))
}

#[test]
fn one_connection_carries_every_form_of_body() {
    let model = hello();
    let mut client = Client::connect(&model);
    let body = messages("scenario:hello").to_string();

    let (status, answer) = client.send(post("/v1/messages", &messages("scenario:hello"))).answer();
    assert_eq!((status, &answer["content"][0]["text"]), (200, &json!("hi")));

    let (first, second) = body.split_at(10);
    let chunked = format!(
        "POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{:x};note=x\r\n{first}\r\n{:X}\r\n{second}\r\n0\r\ntrailer: x\r\n\r\n",
        first.len(),
        second.len()
    );
    assert_eq!(client.send(chunked).answer().0, 200);

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(body.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let head = format!(
        "POST /messages HTTP/1.1\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        gzip.len()
    );
    assert_eq!(client.send(head).send(gzip).answer().0, 200);

    let head = format!(
        "POST /v1/messages?beta=true HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send(head);
    assert_eq!(client.read_to("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(client.send(&body).answer().0, 200);

    assert_eq!(model.turns("hello").len(), 4, "{}", model.summary());
}

#[test]
fn what_it_cannot_take_is_refused_by_status() {
    let model = hello();
    let upgrade = "GET /v1/responses HTTP/1.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";
    let zstd = "POST /v1/responses HTTP/1.1\r\ncontent-encoding: zstd\r\ncontent-length: 1\r\n\r\nx";
    let cases = [
        (upgrade, 426),
        (zstd, 415),
        ("nonsense\r\n\r\n", 400),
        ("POST /v1/messages HTTP/1.1\r\ncontent-length: many\r\n\r\n", 400),
        ("POST /v1/messages HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        ("POST /v1/elsewhere HTTP/1.1\r\n\r\n", 404),
        ("GET /v1/models HTTP/1.1\r\n\r\n", 200),
    ];
    for (request, status) in cases {
        assert_eq!(Client::connect(&model).send(request).answer().0, status, "{request}");
    }
    let (status, answer) =
        Client::connect(&model).send(post("/v1/messages", &messages("scenario:nope"))).answer();
    assert_eq!(status, 400);
    assert!(answer["error"]["message"].as_str().unwrap().contains("\"nope\""), "{answer}");
}

#[test]
fn the_last_marker_counts_and_the_step_is_the_turns_after_it() {
    let script = Script::new().scenario("old", [reply().text("old")]).scenario(
        "new.v2",
        [reply().text("first"), reply_with(|request| reply().text(request.tool_results().concat()))],
    );
    let model = MockModel::start(script);
    let mut client = Client::connect(&model);

    // A replayed conversation comes as JSON-escaped text before the new prompt.
    let replay = json!({ "earlier": "scenario:new.v2\nold text", "answer": "scenario:old\n" }).to_string();
    let prompt = format!("{replay}\nNow do scenario:new.v2. Thanks.");
    let (_, answer) = client.send(post("/v1/messages", &messages(&prompt))).answer();
    assert_eq!(answer["content"][0]["text"], "first");

    let anthropic = json!({ "messages": [
        { "role": "user", "content": "scenario:old" },
        { "role": "assistant", "content": "done" },
        { "role": "user", "content": [{ "type": "text", "text": "scenario:new.v2" }] },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "1", "name": "Read", "input": {} }] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "1", "content": [{ "type": "text", "text": "scenario:old" }] }
        ] },
    ] });
    let (_, answer) = client.send(post("/v1/messages", &anthropic)).answer();
    assert_eq!(answer["content"][0]["text"], "scenario:old", "a marker in a tool result is only a result");

    let responses = json!({ "input": [
        { "type": "message", "role": "developer", "content": [{ "type": "input_text", "text": "scenario:old" }] },
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "scenario:new.v2" }] },
        { "type": "reasoning", "summary": [] },
        { "type": "function_call", "call_id": "1", "name": "exec_command", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "1", "output": "Wall time {s}: 1\n{\"id\":7} end" },
    ] });
    let (_, answer) = client.send(post("/v1/responses", &responses)).answer();
    assert_eq!(answer["output"][0]["content"][0]["text"], "Wall time {s}: 1\n{\"id\":7} end");
    assert_eq!(model.requests()[2].tool_json(), json!({ "id": 7 }));

    let gemini = json!({ "contents": [
        { "role": "user", "parts": [{ "text": "scenario:new.v2" }] },
        { "role": "model", "parts": [{ "functionCall": { "name": "read_file", "args": {} } }] },
        { "role": "user", "parts": [{ "functionResponse": { "name": "read_file", "response": { "output": "x" } } }] },
    ] });
    let (_, answer) = client.send(post("/v1beta/models/m:generateContent", &gemini)).answer();
    assert_eq!(answer["candidates"][0]["content"]["parts"][0]["text"], r#"{"output":"x"}"#);
    assert_eq!(model.requests().iter().map(|request| request.step).collect::<Vec<_>>(), [0, 1, 1, 1]);
}

#[test]
fn secrets_do_not_reach_the_log() {
    let model = hello();
    let body = messages("scenario:hello").to_string();
    let request = format!(
        "POST /v1/messages?key=SECRET HTTP/1.1\r\nx-api-key: SECRET\r\nAuthorization: Bearer SECRET\r\nx-goog-api-key: SECRET\r\nx-plain: seen\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    Client::connect(&model).send(request).answer();
    let seen = model.wait_for_request("hello", DEADLINE);
    assert_eq!(seen.credential.as_deref(), Some("authorization Bearer"));
    assert_eq!((seen.headers["x-api-key"].as_str(), seen.headers["x-plain"].as_str()), ("***", "seen"));
    assert!(!format!("{seen:?}").contains("SECRET"), "{seen:?}");
}

#[test]
fn attempts_are_counted_for_each_conversation() {
    let flaky = attempts([reply().status(529).message("busy"), reply().text("worked")]);
    let model = MockModel::start(Script::new().scenario("flaky", [flaky]));
    let mut client = Client::connect(&model);
    for prompt in ["scenario:flaky one", "scenario:flaky two"] {
        let (status, answer) = client.send(post("/v1/messages", &messages(prompt))).answer();
        assert_eq!((status, &answer["error"]["type"]), (529, &json!("overloaded_error")));
        assert_eq!(client.send(post("/v1/messages", &messages(prompt))).answer().0, 200);
        assert_eq!(client.send(post("/v1/messages", &messages(prompt))).answer().0, 200);
    }
}

#[test]
fn a_gate_holds_the_reply_until_the_test_opens_it() {
    let model = MockModel::start(Script::new().scenario("wait", [reply().text("at last").gate("go")]));
    let mut client = Client::connect(&model);
    client.send(post("/v1/messages", &messages("scenario:wait")));
    assert_eq!(model.wait_for_request("wait", DEADLINE).status, 0);
    client.0.set_nonblocking(true).unwrap();
    assert!(client.0.read(&mut [0]).is_err(), "something came through a closed gate");
    client.0.set_nonblocking(false).unwrap();
    model.open("go");
    assert_eq!(client.answer().0, 200);
}

#[test]
fn streams_hang_and_break_where_the_script_says() {
    let script = Script::new()
        .scenario("silent", [reply().hang()])
        .scenario("half", [reply().text("some text").hang_after(3)])
        .scenario("cut", [reply().text("some text").drop_after(3)])
        .scenario("error", [reply().text("some text").stream_error("broken")]);
    let model = MockModel::start(script);
    let stream = |name: &str| {
        let mut body = messages(&format!("scenario:{name}"));
        body["stream"] = json!(true);
        let mut client = Client::connect(&model);
        client.send(post("/v1/messages", &body));
        client
    };

    let silent = stream("silent");
    model.wait_for_request("silent", DEADLINE);
    drop(silent);
    model.wait_for_client_gone("silent", DEADLINE);

    let mut half = stream("half");
    let third = (0..3).map(|_| half.event()).last().unwrap();
    assert!(third.contains("text_delta"), "{third}");
    drop(half);
    assert_eq!(model.wait_for_client_gone("half", DEADLINE).status, 200);

    let mut cut = stream("cut");
    (0..3).for_each(|_| drop(cut.event()));
    cut.read_to("\r\n");
    assert!(cut.at_end());
    assert!(model.turns("cut").iter().all(|request| !request.answered && !request.client_gone));

    let mut error = stream("error");
    let third = (0..3).map(|_| error.event()).last().unwrap();
    assert!(third.contains(r#""message":"broken""#), "{third}");
}

#[test]
fn dropping_the_mock_ends_every_connection() {
    let model = MockModel::start(Script::new().scenario("silent", [reply().hang()]));
    let mut waiting = Client::connect(&model);
    waiting.send(post("/v1/messages", &messages("scenario:silent")));
    let mut idle = Client::connect(&model);
    model.wait_for_request("silent", DEADLINE);
    let address = model.address();
    drop(model);
    assert!(waiting.at_end() && idle.at_end());
    assert!(TcpStream::connect(address).is_err(), "the port is still open");
}

/// One script that every real CLI plays.
fn for_real_clis(world: &World) -> Script {
    let path = world.file("written.txt").to_string_lossy().into_owned();
    Script::new()
        .scenario(
            "hello",
            [reply().text("Hello from the mock.").usage(Usage {
                input: 1234,
                cached: 1000,
                output: 21,
                reasoning: 5,
            })],
        )
        .scenario("think", [reply().thinking("**Considering**\n\nLet me see.").text("Thought about it.")])
        .scenario("write", [reply().text("Writing.").write_file(path, "line one\n"), reply().text("written")])
        .scenario(
            "shell",
            [reply().shell("echo from-the-shell"), reply_with(|r| reply().text(r.tool_results().concat()))],
        )
        .scenario("e401", [reply().status(401).message("no such key")])
        .scenario("e429", [reply().status(429).message("slow down").header("retry-after", "1")])
        .scenario("e500", [reply().status(500).message("exploded")])
        .scenario("hang", [reply().hang()])
        .scenario("half", [reply().text("some partial text").hang_after(5)])
}

const CODEX: [&str; 2] = ["exec", "--json"];

/// A turn of the real Codex.
fn codex_turn(codex: &real::Codex, world: &World, options: &[&str], prompt: &str) -> Finished {
    let arguments = CODEX.iter().chain(options).copied().chain(["--", prompt]);
    process::run(codex.command(world, arguments), DEADLINE)
}

fn last_codex_message(run: &Finished) -> String {
    let events = run.json_lines();
    let mut messages = events.iter().filter(|event| event["item"]["type"] == "agent_message");
    messages.next_back().and_then(|event| event["item"]["text"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn the_real_codex_plays_whole_turns() {
    let world = World::new().build();
    let model = MockModel::start(for_real_clis(&world));
    let Some(codex) = real::codex(&world, &model) else { return };

    let run = codex_turn(&codex, &world, &[], "scenario:hello please").expect_code(0);
    assert_eq!(last_codex_message(&run), "Hello from the mock.");
    let usage = run.json_lines().last().unwrap()["usage"].clone();
    assert_eq!((&usage["input_tokens"], &usage["cached_input_tokens"]), (&json!(1234), &json!(1000)));
    let request = &model.turns("hello")[0];
    assert_eq!(
        (request.api, request.credential.as_deref()),
        (Some(Api::Responses), Some("authorization Bearer"))
    );
    assert_eq!((request.stream, request.answered), (true, true));

    let thread = run.json_lines()[0]["thread_id"].as_str().unwrap().to_owned();
    let arguments = ["exec", "resume", "--json", &thread, "scenario:think now"];
    let resumed = process::run(codex.command(&world, arguments), DEADLINE).expect_code(0);
    assert_eq!(resumed.json_lines()[0]["thread_id"], thread.as_str());
    assert_eq!(last_codex_message(&resumed), "Thought about it.");
    assert!(model.turns("think")[0].user_text().contains("scenario:hello"), "the first turn was not resumed");

    let run = codex_turn(&codex, &world, &["--sandbox", "workspace-write"], "scenario:write").expect_code(0);
    assert_eq!(
        (last_codex_message(&run).as_str(), world.read("written.txt").as_str()),
        ("written", "line one\n")
    );
    assert_eq!(model.turns("write").iter().map(|request| request.step).collect::<Vec<_>>(), [0, 1]);

    let run = codex_turn(&codex, &world, &[], "scenario:shell").expect_code(0);
    assert!(last_codex_message(&run).contains("from-the-shell"), "{run}");
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn the_real_codex_reports_each_api_error() {
    let world = World::new().build();
    let model = MockModel::start(for_real_clis(&world));
    let Some(codex) = real::codex(&world, &model) else { return };
    for (scenario, text) in [("e401", "no such key"), ("e429", "429"), ("e500", "")] {
        let run = codex_turn(&codex, &world, &[], &format!("scenario:{scenario}")).expect_code(1);
        let last = run.json_lines().pop().unwrap();
        assert_eq!(last["type"], "turn.failed", "{scenario}: {run}");
        assert!(last["error"]["message"].as_str().unwrap().contains(text), "{scenario}: {last}");
        let status: u16 = scenario[1..].parse().unwrap();
        assert!(model.turns(scenario).iter().all(|request| request.status == status), "{}", model.summary());
    }
}

#[test]
fn the_real_claude_plays_whole_turns() {
    let world = World::new().build();
    let model = MockModel::start(for_real_clis(&world));
    let Some(claude) = real::claude(&world, &model) else { return };
    let turn = |prompt: &str, options: &[&str]| {
        let first = ["-p", prompt, "--output-format", "stream-json", "--verbose"];
        process::run(claude.command(&world, first.iter().chain(options).copied()), DEADLINE)
    };
    let result = |run: &Finished| run.json_lines().pop().unwrap();

    let run = turn("scenario:hello please", &[]).expect_code(0);
    let hello = result(&run);
    assert_eq!((&hello["result"], &hello["is_error"]), (&json!("Hello from the mock."), &json!(false)));
    assert_eq!(hello["usage"]["cache_read_input_tokens"], 1000, "{hello}");
    let request = &model.turns("hello")[0];
    assert_eq!((request.api, request.credential.as_deref()), (Some(Api::Anthropic), Some("x-api-key")));
    assert_eq!(model.requests().len(), 1, "one turn is one request\n{}", model.summary());

    let session = hello["session_id"].as_str().unwrap();
    let resumed = result(&turn("scenario:think now", &["--resume", session]).expect_code(0));
    assert_eq!((&resumed["session_id"], &resumed["result"]), (&json!(session), &json!("Thought about it.")));
    assert!(model.turns("think")[0].user_text().contains("scenario:hello"), "the first turn was not resumed");

    let run = turn("scenario:write", &["--permission-mode", "acceptEdits"]).expect_code(0);
    assert_eq!(
        (&result(&run)["result"], world.read("written.txt").as_str()),
        (&json!("written"), "line one\n")
    );

    let run = turn("scenario:shell", &[]).expect_code(0);
    assert!(result(&run)["result"].as_str().unwrap().contains("from-the-shell"), "{run}");
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn the_real_claude_reports_each_api_error() {
    let world = World::new().build();
    let model = MockModel::start(for_real_clis(&world));
    let Some(claude) = real::claude(&world, &model) else { return };
    for (scenario, error) in
        [("e401", "authentication_failed"), ("e429", "rate_limit"), ("e500", "server_error")]
    {
        let prompt = format!("scenario:{scenario}");
        let arguments = ["-p", &prompt, "--output-format", "stream-json", "--verbose"];
        let run = process::run(claude.command(&world, arguments), DEADLINE).expect_code(1);
        let events = run.json_lines();
        assert_eq!(events.last().unwrap()["is_error"], true, "{scenario}: {run}");
        assert!(events.iter().any(|event| event["error"] == error), "{scenario}: {run}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_cli_is_seen_to_go_away() {
    let world = World::new().build();
    let model = MockModel::start(for_real_clis(&world));
    let (Some(codex), Some(claude)) = (real::codex(&world, &model), real::claude(&world, &model)) else {
        return;
    };

    for scenario in ["hang", "half"] {
        let prompt = format!("scenario:{scenario}");
        let run = process::start(codex.command(&world, CODEX.into_iter().chain([prompt.as_str()])));
        model.wait_for_request(scenario, DEADLINE);
        // Older Node stays as the parent of Codex and passes the signal on.
        run.signal(Signal::Interrupt);
        assert_eq!(model.wait_for_client_gone(scenario, DEADLINE).api, Some(Api::Responses));
        run.finish(DEADLINE).expect_code(1);
    }

    let arguments = ["-p", "scenario:hang claude", "--output-format", "stream-json", "--verbose"];
    let run = process::start(claude.command(&world, arguments));
    model.wait_for_requests("hang", 2, DEADLINE);
    run.signal(Signal::Interrupt);
    model.wait_until(DEADLINE, "Claude Code to go away", |log| {
        log.iter().any(|request| request.api == Some(Api::Anthropic) && request.client_gone).then_some(())
    });
    run.finish(DEADLINE).expect_code(0);
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn the_real_gemini_plays_a_turn() {
    let world = World::new().build();
    let model = MockModel::start(for_real_clis(&world));
    let Some(gemini) = real::gemini(&world, &model) else { return };
    let arguments = ["--approval-mode", "auto_edit", "-o", "stream-json", "-p", "scenario:write"];
    let run = process::run(gemini.command(&world, arguments), DEADLINE).expect_code(0);
    assert_eq!(run.json_lines().pop().unwrap()["status"], "success", "{run}");
    assert_eq!(world.read("written.txt"), "line one\n");
    assert_eq!(model.turns("write").iter().map(|request| request.step).collect::<Vec<_>>(), [0, 1]);
}
