//! Our entry in a JSON file, and our item in a list of one.

use serde_json::{Map, Value};

use super::entry::{Leaf, Literal, Seen, SeenLeaf, Tree, is_our_name};
use super::json::{Kind, Node, parse};
use super::merge::Wanted;
use super::splice::{self, Comments, Edit, indent_of, line_end};
use super::unified::Veil;

/// What the file means.
pub(super) fn tree(text: &str, comments: bool) -> Result<Tree, String> {
    fn of(node: &Node, text: &str) -> Tree {
        match &node.kind {
            Kind::Object(properties) => {
                Tree::Map(properties.iter().map(|one| (one.key.clone(), of(&one.value, text))).collect())
            }
            Kind::Array(elements) => Tree::List(elements.iter().map(|one| of(one, text)).collect()),
            // A text is never the same as a number or a word.
            Kind::Text(value) if !value.contains('\u{fffd}') => Tree::Leaf(format!("\"{value}")),
            _ => Tree::Leaf(text.get(node.span.clone()).unwrap_or_default().to_owned()),
        }
    }
    Ok(of(&parse(text, comments)?, text))
}

/// The object at a path; none if it is not there.
fn object_at<'a>(root: &'a Node, path: &[&str]) -> Result<Option<&'a Node>, String> {
    let mut node = root;
    for (depth, key) in path.iter().enumerate() {
        let properties = node.properties().ok_or_else(|| not_an_object(&path[..depth]))?;
        if properties.iter().filter(|one| one.key == *key).count() > 1 {
            return Err(format!("the key `{key}` occurs twice"));
        }
        match node.get(key) {
            Some(inner) => node = inner,
            None => return Ok(None),
        }
    }
    match node.properties() {
        Some(_) => Ok(Some(node)),
        None => Err(not_an_object(path)),
    }
}

fn not_an_object(path: &[&str]) -> String {
    match path {
        [] => "it does not hold an object".into(),
        path => format!("`{}` is not an object", path.join(".")),
    }
}

/// Every entry of ours.
pub(super) fn seen(text: &str, comments: bool, section: &str) -> Result<Vec<Seen>, String> {
    let root = parse(text, comments)?;
    let Some(servers) = object_at(&root, &[section])? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for one in servers.properties().unwrap_or_default().iter().filter(|one| is_our_name(&one.key)) {
        let properties =
            one.value.properties().ok_or_else(|| format!("`{section}.{}` is not an object", one.key))?;
        let mut twice = None;
        let mut leaves: Vec<SeenLeaf> = Vec::new();
        let mut keep = |path: &[&str], node: &Node| {
            let leaf = leaf(text, path, node);
            if leaves.iter().any(|known| known.path == leaf.path) {
                twice = Some(path.join("."));
            }
            leaves.push(leaf);
        };
        let mut environments = 0;
        for property in properties {
            match property.value.properties().filter(|_| property.key == "env") {
                Some(variables) => {
                    environments += 1;
                    variables.iter().for_each(|one| keep(&["env", &one.key], &one.value));
                }
                None => keep(&[&property.key], &property.value),
            }
        }
        if environments > 1 {
            twice = Some("env".into());
        }
        found.push(Seen { name: one.key.clone(), leaves, twice });
    }
    Ok(found)
}

