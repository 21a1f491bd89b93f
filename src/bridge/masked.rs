//! A worker's raw output on its way to disk, without the secrets that the worker was given.

use std::io::{self, Write};

use crate::agents::redaction;

/// Replaces every spelling of the given values, wherever the writes happen to cut them.
pub(super) struct Masked<W> {
    inner: W,
    /// Longest first.
    forms: Vec<String>,
    /// Bytes that a form begins with.
    begins: [bool; 256],
    /// What may be the beginning of a form.
    held: Vec<u8>,
}

impl<W: Write> Masked<W> {
    pub(super) fn new(inner: W, values: &[&str]) -> Self {
        let forms = redaction::forms_of(values);
        let mut begins = [false; 256];
        for first in forms.iter().filter_map(|form| form.bytes().next()) {
            begins[usize::from(first)] = true;
        }
        Self { inner, forms, begins, held: Vec::new() }
    }

    fn pass_on(&mut self, to_the_end: bool) -> io::Result<()> {
        let bytes = self.held.as_slice();
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while let Some(skip) = bytes[at..].iter().position(|byte| self.begins[usize::from(*byte)]) {
            out.extend_from_slice(&bytes[at..at + skip]);
            at += skip;
            let rest = &bytes[at..];
            let found = self.forms.iter().map(String::as_bytes).find(|form| {
                rest.starts_with(form) || (!to_the_end && rest.len() < form.len() && form.starts_with(rest))
            });
            match found {
                Some(form) if rest.len() < form.len() => break,
                Some(form) => {
                    out.extend_from_slice(redaction::MARK.as_bytes());
                    at += form.len();
                }
                None => {
                    out.extend_from_slice(&rest[..1]);
                    at += 1;
                }
            }
        }
        // Without any beginning in it, all of the rest is harmless.
        let harmless = bytes[at..].iter().position(|byte| self.begins[usize::from(*byte)]);
        if harmless.is_none() {
            out.extend_from_slice(&bytes[at..]);
            at = bytes.len();
        }
        self.held.drain(..at);
        self.inner.write_all(&out)
    }
}

impl<W: Write> Write for Masked<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        self.pass_on(false)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass_on(true)?;
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn masked(values: &[&str], pieces: &[&[u8]]) -> Vec<u8> {
        let mut out = Masked::new(Vec::new(), values);
        for piece in pieces {
            out.write_all(piece).unwrap();
        }
        out.flush().unwrap();
        out.inner
    }

    proptest! {
        #[test]
        fn no_cut_lets_a_value_through_and_nothing_else_is_lost(
            before in "[ab\n]{0,20}", after in "[ab\n]{0,20}", size in 1usize..9,
        ) {
            let text = format!("{before}abba-cadabra{after}abba-cada");
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let wanted = format!("{before}[redacted]{after}abba-cada");
            prop_assert_eq!(String::from_utf8(masked(&["abba-cadabra"], &pieces)).unwrap(), wanted);
        }
    }

    #[test]
    fn without_values_bytes_stay_as_they_are() {
        assert_eq!(masked(&[], &[b"any\xFF", b"\0bytes"]), b"any\xFF\0bytes");
    }

    #[test]
    fn only_what_may_be_a_secret_waits() {
        let mut out = Masked::new(Vec::new(), &["secret-value"]);
        out.write_all(b"a line\nsecr").unwrap();
        assert_eq!(out.inner, b"a line\n");
        out.write_all(b"etary\n").unwrap();
        assert_eq!(out.inner, b"a line\nsecretary\n");
    }
}
