//! One JSON-RPC message from the bytes of a body, strictly: what is no message is told apart from what needs no answer.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Longest request id in bytes, as written.
const MAX_ID: usize = 128;

/// What a body was.
#[derive(Debug)]
pub enum Message<'a> {
    /// To be answered.
    Request {
        /// The id as it was written.
        id: &'a str,
        /// Method.
        method: Cow<'a, str>,
        /// An object, as it was written.
        params: Option<&'a str>,
    },
    /// Needs no answer.
    Notification {
        /// Method.
        method: Cow<'a, str>,
        /// An object, as it was written.
        params: Option<&'a str>,
    },
    /// An answer to something that was never asked.
    Response,
}

/// A body that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoMessage {
    /// JSON-RPC code.
    pub code: i32,
    /// Why, for the client.
    pub message: &'static str,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Keeps `null` apart from absence.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads a body.
pub fn read(body: &[u8]) -> Result<Message<'_>, NoMessage> {
    let invalid = |message| NoMessage { code: -32600, message };
    match body.trim_ascii_start().first() {
        Some(b'{') => {}
        Some(b'[') => return Err(invalid("batches are not supported")),
        _ => return Err(NoMessage { code: -32700, message: "the body is not a JSON object" }),
    }
    let wire: Wire<'_> = match serde_json::from_slice(body) {
        Ok(wire) => wire,
        // JSON, but with fields of other types, or one of them twice.
        Err(error) if error.is_data() => return Err(invalid("not a JSON-RPC message")),
        Err(_) => return Err(NoMessage { code: -32700, message: "the body is not valid JSON" }),
    };
    if wire.jsonrpc.as_deref() != Some("2.0") {
        return Err(invalid("`jsonrpc` has to be \"2.0\""));
    }
    let params = match wire.params.map(RawValue::get) {
        Some(text) if !text.starts_with('{') => return Err(invalid("`params` has to be an object")),
        params => params,
    };
    match (wire.method, wire.id.map(RawValue::get)) {
        (None, Some(_)) if wire.result.is_some() != wire.error.is_some() => Ok(Message::Response),
        (None, _) => Err(invalid("a message needs a `method`")),
        (Some(_), _) if wire.result.is_some() || wire.error.is_some() => {
            Err(invalid("a message is a request or an answer, not both"))
        }
        // Such a message never asks for anything, with an id or without.
        (Some(method), _) if method.starts_with("notifications/") => {
            Ok(Message::Notification { method, params })
        }
        (Some(method), Some(id)) if is_id(id) => Ok(Message::Request { id, method, params }),
        (Some(_), Some(_)) => Err(invalid("an `id` is a string or a whole number")),
        (Some(_), None) => Err(invalid("a request needs an `id`")),
    }
}

/// A string or an integer that every reader reads alike.
fn is_id(text: &str) -> bool {
    const EXACT: i64 = 1 << 53;
    text.len() <= MAX_ID
        && (text.starts_with('"')
            || text.parse::<i64>().is_ok_and(|number| (-EXACT..=EXACT).contains(&number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> String {
        match read(text.as_bytes()) {
            Ok(Message::Request { id, method, params }) => format!("request {id} {method} {params:?}"),
            Ok(Message::Notification { method, .. }) => format!("notification {method}"),
            Ok(Message::Response) => "response".into(),
            Err(error) => error.code.to_string(),
        }
    }

    #[test]
    fn every_shape_is_what_it_is() {
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping None"),
            (
                r#" {"jsonrpc":"2.0","id":"a\"b","method":"pi\u006eg","params":{}} "#,
                r#"request "a\"b" ping Some("{}")"#,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                "notification notifications/initialized",
            ),
            (r#"{"jsonrpc":"2.0","id":null,"method":"notifications/x"}"#, "notification notifications/x"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response"),
            (r#"{"jsonrpc":"2.0","id":1,"error":null}"#, "response"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","method":"tools/call","params":{}}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"tools/call"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1e400,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#, "-32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "-32600"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "-32600"),
            (r#"{"id":1,"method":"ping"}"#, "-32600"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "-32600"),
            ("[]", "-32600"),
            ("{}", "-32600"),
            ("", "-32700"),
            ("null", "-32700"),
            (r#"{"jsonrpc":"2.0""#, "-32700"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, "-32700"),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn depth_and_size_are_no_danger() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{}1{}}}}}"#,
            "[".repeat(400_000),
            "]".repeat(400_000)
        );
        assert!(kind(&deep).starts_with("request 1 x"));
        assert_eq!(kind(&"[".repeat(500_000)), "-32600");
        assert_eq!(kind(&format!("{{\"a\":{}", "{\"a\":".repeat(200_000))), "-32700");
        assert_eq!(
            kind(&format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"x"}}"#, "9".repeat(1000))),
            "-32600"
        );
        assert!(read(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}").is_err());
    }
}
