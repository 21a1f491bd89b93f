//! Lists: order, paging, bad rows, and their cost at 100,000 records.

use std::time::{Duration, Instant};

use super::*;

fn list(store: &Store, filter: &TurnFilter) -> Vec<String> {
    store.list_turns(filter, 500, None).unwrap().rows.into_iter().map(|row| row.id).collect()
}

#[test]
fn sessions_come_last_used_first_in_pages_without_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let mut made = Vec::new();
    for minute in 0..7 {
        // Two of a time, so that the id has to break the tie.
        let at = NOW + (minute / 2) * 60_000;
        let store = Store::open(folder.path(), Clock::Fixed(at)).unwrap();
        let turn = NewTurn { started_at: at, ..first_turn() };
        begin(&store, &turn).unwrap();
        made.push((at, turn.session_id));
    }
    made.sort();
    made.reverse();
    let store = Store::open(folder.path(), Clock::Fixed(NOW)).unwrap();
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list_sessions(3, cursor.as_deref()).unwrap();
        seen.extend(page.rows.into_iter().map(|row| (row.updated_at, row.id)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, made);
    assert_eq!(code(store.list_sessions(3, Some("nonsense"))), "STORE_BAD_CURSOR");
}

#[test]
fn a_session_names_its_agents_in_order_of_appearance() {
    let (_folder, store) = store();
    let first = NewTurn { title: "ü".repeat(300), ..first_turn() };
    begin(&store, &first).unwrap();
    store.finish_turn(&first.id, &success(), None).unwrap();
    for (revision, agent) in [(1, AgentId::Claude), (2, AgentId::Codex)] {
        let turn = NewTurn { agent, ..next_turn(&first, revision) };
        begin(&store, &turn).unwrap();
        store.finish_turn(&turn.id, &success(), None).unwrap();
    }
    let row = store.session(&first.session_id).unwrap();
    assert_eq!((row.agents, row.turns, row.revision), (vec![AgentId::Codex, AgentId::Claude], 3, 3));
    assert_eq!(row.title.chars().count(), 200);
}

#[test]
fn turns_are_filtered_by_state_agent_and_session() {
    let (_folder, store) = store();
    let first = first_turn();
    begin(&store, &first).unwrap();
    store.finish_turn(&first.id, &success(), None).unwrap();
    let second = NewTurn { agent: AgentId::Claude, prompt: "€".repeat(9000), ..next_turn(&first, 1) };
    begin(&store, &second).unwrap();
    let third = first_turn();
    begin(&store, &third).unwrap();

    assert_eq!(list(&store, &TurnFilter::default()), [&*third.id, &second.id, &first.id]);
    let running = TurnFilter { state: Some(TurnState::Running), ..Default::default() };
    assert_eq!(list(&store, &running), [&*third.id, &second.id]);
    let finished = TurnFilter { state: Some(TurnState::Finished), ..Default::default() };
    assert_eq!(list(&store, &finished), [&*first.id]);
    let claude = TurnFilter { agent: Some(AgentId::Claude), ..running.clone() };
    assert_eq!(list(&store, &claude), [&*second.id]);
    let session = TurnFilter { session: Some(first.session_id.clone()), ..Default::default() };
    assert_eq!(list(&store, &session), [&*second.id, &first.id]);
    let both =
        TurnFilter { session: Some(first.session_id.clone()), agent: Some(AgentId::Codex), state: None };
    assert_eq!(list(&store, &both), [&*first.id]);

    let page = store.list_turns(&TurnFilter::default(), 2, None).unwrap();
    assert_eq!(page.rows[1].prompt, "€".repeat(2000), "prompts are shortened in lists");
    let rest = store.list_turns(&TurnFilter::default(), 2, page.next.as_deref()).unwrap();
    assert_eq!((rest.rows[0].id.as_str(), rest.next), (first.id.as_str(), None));
    assert_eq!(code(store.list_turns(&TurnFilter::default(), 2, Some("x"))), "STORE_BAD_CURSOR");
}

#[test]
fn a_sessions_turns_are_paged_with_whole_prompts_in_bounded_memory() {
    let (_folder, store) = store();
    let first = NewTurn { prompt: "p".repeat(5 << 20), ..first_turn() };
    begin(&store, &first).unwrap();
    store.finish_turn(&first.id, &success(), None).unwrap();
    for revision in 1..5 {
        let turn = next_turn(&first, revision);
        begin(&store, &turn).unwrap();
        store.finish_turn(&turn.id, &success(), None).unwrap();
    }
    let page = store.turns(&first.session_id, 0, 100).unwrap();
    assert_eq!((page.rows.len(), page.next_index), (2, Some(2)));
    assert_eq!(page.rows[1].prompt.len(), 5 << 20);
    let page = store.turns(&first.session_id, 3, 1).unwrap();
    assert_eq!((page.rows[0].index, page.next_index), (3, Some(4)));
    let page = store.turns(&first.session_id, 4, 1).unwrap();
    assert_eq!((page.rows.len(), page.next_index), (1, None));
    assert!(store.turns(&first.session_id, 5, 1).unwrap().rows.is_empty());
    assert_eq!(code(store.turns(&id(), 0, 1)), "SESSION_NOT_FOUND");
}

