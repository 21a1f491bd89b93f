//! Why a program could not be started.

use std::io;
use std::path::PathBuf;

use crate::error::{CodeDoc, Coded};

/// Why a program could not be started. A program that started and failed is not an error here: see
/// [`super::Report`].
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no such program.
    #[error("{program} was not found ({searched})")]
    ProgramNotFound {
        /// What was looked for.
        program: String,
        /// Where.
        searched: String,
    },
    /// It is there, but the system will not execute it.
    #[error("{program} cannot be executed: {reason}", program = .program.display())]
    ProgramNotExecutable {
        /// The file.
        program: PathBuf,
        /// Why.
        reason: String,
    },
    /// It is a script (or needs a loader), and what should run it is missing.
    #[error("{program} needs {interpreter}, which was not found", program = .program.display())]
    InterpreterMissing {
        /// The script.
        program: PathBuf,
        /// What should run it.
        interpreter: String,
    },
    /// One argument, variable or the whole command line is longer than the system takes.
    #[error("{what} is {length} long; this system takes at most {limit}")]
    ArgumentTooLong {
        /// Which one, without its content.
        what: String,
        /// Its length.
        length: usize,
        /// The limit, in the same unit.
        limit: usize,
    },
    /// The system itself said that arguments and environment are too long.
    #[error("arguments and environment together are longer than this system takes")]
    ArgumentsTooLong,
    /// A NUL byte cannot be passed to a program.
    #[error("{what} holds a NUL character, which no program can be given")]
    ArgumentHasNul {
        /// Which one, without its content.
        what: String,
    },
    /// The working folder is missing or may not be entered.
    #[error("the working folder {cwd} cannot be entered: {reason}", cwd = .cwd.display())]
    WorkingFolder {
        /// The folder.
        cwd: PathBuf,
        /// Why.
        reason: String,
    },
    /// A Windows batch file: only cmd.exe could run it, and cmd.exe cannot be given arguments safely.
    #[error("{path} cannot be started safely: {reason}")]
    UnsafeBatchShim {
        /// The file.
        path: String,
        /// What about it is not the exact form that package managers write.
        reason: String,
    },
    /// Anything else the system said.
    #[error("{program} could not be started: {source}", program = .program.display())]
    SpawnFailed {
        /// The program.
        program: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

crate::codes! {
    PROGRAM_NOT_FOUND { exit: Refused, retryable: false,
        cause: "The program is not installed, or not on the PATH of the program that started this one (desktop hosts often have a short PATH).",
        remedy: "Install it, or set the agent's `bin` to its absolute path." }
    PROGRAM_NOT_EXECUTABLE { exit: Refused, retryable: false,
        cause: "The file exists, but the system will not execute it: no execute permission, another machine's format, or a script without a `#!` line.",
        remedy: "Run it by hand to see the reason, reinstall it, or set the agent's `bin` to the right file." }
    INTERPRETER_MISSING { exit: Refused, retryable: false,
        cause: "The program is a script, and the interpreter named in its first line (often node) is missing or not on PATH.",
        remedy: "Install the interpreter, or add its folder to the PATH that the host gives this server." }
    ARGUMENT_TOO_LONG { exit: Refused, retryable: false,
        cause: "A single argument or the whole command line is longer than the operating system accepts. Prompts travel on standard input and are not meant.",
        remedy: "Shorten the agent's `extraArgs` or `extraEnv`." }
    ARGUMENT_HAS_NUL { exit: Refused, retryable: false,
        cause: "An argument, variable or path holds a NUL character.",
        remedy: "Remove it from the request or the config." }
    WORKING_FOLDER_UNUSABLE { exit: Refused, retryable: false,
        cause: "The working folder was removed, is not a folder, or may not be entered by this user.",
        remedy: "Create it again or name another folder." }
    UNSAFE_WINDOWS_BATCH_SHIM { exit: Refused, retryable: false,
        cause: "On Windows only cmd.exe can run a batch file, and it changes arguments on the way. Only the exact wrappers that npm and pnpm write are read, and what they start is started directly.",
        remedy: "Reinstall the CLI with npm or pnpm, or set the agent's `bin` to its .exe file." }
    SPAWN_FAILED { exit: Unexpected, retryable: true,
        cause: "The operating system failed to start a program, for instance because a process limit is reached.",
        remedy: "Read the message for the system's reason, and try again." }
}

impl Coded for ProcessError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::ProgramNotFound { .. } => &PROGRAM_NOT_FOUND,
            Self::ProgramNotExecutable { .. } => &PROGRAM_NOT_EXECUTABLE,
            Self::InterpreterMissing { .. } => &INTERPRETER_MISSING,
            Self::ArgumentTooLong { .. } | Self::ArgumentsTooLong => &ARGUMENT_TOO_LONG,
            Self::ArgumentHasNul { .. } => &ARGUMENT_HAS_NUL,
            Self::WorkingFolder { .. } => &WORKING_FOLDER_UNUSABLE,
            Self::UnsafeBatchShim { .. } => &UNSAFE_WINDOWS_BATCH_SHIM,
            Self::SpawnFailed { .. } => &SPAWN_FAILED,
        }
    }
}
