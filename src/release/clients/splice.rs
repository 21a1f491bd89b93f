//! Changing a text by replacing byte ranges of it, in the text's own dialect.

use std::ops::Range;

/// One replaced range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    /// What goes.
    pub at: Range<usize>,
    /// What comes.
    pub text: String,
}

impl Edit {
    pub(super) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self { at: at..at, text: text.into() }
    }

    pub(super) fn remove(at: Range<usize>) -> Self {
        Self { at, text: String::new() }
    }
}

/// The text with these ranges replaced. They must not overlap.
pub(super) fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
    let mut out = String::with_capacity(text.len() + edits.iter().map(|edit| edit.text.len()).sum::<usize>());
    let mut from = 0;
    for edit in edits {
        out.push_str(text.get(from..edit.at.start).unwrap_or_default());
        out.push_str(&edit.text);
        from = from.max(edit.at.end);
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}

/// The line end that most lines have; of a text of one line that of this project.
pub(super) fn line_end(text: &str) -> &'static str {
    let all = text.matches('\n').count();
    let carriage = text.matches("\r\n").count();
    if carriage * 2 > all { "\r\n" } else { "\n" }
}

/// Where the line of this byte begins.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |found| found + 1)
}

/// Where the next line begins, or the end of the text.
pub(super) fn next_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |found| at + found + 1)
}

/// Whether the text ends within its last line.
pub(super) fn lacks_final_line_end(text: &str) -> bool {
    !text.is_empty() && !text.ends_with('\n')
}

/// Inserts whole lines before the line that begins at `at`; there is none at the end of the text. If the text
/// has no last line end, it has none after either.
pub(super) fn insert_lines(text: &str, at: usize, lines: &[String], eol: &str) -> Edit {
    if at == text.len() && lacks_final_line_end(text) {
        return Edit::insert(at, format!("{eol}{}", lines.join(eol)));
    }
    let whole: String = lines.iter().flat_map(|line| [line.as_str(), eol]).collect();
    Edit::insert(at, whole)
}

/// Removes whole lines; the inverse of [`insert_lines`].
pub(super) fn remove_lines(text: &str, lines: Range<usize>) -> Edit {
    let mut start = lines.start;
    if lines.end == text.len() && lacks_final_line_end(text) {
        start -= line_end_before(text, start);
    }
    Edit::remove(start..lines.end)
}

/// Lines that follow each other as one piece: only of the last of them the line end before may have to go.
pub(super) fn joined(mut pieces: Vec<Range<usize>>) -> Vec<Range<usize>> {
    pieces.sort_by_key(|piece| piece.start);
    let mut all: Vec<Range<usize>> = Vec::new();
    for piece in pieces {
        match all.last_mut() {
            Some(last) if piece.start <= last.end => last.end = last.end.max(piece.end),
            _ => all.push(piece),
        }
    }
    all
}

/// Length of the line end right before this byte.
pub(super) fn line_end_before(text: &str, at: usize) -> usize {
    let before = &text[..at];
    match () {
        () if before.ends_with("\r\n") => 2,
        () if before.ends_with('\n') => 1,
        () => 0,
    }
}

