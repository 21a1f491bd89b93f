//! The line protocol at its edges: versions, order of messages, tokens, and who else may print.

use super::*;

const HANDSHAKES: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn modern(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": { "name": "modern-host", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// Sends a request with an id of the test's choice and gives its whole answer.
#[track_caller]
fn ask(host: &mut Host, id: Value, method: &str, params: Value) -> Value {
    host.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    host.wait_for(&format!("the answer to {id}"), |message| {
        message["id"] == id && message.get("method").is_none()
    })
}

#[test]
fn every_handshake_version_that_is_spoken_is_agreed_to() {
    let world = World::new().build();
    for version in HANDSHAKES {
        let mut host = world.host();
        assert_eq!(host.initialize_as(version, json!({}))["protocolVersion"], version);
        assert!(!host.tool_names().is_empty(), "no tools under {version}");
    }
}

#[test]
fn a_version_that_is_not_spoken_is_answered_with_one_that_is() {
    let world = World::new().build();
    for version in ["2026-07-28", "2099-01-01", "2024-10-07", "nonsense", "", "2025-11-25 "] {
        let mut host = world.host();
        let agreed = host.initialize_as(version, json!({}))["protocolVersion"].clone();
        assert_eq!(agreed, "2025-11-25", "asked for {version:?}");
        assert!(!host.tool_names().is_empty());
    }
}

#[test]
fn a_handshake_of_the_wrong_shape_is_one_error_and_a_right_one_still_works() {
    let world = World::new().build();
    let mut host = world.host();
    for (id, params) in [
        (
            json!(1),
            json!({ "protocolVersion": 5, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } }),
        ),
        (json!(2), json!({})),
    ] {
        let answer = ask(&mut host, id, "initialize", params);
        assert!(answer["error"]["code"].is_i64(), "{answer}");
        // What a careless host sends next all the same.
        host.notify("notifications/initialized", json!({}));
    }
    host.initialize();
    assert!(!host.tool_names().is_empty());
}

#[test]
fn the_handshake_free_revision_works_without_a_handshake() {
    let world = World::new().build();
    world.fake("codex", &json!({}));
    let mut host = world.host();
    let list = ask(&mut host, json!("a"), "tools/list", json!({ "_meta": modern("2026-07-28") }));
    assert!(list["result"]["tools"].is_array(), "{list}");
    let params = json!({ "name": "delegate_task", "arguments": task(&world, "say hi", json!({})), "_meta": modern("2026-07-28") });
    let call = ask(&mut host, json!("b"), "tools/call", params);
    assert_eq!(call["result"]["structuredContent"]["output"], "say hi", "{call}");
    let turns = ask(
        &mut host,
        json!("c"),
        "tools/call",
        json!({ "name": "list_turns", "arguments": {}, "_meta": modern("2026-07-28") }),
    );
    assert_eq!(turns["result"]["structuredContent"]["turns"][0]["requested_by"], "mcp:modern-host");
}

#[test]
fn a_request_of_a_revision_that_is_not_spoken_is_told_which_are() {
    let world = World::new().build();
    let mut host = world.host();
    for version in ["2099-01-01", "nonsense"] {
        let answer = ask(&mut host, json!(version), "tools/list", json!({ "_meta": modern(version) }));
        assert!(answer["error"].to_string().contains("2026-07-28"), "{answer}");
        host.notify("notifications/cancelled", json!({ "requestId": version }));
    }
    let answer = ask(&mut host, json!("bare"), "tools/list", json!({}));
    assert!(answer["error"]["message"].is_string(), "neither handshake nor revision: {answer}");
    host.initialize();
    assert!(!host.tool_names().is_empty());
}

