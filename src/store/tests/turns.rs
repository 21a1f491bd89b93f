//! Begin, cancel, finish, interrupt.

use super::*;

#[test]
fn a_turn_comes_back_as_it_was_recorded() {
    let (_folder, store) = store();
    let turn = NewTurn { idempotency_key: Some("k".into()), resume: Some("r".into()), ..first_turn() };
    assert_eq!(begin(&store, &turn).unwrap(), Begin::Started { index: 0 });
    store.set_activity(&turn.id, "running: cargo\ntest\u{1b}[0m").unwrap();
    let row = store.turn(&turn.id).unwrap();
    assert_eq!((row.state, row.index, row.end.clone()), (TurnState::Running, 0, None));
    assert_eq!(row.activity.as_deref(), Some("running: cargo test [0m"));
    assert_eq!((row.agent, row.sandbox, row.continuity), (turn.agent, turn.sandbox, turn.continuity));
    assert_eq!((&row.prompt, &row.cwd, &row.model), (&turn.prompt, &turn.cwd, &turn.model));
    assert_eq!((&row.resume, &row.idempotency_key), (&turn.resume, &turn.idempotency_key));
    assert_eq!(row.timeout_ms, turn.timeout_ms);
    assert_eq!(store.attempt(&turn.id).unwrap(), Some(attempt()));

    let end = TurnEnd {
        outcome: Outcome::WorkerError,
        exit_code: Some(4_294_967_295),
        signal: Some(9),
        detail: Some("why".into()),
        code: Some("SOME_CODE".into()),
        native_id: Some("n".into()),
        ..success()
    };
    assert_eq!(store.finish_turn(&turn.id, &end, None).unwrap(), 1);
    let row = store.turn(&turn.id).unwrap();
    assert_eq!((row.state, row.native_id.as_deref(), row.activity), (TurnState::Finished, Some("n"), None));
    assert_eq!(row.end, Some(end));
    assert_eq!(store.turn_at(&turn.session_id, 0).unwrap().id, turn.id);
    assert_eq!(code(store.turn_at(&turn.session_id, 1)), "TURN_NOT_FOUND");
    assert_eq!(code(store.turn_at(&id(), 0)), "SESSION_NOT_FOUND");
}

#[test]
fn every_outcome_and_continuity_can_be_stored() {
    let (_folder, store) = store();
    let outcomes = [
        Outcome::Success,
        Outcome::Empty,
        Outcome::LoginRequired,
        Outcome::Quota,
        Outcome::TurnLimit,
        Outcome::FormatUnrecognised,
        Outcome::WorkerError,
        Outcome::Timeout,
        Outcome::Cancelled,
        Outcome::Interrupted,
    ];
    let kinds = [Continuity::New, Continuity::NativeResume, Continuity::ContextReplay];
    for (outcome, continuity) in outcomes.into_iter().zip(kinds.into_iter().cycle()) {
        let turn = NewTurn { continuity, ..first_turn() };
        begin(&store, &turn).unwrap();
        store.finish_turn(&turn.id, &TurnEnd { outcome, ..success() }, None).unwrap();
        let row = store.turn(&turn.id).unwrap();
        assert_eq!((row.end.unwrap().outcome, row.continuity), (outcome, continuity));
    }
}

#[test]
fn a_session_runs_one_turn_at_a_time_and_names_it() {
    let (_folder, store) = store();
    let first = first_turn();
    begin(&store, &first).unwrap();
    let second = next_turn(&first, 0);
    match begin(&store, &second).unwrap_err() {
        StoreError::SessionBusy { turn, .. } => assert_eq!(turn, first.id),
        other => panic!("{other}"),
    }
    store.finish_turn(&first.id, &success(), None).unwrap();
    assert_eq!(begin(&store, &next_turn(&first, 1)).unwrap(), Begin::Started { index: 1 });
}

