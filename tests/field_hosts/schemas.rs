//! The tool list as the pickiest hosts read it.

use super::*;

/// How hosts name a tool of this server to the model.
const PREFIX: &str = "mcp__agent-bridge__";
/// Bytes of the whole list: it is part of every conversation of the host.
const MOST_BYTES: usize = 56_000;

fn list(world: &World) -> Value {
    let mut host = world.host();
    host.initialize();
    host.request("tools/list", json!({}))
}

/// What some host refuses in a schema, with the place where it is.
fn faults(schema: &Value, at: &str, found: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            for word in [
                "$ref",
                "$defs",
                "definitions",
                "$schema",
                "anyOf",
                "oneOf",
                "allOf",
                "not",
                "if",
                "const",
                "patternProperties",
                "default",
            ] {
                // A property may have such a name; a keyword may not.
                if map.contains_key(word) && !at.ends_with("/properties") {
                    found.push(format!("{at}: {word}"));
                }
            }
            let is_schema = !at.ends_with("/properties");
            if is_schema && !map.get("type").is_some_and(Value::is_string) {
                found.push(format!("{at}: no single type"));
            }
            if is_schema && map.get("format").is_some() {
                found.push(format!("{at}: format {}", map["format"]));
            }
            if is_schema
                && map.get("type") == Some(&json!("array"))
                && !map.get("items").is_some_and(Value::is_object)
            {
                found.push(format!("{at}: an array of nothing in particular"));
            }
            if let Some(options) = map.get("enum").filter(|_| is_schema) {
                let strings =
                    options.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(Value::is_string));
                if !strings {
                    found.push(format!("{at}: enum {options}"));
                }
            }
            for (key, inner) in map {
                let here = format!("{at}/{key}");
                match key.as_str() {
                    "properties" => {
                        for (name, property) in inner.as_object().into_iter().flatten() {
                            if !property.is_object() || property == &json!({}) {
                                found.push(format!("{here}/{name}: {property}"));
                            }
                            faults(property, &format!("{here}/{name}"), found);
                        }
                    }
                    "items" => faults(inner, &here, found),
                    "additionalProperties" if inner.is_object() => faults(inner, &here, found),
                    _ => {}
                }
            }
        }
        other => found.push(format!("{at}: the schema is {other}")),
    }
}

#[test]
fn every_schema_stays_within_the_subset_that_all_hosts_take() {
    let tools = list(&World::new().build())["tools"].clone();
    let mut found = Vec::new();
    for tool in tools.as_array().unwrap() {
        for schema in ["inputSchema", "outputSchema"] {
            faults(&tool[schema], &format!("{} {schema}", tool["name"].as_str().unwrap()), &mut found);
        }
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert_eq!(tool["outputSchema"]["type"], "object");
        assert!(tool["inputSchema"]["properties"].is_object());
        // These take names that they do not publish, and refuse any other by name themselves.
        let open = ["relay_execute", "relay_continue", "antigravity_execute", "antigravity_continue"];
        let closed = tool["inputSchema"]["additionalProperties"] == false;
        assert_eq!(closed, !open.contains(&tool["name"].as_str().unwrap()), "{}", tool["name"]);
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_tool_says_what_it_is_and_does() {
    let tools = list(&World::new().build())["tools"].clone();
    for tool in tools.as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        assert!(PREFIX.len() + name.len() <= 64, "{name} is too long behind {PREFIX}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        for text in ["title", "description"] {
            assert!(tool[text].as_str().is_some_and(|text| !text.trim().is_empty()), "{name} has no {text}");
        }
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
            assert!(tool["annotations"][hint].is_boolean(), "{name} has no {hint}");
        }
        for (argument, schema) in tool["inputSchema"]["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name}: `{argument}` is not described");
        }
    }
    let starts: Vec<&Value> = tools
        .as_array()
        .unwrap()
        .iter()
        .filter(|tool| tool["annotations"]["openWorldHint"] == true)
        .collect();
    let names: Vec<&str> = starts.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let expected = [
        "delegate_task",
        "continue_session",
        "handoff",
        "relay_execute",
        "relay_continue",
        "antigravity_execute",
        "antigravity_continue",
    ];
    assert_eq!(names, expected, "which tools reach out");
    assert!(starts.iter().all(|tool| tool["annotations"]["readOnlyHint"] == false));
}

#[test]
#[allow(clippy::print_stdout, reason = "the size is worth a look when it grows")]
fn the_list_is_one_small_page_in_the_same_order_each_time() {
    let world = World::new().build();
    let (first, second) = (list(&world), list(&world));
    assert_eq!(first["nextCursor"], Value::Null);
    assert_eq!(first.to_string(), second.to_string());
    let bytes = first.to_string().len();
    let sum = |key: &str| {
        first["tools"].as_array().unwrap().iter().map(|tool| tool[key].to_string().len()).sum::<usize>()
    };
    println!(
        "tools/list: {bytes} bytes, input schemas {}, output schemas {}",
        sum("inputSchema"),
        sum("outputSchema")
    );
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
    let names: Vec<&str> =
        first["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    let unique: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len());
}

#[test]
fn a_cursor_that_the_server_never_gave_is_refused() {
    let world = World::new().build();
    let mut host = world.host();
    host.initialize();
    let error = host.try_request("tools/list", json!({ "cursor": "page-2" })).unwrap_err();
    assert_eq!(error.code, -32602);
}