fn leaf(text: &str, path: &[&str], node: &Node) -> SeenLeaf {
    let value = match &node.kind {
        Kind::Text(value) => Some(Literal::Text(value.clone())),
        Kind::Number => text.get(node.span.clone()).and_then(|raw| raw.parse().ok()).map(Literal::Number),
        Kind::True => Some(Literal::True),
        Kind::Array(items) => items
            .iter()
            .map(|item| item.text().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .map(Literal::Texts),
        _ => None,
    };
    SeenLeaf {
        path: path.iter().map(|part| (*part).to_owned()).collect(),
        raw: text.get(node.span.clone()).unwrap_or_default().to_owned(),
        value,
    }
}

/// What may be seen of a text.
pub(super) fn veil(text: &str, comments: bool, wanted: &Wanted) -> Result<Veil, String> {
    fn walk(text: &str, node: &Node, path: &mut Vec<String>, wanted: &Wanted, veil: &mut Veil) {
        let value = leaf(text, &[], node).value;
        if wanted.may_show(path, value.as_ref()) {
            return;
        }
        match &node.kind {
            Kind::Object(properties) => {
                if !path.is_empty() {
                    veil.sections.push((node.span.clone(), path.join(".")));
                }
                for one in properties {
                    path.push(one.key.clone());
                    if wanted.is_own_entry(path) {
                        veil.own.push(one.span.clone());
                    }
                    walk(text, &one.value, path, wanted, veil);
                    path.pop();
                }
            }
            Kind::Array(elements) => {
                for one in elements {
                    path.push("[]".to_owned());
                    walk(text, one, path, wanted, veil);
                    path.pop();
                }
            }
            _ => veil.hidden.push(node.span.clone()),
        }
    }
    let mut veil = Veil::default();
    walk(text, &parse(text, comments)?, &mut Vec::new(), wanted, &mut veil);
    if comments {
        veil.hidden.extend(splice::comments(text, Comments::Slashes));
    }
    Ok(veil)
}

/// The entry as a value.
fn entry_value(leaves: &[Leaf]) -> Value {
    let mut entry = Map::new();
    for leaf in leaves {
        match leaf.path {
            [key] => {
                entry.insert((*key).to_owned(), leaf.value.to_json());
            }
            [outer, key] => {
                let inner = entry.entry((*outer).to_owned()).or_insert_with(|| Value::Object(Map::new()));
                inner[*key] = leaf.value.to_json();
            }
            _ => {}
        }
    }
    Value::Object(entry)
}

/// The entry as it would be written into an empty file.
pub(super) fn snippet(section: &str, name: &str, leaves: &[Leaf]) -> String {
    let style = Style { on_lines: true, unit: "  ".into(), eol: "\n", colon: ": ", gap: " " };
    style.render(&nested(section, nested(name, entry_value(leaves))), "") + "\n"
}

fn nested(key: &str, value: Value) -> Value {
    let mut object = Map::new();
    object.insert(key.to_owned(), value);
    Value::Object(object)
}

/// Adds our entry.
pub(super) fn add(
    text: &str,
    comments: bool,
    section: &str,
    name: &str,
    leaves: &[Leaf],
) -> Result<Vec<Edit>, String> {
    put(text, comments, &[section, name], &entry_value(leaves))
}

/// Sets a key of our entry.
pub(super) fn set(text: &str, comments: bool, path: &[&str], value: &Literal) -> Result<Vec<Edit>, String> {
    put(text, comments, path, &value.to_json())
}

/// Writes a value as it was written before.
pub(super) fn put_raw(text: &str, comments: bool, path: &[&str], raw: &str) -> Result<String, String> {
    let root = parse(text, comments)?;
    match root.at(path) {
        Some(node) => Ok(splice::apply(text, vec![Edit { at: node.span.clone(), text: raw.to_owned() }])),
        None => {
            let marker = Value::String("\u{1}".into());
            let with_marker = splice::apply(text, put(text, comments, path, &marker)?);
            Ok(with_marker.replacen(&marker.to_string(), raw, 1))
        }
    }
}

/// Puts a value at a path: over what is there, or into the deepest object that is there.
fn put(text: &str, comments: bool, path: &[&str], value: &Value) -> Result<Vec<Edit>, String> {
    let root = parse(text, comments)?;
    let mut node = &root;
    for (depth, key) in path.iter().enumerate() {
        let properties = node.properties().ok_or_else(|| not_an_object(&path[..depth]))?;
        if properties.iter().filter(|one| one.key == *key).count() > 1 {
            return Err(format!("the key `{key}` occurs twice"));
        }
        if let Some(inner) = node.get(key) {
            node = inner;
            continue;
        }
        let style = Style::of(text, &root, node, comments);
        let inner = path[depth + 1..].iter().rev().fold(value.clone(), |value, key| nested(key, value));
        return Ok(insert(text, node, comments, &style, |style, indent| {
            format!("{}{}{}", Value::from(*key), style.colon, style.render(&inner, indent))
        }));
    }
    let style = Style::of(text, &root, node, comments);
    let rendered = style.render(value, indent_of(text, node.span.start));
    Ok(vec![Edit { at: node.span.clone(), text: rendered }])
}

/// Inserts a member at the end of an object or a list.
fn insert(
    text: &str,
    holder: &Node,
    comments: bool,
    style: &Style,
    member: impl Fn(&Style, &str) -> String,
) -> Vec<Edit> {
    let Some(members) = holder.members(comments, style.gap) else { return Vec::new() };
    if !style.on_lines {
        return members.insert(text, &member(style, ""), None, "");
    }
    let outer = indent_of(text, holder.span.start).to_owned();
    let indent = match members.items.last() {
        Some(last) if members.on_lines(text) => indent_of(text, last.start).to_owned(),
        _ => format!("{outer}{}", style.unit),
    };
    let on_line = format!("{}{indent}", style.eol);
    members.insert(text, &member(style, &indent), Some(&on_line), &format!("{}{outer}", style.eol))
}

/// Takes what is at a path out, and what had to be made to hold it: `before` tells what was there then.
pub(super) fn take_out(
    text: &str,
    comments: bool,
    path: &[&str],
    before: Option<&str>,
) -> Result<String, String> {
    let Some((key, outer)) = path.split_last() else { return Ok(text.to_owned()) };
    let root = parse(text, comments)?;
    let Some(holder) = object_at(&root, outer)? else { return Ok(text.to_owned()) };
    let properties = holder.properties().unwrap_or_default();
    let Some(index) = properties.iter().position(|one| one.key == *key) else { return Ok(text.to_owned()) };
    let members = holder.members(comments, " ").ok_or_else(|| not_an_object(outer))?;
    let taken = splice::apply(text, members.remove(text, index));
    tidy(&taken, comments, outer, before)
}

/// What is empty now is made what it was: empty as it was written, or not there.
fn tidy(text: &str, comments: bool, path: &[&str], before: Option<&str>) -> Result<String, String> {
    let Some(before) = before else { return Ok(text.to_owned()) };
    let root = parse(text, comments)?;
    let Some(node) = root.at(path).filter(|node| is_empty(node)) else { return Ok(text.to_owned()) };
    let old_root = parse(before, comments)?;
    match old_root.at(path) {
        Some(old) if is_empty(old) => {
            let raw = before.get(old.span.clone()).unwrap_or("{}").to_owned();
            Ok(splice::apply(text, vec![Edit { at: node.span.clone(), text: raw }]))
        }
        None if !path.is_empty() => take_out(text, comments, path, Some(before)),
        _ => Ok(text.to_owned()),
    }
}

fn is_empty(node: &Node) -> bool {
    node.properties().is_some_and(<[_]>::is_empty) || node.elements().is_some_and(<[_]>::is_empty)
}

/// Whether a list has this text.
pub(super) fn list_has(text: &str, comments: bool, path: &[&str], item: &str) -> Result<bool, String> {
    let root = parse(text, comments)?;
    Ok(match list_at(&root, path)? {
        Some(list) => list.elements().unwrap_or_default().iter().any(|one| one.text() == Some(item)),
        None => false,
    })
}

fn list_at<'a>(root: &'a Node, path: &[&str]) -> Result<Option<&'a Node>, String> {
    let Some((key, outer)) = path.split_last() else { return Ok(None) };
    let Some(holder) = object_at(root, outer)? else { return Ok(None) };
    match holder.get(key) {
        None => Ok(None),
        Some(node) if node.elements().is_some() => Ok(Some(node)),
        Some(_) => Err(format!("`{}` is not a list", path.join("."))),
    }
}

