//! Questions: asked by running turns only, settled once, listed by where they stand.

use std::time::Duration;

use super::*;

fn asked(store: &Store, turn: &NewTurn, kind: QuestionKind) -> String {
    let question = NewQuestion {
        session: &turn.session_id,
        turn: &turn.id,
        kind,
        tool: (kind == QuestionKind::Approval).then_some("Bash"),
        text: "Left or right?",
        wait: Duration::from_secs(60),
    };
    store.ask(&question).unwrap()
}

fn running(store: &Store) -> NewTurn {
    let turn = first_turn();
    begin(store, &turn).unwrap();
    turn
}

const ANSWER: NewAnswer<'_> = NewAnswer { approved: None, text: Some("Left."), by: "tests" };

#[test]
fn a_question_is_read_as_it_was_asked_and_then_answered() {
    let (_folder, store) = store();
    let turn = running(&store);
    let id = asked(&store, &turn, QuestionKind::Approval);
    let row = store.question(&id).unwrap();
    assert_eq!((row.state, row.tool.as_deref()), (QuestionState::Open, Some("Bash")));
    assert_eq!((row.asked_at, row.wait_until), (NOW, NOW + 60_000));
    assert_eq!(store.pulse(&turn.id).unwrap(), Pulse { finished: false, open_questions: vec![id.clone()] });
    let answer = NewAnswer { approved: Some(true), text: None, by: "tests" };
    let row = store.answer_question(&id, &answer).unwrap();
    assert_eq!((row.state, row.approved), (QuestionState::Answered, Some(true)));
    assert_eq!((row.answered_by.as_deref(), row.answered_at), (Some("tests"), Some(NOW)));
    assert_eq!(store.question(&id).unwrap(), row);
    assert_eq!(store.pulse(&turn.id).unwrap(), Pulse::default());
}

#[test]
fn whatever_settles_a_question_first_stands() {
    let (_folder, store) = store();
    let turn = running(&store);
    for (first, code_of_a_late_answer) in [
        (None, "QUESTION_ANSWERED"),
        (Some(QuestionState::Expired), "QUESTION_EXPIRED"),
        (Some(QuestionState::Closed), "QUESTION_CLOSED"),
    ] {
        let id = asked(&store, &turn, QuestionKind::Question);
        let before = match first {
            None => store.answer_question(&id, &ANSWER).unwrap(),
            Some(state) => store.settle_question(&id, state).unwrap(),
        };
        assert_eq!(code(store.answer_question(&id, &ANSWER)), code_of_a_late_answer);
        for late in [QuestionState::Expired, QuestionState::Closed] {
            assert_eq!(store.settle_question(&id, late).unwrap(), before, "{late:?} changed nothing");
        }
    }
}

#[test]
fn only_a_running_turn_asks_and_its_end_closes_what_is_open() {
    let (_folder, store) = store();
    let turn = running(&store);
    let (open, answered) =
        (asked(&store, &turn, QuestionKind::Question), asked(&store, &turn, QuestionKind::Question));
    store.answer_question(&answered, &ANSWER).unwrap();
    store.finish_turn(&turn.id, &success(), None).unwrap();
    assert_eq!(store.question(&open).unwrap().state, QuestionState::Closed);
    assert_eq!(store.question(&answered).unwrap().state, QuestionState::Answered);
    assert!(store.pulse(&turn.id).unwrap().finished);
    let late = NewQuestion {
        session: &turn.session_id,
        turn: &turn.id,
        kind: QuestionKind::Question,
        tool: None,
        text: "And now?",
        wait: Duration::ZERO,
    };
    assert_eq!(code(store.ask(&late)), "TURN_ALREADY_FINISHED");
    assert_eq!(code(store.ask(&NewQuestion { turn: &id(), ..late })), "TURN_NOT_FOUND");

    let other = running(&store);
    let lost = asked(&store, &other, QuestionKind::Question);
    assert!(store.mark_interrupted(&other.id).unwrap());
    assert_eq!(store.question(&lost).unwrap().state, QuestionState::Closed);
}

#[test]
fn ids_that_are_none_are_refused() {
    let (_folder, store) = store();
    assert_eq!(code(store.question("nonsense")), "STORE_BAD_ID");
    assert_eq!(code(store.question(&id())), "QUESTION_NOT_FOUND");
    assert_eq!(code(store.answer_question(&id(), &ANSWER)), "QUESTION_NOT_FOUND");
    assert_eq!(code(store.settle_question(&id(), QuestionState::Closed)), "QUESTION_NOT_FOUND");
    assert_eq!(code(store.questions(&QuestionFilter::default(), 1, Some("x"))), "STORE_BAD_CURSOR");
}

#[test]
fn questions_are_listed_newest_first_page_by_page() {
    let (_folder, store) = store();
    let (turn, other) = (running(&store), running(&store));
    let mut ids: Vec<String> = (0..5).map(|_| asked(&store, &turn, QuestionKind::Question)).collect();
    let elsewhere = asked(&store, &other, QuestionKind::Question);
    ids.reverse();
    let list = |state, turn: Option<&NewTurn>, limit, before: Option<&str>| {
        let filter = QuestionFilter { state, turn: turn.map(|turn| turn.id.clone()) };
        let page = store.questions(&filter, limit, before).unwrap();
        (page.rows.into_iter().map(|row| row.id).collect::<Vec<_>>(), page.next)
    };
    let (first, next) = list(None, Some(&turn), 3, None);
    assert_eq!(first, ids[..3]);
    let (second, next) = list(None, Some(&turn), 3, next.as_deref());
    assert_eq!((second.as_slice(), next), (&ids[3..], None));
    assert_eq!(list(Some(QuestionState::Open), None, 10, None).0[0], elsewhere);
    store.answer_question(&ids[0], &ANSWER).unwrap();
    assert_eq!(list(Some(QuestionState::Open), Some(&turn), 10, None).0, ids[1..]);
    assert_eq!(list(Some(QuestionState::Answered), None, 10, None).0, ids[..1]);
    damage(&store, &format!("UPDATE questions SET kind = 'x' WHERE id = '{}'", ids[1]));
    let filter = QuestionFilter { state: None, turn: Some(turn.id.clone()) };
    let page = store.questions(&filter, 10, None).unwrap();
    assert_eq!((page.rows.len(), page.skipped[0].id.as_str()), (4, ids[1].as_str()), "the others are shown");
}

/// The lists of what is open, and of one turn, do not walk over all that ever was asked.
#[test]
fn lists_are_answered_by_an_index() {
    let (_folder, store) = store();
    let plan = |sql: &str| -> String {
        store
            .with_full(|connection| {
                let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
                let lines = statement.query_map([], |row| row.get::<_, String>("detail"))?;
                Ok(lines.collect::<rusqlite::Result<Vec<_>>>()?.join("; "))
            })
            .unwrap()
    };
    let open = plan("SELECT * FROM questions WHERE seq < 9 AND state = 'open' ORDER BY seq DESC LIMIT 3");
    assert!(open.contains("open_questions"), "{open}");
    let of_turn = plan("SELECT id FROM questions WHERE turn_id = 'x' AND state = 'open' ORDER BY seq");
    assert!(of_turn.contains("questions_by_turn"), "{of_turn}");
}
