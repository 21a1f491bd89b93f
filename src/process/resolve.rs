//! From a configured command name or path to the exact file that is started.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{ProcessError, Program, windows_shim};
use crate::context::Context;

/// What to start for a configured command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Absolute path of the executable.
    pub program: PathBuf,
    /// Arguments that go before the caller's: the script, when an interpreter is started for it.
    pub prefix_args: Vec<OsString>,
    /// For people: the file that was found for the command.
    pub display: String,
}

/// Finds the executable of a command. A bare name is searched on PATH (relative entries of PATH are
/// ignored); a path with a separator is taken as it is, relative ones from the working folder.
pub fn resolve(bin: &Path, context: &Context) -> Result<Resolved, ProcessError> {
    if cfg!(windows) {
        resolve_windows(bin, context, windows_shim::resolve)
    } else {
        resolve_unix(bin, context)
    }
}

/// The same for a program that no package manager wraps: on Windows a `.cmd` or `.bat` file is refused.
pub fn resolve_native(bin: &Path, context: &Context) -> Result<Resolved, ProcessError> {
    if cfg!(windows) {
        resolve_windows(bin, context, windows_shim::resolve_native)
    } else {
        resolve_unix(bin, context)
    }
}

fn resolve_unix(bin: &Path, context: &Context) -> Result<Resolved, ProcessError> {
    let path_var = context.var("PATH").unwrap_or_default();
    let found = find_unix(bin, context, path_var)?;
    check_format(&found)?;
    let display = found.display().to_string();
    let Some(interpreter) = Interpreter::of(&found) else {
        return Ok(Resolved { program: found, prefix_args: Vec::new(), display });
    };
    let missing =
        |interpreter: String| ProcessError::InterpreterMissing { program: found.clone(), interpreter };
    match interpreter {
        Interpreter::Path(path) if !path.exists() => Err(missing(path.display().to_string())),
        Interpreter::Path(_) => Ok(Resolved { program: found, prefix_args: Vec::new(), display }),
        Interpreter::OnPath { name, args } => {
            if search_path(&name, path_var).is_some() {
                return Ok(Resolved { program: found, prefix_args: Vec::new(), display });
            }
            // A desktop host's PATH is short. Version managers install the interpreter beside its
            // scripts, so it is started directly.
            let beside = [Some(found.clone()), found.canonicalize().ok()]
                .into_iter()
                .flatten()
                .filter_map(|script| Some(script.parent()?.join(&name)))
                .find(|candidate| is_executable(candidate))
                .ok_or_else(|| missing(format!("{} (searched PATH)", name.to_string_lossy())))?;
            let mut prefix_args = args;
            prefix_args.push(found.into_os_string());
            Ok(Resolved { program: beside, prefix_args, display })
        }
    }
}

fn find_unix(bin: &Path, context: &Context, path_var: &OsStr) -> Result<PathBuf, ProcessError> {
    let has_separator = bin.as_os_str().as_encoded_bytes().contains(&b'/');
    if !has_separator {
        return search_path(bin.as_os_str(), path_var).ok_or_else(|| ProcessError::ProgramNotFound {
            program: bin.display().to_string(),
            searched: format!("searched PATH: {}", path_var.to_string_lossy()),
        });
    }
    let path = if bin.is_absolute() { bin.to_path_buf() } else { context.cwd.join(bin) };
    if is_executable(&path) { Ok(path) } else { Err(not_startable(&path)) }
}

fn not_startable(path: &Path) -> ProcessError {
    let program = path.to_path_buf();
    if path.is_dir() {
        ProcessError::ProgramNotExecutable { program, reason: "it is a folder".into() }
    } else if path.exists() {
        ProcessError::ProgramNotExecutable { program, reason: "it has no execute permission".into() }
    } else {
        ProcessError::ProgramNotFound {
            program: program.display().to_string(),
            searched: "no such file".into(),
        }
    }
}

fn search_path(name: &OsStr, path_var: &OsStr) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    std::env::split_paths(path_var)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|candidate| is_executable(candidate))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(windows)]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// What the first line of a script asks for.
#[derive(Debug, PartialEq, Eq)]
enum Interpreter {
    /// A fixed path.
    Path(PathBuf),
    /// A name that `env` looks up, with arguments.
    OnPath { name: OsString, args: Vec<OsString> },
}

impl Interpreter {
    fn of(program: &Path) -> Option<Self> {
        let mut head = Vec::new();
        File::open(program).ok()?.take(512).read_to_end(&mut head).ok()?;
        Self::parse(&head)
    }

    fn parse(head: &[u8]) -> Option<Self> {
        let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        let text = String::from_utf8_lossy(line);
        let text = text.trim_matches([' ', '\t']);
        let mut words = text.split([' ', '\t']).filter(|word| !word.is_empty());
        let path = words.next()?;
        if Path::new(path).file_name() != Some(OsStr::new("env")) || !Path::new(path).exists() {
            return Some(Self::Path(PathBuf::from(path)));
        }
        let mut words = words.skip_while(|word| *word == "-S");
        let name = words.next()?;
        // Options or assignments of `env`: left to `env` itself.
        if name.starts_with('-') || name.contains('=') {
            return None;
        }
        Some(Self::OnPath { name: name.into(), args: words.map(OsString::from).collect() })
    }
}

