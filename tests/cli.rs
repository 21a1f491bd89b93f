//! The command line as people and scripts meet it: help, results, complaints, exit codes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::prelude::*;

/// A world with a Codex that does what the prompt's first word says.
fn world() -> World {
    let world = World::new().default("startTimeoutSec", json!(30)).build();
    let answer = |prompt: &str, answer: Value| json!({ "when": { "contains": prompt }, "steps": [{ "answer": answer }] });
    world.fake(
        "codex",
        &json!({
            "version": "codex-cli 0.171.0",
            "auth": { "stderr": "Logged in using ChatGPT\n", "exit": 0 },
            "rules": [
                answer("say nothing", json!({ "text": "" })),
                answer("run out", json!({ "failed": "You've hit your usage limit. Try again at 3:05 PM." })),
                answer("log out", json!({ "failed": "Not logged in" })),
                answer("break", json!({ "failed": "something broke" })),
                { "when": { "contains": "take long" }, "steps": [
                    { "event": { "type": "thread.started", "thread_id": "0199a213-81c0-7800-8aa1-bbab2a035a53" } },
                    { "wait_for_file": { "path": "go", "timeout_ms": 50_000 } },
                    { "answer": { "text": "at last" } }] },
            ],
            "steps": [{ "answer": { "text": "You said: {prompt}" } }],
        }),
    );
    world
}

/// A result that says what it is.
#[track_caller]
fn document(finished: &Finished, kind: &str) -> Value {
    let document = finished.json();
    assert_eq!(document["schema"], format!("agent-bridge/{kind}/1"), "{finished}");
    assert_eq!(document["kind"], kind, "{finished}");
    document
}

/// A complaint: a code, what happened, the next step; nothing where results go.
#[track_caller]
fn complaint(finished: &Finished, exit: i32, code: &str) -> String {
    assert_eq!(finished.code, Some(exit), "{finished}");
    assert!(finished.stdout.is_empty(), "a command that fails has no result: {finished}");
    let text = finished.stderr();
    let mut lines = text.lines();
    assert!(lines.next().unwrap_or_default().starts_with(&format!("error {code}: ")), "{finished}");
    assert!(lines.next().unwrap_or_default().starts_with("  next: "), "{finished}");
    text
}

/// The names in the lists of commands of a help text.
fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    let groups = ["Commands:", "Every day:", "Releases:", "Look at an installation:", "More:", "Others:"];
    let mut listed = false;
    help.lines().filter_map(move |line| {
        if !line.starts_with(' ') {
            listed = groups.contains(&line) || (listed && line.is_empty());
        }
        let name = line.split_whitespace().next().filter(|name| *name != "help")?;
        (listed && line.starts_with("  ") && !line.starts_with("   ")).then_some(name)
    })
}

#[test]
fn the_help_of_a_command_fits_a_screen() {
    let mut world = World::new().build();
    world.set_env("COLUMNS", "80");
    let top = world.bridge(["--help"]).expect_code(0);
    let names: Vec<&str> = subcommands(top.stdout()).collect();
    assert!(names.len() >= 22 && !top.stdout().contains("Others:"), "each command is in a group: {top}");
    for name in names {
        let help = world.bridge([name, "--help"]).expect_code(0);
        let lines: Vec<&str> = help.stdout().lines().collect();
        assert!(lines.len() <= 40, "{name}: {} lines\n{help}", lines.len());
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{name}: {help}");
        assert_eq!(world.bridge([name, "-h"]).stdout(), help.stdout(), "{name}");
        let about = top.stdout().lines().find(|line| line.starts_with(&format!("  {name} "))).unwrap();
        assert!(about.chars().count() <= 80, "{about}");
    }
}

