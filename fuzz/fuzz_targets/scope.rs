//! Whatever a worker or a stranger sends: read or refused, the same however it is cut, and no tool runs unasked.
#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, OnceLock};

use agent_bridge::context::Clock;
use agent_bridge::scope::http::{self, Chunks};
use agent_bridge::scope::{BoundRun, CallLog, CallRecord, Endpoint, Limits, Options, ToolSet, kit, rpc};

/// Most of a body in this target.
const MAX: usize = 4096;

struct Nowhere;

impl CallLog for Nowhere {
    fn record(&self, record: CallRecord) -> Result<(), String> {
        assert!(record.tool.is_none_or(|tool| tool.chars().count() <= 64));
        Ok(())
    }

    fn flush(&self) -> Result<(), String> {
        Ok(())
    }
}

fn endpoint() -> &'static Endpoint {
    static ENDPOINT: OnceLock<Endpoint> = OnceLock::new();
    ENDPOINT.get_or_init(|| {
        let mut tools = ToolSet::default();
        for tool in kit::Notes::default().tools() {
            tools.add(tool).expect("a tool");
        }
        tools.allow("note").expect("a tool");
        let bound = BoundRun { run: "fuzz".into(), session: None, turn: None, workspace: "/".into() };
        Endpoint::start(Options {
            bound,
            tools,
            limits: Limits { calls: u64::MAX, ..Limits::default() },
            log: Arc::new(Nowhere),
            clock: Clock::Fixed(0),
            modern: true,
        })
        .expect("an endpoint")
    })
}

/// Sends these bytes and nothing more; every answer has to be one.
fn exchange(bytes: &[u8]) {
    let mut stream = TcpStream::connect(("127.0.0.1", endpoint().port())).expect("the port is open");
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{:?}", String::from_utf8_lossy(&answer));
    assert!(!answer.windows(64).any(|part| part == endpoint().token().expose().as_bytes()), "the token came back");
}

libfuzzer_sys::fuzz_target!(|input: (u8, u8, &[u8])| {
    let (way, step, bytes) = input;
    let step = usize::from(step).max(1);
    match way % 4 {
        0 => {
            if let Ok(Some(head)) = http::read_head(bytes) {
                assert_eq!(http::read_head(&bytes[..head.length]), Ok(Some(head.clone())));
                assert!(!matches!(http::read_head(&bytes[..head.length - 1]), Ok(Some(_))));
            }
            let _ = rpc::read(bytes);
        }
        1 => {
            let whole = unchunk(bytes, bytes.len().max(1));
            assert_eq!(whole, unchunk(bytes, step), "cut into pieces of {step}");
        }
        2 => exchange(bytes),
        _ => {
            let head = format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost:{}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
                endpoint().port(),
                endpoint().token().expose(),
                bytes.len()
            );
            exchange(&[head.as_bytes(), bytes].concat());
        }
    }
});

/// The body, or that there is none; which fault it is may depend on the cuts.
fn unchunk(wire: &[u8], step: usize) -> Option<Vec<u8>> {
    let mut chunks = Chunks::new(MAX);
    let (mut start, mut end) = (0, 0);
    loop {
        start += chunks.feed(&wire[start..end]).ok()?;
        assert!(chunks.body.len() <= MAX);
        if chunks.is_done() {
            return Some(chunks.body);
        }
        if end == wire.len() {
            return None;
        }
        end = (end + step).min(wire.len());
    }
}