/// The C library hands a file that the system does not know to the shell. No shell ever guesses here.
fn check_format(program: &Path) -> Result<(), ProcessError> {
    // ELF, Mach-O (both orders and both widths), universal Mach-O, and Windows programs, which Linux
    // under Windows starts.
    const KNOWN: [&[u8]; 8] = [
        b"#!",
        b"\x7FELF",
        b"MZ",
        b"\xFE\xED\xFA\xCE",
        b"\xFE\xED\xFA\xCF",
        b"\xCE\xFA\xED\xFE",
        b"\xCF\xFA\xED\xFE",
        b"\xCA\xFE\xBA\xBE",
    ];
    let mut head = Vec::new();
    // A program may be executable and still not readable: then the system decides.
    let readable = File::open(program).and_then(|file| file.take(4).read_to_end(&mut head));
    if readable.is_err() || KNOWN.iter().any(|magic| head.starts_with(magic)) {
        return Ok(());
    }
    Err(bad_format(program))
}

fn bad_format(program: &Path) -> ProcessError {
    ProcessError::ProgramNotExecutable {
        program: program.to_path_buf(),
        reason: "it is neither a program for this machine nor a script with a `#!` line".into(),
    }
}

/// What can be known before a start, and would otherwise show as a puzzling exit code.
pub(super) fn check_startable(program: &Program) -> Result<(), ProcessError> {
    if !program.program.is_absolute() {
        return Err(ProcessError::ProgramNotFound {
            program: program.program.display().to_string(),
            searched: "it is not an absolute path".into(),
        });
    }
    let ending = program.program.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    if cfg!(windows) && matches!(ending.as_deref(), Some("bat" | "cmd")) {
        return Err(ProcessError::UnsafeBatchShim {
            path: program.program.display().to_string(),
            reason: "only cmd.exe can run it".into(),
        });
    }
    if cfg!(unix) && is_executable(&program.program) {
        check_format(&program.program)?;
    }
    if cfg!(unix)
        && let Some(Interpreter::OnPath { name, .. }) = Interpreter::of(&program.program)
        && let Some(path_var) = program.env.get(OsStr::new("PATH"))
        && search_path(&name, path_var).is_none()
    {
        return Err(ProcessError::InterpreterMissing {
            program: program.program.clone(),
            interpreter: format!("{} (searched PATH)", name.to_string_lossy()),
        });
    }
    Ok(())
}

/// The system's error of a failed start, told by what is really there: "no such file" may mean the
/// program, its interpreter or the working folder.
pub(super) fn explain_spawn_error(program: &Program, source: io::Error) -> ProcessError {
    let path = program.program.clone();
    match source.kind() {
        io::ErrorKind::ArgumentListTooLong => ProcessError::ArgumentsTooLong,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if !program.cwd.is_dir() => {
            let reason = if program.cwd.exists() { "it is not a folder" } else { "it does not exist" };
            ProcessError::WorkingFolder { cwd: program.cwd.clone(), reason: reason.into() }
        }
        io::ErrorKind::NotFound if path.exists() => {
            let interpreter = match Interpreter::of(&path) {
                Some(Interpreter::Path(interpreter)) => interpreter.display().to_string(),
                _ => "its loader".into(),
            };
            ProcessError::InterpreterMissing { program: path, interpreter }
        }
        io::ErrorKind::NotFound => not_startable(&path),
        io::ErrorKind::PermissionDenied if is_executable(&path) => {
            // The program itself is fine. A script's interpreter, or the folder, is not.
            match Interpreter::of(&path) {
                Some(Interpreter::Path(interpreter)) if !is_executable(&interpreter) => {
                    let reason =
                        format!("its interpreter {} has no execute permission", interpreter.display());
                    ProcessError::ProgramNotExecutable { program: path, reason }
                }
                _ => ProcessError::WorkingFolder { cwd: program.cwd.clone(), reason: source.to_string() },
            }
        }
        io::ErrorKind::PermissionDenied => not_startable(&path),
        _ if is_bad_format(&source) => bad_format(&path),
        _ => ProcessError::SpawnFailed { program: path, source },
    }
}

#[cfg(unix)]
fn is_bad_format(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOEXEC)
}

#[cfg(windows)]
fn is_bad_format(error: &io::Error) -> bool {
    const ERROR_BAD_EXE_FORMAT: i32 = 193;
    error.raw_os_error() == Some(ERROR_BAD_EXE_FORMAT)
}

/// How a command is found on Windows.
type Shim = fn(
    &str,
    &windows_shim::Search<'_>,
    &dyn windows_shim::Files,
) -> Result<windows_shim::Target, ProcessError>;