#[test]
fn release_commands_print_one_document_or_nothing_and_no_colours() {
    let mut world = World::new().build();
    let root = world.path().join("root");
    agent_bridge::release::Layout::at(&root).create().unwrap();
    let before = support::release::tree(&root);
    world.set_env("AGENT_BRIDGE_ROOT", &root);
    world.set_env("CLICOLOR_FORCE", "1");
    world.set_env("NO_COLOR", "1");
    for (arguments, kind) in [
        (&["inspect"][..], "inspection"),
        (&["history"], "history"),
        (&["readiness"], "readiness"),
        (&["recover"], "recovery"),
        (&["recover", "--dry-run"], "recovery"),
        (&["configure-clients"], "configure-clients"),
        (&["configure-clients", "--check"], "configure-clients-check"),
    ] {
        let finished = world.bridge(arguments.iter().copied().chain(["--json"])).expect_code(0);
        let found = document(&finished, kind);
        assert_eq!(found["schema"], format!("agent-bridge/{kind}/1"));
        let plain = world.bridge(arguments).expect_code(0);
        let printed = format!("{}{}", plain.stdout(), plain.stderr());
        assert!(!printed.is_empty() && !printed.contains('\u{1b}'), "{arguments:?}: {plain}");
    }
    let mut after = support::release::tree(&root);
    // Recovery takes the locks.
    after.retain(|path, _| !path.starts_with("locks/"));
    assert_eq!(after, before, "looking changes nothing");
    let id = "1.0.0+0123abc";
    for (arguments, code) in [
        (&["cutover", id, "--yes"][..], "RELEASE_NOT_INSTALLED"),
        (&["rollback", "--yes"], "RELEASE_NOTHING_CURRENT"),
        (&["canary", "release", id], "RELEASE_NOT_INSTALLED"),
        (&["history", "mark", "1", "good"], "RELEASE_UNKNOWN_GENERATION"),
    ] {
        for more in [&[][..], &["--json"]] {
            complaint(&world.bridge(arguments.iter().chain(more)), 2, code);
        }
    }
    complaint(&world.bridge(["cutover", "1.0.0", "--yes"]), 64, "RELEASE_ID_INVALID");
}

#[test]
fn every_subcommand_explains_itself_within_a_screen_s_width() {
    let world = World::new().build();
    let mut paths: Vec<Vec<String>> = vec![vec![]];
    let mut seen = 0;
    while let Some(path) = paths.pop() {
        let help = world.bridge(path.iter().map(String::as_str).chain(["--help"])).expect_code(0);
        let text = help.stdout();
        assert!(text.contains("Usage: agent-bridge"), "{path:?}: {text}");
        assert!(help.stderr.is_empty() && !text.contains('\u{1b}'), "{help}");
        let long = text.lines().find(|line| line.chars().count() > 100);
        assert_eq!(long, None, "in the help of {path:?}");
        paths.extend(subcommands(text).map(|name| path.iter().cloned().chain([name.to_owned()]).collect()));
        seen += 1;
    }
    assert!(seen >= 23, "only {seen} subcommands were found");
}

#[test]
fn the_help_of_a_subcommand_is_whole() {
    let world = World::new().build();
    let help = world.bridge(["delegate", "--help"]).expect_code(0);
    assert!(help.stdout().contains("75 still running"), "the exit codes belong to it: {help}");
    assert!(world.bridge(["config", "check", "--help"]).stdout().contains("Exit code 0"));
    assert!(!world.bridge(["--help"]).stdout().contains("run-turn"), "hidden means hidden");
}

#[test]
fn a_wrong_command_line_exits_64_and_prints_nothing() {
    let world = world();
    for arguments in [
        &[][..],
        &["--bad"],
        &["delegat", "codex", "x"],
        &["delegate"],
        &["delegate", "codex", "x", "--sandbox", "all"],
        &["delegate", "codex", "x", "--timeout", "0"],
        &["turns", "list", "--limit", "0"],
        &["turns", "output", "x", "--field", "all"],
        &["serve", "--toolsets", "all"],
    ] {
        let finished = world.bridge(arguments).expect_code(64);
        assert!(finished.stdout.is_empty() && !finished.stderr.is_empty(), "{arguments:?}: {finished}");
    }
    assert!(!world.state().exists(), "nothing was started");
}

