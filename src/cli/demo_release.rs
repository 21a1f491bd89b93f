//! `agent-bridge demo --release`: the life of a release, in a throwaway installation.
//!
//! Every step is the real command, run as an operator would run it. Two releases are made of this very program; a
//! client is played over the launcher's standard streams; one cutover is killed in the middle.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::demo::{Args, failure, name_to_type, throwaway_folder};
use super::output::{Output, duration};
use super::paste;
use super::story::{Story, millis};
use crate::context::Context;
use crate::digest;
use crate::error::{Exit, Result};
use crate::release::layout::{Layout, program_name};
use crate::release::metadata::{self, FileRecord, Metadata, Range, StateSchema, Target, ToolCatalogue};
use crate::release::{identity, journal, pointer};

/// The second release: the same program under another revision.
const SECOND_REVISION: &str = "de30de30de30de30de30de30de30de30de30de30";

pub fn run(context: &Context, args: &Args, output: &mut Output) -> Result<Exit> {
    let began = Instant::now();
    let dir = throwaway_folder(context, args)?;
    let stage = Stage::set(context, dir)?;
    let mut story = Story::new(output, args.json);
    story.heading(&format!("The demo works in {}", stage.dir.display()));
    let result = play(&stage, &mut story);
    let steps = std::mem::take(&mut story.steps);
    if args.clean && result.is_ok() {
        let _ = crate::platform::remove_durable(&stage.dir);
    }
    result?;
    if args.json {
        output.document(
            "demo-release",
            &json!({ "dir": stage.dir, "ok": true, "steps": steps, "durationMs": millis(began) }),
        );
        return Ok(Exit::Ok);
    }
    output.line(format!("\nAll of it took {}.", duration(millis(began))));
    if !args.clean {
        let program = name_to_type(context);
        let root = stage.layout.root().to_string_lossy();
        let look = |command: &str| paste::line([program.as_str(), command, "--root", &root].into_iter());
        output.line(format!("\nLook at it:\n  {}\n  {}", look("inspect"), look("history")));
        let dir = stage.dir.to_string_lossy();
        let remove = if cfg!(windows) {
            format!("rmdir /s /q \"{dir}\"")
        } else {
            let [unlock, remove] = [&["chmod", "-R", "u+w"][..], &["rm", "-r"]]
                .map(|words| paste::line(words.iter().copied().chain([&*dir])));
            format!("{unlock} && {remove}")
        };
        output.line(format!("\nThe releases in it are read-only; remove it with:\n  {remove}"));
    }
    Ok(Exit::Ok)
}

/// The throwaway folder: a home, an installation, two releases.
struct Stage {
    dir: PathBuf,
    home: PathBuf,
    layout: Layout,
    exe: PathBuf,
    env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    releases: [(String, PathBuf); 2],
}

