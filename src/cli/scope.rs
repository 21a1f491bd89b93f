//! `agent-bridge scope`

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::output::{one_line, remark};
use crate::bridge::errors::BridgeError;
use crate::config::Config;
use crate::context::Context;
use crate::error::{Error, Exit, INVALID_ARGUMENT, Result};
use crate::platform::{private, write_durable};
use crate::process::{self, Guard, Program, Report, TURN_VAR};
use crate::release::transaction::Interruption;
use crate::scope::kit::{self, Check};
use crate::scope::{
    BatchedLog, BoundRun, CallLog, CallRecord, Endpoint, Limits, LinesLog, Options, ScopeError, ToolSet,
};
use crate::store::{AuditEntry, Store};

/// Largest file that a worker is given to read.
const MAX_TEXT: u64 = 4 << 20;
/// Between the request to end and the kill.
const GRACE: Duration = Duration::from_secs(5);
/// The hidden subcommand of the process that ends what is left of a run.
const GUARD: &str = "scope-guard";
const URL_VAR: &str = "AGENT_BRIDGE_SCOPE_URL";
const TOKEN_VAR: &str = "AGENT_BRIDGE_SCOPE_TOKEN";
const CONFIG_VAR: &str = "AGENT_BRIDGE_SCOPE_CONFIG";

/// Run a worker beside an endpoint with a few tools of its own.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(RunArgs),
}

/// Run a command beside an MCP endpoint that is made for it alone.
///
/// The endpoint listens on 127.0.0.1 at a port of the system's choice and opens to one token. It offers the tools that
/// you allow and no others, works in one folder, and writes down every call. When the command ends, the port is closed,
/// the token is worth nothing and running checks are ended.
///
/// The command runs in the folder of --root, on this terminal's streams, and its exit code is ours. It finds the
/// endpoint in AGENT_BRIDGE_SCOPE_URL and AGENT_BRIDGE_SCOPE_TOKEN, and a config for Claude Code in the file that
/// AGENT_BRIDGE_SCOPE_CONFIG names. In its arguments {scope-url} and {scope-config} stand for the first and the last.
#[derive(Debug, clap::Args)]
#[command(after_help = "Tools:
  submit_report        a report in a fixed form, into the file of --report-out
  get_task             the text of --task, page by page
  get_previous_result  the text of --previous, page by page
  run_check            the commands of --check, by name: no shell, no other arguments
  note, recall, search_notes   notes that live as long as the run
  progress             one line on standard error, if that is a terminal
  ask_supervisor       always answers: nobody is there, choose what can be undone
  request_approval     always answers: denied
The scope limits MCP tools only. Take away the worker's own shell and network with the worker's own options.

Examples:
  agent-bridge scope run --allow submit_report run_check --root . \\
    --check 'test=[\"cargo\",\"test\"]' --report-out report.json \\
    -- claude -p \"Fix the failing test\" --strict-mcp-config --mcp-config {scope-config}
  agent-bridge scope run --allow note recall -- codex exec \\
    -c 'mcp_servers.bridge.url=\"{scope-url}\"' \\
    -c 'mcp_servers.bridge.bearer_token_env_var=\"AGENT_BRIDGE_SCOPE_TOKEN\"' \"Read the code\"
  agent-bridge scope run --allow get_task --task task.md -- npx @modelcontextprotocol/inspector")]
