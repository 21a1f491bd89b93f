//! Recorded output, its other forms, and everything that is not a clean stream.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::super::super::tests::{ID, exit, feed, verdict};
use super::*;
use crate::agents::{Agent, Outcome, UsageReport};
use crate::policy::AgentId;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::PathBuf;

use Outcome::{Empty, FormatUnrecognised, LoginRequired, Quota, Success, TurnLimit, WorkerError};

fn recorded(name: &str) -> Option<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/streams/claude");
    std::fs::read(folder.join(name)).ok()
}

fn claude(output: &str, end: &RunEnd<'_>) -> Verdict {
    verdict(AgentId::Claude, output.as_bytes(), end)
}

/// Recorded run, exit code, outcome, start of the answer.
const RECORDED: &[(&str, i64, Outcome, &str)] = &[
    ("bad-flag.stderr.txt", 1, WorkerError, ""),
    ("bash-denied.jsonl", 0, Success, "done bash-write"),
    ("bash-ok.jsonl", 0, Success, "Ran it."),
    ("bash-tool-removed.jsonl", 0, Success, "done ls"),
    ("bypass-as-root.stderr.txt", 1, WorkerError, ""),
    ("edit-accept-edits.jsonl", 0, Success, "done edit"),
    ("err-api-timeout.jsonl", 1, WorkerError, "Request timed out."),
    ("err-context.jsonl", 1, TurnLimit, "Prompt is too long"),
    ("err-credit.jsonl", 1, Quota, "Credit balance is too low"),
    ("err-e400.jsonl", 1, WorkerError, "API Error: 400"),
    ("err-e401-json.json", 1, LoginRequired, "Invalid API key"),
    ("err-e401-text.txt", 1, LoginRequired, "Invalid API key"),
    ("err-e401.jsonl", 1, LoginRequired, "Invalid API key"),
    ("err-e403.jsonl", 1, LoginRequired, "Failed to authenticate."),
    ("err-e404.jsonl", 1, WorkerError, "There's an issue with the selected model"),
    ("err-e429.jsonl", 1, Quota, "API Error: Request rejected (429)"),
    ("err-e500.jsonl", 1, WorkerError, "API Error: 500"),
    ("err-e529.jsonl", 1, WorkerError, "API Error: 529"),
    ("err-flaky.jsonl", 0, Success, "worked at the second try"),
    ("err-maxtok.jsonl", 1, TurnLimit, "API Error: Claude's response exceeded"),
    ("err-refuse.jsonl", 1, WorkerError, "API Error: Opus"),
    ("err-refused.jsonl", 1, WorkerError, "API Error: Connection refused"),
    ("hello-json.json", 0, Success, "Hello from the mock model."),
    ("hello-partial.jsonl", 0, Success, "Hello from the mock model."),
    ("hello-text.txt", 0, FormatUnrecognised, "Hello from the mock model."),
    ("hello.jsonl", 0, Success, "Hello from the mock model."),
    ("json-schema.jsonl", 0, Success, "{\"answer\":42}"),
    ("max-budget.jsonl", 1, TurnLimit, ""),
    ("max-turns.jsonl", 1, TurnLimit, ""),
    ("mcp-big-lines.jsonl", 0, Success, "done big"),
    ("mcp-echo.jsonl", 0, Success, "done echo"),
    ("mcp-elicit.jsonl", 0, Success, "done elicit"),
    ("mcp-iserror.jsonl", 0, Success, "done fail"),
    ("mcp-not-allowed.jsonl", 0, Success, "done echo"),
    ("mcp-rpc-error.jsonl", 0, Success, "done rpc_error"),
    ("mcp-server-exits.jsonl", 0, Success, "done exit"),
    ("mcp-server-missing.jsonl", 0, Success, "Hello from the mock model."),
    ("mcp-structured.jsonl", 0, Success, "done structured"),
    ("mcp-timeout.jsonl", 0, Success, "done slow"),
    ("no-prompt.stderr.txt", 1, WorkerError, ""),
    ("not-logged-in-json.json", 1, LoginRequired, "Not logged in"),
    ("not-logged-in-text.txt", 1, LoginRequired, "Not logged in"),
    ("not-logged-in.jsonl", 1, LoginRequired, "Not logged in"),
    ("read-outside-denied.jsonl", 0, Success, "done read-outside"),
    ("resume-1.jsonl", 0, Success, "Hello from the mock model."),
    ("resume-2.jsonl", 0, Success, "Answer after thinking."),
    ("resume-not-a-uuid.jsonl", 1, WorkerError, ""),
    ("resume-unknown.jsonl", 1, WorkerError, ""),
    ("session-id-in-use.stderr.txt", 1, WorkerError, ""),
    ("session-id.jsonl", 0, Success, "Hello from the mock model."),
    ("sigint-in-tool.jsonl", 0, WorkerError, ""),
    ("sigterm-in-tool.jsonl", 143, WorkerError, ""),
    ("stream-json-needs-verbose.stderr.txt", 1, WorkerError, ""),
    ("thinking.jsonl", 0, Success, "Answer after thinking."),
    ("unknown-model.jsonl", 0, Success, "Hello from the mock model."),
    ("unknown-tool.jsonl", 0, Success, "done unknown"),
    ("variadic-flag-eats-prompt.stderr.txt", 1, WorkerError, ""),
    ("write-accept-edits.jsonl", 0, Success, "done write"),
    ("write-denied.jsonl", 0, Success, "done write"),
    ("write-outside-accept-edits.jsonl", 0, Success, "done write-outside"),
    ("write-plan-mode.jsonl", 0, Success, "done write"),
];

