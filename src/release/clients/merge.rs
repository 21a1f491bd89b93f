//! Putting our entry into a text and taking it out again, whatever the format: planned as steps that each change
//! one place, then checked as a whole.

use super::entry::{Leaf, Literal, Seen, SeenLeaf, Tree, is_our_name};
use super::patch::{self, Changes, Hunk};
use super::splice::{self, Edit};
use super::table::Format;
use super::{edit_json, edit_toml};

/// U+FEFF at the begin of a file.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// What goes into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A server.
    Server {
        /// Under which key.
        section: &'static str,
        /// Its keys, the command first.
        leaves: Vec<Leaf>,
    },
    /// A text in a list.
    Item {
        /// Where the list is.
        path: &'static [&'static str],
        /// The text.
        text: String,
    },
}

impl Wanted {
    /// Whether a value at this path of the file may be shown to anybody.
    pub(super) fn may_show(&self, path: &[String], value: Option<&Literal>) -> bool {
        let Some(value) = value else { return false };
        match self {
            Self::Item { path: list, text } => {
                path.split_last().is_some_and(|(_, outer)| outer == *list)
                    && matches!(value, Literal::Text(item) if item == text)
            }
            Self::Server { section, leaves } => match path {
                [first, name, inner @ ..] if first == section && is_our_name(name) => {
                    leaves.iter().any(|leaf| leaf.path == inner && may_show(leaf, value))
                }
                _ => false,
            },
        }
    }

    /// Whether our entry is at this path.
    pub(super) fn is_own_entry(&self, path: &[String]) -> bool {
        match (self, path) {
            (Self::Server { section, .. }, [first, name]) => first == section && is_our_name(name),
            _ => false,
        }
    }
}

/// Whether a value of one of our keys may be shown.
fn may_show(leaf: &Leaf, value: &Literal) -> bool {
    match value {
        value if *value == leaf.value => true,
        // Arguments may hold anything, a token as well; a plain path and a number do not.
        Literal::Text(text) => !text.contains(['=', '@', '?', ' ']),
        Literal::Number(_) | Literal::True => true,
        Literal::Texts(args) => args.iter().all(|arg| arg == "serve"),
    }
}

/// What was found of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing.
    Absent,
    /// What we want.
    Correct,
    /// Something else.
    Stale,
    /// It starts a program inside one release, which a later cutover would not reach.
    DirectRelease,
}

/// Why a text is not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not what the client reads.
    Broken(String),
    /// More than one entry; their names.
    Ambiguous(Vec<String>),
    /// Not understood well enough.
    Unsupported(String),
}

/// A text with our entry in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// What was there.
    pub state: State,
    /// The name of the entry.
    pub name: String,
    /// The new text; the old one if nothing is to be done.
    pub after: String,
    /// The places that were changed; everything between them is the same bytes.
    pub patch: Vec<Hunk>,
    /// Whether a byte order mark was taken off.
    pub mark_removed: bool,
}

/// Puts what is wanted into a text.
pub fn merge(format: Format, keeps_mark: bool, text: &str, wanted: &Wanted) -> Result<Merged, Refusal> {
    let (mark, body) = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(body) => (BYTE_ORDER_MARK, body),
        None => ("", text),
    };
    let (mut merged, changes) = merge_body(format, body, wanted)?;
    merged.mark_removed = !mark.is_empty() && !keeps_mark;
    if !merged.mark_removed {
        merged.after.insert_str(0, mark);
    }
    merged.patch = changes.hunks(mark.len(), !merged.mark_removed);
    if patch::applied(text, &merged.patch).as_ref() != Some(&merged.after) {
        return Err(Refusal::Unsupported("the change cannot be told place by place".into()));
    }
    Ok(merged)
}

fn merge_body(format: Format, text: &str, wanted: &Wanted) -> Result<(Merged, Changes), Refusal> {
    tree(format, text).map_err(Refusal::Broken)?;
    let mut changes = Changes::none(text.len());
    let mut change = |text: &str, edits: Result<Vec<Edit>, String>| {
        let edits = edits.map_err(Refusal::Unsupported)?;
        changes.make(&edits);
        Ok(splice::apply(text, edits))
    };
    let (state, name, after) = match wanted {
        Wanted::Item { path, text: item } => {
            let comments = format == Format::JsonWithComments;
            let there = edit_json::list_has(text, comments, path, item).map_err(Refusal::Unsupported)?;
            let after = if there {
                text.to_owned()
            } else {
                change(text, edit_json::list_add(text, comments, path, item))?
            };
            (if there { State::Correct } else { State::Absent }, item.clone(), after)
        }
        Wanted::Server { section, leaves } => match one_entry(format, text, section)? {
            None => {
                let after = change(text, add(format, text, section, super::table::NAME, leaves))?;
                (State::Absent, super::table::NAME.to_owned(), after)
            }
            Some(seen) => {
                if let Some(key) = ["url", "httpUrl", "serverUrl", "http_headers", "bearer_token_env_var"]
                    .into_iter()
                    .find(|key| seen.leaf(&[key]).is_some())
                {
                    return Err(Refusal::Unsupported(format!(
                        "its entry `{section}.{}` is a server elsewhere (`{key}`)",
                        seen.name
                    )));
                }
                let mut after = text.to_owned();
                for leaf in missing(&seen, leaves) {
                    let edits = set(format, &after, section, &seen.name, leaf.path, &leaf.value);
                    after = change(&after, edits)?;
                }
                (state_of(&seen, leaves), seen.name, after)
            }
        },
    };
    check(format, text, &after, wanted)?;
    Ok((Merged { state, name, after, patch: Vec::new(), mark_removed: false }, changes))
}