#[test]
fn a_complaint_has_a_code_a_next_step_and_no_result() {
    let world = world();
    let unknown = complaint(&world.bridge(["explain", "SANDBOX_AUTORITY"]), 64, "INVALID_ARGUMENT");
    assert!(unknown.contains("agent-bridge explain SANDBOX_AUTHORITY_DENIED"), "{unknown}");
    complaint(&world.bridge(["delegate", "nobody", "x"]), 2, "AGENT_UNKNOWN");
    complaint(&world.bridge(["delegate", "mock", "x"]), 2, "AGENT_DISABLED");
    complaint(&world.bridge(["delegate", "codex", "x", "--cwd", "/"]), 2, "CWD_OUTSIDE_ROOTS");
    complaint(
        &world.bridge(["delegate", "codex", "x", "--sandbox", "full-access"]),
        2,
        "SANDBOX_AUTHORITY_DENIED",
    );
    complaint(&world.bridge(["delegate", "codex", " "]), 2, "PROMPT_INVALID");
    complaint(&world.bridge(["delegate", "codex", "--prompt-file", "none"]), 64, "INVALID_ARGUMENT");
    complaint(
        &world.bridge(["delegate", "codex", "x", "--json", "--session", "none"]),
        2,
        "SESSION_NOT_FOUND",
    );
    for (verb, json) in [("show", true), ("wait", true), ("cancel", false), ("output", false)] {
        let arguments = ["turns", verb, "none"].into_iter().chain(json.then_some("--json"));
        complaint(&world.bridge(arguments), 2, "TURN_NOT_FOUND");
    }
    complaint(&world.bridge(["man", "--dir", "none"]), 64, "INVALID_ARGUMENT");
    complaint(&world.bridge(["config", "init"]), 2, "CONFIG_INIT_NOT_INTERACTIVE");
    complaint(&world.bridge(["config", "explain", "agents.codx"]), 2, "CONFIG_UNKNOWN_KEY");
}

#[test]
fn without_a_config_nothing_starts_and_the_way_out_is_named() {
    let world = World::new().build();
    std::fs::remove_file(world.config_path()).unwrap();
    for arguments in [
        &["serve"][..],
        &["delegate", "codex", "x"],
        &["sessions", "list", "--json"],
        &["turns", "list"],
        &["config", "explain", "--json"],
    ] {
        let text = complaint(&world.bridge(arguments), 2, "CONFIG_NOT_FOUND");
        assert!(text.contains("agent-bridge config init"), "{text}");
    }
    let check = world.bridge(["config", "check"]).expect_code(3);
    assert!(check.stdout().contains("agent-bridge config init"), "{check}");
    let doctor = document(&world.bridge(["doctor", "--json"]).expect_code(2), "doctor");
    assert_eq!(doctor["diagnostics"]["status"], "fail");
    // What needs no config works without one.
    world.bridge(["explain"]).expect_code(0);
    world.bridge(["man"]).expect_code(0);
    world.bridge(["completions", "bash"]).expect_code(0);
    assert!(!world.state().exists());
}

#[test]
fn several_problems_of_a_config_are_told_one_a_line() {
    let world = World::new().build();
    world.write_config(&json!({ "allowedRoots": ["/nope"], "default": {}, "maxConcurrentTurns": 0 }));
    let check = world.bridge(["config", "check"]).expect_code(3);
    let problems: Vec<&str> =
        check.stdout().lines().filter(|line| line.starts_with("problem: CONFIG_")).collect();
    assert_eq!(problems.len(), 3, "{check}");
    let text = complaint(&world.bridge(["serve"]), 2, "CONFIG_UNKNOWN_KEY");
    assert!(text.contains("agent-bridge config check"), "{text}");
}

#[test]
fn lists_without_any_state_are_empty_and_make_none() {
    let world = world();
    let sessions = document(&world.bridge(["sessions", "list", "--json"]).expect_code(0), "sessions");
    assert_eq!(sessions["sessions"], json!([]));
    let turns = document(&world.bridge(["turns", "list", "--json"]).expect_code(0), "turns");
    assert_eq!(turns["turns"], json!([]));
    let hits = document(&world.bridge(["sessions", "search", "x", "--json"]).expect_code(0), "search");
    assert_eq!(hits["hits"], json!([]));
    let list = world.bridge(["sessions", "list"]).expect_code(0);
    assert!(list.stdout.is_empty() && list.stderr().contains("agent-bridge delegate"), "{list}");
    assert!(!world.state().exists());
}

