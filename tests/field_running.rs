//! Kinds of failure that users of such bridges report, about a worker that runs: what it prints, and what
//! becomes of its processes. How it is started: `field_starting`.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::PathBuf;

use support::prelude::*;

const AGENTS: [&str; 2] = ["codex", "claude"];

/// A world in which both agents play the same script.
fn both(world: World, script: &Value) -> World {
    for agent in AGENTS {
        world.fake(agent, script);
    }
    world
}

fn ready(world: &World) -> Host {
    let mut host = world.host();
    host.initialize();
    host
}

fn task(world: &World, agent: &str, prompt: &str) -> Value {
    json!({ "agent": agent, "prompt": prompt, "cwd": world.repo(), "timeout_sec": 50, "wait_seconds": 55 })
}

fn wait_for_file(path: &std::path::Path) {
    process::wait_until(&format!("{}", path.display()), DEADLINE, || path.exists());
}

/// Nothing of this world runs but the server. A supervisor that has just answered may take a moment to end.
#[track_caller]
fn assert_only_the_server_is_left(world: &World, host: &Host) {
    let others = || {
        let mut left = world.processes();
        left.retain(|process| process.id != host.id());
        left
    };
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !others().is_empty() {
        assert!(std::time::Instant::now() < end, "left: {:#?}", others());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}

fn print_bytes(to: &str, bytes: &[u8]) -> Value {
    json!({ "print": { "to": to, "base64": base64(bytes) } })
}

fn utf16(text: &str) -> Vec<u8> {
    [0xFF, 0xFE].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
}

/// Kind 3.
#[test]
fn an_exit_without_a_word_is_never_a_success() {
    for silence in ["", "  \n\t\n", "\u{1b}[0m\u{1b}[2J\u{1b}[?25h\n"] {
        let world = both(
            World::new().build(),
            &json!({ "steps": [{ "print": { "text": silence } }, { "exit": 0 }] }),
        );
        let mut host = ready(&world);
        for agent in AGENTS {
            let result = host.call("delegate_task", task(&world, agent, "hello")).err();
            assert_eq!(result.structured["outcome"], "empty", "{agent}, {silence:?}: {}", result.text);
            assert!(result.text.contains("continue_session"), "no way on: {}", result.text);
        }
    }
}

/// Kind 3.
#[test]
fn a_complete_turn_without_an_answer_can_be_resumed() {
    let script = json!({ "rules": [
        { "when": { "resumed": false }, "steps": [{ "answer": { "text": "" } }] },
        { "steps": [{ "answer": { "text": "here it is" } }] },
    ] });
    let world = both(World::new().build(), &script);
    let mut host = ready(&world);
    for agent in AGENTS {
        let silent = host.call("delegate_task", task(&world, agent, "hello")).err();
        assert_eq!(silent.structured["outcome"], "empty", "{}", silent.text);
        let session = &silent.structured["bridge_session_id"];
        let again = host.call("continue_session", json!({ "session_id": session, "prompt": "Well?" })).ok();
        assert_eq!(again.structured["continuity"], "native-resume", "{:#}", again.structured);
        assert_eq!(again.structured["output"], "here it is");
    }
}

/// Kind 4.
#[test]
fn a_worker_that_never_prints_ends_at_the_start_deadline() {
    let world = World::new().default("startTimeoutSec", json!(1)).build();
    let world = both(world, &json!({ "steps": ["hang"] }));
    let mut host = ready(&world);
    let calls = AGENTS.map(|agent| host.call_in_background("delegate_task", task(&world, agent, "hello")));
    for call in calls {
        let result = host.finish(call).err();
        assert_eq!(result.structured["outcome"], "timeout");
        assert_eq!(result.structured["code"], "TURN_START_DEADLINE", "{}", result.text);
        assert!(result.text.contains("no output"), "{}", result.text);
    }
    assert_only_the_server_is_left(&world, &host);
}

/// Kind 5.
#[test]
fn a_megabyte_on_standard_error_stops_nobody() {
    let noise =
        json!({ "print": { "to": "stderr", "repeat": { "bytes": 1 << 20, "text": "debug output\n" } } });
    let world = both(World::new().build(), &json!({ "steps": [noise, { "answer": { "text": "done" } }] }));
    let mut host = ready(&world);
    for agent in AGENTS {
        let result = host.call("delegate_task", task(&world, agent, "hello")).ok();
        assert_eq!(result.structured["output"], "done");
        assert_eq!(result.structured["stderr_chars"], 1 << 20);
    }
}

/// Kind 5.
#[test]
fn of_a_long_standard_error_the_reply_shows_the_end_in_few_bytes() {
    let script = json!({ "steps": [
        { "print": { "to": "stderr", "repeat": { "bytes": 1 << 20, "text": "debug output\n" } } },
        { "print": { "to": "stderr", "text": "\nthe true reason\n" } },
        { "exit": 2 },
    ] });
    let world = both(World::new().build(), &script);
    let mut host = ready(&world);
    for agent in AGENTS {
        let result = host.call("delegate_task", task(&world, agent, "hello")).err();
        let shown = result.structured["stderr"].as_str().unwrap();
        assert!(shown.ends_with("the true reason\n"), "{shown}");
        assert!(shown.len() < 16 << 10, "{} bytes", shown.len());
        assert_eq!(result.structured["stderr_truncated"], true);
    }
}

/// Kind 6.
#[test]
fn a_worker_that_ends_before_it_reads_its_prompt_tells_its_own_reason() {
    let script = json!({
        "stdin": "none",
        "steps": [{ "print": { "to": "stderr", "text": "cannot read workspace\n" } }, { "exit": 3 }],
    });
    let world = both(World::new().build(), &script);
    let mut host = ready(&world);
    let prompt = "x".repeat(1_000_000);
    for agent in AGENTS {
        let result = host.call("delegate_task", task(&world, agent, &prompt)).err();
        assert_eq!(result.structured["outcome"], "worker-error");
        assert_eq!(result.structured["exit_code"], 3);
        let detail = result.structured["detail"].as_str().unwrap();
        assert!(detail.contains("cannot read workspace"), "{detail}");
        assert!(!result.text.to_lowercase().contains("pipe"), "{}", result.text);
    }
    // The server has taken no harm.
    host.call("list_turns", json!({})).ok();
}

/// Kind 6.
#[test]
fn a_worker_may_answer_without_reading_its_whole_prompt() {
    let script = json!({ "stdin": { "bytes": 10 }, "steps": [{ "answer": { "text": "enough" } }] });
    let world = both(World::new().build(), &script);
    let mut host = ready(&world);
    let prompt = "x".repeat(1_000_000);
    for agent in AGENTS {
        let result = host.call("delegate_task", task(&world, agent, &prompt)).ok();
        assert_eq!(result.structured["output"], "enough");
    }
}

/// Most memory a process has had so far, in KiB; `None` once it is gone.
#[cfg(target_os = "linux")]
fn peak_kib(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

/// Runs a turn that waits, then lets `flood` loose, and checks that neither the server nor the supervisor
/// takes more than 32 MiB for it, and that the server answers other calls meanwhile.
#[cfg(target_os = "linux")]
#[track_caller]
fn flooded(agent: &str, flood: &[Value], end: &[Value]) -> ToolResult {
    const ROOM_KIB: u64 = 32 << 10;
    let world = World::new().build();
    let [waits, go, flooded, finish] =
        ["waits", "go", "flooded", "finish"].map(|name| world.path().join(name));
    let mut steps = vec![
        json!({ "touch_file": waits }),
        json!({ "wait_for_file": { "path": go, "timeout_ms": 50_000 } }),
    ];
    steps.extend_from_slice(flood);
    steps.push(json!({ "touch_file": flooded }));
    steps.push(json!({ "wait_for_file": { "path": finish, "timeout_ms": 50_000 } }));
    steps.extend_from_slice(end);
    world.fake(agent, &json!({ "steps": steps }));
    let mut host = ready(&world);
    host.call("list_turns", json!({})).ok();
    let call = host.call_in_background("delegate_task", task(&world, agent, "flood"));
    wait_for_file(&waits);
    let supervisors: Vec<u32> = world
        .processes()
        .iter()
        .filter(|process| process.command.contains("run-turn"))
        .map(|process| process.id)
        .collect();
    let [supervisor] = supervisors[..] else { panic!("one supervisor: {supervisors:?}") };
    let server = host.id();
    let idle = [server, supervisor].map(|id| peak_kib(id).unwrap());
    let sampler = std::thread::spawn(move || {
        let mut last = idle[1];
        while let Some(peak) = peak_kib(supervisor) {
            last = peak;
            std::thread::sleep(Duration::from_millis(1));
        }
        last
    });
    std::fs::write(&go, "").unwrap();
    // The run may be ended before the flood is over; the server answers at once in any case.
    let patience = std::mem::replace(&mut host.deadline, Duration::from_secs(15));
    for _ in 0..3 {
        host.call("list_turns", json!({})).ok();
    }
    host.deadline = patience;
    std::fs::write(&finish, "").unwrap();
    let result = host.finish(call);
    let peaks = [peak_kib(server).unwrap(), sampler.join().unwrap()];
    for (who, (idle, peak)) in ["the server", "the supervisor"].into_iter().zip(idle.into_iter().zip(peaks)) {
        assert!(peak - idle <= ROOM_KIB, "{who} grew from {idle} KiB to {peak} KiB");
    }
    result
}

/// Kind 7, as one document of very many events.
#[cfg(target_os = "linux")]
#[test]
fn a_list_of_very_many_events_is_read_in_bounded_memory() {
    let flood = [
        json!({ "print": { "text": "[", "repeat": { "bytes": 349_525 * 3, "text": "{}," } } }),
        json!({ "print": { "text": "{\"type\":\"result\",\"result\":\"the answer\"}]\n" } }),
    ];
    let result = flooded("claude", &flood, &[]);
    assert_eq!(result.structured["output"], "the answer", "{:#}", result.structured["outcome"]);
}

/// Kind 7, as an event.
#[cfg(target_os = "linux")]
#[test]
fn a_line_of_eight_megabytes_is_read_in_bounded_memory() {
    let long = |before: &str, after: &str| {
        vec![
            json!({ "print": { "text": before, "repeat": { "bytes": 8 << 20, "text": "output of a command " } } }),
            json!({ "print": { "text": format!("{after}\n") } }),
        ]
    };
    let codex = long(
        r#"{"type":"item.completed","item":{"id":"item_0","type":"command_execution","command":"ls","aggregated_output":""#,
        r#"","exit_code":0,"status":"completed"}}"#,
    );
    let claude = long(
        r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":""#,
        r#""}]}}"#,
    );
    for (agent, flood) in [("codex", codex), ("claude", claude)] {
        let result = flooded(agent, &flood, &[json!({ "answer": { "text": "the end" } })]).ok();
        assert_eq!(result.structured["output"], "the end", "{agent}");
    }
}

/// Kind 7, without end.
#[cfg(target_os = "linux")]
#[test]
fn two_hundred_megabytes_without_a_line_end_are_a_named_end_in_bounded_memory() {
    for agent in AGENTS {
        // It does not stop by itself when it is asked to.
        let flood = [
            json!({ "ignore_signals": ["INT", "TERM", "HUP"] }),
            json!({ "print": { "repeat": { "bytes": 200 << 20 } } }),
        ];
        let result = flooded(agent, &flood, &[]).err();
        assert_eq!(result.structured["code"], "OUTPUT_LINE_TOO_LONG", "{agent}: {}", result.text);
        assert_eq!(result.structured["outcome"], "worker-error");
    }
}

/// An event of the agent's stream whose text is these bytes.
fn answer_event(agent: &str, text: &[u8]) -> Vec<u8> {
    let (before, after) = match agent {
        "codex" => (
            r#"{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":""#,
            "\"}}\n{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}\n",
        ),
        _ => (
            r#"{"type":"result","subtype":"success","is_error":false,"session_id":"01a22da4-c4d5-4380-a8a6-b574a17c03d0","result":""#,
            "\"}\n",
        ),
    };
    [before.as_bytes(), text, after.as_bytes()].concat()
}

fn first_event(agent: &str) -> Vec<u8> {
    match agent {
        "codex" => b"{\"type\":\"thread.started\",\"thread_id\":\"01a22da4-c4d5-4380-a8a6-b574a17c03d0\"}\n".to_vec(),
        _ => b"{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"01a22da4-c4d5-4380-a8a6-b574a17c03d0\"}\n".to_vec(),
    }
}

/// Kind 8.
#[test]
fn bytes_that_are_no_text_are_replaced_and_the_result_is_kept() {
    // As events, and, from Claude Code, as one object.
    for (agent, events) in [("codex", true), ("claude", true), ("claude", false)] {
        let world = World::new().build();
        let noise = b"\xFF\xFE\nwindows \x93quotes\x94 caf\xE9\ncut \xE2\x82\n";
        let first = if events { first_event(agent) } else { Vec::new() };
        let script = json!({ "steps": [
            print_bytes("stderr", &utf16("Warnung: \u{e4}\r\n")),
            print_bytes("stderr", noise),
            print_bytes("stdout", noise),
            print_bytes("stdout", &first),
            print_bytes("stdout", noise),
            print_bytes("stdout", &answer_event(agent, b"a caf\xE9 and \xE2\x82 and \xFF\xFE, done")),
        ] });
        world.fake(agent, &script);
        let mut host = ready(&world);
        for _ in 0..2 {
            // The second call shows that the connection has taken no harm.
            let result = host.call("delegate_task", task(&world, agent, "hello")).ok();
            let output = result.structured["output"].as_str().unwrap();
            assert!(output.starts_with("a caf\u{FFFD} and \u{FFFD}"), "{agent}: {output}");
            assert!(output.ends_with(", done"), "{agent}: {output}");
        }
    }
}

/// Kind 8.
#[test]
fn a_character_cut_by_a_chunk_border_is_whole_again() {
    for agent in AGENTS {
        let world = World::new().build();
        let text = "žluťoučký kůň 🐎 \u{20ac}";
        let event =
            String::from_utf8([first_event(agent), answer_event(agent, text.as_bytes())].concat()).unwrap();
        world.fake(agent, &json!({ "steps": [{ "print": { "text": event, "piece": 1, "pause_ms": 2 } }] }));
        let result = ready(&world).call("delegate_task", task(&world, agent, "hello")).ok();
        assert_eq!(result.structured["output"], text);
    }
}

/// Kind 8.
#[test]
fn text_in_the_wide_encoding_of_windows_can_be_read() {
    let script = json!({ "steps": [
        print_bytes("stdout", &utf16("nothing was done\r\n")),
        print_bytes("stderr", &utf16("the workspace is damaged\r\n")),
        { "exit": 4 },
    ] });
    let world = both(World::new().build(), &script);
    let mut host = ready(&world);
    for agent in AGENTS {
        let result = host.call("delegate_task", task(&world, agent, "hello")).err();
        let view = &result.structured;
        assert!(view["detail"].as_str().unwrap().contains("the workspace is damaged"), "{view:#}");
        assert!(view["stderr"].as_str().unwrap().contains("the workspace is damaged"), "{view:#}");
        assert!(view["output"].as_str().unwrap().contains("nothing was done"), "{view:#}");
    }
}

/// Kind 19.
#[test]
fn a_timeout_ends_the_grandchild_that_holds_the_output_as_well() {
    let world = World::new().build();
    let script = |first: Value| json!({ "steps": [first, { "spawn": { "steps": ["hang"] } }, "hang"] });
    world.fake("codex", &script(json!({ "print": { "text": "working\n" } })));
    // This one does not react to the polite signal.
    world.fake("claude", &script(json!({ "ignore_signals": ["INT", "TERM", "HUP"] })));
    let mut host = ready(&world);
    let calls = AGENTS.map(|agent| {
        let mut arguments = task(&world, agent, "hello");
        arguments["timeout_sec"] = json!(2);
        host.call_in_background("delegate_task", arguments)
    });
    for call in calls {
        let result = host.finish(call).err();
        assert_eq!(result.structured["outcome"], "timeout");
        assert_eq!(result.structured["code"], "TURN_RUN_DEADLINE", "{}", result.text);
        // Two seconds, three of grace, and room for a busy machine.
        let took = result.structured["duration_ms"].as_u64().unwrap();
        assert!((2_000..15_000).contains(&took), "it took {took} ms");
        assert_eq!(result.structured["meta"]["survivingProcesses"], Value::Null);
    }
    assert_only_the_server_is_left(&world, &host);
}

/// A script whose children leave the process group in every way, and the files that show that they run.
fn scattered(world: &World) -> (Value, Vec<PathBuf>) {
    let child = |name: &str, group: &str, double_fork: bool| {
        let file = world.path().join(name);
        let steps = json!([{ "ignore_signals": ["INT", "TERM", "HUP"] }, { "touch_file": file }, "hang"]);
        let spawn = json!({ "steps": steps, "group": group, "double_fork": double_fork, "quiet": true });
        (json!({ "spawn": spawn }), file)
    };
    let (steps, files): (Vec<_>, Vec<_>) = [
        child("own", "own", false),
        child("session", "session", false),
        child("orphan", "same", true),
        child("daemon", "session", true),
    ]
    .into_iter()
    .unzip();
    let mut all = vec![json!({ "ignore_signals": ["INT", "TERM", "HUP"] })];
    all.extend(steps);
    all.push(json!("hang"));
    (json!({ "steps": all }), files)
}

/// Kind 20.
#[test]
fn a_cancel_finds_the_children_that_left_the_process_group() {
    for agent in AGENTS {
        let world = World::new().build();
        let (script, files) = scattered(&world);
        world.fake(agent, &script);
        let mut host = ready(&world);
        let mut arguments = task(&world, agent, "hello");
        arguments["wait_seconds"] = json!(0);
        let running = host.call("delegate_task", arguments).ok();
        for file in &files {
            wait_for_file(file);
        }
        let turn = &running.structured["turn_id"];
        let cancelled = host.call("cancel_turn", json!({ "turn_id": turn }));
        let result = &cancelled.structured["result"];
        assert_eq!(result["outcome"], "cancelled", "{}", cancelled.text);
        assert_eq!(result["code"], "TURN_CANCELLED");
        assert_eq!(result["meta"]["survivingProcesses"], Value::Null);
        assert_only_the_server_is_left(&world, &host);
    }
}

/// Kind 20.
#[test]
fn a_cancelled_request_finds_the_children_that_left_the_process_group() {
    let world = World::new().build();
    let (script, files) = scattered(&world);
    world.fake("codex", &script);
    let mut host = ready(&world);
    let call = host.call_in_background("delegate_task", task(&world, "codex", "hello"));
    for file in &files {
        wait_for_file(file);
    }
    host.cancel(&call, "no longer wanted");
    assert_only_the_server_is_left(&world, &host);
}

/// Kind 20: a daemon that shows in nothing that it came from the worker.
#[cfg(target_os = "linux")]
#[test]
fn a_daemon_without_environment_folder_or_group_of_its_worker_is_ended() {
    let world = World::new().build();
    let inner = world.fake("inner", &json!({ "steps": [{ "print": { "text": "working\n" } }, "hang"] }));
    let noted = world.path().join("daemon");
    let daemon = r#"cd / && exec env -i setsid sh -c 'trap "" TERM INT HUP; echo $$ >"$1.new"; mv "$1.new" "$1"; exec sleep 300' sh"#;
    let script = format!(
        "#!/bin/sh\n({daemon} '{}' </dev/null >/dev/null 2>&1 &)\nexec '{}' \"$@\"\n",
        noted.display(),
        inner.display()
    );
    world.program("codex", &script.replace("env -i", "env -i PATH=/usr/bin:/bin"));
    let mut host = ready(&world);
    let mut arguments = task(&world, "codex", "hello");
    arguments["wait_seconds"] = json!(0);
    let running = host.call("delegate_task", arguments).ok();
    wait_for_file(&noted);
    let id: u32 = std::fs::read_to_string(&noted).unwrap().trim().parse().unwrap();
    let status = PathBuf::from(format!("/proc/{id}/status"));
    assert!(status.exists(), "the daemon runs");
    host.call("cancel_turn", json!({ "turn_id": running.structured["turn_id"] }));
    process::wait_until("the daemon to be gone", Duration::from_secs(10), || !status.exists());
}
