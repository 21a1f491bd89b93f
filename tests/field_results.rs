//! What becomes of an answer: troubles that users of similar programs reported, played by scripted
//! agents through the real program. The numbers in the comments are those of the reports.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::time::Instant;

use support::prelude::*;

const FIRST: &str = "01a22da4-c4d5-7380-a8a6-000000000001";
const SECOND: &str = "01a22da4-c4d5-7380-a8a6-000000000002";
const THIRD: &str = "01a22da4-c4d5-7380-a8a6-000000000003";

/// A world with fakes in it, and a host that talks to its server.
struct Desk {
    host: Host,
    world: World,
}

impl Desk {
    fn new(fakes: &[(&str, Value)]) -> Self {
        let mut world = World::new();
        for (agent, _) in fakes {
            world = world.agent(agent, json!({ "enabled": true }));
        }
        let world = world.build();
        for (agent, script) in fakes {
            world.fake(agent, script);
        }
        let host = introduced(&world);
        Self { host, world }
    }

    /// One agent that always does the same.
    fn with(agent: &str, steps: Value) -> Self {
        Self::new(&[(agent, json!({ "counter": "../outside/runs", "steps": steps }))])
    }

    fn delegate(&mut self, agent: &str, prompt: &str) -> ToolResult {
        let cwd = self.world.repo();
        self.host.call(
            "delegate_task",
            json!({ "agent": agent, "prompt": prompt, "cwd": cwd, "wait_seconds": 50 }),
        )
    }

    fn go_on(&mut self, earlier: &ToolResult, prompt: &str) -> ToolResult {
        let session = &earlier.structured["bridge_session_id"];
        self.host
            .call("continue_session", json!({ "session_id": session, "prompt": prompt, "wait_seconds": 50 }))
    }

