//! A checker for the subset of JSON Schema that the published schemas use. A keyword that it does not
//! know fails the test: it would be unchecked.

use serde_json::Value;

/// What is wrong with `value` by `schema`; empty if nothing.
pub fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "$", &mut found);
    found
}

fn check(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let Some(schema) = schema.as_object() else {
        found.push(format!("{at}: the schema is {schema}"));
        return;
    };
    for (keyword, rule) in schema {
        match keyword.as_str() {
            "type" => check_type(rule.as_str().unwrap_or_default(), value, at, found),
            "enum" => {
                if !rule.as_array().is_some_and(|all| all.contains(value)) {
                    found.push(format!("{at}: {value} is none of {rule}"));
                }
            }
            "required" => {
                for name in rule.as_array().into_iter().flatten().filter_map(Value::as_str) {
                    if value.is_object() && value.get(name).is_none() {
                        found.push(format!("{at}: {name} is missing"));
                    }
                }
            }
            "properties" => {
                for (name, inner) in rule.as_object().into_iter().flatten() {
                    if let Some(value) = value.get(name) {
                        check(inner, value, &format!("{at}.{name}"), found);
                    }
                }
            }
            "additionalProperties" => check_others(schema, rule, value, at, found),
            "items" => {
                for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                    check(rule, value, &format!("{at}[{index}]"), found);
                }
            }
            "minimum" => {
                if value.as_f64().zip(rule.as_f64()).is_some_and(|(value, least)| value < least) {
                    found.push(format!("{at}: {value} is below {rule}"));
                }
            }
            "maximum" => {
                if value.as_f64().zip(rule.as_f64()).is_some_and(|(value, most)| value > most) {
                    found.push(format!("{at}: {value} is above {rule}"));
                }
            }
            "description" | "title" | "minLength" | "maxLength" => {}
            other => found.push(format!("{at}: the checker does not know {other}")),
        }
    }
}

fn check_others(
    schema: &serde_json::Map<String, Value>,
    rule: &Value,
    value: &Value,
    at: &str,
    found: &mut Vec<String>,
) {
    let named = |name: &str| schema.get("properties").is_some_and(|all| all.get(name).is_some());
    for (name, inner) in value.as_object().into_iter().flatten().filter(|(name, _)| !named(name)) {
        match rule {
            Value::Bool(true) => {}
            Value::Bool(false) => found.push(format!("{at}: {name} is not allowed")),
            rule => check(rule, inner, &format!("{at}.{name}"), found),
        }
    }
}

fn check_type(kind: &str, value: &Value, at: &str, found: &mut Vec<String>) {
    let fits = match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => false,
    };
    if !fits {
        found.push(format!("{at}: {value} is no {kind}"));
    }
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": { "a": { "type": "string", "enum": ["x"] }, "b": { "type": "array", "items": { "type": "integer", "minimum": 1 } } },
    });
    for (value, faulty) in [
        (serde_json::json!({ "a": "x", "b": [1, 2] }), false),
        (serde_json::json!({ "b": [] }), true),
        (serde_json::json!({ "a": "y" }), true),
        (serde_json::json!({ "a": "x", "b": [0] }), true),
        (serde_json::json!({ "a": "x", "b": [1.5] }), true),
        (serde_json::json!({ "a": "x", "c": 1 }), true),
        (serde_json::json!([]), true),
    ] {
        assert_eq!(!faults(&schema, &value).is_empty(), faulty, "{value}");
    }
    assert!(!faults(&serde_json::json!({ "anyOf": [] }), &Value::Null).is_empty());
}
