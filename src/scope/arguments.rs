//! Whether the arguments of a call fit its tool: no names of other places, and nothing outside the schema.

use serde_json::{Map, Value};

/// Names with which a call would pick another run, place or person, without `_`, `-` and case.
const RESERVED: &[&str] = &[
    "account",
    "accountid",
    "agentid",
    "channel",
    "channelid",
    "cwd",
    "directory",
    "organization",
    "organizationid",
    "parentrunid",
    "project",
    "projectid",
    "root",
    "run",
    "runid",
    "session",
    "sessionid",
    "tenant",
    "tenantid",
    "turn",
    "turnid",
    "user",
    "userid",
    "workdir",
    "workingdirectory",
    "workspace",
    "workspaceid",
];

/// Longest part of a foreign name that is shown back.
const SHOWN: usize = 60;

/// Why arguments are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// They name a place of their own.
    Foreign(String),
    /// They don't fit the schema.
    Schema(String),
}

/// Looks at the arguments of a call.
pub(super) fn check(schema: &Value, arguments: &Map<String, Value>) -> Result<(), Misfit> {
    for name in arguments.keys() {
        let plain: String = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
        let declared = schema.pointer("/properties").is_some_and(|known| known.get(name).is_some());
        if !declared && RESERVED.contains(&plain.to_ascii_lowercase().as_str()) {
            return Err(Misfit::Foreign(format!(
                "{} cannot be chosen: this tool works for this run only; leave it out",
                quoted(name)
            )));
        }
    }
    object(schema, arguments, "").map_err(Misfit::Schema)
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.chars().filter(|c| !c.is_control()).take(SHOWN).collect::<String>())
}

fn at(path: &str, name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

fn object(schema: &Value, object: &Map<String, Value>, path: &str) -> Result<(), String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    for name in
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    {
        if !object.contains_key(name) {
            return Err(format!("`{}` is missing", at(path, name)));
        }
    }
    for (name, value) in object {
        match properties.and_then(|known| known.get(name)) {
            Some(schema) => fits(schema, value, &at(path, name))?,
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                return Err(format!("`{}` is not known", at(path, name)));
            }
            None => {}
        }
    }
    Ok(())
}

/// The part of JSON Schema that the tools here are described with.
fn fits(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let is = |kind: &str| match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    if let Some(kind) = schema.get("type").and_then(Value::as_str)
        && !is(kind)
    {
        return Err(format!("`{path}` has to be of the type {kind}"));
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array)
        && !choices.contains(value)
    {
        let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
        return Err(format!("`{path}` has to be one of {}", choices.join(", ")));
    }
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    #[allow(clippy::cast_precision_loss, reason = "no length here is near 2^52")]
    let (size, least, most, unit) = match value {
        Value::String(text) => (Some(text.chars().count() as f64), "minLength", "maxLength", " characters"),
        Value::Array(items) => (Some(items.len() as f64), "minItems", "maxItems", " items"),
        Value::Number(number) => (number.as_f64(), "minimum", "maximum", ""),
        _ => (None, "", "", ""),
    };
    if let Some(size) = size {
        if let Some(most) = bound(most).filter(|most| size > *most) {
            return Err(format!("`{path}` is over {most}{unit}"));
        }
        if let Some(least) = bound(least).filter(|least| size < *least) {
            return Err(format!("`{path}` is under {least}{unit}"));
        }
    }
    match value {
        Value::Object(map) => object(schema, map, path),
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return Ok(()) };
            items.iter().enumerate().try_for_each(|(n, item)| fits(schema, item, &format!("{path}[{n}]")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn judge(arguments: &Value) -> String {
        let schema = json!({ "type": "object", "additionalProperties": false, "required": ["name"], "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": 4 },
            "kind": { "type": "string", "enum": ["a", "b"] },
            "count": { "type": "integer", "minimum": 0, "maximum": 9 },
            "list": { "type": "array", "maxItems": 2, "items": { "type": "object", "additionalProperties": false,
                "required": ["path"], "properties": { "path": { "type": "string" } } } },
            "session": { "type": "string" },
        } });
        match check(&schema, arguments.as_object().unwrap()) {
            Ok(()) => "fits".into(),
            Err(Misfit::Foreign(text)) => format!("foreign: {text}"),
            Err(Misfit::Schema(text)) => text,
        }
    }

    #[test]
    fn names_of_other_places_are_told_apart_from_plain_mistakes() {
        for name in
            ["workspace_id", "workspaceId", "WORKSPACE", "session-id", "userID", "cwd", "run_id", "root"]
        {
            assert!(judge(&json!({ "name": "x", name: "y" })).starts_with("foreign: `"), "{name}");
        }
        assert_eq!(judge(&json!({ "name": "x", "session": "declared" })), "fits");
        assert_eq!(judge(&json!({ "name": "x", "colour": 1 })), "`colour` is not known");
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_place() {
        assert_eq!(
            judge(&json!({ "name": "é€😀x", "kind": "a", "count": 9, "list": [{ "path": "" }] })),
            "fits"
        );
        for (arguments, expected) in [
            (json!({}), "`name` is missing"),
            (json!({ "name": 1 }), "`name` has to be of the type string"),
            (json!({ "name": "" }), "`name` is under 1 characters"),
            (json!({ "name": "12345" }), "`name` is over 4 characters"),
            (json!({ "name": "x", "kind": "c" }), "`kind` has to be one of \"a\", \"b\""),
            (json!({ "name": "x", "count": 10 }), "`count` is over 9"),
            (json!({ "name": "x", "count": 1.5 }), "`count` has to be of the type integer"),
            (json!({ "name": "x", "count": u64::MAX }), "`count` is over 9"),
            (
                json!({ "name": "x", "list": [{ "path": "" }, { "path": 1 }] }),
                "`list[1].path` has to be of the type string",
            ),
            (json!({ "name": "x", "list": [{ "path": "", "cwd": "/" }] }), "`list[0].cwd` is not known"),
            (json!({ "name": "x", "list": [1, 2, 3] }), "`list` is over 2 items"),
        ] {
            assert_eq!(judge(&arguments), expected);
        }
    }
}
