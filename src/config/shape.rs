//! Checks a document against the generated schema and reports every deviation, not only the first.
//!
//! The accepted part of the document is kept, so that the checks of meaning can go on and a person
//! sees everything that is wrong at once.

use serde_json::{Map, Value};

use super::document::{Place, echo};
use super::error::{CONFIG_INVALID_VALUE, CONFIG_MISSING_KEY, CONFIG_UNKNOWN_KEY, Problems};
use super::schema_json::resolve;

/// The schema keywords that are enforced here.
#[cfg(test)]
pub(super) const KEYWORDS: &[&str] = &[
    "$ref",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
    "items",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "oneOf",
    "enum",
    "const",
];

/// The part of `document` that `schema` accepts; `None` if that is nothing.
pub(super) fn check(schema: &Value, document: &Value, problems: &mut Problems) -> Option<Value> {
    Checker { root: schema, problems }.value(schema, document, &Place::Top)
}

struct Checker<'a> {
    root: &'a Value,
    problems: &'a mut Problems,
}

impl Checker<'_> {
    fn value(&mut self, schema: &Value, value: &Value, place: &Place<'_>) -> Option<Value> {
        if self.problems.is_full() {
            return None;
        }
        let root = self.root;
        let rules = resolve(root, schema);
        if let Some(names) = names(rules) {
            return self.one_of(&names, value, place);
        }
        match rules.get("type").and_then(Value::as_str) {
            None => Some(value.clone()),
            Some("object") => match value {
                Value::Object(map) => self.object(rules, map, place),
                _ => self.wrong_type("an object", value, place),
            },
            Some("array") => match value {
                Value::Array(items) => self.array(rules, items, place),
                _ => self.wrong_type("a list", value, place),
            },
            Some("string") => match value {
                Value::String(text) => self.text(rules, text, place),
                _ => self.wrong_type("a text", value, place),
            },
            Some("integer") => self.integer(rules, value, place),
            Some("boolean") if value.is_boolean() => Some(value.clone()),
            Some("boolean") => self.wrong_type("true or false", value, place),
            Some(_) => self.wrong_type("another type", value, place),
        }
    }

    fn object(
        &mut self,
        rules: &Map<String, Value>,
        map: &Map<String, Value>,
        place: &Place<'_>,
    ) -> Option<Value> {
        let mut accepted = Map::new();
        let properties = rules.get("properties").and_then(Value::as_object);
        let additional = rules.get("additionalProperties").filter(|schema| schema.is_object());
        let allowed = rules.get("propertyNames").and_then(Value::as_object).and_then(names);
        for (key, value) in map {
            if self.problems.is_full() {
                break;
            }
            let here = Place::Key(place, key);
            let schema =
                properties
                    .and_then(|known| known.get(key))
                    .or(additional
                        .filter(|_| allowed.as_ref().is_none_or(|names| names.contains(&key.as_str()))));
            let Some(schema) = schema else {
                let known = match &allowed {
                    Some(names) => names.clone(),
                    None => properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect(),
                };
                self.problems.add(&CONFIG_UNKNOWN_KEY, here.to_string(), unknown(key, &known));
                continue;
            };
            if let Some(value) = self.value(schema, value, &here) {
                accepted.insert(key.clone(), value);
            }
        }
        let required = rules.get("required").and_then(Value::as_array).into_iter().flatten();
        let mut complete = true;
        for name in required.filter_map(Value::as_str) {
            if !map.contains_key(name) {
                let here = Place::Key(place, name);
                self.problems.add(&CONFIG_MISSING_KEY, here.to_string(), "this key must be present");
            }
            complete &= accepted.contains_key(name);
        }
        // The document itself is kept when it lacks a key, so that the rest of it can be judged.
        (complete || matches!(place, Place::Top)).then_some(Value::Object(accepted))
    }

    fn array(&mut self, rules: &Map<String, Value>, items: &[Value], place: &Place<'_>) -> Option<Value> {
        if !self.length("entries", ("minItems", "maxItems"), rules, items.len(), place) {
            return None;
        }
        let accepted = match rules.get("items") {
            None => items.to_vec(),
            Some(schema) => items
                .iter()
                .enumerate()
                .filter_map(|(index, item)| self.value(schema, item, &Place::Index(place, index)))
                .collect(),
        };
        Some(Value::Array(accepted))
    }

    fn text(&mut self, rules: &Map<String, Value>, text: &str, place: &Place<'_>) -> Option<Value> {
        let count = text.chars().count();
        self.length("characters", ("minLength", "maxLength"), rules, count, place).then(|| text.into())
    }

    fn length(
        &mut self,
        unit: &str,
        bounds: (&str, &str),
        rules: &Map<String, Value>,
        count: usize,
        place: &Place<'_>,
    ) -> bool {
        let bound = |name: &str| rules.get(name).and_then(Value::as_u64);
        let (least, most) = (bound(bounds.0), bound(bounds.1));
        let count = count as u64;
        if least.is_none_or(|least| least <= count) && most.is_none_or(|most| count <= most) {
            return true;
        }
        let expected = match (least, most) {
            (Some(least), Some(most)) => format!("from {least} to {most}"),
            (Some(least), None) => format!("at least {least}"),
            (_, most) => format!("at most {}", most.unwrap_or_default()),
        };
        let message = format!("expected {expected} {unit}, found {count}");
        self.problems.add(&CONFIG_INVALID_VALUE, place.to_string(), message);
        false
    }

    fn integer(&mut self, rules: &Map<String, Value>, value: &Value, place: &Place<'_>) -> Option<Value> {
        let bound = |name: &str| rules.get(name).and_then(Value::as_u64).unwrap_or(0);
        let (least, most) = (bound("minimum"), bound("maximum"));
        if value.as_u64().is_some_and(|number| (least..=most).contains(&number)) {
            return Some(value.clone());
        }
        let found = if value.is_number() { value.to_string() } else { kind(value).to_owned() };
        let message = format!("expected a whole number from {least} to {most}, found {found}");
        self.problems.add(&CONFIG_INVALID_VALUE, place.to_string(), message);
        None
    }

    fn one_of(&mut self, names: &[&str], value: &Value, place: &Place<'_>) -> Option<Value> {
        let text = value.as_str();
        if text.is_some_and(|text| names.contains(&text)) {
            return Some(value.clone());
        }
        let found = text.map_or_else(|| kind(value).to_owned(), echo);
        let listed = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let mut message = match names {
            [_] => format!("expected {listed}, found {found}"),
            _ => format!("expected one of {listed}, found {found}"),
        };
        if let Some(near) = text.and_then(|text| nearest(text, names.iter().copied())) {
            message.push_str(&format!("; did you mean \"{near}\"?"));
        }
        self.problems.add(&CONFIG_INVALID_VALUE, place.to_string(), message);
        None
    }

    /// The value itself is not shown: a misplaced one may be a secret.
    fn wrong_type(&mut self, expected: &str, value: &Value, place: &Place<'_>) -> Option<Value> {
        let message = format!("expected {expected}, found {}", kind(value));
        self.problems.add(&CONFIG_INVALID_VALUE, place.to_string(), message);
        None
    }
}

