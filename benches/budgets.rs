//! Measures the budgets of the design and prints them as ratios of one run on one machine.
//!
//! `cargo bench --bench budgets [-- --quick]`. Peers that are not installed (Node, Python) are left out and
//! said so. Exit code 1 if a budget is missed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const BRIDGE: &str = env!("CARGO_BIN_EXE_agent-bridge");

fn main() {
    // The test runner asks a bench target for its tests; there are none.
    if std::env::args().any(|arg| arg == "--list") {
        return;
    }
    let quick = std::env::args().any(|arg| arg == "--quick" || arg == "--test");
    let bench = Bench {
        starts: if quick { 5 } else { 25 },
        calls: if quick { 200 } else { 3000 },
        turns: if quick { 5 } else { 40 },
        rows: if quick { 10_000 } else { 100_000 },
    };
    let mut table = Table::default();
    bench.start_memory_and_calls(&mut table);
    bench.turn_overhead(&mut table);
    bench.lists(&mut table);
    bench.unbounded_output(&mut table);
    table.print();
    if table.missed() && !quick {
        std::process::exit(1);
    }
}

struct Bench {
    starts: usize,
    calls: usize,
    turns: usize,
    rows: usize,
}

#[derive(Default)]
struct Table {
    rows: Vec<(String, String, String, Option<bool>)>,
}

impl Table {
    /// `held`: whether the budget is met; none for a row that only informs.
    fn row(&mut self, what: &str, measured: String, bound: &str, held: Option<bool>) {
        eprintln!("{what}: {measured}");
        self.rows.push((what.to_owned(), measured, bound.to_owned(), held));
    }

    fn missed(&self) -> bool {
        self.rows.iter().any(|row| row.3 == Some(false))
    }

    fn print(&self) {
        println!("| what | measured | bound | held |\n|---|---|---|---|");
        for (what, measured, bound, held) in &self.rows {
            let held = match held {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "",
            };
            println!("| {what} | {measured} | {bound} | {held} |");
        }
    }
}

/// A server under a scripted host.
struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout, next: 0 }
    }

    fn send(&mut self, message: &Value) {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        self.stdin.as_mut().unwrap().write_all(&line).unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the server ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == json!(self.next) {
                return message["result"].clone();
            }
        }
    }

    fn handshake(&mut self) {
        self.ask("initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" } }));
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert!(!self.ask("tools/list", json!({}))["tools"].as_array().unwrap().is_empty());
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    fn memory_kib(&self, field: &str) -> u64 {
        memory_kib(self.child.id(), field)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stdin.take();
        let _ = self.child.wait();
    }
}

/// A field of `/proc/PID/status`, in KiB; 0 where there is no such file.
fn memory_kib(pid: u32, field: &str) -> u64 {
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_default()
        .lines()
        .find_map(|line| {
            line.strip_prefix(field)?.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse().ok()
        })
        .unwrap_or(0)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// A folder with a config, a root and a scripted agent.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new(script: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("repo")).unwrap();
        std::fs::write(dir.path().join("script.json"), script.to_string()).unwrap();
        let config = json!({
            "allowedRoots": [dir.path().join("repo")],
            "stateDir": dir.path().join("state"),
            "agents": { "codex": { "enabled": false }, "claude": { "enabled": false },
                        "mock": { "enabled": true, "script": dir.path().join("script.json") } },
            "defaults": { "cwd": dir.path().join("repo") },
        });
        std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        Self { dir }
    }

    fn serve(&self) -> Command {
        let mut command = Command::new(BRIDGE);
        command.arg("--config").arg(self.dir.path().join("config.json")).arg("serve");
        command
    }
}

fn peers() -> Vec<(&'static str, Vec<PathBuf>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(BRIDGE).parent().unwrap();
    let clis = std::env::var_os("AGENT_BRIDGE_REAL_CLIS")
        .map_or_else(|| root.join("target/real-clis"), PathBuf::from);
    let modules = clis.join("node_modules");
    let python = ["venv/bin/python", "python/bin/python"]
        .iter()
        .map(|path| clis.join(path))
        .find(|path| path.exists());
    let mut peers = vec![("minimal rmcp", vec![target.join("examples").join("minimal-mcp-server")])];
    if modules.join("@modelcontextprotocol/sdk").exists() {
        peers.push((
            "minimal Node",
            vec![PathBuf::from("node"), root.join("benches/peers/minimal_server.mjs"), modules],
        ));
    } else {
        eprintln!("left out: the Node peer (run tests/real/install)");
    }
    match python {
        Some(python) => {
            peers.push(("minimal Python", vec![python, root.join("benches/peers/minimal_server.py")]))
        }
        None => eprintln!("left out: the Python peer (run tests/real/install)"),
    }
    peers
}

