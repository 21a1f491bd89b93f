//! Measures the endpoint of a worker beside the same bridge in Python's standard library, turn by turn in one run.
//!
//! `cargo bench --bench scope [-- --quick]`. Both write each call to SQLite. One client measures both, as MCP clients
//! do it: it keeps its connection where the server lets it. Rows with "new connection" open one for each request on
//! both sides. Exit code 1 if a budget is missed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use agent_bridge::context::Clock;
use agent_bridge::scope::{BatchedLog, BoundRun, Endpoint, Limits, Options, ToolSet, kit};
use agent_bridge::store::Store;
use serde_json::{Value, json};

/// Budget: so many times faster than the peer.
const BOUND: f64 = 5.0;

fn main() {
    // The test runner asks a bench target for its tests; there are none.
    if std::env::args().any(|arg| arg == "--list") {
        return;
    }
    let quick = std::env::args().any(|arg| arg == "--quick" || arg == "--test");
    let (rounds, calls) = if quick { (5, 20) } else { (100, 40) };
    let folder = tempfile::tempdir().unwrap();
    let Some(mut python) = Python::start(&folder.path().join("peer.sqlite3")) else {
        println!("python3 is not installed: nothing to measure against");
        return;
    };
    let store = Arc::new(Store::open(&folder.path().join("state"), Clock::System).unwrap());
    let mut rows: Vec<(&str, Vec<f64>, Vec<f64>)> =
        STEPS.iter().map(|name| (*name, Vec::new(), Vec::new())).collect();
    for _ in 0..rounds {
        let begun = Instant::now();
        let endpoint = ours(&store);
        rows[0].1.push(micros(begun));
        let (port, token, took) = python.begin();
        rows[0].2.push(took);
        let mut clients =
            [Client::new(endpoint.port(), endpoint.token().expose()), Client::new(port, &token)];
        for (side, client) in clients.iter_mut().enumerate() {
            round(client, calls, &mut |step, took| {
                let row = &mut rows[step];
                if side == 0 { row.1.push(took) } else { row.2.push(took) }
            });
        }
        drop(clients);
        let port = endpoint.port();
        let begun = Instant::now();
        // Waits for the records as well.
        endpoint.close();
        while TcpStream::connect(("127.0.0.1", port)).is_ok() {}
        let last = STEPS.len() - 1;
        rows[last].1.push(micros(begun));
        rows[last].2.push(python.end());
    }
    println!(
        "| step | ours p50 / p95 | Python p50 / p95 | ratio p50 / p95 | bound | held |\n|---|---|---|---|---|---|"
    );
    let mut missed = false;
    for (name, ours, theirs) in &mut rows {
        ours.sort_by(f64::total_cmp);
        theirs.sort_by(f64::total_cmp);
        let at = |times: &[f64], percent: usize| times[(times.len() - 1) * percent / 100];
        let ratio = |percent| at(theirs, percent) / at(ours, percent);
        let held = ratio(50) >= BOUND;
        let counts = !name.contains("new connection");
        missed |= counts && !held;
        println!(
            "| {name} | {:.0} / {:.0} µs | {:.0} / {:.0} µs | {:.1}× / {:.1}× | {} | {} |",
            at(ours, 50),
            at(ours, 95),
            at(theirs, 50),
            at(theirs, 95),
            ratio(50),
            ratio(95),
            if counts { "≥ 5×" } else { "" },
            if !counts {
                ""
            } else if held {
                "yes"
            } else {
                "NO"
            },
        );
    }
    if missed && !quick {
        std::process::exit(1);
    }
}

const STEPS: [&str; 9] = [
    "start",
    "handshake (3 posts)",
    "allowed call",
    "refused call",
    "wrong token",
    "handshake, new connection each",
    "allowed call, new connection",
    "refused call, new connection",
    "shutdown, records written, port refused",
];