fn missing<'a>(seen: &'a Seen, leaves: &'a [Leaf]) -> impl Iterator<Item = &'a Leaf> {
    leaves.iter().filter(|leaf| {
        seen.leaf(leaf.path)
            .is_none_or(|there| !leaf.is_served_by(Some(there.value.as_ref().unwrap_or(&Literal::True))))
    })
}

fn state_of(seen: &Seen, leaves: &[Leaf]) -> State {
    if missing(seen, leaves).next().is_none() {
        return State::Correct;
    }
    let command = seen.text(&["command"]).unwrap_or_default().replace('\\', "/").to_lowercase();
    let args: Vec<String> = match seen.leaf(&["args"]).and_then(|leaf| leaf.value.as_ref()) {
        Some(Literal::Texts(args)) => args.iter().map(|arg| arg.replace('\\', "/").to_lowercase()).collect(),
        _ => Vec::new(),
    };
    let direct = |text: &str| text.contains("agent-bridge") && text.contains("/releases/");
    if direct(&command) || args.iter().any(|arg| direct(arg)) { State::DirectRelease } else { State::Stale }
}

/// The one entry of ours.
fn one_entry(format: Format, text: &str, section: &str) -> Result<Option<Seen>, Refusal> {
    let mut all = entries(format, text, section).map_err(Refusal::Unsupported)?;
    if all.len() > 1 {
        return Err(Refusal::Ambiguous(all.into_iter().map(|seen| seen.name).collect()));
    }
    let Some(seen) = all.pop() else { return Ok(None) };
    match &seen.twice {
        Some(key) => Err(Refusal::Unsupported(format!("`{key}` occurs twice in its entry"))),
        None => Ok(Some(seen)),
    }
}

/// Every entry of ours in a text, for verdicts.
pub(super) fn entries(format: Format, text: &str, section: &str) -> Result<Vec<Seen>, String> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    match format {
        Format::Toml => edit_toml::seen(text, section),
        Format::Json => edit_json::seen(text, false, section),
        Format::JsonWithComments => edit_json::seen(text, true, section),
    }
}

fn tree(format: Format, text: &str) -> Result<Tree, String> {
    match format {
        Format::Toml => edit_toml::tree(text),
        Format::Json => edit_json::tree(text, false),
        Format::JsonWithComments => edit_json::tree(text, true),
    }
}

fn add(format: Format, text: &str, section: &str, name: &str, leaves: &[Leaf]) -> Result<Vec<Edit>, String> {
    match format {
        Format::Toml => edit_toml::add(text, section, name, leaves),
        json => edit_json::add(text, json == Format::JsonWithComments, section, name, leaves),
    }
}

fn set(
    format: Format,
    text: &str,
    section: &str,
    name: &str,
    path: &[&str],
    value: &Literal,
) -> Result<Vec<Edit>, String> {
    match format {
        Format::Toml => edit_toml::set(text, section, name, path, value),
        json => {
            let path = [&[section, name], path].concat();
            edit_json::set(text, json == Format::JsonWithComments, &path, value)
        }
    }
}

/// The entry as it would be pasted.
pub fn snippet(format: Format, wanted: &Wanted) -> String {
    match wanted {
        Wanted::Server { section, leaves } => match format {
            Format::Toml => edit_toml::snippet(section, super::table::NAME, leaves),
            _ => edit_json::snippet(section, super::table::NAME, leaves),
        },
        Wanted::Item { path, text } => format!("{text:?} in the list `{}`\n", path.join(".")),
    }
}