    /// How often a fake was started (its script names the counter).
    fn runs(&self) -> usize {
        let files = std::fs::read_dir(self.world.outside()).unwrap();
        files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("runs.")).count()
    }

    /// The arguments of a fake's n-th run, as its `record` step wrote them.
    fn arguments(&self, run: usize) -> Vec<String> {
        let text = std::fs::read(self.world.outside().join(format!("{run}.json"))).unwrap();
        let record: Value = serde_json::from_slice(&text).unwrap();
        record["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    }
}

fn introduced(world: &World) -> Host {
    let mut host = world.host();
    host.initialize();
    host
}

#[track_caller]
fn assert_outcome(result: &ToolResult, outcome: &str) {
    assert_eq!(result.structured["outcome"], outcome, "{:#}", result.structured);
    assert_eq!(result.is_error, outcome != "success", "{:#}", result.structured);
}

/// 21
#[test]
fn prose_instead_of_events_is_kept_and_told_apart_from_a_success() {
    for agent in ["codex", "claude"] {
        let prose = "All done.\nI changed nothing that matters.";
        let mut desk = Desk::with(agent, json!([{ "print": { "text": format!("{prose}\n") } }]));
        let result = desk.delegate(agent, "Do it.");
        assert_outcome(&result, "format-unrecognised");
        assert_eq!(result.structured["output"], prose);
        assert!(result.text.contains(prose), "{}", result.text);
    }
}

/// 22
#[test]
fn every_known_shape_of_an_event_stream_gives_the_answer() {
    let oldest = json!([
        { "event": { "id": "0", "msg": { "type": "session_configured", "session_id": FIRST, "model": "m" } } },
        { "event": { "id": "0", "msg": { "type": "task_started" } } },
        { "event": { "id": "0", "msg": { "type": "agent_message", "message": "The answer." } } },
        { "event": { "id": "0", "msg": { "type": "task_complete", "last_agent_message": "The answer." } } },
    ]);
    let older = json!([
        { "event": { "type": "session.created", "session_id": FIRST } },
        { "event": { "type": "turn.started" } },
        { "event": { "type": "item.completed", "item": { "id": "0", "item_type": "assistant_message", "text": "The answer." } } },
        { "event": { "type": "turn.completed", "usage": { "input_tokens": 1, "output_tokens": 1 } } },
    ]);
    let present = json!([{ "answer": { "text": "The answer.", "thread": FIRST } }]);
    let later = json!([
        { "event": { "type": "thread.started", "thread_id": FIRST, "shard": { "a": [1, 2] } } },
        { "event": { "type": "weather.changed", "payload": ["new"] } },
        { "event": { "type": "turn.started", "attempt": 1 } },
        { "event": { "type": "item.completed", "item": { "id": "0", "type": "hologram", "text": "not this" } } },
        { "event": { "type": "item.completed", "item": { "id": "1", "type": "agent_message", "text": "The answer.", "tone": "calm" } } },
        { "event": { "type": 7 } },
        { "event": { "type": "turn.completed", "usage": { "input_tokens": 1, "output_tokens": 1, "photons": 3 } } },
    ]);
    for (name, steps) in [("oldest", oldest), ("older", older), ("present", present), ("later", later)] {
        let mut desk = Desk::with("codex", steps);
        let result = desk.delegate("codex", "Do it.");
        assert_eq!(result.structured["output"], "The answer.", "{name}: {:#}", result.structured);
        assert_outcome(&result, "success");
    }
}

/// 22
#[test]
fn a_stream_that_lost_its_answer_to_a_new_shape_says_which_version_is_understood() {
    let steps = json!([
        { "event": { "type": "thread.started", "thread_id": FIRST } },
        { "event": { "type": "turn.started" } },
        { "event": { "type": "item.completed", "item": { "id": "1", "type": "final_word", "words": "The answer." } } },
        { "event": { "type": "turn.completed", "usage": { "input_tokens": 1, "output_tokens": 1 } } },
    ]);
    let result = Desk::with("codex", steps).delegate("codex", "Do it.");
    assert_outcome(&result, "format-unrecognised");
    let detail = result.structured["detail"].as_str().unwrap();
    assert!(detail.contains("0.171.0"), "the version this was made for: {detail}");
    assert!(
        result.structured["hint"].as_str().unwrap().contains("diagnose_install"),
        "{:#}",
        result.structured
    );

    let steps = json!([
        { "event": { "type": "system", "subtype": "init", "session_id": FIRST, "claude_code_version": "9.8.7" } },
        { "event": { "type": "verdict", "words": "The answer.", "session_id": FIRST } },
    ]);
    let result = Desk::with("claude", steps).delegate("claude", "Do it.");
    assert!(result.is_error, "{:#}", result.structured);
    assert_eq!(result.structured["meta"]["cliVersion"], "9.8.7", "{:#}", result.structured);
}

/// 23
#[test]
fn one_result_gives_the_same_answer_in_every_form() {
    let usage = json!({ "input": 50, "cached": 20, "output": 9 });
    let answer = |format: &str, pretty: bool| {
        json!({ "answer": { "text": "The answer.", "thread": FIRST, "dialect": "claude", "format": format,
            "pretty": pretty, "usage": usage, "cost_usd": 0.25 } })
    };
    let warning = json!({ "print": { "text": "warning: a newer version is available\n" } });
    for (name, steps) in [
        ("object", json!([answer("object", false)])),
        ("pretty object", json!([answer("object", true)])),
        ("array", json!([answer("array", false)])),
        ("pretty array", json!([answer("array", true)])),
        ("lines", json!([answer("lines", false)])),
        ("warning, object", json!([warning, answer("object", false)])),
        ("warning, array", json!([warning, answer("array", false)])),
        ("warning, lines", json!([warning, answer("lines", false)])),
    ] {
        let mut steps = steps;
        steps.as_array_mut().unwrap().insert(0, json!({ "record": "../outside/{run}.json" }));
        let mut desk = Desk::with("claude", steps);
        let result = desk.delegate("claude", "Do it.");
        assert_outcome(&result, "success");
        let view = &result.structured;
        assert_eq!(view["output"], "The answer.", "{name}");
        assert_eq!(view["cost_usd"], 0.25, "{name}");
        let tokens = json!({ "input": 50, "cached_input": 20, "output": 9, "reasoning": 0 });
        assert_eq!(view["tokens"], tokens, "{name}: {view:#}");
        desk.go_on(&result, "Go on.");
        let arguments = desk.arguments(2);
        assert!(follows(&arguments, "--resume", FIRST), "{name}: {arguments:?}");
    }
}

/// Whether the one argument stands right behind the other.
fn follows(arguments: &[String], option: &str, value: &str) -> bool {
    arguments.windows(2).any(|pair| pair == [option, value])
}

/// 24
#[test]
fn either_sign_of_a_failure_makes_the_turn_fail_and_keeps_its_text() {
    let flagged = json!([
        { "answer": { "text": "Half of the work is done.", "is_error": true, "subtype": "error_during_execution" } },
        { "exit": 0 },
    ]);
    let exit_code = json!([{ "answer": { "text": "Half of the work is done." } }, { "exit": 1 }]);
    for (steps, code) in [(flagged, 0), (exit_code, 1)] {
        let result = Desk::with("claude", steps).delegate("claude", "Do it.");
        assert_outcome(&result, "worker-error");
        assert_eq!(result.structured["output"], "Half of the work is done.");
        assert_eq!(result.structured["exit_code"], code);
    }
}

/// 25
#[test]
fn a_turn_limit_is_named_and_the_conversation_can_be_continued() {
    let steps = json!([
        { "event": { "type": "system", "subtype": "init", "session_id": FIRST } },
        { "event": { "type": "assistant", "session_id": FIRST,
            "message": { "content": [{ "type": "text", "text": "Halfway there." }] } } },
        { "event": { "type": "result", "subtype": "error_max_turns", "is_error": true, "session_id": FIRST,
            "num_turns": 3, "usage": { "input_tokens": 5, "output_tokens": 6 } } },
        { "exit": 1 },
    ]);
    let script = json!({
        "counter": "../outside/runs",
        "rules": [{ "when": { "run": 1 }, "steps": steps }],
        "steps": [{ "record": "../outside/{run}.json" }, { "answer": { "text": "Done." } }],
    });
    let mut desk = Desk::new(&[("claude", script)]);
    let result = desk.delegate("claude", "Do it.");
    assert_outcome(&result, "turn-limit");
    assert_eq!(result.structured["output"], "Halfway there.");
    assert_eq!(result.structured["meta"]["limit"], "turns");
    assert!(result.structured["hint"].as_str().unwrap().contains("continue_session"));
    assert_outcome(&desk.go_on(&result, "Go on."), "success");
    let arguments = desk.arguments(2);
    assert!(follows(&arguments, "--resume", FIRST), "{arguments:?}");
}

/// 28
#[test]
fn the_pages_of_a_long_answer_joined_are_the_answer() {
    let mut answer = String::new();
    let mut number = 0;
    while answer.len() < 3_000_000 {
        number += 1;
        answer.push_str(&format!("{number}: žluťoučký kůň 🐎 \"quoted\"\\\n"));
    }
    answer.push_str("THE END");
    let item =
        json!({ "type": "item.completed", "item": { "id": "0", "type": "agent_message", "text": answer } });
    let completed = json!({ "type": "turn.completed", "usage": { "input_tokens": 1, "output_tokens": 1 } });
    let steps = json!([
        { "event": { "type": "thread.started", "thread_id": FIRST } },
        { "event": { "type": "turn.started" } },
        // In bursts, the last one right before the end.
        { "print": { "text": format!("{item}\n{completed}\n"), "piece": 100_003, "pause_ms": 2 } },
        { "exit": 0 },
    ]);
    let mut desk = Desk::with("codex", steps);
    let result = desk.delegate("codex", "Do it.");
    assert_outcome(&result, "success");
    assert_eq!(result.structured["output_chars"], answer.len());
    assert_eq!(result.structured["output_truncated"], true);
    assert!(result.structured["output"].as_str().unwrap().ends_with("THE END"), "{}", result.text);

    // The connection it came over is gone; the text is not.
    desk.host = introduced(&desk.world);
    let mut joined = String::new();
    let mut next = json!(0);
    while next.is_u64() {
        let session = &result.structured["bridge_session_id"];
        let page = json!({ "session_id": session, "turn": 0, "offset": next, "max_chars": 100_000 });
        let page = desk.host.call("get_turn_output", page).ok();
        joined.push_str(page.structured["text"].as_str().unwrap());
        next = page.structured["next_offset"].clone();
    }
    assert!(joined == answer, "{} bytes of {}", joined.len(), answer.len());
    let turn = result.structured["turn_id"].as_str().unwrap();
    let printed = desk.world.bridge(["turns", "output", turn]).expect_code(0);
    assert!(printed.stdout() == answer, "{} bytes of {}", printed.stdout.len(), answer.len());
}

/// 30
#[test]
fn a_usage_limit_is_no_answer_and_starts_nobody_else() {
    let text = "You've hit your usage limit. Try again at 3:05 PM.";
    let stamped = "Claude AI usage limit reached|1760000000";
    for (agent, steps, reset) in [
        ("codex", json!([{ "print": { "text": text } }, { "exit": 0 }]), "3:05 PM"),
        ("codex", json!([{ "print": { "text": text } }, { "exit": 1 }]), "3:05 PM"),
        ("codex", json!([{ "print": { "text": text, "to": "stderr" } }, { "exit": 1 }]), "3:05 PM"),
        ("codex", json!([{ "answer": { "text": text } }, { "exit": 0 }]), "3:05 PM"),
        ("codex", json!([{ "answer": { "failed": text } }, { "exit": 0 }]), "3:05 PM"),
        ("codex", json!([{ "answer": { "failed": text } }, { "exit": 1 }]), "3:05 PM"),
        ("claude", json!([{ "answer": { "text": stamped } }, { "exit": 0 }]), "2025-10-09T08:53:20Z"),
        ("claude", json!([{ "answer": { "text": stamped } }, { "exit": 1 }]), "2025-10-09T08:53:20Z"),
        (
            "claude",
            json!([{ "answer": { "text": stamped, "is_error": true } }, { "exit": 1 }]),
            "2025-10-09T08:53:20Z",
        ),
        ("claude", json!([{ "print": { "text": stamped } }, { "exit": 1 }]), "2025-10-09T08:53:20Z"),
    ] {
        let script = json!({ "counter": "../outside/runs", "steps": steps });
        // Both are there, so that a fallback would find somebody.
        let mut desk = Desk::new(&[("codex", script.clone()), ("claude", script)]);
        let result = desk.delegate(agent, "Do it.");
        assert_outcome(&result, "quota");
        assert_eq!(result.structured["meta"]["resetAt"], reset, "{steps}");
        assert_eq!(desk.runs(), 1, "{steps}");
    }
}

/// 30
#[test]
fn an_answer_about_limits_is_an_answer() {
    let text =
        "The server answers 429 and \"usage limit reached\" when the quota is used up; it resets at 3 PM.";
    let result = Desk::with("codex", json!([{ "answer": { "text": text } }])).delegate("codex", "Explain.");
    assert_outcome(&result, "success");
    assert_eq!(result.structured["output"], text);
}

/// 31
#[test]
fn the_exit_code_of_delegate_is_the_documented_one_for_every_outcome() {
    let help = World::new().build().bridge(["delegate", "--help"]).expect_code(0);
    let words = help.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
    for line in ["0 success", "1 the worker failed", "2 refused", "3 the answer is empty", "75 still running"]
    {
        assert!(words.contains(line), "{line}: {help}");
    }
    for (steps, outcome, exit, code, signal) in [
        (json!([{ "answer": { "text": "Done." } }]), "success", 0, json!(0), json!(null)),
        (json!([{ "exit": 7 }]), "worker-error", 1, json!(7), json!(null)),
        (json!([{ "answer": { "text": "Done." } }, { "exit": 7 }]), "worker-error", 1, json!(7), json!(null)),
        (
            json!([{ "answer": { "failed": "You've hit your usage limit." } }]),
            "quota",
            2,
            json!(1),
            json!(null),
        ),
        (
            json!([{ "print": { "text": "Not logged in", "to": "stderr" } }, { "exit": 1 }]),
            "login-required",
            2,
            json!(1),
            json!(null),
        ),
        (json!([{ "exit": 0 }]), "empty", 3, json!(0), json!(null)),
        (json!([{ "print": { "text": "prose" } }]), "format-unrecognised", 3, json!(0), json!(null)),
        #[cfg(unix)]
        (json!([{ "kill_self": "KILL" }]), "worker-error", 1, json!(null), json!(9)),
        #[cfg(unix)]
        (
            json!([{ "answer": { "text": "Done." } }, { "kill_self": "ABRT" }]),
            "worker-error",
            1,
            json!(null),
            json!(6),
        ),
    ] {
        let world = World::new().agent("codex", json!({ "enabled": true })).build();
        world.fake("codex", &json!({ "steps": steps }));
        let ended = world.bridge(["delegate", "codex", "Do it.", "--json"]).expect_code(exit);
        let view = ended.json();
        assert_eq!(view["outcome"], outcome, "{view:#}");
        let turn = view["turn_id"].as_str().unwrap();
        let record = world.bridge(["turns", "show", turn, "--json"]).expect_code(0).json();
        assert_eq!((&record["exit_code"], &record["signal"]), (&code, &signal), "{record:#}");
    }
}

/// 31
#[test]
fn a_wait_that_is_over_has_an_exit_code_of_its_own_and_the_work_goes_on() {
    let world = World::new().agent("codex", json!({ "enabled": true })).build();
    world.fake("codex", &json!({ "steps": [{ "wait_for_file": { "path": "../outside/go" } }, { "answer": { "text": "Done." } }] }));
    let waited =
        world.bridge(["delegate", "codex", "Do it.", "--wait", "0", "--json"]).expect_code(75).json();
    assert_eq!(waited["status"], "still_running");
    std::fs::write(world.outside().join("go"), "").unwrap();
    let turn = waited["turn_id"].as_str().unwrap();
    let end = world.bridge(["turns", "wait", turn, "--json"]).expect_code(0).json();
    assert_eq!((&end["outcome"], &end["output"]), (&json!("success"), &json!("Done.")));
}

/// A worker that has printed all and ended, while a child of it still holds its output open for as
/// long as the bridge is willing to read.
fn ended_but_not_closed() -> Value {
    json!([
        { "record": "../outside/worker.json" },
        { "spawn": { "steps": ["hang"] } },
        { "print": { "repeat": { "bytes": 1_000_026, "text": "{\"type\":\"weather.changed\"}\n" } } },
        { "answer": { "text": "The answer." } },
    ])
}

/// 32
#[cfg(unix)]
#[test]
fn a_cancel_that_comes_after_the_end_changes_nothing() {
    let mut desk = Desk::with("codex", ended_but_not_closed());
    let cwd = desk.world.repo();
    let asked = json!({ "agent": "codex", "prompt": "Do it.", "cwd": cwd, "wait_seconds": 0 });
    let turn = desk.host.call("delegate_task", asked).structured["turn_id"].clone();
    let record = desk.world.outside().join("worker.json");
    process::wait_until("the worker to start", DEADLINE, || record.exists());
    let record: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    let worker = u32::try_from(record["pid"].as_u64().unwrap()).unwrap();
    process::wait_until("the worker to end", DEADLINE, || {
        !desk.world.processes().iter().any(|process| process.id == worker)
    });
    let cancelled = desk.host.call("cancel_turn", json!({ "turn_id": turn }));
    let result = &cancelled.structured["result"];
    assert_eq!(
        (&result["outcome"], &result["output"]),
        (&json!("success"), &json!("The answer.")),
        "{result:#}"
    );
    assert!(cancelled.text.contains("already"), "{}", cancelled.text);
    assert!(!cancelled.text.contains("Cancelled."), "{}", cancelled.text);

    // Again, long after it.
    let again = desk.host.call("cancel_turn", json!({ "turn_id": turn })).ok();
    assert_eq!(again.structured["cancel_requested"], false);
    assert_eq!(again.structured["result"]["outcome"], "success");
    assert!(again.text.contains("already finished"), "{}", again.text);
}

/// 32
#[test]
fn a_deadline_that_passes_while_the_last_output_is_read_changes_nothing() {
    let mut desk = Desk::with("codex", ended_but_not_closed());
    let cwd = desk.world.repo();
    // The worker ends within a second or so, its output is read for two more.
    let asked =
        json!({ "agent": "codex", "prompt": "Do it.", "cwd": cwd, "timeout_sec": 2, "wait_seconds": 50 });
    let result = desk.host.call("delegate_task", asked);
    assert_outcome(&result, "success");
    assert_eq!(result.structured["output"], "The answer.");
    assert_eq!(result.structured["timed_out"], false);
}

/// 33
#[test]
fn a_running_total_is_no_turns_use() {
    let totals = [(100, 10), (250, 25), (270, 27), (90, 9), (120, 12)];
    let rule = |(run, (input, output)): (usize, &(u64, u64))| {
        let usage = json!({ "input": input, "cached": input / 2, "output": output });
        json!({ "when": { "run": run + 1 }, "steps": [{ "answer": { "text": "Done.", "usage": usage } }] })
    };
    let rules: Vec<Value> = totals.iter().enumerate().map(rule).collect();
    let mut desk = Desk::new(&[("codex", json!({ "counter": "../outside/runs", "rules": rules }))]);
    let tokens = |input: u64, cached: u64, output: u64| json!({ "input": input, "cached_input": cached, "output": output, "reasoning": 0 });
    let first = desk.delegate("codex", "One.").ok();
    assert_eq!(first.structured["tokens"], tokens(100, 50, 10));
    assert_eq!(desk.go_on(&first, "Two.").ok().structured["tokens"], tokens(150, 75, 15));
    // A new server knows the total as well.
    desk.host = introduced(&desk.world);
    assert_eq!(desk.go_on(&first, "Three.").ok().structured["tokens"], tokens(20, 10, 2));
    let fallen = desk.go_on(&first, "Four.").ok();
    assert_eq!(fallen.structured["continuity"], "native-resume");
    assert_eq!(fallen.structured["tokens"], json!(null), "a total that falls tells nothing");
    assert_eq!(desk.go_on(&first, "Five.").ok().structured["tokens"], tokens(30, 15, 3));
}

/// 33
#[test]
fn the_last_usage_event_of_a_turn_counts_once() {
    let usage = |input: u64| json!({ "event": { "type": "turn.completed", "usage": { "input_tokens": input, "cached_input_tokens": 30, "output_tokens": 5 } } });
    let steps = json!([
        { "event": { "type": "thread.started", "thread_id": FIRST } },
        { "event": { "type": "item.completed", "item": { "id": "0", "type": "agent_message", "text": "Done." } } },
        usage(40),
        usage(100),
    ]);
    let result = Desk::with("codex", steps).delegate("codex", "Do it.");
    assert_outcome(&result, "success");
    assert_eq!(
        result.structured["tokens"],
        json!({ "input": 100, "cached_input": 30, "output": 5, "reasoning": 0 })
    );
}

/// 33
#[test]
fn no_figures_are_unknown_and_not_zero() {
    for usage in [
        json!(null),
        json!({}),
        json!({ "input_tokens": "many" }),
        json!({ "input_tokens": -4, "output_tokens": 1 }),
    ] {
        let steps = json!([
            { "event": { "type": "thread.started", "thread_id": FIRST } },
            { "event": { "type": "item.completed", "item": { "id": "0", "type": "agent_message", "text": "Done." } } },
            { "event": { "type": "turn.completed", "usage": usage } },
        ]);
        let result = Desk::with("codex", steps).delegate("codex", "Do it.");
        assert_outcome(&result, "success");
        assert_eq!(result.structured.get("tokens"), None, "{usage}");
    }
}

/// 37
#[test]
fn a_missing_login_is_told_at_once_with_the_command_and_is_remembered() {
    let hint = "Not logged in. Please run codex login.";
    let browser = "Opening browser to log in: https://login.invalid/device";
    for (agent, login, steps) in [
        ("codex", "codex login", json!([{ "print": { "text": hint } }, { "exit": 0 }])),
        ("codex", "codex login", json!([{ "print": { "text": hint } }, { "exit": 1 }])),
        ("codex", "codex login", json!([{ "print": { "text": hint, "to": "stderr" } }, { "exit": 0 }])),
        ("codex", "codex login", json!([{ "print": { "text": hint, "to": "stderr" } }, { "exit": 1 }])),
        ("codex", "codex login", json!([{ "answer": { "failed": "unexpected status 401 Unauthorized" } }])),
        ("codex", "codex login", json!([{ "print": { "text": format!("{browser}\n") } }, "hang"])),
        (
            "codex",
            "codex login",
            json!([{ "print": { "text": format!("{browser}\n"), "to": "stderr" } }, "hang"]),
        ),
        (
            "claude",
            "claude auth login",
            json!([{ "print": { "text": "Not logged in · Please run /login\n" } }, { "exit": 1 }]),
        ),
        (
            "claude",
            "claude auth login",
            json!([{ "answer": { "text": "Not logged in · Please run /login", "is_error": true } }]),
        ),
        (
            "claude",
            "claude auth login",
            json!([{ "print": { "text": "Invalid API key · Please run /login\n", "to": "stderr" } }, { "exit": 1 }]),
        ),
        (
            "claude",
            "claude auth login",
            json!([{ "print": { "text": format!("{browser}\n"), "to": "stderr" } }, "hang"]),
        ),
    ] {
        let mut desk = Desk::with(agent, steps.clone());
        let began = Instant::now();
        let result = desk.delegate(agent, "Do it.");
        assert_outcome(&result, "login-required");
        assert!(
            result.structured["hint"].as_str().unwrap().contains(login),
            "{steps}: {:#}",
            result.structured
        );
        assert!(began.elapsed() < Duration::from_secs(20), "{steps}: {:?}", began.elapsed());
        for _ in 0..3 {
            let again = desk.delegate(agent, "And now?").err();
            assert!(
                again.text.contains("AGENT_LOGIN_REQUIRED") && again.text.contains(login),
                "{steps}: {}",
                again.text
            );
        }
        assert_eq!(desk.runs(), 1, "{steps}");
    }
}

/// 37
#[cfg(unix)]
#[test]
fn a_worker_has_nothing_to_open_a_browser_with() {
    let mut world = World::new().agent("codex", json!({ "enabled": true })).build();
    let steps = json!([{ "record": "../outside/worker.json" }, { "answer": { "text": "Done." } }]);
    world.fake("codex", &json!({ "steps": steps }));
    for name in ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY"] {
        world.set_env(name, "something");
    }
    world.bridge(["delegate", "codex", "Do it."]).expect_code(0);
    let text = std::fs::read(world.outside().join("worker.json")).unwrap();
    let record: Value = serde_json::from_slice(&text).unwrap();
    for name in ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY"] {
        assert_eq!(record["env"].get(name), None, "{name}");
    }
}

