//! The operator's document is run as it is written: every block of commands, in order, on a machine of its own, with
//! two real releases and a host that comes and goes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops where it cannot go on, or says why it is skipped"
)]
#![cfg(unix)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_bridge::digest;
use agent_bridge::platform;
use agent_bridge::release::identity;
use support::bundle::Project;
use support::prelude::*;
use support::release::set_mode;
use support::world::{find_program, write};

/// One fenced block of commands.
struct Block {
    /// The headings above it: of the chapter, and below that.
    chapter: String,
    section: String,
    /// What follows `sh` on the line of the fence.
    mark: String,
    text: String,
}

fn document() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("HANDOFF.md")).unwrap()
}

/// Every block of the document; one that is not of commands fails the test.
fn blocks(document: &str) -> Vec<Block> {
    let (mut chapter, mut section) = (String::new(), String::new());
    let mut found: Vec<Block> = Vec::new();
    let mut fenced = false;
    for line in document.lines() {
        if let Some(info) = line.strip_prefix("```") {
            if !fenced {
                let mark = info.strip_prefix("sh").unwrap_or_else(|| panic!("a block of {info:?}"));
                found.push(Block {
                    chapter: chapter.clone(),
                    section: section.clone(),
                    mark: mark.trim().to_owned(),
                    text: String::new(),
                });
            }
            fenced = !fenced;
        } else if fenced {
            let block = found.last_mut().unwrap();
            block.text += line;
            block.text.push('\n');
        } else if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut chapter);
            section.clear();
        } else if let Some(heading) = line.strip_prefix("### ") {
            heading.clone_into(&mut section);
        }
    }
    assert!(!fenced, "a block does not end");
    found
}

/// The program under test as a build of this revision would be: its identity, and nothing else, is another one.
fn built_of(git_sha: &str) -> Option<Vec<u8>> {
    let mut own = identity::own().unwrap();
    let mut program = std::fs::read(support::world::BRIDGE).unwrap();
    // In two parts, so that this test is not taken for a program.
    let marker = ["\n[agent-bridge ", "identity 1] "].concat();
    let start = memchr::memmem::find(&program, marker.as_bytes())? + marker.len();
    let length = memchr::memmem::find(&program[start..], b"\n[identity ends]\n")?;
    own.git_sha = Some(git_sha.to_owned());
    own.commit_time = None;
    own.dirty = false;
    let mut text = serde_json::to_vec(&own).unwrap();
    if text.len() > length {
        return None;
    }
    text.resize(length, b' ');
    program[start..start + length].copy_from_slice(&text);
    Some(program)
}

/// The operator's machine, which also is the build machine.
struct Site {
    project: Project,
    words: BTreeMap<&'static str, String>,
}

impl Drop for Site {
    /// What is read-only would outlive the folder of the world.
    fn drop(&mut self) {
        for name in ["ROOT", "NEW_ROOT"] {
            let _ = platform::remove_durable(Path::new(&self.words[name]));
        }
    }
}

impl Site {
    fn new() -> Self {
        let project = Project::new();
        let world = &project.world;
        // As a new machine has none; nobody else may read what the program makes there.
        std::fs::remove_dir_all(world.home().join(".agent-bridge")).unwrap();
        std::fs::create_dir(world.home().join("projects")).unwrap();
        write(&world.home().join(".codex").join("config.toml"), "# mine\nmodel = \"a-model\"\n");
        let usual = match std::env::consts::OS {
            "macos" => world.home().join("Library/Application Support/agent-bridge"),
            _ => world.home().join(".local/share/agent-bridge"),
        };
        let words = [
            ("ROOT", usual),
            ("NEW_ROOT", world.path().join("moved")),
            ("EVIDENCE", world.path().join("evidence")),
            ("STAGED", world.path().join("staged.json")),
        ];
        let words = words.map(|(word, path)| (word, path.to_str().unwrap().to_owned())).into();
        let mut site = Self { project, words };
        let search =
            std::env::join_paths([site.root().join("bin")].into_iter().chain(std::env::split_paths(
                &site.project.world.env()["PATH".as_ref() as &std::ffi::OsStr],
            )));
        site.project.world.set_env("PATH", search.unwrap());
        site
    }

    fn root(&self) -> PathBuf {
        PathBuf::from(&self.words["ROOT"])
    }

    /// Builds the program of the commit that is checked out. None if this program cannot be made to look like one.
    fn build(&self) -> Option<()> {
        let world = &self.project.world;
        let program = built_of(&world.git(["rev-parse", "HEAD"]))?;
        let path = world.file("target/release/agent-bridge");
        write(&path, program);
        set_mode(&path, 0o755);
        if cfg!(target_os = "macos") {
            let mut sign = world.command("codesign");
            sign.args(["--force", "--sign", "-"]).arg(&path);
            process::run(sign, DEADLINE).expect_code(0);
        }
        Some(())
    }

    /// Makes the words say this bundle, which may not be there yet.
    fn speak_of(&mut self, bundle: &Path) {
        let sha = self.project.world.git(["rev-parse", "HEAD"]);
        self.words.insert("ID", format!("{}+{}", env!("CARGO_PKG_VERSION"), &sha[..7]));
        self.words.insert("BUNDLE", bundle.to_str().unwrap().to_owned());
        if let Ok((sha256, _)) = digest::of_file(bundle) {
            self.words.insert("HASH", sha256);
        }
    }

