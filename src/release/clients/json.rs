//! JSON with the place of everything in it. Comments are read where a client allows them, nothing else that is
//! not JSON; numbers and escapes are left as they are, half a surrogate pair included.

use std::ops::Range;

use super::splice::{Comments, Members};

/// Deeper than any client's file.
const MAX_DEPTH: usize = 200;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub span: Range<usize>,
    pub kind: Kind,
}

/// What it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Object(Vec<Property>),
    Array(Vec<Node>),
    Text(String),
    Number,
    True,
    False,
    Null,
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Property {
    pub key: String,
    /// From the begin of the key to the end of the value.
    pub span: Range<usize>,
    pub value: Node,
}

impl Node {
    /// The members, if it is an object.
    pub(super) fn properties(&self) -> Option<&[Property]> {
        match &self.kind {
            Kind::Object(properties) => Some(properties),
            _ => None,
        }
    }

    /// The elements, if it is an array.
    pub(super) fn elements(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The value of a key. Of a key that occurs twice the last one counts, as for every client.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.properties()?.iter().rev().find(|one| one.key == key).map(|one| &one.value)
    }

    /// The same along a path.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The text, if it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What is between its brackets.
    pub(super) fn members(&self, comments: bool, gap: &'static str) -> Option<Members> {
        let items = match &self.kind {
            Kind::Object(properties) => properties.iter().map(|one| one.span.clone()).collect(),
            Kind::Array(elements) => elements.iter().map(|one| one.span.clone()).collect(),
            _ => return None,
        };
        let comments = if comments { Comments::Slashes } else { Comments::None };
        Some(Members { inside: self.span.start + 1..self.span.end - 1, items, comments, gap })
    }
}

