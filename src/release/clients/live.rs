//! Which clients run at this moment.

use serde::Serialize;
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use super::plan::ClientPlan;
use super::table;

/// A client that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Running {
    /// Its id.
    pub client: &'static str,
    /// Its process.
    pub pid: u32,
}

/// The clients of a plan that run now, as far as names tell. Processes of others that cannot be looked at are
/// left out: this is a warning, not a proof.
pub(super) fn running(clients: &[ClientPlan]) -> Vec<Running> {
    let Ok(mut system) = System::new() else { return Vec::new() };
    let kind = ProcessRefreshKind::nothing().without_tasks().with_cmd(UpdateKind::Always);
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
    let mut found = Vec::new();
    for process in system.processes().values() {
        // A script shows up under the name of its interpreter, its own name second.
        let names: Vec<String> = process
            .cmd()
            .iter()
            .take(2)
            .map(|word| word.to_string_lossy())
            .map(|word| word.rsplit(['/', '\\']).next().unwrap_or_default().to_owned())
            .chain([process.name().to_string_lossy().into_owned()])
            .collect();
        for one in clients {
            let programs = table::find(one.client).map_or(&[][..], |client| client.programs);
            if programs.iter().any(|program| names.iter().any(|name| name == program)) {
                let running = Running { client: one.client, pid: process.pid().as_u32() };
                if !found.contains(&running) {
                    found.push(running);
                }
            }
        }
    }
    found.sort_by_key(|one| (one.client, one.pid));
    found
}
