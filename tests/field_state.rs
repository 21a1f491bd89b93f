//! What outlives a process: troubles with jobs, locks, disks, homes and clocks that users of similar
//! programs reported, played by scripted agents through the real program. The numbers in the comments
//! are those of the reports.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops where it cannot go on, and says so where it cannot run"
)]

mod support;

use std::path::Path;
use std::time::Instant;

use support::prelude::*;

/// Sets the wall clock of a process off, for tests.
const CLOCK: &str = "AGENT_BRIDGE_TEST_CLOCK_OFFSET_MS";
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// A world in which Codex is a fake with this script.
fn world(script: Value) -> World {
    let world = World::new().agent("codex", json!({ "enabled": true })).build();
    world.fake("codex", &script);
    world
}

/// A fake that says when it works and goes on when it is told to.
fn gated() -> Value {
    json!({
        "counter": "../outside/runs",
        "rules": [{ "when": { "contains": "again" }, "steps": [{ "answer": { "text": "Continued." } }] }],
        "steps": [
            { "event": { "type": "thread.started", "thread_id": "01a22da4-c4d5-7380-a8a6-000000000001" } },
            { "touch_file": "../outside/working" },
            { "wait_for_file": { "path": "../outside/go" } },
            { "answer": { "text": "The answer." } },
        ],
    })
}

fn introduced(world: &World) -> Host {
    let mut host = world.host();
    host.initialize();
    host
}

/// A server whose wall clock is set off.
fn host_at(world: &World, offset: &str) -> Host {
    let mut command = world.bridge_command(["serve"]);
    command.env(CLOCK, offset);
    let mut host = Host::start(command);
    host.initialize();
    host
}

/// The arguments of a call that only starts the work, with more of them.
fn task(world: &World, more: Value) -> Value {
    let mut arguments =
        json!({ "agent": "codex", "prompt": "Do it.", "cwd": world.repo(), "wait_seconds": 0 });
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    arguments
}

fn until_working(world: &World) {
    let file = world.outside().join("working");
    process::wait_until("the worker to work", DEADLINE, || file.exists());
}

fn go(world: &World) {
    std::fs::write(world.outside().join("go"), "").unwrap();
}

/// How often a fake was started.
fn runs(world: &World) -> usize {
    let files = std::fs::read_dir(world.outside()).unwrap();
    files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("runs.")).count()
}

/// The processes of the world whose arguments hold this word.
fn with_word(world: &World, word: &str) -> Vec<u32> {
    let processes = world.processes();
    processes.iter().filter(|process| process.command.contains(word)).map(|process| process.id).collect()
}

fn kill_supervisor(world: &World) {
    let supervisors = with_word(world, "run-turn");
    assert_eq!(supervisors.len(), 1, "{:#?}", world.processes());
    process::signal(supervisors[0], Signal::Kill);
    process::wait_until("the supervisor to die", DEADLINE, || with_word(world, "run-turn").is_empty());
}

fn listed(host: &mut Host) -> Vec<Value> {
    host.call("list_turns", json!({})).ok().structured["turns"].as_array().unwrap().clone()
}

/// 29
#[test]
fn a_result_waits_for_the_next_connection_when_the_work_is_to_go_on() {
    for killed in [true, false] {
        let world = world(gated());
        let mut first = introduced(&world);
        let call = task(&world, json!({ "on_disconnect": "detach", "wait_seconds": 50 }));
        let given_up = first.call_in_background("delegate_task", call);
        until_working(&world);
        if killed {
            first.kill();
        } else {
            first.cancel(&given_up, "the host's own limit");
            first.hang_up();
            first.wait_exit(DEADLINE).expect_code(0);
        }
        let mut second = introduced(&world);
        let turns = listed(&mut second);
        assert_eq!(turns.len(), 1);
        assert_eq!(turns[0]["status"], "still_running");
        go(&world);
        let result =
            second.call("wait_turn", json!({ "turn_id": turns[0]["turn_id"], "wait_seconds": 50 })).ok();
        assert_eq!(result.structured["output"], "The answer.");
        assert_eq!(runs(&world), 1);
    }
}