    /// Another commit, its program, its bundle elsewhere, and a config for it.
    fn next_release(&mut self) -> Option<()> {
        self.project.world.write("CHANGELOG.md", "# Changelog\n\nSomething else.\n");
        self.project.world.git(["commit", "--quiet", "--all", "--message=Next"]);
        self.build()?;
        let out = self.project.world.path().join("next.mcpb");
        let mut package = self.project.world.command(self.project.world.file("target/release/agent-bridge"));
        package.args(["package", "--out"]).arg(&out);
        process::run(package, DEADLINE).expect_code(0);
        self.speak_of(&out);
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(self.root().join("config.json")).unwrap()).unwrap();
        config["maxConcurrentTurns"] = json!(3);
        let text = format!("{config:#}\n");
        write(Path::new(&self.words["STAGED"]), &text);
        self.words.insert("STAGED_HASH", digest::of_bytes(text.as_bytes()));
        Some(())
    }

    /// The text with the operator's words in it.
    fn filled_in(&self, text: &str) -> String {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut filled = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(is_word) {
            let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |length| start + length);
            filled += &rest[..start];
            let word = &rest[start..end];
            filled += self.words.get(word).map_or(word, String::as_str);
            rest = &rest[end..];
        }
        filled + rest
    }

    /// Runs a block; each command in it counts.
    #[track_caller]
    fn run(&self, block: &Block) -> Finished {
        let mut shell = self.project.world.command("/bin/sh");
        shell.args(["-eu", "-c", &self.filled_in(&block.text)]);
        process::run(shell, 3 * DEADLINE)
    }

    /// What is current.
    fn current(&self) -> Value {
        let mut inspect = self.project.world.command(self.root().join("bin/agent-bridge"));
        inspect.args(["inspect", "--json"]);
        process::run(inspect, DEADLINE).expect_code(0).json()["current"].clone()
    }
}

#[test]
fn every_block_of_the_document_does_what_it_says() {
    for tool in ["unzip", "sha256sum"] {
        if find_program(tool).is_none() {
            eprintln!("SKIPPED: there is no {tool}");
            return;
        }
    }
    let mut site = Site::new();
    if site.build().is_none() {
        eprintln!("SKIPPED: this program was built outside a checkout");
        return;
    }
    let name = format!(
        "agent-bridge-v{}-{}-{}.mcpb",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    let bundle = site.project.dist().join(name);
    site.speak_of(&bundle);

    let (mut ran, mut elsewhere) = (0, 0);
    let mut chapter = String::new();
    let mut host: Option<Host> = None;
    for block in blocks(&document()) {
        if block.chapter != chapter {
            match block.chapter.as_str() {
                "2. The first time on a machine" => site.speak_of(&bundle),
                "3. A new release" => site.next_release().unwrap(),
                "4. Back" => assert_eq!(site.current()["releaseId"], json!(site.words["ID"])),
                _ => {}
            }
            chapter.clone_from(&block.chapter);
        }
        let code = match block.mark.as_str() {
            "" => 0,
            "elsewhere" => {
                elsewhere += 1;
                continue;
            }
            mark => mark.strip_prefix("exits=").and_then(|code| code.parse().ok()).expect(mark),
        };
        if let Some(mut host) = host.take() {
            host.hang_up();
            host.wait_exit(DEADLINE).expect_code(0);
        }
        if code == 2 && block.section == "Start one host" {
            let mut command = site.project.world.command(site.root().join("bin/agent-bridge"));
            command.arg("serve");
            let mut started = Host::start(command);
            started.initialize();
            host = Some(started);
        }
        let finished = site.run(&block);
        assert_eq!(
            finished.code,
            Some(code),
            "{} / {}:\n{}\n{finished}",
            block.chapter,
            block.section,
            block.text
        );
        if host.is_some() {
            assert!(finished.stdout().contains(&site.words["ID"]), "{finished}");
        }
        ran += 1;
    }
    assert_eq!(elsewhere, 3, "blocks that no test runs");
    assert!(ran >= 19, "only {ran} blocks were run");
    assert!(!site.root().exists() && !Path::new(&site.words["NEW_ROOT"]).exists(), "something was left");
    let codex = std::fs::read_to_string(site.project.world.home().join(".codex/config.toml")).unwrap();
    assert_eq!(codex, "# mine\nmodel = \"a-model\"\n", "the host's file is as it was at first");
    for record in [
        "release/canary-release",
        "launch/canary-launch",
        "config/canary-config",
        "rehearsal/rehearsal",
        "pointer/canary-pointer",
    ] {
        let path = Path::new(&site.words["EVIDENCE"]).join(record).with_extension("json");
        assert!(path.is_file(), "{} is not there", path.display());
    }
}

#[test]
fn every_word_to_fill_in_is_explained() {
    let text = document();
    let explained: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    let mut known = vec!["NEW_ROOT"];
    known.extend(explained);
    for block in blocks(&text) {
        for word in block.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let is_placeholder = word.len() > 1
                && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                && word != "SHA256SUMS";
            assert!(!is_placeholder || known.contains(&word), "{word} in\n{}", block.text);
        }
    }
}
