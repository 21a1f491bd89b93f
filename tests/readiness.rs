//! Whether an installation is in use: by whom, and what cannot be told.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]
#![allow(clippy::print_stderr, reason = "a test that is left out says so")]

mod support;

#[cfg(target_os = "linux")]
use std::path::PathBuf;
#[cfg(target_os = "linux")]
use std::process::{Command, Stdio};

#[cfg(target_os = "linux")]
use agent_bridge::platform;
use agent_bridge::release::{ReleaseId, lease};
use support::host::Host;
use support::prelude::*;
#[cfg(target_os = "linux")]
use support::release::set_mode;
use support::release::tree;
#[cfg(target_os = "linux")]
use support::world::find_program;

fn installed(release: &Release) -> (ReleaseWorld, String) {
    installed_in(World::new().build(), release)
}

fn installed_in(world: World, release: &Release) -> (ReleaseWorld, String) {
    let at = ReleaseWorld::of(world);
    let id = at.place(release);
    at.make_current(&id);
    (at, id)
}

fn serve(at: &ReleaseWorld) -> Host {
    let mut command = at.command(at.layout().launcher());
    command.arg("serve");
    Host::start(command)
}

#[track_caller]
fn readiness(at: &ReleaseWorld, code: i32) -> Value {
    at.bridge(["readiness", "--json"]).expect_code(code).json()
}

/// What a tool of the system is missing for. Where tests must not be skipped that is a failure.
#[cfg(target_os = "linux")]
fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("skipped: {why}");
}

#[test]
fn nothing_running_is_quiet_and_looking_changes_nothing() {
    let (at, _) = installed(&Release::new("1.0.0"));
    let before = tree(at.root());
    let report = readiness(&at, 0);
    assert_eq!(report["schema"], "agent-bridge/readiness/1");
    assert_eq!(report["kind"], "readiness");
    assert_eq!(report["state"], "quiet");
    assert_eq!(report["gateOpen"], true);
    assert_eq!(report["holders"], json!([]));
    let mut keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    keys.sort();
    let known = [
        "checkedAt",
        "gateOpen",
        "holders",
        "hosts",
        "kind",
        "launchers",
        "notes",
        "root",
        "schema",
        "state",
        "unknown",
        "unreadable",
        "unreadableCount",
        "unreadableOfOthers",
    ];
    assert_eq!(keys, known);
    assert_eq!(tree(at.root()), before, "not even a lock file was made");
    let said = at.bridge(["readiness"]).expect_code(0);
    assert!(said.stdout().ends_with(&format!("quiet: nothing uses {}\n", at.root().display())), "{said}");
    at.bridge(["readiness", "--wait", "--deadline", "0"]).expect_code(0);
}

