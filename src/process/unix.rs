//! The Unix side: process groups, the polite and the impolite end of a tree, streams that can be cut.
//!
//! A group kill is not enough: commands that an agent runs sit in sessions of their own. So the tree is
//! found by parent links before anything is signalled, and again until nothing is left. On Linux this
//! process is the subreaper meanwhile: orphans of the tree become its children and cannot hide. macOS
//! has no such thing; there the recorded process ids (with start times) and the run's environment
//! marker find what left the tree.
//!
//! Concurrent runs in one process do not touch each other: a process counts as ours only by parent
//! links, by the root's process group, by an earlier sighting, or by the run's own marker.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group, waitid, waitpid,
};

use super::PoliteStop;
use super::start::{BELOW, TURN_VAR};
use crate::platform::processes::{self, Process};

/// Set once by a process that exists for one run only, to the run's mark: every child it gets is the run's.
static CLAIMED: OnceLock<String> = OnceLock::new();

pub(super) fn claim_all_children(marker: &str) {
    let _ = CLAIMED.set(marker.to_owned());
}

/// A root process and everything that came from it.
pub(super) struct Tree {
    root: Pid,
    marker: String,
    /// Members seen so far, so that they are found again after their parents are gone.
    known: Vec<Process>,
    /// Children this process had before.
    before: Vec<u32>,
    /// Signals were sent to end it.
    forced: bool,
    ended: bool,
    _subreaper: Subreaper,
}

impl Tree {
    /// Starts the root in a process group and a session of its own.
    pub(super) fn start(mut command: Command, marker: &str, polite: PoliteStop) -> io::Result<(Child, Self)> {
        own_session(&mut command);
        Self::start_beside(command, marker, polite)
    }

    /// Starts the root in this process's group and session, where it can use the terminal.
    pub(super) fn start_beside(
        mut command: Command,
        marker: &str,
        polite: PoliteStop,
    ) -> io::Result<(Child, Self)> {
        let subreaper = Subreaper::hold();
        let before = processes::children(std::process::id()).unwrap_or_default();
        die_with_parent(&mut command, polite);
        let child = spawn(&mut command)?;
        let root = pid(child.id()).ok_or_else(|| io::Error::other("the process id is out of range"))?;
        let tree = Self {
            root,
            marker: marker.to_owned(),
            known: Vec::new(),
            before,
            forced: false,
            ended: false,
            _subreaper: subreaper,
        };
        Ok((child, tree))
    }

    /// Waits for the root's end on another thread.
    pub(super) fn exit_waiter(&self) -> io::Result<ExitWaiter> {
        Ok(ExitWaiter(self.root))
    }

    /// Whether the root has ended. It stays unreaped, so its ids cannot be reused meanwhile.
    pub(super) fn root_has_ended(&self) -> bool {
        has_ended(self.root, WaitIdOptions::NOHANG)
    }

    /// Records the members that are there now.
    pub(super) fn observe(&mut self) {
        self.members();
    }

    /// Asks the root to end. `false` if the system has no way to ask.
    pub(super) fn ask(&mut self, polite: PoliteStop) -> bool {
        self.forced = true;
        self.observe();
        // The root is not reaped yet, so the ids are still its own.
        let _ = match polite {
            PoliteStop::InterruptRoot => kill_process(self.root, Signal::INT),
            PoliteStop::TerminateGroup => kill_process_group(self.root, Signal::TERM),
        };
        true
    }

    /// Ends root, group and every member at once.
    pub(super) fn kill(&mut self) {
        self.forced = true;
        // Listed before anything is signalled: orphans lose their parent links.
        let members = self.members();
        let _ = kill_process_group(self.root, Signal::KILL);
        let _ = kill_process(self.root, Signal::KILL);
        for member in members {
            signal_exactly(&member, Signal::KILL);
        }
    }

