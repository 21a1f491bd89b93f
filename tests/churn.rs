//! Clients that come and go without a pause while the installation is switched: nobody starves, nobody gets
//! anything but a server or a sentence, and behind a switch nothing of before is alive.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]
#![allow(clippy::print_stderr, reason = "what was measured is said")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use agent_bridge::release::Layout;
use support::host::Host;
use support::prelude::*;

/// Clients at a time, and cutovers; `AGENT_BRIDGE_TEST_CHURN=50x200` is the long form, which takes minutes.
fn size() -> (usize, usize) {
    let asked = std::env::var("AGENT_BRIDGE_TEST_CHURN").unwrap_or_default();
    let parsed = asked.split_once('x').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    parsed.unwrap_or(if std::env::var_os("CI").is_some() { (50, 40) } else { (12, 8) })
}

/// A server that shakes hands, lists no tools and ends with its host.
const SERVER: &str = r#"#!/bin/sh
read -r line
echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}'
while read -r line; do
    case $line in *tools/list*) echo '{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}' ;; esac
done
"#;

#[derive(Default)]
struct Counts {
    served: AtomicUsize,
    told_to_wait: AtomicUsize,
}

/// One client: starts a server, shakes hands, leaves, and comes again.
fn client(at: &ReleaseWorld, stop: &AtomicBool, counts: &Counts) {
    while !stop.load(Ordering::Relaxed) {
        let mut command = at.command(at.layout().launcher());
        command.arg("serve");
        let mut host = Host::start(command);
        let answer = host.try_request("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "churn", "version": "1" } }));
        match answer {
            Ok(_) => {
                counts.served.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                assert_eq!(error.data["code"], "RELEASE_MAINTENANCE", "{error:?}");
                counts.told_to_wait.fetch_add(1, Ordering::Relaxed);
            }
        }
        host.hang_up();
        let code = host.wait_exit(DEADLINE).code;
        assert!(matches!(code, Some(0 | 75)), "{code:?}");
    }
}

#[test]
fn hosts_that_reconnect_neither_keep_a_cutover_out_nor_outlive_it() {
    let (clients, cutovers) = size();
    let at = ReleaseWorld::new();
    let config = json!({ "allowedRoots": [at.repo()], "stateDir": at.state() });
    support::world::write(&at.layout().config(), format!("{config:#}\n"));
    let ids = ["1.0.0", "1.1.0"].map(|version| at.place(&Release::script(version, SERVER)));
    at.make_current(&ids[0]);
    let layout = at.layout();
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    let mut downtimes: Vec<u64> = Vec::new();
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..clients).map(|_| scope.spawn(|| client(&at, &stop, &counts))).collect();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for number in 1..=cutovers {
                let before = counts.served.load(Ordering::Relaxed);
                process::wait_until("clients to be served", DEADLINE, || {
                    counts.served.load(Ordering::Relaxed) > before
                });
                let (old, new) = (&ids[(number + 1) % 2], &ids[number % 2]);
                let begun = Instant::now();
                let mut command = at.bridge_command(["cutover", new, "--yes", "--wait", "30s", "--json"]);
                command.stdin(std::process::Stdio::null());
                let done = process::run(command, Duration::from_secs(60)).expect_code(0).json();
                slowest = slowest.max(begun.elapsed());
                downtimes.push(done["downtimeMs"].as_u64().unwrap());
                // The interpreter of a script is what runs; the script's path is among its arguments.
                let folder = layout.releases().join(old);
                let left = process::processes_with(&folder.to_string_lossy());
                assert!(left.is_empty(), "servers of {old} outlived cutover {number}: {left:?}");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        for client in running {
            client.join().unwrap();
        }
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    downtimes.sort_unstable();
    eprintln!(
        "{clients} clients, {cutovers} cutovers: {} served, {} told to wait; slowest cutover {slowest:?}; gate closed for {} ms (median), {} ms (longest)",
        counts.served.load(Ordering::Relaxed),
        counts.told_to_wait.load(Ordering::Relaxed),
        downtimes[downtimes.len() / 2],
        downtimes[downtimes.len() - 1],
    );
    assert!(journal_is_whole(&layout), "every cutover is on record");
    assert!(slowest < Duration::from_secs(40), "{slowest:?}");
    assert!(downtimes.last() < Some(&2_000), "the gate is closed for {downtimes:?} ms");
}

fn journal_is_whole(layout: &Layout) -> bool {
    let all = agent_bridge::release::journal::verify_all(layout).expect("the chain holds");
    all.iter().all(|transcript| transcript.outcome().is_some())
}
