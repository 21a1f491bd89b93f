//! Process groups and signals on Windows, as far as there is anything like them.

/// A job object holds the whole tree; there is no group to leave.
pub(super) fn own_group() {}

/// A job object holds the whole tree; there is no session to leave.
pub(super) fn own_session() {}

/// No signals arrive, so none needs to be ignored.
pub(super) fn ignore_signals(_names: &[String]) -> Result<(), String> {
    Ok(())
}

/// The exit code of a program that was ended from outside (`STATUS_CONTROL_C_EXIT`).
pub(super) fn kill_self(_name: &str) -> Result<i32, String> {
    Ok(-1_073_741_510)
}
