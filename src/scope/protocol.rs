//! MCP on one message: which revision it speaks, what that revision asks of it, and the answer.
//!
//! The revisions up to 2025-11-25 begin with `initialize`; the one of 2026-07-28 says its version in each request and
//! in headers that have to agree. Each request is judged by itself; there is no session.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::connection::Peer;
use super::endpoint::{Shared, locked};
use super::http::Head;
use super::rpc::{self, Message};

mod call;

/// Revisions with a handshake, newest first.
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The revision without one.
const MODERN: &str = "2026-07-28";

const INVALID_PARAMS: i32 = -32602;
const METHOD_NOT_FOUND: i32 = -32601;
const HEADER_MISMATCH: i32 = -32020;
const UNSUPPORTED_VERSION: i32 = -32022;

const SERVER: &str = concat!(r#"{"name":"agent-bridge","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
/// What every result of the modern revision has besides.
const COMPLETE: &str = concat!(
    r#","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"agent-bridge","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);
/// How long lists may be kept: not at all, and by nobody else.
const UNCACHED: &str = r#","ttlMs":0,"cacheScope":"private""#;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// The members of any method's parameters that are looked at.
#[derive(Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
    #[serde(borrow, rename = "protocolVersion")]
    version: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "requestId")]
    request_id: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Cow<'a, str>>,
}

/// An error and how it is sent.
struct Fault {
    status: u16,
    code: i32,
    message: String,
    /// JSON.
    data: Option<String>,
}

impl Fault {
    fn new(status: u16, code: i32, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }

    fn with_reason(mut self, reason: &str) -> Self {
        self.data = Some(format!("{{\"reason\":\"{reason}\"}}"));
        self
    }
}

/// Answers a body; `out` gets the answer's body, and the status is returned.
pub(super) fn answer(
    shared: &Shared,
    peer: &Arc<Peer>,
    head: &Head<'_>,
    body: &[u8],
    begun: Instant,
    out: &mut Vec<u8>,
) -> u16 {
    let message = match rpc::read(body) {
        Ok(message) => message,
        Err(fault) => {
            shared.record_at_the_door("no_message", begun);
            return write_fault(out, "null", &Fault::new(400, fault.code, fault.message));
        }
    };
    let modern = shared.options.modern;
    let header = match head.protocol_version.map(|value| known(value, modern)) {
        None => None,
        Some(Some(version)) => Some(version),
        Some(None) => {
            let asked = String::from_utf8_lossy(head.protocol_version.unwrap_or_default());
            let id = if let Message::Request { id, .. } = &message { id } else { "null" };
            shared.record_at_the_door("unknown_version", begun);
            return write_fault(out, id, &unsupported(&asked, modern));
        }
    };
    match message {
        Message::Request { id, method, params } => {
            let params: Params<'_> = match params.map(serde_json::from_str).transpose() {
                Ok(params) => params.unwrap_or_default(),
                Err(_) => {
                    shared.record_at_the_door("invalid_params", begun);
                    let fault = Fault::new(400, INVALID_PARAMS, "`params` does not have the right form");
                    return write_fault(out, id, &fault);
                }
            };
            let era = match era(head, header, &method, &params, modern) {
                Ok(era) => era,
                Err(fault) => {
                    shared.record_at_the_door("version_mismatch", begun);
                    return write_fault(out, id, &fault);
                }
            };
            let request = Request { shared, peer, id, era, begun };
            let written = out.len();
            match request.answer(&method, &params, out) {
                Ok(()) => 200,
                Err(fault) => {
                    out.truncate(written);
                    write_fault(out, id, &fault)
                }
            }
        }
        Message::Notification { method, params } => {
            if method == "notifications/cancelled" {
                cancel(shared, params);
            }
            202
        }
        Message::Response if header == Some(MODERN) => {
            write_fault(out, "null", &Fault::new(400, -32600, "nothing was asked"))
        }
        Message::Response => 202,
    }
}

fn known(value: &[u8], modern: bool) -> Option<&'static str> {
    let all = LEGACY.iter().copied().chain(modern.then_some(MODERN));
    all.into_iter().find(|version| version.as_bytes() == value)
}

fn unsupported(asked: &str, modern: bool) -> Fault {
    let asked: String = asked.chars().take(64).collect();
    let mut fault = Fault::new(400, UNSUPPORTED_VERSION, "this protocol version is not supported");
    fault.data =
        serde_json::to_string(&serde_json::json!({ "supported": versions(modern), "requested": asked })).ok();
    fault
}

fn versions(modern: bool) -> Vec<&'static str> {
    modern.then_some(MODERN).into_iter().chain(LEGACY).collect()
}

