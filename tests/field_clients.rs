//! What went wrong in the field when tools wrote themselves into clients' files, once each.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use support::clients::{ClientWorld, one};
use support::prelude::*;
use support::release::{Release, ReleaseWorld};
use support::world::{link, write};

// 74
#[test]
fn written_to_the_file_that_the_client_reads() {
    let mut world = ClientWorld::new();
    let decoys = [
        world.put(".codex/config.toml", "a = 1\n"),
        world.put(".claude.json", "{}"),
        world.put(".claude/settings.json", "{}"),
        world.put(".gemini/settings.json", "{}"),
    ];
    let elsewhere = world.path().join("elsewhere");
    for (variable, file, content) in [
        ("CODEX_HOME", "config.toml", ""),
        ("CLAUDE_CONFIG_DIR", ".claude.json", "{}"),
        ("GEMINI_CLI_HOME", ".gemini/settings.json", "{}"),
    ] {
        write(&elsewhere.join(variable).join(file), content);
        world.set_env(variable, elsewhere.join(variable));
    }
    let before: Vec<_> = decoys.iter().map(|path| fs::read(path).unwrap()).collect();
    let document = world.configured(["--apply", "--allow-headless"]);
    for (client, variable) in
        [("codex", "CODEX_HOME"), ("claude-code", "CLAUDE_CONFIG_DIR"), ("gemini", "GEMINI_CLI_HOME")]
    {
        let plan = one(&document, client);
        assert_eq!(plan["why"], format!("{variable} is set"));
        let file = plan["file"].as_str().unwrap();
        assert!(file.starts_with(elsewhere.join(variable).to_str().unwrap()), "{file}");
        assert!(fs::read_to_string(file).unwrap().contains("agent-bridge"));
    }
    assert!(elsewhere.join("CLAUDE_CONFIG_DIR/settings.json").exists(), "the rule goes there as well");
    let after: Vec<_> = decoys.iter().map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(after, before);
    // Without the variables the client looks at home, where nothing is registered: no word of "already".
    for variable in ["CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME"] {
        world.remove_env(variable);
    }
    let check = world.configured(["--check"]);
    for client in ["codex", "claude-code", "gemini"] {
        assert_eq!(one(&check, client)["verdict"]["effect"], "not-registered", "{client}");
    }
    // Set to nothing is not set.
    world.set_env("CODEX_HOME", "");
    assert_eq!(one(&world.configured([]), "codex")["file"], world.codex().to_str().unwrap());
}

