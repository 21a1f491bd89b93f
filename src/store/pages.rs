//! Cutting stored bytes into pages of readable text.
//!
//! Bytes that are not UTF-8 are shown as U+FFFD exactly as `String::from_utf8_lossy` shows them,
//! and a page never ends inside a character or inside such a run, so that pages joined are the
//! lossy whole whatever their sizes. One page costs one bounded read wherever it lies.

use std::io::{self, Read, Seek, SeekFrom};

/// The smallest page that can hold any character.
const MIN_PAGE: usize = 4;
/// The largest page, whatever the caller asks for.
const MAX_PAGE: usize = 8 << 20;

/// No character, and no run that is shown as one U+FFFD, is longer than this.
const LONGEST: usize = 4;

/// A piece of text and the bytes it stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) text: String,
    /// Where it really starts: the wanted offset, or the start of the character around it.
    pub(super) start: u64,
    /// Where the next piece starts.
    pub(super) end: u64,
}

/// The text from `offset` on, at most `max` bytes of it (at least one character).
pub(super) fn cut(source: &mut (impl Read + Seek), offset: u64, max: usize) -> io::Result<Cut> {
    let max = max.clamp(MIN_PAGE, MAX_PAGE);
    let back = usize::try_from(offset).unwrap_or(LONGEST).min(LONGEST - 1);
    let from = offset - back as u64;
    source.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    source.by_ref().take((back + max + LONGEST) as u64).read_to_end(&mut bytes)?;
    if bytes.len() <= back {
        return Ok(Cut { text: String::new(), start: offset, end: offset });
    }
    let start = boundary_before(&bytes, back);
    let (text, length) = lossy_prefix(&bytes[start..], max);
    let start = from + start as u64;
    Ok(Cut { text, start, end: start + length as u64 })
}

/// `at`, or the start of the character (or of the run shown as one U+FFFD) that `at` lies in.
fn boundary_before(bytes: &[u8], at: usize) -> usize {
    let continues = |position: usize| bytes[position] & 0xC0 == 0x80;
    if !continues(at) {
        return at;
    }
    let Some(lead) = (at.saturating_sub(LONGEST - 1)..at).rev().find(|position| !continues(*position)) else {
        return at;
    };
    let window = &bytes[lead..bytes.len().min(lead + LONGEST)];
    let length = window
        .utf8_chunks()
        .next()
        .map_or(0, |chunk| chunk.valid().chars().next().map_or(chunk.invalid().len(), char::len_utf8));
    if lead + length > at { lead } else { at }
}

/// The longest lossy text of at most `max` bytes, and how many source bytes it stands for. Text is
/// never shorter than its source, so the bytes beyond `max` only serve to see where a run ends.
fn lossy_prefix(bytes: &[u8], max: usize) -> (String, usize) {
    let (mut text, mut length) = (String::new(), 0);
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        let fitting = valid.floor_char_boundary(max - text.len());
        text.push_str(&valid[..fitting]);
        length += fitting;
        if fitting < valid.len() {
            break;
        }
        if !chunk.invalid().is_empty() {
            if text.len() + char::REPLACEMENT_CHARACTER.len_utf8() > max {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            length += chunk.invalid().len();
        }
    }
    (text, length)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    /// Text, damaged text and noise, rich in multi-byte characters cut short.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            "[a-zäß€😀]{0,6}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..6),
            prop::sample::select(vec![
                vec![0xF0, 0x9F, 0x98],
                vec![0xE2, 0x82],
                vec![0xC3],
                vec![0x80, 0x80],
                vec![0xED, 0xA0, 0x80],
                vec![0xF0, 0x80, 0x80, 0x80],
                vec![0xF4, 0x90, 0x80],
            ]),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn pages_joined_are_the_lossy_whole(bytes in bytes(), sizes in prop::collection::vec(0usize..40, 1..6)) {
            let mut source = Cursor::new(&bytes);
            let (mut joined, mut offset) = (String::new(), 0);
            for size in sizes.iter().cycle() {
                let page = cut(&mut source, offset, *size).unwrap();
                prop_assert_eq!(page.start, offset, "a page end is a boundary");
                prop_assert!(page.text.len() <= (*size).max(MIN_PAGE));
                joined.push_str(&page.text);
                if page.end == bytes.len() as u64 {
                    break;
                }
                prop_assert!(page.end > offset, "every page makes progress");
                offset = page.end;
            }
            prop_assert_eq!(joined, String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn any_offset_starts_at_the_boundary_at_or_before_it(bytes in bytes(), offset in 0u64..60) {
            let page = cut(&mut Cursor::new(&bytes), offset, MAX_PAGE).unwrap();
            if offset >= bytes.len() as u64 {
                prop_assert_eq!(page, Cut { text: String::new(), start: offset, end: offset });
            } else {
                prop_assert!(page.start <= offset && offset - page.start < LONGEST as u64);
                let start = usize::try_from(page.start).unwrap();
                let whole = String::from_utf8_lossy(&bytes);
                let before = String::from_utf8_lossy(&bytes[..start]);
                prop_assert_eq!(format!("{before}{}", page.text), whole);
            }
        }
    }

    #[test]
    fn a_page_reads_no_more_than_its_own_size() {
        struct Counting(Cursor<Vec<u8>>, usize);
        impl Read for Counting {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let read = self.0.read(buffer)?;
                self.1 += read;
                Ok(read)
            }
        }
        impl Seek for Counting {
            fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
                self.0.seek(position)
            }
        }
        let mut source = Counting(Cursor::new(vec![b'x'; 1 << 20]), 0);
        let page = cut(&mut source, (1 << 20) - 5000, 1000).unwrap();
        assert_eq!(page.text.len(), 1000);
        assert!(source.1 <= 1000 + 2 * LONGEST, "read {} bytes", source.1);
    }
}