#[test]
fn the_answer_goes_to_standard_output_and_the_facts_to_standard_error() {
    let world = world();
    let finished = world.bridge(["delegate", "codex", "hello there"]).expect_code(0);
    assert_eq!(finished.stdout(), "You said: hello there\n");
    let facts = finished.stderr();
    assert!(facts.starts_with("success · codex · "), "{finished}");
    assert!(facts.contains("\nsession  ") && facts.contains("\nturn     "), "{finished}");
    let piped =
        world.bridge_with_input(["delegate", "codex", "--prompt-file", "-"], "from a pipe").expect_code(0);
    assert_eq!(piped.stdout(), "You said: from a pipe\n");
}

#[test]
fn the_exit_code_of_delegate_tells_the_outcome() {
    let world = world();
    for (prompt, exit, outcome) in [
        ("hello", 0, "success"),
        ("break", 1, "worker-error"),
        ("run out", 2, "quota"),
        ("say nothing", 3, "empty"),
        ("log out", 2, "login-required"),
    ] {
        let finished = world.bridge(["delegate", "codex", prompt, "--json"]).expect_code(exit);
        let turn = document(&finished, "turn");
        assert_eq!((&turn["outcome"], &turn["is_error"]), (&json!(outcome), &json!(exit != 0)), "{finished}");
        // Whoever waits for a turn learns the same.
        world.bridge(["turns", "wait", turn["turn_id"].as_str().unwrap(), "--json"]).expect_code(exit);
    }
}

#[test]
fn advice_at_the_terminal_names_commands_and_not_tools() {
    let world = world();
    for prompt in ["break", "run out", "say nothing", "log out"] {
        let text = world.bridge(["delegate", "codex", prompt]).stderr();
        assert!(text.contains("\nnext     "), "{text}");
        for tool in ["get_turn_output", "continue_session", "wait_turn", "delegate_task", "Ask the user"] {
            assert!(!text.contains(tool), "{prompt}: {text}");
        }
    }
    let text = world.bridge(["turns", "show", "none"]).stderr();
    assert!(text.contains("`agent-bridge turns list`"), "{text}");
}

