//! Recorded output, and everything that is not a clean stream.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::super::super::tests::{ID, exit, feed, verdict};
use super::*;
use crate::agents::{Agent, Outcome, Refusal, UsageReport};
use crate::policy::AgentId;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::PathBuf;

use Outcome::{Empty, FormatUnrecognised, LoginRequired, Quota, Success, TurnLimit, WorkerError};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/streams/gemini")
}

fn recorded(name: &str) -> Option<Vec<u8>> {
    std::fs::read(folder().join(name)).ok()
}

fn gemini(output: &str, end: &RunEnd<'_>) -> Verdict {
    verdict(AgentId::Gemini, output.as_bytes(), end)
}

/// Recorded run, exit code, outcome, start of the answer, cause.
const RECORDED: &[(&str, i64, Outcome, &str, Option<Failure>)] = &[
    ("base-url-without-selected-type.stderr.txt", 41, LoginRequired, "", None),
    ("err-drop.jsonl", 1, WorkerError, "partial t", Some(Failure::StreamError)),
    ("err-e400.jsonl", 144, WorkerError, "", None),
    ("err-e400key.jsonl", 144, LoginRequired, "", None),
    ("err-e401.jsonl", 145, LoginRequired, "", None),
    ("err-e403-json.stderr.txt", 147, WorkerError, "", Some(Failure::PermissionDenied)),
    ("err-e403-text.stderr.txt", 1, WorkerError, "", Some(Failure::PermissionDenied)),
    ("err-e403.jsonl", 147, WorkerError, "", Some(Failure::PermissionDenied)),
    ("err-e404.jsonl", 1, WorkerError, "", Some(Failure::ModelUnavailable)),
    ("err-e429day.jsonl", 173, Quota, "", Some(Failure::Quota)),
    ("err-flaky.jsonl", 0, Success, "worked at the second try", None),
    ("err-maxtok.jsonl", 0, Success, "cut off he", None),
    ("err-safety.jsonl", 0, WorkerError, "", Some(Failure::ContentFiltered)),
    ("hello-auto-model.jsonl", 0, Success, "Hello from the mock model.", None),
    ("hello-json.json", 0, FormatUnrecognised, "{", None),
    ("hello-text.txt", 0, FormatUnrecognised, "Hello from the mock model.", None),
    ("hello.jsonl", 0, Success, "Hello from the mock model.", None),
    ("mcp-echo.jsonl", 0, Success, "done echo", None),
    ("mcp-elicit.jsonl", 0, Success, "done elicit", None),
    ("mcp-iserror.jsonl", 0, Success, "done fail", None),
    ("mcp-rpc-error.jsonl", 0, Success, "done rpc_error", None),
    ("mcp-structured.jsonl", 0, Success, "done struct", None),
    ("not-logged-in-json.stderr.txt", 41, LoginRequired, "", None),
    ("not-logged-in-stream.stderr.txt", 41, LoginRequired, "", None),
    ("not-trusted.stderr.txt", 55, WorkerError, "", None),
    ("resume-1.jsonl", 0, Success, "Hello from the mock model.", None),
    ("resume-2.jsonl", 0, Success, "Answer after thinking.", None),
    ("resume-unknown.stderr.txt", 42, WorkerError, "", Some(Failure::ConversationLost)),
    ("session-id-again.stderr.txt", 42, WorkerError, "", None),
    ("tool-read-outside.jsonl", 0, Success, "done read-outside", None),
    ("tool-read.jsonl", 0, Success, "done read", None),
    ("tool-shell-default.jsonl", 0, Success, "Ran it.", None),
    ("tool-shell-fails-yolo.jsonl", 0, Success, "Failed with 3.", None),
    ("tool-shell-yolo.jsonl", 0, Success, "Ran it.", None),
    ("tool-write-auto-edit.jsonl", 0, Success, "done write", None),
    ("tool-write-default.jsonl", 0, Success, "done write", None),
    ("tool-write-outside-yolo.jsonl", 0, Success, "done write-outside", None),
    ("tool-write-plan.jsonl", 0, Success, "done write", None),
];

