//! Bundle mode, the whole table.

use super::*;
use crate::policy::{AgentId, DataClass, Sandbox};

fn bundle() -> World {
    let mut world = World::new();
    world.set("AGENT_BRIDGE_BUNDLE_MODE", "1");
    world.set("AGENT_BRIDGE_ALLOWED_ROOT", world.at("work"));
    world
}

fn problems(world: &World) -> Vec<String> {
    codes(&crate::config::check(&world.context, None))
}

#[test]
fn the_root_alone_is_enough() {
    let world = bundle();
    let config = load(&world.context, None).unwrap();
    assert_eq!(config.allowed_roots, [world.at("work")]);
    assert_eq!(config.defaults.cwd, Some(world.at("work")));
    assert_eq!(config.state_dir, world.at("home/.agent-bridge"));
    assert_eq!((config.defaults.sandbox, config.sandbox_ceiling), (Sandbox::ReadOnly, Sandbox::ReadOnly));
    let on: Vec<_> = config.agents.iter().filter(|(_, agent)| agent.enabled).map(|(id, _)| *id).collect();
    assert_eq!(on, [AgentId::Codex, AgentId::Claude]);
    assert!(!config.remote_egress.enabled);
}

#[test]
fn every_variable_has_its_effect() {
    let mut world = bundle();
    for (name, value) in [
        ("AGENT_BRIDGE_ENABLE_CODEX", "0"),
        ("AGENT_BRIDGE_ENABLE_CLAUDE", "false"),
        ("AGENT_BRIDGE_ENABLE_GEMINI", "1"),
        ("AGENT_BRIDGE_ENABLE_MANUS", "true"),
        ("AGENT_BRIDGE_MANUS_ACKNOWLEDGE_ACCOUNT_DEFAULT_CAPABILITIES", "true"),
        ("AGENT_BRIDGE_MANUS_ACCOUNT_CAPABILITY_PROFILE", "team-1"),
        ("AGENT_BRIDGE_DEFAULT_SANDBOX", "workspace-write"),
        ("AGENT_BRIDGE_SANDBOX_CEILING", "full-access"),
        ("AGENT_BRIDGE_REMOTE_EGRESS", "1"),
        ("AGENT_BRIDGE_REMOTE_DATA_CLASS", "internal"),
    ] {
        world.set(name, value);
    }
    world.set("AGENT_BRIDGE_STATE_DIR", world.at("state"));
    world.set("AGENT_BRIDGE_MANUS_CREDENTIAL_FILE", world.at("key"));
    let config = load(&world.context, None).unwrap();
    assert_eq!(config.state_dir, world.at("state"));
    assert_eq!(config.defaults.sandbox, Sandbox::WorkspaceWrite);
    assert_eq!(config.sandbox_ceiling, Sandbox::FullAccess);
    let on: Vec<_> = config.agents.iter().filter(|(_, agent)| agent.enabled).map(|(id, _)| *id).collect();
    assert_eq!(on, [AgentId::Gemini, AgentId::Manus]);
    let manus = &config.agents[&AgentId::Manus];
    assert!(manus.enabled && manus.acknowledge_account_default_capabilities);
    assert_eq!(manus.account_capability_profile.as_deref(), Some("team-1"));
    assert_eq!(manus.credential_file, Some(world.at("key")));
    assert!(config.remote_egress.enabled);
    assert_eq!(config.remote_egress.allowed_agents, [AgentId::Manus]);
    assert_eq!(config.remote_egress.allowed_roots, [world.at("work")]);
    assert_eq!(config.remote_egress.allowed_data_classes, [DataClass::Internal]);
}

