//! The three forms of output.

use std::io::{Read, Write};

use serde_json::{Value, json};

/// `--output-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Stream,
}

impl Format {
    pub fn parse(text: Option<&str>) -> Result<Self, String> {
        match text {
            None | Some("text") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            Some("stream-json") => Ok(Self::Stream),
            Some(other) => Err(format!("invalid output format {other:?}: must be text, json or stream-json")),
        }
    }
}

/// Standard output.
pub struct Output {
    pub format: Format,
    /// Line ends inside texts are not escaped.
    pub raw_newlines: bool,
    /// A single document is over many lines.
    pub indented: bool,
}

impl Output {
    /// Bytes as they are. That nobody reads any more is no reason to end: a foreign program would not either.
    pub fn raw(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    /// An event, if this run tells events.
    pub fn event(&self, event: &Value) {
        if self.format == Format::Stream {
            self.raw(format!("{}\n", self.written(event, false)).as_bytes());
        }
    }

    /// The end of the run, in the run's form.
    pub fn result(&self, envelope: &Value) {
        match self.format {
            Format::Text => {
                let text = envelope["response"].as_str().unwrap_or_default();
                if !text.is_empty() {
                    self.raw(format!("{text}\n").as_bytes());
                }
            }
            Format::Json => self.raw(format!("{}\n", self.written(envelope, self.indented)).as_bytes()),
            Format::Stream => self.event(&json!({ "event": "result", "result": envelope })),
        }
    }

    /// JSON as Go writes it: what could end a script is escaped.
    fn written(&self, value: &Value, indented: bool) -> String {
        let text = if indented { format!("{value:#}") } else { value.to_string() };
        let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
        if self.raw_newlines { text.replace("\\n", "\n") } else { text }
    }
}

/// Standard input to its end, however long that takes.
pub fn read_to_end() -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = std::io::stdin().lock().read_to_end(&mut bytes);
    bytes
}
