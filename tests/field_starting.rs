//! Kinds of failure that users of such bridges report, about how a worker is started: what reaches its
//! standard input, its arguments, its environment and its folder. What it does then: `field_running`.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use agent_bridge::digest;
use support::prelude::*;
use support::world::{find_program, link, write};

/// A script that notes down its start and repeats the prompt.
fn recording(world: &World) -> Value {
    json!({ "steps": [{ "record": record_path(world) }, { "answer": {} }] })
}

fn record_path(world: &World) -> PathBuf {
    world.path().join("record.json")
}

/// What the last worker noted down; it is forgotten then.
#[track_caller]
fn take_record(world: &World) -> Value {
    let path = record_path(world);
    let text = std::fs::read_to_string(&path).expect("a worker was started and noted it down");
    std::fs::remove_file(&path).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[track_caller]
fn assert_nothing_started(world: &World) {
    assert!(!record_path(world).exists(), "a worker was started");
}

fn task(world: &World, agent: &str, prompt: &str) -> Value {
    json!({ "agent": agent, "prompt": prompt, "cwd": world.repo(), "timeout_sec": 40 })
}

fn argv(record: &Value) -> Vec<String> {
    serde_json::from_value(record["argv"].clone()).unwrap()
}

/// The bridge's environment reduced to these variables, as hosts do it.
fn only(mut command: Command, variables: &[(&str, &str)]) -> Command {
    command.env_clear().envs(variables.iter().copied());
    command
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["diagnostics"]["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no check {name} in {report:#}"))
}

/// Kind 1.
#[test]
fn a_worker_that_reads_its_input_to_the_end_gets_an_end() {
    let world = World::new().build();
    for agent in ["codex", "claude"] {
        world.fake(agent, &recording(&world));
    }
    // The host's end of the server's input stays open all the time.
    let mut host = world.host();
    host.initialize();
    for agent in ["codex", "claude"] {
        host.call("delegate_task", task(&world, agent, "from a host")).ok();
        assert_eq!(take_record(&world)["stdin"], "from a host");
    }
}

/// Kind 1.
#[test]
fn a_worker_never_reads_the_input_of_the_bridge() {
    let world = World::new().build();
    world.fake("codex", &recording(&world));
    let run = world.bridge_with_input(["delegate", "codex", "as an argument"], "not for the worker");
    run.expect_code(0);
    assert_eq!(take_record(&world)["stdin"], "as an argument");
    let run = world.bridge_with_input(["delegate", "codex", "--prompt-file", "-"], "on the standard input");
    run.expect_code(0);
    assert_eq!(take_record(&world)["stdin"], "on the standard input");
}

/// Kind 1.
#[test]
fn a_probe_that_reads_its_input_to_the_end_gets_an_end() {
    let world = World::new().agent("claude", json!({ "enabled": false })).build();
    let inner = world.fake("inner", &json!({ "version": "codex-cli 0.171.0" }));
    world.program("codex", &format!("#!/bin/sh\ncat >/dev/null\nexec '{}' \"$@\"\n", inner.display()));
    let mut host = world.host();
    host.initialize();
    let listed = host.call("list_agents", json!({})).ok();
    assert_eq!(listed.structured["agents"][0]["health"]["usable"], true, "{:#}", listed.structured);
    // Nothing of the host's messages was eaten meanwhile.
    host.call("list_turns", json!({})).ok();
}

/// Kind 2.
#[test]
fn a_prompt_of_any_size_takes_the_same_way() {
    let world = World::new().build();
    let mut host = {
        for agent in ["codex", "claude"] {
            world.fake(agent, &recording(&world));
        }
        world.host()
    };
    host.initialize();
    for agent in ["codex", "claude"] {
        let mut seen = Vec::new();
        for kib in [1, 33, 300] {
            let prompt = "Zürich \"quoted\"\n".repeat(kib * 1024 / 17 + 1);
            host.call("delegate_task", task(&world, agent, &prompt)).ok();
            let record = take_record(&world);
            assert_eq!(record["stdinBytes"], prompt.len(), "{agent}, {kib} KiB");
            assert_eq!(record["stdinSha256"], digest::of_bytes(prompt.as_bytes()), "{agent}, {kib} KiB");
            seen.push(argv(&record));
        }
        assert!(seen.iter().all(|argv| *argv == seen[0]), "the arguments differ: {seen:#?}");
    }
}

