//! The house rules that a compiler doesn't check: arrows go downward, the operating system stays in
//! its rooms, durable writes go through one door, and the project speaks of itself alone.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

/// Rooms from the top of the house to its ground; a room may use those below it and its own floor.
const FLOORS: &[&[&str]] = &[
    &["main", "cli"],
    &["mcp"],
    &["bridge", "relay", "release", "doctor"],
    &["agents", "scope", "store", "config", "policy", "observe"],
    &["process", "platform"],
    &["context", "digest", "error"],
];

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                if is_test_file(path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap()) {
                    continue;
                }
                found.push((path.clone(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() > 30, "the source was not found");
    found
}

fn room(path: &Path) -> String {
    let inside = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// Files that hold only tests of the room they lie in.
fn is_test_file(path: &Path) -> bool {
    let text = path.to_string_lossy().replace('\\', "/");
    text.ends_with("/tests.rs") || text.ends_with("_tests.rs") || text.contains("/tests/")
}

/// Product code only: tests in a file may use what they like.
fn product(text: &str) -> &str {
    match text.find("\nmod tests {").or_else(|| text.find("\npub(crate) mod tests {")) {
        Some(tests) => &text[..tests],
        None => text,
    }
}

#[test]
fn arrows_go_downward_only() {
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let from = room(&path);
        if from == "lib" {
            continue;
        }
        let from_floor =
            floor(&from).unwrap_or_else(|| panic!("room `{from}` has no floor: add it to FLOORS"));
        for (number, line) in product(&text).lines().enumerate() {
            let code = line.split("//").next().unwrap();
            for used in code.split("crate::").skip(1) {
                let name: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if let Some(to) = floor(&name)
                    && to < from_floor
                {
                    faults.push(format!("{}:{}: `{from}` uses `{name}`", path.display(), number + 1));
                }
            }
        }
    }
    assert!(faults.is_empty(), "arrows that go upward:\n{}", faults.join("\n"));
}

#[test]
fn the_operating_system_stays_in_its_rooms() {
    let markers = [
        "cfg(unix",
        "cfg(windows",
        "cfg(target_os",
        "cfg(not(windows",
        "cfg(not(unix",
        "std::os::unix",
        "std::os::windows",
    ];
    let faults: Vec<String> = sources()
        .iter()
        .filter(|(path, _)| !["platform", "process"].contains(&room(path).as_str()))
        // The scripted agent plays a foreign program, with the tricks of each system.
        .filter(|(path, _)| !path.to_string_lossy().replace('\\', "/").contains("agents/mock_program"))
        .flat_map(|(path, text)| {
            product(text)
                .lines()
                .enumerate()
                .filter(|(_, line)| markers.iter().any(|marker| line.contains(marker)))
                .map(|(number, line)| format!("{}:{}: {}", path.display(), number + 1, line.trim()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(
        faults.is_empty(),
        "differences between systems outside platform/ and process/:\n{}",
        faults.join("\n")
    );
}

#[test]
fn there_is_one_door_for_durable_writes() {
    let bare = ["fs::rename(", "fs::write(", ".persist(", "fs::copy("];
    let faults: Vec<String> = sources()
        .iter()
        .filter(|(path, _)| room(path) != "platform")
        // The demo's throwaway files need no durability, and the scripted agent writes what a worker would.
        .filter(|(path, _)| {
            !path.ends_with("cli/demo.rs")
                && !path.to_string_lossy().replace('\\', "/").contains("agents/mock")
        })
        .flat_map(|(path, text)| {
            product(text)
                .lines()
                .enumerate()
                .filter(|(_, line)| bare.iter().any(|call| line.contains(call)))
                .map(|(number, line)| format!("{}:{}: {}", path.display(), number + 1, line.trim()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(faults.is_empty(), "writes that bypass platform::write_durable:\n{}", faults.join("\n"));
}

#[test]
fn unsafe_code_stays_on_the_ground() {
    let faults: Vec<String> = sources()
        .iter()
        .filter(|(path, _)| !["platform", "process"].contains(&room(path).as_str()))
        .filter(|(_, text)| text.lines().any(|line| line.split("//").next().unwrap().contains("unsafe ")))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert!(faults.is_empty(), "unsafe outside platform/ and process/: {faults:?}");
}
