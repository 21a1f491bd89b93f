//! Workers' questions at a terminal: listed, answered, and put to whoever waits for the turn.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::output::{Output, age, one_line, printable, remark};
use super::sessions::{nothing, open, tell_the_rest};
use crate::bridge::questions::{GivenAnswer, QuestionView, Seen};
use crate::bridge::{Bridge, TurnView, WaitedTurn};
use crate::error::{Exit, Result};
use crate::mcp::outputs::QuestionEntry;
use crate::store::{QuestionFilter, QuestionKind, QuestionRow, QuestionState, StoreError, TurnState};

/// Who answers here, for the record.
const BY: &str = "terminal";
/// How often a question that is being asked here is looked at: somebody else may have answered.
const LOOK: Duration = Duration::from_millis(250);
/// Characters of a question in a list.
const LISTED: usize = 80;

/// `turns questions`.
pub fn list(
    bridge: &Bridge,
    turn: Option<String>,
    all: bool,
    limit: u16,
    as_json: bool,
    output: &mut Output,
) -> Result<Exit> {
    let filter = QuestionFilter { state: (!all).then_some(QuestionState::Open), turn };
    let list = if open(bridge)?.is_none() {
        nothing()
    } else {
        super::event_loop()?.block_on(bridge.questions(filter, limit.into(), None))?
    };
    let now = bridge.context().clock.now_ms();
    if as_json {
        let questions: Vec<_> = list.rows.iter().map(|row| QuestionEntry::new(row, now)).collect();
        output.document("questions", &json!({ "questions": questions }));
    } else if list.rows.is_empty() {
        output.note("No worker waits for an answer.");
    } else {
        let cells = |row: &QuestionRow| {
            let what =
                row.tool.as_ref().map_or_else(|| row.text.clone(), |tool| format!("{tool} {}", row.text));
            vec![
                row.id.clone(),
                age(now, row.asked_at),
                row.kind.as_str().to_owned(),
                row.state.as_str().to_owned(),
                row.turn.clone(),
                one_line(&what, LISTED),
            ]
        };
        output.table(
            &["QUESTION", "AGE", "KIND", "STATE", "TURN", "TEXT"],
            &list.rows.iter().map(cells).collect::<Vec<_>>(),
        );
    }
    tell_the_rest(&list, output);
    Ok(Exit::Ok)
}

/// `turns answer`.
pub fn answer(
    bridge: &Bridge,
    id: &str,
    answer: GivenAnswer,
    as_json: bool,
    output: &mut Output,
) -> Result<Exit> {
    if open(bridge)?.is_none() {
        return Err(StoreError::QuestionNotFound(id.to_owned()).into());
    }
    let row = super::event_loop()?.block_on(bridge.answer(id, answer, BY))?;
    if as_json {
        let now = bridge.context().clock.now_ms();
        output.document("question", &QuestionEntry::new(&row, now));
    } else {
        output.line(said(&row));
    }
    Ok(Exit::Ok)
}

fn said(row: &QuestionRow) -> &'static str {
    match row.approved {
        None => "Answered. The worker goes on.",
        Some(true) => "Approved. The worker goes on.",
        Some(false) => "Denied. The worker goes on.",
    }
}

/// The command that answers a question.
pub fn command(id: &str, kind: QuestionKind) -> String {
    match kind {
        QuestionKind::Question => format!("agent-bridge turns answer {id} --text \"…\""),
        QuestionKind::Approval => format!("agent-bridge turns answer {id} --approve (or --deny)"),
    }
}

/// A question's facts for a turn's page.
pub fn facts(view: &TurnView) -> Vec<String> {
    let fact = |question: &QuestionView| {
        let what = question.tool.as_ref().map(|tool| format!("may I use {tool}? ")).unwrap_or_default();
        format!("{what}{}", one_line(&question.text, 400))
    };
    view.questions.iter().map(fact).collect()
}

/// Whoever waits for a turn at this terminal.
pub struct Waiting {
    told: Seen,
    /// A person can be asked.
    asks: bool,
    /// What the person types, a line at a time, once somebody was asked.
    lines: Option<UnboundedReceiver<String>>,
}

impl Waiting {
    /// `asks`: the person at the terminal, if there is one, is asked for the answer.
    pub fn new(asks: bool, output_is_terminal: bool) -> Self {
        let asks = asks && output_is_terminal && std::io::stdin().is_terminal();
        Self { told: Seen::default(), asks, lines: None }
    }

