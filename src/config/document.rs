//! JSON text to a value, strictly: keys named twice are found, depth is bounded, places are named.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Nesting deeper than this is refused.
const MAX_DEPTH: usize = 64;
/// The most duplicate keys that are reported.
const MAX_DUPLICATES: usize = 50;
/// The longest part of a foreign name or value that is echoed in a message, in characters.
const MAX_ECHO: usize = 60;

/// A place in a document, as a chain on the stack; rendered only when there is something to say.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Top,
    Key(&'a Place<'a>, &'a str),
    Index(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Key(parent, key) => match (parent, is_plain(key)) {
                (Self::Top, true) => f.write_str(key),
                (_, true) => write!(f, "{parent}.{key}"),
                (_, false) => write!(f, "{parent}[{}]", echo(key)),
            },
        }
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= MAX_ECHO
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_$-".contains(&b))
}

/// A foreign text, quoted, shortened, and with everything unprintable escaped.
pub(super) fn echo(text: &str) -> String {
    let short: String = text.chars().take(MAX_ECHO).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{dots}")
}

/// A parsed document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) value: Value,
    /// Paths of keys that occur more than once in one object.
    pub(super) duplicates: Vec<String>,
}

/// Where and why the text is not JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) reason: String,
}

/// Parses a whole text.
pub(super) fn parse(text: &str) -> Result<Document, SyntaxError> {
    if text.trim().is_empty() {
        return Err(SyntaxError { line: 1, column: 1, reason: "the file is empty".into() });
    }
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = Node { place: &Place::Top, depth: 0, duplicates: &mut duplicates };
    seed.deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map(|value| Document { value, duplicates })
        .map_err(|error| syntax_error(text, &error))
}

fn syntax_error(text: &str, error: &serde_json::Error) -> SyntaxError {
    let (line, column) = (error.line().max(1), error.column().max(1));
    let message = error.to_string();
    let mut reason = message.rfind(" at line ").map_or(&*message, |end| &message[..end]).to_owned();
    // The column of serde_json points at or just behind the offending byte.
    let bytes = text.lines().nth(line - 1).unwrap_or_default().as_bytes();
    let before = column.saturating_sub(2).min(bytes.len());
    if bytes[before..].iter().take(2).any(|b| matches!(b, b'/' | b'#')) {
        reason.push_str(" (comments are not allowed; put notes under the key \"_notes\")");
    }
    SyntaxError { line, column, reason }
}

struct Node<'a> {
    place: &'a Place<'a>,
    depth: usize,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.depth > MAX_DEPTH {
            return Err(D::Error::custom(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let place = Place::Index(self.place, list.len());
            let seed = Node { place: &place, depth: self.depth + 1, duplicates: self.duplicates };
            match items.next_element_seed(seed)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let place = Place::Key(self.place, &key);
            if map.contains_key(&key) && self.duplicates.len() < MAX_DUPLICATES {
                self.duplicates.push(place.to_string());
            }
            let seed = Node { place: &place, depth: self.depth + 1, duplicates: self.duplicates };
            let value = entries.next_value_seed(seed)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_named_twice_is_reported_with_its_path() {
        let document = parse(r#"{"agents":{"codex":{"bin":"a","bin":"b"}},"x":[{"y":1,"y":2}]}"#).unwrap();
        assert_eq!(document.duplicates, ["agents.codex.bin", "x[0].y"]);
    }

    #[test]
    fn an_error_names_line_and_column() {
        let error = parse("{\n  \"allowedRoots\": [],\n}").unwrap_err();
        assert_eq!((error.line, error.reason.as_str()), (3, "trailing comma"));
    }

    #[test]
    fn a_comment_is_named_as_such() {
        for text in ["{\n  // roots\n  \"a\": 1}", "{\"a\": 1, # x\n}", "/* x */ {}"] {
            assert!(parse(text).unwrap_err().reason.contains("_notes"), "{text}");
        }
        assert!(!parse("{\"a\" 1}").unwrap_err().reason.contains("_notes"));
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(&deep(MAX_DEPTH)).is_ok());
        assert!(parse(&deep(MAX_DEPTH + 2)).unwrap_err().reason.contains("nested deeper"));
        assert!(parse(&deep(500_000)).is_err());
    }

    #[test]
    fn empty_and_half_written_files_are_refused() {
        assert_eq!(parse("").unwrap_err().reason, "the file is empty");
        assert_eq!(parse(" \n").unwrap_err().reason, "the file is empty");
        assert!(parse("{\"allowedRoots\": [").is_err());
        assert!(parse("{} {}").is_err());
    }

    #[test]
    fn an_echo_is_short_and_printable() {
        assert_eq!(echo("a\u{202e}b\u{1b}[31m"), r#""a\u{202e}b\u{1b}[31m""#);
        assert!(echo(&"x".repeat(1000)).chars().count() < 70);
    }

    proptest! {
        #[test]
        fn whatever_serde_json_accepts_means_the_same(text in r#"[\[\]{}",:0-9a-c.e \\-]{0,40}"#) {
            match (parse(&text), serde_json::from_str::<Value>(&text)) {
                (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours.value, theirs),
                (Err(_), Err(_)) => {}
                (ours, theirs) => prop_assert!(false, "{:?} against {:?}", ours, theirs),
            }
        }
    }
}