/// 29
#[test]
fn work_that_ends_with_its_host_is_recorded_as_cancelled() {
    for killed in [true, false] {
        let world = world(gated());
        let mut first = introduced(&world);
        let call = task(&world, json!({ "on_disconnect": "cancel", "wait_seconds": 50 }));
        let _given_up = first.call_in_background("delegate_task", call);
        until_working(&world);
        if killed {
            first.kill();
        } else {
            first.hang_up();
            first.wait_exit(DEADLINE).expect_code(0);
        }
        let mut second = introduced(&world);
        let turn = listed(&mut second)[0]["turn_id"].clone();
        let result = second.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 50 })).err();
        assert_eq!(result.structured["outcome"], "cancelled", "{:#}", result.structured);
        assert_eq!(result.structured["code"], "TURN_CANCELLED");
        second.hang_up();
        world.assert_no_process_left(DEADLINE);
    }
}

/// A worker with a child that left its group and session, and that will not end by itself.
fn stubborn() -> Value {
    json!({
        "counter": "../outside/runs",
        "rules": [{ "when": { "contains": "again" }, "steps": [{ "answer": { "text": "Continued." } }] }],
        "steps": [
            { "ignore_signals": ["INT", "TERM", "HUP"] },
            { "event": { "type": "thread.started", "thread_id": "01a22da4-c4d5-7380-a8a6-000000000001" } },
            { "event": { "type": "item.completed", "item": { "id": "0", "type": "agent_message", "text": "Halfway." } } },
            { "spawn": { "steps": ["hang"], "group": "session", "quiet": true } },
            { "spawn": { "steps": ["hang"], "double_fork": true, "quiet": true } },
            { "touch_file": "../outside/working" },
            "hang",
        ],
    })
}

/// 34, 35
#[test]
fn a_turn_whose_supervisor_was_killed_is_interrupted_at_the_next_look_and_its_tree_is_gone() {
    let world = world(stubborn());
    let mut host = introduced(&world);
    let turn = host.call("delegate_task", task(&world, json!({}))).structured["turn_id"].clone();
    until_working(&world);
    kill_supervisor(&world);
    let turns = listed(&mut host);
    assert_eq!(turns[0]["turn_id"], turn);
    assert_eq!((&turns[0]["status"], &turns[0]["outcome"]), (&json!("finished"), &json!("interrupted")));
    process::wait_until("the worker and its children to be gone", Duration::from_secs(5), || {
        with_word(&world, "mock-agent").is_empty()
    });
    let result = host.call("wait_turn", json!({ "turn_id": turn })).err();
    assert_eq!(result.structured["code"], "TURN_INTERRUPTED");

    // To cancel what is dead is no fault.
    let cancelled = host.call("cancel_turn", json!({ "turn_id": turn })).ok();
    assert_eq!(cancelled.structured["cancel_requested"], false);
    assert_eq!(cancelled.structured["result"]["outcome"], "interrupted");
    // What had been printed can still be read.
    let page = json!({ "session_id": cancelled.structured["result"]["bridge_session_id"], "turn": 0, "field": "stdout" });
    assert!(host.call("get_turn_output", page).ok().text.contains("Halfway."));
}

/// 34
#[test]
fn a_cancel_is_the_first_to_find_a_dead_supervisor_and_succeeds() {
    let world = world(stubborn());
    let mut host = introduced(&world);
    let turn = host.call("delegate_task", task(&world, json!({}))).structured["turn_id"].clone();
    until_working(&world);
    kill_supervisor(&world);
    let cancelled = host.call("cancel_turn", json!({ "turn_id": turn })).ok();
    assert_eq!(cancelled.structured["result"]["outcome"], "interrupted", "{:#}", cancelled.structured);
    host.hang_up();
    world.assert_no_process_left(DEADLINE);
}

