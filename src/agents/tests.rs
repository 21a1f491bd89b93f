//! Tests of what all adapters share, and the settings their own tests start from.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::error::Coded;
use proptest::prelude::*;
use std::time::Duration;

/// A session id of the right shape.
pub(super) const ID: &str = "01a22da4-c4d5-7380-a8a6-b574a17c03d0";

/// Settings of an enabled agent with nothing special.
pub(super) fn settings(bin: &str) -> AgentConfig {
    AgentConfig {
        enabled: true,
        enabled_explicitly: true,
        bin: bin.to_owned(),
        default_model: None,
        extra_args: Vec::new(),
        extra_env: BTreeMap::new(),
        pass_env: Vec::new(),
        sandbox_ceiling: None,
        start_spacing: Duration::ZERO,
        use_user_config: false,
        scope_tools: None,
        script: None,
        credential_file: None,
        base_url: None,
        allow_development_base_url: false,
        acknowledge_account_default_capabilities: false,
        account_capability_profile: None,
    }
}

/// A fresh read-only turn.
pub(super) fn request(settings: &AgentConfig) -> LaunchRequest<'_> {
    LaunchRequest {
        effort: None,
        own_agent: None,
        cwd: Path::new("/project"),
        prompt: "do it",
        sandbox: Sandbox::ReadOnly,
        execution_mode: None,
        timeout: Duration::from_secs(600),
        model: None,
        resume: None,
        settings,
        strict: false,
        run_dir: Path::new("/state/runs/1"),
        cli_version: None,
        report_schema: None,
    }
}

/// The flag that was refused.
pub(super) fn refused_flag(launch: Result<Launch, AgentError>) -> String {
    match launch {
        Err(error @ AgentError::ExtraArgRefused { .. }) => {
            assert_eq!(error.doc().code, "AGENT_EXTRA_ARG_REFUSED");
            let AgentError::ExtraArgRefused { flag, .. } = error else { unreachable!() };
            flag
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// Feeds whole output to a parser, line by line as the process room does.
pub(super) fn feed(parser: &mut dyn StreamParser, output: &[u8]) -> Vec<String> {
    let mut lines: Vec<&[u8]> = output.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines.into_iter().filter_map(|line| parser.line(line)).map(|activity| activity.line).collect()
}

/// The verdict over whole output.
pub(super) fn verdict(agent: AgentId, output: &[u8], end: &RunEnd<'_>) -> Verdict {
    let mut parser = require(agent).unwrap().parser(None);
    feed(parser.as_mut(), output);
    parser.finish(end)
}

/// A normal or failed exit.
pub(super) fn exit(code: i64) -> RunEnd<'static> {
    RunEnd { exit_code: Some(code), ..RunEnd::default() }
}

#[test]
fn agents_without_an_adapter_say_so() {
    for id in AgentId::ALL {
        match id {
            AgentId::Manus => assert_eq!(require(id).err().unwrap().doc().code, "AGENT_NOT_AVAILABLE"),
            _ => assert_eq!(require(id).unwrap().id(), id),
        }
    }
}

#[test]
fn the_model_grammar_keeps_options_and_shells_out() {
    for good in ["gpt-5.5", "opus", "claude-opus-5[1m]", "provider/model:tag@1", "o3"] {
        check_model(good).unwrap();
    }
    for bad in ["", "-m", "--yolo", "a b", "a;touch X", "$(x)", "`x`", "a&b", "a\nb", "é", &"x".repeat(129)]
    {
        assert!(check_model(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_bad_model_never_reaches_argv() {
    let settings = settings("x");
    for agent in registry() {
        let mut request = request(&settings);
        request.model = Some("--dangerously");
        assert!(matches!(agent.launch(&request), Err(AgentError::ModelRefused(_))));
    }
}

fn event_like() -> impl Strategy<Value = String> {
    let kinds =
        "thread.started|turn.completed|turn.failed|item.completed|error|result|system|assistant|user|init|x";
    let value = prop_oneof![
        "[a-z ]{0,8}".prop_map(|text| format!("\"{text}\"")),
        any::<i64>().prop_map(|number| number.to_string()),
        Just("null".to_owned()),
        Just("[{\"type\":\"text\",\"text\":\"t\"}]".to_owned()),
        Just("{\"input_tokens\":1,\"output_tokens\":2,\"message\":\"Not logged in\"}".to_owned()),
        Just("true".to_owned()),
    ];
    let key = prop::sample::select(vec![
        "item",
        "usage",
        "error",
        "message",
        "result",
        "is_error",
        "subtype",
        "session_id",
        "thread_id",
        "msg",
        "errors",
        "text",
        "permission_denials",
        "attempt",
        "total_cost_usd",
    ]);
    (kinds, prop::collection::btree_map(key, value, 0..5)).prop_map(|(kind, fields)| {
        let fields: Vec<String> =
            fields.into_iter().map(|(key, value)| format!(",\"{key}\":{value}")).collect();
        format!("{{\"type\":\"{kind}\"{}}}", fields.concat())
    })
}

fn output() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        event_like().prop_map(String::into_bytes),
        "[\\[{\\]},\": a-z\\\\]{0,30}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join(&b'\n'))
}

proptest! {
    #[test]
    fn no_output_makes_a_parser_panic_and_no_failure_looks_like_success(output in output(), code in -1_i64..3, stderr in "\\PC{0,40}") {
        for agent in registry() {
            let end = RunEnd { exit_code: (code >= 0).then_some(code), stderr_tail: &stderr, ..RunEnd::default() };
            let verdict = verdict(agent.id(), &output, &end);
            if verdict.outcome == Outcome::Success {
                prop_assert_eq!(code, 0);
                prop_assert!(!verdict.answer.trim().is_empty());
            } else {
                prop_assert!(verdict.detail.is_some_and(|detail| !detail.contains('\n')));
            }
            if let Some(id) = verdict.native_id {
                prop_assert!(agent.accepts_native_id(&id));
            }
        }
    }

    #[test]
    fn facts_stay_small(output in output()) {
        for agent in registry() {
            prop_assert!(verdict(agent.id(), &output, &exit(0)).meta.to_string().len() < 4096);
        }
    }
}
