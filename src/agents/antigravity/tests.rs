//! Arguments by version, authority and mode, and what a stream proves. Whole runs are in tests/agy.rs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::tests::{ID, exit, feed, refused_flag, request, settings};
use super::*;
use crate::agents::{Outcome, ServerRule, Verdict};

fn launch(version: &str, change: impl FnOnce(&mut LaunchRequest<'_>)) -> Result<Launch, AgentError> {
    let settings = settings("agy");
    let mut request = request(&settings);
    request.cli_version = Some(version);
    request.prompt = "hi";
    change(&mut request);
    Antigravity.launch(&request)
}

fn args(version: &str, change: impl FnOnce(&mut LaunchRequest<'_>)) -> Vec<String> {
    launch(version, change).unwrap().args
}

#[test]
fn a_fresh_turn_has_every_value_glued_on_and_the_prompt_last() {
    let args = args("1.3.3", |request| request.model = Some("gemini-3-pro"));
    let run = |name: &str| Path::new("/state/runs/1").join(name).display().to_string();
    assert_eq!(
        args,
        [
            "--output-format=stream-json".to_owned(),
            "--print-timeout=660s".into(),
            format!("--log-file={}", run("cli.log")),
            "--add-dir=/project".into(),
            "--input-format=stream-json".into(),
            format!("--gemini_dir={}", run("agy")),
            "--mode=plan".into(),
            "--model=gemini-3-pro".into(),
            "-p=".into(),
        ]
    );
}

#[test]
fn the_granted_authority_and_mode_decide_the_flags_and_nothing_raises_them() {
    use ExecutionMode::{Safe, Trusted};
    for (sandbox, mode, expected) in [
        (Sandbox::ReadOnly, None, "--mode=plan"),
        (Sandbox::ReadOnly, Some(Safe), "--mode=plan --sandbox"),
        (Sandbox::WorkspaceWrite, None, "--mode=accept-edits"),
        (Sandbox::WorkspaceWrite, Some(Safe), "--mode=accept-edits --sandbox"),
        (Sandbox::FullAccess, Some(Safe), "--mode=accept-edits --sandbox"),
        (Sandbox::FullAccess, None, "--dangerously-skip-permissions"),
        (Sandbox::FullAccess, Some(Trusted), "--dangerously-skip-permissions"),
    ] {
        for resume in [None, Some(ID)] {
            let args = args("1.2.6", |request| {
                (request.sandbox, request.execution_mode, request.resume) = (sandbox, mode, resume);
            });
            let given: Vec<&str> = args
                .iter()
                .map(String::as_str)
                .filter(|arg| ["--mode=", "--sandbox", "--danger"].iter().any(|start| arg.starts_with(start)))
                .collect();
            assert_eq!(given.join(" "), expected, "{sandbox} {mode:?}");
            assert_eq!(args.contains(&format!("--conversation={ID}")), resume.is_some());
        }
    }
}

#[test]
fn effort_and_agent_are_told_where_they_are_heeded() {
    let settings = settings("agy");
    for (version, told) in [("1.1.9", false), ("1.1.10", true), ("1.3.3", true)] {
        let mut request = request(&settings);
        (request.cli_version, request.effort, request.own_agent) =
            (Some(version), Some("low"), Some("reviewer"));
        let launch = Antigravity.launch(&request).unwrap();
        assert_eq!(launch.args.contains(&"--effort=low".to_owned()), told, "{version}");
        assert_eq!(launch.facts.contains_key("effort"), told, "{version}");
        assert!(launch.args.contains(&"--agent=reviewer".to_owned()));
        assert_eq!(launch.facts["ownAgent"], "reviewer");
        let prompt = launch.args.iter().position(|arg| arg.starts_with("-p"));
        assert!(prompt.is_none_or(|at| at + 1 == launch.args.len()), "the prompt is last: {:?}", launch.args);
    }
}

#[test]
fn a_schema_is_given_inline() {
    let schema = json!({ "type": "object", "properties": {} });
    let settings = settings("agy");
    let mut request = request(&settings);
    (request.cli_version, request.report_schema) = (Some("1.2.14"), Some(&schema));
    let args = Antigravity.launch(&request).unwrap().args;
    assert!(args.contains(&format!("--json-schema={schema}")), "{args:?}");
}

#[test]
fn what_cannot_be_given_is_refused() {
    let refused = |version, change: fn(&mut LaunchRequest<'_>)| launch(version, change).unwrap_err();
    assert!(matches!(refused("1.1.7", |_| {}), AgentError::VersionUnsupported { .. }));
    assert!(matches!(refused("1.3.3", |r| r.prompt = "\n /goal x"), AgentError::PromptIsCommand { .. }));
    assert!(matches!(refused("1.3.3", |r| r.resume = Some("--sandbox")), AgentError::ResumeIdRefused { .. }));
    let long = "x".repeat(ARGUMENT_BYTES + 1);
    let settings = settings("agy");
    let mut request = request(&settings);
    (request.cli_version, request.prompt) = (Some("1.1.13"), &long);
    assert!(matches!(Antigravity.launch(&request), Err(AgentError::PromptTooLong { .. })));
    request.cli_version = Some("1.1.14");
    assert_eq!(Antigravity.launch(&request).unwrap().prompt, PromptWay::UserLine { key: "type".into() });
    for (prompt, version) in [("/usr/bin/x", "1.3.3"), ("/goal x", "1.1.8"), ("what is /goal?", "1.3.3")] {
        launch(version, |request| request.prompt = prompt).unwrap();
    }
}

#[test]
fn what_is_not_known_is_remarked_upon() {
    let untested = |version| launch(version, |_| {}).unwrap().facts.contains_key("cliVersionUntested");
    assert!(!untested("1.3.5") && untested("1.3.6") && untested("2.0.0") && untested("nightly"));
}

#[test]
fn extra_arguments_are_read_as_the_program_reads_them() {
    for (args, flag) in [
        (&["-dangerously-skip-permissions"][..], "--dangerously-skip-permissions"),
        (&["--dangerously-skip-permissions=true"], "--dangerously-skip-permissions"),
        (&["-mode=accept-edits"], "--mode"),
        (&["--effort", "high", "-sandbox=false"], "--sandbox"),
        (&["-gemini_dir", "/x"], "--gemini_dir"),
        (&["-p=x"], "--p"),
        (&["-c"], "--c"),
        (&["--yolo"], "--yolo"),
        (&["-new=1"], "--new"),
        (&["x"], "x"),
        (&["--"], "--"),
    ] {
        let mut settings = settings("agy");
        settings.extra_args = args.iter().map(|arg| (*arg).to_owned()).collect();
        assert_eq!(refused_flag(Antigravity.launch(&request(&settings))), flag, "{args:?}");
    }
}

#[test]
fn ids_of_conversations_are_names_and_never_flags() {
    for id in [ID, "conv_0123456789", "c0ffee00"] {
        assert!(Antigravity.accepts_native_id(id), "{id}");
    }
    for id in ["", "short", "--sandbox", "-c000000000", "../../etc/passwd", "a b c d e f", &"x".repeat(65)] {
        assert!(!Antigravity.accepts_native_id(id), "{id}");
    }
}

/// The verdict over a stream of a run that was granted `sandbox`.
fn verdict_of(sandbox: Sandbox, resume: Option<&str>, lines: &[Value], code: i64) -> Verdict {
    let mut parser = Antigravity.parser(resume);
    parser.authority(sandbox);
    parser.servers(ServerRule::None);
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    feed(parser.as_mut(), text.join("\n").as_bytes());
    parser.finish(&exit(code))
}

fn result(more: Value) -> Value {
    let mut result = json!({ "conversation_id": ID, "status": "SUCCESS", "response": "Done." });
    result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "event": "result", "result": result })
}

#[test]
fn a_structured_answer_counts_only_as_an_object() {
    for (output, found) in
        [(json!({ "summary": "x" }), None), (json!("x"), Some("a string")), (Value::Null, Some("nothing"))]
    {
        let mut parser = Antigravity.parser(None);
        parser.expects_report();
        parser.line(result(json!({ "structured_output": output })).to_string().as_bytes());
        let verdict = parser.finish(&exit(0));
        assert_eq!(verdict.outcome, Outcome::Success);
        assert_eq!(verdict.meta["structuredOutputFound"].as_str(), found);
        assert_eq!(verdict.meta["structuredOutput"].is_object(), found.is_none());
    }
}

#[test]
fn what_a_step_does_is_shown() {
    let step = |name: &str, parameters: Value| {
        json!({ "event": "step_update", "step_update": {
            "step_type": "tool", "state": "ACTIVE", "tool_name": name, "tool_info": { "parameters": parameters },
        } })
    };
    let mut parser = Antigravity.parser(None);
    let mut shown = |event: Value| parser.line(event.to_string().as_bytes()).map(|activity| activity.line);
    assert_eq!(
        shown(step("run_command", json!({ "command": "cargo\ntest" }))).as_deref(),
        Some("run_command: cargo test")
    );
    assert_eq!(shown(step("checkpoint", json!({}))).as_deref(), Some("checkpoint"));
    assert_eq!(shown(json!({ "event": "init", "conversation_id": ID })), None);
}

#[test]
fn an_id_that_could_not_be_resumed_is_no_id() {
    let verdict =
        verdict_of(Sandbox::ReadOnly, None, &[result(json!({ "conversation_id": "--sandbox" }))], 0);
    assert_eq!((verdict.outcome, verdict.native_id), (Outcome::Success, None));
}

#[test]
fn servers_that_were_not_given_end_the_run() {
    let init = json!({ "event": "init", "conversation_id": ID, "init": { "tools": ["view_file", "mcp(mine/delete)"] } });
    let verdict = verdict_of(Sandbox::ReadOnly, None, &[init, result(json!({}))], 0);
    assert_eq!(verdict.meta["workerTools"], "foreign");
}

#[test]
fn output_of_any_length_is_kept_within_a_bound() {
    let mut parser = Antigravity.parser(None);
    let noise = "x".repeat(1 << 20);
    for _ in 0..64 {
        parser.line(noise.as_bytes());
    }
    let verdict = parser.finish(&exit(0));
    assert_eq!(verdict.meta["failure"], "invalid-json");
    assert!(verdict.answer.len() < 2 << 20, "{}", verdict.answer.len());
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let whole = [
        "{\"event\":\"init\",\"conversation_id\":\"0199a213-81c0-7800-8aa1-bbab2a035a53\",\"init\":{\"tools\":[\"mcp(x/y)\"]}}",
        "{\"event\":\"step_update\",\"step_update\":{\"step_type\":\"agent_response\",\"text_delta\":\"a\\nb\"}}",
        "{\"event\":\"step_update\",\"step_update\":{\"step_type\":\"tool\",\"tool_name\":\"x\",\"state\":\"DONE\"}}",
        "{\"event\":\"result\",\"result\":{\"status\":\"SUCCESS\",\"response\":\"ok\",\"denied_actions\":[{\"action\":\"c\"}]}}",
        "{\"event\":\"result\",\"result\":{\"status\":\"SUCCESS\",\"response\":\"ok\",\"structured_output\":{\"a\":1}}}",
        "{\n  \"status\": \"ERROR\",\n  \"response\": \"\",\n  \"error\": {\"message\": \"quota\"}\n}",
        "{\"event\":\"result\",\"result\":{\"status\":7,\"usage\":{\"input_tokens\":-1}}}",
        "Authentication required. Please visit the URL to log in:",
        "{\"event\":",
        "\"}}",
        "",
    ];
    let piece =
        (prop::sample::select(whole.to_vec()), 0..200_usize, any::<bool>()).prop_map(|(text, cut, raw)| {
            let text = if raw { text.replace("\\n", "\n") } else { text.to_owned() };
            let cut = text.floor_char_boundary(if cut > 100 { text.len() } else { cut.min(text.len()) });
            text.as_bytes()[..cut].to_vec()
        });
    (prop::collection::vec(piece, 0..8), any::<bool>())
        .prop_map(|(pieces, joined)| pieces.join(if joined { &b""[..] } else { &b"\n"[..] }))
}

proptest! {
    #[test]
    fn no_stream_makes_it_panic_and_no_failure_looks_like_success(
        output in pieces(), stderr in pieces(), code in -1_i64..4, resumed: bool, writes: bool, log in "\\PC{0,20}",
    ) {
        let mut parser = Antigravity.parser(resumed.then_some(ID));
        parser.authority(if writes { Sandbox::WorkspaceWrite } else { Sandbox::ReadOnly });
        feed(parser.as_mut(), &output);
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        for line in stderr.lines() {
            parser.error_line(line.as_bytes());
        }
        let ended = RunEnd {
            exit_code: (code >= 0).then_some(code), stderr_tail: &stderr, log_tail: &log, ..RunEnd::default()
        };
        let told = parser.fatal().is_some();
        let verdict = parser.finish(&ended);
        if verdict.outcome == Outcome::Success {
            prop_assert!(code == 0 && !told && !verdict.answer.trim().is_empty());
            prop_assert!(!(writes && verdict.meta["permissionDenials"].is_u64()));
        } else {
            prop_assert!(verdict.detail.is_some_and(|detail| !detail.contains('\n')));
        }
        prop_assert!(verdict.native_id.is_none_or(|id| Antigravity.accepts_native_id(&id)));
    }
}
