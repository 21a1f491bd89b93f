//! What a file may say, and what becomes of it.

use super::*;
use crate::config::Toolset;
use crate::policy::{AgentId, Sandbox};
use proptest::prelude::*;
use std::time::Duration;

#[test]
fn the_smallest_config_has_the_documented_defaults() {
    let world = World::new();
    let config = world.load(json!({})).unwrap();
    assert_eq!(config.allowed_roots, [world.at("work")]);
    assert_eq!(config.state_dir, world.at("home/.agent-bridge"));
    assert_eq!(config.sandbox_ceiling, Sandbox::WorkspaceWrite);
    assert_eq!(config.defaults.sandbox, Sandbox::ReadOnly);
    assert_eq!(config.defaults.timeout, Duration::from_secs(600));
    assert_eq!(config.defaults.start_timeout, Some(Duration::from_secs(120)));
    assert_eq!(config.defaults.idle_timeout, None);
    assert_eq!(config.defaults.wait, Duration::from_secs(45));
    assert_eq!(config.session_lock_wait, Duration::from_secs(30));
    assert_eq!((config.handoff_max_chars, config.max_delegation_depth), (24_000, 1));
    assert_eq!((config.max_concurrent_turns, config.max_output_bytes), (8, 268_435_456));
    assert_eq!(config.toolsets.len(), 7);
    assert!(!config.remote_egress.enabled && config.cumulative_remote_cost.is_none());
    assert_eq!(config.sha256.as_deref().map(str::len), Some(64));
    assert!(config.warnings.is_empty());
    let on: Vec<_> = config.agents.iter().filter(|(_, agent)| agent.enabled).map(|(id, _)| *id).collect();
    assert_eq!(on, [AgentId::Codex, AgentId::Claude]);
    assert_eq!(config.agents.len(), AgentId::ALL.len());
    assert!(!world.at("home/.agent-bridge").exists(), "loading creates nothing");
}

#[test]
fn mentioning_an_agent_does_not_switch_it_on_or_off() {
    let world = World::new();
    let config = world
        .load(json!({"agents": {"gemini": {"defaultModel": "m"}, "codex": {"defaultModel": "n"},
                               "mock": {"enabled": true}, "claude": {"enabled": false}}}))
        .unwrap();
    let state = |id| (config.agents[&id].enabled, config.agents[&id].enabled_explicitly);
    assert_eq!(state(AgentId::Gemini), (false, false));
    assert_eq!(state(AgentId::Codex), (true, false));
    assert_eq!(state(AgentId::Mock), (true, true));
    assert_eq!(state(AgentId::Claude), (false, true));
    assert_eq!(config.agents[&AgentId::Codex].bin, "codex", "merged over the defaults");
    assert!(config.warnings.iter().any(|warning| warning.starts_with("agents.gemini ")));
}

#[test]
fn defaults_are_lowered_to_the_ceiling_with_a_warning() {
    let world = World::new();
    let config = world
        .load(json!({"policy": {"sandboxCeiling": "read-only"}, "defaults": {"sandbox": "full-access"},
                     "agents": {"codex": {"sandboxCeiling": "workspace-write"}}}))
        .unwrap();
    assert_eq!(config.defaults.sandbox, Sandbox::ReadOnly);
    assert_eq!(config.agents[&AgentId::Codex].sandbox_ceiling, Some(Sandbox::ReadOnly));
    assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
}

