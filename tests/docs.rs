//! What the documents say has to be true of the program as it is.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use support::prelude::*;

/// The documents about the program, by path below the project's folder.
const DOCUMENTS: [&str; 13] = [
    "README.md",
    "HANDOFF.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/antigravity.md",
    "docs/architecture.md",
    "docs/configuration.md",
    "docs/field-reports.md",
    "docs/mock-agent.md",
    "docs/observation.md",
    "docs/portability.md",
    "docs/release.md",
    "docs/scope.md",
];

/// Names that look like a code and are not: variables, a system call, and words to fill in.
const NO_CODES: [&str; 13] = [
    "ANTHROPIC_API_KEY",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_API_KEY",
    "GEMINI_CLI_HOME",
    "GEMINI_CLI_TRUST_WORKSPACE",
    "F_FULLFSYNC",
    "NEW_ROOT",
    "NO_COLOR",
    "NO_PROXY",
    "OPENAI_API_KEY",
    "STAGED_HASH",
    "TMPDIR",
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The code of a document: lines of fenced blocks without their comments, and spans between backticks.
fn code(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            found.push(line.split(" #").next().unwrap_or_default().trim().to_owned());
        } else {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    found.extend(prose.split('`').skip(1).step_by(2).map(|span| span.replace(['\n', '\\'], " ")));
    found
}

/// The table below the heading row that starts with these cells, as rows of cells.
#[track_caller]
fn table(text: &str, first_cells: &str) -> Vec<Vec<String>> {
    let (_, after) = text.split_once(&format!("\n| {first_cells} |")).expect(first_cells);
    after
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            line.replace("\\|", "/").trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
}

/// Calls of the program in this text: words of subcommands, and the options that follow.
fn calls(text: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let mut found = Vec::new();
    for piece in text.split("agent-bridge ").skip(1) {
        // Another program may follow in a pipeline, and prose after the span.
        let piece = piece.split(['|', '<', ';']).next().unwrap_or_default();
        let mut words = piece.split_whitespace().peekable();
        let mut path = Vec::new();
        let is_name =
            |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
        while let Some(word) = words.next_if(|word| is_name(word)) {
            let groups = ["canary", "config", "runs", "scope", "sessions", "state", "turns"];
            let more = path.is_empty() && groups.contains(&word);
            path.push(word.to_owned());
            if !more {
                break;
            }
        }
        let options = words.take_while(|word| *word != "--").filter(|word| word.starts_with("--"));
        let options = options.map(|word| word.split('=').next().unwrap_or_default().to_owned()).collect();
        if !path.is_empty() {
            found.push((path, options));
        }
    }
    found
}

#[test]
fn every_command_and_option_that_is_named_exists() {
    let world = World::new().build();
    let mut helps: BTreeMap<Vec<String>, String> = BTreeMap::new();
    let mut checked = 0;
    let explain = world.bridge(["explain", "--json"]).json();
    let remedies =
        explain["codes"].as_array().unwrap().iter().map(|code| code["remedy"].as_str().unwrap().to_owned());
    let texts = DOCUMENTS.iter().map(|path| ((*path).to_owned(), read(path)));
    for (place, text) in texts.chain(remedies.map(|remedy| ("a remedy".to_owned(), remedy))) {
        for span in code(&text) {
            for (path, options) in calls(&span) {
                // It takes any argument list, so there is no help to compare with.
                if path == ["mock-agent"] {
                    continue;
                }
                let help = helps.entry(path.clone()).or_insert_with(|| {
                    let finished = world.bridge(path.iter().map(String::as_str).chain(["--help"]));
                    assert_eq!(finished.code, Some(0), "{place} names {path:?}: {finished}");
                    finished.stdout().to_owned()
                });
                for option in options {
                    assert!(help.contains(&option), "{place} names {option} of {path:?}");
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 120, "only {checked} calls were found");
}

#[test]
fn every_code_that_is_named_can_be_explained() {
    let world = World::new().build();
    let explain = world.bridge(["explain", "--json"]).json();
    let known: BTreeSet<&str> =
        explain["codes"].as_array().unwrap().iter().map(|code| code["code"].as_str().unwrap()).collect();
    let looks_like_one = |word: &str| {
        word.trim_end_matches('_').contains('_')
            && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            && !word.starts_with("AGENT_BRIDGE_")
            && !NO_CODES.contains(&word)
    };
    let mut named = 0;
    for path in DOCUMENTS {
        for span in code(&read(path)) {
            for word in
                span.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| looks_like_one(w))
            {
                assert!(known.contains(word), "{path} names {word}, which is no code");
                named += 1;
            }
        }
    }
    assert!(named >= 15, "only {named} codes were found");
}

#[test]
fn the_readme_lists_the_tools_that_are_offered() {
    let world = World::new().build();
    let mut host = world.host();
    host.initialize();
    let offered = host.request("tools/list", json!({}));
    let offered: Vec<String> = offered["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| format!("`{}`", tool["name"].as_str().unwrap()))
        .collect();
    let listed: Vec<String> =
        table(&read("README.md"), "tool | what it does").into_iter().map(|mut row| row.remove(0)).collect();
    assert_eq!(listed, offered);
}

/// The dotted keys that a schema allows; `<id>` stands for any agent.
fn keys(root: &Value, schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => root.pointer(&reference[1..]).unwrap(),
        None => schema,
    };
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if let Some(properties) = schema["properties"].as_object() {
        for (name, schema) in properties {
            keys(root, schema, &below(name), found);
        }
    } else if schema["propertyNames"].is_object() {
        keys(root, &schema["additionalProperties"], &below("<id>"), found);
    } else {
        found.insert(path.to_owned());
    }
}

#[test]
fn the_key_tables_have_exactly_the_keys_of_the_schema() {
    let world = World::new().build();
    let schema = world.bridge(["config", "schema"]).json();
    let mut allowed = BTreeSet::new();
    keys(&schema, &schema, "", &mut allowed);
    let text = read("docs/configuration.md");
    let mut documented = BTreeSet::new();
    for part in text.split("\n## ").nth(2).unwrap().split("\n### ") {
        for row in table(part, "key | default | meaning") {
            assert!(documented.insert(row[0].trim_matches('`').to_owned()), "{} is there twice", row[0]);
        }
    }
    assert_eq!(documented, allowed);
}

#[test]
fn the_documented_defaults_are_the_effective_ones() {
    let world = World::new().build();
    let explained = world.bridge(["config", "explain", "--json"]).expect_code(0).json();
    let effective = |key: &str| {
        let key = key.replace("<id>", "codex");
        let values = explained["values"].as_array().unwrap();
        values
            .iter()
            .find(|value| value["key"] == key && value["origin"] == "default")
            .map(|value| value["value"].clone())
    };
    let mut compared = 0;
    for part in read("docs/configuration.md").split("\n### ") {
        if !part.contains("\n| key | default | meaning |") {
            continue;
        }
        for row in table(part, "key | default | meaning") {
            let (key, default) = (row[0].trim_matches('`'), row[1].trim_matches('`'));
            let Some(value) = effective(key) else { continue };
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match default {
                "" => assert_eq!(value, Value::Null, "{key}"),
                // In words.
                "all" | "see above" | "the id" | "the CLI's" | "the global one" => {}
                _ => {
                    assert_eq!(default, shown, "{key}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared >= 15, "only {compared} defaults were compared");
}

#[test]
fn the_example_config_is_the_one_in_the_readme_and_loads_without_a_warning() {
    let example = read("templates/config.example.json");
    assert!(read("README.md").contains(&format!("```json\n{example}```")), "the README shows another one");
    let world = World::new().build();
    std::fs::create_dir(world.home().join("projects")).unwrap();
    world.write_config(&serde_json::from_str(&example).unwrap());
    let check = world.bridge(["config", "check", "--json"]).expect_code(0).json();
    assert_eq!((&check["problems"], &check["warnings"]), (&json!([]), &json!([])));
}

/// The tables of a TOML file whose values are JSON as well, which is all that the template needs.
fn simple_toml(text: &str) -> BTreeMap<String, BTreeMap<String, Value>> {
    let mut tables = BTreeMap::new();
    let mut current: Option<&mut BTreeMap<String, Value>> = None;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            current = Some(tables.entry(name.to_owned()).or_insert_with(BTreeMap::new));
        } else {
            let (key, value) = line.split_once(" = ").expect(line);
            current
                .as_mut()
                .expect("a table first")
                .insert(key.to_owned(), serde_json::from_str(value).expect(line));
        }
    }
    tables
}

#[test]
fn the_client_templates_start_the_server() {
    let codex = simple_toml(&read("templates/clients/codex.toml"));
    let codex = serde_json::to_value(&codex["mcp_servers.agent-bridge"]).unwrap();
    assert!(codex["tool_timeout_sec"].as_u64().unwrap() > 45 + 30, "longer than the longest ordinary call");
    assert_eq!(codex["default_tools_approval_mode"], "approve");
    let readme = read("README.md");
    let block = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let shown = simple_toml(block);
    assert_eq!(serde_json::to_value(&shown["mcp_servers.agent-bridge"]).unwrap(), codex);

    let mut servers = vec![("codex.toml", codex)];
    for name in ["claude-code.json", "claude-desktop.json", "gemini.json"] {
        let file: Value = serde_json::from_str(&read(&format!("templates/clients/{name}"))).expect(name);
        servers.push((name, file["mcpServers"]["agent-bridge"].clone()));
    }
    let world = World::new().build();
    for (name, server) in servers {
        assert_eq!(server["command"], "/absolute/path/to/agent-bridge", "{name}");
        let arguments: Vec<&str> =
            server["args"].as_array().expect(name).iter().map(|a| a.as_str().unwrap()).collect();
        let mut host = world.host_with(arguments);
        host.initialize();
        host.hang_up();
        host.wait_exit(DEADLINE).expect_code(0);
    }
}

/// The manifest's server environment, with the dialog's defaults filled in.
fn bundle_environment(world: &World) -> BTreeMap<String, String> {
    let text = read("manifest.template.json")
        .replace("{{version}}", "0.1.0")
        .replace("{{executable}}", "agent-bridge")
        .replace("{{platform}}", "linux");
    let manifest: Value = serde_json::from_str(&text).unwrap();
    let home = world.home().to_string_lossy().into_owned();
    let settings = manifest["user_config"].as_object().unwrap();
    let variables = manifest["server"]["mcp_config"]["env"].as_object().unwrap();
    let mut used = BTreeSet::new();
    let environment = variables
        .iter()
        .map(|(name, value)| {
            let mut value = value.as_str().unwrap().to_owned();
            for (setting, description) in settings {
                let placeholder = format!("${{user_config.{setting}}}");
                if value.contains(&placeholder) {
                    used.insert(setting.clone());
                    let default = &description["default"];
                    let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
                    value = value.replace(&placeholder, &default);
                }
            }
            let value = value.replace("${HOME}", &home);
            assert!(!value.contains("${") && !value.contains("{{"), "{name} keeps a placeholder: {value}");
            (name.clone(), value)
        })
        .collect();
    assert_eq!(used, settings.keys().cloned().collect(), "every setting of the dialog is handed over");
    environment
}

#[test]
fn the_extension_s_environment_is_a_config() {
    let mut world = World::new().build();
    std::fs::create_dir(world.home().join("projects")).unwrap();
    for (name, value) in bundle_environment(&world) {
        world.set_env(name, value);
    }
    let check = world.bridge(["config", "check", "--json"]).expect_code(0).json();
    assert_eq!((&check["ok"], &check["warnings"]), (&json!(true), &json!([])), "{check}");
    let path = world.bridge(["config", "path"]).expect_code(0);
    assert_eq!(path.stdout(), "MCPB:user_config\n", "the file in the home folder is not used");
    let ceiling = world.bridge(["config", "explain", "policy.sandboxCeiling", "--json"]).json();
    assert_eq!(ceiling["values"][0]["value"], "read-only");
}

#[test]
fn every_variable_of_the_extension_is_read() {
    for name in bundle_environment(&World::new().build())
        .into_keys()
        .filter(|name| name != "AGENT_BRIDGE_BUNDLE_MODE")
    {
        let mut world = World::new().build();
        std::fs::create_dir(world.home().join("projects")).unwrap();
        for (name, value) in bundle_environment(&world) {
            world.set_env(name, value);
        }
        world.set_env(&name, "no such thing");
        let check = world.bridge(["config", "check"]).expect_code(3);
        assert!(check.stdout().contains(&name), "nonsense in {name} is told: {check}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut followed = 0;
    for path in DOCUMENTS {
        let text = read(path);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") || target.starts_with('#') {
                continue;
            }
            let target_path = folder.parent().unwrap().join(target);
            assert!(target_path.exists(), "{path} links to {target}");
            followed += 1;
        }
    }
    assert!(followed > 10, "only {followed} links were found");
}

#[test]
fn a_documented_call_is_found_wherever_it_is_written() {
    let text = "Use `agent-bridge turns\nwait ID --timeout 3`.\n```sh\ngit diff | agent-bridge delegate codex --cwd . # ours\n```\n";
    let calls: Vec<_> = code(text).iter().flat_map(|span| calls(span)).collect();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        calls,
        [(words(&["delegate"]), words(&["--cwd"])), (words(&["turns", "wait"]), words(&["--timeout"]))]
    );
}

#[test]
fn every_field_report_has_tests_that_exist() {
    let rows = table(&read("docs/field-reports.md"), "no. | what happened | tests");
    let numbers: Vec<u32> = rows.iter().map(|row| row[0].parse().expect("a number")).collect();
    let wanted: Vec<u32> = [26, 27, 34].into_iter().chain(40..=42).chain(64..=69).chain(73..=94).collect();
    assert_eq!(numbers, wanted);
    for row in &rows {
        let mut named = 0;
        for part in row[2].split("; ") {
            let (file, tests) = part.split_once(": ").expect("a file and its tests");
            let text = read(file.trim_matches('`'));
            for test in tests.split(", ").map(|test| test.trim_matches('`')) {
                let at = text.find(&format!("fn {test}(")).unwrap_or_else(|| panic!("{file} has no {test}"));
                // A test, and not a function of that name.
                let above = text[..at].lines().rev().take_while(|line| !line.is_empty()).collect::<Vec<_>>();
                let marked = above.iter().any(|line| line.contains("#[test]") || line.contains("proptest!"));
                assert!(marked || file.contains("client_files"), "{file}: {test} is no test");
                named += 1;
            }
        }
        assert!(named > 0, "{} has no test", row[0]);
    }
}
