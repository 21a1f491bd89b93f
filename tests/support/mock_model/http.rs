//! As much of HTTP/1.1 as model clients use, server side, over a blocking socket.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

const MAX_HEAD: usize = 256 * 1024;
const MAX_BODY: u64 = 64 * 1024 * 1024;

/// A connection that may carry many requests.
pub struct Connection {
    reader: BufReader<TcpStream>,
}

/// A request's first line and headers (names in lower case).
pub struct Head {
    pub method: String,
    pub target: String,
    pub headers: BTreeMap<String, String>,
    /// The client wants the connection closed after the answer.
    pub last: bool,
}

/// What was wrong with a request, as the status to answer with.
#[derive(Debug)]
pub enum ReadError {
    /// The connection is gone or was cut.
    Io(io::Error),
    /// The request cannot be answered with anything but this.
    Refused(u16, &'static str),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Connection {
    pub fn new(stream: TcpStream) -> Self {
        // Small stream events must leave at once.
        let _ = stream.set_nodelay(true);
        Self { reader: BufReader::new(stream) }
    }

    /// The next request's head; `None` when the client has closed the connection between requests.
    pub fn read_head(&mut self) -> Result<Option<Head>, ReadError> {
        let mut budget = MAX_HEAD;
        let mut first = self.line(&mut budget)?;
        while first.as_deref() == Some("") {
            first = self.line(&mut budget)?;
        }
        let Some(first) = first else { return Ok(None) };
        let mut words = first.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(ReadError::Refused(400, "malformed request line"));
        };
        let mut headers = BTreeMap::new();
        loop {
            let Some(line) = self.line(&mut budget)? else {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            };
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else {
                return Err(ReadError::Refused(400, "malformed header"));
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let connection =
            headers.get("connection").map(|value| value.to_ascii_lowercase()).unwrap_or_default();
        let last =
            connection.contains("close") || (version == "HTTP/1.0" && !connection.contains("keep-alive"));
        Ok(Some(Head { method: method.to_owned(), target: target.to_owned(), headers, last }))
    }

    /// The body that belongs to `head`, with its transfer and content codings undone.
    pub fn read_body(&mut self, head: &Head) -> Result<Vec<u8>, ReadError> {
        let header = |name: &str| head.headers.get(name).map(|value| value.to_ascii_lowercase());
        let chunked = header("transfer-encoding").is_some_and(|value| value.contains("chunked"));
        let length = match header("content-length") {
            Some(text) => {
                text.parse::<u64>().map_err(|_| ReadError::Refused(400, "malformed content-length"))?
            }
            None => 0,
        };
        if length > MAX_BODY {
            return Err(ReadError::Refused(413, "the body is too long for the mock"));
        }
        if header("expect").is_some_and(|value| value.contains("100-continue")) && (chunked || length > 0) {
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut raw = Vec::new();
        if chunked {
            self.read_chunks(&mut raw)?;
        } else {
            raw.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
            self.reader.read_exact(&mut raw)?;
        }
        let mut plain = Vec::new();
        match header("content-encoding").as_deref() {
            None | Some("" | "identity") => return Ok(raw),
            Some("gzip") => {
                flate2::read::MultiGzDecoder::new(&raw[..]).take(MAX_BODY).read_to_end(&mut plain)
            }
            Some("deflate") => {
                flate2::read::ZlibDecoder::new(&raw[..]).take(MAX_BODY).read_to_end(&mut plain)
            }
            Some(_) => {
                return Err(ReadError::Refused(415, "the mock takes gzip, deflate or no content coding"));
            }
        }
        .map_err(|_| ReadError::Refused(400, "the body's content coding is broken"))?;
        Ok(plain)
    }

    fn read_chunks(&mut self, body: &mut Vec<u8>) -> Result<(), ReadError> {
        let malformed = || ReadError::Refused(400, "malformed chunk");
        loop {
            let line = self.line(&mut 1024)?.ok_or_else(malformed)?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(digits, 16).map_err(|_| malformed())?;
            if body.len() as u64 + size > MAX_BODY {
                return Err(ReadError::Refused(413, "the body is too long for the mock"));
            }
            if size == 0 {
                // Trailers, up to the empty line.
                let mut budget = MAX_HEAD;
                while self.line(&mut budget)?.is_some_and(|line| !line.is_empty()) {}
                return Ok(());
            }
            let start = body.len();
            body.resize(start + usize::try_from(size).unwrap_or(usize::MAX), 0);
            self.reader.read_exact(&mut body[start..])?;
            if self.line(&mut 2)?.as_deref() != Some("") {
                return Err(malformed());
            }
        }
    }

    /// One line without its end; `None` at the end of the stream.
    fn line(&mut self, budget: &mut usize) -> Result<Option<String>, ReadError> {
        let mut bytes = Vec::new();
        let limit = *budget as u64;
        let got = (&mut self.reader).take(limit).read_until(b'\n', &mut bytes)?;
        if got == 0 && limit > 0 {
            return Ok(None);
        }
        *budget -= got;
        if bytes.pop() != Some(b'\n') {
            return Err(ReadError::Refused(431, "the request's head is too long or was cut"));
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Whether the client has closed its side. Waits for nothing.
    pub fn client_gone(&self) -> bool {
        let stream = self.reader.get_ref();
        if !self.reader.buffer().is_empty() || stream.set_nonblocking(true).is_err() {
            return false;
        }
        let gone = match stream.peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        let _ = stream.set_nonblocking(false);
        gone
    }

    /// Sends a whole JSON answer.
    pub fn send_json(
        &mut self,
        head: Option<&Head>,
        status: u16,
        headers: &[(String, String)],
        body: &Value,
    ) -> io::Result<()> {
        let body = body.to_string();
        let mut text = status_line(status, headers);
        text.push_str("content-type: application/json\r\n");
        text.push_str(&format!("content-length: {}\r\n", body.len()));
        if head.is_none_or(|head| head.last) {
            text.push_str("connection: close\r\n");
        }
        text.push_str("\r\n");
        if head.is_none_or(|head| head.method != "HEAD") {
            text.push_str(&body);
        }
        self.send(text.as_bytes())
    }

    /// Begins a stream of server-sent events.
    pub fn start_events(&mut self, head: &Head, headers: &[(String, String)]) -> io::Result<()> {
        let mut text = status_line(200, headers);
        text.push_str("content-type: text/event-stream\r\ncache-control: no-cache\r\n");
        text.push_str("transfer-encoding: chunked\r\n");
        if head.last {
            text.push_str("connection: close\r\n");
        }
        text.push_str("\r\n");
        self.send(text.as_bytes())
    }

    /// Sends one event.
    pub fn send_event(&mut self, name: Option<&str>, data: &Value) -> io::Result<()> {
        let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        let text = format!("{name}data: {data}\n\n");
        self.send(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
    }

    /// Ends a stream of events.
    pub fn end_events(&mut self) -> io::Result<()> {
        self.send(b"0\r\n\r\n")
    }

    /// Cuts the connection.
    pub fn cut(&self) {
        let _ = self.reader.get_ref().shutdown(std::net::Shutdown::Both);
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = self.reader.get_mut();
        stream.write_all(bytes)?;
        stream.flush()
    }
}

fn status_line(status: u16, headers: &[(String, String)]) -> String {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        529 => "Overloaded",
        _ => "Status",
    };
    let mut text = format!("HTTP/1.1 {status} {reason}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text
}
