//! Standard input and output as an MCP transport that cannot hang, leak a byte or outlive its host.
//!
//! Three facts about hosts shape it: some send a notification before any request, some never read
//! what we write, and some go away without closing anything.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, Chain, ReadBuf};
use tokio_util::sync::CancellationToken;

/// Longest line that is read.
const MAX_LINE: usize = 64 << 20;
/// After the host is gone, replies may still be flushed for this long; then the process ends.
const LAST_WORDS: Duration = Duration::from_millis(1_500);

type FirstThenRest<R> = Chain<io::Cursor<Vec<u8>>, BufReader<R>>;
/// The transport that [`open`] returns.
pub type Transport<R, W> = AsyncRwTransport<RoleServer, Watched<FirstThenRest<R>>, Watched<W>>;

/// Waits for the first request, then hands the connection over. `None` if the host left first.
pub async fn open<R, W>(reader: R, writer: W, gone: &CancellationToken) -> io::Result<Option<Transport<R, W>>>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let mut reader = BufReader::new(reader);
    let Some(first) = first_request(&mut reader).await? else {
        gone.cancel();
        return Ok(None);
    };
    let reader = tokio::io::AsyncReadExt::chain(io::Cursor::new(first), reader);
    let reader = Watched { inner: reader, gone: gone.clone() };
    let writer = Watched { inner: writer, gone: gone.clone() };
    Ok(Some(AsyncRwTransport::new_server(reader, writer).with_max_line_length(MAX_LINE)))
}

/// The first line that asks for something. Notifications and noise before it are dropped: the
/// protocol library ends the server on them.
async fn first_request<R: AsyncRead + Unpin>(reader: &mut BufReader<R>) -> io::Result<Option<Vec<u8>>> {
    loop {
        let mut line = Vec::new();
        loop {
            let available = reader.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let used = newline.map_or(available.len(), |at| at + 1);
            if line.len() + used <= MAX_LINE {
                line.extend_from_slice(&available[..used]);
            }
            reader.consume(used);
            if newline.is_some() {
                break;
            }
        }
        let asks = serde_json::from_slice::<Value>(&line)
            .is_ok_and(|message| message.get("method").is_some() && message.get("id").is_some());
        if asks {
            return Ok(Some(line));
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
