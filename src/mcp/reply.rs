//! Tool results that every host shows whole: the answer first, small, the same facts as structured
//! content and as text, and never a frame that makes a client drop the connection.

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Error;

/// Bytes of answer text in one ordinary reply, counted after JSON escaping.
pub const PREVIEW_BYTES: usize = 6_000;
/// Most bytes of one text page, counted after JSON escaping; it travels twice in one frame.
pub const PAGE_BYTES: usize = 380 << 10;
/// No frame is larger than this.
pub const FRAME_BYTES: usize = 1 << 20;

/// A reply whose text says the same as its structured content.
pub fn reply(text: String, structured: &impl Serialize, is_error: bool) -> CallToolResult {
    assembled(text, serde_json::to_value(structured).unwrap_or_else(|_| json!({})), is_error)
}

fn assembled(text: String, structured: Value, is_error: bool) -> CallToolResult {
    let mut result = if is_error { CallToolResult::error(vec![]) } else { CallToolResult::success(vec![]) };
    result.content = vec![ContentBlock::text(text)];
    result.structured_content = Some(structured);
    within_frame(result)
}

/// A reply whose text is its structured content, as compact JSON.
pub fn json_reply(structured: &impl Serialize) -> CallToolResult {
    let value = serde_json::to_value(structured).unwrap_or_else(|_| json!({}));
    assembled(value.to_string(), value, false)
}

/// An error the model can act on.
pub fn error_reply(error: &Error) -> CallToolResult {
    let text = format!("agent-bridge error: {error}\nNext step: {}", error.hint());
    reply(text, &json!({ "error": error.to_json() }), true)
}

/// Length of a text inside a JSON string.
pub fn escaped_len(text: &str) -> usize {
    let extra = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(extra).sum::<usize>()
}

/// Length of a value as compact JSON, counted without writing it.
fn json_len(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 24,
        Value::String(text) => escaped_len(text) + 2,
        Value::Array(items) => items.iter().map(|item| json_len(item) + 1).sum::<usize>() + 2,
        Value::Object(map) => {
            map.iter().map(|(key, inner)| escaped_len(key) + 4 + json_len(inner)).sum::<usize>() + 2
        }
    }
}

/// A last resort: tools bound their own replies, so this says which bound was forgotten.
fn within_frame(result: CallToolResult) -> CallToolResult {
    let text: usize =
        result.content.iter().filter_map(ContentBlock::as_text).map(|text| escaped_len(&text.text)).sum();
    let size = text + result.structured_content.as_ref().map_or(0, json_len);
    if size <= FRAME_BYTES - 4096 {
        return result;
    }
    let error = Error::new(
        &crate::error::INTERNAL_ERROR,
        format!("the reply would have {size} bytes; ask for fewer items or a smaller `max_chars`"),
    );
    let structured: Value = json!({ "error": error.to_json() });
    let mut small = CallToolResult::error(vec![ContentBlock::text(error.to_string())]);
    small.structured_content = Some(structured);
    small
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counted_lengths_are_the_written_ones(text in any::<String>(), more in "[\\x00-\\x1f\"\\\\a-z]{0,40}") {
            let text = text + &more;
            prop_assert_eq!(escaped_len(&text) + 2, serde_json::to_string(&text).unwrap().len());
            let value = json!({ "a": [text, null, true, -1.5e300], "b": { "c": 12 } });
            prop_assert!(json_len(&value) >= value.to_string().len());
        }
    }

    #[test]
    fn a_reply_over_the_frame_becomes_an_error_that_says_so() {
        let text = "x".repeat(FRAME_BYTES / 2);
        let result = reply(text.clone(), &json!({ "text": text }), false);
        assert_eq!(result.is_error, Some(true));
        assert!(serde_json::to_vec(&result).unwrap().len() < 4096);
    }
}
