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
    text.chars()
        .map(|c| match c {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            c if (c as u32) < 0x20 => 6,
            c => c.len_utf8(),
        })
        .sum()
}

/// A last resort: tools bound their own replies, so this says which bound was forgotten.
fn within_frame(result: CallToolResult) -> CallToolResult {
    let size = serde_json::to_vec(&result).map_or(usize::MAX, |bytes| bytes.len());
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
