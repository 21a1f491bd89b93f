//! The launcher: the one program that clients know. It finds out which release is current, makes sure that the
//! release is what the pointer says, and becomes it.
//!
//! It never prints a byte on standard output but a whole JSON-RPC answer, and that only where no server will: a
//! host that waits for its handshake gets a sentence instead of a closed pipe. Operators' commands run in the
//! launcher itself, so that they work when nothing is left of the current release.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::lease::{self, GENERATION_VARIABLE, LEASE_VARIABLE};
use super::metadata::{LAUNCHER_PROTOCOL, MAX_BYTES, METADATA_FILE};
use super::pointer::{self, Pointer};
use super::{
    Layout, Place, ReleaseError, ReleaseId, StartError, fallback, journal, layout, recovery, trial, verify,
};
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::platform::{self, LockFile};

/// How long a start waits at a closed gate before it tells its host to come back.
const GATE_WAIT: Duration = Duration::from_secs(2);
/// When a start that met somebody at the gate comes to it again.
const GATE_AGAIN: Duration = Duration::from_millis(5);
/// How long a host that is refused may take for its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// When a host may try again.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Longest line of a host that is refused.
const MAX_LINE: u64 = 4 * 1024 * 1024;
/// The shared config's place, for the release.
const CONFIG_VARIABLE: &str = "AGENT_BRIDGE_CONFIG";

/// Commands that change or judge the installation. They must work without any release.
const OPERATORS: &[&str] = &[
    "canary",
    "configure-clients",
    "cutover",
    "evidence",
    "history",
    "inspect",
    "install-release",
    "launcher-replace",
    "package",
    "prune",
    "readiness",
    "recover",
    "rehearse",
    "rehearse-switch",
    "rollback",
    "state",
];
/// Commands that the current release does, or the launcher where no release can be started.
const EITHER: &[&str] = &["completions", "demo", "doctor", "explain", "help", "man"];

/// What becomes of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This very program does the command.
    Here,
    /// Everything is done; the exit code.
    Ended(u8),
}

/// Who does a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doer {
    Launcher,
    Release,
    Either,
    Server,
}

/// Plays the launcher, if this program is one by its place; else nothing. Does not come back where the release
/// takes over this process.
pub fn main(context: &Context, args: &[OsString]) -> Next {
    let Some((layout, Place::Launcher)) = lease::own_place(context) else { return Next::Here };
    let doer = doer(args);
    if doer == Doer::Launcher {
        return Next::Here;
    }
    let result = match doer {
        Doer::Server => prepare_server(context, &layout),
        _ => prepare_command(context, &layout),
    };
    let error = match result.and_then(|start| start.run(context, args)) {
        Ok(code) => return Next::Ended(code),
        Err(error) => error,
    };
    complain(&error);
    if doer == Doer::Either {
        return Next::Here;
    }
    if doer == Doer::Server {
        answer_first_request(&error);
    }
    Next::Ended(error.exit() as u8)
}

fn doer(args: &[OsString]) -> Doer {
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--config") => {
                words.next();
            }
            Some("serve") => return Doer::Server,
            Some(word) if OPERATORS.contains(&word) => return Doer::Launcher,
            Some(word) if EITHER.contains(&word) => return Doer::Either,
            Some(word) if word.starts_with('-') => {}
            _ => return Doer::Release,
        }
    }
    // Version and help.
    Doer::Either
}

/// A verified release, ready to run.
struct Start {
    program: PathBuf,
    file: File,
    /// The lease and that of the release.
    locks: Option<(LockFile, LockFile)>,
    generation: Option<(u64, Option<String>)>,
    config: PathBuf,
}

/// For a command: without a lease, and no matter whether the gate is closed. A turn takes its own.
fn prepare_command(_context: &Context, layout: &Layout) -> Result<Start, Error> {
    let pointer = pointer::current(layout)?;
    let (program, file) = verified(layout, &pointer)?;
    Ok(Start { program, file, locks: None, generation: None, config: layout.config() })
}