/// 34
#[test]
fn a_session_goes_on_at_once_after_its_server_and_supervisor_were_killed() {
    let world = world(stubborn());
    let mut host = introduced(&world);
    let view = host.call("delegate_task", task(&world, json!({}))).structured;
    until_working(&world);
    kill_supervisor(&world);
    host.kill();
    let mut host = introduced(&world);
    let began = Instant::now();
    let session = &view["bridge_session_id"];
    let next = host
        .call("continue_session", json!({ "session_id": session, "prompt": "again", "wait_seconds": 50 }))
        .ok();
    assert_eq!(next.structured["output"], "Continued.");
    // Far below the 30 s for which a held lock would be waited.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let turns = listed(&mut host);
    assert_eq!(turns[1]["outcome"], "interrupted");
    assert_eq!(turns.len(), 2);
    host.hang_up();
    world.assert_no_process_left(DEADLINE);
}

/// 34
#[test]
fn a_killed_server_leaves_a_supervisor_that_ends_the_work_as_agreed() {
    let world = world(stubborn());
    let mut host = introduced(&world);
    host.call("delegate_task", task(&world, json!({ "on_disconnect": "cancel" })));
    until_working(&world);
    host.kill();
    world.assert_no_process_left(DEADLINE);
    let turns = world.bridge(["turns", "list", "--json"]).expect_code(0).json();
    assert_eq!(turns["turns"][0]["outcome"], "cancelled", "{turns:#}");
}

/// 35
#[cfg(unix)]
#[test]
fn a_worker_that_was_killed_is_a_failure_with_its_signal() {
    let world = world(gated());
    let mut host = introduced(&world);
    let turn = host.call("delegate_task", task(&world, json!({}))).structured["turn_id"].clone();
    until_working(&world);
    for worker in with_word(&world, "mock-agent") {
        process::signal(worker, Signal::Kill);
    }
    let result = host.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 50 })).err();
    assert_eq!(result.structured["outcome"], "worker-error");
    assert_eq!(result.structured["signal"], 9);
    assert_eq!(listed(&mut host)[0]["status"], "finished");
}

/// A CLI whose logins break if it is started twice within this time.
fn jealous(ms: u64) -> Value {
    json!({
        "steps": [
            { "not_within": { "file": "../outside/started", "ms": ms, "otherwise": [{ "answer": { "failed": "refresh token was already used" } }] } },
            { "answer": { "text": "Done." } },
        ],
    })
}

fn three_at_once(world: &World) -> Vec<String> {
    let mut host = introduced(world);
    let call = task(world, json!({ "wait_seconds": 50 }));
    let calls: Vec<Pending> =
        (0..3).map(|_| host.call_in_background("delegate_task", call.clone())).collect();
    let results = calls.into_iter().map(|call| host.finish(call).structured["outcome"].clone());
    results.map(|outcome| outcome.as_str().unwrap_or("refused").to_owned()).collect()
}

/// 36
#[test]
fn starts_of_one_agent_are_kept_apart_as_configured() {
    let world = World::new().agent("codex", json!({ "enabled": true, "startSpacingMs": 1500 })).build();
    world.fake("codex", &jealous(200));
    assert_eq!(three_at_once(&world), ["success"; 3]);
}

/// 36
#[test]
fn a_turn_that_waits_for_its_start_can_be_cancelled_and_never_starts() {
    let world = World::new().agent("codex", json!({ "enabled": true, "startSpacingMs": 60_000 })).build();
    world.fake("codex", &json!({ "counter": "../outside/runs" }));
    let mut host = introduced(&world);
    host.call("delegate_task", task(&world, json!({ "wait_seconds": 50 }))).ok();
    let waiting = host.call("delegate_task", task(&world, json!({}))).structured["turn_id"].clone();
    let cancelled = host.call("cancel_turn", json!({ "turn_id": waiting })).ok();
    assert_eq!(cancelled.structured["result"]["outcome"], "cancelled", "{:#}", cancelled.structured);
    assert_eq!(runs(&world), 1);
}

