//! Running git so that nothing in a repository decides what else is run, and nothing of the user's is written.
//!
//! Two ways. *Asking* is done in the real repository and is limited to three commands that open neither index nor work
//! tree: where am I, what is set, where do the refs point. Everything else *works* in a repository of our own (see
//! [`super::scratch`]) that borrows the real one's objects and has a config that we wrote, so that no filter, hook,
//! monitor, alias, or diff driver that the real one names is known there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::watch::{Fault, Watch};
use crate::agents::redaction;
use crate::context::Context;
use crate::process::{self, Program, Stopped, TURN_VAR};

/// Between the polite request to end and the kill.
const GRACE: Duration = Duration::from_secs(1);
/// Most output of a command whose output is kept as a whole.
const MAX_ANSWER: u64 = 32 << 20;

/// Options of each diff: nothing is asked or executed, and each id is whole.
pub(super) const PLAIN_DIFF: [&str; 6] = [
    "--full-index",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--submodule=short",
    "--ignore-submodules=none",
];

/// Git on this machine.
#[derive(Clone, Debug)]
pub(super) struct Git {
    program: PathBuf,
    prefix: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    /// Exists, is empty, and stays so.
    nothing: PathBuf,
}

/// What a command is given.
#[derive(Default)]
pub(super) struct Input {
    /// Standard input.
    pub(super) stdin: Vec<u8>,
    /// Exit codes that are no failure, beside 0.
    pub(super) also_fine: &'static [i64],
}

