//! `note`, `recall`, `search_notes`: what a worker wants to remember during one run, and across the workers of one run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;

use super::schema;
use crate::scope::{Answer, Call, Tool, ToolSpec};

/// Most notes, and most bytes of all of them.
const MAX_NOTES: usize = 200;
const MAX_BYTES: usize = 512 << 10;
/// Most lines of one search.
const MAX_FOUND: usize = 40;

/// The notes of one run.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<BTreeMap<String, String>>>);

impl Notes {
    /// The three tools on these notes.
    pub fn tools(&self) -> [Arc<dyn Tool>; 3] {
        [Kind::Note, Kind::Recall, Kind::Search]
            .map(|kind| Arc::new(NotesTool(self.clone(), kind)) as Arc<dyn Tool>)
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: &str, text: &str) -> Answer {
        let mut notes = self.locked();
        let others = notes.iter().filter(|(name, _)| *name != key);
        let bytes: usize = others.map(|(name, text)| name.len() + text.len()).sum();
        if bytes + key.len() + text.len() > MAX_BYTES
            || (notes.len() >= MAX_NOTES && !notes.contains_key(key))
        {
            return Answer::error("There is no room for this note. Replace an older one, or shorten it.");
        }
        match notes.insert(key.to_owned(), text.to_owned()) {
            Some(_) => Answer::ok("Noted; the note of that name was replaced."),
            None => Answer::ok("Noted."),
        }
    }

    fn recall(&self, key: Option<&str>) -> Answer {
        let notes = self.locked();
        match key {
            Some(key) => match notes.get(key) {
                Some(text) => Answer::ok(text.clone()),
                None => Answer::error(
                    "There is no note of that name; call `recall` without one to see the names.",
                ),
            },
            None if notes.is_empty() => Answer::ok("There are no notes yet."),
            None => Answer::ok(notes.keys().map(String::as_str).collect::<Vec<_>>().join("\n")),
        }
    }

    fn search(&self, words: &str) -> Answer {
        let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
        let notes = self.locked();
        let mut found = Vec::new();
        for (key, text) in notes.iter() {
            for line in text.lines() {
                let both = format!("{key} {line}").to_lowercase();
                if words.iter().all(|word| both.contains(word)) {
                    found.push(format!("{key}: {line}"));
                }
            }
        }
        let more = found.len().saturating_sub(MAX_FOUND);
        found.truncate(MAX_FOUND);
        if found.is_empty() {
            found.push("Nothing was found.".into());
        } else if more > 0 {
            found.push(format!("[{more} more lines]"));
        }
        Answer::ok(found.join("\n"))
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Note,
    Recall,
    Search,
}

struct NotesTool(Notes, Kind);

impl Tool for NotesTool {
    fn name(&self) -> &'static str {
        match self.1 {
            Kind::Note => "note",
            Kind::Recall => "recall",
            Kind::Search => "search_notes",
        }
    }

    fn spec(&self) -> ToolSpec {
        let key = || json!({ "type": "string", "minLength": 1, "maxLength": 100 });
        let (description, schema) = match self.1 {
            Kind::Note => (
                "Keep a note for the rest of this run, under a name. The same name replaces it.",
                schema(
                    json!({ "key": key(), "text": { "type": "string", "maxLength": 8000 } }),
                    &["key", "text"],
                ),
            ),
            Kind::Recall => (
                "Read a note of this run; without a name, the names of all notes.",
                schema(json!({ "key": key() }), &[]),
            ),
            Kind::Search => (
                "Find the lines of this run's notes that have all of these words.",
                schema(
                    json!({ "query": { "type": "string", "minLength": 1, "maxLength": 200 } }),
                    &["query"],
                ),
            ),
        };
        ToolSpec { description: description.into(), schema, read_only: !matches!(self.1, Kind::Note) }
    }

    fn call(&self, call: &Call<'_>) -> Answer {
        let text = |name| call.text(name).unwrap_or_default();
        match self.1 {
            Kind::Note => self.0.note(text("key"), text("text")),
            Kind::Recall => self.0.recall(call.text("key")),
            Kind::Search => self.0.search(text("query")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_kept_replaced_found_and_bounded() {
        let notes = Notes::default();
        assert_eq!(notes.note("plan", "Parser first\nthen the Writer").text, "Noted.");
        assert!(notes.note("plan", "parser last").text.contains("replaced"));
        assert_eq!(notes.recall(Some("plan")).text, "parser last");
        assert!(notes.recall(Some("none")).is_error);
        assert_eq!(notes.search("PLAN last").text, "plan: parser last");
        assert_eq!(notes.search("writer").text, "Nothing was found.");
        for n in 0..MAX_NOTES {
            notes.note(&format!("n{n}"), "x");
        }
        assert!(notes.note("one more", "x").is_error && !notes.note("plan", "y").is_error);
        assert!(notes.note("n0", &"x".repeat(MAX_BYTES)).is_error);
        assert_eq!(notes.search("x").text.lines().count(), MAX_FOUND + 1);
    }
}