/// A folder that is checked, then waits for its start, then leads elsewhere.
#[cfg(unix)]
#[test]
fn a_folder_that_is_swapped_while_its_turn_waits_to_start_is_not_entered() {
    let world = World::new().agent("codex", json!({ "enabled": true, "startSpacingMs": 2_000 })).build();
    world.fake("codex", &json!({ "counter": "../outside/runs" }));
    world.write("work/file", "");
    let mut host = introduced(&world);
    host.call("delegate_task", task(&world, json!({ "wait_seconds": 50 }))).ok();
    let waiting =
        host.call("delegate_task", task(&world, json!({ "cwd": world.file("work") }))).ok().structured;
    std::fs::rename(world.file("work"), world.file("was")).unwrap();
    std::os::unix::fs::symlink(world.outside(), world.file("work")).unwrap();
    let arguments = json!({ "turn_id": waiting["turn_id"], "wait_seconds": 50 });
    let ended = host.call("wait_turn", arguments).structured;
    assert_eq!(ended["code"], "CWD_CHANGED", "{ended:#}");
    assert_eq!(runs(&world), 1);
}

/// 36: what the spacing is for.
#[test]
fn parallel_starts_without_spacing_break_a_jealous_login() {
    let world = world(jealous(60_000));
    let outcomes = three_at_once(&world);
    assert!(outcomes.contains(&"login-required".to_owned()), "{outcomes:?}");
}

/// 40
#[test]
fn a_damaged_database_is_named_and_left_as_it_is() {
    let world = world(json!({}));
    world.bridge(["delegate", "codex", "Do it."]).expect_code(0);
    // The supervisor closes the database after its answer is out.
    world.assert_no_process_left(DEADLINE);
    let file = world.state().join("bridge.sqlite3");
    let whole = std::fs::read(&file).unwrap();
    let half = whole[..whole.len() / 2].to_vec();
    let mut scribbled = whole.clone();
    // From the header of the first page on.
    scribbled[100..4000].fill(b'{');
    for (name, content) in [
        ("empty", Vec::new()),
        ("one byte", b"x".to_vec()),
        ("half", half),
        ("no database", vec![b'['; 5000]),
        ("scribbled", scribbled),
    ] {
        for log in ["bridge.sqlite3-wal", "bridge.sqlite3-shm"] {
            let _ = std::fs::remove_file(world.state().join(log));
        }
        std::fs::write(&file, &content).unwrap();
        let mut host = introduced(&world);
        let refused = host.call("list_turns", json!({})).err();
        assert!(refused.text.contains("STORE_CORRUPT"), "{name}: {}", refused.text);
        assert!(refused.text.contains("bridge.sqlite3"), "{name}: {}", refused.text);
        assert!(host.call("list_agents", json!({})).ok().text.contains("codex"), "the rest still works");
        let doctor = world.bridge(["doctor", "--json"]);
        assert!(doctor.stdout().contains("bridge.sqlite3"), "{name}: {doctor}");
        let delegated = world.bridge(["delegate", "codex", "Do it."]);
        assert!(
            delegated.code != Some(0) && delegated.stderr().contains("STORE_CORRUPT"),
            "{name}: {delegated}"
        );
        assert!(std::fs::read(&file).unwrap() == content, "{name}: the file was changed");
    }
}

