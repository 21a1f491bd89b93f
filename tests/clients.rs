//! `agent-bridge configure-clients` on homes of every kind.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use support::clients::{ClientWorld, one};
use support::prelude::*;
use support::world::{link, write};

const CODEX: &str = "model = \"x\" # mine\n\n[mcp_servers.other]\ncommand = \"other\"\nenv = { TOKEN = \"planted-secret-1\" }\n";
const CLAUDE: &str = "{\n  \"numStartups\": 12345678901234567890123,\n  \"mcpServers\": {\n    \"other\": {\"command\": \"x\", \"env\": {\"K\": \"planted-secret-2\"}}\n  },\n  \"half\": \"\\ud83d\"\n}\n";
const GEMINI: &str = "{\n\t// mine\n\t\"mcpServers\": {\n\t\t\"other\": { \"url\": \"https://x/?key=planted-secret-3\" } // theirs\n\t}\n}";

fn all_clients(world: &ClientWorld) -> Vec<(PathBuf, Vec<u8>)> {
    world.put(".codex/config.toml", CODEX);
    world.put(".claude.json", CLAUDE);
    world.put(".gemini/settings.json", GEMINI);
    world.put(".config/Claude/claude_desktop_config.json", "{}");
    [world.codex(), world.claude(), world.gemini(), world.desktop()]
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[track_caller]
fn assert_as_before(files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        assert_eq!(fs::read(path).unwrap(), *bytes, "{}", path.display());
    }
}

#[test]
fn a_look_changes_nothing_and_says_what_would_be_done() {
    let world = ClientWorld::new();
    let files = all_clients(&world);
    let tree = support::release::tree(world.path());
    let document = world.configured([]);
    assert_eq!(document["status"], "dry-run");
    assert_eq!(document["changed"], false);
    for client in ["codex", "claude-code", "claude-desktop", "gemini"] {
        let found = one(&document, client);
        assert_eq!((&found["action"], &found["state"]), (&json!("update"), &json!("absent")), "{found:#}");
        let diff = found["diff"].as_str().unwrap();
        assert!(diff.lines().any(|line| line.starts_with('+') && line.contains("command")), "{found:#}");
    }
    world.bridge(["configure-clients"]).expect_code(0);
    assert_as_before(&files);
    assert_eq!(support::release::tree(world.path()), tree, "not even a lock file");
}

