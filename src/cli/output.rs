//! How commands print: results to standard output, everything else to standard error.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use dialoguer::console::{Term, measure_text_width};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::process::reorders_or_hides;

/// Where a command writes.
pub struct Output {
    /// Standard output, for the result.
    pub out: Box<dyn Write>,
    /// Whether a person looks at standard error.
    pub stderr_is_terminal: bool,
    /// Whether a person looks at standard output.
    out_is_terminal: bool,
    /// Columns of the terminal on standard output, if it is one with a size.
    out_columns: Option<usize>,
    /// Columns of the terminal on standard error, if it is one with a size.
    error_columns: Option<usize>,
    color: bool,
    /// See [`Self::committed`].
    is_committed: bool,
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
            out_is_terminal: io::stdout().is_terminal(),
            out_columns: columns(&Term::stdout()),
            error_columns: columns(&Term::stderr()),
            color: stderr_is_terminal && !plain,
            is_committed: false,
        }
    }

    /// Says that what the command was asked for is done and on the disk. The exit code tells the state of the
    /// machine, so from now on a failure to show the result is told, but is no failure of the command.
    pub fn committed(&mut self) {
        self.is_committed = true;
    }

    /// Whether that was said.
    pub fn is_committed(&self) -> bool {
        self.is_committed
    }

    /// Whether colours belong on standard output.
    pub fn shows_colour(&self) -> bool {
        self.out_is_terminal && self.color
    }

    /// Bytes of the result as they are: they are somebody's files.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let _ = self.out.write_all(bytes);
    }

    /// One line of a patch, in the colours that git gives it. What could command the terminal is shown, not sent.
    pub fn coloured_diff_line(&mut self, line: &str) {
        let colour = match line {
            _ if [
                "diff ",
                "index ",
                "--- ",
                "+++ ",
                "new file",
                "deleted file",
                "rename ",
                "similarity ",
            ]
            .iter()
            .any(|start| line.starts_with(start)) =>
            {
                "1"
            }
            _ if line.starts_with("@@") => "36",
            _ if line.starts_with('+') => "32",
            _ if line.starts_with('-') => "31",
            _ => "0",
        };
        let _ = writeln!(self.out, "\u{1b}[{colour}m{}\u{1b}[0m", printable(line));
    }

    /// One line of the result.
    pub fn line(&mut self, text: impl AsRef<str>) {
        // A reader that went away is no failure of ours; anything else shows at the final flush.
        let _ = writeln!(self.out, "{}", printable(text.as_ref()));
    }

    /// One line of the result, broken between words on a terminal; what follows is indented by `indent`.
    pub fn wrapped(&mut self, text: &str, indent: usize) {
        let text = wrap(text, indent, self.out_columns);
        self.line(text);
    }

    /// Another program's words: as they came, but without codes that a terminal would obey.
    pub fn foreign(&mut self, text: &str) {
        let text = if self.out_is_terminal { Cow::Owned(printable(text)) } else { Cow::Borrowed(text) };
        let _ = self.out.write_all(text.as_bytes());
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
        self.line(plain_json(&text));
    }

    /// A remark for people, on standard error, after what was printed before it.
    pub fn note(&mut self, text: &str) {
        self.note_indented(text, 0);
    }

    /// The same, with the lines after a break indented.
    pub fn note_indented(&mut self, text: &str, indent: usize) {
        let _ = self.out.flush();
        let _ = writeln!(io::stderr(), "{}", wrap(&printable(text), indent, self.error_columns));
    }

    /// An error and the next step, on standard error.
    pub fn error(&mut self, error: &Error) {
        let _ = self.out.flush();
        let (red, bold, reset) =
            if self.color { ("\u{1b}[31m", "\u{1b}[1m", "\u{1b}[0m") } else { ("", "", "") };
        let message = printable(error.message());
        let what = format!("{red}error{reset} {bold}{}{reset}: {message}", error.code());
        let next = format!("  next: {}", printable(&for_terminal(error.hint())));
        for line in [wrap(&what, 2, self.error_columns), wrap(&next, 8, self.error_columns)] {
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Rows under headings, padded to the widest cell. The last column is not padded; on a terminal
    /// that is too narrow for it, it gets lines of its own.
    pub fn table(&mut self, headings: &[&str], rows: &[Vec<String>]) {
        const INDENT: usize = 4;
        let width = measure_text_width;
        let widths: Vec<usize> = (0..headings.len())
            .map(|column| {
                let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell));
                cells.chain([width(headings[column])]).max().unwrap_or(0)
            })
            .collect();
        let last = headings.len().saturating_sub(1);
        let needed = widths.iter().sum::<usize>() + 2 * last;
        let fits = self.out_columns.is_none_or(|columns| needed <= columns);
        let mut row = |cells: Vec<&str>| {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate() {
                if column < last {
                    line.push_str(cell);
                    line.push_str(&" ".repeat(widths[column].saturating_sub(width(cell)) + 2));
                } else if fits {
                    line.push_str(cell);
                } else {
                    let own = format!("{}{cell}", " ".repeat(INDENT));
                    line = format!("{}\n{}", line.trim_end(), wrap(&own, INDENT, self.out_columns));
                }
            }
            let _ = writeln!(self.out, "{}", printable(line.trim_end()));
        };
        row(headings.to_vec());
        for cells in rows {
            row(cells.iter().map(String::as_str).collect());
        }
    }
}

/// A remark for people on standard error, from where no [`Output`] can be had.
pub fn remark(text: &str) {
    let _ = writeln!(io::stderr(), "{}", wrap(&printable(text), 0, columns(&Term::stderr())));
}

