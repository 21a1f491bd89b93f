//! What the launcher adds to the start of a release, against one SHA-256 pass over the same program.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_bridge::digest;
use agent_bridge::release::metadata::{CAPABILITY, LAUNCHER_PROTOCOL, METADATA_FILE, SCHEMA_VERSION};
use agent_bridge::release::pointer::{self, LauncherFacts, Pointer};
use agent_bridge::release::{Layout, ReleaseId, layout};
use serde_json::json;

use super::{BRIDGE, Bench, Table, folder};

/// One row: from the start of the launcher until the release runs, without what the release itself needs.
pub fn start(bench: &Bench, table: &mut Table) {
    let folder = folder();
    let installed = Layout::at(folder.path().join("root"));
    installed.create().unwrap();
    let id = ReleaseId::parse("1.0.0+abcdef0").unwrap();
    let release = installed.release(&id);
    let program = release.join("server").join(layout::program_name());
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::copy(BRIDGE, &program).unwrap();
    std::fs::copy(BRIDGE, installed.launcher()).unwrap();
    let metadata = json!({ "schemaVersion": SCHEMA_VERSION, "capability": CAPABILITY, "minLauncherProtocol": LAUNCHER_PROTOCOL });
    let metadata = metadata.to_string();
    std::fs::write(release.join(METADATA_FILE), &metadata).unwrap();
    let (sha256, bytes) = digest::of_file(&program).unwrap();
    let current = Pointer {
        schema_version: 2,
        generation: 1,
        release_id: id,
        target: String::new(),
        runtime_path: installed.relative(&program).unwrap(),
        runtime_sha256: sha256.clone(),
        runtime_bytes: bytes,
        metadata_sha256: digest::of_bytes(metadata.as_bytes()),
        manifest_sha256: sha256.clone(),
        config_sha256: None,
        launcher: LauncherFacts { sha256, bytes, protocol: LAUNCHER_PROTOCOL },
        previous: None,
        trial: None,
        txid: "000001-bench".into(),
        promoted_at: String::new(),
    };
    std::fs::write(installed.slot(0), pointer::encode(&current)).unwrap();

    // A command that the release does and that needs next to nothing.
    let run = |program: &std::path::Path| {
        let begun = Instant::now();
        let mut command = Command::new(program);
        command.args(["config", "path"]).env_clear().env("HOME", folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap();
        begun.elapsed()
    };
    let hash = || {
        let begun = Instant::now();
        digest::of_file(&program).unwrap();
        begun.elapsed()
    };
    let rounds = bench.rounds * 9;
    let (mut launched, mut direct, mut hashed) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let times = (run(&installed.launcher()), run(&program), hash());
        // The first one fills the caches.
        if round > 0 {
            launched.push(times.0);
            direct.push(times.1);
            hashed.push(times.2);
        }
    }
    // What else the machine does only ever adds.
    let [launched, direct, hashed] =
        [launched, direct, hashed].map(|times: Vec<Duration>| times.into_iter().min().unwrap_or_default());
    let added = launched.saturating_sub(direct);
    let ratio = added.as_secs_f64() / hashed.as_secs_f64();
    table.row(
        &format!("start through the launcher, {} MiB", bytes >> 20),
        format!("{:.1} ms more ({ratio:.2}× one hash of {:.1} ms)", ms(added), ms(hashed)),
        "≤ 1.2× one SHA-256 pass over the program",
        ratio <= 1.2,
    );
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