/// The difference is the one of the whole file, with line numbers and with what the change stands in; values of
/// others are hidden, their keys are not.
#[test]
fn the_difference_says_where_the_change_is() {
    let world = ClientWorld::new();
    world.put(
        ".codex/config.toml",
        "model = \"x\" # mine\n\n[mcp_servers.other]\ncommand = \"other\"\n\n[mcp_servers.agent-bridge]\nenabled = true\na = 1\nb = 2\nc = 3\nd = 4\ncommand = \"/old/agent-bridge\"\nargs = [\"serve\"]\n\n[last]\nx = 1\n",
    );
    world.put(".gemini/settings.json", GEMINI);
    world.put(
        ".config/Claude/claude_desktop_config.json",
        "{\"mcpServers\":{\"o\":{\"command\":\"planted-secret\"}}}",
    );
    let document = world.configured([]);
    let shown = |client: &str| {
        let diff = one(&document, client)["diff"].as_str().unwrap().to_owned();
        diff.replace(world.home().to_str().unwrap(), "~")
            .replace(world.layout().root().to_str().unwrap(), "ROOT")
    };
    insta::assert_snapshot!(shown("codex"), @r#"
    --- ~/.codex/config.toml
    +++ ~/.codex/config.toml
    @@ -9,8 +9,11 @@ [mcp_servers.agent-bridge]
     b = (not shown)
     c = (not shown)
     d = (not shown)
    -command = "/old/agent-bridge"
    +command = "ROOT/bin/agent-bridge"
     args = ["serve"]
    +env = { AGENT_BRIDGE_CONFIG = "ROOT/config.json" }
    +startup_timeout_sec = 30
    +tool_timeout_sec = 300
     
     [last]
     x = (not shown)
    "#);
    insta::assert_snapshot!(shown("gemini"), @r#"
    --- ~/.gemini/settings.json
    +++ ~/.gemini/settings.json
    @@ -1,6 +1,14 @@ mcpServers
     {
     	(not shown)
     	"mcpServers": {
    -		"other": { "url": (not shown) } (not shown)
    +		"other": { "url": (not shown) }, (not shown)
    +		"agent-bridge": {
    +			"command": "ROOT/bin/agent-bridge",
    +			"args": ["serve"],
    +			"env": {
    +				"AGENT_BRIDGE_CONFIG": "ROOT/config.json"
    +			},
    +			"timeout": 300000
    +		}
     	}
     }
    \ No newline at end of file
    "#);
    insta::assert_snapshot!(shown("claude-desktop"), @r#"
    --- ~/.config/Claude/claude_desktop_config.json
    +++ ~/.config/Claude/claude_desktop_config.json
    @@ -1 +1 @@
    -{"mcpServers":{"o":{"command":(not shown)}}}
    \ No newline at end of file
    +{"mcpServers":{"o":{"command":(not shown)},"agent-bridge":{"command":"ROOT/bin/agent-bridge","args":["serve"],"env":{"AGENT_BRIDGE_CONFIG":"ROOT/config.json"}}}}
    \ No newline at end of file
    "#);
}

#[test]
fn what_was_applied_is_in_effect_twice_is_once_and_goes_back_to_the_byte() {
    let world = ClientWorld::new();
    let files = all_clients(&world);
    let document = world.configured(["--apply"]);
    assert_eq!(document["applied"].as_array().unwrap().len(), 4);
    for path in [world.claude(), world.desktop()] {
        if path == world.claude() {
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains("12345678901234567890123") && text.contains("\\ud83d"), "{text}");
            // Not readable for a strict reader only because of half a character.
            let text = text.replace("\\ud83d", "");
            world.expect_server(
                &serde_json::from_str::<Value>(&text).unwrap()["mcpServers"]["agent-bridge"].clone(),
            );
        } else {
            world.expect_server(&world.server(&path));
        }
    }
    let codex: toml_edit::DocumentMut = fs::read_to_string(world.codex()).unwrap().parse().unwrap();
    let server = &codex["mcp_servers"]["agent-bridge"];
    assert_eq!(server["command"].as_str(), Some(world.launcher().as_str()));
    assert_eq!(server["tool_timeout_sec"].as_integer(), Some(300));
    assert!(server.get("default_tools_approval_mode").is_none(), "only if it was asked for");
    assert!(fs::read_to_string(world.codex()).unwrap().starts_with(CODEX), "appended, nothing else");
    let gemini = fs::read_to_string(world.gemini()).unwrap();
    assert!(gemini.contains("\n\t\t\"agent-bridge\": {\n\t\t\t\"command\""), "in tabs as the rest: {gemini}");
    assert!(gemini.contains("\"timeout\": 300000") && !gemini.contains("trust"), "{gemini}");

    let check = world.configured(["--check"]);
    for client in ["codex", "claude-code", "claude-desktop", "gemini"] {
        assert_eq!(one(&check, client)["verdict"]["effect"], "effective", "{check:#}");
    }
    let tree = support::release::tree(world.path());
    let again = world.configured(["--apply"]);
    assert_eq!((&again["status"], &again["changed"]), (&json!("unchanged"), &json!(false)));
    assert_eq!(support::release::tree(world.path()), tree, "nothing to do writes nothing");

    let txid = document["txid"].as_str().unwrap();
    let look = world.configured(["--restore", txid]);
    assert_eq!(look["status"], "dry-run");
    assert_eq!(support::release::tree(world.path()), tree);
    world.configured(["--restore", txid, "--apply"]);
    assert_as_before(&files);
    let again = world.configured(["--restore", txid, "--apply"]);
    assert_eq!(again["status"], "unchanged");
}

#[test]
fn taken_back_after_others_wrote_only_our_entry_goes() {
    let world = ClientWorld::new();
    let _ = all_clients(&world);
    let txid = world.configured(["--apply"])["txid"].as_str().unwrap().to_owned();
    let mut codex = fs::read_to_string(world.codex()).unwrap();
    codex.push_str("\n[projects.\"/x\"]\ntrust_level = \"trusted\"\n");
    fs::write(world.codex(), &codex).unwrap();
    let claude =
        fs::read_to_string(world.claude()).unwrap().replace("\"numStartups\": 1", "\"numStartups\": 2");
    fs::write(world.claude(), &claude).unwrap();
    world.configured(["--restore", &txid, "--apply"]);
    assert_eq!(
        fs::read_to_string(world.codex()).unwrap(),
        format!("{CODEX}\n[projects.\"/x\"]\ntrust_level = \"trusted\"\n")
    );
    assert_eq!(
        fs::read_to_string(world.claude()).unwrap(),
        CLAUDE.replace("\"numStartups\": 1", "\"numStartups\": 2")
    );
}

#[test]
fn an_entry_that_somebody_made_his_own_is_not_taken_back() {
    let world = ClientWorld::new();
    let _ = all_clients(&world);
    let txid = world.configured(["--apply"])["txid"].as_str().unwrap().to_owned();
    let text = fs::read_to_string(world.codex()).unwrap().replace(&world.launcher(), "/their/own");
    fs::write(world.codex(), &text).unwrap();
    let gemini = fs::read(world.gemini()).unwrap();
    let run = world.configure(["--restore", &txid, "--apply"]).expect_code(2);
    assert!(format!("{run}").contains("CLIENTS_BLOCKED"), "{run}");
    assert_eq!(fs::read_to_string(world.codex()).unwrap(), text);
    assert_eq!(fs::read(world.gemini()).unwrap(), gemini, "all or nothing");
    world.configured(["--restore", &txid, "--client", "gemini", "--apply"]);
    assert_eq!(fs::read_to_string(world.gemini()).unwrap(), GEMINI);
}

/// A client that rewrites its whole file all the time, as Claude Code does, neither stops the undo nor loses anything.
#[test]
fn taken_back_after_the_client_wrote_its_whole_file_anew() {
    let world = ClientWorld::new();
    world.put(".claude.json", "{\n  \"numStartups\": 1,\n  \"mcpServers\": {\n    \"other\": {\n      \"command\": \"x\"\n    }\n  }\n}");
    let txid = world.configured(["--apply"])["txid"].as_str().unwrap().to_owned();
    let mut document: Value = serde_json::from_slice(&fs::read(world.claude()).unwrap()).unwrap();
    document["numStartups"] = json!(2);
    document["mcpServers"]["newer"] = json!({"command": "y"});
    document["projects"] = json!({"/x": {"history": ["a"]}});
    // In another order, on one line.
    fs::write(world.claude(), document.to_string()).unwrap();
    let look = world.configured(["--restore", &txid]);
    let diff = one(&look, "claude-code")["diff"].as_str().unwrap().to_owned();
    assert!(diff.starts_with("--- ") && diff.contains("\n-") && !diff.contains("history\":[\"a"), "{diff}");
    world.configured(["--restore", &txid, "--apply"]);
    document["mcpServers"].as_object_mut().unwrap().remove("agent-bridge");
    assert_eq!(fs::read_to_string(world.claude()).unwrap(), document.to_string());
}

/// A key that was set in our entry, or one that was added to it, is a change of ours: nothing is overwritten.
#[test]
fn our_entry_with_a_key_of_somebody_else_is_not_taken_back() {
    for (was, is) in [
        ("tool_timeout_sec = 300", "tool_timeout_sec = 600"),
        ("args = [\"serve\"]", "args = [\"serve\"]\nenabled = false"),
    ] {
        let world = ClientWorld::new();
        world.put(".codex/config.toml", CODEX);
        let txid = world.configured(["--apply"])["txid"].as_str().unwrap().to_owned();
        let text = fs::read_to_string(world.codex()).unwrap();
        assert!(text.contains(was), "{text}");
        fs::write(world.codex(), text.replace(was, is)).unwrap();
        let run = world.configure(["--restore", &txid, "--apply"]).expect_code(2);
        let told = format!("{run}");
        assert!(told.contains("CLIENT_CONFLICT") && told.contains("--remove"), "{told}");
        assert_eq!(fs::read_to_string(world.codex()).unwrap(), text.replace(was, is));
        // The next step that it names.
        world.configured(["--remove", "--client", "codex", "--apply"]);
        assert_eq!(fs::read_to_string(world.codex()).unwrap(), CODEX);
    }
}

/// The journal and a plan say where in a file we wrote and what; nothing of what was there before.
#[test]
fn a_plan_and_the_journal_hold_the_places() {
    let world = ClientWorld::new();
    world.put(".codex/config.toml", CODEX);
    let plan = world.path().join("plan.json");
    world.configured(["--plan-out", plan.to_str().unwrap()]);
    let saved: Value = serde_json::from_slice(&fs::read(&plan).unwrap()).unwrap();
    let hunk = &saved["files"][0]["patch"][0];
    world.configured(["--apply", plan.to_str().unwrap()]);
    let after = fs::read_to_string(world.codex()).unwrap();
    let at = |side: &str, end: &str| usize::try_from(hunk[side][end].as_u64().unwrap()).unwrap();
    assert_eq!((at("before", "start"), at("before", "end")), (CODEX.len(), CODEX.len()));
    assert_eq!(after[at("after", "start")..at("after", "end")], *hunk["text"].as_str().unwrap());
    assert_eq!(format!("{CODEX}{}", hunk["text"].as_str().unwrap()), after);
    let journal =
        walk(&world.layout().journal()).into_iter().find(|path| path.extension().is_some()).unwrap();
    let recorded = fs::read_to_string(journal).unwrap();
    let record = recorded.lines().find(|line| line.contains("\"patch\"")).expect("a record with places");
    assert!(record.contains(&hunk.to_string()), "{record}");
}

/// What was taken out comes back too where others wrote meanwhile.
#[test]
fn a_removal_is_taken_back_after_others_wrote() {
    let world = ClientWorld::new();
    world.put(".codex/config.toml", CODEX);
    world.configured(["--apply"]);
    let registered = fs::read_to_string(world.codex()).unwrap();
    let txid = world.configured(["--remove", "--apply"])["txid"].as_str().unwrap().to_owned();
    fs::write(world.codex(), format!("theirs = 1\n{CODEX}")).unwrap();
    world.configured(["--restore", &txid, "--apply"]);
    assert_eq!(fs::read_to_string(world.codex()).unwrap(), format!("theirs = 1\n{registered}"));
}

#[test]
fn removed_is_what_was_there_before_the_first_change() {
    let world = ClientWorld::new();
    let files = all_clients(&world);
    world.configured(["--apply"]);
    world.configured(["--apply", "--allow-headless"]);
    assert!(world.home_file(".claude/settings.json").exists());
    let look = world.configured(["--remove"]);
    assert_eq!(look["status"], "dry-run");
    world.configured(["--remove", "--apply"]);
    assert_as_before(&files);
    assert!(!world.home_file(".claude/settings.json").exists(), "it was made by us and holds nothing else");
    assert_eq!(world.configured(["--remove", "--apply"])["status"], "unchanged");
}

#[test]
fn headless_settings_are_written_only_where_asked_for() {
    let world = ClientWorld::new();
    let _ = all_clients(&world);
    let settings = world.put(
        ".claude/settings.json",
        "{\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(ls)\"\n    ]\n  }\n}\n",
    );
    let before = fs::read(&settings).unwrap();
    world.configured(["--apply"]);
    assert_eq!(fs::read(&settings).unwrap(), before);
    let document = world.configured(["--allow-headless", "--apply"]);
    let text = fs::read_to_string(&settings).unwrap();
    assert_eq!(
        text,
        "{\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(ls)\",\n      \"mcp__agent-bridge\"\n    ]\n  }\n}\n"
    );
    let codex = fs::read_to_string(world.codex()).unwrap();
    assert!(codex.contains("default_tools_approval_mode = \"approve\"\n"), "{codex}");
    assert!(fs::read_to_string(world.gemini()).unwrap().contains("\"trust\": true"));
    world.configured(["--restore", document["txid"].as_str().unwrap(), "--apply"]);
    assert_eq!(fs::read(&settings).unwrap(), before);
}

#[test]
fn a_plan_is_applied_as_it_was_seen_or_not_at_all() {
    let world = ClientWorld::new();
    let files = all_clients(&world);
    let plan = world.path().join("plan.json");
    let plan = plan.to_str().unwrap();
    world.configured(["--plan-out", plan]);
    assert_as_before(&files);
    // Somebody else's key.
    let changed = CODEX.replace("\"other\"", "\"other2\"");
    fs::write(world.codex(), &changed).unwrap();
    let run = world.configure(["--apply", plan]).expect_code(2);
    let told = format!("{run}");
    for part in ["CLIENTS_PLAN_STALE", "config.toml", "only other entries", "--rebase"] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    assert_eq!(fs::read_to_string(world.codex()).unwrap(), changed);
    // Our own.
    let own = format!("{CODEX}[mcp_servers.agent-bridge]\ncommand = \"mine\"\n");
    fs::write(world.codex(), &own).unwrap();
    let run = world.configure(["--apply", plan, "--rebase"]).expect_code(2);
    assert!(format!("{run}").contains("our own entry changed"), "{run}");
    assert_as_before(&files[1..]);
    // The link chain.
    fs::remove_file(world.codex()).unwrap();
    let elsewhere = world.put("dotfiles/config.toml", CODEX);
    link(&elsewhere, &world.codex());
    let run = world.configure(["--apply", plan, "--rebase"]).expect_code(2);
    assert!(format!("{run}").contains("another file is meant"), "{run}");
    fs::remove_file(world.codex()).unwrap();
    fs::write(world.codex(), &changed).unwrap();
    let document = world.configured(["--apply", plan, "--rebase"]);
    assert_eq!(document["status"], "applied");
    assert!(fs::read_to_string(world.codex()).unwrap().starts_with(&changed));
    for bad in
        ["{}", "x", "{\"schema\":\"agent-bridge/client-plan/9\",\"root\":\"/\",\"options\":{},\"files\":[]}"]
    {
        write(Path::new(plan), bad);
        let run = world.configure(["--apply", plan]).expect_code(2);
        assert!(format!("{run}").contains("CLIENTS_PLAN_INVALID"), "{run}");
    }
}

#[test]
fn one_bad_file_stops_all_and_the_others_can_be_named() {
    let world = ClientWorld::new();
    let files = all_clients(&world);
    fs::write(world.gemini(), "{ \"mcpServers\": ").unwrap();
    let document = world.configure([]).expect_code(2).json();
    assert_eq!(document["status"], "blocked");
    assert_eq!(one(&document, "gemini")["errors"][0]["code"], "CLIENT_FILE_UNREADABLE");
    assert_eq!(one(&document, "codex")["action"], "update");
    let run = world.configure(["--apply"]).expect_code(2);
    assert!(format!("{run}").contains("CLIENTS_BLOCKED"), "{run}");
    assert_as_before(&files[..2]);
    assert_eq!(fs::read(world.gemini()).unwrap(), b"{ \"mcpServers\": ");
    assert!(fs::read_dir(world.layout().journal()).unwrap().next().is_none(), "no transaction was begun");
    world.configured(["--client", "codex", "--client", "claude-code", "--apply"]);
    assert!(fs::read_to_string(world.codex()).unwrap().contains("agent-bridge"));
}

#[test]
fn files_are_made_only_for_clients_that_are_there() {
    let mut world = ClientWorld::new();
    let document = world.configured(["--apply"]);
    assert_eq!(document["status"], "unchanged");
    assert!(fs::read_dir(world.home()).unwrap().all(|entry| entry.unwrap().file_name() == ".agent-bridge"));
    fs::create_dir(world.home().join(".claude")).unwrap();
    fs::create_dir(world.home().join(".codex")).unwrap();
    world.configured(["--apply"]);
    world.expect_server(&world.server(&world.claude()));
    assert_eq!(fs::metadata(world.claude()).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!world.home().join(".gemini").exists());
    world.configured(["--client", "gemini", "--create", "--apply"]);
    world.expect_server(&world.server(&world.gemini()));
    let document = world.configured(["--remove", "--apply"]);
    assert_eq!(document["status"], "applied");
    assert!(!world.claude().exists() && !world.codex().exists() && !world.gemini().exists());
    world.remove_env("HOME");
    world.configured([]);
}

#[test]
fn without_a_launcher_nothing_is_registered() {
    let world = ClientWorld::new();
    let files = all_clients(&world);
    fs::remove_file(world.layout().launcher()).unwrap();
    let run = world.configure(["--apply"]).expect_code(2);
    assert!(format!("{run}").contains("CLIENTS_NO_LAUNCHER"), "{run}");
    assert_as_before(&files);
}

#[test]
fn unknown_clients_and_transactions_are_refused() {
    let world = ClientWorld::new();
    world.configure(["--client", "emacs"]).expect_code(64);
    let run = world.configure(["--restore", "000009-configure-clients", "--apply"]).expect_code(2);
    assert!(format!("{run}").contains("CLIENTS_NOTHING_TO_RESTORE"), "{run}");
}

/// Twelve shapes of links; the last column says whether the file is written.
#[test]
fn links_stay_and_their_end_is_written() {
    type Make = fn(&ClientWorld, &Path);
    let shapes: [(&str, Make, bool); 12] = [
        ("no link", |world, path| write(path, world.text()), true),
        ("absolute", |world, path| link(&world.put("d/real.toml", world.text()), path), true),
        (
            "relative",
            |world, path| {
                world.put("d/real.toml", world.text());
                link(Path::new("../d/real.toml"), path);
            },
            true,
        ),
        (
            "two levels",
            |world, path| {
                world.put("d/real.toml", world.text());
                link(Path::new("real.toml"), &world.home_file("d/one.toml"));
                link(&world.home_file("d/one.toml"), path);
            },
            true,
        ),
        (
            "thirty levels",
            |world, path| {
                let mut last = world.put("d/0", world.text());
                for number in 1..30 {
                    let next = world.home_file(&format!("d/{number}"));
                    link(&last, &next);
                    last = next;
                }
                link(&last, path);
            },
            true,
        ),
        (
            "through a linked folder",
            |world, path| {
                world.put("d/sub/real.toml", world.text());
                link(&world.home_file("d/sub"), &world.home_file("folder"));
                link(&world.home_file("folder/real.toml"), path);
            },
            true,
        ),
        (
            "the folder itself is a link",
            |world, path| {
                world.put("d/config.toml", world.text());
                fs::remove_dir(path.parent().unwrap()).unwrap();
                link(&world.home_file("d"), path.parent().unwrap());
            },
            true,
        ),
        ("dangling", |world, path| link(&world.home_file("nowhere.toml"), path), false),
        (
            "dangling second level",
            |world, path| {
                link(&world.home_file("nowhere.toml"), &world.home_file("one.toml"));
                link(&world.home_file("one.toml"), path);
            },
            false,
        ),
        (
            "in a circle",
            |world, path| {
                link(path, &world.home_file("one.toml"));
                link(&world.home_file("one.toml"), path);
            },
            false,
        ),
        (
            "to a folder",
            |world, path| {
                fs::create_dir(world.home_file("folder")).unwrap();
                link(&world.home_file("folder"), path);
            },
            false,
        ),
        (
            "into a read-only folder",
            |world, path| {
                let real = world.put("store/real.toml", world.text());
                fs::set_permissions(real.parent().unwrap(), fs::Permissions::from_mode(0o555)).unwrap();
                link(&real, path);
            },
            false,
        ),
    ];
    for (name, make, written) in shapes {
        let world = ClientWorld::new();
        fs::create_dir(world.home().join(".codex")).unwrap();
        make(&world, &world.codex());
        let before = support::release::tree(&world.home());
        let links = |home: &Path| -> Vec<(PathBuf, PathBuf)> {
            walk(home)
                .into_iter()
                .filter_map(|path| Some((path.clone(), fs::read_link(path).ok()?)))
                .collect()
        };
        let links_before = links(&world.home());
        let run = world.configure(["--client", "codex", "--apply"]);
        assert_eq!(links(&world.home()), links_before, "{name}: links changed\n{run}");
        if written {
            let document = run.expect_code(0).json();
            assert_eq!(document["status"], "applied", "{name}: {document:#}");
            let text = fs::read_to_string(world.codex()).unwrap();
            assert!(
                text.starts_with("a = 1\n") && text.contains("[mcp_servers.agent-bridge]"),
                "{name}: {text}"
            );
            world.configured(["--restore", document["txid"].as_str().unwrap(), "--apply"]);
        } else {
            let run = run.expect_code(2);
            assert!(format!("{run}").contains("left as it is"), "{name}: {run}");
        }
        assert_eq!(support::release::tree(&world.home()), before, "{name}");
        if name == "into a read-only folder" {
            fs::set_permissions(world.home_file("store"), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

trait Text {
    fn text(&self) -> &'static str;
}

impl Text for ClientWorld {
    fn text(&self) -> &'static str {
        "a = 1\n"
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.push(path.clone());
        if path.is_dir() && !path.is_symlink() {
            found.extend(walk(&path));
        }
    }
    found.sort();
    found
}

#[test]
fn mode_owner_and_attributes_stay() {
    let world = ClientWorld::new();
    let _ = all_clients(&world);
    fs::set_permissions(world.codex(), fs::Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(world.codex()).unwrap();
    world.configured(["--client", "codex", "--apply"]);
    let after = fs::metadata(world.codex()).unwrap();
    assert_eq!((before.mode(), before.uid(), before.gid()), (after.mode(), after.uid(), after.gid()));
    let left: Vec<_> = fs::read_dir(world.home().join(".codex")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// No value that is not ours leaves the file: not in what is printed, planned or kept in the journal.
#[test]
fn secrets_of_others_stay_where_they_are() {
    let world = ClientWorld::new();
    let _ = all_clients(&world);
    // Also in an entry of ours that is out of date.
    let own = "[mcp_servers.agent-bridge]\ncommand = \"/old/agent-bridge\"\nargs = [\"mcp\", \"--token\", \"planted-secret-4\"]\nurl_note = \"https://planted-secret-5@x\"\nenv = { EXTRA = \"planted-secret-6\", AGENT_BRIDGE_CONFIG = \"/x?key=planted-secret-7\" }\n# planted-secret-8\n";
    fs::write(world.codex(), format!("{CODEX}\n{own}")).unwrap();
    let plan = world.path().join("plan.json");
    let mut told = String::new();
    let mut tell = |run: Finished| {
        told.push_str(run.stdout());
        told.push_str(&run.stderr());
    };
    tell(world.configure([]).expect_code(0));
    tell(world.bridge(["configure-clients"]).expect_code(0));
    tell(world.configure(["--plan-out", plan.to_str().unwrap()]).expect_code(0));
    tell(world.configure(["--check"]));
    tell(world.bridge(["configure-clients", "--remove"]).expect_code(0));
    let applied = world.configure(["--apply", plan.to_str().unwrap()]).expect_code(0);
    let txid = applied.json()["txid"].as_str().unwrap().to_owned();
    tell(applied);
    tell(world.bridge(["configure-clients", "--restore", &txid]).expect_code(0));
    // Files that do not parse, each at a secret.
    fs::write(world.codex(), "[x]\na = planted-secret-9\n").unwrap();
    fs::write(world.claude(), "{ \"a\": planted-secret-9 }").unwrap();
    fs::write(world.gemini(), "{ \"mcpServers\": { \"agent-bridge\": \"planted-secret-9\" } }").unwrap();
    tell(world.configure([]).expect_code(2));
    tell(world.bridge(["configure-clients", "--apply"]).expect_code(2));
    told.push_str(&fs::read_to_string(plan).unwrap());
    for journal in walk(&world.layout().journal()) {
        told.push_str(&String::from_utf8_lossy(&fs::read(journal).unwrap()));
    }
    assert!(told.contains("(not shown)"), "{told}");
    assert!(!told.contains("planted-secret"), "{}", &told[told.find("planted-secret").unwrap() - 300..]);
}

#[test]
fn strict_clients_never_get_what_they_cannot_read() {
    let world = ClientWorld::new();
    let with_comment = "{ // mine\n  \"mcpServers\": {}\n}\n";
    let with_comma = "{\n  \"mcpServers\": {},\n}\n";
    for (client, file) in [("claude-code", world.claude()), ("claude-desktop", world.desktop())] {
        for bad in [with_comment, with_comma] {
            write(&file, bad);
            let run = world.configure(["--client", client, "--apply"]).expect_code(2);
            assert!(format!("{run}").contains("CLIENTS_BLOCKED"), "{run}");
            assert_eq!(fs::read_to_string(&file).unwrap(), bad);
        }
        write(&file, "{\n  \"a\": 1\n}");
        world.configured(["--client", client, "--apply"]);
        let text = fs::read_to_string(&file).unwrap();
        serde_json::from_str::<Value>(&text).expect("strict JSON");
        assert!(text.ends_with('}'), "no line end where there was none: {text:?}");
    }
    write(&world.gemini(), with_comma);
    world.configure(["--client", "gemini", "--apply"]).expect_code(2);
    write(&world.gemini(), with_comment);
    world.configured(["--client", "gemini", "--apply"]);
    assert!(fs::read_to_string(world.gemini()).unwrap().starts_with("{ // mine\n"));
}

#[test]
fn what_cannot_be_edited_is_shown_to_be_pasted() {
    let world = ClientWorld::new();
    for bad in [
        "[mcp_servers.agent-bridge]\nurl = \"https://elsewhere\"\n",
        "[[mcp_servers]]\nx = 1\n",
        "[mcp_servers.agent-bridge.env]\nA = \"1\"\n",
        "mcp_servers = 3\n",
    ] {
        world.put(".codex/config.toml", bad);
        let document = world.configure(["--client", "codex"]).expect_code(2).json();
        let codex = one(&document, "codex");
        assert_eq!(codex["errors"][0]["code"], "CLIENT_SHAPE_UNSUPPORTED", "{bad}: {codex:#}");
        let snippet = codex["snippet"].as_str().unwrap();
        assert!(snippet.starts_with("[mcp_servers.agent-bridge]\ncommand = "), "{snippet}");
        let run = world.bridge(["configure-clients", "--client", "codex"]).expect_code(2);
        assert!(run.stdout().contains("paste this:"), "{run}");
        assert_eq!(fs::read_to_string(world.codex()).unwrap(), bad);
    }
    for bad in [
        "{\"mcpServers\":{\"agent-bridge\":{},\"agent-bridge\":{}}}",
        "{\"mcpServers\":{\"agent-bridge\":{\"command\":\"a\",\"command\":\"b\"}}}",
        "{\"mcpServers\":{},\"mcpServers\":{}}",
        "{\"mcpServers\":[]}",
        "[]",
    ] {
        world.put(".claude.json", bad);
        world.configure(["--client", "claude-code", "--apply"]).expect_code(2);
        assert_eq!(fs::read_to_string(world.claude()).unwrap(), bad);
    }
}

#[test]
fn a_running_client_is_named() {
    let world = ClientWorld::new();
    let _ = all_clients(&world);
    let program = world.program("codex", "#!/bin/sh\nread x\n");
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let mut command = world.command(shell);
    std::os::unix::process::CommandExt::arg0(&mut command, "codex");
    command.arg(program).stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut named = false;
    let end = std::time::Instant::now() + DEADLINE;
    while !named && std::time::Instant::now() < end {
        let document = world.configured(["--client", "codex"]);
        named = document["running"].as_array().unwrap().iter().any(|one| one["pid"] == child.id())
            && one(&document, "codex")["warnings"].to_string().contains("running now");
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(named);
}

/// A client that runs writes its file out of its memory: our entry is gone, and every command that looks says so.
#[test]
fn an_entry_that_a_running_client_drops_is_told_of() {
    let mut world = ClientWorld::new();
    let root = world.layout().root().to_str().unwrap().to_owned();
    world.set_env("AGENT_BRIDGE_ROOT", &root);
    world.put(".codex/config.toml", CODEX);
    world.put(".claude.json", CLAUDE);
    let theirs = world.put("theirs", CODEX);
    // It writes as soon as everything is done.
    let program = world.program(
        "codex",
        "#!/bin/sh\n[ $# -eq 3 ] || exit 0\nuntil grep -rqs '\"outcome\":\"committed\"' \"$3\"; do :; done\ncp \"$1\" \"$2.new\" && mv \"$2.new\" \"$2\"\n",
    );
    let mut host =
        world.command(program).arg(&theirs).arg(world.codex()).arg(world.layout().journal()).spawn().unwrap();
    let document = world.configured(["--apply", "--watch", "300"]);
    host.wait().unwrap();
    assert_eq!(document["status"], "applied");
    let lost = document["lost"].as_array().unwrap();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0]["client"], "codex");
    assert!(
        lost[0]["next"].as_str().unwrap().contains("configure-clients --client codex --apply"),
        "{lost:?}"
    );

    let tree = support::release::tree(world.path());
    let check = world.configure(["--check"]).expect_code(3).json();
    assert_eq!(one(&check, "codex")["verdict"]["effect"], "lost", "{check:#}");
    assert_eq!(one(&check, "claude-code")["verdict"]["effect"], "effective", "{check:#}");
    let inspected = world.bridge(["inspect", "--json", "--root", &root]).json();
    assert!(inspected["findings"].to_string().contains("rewritten by a running host"), "{inspected:#}");
    let examined = world.bridge(["doctor", "--json"]).json();
    assert!(examined["diagnostics"]["checks"].to_string().contains("lost in"), "{examined:#}");
    assert_eq!(support::release::tree(world.path()), tree, "they only look");

    // The next step that they name.
    let again = world.configured(["--client", "codex", "--apply", "--watch", "0"]);
    assert_eq!((&again["status"], &again["lost"]), (&json!("applied"), &json!([])));
    world.configured(["--check"]);
    // What was taken out on purpose is not lost.
    world.configured(["--remove", "--apply"]);
    let check = world.configured(["--check"]);
    assert_eq!(one(&check, "codex")["verdict"]["effect"], "not-registered", "{check:#}");
}

/// What `config init` prints comes from the same table: pasted, it is what would have been written, to the byte.
#[test]
fn what_config_init_prints_is_what_would_be_written() {
    for state in [None, Some("/var/tmp/some state")] {
        let mut world = ClientWorld::new();
        if let Some(folder) = state {
            world.set_env("AGENT_BRIDGE_STATE_DIR", folder);
        }
        let (root, config) = (world.layout().root().to_str().unwrap().to_owned(), world.config_file());
        world.set_env("AGENT_BRIDGE_ROOT", &root);
        let repo = world.repo().to_str().unwrap().to_owned();
        let init = world
            .bridge(["--config", &config, "config", "init", "--yes", "--force", "--json", "--root", &repo]);
        let document = init.expect_code(0).json();
        let steps: Vec<&Value> = document["nextSteps"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|step| step["client"].is_string())
            .collect();
        assert_eq!(steps.len(), 4, "{document:#}");
        for step in &steps {
            write(Path::new(step["file"].as_str().unwrap()), step["text"].as_str().unwrap());
        }
        let pasted = world.configured([]);
        for step in &steps {
            let found = one(&pasted, step["client"].as_str().unwrap());
            assert_eq!(
                (&found["state"], &found["verdict"]["effect"]),
                (&json!("correct"), &json!("effective")),
                "{found:#}"
            );
        }
        for step in &steps {
            let (client, file) = (step["client"].as_str().unwrap(), step["file"].as_str().unwrap());
            fs::remove_file(file).unwrap();
            world.configured(["--client", client, "--create", "--apply"]);
            assert_eq!(fs::read_to_string(file).unwrap(), step["text"].as_str().unwrap(), "{client}");
        }
    }
}

/// How another program writes its file: whether it goes by what is there, or by its own memory alone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Writer {
    /// Reads, changes one thing, writes. What it reads may be ours for the moment in which our write is looked at and
    /// taken back: then it goes on from there, as from any other moment at which it could have read.
    ReadsFirst,
    /// Knows what is in the file and writes that, as clients do that run.
    FromMemory,
}

/// Another program writes the file while we register and take back. What is promised, and asked for here, holds as
/// soon as both are done: what it wrote last is there, with our entry or without it; and an entry is there only if
/// our write went over exactly the content that its plan was made for.
#[test]
fn no_write_of_a_program_that_reads_first_is_lost() {
    written_against(Writer::ReadsFirst);
}

#[test]
fn no_write_of_a_program_that_writes_from_memory_is_lost() {
    written_against(Writer::FromMemory);
}

fn written_against(writer: Writer) {
    use std::collections::HashSet;
    use std::sync::mpsc::channel;

    use agent_bridge::digest;
    use agent_bridge::release::clients;
    let rounds: u64 =
        std::env::var("CLIENT_ADVERSARY_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(80);
    let world = ClientWorld::new();
    let content = |count: u64| format!("{{\n  \"counter\": {count},\n  \"mcpServers\": {{}}\n}}\n");
    let path = world.put(".claude.json", content(0));
    let layout = world.layout();
    let mut context = agent_bridge::context::Context::from_process();
    context.home = Some(world.home());
    context.env = world.env().clone();
    context.cwd = world.repo();
    let options = clients::Options { clients: vec!["claude-code".into()], ..Default::default() };
    let server =
        |text: &str| serde_json::from_str::<Value>(text).unwrap()["mcpServers"]["agent-bridge"].clone();
    let without_ours = |text: &str| {
        let mut document: Value = serde_json::from_str(text).expect("whole");
        document["mcpServers"].as_object_mut().expect("servers").remove("agent-bridge");
        document
    };
    // Both ends of a round; where one of the two sides stops, so does the other.
    let ((go, turn), (report, reports)) = (channel::<()>(), channel::<(String, Vec<String>)>());
    let (mut applied, mut refused) = (0u64, 0u64);
    std::thread::scope(|scope| {
        let path = &path;
        scope.spawn(move || {
            let mut count = 0;
            while turn.recv().is_ok() {
                let (mut all, mut last) = (Vec::new(), String::new());
                // Few enough a round that now and then the last one is before ours.
                for _ in 0..count % 7 + 1 {
                    count += 1;
                    last = match writer {
                        Writer::FromMemory => content(count),
                        Writer::ReadsFirst => {
                            let text = fs::read_to_string(path).unwrap();
                            let from = text.find("\"counter\": ").expect("the counter") + 11;
                            let to = from + text[from..].find(',').unwrap();
                            format!("{}{count}{}", &text[..from], &text[to..])
                        }
                    };
                    let beside = path.with_extension("theirs");
                    fs::write(&beside, &last).unwrap();
                    fs::rename(&beside, path).unwrap();
                    all.push(last.clone());
                    std::thread::yield_now();
                }
                if report.send((last, all)).is_err() {
                    return;
                }
            }
        });
        for round in 0..rounds {
            let first = fs::read_to_string(path).unwrap();
            go.send(()).unwrap();
            let register = round % 2 == 0;
            let plan = if register {
                clients::plan(&context, &layout, &options).unwrap()
            } else {
                clients::plan_removal(&context, &layout, &options).unwrap()
            };
            let result = clients::apply(&context, &layout, &plan, None);
            let (last, all) = reports.recv().expect("what was written");
            let now = fs::read_to_string(path).unwrap();
            let told = || format!("{writer:?}, round {round}: {result:?}\nlast {last}\nnow {now}");
            assert_eq!(without_ours(&now), without_ours(&last), "{}", told());
            let entry = server(&now);
            if !entry.is_null() {
                world.expect_server(&entry);
            }
            match &result {
                Ok(written) => {
                    for one in &written.applied {
                        applied += 1;
                        let known: HashSet<String> = all
                            .iter()
                            .chain([&first])
                            .map(|text| digest::of_bytes(text.as_bytes()))
                            .collect();
                        let before = one.before_sha256.as_ref().expect("there was a file");
                        assert!(known.contains(before), "over what nobody wrote: {}", told());
                    }
                }
                Err(error) if error.code() == "RELEASE_FILE_CHANGED" => {
                    refused += 1;
                    // What another program wrote out of its own memory is there as it wrote it.
                    if writer == Writer::FromMemory {
                        assert_eq!(now, last, "{}", told());
                    }
                }
                Err(error) => panic!("{error}: {}", error.hint()),
            }
            // Each removal reads all journals.
            let journals = walk(&layout.journal());
            if journals.len() > 40 {
                journals.iter().for_each(|file| fs::remove_file(file).unwrap());
            }
        }
        drop(go);
    });
    assert!(applied > 0 && refused > 0, "{applied} applied, {refused} refused: nobody got in the way");
}

/// The files that are handed out say nothing that would not be written.
#[test]
fn the_templates_are_what_would_be_written() {
    let world = ClientWorld::new();
    let _ = all_clients(&world);
    world.configured(["--allow-headless", "--apply"]);
    let template = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/clients").join(name);
        fs::read_to_string(path).unwrap().replace("/absolute/path/to/agent-bridge", &world.launcher())
    };
    let parse_toml = |text: &str| -> Vec<(String, String)> {
        let document: toml_edit::DocumentMut = text.parse().unwrap();
        let server = document["mcp_servers"]["agent-bridge"].as_table().unwrap().clone();
        server.iter().map(|(key, value)| (key.to_owned(), value.to_string().trim().to_owned())).collect()
    };
    let written = parse_toml(&fs::read_to_string(world.codex()).unwrap());
    for pair in parse_toml(&template("codex.toml")) {
        assert!(written.contains(&pair), "{pair:?} is not in {written:?}");
    }
    let without_comments = |text: String| -> Value {
        let lines: String = text
            .lines()
            .map(|line| line.split(" // ").next().unwrap())
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        serde_json::from_str(&lines.replace("\\ud83d", "")).unwrap()
    };
    for (name, file) in [
        ("claude-code.json", world.claude()),
        ("claude-desktop.json", world.desktop()),
        ("gemini.json", world.gemini()),
    ] {
        let written =
            without_comments(fs::read_to_string(file).unwrap())["mcpServers"]["agent-bridge"].clone();
        let template: Value = serde_json::from_str(&template(name)).unwrap();
        for (key, value) in template["mcpServers"]["agent-bridge"].as_object().unwrap() {
            assert_eq!(written[key], *value, "{name}: {key}");
        }
    }
}
