//! What goes in and comes out: prompt, arguments, environment, both streams, and how much of them is held.

use super::shell::*;
use super::*;

#[test]
fn lines_exit_code_and_standard_error_arrive() {
    let (report, seen) = plain("echo one; printf 'two\\r\\nthree'; echo why >&2; exit 7");
    assert_eq!(seen.lines, ["one", "two", "three"]);
    assert_eq!(report.exit_code, Some(7));
    assert_eq!(report.signal, None);
    assert_eq!(report.stopped, None);
    assert_eq!(report.stderr_tail, "why\n");
    assert_eq!((report.stdout_bytes, report.stderr_bytes), (14, 4));
    assert!(report.survivors.is_empty() && !report.drain_cut);
    assert_eq!(seen.started.len(), 1);
    assert!(is_gone(seen.started[0]));
}

#[test]
fn a_signal_is_reported_as_one() {
    let (report, _) = plain("kill -9 $$");
    assert_eq!((report.exit_code, report.signal), (None, Some(9)));
    assert_eq!(report.stopped, None);
}

#[test]
fn the_environment_is_exactly_what_was_listed() {
    let mut program = sh("env");
    program.env.insert("ONLY".into(), "this".into());
    let (_, seen) = go(&program, &limits(), PoliteStop::TerminateGroup, |_| false);
    let mut names: Vec<&str> = seen.lines.iter().filter_map(|l| l.split('=').next()).collect();
    names.retain(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["AGENT_BRIDGE_TURN_ID", "ONLY", "PATH"]);
}

#[test]
fn an_empty_prompt_is_the_null_device_and_a_long_one_arrives_whole() {
    let (report, seen) = plain("cat | wc -c");
    assert_eq!(report.exit_code, Some(0));
    assert_eq!(seen.lines[0].trim(), "0");
    let mut program = sh("cat");
    program.stdin = b"line \xFF\n".repeat(50_000);
    let file = tempfile::NamedTempFile::new().unwrap();
    let report = run(
        &program,
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo { stdout_file: Some(Box::new(file.reopen().unwrap())), ..silent() },
    )
    .unwrap();
    assert_eq!(report.exit_code, Some(0));
    assert_eq!(std::fs::read(file.path()).unwrap(), program.stdin);
}

#[test]
fn arguments_are_exact_and_no_shell_sees_them() {
    let folder = tempfile::tempdir().unwrap();
    let trap = folder.path().join("X");
    let nasty = format!("; touch {0}\n$(touch {0}) `touch {0}` & \"%PATH%^ é", trap.display());
    let mut program = sh("printf '%s' \"$1\"");
    program.args.extend(["sh".into(), nasty.clone().into()]);
    let (_, seen) = go(&program, &limits(), PoliteStop::TerminateGroup, |_| false);
    assert_eq!(seen.lines.join("\n"), nasty);
    assert!(!trap.exists());
}

#[test]
fn a_program_that_ignores_its_prompt_is_judged_by_its_exit() {
    let mut program = sh("echo 'cannot read workspace' >&2; exit 3");
    program.stdin = vec![b'x'; 1 << 20];
    let (report, _) = go(&program, &limits(), PoliteStop::TerminateGroup, |_| false);
    assert_eq!(report.exit_code, Some(3));
    assert_eq!(report.stopped, None);
    assert_eq!(report.stderr_tail, "cannot read workspace\n");
}

#[test]
fn a_megabyte_on_standard_error_blocks_nothing() {
    let script = "head -c 1048576 /dev/zero | tr '\\0' 'e' >&2; echo; echo END >&2; echo answer";
    let (report, seen) = plain(script);
    assert_eq!(seen.lines.last().unwrap(), "answer");
    assert_eq!(report.stderr_bytes, 1_048_576 + 4);
    assert!(report.stderr_tail.ends_with("eEND\n") && report.stderr_tail.len() <= 4096);
}

