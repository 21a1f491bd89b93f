//! A stored output of any bytes, read in pages of any size: always the whole text, always an end.
#![no_main]

use std::sync::OnceLock;

use agent_bridge::store::{BlobKind, Blobs};

const TURN: &str = "00000000-0000-4000-8000-000000000000";

libfuzzer_sys::fuzz_target!(|input: (u16, u16, &[u8])| {
    static BLOBS: OnceLock<Blobs> = OnceLock::new();
    let blobs = BLOBS.get_or_init(|| Blobs::new(&agent_bridge_fuzz::world().cwd.join("state")));
    let (page, preview, bytes) = input;
    blobs.write(TURN, BlobKind::Stdout, bytes).expect("a blob is written");
    let mut offset = 0;
    let mut text = String::new();
    loop {
        let page = blobs.read_page(TURN, BlobKind::Stdout, offset, usize::from(page)).expect("a page");
        text.push_str(&page.text);
        assert_eq!(page.complete, page.next_offset.is_none());
        match page.next_offset {
            None => break,
            Some(next) => {
                assert!(next > offset, "no progress at {offset}");
                offset = next;
            }
        }
    }
    assert_eq!(text, String::from_utf8_lossy(bytes));
    let preview = usize::from(preview).max(1_000);
    let shown = blobs.head_tail(TURN, BlobKind::Stdout, preview).expect("a preview");
    assert!(shown.text.len() <= preview.max(bytes.len().min(preview) * 3), "{} > {preview}", shown.text.len());
});
