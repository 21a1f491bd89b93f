//! Scripts run in-process against collected streams; the adapters read what comes out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::agents::tests::{ID, exit, verdict};
use crate::agents::{Metered, Outcome, Tokens};
use crate::policy::AgentId;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

#[derive(Clone, Default)]
struct Collected(Rc<RefCell<Vec<u8>>>);

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Done {
    exit: Result<i32, String>,
    stdout: Vec<u8>,
    stderr: String,
}

fn run(script: &Value, argv: &[&str], prompt: &str) -> Done {
    let script: Script = serde_json::from_value(script.clone()).unwrap();
    let invocation =
        Invocation { argv: argv.iter().map(|arg| (*arg).to_owned()).collect(), ..Invocation::default() };
    let (stdout, stderr) = (Collected::default(), Collected::default());
    let mut worker = Worker::new(invocation, Box::new(stdout.clone()), Box::new(stderr.clone()));
    let exit = worker.probe(&script).and_then(|probe| match probe {
        Some(code) => Ok(code),
        None => {
            worker.read_stdin(&mut prompt.as_bytes(), script.stdin.unwrap_or(StdinMode::All))?;
            worker.follow(&script)
        }
    });
    let stdout = stdout.0.borrow().clone();
    let stderr = String::from_utf8(stderr.0.borrow().clone()).unwrap();
    Done { exit, stdout, stderr }
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn without_a_script_it_repeats_the_prompt_as_codex_would() {
    let done = run(&json!({}), &["--sandbox", "read-only", "--resume", ID], "say hello");
    assert_eq!(done.exit, Ok(0));
    let verdict = verdict(AgentId::Mock, &done.stdout, &exit(0));
    assert_eq!((verdict.outcome, verdict.answer.as_str()), (Outcome::Success, "say hello"));
    assert_eq!(verdict.native_id.as_deref(), Some(ID));
}

#[test]
fn an_answer_is_understood_by_the_adapter_it_imitates() {
    let script = json!({"steps": [{"answer": {
        "text": "{prompt}!", "usage": {"input": 100, "cached": 40, "output": 9, "reasoning": 2}, "cost_usd": 0.5,
        "commands": ["ls"], "errors": [],
    }}]});
    let tokens = Tokens { input: 100, cached_input: 40, output: 9, reasoning: 2 };
    let done = run(&script, &["exec", "--json", "-s", "read-only", "-"], "hi");
    let codex = verdict(AgentId::Codex, &done.stdout, &exit(0));
    assert_eq!((codex.answer.as_str(), codex.usage.tokens), ("hi!", Some(Metered::Total(tokens))));
    for format in ["json", "stream-json"] {
        let done = run(&script, &["-p", "--output-format", format], "hi");
        let claude = verdict(AgentId::Claude, &done.stdout, &exit(0));
        assert_eq!((claude.outcome, claude.answer.as_str()), (Outcome::Success, "hi!"));
        assert_eq!(claude.usage.tokens, Some(Metered::Run(tokens)));
        assert_eq!(claude.usage.cost_usd, Some(Metered::Total(0.5)));
    }
    for (format, pretty) in [("array", true), ("array", false), ("object", true)] {
        let script = json!({"steps": [{"answer": {"dialect": "claude", "format": format, "pretty": pretty, "text": "x"}}]});
        let done = run(&script, &[], "");
        assert_eq!(verdict(AgentId::Claude, &done.stdout, &exit(0)).answer, "x");
    }
}

#[test]
fn a_failed_turn_fails_in_both_dialects() {
    let script = json!({"steps": [{"answer": {"failed": "it broke"}}]});
    for (agent, argv) in
        [(AgentId::Codex, &["exec"][..]), (AgentId::Claude, &["--output-format", "stream-json"])]
    {
        let done = run(&script, argv, "");
        assert_eq!(done.exit, Ok(1));
        let verdict = verdict(agent, &done.stdout, &exit(1));
        assert_eq!(verdict.outcome, Outcome::WorkerError);
        assert_eq!(verdict.detail.as_deref(), Some("it broke"));
    }
}

#[test]
fn rules_choose_by_prompt_session_mode_model_argument_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let say = |text: &str| json!([{"print": {"text": text}}]);
    let script = json!({
        "counter": path(folder.path(), "runs"),
        "rules": [
            {"when": {"contains": "magic"}, "steps": say("prompt")},
            {"when": {"resumed": true}, "steps": say("resumed {resume}")},
            {"when": {"sandbox": "full-access"}, "steps": say("full")},
            {"when": {"model": "m1"}, "steps": say("model")},
            {"when": {"argument": "--odd"}, "steps": say("argument")},
            {"when": {"run": 6}, "steps": say("run {run}")},
        ],
        "steps": say("else"),
    });
    for (argv, prompt, expected) in [
        (&[][..], "some magic word", "prompt".to_owned()),
        (&["exec", "resume", "--json", ID, "-"], "", format!("resumed {ID}")),
        (&["-s", "danger-full-access"], "", "full".to_owned()),
        (&["--model=m1"], "", "model".to_owned()),
        (&["--odd"], "", "argument".to_owned()),
        (&[], "", "run 6".to_owned()),
        (&[], "", "else".to_owned()),
    ] {
        assert_eq!(String::from_utf8(run(&script, argv, prompt).stdout).unwrap(), expected);
    }
}

