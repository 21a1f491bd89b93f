//! What this start was asked, for the test to look at.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// A file `KIND-NNNN.json` in the folder `agy.calls` beside the program.
pub struct Record {
    path: PathBuf,
    facts: Map<String, Value>,
}

impl Record {
    /// Begins one; also gives its number among those of its kind, from 0.
    pub fn begin(program: &Path, kind: &str, argv: &[String]) -> (Self, usize) {
        let folder = program.with_extension("calls");
        std::fs::create_dir_all(&folder).expect("a folder for the records");
        let mut number = 0;
        // Who makes the mark has the number: starts may come at the same time.
        while std::fs::File::create_new(folder.join(format!("{kind}-{number:04}.taken"))).is_err() {
            number += 1;
            assert!(number < 10_000, "the marks cannot be made in {}", folder.display());
        }
        let env: Map<String, Value> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), json!(value.to_string_lossy())))
            .collect();
        let facts = json!({
            "kind": kind,
            "argv": argv,
            "env": env,
            "cwd": std::env::current_dir().expect("a working folder"),
            "pid": std::process::id(),
        });
        let Value::Object(facts) = facts else { unreachable!() };
        let record = Self { path: folder.join(format!("{kind}-{number:04}.json")), facts };
        record.save();
        (record, number)
    }

    /// Adds a fact.
    pub fn set(&mut self, name: &str, value: Value) {
        self.facts.insert(name.to_owned(), value);
        self.save();
    }

    /// Adds to a list of facts.
    pub fn push(&mut self, name: &str, value: Value) {
        let list = self.facts.entry(name.to_owned()).or_insert_with(|| json!([]));
        list.as_array_mut().expect("a list").push(value);
        self.save();
    }

    /// What came on standard input.
    pub fn stdin(&mut self, bytes: &[u8]) {
        self.set("stdin", json!(String::from_utf8_lossy(bytes)));
    }

    /// Whole or not at all, since the test may look at any time.
    fn save(&self) {
        let draft = self.path.with_extension("new");
        let text = serde_json::to_vec_pretty(&self.facts).expect("JSON");
        std::fs::write(&draft, text).expect("the record can be written");
        std::fs::rename(&draft, &self.path).expect("the record can be put in place");
    }
}