/// 38
#[test]
fn a_session_resumes_its_own_conversation_and_never_the_newest_of_the_folder() {
    for (agent, option) in [("codex", None), ("claude", Some("--resume"))] {
        let script = json!({
            "counter": "../outside/runs",
            "rules": [
                { "when": { "contains": "first", "resumed": false }, "steps": [{ "answer": { "text": "1", "thread": FIRST } }] },
                { "when": { "contains": "second", "resumed": false }, "steps": [{ "answer": { "text": "2", "thread": SECOND } }] },
            ],
            "steps": [{ "record": "../outside/{run}.json" }, { "answer": { "text": "more" } }],
        });
        let mut desk = Desk::new(&[(agent, script)]);
        let first = desk.delegate(agent, "first").ok();
        let second = desk.delegate(agent, "second").ok();
        for (run, session, id, other) in
            [(3, &first, FIRST, SECOND), (4, &second, SECOND, FIRST), (5, &first, FIRST, SECOND)]
        {
            desk.go_on(session, "more").ok();
            let arguments = desk.arguments(run);
            assert!(arguments.iter().any(|word| word == id), "{arguments:?}");
            assert!(!arguments.iter().any(|word| word == other), "{arguments:?}");
            assert!(
                !arguments.iter().any(|word| ["--last", "--continue", "-c last"].contains(&word.as_str()))
            );
            if let Some(option) = option {
                assert!(follows(&arguments, option, id), "{arguments:?}");
            } else {
                let after = arguments.iter().skip_while(|word| *word != "resume").collect::<Vec<_>>();
                assert_eq!(after, ["resume", "--json", id, "-"], "{arguments:?}");
            }
        }
    }
}

