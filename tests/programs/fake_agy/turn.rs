//! A run without a person: from the command line to the exit code.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::acts::{self, Flow};
use super::conversation::Conversation;
use super::flags::Flags;
use super::mcp::Server;
use super::output::{self, Format, Output};
use super::permissions::{Permissions, Shape};
use super::record::Record;
use super::scenario::{Failure, Scenario, Version, acts_of};

/// What a run is made of while it goes on.
pub struct Turn {
    pub version: Version,
    pub output: Output,
    pub record: Record,
    pub workspace: PathBuf,
    pub permissions: Permissions,
    pub servers: Vec<Server>,
    pub schema: Option<Value>,
    pub conversation: Conversation,
    log: PathBuf,
    model: Option<String>,
    began: Instant,
    /// When `--print-timeout` ends it.
    deadline: Option<(Instant, Duration)>,
    told_init: bool,
    steps: u64,
    pub response: String,
    pub denied: Vec<String>,
    pub structured: Option<Value>,
    pub no_structured: bool,
    pub envelope: Value,
    pub exit: Option<i32>,
}

/// How the acts ended.
enum End {
    Done,
    Denied,
    Failed(Failure),
    TimedOut,
}

/// Runs it. The exit code is the program's.
pub fn headless(program: &Path, argv: &[String], flags: &Flags, scenario: &Scenario) -> i32 {
    let version = scenario.version();
    let slash = version >= Version(1, 1, 9) && !flags.on("disable-slash-commands");
    let asks_usage = slash
        && version >= Version(1, 1, 11)
        && flags.last("print").is_some_and(|prompt| prompt.trim() == "/usage");
    let (mut record, number) = Record::begin(program, if asks_usage { "probe" } else { "run" }, argv);
    let prepared = prepare(flags, scenario, &mut record, slash);
    let (format, prompt, schema) = match prepared {
        Ok(prepared) => prepared,
        Err((complaint, code)) => {
            eprintln!("{complaint}");
            return code;
        }
    };
    let root = flags.last("gemini_dir").map_or_else(default_root, PathBuf::from);
    let own_root = flags.given("gemini_dir");
    record.set("prompt", json!(prompt));
    record.set("root", json!(root));
    if own_root {
        record.set("root_files", files_below(&root));
    }
    let workspace = flags.last("add-dir").map_or_else(|| scratch(&root), PathBuf::from);
    record.set("workspace", json!(workspace));
    if own_root && !root.join("antigravity-cli").join("cache").join("onboarding.json").exists() {
        eprintln!("Onboarding is not complete. Run 'agy' in a terminal first.");
        return 1;
    }
    let output =
        Output { format, raw_newlines: scenario.raw_newlines, indented: version >= Version(1, 2, 0) };
    if !scenario.banner.is_empty() {
        output.raw(format!("{}\n", scenario.banner).as_bytes());
    }
    if own_root && !root.join("config").join(".migrated").exists() {
        output.raw(b"Migrating your settings to the new layout\xE2\x80\xA6\n");
    }
    let log = flags
        .last("log-file")
        .map_or_else(|| root.join("antigravity-cli").join("log").join("cli.log"), PathBuf::from);
    let conversation = match asks_usage {
        true => Conversation::open(&scratch(&root), None, false, &workspace),
        false => Conversation::open(&root, flags.last("conversation"), flags.on("continue"), &workspace),
    };
    let trusted = !own_root || trusts(&root, &workspace);
    if !trusted {
        eprintln!("warning: {} is not a trusted workspace; its servers are not loaded", workspace.display());
    }
    let delay = Duration::from_millis(scenario.mcp_delay_ms);
    let servers = if trusted && !asks_usage && !scenario.mcp_off {
        Server::all(&root, version, delay)
    } else {
        Vec::new()
    };
    // Until 1.2.5 a run had five minutes if nothing was said.
    let limit = flags
        .duration("print-timeout")
        .or_else(|| (version < Version(1, 2, 6)).then(|| Duration::from_secs(300)));
    let now = Instant::now();
    let mut turn = Turn {
        version,
        output,
        record,
        permissions: Permissions::new(flags, version, &root, &workspace),
        servers,
        schema,
        conversation,
        log,
        model: flags.last("model").map(str::to_owned),
        began: now,
        deadline: limit.and_then(|limit| Some((now.checked_add(limit)?, limit))),
        told_init: false,
        steps: 0,
        response: String::new(),
        denied: Vec::new(),
        structured: None,
        no_structured: false,
        envelope: json!({}),
        exit: None,
        workspace,
    };
    turn.log(&format!("agy {} started, pid {}", scenario.version_text(), std::process::id()));
    if scenario.token_login && !root.join("antigravity-cli").join("antigravity-oauth-token").exists() {
        turn.login_prompt("stdout");
        turn.hang();
        return 1;
    }
    if !asks_usage {
        turn.conversation.keep(&prompt);
    }
    let acts = acts_of(if asks_usage { &scenario.probes } else { &scenario.runs }, number);
    if acts.is_empty() {
        turn.say(if asks_usage { "Weekly limit: 12% used" } else { "All done." });
    }
    let mut end = End::Done;
    for act in acts {
        end = match acts::perform(&mut turn, act) {
            Flow::Next => continue,
            Flow::Denied => End::Denied,
            Flow::Failed(failure) => End::Failed(failure),
            Flow::TimedOut => End::TimedOut,
            Flow::Gone(code) => return code,
        };
        break;
    }
    turn.finish(end)
}

