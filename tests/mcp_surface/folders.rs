//! Where a worker may work: folders by identity, not by spelling.

use std::path::{Path, PathBuf};

use support::world::{BRIDGE, link, write};

use super::*;

/// A fake that says where it was started.
fn telling(world: &World) -> Host {
    world.fake("codex", &json!({ "steps": [{ "answer": { "text": "{cwd}" } }] }));
    let mut host = world.host();
    host.initialize();
    host
}

fn at(folder: impl AsRef<Path>) -> Value {
    json!({ "agent": "codex", "prompt": "where are you?", "cwd": folder.as_ref() })
}

#[track_caller]
fn works_in(host: &mut Host, asked: impl AsRef<Path>) -> PathBuf {
    let result = host.call("delegate_task", at(asked)).ok();
    PathBuf::from(result.structured["output"].as_str().unwrap())
}

#[test]
fn a_folder_outside_the_roots_is_refused_however_it_is_spelt() {
    let world = World::new().build();
    std::fs::create_dir_all(world.repo().join("sub")).unwrap();
    let sibling = world.path().join("repo-secret");
    std::fs::create_dir_all(sibling.join("sub")).unwrap();
    link(&world.outside(), &world.repo().join("way-out"));
    link(&world.path().join("bin"), &world.repo().join("sub").join("deeper"));
    let mut host = telling(&world);
    let outside = [
        world.outside(),
        world.path().to_owned(),
        world.home(),
        PathBuf::from("/"),
        // The same beginning is not the same folder.
        sibling.clone(),
        sibling.join("sub"),
        world.repo().join("..").join("outside"),
        world.repo().join("sub").join("..").join("..").join("repo-secret"),
        // Links that lead out.
        world.repo().join("way-out"),
        world.repo().join("sub").join("deeper"),
        world.repo().join("way-out").join("..").join("outside"),
    ];
    for folder in outside {
        let error = refusal(host.call("delegate_task", at(&folder)));
        assert_eq!(error["code"], "CWD_OUTSIDE_ROOTS", "{}", folder.display());
    }
    assert_eq!(
        host.call("list_turns", json!({})).ok().structured["turns"],
        json!([]),
        "something was started"
    );
}

#[test]
fn what_is_no_folder_is_refused() {
    let world = World::new().build();
    world.write("plain.txt", "x");
    link(&world.repo().join("nowhere"), &world.repo().join("dangling"));
    link(&world.repo().join("loop"), &world.repo().join("loop"));
    let mut host = telling(&world);
    for name in ["plain.txt", "missing", "dangling", "loop", "plain.txt/..", "missing/../sub", "nul\u{0}byte"]
    {
        let error = refusal(host.call("delegate_task", at(world.repo().join(name))));
        assert_eq!(error["code"], "CWD_INVALID", "{name:?}");
    }
    let long = world.repo().join("x".repeat(5000));
    assert_eq!(refused(host.call("delegate_task", at(long))), "CWD_INVALID");
    assert_eq!(
        refused(host.call("delegate_task", json!({ "agent": "codex", "prompt": "x" }))),
        "CWD_REQUIRED"
    );
}

#[test]
fn one_folder_is_the_same_however_it_is_spelt() {
    let world = World::new().build();
    let sub = world.repo().join("sub");
    std::fs::create_dir(&sub).unwrap();
    link(&sub, &world.repo().join("alias"));
    link(&world.repo(), &world.path().join("repo-alias"));
    let mut host = telling(&world);
    let text = world.repo().to_string_lossy().into_owned();
    let spellings = [
        format!("{text}/sub"),
        format!("{text}/sub/"),
        format!("{text}/sub//"),
        format!("{text}//sub"),
        format!("{text}/./sub/."),
        format!("{text}/sub/../sub"),
        format!("{text}/alias"),
        format!("{text}/alias/"),
        format!("{text}-alias/sub"),
        // Relative to where the server was started.
        "sub".to_owned(),
        "./sub/".to_owned(),
    ];
    for spelling in spellings {
        assert_eq!(works_in(&mut host, &spelling), sub, "{spelling}");
    }
    // A session keeps its folder, in any spelling, and no other.
    let session = host.call("delegate_task", at(&sub)).ok().structured["bridge_session_id"].clone();
    let go_on = |cwd: PathBuf| json!({ "agent": "codex", "prompt": "x", "session_id": session, "cwd": cwd });
    host.call("delegate_task", go_on(world.repo().join("alias"))).ok();
    assert_eq!(refused(host.call("delegate_task", go_on(world.repo()))), "SESSION_CWD_FIXED");
}

#[cfg(target_os = "linux")]
#[test]
fn where_case_counts_another_case_is_another_folder() {
    let world = World::new().build();
    std::fs::create_dir(world.repo().join("sub")).unwrap();
    let mut host = telling(&world);
    assert_eq!(refused(host.call("delegate_task", at(world.repo().join("SUB")))), "CWD_INVALID");
    let upper = world.path().join("REPO");
    std::fs::create_dir(&upper).unwrap();
    assert_eq!(refused(host.call("delegate_task", at(upper))), "CWD_OUTSIDE_ROOTS");
}

#[test]
fn the_configured_folder_serves_where_the_call_names_none() {
    let world = World::new().build();
    let sub = world.repo().join("sub");
    std::fs::create_dir(&sub).unwrap();
    let mut config = world.config();
    config["defaults"]["cwd"] = json!(world.repo().join("sub").join("."));
    world.write_config(&config);
    let mut host = telling(&world);
    let result = host.call("delegate_task", json!({ "agent": "codex", "prompt": "x" })).ok();
    assert_eq!(result.structured["output"], json!(sub));
}