#[test]
fn what_is_still_running_can_be_waited_for_and_cancelled_from_another_process() {
    let world = world();
    let started = |prompt: &str| {
        let finished = world.bridge(["delegate", "codex", prompt, "--wait", "0", "--json"]).expect_code(75);
        let turn = document(&finished, "turn");
        assert_eq!(turn["status"], "still_running");
        (turn["turn_id"].as_str().unwrap().to_owned(), turn["bridge_session_id"].as_str().unwrap().to_owned())
    };
    let (turn, _) = started("take long");
    world.bridge(["turns", "wait", &turn, "--timeout", "0"]).expect_code(75);
    let running = document(&world.bridge(["turns", "list", "--running", "--json"]).expect_code(0), "turns");
    assert_eq!(running["turns"][0]["turn_id"], turn);
    world.write("go", "");
    let waited = world.bridge(["turns", "wait", &turn]).expect_code(0);
    assert!(waited.stdout().starts_with("at last\n\nsuccess · codex"), "{waited}");

    std::fs::remove_file(world.file("go")).unwrap();
    let (turn, session) = started("take long");
    let cancelled = world.bridge(["turns", "cancel", &turn, "--reason", "enough"]).expect_code(0);
    assert!(cancelled.stdout().contains("TURN_CANCELLED: cancelled: enough"), "{cancelled}");
    world.bridge(["turns", "wait", &turn]).expect_code(1);
    let again = world.bridge(["turns", "cancel", &turn]).expect_code(0);
    assert!(again.stderr().contains("already finished"), "{again}");
    let shown = world.bridge(["sessions", "show", &session]).expect_code(0);
    assert!(shown.stdout().contains("> take long") && shown.stdout().contains("enough"), "{shown}");
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn sessions_and_turns_show_what_was_said() {
    let world = world();
    let first = document(&world.bridge(["delegate", "codex", "count the zebras", "--json"]), "turn");
    let session = first["bridge_session_id"].as_str().unwrap();
    world.bridge(["delegate", "codex", "--session", session, "and the lions"]).expect_code(0);

    let list = world.bridge(["sessions", "list"]).expect_code(0);
    let row = list.stdout().lines().nth(1).unwrap_or_default();
    assert!(row.starts_with(session) && row.ends_with("2      codex   count the zebras"), "{list}");
    let turns = world.bridge(["turns", "list", "--limit", "1"]).expect_code(0);
    assert!(turns.stdout().lines().nth(1).unwrap_or_default().ends_with("and the lions"), "{turns}");
    assert!(turns.stderr().contains("older ones"), "a cut list says so: {turns}");

    let shown = document(&world.bridge(["sessions", "show", session, "--json"]).expect_code(0), "session");
    assert_eq!(shown["turns"].as_array().unwrap().len(), 2);
    assert_eq!(shown["turns"][1]["response"], "You said: and the lions");
    let found = world.bridge(["sessions", "search", "zebras"]).expect_code(0);
    assert!(found.stdout().contains(session), "{found}");
    let turn = first["turn_id"].as_str().unwrap();
    let shown = document(&world.bridge(["turns", "show", turn, "--json"]).expect_code(0), "turn");
    assert_eq!(shown["output"], "You said: count the zebras");
    let output = world.bridge(["turns", "output", turn]).expect_code(0);
    assert_eq!(output.stdout(), "You said: count the zebras");
    let raw = world.bridge(["turns", "output", turn, "--field", "stdout"]).expect_code(0);
    assert!(raw.json_lines().iter().any(|event| event["type"] == "turn.completed"), "{raw}");
}

#[test]
fn doctor_judges_the_installation_and_changes_nothing() {
    let world = world();
    let doctor = world.bridge(["doctor"]).expect_code(0);
    assert!(doctor.stdout().contains("ok    agent codex: 0.171.0, logged in"), "{doctor}");
    assert!(doctor.stdout().ends_with("Everything is in order.\n"), "{doctor}");
    let facts = document(&world.bridge(["doctor", "--json"]).expect_code(0), "doctor");
    assert_eq!(facts["diagnostics"]["status"], "ok");
    assert!(!world.state().exists());

    world.set_agent("codex", json!({ "bin": "/nope/codex" }));
    world.set_agent("manus", json!({ "enabled": true }));
    let doctor = world.bridge(["doctor"]).expect_code(0);
    for sign in ["warn  agent codex: ", "warn  agent manus: not available", "warn  agents: none is"] {
        assert!(doctor.stdout().contains(sign), "{sign}: {doctor}");
    }
}

#[test]
fn a_config_made_without_questions_is_one_that_serve_starts_with() {
    let world = world();
    std::fs::remove_file(world.config_path()).unwrap();
    let made = document(&world.bridge(["config", "init", "--yes", "--json"]).expect_code(0), "config-init");
    assert_eq!(made["allowedRoots"], json!([world.repo()]));
    let path = document(&world.bridge(["config", "path", "--json"]).expect_code(0), "config-path");
    assert_eq!((&path["path"], &path["exists"]), (&made["path"], &json!(true)));
    let check = document(&world.bridge(["config", "check", "--json"]).expect_code(0), "config-check");
    assert_eq!((&check["ok"], &check["warnings"]), (&json!(true), &json!([])));
    document(&world.bridge(["config", "explain", "--json"]).expect_code(0), "config-explain");
    complaint(&world.bridge(["config", "init", "--yes"]), 2, "CONFIG_EXISTS");

    let mut host = world.host();
    assert_eq!(host.initialize()["serverInfo"]["name"], "agent-bridge");
    let answer =
        host.call("delegate_task", json!({ "agent": "codex", "prompt": "hello", "cwd": world.repo() })).ok();
    assert_eq!(answer.structured["output"], "You said: hello");
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
}

#[test]
fn explain_knows_cause_and_remedy_of_every_code() {
    let world = World::new().build();
    let all = document(&world.bridge(["explain", "--json"]).expect_code(0), "error-codes");
    let codes = all["codes"].as_array().unwrap();
    assert!(codes.len() > 60, "{}", codes.len());
    for code in codes {
        for key in ["code", "cause", "remedy"] {
            assert!(code[key].as_str().is_some_and(|text| !text.is_empty()), "{code}");
        }
    }
    let one = world.bridge(["explain", "turn_cancelled"]).expect_code(0);
    let labels: Vec<&str> = one.stdout().lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(labels, ["TURN_CANCELLED", "why:", "next:", "retry:", "exit:"]);
}

#[test]
fn completions_offer_what_is_there_and_nothing_hidden() {
    let world = World::new().build();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = world.bridge(["completions", shell]).expect_code(0);
        for name in ["delegate", "prompt-file", "search", "sandbox-ceiling"] {
            assert!(script.stdout().contains(name), "{shell} lacks {name}");
        }
        for name in ["mock-agent", "run-turn"] {
            assert!(!script.stdout().contains(name), "{shell} offers {name}");
        }
    }
}