#[test]
fn one_bad_row_is_reported_and_hides_no_other() {
    let (_folder, store) = store();
    let turns: Vec<NewTurn> = (0..6).map(|_| first_turn()).collect();
    for turn in &turns {
        begin(&store, turn).unwrap();
        store.finish_turn(&turn.id, &success(), None).unwrap();
    }
    damage(&store, &format!("UPDATE turns SET agent = 'hal' WHERE id = '{}'", turns[0].id));
    damage(&store, &format!("UPDATE turns SET meta = '{{' WHERE id = '{}'", turns[1].id));
    damage(&store, &format!("UPDATE turns SET outcome = NULL WHERE id = '{}'", turns[2].id));
    damage(&store, &format!("UPDATE turns SET cwd = CAST(x'ff' AS TEXT) WHERE id = '{}'", turns[3].id));
    damage(&store, &format!("UPDATE turns SET duration_ms = -1 WHERE id = '{}'", turns[4].id));
    damage(&store, &format!("UPDATE sessions SET agents = 'hal' WHERE id = '{}'", turns[0].session_id));

    let listed = store.list_turns(&TurnFilter::default(), 100, None).unwrap();
    assert_eq!(listed.rows.iter().map(|row| &row.id).collect::<Vec<_>>(), [&turns[5].id]);
    let mut bad: Vec<_> = listed.skipped.iter().map(|row| row.id.clone()).collect();
    bad.reverse();
    assert_eq!(bad, turns[..5].iter().map(|turn| turn.id.clone()).collect::<Vec<_>>());
    assert!(listed.skipped[4].reason.contains("agent"), "{:?}", listed.skipped[4]);

    assert_eq!(code(store.turn(&turns[0].id)), "STORE_ROW_CORRUPT");
    assert_eq!(code(store.session(&turns[0].session_id)), "STORE_ROW_CORRUPT");
    let sessions = store.list_sessions(100, None).unwrap();
    assert_eq!((sessions.rows.len(), sessions.skipped.len()), (5, 1));
    assert_eq!(store.turns(&turns[0].session_id, 0, 10).unwrap().skipped.len(), 1);

    // Pages go on behind a bad row.
    let page = store.list_turns(&TurnFilter::default(), 2, None).unwrap();
    assert!(page.next.is_some() && page.rows.len() == 1);
}

#[test]
fn a_running_row_that_cannot_be_read_can_still_be_ended() {
    let (_folder, store) = store();
    let turn = first_turn();
    begin(&store, &turn).unwrap();
    damage(&store, "UPDATE turns SET agent = 'hal'");
    let running = store.running_turns().unwrap();
    assert_eq!(running.skipped[0].id, turn.id);
    assert!(store.mark_interrupted(&turn.id).unwrap());
    begin(&store, &next_turn(&turn, 1)).unwrap();
}

#[test]
fn audit_rows_come_newest_first_and_bounded() {
    let (_folder, store) = store();
    for number in 0..5 {
        store.audit("scope-call", Some("s"), None, &json!({ "number": number })).unwrap();
    }
    let rows = store.audit_rows(&AuditFilter::default(), 2).unwrap().rows;
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].kind.as_str(), &rows[0].detail), ("scope-call", &json!({ "number": 4 })));
    assert_eq!((rows[0].at, rows[0].session.as_deref()), (NOW, Some("s")));
}

#[test]
fn figures_count_everything() {
    let (_folder, store) = store();
    let turn = first_turn();
    begin(&store, &turn).unwrap();
    store.blobs().write(&turn.id, BlobKind::Stdout, b"12345").unwrap();
    store.blobs().write_answer(&turn.id, "123").unwrap();
    let counts = store.counts().unwrap();
    assert_eq!((counts.sessions, counts.turns, counts.running), (1, 1, 1));
    assert_eq!((counts.blob_files, counts.blob_bytes, counts.blobs_complete), (2, 8, true));
    assert!(counts.database_bytes > 0 && counts.write_ahead_log);
}