/// For a server: through the gate, with a lease for life.
fn prepare_server(context: &Context, layout: &Layout) -> Result<Start, Error> {
    if let Some(pass) = lease::probe(context, layout) {
        let (program, file) = probed(layout, &pass.release)?;
        return Ok(Start { program, file, locks: None, generation: None, config: layout.config() });
    }
    let mut may_fall_back = true;
    let deadline = Instant::now() + GATE_WAIT;
    loop {
        let lease = lease::pass_gate(layout, deadline.saturating_duration_since(Instant::now()))?;
        if !finish_what_was_cut_off(context, layout)? {
            // Whoever has the gate may wait for the lease: it is not held while waiting for the gate.
            drop(lease);
            if Instant::now() >= deadline {
                return Err(StartError::Maintenance.into());
            }
            std::thread::sleep(GATE_AGAIN);
            continue;
        }
        let pointer = pointer::current(layout)?;
        let against = trial::verdict_against(layout, &pointer, context.clock)
            .filter(|_| std::mem::take(&mut may_fall_back));
        if let Some(why) = against {
            // A change of the pointer; whoever holds a lease might be waited for.
            drop(lease);
            if let Err(error) = fallback::fall_back(context, layout, pointer.generation, &why) {
                complain(&error);
            }
            continue;
        }
        trial::bless(layout, &pointer, context.clock);
        let release = lease::release_lease(layout, &pointer.release_id)?;
        let (program, file) = verified(layout, &pointer)?;
        let start = pointer.trial.as_ref().and_then(|_| trial::record_start(layout, pointer.generation));
        return Ok(Start {
            program,
            file,
            locks: Some((lease, release)),
            generation: Some((pointer.generation, start)),
            config: layout.config(),
        });
    }
}

/// A command that was cut off is finished or undone before anything starts: a crash must not leave hosts without a
/// server until an operator comes. `false`: the gate is not to be had now, since another start does the same or a
/// switch begins.
fn finish_what_was_cut_off(context: &Context, layout: &Layout) -> Result<bool, Error> {
    if journal::unfinished(layout)?.is_none() {
        return Ok(true);
    }
    // Other starts wait meanwhile.
    let Ok(_gate) = lease::close_gate(layout, Duration::ZERO) else { return Ok(false) };
    match recovery::recover(layout, context.clock, false) {
        Ok(_) => Ok(true),
        // A command at work that needs no quiet: it would have closed the gate.
        Err(ReleaseError::Locked { .. }) => Ok(true),
        Err(error) => Err(StartError::RecoveryFailed { why: error.to_string() }.into()),
    }
}

/// The program of the current release, if it is what the pointer pins. The file that is given is the one that was
/// hashed.
fn verified(layout: &Layout, pointer: &Pointer) -> Result<(PathBuf, File), Error> {
    let id = &pointer.release_id;
    let program = program_of(layout, id);
    if layout.relative(&program).as_deref() != Some(&pointer.runtime_path) {
        return Err(damaged(id, format!("the pointer names {:?} as its program", pointer.runtime_path)));
    }
    let bytes = metadata_bytes(layout, id)?;
    if digest::of_bytes(&bytes) != pointer.metadata_sha256 {
        return Err(damaged(id, format!("{METADATA_FILE} is not the one that was promoted")));
    }
    require_protocol(id, &bytes)?;
    let file = open_program(layout, id, &program, pointer.runtime_bytes, &pointer.runtime_sha256)?;
    Ok((program, file))
}

/// The same of a release that is to be proven, which its own metadata pin.
fn probed(layout: &Layout, id: &ReleaseId) -> Result<(PathBuf, File), Error> {
    let found = verify::metadata(layout, id)?;
    let needed = found.metadata.min_launcher_protocol;
    if needed > LAUNCHER_PROTOCOL {
        return Err(outdated(id, needed));
    }
    let record = found.metadata.runtime_record()?;
    let program = program_of(layout, id);
    let file = open_program(layout, id, &program, record.bytes, &record.sha256)?;
    Ok((program, file))
}

fn program_of(layout: &Layout, id: &ReleaseId) -> PathBuf {
    layout.release(id).join("server").join(layout::program_name())
}

fn damaged(id: &ReleaseId, why: String) -> Error {
    ReleaseError::Damaged { id: id.to_string(), why }.into()
}