/// Kind 9.
#[test]
fn a_long_handoff_travels_on_standard_input() {
    let world = World::new().config("handoffMaxChars", json!(400_000)).build();
    world.fake("codex", &json!({ "steps": [{ "answer": {} }] }));
    world.fake(
        "claude",
        &json!({ "steps": [{ "record": record_path(&world) }, { "answer": { "text": "ok" } }] }),
    );
    let mut host = world.host();
    host.initialize();
    let long = "a summary of what was done. ".repeat(200 * 1024 / 28);
    let first = host.call("delegate_task", task(&world, "codex", &long)).ok();
    let arguments = json!({
        "session_id": first.structured["bridge_session_id"], "to_agent": "claude", "prompt": "go on from there",
    });
    host.call("handoff", arguments).ok();
    let record = take_record(&world);
    assert!(record["stdinBytes"].as_u64().unwrap() > 200 * 1024, "{}", record["stdinBytes"]);
    assert!(record["stdin"].as_str().unwrap().contains("go on from there"));
    let longest = argv(&record).iter().map(String::len).max().unwrap();
    assert!(longest < 1024, "an argument of {longest} bytes");
}

/// Kind 9.
#[cfg(target_os = "linux")]
#[test]
fn an_argument_over_the_systems_limit_is_refused_with_the_limit() {
    let extra = json!({ "extraArgs": ["--append-system-prompt", "x".repeat(200 * 1024)] });
    let world = World::new().agent("claude", extra).build();
    world.fake("claude", &recording(&world));
    let mut host = world.host();
    host.initialize();
    let refused = host.call("delegate_task", task(&world, "claude", "hello")).err();
    assert!(refused.text.contains("ARGUMENT_TOO_LONG"), "{}", refused.text);
    assert!(refused.text.contains("131072"), "{}", refused.text);
    assert_nothing_started(&world);
}

/// Texts that a shell would carry out.
const INJECTIONS: [&str; 6] =
    ["; touch X", "$(touch X)", "`touch X`", "& echo X > X", "| touch X", "' \"\n touch X\n"];

#[track_caller]
fn assert_no_x(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        assert_ne!(entry.file_name(), "X", "a shell ran {}", entry.path().display());
        if entry.file_type().unwrap().is_dir() {
            assert_no_x(&entry.path());
        }
    }
}

/// Kind 13.
#[test]
fn no_shell_sees_the_prompt_or_the_folder() {
    let world = World::new().build();
    for agent in ["codex", "claude"] {
        world.fake(agent, &recording(&world));
    }
    let mut host = world.host();
    host.initialize();
    for (index, text) in INJECTIONS.iter().enumerate() {
        let folder = world.file(text);
        std::fs::create_dir(&folder).unwrap();
        let agent = ["codex", "claude"][index % 2];
        let arguments = json!({ "agent": agent, "prompt": text, "cwd": folder });
        host.call("delegate_task", arguments).ok();
        let record = take_record(&world);
        assert_eq!(record["stdin"], *text);
        assert_eq!(record["cwd"], folder.to_str().unwrap());
        if agent == "codex" {
            let argv = argv(&record);
            let at = argv.iter().position(|argument| argument == "-C").unwrap();
            assert_eq!(argv[at + 1], folder.to_str().unwrap());
        }
        assert_no_x(world.path());
    }
}