/// Everything that a start is refused for, and what it says.
fn prepare(
    flags: &Flags,
    scenario: &Scenario,
    record: &mut Record,
    slash: bool,
) -> Result<(Format, String, Option<Value>), (String, i32)> {
    let version = scenario.version();
    let refused = |text: String| (format!("Error: {text}"), 1);
    let format = Format::parse(flags.last("output-format")).map_err(refused)?;
    if let Some(mode) = flags.last("mode").filter(|mode| !["accept-edits", "plan", "default"].contains(mode))
    {
        return Err(refused(format!("invalid mode {mode:?}")));
    }
    if let Some(model) = flags.last("model") {
        let mut known = scenario.models.lines().filter_map(|line| line.split('\t').next());
        if !known.any(|known| known == model) {
            let list = scenario.models.replace('\t', "  ");
            return Err(refused(format!("unknown model {model:?}. Available models:\n{list}")));
        }
    }
    let schema = match flags.last("json-schema") {
        None => None,
        Some(text) => Some(schema(text, version).map_err(refused)?),
    };
    let mut prompt = flags.last("print").unwrap_or_default().to_owned();
    match flags.last("input-format") {
        None | Some("text") => {}
        Some("stream-json") if format != Format::Stream => {
            return Err(refused("--input-format stream-json needs --output-format stream-json".into()));
        }
        Some("stream-json") => {
            let bytes = output::read_to_end();
            record.stdin(&bytes);
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
                prompt.push_str(&user_event(line, version).map_err(refused)?);
            }
        }
        Some(other) => return Err(refused(format!("invalid input format {other:?}"))),
    }
    if prompt.trim().is_empty() {
        return Err(refused("no prompt".into()));
    }
    if slash && let Some(command) = prompt.strip_prefix('/').and_then(|rest| rest.split_whitespace().next()) {
        let interactive = ["login", "logout", "theme", "settings", "resume"];
        if version >= Version(1, 1, 11) && interactive.contains(&command) {
            return Err((format!("/{command} is only available in interactive mode"), 2));
        }
        // `/goal` and the like do something, once expanded.
        record.set("slash_command", json!(command));
    }
    Ok((format, prompt, schema))
}

/// The text of a line of standard input. The key of its kind changed from one version to the next.
fn user_event(line: &[u8], version: Version) -> Result<String, String> {
    let event: Value =
        serde_json::from_slice(line).map_err(|error| format!("invalid input event: {error}"))?;
    let key = if version < Version(1, 1, 15) { "type" } else { "event" };
    if event[key] != "user" {
        return Err(format!("invalid input event: no {key:?} that is known"));
    }
    let parts = event["message"]["content"].as_array().into_iter().flatten();
    Ok(parts.filter_map(|part| part["text"].as_str()).collect())
}