/// All steps between start and shutdown, against one server.
fn round(client: &mut Client, calls: usize, took: &mut dyn FnMut(usize, f64)) {
    let handshake = [
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
    ]
    .map(|message| message.to_string());
    let call = |name: &str| {
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": name, "arguments": { "key": "plan", "text": "Read the parser first, then the writer." } } }).to_string()
    };
    let (allowed, refused) = (call("note"), call("delete_all"));
    for (step, fresh) in [(1, false), (5, true)] {
        client.hang_up();
        let begun = Instant::now();
        for (message, status) in handshake.iter().zip([200, 202, 200]) {
            if fresh {
                client.hang_up();
            }
            client.post(message, true, status);
        }
        took(step, micros(begun));
    }
    for n in 0..calls {
        for (step, message, good, fresh) in [
            (2, &allowed, true, false),
            (3, &refused, true, false),
            (4, &allowed, false, false),
            (6, &allowed, true, true),
            (7, &refused, true, true),
        ] {
            if fresh {
                client.hang_up();
            }
            let begun = Instant::now();
            let body = client.post(message, good, if good { 200 } else { 401 });
            took(step, micros(begun));
            if n == 0 && good {
                let expected = if message == &allowed { "Noted" } else { "-32601" };
                assert!(
                    String::from_utf8_lossy(&body).contains(expected),
                    "{}",
                    String::from_utf8_lossy(&body)
                );
            }
        }
    }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

fn ours(store: &Arc<Store>) -> Endpoint {
    let mut tools = ToolSet::default();
    for tool in kit::Notes::default().tools() {
        tools.add(tool).unwrap();
    }
    tools.allow("note").unwrap();
    let kept = Arc::clone(store);
    let log = BatchedLog::new(move |batch| {
        let mut rows = batch.iter().map(|call| kept.audit("scope-call", None, None, &call.to_json()));
        rows.try_for_each(|row| row.map_err(|error| error.to_string()))
    });
    Endpoint::start(Options {
        bound: BoundRun { run: "bench".into(), session: None, turn: None, workspace: "/".into() },
        tools,
        limits: Limits::default(),
        log: Arc::new(log),
        clock: Clock::System,
        modern: true,
    })
    .unwrap()
}

/// A client that keeps its connection unless the server says otherwise.
struct Client {
    port: u16,
    token: String,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl Client {
    fn new(port: u16, token: &str) -> Self {
        Self { port, token: token.to_owned(), stream: None, buffer: vec![0; 64 << 10] }
    }

    fn hang_up(&mut self) {
        self.stream = None;
    }

    fn post(&mut self, body: &str, good: bool, expected: u16) -> Vec<u8> {
        let token = if good {
            self.token.as_str()
        } else {
            "0000000000000000000000000000000000000000000000000000000000000000"
        };
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        let mut stream = self.stream.take().unwrap_or_else(|| {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
            stream.set_nodelay(true).unwrap();
            stream
        });
        stream.write_all(request.as_bytes()).unwrap();
        let mut filled = 0;
        loop {
            let read = stream.read(&mut self.buffer[filled..]).unwrap();
            assert!(read > 0, "no answer");
            filled += read;
            let text = &self.buffer[..filled];
            let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&text[..end]).unwrap().to_ascii_lowercase();
            let length: usize =
                head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
            if filled < end + 4 + length {
                continue;
            }
            assert!(head[9..].starts_with(&expected.to_string()), "{head}");
            // HTTP/1.0 closes without saying so.
            if head.starts_with("http/1.1") && !head.contains("connection: close") {
                self.stream = Some(stream);
            }
            return text[end + 4..].to_vec();
        }
    }
}

struct Python {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Python {
    fn start(database: &Path) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/scope_bridge.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(database).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let (stdin, stdout) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        Some(Self { child, stdin, stdout })
    }

    fn ask(&mut self, word: &str) -> Value {
        writeln!(self.stdin, "{word}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).expect("the peer answers")
    }

    fn begin(&mut self) -> (u16, String, f64) {
        let told = self.ask("start");
        let port = u16::try_from(told["port"].as_u64().unwrap()).unwrap();
        (port, told["token"].as_str().unwrap().to_owned(), told["us"].as_f64().unwrap())
    }

    fn end(&mut self) -> f64 {
        self.ask("stop")["us"].as_f64().unwrap()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
