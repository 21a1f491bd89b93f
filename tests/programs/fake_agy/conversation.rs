//! The conversations that a config root knows.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// One of them.
pub struct Conversation {
    pub id: String,
    /// Turns that it had before this one.
    pub turns: u64,
    file: PathBuf,
    cache: PathBuf,
    workspace: String,
}

impl Conversation {
    /// The one that was asked for. One that is not known is a new one, with a word on standard error.
    pub fn open(root: &Path, asked: Option<&str>, newest: bool, workspace: &Path) -> Self {
        let folder = root.join("antigravity-cli").join("conversations");
        let cache = root.join("antigravity-cli").join("cache").join("last_conversations.json");
        let workspace = workspace.to_string_lossy().into_owned();
        let last = || {
            let bytes = std::fs::read(&cache).ok()?;
            let known: Value = serde_json::from_slice(&bytes).ok()?;
            known[&workspace].as_str().map(str::to_owned)
        };
        let wanted = asked.map(str::to_owned).or_else(|| if newest { last() } else { None });
        let file_of = |id: &str| folder.join(format!("{id}.db"));
        if let Some(id) = &wanted {
            let file = file_of(id);
            if let Ok(text) = std::fs::read_to_string(&file) {
                let turns = text.lines().count() as u64;
                return Self { id: id.clone(), turns, file, cache, workspace };
            }
            eprintln!("warning: conversation {id} not found, starting a new conversation");
        }
        let id = uuid::Uuid::new_v4().to_string();
        Self { file: file_of(&id), id, turns: 0, cache, workspace }
    }

    /// Writes a turn down: in the conversation, and as the last one of this workspace.
    pub fn keep(&self, prompt: &str) {
        use std::io::Write;
        for file in [&self.file, &self.cache] {
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("the root can be written");
        }
        let mut file =
            std::fs::OpenOptions::new().create(true).append(true).open(&self.file).expect("the conversation");
        writeln!(file, "{}", json!({ "prompt": prompt })).expect("the conversation can be written");
        let known = std::fs::read(&self.cache).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut known: Value = known.unwrap_or_else(|| json!({}));
        known[&self.workspace] = json!(self.id);
        std::fs::write(&self.cache, known.to_string()).expect("the cache can be written");
    }
}
