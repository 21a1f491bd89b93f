//! `config explain`.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::config::{CONFIG_UNKNOWN_KEY, Explained, OriginOf, explain};
use crate::context::Context;
use crate::error::{Error, Exit, Result};

/// Show the effective values and where each came from
///
/// Values of `extraEnv` are never shown.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Only this key and the keys below it, for instance `agents.codex`
    pub key: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Prints effective values.
///
/// # Errors
/// As [`crate::config::load`], and `CONFIG_UNKNOWN_KEY` for a key that does not exist.
pub fn run(context: &Context, config_flag: Option<&Path>, args: Args, out: &mut dyn Write) -> Result<Exit> {
    let (config, all) = explain(context, config_flag)?;
    let values: Vec<&Explained> = all
        .iter()
        .filter(|explained| args.key.as_deref().is_none_or(|key| is_below(explained, key)))
        .collect();
    if let Some(key) = args.key.as_deref().filter(|_| values.is_empty()) {
        return Err(unknown_key(key, &all));
    }
    if args.json {
        let values: Vec<Value> = values.into_iter().map(document).collect();
        super::print_json(
            out,
            &json!({
                "schema": "agent-bridge/config-explain/1",
                "kind": "config-explain",
                "path": config.path.display().to_string(),
                "source": config.source.label(),
                "sha256": config.sha256,
                "values": values,
                "warnings": config.warnings,
            }),
        )?;
    } else {
        let mut text = format!("config: {} ({})\n", config.path.display(), config.source.label());
        // A few keys are so long that lining up with them would push every value off a narrow terminal.
        let width = values.iter().map(|explained| explained.key.len()).max().unwrap_or(0).min(32);
        for explained in values {
            let value = match &explained.value {
                Value::Null => "(not set)".to_owned(),
                value => value.to_string(),
            };
            let _ = writeln!(text, "{:width$}  {value}  [{}]", explained.key, origin(explained));
        }
        super::print(out, &text)?;
    }
    Ok(Exit::Ok)
}

fn is_below(explained: &Explained, key: &str) -> bool {
    explained.key.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn unknown_key(key: &str, all: &[Explained]) -> Error {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_lowercase();
    let error = Error::new(&CONFIG_UNKNOWN_KEY, format!("there is no key {key:?}"));
    let near = all
        .iter()
        .map(|explained| explained.key.as_str())
        .filter(|known| last(known) == last(key) || strsim::jaro_winkler(known, key) > 0.9)
        .max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
    match near {
        Some(near) => error.with_hint(format!("Did you mean {near}?")),
        None => error,
    }
}

fn origin(explained: &Explained) -> String {
    let mut text = match &explained.origin {
        OriginOf::Default => "default".to_owned(),
        OriginOf::File(pointer) => format!("file {pointer}"),
        OriginOf::Environment(variable) => format!("environment {variable}"),
    };
    if let Some(by) = &explained.clamped_by {
        let _ = write!(text, ", lowered by {by}");
    }
    if let Some(note) = explained.note {
        let _ = write!(text, ", {note}");
    }
    text
}

fn document(explained: &Explained) -> Value {
    let mut document = json!({"key": explained.key, "value": explained.value});
    match &explained.origin {
        OriginOf::Default => document["origin"] = json!("default"),
        OriginOf::File(pointer) => {
            document["origin"] = json!("file");
            document["pointer"] = json!(pointer);
        }
        OriginOf::Environment(variable) => {
            document["origin"] = json!("environment");
            document["variable"] = json!(variable);
        }
    }
    if let Some(by) = &explained.clamped_by {
        document["clampedBy"] = json!(by);
    }
    if let Some(note) = explained.note {
        document["note"] = json!(note);
    }
    document
}
