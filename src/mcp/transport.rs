//! Standard input and output as an MCP transport that cannot hang, leak a byte or outlive its host.
//!
//! Four facts about hosts shape it: some send a notification before any request, some send requests of
//! the wrong shape and wait for an answer all the same, some never read what we write, and some go away
//! without closing anything.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rmcp::model::{
    ClientRequest, ErrorData, GetMeta, JsonRpcMessage, JsonRpcRequest, ProtocolVersion, RequestId,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::{RoleServer, transport::Transport};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest line that is read.
const MAX_LINE: usize = 64 << 20;
/// Memory that is kept for the next line.
const KEPT_LINE: usize = 64 << 10;
/// After the host is gone, replies may still be flushed for this long; then the process ends.
const LAST_WORDS: Duration = Duration::from_millis(1_500);

/// One message a line, in both directions.
pub struct Lines<R, W> {
    reader: BufReader<Watched<R>>,
    writer: Arc<Mutex<Watched<W>>>,
    /// What has been read of the next line. Reading is interrupted at any time and goes on from here.
    line: Vec<u8>,
    /// The rest of this line is thrown away: it is too long.
    discarding: bool,
    /// A request has opened the session. Until then nothing but requests is let through: the protocol
    /// library ends the server on a notification or a stray answer, and hosts send them: a late cancel
    /// of a probe that timed out, an `initialized` after a handshake that was refused.
    opened: bool,
    /// An error on its way out. The next line waits for it, so a host that never reads cannot pile them up.
    refusal: Option<JoinHandle<io::Result<()>>>,
}

impl<R: AsyncRead + Unpin, W> Lines<R, W> {
    /// On these streams; `gone` is cancelled when the other side leaves.
    pub fn new(reader: R, writer: W, gone: &CancellationToken) -> Self {
        Self {
            reader: BufReader::new(Watched { inner: reader, gone: gone.clone() }),
            writer: Arc::new(Mutex::new(Watched { inner: writer, gone: gone.clone() })),
            line: Vec::new(),
            discarding: false,
            opened: false,
            refusal: None,
        }
    }

    /// Reads on until [`Self::line`] is a whole line. `None` at the end of input; a line without an
    /// end is no message.
    async fn read_line(&mut self) -> Option<()> {
        loop {
            let available = self.reader.fill_buf().await.ok()?;
            if available.is_empty() {
                return None;
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let used = newline.map_or(available.len(), |at| at + 1);
            self.discarding |= self.line.len() + used > MAX_LINE;
            if self.discarding {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(&available[..used]);
            }
            self.reader.consume(used);
            if newline.is_some() && !std::mem::take(&mut self.discarding) {
                return Some(());
            }
        }
    }

    fn clear_line(&mut self) {
        self.line.clear();
        self.line.shrink_to(KEPT_LINE);
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let writer = Arc::clone(&self.writer);
        async move {
            let mut line = serde_json::to_vec(&item)?;
            line.push(b'\n');
            let mut writer = writer.lock().await;
            writer.write_all(&line).await?;
            writer.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusal) = &mut self.refusal {
                let _ = refusal.await;
                self.refusal = None;
            }
            self.read_line().await?;
            let received = read_message(&self.line);
            self.clear_line();
            match received {
                Received::Message(message) => {
                    let request = match &*message {
                        JsonRpcMessage::Request(JsonRpcRequest { request, .. }) => Some(request),
                        _ => None,
                    };
                    if self.opened || request.is_some() {
                        self.opened |= request.is_some_and(opens_session);
                        return Some(*message);
                    }
                }
                Received::Refused(error, id) => {
                    // A task: this future is dropped whenever there is something else to do, and half a
                    // line must not be.
                    let answer = TxJsonRpcMessage::<RoleServer>::error(error, id);
                    self.refusal = Some(tokio::spawn(self.send(answer)));
                }
                Received::Nothing => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.writer.lock().await.shutdown().await
    }
}

/// What a line turned out to be.
enum Received {
    Message(Box<RxJsonRpcMessage<RoleServer>>),
    /// To be answered with this error, under the id if there is a usable one.
    Refused(ErrorData, Option<RequestId>),
    /// No JSON, or a notification that is not understood: an answer would be noise.
    Nothing,
}

fn read_message(line: &[u8]) -> Received {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if let Ok(message) = serde_json::from_slice(line) {
        return Received::Message(Box::new(message));
    }
    let Ok(value) = serde_json::from_slice::<Value>(line) else { return Received::Nothing };
    let Some(id) = value.get("id") else {
        let is_notification = value.get("method").is_some();
        let refused = || Received::Refused(ErrorData::invalid_request("Invalid request", None), None);
        return if is_notification { Received::Nothing } else { refused() };
    };
    let id = serde_json::from_value::<RequestId>(id.clone()).ok();
    match value.get("method").and_then(Value::as_str) {
        Some(method) if id.is_some() => {
            let shown: String = method.chars().take(64).collect();
            let why = format!("the parameters of {shown:?} do not have the shape that the protocol asks for");
            Received::Refused(ErrorData::invalid_params(why, None), id)
        }
        Some(_) => {
            Received::Refused(ErrorData::invalid_request("the id is no string and no integer", None), None)
        }
        None => Received::Refused(ErrorData::invalid_request("Invalid request", None), None),
    }
}

/// Whether the library takes its lifecycle from this request: a handshake, or a request of the
/// handshake-free revision. Probes (`ping`, `server/discover`) and what it refuses do not count.
fn opens_session(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        other => {
            let meta = other.get_meta();
            let version = meta.protocol_version();
            meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
                && version.is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version))
        }
    }
}

/// A stream that tells when the other side is gone: end of input, or a failed write.
pub struct Watched<S> {
    inner: S,
    gone: CancellationToken,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        let ended =
            matches!(&result, Poll::Ready(Ok(()))) && buf.filled().len() == before && buf.remaining() > 0;
        if ended || matches!(&result, Poll::Ready(Err(_))) {
            self.gone.cancel();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    fn note<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(&result, Poll::Ready(Err(_))) {
            self.gone.cancel();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.note(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.note(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Ends the process a little after `gone`, whatever else hangs: a host that does not read, a
/// handler that does not return. A plain thread, so that a stuck event loop does not matter.
pub fn end_process_after(gone: CancellationToken, runtime: &tokio::runtime::Handle) {
    runtime.spawn(async move {
        gone.cancelled().await;
        std::thread::spawn(|| {
            std::thread::sleep(LAST_WORDS);
            std::process::exit(0);
        });
    });
}
