//! A turn that is observed: what its record says, whatever its worker says, and whatever becomes of it.

use agent_bridge::bridge::{Bridge, Started, TurnRequest, WaitedTurn};
use agent_bridge::observe::ChangeKind;
use agent_bridge::policy::Sandbox;
use agent_bridge::store::{BlobKind, Store, scratch_path};

use super::*;

/// A world whose mock agent may write and follows these rules, and a front door to it.
fn front_door(rules: &Value) -> (World, Bridge, tokio::runtime::Runtime) {
    let world = World::new().ceiling("workspace-write").build();
    let script = world.path().join("script.json");
    std::fs::write(&script, json!({ "rules": rules }).to_string()).unwrap();
    world.set_agent("mock", json!({ "enabled": true, "script": script }));
    let bridge = door(&world);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (world, bridge, runtime)
}

fn door(world: &World) -> Bridge {
    let context = context(world);
    let config = agent_bridge::config::load(&context, None).unwrap();
    Bridge::new(context, config)
}

fn request(world: &World, prompt: &str) -> TurnRequest {
    TurnRequest {
        agent: Some("mock".into()),
        prompt: prompt.into(),
        cwd: Some(world.repo().to_str().unwrap().into()),
        sandbox: Some(Sandbox::WorkspaceWrite),
        observe: true,
        requested_by: "test".into(),
        ..TurnRequest::default()
    }
}

async fn finished(bridge: &Bridge, started: &Started) -> WaitedTurn {
    let waited = bridge.wait(&started.turn_id, DEADLINE, |_, _| ()).await.unwrap();
    assert!(waited.row.end.is_some(), "still running");
    waited
}

fn store(world: &World) -> Store {
    Store::open(&world.state(), Clock::System).unwrap()
}

/// Runs a turn to its end. Gives its id, its outcome and what was observed.
fn run(
    world: &World,
    bridge: &Bridge,
    runtime: &tokio::runtime::Runtime,
    prompt: &str,
) -> (String, String, Observation) {
    runtime.block_on(async {
        let started = bridge.start(request(world, prompt)).await.unwrap();
        let row = finished(bridge, &started).await.row;
        let observation = store(world).observation(&row.id).unwrap().expect("it was observed");
        assert!(!scratch_path(&world.state(), &row.id).unwrap().exists(), "its scratch folder is left");
        (row.id, row.end.unwrap().outcome.as_str().to_owned(), observation)
    })
}

#[test]
fn done_though_nothing_was_written_and_written_though_nothing_was_said() {
    let (world, bridge, runtime) = front_door(&json!([
        { "when": { "contains": "claims" }, "steps": [{ "answer": { "text": "I edited a.txt." } }] },
        { "when": { "contains": "silent" },
          "steps": [{ "write_file": { "path": "b.txt", "text": "written\n" } }, { "answer": { "text": "Nothing to do." } }] },
    ]));
    let (_, outcome, observation) = run(&world, &bridge, &runtime, "claims");
    assert_eq!(outcome, "success");
    expect_unchanged(&observation);
    let check = observation.check_claims(&world.repo(), &["a.txt".into()]).unwrap();
    assert_eq!((check.not_observed, check.not_claimed), (vec!["a.txt".to_owned()], vec![]));

    let (turn, _, observation) = run(&world, &bridge, &runtime, "silent");
    expect(&observation, &[("b.txt", ChangeKind::Added)]);
    let check = observation.check_claims(&world.repo(), &[]).unwrap();
    assert_eq!((check.not_observed, check.not_claimed), (vec![], vec!["b.txt".to_owned()]));
    // The patch is kept with the turn.
    let patch = observation.patch.unwrap();
    let kept = std::fs::read(store(&world).blobs().path(&turn, BlobKind::Patch).unwrap()).unwrap();
    assert_eq!((patch.bytes, patch.sha256), (kept.len() as u64, agent_bridge::digest::of_bytes(&kept)));
    std::fs::write(world.path().join("patch"), kept).unwrap();
    std::fs::remove_file(world.file("b.txt")).unwrap();
    world.git(["apply", "../patch"]);
    assert_eq!(world.read("b.txt"), "written\n");
}