#[test]
fn hostile_and_mistaken_contents_are_refused_with_code_and_key() {
    let world = World::new();
    world.write("work/file", "");
    let file = world.text("work/file");
    for (changes, expected) in [
        (json!({"allowedRoot": []}), "CONFIG_UNKNOWN_KEY allowedRoot"),
        (json!({"allowedRoots": []}), "CONFIG_INVALID_VALUE allowedRoots"),
        (json!({"allowedRoots": [""]}), "CONFIG_INVALID_VALUE allowedRoots[0]"),
        (json!({"allowedRoots": ["a\u{0}b"]}), "CONFIG_INVALID_VALUE allowedRoots[0]"),
        (json!({"allowedRoots": [file]}), "CONFIG_ROOT_MISSING allowedRoots[0]"),
        (json!({"allowedRoots": [world.text("gone")]}), "CONFIG_ROOT_MISSING allowedRoots[0]"),
        (json!({"allowedRoots": [world.text("work"), 7]}), "CONFIG_INVALID_VALUE allowedRoots[1]"),
        (json!({"agents": {"opencode": {}}}), "CONFIG_UNKNOWN_KEY agents.opencode"),
        (json!({"agents": {"Codex": {}}}), "CONFIG_UNKNOWN_KEY agents.Codex"),
        (json!({"agents": {"codex": null}}), "CONFIG_INVALID_VALUE agents.codex"),
        (json!({"agents": {"codex": {"bin": ""}}}), "CONFIG_INVALID_VALUE agents.codex.bin"),
        (json!({"agents": {"codex": {"bin": "-x"}}}), "CONFIG_INVALID_VALUE agents.codex.bin"),
        (json!({"agents": {"codex": {"bin": "a\nb"}}}), "CONFIG_INVALID_VALUE agents.codex.bin"),
        (
            json!({"agents": {"codex": {"defaultModel": "--yolo"}}}),
            "CONFIG_INVALID_VALUE agents.codex.defaultModel",
        ),
        (
            json!({"agents": {"codex": {"defaultModel": "a b"}}}),
            "CONFIG_INVALID_VALUE agents.codex.defaultModel",
        ),
        (
            json!({"agents": {"codex": {"extraArgs": ["a\u{0}"]}}}),
            "CONFIG_INVALID_VALUE agents.codex.extraArgs[0]",
        ),
        (
            json!({"agents": {"codex": {"extraEnv": {"PATH": "/x"}}}}),
            "CONFIG_INVALID_VALUE agents.codex.extraEnv.PATH",
        ),
        (
            json!({"agents": {"codex": {"extraEnv": {"ld_preload": "x"}}}}),
            "CONFIG_INVALID_VALUE agents.codex.extraEnv.ld_preload",
        ),
        (
            json!({"agents": {"codex": {"extraEnv": {"A=B": "x"}}}}),
            "CONFIG_INVALID_VALUE agents.codex.extraEnv[\"A=B\"]",
        ),
        (
            json!({"agents": {"codex": {"extraEnv": {"": "x"}}}}),
            "CONFIG_INVALID_VALUE agents.codex.extraEnv[\"\"]",
        ),
        (json!({"agents": {"codex": {"passEnv": ["A B"]}}}), "CONFIG_INVALID_VALUE agents.codex.passEnv[0]"),
        (
            json!({"agents": {"codex": {"passEnv": ["AGENT_BRIDGE_DEPTH"]}}}),
            "CONFIG_INVALID_VALUE agents.codex.passEnv[0]",
        ),
        (
            json!({"agents": {"codex": {"passEnv": ["OPENAI_API_KEY", "Ld_Preload"]}}}),
            "CONFIG_INVALID_VALUE agents.codex.passEnv[1]",
        ),
        (
            json!({"agents": {"claude": {"passEnv": ["NODE_OPTIONS"]}}}),
            "CONFIG_INVALID_VALUE agents.claude.passEnv[0]",
        ),
        (
            json!({"agents": {"claude": {"passEnv": ["CLAUDECODE"]}}}),
            "CONFIG_INVALID_VALUE agents.claude.passEnv[0]",
        ),
        (json!({"agents": {"codex": {"passEnv": ["PATH"]}}}), "CONFIG_INVALID_VALUE agents.codex.passEnv[0]"),
        (json!({"agents": {"codex": {"script": "x"}}}), "CONFIG_INVALID_VALUE agents.codex.script"),
        (
            json!({"agents": {"codex": {"startSpacingMs": -1}}}),
            "CONFIG_INVALID_VALUE agents.codex.startSpacingMs",
        ),
        (
            json!({"agents": {"codex": {"allowDevelopmentBaseUrl": true}}}),
            "CONFIG_INVALID_VALUE agents.codex.allowDevelopmentBaseUrl",
        ),
        (
            json!({"agents": {"gemini": {"acknowledgeAccountDefaultCapabilities": false}}}),
            "CONFIG_INVALID_VALUE agents.gemini.acknowledgeAccountDefaultCapabilities",
        ),
        (
            json!({"agents": {"manus": {"acknowledgeAccountDefaultCapabilities": true}}}),
            "CONFIG_MISSING_KEY agents.manus.accountCapabilityProfile",
        ),
        (
            json!({"agents": {"manus": {"accountCapabilityProfile": ".x"}}}),
            "CONFIG_INVALID_VALUE agents.manus.accountCapabilityProfile",
        ),
        (
            json!({"agents": {"manus": {"baseUrl": "http://127.0.0.1:1"}}}),
            "CONFIG_INVALID_VALUE agents.manus.baseUrl",
        ),
        (json!({"defaults": {"timeoutSec": 0}}), "CONFIG_INVALID_VALUE defaults.timeoutSec"),
        (json!({"defaults": {"timeoutSec": "600"}}), "CONFIG_INVALID_VALUE defaults.timeoutSec"),
        (json!({"defaults": {"timeoutSec": 1e300}}), "CONFIG_INVALID_VALUE defaults.timeoutSec"),
        (json!({"defaults": {"sandbox": "danger-full-access"}}), "CONFIG_INVALID_VALUE defaults.sandbox"),
        (json!({"defaults": {"cwd": world.text("home")}}), "CONFIG_INVALID_VALUE defaults.cwd"),
        (json!({"defaults": {"cwd": world.text("work/none")}}), "CONFIG_ROOT_MISSING defaults.cwd"),
        (
            json!({"policy": {"remoteEgress": {"allowedRoots": [world.text("home")]}}}),
            "CONFIG_INVALID_VALUE policy.remoteEgress.allowedRoots[0]",
        ),
        (
            json!({"policy": {"remoteEgress": {"allowedAgents": ["manu"]}}}),
            "CONFIG_INVALID_VALUE policy.remoteEgress.allowedAgents[0]",
        ),
        (
            json!({"policy": {"cumulativeRemoteCost": {"currency": "USD", "maxReservedCents": 0}}}),
            "CONFIG_INVALID_VALUE policy.cumulativeRemoteCost.maxReservedCents",
        ),
        (json!({"toolsets": []}), "CONFIG_INVALID_VALUE toolsets"),
        (json!({"toolsets": ["manus", "everything"]}), "CONFIG_INVALID_VALUE toolsets[1]"),
        (json!({"stateDir": ""}), "CONFIG_INVALID_VALUE stateDir"),
    ] {
        assert_eq!(world.problems(changes.clone()), [expected], "{changes}");
    }
}

