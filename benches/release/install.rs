//! `install-release` of a large bundle, against what cannot be had for less: hashing it once and copying it once so
//! that it survives a power cut.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use agent_bridge::release::digest;
use agent_bridge::release::layout::program_name;
use agent_bridge::release::metadata::{
    CAPABILITY, FileRecord, LAUNCHER_PROTOCOL, MANIFEST_FILE, METADATA_FILE, Metadata, Range, SCHEMA_VERSION,
    StateSchema, Target, ToolCatalogue,
};
use serde_json::json;

/// Most that an install may take, as a multiple of one hash and one durable copy.
const BOUND: f64 = 1.3;

/// One row of the table: what, what was measured, the bound, whether it is held.
pub type Row = (String, String, String, Option<bool>);

/// Measures with a bundle of so many bytes.
pub fn rows(bytes: u64, rounds: usize) -> Vec<Row> {
    // Not the folder for temporary files, which may lie in memory.
    let parent = if Path::new("/var/tmp").is_dir() { "/var/tmp".into() } else { std::env::temp_dir() };
    let folder = tempfile::Builder::new().prefix("agent-bridge-bench-").tempdir_in(parent).unwrap();
    let bundle = folder.path().join("bundle.mcpb");
    let sha256 = make(&bundle, folder.path(), bytes);
    let copy = folder.path().join("copy");
    let (mut hash, mut durable, mut install, mut expected) = (vec![], vec![], vec![], vec![]);
    for round in 0..rounds {
        hash.push(time(Command::new("openssl").args(["dgst", "-sha256"]).arg(&bundle)));
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", bundle.display())).arg(format!("of={}", copy.display()));
        durable.push(time(dd.args(["bs=1M", "conv=fsync"])));
        std::fs::remove_file(&copy).unwrap();
        for (times, arguments) in [
            (&mut install, &[][..]),
            (&mut expected, &["--expect-sha256", sha256.as_str()][..]),
        ] {
            let root = folder.path().join(format!("root-{round}-{}", arguments.len()));
            let mut command = Command::new(env!("CARGO_BIN_EXE_agent-bridge"));
            command.arg("install-release").arg(&bundle).arg("--root").arg(&root).args(arguments);
            times.push(time(&mut command));
            agent_bridge::platform::remove_durable(&root).unwrap();
        }
    }
    let [hash, durable, install, expected] = [hash, durable, install, expected].map(median);
    let row = |what: &str, took: Duration, bound: Option<f64>| {
        let ratio = took.as_secs_f64() / (hash + durable).as_secs_f64();
        let measured = format!(
            "{ratio:.2}× ({took:.2?}; sha256 {hash:.2?} + copy {durable:.2?}; {} MiB)",
            bytes / (1024 * 1024)
        );
        (
            what.to_owned(),
            measured,
            bound.map_or(String::new(), |bound| format!("≤ {bound}×")),
            bound.map(|bound| ratio <= bound),
        )
    };
    vec![
        row("install-release / one SHA-256 and one durable copy", install, Some(BOUND)),
        row("the same with --expect-sha256, which reads the bundle once more", expected, None),
    ]
}

fn time(command: &mut Command) -> Duration {
    let begin = Instant::now();
    let output = command.output().unwrap();
    let took = begin.elapsed();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A stored bundle whose program is noise; gives its SHA-256.
fn make(bundle: &Path, folder: &Path, bytes: u64) -> String {
    let runtime = format!("server/{}", program_name());
    let noise = folder.join("noise");
    let mut file = std::io::BufWriter::new(File::create(&noise).unwrap());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..bytes / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes()).unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    let (runtime_sha256, runtime_bytes) = digest::of_file(&noise).unwrap();
    let git_sha = "0123456789abcdef0123456789abcdef01234567";
    let manifest = json!({
        "name": "agent-bridge", "version": "1.0.0",
        "server": { "type": "binary", "entry_point": runtime },
        "_meta": { "io.github.agent-bridge.release": { "git_sha": git_sha, "runtime_sha256": runtime_sha256 } },
    })
    .to_string();
    let record = |sha256: String, bytes: u64, mode: &str| FileRecord { sha256, bytes, mode: mode.into() };
    let manifest_sha256 = digest::of_bytes(manifest.as_bytes());
    let files = BTreeMap::from([
        (MANIFEST_FILE.to_owned(), record(manifest_sha256.clone(), manifest.len() as u64, "0644")),
        (runtime.clone(), record(runtime_sha256, runtime_bytes, "0755")),
    ]);
    let metadata = Metadata {
        schema_version: SCHEMA_VERSION,
        capability: CAPABILITY.into(),
        package: "agent-bridge".into(),
        version: "1.0.0".into(),
        git_sha: git_sha.into(),
        built_at: "2026-01-01T00:00:00Z".into(),
        target: Target {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            triple: "bench".into(),
        },
        runtime: runtime.clone(),
        min_launcher_protocol: LAUNCHER_PROTOCOL,
        config_schema_version: Range { min: 1, max: 1 },
        state_schema_version: StateSchema { reads: Range { min: 1, max: 1 }, writes: 1 },
        tool_catalogue: ToolCatalogue { sha256: digest::of_bytes(b""), tools: BTreeMap::new() },
        manifest_sha256,
        files,
    };
    let mut writer = zip::ZipWriter::new(File::create(bundle).unwrap());
    let stored = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .last_modified_time(zip::DateTime::default());
    writer.start_file(MANIFEST_FILE, stored.unix_permissions(0o644)).unwrap();
    writer.write_all(manifest.as_bytes()).unwrap();
    writer.start_file(&runtime, stored.unix_permissions(0o755)).unwrap();
    std::io::copy(&mut File::open(&noise).unwrap(), &mut writer).unwrap();
    writer.start_file(METADATA_FILE, stored.unix_permissions(0o644)).unwrap();
    writer.write_all(&metadata.to_bytes()).unwrap();
    writer.finish().unwrap().sync_all().unwrap();
    std::fs::remove_file(noise).unwrap();
    digest::of_file(bundle).unwrap().0
}
