//! Which agents' programs are installed, and in which version.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::context::Context;
use crate::policy::AgentId;

/// The agents that are programs on PATH.
pub(super) const PROGRAMS: [AgentId; 3] = [AgentId::Codex, AgentId::Claude, AgentId::Gemini];
/// How long a program may take to tell its version.
const VERSION_DEADLINE: Duration = Duration::from_secs(5);
/// The most that is read of what it says.
const VERSION_BYTES: u64 = 4096;

/// An installed agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: AgentId,
    pub(super) path: PathBuf,
    pub(super) version: Option<String>,
}

/// Looks for each program and asks for its version.
pub(super) fn find_all(context: &Context) -> Vec<Found> {
    let find = |id: AgentId| {
        let path = find_program(context, id.as_str())?;
        let version = ask_version(context, &path).as_deref().and_then(version_in);
        Some(Found { id, path, version })
    };
    // One that this build cannot use would be a promise nobody keeps.
    let usable = |id: &AgentId| crate::agents::agent(*id).is_some();
    PROGRAMS.into_iter().filter(usable).filter_map(find).collect()
}

fn find_program(context: &Context, name: &str) -> Option<PathBuf> {
    let extensions: Vec<String> = if cfg!(windows) {
        let list = context.text_var("PATHEXT").unwrap_or(".COM;.EXE;.BAT;.CMD");
        list.split(';').filter(|extension| !extension.is_empty()).map(str::to_lowercase).collect()
    } else {
        vec![String::new()]
    };
    std::env::split_paths(context.var("PATH")?)
        // A relative entry means another folder in every host.
        .filter(|folder| folder.is_absolute())
        .flat_map(|folder| {
            extensions
                .iter()
                .map(move |extension| folder.join(format!("{name}{extension}")))
                .collect::<Vec<_>>()
        })
        .find(|path| path.is_file())
}

fn ask_version(context: &Context, program: &Path) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .env_clear()
        .envs(&context.env)
        .current_dir(&context.cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    // The thread outlives the deadline only if something else keeps the pipe open; it holds 4 KiB.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.take(VERSION_BYTES).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    let bytes = receiver.recv_timeout(VERSION_DEADLINE).ok();
    let _ = child.kill();
    let _ = child.wait();
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The first word that looks like `1.2` or `v1.2.3-beta`.
fn version_in(text: &str) -> Option<String> {
    text.split(|c: char| c.is_whitespace() || "(),".contains(c))
        .map(|word| word.strip_prefix('v').unwrap_or(word))
        .find(|word| {
            let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || ".-+".contains(c));
            let numbers = word.split('.').take_while(|part| part.bytes().all(|b| b.is_ascii_digit())).count();
            plain && word.len() <= 40 && word.starts_with(|c: char| c.is_ascii_digit()) && numbers >= 2
        })
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions() {
        for (text, expected) in [
            ("codex-cli 0.101.0\n", Some("0.101.0")),
            ("2.1.50 (Claude Code)\n", Some("2.1.50")),
            ("v0.9.1-nightly.3", Some("0.9.1-nightly.3")),
            ("(1.2)", Some("1.2")),
            ("warning: 3 problems\n4.5.6", Some("4.5.6")),
            ("no version", None),
            ("7", None),
            ("", None),
        ] {
            assert_eq!(version_in(text).as_deref(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_version_is_short_and_plain(text in "[0-9.v \\-\u{1b}\u{e9}a-c]{0,60}") {
            if let Some(version) = version_in(&text) {
                let plain = version.chars().all(|c| c.is_ascii_graphic());
                prop_assert!(plain && version.len() <= 40);
            }
        }
    }
}