impl Bench {
    fn start_memory_and_calls(&self, table: &mut Table) {
        let world = World::new(&json!({}));
        let starts = |command: &dyn Fn() -> Command, times: usize| {
            median(
                (0..times)
                    .map(|_| {
                        let began = Instant::now();
                        let mut server = Server::start(&mut command());
                        server.handshake();
                        began.elapsed()
                    })
                    .collect(),
            )
        };
        let calls = |server: &mut Server, tool: &str, arguments: Value, times: usize| {
            server.call(tool, arguments.clone());
            median(
                (0..times)
                    .map(|_| {
                        let began = Instant::now();
                        server.call(tool, arguments.clone());
                        began.elapsed()
                    })
                    .collect(),
            )
        };
        let own_start = starts(&|| world.serve(), self.starts);
        let mut own = Server::start(&mut world.serve());
        own.handshake();
        let own_memory = own.memory_kib("VmRSS");
        let own_call = calls(&mut own, "list_agents", json!({}), self.calls);
        table.row("`serve`: spawn → tools/list answered", ms(own_start), "", None);
        table.row(
            "idle `serve`, resident",
            format!("{:.1} MiB", own_memory as f64 / 1024.0),
            "≤ 8 MiB",
            Some(own_memory <= 8 * 1024),
        );
        table.row(
            "`list_agents` cached, p50",
            format!("{} µs", own_call.as_micros()),
            "≤ 200 µs",
            Some(own_call <= Duration::from_micros(200)),
        );
        for (name, argv) in peers() {
            if !argv[0].exists() && argv[0].components().count() > 1 {
                table.row(&format!("start against {name}"), "peer not built".into(), "", None);
                continue;
            }
            let command = || {
                let mut command = Command::new(&argv[0]);
                command.args(&argv[1..]);
                command
            };
            let times = if name == "minimal rmcp" { self.starts } else { self.starts.div_ceil(4) };
            let start = starts(&command, times);
            match name {
                "minimal rmcp" => {
                    let factor = ratio(own_start, start);
                    table.row(
                        "start, `serve` / minimal rmcp",
                        format!("{factor:.2}× ({})", ms(start)),
                        "≤ 2×",
                        Some(factor <= 2.0),
                    );
                }
                _ => {
                    let bound = if name == "minimal Node" { 100.0 } else { 200.0 };
                    let factor = ratio(start, own_start);
                    table.row(
                        &format!("start, {name} / `serve`"),
                        format!("{factor:.0}× ({})", ms(start)),
                        &format!("≥ {bound:.0}×"),
                        Some(factor >= bound),
                    );
                }
            }
            if name == "minimal Node" {
                let mut peer = Server::start(&mut command());
                peer.handshake();
                let memory = peer.memory_kib("VmRSS");
                let call = calls(&mut peer, "echo", json!({ "text": "hi" }), self.calls);
                let share = memory as f64 / own_memory.max(1) as f64;
                table.row(
                    "resident, minimal Node / `serve`",
                    format!("{share:.1}×"),
                    "≥ 8×",
                    Some(share >= 8.0),
                );
                let factor = ratio(call, own_call);
                table.row(
                    "call, Node echo / `list_agents`",
                    format!("{factor:.2}× ({} µs)", call.as_micros()),
                    "≥ 1×",
                    Some(factor >= 1.0),
                );
            }
        }
    }

    fn turn_overhead(&self, table: &mut Table) {
        let world = World::new(&json!({ "steps": [{ "answer": { "text": "done" } }] }));
        let script = world.dir.path().join("script.json");
        let by_hand = || {
            let mut child = Command::new(BRIDGE)
                .args(["mock-agent", "--script"])
                .arg(&script)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(b"do it").unwrap();
            assert!(child.wait_with_output().unwrap().status.success());
        };
        let mut server = Server::start(&mut world.serve());
        server.handshake();
        let delegated = |server: &mut Server| {
            let result = server.call("delegate_task", json!({ "agent": "mock", "prompt": "do it" }));
            assert_eq!(result["structuredContent"]["outcome"], "success", "{result}");
        };
        by_hand();
        delegated(&mut server);
        let (mut bare, mut bridged) = (Vec::new(), Vec::new());
        // Taken in turns, so that both see the same machine.
        for _ in 0..self.turns {
            let began = Instant::now();
            by_hand();
            bare.push(began.elapsed());
            let began = Instant::now();
            delegated(&mut server);
            bridged.push(began.elapsed());
        }
        let (bare, bridged) = (median(bare), median(bridged));
        let overhead = bridged.saturating_sub(bare);
        table.row(
            "a delegated turn over the same program by hand",
            format!("+{} ({} − {})", ms(overhead), ms(bridged), ms(bare)),
            "≤ 15 ms",
            Some(overhead <= Duration::from_millis(15)),
        );
    }

