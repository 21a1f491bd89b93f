//! Bakes into the program what it is: revision, time, target, and the digest of its tools.
//!
//! `AGENT_BRIDGE_GIT_SHA` (the whole revision) and `SOURCE_DATE_EPOCH` (its time) say it where the source is no
//! git checkout.

use std::process::Command;

use serde_json::{Value, json};

#[allow(dead_code, reason = "only the digest of the tools is needed here")]
#[path = "src/digest.rs"]
mod digest;

/// What goes into the program. A change in any of it runs this script again, so that `dirty` is never out of date.
const INPUTS: [&str; 5] = ["build.rs", "Cargo.toml", "Cargo.lock", "src", "templates"];
const CATALOGUE: &str = "src/mcp/catalogue.json";

fn main() {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let given = variable("AGENT_BRIDGE_GIT_SHA");
    let is_given = given.is_some();
    let sha = given.or_else(|| git(&["rev-parse", "HEAD"])).filter(|sha| is_revision(sha));
    let time = sha.as_deref().and_then(|sha| git(&["show", "-s", "--format=%ct", sha]));
    let time = time.or_else(|| variable("SOURCE_DATE_EPOCH")).and_then(|time| time.parse::<i64>().ok());
    let changed = || {
        let arguments = ["status", "--porcelain", "--untracked-files=all", "--"];
        git(&[&arguments[..], &INPUTS[..]].concat()).is_some()
    };
    let dirty = !is_given && sha.is_some() && changed();
    let cargo = |name: &str| variable(name).unwrap_or_default();
    let identity = json!({
        "package": cargo("CARGO_PKG_NAME"),
        "version": cargo("CARGO_PKG_VERSION"),
        "gitSha": sha,
        "commitTime": time,
        "dirty": dirty,
        "target": {
            "os": cargo("CARGO_CFG_TARGET_OS"),
            "arch": cargo("CARGO_CFG_TARGET_ARCH"),
            "triple": cargo("TARGET"),
        },
        "catalogueSha256": catalogue_digest(),
    });
    let short = sha.as_deref().map_or("unknown", |sha| &sha[..12]);
    println!("cargo:rustc-env=AGENT_BRIDGE_IDENTITY={identity}");
    println!("cargo:rustc-env=AGENT_BRIDGE_GIT_SHA={short}");
    println!("cargo:rustc-env=AGENT_BRIDGE_TARGET={}", cargo("TARGET"));
    for name in ["AGENT_BRIDGE_GIT_SHA", "SOURCE_DATE_EPOCH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    for input in INPUTS {
        println!("cargo:rerun-if-changed={input}");
    }
    // Grows with each commit, also in a linked worktree.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
}

/// As release metadata have it: of the tools, sorted by name.
fn catalogue_digest() -> Option<String> {
    let mut tools: Vec<Value> = serde_json::from_slice(&std::fs::read(CATALOGUE).ok()?).ok()?;
    tools.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    Some(digest::of_json(&Value::Array(tools)))
}

fn is_revision(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// What git prints, if it prints something.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).env("GIT_OPTIONAL_LOCKS", "0").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|line| !line.is_empty())
}
