//! Gate and lease: who may start, and who is still there. Both are locks that the kernel keeps, so whatever way a
//! process ends, it lets go at once.
//!
//! Whoever starts passes the *gate* (shared, for a moment) and takes the *lease* (shared, for life). Whoever
//! switches closes the gate (alone) and waits until it has the lease alone. The gate is why a switch is not kept
//! out for ever by hosts that reconnect: behind a closed gate nothing new comes, so the lease only drains.
//!
//! Nothing starts between [`ClosedGate::drain`] and the end of [`Drained`]: a start that has the lease keeps
//! `drain` from succeeding, and a start that has not must pass the gate first.

use std::time::{Duration, Instant};

use super::holders::{Label, OwnLabel};
use super::readiness::{self, Holder};
use super::{Layout, Place, ReleaseError, ReleaseId, StartError, journal, recovery, trial};
use crate::context::{Clock, Context};
use crate::digest;
use crate::error::Error;
use crate::platform::{self, LockFile, PlatformError};

pub use super::holders::Holding;

/// Tells the program after the launcher that the launcher's lease is its lease: `PID`, or `PID:LEASE:RELEASE` with
/// the numbers of the open locks.
pub(super) const LEASE_VARIABLE: &str = "AGENT_BRIDGE_LEASE";
/// Tells which generation the launcher started: `GENERATION`, or `GENERATION/START` if it is on trial.
pub(super) const GENERATION_VARIABLE: &str = "AGENT_BRIDGE_GENERATION";
/// Carries the token of a probe, which starts behind the closed gate.
pub const PROBE_VARIABLE: &str = "AGENT_BRIDGE_PROBE";

/// How long a program of a release waits for the gate; the launcher has its own measure.
const GATE_WAIT: Duration = Duration::from_millis(400);
/// How long a start waits for a lease that somebody only looks at.
const LEASE_WAIT: Duration = Duration::from_millis(200);
/// How often the gate is tried. It is held for microseconds, so often is soon.
const GATE_POLL: Duration = Duration::from_micros(300);
/// How often the lease is tried.
const LEASE_POLL: Duration = Duration::from_millis(5);

/// The right to run from an installation. As long as it lives no switch (but a soft one) happens.
#[derive(Debug)]
pub struct Lease {
    label: Option<OwnLabel>,
    _release: Option<LockFile>,
    _lease: LockFile,
    layout: Layout,
    /// The start that a trial waits for.
    trial: Option<(u64, String)>,
}

impl Lease {
    /// Adds the name of the MCP client, which a server learns with the handshake.
    pub fn introduce(&self, client: &str, version: &str) {
        if let Some(label) = &self.label {
            label.introduce(client, version);
        }
        if let Some((generation, start)) = &self.trial {
            trial::shook_hands(&self.layout, *generation, start);
        }
    }
}

/// Takes the lease for this process, if its program belongs to an installation; else none, without a look at the
/// disk. `None` also for a probe behind the closed gate.
///
/// Refused with RELEASE_MAINTENANCE while the gate is closed.
pub fn hold(context: &Context, what: Holding) -> Result<Option<Lease>, Error> {
    let Some((layout, place)) = own_place(context) else { return Ok(None) };
    if !layout.is_installation() {
        return Ok(None);
    }
    if probe(context, &layout).is_some() {
        return Ok(None);
    }
    let id = match place {
        Place::Release(id) => Some(id),
        Place::Launcher => None,
    };
    let inherited = Inherited::read(context);
    let (lease, release) = match inherited.locks(&layout, id.as_ref()) {
        Some(locks) => locks,
        None => {
            let lease = if inherited.from_parent {
                // The launcher, which waits for us, has passed the gate and holds the lease.
                shared_lease(&layout)?
            } else {
                pass_gate(&layout, GATE_WAIT)?
            };
            (lease, id.as_ref().map(|id| release_lease(&layout, id)).transpose()?)
        }
    };
    let mut label = Label::of_this_process(context.clock, what, id);
    label.generation = inherited.generation;
    Ok(Some(Lease {
        // Without a label the lease is as good; only its holder has no name.
        label: OwnLabel::write(&layout, label).ok(),
        _release: release,
        _lease: lease,
        trial: inherited.generation.zip(inherited.start),
        layout,
    }))
}

