//! `install-release` of a large bundle, against hashing it once and copying it once so that it survives a power cut.

use std::path::PathBuf;
use std::process::Command;

use agent_bridge::{digest, platform};

use super::{BRIDGE, Bench, Table, bare, folder, package_command, seconds, timed, write_program};

/// With the hash of the bundle found along the way, and with one that is expected and so compared first, which is
/// one pass more. The median of the ratios of all rounds counts.
pub fn install(bench: &Bench, table: &mut Table) {
    let folder = folder();
    let (repo, program) = (folder.path().join("repo"), folder.path().join("program"));
    let (out, root) = (folder.path().join("out"), folder.path().join("root"));
    write_program(&repo, &program, bench.payload);
    std::fs::create_dir(&out).unwrap();
    timed(&mut package_command(&repo, &program, &out));
    std::fs::remove_file(&program).unwrap();
    let files = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    let bundle: PathBuf =
        files.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "mcpb")).unwrap();
    let sha256 = digest::of_file(&bundle).unwrap().0;
    for (what, arguments, bound) in [
        ("install-release", &[][..], 1.3),
        ("install-release --expect-sha256", &["--expect-sha256", sha256.as_str()][..], 2.0),
    ] {
        let mut rounds = Vec::new();
        for _ in 0..bench.rounds {
            let (hashed, copied) = bare(&bundle, &folder.path().join("copy"));
            let mut command = Command::new(BRIDGE);
            command.arg("install-release").arg(&bundle).arg("--root").arg(&root).args(arguments);
            let installed = timed(&mut command);
            platform::remove_durable(&root).unwrap();
            rounds.push((
                installed.as_secs_f64() / (hashed + copied).as_secs_f64(),
                installed,
                hashed,
                copied,
            ));
        }
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, installed, hashed, copied) = rounds[rounds.len() / 2];
        table.row(
            &format!("{what}, {} MiB", bench.payload >> 20),
            format!(
                "{ratio:.2}× ({} against openssl {} and dd {}; {:.2}–{:.2} in {} rounds)",
                seconds(installed),
                seconds(hashed),
                seconds(copied),
                rounds[0].0,
                rounds[rounds.len() - 1].0,
                rounds.len()
            ),
            &format!("≤ {bound}×"),
            ratio <= bound,
        );
    }
}
