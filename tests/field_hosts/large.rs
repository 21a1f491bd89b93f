//! Replies that would be too large, and state that has become large. The harness itself fails a test at
//! the first frame above one mebibyte.

use std::time::Instant;

use agent_bridge::agents::Outcome;
use agent_bridge::context::Clock;
use agent_bridge::policy::{AgentId, Sandbox};
use agent_bridge::store::{Attempt, Continuity, NewTurn, Store, TurnEnd};

use super::*;

/// What a host lets a model see of one reply.
const SHOWN: usize = 24_000;

/// A world whose state folder is as fast as it gets: thousands of records are written one by one.
fn world_with_turns(count: usize) -> (World, tempfile::TempDir) {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let state = std::fs::canonicalize(folder.path()).unwrap().join("state");
    let world = World::new().config("stateDir", json!(state)).build();
    let store = Store::open(&state, Clock::System).unwrap();
    for n in 0..count {
        let turn = NewTurn {
            id: new_id(),
            session_id: new_id(),
            new_session: true,
            title: format!("Task {n}"),
            cwd: world.repo(),
            expected_revision: 0,
            agent: AgentId::Codex,
            model: None,
            sandbox: Sandbox::ReadOnly,
            continuity: Continuity::New,
            cross_agent_context: false,
            resume: None,
            prompt: format!("Task {n}"),
            outbound_sha256: "ab".repeat(32),
            idempotency_key: None,
            request_sha256: "cd".repeat(32),
            requested_by: "tests".into(),
            started_at: 1_900_000_000_000 + i64::try_from(n).unwrap(),
            timeout_ms: 600_000,
        };
        let attempt =
            Attempt { program: "codex".into(), args: vec![], env_names: vec![], at: turn.started_at };
        store.begin_turn(&turn, &attempt, 8).unwrap();
        let end = TurnEnd {
            outcome: Outcome::Success,
            detail: None,
            code: None,
            exit_code: Some(0),
            signal: None,
            duration_ms: 1,
            answer_bytes: 0,
            stderr_bytes: 0,
            native_id: None,
            tokens: None,
            cost_usd: None,
            meta: json!({}),
        };
        store.finish_turn(&turn.id, &end, None).unwrap();
    }
    (world, folder)
}