fn run(file: &str, code: i64) -> Verdict {
    let stem = file.split('.').next().unwrap();
    let stdout = if file.ends_with(".stderr.txt") { Vec::new() } else { recorded(file).unwrap() };
    let stderr = String::from_utf8(recorded(&format!("{stem}.stderr.txt")).unwrap_or_default()).unwrap();
    let end = RunEnd { exit_code: Some(code), stderr_tail: &stderr, ..RunEnd::default() };
    verdict(AgentId::Gemini, &stdout, &end)
}

#[test]
fn every_recorded_run_is_judged_as_listed() {
    for (file, code, outcome, answer, cause) in RECORDED {
        let verdict = run(file, *code);
        assert_eq!(verdict.outcome, *outcome, "{file}: {verdict:?}");
        assert!(verdict.answer.starts_with(answer), "{file}: {}", verdict.answer);
        assert_eq!(verdict.detail.is_some(), *outcome != Success, "{file}");
        assert_eq!(Failure::of(&verdict), *cause, "{file}: {verdict:?}");
        if *outcome == Success {
            assert!(matches!(verdict.usage.tokens, Some(Metered::Run(_))), "{file}");
            assert_eq!(verdict.usage.cost_usd, None, "{file}");
            assert!(verdict.native_id.is_some(), "{file}");
        }
    }
}

#[test]
fn no_recorded_run_is_left_out_of_the_list() {
    let stem = |name: &str| name.split('.').next().unwrap().to_owned();
    let names: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| stem(entry.unwrap().file_name().to_str().unwrap()))
        .filter(|name| name != "version")
        .collect();
    let listed: BTreeSet<String> = RECORDED.iter().map(|(name, ..)| stem(name)).collect();
    assert_eq!(names, listed);
}

#[test]
fn the_facts_of_recorded_runs_are_kept() {
    for file in ["tool-shell-default.jsonl", "tool-write-plan.jsonl", "tool-write-outside-yolo.jsonl"] {
        assert_eq!(run(file, 0).meta["permissionDenials"], json!(1), "{file}");
    }
    assert_eq!(run("mcp-iserror.jsonl", 0).meta, json!({}));
    assert_eq!(run("resume-unknown.stderr.txt", 42).meta["resumeUnknown"], json!(true));
    assert_eq!(run("hello.jsonl", 0).native_id.as_deref(), Some("00000001-0000-4000-8000-000000000001"));
    let tokens = Tokens { input: 1234, cached_input: 1000, output: 21, reasoning: 0 };
    assert_eq!(
        run("hello.jsonl", 0).usage,
        UsageReport { tokens: Some(Metered::Run(tokens)), cost_usd: None }
    );
    assert_eq!(run("err-e401.jsonl", 145).usage, UsageReport::default(), "nothing was answered");
}

#[test]
fn details_say_what_the_provider_said() {
    let detail = |file, code| run(file, code).detail.unwrap();
    assert_eq!(detail("err-e400.jsonl", 144), "API error: bad request from mock");
    assert_eq!(detail("err-safety.jsonl", 0), "The model response was blocked due to safety settings.");
    assert!(detail("not-trusted.stderr.txt", 55).contains("not running in a trusted directory"));
    assert!(detail("not-logged-in-stream.stderr.txt", 41).starts_with("Please set an Auth method"));
}

const START: &str = r#"{"type":"init","session_id":"01a22da4-c4d5-7380-a8a6-b574a17c03d0","model":"m"}"#;
const DONE: &str = r#"{"type":"result","status":"success","stats":{}}"#;

fn says(text: &str) -> String {
    json!({ "type": "message", "role": "assistant", "content": text, "delta": true }).to_string()
}

fn stream(lines: &[&str]) -> String {
    lines.join("\n")
}

#[test]
fn the_answer_is_what_was_said_after_the_last_call() {
    let call =
        r#"{"type":"tool_use","tool_name":"read_file","tool_id":"1","parameters":{"file_path":"a.rs"}}"#;
    let (first, last) = (says("I will look."), says(" It is fine."));
    let verdict = gemini(&stream(&[START, &first, call, &last, DONE]), &exit(0));
    assert_eq!((verdict.outcome, verdict.answer.as_str()), (Success, "It is fine."));
    // A call after the last words leaves them the answer.
    let verdict = gemini(&stream(&[START, &first, call, &last, call, call, DONE]), &exit(0));
    assert_eq!(verdict.answer, "It is fine.");
    let verdict = gemini(&stream(&[START, call, DONE]), &exit(0));
    assert_eq!((verdict.outcome, verdict.answer.as_str()), (Empty, ""));
    let whole = json!({ "type": "message", "role": "assistant", "content": "Whole." }).to_string();
    assert_eq!(gemini(&stream(&[START, &says("Wh"), &whole, DONE]), &exit(0)).answer, "Whole.");
}