// 75
#[test]
fn the_entry_alone_starts_the_same_server() {
    let release = ReleaseWorld::new();
    let id = release.place(&Release::of_bridge("1.0.0"));
    release.make_current(&id);
    let mut world = ClientWorld::of(release);
    let state = world.path().join("the state");
    let config = world.config();
    let mut config = config;
    config["stateDir"] = json!(state);
    write(&world.layout().config(), config.to_string());
    world.put(".claude.json", "{}");
    world.set_env("AGENT_BRIDGE_STATE_DIR", &state);
    world.configured(["--apply"]);
    let server = world.server(&world.claude());
    assert_eq!(server["env"]["AGENT_BRIDGE_STATE_DIR"], state.to_str().unwrap());
    world.expect_server(&server);
    // Nothing but what the entry says.
    let mut command = std::process::Command::new(server["command"].as_str().unwrap());
    command.env_clear().current_dir("/");
    command.args(server["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()));
    for (name, value) in server["env"].as_object().unwrap() {
        command.env(name, value.as_str().unwrap());
    }
    command.env("PATH", "/usr/bin:/bin");
    let mut host = Host::start(command);
    host.initialize();
    let install = host.call("diagnose_install", json!({})).ok().structured.clone();
    assert!(install.to_string().contains(state.to_str().unwrap()), "{install:#}");
    assert!(install.to_string().contains(&world.config_file()), "{install:#}");
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
}

// 76
#[test]
fn a_comment_does_not_empty_the_file() {
    let world = ClientWorld::new();
    let text = "{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}, /* b */\n    \"b\": {\"command\": \"y\"}\n  }\n}\n";
    world.put(".gemini/settings.json", text);
    world.put(".claude.json", text);
    let run = world.configure(["--client", "claude-code", "--apply"]).expect_code(2);
    assert!(format!("{run}").contains("a comment, which this client does not read"), "{run}");
    assert_eq!(fs::read_to_string(world.claude()).unwrap(), text);
    world.configured(["--client", "gemini", "--apply"]);
    let after = fs::read_to_string(world.gemini()).unwrap();
    for line in text.lines().filter(|line| !line.contains("\"b\"")) {
        assert!(after.contains(line), "{line} is gone from {after}");
    }
    world.configured(["--client", "gemini", "--remove", "--apply"]);
    assert_eq!(fs::read_to_string(world.gemini()).unwrap(), text);
}

// 77
#[test]
fn what_cannot_be_read_is_not_taken_for_absent() {
    let huge = format!("{{\"x\":\"{}\"}}", "y".repeat(20 * 1024 * 1024));
    let cases: [(&str, Option<&[u8]>); 7] = [
        ("broken", Some(b"{ \"mcpServers\": {")),
        ("empty", Some(b"")),
        ("not UTF-8", Some(b"{\"a\":\"\xff\xfe\"}")),
        ("zeros", Some(&[0; 100])),
        ("too large", Some(huge.as_bytes())),
        ("a folder", None),
        ("a pipe", None),
    ];
    for (what, content) in cases {
        let world = ClientWorld::new();
        world.put(".codex/config.toml", "a = 1\n");
        match (what, content) {
            (_, Some(bytes)) => drop(world.put(".claude.json", bytes)),
            ("a folder", None) => fs::create_dir(world.claude()).unwrap(),
            _ => {
                let made = std::process::Command::new("mkfifo").arg(world.claude()).status().unwrap();
                assert!(made.success());
            }
        }
        let names = || -> Vec<_> {
            let mut names: Vec<_> =
                fs::read_dir(world.home()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        let document = world.configure([]).expect_code(2).json();
        let claude = one(&document, "claude-code");
        assert_eq!(claude["errors"][0]["code"], "CLIENT_FILE_UNREADABLE", "{what}: {claude:#}");
        assert_eq!(one(&document, "codex")["action"], "update", "{what}: the others are not affected");
        world.configure(["--apply"]).expect_code(2);
        world.configure(["--remove", "--apply"]);
        assert_eq!(names(), before, "{what}: litter");
        if let Some(bytes) = content {
            assert!(fs::read(world.claude()).unwrap() == bytes, "{what} was changed");
        }
        assert_eq!(fs::read(world.codex()).unwrap(), b"a = 1\n");
        assert!(!world.layout().root().join("backups").join("000001-configure-clients").exists());
    }
    // A file without any permission; root may read it all the same.
    let world = ClientWorld::new();
    let path = world.put(".codex/config.toml", "a = 1\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    world.configure(["--client", "codex", "--apply"]).expect_code(2);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"a = 1\n");
}

// 78
#[test]
fn adding_one_entry_rewrites_nothing_else() {
    let world = ClientWorld::new();
    let text = "# head\n\n  spaced   =    [ 1,2,\n3 ]   # odd\n[unknown.\"table\"]\nx.y.z = '''\n[mcp_servers.agent-bridge]\n'''\n\n[mcp_servers . other] # theirs\ncommand='x'\nunknown_key = 1\n\n\n# tail";
    world.put(".codex/config.toml", text);
    world.configured(["--client", "codex", "--apply"]);
    let after = fs::read_to_string(world.codex()).unwrap();
    assert!(after.starts_with(text), "{after}");
    // Somebody adds a table, so that the old bytes are of no use any more.
    fs::write(world.codex(), format!("{after}\n[later]\n")).unwrap();
    world.configured(["--client", "codex", "--remove", "--apply"]);
    assert_eq!(fs::read_to_string(world.codex()).unwrap(), format!("{text}\n[later]\n"));
}

// 79
#[test]
fn a_linked_dotfile_stays_a_link() {
    let world = ClientWorld::new();
    let real = world.path().join("dotfiles").join("claude.json");
    write(&real, "{}");
    link(&real, &world.home_file("one"));
    link(Path::new("one"), &world.claude());
    let shm = Path::new("/dev/shm");
    let other = shm.is_dir().then(|| tempfile::tempdir_in(shm).unwrap());
    if let Some(other) = &other {
        write(&other.path().join("config.toml"), "a = 1\n");
        fs::create_dir_all(world.home_file(".codex")).unwrap();
        link(&other.path().join("config.toml"), &world.codex());
    }
    let document = world.configured(["--apply"]);
    assert!(world.claude().is_symlink() && world.home_file("one").is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("agent-bridge"), "the target has it");
    assert_eq!(one(&document, "claude-code")["target"], real.to_str().unwrap());
    if let Some(other) = &other {
        assert!(world.codex().is_symlink());
        assert!(fs::read_to_string(other.path().join("config.toml")).unwrap().contains("agent-bridge"));
    }
    fs::remove_file(&real).unwrap();
    let run = world.configure(["--client", "claude-code", "--apply"]).expect_code(2);
    assert!(
        format!("{run}").contains("CLIENT_LINK_UNUSABLE") || format!("{run}").contains("which is not there"),
        "{run}"
    );
    assert!(!real.exists());
}

// 80
#[test]
fn a_byte_order_mark_is_kept_where_it_is_read_and_never_added() {
    let world = ClientWorld::new();
    world.put(".codex/config.toml", "\u{feff}a = 1\r\n");
    world.put(".claude.json", "\u{feff}{}\r\n");
    world.put(".gemini/settings.json", "\u{feff}{}\n");
    world.put(".config/Claude/claude_desktop_config.json", "{}\n");
    let document = world.configured(["--apply"]);
    let marked = |path: &Path| fs::read(path).unwrap().starts_with(b"\xef\xbb\xbf");
    assert!(marked(&world.codex()) && marked(&world.claude()));
    assert!(!marked(&world.gemini()), "the client would not start");
    assert!(one(&document, "gemini")["warnings"].to_string().contains("byte order mark"), "and it is said");
    assert!(!marked(&world.desktop()));
    world.expect_server(&world.server(&world.claude()));
    world.configured(["--restore", document["txid"].as_str().unwrap(), "--apply"]);
    assert_eq!(fs::read_to_string(world.gemini()).unwrap(), "\u{feff}{}\n");
}

// 81
#[test]
fn the_entry_is_found_by_its_meaning() {
    let world = ClientWorld::new();
    world.put(".codex/config.toml", "# mine\na = 1\n");
    world.configured(["--client", "codex", "--apply"]);
    // The host wrote the file anew: no comments, other line ends, other quotes.
    let text = fs::read_to_string(world.codex()).unwrap();
    let rewritten: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            format!("{}\r\n", line.replace("[mcp_servers.agent-bridge]", "[mcp_servers.\"agent-bridge\"]"))
        })
        .collect();
    fs::write(world.codex(), &rewritten).unwrap();
    assert_eq!(world.configured(["--client", "codex", "--apply"])["status"], "unchanged");
    assert_eq!(one(&world.configured(["--check"]), "codex")["verdict"]["effect"], "effective");
    world.configured(["--client", "codex", "--remove", "--apply"]);
    assert_eq!(fs::read_to_string(world.codex()).unwrap(), "a = 1\r\n");
    world.configured(["--client", "codex", "--apply"]);
    let text = fs::read_to_string(world.codex()).unwrap();
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{text:?}");
}

// 82
#[test]
fn another_spelling_of_the_key_is_the_same_key() {
    for own in [
        "[mcp_servers.agent-bridge]\ncommand = 'x'\n",
        "[mcp_servers.\"agent-bridge\"]\ncommand = 'x'\n",
        "[mcp_servers.'agent_bridge']\ncommand = 'x'\n",
        "[ mcp_servers . Agent_Bridge ]\ncommand = 'x'\n",
        "[mcp_servers]\n\"agent\\u002Dbridge\" = { command = 'x' }\n",
        "[mcp_servers]\nagent-bridge.command = 'x'\n",
        "mcp_servers.agent-bridge.command = 'x'\n",
        "mcp_servers = { agent-bridge = { command = 'x' } }\n",
    ] {
        let world = ClientWorld::new();
        world.put(".codex/config.toml", own);
        world.configured(["--client", "codex", "--apply"]);
        let text = fs::read_to_string(world.codex()).unwrap();
        let document: toml_edit::DocumentMut = text.parse().unwrap_or_else(|error| panic!("{own}: {error}"));
        let servers = document["mcp_servers"].as_table_like().unwrap();
        assert_eq!(servers.len(), 1, "{text}");
        let (_, server) = servers.iter().next().unwrap();
        assert_eq!(server["command"].as_str(), Some(world.launcher().as_str()), "{text}");
    }
    let world = ClientWorld::new();
    let twice = "[mcp_servers.agent-bridge]\ncommand = 'x'\n[mcp_servers.agent_bridge]\ncommand = 'x'\n";
    world.put(".codex/config.toml", twice);
    let document = world.configure(["--client", "codex"]).expect_code(2).json();
    assert_eq!(one(&document, "codex")["errors"][0]["code"], "CLIENT_AMBIGUOUS");
    world.configure(["--client", "codex", "--apply"]).expect_code(2);
    assert_eq!(fs::read_to_string(world.codex()).unwrap(), twice);
}

// 83
#[test]
fn backslashes_survive_in_every_kind_of_string() {
    use agent_bridge::release::clients::table::Format;
    use agent_bridge::release::clients::{Leaf, Literal, Wanted, merge};
    for path in [
        r"C:\Users\new\tools\bridge.exe",
        r"C:\Users\it's\new.exe",
        "\\\\server\\share\\\"x\".exe",
        "/a b/テスト é'\"/x",
    ] {
        for before in [
            "",
            "[mcp_servers.agent-bridge]\ncommand = \"old\"\n",
            "[mcp_servers.agent-bridge]\ncommand = 'old'\n",
        ] {
            let command = Leaf { path: &["command"], value: Literal::Text(path.into()), overwrite: true };
            let wanted = Wanted::Server { section: "mcp_servers", leaves: vec![command] };
            let after = merge(Format::Toml, true, before, &wanted).unwrap().after;
            let document: toml_edit::DocumentMut =
                after.parse().unwrap_or_else(|error| panic!("{after}: {error}"));
            assert_eq!(document["mcp_servers"]["agent-bridge"]["command"].as_str(), Some(path), "{after}");
        }
    }
}

// 84
#[test]
fn a_file_that_changed_between_plan_and_apply_is_left() {
    let world = ClientWorld::new();
    world.put(".claude.json", "{}");
    let plan = world.path().join("plan.json");
    let plan = plan.to_str().unwrap();
    world.configured(["--plan-out", plan]);
    let theirs = "{\"theirs\": 1}";
    world.put(".claude.json", theirs);
    let run = world.configure(["--apply", plan]).expect_code(2);
    assert!(format!("{run}").contains("CLIENTS_PLAN_STALE"), "{run}");
    assert_eq!(fs::read_to_string(world.claude()).unwrap(), theirs);
    // Right after the write the host writes its own copy back: the check says so.
    world.configured(["--apply"]);
    world.put(".claude.json", theirs);
    let check = world.configure(["--check"]).expect_code(3).json();
    assert_eq!(one(&check, "claude-code")["verdict"]["effect"], "lost");
}