#[test]
fn settings_left_empty_count_as_unset() {
    let mut world = bundle();
    for name in ["ENABLE_CODEX", "ENABLE_MANUS", "MANUS_CREDENTIAL_FILE", "SANDBOX_CEILING", "REMOTE_EGRESS"]
    {
        world.set(&format!("AGENT_BRIDGE_{name}"), format!("${{user_config.{}}}", name.to_lowercase()));
    }
    for name in ["ENABLE_CLAUDE", "MANUS_ACCOUNT_CAPABILITY_PROFILE", "STATE_DIR", "REMOTE_DATA_CLASS"] {
        world.set(&format!("AGENT_BRIDGE_{name}"), "");
    }
    let config = load(&world.context, None).unwrap();
    assert!(config.agents[&AgentId::Codex].enabled && config.agents[&AgentId::Claude].enabled);
    assert!(config.agents[&AgentId::Manus].credential_file.is_none());
}

#[test]
fn each_fault_names_its_variable() {
    for (name, value, expected) in [
        ("AGENT_BRIDGE_ALLOWED_ROOT", "", "CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_ALLOWED_ROOT"),
        ("AGENT_BRIDGE_ALLOWED_ROOT", "  ", "CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_ALLOWED_ROOT"),
        (
            "AGENT_BRIDGE_ALLOWED_ROOT",
            "${user_config.allowed_root}",
            "CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_ALLOWED_ROOT",
        ),
        ("AGENT_BRIDGE_ALLOWED_ROOT", "relative", "CONFIG_INVALID_VALUE AGENT_BRIDGE_ALLOWED_ROOT"),
        ("AGENT_BRIDGE_STATE_DIR", "relative", "CONFIG_INVALID_VALUE AGENT_BRIDGE_STATE_DIR"),
        ("AGENT_BRIDGE_ENABLE_CODEX", "yes", "CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_ENABLE_CODEX"),
        ("AGENT_BRIDGE_ENABLE_CODEX", "TRUE", "CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_ENABLE_CODEX"),
        ("AGENT_BRIDGE_DEFAULT_SANDBOX", "", "CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_DEFAULT_SANDBOX"),
        ("AGENT_BRIDGE_SANDBOX_CEILING", "", "CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_SANDBOX_CEILING"),
        ("AGENT_BRIDGE_SANDBOX_CEILING", "write", "CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_SANDBOX_CEILING"),
        (
            "AGENT_BRIDGE_REMOTE_DATA_CLASS",
            "secret",
            "CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_REMOTE_DATA_CLASS",
        ),
        (
            "AGENT_BRIDGE_MANUS_ACCOUNT_CAPABILITY_PROFILE",
            "a b",
            "CONFIG_INVALID_VALUE AGENT_BRIDGE_MANUS_ACCOUNT_CAPABILITY_PROFILE",
        ),
        (
            "AGENT_BRIDGE_MANUS_ACKNOWLEDGE_ACCOUNT_DEFAULT_CAPABILITIES",
            "true",
            "CONFIG_MISSING_KEY agents.manus.accountCapabilityProfile",
        ),
    ] {
        let mut world = bundle();
        world.set(name, value);
        assert_eq!(problems(&world), [expected], "{name}={value:?}");
    }
    let mut world = bundle();
    world.set("AGENT_BRIDGE_ALLOWED_ROOT", world.at("gone"));
    assert_eq!(problems(&world), ["CONFIG_ROOT_MISSING AGENT_BRIDGE_ALLOWED_ROOT"]);
}

#[test]
fn egress_needs_manus_and_a_class() {
    let mut world = bundle();
    world.set("AGENT_BRIDGE_REMOTE_EGRESS", "true");
    let found = problems(&world);
    assert!(found.contains(&"CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_REMOTE_EGRESS".to_owned()), "{found:?}");
    assert!(
        found.contains(&"CONFIG_BUNDLE_ENV_INVALID AGENT_BRIDGE_REMOTE_DATA_CLASS".to_owned()),
        "{found:?}"
    );
}

#[test]
fn a_default_over_the_ceiling_is_lowered() {
    let mut world = bundle();
    world.set("AGENT_BRIDGE_DEFAULT_SANDBOX", "full-access");
    let config = load(&world.context, None).unwrap();
    assert_eq!(config.defaults.sandbox, Sandbox::ReadOnly);
    assert_eq!(config.warnings.len(), 1);
}
