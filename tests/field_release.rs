//! What went wrong in the field with installations on strange disks and under strange names, once each.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::clients::ClientWorld;
use support::prelude::*;
use support::world::write;

/// An installation with a current release and another one that can be switched to.
fn installation(world: World) -> (ReleaseWorld, String, String) {
    let at = ReleaseWorld::of(world);
    let config = json!({ "allowedRoots": [at.repo()], "stateDir": at.state() });
    write(&at.layout().config(), format!("{config:#}\n"));
    let old = at.place(&Release::of_bridge("1.0.0"));
    at.make_current(&old);
    let new = at.place(&Release::new("1.1.0"));
    (at, old, new)
}

/// Field report 42: the folder `locks/` of an installation lies where locks fail, or keep nobody out.
#[cfg(target_os = "linux")]
#[test]
fn an_installation_without_working_locks_is_refused_with_advice() {
    use support::world::lock_wrapper;
    for body in ["errno = EOPNOTSUPP; return -1;", "errno = ENOLCK; return -1;", "return 0;"] {
        let (mut at, _, new) = installation(World::new().build());
        let bundle = at.bundle(&Release::new("1.2.0"));
        at.bridge(["readiness"]).expect_code(0);
        let mut host = Host::start({
            let mut command = at.command(at.layout().launcher());
            command.arg("serve");
            command
        });
        host.initialize();
        let Some(library) = lock_wrapper(&at, body) else { return };
        at.set_env("LD_PRELOAD", library);
        let before = at.lasting_tree();
        // The folder was used before: a good past proves nothing.
        let calls: [&[&str]; 8] = [
            &["cutover", &new, "--yes"],
            &["cutover", &new, "--soft", "--yes"],
            &["rollback", "--to", "1", "--keep-config", "--yes"],
            &["prune", "--keep", "0"],
            &["history", "mark", "1", "bad"],
            &["install-release", bundle.to_str().unwrap()],
            &["configure-clients", "--create", "--client", "codex", "--apply"],
            &["recover"],
        ];
        for arguments in calls {
            let refused = at.bridge(arguments).expect_code(2);
            let said = refused.stderr();
            assert!(said.contains("LOCKS_") && said.contains("next: "), "{body} {arguments:?}: {refused}");
            assert!(at.lasting_tree() == before, "{body} {arguments:?} changed something");
        }
        // Who runs is seen without the lock, and what the lock cannot say is never taken for quiet.
        let report = at.bridge(["readiness", "--json"]).expect_code(2).json();
        assert_ne!(report["state"], "quiet", "{body}: {report:#}");
        host.hang_up();
        host.wait_exit(DEADLINE).expect_code(0);
    }
}

/// Folders of such names: spaces, other scripts, both quotes, what shells expand; accents in one piece or in two.
const COMPOSED: &str = "A B/T\u{e9}st $HOME 'q' \"d\" \u{65e5}\u{672c}";
const DECOMPOSED: &str = "A  B/Te\u{301}st `x` & it's; \"d\"#%41";

/// What a file of a client says, started with nothing around it but this entry.
fn by_entry(command: &str, args: &[String], env: &[(String, String)]) -> Host {
    let mut server = Command::new(command);
    server.args(args).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    server.envs(env.iter().map(|(name, value)| (name, value)));
    Host::start(server)
}

fn json_entry(server: &Value) -> (String, Vec<String>, Vec<(String, String)>) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let env = server["env"].as_object().unwrap().iter().map(|(name, value)| (name.clone(), text(value)));
    (text(&server["command"]), server["args"].as_array().unwrap().iter().map(text).collect(), env.collect())
}