struct RunArgs {
    /// A tool that the worker may use; several at once, or again.
    #[arg(long, value_name = "TOOL", num_args = 1.., value_delimiter = ',', required = true)]
    allow: Vec<String>,
    /// The folder that the worker and its checks work in.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// A command that run_check may run: a name and an argument list, `test=["cargo","test"]`.
    #[arg(long, value_name = "NAME=ARGV-JSON")]
    check: Vec<String>,
    /// Longest time for one check.
    #[arg(long, value_name = "SECONDS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=3600))]
    check_timeout: u64,
    /// New file for the worker's report.
    #[arg(long, value_name = "FILE")]
    report_out: Option<PathBuf>,
    /// The text of get_task.
    #[arg(long, value_name = "FILE")]
    task: Option<PathBuf>,
    /// The text of get_previous_result.
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
    /// New file for the record of calls, a JSON document a line (default: the audit trail in the state folder).
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// The command, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(context: &Context, load: impl FnOnce() -> Result<Config>, args: &Args) -> Result<u8> {
    let Command::Run(args) = &args.command;
    let root = context.cwd.join(&args.root);
    let run_id = uuid::Uuid::new_v4().to_string();
    let root = root
        .canonicalize()
        .ok()
        .filter(|root| root.is_dir())
        .ok_or_else(|| invalid(format!("`--root` {} is not a folder", root.display())))?;
    let tools = tools(context, args, &root, &run_id)?;
    let (log, trail, deepest) = record(context, load, args)?;
    let depth = process::current_depth(context);
    if depth >= deepest {
        return Err(BridgeError::TooDeep { depth, limit: deepest }.into());
    }
    let mut limits = Limits::default();
    limits.call = limits.call.max(Duration::from_secs(args.check_timeout + 10));
    let bound = BoundRun { run: run_id.clone(), session: None, turn: None, workspace: root.clone() };
    let endpoint =
        Endpoint::start(Options { bound, tools, limits, log, clock: context.clock, modern: true })?;
    // The last to go: it ends what is left if we are killed.
    let guard = Guard::post(&context.exe, &[GUARD], &run_id)?;
    trail.note("scope-began", &json!({ "run": run_id, "root": root, "tools": args.allow }))?;
    let ended = worker(context, args, &endpoint, &root, depth, &run_id);
    let closed = endpoint.close();
    guard.dismiss();
    trail.note(
        "scope-ended",
        &json!({ "run": run_id, "exit_code": ended.as_ref().ok().and_then(|report| report.exit_code),
            "turned_away": closed.turned_away, "cancelled": closed.cancelled }),
    )?;
    if let Some(error) = closed.log_error {
        remark(&Error::from(ScopeError::Log(error)).to_string());
    }
    let report = ended?;
    if args.report_out.as_ref().is_some_and(|file| !context.cwd.join(file).exists()) {
        remark("The worker handed in no report.");
    }
    Ok(match (report.exit_code, report.signal) {
        (Some(code), _) => u8::try_from(code).unwrap_or(Exit::Unexpected as u8),
        (None, Some(signal)) => u8::try_from(signal).ok().and_then(|n| n.checked_add(128)).unwrap_or(255),
        (None, None) => Exit::Unexpected as u8,
    })
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(&INVALID_ARGUMENT, message).with_hint("Compare it with `agent-bridge scope run --help`.")
}

