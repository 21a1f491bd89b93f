//! A program's system calls: recorded once, then one of them made to fail or to be the program's last.
//!
//! `strace` counts the calls of each name for itself, so a point is a name and a number. For an error it is told to
//! stop the program only at calls of that name, which is faster, but then it must follow threads and children, and
//! each of those is counted from one; where a child could be hit in place of the program itself, the program alone is
//! traced. A kill is not delivered that way (strace 6.1), so there too the program alone is traced.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::live::{Ended, Live};

/// A call of the program's main thread.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// Which of that name it is, from 1.
    pub number: usize,
    /// As strace shows it.
    pub line: String,
}

/// What a program did.
#[derive(Debug)]
pub struct Recording {
    /// The calls from the first one on that has to do with the installation. What is before that is the dynamic
    /// loader and the runtime's own start, at which nothing can have happened yet.
    pub calls: Vec<Call>,
    /// How many calls were before.
    pub start: usize,
    /// Most calls of a name that any other thread or child made.
    others: BTreeMap<String, usize>,
}

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The program is killed before the call is made.
    Kill,
    /// The call fails once.
    Once(&'static str),
    /// The call fails, and every later one of that name.
    FromHere(&'static str),
}

/// A fault at a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub name: String,
    pub number: usize,
    pub fault: Fault,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.name, self.number)?;
        match self.fault {
            Fault::Kill => write!(f, "kill"),
            Fault::Once(errno) => write!(f, "{errno}"),
            Fault::FromHere(errno) => write!(f, "{errno}+"),
        }
    }
}

impl Point {
    /// What strace is asked for.
    fn injection(&self) -> String {
        let Self { name, number, fault } = self;
        match fault {
            Fault::Kill => format!("--inject={name}:signal=SIGKILL:when={number}"),
            Fault::Once(errno) => format!("--inject={name}:error={errno}:when={number}"),
            Fault::FromHere(errno) => format!("--inject={name}:error={errno}:when={number}+"),
        }
    }
}

impl Call {
    /// Whether it can change what is on the disk, or makes a change last.
    pub fn changes(&self) -> bool {
        match self.name.as_str() {
            "open" | "openat" | "openat2" | "creat" => {
                ["O_CREAT", "O_WRONLY", "O_RDWR", "O_TRUNC"].iter().any(|flag| self.line.contains(flag))
            }
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" | "fsync" | "fdatasync" | "rename"
            | "renameat" | "renameat2" | "link" | "linkat" | "symlink" | "symlinkat" | "unlink"
            | "unlinkat" | "rmdir" | "mkdir" | "mkdirat" | "chmod" | "fchmod" | "fchmodat" | "fchmodat2"
            | "chown" | "fchown" | "lchown" | "fchownat" | "truncate" | "ftruncate" | "fallocate"
            | "flock" | "copy_file_range" | "sendfile" | "setxattr" | "fsetxattr" | "lsetxattr"
            | "utimensat" | "sync_file_range" | "FICLONE" => true,
            _ => false,
        }
    }

    /// Whether it can fail at all. What ends the program cannot, nor what passes between its own threads and from
    /// a child that is being started: there an error is waited out forever, and none ever comes. Who it is, the
    /// kernel always knows ("always successful", says the manual).
    pub fn can_fail(&self) -> bool {
        let never = [
            "brk",
            "execve",
            "exit",
            "exit_group",
            "futex",
            "getegid",
            "geteuid",
            "getgid",
            "getpid",
            "getppid",
            "gettid",
            "getuid",
            "recvfrom",
            "restart_syscall",
            "rt_sigreturn",
            "sendto",
        ];
        !never.contains(&self.name.as_str())
    }
}

/// Runs a command once and writes down what it calls.
pub fn record(live: &Live, program: &str, arguments: &[&str]) -> (Recording, Ended) {
    let log = live.aside("calls");
    let mut command = live.program("strace");
    command
        .args(["-f", "-y", "-s", "4096", "-o"])
        .arg(&log)
        .arg("--")
        .arg(program)
        .args(live.arguments(arguments));
    let ended = live.run(command);
    (read(&log, &live.folder()), ended)
}

fn read(log: &Path, folder: &Path) -> Recording {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned();
    let folder = folder.to_str().unwrap();
    let mut main = None;
    let mut counts: BTreeMap<(u32, String), usize> = BTreeMap::new();
    let mut recording = Recording { calls: Vec::new(), start: 0, others: BTreeMap::new() };
    for line in text.lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let (Ok(pid), rest) = (pid.parse::<u32>(), rest.trim_start()) else { continue };
        let Some((name, _)) = rest.split_once('(') else { continue };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let main = *main.get_or_insert(pid);
        let number = counts.entry((pid, name.to_owned())).or_default();
        *number += 1;
        if pid != main {
            let most = recording.others.entry(name.to_owned()).or_default();
            *most = (*most).max(*number);
        } else if !recording.calls.is_empty() || (name != "execve" && rest.contains(folder)) {
            let short: String = rest.chars().take(300).collect();
            recording.calls.push(Call { name: name.to_owned(), number: *number, line: short });
        } else {
            recording.start += 1;
        }
    }
    assert!(!recording.calls.is_empty(), "strace recorded no call on {folder}:\n{text}");
    recording
}

impl Recording {
    /// The call at a point.
    pub fn line(&self, point: &Point) -> &str {
        self.calls
            .iter()
            .find(|call| call.name == point.name && call.number == point.number)
            .map_or("(a call that was not recorded)", |call| call.line.as_str())
    }

    /// Whether the call of the program comes before any of its children's calls of that number.
    fn is_the_programs_alone(&self, point: &Point) -> bool {
        self.others.get(&point.name).is_none_or(|others| *others < point.number)
    }
}

/// Runs a command with a fault at a point; also whether the point was reached.
pub fn inject(
    live: &Live,
    recording: &Recording,
    program: &str,
    arguments: &[&str],
    point: &Point,
) -> (Ended, bool) {
    let log = live.aside("injected");
    let mut command = live.program("strace");
    let fast = point.fault != Fault::Kill && recording.is_the_programs_alone(point);
    if fast {
        command.args(["-f", "--seccomp-bpf"]);
    }
    command
        .arg(format!("--trace={}", point.name))
        .arg(point.injection())
        .args(["-s", "0", "-o"])
        .arg(&log)
        .arg("--")
        .arg(program)
        .args(live.arguments(arguments));
    let mut ended = live.run(command);
    let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    if let Some(signal) = signal_that_ended(&text) {
        (ended.code, ended.signal) = (None, Some(signal));
    }
    let reached = match point.fault {
        Fault::Kill => ended.signal == Some(9),
        Fault::Once(_) | Fault::FromHere(_) => text.contains("(INJECTED)"),
    };
    (ended, reached)
}

/// The signal that ended the program itself, by the log. (Where strace is the first process of a namespace it
/// cannot end by that signal as well.)
fn signal_that_ended(log: &str) -> Option<i32> {
    // With threads and children each line begins with a number, and the program came first.
    let number = |line: &str| line.split_once(' ').and_then(|(number, _)| number.parse::<u32>().ok());
    let main = log.lines().filter_map(number).min();
    let end = log.lines().filter(|line| number(line) == main).find(|line| line.contains("+++ killed by "))?;
    match end.split("+++ killed by ").nth(1)?.split(' ').next()? {
        "SIGKILL" => Some(9),
        "SIGABRT" => Some(6),
        "SIGSEGV" => Some(11),
        _ => Some(0),
    }
}
