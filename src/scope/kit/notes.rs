//! `note`, `recall`, `search_notes`: what a worker wants to remember, for one run or for the later ones in its folder.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use super::{fenced, schema};
use crate::scope::{Answer, Call, Tool, ToolSpec};

/// Most notes, and most bytes of all of them.
const MAX_NOTES: usize = 200;
const MAX_BYTES: usize = 512 << 10;
/// Most lines of one search.
const MAX_FOUND: usize = 40;

/// Where notes lie.
pub trait NoteShelf: Send + Sync {
    /// All of them, by name.
    fn all(&self) -> Result<BTreeMap<String, String>, String>;
    /// Puts one there, in place of the one of that name.
    fn put(&self, key: &str, text: &str) -> Result<(), String>;
}

/// Notes in memory: of one run.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, String>>);

impl NoteShelf for Memory {
    fn all(&self) -> Result<BTreeMap<String, String>, String> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn put(&self, key: &str, text: &str) -> Result<(), String> {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.insert(key.to_owned(), text.to_owned());
        Ok(())
    }
}

/// The notes that a run sees.
#[derive(Clone)]
pub struct Notes {
    shelf: Arc<dyn NoteShelf>,
    /// Other runs wrote them too: their words are data.
    of_others: bool,
    /// A look and the note that follows belong together.
    writing: Arc<Mutex<()>>,
}

impl Default for Notes {
    fn default() -> Self {
        Self { shelf: Arc::new(Memory::default()), of_others: false, writing: Arc::default() }
    }
}

impl Notes {
    /// Notes that outlive the run.
    pub fn kept(shelf: Arc<dyn NoteShelf>) -> Self {
        Self { shelf, of_others: true, writing: Arc::default() }
    }

    /// The three tools on these notes.
    pub fn tools(&self) -> [Arc<dyn Tool>; 3] {
        [Kind::Note, Kind::Recall, Kind::Search]
            .map(|kind| Arc::new(NotesTool(self.clone(), kind)) as Arc<dyn Tool>)
    }

    fn shown(&self, text: &str) -> Answer {
        if self.of_others { Answer::ok(fenced("notes", text)) } else { Answer::ok(text) }
    }

    fn note(&self, key: &str, text: &str) -> Answer {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let notes = match self.shelf.all() {
            Ok(notes) => notes,
            Err(why) => return unreadable(&why),
        };
        let others = notes.iter().filter(|(name, _)| *name != key);
        let bytes: usize = others.map(|(name, text)| name.len() + text.len()).sum();
        if bytes + key.len() + text.len() > MAX_BYTES
            || (notes.len() >= MAX_NOTES && !notes.contains_key(key))
        {
            return Answer::error("There is no room for this note. Replace an older one, or shorten it.");
        }
        match self.shelf.put(key, text) {
            Err(why) => Answer::error(format!("The note could not be kept ({why}). Try again.")),
            Ok(()) if notes.contains_key(key) => Answer::ok("Noted; the note of that name was replaced."),
            Ok(()) => Answer::ok("Noted."),
        }
    }

    fn recall(&self, key: Option<&str>) -> Answer {
        let notes = match self.shelf.all() {
            Ok(notes) => notes,
            Err(why) => return unreadable(&why),
        };
        match key {
            Some(key) => match notes.get(key) {
                Some(text) => self.shown(text),
                None => Answer::error(
                    "There is no note of that name; call `recall` without one to see the names.",
                ),
            },
            None if notes.is_empty() => Answer::ok("There are no notes yet."),
            None => self.shown(&notes.keys().map(String::as_str).collect::<Vec<_>>().join("\n")),
        }
    }

    fn search(&self, words: &str) -> Answer {
        let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
        let notes = match self.shelf.all() {
            Ok(notes) => notes,
            Err(why) => return unreadable(&why),
        };
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
            return Answer::ok("Nothing was found.");
        }
        if more > 0 {
            found.push(format!("[{more} more lines]"));
        }
        self.shown(&found.join("\n"))
    }
}

fn unreadable(why: &str) -> Answer {
    Answer::error(format!("The notes cannot be read now ({why}). Try again."))
}

#[derive(Clone, Copy)]
enum Kind {
    Note,
    Recall,
    Search,
}

struct NotesTool(Notes, Kind);

impl Tool for NotesTool {
    fn name(&self) -> &str {
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
                "Keep a note under a name, for the rest of this run and, where notes are kept, for later ones. The same name replaces it.",
                schema(
                    json!({ "key": key(), "text": { "type": "string", "maxLength": 8000 } }),
                    &["key", "text"],
                ),
            ),
            Kind::Recall => {
                ("Read a note; without a name, the names of all notes.", schema(json!({ "key": key() }), &[]))
            }
            Kind::Search => (
                "Find the lines of the notes that have all of these words.",
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
