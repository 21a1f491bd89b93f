//! Recorded streams, old shapes, and everything that is not a clean stream.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::super::super::tests::{ID, exit, feed, request, settings, verdict};
use super::*;
use crate::agents::{Agent, Failure, Outcome};
use crate::policy::AgentId;
use std::collections::BTreeSet;
use std::path::PathBuf;

use Outcome::{Empty, FormatUnrecognised, LoginRequired, Quota, Success, TurnLimit, WorkerError};

fn recorded(name: &str) -> Option<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/streams/codex");
    std::fs::read(folder.join(name)).ok()
}

fn codex(output: &str, end: &RunEnd<'_>) -> Verdict {
    verdict(AgentId::Codex, output.as_bytes(), end)
}

/// Recorded run, exit code (negative: a signal), outcome, answer.
const RECORDED: &[(&str, i64, Outcome, &str)] = &[
    ("exec-bad-flag", 2, WorkerError, ""),
    ("exec-bad-provider", 1, WorkerError, ""),
    ("exec-code-mode-command", 0, Success, "done code"),
    ("exec-command-fails", 0, Success, "It failed with 3."),
    ("exec-command-ok", 0, Success, "Ran it."),
    ("exec-err-context", 1, TurnLimit, ""),
    ("exec-err-drop", 1, WorkerError, ""),
    ("exec-err-e400", 1, WorkerError, ""),
    ("exec-err-e401", 1, LoginRequired, ""),
    ("exec-err-e403", 1, WorkerError, ""),
    ("exec-err-e404", 1, WorkerError, ""),
    ("exec-err-e429", 1, Quota, ""),
    ("exec-err-e429quota", 1, Quota, ""),
    ("exec-err-e500", 1, WorkerError, ""),
    ("exec-err-flaky", 0, Success, "worked at the second try"),
    ("exec-err-idle", 1, WorkerError, ""),
    ("exec-err-no-key", 1, LoginRequired, ""),
    ("exec-err-refused", -9, WorkerError, ""),
    ("exec-err-refused-bounded", 1, WorkerError, ""),
    ("exec-err-stream-error", 1, WorkerError, ""),
    ("exec-err-usage-limit", 1, Quota, ""),
    ("exec-full-net", 0, Success, "done net"),
    ("exec-hang", -9, WorkerError, ""),
    ("exec-hello", 0, Success, "Hello from the mock model."),
    ("exec-hello-text", 0, FormatUnrecognised, "Hello from the mock model."),
    ("exec-mcp-approved", 0, Success, "done write_marker"),
    ("exec-mcp-elicit", 0, Success, "done elicit"),
    ("exec-mcp-iserror", 0, Success, "done fail"),
    ("exec-mcp-missing", 0, Success, "Hello from the mock model."),
    ("exec-mcp-needs-approval", 0, Success, "done write_marker"),
    ("exec-mcp-readonly-tool", 0, Success, "done echo"),
    ("exec-mcp-required-missing", 1, WorkerError, ""),
    ("exec-mcp-rpc-error", 0, Success, "done rpc_error"),
    ("exec-mcp-server-exits", 0, Success, "done exit"),
    ("exec-mcp-structured", 0, Success, "done structured"),
    ("exec-mcp-timeout", 0, Success, "done slow"),
    ("exec-no-prompt", 1, WorkerError, ""),
    ("exec-not-a-git-repo", 1, WorkerError, ""),
    ("exec-output-schema", 0, Success, "{\"answer\":42}"),
    ("exec-reasoning", 0, Success, "Answer after thinking."),
    ("exec-resume-1", 0, Success, "Hello from the mock model."),
    ("exec-resume-2", 0, Success, "Answer after thinking."),
    ("exec-resume-not-a-uuid", 0, Success, "Hello from the mock model."),
    ("exec-resume-unknown", 1, WorkerError, ""),
    ("exec-ro-escalate", 0, Success, "done escalate"),
    ("exec-ro-outside", 0, Success, "done outside"),
    ("exec-ro-patch", 0, Success, "done patch"),
    ("exec-ro-shell-write", 0, Success, "done shell-write"),
    ("exec-sigint", 1, WorkerError, ""),
    ("exec-sigterm", -15, WorkerError, ""),
    ("exec-unknown-model", 0, Success, "Hello from the mock model."),
    ("exec-unknown-tool", 0, Success, "done unknown"),
    ("exec-ww-net", 0, Success, "done net"),
    ("exec-ww-outside", 0, Success, "done outside"),
    ("exec-ww-patch", 0, Success, "done patch"),
    ("exec-ww-patch-outside", 0, Success, "done patch outside"),
    ("exec-ww-shell-write", 0, Success, "done shell-write"),
];

