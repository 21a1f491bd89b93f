//! Finds JSON objects in lines that were not all written with care: a word in front of an object, an object over many
//! lines, line ends inside a text that nobody escaped, an object that was cut off.

use memchr::memmem;

/// An object over several lines is kept up to this size, in bytes.
const PENDING_BYTES: usize = 16 << 20;

/// How the objects begin that are looked for behind other bytes on a line.
const BEGINNINGS: [&[u8]; 3] = [b"{\"event\":", b"{\"conversation_id\":", b"{\"status\":"];

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// An object ended on it.
    Object,
    /// It belongs to an object that has not ended.
    Part,
    /// It is something else.
    Other,
}

/// Reads line by line, in bounded memory.
#[derive(Default)]
pub(super) struct Decoder {
    /// An object that has not ended, with its control characters escaped.
    pending: Vec<u8>,
    scan: Scan,
    torn: u64,
}

/// Where in an object the reading stands.
#[derive(Clone, Copy, Default)]
struct Scan {
    depth: u32,
    in_text: bool,
    escaped: bool,
}

impl Decoder {
    /// Reads a line without its line end. `known` is given each object that ended and says whether it is one that is
    /// understood.
    pub fn line(&mut self, line: &[u8], known: &mut dyn FnMut(&[u8]) -> bool) -> Line {
        if self.pending.is_empty() { self.fresh(line, known) } else { self.go_on(line, known) }
    }

    /// Objects that were cut off, with something behind them.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// An object has begun and not ended.
    pub fn is_open(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The last line ended inside a text of an object.
    pub fn in_text(&self) -> bool {
        self.is_open() && self.scan.in_text
    }

    fn fresh(&mut self, line: &[u8], known: &mut dyn FnMut(&[u8]) -> bool) -> Line {
        // What stands at its end may be inside a text.
        let line = line.trim_ascii_start();
        if !line.starts_with(b"{") {
            return if behind(line, known) { Line::Object } else { Line::Other };
        }
        if known(line.trim_ascii_end()) {
            return Line::Object;
        }
        // Its end was never written, and the next object follows on the same line.
        if behind(&line[1..], known) {
            self.torn += 1;
            return Line::Object;
        }
        if !line[1..].trim_ascii_start().first().is_none_or(|byte| matches!(byte, b'"' | b'}')) {
            return Line::Other;
        }
        self.scan = Scan::default();
        self.feed(line, known)
    }

    fn go_on(&mut self, line: &[u8], known: &mut dyn FnMut(&[u8]) -> bool) -> Line {
        // Inside a text every quotation mark is escaped, so what reads as an object by itself is one.
        let alone = line.trim_ascii();
        if alone.starts_with(b"{") && known(alone) {
            self.torn += 1;
            self.pending.clear();
            return Line::Object;
        }
        let end: &[u8] = if self.scan.in_text { b"\\n" } else { b"\n" };
        self.pending.extend_from_slice(end);
        self.feed(line, known)
    }

    fn feed(&mut self, line: &[u8], known: &mut dyn FnMut(&[u8]) -> bool) -> Line {
        for (at, byte) in line.iter().enumerate() {
            let Scan { depth, in_text, escaped } = &mut self.scan;
            match byte {
                b'"' if !*escaped => *in_text = !*in_text,
                b'{' | b'[' if !*in_text => *depth += 1,
                b'}' | b']' if !*in_text => *depth = depth.saturating_sub(1),
                _ => {}
            }
            *escaped = *in_text && *byte == b'\\' && !*escaped;
            if *in_text && *byte < 0x20 {
                self.pending.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            } else {
                self.pending.push(*byte);
            }
            if self.scan.depth == 0 && !self.scan.in_text {
                let object = std::mem::take(&mut self.pending);
                let understood = known(&object);
                let rest = line[at + 1..].trim_ascii();
                behind(rest, known);
                return if understood { Line::Object } else { Line::Other };
            }
            if self.pending.len() > PENDING_BYTES {
                self.torn += 1;
                self.pending = Vec::new();
                return Line::Other;
            }
        }
        Line::Part
    }
}

/// An object behind other bytes of a line.
fn behind(line: &[u8], known: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    let at = BEGINNINGS.iter().filter_map(|beginning| memmem::rfind(line, beginning)).max();
    at.is_some_and(|at| known(line[at..].trim_ascii()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// The events in a text, and how many objects were cut off.
    fn read(text: &str) -> (Vec<Value>, u64) {
        let mut decoder = Decoder::default();
        let mut found = Vec::new();
        for line in text.split('\n') {
            decoder.line(line.as_bytes(), &mut |bytes| {
                let event = serde_json::from_slice::<Value>(bytes).ok();
                let event = event.filter(|event| event["event"].is_string());
                let known = event.is_some();
                found.extend(event);
                known
            });
        }
        (found, decoder.torn() + u64::from(decoder.is_open()))
    }

    #[test]
    fn objects_are_found_however_they_are_written() {
        let one = json!({ "event": "a", "text": "x" });
        for text in [
            "{\"event\":\"a\",\"text\":\"x\"}",
            "a banner\n{\"event\":\"a\",\"text\":\"x\"}\nand a word at the end",
            "a banner on the line: {\"event\":\"a\",\"text\":\"x\"}",
            "{\n  \"event\": \"a\",\n  \"text\": \"x\"\n}\r",
            "{info} starting\n{\"event\":\"a\",\"text\":\"x\"}",
        ] {
            assert_eq!(read(text), (vec![one.clone()], 0), "{text}");
        }
    }

    #[test]
    fn line_ends_inside_a_text_belong_to_it() {
        let (found, torn) =
            read("{\"event\":\"a\",\"text\":\"one\ntwo {\\\"x\\\": [}\n\nthree\tfour\"}\n{\"event\":\"b\"}");
        assert_eq!(torn, 0);
        assert_eq!(found[0]["text"], "one\ntwo {\"x\": [}\n\nthree\tfour");
        assert_eq!(found[1], json!({ "event": "b" }));
    }

    #[test]
    fn what_was_cut_off_costs_only_itself() {
        for text in [
            "{\"event\":\"step_update\",\"text_del\n{\"event\":\"b\"}",
            "{\"event\":\"step_update\",\"text_del{\"event\":\"b\"}",
            "{\"event\":\"step_update\",\"inner\":{\n{\"event\":\"b\"}",
        ] {
            assert_eq!(read(text), (vec![json!({ "event": "b" })], 1), "{text}");
        }
        assert_eq!(read("{\"event\":\"result\",\"resu"), (vec![], 1));
    }

    proptest! {
        #[test]
        fn any_event_survives_line_ends_in_its_texts(text in "[a-z\"\\\\{}\\[\\]\n\t,: ]{0,40}") {
            let event = json!({ "event": "a", "text": text });
            let written = event.to_string().replace("\\n", "\n").replace("\\t", "\t");
            // A backslash before a real line end cannot be told from an escape.
            if !event.to_string().contains("\\\\n") && !event.to_string().contains("\\\\t") {
                prop_assert_eq!(read(&written), (vec![event], 0));
            }
        }

        #[test]
        fn nothing_makes_it_panic(text in "[{}\"\\\\\\[\\]:,a\n]{0,80}") {
            read(&text);
        }
    }
}