/// The installation that this program belongs to, and its role there, also if it was started through a link.
pub(super) fn own_place(context: &Context) -> Option<(Layout, Place)> {
    Layout::of_program(&context.exe).or_else(|| {
        let real =
            std::fs::read_link(&context.exe).and_then(|_| crate::config::canonical(&context.exe)).ok()?;
        Layout::of_program(&real)
    })
}

/// What the launcher left to this process.
struct Inherited {
    /// Numbers of the open locks.
    numbers: Option<(u32, u32)>,
    from_parent: bool,
    generation: Option<u64>,
    /// Name of the start, for a generation on trial.
    start: Option<String>,
}

impl Inherited {
    fn read(context: &Context) -> Self {
        let mut this = Self { numbers: None, from_parent: false, generation: None, start: None };
        let mut parts = context.text_var(LEASE_VARIABLE).unwrap_or_default().split(':');
        let Some(pid) = parts.next().and_then(|part| part.parse::<u32>().ok()) else { return this };
        let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
        if pid == std::process::id() {
            this.numbers = number().zip(number());
        } else {
            // What this process started inherits the variable too, so whose it is must fit.
            this.from_parent = this.numbers.is_none() && number().is_none() && is_parent(pid);
        }
        if this.numbers.is_some() || this.from_parent {
            let text = context.text_var(GENERATION_VARIABLE).unwrap_or_default();
            let (generation, start) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
            this.generation = generation.parse().ok();
            this.start = start.map(str::to_owned);
        }
        this
    }

    fn locks(&self, layout: &Layout, id: Option<&ReleaseId>) -> Option<(LockFile, Option<LockFile>)> {
        let ((lease, release), id) = self.numbers.zip(id)?;
        let lease = LockFile::adopt_shared(&layout.lease_lock(), lease)?;
        Some((lease, Some(LockFile::adopt_shared(&layout.release_lease(id), release)?)))
    }
}

fn is_parent(pid: u32) -> bool {
    platform::parent_of(std::process::id()) == Some(pid)
}