    /// Ends whatever is left after the root's end, and says what could not be proven gone. Called
    /// before the root is reaped.
    pub(super) fn end(&mut self, wait: Duration) -> Vec<u32> {
        self.ended = true;
        let deadline = Instant::now() + wait;
        let mut pause = Duration::from_millis(1);
        let mut swept = false;
        loop {
            // The zombie root keeps the group's id from being reused.
            let _ = kill_process_group(self.root, Signal::KILL);
            let mut left: Vec<Process> = self.members();
            left.retain(|p| !p.zombie && p.pid != raw(self.root));
            if left.is_empty() && !swept && self.may_have_strays() {
                left = self.marked();
                swept = true;
            }
            self.reap();
            if left.is_empty() {
                return Vec::new();
            }
            for process in &left {
                signal_exactly(process, Signal::KILL);
            }
            self.remember(&left);
            if Instant::now() >= deadline {
                return left.iter().filter(|p| is_running(p)).map(|p| p.pid).collect();
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(25));
        }
    }

    /// With a subreaper, a tree that never had a second member cannot have strays.
    fn may_have_strays(&self) -> bool {
        !cfg!(target_os = "linux") || self.forced || self.known.iter().any(|p| p.pid != raw(self.root))
    }

    /// Members of the tree at this moment, and remembers them. Zombies are among them.
    fn members(&mut self) -> Vec<Process> {
        let me = std::process::id();
        let table = below(me).unwrap_or_else(processes::all);
        let seeds: Vec<u32> = table.iter().filter(|p| self.is_ours(p, me)).map(|p| p.pid).collect();
        let members = processes::descendants(&table, &seeds);
        self.remember(&members);
        members
    }

    fn is_ours(&self, process: &Process, me: u32) -> bool {
        let root = raw(self.root);
        if process.pid == root || process.group == root {
            return true;
        }
        if self.known.iter().any(|k| k.pid == process.pid && k.started == process.started) {
            return true;
        }
        process.parent == me && !self.before.contains(&process.pid) && self.claims(process.pid)
    }

    /// Whether a child of ours is this tree's by its mark. The tree of the run that claimed all children takes every
    /// one, but for those of the programs that were started beside it for the same run: they see to their own.
    fn claims(&self, pid: u32) -> bool {
        let mark = processes::variable(pid, TURN_VAR);
        let mark = mark.as_ref().and_then(|mark| mark.to_str());
        let is_beside =
            |mark: &str| mark.strip_prefix(&*self.marker).is_some_and(|rest| rest.starts_with(BELOW));
        if CLAIMED.get() == Some(&self.marker) {
            !mark.is_some_and(is_beside)
        } else {
            mark == Some(&*self.marker)
        }
    }

    /// Processes anywhere that carry the run's marker, but not this one or those above it.
    fn marked(&self) -> Vec<Process> {
        leftovers(&self.marker)
    }

    fn remember(&mut self, members: &[Process]) {
        for member in members {
            if !self.known.iter().any(|k| k.pid == member.pid && k.started == member.started) {
                self.known.push(*member);
            }
        }
    }