/// Runs the command to its end.
fn worker(
    context: &Context,
    args: &RunArgs,
    endpoint: &Endpoint,
    root: &Path,
    depth: u32,
    run_id: &str,
) -> Result<Report> {
    let unwritable = |error: std::io::Error| invalid(format!("no private folder can be made: {error}"));
    // Removed when this function returns.
    let folder = tempfile::Builder::new().prefix("agent-bridge-scope-").tempdir().map_err(unwritable)?;
    let private_folder = folder.path().join("private");
    private::create_dir(&private_folder).map_err(unwritable)?;
    let config = private_folder.join("mcp.json");
    let mut file = private::owners_only().create_new(true).open(&config).map_err(unwritable)?;
    file.write_all(format!("{:#}\n", endpoint.mcp_config()).as_bytes()).map_err(unwritable)?;
    drop(file);

    let mut env = own_environment(context);
    set(&mut env, process::DEPTH_VAR, (depth + 1).to_string());
    set(&mut env, TURN_VAR, process::mark_below(run_id));
    set(&mut env, URL_VAR, endpoint.url());
    set(&mut env, TOKEN_VAR, endpoint.token().expose());
    set(&mut env, CONFIG_VAR, config.as_os_str());
    for name in ["NO_PROXY", "no_proxy"] {
        let before = context.text_var(name).map(|value| format!("{value},")).unwrap_or_default();
        set(&mut env, name, format!("{before}127.0.0.1,localhost,::1"));
    }
    let (program, rest) = args.command.split_first().ok_or_else(|| invalid("there is no command"))?;
    let resolved = process::resolve(Path::new(program), context)?;
    let filled = |argument: &OsString| match (argument.to_str(), config.to_str()) {
        (Some(text), Some(config)) => {
            text.replace("{scope-url}", &endpoint.url()).replace("{scope-config}", config).into()
        }
        _ => argument.clone(),
    };
    let program = Program {
        program: resolved.program,
        args: resolved.prefix_args.into_iter().chain(rest.iter().map(filled)).collect(),
        cwd: root.to_path_buf(),
        env,
        stdin: Vec::new(),
    };
    let interruption = Interruption::watch();
    let mut on_tick = || interruption.is_set().then(|| "asked to end".to_owned());
    Ok(process::run_on_our_streams(&program, GRACE, &mut on_tick)?)
}

/// Our environment without what belongs to another run.
fn own_environment(context: &Context) -> BTreeMap<OsString, OsString> {
    let mut env = context.env.clone();
    env.retain(|name, _| {
        let name = name.to_string_lossy().to_ascii_uppercase();
        name != TURN_VAR && !name.starts_with("AGENT_BRIDGE_SCOPE_")
    });
    env
}

fn set(env: &mut BTreeMap<OsString, OsString>, name: &str, value: impl AsRef<OsStr>) {
    if cfg!(windows) {
        env.retain(|known, _| !known.to_string_lossy().eq_ignore_ascii_case(name));
    }
    env.insert(name.into(), value.as_ref().to_owned());
}

/// The tools that can be offered with these options, the allowed ones switched on.
fn tools(context: &Context, args: &RunArgs, root: &Path, run_id: &str) -> Result<ToolSet> {
    let mut tools = ToolSet::default();
    if let Some(file) = &args.report_out {
        tools.add(Arc::new(kit::SubmitReport(Arc::new(ReportFile::new(context.cwd.join(file))?))))?;
    }
    if let Some(file) = &args.task {
        tools.add(Arc::new(kit::StoredText::task(text(context, file)?)))?;
    }
    if let Some(file) = &args.previous {
        tools.add(Arc::new(kit::StoredText::previous_result(text(context, file)?)))?;
    }
    if !args.check.is_empty() {
        let mut env = own_environment(context);
        set(&mut env, TURN_VAR, process::mark_below(run_id));
        let checks: Result<Vec<Check>, ScopeError> =
            args.check.iter().map(|check| Check::parse(check, root, context, &env)).collect();
        tools.add(Arc::new(kit::RunCheck::new(checks?, Duration::from_secs(args.check_timeout))?))?;
    }
    for tool in kit::Notes::default().tools() {
        tools.add(tool)?;
    }
    tools.add(Arc::new(kit::Progress(Arc::new(OnTerminal))))?;
    tools.add(Arc::new(kit::AskSupervisor::default()))?;
    tools.add(Arc::new(kit::RequestApproval { approver: None, wait: Duration::ZERO }))?;
    for name in &args.allow {
        let why = match name.as_str() {
            "submit_report" if args.report_out.is_none() => "`--report-out` has to say where the report goes",
            "get_task" if args.task.is_none() => "`--task` has to name the file with the task",
            "get_previous_result" if args.previous.is_none() => "`--previous` has to name the file",
            "run_check" if args.check.is_empty() => "`--check` has to name at least one check",
            "delegate" => "nobody here can start another worker",
            name if !kit::NAMES.contains(&name) => {
                let known = kit::NAMES.join(", ");
                return Err(ScopeError::UnknownTool { name: name.to_owned(), known }.into());
            }
            name => {
                tools.allow(name)?;
                continue;
            }
        };
        let name = kit::NAMES.iter().find(|known| *known == name).copied().unwrap_or_default();
        return Err(ScopeError::ToolNeedsHost { name, why }.into());
    }
    Ok(tools)
}