/// Reads a text.
pub(super) fn parse(text: &str, comments: bool) -> Result<Node, String> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, comments };
    let read = reader.space().and_then(|()| reader.value(0)).and_then(|node| {
        reader.space()?;
        if reader.at == text.len() { Ok(node) } else { Err("something follows the value") }
    });
    read.map_err(|why| {
        let before = &text.as_bytes()[..reader.at.min(text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line}: {why}")
    })
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    comments: bool,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) -> Result<(), &'static str> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(b'/') if self.comments && self.text[self.at..].starts_with("//") => {
                    let rest = &self.text[self.at..];
                    self.at += rest.find(['\n', '\r']).unwrap_or(rest.len());
                }
                Some(b'/') if self.comments && self.text[self.at..].starts_with("/*") => {
                    let end = self.text[self.at + 2..].find("*/").ok_or("a comment has no end")?;
                    self.at += end + 4;
                }
                Some(b'/') => return Err("a comment, which this client does not read"),
                _ => return Ok(()),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, &'static str> {
        if depth > MAX_DEPTH {
            return Err("too many levels");
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Kind::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => {
                let words = [("true", Kind::True), ("false", Kind::False), ("null", Kind::Null)];
                let rest = &self.bytes[self.at..];
                let (word, kind) = words
                    .into_iter()
                    .find(|(word, _)| rest.starts_with(word.as_bytes()))
                    .ok_or("a value is missing")?;
                self.at += word.len();
                kind
            }
        };
        Ok(Node { span: start..self.at, kind })
    }

    fn object(&mut self, depth: usize) -> Result<Kind, &'static str> {
        let mut properties = Vec::new();
        self.at += 1;
        self.space()?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Kind::Object(properties));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err("a key is missing");
            }
            let start = self.at;
            let key = self.string()?;
            self.space()?;
            if self.peek() != Some(b':') {
                return Err("a colon is missing");
            }
            self.at += 1;
            self.space()?;
            let value = self.value(depth + 1)?;
            properties.push(Property { key, span: start..value.span.end, value });
            self.space()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err("a comma or a closing brace is missing"),
            }
            self.space()?;
        }
        self.at += 1;
        Ok(Kind::Object(properties))
    }

    fn array(&mut self, depth: usize) -> Result<Kind, &'static str> {
        let mut elements = Vec::new();
        self.at += 1;
        self.space()?;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Kind::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            self.space()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err("a comma or a closing bracket is missing"),
            }
            self.space()?;
        }
        self.at += 1;
        Ok(Kind::Array(elements))
    }

    fn string(&mut self) -> Result<String, &'static str> {
        self.at += 1;
        let mut text = String::new();
        let mut piece = self.at;
        loop {
            match self.peek() {
                None => return Err("a string has no end"),
                Some(b'"') => {
                    text.push_str(&self.text[piece..self.at]);
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    text.push_str(&self.text[piece..self.at]);
                    self.at += 1;
                    text.push(self.escape()?);
                    piece = self.at;
                }
                Some(0..=0x1f) => return Err("a control character in a string"),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, &'static str> {
        let kind = self.peek().ok_or("a string has no end")?;
        self.at += 1;
        Ok(match kind {
            b'"' | b'\\' | b'/' => kind as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                let high = u32::from(first);
                if (0xd800..0xdc00).contains(&high) && self.text[self.at..].starts_with("\\u") {
                    let before = self.at;
                    self.at += 2;
                    let low = u32::from(self.unit()?);
                    if (0xdc00..0xe000).contains(&low) {
                        let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                        return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
                    }
                    self.at = before;
                }
                char::from_u32(high).unwrap_or('\u{fffd}')
            }
            _ => return Err("an escape that JSON does not have"),
        })
    }

    fn unit(&mut self) -> Result<u16, &'static str> {
        let digits = self.text.get(self.at..self.at + 4).ok_or("an escape is cut off")?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("an escape that JSON does not have");
        }
        self.at += 4;
        u16::from_str_radix(digits, 16).map_err(|_| "an escape that JSON does not have")
    }

    fn number(&mut self) -> Result<Kind, &'static str> {
        let wrong = "a number that JSON does not have";
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let whole = self.digits();
        if whole.is_empty() || (whole.len() > 1 && self.bytes[whole.start] == b'0') {
            return Err(wrong);
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits().is_empty() {
                return Err(wrong);
            }
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            if self.digits().is_empty() {
                return Err(wrong);
            }
        }
        Ok(Kind::Number)
    }

    fn digits(&mut self) -> Range<usize> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        start..self.at
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn what_json_is_and_what_it_is_not() {
        for good in [
            "{}",
            " [1, -0.5e+3, 123456789012345678901234567890, \"\\ud83d\", \"\\ud83d\\ude00\", null] ",
            "{\"a\":{\"a\":1},\"a\":true}",
        ] {
            assert!(parse(good, false).is_ok(), "{good}");
        }
        for bad in [
            "",
            "{",
            "{'a':1}",
            "{\"a\":1,}",
            "[1,]",
            "01",
            "1.",
            ".5",
            "+1",
            "nul",
            "\"\\x\"",
            "\"a\nb\"",
            "{}{}",
            "// c\n{}",
            "{a:1}",
            "NaN",
            "\"\\u12\"",
            "[\"\\u+123\"]",
        ] {
            assert!(parse(bad, false).is_err(), "{bad}");
        }
        assert!(parse("// c\n{ /* d */ \"a\": 1 // e\r\n}", true).is_ok());
        assert!(parse("{\"a\":1,}", true).is_err(), "no client of ours reads that");
        assert!(parse("/* a", true).is_err());
        let deep = "[".repeat(100_000);
        assert!(parse(&deep, false).unwrap_err().contains("too many levels"));
    }

    #[test]
    fn keys_are_read_as_what_they_mean() {
        let node = parse(r#"{"\u0061gent\u002dbridge":1}"#, false).unwrap();
        assert_eq!(node.properties().unwrap()[0].key, "agent-bridge");
    }
}
