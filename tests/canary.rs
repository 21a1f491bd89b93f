//! Canaries: a good release passes, each kind of damage fails its own check, and in every case there is a record
//! and nothing else has changed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::{Path, PathBuf};

use agent_bridge::digest;
use support::prelude::*;
use support::release::{Release, ReleaseWorld};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A canary's exit code, its document, and its record as it lies on the disk.
struct Ran {
    code: i32,
    document: Value,
    evidence: PathBuf,
    record: Value,
}

impl Ran {
    fn check(&self, name: &str) -> &str {
        let checks = self.document["checks"].as_array().expect("checks");
        let of_name = checks.iter().rfind(|check| check["name"] == name);
        of_name.and_then(|check| check["status"].as_str()).unwrap_or("absent")
    }

    #[track_caller]
    fn expect_failure(&self, check: &str, code: &str) -> &str {
        assert_eq!(self.code, 3, "{:#}", self.document);
        assert_eq!(self.document["status"], "fail");
        assert_eq!(self.document["failure"]["check"], check, "{:#}", self.document["failure"]);
        assert_eq!(self.document["failure"]["code"], code, "{:#}", self.document["failure"]);
        assert_eq!(self.check("stable files"), "pass");
        self.document["failure"]["message"].as_str().expect("a message")
    }
}

#[track_caller]
fn canary(world: &ReleaseWorld, arguments: &[&str]) -> Ran {
    let evidence = world.path().join(format!("evidence {}", uuid::Uuid::new_v4()));
    let mut command = world.bridge_command(["canary"]);
    command.args(arguments).arg("--json").arg("--evidence-dir").arg(&evidence);
    let finished = support::process::run(command, DEADLINE);
    let document: Value = serde_json::from_str(finished.stdout())
        .unwrap_or_else(|error| panic!("{error}: {}{}", finished.stdout(), finished.stderr()));
    let file = PathBuf::from(document["evidencePath"].as_str().expect("the path of the record"));
    assert!(file.starts_with(&evidence), "{file:?}");
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(record["status"], document["status"]);
    assert_eq!(record["kind"], document["kind"]);
    assert_eq!(record["schemaVersion"], 1);
    assert_eq!(std::fs::read_dir(&evidence).unwrap().count(), 1, "the record and nothing else");
    world.assert_no_process_left(DEADLINE);
    let stages = std::fs::read_dir(world.path().join("tmp")).unwrap().count();
    assert_eq!(stages, 0, "the throwaway folder is gone");
    Ran { code: finished.code.expect("an exit code"), document, evidence: file, record }
}

fn good() -> Release {
    Release::of_bridge(VERSION)
}

#[cfg(unix)]
fn script(text: &str) -> Release {
    Release::script(VERSION, &format!("#!/bin/sh\n{text}\n"))
}