#[test]
fn a_probe_first_leaves_both_ways_open() {
    let world = World::new().build();
    for modern_after in [false, true] {
        let mut host = world.host();
        let found =
            ask(&mut host, json!("probe-1"), "server/discover", json!({ "_meta": modern("2026-07-28") }));
        assert!(found["result"].to_string().contains("2026-07-28"), "{found}");
        assert!(ask(&mut host, json!("ping-1"), "ping", json!({}))["result"].is_object());
        // The probe timed out at the host, which says so; a stray answer too.
        host.notify("notifications/cancelled", json!({ "requestId": "probe-1", "reason": "timeout" }));
        host.answer(&json!("never-asked"), json!({}));
        if modern_after {
            let list = ask(&mut host, json!("l"), "tools/list", json!({ "_meta": modern("2026-07-28") }));
            assert!(list["result"]["tools"].is_array(), "{list}");
        } else {
            host.initialize();
            assert!(!host.tool_names().is_empty());
        }
    }
}

#[test]
fn what_comes_before_any_request_does_not_end_the_server() {
    let world = World::new().build();
    let mut host = world.host();
    host.notify("notifications/initialized", json!({}));
    host.notify("notifications/cancelled", json!({ "requestId": 1 }));
    host.notify("notifications/of/a/kind/to/come", json!({ "x": 1 }));
    host.answer(&json!(77), json!({}));
    host.send_bytes(b"\n\r\n  \nnot JSON at all\n[]\n{}\n\xff\xfe\n");
    host.initialize();
    assert!(!host.tool_names().is_empty());
}

#[test]
fn lines_that_are_no_messages_do_not_end_an_open_session() {
    let world = World::new().build();
    let mut host = world.host();
    host.initialize();
    host.send_bytes(b"\n\r\nnot JSON at all\n\xff\xfe\n\"text\"\n12\n{\"jsonrpc\":\"2.0\"}\n");
    host.notify("notifications/of/a/kind/to/come", json!({}));
    let unknown = host.try_request("no/such/method", json!({})).unwrap_err();
    assert_eq!(unknown.code, -32601);
    assert!(!host.tool_names().is_empty());
    assert_eq!(ask(&mut host, json!("text-id"), "ping", json!({}))["result"], json!({}));
}

#[test]
fn the_server_never_asks_the_host_for_anything() {
    let capabilities =
        json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": { "listChanged": true } });
    let world = World::new().build();
    let fail =
        json!({ "answer": { "failed": "Your access token could not be refreshed. Please log in again." } });
    world.fake("codex", &json!({ "rules": [{ "when": { "contains": "login" }, "steps": [fail] }] }));
    let mut host = world.host();
    host.initialize_as("2025-11-25", capabilities);
    let first = host.call("delegate_task", task(&world, "hello", json!({ "sandbox": "workspace-write" })));
    let session = first.structured["bridge_session_id"].clone();
    let _ = host.call("continue_session", json!({ "session_id": session, "prompt": "go on" }));
    let _ = host.call("handoff", json!({ "session_id": session, "to_agent": "codex" }));
    let _ = host.call("delegate_task", task(&world, "too much", json!({ "sandbox": "full-access" }))).err();
    let _ = host.call("delegate_task", task(&world, "login", json!({}))).err();
    let _ = host.call("list_agents", json!({}));
    let _ = host.call("diagnose_install", json!({}));
    let asked: Vec<Value> = all_messages(&mut host)
        .into_iter()
        .filter(|message| message.get("method").is_some() && message.get("id").is_some())
        .collect();
    assert!(asked.is_empty(), "{asked:#?}");
}

#[test]
fn progress_carries_the_hosts_own_token_and_none_is_sent_without_one() {
    let world = World::new().build();
    world.fake("codex", &json!({ "steps": [{ "sleep_ms": 300 }, { "answer": {} }] }));
    let mut host = world.host();
    host.initialize();
    for token in [json!(0), json!(7), json!("a-string"), json!("")] {
        let params = json!({ "name": "delegate_task", "arguments": task(&world, "x", json!({})), "_meta": { "progressToken": token } });
        let pending = host.start_request("tools/call", params);
        let _ = host.finish(pending).ok();
        let note = host.notification("notifications/progress");
        assert_eq!(note["progressToken"], token, "the token and its type");
        host.pending_messages();
    }
    for meta in [json!(null), json!({}), json!({ "other": 1 })] {
        let mut params = json!({ "name": "delegate_task", "arguments": task(&world, "x", json!({})) });
        if !meta.is_null() {
            params["_meta"] = meta;
        }
        let pending = host.start_request("tools/call", params);
        let _ = host.finish(pending).ok();
        let unasked = host.pending_messages();
        assert!(unasked.is_empty(), "{unasked:?}");
    }
}