/// Kind 13.
#[test]
fn no_shell_sees_the_path_of_the_program() {
    let world = World::new().build();
    let fake = world.fake("inner", &recording(&world));
    let folder = world.path().join("opt; touch X; $(touch X)");
    std::fs::create_dir(&folder).unwrap();
    link(&fake, &folder.join("codex & touch X"));
    world.set_agent("codex", json!({ "bin": folder.join("codex & touch X") }));
    world.bridge(["delegate", "codex", "hello"]).expect_code(0);
    take_record(&world);
    assert_no_x(world.path());
}

/// Kind 13.
#[test]
fn a_model_name_that_could_be_anything_else_is_refused() {
    let world = World::new().build();
    for agent in ["codex", "claude"] {
        world.fake(agent, &recording(&world));
    }
    let mut host = world.host();
    host.initialize();
    let options = ["--dangerously-skip-permissions", "-c", "a b", ""];
    for (index, model) in INJECTIONS.iter().chain(&options).enumerate() {
        let mut arguments = task(&world, ["codex", "claude"][index % 2], "hello");
        arguments["model"] = json!(model);
        let refused = host.call("delegate_task", arguments).err();
        assert_eq!(refused.structured["error"]["code"], "AGENT_MODEL_REFUSED", "{model:?}: {}", refused.text);
        assert_nothing_started(&world);
    }
    assert_no_x(world.path());
}

/// Kind 14.
#[test]
fn a_worker_does_not_see_the_markers_of_the_host() {
    let markers = [
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_PROJECT_DIR",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_THREAD_ID",
        "GEMINI_CLI",
        "QWEN_CODE",
        "OPENCODE",
        "CURSOR_AGENT",
        "AI_AGENT",
    ];
    let mut builder = World::new();
    for marker in markers {
        builder = builder.env(marker, "1");
    }
    let world = builder.build();
    let inner = world.fake("inner", &recording(&world));
    let guard = format!(
        "#!/bin/sh\nif env | grep -E '^({})='; then echo 'cannot be started inside another session' >&2; exit 1; fi\nexec '{}' \"$@\"\n",
        markers.join("|"),
        inner.display()
    );
    for agent in ["codex", "claude"] {
        world.program(agent, &guard);
    }
    let mut host = world.host();
    host.initialize();
    for agent in ["codex", "claude"] {
        host.call("delegate_task", task(&world, agent, "hello")).ok();
        assert_eq!(take_record(&world)["env"]["AGENT_BRIDGE_DEPTH"], "1");
    }
    let listed = host.call("list_agents", json!({})).ok();
    let listed = listed.structured["agents"].as_array().unwrap().clone();
    let enabled: Vec<_> = listed.iter().filter(|agent| agent["enabled"] == true).collect();
    assert_eq!(enabled.len(), 2);
    for agent in enabled {
        assert_eq!(agent["health"]["binary"]["ok"], true, "{agent:#}");
    }
}

/// Kind 15.
#[test]
fn variables_that_the_host_dropped_can_be_set_in_the_config() {
    let set =
        json!({ "HTTPS_PROXY": "http://127.0.0.1:9", "SSL_CERT_FILE": "/certs.pem", "CODEX_HOME": "/codex" });
    let world = World::new().agent("codex", json!({ "extraEnv": set })).build();
    world.fake("codex", &recording(&world));
    let path = world.env()[std::ffi::OsStr::new("PATH")].to_str().unwrap().to_owned();
    let home = world.home();
    let few = [("PATH", path.as_str()), ("HOME", home.to_str().unwrap())];
    let mut host = Host::start(only(world.bridge_command(["serve"]), &few));
    host.initialize();
    host.call("delegate_task", task(&world, "codex", "hello")).ok();
    let env = &take_record(&world)["env"];
    for (name, value) in set.as_object().unwrap() {
        assert_eq!(&env[name], value, "{name}");
    }
}

