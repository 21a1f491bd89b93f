//! What the fuzz targets share: a throwaway world, and what must hold for every worker's output.

use std::sync::OnceLock;

use agent_bridge::agents::{self, Outcome, RunEnd};
use agent_bridge::context::{Clock, Context};
use agent_bridge::policy::AgentId;

/// A home, an allowed folder `work` beside it, and nothing in the environment. One a process.
pub fn world() -> &'static Context {
    static WORLD: OnceLock<(tempfile::TempDir, Context)> = OnceLock::new();
    let (_, context) = WORLD.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let top = folder.path().canonicalize().expect("its canonical path");
        for name in ["home", "work", "bin"] {
            std::fs::create_dir(top.join(name)).expect("a folder");
        }
        let context = Context {
            env: Default::default(),
            home: Some(top.join("home")),
            cwd: top.join("work"),
            exe: top.join("bin/agent-bridge"),
            clock: Clock::Fixed(0),
        };
        (folder, context)
    });
    context
}

/// Feeds a worker's output to an agent's parser and checks the verdict. The first byte is the exit
/// code, so that the end of the run is hostile as well.
pub fn judge(id: AgentId, data: &[u8]) {
    let Some((&exit, output)) = data.split_first() else { return };
    let agent = agents::agent(id).expect("an adapter");
    let resume = (exit & 0x80 != 0).then_some("0199a213-81c0-7800-8aa1-bbab2a035a53");
    let mut parser = agent.parser(resume);
    for line in output.split(|&byte| byte == b'\n') {
        if let Some(activity) = parser.line(line) {
            one_plain_line("an activity", &activity.line);
        }
        let _ = parser.fatal();
    }
    let tail = String::from_utf8_lossy(&output[output.len().saturating_sub(2_000)..]);
    let verdict = parser.finish(&RunEnd {
        exit_code: Some(i64::from(exit & 0x7f)),
        signal: None,
        stderr_tail: &tail,
        stdout_bytes: output.len() as u64,
        log_tail: "",
    });
    // Lossy conversion makes three bytes of one.
    assert!(verdict.answer.len() <= output.len() * 3 + 1_000, "the answer is longer than the output");
    if let Some(detail) = &verdict.detail {
        one_plain_line("a detail", detail);
    }
    if let Some(id) = &verdict.native_id {
        assert!(agent.accepts_native_id(id), "a session id that could not be resumed: {id:?}");
    }
    if verdict.outcome == Outcome::Success {
        assert!(!verdict.answer.trim().is_empty(), "success without an answer");
    }
}

fn one_plain_line(what: &str, text: &str) {
    assert!(!text.chars().any(char::is_control), "{what} has control characters: {text:?}");
}