#[test]
fn a_good_release_passes_and_nothing_is_changed() {
    let mut world = ReleaseWorld::new();
    let id = world.place(&good());
    world.make_current(&id);
    world.set_env("OPENAI_API_KEY", "sk-planted-secret-0123456789");
    let before = world.lasting_tree();
    let ran = canary(&world, &["release", &id]);
    assert_eq!(ran.code, 0, "{:#}", ran.document);
    for check in [
        "files",
        "handshake",
        "version",
        "tools",
        "diagnosis",
        "agents",
        "delegation",
        "sessions",
        "end",
        "state",
        "stable files",
    ] {
        assert_eq!(ran.check(check), "pass", "{check}: {:#}", ran.document["checks"]);
    }
    assert_eq!(world.lasting_tree(), before);
    let record = &ran.record;
    assert_eq!(record["releaseId"], id.as_str());
    assert_eq!(record["serverVersion"], VERSION);
    assert_eq!(record["stableFilesBefore"], record["stableFilesAfter"]);
    assert!(record["stableFilesBefore"]["pointer/a"]["sha256"].is_string());
    assert_eq!(record["stableFilesBefore"]["config.json"], Value::Null);
    assert!(record["stableFilesBefore"].as_object().unwrap().contains_key("codex"), "clients' files too");
    for digest in ["runtimeSha256", "metadataSha256", "manifestSha256", "receiptSha256", "catalogueSha256"] {
        assert!(digest::is_digest(record[digest].as_str().unwrap()), "{digest}");
    }
    let text = std::fs::read_to_string(&ran.evidence).unwrap();
    assert!(!text.contains("planted") && !text.contains(&*world.path().to_string_lossy()), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_program_on_trial_has_no_network_where_that_is_allowed() {
    let allowed = std::process::Command::new("unshare")
        .args(["-n", "true"])
        .status()
        .is_ok_and(|s| s.success())
        || std::process::Command::new("unshare").args(["-rn", "true"]).status().is_ok_and(|s| s.success());
    let world = ReleaseWorld::new();
    let id = world.place(&good());
    let ran = canary(&world, &["release", &id]);
    assert_eq!(ran.document["network"], if allowed { "off" } else { "shared" });
    assert_eq!(ran.check("network"), if allowed { "pass" } else { "warn" });
}

#[test]
fn hostile_texts_reach_the_agent_as_they_are_and_nothing_is_executed() {
    let world = ReleaseWorld::new();
    let id = world.place(&good());
    let ran = canary(&world, &["launch", &id]);
    assert_eq!(ran.code, 0, "{:#}", ran.document);
    for check in ["agents", "models", "turn", "arguments", "prompt", "execution"] {
        assert_eq!(ran.check(check), "pass", "{check}: {:#}", ran.document["checks"]);
    }
    let text = ran.document["checks"].to_string();
    assert!(text.contains("exactly as expected"), "the same program knows the whole list: {text}");
}

#[cfg(unix)]
#[test]
fn a_release_that_hands_its_prompt_to_a_shell_fails() {
    let world = ReleaseWorld::new();
    // The real program, but whatever it gives to an agent passes through a shell once more.
    let real = world.path().join("real-bridge");
    std::fs::copy(support::world::BRIDGE, &real).unwrap();
    let text = format!(
        r#"if [ "$1" = mock-agent ]; then
  script=$3; shift 4; line="'{real}' mock-agent --script '$script' --"
  for word in "$@"; do line="$line \"$word\""; done
  eval "$line"; exit $?
fi
exec '{real}' "$@""#,
        real = real.display()
    );
    let id = world.place(&script(&text));
    let ran = canary(&world, &["launch", &id]);
    // The diagnosis already tells that another program answers.
    ran.expect_failure("diagnosis", "CANARY_FAILED");
}

#[test]
fn damage_is_found_before_anything_is_started() {
    let world = ReleaseWorld::new();
    let id = world.place(&good());
    let mut bytes = std::fs::read(support::world::BRIDGE).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    world.damage(&id, &Release::runtime_path(), &bytes);
    let ran = canary(&world, &["release", &id]);
    assert!(ran.expect_failure("files", "RELEASE_DAMAGED").contains("other content"));
    assert_eq!(ran.document["network"], "not-started");
}

#[test]
fn damaged_metadata_fail_with_a_record() {
    let world = ReleaseWorld::new();
    let id = world.place(&Release::new("9.9.9"));
    world.damage(&id, "release-metadata.json", "{ not json");
    let ran = canary(&world, &["release", &id]);
    assert!(ran.expect_failure("files", "RELEASE_DAMAGED").contains("release-metadata.json"));
    assert_eq!(ran.document["releaseId"], id.as_str());
}

#[cfg(unix)]
#[test]
fn a_lost_executable_bit_is_noticed() {
    let world = ReleaseWorld::new();
    let id = world.place(&good());
    let path = world.layout().releases().join(&id).join(Release::runtime_path());
    support::release::set_mode(&path, 0o444);
    let ran = canary(&world, &["release", &id]);
    assert!(ran.expect_failure("files", "RELEASE_DAMAGED").contains("mode 444"));
}

#[test]
fn another_version_and_another_tool_fail_their_own_checks() {
    let world = ReleaseWorld::new();
    let other = world.place(&Release::of_bridge("7.7.7"));
    let message = canary(&world, &["release", &other]);
    assert!(message.expect_failure("version", "CANARY_FAILED").contains("7.7.7"));

    let narrower = good().metadata(|metadata| {
        metadata["toolCatalogue"]["tools"].as_object_mut().unwrap().remove("cancel_turn");
    });
    let id = world.place(&narrower);
    let ran = canary(&world, &["release", &id]);
    assert!(ran.expect_failure("tools", "PROBE_TOOLS_DIFFER").contains("unknown cancel_turn"));
}

#[cfg(unix)]
#[test]
fn programs_that_misbehave_fail_by_name_and_leave_no_process() {
    let world = ReleaseWorld::new();
    let fails = |sha: char, text: &str, more: &[&str]| {
        let id = world.place(&script(text).git_sha(&sha.to_string().repeat(40)));
        canary(&world, &[&["release", id.as_str()], more].concat())
    };
    let killed = fails('1', "kill -9 $$", &[]);
    assert!(
        killed.expect_failure("handshake", "PROBE_ENDED").contains("signal 9 before any output; on macOS")
    );

    let garbage = fails('2', "echo Welcome to agent-bridge; cat > /dev/null", &[]);
    assert!(garbage.expect_failure("handshake", "PROBE_NOT_MCP").contains("Welcome"));

    let ended = fails('3', "echo \"cannot open token=abcdef0123456789\" >&2; exit 7", &[]);
    let message = ended.expect_failure("handshake", "PROBE_ENDED");
    assert!(
        message.contains("code 7") && message.contains("cannot open") && !message.contains("abcdef"),
        "{message}"
    );

    let hangs = fails(
        '4',
        "trap '' TERM INT HUP; (trap '' TERM INT HUP; setsid sleep 600 & sleep 600) & sleep 600 & wait; sleep 600",
        &["--timeout", "2"],
    );
    hangs.expect_failure("handshake", "PROBE_TIMED_OUT");
    assert_eq!(hangs.document["failure"]["retryable"], true);
}

#[cfg(unix)]
#[test]
fn nothing_of_the_callers_environment_reaches_the_program() {
    let mut world = ReleaseWorld::new();
    for (name, value) in [
        ("OPENAI_API_KEY", "sk-planted-1"),
        ("ANTHROPIC_API_KEY", "planted-2"),
        ("AGENT_BRIDGE_CONFIG", "/planted/3"),
        ("LD_PRELOAD", ""),
        ("HTTPS_PROXY", "http://user:planted-4@127.0.0.1:1"),
        ("SSH_AUTH_SOCK", "/planted/5"),
        ("CODEX_HOME", "/planted/6"),
    ] {
        world.set_env(name, value);
    }
    let seen = world.path().join("seen");
    let id = world.place(&script(&format!("{{ env; pwd; }} > '{}'; exit 1", seen.display())));
    let ran = canary(&world, &["release", &id]);
    ran.expect_failure("handshake", "PROBE_ENDED");
    let text = std::fs::read_to_string(&seen).unwrap();
    assert!(!text.contains("planted"), "{text}");
    let own = ["HOME=", "PATH=", "TMPDIR=", "PWD=", "AGENT_BRIDGE_TURN_ID=", "SHLVL=", "_=", "OLDPWD=", "/"];
    let foreign: Vec<&str> =
        text.lines().filter(|line| !own.iter().any(|own| line.starts_with(own))).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    let home = text.lines().find_map(|line| line.strip_prefix("HOME=")).unwrap();
    assert!(!home.starts_with(&*world.home().to_string_lossy()), "{home}");
    let folder = text.lines().last().unwrap();
    assert!(folder.contains("agent-bridge-stage-"), "{folder}");
}

#[test]
fn a_record_never_goes_into_the_installation() {
    let mut world = ReleaseWorld::new();
    let id = world.place(&Release::new("9.9.9"));
    let before = world.tree();
    let refused = |world: &ReleaseWorld, folder: &Path| {
        let mut command = world.bridge_command(["canary", "release", &id, "--evidence-dir"]);
        command.arg(folder);
        let finished = support::process::run(command, DEADLINE).expect_code(2);
        assert!(finished.stderr().contains("CANARY_EVIDENCE_PLACE"), "{}", finished.stderr());
    };
    refused(&world, &world.root().join("evidence"));
    refused(&world, &world.root().join("not/there/yet"));
    refused(&world, Path::new("relative"));
    refused(&world, &world.path().join("tmp"));
    let detour = world.path().join("outside").join("..").join("install root").join("x");
    refused(&world, &detour);
    if cfg!(unix) {
        support::world::link(world.root(), &world.path().join("link"));
        refused(&world, &world.path().join("link").join("evidence"));
        support::world::link(&world.root().join("evidence"), &world.path().join("dangling"));
        refused(&world, &world.path().join("dangling"));
    }
    for name in ["TMPDIR", "TEMP", "TMP"] {
        let inside = world.root().join("releases");
        world.set_env(name, inside);
    }
    let finished = world.bridge(["canary", "release", &id]).expect_code(2);
    assert!(finished.stderr().contains("CANARY_EVIDENCE_PLACE"), "{}", finished.stderr());
    let elsewhere = world.path().join("elsewhere");
    let mut command = world.bridge_command(["canary", "release", &id, "--evidence-dir"]);
    command.arg(&elsewhere);
    let finished = support::process::run(command, DEADLINE).expect_code(2);
    assert!(finished.stderr().contains("CANARY_STAGE"), "{}", finished.stderr());
    assert_eq!(world.tree(), before);
}

#[test]
fn what_is_not_there_is_refused_without_a_record() {
    let world = ReleaseWorld::new();
    let refused = world.bridge(["canary", "release", "1.2.3+0123456"]).expect_code(2);
    assert!(refused.stderr().contains("RELEASE_NOT_INSTALLED"), "{}", refused.stderr());
    world.bridge(["canary", "release", "nonsense"]).expect_code(64);
    assert_eq!(std::fs::read_dir(world.path().join("tmp")).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn a_release_that_touches_the_installation_is_found_out() {
    let world = ReleaseWorld::new();
    std::fs::write(world.layout().root().join("config.json"), "{}").unwrap();
    let id = world.place(&script(&format!("echo >> '{}'; exit 0", world.layout().config().display())));
    let ran = canary(&world, &["release", &id]);
    assert_eq!(ran.code, 3);
    assert_eq!(ran.check("stable files"), "fail");
    let detail = ran.document["checks"].as_array().unwrap().last().unwrap()["detail"].to_string();
    assert!(detail.contains("config.json"), "{detail}");
}

fn usable_config(world: &ReleaseWorld) -> String {
    format!("{:#}\n", json!({ "allowedRoots": [world.repo()], "stateDir": world.state() }))
}

fn verdict(world: &ReleaseWorld, generation: u64) -> Value {
    let text = std::fs::read(world.layout().generation(generation)).unwrap();
    serde_json::from_slice::<Value>(&text).unwrap()["verdict"].clone()
}

#[test]
fn the_pointer_canary_marks_the_generation() {
    let world = ReleaseWorld::new();
    std::fs::write(world.layout().root().join("config.json"), usable_config(&world)).unwrap();
    let id = world.place(&good());
    let generation = world.make_current(&id);
    let ran = canary(&world, &["pointer"]);
    assert_eq!(ran.code, 0, "{:#}", ran.document);
    assert_eq!(ran.document["releaseId"], id.as_str());
    assert_eq!(ran.document["generation"], generation);
    assert_eq!(ran.check("mark"), "pass", "{:#}", ran.document["checks"]);
    assert_eq!(verdict(&world, generation), "good");
    assert!(!world.state().exists(), "a handshake leaves no state");

    world.damage(&id, "README.md", "changed");
    let ran = canary(&world, &["pointer"]);
    assert!(ran.expect_failure("files", "RELEASE_DAMAGED").contains("README.md"));
    assert_eq!(verdict(&world, generation), "bad");
}

#[test]
fn a_start_that_is_put_off_says_nothing_about_the_generation() {
    let world = ReleaseWorld::new();
    let id = world.place(&good());
    let generation = world.make_current(&id);
    let gate = agent_bridge::platform::try_exclusive(&world.layout().gate_lock()).unwrap().expect("the gate");
    let ran = canary(&world, &["pointer"]);
    ran.expect_failure("handshake", "PROBE_PUT_OFF");
    assert_eq!(ran.document["failure"]["retryable"], true);
    assert_eq!((ran.check("mark"), verdict(&world, generation)), ("absent", json!("good")));
    drop(gate);
}

#[test]
fn a_launcher_that_was_exchanged_fails_the_pointer_canary() {
    let world = ReleaseWorld::new();
    let id = world.place(&good());
    let generation = world.make_current(&id);
    let mut bytes = std::fs::read(support::world::BRIDGE).unwrap();
    bytes.push(0);
    std::fs::write(world.layout().launcher(), bytes).unwrap();
    let ran = canary(&world, &["pointer"]);
    ran.expect_failure("launcher", "CANARY_FAILED");
    assert_eq!(verdict(&world, generation), "bad");
}

#[test]
fn a_staged_config_is_judged_by_the_release_itself() {
    let world = ReleaseWorld::new();
    let id = world.place(&good());
    world.make_current(&id);
    let mute = world.place(&Release::script("0.0.9", "#!/bin/sh\nexit 5\n"));
    let staged = world.path().join("staged config.json");
    std::fs::write(&staged, usable_config(&world)).unwrap();
    let before = world.lasting_tree();
    let path = staged.to_string_lossy().into_owned();
    let ran = canary(&world, &["config", &path]);
    assert_eq!(ran.code, 0, "{:#}", ran.document);
    assert_eq!(ran.document["releaseId"], id.as_str(), "the current one");
    assert!(ran.document["stableFilesBefore"]["staged config"].is_object());
    assert_eq!(ran.document["configSha256"], digest::of_file(&staged).unwrap().0);

    let fewer =
        json!({ "allowedRoots": [world.repo()], "stateDir": world.state(), "toolsets": ["diagnostics"] });
    std::fs::write(&staged, fewer.to_string()).unwrap();
    let ran = canary(&world, &["config", &path, "--release", &id]);
    assert_eq!((ran.code, &ran.document["toolCount"]), (0, &json!(1)), "{:#}", ran.document);

    std::fs::write(&staged, r#"{ "allowedRoots": 7, "apiKey": "sk-planted-0123456789" }"#).unwrap();
    let ran = canary(&world, &["config", &path, "--release", &id]);
    let message = ran.expect_failure("config", "CANARY_FAILED");
    assert!(message.contains("allowedRoots") && !message.contains("planted"), "{message}");

    for whole in ["not a config", "[]", "{ \"allowedRoots\": [", ""] {
        std::fs::write(&staged, whole).unwrap();
        let ran = canary(&world, &["config", &path, "--release", &id]);
        let message = ran.expect_failure("config", "CANARY_FAILED");
        assert!(ran.document["failure"]["hint"].as_str().unwrap().contains("Mend the config"));
        assert!(!message.contains(": :") && !message.contains("::") && !message.contains("()"), "{message}");
    }
    let ran = canary(&world, &["config", &path, "--release", &mute]);
    let message = ran.expect_failure("config", "CANARY_FAILED");
    assert!(message.ends_with("its check ended with exit code 5 and without a word"), "{message}");

    let ran = canary(&world, &["config", "/not/there.json", "--release", &id]);
    ran.expect_failure("config", "CANARY_FAILED");
    assert_eq!(world.lasting_tree(), before);
    assert!(!world.state().exists());
}

#[test]
fn people_see_the_checks_and_where_the_record_is() {
    let world = ReleaseWorld::new();
    let id = world.place(&Release::new("9.9.9"));
    let finished = world.bridge(["canary", "release", &id]).expect_code(3);
    let text = finished.stdout();
    assert!(text.contains("ok    files") && text.contains("FAIL  handshake"), "{text}");
    assert!(text.contains("FAILED: canary-release") && text.contains("next: "), "{text}");
    let record = text.lines().find_map(|line| line.strip_prefix("record: ")).unwrap();
    assert!(Path::new(record).is_file(), "{text}");
}