#[test]
fn no_progress_follows_the_reply() {
    let world = World::new().build();
    let beat = json!({ "event": { "type": "item.completed", "item": { "id": "i", "type": "reasoning", "text": "thinking" } } });
    world.fake(
        "codex",
        &json!({ "steps": [{ "repeat": { "times": 50, "steps": [beat] } }, { "answer": {} }] }),
    );
    let mut host = world.host();
    host.initialize();
    let mut ids = Vec::new();
    for n in 0..10 {
        let pending =
            host.call_with_progress("delegate_task", task(&world, "x", json!({})), &format!("p{n}"));
        ids.push((pending.id.clone(), format!("p{n}")));
        let _ = host.finish(pending).ok();
    }
    let messages = all_messages(&mut host);
    for (id, token) in ids {
        let reply = messages.iter().position(|message| message["id"] == id).unwrap();
        let late =
            messages[reply..].iter().filter(|message| message["params"]["progressToken"] == token).count();
        assert_eq!(late, 0, "progress of {token} came after its reply");
    }
}

#[test]
fn no_way_to_start_the_server_prints_anything_but_protocol() {
    type Spoil = fn(&World);
    let ways: [(&str, Spoil); 8] = [
        ("no config", |world| std::fs::remove_file(world.config_path()).unwrap()),
        ("empty config", |world| std::fs::write(world.config_path(), "").unwrap()),
        ("broken config", |world| std::fs::write(world.config_path(), "{ \"allowedRoots\": [").unwrap()),
        ("binary config", |world| std::fs::write(world.config_path(), [0xff, 0xfe, 0, 1]).unwrap()),
        ("unknown key", |world| {
            let mut config = world.config();
            config["allowedRoot"] = json!([]);
            world.write_config(&config);
        }),
        ("a folder in the config's place", |world| {
            std::fs::remove_file(world.config_path()).unwrap();
            std::fs::create_dir(world.config_path()).unwrap();
        }),
        ("a file in the state folder's place", |world| std::fs::write(world.state(), "x").unwrap()),
        ("a damaged database", |world| {
            std::fs::create_dir(world.state()).unwrap();
            std::fs::write(world.state().join("bridge.sqlite3"), vec![b'x'; 4096]).unwrap();
        }),
    ];
    let requests = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "h", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": "list_turns", "arguments": {} } }),
    ];
    let input: String = requests.iter().map(|request| format!("{request}\n")).collect();
    for (name, spoil) in ways {
        for arguments in
            [vec!["serve"], vec!["serve", "--toolsets", "nonsense"], vec!["serve", "--no-such-flag"]]
        {
            let world = World::new().env("RUST_LOG", "trace").env("RUST_BACKTRACE", "1").build();
            spoil(&world);
            let end = world.bridge_with_input(&arguments, &input);
            for line in end.stdout().lines() {
                let message: Value = serde_json::from_str(line)
                    .unwrap_or_else(|_| panic!("{name}, {arguments:?}: stdout holds {line:?}\n{end}"));
                assert_eq!(message["jsonrpc"], "2.0", "{name}, {arguments:?}: {line}");
            }
            if end.code != Some(0) {
                assert!(!end.stderr().trim().is_empty(), "{name}, {arguments:?}: failed without a word");
                assert!(!end.stderr().contains("panicked"), "{name}: {end}");
            }
        }
    }
}

#[test]
fn a_damaged_database_fails_calls_not_the_connection() {
    let world = World::new().build();
    world.fake("codex", &json!({}));
    std::fs::create_dir(world.state()).unwrap();
    let database = world.state().join("bridge.sqlite3");
    std::fs::write(&database, vec![b'x'; 4096]).unwrap();
    let mut host = world.host();
    host.initialize();
    for (tool, arguments) in [("list_turns", json!({})), ("delegate_task", task(&world, "x", json!({})))] {
        let refused = host.call(tool, arguments).err();
        assert_eq!(refused.structured["error"]["code"], "STORE_CORRUPT", "{tool}");
        assert!(refused.text.contains(&*database.to_string_lossy()), "which file: {}", refused.text);
    }
    assert!(!host.tool_names().is_empty());
    assert_eq!(std::fs::read(&database).unwrap(), vec![b'x'; 4096], "the damaged file was touched");
}

