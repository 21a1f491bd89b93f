//! How long arguments may be. Checked before the start, because the systems' own errors say nothing
//! (or cut the line without a word).

use std::ffi::{OsStr, OsString};

use super::{ProcessError, Program};

/// Longest single argument or `NAME=value` on Linux, in bytes, its end mark included
/// (`MAX_ARG_STRLEN`).
pub const MAX_UNIX_ARGUMENT: usize = 128 * 1024;

/// Longest command line on Windows, in UTF-16 units, its end mark included.
pub const MAX_WINDOWS_COMMAND_LINE: usize = 32_767;

/// Refuses what the system would refuse or cut.
pub(super) fn check(program: &Program) -> Result<(), ProcessError> {
    check_nul(program)?;
    if cfg!(target_os = "linux") {
        check_each(program, MAX_UNIX_ARGUMENT)?;
    }
    if cfg!(windows) {
        check_windows(program.program.as_os_str(), &program.args)?;
    }
    Ok(())
}

fn check_nul(program: &Program) -> Result<(), ProcessError> {
    let has_nul = |text: &OsStr| text.as_encoded_bytes().contains(&0);
    let refuse = |what: String| Err(ProcessError::ArgumentHasNul { what });
    if has_nul(program.program.as_os_str()) {
        return refuse("the program's path".into());
    }
    if has_nul(program.cwd.as_os_str()) {
        return refuse("the working folder's path".into());
    }
    if let Some(index) = program.args.iter().position(|arg| has_nul(arg)) {
        return refuse(format!("argument {}", index + 1));
    }
    if let Some((name, _)) = program.env.iter().find(|(name, value)| has_nul(name) || has_nul(value)) {
        return refuse(format!("the environment variable {}", name.to_string_lossy().replace('\0', "?")));
    }
    Ok(())
}

fn check_each(program: &Program, limit: usize) -> Result<(), ProcessError> {
    for (index, arg) in program.args.iter().enumerate() {
        let length = arg.len() + 1;
        if length > limit {
            return Err(ProcessError::ArgumentTooLong {
                what: format!("argument {} (in bytes)", index + 1),
                length,
                limit,
            });
        }
    }
    for (name, value) in &program.env {
        let length = name.len() + value.len() + 2;
        if length > limit {
            return Err(ProcessError::ArgumentTooLong {
                what: format!("the environment variable {} (in bytes)", name.to_string_lossy()),
                length,
                limit,
            });
        }
    }
    Ok(())
}

fn check_windows(program: &OsStr, args: &[OsString]) -> Result<(), ProcessError> {
    let length = windows_command_line_units(program, args);
    if length > MAX_WINDOWS_COMMAND_LINE {
        return Err(ProcessError::ArgumentTooLong {
            what: "the command line (in UTF-16 units)".into(),
            length,
            limit: MAX_WINDOWS_COMMAND_LINE,
        });
    }
    Ok(())
}

/// Length of the Windows command line in UTF-16 units after quoting, its end mark included.
pub fn windows_command_line_units(program: &OsStr, args: &[OsString]) -> usize {
    // The program is always put in quotes.
    let mut units = units_of(program) + 2;
    for arg in args {
        units += 1 + quoted_units(arg);
    }
    units + 1
}

fn units_of(text: &OsStr) -> usize {
    // A lone surrogate becomes one replacement character: also one unit.
    text.to_string_lossy().encode_utf16().count()
}

/// The rules of the C runtime's argument parser: quotes around empty arguments and those with blanks;
/// a quote gets a backslash; backslashes before a quote (or before the closing one) are doubled.
fn quoted_units(arg: &OsStr) -> usize {
    let text = arg.to_string_lossy();
    let quote = text.is_empty() || text.contains([' ', '\t']);
    let mut units = if quote { 2 } else { 0 };
    let mut backslashes = 0;
    for unit in text.encode_utf16() {
        units += 1;
        if unit == u16::from(b'\\') {
            backslashes += 1;
        } else {
            if unit == u16::from(b'"') {
                units += backslashes + 1;
            }
            backslashes = 0;
        }
    }
    units + if quote { backslashes } else { 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::error::Coded;
    use std::collections::BTreeMap;

    fn program(args: &[&str]) -> Program {
        Program {
            program: "/bin/x".into(),
            args: args.iter().map(OsString::from).collect(),
            cwd: "/".into(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
        }
    }

    fn units(arg: &str) -> usize {
        quoted_units(OsStr::new(arg))
    }

    #[test]
    fn quoting_is_counted_as_windows_does_it() {
        assert_eq!(units("plain"), 5);
        assert_eq!(units(""), 2);
        assert_eq!(units("a b"), 5);
        assert_eq!(units(r#"a"b"#), 4);
        assert_eq!(units(r#"a\"b"#), 6);
        assert_eq!(units(r"a\\b"), 4);
        assert_eq!(units(r"a b\\"), 9);
        assert_eq!(units("\u{1F600}"), 2);
    }

    #[test]
    fn the_windows_limit_counts_units_after_quoting() {
        let exe = OsStr::new(r"C:\x.exe");
        let fits = MAX_WINDOWS_COMMAND_LINE - (8 + 2) - 1 - 1;
        assert!(check_windows(exe, &["a".repeat(fits).into()]).is_ok());
        assert!(check_windows(exe, &["a".repeat(fits + 1).into()]).is_err());
        // Every quote doubles.
        let error = check_windows(exe, &["\"".repeat(20_000).into()]).unwrap_err();
        assert_eq!(error.doc().code, "ARGUMENT_TOO_LONG");
        // 40,000 characters with a newline.
        assert!(check_windows(exe, &["line\n".repeat(8_000).into()]).is_err());
    }

    #[test]
    fn one_argument_of_128_kib_is_too_long() {
        let fits = "a".repeat(MAX_UNIX_ARGUMENT - 1);
        assert!(check_each(&program(&["x", &fits]), MAX_UNIX_ARGUMENT).is_ok());
        let longer = "secret".repeat(40_000);
        let error = check_each(&program(&["x", &longer]), MAX_UNIX_ARGUMENT).unwrap_err();
        assert!(error.to_string().contains("argument 2"), "{error}");
        assert!(error.to_string().contains("131072"), "{error}");
        assert!(!error.to_string().contains("secret"), "content must not leak");
    }

    #[test]
    fn a_nul_is_refused_by_place() {
        let error = check(&program(&["fine", "a\0b"])).unwrap_err();
        assert_eq!(error.doc().code, "ARGUMENT_HAS_NUL");
        assert!(error.to_string().contains("argument 2"));
    }
}
