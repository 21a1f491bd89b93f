//! Places at which tests stop or end the program. Without the feature `fault-points` this is nothing.

/// A place with a name.
#[cfg(not(feature = "fault-points"))]
#[inline]
pub fn point(_name: &str) {}

/// A place with a name. `AGENT_BRIDGE_FAULT_POINT` says what happens there: `NAME` aborts the program, `NAME*3` at
/// the third time; `NAME@FILE` makes the file and waits for it to go; `?FILE` aborts nowhere and writes down every
/// place. Only below a folder that carries `.agent-bridge-fixture`.
#[cfg(feature = "fault-points")]
pub fn point(name: &str) {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicUsize, Ordering};
    static TIMES: AtomicUsize = AtomicUsize::new(0);
    let Some(wanted) = std::env::var_os("AGENT_BRIDGE_FAULT_POINT") else { return };
    let wanted = wanted.to_string_lossy().into_owned();
    let fixture = std::env::var_os(super::layout::ROOT_VARIABLE).map(std::path::PathBuf::from);
    if !fixture.is_some_and(|root| root.join(".agent-bridge-fixture").exists()) {
        return;
    }
    if let Some(list) = wanted.strip_prefix('?') {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(list);
        let _ = file.and_then(|mut file| writeln!(file, "{name}"));
        return;
    }
    let (wanted, file) = match wanted.split_once('@') {
        Some((wanted, file)) => (wanted, Some(std::path::PathBuf::from(file))),
        None => (wanted.as_str(), None),
    };
    let (wanted, time) = match wanted.split_once('*') {
        Some((wanted, time)) => (wanted, time.parse().unwrap_or(1)),
        None => (wanted, 1),
    };
    if wanted != name || TIMES.fetch_add(1, Ordering::Relaxed) + 1 != time {
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