#[test]
fn success_needs_the_closing_event_and_the_exit_code() {
    let answer = says("Fine.");
    let remark = RunEnd { stderr_tail: "Warning: Basic terminal detected (TERM=dumb). …\n", ..exit(0) };
    let cut = gemini(&stream(&[START, &answer]), &remark);
    assert!(cut.detail.as_deref().unwrap().starts_with("the event stream ended"), "{cut:?}");
    assert_eq!((cut.outcome, cut.answer.as_str()), (WorkerError, "Fine."));
    let failed = gemini(&stream(&[START, &answer, DONE]), &exit(1));
    assert_eq!(failed.outcome, WorkerError);
    let killed = RunEnd { signal: Some(15), ..RunEnd::default() };
    assert_eq!(gemini(&stream(&[START, &answer, DONE]), &killed).outcome, WorkerError);
}

#[test]
fn an_exit_code_stands_for_a_status_where_the_words_say_nothing() {
    let failed = r#"{"type":"result","status":"error","error":{"type":"unknown","message":"no"},"stats":{}}"#;
    for (code, outcome, cause) in [
        (145, LoginRequired, None),
        (401, LoginRequired, None),
        (147, WorkerError, Some(Failure::PermissionDenied)),
        (173, Quota, Some(Failure::Quota)),
        (429, Quota, Some(Failure::Quota)),
        (244, WorkerError, None),
        (41, LoginRequired, None),
        (53, TurnLimit, None),
        (1, WorkerError, None),
    ] {
        let verdict = gemini(&stream(&[START, failed]), &exit(code));
        assert_eq!((verdict.outcome, Failure::of(&verdict)), (outcome, cause), "{code}");
    }
}

#[test]
fn rules_that_are_not_used_end_the_run() {
    let mut parser = super::super::Gemini.parser(None);
    parser.error_line(b"Ripgrep is not available. Falling back to GrepTool.");
    assert_eq!(parser.fatal(), None);
    parser.error_line(b"[WARNING] Security Warning: Ignoring --admin-policy because system policies are already defined in /etc/gemini-cli/policies");
    assert!(parser.fatal().is_some());
    feed(parser.as_mut(), stream(&[START, &says("Done."), DONE]).as_bytes());
    let verdict = parser.finish(&exit(0));
    assert_eq!(verdict.outcome, WorkerError);
    assert!(verdict.detail.unwrap().contains("rules of this run are not used"));
}

