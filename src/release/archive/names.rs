//! Names in an archive: the same plain relative paths on every system, or none.

use std::collections::HashMap;

use super::error::{
    ArchiveError, BUNDLE_CONFIG_INSIDE, BUNDLE_NAME_ABSOLUTE, BUNDLE_NAME_BACKSLASH, BUNDLE_NAME_CASE,
    BUNDLE_NAME_CONTROL, BUNDLE_NAME_ENCODING, BUNDLE_NAME_RESERVED, BUNDLE_NAME_TRAVERSAL,
    BUNDLE_NAME_TWICE,
};
use crate::process::reorders_or_hides;
use crate::release::metadata::check_path;

/// The name of an entry as text, if it may be unpacked.
pub(super) fn check(raw: &[u8], marked_as_utf8: bool) -> Result<String, ArchiveError> {
    let shown = shown(raw);
    let refuse = |doc, what: &str| Err(ArchiveError::new(doc, format!("the name {shown} {what}")));
    if raw.iter().any(|byte| *byte < 0x20 || *byte == 0x7f) {
        return refuse(&BUNDLE_NAME_CONTROL, "holds a control character");
    }
    if raw.contains(&b'\\') {
        return refuse(&BUNDLE_NAME_BACKSLASH, "holds a backslash");
    }
    let Ok(name) = std::str::from_utf8(raw) else {
        return refuse(&BUNDLE_NAME_ENCODING, "is not UTF-8");
    };
    if !marked_as_utf8 && !name.is_ascii() {
        return refuse(&BUNDLE_NAME_ENCODING, "is not marked as UTF-8");
    }
    if name.chars().any(|c| c.is_control() || reorders_or_hides(c)) {
        return refuse(&BUNDLE_NAME_CONTROL, "holds a character that hides text");
    }
    let has_drive = matches!(raw, [letter, b':', ..] if letter.is_ascii_alphabetic());
    if name.starts_with('/') || has_drive {
        return refuse(&BUNDLE_NAME_ABSOLUTE, "is absolute");
    }
    if name.split('/').any(|part| part == "..") {
        return refuse(&BUNDLE_NAME_TRAVERSAL, "leads upwards");
    }
    if fold(name) == "server/config.json" {
        return refuse(&BUNDLE_CONFIG_INSIDE, "is that of a config beside the program");
    }
    if let Err(why) = check_path(name) {
        return refuse(&BUNDLE_NAME_RESERVED, why);
    }
    Ok(name.to_owned())
}

/// What two names have in common that some file system takes for the same.
fn fold(name: &str) -> String {
    name.to_uppercase().to_lowercase()
}

/// Every name and every folder in the names so far.
#[derive(Default)]
pub(super) struct Names {
    seen: HashMap<String, (String, Kind)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
}

impl Names {
    /// Takes up a name that passed [`check`].
    pub(super) fn add(&mut self, name: &str) -> Result<(), ArchiveError> {
        for (at, _) in name.match_indices('/') {
            self.take(&name[..at], Kind::Folder)?;
        }
        self.take(name, Kind::File)
    }

    fn take(&mut self, path: &str, kind: Kind) -> Result<(), ArchiveError> {
        let Some((known, as_what)) = self.seen.insert(fold(path), (path.to_owned(), kind)) else {
            return Ok(());
        };
        match () {
            () if known != path => Err(ArchiveError::new(
                &BUNDLE_NAME_CASE,
                format!("{known:?} and {path:?} differ only in case"),
            )),
            () if kind == Kind::Folder && as_what == Kind::Folder => Ok(()),
            () if kind == as_what => {
                Err(ArchiveError::new(&BUNDLE_NAME_TWICE, format!("{path:?} is there twice")))
            }
            () => Err(ArchiveError::new(
                &BUNDLE_NAME_TWICE,
                format!("{path:?} is a file, and a folder of other files"),
            )),
        }
    }
}

/// A name in a message: short, and quoted so that nothing in it acts.
fn shown(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    let start: String = text.chars().take(80).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("{start:?}{more}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::error::Coded as _;
    use proptest::prelude::*;

    fn code(name: &str) -> &'static str {
        check(name.as_bytes(), true).unwrap_err().doc().code
    }

    #[test]
    fn a_name_is_refused_for_what_is_wrong_with_it() {
        assert_eq!(code("a\u{202e}b"), "BUNDLE_NAME_CONTROL");
        assert_eq!(code("a\u{85}b"), "BUNDLE_NAME_CONTROL");
        assert_eq!(code("a/../b"), "BUNDLE_NAME_TRAVERSAL");
        assert_eq!(code("c:x"), "BUNDLE_NAME_ABSOLUTE");
        assert_eq!(code("\u{17f}erver/config.json"), "BUNDLE_CONFIG_INSIDE", "a long s");
        assert_eq!(code("Server/CONFIG.json"), "BUNDLE_CONFIG_INSIDE");
        assert_eq!(code("server/aux"), "BUNDLE_NAME_RESERVED");
        assert_eq!(check("ü".as_bytes(), false).unwrap_err().doc().code, "BUNDLE_NAME_ENCODING");
        assert_eq!(check("ü".as_bytes(), true).unwrap(), "ü");
    }

    #[test]
    fn names_that_some_file_system_takes_for_the_same_do_not_stand_together() {
        let clash = |names: &[&str]| {
            let mut all = Names::default();
            names.iter().map(|name| all.add(name)).find_map(Result::err).map(|error| error.doc().code)
        };
        assert_eq!(clash(&["a/b", "a/c", "d"]), None);
        assert_eq!(clash(&["a/b", "a/b"]), Some("BUNDLE_NAME_TWICE"));
        assert_eq!(clash(&["a/b", "A/b"]), Some("BUNDLE_NAME_CASE"));
        assert_eq!(clash(&["a/b", "A/c"]), Some("BUNDLE_NAME_CASE"));
        assert_eq!(clash(&["stra\u{df}e", "STRASSE"]), Some("BUNDLE_NAME_CASE"));
        assert_eq!(clash(&["\u{17f}", "s"]), Some("BUNDLE_NAME_CASE"));
        assert_eq!(clash(&["a", "a/b"]), Some("BUNDLE_NAME_TWICE"));
        assert_eq!(clash(&["a/b", "a"]), Some("BUNDLE_NAME_TWICE"));
    }

    proptest! {
        #[test]
        fn what_is_accepted_stays_inside_on_every_system(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(name) = check(&raw, true) {
                prop_assert!(!name.contains(['\\', ':', '\0']) && !name.starts_with('/'));
                prop_assert!(name.split('/').all(|part| !matches!(part, "" | "." | "..")));
            }
        }
    }
}