/// Inline JSON or the path of a file. Before 1.2.14 whatever is neither was a schema of its own: a string.
fn schema(text: &str, version: Version) -> Result<Value, String> {
    let strict = version >= Version(1, 2, 14);
    let content = match text.trim_start().starts_with('{') {
        true => text.to_owned(),
        false => match std::fs::read_to_string(text) {
            Ok(content) => content,
            Err(error) if strict => return Err(format!("--json-schema: {text}: {error}")),
            Err(_) => return Ok(json!({ "type": "string" })),
        },
    };
    match serde_json::from_str::<Value>(&content) {
        Ok(schema) if strict && schema["type"] != "object" => {
            Err("--json-schema: the root must be of type object".into())
        }
        Ok(schema) => Ok(schema),
        Err(error) if strict => Err(format!("--json-schema: {error}")),
        Err(_) => Ok(json!({ "type": "string" })),
    }
}

fn default_root() -> PathBuf {
    let home = std::env::var_os(if cfg!(windows) { "USERPROFILE" } else { "HOME" }).expect("a home");
    PathBuf::from(home).join(".gemini")
}

/// Where a run works that was given no folder.
fn scratch(root: &Path) -> PathBuf {
    let folder = root.join("antigravity-cli").join("scratch");
    std::fs::create_dir_all(&folder).expect("the root can be written");
    folder
}

fn trusts(root: &Path, workspace: &Path) -> bool {
    let settings = std::fs::read(root.join("antigravity-cli").join("settings.json")).unwrap_or_default();
    let settings: Value = serde_json::from_slice(&settings).unwrap_or_default();
    let trusted = settings["trustedWorkspaces"].as_array().into_iter().flatten();
    trusted.filter_map(Value::as_str).any(|folder| workspace.starts_with(folder))
}

/// Small files with their content, for the record.
fn files_below(root: &Path) -> Value {
    let mut found = serde_json::Map::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below").to_string_lossy().replace('\\', "/");
                let content = std::fs::read(&path).unwrap_or_default();
                found.insert(name, json!(String::from_utf8_lossy(&content)));
            }
        }
    }
    Value::Object(found)
}

