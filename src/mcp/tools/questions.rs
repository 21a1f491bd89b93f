//! Tools that show and answer what workers ask, and the wait of a call that a question cuts short.

use std::time::{Duration, Instant};

use rmcp::model::CallToolResult;

use super::arguments::{AnswerQuestion, ListQuestions, ListedState};
use super::outputs::{AnsweredQuestion, QuestionEntry, QuestionList};
use super::turns::fit_page;
use super::{Call, ProgressReporter, checked_id, within};
use crate::bridge::questions::{GivenAnswer, QuestionView};
use crate::bridge::view::TurnStatus;
use crate::bridge::{Bridge, TurnView, WaitedTurn};
use crate::config::Toolset;
use crate::error::Result;
use crate::mcp::reply::{json_reply, reply};
use crate::store::{QuestionFilter, QuestionKind, QuestionRow, QuestionState, TurnState};

/// `list_questions`.
pub async fn list_questions(mut call: Call) -> Result<CallToolResult> {
    let arguments: ListQuestions = call.parse()?;
    if let Some(id) = &arguments.turn_id {
        checked_id("turn_id", id)?;
    }
    let limit = within("limit", arguments.limit, 20, 1..=200)? as usize;
    let state = match arguments.state.unwrap_or_default() {
        ListedState::All => None,
        ListedState::Open => Some(QuestionState::Open),
        ListedState::Answered => Some(QuestionState::Answered),
        ListedState::Expired => Some(QuestionState::Expired),
        ListedState::Closed => Some(QuestionState::Closed),
    };
    let filter = QuestionFilter { state, turn: arguments.turn_id };
    let now = call.bridge.context().clock.now_ms();
    call.bridge.reconcile().await?;
    let list = call
        .bridge
        .with_store(move |store| {
            let (questions, skipped, next_cursor) = fit_page(
                limit,
                |row: &QuestionRow| QuestionEntry::new(row, now),
                |limit| Ok(store.questions(&filter, limit, arguments.cursor.as_deref())?),
            )?;
            Ok(QuestionList { questions, skipped, next_cursor })
        })
        .await?;
    Ok(json_reply(&list))
}

/// `answer_question`.
pub async fn answer_question(mut call: Call) -> Result<CallToolResult> {
    let arguments: AnswerQuestion = call.parse()?;
    checked_id("question_id", &arguments.question_id)?;
    let answer = GivenAnswer { approved: arguments.approve, text: arguments.text };
    let row = call.bridge.answer(&arguments.question_id, answer, &call.requester()).await?;
    let what = match row.approved {
        None => "Answered",
        Some(true) => "Approved",
        Some(false) => "Denied",
    };
    let text = format!("{what}. The worker goes on: call wait_turn with turn_id {}.", row.turn);
    let now = call.bridge.context().clock.now_ms();
    let answered = AnsweredQuestion {
        question: QuestionEntry::new(&row, now),
        hint: format!("Call wait_turn with turn_id {} to see what the worker makes of it.", row.turn),
    };
    Ok(reply(text, &answered, false))
}

/// Waits until a turn has ended or its worker asks something that the caller was not told of yet, but no longer than
/// `limit`. Where a person can be asked, that is tried first.
pub async fn wait(
    call: &Call,
    turn_id: &str,
    limit: Duration,
    progress: &ProgressReporter,
) -> Result<WaitedTurn> {
    let bridge = &call.bridge;
    let deadline = Instant::now() + limit;
    let known = |id: &str| call.told.has(id) || call.person.has(id);
    let report = |elapsed: Duration, activity: Option<&str>| progress.report(turn_id, elapsed, activity);
    loop {
        let came_back = call.person.came_back();
        tokio::pin!(came_back);
        came_back.as_mut().enable();
        let left = || deadline.saturating_duration_since(Instant::now());
        let waited = tokio::select! {
            waited = bridge.wait_or_question(turn_id, left(), &known, report) => waited?,
            // The person did not answer it: now it is new to the caller.
            () = &mut came_back => continue,
        };
        if waited.row.state == TurnState::Finished || left().is_zero() {
            return Ok(waited);
        }
        if bridge.is_within_run() {
            return bridge.wait(turn_id, left(), report).await;
        }
        let open = bridge.open_questions(turn_id).await?;
        call.person.ask(bridge, &call.request.peer, &call.requester(), waited.row.agent, &open);
        if open.iter().any(|question| !known(&question.id)) {
            return Ok(waited);
        }
    }
}

/// Completes the view of a running turn with what this caller can do about its questions, and notes that it was told.
pub fn advise(call: &Call, view: &mut TurnView) {
    if view.status != TurnStatus::StillRunning || view.questions.is_empty() {
        return;
    }
    let wait = format!("call wait_turn with turn_id {}", view.turn_id);
    if call.bridge.is_within_run() {
        view.hint = Some(format!("Somebody outside this run has to answer the worker's question; {wait}."));
        return;
    }
    let with_person = |question: &QuestionView| call.person.has(&question.question_id);
    if view.questions.iter().all(with_person) {
        view.hint = Some(format!("The user is being asked in a form; {wait}."));
    } else if !can_answer(&call.bridge) {
        view.hint = Some(format!("Ask the user to run `{}` in a terminal; then {wait}.", command(view)));
    }
    for question in view.questions.iter().filter(|question| !with_person(question)) {
        call.told.add(&question.question_id);
    }
}

fn can_answer(bridge: &Bridge) -> bool {
    bridge.config().toolsets.contains(&Toolset::Approvals)
}

/// The command that answers the first question.
fn command(view: &TurnView) -> String {
    let first = view.questions.first();
    let id = first.map_or("ID", |question| question.question_id.as_str());
    match first.map(|question| question.kind) {
        Some(QuestionKind::Approval) => format!("agent-bridge turns answer {id} --approve (or --deny)"),
        _ => format!("agent-bridge turns answer {id} --text \"…\""),
    }
}