/// Passes the gate and takes the lease; waits no longer than this.
pub(super) fn pass_gate(layout: &Layout, wait: Duration) -> Result<LockFile, Error> {
    layout.create_locks()?;
    let deadline = Instant::now() + wait;
    let gate = loop {
        if let Some(gate) = platform::try_shared(&layout.gate_lock())? {
            break gate;
        }
        if Instant::now() >= deadline {
            return Err(StartError::Maintenance.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let lease = shared_lease(layout);
    drop(gate);
    lease
}

/// The lease itself. Behind a passed gate nobody has it alone but for the moment of a look.
fn shared_lease(layout: &Layout) -> Result<LockFile, Error> {
    let deadline = Instant::now() + LEASE_WAIT;
    loop {
        if let Some(lease) = platform::try_shared(&layout.lease_lock())? {
            return Ok(lease);
        }
        if Instant::now() >= deadline {
            return Err(StartError::Maintenance.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The lease of one release, which keeps it from being removed.
pub(super) fn release_lease(layout: &Layout, id: &ReleaseId) -> Result<LockFile, Error> {
    let deadline = Instant::now() + LEASE_WAIT;
    loop {
        if let Some(lease) = platform::try_shared(&layout.release_lease(id))? {
            return Ok(lease);
        }
        if Instant::now() >= deadline {
            return Err(ReleaseError::NotInstalled { id: id.to_string(), root: layout.root().into() }.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The right to remove a release: nothing runs from it, and nothing will as long as this lives. None if
/// something does.
pub fn unused_release(layout: &Layout, id: &ReleaseId) -> Result<Option<LockFile>, PlatformError> {
    platform::create_private_dir(&layout.root().join("leases"))?;
    platform::try_exclusive(&layout.release_lease(id))
}

/// What a probe may start behind the closed gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePass {
    /// The release that the unfinished transaction wants to prove.
    pub release: ReleaseId,
}

/// The facts that a transaction records at its beginning so that a probe with this token may start this release:
/// `{"probe": …}` with what this gives.
pub fn probe_facts(token: &str, release: &ReleaseId) -> serde_json::Value {
    serde_json::json!({ "tokenSha256": digest::of_bytes(token.as_bytes()), "releaseId": release })
}

/// Whether this process carries the token of the transaction that is going on.
pub fn probe(context: &Context, layout: &Layout) -> Option<ProbePass> {
    let token = context.text_var(PROBE_VARIABLE)?;
    let transaction = journal::unfinished(layout).ok()??;
    let (_, _, facts) = transaction.begin()?;
    let announced = facts.pointer("/probe/tokenSha256")?.as_str()?;
    let release = ReleaseId::parse(facts.pointer("/probe/releaseId")?.as_str()?).ok()?;
    let same = is_same(announced.as_bytes(), digest::of_bytes(token.as_bytes()).as_bytes());
    same.then_some(ProbePass { release })
}

/// Takes as long for a wrong text as for the right one.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Behind this nothing new starts.
#[derive(Debug)]
pub struct ClosedGate {
    gate: LockFile,
    layout: Layout,
    since: Instant,
}

/// Nothing runs, and nothing starts until this is dropped.
#[derive(Debug)]
pub struct Drained {
    lease: LockFile,
    closed: ClosedGate,
}

/// Somebody did not leave in time. The gate is open again.
#[derive(Debug)]
pub struct Busy {
    layout: Layout,
    /// Who, as far as they can be named.
    pub holders: Vec<Holder>,
    /// The lock itself failed.
    failure: Option<PlatformError>,
}

/// Closes the gate; who holds the install lock may. Waits no longer than this for another one who has closed it.
pub fn close_gate(layout: &Layout, wait: Duration) -> Result<ClosedGate, Error> {
    layout.create_locks()?;
    let since = Instant::now();
    loop {
        if let Some(gate) = platform::try_exclusive(&layout.gate_lock())? {
            return Ok(ClosedGate { gate, layout: layout.clone(), since });
        }
        if since.elapsed() >= wait {
            return Err(ReleaseError::Locked { root: layout.root().to_path_buf() }.into());
        }
        std::thread::sleep(GATE_POLL);
    }
}

impl ClosedGate {
    /// Waits until nothing runs any more, at most this long.
    pub fn drain(self, deadline: Duration) -> Result<Drained, Busy> {
        self.drain_while(deadline, &mut || true)
    }

    /// The same, as long as `go_on` says so; it is asked at every look that finds somebody.
    pub fn drain_while(self, deadline: Duration, go_on: &mut dyn FnMut() -> bool) -> Result<Drained, Busy> {
        let until = Instant::now() + deadline;
        loop {
            match platform::try_exclusive(&self.layout.lease_lock()) {
                Ok(Some(lease)) => return Ok(Drained { lease, closed: self }),
                Ok(None) if Instant::now() < until && go_on() => std::thread::sleep(LEASE_POLL),
                Ok(None) => {
                    let holders = readiness::holders(&self.layout);
                    return Err(Busy { layout: self.layout, holders, failure: None });
                }
                Err(error) => {
                    return Err(Busy { layout: self.layout, holders: Vec::new(), failure: Some(error) });
                }
            }
        }
    }

    /// Since when it is closed.
    pub fn since(&self) -> Instant {
        self.since
    }
}

impl Drained {
    /// Since when the gate is closed.
    pub fn since(&self) -> Instant {
        self.closed.since
    }

    /// Lets starts in again; gives how long they were kept out.
    pub fn open(self) -> Duration {
        let since = self.closed.since;
        // In this order: who passes the gate must find the lease free.
        drop(self.lease);
        drop(self.closed.gate);
        since.elapsed()
    }
}

impl From<Busy> for Error {
    fn from(busy: Busy) -> Self {
        if let Some(failure) = busy.failure {
            return failure.into();
        }
        let names: Vec<String> = busy.holders.iter().map(Holder::sentence).collect();
        let holders = if names.is_empty() {
            "a process that cannot be seen from here (another container or namespace)".to_owned()
        } else {
            names.join("; ")
        };
        let details = serde_json::json!({ "holders": busy.holders });
        Error::from(ReleaseError::InUse { root: busy.layout.root().to_path_buf(), holders })
            .with_details(details)
    }
}

/// Recovery behind the closed gate: who starts meanwhile waits for it. Servers that run are left alone: they hold
/// an old pointer's release and need nothing of what is put back.
pub fn recover(layout: &Layout, clock: Clock, wait: Duration) -> Result<recovery::Recovery, Error> {
    if !layout.is_installation() {
        return Ok(recovery::recover(layout, clock, false)?);
    }
    let _gate = close_gate(layout, wait)?;
    Ok(recovery::recover(layout, clock, false)?)
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
