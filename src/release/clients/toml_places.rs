//! Which bytes of a TOML file belong to a key, a table, a member of an inline table.

use std::ops::Range;

use toml_edit::{InlineTable, Item, Table, Value};

use super::splice::{self, Comments, Members, line_start, next_line, quoted_length};

/// The lines of a table's own body, dotted keys included, without what has a header of its own.
pub(super) fn body_lines(text: &str, table: &Table, lines: &mut Vec<Range<usize>>) -> Result<(), String> {
    for (key, item) in table.iter() {
        match item {
            Item::Value(value) => lines.push(key_value_line(text, table, key, value)?),
            Item::Table(inner) if inner.is_dotted() => body_lines(text, inner, lines)?,
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn key_value_line(
    text: &str,
    table: &Table,
    key: &str,
    value: &Value,
) -> Result<Range<usize>, String> {
    let no_place = || format!("`{key}` has no place");
    let key_at = table.key(key).and_then(toml_edit::Key::span).ok_or_else(no_place)?.start;
    let end = value.span().ok_or_else(no_place)?.end;
    Ok(line_start(text, key_at)..next_line(text, end))
}

/// The lines of a table with a header and of everything below it, each with the empty line before it.
pub(super) fn header_blocks(text: &str, table: &Table, blocks: &mut Vec<Range<usize>>) -> Result<(), String> {
    if !table.is_dotted()
        && !table.is_implicit()
        && let Some(header) = table.span()
    {
        let mut lines = Vec::new();
        body_lines(text, table, &mut lines)?;
        let mut start = line_start(text, header.start);
        let end = lines.iter().map(|line| line.end).chain([next_line(text, header.end)]).max();
        // One empty line before a table belongs to it.
        let line_end = splice::line_end_before(text, start);
        if line_end > 0 && splice::line_end_before(text, start - line_end) > 0 {
            start -= line_end;
        }
        blocks.push(start..end.unwrap_or(header.end));
    }
    for (_, item) in table.iter() {
        match item {
            Item::Table(inner) => header_blocks(text, inner, blocks)?,
            Item::ArrayOfTables(tables) => {
                for inner in tables.iter() {
                    header_blocks(text, inner, blocks)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The places of all values below.
pub(super) fn value_spans(item: &Item) -> Vec<Range<usize>> {
    fn of_value(value: &Value, spans: &mut Vec<Range<usize>>) {
        match value {
            Value::InlineTable(table) if table.is_dotted() => {
                for (_, value) in table.iter() {
                    of_value(value, spans);
                }
            }
            other => spans.extend(other.span()),
        }
    }
    let mut spans = Vec::new();
    if let Item::Value(value) = item {
        of_value(value, &mut spans);
    }
    spans
}

pub(super) fn member_with(members: &Members, value: &Range<usize>) -> Result<usize, String> {
    let holds = |item: &Range<usize>| item.start <= value.start && value.end <= item.end;
    members.items.iter().position(holds).ok_or_else(|| "a key has no place".into())
}

/// The members of an inline table, found by their commas.
pub(super) fn members(text: &str, table: &InlineTable) -> Result<Members, String> {
    let span = table.span().filter(|_| !table.is_dotted()).ok_or("the table is written in pieces")?;
    let inside = span.start + 1..span.end.saturating_sub(1);
    let bytes = text.as_bytes();
    let mut items = Vec::new();
    let mut current: Option<Range<usize>> = None;
    let (mut at, mut depth) = (inside.start, 0usize);
    while at < inside.end {
        let start = at;
        at += match bytes[at] {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'#' => {
                at = next_line(text, at).min(inside.end);
                continue;
            }
            b',' if depth == 0 => {
                items.extend(current.take());
                at += 1;
                continue;
            }
            b'"' | b'\'' => quoted_length(&text[at..inside.end]),
            byte => {
                match byte {
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                1
            }
        };
        current = Some(current.map_or(start, |range| range.start)..at);
    }
    items.extend(current);
    if items.len() == table.iter().count() || table.iter().any(|(_, value)| is_dotted(value)) {
        Ok(Members { inside, items, comments: Comments::Hash, gap: " " })
    } else {
        Err("an inline table is not understood".into())
    }
}

fn is_dotted(value: &Value) -> bool {
    matches!(value, Value::InlineTable(table) if table.is_dotted())
}