fn outdated(id: &ReleaseId, needed: u32) -> Error {
    StartError::LauncherOutdated { id: id.to_string(), needed, spoken: LAUNCHER_PROTOCOL }.into()
}

fn metadata_bytes(layout: &Layout, id: &ReleaseId) -> Result<Vec<u8>, Error> {
    require_folders(layout, id)?;
    let mut bytes = Vec::new();
    platform::open_no_link(&layout.release(id).join(METADATA_FILE))
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| damaged(id, format!("{METADATA_FILE}: {error}")))?;
    Ok(bytes)
}

/// A release may have been made for a later launcher, with metadata that this one cannot read; but for this
/// number. What it says was promised by the pointer's hash.
fn require_protocol(id: &ReleaseId, metadata: &[u8]) -> Result<(), Error> {
    let parsed: Option<Value> = serde_json::from_slice(metadata).ok();
    let needed = parsed
        .as_ref()
        .and_then(|metadata| metadata["minLauncherProtocol"].as_u64())
        .ok_or_else(|| damaged(id, format!("{METADATA_FILE} does not say which launcher it needs")))?;
    if needed > u64::from(LAUNCHER_PROTOCOL) {
        return Err(outdated(id, u32::try_from(needed).unwrap_or(u32::MAX)));
    }
    Ok(())
}

/// Every folder on the way is a folder and no link to one.
fn require_folders(layout: &Layout, id: &ReleaseId) -> Result<(), Error> {
    let release = layout.release(id);
    for folder in [layout.releases(), release.clone(), release.join("server")] {
        let name = layout.relative(&folder).unwrap_or_default();
        match std::fs::symlink_metadata(&folder) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(damaged(id, format!("{name} is not a folder"))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(damaged(id, format!("{name} is missing")));
            }
            Err(error) => return Err(damaged(id, format!("{name}: {error}"))),
        }
    }
    Ok(())
}

fn open_program(
    layout: &Layout,
    id: &ReleaseId,
    path: &Path,
    bytes: u64,
    sha256: &str,
) -> Result<File, Error> {
    let name = layout.relative(path).unwrap_or_default();
    let failed = |error: std::io::Error| damaged(id, format!("{name}: {error}"));
    require_folders(layout, id)?;
    let mut file = platform::open_to_run(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(damaged(id, format!("{name} is not a file")));
    }
    if found.len() != bytes {
        return Err(damaged(id, format!("{name} has {} bytes, not {bytes}", found.len())));
    }
    // One byte more than there should be, so that a file that grows is noticed.
    let (found, _) = digest::of_reader_beside((&mut file).take(bytes + 1)).map_err(failed)?;
    if found != sha256 {
        return Err(damaged(id, format!("{name} has other content")));
    }
    Ok(file)
}

impl Start {
    /// Runs it. Where a program can replace itself, this comes back only with an error.
    fn run(self, context: &Context, args: &[OsString]) -> Result<u8, Error> {
        let failed =
            |why: std::io::Error| StartError::NotStarted { path: self.program.clone(), why: why.to_string() };
        let mut env: BTreeMap<OsString, OsString> = context.env.clone();
        let mut set = |name: &str, value: OsString| {
            // On Windows the same name may be there in other letters.
            if cfg!(windows) {
                env.retain(|key, _| !key.to_string_lossy().eq_ignore_ascii_case(name));
            }
            env.insert(name.into(), value);
        };
        if context.var(CONFIG_VARIABLE).is_none_or(OsStr::is_empty) && self.config.is_file() {
            set(CONFIG_VARIABLE, self.config.clone().into_os_string());
        }
        if let Some((lease, release)) = &self.locks {
            let numbers =
                (lease.keep_across_exec().map_err(failed)?, release.keep_across_exec().map_err(failed)?);
            let pid = std::process::id();
            let value = match numbers {
                (Some(lease), Some(release)) => format!("{pid}:{lease}:{release}"),
                _ => pid.to_string(),
            };
            set(LEASE_VARIABLE, value.into());
        }
        if let Some((generation, start)) = &self.generation {
            let start = start.as_ref().map(|start| format!("/{start}")).unwrap_or_default();
            set(GENERATION_VARIABLE, format!("{generation}{start}").into());
        }
        platform::run_opened(&self.file, &self.program, args, &env).map_err(|why| failed(why).into())
    }
}

