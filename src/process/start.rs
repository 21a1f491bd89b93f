//! How a program is started, for a run and for a dialogue: checked, with nothing inherited but what is listed,
//! marked, and as the root of a tree of its own; then one thread a stream and one that waits for the end, which all
//! talk through one bounded channel.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use super::os::{Cut, Stream, Tree};
use super::{PoliteStop, ProcessError, Program, command_line, resolve};

/// Marks every process of a turn, so that one which left the tree can still be told.
pub const TURN_VAR: &str = "AGENT_BRIDGE_TURN_ID";

/// Between a run's mark and what makes it that of a program beside the run's own.
pub(super) const BELOW: char = '/';

/// Read size, and with it the memory of the channel: 32 × 64 KiB.
const CHUNK: usize = 64 * 1024;
const QUEUED_CHUNKS: usize = 32;

/// What the threads of a started program tell.
pub(super) enum Event {
    /// Bytes of standard output.
    Stdout(Vec<u8>),
    /// Bytes of standard error.
    Stderr(Vec<u8>),
    /// One stream ended.
    StreamEnd,
    /// The root ended.
    Exited,
}

/// A program that runs.
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) tree: Tree,
    pub(super) cut: Cut,
    /// When it was started.
    pub(super) at: Instant,
}

/// The command of a program that was checked, with its whole environment, and the mark of its processes.
pub(super) fn command(program: &Program) -> Result<(Command, String), ProcessError> {
    resolve::check_startable(program)?;
    command_line::check(program)?;
    let mut env = program.env.clone();
    let marker = env
        .entry(OsString::from(TURN_VAR))
        .or_insert_with(|| format!("run-{}", uuid::Uuid::new_v4()).into())
        .to_string_lossy()
        .into_owned();
    let mut command = Command::new(&program.program);
    command.args(&program.args).current_dir(&program.cwd).env_clear().envs(&env);
    Ok((command, marker))
}

/// Starts a program; its `stdin` is not looked at. `prepare` has the last word on the command.
pub(super) fn start(
    program: &Program,
    stdin: Stdio,
    polite: PoliteStop,
    prepare: impl FnOnce(&mut Command),
) -> Result<Started, ProcessError> {
    let (mut command, marker) = command(program)?;
    let failed = |source: io::Error| resolve::explain_spawn_error(program, source);
    let cut = Cut::new().map_err(failed)?;
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    prepare(&mut command);
    let at = Instant::now();
    let (child, tree) = Tree::start(command, &marker, polite).map_err(failed)?;
    Ok(Started { child, tree, cut, at })
}

impl Started {
    /// Starts the threads that read its output and wait for its end. Gives what they tell, and how many streams are
    /// read.
    pub(super) fn listen(&mut self) -> io::Result<(Receiver<Event>, u32)> {
        let (sender, events) = sync_channel(QUEUED_CHUNKS);
        let mut streams = 0;
        if let Some(pipe) = self.child.stdout.take() {
            read_stream("stdout", Stream::stdout(pipe, &self.cut)?, Event::Stdout, sender.clone())?;
            streams += 1;
        }
        if let Some(pipe) = self.child.stderr.take() {
            read_stream("stderr", Stream::stderr(pipe, &self.cut)?, Event::Stderr, sender.clone())?;
            streams += 1;
        }
        let waiter = self.tree.exit_waiter()?;
        thread::Builder::new().name("exit".into()).spawn(move || {
            waiter.wait();
            let _ = sender.send(Event::Exited);
        })?;
        Ok((events, streams))
    }
}

fn read_stream(
    name: &str,
    mut stream: Stream,
    event: fn(Vec<u8>) -> Event,
    sender: SyncSender<Event>,
) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(move || {
        let mut buffer = vec![0; CHUNK];
        loop {
            match stream.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Some(count)) if count > 0 => {
                    let bytes = buffer.get(..count).unwrap_or_default().to_vec();
                    if sender.send(event(bytes)).is_err() {
                        return;
                    }
                }
                // The end, a cut, or a pipe that broke: no more will come.
                Ok(_) | Err(_) => break,
            }
        }
        let _ = sender.send(Event::StreamEnd);
    })?;
    Ok(())
}

/// The exit code and the signal of a root that ended.
pub(super) fn ending(status: ExitStatus) -> (Option<i64>, Option<i32>) {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal = None;
    (status.code().map(exit_code), signal)
}

/// Windows codes have 32 bits without a sign (`0xC0000005`); std shows them with one.
fn exit_code(code: i32) -> i64 {
    if cfg!(windows) { i64::from(code.cast_unsigned()) } else { i64::from(code) }
}
