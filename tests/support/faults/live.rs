//! The folder that a command changes: an installation, a home with client files, and what the commands are given.
//! It has one path for as long as its worker runs, since paths are written into records.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agent_bridge::release::Layout;

use super::tree::{self, Look, Tree};

/// The program under test.
pub const BRIDGE: &str = env!("CARGO_BIN_EXE_agent-bridge");

/// The name of the installation in the folder.
const ROOT: &str = "root";

/// A folder to change, and beside it what the harness keeps.
pub struct Live {
    base: PathBuf,
    folder: PathBuf,
    keep: bool,
    is_small: bool,
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}")?,
            (None, Some(signal)) => write!(f, "ended by signal {signal}")?,
            (None, None) => write!(f, "did not end in time")?,
        }
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.trim().is_empty() {
                write!(f, "\n    {name}: {}", text.trim().replace('\n', "\n            "))?;
            }
        }
        Ok(())
    }
}

impl Live {
    /// A new one, in memory where that is possible: only the calls count here, not the disk.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("agent-bridge-faults-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let memory = Path::new("/dev/shm");
        let base = if fs::create_dir(memory.join(&name)).is_ok() {
            memory.join(name)
        } else {
            let base = fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
            fs::create_dir(&base).unwrap();
            base
        };
        let folder = base.join("live");
        let this = Self { base, folder, keep: std::env::var_os(super::ONLY).is_some(), is_small: false };
        this.clear();
        this
    }

    /// One on a file system of its own that is mounted at `disk`; what the harness keeps lies in `base`. Nothing of
    /// it is removed at the end.
    pub fn on(disk: &Path, base: &Path) -> Self {
        Self { base: base.to_path_buf(), folder: disk.join("live"), keep: true, is_small: true }
    }

    /// Whether every byte of it costs.
    pub fn is_small(&self) -> bool {
        self.is_small
    }

    /// Empties it.
    pub fn clear(&self) {
        tree::remove(&self.folder());
        fs::create_dir(self.folder()).unwrap();
        for name in ["home", "given"] {
            fs::create_dir(self.folder().join(name)).unwrap();
        }
    }

    /// What is changed.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    /// A place of the harness's own.
    pub fn aside(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// The installation.
    pub fn root(&self) -> PathBuf {
        self.folder().join(ROOT)
    }

    /// The installation.
    pub fn layout(&self) -> Layout {
        Layout::at(self.root())
    }

    /// The user's home, with the client files.
    pub fn home(&self) -> PathBuf {
        self.folder().join("home")
    }

    /// What commands are given: bundles, configs.
    pub fn given(&self, name: &str) -> PathBuf {
        self.folder().join("given").join(name)
    }

    /// Keeps what is there under a name.
    pub fn save(&self, name: &str) {
        tree::remove(&self.aside(name));
        tree::copy(&self.folder(), &self.aside(name));
    }

    /// Puts back what was kept.
    pub fn load(&self, name: &str) {
        tree::remove(&self.folder());
        tree::copy(&self.aside(name), &self.folder());
    }

    /// What is there.
    pub fn tree(&self, look: Look) -> Tree {
        Tree::of(&self.folder(), ROOT, look)
    }

    /// What was kept under a name.
    pub fn saved(&self, name: &str, look: Look) -> Tree {
        Tree::of(&self.aside(name), ROOT, look)
    }

    /// A program in this world, where it can be among no other processes than its own: what it looks for among all
    /// processes is the same then every time, and nothing of it outlives it.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        // Not where a disk is unmounted next: what is left of a namespace would hold it a little longer.
        let mut command = match !self.is_small && apart() {
            true => {
                let mut command = Command::new(APART[0]);
                command.args(&APART[1..]).arg(program);
                command
            }
            false => Command::new(program),
        };
        command
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("AGENT_BRIDGE_ROOT", self.root())
            .env("LC_ALL", "C")
            .current_dir("/");
        command
    }

    /// The bridge with these arguments, in which `{given}` is the folder of what is given.
    pub fn bridge(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(BRIDGE);
        command.args(self.arguments(arguments));
        command
    }

    /// The arguments as they are passed.
    pub fn arguments(&self, arguments: &[&str]) -> Vec<OsString> {
        let given = self.folder().join("given");
        arguments.iter().map(|argument| argument.replace("{given}", given.to_str().unwrap()).into()).collect()
    }

    /// Runs to the end.
    pub fn run(&self, command: Command) -> Ended {
        run(command, &self.base, Duration::from_secs(40))
    }

    /// Runs the bridge to the end.
    pub fn run_bridge(&self, arguments: &[&str]) -> Ended {
        self.run(self.bridge(arguments))
    }

    /// Runs the bridge to a good end.
    #[track_caller]
    pub fn must(&self, arguments: &[&str]) -> Ended {
        let ended = self.run_bridge(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended}");
        ended
    }
}

/// Runs what follows in a process namespace of its own.
const APART: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Whether the system allows that.
fn apart() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        let tried = Command::new(APART[0]).args(&APART[1..]).arg("true").stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    })
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        tree::remove(&self.base);
    }
}

/// Runs a program to its end; its output goes into files, so that nobody who keeps it open is waited for.
fn run(mut command: Command, folder: &Path, deadline: Duration) -> Ended {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    let file = |name: &str| fs::File::create(folder.join(name)).unwrap();
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pid = rustix::process::Pid::from_child(&child);
    let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let timeout = Timespec { tv_sec: i64::try_from(deadline.as_secs()).unwrap(), tv_nsec: 0 };
    let in_time = loop {
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other.unwrap() > 0,
        }
    };
    // What it started must not work on in the next case's folder. Before it is waited for: after that its number may
    // be another's.
    let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    let status = child.wait().unwrap();
    let text = |name: &str| String::from_utf8_lossy(&fs::read(folder.join(name)).unwrap()).into_owned();
    Ended {
        code: status.code().filter(|_| in_time),
        signal: status.signal().filter(|_| in_time),
        stdout: text("stdout"),
        stderr: text("stderr"),
    }
}
