//! Our entry in a TOML file. The parser gives the places; what is written goes between them, and the parser's
//! own output is never written, since it does not keep every byte.

use toml_edit::{Document, Item, Table, TableLike, Value};

use super::entry::{Leaf, Literal, Seen, SeenLeaf, Tree, is_our_name};
use super::merge::Wanted;
use super::splice::{self, Comments, Edit, Members, indent_of, line_end, line_start, next_line};
use super::toml_places::{body_lines, header_blocks, key_value_line, member_with, members, value_spans};
use super::unified::Veil;

type Parsed<'a> = Document<&'a str>;

fn parse(text: &str) -> Result<Parsed<'_>, String> {
    // The parser's own message shows the line with what is in it.
    Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line}: {}", error.message().lines().next().unwrap_or("not TOML"))
    })
}

/// What the file means.
pub(super) fn tree(text: &str) -> Result<Tree, String> {
    fn of_value(value: &Value, text: &str) -> Tree {
        match value {
            Value::String(string) => Tree::Leaf(format!("\"{}", string.value())),
            Value::Array(items) => Tree::List(items.iter().map(|item| of_value(item, text)).collect()),
            Value::InlineTable(table) => of_table(table, text),
            other => Tree::Leaf(other.span().and_then(|span| text.get(span)).unwrap_or_default().to_owned()),
        }
    }
    fn of_table(table: &dyn TableLike, text: &str) -> Tree {
        let entry = |(key, item): (&str, &Item)| {
            let tree = match item {
                Item::None => return None,
                Item::Value(value) => of_value(value, text),
                Item::Table(table) => of_table(table, text),
                Item::ArrayOfTables(tables) => {
                    Tree::List(tables.iter().map(|table| of_table(table, text)).collect())
                }
            };
            Some((key.to_owned(), tree))
        };
        let mut entries: Vec<_> = table.iter().filter_map(entry).collect();
        // The order of tables means nothing.
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Tree::Map(entries)
    }
    Ok(of_table(parse(text)?.as_table(), text))
}

fn section<'a>(document: &'a Parsed<'_>, section: &str) -> Result<Option<&'a dyn TableLike>, String> {
    match document.as_table().get(section) {
        None | Some(Item::None) => Ok(None),
        Some(item) => item.as_table_like().map(Some).ok_or(format!("`{section}` is not a table")),
    }
}

/// Every entry of ours.
pub(super) fn seen(text: &str, section_name: &str) -> Result<Vec<Seen>, String> {
    let document = parse(text)?;
    let Some(section) = section(&document, section_name)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (name, item) in section.iter().filter(|(name, _)| is_our_name(name)) {
        let entry = item.as_table_like().ok_or(format!("`{section_name}.{name}` is not a table"))?;
        let mut leaves = Vec::new();
        for (key, item) in entry.iter() {
            match item.as_table_like().filter(|_| key == "env") {
                Some(env) => {
                    leaves.extend(env.iter().map(|(variable, item)| leaf(text, &[key, variable], item)));
                }
                None => leaves.push(leaf(text, &[key], item)),
            }
        }
        found.push(Seen { name: name.to_owned(), leaves, twice: None });
    }
    Ok(found)
}