fn resolve_windows(bin: &Path, context: &Context, shim: Shim) -> Result<Resolved, ProcessError> {
    let text = |value: &OsStr| value.to_string_lossy().into_owned();
    let bin = text(bin.as_os_str());
    let cwd = text(context.cwd.as_os_str());
    let path = context.var("PATH").map(text).unwrap_or_default();
    let pathext = context.text_var("PATHEXT").unwrap_or(windows_shim::DEFAULT_PATHEXT);
    let search = windows_shim::Search { cwd: &cwd, path: &path, pathext };
    let target = shim(&bin, &search, &Disk)?;
    let display = target.prefix_args.last().cloned().unwrap_or_else(|| target.program.clone());
    Ok(Resolved {
        program: PathBuf::from(target.program),
        prefix_args: target.prefix_args.into_iter().map(OsString::from).collect(),
        display,
    })
}

/// The real file system.
struct Disk;

impl windows_shim::Files for Disk {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(windows_shim::MAX_SHIM).ok()? + 1;
        File::open(path).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn is_file(&self, path: &str) -> bool {
        Path::new(path).is_file()
    }

    fn canonical(&self, path: &str) -> Option<String> {
        let real = Path::new(path).canonicalize().ok()?;
        Some(real.to_str()?.trim_start_matches(r"\\?\").to_owned())
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::context::Clock;
    use crate::error::Coded;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn context(cwd: &Path, path: &str) -> Context {
        Context {
            env: [(OsString::from("PATH"), OsString::from(path))].into(),
            home: None,
            cwd: cwd.to_path_buf(),
            exe: PathBuf::from("/x"),
            clock: Clock::System,
        }
    }

    fn file(path: &Path, text: &str, mode: u32) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_path_buf()
    }

    fn code<T: std::fmt::Debug>(result: Result<T, ProcessError>) -> &'static str {
        result.unwrap_err().doc().code
    }

    #[test]
    fn a_bare_name_is_searched_and_relative_entries_are_not() {
        let world = tempfile::tempdir().unwrap();
        let root = world.path().canonicalize().unwrap();
        file(&root.join("first/tool"), "not executable", 0o644);
        let wanted = file(&root.join("second/tool"), "#!/bin/sh\n", 0o755);
        file(&root.join("tool"), "#!/bin/sh\n", 0o755);
        let path = format!(".::{0}/first:{0}/second", root.display());
        let found = resolve(Path::new("tool"), &context(&root, &path)).unwrap();
        assert_eq!(found.program, wanted);
        assert!(found.prefix_args.is_empty());
        assert_eq!(code(resolve(Path::new("none"), &context(&root, &path))), "PROGRAM_NOT_FOUND");
        assert_eq!(code(resolve(Path::new("tool"), &context(&root, ""))), "PROGRAM_NOT_FOUND");
        assert_eq!(code(resolve(Path::new(""), &context(&root, &path))), "PROGRAM_NOT_FOUND");
    }

    #[test]
    fn paths_are_taken_as_given_and_relative_ones_made_absolute() {
        let world = tempfile::tempdir().unwrap();
        let root = world.path();
        let tool = file(&root.join("bin/tool"), "#!/bin/sh\n", 0o755);
        let context = context(root, "/usr/bin:/bin");
        assert_eq!(resolve(&tool, &context).unwrap().program, tool);
        assert_eq!(resolve(Path::new("./bin/tool"), &context).unwrap().program, root.join("./bin/tool"));
        let plain = file(&root.join("plain"), "x", 0o644);
        assert_eq!(code(resolve(&plain, &context)), "PROGRAM_NOT_EXECUTABLE");
        assert_eq!(code(resolve(&root.join("bin"), &context)), "PROGRAM_NOT_EXECUTABLE");
        assert_eq!(code(resolve(&root.join("gone"), &context)), "PROGRAM_NOT_FOUND");
    }

    #[test]
    fn an_interpreter_beside_the_script_is_used_when_path_has_none() {
        let world = tempfile::tempdir().unwrap();
        let root = world.path().canonicalize().unwrap();
        let script = file(&root.join("bin/cli"), "#!/usr/bin/env -S ab-node --flag\n", 0o755);
        let context = context(&root, "/nowhere");
        assert_eq!(code(resolve(&script, &context)), "INTERPRETER_MISSING");
        let node = file(&root.join("bin/ab-node"), "#!/bin/sh\n", 0o755);
        let found = resolve(&script, &context).unwrap();
        assert_eq!(found.program, node);
        assert_eq!(found.prefix_args, [OsString::from("--flag"), script.clone().into_os_string()]);
        assert_eq!(found.display, script.display().to_string());
    }

    #[test]
    fn a_file_of_no_known_format_is_not_given_to_a_shell() {
        let world = tempfile::tempdir().unwrap();
        let file = file(&world.path().join("cli"), "echo hello\n", 0o755);
        assert_eq!(code(resolve(&file, &context(world.path(), "/bin"))), "PROGRAM_NOT_EXECUTABLE");
    }

    #[test]
    fn a_fixed_interpreter_that_is_missing_is_named() {
        let world = tempfile::tempdir().unwrap();
        let script = file(&world.path().join("cli"), "#!/no/such/interpreter -x\n", 0o755);
        let error = resolve(&script, &context(world.path(), "/bin")).unwrap_err();
        assert_eq!(error.doc().code, "INTERPRETER_MISSING");
        assert!(error.to_string().contains("/no/such/interpreter"), "{error}");
    }
}