/// Kind 15.
#[test]
fn only_listed_secrets_are_passed_on() {
    let world = World::new()
        .agent("codex", json!({ "passEnv": ["PROVIDER_TOKEN"] }))
        .env("PROVIDER_TOKEN", "listed-1")
        .env("OPENAI_API_KEY", "unlisted-2")
        .env("ANTHROPIC_API_KEY", "unlisted-3")
        .env("AWS_SECRET_ACCESS_KEY", "unlisted-4")
        .env("GITHUB_TOKEN", "unlisted-5")
        .env("SOMETHING_ELSE", "unlisted-6")
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("CODEX_HOME", "/codex")
        .build();
    world.fake("codex", &recording(&world));
    world.bridge(["delegate", "codex", "hello"]).expect_code(0);
    let env = &take_record(&world)["env"];
    assert_eq!(env["PROVIDER_TOKEN"], "listed-1");
    assert_eq!(env["HTTPS_PROXY"], "http://127.0.0.1:9");
    assert_eq!(env["CODEX_HOME"], "/codex");
    assert!(!env.to_string().contains("unlisted-"), "{env:#}");
}

/// Kind 15.
#[test]
fn doctor_names_the_absent_network_variables_and_shows_no_value() {
    let world = World::new()
        .env("SSL_CERT_FILE", "/value-of-a-certificate")
        .env("https_proxy", "http://user:value-of-a-proxy@127.0.0.1:9")
        .build();
    let report = world.bridge(["doctor", "--json", "--no-probe"]);
    let found = check(&report.json(), "network variables")["detail"].as_str().unwrap().to_owned();
    for absent in ["HTTP_PROXY", "NO_PROXY", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"] {
        assert!(found.contains(absent), "{absent}: {found}");
    }
    assert!(!found.contains("SSL_CERT_FILE") && !found.contains("HTTPS_PROXY"), "{found}");
    assert!(!report.stdout().contains("value-of-a-"), "{report}");
}

/// A codex that is a script of `ab-interpreter`, in a folder that is on nobody's search path. Gives
/// its path and where the interpreter is expected.
fn script_elsewhere(world: &World) -> (PathBuf, PathBuf) {
    let inner = world.fake("inner", &recording(world));
    let script = world.path().join("versions/22/bin/codex");
    write(&script, "");
    let text = format!("#!/usr/bin/env ab-interpreter\nexec '{}' \"$@\"\n", inner.display());
    let draft = world.program("draft", &text);
    std::fs::rename(draft, &script).unwrap();
    let interpreter = script.with_file_name("ab-interpreter");
    (script, interpreter)
}

/// Kind 16.
#[test]
fn a_script_by_absolute_path_finds_its_interpreter_under_a_short_search_path() {
    let mut world = World::new().agent("claude", json!({ "enabled": false })).build();
    let (script, interpreter) = script_elsewhere(&world);
    link(&find_program("sh").unwrap(), &interpreter);
    world.set_agent("codex", json!({ "bin": script }));
    world.set_env("PATH", "/usr/bin:/bin");
    let mut host = world.host();
    host.initialize();
    host.call("delegate_task", task(&world, "codex", "hello")).ok();
    take_record(&world);

    let report = world.bridge(["doctor", "--json"]).expect_code(0).json();
    let found = check(&report, "agent codex");
    assert_eq!(found["status"], "ok", "{found:#}");
    assert!(found["detail"].as_str().unwrap().contains(script.to_str().unwrap()), "{found:#}");
}

/// Kind 16.
#[test]
fn a_missing_interpreter_is_named() {
    let mut world = World::new().agent("claude", json!({ "enabled": false })).build();
    let (script, _) = script_elsewhere(&world);
    std::fs::rename(
        world.program("draft", &std::fs::read_to_string(&script).unwrap()),
        world.bin().join("codex"),
    )
    .unwrap();
    for (settings, search) in [
        (json!({ "bin": script }), "/usr/bin:/bin".to_owned()),
        // Found by its name, and nobody asked for it in the config.
        (json!({}), format!("{}:/usr/bin:/bin", world.bin().display())),
    ] {
        world.set_agent("codex", settings);
        world.set_env("PATH", search);
        let mut host = world.host();
        host.initialize();
        let refused = host.call("delegate_task", task(&world, "codex", "hello")).err();
        assert_eq!(refused.structured["error"]["code"], "INTERPRETER_MISSING", "{}", refused.text);
        assert!(refused.text.contains("ab-interpreter"), "{}", refused.text);
        let report = world.bridge(["doctor", "--json"]).json();
        let found = check(&report, "agent codex");
        assert_eq!(found["status"], "warn", "{found:#}");
        assert!(found["detail"].as_str().unwrap().contains("ab-interpreter"), "{found:#}");
    }
}

