//! Clients that come and go without a pause while the installation is switched: nobody starves, nobody gets
//! anything but a server or a sentence, and behind a switch nothing of before is alive.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]
#![allow(clippy::print_stderr, reason = "what was measured is said")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use agent_bridge::release::processes::{Use, scan};
use agent_bridge::release::{lease, readiness};
use support::host::Host;
use support::prelude::*;

/// Clients at a time, and switches; `AGENT_BRIDGE_TEST_CHURN=50x200` asks for more.
fn size() -> (usize, usize) {
    let asked = std::env::var("AGENT_BRIDGE_TEST_CHURN").unwrap_or_default();
    let parsed = asked.split_once('x').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    parsed.unwrap_or((12, 8))
}

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
        let answer = host.try_request("initialize", json!({}));
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
fn hosts_that_reconnect_neither_keep_a_switch_out_nor_outlive_it() {
    let (clients, switches) = size();
    let at = ReleaseWorld::new();
    let server = "#!/bin/sh\nread -r line\necho '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}'\nread -r line\nexit 0\n";
    let id = at.place(&Release::script("1.0.0", server));
    at.make_current(&id);
    let layout = at.layout();
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    let mut slowest = (Duration::ZERO, Duration::ZERO);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..clients).map(|_| scope.spawn(|| client(&at, &stop, &counts))).collect();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..switches {
                let before = counts.served.load(Ordering::Relaxed);
                process::wait_until("clients to be served", DEADLINE, || {
                    counts.served.load(Ordering::Relaxed) > before
                });
                let begun = Instant::now();
                let closed =
                    lease::close_gate(&layout, Duration::from_secs(10)).expect("the gate can be closed");
                slowest.0 = slowest.0.max(begun.elapsed());
                let drained = closed.drain(Duration::from_secs(20)).unwrap_or_else(|busy| panic!("{busy:?}"));
                slowest.1 = slowest.1.max(begun.elapsed());
                assert_eq!(readiness::holders(&layout), [], "the lease is ours alone");
                // A script that has let go of the lease is on its last step; nothing may take its place.
                process::wait_until("nothing of before to be alive", DEADLINE, || {
                    !scan(&layout).users.iter().any(|(_, used)| *used == Use::Release)
                });
                drained.open();
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
    eprintln!(
        "{clients} clients, {switches} switches: {} served, {} told to wait; slowest gate {:?}, drained {:?}",
        counts.served.load(Ordering::Relaxed),
        counts.told_to_wait.load(Ordering::Relaxed),
        slowest.0,
        slowest.1
    );
    assert!(slowest.1 < Duration::from_secs(15), "{slowest:?}");
}
