//! A stand-in for Antigravity's `agy`, as nasty as published reports say the real one is.
//!
//! Tests put it into a world under the name `agy`. Beside it lies `agy.json`, the scenario: which version it is and
//! what happens in its runs. Whatever it is asked is written into the folder `agy.calls` beside it, one file a
//! start. What a version cannot do it does not do: its flags are unknown, its failures have that version's shape.
//!
//! No copy of the real program was at hand, so this one is only as true as those reports.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test's program: it prints for a living, and a broken scenario is to end it with a word"
)]

mod acts;
mod conversation;
mod flags;
mod mcp;
mod os;
mod output;
mod permissions;
mod record;
mod scenario;
mod turn;

use std::path::PathBuf;

use flags::Flags;
use record::Record;
use scenario::{Scenario, Version};

/// Set for a child of this program that does nothing but hold its streams.
pub const HOLDER: &str = "FAKE_AGY_HOLDER";

fn main() {
    if std::env::var_os(HOLDER).is_some() {
        std::thread::sleep(std::time::Duration::from_secs(600));
        return;
    }
    // Not the path that the system knows: tests start it under another name, by a link.
    let own = PathBuf::from(std::env::args_os().next().expect("a program has a name"));
    let argv: Vec<String> = std::env::args().skip(1).collect();
    let scenario = Scenario::beside(&own);
    std::process::exit(start(&own, &argv, &scenario));
}

/// What the command line asks for, and the exit code of that.
fn start(own: &std::path::Path, argv: &[String], scenario: &Scenario) -> i32 {
    let version = scenario.version();
    if let Some(subcommand) = argv.first().filter(|first| !first.starts_with('-')) {
        let (mut record, number) = Record::begin(own, kind_of_subcommand(subcommand), argv);
        if version < Version(1, 1, 23) {
            // Until then an open pipe was waited for here as well.
            record.stdin(&output::read_to_end());
        }
        return match subcommand.as_str() {
            "models" => acts::models(scenario, number),
            _ => complain(&format!("unknown command {subcommand:?} for \"agy\""), 1),
        };
    }
    let flags = match Flags::parse(argv, version) {
        Ok(flags) => flags,
        Err(complaint) => {
            Record::begin(own, "refused", argv);
            // The package ends a program that asks for no other; later versions ask for their own.
            return complain(&complaint, if version < Version(1, 1, 11) { 2 } else { 1 });
        }
    };
    if flags.on("version") {
        Record::begin(own, "version", argv);
        println!("{}", scenario.version_text());
        return scenario.version_exit;
    }
    if let Some(word) = flags.rest.first() {
        Record::begin(own, "refused", argv);
        return complain(&format!("unexpected argument {word:?}"), 1);
    }
    if !flags.given("print") {
        Record::begin(own, "refused", argv);
        return complain("could not open a new TTY: open /dev/tty: no such device or address", 1);
    }
    turn::headless(own, argv, &flags, scenario)
}

fn kind_of_subcommand(name: &str) -> &'static str {
    if name == "models" { "probe" } else { "refused" }
}

fn complain(text: &str, code: i32) -> i32 {
    eprintln!("{text}");
    code
}
