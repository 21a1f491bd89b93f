//! `agent-bridge configure-clients`

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::installation::Installation;
use super::output::Output;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::clients::table;
use crate::release::clients::{self, ClientPlan, Effect, Found, Machine, Options, Plan, Step, Written};

/// Register the installation in your MCP clients.
///
/// Clients are Codex, Claude Code, Claude Desktop and Gemini CLI. Without `--apply` nothing is changed: you see which file each client reads, and what would be written. Only
/// the bridge's own entry is touched; every other byte of a file stays. Exit code 2 if a file cannot be changed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  agent-bridge configure-clients                        look\n  agent-bridge configure-clients --apply                write\n  agent-bridge configure-clients --client codex --plan-out plan.json\n  agent-bridge configure-clients --apply plan.json      write exactly that plan\n  agent-bridge configure-clients --restore TXID --apply take a change back\n  agent-bridge configure-clients --remove --apply       take the entries out\n  agent-bridge configure-clients --check                is it in effect?"
)]
pub struct Args {
    /// Only codex, claude-code, claude-desktop or gemini; can be repeated.
    #[arg(long = "client", value_name = "ID")]
    clients: Vec<String>,
    /// Write also for a named client that was not found here.
    #[arg(long, requires = "clients")]
    create: bool,
    /// Let headless runs call the tools without a question.
    #[arg(long)]
    allow_headless: bool,
    /// State folder for the server (default: AGENT_BRIDGE_STATE_DIR).
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Keep the plan in a file, for --apply.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["apply", "remove", "restore", "check"])]
    plan_out: Option<PathBuf>,
    /// Write; with a plan exactly that, or nothing.
    #[arg(long, value_name = "PLAN", num_args = 0..=1)]
    #[allow(clippy::option_option, reason = "absent, without a value, with one")]
    apply: Option<Option<PathBuf>>,
    /// With a plan: also where others changed a file since.
    #[arg(long, requires = "apply")]
    rebase: bool,
    /// Take our entries out.
    #[arg(long, conflicts_with_all = ["restore", "check", "create"])]
    remove: bool,
    /// Take a change back; what others changed since stays.
    #[arg(long, value_name = "TXID", conflicts_with_all = ["check", "create"])]
    restore: Option<String>,
    /// Only say whether each client will start this installation.
    #[arg(long, conflicts_with = "apply")]
    check: bool,
    /// After writing, watch the files this long for a client that writes its own copy over them (default: 2 where
    /// one runs, else 0).
    #[arg(long, value_name = "SECONDS", requires = "apply", value_parser = clap::value_parser!(u32).range(..=3600))]
    watch: Option<u32>,
    #[command(flatten)]
    installation: Installation,
    /// Why; goes into the journal.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only say what would be done (the default).
    #[arg(long, conflicts_with = "apply")]
    dry_run: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    status: &'static str,
    changed: bool,
    #[serde(flatten)]
    written: &'a Written,
    /// Files that another program changed right after.
    drifted: Vec<&'a std::path::Path>,
    /// Those of them in which our entry is gone.
    lost: &'a [clients::Lost],
    #[serde(flatten)]
    plan: &'a Plan,
}

pub fn run(context: &Context, args: &Args, output: &mut Output) -> Result<Exit> {
    let layout = args.installation.layout(context)?;
    let machine = Machine::default();
    let options = Options {
        clients: args.clients.clone(),
        create: args.create,
        allow_headless: args.allow_headless,
        state_dir: state_dir(context, args.state_dir.clone()),
        machine: machine.clone(),
    };
    clients::require_known(&options.clients)?;
    let plan = match (&args.restore, &args.apply) {
        (Some(txid), _) => clients::plan_restore(&layout, txid, &options)?,
        (None, Some(Some(file))) if !args.remove => {
            clients::saved_plan(context, &layout, file, args.rebase, &machine)?
        }
        _ if args.remove => clients::plan_removal(context, &layout, &options)?,
        _ => clients::plan(context, &layout, &options)?,
    };
    if args.check {
        return Ok(check(&plan, args.json, output));
    }
    if let Some(path) = &args.plan_out {
        clients::save_plan(path, &plan)?;
    }
    let written = match args.apply {
        Some(_) => clients::apply(context, &layout, &plan, args.reason.as_deref()).inspect_err(|_| {
            // What is in the way is worth seeing as a whole.
            if !args.json && plan.blocked().next().is_some() {
                show(&plan, &Written::default(), output);
            }
        })?,
        None => Written::default(),
    };
    if written.txid.is_some() {
        output.committed();
    }
    let time = args
        .watch
        .map_or_else(|| written.worth_watching(&plan), |seconds| Duration::from_secs(seconds.into()));
    let changed_again = written.watch(time);
    let lost = written.lost(&plan, &changed_again);
    let drifted: Vec<_> = changed_again.iter().map(|one| one.path.as_path()).collect();
    let blocked = plan.blocked().next().is_some();
    let status = match () {
        () if written.txid.is_some() => "applied",
        () if plan.is_empty() && !blocked => "unchanged",
        () if blocked => "blocked",
        () => "dry-run",
    };
    if args.json {
        let changed = written.txid.is_some();
        output.document(
            "configure-clients",
            &Document { status, changed, written: &written, drifted, lost: &lost, plan: &plan },
        );
    } else {
        show(&plan, &written, output);
        if let Some(path) = &args.plan_out {
            output.note(&format!(
                "The plan is kept; to write exactly it: agent-bridge configure-clients --apply {}",
                path.display()
            ));
        }
        for one in &lost {
            output.note(&format!("warning: {}: {}\n  next: {}", one.path.display(), one.why, one.next));
        }
        for path in drifted.into_iter().filter(|path| lost.iter().all(|one| one.path != **path)) {
            output.note(&format!(
                "warning: {} was changed by another program right after; look with `agent-bridge configure-clients --check`",
                path.display()
            ));
        }
    }
    Ok(if blocked { Exit::Refused } else { Exit::Ok })
}