/// 38
#[test]
fn without_an_id_nothing_is_resumed() {
    // An old conversation is there, but this one never told its id.
    let script = json!({
        "counter": "../outside/runs",
        "rules": [{ "when": { "contains": "other" }, "steps": [{ "answer": { "text": "1", "thread": SECOND } }] }],
        "steps": [
            { "record": "../outside/{run}.json" },
            { "event": { "type": "item.completed", "item": { "id": "0", "type": "agent_message", "text": "Remember 4711." } } },
            { "event": { "type": "turn.completed", "usage": { "input_tokens": 1, "output_tokens": 1 } } },
        ],
    });
    let mut desk = Desk::new(&[("codex", script)]);
    let first = desk.delegate("codex", "Think of a number.").ok();
    desk.delegate("codex", "other").ok();
    let next = desk.go_on(&first, "Which one?").ok();
    assert_eq!(next.structured["continuity"], "context-replay");
    let arguments = desk.arguments(3);
    assert!(!arguments.iter().any(|word| word == "resume" || word.contains("-0000000000")), "{arguments:?}");
}

/// 39
#[test]
fn an_id_that_changes_with_each_turn_is_followed() {
    let script = json!({
        "counter": "../outside/runs",
        "rules": [
            { "when": { "run": 1 }, "steps": [{ "record": "../outside/{run}.json" }, { "answer": { "text": "1", "thread": FIRST } }] },
            { "when": { "run": 2 }, "steps": [{ "record": "../outside/{run}.json" }, { "answer": { "text": "2", "thread": SECOND } }] },
        ],
        "steps": [{ "record": "../outside/{run}.json" }, { "answer": { "text": "3", "thread": THIRD } }],
    });
    let mut desk = Desk::new(&[("claude", script)]);
    let first = desk.delegate("claude", "one").ok();
    desk.go_on(&first, "two").ok();
    // The id was recorded with the turn, not in the memory of the server.
    desk.host = introduced(&desk.world);
    desk.go_on(&first, "three").ok();
    desk.go_on(&first, "four").ok();
    for (run, id) in [(2, FIRST), (3, SECOND), (4, THIRD)] {
        let arguments = desk.arguments(run);
        assert!(follows(&arguments, "--resume", id), "run {run}: {arguments:?}");
    }
}

