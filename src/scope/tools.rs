//! The tools of an endpoint: what each is called, takes and does, and which of them this run may use.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::{BoundRun, Cancel, ScopeError};

/// Longest name of a tool: clients put a prefix in front and cut what is too long.
const MAX_NAME: usize = 50;

/// How a tool is described to the model.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// What it is for.
    pub description: String,
    /// JSON Schema of the arguments: an object that allows nothing else.
    pub schema: Value,
    /// It changes nothing, not even a record.
    pub read_only: bool,
}

/// One call, with everything it may use.
pub struct Call<'a> {
    /// What it belongs to. Never taken from the arguments.
    pub bound: &'a BoundRun,
    /// Arguments that fit the schema.
    pub arguments: &'a Map<String, Value>,
    /// Says when to give up.
    pub cancel: &'a Cancel,
    /// The latest moment for an answer.
    pub deadline: Instant,
}

impl Call<'_> {
    /// An argument that is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name)?.as_str()
    }

    /// An argument that is a whole number.
    pub fn number(&self, name: &str) -> Option<usize> {
        usize::try_from(self.arguments.get(name)?.as_u64()?).ok()
    }
}

/// What a tool says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For the model.
    pub text: String,
    /// The tool could not do it; the text says why.
    pub is_error: bool,
}

impl Answer {
    /// Done.
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false }
    }

    /// Not done, and what to do instead.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true }
    }
}

/// Something a worker may call. Calls come on several threads at once. A panic is answered as a failure.
pub trait Tool: Send + Sync {
    /// Its name: a-z, 0-9 and `_`, at most 50 of them.
    fn name(&self) -> &str;
    /// Its description, asked for once, when it is first needed.
    fn spec(&self) -> ToolSpec;
    /// Does it. A tool that waits asks `call.cancel` at least every 50 ms or waits with it.
    fn call(&self, call: &Call<'_>) -> Answer;
}

#[derive(Clone)]
pub(super) struct Listed {
    pub name: Arc<str>,
    pub tool: Arc<dyn Tool>,
    pub allowed: bool,
    /// Not before the first use, so that a start does not wait for it.
    spec: OnceLock<ToolSpec>,
}

impl Listed {
    pub fn spec(&self) -> &ToolSpec {
        self.spec.get_or_init(|| self.tool.spec())
    }
}

/// Tools by name, each off until allowed.
#[derive(Clone, Default)]
pub struct ToolSet(BTreeMap<Arc<str>, Listed>);

impl ToolSet {
    /// Adds a tool, switched off.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), ScopeError> {
        let name = tool.name();
        let fits = (1..=MAX_NAME).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !fits || self.0.contains_key(name) {
            return Err(ScopeError::ToolName(name.to_owned()));
        }
        let name: Arc<str> = name.into();
        let listed = Listed { name: Arc::clone(&name), tool, allowed: false, spec: OnceLock::new() };
        self.0.insert(name, listed);
        Ok(())
    }

    /// Switches a tool on.
    pub fn allow(&mut self, name: &str) -> Result<(), ScopeError> {
        match self.0.get_mut(name) {
            Some(listed) => {
                listed.allowed = true;
                Ok(())
            }
            None => Err(ScopeError::UnknownTool {
                name: name.to_owned(),
                known: self.0.keys().map(|known| &**known).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// A tool that this run may use.
    pub(super) fn get(&self, name: &str) -> Option<&Listed> {
        self.0.get(name).filter(|listed| listed.allowed)
    }

    /// For the log only: whether the tool exists at all.
    pub(super) fn is_hidden(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|listed| !listed.allowed)
    }

    /// The allowed tools as `tools/list` gives them, always in the same order.
    pub(super) fn describe(&self) -> Value {
        let allowed = self.0.values().filter(|listed| listed.allowed);
        allowed
            .map(|listed| {
                let spec = listed.spec();
                json!({
                    "name": &*listed.name,
                    "description": spec.description,
                    "inputSchema": spec.schema,
                    // Some clients start nothing that is not said to be harmless, and hide what is not said to be needed.
                    "annotations": { "readOnlyHint": spec.read_only, "destructiveHint": false, "openWorldHint": false },
                    "_meta": { "anthropic/alwaysLoad": true, "antigravity/alwaysLoad": true },
                })
            })
            .collect()
    }
}