fn run(name: &str, code: i64) -> Verdict {
    let stdout = recorded(&format!("{name}.jsonl")).or_else(|| recorded(&format!("{name}.txt")));
    let stderr = recorded(&format!("{name}.stderr.txt")).unwrap_or_default();
    let stderr = String::from_utf8(stderr).unwrap();
    let end = RunEnd {
        exit_code: (code >= 0).then_some(code),
        signal: (code < 0).then(|| i32::try_from(-code).unwrap()),
        stderr_tail: &stderr,
        ..RunEnd::default()
    };
    verdict(AgentId::Codex, &stdout.unwrap_or_default(), &end)
}

#[test]
fn every_recorded_run_is_judged_as_listed() {
    for (name, code, outcome, answer) in RECORDED {
        let verdict = run(name, *code);
        assert_eq!(verdict.outcome, *outcome, "{name}: {verdict:?}");
        assert_eq!(verdict.answer, *answer, "{name}");
        assert_eq!(verdict.detail.is_some(), *outcome != Success, "{name}");
        let began = recorded(&format!("{name}.jsonl")).is_some();
        assert_eq!(verdict.native_id.is_some(), began, "{name}");
        if *outcome == Success {
            assert!(
                matches!(verdict.usage.tokens, Some(Metered::Total(tokens)) if tokens.input > 0),
                "{name}"
            );
            assert_eq!(verdict.usage.cost_usd, None);
        }
    }
}

#[test]
fn no_recorded_run_is_left_out_of_the_list() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/streams/codex");
    let names: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("exec-"))
        .map(|name| name.split('.').next().unwrap().to_owned())
        .collect();
    let listed: BTreeSet<String> = RECORDED.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(names, listed);
}

#[test]
fn causes_are_named_where_the_output_proves_them() {
    for (name, cause) in [
        ("exec-err-drop", Some(Failure::StreamError)),
        ("exec-err-stream-error", Some(Failure::StreamError)),
        ("exec-err-e403", Some(Failure::PermissionDenied)),
        ("exec-err-e404", Some(Failure::ModelUnavailable)),
        ("exec-err-e429", Some(Failure::Quota)),
        ("exec-err-usage-limit", Some(Failure::Quota)),
        ("exec-resume-unknown", Some(Failure::ConversationLost)),
        ("exec-err-e401", None),
        ("exec-err-e500", None),
        ("exec-err-refused-bounded", None),
    ] {
        assert_eq!(Failure::of(&run(name, 1)), cause, "{name}");
    }
    assert_eq!(Failure::of(&run("exec-hello", 0)), None);
}

#[test]
fn an_answer_by_schema_is_a_fact_if_it_is_an_object() {
    let report = |expected: bool, answer: &str| {
        let item = json!({ "id": "i", "type": "agent_message", "text": answer });
        let lines = [
            json!({ "type": "turn.started" }),
            json!({ "type": "item.completed", "item": item }),
            json!({ "type": "turn.completed", "usage": {} }),
        ];
        let mut parser = Parser::new(None, "test");
        if expected {
            parser.expects_report();
        }
        for line in lines {
            parser.line(line.to_string().as_bytes());
        }
        Box::new(parser).finish(&exit(0)).meta.get("structuredOutput").cloned()
    };
    assert_eq!(report(true, " {\"a\": 1}\n"), Some(json!({ "a": 1 })));
    assert_eq!(report(true, "no object"), None);
    assert_eq!(report(true, "[1]"), None);
    assert_eq!(report(false, "{\"a\": 1}"), None);
}

