//! Carries out the steps of a script.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::answer::{self, Setting};
use super::call_tool;
use super::invocation::Invocation;
use super::os;
use super::script::{
    Action, Answer, CallTool, Group, NotWithin, Print, RunProgram, Script, Spawn, StdinMode, Stream,
    WaitForFile, When, WriteFile,
};
use crate::digest;
use crate::policy::Sandbox;

const DEFAULT_TIMEOUT_MS: u64 = 30_000;
const POLL: Duration = Duration::from_millis(5);

/// Whether the script goes on after a step.
enum Flow {
    Next,
    End(i32),
}

/// One run of the mock agent.
pub(super) struct Worker {
    invocation: Invocation,
    stdout: Box<dyn Write>,
    stderr: Box<dyn Write>,
    cwd: PathBuf,
    thread: String,
    prompt: Vec<u8>,
    run: u64,
    denied: Vec<String>,
    /// What the last called tool said.
    told: String,
    exit: i32,
}

impl Worker {
    pub fn new(invocation: Invocation, stdout: Box<dyn Write>, stderr: Box<dyn Write>) -> Self {
        let thread = invocation.resume().map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned);
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        Self {
            invocation,
            stdout,
            stderr,
            cwd,
            thread,
            prompt: Vec::new(),
            run: 1,
            denied: Vec::new(),
            told: String::new(),
            exit: 0,
        }
    }

    /// Answers a version or login probe: its exit code, if this start is one.
    pub fn probe(&mut self, script: &Script) -> Result<Option<i32>, String> {
        if self.invocation.asks_version() {
            let default = format!("mock-agent {}", env!("CARGO_PKG_VERSION"));
            let version = script.version.clone().unwrap_or(default);
            self.emit(Stream::Stdout, format!("{version}\n").as_bytes())?;
            return Ok(Some(0));
        }
        let Some(word) = self.invocation.asks_login() else { return Ok(None) };
        let claude = word == "auth";
        let probe = script.auth.clone().unwrap_or_else(|| super::script::Probe {
            stdout: if claude {
                "{\"loggedIn\":true,\"authMethod\":\"mock\"}\n".into()
            } else {
                String::new()
            },
            stderr: if claude { String::new() } else { "Logged in using the mock\n".into() },
            exit: 0,
        });
        self.emit(Stream::Stdout, probe.stdout.as_bytes())?;
        self.emit(Stream::Stderr, probe.stderr.as_bytes())?;
        Ok(Some(probe.exit))
    }

    /// Reads standard input and adds it to the prompt.
    pub fn read_stdin(&mut self, stdin: &mut dyn Read, mode: StdinMode) -> Result<(), String> {
        let limit = match mode {
            StdinMode::All => u64::MAX,
            StdinMode::None => 0,
            StdinMode::Bytes(bytes) => bytes,
        };
        let read = stdin.take(limit).read_to_end(&mut self.prompt);
        read.map(|_| ()).map_err(|error| format!("cannot read standard input: {error}"))
    }

    /// Follows the script to its end: the exit code.
    pub fn follow(&mut self, script: &Script) -> Result<i32, String> {
        if let Some(counter) = &script.counter {
            self.run = count_run(&self.path(counter))?;
        } else if script.rules.iter().any(|rule| rule.when.run.is_some()) {
            return Err("a rule asks for the number of the run, but the script has no `counter`".to_owned());
        }
        let rule = script.rules.iter().find(|rule| self.holds(&rule.when));
        let repeat_prompt = [Action::Answer(Box::default())];
        let steps = match (rule, &script.steps) {
            (Some(rule), _) => rule.steps.as_slice(),
            (None, Some(steps)) => steps.as_slice(),
            (None, None) => &repeat_prompt,
        };
        match self.steps(steps)? {
            Flow::End(code) => Ok(code),
            Flow::Next => Ok(self.exit),
        }
    }

    fn holds(&self, when: &When) -> bool {
        let prompt = String::from_utf8_lossy(&self.prompt);
        when.contains.as_ref().is_none_or(|text| prompt.contains(text))
            && when.resumed.is_none_or(|resumed| resumed == self.invocation.resume().is_some())
            && when.sandbox.as_ref().is_none_or(|mode| mode == self.invocation.sandbox().as_str())
            && when.model.as_ref().is_none_or(|model| Some(model.as_str()) == self.invocation.model())
            && when.run.is_none_or(|run| run == self.run)
            && when.argument.as_ref().is_none_or(|argument| self.invocation.argv.contains(argument))
    }

    fn steps(&mut self, steps: &[Action]) -> Result<Flow, String> {
        for step in steps {
            if let Flow::End(code) = self.step(step)? {
                return Ok(Flow::End(code));
            }
        }
        Ok(Flow::Next)
    }

    fn step(&mut self, step: &Action) -> Result<Flow, String> {
        match step {
            Action::Print(print) => self.print(print)?,
            Action::Answer(answer) => self.answer(answer)?,
            Action::Event(event) => self.emit(Stream::Stdout, format!("{event}\n").as_bytes())?,
            Action::ReadStdin(mode) => self.read_stdin(&mut std::io::stdin(), *mode)?,
            Action::SleepMs(ms) => std::thread::sleep(Duration::from_millis(*ms)),
            Action::Hang => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            Action::WaitForFile(wait) => self.wait_for_file(wait)?,
            Action::TouchFile(path) => write_whole(&self.path(path), b"")?,
            Action::WriteFile(write) => self.write_file(write)?,
            Action::Record(path) => self.record(path)?,
            Action::Spawn(spawn) => self.spawn(spawn)?,
            Action::Run(program) => self.run_program(program)?,
            Action::CallTool(call) => self.call_tool(call)?,
            Action::IgnoreSignals(names) => os::ignore_signals(names)?,
            Action::NotWithin(check) => return self.not_within(check),
            Action::Repeat(repeat) => {
                for _ in 0..repeat.times {
                    if let Flow::End(code) = self.steps(&repeat.steps)? {
                        return Ok(Flow::End(code));
                    }
                }
            }
            Action::Exit(code) => return Ok(Flow::End(*code)),
            Action::KillSelf(name) => return Ok(Flow::End(os::kill_self(name)?)),
        }
        Ok(Flow::Next)
    }

    /// Replaces the placeholders of a text.
    fn filled(&self, text: &str) -> String {
        if !text.contains('{') {
            return text.to_owned();
        }
        let values = [
            ("{sandbox}", self.invocation.sandbox().to_string()),
            ("{model}", self.invocation.model().unwrap_or_default().to_owned()),
            ("{resume}", self.invocation.resume().unwrap_or_default().to_owned()),
            ("{thread}", self.thread.clone()),
            ("{run}", self.run.to_string()),
            ("{pid}", std::process::id().to_string()),
            ("{cwd}", self.cwd.display().to_string()),
            ("{told}", self.told.clone()),
            // Last: a prompt may itself look like a placeholder.
            ("{prompt}", String::from_utf8_lossy(&self.prompt).into_owned()),
        ];
        values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    fn path(&self, text: &str) -> PathBuf {
        self.cwd.join(self.filled(text))
    }

    /// Writes and flushes; a reader that went away is no fault of the script.
    fn emit(&mut self, to: Stream, bytes: &[u8]) -> Result<(), String> {
        let stream = if to == Stream::Stdout { &mut self.stdout } else { &mut self.stderr };
        match stream.write_all(bytes).and_then(|()| stream.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(format!("cannot print: {error}"))
            }
            _ => Ok(()),
        }
    }

    fn print(&mut self, print: &Print) -> Result<(), String> {
        let mut bytes = Vec::new();
        if let Some(text) = &print.text {
            bytes.extend_from_slice(self.filled(text).as_bytes());
        }
        for line in &print.lines {
            bytes.extend_from_slice(self.filled(line).as_bytes());
            bytes.push(b'\n');
        }
        if let Some(base64) = &print.base64 {
            bytes.extend(decode_base64(base64)?);
        }
        match print.piece {
            Some(piece) => {
                for piece in bytes.chunks(piece.max(1)) {
                    self.emit(print.to, piece)?;
                    std::thread::sleep(Duration::from_millis(print.pause_ms));
                }
            }
            None => self.emit(print.to, &bytes)?,
        }
        let Some(repeat) = &print.repeat else { return Ok(()) };
        let unit = repeat.text.as_deref().unwrap_or("x").as_bytes();
        if unit.is_empty() {
            return Err("`repeat` needs a text".to_owned());
        }
        let block = unit.repeat((65_536 / unit.len()).max(1));
        let mut left = repeat.bytes;
        while left > 0 {
            let size = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
            self.emit(print.to, &block[..size])?;
            left -= size as u64;
        }
        Ok(())
    }

    fn answer(&mut self, answer: &Answer) -> Result<(), String> {
        let text = self.filled(answer.text.as_deref().unwrap_or("{prompt}"));
        if let Some(thread) = &answer.thread {
            self.thread = self.filled(thread);
        }
        let cwd = self.cwd.display().to_string();
        let setting = Setting {
            thread: &self.thread,
            model: self.invocation.model(),
            cwd: &cwd,
            dialect: self.invocation.dialect(),
            format: self.invocation.format(),
            denied: &self.denied,
        };
        let (output, exit) = answer::render(answer, &text, &setting);
        self.exit = exit;
        self.emit(Stream::Stdout, output.as_bytes())
    }

    fn wait_for_file(&self, wait: &WaitForFile) -> Result<(), String> {
        let path = self.path(&wait.path);
        let deadline = Instant::now() + Duration::from_millis(wait.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS));
        while !path.exists() {
            if Instant::now() >= deadline {
                return Err(format!("{} did not appear in time", path.display()));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn write_file(&mut self, write: &WriteFile) -> Result<(), String> {
        let path = self.path(&write.path);
        let allowed = write.force
            || match self.invocation.sandbox() {
                Sandbox::ReadOnly => false,
                Sandbox::WorkspaceWrite => is_inside(&self.cwd, &path),
                Sandbox::FullAccess => true,
            };
        if allowed {
            return write_whole(&path, self.filled(&write.text).as_bytes());
        }
        // Codex tells of a refused write on standard error only, Claude Code in its result.
        self.denied.push("Write".to_owned());
        let line = format!(
            "ERROR codex_core::tools::router: error=patch rejected: writing is blocked by {} sandbox; rejected by \
             user approval settings\n",
            self.invocation.sandbox()
        );
        self.emit(Stream::Stderr, line.as_bytes())
    }

    fn record(&self, path: &str) -> Result<(), String> {
        let env: serde_json::Map<String, Value> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), json!(value.to_string_lossy())))
            .collect();
        let record = json!({
            "argv": self.invocation.argv,
            "env": env,
            "cwd": self.cwd.to_string_lossy(),
            "stdinBytes": self.prompt.len(),
            "stdinSha256": digest::of_bytes(&self.prompt),
            "stdin": String::from_utf8_lossy(&self.prompt),
            "sandbox": self.invocation.sandbox(),
            "model": self.invocation.model(),
            "resume": self.invocation.resume(),
            "pid": std::process::id(),
            "run": self.run,
            "startedAtMs": now_ms(),
        });
        write_whole(&self.path(path), format!("{record:#}\n").as_bytes())
    }

    fn spawn(&self, spawn: &Spawn) -> Result<(), String> {
        let steps = if spawn.double_fork {
            let inner = Spawn { double_fork: false, ..spawn.clone() };
            vec![Action::Spawn(inner)]
        } else {
            spawn.steps.clone()
        };
        let script = Script { stdin: Some(StdinMode::None), steps: Some(steps), ..Script::default() };
        let text =
            serde_json::to_string(&script).map_err(|error| format!("cannot pass steps on: {error}"))?;
        let group = match (spawn.group, spawn.double_fork) {
            (Group::Same, _) | (_, true) => "same",
            (Group::Own, false) => "own",
            (Group::Session, false) => "session",
        };
        let exe = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = Command::new(exe);
        command
            .args([super::super::mock::SUBCOMMAND, "--inline", &text, "--group", group])
            .stdin(Stdio::null())
            .env_remove(super::SCRIPT_VARIABLE);
        if let Some(endpoint) = self.invocation.endpoint() {
            command.env(call_tool::URL_VARIABLE, endpoint);
        }
        if spawn.quiet {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let mut child = command.spawn().map_err(|error| format!("cannot start a child: {error}"))?;
        if spawn.wait || spawn.double_fork {
            child.wait().map_err(|error| format!("cannot wait for a child: {error}"))?;
        }
        Ok(())
    }

    fn run_program(&self, program: &RunProgram) -> Result<(), String> {
        let path = match program.program.as_str() {
            "{self}" => {
                std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?
            }
            other => PathBuf::from(self.filled(other)),
        };
        let fault = |what: &str, error: std::io::Error| format!("cannot {what} {}: {error}", path.display());
        let mut child = Command::new(&path)
            .args(program.args.iter().map(|arg| self.filled(arg)))
            .envs(program.env.iter().map(|(name, value)| (name, self.filled(value))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| fault("start", error))?;
        let (lines, received) = mpsc::channel();
        let out = child.stdout.take();
        std::thread::spawn(move || {
            for line in out.into_iter().flat_map(|out| BufReader::new(out).split(b'\n')).map_while(Result::ok)
            {
                if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        let err = child.stderr.take();
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut err) = err {
                let _ = err.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut stdin = child.stdin.take();
        for line in &program.stdin {
            let line = format!("{}\n", self.filled(line));
            // A program that ends early is a finding, not a fault.
            if stdin.as_mut().is_none_or(|stdin| stdin.write_all(line.as_bytes()).is_err()) {
                break;
            }
        }
        let deadline =
            Instant::now() + Duration::from_millis(program.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS));
        let mut printed = Vec::new();
        while printed.len() < program.until_lines {
            match received.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => printed.push(line),
                Err(_) => break,
            }
        }
        drop(stdin);
        let mut timed_out = false;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| fault("watch", error))? {
                break status;
            }
            if Instant::now() >= deadline {
                timed_out = true;
                child.kill().map_err(|error| fault("kill", error))?;
            }
            std::thread::sleep(POLL);
        };
        while let Ok(line) = received.recv_timeout(Duration::from_millis(500)) {
            printed.push(line);
        }
        if let Some(save) = &program.save {
            let stderr = errors.join().unwrap_or_default();
            let report =
                json!({"lines": printed, "stderr": stderr, "exit": status.code(), "timedOut": timed_out});
            write_whole(&self.path(save), format!("{report:#}\n").as_bytes())?;
        }
        Ok(())
    }

    fn call_tool(&mut self, call: &CallTool) -> Result<(), String> {
        let limit = Duration::from_millis(call.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS));
        let mut filled = call.clone();
        self.fill(&mut filled.arguments);
        let called = call_tool::call(&self.invocation, &filled, limit)?;
        self.told = called.text;
        match &call.save {
            Some(save) => write_whole(&self.path(save), format!("{:#}\n", called.answer).as_bytes()),
            None => Ok(()),
        }
    }

    /// Replaces the placeholders of every text in a value.
    fn fill(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.filled(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.fill(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.fill(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn not_within(&mut self, check: &NotWithin) -> Result<Flow, String> {
        let path = self.path(&check.file);
        let now = now_ms();
        let last = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        write_whole(&path, now.to_string().as_bytes())?;
        if last.is_none_or(|last| now.saturating_sub(last) >= check.ms) {
            return Ok(Flow::Next);
        }
        match self.steps(&check.otherwise)? {
            Flow::Next => Ok(Flow::End(self.exit)),
            end => Ok(end),
        }
    }
}

/// The number of this run: the first file `STEM.N` that does not exist yet is taken, so two starts never
/// get the same number.
fn count_run(stem: &Path) -> Result<u64, String> {
    for number in 1..u64::MAX {
        let mut name = stem.as_os_str().to_owned();
        name.push(format!(".{number}"));
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&name) {
            Ok(_) => return Ok(number),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("cannot count the run at {}: {error}", stem.display())),
        }
    }
    Err("too many runs".to_owned())
}

/// Writes a file so that a reader sees all of it or nothing.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    std::fs::write(&name, bytes)
        .and_then(|()| std::fs::rename(&name, path))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Whether a path stays inside a folder, links of its parent resolved.
fn is_inside(folder: &Path, path: &Path) -> bool {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    let climbs = path.components().any(|part| part == Component::ParentDir);
    match (folder.canonicalize(), parent) {
        (Ok(folder), Some(parent)) => !climbs && parent.starts_with(folder),
        _ => false,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Standard base64, padding optional.
fn decode_base64(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err("`base64` is not base64".to_owned()),
        };
        bits = (bits << 6 | u32::from(value)) & 0xFFFF;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xFF) as u8);
        }
    }
    Ok(out)
}
