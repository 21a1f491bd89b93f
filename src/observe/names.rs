//! File names as git has them (bytes with `/` between the parts) and as a record shows them: exact where they are
//! Unicode, escaped without loss where they are not.

use std::path::{Path, PathBuf};

use crate::platform;

/// A path inside a repository or folder: bytes, with `/` between its parts and none at its ends.
pub type Name = Vec<u8>;

/// A name for people and programs. The flag says that it is escaped: bytes that are not UTF-8 are `\xNN`, and a
/// backslash is doubled. Without the flag the text is the name.
pub fn shown(name: &[u8]) -> (String, bool) {
    if let Ok(text) = std::str::from_utf8(name) {
        return (text.to_owned(), false);
    }
    let mut text = String::with_capacity(name.len() + 16);
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' {
                text.push('\\');
            }
            text.push(character);
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    (text, true)
}

/// The name that [`shown`] was given. `None` if the text is none that it gives.
pub fn original(text: &str, escaped: bool) -> Option<Name> {
    if !escaped {
        return Some(text.as_bytes().to_vec());
    }
    let mut name = Name::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            name.push(*first);
            continue;
        }
        match rest.split_first()? {
            (b'\\', after) => {
                name.push(b'\\');
                rest = after;
            }
            (b'x', after) => {
                let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
                name.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = after.get(2..)?;
            }
            _ => return None,
        }
    }
    Some(name)
}

/// Where a name lies below a folder. `None` if this system can have no such file.
pub(super) fn path_below(folder: &Path, name: &[u8]) -> Option<PathBuf> {
    platform::path_from_bytes(name).map(|name| folder.join(name))
}

/// The name of a path below a folder.
pub(super) fn name_below(folder: &Path, path: &Path) -> Option<Name> {
    let inside = path.strip_prefix(folder).ok()?;
    let mut name = Name::new();
    for part in inside.components() {
        if !name.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(part.as_os_str().as_encoded_bytes());
    }
    Some(name)
}

/// The last part of a name.
pub(super) fn file_name(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| *byte == b'/').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_are_text_stay_as_they_are() {
        for name in ["a", "Ünïcode/日本.txt", "tab\tnewline\nquote\"", "-leading", r"back\slash\x41"] {
            assert_eq!(shown(name.as_bytes()), (name.to_owned(), false));
        }
        assert_eq!(shown(b"a\\\xff/\xc3\xa4"), (r"a\\\xff/ä".to_owned(), true));
    }

    #[test]
    fn an_escape_that_nobody_writes_is_no_name() {
        for text in [r"\", r"\n", r"\x4", r"\xzz", r"\x+1"] {
            assert_eq!(original(text, true), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_of_a_name_is_lost(name in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\\'), Just(b'x'), Just(b'4')], 0..40)) {
            let (text, escaped) = shown(&name);
            prop_assert_eq!(original(&text, escaped), Some(name));
        }
    }
}