#[test]
fn a_task_that_needs_no_edits_succeeds_with_no_changes() {
    let (world, bridge, runtime) = front_door(&json!([]));
    let script = world.path().join("script.json");
    let steps = json!([{ "answer": { "text": "Nothing to change, because it is right already." } }]);
    std::fs::write(&script, json!({ "steps": steps }).to_string()).unwrap();
    for sandbox in [Sandbox::ReadOnly, Sandbox::WorkspaceWrite] {
        let asked = TurnRequest { sandbox: Some(sandbox), ..request(&world, "review it") };
        runtime.block_on(async {
            let started = bridge.start(asked).await.unwrap();
            let row = finished(&bridge, &started).await.row;
            assert_eq!(row.end.unwrap().outcome.as_str(), "success");
            expect_unchanged(&store(&world).observation(&row.id).unwrap().unwrap());
            assert!(!store(&world).blobs().path(&row.id, BlobKind::Patch).unwrap().exists());
        });
    }
}

#[test]
fn a_turn_that_nobody_wants_observed_is_not() {
    let (world, bridge, runtime) = front_door(&json!([]));
    runtime.block_on(async {
        let asked = TurnRequest { observe: false, ..request(&world, "hello") };
        let started = bridge.start(asked).await.unwrap();
        let row = finished(&bridge, &started).await.row;
        assert_eq!(store(&world).observation(&row.id).unwrap(), None);
        assert!(!world.state().join("scratch").exists());
    });
}

#[test]
fn whatever_becomes_of_the_worker_its_changes_are_seen() {
    let write = json!({ "write_file": { "path": "half.txt", "text": "half\n" } });
    let (world, bridge, runtime) = front_door(&json!([
        { "when": { "contains": "fails" }, "steps": [write, { "exit": 3 }] },
        { "when": { "contains": "orphan" },
          "steps": [{ "spawn": { "group": "session", "quiet": true, "steps": [{ "sleep_ms": 200 }, { "write_file": { "path": "orphan.txt", "text": "x\n", "force": true } }, "hang"] } },
                    { "wait_for_file": { "path": "orphan.txt", "timeout_ms": 20000 } },
                    { "answer": { "text": "done" } }] },
    ]));
    let (_, outcome, observation) = run(&world, &bridge, &runtime, "fails");
    assert_ne!(outcome, "success");
    expect(&observation, &[("half.txt", ChangeKind::Added)]);
    let (_, _, observation) = run(&world, &bridge, &runtime, "orphan");
    expect(&observation, &[("orphan.txt", ChangeKind::Added)]);
    world.assert_no_process_left(DEADLINE);
}

#[test]
fn a_cancelled_turn_is_looked_at_once_more() {
    let (world, bridge, runtime) = front_door(&json!([
        { "when": { "contains": "long" },
          "steps": [{ "write_file": { "path": "half.txt", "text": "half\n" } }, { "touch_file": "../outside/written" }, "hang"] },
    ]));
    runtime.block_on(async {
        let started = bridge.start(request(&world, "long")).await.unwrap();
        while !world.outside().join("written").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (asked, waited) = bridge.cancel(&started.turn_id, "enough", DEADLINE).await.unwrap();
        assert!(asked);
        assert_eq!(waited.row.end.unwrap().outcome.as_str(), "cancelled");
    });
    let store = store(&world);
    let turn = &store.list_turns(&Default::default(), 1, None).unwrap().rows[0].id;
    expect(&store.observation(turn).unwrap().unwrap(), &[("half.txt", ChangeKind::Added)]);
}

#[cfg(unix)]
mod with_a_git_that_hangs {
    use super::*;

    /// From now on the world's git waits until it is killed, and says that it does.
    fn hang(world: &World) -> PathBuf {
        let waiting = world.path().join("waiting");
        world.program(
            "git",
            &format!(
                "#!/bin/sh\necho $$ > '{0}.new'; mv '{0}.new' '{0}'; exec sleep 600\n",
                waiting.display()
            ),
        );
        waiting
    }

