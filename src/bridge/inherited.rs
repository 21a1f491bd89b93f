//! What a run folder takes over from its user's own files: a login, and single settings.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use super::errors::BridgeError;
use crate::agents::PlannedFile;
use crate::error::{Error, Result};

/// Largest file that is taken over; logins and settings are small.
const BYTES: u64 = 1 << 20;

/// A planned file with the settings in it that it takes over. What its user's file doesn't have, or has in a form that
/// cannot be read, stays as planned.
pub(super) fn with_inherited<'a>(file: &'a PlannedFile, home: Option<&Path>) -> Result<Cow<'a, PlannedFile>> {
    let (Some(home), false) = (home, file.inherits.is_empty()) else { return Ok(Cow::Borrowed(file)) };
    let Ok(mut planned) = serde_json::from_str::<Value>(&file.content) else {
        return Ok(Cow::Borrowed(file));
    };
    for wanted in &file.inherits {
        let Some(bytes) = content(&home.join(&wanted.from_home))? else { continue };
        let text = without_comments(&String::from_utf8_lossy(&bytes));
        let theirs = serde_json::from_str::<Value>(&text).ok();
        if let Some(value) = theirs.as_ref().and_then(|theirs| theirs.pointer(&wanted.pointer)) {
            put(&mut planned, &wanted.pointer, value.clone());
        }
    }
    Ok(Cow::Owned(PlannedFile { content: format!("{planned:#}\n"), ..file.clone() }))
}

/// A whole file of the user's; none if there is no such file.
pub(super) fn content(path: &Path) -> Result<Option<Vec<u8>>> {
    let unusable = |why: &str| {
        Error::from(BridgeError::Supervisor(format!("{} cannot be taken over: {why}", path.display())))
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(&error.to_string())),
        Ok(found) if !found.is_file() || found.len() > BYTES => {
            return Err(unusable("it is no file of at most 1 MiB"));
        }
        Ok(_) => {}
    }
    fs::read(path).map(Some).map_err(|error| unusable(&error.to_string()))
}

/// Sets a value, with the objects that lead to it.
fn put(root: &mut Value, pointer: &str, value: Value) {
    let mut place = root;
    for key in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        place = &mut place[key];
    }
    *place = value;
}

/// JSON without `//` and `/* */`; line ends stay.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' => {
                let length = string_length(rest);
                out.push_str(&rest[..length]);
                length
            }
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |at| at + 4),
            c => {
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    out
}

/// Of a string literal at the start, quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::agents::{Inherited, PrivateFiles};
    use proptest::prelude::*;
    use serde_json::json;

    fn planned(pointers: &[&str]) -> PlannedFile {
        let content = json!({ "security": { "mine": 1 }, "mcp": {} }).to_string();
        let mut file = PrivateFiles::one("/run/settings.json".into(), content).files.remove(0);
        let taken = |pointer: &&str| Inherited { from_home: "s.json".into(), pointer: (*pointer).to_owned() };
        file.inherits = pointers.iter().map(taken).collect();
        file
    }

    fn taken(theirs: &str) -> Value {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("s.json"), theirs).unwrap();
        let file = planned(&["/security/auth", "/general/x"]);
        serde_json::from_str(&with_inherited(&file, Some(home.path())).unwrap().content).unwrap()
    }

    #[test]
    fn only_what_is_named_is_taken_over() {
        let theirs = r#"{ // their choice
            "security": { "auth": { "selectedType": "x//y" /* "z" */ }, "other": 1 },
            "mcpServers": { "theirs": {} }
        }"#;
        let expected = json!({ "security": { "mine": 1, "auth": { "selectedType": "x//y" } }, "mcp": {} });
        assert_eq!(taken(theirs), expected);
    }

    #[test]
    fn a_file_that_is_not_there_or_not_json_changes_nothing() {
        let unchanged = json!({ "security": { "mine": 1 }, "mcp": {} });
        for theirs in ["", "[1]", "{", "{\"security\": 1}", "\"a\\"] {
            assert_eq!(taken(theirs), unchanged, "{theirs}");
        }
        let nowhere = tempfile::tempdir().unwrap();
        let file = planned(&["/security/auth"]);
        let same: Value =
            serde_json::from_str(&with_inherited(&file, Some(nowhere.path())).unwrap().content).unwrap();
        assert_eq!(same, unchanged);
        assert_eq!(with_inherited(&file, None).unwrap().content, file.content);
    }

    proptest! {
        #[test]
        fn json_without_comments_is_itself(text in "[a-z/*\\\\\" \n]{0,20}", number in any::<i32>()) {
            let value = json!({ "text": text, "list": [number, text] });
            let plain = value.to_string();
            prop_assert_eq!(without_comments(&plain), plain);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-z/*\\\\\" \né]{0,30}") {
            without_comments(&text);
        }
    }
}
