//! Makes what a program printed fit to be shown: any bytes in, plain text out.

/// Readable text from any bytes: UTF-8 with replacement characters, or UTF-16 if it looks like it.
/// Terminal codes, other control characters and marks that reorder text are removed; line ends become
/// `\n`; a cut first character is dropped.
pub fn readable(bytes: &[u8]) -> String {
    strip_terminal(&decode(bytes))
}

fn decode(bytes: &[u8]) -> String {
    match utf16_order(bytes) {
        Some((big_endian, offset)) => {
            let units = bytes.get(offset..).unwrap_or_default().chunks_exact(2).map(|pair| match *pair {
                [a, b] if big_endian => u16::from_be_bytes([a, b]),
                [a, b] => u16::from_le_bytes([a, b]),
                _ => 0,
            });
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        None => {
            // The tail of a stream may begin inside a character.
            let cut = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
            String::from_utf8_lossy(bytes.get(cut..).unwrap_or_default()).into_owned()
        }
    }
}

/// `(big endian, offset of the first unit)` if the bytes look like UTF-16: mostly Latin text has a
/// zero in every other byte. The offset may be odd, because a tail can begin inside a unit.
fn utf16_order(bytes: &[u8]) -> Option<(bool, usize)> {
    if bytes.len() < 4 {
        return None;
    }
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Some((bytes.first() == Some(&0xFE), 0));
    }
    let zeros = |parity: usize| bytes.iter().skip(parity).step_by(2).filter(|byte| **byte == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    let half = bytes.len() / 2;
    // Nearly all high bytes zero, nearly no low bytes zero. Little endian is taken for granted: it is
    // what Windows writes; a big-endian stream would need its byte order mark.
    if odd * 10 >= half * 7 && even * 10 <= half {
        Some((false, 0))
    } else if even * 10 >= half * 7 && odd * 10 <= half {
        Some((false, 1))
    } else {
        None
    }
}

/// Removes terminal codes, other control characters and marks that reorder or hide text; line ends become
/// `\n`, tabs stay.
pub fn strip_terminal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1B}' => skip_escape(&mut chars),
            '\u{9B}' => skip_csi(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9D}'..='\u{9F}' => skip_string(&mut chars),
            '\r' => {
                if chars.peek() != Some(&'\n') {
                    out.push('\n');
                }
            }
            '\n' | '\t' => out.push(c),
            _ if c.is_control() || reorders_or_hides(c) => {}
            _ => out.push(c),
        }
    }
    out
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_escape(chars: &mut Chars<'_>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_csi(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            skip_string(chars);
        }
        // Two-character codes, some with intermediate characters (charset selection).
        _ => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next_if(|c| matches!(c, '0'..='~'));
        }
    }
}

/// Parameters, then one final character. Anything else ends a malformed code and is kept.
fn skip_csi(chars: &mut Chars<'_>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

/// Up to BEL or ST. A line end also ends it, so that an unfinished title cannot swallow the text.
fn skip_string(chars: &mut Chars<'_>) {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        match c {
            '\u{07}' | '\u{9C}' => return,
            '\u{1B}' if chars.next_if_eq(&'\\').is_some() => return,
            _ => {}
        }
    }
}

/// Direction marks and overrides, invisible characters and tags, which can make text read as something
/// it is not. The joiners that scripts and emoji need are not among them.
pub fn reorders_or_hides(c: char) -> bool {
    matches!(
        c,
        '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn colours_titles_and_controls_are_removed() {
        assert_eq!(readable(b"\x1b[31;1merror\x1b[0m: no\x07 login\r\n"), "error: no login\n");
        assert_eq!(readable(b"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link"), "textlink");
        assert_eq!(readable(b"\x1b(Bplain\x1b=\x1b[?25l\x1b[2Kx"), "plainx");
        assert_eq!(readable(b"10%\r20%\rdone"), "10%\n20%\ndone");
        assert_eq!(readable("a\u{202E}b\u{200B}c".as_bytes()), "abc");
    }

    #[test]
    fn an_unfinished_title_does_not_swallow_the_next_line() {
        assert_eq!(readable(b"\x1b]0;never ends\nthe reason"), "\nthe reason");
    }

    #[test]
    fn foreign_encodings_stay_legible() {
        let utf16: Vec<u8> = "Zugriff verweigert\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(readable(&utf16), "Zugriff verweigert\n");
        assert_eq!(readable(&utf16[1..]), "ugriff verweigert\n");
        let mut marked = vec![0xFF, 0xFE];
        marked.extend_from_slice(&utf16);
        assert_eq!(readable(&marked), "Zugriff verweigert\n");
        assert_eq!(readable(b"Schl\xFCssel fehlt"), "Schl\u{FFFD}ssel fehlt");
        assert_eq!(readable(&[0xFF, 0xFE]), "\u{FFFD}\u{FFFD}");
    }

    #[test]
    fn a_cut_first_character_is_dropped() {
        assert_eq!(readable(&"äb".as_bytes()[1..]), "b");
    }

    proptest! {
        #[test]
        fn any_bytes_give_clean_text(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let text = readable(&bytes);
            prop_assert!(text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{text:?}");
        }

        #[test]
        fn ordinary_text_is_unchanged(text in "[a-zA-Z0-9äöü€ \t\n]{0,200}") {
            prop_assert_eq!(readable(text.as_bytes()), text);
        }
    }
}
