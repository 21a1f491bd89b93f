//! Places at which tests stop or end the program. Without the feature `fault-points` this is nothing.

/// A place with a name.
#[cfg(not(feature = "fault-points"))]
#[inline]
pub fn point(_name: &str) {}

/// A place with a name: `AGENT_BRIDGE_FAULT_POINT=NAME` aborts the program there, `NAME@FILE` makes the file and
/// waits for it to go. Only below a folder that carries `.agent-bridge-fixture`.
#[cfg(feature = "fault-points")]
pub fn point(name: &str) {
    let Some(wanted) = std::env::var_os("AGENT_BRIDGE_FAULT_POINT") else { return };
    let wanted = wanted.to_string_lossy().into_owned();
    let (wanted, file) = match wanted.split_once('@') {
        Some((wanted, file)) => (wanted.to_owned(), Some(std::path::PathBuf::from(file))),
        None => (wanted, None),
    };
    let fixture = std::env::var_os(super::layout::ROOT_VARIABLE).map(std::path::PathBuf::from);
    if wanted != name || !fixture.is_some_and(|root| root.join(".agent-bridge-fixture").exists()) {
        return;
    }
    match file {
        None => std::process::abort(),
        Some(file) => {
            let _ = std::fs::File::create(&file);
            while file.exists() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
}
