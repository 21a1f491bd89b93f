//! What each CLI is given, to the letter, and that the token is in none of it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::agents::tests::{ID, request, settings};
use crate::agents::{AgentError, Launch, PlannedFile, require};
use crate::policy::Sandbox;
use proptest::prelude::*;
use serde_json::{Value, json};

const CONFIG: &str = "{\"mcpServers\":{\"bridge\":{\"type\":\"http\",\"url\":\"http://127.0.0.1:4711/mcp\",\
                      \"headers\":{\"Authorization\":\"Bearer ${AGENT_BRIDGE_SCOPE}\"},\"timeout\":120000,\
                      \"alwaysLoad\":true}}}";

fn endpoint() -> Endpoint {
    Endpoint {
        url: "http://127.0.0.1:4711/mcp".into(),
        tools: vec!["submit_report".into(), "note".into()],
        call_timeout: Duration::from_secs(120),
        token_variable: TOKEN_VARIABLE,
    }
}

/// The arguments of a turn with the endpoint.
fn attached(agent: AgentId, sandbox: Sandbox, resume: bool) -> Vec<String> {
    let settings = settings(agent.as_str());
    let mut request = request(&settings);
    (request.sandbox, request.resume) = (sandbox, resume.then_some(ID));
    let agent = require(agent).unwrap();
    agent.takes_endpoint(&settings).unwrap();
    let mut launch = agent.launch(&request).unwrap();
    agent.attach(&mut launch, &endpoint(), Path::new("/run")).unwrap();
    launch.args
}

#[test]
fn claude_has_the_endpoint_for_its_only_server_and_a_rule_for_each_tool() {
    let rules = "mcp__bridge__submit_report,mcp__bridge__note";
    for (sandbox, mode) in [
        (Sandbox::ReadOnly, "dontAsk --tools Read,Grep,Glob"),
        (Sandbox::WorkspaceWrite, "acceptEdits"),
        (Sandbox::FullAccess, "bypassPermissions"),
    ] {
        assert_eq!(
            attached(AgentId::Claude, sandbox, false).join(" "),
            format!(
                "-p --output-format stream-json --verbose --strict-mcp-config --mcp-config {CONFIG} --setting-sources= \
                 --allowedTools {rules} --permission-mode {mode}"
            )
        );
        assert!(attached(AgentId::Claude, sandbox, true).ends_with(&{
            let tail = format!("--resume {ID} --allowedTools {rules} --permission-mode {mode}");
            tail.split(' ').map(str::to_owned).collect::<Vec<_>>()
        }));
    }
}

#[test]
fn codex_has_the_settings_behind_all_others_and_before_resume() {
    let expected = "-c sandbox_mode=\"read-only\" -c mcp_servers.bridge.url=\"http://127.0.0.1:4711/mcp\" \
                    -c mcp_servers.bridge.bearer_token_env_var=\"AGENT_BRIDGE_SCOPE\" -c mcp_servers.bridge.required=true \
                    -c mcp_servers.bridge.default_tools_approval_mode=\"approve\" \
                    -c mcp_servers.bridge.enabled_tools=[\"submit_report\",\"note\"] \
                    -c mcp_servers.bridge.startup_timeout_sec=20 -c mcp_servers.bridge.tool_timeout_sec=120 \
                    -c shell_environment_policy.exclude=[\"AGENT_BRIDGE_SCOPE\"] \
                    -c features.apps=false -c features.plugins=false -c features.remote_plugin=false";
    let fresh = attached(AgentId::Codex, Sandbox::ReadOnly, false).join(" ");
    assert!(fresh.ends_with(&format!("{expected} -")), "{fresh}");
    let resumed = attached(AgentId::Codex, Sandbox::ReadOnly, true).join(" ");
    assert!(resumed.ends_with(&format!("{expected} resume --json {ID} -")), "{resumed}");
}

#[test]
fn codex_with_its_users_config_gets_none() {
    let mut settings = settings("codex");
    settings.use_user_config = true;
    let codex = require(AgentId::Codex).unwrap();
    let refused = AgentError::EndpointNeedsIsolation(AgentId::Codex);
    assert_eq!(codex.takes_endpoint(&settings), Err(refused.clone()));
    let mut launch = codex.launch(&request(&settings)).unwrap();
    assert_eq!(codex.attach(&mut launch, &endpoint(), Path::new("/run")), Err(refused));
}

#[test]
fn an_argument_of_the_users_that_looks_like_a_place_is_none() {
    let mut settings = settings("codex");
    settings.extra_args = ["-c", "model_providers.x.name=resume", "--json-like"].map(String::from).to_vec();
    let codex = require(AgentId::Codex).unwrap();
    let mut launch = codex.launch(&request(&settings)).unwrap();
    codex.attach(&mut launch, &endpoint(), Path::new("/run")).unwrap();
    assert_eq!(launch.args.last().unwrap(), "-");
    let at = |text: &str| launch.args.iter().position(|arg| arg == text).unwrap();
    assert!(at("--json-like") < at("mcp_servers.bridge.required=true"));
}

#[test]
fn arguments_that_are_not_as_the_adapter_makes_them_are_refused() {
    for agent in [AgentId::Claude, AgentId::Codex] {
        for args in [vec![], vec!["--ignore-user-config"], vec!["--mcp-config"], vec!["--permission-mode"]] {
            let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
            let mut launch = Launch { args, ..Launch::default() };
            let attached = require(agent).unwrap().attach(&mut launch, &endpoint(), Path::new("/run"));
            assert!(attached.is_err(), "{agent}: {:?}", launch.args);
        }
    }
}

