//! How the demos print what happens: one line a step, with the time it took.

use std::time::Instant;

use serde_json::{Value, json};

use super::output::{Output, duration, one_line};

/// Prints what happens, step by step; with `--json` keeps it for the document.
pub struct Story<'a> {
    /// Where it is told.
    pub output: &'a mut Output,
    /// Nothing is printed before the document.
    pub json: bool,
    /// What happened so far.
    pub steps: Vec<Value>,
}

impl<'a> Story<'a> {
    /// A story that begins.
    pub fn new(output: &'a mut Output, json: bool) -> Self {
        Self { output, json, steps: Vec::new() }
    }

    /// A line before the steps.
    pub fn heading(&mut self, text: &str) {
        if !self.json {
            self.output.line(text);
        }
    }

    /// A step that is done.
    pub fn step(&mut self, title: &str, began: Instant, found: &str) {
        let took = millis(began);
        let number = self.steps.len() + 1;
        self.steps.push(json!({ "step": title, "found": found, "durationMs": took }));
        if !self.json {
            let line = format!("{number:>2}. {title:<34} {:>8}  {}", duration(took), one_line(found, 110));
            self.output.wrapped(&line, 49);
            let _ = std::io::Write::flush(&mut self.output.out);
        }
    }
}

/// Milliseconds since then.
pub fn millis(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}