#[test]
fn a_server_is_named_by_its_client_and_gone_the_moment_it_is_killed() {
    let (at, id) = installed(&Release::of_bridge("1.0.0"));
    let mut host = serve(&at);
    host.initialize();
    let report = readiness(&at, 2);
    assert_eq!(report["state"], "busy");
    let [holder] = report["holders"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!(holder["kind"], "serve");
    assert_eq!(holder["client"], "scripted-host 1.0.0");
    assert_eq!(holder["release"], id.as_str());
    assert!(holder["since"].as_str().unwrap().ends_with('Z'));
    if !cfg!(windows) {
        assert_eq!(holder["pid"], host.id());
    }
    assert!(holder["closeHint"].as_str().unwrap().contains("close the program"), "{holder:#}");
    assert!(holder["host"].as_str().unwrap().contains(&std::process::id().to_string()), "{holder:#}");
    let said = at.bridge(["readiness"]).expect_code(2);
    assert!(said.stdout().contains("scripted-host 1.0.0"), "{said}");
    let late = at.bridge(["readiness", "--wait", "--deadline", "300ms"]).expect_code(75);
    assert!(late.stderr().contains("waiting for a server for scripted-host 1.0.0"), "{late}");

    host.kill();
    assert_eq!(readiness(&at, 0)["state"], "quiet", "its label alone holds nothing");
    let mut again = serve(&at);
    again.initialize();
}

#[test]
fn a_wait_ends_with_the_last_holder() {
    let (at, _) = installed(&Release::of_bridge("1.0.0"));
    let mut host = serve(&at);
    host.initialize();
    let waiting = process::start(at.bridge_command(["readiness", "--wait", "--deadline", "50s", "--json"]));
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
    assert_eq!(waiting.finish(DEADLINE).expect_code(0).json()["state"], "quiet");
}

#[test]
fn a_running_turn_is_a_holder_named_by_the_client_of_its_server() {
    let world = World::new().agent("codex", json!({ "bin": "codex" })).build();
    let (at, _) = installed_in(world, &Release::of_bridge("1.0.0"));
    let [begun, go] = ["begun", "go"].map(|name| at.path().join(name));
    let steps = json!([
        { "touch_file": begun },
        { "wait_for_file": { "path": go, "timeout_ms": 50_000 } },
        { "exit": 1 },
    ]);
    at.fake("codex", &json!({ "steps": steps }));
    let mut host = serve(&at);
    host.initialize();
    let task = json!({ "agent": "codex", "prompt": "wait", "cwd": at.repo(), "timeout_sec": 50, "wait_seconds": 55 });
    let _call = host.call_in_background("delegate_task", task);
    process::wait_until("the worker", Duration::from_secs(30), || begun.exists());
    let turn = |report: &Value| {
        report["holders"].as_array().unwrap().iter().find(|holder| holder["kind"] == "turn").cloned()
    };
    let found = turn(&readiness(&at, 2)).expect("the turn is named");
    assert_eq!(found["client"], "scripted-host 1.0.0", "by the server that started it");
    assert!(found["closeHint"].as_str().unwrap().contains("turns cancel"), "{found:#}");
    std::fs::write(&go, "").unwrap();
    host.hang_up();
    host.wait_exit(DEADLINE);
    at.bridge(["readiness", "--wait", "--deadline", "50s"]).expect_code(0);
}

#[test]
fn behind_a_closed_gate_a_release_that_is_started_directly_starts_neither() {
    let (at, id) = installed(&Release::of_bridge("1.0.0"));
    let id = ReleaseId::parse(&id).unwrap();
    let program = at.layout().release(&id).join("server").join(agent_bridge::release::layout::program_name());
    let direct = || {
        let mut command = at.command(&program);
        command.arg("serve");
        command
    };
    let gate = lease::close_gate(&at.layout(), Duration::from_secs(5)).unwrap();
    let input = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"initialize\",\"params\":{}}\n";
    let refused = process::run_with_input(direct(), input.as_bytes(), DEADLINE).expect_code(75);
    assert!(refused.stdout().contains("being updated") && refused.stdout().contains("\"id\":7"), "{refused}");
    assert_eq!(readiness(&at, 0)["gateOpen"], false);
    drop(gate);
    let mut host = Host::start(direct());
    host.initialize();
    assert_eq!(readiness(&at, 2)["holders"][0]["release"], id.as_str());
}

/// Puts a foreign program where a release's program would be, and gives the path.
#[cfg(target_os = "linux")]
fn foreign_program(at: &ReleaseWorld, program: &str) -> Option<PathBuf> {
    let found = find_program(program)?;
    let path = at.layout().releases().join("9.9.9+abcdef0").join("server").join("agent-bridge");
    support::world::write(&path, std::fs::read(found).unwrap());
    set_mode(&path, 0o755);
    Some(path)
}

/// A program that a test ends.
#[cfg(target_os = "linux")]
struct Killed(std::process::Child);

#[cfg(target_os = "linux")]
impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(target_os = "linux")]
fn spawn(command: &mut Command) -> Killed {
    Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_of_the_installation_without_a_lease_is_busy_whatever_it_calls_itself() {
    let (at, _) = installed(&Release::new("1.0.0"));
    let Some(program) = foreign_program(&at, "perl") else { return skip("there is no perl") };
    let ready = at.path().join("ready");
    let script = format!("$0 = 'innocent'; open(F, '>', '{}'); close F; sleep 600", ready.display());
    let mut command = at.command(&program);
    let running = spawn(command.args(["-e", &script]));
    process::wait_until("the program to rename itself", DEADLINE, || ready.exists());
    let name = std::fs::read_to_string(format!("/proc/{}/comm", running.0.id())).unwrap();
    assert_eq!(name.trim(), "innocent");
    let report = readiness(&at, 2);
    assert_eq!(report["holders"][0]["kind"], "unleased", "{report:#}");
    assert_eq!(report["holders"][0]["pid"], running.0.id());
    // Its file may be gone, or moved with its folder; it runs all the same.
    std::fs::remove_file(&program).unwrap();
    assert_eq!(readiness(&at, 2)["holders"][0]["pid"], running.0.id());
    drop(running);
    readiness(&at, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn processes_that_come_and_go_are_no_riddle() {
    let (at, _) = installed(&Release::new("1.0.0"));
    let busy = "while :; do /bin/true; done";
    let _children: Vec<Killed> = (0..3).map(|_| spawn(Command::new("/bin/sh").args(["-c", busy]))).collect();
    for _ in 0..25 {
        let report = readiness(&at, 0);
        assert_eq!((&report["state"], &report["unreadableCount"]), (&json!("quiet"), &json!(0)));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_with_a_longer_name_is_another_one() {
    let (at, _) = installed(&Release::new("1.0.0"));
    let sleep = find_program("sleep").unwrap();
    let path = at.path().join("install root-old").join("bin").join("agent-bridge");
    support::world::write(&path, std::fs::read(sleep).unwrap());
    set_mode(&path, 0o755);
    let _running = spawn(at.command(&path).arg("600"));
    readiness(&at, 0);
}

/// Runs something as a user without any rights, if this one may.
#[cfg(target_os = "linux")]
fn as_nobody(at: &ReleaseWorld, program: &std::path::Path) -> Option<Command> {
    let setpriv = find_program("setpriv")?;
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let mut command = at.command(setpriv);
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    Some(command)
}

#[cfg(target_os = "linux")]
#[test]
fn a_user_who_may_not_look_gets_unknown_and_never_quiet() {
    let (at, _) = installed(&Release::of_bridge("1.0.0"));
    serve(&at).initialize();
    // The tool itself must be within that user's reach; the installation is not.
    set_mode(at.path(), 0o755);
    let tool = at.bin().join("tool");
    std::fs::copy(support::world::BRIDGE, &tool).unwrap();
    let Some(mut command) = as_nobody(&at, &tool) else {
        return skip("only the superuser with setpriv can become another user");
    };
    command.args(["readiness", "--json", "--root"]).arg(at.root());
    let report = process::run(command, DEADLINE).expect_code(2).json();
    assert_eq!(report["state"], "unknown", "{report:#}");
    let why = report["unknown"].to_string();
    assert!(why.contains("cannot be looked at"), "{why}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_hides_itself_makes_the_answer_unknown_unless_that_is_allowed() {
    use std::os::unix::process::CommandExt as _;
    let (at, _) = installed(&Release::new("1.0.0"));
    set_mode(at.path(), 0o755);
    let tool = at.bin().join("tool");
    std::fs::copy(support::world::BRIDGE, &tool).unwrap();
    // A file that may be run but not read makes a process that its own user cannot look at.
    let hidden = at.bin().join("hidden");
    std::fs::copy(find_program("sleep").unwrap(), &hidden).unwrap();
    set_mode(&hidden, 0o711);
    let Some(mut command) = as_nobody(&at, &tool) else {
        return skip("only the superuser with setpriv can become another user");
    };
    let root = at.path().join("nobody");
    let made = agent_bridge::release::Layout::at(&root).create();
    assert!(made.is_ok());
    let all = process::run(
        {
            let mut chown = at.command("chown");
            chown.args(["-R", "65534:65534"]).arg(&root);
            chown
        },
        DEADLINE,
    );
    all.expect_code(0);
    let mut sleeper = at.command(&hidden);
    sleeper.arg0("").arg("600").uid(65534).gid(65534);
    let hidden = spawn(&mut sleeper);
    process::wait_until("the process to hide", DEADLINE, || {
        std::fs::read(format!("/proc/{}/cmdline", hidden.0.id()))
            .is_ok_and(|line| line.starts_with(b"\x00600"))
    });
    command.args(["readiness", "--json", "--root"]).arg(&root);
    let report = process::run(command, DEADLINE).expect_code(2).json();
    assert_eq!(report["state"], "unknown", "{report:#}");
    assert!(report["unreadable"].as_array().unwrap().contains(&json!(hidden.0.id())), "{report:#}");
    assert!(
        report["unknown"][0].as_str().unwrap().contains("of this user cannot be looked at"),
        "{report:#}"
    );
    let mut allowed = as_nobody(&at, &tool).unwrap();
    allowed.args(["readiness", "--json", "--allow-unreadable", "--root"]).arg(&root);
    let report = process::run(allowed, DEADLINE).expect_code(0).json();
    assert_eq!(report["state"], "quiet", "{report:#}");
    assert_ne!(report["unreadableCount"], 0, "it is still said");
}

/// Runs this very test again in process and mount namespaces of its own.
#[cfg(target_os = "linux")]
fn in_a_container(test: &str, variable: &str, value: &std::path::Path) -> Option<process::Finished> {
    let unshare = find_program("unshare")?;
    let mut probe = Command::new(&unshare);
    probe.args(["--pid", "--fork", "--mount-proc", "true"]);
    if process::run(probe, DEADLINE).code != Some(0) {
        return None;
    }
    let mut command = Command::new(unshare);
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(std::env::current_exe().unwrap()).args([test, "--exact", "--nocapture"]);
    command.env(variable, value);
    Some(process::run(command, DEADLINE))
}

/// The process id that was given last in this namespace; the next one is the one after it.
#[cfg(target_os = "linux")]
const LAST_ID: &str = "/proc/sys/kernel/ns_last_pid";

/// Starts a process until one has this id. To wait for the id to come round would be in vain: once the ids began anew
/// the kernel gives none below 300.
#[cfg(target_os = "linux")]
fn with_id(id: u32, start: impl Fn() -> Killed) -> Killed {
    let mut given = Vec::new();
    for _ in 0..1000 {
        std::fs::write(LAST_ID, (id - 1).to_string()).unwrap();
        let child = start();
        if child.0.id() == id {
            return child;
        }
        // A thread of somebody took it meanwhile, or a zombie or a process group has it still.
        given.push(child.0.id());
    }
    panic!("{id} was never given, but {:?}", &given[given.len() - 10..]);
}

#[cfg(target_os = "linux")]
#[test]
fn who_takes_over_the_process_id_of_a_holder_is_not_taken_for_it() {
    const TEST: &str = "who_takes_over_the_process_id_of_a_holder_is_not_taken_for_it";
    const VARIABLE: &str = "AGENT_BRIDGE_TEST_REUSE";
    if std::env::var_os(VARIABLE).is_none() {
        let Some(finished) = in_a_container(TEST, VARIABLE, std::path::Path::new("1")) else {
            return skip("process namespaces cannot be made here");
        };
        finished.expect_code(0);
        return;
    }
    if std::fs::write(LAST_ID, std::process::id().to_string()).is_err() {
        return skip("the kernel does not let a namespace choose its process ids");
    }
    let (at, _) = installed(&Release::of_bridge("1.0.0"));
    let mut host = serve(&at);
    host.initialize();
    let holder = host.id();
    readiness(&at, 2);
    host.kill();
    let labels = std::fs::read_dir(at.layout().holders()).unwrap().count();
    assert_eq!(labels, 1, "killed, so its label is left");
    let sleep = find_program("sleep").unwrap();
    let successor = with_id(holder, || Killed(Command::new(&sleep).arg("600").spawn().unwrap()));
    assert!(platform::running_program(holder).is_some(), "somebody has the id");
    let report = readiness(&at, 0);
    assert_eq!(report["holders"], json!([]), "{report:#}");
    // Nor is somebody with that id who really runs from the installation called by the old name.
    drop(successor);
    let program = foreign_program(&at, "sleep").unwrap();
    let _successor = with_id(holder, || spawn(at.command(&program).arg("600")));
    let report = readiness(&at, 2);
    assert_eq!(report["holders"][0]["kind"], "unleased", "{report:#}");
    assert_eq!(report["holders"][0]["client"], Value::Null, "{report:#}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_holder_in_another_container_is_busy_though_nobody_can_name_its_process() {
    const TEST: &str = "a_holder_in_another_container_is_busy_though_nobody_can_name_its_process";
    const VARIABLE: &str = "AGENT_BRIDGE_TEST_OUTSIDE";
    if let Some(root) = std::env::var_os(VARIABLE) {
        let mut command = Command::new(support::world::BRIDGE);
        command.args(["readiness", "--json", "--root"]).arg(root);
        let report = process::run(command, DEADLINE).expect_code(2).json();
        assert_eq!(report["state"], "busy", "{report:#}");
        assert_eq!(report["holders"][0]["pid"], Value::Null, "{report:#}");
        assert_eq!(report["holders"][0]["client"], "scripted-host 1.0.0", "{report:#}");
        assert!(report["notes"].to_string().contains("runs in a container"), "{report:#}");
        return;
    }
    let (at, _) = installed(&Release::of_bridge("1.0.0"));
    let mut host = serve(&at);
    host.initialize();
    let Some(finished) = in_a_container(TEST, VARIABLE, at.root()) else {
        return skip("process namespaces cannot be made here");
    };
    finished.expect_code(0);
    // And the other way round: what lives in another container is said.
    let unshare = find_program("unshare").unwrap();
    let _contained =
        spawn(at.command(unshare).args(["--pid", "--fork", "--mount", "--kill-child", "sleep", "600"]));
    process::wait_until("the contained process", DEADLINE, || {
        readiness(&at, 2)["notes"].to_string().contains("other containers or namespaces")
    });
}