/// 100,000 sessions with one finished turn each, made in one transaction.
fn fill(store: &Store) {
    store
        .with_full(|connection| {
            connection.execute_batch(
                "BEGIN IMMEDIATE;
                 CREATE TEMP TABLE numbers AS WITH RECURSIVE n(i) AS
                     (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i FROM n;
                 INSERT INTO sessions SELECT printf('%08x-0000-4000-8000-000000000000', i), 'title ' || i,
                     '/data/app', i, (i * 7919) % 1000003, 1, 1, 'codex,claude' FROM numbers;
                 INSERT INTO turns (id, session_id, position, state, agent, sandbox, cwd, continuity,
                     cross_agent_context, outbound_sha256, request_sha256, requested_by, started_at,
                     timeout_ms, outcome, duration_ms, answer_bytes, stderr_bytes, meta)
                     SELECT printf('%08x-0000-4000-8000-000000000001', i),
                     printf('%08x-0000-4000-8000-000000000000', i), 0, 'finished',
                     CASE i % 1000 WHEN 0 THEN 'claude' ELSE 'codex' END, 'read-only', '/data/app', 'new',
                     0, '', '', 'tests', i, 1, 'success', 1, 0, 0, '{}' FROM numbers;
                 INSERT INTO prompts SELECT seq, 'prompt ' || seq FROM turns;
                 COMMIT;",
            )?;
            Ok(())
        })
        .unwrap();
}

/// The best of many runs, so that a busy machine does not decide.
fn best_of(mut work: impl FnMut()) -> Duration {
    (0..30)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .min()
        .unwrap()
}

fn plan(store: &Store, sql: &str) -> String {
    store
        .read(|connection| {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
            // Unbound parameters are NULL, which does not change a plan.
            let mut rows = statement.raw_query();
            let mut plan = String::new();
            while let Some(row) = rows.next()? {
                plan += &row.get::<_, String>("detail")?;
                plan.push('\n');
            }
            Ok(plan)
        })
        .unwrap()
}

#[test]
fn lists_stay_fast_at_a_hundred_thousand_records() {
    let (_folder, store) = store();
    fill(&store);
    let bound = Duration::from_millis(5);
    let middle = store.list_sessions(500, None).unwrap().next;
    for cursor in [None, middle.as_deref()] {
        let taken = best_of(|| assert_eq!(store.list_sessions(20, cursor).unwrap().rows.len(), 20));
        assert!(taken < bound, "list_sessions: {taken:?}");
    }
    let plan_of_sessions = plan(&store, super::super::sessions::LIST);
    assert!(
        plan_of_sessions.contains("USING INDEX sessions_by_update")
            && !plan_of_sessions.contains("TEMP B-TREE"),
        "{plan_of_sessions}"
    );

    let session = Some("00000100-0000-4000-8000-000000000000".to_owned());
    let filters = [
        (TurnFilter::default(), 20),
        (TurnFilter { state: Some(TurnState::Running), ..Default::default() }, 0),
        (TurnFilter { state: Some(TurnState::Finished), ..Default::default() }, 20),
        (TurnFilter { agent: Some(AgentId::Claude), ..Default::default() }, 20),
        (TurnFilter { agent: Some(AgentId::Gemini), state: Some(TurnState::Finished), session: None }, 0),
        (TurnFilter { agent: Some(AgentId::Codex), state: Some(TurnState::Running), session: None }, 0),
        (TurnFilter { session: session.clone(), ..Default::default() }, 1),
        (TurnFilter { agent: Some(AgentId::Codex), session: session.clone(), state: None }, 1),
        (TurnFilter { agent: Some(AgentId::Claude), session: session.clone(), state: None }, 0),
        (TurnFilter { agent: None, session, state: Some(TurnState::Running) }, 0),
    ];
    for (filter, expected) in filters {
        let sql = super::super::turns::list_sql(&filter);
        let plan = plan(&store, &sql);
        let taken = best_of(|| assert_eq!(store.list_turns(&filter, 20, None).unwrap().rows.len(), expected));
        assert!(taken < bound, "{filter:?}: {taken:?}\n{plan}");
        assert!(!plan.contains("SCAN t\n"), "{filter:?} scans: {plan}");
    }
    let taken = best_of(|| assert!(store.running_turns().unwrap().rows.is_empty()));
    assert!(taken < bound, "running_turns: {taken:?}");
    let taken = best_of(|| {
        let turn = first_turn();
        begin(&store, &turn).unwrap();
        store.cancel_requested(&turn.id).unwrap();
        store.finish_turn(&turn.id, &success(), None).unwrap();
    });
    assert!(taken < Duration::from_millis(50), "a turn: {taken:?}");
}