    async fn wait_for(path: &Path) {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[test]
    fn a_cancel_ends_the_look_and_the_turn() {
        let (world, bridge, runtime) = front_door(&json!([]));
        let waiting = hang(&world);
        runtime.block_on(async {
            let started = bridge.start(request(&world, "hello")).await.unwrap();
            wait_for(&waiting).await;
            let (_, waited) = bridge.cancel(&started.turn_id, "no more", DEADLINE).await.unwrap();
            assert_eq!(waited.row.end.unwrap().outcome.as_str(), "cancelled");
            let observation = store(&world).observation(&started.turn_id).unwrap().unwrap();
            assert_eq!((observation.status, observation.changed()), (Status::NotObserved, None));
            assert!(observation.reason.unwrap().contains("no more"));
        });
        world.assert_no_process_left(DEADLINE);
    }

    #[test]
    fn what_a_killed_supervisor_leaves_is_removed_when_the_turn_is_looked_at() {
        let (world, bridge, runtime) = front_door(&json!([]));
        let waiting = hang(&world);
        runtime.block_on(async {
            let started = bridge.start(request(&world, "hello")).await.unwrap();
            wait_for(&waiting).await;
            let scratch = scratch_path(&world.state(), &started.turn_id).unwrap();
            assert!(scratch.exists());
            let supervisor = world
                .processes()
                .into_iter()
                .find(|it| it.command.contains("run-turn"))
                .expect("a supervisor");
            process::signal(supervisor.id, process::Signal::Kill);
            let row = finished(&bridge, &started).await.row;
            assert_eq!(row.end.unwrap().outcome.as_str(), "interrupted");
            assert!(!scratch.exists(), "its scratch folder is left");
            assert_eq!(store(&world).observation(&started.turn_id).unwrap(), None);
        });
        world.assert_no_process_left(DEADLINE);
    }

    #[test]
    fn the_turn_itself_completes_without_being_observed() {
        let (world, bridge, runtime) = front_door(&json!([
            { "when": { "contains": "hello" }, "steps": [{ "answer": { "text": "hi" } }] },
        ]));
        hang(&world);
        let began = std::time::Instant::now();
        let (_, outcome, observation) = run(&world, &bridge, &runtime, "hello");
        assert_eq!((outcome.as_str(), observation.status), ("success", Status::NotObserved));
        assert!(observation.reason.unwrap().contains("was not done within 10 s"));
        assert!(began.elapsed() < DEADLINE);
    }
}

#[test]
fn observing_is_a_part_of_what_an_idempotency_key_stands_for() {
    let (world, bridge, runtime) = front_door(&json!([]));
    runtime.block_on(async {
        let keyed = |observe| TurnRequest {
            observe,
            idempotency_key: Some("once".into()),
            ..request(&world, "hello")
        };
        let started = bridge.start(keyed(true)).await.unwrap();
        finished(&bridge, &started).await;
        assert!(bridge.start(keyed(true)).await.unwrap().repeated);
        assert_eq!(bridge.start(keyed(false)).await.unwrap_err().code(), "IDEMPOTENCY_CONFLICT");
    });
}

#[test]
fn two_turns_in_one_folder_are_told_of_each_other() {
    let (world, bridge, runtime) = front_door(&json!([
        { "when": { "contains": "long" },
          "steps": [{ "touch_file": "../outside/runs" }, { "wait_for_file": { "path": "../outside/go", "timeout_ms": 50000 } }, { "answer": { "text": "done" } }] },
        { "when": { "contains": "short" }, "steps": [{ "answer": { "text": "done" } }] },
    ]));
    runtime.block_on(async {
        let long = bridge.start(request(&world, "long")).await.unwrap();
        while !world.outside().join("runs").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let short = bridge.start(request(&world, "short")).await.unwrap();
        finished(&bridge, &short).await;
        let notes = store(&world).observation(&short.turn_id).unwrap().unwrap().notes;
        assert!(notes.iter().any(|note| note.contains(&long.turn_id)), "{notes:?}");
        std::fs::write(world.outside().join("go"), "").unwrap();
        finished(&bridge, &long).await;
    });
}
