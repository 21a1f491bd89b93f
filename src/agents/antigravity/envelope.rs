//! The result of a run, as it stands in the last event or alone.

use serde_json::Value;

use crate::agents::{Tokens, redaction};

/// Longest text of an error that is looked at, in characters.
const ERROR_CHARS: usize = 4096;
/// Most denied actions that are kept.
const DENIED: usize = 64;

/// Its members; each may be missing or be anything.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    pub conversation_id: Value,
    pub status: Value,
    pub response: Value,
    pub num_turns: Value,
    pub usage: Value,
    pub structured_output: Value,
    /// Names of what was denied.
    pub denied: Vec<String>,
    error: Value,
}

impl Envelope {
    /// The object of a result event.
    pub fn of_result(mut result: Value) -> Self {
        let mut take = |name: &str| result.get_mut(name).map(Value::take).unwrap_or_default();
        let denied = take("denied_actions");
        let denied = denied.as_array().into_iter().flatten().take(DENIED).map(|denied| {
            let name = denied.get("action").or_else(|| denied.get("display_name")).unwrap_or(denied);
            redaction::one_line(name.as_str().unwrap_or("something"), 80)
        });
        Self {
            denied: denied.collect(),
            conversation_id: take("conversation_id"),
            status: take("status"),
            response: take("response"),
            num_turns: take("num_turns"),
            usage: take("usage"),
            structured_output: take("structured_output"),
            error: take("error"),
        }
    }

    /// An object that came alone, if it is one.
    pub fn alone(value: Value) -> Option<Self> {
        let is_one = value.get("status").is_some_and(Value::is_string)
            && ["response", "conversation_id"]
                .iter()
                .any(|name| value.get(name).is_some_and(Value::is_string));
        is_one.then(|| Self::of_result(value))
    }

    /// The words of the error, wherever they stand.
    pub fn error_text(&self) -> Option<String> {
        let text = match &self.error {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            other => match other.get("message").and_then(Value::as_str) {
                Some(message) => {
                    let status = other.get("status").and_then(Value::as_str).unwrap_or_default();
                    format!("{status} {message}").trim_start().to_owned()
                }
                None => other.to_string(),
            },
        };
        Some(redaction::clip(&text, ERROR_CHARS)).filter(|text| !text.trim().is_empty())
    }
}

/// What kind of value it is, for people.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Token counts. Whether thinking is part of the output is told by the total.
pub(super) fn tokens(usage: &Value) -> Option<Tokens> {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    let (input, output) = (count("input_tokens")?, count("output_tokens")?);
    let reasoning = count("thinking_tokens").unwrap_or(0);
    let cached_input = count("cache_read_tokens").unwrap_or(0);
    let apart = count("total_tokens") != input.checked_add(output) || reasoning > output;
    Some(Tokens {
        input: input.max(cached_input),
        cached_input,
        output: if apart { output.saturating_add(reasoning) } else { output },
        reasoning,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn thinking_is_counted_once() {
        let usage = |total: u64| json!({ "input_tokens": 100, "output_tokens": 50, "thinking_tokens": 20, "total_tokens": total });
        assert_eq!(tokens(&usage(170)).unwrap().output, 70);
        assert_eq!(tokens(&usage(150)).unwrap().output, 50);
        assert_eq!(tokens(&json!({ "input_tokens": 1 })), None);
    }

    #[test]
    fn an_object_alone_is_a_result_only_with_its_words() {
        assert!(Envelope::alone(json!({ "status": "SUCCESS", "response": "" })).is_some());
        assert!(Envelope::alone(json!({ "status": 1, "response": "" })).is_none());
        assert!(Envelope::alone(json!({ "status": "ok" })).is_none());
        assert!(Envelope::alone(json!(["status"])).is_none());
    }

    #[test]
    fn an_error_is_read_in_each_of_its_forms() {
        let of = |error: Value| Envelope::of_result(json!({ "error": error })).error_text();
        assert_eq!(of(json!("quota")).as_deref(), Some("quota"));
        assert_eq!(of(json!({ "status": "INTERNAL", "message": "x" })).as_deref(), Some("INTERNAL x"));
        assert_eq!(of(json!("")), None);
        assert_eq!(of(Value::Null), None);
    }
}
