//! How commands print: results to standard output, everything else to standard error.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::store::Skipped;

/// Where a command writes.
pub struct Output {
    /// Standard output, for the result.
    pub out: Box<dyn Write>,
    /// Whether a person looks at standard error.
    pub stderr_is_terminal: bool,
    color: bool,
}

impl Output {
    /// The process's own streams.
    pub fn from_process() -> Self {
        let stderr_is_terminal = io::stderr().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            out: Box::new(io::BufWriter::new(io::stdout())),
            stderr_is_terminal,
            color: stderr_is_terminal && !plain,
        }
    }

    /// One line of the result.
    pub fn line(&mut self, text: impl AsRef<str>) {
        // A reader that went away is no failure of ours; anything else shows at the final flush.
        let _ = writeln!(self.out, "{}", text.as_ref());
    }

    /// The one document of a `--json` command.
    pub fn document(&mut self, kind: &str, body: &impl Serialize) {
        let mut document = json!({ "schema": format!("agent-bridge/{kind}/1"), "kind": kind });
        if let (Value::Object(document), Ok(Value::Object(body))) =
            (&mut document, serde_json::to_value(body))
        {
            document.extend(body);
        }
        let text = serde_json::to_string_pretty(&document).unwrap_or_default();
        self.line(text);
    }

    /// A remark for people, on standard error.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Damaged records that a list leaves out, on standard error.
    pub fn skipped(&mut self, kind: &str, skipped: &[Skipped]) {
        for record in skipped {
            self.note(&format!(
                "warning: {kind} {} cannot be read: {}",
                record.id,
                one_line(&record.reason, 200)
            ));
        }
    }

    /// An error and the next step, on standard error.
    pub fn error(&mut self, error: &Error) {
        let (red, bold, reset) =
            if self.color { ("\u{1b}[31m", "\u{1b}[1m", "\u{1b}[0m") } else { ("", "", "") };
        let _ =
            writeln!(io::stderr(), "{red}error{reset} {bold}{}{reset}: {}", error.code(), error.message());
        let _ = writeln!(io::stderr(), "  next: {}", error.hint());
    }

    /// Rows under headings, padded to the widest cell. The last column is not padded.
    pub fn table(&mut self, headings: &[&str], rows: &[Vec<String>]) {
        let width = |text: &str| text.chars().count();
        let widths: Vec<usize> = (0..headings.len())
            .map(|column| {
                rows.iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| width(cell))
                    .chain([width(headings[column])])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let format = |cells: Vec<&str>| {
            let last = cells.len().saturating_sub(1);
            cells
                .iter()
                .enumerate()
                .map(|(column, cell)| {
                    let pad = if column == last { 0 } else { widths[column].saturating_sub(width(cell)) };
                    format!("{cell}{}", " ".repeat(pad))
                })
                .collect::<Vec<_>>()
                .join("  ")
        };
        self.line(format(headings.to_vec()));
        for row in rows {
            self.line(format(row.iter().map(String::as_str).collect()));
        }
    }
}

/// One line without control characters, at most `limit` characters.
pub fn one_line(text: &str, limit: usize) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let flat = flat.split_whitespace().collect::<Vec<_>>().join(" ");
    if flat.chars().count() <= limit {
        return flat;
    }
    let kept: String = flat.chars().take(limit.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// `420 ms`, `1.5 s`, `2 min 5 s`.
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}