/// One line on standard error.
fn complain(error: &Error) {
    let line = format!("agent-bridge: {error}; next: {}", error.hint());
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Waits for the request that the host sends first, whatever it is (a handshake, a probe, a call of the revision
/// without a handshake), and answers it with the error.
pub fn answer_first_request(error: &Error) {
    if std::io::stdin().is_terminal() {
        return;
    }
    let (sender, receiver) = mpsc::channel();
    // A read cannot be given up, so it has a thread that ends with the process.
    let reading = std::thread::Builder::new().name("first-request".into()).spawn(move || {
        let mut lines = std::io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    if let Some(id) = request_id(&line) {
                        let _ = sender.send(id);
                        return;
                    }
                }
            }
        }
    });
    if reading.is_err() {
        return;
    }
    if let Ok(id) = receiver.recv_timeout(FIRST_REQUEST) {
        let mut line = refusal(&id, error).to_string();
        line.push('\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// The id of a request; none of a notification, an answer or what is no JSON-RPC.
fn request_id(line: &[u8]) -> Option<Value> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let message: Value = serde_json::from_slice(line).ok()?;
    message.get("method")?.as_str()?;
    let id = message.get("id")?;
    (id.is_string() || id.is_i64() || id.is_u64()).then(|| id.clone())
}

fn refusal(id: &Value, error: &Error) -> Value {
    let mut data = error.to_json();
    if error.retryable() {
        data["retryAfterMs"] = json!(u64::try_from(TRY_AGAIN.as_millis()).unwrap_or_default());
    }
    let message = if error.retryable() {
        error.message().to_owned()
    } else {
        format!("{}. {}", error.message().trim_end_matches('.'), error.hint())
    };
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32000, "message": message, "data": data } })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_launcher_does_what_must_work_without_a_release() {
        let doer = |words: &[&str]| doer(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(doer(&["serve"]), Doer::Server);
        assert_eq!(doer(&["--config", "serve", "serve", "--toolsets", "relay"]), Doer::Server);
        assert_eq!(doer(&["--config=x", "rollback", "--yes"]), Doer::Launcher);
        assert_eq!(doer(&["recover"]), Doer::Launcher);
        assert_eq!(doer(&["turns", "list"]), Doer::Release);
        assert_eq!(doer(&["delegate", "--agent", "codex", "serve"]), Doer::Release);
        assert_eq!(doer(&["a-command-of-a-later-release"]), Doer::Release);
        assert_eq!(doer(&["--version"]), Doer::Either);
        assert_eq!(doer(&[]), Doer::Either);
        assert_eq!(doer(&["doctor"]), Doer::Either);
    }

    #[test]
    fn only_requests_are_answered_and_under_their_own_id() {
        assert_eq!(request_id(br#"{"jsonrpc":"2.0","id":"a","method":"server/discover"}"#), Some(json!("a")));
        assert_eq!(request_id("\u{feff}{\"id\":0,\"method\":\"initialize\"}".as_bytes()), Some(json!(0)));
        for other in [
            &br#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#[..],
            br#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            br#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
            br#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#,
            b"hello",
            b"",
        ] {
            assert_eq!(request_id(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn a_refusal_is_one_line_and_says_when_to_try_again() {
        let waiting = refusal(&json!("x"), &StartError::Maintenance.into());
        assert_eq!(waiting["id"], "x");
        assert_eq!(waiting["error"]["message"], "agent-bridge is being updated; try again in a moment");
        assert_eq!(waiting["error"]["data"]["code"], "RELEASE_MAINTENANCE");
        assert_eq!(waiting["error"]["data"]["retryAfterMs"], 2000);
        assert!(!waiting.to_string().contains('\n'));
        let id = ReleaseId::parse("1.0.0+abcdef0").unwrap();
        let damaged = refusal(&json!(1), &damaged(&id, "x has other content".into()));
        assert!(damaged["error"]["data"].get("retryAfterMs").is_none());
        assert!(damaged["error"]["message"].as_str().unwrap().contains("install-release"), "{damaged}");
    }
}