/// White space at the begin of the line of this byte.
pub(super) fn indent_of(text: &str, at: usize) -> &str {
    let line = &text[line_start(text, at)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// How comments begin in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comments {
    None,
    /// `//` and `/* */`.
    Slashes,
    /// `#`.
    Hash,
}

/// The members between a pair of brackets: of an object, an array, an inline table.
#[derive(Clone, Debug)]
pub(super) struct Members {
    /// What is between the brackets.
    pub inside: Range<usize>,
    /// Each member, without what is around it.
    pub items: Vec<Range<usize>>,
    pub comments: Comments,
    /// What follows a comma on one line.
    pub gap: &'static str,
}

impl Members {
    /// The comma between a member and what follows it.
    fn comma_after(&self, text: &str, index: usize) -> Option<usize> {
        let from = self.items.get(index)?.end;
        let to = self.items.get(index + 1).map_or(self.inside.end, |next| next.start);
        scan(text, from..to, self.comments).0
    }

    /// Whether members stand on lines of their own.
    pub(super) fn on_lines(&self, text: &str) -> bool {
        match self.items.last() {
            Some(last) => {
                let before = &text[self.inside.start..last.start];
                before.trim_end_matches([' ', '\t']).ends_with('\n')
            }
            None => text[self.inside.clone()].contains('\n'),
        }
    }

    /// Inserts a member after the last one. `on_line` is what comes before a member on a line of its own
    /// (line end and indentation), `closing` what comes before the bracket if the list was empty.
    pub(super) fn insert(&self, text: &str, member: &str, on_line: Option<&str>, closing: &str) -> Vec<Edit> {
        let Some(last) = self.items.last() else { return self.fill(text, member, on_line, closing) };
        let gap = match on_line {
            Some(gap) => gap.to_owned(),
            None => match self.items.len() {
                // As between the two members before.
                2.. => {
                    let index = self.items.len() - 2;
                    let comma = self.comma_after(text, index).unwrap_or(self.items[index].end);
                    let gap = text.get(comma + 1..last.start).unwrap_or(self.gap);
                    if gap.bytes().all(|byte| matches!(byte, b' ' | b'\t')) { gap } else { self.gap }
                        .to_owned()
                }
                _ => self.gap.to_owned(),
            },
        };
        let (comma, comments_end) = scan(text, last.end..self.inside.end, self.comments);
        match comma {
            // The habit of a comma after the last member is kept.
            Some(comma) => {
                let at = comments_end.map_or(comma + 1, |end| end.max(comma + 1));
                vec![Edit::insert(at, format!("{gap}{member},"))]
            }
            None => match comments_end {
                None => vec![Edit::insert(last.end, format!(",{gap}{member}"))],
                Some(end) => {
                    let gap = if on_line.is_none() && text[last.end..end].contains(['/', '#']) {
                        // After a comment to the end of its line nothing may follow on that line.
                        format!("{}{}", line_end(text), indent_of(text, last.start))
                    } else {
                        gap
                    };
                    vec![Edit::insert(last.end, ","), Edit::insert(end, format!("{gap}{member}"))]
                }
            },
        }
    }

    fn fill(&self, text: &str, member: &str, on_line: Option<&str>, closing: &str) -> Vec<Edit> {
        let (_, comments_end) = scan(text, self.inside.clone(), self.comments);
        match comments_end {
            None => {
                let gap = on_line.unwrap_or(if closing.is_empty() { "" } else { " " });
                vec![Edit { at: self.inside.clone(), text: format!("{gap}{member}{closing}") }]
            }
            Some(end) => {
                let tail = &text[end..self.inside.end];
                let gap = on_line.unwrap_or("\n");
                let closing = if tail.contains('\n') { "" } else { closing };
                vec![Edit::insert(end, format!("{gap}{member}{closing}"))]
            }
        }
    }

    /// Takes a member out; the inverse of [`Self::insert`] for the last one.
    pub(super) fn remove(&self, text: &str, index: usize) -> Vec<Edit> {
        let Some(item) = self.items.get(index) else { return Vec::new() };
        let start = self.gap_before(text, item.start);
        let previous_comma = index.checked_sub(1).and_then(|previous| self.comma_after(text, previous));
        match (self.comma_after(text, index), previous_comma) {
            (Some(comma), _) => {
                vec![Edit::remove(start..item.end), Edit::remove(comma..comma + 1)]
            }
            (None, Some(comma)) if comma + 1 < start => {
                vec![Edit::remove(comma..comma + 1), Edit::remove(start..item.end)]
            }
            (None, Some(comma)) => vec![Edit::remove(comma..item.end)],
            (None, None) => {
                // The only one. Without comments the list is empty then.
                if scan(text, self.inside.start..item.start, self.comments).1.is_none()
                    && scan(text, item.end..self.inside.end, self.comments).1.is_none()
                {
                    vec![Edit::remove(self.inside.clone())]
                } else {
                    vec![Edit::remove(start..item.end)]
                }
            }
        }
    }

    /// Where the white space before this byte begins. The line end that closes a comment is left.
    fn gap_before(&self, text: &str, at: usize) -> usize {
        let before = &text[self.inside.start..at];
        let trimmed = before.trim_end_matches([' ', '\t', '\r', '\n']);
        self.inside.start + trimmed.len()
    }
}

/// The first comma in a range that holds only white space, comments and at most one comma, and the end of the
/// last comment.
fn scan(text: &str, range: Range<usize>, comments: Comments) -> (Option<usize>, Option<usize>) {
    let bytes = text.as_bytes();
    let (mut comma, mut end) = (None, None);
    let mut at = range.start;
    while at < range.end {
        let rest = &text[at..range.end];
        let line = || rest.find(['\n', '\r']).unwrap_or(rest.len());
        let length = match comments {
            Comments::Slashes if rest.starts_with("//") => line(),
            Comments::Slashes if rest.starts_with("/*") => {
                rest.find("*/").map_or(rest.len(), |found| found + 2)
            }
            Comments::Hash if rest.starts_with('#') => line(),
            _ => 0,
        };
        if length > 0 {
            at += length;
            end = Some(at);
            continue;
        }
        if bytes[at] == b',' && comma.is_none() {
            comma = Some(at);
        }
        at += 1;
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    (comma, end)
}

/// The comments of a whole text.
pub(super) fn comments(text: &str, comments: Comments) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        let line = || rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
        let comment = match comments {
            Comments::Slashes if rest.starts_with(b"//") => Some(line()),
            Comments::Slashes if rest.starts_with(b"/*") => {
                Some(text[at..].find("*/").map_or(rest.len(), |found| found + 2))
            }
            Comments::Hash if rest[0] == b'#' => Some(line()),
            _ => None,
        };
        at += match (comment, rest[0]) {
            (Some(length), _) => {
                found.push(at..at + length);
                length
            }
            (None, b'"') => quoted_length(&text[at..]),
            (None, b'\'') if comments == Comments::Hash => quoted_length(&text[at..]),
            _ => 1,
        };
    }
    found
}

/// Length of the string at the begin of a text.
pub(super) fn quoted_length(text: &str) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let (open, close) = if text.starts_with(&triple) { (3, triple.as_str()) } else { (1, quote) };
    let mut at = open;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest[0] == b'\\' && quote == "\"" {
            at += 2;
        } else if rest.starts_with(close.as_bytes()) {
            at += close.len();
            // Up to two more quotes may stand before the closing three.
            while close.len() == 3 && text.as_bytes().get(at) == Some(&quote.as_bytes()[0]) {
                at += 1;
            }
            return at;
        } else {
            at += 1;
        }
    }
    text.len()
}