/// Runs the server with pipes as usual, but on a terminal of its own, and shows on standard error what
/// anybody wrote to that terminal.
#[cfg(unix)]
const ON_A_TERMINAL: &str = r#"
import os, pty, sys, threading
ins, outs = os.dup(0), os.dup(1)
pid, master = pty.fork()
if pid == 0:
    os.dup2(ins, 0); os.dup2(outs, 1)
    os.close(ins); os.close(outs)
    os.execv(sys.argv[1], sys.argv[1:])
os.close(ins); os.close(outs); os.close(0); os.close(1)
while True:
    try: data = os.read(master, 4096)
    except OSError: break
    if not data: break
    os.write(2, b"TERMINAL:" + data)
os.waitpid(pid, 0)
"#;

#[cfg(unix)]
#[test]
fn a_worker_cannot_reach_the_terminal_of_the_host() {
    let world = World::new().build();
    let python = ["/usr/bin/python3", "/usr/local/bin/python3", "/opt/homebrew/bin/python3"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.exists())
        .or_else(|| support::world::find_program("python3"));
    let Some(python) = python else { return };
    world.program(
        "noise",
        "#!/bin/sh\necho NOISE-ON-STDERR >&2\n(echo NOISE-ON-TTY > /dev/tty) 2>/dev/null\n(read line < /dev/tty) 2>/dev/null\nexit 0\n",
    );
    let noise = world.bin().join("noise");
    world.fake(
        "codex",
        &json!({ "steps": [{ "run": { "program": noise } }, { "answer": { "text": "quiet" } }] }),
    );
    let mut command = world.command(python);
    command.args(["-c", ON_A_TERMINAL, support::world::BRIDGE, "serve"]);
    let mut host = Host::start(command);
    host.initialize();
    let result = host.call("delegate_task", task(&world, "be noisy", json!({ "timeout_sec": 20 }))).ok();
    assert_eq!(result.structured["output"], "quiet");
    drop(host.call("list_turns", json!({})));
    let seen = host.stderr();
    assert!(seen.contains("TERMINAL:") && seen.contains("ready"), "the terminal is not watched: {seen}");
    assert!(!seen.contains("NOISE"), "a worker wrote to the host's terminal: {seen}");
}

#[test]
fn a_backend_whose_command_is_gone_is_named_and_the_others_still_work() {
    let world = World::new().agent("claude", json!({ "bin": "claude" })).build();
    let usage = "error: unrecognized subcommand 'exec'\n\nUsage: codex [OPTIONS] <COMMAND>\n\nFor more information, try '--help'.\n";
    world.fake(
        "codex",
        &json!({ "version": "codex-cli 9.0.0", "stdin": "none", "steps": [{ "print": { "text": usage, "to": "stderr" } }, { "exit": 2 }] }),
    );
    world.fake("claude", &json!({ "steps": [{ "answer": { "text": "still here" } }] }));
    let mut host = world.host();
    host.initialize();
    let failed = host.call("delegate_task", task(&world, "x", json!({}))).err();
    assert_eq!(failed.structured["outcome"], "worker-error", "{:#}", failed.whole);
    let detail = failed.structured["detail"].as_str().unwrap();
    assert!(detail.contains("does not take the arguments") && detail.contains("made for"), "{detail}");
    assert!(detail.contains("unrecognized subcommand"), "the CLI's own words are missing: {detail}");
    let agents = host.call("list_agents", json!({})).ok();
    let codex = agents.structured["agents"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["id"] == "codex")
        .unwrap()
        .clone();
    assert_eq!(codex["health"]["binary"]["version"], "9.0.0", "{codex:#}");
    let well = host.call("delegate_task", task(&world, "x", json!({ "agent": "claude" }))).ok();
    assert_eq!(well.structured["output"], "still here");
}