/// The revision that a request speaks. Whatever it says twice has to agree.
fn era(
    head: &Head<'_>,
    header: Option<&str>,
    method: &str,
    params: &Params<'_>,
    modern: bool,
) -> Result<Era, Fault> {
    let mismatch =
        |what: &str| Fault::new(400, HEADER_MISMATCH, format!("{what} does not agree with the body"));
    let version = params.meta.as_ref().and_then(|meta| meta.version.as_deref());
    let Some(version) = version.filter(|_| modern) else {
        return if header == Some(MODERN) { Err(mismatch("MCP-Protocol-Version")) } else { Ok(Era::Legacy) };
    };
    if header != Some(version) {
        return Err(mismatch("MCP-Protocol-Version"));
    }
    if version != MODERN {
        return Err(unsupported(version, modern));
    }
    if !head.mcp_method.is_some_and(|value| says(value, method)) {
        return Err(mismatch("Mcp-Method"));
    }
    let name = params.name.as_deref().filter(|_| method == "tools/call");
    if name.is_some_and(|name| !head.mcp_name.is_some_and(|value| says(value, name))) {
        return Err(mismatch("Mcp-Name"));
    }
    Ok(Era::Modern)
}

/// Whether a header has this value, plainly or as Base64.
fn says(header: &[u8], text: &str) -> bool {
    match header.strip_prefix(b"=?base64?").and_then(|rest| rest.strip_suffix(b"?=")) {
        Some(coded) => decode_base64(coded).is_some_and(|bytes| bytes == text.as_bytes()),
        None => header == text.as_bytes(),
    }
}

fn decode_base64(coded: &[u8]) -> Option<Vec<u8>> {
    let plain = coded.strip_suffix(b"==").or(coded.strip_suffix(b"=")).unwrap_or(coded);
    if coded.len() % 4 != 0 {
        return None;
    }
    let mut bytes = Vec::with_capacity(coded.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    for digit in plain {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((held >> bits) & 0xff).unwrap_or(0));
        }
    }
    Some(bytes)
}

/// Ends the call that a client no longer wants. Clients count alike, so an id that two calls have says nothing.
fn cancel(shared: &Shared, params: Option<&str>) {
    let params: Option<Params<'_>> = params.and_then(|text| serde_json::from_str(text).ok());
    let Some(id) = params.and_then(|params| params.request_id) else { return };
    let calls = locked(&shared.calls);
    let mut same = calls.iter().filter(|(call, _)| call == id.get());
    if let (Some((_, call)), None) = (same.next(), same.next()) {
        call.cancel("the client cancelled the call");
    }
}

/// A request that is being answered.
struct Request<'a> {
    shared: &'a Shared,
    peer: &'a Arc<Peer>,
    id: &'a str,
    era: Era,
    begun: Instant,
}

impl Request<'_> {
    fn answer(&self, method: &str, params: &Params<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        match (method, self.era) {
            ("tools/call", _) => return self.call(params, out),
            ("tools/list", _) => {
                self.shared.was_listed.store(true, Ordering::Relaxed);
                let tools =
                    self.shared.tools_json.get_or_init(|| self.shared.options.tools.describe().to_string());
                self.result(out, &["{\"tools\":", tools], UNCACHED);
            }
            ("initialize", Era::Legacy) => {
                let asked = params.version.as_deref();
                let version = LEGACY.iter().find(|known| asked == Some(**known)).unwrap_or(&LEGACY[0]);
                let parts = [
                    r#"{"protocolVersion":""#,
                    version,
                    r#"","capabilities":{"tools":{}},"serverInfo":"#,
                    SERVER,
                ];
                self.result(out, &parts, "");
            }
            ("ping", Era::Legacy) => self.result(out, &["{"], ""),
            ("server/discover", Era::Modern) => {
                let versions = format!("{:?}", versions(true));
                let parts = [r#"{"supportedVersions":"#, &versions, r#","capabilities":{"tools":{}}"#];
                self.result(out, &parts, UNCACHED);
            }
            (_, era) => {
                let status = if era == Era::Modern { 404 } else { 200 };
                return Err(Fault::new(status, METHOD_NOT_FOUND, "there is no such method here"));
            }
        }
        Ok(())
    }

    /// Writes a result: these parts, what the revision asks for, and the end.
    fn result(&self, out: &mut Vec<u8>, parts: &[&str], lists: &str) {
        for part in [r#"{"jsonrpc":"2.0","id":"#, self.id, r#","result":"#].iter().chain(parts) {
            out.extend_from_slice(part.as_bytes());
        }
        if self.era == Era::Modern {
            out.extend_from_slice(lists.as_bytes());
            out.extend_from_slice(COMPLETE.as_bytes());
        }
        out.extend_from_slice(b"}}");
    }
}

fn write_fault(out: &mut Vec<u8>, id: &str, fault: &Fault) -> u16 {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(format!(r#","error":{{"code":{},"message":"#, fault.code).as_bytes());
    // Writing to memory cannot fail, and text is always JSON.
    let _ = serde_json::to_writer(&mut *out, &fault.message);
    if let Some(data) = &fault.data {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(data.as_bytes());
    }
    out.extend_from_slice(b"}}");
    fault.status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_its_value_plainly_or_as_base64() {
        assert!(says(b"note", "note") && !says(b"Note", "note") && !says(b"", "note"));
        for (coded, text) in
            [("bm90ZQ==", "note"), ("w6nDqQ==", "éé"), ("YWJj", "abc"), ("YWI=", "ab"), ("", "")]
        {
            assert!(says(format!("=?base64?{coded}?=").as_bytes(), text), "{coded}");
        }
        for coded in ["bm90ZQ", "bm90Z!==", "=", "====="] {
            assert!(!says(format!("=?base64?{coded}?=").as_bytes(), "note"), "{coded}");
        }
    }
}