fn text(context: &Context, file: &Path) -> Result<String> {
    use std::io::Read as _;
    let path = context.cwd.join(file);
    let unreadable = |why: String| invalid(format!("{} cannot be read: {why}", path.display()));
    let mut text = String::new();
    let file = std::fs::File::open(&path).map_err(|error| unreadable(error.to_string()))?;
    file.take(MAX_TEXT + 1).read_to_string(&mut text).map_err(|error| unreadable(error.to_string()))?;
    if text.len() as u64 > MAX_TEXT {
        return Err(unreadable(format!("it is over {} MiB", MAX_TEXT >> 20)));
    }
    Ok(text)
}

/// What the audit trail is told about the run as a whole.
struct Trail(Option<Arc<Store>>);

impl Trail {
    fn note(&self, kind: &'static str, detail: &Value) -> Result<()> {
        Ok(self.0.as_ref().map_or(Ok(()), |store| store.audit(kind, None, None, detail))?)
    }
}

/// Where calls are written down, and how deep delegations may go.
fn record(
    context: &Context,
    load: impl FnOnce() -> Result<Config>,
    args: &RunArgs,
) -> Result<(Arc<dyn CallLog>, Trail, u32)> {
    let config = load()?;
    let deepest = config.max_delegation_depth;
    if let Some(file) = &args.audit {
        let path = context.cwd.join(file);
        let file = private::owners_only()
            .create_new(true)
            .open(&path)
            .map_err(|error| invalid(format!("`--audit` {} cannot be made: {error}", path.display())))?;
        return Ok((Arc::new(LinesLog::new(file)), Trail(None), deepest));
    }
    let store = Arc::new(Store::open(&config.state_dir, context.clock)?);
    let kept = Arc::clone(&store);
    let log = BatchedLog::new(move |batch| {
        let entry = |call: &CallRecord| AuditEntry {
            at: call.at,
            kind: "scope-call",
            session: None,
            turn: None,
            detail: call.to_json(),
        };
        let entries: Vec<_> = batch.iter().map(entry).collect();
        kept.audit_all(&entries).map_err(|error| error.to_string())
    });
    Ok((Arc::new(log), Trail(Some(store)), deepest))
}

struct ReportFile(PathBuf);

impl ReportFile {
    /// The file must be new: an older report could be taken for this run's.
    fn new(path: PathBuf) -> Result<Self> {
        if std::fs::symlink_metadata(&path).is_ok() {
            return Err(invalid(format!("`--report-out` {} is there already", path.display())));
        }
        if !path.parent().is_some_and(Path::is_dir) {
            return Err(invalid(format!("the folder of `--report-out` {} does not exist", path.display())));
        }
        Ok(Self(path))
    }
}

impl kit::ReportSink for ReportFile {
    fn keep(&self, report: &Value) -> Result<(), String> {
        let document =
            json!({ "schema": "agent-bridge/scope-report/1", "kind": "scope-report", "report": report });
        write_durable(&self.0, format!("{document:#}\n").as_bytes(), 0o600).map_err(|error| error.to_string())
    }
}

/// Shows a worker's progress to a person; another program that reads our streams expects only the worker's words.
struct OnTerminal;

impl kit::ProgressSink for OnTerminal {
    fn show(&self, message: &str, percent: Option<usize>) {
        use std::io::IsTerminal as _;
        if std::io::stderr().is_terminal() {
            let percent = percent.map(|percent| format!("{percent} % ")).unwrap_or_default();
            remark(&format!("[scope] {percent}{}", one_line(message, 200)));
        }
    }
}
