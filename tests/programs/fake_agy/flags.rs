//! The command line, with the manners of Go's `flag` package: one dash is as good as two, the first word that is no
//! flag ends them, a switch takes its value only glued on, and the last of several wins.

use std::collections::BTreeMap;
use std::time::Duration;

use super::scenario::Version;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Switch,
    Text,
    Duration,
}

use Kind::{Duration as Time, Switch, Text};

const ALWAYS: Version = Version(0, 0, 0);

/// Name, what it stands for, kind, and the version that brought it.
const KNOWN: &[(&str, &str, Kind, Version)] = &[
    ("p", "print", Text, ALWAYS),
    ("print", "print", Text, ALWAYS),
    ("prompt", "print", Text, ALWAYS),
    ("i", "prompt-interactive", Text, ALWAYS),
    ("prompt-interactive", "prompt-interactive", Text, ALWAYS),
    ("c", "continue", Switch, ALWAYS),
    ("continue", "continue", Switch, ALWAYS),
    ("conversation", "conversation", Text, ALWAYS),
    ("model", "model", Text, ALWAYS),
    ("sandbox", "sandbox", Switch, ALWAYS),
    ("dangerously-skip-permissions", "dangerously-skip-permissions", Switch, ALWAYS),
    ("print-timeout", "print-timeout", Time, ALWAYS),
    ("add-dir", "add-dir", Text, ALWAYS),
    ("project", "project", Text, ALWAYS),
    ("new-project", "new-project", Switch, ALWAYS),
    ("log-file", "log-file", Text, ALWAYS),
    ("gemini_dir", "gemini_dir", Text, ALWAYS),
    ("mode", "mode", Text, ALWAYS),
    ("version", "version", Switch, ALWAYS),
    ("agent", "agent", Text, Version(1, 1, 1)),
    ("effort", "effort", Text, Version(1, 1, 5)),
    ("output-format", "output-format", Text, Version(1, 1, 8)),
    ("json-schema", "json-schema", Text, Version(1, 1, 8)),
    ("disable-slash-commands", "disable-slash-commands", Switch, Version(1, 1, 9)),
    ("input-format", "input-format", Text, Version(1, 1, 14)),
    ("remote-control", "remote-control", Switch, Version(1, 2, 0)),
];

/// What was given, by the flags' full names.
#[derive(Debug, Default)]
pub struct Flags {
    values: BTreeMap<&'static str, Vec<String>>,
    /// What stands behind the flags.
    pub rest: Vec<String>,
}

impl Flags {
    /// Reads a command line as this version would.
    pub fn parse(argv: &[String], version: Version) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut rest = argv.iter().cloned().collect::<std::collections::VecDeque<_>>();
        while let Some(word) = rest.pop_front() {
            if word == "--" {
                break;
            }
            if word.len() < 2 || !word.starts_with('-') {
                rest.push_front(word);
                break;
            }
            let bare = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or(&word);
            if bare.is_empty() || bare.starts_with(['-', '=']) {
                return Err(format!("bad flag syntax: {word}"));
            }
            let (name, glued) = match bare.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (bare, None),
            };
            let known = KNOWN.iter().find(|(known, _, _, since)| *known == name && version >= *since);
            let Some((_, full, kind, _)) = known else {
                return Err(format!("flags provided but not defined: -{name}"));
            };
            let value = match (kind, glued) {
                (Switch, None) => "true".to_owned(),
                (Switch, Some(value)) => match value.as_str() {
                    "1" | "t" | "T" | "true" | "TRUE" | "True" => "true".to_owned(),
                    "0" | "f" | "F" | "false" | "FALSE" | "False" => "false".to_owned(),
                    _ => return Err(format!("invalid boolean value {value:?} for -{name}: parse error")),
                },
                (_, Some(value)) => value,
                (_, None) => {
                    let next = rest.pop_front().ok_or(format!("flag needs an argument: -{name}"))?;
                    // Before, a prompt that was left out swallowed the flag behind it.
                    if *full == "print" && next.starts_with('-') && version >= Version(1, 1, 18) {
                        return Err(format!("flag needs an argument: -{name}"));
                    }
                    next
                }
            };
            if *kind == Time && duration(&value).is_none() {
                return Err(format!("invalid value {value:?} for flag -{name}: parse error"));
            }
            flags.values.entry(full).or_default().push(value);
        }
        flags.rest = rest.into();
        Ok(flags)
    }

    /// Whether it was given at all.
    pub fn given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Whether a switch is on.
    pub fn on(&self, name: &str) -> bool {
        self.last(name) == Some("true")
    }

    /// The last value.
    pub fn last(&self, name: &str) -> Option<&str> {
        self.values.get(name).and_then(|values| values.last()).map(String::as_str)
    }

    /// The last value of a duration.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        self.last(name).and_then(duration)
    }
}

/// `1h2m3.5s`, as Go reads it.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let value: f64 = rest[..number].parse().ok()?;
        let unit_end = rest[number..].find(|c: char| c.is_ascii_digit() || c == '.');
        let unit = &rest[number..unit_end.map_or(rest.len(), |end| number + end)];
        seconds += value
            * match unit {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 0.001,
                _ => return None,
            };
        rest = &rest[number + unit.len()..];
    }
    (!text.is_empty()).then(|| Duration::from_secs_f64(seconds))
}
