//! Measures the release side against what the machine itself needs for the same bytes, as ratios of one run.
//!
//! `cargo bench --bench release [-- NAME...] [--quick]`. Exit code 1 if a budget is missed. `AGENT_BRIDGE_BENCH_FOLDER`
//! names the folder to work in; it should be on a disk, and needs 4 GiB. `AGENT_BRIDGE_BENCH_BYTES` is the size of the
//! program instead of 1 GiB.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

#[path = "release/launcher.rs"]
mod launcher;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

#[path = "release/install.rs"]
mod install;

const BRIDGE: &str = env!("CARGO_BIN_EXE_agent-bridge");

/// A measurement by its name.
type Measurement = (&'static str, fn(&Bench, &mut Table));

const MEASUREMENTS: &[Measurement] =
    &[("package", package), ("install-release", install::install), ("launcher", launcher::start)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // The test runner asks a bench target for its tests; there are none.
    if arguments.iter().any(|arg| arg == "--list") {
        return;
    }
    let quick = arguments.iter().any(|arg| arg == "--quick" || arg == "--test");
    let names: Vec<&String> = arguments.iter().filter(|arg| !arg.starts_with('-')).collect();
    let asked = std::env::var("AGENT_BRIDGE_BENCH_BYTES").ok().and_then(|bytes| bytes.parse().ok());
    let payload = asked.unwrap_or(if quick { 96 << 20 } else { 1 << 30 });
    let bench = Bench { payload, rounds: if quick { 1 } else { 5 } };
    let mut table = Table::default();
    for (name, measure) in MEASUREMENTS {
        if names.is_empty() || names.iter().any(|wanted| name.contains(wanted.as_str())) {
            measure(&bench, &mut table);
        }
    }
    table.print();
    if table.missed() && !quick {
        std::process::exit(1);
    }
}

struct Bench {
    /// Bytes that are packaged, installed, hashed.
    payload: u64,
    rounds: usize,
}

#[derive(Default)]
struct Table {
    rows: Vec<(String, String, String, bool)>,
}

impl Table {
    fn row(&mut self, what: &str, measured: String, bound: &str, held: bool) {
        eprintln!("{what}: {measured}");
        self.rows.push((what.to_owned(), measured, bound.to_owned(), held));
    }

    fn missed(&self) -> bool {
        self.rows.iter().any(|row| !row.3)
    }

    fn print(&self) {
        println!("| what | measured | bound | held |\n|---|---|---|---|");
        for (what, measured, bound, held) in &self.rows {
            println!("| {what} | {measured} | {bound} | {} |", if *held { "yes" } else { "NO" });
        }
    }
}

/// A folder on a disk: the temporary one is often memory.
fn folder() -> tempfile::TempDir {
    let parent = match std::env::var_os("AGENT_BRIDGE_BENCH_FOLDER") {
        Some(folder) => PathBuf::from(folder),
        None if Path::new("/var/tmp").is_dir() => PathBuf::from("/var/tmp"),
        None => std::env::temp_dir(),
    };
    tempfile::Builder::new().prefix("agent-bridge-bench-").tempdir_in(parent).unwrap()
}

fn timed(command: &mut Command) -> Duration {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().unwrap();
    let elapsed = start.elapsed();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    elapsed
}

/// One pass of SHA-256 over a file, and one copy of it that is on the disk at the end.
fn bare(payload: &Path, copy: &Path) -> (Duration, Duration) {
    let hashed = timed(Command::new("openssl").args(["dgst", "-sha256"]).arg(payload));
    let (from, to) = (format!("if={}", payload.display()), format!("of={}", copy.display()));
    let copied = timed(Command::new("dd").args([&from, &to, "bs=1M", "conv=fsync", "status=none"]));
    std::fs::remove_file(copy).unwrap();
    (hashed, copied)
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// `agent-bridge package --store` of a program of that size. The median of the ratios of all rounds counts.
fn package(bench: &Bench, table: &mut Table) {
    let folder = folder();
    let (repo, program) = (folder.path().join("repo"), folder.path().join("program"));
    write_program(&repo, &program, bench.payload);
    let out = folder.path().join("out");
    let mut rounds = Vec::new();
    for _ in 0..bench.rounds {
        let (hashed, copied) = bare(&program, &folder.path().join("copy"));
        std::fs::create_dir(&out).unwrap();
        let packaged = timed(&mut package_command(&repo, &program, &out));
        std::fs::remove_dir_all(&out).unwrap();
        rounds.push((packaged.as_secs_f64() / (hashed + copied).as_secs_f64(), packaged, hashed, copied));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, packaged, hashed, copied) = rounds[rounds.len() / 2];
    table.row(
        &format!("package --store, {} MiB", bench.payload >> 20),
        format!(
            "{ratio:.2}× ({} against openssl {} and dd {}; {:.2}–{:.2} in {} rounds)",
            seconds(packaged),
            seconds(hashed),
            seconds(copied),
            rounds[0].0,
            rounds[rounds.len() - 1].0,
            rounds.len()
        ),
        "≤ 1.3×",
        ratio <= 1.3,
    );
}

/// A program of that size that says it was built from a checkout, and the checkout.
fn write_program(repo: &Path, program: &Path, bytes: u64) {
    let identity = checkout(repo);
    let mut file = File::create(program).unwrap();
    file.write_all(format!("\n[agent-bridge identity 1] {identity}\n").as_bytes()).unwrap();
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15).take(bytes);
    std::io::copy(&mut noise, &mut file).unwrap();
    file.sync_all().unwrap();
}

fn package_command(repo: &Path, program: &Path, out: &Path) -> Command {
    let mut command = Command::new(BRIDGE);
    command.args(["package", "--other-packager", "--store", "--repo"]).arg(repo);
    command.arg("--binary").arg(program).arg("--out").arg(out);
    command
}

/// A checkout that can be packaged; gives the identity of a program that was built from it.
fn checkout(repo: &Path) -> serde_json::Value {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tracked = ["Cargo.toml", "Cargo.lock", "README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];
    let others = ["manifest.template.json", "src/mcp/catalogue.json", "templates/config.schema.json"];
    for path in tracked.iter().chain(&others) {
        let to = repo.join(path);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(source.join(path), to).unwrap();
    }
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(repo).args(["-c", "user.name=Bench", "-c", "user.email=bench@example.invalid"]);
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "--quiet"]);
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message=Sources"]);
    let own = agent_bridge::release::identity::own().unwrap();
    json!({
        "package": "agent-bridge", "version": own.version, "gitSha": git(&["rev-parse", "HEAD"]), "commitTime": null,
        "dirty": false, "target": own.target, "catalogueSha256": own.catalogue_sha256,
    })
}

/// Bytes that no file system or disk makes smaller.
struct Noise(u64);

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        for word in buffer.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes()[..word.len()]);
        }
        Ok(buffer.len())
    }
}