/// What must hold of every change: the rest means what it meant and is byte for byte what it was, what is
/// wanted is there, and a second look finds nothing to do.
fn check(format: Format, before: &str, after: &str, wanted: &Wanted) -> Result<(), Refusal> {
    let unsound = |what: &str| Refusal::Unsupported(format!("the change would {what}"));
    if after == before {
        return Ok(());
    }
    let (old, new) = match (tree(format, before), tree(format, after)) {
        (Ok(old), Ok(new)) => (old, new),
        _ => return Err(unsound("make the file unreadable")),
    };
    let same = match wanted {
        Wanted::Server { section, .. } => {
            old.without(&[section], &is_our_name) == new.without(&[section], &is_our_name)
        }
        Wanted::Item { path, text } => {
            let ours = |item: &str| item == text;
            old.without(path, &ours) == new.without(path, &ours)
        }
    };
    if !same {
        return Err(unsound("touch what is not ours"));
    }
    match wanted {
        Wanted::Server { section, leaves } => {
            let seen = one_entry(format, after, section)?.ok_or_else(|| unsound("not be found again"))?;
            if missing(&seen, leaves).next().is_some() {
                return Err(unsound("not be complete"));
            }
        }
        Wanted::Item { path, text } => {
            let comments = format == Format::JsonWithComments;
            if edit_json::list_has(after, comments, path, text) != Ok(true) {
                return Err(unsound("not be found again"));
            }
        }
    }
    // Without our entry both are the same bytes.
    let (old, new) = (stripped(format, before, before, wanted), stripped(format, after, before, wanted));
    match (old, new) {
        (Ok(old), Ok(new)) if old == new => Ok(()),
        _ => Err(unsound("touch bytes that are not ours")),
    }
}

/// A text without our whole entry.
fn stripped(format: Format, text: &str, before: &str, wanted: &Wanted) -> Result<String, String> {
    let comments = format == Format::JsonWithComments;
    match wanted {
        Wanted::Server { section, .. } => {
            let names: Vec<String> =
                entries(format, text, section)?.into_iter().map(|seen| seen.name).collect();
            names.iter().try_fold(text.to_owned(), |text, name| match format {
                Format::Toml => edit_toml::take_out(&text, section, name),
                _ => edit_json::take_out(&text, comments, &[section, name], Some(before)),
            })
        }
        Wanted::Item { path, text: item } => {
            edit_json::list_take_out(text, comments, path, item, Some(before))
        }
    }
}

/// Takes our entry out of a text, whatever it says. None if there is none.
pub fn remove(format: Format, text: &str, wanted: &Wanted) -> Result<Option<String>, Refusal> {
    let (mark, body) = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(body) => (BYTE_ORDER_MARK, body),
        None => ("", text),
    };
    let before = tree(format, body).map_err(Refusal::Broken)?;
    let without = match wanted {
        Wanted::Server { section, .. } => {
            let Some(seen) = one_entry(format, body, section)? else { return Ok(None) };
            match format {
                Format::Toml => edit_toml::take_out(body, section, &seen.name),
                json => {
                    edit_json::take_out(body, json == Format::JsonWithComments, &[section, &seen.name], None)
                }
            }
        }
        Wanted::Item { path, text: item } => {
            let comments = format == Format::JsonWithComments;
            if !edit_json::list_has(body, comments, path, item).map_err(Refusal::Unsupported)? {
                return Ok(None);
            }
            edit_json::list_take_out(body, comments, path, item, None)
        }
    };
    let without = without.map_err(Refusal::Unsupported)?;
    if !only_ours_differs(format, before, &without, wanted) {
        return Err(Refusal::Unsupported("taking the entry out would touch what is not ours".into()));
    }
    Ok(Some(format!("{mark}{without}")))
}

fn only_ours_differs(format: Format, before: Tree, after: &str, wanted: &Wanted) -> bool {
    let Ok(after) = tree(format, after) else { return false };
    match wanted {
        Wanted::Server { section, .. } => {
            before.without(&[section], &is_our_name) == after.without(&[section], &is_our_name)
        }
        Wanted::Item { path, text } => {
            let ours = |item: &str| item == text;
            before.without(path, &ours) == after.without(path, &ours)
        }
    }
}

/// Makes our entry what it was in `before` and leaves the rest of `current`, which another program changed after us.
/// `after` is what we wrote, `hunks` where. None if what we wrote was changed too, or if it cannot be done.
pub fn undo(
    format: Format,
    before: &str,
    after: &str,
    current: &str,
    hunks: &[Hunk],
    wanted: &Wanted,
) -> Option<String> {
    let body = |text: &str| text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).to_owned();
    let was = Sides { format, before: body(before), after: body(after), current: body(current) };
    if was.ours_was_changed(wanted)? {
        return None;
    }
    // To the byte, where each place still is what it was.
    if let Some(text) = patch::reverted(before, after, current, hunks)
        && was.is_undone(&body(&text), wanted)
    {
        return Some(text);
    }
    let mark = if current.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK } else { "" };
    let restored = undo_body(format, &was.before, &was.after, &was.current, wanted)?;
    was.is_undone(&restored, wanted).then(|| format!("{mark}{restored}"))
}