/// 39
#[test]
fn a_session_stays_in_its_folder() {
    let world = World::new().agent("codex", json!({ "enabled": true })).file("other/x", "").build();
    world.fake(
        "codex",
        &json!({ "counter": "../outside/runs", "steps": [{ "answer": { "text": "Done." } }] }),
    );
    let host = introduced(&world);
    let mut desk = Desk { host, world };
    let first = desk.delegate("codex", "one").ok();
    let session = &first.structured["bridge_session_id"];
    let elsewhere =
        json!({ "agent": "codex", "prompt": "two", "session_id": session, "cwd": desk.world.file("other") });
    let refused = desk.host.call("delegate_task", elsewhere).err();
    assert!(refused.text.contains("SESSION_CWD_FIXED"), "{}", refused.text);
    assert_eq!(desk.runs(), 1);
}

/// What another agent said is told to a resumed session once, not before every prompt that follows.
#[test]
fn a_resumed_agent_is_told_of_another_agents_turn_only_once() {
    let echo = |thread: &str| json!({ "steps": [{ "answer": { "thread": thread } }] });
    let mut desk = Desk::new(&[("codex", echo(FIRST)), ("claude", echo(SECOND))]);
    let first = desk.delegate("codex", "one");
    let hand_over =
        json!({ "session_id": first.structured["bridge_session_id"], "to_agent": "claude", "prompt": "two" });
    desk.host.call("handoff", hand_over).ok();
    let mut ask = |prompt: &str| {
        let session = &first.structured["bridge_session_id"];
        let arguments =
            json!({ "session_id": session, "agent": "codex", "prompt": prompt, "wait_seconds": 50 });
        desk.host.call("continue_session", arguments).ok().structured
    };
    let told = ask("three");
    assert_eq!(told["continuity"], "native-resume", "{told:#}");
    assert_eq!(told["cross_agent_context_applied"], true, "{told:#}");
    let again = ask("four");
    assert_eq!(again["output"], "four", "the prompt and nothing else: {again:#}");
    assert_eq!(again["cross_agent_context_applied"], false);
}

