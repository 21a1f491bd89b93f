//! What an argument list says, whichever CLI it was made for.

use std::ffi::OsString;
use std::path::PathBuf;

use super::script::{Dialect, Format, Group};
use super::{SCRIPT_VARIABLE, os};
use crate::agents::verdicts::is_uuid;
use crate::policy::Sandbox;

/// A start of the mock agent.
#[derive(Debug, Default)]
pub(super) struct Invocation {
    /// Script file.
    pub script: Option<PathBuf>,
    /// Script text, for children.
    pub inline: Option<String>,
    /// Process group to move to, for children.
    pub group: Group,
    /// The imitated CLI's own arguments.
    pub argv: Vec<String>,
}

impl Invocation {
    /// Splits the leading options of this program from the arguments of the CLI it stands for.
    pub fn parse(args: Vec<OsString>) -> Result<Self, String> {
        let mut words = args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).peekable();
        words.next_if(|word| word == super::super::mock::SUBCOMMAND);
        let mut invocation = Self::default();
        while let Some(word) = words.peek() {
            let option = match word.as_str() {
                "--script" | "--inline" | "--group" => word.clone(),
                "--" => {
                    words.next();
                    break;
                }
                _ => break,
            };
            words.next();
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--script" => invocation.script = Some(value.into()),
                "--inline" => invocation.inline = Some(value),
                _ => {
                    invocation.group = match value.as_str() {
                        "own" => Group::Own,
                        "session" => Group::Session,
                        _ => Group::Same,
                    }
                }
            }
        }
        invocation.argv = words.collect();
        if invocation.script.is_none() && invocation.inline.is_none() {
            invocation.script = std::env::var_os(SCRIPT_VARIABLE).map(PathBuf::from);
        }
        Ok(invocation)
    }

    /// Moves to the process group that was asked for.
    pub fn leave_group(&self) {
        match self.group {
            Group::Same => {}
            Group::Own => os::own_group(),
            Group::Session => os::own_session(),
        }
    }

    /// The value of the first of these options, as `--name value` or `--name=value`.
    fn value(&self, names: &[&str]) -> Option<&str> {
        self.argv.iter().enumerate().find_map(|(at, arg)| {
            if names.contains(&arg.as_str()) {
                return self.argv.get(at + 1).map(String::as_str);
            }
            let (name, value) = arg.split_once('=')?;
            (name.starts_with("--") && names.contains(&name)).then_some(value)
        })
    }

    /// The granted mode; the least if nothing is said, as Codex does.
    pub fn sandbox(&self) -> Sandbox {
        match self.value(&["--sandbox", "-s", "--permission-mode"]) {
            Some("workspace-write" | "acceptEdits") => Sandbox::WorkspaceWrite,
            Some("full-access" | "danger-full-access" | "bypassPermissions") => Sandbox::FullAccess,
            _ => Sandbox::ReadOnly,
        }
    }

    /// The named model.
    pub fn model(&self) -> Option<&str> {
        self.value(&["--model", "-m"])
    }

    /// The address of the run's endpoint.
    pub fn endpoint(&self) -> Option<&str> {
        self.value(&["--endpoint"])
    }

    /// The session to resume: `--resume ID`, or the first UUID after the word `resume`.
    pub fn resume(&self) -> Option<&str> {
        self.value(&["--resume", "-r"]).or_else(|| {
            let at = self.argv.iter().position(|arg| arg == "resume")?;
            self.argv[at..].iter().map(String::as_str).find(|arg| is_uuid(arg))
        })
    }

    /// Which CLI's output is expected.
    pub fn dialect(&self) -> Dialect {
        if self.value(&["--output-format"]).is_some() { Dialect::Claude } else { Dialect::Codex }
    }

    /// The expected form of Claude's output.
    pub fn format(&self) -> Format {
        match self.value(&["--output-format"]) {
            Some("json") => Format::Object,
            Some("stream-json") => Format::Lines,
            _ => Format::Text,
        }
    }

    /// Whether only the version is asked for.
    pub fn asks_version(&self) -> bool {
        self.argv.iter().any(|arg| matches!(arg.as_str(), "--version" | "-V"))
    }

    /// Whether this is a login probe; the word tells whose.
    pub fn asks_login(&self) -> Option<&str> {
        match self.argv.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [word @ ("login" | "auth"), "status", ..] => Some(word),
            _ => None,
        }
    }
}
