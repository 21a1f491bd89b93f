//! The harness itself: what it promises has to hold, and what it checks has to be able to fail.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use support::prelude::*;

/// The message with which something panics.
fn failure(what: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(what)).expect_err("it should have failed the test");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => (*other.downcast::<&str>().unwrap()).to_owned(),
    }
}

/// A server that is a shell script.
fn server(script: &str) -> Host {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    Host::start(command)
}

/// Answers `initialize`, then a tool call with a progress notification before the result.
const SERVER: &str = r#"
read line
echo '{"jsonrpc":"2.0","id":1,"result":{"serverInfo":{"name":"shell"}}}'
read line
read line
echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}'
echo '{"jsonrpc":"2.0","id":"s1","method":"elicitation/create","params":{"message":"really?"}}'
read answer
echo '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"one"},{"type":"text","text":"two"}],"structuredContent":{"n":1},"isError":true}}'
while read line; do :; done
printf '%s' "$answer" >&2
exit 3
"#;

#[test]
fn a_host_keeps_apart_what_comes_mixed() {
    let mut host = server(SERVER);
    assert_eq!(host.initialize()["serverInfo"]["name"], "shell");
    let call = host.call_in_background("ask", json!({}));
    // The notification comes first and is kept.
    let (id, params) = host.server_request("elicitation/create");
    assert_eq!(params["message"], "really?");
    host.answer(&id, json!({ "action": "decline" }));
    let result = host.finish(call).err();
    assert_eq!((result.text.as_str(), &result.structured), ("one\ntwo", &json!({ "n": 1 })));
    assert_eq!(host.notification("notifications/progress")["progress"], 1);
    assert!(host.pending_messages().is_empty());
    host.hang_up();
    let end = host.wait_exit(DEADLINE).expect_code(3);
    let answered: Value = serde_json::from_str(end.stderr().trim()).unwrap();
    assert_eq!(answered, json!({ "jsonrpc": "2.0", "id": "s1", "result": { "action": "decline" } }));
    assert_eq!(end.stdout().lines().count(), 4);
}

#[test]
fn a_host_takes_nothing_but_messages() {
    for (line, word) in [
        ("a log line", "no MCP message"),
        ("{}", "not JSON-RPC"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "not JSON-RPC"),
        (r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, "not JSON-RPC"),
        ("", "no MCP message"),
    ] {
        let message = failure(|| drop(server(&format!("echo '{line}'; read x")).next_message()));
        assert!(message.contains(word), "{line}: {message}");
    }
    let unread = failure(|| {
        let host = server("echo oops; echo >&2; read x");
        process::wait_until("the line to be printed", DEADLINE, || host.stderr() == "\n");
    });
    assert!(unread.contains("oops"), "a line nobody read: {unread}");
    let long = failure(|| {
        let script = r#"printf '{"jsonrpc":"2.0","id":1,"result":"'; head -c 1100000 /dev/zero | tr '\0' x; echo '"}'; read x"#;
        drop(server(script).next_message());
    });
    assert!(long.contains("a line of 11000"), "{long}");
    let cut = failure(|| drop(server("printf '{}'").next_message()));
    assert!(cut.contains("no end"), "{cut}");
}

