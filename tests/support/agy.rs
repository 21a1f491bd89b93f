//! The stand-in for `agy` in a world. What it does is said in its scenario
//! (tests/programs/fake_agy/scenario.rs), what it was asked is in its records.
//!
//! ```ignore
//! let world = World::new().build();
//! let agy = FakeAgy::put(&world, &json!({ "version": "1.2.6", "runs": [[{ "say": "Hello." }]] }));
//! world.bridge(["delegate", "antigravity", "hi"]).expect_code(0);
//! assert_eq!(agy.runs().len(), 1);
//! ```

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::world::{World, write};

/// The program, as Cargo made it.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fake-agy");

/// It, in one world.
pub struct FakeAgy {
    program: PathBuf,
}

impl FakeAgy {
    /// Puts it there and writes the section `antigravity` of the config.
    pub fn put(world: &World, scenario: &Value) -> Self {
        Self::put_with(world, scenario, json!({}))
    }

    /// The same with more keys in that section.
    pub fn put_with(world: &World, scenario: &Value, more: Value) -> Self {
        let agy = Self { program: world.bin().join(format!("agy{}", std::env::consts::EXE_SUFFIX)) };
        place(&agy.program);
        agy.play(scenario);
        let mut section = json!({ "enabled": true, "bin": agy.program });
        if let (Some(all), Value::Object(more)) = (section.as_object_mut(), more) {
            all.extend(more);
        }
        world.set_agent("antigravity", section);
        agy
    }

    /// Its path.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// From the next start on it plays this.
    pub fn play(&self, scenario: &Value) {
        write(&self.program.with_extension("json"), scenario.to_string());
    }

    /// Its runs, first to last.
    pub fn runs(&self) -> Vec<Value> {
        self.records("run")
    }

    /// Its starts that only asked for the login.
    pub fn probes(&self) -> Vec<Value> {
        self.records("probe")
    }

    /// The starts of a kind (`run`, `probe`, `version`, `refused`).
    pub fn records(&self, kind: &str) -> Vec<Value> {
        let folder = self.program.with_extension("calls");
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(kind)))
            .collect();
        paths.sort();
        let read = |path: &PathBuf| serde_json::from_slice(&std::fs::read(path).expect("a record"));
        paths.iter().map(|path| read(path).expect("a record is JSON")).collect()
    }

    /// Forgets all that was asked.
    pub fn forget(&self) {
        let _ = std::fs::remove_dir_all(self.program.with_extension("calls"));
    }
}

/// The arguments of a start.
#[track_caller]
pub fn argv(record: &Value) -> Vec<&str> {
    record["argv"].as_array().expect("arguments").iter().map(|arg| arg.as_str().expect("a text")).collect()
}

/// The value of a flag of a start.
#[track_caller]
pub fn flag<'r>(record: &'r Value, name: &str) -> Option<&'r str> {
    let lead = format!("--{name}");
    argv(record).into_iter().find_map(|arg| match arg.strip_prefix(&lead)? {
        "" => Some(""),
        value => value.strip_prefix('='),
    })
}

/// A link is enough where a program is found by the name that it is started under.
#[cfg(unix)]
fn place(program: &Path) {
    super::world::link(Path::new(PROGRAM), program);
}

#[cfg(windows)]
fn place(program: &Path) {
    if std::fs::hard_link(PROGRAM, program).is_err() {
        std::fs::copy(PROGRAM, program).expect("the program can be put in place");
    }
}
