//! The probe against programs that behave and misbehave (small shell scripts), and its comparison of tools.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn tool(name: &str, description: &str) -> Value {
    json!({ "name": name, "description": description, "inputSchema": { "type": "object" } })
}

#[test]
fn digests_do_not_depend_on_the_order_of_tools_or_keys() {
    let a = catalogue_of(&[tool("a", "x"), tool("b", "y")]).unwrap();
    let turned: Value =
        serde_json::from_str(r#"{"inputSchema":{"type":"object"},"description":"x","name":"a"}"#).unwrap();
    assert_eq!(a, catalogue_of(&[tool("b", "y"), turned]).unwrap());
    assert!(catalogue_of(&[tool("a", "x"), tool("a", "x")]).is_err());
    assert!(catalogue_of(&[json!({})]).is_err());
}

#[test]
fn missing_unknown_and_changed_tools_are_told_apart() {
    let pinned = catalogue_of(&[tool("a", "x"), tool("b", "y"), tool("c", "z")]).unwrap();
    let listed = catalogue_of(&[tool("a", "x"), tool("b", "other"), tool("d", "new")]).unwrap();
    let error = compare(&listed, &pinned, Match::Exactly).unwrap_err();
    assert_eq!(error.to_string(), "its tools are not the pinned ones: missing c; unknown d; changed b");
    let part = catalogue_of(&[tool("a", "x")]).unwrap();
    compare(&part, &pinned, Match::Subset).unwrap();
    assert!(compare(&part, &pinned, Match::Exactly).is_err());
    let forged = ToolCatalogue { sha256: "0".repeat(64), ..pinned.clone() };
    assert!(compare(&pinned, &forged, Match::Exactly).is_err(), "the digest of the whole counts too");
}

proptest! {
    #[test]
    fn a_subset_is_accepted_and_any_change_is_not(names in proptest::collection::btree_set("[a-z]{1,6}", 1..8), keep in any::<u8>()) {
        let tools: Vec<Value> = names.iter().map(|name| tool(name, "x")).collect();
        let pinned = catalogue_of(&tools).unwrap();
        let part: Vec<Value> = tools.iter().enumerate().filter(|(at, _)| keep >> (at % 8) & 1 == 1).map(|(_, tool)| tool.clone()).collect();
        prop_assert!(compare(&catalogue_of(&part).unwrap(), &pinned, Match::Subset).is_ok());
        let mut changed = tools.clone();
        changed[0]["description"] = json!("y");
        prop_assert!(compare(&catalogue_of(&changed).unwrap(), &pinned, Match::Subset).is_err());
    }
}

#[cfg(unix)]
mod programs {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Candidate {
        folder: tempfile::TempDir,
    }

    impl Candidate {
        fn new(script: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("program");
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            Self { folder }
        }

        fn probe(&self, seconds: u64) -> Result<Probed, ProbeError> {
            let launch = Launch {
                program: self.folder.path().join("program"),
                args: Vec::new(),
                env: vec![("PATH".into(), "/usr/bin:/bin".into())],
                cwd: self.folder.path().to_path_buf(),
                deadline: Duration::from_secs(seconds),
            };
            super::super::run(&launch, None, Match::Exactly)
        }
    }

    const HELLO: &str = r#"read l; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","serverInfo":{"name":"x","version":"7"}}}'; read l"#;

    #[test]
    fn pages_are_followed_and_questions_of_the_server_answered() {
        let candidate = Candidate::new(&format!(
            r#"{HELLO}
echo '{{"jsonrpc":"2.0","id":"q","method":"ping"}}'
read l; echo '{{"jsonrpc":"2.0","id":2,"result":{{"tools":[{{"name":"b"}}],"nextCursor":"n"}}}}'
read pong; case "$pong" in *result*) ;; *) exit 3;; esac
read l; case "$l" in *'"cursor":"n"'*) ;; *) exit 4;; esac
echo '{{"jsonrpc":"2.0","method":"notifications/x"}}'
echo '{{"jsonrpc":"2.0","id":3,"result":{{"tools":[{{"name":"a"}}]}}}}'
read l"#
        ));
        let probed = candidate.probe(20).unwrap();
        assert_eq!(probed.tools, ["a", "b"]);
        assert_eq!((probed.server_version.as_str(), probed.protocol.as_str()), ("7", "2025-06-18"));
    }

    #[test]
    fn every_way_to_fail_has_its_own_words() {
        let message = |script: &str| Candidate::new(script).probe(20).unwrap_err().to_string();
        assert_eq!(
            message("kill -9 $$"),
            "it was ended by signal 9 before any output; on macOS this is usually quarantine or signing"
        );
        assert_eq!(
            message("echo 'no API_KEY=abcdefgh12345678' >&2; exit 5"),
            "it ended with code 5 before it answered initialize; its last words: no API_KEY=[redacted]"
        );
        assert!(
            message("echo Welcome; read l; read l")
                .starts_with("it does not speak MCP: it printed \"Welcome\"")
        );
        assert_eq!(
            message(r#"read l; echo '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}'"#),
            "it refused initialize: no (-32000)"
        );
        let empty = format!(r#"{HELLO}; read l; echo '{{"jsonrpc":"2.0","id":2,"result":{{}}}}'; read l"#);
        assert!(message(&empty).starts_with("it does not speak MCP: its answer to tools/list"));
        let endless = format!(
            r#"{HELLO}; while read l; do
case "$l" in *'"id":2'*) n=2;; *'"id":3'*) n=3;; *) n=4;; esac
echo '{{"jsonrpc":"2.0","id":'$n',"result":{{"tools":[],"nextCursor":"same"}}}}'; done"#
        );
        assert!(message(&endless).contains("does not end"));
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_named_as_such() {
        let candidate = Candidate::new("exit 0");
        let program = candidate.folder.path().join("program");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(candidate.probe(20), Err(ProbeError::NotStarted(_))));
        std::fs::remove_file(&program).unwrap();
        assert!(matches!(candidate.probe(20), Err(ProbeError::NotStarted(_))));
    }

    #[test]
    fn a_hanging_tree_that_ignores_signals_is_ended_whole() {
        let candidate = Candidate::new(
            "trap '' TERM INT HUP\n(trap '' TERM INT HUP; setsid sleep 600 & echo $! > child; wait) &\nwait; sleep 600",
        );
        let error = candidate.probe(2).unwrap_err();
        assert!(matches!(error, ProbeError::TimedOut { .. }), "{error}");
        let pid: u32 =
            std::fs::read_to_string(candidate.folder.path().join("child")).unwrap().trim().parse().unwrap();
        assert!(
            crate::platform::processes::find(pid).is_none_or(|found| found.zombie),
            "the grandchild is there"
        );
    }
}
