//! What we want to stand in a client's file, and what stands there, independent of the format.

use std::path::Path;

use serde_json::{Value, json};

/// A value as we write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// A text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// A number.
    Number(u64),
    /// Yes.
    True,
}

impl Literal {
    /// As JSON.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Texts(texts) => json!(texts),
            Self::Number(number) => json!(number),
            Self::True => json!(true),
        }
    }
}

/// One key of our entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// `["command"]`, `["env", "AGENT_BRIDGE_CONFIG"]`.
    pub path: &'static [&'static str],
    /// What we write.
    pub value: Literal,
    /// Also over another value. Otherwise another value is the user's own choice.
    pub overwrite: bool,
}

impl Leaf {
    pub(super) fn must(path: &'static [&'static str], value: Literal) -> Self {
        Self { path, value, overwrite: true }
    }

    pub(super) fn may(path: &'static [&'static str], value: Literal) -> Self {
        Self { path, value, overwrite: false }
    }

    /// Whether a value that is there serves as well as ours.
    pub(super) fn is_served_by(&self, there: Option<&Literal>) -> bool {
        match (self.path, there, &self.value) {
            (_, Some(_), _) if !self.overwrite => true,
            (_, Some(Literal::Text(there)), Literal::Text(ours))
                if self.path != ["default_tools_approval_mode"] =>
            {
                same_path(there, ours)
            }
            // Options after `serve` are the user's own choice, but none that leads to another config.
            (["args"], Some(Literal::Texts(there)), Literal::Texts(_)) => {
                there.first().is_some_and(|first| first == "serve")
                    && !there.iter().any(|one| one.starts_with("--config"))
            }
            (_, Some(there), ours) => there == ours,
            (_, None, _) => false,
        }
    }
}

/// Whether two texts name the same file, by the rules of this system.
pub(super) fn same_path(one: &str, other: &str) -> bool {
    if cfg!(windows) {
        let plain = |text: &str| text.replace('/', "\\").to_lowercase();
        plain(one) == plain(other)
    } else {
        one == other || (!one.is_empty() && Path::new(one) == Path::new(other))
    }
}

/// A key of an entry that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenLeaf {
    pub path: Vec<String>,
    /// As it is written.
    pub raw: String,
    /// What it means, if it is something that we would write.
    pub value: Option<Literal>,
}

/// An entry that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its name as the client has it.
    pub name: String,
    pub leaves: Vec<SeenLeaf>,
    /// Something in it occurs twice.
    pub twice: Option<String>,
}

impl Seen {
    pub(super) fn leaf(&self, path: &[&str]) -> Option<&SeenLeaf> {
        self.leaves.iter().find(|leaf| leaf.path == path)
    }

    pub(super) fn text(&self, path: &[&str]) -> Option<&str> {
        match self.leaf(path)?.value.as_ref()? {
            Literal::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Whether a name in a client's file means this program: `agent-bridge`, `agent_bridge`, in any case.
pub(super) fn is_our_name(name: &str) -> bool {
    name.to_lowercase().replace('_', "-") == super::table::NAME
}

/// A file's content for comparisons: what it means, not how it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    Map(Vec<(String, Tree)>),
    List(Vec<Tree>),
    Leaf(String),
}

impl Tree {
    /// What is at a path.
    pub(super) fn at<K: AsRef<str>>(&self, path: &[K]) -> Option<&Self> {
        path.iter().try_fold(self, |tree, key| match tree {
            Self::Map(entries) => {
                entries.iter().rev().find(|(name, _)| name == key.as_ref()).map(|(_, value)| value)
            }
            _ => None,
        })
    }

    /// In an order that does not depend on how it was written.
    pub(super) fn sorted(self) -> Self {
        match self {
            Self::Map(entries) => {
                let mut entries: Vec<_> =
                    entries.into_iter().map(|(name, value)| (name, value.sorted())).collect();
                entries.sort_by(|one, other| one.0.cmp(&other.0));
                Self::Map(entries)
            }
            other => other,
        }
    }

    /// Without our entry, and without what had to be made to hold it. Also without an item of a list.
    pub(super) fn without(mut self, path: &[&str], ours: &dyn Fn(&str) -> bool) -> Self {
        prune(&mut self, path, ours);
        self
    }
}

fn prune(tree: &mut Tree, path: &[&str], ours: &dyn Fn(&str) -> bool) {
    match (tree, path) {
        (Tree::Map(entries), [key, rest @ ..]) => {
            for (name, value) in entries.iter_mut() {
                if name == key {
                    prune(value, rest, ours);
                }
            }
            entries.retain(|(name, value)| {
                name != key
                    || !matches!(value, Tree::Map(entries) if entries.is_empty())
                        && !matches!(value, Tree::List(entries) if entries.is_empty())
            });
        }
        (Tree::Map(entries), []) => entries.retain(|(name, _)| !ours(name)),
        (Tree::List(items), []) => {
            items.retain(|item| !matches!(item, Tree::Leaf(text) if text.strip_prefix('"').is_some_and(ours)))
        }
        _ => {}
    }
}
