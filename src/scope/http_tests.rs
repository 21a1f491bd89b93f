//! Heads and chunks, well-formed, broken and hostile.
#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

fn head(lines: &str) -> Result<Head<'static>, Fault> {
    let text: &'static str = format!("POST /mcp HTTP/1.1\r\n{lines}\r\n").leak();
    read_head(text.as_bytes()).map(|head| head.unwrap())
}

fn fault(bytes: &[u8]) -> u16 {
    read_head(bytes).unwrap_err().status()
}

#[test]
fn a_head_is_read_whatever_the_case_of_its_names() {
    let head = head("hOST: 127.0.0.1:1\r\nCONTENT-LENGTH:  7 \r\nmcp-name: x\r\nX-Other: y\r\n").unwrap();
    assert_eq!((head.host, head.mcp_name), (Some(&b"127.0.0.1:1"[..]), Some(&b"x"[..])));
    assert_eq!((head.framing, head.keep_alive), (Framing::Length(7), true));
}

#[test]
fn what_two_readers_could_frame_differently_is_refused() {
    for lines in [
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length:\r\n",
        "Content-Length : 1\r\n",
        " Content-Length: 1\r\n",
        "Host: a\r\nHost: a\r\n",
        "Authorization: a\r\nauthorization: b\r\n",
        "Host: a\r\n folded\r\n",
        "Host: a\nX: b\r\n",
        "Host: a\rX: b\r\n",
        "Host: a\0b\r\n",
        "no colon\r\n",
    ] {
        assert_eq!(head(lines).map_err(Fault::status), Err(400), "{lines:?}");
    }
    assert_eq!(fault(b"POST /mcp HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    assert_eq!(fault(b"\r\nPOST /mcp HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(fault(b"\x16\x03\x01\x02\x00\x01"), 400, "a TLS hello is told at once");
    assert_eq!(fault(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    for coding in ["gzip", "chunked, chunked", "gzip, chunked", "identity"] {
        assert_eq!(
            head(&format!("Transfer-Encoding: {coding}\r\n")).map_err(Fault::status),
            Err(501),
            "{coding}"
        );
    }
}

#[test]
fn sizes_are_bounded_and_huge_numbers_are_numbers() {
    assert_eq!(
        head("Content-Length: 99999999999999999999999\r\n").unwrap().framing,
        Framing::Length(u64::MAX)
    );
    assert_eq!(head(&"X: y\r\n".repeat(MAX_HEADERS + 1)).map_err(Fault::status), Err(431));
    assert_eq!(head(&format!("X: {}\r\n", "y".repeat(MAX_HEAD))).map_err(Fault::status), Err(431));
    let endless = format!("POST /mcp HTTP/1.1\r\nX: {}", "y".repeat(MAX_HEAD));
    assert_eq!(fault(endless.as_bytes()), 431, "without waiting for an end");
}

#[test]
fn the_connection_stays_open_unless_somebody_says_otherwise() {
    assert!(!head("Connection: keep-alive, Close\r\n").unwrap().keep_alive);
    assert!(head("Connection: keep-alive\r\nConnection: x\r\n").unwrap().keep_alive);
    assert!(!read_head(b"POST / HTTP/1.0\r\n\r\n").unwrap().unwrap().keep_alive);
}

fn unchunk(wire: &[u8], max: usize, step: usize) -> Result<Option<(Vec<u8>, usize)>, Fault> {
    let mut chunks = Chunks::new(max);
    let (mut start, mut end) = (0, 0);
    loop {
        start += chunks.feed(&wire[start..end])?;
        if chunks.is_done() {
            return Ok(Some((chunks.body, start)));
        }
        if end == wire.len() {
            return Ok(None);
        }
        end = (end + step).min(wire.len());
    }
}

#[test]
fn chunks_are_put_together_and_nothing_behind_them_is_touched() {
    let wire = b"3\r\nabc\r\n0a;name=\"v\"\r\n0123456789\r\n0\r\n\r\nPOST";
    for step in 1..wire.len() {
        assert_eq!(unchunk(wire, 13, step), Ok(Some((b"abc0123456789".to_vec(), wire.len() - 4))), "{step}");
    }
    assert_eq!(unchunk(wire, 12, 99), Err(Fault::BodyTooLarge));
    for broken in [
        "x\r\n",
        "\r\n",
        "+3\r\nabc\r\n",
        " 3\r\nabc",
        "3 \r\nabc",
        "3\nabc",
        "3\r\nabcd\r\n",
        "3\r\nabc\n",
        "0\r\nX: y\r\n\r\n",
        "-1\r\n",
        "0x3\r\nabc",
    ] {
        assert!(matches!(unchunk(broken.as_bytes(), 99, 99), Err(Fault::Malformed(_))), "{broken:?}");
    }
    assert!(
        matches!(unchunk(b"fffffffff\r\n", 99, 99), Err(Fault::Malformed(_))),
        "more digits than a size has"
    );
    assert_eq!(unchunk(b"ffffffff\r\n", 99, 99), Err(Fault::BodyTooLarge));
    assert!(unchunk(&[b'1'; 400], 99, 7).is_err(), "a size line without an end");
    let dribble = "1\r\nx\r\n".repeat(2_000);
    assert_eq!(unchunk(dribble.as_bytes(), 1_500, 99), Err(Fault::BodyTooLarge));
    let wasteful = format!("1;{}\r\nx\r\n", "e".repeat(200)).repeat(100);
    assert_eq!(unchunk(wasteful.as_bytes(), 1_000, 99), Err(Fault::BodyTooLarge), "more wire than body");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_and_a_prefix_never_says_something_else(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        lines in "[A-Za-z-]{1,12}: [ -~]{0,30}(\r\n|\n|\r)?",
        close in any::<bool>(),
    ) {
        let mut wire = b"POST /mcp HTTP/1.1\r\n".to_vec();
        wire.extend(lines.as_bytes());
        wire.extend(&bytes);
        if close {
            wire.extend(b"\r\n\r\n");
        }
        for wire in [&wire, &bytes] {
            if let Ok(Some(head)) = read_head(wire) {
                prop_assert!(wire[..head.length].ends_with(b"\r\n\r\n"));
                // Reading did not depend on what came behind, and less was not enough.
                prop_assert_eq!(read_head(&wire[..head.length]), Ok(Some(head.clone())));
                prop_assert!(!matches!(read_head(&wire[..head.length - 1]), Ok(Some(_))));
            }
        }
    }

    #[test]
    fn a_chunked_body_comes_out_the_same_however_it_is_cut(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..8),
        step in 1_usize..40,
    ) {
        let mut wire = Vec::new();
        for piece in &pieces {
            wire.extend(format!("{:x}\r\n", piece.len()).bytes());
            wire.extend(piece);
            wire.extend(b"\r\n");
        }
        wire.extend(b"0\r\n\r\n");
        prop_assert_eq!(unchunk(&wire, 4096, step), Ok(Some((pieces.concat(), wire.len()))));
    }
}
