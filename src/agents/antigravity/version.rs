//! What each version of `agy` can do, from its published changelog. Nothing here was measured.

use std::fmt;

/// A version number; what stands behind it (`-beta`) is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u32, u32, u32);

/// The first one with structured output.
pub(super) const OLDEST: Version = Version(1, 1, 8);

/// The last one whose changes are known here. A newer one is used and remarked upon.
pub(super) const NEWEST_KNOWN: Version = Version(1, 3, 5);

/// The member of a line of standard input that says that it is the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputKey {
    /// The announced form.
    Event,
    /// One version had the format before it was announced.
    Type,
}

impl Version {
    /// Reads `1.2.6`, with or without something behind it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().splitn(3, '.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse::<u32>().ok()
        });
        let (major, minor) = (numbers.next()??, numbers.next()??);
        Some(Self(major, minor, numbers.next().map_or(Some(0), |patch| patch)?))
    }

    /// A version of which nothing is known is taken for the newest known one.
    pub fn or_newest(text: Option<&str>) -> Self {
        text.and_then(Self::parse).unwrap_or(NEWEST_KNOWN)
    }

    /// `--disable-slash-commands`; before it a prompt was never a command.
    pub fn expands_slash_commands(self) -> bool {
        self >= Self(1, 1, 9)
    }

    /// `--effort` is heeded; before it was taken and forgotten.
    pub fn takes_effort(self) -> bool {
        self >= Self(1, 1, 10)
    }

    /// `/usage` is answered without an agent and without a conversation.
    pub fn answers_usage(self) -> bool {
        self >= Self(1, 1, 11)
    }

    /// `--input-format stream-json`.
    pub fn input(self) -> Option<InputKey> {
        if self >= Self(1, 1, 15) {
            Some(InputKey::Event)
        } else if self >= Self(1, 1, 14) {
            Some(InputKey::Type)
        } else {
            None
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn versions_are_ordered_by_number_and_not_by_text() {
        let version = |text| Version::parse(text).unwrap();
        assert!(version("1.1.9") < version("1.1.11"));
        assert!(version("1.2") < version("1.2.1"));
        assert_eq!(version(" 1.2.6-beta.1 "), Version(1, 2, 6));
        for text in ["", "x", "1", "1.x", "1..2", "-1.2.3", "1.99999999999"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_ability_begins_with_its_version() {
        let at = |text| Version::parse(text).unwrap();
        assert_eq!(at("1.1.13").input(), None);
        assert_eq!(at("1.1.14").input(), Some(InputKey::Type));
        assert_eq!(at("1.1.15").input(), Some(InputKey::Event));
        assert!(!at("1.1.8").expands_slash_commands() && at("1.1.9").expands_slash_commands());
        assert!(!at("1.1.10").answers_usage() && at("1.1.11").answers_usage());
        assert_eq!(Version::or_newest(Some("unknown")), NEWEST_KNOWN);
    }
}