/// Adds a text to a list.
pub(super) fn list_add(text: &str, comments: bool, path: &[&str], item: &str) -> Result<Vec<Edit>, String> {
    let root = parse(text, comments)?;
    let Some(list) = list_at(&root, path)? else {
        return put(text, comments, path, &serde_json::json!([item]));
    };
    let mut style = Style::of(text, &root, list, comments);
    if list.elements().is_some_and(<[_]>::is_empty) {
        style.on_lines = false;
    }
    Ok(insert(text, list, comments, &style, |_, _| Value::from(item).to_string()))
}

/// Takes a text out of a list.
pub(super) fn list_take_out(
    text: &str,
    comments: bool,
    path: &[&str],
    item: &str,
    before: Option<&str>,
) -> Result<String, String> {
    let root = parse(text, comments)?;
    let Some(list) = list_at(&root, path)? else { return Ok(text.to_owned()) };
    let elements = list.elements().unwrap_or_default();
    let Some(index) = elements.iter().position(|one| one.text() == Some(item)) else {
        return Ok(text.to_owned());
    };
    let members = list.members(comments, " ").ok_or("it is not a list")?;
    let taken = splice::apply(text, members.remove(text, index));
    tidy(&taken, comments, path, before)
}

/// How a file is laid out.
struct Style {
    on_lines: bool,
    unit: String,
    eol: &'static str,
    colon: &'static str,
    gap: &'static str,
}

impl Style {
    /// As it is where something will be put into `holder`.
    fn of(text: &str, root: &Node, holder: &Node, comments: bool) -> Self {
        let members = |node: &Node| node.members(comments, " ");
        let root_on_lines = members(root).is_some_and(|one| one.on_lines(text) || one.items.is_empty());
        let on_lines = match members(holder) {
            Some(one) if !one.items.is_empty() => one.on_lines(text),
            _ => root_on_lines,
        };
        let first = root.properties().and_then(<[_]>::first);
        let unit = first
            .filter(|one| text[root.span.start..one.span.start].contains('\n'))
            .map(|one| indent_of(text, one.span.start))
            .filter(|indent| !indent.is_empty())
            .unwrap_or("  ")
            .to_owned();
        let beside = holder.properties().and_then(<[_]>::first).or(first);
        let tight = beside.is_some_and(|one| text[one.span.start..one.value.span.start].ends_with(':'));
        let (colon, gap) = if tight { (":", "") } else { (": ", " ") };
        Self { on_lines, unit, eol: line_end(text), colon, gap }
    }

    fn render(&self, value: &Value, indent: &str) -> String {
        match value {
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.render(item, indent)).collect();
                format!("[{}]", items.join(&format!(",{}", self.gap)))
            }
            Value::Object(entries) => {
                let inner = format!("{indent}{}", self.unit);
                let members = entries.iter().map(|(key, value)| {
                    format!("{}{}{}", Value::from(key.as_str()), self.colon, self.render(value, &inner))
                });
                let members: Vec<String> = members.collect();
                if self.on_lines {
                    let lines: Vec<String> = members.iter().map(|line| format!("{inner}{line}")).collect();
                    format!("{{{eol}{}{eol}{indent}}}", lines.join(&format!(",{}", self.eol)), eol = self.eol)
                } else {
                    format!("{{{}}}", members.join(&format!(",{}", self.gap)))
                }
            }
            other => other.to_string(),
        }
    }
}