fn run(file: &str, code: i64) -> Verdict {
    let stem = file.split('.').next().unwrap();
    let stdout = if file.ends_with(".stderr.txt") { Vec::new() } else { recorded(file).unwrap() };
    let stderr = String::from_utf8(recorded(&format!("{stem}.stderr.txt")).unwrap_or_default()).unwrap();
    let end = RunEnd { exit_code: Some(code), stderr_tail: &stderr, ..RunEnd::default() };
    verdict(AgentId::Claude, &stdout, &end)
}

#[test]
fn every_recorded_run_is_judged_as_listed() {
    for (file, code, outcome, answer) in RECORDED {
        let verdict = run(file, *code);
        assert_eq!(verdict.outcome, *outcome, "{file}: {verdict:?}");
        assert!(verdict.answer.starts_with(answer), "{file}: {}", verdict.answer);
        assert_eq!(verdict.detail.is_some(), *outcome != Success, "{file}");
        if *outcome == Success {
            assert!(matches!(verdict.usage.tokens, Some(Metered::Run(_))), "{file}");
            assert!(matches!(verdict.usage.cost_usd, Some(Metered::Total(_))), "{file}");
            assert!(verdict.native_id.is_some(), "{file}");
            if file.ends_with(".jsonl") {
                assert_eq!(verdict.cli_version.as_deref(), Some("2.1.332"), "{file}");
            }
        }
    }
}

#[test]
fn no_recorded_run_is_left_out_of_the_list() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/streams/claude");
    let stem = |name: &str| name.split('.').next().unwrap().to_owned();
    let names: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| stem(entry.unwrap().file_name().to_str().unwrap()))
        .filter(|name| !name.starts_with("auth-status") && name != "version")
        .collect();
    let listed: BTreeSet<String> = RECORDED.iter().map(|(name, ..)| stem(name)).collect();
    assert_eq!(names, listed);
}

#[test]
fn the_facts_of_recorded_runs_are_kept() {
    let fact = |file, code, key: &str| run(file, code).meta.get(key).cloned();
    assert_eq!(fact("max-turns.jsonl", 1, "limit"), Some(json!("turns")));
    assert_eq!(fact("max-budget.jsonl", 1, "limit"), Some(json!("budget")));
    assert_eq!(fact("err-context.jsonl", 1, "limit"), Some(json!("context")));
    assert_eq!(fact("err-maxtok.jsonl", 1, "limit"), Some(json!("output-tokens")));
    assert_eq!(fact("max-turns.jsonl", 1, "numTurns"), Some(json!(3)));
    assert_eq!(fact("write-denied.jsonl", 0, "permissionDenials"), Some(json!(1)));
    assert_eq!(fact("write-denied.jsonl", 0, "deniedTools"), Some(json!(["Write"])));
    assert_eq!(fact("hello.jsonl", 0, "permissionDenials"), None);
    assert_eq!(fact("sigint-in-tool.jsonl", 0, "terminalReason"), Some(json!("aborted_tools")));
    assert_eq!(fact("err-e401.jsonl", 1, "apiErrorStatus"), Some(json!(401)));
    assert_eq!(fact("bad-flag.stderr.txt", 1, "usageError"), Some(json!(true)));
    assert!(run("max-turns.jsonl", 1).native_id.is_some());
    for file in ["resume-unknown.jsonl", "resume-not-a-uuid.jsonl"] {
        let verdict = run(file, 1);
        assert_eq!(verdict.meta["resumeUnknown"], true);
        assert_eq!(verdict.native_id, None, "{file}: an unknown session is no session");
        assert_eq!(verdict.usage, UsageReport::default(), "{file}");
    }
}