#[test]
fn the_facts_of_recorded_failures_are_kept() {
    let fact = |name, code, key: &str| run(name, code).meta.get(key).cloned();
    assert_eq!(fact("exec-resume-unknown", 1, "resumeUnknown"), Some(json!(true)));
    assert_eq!(fact("exec-err-context", 1, "limit"), Some(json!("context")));
    assert_eq!(fact("exec-bad-flag", 2, "usageError"), Some(json!(true)));
    assert_eq!(fact("exec-ro-patch", 0, "permissionDenials"), Some(json!(1)));
    assert_eq!(fact("exec-ro-escalate", 0, "permissionDenials"), Some(json!(1)));
    assert!(fact("exec-unknown-model", 0, "warnings").is_some());
    let detail = run("exec-bad-flag", 2).detail.unwrap();
    assert!(detail.contains("Codex CLI 0.171.0") && detail.contains("--bogus"), "{detail}");
    let detail = run("exec-err-e401", 1).detail.unwrap();
    assert!(detail.contains("401 Unauthorized") && !detail.contains("sk-fake"), "{detail}");
    assert_eq!(run("exec-err-e400", 1).detail.as_deref(), Some("bad request from mock"));
    assert!(run("exec-err-refused", -9).detail.unwrap().contains("waiting for network"));
}

#[test]
fn usage_is_the_total_of_the_thread_and_counts_once_a_turn() {
    let total = |name| run(name, 0).usage.tokens;
    let tokens = |input, cached_input, output, reasoning| {
        Some(Metered::Total(Tokens { input, cached_input, output, reasoning }))
    };
    assert_eq!(total("exec-resume-1"), tokens(1234, 1000, 21, 5));
    assert_eq!(total("exec-resume-2"), tokens(1284, 1000, 41, 17));
    let twice = concat!(
        "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":100,\"output_tokens\":1}}\n",
        "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":110,\"output_tokens\":2}}\n",
    );
    assert_eq!(codex(twice, &exit(0)).usage.tokens, tokens(110, 0, 2, 0));
    for usage in ["null", "{}", "{\"input_tokens\":-1,\"output_tokens\":2}", "{\"input_tokens\":5}", "[]"] {
        let line = format!("{{\"type\":\"turn.completed\",\"usage\":{usage}}}");
        assert_eq!(codex(&line, &exit(0)).usage.tokens, None, "{usage}");
    }
}

#[test]
fn the_present_and_the_older_shapes_give_the_same_answer() {
    let present = format!(
        "{{\"type\":\"thread.started\",\"thread_id\":\"{ID}\"}}\n\
         {{\"type\":\"brand.new\",\"x\":[1,{{}}]}}\n\
         {{\"type\":\"item.completed\",\"extra\":1,\"item\":{{\"id\":\"1\",\"type\":\"agent_message\",\"text\":\"the answer\",\"new\":{{}}}}}}\n\
         {{\"type\":\"turn.completed\",\"usage\":{{\"input_tokens\":5,\"output_tokens\":2,\"new\":9}}}}\n"
    );
    let older = format!(
        "{{\"type\":\"session.created\",\"session_id\":\"{ID}\"}}\n\
         {{\"type\":\"item.completed\",\"item\":{{\"item_type\":\"assistant_message\",\"text\":\"the answer\"}}}}\n"
    );
    let camel = present
        .replace("thread_id", "threadId")
        .replace("\"type\":\"agent_message\"", "\"item_type\":\"agent_message\"");
    let oldest = format!(
        "{{\"id\":\"0\",\"msg\":{{\"type\":\"session_configured\",\"session_id\":\"{ID}\"}}}}\n\
         {{\"id\":\"1\",\"msg\":{{\"type\":\"agent_message\",\"message\":\"the answer\"}}}}\n\
         {{\"id\":\"1\",\"msg\":{{\"type\":\"task_complete\",\"last_agent_message\":\"the answer\"}}}}\n"
    );
    for output in [present, older, camel, oldest] {
        let verdict = codex(&output, &exit(0));
        assert_eq!(verdict.outcome, Success, "{output}");
        assert_eq!(verdict.answer, "the answer");
        assert_eq!(verdict.native_id.as_deref(), Some(ID));
    }
}