    /// Waits for the end of a turn, but no longer than `limit`, and puts or tells each question meanwhile. `before` is
    /// called before something is printed.
    pub async fn wait(
        &mut self,
        bridge: &Bridge,
        turn_id: &str,
        limit: Duration,
        on_activity: impl Fn(Duration, Option<&str>),
        before: impl Fn(),
    ) -> Result<WaitedTurn> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let known = |id: &str| self.told.has(id);
            let waited = bridge.wait_or_question(turn_id, left, &known, &on_activity).await?;
            if waited.row.state == TurnState::Finished || Instant::now() >= deadline {
                return Ok(waited);
            }
            if bridge.is_within_run() {
                // Whoever waits here may not answer.
                return bridge.wait(turn_id, left, &on_activity).await;
            }
            for question in bridge.open_questions(turn_id).await? {
                if self.told.add(&question.id) {
                    before();
                    self.put(bridge, &question).await?;
                }
            }
        }
    }

    async fn put(&mut self, bridge: &Bridge, question: &QuestionRow) -> Result<()> {
        let now = bridge.context().clock.now_ms();
        let seconds = question.wait_until.saturating_sub(now).max(0) / 1000;
        let what = match &question.tool {
            Some(tool) => format!("The worker asks to use {}, within {seconds} s:", one_line(tool, 200)),
            None => format!("The worker asks, and waits {seconds} s:"),
        };
        remark(&format!("{what}\n{}", question.text));
        if !self.asks {
            remark(&format!("Answer with `{}`.", command(&question.id, question.kind)));
            return Ok(());
        }
        let lines = self.lines.get_or_insert_with(typed_lines);
        // What was typed before the question is no answer to it.
        while lines.try_recv().is_ok() {}
        loop {
            prompt(question.kind);
            let line = tokio::select! {
                line = lines.recv() => line,
                row = settled(bridge, &question.id) => {
                    remark(&match row {
                        Some(QuestionRow { answered_by: Some(by), .. }) => format!("\nAnswered by {}.", one_line(&by, 80)),
                        _ => "\nThe worker went on without an answer.".to_owned(),
                    });
                    return Ok(());
                }
            };
            let Some(line) = line else {
                self.asks = false;
                return Ok(());
            };
            let given = match (question.kind, line.trim()) {
                (_, "") => {
                    remark(&format!("Left open: `{}`.", command(&question.id, question.kind)));
                    return Ok(());
                }
                (QuestionKind::Question, text) => GivenAnswer { approved: None, text: Some(text.to_owned()) },
                (QuestionKind::Approval, "approve") => GivenAnswer { approved: Some(true), text: None },
                (QuestionKind::Approval, "deny") => GivenAnswer { approved: Some(false), text: None },
                (QuestionKind::Approval, _) => continue,
            };
            match bridge.answer(&question.id, given, BY).await {
                Ok(row) => remark(said(&row)),
                Err(error) if error.code() == "QUESTION_ANSWER_INVALID" => {
                    remark(&error.to_string());
                    continue;
                }
                // Somebody was faster, or it was too late.
                Err(error) => remark(&error.to_string()),
            }
            return Ok(());
        }
    }
}

/// As long as a question is open this does not return.
async fn settled(bridge: &Bridge, id: &str) -> Option<QuestionRow> {
    loop {
        tokio::time::sleep(LOOK).await;
        let asked = id.to_owned();
        let row = bridge.with_store(move |store| Ok(store.question(&asked)?)).await.ok()?;
        if row.state != QuestionState::Open {
            return Some(row);
        }
        // Of a run that has died, it is closed here.
        bridge.turn(&row.turn).await.ok()?;
    }
}

fn prompt(kind: QuestionKind) {
    let words = match kind {
        QuestionKind::Question => "Your answer (empty: leave it open): ",
        QuestionKind::Approval => "Type approve or deny (empty: leave it open): ",
    };
    let mut stderr = std::io::stderr();
    let _ = stderr.write_all(printable(words).as_bytes()).and_then(|()| stderr.flush());
}

/// Reads what is typed, on a thread that nobody waits for: a read cannot be interrupted.
fn typed_lines() -> UnboundedReceiver<String> {
    let (sender, lines) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
