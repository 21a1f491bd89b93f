//! The second opinion: which of the machine's processes run from an installation, and which are MCP hosts.
//!
//! The kernel's locks say exactly who takes part in the protocol. The process table finds who does not: a program
//! that was started past it, or that cannot be looked at. Names decide nothing here; the file that a process runs
//! does.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Layout;
use super::layout::program_name;
use crate::platform::{self, FileId, ProcessIdentity, RunningProgram};

/// How long one scan waits in all for processes that show nothing of themselves.
const SETTLE: Duration = Duration::from_millis(100);

/// What a process has to do with an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It runs a release, or something else below ROOT.
    Release,
    /// It runs the launcher, which serves nobody by itself: it waits at the gate, has passed it and holds the
    /// lease, or does an operator's command.
    Launcher,
}

/// A look at all processes but this one.
#[derive(Debug)]
pub struct Scan {
    /// Those that run from ROOT.
    pub users: Vec<(RunningProgram, Use)>,
    /// Those of this user that cannot be looked at.
    pub unreadable: Vec<ProcessIdentity>,
    /// How many of other users cannot be looked at.
    pub unreadable_of_others: usize,
    /// How many live in other containers.
    pub elsewhere: usize,
    /// MCP hosts.
    pub hosts: Vec<Host>,
}

/// A running MCP host. It may rewrite its config files at any time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Its process.
    pub pid: u32,
    /// Which host.
    pub client: &'static str,
}

/// The files of an installation that processes may run.
#[derive(Debug)]
pub struct Programs {
    /// ROOT, as written and with its links resolved.
    roots: Vec<PathBuf>,
    launchers: Vec<FileId>,
    releases: Vec<FileId>,
}

impl Programs {
    /// Of this installation.
    pub fn of(layout: &Layout) -> Self {
        let mut roots = vec![layout.root().to_path_buf()];
        roots.extend(crate::config::canonical(layout.root()).ok().filter(|real| real != layout.root()));
        let entries = std::fs::read_dir(layout.releases()).into_iter().flatten().flatten();
        let releases =
            entries.filter_map(|entry| platform::file_id(&entry.path().join("server").join(program_name())));
        Self {
            roots,
            launchers: platform::file_id(&layout.launcher()).into_iter().collect(),
            releases: releases.collect(),
        }
    }

    /// What a process has to do with them.
    fn used_by(&self, program: &RunningProgram) -> Option<Use> {
        let by_exe = program.exe.as_deref().filter(|_| !program.is_elsewhere).and_then(|exe| self.at(exe));
        if by_exe.is_some() {
            return by_exe;
        }
        if let Some(file) = program.file {
            if self.launchers.contains(&file) {
                return Some(Use::Launcher);
            }
            if self.releases.contains(&file) {
                return Some(Use::Release);
            }
        }
        // A script runs in its interpreter; a program whose file may not be read still has its own word.
        let words = program.arguments.iter().take(2).map(Path::new);
        let named = words
            .filter(|word| word.is_absolute() && word.file_name().is_some_and(is_program_name))
            .find_map(|word| self.at(word));
        match named {
            // An interpreter that runs the launcher is no launcher of ours.
            Some(_) if program.exe.is_some() => Some(Use::Release),
            named => named,
        }
    }

    fn at(&self, path: &Path) -> Option<Use> {
        let root = self.roots.iter().find(|root| is_below(path, root))?;
        let inside: Vec<Component<'_>> = path.components().skip(root.components().count()).collect();
        let is_launcher = matches!(inside.as_slice(), [folder, name]
            if same(folder.as_os_str(), OsStr::new("bin")) && is_program_name(name.as_os_str()));
        Some(if is_launcher { Use::Launcher } else { Use::Release })
    }
}

fn is_program_name(name: &OsStr) -> bool {
    same(name, OsStr::new(&program_name()))
}

/// Whether a path lies below another one, part by part: `ROOT-old` is not below `ROOT`.
fn is_below(path: &Path, folder: &Path) -> bool {
    let mut parts = path.components();
    folder.components().all(|part| parts.next().is_some_and(|own| same(own.as_os_str(), part.as_os_str())))
        && parts.next().is_some()
}

fn same(a: &OsStr, b: &OsStr) -> bool {
    if cfg!(windows) { a.to_string_lossy().eq_ignore_ascii_case(&b.to_string_lossy()) } else { a == b }
}