#[test]
fn noise_around_the_events_does_no_harm() {
    let output = format!(
        "Welcome!\n\u{1b}[33mwarning: x\u{1b}[0m\r\n{{\"type\":\"thread.started\",\"thread_id\":\"{ID}\"}}\r\n{{broken\nlog line\n\
         {{\"type\":\"error\",\"message\":\"Reconnecting... 1/5\"}}\n\
         {{\"type\":\"item.completed\",\"item\":{{\"type\":\"error\",\"message\":\"only a remark\"}}}}\n\
         {{\"type\":\"item.completed\",\"item\":{{\"type\":\"agent_message\",\"text\":\"first\"}}}}\n\
         {{\"type\":\"item.completed\",\"item\":{{\"type\":\"agent_message\",\"text\":\"last\"}}}}\n\
         {{\"type\":\"turn.completed\"}}"
    );
    let verdict = codex(&output, &exit(0));
    assert_eq!((verdict.outcome, verdict.answer.as_str()), (Success, "last"));
}

#[test]
fn a_failed_turn_keeps_its_partial_text() {
    let output = "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"so far\"}}\n\
                  {\"type\":\"turn.failed\",\"error\":{\"message\":\"broken\"}}";
    for code in [0, 1] {
        let verdict = codex(output, &exit(code));
        assert_eq!((verdict.outcome, verdict.answer.as_str()), (WorkerError, "so far"));
        assert_eq!(verdict.detail.as_deref(), Some("broken"));
    }
}

#[test]
fn a_complete_turn_with_a_bad_exit_fails_and_keeps_the_text() {
    let output = "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"done\"}}\n{\"type\":\"turn.completed\"}";
    let verdict = codex(output, &exit(1));
    assert_eq!((verdict.outcome, verdict.answer.as_str()), (WorkerError, "done"));
    let signal = RunEnd { signal: Some(9), ..RunEnd::default() };
    assert_eq!(codex(output, &signal).outcome, WorkerError);
}

#[test]
fn silence_is_empty_and_never_a_success() {
    let blank = "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\" \\u001b[0m\\n\"}}\n{\"type\":\"turn.completed\"}";
    for output in [
        "",
        " \n\t\n",
        "\u{1b}[0m\u{1b}[2J\n",
        blank,
        "{\"type\":\"thread.started\"}\n{\"type\":\"turn.completed\"}",
    ] {
        assert_eq!(codex(output, &exit(0)).outcome, Empty, "{output:?}");
    }
}

#[test]
fn plain_text_is_kept_and_told_apart() {
    let verdict = codex("Here is prose.\nTwo lines.\n", &exit(0));
    assert_eq!(
        (verdict.outcome, verdict.answer.as_str()),
        (FormatUnrecognised, "Here is prose.\nTwo lines.")
    );
    assert_eq!(verdict.native_id, None);
    let verdict = codex("{\"type\":\"answer\",\"text\":\"json of its own\"}", &exit(0));
    assert_eq!(verdict.outcome, FormatUnrecognised);
    assert!(verdict.answer.contains("json of its own"));
    assert_eq!(codex("It broke.", &exit(3)).outcome, WorkerError);
}