/// 40
#[test]
fn a_bad_record_is_named_and_all_others_are_listed() {
    let world = world(json!({}));
    let mut host = introduced(&world);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let damages = [
        ("turns", "meta", "{\"half\": [1, "),
        ("turns", "meta", deep.as_str()),
        ("turns", "meta", ""),
        ("turns", "agent", "nobody"),
        ("sessions", "agents", "nobody"),
    ];
    let mut bad = Vec::new();
    let database = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
        let connection = rusqlite::Connection::open(world.state().join("bridge.sqlite3")).unwrap();
        connection.busy_timeout(DEADLINE).unwrap();
        assert_eq!(connection.execute(sql, values).unwrap(), 1);
    };
    for (table, column, value) in damages {
        let view = host.call("delegate_task", task(&world, json!({ "wait_seconds": 50 }))).ok().structured;
        let id =
            view[if table == "turns" { "turn_id" } else { "bridge_session_id" }].as_str().unwrap().to_owned();
        database(&format!("UPDATE {table} SET {column} = ?1 WHERE id = ?2"), &[&value, &id]);
        bad.push((table, id));
    }
    let good = host.call("delegate_task", task(&world, json!({ "wait_seconds": 50 }))).ok().structured;

    let turns = host.call("list_turns", json!({})).ok().structured;
    let ids: Vec<&str> =
        turns["turns"].as_array().unwrap().iter().filter_map(|turn| turn["turn_id"].as_str()).collect();
    assert!(ids.contains(&good["turn_id"].as_str().unwrap()) && ids.len() == 2, "{turns:#}");
    let sessions = host.call("list_sessions", json!({})).ok().structured;
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 5, "{sessions:#}");
    for (table, id) in &bad {
        let list = if *table == "turns" { &turns } else { &sessions };
        let skipped = list["skipped"].as_array().unwrap();
        let named = skipped.iter().find(|skipped| skipped["id"] == *id);
        assert!(
            named.is_some_and(|skipped| !skipped["reason"].as_str().unwrap().is_empty()),
            "{id}: {list:#}"
        );
        let command = if *table == "turns" { "turns" } else { "sessions" };
        let printed = world.bridge([command, "list"]).expect_code(0);
        assert!(printed.stderr().contains(id.as_str()), "{id}: {printed}");
        let tool = if *table == "turns" { "wait_turn" } else { "get_session" };
        let key = if *table == "turns" { "turn_id" } else { "session_id" };
        let refused = host.call(tool, json!({ key: id })).err();
        assert!(refused.text.contains("STORE_ROW_CORRUPT"), "{}", refused.text);
    }
}

/// 40
#[test]
fn an_output_file_that_is_damaged_is_told_and_hides_nothing_else() {
    let world = world(json!({ "steps": [{ "answer": { "text": "The whole answer." } }] }));
    let mut host = introduced(&world);
    for damage in ["gone", "empty", "half"] {
        let view = host.call("delegate_task", task(&world, json!({ "wait_seconds": 50 }))).ok().structured;
        let turn = view["turn_id"].as_str().unwrap();
        let file = world.state().join("blobs").join(&turn[..2]).join(format!("{turn}.answer"));
        match damage {
            "gone" => std::fs::remove_file(&file).unwrap(),
            "empty" => std::fs::write(&file, "").unwrap(),
            _ => std::fs::write(&file, "The who").unwrap(),
        }
        let page = json!({ "session_id": view["bridge_session_id"], "turn": 0 });
        let refused = host.call("get_turn_output", page);
        assert!(refused.is_error && refused.text.contains("BLOB_"), "{damage}: {}", refused.text);
        let shown = host.call("wait_turn", json!({ "turn_id": turn }));
        assert!(
            shown.text.contains("BLOB_"),
            "{damage}: an answer that is not whole passes for one: {}",
            shown.text
        );
    }
    assert_eq!(listed(&mut host).len(), 3);
}

/// Runs the bridge with a small disk of its own mounted on the state folder. `None`, loudly, where that
/// cannot be done.
#[cfg(target_os = "linux")]
fn on_a_small_disk(world: &World, kib: u32, then: &str) -> Option<std::process::Command> {
    let mount = format!("mount -t tmpfs -o size={kib}k,mode=700 small '{}'", world.state().display());
    std::fs::create_dir_all(world.state()).unwrap();
    for flags in ["-m", "-rm"] {
        let mut probe = world.command("unshare");
        probe.args([flags, "sh", "-c", &mount]);
        if probe.output().is_ok_and(|output| output.status.success()) {
            let mut command = world.command("unshare");
            command.args([flags, "sh", "-c"]).arg(format!("{mount} && {then}"));
            return Some(command);
        }
    }
    assert!(std::env::var_os("CI").is_none(), "this test must run in CI, where file systems can be mounted");
    eprintln!("SKIPPED: no file system can be mounted here");
    None
}