#[test]
fn a_folder_swapped_for_a_link_after_the_plan_is_not_entered() {
    let world = World::new().build();
    let work = world.repo().join("work");
    std::fs::create_dir(&work).unwrap();
    let go = world.path().join("go");
    world.fake(
        "codex",
        &json!({
            "counter": world.path().join("runs"),
            "rules": [{ "when": { "run": 1 }, "steps": [{ "wait_for_file": { "path": go } }, { "answer": {} }] }],
            "steps": [{ "answer": { "text": "{cwd}" } }],
        }),
    );
    let mut host = world.host();
    host.initialize();
    let mut first = at(&work);
    first["wait_seconds"] = json!(0);
    let session = host.call("delegate_task", first).ok().structured["bridge_session_id"].clone();
    // The second turn is planned and waits for the session.
    let second =
        host.call_in_background("continue_session", json!({ "session_id": session, "prompt": "next" }));
    process::wait_until("the second turn to be planned", DEADLINE, || {
        world.processes().iter().filter(|it| it.command.contains("run-turn")).count() == 2
    });
    std::fs::rename(&work, world.repo().join("moved")).unwrap();
    link(&world.outside(), &work);
    std::fs::write(&go, "").unwrap();
    let refused = refused(host.finish(second));
    assert!(["CWD_CHANGED", "CWD_OUTSIDE_ROOTS"].contains(&refused.as_str()), "{refused}");
    assert!(!world.path().join("runs.2").exists(), "a worker was started in {}", world.outside().display());
    // Nor in a later turn of the session.
    let later =
        super::refused(host.call("continue_session", json!({ "session_id": session, "prompt": "again" })));
    assert!(["CWD_CHANGED", "CWD_OUTSIDE_ROOTS"].contains(&later.as_str()), "{later}");
}

#[test]
fn a_folder_swapped_while_the_start_waits_is_not_entered() {
    let spacing = json!({ "startSpacingMs": 3000 });
    let world = World::new().agent("codex", spacing).build();
    let work = world.repo().join("work");
    std::fs::create_dir(&work).unwrap();
    world.fake(
        "codex",
        &json!({ "counter": world.path().join("runs"), "steps": [{ "answer": { "text": "{cwd}" } }] }),
    );
    let mut host = world.host();
    host.initialize();
    host.call("delegate_task", at(world.repo())).ok();
    // This turn is recorded, and its worker has to wait until it may start.
    let mut second = at(&work);
    second["wait_seconds"] = json!(0);
    let turn = host.call("delegate_task", second).ok().structured["turn_id"].clone();
    std::fs::rename(&work, world.repo().join("moved")).unwrap();
    link(&world.outside(), &work);
    let end = host.call("wait_turn", json!({ "turn_id": turn })).err();
    assert_eq!(end.structured["code"], "CWD_CHANGED", "{:#}", end.whole);
    assert!(!world.path().join("runs.2").exists(), "a worker was started in {}", world.outside().display());
}

#[test]
fn spaces_quotes_and_other_scripts_are_fine_everywhere() {
    let strange = if cfg!(windows) { "A B テスト é'" } else { "A B テスト é'\"$x;" };
    // Composed and decomposed: two names that look the same.
    for accent in ["\u{e9}", "e\u{301}"] {
        let mut world = World::new().build();
        let base = world.path().join(format!("{strange}{accent}"));
        let place = |name: &str| {
            let folder = base.join(name);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        };
        let (root, home, bin, install) =
            (place("root r"), place("home h"), place("bin b"), place("install i"));
        let work = root.join("wörk \u{1F980}");
        std::fs::create_dir(&work).unwrap();
        let state = base.join("state s");
        let config = base.join("config c.json");
        // The program itself too.
        let program = install.join(if cfg!(windows) { "agent-bridge.exe" } else { "agent bridge" });
        std::fs::copy(BRIDGE, &program).unwrap();
        let script = base.join("script s.json");
        write(&script, json!({ "steps": [{ "write_file": { "path": "out ö.txt", "text": "x" } }, { "answer": { "text": "{cwd}" } }] }).to_string());
        let settings = json!({
            "allowedRoots": [root], "stateDir": state, "policy": { "sandboxCeiling": "workspace-write" },
            "agents": { "mock": { "enabled": true, "script": script }, "codex": { "bin": bin.join("my codex") } },
        });
        write(&config, settings.to_string());
        world.set_env("HOME", &home);
        world.set_env("AGENT_BRIDGE_CONFIG", &config);
        let fake = world.fake("codex", &json!({ "steps": [{ "answer": { "text": "{cwd}" } }] }));
        if cfg!(unix) {
            std::fs::rename(&fake, bin.join("my codex")).unwrap();
        }
        let mut command = world.command(&program);
        command.arg("serve").current_dir(&root);
        let mut host = Host::start(command);
        host.initialize();
        let arguments =
            json!({ "agent": "mock", "prompt": "テスト", "cwd": work, "sandbox": "workspace-write" });
        let result = host.call("delegate_task", arguments).ok();
        assert_eq!(result.structured["output"], json!(work));
        assert!(work.join("out ö.txt").exists());
        if cfg!(unix) {
            assert_eq!(works_in(&mut host, &work), work);
        }
        let session = &result.structured["bridge_session_id"];
        let follow = host.call("continue_session", json!({ "session_id": session, "prompt": "x" })).ok();
        assert_eq!(follow.structured["output"], json!(work));
        let listed = host.call("list_sessions", json!({})).ok();
        assert!(
            listed.structured["sessions"].as_array().unwrap().iter().all(|row| row["cwd"] == json!(work))
        );
        assert!(state.join("bridge.sqlite3").exists(), "the state went elsewhere");
        drop(host);
        world.assert_no_process_left(DEADLINE);
    }
}
