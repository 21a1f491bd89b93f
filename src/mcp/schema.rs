//! JSON Schemas as every host accepts them: no references, no unions, no non-standard formats.
//!
//! Generated from the argument types, then reduced: some hosts drop a whole tool, or all tools, for
//! a `$ref`, an `anyOf` or a `format: uint64`.

use std::sync::Arc;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The schema of a tool's arguments.
pub fn input<T: JsonSchema>() -> Arc<JsonObject> {
    let mut schema = published::<T>(SchemaSettings::draft2020_12());
    schema.insert("additionalProperties".into(), Value::Bool(false));
    Arc::new(schema)
}

/// The same, open for arguments that it does not name; the tool checks those itself.
pub fn open_input<T: JsonSchema>() -> Arc<JsonObject> {
    Arc::new(published::<T>(SchemaSettings::draft2020_12()))
}

/// The schema of a tool's structured result, as it is written: what may be left out is not required, or
/// strict hosts refuse the result. Results may grow, so unknown properties are allowed.
///
/// A refused call has `error` and nothing else, and some hosts check that too. A union would say so
/// exactly, but others drop tools for one; so nothing is required at the top.
///
/// It carries no descriptions: hosts check results with it and show models none of it, but the list of
/// tools is part of every conversation.
pub fn output<T: JsonSchema>() -> Arc<JsonObject> {
    let mut schema = published::<T>(SchemaSettings::draft2020_12().for_serialize());
    schema.remove("required");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert("error".into(), refusal());
    }
    strip_descriptions(&mut schema);
    Arc::new(schema)
}

/// The schema of [`crate::error::Error::to_json`].
fn refusal() -> Value {
    json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" },
            "message": { "type": "string" },
            "hint": { "type": "string" },
            "retryable": { "type": "boolean" },
        },
        "required": ["code", "message", "hint", "retryable"],
    })
}

fn strip_descriptions(schema: &mut Map<String, Value>) {
    schema.remove("description");
    for (key, inner) in schema.iter_mut() {
        match (key.as_str(), inner) {
            // Its keys are names, and one of them may be `description`.
            ("properties", Value::Object(properties)) => {
                properties.values_mut().filter_map(Value::as_object_mut).for_each(strip_descriptions);
            }
            (_, Value::Object(inner)) => strip_descriptions(inner),
            _ => {}
        }
    }
}

fn published<T: JsonSchema>(mut settings: SchemaSettings) -> Map<String, Value> {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut value =
        serde_json::to_value(settings.into_generator().into_root_schema_for::<T>()).unwrap_or_default();
    reduce(&mut value);
    match value {
        Value::Object(mut map) => {
            map.insert("type".into(), "object".into());
            map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            map
        }
        _ => Map::new(),
    }
}

fn reduce(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(reduce),
        Value::Object(map) => {
            for key in ["$schema", "title", "default", "$defs"] {
                if !map.get(key).is_some_and(|inner| inner.is_object() && key != "default" && key != "$defs")
                {
                    map.remove(key);
                }
            }
            if map.get("format").is_some_and(Value::is_string) {
                map.remove("format");
            }
            strip_null(map);
            flatten_constants(map);
            map.values_mut().for_each(reduce);
        }
        _ => {}
    }
}

/// `T | null` becomes `T`: absent and null mean the same to us.
fn strip_null(map: &mut Map<String, Value>) {
    let null = Value::String("null".into());
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|kind| *kind != null);
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(options)) = map.get_mut("enum") {
        options.retain(|option| !option.is_null());
    }
    for union in ["anyOf", "oneOf"] {
        let Some(Value::Array(options)) = map.get_mut(union) else { continue };
        options.retain(|option| option.get("type") != Some(&null));
        if let [Value::Object(only)] = options.as_slice() {
            let only = only.clone();
            map.remove(union);
            for (key, inner) in only {
                map.entry(key).or_insert(inner);
            }
        }
    }
}

/// An enum whose variants carry docs comes out as `oneOf` of constants; hosts want a plain `enum`.
fn flatten_constants(map: &mut Map<String, Value>) {
    let Some(Value::Array(options)) = map.get("oneOf") else { return };
    let mut values = Vec::new();
    let mut notes = Vec::new();
    for option in options {
        let listed = option.get("enum").and_then(Value::as_array).cloned().unwrap_or_default();
        let constant = option.get("const").cloned();
        if constant.is_none() && listed.is_empty() {
            return;
        }
        if let (Some(Value::String(name)), Some(Value::String(note))) = (&constant, option.get("description"))
        {
            notes.push(format!("{name}: {note}"));
        }
        values.extend(constant);
        values.extend(listed);
    }
    map.remove("oneOf");
    map.insert("type".into(), "string".into());
    map.insert("enum".into(), Value::Array(values));
    let description = map.get("description").and_then(Value::as_str).unwrap_or_default();
    let joined = [description, &notes.join(" ")]
        .iter()
        .filter(|s| !s.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(" ");
    if !joined.is_empty() {
        map.insert("description".into(), joined.into());
    }
}