impl Stage {
    fn set(context: &Context, dir: PathBuf) -> Result<Self> {
        let home = dir.join("home");
        let repo = dir.join("repo");
        for folder in [&home, &repo, &home.join(".codex")] {
            crate::platform::create_private_dir(folder)?;
        }
        let layout = Layout::at(dir.join("installation"));
        layout.create()?;
        let config = json!({
            "allowedRoots": [repo], "stateDir": dir.join("state"),
            "agents": { "codex": { "enabled": false }, "claude": { "enabled": false } },
        });
        write(&layout.config(), format!("{config:#}\n").as_bytes())?;
        write(&home.join(".codex").join("config.toml"), b"# mine\nmodel = \"a-model\"\n")?;
        let first = identity::own()
            .ok()
            .and_then(|own| own.git_sha)
            .unwrap_or_else(|| "0123456789abcdef0123456789abcdef01234567".into());
        let releases = [first.as_str(), SECOND_REVISION].map(|revision| release(context, &dir, revision));
        let [one, two] = releases;
        let mut env: Vec<_> = context
            .env
            .iter()
            .filter(|(name, _)| !name.to_string_lossy().to_ascii_uppercase().starts_with("AGENT_BRIDGE_"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for name in ["HOME", "USERPROFILE"] {
            env.retain(|(key, _)| key != name);
            env.push((name.into(), home.clone().into()));
        }
        env.retain(|(key, _)| key != "CODEX_HOME" && key != "CLAUDE_CONFIG_DIR" && key != "APPDATA");
        Ok(Self { home, layout, exe: context.exe.clone(), env, releases: [one?, two?], dir })
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(self.env.iter().cloned()).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs an operator's command; gives its exit code, its document and its words.
    fn operator(&self, arguments: &[&str]) -> Result<(i32, Value, String)> {
        let root = self.layout.root().to_string_lossy().into_owned();
        let mut all = arguments.to_vec();
        all.extend(["--root", &root, "--json"]);
        let done = self.command(&self.exe, &all).output().map_err(|error| failure(arguments[0], error))?;
        let document = serde_json::from_slice(&done.stdout).unwrap_or(Value::Null);
        Ok((done.status.code().unwrap_or(-1), document, String::from_utf8_lossy(&done.stderr).into_owned()))
    }

    fn succeeds(&self, arguments: &[&str]) -> Result<Value> {
        match self.operator(arguments)? {
            (0, document, _) => Ok(document),
            (code, _, words) => Err(failure(&arguments.join(" "), format!("exit code {code}: {words}"))),
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    Ok(crate::platform::write_durable(path, bytes, 0o600)?)
}

/// A release made of this program, as a folder to install from; its id and the folder.
fn release(context: &Context, dir: &Path, revision: &str) -> Result<(String, PathBuf)> {
    let folder = dir.join(format!("release-{}", &revision[..7]));
    crate::platform::create_private_dir(&folder.join("server"))?;
    let program = std::fs::read(&context.exe).map_err(|error| failure("read this program", error))?;
    let runtime = format!("server/{}", program_name());
    let version = env!("CARGO_PKG_VERSION");
    let manifest = json!({
        "manifest_version": "0.3", "name": "agent-bridge", "version": version, "description": "A release of the demo.",
        "author": { "name": "agent-bridge contributors" },
        "server": { "type": "binary", "entry_point": runtime, "mcp_config": {
            "command": format!("${{__dirname}}/{runtime}"), "args": ["serve"], "env": { "AGENT_BRIDGE_BUNDLE_MODE": "1" } } },
        "user_config": { "allowed_root": { "type": "directory", "title": "Allowed folder", "description": "The one folder in which agents may work.", "required": true } },
        "_meta": { "io.github.agent-bridge.release": { "git_sha": revision, "runtime_sha256": digest::of_bytes(&program) } },
    });
    let manifest = format!("{manifest:#}\n").into_bytes();
    let record = |bytes: &[u8], mode: &str| FileRecord {
        sha256: digest::of_bytes(bytes),
        bytes: bytes.len() as u64,
        mode: mode.to_owned(),
    };
    let mut tools: Vec<Value> = serde_json::from_str(crate::mcp::catalogue::CATALOGUE).unwrap_or_default();
    tools.sort_by_key(|tool| tool["name"].to_string());
    let digests = tools
        .iter()
        .map(|tool| (tool["name"].as_str().unwrap_or_default().to_owned(), digest::of_json(tool)));
    let metadata = Metadata {
        schema_version: metadata::SCHEMA_VERSION,
        capability: metadata::CAPABILITY.into(),
        package: "agent-bridge".into(),
        version: version.into(),
        git_sha: revision.into(),
        built_at: "2026-01-01T00:00:00Z".into(),
        target: Target {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            triple: env!("AGENT_BRIDGE_TARGET").into(),
        },
        runtime: runtime.clone(),
        min_launcher_protocol: metadata::LAUNCHER_PROTOCOL,
        config_schema_version: Range { min: 1, max: 1 },
        state_schema_version: StateSchema::of_this_program(),
        tool_catalogue: ToolCatalogue {
            tools: digests.collect(),
            sha256: digest::of_json(&Value::Array(tools.clone())),
        },
        manifest_sha256: digest::of_bytes(&manifest),
        files: [
            (metadata::MANIFEST_FILE.to_owned(), record(&manifest, "0644")),
            (runtime.clone(), record(&program, "0755")),
        ]
        .into(),
    };
    write(&folder.join(metadata::MANIFEST_FILE), &manifest)?;
    write(&folder.join("server").join(program_name()), &program)?;
    write(&folder.join(metadata::METADATA_FILE), &metadata.to_bytes())?;
    Ok((metadata.id()?.to_string(), folder))
}

fn play(stage: &Stage, story: &mut Story<'_>) -> Result<()> {
    let [(first, first_folder), (second, second_folder)] = &stage.releases;
    for (id, folder) in [(first, first_folder), (second, second_folder)] {
        let at = Instant::now();
        stage.succeeds(&["install-release", &folder.to_string_lossy()])?;
        story.step("install-release", at, &format!("{id}: every file hashed, then read-only"));
    }

    let at = Instant::now();
    let canary = stage.succeeds(&["canary", "release", first])?;
    let checks = canary["checks"].as_array().map_or(0, Vec::len);
    story.step("canary release", at, &format!("{checks} checks over MCP, nothing of the user touched"));

    let at = Instant::now();
    let done = stage.succeeds(&["cutover", first, "--yes", "--reason", "demo"])?;
    story.step(
        "cutover",
        at,
        &format!("{first} is current; the gate was closed for {} ms", done["downtimeMs"]),
    );

    clients(stage, story)?;
    busy(stage, story, second)?;

    let at = Instant::now();
    let done = stage.succeeds(&["cutover", second, "--yes"])?;
    story.step(
        "cutover",
        at,
        &format!("{second} is current; the gate was closed for {} ms", done["downtimeMs"]),
    );

    crash(stage, story)?;

    let at = Instant::now();
    stage.succeeds(&["canary", "pointer"])?;
    story.step("canary pointer", at, "the current release answers through the launcher");

    let at = Instant::now();
    let back = stage.succeeds(&["rollback", "--yes", "--reason", "demo"])?;
    let back = back["releaseId"].as_str().unwrap_or_default().to_owned();
    story.step("rollback", at, &format!("{back} is current again, with its config"));

    let at = Instant::now();
    let found = stage.succeeds(&["inspect", "--all", "--expect", &back])?;
    let findings = found["findings"].as_array().map_or(0, Vec::len);
    story.step(
        "inspect",
        at,
        &format!("{}, {findings} findings", found["status"].as_str().unwrap_or_default()),
    );
    Ok(())
}

/// Our entry in a client's file, and out of it again to the byte.
fn clients(stage: &Stage, story: &mut Story<'_>) -> Result<()> {
    let file = stage.home.join(".codex").join("config.toml");
    let read = || std::fs::read(&file).map_err(|error| failure("read the client's file", error));
    let before = read()?;
    let at = Instant::now();
    let applied = stage.succeeds(&["configure-clients", "--client", "codex", "--apply"])?;
    let written = read()?;
    let txid = applied["txid"].as_str().unwrap_or_default().to_owned();
    story.step(
        "configure-clients",
        at,
        &format!("config.toml grew from {} to {} bytes", before.len(), written.len()),
    );
    let at = Instant::now();
    stage.succeeds(&["configure-clients", "--restore", &txid, "--apply"])?;
    if read()? != before || written == before {
        return Err(failure("configure-clients", "the file is not as it was"));
    }
    story.step("configure-clients --restore", at, "byte for byte as before");
    Ok(())
}

/// A client that is served is named, and keeps a cutover out until it leaves.
fn busy(stage: &Stage, story: &mut Story<'_>, second: &str) -> Result<()> {
    let mut client = Client::start(stage)?;
    let at = Instant::now();
    let (code, _, words) = stage.operator(&["cutover", second, "--yes", "--wait", "0"])?;
    if code != Exit::RetryLater as i32 || !words.contains(&format!("pid {}", client.child.id())) {
        return Err(failure("cutover while a client is served", format!("exit code {code}: {words}")));
    }
    client.leave();
    story.step("cutover while a client is served", at, "refused, and the client is named");
    Ok(())
}

/// Kills a cutover in the middle, as a crash would, and recovers.
fn crash(stage: &Stage, story: &mut Story<'_>) -> Result<()> {
    let root = stage.layout.root().to_string_lossy().into_owned();
    for _ in 0..20 {
        let at = Instant::now();
        let before = pointer::current(&stage.layout)?;
        let target = stage.releases.iter().map(|(id, _)| id).find(|id| *id != before.release_id.as_str());
        let target = target.cloned().unwrap_or_default();
        let mut child = stage
            .command(&stage.exe, &["cutover", &target, "--yes", "--root", &root])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failure("start a cutover", error))?;
        let reached = wait_for_the_middle(&stage.layout, &mut child);
        let _ = child.kill();
        let _ = child.wait();
        let Some(cut) = journal::unfinished(&stage.layout)?.filter(|_| reached) else { continue };
        story.step(
            "a cutover is killed half-way",
            at,
            &format!("{} was cut off, nothing is decided", cut.txid),
        );
        let at = Instant::now();
        let recovered = stage.succeeds(&["recover"])?;
        let now = pointer::current(&stage.layout)?;
        let expected = if recovered["outcome"] == "undone" { &before.release_id } else { &now.release_id };
        if now.release_id != *expected || journal::unfinished(&stage.layout)?.is_some() {
            return Err(failure("recover", "the installation is neither as before nor as after"));
        }
        let outcome = recovered["outcome"].as_str().unwrap_or_default().to_owned();
        story.step("recover", at, &format!("{outcome}: {} is current", now.release_id));
        return Ok(());
    }
    Err(failure("a cutover is killed half-way", "each one was faster than the kill"))
}

/// Waits until the journal says that the target is being proven, which is before the decision.
fn wait_for_the_middle(layout: &Layout, child: &mut Child) -> bool {
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
        if let Ok(Some(open)) = journal::unfinished(layout)
            && open.commit().is_none()
            && open
                .records
                .iter()
                .any(|(_, record)| matches!(record, journal::Record::Phase { phase, .. } if phase == "probe"))
        {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// A client that is served by the launcher.
struct Client {
    child: Child,
}

impl Client {
    fn start(stage: &Stage) -> Result<Self> {
        use std::io::{BufRead as _, BufReader, Write as _};
        let mut child = stage
            .command(&stage.layout.launcher(), &["serve"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failure("start the launcher", error))?;
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "demo-client", "version": "1" } } });
        let mut line = String::new();
        if let (Some(stdin), Some(stdout)) = (child.stdin.as_mut(), child.stdout.as_mut()) {
            writeln!(stdin, "{hello}").map_err(|error| failure("shake hands", error))?;
            BufReader::new(stdout).read_line(&mut line).map_err(|error| failure("shake hands", error))?;
        }
        let client = Self { child };
        match serde_json::from_str::<Value>(&line) {
            Ok(answer) if answer["result"]["serverInfo"].is_object() => Ok(client),
            _ => Err(failure("shake hands with the launcher", line)),
        }
    }

    fn leave(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
