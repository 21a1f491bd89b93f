//! Cuts a stream of bytes into lines and keeps the tail of another, both in bounded memory.

/// Cuts standard output into lines.
pub(super) struct Lines {
    partial: Vec<u8>,
    max: usize,
    /// The present line was too long; the rest of it is dropped.
    skipping: bool,
}

/// A line longer than the limit was met.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Lines {
    pub(super) fn new(max: usize) -> Self {
        Self { partial: Vec::new(), max, skipping: false }
    }

    /// Hands on every line that `bytes` completes, without its line end. A line over the limit is
    /// dropped as a whole and reported; the lines after it are handed on.
    pub(super) fn feed(&mut self, bytes: &[u8], mut on_line: impl FnMut(&[u8])) -> Result<(), TooLong> {
        let mut result = Ok(());
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if self.skipping {
                self.skipping = false;
            } else if self.partial.is_empty() && line.len() <= self.max {
                on_line(without_return(line));
            } else if self.append(line) {
                on_line(without_return(&self.partial));
                self.clear();
            } else {
                // The line end is here already, so there is nothing more to skip.
                self.skipping = false;
                result = Err(TooLong);
            }
        }
        if !rest.is_empty() && !self.skipping && !self.append(rest) {
            result = Err(TooLong);
        }
        result
    }

    /// The end of the stream: a last line without its line end still counts.
    pub(super) fn finish(&mut self, mut on_line: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            on_line(without_return(&self.partial));
            self.clear();
        }
    }

    /// `false` (and the line is given up) if it would grow over the limit.
    fn append(&mut self, bytes: &[u8]) -> bool {
        let wanted = self.partial.len() + bytes.len();
        if wanted > self.max {
            self.clear();
            self.skipping = true;
            return false;
        }
        if wanted > self.partial.capacity() {
            // Doubling, but never beyond the limit.
            let capacity = (self.partial.capacity() * 2).clamp(wanted, self.max.max(wanted));
            self.partial.reserve_exact(capacity - self.partial.len());
        }
        self.partial.extend_from_slice(bytes);
        true
    }

    fn clear(&mut self) {
        self.partial.clear();
        self.partial.shrink_to(64 * 1024);
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Keeps the last bytes of a stream.
pub(super) struct Tail {
    bytes: Vec<u8>,
    max: usize,
}

impl Tail {
    pub(super) fn new(max: usize) -> Self {
        Self { bytes: Vec::new(), max }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let useful = bytes.get(bytes.len().saturating_sub(self.max)..).unwrap_or_default();
        self.bytes.extend_from_slice(useful);
        // Trimmed at twice the size, so that many small writes do not move the rest each time.
        if self.bytes.len() > self.max.saturating_mul(2) {
            self.trim();
        }
    }

    pub(super) fn text(mut self) -> String {
        self.trim();
        super::readable(&self.bytes)
    }

    fn trim(&mut self) {
        let surplus = self.bytes.len().saturating_sub(self.max);
        self.bytes.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn lines(max: usize, chunks: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
        let mut splitter = Lines::new(max);
        let mut found = Vec::new();
        let mut too_long = false;
        for chunk in chunks {
            too_long |= splitter.feed(chunk, |line| found.push(line.to_vec())).is_err();
        }
        splitter.finish(|line| found.push(line.to_vec()));
        (found, too_long)
    }

    #[test]
    fn lines_are_cut_at_any_chunk_border() {
        let (found, too_long) = lines(100, &[b"one\r", b"\ntw", b"o\n\nthree"]);
        assert_eq!(found, [b"one".to_vec(), b"two".to_vec(), b"".to_vec(), b"three".to_vec()]);
        assert!(!too_long);
    }

    #[test]
    fn a_line_over_the_limit_is_dropped_and_the_next_one_kept() {
        let (found, too_long) = lines(4, &[b"ok\n12345", b"678", b"9\nnext\n"]);
        assert_eq!(found, [b"ok".to_vec(), b"next".to_vec()]);
        assert!(too_long);
        let (found, too_long) = lines(4, &[b"123456\nok"]);
        assert_eq!(found, [b"ok".to_vec()]);
        assert!(too_long);
    }

    #[test]
    fn an_endless_line_takes_no_more_than_the_limit() {
        let mut splitter = Lines::new(1 << 20);
        let chunk = vec![b'x'; 64 * 1024];
        let mut too_long = 0;
        for _ in 0..1000 {
            too_long += u32::from(splitter.feed(&chunk, |_| ()).is_err());
            assert!(splitter.partial.capacity() <= 1 << 20);
        }
        assert_eq!(too_long, 1, "reported once");
    }

    #[test]
    fn the_tail_keeps_the_end_in_bounded_memory() {
        let mut tail = Tail::new(10);
        for _ in 0..1000 {
            tail.feed(b"0123456789abc");
            assert!(tail.bytes.len() <= 20);
        }
        tail.feed(b"the end");
        assert_eq!(tail.text(), "abcthe end");
    }

    proptest! {
        #[test]
        fn joined_lines_are_the_input(
            text in "[ab\n]{0,60}",
            cuts in proptest::collection::vec(0usize..60, 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (found, too_long) = lines(1000, &chunks);
            prop_assert!(!too_long);
            let mut wanted: Vec<Vec<u8>> = bytes.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
            if wanted.last().is_some_and(Vec::is_empty) {
                wanted.pop();
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