#[test]
fn waits_end_at_their_deadline_and_tell_the_story() {
    let message = failure(|| {
        let mut host = server(
            "echo '{\"jsonrpc\":\"2.0\",\"method\":\"x\"}'; echo grumble >&2; while read line; do :; done",
        );
        host.deadline = Duration::from_millis(300);
        let _ = host.request("tools/list", json!({}));
    });
    assert!(message.contains("-> {") && message.contains(r#"<- {"jsonrpc""#), "{message}");
    assert!(message.contains("grumble"), "{message}");

    let mut deaf = server("exec sleep 60");
    deaf.deadline = Duration::from_millis(300);
    assert!(!deaf.send_bytes(&vec![b'x'; 1 << 20]), "a server that does not read took a mebibyte");

    let mut sleeper = Command::new("/bin/sh");
    sleeper.args(["-c", "echo begun; sleep 60"]);
    let message = failure(|| drop(process::run(sleeper, Duration::from_millis(300))));
    assert!(message.contains("did not end") && message.contains("begun"), "{message}");
}

#[test]
fn a_world_is_alone() {
    let world =
        World::new().agent("codex", json!({ "bin": "x" })).ceiling("read-only").env("EXTRA", "1").build();
    assert_eq!(world.config()["agents"]["codex"]["bin"], "x");
    assert_eq!(world.config()["policy"]["sandboxCeiling"], "read-only");
    assert_eq!(world.config()["allowedRoots"], json!([world.repo()]));
    world.set_agent("claude", json!({ "enabled": false }));
    assert_eq!(world.config()["agents"]["claude"]["enabled"], false);

    assert_eq!(world.git(["status", "--porcelain"]), "");
    assert_eq!(world.git(["log", "--format=%an <%ae> %s"]), "Test <test@example.invalid> Start");
    world.write("sub/new.txt", "x");
    assert_eq!(world.git(["status", "--porcelain"]), "?? sub/");
    let outside = process::run(
        {
            let mut git = world.command("git");
            git.arg("rev-parse").current_dir(world.outside());
            git
        },
        DEADLINE,
    );
    assert_eq!(outside.code, Some(128), "there is a repository above the world\n{outside}");

    let seen = process::run(world.command("env"), DEADLINE).expect_code(0);
    assert!(seen.stdout().contains("\nEXTRA=1\n") || seen.stdout().starts_with("EXTRA=1\n"), "{seen}");
    assert!(!seen.stdout().contains("CARGO"), "the test's own environment leaks: {seen}");
    let path = world.path().to_owned();
    drop(world);
    assert!(!path.exists());
}

#[test]
fn a_process_that_is_left_is_found() {
    let world = World::new().build();
    world.assert_no_process_left(Duration::ZERO);
    // Its parent is gone and its folder is elsewhere: found by its environment all the same.
    let mut shell = world.command("sh");
    shell.args(["-c", "cd /; sleep 60 >/dev/null 2>&1 & echo $!"]);
    let run = process::run(shell, DEADLINE).expect_code(0);
    let id: u32 = run.stdout().trim().parse().unwrap();
    let left = world.processes();
    assert_eq!(left.iter().map(|process| process.id).collect::<Vec<_>>(), [id], "{left:?}");
    let message = failure(|| world.assert_no_process_left(Duration::from_millis(50)));
    assert!(message.contains("sleep 60"), "{message}");
    process::signal(id, Signal::Kill);
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn a_fake_hands_its_arguments_to_the_mock_agent() {
    let world = World::new().build();
    let program = world.fake("codex", &json!({ "steps": [] }));
    let text = std::fs::read_to_string(&program).unwrap();
    assert!(
        text.contains(BRIDGE) && text.contains(" mock-agent --script ") && text.ends_with("-- \"$@\"\n"),
        "{text}"
    );
    let found = process::run(
        {
            let mut sh = world.command("sh");
            sh.args(["-c", "command -v codex"]);
            sh
        },
        DEADLINE,
    );
    assert_eq!(found.expect_code(0).stdout().trim(), program.to_string_lossy());
}

#[test]
fn output_that_a_child_holds_open_is_noticed() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "sleep 60 & echo $!"]);
    let run = process::run(command, DEADLINE);
    process::signal(run.stdout().trim().parse().unwrap(), Signal::Kill);
    assert!(run.output_held_open);
}

#[test]
fn independent_clients_can_be_scripted() {
    let world = World::new().build();
    let node =
        "import { Client } from '@modelcontextprotocol/client'; console.log(typeof Client, process.argv[2]);";
    let python = "import mcp, sys; print(bool(mcp.ClientSession), sys.argv[1])";
    for (command, answer) in [
        (real::node_script(&world, "@modelcontextprotocol/client", node), "function here"),
        (real::python_script(&world, python), "True here"),
    ] {
        let Some(mut command) = command else { return };
        command.arg("here");
        assert_eq!(process::run(command, DEADLINE).expect_code(0).stdout().trim(), answer);
    }
}
