//! From a selected config to the effective one. There is never a fallback to fewer limits, and
//! nothing is created or changed on disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde_json::{Value, json};

use super::bundle::{self, Variables};
use super::effective::{Builder, Origin};
use super::error::{CONFIG_INVALID_JSON, CONFIG_INVALID_VALUE, ConfigError, Problem, Problems};
use super::schema::ConfigFile;
use super::schema_json::schema;
use super::select::{Selected, select};
use super::{Config, ConfigSource, document, shape};
use crate::context::Context;
use crate::digest;

/// The largest config file, in bytes.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Selects, reads and checks the config.
///
/// # Errors
/// [`ConfigError`], with everything that is wrong in one error.
pub fn load(context: &Context, flag: Option<&Path>) -> Result<Config, ConfigError> {
    examine(context, flag).and_then(Examined::into_config)
}

/// What [`check`] found.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// The selected config, if one could be selected.
    pub selected: Option<Selected>,
    /// Everything that is wrong; empty means that `serve` would start with it.
    pub problems: Vec<Problem>,
    /// Worth telling, but no error.
    pub warnings: Vec<String>,
    /// The effective config, if nothing is wrong.
    pub config: Option<Config>,
}

/// Like [`load`], as a report.
pub fn check(context: &Context, flag: Option<&Path>) -> CheckReport {
    let selected = select(context, flag).ok();
    report(selected, examine(context, flag))
}

/// Checks the bytes of a file that is not written yet.
pub fn check_bytes(context: &Context, path: &Path, bytes: &[u8]) -> CheckReport {
    let selected = Selected { path: path.to_owned(), source: ConfigSource::Flag };
    report(Some(selected.clone()), examine_bytes(context, selected, bytes))
}

fn report(selected: Option<Selected>, outcome: Result<Examined, ConfigError>) -> CheckReport {
    match outcome {
        Err(error) => {
            CheckReport { selected, problems: error.into_problems(), warnings: Vec::new(), config: None }
        }
        Ok(examined) => {
            let warnings = examined.config.warnings.clone();
            let config = examined.problems.is_empty().then_some(examined.config);
            CheckReport { selected, problems: examined.problems, warnings, config }
        }
    }
}

/// A config with all that is known about it.
pub(super) struct Examined {
    /// Complete only if there are no problems.
    config: Config,
    problems: Vec<Problem>,
    /// The accepted part of what was written.
    pub(super) written: Value,
    /// In bundle mode, the variable behind each key.
    pub(super) variables: Variables,
    /// Keys whose value was lowered, and by what.
    pub(super) lowered: BTreeMap<String, String>,
}

impl Examined {
    pub(super) fn into_config(self) -> Result<Config, ConfigError> {
        if self.problems.is_empty() {
            Ok(self.config)
        } else {
            Err(ConfigError::Invalid { path: self.config.path, problems: self.problems })
        }
    }
}

pub(super) fn examine(context: &Context, flag: Option<&Path>) -> Result<Examined, ConfigError> {
    let selected = select(context, flag)?;
    if selected.source == ConfigSource::Bundle {
        return Ok(examine_bundle(context, &selected));
    }
    let bytes = read(&selected)?;
    examine_bytes(context, selected, &bytes)
}

fn examine_bundle(context: &Context, selected: &Selected) -> Examined {
    let mut problems = Problems::default();
    let (file, variables) = bundle::read(context, &mut problems);
    let written = serde_json::to_value(&file).unwrap_or_default();
    let origin = Origin { path: &selected.path, source: selected.source, sha256: None };
    let (config, lowered) = build(context, None, &file, &written, origin, &mut problems);
    let mut told = Problems::default();
    for problem in problems.list {
        // People who use a bundle have never seen a key; they know the variable or the dialog.
        let key = variable_of(&variables, &problem.key).map_or(problem.key.as_str(), |variable| variable);
        told.add(problem.doc, key, problem.message);
    }
    Examined { config, problems: told.list, written, variables, lowered }
}

/// The variable behind a key; `allowedRoots[0]` comes from that of `allowedRoots`.
pub(super) fn variable_of(variables: &Variables, key: &str) -> Option<&'static str> {
    variables.get(key.split('[').next().unwrap_or(key)).copied()
}

fn examine_bytes(context: &Context, selected: Selected, bytes: &[u8]) -> Result<Examined, ConfigError> {
    let Selected { path, source } = selected;
    let text = match text(bytes) {
        Ok(text) => text,
        Err(reason) => return Err(ConfigError::Unreadable { path, reason }),
    };
    let document = match document::parse(text) {
        Ok(document) => document,
        Err(document::SyntaxError { line, column, reason }) => {
            return Err(ConfigError::InvalidJson { path, line, column, reason });
        }
    };
    let mut problems = Problems::default();
    for key in document.duplicates {
        problems.add(&CONFIG_INVALID_JSON, key, "the key occurs more than once");
    }
    let written = shape::check(&schema(), &document.value, &mut problems).unwrap_or_else(|| json!({}));
    let mut complete = written.clone();
    if complete.get("allowedRoots").is_none() {
        complete["allowedRoots"] = json!([]);
    }
    let file: ConfigFile = serde_json::from_value(complete).unwrap_or_else(|error| {
        problems.add(&CONFIG_INVALID_VALUE, "", error.to_string());
        ConfigFile::default()
    });
    let origin = Origin { path: &path, source, sha256: Some(digest::of_bytes(bytes)) };
    let (config, lowered) = build(context, path.parent(), &file, &written, origin, &mut problems);
    Ok(Examined { config, problems: problems.list, written, variables: Variables::new(), lowered })
}

fn build(
    context: &Context,
    base: Option<&Path>,
    file: &ConfigFile,
    written: &Value,
    origin: Origin<'_>,
    problems: &mut Problems,
) -> (Config, BTreeMap<String, String>) {
    let mentioned = |key: &str| lookup(written, key).is_some();
    let mut builder = Builder {
        context,
        base,
        mentioned: &mentioned,
        problems,
        warnings: Vec::new(),
        lowered: BTreeMap::new(),
    };
    let config = builder.build(file, origin);
    (config, builder.lowered)
}

/// The value of a dotted key.
pub(super) fn lookup<'a>(written: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(written, |value, name| value.get(name))
}

/// The bytes of the selected file, if it is a regular file of reasonable size.
fn read(selected: &Selected) -> Result<Vec<u8>, ConfigError> {
    let path = &selected.path;
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => {
            ConfigError::NotFound { path: path.clone(), selected_by: selected.source.label() }
        }
        _ => ConfigError::Unreadable { path: path.clone(), reason: error.to_string() },
    };
    let unreadable = |reason: &str| ConfigError::Unreadable { path: path.clone(), reason: reason.into() };
    // Before opening: opening a pipe would wait for a writer that may never come.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(unreadable("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(unreadable("it is larger than 1 MiB"));
    }
    Ok(bytes)
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Err("it is UTF-16; save it as UTF-8".into());
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8 (at byte {})", error.valid_up_to()))
}