#[test]
fn manual_pages_are_written_for_every_visible_command() {
    let world = World::new().build();
    assert!(world.bridge(["man"]).expect_code(0).stdout().contains(".SH SUBCOMMANDS"));
    let folder = world.path().join("pages");
    std::fs::create_dir(&folder).unwrap();
    world.bridge(["man", "--dir", folder.to_str().unwrap()]).expect_code(0);
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.contains(&"agent-bridge-turns-wait.1".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("mock") || name.contains("run-turn")), "{names:?}");
}

#[test]
fn the_demo_tells_its_story_and_leaves_nothing_with_clean() {
    let world = World::new().build();
    let folder = world.path().join("demo");
    let demo = world.bridge(["demo", "--clean", "--dir", folder.to_str().unwrap()]).expect_code(0);
    assert_eq!(demo.stdout().lines().filter(|line| line.contains(" ms  ")).count(), 12, "{demo}");
    assert!(!folder.exists());
    let again = world.bridge(["demo", "--json", "--dir", folder.to_str().unwrap()]).expect_code(0);
    assert_eq!(document(&again, "demo")["ok"], true);
    let sessions = ["--config", folder.join("config.json").to_str().unwrap(), "sessions", "list", "--json"]
        .map(String::from);
    let list = document(&world.bridge(sessions).expect_code(0), "sessions");
    assert_eq!(list["sessions"].as_array().unwrap().len(), 5);
    complaint(&world.bridge(["demo", "--dir", folder.to_str().unwrap()]), 3, "DEMO_FAILED");
    world.assert_no_process_left(DEADLINE);
}

/// What the bridge shows on a terminal of this width, through the `script` program of util-linux.
#[cfg(target_os = "linux")]
fn on_a_terminal(world: &World, columns: u32, arguments: &str, set: &[(&str, &str)]) -> Option<String> {
    let script = support::world::find_program("script")?;
    let mut command = world.command(script);
    command.env("TERM", "xterm").env("SHELL", "/bin/sh").envs(set.iter().copied());
    command.args(["-qec", &format!("stty rows 24 cols {columns}; exec {BRIDGE} {arguments}"), "/dev/null"]);
    let finished = process::run(command, DEADLINE);
    Some(finished.stdout().replace("\r\n", "\n"))
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_gets_colours_and_whole_words_and_never_another_program_s_codes() {
    let world = world();
    let Some(error) = on_a_terminal(&world, 60, "turns show none", &[]) else { return };
    assert!(error.contains("\u{1b}[31merror\u{1b}[0m"), "{error:?}");
    let plain = on_a_terminal(&world, 60, "turns show none", &[("NO_COLOR", "1")]).unwrap();
    assert!(plain.starts_with("error TURN_NOT_FOUND") && !plain.contains('\u{1b}'), "{plain:?}");

    world.bridge(["delegate", "codex", "\u{1b}]0;owned\u{7}\u{1b}[2Jhello"]).expect_code(0);
    let turn = world.bridge(["turns", "list", "--json"]).json()["turns"][0].clone();
    let output = format!("turns output {}", turn["turn_id"].as_str().unwrap());
    assert_eq!(on_a_terminal(&world, 60, &output, &[]).unwrap(), "You said: ]0;owned[2Jhello");
    // A terminal that does not tell its size is one as well.
    assert_eq!(on_a_terminal(&world, 0, &output, &[]).unwrap(), "You said: ]0;owned[2Jhello");
    let piped = world.bridge(output.split(' ')).expect_code(0);
    assert!(piped.stdout().contains('\u{1b}'), "a pipe gets it as it came: {piped}");

    for arguments in ["turns list", "sessions list", "doctor", "explain sandbox_authority_denied", "explain"]
    {
        let shown = on_a_terminal(&world, 80, arguments, &[]).unwrap();
        let wide = shown.lines().find(|line| line.chars().count() > 80 && line.trim().contains(' '));
        assert_eq!(wide, None, "{arguments}: {shown}");
    }
}
