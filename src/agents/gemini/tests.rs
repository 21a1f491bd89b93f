//! Arguments, rules and files of a run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::super::tests::{ID, refused_flag, request, settings};
use super::*;
use serde_json::Value;

const RUN: &str = "/state/runs/1";

fn rules_of(launch: &Launch) -> String {
    let private = launch.private.as_ref().unwrap();
    let file = private.files.iter().find(|file| file.path.ends_with("policy.toml"));
    file.map(|file| file.content.clone()).unwrap_or_default()
}

/// Tools that the rules allow, and the server.
fn allowed(launch: &Launch) -> (Vec<String>, Vec<String>) {
    let rules: toml_edit::DocumentMut = rules_of(launch).parse().unwrap();
    let rules = rules["rule"].as_array_of_tables().unwrap();
    let all = rules.iter().next().unwrap();
    assert_eq!((all["toolName"].as_str(), all["decision"].as_str()), (Some("*"), Some("deny")));
    let mut found = (Vec::new(), Vec::new());
    for rule in rules.iter().skip(1) {
        assert_eq!(rule["decision"].as_str(), Some("allow"));
        assert!(rule["priority"].as_integer() > all["priority"].as_integer());
        match rule.get("mcpName").and_then(|name| name.as_str()) {
            Some(server) => found.1.push(server.to_owned()),
            None => found.0.extend(
                rule["toolName"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()),
            ),
        }
    }
    found
}

#[test]
fn a_fresh_turn_trusts_the_folder_alone_and_brings_its_own_rules() {
    let settings = settings("gemini");
    let launch = Gemini.launch(&request(&settings)).unwrap();
    let policy = Path::new(RUN).join("policy.toml");
    assert_eq!(
        launch.args.join(" "),
        format!(
            "-o stream-json --skip-trust -e none --allowed-mcp-server-names none-1 --admin-policy {} \
             --approval-mode default",
            policy.display()
        )
    );
    let env = |name: &str| launch.env[name].as_str();
    assert_eq!((env("GEMINI_CLI_NO_RELAUNCH"), env("NO_BROWSER")), ("true", "true"));
    assert_eq!((env("TMPDIR"), env("TMP"), env("TEMP")), (RUN, RUN, RUN));
    assert!(!launch.env.contains_key("GEMINI_CLI_TRUST_WORKSPACE"), "it would let the project's settings in");
    assert_eq!(launch.pass_env, ["GEMINI_CLI_HOME"]);
    assert!(launch.private.unwrap().files.iter().all(|file| file.path.starts_with(RUN)));
}

#[test]
fn each_mode_allows_its_own_tools_and_no_others() {
    let settings = settings("gemini");
    let launch = |sandbox| Gemini.launch(&LaunchRequest { sandbox, ..request(&settings) }).unwrap();
    let (reading, servers) = allowed(&launch(Sandbox::ReadOnly));
    assert!(servers.is_empty());
    let forbidden = [
        "write_file",
        "replace",
        "run_shell_command",
        "web_fetch",
        "google_web_search",
        "exit_plan_mode",
        "enter_plan_mode",
        "invoke_agent",
        "activate_skill",
    ];
    assert!(!reading.iter().any(|tool| forbidden.contains(&tool.as_str())), "{reading:?}");
    let (writing, _) = allowed(&launch(Sandbox::WorkspaceWrite));
    let more: Vec<&String> = writing.iter().filter(|tool| !reading.contains(tool)).collect();
    assert_eq!(more, ["replace", "write_file"]);
    let full = launch(Sandbox::FullAccess);
    assert_eq!(rules_of(&full), "");
    assert!(!full.args.contains(&"--admin-policy".to_owned()));
    assert_eq!(full.args.last().unwrap(), "yolo");
    assert!(full.private.is_some(), "temporary files have a place of their own");
}

#[test]
fn a_resumed_turn_names_the_conversation_and_the_same_limits() {
    let settings = settings("gemini");
    let mut request = request(&settings);
    request.resume = Some(ID);
    request.model = Some("gemini-2.5-flash");
    request.sandbox = Sandbox::WorkspaceWrite;
    let args = Gemini.launch(&request).unwrap().args.join(" ");
    assert!(
        args.starts_with(&format!("-o stream-json --skip-trust -m gemini-2.5-flash --resume {ID} -e none"))
    );
    assert!(args.ends_with("--approval-mode auto_edit"));
    for id in ["latest", "1", "-1"] {
        request.resume = Some(id);
        assert!(matches!(Gemini.launch(&request), Err(AgentError::ResumeIdRefused { .. })), "{id}");
    }
}

