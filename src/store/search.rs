//! Full-text search over prompts, answers and titles.

use rusqlite::{Connection, ErrorCode, params};
use serde::Serialize;

use super::database::Store;
use super::errors::StoreError;
use super::rows::{Listed, count, field, page_size, read_all};

/// This much of each prompt and each answer is searched.
pub(super) const MAX_INDEXED_BYTES: usize = 64 << 10;

const MAX_TERMS: usize = 16;
const MAX_TERM: usize = 64;
const MAX_SNIPPET: usize = 240;
const MAX_HITS: usize = 100;

/// Put around a match by SQLite and taken out again; [`indexable`] keeps them out of the text.
const OPEN: char = '\u{1}';
const CLOSE: char = '\u{2}';

/// Where a search term was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HitField {
    /// In the prompt.
    Prompt,
    /// In the answer.
    Answer,
    /// In the session's title.
    Title,
}

/// A finished turn that a search found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// The turn.
    pub turn: String,
    /// Its session.
    pub session: String,
    /// Its position in the session.
    pub index: u64,
    /// Where the terms were found; the prompt goes before the answer.
    pub field: HitField,
    /// The surroundings of the first match, one line, at most 240 characters.
    pub snippet: String,
}

impl Store {
    /// Finished turns that contain every word of `query`, the best match first. `query` is plain
    /// text: nothing in it is an operator. Only the first 64 KiB of a prompt or an answer are
    /// searched. There are at most 100 hits.
    pub fn search(&self, query: &str, limit: usize) -> Result<Listed<Hit>, StoreError> {
        let Some(query) = match_expression(query) else {
            return Ok(Listed { rows: Vec::new(), skipped: Vec::new(), next: None });
        };
        // Not FTS5's `snippet`: its time grows with the square of the number of matches, and one
        // answer that repeats a word would keep a processor busy for minutes.
        let marked = |column: usize| format!("highlight(turn_text, {column}, char(1), char(2))");
        let sql = format!(
            "SELECT t.id, t.session_id, t.position, {} AS prompt, {} AS answer, {} AS title
             FROM turn_text JOIN turns t ON t.seq = turn_text.rowid
             WHERE turn_text MATCH ?1 ORDER BY turn_text.rank LIMIT ?2",
            marked(0),
            marked(1),
            marked(2)
        );
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query(params![query, page_size(limit.min(MAX_HITS)).cast_signed()])?;
            let (rows, skipped) = read_all(rows, |row| {
                let prompt: String = field(row, "prompt")?;
                let answer: String = field(row, "answer")?;
                let (field_found, text) = if prompt.contains(OPEN) {
                    (HitField::Prompt, prompt)
                } else if answer.contains(OPEN) {
                    (HitField::Answer, answer)
                } else {
                    (HitField::Title, field(row, "title")?)
                };
                Ok(Hit {
                    turn: field(row, "id")?,
                    session: field(row, "session_id")?,
                    index: count(row, "position")?,
                    field: field_found,
                    snippet: bounded_snippet(&text),
                })
            })?;
            Ok(Listed { rows, skipped, next: None })
        })
    }
}

/// Makes a finished turn searchable. False if the search index is damaged: the end of a turn is
/// worth more than its place in the index.
pub(super) fn index(connection: &Connection, turn_seq: i64, answer: &str) -> Result<bool, StoreError> {
    let (prompt, title): (String, String) = connection
        .prepare_cached(
            "SELECT p.text, CASE WHEN t.position = 0 THEN s.title ELSE '' END
             FROM turns t JOIN sessions s ON s.id = t.session_id JOIN prompts p ON p.turn = t.seq
             WHERE t.seq = ?1",
        )?
        .query_row([turn_seq], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let inserted = connection
        .prepare_cached("INSERT INTO turn_text (rowid, prompt, answer, title) VALUES (?1, ?2, ?3, ?4)")
        .and_then(|mut insert| {
            insert.execute(params![turn_seq, indexable(&prompt), indexable(answer), indexable(&title)])
        });
    match inserted {
        Ok(_) => Ok(true),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The searched part of a text, without control characters.
fn indexable(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(MAX_INDEXED_BYTES)];
    cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Every word becomes a quoted string, which FTS5 takes literally. `None` if no word is left.
fn match_expression(query: &str) -> Option<String> {
    let words: Vec<String> = query
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .take(MAX_TERMS)
        .map(|word| {
            let word: String = word.chars().take(MAX_TERM).collect();
            format!("\"{}\"", word.replace('"', "\"\""))
        })
        .collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Cuts a snippet around the first match and takes the marks out.
fn bounded_snippet(text: &str) -> String {
    let before = text.split(OPEN).next().unwrap_or_default().chars().count();
    let from = before.saturating_sub(MAX_SNIPPET / 3);
    let mut rest = text.chars().filter(|c| *c != OPEN && *c != CLOSE).skip(from);
    let mut snippet = String::from(if from > 0 { "…" } else { "" });
    snippet.extend(rest.by_ref().take(MAX_SNIPPET - 2));
    if rest.next().is_some() {
        snippet.push('…');
    }
    snippet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_become_plain_words() {
        assert_eq!(
            match_expression("a\" OR * NEAR(b) title:x ^c"),
            Some("\"a\"\"\" \"OR\" \"NEAR(b)\" \"title:x\" \"^c\"".into())
        );
        assert_eq!(match_expression(" ** \"\" () \0 "), None);
    }

    #[test]
    fn a_snippet_shows_its_match_even_inside_a_huge_word() {
        let text = format!("{}{OPEN}needle{CLOSE}{}", "x".repeat(9000), "y".repeat(9000));
        let snippet = bounded_snippet(&text);
        assert!(snippet.contains("needle"));
        assert_eq!(snippet.chars().count(), MAX_SNIPPET);
    }
}
