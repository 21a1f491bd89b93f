//! Starting a supervisor so that what ends its host does not end it.

use std::process::Command;

/// Takes the child out of the host's process group (Unix) or console (Windows): hosts end the whole group
/// of their servers, and a supervisor must live long enough to end its worker and record the turn.
pub fn detach_from_host(command: &mut Command) {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
    }
    #[cfg(windows)]
    {
        use std::os::windows::process::CommandExt;
        use windows_sys::Win32::System::Threading::{CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW};
        command.creation_flags(CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP);
    }
}
