//! Just enough of HTTP/1.1 for one endpoint, and nothing ambiguous: what two readers could frame differently is refused.

use std::str;

/// Largest head of a request in bytes.
pub const MAX_HEAD: usize = 16 << 10;
/// Most header lines of a request.
const MAX_HEADERS: usize = 64;
/// Longest line that announces a chunk.
const MAX_CHUNK_LINE: usize = 256;

/// Why bytes are no request that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not HTTP, or HTTP that can be read in two ways.
    Malformed(&'static str),
    /// The head is over [`MAX_HEAD`], or has too many lines.
    HeadTooLarge,
    /// The body is over the limit.
    BodyTooLarge,
    /// A body without a length.
    LengthRequired,
    /// A transfer coding that is not offered.
    CodingUnknown,
    /// A version of HTTP that is not spoken.
    VersionUnknown,
}

impl Fault {
    /// The status that says so.
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::LengthRequired => 411,
            Self::BodyTooLarge => 413,
            Self::HeadTooLarge => 431,
            Self::CodingUnknown => 501,
            Self::VersionUnknown => 505,
        }
    }

    /// For the log and the answer.
    pub fn text(self) -> &'static str {
        match self {
            Self::Malformed(what) => what,
            Self::LengthRequired => "length required",
            Self::BodyTooLarge => "body too large",
            Self::HeadTooLarge => "head too large",
            Self::CodingUnknown => "unknown transfer coding",
            Self::VersionUnknown => "unknown HTTP version",
        }
    }
}

/// How the body of a request is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No length is given.
    None,
    /// So many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// The head of a request, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Its length in bytes, the empty line included.
    pub length: usize,
    /// Method.
    pub method: &'a str,
    /// Target as sent.
    pub target: &'a str,
    /// Whether the connection may stay open after the answer.
    pub keep_alive: bool,
    /// Framing of the body.
    pub framing: Framing,
    /// The client waits for a word before it sends the body.
    pub expects_continue: bool,
    /// `Host`.
    pub host: Option<&'a [u8]>,
    /// `Origin`.
    pub origin: Option<&'a [u8]>,
    /// `Authorization`.
    pub authorization: Option<&'a [u8]>,
    /// `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// `MCP-Protocol-Version`.
    pub protocol_version: Option<&'a [u8]>,
    /// `Mcp-Method`.
    pub mcp_method: Option<&'a [u8]>,
    /// `Mcp-Name`.
    pub mcp_name: Option<&'a [u8]>,
}

/// Reads the head at the start of `bytes`. `None`: more bytes are needed.
pub fn read_head(bytes: &[u8]) -> Result<Option<Head<'_>>, Fault> {
    match bytes.first() {
        None => return Ok(None),
        // Another protocol (TLS), or an empty line before a request.
        Some(first) if !first.is_ascii_uppercase() => return Err(Fault::Malformed("not an HTTP request")),
        Some(_) => {}
    }
    let window = bytes.get(..MAX_HEAD).unwrap_or(bytes);
    let Some(end) = memchr::memmem::find(window, b"\r\n\r\n") else {
        return if bytes.len() >= MAX_HEAD { Err(Fault::HeadTooLarge) } else { Ok(None) };
    };
    let length = end + 4;
    let head = &bytes[..length];
    // Some readers end a line at a bare LF or CR, others don't.
    let mut before = 0;
    for at in memchr::memchr2_iter(b'\r', b'\n', head) {
        let paired = if head[at] == b'\r' { head.get(at + 1) == Some(&b'\n') } else { at == before + 1 };
        if !paired {
            return Err(Fault::Malformed("bare line end"));
        }
        before = at;
    }
    let mut lines = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut lines);
    match request.parse(head) {
        Ok(httparse::Status::Complete(read)) if read == length => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Fault::HeadTooLarge),
        Err(httparse::Error::Version) => return Err(Fault::VersionUnknown),
        _ => return Err(Fault::Malformed("malformed head")),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(Fault::Malformed("malformed head"));
    };
    let mut head = Head {
        length,
        method,
        target,
        keep_alive: minor == 1,
        framing: Framing::None,
        expects_continue: false,
        host: None,
        origin: None,
        authorization: None,
        content_type: None,
        protocol_version: None,
        mcp_method: None,
        mcp_name: None,
    };
    let (mut content_length, mut coding, mut expect) = (None, None, None);
    for line in request.headers.iter() {
        let is = |name: &str| line.name.eq_ignore_ascii_case(name);
        // By length first: a head has many lines, and few are ours.
        let place = match line.name.len() {
            4 if is("host") => &mut head.host,
            6 if is("origin") => &mut head.origin,
            6 if is("expect") => &mut expect,
            8 if is("mcp-name") => &mut head.mcp_name,
            10 if is("mcp-method") => &mut head.mcp_method,
            10 if is("connection") => {
                let mut tokens = line.value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
                head.keep_alive &= !tokens.any(|token| token.eq_ignore_ascii_case(b"close"));
                continue;
            }
            12 if is("content-type") => &mut head.content_type,
            13 if is("authorization") => &mut head.authorization,
            14 if is("content-length") => &mut content_length,
            17 if is("transfer-encoding") => &mut coding,
            20 if is("mcp-protocol-version") => &mut head.protocol_version,
            _ => continue,
        };
        if place.replace(line.value.trim_ascii()).is_some() {
            return Err(Fault::Malformed("a header is there twice"));
        }
    }
    head.framing = match (content_length, coding) {
        (Some(_), Some(_)) => return Err(Fault::Malformed("length and transfer coding")),
        (None, Some(_)) if minor == 0 => return Err(Fault::Malformed("transfer coding in HTTP/1.0")),
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Framing::Chunked,
        (None, Some(_)) => return Err(Fault::CodingUnknown),
        (Some(digits), None) => Framing::Length(number(digits)?),
        (None, None) => Framing::None,
    };
    head.expects_continue = expect.is_some_and(|value: &[u8]| value.eq_ignore_ascii_case(b"100-continue"));
    Ok(Some(head))
}