#[test]
fn a_refused_start_records_nothing() {
    let (_folder, store) = store();
    let first = first_turn();
    begin(&store, &first).unwrap();
    store.finish_turn(&first.id, &success(), None).unwrap();
    let before =
        (store.counts().unwrap().turns, store.audit_rows(&AuditFilter::default(), 100).unwrap().rows.len());

    let stale = next_turn(&first, 0);
    match begin(&store, &stale).unwrap_err() {
        StoreError::RevisionMismatch { expected: 0, found: 1, .. } => {}
        other => panic!("{other}"),
    }
    let elsewhere = NewTurn { cwd: cwd().join("other"), ..next_turn(&first, 1) };
    assert_eq!(code(begin(&store, &elsewhere)), "SESSION_CWD_MISMATCH");
    let unknown = NewTurn { session_id: id(), ..next_turn(&first, 1) };
    assert_eq!(code(begin(&store, &unknown)), "SESSION_NOT_FOUND");
    assert_eq!(code(begin(&store, &NewTurn { id: id(), ..first.clone() })), "STORE_DUPLICATE_ID");
    let same_turn = NewTurn { session_id: id(), ..first.clone() };
    assert_eq!(code(begin(&store, &same_turn)), "STORE_DUPLICATE_ID");
    assert_eq!(code(store.session(&same_turn.session_id)), "SESSION_NOT_FOUND");
    assert_eq!(code(begin(&store, &NewTurn { id: "../x".into(), ..first_turn() })), "STORE_BAD_ID");
    assert_eq!(code(store.begin_turn(&first_turn(), &attempt(), 0)), "TOO_MANY_TURNS");
    assert_eq!(
        code(begin(&store, &NewTurn { expected_revision: 3, ..first_turn() })),
        "SESSION_REVISION_MISMATCH"
    );

    let after =
        (store.counts().unwrap().turns, store.audit_rows(&AuditFilter::default(), 100).unwrap().rows.len());
    assert_eq!(before, after);
    assert_eq!(store.counts().unwrap().sessions, 1);
}

#[test]
fn running_turns_are_limited_over_the_whole_folder() {
    let (folder, store) = store();
    let other = Store::open(folder.path(), Clock::Fixed(NOW)).unwrap();
    let first = first_turn();
    store.begin_turn(&first, &attempt(), 2).unwrap();
    other.begin_turn(&first_turn(), &attempt(), 2).unwrap();
    assert_eq!(code(store.begin_turn(&first_turn(), &attempt(), 2)), "TOO_MANY_TURNS");
    other.finish_turn(&first.id, &success(), None).unwrap();
    store.begin_turn(&first_turn(), &attempt(), 2).unwrap();
}

#[test]
fn a_repeated_key_is_the_same_turn_and_a_reused_key_is_refused() {
    let (_folder, store) = store();
    let first = NewTurn { idempotency_key: Some("key".into()), ..first_turn() };
    begin(&store, &first).unwrap();
    // The retry plans anew: other ids, same request.
    let again = NewTurn { idempotency_key: Some("key".into()), ..first_turn() };
    for state in [TurnState::Running, TurnState::Finished] {
        match begin(&store, &again).unwrap() {
            Begin::Same(row) => assert_eq!((row.id, row.state), (first.id.clone(), state)),
            other @ Begin::Started { .. } => panic!("{other:?}"),
        }
        if state == TurnState::Running {
            store.finish_turn(&first.id, &success(), None).unwrap();
        }
    }
    let reused = NewTurn { request_sha256: "ee".repeat(32), ..again };
    assert_eq!(code(begin(&store, &reused)), "IDEMPOTENCY_CONFLICT");
    assert_eq!(store.counts().unwrap().turns, 1);
}