/// A fake that fills the disk by what it prints, and then answers.
#[cfg(target_os = "linux")]
fn chatty(world: &World, answer: &Value) {
    let noise = "{\"type\":\"item.completed\",\"item\":{\"type\":\"todo_list\"}}\n";
    world.fake(
        "codex",
        &json!({ "steps": [
            { "event": { "type": "thread.started", "thread_id": "01a22da4-c4d5-7380-a8a6-000000000001" } },
            { "print": { "repeat": { "bytes": noise.len() * 150_000, "text": noise } } },
            { "answer": answer },
        ] }),
    );
}

/// 40
#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_recorded_is_still_given() {
    let world = world(json!({}));
    chatty(&world, &json!({ "text": "The only copy." }));
    let Some(command) = on_a_small_disk(&world, 2048, &format!("exec '{BRIDGE}' serve")) else { return };
    let mut host = Host::start(command);
    host.initialize();
    let result = host.call("delegate_task", task(&world, json!({ "wait_seconds": 50 })));
    assert_eq!(result.structured["output"], "The only copy.", "{:#}", result.whole);
    assert_eq!(result.structured["code"], "RECORD_NOT_WRITTEN", "{:#}", result.structured);
    assert!(result.text.contains("RECORD_NOT_WRITTEN"), "{}", result.text);
    // Whoever asks this server again gets it again.
    let turn = &result.structured["turn_id"];
    let again = host.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 5 }));
    assert_eq!(again.structured["output"], "The only copy.", "{:#}", again.whole);
    // The disk is full and stays full: what else is asked for is answered or refused by name.
    let refused = host.call("delegate_task", task(&world, json!({ "wait_seconds": 50 })));
    assert!(refused.is_error && refused.text.contains("STORE_FULL"), "{}", refused.text);
    host.call("list_sessions", json!({})).ok();
}

/// 40
#[cfg(target_os = "linux")]
#[test]
fn the_terminal_gets_an_answer_that_cannot_be_recorded() {
    let world = world(json!({}));
    chatty(&world, &json!({ "text": "The only copy." }));
    let Some(command) = on_a_small_disk(&world, 2048, &format!("exec '{BRIDGE}' delegate codex 'Do it.'"))
    else {
        return;
    };
    let ended = process::run(command, DEADLINE);
    assert_eq!(ended.stdout().trim(), "The only copy.", "{ended}");
    assert!(ended.stderr().contains("RECORD_NOT_WRITTEN"), "{ended}");
}

/// 42
#[cfg(target_os = "linux")]
#[test]
fn a_state_folder_without_working_locks_is_refused_with_advice() {
    for (body, word) in [
        ("errno = EOPNOTSUPP; return -1;", "no file locks"),
        ("errno = ENOLCK; return -1;", "no file locks"),
        ("return 0;", "twice"),
    ] {
        let mut world = world(json!({ "counter": "../outside/runs" }));
        // The folder exists and was used: a good past proves nothing.
        world.bridge(["delegate", "codex", "Do it."]).expect_code(0);
        let Some(library) = support::world::lock_wrapper(&world, body) else { return };
        world.set_env("LD_PRELOAD", library);
        let refused = world.bridge(["delegate", "codex", "Do it."]).expect_code(2);
        assert!(refused.stderr().contains("LOCKS_") && refused.stderr().contains("stateDir"), "{refused}");
        let mut host = introduced(&world);
        let refused = host.call("delegate_task", task(&world, json!({}))).err();
        assert!(refused.text.contains("LOCKS_") && refused.text.contains("stateDir"), "{}", refused.text);
        assert_eq!(runs(&world), 1, "nothing was started");
        let doctor = world.bridge(["doctor", "--json"]).json();
        let checks = doctor["diagnostics"]["checks"].as_array().unwrap();
        let locks = checks.iter().find(|check| check["name"] == "locks").unwrap();
        assert_eq!(locks["status"], "fail");
        assert!(locks["detail"].as_str().unwrap().contains(word), "{locks:#}");
    }
}