#[test]
fn the_users_config_brings_servers_and_extensions_and_no_authority() {
    let plain = settings("gemini");
    let mut settings = plain.clone();
    settings.use_user_config = true;
    let launch = Gemini.launch(&request(&settings)).unwrap();
    assert!(!launch.args.iter().any(|arg| arg == "-e" || arg == "--allowed-mcp-server-names"));
    assert!(launch.args.contains(&"--admin-policy".to_owned()));
    assert!(rules_of(&launch).contains("mcpName = \"*\"\ntoolAnnotations = { readOnlyHint = true }\n"));
    assert_eq!(allowed(&launch).0, allowed(&Gemini.launch(&request(&plain)).unwrap()).0);
    assert_eq!(Gemini.takes_endpoint(&settings), Err(AgentError::EndpointNeedsIsolation(AgentId::Gemini)));
    let mut strict = request(&settings);
    strict.strict = true;
    assert!(Gemini.launch(&strict).unwrap().args.contains(&"none".to_owned()));
}

#[test]
fn an_endpoint_is_the_only_server_of_a_home_of_its_own() {
    let settings = settings("gemini");
    let endpoint = Endpoint {
        url: "http://127.0.0.1:4711/mcp".into(),
        tools: vec!["note".into()],
        call_timeout: std::time::Duration::from_secs(1),
        token_variable: "AGENT_BRIDGE_SCOPE",
    };
    for sandbox in [Sandbox::ReadOnly, Sandbox::WorkspaceWrite, Sandbox::FullAccess] {
        let mut launch = Gemini.launch(&LaunchRequest { sandbox, ..request(&settings) }).unwrap();
        Gemini.attach(&mut launch, &endpoint, Path::new(RUN)).unwrap();
        let at = launch.args.iter().position(|arg| arg == "--allowed-mcp-server-names").unwrap();
        assert_eq!(launch.args[at + 1], "bridge");
        let home = Path::new(RUN).join("gemini-home");
        assert_eq!(launch.env["GEMINI_CLI_HOME"], home.to_str().unwrap());
        if sandbox != Sandbox::FullAccess {
            assert_eq!(allowed(&launch).1, ["bridge"], "{sandbox}");
        }
        let private = launch.private.unwrap();
        let settings = private.files.iter().find(|file| file.path.ends_with("settings.json")).unwrap();
        let content: Value = serde_json::from_str(&settings.content).unwrap();
        assert_eq!(content["mcpServers"]["bridge"]["url"], endpoint.url);
        assert!(settings.inherits.iter().any(|taken| taken.pointer == "/security/auth"));
        assert_eq!(private.home_variable.as_deref(), Some("GEMINI_CLI_HOME"));
    }
    let mut foreign = Launch { args: vec!["-o".into()], ..Launch::default() };
    assert!(Gemini.attach(&mut foreign, &endpoint, Path::new(RUN)).is_err());
}

#[test]
fn a_prompt_is_no_command() {
    assert_eq!(Gemini.input("/memory add x".into()), "\n/memory add x");
    assert_eq!(Gemini.input("say /memory".into()), "say /memory");
}

#[test]
fn extra_arguments_that_are_not_known_to_be_harmless_are_refused() {
    for (args, flag) in [
        (&["-y"][..], "-y"),
        (&["--yolo"], "--yolo"),
        (&["--approval-mode=yolo"], "--approval-mode"),
        (&["--approvalMode", "yolo"], "--approvalMode"),
        (&["--approval-mode.x=yolo"], "--approval-mode.x"),
        (&["--no-skip-trust"], "--no-skip-trust"),
        (&["--policy", "x"], "--policy"),
        (&["--include-directories=/"], "--include-directories"),
        (&["-e", "all"], "-e"),
        (&["-pd"], "-p"),
        (&["-dp"], "-d"),
        (&["--resume", ID], "--resume"),
        (&["--fake-responses", "x"], "--fake-responses"),
        (&["hello"], "hello"),
        (&["--screen-reader", "hello"], "hello"),
    ] {
        let mut settings = settings("gemini");
        settings.extra_args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let refused = refused_flag(Gemini.launch(&request(&settings)));
        assert_eq!(refused, flag, "{args:?}");
    }
    let mut settings = settings("gemini");
    settings.extra_args = vec!["--screen-reader".into()];
    assert!(Gemini.launch(&request(&settings)).unwrap().args.contains(&"--screen-reader".to_owned()));
}

#[test]
fn the_version_is_read() {
    let said = include_str!("../../../tests/fixtures/streams/gemini/version.txt");
    assert_eq!(Gemini.parse_version(said).as_deref(), Some("0.61.0"));
}
