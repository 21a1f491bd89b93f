//! The JSON Schema of the config file, generated from the types and kept as a file: every start checks the
//! config with it, and generating it takes longer than all the rest of that.
//!
//! A test holds the file to the types; `AGENT_BRIDGE_UPDATE_CATALOGUE=1 cargo test kept` writes it anew.

use serde_json::{Map, Value};

/// The schema as text, for editors too.
static KEPT: &str = include_str!("../../templates/config.schema.json");

/// The schema (draft 2020-12) of a config file.
pub fn schema() -> Value {
    serde_json::from_str(KEPT).unwrap_or_default()
}

#[cfg(test)]
fn generated() -> Value {
    let generated = schemars::SchemaGenerator::default().into_root_schema_for::<super::schema::ConfigFile>();
    let mut schema = generated.to_value();
    tidy(&mut schema);
    schema["title"] = "agent-bridge config".into();
    schema
}

/// Optional keys are left out, never `null`; number formats of Rust mean nothing to an editor; line
/// breaks of the source are not line breaks of the text.
#[cfg(test)]
fn tidy(schema: &mut Value) {
    use serde_json::json;
    let Value::Object(map) = schema else { return };
    map.remove("format");
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(choices)) = map.get_mut("anyOf") {
        choices.retain(|choice| *choice != json!({"type": "null"}));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            map.remove("anyOf");
            for (key, value) in only {
                map.entry(key).or_insert(value);
            }
        }
    }
    for key in ["properties", "$defs"] {
        if let Some(Value::Object(inner)) = map.get_mut(key) {
            inner.values_mut().for_each(tidy);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            tidy(inner);
        }
    }
    if let Some(Value::Array(choices)) = map.get_mut("oneOf") {
        choices.iter_mut().for_each(tidy);
    }
}

/// Follows a `$ref` to a definition of the same schema.
pub(super) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Map<String, Value> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| reference.strip_prefix('#'))
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
        .as_object()
        .unwrap_or(&EMPTY)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_kept_schema_is_the_one_that_the_types_give() {
        let text = format!("{:#}\n", generated());
        if std::env::var_os("AGENT_BRIDGE_UPDATE_CATALOGUE").is_some() {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/config.schema.json");
            std::fs::write(path, &text).unwrap();
            return;
        }
        assert!(
            text == KEPT.replace("\r\n", "\n"),
            "templates/config.schema.json is out of date: run AGENT_BRIDGE_UPDATE_CATALOGUE=1 cargo test kept"
        );
    }

    /// Every schema node with its path.
    fn nodes(schema: &Value, path: String, found: &mut Vec<(String, Value)>) {
        found.push((path.clone(), schema.clone()));
        for key in ["properties", "$defs"] {
            for (name, inner) in schema.get(key).and_then(Value::as_object).into_iter().flatten() {
                nodes(inner, format!("{path}/{key}/{name}"), found);
            }
        }
        for key in ["items", "additionalProperties", "propertyNames"] {
            if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
                nodes(inner, format!("{path}/{key}"), found);
            }
        }
        for (index, inner) in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            nodes(inner, format!("{path}/oneOf/{index}"), found);
        }
    }

    fn all() -> Vec<(String, Value)> {
        let mut found = Vec::new();
        nodes(&schema(), String::new(), &mut found);
        found
    }

    #[test]
    fn every_key_has_a_description() {
        let keys: Vec<_> = all().into_iter().filter(|(path, _)| path.contains("properties/")).collect();
        assert!(keys.len() > 50, "only {} nodes found", keys.len());
        for (path, node) in all() {
            let parent = path.rsplit('/').nth(1);
            if matches!(parent, Some("properties" | "$defs")) {
                assert!(node["description"].as_str().is_some_and(|text| text.len() > 8), "{path}");
            }
        }
    }

    #[test]
    fn every_number_has_a_range() {
        for (path, node) in all() {
            if node["type"] == "integer" {
                assert!(node["minimum"].is_number() && node["maximum"].is_number(), "{path}");
            }
        }
    }

    #[test]
    fn every_object_refuses_unknown_keys() {
        for (path, node) in all() {
            if node["type"] == "object" {
                assert!(
                    node["additionalProperties"] == json!(false) || node.get("properties").is_none(),
                    "{path}"
                );
            }
        }
    }

    /// The checker in `shape` understands exactly these; a new keyword must be added there first.
    #[test]
    fn no_keyword_is_used_that_the_checker_does_not_know() {
        let annotations = ["$schema", "title", "description", "default", "$defs"];
        for (path, node) in all() {
            for keyword in node.as_object().unwrap().keys() {
                assert!(
                    annotations.contains(&keyword.as_str())
                        || super::super::shape::KEYWORDS.contains(&keyword.as_str()),
                    "{keyword} at {path}"
                );
            }
        }
    }

    #[test]
    fn references_resolve() {
        let root = schema();
        for (path, node) in all() {
            if node.get("$ref").is_some() {
                assert!(resolve(&root, &node).get("$ref").is_none(), "{path}");
            }
        }
    }
}
