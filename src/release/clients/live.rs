//! Which clients run at this moment.

use serde::Serialize;

use super::plan::ClientPlan;
use super::table;
use crate::release::{Layout, processes};

/// A client that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Running {
    /// Its id.
    pub client: &'static str,
    /// Its process.
    pub pid: u32,
}

/// The clients of a plan that run now, as far as the process table tells: a warning, not a proof.
pub(super) fn running(layout: &Layout, clients: &[ClientPlan]) -> Vec<Running> {
    let hosts = processes::scan(layout).hosts;
    let mut found = Vec::new();
    for host in hosts {
        for client in table::CLIENTS.iter().filter(|client| client.name == host.client) {
            if clients.iter().any(|one| one.client == client.id) {
                found.push(Running { client: client.id, pid: host.pid });
            }
        }
    }
    found
}