#[test]
fn gemini_has_a_home_of_its_own_with_the_endpoint_in_its_settings() {
    let plan = plan_for(AgentId::Gemini, &endpoint(), Path::new("/run")).unwrap();
    assert_eq!(plan.args.join(" "), "--allowed-mcp-server-names bridge -e none --skip-trust");
    let home = Path::new("/run").join("gemini-home");
    assert_eq!(plan.env["GEMINI_CLI_HOME"], home.to_str().unwrap());
    let private = plan.private.unwrap();
    let [file] = private.files.as_slice() else { panic!("one file") };
    assert_eq!(file.path, home.join(".gemini").join("settings.json"));
    let settings: Value = serde_json::from_str(&file.content).unwrap();
    assert_eq!(settings["mcp"]["allowed"], json!(["bridge"]));
    assert_eq!(
        settings["mcpServers"],
        json!({ "bridge": {
            "type": "http", "url": "http://127.0.0.1:4711/mcp", "timeout": 120_000, "trust": true,
            "headers": { "Authorization": "Bearer ${AGENT_BRIDGE_SCOPE}" }, "includeTools": ["submit_report", "note"],
        } })
    );
    assert!(private.logins.iter().all(|login| login.to.starts_with(&home)));
    assert_eq!(file.content_with("the-token"), file.content, "Gemini reads the variable itself");
}

#[test]
fn agy_has_a_folder_of_its_own_and_the_token_only_in_one_private_file() {
    let plan = plan_for(AgentId::Antigravity, &endpoint(), Path::new("/run")).unwrap();
    let folder = Path::new("/run").join("agy");
    assert_eq!(plan.args, [format!("--gemini_dir={}", folder.display())]);
    let private = plan.private.unwrap();
    let holding: Vec<&PlannedFile> = private.files.iter().filter(|file| file.holds_token).collect();
    let [servers] = holding.as_slice() else { panic!("one file holds it") };
    assert_eq!(servers.path, folder.join("config").join("mcp_config.json"));
    let written: Value = serde_json::from_str(&servers.content_with("the-token")).unwrap();
    assert_eq!(
        written,
        json!({ "mcpServers": { "bridge": {
            "serverUrl": "http://127.0.0.1:4711/mcp", "headers": { "Authorization": "Bearer the-token" },
            "enabledTools": ["submit_report", "note"],
        } } })
    );
    let settings =
        private.files.iter().find(|file| file.path.ends_with("antigravity-cli/settings.json")).unwrap();
    let settings: Value = serde_json::from_str(&settings.content).unwrap();
    let rules = json!(["mcp(bridge/submit_report)", "mcp(bridge/note)"]);
    assert_eq!(settings["permissions"]["allow"], rules);
    assert!(private.files.iter().all(|file| file.path.starts_with(&folder)));
}

#[test]
fn every_client_has_a_plan_and_the_others_say_so() {
    for cli in AgentId::ALL {
        let plan = plan_for(cli, &endpoint(), Path::new("/run"));
        match cli {
            AgentId::Manus | AgentId::Mock => assert_eq!(plan, Err(AgentError::EndpointUnsupported(cli))),
            _ => assert!(!plan.unwrap().args.is_empty(), "{cli}"),
        }
    }
}

#[test]
fn loopback_is_reached_without_a_proxy_and_nothing_that_was_said_is_lost() {
    let all = "127.0.0.1,localhost,::1";
    type Case<'a> = (&'a [(&'a str, &'a str)], String, String);
    let cases: [Case<'_>; 6] = [
        (&[], all.into(), all.into()),
        (&[("NO_PROXY", "corp")], format!("corp,{all}"), format!("corp,{all}")),
        (&[("no_proxy", "corp")], format!("corp,{all}"), format!("corp,{all}")),
        (&[("NO_PROXY", "a"), ("no_proxy", "b")], format!("a,{all}"), format!("b,{all}")),
        (
            &[("NO_PROXY", "localhost, 127.0.0.1 ,")],
            "localhost,127.0.0.1,::1".into(),
            "localhost,127.0.0.1,::1".into(),
        ),
        (&[("NO_PROXY", "*")], "*".into(), "*".into()),
    ];
    for (known, upper, lower) in cases {
        let mut env = BTreeMap::new();
        bypass_proxies(&mut env, |name| {
            known.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        });
        assert_eq!((&env["NO_PROXY"], &env["no_proxy"]), (&upper, &lower), "{known:?}");
        let once = env.clone();
        bypass_proxies(&mut env, |_| None);
        assert_eq!(env, once, "twice is once");
    }
}

proptest! {
    /// Whatever the address and the tools are called, they stay inside their argument.
    #[test]
    fn no_name_breaks_out_of_its_argument(url in ".{0,40}", tool in ".{0,20}") {
        let endpoint = Endpoint { url: url.clone(), tools: vec![tool.clone()], ..endpoint() };
        let args = claude::arguments(&endpoint);
        let config: Value = serde_json::from_str(&args[2]).unwrap();
        prop_assert_eq!(&config["mcpServers"]["bridge"]["url"], &json!(url));
        let codex = codex::arguments(&endpoint, true);
        prop_assert_eq!(codex.len(), 22);
        let tools = codex.iter().find_map(|arg| arg.strip_prefix("mcp_servers.bridge.enabled_tools=")).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(tools).unwrap(), json!([tool]));
    }
}