#[test]
fn an_answer_by_schema_is_a_fact() {
    assert_eq!(run("json-schema.jsonl", 0).meta["structuredOutput"], json!({ "answer": 42 }));
    assert_eq!(run("hello.jsonl", 0).meta.get("structuredOutput"), None);
}

#[test]
fn causes_are_named_where_the_output_proves_them() {
    for (file, cause) in [
        ("err-credit.jsonl", Some(Failure::Quota)),
        ("err-e429.jsonl", Some(Failure::Quota)),
        ("err-e404.jsonl", Some(Failure::ModelUnavailable)),
        ("err-refuse.jsonl", Some(Failure::ContentFiltered)),
        ("resume-unknown.jsonl", Some(Failure::ConversationLost)),
        ("err-e401.jsonl", None),
        ("err-e500.jsonl", None),
        ("max-turns.jsonl", None),
    ] {
        assert_eq!(Failure::of(&run(file, 1)), cause, "{file}");
    }
    assert_eq!(Failure::of(&run("hello.jsonl", 0)), None);
}

#[test]
fn usage_is_of_the_run_and_cost_is_the_total() {
    let verdict = run("hello.jsonl", 0);
    let expected = Tokens { input: 2234, cached_input: 1000, output: 21, reasoning: 0 };
    assert_eq!(verdict.usage.tokens, Some(Metered::Run(expected)));
    assert_eq!(verdict.usage.cost_usd, Some(Metered::Total(0.005_556)));
}