#[test]
fn limits_and_logins_are_recognised_in_plain_text_whatever_the_exit() {
    for code in [0, 1] {
        let verdict = codex("You've hit your usage limit. Try again at 3:05 PM.", &exit(code));
        assert_eq!(verdict.outcome, Quota);
        assert_eq!(verdict.meta["resetAt"], "3:05 PM");
        assert_eq!(codex("Not logged in. Please run codex login", &exit(code)).outcome, LoginRequired);
        let end = RunEnd { stderr_tail: "Not logged in", ..exit(code) };
        assert_eq!(codex("", &end).outcome, LoginRequired);
    }
    let end = RunEnd { stderr_tail: "error: unrecognized subcommand 'exec'\n\nUsage: codex", ..exit(2) };
    let verdict = codex("", &end);
    assert_eq!(verdict.outcome, WorkerError);
    assert!(verdict.detail.unwrap().contains("check its version"));
}

#[test]
fn a_login_that_waits_ends_the_run_at_once() {
    let mut parser = super::super::Codex.parser(None);
    feed(parser.as_mut(), b"Opening browser to log in...\n");
    assert!(parser.fatal().is_some());
    let end = RunEnd { signal: Some(2), ..RunEnd::default() };
    assert_eq!(parser.finish(&end).outcome, LoginRequired);

    let mut parser = super::super::Codex.parser(None);
    let retry = |n| {
        format!(
            "{{\"type\":\"error\",\"message\":\"Reconnecting... {n}/5 (unexpected status 401 Unauthorized: x)\"}}"
        )
    };
    parser.line(b"{\"type\":\"turn.started\"}");
    parser.line(retry(1).as_bytes());
    assert_eq!(parser.fatal(), None);
    parser.line(retry(2).as_bytes());
    assert!(parser.fatal().is_some());
}

#[test]
fn the_streams_id_wins_over_the_one_asked_for() {
    let settings = settings("codex");
    let mut request = request(&settings);
    request.resume = Some(ID);
    for (id, mismatch) in [(ID, false), ("00000026-0000-7000-8000-000000000026", true)] {
        let mut parser = super::super::Codex.parser(request.resume);
        feed(parser.as_mut(), format!("{{\"type\":\"thread.started\",\"thread_id\":\"{id}\"}}").as_bytes());
        let verdict = parser.finish(&exit(1));
        assert_eq!(verdict.native_id.as_deref(), Some(id));
        assert_eq!(verdict.meta.get("resumeMismatch").is_some(), mismatch);
    }
    let mut parser = super::super::Codex.parser(request.resume);
    feed(parser.as_mut(), b"{\"type\":\"thread.started\",\"thread_id\":\"--last\"}");
    assert_eq!(parser.finish(&exit(1)).native_id, None);
}

#[test]
fn what_goes_on_is_shown_in_short_clean_lines() {
    let mut parser = super::super::Codex.parser(None);
    let mut output = recorded("exec-command-ok.jsonl").unwrap();
    output.extend_from_slice(&recorded("exec-ww-patch.jsonl").unwrap());
    output.extend_from_slice(&recorded("exec-mcp-readonly-tool.jsonl").unwrap());
    output.extend_from_slice(&recorded("exec-err-refused.jsonl").unwrap());
    let shown = feed(parser.as_mut(), &output);
    assert_eq!(shown[0], "running: echo out-line; echo err-line >&2");
    assert_eq!(shown[1], "changing: /home/user/project/patched.txt");
    assert_eq!(shown[2], "calling: probe/echo");
    assert!(shown[3].contains("waiting for network"));
}

#[test]
fn memory_stays_bounded_whatever_is_printed() {
    let mut parser = Parser::new(None, "x");
    let line = vec![b'x'; 1 << 16];
    for _ in 0..1000 {
        parser.line(&line);
    }
    assert!(parser.plain.held() <= PLAIN_BYTES);
    let warning = format!(
        "{{\"type\":\"item.completed\",\"item\":{{\"type\":\"error\",\"message\":\"{}\"}}}}",
        "w".repeat(9999)
    );
    for _ in 0..100 {
        parser.line(warning.as_bytes());
    }
    assert!(parser.warnings.iter().map(String::len).sum::<usize>() < 4096);
}
