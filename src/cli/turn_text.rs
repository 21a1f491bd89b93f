//! A turn as a person at a terminal reads it: facts with labels, and the next command.

use super::output::{Output, duration, for_terminal, one_line};
use super::questions;
use crate::agents::Outcome;
use crate::bridge::TurnView;
use crate::error::Exit;

/// Lines of standard error that are shown of a turn that failed.
const STDERR_LINES: usize = 8;
/// Width of the labels.
const LABELS: usize = 9;

/// The facts of a turn, a line each; the answer is not among them.
pub fn facts(view: &TurnView) -> Vec<String> {
    let outcome = view.outcome.map_or("still running", |outcome| outcome.as_str());
    let mut head = vec![outcome.to_owned(), view.agent.to_string()];
    head.extend(view.model.clone());
    head.extend([duration(view.duration_ms), view.sandbox.to_string()]);
    let mut lines = vec![head.join(" · ")];
    let mut fact = |label: &str, text: &str| lines.push(format!("{label:LABELS$}{text}"));
    fact("session", &format!("{} (turn {})", view.bridge_session_id, view.turn));
    fact("turn", &view.turn_id);
    if let Some(activity) = &view.activity {
        fact("now", &one_line(activity, 200));
    }
    for question in questions::facts(view) {
        fact("asks", &question);
    }
    if let Some(report) = &view.report {
        let word = |key: &str| report[key].as_str().unwrap_or_default();
        fact("report", &one_line(&format!("{}: {}", word("outcome"), word("summary")), 400));
    }
    if let Some(detail) = &view.detail {
        let code = view.code.as_deref().map(|code| format!("{code}: ")).unwrap_or_default();
        fact("why", &format!("{code}{}", one_line(detail, 2_000)));
    }
    let stderr: Vec<&str> = view.stderr.iter().flat_map(|text| text.trim_end().lines()).collect();
    for (number, line) in stderr.iter().skip(stderr.len().saturating_sub(STDERR_LINES)).enumerate() {
        fact(if number == 0 { "stderr" } else { "" }, line);
    }
    if view.output_truncated && view.output.is_some() {
        let text =
            format!("`agent-bridge turns output {}` prints all {} bytes", view.turn_id, view.output_chars);
        fact("more", &text);
    }
    for note in &view.notes {
        fact("note", note);
    }
    if let Some(next) = next(view) {
        fact("next", &next);
    }
    lines
}

/// The facts on standard output, after the answer as far as it is in the view.
pub fn print(view: &TurnView, output: &mut Output) {
    if let Some(answer) = view.output.as_deref().filter(|text| !text.is_empty()) {
        output.foreign(answer);
        output.line("\n");
    }
    for line in facts(view) {
        output.wrapped(&super::output::printable(&line), LABELS);
    }
}

/// The facts on standard error.
pub fn note(view: &TurnView, output: &mut Output) {
    for line in facts(view) {
        output.note_indented(&line, LABELS);
    }
}

/// Exit code of a command whose result is this turn.
pub fn exit_of(view: &TurnView) -> Exit {
    match view.outcome {
        None => Exit::RetryLater,
        Some(Outcome::Success) => Exit::Ok,
        Some(Outcome::LoginRequired | Outcome::Quota) => Exit::Refused,
        Some(Outcome::Empty | Outcome::FormatUnrecognised | Outcome::TurnLimit) => Exit::VerificationFailed,
        Some(Outcome::WorkerError | Outcome::Timeout | Outcome::Cancelled | Outcome::Interrupted) => {
            Exit::Unexpected
        }
    }
}

fn next(view: &TurnView) -> Option<String> {
    let hint = view.hint.as_deref()?;
    let (turn, agent, session) = (&view.turn_id, view.agent, &view.bridge_session_id);
    let again = |prompt: &str| format!("`agent-bridge delegate {agent} --session {session} \"{prompt}\"`");
    if let Some(question) = view.questions.first() {
        return Some(format!("`{}` answers it", questions::command(&question.question_id, question.kind)));
    }
    Some(match view.outcome {
        None => format!(
            "`agent-bridge turns wait {turn}` waits for the result; `agent-bridge turns cancel {turn}` ends it"
        ),
        Some(Outcome::LoginRequired) => for_terminal(&hint.replace("Ask the user to run", "Run")),
        Some(Outcome::Quota) => {
            "Wait for the reset, or choose another agent. Nothing was retried.".to_owned()
        }
        Some(Outcome::TurnLimit) => format!("Partial work is kept. {} goes on.", again("Go on.")),
        Some(Outcome::Empty) => format!("{} asks once more.", again("Please answer.")),
        Some(_) if view.code.is_none() => {
            format!(
                "`agent-bridge turns output {turn} --field stderr` (or stdout) shows what the agent printed"
            )
        }
        Some(_) => for_terminal(hint),
    })
}
