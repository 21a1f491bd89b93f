//! `agent-bridge delegate`

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use super::output::{Output, one_line};
use super::questions::Waiting;
use super::turn_text;
use crate::bridge::view::{TurnStatus, turn_view};
use crate::bridge::{Bridge, TurnRequest, TurnView};
use crate::config::OnDisconnect;
use crate::error::{Error, Exit, INVALID_ARGUMENT, Result};
use crate::policy::Sandbox;
use crate::store::{BlobKind, Store};

/// How often the progress line moves.
const TICK: Duration = Duration::from_millis(120);
/// Longest prompt that is read, in bytes (a character has at most four).
const MAX_PROMPT_BYTES: u64 = 4_000_000;

/// Give a task to an agent and print its answer.
///
/// What the MCP tool does, with a live progress line. The answer goes to standard output, whole; the facts about
/// the turn go to standard error. A terminal is asked what the worker asks. Ctrl-C cancels the turn.
///
/// Exit codes: 0 success · 1 the worker failed, timed out or was cancelled · 2 refused, login required or quota ·
/// 3 the answer is empty, not understood, or stopped at a limit · 75 still running after --wait.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  agent-bridge delegate codex \"List the modules of this crate\"\n  git diff | agent-bridge delegate claude --prompt-file - --cwd .\n  agent-bridge delegate codex --session ID \"And now the tests\""
)]
pub struct Args {
    /// The agent: codex, claude, …
    agent: String,
    /// The task.
    #[arg(required_unless_present = "prompt_file", conflicts_with = "prompt_file")]
    prompt: Option<String>,
    /// Read the task from a file, or from standard input with `-`.
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Go on with this session.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Folder of a new session (default: configured or .).
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Model to name to the agent.
    #[arg(long)]
    model: Option<String>,
    /// Authority: read-only, workspace-write or full-access.
    #[arg(long, value_parser = parse_sandbox)]
    sandbox: Option<Sandbox>,
    /// Hard limit of the run, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=7200))]
    timeout: Option<u32>,
    /// Wait no longer than this; the work goes on.
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u32>,
    /// Only these tools and servers of `scope`.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    scope_tool: Vec<String>,
    /// No tools of `scope`.
    #[arg(long, conflicts_with = "scope_tool")]
    no_scope: bool,
    /// The same key never runs the work twice.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print one JSON document instead of the answer.
    #[arg(long)]
    json: bool,
}

/// A sandbox mode by name.
fn parse_sandbox(text: &str) -> Result<Sandbox, String> {
    Sandbox::parse(text).ok_or_else(|| "one of read-only, workspace-write, full-access".to_owned())
}

pub fn run(bridge: &Bridge, args: Args, output: &mut Output) -> Result<Exit> {
    let prompt = match (args.prompt, &args.prompt_file) {
        (Some(prompt), _) => prompt,
        (None, Some(path)) => read_prompt(path)?,
        (None, None) => String::new(),
    };
    let text = |path: PathBuf| {
        path.to_str()
            .map(str::to_owned)
            .ok_or_else(|| Error::new(&INVALID_ARGUMENT, "`--cwd` is not Unicode"))
    };
    let cwd = match args.cwd {
        Some(path) => Some(text(path)?),
        None if args.session.is_none() && bridge.config().defaults.cwd.is_none() => Some(".".to_owned()),
        None => None,
    };
    let detached = args.wait.is_some();
    let request = TurnRequest {
        agent: Some(args.agent),
        prompt,
        cwd,
        model: args.model,
        sandbox: args.sandbox,
        timeout: args.timeout.map(|seconds| Duration::from_secs(seconds.into())),
        session_id: args.session,
        idempotency_key: args.idempotency_key,
        scope_tools: (args.no_scope || !args.scope_tool.is_empty()).then_some(args.scope_tool),
        // Whoever limits the wait wants the work to go on after it.
        on_disconnect: detached.then_some(OnDisconnect::Detach),
        requested_by: "terminal".into(),
        ..TurnRequest::default()
    };
    // Without --wait: longer than any run may take.
    let wait = Duration::from_secs(args.wait.map_or(8000, u64::from));
    let view = super::event_loop()?.block_on(run_turn(bridge, request, wait, output.stderr_is_terminal))?;
    if args.json {
        output.document("turn", &view);
    } else {
        print_answer(bridge, &view, output)?;
        if output.stderr_is_terminal {
            output.note("");
        }
        turn_text::note(&view, output);
    }
    Ok(turn_text::exit_of(&view))
}

fn read_prompt(path: &std::path::Path) -> Result<String> {
    let unreadable = |error: std::io::Error| {
        Error::new(&INVALID_ARGUMENT, format!("the prompt cannot be read from {}: {error}", path.display()))
            .with_hint("Name a readable UTF-8 file, or - for standard input.")
    };
    let mut text = String::new();
    if path.as_os_str() == "-" {
        if std::io::stdin().is_terminal() {
            let _ = writeln!(std::io::stderr(), "Type the task, then Ctrl-D.");
        }
        std::io::stdin().take(MAX_PROMPT_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    } else {
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(MAX_PROMPT_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    }
    Ok(text)
}

async fn run_turn(bridge: &Bridge, request: TurnRequest, wait: Duration, live: bool) -> Result<TurnView> {
    let agent = request.agent.clone().unwrap_or_default();
    let line = if live { indicatif::ProgressBar::new_spinner() } else { indicatif::ProgressBar::hidden() };
    line.enable_steady_tick(TICK);
    line.set_message(format!("{agent}: starting"));
    let started = bridge.start(request).await?;
    let show = |elapsed: Duration, activity: Option<&str>| {
        let activity = one_line(activity.unwrap_or("working"), 90);
        if line.is_finished() {
            line.reset();
            line.enable_steady_tick(TICK);
        }
        line.set_message(format!("{agent}: {} s · {activity}", elapsed.as_secs()));
    };
    // Nothing is drawn while a person types.
    let clear = || line.finish_and_clear();
    let mut waiting = Waiting::new(true, live);
    let waited = tokio::select! {
        waited = waiting.wait(bridge, &started.turn_id, wait, show, clear) => waited?,
        () = crate::platform::termination() => {
            line.set_message(format!("{agent}: cancelling"));
            bridge.cancel(&started.turn_id, "interrupted at the terminal", Duration::from_secs(8)).await?.1
        }
    };
    line.finish_and_clear();
    let now = bridge.context().clock.now_ms();
    bridge.with_store(move |store| turn_view(store, &waited, now, 1 << 20)).await
}

fn print_answer(bridge: &Bridge, view: &TurnView, output: &mut Output) -> Result<()> {
    if view.status == TurnStatus::StillRunning {
        return Ok(());
    }
    if view.code.as_deref() == Some("RECORD_NOT_WRITTEN") || !view.output_truncated {
        if let Some(text) = view.output.as_deref().filter(|text| !text.is_empty()) {
            output.foreign(text);
            output.line("");
        }
        return Ok(());
    }
    let store = Store::open(&bridge.config().state_dir, bridge.context().clock)?;
    copy_blob(&store, &view.turn_id, BlobKind::Answer, output)?;
    output.line("");
    Ok(())
}

/// Writes a whole text to standard output, page by page.
pub fn copy_blob(store: &Store, turn_id: &str, kind: BlobKind, output: &mut Output) -> Result<()> {
    let mut offset = 0;
    loop {
        let page = store.blobs().read_page(turn_id, kind, offset, 1 << 20)?;
        output.foreign(&page.text);
        match page.next_offset {
            Some(next) => offset = next,
            None => return Ok(()),
        }
    }
}