    fn lists(&self, table: &mut Table) {
        let mut times = Vec::new();
        for rows in [100, self.rows] {
            let world = World::new(&json!({ "steps": [{ "answer": { "text": "done" } }] }));
            let mut server = Server::start(&mut world.serve());
            server.handshake();
            // One real turn makes the database; the rest are its copies.
            server.call("delegate_task", json!({ "agent": "mock", "prompt": "do it" }));
            multiply(&world.dir.path().join("state/bridge.sqlite3"), rows);
            server.call("list_sessions", json!({ "limit": 20 }));
            let time = median(
                (0..self.calls.min(300))
                    .map(|_| {
                        let began = Instant::now();
                        server.call("list_sessions", json!({ "limit": 20 }));
                        began.elapsed()
                    })
                    .collect(),
            );
            times.push(time);
        }
        let factor = ratio(times[1], times[0]);
        let rows = self.rows;
        table.row(
            &format!("`list_sessions` (20) at {rows} sessions"),
            ms(times[1]),
            "≤ 5 ms",
            Some(times[1] <= Duration::from_millis(5)),
        );
        table.row(
            &format!("`list_sessions`, {rows} / 100 sessions"),
            format!("{factor:.2}×"),
            "≤ 2×",
            Some(factor <= 2.0),
        );
    }

    fn unbounded_output(&self, table: &mut Table) {
        const BYTES: u64 = 200_000_000;
        let world = World::new(&json!({
            "rules": [{ "when": { "contains": "flood" }, "steps": [{ "print": { "repeat": { "bytes": BYTES, "text": "x" } } }, { "exit": 0 }] }],
            "steps": [{ "answer": { "text": "done" } }],
        }));
        let mut server = Server::start(&mut world.serve());
        server.handshake();
        server.call("delegate_task", json!({ "agent": "mock", "prompt": "do it" }));
        let idle = server.memory_kib("VmRSS");
        let started =
            server.call("delegate_task", json!({ "agent": "mock", "prompt": "flood", "wait_seconds": 0 }));
        let turn = started["structuredContent"]["turn_id"].clone();
        // The supervisor is a child of serve; its peak is read until it is gone.
        let peak = AtomicU64::new(0);
        let over = AtomicBool::new(false);
        let parent = server.child.id();
        let (mut slowest, mut end) = (Duration::ZERO, Value::Null);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for pid in children(parent) {
                        peak.fetch_max(memory_kib(pid, "VmHWM"), Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            loop {
                let began = Instant::now();
                server.call("list_sessions", json!({}));
                slowest = slowest.max(began.elapsed());
                let now = server.call("wait_turn", json!({ "turn_id": turn, "wait_seconds": 0 }));
                if now["structuredContent"]["status"] == "finished" {
                    end = now["structuredContent"].clone();
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        let served = server.memory_kib("VmHWM").saturating_sub(idle);
        let supervised = peak.load(Ordering::Relaxed);
        let growth = served.max(supervised.saturating_sub(idle)) as f64 / 1024.0;
        let code = end["code"].as_str().unwrap_or("none").to_owned();
        table.row(
            "200 MB without a newline, memory above idle",
            format!("{growth:.1} MiB, ends with {code}"),
            "≤ 32 MiB",
            Some(growth <= 32.0),
        );
        table.row("slowest `list_sessions` meanwhile", ms(slowest), "answers", None);
    }
}

fn children(parent: u32) -> Vec<u32> {
    std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Copies the one session (and its turn) until there are `rows` of them.
fn multiply(database: &Path, rows: usize) {
    let connection = rusqlite::Connection::open(database).unwrap();
    let columns = |table: &str| -> Vec<String> {
        let mut statement =
            connection.prepare(&format!("SELECT name FROM pragma_table_info('{table}')")).unwrap();
        statement.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap).collect()
    };
    let copy = |table: &str, replaced: &dyn Fn(&str) -> String| {
        let columns = columns(table);
        let values: Vec<String> = columns.iter().map(|column| replaced(column)).collect();
        let sql = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO {table} ({}) SELECT {} FROM n, (SELECT * FROM {table} ORDER BY rowid LIMIT 1) AS one",
            columns.join(", "),
            values.join(", ")
        );
        connection.execute_batch(&sql).unwrap();
    };
    let uuid = |prefix: &str| format!("printf('{prefix}-0000-4000-8000-%012d', i)");
    connection.execute_batch("PRAGMA synchronous = OFF; BEGIN").unwrap();
    copy("sessions", &|column| match column {
        "id" => uuid("aaaaaaaa"),
        "updated_at" | "created_at" => format!("one.{column} - i"),
        other => format!("one.{other}"),
    });
    copy("turns", &|column| match column {
        "seq" => "NULL".to_owned(),
        "id" => uuid("bbbbbbbb"),
        "session_id" => uuid("aaaaaaaa"),
        "idempotency_key" => "NULL".to_owned(),
        other => format!("one.{other}"),
    });
    connection.execute_batch("COMMIT").unwrap();
}
