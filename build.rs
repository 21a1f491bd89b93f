//! Bakes the git revision and the target triple into `--version`.

use std::process::Command;

fn main() {
    let sha = std::env::var("AGENT_BRIDGE_GIT_SHA").ok().or_else(git_sha).unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=AGENT_BRIDGE_GIT_SHA={sha}");
    println!("cargo:rustc-env=AGENT_BRIDGE_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    println!("cargo:rerun-if-env-changed=AGENT_BRIDGE_GIT_SHA");
    for path in [".git/HEAD", ".git/index"] {
        if std::path::Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

fn git_sha() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|sha| !sha.is_empty())
}
