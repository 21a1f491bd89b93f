//! Output that no parser understood, kept within a bound: its beginning and its end.

use std::collections::VecDeque;

use crate::process::strip_terminal;

/// The first and the last bytes of a text of any length.
#[derive(Debug)]
pub(super) struct BoundedText {
    head: Vec<u8>,
    head_cap: usize,
    tail: VecDeque<u8>,
    tail_cap: usize,
    dropped: u64,
}

impl BoundedText {
    /// Keeps at most `cap` bytes: three quarters from the start, the rest from the end.
    pub fn new(cap: usize) -> Self {
        let tail_cap = cap / 4;
        Self { head: Vec::new(), head_cap: cap - tail_cap, tail: VecDeque::new(), tail_cap, dropped: 0 }
    }

    /// Adds a line and its line end.
    pub fn push_line(&mut self, line: &[u8]) {
        self.push(line);
        self.push(b"\n");
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = if self.tail.is_empty() { self.head_cap - self.head.len() } else { 0 };
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let skip = rest.len().saturating_sub(self.tail_cap);
        self.tail.extend(&rest[skip..]);
        let over = self.tail.len().saturating_sub(self.tail_cap);
        self.tail.drain(..over);
        self.dropped += (skip + over) as u64;
    }

    /// Bytes in memory.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(self.head_cap + self.tail_cap);
    }

    /// Everything that was added, if nothing had to be dropped.
    pub fn complete(&mut self) -> Option<&[u8]> {
        if self.dropped > 0 {
            return None;
        }
        self.head.extend(self.tail.drain(..));
        Some(&self.head)
    }

    /// Readable text without terminal codes; a gap is marked.
    pub fn into_text(mut self) -> String {
        if self.dropped > 0 {
            let note = format!("\n[… {} bytes left out …]\n", self.dropped);
            self.head.extend_from_slice(note.as_bytes());
        }
        self.head.extend(self.tail.drain(..));
        let text = String::from_utf8(self.head)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        strip_terminal(&text).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gap_is_told() {
        let mut text = BoundedText::new(16);
        for line in 0..20 {
            text.push_line(format!("line{line:02}").as_bytes());
        }
        assert!(text.complete().is_none());
        let text = text.into_text();
        assert!(
            text.starts_with("line00") && text.ends_with("e19") && text.contains("bytes left out"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn never_holds_more_than_its_bound(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..40), cap in 8_usize..64) {
            let mut text = BoundedText::new(cap);
            let mut whole = Vec::new();
            for line in &lines {
                text.push_line(line);
                whole.extend_from_slice(line);
                whole.push(b'\n');
                prop_assert!(text.held() <= cap);
            }
            if whole.len() <= cap {
                prop_assert_eq!(text.complete().map(<[u8]>::to_vec), Some(whole));
            } else if whole.len() > cap {
                prop_assert!(text.complete().is_none());
            }
        }
    }
}
