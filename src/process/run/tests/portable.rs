//! The promises of a run that every operating system can show: this test program is its own worker.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]
#![allow(clippy::zombie_processes, reason = "being left behind is what the workers are for")]

use std::ffi::OsString;
use std::io::Read;
use std::process::Command;

use super::*;
use crate::platform::ProcessIdentity;

const ROLE: &str = "AB_TEST_ROLE";

/// Not a test of its own: what a worker does.
#[test]
#[ignore = "started by other tests in a process of its own"]
fn worker_body() {
    match std::env::var(ROLE).as_deref() {
        Ok("echo") => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).unwrap();
            println!("got {}", text.len());
            io::stderr().write_all(b"noise\r\n").unwrap();
            std::process::exit(7);
        }
        Ok("parent") => {
            let child = worker("sleep").spawn().unwrap();
            println!("child={}", child.id());
            sleep();
        }
        Ok("leaver") => {
            let child = worker("sleep").spawn().unwrap();
            println!("child={}", child.id());
            std::process::exit(0);
        }
        Ok("arguments") => {
            let own: Vec<String> = std::env::args().skip(1 + ARGS.len()).collect();
            println!("\narguments={own:?}");
            std::process::exit(0);
        }
        Ok("sleep") => sleep(),
        _ => {}
    }
}

fn sleep() {
    // Ended from outside; a bound in case the test under it fails.
    thread::sleep(Duration::from_secs(300));
}

const ARGS: [&str; 4] = ["--exact", "process::run::tests::portable::worker_body", "--ignored", "--nocapture"];

fn worker(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(ARGS).env(ROLE, role).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn go(role: &str, stdin: &[u8], cancel_when: impl Fn(&[String]) -> bool) -> (Report, Vec<String>) {
    go_with(role, &[], stdin, cancel_when)
}

fn go_with(
    role: &str,
    more: &[&str],
    stdin: &[u8],
    cancel_when: impl Fn(&[String]) -> bool,
) -> (Report, Vec<String>) {
    let mut env: std::collections::BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    env.insert(ROLE.into(), role.into());
    let program = Program {
        program: std::env::current_exe().unwrap(),
        args: ARGS.iter().chain(more).map(OsString::from).collect(),
        cwd: std::env::temp_dir(),
        env,
        stdin: stdin.to_vec(),
    };
    let limits = Limits {
        start: Some(Duration::from_secs(60)),
        idle: None,
        run: Duration::from_secs(120),
        grace: Duration::from_millis(300),
        drain: Duration::from_secs(1),
        max_line: 1 << 20,
        max_output: 1 << 24,
        stderr_tail: 4096,
    };
    let lines = std::cell::RefCell::new(Vec::new());
    let report = run(
        &program,
        &limits,
        PoliteStop::TerminateGroup,
        RunIo {
            on_line: &mut |line| {
                lines.borrow_mut().push(String::from_utf8_lossy(line).into_owned());
                None
            },
            on_tick: &mut |_| cancel_when(&lines.borrow()).then(|| "asked".to_owned()),
            ..silent()
        },
    )
    .unwrap();
    (report, lines.into_inner())
}

/// The id on the line that ends in `child=ID` (the test program prints before it).
fn child_of(lines: &[String]) -> Option<u32> {
    lines.iter().find_map(|line| line.split_once("child=")?.1.trim().parse().ok())
}

#[test]
fn prompt_lines_exit_code_and_standard_error_arrive() {
    let (report, lines) = go("echo", &[b'x'; 300_000], |_| false);
    assert_eq!(report.stopped, None);
    assert_eq!(report.exit_code, Some(7));
    assert!(lines.iter().any(|line| line.ends_with("got 300000")), "{lines:?}");
    assert_eq!(report.stderr_tail, "noise\n");
    assert!(report.survivors.is_empty());
}

/// What cmd.exe would cut at, expand or carry out.
#[test]
fn arguments_arrive_exactly_on_every_system() {
    let nasty = [
        "first\nsecond\r\nthird",
        "say \"hi\"",
        "%PATH%",
        "a^b & calc | more > x",
        "!x!",
        r"ends in \",
        "",
        r#"\" quoted \\"#,
        "after all of it",
    ];
    let (report, lines) = go_with("arguments", &nasty, b"", |_| false);
    assert_eq!(report.exit_code, Some(0), "{lines:?}");
    let seen = lines.iter().find_map(|line| line.strip_prefix("arguments=")).unwrap();
    assert_eq!(seen, format!("{nasty:?}"));
}

#[test]
fn a_cancel_ends_root_and_child() {
    let (report, lines) = go("parent", b"", |lines| child_of(lines).is_some());
    assert_eq!(report.stopped, Some(Stopped::Cancelled("asked".into())));
    assert!(report.survivors.is_empty());
    assert_eq!(ProcessIdentity::of(child_of(&lines).unwrap()), None);
}

#[test]
fn a_child_left_behind_is_ended_with_its_root() {
    let (report, lines) = go("leaver", b"", |_| false);
    assert_eq!((report.stopped, report.exit_code), (None, Some(0)));
    assert!(report.survivors.is_empty());
    assert_eq!(ProcessIdentity::of(child_of(&lines).unwrap()), None);
}