fn toml_entry(file: &Path) -> (String, Vec<String>, Vec<(String, String)>) {
    let document: toml_edit::DocumentMut = std::fs::read_to_string(file).unwrap().parse().unwrap();
    let server = &document["mcp_servers"]["agent-bridge"];
    let args =
        server["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect();
    let table = server["env"].as_table_like().unwrap();
    let env = table.iter().map(|(name, value)| (name.to_owned(), value.as_str().unwrap().to_owned()));
    (server["command"].as_str().unwrap().to_owned(), args, env.collect())
}

/// The program under test in a folder of this world.
fn own_program(at: &World) -> PathBuf {
    let program = at.path().join("the programs").join("agent-bridge");
    write(&program, std::fs::read(BRIDGE).unwrap());
    support::release::set_mode(&program, 0o755);
    program
}

/// Field report 73: home, root, state, installation, bundle, config, evidence, program and clients' files, all below
/// such a folder.
fn everything_works_below(names: &str) {
    let script = json!({ "steps": [{ "answer": { "text": "Done there." } }] });
    let world = World::new().agent("codex", json!({ "enabled": false })).below(names).build();
    let mut at = ReleaseWorld::of(world);
    let program = own_program(&at);
    let run = |at: &ReleaseWorld, arguments: &[&str], code: i32| {
        let mut command = at.command(&program);
        command.args(arguments);
        process::run(command, Duration::from_secs(120)).expect_code(code)
    };
    let codex = at.fake("codex", &script);
    let state = at.path().join("the state");
    let config = json!({
        "allowedRoots": [at.repo()], "stateDir": state,
        "agents": { "codex": { "bin": codex }, "claude": { "enabled": false } },
    });
    write(&at.layout().config(), format!("{config:#}\n"));
    // Installed, proven, switched to, with clients; all by paths of that kind.
    let release = |version: &str| Release::of_bridge(env!("CARGO_PKG_VERSION")).git_sha(&version.repeat(40));
    let (old, new) = (release("a"), release("b"));
    for release in [&old, &new] {
        let bundle = at.bundle(release);
        run(&at, &["install-release", bundle.to_str().unwrap()], 0);
    }
    let evidence = at.path().join("the evidence");
    let folder = |name: &str| evidence.join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(&evidence).unwrap();
    run(&at, &["canary", "release", &old.id(), "--evidence-dir", &folder("release")], 0);
    run(&at, &["canary", "launch", &old.id(), "--evidence-dir", &folder("launch")], 0);
    write(&at.home().join(".codex").join("config.toml"), "model = \"mine\"\n");
    write(&at.home().join(".claude.json"), "{\n  \"mine\": 1\n}\n");
    write(&at.home().join(".gemini").join("settings.json"), "{}\n");
    at.set_env("AGENT_BRIDGE_STATE_DIR", &state);
    run(&at, &["cutover", &old.id(), "--yes", "--clients"], 0);
    run(&at, &["canary", "pointer", "--evidence-dir", &folder("pointer")], 0);
    let staged = at.path().join("staged é.json");
    write(&staged, format!("{config:#}\n\n"));
    let staged = staged.to_str().unwrap().to_owned();
    run(&at, &["canary", "config", &staged, "--release", &new.id(), "--evidence-dir", &folder("config")], 0);
    let clients = ClientWorld::of_installed(at);
    let entries = [
        toml_entry(&clients.codex()),
        json_entry(&clients.server(&clients.claude())),
        json_entry(&clients.server(&clients.gemini())),
    ];
    // The server that an entry starts is that release, with that config, that state and that agent.
    for (number, (command, args, env)) in entries.iter().enumerate() {
        assert_eq!(command, &clients.launcher());
        let mut host = by_entry(command, args, env);
        host.initialize();
        let told = host.call("diagnose_install", json!({})).ok().structured.to_string();
        for path in [clients.config_file(), state.to_str().unwrap().to_owned()] {
            let as_json = json!(path).to_string();
            assert!(told.contains(as_json.trim_matches('"')), "entry {number}: {path} is not in {told}");
        }
        let task = json!({ "agent": "codex", "prompt": "Do it.", "cwd": clients.repo() });
        let done = host.call("delegate_task", task).ok();
        assert!(done.text.contains("Done there."), "entry {number}: {}", done.text);
        let report = run(&clients, &["readiness", "--json"], 2).json();
        assert_eq!(report["holders"].as_array().map(Vec::len), Some(1), "{report:#}");
        host.hang_up();
        host.wait_exit(DEADLINE).expect_code(0);
    }
    // There, back, and a rehearsal of it.
    run(&clients, &["cutover", &new.id(), "--yes", "--stage-config", &staged], 0);
    run(&clients, &["rollback", "--yes"], 0);
    assert_eq!(std::fs::read_to_string(clients.layout().config()).unwrap(), format!("{config:#}\n"));
    run(&clients, &["rehearse", &new.id(), "--kills", "2", "--evidence-dir", &folder("rehearsal")], 0);
    let found = run(&clients, &["inspect", "--expect", &old.id(), "--json"], 0).json();
    assert_eq!(found["root"], clients.root().to_str().unwrap());
    let written = run(&clients, &["configure-clients", "--remove", "--apply", "--json"], 0).json();
    assert_eq!(written["applied"].as_array().map(Vec::len), Some(3), "{written:#}");
    assert_eq!(std::fs::read_to_string(clients.codex()).unwrap(), "model = \"mine\"\n");
    // The way back that is printed can be pasted into a shell as it is.
    support::release::set_mode(&state, 0o755);
    let backup = clients.path().join("the record.json");
    let asked = [
        "state",
        "protect",
        "--yes",
        "--state",
        state.to_str().unwrap(),
        "--backup",
        backup.to_str().unwrap(),
    ];
    let protected = run(&clients, &asked, 0);
    let text = protected.stdout();
    let undo = text.lines().find(|line| line.trim_start().starts_with("agent-bridge state restore")).unwrap();
    let mut shell = clients.command("/bin/sh");
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    shell.args(["-c", &format!("{undo} --yes")]).env("PATH", path);
    process::run(shell, DEADLINE).expect_code(0);
    assert_eq!(agent_bridge::platform::mode_of(&state), Some(0o755));
    run(&clients, &["prune", "--keep", "0"], 0);
}

#[test]
fn spaces_quotes_and_composed_accents_in_every_path() {
    everything_works_below(COMPOSED);
}

#[test]
fn spaces_quotes_and_decomposed_accents_in_every_path() {
    everything_works_below(DECOMPOSED);
}

/// Field report 93: the last step before the decision fails, when launcher, clients' files and config are written already.
#[test]
fn a_switch_that_fails_at_its_last_step_puts_back_more_than_the_program() {
    let (at, old, _) = installation(World::new().build());
    let files = [
        (at.home().join(".codex").join("config.toml"), "# mine\nmodel = \"mine\" # and this\n"),
        (at.home().join(".claude.json"), "{ \"mine\": [1, 2] }\n"),
    ];
    for (path, text) in &files {
        write(path, text);
    }
    let staged = at.path().join("staged.json");
    let other = json!({ "allowedRoots": [at.repo()], "stateDir": at.path().join("another state") });
    write(&staged, other.to_string());
    let bad = at.place(&Release::script("2.0.0", "#!/bin/sh\nkill -9 $$\n"));
    let before = at.lasting_tree();
    let mut command = at.bridge_command(["cutover", &bad, "--yes", "--clients", "--update-launcher"]);
    command.arg("--stage-config").arg(&staged);
    let failed = process::run(command, DEADLINE).expect_code(3);
    assert!(failed.stderr().contains("RELEASE_PROBE_FAILED"), "{failed}");
    // Field report 90: the end by that signal is named, with what it usually is.
    assert!(failed.stderr().contains("signal 9"), "{failed}");
    assert!(at.lasting_tree() == before, "launcher, config or pointer were changed");
    for (path, text) in &files {
        assert_eq!(&std::fs::read_to_string(path).unwrap(), text, "{}", path.display());
    }
    assert_eq!(at.current().release_id.as_str(), old);
    // All of it had been written before: the journal names each file.
    let all = agent_bridge::release::journal::verify_all(&at.layout()).unwrap();
    let last = all.last().unwrap();
    assert_eq!(last.outcome(), Some(agent_bridge::release::journal::Outcome::Undone));
    let replaced: Vec<String> = last
        .records
        .iter()
        .filter_map(|(_, record)| match record {
            agent_bridge::release::journal::Record::Replace { path, .. } => {
                Some(path.file_name().unwrap().to_string_lossy().into_owned())
            }
            _ => None,
        })
        .collect();
    for name in ["agent-bridge", "config.toml", ".claude.json", "config.json"] {
        assert!(replaced.iter().any(|one| one == name), "{name} is not among {replaced:?}");
    }
}