/// Looks at every process but this very one, which is known by id and start time.
pub fn scan(layout: &Layout) -> Scan {
    let programs = Programs::of(layout);
    let own = ProcessIdentity::current();
    let mut scan = Scan {
        users: Vec::new(),
        unreadable: Vec::new(),
        unreadable_of_others: 0,
        elsewhere: 0,
        hosts: Vec::new(),
    };
    let mut patience = None;
    for program in platform::running_programs() {
        if program.process == own {
            continue;
        }
        let Some(program) = settled(program, &mut patience) else { continue };
        scan.elsewhere += usize::from(program.is_elsewhere);
        if let Some(found) = programs.used_by(&program) {
            scan.users.push((program, found));
        } else if is_unreadable(&program) {
            // Whose it is cannot always be read either; then it counts as ours.
            if program.is_ours == Some(false) {
                scan.unreadable_of_others += 1;
            } else {
                scan.unreadable.push(program.process);
            }
        } else if let Some(client) = host_of(program.exe.as_deref(), &program.arguments) {
            scan.hosts.push(Host { pid: program.process.pid, client });
        }
    }
    scan.users.sort_by_key(|(program, _)| program.process.pid);
    scan.unreadable.sort_by_key(|process| process.pid);
    scan.hosts.sort_by_key(|host| host.pid);
    scan
}

/// A process that is about to end, or to become another program, shows nothing of itself for a moment. It is looked at
/// again until it does or has ended; `patience` is the end of the time that one scan spends on this.
fn settled(mut program: RunningProgram, patience: &mut Option<Instant>) -> Option<RunningProgram> {
    while is_unreadable(&program) && program.is_ours != Some(false) {
        if Instant::now() >= *patience.get_or_insert_with(|| Instant::now() + SETTLE) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        program = platform::running_program(program.process.pid)?;
    }
    Some(program)
}

/// Neither its file nor its own word for it can be read. Many programs hide only their file (browsers and
/// password agents do); those say by their arguments what they are.
fn is_unreadable(program: &RunningProgram) -> bool {
    program.exe.is_none() && program.arguments.first().is_none_or(|name| name.is_empty())
}

/// Hosts by the name of their program, of any kind of installation.
const HOSTS: &[(&str, &[&str])] = &[
    ("Codex", &["codex"]),
    ("Claude Code", &["claude"]),
    ("Claude Desktop", &["claude-desktop"]),
    ("Gemini CLI", &["gemini"]),
];
/// Hosts that are scripts of an interpreter, by the folder of their package.
const SCRIPTS: &[(&str, &str)] = &[
    ("Codex", "@openai/codex"),
    ("Claude Code", "@anthropic-ai/claude-code"),
    ("Gemini CLI", "@google/gemini-cli"),
];