/// The commands that must work however little there is around them.
#[track_caller]
fn assert_usable_without_state(world: &World, config: &Path) {
    let config = config.to_str().unwrap();
    world.bridge(["--version"]).expect_code(0);
    world.bridge(["--help"]).expect_code(0);
    let doctor = world.bridge(["--config", config, "doctor"]);
    assert!(
        doctor.code.is_some_and(|code| code <= 2) && doctor.stdout().contains("agent-bridge"),
        "{doctor}"
    );
    world.bridge(["--config", config, "config", "check"]).expect_code(0);
}

/// 43
#[test]
fn no_home_or_a_strange_one_breaks_nothing_that_needs_none() {
    let mut world = world(json!({}));
    let config = world.path().join("config.json");
    std::fs::write(&config, world.config().to_string()).unwrap();
    for home in [None, Some("/"), Some(""), Some("relative"), Some("/nowhere/at/all")] {
        match home {
            Some(home) => world.set_env("HOME", home),
            None => world.remove_env("HOME"),
        }
        assert_usable_without_state(&world, &config);
        // An explicit state folder is enough.
        let delegated = world.bridge(["--config", config.to_str().unwrap(), "delegate", "codex", "Do it."]);
        assert_eq!(delegated.expect_code(0).stdout().trim(), "Do it.");
        // Without any config and home the error says what to do, and nothing panics.
        let bare = world.bridge(["doctor"]);
        assert!(
            bare.code.is_some_and(|code| code <= 2) && !bare.stderr().contains("panicked"),
            "{home:?}: {bare}"
        );
    }
}

/// 43
#[cfg(target_os = "linux")]
#[test]
fn a_home_that_cannot_be_written_is_named_by_the_first_call_that_needs_it() {
    let world = world(json!({}));
    let mut config = world.config();
    config.as_object_mut().unwrap().remove("stateDir");
    world.write_config(&config);
    let home = world.home();
    // Read-only even for root.
    let mount = format!("mount --bind '{0}' '{0}' && mount -o remount,bind,ro '{0}'", home.display());
    let inside = |then: &str| {
        ["-m", "-rm"].into_iter().find_map(|flags| {
            let mut probe = world.command("unshare");
            probe.args([flags, "sh", "-c", &mount]);
            let mut command = world.command("unshare");
            command.args([flags, "sh", "-c"]).arg(format!("{mount} && {then}"));
            probe.output().is_ok_and(|output| output.status.success()).then_some(command)
        })
    };
    let Some(serve) = inside(&format!("exec '{BRIDGE}' serve")) else {
        assert!(
            std::env::var_os("CI").is_none(),
            "this test must run in CI, where file systems can be mounted"
        );
        eprintln!("SKIPPED: no file system can be mounted here");
        return;
    };
    for command in ["--version", "--help", "doctor", "config check"] {
        let command = inside(&format!("exec '{BRIDGE}' {command}")).unwrap();
        let ended = process::run(command, DEADLINE);
        assert!(ended.code.is_some_and(|code| code <= 2) && !ended.stderr().contains("panicked"), "{ended}");
    }
    let mut host = Host::start(serve);
    host.initialize();
    assert!(host.call("list_agents", json!({})).ok().text.contains("codex"));
    let refused = host.call("delegate_task", task(&world, json!({}))).err();
    let folder = home.join(".agent-bridge");
    assert!(refused.text.contains("STORE_UNWRITABLE"), "{}", refused.text);
    assert!(refused.text.contains(folder.to_str().unwrap()), "{}", refused.text);
    assert!(refused.text.contains("stateDir"), "{}", refused.text);
}