#[test]
fn the_first_end_stands() {
    let (_folder, store) = store();
    let turn = first_turn();
    begin(&store, &turn).unwrap();
    store.finish_turn(&turn.id, &success(), None).unwrap();
    let late = TurnEnd { outcome: Outcome::Cancelled, ..success() };
    assert_eq!(code(store.finish_turn(&turn.id, &late, None)), "TURN_ALREADY_FINISHED");
    assert!(!store.mark_interrupted(&turn.id).unwrap());
    assert_eq!(store.turn(&turn.id).unwrap().end.unwrap().outcome, Outcome::Success);
    assert_eq!(store.session(&turn.session_id).unwrap().revision, 1);
    assert_eq!(code(store.finish_turn(&id(), &late, None)), "TURN_NOT_FOUND");
}

#[test]
fn a_cancel_is_seen_by_the_supervisor_and_never_undoes_a_result() {
    let (folder, store) = store();
    let supervisor = Store::open(folder.path(), Clock::Fixed(NOW)).unwrap();
    let turn = first_turn();
    begin(&supervisor, &turn).unwrap();
    assert_eq!(supervisor.cancel_requested(&turn.id).unwrap(), None);
    assert_eq!(store.request_cancel(&turn.id, "user").unwrap(), CancelRequest::Requested);
    assert_eq!(store.request_cancel(&turn.id, "later").unwrap(), CancelRequest::Requested);
    assert_eq!(supervisor.cancel_requested(&turn.id).unwrap().as_deref(), Some("user"));
    supervisor.finish_turn(&turn.id, &success(), None).unwrap();
    match store.request_cancel(&turn.id, "too late").unwrap() {
        CancelRequest::AlreadyFinished(row) => {
            assert_eq!(row.end.unwrap().outcome, Outcome::Success);
            assert_eq!(row.cancel_requested.as_deref(), Some("user"));
        }
        CancelRequest::Requested => panic!("a finished turn was cancelled"),
    }
    assert_eq!(code(store.request_cancel(&id(), "x")), "TURN_NOT_FOUND");
    assert_eq!(code(store.cancel_requested(&id())), "TURN_NOT_FOUND");
    let kinds: Vec<_> =
        store.audit_rows(&AuditFilter::default(), 10).unwrap().rows.into_iter().map(|row| row.kind).collect();
    assert_eq!(kinds, ["turn-finished", "cancel-requested", "turn-began"]);
}

#[test]
fn clocks_that_step_back_never_give_a_negative_age() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Clock::Fixed(NOW)).unwrap();
    let turn = first_turn();
    begin(&store, &turn).unwrap();
    let earlier = Store::open(folder.path(), Clock::Fixed(NOW - 3_600_000)).unwrap();
    assert!(earlier.mark_interrupted(&turn.id).unwrap());
    let session = earlier.session(&turn.session_id).unwrap();
    assert_eq!((session.created_at, session.updated_at), (NOW, NOW));
    assert_eq!(earlier.turn(&turn.id).unwrap().end.unwrap().duration_ms, 0);
    let next = next_turn(&turn, 1);
    begin(&earlier, &next).unwrap();
    earlier.finish_turn(&next.id, &success(), None).unwrap();
    assert_eq!(earlier.session(&turn.session_id).unwrap().updated_at, NOW);
}

#[test]
fn an_interrupted_turn_keeps_what_was_written() {
    let (folder, store) = store();
    let turn = first_turn();
    begin(&store, &turn).unwrap();
    store.blobs().write_answer(&turn.id, "half an elephant").unwrap();
    drop(store);
    let store = Store::open(folder.path(), Clock::Fixed(NOW + 5000)).unwrap();
    let running = store.running_turns().unwrap().rows;
    assert_eq!(running.iter().map(|row| &row.id).collect::<Vec<_>>(), [&turn.id]);
    assert!(store.mark_interrupted(&turn.id).unwrap());
    assert!(store.running_turns().unwrap().rows.is_empty());
    let end = store.turn(&turn.id).unwrap().end.unwrap();
    assert_eq!((end.outcome, end.code.as_deref()), (Outcome::Interrupted, Some("TURN_INTERRUPTED")));
    assert_eq!((end.answer_bytes, end.duration_ms), (16, 5000));
    assert_eq!(store.search("elephant", 5).unwrap().rows[0].turn, turn.id);
    begin(&store, &next_turn(&turn, 1)).unwrap();
}

