//! Which config is used, and what happens when it is not there.

use super::*;
use crate::config::{CONFIG_VARIABLE, ConfigSource, check, select};

fn minimal(world: &World) -> String {
    world.document(json!({})).to_string()
}

#[test]
fn flag_then_variable_then_bundle_then_beside_the_program_then_home() {
    let mut world = World::new();
    let text = minimal(&world);
    let flag = world.write("flag.json", &text);
    let variable = world.write("variable.json", &text);
    let beside = world.write("bin/config.json", &text);
    let home = world.write("home/.agent-bridge/config.json", &text);
    world.set(CONFIG_VARIABLE, &variable);
    world.set("AGENT_BRIDGE_BUNDLE_MODE", "1");
    world.set("AGENT_BRIDGE_ALLOWED_ROOT", world.at("work"));

    let expect = |world: &World, flag: Option<&Path>, source: ConfigSource, path: &Path| {
        let config = load(&world.context, flag).unwrap();
        assert_eq!((config.source, config.path.as_path()), (source, path));
        assert_eq!(config.sha256.is_none(), source == ConfigSource::Bundle);
    };
    expect(&world, Some(&flag), ConfigSource::Flag, &flag);
    expect(&world, None, ConfigSource::Environment, &variable);
    world.set(CONFIG_VARIABLE, "");
    expect(&world, None, ConfigSource::Bundle, Path::new("MCPB:user_config"));
    world.set("AGENT_BRIDGE_BUNDLE_MODE", "true");
    expect(&world, None, ConfigSource::BesideProgram, &beside);
    std::fs::remove_file(&beside).unwrap();
    expect(&world, None, ConfigSource::DefaultLocation, &home);
    std::fs::remove_file(&home).unwrap();
    assert_eq!(code(load(&world.context, None).unwrap_err()), "CONFIG_NOT_FOUND");
}

#[test]
fn a_named_file_that_is_missing_is_never_replaced_by_another() {
    let mut world = World::new();
    world.write("home/.agent-bridge/config.json", minimal(&world));
    let missing = world.at("missing.json");
    let error = load(&world.context, Some(&missing)).unwrap_err();
    assert!(error.to_string().contains("--config flag"), "{error}");
    world.set(CONFIG_VARIABLE, &missing);
    let error = load(&world.context, None).unwrap_err();
    assert!(error.to_string().contains("AGENT_BRIDGE_CONFIG"), "{error}");
    assert_eq!(codes(&check(&world.context, None)), ["CONFIG_NOT_FOUND "]);
}

#[test]
fn relative_and_home_paths_of_the_flag_are_made_absolute() {
    let world = World::new();
    let chosen = |text: &str| select(&world.context, Some(Path::new(text))).unwrap().path;
    assert_eq!(chosen("x.json"), world.at("bin/x.json"));
    assert_eq!(chosen("~/x.json"), world.at("home/x.json"));
}

#[test]
fn a_folder_beside_the_program_is_an_error_and_not_skipped() {
    let world = World::new();
    world.write("home/.agent-bridge/config.json", minimal(&world));
    world.folder("bin/config.json");
    assert_eq!(code(load(&world.context, None).unwrap_err()), "CONFIG_UNREADABLE");
}

#[test]
fn a_link_to_nowhere_beside_the_program_is_an_error_and_not_skipped() {
    let world = World::new();
    world.write("home/.agent-bridge/config.json", minimal(&world));
    if link(&world.at("nowhere"), &world.at("bin/config.json")) {
        assert_eq!(code(load(&world.context, None).unwrap_err()), "CONFIG_NOT_FOUND");
    }
}

#[test]
fn without_a_usable_home_a_config_must_be_named() {
    let mut world = World::new();
    for home in [None, Some(PathBuf::from("/"))] {
        world.context.home = home;
        let error = load(&world.context, None).unwrap_err();
        assert_eq!(error, ConfigError::NoLocation);
        assert_eq!(code(error), "CONFIG_NOT_FOUND");
    }
}

#[test]
fn files_that_are_no_config() {
    let world = World::new();
    let big = format!("{{\"_notes\": \"{}\"}}", "x".repeat(1024 * 1024));
    for (content, expected, part) in [
        (&b""[..], "CONFIG_INVALID_JSON", "empty"),
        (b"{\"allowedRoots\": [\"/x\"", "CONFIG_INVALID_JSON", "line 1"),
        (b"{\n \"allowedRoots\": [\"/x\"], // mine\n}", "CONFIG_INVALID_JSON", "comments"),
        (b"{\"a\": \"\xff\"}", "CONFIG_UNREADABLE", "not UTF-8 (at byte 7)"),
        (b"\xff\xfe{\0}\0", "CONFIG_UNREADABLE", "UTF-16"),
        (big.as_bytes(), "CONFIG_UNREADABLE", "larger than 1 MiB"),
        (b"[]", "CONFIG_INVALID_VALUE", "expected an object, found a list"),
        (b"null", "CONFIG_INVALID_VALUE", "expected an object, found null"),
    ] {
        let path = world.write("x.json", content);
        let error = load(&world.context, Some(&path)).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(error.to_string().contains("x.json"), "{error}");
        assert_eq!(code(error), expected);
    }
}

#[test]
fn a_byte_order_mark_is_accepted() {
    let world = World::new();
    let path = world.write("x.json", format!("\u{feff}{}", minimal(&world)));
    assert!(load(&world.context, Some(&path)).is_ok());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_without_waiting_for_a_writer() {
    let world = World::new();
    let path = world.at("pipe");
    // The program, because rustix has no such call for macOS.
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(code(load(&world.context, Some(&path)).unwrap_err()), "CONFIG_UNREADABLE");
    assert_eq!(code(load(&world.context, Some(Path::new("/dev/zero"))).unwrap_err()), "CONFIG_UNREADABLE");
}

#[cfg(target_os = "linux")]
#[test]
fn a_variable_that_is_not_unicode_still_selects_that_file() {
    use std::os::unix::ffi::OsStringExt;
    let mut world = World::new();
    world.write("home/.agent-bridge/config.json", minimal(&world));
    let name = OsString::from_vec(b"\xff.json".to_vec());
    std::fs::write(world.at("bin").join(&name), minimal(&world)).unwrap();
    world.set(CONFIG_VARIABLE, name);
    assert_eq!(load(&world.context, None).unwrap().source, ConfigSource::Environment);
}