fn leaf(text: &str, path: &[&str], item: &Item) -> SeenLeaf {
    let raw = match item {
        Item::Value(value) => value.span().and_then(|span| text.get(span)).unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    let value = item.as_value().and_then(literal);
    SeenLeaf { path: path.iter().map(|part| (*part).to_owned()).collect(), raw, value }
}

/// What a value means, if it is something that we would write.
fn literal(value: &Value) -> Option<Literal> {
    match value {
        Value::String(string) => Some(Literal::Text(string.value().clone())),
        Value::Integer(number) => u64::try_from(*number.value()).ok().map(Literal::Number),
        Value::Boolean(yes) => yes.value().then_some(Literal::True),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .map(Literal::Texts),
        _ => None,
    }
}

/// What may be seen of a text.
pub(super) fn veil(text: &str, wanted: &Wanted) -> Result<Veil, String> {
    fn of_value(text: &str, value: &Value, path: &mut Vec<String>, wanted: &Wanted, veil: &mut Veil) {
        if wanted.may_show(path, literal(value).as_ref()) {
            return;
        }
        match value {
            Value::InlineTable(table) => of_table(text, table, path, wanted, veil),
            Value::Array(items) => {
                path.push("[]".to_owned());
                items.iter().for_each(|item| of_value(text, item, path, wanted, veil));
                path.pop();
            }
            other => veil.hidden.extend(other.span()),
        }
    }
    fn headed(text: &str, table: &Table, path: &mut Vec<String>, wanted: &Wanted, veil: &mut Veil) {
        if let Some(header) = table.span().filter(|_| !table.is_dotted() && !table.is_implicit()) {
            veil.sections.push((header.start..text.len(), text[header].to_owned()));
        }
        of_table(text, table, path, wanted, veil);
    }
    fn of_table(text: &str, table: &dyn TableLike, path: &mut Vec<String>, wanted: &Wanted, veil: &mut Veil) {
        for (key, item) in table.iter() {
            path.push(key.to_owned());
            match item {
                Item::None => {}
                Item::Value(value) => {
                    if wanted.is_own_entry(path) {
                        veil.own.extend(value.span());
                    }
                    of_value(text, value, path, wanted, veil);
                }
                Item::Table(table) => headed(text, table, path, wanted, veil),
                Item::ArrayOfTables(tables) => {
                    path.push("[]".to_owned());
                    tables.iter().for_each(|table| headed(text, table, path, wanted, veil));
                    path.pop();
                }
            }
            path.pop();
        }
    }
    let mut veil = Veil::default();
    of_table(text, parse(text)?.as_table(), &mut Vec::new(), wanted, &mut veil);
    veil.hidden.extend(splice::comments(text, Comments::Hash));
    Ok(veil)
}

/// A value as TOML, in the quotes of what was there if that can be.
fn render(value: &Literal, like: Option<&str>) -> String {
    match value {
        Literal::Text(text) => string(text, like),
        Literal::Texts(texts) => {
            let like = like.map(|raw| raw.trim_start_matches(['[', ' ', '\n', '\r', '\t']));
            format!("[{}]", texts.iter().map(|text| string(text, like)).collect::<Vec<_>>().join(", "))
        }
        Literal::Number(number) => number.to_string(),
        Literal::True => "true".into(),
    }
}

fn string(text: &str, like: Option<&str>) -> String {
    let can_be_literal = !text.contains('\'') && !text.chars().any(char::is_control);
    let literal = match like {
        Some(raw) if raw.starts_with('\'') => can_be_literal,
        Some(raw) if raw.starts_with('"') && !raw.starts_with("\"\"\"") => false,
        // Backslashes and quotes are easier to read without escapes.
        _ => can_be_literal && text.contains(['\\', '"']),
    };
    if literal {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn inline(leaves: &[Leaf]) -> String {
    format!("{{ {} }}", assignments(leaves, " = ").join(", "))
}

/// `key = value` for every key; the variables together.
fn assignments(leaves: &[Leaf], equals: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut env_done = false;
    for leaf in leaves {
        match leaf.path {
            [key] => lines.push(format!("{key}{equals}{}", render(&leaf.value, None))),
            _ if env_done => {}
            _ => {
                env_done = true;
                let variables: Vec<String> = leaves
                    .iter()
                    .filter_map(|leaf| match leaf.path {
                        [_, variable] => Some(format!("{variable} = {}", render(&leaf.value, None))),
                        _ => None,
                    })
                    .collect();
                lines.push(format!("env{equals}{{ {} }}", variables.join(", ")));
            }
        }
    }
    lines
}

/// The entry as it would be written into an empty file.
pub(super) fn snippet(section: &str, name: &str, leaves: &[Leaf]) -> String {
    let mut lines = vec![format!("[{section}.{name}]")];
    lines.extend(assignments(leaves, " = "));
    lines.join("\n") + "\n"
}

/// Adds our entry.
pub(super) fn add(text: &str, section_name: &str, name: &str, leaves: &[Leaf]) -> Result<Vec<Edit>, String> {
    let document = parse(text)?;
    if let Some(Item::Value(Value::InlineTable(table))) = document.as_table().get(section_name) {
        let members = members(text, table)?;
        let member = format!("{name} = {}", inline(leaves));
        return Ok(insert_inline(text, &members, &member));
    }
    section(&document, section_name)?;
    let eol = line_end(text);
    let mut lines = Vec::new();
    if !text.is_empty() {
        lines.push(String::new());
    }
    lines.extend(snippet(section_name, name, leaves).lines().map(str::to_owned));
    Ok(vec![splice::insert_lines(text, text.len(), &lines, eol)])
}

/// Takes our entry out.
pub(super) fn take_out(text: &str, section_name: &str, name: &str) -> Result<String, String> {
    let document = parse(text)?;
    let holder = document.as_table().get(section_name).ok_or("there is no entry")?;
    let edits = match (holder, holder.get(name)) {
        (Item::Value(Value::InlineTable(table)), Some(item)) => {
            let members = members(text, table)?;
            // Dotted keys in an inline table (`{ x.command = … }`) are several members.
            let spans = value_spans(item);
            let [one] = spans.as_slice() else { return Err("the entry is written in pieces".into()) };
            members.remove(text, member_with(&members, one)?)
        }
        (Item::Table(table), Some(Item::Value(value))) => {
            let line = key_value_line(text, table, name, value)?;
            vec![splice::remove_lines(text, line)]
        }
        (_, Some(Item::Table(table))) => {
            let mut pieces = Vec::new();
            if table.is_dotted() {
                body_lines(text, table, &mut pieces)?;
            }
            header_blocks(text, table, &mut pieces)?;
            splice::joined(pieces).into_iter().map(|piece| splice::remove_lines(text, piece)).collect()
        }
        _ => return Err("the entry is written in a way that is not understood".into()),
    };
    Ok(splice::apply(text, edits))
}

/// Sets a key of our entry.
pub(super) fn set(
    text: &str,
    section_name: &str,
    name: &str,
    path: &[&str],
    value: &Literal,
) -> Result<Vec<Edit>, String> {
    let document = parse(text)?;
    let entry = entry(&document, section_name, name)?;
    let there = |item: &Item, key: &str| item.get(key).filter(|item| !item.is_none()).cloned();
    let (holder, key, rendered) = match path {
        [key] => (entry.clone(), *key, render(value, None)),
        [outer, key] => match there(entry, outer) {
            Some(holder) if holder.is_table_like() => (holder, *key, render(value, None)),
            Some(_) => return Err(format!("`{outer}` is not a table")),
            None => (entry.clone(), *outer, format!("{{ {key} = {} }}", render(value, None))),
        },
        _ => return Err("too deep".into()),
    };
    if let Some(item) = there(&holder, key) {
        let old = item.as_value().and_then(Value::span).ok_or(format!("`{key}` is a table"))?;
        let text_of_value = render(value, text.get(old.clone()));
        return Ok(vec![Edit { at: old, text: text_of_value }]);
    }
    insert(text, &holder, key, &rendered)
}

/// Writes a value as it was written before.
pub(super) fn put_raw(
    text: &str,
    section_name: &str,
    name: &str,
    path: &[&str],
    raw: &str,
) -> Result<String, String> {
    let document = parse(text)?;
    let entry = entry(&document, section_name, name)?;
    let mut item = entry;
    for key in path {
        match item.get(*key) {
            Some(inner) => item = inner,
            None => return Ok(splice::apply(text, insert(text, item, key, raw)?)),
        }
    }
    let old = item.as_value().and_then(Value::span).ok_or("it is a table")?;
    Ok(splice::apply(text, vec![Edit { at: old, text: raw.to_owned() }]))
}

/// Takes a key of our entry out.
pub(super) fn unset(text: &str, section_name: &str, name: &str, path: &[&str]) -> Result<String, String> {
    let document = parse(text)?;
    let mut holder = entry(&document, section_name, name)?;
    let Some((key, outer)) = path.split_last() else { return Ok(text.to_owned()) };
    for part in outer {
        match holder.get(*part) {
            Some(inner) => holder = inner,
            None => return Ok(text.to_owned()),
        }
    }
    let edits = match (holder, holder.get(*key)) {
        (_, None) => return Ok(text.to_owned()),
        (Item::Value(Value::InlineTable(table)), Some(item)) => {
            let members = members(text, table)?;
            let spans = value_spans(item);
            let [one] = spans.as_slice() else { return Err("it is written in pieces".into()) };
            members.remove(text, member_with(&members, one)?)
        }
        (Item::Table(table), Some(Item::Value(value))) => {
            vec![splice::remove_lines(text, key_value_line(text, table, key, value)?)]
        }
        _ => return Err(format!("`{key}` is a table")),
    };
    Ok(splice::apply(text, edits))
}

fn entry<'a>(document: &'a Parsed<'_>, section: &str, name: &str) -> Result<&'a Item, String> {
    document.as_table().get(section).and_then(|item| item.get(name)).ok_or_else(|| "there is no entry".into())
}

/// Inserts `key = value` into a table that does not have the key, in the way the table is written.
fn insert(text: &str, holder: &Item, key: &str, value: &str) -> Result<Vec<Edit>, String> {
    let table = match holder {
        Item::Value(Value::InlineTable(table)) => {
            if table.is_dotted() {
                return Err("the entry is written in pieces".into());
            }
            let members = members(text, table)?;
            return Ok(insert_inline(text, &members, &format!("{key} = {value}")));
        }
        Item::Table(table) => table,
        _ => return Err("it is not a table".into()),
    };
    let mut lines = Vec::new();
    body_lines(text, table, &mut lines)?;
    let last = lines.iter().max_by_key(|line| line.end).cloned();
    let (at, start) = if table.is_dotted() {
        // The new line begins as the lines beside it do.
        let last = last.ok_or("the entry is written in pieces")?;
        let (first_key, _) = table.iter().next().ok_or("the table is empty")?;
        let key_at = table.key(first_key).and_then(toml_edit::Key::span).ok_or("a key has no place")?.start;
        (last.end, text[line_start(text, key_at)..key_at].to_owned())
    } else if table.is_implicit() {
        return Err("only parts of the entry are there".into());
    } else {
        match last {
            Some(last) => (last.end, indent_of(text, last.start).to_owned()),
            None => {
                let header = table.span().ok_or("a table has no place")?;
                (next_line(text, header.end), indent_of(text, header.start).to_owned())
            }
        }
    };
    let line = format!("{start}{key}{}{value}", equals(text, table));
    Ok(vec![splice::insert_lines(text, at, &[line], line_end(text))])
}

/// How this table writes its equals signs.
fn equals(text: &str, table: &Table) -> String {
    let habit = table.iter().find_map(|(key, item)| {
        let key_end = table.key(key)?.span()?.end;
        let between = text.get(key_end..item.as_value()?.span()?.start)?;
        (between.trim_matches([' ', '\t']) == "=" && between.len() <= 3).then(|| between.to_owned())
    });
    habit.unwrap_or_else(|| " = ".into())
}

fn insert_inline(text: &str, members: &Members, member: &str) -> Vec<Edit> {
    let on_line = members.on_lines(text).then(|| {
        let indent = members.items.last().map_or("", |last| indent_of(text, last.start));
        format!("{}{indent}", line_end(text))
    });
    members.insert(text, member, on_line.as_deref(), " ")
}

/// After a key was taken out: what is empty now is made what it was before, empty as it was written or not there.
pub(super) fn tidy(
    text: &str,
    before: &str,
    section_name: &str,
    name: &str,
    old_name: &str,
    path: &[&str],
) -> Result<String, String> {
    let Some((_, outer)) = path.split_last() else { return Ok(text.to_owned()) };
    let document = parse(text)?;
    let old_document = parse(before)?;
    let descend = |mut item: Option<Item>| {
        for part in outer {
            item = item.and_then(|item| item.get(*part).cloned());
        }
        item
    };
    let now = descend(Some(entry(&document, section_name, name)?.clone()));
    let was = descend(Some(entry(&old_document, section_name, old_name)?.clone()));
    let Some(Item::Value(Value::InlineTable(table))) = &now else { return Ok(text.to_owned()) };
    if !table.is_empty() {
        return Ok(text.to_owned());
    }
    match was {
        None => unset(text, section_name, name, outer),
        Some(Item::Value(value)) => {
            let (at, old) = (table.span().ok_or("no place")?, value.span().ok_or("no place")?);
            Ok(splice::apply(text, vec![Edit { at, text: before[old].to_owned() }]))
        }
        Some(_) => Ok(text.to_owned()),
    }
}