/// A new id in the form that the store takes, without a dependency for it.
fn new_id() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("00000000-0000-4000-8000-{:012x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Follows a list to its end and gives how many items it had. The pages must not repeat an item.
#[track_caller]
fn page_through(host: &mut Host, tool: &str, items: &str, id: &str) -> usize {
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = Value::Null;
    loop {
        let mut arguments = json!({ "limit": 200 });
        if !cursor.is_null() {
            arguments["cursor"] = cursor;
        }
        let page = host.call(tool, arguments).ok();
        let rows = page.structured[items].as_array().unwrap();
        assert!(!rows.is_empty(), "an empty page");
        for row in rows {
            assert!(seen.insert(row[id].as_str().unwrap().to_owned()), "{} came twice", row[id]);
        }
        cursor = page.structured["next_cursor"].clone();
        if cursor.is_null() {
            return seen.len();
        }
    }
}

#[test]
fn a_long_answer_keeps_both_ends_and_says_how_to_get_the_rest() {
    let world = World::new().build();
    let middle = "all work and no play\n".repeat(20_000);
    let answer = format!("FIRST WORDS\n{middle}THE VERDICT");
    world.fake("codex", &json!({ "steps": [{ "answer": { "text": answer } }] }));
    let mut host = world.host();
    host.initialize();
    let result = host.call("delegate_task", task(&world, "write a lot", json!({}))).ok();
    for shown in [result.structured["output"].as_str().unwrap(), &result.text] {
        assert!(shown.contains("FIRST WORDS") && shown.contains("THE VERDICT"), "{shown}");
        assert!(shown.len() < SHOWN, "{} bytes", shown.len());
    }
    assert!(result.whole.to_string().len() < 2 * SHOWN);
    assert_eq!(result.structured["output_truncated"], true);
    assert_eq!(result.structured["output_chars"], answer.len());
    assert!(result.text.contains(&answer.len().to_string()), "the total is not in the text: {}", result.text);
    // The handle leads to every byte.
    let handle = &result.structured["output_ref"];
    let mut whole = String::new();
    let mut offset = json!(0);
    while !offset.is_null() {
        let arguments = json!({ "session_id": handle["bridge_session_id"], "turn": handle["turn"], "offset": offset, "max_chars": 100_000 });
        let page = host.call(handle["tool"].as_str().unwrap(), arguments).ok();
        whole.push_str(page.structured["text"].as_str().unwrap());
        assert_eq!(page.structured["total_chars"], answer.len());
        offset = page.structured["next_offset"].clone();
    }
    assert!(whole == answer, "the pages are not the answer: {} and {} bytes", whole.len(), answer.len());
}

#[test]
fn fifty_megabytes_of_output_stay_reachable_in_small_frames() {
    let world = World::new().build();
    let line = format!(
        "{}
",
        json!({ "type": "noise", "data": "x".repeat(8000) })
    );
    let steps = json!([{ "print": { "repeat": { "bytes": 50 << 20, "text": line } } }, { "print": { "text": "\n" } }, { "answer": { "text": "the end" } }]);
    world.fake("codex", &json!({ "steps": steps }));
    let mut host = world.host();
    host.initialize();
    let result = host.call("delegate_task", task(&world, "print", json!({}))).ok();
    assert_eq!(result.structured["output"], "the end");
    assert!(result.whole.to_string().len() < SHOWN);
    let page = |host: &mut Host, offset: u64| {
        let arguments = json!({ "session_id": result.structured["bridge_session_id"], "turn": 0, "field": "stdout", "offset": offset, "max_chars": 100_000 });
        host.call("get_turn_output", arguments).ok().structured
    };
    let first = page(&mut host, 0);
    let total = first["total_chars"].as_u64().unwrap();
    assert!(total >= 50 << 20, "{total}");
    assert_eq!(first["complete"], false);
    let last = page(&mut host, total - 2000);
    assert!(last["text"].as_str().unwrap().contains("the end") && last["complete"] == true, "{last}");
    let beyond = page(&mut host, total + 1);
    assert_eq!((&beyond["text"], &beyond["complete"]), (&json!(""), &json!(true)));
}

#[test]
fn an_answer_of_many_megabytes_is_clipped_like_any_other() {
    let world = World::new().build();
    let answer = format!("{}THE END", "y".repeat(15 << 20));
    world.fake("codex", &json!({ "steps": [{ "answer": { "text": answer } }] }));
    let mut host = world.host();
    host.initialize();
    let result = host.call("delegate_task", task(&world, "print", json!({}))).ok();
    assert_eq!(result.structured["output_chars"], answer.len());
    assert!(result.text.contains("THE END") && result.whole.to_string().len() < 2 * SHOWN);
    let arguments = json!({ "session_id": result.structured["bridge_session_id"], "turn": 0, "offset": answer.len() - 7 });
    assert_eq!(host.call("get_turn_output", arguments).ok().structured["text"], "THE END");
}

#[test]
fn text_that_grows_in_json_still_fits_into_a_frame() {
    for hostile in ["\u{1}", "\"", "\\", "\u{1b}[31m", "\u{2028}", "🦀"] {
        let world = World::new().build();
        let text = format!("begin {} end", hostile.repeat(300_000 / hostile.len()));
        world.fake(
            "codex",
            &json!({ "steps": [{ "print": { "text": text, "to": "stderr" } }, { "answer": { "text": text } }] }),
        );
        let mut host = world.host();
        host.initialize();
        let result = host.call("delegate_task", task(&world, &text, json!({}))).ok();
        let session = result.structured["bridge_session_id"].clone();
        assert!(
            result.whole.to_string().len() < 3 * SHOWN,
            "{hostile:?}: {}",
            result.whole.to_string().len()
        );
        for field in ["output", "stderr", "stdout"] {
            let arguments = json!({ "session_id": session, "turn": 0, "field": field, "max_chars": 100_000 });
            let page = host.call("get_turn_output", arguments).ok();
            assert!(!page.structured["text"].as_str().unwrap().is_empty(), "{hostile:?} {field}");
        }
        let shown =
            host.call("get_session", json!({ "session_id": session, "max_chars_per_turn": 100_000 })).ok();
        assert_eq!(shown.structured["turns"].as_array().unwrap().len(), 1, "{hostile:?}");
        let _ = host.call("list_turns", json!({})).ok();
        let _ = host.call("list_sessions", json!({})).ok();
        let _ = host.call("search_sessions", json!({ "query": "anything" }));
    }
}

/// The time from the start of a server to its tool list. The best of three: what is measured is the
/// server, not the machine.
fn time_to_tools(world: &World) -> Duration {
    let once = || {
        let begun = Instant::now();
        let mut host = world.host();
        host.initialize();
        assert!(!host.tool_names().is_empty());
        begun.elapsed()
    };
    (0..3).map(|_| once()).min().unwrap()
}

#[test]
fn thousands_of_stored_turns_delay_no_start_and_are_listed_page_by_page() {
    let (world, _state) = world_with_turns(10_000);
    let first = time_to_tools(&world);
    assert!(first < Duration::from_secs(1), "{first:?} until the tools were listed");
    let mut host = world.host();
    host.initialize();
    assert_eq!(page_through(&mut host, "list_turns", "turns", "turn_id"), 10_000);
    assert_eq!(page_through(&mut host, "list_sessions", "sessions", "id"), 10_000);
}

#[test]
fn agents_that_are_slow_to_tell_their_version_do_not_delay_the_first_answers() {
    let world = World::new().build();
    let mut config = world.config();
    for agent in ["codex", "claude"] {
        // A probe of any kind takes twenty seconds.
        let program = if cfg!(windows) {
            world.program(&format!("slow-{agent}.cmd"), "@ping -n 20 127.0.0.1 > nul\r\n")
        } else {
            world.program(&format!("slow-{agent}"), "#!/bin/sh\necho probed >> \"$0.log\"\nexec sleep 20\n")
        };
        config["agents"][agent] = json!({ "enabled": true, "bin": program });
    }
    world.write_config(&config);
    let first = time_to_tools(&world);
    assert!(first < Duration::from_secs(1), "{first:?} until the tools were listed");
    assert!(!world.bin().join("slow-codex.log").exists(), "an agent was probed at start");
}