#[test]
fn the_granted_mode_decides_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let outside = path(folder.path(), "outside.txt");
    let script =
        json!({"steps": [{"write_file": {"path": outside, "text": "x"}}, {"answer": {"text": "done"}}]});
    for (argv, written) in [
        (&["--sandbox", "read-only"][..], false),
        (&["--permission-mode", "plan", "--output-format", "json"], false),
        (&["--sandbox", "workspace-write"], false),
        (&["--sandbox", "full-access"], true),
    ] {
        let done = run(&script, argv, "");
        assert_eq!(Path::new(&outside).exists(), written, "{argv:?}");
        assert_eq!(done.stderr.contains("rejected"), !written);
        if argv.contains(&"json") {
            assert_eq!(verdict(AgentId::Claude, &done.stdout, &exit(0)).meta["permissionDenials"], 1);
        }
    }
    std::fs::remove_file(&outside).unwrap();
    run(&json!({"steps": [{"write_file": {"path": outside, "text": "x", "force": true}}]}), &[], "");
    assert!(Path::new(&outside).exists(), "a worker that breaks its promise");
}

#[test]
fn a_record_tells_what_arrived() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "record-{run}.json");
    run(&json!({"steps": [{"record": file}]}), &["exec", "-s", "read-only", "a b"], "abc");
    let text = std::fs::read_to_string(folder.path().join("record-1.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["argv"], json!(["exec", "-s", "read-only", "a b"]));
    assert_eq!(record["stdinBytes"], 3);
    assert_eq!(record["stdinSha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert!(record["env"].as_object().is_some_and(|env| !env.is_empty()));
}

#[test]
fn output_can_be_anything() {
    let script = json!({"steps": [
        {"print": {"text": "a", "lines": ["b", "c"], "base64": "/wA=", "repeat": {"bytes": 100_001, "text": "xyz"}}},
        {"print": {"text": "e", "to": "stderr", "piece": 1}},
        {"repeat": {"times": 2, "steps": [{"event": {"n": 1}}]}},
        {"exit": 7},
        {"print": {"text": "never"}},
    ]});
    let done = run(&script, &[], "");
    assert_eq!(done.exit, Ok(7));
    assert!(done.stdout.starts_with(b"ab\nc\n\xff\0xyzxyz"));
    assert!(done.stdout.ends_with(b"{\"n\":1}\n{\"n\":1}\n"));
    assert_eq!(done.stdout.len(), 7 + 100_001 + 16);
    assert_eq!(done.stderr, "e");
}

#[test]
fn probes_are_answered_from_the_script() {
    let script = json!({"version": "codex-cli 9.9.9", "auth": {"stderr": "Not logged in\n", "exit": 1}});
    assert_eq!(run(&script, &["--version"], "").stdout, b"codex-cli 9.9.9\n");
    let done = run(&script, &["login", "status"], "");
    assert_eq!((done.exit, done.stderr.as_str()), (Ok(1), "Not logged in\n"));
    assert!(run(&json!({}), &["auth", "status"], "").stdout.starts_with(b"{\"loggedIn\":true"));
}

#[test]
fn two_starts_in_short_order_can_be_punished() {
    let folder = tempfile::tempdir().unwrap();
    let script = json!({"steps": [
        {"not_within": {"file": path(folder.path(), "last"), "ms": 60_000, "otherwise": [{"print": {"text": "Not logged in"}}, {"exit": 1}]}},
        {"answer": {}},
    ]});
    assert_eq!(run(&script, &[], "x").exit, Ok(0));
    let second = run(&script, &[], "x");
    assert_eq!((second.exit, second.stdout.as_slice()), (Ok(1), &b"Not logged in"[..]));
}

#[test]
fn standard_input_can_be_left_unread() {
    let script = json!({"stdin": {"bytes": 2}, "steps": [{"print": {"text": "{prompt}"}}]});
    assert_eq!(run(&script, &[], "abcdef").stdout, b"ab");
    let script = json!({"stdin": "none", "steps": [{"print": {"text": "<{prompt}>"}}]});
    assert_eq!(run(&script, &[], "abcdef").stdout, b"<>");
}

#[test]
fn a_script_with_an_unknown_word_is_refused() {
    for script in [
        "{\"stepz\": []}",
        "{\"steps\": [{\"prnt\": {}}]}",
        "{\"steps\": [{\"print\": {\"txt\": \"\"}}]}",
        "{\"rules\": [{\"when\": {\"contain\": \"x\"}, \"steps\": []}]}",
    ] {
        assert!(serde_json::from_str::<Script>(script).is_err(), "{script}");
    }
    let error = run(&json!({"rules": [{"when": {"run": 1}, "steps": []}]}), &[], "").exit.unwrap_err();
    assert!(error.contains("counter"));
}

#[test]
fn own_options_end_where_the_imitated_ones_begin() {
    let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    let parsed = Invocation::parse(words("mock-agent --script a.json -- --script b.json -p")).unwrap();
    assert_eq!(parsed.script.as_deref(), Some(Path::new("a.json")));
    assert_eq!(parsed.argv, ["--script", "b.json", "-p"]);
    let parsed = Invocation::parse(words("--script a.json --sandbox full-access --anything x")).unwrap();
    assert_eq!(parsed.sandbox().as_str(), "full-access");
    assert!(Invocation::parse(words("--script")).is_err());
}