fn columns(terminal: &Term) -> Option<usize> {
    // Narrower than this nothing can be laid out; let the terminal break the lines.
    terminal.size_checked().map(|(_, columns)| usize::from(columns)).filter(|columns| *columns >= 40)
}

/// Breaks lines between words, never within one: paths and commands stay whole.
fn wrap(text: &str, indent: usize, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let mut wrapped = Vec::new();
    for line in text.lines() {
        let start = line.len() - line.trim_start().len();
        let mut current = line[..start].to_owned();
        let mut empty = true;
        for word in line[start..].split(' ') {
            let needed = measure_text_width(&current) + usize::from(!empty) + measure_text_width(word);
            if !empty && needed > columns {
                wrapped.push(std::mem::replace(&mut current, " ".repeat(indent)));
                empty = true;
            }
            if !empty {
                current.push(' ');
            }
            current.push_str(word);
            empty = false;
        }
        wrapped.push(current);
    }
    wrapped.join("\n")
}

/// Without control characters, which a terminal would obey, and without marks that make text read as
/// something it is not.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !misleads(*c)).collect()
}

/// The same for JSON, in which such characters can only stand inside texts: written as escapes.
fn plain_json(text: &str) -> String {
    use std::fmt::Write as _;
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || !misleads(c) {
            plain.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(plain, "\\u{unit:04x}");
        }
    }
    plain
}

fn misleads(c: char) -> bool {
    c.is_control() || reorders_or_hides(c)
}

/// Advice that names MCP tools and their arguments, in the words of this command line.
pub fn for_terminal(advice: &str) -> String {
    const COMMANDS: [(&str, &str); 12] = [
        ("get_turn_output", "agent-bridge turns output"),
        ("get_session", "agent-bridge sessions show"),
        ("list_sessions", "agent-bridge sessions list"),
        ("list_turns", "agent-bridge turns list"),
        ("list_questions", "agent-bridge turns questions"),
        ("answer_question", "agent-bridge turns answer"),
        ("continue_session", "agent-bridge delegate --session"),
        ("wait_turn", "agent-bridge turns wait"),
        ("cancel_turn", "agent-bridge turns cancel"),
        ("delegate_task", "agent-bridge delegate"),
        ("diagnose_install", "agent-bridge doctor"),
        ("timeout_sec", "--timeout"),
    ];
    let advice = advice.replace("`cwd`", "`--cwd`");
    COMMANDS.iter().fold(advice, |advice, (tool, command)| {
        advice.replace(&format!("`{tool}`"), tool).replace(tool, &format!("`{command}`"))
    })
}

/// One line without control characters, at most `limit` characters.
pub fn one_line(text: &str, limit: usize) -> String {
    let flat: String = text
        .chars()
        .filter(|c| !reorders_or_hides(*c))
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
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

/// How long ago: `4 s`, `3 min`, `5 h`, `12 d`.
pub fn age(now_ms: i64, then_ms: i64) -> String {
    match now_ms.saturating_sub(then_ms).max(0) / 1_000 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn lines_break_between_words_and_only_there() {
        let text = "warn  a b c /a/very/long/path/that/is/longer/than/the/line d";
        assert_eq!(
            wrap(text, 6, Some(12)),
            "warn  a b c\n      /a/very/long/path/that/is/longer/than/the/line\n      d"
        );
        assert_eq!(wrap(text, 6, None), text);
        assert_eq!(wrap("    own line", 4, Some(10)), "    own\n    line");
        assert_eq!(wrap("one\n\ntwo", 2, Some(40)), "one\n\ntwo");
    }

    #[test]
    fn advice_for_tools_becomes_advice_for_a_terminal() {
        assert_eq!(
            for_terminal("Take an id from `list_turns`."),
            "Take an id from `agent-bridge turns list`."
        );
        assert_eq!(for_terminal("Start with delegate_task."), "Start with `agent-bridge delegate`.");
        assert_eq!(
            for_terminal("Pass `cwd`, or set `defaults.cwd`."),
            "Pass `--cwd`, or set `defaults.cwd`."
        );
    }

    #[test]
    fn nothing_that_is_printed_commands_or_misleads_a_terminal() {
        use std::cell::RefCell;
        use std::rc::Rc;
        #[derive(Clone, Default)]
        struct Sink(Rc<RefCell<Vec<u8>>>);
        impl Write for Sink {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.borrow_mut().write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let hostile = "a\u{1b}[31m\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}\u{e0041}b 日本 👩\u{200d}💻";
        let sink = Sink::default();
        let mut output = Output {
            out: Box::new(sink.clone()),
            out_is_terminal: true,
            out_columns: Some(80),
            ..Output::from_process()
        };
        output.line(hostile);
        output.wrapped(hostile, 2);
        output.foreign(hostile);
        output.line("");
        output.table(&["ONE", "TWO"], &[vec![hostile.into(), one_line(hostile, 80)]]);
        output.document("test", &json!({ "text": hostile }));
        let printed = String::from_utf8(sink.0.borrow().clone()).unwrap();
        assert!(!printed.chars().any(|c| c != '\n' && misleads(c)), "{printed:?}");
        assert_eq!(printed.matches("日本 👩\u{200d}💻").count(), 6, "{printed}");
        let document: Value = serde_json::from_str(&printed[printed.find('{').unwrap()..]).unwrap();
        assert_eq!(document["text"], hostile, "a program still reads what was meant");
    }

    #[test]
    fn ages() {
        let ages = [59_999, 60_000, 3_599_000, 3_600_000, 172_799_000, 172_800_000].map(|ms| age(ms, 0));
        assert_eq!(ages, ["59 s", "1 min", "59 min", "1 h", "47 h", "2 d"]);
        assert_eq!(age(0, 5_000), "0 s", "a clock that was set back");
    }
}