/// Kind 16.
#[test]
fn doctor_warns_when_the_configured_program_is_not_the_installed_one() {
    let world = World::new().agent("claude", json!({ "enabled": false })).build();
    let (script, interpreter) = script_elsewhere(&world);
    link(&find_program("sh").unwrap(), &interpreter);
    world.set_agent("codex", json!({ "bin": script }));
    let look = || check(&world.bridge(["doctor", "--json"]).json(), "agent codex").clone();
    assert_eq!(look()["status"], "ok", "nothing else is installed");

    // The same program under another name is no drift.
    link(&script, &world.bin().join("codex"));
    assert_eq!(look()["status"], "ok");

    // An update put a new one on the search path and left the old one behind.
    std::fs::remove_file(world.bin().join("codex")).unwrap();
    let installed = world.fake("codex", &recording(&world));
    let found = look();
    assert_eq!(found["status"], "warn", "{found:#}");
    let said = found.to_string();
    assert!(said.contains(installed.to_str().unwrap()) && said.contains(script.to_str().unwrap()), "{said}");

    // Or it took the old one away.
    std::fs::remove_file(&script).unwrap();
    let found = look();
    assert_eq!(found["status"], "warn", "{found:#}");
    let said = found.to_string();
    assert!(said.contains(installed.to_str().unwrap()) && said.contains(script.to_str().unwrap()), "{said}");
}

/// A codex that refuses folders that are no repository, as the real one does.
fn wants_a_repository(world: &World) -> Value {
    json!({
        "rules": [{
            "when": { "argument": "--skip-git-repo-check" },
            "steps": [{ "record": record_path(world) }, { "answer": { "text": "looked around" } }],
        }],
        "steps": [
            { "record": record_path(world) },
            { "print": { "to": "stderr", "text": "Not inside a trusted directory and --skip-git-repo-check was not specified.\n" } },
            { "exit": 1 },
        ],
    })
}

/// Kind 17.
#[test]
fn an_allowed_folder_that_is_no_repository_works_read_only() {
    let world = World::new().build();
    world.fake("codex", &wants_a_repository(&world));
    let plain = world.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    let mut config = world.config();
    config["allowedRoots"] = json!([plain]);
    world.write_config(&config);
    let mut host = world.host();
    host.initialize();
    let arguments = |cwd: &Path| json!({ "agent": "codex", "prompt": "look around", "cwd": cwd });
    let done = host.call("delegate_task", arguments(&plain)).ok();
    assert!(done.text.contains("looked around"), "{}", done.text);
    let record = take_record(&world);
    assert_eq!(record["sandbox"], "read-only");
    assert_eq!(record["cwd"], plain.to_str().unwrap());

    // The flag that skips the CLI's own check is never given where ours says no.
    for outside in [world.outside(), world.repo()] {
        let refused = host.call("delegate_task", arguments(&outside)).err();
        assert_eq!(refused.structured["error"]["code"], "CWD_OUTSIDE_ROOTS", "{}", refused.text);
        assert_nothing_started(&world);
    }
}

/// What an MCP host writes to delegate once.
fn delegation(world: &World, agent: &str, prompt: &str) -> Vec<String> {
    [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "worker", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": { "name": "delegate_task", "arguments": task(world, agent, prompt) } }),
    ]
    .map(|message| message.to_string())
    .to_vec()
}