impl Turn {
    /// A line of the log file.
    pub fn log(&self, line: &str) {
        use std::io::Write;
        if let Some(folder) = self.log.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&self.log);
        file.and_then(|mut file| writeln!(file, "I1201 00:00:00.000000 {line}"))
            .expect("the log can be written");
    }

    /// Waits; false if the time of the run was over before.
    pub fn sleep(&self, time: Duration) -> bool {
        let now = Instant::now();
        match self.deadline {
            Some((deadline, _)) if deadline < now + time => {
                std::thread::sleep(deadline.saturating_duration_since(now));
                false
            }
            _ => {
                std::thread::sleep(time);
                true
            }
        }
    }

    /// Waits for longer than any test; false if the time of the run was over before.
    pub fn hang(&self) -> bool {
        self.sleep(Duration::from_secs(600))
    }

    /// What somebody sees who is not logged in.
    pub fn login_prompt(&self, stream: &str) {
        let text = "Authentication required. Please visit the URL to log in:\n  \
                    https://accounts.google.com/o/oauth2/auth?client_id=1071006060591&response_type=code&state=x\n\
                    Or, paste the authorization code here and press Enter:\n";
        match stream {
            "stdout" => self.output.raw(text.as_bytes()),
            "stderr" => eprint!("{text}"),
            other => panic!("no stream {other:?}"),
        }
    }

    fn init(&mut self) {
        if std::mem::replace(&mut self.told_init, true) {
            return;
        }
        let mut tools: Vec<String> =
            ["view_file", "write_to_file", "grep_search", "run_command"].map(String::from).to_vec();
        for server in &self.servers {
            tools.extend(server.tools.iter().map(|tool| format!("mcp_{}_{tool}", server.name)));
        }
        let mut init = json!({
            "cwd": self.workspace,
            "tools": tools,
            "permission_mode": self.permissions.mode(),
        });
        if let Some(model) = &self.model {
            init["model"] = json!(model);
        }
        self.output.event(&json!({ "event": "init", "conversation_id": self.conversation.id, "init": init }));
    }

    /// A step of the agent.
    pub fn step(&mut self, kind: &str, facts: Value) {
        self.init();
        let mut update = json!({
            "conversation_id": self.conversation.id,
            "step_index": self.steps,
            "state": "DONE",
            "step_type": kind,
        });
        if let (Some(all), Value::Object(facts)) = (update.as_object_mut(), facts) {
            all.extend(facts);
        }
        self.steps += 1;
        self.output.event(&json!({ "event": "step_update", "step_update": update }));
    }

    /// The agent says something: part of the turn's response.
    pub fn say(&mut self, text: &str) {
        self.response.push_str(text);
        self.step("agent_response", json!({ "text_delta": text }));
    }

    fn finish(mut self, end: End) -> i32 {
        self.init();
        let shape = Shape::of(self.version);
        if matches!(end, End::Done)
            && !self.no_structured
            && self.structured.is_none()
            && let Some(schema) = &self.schema
        {
            self.structured =
                Some(if schema["type"] == "string" { json!(self.response) } else { fitting(schema) });
        }
        let mut status = "SUCCESS";
        let mut code = 0;
        let mut error = None;
        let mut used = true;
        match end {
            End::Done => {}
            End::Denied if shape == Shape::QuietEnd => {
                self.response.clear();
                self.structured = None;
            }
            End::Denied => {
                (status, code, used) = ("ERROR", 1, true);
                error = Some("permission check failed: user denied permission".to_owned());
            }
            End::TimedOut => {
                self.structured = None;
                let limit = self.deadline.map_or(Duration::ZERO, |(_, limit)| limit);
                used = false;
                if self.version >= Version(1, 1, 28) {
                    eprintln!("[agy] print timeout after {limit:?}; returning partial output");
                } else {
                    (status, code) = ("ERROR", 1);
                    eprintln!("Error: timeout waiting for response");
                    error = Some("timeout waiting for response".to_owned());
                }
            }
            End::Failed(failure) => {
                status = "ERROR";
                error = Some(format!("{}: {}", failure.status, failure.message));
                self.structured = None;
                code = 1;
                if self.version >= Version(1, 2, 6) {
                    let told = json!({
                        "status": failure.status,
                        "code": 3,
                        "retryable": failure.retryable,
                        "error_id": "e-4711",
                    });
                    eprintln!("AGY_ERROR: {told}");
                    code = 3;
                }
            }
        }
        let tokens = |count: u64| if used { count } else { 0 };
        let mut envelope = json!({
            "conversation_id": self.conversation.id,
            "status": status,
            "response": self.response,
            "duration_seconds": self.began.elapsed().as_secs_f64(),
            "num_turns": self.conversation.turns + 1,
            "usage": {
                "input_tokens": tokens(1200),
                "output_tokens": tokens(80),
                "thinking_tokens": tokens(20),
                "cache_read_tokens": tokens(900),
                "total_tokens": tokens(1300),
            },
        });
        if let Some(error) = error {
            envelope["error"] = json!(error);
        }
        if let (Some(schema), Some(structured)) = (&self.schema, &self.structured) {
            envelope["structured_output"] = structured.clone();
            envelope["json_schema"] = schema.clone();
        }
        if shape == Shape::Listed && !self.denied.is_empty() {
            let listed = self.denied.iter().map(|action| json!({ "action": action, "display_name": action }));
            envelope["denied_actions"] = listed.collect();
        }
        for (key, value) in self.envelope.as_object().into_iter().flatten() {
            match value {
                Value::Null => {
                    envelope.as_object_mut().expect("an object").remove(key);
                }
                value => envelope[key] = value.clone(),
            }
        }
        self.output.result(&envelope);
        self.exit.unwrap_or(code)
    }
}

/// The smallest value that fits a schema of a report.
fn fitting(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|list| list.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            required.map(|name| (name.to_owned(), fitting(&schema["properties"][name]))).collect()
        }
        Some("array") => json!([]),
        Some("integer" | "number") => json!(0),
        Some("boolean") => json!(true),
        _ => json!("done"),
    }
}