#[test]
fn enabled_egress_must_name_agents_roots_and_classes() {
    let world = World::new();
    assert_eq!(
        world.problems(json!({"policy": {"remoteEgress": {"enabled": true}}})),
        ["allowedAgents", "allowedRoots", "allowedDataClasses"]
            .map(|name| format!("CONFIG_INVALID_VALUE policy.remoteEgress.{name}"))
    );
    let config = world
        .load(json!({"policy": {"remoteEgress": {"enabled": true, "allowedAgents": ["manus", "manus"],
            "allowedRoots": [world.text("work"), world.text("work/.")],
            "allowedDataClasses": ["public", "public"]}}}))
        .unwrap();
    let egress = &config.remote_egress;
    assert_eq!(egress.allowed_agents, [AgentId::Manus]);
    assert_eq!(egress.allowed_roots, [world.at("work")]);
    assert_eq!(egress.allowed_data_classes.len(), 1);
}

#[test]
fn problems_of_form_and_of_meaning_are_told_together() {
    let world = World::new();
    let error = world
        .load(json!({
            "allowedRoots": [world.text("work"), world.text("gone")],
            "agents": {"codex": {"sandboxCeilling": "read-only", "extraEnv": {"NODE_OPTIONS": "s3cret"}}},
            "defaults": {"timeoutSec": 7201, "cwd": world.text("home")},
            "stateDir": world.text("work/state"),
        }))
        .unwrap_err();
    let text = error.to_string();
    for part in [
        "agents.codex.sandboxCeilling: unknown key; did you mean \"sandboxCeiling\"?",
        "defaults.timeoutSec: expected a whole number from 1 to 7200, found 7201",
        "allowedRoots[1]: ",
        "agents.codex.extraEnv.NODE_OPTIONS: ",
        "defaults.cwd: ",
        "stateDir: ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("s3cret"), "{text}");
    assert_eq!(code(error), "CONFIG_UNKNOWN_KEY");
}

#[test]
fn a_key_named_twice_is_refused() {
    let world = World::new();
    let root = json!(world.text("work"));
    let text = format!(
        "{{\"allowedRoots\": [{root}], \"policy\": {{\"sandboxCeiling\": \"read-only\", \"sandboxCeiling\": \"full-access\"}}}}"
    );
    let report = check_bytes(&world.context, &world.at("x.json"), text.as_bytes());
    assert_eq!(codes(&report), ["CONFIG_INVALID_JSON policy.sandboxCeiling"]);
}

#[test]
fn toolsets_are_ordered_and_unique() {
    let world = World::new();
    let config = world.load(json!({"toolsets": ["relay", "sessions", "relay"]})).unwrap();
    assert_eq!(config.toolsets, [Toolset::Sessions, Toolset::Relay]);
}

#[test]
fn zero_switches_a_deadline_off() {
    let world = World::new();
    let config = world.load(json!({"defaults": {"startTimeoutSec": 0, "idleTimeoutSec": 5}})).unwrap();
    assert_eq!(config.defaults.start_timeout, None);
    assert_eq!(config.defaults.idle_timeout, Some(Duration::from_secs(5)));
}

#[test]
fn old_keys_and_notes_are_tolerated() {
    let world = World::new();
    let config = world
        .load(json!({"_notes": {"anything": [1, null]}, "$schema": "x", "sessionLockStaleMs": 7_500_000,
                     "agents": {"gemini": {"baseUrl": "https://x", "enabled": false}}}))
        .unwrap();
    assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
}

/// The numbers in the descriptions are what people rely on.
#[test]
fn descriptions_state_the_real_defaults() {
    let world = World::new();
    let (_, values) = {
        let path = world.write("x.json", world.document(json!({})).to_string());
        crate::config::explain(&world.context, Some(&path)).unwrap()
    };
    let schema = crate::config::json_schema();
    let mut compared = 0;
    for explained in values {
        let (group, name) = explained.key.rsplit_once('.').unwrap_or(("", &explained.key));
        let place = match group {
            "" => "",
            "defaults" => "/$defs/Defaults",
            "policy" => "/$defs/PolicySection",
            "agents.codex" => "/$defs/AgentSection",
            _ => continue,
        };
        let Some(text) = schema.pointer(&format!("{place}/properties/{name}/description")) else { continue };
        let Some((_, stated)) = text.as_str().unwrap().split_once("(default ") else { continue };
        let stated: String =
            stated.trim_start_matches('`').chars().take_while(|c| !")`;: ".contains(*c)).collect();
        let effective = explained.value.as_str().map_or_else(|| explained.value.to_string(), str::to_owned);
        if !stated.starts_with('~') {
            assert_eq!(stated, effective, "{}", explained.key);
            compared += 1;
        }
    }
    assert!(compared >= 12, "only {compared} compared");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let world = World::new();
        let report = check_bytes(&world.context, &world.at("x.json"), &bytes);
        prop_assert!(report.config.is_none() && !report.problems.is_empty());
    }

    #[test]
    fn damaged_configs_never_panic_and_never_lose_the_root(
        position in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>(),
    ) {
        let world = World::new();
        let text = world.document(json!({"stateDir": world.text("state"), "defaults": {"cwd": world.text("work")},
            "agents": {"codex": {"extraEnv": {"A": "b"}, "bin": "~/x"}}, "toolsets": ["relay"]})).to_string();
        let mut bytes = text.into_bytes();
        let place = position.index(bytes.len());
        bytes[place] = byte;
        let report = check_bytes(&world.context, &world.at("x.json"), &bytes);
        if let Some(config) = report.config {
            prop_assert!(!config.allowed_roots.is_empty());
        }
        bytes.truncate(cut.index(bytes.len()));
        prop_assert!(check_bytes(&world.context, &world.at("x.json"), &bytes).config.is_none());
    }
}