/// The state folder that servers are told of: the given one, or the one of the environment.
pub(super) fn state_dir(context: &Context, given: Option<PathBuf>) -> Option<PathBuf> {
    let given = given.or_else(|| context.text_var("AGENT_BRIDGE_STATE_DIR").map(PathBuf::from))?;
    Some(given.to_str().and_then(|text| context.expand(text, &context.cwd)).unwrap_or(given))
}

fn check(plan: &Plan, json: bool, output: &mut Output) -> Exit {
    if json {
        #[derive(Serialize)]
        struct One<'a> {
            client: &'a str,
            file: Option<&'a std::path::Path>,
            verdict: &'a clients::Verdict,
        }
        let all: Vec<One<'_>> = plan
            .clients
            .iter()
            .map(|one| One { client: one.client, file: one.file.as_deref(), verdict: &one.verdict })
            .collect();
        output.document("configure-clients-check", &serde_json::json!({ "clients": all }));
    } else {
        let rows: Vec<Vec<String>> = plan
            .clients
            .iter()
            .map(|one| {
                let by =
                    one.verdict.by.as_ref().map_or_else(String::new, |path| format!(" ({})", path.display()));
                vec![one.client.to_owned(), word(one.verdict.effect), format!("{}{by}", one.verdict.why)]
            })
            .collect();
        output.table(&["CLIENT", "VERDICT", "WHY"], &rows);
    }
    // What is not there or not registered is no fault; an entry that is not in effect is.
    let faulty = |one: &ClientPlan| {
        !matches!(one.verdict.effect, Effect::Effective | Effect::NotInstalled | Effect::NotRegistered)
    };
    if plan.clients.iter().any(faulty) { Exit::VerificationFailed } else { Exit::Ok }
}

/// The name of an enumerated value as JSON has it.
fn word(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The ids under which files are asked for.
fn belonging<'a>(files: impl Iterator<Item = &'a ClientPlan>) -> BTreeSet<&'static str> {
    files.filter_map(|one| table::find(one.client)).map(|client| client.belongs_to).collect()
}

fn show(plan: &Plan, written: &Written, output: &mut Output) {
    for one in &plan.clients {
        let place = match (&one.file, one.state) {
            (_, Found::NotInstalled) | (None, _) => "not found here".to_owned(),
            (Some(file), _) => format!("{} ({})", file.display(), one.why),
        };
        let name = table::find(one.client).map_or(one.client, |client| client.name);
        output.line(format!("{name}: {place}"));
        match (one.action, one.state) {
            _ if !one.errors.is_empty() => {}
            (Step::None, Found::NotInstalled) => {}
            (Step::None, Found::Correct) => output.line("  nothing to do"),
            (Step::None, _) => output.line("  nothing of ours in it"),
            (step, state) => {
                let verb = if written.txid.is_some() { "was" } else { "would be" };
                let what = match (plan.operation, step, state) {
                    ("configure", Step::Create, _) => "the file {} made with our entry".to_owned(),
                    ("configure", _, Found::Absent) => "our entry {} added".to_owned(),
                    ("configure", ..) => format!("our entry ({}) {{}} changed", word(state)),
                    (_, Step::Delete, _) => "the file, which we made, {} removed".to_owned(),
                    ("remove", ..) => "our entry {} taken out".to_owned(),
                    _ => "what we changed {} put back".to_owned(),
                };
                output.line(format!("  {}:", what.replace("{}", verb)));
            }
        }
        for line in one.diff.lines() {
            output.line(format!("  {line}"));
        }
        for warning in &one.warnings {
            output.wrapped(&format!("  warning: {warning}"), 4);
        }
        for error in &one.errors {
            let part = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
            output.wrapped(&format!("  {}: {}", part("code"), part("message")), 4);
            output.wrapped(&format!("  next: {}", part("hint")), 4);
        }
        if let Some(snippet) = &one.snippet {
            output.line("  paste this:");
            for line in snippet.lines() {
                output.line(format!("    {line}"));
            }
        }
        if plan.operation == "configure"
            && one.verdict.effect != Effect::NotInstalled
            && one.action == Step::None
            && one.errors.is_empty()
        {
            output.wrapped(&format!("  {}: {}", word(one.verdict.effect), one.verdict.why), 4);
        }
    }
    if plan.operation == "configure" && !plan.config_exists {
        output.note(&format!(
            "warning: {} is not there yet; the server will say so until it is",
            plan.config.display()
        ));
    }
    match &written.txid {
        Some(txid) => {
            output.line(format!("Written as {txid}."));
            output.note(&format!("To take it back: agent-bridge configure-clients --restore {txid} --apply"));
        }
        None if plan.blocked().next().is_some() => {
            output.line(
                "Nothing was changed, and --apply writes to none of these until it can write to all of them.",
            );
            let good: BTreeSet<&str> = belonging(plan.clients.iter().filter(|one| one.change_required));
            let bad = belonging(plan.blocked());
            let good: Vec<String> = good.difference(&bad).map(|id| format!("--client {id}")).collect();
            if !good.is_empty() {
                output.note(&format!("Without those that cannot be changed: {}", good.join(" ")));
            }
        }
        None if plan.is_empty() => output.line("Nothing to do."),
        None => output.line("Nothing was changed. Add --apply to write this."),
    }
}