impl Git {
    /// Finds git. `mark` is what its processes carry, so that they can be found if this one dies. `nothing` is an empty
    /// folder.
    pub(super) fn find(context: &Context, mark: Option<&str>, nothing: &Path) -> Result<Self, Fault> {
        let found = process::resolve(Path::new("git"), context)
            .map_err(|error| Fault::Refused(format!("git cannot be started: {error}")))?;
        let mut set: BTreeMap<String, String> = [
            // No lock that is not needed; no question; no network, also not for objects that a partial clone lacks.
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", "none"),
            // Messages are English.
            ("LC_ALL", "C"),
            ("LANGUAGE", "C"),
            ("GIT_ATTR_NOSYSTEM", "1"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        if let Some(mark) = mark {
            set.insert(TURN_VAR.into(), mark.into());
        }
        // Which files the user's own settings are in.
        let config = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"].map(String::from);
        let env = process::worker_environment(context, &config, &set);
        Ok(Self { program: found.program, prefix: found.prefix_args, env, nothing: nothing.to_path_buf() })
    }

    /// A question to the real repository of a folder. Only commands that open neither index nor work tree.
    pub(super) fn ask(
        &self,
        folder: &Path,
        args: &[&str],
        input: Input,
        watch: &Watch,
    ) -> Result<Vec<u8>, Fault> {
        let mut all: Vec<OsString> = vec!["--no-pager".into()];
        // Should one of them ever look at files or call a hook, it finds none.
        let mut hooks = OsString::from("core.hooksPath=");
        hooks.push(&self.nothing);
        for setting in ["core.fsmonitor=false".into(), hooks] {
            all.extend([OsString::from("-c"), setting]);
        }
        all.extend(args.iter().map(OsString::from));
        let mut answer = Vec::new();
        self.run(folder, &self.env, all, input, MAX_ANSWER, &mut answer, watch)?;
        Ok(answer)
    }

    /// A command in a repository of our own.
    pub(super) fn work(
        &self,
        place: &Place<'_>,
        args: &[&str],
        input: Input,
        max_bytes: u64,
        sink: &mut dyn Write,
        watch: &Watch,
    ) -> Result<Done, Fault> {
        let mut env = self.env.clone();
        let mut set = |name: &str, value: &Path| env.insert(name.into(), value.as_os_str().to_owned());
        set("GIT_DIR", place.git_dir);
        set("GIT_WORK_TREE", place.work_tree);
        set("GIT_INDEX_FILE", place.index);
        // Git before 2.32 does not know how to leave the user's config alone: it finds no home then.
        set("GIT_CONFIG_GLOBAL", &self.nothing.join("config"));
        set("HOME", &self.nothing);
        set("XDG_CONFIG_HOME", &self.nothing);
        env.insert("GIT_CONFIG_NOSYSTEM".into(), "1".into());
        if let Some(objects) = place.objects {
            env.insert("GIT_ALTERNATE_OBJECT_DIRECTORIES".into(), quoted(objects)?);
        }
        let all = std::iter::once("--no-pager").chain(args.iter().copied()).map(OsString::from).collect();
        self.run(place.work_tree, &env, all, input, max_bytes, sink, watch)
    }

    #[allow(clippy::too_many_arguments, reason = "each is one thing that a run is")]
    fn run(
        &self,
        folder: &Path,
        env: &BTreeMap<OsString, OsString>,
        args: Vec<OsString>,
        input: Input,
        max_bytes: u64,
        sink: &mut dyn Write,
        watch: &Watch,
    ) -> Result<Done, Fault> {
        let what =
            args.iter().map(|arg| arg.to_string_lossy()).find(|arg| is_command(arg)).unwrap_or_default();
        let what = what.into_owned();
        watch.check(&format!("`git {what}`"))?;
        let program = Program {
            program: self.program.clone(),
            args: self.prefix.iter().cloned().chain(args).collect(),
            cwd: folder.to_path_buf(),
            env: env.clone(),
            stdin: input.stdin,
        };
        let mut reason = || watch.asked();
        let report = process::capture_into(&program, watch.left(), GRACE, max_bytes, sink, &mut reason)
            .map_err(|error| Fault::Refused(format!("git cannot be started: {error}")))?;
        match &report.stopped {
            None => {}
            Some(Stopped::Cancelled(reason)) => return Err(Fault::Cut(reason.clone())),
            Some(Stopped::OutputTooLarge(_)) => return Ok(Done { cut: true, words: String::new() }),
            Some(_) => return Err(watch.out_of_time(&format!("`git {what}`"))),
        }
        match report.exit_code {
            Some(0) => Ok(Done { cut: false, words: report.stderr_tail }),
            Some(code) if input.also_fine.contains(&code) => {
                Ok(Done { cut: false, words: report.stderr_tail })
            }
            code => {
                let words = redaction::one_line(&report.stderr_tail, 300);
                let end = code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
                let words = if words.is_empty() { end } else { words };
                Err(Fault::Git { what, words })
            }
        }
    }
}

/// The word of a command line that says what git does: not an option, and not a setting of one.
fn is_command(arg: &str) -> bool {
    !arg.starts_with('-') && !arg.contains('=')
}

/// How a command ended that did not fail.
#[derive(Debug)]
pub(super) struct Done {
    /// It was ended because it had printed as much as was wanted.
    pub(super) cut: bool,
    /// What it said on standard error.
    pub(super) words: String,
}

/// Where a command works.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// A repository of our own.
    pub(super) git_dir: &'a Path,
    /// Files.
    pub(super) work_tree: &'a Path,
    /// An index of our own.
    pub(super) index: &'a Path,
    /// The real objects, for commands that read some. A command that writes is not shown them: git would set the time of
    /// one that it finds there anew.
    pub(super) objects: Option<&'a Path>,
}

/// An entry of a list of paths, quoted as C strings are, so that any path can be one.
pub(super) fn quoted(path: &Path) -> Result<OsString, Fault> {
    let mut text = b"\"".to_vec();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'\\' if cfg!(windows) => text.push(b'/'),
            b'"' | b'\\' => text.extend([b'\\', *byte]),
            0..0x20 | 0x7f => text.extend(format!("\\{byte:03o}").bytes()),
            other => text.push(*other),
        }
    }
    text.push(b'"');
    let path = crate::platform::path_from_bytes(&text)
        .ok_or_else(|| Fault::Refused("the repository's path is not Unicode".into()))?;
    Ok(path.into_os_string())
}

#[cfg(all(test, not(windows)))]
mod tests {
    use super::*;

    #[test]
    fn any_path_can_stand_in_a_list() {
        let quoted = quoted(Path::new("/a \"b\"\\\n:é")).unwrap_or_default();
        assert_eq!(quoted, "\"/a \\\"b\\\"\\\\\\012:é\"");
    }
}