/// A key that a worker was given is not handed to whoever pages through what the worker printed.
#[test]
fn secrets_do_not_leave_with_raw_output_whatever_the_page() {
    let secret = "correct horse battery staple";
    let world = World::new()
        .agent("codex", json!({ "enabled": true, "passEnv": ["PROVIDER_TOKEN"] }))
        .env("PROVIDER_TOKEN", secret)
        .build();
    let said = format!("noise {secret} and sk-proj-0123456789abcdef end");
    let print = |to: &str| json!({ "print": { "text": format!("{said}\n"), "to": to, "piece": 9 } });
    world.fake(
        "codex",
        &json!({ "steps": [print("stdout"), print("stderr"), { "answer": { "text": "done" } }] }),
    );
    let mut host = introduced(&world);
    let arguments = json!({ "agent": "codex", "prompt": "Do it.", "cwd": world.repo(), "wait_seconds": 50 });
    let turn = host.call("delegate_task", arguments).structured;
    for field in ["stdout", "stderr"] {
        for size in [7, 6_000] {
            let (mut all, mut offset) = (String::new(), json!(0));
            while !offset.is_null() {
                let page = json!({
                    "session_id": turn["bridge_session_id"], "turn": 0, "field": field, "offset": offset, "max_chars": size,
                });
                let page = host.call("get_turn_output", page).ok().structured;
                all.push_str(page["text"].as_str().unwrap());
                offset = page["next_offset"].clone();
            }
            assert!(all.contains("noise") && all.contains("end"), "{field}, {size}: {all}");
            assert!(!all.contains("battery") && !all.contains("cdef"), "{field}, {size}: {all}");
        }
    }
}