/// The answer to the tool call that a worker got from the bridge it started.
#[track_caller]
fn inner_result(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("the worker started a bridge and noted what it said");
    let saved: Value = serde_json::from_str(&text).unwrap();
    let lines = saved["lines"].as_array().unwrap().iter();
    let messages: Vec<Value> =
        lines.map(|line| serde_json::from_str(line.as_str().unwrap()).unwrap()).collect();
    let found = messages.into_iter().find(|message| message["id"] == 2);
    found.unwrap_or_else(|| panic!("no answer to the inner call: {saved:#}"))["result"].clone()
}

/// A worker that starts the bridge as its own MCP server with `program` and `args`, and delegates again.
fn loops_once(program: &str, args: &[&str]) {
    let world = World::new().build();
    let saved = world.path().join("inner.json");
    let fill =
        |text: &&str| text.replace("{bridge}", BRIDGE).replace("{home}", world.home().to_str().unwrap());
    world.fake(
        "codex",
        &json!({
            "counter": world.path().join("starts"),
            "steps": [
                { "run": {
                    "program": program, "args": args.iter().map(fill).collect::<Vec<_>>(),
                    "stdin": delegation(&world, "codex", "and again"), "until_lines": 2, "save": saved,
                } },
                { "answer": { "text": "the outer answer" } },
            ],
        }),
    );
    let mut host = world.host();
    host.initialize();
    let outer = host.call("delegate_task", task(&world, "codex", "begin")).ok();
    assert!(outer.text.contains("the outer answer"), "{}", outer.text);
    let inner = inner_result(&saved);
    assert_eq!(inner["isError"], true, "{inner:#}");
    assert_eq!(inner["structuredContent"]["error"]["code"], "DELEGATION_TOO_DEEP", "{inner:#}");
    assert!(!world.path().join("starts.2").exists(), "a second worker was started");
    let turns = host.call("list_turns", json!({})).ok();
    assert_eq!(turns.structured["turns"].as_array().unwrap().len(), 1, "{:#}", turns.structured);
}

/// Kind 18.
#[test]
fn a_worker_that_delegates_again_is_refused_and_the_outer_call_completes() {
    loops_once("{self}", &["serve"]);
}

/// Kind 18.
#[test]
fn a_worker_is_recognised_even_if_its_cli_drops_the_marker_on_the_way() {
    let search = format!("PATH={}", std::env::var("PATH").unwrap());
    loops_once("/usr/bin/env", &["-i", "HOME={home}", &search, "{bridge}", "serve"]);
    // Several programs without the marker lie between.
    loops_once(
        "/usr/bin/env",
        &[
            "-i",
            "HOME={home}",
            &search,
            "sh",
            "-c",
            "sh -c '\"$0\" serve; exit $?' \"$0\"; exit $?",
            "{bridge}",
        ],
    );
}

/// Kind 18.
#[test]
fn nesting_goes_exactly_as_deep_as_the_config_says() {
    let world = World::new().config("maxDelegationDepth", json!(2)).build();
    let step = |next: &str| {
        json!([
            { "run": {
                "program": "{self}", "args": ["serve"], "stdin": delegation(&world, "codex", next),
                "until_lines": 2, "save": world.path().join(format!("{next}.json")),
            } },
            { "answer": {} },
        ])
    };
    world.fake(
        "codex",
        &json!({
            "counter": world.path().join("starts"),
            "rules": [
                { "when": { "contains": "level-1" }, "steps": step("level-2") },
                { "when": { "contains": "level-2" }, "steps": step("level-3") },
            ],
        }),
    );
    let mut host = world.host();
    host.initialize();
    host.call("delegate_task", task(&world, "codex", "level-1")).ok();
    let second = inner_result(&world.path().join("level-2.json"));
    assert_ne!(second["isError"], true, "{second:#}");
    let third = inner_result(&world.path().join("level-3.json"));
    assert_eq!(third["structuredContent"]["error"]["code"], "DELEGATION_TOO_DEEP", "{third:#}");
    assert!(world.path().join("starts.2").exists() && !world.path().join("starts.3").exists());
}
