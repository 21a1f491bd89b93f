//! Roots, working folders and the state folder, by identity and by component.

use super::*;

#[test]
fn spellings_of_one_folder_are_one_root() {
    let world = World::new();
    world.folder("work/sub");
    let config = world
        .load(json!({"allowedRoots": [
            world.text("work"), format!("{}/", world.text("work")), format!("{}/./sub/..", world.text("work")),
        ]}))
        .unwrap();
    assert_eq!(config.allowed_roots, [world.at("work")]);
}

#[test]
fn home_and_relative_paths_are_expanded() {
    let world = World::new();
    world.folder("home/code");
    world.folder("config/project");
    let config = world
        .load(json!({"allowedRoots": ["~/code", "project"], "stateDir": "~/state",
            "agents": {"codex": {"bin": "~/bin/codex"}, "claude": {"bin": "./claude"}}}))
        .unwrap();
    assert_eq!(config.allowed_roots, [world.at("home/code"), world.at("config/project")]);
    assert_eq!(config.state_dir, world.at("home/state"));
    assert_eq!(
        Path::new(&config.agents[&crate::policy::AgentId::Codex].bin),
        world.at("home").join("bin/codex")
    );
    assert_eq!(
        Path::new(&config.agents[&crate::policy::AgentId::Claude].bin),
        world.at("config").join("./claude")
    );
}

#[test]
fn a_linked_root_is_the_folder_it_points_to() {
    let world = World::new();
    if !link(&world.at("work"), &world.at("link")) {
        return;
    }
    let config = world.load(json!({"allowedRoots": [world.text("link"), world.text("work")]})).unwrap();
    assert_eq!(config.allowed_roots, [world.at("work")]);
    // Inside by spelling, outside in truth.
    assert!(link(&world.at("home"), &world.at("work/out")));
    assert_eq!(
        world.problems(json!({"defaults": {"cwd": world.text("work/out")}})),
        ["CONFIG_INVALID_VALUE defaults.cwd"]
    );
}

#[test]
fn the_state_folder_is_kept_apart_from_the_roots_by_component() {
    let world = World::new();
    world.folder("work-state");
    let state = |name: &str| world.problems(json!({"stateDir": world.text(name)}));
    for inside in ["work", "work/state", "work/a/b/c", "work-state/../work/x"] {
        assert_eq!(state(inside), ["CONFIG_STATE_DIR_UNSAFE stateDir"], "{inside}");
    }
    let around = World::new();
    around.folder("home/code");
    let changes = json!({"allowedRoots": [around.text("home/code")], "stateDir": around.text("home")});
    assert_eq!(around.problems(changes), ["CONFIG_STATE_DIR_UNSAFE stateDir"]);
    for apart in ["work-state", "work-state/x", "workstate", "state", "work/../state"] {
        assert_eq!(state(apart), [""; 0], "{apart}");
    }
}

#[test]
fn a_root_that_holds_the_home_folder_needs_another_state_folder() {
    let world = World::new();
    let changes = json!({"allowedRoots": [world.text("home")]});
    assert_eq!(world.problems(changes), ["CONFIG_STATE_DIR_UNSAFE stateDir"]);
    let changes = json!({"allowedRoots": [world.text("home")], "stateDir": world.text("state")});
    assert!(world.problems(changes).is_empty());
}

#[test]
fn the_filesystem_root_as_a_root_leaves_no_place_for_state() {
    let world = World::new();
    let top = world.top.ancestors().last().unwrap().to_str().unwrap().to_owned();
    assert_eq!(world.problems(json!({"allowedRoots": [top]})), ["CONFIG_STATE_DIR_UNSAFE stateDir"]);
}

#[test]
fn a_state_folder_behind_a_link_into_a_root_is_refused() {
    let world = World::new();
    world.folder("work/inner");
    if !link(&world.at("work/inner"), &world.at("harmless")) {
        return;
    }
    let state = |name: &str| world.problems(json!({"stateDir": world.text(name)}));
    assert_eq!(state("harmless/state"), ["CONFIG_STATE_DIR_UNSAFE stateDir"]);
    assert_eq!(
        state("harmless/../state"),
        ["CONFIG_STATE_DIR_UNSAFE stateDir"],
        "`..` is that of the target"
    );
    assert!(link(&world.at("nowhere"), &world.at("dangling")));
    assert_eq!(state("dangling/state"), ["CONFIG_STATE_DIR_UNSAFE stateDir"]);
}

#[test]
fn a_state_folder_below_a_file_is_refused() {
    let world = World::new();
    world.write("file", "");
    assert_eq!(
        world.problems(json!({"stateDir": world.text("file/state")})),
        ["CONFIG_STATE_DIR_UNSAFE stateDir"]
    );
}

#[test]
fn without_a_usable_home_only_the_state_folder_must_be_named() {
    let mut world = World::new();
    for (home, named) in [(None, "HOME is unset"), (Some(PathBuf::from("/")), "HOME is /")] {
        world.context.home = home;
        let error = world.load(json!({})).unwrap_err();
        assert!(error.to_string().contains(named) || cfg!(windows), "{error}");
        assert!(error.to_string().contains("stateDir"), "{error}");
        assert_eq!(code(error), "CONFIG_STATE_DIR_REQUIRED");
        let config = world.load(json!({"stateDir": world.text("state")})).unwrap();
        assert_eq!(config.state_dir, world.at("state"));
        assert_eq!(
            world.problems(json!({"stateDir": world.text("state"), "defaults": {"cwd": "~"}})),
            ["CONFIG_INVALID_VALUE defaults.cwd"]
        );
    }
}

#[test]
fn a_config_or_credential_that_workers_can_reach_is_worth_a_warning() {
    let world = World::new();
    world.folder("config");
    world.write("config/key", "");
    let config = world
        .load(json!({"allowedRoots": [world.text("config")],
            "agents": {"manus": {"enabled": false, "credentialFile": "key"}}}))
        .unwrap();
    assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
}

#[test]
fn a_program_that_workers_can_replace_is_worth_a_warning() {
    let world = World::new();
    world.folder("repo");
    world.write("repo/codex", "");
    world.write("elsewhere", "");
    for (bin, warned) in [("repo/codex", true), ("elsewhere", false)] {
        let config = world
            .load(
                json!({"allowedRoots": [world.text("repo")], "agents": {"codex": {"bin": world.text(bin)}}}),
            )
            .unwrap();
        let told = config.warnings.iter().any(|warning| warning.starts_with("agents.codex.bin lies inside"));
        assert_eq!(told, warned, "{bin}: {:?}", config.warnings);
    }
}