#[test]
fn a_provider_session_has_the_policy_of_the_run_that_returned_it() {
    let (_folder, store) = store();
    let first = first_turn();
    begin(&store, &first).unwrap();
    let end = TurnEnd { native_id: Some("thread-1".into()), ..success() };
    // Whatever the caller claims, the policy is the turn's own.
    let claimed = NativeSession { sandbox: Sandbox::FullAccess, ..native(&first, "thread-1") };
    store.finish_turn(&first.id, &end, Some(&claimed)).unwrap();
    assert_eq!(
        store.native_session(&first.session_id, AgentId::Codex).unwrap(),
        Some(native(&first, "thread-1"))
    );

    // A turn with more authority that returns no id changes nothing.
    let second = NewTurn { sandbox: Sandbox::WorkspaceWrite, ..next_turn(&first, 1) };
    begin(&store, &second).unwrap();
    store.finish_turn(&second.id, &success(), Some(&native(&second, "thread-1"))).unwrap();
    let kept = store.native_session(&first.session_id, AgentId::Codex).unwrap().unwrap();
    assert_eq!(kept.sandbox, Sandbox::ReadOnly);

    // The newest id wins, and coming back to an earlier one makes that the newest.
    for (revision, id) in [(2, "thread-2"), (3, "thread-1")] {
        let turn = next_turn(&first, revision);
        begin(&store, &turn).unwrap();
        let end = TurnEnd { native_id: Some(id.into()), ..success() };
        let claimed = native(&turn, id);
        store.finish_turn(&turn.id, &end, Some(&claimed)).unwrap();
        // What it has seen ends with the turn that returned it, whatever the caller says.
        let kept = NativeSession { last_seen_turn: revision, ..claimed };
        assert_eq!(store.native_session(&first.session_id, AgentId::Codex).unwrap(), Some(kept));
    }
    let all = store.native_sessions(&first.session_id).unwrap().rows;
    assert_eq!(all.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["thread-1", "thread-2"]);
    assert_eq!(store.native_session(&first.session_id, AgentId::Claude).unwrap(), None);
    assert_eq!(store.native_session(&id(), AgentId::Codex).unwrap(), None);
}

#[test]
fn facts_that_could_not_be_read_back_do_not_cost_the_turn() {
    let (_folder, store) = store();
    let mut deep = json!(1);
    for _ in 0..400 {
        deep = json!([deep]);
    }
    for meta in [deep, json!("x".repeat(200_000))] {
        let turn = first_turn();
        begin(&store, &turn).unwrap();
        store.finish_turn(&turn.id, &TurnEnd { meta, ..success() }, None).unwrap();
        let end = store.turn(&turn.id).unwrap().end.unwrap();
        assert_eq!(end.outcome, Outcome::Success);
        assert!(end.meta.get("omitted").is_some());
    }
}

#[test]
fn ends_of_a_turn_that_ended_are_not_activity() {
    let (_folder, store) = store();
    let turn = first_turn();
    begin(&store, &turn).unwrap();
    store.finish_turn(&turn.id, &success(), None).unwrap();
    store.set_activity(&turn.id, "late").unwrap();
    assert_eq!(store.turn(&turn.id).unwrap().activity, None);
    assert_eq!(code(store.set_activity(&id(), "x")), "TURN_NOT_FOUND");
}

#[test]
fn an_index_that_is_damaged_does_not_cost_the_end() {
    let (_folder, store) = store();
    let turn = first_turn();
    begin(&store, &turn).unwrap();
    damage(&store, "UPDATE turn_text_data SET block = x'00'");
    store.finish_turn(&turn.id, &success(), None).unwrap();
    assert_eq!(store.turn(&turn.id).unwrap().state, TurnState::Finished);
}