    /// Orphans that came to this process as their subreaper must be waited for here.
    fn reap(&self) {
        let me = std::process::id();
        for member in &self.known {
            let adopted = processes::find(member.pid)
                .is_some_and(|p| p.zombie && p.parent == me && p.started == member.started);
            if let Some(id) = pid(member.pid).filter(|id| adopted && *id != self.root) {
                let _ = waitpid(Some(id), WaitOptions::NOHANG);
            }
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Only when a run is abandoned half-way, for instance by a panic in a callback.
        if !self.ended {
            self.kill();
            self.end(Duration::from_secs(1));
        }
    }
}

/// Processes that carry `marker`, but not this process or those above it.
pub(super) fn leftovers(marker: &str) -> Vec<Process> {
    let mut above = vec![std::process::id()];
    while let Some(parent) = above.last().and_then(|pid| processes::find(*pid)).map(|p| p.parent) {
        if parent == 0 || above.contains(&parent) {
            break;
        }
        above.push(parent);
    }
    let mut found = processes::with_variable(TURN_VAR, marker.as_ref());
    found.retain(|p| !p.zombie && !above.contains(&p.pid));
    found
}

/// Ends every process that carries `marker` and what is below it.
pub(super) fn end_leftovers(marker: &str, wait: Duration) -> Vec<u32> {
    end_leftovers_of(marker, &[], Duration::ZERO, wait)
}

/// Ends every process that carries `marker`, those of `known` that are still there, and what is below them; after
/// `grace`, in which they may end by themselves.
pub(super) fn end_leftovers_of(marker: &str, known: &[Process], grace: Duration, wait: Duration) -> Vec<u32> {
    let patient = Instant::now() + grace;
    let deadline = patient + wait;
    loop {
        let mut marked = leftovers(marker);
        marked.extend(known.iter().filter(|process| is_running(process)));
        if marked.is_empty() {
            return Vec::new();
        }
        if Instant::now() < patient {
            thread::sleep(Duration::from_millis(10));
            continue;
        }
        // Only those that are still the same: an id may belong to somebody else by now.
        let table = processes::all();
        let same = |p: &&Process| table.iter().any(|now| now.pid == p.pid && now.started == p.started);
        let seeds: Vec<u32> = marked.iter().filter(same).map(|p| p.pid).collect();
        let all = processes::descendants(&table, &seeds);
        for process in &all {
            signal_exactly(process, Signal::KILL);
        }
        if Instant::now() >= deadline {
            return all.iter().filter(|p| is_running(p)).map(|p| p.pid).collect();
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// This process and everything below it, by direct look-ups; `None` where the system has none.
pub(super) fn below(me: u32) -> Option<Vec<Process>> {
    let mut ids = processes::children(me)?;
    let mut found: Vec<Process> = Vec::new();
    let mut next = 0;
    while let Some(id) = ids.get(next).copied() {
        next += 1;
        found.extend(processes::find(id));
        for child in processes::children(id).unwrap_or_default() {
            if !ids.contains(&child) {
                ids.push(child);
            }
        }
    }
    Some(found)
}

fn is_running(process: &Process) -> bool {
    processes::find(process.pid).is_some_and(|now| now.started == process.started && !now.zombie)
}

/// Signals this very process, not one that got its id afterwards.
fn signal_exactly(process: &Process, signal: Signal) {
    let Some(id) = pid(process.pid) else { return };
    #[cfg(target_os = "linux")]
    if let Ok(handle) = rustix::process::pidfd_open(id, rustix::process::PidfdFlags::empty()) {
        if is_running(process) {
            let _ = rustix::process::pidfd_send_signal(&handle, signal);
        }
        return;
    }
    if is_running(process) {
        let _ = kill_process(id, signal);
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

pub(super) fn raw(id: Pid) -> u32 {
    id.as_raw_nonzero().get().unsigned_abs()
}

fn has_ended(root: Pid, wait: WaitIdOptions) -> bool {
    loop {
        match waitid(WaitId::Pid(root), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | wait) {
            Ok(status) => return status.is_some(),
            Err(rustix::io::Errno::INTR) => {}
            // No such child: it is gone.
            Err(_) => return true,
        }
    }
}

/// Blocks until a root has ended, without reaping it.
pub(super) struct ExitWaiter(Pid);

impl ExitWaiter {
    pub(super) fn wait(self) {
        has_ended(self.0, WaitIdOptions::empty());
    }
}

/// Another process may be writing the file at this moment (an update of the CLI, or a fork elsewhere
/// in this process that still holds it open): that passes.
fn spawn(command: &mut Command) -> io::Result<Child> {
    for pause in [5, 20, 50, 100, 200] {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                thread::sleep(Duration::from_millis(pause));
            }
            done => return done,
        }
    }
    command.spawn()
}

/// Linux: the root ends when the thread that started it does, even if that is killed. A worker that
/// takes its own tree along on a signal gets the chance to.
#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command, polite: PoliteStop) {
    let me = rustix::process::getpid();
    let signal = match polite {
        PoliteStop::InterruptRoot => Signal::TERM,
        PoliteStop::TerminateGroup => Signal::KILL,
    };
    // SAFETY: between fork and exec only two system calls are made; neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(signal))?;
            // The parent may have ended before the call.
            if rustix::process::getppid() == Some(me) {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()))
            }
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_command: &mut Command, _polite: PoliteStop) {}

/// Lets the root lead a session, and with it a process group. A member of our own session could open the
/// terminal that a host runs on: what it wrote would spoil the host's screen, and a question for a password
/// would stop it for good, since only the foreground may read.
pub(super) fn own_session(command: &mut Command) {
    // SAFETY: between fork and exec only one system call is made; it neither allocates nor locks.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// Gives a program a network of its own with nothing in it, if the system lets us; else it starts with ours.
#[cfg(target_os = "linux")]
pub(super) fn leave_network(command: &mut Command) {
    use rustix::thread::UnshareFlags;
    // Formatted here: between fork and exec nothing may allocate.
    let map = |id: u32| format!("{id} {id} 1\n").into_bytes();
    let users = map(rustix::process::geteuid().as_raw());
    let groups = map(rustix::process::getegid().as_raw());
    // SAFETY: between fork and exec only system calls are made; none allocates or locks. No other thread is in
    // the new process, so nobody is surprised by another network or another view of the users.
    unsafe {
        command.pre_exec(move || {
            if rustix::thread::unshare_unsafe(UnshareFlags::NEWNET).is_ok() {
                return Ok(());
            }
            if rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET).is_err() {
                return Ok(());
            }
            // Without these the program would not know itself as the owner of its files.
            let write = |path: &std::ffi::CStr, text: &[u8]| {
                let file = rustix::fs::open(path, rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty())?;
                rustix::io::write(&file, text)
            };
            write(c"/proc/self/setgroups", b"deny")?;
            write(c"/proc/self/uid_map", &users)?;
            write(c"/proc/self/gid_map", &groups)?;
            Ok(())
        });
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn leave_network(_command: &mut Command) {}

/// Whether a process is in another network than this one, for certain.
#[cfg(target_os = "linux")]
pub(super) fn has_other_network(pid: u32) -> bool {
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    matches!((network("self"), network(&pid.to_string())), (Some(ours), Some(its)) if ours != its)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn has_other_network(_pid: u32) -> bool {
    false
}

/// While at least one run is active, orphans of the trees come to this process.
struct Subreaper;

static ACTIVE_RUNS: Mutex<usize> = Mutex::new(0);

impl Subreaper {
    fn hold() -> Self {
        let mut active = ACTIVE_RUNS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *active += 1;
        if *active == 1 {
            set_subreaper(true);
        }
        Self
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        let mut active = ACTIVE_RUNS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *active = active.saturating_sub(1);
        if *active == 0 && CLAIMED.get().is_none() {
            set_subreaper(false);
        }
    }
}

#[cfg(target_os = "linux")]
fn set_subreaper(on: bool) {
    let _ = rustix::process::set_child_subreaper(on.then(rustix::process::getpid));
}

#[cfg(not(target_os = "linux"))]
fn set_subreaper(_on: bool) {}

/// Lets blocked readers be told to stop, although somebody still holds the other end of their pipes.
pub(super) struct Cut {
    reader: PipeReader,
    writer: Option<PipeWriter>,
}

impl Cut {
    pub(super) fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader, writer: Some(writer) })
    }

    /// Every reader returns `None` from now on.
    pub(super) fn cut(&mut self) {
        self.writer = None;
    }
}

/// Room in the pipe of standard output: what anybody may ask for.
#[cfg(target_os = "linux")]
const ROOM: usize = 1 << 20;

/// One stream of the root.
pub(super) struct Stream {
    file: File,
    cut: PipeReader,
}

impl Stream {
    pub(super) fn stdout(pipe: ChildStdout, cut: &Cut) -> io::Result<Self> {
        let pipe = OwnedFd::from(pipe);
        // Programs that exit with output still to be written lose what the pipe had no room for (Node does). A system
        // that does not give it more room gives it enough to work with.
        #[cfg(target_os = "linux")]
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, ROOM);
        Self::new(pipe, cut)
    }

    pub(super) fn stderr(pipe: ChildStderr, cut: &Cut) -> io::Result<Self> {
        Self::new(pipe.into(), cut)
    }

    fn new(pipe: OwnedFd, cut: &Cut) -> io::Result<Self> {
        Ok(Self { file: File::from(pipe), cut: cut.reader.try_clone()? })
    }

    /// Waits for bytes. `None` if the stream was cut; `Some(0)` is its end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let mut waiting = [PollFd::new(&self.file, PollFlags::IN), PollFd::new(&self.cut, PollFlags::IN)];
            match poll(&mut waiting, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            let [stream, cut] = waiting.map(|entry| !entry.revents().is_empty());
            // What is there is read first; the cut only ends the waiting.
            if stream {
                return self.file.read(buffer).map(Some);
            }
            if cut {
                return Ok(None);
            }
        }
    }
}
