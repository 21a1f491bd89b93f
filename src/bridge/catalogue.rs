//! Every documented error code of every room, for `explain` and for errors that crossed a process
//! border as JSON.

use serde_json::Value;

use crate::error::{CodeDoc, Error};

/// All codes, room by room.
pub fn all() -> impl Iterator<Item = &'static CodeDoc> {
    [
        crate::agents::CODES,
        crate::bridge::errors::CODES,
        crate::config::CODES,
        crate::error::CODES,
        crate::platform::CODES,
        crate::process::CODES,
        crate::relay::CODES,
        crate::scope::CODES,
        crate::store::CODES,
    ]
    .into_iter()
    .flatten()
    .copied()
    .chain(crate::release::codes())
}

/// The code of that name, in any case.
pub fn find(code: &str) -> Option<&'static CodeDoc> {
    all().find(|doc| doc.code.eq_ignore_ascii_case(code))
}

/// The inverse of [`Error::to_json`].
pub fn error_from_json(value: &Value) -> Error {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let doc = find(&text("code")).unwrap_or(&crate::bridge::errors::SUPERVISOR_FAILED);
    let error = Error::new(doc, text("message")).with_hint(text("hint"));
    match value.get("details") {
        Some(details) => error.with_details(details.clone()),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique_and_say_something() {
        let mut seen = BTreeSet::new();
        for doc in all() {
            assert!(seen.insert(doc.code), "{} is declared twice", doc.code);
            assert!(
                doc.code.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_'),
                "{}",
                doc.code
            );
            assert!(doc.cause.ends_with('.') && doc.remedy.ends_with('.'), "{}: end the sentences", doc.code);
        }
        assert!(seen.len() > 40);
    }

    #[test]
    fn an_error_survives_the_way_through_json() {
        let error = Error::new(&crate::bridge::errors::CWD_REQUIRED, "no folder")
            .with_details(serde_json::json!({"a": 1}));
        assert_eq!(error_from_json(&error.to_json()).to_json(), error.to_json());
    }
}