#[test]
fn a_tool_of_anothers_server_that_is_used_ends_the_run() {
    const DONE_WELL: &str = r#""status":"success","output":"x""#;
    const FAILED: &str = r#""status":"error","error":{"type":"mcp_tool_error","message":"no"}"#;
    const NOT_THERE: &str = r#""status":"error","error":{"type":"tool_not_registered","message":"no"}"#;
    let refusal = |rule, name: &str, result: &str| {
        let mut parser = super::super::Gemini.parser(None);
        parser.servers(rule);
        parser.endpoint_asked();
        let call = format!(r#"{{"type":"tool_use","tool_name":"{name}","tool_id":"7","parameters":{{}}}}"#);
        let result = format!(r#"{{"type":"tool_result","tool_id":"7",{result}}}"#);
        feed(parser.as_mut(), stream(&[START, &call]).as_bytes());
        assert_eq!(parser.fatal(), None, "it is not known whether there is such a tool");
        feed(parser.as_mut(), result.as_bytes());
        let is_fatal = parser.fatal().is_some();
        feed(parser.as_mut(), stream(&[&says("Done."), DONE]).as_bytes());
        let refusal = Refusal::of(&parser.finish(&exit(0)));
        assert_eq!(is_fatal, refusal.is_some());
        refusal
    };
    for (rule, name, result, expected) in [
        (ServerRule::Only, "mcp_bridge_note", DONE_WELL, None),
        (ServerRule::Only, "read_file", DONE_WELL, None),
        (ServerRule::Only, "mcp_bridgehead_note", DONE_WELL, Some(Refusal::Foreign)),
        (ServerRule::Only, "mcp_mine_note", FAILED, Some(Refusal::Foreign)),
        (ServerRule::Only, "mcp_mine_note", NOT_THERE, None),
        (ServerRule::None, "mcp_bridge_note", DONE_WELL, Some(Refusal::Foreign)),
        (ServerRule::None, "mcp_bridge_note", NOT_THERE, None),
        (ServerRule::Any, "mcp_mine_note", DONE_WELL, None),
    ] {
        assert_eq!(refusal(rule, name, result), expected, "{rule:?} {name} {result}");
    }
}

#[test]
fn an_endpoint_that_was_not_asked_for_its_tools_is_missing() {
    let refusal = |asked, lines: &[&str], stderr_tail| {
        let mut parser = super::super::Gemini.parser(None);
        parser.servers(ServerRule::Only);
        feed(parser.as_mut(), START.as_bytes());
        assert_eq!(parser.fatal(), None, "it may still be asked");
        if asked {
            parser.endpoint_asked();
        }
        feed(parser.as_mut(), lines.join("\n").as_bytes());
        Refusal::of(&parser.finish(&RunEnd { stderr_tail, ..exit(0) }))
    };
    let done = says("Done.");
    assert_eq!(refusal(true, &[&done, DONE], ""), None);
    assert_eq!(refusal(false, &[&done, DONE], ""), Some(Refusal::Missing));
    assert_eq!(refusal(false, &[DONE], ""), Some(Refusal::Missing));
    assert_eq!(refusal(true, &[&done, DONE], "MCP issues detected. Run /mcp list."), Some(Refusal::Missing));
    let failed = r#"{"type":"result","status":"error","error":{"message":"no"},"stats":{}}"#;
    assert_eq!(refusal(false, &[failed], ""), None, "nothing was done");
}

#[test]
fn another_conversation_than_the_one_asked_for_is_told() {
    let mut parser = super::super::Gemini.parser(Some("00000001-0000-4000-8000-000000000001"));
    feed(parser.as_mut(), stream(&[START, &says("Fine."), DONE]).as_bytes());
    let verdict = parser.finish(&exit(0));
    assert_eq!(verdict.meta["resumeMismatch"], json!(true));
    assert_eq!(verdict.native_id.as_deref(), Some(ID));
}

#[test]
fn waiting_for_a_login_ends_the_run() {
    let mut parser = super::super::Gemini.parser(None);
    parser.error_line(b"Opening authentication page in your browser. Do you want to continue?");
    assert!(parser.fatal().is_some());
    assert_eq!(parser.finish(&exit(1)).outcome, LoginRequired);
}

#[test]
fn what_it_does_is_shown() {
    let mut parser = super::super::Gemini.parser(None);
    let lines = feed(parser.as_mut(), &recorded("tool-write-auto-edit.jsonl").unwrap());
    assert_eq!(lines, ["write_file: /home/user/project/written.txt"]);
}

#[test]
fn thoughts_are_counted_in_the_total_alone() {
    let stats = json!({ "total_tokens": 1255, "input_tokens": 1234, "output_tokens": 16, "cached": 1000 });
    assert_eq!(
        run_tokens(&stats),
        Some(Tokens { input: 1234, cached_input: 1000, output: 21, reasoning: 5 })
    );
    assert_eq!(run_tokens(&json!({ "total_tokens": 1 })), None);
}

proptest! {
    #[test]
    fn no_stream_makes_it_panic(lines in prop::collection::vec(prop_oneof![
        Just(START.to_owned()), Just(DONE.to_owned()),
        "\\PC{0,20}".prop_map(|text| says(&text)),
        "(tool_use|tool_result|error|result|message)".prop_map(|kind| format!("{{\"type\":\"{kind}\",\"error\":{{\"message\":\"[API Error: {{\\\"error\\\":7}}]\"}}}}")),
        "\\PC{0,30}",
    ], 0..8), code in 0_i64..300) {
        let verdict = gemini(&lines.join("\n"), &exit(code));
        prop_assert!(verdict.outcome != Success || code == 0);
    }
}