/// Which MCP host a program is. Linux keeps only 15 bytes of a process's name, so that is not looked at.
fn host_of(exe: Option<&Path>, arguments: &[std::ffi::OsString]) -> Option<&'static str> {
    let text = |path: &Path| path.to_string_lossy().replace('\\', "/");
    let exe_text = exe.map(text).unwrap_or_default();
    if ["/Claude.app/Contents/", "/AnthropicClaude/"].iter().any(|folder| exe_text.contains(folder)) {
        return Some("Claude Desktop");
    }
    if exe_text.contains("/Codex.app/Contents/") {
        return Some("Codex");
    }
    let name_of = |path: &str| -> String {
        let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        name.strip_suffix(".exe").unwrap_or(&name).to_owned()
    };
    let words: Vec<String> = arguments.iter().take(4).map(|word| text(Path::new(word))).collect();
    let names = [Some(name_of(&exe_text)), words.first().map(|word| name_of(word))];
    for (client, known) in HOSTS {
        if names.iter().flatten().any(|name| known.contains(&name.as_str())) {
            return Some(client);
        }
    }
    let is_interpreter =
        names.iter().flatten().any(|name| ["node", "bun", "deno", "nodejs"].contains(&name.as_str()));
    if !is_interpreter {
        return None;
    }
    let script = words.iter().skip(1).find(|word| !word.starts_with('-'))?;
    SCRIPTS
        .iter()
        .find(|(_, package)| script.contains(&format!("/{package}/")))
        .map(|(client, _)| *client)
        .or_else(|| {
            let name = name_of(script);
            HOSTS.iter().find(|(_, known)| known.contains(&name.as_str())).map(|(client, _)| *client)
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::ffi::OsString;

    fn program(exe: Option<&str>, arguments: &[&str]) -> RunningProgram {
        RunningProgram {
            process: ProcessIdentity { pid: 1, started: 1 },
            parent: 0,
            exe: exe.map(PathBuf::from),
            file: None,
            arguments: arguments.iter().map(OsString::from).collect(),
            is_ours: Some(true),
            is_elsewhere: false,
        }
    }

    #[cfg(not(windows))]
    fn programs(root: &str) -> Programs {
        Programs { roots: vec![root.into()], launchers: vec![(1, 10)], releases: vec![(1, 20)] }
    }

    #[cfg(not(windows))]
    #[test]
    fn the_file_decides_by_parts_of_its_path() {
        let installed = programs("/opt/bridge");
        let used = |exe: &str| installed.used_by(&program(Some(exe), &["renamed"]));
        assert_eq!(used("/opt/bridge/bin/agent-bridge"), Some(Use::Launcher));
        assert_eq!(used("/opt/bridge/releases/1.0.0+abcdef0/server/agent-bridge"), Some(Use::Release));
        assert_eq!(used("/opt/bridge/backups/x"), Some(Use::Release));
        assert_eq!(used("/opt/bridge-old/bin/agent-bridge"), None, "a longer name is another folder");
        assert_eq!(used("/opt/bridge"), None);
        assert_eq!(used("/usr/bin/vim"), None);
    }

    #[cfg(not(windows))]
    #[test]
    fn a_file_is_known_by_its_number_under_any_path_and_a_container_path_means_nothing() {
        let installed = programs("/opt/bridge");
        let mut foreign = program(Some("/opt/bridge/bin/agent-bridge"), &[]);
        foreign.is_elsewhere = true;
        assert_eq!(installed.used_by(&foreign), None, "the same path of another container");
        foreign.file = Some((1, 20));
        assert_eq!(installed.used_by(&foreign), Some(Use::Release));
        foreign.file = Some((1, 10));
        assert_eq!(installed.used_by(&foreign), Some(Use::Launcher));
    }

    #[cfg(not(windows))]
    #[test]
    fn a_script_counts_by_its_path_and_an_editor_of_our_files_does_not() {
        let installed = programs("/opt/bridge");
        let script = "/opt/bridge/releases/1.0.0+abcdef0/server/agent-bridge";
        assert_eq!(installed.used_by(&program(Some("/bin/sh"), &["/bin/sh", script])), Some(Use::Release));
        assert_eq!(installed.used_by(&program(None, &[script])), Some(Use::Release));
        assert_eq!(installed.used_by(&program(Some("/bin/vi"), &["vi", "/opt/bridge/config.json"])), None);
        assert_eq!(installed.used_by(&program(Some("/bin/tail"), &["tail", "-f", script])), None);
    }

    #[test]
    fn what_says_nothing_of_itself_is_unreadable() {
        assert!(is_unreadable(&program(None, &[])));
        assert!(is_unreadable(&program(None, &[""])));
        assert!(!is_unreadable(&program(None, &["(sd-pam)"])));
        assert!(!is_unreadable(&program(Some("/bin/sleep"), &[])));
    }

    #[test]
    fn hosts_are_known_however_they_were_installed() {
        let host = |exe: &str, arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            host_of(Some(Path::new(exe)), &arguments)
        };
        assert_eq!(host("/usr/bin/codex", &["codex"]), Some("Codex"));
        assert_eq!(host("/home/a/.local/share/claude/versions/2.1.0", &["claude"]), Some("Claude Code"));
        let script = "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js";
        assert_eq!(host("/usr/bin/node", &["node", "--no-warnings", script]), Some("Claude Code"));
        assert_eq!(host("/usr/bin/node", &["node", "/usr/local/bin/gemini"]), Some("Gemini CLI"));
        assert_eq!(
            host(r"C:\Users\a\AppData\Local\AnthropicClaude\app\Claude.exe", &[]),
            Some("Claude Desktop")
        );
        assert_eq!(host("/Applications/Claude.app/Contents/MacOS/Claude", &[]), Some("Claude Desktop"));
        assert_eq!(host("/usr/bin/node", &["node", "server.js", script]), None, "an argument is no script");
        assert_eq!(host("/usr/bin/grep", &["grep", "codex"]), None);
        assert_eq!(host("/usr/bin/codex-report", &["codex-report"]), None);
    }
}
