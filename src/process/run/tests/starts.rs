//! Starts that fail and say why, and probes.

use std::path::{Path, PathBuf};

use super::shell::*;
use super::*;
use crate::error::Coded;

fn start_error(program: &Program) -> ProcessError {
    let mut started = false;
    let error = run(
        program,
        &limits(),
        PoliteStop::TerminateGroup,
        RunIo { on_started: &mut |_| started = true, ..silent() },
    )
    .unwrap_err();
    assert!(!started);
    error
}

fn file(path: &Path, text: &str, mode: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.to_path_buf()
}

#[test]
fn a_start_that_fails_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let code = |program: PathBuf| start_error(&Program { program, ..sh("") }).doc().code;
    assert_eq!(code(at("none")), "PROGRAM_NOT_FOUND");
    assert_eq!(code("relative".into()), "PROGRAM_NOT_FOUND");
    assert_eq!(code(folder.path().to_path_buf()), "PROGRAM_NOT_EXECUTABLE");
    assert_eq!(code(file(&at("plain"), "#!/bin/sh\n", 0o644)), "PROGRAM_NOT_EXECUTABLE");
    assert_eq!(code(file(&at("noise"), "\x01\x02\x03", 0o755)), "PROGRAM_NOT_EXECUTABLE");
    assert_eq!(code(file(&at("script"), "#!/no/such/shell\n", 0o755)), "INTERPRETER_MISSING");
    assert_eq!(code(file(&at("envd"), "#!/usr/bin/env ab-no-such\n", 0o755)), "INTERPRETER_MISSING");

    let nowhere = start_error(&Program { cwd: at("gone"), ..sh("true") });
    assert_eq!(nowhere.doc().code, "WORKING_FOLDER_UNUSABLE");
    let not_a_folder = start_error(&Program { cwd: at("plain"), ..sh("true") });
    assert_eq!(not_a_folder.doc().code, "WORKING_FOLDER_UNUSABLE");
    let nul = start_error(&Program { args: vec!["a\0b".into()], ..sh("") });
    assert_eq!(nul.doc().code, "ARGUMENT_HAS_NUL");
}

#[cfg(target_os = "linux")]
#[test]
fn arguments_beyond_the_system_are_refused_before_and_after_asking_it() {
    let long = start_error(&Program { args: vec!["x".repeat(200 << 10).into()], ..sh("") });
    assert_eq!(long.doc().code, "ARGUMENT_TOO_LONG");
    let many = start_error(&Program { args: vec!["x".repeat(100 << 10).into(); 200], ..sh("") });
    assert_eq!(many.doc().code, "ARGUMENT_TOO_LONG");
}

#[test]
fn a_probe_is_captured() {
    let captured = capture(&sh("echo 1.2.3; echo noise >&2; sleep 300 &"), PATIENCE, 1000).unwrap();
    assert_eq!(captured.stdout, "1.2.3\n");
    assert_eq!(captured.report.exit_code, Some(0));
    assert!(captured.report.survivors.is_empty());
}

#[test]
fn a_probe_that_hangs_or_floods_is_ended() {
    let hung = capture(&sh("echo first; sleep 300"), Duration::from_millis(300), 1000).unwrap();
    assert_eq!(hung.report.stopped, Some(Stopped::RunDeadline(Duration::from_millis(300))));
    assert_eq!(hung.stdout, "first\n");
    let flood = capture(&sh("yes"), PATIENCE, 1000).unwrap();
    assert!(matches!(flood.report.stopped, Some(Stopped::Fatal(_))));
    assert!(flood.stdout.len() <= 1000 && flood.stdout.starts_with("y\ny\n"));
}