/// The same run in the four forms it can come in, after some other line or not.
fn forms(events: &[Value]) -> Vec<String> {
    let result = events.last().unwrap();
    let lines = events.iter().map(|event| format!("{event}\n")).collect::<String>();
    let array = Value::from(events.to_vec());
    let mut forms = vec![
        lines,
        format!("{result}"),
        format!("{result:#}\n"),
        format!("{array}\n"),
        format!("{array:#}"),
        format!("[\n{}\n]\n", events.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n")),
    ];
    let noisy: Vec<String> =
        forms.iter().map(|form| format!("[WARN] {{not json\nwarning: x\r\n{form}\n(node) bye\n")).collect();
    forms.extend(noisy);
    forms
}

fn events() -> Vec<Value> {
    String::from_utf8(recorded("bash-ok.jsonl").unwrap())
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn object_array_and_lines_give_the_same_verdict() {
    let expected = run("bash-ok.jsonl", 0);
    for form in forms(&events()) {
        let verdict = claude(&form, &exit(0));
        assert_eq!(verdict.outcome, Success, "{form}");
        assert_eq!(verdict.answer, expected.answer);
        assert_eq!(verdict.native_id, expected.native_id);
        assert_eq!(verdict.usage, expected.usage);
    }
}

proptest! {
    #[test]
    fn any_answer_survives_every_form(answer in "\\PC{1,40}|[ -~\n]{1,40}", is_error: bool, code in 0_i64..2) {
        prop_assume!(!verdicts::is_blank(&answer) && evidence::posing_as_answer(&answer).is_none());
        prop_assume!(evidence::classify(&answer, true).is_none());
        let mut events = events();
        let result = events.last_mut().unwrap();
        result["result"] = json!(answer);
        result["is_error"] = json!(is_error);
        for form in forms(&events) {
            let verdict = claude(&form, &exit(code));
            prop_assert_eq!(&verdict.answer, &answer, "{}", form);
            prop_assert_eq!(verdict.outcome == Success, !is_error && code == 0);
        }
    }
}

#[test]
fn the_error_flag_and_the_exit_code_both_count_and_the_text_is_kept() {
    let result = |is_error: bool, subtype: &str| {
        format!(
            "{{\"type\":\"result\",\"subtype\":\"{subtype}\",\"is_error\":{is_error},\"result\":\"text\",\"session_id\":\"{ID}\"}}"
        )
    };
    for (output, code, outcome) in [
        (result(false, "success"), 0, Success),
        (result(true, "success"), 0, WorkerError),
        (result(false, "success"), 1, WorkerError),
        (result(false, "error_during_execution"), 0, WorkerError),
        (result(true, "error_max_turns"), 0, TurnLimit),
    ] {
        let verdict = claude(&output, &exit(code));
        assert_eq!((verdict.outcome, verdict.answer.as_str()), (outcome, "text"), "{output}");
        assert_eq!(verdict.native_id.as_deref(), Some(ID));
    }
}

#[test]
fn a_structured_answer_stands_in_for_a_missing_text() {
    let output = "{\"type\":\"result\",\"is_error\":false,\"structured_output\":{\"answer\":42}}";
    assert_eq!(claude(output, &exit(0)).answer, "{\"answer\":42}");
}

#[test]
fn silence_is_empty_and_never_a_success() {
    for output in [
        "",
        "\n \n",
        "\u{1b}[?25l\u{1b}[0m\n",
        "{\"type\":\"result\",\"is_error\":false,\"result\":\" \\u001b[0m\"}",
    ] {
        assert_eq!(claude(output, &exit(0)).outcome, Empty, "{output:?}");
    }
}

#[test]
fn a_limit_that_comes_as_the_answer_is_a_limit() {
    for output in [
        "Claude AI usage limit reached|1760000000".to_owned(),
        "{\"type\":\"result\",\"is_error\":false,\"result\":\"Claude AI usage limit reached|1760000000\"}"
            .to_owned(),
    ] {
        for code in [0, 1] {
            let verdict = claude(&output, &exit(code));
            assert_eq!(verdict.outcome, Quota, "{output}");
            assert_eq!(verdict.meta["resetAt"], "2025-10-09T08:53:20Z");
        }
    }
}

#[test]
fn a_stream_cut_short_keeps_the_partial_text() {
    let output = format!(
        "{{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"{ID}\"}}\n\
         {{\"type\":\"assistant\",\"message\":{{\"content\":[{{\"type\":\"text\",\"text\":\"so far\"}}]}},\"session_id\":\"{ID}\"}}\n\
         {{\"type\":\"assistant\",\"parent_tool_use_id\":\"t\",\"message\":{{\"content\":[{{\"type\":\"text\",\"text\":\"sub-agent\"}}]}}}}\n"
    );
    for code in [0, 143] {
        let verdict = claude(&output, &exit(code));
        assert_eq!((verdict.outcome, verdict.answer.as_str()), (WorkerError, "so far"));
        assert_eq!(verdict.native_id.as_deref(), Some(ID));
    }
}

#[test]
fn retries_for_a_missing_login_end_the_run() {
    let mut parser = super::super::Claude.parser(None);
    let retry = |n| {
        format!(
            "{{\"type\":\"system\",\"subtype\":\"api_retry\",\"attempt\":{n},\"max_retries\":10,\"error_status\":401,\"error\":\"authentication_failed\"}}"
        )
    };
    assert_eq!(parser.line(retry(1).as_bytes()).unwrap().line, "retrying: authentication_failed (1/10)");
    assert_eq!(parser.fatal(), None);
    parser.line(retry(2).as_bytes());
    assert!(parser.fatal().unwrap().contains("401"));
    assert_eq!(parser.finish(&RunEnd { signal: Some(2), ..RunEnd::default() }).outcome, LoginRequired);
}

#[test]
fn what_goes_on_is_shown_in_short_clean_lines() {
    let mut parser = super::super::Claude.parser(None);
    let shown = feed(parser.as_mut(), &recorded("edit-accept-edits.jsonl").unwrap());
    assert_eq!(shown, ["Read: /home/user/project/README.txt", "Edit: /home/user/project/README.txt"]);
}

#[test]
fn memory_stays_bounded_and_a_cut_document_keeps_its_text() {
    let mut parser = Parser::new(None, "x");
    let line = vec![b'x'; 1 << 16];
    for _ in 0..400 {
        parser.line(&line);
    }
    assert!(parser.other.held() <= DOCUMENT_BYTES);
    parser.line(b"{\"type\":\"system\",\"subtype\":\"init\"}");
    assert_eq!(parser.other.held(), 0);
    let verdict = claude("{\n  \"type\": \"result\",\n  \"result\": \"cut of", &exit(0));
    assert_eq!(verdict.outcome, FormatUnrecognised);
    assert!(verdict.answer.contains("cut of"));
}

#[test]
fn many_openings_are_not_a_way_to_make_it_slow() {
    let output = "[{\n".repeat(200_000);
    assert_eq!(claude(&output, &exit(0)).outcome, FormatUnrecognised);
}

#[test]
fn a_list_that_is_not_all_events_has_no_effect() {
    let list = format!("[{{\"type\":\"result\",\"result\":\"hidden\",\"session_id\":\"{ID}\"}}, 5]\n");
    let verdict = claude(&list, &exit(0));
    assert_eq!((verdict.outcome, verdict.native_id), (FormatUnrecognised, None));
}