/// Three contents of one file: before us, as we left it, and now.
struct Sides {
    format: Format,
    before: String,
    after: String,
    current: String,
}

impl Sides {
    /// Whether somebody changed what we had written. None if that cannot be told.
    fn ours_was_changed(&self, wanted: &Wanted) -> Option<bool> {
        let Wanted::Server { section, .. } = wanted else { return Some(false) };
        let entry = |text: &str| one_entry(self.format, text, section).ok();
        let (old, ours, now) = (entry(&self.before)?, entry(&self.after)?, entry(&self.current)?);
        let Some(ours) = ours else { return Some(now.is_some()) };
        // Somebody took it out. If it was not there before, that is what we want.
        let Some(now) = now else { return Some(old.is_some()) };
        let meaning = |text: &str, name: &str, path: &[String]| {
            Some(tree(self.format, text).ok()?.at(&[section, name])?.at(path)?.clone().sorted())
        };
        let same = |path: &[String]| {
            meaning(&self.after, &ours.name, path) == meaning(&self.current, &now.name, path)
        };
        let Some(old) = old else { return Some(!same(&[])) };
        let written = ours.leaves.iter().filter(|leaf| {
            old.leaves.iter().find(|one| one.path == leaf.path).map(|one| &one.raw) != Some(&leaf.raw)
        });
        let put_back = |path: &[String]| {
            meaning(&self.before, &old.name, path) == meaning(&self.current, &now.name, path)
        };
        Some(written.into_iter().any(|leaf| !same(&leaf.path) && !put_back(&leaf.path)))
    }

    /// Whether a text is the current one with our entry as it was before.
    fn is_undone(&self, text: &str, wanted: &Wanted) -> bool {
        let Ok(current) = tree(self.format, &self.current) else { return false };
        if !only_ours_differs(self.format, current, text, wanted) {
            return false;
        }
        let section = match wanted {
            Wanted::Server { section, .. } => section,
            Wanted::Item { path, text: item } => {
                let comments = self.format == Format::JsonWithComments;
                let has = |text: &str| edit_json::list_has(text, comments, path, item).ok();
                return has(&self.before) == has(text);
            }
        };
        let entry = |text: &str| one_entry(self.format, text, section).ok();
        match (entry(&self.before), entry(text)) {
            (Some(old), Some(new)) => old.is_some() == new.is_some(),
            _ => false,
        }
    }
}

fn undo_body(format: Format, before: &str, after: &str, current: &str, wanted: &Wanted) -> Option<String> {
    let comments = format == Format::JsonWithComments;
    let (section, leaves) = match wanted {
        Wanted::Server { section, leaves } => (*section, leaves),
        Wanted::Item { path, text } => {
            return match edit_json::list_has(before, comments, path, text).ok()? {
                true => Some(current.to_owned()),
                false => edit_json::list_take_out(current, comments, path, text, Some(before)).ok(),
            };
        }
    };
    let old = one_entry(format, before, section).ok()?;
    let Some(now) = one_entry(format, current, section).ok()? else { return Some(current.to_owned()) };
    let Some(old) = old else {
        return match format {
            Format::Toml => edit_toml::take_out(current, section, &now.name).ok(),
            _ => edit_json::take_out(current, comments, &[section, &now.name], Some(before)).ok(),
        };
    };
    let ours = one_entry(format, after, section).ok()??;
    let mut text = current.to_owned();
    for leaf in leaves.iter().rev() {
        let (was, put) = (old.leaf(leaf.path), ours.leaf(leaf.path));
        // Not written by us, or put back by somebody.
        let raw = |leaf: Option<&SeenLeaf>| leaf.map(|one| one.raw.clone());
        if raw(was) == raw(put) || raw(was) == raw(now.leaf(leaf.path)) {
            continue;
        }
        text = put_back(format, &text, before, section, &now.name, &old.name, leaf.path, was)?;
    }
    Some(text)
}

#[allow(clippy::too_many_arguments, reason = "one step of an undo, which needs both texts and both names")]
fn put_back(
    format: Format,
    text: &str,
    before: &str,
    section: &str,
    name: &str,
    old_name: &str,
    path: &[&str],
    was: Option<&SeenLeaf>,
) -> Option<String> {
    let comments = format == Format::JsonWithComments;
    let full = [&[section, name], path].concat();
    match (format, was) {
        (Format::Toml, Some(was)) => edit_toml::put_raw(text, section, name, path, &was.raw).ok(),
        (Format::Toml, None) => edit_toml::unset(text, section, name, path)
            .and_then(|text| edit_toml::tidy(&text, before, section, name, old_name, path))
            .ok(),
        (_, Some(was)) => edit_json::put_raw(text, comments, &full, &was.raw).ok(),
        (_, None) => {
            let before = if name == old_name { Some(before) } else { None };
            edit_json::take_out(text, comments, &full, before).ok()
        }
    }
}
