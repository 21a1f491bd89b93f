//! Where values come from.

use super::*;
use crate::config::{Explained, OriginOf, explain};

fn find<'a>(list: &'a [Explained], key: &str) -> &'a Explained {
    list.iter().find(|explained| explained.key == key).unwrap_or_else(|| panic!("{key} is not explained"))
}

#[test]
fn file_default_and_ceiling_are_told_apart() {
    let world = World::new();
    let path = world.write(
        "x.json",
        world
            .document(json!({"defaults": {"sandbox": "full-access", "timeoutSec": 9},
                "agents": {"codex": {"extraEnv": {"OPENAI_API_KEY": "s3cret"}, "enabled": true}}}))
            .to_string(),
    );
    let (_, list) = explain(&world.context, Some(&path)).unwrap();
    let timeout = find(&list, "defaults.timeoutSec");
    assert_eq!(
        (&timeout.value, &timeout.origin),
        (&json!(9), &OriginOf::File("/defaults/timeoutSec".into()))
    );
    let sandbox = find(&list, "defaults.sandbox");
    assert_eq!(sandbox.value, "workspace-write");
    assert_eq!(sandbox.clamped_by.as_deref(), Some("policy.sandboxCeiling (workspace-write)"));
    assert_eq!(find(&list, "handoffMaxChars").origin, OriginOf::Default);
    assert_eq!(find(&list, "agents.codex.enabled").note, None);
    assert_eq!(find(&list, "agents.claude.enabled").note, Some("when its program is found"));
    assert_eq!(find(&list, "agents.codex.extraEnv").value, json!({"OPENAI_API_KEY": "(hidden)"}));
}

#[test]
fn bundle_values_name_their_variable() {
    let mut world = World::new();
    world.set("AGENT_BRIDGE_BUNDLE_MODE", "1");
    world.set("AGENT_BRIDGE_ALLOWED_ROOT", world.at("work"));
    world.set("AGENT_BRIDGE_ENABLE_CODEX", "true");
    let (_, list) = explain(&world.context, None).unwrap();
    assert_eq!(find(&list, "allowedRoots").origin, OriginOf::Environment("AGENT_BRIDGE_ALLOWED_ROOT"));
    assert_eq!(
        find(&list, "agents.codex.enabled").origin,
        OriginOf::Environment("AGENT_BRIDGE_ENABLE_CODEX")
    );
    assert_eq!(find(&list, "policy.sandboxCeiling").origin, OriginOf::Default);
}

#[test]
fn every_explained_key_is_a_key_of_the_schema() {
    let world = World::new();
    let path = world.write("x.json", world.document(json!({})).to_string());
    let (_, list) = explain(&world.context, Some(&path)).unwrap();
    let schema = crate::config::json_schema();
    for explained in list {
        // Nest a value that no key accepts: a known key is refused for its value, not its name.
        let probe = explained.key.rsplit('.').fold(json!({"?": 0}), |inner, name| json!({ name: inner }));
        let mut problems = crate::config::error::Problems::default();
        crate::config::shape::check(&schema, &probe, &mut problems);
        let unknown = format!("CONFIG_UNKNOWN_KEY {}", explained.key);
        let found = problems.list.iter().map(|problem| format!("{} {}", problem.doc.code, problem.key));
        assert!(!found.into_iter().any(|problem| problem == unknown), "{unknown}");
    }
}