/// 44
#[test]
fn no_deadline_moves_with_the_wall_clock() {
    for jump in [-HOUR, DAY] {
        let world = World::new()
            .agent("codex", json!({ "enabled": true }))
            .default("startTimeoutSec", json!(20))
            .default("idleTimeoutSec", json!(20))
            .build();
        world.fake("codex", &gated());
        // The clock jumps when the supervisor has run for a second; then the worker is in mid-run.
        let mut host = host_at(&world, &format!("{jump}@1000"));
        let turn =
            host.call("delegate_task", task(&world, json!({ "timeout_sec": 40 }))).structured["turn_id"]
                .clone();
        until_working(&world);
        let waited = host.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 2 }));
        assert_eq!(waited.structured["status"], "still_running", "{jump}: {:#}", waited.structured);
        go(&world);
        let result = host.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 30 })).ok();
        assert_eq!(result.structured["outcome"], "success");
        let duration = result.structured["duration_ms"].as_u64().unwrap();
        assert!((1_000..30_000).contains(&duration), "{jump}: {duration} ms");
    }
}

/// 44
#[test]
fn a_deadline_comes_in_time_although_the_clock_was_set_back() {
    let world = world(json!({ "steps": ["hang"] }));
    let mut host = host_at(&world, &format!("{}@500", -HOUR));
    let began = Instant::now();
    let result =
        host.call("delegate_task", task(&world, json!({ "timeout_sec": 2, "wait_seconds": 50 }))).err();
    assert_eq!(result.structured["code"], "TURN_RUN_DEADLINE", "{:#}", result.structured);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// 44
#[test]
fn times_that_are_shown_are_sane_after_the_clock_was_set_back() {
    let world = world(gated());
    let mut host = introduced(&world);
    let view = host.call("delegate_task", task(&world, json!({}))).structured;
    until_working(&world);
    for offset in [-HOUR, DAY] {
        let mut other = host_at(&world, &offset.to_string());
        let turn = &listed(&mut other)[0];
        assert_eq!(turn["status"], "still_running", "a clock is no proof of a death: {turn:#}");
        let age = turn["duration_ms"].as_u64().unwrap();
        let sane = if offset < 0 { age == 0 } else { age >= u64::try_from(offset).unwrap() };
        assert!(sane, "{offset}: {turn:#}");
        let waited = other.call("wait_turn", json!({ "turn_id": view["turn_id"], "wait_seconds": 0 }));
        assert_eq!(waited.structured["status"], "still_running");
    }
    // Somebody with the wrong time finishes what somebody with the right time began, and goes on.
    kill_supervisor(&world);
    let mut early = host_at(&world, &(-HOUR).to_string());
    let turn = listed(&mut early).remove(0);
    assert_eq!((&turn["outcome"], &turn["duration_ms"]), (&json!("interrupted"), &json!(0)), "{turn:#}");
    let session = &view["bridge_session_id"];
    early
        .call("continue_session", json!({ "session_id": session, "prompt": "again", "wait_seconds": 50 }))
        .ok();
    let listed_turns = listed(&mut early);
    assert_eq!(listed_turns[0]["turn"], 1, "the newest comes first, whatever its clock said");
    let sessions = early.call("list_sessions", json!({})).ok().structured;
    let created = listed_turns[1]["started_at"].as_str().unwrap();
    let updated = sessions["sessions"][0]["updatedAt"].as_str().unwrap();
    assert!(updated >= created, "updated {updated}, created {created}");
}

/// 44
#[test]
fn a_login_is_not_remembered_as_missing_for_longer_than_it_should() {
    let script =
        json!({ "counter": "../outside/runs", "steps": [{ "answer": { "failed": "401 Unauthorized" } }] });
    for (offset, started_again) in [(0, false), (11_000, true), (-HOUR, true), (DAY, true)] {
        let world = world(script.clone());
        let mut host = introduced(&world);
        host.call("delegate_task", task(&world, json!({ "wait_seconds": 50 }))).err();
        let mut other = host_at(&world, &offset.to_string());
        let again = other.call("delegate_task", task(&world, json!({ "wait_seconds": 50 }))).err();
        assert_eq!(runs(&world), if started_again { 2 } else { 1 }, "{offset}: {}", again.text);
    }
}