/// Digits only: no sign, no list, no spaces. More than any body may have is still a number.
fn number(digits: &[u8]) -> Result<u64, Fault> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Malformed("malformed length"));
    }
    let text = str::from_utf8(digits).unwrap_or_default();
    Ok(text.parse().unwrap_or(u64::MAX))
}

/// Takes a chunked body apart, however it comes.
#[derive(Debug)]
pub struct Chunks {
    /// The body so far.
    pub body: Vec<u8>,
    max: usize,
    /// Bytes on the wire, announcements included: many small chunks cost more than they carry.
    wire: usize,
    state: ChunkState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size,
    Data(usize),
    DataEnd,
    Last,
    Done,
}

impl Chunks {
    /// For a body of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { body: Vec::new(), max, wire: 0, state: ChunkState::Size }
    }

    /// Whether all of it has come.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Takes what it can of `bytes` and says how many those were; the rest has to come again, with more.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            let used = match self.state {
                ChunkState::Done => return Ok(taken),
                ChunkState::Size => {
                    let Some(line) = line(rest)? else { return Ok(taken) };
                    let size = chunk_size(line)?;
                    if size > self.max.saturating_sub(self.body.len()) {
                        return Err(Fault::BodyTooLarge);
                    }
                    self.state = if size == 0 { ChunkState::Last } else { ChunkState::Data(size) };
                    line.len() + 2
                }
                ChunkState::Data(left) => {
                    let now = left.min(rest.len());
                    if now == 0 {
                        return Ok(taken);
                    }
                    self.body.extend_from_slice(&rest[..now]);
                    self.state = if now == left { ChunkState::DataEnd } else { ChunkState::Data(left - now) };
                    now
                }
                ChunkState::DataEnd | ChunkState::Last => {
                    match rest {
                        [b'\r', b'\n', ..] => {}
                        [] | [b'\r'] => return Ok(taken),
                        // Also a trailer: nothing here has a use for one.
                        _ => return Err(Fault::Malformed("malformed chunk")),
                    }
                    let last = self.state == ChunkState::Last;
                    self.state = if last { ChunkState::Done } else { ChunkState::Size };
                    2
                }
            };
            taken += used;
            self.wire = self.wire.saturating_add(used);
            if self.wire > self.max.saturating_mul(4).saturating_add(MAX_CHUNK_LINE) {
                return Err(Fault::BodyTooLarge);
            }
        }
    }
}

/// The line at the start, without its end.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Fault> {
    let malformed = Err(Fault::Malformed("malformed chunk"));
    match memchr::memchr2(b'\r', b'\n', bytes) {
        Some(at) if at > MAX_CHUNK_LINE => malformed,
        Some(at) => match bytes.get(at..at + 2) {
            Some(b"\r\n") => Ok(Some(&bytes[..at])),
            None if bytes[at] == b'\r' => Ok(None),
            _ => malformed,
        },
        None if bytes.len() > MAX_CHUNK_LINE => malformed,
        None => Ok(None),
    }
}

/// Hexadecimal digits, then perhaps an extension, which means nothing here.
fn chunk_size(line: &[u8]) -> Result<usize, Fault> {
    let digits = line.split(|b| *b == b';').next().unwrap_or_default();
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Fault::Malformed("malformed chunk"));
    }
    let text = str::from_utf8(digits).unwrap_or_default();
    usize::from_str_radix(text, 16).map_err(|_| Fault::BodyTooLarge)
}

/// Writes an answer: head and body as one piece, to be sent with one call.
pub(super) fn write_answer(out: &mut Vec<u8>, status: u16, body: &[u8], close: bool) {
    use std::io::Write as _;
    let reason = match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "HTTP Version Not Supported",
    };
    out.clear();
    // Writing to memory cannot fail.
    let _ = write!(out, "HTTP/1.1 {status} {reason}\r\nContent-Length: {}\r\n", body.len());
    if !body.is_empty() {
        out.extend_from_slice(b"Content-Type: application/json\r\n");
    }
    if status == 405 {
        out.extend_from_slice(b"Allow: POST\r\n");
    }
    if close {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
