//! Bakes the git revision and the target triple into `--version`.

use std::process::Command;

fn main() {
    let sha = std::env::var("AGENT_BRIDGE_GIT_SHA")
        .ok()
        .or_else(|| git(&["rev-parse", "--short=12", "HEAD"]))
        .unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=AGENT_BRIDGE_GIT_SHA={sha}");
    println!("cargo:rustc-env=AGENT_BRIDGE_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    println!("cargo:rerun-if-env-changed=AGENT_BRIDGE_GIT_SHA");
    // Grows with each commit, also in a linked worktree.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|line| !line.is_empty())
}
