//! The end of the host, in all its forms: the server ends with it, the worker by rule, and the record says so.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Instant;

use support::process::{own_group, processes_with};

use super::*;

/// How long a server may outlive its host.
const SOON: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    HangUp,
    Terminate,
    Interrupt,
    Kill,
}

impl End {
    fn of(self, host: &mut Host) {
        match self {
            Self::HangUp => host.hang_up(),
            Self::Terminate => host.signal(Signal::Terminate),
            Self::Interrupt => host.signal(Signal::Interrupt),
            Self::Kill => host.kill(),
        }
    }
}

const ENDS: [End; 4] = [End::HangUp, End::Terminate, End::Interrupt, End::Kill];

/// A fake that says when it works and answers when it may.
fn working(world: &World, gate: &Gate) {
    let steps = json!([gate.says("working"), gate.waits_for("go"), { "answer": { "text": "done" } }]);
    world.fake("codex", &json!({ "steps": steps }));
}

#[track_caller]
fn assert_ends_soon(host: &mut Host, how: impl std::fmt::Debug) {
    let begun = Instant::now();
    let end = host.wait_exit(DEADLINE);
    let took = begun.elapsed();
    assert!(took < SOON + Duration::from_secs(1), "{how:?}: the server lived on for {took:?}\n{end}");
    assert!(!end.output_held_open, "{how:?}: something still holds the server's output open");
}

#[test]
fn an_idle_server_ends_with_its_host() {
    for how in ENDS {
        for initialized in [false, true] {
            let world = World::new().build();
            let mut host = world.host();
            if initialized {
                host.initialize();
            } else {
                process::wait_until("the server to be up", DEADLINE, || host.stderr().contains("ready"));
            }
            how.of(&mut host);
            assert_ends_soon(&mut host, how);
            world.assert_no_process_left(SOON);
        }
    }
}

#[test]
fn a_running_turn_is_cancelled_when_its_host_goes_away() {
    for how in ENDS {
        let world = World::new().build();
        let gate = Gate::new(&world);
        working(&world, &gate);
        let mut host = world.host();
        host.initialize();
        let _call = host.call_in_background("delegate_task", task(&world, "work", json!({})));
        gate.wait_for("working");
        how.of(&mut host);
        assert_ends_soon(&mut host, how);
        world.assert_no_process_left(DEADLINE);
        let mut later = world.host();
        later.initialize();
        let turns = later.call("list_turns", json!({})).ok();
        assert_eq!(turns.structured["turns"][0]["outcome"], "cancelled", "{how:?}: {:#}", turns.whole);
        let shown =
            later.call("wait_turn", json!({ "turn_id": turns.structured["turns"][0]["turn_id"] })).err();
        assert!(
            shown.structured["detail"].as_str().unwrap().contains("host"),
            "who ended it: {:#}",
            shown.whole
        );
    }
}

#[test]
fn a_detached_turn_outlives_its_host_and_its_result_is_fetched_later() {
    for how in ENDS {
        let world = World::new().default("onDisconnect", json!("detach")).build();
        let gate = Gate::new(&world);
        working(&world, &gate);
        let mut host = world.host();
        host.initialize();
        let _call = host.call_in_background("delegate_task", task(&world, "work", json!({})));
        gate.wait_for("working");
        how.of(&mut host);
        assert_ends_soon(&mut host, how);
        let mut later = world.host();
        later.initialize();
        let turn = running_turn(&mut later);
        gate.open("go");
        let end = later.call("wait_turn", json!({ "turn_id": turn })).ok();
        assert_eq!(end.structured["output"], "done", "{how:?}");
        drop(later);
        world.assert_no_process_left(DEADLINE);
    }
}

#[test]
fn a_turn_that_was_only_polled_for_ends_by_the_same_rule() {
    let world = World::new().build();
    let gate = Gate::new(&world);
    working(&world, &gate);
    let mut host = world.host();
    host.initialize();
    let _ = host.call("delegate_task", task(&world, "work", json!({ "wait_seconds": 0 }))).ok();
    gate.wait_for("working");
    host.hang_up();
    assert_ends_soon(&mut host, "hang-up after a poll");
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn a_hang_up_while_a_probe_runs_leaves_nothing_behind() {
    let world = World::new().build();
    world.program("codex", "#!/bin/sh\nexec sleep 30\n");
    let mut host = world.host();
    host.initialize();
    let _call = host.call_in_background("list_agents", json!({}));
    process::wait_until("the probe to run", DEADLINE, || {
        world.processes().iter().any(|it| it.command.starts_with("sleep 30"))
    });
    host.hang_up();
    assert_ends_soon(&mut host, "hang-up during a probe");
    world.assert_no_process_left(SOON);
}

#[test]
fn a_server_whose_parent_was_killed_ends_although_its_input_stays_open() {
    for busy in [false, true] {
        let world = World::new().build();
        let gate = Gate::new(&world);
        working(&world, &gate);
        // The shell is the host's process; the test keeps the other end of the pipes open.
        let mut shell = world.command("sh");
        shell.args(["-c", "\"$1\" serve; exit 0", "sh", support::world::BRIDGE]);
        let mut host = Host::start(shell);
        host.initialize();
        if busy {
            let _call = host.call_in_background("delegate_task", task(&world, "work", json!({})));
            gate.wait_for("working");
        }
        let serving = |world: &World| world.processes().iter().any(|it| it.command.ends_with(" serve"));
        assert!(serving(&world));
        let begun = Instant::now();
        host.kill();
        process::wait_until("the server to end", DEADLINE, || !serving(&world));
        assert!(begun.elapsed() < SOON + Duration::from_secs(1), "busy {busy}: {:?}", begun.elapsed());
        world.assert_no_process_left(DEADLINE);
    }
}

/// A server whose pipes are the test's own.
fn bare_server(world: &World) -> Child {
    let mut command = world.bridge_command(["serve"]);
    own_group(&mut command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn greeting(client: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": client, "version": "1" },
    } })
}

#[test]
fn a_host_that_never_reads_cannot_keep_the_server_alive() {
    let world = World::new().build();
    let mut child = bare_server(&world);
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", greeting("deaf")).unwrap();
    // Far more than a pipe holds.
    for id in 1..=60 {
        writeln!(stdin, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" })).unwrap();
    }
    // It has written as much as it can: its output waits in the pipe, whose other end stays open.
    let stdout = child.stdout.take().unwrap();
    drop(stdin);
    let begun = Instant::now();
    process::wait_until("the server to end", DEADLINE, || child.try_wait().unwrap().is_some());
    assert!(begun.elapsed() < SOON + Duration::from_secs(1), "{:?}", begun.elapsed());
    drop(stdout);
    world.assert_no_process_left(SOON);
}

#[test]
fn a_host_that_closes_its_end_of_the_output_ends_the_server() {
    let world = World::new().build();
    let mut child = bare_server(&world);
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let _ = writeln!(stdin, "{}", greeting("gone"));
    process::wait_until("the server to end", Duration::from_secs(10), || child.try_wait().unwrap().is_some());
    drop(stdin);
    assert!(processes_with(&world.path().to_string_lossy()).is_empty());
}

#[test]
fn twenty_hosts_that_come_and_go_leave_no_server() {
    let world = World::new().build();
    let mut hosts: Vec<Host> = (0..20).map(|_| world.host()).collect();
    for (at, host) in hosts.iter_mut().enumerate() {
        if at % 2 == 0 {
            host.initialize();
        }
        ENDS[at % 4].of(host);
    }
    for host in &mut hosts {
        host.wait_exit(DEADLINE);
    }
    world.assert_no_process_left(SOON);
}