#[test]
fn any_bytes_are_captured_exactly() {
    let (out, err) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let mut lines = Vec::new();
    let report = run(
        &sh("printf '\\377\\376\\303\\nok\\n\\0'; printf 'Schl\\374ssel\\033[31m\\n' >&2"),
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo {
            stdout_file: Some(Box::new(out.reopen().unwrap())),
            stderr_file: Some(Box::new(err.reopen().unwrap())),
            on_line: &mut |line| {
                lines.push(line.to_vec());
                None
            },
            ..silent()
        },
    )
    .unwrap();
    assert_eq!(lines, [b"\xFF\xFE\xC3".to_vec(), b"ok".to_vec(), b"\0".to_vec()]);
    assert_eq!(std::fs::read(out.path()).unwrap(), b"\xFF\xFE\xC3\nok\n\0");
    assert_eq!(std::fs::read(err.path()).unwrap(), b"Schl\xFCssel\x1b[31m\n");
    assert_eq!(report.stderr_tail, "Schl\u{FFFD}ssel\n");
}

#[test]
fn a_capture_file_that_cannot_be_written_does_not_end_the_run() {
    // Opened for reading only, so that every write fails.
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut lines = 0;
    let report = run(
        &sh("echo answer; echo more"),
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo {
            stdout_file: Some(Box::new(std::fs::File::open(file.path()).unwrap())),
            on_line: &mut |_| {
                lines += 1;
                None
            },
            ..silent()
        },
    )
    .unwrap();
    assert_eq!((report.exit_code, lines), (Some(0), 2));
    assert!(report.capture_error.is_some());
}

#[test]
fn an_eight_megabyte_line_is_a_line() {
    let (report, seen) = plain("head -c 8388608 /dev/zero | tr '\\0' x; echo; echo answer");
    assert_eq!(report.stopped, None);
    assert_eq!(seen.lines.iter().map(String::len).collect::<Vec<_>>(), [8_388_608, 6]);
}

#[cfg(target_os = "linux")]
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn two_hundred_megabytes_without_a_newline_end_by_name_in_bounded_memory() {
    let before = peak_memory_kib();
    let mut limits = limits();
    limits.max_line = 4 << 20;
    let script = "head -c 209715200 /dev/zero | tr '\\0' x";
    let (report, seen) = go(&sh(script), &limits, PoliteStop::TerminateGroup, |_| false);
    assert_eq!(report.stopped, Some(Stopped::LineTooLong(4 << 20)));
    assert!(seen.lines.is_empty());
    // Without a line limit in the way: the reader of lines is slow, the channel must hold the rest back.
    limits.max_output = 20 << 20;
    limits.max_line = 1 << 20;
    let (report, _) = go(
        &sh("yes 0123456789012345678901234567890123456789 | head -c 209715200"),
        &limits,
        PoliteStop::TerminateGroup,
        |_| false,
    );
    assert_eq!(report.stopped, Some(Stopped::OutputTooLarge(20 << 20)));
    assert_eq!(report.stdout_bytes, 20 << 20);
    // Nextest runs this alone in its process; with threads the other tests' memory is in the figure.
    if std::env::var_os("NEXTEST").is_some() {
        let grown = peak_memory_kib() - before;
        // The 20 MiB of lines that this test collects itself are in it.
        assert!(grown < 96 * 1024, "grew by {grown} KiB");
    }
}

#[test]
fn a_megabyte_that_is_still_in_the_pipe_at_the_end_is_kept() {
    let (report, seen) = plain("head -c 3000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo last");
    assert_eq!(report.exit_code, Some(0));
    assert_eq!(seen.lines.last().unwrap(), "last");
    assert!(report.stdout_bytes >= 3_000_000);
}

#[test]
fn output_that_is_no_text_comes_byte_for_byte_and_is_bounded() {
    let mut program = sh("cat");
    program.stdin = (0..=255u8).cycle().take(300_000).collect();
    let mut seen = Vec::new();
    let long = Duration::from_secs(50);
    let report =
        capture_into(&program, long, Duration::from_secs(1), 1 << 20, &mut seen, &mut || None).unwrap();
    assert_eq!((report.exit_code, report.stopped), (Some(0), None));
    assert_eq!(seen, program.stdin);
    let mut some = Vec::new();
    let report = capture_into(&program, long, Duration::from_secs(1), 1000, &mut some, &mut || None).unwrap();
    assert_eq!(report.stopped, Some(Stopped::OutputTooLarge(1000)));
    assert_eq!(some, program.stdin[..1000]);
}