/// The names of an enumeration, in whichever of its spellings.
fn names(rules: &Map<String, Value>) -> Option<Vec<&str>> {
    if let Some(Value::Array(list)) = rules.get("enum") {
        return Some(list.iter().filter_map(Value::as_str).collect());
    }
    if let Some(name) = rules.get("const").and_then(Value::as_str) {
        return Some(vec![name]);
    }
    let Some(Value::Array(choices)) = rules.get("oneOf") else { return None };
    Some(choices.iter().filter_map(Value::as_object).filter_map(names).flatten().collect())
}

fn unknown(key: &str, known: &[&str]) -> String {
    match nearest(key, known.iter().copied()) {
        Some(near) => format!("unknown key; did you mean \"{near}\"?"),
        None => format!("unknown key; known here: {}", known.join(", ")),
    }
}

/// The known name a person most likely meant, if any is near.
pub(super) fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if text.len() > 64 {
        return None;
    }
    let plain = |name: &str| name.replace(['_', '-', ' '], "").to_lowercase();
    let wanted = plain(text);
    known
        .map(|name| (strsim::damerau_levenshtein(&wanted, &plain(name)), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// What a value is, without showing it.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null (leave the key out instead)",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::config::schema::ConfigFile;
    use crate::config::schema_json::schema;
    use proptest::prelude::*;
    use serde_json::json;

    fn problems(document: Value) -> Vec<String> {
        let mut problems = Problems::default();
        check(&schema(), &document, &mut problems);
        problems.list.iter().map(|problem| format!("{} {problem}", problem.doc.code)).collect()
    }

    #[test]
    fn a_misspelt_key_is_named_with_its_path_and_the_nearest_key() {
        assert_eq!(
            problems(json!({"allowedRoots": ["/x"], "agents": {"codex": {"sandboxCeilling": "read-only"}}})),
            [
                "CONFIG_UNKNOWN_KEY agents.codex.sandboxCeilling: unknown key; did you mean \"sandboxCeiling\"?"
            ]
        );
    }

    #[test]
    fn all_deviations_are_reported_at_once_in_the_order_of_the_file() {
        let found = problems(json!({
            "agents": {"codx": {}, "claude": {"enabled": "yes", "extraEnv": {"API_KEY": 12345}}},
            "defaults": {"timeoutSec": 9000, "sandbox": "readonly", "waitSeconds": 1.5, "cwd": null},
            "policy": {"remoteEgress": {"allowedDataClasses": ["public", "secret"]},
                       "cumulativeRemoteCost": {"currency": "EUR"}},
            "toolsets": "all",
        }));
        let expected = [
            "CONFIG_UNKNOWN_KEY agents.codx: unknown key; did you mean \"codex\"?",
            "CONFIG_INVALID_VALUE agents.claude.enabled: expected true or false, found a text",
            "CONFIG_INVALID_VALUE agents.claude.extraEnv.API_KEY: expected a text, found a number",
            "CONFIG_INVALID_VALUE defaults.timeoutSec: expected a whole number from 1 to 7200, found 9000",
            "CONFIG_INVALID_VALUE defaults.sandbox: expected one of \"read-only\", \"workspace-write\", \
             \"full-access\", found \"readonly\"; did you mean \"read-only\"?",
            "CONFIG_INVALID_VALUE defaults.waitSeconds: expected a whole number from 0 to 7200, found 1.5",
            "CONFIG_INVALID_VALUE defaults.cwd: expected a text, found null (leave the key out instead)",
            "CONFIG_INVALID_VALUE policy.remoteEgress.allowedDataClasses[1]: expected one of \"public\", \
             \"internal\", \"confidential\", \"restricted\", found \"secret\"",
            "CONFIG_INVALID_VALUE policy.cumulativeRemoteCost.currency: expected \"USD\", found \"EUR\"",
            "CONFIG_MISSING_KEY policy.cumulativeRemoteCost.maxReservedCents: this key must be present",
            "CONFIG_INVALID_VALUE toolsets: expected a list, found a text",
            "CONFIG_MISSING_KEY allowedRoots: this key must be present",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn nearest_ignores_case_and_separators_and_stays_silent_when_nothing_is_near() {
        let known = ["allowedRoots", "agents", "stateDir"];
        assert_eq!(nearest("allowed_roots", known.into_iter()), Some("allowedRoots"));
        assert_eq!(nearest("ALLOWEDROOT", known.into_iter()), Some("allowedRoots"));
        assert_eq!(nearest("statedri", known.into_iter()), Some("stateDir"));
        assert_eq!(nearest("budget", known.into_iter()), None);
        assert_eq!(nearest(&"agents".repeat(1000), known.into_iter()), None);
    }

    #[test]
    fn problems_are_bounded() {
        let many: Map<String, Value> = (0..5000).map(|n| (format!("key{n}"), Value::Null)).collect();
        assert!(problems(Value::Object(many)).len() <= 200);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let key = prop_oneof![
            prop::sample::select(vec![
                "agents",
                "codex",
                "claude",
                "manus",
                "mock",
                "defaults",
                "policy",
                "remoteEgress",
                "enabled",
                "allowedRoots",
                "extraEnv",
                "extraArgs",
                "sandbox",
                "sandboxCeiling",
                "timeoutSec",
                "toolsets",
                "stateDir",
                "cwd",
                "_notes",
                "allowedAgents",
            ])
            .prop_map(str::to_owned),
            ".{0,6}",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            prop::sample::select(vec!["read-only", "/", "~", "~/x", "USD", "relay"]).prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 8, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((key.clone(), inner), 0..8)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// What is accepted fits the types, whatever came in; nothing is accepted that serde refuses.
        #[test]
        fn the_accepted_part_always_fits_the_types(document in any_json()) {
            let mut problems = Problems::default();
            if let Some(mut accepted) = check(&schema(), &document, &mut problems) {
                if problems.is_empty() {
                    prop_assert_eq!(&accepted, &document);
                } else if accepted.get("allowedRoots").is_none() {
                    accepted["allowedRoots"] = json!([]);
                }
                let parsed = serde_json::from_value::<ConfigFile>(accepted.clone());
                prop_assert!(parsed.is_ok(), "{accepted}: {parsed:?}");
            } else {
                prop_assert!(!problems.is_empty());
            }
        }
    }
}
